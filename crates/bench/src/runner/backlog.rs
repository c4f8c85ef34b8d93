//! Building a backlog, and watching it being read.
//!
//! Pure: takes counts, and returns orders.

use std::time::Instant;

use riverrun_measure::histogram::Latencies;

use super::figures::BacklogFigures;
use crate::plan::{Backlog, Plan, TargetRate};
use crate::worker::{Counts, Order, Taken};

/// A backlog of at most this many records, for each group, counts as read while more are sent.
const RECORDS_LEFT: u64 = 1000;
/// The same bound as a share of the records of a second, if that is more: at high rates so many are always under way.
const LEFT_SHARE: f64 = 0.1;

#[derive(Debug)]
enum State {
    Building,
    Draining { since: Instant, at_start: Counts },
    Drained,
}

/// Watches one backlog. If there are groups that catch up, the backlog is theirs, and the others keep reading.
///
/// Invariants: goes from building to draining to drained, and never back.
#[derive(Debug)]
pub(super) struct BacklogWatch {
    backlog: Backlog,
    value_bytes: u64,
    readers: u64,
    /// Most records per group that count as none while more are sent.
    left_while_sent: u64,
    catches_up: bool,
    begun: Instant,
    state: State,
    publish: Latencies,
    figures: BacklogFigures,
}

impl BacklogWatch {
    /// Begins with the measurement; `None` if the plan has no backlog.
    pub(super) fn new(plan: &Plan) -> Option<Self> {
        let backlog = plan.backlog?;
        let catches_up = plan.readers(true) > 0;
        Some(Self {
            backlog,
            value_bytes: plan.load.value_bytes.max(1) as u64,
            readers: plan.readers(catches_up) as u64,
            left_while_sent: left_while_sent(plan.rate),
            catches_up,
            begun: Instant::now(),
            state: State::Building,
            publish: Latencies::new(),
            figures: BacklogFigures::default(),
        })
    }

    /// The order to give before the first look.
    pub(super) fn first_order(&self) -> Option<Order> {
        (!self.catches_up).then_some(Order::PauseConsumers)
    }

    /// Unread records, over all groups that the backlog is for.
    fn left(&self, totals: &Counts) -> u64 {
        if self.catches_up {
            // These groups read all records, those sent before the measurement included.
            (totals.acked * self.readers).saturating_sub(totals.caught_up)
        } else {
            (totals.acked * self.readers).saturating_sub(totals.received)
        }
    }

    /// Looks at the counts of the last second; returns the orders to give now.
    pub(super) fn look(&mut self, taken: &Taken, totals: &Counts) -> Vec<Order> {
        let left = self.left(totals);
        match &self.state {
            State::Building if left.saturating_mul(self.value_bytes) >= self.backlog.bytes => {
                self.figures.records = left;
                self.figures.build_s = self.begun.elapsed().as_secs_f64();
                self.state = State::Draining { since: Instant::now(), at_start: *totals };
                let begin = if self.catches_up { Order::StartCatchUp } else { Order::ResumeConsumers };
                if self.backlog.read_alone { vec![Order::StopProducing, begin] } else { vec![begin] }
            }
            State::Draining { since, at_start } => {
                self.figures.drain_s = since.elapsed().as_secs_f64();
                let catches_up = self.catches_up;
                let read = |counts: &Counts| {
                    if catches_up {
                        (counts.caught_up, counts.caught_up_bytes)
                    } else {
                        (counts.received, counts.received_bytes)
                    }
                };
                let ((records, bytes), (records_before, bytes_before)) = (read(totals), read(at_start));
                self.figures.drained_records = records - records_before;
                self.figures.drained_bytes = bytes - bytes_before;
                if !self.backlog.read_alone {
                    self.publish.merge(&taken.publish);
                }
                if left <= self.left_at_end() {
                    self.state = State::Drained;
                    self.figures.drained = true;
                }
                Vec::new()
            }
            State::Building | State::Drained => Vec::new(),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a share of a count is no greater than it")]
    fn left_at_end(&self) -> u64 {
        let share = (self.figures.records as f64 * (1.0 - self.backlog.drain_ratio)) as u64;
        if self.backlog.read_alone {
            share
        } else {
            share.max(self.left_while_sent.saturating_mul(self.readers))
        }
    }

    pub(super) fn is_drained(&self) -> bool {
        matches!(self.state, State::Drained)
    }

    pub(super) fn reads_alone(&self) -> bool {
        self.backlog.read_alone
    }

    pub(super) fn finish(mut self) -> BacklogFigures {
        if !self.publish.is_empty() {
            self.figures.publish_meanwhile = Some(self.publish.summary());
        }
        self.figures
    }
}

#[expect(clippy::cast_possible_truncation, reason = "what no count can hold is the greatest of them")]
fn left_while_sent(rate: TargetRate) -> u64 {
    match rate {
        TargetRate::Fixed(rate) => RECORDS_LEFT.max((rate.get() * LEFT_SHARE) as u64),
        TargetRate::Search | TargetRate::Unpaced => RECORDS_LEFT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::omb::{Driver, PlanOptions, Workload, to_plan};
    use riverrun_measure::pacing::Rate;

    fn watch(more: &str) -> BacklogWatch {
        let text = format!(
            "name: n\ntopics: 1\npartitionsPerTopic: 1\nmessageSize: 1048576\nsubscriptionsPerTopic: 2
consumerPerSubscription: 1\nproducersPerTopic: 1\nproducerRate: 7\ntestDurationMinutes: 1
consumerBacklogSizeGB: 4\n{more}"
        );
        let workload = Workload::parse("w", &text).expect("a workload");
        let plan = to_plan("w", &workload, &Driver::default(), &PlanOptions::default()).expect("a plan");
        BacklogWatch::new(&plan).expect("there is a backlog")
    }

    fn fixed(rate: f64) -> TargetRate {
        TargetRate::Fixed(Rate::nearest(rate))
    }

    fn counts(acked: u64, received: u64, caught_up: u64) -> Counts {
        Counts { acked, received, caught_up, ..Counts::default() }
    }

    #[test]
    fn consumers_wait_until_the_backlog_is_written() {
        let mut watch = watch("backlogDrainRatio: 0.5\n");
        assert_eq!(watch.first_order(), Some(Order::PauseConsumers));
        let mut taken = Taken::default();
        taken.publish.record_us(7);
        assert_eq!(watch.look(&taken, &counts(2047, 0, 0)), []);
        assert_eq!(watch.look(&taken, &counts(2048, 0, 0)), [Order::ResumeConsumers]);
        assert_eq!(watch.look(&taken, &counts(2100, 100, 0)), []);
        assert!(!watch.is_drained());
        watch.look(&taken, &counts(3000, 4000, 0));
        assert!(watch.is_drained(), "half of 4096 is left at most");
        let figures = watch.finish();
        assert_eq!((figures.records, figures.drained_records, figures.drained), (4096, 4000, true));
        assert_eq!(figures.publish_meanwhile.map(|meanwhile| meanwhile.count), Some(2));
    }

    #[test]
    fn catch_up_groups_leave_the_others_alone() {
        let mut watch = watch("catchUpSubscriptionsPerTopic: 1\n");
        assert_eq!(watch.first_order(), None);
        assert_eq!(watch.look(&Taken::default(), &counts(4096, 8192, 0)), [Order::StartCatchUp]);
        watch.look(&Taken::default(), &counts(5000, 10_000, 3999));
        assert!(!watch.is_drained());
        watch.look(&Taken::default(), &counts(5000, 10_000, 4000));
        assert!(watch.is_drained(), "a thousand records are as good as none while more come");
        assert_eq!(watch.finish().drained_records, 4000, "those of the others are not of the backlog");
    }

    #[test]
    fn tenth_of_a_second_counts_as_drained_at_high_rates() {
        let mut watch = BacklogWatch { left_while_sent: left_while_sent(fixed(200_000.0)), ..watch("") };
        watch.look(&Taken::default(), &counts(100_000, 0, 0));
        watch.look(&Taken::default(), &counts(100_000, 159_999, 0));
        assert!(!watch.is_drained());
        watch.look(&Taken::default(), &counts(100_000, 160_000, 0));
        assert!(watch.is_drained(), "20,000 for each of two groups");
        assert_eq!(left_while_sent(fixed(10_000.0)), 1000);
        assert_eq!(left_while_sent(TargetRate::Unpaced), 1000);
    }

    #[test]
    fn backlog_read_alone_is_read_to_its_last_record() {
        let mut watch = watch("readAlone: true\n");
        let orders = watch.look(&Taken::default(), &counts(2048, 0, 0));
        assert_eq!(orders, [Order::StopProducing, Order::ResumeConsumers]);
        let mut taken = Taken::default();
        taken.publish.record_us(7);
        watch.look(&taken, &counts(2050, 4099, 0));
        assert!(!watch.is_drained());
        watch.look(&Taken::default(), &counts(2050, 4100, 0));
        assert!(watch.is_drained());
        assert_eq!(watch.finish().publish_meanwhile, None, "acks then are of earlier records");
    }
}
