//! `riverrun produce` and `riverrun consume`: what goes in comes out, in every shape and from every place.

use std::io::Read as _;
use std::time::Instant;

use crate::common::{Server, WAIT, finish, run, signal, wait};
use rustix::process::Signal;
use serde_json::json;

#[test]
fn lines_come_out_as_they_went_in() {
    let server = Server::start();
    let produced =
        server.feed(&["produce", "lines", "--json"], b"one\n\ntwo \xff\nlast without end").ended(0);
    assert_eq!((&produced.json()["sent"], &produced.json()["acked"]), (&4.into(), &4.into()));
    let consumed = server.run(&["consume", "lines"]).ended(0);
    assert_eq!(consumed.stdout, b"one\n\ntwo \xff\nlast without end\n");
}

#[test]
fn a_topics_max_message_bytes_bounds_a_record() {
    let server = Server::start();
    server.run(&["topic", "create", "large", "--config", "max.message.bytes=5000000"]).ended(0);
    let record = vec![b'x'; 3_000_000];
    server.feed(&["produce", "large"], &record).ended(0);
    assert_eq!(server.run(&["consume", "large"]).ended(0).stdout.len(), record.len() + 1);
    let refused = server.feed(&["produce", "others"], &record).ended(2);
    assert!(refused.stderr.contains("max.message.bytes"), "{}", refused.stderr);
}

#[test]
fn a_record_above_request_bytes_is_refused_with_advice() {
    let server = Server::start();
    server.run(&["topic", "create", "large", "--config", "max.message.bytes=50000000"]).ended(0);
    let mut record = vec![b'x'; 2_000_000];
    let refused = server.feed(&["produce", "large", "--request-bytes", "1000000"], &record).ended(2);
    for part in ["max.request.size, 1000000", "try: --request-bytes"] {
        assert!(refused.stderr.contains(part), "{part} in {}", refused.stderr);
    }
    record.resize(34_000_000, b'x');
    let refused = server.feed(&["produce", "large"], &record).ended(2);
    assert!(refused.stderr.contains("try: --request-bytes"), "{}", refused.stderr);
    server.feed(&["produce", "large", "--request-bytes", "40000000"], &record).ended(0);
}

#[test]
fn a_partition_that_a_topic_does_not_have_is_refused_at_once() {
    let server = Server::start();
    server.run(&["topic", "create", "six", "--partitions", "6"]).ended(0);
    let refused =
        server.feed(&["produce", "six", "--partition", "77", "--timeout", "600"], b"one\n").ended(3);
    assert!(refused.stderr.contains("six has 6 partitions"), "{}", refused.stderr);
}

#[test]
fn keys_headers_and_deletions_are_kept() {
    let server = Server::start();
    let flags = ["produce", "users", "--key-separator", "=>", "--null-value", "", "--header", "source=test"];
    server.feed(&flags, b"a=>1\nb=>\n").ended(0);
    let lines = server.run(&["consume", "users", "--json"]).ended(0).json_lines();
    assert_eq!((&lines[0]["key"], &lines[0]["value"]), (&json!("a"), &json!("1")));
    assert_eq!((&lines[1]["key"], &lines[1]["value"]), (&json!("b"), &json!(null)));
    assert_eq!(lines[0]["headers"], json!([{"key": "source", "value": "test"}]));
    let shown = server.run(&["consume", "users", "--format", "{offset}:{key}={value} {headers}"]).ended(0);
    assert_eq!(shown.text(), "0:a=1 source=test\n1:b=null source=test\n");
}

#[test]
fn a_packed_csv_file_is_keyed_by_a_column_and_compressed() {
    let server = Server::start();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tools/data/flights-2013-60000.csv.gz");
    server.run(&["topic", "create", "flights", "--partitions", "4"]).ended(0);
    let flags = ["--csv", "--key-column", "carrier", "--max", "3000", "--compression", "zstd", "--json"];
    let summary = server.run(&[&["produce", "flights", "--file", file], &flags[..]].concat()).ended(0).json();
    assert_eq!(summary["acked"], 3000);
    assert!(summary["partitions"].as_object().expect("counts").len() > 1, "{summary}");
    let lines = server.run(&["consume", "flights", "--format", "key-value"]).ended(0).text();
    assert_eq!(lines.lines().count(), 3000);
    for line in lines.lines() {
        let (key, value) = line.split_once('\t').expect("key and value");
        assert_eq!(value.split(',').nth(9), Some(key), "{line}");
    }
}

#[test]
fn consume_begins_and_ends_as_its_flags_say() {
    let server = Server::start();
    let before = std::time::SystemTime::now();
    server.feed(&["produce", "ten"], b"0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n").ended(0);
    let ms = before.duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_millis();
    let since = format!("@{ms}");
    for (flags, expected) in [
        (&["--from", "8"][..], "8\n9\n"),
        (&["--from", "-2"], "8\n9\n"),
        (&["--from", "10"], ""),
        (&["--from", "end", "--until-end"], ""),
        (&["--from", &since, "--max", "1"], "0\n"),
        (&["--from", "-1h", "--max", "2"], "0\n1\n"),
        (&["--from", "3", "--max", "2"], "3\n4\n"),
        (&["--max", "0"], ""),
        (&["--partition", "0", "--from", "-1"], "9\n"),
    ] {
        let consumed = server.run(&[&["consume", "ten"], flags].concat()).ended(0);
        assert_eq!(consumed.text(), expected, "{flags:?}");
    }
    let beyond = server.run(&["consume", "ten", "--from", "99", "--until-end"]).ended(2);
    assert!(beyond.stderr.contains("ten-0 begins at 0 and ends at 10"), "{}", beyond.stderr);
    assert_eq!(beyond.text(), "");
}

#[test]
fn follow_goes_on_with_new_records_until_ctrl_c() {
    let server = Server::start();
    server.feed(&["produce", "news"], b"old\n").ended(0);
    let mut child = server.command(&["consume", "news", "--follow"]).spawn().expect("runs");
    let mut stdout = child.stdout.take().expect("piped");
    let mut seen = [0; 4];
    stdout.read_exact(&mut seen).expect("the old record");
    assert_eq!(&seen, b"old\n");
    server.feed(&["produce", "news"], b"new\n").ended(0);
    stdout.read_exact(&mut seen).expect("the new record");
    assert_eq!(&seen, b"new\n");
    signal(&child, Signal::INT);
    assert_eq!(wait(&mut child).code(), Some(0));
}

#[test]
fn consume_stopped_by_a_signal_commits_and_leaves_its_group() {
    let server = Server::start();
    server.feed(&["produce", "news"], b"old\n").ended(0);
    for (protocol, stop) in [("consumer", Signal::TERM), ("classic", Signal::TERM), ("consumer", Signal::INT)]
    {
        let group = format!("{protocol}-{stop:?}");
        let consume = ["consume", "news", "--follow", "--group", &group, "--group-protocol", protocol];
        let mut child = server.command(&consume).spawn().expect("runs");
        let mut seen = [0; 4];
        child.stdout.take().expect("piped").read_exact(&mut seen).expect("the record");
        signal(&child, stop);
        assert_eq!(wait(&mut child).code(), Some(0), "{group}");
        let described = server.run(&["group", "describe", &group, "--json"]).ended(0).json();
        assert_eq!((&described[0]["state"], &described[0]["lag"]), (&json!("Empty"), &json!(0)), "{group}");
    }
}

#[test]
fn produce_stopped_by_a_signal_prints_its_summary() {
    let server = Server::start();
    let child = server.command(&["produce", "t", "--json"]).stdin(std::process::Stdio::piped()).spawn();
    let mut child = child.expect("runs");
    let mut stdin = child.stdin.take().expect("piped");
    std::io::Write::write_all(&mut stdin, b"one\n").expect("taken");
    let deadline = Instant::now() + WAIT;
    while server.run(&["consume", "t"]).stdout != b"one\n" {
        assert!(Instant::now() < deadline, "the record never came");
    }
    signal(&child, Signal::TERM);
    let ended = finish(child, b"").ended(130);
    assert_eq!(ended.json()["acked"], 1, "{ended:?}");
    drop(stdin);
}

#[test]
fn consume_ends_well_when_the_reader_of_its_output_leaves() {
    let server = Server::start();
    let lines: String = "a line\n".repeat(200_000);
    server.feed(&["produce", "many"], lines.as_bytes()).ended(0);
    let mut child = server.command(&["consume", "many"]).spawn().expect("runs");
    let mut some = [0; 10];
    child.stdout.take().expect("piped").read_exact(&mut some).expect("the first records");
    let ended = finish(child, b"");
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
}

#[test]
fn missing_and_wrong_inputs_have_exit_codes_and_advice() {
    let server = Server::start();
    server.feed(&["produce", "there"], b"x\n").ended(0);
    let missing = server.run(&["consume", "missing"]).ended(3);
    assert!(missing.stderr.contains("riverrun topic list"), "{}", missing.stderr);
    server.run(&["consume", "there", "--partition", "7"]).ended(3);
    server.run(&["produce", "there", "--file", "/no/such/file"]).ended(3);
    let no_separator = server.feed(&["produce", "there", "--key-separator", ":"], b"a:1\nb\n").ended(2);
    assert!(no_separator.stderr.contains("line 2"), "{}", no_separator.stderr);
    assert!(no_separator.stderr.contains("1 record"), "{}", no_separator.stderr);
    server.run(&["produce", "there", "--acks", "1"]).ended(2);
    server.run(&["consume", "there", "--group", "g", "--from", "7"]).ended(2);
    let unreachable = run(&["topic", "list", "--bootstrap", "127.0.0.1:1"]).ended(4);
    assert!(unreachable.stderr.contains("riverrun serve"), "{}", unreachable.stderr);
}

#[test]
fn acks_0_and_1_work_without_idempotence() {
    let server = Server::start();
    for acks in ["0", "1"] {
        let flags = ["produce", "lax", "--acks", acks, "--no-idempotence", "--linger-ms", "0"];
        server.feed(&flags, b"x\n").ended(0);
    }
    // With acks=0 nobody says when the record has arrived.
    let deadline = Instant::now() + WAIT;
    while server.run(&["consume", "lax"]).ended(0).text() != "x\nx\n" {
        assert!(Instant::now() < deadline, "the record without an ack never came");
    }
}
