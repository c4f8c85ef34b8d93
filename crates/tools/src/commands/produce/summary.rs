//! The summary of the input: counts, bytes, rate.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use riverrun_measure::text::number;
use serde::Serialize;

/// Counts while sending, and the answer after.
///
/// Invariants: `acked <= sent`; the partitions' counts sum up to `acked`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Summary {
    sent: u64,
    acked: u64,
    bytes: u64,
    seconds: f64,
    records_per_second: u64,
    partitions: BTreeMap<i32, u64>,
    #[serde(skip)]
    started: Instant,
}

impl Summary {
    pub(super) fn start() -> Self {
        Self {
            sent: 0,
            acked: 0,
            bytes: 0,
            seconds: 0.0,
            records_per_second: 0,
            partitions: BTreeMap::new(),
            started: Instant::now(),
        }
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    pub(super) fn count_sent(&mut self) {
        self.sent += 1;
    }

    pub(super) fn count_acked(&mut self, partition: i32, bytes: usize) {
        self.acked += 1;
        self.bytes += bytes as u64;
        *self.partitions.entry(partition).or_default() += 1;
    }

    pub(super) fn finish(&mut self, now: Instant) {
        let time = now.saturating_duration_since(self.started);
        self.seconds = time.as_secs_f64();
        self.records_per_second = number::per_second(self.acked, time);
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({}) to {} in {:.2} s, {} records/s",
            number::records(self.acked),
            number::bytes(self.bytes),
            number::counted(self.partitions.len(), "partition"),
            self.seconds,
            number::count(self.records_per_second),
        )?;
        match self.sent - self.acked {
            0 => Ok(()),
            lost => write!(f, "; {} sent and NOT acknowledged", number::count(lost)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn summary_counts_unacknowledged_records() {
        let mut summary = Summary::start();
        for _ in 0..3 {
            summary.count_sent();
        }
        summary.count_acked(1, 500);
        summary.count_acked(4, 500);
        summary.finish(summary.started + Duration::from_millis(500));
        let text = summary.to_string();
        assert_eq!(
            text,
            "2 records (1.0 kB) to 2 partitions in 0.50 s, 4 records/s; 1 sent and NOT acknowledged"
        );
    }
}
