//! How commands say that they have failed: the same for all of them.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Finished, Server, run, signal, wait};

/// Every command that has `--json`, as the page of all commands has them.
fn commands_with_json() -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let sections = page.split("\n## `").flat_map(|part| part.split("\n### `"));
    let with_json = sections.filter(|section| section.contains("\n      --json\n"));
    let names = with_json.filter_map(|section| section.split('`').next()?.strip_prefix("riverrun "));
    names.map(str::to_owned).collect()
}

/// The failure that a command tells in the last line of stderr.
fn told(ended: &Finished) -> Value {
    assert_ne!(ended.code, 0, "{ended:?}");
    let last = ended.stderr.lines().last().expect("a line");
    let told: Value = serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    assert_eq!(told["exit_code"], ended.code, "{told}");
    assert!(told["advice"].is_string() || told["advice"].is_null(), "{told}");
    assert!(told["error"].as_str().is_some_and(|error| !error.is_empty()), "{told}");
    assert!(!ended.stderr.contains("error: "), "not in text as well: {}", ended.stderr);
    told
}

#[test]
fn every_command_that_fails_says_so_in_json_if_asked() {
    let server = Server::start();
    let dir = tempfile::tempdir().expect("a directory");
    let missing = dir.path().join("missing");
    let missing = missing.to_str().expect("text");
    let data = dir.path().join("data");
    let data = data.to_str().expect("text");
    let in_a_file = dir.path().join("file");
    std::fs::write(&in_a_file, "").expect("written");
    let in_a_file = in_a_file.join("queue");
    let in_a_file = in_a_file.to_str().expect("text");
    let nobody = "127.0.0.1:1";
    let cases: [(&str, &[&str]); 30] = [
        ("serve", &["--data", data, "--listen", "999.1.1.1:3"]),
        ("topic create", &["a/b", "c/d"]),
        ("topic list", &["--bootstrap", nobody]),
        ("topic describe", &["nope"]),
        ("topic alter", &["nope", "--partitions", "3"]),
        ("topic delete", &["nope"]),
        ("produce", &["nope", "--file", missing]),
        ("consume", &["nope"]),
        ("group list", &["--bootstrap", nobody]),
        ("group describe", &["nope"]),
        ("group reset", &["nope", "--all-topics", "--to-earliest"]),
        ("group delete", &["nope"]),
        ("config get", &["--topic", "nope"]),
        ("config describe", &["--topic", "nope"]),
        ("config set", &["--topic", "nope", "retention.ms=5"]),
        ("config check", &[missing]),
        ("log dump", &[missing]),
        ("log verify", &[missing]),
        ("log repair", &[missing]),
        ("perf consume", &["--topic", "t", "--num-records", "1", "--bootstrap-server", nobody]),
        ("perf produce", &["--topic", "t", "--num-records", "0", "--record-size", "1"]),
        (
            "perf end-to-end",
            &["--topic", "t", "--num-records", "0", "--producer-acks", "1", "--record-size", "1"],
        ),
        ("queue create", &[in_a_file]),
        ("queue tail", &[missing]),
        ("queue info", &[missing]),
        ("queue verify", &[missing]),
        ("queue bench", &["--dir", in_a_file]),
        ("bench run", &[missing]),
        ("bench list", &["nope"]),
        ("demo", &["--rows", "0"]),
    ];
    let named: BTreeSet<String> = cases.iter().map(|(command, _)| (*command).to_owned()).collect();
    assert_eq!(named, commands_with_json(), "each command that has --json has its case");
    for (command, flags) in cases {
        let line: Vec<&str> = command.split(' ').chain(flags.iter().copied()).chain(["--json"]).collect();
        told(&server.run(&line));
    }
}

#[test]
fn a_wrong_command_line_fails_in_json_too() {
    for command in commands_with_json() {
        let line: Vec<&str> = command.split(' ').chain(["--no-such-flag", "--json"]).collect();
        let told = told(&run(&line).ended(2));
        let error = told["error"].as_str().expect("text");
        assert!(error.contains("--no-such-flag") && !error.contains("Usage"), "{error}");
    }
}

#[test]
fn without_json_a_failure_is_text() {
    let failed = run(&["topic", "list", "--bootstrap", "127.0.0.1:1"]).ended(4);
    assert!(failed.stderr.starts_with("error: "), "{}", failed.stderr);
}

#[test]
fn describing_an_unknown_group_says_that_it_is_none() {
    let failed = Server::start().run(&["group", "describe", "nope"]).ended(3);
    assert!(failed.stderr.contains("there is no group \"nope\""), "{}", failed.stderr);
}

#[test]
fn unknown_names_do_not_hide_the_known_one() {
    let server = Server::start();
    server.feed(&["produce", "there"], b"x\n").ended(0);
    server.run(&["consume", "there", "--group", "g"]).ended(0);
    for (command, known) in [("topic", "there"), ("group", "g")] {
        let ended = server.run(&[command, "describe", "nope", known, "neither"]).ended(3);
        assert!(ended.text().starts_with(&format!("{known}\n")), "{ended:?}");
        assert_eq!(ended.stderr.matches("error: ").count(), 2, "{}", ended.stderr);
        for name in ["nope", "neither"] {
            assert!(ended.stderr.contains(&format!("error: {command} {name}: ")), "{}", ended.stderr);
        }
        let ended = server.run(&[command, "describe", "nope", known, "--json"]).ended(3);
        assert_eq!(ended.json().as_array().map(Vec::len), Some(1), "{ended:?}");
        assert!(ended.stderr.contains("nope"), "{}", ended.stderr);
    }
}

#[test]
fn a_member_of_the_other_protocol_is_told_which_to_use() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::on(dir.path(), &["--set", "group.consumer.migration.policy=disabled"]);
    server.feed(&["produce", "t"], b"x\n").ended(0);
    for (has, wants) in [("classic", "consumer"), ("consumer", "classic")] {
        let consume = |protocol| ["consume", "t", "--group", has, "--group-protocol", protocol, "--follow"];
        let mut member = server.command(&consume(has)).spawn().expect("runs");
        let mut seen = [0; 2];
        member.stdout.take().expect("piped").read_exact(&mut seen).expect("the record");
        let refused = server.run(&consume(wants)).ended(6).stderr;
        assert!(!refused.contains("no such group"), "{refused}");
        assert!(refused.contains(&format!("try: --group-protocol {has}")), "{refused}");
        signal(&member, Signal::INT);
        wait(&mut member);
    }
}

#[test]
fn a_change_of_the_servers_own_topic_points_to_its_groups() {
    let server = Server::start();
    server.feed(&["produce", "t"], b"x\n").ended(0);
    server.run(&["consume", "t", "--group", "g"]).ended(0);
    let topic = "__consumer_offsets";
    for change in [&["topic", "delete", topic][..], &["topic", "alter", topic, "--partitions", "60"]] {
        let refused = server.run(change).ended(2).stderr;
        assert!(
            refused.contains("the server's own") && refused.contains("try: riverrun group delete"),
            "{refused}"
        );
        assert!(!refused.contains("letters"), "{refused}");
    }
}

#[test]
fn produce_to_a_forbidden_topic_fails_with_the_rules() {
    let server = Server::start();
    for topic in ["bad topic", "__consumer_offsets"] {
        let refused = server.feed(&["produce", topic], b"x\n").ended(2).stderr;
        assert!(refused.contains(&format!("to topic {topic:?}: INVALID_TOPIC_EXCEPTION")), "{refused}");
        for rule in ["try: a name of 1 to 249 letters", "offsets.topic.client.writes=true"] {
            assert!(refused.contains(rule), "{refused}");
        }
    }
}

#[test]
fn a_server_that_the_cluster_does_not_have_is_not_found() {
    let server = Server::start();
    for args in [&["config", "get"][..], &["config", "set", "log.retention.ms=5"]] {
        let begun = std::time::Instant::now();
        let args = [args, &["--broker", "77", "--timeout", "50"]].concat();
        let told = server.run(&args).ended(3).stderr;
        assert!(told.contains("the cluster has no server 77"), "{told}");
        assert!(begun.elapsed() < std::time::Duration::from_secs(40), "{:?}", begun.elapsed());
    }
}
