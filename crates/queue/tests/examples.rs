//! The worked examples do what they say, in little.
//!
//! Cargo builds them with the tests, unless it is told which tests (`--test`): then they may not be there, or be older than
//! their sources. Those are not run, which is said on standard error.

#![expect(clippy::unwrap_used, reason = "a test asserts")]

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

/// When a file below `dir` was changed last.
fn changed(dir: &Path) -> SystemTime {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let changed = entries.map(|entry| {
        let found = entry.metadata().unwrap();
        if found.is_dir() { changed(&entry.path()) } else { found.modified().unwrap() }
    });
    changed.max().unwrap_or(SystemTime::UNIX_EPOCH)
}

/// What an example prints that works on a directory of its own.
fn run(name: &str, args: &[&str]) -> Option<String> {
    let deps = std::env::current_exe().unwrap();
    let example = deps.parent().unwrap().with_file_name("examples").join(name);
    let built = std::fs::metadata(&example).and_then(|found| found.modified()).ok();
    let sources = ["src", "examples"].map(|dir| changed(&Path::new(env!("CARGO_MANIFEST_DIR")).join(dir)));
    if built.is_none_or(|built| sources.iter().any(|changed| *changed > built)) {
        // Past what keeps the output of tests that pass.
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
