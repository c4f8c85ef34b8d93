//! The marks of a partition's log that its users watch: its watermarks, and its losses.
//!
//! Watermarks are read without a lock. A loss is an append that had got its offsets and will never be in the log; the
//! offsets are given again. A caller that waits for a watermark to pass its records asks about losses too.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Weak;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};

use parking_lot::Mutex;
use riverrun_types::{DurabilityLevel, Offset, Watermarks};

/// Losses that are remembered one by one. An append from before the oldest one counts as lost.
const LOSSES_MAX: usize = 64;

/// Called when a log's watermarks move, and at losses.
pub trait LogObserver: Send + Sync {
    /// Watermarks have moved. May be called by the journal's thread: it must neither block nor append.
    fn advanced(&self);

    /// Appends that do not lie below the watermarks yet are lost: see [`super::PartitionLog::is_lost`]. The same rules
    /// as for [`Self::advanced`].
    fn failed(&self);
}

/// A loss, and the end of the log's intact part at that time.
#[derive(Clone, Copy, Debug)]
struct Loss {
    /// The count of losses before it.
    number: u64,
    end: Offset,
}

/// The marks that a partition's handle and its open log share; they outlive both opening and closing.
///
/// Invariants: `synced` never passes `appended` for their readers; neither goes back while the process lives, except in
/// a cut of the log.
pub(super) struct Marks {
    appended: AtomicI64,
    synced: AtomicI64,
    /// The level reached, 1 to 4; 0 if the log was never opened.
    level: AtomicU8,
    /// The level that the options ask for, 1 to 4.
    wanted: AtomicU8,
    loss_count: AtomicU64,
    losses: Mutex<VecDeque<Loss>>,
    observer: Mutex<Option<Weak<dyn LogObserver>>>,
}

impl Marks {
    pub(super) fn new(wanted: DurabilityLevel) -> Self {
        Self {
            appended: AtomicI64::new(0),
            synced: AtomicI64::new(0),
            level: AtomicU8::new(0),
            wanted: AtomicU8::new(wanted.number()),
            loss_count: AtomicU64::new(0),
            losses: Mutex::default(),
            observer: Mutex::new(None),
        }
    }

    pub(super) fn read(&self) -> Watermarks {
        // MARKS: published. `synced` first: it never passes what `appended` is by then, unless the log is cut just now.
        let synced = Offset(self.synced.load(Ordering::Acquire));
        let appended = Offset(self.appended.load(Ordering::Acquire));
        Watermarks { synced: synced.min(appended), appended }
    }

    /// The log ends at `end` now. No other thread moves the marks meanwhile.
    pub(super) fn cut_to(&self, end: Offset) {
        // MARKS: published.
        self.synced.fetch_min(end.0, Ordering::Release);
        self.appended.fetch_min(end.0, Ordering::Release);
    }

    /// The log reaches up to `end`. Readers can read everything below when this is called.
    pub(super) fn append_to(&self, end: Offset) {
        // MARKS: published.
        self.appended.fetch_max(end.0, Ordering::Release);
    }

    /// Everything below `end` is synced, and appended.
    pub(super) fn sync_to(&self, end: Offset) {
        // MARKS: published.
        self.synced.fetch_max(end.0, Ordering::Release);
    }

    /// The level that appends reach now.
    pub(super) fn level(&self) -> Option<DurabilityLevel> {
        level_of(self.level.load(Ordering::Acquire))
    }

    pub(super) fn set_level(&self, level: DurabilityLevel) {
        self.level.store(level.number(), Ordering::Release);
    }

    /// The options ask for this level from now on.
    pub(super) fn want_level(&self, level: DurabilityLevel) {
        self.wanted.store(level.number(), Ordering::Release);
    }

    /// The level that acks have to keep now: the wanted one if it syncs, whether or not it is reached; else the reached
    /// one.
    pub(super) fn level_promised(&self) -> Option<DurabilityLevel> {
        let wanted = level_of(self.wanted.load(Ordering::Acquire));
        wanted.filter(|level| level.syncs_locally()).or_else(|| self.level()).or(wanted)
    }

    /// Number of losses so far.
    pub(super) fn loss_count(&self) -> u64 {
        self.loss_count.load(Ordering::Acquire)
    }

    /// Everything that had got its offsets and lies at `end` or above is lost.
    pub(super) fn lose_from(&self, end: Offset) {
        let mut losses = self.losses.lock();
        let number = self.loss_count.load(Ordering::Relaxed);
        if losses.len() == LOSSES_MAX {
            losses.pop_front();
        }
        losses.push_back(Loss { number, end });
        self.loss_count.store(number + 1, Ordering::Release);
    }

    /// Whether records that ended at `next_offset`, and got their offsets after `loss_count` losses, are lost.
    pub(super) fn is_lost(&self, loss_count: u64, next_offset: Offset) -> bool {
        if self.loss_count() == loss_count {
            return false;
        }
        let losses = self.losses.lock();
        // The first loss after the append decides: below its end the append was in the log by then.
        let first = losses.iter().find(|loss| loss.number >= loss_count);
        first.is_none_or(|loss| loss.number > loss_count || next_offset > loss.end)
    }

    pub(super) fn observe(&self, observer: Weak<dyn LogObserver>) {
        *self.observer.lock() = Some(observer);
    }

    /// Tells the observer that watermarks have moved. The caller holds none of the log's locks.
    pub(super) fn tell_advanced(&self) {
        if let Some(observer) = self.observer() {
            observer.advanced();
        }
    }

    /// Tells the observer of a loss. The caller holds none of the log's locks.
    pub(super) fn tell_failed(&self) {
        if let Some(observer) = self.observer() {
            observer.failed();
        }
    }

    fn observer(&self) -> Option<std::sync::Arc<dyn LogObserver>> {
        self.observer.lock().as_ref().and_then(Weak::upgrade)
    }
}

fn level_of(number: u8) -> Option<DurabilityLevel> {
    match number {
        1 => Some(DurabilityLevel::SyncSync),
        2 => Some(DurabilityLevel::SyncAsync),
        3 => Some(DurabilityLevel::AsyncSync),
        4 => Some(DurabilityLevel::AsyncAsync),
        _ => None,
    }
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Marks")
            .field("marks", &self.read())
            .field("level", &self.level())
            .field("loss_count", &self.loss_count())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_from_before_a_loss_and_repeated_ones_are_not_lost() {
        let marks = Marks::new(DurabilityLevel::AsyncAsync);
        assert!(!marks.is_lost(0, Offset(100)));
        marks.lose_from(Offset(10));
        assert!(!marks.is_lost(0, Offset(10)), "it ends where the log was intact");
        assert!(marks.is_lost(0, Offset(11)));
        assert!(!marks.is_lost(1, Offset(11)), "the same offsets, given again");
        marks.lose_from(Offset(20));
        assert!(!marks.is_lost(1, Offset(15)));
        assert!(marks.is_lost(0, Offset(11)) && !marks.is_lost(0, Offset(10)));
    }

    #[test]
    fn promised_level_is_the_wanted_one_if_it_syncs_else_the_other() {
        use DurabilityLevel::{AsyncAsync, AsyncSync, SyncAsync, SyncSync};
        for (reached, wanted, promised) in [
            (None, SyncSync, SyncSync),
            (None, AsyncAsync, AsyncAsync),
            (Some(AsyncAsync), SyncSync, SyncSync),
            (Some(SyncAsync), AsyncSync, AsyncSync),
            (Some(SyncSync), AsyncAsync, SyncSync),
            (Some(AsyncAsync), SyncAsync, AsyncAsync),
        ] {
            let marks = Marks::new(AsyncAsync);
            if let Some(level) = reached {
                marks.set_level(level);
            }
            marks.want_level(wanted);
            assert_eq!(marks.level_promised(), Some(promised), "{reached:?} and {wanted}");
        }
    }

    #[test]
    fn losses_that_were_forgotten_count_as_losses() {
        let marks = Marks::new(DurabilityLevel::AsyncAsync);
        for _ in 0..=LOSSES_MAX {
            marks.lose_from(Offset(10));
        }
        assert!(marks.is_lost(0, Offset(5)));
        assert!(!marks.is_lost(1, Offset(5)));
    }
}
