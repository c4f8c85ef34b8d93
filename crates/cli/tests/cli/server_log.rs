//! The log of `riverrun serve`, and what the server does while nobody reads it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::common::{finish, riverrun, signal, wait};

/// A server whose log goes into a socket, with where it can be asked.
struct Logging {
    child: Child,
    log: Option<UnixStream>,
    ready: Value,
    _dir: tempfile::TempDir,
}

impl Logging {
    /// Starts one; `full` leaves no room in the socket.
    fn start(full: bool, flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (log, mut into) = UnixStream::pair().expect("a pair");
        into.set_nonblocking(true).expect("set");
        while full && into.write(&[b'-'; 4096]).is_ok() {}
        into.set_nonblocking(false).expect("set");
        let data = dir.path().to_str().expect("text");
        let basic = ["serve", "--json", "--data", data, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let mut child =
            riverrun(&[&basic, flags].concat()).stderr(OwnedFd::from(into)).spawn().expect("the binary runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("readable");
        let ready = serde_json::from_str(&line).expect("a JSON line");
        Self { child, log: Some(log), ready, _dir: dir }
    }

    fn run(&self, args: &[&str]) {
        let bootstrap = self.ready["bootstrap"].as_str().expect("an address");
        let child = riverrun(args).env("RIVERRUN_BOOTSTRAP", bootstrap).spawn();
        finish(child.expect("the binary runs"), b"").ended(0);
    }

    /// Asks for so much that is refused that lines are lost, or says why not.
    fn until_lines_are_lost(&self) -> String {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let mut client = TcpStream::connect(self.ready["bootstrap"].as_str().expect("an address"))
                .expect("the server takes connections");
            client.write_all(&(-1_i32).to_be_bytes()).expect("taken");
            // The server closes it.
            let _ = client.read(&mut [0]);
            let health = self.get("/health");
            if health.contains("lines") {
                return health;
            }
            assert!(Instant::now() < deadline, "{health}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn get(&self, path: &str) -> String {
        let mut admin = TcpStream::connect(self.ready["admin"].as_str().expect("an address")).expect("there");
        write!(admin, "GET {path} HTTP/1.0\r\n\r\n").expect("taken");
        let mut answer = String::new();
        admin.read_to_string(&mut answer).expect("answered");
        answer
    }

    /// Stops it and gives back its exit code.
    fn stop(&mut self) -> Option<i32> {
        let begun = Instant::now();
        signal(&self.child, Signal::TERM);
        let code = wait(&mut self.child).code();
        assert!(begun.elapsed() < Duration::from_secs(10), "a stop took {:?}", begun.elapsed());
        code
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_log_whose_reader_has_gone_stops_nothing() {
    let mut server = Logging::start(false, &[]);
    server.log = None;
    let health = server.until_lines_are_lost();
    assert!(
        health.contains(" 200 ") && health.contains("the log cannot be written: Broken pipe"),
        "{health}"
    );
    let lost = server.get("/metrics");
    let lost = lost.lines().find(|line| line.starts_with("riverrun_log_lines_lost_total{"));
    assert!(lost.is_some_and(|line| !line.ends_with(" 0")), "{lost:?}");
    // The settler's lines are lost, and it goes on.
    server.run(&["topic", "create", "t"]);
    server.run(&["config", "set", "--topic", "t", "durability=4"]);
    server.run(&["config", "set", "--topic", "t", "durability=2"]);
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_log_that_nobody_reads_stops_neither_clients_nor_a_stop() {
    let mut server = Logging::start(true, &[]);
    for _ in 0..3 {
        let mut client =
            TcpStream::connect(server.ready["bootstrap"].as_str().expect("an address")).expect("taken");
        client.write_all(&(-1_i32).to_be_bytes()).expect("taken");
        let _ = client.read(&mut [0]);
    }
    server.run(&["topic", "create", "t"]);
    assert!(server.get("/health").contains(" 200 "));
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_log_in_json_is_an_object_on_each_line() {
    let mut server = Logging::start(false, &["--log-format", "json"]);
    assert_eq!(server.stop(), Some(0));
    let mut text = String::new();
    server.log.take().expect("there").read_to_string(&mut text).expect("text");
    assert!(text.contains("stopping"), "{text}");
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).expect("an object");
        for (name, is_right) in [
            ("timestamp", line["timestamp"].is_string()),
            ("level", line["level"].is_string()),
            ("target", line["target"].is_string()),
            ("message", line["message"].is_string()),
            ("fields", line["fields"].is_object()),
        ] {
            assert!(is_right, "{name} of {line}");
        }
    }
}

#[test]
fn a_server_whose_log_is_json_prints_nothing_else() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().to_str().expect("text");
    let flags = ["serve", "--data", data, "--listen", "127.0.0.1:0", "--log-format", "json"];
    let mut child = riverrun(&flags).spawn().expect("the binary runs");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("readable");
    signal(&child, Signal::TERM);
    let ended = finish(child, b"").ended(0);
    let ready: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert!(ready["bootstrap"].is_string(), "{ready}");
    for line in ended.stderr.lines() {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

#[test]
fn a_groups_change_of_protocol_is_logged_with_the_reason() {
    let mut server = Logging::start(false, &[]);
    server.run(&["topic", "create", "t"]);
    for protocol in ["classic", "consumer", "classic"] {
        server.run(&["consume", "t", "--group", "rolling", "--group-protocol", protocol]);
    }
    assert_eq!(server.stop(), Some(0));
    let mut text = String::new();
    server.log.take().expect("there").read_to_string(&mut text).expect("text");
    let changes = text.lines().filter(|line| line.contains("a group has changed its protocol"));
    let changes: Vec<&str> = changes.collect();
    assert_eq!(changes.len(), 2, "{text}");
    for (line, [from, to]) in changes.iter().zip([["classic", "consumer"], ["consumer", "classic"]]) {
        let told =
            format!("group=rolling from={from:?} to={to:?} why=\"it was empty, and a member of the other");
        assert!(line.contains("INFO") && line.contains(&told), "{told} in {line}");
    }
}

#[test]
fn changes_of_clients_are_logged_with_names_and_peer() {
    let mut server = Logging::start(false, &[]);
    server.run(&["topic", "create", "clicks", "--partitions", "2"]);
    server.run(&["topic", "alter", "clicks", "--partitions", "3"]);
    server.run(&["config", "set", "--topic", "clicks", "retention.ms=7"]);
    server.run(&["consume", "clicks", "--group", "readers"]);
    server.run(&["group", "delete", "readers"]);
    server.run(&["topic", "delete", "clicks"]);
    let mut client =
        TcpStream::connect(server.ready["bootstrap"].as_str().expect("an address")).expect("taken");
    client.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01").expect("taken");
    let _ = client.read(&mut [0]);
    assert_eq!(server.stop(), Some(0));
    let mut text = String::new();
    server.log.take().expect("there").read_to_string(&mut text).expect("text");
    let line = |part: &str| {
        text.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {text}"))
    };
    for part in ["topics created", "partitions added", "configs altered", "topics deleted"] {
        let line = line(part);
        assert!(line.contains("clicks") && line.contains("peer=127.0.0.1:"), "{line}");
    }
    assert!(line("configs altered").contains("topic clicks: retention.ms=7"), "which, and to what");
    let ready = line("the server is ready");
    for part in ["version=", "listeners=", "PLAINTEXT://127.0.0.1:", "durability=1", "data="] {
        assert!(ready.contains(part), "{part}: {ready}");
    }
    for part in ["groups created", "groups deleted"] {
        let line = line(part);
        assert!(line.contains("readers") && line.contains("peer=127.0.0.1:"), "{line}");
    }
    assert!(line("groups emptied").contains("readers"), "the reader has left");
    line("a TLS client on a plain-text listener");
    assert!(line("the server is ready").contains("open_ms="));
    assert!(line("the server has stopped").contains("files_ms="));
}

#[test]
fn an_error_that_ends_a_server_is_a_line_of_its_json_log() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let (data, file, missing) = (path("data"), path("riverrun.toml"), path("missing.toml"));
    std::fs::write(&file, "log.format = 'json'\nno.such = 1\n").expect("written");
    let json = ["--log-format", "json"];
    let cases: [(&[&str], &[&str], i32); 5] = [
        (&["--config", &file], &[], 2),
        (&["--config", &missing], &json, 3),
        (&["--set", "log.format=json", "--set", "num.partitions=x"], &[], 2),
        (&["--listen", "999.1.1.1:3"], &json, 2),
        (&["--data", "/dev/null/x"], &json, 1),
    ];
    for (args, more, code) in cases {
        let data = if args[0] == "--data" { &[][..] } else { &["--data", &data][..] };
        let child = riverrun(&[&["serve"], args, more, data].concat()).spawn();
        let told = finish(child.expect("the binary runs"), b"").ended(code).stderr;
        let lines: Vec<Value> = told
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{told}")))
            .collect();
        let last = lines.last().expect("a line");
        assert_eq!((&last["level"], &last["fields"]["exit_code"]), (&"ERROR".into(), &code.into()), "{told}");
        assert!(last["message"].as_str().is_some_and(|text| !text.is_empty()), "{told}");
    }
    let variable = riverrun(&["serve", "--set", "no.such=1"]).env("RIVERRUN_LOG_FORMAT", "json").spawn();
    let told = finish(variable.expect("the binary runs"), b"").ended(2).stderr;
    assert!(serde_json::from_str::<Value>(&told).is_ok(), "{told}");
}
