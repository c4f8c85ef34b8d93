//! The outcome of a record: one outcome per batch, shared by the handles of its records.
//!
//! Guarantees that every outcome is set once, and that a handle costs no allocation of its own. A batch that is split
//! passes its handles on to its parts.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use riverrun_types::{Offset, TimestampMs};

use super::listener::RecordPlace;
use super::record::RecordMetadata;
use crate::error::ClientError;

/// The place of a delivered batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchPlace {
    /// Offset of its first record; `None` if the server did not send it.
    pub(super) base_offset: Option<Offset>,
    /// The log append time of all its records, where the server sets it.
    pub(super) append_time: Option<TimestampMs>,
}

#[derive(Debug)]
enum State {
    Pending(Vec<Waker>),
    /// The batch was split; `at` is the index of the second part's first record.
    Split {
        first: Arc<Outcome>,
        second: Arc<Outcome>,
        at: i32,
    },
    Done {
        result: Result<BatchPlace, ClientError>,
        since: Instant,
    },
}

/// The outcome of one batch.
///
/// Invariants: goes from pending to done or split once, and wakes all waiting handles then.
#[derive(Debug)]
pub(super) struct Outcome {
    topic: Arc<str>,
    partition: i32,
    state: Mutex<State>,
}

impl Outcome {
    pub(super) fn new(topic: Arc<str>, partition: i32) -> Arc<Self> {
        Arc::new(Self { topic, partition, state: Mutex::new(State::Pending(Vec::new())) })
    }

    pub(super) fn topic(&self) -> &Arc<str> {
        &self.topic
    }

    /// The handle of the batch's record at this index.
    pub(super) fn delivery(self: &Arc<Self>, index: i32, timestamp: TimestampMs) -> Delivery {
        Delivery { outcome: Arc::clone(self), index, timestamp, waker: None }
    }

    /// Sets the outcome. A second call changes nothing.
    pub(super) fn set(&self, result: Result<BatchPlace, ClientError>) {
        self.leave_pending(State::Done { result, since: Instant::now() });
    }

    /// Replaces this outcome by two, the second from record `at` on.
    pub(super) fn split(&self, at: i32) -> (Arc<Self>, Arc<Self>) {
        let part = || Self::new(Arc::clone(&self.topic), self.partition);
        let (first, second) = (part(), part());
        self.leave_pending(State::Split { first: Arc::clone(&first), second: Arc::clone(&second), at });
        (first, second)
    }

    fn leave_pending(&self, next: State) {
        let mut state = self.lock();
        if let State::Pending(wakers) = &mut *state {
            let wakers = std::mem::take(wakers);
            *state = next;
            drop(state);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// The outcome of one record, from that of its batch.
    pub(super) fn of_record(
        &self,
        result: &Result<BatchPlace, ClientError>,
        record: RecordPlace,
    ) -> Result<RecordMetadata, ClientError> {
        let place = result.as_ref().map_err(Clone::clone)?;
        Ok(RecordMetadata {
            topic: Arc::clone(&self.topic),
            partition: self.partition,
            offset: place.base_offset.map_or(Offset(-1), |base| base.plus(i64::from(record.index))),
            timestamp: place.append_time.unwrap_or(record.timestamp),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The outcome of one record: a future that completes when the server has answered, or when the client gives up, and
/// when those of the partition's earlier records are complete. Dropping it does not take the record back.
#[derive(Debug)]
pub struct Delivery {
    outcome: Arc<Outcome>,
    index: i32,
    timestamp: TimestampMs,
    /// Index of this handle's waker in the outcome's list.
    waker: Option<usize>,
}

impl Delivery {
    /// When the outcome became available, after those of the partition's earlier records, however much later the
    /// future is polled; `None` before [`poll`](Self::poll) has returned it.
    pub fn completed_at(&self) -> Option<Instant> {
        match &*self.outcome.lock() {
            State::Done { since, .. } => Some(*since),
            State::Pending(_) | State::Split { .. } => None,
        }
    }
}

impl Future for Delivery {
    type Output = Result<RecordMetadata, ClientError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            let mut state = this.outcome.lock();
            let (part, index) = match &mut *state {
                State::Done { result, .. } => {
                    let place = RecordPlace { index: this.index, timestamp: this.timestamp };
                    return Poll::Ready(this.outcome.of_record(result, place));
                }
                State::Pending(wakers) => {
                    if let Some(at) = this.waker {
                        wakers[at].clone_from(context.waker());
                    } else {
                        this.waker = Some(wakers.len());
                        wakers.push(context.waker().clone());
                    }
                    return Poll::Pending;
                }
                State::Split { first, at, .. } if this.index < *at => (Arc::clone(first), this.index),
                State::Split { second, at, .. } => (Arc::clone(second), this.index - *at),
            };
            drop(state);
            (this.outcome, this.index, this.waker) = (part, index, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(delivery: &mut Delivery) -> Poll<Result<RecordMetadata, ClientError>> {
        Pin::new(delivery).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_record_lies_at_its_index_after_the_batch_s_first() {
        let outcome = Outcome::new("t".into(), 3);
        let mut delivery = outcome.delivery(2, TimestampMs(7));
        assert!(poll(&mut delivery).is_pending());
        outcome.set(Ok(BatchPlace { base_offset: Some(Offset(40)), append_time: None }));
        let Poll::Ready(Ok(metadata)) = poll(&mut delivery) else { panic!("not delivered") };
        let expected =
            RecordMetadata { topic: "t".into(), partition: 3, offset: Offset(42), timestamp: TimestampMs(7) };
        assert_eq!(metadata, expected);
    }

    #[test]
    fn the_time_of_the_outcome_is_not_that_of_the_question() {
        let outcome = Outcome::new("t".into(), 0);
        let mut delivery = outcome.delivery(0, TimestampMs(0));
        assert_eq!(delivery.completed_at(), None);
        outcome.set(Err(ClientError::Closed));
        let after = Instant::now();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(poll(&mut delivery).is_ready());
        assert!(delivery.completed_at().is_some_and(|at| at <= after));
    }

    #[test]
    fn the_first_outcome_stands() {
        let outcome = Outcome::new("t".into(), 0);
        outcome.set(Err(ClientError::Closed));
        outcome.set(Ok(BatchPlace { base_offset: Some(Offset(1)), append_time: None }));
        let mut delivery = outcome.delivery(0, TimestampMs(0));
        assert!(matches!(poll(&mut delivery), Poll::Ready(Err(ClientError::Closed))));
    }

    #[test]
    fn the_handles_of_a_batch_that_was_split_follow_their_records() {
        let outcome = Outcome::new("t".into(), 0);
        let mut handles: Vec<Delivery> =
            (0..3).map(|index| outcome.delivery(index, TimestampMs(0))).collect();
        assert!(handles.iter_mut().all(|handle| poll(handle).is_pending()));
        let (first, second) = outcome.split(1);
        assert!(handles.iter_mut().all(|handle| poll(handle).is_pending()));
        second.set(Ok(BatchPlace { base_offset: Some(Offset(50)), append_time: None }));
        first.set(Err(ClientError::Closed));
        assert!(matches!(poll(&mut handles[0]), Poll::Ready(Err(ClientError::Closed))));
        for (handle, offset) in handles[1..].iter_mut().zip([50, 51]) {
            assert!(matches!(poll(handle), Poll::Ready(Ok(metadata)) if metadata.offset == Offset(offset)));
        }
    }
}
