//! The bound on buffered bytes: what of `buffer.memory` is free, and who waits for it.
//!
//! Guarantees that senders wait while as much is taken as may be, whatever takes it: records, and the memory that a batch
//! has beside them. A record's room is waited for; that of its batch is known only when the record is put into one, under
//! a lock, so it is taken at once, and is owed where it is not there.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::{Notify, Semaphore, TryAcquireError};
use tokio::time::Instant;

use crate::error::ClientError;
use crate::producer::exchange::in_us;

/// Room is given back in so many parts at most while somebody waits for it.
const LUMPS: usize = 16;

/// The room of a producer's buffer.
///
/// Invariants: `free` has as many permits as bytes are free, but for those in `freed`. While something is `owed`, what comes
/// back pays for that first, so that more than `total_bytes` are taken only by as many batches as senders had room for a
/// record at once.
#[derive(Debug)]
pub(super) struct Space {
    total_bytes: usize,
    free: Semaphore,
    owed: AtomicUsize,
    freed: AtomicUsize,
    waiting: AtomicUsize,
    wait_us: AtomicU64,
}

impl Space {
    pub(super) fn new(total_bytes: usize) -> Self {
        Self {
            total_bytes,
            // No machine has more memory than that.
            free: Semaphore::new(total_bytes.min(Semaphore::MAX_PERMITS)),
            owed: AtomicUsize::new(0),
            freed: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            wait_us: AtomicU64::new(0),
        }
    }

    /// Takes so many bytes if they are free, and says whether they were.
    pub(super) fn try_take(&self, bytes: usize) -> Result<bool, ClientError> {
        match self.free.try_acquire_many(u32::try_from(bytes).unwrap_or(u32::MAX)) {
            Ok(permit) => permit.forget(),
            Err(TryAcquireError::NoPermits) => return Ok(false),
            Err(TryAcquireError::Closed) => return Err(ClientError::Closed),
        }
        Ok(true)
    }

    /// Takes them when they are free. Tells `wake` that somebody waits.
    pub(super) async fn take(&self, bytes: usize, wake: &Notify) -> Result<(), ClientError> {
        let _waiting = Waiting::new(self);
        wake.notify_one();
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.free.acquire_many(permits).await.map_err(|_| ClientError::Closed)?.forget();
        Ok(())
    }

    /// Has nobody take any more of it, and nobody wait.
    pub(super) fn close(&self) {
        self.free.close();
    }

    /// Takes them now: what is not free is owed.
    pub(super) fn take_at_once(&self, bytes: usize) {
        let missing = bytes - self.free.forget_permits(bytes);
        if missing > 0 {
            self.owed.fetch_add(missing, Ordering::Relaxed);
        }
    }

    /// Gives bytes back.
    pub(super) fn give_back(&self, bytes: usize) {
        let paid = match self.owed.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.pay(bytes),
        };
        self.free.add_permits(bytes - paid);
    }

    /// Pays what is owed, and answers with how many of these bytes.
    fn pay(&self, bytes: usize) -> usize {
        let rest = |owed: usize| Some(owed.saturating_sub(bytes));
        let owed = self.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        owed.unwrap_or_default().min(bytes)
    }

    /// Gives the bytes of a batch back. While somebody waits for room they come in lumps: who was woken up for every batch
    /// would be asleep again after a few records. The sender sees to what is left with [`give_back_freed`](Self::give_back_freed).
    pub(super) fn free(&self, bytes: usize) {
        let freed = self.freed.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if freed >= self.lump_bytes() || !self.is_short() {
            self.give_back_freed();
        }
    }

    /// Bytes that were freed and not given back yet.
    pub(super) fn freed_bytes(&self) -> usize {
        self.freed.load(Ordering::Relaxed)
    }

    /// Gives back what was freed.
    pub(super) fn give_back_freed(&self) {
        self.give_back(self.freed.swap(0, Ordering::Relaxed));
    }

    /// Bytes of one lump.
    pub(super) fn lump_bytes(&self) -> usize {
        self.total_bytes / LUMPS
    }

    /// Whether somebody waits.
    pub(super) fn is_short(&self) -> bool {
        self.waiting() > 0
    }

    /// Senders that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// For how long senders have waited, all together, in microseconds.
    pub(super) fn wait_us(&self) -> u64 {
        self.wait_us.load(Ordering::Relaxed)
    }

    /// Bytes that nothing has taken.
    pub(super) fn free_bytes(&self) -> usize {
        let free = self.free.available_permits() + self.freed_bytes();
        free.saturating_sub(self.owed.load(Ordering::Relaxed))
    }
}

/// Counts a sender that waits for room, for as long as it does.
struct Waiting<'a> {
    space: &'a Space,
    since: Instant,
}

impl<'a> Waiting<'a> {
    fn new(space: &'a Space) -> Self {
        space.waiting.fetch_add(1, Ordering::Relaxed);
        Self { space, since: Instant::now() }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.space.waiting.fetch_sub(1, Ordering::Relaxed);
        self.space.wait_us.fetch_add(in_us(self.since.elapsed()), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn what_is_owed_is_paid_before_anybody_gets_room() {
        let (space, wake) = (Space::new(100), Notify::new());
        assert!(matches!(space.try_take(40), Ok(true)));
        space.take_at_once(90);
        assert_eq!(space.free_bytes(), 0);
        let mut waiting = Box::pin(space.take(10, &wake));
        assert!(waiting.as_mut().now_or_never().is_none());
        space.give_back(35);
        assert!(waiting.as_mut().now_or_never().is_none(), "30 of them were owed");
        space.give_back(5);
        assert!(waiting.now_or_never().is_some());
        assert_eq!(space.free_bytes(), 0);
        space.give_back(100);
        assert_eq!(space.free_bytes(), 100);
    }
}
