//! What a run measured: by the second, by the ten seconds that the original reports, and in all.

use std::time::{Duration, Instant};

use riverrun_measure::histogram::{Latencies, LatencySummary};
use serde::Serialize;

use super::disk_full::DiskFullFigures;
use super::fleet::WorkerRun;
use super::groups::MemberFigures;
use super::search::FoundRate;
use crate::process::ProcessRun;
use crate::worker::{Counts, Taken};

/// Time of one period of the original's result.
const PERIOD: Duration = Duration::from_secs(10);

/// One second of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Second {
    /// When it ended, from the beginning of the measurement.
    pub at_s: f64,
    /// How long it was.
    pub seconds: f64,
    /// Records a second that were acked.
    pub publish_rate: f64,
    /// Bytes of values a second.
    pub publish_bytes_rate: f64,
    /// Records a second that could not be delivered.
    pub error_rate: f64,
    /// Records a second that were read, over all groups.
    pub consume_rate: f64,
    /// Bytes of values a second.
    pub consume_bytes_rate: f64,
    /// Records a second that were read by groups that catch up.
    pub catch_up_rate: f64,
    /// Records that are left to read, over all groups.
    pub backlog: u64,
    /// The rate that was wanted; none where producers are not paced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted_rate: Option<f64>,
    /// From the time at which a record was to be sent to its ack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish: Option<LatencySummary>,
    /// From that time to the moment in which it was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_to_end: Option<LatencySummary>,
}

/// Ten seconds of a run: no histogram, of which a run of hours would keep thousands.
#[derive(Clone, Debug, Default)]
pub struct Period {
    /// How long it was.
    pub seconds: f64,
    /// What was counted.
    pub counts: Counts,
    /// From the time at which a record was to be sent to its ack.
    pub publish: LatencySummary,
    /// From that time to the moment in which it was handed to the client.
    pub delay: LatencySummary,
    /// From that time to the moment in which it was read.
    pub end_to_end: LatencySummary,
    /// Records that were left to read at its end.
    pub backlog: u64,
}

/// How a backlog was built and read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BacklogFigures {
    /// Records that were there when consumers began, over all groups.
    pub records: u64,
    /// Time until they were there.
    pub build_s: f64,
    /// Time from then until they were read, or the run was over.
    pub drain_s: f64,
    /// Records that were read in that time, over all groups.
    pub drained_records: u64,
    /// Their values' bytes.
    pub drained_bytes: u64,
    /// Whether it was read as far as it should be.
    pub drained: bool,
    /// Of records that were sent meanwhile: from the time at which they were to be sent to their acks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish_meanwhile: Option<LatencySummary>,
}

/// What was read in less time than this says little of how fast it goes, and of what it does to others.
const DRAIN_MIN_S: f64 = 3.0;

impl BacklogFigures {
    /// What is to be known where the backlog was read in a moment.
    pub(super) fn short_note(&self) -> Option<String> {
        (self.drained && self.drain_s < DRAIN_MIN_S).then(|| {
            format!(
                "the backlog was read in {:.2} s: its rate and what is measured meanwhile are of that moment alone; a larger one (--scale) is read for longer",
                self.drain_s
            )
        })
    }
}

/// What a run measured.
#[derive(Debug, Default)]
pub struct Figures {
    /// How long was measured.
    pub test_s: f64,
    /// What was counted in that time.
    pub counts: Counts,
    /// What came after it of what was sent in it.
    pub late: Counts,
    /// Records that were sent and neither acked nor refused when the waiting for it ended.
    pub unacked: u64,
    /// Records that were acked and that nobody had read when the waiting for it ended, over all groups but those that
    /// catch up.
    pub unread: u64,
    /// Latencies of all that, what came late included; of what is unacked, the least that it can have waited.
    pub publish: Latencies,
    /// From the time at which a record was to be sent to the moment in which it was.
    pub delay: Latencies,
    /// From that time to the moment in which it was read, or the least that it can have waited for that; once for each
    /// group, also of what was not delivered.
    pub end_to_end: Latencies,
    /// How long consumers waited for the poll that brought a record, once for each record; only where nobody sends.
    pub poll: Latencies,
    /// By the second.
    pub seconds: Vec<Second>,
    /// By ten seconds.
    pub periods: Vec<Period>,
    /// Of the members of groups, where there are groups.
    pub members: Option<MemberFigures>,
    /// What a search for a rate has found.
    pub search: Option<FoundRate>,
    /// Of a backlog.
    pub backlog: Option<BacklogFigures>,
    /// Of a full disk.
    pub disk_full: Option<DiskFullFigures>,
    /// What the server's process used.
    pub server: Option<ProcessRun>,
    /// What this process used: all of the load, where there are no workers.
    pub client: Option<ProcessRun>,
    /// What the processes of workers used.
    pub workers: Vec<WorkerRun>,
    /// What is to be known of these figures.
    pub notes: Vec<String>,
}

/// When was looked, and what had happened since the look before.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    sent: u64,
    acked: u64,
}

/// Turns what is taken into figures.
///
/// Invariants: `figures` holds what was added since `begin`; `lately` what of it is in no period yet, which took
/// `lately_s`; `looks` the same records as `figures`, late ones included; `undelivered` those of its publish latencies that
/// are of records which were not delivered.
#[derive(Debug)]
pub(super) struct Recorder {
    begun: Instant,
    looked: Instant,
    looks: Vec<Look>,
    lately: Taken,
    lately_s: f64,
    backlog: u64,
    undelivered: Latencies,
    pub(super) figures: Figures,
}

impl Recorder {
    /// Begins now.
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            begun: now,
            looked: now,
            looks: Vec::new(),
            lately: Taken::default(),
            lately_s: 0.0,
            backlog: 0,
            undelivered: Latencies::default(),
            figures: Figures::default(),
        }
    }

    /// How long it has been measuring.
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Adds what was taken at the end of a second.
    pub(super) fn add(&mut self, taken: &Taken, backlog: u64, wanted_rate: Option<f64>) -> &Second {
        let now = Instant::now();
        let seconds = (now - self.looked).as_secs_f64().max(f64::MIN_POSITIVE);
        self.looked = now;
        self.look(now, &taken.counts);
        self.figures.test_s = (now - self.begun).as_secs_f64();
        self.figures.counts.add(&taken.counts);
        self.add_latencies(taken);
        self.lately.merge(taken);
        self.lately_s += seconds;
        self.backlog = backlog;
        if self.lately_s >= PERIOD.as_secs_f64() - 0.5 {
            self.end_period();
        }
        let rate = |count: u64| count as f64 / seconds;
        let counts = &taken.counts;
        let second = Second {
            at_s: self.figures.test_s,
            seconds,
            publish_rate: rate(counts.acked),
            publish_bytes_rate: rate(counts.acked_bytes),
            error_rate: rate(counts.failed),
            consume_rate: rate(counts.received),
            consume_bytes_rate: rate(counts.received_bytes),
            catch_up_rate: rate(counts.caught_up),
            backlog,
            wanted_rate,
            publish: summary(&taken.publish),
            end_to_end: summary(&taken.end_to_end),
        };
        self.figures.seconds.push(second);
        self.figures.seconds.last().expect("one was pushed")
    }

    /// Adds what came after the measurement: latencies count, rates do not.
    pub(super) fn add_late(&mut self, taken: &Taken) {
        self.look(Instant::now(), &taken.counts);
        self.figures.late.add(&taken.counts);
        self.add_latencies(taken);
    }

    fn look(&mut self, at: Instant, counts: &Counts) {
        self.looks.push(Look { at, sent: counts.sent, acked: counts.acked });
    }

    /// Adds records that were sent and that are neither acked nor refused by now. Which ones these are nobody knows: they
    /// count as those that were sent last, each with the time since the look that told of its send. That is the least that
    /// they can have waited, and leaving them out would hide the very stall that kept them from being acked.
    pub(super) fn add_unacked(&mut self, unacked: u64, now: Instant) {
        self.figures.unacked = unacked;
        for (waited, count) in self.latest(unacked, now, |look| look.sent) {
            self.figures.publish.record_many(waited, count);
            self.undelivered.record_many(waited, count);
        }
    }

    /// Adds records that were acked and that are not read by now, over so many groups, in the same way: they count as those
    /// that were acked last.
    pub(super) fn add_unread(&mut self, unread: u64, groups: u64, now: Instant) {
        self.figures.unread = unread;
        for (waited, count) in self.latest(unread, now, |look| look.acked.saturating_mul(groups)) {
            self.figures.end_to_end.record_many(waited, count);
        }
    }

    /// Adds records that were not delivered, what is unacked included, to the latencies of the way to the readers: each of
    /// so many groups has waited for them at least as long as their acks, or their sends, were waited for. `read` of them
    /// came all the same, over all groups, and have their latencies.
    pub(super) fn add_undelivered(&mut self, groups: u64, read: u64) {
        let missed = self.undelivered.count().saturating_mul(groups).saturating_sub(read);
        self.figures.end_to_end.merge_least(&self.undelivered, groups, missed);
    }

    /// How long ago the last looks were that told of `all` records together, each with how many it told of.
    fn latest(&self, all: u64, now: Instant, told: impl Fn(&Look) -> u64) -> Vec<(Duration, u64)> {
        let looks = self.looks.iter().rev().map(|look| (look.at, told(look)));
        // What happened before the measurement began was at least so long ago.
        let earlier = (self.begun, u64::MAX);
        let mut left = all;
        let mut latest = Vec::new();
        for (at, told) in looks.chain([earlier]) {
            let count = left.min(told);
            if count > 0 {
                latest.push((now.saturating_duration_since(at), count));
            }
            left -= count;
        }
        latest
    }

    fn add_latencies(&mut self, taken: &Taken) {
        self.figures.publish.merge(&taken.publish);
        self.figures.delay.merge(&taken.delay);
        self.figures.end_to_end.merge(&taken.end_to_end);
        self.figures.poll.merge(&taken.poll);
        self.undelivered.merge(&taken.undelivered);
    }

    fn end_period(&mut self) {
        let taken = std::mem::take(&mut self.lately);
        self.figures.periods.push(Period {
            seconds: std::mem::take(&mut self.lately_s),
            counts: taken.counts,
            publish: taken.publish.summary(),
            delay: taken.delay.summary(),
            end_to_end: taken.end_to_end.summary(),
            backlog: self.backlog,
        });
    }

    /// The figures.
    pub(super) fn finish(mut self) -> Figures {
        if self.lately_s > 0.0 && (self.lately_s >= 1.0 || self.figures.periods.is_empty()) {
            self.end_period();
        }
        self.figures
    }
}

fn summary(latencies: &Latencies) -> Option<LatencySummary> {
    (!latencies.is_empty()).then(|| latencies.summary())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(acked: u64, latency_us: u64) -> Taken {
        let mut taken = Taken::default();
        (taken.counts.sent, taken.counts.acked) = (acked, acked);
        taken.publish.record_many_us(latency_us, acked);
        taken
    }

    #[test]
    fn a_backlog_that_was_read_in_a_moment_is_noted() {
        let drained =
            |drain_s, drained| BacklogFigures { drain_s, drained, ..BacklogFigures::default() }.short_note();
        let note = drained(0.6, true).expect("a note");
        assert!(note.starts_with("the backlog was read in 0.60 s: "), "{note}");
        assert_eq!((drained(3.0, true), drained(0.6, false)), (None, None));
    }

    /// One that was told of 10, 10 and 2 records 90, 80 and 70 seconds ago; and when that is.
    fn recorder() -> (Recorder, Instant) {
        let mut recorder = Recorder::new();
        for _ in 0..2 {
            recorder.add(&taken(10, 5), 0, None);
        }
        recorder.add_late(&taken(2, 5));
        let begun = recorder.begun;
        let told: Vec<_> = recorder.looks.iter().map(|look| (look.sent, look.acked)).collect();
        assert_eq!(told, [(10, 10), (10, 10), (2, 2)]);
        for (look, at_s) in recorder.looks.iter_mut().zip([10, 20, 30]) {
            look.at = begun + Duration::from_secs(at_s);
        }
        (recorder, begun + Duration::from_secs(100))
    }

    /// The least, the median and the greatest. To three digits, and so to a tenth of a second.
    fn seconds(latencies: &Latencies) -> [u64; 3] {
        [0.0, 50.0, 100.0].map(|one| (latencies.percentile_us(one) + 500_000) / 1_000_000)
    }

    #[test]
    fn what_is_not_acked_counts_with_the_least_that_it_can_have_waited() {
        let waited = |unacked| {
            let (mut recorder, now) = recorder();
            // Those that were acked are not what this is about.
            recorder.figures.publish.clear();
            recorder.add_unacked(unacked, now);
            let figures = recorder.finish();
            assert_eq!((figures.unacked, figures.publish.count()), (unacked, unacked));
            assert!(figures.end_to_end.is_empty());
            seconds(&figures.publish)
        };
        assert_eq!(waited(0), [0; 3]);
        assert_eq!(waited(2), [70; 3]);
        assert_eq!(waited(15), [70, 80, 90], "2, 10 and 3 of them");
        assert_eq!(waited(60), [70, 100, 100], "more than were sent within the measurement");
    }

    #[test]
    fn what_nobody_has_read_counts_with_the_least_that_it_can_have_waited() {
        let waited = |unread| {
            let (mut recorder, now) = recorder();
            recorder.add_unread(unread, 2, now);
            let figures = recorder.finish();
            assert_eq!((figures.unread, figures.end_to_end.count()), (unread, unread));
            seconds(&figures.end_to_end)
        };
        assert_eq!(waited(0), [0; 3]);
        assert_eq!(waited(4), [70; 3], "both groups may miss the same two");
        assert_eq!(waited(30), [70, 80, 90], "4, 20 and 6 of them");
        assert_eq!(waited(100), [70, 100, 100], "more than were acked within the measurement");
    }

    #[test]
    fn what_was_not_delivered_was_waited_for_by_every_group_that_did_not_read_it() {
        let waited = |groups, read| {
            let (mut recorder, now) = recorder();
            let mut failed = Taken::default();
            failed.undelivered.record_many(Duration::from_secs(9), 3);
            recorder.add_late(&failed);
            recorder.add_unacked(2, now);
            recorder.add_undelivered(groups, read);
            let end_to_end = recorder.finish().end_to_end;
            (end_to_end.count(), seconds(&end_to_end))
        };
        assert_eq!(waited(2, 0), (10, [9, 9, 70]), "six that failed, and four that are unacked");
        assert_eq!(waited(2, 5), (5, [9; 3]), "what was read counts once");
        assert_eq!((waited(2, 99), waited(0, 0)), ((0, [0; 3]), (0, [0; 3])));
    }

    #[test]
    fn what_comes_after_the_end_counts_for_latencies_and_not_for_rates() {
        let mut recorder = Recorder::new();
        recorder.add(&taken(10, 5), 3, None);
        recorder.add_late(&taken(2, 9_000_000));
        let figures = recorder.finish();
        assert_eq!((figures.counts.acked, figures.late.acked), (10, 2));
        assert_eq!((figures.publish.count(), figures.publish.max_us()), (12, 9_000_000));
        assert_eq!(figures.seconds.len(), 1);
        assert_eq!(figures.periods.len(), 1, "a short run is one period");
        assert_eq!((figures.periods[0].counts.acked, figures.periods[0].backlog), (10, 3));
    }
}
