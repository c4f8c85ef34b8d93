//! Tasks that read records, and measure their end-to-end latencies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use riverrun_client::{ClientError, Consumer, ConsumerRecord};
use riverrun_measure::pacing::{Rate, Schedule};
use tokio::sync::watch;
use tokio::time::timeout;

use super::meter::{Meters, Received};
use crate::load::clock::{STAMP_BYTES, StampClock, read_stamp};
use crate::plan::{ConsumerPlan, Stamp};

/// Longest wait of one poll.
const POLL_MAX: Duration = Duration::from_millis(250);
/// Pause after an error, which may pass: a run that cannot read must not spin.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

/// Time between two polls while the consumer is paused.
const PAUSED_POLL_EVERY: Duration = Duration::from_millis(100);

/// Permission to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// Consumers read.
    Open,
    /// Consumers stay where they are. Their groups go on: when members join, partitions are assigned anew.
    Paused,
    /// Consumers leave.
    Closed,
}

/// Schedule of a consumer's reads.
#[derive(Debug)]
pub(super) struct Pace {
    rate: Option<Rate>,
    /// Begins with the first read: nothing is due earlier that would have to be made up for.
    schedule: Option<Schedule>,
    records: u64,
}

impl Pace {
    /// At most this many records a second.
    pub(super) fn new(rate: Option<Rate>) -> Self {
        Self { rate, schedule: None, records: 0 }
    }

    /// When the next record may be read; `None` for at once.
    fn due(&mut self) -> Option<Instant> {
        let rate = self.rate;
        self.schedule.get_or_insert_with(|| Schedule::new(Instant::now(), rate)).due(self.records)
    }
}

/// A running consumer.
///
/// Invariants: partitions may be paused only if `is_paused`.
#[derive(Debug)]
pub(super) struct Consuming {
    pub(super) consumer: Consumer,
    pub(super) pace: Pace,
    pub(super) plan: ConsumerPlan,
    pub(super) stamp: Stamp,
    pub(super) clock: StampClock,
    pub(super) meters: Arc<Meters>,
    pub(super) meter: usize,
    pub(super) gate: watch::Receiver<Gate>,
    pub(super) is_paused: bool,
    pub(super) are_polls_timed: bool,
    /// When it began to wait for the next records.
    pub(super) asked: Option<Instant>,
}

impl Consuming {
    /// Reads until the gate is closed.
    pub(super) async fn run(mut self) {
        let mut latencies = Vec::new();
        loop {
            let gate = *self.gate.borrow_and_update();
            let polled = match gate {
                Gate::Closed => break,
                Gate::Open => self.read().await,
                Gate::Paused => self.stay().await,
            };
            match polled {
                Ok(batch) => self.take(&batch, &mut latencies),
                Err(error) => {
                    self.meters.of(self.meter).error(format!("{}: {error}", self.plan.subscription));
                    tokio::time::sleep(PAUSE_AFTER_ERROR).await;
                }
            }
        }
        if let Err(error) = self.consumer.close().await {
            tracing::debug!(%error, "a consumer could not leave its group in order");
        }
    }

    /// Reads some records, when they are due; none if the gate has moved meanwhile.
    async fn read(&mut self) -> Result<Vec<ConsumerRecord>, ClientError> {
        if self.is_paused {
            self.consumer.resume(&self.consumer.assignment())?;
            self.is_paused = false;
        }
        if !wait_until(self.pace.due(), &mut self.gate).await {
            return Ok(Vec::new());
        }
        let asked = *self.asked.get_or_insert_with(Instant::now);
        let batch = tokio::select! {
            polled = self.consumer.poll(POLL_MAX) => polled?,
            _ = self.gate.changed() => Vec::new(),
        };
        self.pace.records += batch.len() as u64;
        if !batch.is_empty() {
            self.asked = None;
            if self.are_polls_timed {
                self.meters.of(self.meter).polled(asked.elapsed(), batch.len() as u64);
            }
        }
        Ok(batch)
    }

    /// Reads nothing for a moment, but polls: a member that does not poll gives up no partition, and those that join
    /// its group would wait for it as long as the gate stays as it is.
    async fn stay(&mut self) -> Result<Vec<ConsumerRecord>, ClientError> {
        (self.is_paused, self.asked) = (true, None);
        self.consumer.pause(&self.consumer.assignment())?;
        // With a timeout of zero, no partition that the group assigns meanwhile is fetched before it is paused, too.
        let batch = self.consumer.poll(Duration::ZERO).await?;
        // In both cases the gate is looked at next.
        let _ = timeout(PAUSED_POLL_EVERY, self.gate.changed()).await;
        Ok(batch)
    }

    fn take(&self, batch: &[ConsumerRecord], latencies: &mut Vec<Duration>) {
        if batch.is_empty() {
            return;
        }
        let now = self.clock.now();
        latencies.clear();
        let mut from_the_future = 0;
        // Records of a backlog have waited in the log, so that their age is no latency.
        if !self.plan.catch_up && self.stamp != Stamp::None {
            for sent_at in batch.iter().filter_map(|record| sent_at(record, self.stamp)) {
                from_the_future += u64::from(sent_at > now);
                latencies.push(now.saturating_sub(sent_at));
            }
        }
        let bytes =
            batch.iter().map(|record| record.value.as_ref().map_or(0, bytes::Bytes::len) as u64).sum();
        self.meters.of(self.meter).received(&Received {
            catch_up: self.plan.catch_up,
            records: batch.len() as u64,
            bytes,
            from_the_future,
            latencies,
        });
    }
}

/// Waits until the next record is due, at a low rate perhaps for days; false if the gate has moved meanwhile.
async fn wait_until(due: Option<Instant>, gate: &mut watch::Receiver<Gate>) -> bool {
    let Some(due) = due else { return true };
    tokio::select! {
        () = tokio::time::sleep_until(due.into()) => true,
        _ = gate.changed() => false,
    }
}

/// The due time that a record carries, if any.
fn sent_at(record: &ConsumerRecord, stamp: Stamp) -> Option<Duration> {
    let value = record.value.as_deref().unwrap_or_default();
    match stamp {
        Stamp::None => None,
        Stamp::Value => {
            read_stamp(value).or_else(|| u64::try_from(record.timestamp.0).ok().map(Duration::from_millis))
        }
        Stamp::TrogdorValue => {
            value.first_chunk::<STAMP_BYTES>().map(|place| Duration::from_millis(u64::from_le_bytes(*place)))
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use riverrun_types::{Offset, TimestampMs};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn wait_at_a_low_rate_ends_with_the_run() {
        let (gate, mut watched) = watch::channel(Gate::Open);
        let begun = tokio::time::Instant::now();
        let second = Schedule::new(Instant::now(), Rate::per_second(Rate::MIN)).due(1);
        let close = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            gate.send_replace(Gate::Closed);
        };
        let (is_due, ()) = tokio::join!(wait_until(second, &mut watched), close);
        assert!(!is_due && begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        assert!(wait_until(None, &mut watched).await, "nothing is paced");
        assert!(wait_until(Some(Instant::now()), &mut watched).await);
    }

    #[test]
    fn nothing_is_due_before_the_first_read() {
        let mut pace = Pace::new(Rate::per_second(1000.0));
        std::thread::sleep(Duration::from_millis(60));
        let opened = Instant::now();
        assert!(pace.due().is_some_and(|due| due >= opened), "60 records are none to make up for");
        pace.records = 1000;
        assert!(pace.due().is_some_and(|due| due >= opened + Duration::from_secs(1)));
    }

    #[test]
    fn record_has_its_time_in_its_value_or_its_timestamp() {
        let record = |value: &'static [u8]| ConsumerRecord {
            topic: "t".into(),
            partition: 0,
            offset: Offset(0),
            timestamp: TimestampMs(5),
            key: None,
            value: Some(Bytes::from_static(value)),
            headers: Vec::new(),
        };
        let long = record(&[0, 0, 0, 0, 0, 0, 1, 0, 9]);
        assert_eq!(sent_at(&long, Stamp::Value), Some(Duration::from_nanos(256)));
        assert_eq!(sent_at(&long, Stamp::TrogdorValue), Some(Duration::from_millis(1 << 48)));
        assert_eq!(sent_at(&long, Stamp::None), None);
        let short = record(&[1]);
        assert_eq!(sent_at(&short, Stamp::Value), Some(Duration::from_millis(5)));
        assert_eq!(sent_at(&short, Stamp::TrogdorValue), None);
    }
}
