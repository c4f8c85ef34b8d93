//! How commands say that they have failed: the same for all of them.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::common::{Finished, Server, run};

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
fn every_command_that_fails_says_so_in_json_if_that_is_asked_for() {
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
    let cases: [(&str, &[&str]); 26] = [
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
fn a_wrong_command_line_is_told_in_json_too() {
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
fn an_unknown_group_is_no_group_of_any_kind() {
    let failed = Server::start().run(&["group", "describe", "nope"]).ended(3);
    assert!(failed.stderr.contains("there is no group \"nope\""), "{}", failed.stderr);
}
