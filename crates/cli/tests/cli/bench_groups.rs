//! Members of groups in runs of `riverrun bench`, on a server without a rebalance delay: the first member has all partitions
//! at first.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::bench::{Files, WORKLOAD, number};
use crate::common::Server;

const PROMPT: [&str; 4] =
    ["--set", "group.initial.rebalance.delay.ms=0", "--set", "group.consumer.heartbeat.interval.ms=300"];

fn server() -> (Server, TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    (Server::on(dir.path(), &PROMPT), dir)
}

/// The account of so many groups of so many members, `expected` of which can have partitions and have them.
fn complete(groups: u64, members: u64, expected: u64) -> Value {
    json!({
        "members": members, "expected": expected, "assigned": expected, "unassignedPartitions": 0,
        "groups": groups, "incompleteGroups": 0,
    })
}

#[test]
fn a_backlog_is_read_by_all_members_of_groups_that_catch_up() {
    let (server, _data) = server();
    let files = Files::new();
    let driver = "name: d\ndriverClass: x.KafkaBenchmarkDriver\nreplicationFactor: 1
consumerConfig: heartbeat.interval.ms=300\n";
    let driver = files.write("d.yaml", driver);
    let text = WORKLOAD
        .replace(
            "subscriptionsPerTopic: 2\nconsumerPerSubscription: 1",
            "subscriptionsPerTopic: 1\nconsumerPerSubscription: 4",
        )
        .replace("producerRate: 500", "producerRate: 20000\nconsumerBacklogSizeGB: 0.00390625")
        .replace("warmupDurationMinutes: 0.01", "warmupDurationMinutes: 0");
    for (more, groups) in [("", 1), ("catchUpSubscriptionsPerTopic: 1\n", 2)] {
        let workload = files.write("w.yaml", &format!("{text}{more}"));
        let result = files.bench(&server, &[&workload, "-d", &driver]).remove(0);
        let ours = &result["riverrun"];
        assert_eq!(ours["members"], complete(groups, 4 * groups, 3 * groups), "{}", ours["notes"]);
        assert_eq!(ours["backlog"]["drained"], true, "{}", ours["backlog"]);
    }
}

#[test]
fn records_of_a_topic_are_read_by_all_members_of_a_group() {
    let (server, _data) = server();
    let files = Files::new();
    server.run(&["topic", "create", "t", "--partitions", "6"]).ended(0);
    let flags = ["--num-records", "600", "--record-size", "10", "--partitioner", "round-robin"];
    server.run(&[&["perf", "produce", "--topic", "t"], &flags[..]].concat()).ended(0);
    for protocol in ["classic", "consumer"] {
        let settings = match protocol {
            "classic" => r#""heartbeat.interval.ms": 300"#,
            _ => r#""group.protocol": "consumer""#,
        };
        let spec = format!(
            r#"{{ "class": "x.ConsumeBenchSpec", "durationMs": 60000, "maxMessages": 200, "threadsPerWorker": 3,
  "consumerGroup": "{protocol}-readers", "consumerConf": {{{settings}}}, "activeTopics": ["t"] }}"#
        );
        let result = files.bench(&server, &[&files.write("s.json", &spec)]).remove(0);
        let (ours, totals) = (&result["riverrun"], &result["riverrun"]["totals"]);
        assert_eq!(ours["members"], complete(1, 3, 3), "{protocol}: {}", ours["notes"]);
        assert_eq!(totals["received"], 600, "{protocol}: nothing was read before: {totals}");
        assert!(number(&totals["testS"]) < 30.0, "{protocol}: it is over with its last record: {totals}");
    }
}
