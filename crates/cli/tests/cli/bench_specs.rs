//! Trogdor's specs that belong together: one reads what another of the same command sends. And what a command names in vain.

use std::path::Path;

use rustix::process::Signal;

use crate::bench::{Files, WORKLOAD, number, wait_for_line};
use crate::common::{Server, riverrun, run, signal, wait};

/// The spec that sends these many records to the topics of both, and the one that reads as many.
struct Pair {
    produce: String,
    consume: String,
}

impl Pair {
    fn new(files: &Files, messages: u32, read: u32) -> Self {
        let produce = format!(
            r#"{{ "class": "x.ProduceBenchSpec", "durationMs": 60000, "targetMessagesPerSec": 2000, "maxMessages": {messages},
  "activeTopics": {{ "foo[1-3]": {{ "numPartitions": 2, "replicationFactor": 1 }} }} }}"#
        );
        let consume = format!(
            r#"{{ "class": "x.ConsumeBenchSpec", "durationMs": 60000, "maxMessages": {read}, "activeTopics": ["foo[1-3]"] }}"#
        );
        Self { produce: files.write("p.json", &produce), consume: files.write("c.json", &consume) }
    }
}

fn has_topics(server: &Server) -> bool {
    server.run(&["topic", "list"]).ended(0).text().contains("foo")
}

#[test]
fn a_spec_reads_the_records_of_an_earlier_one() {
    let server = Server::start();
    let files = Files::new();
    // One more than counts, which the producer sends at first.
    let Pair { produce, consume } = Pair::new(&files, 300, 301);
    let results = files.bench(&server, &[&produce, &consume, "--rounds", "2"]);
    assert_eq!(results.len(), 4);
    for run in results.iter().filter(|one| one["workload"] == consume.as_str()) {
        let totals = &run["riverrun"]["totals"];
        assert_eq!(totals["received"], 301, "{totals}");
        assert!(number(&totals["testS"]) < 50.0, "it is over with its last record: {totals}");
    }
    assert!(!has_topics(&server), "nobody reads them any more");
}

#[test]
fn topics_that_later_runs_were_to_read_are_gone_after_a_stop() {
    let server = Server::start();
    let files = Files::new();
    let Pair { produce, consume } = Pair::new(&files, 10, 1_000_000);
    let output = files.output();
    // The second would read them, too.
    let what = [&*produce, &consume, &consume];
    let args = [&["bench", "run", "-o", &output, "--server", server.bootstrap()][..], &what].concat();
    let mut running = riverrun(&args).spawn().expect("the binary runs");
    wait_for_line(&mut running, &format!("{consume} on {}", server.bootstrap()));
    assert!(has_topics(&server));
    signal(&running, Signal::INT);
    assert_eq!(wait(&mut running).code(), Some(130));
    assert!(!has_topics(&server));
}

#[test]
fn topics_that_are_only_read_must_be_there_before_any_run() {
    let server = Server::start();
    let files = Files::new();
    let Pair { produce, consume } = Pair::new(&files, 10, 10);
    let (target, output) = (format!("s={}", server.bootstrap()), files.output());
    let refused = |what: &[&str], exit: i32, reason: &str| {
        let told =
            run(&[&["bench", "run", "-o", &output, "--server", &target], what].concat()).ended(exit).stderr;
        assert!(told.contains(reason), "{told}");
        assert!(!Path::new(&output).exists() && !told.contains("measur"), "nothing was run: {told}");
    };
    let missing = "there is nothing to read: no topic foo1, foo2, foo3";
    refused(&[&consume], 3, missing);
    refused(&[&consume, &produce], 3, missing);
    let spec = |name: &str, topics: &str| {
        let text = format!(
            r#"{{ "class": "x.ConsumeBenchSpec", "durationMs": 1000, "activeTopics": ["{topics}"] }}"#
        );
        files.write(name, &text)
    };
    refused(&[&produce, &spec("misspelt.json", "fooo")], 3, "no topic fooo");
    refused(&[&produce, &spec("beyond.json", "foo2:2")], 2, "foo2 has 2 partition(s), and the run needs 3");
    refused(
        &[&spec("many.json", "bar[1-12]")],
        3,
        "no topic bar1, bar10, bar11, bar12, bar2, bar3, bar4, bar5, bar6, bar7 and 2 more",
    );
    assert!(!has_topics(&server));
}

#[test]
fn drivers_are_for_workload_files_and_notes_name_the_rest() {
    let files = Files::new();
    let Pair { produce, .. } = Pair::new(&files, 10, 10);
    let workload = files.write("w.yaml", WORKLOAD);
    let driver =
        files.write("d.yaml", "name: d\ndriverClass: x.KafkaBenchmarkDriver\nreplicationFactor: 1\n");
    let told = |what: &[&str], exit: i32| {
        let flags = ["bench", "run", "-d", &driver, "--server", "127.0.0.1:1", "-o", &files.output()];
        run(&[&flags, what].concat()).ended(exit).stderr
    };
    let refused = "--drivers: there is no workload file to run with them";
    for what in [&["A/mixed"][..], &[&produce], &["D", &produce]] {
        assert!(told(what, 2).contains(refused), "{what:?}");
    }
    let without = |what: &str| format!("{what} is run without --drivers");
    // The server is not there, so that all of them end at once.
    let mixed = told(&[&workload, "A/mixed", &produce], 4);
    assert!(mixed.contains(&without("A/mixed")) && mixed.contains(&without(&produce)), "{mixed}");
    assert!(
        !mixed.contains(&without(&workload)) && !told(&[&workload], 4).contains("without --drivers"),
        "{mixed}"
    );
}
