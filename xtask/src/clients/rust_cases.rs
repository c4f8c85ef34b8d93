//! Cases written in Rust around a command-line client, and their shared parts: unique names, commands with a deadline,
//! and checks that show the output.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};

use super::exec::{self, Finished};
use super::install::Toolbox;
use super::report::{CaseResult, Report};
use super::server::Server;

/// Time limit of one run of a command-line client.
const COMMAND_LIMIT: Duration = Duration::from_mins(1);

/// A named case.
#[derive(Clone, Copy)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) run: fn(&Bench<'_>) -> anyhow::Result<()>,
}

/// Environment of a case.
///
/// Invariants: all names that it gave out are different, in this run and others.
pub(super) struct Bench<'a> {
    toolbox: &'a Toolbox,
    server: &'a Server,
    suffix: String,
    names_given: AtomicU32,
}

impl<'a> Bench<'a> {
    pub(super) fn new(toolbox: &'a Toolbox, server: &'a Server) -> Self {
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_nanos());
        Self { toolbox, server, suffix: format!("{:x}", nanos & 0xffff_ffff), names_given: AtomicU32::new(0) }
    }

    /// A name for a topic or a group of this case alone.
    pub(super) fn name(&self, what: &str) -> String {
        let number = self.names_given.fetch_add(1, Ordering::Relaxed);
        format!("{what}-{}-{number}", self.suffix)
    }

    pub(super) fn bootstrap(&self) -> String {
        self.server.bootstrap()
    }

    /// One of Kafka's own tools by class, without arguments yet.
    pub(super) fn tool(&self, class: &str) -> Command {
        let mut command = self.toolbox.java("256m");
        // A tool lives for a second: the optimising compiler would only compete with it for the processor.
        command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", class]);
        command
    }

    /// A file of this run that a tool reads.
    pub(super) fn write_file(&self, name: &str, text: &str) -> anyhow::Result<String> {
        let path = self.server.dir().join(name);
        std::fs::write(&path, text).with_context(|| format!("could not write {}", path.display()))?;
        Ok(path.display().to_string())
    }
}

/// Runs a client that is expected to succeed.
pub(super) fn succeed(command: &mut Command) -> anyhow::Result<Finished> {
    succeed_with(command, "")
}

/// As [`succeed`], with text on its standard input.
pub(super) fn succeed_with(command: &mut Command, input: &str) -> anyhow::Result<Finished> {
    exec::run_ok(command, input.as_bytes(), COMMAND_LIMIT)
}

/// Runs a client that is expected to fail, by its exit code, and to print `expected`.
pub(super) fn refuse(command: &mut Command, expected: &str) -> anyhow::Result<()> {
    let finished = exec::run(command, b"", COMMAND_LIMIT)?;
    if finished.status.success() {
        bail!("{command:?} succeeded and should not have:\n{}", finished.output());
    }
    says(&finished.output(), expected)
}

/// Checks that `output` has `expected` in it.
pub(super) fn says(output: &str, expected: &str) -> anyhow::Result<()> {
    if !output.contains(expected) {
        bail!("expected `{expected}` in the output:\n{output}");
    }
    Ok(())
}

/// Checks that some line of `output` begins with these words, whatever the space between them.
pub(super) fn has_row(output: &str, words: &[&str]) -> anyhow::Result<()> {
    let begins = |line: &str| line.split_whitespace().take(words.len()).eq(words.iter().copied());
    if !output.lines().any(begins) {
        bail!("expected a line that begins with {words:?} in the output:\n{output}");
    }
    Ok(())
}

/// Checks that two values agree, and shows both if not.
pub(super) fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    found: &T,
    expected: &T,
) -> anyhow::Result<()> {
    if found != expected {
        bail!("{what}: expected {expected:?}, found {found:?}");
    }
    Ok(())
}

/// Runs the cases named in `only`, or all if it is empty.
pub(super) fn run(suite: &str, cases: &[Case], only: &[String], bench: &Bench<'_>, report: &Report) {
    for case in cases.iter().filter(|case| only.is_empty() || only.iter().any(|name| name == case.name)) {
        let begun = Instant::now();
        let failure = (case.run)(bench).err().map(|error| format!("{error:#}"));
        report.add(CaseResult { name: format!("{suite}/{}", case.name), elapsed: begun.elapsed(), failure });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_found_whatever_the_space_between_its_words() {
        assert!(has_row("GROUP  TOPIC\ng    t   3 4\n", &["g", "t", "3"]).is_ok());
        assert!(has_row("xg t 3\ng t 4\n", &["g", "t", "3"]).is_err());
    }

    #[test]
    fn a_client_that_succeeds_where_it_must_refuse_is_an_error() {
        assert!(refuse(&mut Command::new("true"), "").is_err());
        assert!(refuse(Command::new("sh").args(["-c", "echo because; exit 1"]), "because").is_ok());
    }
}
