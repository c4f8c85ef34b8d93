//! The log of one partition, as the broker holds it.
//!
//! A [`PartitionLog`] is a handle that costs a few hundred bytes while nothing happens: files are opened, and an
//! unclean log is recovered, at the first use, and the store closes it again when it was idle. Callers notice nothing
//! of that but the time. One appender works at a time; readers take a snapshot under a short lock and never wait for an
//! append's file write.
//!
//! Knows neither topics' names nor high watermarks: the end of visible records comes in as an argument.

mod append;
mod checkpointing;
mod compact;
mod cut;
mod dense;
mod export_tail;
mod journal_replay;
mod journaled;
mod known;
mod level_change;
mod look;
mod offline;
mod open;
mod prepare;
mod presence;
mod read;
mod recovery;
mod retention;
mod states;
mod tail;
mod times;
mod unreadable;
mod unwritable;
mod watermarks;
mod writer;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use riverrun_env::prefetch;
use riverrun_types::{DurabilityLevel, LeaderEpoch, Offset, PartitionId, TimestampMs, Watermarks};

pub use append::{AppendOptions, Appended};
pub use compact::CompactOptions;
use compact::UnfinishedSwap;
pub(crate) use journal_replay::{EntryPlace, Replayed, Target};
pub(crate) use journaled::counterpart;
pub use known::KnownPartition;
pub(crate) use level_change::{LevelChange, LevelChangeEnd};
pub(crate) use open::OpenLog;
pub use prepare::ProducedBatch;
pub use read::{Chunk, Patience, ReadSlice};
pub use retention::Retained;
pub(crate) use tail::{Piece, TailEntry};
pub use times::TimeSearch;
pub use watermarks::LogObserver;
use watermarks::Marks;
pub(crate) use writer::record_producer;

use crate::config::LogConfig;
use crate::error::LogError;
use crate::log_dir::{DirWork, LogDir};
use crate::log_starts::Change;
use crate::open_logs::OpenedLog;
use crate::producer_state::ProducerView;
use crate::rank::{self, Ranked, RankedRw};
use crate::segment::Home;
use unreadable::Unreadable;

/// The present state of the log behind the handle.
#[derive(Debug)]
enum State {
    Closed,
    Open(Arc<OpenLog>),
    /// Found corrupt, which every call returns until a restart.
    Offline(LogError),
    Deleted,
}

/// One partition's log. Shared by everyone who uses the partition.
///
/// Invariants: at most one [`OpenLog`] is current; an older one refuses appends, and readers that still hold it see its
/// last state. While one is current the store's open logs have this one among them. It tells its log dir and the
/// journals of itself by its id: the store finds the handle. `opening` is taken before `state`, which is not locked
/// while a use opens the log and recovers it: only callers that want it open, or gone, wait for that.
#[derive(Debug)]
pub struct PartitionLog {
    this: Weak<Self>,
    id: PartitionId,
    dir: Arc<LogDir>,
    epoch: AtomicI32,
    config: RwLock<Arc<LogConfig>>,
    marks: Marks,
    /// Held while the log is opened, cut or closed.
    opening: Ranked<rank::Opening, ()>,
    state: RankedRw<rank::State, State>,
    /// The damage that was found since the log was opened.
    damage: OnceLock<LogError>,
    unreadable: Arc<Unreadable>,
    /// The journal may hold entries of it that no checkpoint covers, although no log is open that knows of them.
    has_journal_tail: AtomicBool,
    /// Something was staged once: at a level that does not go through the journal.
    has_staged: AtomicBool,
    is_deleted: AtomicBool,
    was_used: AtomicBool,
    /// In the time of the store's open logs.
    last_use: AtomicU64,
    idle_since: Mutex<Option<Duration>>,
}

/// Keeps a log open as long as this lives, so that an append does not wait for the disk to open it.
#[derive(Debug)]
pub struct KeptOpen {
    /// The store closes no log that is referred to.
    _log: Arc<OpenLog>,
}

/// A state that stays locked for longer is held by a thread that waits for the disk.
const STATE_WAIT_MAX: Duration = Duration::from_millis(10);

impl PartitionLog {
    pub(crate) fn new(
        id: PartitionId,
        dir: Arc<LogDir>,
        config: Arc<LogConfig>,
        epoch: LeaderEpoch,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            id,
            dir,
            epoch: AtomicI32::new(epoch.0),
            marks: Marks::new(config.durability),
            config: RwLock::new(config),
            opening: Ranked::default(),
            state: RankedRw::new(State::Closed),
            damage: OnceLock::new(),
            unreadable: Arc::default(),
            has_journal_tail: AtomicBool::new(false),
            has_staged: AtomicBool::new(false),
            is_deleted: AtomicBool::new(false),
            was_used: AtomicBool::new(false),
            last_use: AtomicU64::new(0),
            idle_since: Mutex::new(None),
        })
    }

    pub(crate) fn dir(&self) -> &Arc<LogDir> {
        &self.dir
    }

    /// Time of its last use, by the clock of the store's open logs.
    pub(crate) fn last_use(&self) -> u64 {
        self.last_use.load(Ordering::Relaxed)
    }

    /// The partition's id.
    pub fn id(&self) -> PartitionId {
        self.id
    }

    /// The directory of its files, or of the files to come.
    pub fn path(&self) -> PathBuf {
        self.dir.partition_path(self.id)
    }

    /// The options in force.
    pub fn config(&self) -> Arc<LogConfig> {
        self.config.read().clone()
    }

    /// Puts other options into force from the next operation on, or from the end of the log's opening if that is under way.
    pub fn set_config(&self, config: Arc<LogConfig>) {
        let promised = self.level_promised();
        {
            // Under one lock, so that of two changes at once the same one wins in both places.
            let mut current = self.config.write();
            self.marks.want_level(config.durability);
            *current = config;
        }
        if let Some(log) = self.current_log() {
            self.follow_config(&log);
        }
        if self.level_promised() != promised {
            // Acks may have waited for a sync that is not promised any more.
            self.marks.tell_advanced();
        }
    }

    /// Whether none of its entries is on its way through the journal. Appends that saw the store open are through by
    /// then.
    pub(crate) fn is_drained(&self) -> bool {
        self.current_log().is_none_or(|log| {
            let _appender = log.appender.lock();
            log.submitted_bytes.load(Ordering::Relaxed) == 0
        })
    }

    /// Prefetches the handle for an append that comes soon.
    pub fn prefetch(&self) {
        prefetch(self);
    }

    /// As [`Self::prefetch`], a little later, for the open log.
    pub fn prefetch_appender(&self) {
        self.prefetch_of_open(OpenLog::prefetch_appender);
    }

    /// As [`Self::prefetch`], for the settler.
    pub(crate) fn prefetch_writer(&self) {
        self.prefetch_of_open(prefetch);
    }

    fn prefetch_of_open(&self, prefetch: impl Fn(&OpenLog)) {
        if let Some(state) = self.state.try_read()
            && let State::Open(log) = &*state
        {
            prefetch(log);
        }
    }

    /// The open log behind the handle, if it is open. While it is being opened it is not.
    fn current_log(&self) -> Option<Arc<OpenLog>> {
        match &*self.state.read() {
            State::Open(log) => Some(log.clone()),
            _ => None,
        }
    }

    /// As [`Self::current_log`], without waiting for a thread that closes the log and waits for the disk: `None` then,
    /// because nothing of it is in memory.
    fn log_at_hand(&self) -> Option<Arc<OpenLog>> {
        match self.state.try_read_for(STATE_WAIT_MAX).as_deref() {
            Some(State::Open(log)) => Some(log.clone()),
            _ => None,
        }
    }

    /// The leader epoch that appends are stamped with.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        LeaderEpoch(self.epoch.load(Ordering::Relaxed))
    }

    pub(crate) fn set_leader_epoch(&self, epoch: LeaderEpoch) {
        self.epoch.store(epoch.0, Ordering::Relaxed);
    }

    /// First offset that can be read.
    pub fn log_start_offset(&self) -> Result<Offset, LogError> {
        Ok(self.open()?.log_start())
    }

    /// As [`Self::log_start_offset`], if the log is open. Does not wait.
    pub fn open_log_start(&self) -> Option<Offset> {
        match &*self.state.try_read()? {
            State::Open(log) => Some(log.log_start()),
            _ => None,
        }
    }

    /// The offset after the last record that the log holds. Appends that are not stored yet lie beyond it.
    pub fn log_end_offset(&self) -> Result<Offset, LogError> {
        Ok(self.open()?.end())
    }

    /// Opens the log, and recovers it, if it is not open. Fails if it is not and its log dir does not answer.
    pub fn ensure_open(&self) -> Result<(), LogError> {
        self.open_for_append().map(|_| ())
    }

    /// As [`Self::ensure_open`], and keeps the log open.
    pub fn keep_open(&self) -> Result<KeptOpen, LogError> {
        self.open_for_append().map(|log| KeptOpen { _log: log })
    }

    /// As [`Self::keep_open`], if the log is open. Does not wait.
    pub fn keep_if_open(&self) -> Option<KeptOpen> {
        let log = match &*self.state.try_read()? {
            State::Open(log) => log.clone(),
            _ => return None,
        };
        self.note_use();
        Some(KeptOpen { _log: log })
    }

    /// The log's watermarks. Takes no lock and waits for nothing; for a log that was never opened since the start they
    /// are unknown.
    pub fn watermarks(&self) -> Watermarks {
        self.marks.read()
    }

    /// The offset up to which the last checkpoint has covered the segments; retention and compaction go no further.
    /// Opens nothing.
    pub fn recovery_point(&self) -> Offset {
        match self.current_log() {
            // A state that is still being written down, or could not be, does not count yet.
            Some(log) => log.recovery_point(),
            None => {
                self.dir.checkpointed(self.id).map_or(Offset::ZERO, |checkpoint| checkpoint.recovery_point)
            }
        }
    }

    /// The level that an append of now survives once it is acked. It differs from the options' level while a change is
    /// under way.
    pub fn level_reached(&self) -> DurabilityLevel {
        self.marks.level().unwrap_or_else(|| self.config().durability)
    }

    /// The level that acks have to keep from now on. A level that syncs is promised as soon as the options ask for it:
    /// an append before it is reached is acked only when a sync has covered its records all the same. A level that does
    /// not sync counts only once it is reached.
    pub fn level_promised(&self) -> DurabilityLevel {
        self.marks.level_promised().unwrap_or_else(|| self.config().durability)
    }

    /// Calls `observer` at every advance and every loss from now on; there is one observer.
    pub fn observe(&self, observer: Weak<dyn LogObserver>) {
        self.marks.observe(observer);
    }

    /// Bytes of the whole log. Does not open a closed partition: then they are as of the last checkpoint.
    pub fn size_bytes(&self) -> u64 {
        match &*self.state.read() {
            State::Open(log) => log.shown.lock().size_bytes(),
            _ => self.dir.checkpointed(self.id).map_or(0, |checkpoint| checkpoint.size_bytes),
        }
    }

    /// Whether files that are no longer part of the log still wait to be removed by a later
    /// [`apply_retention`](Self::apply_retention), and keep their space until then. Opens nothing.
    pub fn awaits_removals(&self) -> bool {
        matches!(&*self.state.read(), State::Open(log) if !log.doomed.lock().is_empty())
    }

    /// Log start and log end without opening the partition: exact if it is open or was closed in order, otherwise as of
    /// the last checkpoint, which may lag behind.
    pub fn known_range(&self) -> (Offset, Offset) {
        if let State::Open(log) = &*self.state.read() {
            let shown = log.shown.lock();
            return (shown.view.log_start, shown.view.end);
        }
        let checkpoint = self.dir.checkpointed(self.id);
        checkpoint.map_or((Offset::ZERO, Offset::ZERO), |found| (found.log_start, found.log_end))
    }

    /// The reason why the partition is offline, if it is.
    pub fn failure(&self) -> Option<LogError> {
        if let Err(error) = self.dir.check_usable() {
            return Some(error);
        }
        if let Err(error) = self.check_undamaged() {
            return Some(error);
        }
        match &*self.state.read() {
            State::Offline(error) => Some(error.clone()),
            _ => None,
        }
    }

    /// The reason why appends can be lost: the partition is offline, or its journal has failed.
    pub fn loss_reason(&self) -> Option<LogError> {
        self.failure().or_else(|| self.current_log()?.journal_failure.get().cloned())
    }

    /// The epoch of the newest record; none if there was none.
    pub fn latest_epoch(&self) -> Result<Option<LeaderEpoch>, LogError> {
        Ok(self.open()?.shown.lock().view.latest_epoch)
    }

    /// The end of `epoch`: see [`EpochCache::end_offset_for`](crate::epochs::EpochCache::end_offset_for).
    pub fn epoch_end_offset(&self, epoch: LeaderEpoch) -> Result<(LeaderEpoch, Offset), LogError> {
        let log = self.open()?;
        let end = log.end();
        Ok(log.epochs().end_offset_for(epoch, self.leader_epoch(), end))
    }

    /// The epoch in which the record at `offset` was appended.
    pub fn epoch_of(&self, offset: Offset) -> Result<Option<LeaderEpoch>, LogError> {
        Ok(self.open()?.epochs().epoch_of(offset))
    }

    /// The idempotent producers that the log remembers.
    pub fn active_producers(&self) -> Result<Vec<ProducerView>, LogError> {
        Ok(self.open()?.producers().views().collect())
    }

    /// Forgets producers that were silent for too long; returns their number. A closed partition is left alone: its
    /// producers are looked at when it is opened.
    pub fn expire_producers(&self, now: TimestampMs) -> usize {
        let expiration_ms = self.config().producer_id_expiration_ms;
        let log = match &*self.state.read() {
            State::Open(log) => log.clone(),
            _ => return 0,
        };
        // Another writer may wait for a disk that does not answer, and other logs have their turn after this one.
        if let Some(mut writer) = log.writer.try_lock() {
            writer.producers.expire(now, expiration_ms);
        }
        log.producers().expire(now, expiration_ms)
    }

    /// The open log behind the handle, opened and recovered now if it was not.
    pub(crate) fn open(&self) -> Result<Arc<OpenLog>, LogError> {
        self.note_use();
        self.check_undamaged()?;
        if let Some(result) = Self::current(&self.state.read(), self.id) {
            return result;
        }
        self.dir.open_logs().make_room(&*self.dir.env().clock);
        let _opening = self.opening.lock();
        // Another thread may have done it while this one waited.
        if let Some(result) = Self::current(&self.state.read(), self.id) {
            return result;
        }
        self.dir.check_open()?;
        self.dir.check_opened()?;
        // If the dir is away, missing files say nothing of the partition. If it has failed, the files that are there
        // are read.
        if !self.dir.has_failed() {
            let _working = self.dir.working(DirWork::Opens(self.id));
            self.dir.check_in_place()?;
        }
        self.dir.shared().check_recovered()?;
        let recovered = recovery::recover(self, None).map_err(|error| self.dir.judge(error));
        self.take_over(&mut self.state.write(), recovered)
    }

    /// Makes the outcome of a recovery the state of a log that was closed. Its error was judged.
    fn take_over(
        &self,
        state: &mut State,
        recovered: Result<Arc<OpenLog>, LogError>,
    ) -> Result<Arc<OpenLog>, LogError> {
        match recovered {
            Ok(log) => {
                // Not before the state is locked: a checkpoint that finds the log closed leaves it out for good.
                if log.writer.lock_unshared().is_dirty {
                    self.dir.mark_dirty(self.id);
                }
                self.unreadable.forget_opening();
                *state = State::Open(log.clone());
                let opened = OpenedLog { dir: self.dir.number(), id: self.id };
                self.last_use.store(self.dir.open_logs().insert(self.address(), opened), Ordering::Relaxed);
                // The options may have changed before the state was locked, or the log goes on in the journal against them.
                if self.level_at_opening() != self.level_reached() {
                    self.follow_config(&log);
                }
                Ok(log)
            }
            Err(error) => {
                self.note_opening_unreadable(&error);
                if error.is_lasting() {
                    tracing::error!(partition = %self.id, %error, "partition goes offline");
                    *state = State::Offline(error.clone());
                }
                Err(error)
            }
        }
    }

    /// Stores only values that change, so that many users do not contend for them.
    fn note_use(&self) {
        if !self.was_used.load(Ordering::Relaxed) {
            self.was_used.store(true, Ordering::Relaxed);
        }
        let now = self.dir.open_logs().now();
        if self.last_use.load(Ordering::Relaxed) != now {
            self.last_use.store(now, Ordering::Relaxed);
        }
    }

    /// Runs `action` on the open log while no other thread removes segments and none closes the log.
    fn reshape<T, E: From<LogError>>(
        &self,
        action: impl FnOnce(&OpenLog, &mut Option<UnfinishedSwap>) -> Result<T, E>,
    ) -> Result<T, E> {
        loop {
            let log = self.open()?;
            let mut reshaping = log.reshaping.lock();
            if !log.appender.lock().is_retired {
                return action(&log, &mut reshaping);
            }
        }
    }

    fn current(state: &State, id: PartitionId) -> Option<Result<Arc<OpenLog>, LogError>> {
        match state {
            State::Closed => None,
            State::Open(log) => Some(Ok(log.clone())),
            State::Offline(error) => Some(Err(error.clone())),
            State::Deleted => Some(Err(LogError::Deleted(id))),
        }
    }

    /// The key of the handle in the store's open logs.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Has the log dir write down a change that holds before the next checkpoint. Durable when it returns.
    fn persist(&self, change: Change) -> Result<(), LogError> {
        self.dir.persist(self.id, change, || self.is_deleted())
    }

    /// Closes the log if it is open, the checkpoint has everything of it, and it is not in use right now. Does nothing while it
    /// is being opened or cut.
    pub(crate) fn close_if_unused(&self) -> bool {
        let Some(_opening) = self.opening.try_lock() else { return false };
        let Some(mut state) = self.state.try_write() else { return false };
        // Each user of an open log holds a reference to it.
        let is_unused = matches!(&*state, State::Open(log) if Arc::strong_count(log) == 1);
        let closed = if is_unused { self.retire_in(&mut state) } else { None };
        drop(state);
        // Only callers that want the log open again wait for the disk.
        closed.as_deref().map(OpenLog::tidy_up).is_some()
    }

    /// Makes a log that can be closed the partition's current one no longer, and returns it.
    fn retire_in(&self, state: &mut State) -> Option<Arc<OpenLog>> {
        let State::Open(log) = &*state else { return None };
        let log = Some(log.clone()).filter(|log| log.retire())?;
        // A checkpoint covers it all.
        self.has_journal_tail.store(false, Ordering::Relaxed);
        self.leave(state, State::Closed);
        Some(log)
    }

    /// Replaces an open log by another state.
    fn leave(&self, state: &mut State, next: State) {
        *state = next;
        self.dir.open_logs().remove(self.address());
    }

    /// Closes the log if it was not used for `older_than`, by monotonic time. Otherwise closes its sealed segments
    /// without readers.
    pub(crate) fn close_if_idle(&self, now: Duration, older_than: Duration) -> bool {
        let log = match &*self.state.read() {
            State::Open(log) => log.clone(),
            _ => return false,
        };
        let mut idle_since = self.idle_since.lock();
        if self.was_used.swap(false, Ordering::Relaxed) {
            *idle_since = Some(now);
            log.close_unused_segments();
            return false;
        }
        let is_idle = idle_since.get_or_insert(now).saturating_add(older_than) <= now;
        drop(idle_since);
        drop(log);
        is_idle && self.close_if_unused()
    }

    /// The store goes away: calls through the handle fail from now on. No thread writes to its segments when this
    /// returns.
    pub(crate) fn shut(&self) {
        self.end_use(State::Closed);
    }

    /// The log goes away for good: later calls fail with [`LogError::Deleted`]. No thread writes to its segments, or
    /// begins one, when this returns.
    pub(crate) fn mark_deleted(&self) {
        self.is_deleted.store(true, Ordering::Release);
        self.end_use(State::Deleted);
    }

    /// Whether the log is being deleted, or is gone. A caller asks under the lock of its dir's memory: the deletion
    /// removes the partition from the memory afterwards.
    pub(crate) fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Acquire)
    }

    fn end_use(&self, next: State) {
        let log = {
            let _opening = self.opening.lock();
            let mut state = self.state.write();
            let log = match &*state {
                State::Open(log) => Some(log.clone()),
                _ => None,
            };
            if let Some(log) = &log {
                log.abandon();
            }
            if log.is_some() || matches!(next, State::Deleted) {
                self.leave(&mut state, next);
            }
            log
        };
        // A writer that had its pieces in hand by then may be making its directory. Neither lock is held meanwhile: a
        // writer may look at the state.
        if let Some(log) = log {
            drop(log.writer.lock());
        }
    }

    fn home(&self) -> Arc<Home> {
        let pool = self.dir.open_logs().pool().clone();
        let mut dir = self.path();
        dir.shrink_to_fit();
        Arc::new(Home {
            fs: self.dir.env().fs.clone(),
            pool,
            dir,
            partition: self.id,
            has_failed: self.dir.failed_flag(),
        })
    }
}
