//! Batches on their way: appended to a log, or given to a queue, and not acked yet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use riverrun_log::{AppendError, Appended, LogError};
use riverrun_protocol::ErrorCode;
use riverrun_types::Acks;
use tokio::sync::oneshot;

use crate::error::{self, BlamedRecord};
use crate::mounts::{self, NotAppended};
use crate::partitions::{AckWaiter, NotDurable, Partition};

/// A batch that a replica has taken.
#[derive(Debug)]
pub(crate) enum Staged {
    /// It has its offsets in a log.
    Log(Arc<Partition>, Appended),
    /// It waits for its turn at a queue; its offsets are not known yet.
    Queued(oneshot::Receiver<mounts::Outcome>),
}

impl Staged {
    /// The place of the batch, if it is known.
    pub(crate) fn appended(&self) -> Option<&Appended> {
        match self {
            Self::Log(_, appended) => Some(appended),
            Self::Queued(_) => None,
        }
    }

    /// Writes the batch, if neither a journal nor a queue does.
    pub(crate) fn write(&self) -> Result<(), LogError> {
        match self {
            Self::Log(partition, _) => partition.write_staged(),
            Self::Queued(_) => Ok(()),
        }
    }
}

/// Why a batch was not taken.
#[derive(Debug)]
pub(crate) struct NotStaged {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
    /// The records that are to blame.
    pub(crate) records: Vec<BlamedRecord>,
    /// The error for the server's log, if the partition is one of a log.
    pub(crate) error: Option<Box<AppendError>>,
}

impl From<AppendError> for NotStaged {
    fn from(error: AppendError) -> Self {
        Self {
            code: error::append_error(&error),
            message: error.to_string(),
            records: error::blamed_records(&error),
            error: Some(Box::new(error)),
        }
    }
}

impl From<NotAppended> for NotStaged {
    fn from(NotAppended { code, message, records }: NotAppended) -> Self {
        Self { code, message, records, error: None }
    }
}

/// The ends of a client's patience.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    /// For durability.
    durable: Instant,
    /// For a batch's turn at a queue: longer than batches before it wait for the queue's holder, however short the client's
    /// patience.
    pub(crate) turn: Instant,
    /// For the outcome of that turn, in which the batch may wait for the queue's holder once more.
    queued: Instant,
}

impl Deadlines {
    pub(crate) fn new(patience: Duration) -> Self {
        let now = Instant::now();
        let turn = patience.saturating_sub(mounts::PATIENCE).max(2 * mounts::PATIENCE);
        Self { durable: now + patience, turn: now + turn, queued: now + turn + mounts::PATIENCE }
    }
}

/// The fate of a batch.
#[derive(Debug)]
pub(crate) enum Fate {
    /// It is as durable as its acks ask.
    Acked,
    /// The same, at a place that was not known before.
    AckedAt(Appended),
    Refused(NotAppended),
    /// It could not be made durable; with the reason, if that is known.
    Lost(Option<String>),
    /// The intake thread answers no more: the server stops.
    Untold,
    /// The client waits no longer. It may still become durable.
    NotInTime,
}

fn lost(partition: &Partition) -> Fate {
    Fate::Lost(partition.log.loss_reason().map(|reason| reason.to_string()))
}

/// Batches whose fate is awaited, each with the caller's value for it.
pub(crate) struct Awaiting<T> {
    acks: Acks,
    waiter: Option<Arc<AckWaiter>>,
    logs: Vec<(T, Arc<Partition>, Appended)>,
    queued: Vec<(T, oneshot::Receiver<mounts::Outcome>)>,
}

impl<T> Awaiting<T> {
    /// Awaits the outcome that these acks ask for. With acks=0 only batches are awaited whose place is not known.
    pub(crate) fn new(acks: Acks) -> Self {
        Self { acks, waiter: None, logs: Vec::new(), queued: Vec::new() }
    }

    /// Adds a batch, or answers its fate if that is decided.
    pub(crate) fn add(&mut self, staged: Staged, of: T) -> Option<(T, Fate)> {
        let (partition, appended) = match staged {
            Staged::Log(..) if self.acks == Acks::None => return Some((of, Fate::Acked)),
            Staged::Log(partition, appended) => (partition, appended),
            Staged::Queued(outcome) => {
                self.queued.push((of, outcome));
                return None;
            }
        };
        match partition.outcome(appended, self.acks) {
            Some(Ok(())) => Some((of, Fate::Acked)),
            Some(Err(NotDurable)) => Some((of, lost(&partition))),
            None => {
                let ticket = self.logs.len() as u64;
                partition.expect_ack(appended, self.acks, ticket, self.waiter.get_or_insert_default());
                self.logs.push((of, partition, appended));
                None
            }
        }
    }

    /// Waits until the fate of every batch is decided, or the client waits no longer, and calls `tell` with each.
    pub(crate) async fn decided(self, deadlines: Deadlines, mut tell: impl FnMut(T, Fate)) {
        for (of, outcome) in self.queued {
            let fate = match tokio::time::timeout_at(deadlines.queued.into(), outcome).await {
                Ok(Ok(Ok(appended))) => Fate::AckedAt(appended),
                Ok(Ok(Err(refused))) => Fate::Refused(refused),
                Ok(Err(_)) => Fate::Untold,
                Err(_) => Fate::NotInTime,
            };
            tell(of, fate);
        }
        let Some(waiter) = self.waiter else { return };
        let in_time = tokio::time::timeout_at(deadlines.durable.into(), waiter.decided()).await.is_ok();
        for (ticket, (of, partition, appended)) in (0..).zip(self.logs) {
            if waiter.has_failed(ticket) {
                tell(of, lost(&partition));
            } else if in_time || partition.outcome(appended, self.acks) == Some(Ok(())) {
                tell(of, Fate::Acked);
            } else {
                tell(of, Fate::NotInTime);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadline_of_a_queued_batch_outlasts_its_turn() {
        for patience in [0, 1_500, 30_000].map(Duration::from_millis) {
            let now = Instant::now();
            let deadlines = Deadlines::new(patience);
            assert!(deadlines.turn + mounts::PATIENCE <= deadlines.queued);
            assert!(deadlines.turn >= now + 2 * mounts::PATIENCE && deadlines.queued >= deadlines.durable);
        }
    }
}
