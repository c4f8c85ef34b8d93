//! Which files of segments are open.
//!
//! A file is kept open between two uses in a [`FileSlot`], and the [`FilePool`] of the store bounds how many slots
//! hold one: the one that went longest without use is closed first, be it read or appended to. So many more partitions
//! than descriptors are written to in turn for no more than opening a file. Exempt are the slots that are held: files
//! whose names another segment takes. Whoever has got a file keeps it for as long as it needs: closing a slot takes
//! nothing from it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use riverrun_env::File;

#[derive(Debug, Default)]
struct Kept {
    file: Option<Arc<dyn File>>,
    is_held: bool,
    /// The pool has a reference to the slot.
    is_queued: bool,
}

/// The place of one file that may be open.
///
/// Invariants: a slot that is held is not emptied; one that holds a file and is not held is queued in the pool.
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

    fn admit(&self, slot: &Arc<FileSlot>) {
        let mut queue = self.queue.lock();
        // Who was used since the last look gets another round, but only one: somebody has to go.
        let mut rounds = queue.len();
        while queue.len() >= self.open_max {
            let Some(oldest) = queue.pop_front() else { break };
            let Some(slot) = oldest.upgrade() else { continue };
            if rounds > 0 && slot.was_used.swap(false, Ordering::Relaxed) {
                rounds -= 1;
                queue.push_back(oldest);
            } else {
                slot.leave_pool();
            }
        }
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

    /// The file, opened and kept open if it was not.
    pub(super) fn get_or_open<E>(
        self: &Arc<Self>,
        pool: &FilePool,
        open: impl FnOnce() -> Result<Arc<dyn File>, E>,
    ) -> Result<Arc<dyn File>, E> {
        if let Some(file) = self.get() {
            return Ok(file);
        }
        // Not under the lock: what lies under the name is decided by who has put a file here when this is done.
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

    /// Closes the file if nobody has used it since the last call and it is not held.
    pub(super) fn close_if_unused(&self) {
        if self.was_used.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut kept = self.kept.lock();
        if !kept.is_held {
            kept.file = None;
        }
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
    fn the_pool_closes_what_went_longest_without_use_and_never_what_is_held() {
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
