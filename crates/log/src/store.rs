//! All logs of one server: its log dirs, and the partitions in them.
//!
//! Opening the store costs the same for ten partitions as for ten thousand, apart from reading the checkpoints,
//! and it does not matter how the server stopped: partitions are opened, and recovered, at their first use.
//! What the journals hold is the exception: [`LogStore::recover`] brings it into the logs before anything is served.
//! Threads belong to the caller, who calls [`LogStore::checkpoint_dir`] and [`LogStore::close_idle`] now and then, and has a
//! thread for each log dir that does nothing but [`LogStore::wait_for_settling`] and [`LogStore::settle_dir`]: a dir whose
//! disk is slow, or hangs, holds up its own partitions only.

mod backoff;
mod hanging;
mod recovery;
mod reopen;
mod settling;
mod side_files;
mod unreadable;

pub use recovery::Place;
pub use settling::JournalMark;
pub(crate) use side_files::DIR_PREFIX;
pub(crate) use unreadable::FailedReread;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_env::Env;
use riverrun_journal::{Journal, JournalId, JournalOptions, Replay};
use riverrun_types::{DurabilityLevel, LeaderEpoch, Offset, PartitionId};

use self::reopen::Waiting;
use crate::config::LogConfig;
use crate::error::LogError;
use crate::file_names::DAMAGED_SUFFIX;
use crate::listing::Listing;
use crate::log_dir::{DirWork, Leaves, LogDir};
use crate::open_logs::OpenLogs;
use crate::partition_log::{PartitionLog, counterpart};
use crate::shared::StoreShared;
use crate::write_cache::WriteCache;

/// What a store may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Logs that may be open at the same time, in all log dirs together; at least one. An open log takes some kilobytes
    /// of memory. To close one for another costs a file's removal and creation, so the partitions that are in use should
    /// all fit, with an eighth to spare: from there on openings wait for others to be closed.
    pub open_logs_max: usize,
    /// Files of segments that stay open between two uses; at least one.
    pub open_files_max: usize,
    /// Directories of the journals, one for each device. Without any no partition can have a level that syncs. They must
    /// be those of the last time, in the same order, unless the store was closed then: which journal has a partition's
    /// records follows from their number. The caller sees to that, who can tell a journal that was moved from another.
    pub journal_dirs: Vec<PathBuf>,
    /// Of each journal that was closed with everything in it settled, and that nobody has used since, its id, as far as
    /// the caller knows: if such a one is damaged, nothing is lost with it.
    pub closed_journals: Vec<Option<JournalId>>,
    /// Options of each journal.
    pub journal: JournalOptions,
    /// Whether levels that do not sync go through the journal as well, which syncs them later.
    pub journal_async_write: bool,
    /// Bytes that may be in memory between the journal and the segments; see [`WriteCache`].
    pub write_cache_bytes: u64,
    /// Clients' appends to a log dir are refused while less space than this is left there, or than a twentieth of its volume
    /// if that is less. The journals' reserves are cut alike.
    pub reserve_bytes: u64,
    /// Log dirs that the caller has found to be away, and why. Each has failed from the start: nothing is read from it or
    /// written to it, whatever lies at its path now.
    pub absent_dirs: BTreeMap<PathBuf, String>,
}

impl StoreOptions {
    /// Open logs that a server is allowed at least, however few descriptors it may have: about 100 MB.
    const OPEN_LOGS_MIN: usize = 32 * 1024;
    /// Open files that a server is allowed at least.
    const OPEN_FILES_MIN: usize = 64;
    const WRITE_CACHE_BYTES: u64 = 128 * 1024 * 1024;

    /// For a process that may have `descriptors_max` descriptors: half of them are for files of segments, but at least
    /// 64. As many logs may be open, but at least 32,768.
    pub fn for_descriptors(descriptors_max: u64) -> Self {
        let half = usize::try_from(descriptors_max / 2).unwrap_or(usize::MAX);
        Self {
            open_logs_max: half.max(Self::OPEN_LOGS_MIN),
            open_files_max: half.max(Self::OPEN_FILES_MIN),
            journal_dirs: Vec::new(),
            closed_journals: Vec::new(),
            journal: JournalOptions::default(),
            journal_async_write: false,
            write_cache_bytes: Self::WRITE_CACHE_BYTES,
            reserve_bytes: 0,
            absent_dirs: BTreeMap::new(),
        }
    }
}

impl Default for StoreOptions {
    /// For the 1024 descriptors that a process has where nobody raised the limit.
    fn default() -> Self {
        Self::for_descriptors(1024)
    }
}

/// What is known of a partition without touching its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownPartition {
    /// The partition.
    pub id: PartitionId,
    /// Bytes of its log.
    pub size_bytes: u64,
    /// First offset that can be read.
    pub log_start: Offset,
    /// The offset that the next record will get.
    pub log_end: Offset,
    /// Whether its files are open: then the above is as of now. Otherwise it is what the last checkpoint says, exact
    /// for a log that was closed in order; after a kill the log may reach further, until it is recovered.
    pub is_open: bool,
    /// Whether files that are no longer part of the log keep their space until a later retention removes them. A
    /// partition that is closed has none.
    pub awaits_removals: bool,
}

/// What recovery has brought from the journals into the logs.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// Entries that no checkpoint had covered, and that the logs have now.
    pub entries: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Partitions that they belong to.
    pub partitions: usize,
    /// Entries that a checkpoint had covered.
    pub known_entries: u64,
    /// Entries of partitions that were deleted.
    pub dropped_entries: u64,
    /// Entries whose log dir cannot take them now; the journal keeps them aside.
    pub held_entries: u64,
    /// Partitions that nobody knows, and how many entries of each the journals keep aside.
    pub unknown: BTreeMap<PartitionId, u64>,
    /// Partitions that went offline, and why.
    pub offline: Vec<(PartitionId, LogError)>,
}

/// How a store was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The next start finds nothing to recover.
    InOrder,
    /// There was no time for that. The next start reads so many bytes from the journals, and recovers logs at their first use.
    LeftToJournals {
        /// What the journals have from the first entry on that is not settled.
        bytes: u64,
    },
}

impl Closed {
    /// The same where some log dir's last checkpoint was left out.
    fn or_left(self) -> Self {
        match self {
            Self::InOrder => Self::LeftToJournals { bytes: 0 },
            left @ Self::LeftToJournals { .. } => left,
        }
    }
}

/// The log dirs of one server, and its journals.
///
/// Invariants: every dir is locked by this process until the store is closed or dropped. Dropping syncs nothing.
#[derive(Debug)]
pub struct LogStore {
    shared: Arc<StoreShared>,
    dirs: Vec<Arc<LogDir>>,
    /// What the journals' earlier lives have left, until it is recovered.
    replays: Mutex<Vec<Replay>>,
    /// Partitions that could not take what the journals have of them, for want of room mostly.
    waiting: Mutex<Vec<Waiting>>,
    /// Names under which the journals kept something aside when they were opened.
    found_aside: HashSet<String>,
    /// Partitions that nobody knows and of which the journals keep something aside.
    unknown: Mutex<Vec<PartitionId>>,
}

impl LogStore {
    /// Opens journals and log dirs and makes those that are not there. A log dir that is away or cannot be opened has
    /// failed, and the others go on; without any that can, or if another server uses one, this fails. With journals,
    /// [`Self::recover`] comes next.
    pub fn open(env: &Env, dirs: &[PathBuf], options: StoreOptions) -> Result<Self, LogError> {
        let mut journals = Vec::with_capacity(options.journal_dirs.len());
        let mut replays = Vec::with_capacity(options.journal_dirs.len());
        for (index, dir) in options.journal_dirs.iter().enumerate() {
            let closed = options.closed_journals.get(index).copied().flatten();
            let journal = JournalOptions { reserve_bytes: options.reserve_bytes, ..options.journal };
            let opened = Journal::open_closed(env, dir, journal, closed);
            let (journal, replay) = opened.map_err(LogError::Journal)?;
            journals.push(Arc::new(journal));
            replays.push(replay);
        }
        let found_aside = journals.iter().flat_map(|journal: &Arc<Journal>| journal.held()).collect();
        let open_logs = OpenLogs::new(options.open_logs_max, options.open_files_max);
        let shared = Arc::new(StoreShared::new(open_logs, journals, options));
        let dirs = open_dirs(env, dirs, &shared)?;
        shared.set_dirs(&dirs);
        Ok(Self {
            shared,
            dirs,
            replays: Mutex::new(replays),
            waiting: Mutex::default(),
            found_aside,
            unknown: Mutex::default(),
        })
    }

    /// The memory of what is in no segment yet.
    pub fn write_cache(&self) -> &WriteCache {
        &self.shared.cache
    }

    /// Whether who appends should be held up until there is room in the write cache. What waits there for room on a disk, or
    /// for a log dir that has failed or is the only one and does not answer, does not count, because nobody knows for how long: who would append to the same journal
    /// or log dir is refused, and the others take no more than the cache. What waits for both counts twice, so that they may
    /// take as much more. What a partition has that [alone cannot be written to](Self::unwritable) has left the cache's
    /// count, as far as there was room beside it.
    pub fn is_write_cache_full(&self) -> bool {
        let cache = self.write_cache();
        cache.is_full() && self.write_cache_used_bytes() >= cache.bytes_max()
    }

    /// What the write cache holds of what can be settled, as [`Self::is_write_cache_full`] counts it.
    pub fn write_cache_used_bytes(&self) -> u64 {
        let in_journals: u64 = self.journals().map(Journal::waiting_bytes).sum();
        let stuck_dirs = self.dirs.iter().filter(|dir| dir.takes_nothing() || dir.is_stuck());
        let in_dirs: u64 = stuck_dirs.map(|dir| dir.space().unsettled_bytes()).sum();
        self.write_cache().bytes().saturating_sub(in_journals + in_dirs)
    }

    /// Bytes in the write cache that log dir `dir_index` has to settle; none if it takes nothing, so that who would append to
    /// it is refused.
    pub fn dir_unsettled_bytes(&self, dir_index: usize) -> Option<u64> {
        let dir = &self.dirs[dir_index];
        (!dir.takes_nothing() && !dir.is_stuck()).then(|| dir.space().unsettled_bytes())
    }

    /// The journals, in the order of their directories.
    pub fn journals(&self) -> impl Iterator<Item = &Journal> {
        self.shared.journals.iter().map(|journal| &**journal)
    }

    /// Whether the journals keep something aside that is in no segment, maybe: they must not be taken away.
    pub fn has_aside(&self) -> bool {
        self.shared.journals.iter().any(|journal| !journal.held().is_empty())
    }

    /// Partitions that nobody knew at the start and of which the journals keep something aside. Nothing of it goes until
    /// a start at which they are known, or somebody takes the files away.
    pub fn unknown_partitions(&self) -> Vec<PartitionId> {
        self.unknown.lock().clone()
    }

    /// The files in which the journals keep what they have of partitions that nobody knows.
    pub fn unknown_files(&self) -> Vec<PathBuf> {
        let journals = self.shared.journals.iter();
        let holding =
            journals.filter(|journal| journal.held().iter().any(|name| name == side_files::UNKNOWN_NAME));
        holding.map(|journal| journal.dir().join(format!("held-{}-*", side_files::UNKNOWN_NAME))).collect()
    }

    /// How many logs are open.
    pub fn open_log_count(&self) -> usize {
        self.shared.open_logs.count()
    }

    /// How many idempotent producers all open logs remember: each in each partition that it writes to, as appended and as
    /// settled.
    pub fn remembered_producers(&self) -> usize {
        self.shared.open_logs.producers().remembered()
    }

    /// Number of log dirs.
    pub fn dir_count(&self) -> usize {
        self.dirs.len()
    }

    /// Path of a log dir.
    pub fn dir_path(&self, dir_index: usize) -> &Path {
        self.dirs[dir_index].path()
    }

    /// Whether every log dir was closed in order when it was used last.
    pub fn was_clean(&self) -> bool {
        self.dirs.iter().all(|dir| dir.was_clean())
    }

    /// Why a log dir has failed, if it has.
    pub fn dir_failure(&self, dir_index: usize) -> Option<LogError> {
        self.dirs[dir_index].check_usable().err()
    }

    /// The log dir that holds a partition, if one does.
    pub fn find(&self, id: PartitionId) -> Result<Option<usize>, LogError> {
        for (index, dir) in self.dirs.iter().enumerate() {
            if dir.holds(id)? {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// The handle of a partition in log dir `dir_index`. Free of cost: files are opened at the first use, and then
    /// damage is found. A handle that exists gets the new options and the new epoch.
    pub fn partition(
        &self,
        id: PartitionId,
        dir_index: usize,
        config: Arc<LogConfig>,
        epoch: LeaderEpoch,
    ) -> Result<Arc<PartitionLog>, LogError> {
        let dir = &self.dirs[dir_index];
        dir.check_open()?;
        Ok(dir.partition(id, config, epoch))
    }

    /// The handle of a partition in log dir `dir_index`, if somebody has asked for it since the start: its log may be
    /// open although nobody holds it.
    pub fn handle(&self, id: PartitionId, dir_index: usize) -> Option<Arc<PartitionLog>> {
        self.dirs[dir_index].handle(id)
    }

    /// What acked records of a partition in log dir `dir_index` survive now, where its options ask for `wanted`. What a
    /// process that did not stop in order has left counts as unsynced until [`Self::sync_found`], as far as nobody has
    /// looked at it. Opens nothing and waits for nobody.
    pub fn level_reached(
        &self,
        id: PartitionId,
        dir_index: usize,
        wanted: DurabilityLevel,
    ) -> DurabilityLevel {
        let dir = &self.dirs[dir_index];
        dir.handle(id).and_then(|log| log.level_now()).unwrap_or_else(|| {
            // A partition without files has nothing that was found: it was made since.
            let may_be_found = || dir.holds(id).unwrap_or(true);
            let is_unknown = wanted.syncs_locally() && !dir.has_synced_found() && may_be_found();
            if is_unknown { counterpart(wanted) } else { wanted }
        })
    }

    /// Records of a partition in log dir `dir_index` that are appended and not synced yet. Opens nothing; of a partition
    /// that was not opened since the start it knows none.
    pub fn unsynced_records(&self, id: PartitionId, dir_index: usize) -> i64 {
        self.dirs[dir_index].handle(id).map_or(0, |log| log.unsynced_records())
    }

    /// Syncs what a process before this one has left in log dir `dir_index`, if it did not stop in order: also what belongs to
    /// partitions that nobody opens survives a power cut then. Does nothing the second time. A dir that cannot be synced
    /// fails, and says so.
    pub fn sync_found(&self, dir_index: usize) {
        let dir = &self.dirs[dir_index];
        if !dir.is_open() {
            return;
        }
        if let Err(error) = dir.sync_found() {
            tracing::debug!(path = %dir.path().display(), %error, "what was found there is not synced");
        }
    }

    /// Removes a partition and its files. Whoever holds the handle gets [`LogError::Deleted`].
    pub fn delete(&self, id: PartitionId, dir_index: usize) -> Result<(), LogError> {
        self.dirs[dir_index].delete(id)
    }

    /// Looks whether log dirs, logs that are open, and journals are still what was opened: directories and files may be taken
    /// away, or others be put in their place. What is not any more takes nothing from now on. In each log dir the caller keeps
    /// `files`. Waits for the disk.
    pub fn look_for_vanished(&self, files: &[&str]) {
        (0..self.dirs.len()).for_each(|dir_index| self.look_for_vanished_in(dir_index, files));
        self.look_for_vanished_journals();
    }

    /// The same of log dir `dir_index`, and of the logs in it that are open.
    pub fn look_for_vanished_in(&self, dir_index: usize, files: &[&str]) {
        let dir = &self.dirs[dir_index];
        if !dir.has_failed() && dir.check_with(files).is_ok() {
            dir.check_open_logs();
        }
    }

    /// The same of the journals.
    pub fn look_for_vanished_journals(&self) {
        for journal in &self.shared.journals {
            journal.check_in_place();
        }
    }

    /// Whether there may be as many bytes in the files of a partition in log dir `dir_index` as the last checkpoint tells of,
    /// as far as names and sizes say. Opens none of them. What retention has taken since is missed, too: an opening says what
    /// is the matter.
    pub fn seems_whole(&self, id: PartitionId, dir_index: usize) -> bool {
        let dir = &self.dirs[dir_index];
        let Some(known) = dir.checkpointed(id).filter(|known| known.log_start < known.recovery_point) else {
            return true;
        };
        let listing = Listing::read(dir.env(), &dir.partition_path(id));
        listing
            .is_ok_and(|listing| listing.logs.iter().map(|(_, bytes)| bytes).sum::<u64>() >= known.size_bytes)
    }

    /// Partitions whose files were found to be damaged since the start, and how. Opens nothing, and passes over those
    /// that are being opened at the moment.
    pub fn damaged(&self) -> Vec<(PartitionId, LogError)> {
        let handles = self.dirs.iter().flat_map(|dir| dir.handles());
        handles.filter_map(|log| Some((log.id(), log.damage()?))).collect()
    }

    /// Partitions that alone take no more records, because what they have cannot be written, and why: their log dirs can be
    /// written to. Opens nothing, and passes over those that are being opened at the moment.
    pub fn unwritable(&self) -> Vec<(PartitionId, LogError)> {
        let well = self.dirs.iter().filter(|dir| !dir.takes_nothing());
        let handles = well.flat_map(|dir| dir.handles());
        let well = handles.filter(|log| log.damage().is_none());
        well.filter_map(|log| Some((log.id(), log.unwritable()?))).collect()
    }

    /// Log dirs for which the journals keep what they cannot take, because it cannot be put aside either, and why.
    pub fn stuck_dirs(&self) -> Vec<(PathBuf, String)> {
        self.dirs.iter().filter_map(|dir| Some((dir.path().to_path_buf(), dir.aside_trouble()?))).collect()
    }

    /// Partitions of which the disk does not give back some place, as far as anybody has seen since the start, and the place:
    /// what lies around it is served. Opens nothing, and passes over those that are being opened at the moment, and over log
    /// dirs that have failed as a whole.
    pub fn unreadable(&self) -> Vec<(PartitionId, LogError)> {
        let handles = self.dirs.iter().filter(|dir| !dir.has_failed()).flat_map(|dir| dir.handles());
        handles.filter_map(|log| Some((log.id(), log.unreadable()?))).collect()
    }

    /// Whether nobody can read a partition, as far as anybody has seen: its log dir could not be opened, or its files are
    /// not what they should be. Where only writing has failed, reads go on. Opens nothing, and waits for nobody.
    pub fn is_offline(&self, id: PartitionId, dir_index: usize) -> bool {
        self.dirs[dir_index].is_offline(id)
    }

    /// Whether a partition has more than one segment, by the names of its files. Opens none of them.
    pub fn has_sealed_segments(&self, id: PartitionId, dir_index: usize) -> bool {
        let dir = &self.dirs[dir_index];
        Listing::read(dir.env(), &dir.partition_path(id)).is_ok_and(|listing| listing.logs.len() > 1)
    }

    /// Whether damage was found in a partition before this start, by the names of its files. Opens none of them. Fails if
    /// these cannot be read, or the dir has failed; a partition without a directory has none.
    pub fn has_damage_mark(&self, id: PartitionId, dir_index: usize) -> Result<bool, LogError> {
        let dir = &self.dirs[dir_index];
        dir.check_usable()?;
        let path = dir.partition_path(id);
        let names = match dir.env().fs.read_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            read => read.map_err(|error| dir.judge_at_once(LogError::io(&path, error)))?,
        };
        let is_mark = |name: &str| name.ends_with(DAMAGED_SUFFIX);
        let is_marked = names.iter().any(|entry| entry.name.to_str().is_some_and(is_mark));
        if is_marked {
            self.shared.note_damage_mark();
        }
        Ok(is_marked)
    }

    /// Whether the next use of a partition in log dir `dir_index` may have to wait for the disk. It does not if its log is
    /// open. Else it may if a checkpoint tells of its files, which nobody may have read since the machine started; or if some
    /// may have to be recovered, or checked because of a [mark](Self::has_damage_mark) that was seen; or if so many are open
    /// that it waits until others are closed. Waits for nobody.
    pub fn may_open_slowly(&self, id: PartitionId, dir_index: usize) -> bool {
        let dir = &self.dirs[dir_index];
        if dir.handle(id).is_some_and(|log| log.open_log_start().is_some()) {
            return false;
        }
        // A new one, too, is looked for in a dir that may not answer; where it is the only one, nobody is held up for another.
        let is_any_slow = self.dirs.len() > 1
            || !self.was_clean()
            || self.shared.has_damage_marks()
            || self.shared.open_logs.is_crowded();
        is_any_slow || dir.remembers(id)
    }

    /// All partitions of a log dir that a checkpoint remembers or that have a handle, in the order of their ids. From
    /// memory only: opens nothing, makes no handle, and does not wait for a partition that is being recovered.
    pub fn known(&self, dir_index: usize) -> Vec<KnownPartition> {
        self.dirs[dir_index].known()
    }

    /// Has `hook` called with each partition that is opened while so many are open that [`Self::close_some`] has something to
    /// do. It must not wait for anything.
    pub fn on_crowd(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.shared.open_logs.on_crowd(Box::new(hook));
    }

    /// Closes some partitions of log dir `dir_index` that went longest without use, if hardly more may be open; may make a
    /// checkpoint of these. Returns whether to call it again. Handles stay valid.
    pub fn close_some(&self, dir_index: usize) -> bool {
        self.shared.open_logs.close_some_of(&self.dirs[dir_index])
    }

    /// Closes the files of partitions of log dir `dir_index` that nobody has used for `older_than` and that a checkpoint has
    /// covered; returns how many partitions were closed. Handles stay valid.
    pub fn close_idle(&self, dir_index: usize, older_than: Duration) -> usize {
        self.dirs[dir_index].close_idle(older_than)
    }

    /// What the disk of log dir `dir_index` is waited for longest, and since when by monotonic time. Waits for nobody.
    pub fn dir_work(&self, dir_index: usize) -> Option<(DirWork, Duration)> {
        self.dirs[dir_index].work()
    }

    /// Whether the disk of log dir `dir_index` has not answered for long. Waits for nobody.
    pub fn dir_hangs(&self, dir_index: usize) -> bool {
        self.dirs[dir_index].hangs()
    }

    /// Somebody calls [`Self::write_left`] for log dir `dir_index` again and again from now on: as `leaves` says,
    /// [`PartitionLog::leave_staged`] leaves to it what it does not write.
    pub fn set_leaves(&self, dir_index: usize, leaves: Leaves) {
        self.dirs[dir_index].set_leaves(leaves);
    }

    /// Waits until appends to log dir `dir_index` are left, but not longer than `timeout`, and writes them. Waits for its disk.
    pub fn write_left(&self, dir_index: usize, timeout: Duration) {
        self.dirs[dir_index].write_left(timeout);
    }

    /// Ends all waits in [`Self::write_left`], or the next ones.
    pub fn wake_writers(&self) {
        self.dirs.iter().for_each(|dir| dir.wake_writer());
    }

    /// Whether what is appended is refused because no log dir answers where it would go, and it has no room in memory.
    pub fn is_any_stuck(&self) -> bool {
        self.dirs.iter().any(|dir| dir.is_stuck())
    }

    /// [`Self::close`] comes next, and settles until monotonic time `until` at most; so does whoever settles or makes a
    /// checkpoint now, at once.
    pub fn close_by(&self, until: Duration) {
        self.shared.settle_until(until);
        self.wake_settling();
    }

    /// Settles and checkpoints everything, closes all files and lets go of the dirs: the next start finds nothing to
    /// recover, unless the time for it [is short](Self::close_by). Handles answer [`LogError::Closed`] from now on. A log dir that [has failed](Self::dir_failure), or
    /// does now, is left as it is, which the log tells; what the journals have of it is [kept there](Self::has_aside).
    /// If all of them have, this fails. One that [hangs](Self::dir_hangs) is left as a kill would leave it.
    pub fn close(&self) -> Result<Closed, LogError> {
        self.shared.stop_appending();
        let settled = self.close_journals();
        let answering = self.dirs.iter().filter(|dir| !dir.hangs());
        let closed: Vec<_> = answering.map(|dir| dir.close()).collect();
        let settled = settled?;
        let is_in_order =
            closed.into_iter().collect::<Result<Vec<bool>, LogError>>()?.into_iter().all(|it| it);
        let usable = self.dirs.iter().map(|dir| dir.check_usable());
        // Without any that has not failed nothing was stopped in order.
        usable.reduce(Result::or).unwrap_or(Ok(()))?;
        Ok(if is_in_order { settled } else { settled.or_left() })
    }
}

fn open_dirs(env: &Env, paths: &[PathBuf], shared: &Arc<StoreShared>) -> Result<Vec<Arc<LogDir>>, LogError> {
    let mut dirs = Vec::with_capacity(paths.len());
    let mut failure = None;
    for path in paths {
        dirs.push(Arc::new(match open_dir(env, path, shared) {
            Ok(dir) => dir,
            Err(error @ LogError::Locked { .. }) => return Err(error),
            Err(error) => {
                let dir = LogDir::failed(env, path, shared, &error);
                failure.get_or_insert(error);
                dir
            }
        }));
    }
    match failure {
        Some(error) if dirs.iter().all(|dir| !dir.is_open()) => Err(error),
        _ => Ok(dirs),
    }
}

/// Opens a log dir that is not away.
fn open_dir(env: &Env, path: &Path, shared: &Arc<StoreShared>) -> Result<LogDir, LogError> {
    match shared.absence_of(path) {
        Some(reason) => Err(LogError::DirFailed { path: path.to_path_buf(), reason: reason.to_owned() }),
        None => LogDir::open(env, path, shared),
    }
}

impl Drop for LogStore {
    /// As if the process had died: the next start recovers.
    fn drop(&mut self) {
        for dir in &self.dirs {
            dir.release();
        }
        // Handles may outlive the store, and the journals with them.
        for journal in &self.shared.journals {
            journal.abandon();
        }
    }
}
