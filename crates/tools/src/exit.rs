//! How a command ends when it does not succeed: exit code, message, and what to do about it.
//!
//! Owns the one table of exit codes that `--help` and `docs/cli.md` show. Guarantees that every error of the client and of
//! files comes to one of these codes; the commands that run a server give its own errors theirs.

use std::fmt;
use std::io;
use std::process::ExitCode;

use riverrun_client::{ClientError, TopicPartition};
use riverrun_protocol::ErrorCode;
use riverrun_types::Offset;
use serde_json::{Value, json};

use crate::logging;

/// The exit code of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done. Also when the reader of the output has stopped reading.
    Ok = 0,
    /// Failed in a way that none of the others names.
    Failed = 1,
    /// The command line, the configuration or the input is wrong.
    Usage = 2,
    /// A topic, group, record, server of the cluster or file does not exist.
    NotFound = 3,
    /// The server, or a partition, cannot be reached or did not answer in time.
    Unreachable = 4,
    /// A check found something wrong, or data that was read is damaged.
    CheckFailed = 5,
    /// It exists already, or is in use.
    Conflict = 6,
    /// The server stopped by itself: its disks have failed.
    StorageFailed = 7,
    /// Stopped by Ctrl-C or SIGTERM before it was done.
    Interrupted = 130,
}

/// Exit codes as `--help` and the documentation show them.
pub const EXIT_CODES: [(Exit, &str); 9] = [
    (Exit::Ok, "done; also when the reader of the output stopped reading"),
    (Exit::Failed, "failed in a way that no other code names"),
    (Exit::Usage, "command line, configuration or input wrong"),
    (Exit::NotFound, "topic, group, server of the cluster, option or file not found"),
    (Exit::Unreachable, "server or partition not reached, or no answer in time"),
    (
        Exit::CheckFailed,
        "a check found something wrong (demo, log verify, log repair, queue verify, config check), or data that was read is damaged",
    ),
    (Exit::Conflict, "exists already, or is in use"),
    (Exit::StorageFailed, "the server stopped by itself: every log dir, or the metadata, failed"),
    (Exit::Interrupted, "stopped by Ctrl-C or SIGTERM before it was done"),
];

/// Why a command did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code that the process ends with.
    pub exit: Exit,
    message: String,
    advice: Option<String>,
}

impl Failure {
    /// A failure with this code and message, and nothing to do about it.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), advice: None }
    }

    /// The command line, the configuration or the input is wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// The end of a command whose output has lost its reader.
    pub fn reader_left() -> Self {
        Self::new(Exit::Ok, String::new())
    }

    /// The failure with a line that says what to do.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// The failure with what it is about in front.
    #[must_use]
    pub fn about(mut self, subject: impl fmt::Display) -> Self {
        if self.exit != Exit::Ok {
            self.message = format!("{subject}: {}", self.message);
        }
        self
    }

    /// The message without its advice.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// A failure to read or write `what`.
    pub fn io(what: impl fmt::Display, error: &io::Error) -> Self {
        let exit = match error.kind() {
            io::ErrorKind::NotFound => Exit::NotFound,
            _ => Exit::Failed,
        };
        Self::new(exit, format!("{what}: {error}"))
    }

    /// A failure to write our output.
    pub fn output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::reader_left(),
            _ => Self::io("cannot write the output", error),
        }
    }

    /// Says on stderr what went wrong: to people, or to programs as one JSON object on a line of its own. Without `json` it
    /// has the form of the log where that is JSON.
    pub fn tell(&self, json: bool) {
        let told = if json {
            self.to_json().to_string()
        } else {
            let line = logging::error_line(&self.message, self.advice.as_deref(), self.exit as u8);
            line.unwrap_or_else(|| self.to_string())
        };
        logging::say(&told);
    }

    fn to_json(&self) -> Value {
        json!({"error": self.message, "advice": self.advice, "exit_code": self.exit as u8})
    }

    /// Tells it, if there is something to tell, and gives the code to end with.
    pub fn report(&self, json: bool) -> ExitCode {
        if self.exit != Exit::Ok {
            self.tell(json);
        }
        ExitCode::from(self.exit as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.advice {
            Some(advice) => write!(f, "\n  try: {advice}"),
            None => Ok(()),
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let failure = Self::new(exit_of(&error), error.to_string());
        if let ClientError::Unreadable { partition, next, .. } = &error {
            return failure.advise(read_on(partition, *next));
        }
        match advice(&error) {
            Some(text) => failure.advise(text),
            None => failure,
        }
    }
}

/// Advice about a batch that cannot be read, and how to read the records behind it.
fn read_on(partition: &TopicPartition, next: Option<Offset>) -> String {
    let verify = "riverrun log verify DIR   (what is damaged, on the stopped server)";
    let TopicPartition { topic, partition } = partition;
    next.map_or_else(
        || verify.to_owned(),
        |next| {
            format!(
                "{verify}; riverrun consume {topic} --partition {partition} --from {next}   (what comes behind it); \
                 riverrun group reset GROUP --topic {topic}:{partition} --to-offset {next} --execute   (takes a group past it)"
            )
        },
    )
}

fn exit_of(error: &ClientError) -> Exit {
    match error {
        ClientError::Unreadable { source, .. } if source.is_damage() => Exit::CheckFailed,
        ClientError::Connect { .. }
        | ClientError::Disconnected { .. }
        | ClientError::Timeout { .. }
        | ClientError::Blocked { .. }
        | ClientError::Undelivered { .. } => Exit::Unreachable,
        ClientError::UnknownNode(_) | ClientError::UnknownPartition(_) => Exit::NotFound,
        ClientError::Invalid(_) | ClientError::RecordTooLarge { .. } => Exit::Usage,
        ClientError::Server { code, .. } => exit_of_code(*code),
        _ => Exit::Failed,
    }
}

fn exit_of_code(code: ErrorCode) -> Exit {
    match code {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        | ErrorCode::UNKNOWN_TOPIC_ID
        | ErrorCode::GROUP_ID_NOT_FOUND
        | ErrorCode::RESOURCE_NOT_FOUND => Exit::NotFound,
        ErrorCode::TOPIC_ALREADY_EXISTS
        | ErrorCode::NON_EMPTY_GROUP
        | ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC => Exit::Conflict,
        ErrorCode::REQUEST_TIMED_OUT
        | ErrorCode::NETWORK_EXCEPTION
        | ErrorCode::NOT_COORDINATOR
        | ErrorCode::COORDINATOR_NOT_AVAILABLE
        | ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
        | ErrorCode::NOT_LEADER_OR_FOLLOWER
        | ErrorCode::LEADER_NOT_AVAILABLE
        | ErrorCode::KAFKA_STORAGE_ERROR => Exit::Unreachable,
        ErrorCode::INVALID_TOPIC_EXCEPTION
        | ErrorCode::INVALID_PARTITIONS
        | ErrorCode::INVALID_REPLICATION_FACTOR
        | ErrorCode::INVALID_REPLICA_ASSIGNMENT
        | ErrorCode::INVALID_CONFIG
        | ErrorCode::INVALID_REQUEST
        | ErrorCode::INVALID_GROUP_ID
        | ErrorCode::INVALID_RECORD
        | ErrorCode::INVALID_REGULAR_EXPRESSION
        | ErrorCode::INVALID_TIMESTAMP
        | ErrorCode::RECORD_LIST_TOO_LARGE
        | ErrorCode::UNSUPPORTED_COMPRESSION_TYPE
        | ErrorCode::OFFSET_OUT_OF_RANGE
        | ErrorCode::MESSAGE_TOO_LARGE
        | ErrorCode::POLICY_VIOLATION => Exit::Usage,
        _ => Exit::Failed,
    }
}

fn advice(error: &ClientError) -> Option<&'static str> {
    Some(match error {
        ClientError::Connect { .. } => {
            "riverrun serve   (starts a server here), or --bootstrap HOST:PORT for another one"
        }
        ClientError::Timeout { .. } | ClientError::Undelivered { .. } | ClientError::Blocked { .. } => {
            "more time (--timeout, or request.timeout.ms), or look at the server's log and /health for what it waits for"
        }
        ClientError::RecordTooLarge { option: "buffer.memory", .. } => {
            "buffer.memory with more bytes, or smaller records"
        }
        ClientError::RecordTooLarge { .. } => "max.request.size with more bytes, or smaller records",
        ClientError::Server { code, .. } => match *code {
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => "riverrun topic list   (the topics that there are)",
            ErrorCode::GROUP_ID_NOT_FOUND => "riverrun group list   (the groups that there are)",
            ErrorCode::INVALID_TOPIC_EXCEPTION => {
                "a name of 1 to 249 letters, digits, '.', '_' and '-', other than . and .., and no topic of the server's own; \
                 __consumer_offsets takes records of clients only with offsets.topic.client.writes=true"
            }
            ErrorCode::TOPIC_ALREADY_EXISTS => "riverrun topic describe NAME, or --if-not-exists",
            ErrorCode::NON_EMPTY_GROUP => {
                "stop the group's consumers first; riverrun group describe GROUP shows them"
            }
            ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE => {
                "look at the server's log and /health: groups take no changes there, as while the disk is full"
            }
            ErrorCode::INVALID_CONFIG => "riverrun config docs   (every option with its range)",
            ErrorCode::MESSAGE_TOO_LARGE => {
                "riverrun config set --topic NAME max.message.bytes=BYTES, or smaller records"
            }
            _ => return None,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn server(code: ErrorCode) -> Failure {
        ClientError::Server { code, message: None }.into()
    }

    #[test]
    fn an_error_comes_to_its_exit_code() {
        for (code, exit) in [
            (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, Exit::NotFound),
            (ErrorCode::TOPIC_ALREADY_EXISTS, Exit::Conflict),
            (ErrorCode::REQUEST_TIMED_OUT, Exit::Unreachable),
            (ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, Exit::Unreachable),
            (ErrorCode::INVALID_PARTITIONS, Exit::Usage),
            (ErrorCode::INVALID_RECORD, Exit::Usage),
            (ErrorCode::UNKNOWN_SERVER_ERROR, Exit::Failed),
        ] {
            assert_eq!(server(code).exit, exit, "{code}");
        }
        assert_eq!(Failure::from(ClientError::Invalid("x".into())).exit, Exit::Usage);
        let gone = ClientError::UnknownPartition(TopicPartition::new("t", 0));
        assert_eq!(Failure::from(gone).exit, Exit::NotFound);
        let (after, what, last) = (Duration::from_secs(1), "room".to_owned(), None);
        assert_eq!(Failure::from(ClientError::Blocked { after, what, last }).exit, Exit::Unreachable);
    }

    #[test]
    fn groups_that_take_no_changes_send_to_the_server_s_log() {
        for code in [ErrorCode::NOT_COORDINATOR, ErrorCode::COORDINATOR_NOT_AVAILABLE] {
            let text = server(code).to_string();
            assert!(
                text.contains("try: look at the server's log") && text.contains("disk is full"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_failure_says_what_it_is_about_and_what_to_do() {
        let text = server(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION).about("topic flights").to_string();
        assert!(text.starts_with("error: topic flights: "), "{text}");
        assert!(text.contains("\n  try: riverrun topic list"), "{text}");
    }

    #[test]
    fn a_program_is_told_the_same_as_people() {
        let failure = server(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION).about("topic flights");
        let told = failure.to_json();
        assert_eq!((&told["error"], &told["exit_code"]), (&json!(failure.message()), &json!(3)));
        assert!(told["advice"].as_str().expect("advice").starts_with("riverrun topic list"), "{told}");
        assert_eq!(Failure::usage("no").to_json()["advice"], Value::Null);
    }

    #[test]
    fn a_closed_pipe_is_not_an_error() {
        let failure = Failure::output(&io::ErrorKind::BrokenPipe.into());
        assert_eq!(failure.exit, Exit::Ok);
        assert_eq!(Failure::output(&io::ErrorKind::StorageFull.into()).exit, Exit::Failed);
    }

    #[test]
    fn exit_codes_are_distinct_and_in_order() {
        let codes: Vec<u8> = EXIT_CODES.iter().map(|(exit, _)| *exit as u8).collect();
        assert!(codes.is_sorted_by(|a, b| a < b), "{codes:?}");
    }
}
