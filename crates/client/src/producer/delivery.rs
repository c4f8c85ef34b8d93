//! What becomes of a record: one outcome per batch, shared by the handles of its records.
//!
//! Guarantees that every outcome is set once, and that a handle costs no allocation of its own.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use riverrun_types::{Offset, TimestampMs};

use super::record::RecordMetadata;
use crate::error::ClientError;

/// Where a batch came to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchPlace {
    /// Offset of its first record; none if the server did not say.
    pub(super) base_offset: Option<Offset>,
    /// The timestamp of all its records, where the server gives it.
    pub(super) append_time: Option<TimestampMs>,
}

#[derive(Debug)]
enum State {
    Pending(Vec<Waker>),
    Done(Result<BatchPlace, ClientError>),
}

/// The outcome of one batch.
///
/// Invariants: goes from pending to done once, and wakes everybody who waits then.
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

    /// The handle of the batch's record at this index.
    pub(super) fn delivery(self: &Arc<Self>, index: i32, timestamp: TimestampMs) -> Delivery {
        Delivery { outcome: Arc::clone(self), index, timestamp, waker: None }
    }

    /// Sets the outcome. A second call changes nothing.
    pub(super) fn set(&self, result: Result<BatchPlace, ClientError>) {
        let mut state = self.lock();
        if let State::Pending(wakers) = &mut *state {
            let wakers = std::mem::take(wakers);
            *state = State::Done(result);
            drop(state);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What becomes of one record: a future that is ready when the server has answered, or when the client gives up.
/// Dropping it does not take the record back.
#[derive(Debug)]
pub struct Delivery {
    outcome: Arc<Outcome>,
    index: i32,
    timestamp: TimestampMs,
    /// Where this handle's waker stands in the outcome's list.
    waker: Option<usize>,
}

impl Future for Delivery {
    type Output = Result<RecordMetadata, ClientError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut state = this.outcome.lock();
        match &mut *state {
            State::Done(Ok(place)) => Poll::Ready(Ok(RecordMetadata {
                topic: Arc::clone(&this.outcome.topic),
                partition: this.outcome.partition,
                offset: place.base_offset.map_or(Offset(-1), |base| base.plus(i64::from(this.index))),
                timestamp: place.append_time.unwrap_or(this.timestamp),
            })),
            State::Done(Err(error)) => Poll::Ready(Err(error.clone())),
            State::Pending(wakers) => {
                if let Some(at) = this.waker {
                    wakers[at].clone_from(context.waker());
                } else {
                    this.waker = Some(wakers.len());
                    wakers.push(context.waker().clone());
                }
                Poll::Pending
            }
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
    fn the_first_outcome_stands() {
        let outcome = Outcome::new("t".into(), 0);
        outcome.set(Err(ClientError::Closed));
        outcome.set(Ok(BatchPlace { base_offset: Some(Offset(1)), append_time: None }));
        let mut delivery = outcome.delivery(0, TimestampMs(0));
        assert!(matches!(poll(&mut delivery), Poll::Ready(Err(ClientError::Closed))));
    }
}
