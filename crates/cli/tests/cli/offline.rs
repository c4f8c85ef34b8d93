//! `riverrun consume` where one partition of a topic cannot be read.

use std::io::{BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Server, signal, wait};

/// A server on which the first partition of `t` is offline and the two others hold a record each, and the damaged file.
/// The first ends with `zero` once it is mended.
fn with_partition_offline() -> (tempfile::TempDir, Server, PathBuf) {
    with_partition_offline_after(|_| {})
}

/// The same where something was done before.
fn with_partition_offline_after(before: impl FnOnce(&Server)) -> (tempfile::TempDir, Server, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut server = Server::on(dir.path(), &[]);
    server.run(&["topic", "create", "t", "--partitions", "3", "--config", "segment.bytes=1048576"]).ended(0);
    let large = format!("{}\n", "x".repeat(400_000));
    for _ in 0..4 {
        server.feed(&["produce", "t", "--partition", "0"], large.as_bytes()).ended(0);
    }
    for (partition, line) in [("0", "zero\n"), ("1", "one\n"), ("2", "two\n")] {
        server.feed(&["produce", "t", "--partition", partition], line.as_bytes()).ended(0);
    }
    before(&server);
    assert_eq!(server.interrupt(), 0);
    let file = first_of_several(&dir.path().join("logs")).expect("a partition of several segments");
    flip(&file);
    let server = Server::on(dir.path(), &[]);
    // The first read finds it.
    let found = server.run(&["consume", "t", "--partition", "0", "--timeout", "1"]);
    assert_ne!(found.code, 0);
    (dir, server, file)
}

/// Damages the base offset of the first batch, which no CRC covers, or mends it.
fn flip(file: &Path) {
    let mut bytes = std::fs::read(file).expect("readable");
    bytes[7] ^= 1;
    std::fs::write(file, bytes).expect("writable");
}

/// The first of the segments of the partition that has several.
fn first_of_several(dir: &Path) -> Option<PathBuf> {
    let mut below: Vec<_> =
        std::fs::read_dir(dir).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    below.sort();
    let logs: Vec<_> =
        below.iter().filter(|path| path.extension().is_some_and(|extension| extension == "log")).collect();
    if logs.len() > 1 {
        return Some(logs[0].clone());
    }
    below.iter().filter(|path| path.is_dir()).find_map(|path| first_of_several(path))
}

#[test]
fn an_offline_partition_is_named_and_the_others_are_read() {
    let (_dir, server, _file) = with_partition_offline();
    for flags in
        [&[][..], &["--from", "-5"], &["--group", "g"], &["--group", "c", "--group-protocol", "classic"]]
    {
        let consume = ["consume", "t", "--timeout", "3", "--format", "{partition} {value}"];
        let ended = server.run(&[&consume[..], flags].concat()).ended(4);
        let mut lines: Vec<_> = ended.text().lines().map(str::to_owned).collect();
        lines.sort();
        assert_eq!(lines, ["1 one", "2 two"], "{flags:?} {}", ended.stderr);
        assert!(ended.stderr.contains("t-0 does not answer"), "{flags:?} {}", ended.stderr);
        assert!(ended.stderr.contains("error: t-0: no answer for 3 s"), "{flags:?} {}", ended.stderr);
        assert!(!ended.stderr.contains("t-1"), "{flags:?} {}", ended.stderr);
    }
    let again = server.run(&["consume", "t", "--group", "g", "--timeout", "3"]).ended(4);
    assert_eq!(again.text(), "", "what was printed is committed");
    let some = server.run(&["consume", "t", "--max", "2"]).ended(0);
    assert_eq!(some.text().lines().count(), 2, "{}", some.stderr);
}

#[test]
fn group_offsets_name_the_offline_partition_at_once() {
    let (_dir, server, _file) = with_partition_offline_after(|server| {
        server.run(&["consume", "t", "--group", "g", "--timeout", "20"]).ended(0);
    });
    let begun = Instant::now();
    let described = server.run(&["group", "describe", "g", "--timeout", "40", "--json"]).ended(0).json();
    let partitions = described[0]["partitions"].as_array().expect("partitions");
    let of = |name: &str| partitions.iter().map(|partition| partition[name].clone()).collect::<Vec<_>>();
    assert_eq!(
        (of("committed"), of("end")),
        (vec![5.into(), 1.into(), 1.into()], vec![Value::Null, 1.into(), 1.into()])
    );
    let errors = of("error");
    assert!(errors[0].as_str().is_some_and(|error| error.contains("KAFKA_STORAGE_ERROR")), "{errors:?}");
    assert_eq!(errors[1..], [Value::Null, Value::Null]);
    let text = server.run(&["group", "describe", "g", "--timeout", "40"]).ended(0).text();
    assert!(text.contains("t-0 does not say where it ends: KAFKA_STORAGE_ERROR"), "{text}");
    let reset = server.run(&["group", "reset", "g", "--all-topics", "--to-latest", "--timeout", "40"]);
    assert_ne!(reset.code, 0);
    assert!(reset.stderr.contains("t-0") && reset.stderr.contains("KAFKA_STORAGE_ERROR"), "{}", reset.stderr);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn a_follower_is_warned_once_of_an_offline_partition() {
    let (dir, mut server, file) = with_partition_offline();
    let listen = server.bootstrap().to_owned();
    let mut child = server.command(&["consume", "t", "--follow", "--timeout", "5"]).spawn().expect("runs");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut lines: Vec<_> = (0..2).map(|_| next_line(&mut stdout)).collect();
    lines.sort();
    assert_eq!(lines, ["one\n", "two\n"]);
    let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
    assert!(next_line(&mut stderr).starts_with("t-0 does not answer, and is tried again"));
    server.feed(&["produce", "t", "--partition", "1"], b"more\n").ended(0);
    assert_eq!(next_line(&mut stdout), "more\n");
    // It is waited for longer than anything else.
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(server.interrupt(), 0);
    flip(&file);
    let _server = Server::on_address(dir.path(), &listen);
    for _ in 0..4 {
        assert!(next_line(&mut stdout).starts_with("xxx"));
    }
    assert_eq!(next_line(&mut stdout), "zero\n");
    signal(&child, Signal::TERM);
    assert_eq!(wait(&mut child).code(), Some(0));
    let mut told = String::new();
    stderr.read_to_string(&mut told).expect("text");
    assert!(told.contains("t-0 answers again") && !told.contains("t-0 does not"), "{told}");
}

#[test]
fn a_wait_for_a_lost_server_ends_with_the_second_signal() {
    let mut server = Server::start();
    server.feed(&["produce", "t"], b"x\n").ended(0);
    let mut consuming = server
        .command(&["consume", "t", "--group", "g", "--follow", "--timeout", "60"])
        .spawn()
        .expect("runs");
    let mut producing =
        server.command(&["produce", "t", "--timeout", "60"]).stdin(Stdio::piped()).spawn().expect("runs");
    let mut stdout = BufReader::new(consuming.stdout.take().expect("piped"));
    assert_eq!(next_line(&mut stdout), "x\n");
    // So that both have their connections.
    let mut stdin = producing.stdin.take().expect("piped");
    stdin.write_all(b"y\n").expect("taken");
    assert_eq!(next_line(&mut stdout), "y\n");
    signal(&server.child, Signal::STOP);
    stdin.write_all(b"z\n").expect("taken");
    std::thread::sleep(Duration::from_secs(1));
    for child in [&mut consuming, &mut producing] {
        signal(child, Signal::TERM);
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(child.try_wait().expect("ours").map(|status| status.code()), None, "it finishes");
        // A process sees only one of two signals that come before it runs.
        let ended = (0..60).find_map(|_| {
            signal(child, Signal::TERM);
            std::thread::sleep(Duration::from_millis(200));
            child.try_wait().expect("ours")
        });
        assert_eq!(ended.expect("it ends").code(), Some(130));
    }
    signal(&server.child, Signal::CONT);
    assert_eq!(server.interrupt(), 0);
}

fn next_line(from: &mut impl std::io::BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).expect("text");
    line
}
