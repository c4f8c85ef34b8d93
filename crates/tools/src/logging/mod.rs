//! Diagnostics on stderr, by level and module, as text or JSON.
//!
//! Owns the queue that all lines of the process go through, and the one thread that writes them: what is logged, and what
//! a command says beside its answer, such as a summary, a warning or its progress. Guarantees that a thread that logs,
//! tells, fails or panics never waits for stderr and never ends because of it: a line for which there is no room is
//! dropped and counted, and the next line that gets through says how many were. No command prints to stderr otherwise,
//! except a progress bar on a terminal.

mod line;
mod queue;
mod writer;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fs::File;
use std::io::{IsTerminal as _, Write};
use std::os::fd::AsFd as _;
use std::panic::PanicHookInfo;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use riverrun_types::LogAccount;
use tracing::Level;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use self::line::{LineLayer, Style, Value};
use self::queue::LogQueue;
use crate::exit::Failure;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// How long the end of the process waits for its last lines: a reader that is only slow takes what a queue holds in
/// less, and one that has stopped must not hold up a stop.
const LAST_LINES_WAIT: Duration = Duration::from_secs(1);

/// The log of this process.
struct Log {
    queue: Arc<LogQueue>,
    account: Arc<LogAccount>,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// Waits for the last lines, within a bound, when it is dropped: also where the process ends by a panic.
pub struct LastLines;

impl Drop for LastLines {
    fn drop(&mut self) {
        drain();
    }
}

/// Starts logging with the filter that was asked for, or with a default. Lines that are in the queue when the guard is
/// dropped are waited for.
pub fn start(filter: Option<&str>, default: &str) -> Result<LastLines, Failure> {
    let filter = parse(filter.unwrap_or(default))?;
    let has_colours =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let style = Arc::new(Style::new(has_colours));
    let account = Arc::new(LogAccount::default());
    let queue = Arc::new(LogQueue::new(Arc::clone(&account), Arc::clone(&style)));
    writer::spawn(Arc::clone(&queue), stderr())
        .map_err(|error| Failure::io("cannot start a thread", &error))?;
    let layer = LineLayer::new(Arc::clone(&queue));
    tracing_subscriber::registry().with(filter).with(layer).init();
    std::panic::set_hook(Box::new(tell_panic));
    assert!(LOG.set(Log { queue, account }).is_ok(), "logging starts once");
    Ok(LastLines)
}

/// Writes lines as JSON from now on, or as text.
pub fn set_json(is_json: bool) {
    if let Some(log) = LOG.get() {
        log.queue.style().set_json(is_json);
    }
}

/// The counts of written and lost lines, for a server in this process.
pub fn account() -> Arc<LogAccount> {
    LOG.get().map(|log| Arc::clone(&log.account)).unwrap_or_default()
}

/// The reason why the process fails, as a line of the log where that is JSON, because its reader parses every line.
pub(crate) fn error_line(message: &str, advice: Option<&str>, exit_code: u8) -> Option<String> {
    let style = LOG.get().map(|log| log.queue.style()).filter(|style| style.is_json())?;
    let mut fields = vec![("exit_code", Value::Plain(exit_code.into()))];
    fields.extend(advice.map(|advice| ("advice", Value::Quoted(advice.to_owned()))));
    Some(style.line(Level::ERROR, "riverrun", message, &fields).trim_end().to_owned())
}

/// Says something that is no log line, such as why the command failed, behind what was logged before. Returns when it
/// is written or when the reader of stderr has had its time.
pub(crate) fn say(text: &str) {
    note(text);
    drain();
}

/// The same without a wait, for what is said while the command goes on and for its summary: what is left is waited for
/// at the end of the process.
pub(crate) fn note(text: &str) {
    match LOG.get() {
        Some(log) => log.queue.push(format!("{text}\n")),
        // The command line was refused before there was a log. An error of this write has no reader.
        None => drop(writeln!(std::io::stderr(), "{text}")),
    }
}

/// Waits until everything is written, or until the reader of stderr has had its time.
pub fn drain() {
    if let Some(log) = LOG.get() {
        log.queue.drain(LAST_LINES_WAIT);
    }
}

/// A handle of its own: the standard library's has a lock that the writer would hold while it waits, and that every other
/// print to stderr takes.
fn stderr() -> Box<dyn Write + Send> {
    match std::io::stderr().as_fd().try_clone_to_owned() {
        Ok(handle) => Box::new(File::from(handle)),
        Err(_) => Box::new(std::io::stderr()),
    }
}

/// Logs a panic, which the standard library would write to stderr itself, and wait for it.
fn tell_panic(info: &PanicHookInfo<'_>) {
    let Some(log) = LOG.get() else { return };
    let thread = std::thread::current();
    let mut fields = vec![
        ("thread", Value::Shown(thread.name().unwrap_or("without a name").to_owned())),
        ("reason", Value::Shown(info.payload_as_str().unwrap_or("not a text").to_owned())),
    ];
    fields.extend(info.location().map(|place| ("place", Value::Shown(place.to_string()))));
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        fields.push(("backtrace", Value::Shown(trace.to_string())));
    }
    log.queue.push(log.queue.style().line(Level::ERROR, "panic", "a thread panicked", &fields));
}

fn parse(text: &str) -> Result<EnvFilter, Failure> {
    let failed = |reason: &str| {
        Failure::usage(format!("log level {text:?}: {reason}"))
            .advise("--log-level debug, or by module: --log-level warn,riverrun_broker=debug")
    };
    // The filter would take an unknown word for a module and log all of it, and nothing of the others.
    let is_known = |part: &str| part.contains('=') || LEVELS.contains(&part.to_ascii_lowercase().as_str());
    if let Some(part) = text.split(',').find(|part| !is_known(part.trim())) {
        return Err(failed(&format!("{part:?} is none of {}", LEVELS.join(", "))));
    }
    EnvFilter::builder().parse(text).map_err(|error| failed(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_a_known_word_alone_or_for_a_module() {
        for good in ["info", "WARN", "off", "warn,riverrun_broker=debug", "riverrun_log=trace"] {
            assert!(parse(good).is_ok(), "{good:?}");
        }
        for bad in ["", "loud", "riverrun_broker", "warn,", "a=loud", "warn,loud"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
