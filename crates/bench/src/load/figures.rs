//! Outcomes of the records of an interval: counts and latencies.

use std::time::Duration;

use riverrun_measure::histogram::Latencies;

/// Acked records with their latencies, and failed records with the time that they waited.
///
/// Invariants: `from_send` counts all of `records` and `failed`, and `from_due` those of them that were paced.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Number of acked records.
    pub records: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Number of records that were not acked and never will be.
    pub failed: u64,
    /// Latencies from the due time.
    from_due: Latencies,
    /// Latencies from the call of send.
    from_send: Latencies,
}

impl Figures {
    /// Adds a record that was acked.
    pub fn record(&mut self, bytes: u64, from_due: Option<Duration>, from_send: Duration) {
        self.records += 1;
        self.bytes += bytes;
        self.waited(from_due, from_send);
    }

    /// Adds a failed record: it counts in no rate, and in the latencies with the time that it waited.
    pub fn fail(&mut self, from_due: Option<Duration>, from_send: Duration) {
        self.failed += 1;
        self.waited(from_due, from_send);
    }

    fn waited(&mut self, from_due: Option<Duration>, from_send: Duration) {
        self.from_send.record(from_send);
        if let Some(from_due) = from_due {
            self.from_due.record(from_due);
        }
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.records += other.records;
        self.bytes += other.bytes;
        self.failed += other.failed;
        self.from_due.merge(&other.from_due);
        self.from_send.merge(&other.from_send);
    }

    /// Latencies from the due time if the records were paced, else from the call of send.
    pub fn latency(&self) -> &Latencies {
        if self.is_paced() { &self.from_due } else { &self.from_send }
    }

    /// Latencies from the call of send, as measured by tools that leave out the wait before it.
    pub fn latency_from_send(&self) -> &Latencies {
        &self.from_send
    }

    /// Whether the records were paced.
    pub fn is_paced(&self) -> bool {
        !self.from_due.is_empty()
    }
}

/// Outcomes since the last look.
#[derive(Clone, Debug, Default)]
pub struct Interval {
    /// Records of the warm-up.
    pub warmup: Figures,
    /// All other records.
    pub steady: Figures,
    /// Records that were handed to the client.
    pub handed_over: u64,
}

impl Interval {
    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.warmup.merge(&other.warmup);
        self.steady.merge(&other.steady);
        self.handed_over += other.handed_over;
    }

    /// Warm-up and the rest together.
    pub fn all(&self) -> Figures {
        let mut all = self.warmup.clone();
        all.merge(&self.steady);
        all
    }

    /// Records that were acked.
    pub fn acked(&self) -> u64 {
        self.warmup.records + self.steady.records
    }

    /// Records that were not acked and never will be.
    pub fn failed(&self) -> u64 {
        self.warmup.failed + self.steady.failed
    }
}

/// Records read since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadInterval {
    /// Records.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn paced_record_has_both_latencies_and_unpaced_one() {
        let (mut paced, mut unpaced) = (Figures::default(), Figures::default());
        paced.record(10, Some(9 * MS), 2 * MS);
        unpaced.record(10, None, 2 * MS);
        assert_eq!((paced.latency().max_us(), paced.latency_from_send().max_us()), (9000, 2000));
        assert_eq!((unpaced.latency().max_us(), unpaced.latency_from_send().max_us()), (2000, 2000));
    }

    #[test]
    fn intervals_add_up() {
        let mut sum = Interval::default();
        for _ in 0..3 {
            let mut one = Interval { handed_over: 5, ..Interval::default() };
            one.warmup.record(1, None, MS);
            one.warmup.fail(None, 4 * MS);
            one.steady.record(2, None, 3 * MS);
            sum.merge(&one);
        }
        assert_eq!((sum.acked(), sum.failed(), sum.handed_over), (6, 3, 15));
        let all = sum.all();
        assert_eq!((all.records, all.bytes, all.failed), (6, 9, 3));
        assert_eq!((all.latency().count(), all.latency().max_us()), (9, 4000), "failed ones waited, too");
    }
}
