//! The goals, and whether this run reached them.
//!
//! Ratios pair the two servers within each round, because the machine's speed changes between rounds, and take the
//! median of the rounds. A goal that compares needs both servers; one with a fixed limit is for ours alone.

use riverrun_measure::text::table::Table;
use serde::Serialize;

use super::median;
use super::startup::Figure;
use super::throughput::{Direction, PARTITIONS, Run};
use crate::clients::server::ServerKind;

/// Least ratio of our records per second to Kafka's,
const THROUGHPUT_RATIO_MIN: f64 = 1.3;

/// or a client that could not have gone much faster: its busiest thread had this share of a core.
pub(super) const CLIENT_SHARE_MIN: f64 = 0.9;

/// Largest share of Kafka's processor time.
const CPU_IN_RATIO_MAX: f64 = 1.0 / 5.0;
const CPU_OUT_RATIO_MAX: f64 = 1.0 / 3.0;

/// Under load.
const PEAK_MEMORY_MB_MAX: f64 = 200.0;

/// One goal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Goal {
    pub(super) what: String,
    pub(super) measured: String,
    pub(super) wanted: String,
    /// `None` if the measurement cannot decide it.
    pub(super) reached: Option<bool>,
}

/// Goals of the throughput section; empty if nothing of ours was measured.
pub(super) fn of_throughput(runs: &[Run]) -> Vec<Goal> {
    let mut goals = Vec::new();
    for direction in Direction::ALL {
        for partitions in PARTITIONS {
            let pairs = pairs(runs, direction, partitions);
            if !pairs.is_empty() {
                goals.push(throughput(&pairs));
                goals.push(cpu(&pairs));
            }
        }
    }
    goals.extend(peak_memory(runs));
    goals
}

/// Goals of the start-up section: only ours has any.
pub(super) fn of_startup(figures: &[Figure]) -> Vec<Goal> {
    let ours = figures.iter().filter(|figure| figure.server == ServerKind::Riverrun.name());
    let goal = |figure: &Figure| Goal {
        what: figure.what.clone(),
        measured: format!("{} {}", figure.unit.digits(figure.value), figure.unit.name()),
        wanted: format!("< {:.0} {}", figure.limit, figure.unit.name()),
        reached: Some(figure.value < figure.limit),
    };
    ours.map(goal).collect()
}

/// The two servers in the same round of one measurement.
struct Pair<'a> {
    kafka: &'a Run,
    riverrun: &'a Run,
}

fn pairs(runs: &[Run], direction: Direction, partitions: i32) -> Vec<Pair<'_>> {
    let of = |kind: ServerKind| {
        let wanted = move |run: &&Run| {
            run.server == kind.name() && run.direction == direction && run.partitions == partitions
        };
        runs.iter().filter(wanted)
    };
    let ours = of(ServerKind::Riverrun);
    ours.filter_map(|riverrun| {
        let kafka = of(ServerKind::Kafka).find(|kafka| kafka.round == riverrun.round)?;
        Some(Pair { kafka, riverrun })
    })
    .collect()
}

/// Name of the measurement, from any of its pairs.
fn name(pairs: &[Pair<'_>]) -> String {
    let Some(Pair { riverrun: run, .. }) = pairs.first() else { return String::new() };
    let (direction, partitions) = (run.direction.name(), run.partitions_named());
    format!("{direction}, {partitions}, durability {}", run.durability)
}

fn ratio(pairs: &[Pair<'_>], of: fn(&Run) -> f64) -> f64 {
    median(pairs.iter().map(|pair| of(pair.riverrun) / of(pair.kafka)))
}

fn throughput(pairs: &[Pair<'_>]) -> Goal {
    let ratio = ratio(pairs, |run| run.records_per_s);
    let share = median(pairs.iter().map(|pair| pair.riverrun.client_busiest_thread.share));
    Goal {
        what: format!("records/s: {}", name(pairs)),
        measured: format!("{ratio:.2}x Kafka, busiest client thread {:.0}% of a core", share * 100.0),
        wanted: format!(">= {THROUGHPUT_RATIO_MIN}x, or thread >= {:.0}%", CLIENT_SHARE_MIN * 100.0),
        reached: Some(ratio >= THROUGHPUT_RATIO_MIN || share >= CLIENT_SHARE_MIN),
    }
}

fn cpu(pairs: &[Pair<'_>]) -> Goal {
    let ratio = ratio(pairs, |run| run.server_cpu_s_per_gb);
    let incoming = pairs.iter().any(|pair| pair.riverrun.direction == Direction::In);
    let limit = if incoming { CPU_IN_RATIO_MAX } else { CPU_OUT_RATIO_MAX };
    Goal {
        what: format!("server CPU s/GB: {}", name(pairs)),
        measured: format!("{ratio:.3}x Kafka"),
        wanted: format!("<= {limit:.3}x"),
        reached: Some(ratio <= limit),
    }
}

/// Our peak memory, with Kafka's beside it if it was measured.
fn peak_memory(runs: &[Run]) -> Option<Goal> {
    let peak_mb = |kind: ServerKind| {
        let of_kind = runs.iter().filter(|run| run.server == kind.name());
        of_kind.map(|run| run.server_peak_memory_bytes).max().map(|bytes| bytes as f64 / 1e6)
    };
    let ours = peak_mb(ServerKind::Riverrun)?;
    let kafka = peak_mb(ServerKind::Kafka).map_or_else(String::new, |mb| format!(", Kafka {mb:.0} MB"));
    Some(Goal {
        what: "peak RSS under load".to_owned(),
        measured: format!("{ours:.0} MB{kafka}"),
        wanted: format!("< {PEAK_MEMORY_MB_MAX:.0} MB"),
        reached: Some(ours < PEAK_MEMORY_MB_MAX),
    })
}

/// The table of goals.
pub(super) fn table(goals: &[Goal]) -> String {
    let mut table = Table::of_figures(4, &["goal of", "measured", "goal", "reached"]);
    for goal in goals {
        let reached = goal.reached.map_or("not judged", |reached| if reached { "yes" } else { "NO" });
        table.row(&[goal.what.clone(), goal.measured.clone(), goal.wanted.clone(), reached.to_owned()]);
    }
    format!("Goals, ratios as medians of the rounds\n\n{}", table.render(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use riverrun_measure::threads::BusyThread;

    /// A run of round `round` in direction `In` with one partition.
    fn run(server: ServerKind, round: u32, records_per_s: f64, cpu: f64, share: f64) -> Run {
        Run {
            direction: Direction::In,
            partitions: 1,
            round,
            server: server.name(),
            durability: "4",
            records: 1000,
            records_per_s,
            mib_per_s: 1.0,
            latency_ms: None,
            server_cpu_s: cpu,
            server_cpu_s_per_gb: cpu,
            server_peak_memory_bytes: 150_000_000,
            client_cpu_s: 1.0,
            client_busiest_thread: BusyThread { name: "t".to_owned(), share, held_up_share: 0.0 },
        }
    }

    fn reached(runs: &[Run]) -> Vec<bool> {
        of_throughput(runs).iter().filter_map(|goal| goal.reached).collect()
    }

    #[test]
    fn ratios_pair_the_rounds_and_take_their_median() {
        let (kafka, riverrun) = (ServerKind::Kafka, ServerKind::Riverrun);
        let runs = [
            run(kafka, 1, 100.0, 10.0, 0.5),
            run(riverrun, 1, 140.0, 1.0, 0.5),
            run(kafka, 2, 1000.0, 10.0, 0.5),
            run(riverrun, 2, 1350.0, 1.0, 0.5),
            run(kafka, 3, 100.0, 10.0, 0.5),
            run(riverrun, 3, 50.0, 9.0, 0.5),
        ];
        let goals = of_throughput(&runs);
        assert!(goals[0].measured.starts_with("1.35x Kafka"), "{}", goals[0].measured);
        assert!(goals[1].measured.starts_with("0.100x Kafka"), "{}", goals[1].measured);
        assert_eq!(reached(&runs), [true, true, true]);
    }

    #[test]
    fn client_at_its_limit_excuses_only_a_low_ratio() {
        let (kafka, riverrun) = (ServerKind::Kafka, ServerKind::Riverrun);
        let runs = |share| [run(kafka, 1, 100.0, 10.0, 0.95), run(riverrun, 1, 100.0, 9.0, share)];
        assert_eq!(reached(&runs(0.95)), [true, false, true]);
        assert_eq!(reached(&runs(0.85)), [false, false, true]);
    }

    #[test]
    fn kafka_alone_has_no_goals() {
        assert_eq!(of_throughput(&[run(ServerKind::Kafka, 1, 100.0, 10.0, 0.5)]), []);
    }

    #[test]
    fn ours_alone_has_the_goal_of_memory() {
        assert_eq!(of_throughput(&[run(ServerKind::Riverrun, 1, 100.0, 10.0, 0.5)]).len(), 1);
    }
}
