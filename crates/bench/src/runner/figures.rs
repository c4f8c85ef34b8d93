//! Measurements of a run: by the second, by the ten seconds that the original reports, and in all.

use std::time::{Duration, Instant};

use riverrun_measure::histogram::{Latencies, LatencySummary};
use serde::Serialize;

use super::disk_full::DiskFullFigures;
use super::fleet::WorkerRun;
use super::groups::MemberFigures;
use super::search::FoundRate;
use crate::process::ProcessRun;
use crate::worker::{Counts, Taken};

/// Length of one period of the original's result.
const PERIOD: Duration = Duration::from_secs(10);

/// One second of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Second {
    /// When it ended, since the beginning of the measurement.
    pub at_s: f64,
    /// Its length.
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
    /// Unread records, over all groups.
    pub backlog: u64,
    /// The rate to send at; `None` if producers are not paced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted_rate: Option<f64>,
    /// Latency from the due time of a record to its ack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish: Option<LatencySummary>,
    /// Latency from the due time of a record to its reading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_to_end: Option<LatencySummary>,
}

/// Ten seconds of a run. Keeps no histograms, of which a run of hours would have thousands.
#[derive(Clone, Debug, Default)]
pub struct Period {
    /// Its length.
    pub seconds: f64,
    /// Counts of its records.
    pub counts: Counts,
    /// Latency from the due time of a record to its ack.
    pub publish: LatencySummary,
    /// Time from the due time of a record to the call of send.
    pub delay: LatencySummary,
    /// Latency from the due time of a record to its reading.
    pub end_to_end: LatencySummary,
    /// Unread records at its end.
    pub backlog: u64,
}

/// Building and reading of a backlog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BacklogFigures {
    /// Records in it when consumers began, over all groups.
    pub records: u64,
    /// Time until these were written.
    pub build_s: f64,
    /// Time from then until they were read, or the run was over.
    pub drain_s: f64,
    /// Records read in that time, over all groups.
    pub drained_records: u64,
    /// Bytes of their values.
    pub drained_bytes: u64,
    /// Whether it was read as far as the plan asks.
    pub drained: bool,
    /// Latency, from due time to ack, of records that were sent while the backlog was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish_meanwhile: Option<LatencySummary>,
}

/// Seconds below which the reading of a backlog tells little of its rate, and of its effect on others.
const DRAIN_MIN_S: f64 = 3.0;

impl BacklogFigures {
    /// A note on a backlog that was read too quickly.
    pub(super) fn short_note(&self) -> Option<String> {
        (self.drained && self.drain_s < DRAIN_MIN_S).then(|| {
            format!(
                "the backlog was read in {:.2} s: its rate, and the latencies meanwhile, are of that moment alone; a larger one (--scale) is read for longer",
                self.drain_s
            )
        })
    }
}

/// Measurements of a run.
#[derive(Debug, Default)]
pub struct Figures {
    /// Length of the measurement.
    pub test_s: f64,
    /// Counts within it.
    pub counts: Counts,
    /// Counts after it, of records that were sent within it.
    pub late: Counts,
    /// Records that were neither acked nor refused when the wait for them ended.
    pub unacked: u64,
    /// Records that were acked and not read when the wait for them ended, over all groups but those that catch up.
    pub unread: u64,
    /// Latencies from due time to ack, late acks included; unacked records count with their shortest possible wait.
    pub publish: Latencies,
    /// Times from due time to the call of send.
    pub delay: Latencies,
    /// Latencies from due time to reading, once for each group; records that were not read, or not delivered, count
    /// with their shortest possible wait.
    pub end_to_end: Latencies,
    /// Waits of consumers for the poll that brought a record, once for each record; only in runs without producers.
    pub poll: Latencies,
    /// Figures of each second.
    pub seconds: Vec<Second>,
    /// Figures of each ten seconds.
    pub periods: Vec<Period>,
    /// The members of groups; `None` without groups.
    pub members: Option<MemberFigures>,
    /// Result of the search for a rate.
    pub search: Option<FoundRate>,
    /// Figures of the backlog.
    pub backlog: Option<BacklogFigures>,
    /// Figures of the full disk.
    pub disk_full: Option<DiskFullFigures>,
    /// Use of the server's process.
    pub server: Option<ProcessRun>,
    /// Use of this process, which has all of the load unless there are workers.
    pub client: Option<ProcessRun>,
    /// Use of the workers' processes.
    pub workers: Vec<WorkerRun>,
    /// Warnings about these figures.
    pub notes: Vec<String>,
}

/// The time of a look, and the events since the look before.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    sent: u64,
    acked: u64,
}

/// Turns what workers report into figures.
///
/// Invariants:
/// - `figures` holds all that was added since `begin`.
/// - `lately` is the part of it that is in no period yet, and spans `lately_s`.
/// - `looks` has the same records as `figures`, late ones included.
/// - `undelivered` has the publish latencies of the records that were not delivered.
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

    /// Time since the measurement began.
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Adds the report at the end of a second.
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

    /// Adds a report after the measurement: its latencies count, but not in rates.
    pub(super) fn add_late(&mut self, taken: &Taken) {
        self.look(Instant::now(), &taken.counts);
        self.figures.late.add(&taken.counts);
        self.add_latencies(taken);
    }

    fn look(&mut self, at: Instant, counts: &Counts) {
        self.looks.push(Look { at, sent: counts.sent, acked: counts.acked });
    }

    /// Adds records that were sent and are neither acked nor refused by now. Nobody knows which ones these are: they
    /// count as the ones sent last, each with the time since the look that reported its send. That is their shortest
    /// possible wait. Leaving them out would hide the very stall that kept them from being acked.
    pub(super) fn add_unacked(&mut self, unacked: u64, now: Instant) {
        self.figures.unacked = unacked;
        for (waited, count) in self.latest(unacked, now, |look| look.sent) {
            self.figures.publish.record_many(waited, count);
            self.undelivered.record_many(waited, count);
        }
    }

    /// Adds records that were acked and are not read by now, over `groups` groups, in the same way: they count as the
    /// ones acked last.
    pub(super) fn add_unread(&mut self, unread: u64, groups: u64, now: Instant) {
        self.figures.unread = unread;
        for (waited, count) in self.latest(unread, now, |look| look.acked.saturating_mul(groups)) {
            self.figures.end_to_end.record_many(waited, count);
        }
    }

    /// Adds records that were not delivered, unacked ones included, to the end-to-end latencies. Each of the groups has
    /// waited for them at least as long as the producers waited for their acks, or for their sends. `read` of them,
    /// over all groups, were read all the same, and have latencies.
    pub(super) fn add_undelivered(&mut self, groups: u64, read: u64) {
        let missed = self.undelivered.count().saturating_mul(groups).saturating_sub(read);
        self.figures.end_to_end.merge_least(&self.undelivered, groups, missed);
    }

    /// The latest looks that reported `all` records together: how long ago each was, and how many records it counts
    /// for.
    fn latest(&self, all: u64, now: Instant, told: impl Fn(&Look) -> u64) -> Vec<(Duration, u64)> {
        let looks = self.looks.iter().rev().map(|look| (look.at, told(look)));
        // Events before the measurement began lie at least as long ago.
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
    fn backlog_that_was_read_too_quickly_is_noted() {
        let drained =
            |drain_s, drained| BacklogFigures { drain_s, drained, ..BacklogFigures::default() }.short_note();
        let note = drained(0.6, true).expect("a note");
        assert!(note.starts_with("the backlog was read in 0.60 s: "), "{note}");
        assert_eq!((drained(3.0, true), drained(0.6, false)), (None, None));
    }

    /// A recorder that took 10, 10 and 2 records 90, 80 and 70 seconds ago, and the time now.
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

    /// The shortest, the median and the longest. Three digits are kept, so they are exact to a tenth of a second.
    fn seconds(latencies: &Latencies) -> [u64; 3] {
        [0.0, 50.0, 100.0].map(|one| (latencies.percentile_us(one) + 500_000) / 1_000_000)
    }

    #[test]
    fn unacked_records_count_with_their_shortest_wait() {
        let waited = |unacked| {
            let (mut recorder, now) = recorder();
            // Drops the latencies of the acked records, which this test is not about.
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
    fn unread_records_count_with_their_shortest_wait() {
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
    fn undelivered_records_count_for_each_missing_group() {
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
        assert_eq!(waited(2, 5), (5, [9; 3]), "a record that was read counts once");
        assert_eq!((waited(2, 99), waited(0, 0)), ((0, [0; 3]), (0, [0; 3])));
    }

    #[test]
    fn late_records_count_for_latencies_but_not_for_rates() {
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
