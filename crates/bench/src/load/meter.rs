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
    /// From the time at which it was due until now; without one, from its send: it is due when there is room for it.
    pub(crate) fn latency(&self) -> Duration {
        self.due.unwrap_or(self.begun).elapsed()
    }
}

/// Counts and measures records. What becomes of one is told on whichever thread learns of it.
pub(crate) trait Meter<E>: Clone + Send + 'static {
    /// It is handed over now.
    fn sent(&self, sent: &Sent);

    /// It is acked now.
    fn acked(&self, sent: &Sent);

    /// It will never be acked.
    fn failed(&self, sent: &Sent, error: E);

    /// The client did not even take it.
    fn refused(&self, sent: &Sent, error: E);

    /// Records that were due for so long when the orders changed, and will not be sent.
    fn overdue(&self, waited: impl Iterator<Item = Duration>);
}
