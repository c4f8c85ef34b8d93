//! The worked examples do what they say, in little.
//!
//! Cargo builds them with the tests, unless it is told which tests: then they may not be there, and nothing is run.

#![expect(clippy::unwrap_used, reason = "a test asserts")]

use std::process::Command;

/// What an example prints that works on a directory of its own.
fn run(name: &str, args: &[&str]) -> Option<String> {
    let deps = std::env::current_exe().unwrap();
    let example = deps.parent().unwrap().with_file_name("examples").join(name);
    if !example.exists() {
        eprintln!("{} is not built", example.display());
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
