//! `riverrun topic|group|config` against a server.

use std::time::Instant;

use serde_json::json;

use crate::common::{Server, WAIT, signal, wait};
use rustix::process::Signal;

#[test]
fn a_topic_lives_from_create_to_delete() {
    let server = Server::start();
    let create = ["topic", "create", "clicks", "--partitions", "3", "--config", "retention.ms=60000"];
    assert_eq!(server.run(&create).ended(0).text(), "clicks created, 3 partitions\n");
    let exists = server.run(&create).ended(6);
    assert!(
        exists.stderr.contains("topic clicks") && exists.stderr.contains("--if-not-exists"),
        "{}",
        exists.stderr
    );
    server.run(&[&create[..], &["--if-not-exists"]].concat()).ended(0);
    let listed = server.run(&["topic", "list", "--json"]).ended(0).json();
    assert_eq!((&listed[0]["name"], &listed[0]["partitions"]), (&json!("clicks"), &json!(3)));
    server
        .run(&[
            "topic",
            "alter",
            "clicks",
            "--partitions",
            "5",
            "--config",
            "cleanup.policy=compact",
            "--unset",
            "retention.ms",
        ])
        .ended(0);
    server.feed(&["produce", "clicks", "--partition", "4", "--key-separator", ":"], b"a:1\nb:2\n").ended(0);
    let described = server.run(&["topic", "describe", "clicks", "--json"]).ended(0).json();
    let topic = &described[0];
    assert_eq!(topic["configs"], json!({"cleanup.policy": "compact"}));
    assert_eq!((&topic["durability"], &topic["durability_reached"]), (&json!(1), &json!(1)));
    assert_eq!(topic["unsynced_records"], 0);
    assert_eq!(topic["partitions"].as_array().expect("partitions").len(), 5);
    assert_eq!(
        (&topic["partitions"][4]["begin_offset"], &topic["partitions"][4]["end_offset"]),
        (&json!(0), &json!(2))
    );
    let text = server.run(&["topic", "describe", "clicks"]).ended(0).text();
    for part in
        ["level 1: acked records survive", "unsynced", "cleanup.policy=compact", "PARTITION", "IN SYNC"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(server.run(&["topic", "delete", "clicks"]).ended(0).text(), "clicks deleted\n");
    server.run(&["topic", "describe", "clicks"]).ended(3);
    server.run(&["topic", "delete", "clicks"]).ended(3);
    server.run(&["topic", "delete", "clicks", "--if-exists"]).ended(0);
}

#[test]
fn one_bad_item_does_not_hide_the_others() {
    let server = Server::start();
    let ended = server.run(&["topic", "create", "good", "bad name!", "--json"]).ended(2);
    let results = ended.json();
    let of = |name: &str| {
        results.as_array().expect("results").iter().find(|r| r["name"] == name).expect(name).clone()
    };
    assert_eq!(of("good")["ok"], true);
    assert_eq!(of("bad name!")["ok"], false);
    assert!(ended.stderr.contains("bad name!"), "{}", ended.stderr);
}

#[test]
fn a_dry_run_changes_nothing() {
    let server = Server::start();
    server.run(&["topic", "create", "maybe", "--dry-run"]).ended(0);
    server.run(&["topic", "describe", "maybe"]).ended(3);
    server.run(&["topic", "create", "sure"]).ended(0);
    server.run(&["config", "set", "--topic", "sure", "retention.ms=5", "--dry-run"]).ended(0);
    let value = server.run(&["config", "get", "--topic", "sure", "retention.ms"]).ended(0).text();
    assert_eq!(value, "retention.ms=604800000\n");
}

#[test]
fn configuration_is_read_set_and_refused() {
    let server = Server::start();
    server.run(&["topic", "create", "t"]).ended(0);
    server.run(&["config", "set", "--topic", "t", "retention.ms=5", "max.message.bytes=2000"]).ended(0);
    let values = server.run(&["config", "get", "--topic", "t", "--json"]).ended(0).json();
    assert_eq!((&values["retention.ms"], &values["max.message.bytes"]), (&json!("5"), &json!("2000")));
    let described = server.run(&["config", "describe", "--topic", "t", "retention.ms"]).ended(0).text();
    assert!(described.contains("from: topic"), "{described}");
    server.run(&["config", "set", "--topic", "t", "--unset", "retention.ms"]).ended(0);
    let value = server.run(&["config", "get", "--topic", "t", "retention.ms"]).ended(0).text();
    assert_eq!(value, "retention.ms=604800000\n");
    server.run(&["config", "set", "--topic", "t", "retention.ms=soon"]).ended(2);
    server.run(&["config", "set", "--topic", "t", "no.such.option=1"]).ended(2);
    server.run(&["config", "get", "--topic", "t", "no.such.option"]).ended(3);
    server.run(&["config", "get", "--topic", "missing"]).ended(3);
    server.run(&["config", "get"]).ended(2);
    let too_large = server.feed(&["produce", "t"], &b"x".repeat(5000)).ended(2);
    assert!(too_large.stderr.contains("max.message.bytes"), "{}", too_large.stderr);
}

#[test]
fn a_group_goes_on_behind_the_records_that_it_printed() {
    let server = Server::start();
    server.feed(&["produce", "ten"], b"0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n").ended(0);
    let types = [("classic", "classic"), ("consumer", "consumer")];
    for (protocol, kind) in types {
        let group = format!("readers-{protocol}");
        let consume = ["consume", "ten", "--group", &group, "--group-protocol", protocol];
        let first = server.run(&[&consume[..], &["--max", "4"]].concat()).ended(0);
        assert_eq!(first.text(), "0\n1\n2\n3\n", "{protocol}");
        let described = server.run(&["group", "describe", &group, "--json"]).ended(0).json();
        let partition = &described[0]["partitions"][0];
        assert_eq!(
            (&partition["committed"], &partition["end"], &partition["lag"]),
            (&json!(4), &json!(10), &json!(6))
        );
        assert_eq!((&described[0]["lag"], &described[0]["type"]), (&json!(6), &json!(kind)));
        let rest = server.run(&consume).ended(0);
        assert_eq!(rest.text(), "4\n5\n6\n7\n8\n9\n", "{protocol}");
        let text = server.run(&["group", "describe", &group]).ended(0).text();
        assert!(text.contains("lag         0"), "{text}");
    }
    let listed = server.run(&["group", "list", "--json"]).ended(0).json();
    let groups = types.map(|(protocol, kind)| {
        let group = format!("readers-{protocol}");
        json!({"group": group, "type": kind, "state": "Empty", "protocol": "consumer"})
    });
    assert_eq!(listed, json!(groups));
    let text = server.run(&["group", "list"]).ended(0).text();
    let lines: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["GROUP", "TYPE", "STATE", "PROTOCOL"]);
    assert_eq!(lines[1], ["readers-classic", "classic", "Empty", "consumer"]);
}

#[test]
fn a_group_is_reset_only_with_execute_and_then_deleted() {
    let server = Server::start();
    server.feed(&["produce", "ten"], b"0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n").ended(0);
    server.run(&["consume", "ten", "--group", "g"]).ended(0);
    let committed = || {
        server.run(&["group", "describe", "g", "--json"]).ended(0).json()[0]["partitions"][0]["committed"]
            .clone()
    };
    let shown = server.run(&["group", "reset", "g", "--all-topics", "--shift-by", "-3"]).ended(0).text();
    assert!(shown.contains("nothing was changed"), "{shown}");
    assert_eq!(committed(), 10);
    let to = |flags: &[&str]| {
        server.run(&[&["group", "reset", "g", "--topic", "ten:0", "--execute"], flags].concat())
    };
    for (flags, offset) in [
        (&["--shift-by", "-3"][..], 7),
        (&["--to-offset", "99"], 10),
        (&["--to-earliest"], 0),
        (&["--to-latest"], 10),
        (&["--to-time", "-1h"], 0),
    ] {
        to(flags).ended(0);
        assert_eq!(committed(), offset, "{flags:?}");
    }
    to(&[]).ended(2);
    server.run(&["group", "reset", "g", "--topic", "missing", "--to-earliest"]).ended(3);
    server.run(&["group", "reset", "g", "--topic", "ten:9", "--to-earliest"]).ended(3);
    server.run(&["group", "delete", "g"]).ended(0);
    let gone = server.run(&["group", "describe", "g"]).ended(3);
    assert!(gone.stderr.contains("riverrun group list"), "{}", gone.stderr);
}

#[test]
fn a_group_with_members_is_neither_reset_nor_deleted() {
    let server = Server::start();
    server.feed(&["produce", "busy"], b"x\n").ended(0);
    let mut reader = server.command(&["consume", "busy", "--group", "g", "--follow"]).spawn().expect("runs");
    let mut seen = [0; 2];
    std::io::Read::read_exact(reader.stdout.as_mut().expect("piped"), &mut seen).expect("the record");
    let refused =
        server.run(&["group", "reset", "g", "--topic", "busy", "--to-earliest", "--execute"]).ended(6);
    assert!(refused.stderr.contains("1 member,"), "{}", refused.stderr);
    server.run(&["group", "delete", "g"]).ended(6);
    signal(&reader, Signal::INT);
    assert_eq!(wait(&mut reader).code(), Some(0));
    server.run(&["group", "delete", "g"]).ended(0);
}

#[test]
fn a_rolling_group_shows_the_protocol_of_each_member() {
    let mut server = Server::start();
    server.feed(&["produce", "rolled"], b"x\n").ended(0);
    let mut members: Vec<_> = ["classic", "consumer"]
        .map(|protocol| {
            let args = ["consume", "rolled", "--group", "g", "--group-protocol", protocol, "--follow"];
            let mut member = server.command(&args).spawn().expect("runs");
            if protocol == "classic" {
                let mut seen = [0; 2];
                std::io::Read::read_exact(member.stdout.as_mut().expect("piped"), &mut seen).expect("read");
            }
            member
        })
        .into();
    let protocols = || {
        let described = server.run(&["group", "describe", "g", "--json"]).ended(0).json();
        let members = described[0]["members"].as_array().expect("members").clone();
        let mut protocols: Vec<_> = members.iter().map(|member| member["protocol"].clone()).collect();
        protocols.sort_by_key(ToString::to_string);
        protocols
    };
    let deadline = Instant::now() + WAIT;
    while protocols() != ["classic", "consumer"] {
        assert!(Instant::now() < deadline, "{:?}", protocols());
    }
    let text = server.run(&["group", "describe", "g"]).ended(0).text();
    assert!(text.contains("PROTOCOL"), "{text}");
    for member in &mut members {
        signal(member, Signal::INT);
        wait(member);
    }
    assert_eq!(server.interrupt(), 0);
    let told =
        "group=g from=\"classic\" to=\"consumer\" why=\"a member of the consumer protocol has joined\"";
    assert!(server.logged().contains(told));
}

#[test]
fn a_level_wanted_by_flush_messages_shows_beside_durability() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::on(dir.path(), &["--set", "default.durability=2"]);
    server.run(&["topic", "create", "plain"]).ended(0);
    server.run(&["topic", "create", "flushed", "--config", "flush.messages=1"]).ended(0);
    let get = |topic| server.run(&["config", "get", "--topic", topic, "durability"]).ended(0).text();
    assert_eq!(get("plain"), "durability=2\n");
    assert_eq!(get("flushed"), "durability=2\ndurability.wanted=1\n");
    let all = server.run(&["config", "get", "--topic", "flushed", "--json"]).ended(0).json();
    assert_eq!((&all["durability"], &all["durability.wanted"]), (&json!("2"), &json!("1")));
    let described = server.run(&["config", "describe", "--topic", "flushed", "durability"]).ended(0).text();
    assert!(described.contains("durability.wanted=1\n  The level that the topic's configs ask for."));
}

#[test]
fn a_group_has_a_configuration_of_its_own() {
    let server = Server::start();
    let option = "consumer.session.timeout.ms";
    let get = || server.run(&["config", "get", "--group", "g", option]).ended(0).text();
    assert_eq!(get(), format!("{option}=45000\n"));
    let set = |value: &str| server.run(&["config", "set", "--group", "g", &format!("{option}={value}")]);
    assert_eq!(set("50000").ended(0).text(), "g changed\n");
    assert_eq!(get(), format!("{option}=50000\n"));
    let refused = set("1").ended(2).stderr;
    assert!(refused.contains("group g: ") && refused.contains(option), "{refused}");
    server.run(&["config", "set", "--group", "g", "--unset", option]).ended(0);
    assert_eq!(get(), format!("{option}=45000\n"));
    server.run(&["config", "get", "--group", "g", "--topic", "t"]).ended(2);
}
