//! The start-up section: how long a server takes to answer, and its memory when it is idle.
//!
//! Owns the sequence of starts: first on an empty directory, then with thousands of partitions, empty and with a record
//! in each, after a clean stop and after a kill. Every start is timed from just before the process is made to the
//! answer that its first record is appended. The probe is a socket of ours, no virtual machine.

use std::collections::BTreeSet;
use std::ops::Range;
use std::slice;
use std::thread;
use std::time::{Duration, Instant};

use riverrun_measure::text::table::Table;
use serde::Serialize;

use super::level::Level;
use super::probe::{Probe, Target, Topic, until_answered};
use super::{Bench, median};
use crate::clients::server::{Launch, Server, ServerKind};

/// Time without requests after which a server counts as idle.
const IDLE_SETTLE: Duration = Duration::from_secs(3);

/// Topics or partitions in one request, far below Kafka's limit of 10,000 changes.
const PARTITIONS_PER_REQUEST: i32 = 1000;

const START_LIMIT_MS: f64 = 100.0;
const EMPTY_MEMORY_LIMIT_MB: f64 = 30.0;
const CREATE_LIMIT_S: f64 = 10.0;
const PARTITIONS_MEMORY_LIMIT_MB: f64 = 150.0;
const RESTART_LIMIT_S: f64 = 2.0;

/// Unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Unit {
    #[serde(rename = "ms")]
    Milliseconds,
    #[serde(rename = "s")]
    Seconds,
    /// 10^6 bytes.
    #[serde(rename = "MB")]
    Megabytes,
}

impl Unit {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
            Self::Megabytes => "MB",
        }
    }

    /// The value with its meaningful digits.
    pub(super) fn digits(self, value: f64) -> String {
        match self {
            Self::Milliseconds | Self::Megabytes => format!("{value:.1}"),
            Self::Seconds => format!("{value:.3}"),
        }
    }
}

/// One measured value. Its goal is to stay below `limit`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    pub(super) server: &'static str,
    pub(super) durability: &'static str,
    pub(super) what: String,
    pub(super) value: f64,
    pub(super) unit: Unit,
    pub(super) limit: f64,
}

/// Distribution of the partitions over topics.
#[derive(Clone, Copy)]
enum Layout {
    OneTopic,
    ManyTopics,
}

impl Layout {
    fn name(self, partitions: i32) -> String {
        match self {
            Self::OneTopic => format!("1 topic of {partitions} partitions"),
            Self::ManyTopics => format!("{partitions} topics of 1 partition"),
        }
    }

    /// The creations, one for each request.
    fn creations(self, partitions: i32) -> Vec<Creation> {
        let of = |range: Range<i32>| match self {
            Self::OneTopic => {
                let topic = Topic { name: WIDE.to_owned(), partitions: range.end };
                if range.start == 0 { Creation::Topics(vec![topic]) } else { Creation::Growth(topic) }
            }
            Self::ManyTopics => {
                let topic = |number| Topic { name: narrow(number), partitions: 1 };
                Creation::Topics(range.map(topic).collect())
            }
        };
        pieces(partitions).into_iter().map(of).collect()
    }

    /// All the partitions, in pieces of one request each.
    fn targets(self, partitions: i32) -> Vec<Vec<Target>> {
        let of = |range: Range<i32>| match self {
            Self::OneTopic => vec![Target { topic: WIDE.to_owned(), partitions: range }],
            Self::ManyTopics => {
                range.map(|number| Target { topic: narrow(number), partitions: 0..1 }).collect()
            }
        };
        pieces(partitions).into_iter().map(of).collect()
    }

    /// The partition that is created last.
    fn last(self, partitions: i32) -> Target {
        match self {
            Self::OneTopic => Target { topic: WIDE.to_owned(), partitions: partitions - 1..partitions },
            Self::ManyTopics => Target { topic: narrow(partitions - 1), partitions: 0..1 },
        }
    }
}

/// One request that creates partitions.
enum Creation {
    Topics(Vec<Topic>),
    /// Grows an existing topic to this number of partitions.
    Growth(Topic),
}

impl Creation {
    fn ask(&self, probe: &mut Probe) -> anyhow::Result<()> {
        match self {
            Self::Topics(topics) => probe.create(topics),
            Self::Growth(topic) => probe.grow(topic),
        }
    }
}

/// Name of the one topic of [`Layout::OneTopic`].
const WIDE: &str = "wide";

/// Name of a topic of [`Layout::ManyTopics`].
fn narrow(number: i32) -> String {
    format!("narrow-{number}")
}

/// `0..partitions` in ranges of at most [`PARTITIONS_PER_REQUEST`].
fn pieces(partitions: i32) -> Vec<Range<i32>> {
    let starts = (0..partitions).step_by(PARTITIONS_PER_REQUEST as usize);
    starts.map(|start| start..partitions.min(start + PARTITIONS_PER_REQUEST)).collect()
}

/// Parameters of the section.
pub(super) struct Section {
    pub(super) level: Level,
    pub(super) rounds: u32,
    pub(super) partitions: i32,
}

/// Measures every server in turn into `figures`. Figures in milliseconds are medians of `rounds` measurements.
pub(super) fn measure(bench: &Bench, section: &Section, figures: &mut Vec<Figure>) -> anyhow::Result<()> {
    let Section { level, rounds, partitions } = *section;
    for kind in &bench.kinds {
        let mut life = Life { kind: *kind, level, figures };
        life.empty_directory(bench, rounds)?;
        for layout in [Layout::OneTopic, Layout::ManyTopics] {
            life.many_partitions(bench, layout, partitions)?;
        }
        bench.clear(*kind)?;
    }
    Ok(())
}

/// One server's measurements.
struct Life<'a> {
    kind: ServerKind,
    level: Level,
    figures: &'a mut Vec<Figure>,
}

impl Life<'_> {
    fn add(&mut self, what: impl Into<String>, value: f64, unit: Unit, limit: f64) {
        let what = what.into();
        eprintln!("{}: {what}: {} {}", self.kind.name(), unit.digits(value), unit.name());
        let server = self.kind.name();
        let durability = self.level.beside(self.kind);
        self.figures.push(Figure { server, durability, what, value, unit, limit });
    }

    fn empty_directory(&mut self, bench: &Bench, rounds: u32) -> anyhow::Result<()> {
        let (mut starts_ms, mut idle_mb) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let launch = bench.launch_at(self.kind, self.level)?;
            let (mut server, elapsed) = started(&launch, first_record)?;
            starts_ms.push(elapsed.as_secs_f64() * 1e3);
            idle_mb.push(idle_memory_mb(&server)?);
            server.stop()?;
        }
        let what = "start to first produced record, empty directory";
        self.add(what, median(starts_ms), Unit::Milliseconds, START_LIMIT_MS);
        self.add("idle RSS, one topic", median(idle_mb), Unit::Megabytes, EMPTY_MEMORY_LIMIT_MB);
        Ok(())
    }

    fn many_partitions(&mut self, bench: &Bench, layout: Layout, partitions: i32) -> anyhow::Result<()> {
        let launch = bench.launch_at(self.kind, self.level)?;
        let (mut server, _) = started(&launch, first_record)?;
        let (name, last) = (layout.name(partitions), layout.last(partitions));
        let begun = Instant::now();
        for creation in layout.creations(partitions) {
            until_answered(&mut server, |probe| creation.ask(probe))?;
        }
        until_answered(&mut server, |probe| probe.produce(slice::from_ref(&last)))?;
        self.add(format!("{name}: created"), begun.elapsed().as_secs_f64(), Unit::Seconds, CREATE_LIMIT_S);
        let server = self.restarts(&launch, server, &format!("{name}, empty"), &last, &[])?;
        let name = format!("{name}, a record in each");
        self.restarts(&launch, server, &name, &last, &layout.targets(partitions))?.stop()
    }

    /// Memory and both kinds of restart, after writing to the targets of `fill`; they are written to once more before
    /// the kill, so that there is something to recover.
    fn restarts(
        &mut self,
        launch: &Launch<'_>,
        mut server: Server,
        name: &str,
        last: &Target,
        fill: &[Vec<Target>],
    ) -> anyhow::Result<Server> {
        let produce_to_last = |probe: &mut Probe| probe.produce(slice::from_ref(last));
        fill_all(&mut server, fill)?;
        let memory_mb = idle_memory_mb(&server)?;
        self.add(format!("{name}: idle RSS"), memory_mb, Unit::Megabytes, PARTITIONS_MEMORY_LIMIT_MB);
        server.stop()?;
        let (mut server, elapsed) = started(launch, produce_to_last)?;
        let what = format!("{name}: restart after a clean stop");
        self.add(what, elapsed.as_secs_f64(), Unit::Seconds, RESTART_LIMIT_S);
        fill_all(&mut server, fill)?;
        server.kill()?;
        let (server, elapsed) = started(launch, produce_to_last)?;
        let what = format!("{name}: restart after kill -9");
        self.add(what, elapsed.as_secs_f64(), Unit::Seconds, RESTART_LIMIT_S);
        Ok(server)
    }
}

fn fill_all(server: &mut Server, fill: &[Vec<Target>]) -> anyhow::Result<()> {
    fill.iter().try_for_each(|targets| until_answered(server, |probe| probe.produce(targets)))
}

/// Creates a topic and produces its first record.
fn first_record(probe: &mut Probe) -> anyhow::Result<()> {
    probe.create(&[Topic { name: "first".to_owned(), partitions: 1 }])?;
    probe.produce(&[Target { topic: "first".to_owned(), partitions: 0..1 }])
}

/// Starts a server and measures the time until `first` succeeds.
fn started(
    launch: &Launch<'_>,
    first: impl FnMut(&mut Probe) -> anyhow::Result<()>,
) -> anyhow::Result<(Server, Duration)> {
    let begun = Instant::now();
    let mut server = launch.spawn()?;
    until_answered(&mut server, first)?;
    Ok((server, begun.elapsed()))
}

fn idle_memory_mb(server: &Server) -> anyhow::Result<f64> {
    thread::sleep(IDLE_SETTLE);
    Ok(server.usage()?.resident_bytes as f64 / 1e6)
}

/// The section's table: a row for each figure, the servers side by side.
pub(super) fn table(figures: &[Figure]) -> String {
    let kinds = [ServerKind::Kafka, ServerKind::Riverrun];
    let mut table = Table::of_figures(1, &["what", "unit", "kafka", "riverrun", "goal of riverrun"]);
    let mut seen = BTreeSet::new();
    for figure in figures.iter().filter(|figure| seen.insert(&figure.what)) {
        let [kafka, riverrun] = kinds.map(|kind| value_of(figures, kind, &figure.what));
        let goal = format!("< {:.0}", figure.limit);
        table.row(&[figure.what.clone(), figure.unit.name().to_owned(), kafka, riverrun, goal]);
    }
    let ours = figures.iter().find(|figure| figure.server == ServerKind::Riverrun.name());
    let durability = ours.or(figures.first()).map_or("-", |figure| figure.durability);
    format!("Start-up and idle memory, durability {durability}\n\n{}", table.render(0))
}

fn value_of(figures: &[Figure], kind: ServerKind, what: &str) -> String {
    let figure = figures.iter().find(|figure| figure.server == kind.name() && figure.what == what);
    figure.map_or_else(|| "-".to_owned(), |figure| figure.unit.digits(figure.value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_stand_side_by_side_and_an_absent_one_is_a_dash() {
        let figure = |server: ServerKind, what: &str, value| Figure {
            server: server.name(),
            durability: Level::PageCache.beside(server),
            what: what.to_owned(),
            value,
            unit: Unit::Seconds,
            limit: 2.0,
        };
        let text = table(&[
            figure(ServerKind::Kafka, "a", 6.0),
            figure(ServerKind::Kafka, "b", 7.0),
            figure(ServerKind::Riverrun, "a", 1.0),
        ]);
        let rows: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(rows.contains(&vec!["a", "s", "6.000", "1.000", "<", "2"]), "{text}");
        assert!(rows.contains(&vec!["b", "s", "7.000", "-", "<", "2"]), "{text}");
    }

    #[test]
    fn every_partition_is_created_and_filled_exactly_once() {
        for layout in [Layout::OneTopic, Layout::ManyTopics] {
            let created = layout.creations(2500).iter().fold(0, |before, creation| match creation {
                Creation::Topics(topics) => before + topics.iter().map(|topic| topic.partitions).sum::<i32>(),
                Creation::Growth(topic) => topic.partitions,
            });
            assert_eq!(created, 2500);
            let targets: Vec<_> = layout.targets(2500).into_iter().flatten().collect();
            let filled: usize = targets.iter().map(|target| target.partitions.len()).sum();
            assert_eq!(filled, 2500);
            let last = layout.last(2500);
            let of_last = |target: &&Target| target.topic == last.topic;
            assert_eq!(targets.iter().rfind(of_last).unwrap().partitions.end, last.partitions.end);
        }
    }
}
