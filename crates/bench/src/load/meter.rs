//! What a sender tells whoever measures it.

use std::time::{Duration, Instant};

/// A record that a sender has made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// Its number among the records of all senders.
    pub(crate) number: u64,
    /// When it was due; none without a schedule.
    pub(crate) due: Option<Instant>,
    /// When it was handed to the client.
    pub(crate) begun: Instant,
    /// Bytes of its value.
    pub(crate) bytes: usize,
}

impl Sent {
    /// From the time at which it was due; without one, from its send: it is due when there is room for it.
    pub(crate) fn latency(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.due.unwrap_or(self.begun))
    }
}

/// Counts and measures records. What becomes of them is told on whichever thread learns of it, of many at once.
pub(crate) trait Meter<E>: Clone + Send + Sync + 'static {
    /// One is handed over now.
    fn sent(&self, sent: &Sent);

    /// These are acked now, or will never be.
    fn settled<'a>(&self, sent: impl ExactSizeIterator<Item = &'a Sent>, outcome: Result<(), &E>);

    /// The client did not even take one.
    fn refused(&self, sent: &Sent, error: E);

    /// Records that were due for so long when the orders changed, and will not be sent: how long, and how many.
    fn overdue(&self, waited: impl Iterator<Item = (Duration, u64)>);
}
