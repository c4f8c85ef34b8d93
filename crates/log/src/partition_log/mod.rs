//! The log of one partition, as the broker holds it.
//!
//! A [`PartitionLog`] is a handle that costs a few hundred bytes while nothing happens: files are opened, and an
//! unclean log is recovered, at the first use, and the store closes it again when it was idle. Callers notice
//! nothing of that but the time. One appender works at a time; readers take a snapshot under a short lock and never
//! wait for an append's file write.
//!
//! Knows neither topics' names nor high watermarks: what readers may see comes in as an argument.

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

/// What stands behind the handle at the moment.
#[derive(Debug)]
enum State {
    Closed,
    Open(Arc<OpenLog>),
    /// Found corrupt; the answer to every call until a restart.
    Offline(LogError),
    Deleted,
}

/// One partition's log. Shared by everyone who uses the partition.
///
/// Invariants: at most one [`OpenLog`] is current; one that is not refuses appends, and readers that still hold it
/// see what it held. While one is current the store's open logs have this one among them. It tells its log dir and the
/// journals of itself by its id: the store finds the handle. `opening` is taken before
/// `state`, which is not locked while a use opens the log and recovers it: only who wants it open, or gone, waits for that.
#[derive(Debug)]
pub struct PartitionLog {
    this: Weak<Self>,
    id: PartitionId,
    dir: Arc<LogDir>,
    epoch: AtomicI32,
    config: RwLock<Arc<LogConfig>>,
    marks: Marks,
    /// Held while the log is opened.
    opening: Ranked<rank::Opening, ()>,
    state: RankedRw<rank::State, State>,
    /// What was found to be damaged since the log was opened.
    damage: OnceLock<LogError>,
    unreadable: Arc<Unreadable>,
    /// The journal may hold something of it that no checkpoint covers, although no log is open that knows of it.
    has_journal_tail: AtomicBool,
    /// Something was staged once: at a level that does not go through the journal.
    has_staged: AtomicBool,
    is_deleted: AtomicBool,
    was_used: AtomicBool,
    /// In the time of the store's open logs.
    last_use: AtomicU64,
    idle_since: Mutex<Option<Duration>>,
}

/// Whoever holds the state for longer waits for the disk.
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

    /// When it was used last, in the time of the store's open logs.
    pub(crate) fn last_use(&self) -> u64 {
        self.last_use.load(Ordering::Relaxed)
    }

    /// Which partition this is.
    pub fn id(&self) -> PartitionId {
        self.id
    }

    /// Where its files lie, or will once there are any.
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
            // Together, so that of two changes at once the same one wins in both places.
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

    /// Whether nothing of it is on its way through the journal. Appends that saw the store open are through by then.
    pub(crate) fn is_drained(&self) -> bool {
        self.current_log().is_none_or(|log| {
            let _appender = log.appender.lock();
            log.submitted_bytes.load(Ordering::Relaxed) == 0
        })
    }

    /// An append comes soon: what it needs of the handle is brought near.
    pub fn prefetch(&self) {
        prefetch(self);
    }

    /// As [`Self::prefetch`], a little later: what it needs of the open log.
    pub fn prefetch_appender(&self) {
        self.prefetch_of_open(OpenLog::prefetch_appender);
    }

    /// The same for who settles.
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

    /// The same without waiting for who closes it and waits for the disk: nothing of it is in memory then.
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

    /// As [`Self::log_start_offset`] of a log that is open; of another one nothing. Waits for nobody.
    pub fn open_log_start(&self) -> Option<Offset> {
        match &*self.state.try_read()? {
            State::Open(log) => Some(log.log_start()),
            _ => None,
        }
    }

    /// The offset after the last record that the log holds. What was appended and is not stored yet lies beyond it.
    pub fn log_end_offset(&self) -> Result<Offset, LogError> {
        Ok(self.open()?.end())
    }

    /// Opens the log, and recovers it, if it is not open. Fails if it is not and its log dir does not answer.
    pub fn ensure_open(&self) -> Result<(), LogError> {
        self.open_for_append().map(|_| ())
    }

    /// How far the log reaches and how far it is synced. Takes no lock and waits for nothing; of a log that was never
    /// opened since the start it knows nothing.
    pub fn watermarks(&self) -> Watermarks {
        self.marks.read()
    }

    /// Up to where the last checkpoint has covered the segments; retention and compaction go no further. Opens nothing.
    pub fn recovery_point(&self) -> Offset {
        match self.current_log() {
            // What is still being written down, or could not be, does not count yet.
            Some(log) => log.recovery_point(),
            None => {
                self.dir.checkpointed(self.id).map_or(Offset::ZERO, |checkpoint| checkpoint.recovery_point)
            }
        }
    }

    /// What an append of now survives once it is acked. It differs from the level that the options ask for while a
    /// change is under way.
    pub fn level_reached(&self) -> DurabilityLevel {
        self.marks.level().unwrap_or_else(|| self.config().durability)
    }

    /// The level that acks have to keep from now on. A level that syncs is promised as soon as the options ask for it: who
    /// appends while it is not reached yet waits until a sync has covered the records all the same. One that does not sync
    /// counts only once it is reached.
    pub fn level_promised(&self) -> DurabilityLevel {
        self.marks.level_promised().unwrap_or_else(|| self.config().durability)
    }

    /// Has `observer` told of every advance and every loss from now on; there is one observer.
    pub fn observe(&self, observer: Weak<dyn LogObserver>) {
        self.marks.observe(observer);
    }

    /// Bytes of the whole log. Does not open a closed partition: then it answers what the last checkpoint says.
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

    /// Log start and log end without opening the partition: exact if it is open or was closed in order, otherwise
    /// what the last checkpoint says, which may lag behind.
    pub fn known_range(&self) -> (Offset, Offset) {
        if let State::Open(log) = &*self.state.read() {
            let shown = log.shown.lock();
            return (shown.view.log_start, shown.view.end);
        }
        let checkpoint = self.dir.checkpointed(self.id);
        checkpoint.map_or((Offset::ZERO, Offset::ZERO), |found| (found.log_start, found.log_end))
    }

    /// Why the partition is offline, if it is.
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

    /// Why what was appended can be lost: the partition is offline, or its journal has failed.
    pub fn loss_reason(&self) -> Option<LogError> {
        self.failure().or_else(|| self.current_log()?.journal_failure.get().cloned())
    }

    /// The epoch of the newest record; none if there was none.
    pub fn latest_epoch(&self) -> Result<Option<LeaderEpoch>, LogError> {
        Ok(self.open()?.shown.lock().view.latest_epoch)
    }

    /// Where `epoch` ended: see [`EpochCache::end_offset_for`](crate::epochs::EpochCache::end_offset_for).
    pub fn epoch_end_offset(&self, epoch: LeaderEpoch) -> Result<(LeaderEpoch, Offset), LogError> {
        let log = self.open()?;
        let end = log.end();
        Ok(log.epochs().end_offset_for(epoch, self.leader_epoch(), end))
    }

    /// The epoch in which the record at `offset` was appended.
    pub fn epoch_of(&self, offset: Offset) -> Result<Option<LeaderEpoch>, LogError> {
        Ok(self.open()?.epochs().epoch_of(offset))
    }

    /// The idempotent producers that are remembered.
    pub fn active_producers(&self) -> Result<Vec<ProducerView>, LogError> {
        Ok(self.open()?.producers().views().collect())
    }

    /// Forgets producers that were silent for too long; returns how many. A closed partition is left alone: its
    /// producers are looked at when it is opened.
    pub fn expire_producers(&self, now: TimestampMs) -> usize {
        let expiration_ms = self.config().producer_id_expiration_ms;
        let log = match &*self.state.read() {
            State::Open(log) => log.clone(),
            _ => return 0,
        };
        // Whoever writes may wait for a disk that does not answer, and other logs have their turn after this one.
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
        // Files that are not there say nothing of the partition where it is the dir that is not there. Of one that has failed
        // is read what there is.
        if !self.dir.has_failed() {
            let _working = self.dir.working(DirWork::Opens(self.id));
            self.dir.check_in_place()?;
        }
        self.dir.shared().check_recovered()?;
        let recovered = recovery::recover(self, None);
        self.take_over(&mut self.state.write(), recovered)
    }

    /// Takes what recovery has come to for the state of a log that was closed.
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
                // Who has changed the options meanwhile has found it closed, and where it goes on in the journal against them.
                if self.level_at_opening() != self.level_reached() {
                    self.follow_config(&log);
                }
                Ok(log)
            }
            Err(error) => {
                let error = self.dir.judge(error);
                self.note_opening_unreadable(&error);
                if error.is_lasting() {
                    tracing::error!(partition = %self.id, %error, "partition goes offline");
                    *state = State::Offline(error.clone());
                }
                Err(error)
            }
        }
    }

    /// Stores only what has changed, so that many users do not contend for it.
    fn note_use(&self) {
        if !self.was_used.load(Ordering::Relaxed) {
            self.was_used.store(true, Ordering::Relaxed);
        }
        let now = self.dir.open_logs().now();
        if self.last_use.load(Ordering::Relaxed) != now {
            self.last_use.store(now, Ordering::Relaxed);
        }
    }

    /// Runs `action` on the open log while nobody else takes segments away and nobody closes the log.
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

    /// By what the store's open logs know the handle.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Has the log dir write down a change that holds before the next checkpoint. Durable when it returns.
    fn persist(&self, change: Change) -> Result<(), LogError> {
        self.dir.persist(self.id, change, || self.is_deleted())
    }

    /// Closes the log if it is open and has nothing that the checkpoint lacks.
    pub(crate) fn close(&self) -> bool {
        self.close_in(&mut self.state.write())
    }

    /// As [`Self::close`], if nobody is using the log right now. Does not wait for anybody.
    pub(crate) fn close_if_unused(&self) -> bool {
        let Some(mut state) = self.state.try_write() else { return false };
        // Whoever uses an open log holds a reference to it.
        let is_unused = matches!(&*state, State::Open(log) if Arc::strong_count(log) == 1);
        is_unused && self.close_in(&mut state)
    }

    fn close_in(&self, state: &mut State) -> bool {
        let is_retired = matches!(state, State::Open(log) if log.retire());
        if is_retired {
            // A checkpoint covers it all.
            self.has_journal_tail.store(false, Ordering::Relaxed);
            self.leave(state, State::Closed);
        }
        is_retired
    }

    /// Puts another state in the place of an open log.
    fn leave(&self, state: &mut State, next: State) {
        *state = next;
        self.dir.open_logs().remove(self.address());
    }

    /// Closes the log if nobody has used it for `older_than`, by monotonic time. Of one that is in use, the sealed
    /// segments that nobody reads are closed.
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
        is_idle && self.close()
    }

    /// The store goes away: whoever still holds the handle is told so. Nobody writes to its segments when this returns.
    pub(crate) fn shut(&self) {
        self.end_use(State::Closed);
    }

    /// The log goes away for good: later calls answer [`LogError::Deleted`]. Nobody writes to its segments, or begins one,
    /// when this returns.
    pub(crate) fn mark_deleted(&self) {
        self.is_deleted.store(true, Ordering::Release);
        self.end_use(State::Deleted);
    }

    /// Whether it goes away, or is gone. What its dir remembers under its memory's lock after this was asked, while that
    /// was locked, the deletion takes away again.
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
        // Who had its pieces in hand by then may be making its directory. Neither is locked meanwhile: who writes may look
        // at the state.
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
