//! `riverrun queue`: without a server.

use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::common::{Server, WAIT, finish, riverrun, run};

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
fn queue_create_prints_text_or_json() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let (one, two) = (path("one"), path("two"));
    let told = run(&["queue", "create", &one, "--segment-bytes", "65536"]).ended(0).text();
    assert_eq!(told, format!("{one} created, segments of 65536 bytes\n"));
    let told = run(&["queue", "create", &two, "--json"]).ended(0).json();
    assert_eq!((told["dir"].as_str(), told["segment_bytes"].is_u64()), (Some(&*two), true));
}

#[test]
fn a_queue_is_made_filled_read_and_checked() {
    let (_dir, path) = queue();
    assert_eq!(run(&["queue", "tail", &path, "--from", "1"]).ended(0).text(), "two\nthree\n");
    assert_eq!(run(&["queue", "tail", &path, "--from", "-1h"]).ended(0).text(), "one\ntwo\nthree\n");
    let info = run(&["queue", "info", &path, "--json"]).ended(0).json();
    assert_eq!((&info["end_offset"], &info["unsynced_bytes"]), (&3.into(), &0.into()));
    assert_eq!(run(&["queue", "verify", &path, "--json"]).ended(0).json()["records"], 3);
    run(&["queue", "create", &path]).ended(6);
    run(&["queue", "tail", "/nowhere"]).ended(3);
}

#[test]
fn a_server_and_a_queue_in_one_directory_are_a_conflict() {
    let (_dir, queue) = queue();
    let refused = run(&["serve", "--data", &queue, "--listen", "127.0.0.1:0"]).ended(6);
    assert!(refused.stderr.contains("a queue lies in"), "{}", refused.stderr);
    assert!(refused.stderr.contains("\n  try: --data with another directory"), "{}", refused.stderr);
    let mut server = Server::start();
    let refused = run(&["queue", "create", server.data()]).ended(6);
    assert!(refused.stderr.contains("shows that a server keeps its data here"), "{}", refused.stderr);
    assert_eq!(server.interrupt(), 0);
}

#[test]
fn a_named_tail_goes_on_and_begins_anew_with_reset() {
    let (_dir, path) = queue();
    let tail = |more: &[&str]| {
        let args = [&["queue", "tail", &path, "--name", "reader", "--count", "1"], more].concat();
        run(&args).ended(0).text()
    };
    assert_eq!((tail(&[]), tail(&[]), tail(&["--reset"])), ("one\n".into(), "two\n".into(), "one\n".into()));
}

#[test]
fn a_named_tail_warns_once_of_records_removed_unread() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("queue").to_str().expect("text").to_owned();
    run(&["queue", "create", &path, "--segment-bytes", "4096"]).ended(0);
    append(&path, &b"a line of some length\n".repeat(500));
    run(&["queue", "tail", &path, "--name", "job", "--count", "5"]).ended(0);
    let queue = riverrun_queue::Queue::open(Path::new(&path)).expect("a queue");
    let retention = riverrun_queue::Retention { bytes: Some(8192), ..riverrun_queue::Retention::default() };
    assert!(queue.apply_retention(&retention).expect("removed") > 0);
    let missed = queue.start_offset().expect("known").0 - 5;
    let told = run(&["queue", "tail", &path, "--name", "job"]).ended(0).stderr;
    assert!(told.contains(&format!("{missed} records that were not read")), "{told}");
    assert_eq!(run(&["queue", "tail", &path, "--name", "job"]).ended(0).stderr, "");
}

#[test]
fn queue_info_and_verify_change_nothing_and_find_damage() {
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

/// Reads one output of a command up to where it says `words`, and gives it back for what follows.
fn read_until<R: Read + Send + 'static>(
    child: &mut Child,
    take: impl FnOnce(&mut Child) -> Option<R>,
    words: &'static str,
) -> R {
    let mut output = take(child).expect("piped");
    let (said, hears) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let (mut text, mut byte) = (Vec::new(), [0]);
        while !text.ends_with(words.as_bytes()) {
            if output.read(&mut byte).expect("readable") == 0 {
                return;
            }
            text.push(byte[0]);
        }
        let _ = said.send(output);
    });
    hears.recv_timeout(WAIT).unwrap_or_else(|error| {
        let _ = child.kill();
        panic!("it does not say {words:?}: {error}");
    })
}

#[test]
fn a_partition_of_a_live_server_is_read_from_its_files() {
    let server = Server::start();
    server.run(&["topic", "create", "quotes", "--config", "durability=4"]).ended(0);
    server.feed(&["produce", "quotes"], b"one\ntwo\nthree\n").ended(0);
    let described = server.run(&["topic", "describe", "quotes", "--json"]).ended(0).json();
    let id = described[0]["uuid"].as_str().expect("an id").to_owned();
    let dir = format!("{}/logs/{id}/0", server.data());
    let tail = |more: &[&str]| run(&[&["queue", "tail", &dir, "--partition"], more].concat()).ended(0).text();
    assert_eq!(tail(&[]), "one\ntwo\nthree\n");
    assert_eq!(tail(&["--from", "1", "--count", "1"]), "two\n");
    assert_eq!(tail(&["--from", "2013-01-01"]), "one\ntwo\nthree\n");
    assert_eq!(tail(&["--from", "end"]), "");

    let mut follow =
        riverrun(&["queue", "tail", &dir, "--partition", "--from", "2", "--follow", "--count", "2"]);
    let mut following = follow.spawn().expect("the binary runs");
    following.stdout = Some(read_until(&mut following, |child| child.stdout.take(), "three\n"));
    server.feed(&["produce", "quotes"], b"four\n").ended(0);
    assert_eq!(finish(following, b"").ended(0).text(), "four\n");

    let copy = tempfile::tempdir().expect("a directory");
    let new = copy.path().join("id/0");
    let new_dir = new.to_str().expect("text");
    let missing = run(&["queue", "tail", new_dir, "--partition"]).ended(3);
    assert!(missing.stderr.contains("--follow waits"), "{}", missing.stderr);
    let nowhere = copy.path().join("none/id/0");
    run(&["queue", "tail", nowhere.to_str().expect("text"), "--partition", "--follow"]).ended(3);
    let mut follow =
        riverrun(&["queue", "tail", new_dir, "--partition", "--from", "end", "--follow", "--count", "4"]);
    let mut following = follow.spawn().expect("the binary runs");
    following.stderr = Some(read_until(&mut following, |child| child.stderr.take(), "is not there yet"));
    std::fs::create_dir_all(copy.path().join("id/new")).expect("room");
    for entry in std::fs::read_dir(&dir).expect("a directory").map(|entry| entry.expect("an entry")) {
        std::fs::copy(entry.path(), copy.path().join("id/new").join(entry.file_name())).expect("room");
    }
    std::fs::rename(copy.path().join("id/new"), &new).expect("a directory");
    assert_eq!(finish(following, b"").ended(0).text(), "one\ntwo\nthree\nfour\n");

    let unnamed = run(&["queue", "tail", &dir]).ended(3);
    assert!(unnamed.stderr.contains("--partition"), "{}", unnamed.stderr);
    run(&["queue", "tail", &dir, "--partition", "--synced"]).ended(2);
}

#[test]
fn clients_produce_to_a_queue_among_appends_of_processes() {
    let (_dir, path) = queue();
    let data = tempfile::tempdir().expect("a directory");
    let server = Server::on(data.path(), &["--mount", &format!("quotes={path}:rw:synced")]);
    // Idempotent, as the client is unless it is told otherwise, in several codecs.
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let line = format!("{codec} of a client\n");
        server.feed(&["produce", "quotes", "--compression", codec], line.as_bytes()).ended(0);
        append(&path, b"of a process\n");
    }
    let expected = "one\ntwo\nthree\nnone of a client\nof a process\ngzip of a client\nof a process\nsnappy of a client\n\
                    of a process\nlz4 of a client\nof a process\nzstd of a client\nof a process\n";
    assert_eq!(run(&["queue", "tail", &path]).ended(0).text(), expected);
    let described = server.run(&["topic", "describe", "quotes", "--json"]).ended(0).json();
    assert_eq!((&described[0]["durability"], &described[0]["durability_reached"]), (&3.into(), &3.into()));
    let consumed = server.run(&["consume", "quotes", "--max", "12"]).ended(0).text();
    assert_eq!(consumed.lines().count(), 12);
    assert_eq!(run(&["queue", "verify", &path, "--json"]).ended(0).json()["records"], 13);
}

#[test]
fn records_are_in_the_queue_once_though_the_server_is_killed() {
    const ROUNDS: usize = 6;
    let (_dir, path) = queue();
    let data = tempfile::tempdir().expect("a directory");
    let mount = format!("quotes={path}:rw");
    let mut server = Server::on(data.path(), &["--mount", &mount]);
    let address = server.bootstrap().to_owned();
    let mut producer = server.command(&["produce", "quotes", "--linger-ms", "1"]);
    let mut producer = producer.stdin(Stdio::piped()).spawn().expect("the binary runs");
    let mut input = producer.stdin.take().expect("piped");
    let mut expected = String::from("one\ntwo\nthree\n");
    let mut number = 0;
    for round in 0..=ROUNDS {
        // A little at a time, so that some of it is under way whenever the server goes.
        for _ in 0..20 {
            let lines: Vec<_> = (number..number + 25).map(|line| format!("line {line}\n")).collect();
            let lines = lines.concat();
            input.write_all(lines.as_bytes()).expect("it reads");
            expected.push_str(&lines);
            number += 25;
            std::thread::sleep(Duration::from_millis(3));
        }
        if round < ROUNDS {
            server.child.kill().expect("killed");
            server.child.wait().expect("ended");
            server = Server::start_on(data.path(), &address, &["--mount", &mount]);
        }
    }
    drop(input);
    finish(producer, b"").ended(0);
    let found = run(&["queue", "tail", &path]).ended(0).text();
    assert!(found == expected, "{} lines, {} expected", found.lines().count(), expected.lines().count());
    assert_eq!(server.interrupt(), 0);
}

#[test]
fn a_bench_leaves_no_directory_that_was_not_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let inner = dir.path().join("a/b");
    let bench = |hops: &str| {
        run(&[
            "queue",
            "bench",
            "--dir",
            inner.to_str().expect("text"),
            "--seconds",
            "1",
            "--rate",
            "10",
            "--hops",
            hops,
        ])
    };
    let told = bench("1").ended(0).text();
    assert!(told.contains(", 1 hop: "), "{told}");
    assert!(!dir.path().join("a").exists());
    // One that was there stays, with what it holds.
    std::fs::create_dir_all(&inner).expect("made");
    bench("1").ended(0);
    assert_eq!(std::fs::read_dir(&inner).expect("there").count(), 0);
}
