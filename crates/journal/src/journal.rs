//! The journal as its users see it: a queue, a thread that empties it, and positions that tell the thread's progress.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_env::{Directory, Env, Wake, Worker};
use riverrun_types::Position;

use crate::damaged_header::retire_settled;
use crate::files::Files;
use crate::metrics::Counters;
use crate::presence::check_directory;
use crate::recovery::{recover, retire_damaged};
use crate::shared::{Queued, Shared, Shortage};
use crate::side_files::{HeldFile, check_name};
use crate::volume::Volume;
use crate::writer::{JournalWork, Writer};
use crate::{
    JournalError, JournalId, JournalMetrics, JournalOptions, RecoveredEntry, Replay, Submission, frames,
};

mod reread;
#[cfg(test)]
mod tests;

/// Name of the lock file in a journal's directory.
const LOCK_FILE: &str = "lock";

/// Called with the journal's id before its first entries of this life are written. After an error of the kind
/// [`ErrorKind::Retry`](riverrun_types::ErrorKind::Retry) the journal waits and calls again; after any other error it
/// fails.
pub type FirstUse = Box<dyn Fn(JournalId) -> Result<(), JournalError> + Send>;

/// The writer before its worker is started, and the worker after.
#[derive(Default)]
struct Start {
    writer: Option<Writer>,
    worker: Option<Box<dyn Worker>>,
}

/// A journal in use, shared behind an `Arc` by all its users.
///
/// Invariants: `wake` is set exactly when `start.writer` has been moved to the journal's worker; from then on only
/// the writer writes to the journal's files. Side files are written by the callers themselves.
pub struct Journal {
    shared: Arc<Shared>,
    wake: OnceLock<Wake>,
    start: Mutex<Start>,
    held: Mutex<Vec<HeldFile>>,
    volume: Volume,
    /// The directory itself, open, by which it is recognised.
    root: Box<dyn Directory>,
    dir: PathBuf,
    options: JournalOptions,
    id: JournalId,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal")
            .field("dir", &self.dir)
            .field("id", &self.id)
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}

impl Journal {
    /// Locks and reads the directory, which is made if it does not exist. Makes no file and starts no thread before
    /// the first submission, with one exception: a tail of an earlier life that may never have been synced is written
    /// anew and synced before this returns. Before [`Self::settle_to`] is called, the caller must have read the
    /// replay and made its entries durable elsewhere.
    ///
    /// A file whose header is damaged is retired if the other files say that everything in it is settled; any other
    /// damage of that kind is an error.
    pub fn open(env: &Env, dir: &Path, options: JournalOptions) -> Result<(Self, Replay), JournalError> {
        Self::open_closed(env, dir, options, None)
    }

    /// As [`Self::open`], for a journal of which the caller may know that it was closed with everything in it settled
    /// and not written to since; `closed` is its id then. If such a journal is damaged, and nothing in it contradicts
    /// the caller, its damaged files are retired and the journal begins anew.
    pub fn open_closed(
        env: &Env,
        dir: &Path,
        options: JournalOptions,
        closed: Option<JournalId>,
    ) -> Result<(Self, Replay), JournalError> {
        options.check()?;
        env.fs.create_dir_all(dir).map_err(|error| JournalError::io(dir, error))?;
        // A volume that does not tell its size counts as large enough.
        let options = options.fitted_to(env.fs.total_bytes(dir).unwrap_or(u64::MAX));
        let lock_path = dir.join(LOCK_FILE);
        let lock = env.fs.lock(&lock_path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => JournalError::Locked { path: dir.to_path_buf() },
            _ => JournalError::io(&lock_path, error),
        })?;
        let root = env.fs.open_dir(dir).map_err(|error| JournalError::io(dir, error))?;
        let recovered = match recover(env, dir, options) {
            Err(error @ JournalError::Corrupt { .. }) => {
                retire_needless(env, dir, closed, error)?;
                recover(env, dir, options)?
            }
            recovered => recovered?,
        };
        let shared = Arc::new(Shared {
            env: env.clone(),
            queue: Mutex::default(),
            delivered: AtomicU64::new(recovered.synced),
            queued_count: AtomicU64::new(0),
            delivered_count: AtomicU64::new(0),
            synced: AtomicU64::new(recovered.synced),
            settled: AtomicU64::new(recovered.settled),
            settled_on_disk: AtomicU64::new(recovered.settled_on_disk),
            full_since_us: AtomicU64::new(0),
            wants_files: AtomicBool::new(false),
            oldest: AtomicU64::new(recovered.oldest),
            counters: Counters::default(),
            first_use: Mutex::default(),
            dead_thread: OnceLock::new(),
            lock: Mutex::new(Some(lock)),
            unread: recovered.files.unread.clone(),
            in_use: recovered.files.in_use.clone(),
            vanished: OnceLock::new(),
        });
        let (id, volume) = (recovered.files.id, recovered.files.volume.clone());
        let writer =
            Writer::new(shared.clone(), recovered.files, recovered.synced, recovered.settled_on_disk);
        let journal = Self {
            shared,
            wake: OnceLock::new(),
            start: Mutex::new(Start { writer: Some(writer), worker: None }),
            held: Mutex::new(recovered.held),
            volume,
            root,
            dir: dir.to_path_buf(),
            options,
            id,
        };
        Ok((journal, recovered.replay))
    }

    /// Sets the function that the journal's thread calls before it writes the first entries, so that what `first_use`
    /// records is there before anything is acked. A file that a restart finds exists by then, so that the journal's
    /// id is kept.
    pub fn on_first_use(&self, first_use: FirstUse) {
        *self.shared.first_use.lock() = Some(first_use);
    }

    /// Queues an entry; entries are stored in the order of these calls. Never waits for the disk.
    pub fn submit(&self, submission: Submission) -> Result<(), JournalError> {
        self.queue(submission, false)
    }

    /// As [`Self::submit`], but refused while the journal waits for a resource that the system lacks.
    pub fn submit_unless_short(&self, submission: Submission) -> Result<(), JournalError> {
        self.queue(submission, true)
    }

    fn queue(&self, submission: Submission, unless_short: bool) -> Result<(), JournalError> {
        let (bytes, bytes_max) = (submission.payload.len(), self.entry_bytes_max());
        if bytes > bytes_max {
            return Err(JournalError::TooLarge { bytes, bytes_max });
        }
        let wake = match self.wake.get() {
            Some(wake) => wake,
            None => self.start()?,
        };
        let queued = Queued { submission, at: self.shared.env.clock.monotonic() };
        {
            let mut queue = self.shared.queue.lock();
            if let Some(error) = &queue.failure {
                return Err(error.clone());
            }
            if queue.is_closing || queue.is_abandoned {
                return Err(JournalError::Closed);
            }
            if let Some(shortage) = queue.shortage.as_ref().filter(|_| unless_short) {
                return Err(shortage.error.clone());
            }
            queue.entries.push_back(queued);
            self.shared.queued_count.fetch_add(1, Ordering::Relaxed);
        }
        wake.wake();
        Ok(())
    }

    fn start(&self) -> Result<&Wake, JournalError> {
        let mut start = self.start.lock();
        if let Some(wake) = self.wake.get() {
            return Ok(wake);
        }
        if start.writer.is_none() {
            return Err(self.failure().unwrap_or(JournalError::Closed));
        }
        // The writer stays here until the thread runs: whatever is moved to a thread that cannot be started is lost.
        let (hand_over, handed) = sync_channel::<Writer>(1);
        let work = Box::new(JournalWork::waits_for(handed));
        let worker =
            self.shared.env.workers.start("journal", work).map_err(|error| self.without_thread(&error))?;
        if let Some(writer) = start.writer.take() {
            hand_over.send(writer).expect("the worker waits for it");
        }
        self.shared.queue.lock().shortage = None;
        let wake = self.wake.get_or_init(|| worker.wake());
        start.worker = Some(worker);
        Ok(wake)
    }

    /// The system gives the journal no thread; the next submission tries again.
    fn without_thread(&self, error: &io::Error) -> JournalError {
        let what = format!("no thread can be started for the journal: {error}");
        let error = JournalError::io(&self.dir, io::Error::new(io::ErrorKind::OutOfMemory, what));
        let shortage = Shortage { error: error.clone(), waiting_bytes: 0 };
        let before = self.shared.queue.lock().shortage.replace(shortage);
        if before.is_none() {
            tracing::warn!(%error, "the journal waits for a resource that the system lacks");
        }
        error
    }

    /// Position below which every entry was stored, was synced if it wanted that, and its owner was told.
    pub fn delivered(&self) -> Position {
        Position(self.shared.delivered.load(Ordering::Acquire))
    }

    /// Whether [`Self::delivered`] has passed every entry that was submitted. Owners are told before that, so a
    /// caller that counts only calls to owners may be early. Never true again once an entry was refused.
    pub fn has_delivered_all(&self) -> bool {
        let delivered = self.shared.delivered_count.load(Ordering::Acquire);
        delivered == self.submitted_count()
    }

    /// How many entries were submitted in this life.
    pub fn submitted_count(&self) -> u64 {
        self.shared.queued_count.load(Ordering::Relaxed)
    }

    /// Whether [`Self::delivered`] has passed the first `count` entries of this life.
    pub fn has_delivered(&self, count: u64) -> bool {
        self.shared.delivered_count.load(Ordering::Acquire) >= count
    }

    /// Position below which every entry is synced.
    pub fn synced(&self) -> Position {
        Position(self.shared.synced.load(Ordering::Acquire))
    }

    /// Tells the journal that everything below `position` is durable elsewhere, and that no replay need find it;
    /// files that are wholly below it are used again. Later frames state the position, and replays begin there. A
    /// position beyond [`Self::delivered`] counts as that.
    pub fn settle_to(&self, position: Position) {
        self.shared.settled.fetch_max(position.0.min(self.delivered().0), Ordering::AcqRel);
        // The thread may be waiting for a file to use again.
        if let Some(wake) = self.wake.get() {
            wake.wake();
        }
    }

    /// Position below which everything is settled.
    pub fn settled(&self) -> Position {
        Position(self.shared.settled.load(Ordering::Acquire))
    }

    /// Position below which no later life finds anything: the journal states it, synced. It lags behind
    /// [`Self::settled`], which only a later frame writes down.
    pub fn settled_on_disk(&self) -> Position {
        Position(self.shared.settled_on_disk.load(Ordering::Acquire))
    }

    /// Bytes from the settled position to where the next entry goes: as much as a restart would have to read.
    pub fn used_bytes(&self) -> u64 {
        let from = self.settled().0.max(self.shared.oldest.load(Ordering::Acquire));
        self.delivered().0.saturating_sub(from)
    }

    /// Whether the settler should call [`Self::settle_to`]: the journal is half full, or its volume has no room for
    /// more.
    pub fn wants_settling(&self) -> bool {
        self.used_bytes() >= self.bytes_max() / 2 || self.is_out_of_room()
    }

    /// Whether its volume has no room for more, and something in the journal is not settled.
    pub fn is_out_of_room(&self) -> bool {
        self.shared.wants_files.load(Ordering::Relaxed) && self.used_bytes() > 0
    }

    /// Upper bound of [`Self::used_bytes`], in bytes: beyond it entries wait for [`Self::settle_to`].
    pub fn bytes_max(&self) -> u64 {
        self.options.bytes_max()
    }

    /// Size of the largest payload that can be submitted, in bytes.
    pub fn entry_bytes_max(&self) -> usize {
        let frame_bytes_max = usize::try_from(Files::frame_bytes_max(&self.options)).unwrap_or(usize::MAX);
        frame_bytes_max - frames::frame_bytes(1, 0)
    }

    /// The error with which the journal has failed, if it has; it takes nothing more then.
    pub fn failure(&self) -> Option<JournalError> {
        self.shared.queue.lock().failure.clone()
    }

    /// Name of the journal's own thread that has panicked, if one has.
    pub fn dead_thread(&self) -> Option<&'static str> {
        self.shared.dead_thread.get().copied()
    }

    /// The error that names the vanished file or directory, if that is why the journal has failed.
    pub fn vanished(&self) -> Option<JournalError> {
        self.shared.vanished.get().cloned()
    }

    /// Checks that the journal's directory, and the files that a start would read, are still where they were and
    /// begin with the bytes written there; otherwise the journal fails. Entries stored before stay stored for their
    /// owners. Waits for the disk.
    pub fn check_in_place(&self) {
        let is_closed = || self.shared.lock.lock().is_none();
        if self.failure().is_some() || self.shared.vanished.get().is_some() || is_closed() {
            return;
        }
        match self.look() {
            Ok(()) => {}
            Err(error @ JournalError::Vanished { .. }) => self.fail_vanished(error),
            Err(error) => {
                tracing::warn!(%error, "whether the journal is still in its place cannot be checked");
            }
        }
    }

    fn look(&self) -> Result<(), JournalError> {
        let fs = &*self.shared.env.fs;
        check_directory(fs, &self.dir, &*self.root, LOCK_FILE)?;
        self.shared.in_use.check(fs, || self.settled_on_disk().0)
    }

    fn fail_vanished(&self, error: JournalError) {
        self.shared.vanished.get_or_init(|| error);
        let mut start = self.start.lock();
        match (self.wake.get(), start.writer.take()) {
            (Some(wake), _) => wake.wake(),
            (None, Some(mut writer)) => _ = writer.step(),
            (None, None) => {}
        }
    }

    /// The resource that the system lacks, if the journal waits for one: submitted entries are not stored meanwhile.
    pub fn shortage(&self) -> Option<JournalError> {
        self.shared.queue.lock().shortage.as_ref().map(|shortage| shortage.error.clone())
    }

    /// Bytes of payloads that wait in the journal for a resource that the system lacks: those taken before the
    /// shortage was met.
    pub fn waiting_bytes(&self) -> u64 {
        self.shared.queue.lock().shortage.as_ref().map_or(0, |shortage| shortage.waiting_bytes)
    }

    /// How long the journal has been full, if it is: submitted entries wait until [`Self::settle_to`] frees a file.
    pub fn full_for(&self) -> Option<Duration> {
        let since = self.shared.full_since_us.load(Ordering::Relaxed);
        let now = self.shared.env.clock.monotonic();
        (since > 0).then(|| now.saturating_sub(Duration::from_micros(since)))
    }

    /// Writes entries to a side file under `name`, for a user who cannot take them now and must not keep the
    /// journal's files from being used again. Durable when this returns; refused, before anything is written, where
    /// the volume has no room for it.
    ///
    /// Every replay gives the held entries first, and instead of the journal's own, until [`Self::release_held`]. The
    /// entries of a stream have to be all that are not settled up to the last of them. Calls for one name add up. A
    /// name has 1 to 64 letters, digits, `-` or `_`.
    pub fn hold(&self, name: &str, entries: &[RecoveredEntry]) -> Result<(), JournalError> {
        check_name(name)?;
        if entries.is_empty() {
            return Ok(());
        }
        let mut held = self.held.lock();
        let number = held.iter().map(|file| file.number + 1).max().unwrap_or(0);
        let file = HeldFile { number, name: name.to_owned() };
        file.write(&self.shared.env, &self.volume, self.id, entries)?;
        held.push(file);
        Ok(())
    }

    /// Removes the side files of `name`; no error if there are none. Durable when this returns.
    pub fn release_held(&self, name: &str) -> Result<(), JournalError> {
        let mut held = self.held.lock();
        let fs = &self.shared.env.fs;
        while let Some(index) = held.iter().position(|file| file.name == name) {
            let path = held[index].path(&self.dir);
            match fs.remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(JournalError::io(&path, error));
                }
                _ => held.remove(index),
            };
        }
        fs.sync_dir(&self.dir).map_err(|error| JournalError::io(&self.dir, error))
    }

    /// Reads the entries held under `name`, side file by side file, in the order in which they were written.
    pub fn read_held(
        &self,
        name: &str,
        mut take: impl FnMut(Vec<RecoveredEntry>),
    ) -> Result<(), JournalError> {
        let files: Vec<_> = self.held.lock().iter().filter(|file| file.name == name).cloned().collect();
        for file in files {
            take(file.read(&self.shared.env, &self.dir, self.id)?);
        }
        Ok(())
    }

    /// As [`Self::read_held`], under whichever names, in the order in which all side files were written.
    pub fn read_all_held(&self, mut take: impl FnMut(&str, Vec<RecoveredEntry>)) -> Result<(), JournalError> {
        let files = self.held.lock().clone();
        for file in files {
            take(&file.name, file.read(&self.shared.env, &self.dir, self.id)?);
        }
        Ok(())
    }

    /// The journal's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Names under which entries are held.
    pub fn held(&self) -> Vec<String> {
        let mut names: Vec<String> = self.held.lock().iter().map(|file| file.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Counters of the journal's work so far.
    pub fn metrics(&self) -> JournalMetrics {
        self.shared.counters.read()
    }

    /// The journal's identity. It is kept from the first file on; until then every opening draws another one.
    pub fn id(&self) -> JournalId {
        self.id
    }

    /// Stores and syncs the queued entries, stops the thread and releases the directory. Entries for which there is
    /// no room are refused. Dropping the journal instead leaves the disk as a killed process would.
    pub fn close(&self) -> Result<(), JournalError> {
        self.shared.queue.lock().is_closing = true;
        let mut start = self.start.lock();
        if let Some(mut writer) = start.writer.take()
            && let Err(error) = writer.finish()
        {
            writer.fail(&error);
        }
        self.join(&mut start);
        *self.shared.lock.lock() = None;
        self.failure().map_or(Ok(()), Err)
    }

    /// Releases the directory as if the process had died: the queue is forgotten, and nothing more is synced. The
    /// remaining holders find the journal closed.
    pub fn abandon(&self) {
        // Owners that only the queue keeps alive are dropped without its lock.
        let _forgotten = {
            let mut queue = self.shared.queue.lock();
            queue.is_abandoned = true;
            std::mem::take(&mut queue.entries)
        };
        let mut start = std::mem::take(&mut *self.start.lock());
        self.join(&mut start);
        *self.shared.lock.lock() = None;
    }

    fn join(&self, start: &mut Start) {
        let Some(worker) = start.worker.take() else { return };
        worker.wake().wake();
        // An owner may hold the last reference and drop it on the journal's own thread, which is not waited for.
        if !worker.join() {
            tracing::error!(dir = %self.dir.display(), "the journal's thread has panicked");
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// Retires damaged files that are not needed: all of a journal that was closed, or those that the other files call
/// settled. Otherwise fails with `error`, the damage that was found.
fn retire_needless(
    env: &Env,
    dir: &Path,
    closed: Option<JournalId>,
    error: JournalError,
) -> Result<(), JournalError> {
    let refused = match closed {
        Some(id) => retire_damaged(env, dir, id, error),
        None => Err(error),
    };
    match refused {
        Err(error @ JournalError::Corrupt { .. }) => retire_settled(env, dir, error),
        refused => refused,
    }
}
