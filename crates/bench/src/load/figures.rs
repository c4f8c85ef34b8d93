//! What became of the records in some time: counts and latencies.

use std::time::Duration;

use riverrun_measure::histogram::Latencies;

/// Records that were acked, and how long that took; of those that failed, how long they waited until then.
///
/// Invariants: `from_send` counts all of `records` and `failed`, and `from_due` those of them that had a time to be sent at.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// How many were acked.
    pub records: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// How many were not acked and never will be.
    pub failed: u64,
    /// From the time at which they were due.
    from_due: Latencies,
    /// From the call that handed them to the client.
    from_send: Latencies,
}

impl Figures {
    /// Adds a record that was acked.
    pub fn record(&mut self, bytes: u64, from_due: Option<Duration>, from_send: Duration) {
        self.records += 1;
        self.bytes += bytes;
        self.waited(from_due, from_send);
    }

    /// Adds a record that failed: it is in no rate, and in the latencies with what it has waited.
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

    /// From the time at which a record was due where it was paced, else from the call that handed it over.
    pub fn latency(&self) -> &Latencies {
        if self.is_paced() { &self.from_due } else { &self.from_send }
    }

    /// From the call that handed a record over: what tools measure that do not count the wait before it.
    pub fn latency_from_send(&self) -> &Latencies {
        &self.from_send
    }

    /// Whether records had a time to be sent at.
    pub fn is_paced(&self) -> bool {
        !self.from_due.is_empty()
    }
}

/// What happened since somebody last looked.
#[derive(Clone, Debug, Default)]
pub struct Interval {
    /// Of the records that warm up.
    pub warmup: Figures,
    /// Of all others.
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

/// What was read since somebody last looked.
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
    fn a_paced_record_has_both_latencies_and_an_unpaced_one_the_one_from_its_send() {
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
        assert_eq!((all.latency().count(), all.latency().max_us()), (9, 4000), "what failed has waited, too");
    }
}
