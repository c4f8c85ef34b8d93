//! The embedded queue's goals, and whether this run reached them.
//!
//! Ratios pair the two queues within each round and directory, and take the median, because the machine's speed
//! changes.

use super::super::goals::Goal;
use super::super::{median, ratio_by_round};
use super::Section;
use super::engine::{Engine, Run};

/// Relative to Chronicle's latency.
const LATENCY_RATIO_MAX: f64 = 0.5;
/// Relative to Chronicle's messages per second.
const THROUGHPUT_RATIO_MIN: f64 = 2.0;
/// Processor time that another tailer may add to a message, relative to that with one tailer.
const TAILER_GROWTH_MAX: f64 = 0.2;
const MEMORY_MB_MAX: f64 = 40.0;

/// A figure and its name.
type Figure = (&'static str, fn(&Run) -> f64);

/// All goals for which there are figures.
pub(super) fn of(runs: &[Run]) -> Vec<Goal> {
    let mut dirs: Vec<&str> = runs.iter().map(|run| run.dir.as_str()).collect();
    dirs.sort_unstable();
    dirs.dedup();
    let mut goals = Vec::new();
    for dir in dirs {
        let here: Vec<&Run> = runs.iter().filter(|run| run.dir == dir).collect();
        for section in [Section::Paced, Section::TwoHops] {
            goals.extend(latencies(&here, section));
        }
        goals.extend(throughput(&here));
        goals.extend(fan(&here));
        goals.extend(memory(&here));
    }
    goals
}

/// The median of ours over Chronicle's; `None` if they were not measured together.
fn ratio(runs: &[&Run], section: Section, of: impl Fn(&Run) -> f64) -> Option<f64> {
    let engine = |engine: Engine| {
        runs.iter().filter(move |run| run.section == section && run.engine == engine).copied()
    };
    let of_round = |run: &Run| (run.round, of(run));
    let theirs = engine(Engine::Chronicle).map(|run| (run.round, of(run).max(1.0)));
    ratio_by_round(engine(Engine::Riverrun).map(of_round), theirs)
}

fn latencies(runs: &[&Run], section: Section) -> Vec<Goal> {
    let Some(first) = runs.iter().find(|run| run.section == section) else { return Vec::new() };
    let figures: [Figure; 4] = [
        ("publish p50", |run| run.publish_ns[0]),
        ("end to end p50", |run| run.end_to_end_ns[0]),
        ("end to end p99", |run| run.end_to_end_ns[1]),
        ("end to end p99.9", |run| run.end_to_end_ns[2]),
    ];
    let goal = |(name, of): Figure| {
        let ratio = ratio(runs, section, of)?;
        Some(Goal {
            what: format!("{name}: {}, {}", first.what, first.dir),
            measured: format!("{ratio:.2}x Chronicle"),
            wanted: format!("<= {LATENCY_RATIO_MAX}x"),
            reached: Some(ratio <= LATENCY_RATIO_MAX),
        })
    };
    figures.into_iter().filter_map(goal).collect()
}

fn throughput(runs: &[&Run]) -> Option<Goal> {
    let ratio = ratio(runs, Section::Unpaced, |run| run.achieved)?;
    Some(Goal {
        what: format!("messages/s: unpaced, {}", runs[0].dir),
        measured: format!("{ratio:.2}x Chronicle"),
        wanted: format!(">= {THROUGHPUT_RATIO_MIN}x"),
        reached: Some(ratio >= THROUGHPUT_RATIO_MIN),
    })
}

/// The processor time of a message with two tailers over that with one; elapsed time would count the lack of cores.
fn fan(runs: &[&Run]) -> Option<Goal> {
    let with = |tailers: u16| {
        let wanted =
            move |run: &&&Run| run.section == Section::Fan && run.appenders == 1 && run.tailers == tailers;
        let found: Vec<f64> = runs.iter().filter(wanted).map(|run| run.cpu_ns.max(1.0)).collect();
        (!found.is_empty()).then(|| median(found))
    };
    let (one, two) = (with(1)?, with(2)?);
    let growth = two / one - 1.0;
    Some(Goal {
        what: format!("CPU ns of a message, second tailer, {}", runs[0].dir),
        measured: format!("{:+.0}%", growth * 100.0),
        wanted: format!("<= {:+.0}%", TAILER_GROWTH_MAX * 100.0),
        reached: Some(growth <= TAILER_GROWTH_MAX),
    })
}

fn memory(runs: &[&Run]) -> Option<Goal> {
    let found = runs.iter().filter(|run| run.section == Section::Memory);
    let most = found.map(|run| run.private_mb).max_by(f64::total_cmp)?;
    Some(Goal {
        what: format!("private memory, {}", runs[0].dir),
        measured: format!("{most:.0} MB"),
        wanted: format!("<= {MEMORY_MB_MAX:.0} MB"),
        reached: Some(most <= MEMORY_MB_MAX),
    })
}
