//! How runs of `riverrun bench` end: with their last record, by a signal, or before they begin.

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::bench::{Files, WORKLOAD, lines_after, number, wait_for_line};
use crate::common::{Server, riverrun, run, signal, wait};

#[test]
fn a_number_of_messages_is_an_end_without_a_time() {
    let server = Server::start();
    let files = Files::new();
    let text = WORKLOAD
        .replace("producerRate: 500\ntestDurationMinutes: 0.05", "producerRate: 1000\nmessages: 3000");
    let totals = &files.bench(&server, &[&files.write("w.yaml", &text)])[0]["riverrun"]["totals"];
    let all = |key: &str, late: &str| number(&totals[key]) + number(&totals[late]);
    assert!((all("acked", "ackedLate") - 3000.0).abs() < 0.5, "{totals}");
    assert!((all("received", "receivedLate") - 6000.0).abs() < 0.5, "{totals}");
    assert!(number(&totals["testS"]) > 2.5, "at a thousand a second: {totals}");
}

/// Begins a run of a minute on the server, and waits for this line of its progress.
fn begun(files: &Files, server: &Server, line: &str) -> Child {
    let text = WORKLOAD.replace("testDurationMinutes: 0.05", "testDurationMinutes: 1");
    let (workload, output) = (files.write("w.yaml", &text), files.output());
    let target = server.bootstrap();
    let args = ["bench", "run", "--keep-page-cache", "-o", &output, "--server", target, &workload];
    let mut running = riverrun(&args).spawn().expect("the binary runs");
    wait_for_line(&mut running, line);
    running
}

fn results_of(files: &Files) -> usize {
    Path::new(&files.output()).read_dir().map_or(0, Iterator::count)
}

#[test]
fn a_run_that_is_stopped_leaves_no_topics() {
    let server = Server::start();
    let files = Files::new();
    let mut running = begun(&files, &server, "measurement");
    signal(&running, Signal::TERM);
    assert_eq!(wait(&mut running).code(), Some(130));
    assert_eq!(results_of(&files), 0);
    assert!(server.run(&["topic", "list"]).ended(0).text().lines().all(|line| !line.contains("test-topic")));
}

#[test]
fn a_server_that_ends_before_the_measurement_is_not_awaited() {
    let mut server = Server::start();
    let files = Files::new();
    let text = WORKLOAD.replace("warmupDurationMinutes: 0.01", "warmupDurationMinutes: 1");
    let (workload, output) = (files.write("w.yaml", &text), files.output());
    let target = format!("{}@{}", server.bootstrap(), server.child.id());
    let args = ["bench", "run", "--keep-page-cache", "-o", &output, "--server", &target, &workload];
    let mut running = riverrun(&args).spawn().expect("the binary runs");
    let told = lines_after(&mut running, "warm-up");
    signal(&server.child, Signal::KILL);
    wait(&mut server.child);
    let killed = Instant::now();
    assert_eq!(wait(&mut running).code(), Some(4));
    assert!(killed.elapsed() < Duration::from_secs(30), "{:?}", killed.elapsed());
    let told = told.join().expect("it reads to the end");
    let reason = format!("the server's process {} has ended", server.child.id());
    assert!(told.contains(&reason), "{told}");
}

#[test]
fn a_run_stopped_twice_waits_for_no_silent_server() {
    let server = Server::start();
    let files = Files::new();
    let mut running = begun(&files, &server, "measurement");
    signal(&server.child, Signal::STOP);
    signal(&running, Signal::INT);
    std::thread::sleep(Duration::from_secs(1));
    assert!(running.try_wait().expect("a child of ours").is_none(), "it waits for its topics to be deleted");
    let second = Instant::now();
    signal(&running, Signal::INT);
    assert_eq!(wait(&mut running).code(), Some(130));
    assert!(second.elapsed() < Duration::from_secs(20), "{:?}", second.elapsed());
}

#[test]
fn results_of_rounds_before_a_signal_are_printed() {
    let server = Server::start();
    let files = Files::new();
    let (workload, output) = (files.write("w.yaml", WORKLOAD), files.output());
    let shown = ["bench", "run", "--json", "--rounds", "2", "--keep-page-cache", "-o", &output];
    let what = ["--server", server.bootstrap(), &workload];
    let mut running = riverrun(&[&shown[..], &what].concat()).spawn().expect("the binary runs");
    wait_for_line(&mut running, "its clients end and its topics are deleted");
    signal(&running, Signal::INT);
    let told: Vec<Value> = serde_json::from_reader(running.stdout.take().expect("piped")).expect("results");
    assert_eq!(wait(&mut running).code(), Some(130));
    assert_eq!((told.len(), results_of(&files)), (1, 1));
}

#[test]
fn a_signal_before_the_first_run_ends_it() {
    let server = Server::start();
    let files = Files::new();
    let mut running = begun(&files, &server, "measuring the loopback interface");
    signal(&running, Signal::INT);
    assert_eq!(wait(&mut running).code(), Some(130));
    assert_eq!(results_of(&files), 0);
}

#[test]
fn a_topic_with_too_few_partitions_is_reported_at_once() {
    let server = Server::start();
    let files = Files::new();
    server.run(&["topic", "create", "part", "--partitions", "2"]).ended(0);
    let spec = files.write(
        "s.json",
        r#"{"class": "x.ProduceBenchSpec", "durationMs": 1000, "activeTopics": {
  "part": {"numPartitions": 4, "replicationFactor": 1}}}"#,
    );
    let output = files.output();
    let refused = run(&["bench", "run", &spec, "-o", &output, "--server", server.bootstrap()]).ended(2);
    let reason = "topic part has 2 partition(s), and the run needs 4";
    assert!(refused.stderr.contains(reason), "{}", refused.stderr);
    assert!(server.run(&["topic", "list"]).ended(0).text().contains("part"), "it is not the run's to delete");
}
