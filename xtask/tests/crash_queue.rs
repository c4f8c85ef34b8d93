//! The crash harness finds queues that break their promises: with a bug planted in the appenders, a run fails.
//!
//! Needs a machine that lets us mount images; on others it says so and succeeds.

use std::process::{Command, Output};

fn crash(arguments: &[&str]) -> Output {
    let dir =
        std::env::temp_dir().join(format!("riverrun-planted-{}-{}", std::process::id(), arguments.concat()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["crash", "--queue", "--where-allowed", "--dir"]).arg(&dir).args(arguments);
    let output = command.output().expect("the harness starts");
    // A failed run keeps its directory, which this test does not need.
    let _ = std::fs::remove_dir_all(&dir);
    output
}

/// Most repetitions of runs that a slow machine kept from testing anything.
const TRIES: usize = 5;

fn finds_lost(arguments: &[&str]) {
    let says_nothing =
        |output: &Output| String::from_utf8_lossy(&output.stderr).contains("which proves nothing");
    let mut runs = (0..TRIES).map(|_| crash(arguments)).skip_while(says_nothing);
    let output = runs.next().expect("one of them proves something");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if out.contains("NOT RUN") {
        eprintln!("{out}");
        return;
    }
    assert!(!output.status.success(), "{arguments:?} was not found: {out}");
    assert!(err.contains("lost: ") && err.contains("acked at"), "something else was found: {err}");
}

#[test]
fn power_cut_finds_appenders_that_never_sync() {
    finds_lost(&["--mode", "power", "--fs", "xfs", "--cycles", "3", "--set", "sync=never"]);
}

#[test]
fn power_cut_finds_appenders_that_ack_before_the_sync() {
    // About every second cut finds it.
    for fs in ["xfs", "ext4"] {
        finds_lost(&["--mode", "power", "--fs", fs, "--cycles", "20", "--set", "sync=late"]);
    }
}
