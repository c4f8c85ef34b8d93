//! `riverrun queue`: without a server.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;

use crate::common::{finish, riverrun, run};

/// A queue with three records.
fn queue() -> (TempDir, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("queue").to_str().expect("text").to_owned();
    run(&["queue", "create", &path, "--segment-bytes", "65536"]).ended(0);
    append(&path, b"one\ntwo\nthree\n");
    (dir, path)
}

fn append(path: &str, lines: &[u8]) -> String {
    let mut command = riverrun(&["queue", "append", path]);
    let child = command.stdin(Stdio::piped()).spawn().expect("the binary runs");
    finish(child, lines).ended(0).stderr
}

fn segment(path: &str) -> PathBuf {
    Path::new(path).join("00000000000000000000.log")
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).expect("a file");
    bytes[at] ^= 1;
    std::fs::write(path, bytes).expect("a file");
}

#[test]
fn a_queue_is_made_filled_read_and_checked() {
    let (_dir, path) = queue();
    assert_eq!(run(&["queue", "tail", &path, "--from", "1"]).ended(0).text(), "two\nthree\n");
    let info = run(&["queue", "info", &path, "--json"]).ended(0).json();
    assert_eq!((&info["end_offset"], &info["unsynced_bytes"]), (&3.into(), &0.into()));
    assert_eq!(run(&["queue", "verify", &path, "--json"]).ended(0).json()["records"], 3);
    run(&["queue", "create", &path]).ended(6);
    run(&["queue", "tail", "/nowhere"]).ended(3);
}

#[test]
fn a_name_goes_on_and_is_reset() {
    let (_dir, path) = queue();
    let tail = |more: &[&str]| {
        let args = [&["queue", "tail", &path, "--name", "reader", "--count", "1"], more].concat();
        run(&args).ended(0).text()
    };
    assert_eq!((tail(&[]), tail(&[]), tail(&["--reset"])), ("one\n".into(), "two\n".into(), "one\n".into()));
}

#[test]
fn looking_changes_nothing_and_finds_damage() {
    let (_dir, path) = queue();
    flip(&segment(&path), 80);
    let before = std::fs::read(segment(&path)).expect("a file");
    run(&["queue", "info", &path]).ended(0);
    let found = run(&["queue", "verify", &path]).ended(5);
    assert!(found.stderr.contains("00000000000000000000.log is damaged at byte 71"), "{}", found.stderr);
    assert!(std::fs::read(segment(&path)).expect("a file") == before);
    assert_eq!(append(&path, b"four\n"), "", "what is synced is not cut");
    run(&["queue", "verify", &path]).ended(5);
}
