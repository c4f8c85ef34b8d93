//! Processes that may write no large file (`ulimit -f`): what goes beyond that is refused, and ends nobody.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{WAIT, finish, riverrun, signal, wait};

/// The binary, of whose files none may be larger than a MiB, or two: shells count in blocks of 512 or of 1024 bytes.
fn with_small_files(args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -f 2048; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_riverrun")])
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Until the log says so.
fn wait_until_logged(log: &Path, what: &str) {
    let deadline = Instant::now() + WAIT;
    loop {
        let logged = std::fs::read_to_string(log).expect("readable");
        if logged.contains(what) {
            return;
        }
        assert!(Instant::now() < deadline, "{what} is not in the log: {logged}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_file_size_limit_refuses_records_and_the_server_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let (data, log) = (dir.path().join("data"), dir.path().join("log"));
    let data = data.to_str().expect("text");
    let flags =
        ["serve", "--json", "--data", data, "--listen", "127.0.0.1:0", "--set", "default.durability=4"];
    let mut server = with_small_files(&flags);
    let mut server = server.stderr(File::create(&log).expect("made")).spawn().expect("runs");
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("piped")).read_line(&mut line).expect("readable");
    let ready: Value = serde_json::from_str(&line).expect("JSON");
    let bootstrap = ready["bootstrap"].as_str().expect("an address").to_owned();
    let produce = |topic: &str| {
        let mut command = riverrun(&["produce", topic]);
        command.env("RIVERRUN_BOOTSTRAP", &bootstrap).stdin(Stdio::piped()).spawn().expect("runs")
    };
    let mut much = produce("much");
    let mut stdin = much.stdin.take().expect("piped");
    let feeder = std::thread::spawn(move || {
        let line = "x".repeat(100_000) + "\n";
        // It ends when the producer does.
        (0..40).try_for_each(|_| std::io::Write::write_all(&mut stdin, line.as_bytes()))
    });
    wait_until_logged(&log, "ulimit -f");
    assert_eq!(finish(produce("little"), b"one\n").code, 0, "the others go on");
    let _ = much.kill();
    wait(&mut much);
    let _ends_with_it = feeder.join().expect("no panic");
    assert_eq!(server.try_wait().expect("ours").map(|status| status.code()), None, "it goes on");
    signal(&server, Signal::TERM);
    assert_eq!(wait(&mut server).code(), Some(0));
}

#[test]
fn a_file_size_limit_kills_no_queue_command() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("queue");
    let path = path.to_str().expect("text");
    let created = finish(with_small_files(&["queue", "create", path]).spawn().expect("runs"), b"");
    let mut append = with_small_files(&["queue", "append", path]);
    let appended = finish(append.stdin(Stdio::piped()).spawn().expect("runs"), b"one\n");
    for ended in [created, appended] {
        assert!(ended.code >= 0, "a signal has ended it: {}", ended.stderr);
    }
}
