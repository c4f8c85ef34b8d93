//! Made-up results for the browser test of the page, produced through the types of real results.
//!
//! The results are written to `testdata/report.json`, so that the test in the browser needs no server and still draws
//! the output of today's runs. `UPDATE_DOCS=1 cargo test -p riverrun-bench --lib report` rewrites the file.

use std::path::Path;
use std::time::Duration;

use riverrun_measure::histogram::Latencies;
use serde_json::Value;

use crate::environment::{
    DiskFigures, Environment, FileSystem, LoopbackFigures, ServerRecord, TopicDurability,
};
use crate::omb::{Driver, PlanOptions, Workload, to_plan};
use crate::plan::{Replicas, Shrunk};
use crate::process::ProcessRun;
use crate::random::SeededRandom;
use crate::result::{RunLabel, document};
use crate::runner::{
    BacklogFigures, DiskFullFigures, Figures, FoundRate, LogDirFigures, MemberFigures, PageCache, RunOutcome,
    Second, WorkerRun,
};
use crate::worker::Counts;

/// Set to rewrite the file instead of comparing it.
const REWRITE_VARIABLE: &str = "UPDATE_DOCS";
/// Factor by which the second server is slower.
const SLOWER: u64 = 3;
/// A text that a page must escape, and fit into its width.
const HOSTILE: &str =
    "<b>files/of/somebody</b>&\"quoted\"/a-name-without-any-place-at-which-a-line-could-be-broken.yaml";

/// A note that the page shows once for all runs of a workload.
const SHARED_NOTE: &str = "a note of every run";

/// One made-up run.
struct Made {
    title: &'static str,
    server: &'static str,
    round: u32,
    seconds: u32,
    reads: bool,
    backlog: bool,
    scale: f64,
    workers: usize,
    /// Records a second; 0 for a search.
    rate: u64,
    /// Additional lines of its file.
    more: &'static str,
    note: Option<&'static str>,
    machine: Machine,
}

/// The machine of a run. Two machines with one kernel name are two measurements of one machine.
#[derive(Clone, Copy)]
struct Machine {
    kernel: &'static str,
    loopback_bytes_per_s: f64,
}

const FIRST: Machine = Machine { kernel: "Linux 6.1.0", loopback_bytes_per_s: 3e9 };
const LATER: Machine = Machine { loopback_bytes_per_s: 3.5e9, ..FIRST };
const OTHER: Machine = Machine { kernel: "Linux 6.2.0", loopback_bytes_per_s: 5e9 };

impl Made {
    fn of(title: &'static str, server: &'static str, round: u32) -> Self {
        Self {
            title,
            server,
            round,
            seconds: 12,
            reads: false,
            backlog: false,
            scale: 0.25,
            workers: 2,
            rate: 3000,
            more: "",
            note: None,
            machine: FIRST,
        }
    }

    fn slowness(&self) -> u64 {
        if self.server == "kafka" { SLOWER } else { 1 }
    }

    fn document(&self, number: u64) -> Value {
        let text = format!(
            "name: '{}'\ntopics: 1\npartitionsPerTopic: 16\nmessageSize: 512\nproducersPerTopic: 3
subscriptionsPerTopic: {}\nconsumerPerSubscription: 1\nproducerRate: {}\ntestDurationMinutes: 1\n{}",
            self.title.replace('\'', "''"),
            u32::from(self.reads),
            self.rate,
            self.more
        );
        let workload = Workload::parse("fixture", &text).expect("a workload");
        let driver = "name: fixture\ndriverClass: KafkaBenchmarkDriver\nreplicationFactor: 1
topicConfig: min.insync.replicas=1\n";
        let driver = Driver::parse("fixture", driver).expect("a driver");
        let mut plan = to_plan("fixture", &workload, &driver, &PlanOptions::default()).expect("a plan");
        plan.notes.push(SHARED_NOTE.to_owned());
        plan.shrunk = Some(Shrunk { test_s: 12.0, warmup_s: 3.0, floor_applied: true });
        let label = RunLabel {
            suite: "fixture".to_owned(),
            scenario: "page".to_owned(),
            round: self.round,
            started: format!("2026-01-02T03:{:02}:00Z", 10 + number),
            server: self.server.to_owned(),
            driver: "fixture".to_owned(),
            files: vec![("workload.yaml".to_owned(), text)],
            scale: self.scale,
            replicas_wanted: Replicas { count: 3, min_in_sync: Some(2) },
            workers: self.workers,
            ..RunLabel::default()
        };
        document(
            &plan,
            &RunOutcome {
                figures: self.figures(number),
                durability: Some(durability(self.slowness())),
                log_dirs: ["/data/a", "/data/b"].map(|path| log_dir(path, number)).into(),
                left: None,
            },
            &label,
            &environment(self.server, self.machine),
            &PageCache { dropped: true, reason: None },
        )
    }

    fn figures(&self, seed: u64) -> Figures {
        let mut random = SeededRandom::new(seed);
        let mut figures = Figures { test_s: f64::from(self.seconds), ..Figures::default() };
        for at in 1..=self.seconds {
            let (publish, end_to_end) = (self.latencies(&mut random, 300), self.latencies(&mut random, 500));
            let acked = publish.count();
            figures.counts.add(&Counts {
                sent: acked,
                acked,
                acked_bytes: acked * 512,
                received: if self.reads { acked } else { 0 },
                received_bytes: if self.reads { acked * 512 } else { 0 },
                ..Counts::default()
            });
            figures.seconds.push(Second {
                at_s: f64::from(at),
                seconds: 1.0,
                publish_rate: acked as f64,
                consume_rate: if self.reads { acked as f64 } else { 0.0 },
                catch_up_rate: if self.backlog && at > self.seconds / 2 { 9000.0 } else { 0.0 },
                publish: (!publish.is_empty()).then(|| publish.summary()),
                end_to_end: self.reads.then(|| end_to_end.summary()),
                ..Second::default()
            });
            figures.publish.merge(&publish);
            if self.reads {
                figures.end_to_end.merge(&end_to_end);
            }
        }
        self.finish(figures)
    }

    fn finish(&self, mut figures: Figures) -> Figures {
        figures.backlog = self.backlog.then(|| BacklogFigures {
            records: 90_000,
            build_s: 6.0,
            drain_s: 5.0,
            drained_records: 54_000,
            drained_bytes: 54_000 * 512,
            drained: true,
            publish_meanwhile: Some(figures.publish.summary()),
        });
        figures.search = (self.rate == 0).then_some(FoundRate {
            kept_up: 40_000.0,
            refused: Some(80_000.0),
            period_s: 3.0,
        });
        figures.disk_full = self.note.map(|_| DiskFullFigures {
            full_at_s: 0.25,
            freed_at_s: 0.75,
            acked_meanwhile: 12,
            first_ack_s: Some(0.125),
        });
        figures.members = self.reads.then(|| MemberFigures {
            members: 1,
            expected: 1,
            assigned: 1,
            groups: 1,
            ..MemberFigures::default()
        });
        // The last run, in which nothing is acked: as in a run without producers.
        if self.note.is_some() {
            (400..2000).for_each(|us| figures.poll.record_us(us));
        }
        (figures.unacked, figures.unread) = if self.backlog { (5, 7) } else { (0, 0) };
        let used = |pid, cpu_s| ProcessRun {
            pid,
            cpu_s,
            resident_bytes_max: 1 << 27,
            peak_bytes: 1 << 28,
            ended: false,
        };
        figures.server = Some(used(4711, self.slowness() as f64));
        figures.client = Some(used(4712, 2.0));
        let worker = |pid| WorkerRun { address: format!("127.0.0.1:{pid}"), used: used(pid, 1.5) };
        figures.workers = [4713, 4714].map(worker).into();
        figures.notes.extend(self.note.map(str::to_owned));
        figures
    }

    /// Latencies of one second: some around `typical_us`, with a tail.
    fn latencies(&self, random: &mut SeededRandom, typical_us: u64) -> Latencies {
        let mut latencies = Latencies::default();
        if self.note.is_some() {
            return latencies;
        }
        for _ in 0..1000 + random.below(200) {
            let tail = if random.below(50) == 0 { 40 } else { 1 };
            latencies.record(Duration::from_micros(
                (typical_us + random.below(typical_us)) * tail * self.slowness(),
            ));
        }
        latencies
    }
}

fn durability(slowness: u64) -> TopicDurability {
    let level = (slowness == 1).then(|| "1".to_owned());
    TopicDurability { wanted: level.clone(), reached: level, acked_when_synced: Some(true) }
}

fn log_dir(path: &str, partitions: u64) -> LogDirFigures {
    LogDirFigures { path: path.to_owned(), partitions, bytes: partitions * 1000 }
}

fn environment(server: &str, machine: Machine) -> Environment {
    let mut sync = Latencies::default();
    for us in 60..160 {
        sync.record_us(us);
    }
    let name = |text: &str| text.to_owned();
    Environment {
        cores: 2,
        cpu_model: Some(name("A processor with a long name, as they have, 64-Core @ 3.20GHz")),
        memory_bytes: Some(8 << 30),
        kernel: Some(name(machine.kernel)),
        load_average: Some(0.25),
        vm: [("dirty_ratio", "20"), ("swappiness", "60")].map(|(key, value)| (name(key), name(value))).into(),
        file_system: Some(FileSystem {
            directory: name("/data"),
            mounted_at: name("/"),
            kind: name("ext4"),
            source: name("/dev/disk"),
            options: name("rw,relatime"),
        }),
        disk: Some(DiskFigures {
            sequential_bytes: 1 << 29,
            sequential_bytes_per_s: 9e8,
            page_cache_bytes_per_s: 2e9,
            sync_4k: sync.summary(),
        }),
        loopback: Some(LoopbackFigures {
            bytes_per_s: machine.loopback_bytes_per_s,
            unpaced_bytes_per_s: Some(6e9),
        }),
        client: name("riverrun-client"),
        servers: vec![ServerRecord {
            name: name(server),
            bootstrap: name("127.0.0.1:9092"),
            software: Some(name("a server 1.2.3")),
            ..ServerRecord::default()
        }],
        ..Environment::default()
    }
}

fn results() -> String {
    let repeated = "B/keys keys=mixed producersPerTopic=3 partitioner.class=uniform-sticky";
    let mut made = Vec::new();
    for round in [1, 2] {
        made.extend(["riverrun", "kafka"].map(|server| Made::of(repeated, server, round)));
    }
    for (scale, server) in [(0.25, "kafka"), (0.25, "riverrun"), (0.5, "riverrun")] {
        let title = "A/mixed durability=sync";
        made.push(Made { reads: true, backlog: true, scale, machine: LATER, ..Made::of(title, server, 1) });
    }
    // The same title, but neither repetitions nor comparable.
    made.push(Made { workers: 1, ..Made::of(repeated, "riverrun", 3) });
    made.push(Made { rate: 0, more: "keyCount: 5\n", ..Made::of(repeated, "riverrun", 3) });
    made.extend(["riverrun", "kafka"].map(|server| Made { machine: OTHER, ..Made::of(repeated, server, 1) }));
    let note = Some("of the <i>last</i> run nothing was acked");
    made.push(Made { note, seconds: 1, ..Made::of(HOSTILE, "riverrun", 1) });
    let documents = made.iter().zip(1..).map(|(made, number)| made.document(number));
    let lines: Vec<_> = documents.map(|document| document.to_string()).collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

#[test]
fn fixture_of_the_browser_test_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/report.json");
    let results = results();
    if std::env::var_os(REWRITE_VARIABLE).is_some() {
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("it can be made");
        std::fs::write(&path, &results).expect("it can be written");
    }
    let stored = std::fs::read_to_string(&path).expect("the file is there");
    assert!(stored == results, "results look otherwise now; {REWRITE_VARIABLE}=1 writes the file anew");
    let mut report = super::Report::new("fixture");
    report.add("fixture", &stored).expect("results of ours");
    assert_eq!(report.len(), 12);
}
