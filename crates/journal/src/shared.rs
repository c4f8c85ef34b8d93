//! State shared by the journal's users and its thread: the queue, and the thread's progress.

use std::collections::VecDeque;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_env::{Env, LockGuard};

use crate::metrics::Counters;
use crate::presence::FilesInUse;
use crate::reader::UnreadFiles;
use crate::{FirstUse, JournalError, JournalId, Submission};

/// An entry in the queue.
pub(crate) struct Queued {
    pub(crate) submission: Submission,
    /// When it was submitted, by the monotonic clock.
    pub(crate) at: Duration,
}

/// The resource that the system lacks, while the journal waits for it.
#[derive(Clone, Debug)]
pub(crate) struct Shortage {
    pub(crate) error: JournalError,
    /// Bytes of payloads that were taken before; they are stored when the shortage ends.
    pub(crate) waiting_bytes: u64,
}

/// The entries and orders that wait for the thread.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) entries: VecDeque<Queued>,
    /// Closing: queued entries are stored, and none is queued any more.
    pub(crate) is_closing: bool,
    /// Abandoned: nothing is written any more.
    pub(crate) is_abandoned: bool,
    /// The journal is poisoned.
    pub(crate) failure: Option<JournalError>,
    pub(crate) shortage: Option<Shortage>,
}

/// Shared by the journal and its thread.
///
/// Invariants: `settled <= delivered`; `synced` and `delivered` never go back; once `queue.failure` is set neither
/// moves, and the queue is empty.
pub(crate) struct Shared {
    pub(crate) env: Env,
    pub(crate) queue: Mutex<Queue>,
    /// Position below which every owner was told. Stored by the thread (Release), read by any thread (Acquire): a
    /// reader of the position also sees the effects of the owners' calls.
    pub(crate) delivered: AtomicU64,
    /// Entries that were ever queued, and the number of them that `delivered` has passed.
    pub(crate) queued_count: AtomicU64,
    pub(crate) delivered_count: AtomicU64,
    /// Position below which everything is synced. Stored by the thread (Release), read by any thread (Acquire).
    pub(crate) synced: AtomicU64,
    /// Position below which everything is durable elsewhere. Raised by the users, read by the thread.
    pub(crate) settled: AtomicU64,
    /// The settled position that a synced header or frame states. Stored by the thread (Release), read by any thread
    /// (Acquire).
    pub(crate) settled_on_disk: AtomicU64,
    /// When the thread began to wait for a file to use again, in microseconds of the monotonic clock; 0 if it does
    /// not wait.
    pub(crate) full_since_us: AtomicU64,
    /// The thread has no file to go on in, or soon will have none, before the journal has its full size.
    pub(crate) wants_files: AtomicBool,
    /// Start of the oldest file in which something was not settled when the current file was begun.
    pub(crate) oldest: AtomicU64,
    pub(crate) counters: Counters,
    /// Called before the first entries are written.
    pub(crate) first_use: Mutex<Option<FirstUse>>,
    /// Name of the journal's thread that has panicked.
    pub(crate) dead_thread: OnceLock<&'static str>,
    /// Released after the last write.
    pub(crate) lock: Mutex<Option<Box<dyn LockGuard>>>,
    /// Files that are retired once all in them is settled.
    pub(crate) unread: UnreadFiles,
    /// The files that the thread uses.
    pub(crate) in_use: FilesInUse,
    /// The error that names the vanished file or directory; the thread fails with it.
    pub(crate) vanished: OnceLock<JournalError>,
}

impl Shared {
    /// Whether the journal was dropped, and whether it is being closed.
    pub(crate) fn ending(&self) -> (bool, bool) {
        let queue = self.queue.lock();
        (queue.is_abandoned, queue.is_closing)
    }

    /// Whether an entry is queued. Once the journal is being closed, no entry is added.
    pub(crate) fn has_queued(&self) -> bool {
        !self.queue.lock().entries.is_empty()
    }

    /// Calls the function set by [`crate::Journal::on_first_use`], until it has succeeded once.
    pub(crate) fn report_first_use(&self, id: JournalId) -> Result<(), JournalError> {
        let mut first_use = self.first_use.lock();
        if let Some(note) = &*first_use {
            note(id)?;
            *first_use = None;
        }
        Ok(())
    }

    /// Poisons the journal and tells the owners of `taken` and of what is queued.
    pub(crate) fn fail(&self, taken: impl Iterator<Item = Queued>, error: &JournalError) {
        {
            let mut queue = self.queue.lock();
            queue.failure = Some(error.clone());
            queue.shortage = None;
        }
        self.refuse_queued(taken, error);
    }

    /// Tells the owners of `taken` and of what is queued that it will not be stored.
    pub(crate) fn refuse_queued(&self, taken: impl Iterator<Item = Queued>, error: &JournalError) {
        let queued = std::mem::take(&mut self.queue.lock().entries);
        for Queued { submission, .. } in taken.chain(queued) {
            submission.owner.failed(&submission.header, error);
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("delivered", &self.delivered)
            .field("synced", &self.synced)
            .field("settled", &self.settled)
            .finish_non_exhaustive()
    }
}
