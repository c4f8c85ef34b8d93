//! What the journal's users and its thread share: the queue, and how far the thread is.

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
    /// When it came, by the monotonic clock.
    pub(crate) at: Duration,
}

/// What the journal waits for, because the system is short of it.
#[derive(Clone, Debug)]
pub(crate) struct Shortage {
    pub(crate) error: JournalError,
    /// Payloads that were taken before, and are stored when it ends.
    pub(crate) waiting_bytes: u64,
}

/// What waits for the thread.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) entries: VecDeque<Queued>,
    /// What is queued is stored, and nothing is queued any more.
    pub(crate) is_closing: bool,
    /// Nothing is written any more.
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
    /// Position below which every owner was told. Stored by the thread (Release), read by anyone (Acquire), so that
    /// who sees it sees what the owners did.
    pub(crate) delivered: AtomicU64,
    /// Entries that were ever queued, and those of them that `delivered` has passed.
    pub(crate) queued_count: AtomicU64,
    pub(crate) delivered_count: AtomicU64,
    /// Position below which everything is synced. Stored by the thread (Release), read by anyone (Acquire).
    pub(crate) synced: AtomicU64,
    /// Position below which everything is durable elsewhere. Raised by the users, read by the thread.
    pub(crate) settled: AtomicU64,
    /// As far as a synced header or frame says so. Stored by the thread (Release), read by anyone (Acquire).
    pub(crate) settled_on_disk: AtomicU64,
    /// Since when the thread waits for a file to use again, in microseconds of the monotonic clock; 0: it does not.
    pub(crate) full_since_us: AtomicU64,
    /// The thread has no file to go on with, or soon will have none, before the journal has its full size.
    pub(crate) wants_files: AtomicBool,
    /// Start of the oldest file in which something was not settled when the current file was begun.
    pub(crate) oldest: AtomicU64,
    pub(crate) counters: Counters,
    /// What is to be done before the first entries are written.
    pub(crate) first_use: Mutex<Option<FirstUse>>,
    /// The journal's thread that has died of a panic.
    pub(crate) dead_thread: OnceLock<&'static str>,
    /// Released once nobody writes any more.
    pub(crate) lock: Mutex<Option<Box<dyn LockGuard>>>,
    /// Files that are kept once all in them is settled.
    pub(crate) unread: UnreadFiles,
    /// The files that the thread has.
    pub(crate) in_use: FilesInUse,
    /// What has vanished; the thread fails with it.
    pub(crate) vanished: OnceLock<JournalError>,
}

impl Shared {
    /// Whether the journal was dropped, and whether it is being closed.
    pub(crate) fn ending(&self) -> (bool, bool) {
        let queue = self.queue.lock();
        (queue.is_abandoned, queue.is_closing)
    }

    /// Whether something is queued. Once the journal is being closed nothing comes any more.
    pub(crate) fn has_queued(&self) -> bool {
        !self.queue.lock().entries.is_empty()
    }

    /// Has whoever wants to know told that the journal holds entries, until that has succeeded once.
    pub(crate) fn note_first_use(&self, id: JournalId) -> Result<(), JournalError> {
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
