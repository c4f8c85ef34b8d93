//! `riverrun serve` from outside: how it says that it is ready, how it stops, and what it refuses.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::common::{Server, WAIT, finish, riverrun, run, signal, wait};
use rustix::process::Signal;

#[test]
fn the_start_up_line_has_addresses_data_and_durability() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().to_str().expect("text");
    let mut child = riverrun(&["serve", "--data", data, "--listen", "127.0.0.1:0"]).spawn().expect("runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("readable");
    for part in ["PLAINTEXT://127.0.0.1:", data, "durability level 1", "loss of power", "/journal", "Ctrl-C"]
    {
        assert!(line.contains(part), "{part} in {line}");
    }
    signal(&child, Signal::TERM);
    assert_eq!(wait(&mut child).code(), Some(0));
}

#[test]
fn without_any_flag_it_serves_a_directory_below_the_current_one() {
    let dir = tempfile::tempdir().expect("a directory");
    // The port is taken from the environment, because the default one may be in use here.
    let mut child = riverrun(&["serve", "--json"])
        .current_dir(dir.path())
        .env("RIVERRUN_LISTENERS", "PLAINTEXT://127.0.0.1:0")
        .spawn()
        .expect("runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("readable");
    let ready: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert!(ready["data"].as_str().expect("a path").ends_with("riverrun-data"), "{line}");
    assert!(dir.path().join("riverrun-data/meta").is_dir());
    signal(&child, Signal::INT);
    assert_eq!(wait(&mut child).code(), Some(0));
}

#[test]
fn a_second_server_on_the_data_is_refused_the_first_goes_on() {
    let mut server = Server::start();
    let refused = run(&["serve", "--data", server.data(), "--listen", "127.0.0.1:0"]).ended(6);
    assert!(refused.stderr.contains("in use"), "{}", refused.stderr);
    assert!(refused.stderr.contains("try: stop the other server"), "{}", refused.stderr);
    server.run(&["topic", "list"]).ended(0);
    assert_eq!(server.interrupt(), 0);
}

#[test]
fn a_directory_another_server_has_locked_is_in_use() {
    let dir = tempfile::tempdir().expect("a directory");
    let text = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    run(&["queue", "create", &text("queue")]).ended(0);
    let mount = format!("taken={}:rw", text("queue"));
    let mut first = Server::on(&dir.path().join("first"), &["--mount", &mount]);
    // A server that has run before, and one that has not.
    assert_eq!(Server::on(&dir.path().join("known"), &[]).interrupt(), 0);
    for data in ["known", "new"] {
        let serve = |more: &[&str]| {
            run(&[&["serve", "--data", &text(data), "--listen", "127.0.0.1:0"], more].concat())
        };
        for (option, locked) in [("log.dirs", text("first/logs")), ("journal.dirs", text("first/journal"))] {
            let refused = serve(&["--set", &format!("{option}={locked}")]).ended(6).stderr;
            let advice =
                format!("try: stop the other server on {locked}, or {option} with another directory");
            assert!(refused.contains(&advice), "{data}: {refused}");
        }
        let refused = serve(&["--mount", &mount]).ended(6).stderr;
        assert!(refused.contains("another server takes records for this queue"), "{data}: {refused}");
    }
    assert_eq!(first.interrupt(), 0);
}

#[test]
fn a_failure_no_restart_mends_has_the_exit_code_of_its_kind() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let serve =
        |more: &[&str]| run(&[&["serve", "--data", &text(&data), "--listen", "127.0.0.1:0"], more].concat());
    let queue = dir.path().join("q1");
    let missing = serve(&["--mount", &format!("quotes={}", text(&queue))]).ended(3).stderr;
    assert!(missing.contains("q1: no queue here") && missing.contains("\n  try: "), "{missing}");
    assert!(missing.contains(&format!("riverrun queue create {}", text(&queue))), "{missing}");
    assert!(!data.exists() && !missing.contains("a new cluster"), "nothing is made: {missing}");

    let few = Command::new("sh")
        .args(["-c", "ulimit -n 200; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_riverrun")])
        .args(["serve", "--data", &text(&data), "--listen", "127.0.0.1:0"])
        .output()
        .expect("runs");
    let told = String::from_utf8_lossy(&few.stderr);
    assert_eq!(few.status.code(), Some(2), "{told}");
    assert!(told.contains("200 open descriptors") && !data.exists(), "{told}");

    assert_eq!(Server::on(&data, &[]).interrupt(), 0);
    let meta = data.join("meta");
    std::fs::rename(&meta, dir.path().join("away")).expect("renamed");
    let lost = serve(&[]).ended(3).stderr;
    assert!(lost.contains("there is no metadata in"), "{lost}");
    assert!(lost.contains(&format!("\n  try: {} back from a copy", text(&meta))), "{lost}");
    assert!(!meta.exists(), "nothing is made");
}

#[test]
fn a_port_in_use_is_refused_with_advice() {
    let server = Server::start();
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let data = data.to_str().expect("text");
    let free = "127.0.0.1:0";
    for (flag, listen, admin) in
        [("--listen", server.bootstrap(), free), ("--admin", free, server.bootstrap())]
    {
        let refused = run(&["serve", "--data", data, "--listen", listen, "--admin", admin]).ended(6);
        let advice = format!("try: {flag} with another port");
        assert!(refused.stderr.contains(&advice), "{advice} in {}", refused.stderr);
        assert!(!Path::new(data).exists(), "nothing is made");
    }
    let no_address = run(&["serve", "--data", data, "--listen", free, "--admin", "192.0.2.1:3"]).ended(2);
    assert!(no_address.stderr.contains("try: --admin with an address"), "{}", no_address.stderr);
}

#[test]
fn an_address_that_is_not_of_this_machine_is_refused_as_such() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let data = data.to_str().expect("text");
    // The first is no address, so it would have to be a name; the second is one that nobody has.
    for (listen, part) in
        [("999.1.1.1:3", "neither an address nor a name"), ("192.0.2.1:3", "no address of this")]
    {
        let refused = run(&["serve", "--data", data, "--listen", listen]).ended(2);
        assert!(refused.stderr.contains(part), "{}", refused.stderr);
        assert!(!Path::new(data).exists(), "nothing is made");
        assert!(!refused.stderr.contains("another server"), "{}", refused.stderr);
    }
}

#[test]
fn ctrl_c_stops_cleanly_and_the_next_start_has_everything() {
    let mut server = Server::start();
    server.feed(&["produce", "kept"], b"one\ntwo\n").ended(0);
    let dir = server.keep_dir();
    assert_eq!(server.interrupt(), 0);
    let again = Server::on(server.data().as_ref(), &[]);
    assert_eq!(again.run(&["consume", "kept"]).ended(0).text(), "one\ntwo\n");
    drop(dir);
}

#[test]
fn a_lost_terminal_stops_a_server_not_started_to_outlive_it() {
    if !hang_ups_are_ignored_here() {
        let mut server = Server::start();
        signal(&server.child, Signal::HUP);
        assert_eq!(wait(&mut server.child).code(), Some(0));
    }
    let dir = tempfile::tempdir().expect("a directory");
    let binary = env!("CARGO_BIN_EXE_riverrun");
    let script = "trap '' HUP; exec \"$0\" serve --data \"$1\" --listen 127.0.0.1:0";
    let mut child = std::process::Command::new("sh")
        .args(["-c", script, binary, dir.path().to_str().expect("text")])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("readable");
    assert!(line.contains("listens on"), "{line}");
    signal(&child, Signal::HUP);
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(child.try_wait().expect("ours").map(|status| status.code()), None, "it goes on");
    signal(&child, Signal::TERM);
    assert_eq!(wait(&mut child).code(), Some(0));
}

/// Whether these tests were started to outlive their terminal (`nohup`), which whatever they start inherits.
fn hang_ups_are_ignored_here() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 != 0)
}

#[test]
fn a_data_directory_that_is_a_file_is_refused_with_advice() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    std::fs::write(&file, "text").expect("written");
    for data in [file.clone(), file.join("below")] {
        let refused = run(&["serve", "--data", data.to_str().expect("text"), "--listen", "127.0.0.1:0"]);
        assert_ne!(refused.code, 0);
        let advice = format!("try: --data with a directory; {} is a file", file.display());
        assert!(refused.stderr.contains(&advice), "{}", refused.stderr);
    }
}

#[test]
fn a_signal_that_is_sent_twice_at_once_stops_cleanly() {
    let mut server = Server::start();
    signal(&server.child, Signal::TERM);
    signal(&server.child, Signal::INT);
    assert_eq!(wait(&mut server.child).code(), Some(0), "as `timeout` does it");
}

/// Waits until a process handles this signal, or has ended.
fn wait_until_heard(child: &std::process::Child, signal: Signal) {
    let handles = |status: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
        Some(u64::from_str_radix(mask.trim(), 16).ok()? & (1 << (signal.as_raw() - 1)) != 0)
    };
    let path = format!("/proc/{}/status", child.id());
    let until = Instant::now() + WAIT;
    while std::fs::read_to_string(&path).is_ok_and(|status| handles(&status) == Some(false)) {
        assert!(Instant::now() < until, "it does not listen to signals");
    }
}

#[test]
fn a_signal_during_a_start_stops_it_and_loses_nothing() {
    let mut server = Server::start();
    for _ in 0..4 {
        server.feed(&["produce", "kept"], &vec![b'x'; 500_000]).ended(0);
    }
    let dir = server.keep_dir();
    signal(&server.child, Signal::KILL);
    wait(&mut server.child);
    // A start takes milliseconds, and may be over before the signal comes.
    let was_starting = (0..50).any(|_| {
        let child = riverrun(&["serve", "--data", server.data(), "--listen", "127.0.0.1:0"]).spawn();
        let child = child.expect("runs");
        wait_until_heard(&child, Signal::TERM);
        signal(&child, Signal::TERM);
        let ended = finish(child, b"");
        let is_cut_off = ended.stderr.contains("stopped while starting");
        assert_eq!(ended.code, if is_cut_off { 130 } else { 0 }, "{}", ended.stderr);
        assert!(!is_cut_off || ended.stdout.is_empty(), "it was not ready: {}", ended.text());
        is_cut_off
    });
    assert!(was_starting, "each start was waited for");
    let again = Server::on(server.data().as_ref(), &[]);
    assert_eq!(again.run(&["consume", "kept"]).ended(0).stdout.len(), 4 * 500_001);
    drop(dir);
}

#[test]
fn a_killed_server_leaves_its_acked_records() {
    let mut server = Server::start();
    server.feed(&["produce", "kept"], b"one\ntwo\n").ended(0);
    let dir = server.keep_dir();
    signal(&server.child, Signal::KILL);
    wait(&mut server.child);
    let again = Server::on(server.data().as_ref(), &[]);
    assert_eq!(again.run(&["consume", "kept"]).ended(0).text(), "one\ntwo\n");
    drop(dir);
}

#[test]
fn wrong_configuration_is_a_usage_error_that_names_it() {
    for (flags, part) in [
        (&["--set", "log.retension.ms=1"][..], "did you mean \"log.retention.ms\"?"),
        (&["--set", "num.partitions=0"], "num.partitions"),
        (&["--set", "default.durability=5"], "from 1 to 4"),
        (&["--set", "data.dir=/tmp/x", "--data", "/tmp/y"], "given by two flags"),
        (&["--listen", "nonsense"], "listeners cannot be \"nonsense\" (set in the flag --listen)"),
        (&["--set", "listeners=nonsense"], "(set in the flag --set)"),
        (&["--admin", "nonsense"], "(set in the flag --admin)"),
        (&["--set", "no-equals-sign"], "key=value"),
    ] {
        let refused = run(&[&["serve"], flags].concat()).ended(2);
        assert!(refused.stderr.contains(part), "{part} in {}", refused.stderr);
    }
    let refused =
        finish(riverrun(&["serve"]).env("RIVERRUN_NUM_PARTITION", "3").spawn().expect("runs"), b"").ended(2);
    assert!(refused.stderr.contains("RIVERRUN_NUM_PARTITIONS"), "{}", refused.stderr);
    run(&["serve", "--config", "/no/such/file.toml"]).ended(3);
    run(&["serve", "--log-level", "loud"]).ended(2);
}

#[test]
fn a_flag_wins_over_the_configuration_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("riverrun.toml");
    std::fs::write(&file, "num.partitions = 2\nlog.retention.ms = 7\n").expect("written");
    let data = dir.path().join("data");
    let flags = ["--config", file.to_str().expect("text"), "--set", "num.partitions=5"];
    let server = Server::on(&data, &flags);
    let values =
        server.run(&["config", "get", "--broker", "1", "num.partitions", "log.retention.ms", "--json"]);
    assert_eq!(values.ended(0).json(), serde_json::json!({"num.partitions": "5", "log.retention.ms": "7"}));
}

#[test]
fn the_admin_port_answers_where_the_start_up_line_says() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::on(dir.path(), &["--admin", "127.0.0.1:0"]);
    let address = server.ready["admin"].as_str().expect("an address");
    let mut stream = std::net::TcpStream::connect(address).expect("listens");
    std::io::Write::write_all(&mut stream, b"GET /health HTTP/1.0\r\n\r\n").expect("taken");
    let mut status = String::new();
    BufReader::new(stream).read_line(&mut status).expect("answered");
    assert!(status.contains(" 200 "), "{status}");
}

/// The lines that a server with this admin address logs of its admin port.
fn logged_of_the_admin_port(address: &str) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().to_str().expect("text");
    let args = ["serve", "--data", data, "--listen", "127.0.0.1:0", "--admin", address];
    let mut child = riverrun(&args).spawn().expect("the binary runs");
    let mut ready = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut ready).expect("readable");
    signal(&child, Signal::INT);
    let ended = finish(child, b"");
    assert_eq!(ended.code, 0, "{ready} {}", ended.stderr);
    ended.stderr.lines().filter(|line| line.contains("admin port")).map(str::to_owned).collect()
}

#[test]
fn an_admin_port_that_the_network_sees_is_warned_of_once() {
    let logged = logged_of_the_admin_port("0.0.0.0:0");
    assert_eq!(logged.len(), 1, "{logged:?}");
    for part in ["WARN", "/metrics", "/health", "0.0.0.0:"] {
        assert!(logged[0].contains(part), "{part} in {logged:?}");
    }
    assert_eq!(logged_of_the_admin_port("127.0.0.1:0"), Vec::<String>::new());
}
