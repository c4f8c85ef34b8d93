//! Running one of the two queues under one load, and reading its output.
//!
//! Ours prints JSON. Chronicle's program prints a line that ends as follows, in nanoseconds: `achieved=N ..
//! publish ns p50=N p99=N p99.9=N
//! e2e ns p50=N p99=N p99.9=N p99.99=N max=N`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use riverrun_measure::process::children_cpu_s;
use serde::Serialize;
use serde_json::Value;

use super::Section;
use crate::clients::exec;

/// Longest run.
const LIMIT: Duration = Duration::from_hours(1);

/// The queue that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Engine {
    Riverrun,
    Chronicle,
}

impl Engine {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Riverrun => "riverrun",
            Self::Chronicle => "chronicle",
        }
    }
}

/// The load on a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) section: Section,
    pub(super) rate: u64,
    pub(super) seconds: u64,
    pub(super) size: u32,
    pub(super) hops: u16,
    pub(super) appenders: u16,
    pub(super) tailers: u16,
}

impl Load {
    fn name(&self) -> String {
        match self.section {
            Section::Paced => format!("{} B at {}/s", self.size, self.rate),
            Section::TwoHops => format!("{} B at {}/s, 2 hops", self.size, self.rate),
            Section::Unpaced => format!("{} B unpaced", self.size),
            Section::Fan => format!("{} B unpaced, {} in {} out", self.size, self.appenders, self.tailers),
            Section::Memory => format!("{} million of {} B", self.seconds, self.size),
        }
    }

    fn records(&self) -> u64 {
        if self.rate == 0 { self.seconds * 1_000_000 } else { self.rate * self.seconds }
    }

    /// Spinning if every thread has a core, else a wait that lets the others run.
    fn wait(&self) -> &'static str {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = usize::from(self.appenders) + usize::from(self.tailers) + usize::from(self.hops) - 1;
        if threads <= cores { "spin" } else { "park" }
    }
}

/// One run of one queue. Quantiles are p50, p99 and p99.9.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Run {
    pub(super) section: Section,
    pub(super) what: String,
    pub(super) dir: String,
    pub(super) engine: Engine,
    pub(super) round: u32,
    pub(super) tailers: u16,
    pub(super) appenders: u16,
    pub(super) achieved: f64,
    pub(super) publish_ns: [f64; 3],
    pub(super) end_to_end_ns: [f64; 3],
    /// Processor time of the whole process, its start included, for each message.
    pub(super) cpu_ns: f64,
    /// Memory without files; 0 if it is not known.
    pub(super) private_mb: f64,
    /// Share of the machine's time that its hypervisor took meanwhile.
    pub(super) steal_percent: f64,
}

impl Run {
    pub(super) fn key(&self) -> (String, String, Engine) {
        (self.what.clone(), self.dir.clone(), self.engine)
    }

    pub(super) fn line(&self) -> String {
        format!(
            "{} {} {} round {}: {:.0}/s, publish ns {:?}, end to end ns {:?}, CPU {:.0} ns, steal {:.1} %",
            self.what,
            self.dir,
            self.engine.name(),
            self.round,
            self.achieved,
            self.publish_ns,
            self.end_to_end_ns,
            self.cpu_ns,
            self.steal_percent
        )
    }
}

/// Paths of the queues' programs.
pub(super) struct Engines {
    pub(super) riverrun: PathBuf,
    pub(super) chronicle: Option<PathBuf>,
}

impl Engines {
    /// The queues that are measured under a load.
    pub(super) fn of(&self, load: &Load) -> Vec<Engine> {
        let both = self.chronicle.is_some() && !matches!(load.section, Section::Fan | Section::Memory);
        if both { vec![Engine::Riverrun, Engine::Chronicle] } else { vec![Engine::Riverrun] }
    }

    pub(super) fn run(&self, engine: Engine, load: &Load, dir: &Path, round: u32) -> anyhow::Result<Run> {
        let mut command = match engine {
            Engine::Riverrun => self.ours(load, dir),
            Engine::Chronicle => theirs(self.chronicle.as_deref().unwrap_or(Path::new("")), load, dir),
        };
        let (cpu_before_s, machine) = (children_cpu_s()?, Ticks::now()?);
        let finished = exec::run_ok(&mut command, b"", LIMIT)?;
        let cpu_s = children_cpu_s()? - cpu_before_s;
        let found = match engine {
            Engine::Riverrun => parse_ours(&finished.output()),
            Engine::Chronicle => parse_theirs(&finished.output()),
        };
        let found =
            found.with_context(|| format!("{engine:?} printed something else:\n{}", finished.output()))?;
        Ok(Run {
            section: load.section,
            what: load.name(),
            dir: dir.display().to_string(),
            engine,
            round,
            tailers: load.tailers,
            appenders: load.appenders,
            achieved: found.achieved,
            publish_ns: found.publish_ns,
            end_to_end_ns: found.end_to_end_ns,
            cpu_ns: cpu_s * 1e9 / load.records() as f64,
            private_mb: found.private_mb,
            steal_percent: Ticks::now()?.steal_percent_since(machine),
        })
    }

    fn ours(&self, load: &Load, dir: &Path) -> Command {
        let mut command = Command::new(&self.riverrun);
        command.args(["queue", "bench", "--json", "--wait", load.wait(), "--dir"]).arg(dir);
        for (flag, value) in [
            ("--rate", load.rate),
            ("--seconds", load.seconds),
            ("--size", load.size.into()),
            ("--hops", load.hops.into()),
            ("--appenders", load.appenders.into()),
            ("--tailers", load.tailers.into()),
        ] {
            command.args([flag, &value.to_string()]);
        }
        command
    }
}

fn theirs(program: &Path, load: &Load, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg(dir.join("chronicle"));
    command
        .args([load.rate, load.seconds, load.size.into(), load.hops.into()].map(|number| number.to_string()));
    command
}

/// Figures that a program has printed.
#[derive(Debug, PartialEq)]
struct Printed {
    achieved: f64,
    publish_ns: [f64; 3],
    end_to_end_ns: [f64; 3],
    private_mb: f64,
}

fn parse_ours(text: &str) -> Option<Printed> {
    let report: Value = serde_json::from_str(text.trim()).ok()?;
    let quantiles = |name: &str| {
        let found = report.get(name)?;
        Some([found.get("p50")?.as_f64()?, found.get("p99")?.as_f64()?, found.get("p99_9")?.as_f64()?])
    };
    Some(Printed {
        achieved: report.get("achieved")?.as_f64()?,
        publish_ns: quantiles("publish_ns")?,
        end_to_end_ns: quantiles("end_to_end_ns")?,
        private_mb: report.get("private_bytes")?.as_f64()? / 1e6,
    })
}

fn parse_theirs(text: &str) -> Option<Printed> {
    let line = text.lines().rev().find(|line| line.contains("achieved="))?;
    let mut parts = line.split('|');
    let field = |part: &str, name: &str| {
        let found = part.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        found?.parse::<f64>().ok()
    };
    let quantiles = |part: &str| Some([field(part, "p50")?, field(part, "p99")?, field(part, "p99.9")?]);
    Some(Printed {
        achieved: field(parts.next()?, "achieved")?,
        publish_ns: quantiles(parts.next()?)?,
        end_to_end_ns: quantiles(parts.next()?)?,
        private_mb: 0.0,
    })
}

/// The machine's time so far, in ticks of all processors.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    all: u64,
    stolen: u64,
}

impl Ticks {
    fn now() -> anyhow::Result<Self> {
        let text = fs::read_to_string("/proc/stat").context("/proc/stat cannot be read")?;
        Ok(Self::parse(&text))
    }

    /// user nice system idle iowait irq softirq steal, then parts of user.
    fn parse(text: &str) -> Self {
        let first = text.lines().next().unwrap_or_default();
        let ticks: Vec<u64> =
            first.split_whitespace().skip(1).take(8).filter_map(|field| field.parse().ok()).collect();
        Self { all: ticks.iter().sum(), stolen: ticks.get(7).copied().unwrap_or(0) }
    }

    fn steal_percent_since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        self.stolen.saturating_sub(before.stolen) as f64 * 100.0 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_both_programs_is_read() {
        let theirs = "chronicle rate=5 achieved=499683 hops=1 size=512 | publish ns p50=150 p99=2775 p99.9=30767 \
                      | e2e ns p50=530 p99=59211775 p99.9=66715647 p99.99=68485119 max=68681727";
        let ours = r#"{"achieved": 499683, "private_bytes": 0, "publish_ns": {"p50": 150, "p99": 2775, "p99_9": 30767},
                      "end_to_end_ns": {"p50": 530, "p99": 59211775, "p99_9": 66715647}}"#;
        let found = Printed {
            achieved: 499_683.0,
            publish_ns: [150.0, 2775.0, 30767.0],
            end_to_end_ns: [530.0, 59_211_775.0, 66_715_647.0],
            private_mb: 0.0,
        };
        assert_eq!(parse_theirs(theirs).as_ref(), Some(&found));
        assert_eq!(parse_ours(ours), Some(found));
        assert_eq!((parse_theirs("no such queue"), parse_ours("{}")), (None, None));
    }

    #[test]
    fn steal_is_a_part_of_all_time() {
        let before = Ticks::parse("cpu 10 0 10 70 0 0 0 10 5 5\ncpu0 1");
        let after = Ticks::parse("cpu 20 0 20 140 0 0 0 20 5 5\ncpu0 1");
        assert!((after.steal_percent_since(before) - 10.0).abs() < 1e-9);
    }
}
