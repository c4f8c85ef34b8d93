//! Client programs: one process runs all cases of its suite and reports each on its standard output.
//!
//! A program is started as `PROGRAM BOOTSTRAP SERVER [CASE...]` (`SERVER` is `riverrun` or `kafka`; no case means all).
//! It first prints one `@plan CASE` per case that it will run, then around each one `@begin CASE` and `@pass CASE` or
//! `@fail CASE`; every other line is output of the running case. A planned case without a verdict has failed, so that a
//! program that dies early cannot pass.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::report::{CaseResult, Report};

/// Longest silence of a program: above its own limit for a case, it catches one that hangs as a whole.
const SILENCE_MAX: Duration = Duration::from_secs(150);

/// Lines of output kept for a case.
const KEPT_LINES_MAX: usize = 400;

/// Lines that may wait between a program and xtask.
const LINES_QUEUE_MAX: usize = 1024;

/// Runs one program and adds its cases to the report; a program that cannot be started is a failed case.
pub(super) fn run(suite: &str, command: &mut Command, report: &Report) {
    let mut follower = Follower::new(suite, report);
    let ending = follow(command, &mut follower).unwrap_or_else(|error| format!("{error:#}"));
    follower.end(&ending);
}

/// Feeds the program's lines to `follower` and returns the way it ended.
fn follow(command: &mut Command, follower: &mut Follower<'_>) -> anyhow::Result<String> {
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().with_context(|| format!("could not start {command:?}"))?;
    let lines = lines_of(&mut child);
    loop {
        match lines.recv_timeout(SILENCE_MAX) {
            Ok(line) => follower.line(line),
            Err(RecvTimeoutError::Disconnected) => {
                return Ok(format!("the program ended with {}", child.wait()?));
            }
            Err(RecvTimeoutError::Timeout) => {
                child.kill()?;
                child.wait()?;
                return Ok(format!(
                    "the program printed nothing for {} s and was killed",
                    SILENCE_MAX.as_secs()
                ));
            }
        }
    }
}

fn lines_of(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = sync_channel(LINES_QUEUE_MAX);
    forward(child.stdout.take(), sender.clone());
    forward(child.stderr.take(), sender);
    receiver
}

fn forward(pipe: Option<impl Read + Send + 'static>, sender: SyncSender<String>) {
    let Some(pipe) = pipe else { return };
    thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n') {
            let Ok(line) = line else { return };
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
}

/// Reads a program's report.
///
/// Invariants: `waiting` holds the planned cases that have no verdict yet, in the plan's order; `kept` is the
/// output since the last verdict, at most [`KEPT_LINES_MAX`] lines.
struct Follower<'a> {
    suite: &'a str,
    report: &'a Report,
    waiting: VecDeque<String>,
    planned: usize,
    begun: Instant,
    kept: VecDeque<String>,
}

impl<'a> Follower<'a> {
    fn new(suite: &'a str, report: &'a Report) -> Self {
        let (waiting, kept) = (VecDeque::new(), VecDeque::new());
        Self { suite, report, waiting, planned: 0, begun: Instant::now(), kept }
    }

    fn line(&mut self, line: String) {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("@plan"), Some(case)) => {
                self.planned += 1;
                self.waiting.push_back(case.to_owned());
            }
            (Some("@begin"), Some(_)) => self.begun = Instant::now(),
            (Some("@pass"), Some(case)) => self.verdict(case, false),
            (Some("@fail"), Some(case)) => self.verdict(case, true),
            _ => {
                self.kept.push_back(line);
                if self.kept.len() > KEPT_LINES_MAX {
                    self.kept.pop_front();
                }
            }
        }
    }

    fn verdict(&mut self, case: &str, failed: bool) {
        self.waiting.retain(|waiting| waiting != case);
        let output = self.take_kept();
        self.add(case, self.begun.elapsed(), failed.then_some(output));
    }

    /// After the program's last line: fails every case without a verdict.
    fn end(mut self, ending: &str) {
        let output = self.take_kept();
        if self.planned == 0 {
            self.add("program", self.begun.elapsed(), Some(format!("{output}no case ran: {ending}")));
        }
        let mut failure = format!("{output}{ending}");
        let mut elapsed = self.begun.elapsed();
        for case in std::mem::take(&mut self.waiting) {
            self.add(&case, elapsed, Some(failure));
            failure = format!("not run: {ending}");
            elapsed = Duration::ZERO;
        }
    }

    fn take_kept(&mut self) -> String {
        self.kept.drain(..).fold(String::new(), |text, line| text + &line + "\n")
    }

    fn add(&self, case: &str, elapsed: Duration, failure: Option<String>) {
        self.report.add(CaseResult { name: format!("{}/{case}", self.suite), elapsed, failure });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary_of(script: &str) -> (String, bool) {
        let report = Report::default();
        run("sh", Command::new("sh").args(["-c", script]), &report);
        report.summary()
    }

    #[test]
    fn a_program_that_passes_all_it_planned_passes() {
        let (text, passed) = summary_of("echo @plan a; echo @begin a; echo words; echo @pass a");
        assert!(passed, "{text}");
    }

    #[test]
    fn a_planned_case_without_a_verdict_fails() {
        let (text, passed) = summary_of("echo @plan a; echo @plan b; echo @begin a; echo @pass a; exit 0");
        assert!(!passed && text.contains("2 cases, 1 failed\nFAIL  sh/b"), "{text}");
    }

    #[test]
    fn a_program_that_plans_nothing_fails() {
        let (text, passed) = summary_of("exit 0");
        assert!(!passed && text.contains("FAIL  sh/program"), "{text}");
    }

    #[test]
    fn a_program_that_cannot_be_started_fails() {
        let report = Report::default();
        run("absent", &mut Command::new("/nonexistent/program"), &report);
        assert!(!report.summary().1);
    }

    #[test]
    fn a_failed_case_fails_alone() {
        let (text, passed) = summary_of("echo @plan a; echo @plan b; echo @fail a; echo @pass b");
        assert!(!passed && text.starts_with("2 cases, 1 failed\nFAIL  sh/a"), "{text}");
    }
}
