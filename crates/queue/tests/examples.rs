//! The worked examples do what they promise, on a small scale.
//!
//! Cargo builds them with the tests, unless it is told which tests (`--test`): then they may be missing, or be older
//! than their sources. Such examples are not run, which is reported on standard error.

#![expect(clippy::unwrap_used, reason = "a test asserts")]

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

/// Whether Cargo has built an example from its present sources, which it lists in a file beside it.
fn is_built(example: &Path) -> Option<bool> {
    let changed = |path: &Path| std::fs::metadata(path).and_then(|found| found.modified()).ok();
    let built = changed(example)?;
    let told = std::fs::read_to_string(example.with_extension("d")).ok()?;
    let (_, sources) = told.trim_end().split_once(": ")?;
    // Blanks in names are escaped.
    let sources = sources.replace("\\ ", "\0");
    let mut sources = sources.split(' ').map(|source| source.replace('\0', " "));
    Some(sources.all(|source| changed(Path::new(&source)).is_some_and(|changed| changed <= built)))
}

/// The output of an example that works on a directory of its own.
fn run(name: &str, args: &[&str]) -> Option<String> {
    let deps = std::env::current_exe().unwrap();
    let example = deps.parent().unwrap().with_file_name("examples").join(name);
    if is_built(&example) != Some(true) {
        // Written past the capture of the output of passing tests.
        let _ = writeln!(std::io::stderr(), "not run: {} is not built of what is there", example.display());
        return None;
    }
    let root = tempfile::tempdir().unwrap();
    let done = Command::new(example).arg(root.path().join("dir")).args(args).output().unwrap();
    assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
    Some(String::from_utf8(done.stdout).unwrap())
}

#[test]
fn two_processes_answer_each_other() {
    for wait in [&["50"][..], &["50", "park"]] {
        if let Some(told) = run("ping_pong", wait) {
            assert!(told.contains("50 round trips") && told.contains("p99.9"), "{told}");
        }
    }
}

#[test]
fn a_service_between_two_queues_answers_everything() {
    if let Some(told) = run("two_hops", &["500", "1"]) {
        assert!(told.contains("500 requests") && told.contains("p99.9"), "{told}");
    }
}
