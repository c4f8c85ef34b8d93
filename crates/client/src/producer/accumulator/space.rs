//! The bound on buffered bytes: how much of `buffer.memory` is free, and which senders wait for it.
//!
//! Guarantees that senders wait while the whole buffer is taken, by records or by the memory that batches need
//! besides. A sender waits for its record's room. The room of a new batch is known only when the record is put into
//! one, under a lock, so it is taken at once, and owed if it is not free.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::{Notify, Semaphore, TryAcquireError};
use tokio::time::Instant;

use crate::error::ClientError;
use crate::producer::exchange::in_us;

/// Most parts in which room is given back while senders wait for it.
const LUMPS: usize = 16;

/// The room of a producer's buffer.
///
/// Invariants: `free` has as many permits as bytes are free, except those in `freed`. While bytes are `owed`,
/// returned bytes pay for them first, so that more than `total_bytes` are taken only by as many batches as senders
/// had room for a record at once.
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

    /// Takes so many bytes if they are free, and returns whether they were.
    pub(super) fn try_take(&self, bytes: usize) -> Result<bool, ClientError> {
        match self.free.try_acquire_many(u32::try_from(bytes).unwrap_or(u32::MAX)) {
            Ok(permit) => permit.forget(),
            Err(TryAcquireError::NoPermits) => return Ok(false),
            Err(TryAcquireError::Closed) => return Err(ClientError::Closed),
        }
        Ok(true)
    }

    /// Takes them when they are free. Notifies `wake` of a waiting sender.
    pub(super) async fn take(&self, bytes: usize, wake: &Notify) -> Result<(), ClientError> {
        let _waiting = Waiting::new(self);
        wake.notify_one();
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.free.acquire_many(permits).await.map_err(|_| ClientError::Closed)?.forget();
        Ok(())
    }

    /// Ends all waits for room, and refuses new ones.
    pub(super) fn close(&self) {
        self.free.close();
    }

    /// Takes them now: bytes that are not free are owed.
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

    /// Pays owed bytes, and returns how many.
    fn pay(&self, bytes: usize) -> usize {
        let rest = |owed: usize| Some(owed.saturating_sub(bytes));
        let owed = self.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        owed.unwrap_or_default().min(bytes)
    }

    /// Gives the bytes of a batch back. While senders wait for room, bytes come in lumps: a sender woken for every
    /// batch would sleep again after a few records. The sender task gives the rest back with
    /// [`give_back_freed`](Self::give_back_freed).
    pub(super) fn free(&self, bytes: usize) {
        let freed = self.freed.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if freed >= self.lump_bytes() || !self.is_short() {
            self.give_back_freed();
        }
    }

    /// Freed bytes that were not given back yet.
    pub(super) fn freed_bytes(&self) -> usize {
        self.freed.load(Ordering::Relaxed)
    }

    /// Gives back freed bytes.
    pub(super) fn give_back_freed(&self) {
        self.give_back(self.freed.swap(0, Ordering::Relaxed));
    }

    /// Bytes of one lump.
    pub(super) fn lump_bytes(&self) -> usize {
        self.total_bytes / LUMPS
    }

    /// True if senders wait.
    pub(super) fn is_short(&self) -> bool {
        self.waiting() > 0
    }

    /// Senders that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Total waiting time of all senders, in microseconds.
    pub(super) fn wait_us(&self) -> u64 {
        self.wait_us.load(Ordering::Relaxed)
    }

    /// Free bytes.
    pub(super) fn free_bytes(&self) -> usize {
        let free = self.free.available_permits() + self.freed_bytes();
        free.saturating_sub(self.owed.load(Ordering::Relaxed))
    }
}

/// Counts a sender that waits for room, until it is dropped.
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
    async fn owed_bytes_are_paid_before_senders_get_room() {
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
