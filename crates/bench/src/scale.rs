//! Shrinking a plan so that it fits the time and the machine at hand.
//!
//! Times, backlogs and numbers of records shrink. What makes a run what it is stays: partitions, rates, sizes of
//! records, producers and consumers. The result says by how much it was shrunk.

use std::time::Duration;

use crate::plan::Plan;

/// A measurement that is shrunk is not shorter than this.
const TEST_MIN: Duration = Duration::from_secs(5);
/// A warm-up that is shrunk is not shorter than this.
const WARMUP_MIN: Duration = Duration::from_secs(2);

/// Shrinks a plan by a factor between 0 and 1; 1 leaves it as it is.
pub fn shrink(plan: &mut Plan, scale: f64) {
    let scale = scale.clamp(0.0, 1.0);
    let shorter = |time: Duration, least: Duration| time.mul_f64(scale).max(time.min(least));
    plan.test = shorter(plan.test, TEST_MIN);
    plan.disk_full = plan.disk_full.map(|time| shorter(time, TEST_MIN / 3));
    plan.warmup = shorter(plan.warmup, WARMUP_MIN);
    plan.messages = plan.messages.map(|messages| fewer(messages, scale));
    if let Some(backlog) = &mut plan.backlog {
        backlog.bytes = fewer(backlog.bytes, scale);
    }
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

    #[test]
    fn times_and_counts_shrink_and_nothing_else_does() {
        let text = "name: n\ntopics: 3\npartitionsPerTopic: 5\nmessageSize: 512\nsubscriptionsPerTopic: 1
consumerPerSubscription: 1\nproducersPerTopic: 2\nproducerRate: 100\ntestDurationMinutes: 10
warmupDurationMinutes: 1\nmessages: 5000\nconsumerBacklogSizeGB: 1\n";
        let workload = Workload::parse("w", text).expect("a workload");
        let plan = || to_plan("w", &workload, &Driver::default(), &PlanOptions::default()).expect("a plan");
        let figures = |scale| {
            let mut plan = plan();
            shrink(&mut plan, scale);
            assert_eq!(
                (&plan.topics, plan.rate, plan.load.value_bytes),
                (&topics(&workload), Fixed(100.0), 512)
            );
            (plan.test.as_secs(), plan.warmup.as_secs(), plan.messages, plan.backlog.map(|one| one.bytes))
        };
        assert_eq!(figures(0.125), (75, 7, Some(625), Some(1 << 27)));
        assert_eq!(figures(0.0001), (5, 2, Some(1), Some(107_374)));
        assert_eq!(figures(1.0), (600, 60, Some(5000), Some(1 << 30)));
    }

    fn topics(workload: &Workload) -> Vec<TopicPlan> {
        to_plan("w", workload, &Driver::default(), &PlanOptions::default()).expect("a plan").topics
    }
}
