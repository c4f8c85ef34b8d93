//! All logs of one server: its log dirs, and the partitions in them.
//!
//! Opening the store costs the same for ten partitions as for ten thousand, apart from reading the checkpoints, and it
//! does not matter how the server stopped: partitions are opened, and recovered, at their first use. The journals'
//! entries are the exception: [`LogStore::recover`] brings them into the logs before anything is served. Threads belong
//! to the caller. It calls [`LogStore::checkpoint_dir`] and [`LogStore::close_idle`] now and then, and has a thread for
//! each log dir that does nothing but [`LogStore::wait_for_settling`] and [`LogStore::settle_dir`]: a dir whose disk is
//! slow, or hangs, holds up its own partitions only.

mod backoff;
mod closing;
mod dir_logs;
mod hanging;
mod recovery;
mod reopen;
mod settling;
mod side_files;
mod unreadable;

pub use recovery::Place;
pub use settling::JournalMark;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_env::Env;
use riverrun_journal::{Journal, JournalOptions, Replay};
use riverrun_types::{DurabilityLevel, LeaderEpoch, PartitionId};

use self::closing::Closer;
use self::dir_logs::DirLogs;
use self::reopen::Waiting;
use crate::config::LogConfig;
use crate::error::LogError;
use crate::file_names::DAMAGED_SUFFIX;
use crate::listing::Listing;
use crate::log_dir::{DirWork, Leaves, LogDir};
use crate::open_logs::OpenLogs;
use crate::options::StoreOptions;
use crate::partition_log::{KnownPartition, PartitionLog, counterpart};
use crate::shared::StoreShared;
use crate::write_cache::WriteCache;

/// The entries that recovery has brought from the journals into the logs.
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
    /// Unknown partitions, and how many entries of each the journals keep aside.
    pub unknown: BTreeMap<PartitionId, u64>,
    /// Partitions that went offline, with the reasons.
    pub offline: Vec<(PartitionId, LogError)>,
}

/// How a store was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The next start finds nothing to recover.
    InOrder,
    /// There was no time for that. The next start reads so many bytes from the journals, and recovers logs at their
    /// first use.
    LeftToJournals {
        /// Bytes of the journals from the first unsettled entry on.
        bytes: u64,
    },
}

impl Closed {
    /// As before, but some log dir's last checkpoint was left out.
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
    env: Env,
    shared: Arc<StoreShared>,
    dirs: Vec<Arc<DirLogs>>,
    /// The entries of the journals' earlier lives, until they are recovered.
    replays: Mutex<Vec<Replay>>,
    /// Partitions that could not take their entries from the journals, mostly because room was short.
    waiting: Mutex<Vec<Waiting>>,
    /// Names under which the journals kept entries aside when they were opened.
    found_aside: HashSet<String>,
    /// Unknown partitions with entries that the journals keep aside.
    unknown: Mutex<Vec<PartitionId>>,
}

impl LogStore {
    /// Opens journals and log dirs and makes missing ones. A log dir that is away or cannot be opened has failed, and
    /// the others go on; if none can be opened, or another server uses one, this fails. With journals,
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
        shared.set_alarms(dirs.iter().map(|logs| Arc::clone(logs.dir.alarm())).collect());
        shared.open_logs.set_closer(Box::new(Closer::new(&dirs)));
        Ok(Self {
            env: env.clone(),
            shared,
            dirs,
            replays: Mutex::new(replays),
            waiting: Mutex::default(),
            found_aside,
            unknown: Mutex::default(),
        })
    }

    /// The memory of records that are in no segment yet.
    pub fn write_cache(&self) -> &WriteCache {
        &self.shared.cache
    }

    /// Whether producers should be held up until there is room in the write cache. Bytes do not count while they wait
    /// without a bound: for room on a disk, or for a log dir that has failed, or that is the only one and does not
    /// answer. Producers for the same journal or log dir are refused then, and the others take no more than the cache.
    /// Bytes that wait for both are subtracted twice, so that others may take as much more. Bytes of partitions that
    /// [alone cannot be written to](Self::unwritable) have left the cache's count, as far as there was room beside it.
    pub fn is_write_cache_full(&self) -> bool {
        let cache = self.write_cache();
        cache.is_full() && self.write_cache_used_bytes() >= cache.bytes_max()
    }

    /// Bytes in the write cache that can be settled, as [`Self::is_write_cache_full`] counts them.
    pub fn write_cache_used_bytes(&self) -> u64 {
        let in_journals: u64 = self.journals().map(Journal::waiting_bytes).sum();
        let stuck_dirs = self.dirs.iter().filter(|logs| logs.dir.takes_nothing() || logs.dir.is_stuck());
        let in_dirs: u64 = stuck_dirs.map(|logs| logs.dir.space().unsettled_bytes()).sum();
        self.write_cache().bytes().saturating_sub(in_journals + in_dirs)
    }

    /// Bytes in the write cache that log dir `dir_index` has to settle; `None` if it takes nothing, so that its
    /// producers are refused.
    pub fn dir_unsettled_bytes(&self, dir_index: usize) -> Option<u64> {
        let logs = &self.dirs[dir_index];
        (!logs.dir.takes_nothing() && !logs.dir.is_stuck()).then(|| logs.dir.space().unsettled_bytes())
    }

    /// The journals, in the order of their directories.
    pub fn journals(&self) -> impl Iterator<Item = &Journal> {
        self.shared.journals.iter().map(|journal| &**journal)
    }

    /// Whether the journals keep entries aside that may be in no segment: these journals must not be taken away.
    pub fn has_aside(&self) -> bool {
        self.shared.journals.iter().any(|journal| !journal.held().is_empty())
    }

    /// Partitions that were unknown at the start and have entries that the journals keep aside. These stay until a
    /// start at which the partitions are known, or an administrator moves the files away.
    pub fn unknown_partitions(&self) -> Vec<PartitionId> {
        self.unknown.lock().clone()
    }

    /// The side files with entries of unknown partitions.
    pub fn unknown_files(&self) -> Vec<PathBuf> {
        let journals = self.shared.journals.iter();
        let holding =
            journals.filter(|journal| journal.held().iter().any(|name| name == side_files::UNKNOWN_NAME));
        holding.map(|journal| journal.dir().join(format!("held-{}-*", side_files::UNKNOWN_NAME))).collect()
    }

    /// Number of open logs.
    pub fn open_log_count(&self) -> usize {
        self.shared.open_logs.count()
    }

    /// Number of idempotent producers that all open logs remember: each in each partition that it writes to, as
    /// appended and as settled.
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

    /// Whether the last server closed every log dir in order.
    pub fn was_clean(&self) -> bool {
        self.dirs.iter().all(|logs| logs.dir.was_clean())
    }

    /// The reason why a log dir has failed, if it has.
    pub fn dir_failure(&self, dir_index: usize) -> Option<LogError> {
        self.dirs[dir_index].dir.check_usable().err()
    }

    /// The log dir that holds a partition, if one does.
    pub fn find(&self, id: PartitionId) -> Result<Option<usize>, LogError> {
        for (index, logs) in self.dirs.iter().enumerate() {
            if logs.dir.holds(id)? {
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
        let logs = &self.dirs[dir_index];
        logs.dir.check_open()?;
        Ok(logs.partition(id, config, epoch))
    }

    /// The handle of a partition in log dir `dir_index`, if it was made since the start: its log may be open although
    /// the handle is not held.
    pub fn handle(&self, id: PartitionId, dir_index: usize) -> Option<Arc<PartitionLog>> {
        self.dirs[dir_index].handle(id)
    }

    /// The level that acked records of a partition in log dir `dir_index` survive now, if its options ask for `wanted`.
    /// Records of an earlier process that did not stop in order count as unsynced until [`Self::sync_found`], unless
    /// their log was opened since. Opens nothing and does not wait.
    pub fn level_reached(
        &self,
        id: PartitionId,
        dir_index: usize,
        wanted: DurabilityLevel,
    ) -> DurabilityLevel {
        let logs = &self.dirs[dir_index];
        logs.handle(id).and_then(|log| log.level_now()).unwrap_or_else(|| {
            // A partition without files has nothing from an earlier process.
            let may_be_found = || logs.dir.holds(id).unwrap_or(true);
            let is_unknown = wanted.syncs_locally() && !logs.dir.has_synced_found() && may_be_found();
            if is_unknown { counterpart(wanted) } else { wanted }
        })
    }

    /// Records of a partition in log dir `dir_index` that are appended and not synced yet. Opens nothing; 0 for a
    /// partition that was not opened since the start.
    pub fn unsynced_records(&self, id: PartitionId, dir_index: usize) -> i64 {
        self.dirs[dir_index].handle(id).map_or(0, |log| log.unsynced_records())
    }

    /// Syncs the bytes that an earlier process has left in log dir `dir_index`, if it did not stop in order: those of
    /// partitions that are never opened survive a power cut then, too. Does nothing the second time. A dir that cannot
    /// be synced fails, and logs it.
    pub fn sync_found(&self, dir_index: usize) {
        let logs = &self.dirs[dir_index];
        if !logs.dir.is_open() {
            return;
        }
        if let Err(error) = logs.sync_found() {
            tracing::debug!(path = %logs.path().display(), %error, "the bytes of an earlier process are not synced");
        }
    }

    /// Removes a partition and its files. Later calls through its handle fail with [`LogError::Deleted`].
    pub fn delete(&self, id: PartitionId, dir_index: usize) -> Result<(), LogError> {
        self.dirs[dir_index].delete(id)
    }

    /// Looks whether log dirs, open logs, and journals are still the opened ones: directories and files may be taken
    /// away, or replaced. A vanished one takes nothing from now on. In each log dir the caller keeps `files`. Waits for
    /// the disk.
    pub fn look_for_vanished(&self, files: &[&str]) {
        (0..self.dirs.len()).for_each(|dir_index| self.look_for_vanished_in(dir_index, files));
        self.look_for_vanished_journals();
    }

    /// As [`Self::look_for_vanished`], for log dir `dir_index` and the open logs in it.
    pub fn look_for_vanished_in(&self, dir_index: usize, files: &[&str]) {
        let logs = &self.dirs[dir_index];
        if !logs.dir.has_failed() && logs.dir.check_with(files).is_ok() {
            logs.check_open_logs();
        }
    }

    /// As [`Self::look_for_vanished`], for the journals.
    pub fn look_for_vanished_journals(&self) {
        for journal in &self.shared.journals {
            journal.check_in_place();
        }
    }

    /// Whether the files of a partition in log dir `dir_index` may have as many bytes as in the last checkpoint, judged
    /// by names and sizes. Opens none of them. Segments that retention has removed since count as missing, too: an
    /// opening tells the difference.
    pub fn seems_whole(&self, id: PartitionId, dir_index: usize) -> bool {
        let logs = &self.dirs[dir_index];
        let Some(known) = logs.dir.checkpointed(id).filter(|known| known.log_start < known.recovery_point)
        else {
            return true;
        };
        let listing = Listing::read(logs.env(), &logs.dir.partition_path(id));
        listing
            .is_ok_and(|listing| listing.logs.iter().map(|(_, bytes)| bytes).sum::<u64>() >= known.size_bytes)
    }

    /// Partitions whose files were found to be damaged since the start, with the errors. Opens nothing, and passes over
    /// those that are being opened at the moment.
    pub fn damaged(&self) -> Vec<(PartitionId, LogError)> {
        let handles = self.dirs.iter().flat_map(|logs| logs.handles());
        handles.filter_map(|log| Some((log.id(), log.damage()?))).collect()
    }

    /// Partitions that alone take no more records, because earlier ones cannot be written, with the reasons: their log
    /// dirs can be written to. Opens nothing, and passes over those that are being opened at the moment.
    pub fn unwritable(&self) -> Vec<(PartitionId, LogError)> {
        let well = self.dirs.iter().filter(|logs| !logs.dir.takes_nothing());
        let handles = well.flat_map(|logs| logs.handles());
        let well = handles.filter(|log| log.damage().is_none());
        well.filter_map(|log| Some((log.id(), log.unwritable()?))).collect()
    }

    /// Log dirs for which the journals keep entries that the dirs cannot take, because these cannot be put aside
    /// either, with the reasons.
    pub fn stuck_dirs(&self) -> Vec<(PathBuf, String)> {
        self.dirs.iter().filter_map(|logs| Some((logs.path().to_path_buf(), logs.aside_trouble()?))).collect()
    }

    /// Partitions with an unreadable place that was met since the start, and the place: records around it are served.
    /// Opens nothing, and passes over those that are being opened at the moment, and over log dirs that have failed as
    /// a whole.
    pub fn unreadable(&self) -> Vec<(PartitionId, LogError)> {
        let handles = self.dirs.iter().filter(|logs| !logs.dir.has_failed()).flat_map(|logs| logs.handles());
        handles.filter_map(|log| Some((log.id(), log.unreadable()?))).collect()
    }

    /// Whether a partition cannot be read, as far as is known: its log dir could not be opened, or damage of its files
    /// was found. If only writing has failed, reads go on. Opens nothing, and does not wait.
    pub fn is_offline(&self, id: PartitionId, dir_index: usize) -> bool {
        self.dirs[dir_index].is_offline(id)
    }

    /// Whether a partition has more than one segment, by the names of its files. Opens none of them.
    pub fn has_sealed_segments(&self, id: PartitionId, dir_index: usize) -> bool {
        let logs = &self.dirs[dir_index];
        Listing::read(logs.env(), &logs.dir.partition_path(id)).is_ok_and(|listing| listing.logs.len() > 1)
    }

    /// Whether a damage marker lies beside a segment of the partition, because damage was found in it before: the next
    /// opening checks that segment. Judged by the names of its files; opens none of them. Fails if these cannot be
    /// read, or the dir has failed; a partition without a directory has none.
    pub fn has_damage_marker(&self, id: PartitionId, dir_index: usize) -> Result<bool, LogError> {
        let logs = &self.dirs[dir_index];
        logs.dir.check_usable()?;
        let path = logs.dir.partition_path(id);
        let names = match logs.env().fs.read_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            read => read.map_err(|error| logs.dir.judge_at_once(LogError::io(&path, error)))?,
        };
        let is_mark = |name: &str| name.ends_with(DAMAGED_SUFFIX);
        let is_marked = names.iter().any(|entry| entry.name.to_str().is_some_and(is_mark));
        if is_marked {
            self.shared.note_damage_marker();
        }
        Ok(is_marked)
    }

    /// Whether the next use of a partition in log dir `dir_index` may have to wait for the disk. It does not if its log
    /// is open. Else it may if
    /// - a checkpoint has its files, which may not have been read since the machine started;
    /// - some logs may have to be recovered, or checked because of a [damage marker](Self::has_damage_marker) that was
    ///   seen;
    /// - so many logs are open that it waits until others are closed.
    ///
    /// Does not wait.
    pub fn may_open_slowly(&self, id: PartitionId, dir_index: usize) -> bool {
        let logs = &self.dirs[dir_index];
        if logs.handle(id).is_some_and(|log| log.open_log_start().is_some()) {
            return false;
        }
        // A new partition, too, is looked for in a dir that may not answer; if it is the only dir, no use of another
        // one is held up.
        let is_any_slow = self.dirs.len() > 1
            || !self.was_clean()
            || self.shared.has_damage_markers()
            || self.shared.open_logs.next_waits_for_room();
        is_any_slow || logs.dir.remembers(id)
    }

    /// All partitions of a log dir that a checkpoint remembers or that have a handle, in the order of their ids. From
    /// memory only: opens nothing, makes no handle, and does not wait for a partition that is being recovered.
    pub fn known(&self, dir_index: usize) -> Vec<KnownPartition> {
        self.dirs[dir_index].known()
    }

    /// Calls `hook` with each partition that is opened while so many are open that [`Self::close_some`] has something
    /// to do. It must not wait for anything.
    pub fn on_surplus(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.shared.open_logs.on_surplus(Box::new(hook));
    }

    /// Closes the files of partitions of log dir `dir_index` that were not used for `older_than` and that a checkpoint
    /// has covered; returns how many partitions were closed. Handles stay valid.
    pub fn close_idle(&self, dir_index: usize, older_than: Duration) -> usize {
        self.dirs[dir_index].close_idle(older_than)
    }

    /// The oldest operation that waits for the disk of log dir `dir_index`, and its begin by monotonic time. Does not
    /// wait.
    pub fn dir_work(&self, dir_index: usize) -> Option<(DirWork, Duration)> {
        self.dirs[dir_index].dir.work()
    }

    /// Whether the disk of log dir `dir_index` has not answered for long. Does not wait.
    pub fn dir_hangs(&self, dir_index: usize) -> bool {
        self.dirs[dir_index].dir.hangs()
    }

    /// Whether the disk of log dir `dir_index` answers nothing: unlike for [`Self::dir_hangs`], a checkpoint that takes
    /// long is no sign of it until it takes much longer, because the disk is read meanwhile. Does not wait.
    pub fn dir_stands_still(&self, dir_index: usize) -> bool {
        self.dirs[dir_index].dir.stands_still()
    }

    /// A writer calls [`Self::write_left`] for log dir `dir_index` again and again from now on:
    /// [`PartitionLog::leave_staged`] leaves batches to it, as `leaves` says.
    pub fn set_leaves(&self, dir_index: usize, leaves: Leaves) {
        self.dirs[dir_index].dir.set_leaves(leaves);
    }

    /// Waits until appends to log dir `dir_index` are left, but not longer than `timeout`, and writes them. Waits for its disk.
    pub fn write_left(&self, dir_index: usize, timeout: Duration) {
        self.dirs[dir_index].write_left(timeout);
    }

    /// Ends all waits in [`Self::write_left`], or the next ones.
    pub fn wake_writers(&self) {
        self.dirs.iter().for_each(|logs| logs.dir.wake_writer());
    }

    /// Whether appends are refused because their log dir does not answer, no other one does, and memory has no room.
    pub fn is_any_stuck(&self) -> bool {
        self.dirs.iter().any(|logs| logs.dir.is_stuck())
    }

    /// [`Self::close`] comes next, and settles until monotonic time `until` at most. Settling and checkpoints that are
    /// under way have the same end, and no pauses.
    pub fn close_by(&self, until: Duration) {
        self.shared.settle_until(until);
        self.wake_settling();
    }

    /// Settles and checkpoints everything, closes all files and the dirs: the next start finds nothing to recover,
    /// unless the time for it [is short](Self::close_by). Later calls through handles fail with [`LogError::Closed`]. A
    /// log dir that [has failed](Self::dir_failure), or does now, is left as it is, which the process's log tells; the
    /// journals' entries for it are [kept there](Self::has_aside). If all of them have failed, this fails. A dir that
    /// [hangs](Self::dir_hangs) is left as after a kill.
    pub fn close(&self) -> Result<Closed, LogError> {
        self.shared.stop_appending();
        let settled = self.close_journals();
        let answering = self.dirs.iter().filter(|logs| !logs.dir.hangs());
        let closed: Vec<_> = answering.map(|logs| logs.close()).collect();
        let settled = settled?;
        let is_in_order =
            closed.into_iter().collect::<Result<Vec<bool>, LogError>>()?.into_iter().all(|it| it);
        let usable = self.dirs.iter().map(|logs| logs.dir.check_usable());
        // If all dirs have failed nothing was stopped in order.
        usable.reduce(Result::or).unwrap_or(Ok(()))?;
        Ok(if is_in_order { settled } else { settled.or_left() })
    }
}

fn open_dirs(env: &Env, paths: &[PathBuf], shared: &Arc<StoreShared>) -> Result<Vec<Arc<DirLogs>>, LogError> {
    let mut dirs = Vec::with_capacity(paths.len());
    let mut failure = None;
    for (number, path) in paths.iter().enumerate() {
        dirs.push(Arc::new(match open_dir(env, number, path, shared) {
            Ok(dir) => dir,
            Err(error @ LogError::Locked { .. }) => return Err(error),
            Err(error) => {
                let dir = LogDir::failed(env, number, path, shared, &error);
                failure.get_or_insert(error);
                dir
            }
        }));
    }
    if let Some(error) = failure
        && dirs.iter().all(|dir| !dir.is_open())
    {
        return Err(error);
    }
    for dir in &dirs {
        dir.know_others(&dirs);
    }
    Ok(dirs.into_iter().map(DirLogs::new).map(Arc::new).collect())
}

/// Opens a log dir that is not away.
fn open_dir(env: &Env, number: usize, path: &Path, shared: &Arc<StoreShared>) -> Result<LogDir, LogError> {
    match shared.absence_of(path) {
        Some(reason) => Err(LogError::DirFailed { path: path.to_path_buf(), reason: reason.to_owned() }),
        None => LogDir::open(env, number, path, shared),
    }
}

impl Drop for LogStore {
    /// As if the process had died: the next start recovers.
    fn drop(&mut self) {
        for logs in &self.dirs {
            logs.release();
        }
        // Handles may outlive the store, and the journals with them.
        for journal in &self.shared.journals {
            journal.abandon();
        }
    }
}
