//! The open files of segments.
//!
//! A file is kept open between two uses in a [`FileSlot`], and the [`FilePool`] of the store bounds how many slots hold
//! one: a file that went long without use is closed for another, be it read or appended to. If all others are in use, a
//! file is opened without keeping it, and each time that happens one of the others has to show anew that it is used. So
//! if a few more partitions than descriptors are appended to in turn, most of them stay open; if the one that was used
//! first were closed, none would. Slots that are held are exempt: files whose names another segment takes. A user of a
//! file has it for as long as it needs: closing a slot takes nothing from it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use riverrun_env::File;

/// If descriptors run out, this part of all files is closed at once, so that the next ones find room too.
const MADE_ROOM_DIVISOR: usize = 16;

#[derive(Debug, Default)]
struct Kept {
    file: Option<Arc<dyn File>>,
    is_held: bool,
    /// The pool has a reference to the slot.
    is_queued: bool,
}

/// The place of one file that may be open.
///
/// Invariants: a slot that is held is not emptied; a slot with a file that is not held is queued in the pool.
#[derive(Debug, Default)]
pub(super) struct FileSlot {
    kept: Mutex<Kept>,
    was_used: AtomicBool,
}

/// The slots of a store that hold a file and may be emptied.
///
/// Invariants: a slot is in the queue at most once. Locks are taken in the order queue, slot.
#[derive(Debug)]
pub(crate) struct FilePool {
    open_max: usize,
    queue: Mutex<VecDeque<Weak<FileSlot>>>,
}

impl FilePool {
    /// Keeps up to `open_max` files open, but at least one.
    pub(crate) fn new(open_max: usize) -> Self {
        Self { open_max: open_max.max(1), queue: Mutex::default() }
    }

    /// Empties slots until a part of all slots has closed its file, those first that went longest without use. Returns
    /// whether there is room for another file now.
    pub(crate) fn make_room(&self) -> bool {
        let mut queue = self.queue.lock();
        let wanted = (self.open_max / MADE_ROOM_DIVISOR).max(1);
        let mut closed = 0;
        // Each comes up twice at most: the first time it may have to show anew that it is used.
        for _ in 0..queue.len() * 2 {
            if closed == wanted {
                break;
            }
            let Some(oldest) = queue.pop_front() else { break };
            let Some(kept) = oldest.upgrade() else { continue };
            if kept.was_used.swap(false, Ordering::Relaxed) || kept.is_being_used() {
                queue.push_back(oldest);
            } else {
                kept.leave_pool();
                closed += 1;
            }
        }
        closed > 0
    }

    /// Adds the slot, unless the pool is full and the next one to close was used since its last turn.
    fn admit(&self, slot: &Arc<FileSlot>) {
        let mut queue = self.queue.lock();
        while queue.len() >= self.open_max {
            let Some(oldest) = queue.pop_front() else { break };
            let Some(kept) = oldest.upgrade() else { continue };
            if kept.was_used.swap(false, Ordering::Relaxed) {
                queue.push_back(oldest);
                slot.leave_pool();
                return;
            }
            kept.leave_pool();
        }
        // Being opened is a use: in its first round it is not closed before its turn comes again.
        slot.was_used.store(true, Ordering::Relaxed);
        queue.push_back(Arc::downgrade(slot));
    }
}

impl FileSlot {
    /// The file, if it is open.
    pub(super) fn get(&self) -> Option<Arc<dyn File>> {
        let kept = self.kept.lock();
        if kept.file.is_some() && !self.was_used.load(Ordering::Relaxed) {
            self.was_used.store(true, Ordering::Relaxed);
        }
        kept.file.clone()
    }

    /// As [`Self::get`], but not a use.
    pub(super) fn peek(&self) -> Option<Arc<dyn File>> {
        self.kept.lock().file.clone()
    }

    /// The file, opened and kept open if it was not.
    pub(super) fn get_or_open<E>(
        self: &Arc<Self>,
        pool: &FilePool,
        open: impl FnOnce() -> Result<Arc<dyn File>, E>,
    ) -> Result<Arc<dyn File>, E> {
        if let Some(file) = self.get() {
            return Ok(file);
        }
        // Not under the lock: by the end of it, another file may have been put here, which decides.
        let opened = open()?;
        let mut kept = self.kept.lock();
        let file = kept.file.get_or_insert(opened).clone();
        self.queue(kept, pool);
        Ok(file)
    }

    /// The file for one use: if it is not open it is opened and not kept.
    pub(super) fn get_or_open_once<E>(
        &self,
        open: impl FnOnce() -> Result<Arc<dyn File>, E>,
    ) -> Result<Arc<dyn File>, E> {
        if let Some(file) = self.get() {
            return Ok(file);
        }
        let opened = open()?;
        // Another segment may have taken the name meanwhile: then the right file is held here since.
        Ok(self.get().unwrap_or(opened))
    }

    /// Keeps the file open, now or as soon as it is opened, until it is released.
    pub(super) fn hold(&self) {
        self.kept.lock().is_held = true;
    }

    /// Ends [`Self::hold`].
    pub(super) fn release(self: &Arc<Self>, pool: &FilePool) {
        let mut kept = self.kept.lock();
        kept.is_held = false;
        self.queue(kept, pool);
    }

    /// Puts in a file that was just made.
    pub(super) fn put(self: &Arc<Self>, file: Arc<dyn File>, pool: &FilePool) {
        let mut kept = self.kept.lock();
        kept.file = Some(file);
        self.queue(kept, pool);
    }

    fn queue(self: &Arc<Self>, mut kept: parking_lot::MutexGuard<'_, Kept>, pool: &FilePool) {
        let is_missing = kept.file.is_some() && !kept.is_held && !kept.is_queued;
        kept.is_queued |= is_missing;
        drop(kept);
        if is_missing {
            pool.admit(self);
        }
    }

    /// Closes the file if it was not used since the last call and is not held.
    pub(super) fn close_if_unused(&self) {
        if self.was_used.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut kept = self.kept.lock();
        if !kept.is_held {
            kept.file = None;
        }
    }

    /// Whether emptying the slot would close no file: it has none, or the file is in use, or it is held.
    fn is_being_used(&self) -> bool {
        let kept = self.kept.lock();
        kept.is_held || kept.file.as_ref().is_none_or(|file| Arc::strong_count(file) > 1)
    }

    fn leave_pool(&self) {
        let mut kept = self.kept.lock();
        kept.is_queued = false;
        if !kept.is_held {
            kept.file = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use riverrun_env::sim::SimEnv;
    use riverrun_env::{FileSystem, OpenMode};

    use super::*;

    fn open(sim: &SimEnv) -> io::Result<Arc<dyn File>> {
        sim.fs.open(Path::new("/file"), OpenMode::CreateOrOpen)
    }

    fn open_count(slots: &[Arc<FileSlot>]) -> usize {
        slots.iter().filter(|slot| slot.kept.lock().file.is_some()).count()
    }

    #[test]
    fn pool_closes_the_longest_unused_file_and_never_a_held_one() {
        let sim = SimEnv::new(1);
        let pool = FilePool::new(3);
        let slots: Vec<_> = (0..10).map(|_| Arc::new(FileSlot::default())).collect();
        slots[0].hold();
        for slot in &slots {
            slot.get_or_open(&pool, || open(&sim)).unwrap();
            slots[1].get();
        }
        assert!(slots[0].kept.lock().file.is_some(), "held");
        assert!(slots[1].kept.lock().file.is_some(), "used again and again");
        assert_eq!(open_count(&slots), 1 + 3);
        slots[0].release(&pool);
        assert_eq!(open_count(&slots), 3, "it is as any other again");
        slots[9].hold();
        slots[9].release(&pool);
        assert_eq!(pool.queue.lock().len(), 3, "one that was queued before is queued once");
    }

    #[test]
    fn files_used_in_turn_mostly_stay_open_and_idle_ones_give_way() {
        let sim = SimEnv::new(1);
        let pool = FilePool::new(9);
        let idle: Vec<_> = (0..9).map(|_| Arc::new(FileSlot::default())).collect();
        for slot in &idle {
            slot.get_or_open(&pool, || open(&sim)).unwrap();
            slot.get();
        }
        let slots: Vec<_> = (0..10).map(|_| Arc::new(FileSlot::default())).collect();
        let mut opened = [0; 20];
        for count in &mut opened {
            for slot in &slots {
                let counted = || {
                    *count += 1;
                    open(&sim)
                };
                slot.get_or_open(&pool, counted).unwrap();
            }
        }
        assert_eq!(open_count(&idle), 0);
        assert_eq!(open_count(&slots), 9);
        let late: usize = opened[5..].iter().sum();
        assert!(late <= 2 * 15, "{opened:?}");
    }

    #[test]
    fn room_is_made_by_closing_what_nobody_used() {
        let sim = SimEnv::new(1);
        let pool = FilePool::new(32);
        let slots: Vec<_> = (0..32).map(|_| Arc::new(FileSlot::default())).collect();
        assert!(!pool.make_room(), "there is none to close");
        let reading: Vec<_> =
            slots.iter().map(|slot| slot.get_or_open(&pool, || open(&sim)).unwrap()).collect();
        assert!(!pool.make_room(), "those that are read stay open");
        drop(reading);
        for slot in &slots {
            slot.was_used.store(false, Ordering::Relaxed);
        }
        slots[0].get();
        assert!(pool.make_room());
        assert!(slots[0].peek().is_some(), "it is in use");
        assert_eq!(open_count(&slots), 30);
    }

    #[test]
    fn a_file_that_is_needed_once_is_not_kept() {
        let sim = SimEnv::new(1);
        let pool = FilePool::new(3);
        let slot = Arc::new(FileSlot::default());
        slot.get_or_open_once(|| open(&sim)).unwrap();
        assert!(slot.get().is_none());
        let kept = slot.get_or_open(&pool, || open(&sim)).unwrap();
        assert!(Arc::ptr_eq(&kept, &slot.get_or_open_once(|| open(&sim)).unwrap()));
    }

    #[test]
    fn slots_that_are_opened_again_or_gone_do_not_fill_the_pool() {
        let sim = SimEnv::new(1);
        let pool = FilePool::new(2);
        let slots: Vec<_> = (0..2).map(|_| Arc::new(FileSlot::default())).collect();
        for _ in 0..10 {
            for slot in &slots {
                slot.get_or_open(&pool, || open(&sim)).unwrap();
                slot.close_if_unused();
                slot.close_if_unused();
            }
            Arc::new(FileSlot::default()).get_or_open(&pool, || open(&sim)).unwrap();
        }
        assert!(pool.queue.lock().len() <= 2);
        for slot in &slots {
            slot.get_or_open(&pool, || open(&sim)).unwrap();
        }
        assert_eq!(open_count(&slots), 2);
    }
}
