//! One log dir, for the logs in it: its lock and owner, its disk, and the state of its partitions.
//!
//! A dir knows a partition by its id, and knows no log. Logs tell their dir that they have something to settle, to
//! write, or a level to change, and the dir keeps lists of ids. The store has the handles and works through the lists
//! (`store/dir_logs.rs`).
//!
//! A checkpoint syncs the whole file system of the dir at once, and those to which links in it lead, through
//! descriptors that stay open for as long as the dir is in use, and then replaces the checkpoint file. After a failed
//! sync the dir has failed for good: unsynced bytes may be lost although they can still be read, and no later sync
//! would tell. A failed write has the same effect, unless space, quota, descriptors or memory were short. If a sync of
//! the file system does not tell which bytes were lost, each segment that the checkpoint covers is synced by itself as
//! well. Many unsynced bytes are written before the sync, in pieces (`write_back.rs`), so that a stop does not wait for
//! it.
//!
//! A read may fail for one bad sector, or because the device is gone. So after such an error, but not after each, a
//! small write that changes nothing is synced, and tells. Thus a dir without appends fails as well when its device is
//! dead. The settler does this, because a sync may take long, and others may wait for the thread that has met the
//! error.
//!
//! A dir that is not the opened one any more fails as well (`presence.rs`), and nothing is made in its place.

mod changes;
mod checkpointing;
mod deletion;
mod device;
mod left;
mod presence;
mod tails;
mod volumes;
mod work;
mod write_back;

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, RwLockReadGuard};
use riverrun_env::{Alarm, Directory, Env, File, LockGuard, is_device_error, is_shortage, read_whole};
use riverrun_types::{Offset, PartitionId, TopicId};

use self::device::Looks;
pub use self::left::Leaves;
use self::left::LeftWrites;
pub(crate) use self::tails::Grown;
use self::volumes::Volumes;
pub use self::work::DirWork;
use self::work::Works;
pub(crate) use self::write_back::Unwritten;
use crate::checkpoint::{CHECKPOINT_FILE, DecodeError, DirCheckpoint, PartitionCheckpoint};
use crate::early_rolls::EarlyRolls;
use crate::error::LogError;
use crate::level_change_queue::LevelChangeQueue;
use crate::log_starts::{Change, LogStarts};
use crate::open_logs::OpenLogs;
use crate::pace::{Hurry, Pace};
use crate::producer_state::AppendOrigin;
use crate::rank::{self, Guard, Ranked, RankedRw};
use crate::shared::StoreShared;
use crate::space::{Measured, Space};
use crate::write_cache::{self, Kept, take_off};

/// Name of the lock file in a log dir.
pub(crate) const LOCK_FILE: &str = "lock";
/// Begin of the names of the side files with a log dir's entries.
pub(crate) const DIR_PREFIX: &str = "logdir-";
/// The checkpoint in bytes at most: millions of partitions.
const CHECKPOINT_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// The reserve of a log dir is at most this share of its volume.
const RESERVE_SHARE: u64 = 20;

/// The state of a log dir's partitions, in memory.
#[derive(Debug, Default)]
struct Memory {
    /// The next checkpoint; its statements about partitions are synced.
    checkpoint: DirCheckpoint,
    /// Partitions that have changes since `checkpoint`.
    dirty: Vec<PartitionId>,
    /// The file lacks something of `checkpoint`.
    is_unwritten: bool,
}

/// The parts of an opened dir. A dir that could not be opened has nothing but its `failure`.
#[derive(Default)]
struct Opening {
    root: Option<Box<dyn Directory>>,
    volumes: Option<Volumes>,
    device: Option<Arc<dyn File>>,
    lock: Option<Box<dyn LockGuard>>,
    memory: Memory,
    log_starts: Option<LogStarts>,
    failure: Option<String>,
    has_synced_found: bool,
}

/// A log dir in use. Its locks are taken in the order of `rank.rs`: `asides` before a log's writer, then `write_backs`,
/// `log_starts` and `memory`. No thread waits for the disk under `memory`, which appends take too.
///
/// Invariants: while `log_starts` is not locked, `memory` holds every move of a log start that the file holds.
#[derive(Debug)]
pub(crate) struct LogDir {
    env: Env,
    shared: Arc<StoreShared>,
    /// The dir's index in the store.
    number: usize,
    /// The other dirs of the store, once all of them are there.
    others: OnceLock<Vec<Weak<Self>>>,
    path: PathBuf,
    /// The directory itself, open, by which it is recognised. None if it could not be opened.
    root: Option<Box<dyn Directory>>,
    /// None if the dir could not be opened: it has failed then.
    volumes: Option<Volumes>,
    /// A file that is written to find out whether the device takes writes.
    device: Option<Arc<dyn File>>,
    looks: Mutex<Looks>,
    lock: Mutex<Option<Box<dyn LockGuard>>>,
    memory: Ranked<rank::Memory, Memory>,
    /// Locked while a move of a log start is written, synced and taken over into `memory`.
    log_starts: Ranked<rank::LogStarts, Option<LogStarts>>,
    was_clean: bool,
    is_closed: AtomicBool,
    has_failed: Arc<AtomicBool>,
    failure: Mutex<Option<String>>,
    /// Set before the first partition goes offline: as long as it is not, health checks do not look at each.
    has_met_trouble: AtomicBool,
    space: Space,
    early_rolls: EarlyRolls,
    works: Works,
    left: LeftWrites,
    /// Wakes the settler.
    alarm: Arc<Alarm>,
    /// Bytes of the write cache's count that lie in this dir's tails.
    stored_bytes: AtomicU64,
    kept: Kept,
    /// Partitions whose level is to change.
    pub(crate) level_changes: Mutex<LevelChangeQueue>,
    /// Number of times that entries of the dir were put aside. Locked while they are put aside, also by another dir's
    /// settler, and while they are released.
    pub(crate) asides: Ranked<rank::Asides, u64>,
    /// Partitions that have a tail.
    pub(crate) tails: Mutex<Vec<PartitionId>>,
    /// Partitions with a large tail.
    large: Mutex<VecDeque<PartitionId>>,
    /// Held while the disk is told to begin with settled bytes, and, if that fails, until the dir has failed.
    write_backs: RankedRw<rank::WriteBacks, ()>,
    /// Callers that wait for settling or for a checkpoint.
    pub(crate) hurry: Hurry,
    /// Bytes that an earlier process has left are synced.
    has_synced_found: AtomicBool,
}

impl LogDir {
    /// Locks and reads the dir; makes it if it is not there. Costs nothing per partition but reading
    /// the checkpoint.
    pub(crate) fn open(
        env: &Env,
        number: usize,
        path: &Path,
        shared: &Arc<StoreShared>,
    ) -> Result<Self, LogError> {
        let io = |error| LogError::io(path, error);
        let is_new = !env.fs.exists(path).map_err(io)?;
        env.fs.create_dir_all(path).map_err(io)?;
        let lock_path = path.join(LOCK_FILE);
        let lock = env.fs.lock(&lock_path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => LogError::Locked { path: path.to_path_buf() },
            _ => LogError::io(&lock_path, error),
        })?;
        let volumes = Volumes::open(&*env.fs, path).map_err(io)?;
        if is_new {
            // The dir's own name, and those above it, are as volatile as its files.
            volumes.sync().map_err(io)?;
        }
        let checkpoint = read_checkpoint(env, path)?;
        let (log_starts, changes) = LogStarts::open(&*env.fs, path, checkpoint.generation)?;
        let was_clean = checkpoint.is_clean;
        // A checkpoint that was made up, because none can be read, has no generation.
        let has_checkpoint = checkpoint.generation > 0;
        let mut memory = Memory { checkpoint, dirty: Vec::new(), is_unwritten: true };
        for (partition, change) in changes {
            memory.change(partition, change);
        }
        let opening = Opening {
            root: Some(env.fs.open_dir(path).map_err(io)?),
            volumes: Some(volumes),
            device: Some(device::open(&*env.fs, path)?),
            lock: Some(lock),
            memory,
            log_starts: Some(log_starts),
            failure: None,
            has_synced_found: was_clean || !holds_topics(env, path)?,
        };
        let dir = Self::new(env, number, path, shared, opening);
        dir.remove_leftovers()?;
        dir.begin_use(has_checkpoint)?;
        Ok(dir)
    }

    /// A dir that cannot be used: it has failed from the start, and so have all its partitions.
    pub(crate) fn failed(
        env: &Env,
        number: usize,
        path: &Path,
        shared: &Arc<StoreShared>,
        error: &LogError,
    ) -> Self {
        tracing::error!(path = %path.display(), %error, "a log dir cannot be used");
        let reason = match error {
            LogError::DirFailed { reason, .. } => reason.clone(),
            error => error.to_string(),
        };
        let opening = Opening { failure: Some(reason), has_synced_found: true, ..Opening::default() };
        Self::new(env, number, path, shared, opening)
    }

    fn new(env: &Env, number: usize, path: &Path, shared: &Arc<StoreShared>, opening: Opening) -> Self {
        Self {
            number,
            others: OnceLock::new(),
            path: path.to_path_buf(),
            root: opening.root,
            volumes: opening.volumes,
            device: opening.device,
            looks: Mutex::default(),
            lock: Mutex::new(opening.lock),
            was_clean: opening.memory.checkpoint.is_clean,
            memory: Ranked::new(opening.memory),
            log_starts: Ranked::new(opening.log_starts),
            is_closed: AtomicBool::new(false),
            has_failed: Arc::new(AtomicBool::new(opening.failure.is_some())),
            failure: Mutex::new(opening.failure),
            has_met_trouble: AtomicBool::new(false),
            space: Space::new(reserve_bytes(env, path, shared)),
            early_rolls: EarlyRolls::new(),
            works: Works::default(),
            left: LeftWrites::default(),
            alarm: Arc::default(),
            stored_bytes: AtomicU64::new(0),
            kept: Kept::default(),
            level_changes: Mutex::default(),
            asides: Ranked::default(),
            tails: Mutex::default(),
            large: Mutex::default(),
            write_backs: RankedRw::default(),
            hurry: Hurry::default(),
            has_synced_found: AtomicBool::new(opening.has_synced_found),
            shared: shared.clone(),
            env: env.clone(),
        }
    }

    /// The dir's index in the store.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// These are the dirs of the store.
    pub(crate) fn know_others(&self, dirs: &[Arc<Self>]) {
        let others = dirs.iter().filter(|dir| dir.number != self.number);
        self.others.get_or_init(|| others.map(Arc::downgrade).collect());
    }

    /// Whether another log dir is settled.
    fn has_other_that_answers(&self) -> bool {
        let mut others = self.others.get().into_iter().flatten().filter_map(Weak::upgrade);
        others.any(|other| other.is_open() && !other.stands_still())
    }

    /// The name under which the journals keep the entries that this dir cannot take.
    pub(crate) fn held_name(&self) -> String {
        format!("{DIR_PREFIX}{:08x}", crc32c::crc32c(self.path.as_os_str().as_encoded_bytes()))
    }

    /// Whether the dir could be opened: otherwise it has failed for as long as the process lives.
    pub(crate) fn is_open(&self) -> bool {
        self.volumes.is_some()
    }

    /// Fails if the dir could not be opened.
    pub(crate) fn check_opened(&self) -> Result<(), LogError> {
        if self.is_open() { Ok(()) } else { self.check_usable() }
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// The open logs of the whole store.
    pub(crate) fn open_logs(&self) -> &OpenLogs {
        &self.shared.open_logs
    }

    /// The resources that the log dirs of a store share.
    pub(crate) fn shared(&self) -> &Arc<StoreShared> {
        &self.shared
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the dir's last server stopped in order.
    pub(crate) fn was_clean(&self) -> bool {
        self.was_clean
    }

    /// Whether the checkpoint's state of a partition, or its absence, can be believed.
    pub(crate) fn is_checkpoint_trusted(&self, id: PartitionId) -> bool {
        self.memory.lock().checkpoint.partitions.get(&id).is_none_or(|known| !known.is_lost)
    }

    /// Whether the state of some partition is lost, and its log has not been opened since.
    pub(crate) fn has_lost_partitions(&self) -> bool {
        self.memory.lock().checkpoint.partitions.values().any(|known| known.is_lost)
    }

    pub(crate) fn partition_path(&self, id: PartitionId) -> PathBuf {
        self.path.join(topic_dir(id)).join(id.index.to_string())
    }

    /// Has checkpoints include a partition's directory, if it is there, also on another file system than the dir's own.
    /// A dir that has failed has no checkpoints any more.
    pub(crate) fn include(&self, directory: &Path) -> Result<(), LogError> {
        let Some(volumes) = self.volumes.as_ref().filter(|_| !self.has_failed()) else { return Ok(()) };
        match volumes.include(&*self.env.fs, directory) {
            Err(LogError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(()),
            included => included,
        }
    }

    /// Whether the checkpoint has the partition.
    pub(crate) fn remembers(&self, id: PartitionId) -> bool {
        self.memory.lock().checkpoint.partitions.contains_key(&id)
    }

    /// Whether the dir holds files of the partition, or remembers that it did.
    pub(crate) fn holds(&self, id: PartitionId) -> Result<bool, LogError> {
        if self.remembers(id) {
            return Ok(true);
        }
        let path = self.partition_path(id);
        self.env.fs.exists(&path).map_err(|error| LogError::io(&path, error))
    }

    /// The checkpoint's state of a partition.
    pub(crate) fn checkpointed(&self, id: PartitionId) -> Option<PartitionCheckpoint> {
        self.memory.lock().checkpoint.partitions.get(&id).cloned()
    }

    /// A value from the checkpoint's state of each of its partitions.
    pub(crate) fn all_checkpointed<T>(
        &self,
        view: impl Fn(PartitionId, &PartitionCheckpoint) -> T,
    ) -> Vec<T> {
        let memory = self.memory.lock();
        memory.checkpoint.partitions.iter().map(|(id, known)| view(*id, known)).collect()
    }

    pub(crate) fn mark_dirty(&self, id: PartitionId) {
        self.memory.lock().dirty.push(id);
    }

    /// Up to so many milliseconds, at random.
    pub(crate) fn jitter_ms(&self, jitter_ms: u64) -> u64 {
        if jitter_ms == 0 { 0 } else { self.env.random.next_u64() % jitter_ms }
    }

    /// Whether a path is the dir's, or one of a file of its own.
    fn is_own(&self, path: &Path) -> bool {
        path == self.path || path.parent() == Some(&self.path)
    }

    /// Returns the error of a partition as it is, unless the whole dir fails with it. Waits for no sync.
    pub(crate) fn judge(&self, error: LogError) -> LogError {
        self.note_trouble();
        match &error {
            LogError::Write { path, source } => self.fail(path, source),
            // A partition's file that vanished is noted by its log.
            LogError::Vanished { path, .. } if self.is_own(path) => self.fail_vanished(&error),
            LogError::Io { source, .. } if is_shortage(source) => {
                self.measure_space();
                error
            }
            LogError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => error,
            LogError::Io { .. } | LogError::Unreadable { .. } => {
                self.ask_for_look();
                // The earlier failure explains it.
                self.check_usable().err().unwrap_or(error)
            }
            _ => error,
        }
    }

    /// As [`Self::judge`], for a caller that may wait: looks at the device if its state decides.
    pub(crate) fn judge_at_once(&self, error: LogError) -> LogError {
        let error = self.judge(error);
        self.look_if_asked().err().unwrap_or(error)
    }

    /// Fails if an append cannot be taken: the dir has failed, or there is no room for it.
    pub(crate) fn check_writable(&self, origin: AppendOrigin) -> Result<(), LogError> {
        self.check_usable()?;
        self.space.check(origin, &self.path)
    }

    /// Measures the free space.
    pub(crate) fn measure_space(&self) {
        let unsettled_bytes = self.space.unsettled_bytes();
        let available_bytes = {
            let _working = self.working(DirWork::Space);
            self.env.fs.available_bytes(&self.path)
        };
        let Ok(available_bytes) = available_bytes else { return };
        let measured = self.space.measured(available_bytes, unsettled_bytes);
        if measured != Measured::Same {
            // Entries that could not be settled, or brought back, may find room now.
            self.alarm.raise();
        }
        if measured == Measured::Other {
            let (path, reserve_bytes) = (self.path.display(), self.space.reserve_bytes());
            let message = match self.space.check(AppendOrigin::Client, &self.path) {
                Ok(()) => "the log dir has space for clients again",
                Err(_) => "the log dir runs full: clients' records are refused until there is more space",
            };
            tracing::warn!(%path, available_bytes, unsettled_bytes, reserve_bytes, "{message}");
        }
    }

    /// So many bytes are on their way into a journal, and into a segment after that.
    pub(crate) fn add_unsettled(&self, bytes: u64) {
        self.space.add_unsettled(bytes);
        self.shared.cache.add(bytes);
    }

    /// So many of them are stored in a journal, and lie in a tail.
    pub(crate) fn count_stored(&self, bytes: u64) {
        let is_half_full = self.shared.cache.count_stored(bytes);
        let stored_bytes = self.stored_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if is_half_full && stored_bytes >= self.shared.worth_settling_bytes() {
            self.alarm.raise();
        }
    }

    /// Whether the write cache is half full, and the dir's share of it is large enough to hinder others.
    pub(crate) fn fills_cache(&self) -> bool {
        let stored_bytes = self.stored_bytes.load(Ordering::Relaxed);
        self.shared.cache.is_half_full() && stored_bytes >= self.shared.worth_settling_bytes()
    }

    /// The dir's tails have memory of their own: bytes that have left them make room although settling has not ended.
    pub(crate) fn let_go_of_kept(&self) {
        self.kept.let_go(&self.shared.cache);
    }

    /// To be held while the dir's tails are settled: see [`Kept::settling`].
    pub(crate) fn keep_memory(&self) -> write_cache::Settling<'_> {
        self.kept.settling(&self.shared.cache)
    }

    /// Spreads one pass over the dir's partitions.
    pub(crate) fn pace(&self) -> Pace<'_> {
        Pace::new(&self.env, &*self.shared, &self.hurry)
    }

    /// So many bytes have left a tail.
    pub(crate) fn remove_stored(&self, bytes: u64) {
        self.space.remove_unsettled(bytes);
        take_off(&self.stored_bytes, bytes);
        self.kept.remove_stored(&self.shared.cache, bytes);
    }

    /// So many bytes never get into a tail.
    pub(crate) fn remove_submitted(&self, bytes: u64) {
        self.space.remove_unsettled(bytes);
        self.shared.cache.remove(bytes);
    }

    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    /// The allowance for small segments of the dir's logs.
    pub(crate) fn early_rolls(&self) -> &EarlyRolls {
        &self.early_rolls
    }

    /// To be held while the disk is told to begin with settled bytes, and until an error of that is judged.
    pub(crate) fn writing_back(&self) -> Guard<RwLockReadGuard<'_, ()>> {
        self.write_backs.read()
    }

    /// Wakes the dir's settler.
    pub(crate) fn alarm(&self) -> &Arc<Alarm> {
        &self.alarm
    }

    /// Has the settler change the level of a partition.
    pub(crate) fn request_level_change(&self, partition: PartitionId) {
        self.level_changes.lock().request(partition);
        self.alarm.raise();
    }

    /// Number of times that entries of the dir were put aside.
    pub(crate) fn aside_count(&self) -> u64 {
        *self.asides.lock()
    }

    /// Fails if the store is being closed and there is no time left to settle.
    pub(crate) fn check_time(&self) -> Result<(), LogError> {
        self.shared.check_time(&*self.env.clock)
    }

    /// Fails if the dir has failed.
    pub(crate) fn check_usable(&self) -> Result<(), LogError> {
        if !self.has_failed() {
            return Ok(());
        }
        let reason = self.failure.lock().clone().unwrap_or_default();
        Err(LogError::DirFailed { path: self.path.clone(), reason })
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Whether the dir has failed or is full.
    pub(crate) fn takes_nothing(&self) -> bool {
        self.has_failed() || self.space.is_full()
    }

    /// A flag that is set once the dir has failed, for modules that have only files.
    pub(crate) fn failed_flag(&self) -> Arc<AtomicBool> {
        self.has_failed.clone()
    }

    /// A partition may go offline next.
    pub(crate) fn note_trouble(&self) {
        self.has_met_trouble.store(true, Ordering::Release);
    }

    /// Whether a partition may have gone offline since the start.
    pub(crate) fn has_met_trouble(&self) -> bool {
        self.has_met_trouble.load(Ordering::Acquire)
    }

    /// Partitions may not be opened any more.
    pub(crate) fn stop_opening(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Another server may use it.
    pub(crate) fn unlock(&self) {
        self.lock.lock().take();
    }

    /// Fails if partitions may not be opened any more.
    pub(crate) fn check_open(&self) -> Result<(), LogError> {
        if self.is_closed.load(Ordering::Acquire) { Err(LogError::Closed) } else { Ok(()) }
    }

    /// Fails the dir. The first failure stays its error.
    fn fail(&self, file: &Path, error: &io::Error) -> LogError {
        self.fail_once(|| {
            tracing::error!(
                path = %self.path.display(), file = %file.display(), %error,
                "a write or sync failed: nothing more is written to this log dir"
            );
            format!("writing or syncing {} failed: {error}", file.display())
        })
    }

    /// Fails the dir because it is not the opened one any more.
    fn fail_vanished(&self, error: &LogError) -> LogError {
        self.fail_once(|| {
            tracing::error!(
                path = %self.path.display(), %error,
                "a log dir is not what it was: nothing more is written to it, and nothing is made in its place"
            );
            error.to_string()
        })
    }

    fn fail_once(&self, tell: impl FnOnce() -> String) -> LogError {
        let mut failure = self.failure.lock();
        let reason = failure.get_or_insert_with(tell);
        self.has_failed.store(true, Ordering::Release);
        LogError::DirFailed { path: self.path.clone(), reason: reason.clone() }
    }
}

impl Memory {
    /// Takes over a captured state. The log start may have moved on since; the state of a log that was cut since is
    /// void.
    fn take(&mut self, id: PartitionId, captured: &PartitionCheckpoint) {
        let mut checkpoint = captured.clone();
        if let Some(known) = self.checkpoint.partitions.get(&id) {
            if known.cuts > captured.cuts {
                return;
            }
            checkpoint.log_start = checkpoint.log_start.max(known.log_start);
            checkpoint.log_end = checkpoint.log_end.max(checkpoint.log_start);
        }
        self.checkpoint.partitions.insert(id, checkpoint);
    }

    fn change(&mut self, id: PartitionId, change: Change) {
        let fresh = || PartitionCheckpoint::starting_at(Offset::ZERO);
        self.checkpoint.partitions.entry(id).or_insert_with(fresh).change(change);
    }
}

/// Name of a topic's directory: the topic's id as a UUID in the usual form, which no name from outside can have.
pub(crate) fn topic_dir(id: PartitionId) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(id.topic.0));
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// The topic whose directory has this name; none if it is no topic's directory.
fn topic_of(name: &str) -> Option<TopicId> {
    let topic = TopicId(u128::from_str_radix(&name.replace('-', ""), 16).ok()?.to_be_bytes());
    (topic_dir(PartitionId { topic, index: 0 }) == name).then_some(topic)
}

/// The reserve of a log dir: the option's value, but on a small volume a share of that.
fn reserve_bytes(env: &Env, dir: &Path, shared: &StoreShared) -> u64 {
    let total_bytes = env.fs.total_bytes(dir).unwrap_or(u64::MAX);
    shared.reserve_bytes().min(total_bytes / RESERVE_SHARE)
}

/// Whether the dir has a topic's directory.
fn holds_topics(env: &Env, dir: &Path) -> Result<bool, LogError> {
    let entries = env.fs.read_dir(dir).map_err(|error| LogError::io(dir, error))?;
    Ok(entries.iter().any(|entry| entry.is_dir && entry.name.to_str().and_then(topic_of).is_some()))
}

/// All partitions that have a directory.
fn list_partitions(env: &Env, dir: &Path) -> Result<Vec<PartitionId>, LogError> {
    let list = |path: &Path| env.fs.read_dir(path).map_err(|error| LogError::io(path, error));
    let mut partitions = Vec::new();
    for topic_entry in list(dir)?.iter().filter(|entry| entry.is_dir) {
        let Some(topic) = topic_entry.name.to_str().and_then(topic_of) else { continue };
        for entry in list(&dir.join(&topic_entry.name))?.iter().filter(|entry| entry.is_dir) {
            let index = entry.name.to_str().and_then(|name| name.parse().ok());
            partitions.extend(index.filter(|index| *index >= 0).map(|index| PartitionId { topic, index }));
        }
    }
    Ok(partitions)
}

/// The checkpoint. If it is damaged, missing or in a bad sector, a new one names every partition that has a directory,
/// and each is checked from its beginning when it is opened. So a later start does not take them for new.
fn read_checkpoint(env: &Env, dir: &Path) -> Result<DirCheckpoint, LogError> {
    let path = dir.join(CHECKPOINT_FILE);
    let read = read_whole(&*env.fs, &path, CHECKPOINT_BYTES_MAX);
    let reason = match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => "it is missing".to_owned(),
        // If the whole disk is dead, the next steps fail.
        Err(error) if is_device_error(&error) => format!("it cannot be read: {error}"),
        Err(error) => return Err(LogError::io(&path, error)),
        Ok(bytes) => match DirCheckpoint::decode(&bytes) {
            Ok(checkpoint) => return Ok(checkpoint),
            Err(source @ (DecodeError::NewerVersion { .. } | DecodeError::OldVersion { .. })) => {
                return Err(LogError::Format { path, source });
            }
            Err(error) => error.to_string(),
        },
    };
    let found = list_partitions(env, dir)?;
    if !found.is_empty() {
        tracing::error!(
            path = %path.display(), reason,
            "the checkpoint is unusable: every log is scanned at its first use, and deleted records may show again"
        );
    }
    let partitions = found.into_iter().map(|id| (id, PartitionCheckpoint::lost())).collect();
    Ok(DirCheckpoint { partitions, ..DirCheckpoint::default() })
}
