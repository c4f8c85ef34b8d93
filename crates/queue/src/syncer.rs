//! The background's syncs: full segments as they are left, intervals where they were asked for, the synced mark,
//! and everything when the last appender of this process goes.
//!
//! Guarantees that at every level of durability the synced mark moves: so a recovery reads no more than about a
//! segment, and takes no old damage for a torn end. No append waits for any of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::QueueError;
use crate::keeper::{Duties, Orders, ROUND};
use crate::lock::Owner;
use crate::queue::Core;
use crate::sync::{sync_sealed, sync_to};

/// What the syncer's thread knows from one round to the next.
pub(crate) struct Syncer {
    core: Arc<Core>,
    owner: Owner,
    orders: Arc<Orders>,
    synced_at: Instant,
    /// Sequence of the newest synced mark that is on disk itself, and when it was put there.
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
            // A failed sync poisons the queue, which is where appenders look; anything else is tried again.
            let pause = self.round(&duties).unwrap_or(ROUND);
            std::thread::park_timeout(pause);
        }
        let _ = sync_to(&self.core, &self.owner, self.core.control.published());
        // Without it a recovery reads more.
        let _ = self.sync_mark();
    }

    /// Does what is due. Returns when the next round is.
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

    /// Writes the synced mark to disk if it has moved, so that a recovery need not read what is synced, and
    /// takes damage there for damage and not for a torn end.
    fn sync_mark(&mut self) -> Result<(), QueueError> {
        self.marked_at = Instant::now();
        let sequence = self.core.control.mark().map_or(0, |mark| mark.sequence);
        if sequence != self.mark_on_disk {
            self.core.control.sync_marks()?;
            self.mark_on_disk = sequence;
        }
        Ok(())
    }

    /// Syncs if it is time. Returns when it will be.
    fn sync(&mut self, duties: &Duties) -> Result<Duration, QueueError> {
        let Some(interval) = duties.sync_interval else { return Ok(ROUND) };
        let (published, synced) = (self.core.control.published(), self.core.control.synced());
        let waited = self.synced_at.elapsed();
        // Another process may have appended and synced between the two looks.
        let unsynced = published.saturating_sub(synced);
        if unsynced == 0 {
            // The interval begins with the first byte that is not synced, about.
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
