//! The outcomes that a sender reports to its meter.

use std::time::{Duration, Instant};

/// A record that a sender has made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// Its number among the records of all senders.
    pub(crate) number: u64,
    /// When it was due; `None` without a schedule.
    pub(crate) due: Option<Instant>,
    /// When it was handed to the client.
    pub(crate) begun: Instant,
    /// Bytes of its value.
    pub(crate) bytes: usize,
}

impl Sent {
    /// Latency from the due time; without one, from the call of send: an unpaced record is due when there is room for
    /// it.
    pub(crate) fn latency(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.due.unwrap_or(self.begun))
    }
}

/// Counts and measures records. Outcomes of many records come at once, on the thread that learns of them.
pub(crate) trait Meter<E>: Clone + Send + Sync + 'static {
    /// A record is handed to the client now.
    fn sent(&self, sent: &Sent);

    /// These records are acked now, or never will be.
    fn decided<'a>(&self, sent: impl ExactSizeIterator<Item = &'a Sent>, outcome: Result<(), &E>);

    /// The client refused a record at once.
    fn refused(&self, sent: &Sent, error: E);

    /// Records that were due when the orders changed, and will not be sent: their waits, and how many waited as long.
    fn overdue(&self, waited: impl Iterator<Item = (Duration, u64)>);
}
