//! Whatever takes records: the native client, or in a test something whose every delay is known.

use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use riverrun_client::{ClientError, Delivery, Producer, RecordRef};
use tokio::runtime::Handle;

/// Takes records and tells later what became of them.
pub trait Target {
    /// A record that was taken.
    type Pending;
    /// Why a record was not taken, or not acked.
    type Error;

    /// Takes a record; may wait for room.
    fn send(&mut self, key: Option<&[u8]>, value: &[u8]) -> Result<Self::Pending, Self::Error>;

    /// When a record was acked, or why it was not; none while that is not known.
    fn poll(&mut self, pending: &mut Self::Pending) -> Option<Result<Instant, Self::Error>>;

    /// Waits until that is known.
    fn wait(&mut self, pending: Self::Pending) -> Result<Instant, Self::Error>;
}

/// A producer and the place its records go to.
#[derive(Clone, Debug)]
pub struct Lane {
    /// Whose buffer and connections they use.
    pub producer: Arc<Producer>,
    /// The topic.
    pub topic: Arc<str>,
}

/// Sends over lanes, one after the other.
///
/// Invariants: `next` is an index into `places`, of which there is at least one.
#[derive(Debug)]
pub(super) struct Lanes {
    runtime: Handle,
    places: Vec<Lane>,
    next: usize,
}

impl Lanes {
    /// Over these lanes, of which there is at least one, on a thread that is none of the runtime's.
    pub(super) fn new(runtime: Handle, lanes: Vec<Lane>) -> Self {
        assert!(!lanes.is_empty(), "a sender without a lane");
        Self { runtime, places: lanes, next: 0 }
    }
}

impl Target for Lanes {
    type Pending = Delivery;
    type Error = ClientError;

    fn send(&mut self, key: Option<&[u8]>, value: &[u8]) -> Result<Delivery, ClientError> {
        let Lane { producer, topic } = &self.places[self.next];
        self.next = (self.next + 1) % self.places.len();
        producer.send_blocking(&RecordRef { key, ..RecordRef::new(topic, value) })
    }

    fn poll(&mut self, pending: &mut Delivery) -> Option<Result<Instant, ClientError>> {
        match pin!(&mut *pending).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Some(outcome.map(|_| pending.settled_at().unwrap_or_else(Instant::now))),
            Poll::Pending => None,
        }
    }

    fn wait(&mut self, mut pending: Delivery) -> Result<Instant, ClientError> {
        self.runtime.block_on(&mut pending)?;
        Ok(pending.settled_at().unwrap_or_else(Instant::now))
    }
}
