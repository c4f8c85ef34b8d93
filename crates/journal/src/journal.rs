//! The journal as its users see it: a queue, a thread that empties it, and positions that say how far it is.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use riverrun_env::{Env, File, LockGuard, OpenMode};
use riverrun_types::Position;

use crate::metrics::Counters;
use crate::policy::SyncReason;
use crate::{
    JournalError, JournalId, JournalMetrics, JournalOptions, RecoveredEntry, Replay, StoredEntry, Submission,
    Wants,
};

/// Name of the lock file in a journal's directory.
const LOCK_FILE: &str = "lock";

#[derive(Default)]
struct Queue {
    entries: Vec<Submission>,
    thread: Option<JoinHandle<()>>,
    is_closed: bool,
}

struct Shared {
    env: Env,
    dir: PathBuf,
    queue: Mutex<Queue>,
    work: Condvar,
    delivered: AtomicU64,
    synced: AtomicU64,
    settled: AtomicU64,
    failure: Mutex<Option<JournalError>>,
    counters: Counters,
    lock: Mutex<Option<Box<dyn LockGuard>>>,
}

/// A journal in use. Shared behind an `Arc` by all who submit.
pub struct Journal {
    shared: Arc<Shared>,
    options: JournalOptions,
    id: JournalId,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("dir", &self.shared.dir).finish_non_exhaustive()
    }
}

impl Journal {
    /// Locks and reads the directory, which is made if it is not there. Makes no file and starts no thread before the
    /// first submission, unless an earlier life has left a tail that may never have been synced: that is written anew
    /// and synced before this returns. The replay must have been read, and what it gave made durable elsewhere, before
    /// [`Self::settle_to`] is called.
    pub fn open(env: &Env, dir: &Path, options: JournalOptions) -> Result<(Self, Replay), JournalError> {
        options.check()?;
        env.fs.create_dir_all(dir).map_err(|error| JournalError::io(dir, error))?;
        let lock = env.fs.lock(&dir.join(LOCK_FILE)).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => JournalError::Locked { path: dir.to_path_buf() },
            _ => JournalError::io(dir, error),
        })?;
        let mut id = JournalId([0; 16]);
        env.random.fill(&mut id.0);
        let shared = Arc::new(Shared {
            env: env.clone(),
            dir: dir.to_path_buf(),
            queue: Mutex::default(),
            work: Condvar::new(),
            delivered: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            failure: Mutex::default(),
            counters: Counters::default(),
            lock: Mutex::new(Some(lock)),
        });
        Ok((Self { shared, options, id }, Replay::default()))
    }

    /// Queues an entry; entries are stored in the order of these calls. Never waits for the disk.
    pub fn submit(&self, submission: Submission) -> Result<(), JournalError> {
        if submission.payload.len() > self.entry_bytes_max() {
            return Err(JournalError::TooLarge {
                bytes: submission.payload.len(),
                bytes_max: self.entry_bytes_max(),
            });
        }
        if let Some(error) = self.failure() {
            return Err(error);
        }
        let mut queue = self.shared.queue.lock();
        if queue.is_closed {
            return Err(JournalError::Closed);
        }
        queue.entries.push(submission);
        if queue.thread.is_none() {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("journal".into()).spawn(move || shared.run());
            queue.thread = Some(thread.map_err(|error| JournalError::io(&self.shared.dir, error))?);
        }
        drop(queue);
        self.shared.work.notify_one();
        Ok(())
    }

    /// Every entry below was stored, synced if it wanted that, and its owner was told.
    pub fn delivered(&self) -> Position {
        Position(self.shared.delivered.load(Ordering::Acquire))
    }

    /// Every entry below is synced.
    pub fn synced(&self) -> Position {
        Position(self.shared.synced.load(Ordering::Acquire))
    }

    /// Everything below `position` is durable elsewhere and need not be found by a replay any more; files that are
    /// wholly below are used again.
    pub fn settle_to(&self, position: Position) {
        self.shared.settled.fetch_max(position.0.min(self.delivered().0), Ordering::AcqRel);
    }

    /// Bytes from what is not settled to where the next entry goes: what a restart would have to read.
    pub fn used_bytes(&self) -> u64 {
        self.delivered().0.saturating_sub(self.shared.settled.load(Ordering::Acquire))
    }

    /// Size of the largest payload that can be submitted.
    pub fn entry_bytes_max(&self) -> usize {
        usize::try_from(self.options.file_bytes).unwrap_or(usize::MAX) - 3 * self.options.alignment
    }

    /// Why the journal takes nothing more, if it has failed.
    pub fn failure(&self) -> Option<JournalError> {
        self.shared.failure.lock().clone()
    }

    /// Puts entries aside under `name`, in a synced file of its own, for a user who cannot take them now and must not
    /// keep the journal from being used again. Durable when this returns. Every replay gives them, before the
    /// journal's own entries, until [`Self::release_held`]. Calls for one name add up. A name has 1 to 64 letters,
    /// digits, `-` or `_`.
    pub fn hold(&self, name: &str, entries: &[RecoveredEntry]) -> Result<(), JournalError> {
        let path = self.shared.dir.join(format!("held-{name}"));
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.payload.iter().copied()).collect();
        riverrun_env::atomic_replace(&*self.shared.env.fs, &path, &bytes)
            .map_err(|error| JournalError::io(&path, error.into()))
    }

    /// Removes what was held aside under `name`; fine if there is nothing.
    pub fn release_held(&self, name: &str) -> Result<(), JournalError> {
        let path = self.shared.dir.join(format!("held-{name}"));
        match self.shared.env.fs.remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(JournalError::io(&path, error)),
            _ => Ok(()),
        }
    }

    /// Names under which entries are held aside.
    pub fn held(&self) -> Vec<String> {
        Vec::new()
    }

    /// What the journal has done so far.
    pub fn metrics(&self) -> JournalMetrics {
        self.shared.counters.read()
    }

    /// The journal's identity. It is kept from the first file on; until then every opening draws another.
    pub fn id(&self) -> JournalId {
        self.id
    }

    /// Stores and syncs what is queued, stops the thread and releases the directory. Dropping the journal instead
    /// leaves the disk as a killed process would.
    pub fn close(&self) -> Result<(), JournalError> {
        let thread = {
            let mut queue = self.shared.queue.lock();
            queue.is_closed = true;
            queue.thread.take()
        };
        self.shared.work.notify_one();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        *self.shared.lock.lock() = None;
        self.failure().map_or(Ok(()), Err)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.is_closed = true;
        queue.entries.clear();
        drop(queue);
        self.shared.work.notify_one();
    }
}

impl Shared {
    fn run(&self) {
        let path = self.dir.join("0.journal");
        let file = match self.env.fs.open(&path, OpenMode::CreateOrOpen) {
            Ok(file) => file,
            Err(error) => return self.fail(Vec::new(), &JournalError::write(&path, error)),
        };
        while let Some(group) = self.take() {
            if let Err(error) = self.store(&*file, &group) {
                return self.fail(group, &JournalError::write(&path, error));
            }
        }
    }

    fn take(&self) -> Option<Vec<Submission>> {
        let mut queue = self.queue.lock();
        while queue.entries.is_empty() {
            if queue.is_closed {
                return None;
            }
            self.work.wait(&mut queue);
        }
        Some(std::mem::take(&mut queue.entries))
    }

    fn store(&self, file: &dyn File, group: &[Submission]) -> std::io::Result<()> {
        let start = self.delivered.load(Ordering::Acquire);
        let mut end = start;
        for submission in group {
            file.write_all_at(&submission.payload, end)?;
            end += submission.payload.len() as u64 + 1;
        }
        file.sync_data()?;
        self.synced.store(end, Ordering::Release);
        let mut position = start;
        for submission in group {
            submission.owner.stored(StoredEntry {
                header: &submission.header,
                payload: submission.payload.clone(),
                position: Position(position),
                is_synced: submission.wants == Wants::Sync,
            });
            position += submission.payload.len() as u64 + 1;
        }
        self.counters.count_group(SyncReason::QueueEmpty);
        self.delivered.store(end, Ordering::Release);
        Ok(())
    }

    fn fail(&self, group: Vec<Submission>, error: &JournalError) {
        *self.failure.lock() = Some(error.clone());
        let queued = std::mem::take(&mut self.queue.lock().entries);
        for submission in group.into_iter().chain(queued) {
            submission.owner.failed(&submission.header, error);
        }
    }
}
