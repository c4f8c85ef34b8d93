//! Tasks that read records, and say how long each was on its way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use riverrun_client::{Consumer, ConsumerRecord};
use tokio::sync::watch;

use super::meter::{Meters, Received};
use crate::load::clock::{STAMP_BYTES, StampClock, read_stamp};
use crate::pacing::Schedule;
use crate::plan::{ConsumerPlan, Stamp};

/// How long one poll waits.
const POLL_MAX: Duration = Duration::from_millis(250);
/// Pause after an error: it may pass, and a run that cannot read must not be busy with that.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

/// Whether consumers read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// They do.
    Open,
    /// They stay where they are, members of their groups as before.
    Paused,
    /// They leave.
    Closed,
}

/// One consumer at work.
#[derive(Debug)]
pub(super) struct Consuming {
    pub(super) consumer: Consumer,
    pub(super) plan: ConsumerPlan,
    pub(super) stamp: Stamp,
    pub(super) clock: StampClock,
    pub(super) meters: Arc<Meters>,
    pub(super) meter: usize,
    pub(super) gate: watch::Receiver<Gate>,
}

impl Consuming {
    /// Reads until the gate is closed.
    pub(super) async fn run(mut self) {
        let schedule = Schedule::new(first_opened(&mut self.gate).await, self.plan.rate);
        let mut records = 0_u64;
        let mut latencies = Vec::new();
        loop {
            let gate = *self.gate.borrow_and_update();
            match gate {
                Gate::Closed => break,
                Gate::Open => {}
                Gate::Paused => {
                    if self.gate.changed().await.is_err() {
                        break;
                    }
                    continue;
                }
            }
            if !wait_until(schedule.due(records), &mut self.gate).await {
                continue;
            }
            let polled = tokio::select! {
                polled = self.consumer.poll(POLL_MAX) => polled,
                _ = self.gate.changed() => continue,
            };
            match polled {
                Ok(batch) => {
                    records += batch.len() as u64;
                    self.take(&batch, &mut latencies);
                }
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

    fn take(&self, batch: &[ConsumerRecord], latencies: &mut Vec<Duration>) {
        if batch.is_empty() {
            return;
        }
        let now = self.clock.now();
        latencies.clear();
        let mut from_the_future = 0;
        // What lay there for long was not on its way so long.
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

/// When it may read for the first time: until then nothing is due that it would have to make up for.
async fn first_opened(gate: &mut watch::Receiver<Gate>) -> Instant {
    // If nobody is left to open it, whoever asks next finds out.
    drop(gate.wait_for(|gate| *gate != Gate::Paused).await);
    Instant::now()
}

/// Waits until the next record is due, which at a low rate may be in days; false if the gate has moved meanwhile.
async fn wait_until(due: Option<Instant>, gate: &mut watch::Receiver<Gate>) -> bool {
    let Some(due) = due else { return true };
    tokio::select! {
        () = tokio::time::sleep_until(due.into()) => true,
        _ = gate.changed() => false,
    }
}

/// When a record was to be sent, if it tells.
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
    use crate::pacing::Rate;

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_record_of_a_low_rate_hears_that_the_run_is_over() {
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

    #[tokio::test]
    async fn nothing_is_due_before_the_gate_is_opened() {
        let (gate, mut watched) = watch::channel(Gate::Paused);
        let begun = Instant::now();
        let open = async {
            tokio::time::sleep(Duration::from_millis(60)).await;
            gate.send_replace(Gate::Open);
        };
        let (opened, ()) = tokio::join!(first_opened(&mut watched), open);
        assert!(opened - begun >= Duration::from_millis(60), "{:?}", opened - begun);
    }

    #[test]
    fn a_record_tells_its_time_in_its_value_or_else_in_its_timestamp() {
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
