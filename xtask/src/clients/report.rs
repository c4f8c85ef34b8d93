//! Results of the cases: one line per case as it ends, the output of failed ones, and a summary.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::Duration;

/// Most lines of output, from the end, that a failed case shows.
const OUTPUT_LINES_MAX: usize = 120;

/// Most characters of such a line.
const LINE_CHARS_MAX: usize = 1000;

/// One ended case.
pub(super) struct CaseResult {
    /// `suite/case`.
    pub(super) name: String,
    pub(super) elapsed: Duration,
    /// `None` if it passed, else the client's output and the reason.
    pub(super) failure: Option<String>,
}

/// The table, filled by suites that run side by side.
///
/// Invariants: results stand in the order in which the cases ended; each was printed when it was added.
#[derive(Default)]
pub(super) struct Report {
    results: Mutex<Vec<CaseResult>>,
}

impl Report {
    /// Prints the case's line at once, and its output if it failed.
    pub(super) fn add(&self, result: CaseResult) {
        let mut results = self.results.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        println!("{}", line_of(&result));
        if let Some(failure) = &result.failure {
            println!("{}", indented_tail(failure));
        }
        results.push(result);
    }

    /// The closing lines, and whether everything passed. No case at all is not a pass.
    pub(super) fn summary(&self) -> (String, bool) {
        let results = self.results.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let failed: Vec<_> = results.iter().filter(|result| result.failure.is_some()).collect();
        let mut text = format!("{} cases, {} failed", results.len(), failed.len());
        for result in &failed {
            let _ = write!(text, "\n{}", line_of(result));
        }
        (text, failed.is_empty() && !results.is_empty())
    }
}

fn line_of(result: &CaseResult) -> String {
    let verdict = if result.failure.is_some() { "FAIL" } else { "PASS" };
    format!("{verdict}  {:<44} {:>7.2} s", result.name, result.elapsed.as_secs_f64())
}

fn indented_tail(output: &str) -> String {
    let lines: Vec<_> = output.lines().collect();
    let skipped = lines.len().saturating_sub(OUTPUT_LINES_MAX);
    let mut text = String::new();
    if skipped > 0 {
        let _ = writeln!(text, "      | ({skipped} lines before this)");
    }
    for line in &lines[skipped..] {
        let _ = writeln!(text, "      | {line:.LINE_CHARS_MAX$}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(name: &str, failure: Option<&str>) -> CaseResult {
        let failure = failure.map(str::to_owned);
        CaseResult { name: name.to_owned(), elapsed: Duration::from_millis(1250), failure }
    }

    #[test]
    fn one_failure_fails_the_run_and_is_named() {
        let report = Report::default();
        report.add(result("go/admin", None));
        report.add(result("go/groups", Some("why")));
        let (text, passed) = report.summary();
        assert!(!passed);
        assert!(text.starts_with("2 cases, 1 failed\nFAIL  go/groups"), "{text}");
    }

    #[test]
    fn a_run_without_cases_does_not_pass() {
        assert!(!Report::default().summary().1);
    }

    #[test]
    fn long_output_keeps_its_end() {
        let output: String = (0..200).fold(String::new(), |text, n| text + &format!("line {n}\n"));
        let tail = indented_tail(&output);
        assert!(tail.contains("(80 lines before this)") && tail.ends_with("| line 199\n"), "{tail}");
    }
}
