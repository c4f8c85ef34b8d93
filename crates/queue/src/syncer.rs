//! The background thread that syncs: each full segment, at the intervals of `Durability::SyncEvery`, the synced
//! mark, and everything when the last appender of this process is dropped.
//!
//! Guarantees that at every durability level the synced mark moves, so that a recovery reads no more than about a
//! segment, and does not take old damage for a torn end. No append waits for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::QueueError;
use crate::keeper::{Duties, Orders, ROUND};
use crate::lock::Owner;
use crate::queue::Core;
use crate::sync::{sync_sealed, sync_to};

/// State of the syncer's thread between two rounds.
pub(crate) struct Syncer {
    core: Arc<Core>,
    owner: Owner,
    orders: Arc<Orders>,
    synced_at: Instant,
    /// Sequence of the newest synced mark that is itself on disk, and when it was written.
    mark_on_disk: u64,
    marked_at: Instant,
}

impl Syncer {
    pub(crate) fn new(core: &Arc<Core>, orders: &Arc<Orders>) -> Result<Self, QueueError> {
        Ok(Self {
            core: Arc::clone(core),
            owner: Owner::attach(&core.control)?,
            orders: Arc::clone(orders),
            synced_at: Instant::now(),
            mark_on_disk: core.control.mark().map_or(0, |mark| mark.sequence),
            marked_at: Instant::now(),
        })
    }

    pub(crate) fn run(&mut self) {
        while !self.orders.stopped() {
            let duties = *self.orders.duties();
            // A failed sync poisons the queue, where appenders see it; other errors are retried.
            let pause = self.round(&duties).unwrap_or(ROUND);
            std::thread::park_timeout(pause);
        }
        let _ = sync_to(&self.core, &self.owner, self.core.control.published());
        // If this fails, a recovery reads more.
        let _ = self.sync_mark();
    }

    /// Does the work that is due. Returns the time until the next round.
    fn round(&mut self, duties: &Duties) -> Result<Duration, QueueError> {
        let before = self.core.control.synced();
        sync_sealed(&self.core, &self.owner)?;
        let sealed = self.core.control.synced() != before;
        let pause = self.sync(duties)?;
        if sealed || self.marked_at.elapsed() >= ROUND {
            self.sync_mark()?;
        }
        Ok(pause.min(ROUND))
    }

    /// Writes the synced mark to disk if it has moved. A recovery then need not read the synced part, and recognises
    /// damage in it as damage and not as a torn end.
    fn sync_mark(&mut self) -> Result<(), QueueError> {
        self.marked_at = Instant::now();
        let sequence = self.core.control.mark().map_or(0, |mark| mark.sequence);
        if sequence != self.mark_on_disk {
            self.core.control.sync_marks()?;
            self.mark_on_disk = sequence;
        }
        Ok(())
    }

    /// Syncs if a sync is due. Returns the time until the next.
    fn sync(&mut self, duties: &Duties) -> Result<Duration, QueueError> {
        let Some(interval) = duties.sync_interval else { return Ok(ROUND) };
        let (published, synced) = (self.core.control.published(), self.core.control.synced());
        let waited = self.synced_at.elapsed();
        // Another process may have appended and synced between the two reads.
        let unsynced = published.saturating_sub(synced);
        if unsynced == 0 {
            // The interval begins at about the first unsynced byte.
            self.synced_at = Instant::now();
            return Ok(interval);
        }
        if waited < interval && unsynced < duties.sync_bytes {
            return Ok(interval.saturating_sub(waited));
        }
        sync_to(&self.core, &self.owner, published)?;
        self.synced_at = Instant::now();
        Ok(interval)
    }
}
