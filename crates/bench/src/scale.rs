//! Shrinking a plan so that it fits the time and the machine at hand.
//!
//! Times, backlogs and numbers of records shrink. Partitions, rates, sizes of records, producers and consumers stay,
//! because they make the run what it is. The result states the scale.

use std::time::Duration;

use crate::plan::{Plan, Shrunk, TargetRate};

/// Shortest measurement of a shrunk plan.
const TEST_MIN: Duration = Duration::from_secs(5);
/// Shortest warm-up of a shrunk plan.
const WARMUP_MIN: Duration = Duration::from_secs(2);

/// Smallest shrunk backlog if it is written at full speed: less is read in a tenth of a second. One that is written at
/// a rate may be smaller, since the time of writing is what is to shrink.
const BACKLOG_MIN: u64 = 1 << 30;

/// Shrinks a plan by a factor between 0 and 1; 1 leaves it as it is.
pub fn shrink(plan: &mut Plan, scale: f64) {
    if scale >= 1.0 {
        return;
    }
    let scale = scale.max(0.0);
    let mut floors = Vec::new();
    let mut shorter = |what: &str, time: Duration, least: Duration| {
        let (scaled, least) = (time.mul_f64(scale), time.min(least));
        if scaled < least {
            let (least, scaled) = (least.as_secs_f64(), scaled.as_secs_f64());
            floors.push(format!("{what} {least:.1} s, and not {scaled:.1} s"));
        }
        scaled.max(least)
    };
    plan.test = shorter("measurement", plan.test, TEST_MIN);
    plan.disk_full = plan.disk_full.map(|time| shorter("full disk", time, TEST_MIN / 3));
    plan.warmup = shorter("warm-up", plan.warmup, WARMUP_MIN);
    let is_unpaced = plan.rate == TargetRate::Unpaced;
    if let Some(backlog) = &mut plan.backlog {
        let (scaled, least) = (fewer(backlog.bytes, scale), if is_unpaced { BACKLOG_MIN } else { 0 });
        let least = least.min(backlog.bytes);
        if scaled < least {
            floors.push(format!("backlog {} MiB, and not {}", least >> 20, scaled >> 20));
        }
        backlog.bytes = scaled.max(least);
    }
    plan.shrunk = Some(Shrunk {
        test_s: plan.test.as_secs_f64(),
        warmup_s: plan.warmup.as_secs_f64(),
        floor_applied: !floors.is_empty(),
    });
    if !floors.is_empty() {
        plan.notes.push(format!("--scale {scale}: lower bounds hold: {}", floors.join("; ")));
    }
    plan.messages = plan.messages.map(|messages| fewer(messages, scale));
}

#[expect(clippy::cast_possible_truncation, reason = "a share of a count is no greater than it")]
fn fewer(count: u64, scale: f64) -> u64 {
    ((count as f64 * scale) as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::omb::{Driver, PlanOptions, Workload, to_plan};
    use crate::plan::TargetRate::Fixed;
    use crate::plan::TopicPlan;
    use riverrun_measure::pacing::Rate;

    #[test]
    fn only_times_and_counts_shrink() {
        let text = "name: n\ntopics: 3\npartitionsPerTopic: 5\nmessageSize: 512\nsubscriptionsPerTopic: 1
consumerPerSubscription: 1\nproducersPerTopic: 2\nproducerRate: 100\ntestDurationMinutes: 10
warmupDurationMinutes: 1\nconsumerBacklogSizeGB: 1\n";
        let workload = Workload::parse("w", text).expect("a workload");
        // No workload has both a number of messages and a backlog, but both have to shrink.
        let plan = || Plan {
            messages: Some(5000),
            ..to_plan("w", &workload, &Driver::default(), &PlanOptions::default()).expect("a plan")
        };
        let figures = |scale| {
            let mut plan = plan();
            shrink(&mut plan, scale);
            assert_eq!(
                (&plan.topics, plan.rate, plan.load.value_bytes),
                (&topics(&workload), Fixed(Rate::nearest(100.0)), 512)
            );
            (plan.test.as_secs(), plan.warmup.as_secs(), plan.messages, plan.backlog.map(|one| one.bytes))
        };
        assert_eq!(figures(0.125), (75, 7, Some(625), Some(1 << 27)));
        assert_eq!(figures(0.0001), (5, 2, Some(1), Some(107_374)));
        assert_eq!(figures(1.0), (600, 60, Some(5000), Some(1 << 30)));
        let told = |scale| {
            let mut plan = plan();
            shrink(&mut plan, scale);
            (plan.shrunk, plan.notes)
        };
        let shrunk = |test_s, warmup_s, floor_applied| Some(Shrunk { test_s, warmup_s, floor_applied });
        assert_eq!(told(1.0), (None, Vec::new()));
        assert_eq!(told(0.5), (shrunk(300.0, 30.0, false), Vec::new()));
        let (found, notes) = told(0.001);
        assert_eq!(found, shrunk(5.0, 2.0, true));
        let expected = "--scale 0.001: lower bounds hold: measurement 5.0 s, and not 0.6 s; warm-up 2.0 s, and not 0.1 s";
        assert_eq!(notes, [expected]);
    }

    #[test]
    fn unpaced_backlog_stays_large_enough() {
        let text = |gb: f64| {
            format!(
                "name: n\ntopics: 3\npartitionsPerTopic: 5\nmessageSize: 512\nsubscriptionsPerTopic: 1
consumerPerSubscription: 1\nproducersPerTopic: 2\nproducerRate: -1\ntestDurationMinutes: 10
warmupDurationMinutes: 1\nconsumerBacklogSizeGB: {gb}\n"
            )
        };
        let shrunk = |gb, scale| {
            let workload = Workload::parse("w", &text(gb)).expect("a workload");
            let mut plan =
                to_plan("w", &workload, &Driver::default(), &PlanOptions::default()).expect("a plan");
            shrink(&mut plan, scale);
            (plan.backlog.map(|one| one.bytes), plan.notes)
        };
        assert_eq!(shrunk(4.0, 0.5), (Some(1 << 31), Vec::new()));
        let (bytes, notes) = shrunk(4.0, 0.125);
        assert_eq!(bytes, Some(1 << 30));
        let expected = "--scale 0.125: lower bounds hold: backlog 1024 MiB, and not 512";
        assert_eq!(notes, [expected]);
        assert_eq!(shrunk(0.5, 0.5).0, Some(1 << 29), "nor does it grow");
    }

    fn topics(workload: &Workload) -> Vec<TopicPlan> {
        to_plan("w", workload, &Driver::default(), &PlanOptions::default()).expect("a plan").topics
    }
}
