//! `riverrun bench` from outside: files of other suites on a real server, workers, and the page of results.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Child;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{Server, riverrun, run, signal};

/// A workload of a few seconds, as the files of `OpenMessaging` Benchmark are written.
pub(crate) const WORKLOAD: &str = "name: small
topics: 1
partitionsPerTopic: 3
messageSize: 200
subscriptionsPerTopic: 2
consumerPerSubscription: 1
producersPerTopic: 2
producerRate: 500
testDurationMinutes: 0.05
warmupDurationMinutes: 0.01
colour: blue
";

pub(crate) struct Files {
    dir: TempDir,
}

impl Files {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a directory") }
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).expect("room");
        path.display().to_string()
    }

    pub(crate) fn output(&self) -> String {
        self.dir.path().join("results").display().to_string()
    }

    /// Runs these on the server, and answers the results.
    pub(crate) fn bench(&self, server: &Server, args: &[&str]) -> Vec<Value> {
        let (target, output) = (format!("s={}", server.bootstrap()), self.output());
        let args =
            [&["bench", "run", "--json", "--keep-page-cache", "-o", &output, "--server", &target], args];
        run(&args.concat()).ended(0).json().as_array().expect("a list").clone()
    }
}

pub(crate) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Records that were due by the second, whenever a busy machine came to send and ack them.
fn due_rate(totals: &Value) -> f64 {
    ["acked", "ackedLate", "overdue"].map(|key| number(&totals[key])).iter().sum::<f64>()
        / number(&totals["testS"])
}

#[test]
fn a_workload_runs_on_servers_in_turn_and_a_page_compares() {
    let server = Server::start();
    let files = Files::new();
    let workload = files.write("w.yaml", WORKLOAD);
    let ours = format!("b={}@{}", server.bootstrap(), server.child.id());
    let results = files.bench(&server, &[&workload, "--server", &ours]);
    let names: Vec<_> = results.iter().map(|one| one["riverrun"]["server"].as_str().unwrap()).collect();
    assert_eq!(names, ["s", "b"]);
    for result in &results {
        let (ours, totals) = (&result["riverrun"], &result["riverrun"]["totals"]);
        assert_eq!((&result["workload"], &result["messageSize"]), (&"small".into(), &200.into()));
        // A late record counts for no rate, and is waited for all the same.
        let all = |key: &str, late: &str| number(&totals[key]) + number(&totals[late]);
        assert!((400.0..700.0).contains(&due_rate(totals)), "{totals}");
        assert!(number(&result["publishRate"][0]) > 0.0, "{totals}");
        assert!(all("received", "receivedLate") >= 2.0 * number(&totals["acked"]) - 50.0, "{totals}");
        let timed = ["acked", "ackedLate", "failed", "overdue", "unacked"].map(|key| number(&totals[key]));
        let count = number(&ours["publish"]["count"]);
        assert!((timed.iter().sum::<f64>() - count).abs() < 0.5, "{count} latencies: {totals}");
        assert!(ours["poll"].is_null(), "who waits for what is sent measures who sends: {}", ours["poll"]);
        assert!(number(&ours["publish"]["p50_us"]) > 0.0 && number(&ours["endToEnd"]["p50_us"]) > 0.0);
        assert_eq!(ours["durability"]["reached"], "1");
        // One for each second, or for more of them where the machine was busy.
        assert!(!ours["seconds"].as_array().unwrap().is_empty());
        assert_eq!(ours["notes"][0], "workload: unknown key colour is ignored");
        assert!(!ours["notes"].to_string().contains("neither acked nor refused"), "{}", ours["notes"]);
    }
    assert!(results[0]["riverrun"]["serverUsage"].is_null());
    assert!(number(&results[1]["riverrun"]["serverUsage"]["resident_bytes_max"]) > 1e6);
    assert!(server.run(&["topic", "list"]).ended(0).text().lines().all(|line| !line.contains("test-topic")));
    let page = files.dir.path().join("page.html").display().to_string();
    run(&["bench", "report", &files.output(), "-o", &page]).ended(0);
    assert!(std::fs::read_to_string(page).unwrap().contains("\"server\":\"b\""));
}

#[test]
fn a_search_tells_the_rate_that_it_has_found() {
    let server = Server::start();
    let files = Files::new();
    let text =
        WORKLOAD.replace("producerRate: 500", "producerRate: 0").replace("Minutes: 0.05", "Minutes: 0.15");
    let (workload, output) = (files.write("w.yaml", &text), files.output());
    let args =
        ["bench", "run", "--keep-page-cache", "-o", &output, "--server", server.bootstrap(), &workload];
    let line = run(&args).ended(0).text();
    let result = std::fs::read_dir(&output).unwrap().next().expect("one result").unwrap().path();
    let result: Value = serde_json::from_slice(&std::fs::read(result).unwrap()).unwrap();
    let found = &result["riverrun"]["search"];
    // It begins with 10,000, of which a busy machine may keep up less.
    assert!(number(&found["keptUp"]) > 0.0, "{found}");
    let told = format!("{:.0} rec/s kept up for 3 s, ", number(&found["keptUp"]));
    assert!(line.contains(&told), "{told}: {line}");
}

#[test]
fn a_stall_of_one_second_shows_in_the_percentiles() {
    let server = Server::start();
    let files = Files::new();
    let text = WORKLOAD.replace("testDurationMinutes: 0.05", "testDurationMinutes: 0.1");
    let (workload, output) = (files.write("w.yaml", &text), files.output());
    let target = server.bootstrap().to_owned();
    let args = ["bench", "run", "--json", "--keep-page-cache", "-o", &output, "--server", &target, &workload];
    let mut running = riverrun(&args).spawn().expect("the binary runs");
    wait_for_line(&mut running, "measurement");
    std::thread::sleep(Duration::from_secs(2));
    signal(&server.child, Signal::STOP);
    std::thread::sleep(Duration::from_secs(1));
    signal(&server.child, Signal::CONT);
    let results = finish_quietly(running);
    let publish = &results[0]["riverrun"]["publish"];
    // A sixth of all records were due in that second, evenly: one in fifty waited for most of it.
    assert!(number(&publish["max_us"]) >= 950_000.0, "{publish}");
    assert!(number(&publish["p99_us"]) >= 700_000.0, "{publish}");
    // Most waited for something else, if at all: on a busy machine that is long, too.
    assert!(number(&publish["p50_us"]) + 300_000.0 < number(&publish["max_us"]), "{publish}");
    let end_to_end = &results[0]["riverrun"]["endToEnd"];
    assert!(number(&end_to_end["p99_us"]) >= 700_000.0, "{end_to_end}");
}

/// Reads the progress of a command until a line tells this, and lets the rest go.
pub(crate) fn wait_for_line(child: &mut Child, wanted: &str) {
    drop(lines_after(child, wanted));
}

/// Reads the progress of a command until a line tells this, and the rest meanwhile.
pub(crate) fn lines_after(child: &mut Child, wanted: &str) -> JoinHandle<String> {
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let found = lines.by_ref().map_while(Result::ok).any(|line| line.trim() == wanted);
    assert!(found, "the command ended without {wanted:?}");
    std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>().join("\n"))
}

/// The results of a command whose progress was read.
fn finish_quietly(child: Child) -> Value {
    let output = child.wait_with_output().expect("a child of ours");
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).expect("results")
}

#[test]
fn a_backlog_is_built_and_read() {
    let server = Server::start();
    let files = Files::new();
    // 4 MiB, over both groups.
    let text =
        WORKLOAD.replace("producerRate: 500", "producerRate: 20000\nconsumerBacklogSizeGB: 0.00390625");
    let results = files.bench(&server, &[&files.write("w.yaml", &text)]);
    let backlog = &results[0]["riverrun"]["backlog"];
    assert_eq!(backlog["drained"], true, "{backlog}");
    assert!(number(&backlog["records"]) * 200.0 >= 4_194_304.0, "{backlog}");
    assert!(number(&backlog["drainedRecords"]) >= number(&backlog["records"]) - 3000.0, "{backlog}");
}

#[test]
fn warm_up_records_do_not_count_in_a_run_of_messages() {
    let server = Server::start();
    let files = Files::new();
    // In the warm-up far more is due than can be sent.
    let text = WORKLOAD.replace("producerRate: 500", "producerRate: 5000000\nmessages: 700");
    let result = files.bench(&server, &[&files.write("w.yaml", &text)]).remove(0);
    let (ours, totals) = (&result["riverrun"], &result["riverrun"]["totals"]);
    assert_eq!((&totals["overdue"], &ours["publish"]["count"]), (&0.into(), &700.into()), "{totals}");
    assert_eq!(ours["endToEnd"]["count"], 1400, "{totals}");
}

#[test]
fn a_load_is_spread_over_workers() {
    let server = Server::start();
    let files = Files::new();
    let mut workers: Vec<_> = (0..2)
        .map(|_| riverrun(&["bench", "worker", "--listen", "127.0.0.1:0"]).spawn().expect("the binary runs"))
        .collect();
    let addresses: Vec<_> = workers.iter_mut().map(listening_on).collect();
    let workload = files.write("w.yaml", WORKLOAD);
    let results = files.bench(&server, &[&workload, "--workers", &addresses.join(",")]);
    let pids: Vec<_> = workers.iter().map(Child::id).collect();
    for mut worker in workers {
        worker.kill().expect("it runs");
        worker.wait().expect("a child of ours");
    }
    let ours = &results[0]["riverrun"];
    assert_eq!(ours["workers"], 2);
    assert!((400.0..700.0).contains(&due_rate(&ours["totals"])), "{}", ours["totals"]);
    assert!(number(&ours["endToEnd"]["count"]) > 1000.0, "{}", ours["endToEnd"]);
    let used = ours["workerUsage"].as_array().expect("of each worker");
    let told: Vec<_> = used.iter().map(|one| one["address"].as_str().unwrap()).collect();
    assert_eq!(told, addresses);
    for (worker, pid) in used.iter().zip(pids) {
        assert_eq!(worker["pid"], pid);
        assert!(number(&worker["cpu_s"]) > 0.0 && number(&worker["resident_bytes_max"]) > 1e6, "{worker}");
    }
}

fn listening_on(worker: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(worker.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line:?}")).to_owned()
}

#[test]
fn a_trogdor_spec_runs_and_a_transactional_one_is_refused() {
    let server = Server::start();
    let files = Files::new();
    let spec = r#"// Comments are allowed.
{ "class": "org.apache.kafka.trogdor.workload.RoundTripWorkloadSpec", "durationMs": 30000, "clientNode": "n",
  "bootstrapServers": "nowhere:1", "targetMessagesPerSec": 1000, "maxMessages": 1500,
  "activeTopics": { "round[1-2]": { "numPartitions": 2, "replicationFactor": 1 } } }"#;
    let totals = files.bench(&server, &[&files.write("s.json", spec)])[0]["riverrun"]["totals"].clone();
    let all = |key: &str, late: &str| number(&totals[key]) + number(&totals[late]);
    assert!((all("acked", "ackedLate") - 1500.0).abs() < 0.5, "{totals}");
    assert!((all("received", "receivedLate") - 1500.0).abs() < 0.5, "{totals}");
    assert!(number(&totals["testS"]) < 25.0, "it is over with its last record, and not after 30 s: {totals}");
    // The records are read back, and those that a topic holds already would count, too: so it is refused. Here an earlier
    // run has filled a topic that it did not make.
    server.run(&["topic", "create", "round1", "--partitions", "3"]).ended(0);
    files.bench(&server, &[&files.write("s.json", spec)]);
    let target = format!("s={}", server.bootstrap());
    let again = ["bench", "run", &files.write("s.json", spec), "--server", &target, "-o", &files.output()];
    let refused = run(&again).ended(2);
    assert!(refused.stderr.contains("topic round1 holds records already"), "{}", refused.stderr);
    let produce = spec.replace("RoundTripWorkloadSpec", "ProduceBenchSpec");
    let transactional = produce
        .replace("\"durationMs\"", "\"transactionGenerator\": {\"type\": \"uniform\"}, \"durationMs\"");
    let refused = run(&["bench", "run", &files.write("t.json", &transactional)]).ended(2);
    assert!(refused.stderr.contains("transactions are not supported"), "{}", refused.stderr);
}

#[test]
fn more_replicas_than_servers_need_a_flag_that_results_keep() {
    let server = Server::start();
    let files = Files::new();
    let workload = files.write("w.yaml", WORKLOAD);
    let driver = files.write(
        "d.yaml",
        "name: three\ndriverClass: io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver
replicationFactor: 3\ntopicConfig: min.insync.replicas=2\nproducerConfig: acks=all\n",
    );
    let target = format!("s={}", server.bootstrap());
    let output = files.output();
    let args = ["bench", "run", &workload, "-d", &driver, "--server", &target, "-o", &output];
    let refused = run(&args).ended(2);
    assert!(refused.stderr.contains("--replication-factor"), "{}", refused.stderr);
    let results = files.bench(&server, &[&workload, "-d", &driver, "--replication-factor", "1"]);
    let ours = &results[0]["riverrun"];
    let in_sync = serde_json::json!({"wanted": 2, "used": 1});
    assert_eq!(
        ours["replication"],
        serde_json::json!({"wanted": 3, "used": 1, "overridden": true, "minInSync": in_sync})
    );
    assert_eq!(
        (&results[0]["driver"], &ours["setup"]["producerSettings"]["acks"]),
        (&"three".into(), &"all".into())
    );
    assert_eq!(ours["totals"]["failed"], 0, "every record was acked by the one that there is");
}

#[test]
fn a_run_that_would_fail_shows_before_any_run() {
    let server = Server::start();
    let files = Files::new();
    let workload = files.write("w.yaml", WORKLOAD);
    let driver = |name: &str, rest: &str| {
        let class = "driverClass: x.KafkaBenchmarkDriver\nreplicationFactor: 1";
        files.write(name, &format!("name: {name}\n{class}\n{rest}\n"))
    };
    let good = driver("good", "");
    let soon = driver("soon", "producerConfig: linger.ms=soon");
    let never = driver("never", "topicConfig: retention.ms=never");
    let (target, output) = (format!("s={}", server.bootstrap()), files.output());
    let gone = format!("t={}@{}", server.bootstrap(), u32::MAX >> 2);
    let other = files.write("other.yaml", &WORKLOAD.replace("topics: 1", "topics: 0"));
    let refused = |args: &[&str], exit: i32, reason: &str| {
        let first = ["bench", "run", &workload, "-o", &output, "--server", &target];
        let told = run(&[&first, args].concat()).ended(exit).stderr;
        assert!(told.contains(reason), "{told}");
        assert!(!Path::new(&output).exists() && !told.contains("measurement"), "nothing was run: {told}");
    };
    refused(&["-d", &format!("{good},{soon}")], 2, "linger.ms");
    refused(&["-d", &format!("{good},{never}")], 2, "retention.ms");
    refused(&[&other], 2, "topics is missing");
    let spec = files.write(
        "s.json",
        r#"{"class": "x.ProduceBenchSpec", "durationMs": 1000, "activeTopics": {
  "good": {"numPartitions": 1, "replicationFactor": 1},
  "never": {"numPartitions": 1, "replicationFactor": 1, "configs": {"retention.ms": "never"}}}}"#,
    );
    refused(&[&spec], 2, "retention.ms");
    refused(&["--server", &gone], 1, "process");
    refused(&["--workers", "127.0.0.1:1"], 4, "127.0.0.1:1: it cannot be reached");
    refused(&["--server", "u=127.0.0.1:1"], 4, "127.0.0.1:1");
    assert!(server.run(&["topic", "list"]).ended(0).text().lines().all(|line| !line.contains("test-topic")));
}

#[test]
fn a_spec_may_name_partitions_of_one_topic_and_all_of_another() {
    let server = Server::start();
    let files = Files::new();
    for topic in ["part", "whole"] {
        server.run(&["topic", "create", topic, "--partitions", "2"]).ended(0);
        let flags = ["--num-records", "100", "--record-size", "10", "--partitioner", "round-robin"];
        server.run(&[&["perf", "produce", "--topic", topic], &flags[..]].concat()).ended(0);
    }
    let spec = r#"{ "class": "org.apache.kafka.trogdor.workload.ConsumeBenchSpec", "durationMs": 60000,
  "consumerNode": null, "bootstrapServers": "nowhere:1", "targetMessagesPerSec": null, "maxMessages": 150,
  "consumerGroup": null, "consumerConf": {"fetch.min.bytes": 1}, "adminClientConf": null, "activeTopics": ["part:0", "whole"] }"#;
    let result = files.bench(&server, &[&files.write("s.json", spec)]).remove(0);
    assert_eq!(result["riverrun"]["durability"]["reached"], "1", "of what is read, as nothing is made");
    let totals = &result["riverrun"]["totals"];
    assert_eq!(totals["received"], 150, "half of one, all of the other: {totals}");
    assert_eq!(
        result["riverrun"]["poll"]["count"], 150,
        "each waited for its poll: {}",
        result["riverrun"]["poll"]
    );
    assert!(number(&totals["testS"]) < 50.0, "it is over with its last record: {totals}");
}

/// The topic is not the first of its shape, and the run would not be the first that is made.
#[test]
fn a_round_trips_foreign_records_show_before_any_run() {
    let server = Server::start();
    let files = Files::new();
    let spec = r#"{ "class": "x.RoundTripWorkloadSpec", "durationMs": 30000, "targetMessagesPerSec": 1000,
  "maxMessages": 100, "activeTopics": { "round[1-2]": { "numPartitions": 1, "replicationFactor": 1 } } }"#;
    let produce = files.write("p.json", &spec.replace("RoundTripWorkloadSpec", "ProduceBenchSpec"));
    let (spec, workload) = (files.write("s.json", spec), files.write("w.yaml", WORKLOAD));
    assert_eq!(files.bench(&server, &[&spec, "--rounds", "2"]).len(), 2, "each makes its topics");
    let (targets, output) = (["s", "b"].map(|name| format!("{name}={}", server.bootstrap())), files.output());
    let refused = |what: &[&str], reason: &str| {
        let args = [&["bench", "run", "-o", &output, "--server", &targets[0]], what].concat();
        let told = run(&args).ended(2).stderr;
        assert!(told.contains(reason) && !told.contains("measur"), "{what:?}: {told}");
    };
    server.run(&["topic", "create", "round2", "--partitions", "1"]).ended(0);
    let stays = "topic round2 exists already, so that no run deletes it";
    for what in [&[&*spec, "--rounds", "2"][..], &[&*spec, "--server", &*targets[1]], &[&*produce, &*spec]] {
        refused(what, stays);
    }
    server.feed(&["produce", "round2"], b"old\n").ended(0);
    refused(&[&workload, &spec], "topic round2 holds records already");
}

#[test]
fn a_whole_topic_counts_all_partitions_for_each_lone_consumer() {
    let server = Server::start();
    let files = Files::new();
    server.run(&["topic", "create", "wide", "--partitions", "101"]).ended(0);
    let spec = r#"{ "class": "x.ConsumeBenchSpec", "durationMs": 1000, "threadsPerWorker": 10000, "activeTopics": ["wide"] }"#;
    let (spec, output) = (files.write("s.json", spec), files.output());
    let refused = run(&["bench", "run", &spec, "-o", &output, "--server", server.bootstrap()]).ended(2);
    let reason = "would be assigned 1010000 partitions, more than 1000000";
    assert!(refused.stderr.contains(reason) && !Path::new(&output).exists(), "{}", refused.stderr);
}

/// It reads a batch at first, of which the last record would be due in days only.
#[test]
fn a_very_slow_consumer_is_out_of_its_group_after_the_run() {
    let server = Server::start();
    let files = Files::new();
    server.run(&["topic", "create", "slow", "--partitions", "1"]).ended(0);
    let flags = ["--topic", "slow", "--num-records", "100", "--record-size", "10"];
    server.run(&[&["perf", "produce"], &flags[..]].concat()).ended(0);
    let spec = r#"{ "class": "org.apache.kafka.trogdor.workload.ConsumeBenchSpec", "durationMs": 4000,
  "consumerNode": null, "bootstrapServers": "nowhere:1", "targetMessagesPerSec": 0.0001, "maxMessages": 1000,
  "consumerGroup": "slow-readers", "consumerConf": {"group.protocol": "consumer"}, "activeTopics": ["slow"] }"#;
    let result = files.bench(&server, &[&files.write("s.json", spec)]).remove(0);
    let totals = &result["riverrun"]["totals"];
    assert_eq!(totals["received"], 100, "what one poll brings: {totals}");
    // The server deletes no group that has members.
    server.run(&["group", "delete", "slow-readers"]).ended(0);
}

#[test]
fn suites_are_listed_and_a_scenario_runs_at_a_scale() {
    let listed = run(&["bench", "list", "--json"]).ended(0).json();
    let names: Vec<_> = listed.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"B/linger") && names.contains(&"D/one-at-a-time"), "{names:?}");
    run(&["bench", "list", "Z"]).ended(3);
    let own = run(&["bench", "list", "D/one-at-a-time"]).ended(0).text();
    let smaller = own.replace("[128, 1024, 16384, 524288]", "[1024]").replace("[sync, async]", "[async]");
    let smaller = smaller.replace("[none, lz4]", "[lz4]");
    let server = Server::start();
    let files = Files::new();
    let results = files.bench(&server, &[&files.write("d.yaml", &smaller), "--scale", "0.05"]);
    let ours = &results[0]["riverrun"];
    assert_eq!((&ours["scale"], &ours["setup"]["inFlight"]), (&0.05.into(), &1.into()));
    assert_eq!(ours["shrunk"]["floorApplied"], true, "{}", ours["shrunk"]);
    let told = format!("measurement {:.1} s, and not", number(&ours["shrunk"]["testS"]));
    assert!(ours["notes"].to_string().contains(&told), "{}", ours["notes"]);
    assert_eq!(
        ours["case"],
        serde_json::json!({"messageSize": "1024", "compression.type": "lz4", "durability": "async"})
    );
    assert_eq!(ours["durability"]["reached"], "4");
    // One at a time: the latencies together are no longer than the run.
    let busy = number(&ours["totals"]["publishRate"]) * number(&ours["publish"]["mean_us"]) / 1e6;
    assert!(busy <= 1.05, "{busy} of the time");
    assert!(Path::new(&files.output()).read_dir().unwrap().count() == 1);
}
