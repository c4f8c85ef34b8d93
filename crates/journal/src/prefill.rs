//! The prefilled range of a file: filled with zeros, and synced, so that frames may be written to it.
//!
//! Owns how far that range reaches, for two threads: the journal's own, which fills a file in small steps where it
//! must, and the prefiller's. Guarantees that zeros are only ever written behind all that is filled, and frames
//! before, so that neither thread writes over the other's bytes; and that nothing more is filled after a failed write
//! or sync. If a step finds no space, the part of it that was written is given back.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use parking_lot::{Mutex, MutexGuard};
use riverrun_env::{AlignedBuffer, File};

use crate::JournalError;
use crate::files::NoRoom;

/// Bytes filled when a file is made, so that the first entry of a new server does not wait for more.
pub(crate) const FIRST_STEP_BYTES: u64 = 256 * 1024;
/// Bytes of each further step: the syncs of groups wait for one step of the other thread at most.
pub(crate) const STEP_BYTES: u64 = 2 * 1024 * 1024;

/// The source of one write of zeros, at an address that suits any alignment.
static ZEROS: LazyLock<AlignedBuffer> = LazyLock::new(|| AlignedBuffer::zeroed(512 * 1024, 64 * 1024));

/// How far a file is filled.
///
/// Invariants:
/// - All below `filled` was synced as zeros, or belonged to a file that is used again.
/// - `filled` only grows, and only under the lock of `filling`, which also guards every write of zeros.
/// - `has_failed` is set once `filling` has an error, and then `filled` stays; so it does once `is_left` is set,
///   which happens under the lock, too.
#[derive(Debug)]
pub(crate) struct PrefilledRange {
    /// A descriptor of its own: the kernel reports a failed write-back once to each descriptor. The one that only
    /// fills must not take that report away from the one that writes frames.
    file: Arc<dyn File>,
    /// Size that the file will have, in bytes.
    bytes: u64,
    /// Bytes from the file's start. Stored by the filling thread (Release), read by the writer (Acquire).
    filled: AtomicU64,
    filling: Mutex<Option<JournalError>>,
    has_failed: AtomicBool,
    is_left: AtomicBool,
}

impl PrefilledRange {
    pub(crate) fn new(file: Arc<dyn File>, bytes: u64, filled: u64) -> Self {
        let (filled, filling) = (AtomicU64::new(filled), Mutex::new(None));
        let [has_failed, is_left] = [false, false].map(AtomicBool::new);
        Self { file, bytes, filled, filling, has_failed, is_left }
    }

    /// Bytes from the file's start that frames may be written to.
    pub(crate) fn filled(&self) -> u64 {
        self.filled.load(Ordering::Acquire)
    }

    /// Size in bytes that the file will have, or has if it was left.
    pub(crate) fn bytes(&self) -> u64 {
        if self.is_left.load(Ordering::Acquire) { self.filled() } else { self.bytes }
    }

    /// Whether nothing remains to be filled: the file is filled to its end, or was left.
    pub(crate) fn is_full(&self) -> bool {
        self.filled() >= self.bytes || self.is_left.load(Ordering::Acquire)
    }

    /// Ends the filling, because frames go to another file from now on. Nothing is filled any more when this returns;
    /// it waits for a step that is under way. A file that is used again gets a new range, which knows nothing of such
    /// a step.
    pub(crate) fn leave(&self) {
        let _filling = self.filling.lock();
        self.is_left.store(true, Ordering::Release);
    }

    /// The error that ended the filling, if a write or a sync has failed.
    pub(crate) fn failure(&self) -> Option<JournalError> {
        if self.has_failed.load(Ordering::Acquire) { self.filling.lock().clone() } else { None }
    }

    /// Fills the file up to `offset` at least, or to its end. Durable when it returns. Waits for another thread's
    /// step that is under way.
    pub(crate) fn fill_to(&self, offset: u64, path: &Path) -> Result<(), NoRoom> {
        self.fill_steps_or_exactly(offset, STEP_BYTES, path)
    }

    /// As [`Self::fill_to`], but not much further.
    pub(crate) fn fill_sparingly(&self, offset: u64, path: &Path) -> Result<(), NoRoom> {
        self.fill_steps_or_exactly(offset, FIRST_STEP_BYTES, path)
    }

    /// Fills whole steps; without space for one, only the missing bytes. A file smaller than the first step is of
    /// little use.
    fn fill_steps_or_exactly(&self, offset: u64, step: u64, path: &Path) -> Result<(), NoRoom> {
        match self.fill_in_steps(offset, step, path) {
            Err(NoRoom::Shortage(_)) if self.filled() >= FIRST_STEP_BYTES => self.fill_exactly(offset, path),
            result => result,
        }
    }

    /// As [`Self::fill_to`], but no further.
    pub(crate) fn fill_exactly(&self, offset: u64, path: &Path) -> Result<(), NoRoom> {
        self.fill_in_steps(offset, 1, path)
    }

    fn fill_in_steps(&self, offset: u64, step: u64, path: &Path) -> Result<(), NoRoom> {
        let offset = offset.min(self.bytes);
        if self.filled() >= offset {
            return Ok(());
        }
        let mut filling = self.filling.lock();
        let filled = self.filled();
        let is_done = filled >= offset || self.is_left.load(Ordering::Acquire);
        let result = if is_done { Ok(()) } else { self.fill(filled, offset, step, path, &mut filling) };
        // The waiting writer is served before the prefiller takes the next step.
        MutexGuard::unlock_fair(filling);
        result
    }

    /// Fills the file a step further; returns `false` if it is filled to its end.
    pub(crate) fn fill_step(&self, path: &Path) -> Result<bool, NoRoom> {
        let is_missing = !self.is_full();
        if is_missing {
            self.fill_in_steps(self.filled() + 1, STEP_BYTES, path)?;
        }
        Ok(is_missing)
    }

    fn fill(
        &self,
        filled: u64,
        offset: u64,
        step: u64,
        path: &Path,
        failure: &mut Option<JournalError>,
    ) -> Result<(), NoRoom> {
        if let Some(error) = failure {
            return Err(NoRoom::Failed(error.clone()));
        }
        let step = if filled < FIRST_STEP_BYTES { step.min(FIRST_STEP_BYTES - filled) } else { step };
        let target = self.bytes.min(filled + (offset - filled).next_multiple_of(step));
        let result = self.write_zeros(filled, target, path);
        match &result {
            Ok(()) => self.filled.store(target, Ordering::Release),
            Err(NoRoom::Failed(error)) => {
                *failure = Some(error.clone());
                self.has_failed.store(true, Ordering::Release);
            }
            Err(_) => self.cut(filled, path),
        }
        result
    }

    /// Gives back bytes that were written but do not count as filled. If that fails, the next step writes them again,
    /// or they belong to the next user of the file, whose header is synced with them.
    fn cut(&self, filled: u64, path: &Path) {
        if let Err(error) = self.file.set_len(filled) {
            tracing::warn!(path = %path.display(), %error, "a part of a step is left in a journal file");
        }
    }

    fn write_zeros(&self, from: u64, to: u64, path: &Path) -> Result<(), NoRoom> {
        let mut at = from;
        while at < to {
            let count = usize::try_from(to - at).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
            self.file.write_all_at(&ZEROS[..count], at).map_err(|error| NoRoom::of(path, error))?;
            at += count as u64;
        }
        self.file.sync_data().map_err(|error| NoRoom::failed(path, error))
    }
}

#[cfg(test)]
mod tests {
    use riverrun_env::sim::SimEnv;
    use riverrun_env::{FileSystem as _, OpenMode};

    use super::*;

    #[test]
    fn a_file_that_was_left_is_filled_no_further() {
        let sim = SimEnv::new(1);
        let path = Path::new("/file");
        let file = sim.fs.open(path, OpenMode::CreateNew).expect("made");
        let room = PrefilledRange::new(file.clone(), 4 * FIRST_STEP_BYTES, 0);
        room.fill_to(1, path).expect("filled");
        room.leave();
        // The file is used again, with another range.
        file.write_all_at(&[1; 100], FIRST_STEP_BYTES).expect("written");
        assert!(!room.fill_step(path).expect("nothing to do") && room.is_full());
        room.fill_to(2 * FIRST_STEP_BYTES, path).expect("nothing to do");
        assert_eq!(file.len().expect("known"), FIRST_STEP_BYTES + 100);
    }

    #[test]
    fn step_without_space_gives_it_back_to_a_smaller_one() {
        let sim = SimEnv::new(1);
        let path = Path::new("/file");
        let file = sim.fs.open(path, OpenMode::CreateNew).expect("made");
        let room = PrefilledRange::new(file.clone(), 4 * FIRST_STEP_BYTES, 0);
        sim.fs.set_space(Some(FIRST_STEP_BYTES + 10_000));
        room.fill_exactly(4096, path).expect("filled");
        assert_eq!(file.len().expect("known"), 4096);
        room.fill_sparingly(8192, path).expect("filled");
        assert!(matches!(room.fill_step(path), Err(NoRoom::Shortage(_))));
        assert_eq!((room.filled(), file.len().expect("known")), (FIRST_STEP_BYTES, FIRST_STEP_BYTES));
        room.fill_to(FIRST_STEP_BYTES + 8192, path).expect("there is room for that");
        assert_eq!(room.filled(), FIRST_STEP_BYTES + 8192);
        assert_eq!(sim.fs.available_bytes(path).expect("known"), 10_000 - 8192);
    }
}
