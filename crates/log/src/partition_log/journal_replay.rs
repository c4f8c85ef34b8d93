//! The beginning of an opened log, and its replay of the journal's entries.
//!
//! Replayed entries lie in memory then, as if they had just been appended, and are settled like those: the journal has
//! them until a checkpoint covers them. Entries that find no room in memory are written into the segments at once.
//!
//! If a log appends to the journal, a power cut may take no bytes above its recovery point but those that the journal
//! has, too. So other bytes that were found there are synced before they can be read. A log with entries in the journal
//! appends to the journal, whatever its level asks for, until a checkpoint covers it: see [`super::level_change`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::BytesMut;
use riverrun_journal::EntryHeader;
use riverrun_types::Offset;

use super::journaled::counterpart;
use super::open::{OpenLog, OpenParts};
use super::tail::{Piece, TailEntry};
use super::writer::SegmentWriter;
use super::{PartitionLog, State, recovery};
use crate::checkpoint::PartitionCheckpoint;
use crate::error::LogError;
use crate::listing::Listing;
use crate::mode::Mode;
use crate::partition_files;
use crate::planted::{Planted, is_planted};

/// So many bytes of a partition's entries share their memory, or one entry if that is larger: about as many as a group
/// of the journal has. A slow reader of one of them keeps the memory of all.
const SHARED_BYTES: usize = 512 * 1024;

/// The outcome for an entry of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replayed {
    /// The log has it now.
    Taken,
    /// A checkpoint covers it, it came twice, or it is from before the last cut of the log.
    Known,
}

/// The destination of the journal's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Into memory if there is room, otherwise into the segments.
    Tail,
    /// Into the segments.
    Segments,
}

/// The place of an entry of the journal among those of its log: the log's number of cuts, then the entry's base offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryPlace {
    pub(crate) cuts: u32,
    pub(crate) base_offset: Offset,
}

impl EntryPlace {
    pub(crate) fn of(header: &EntryHeader) -> Self {
        Self { cuts: header.cuts, base_offset: header.base_offset }
    }
}

impl PartitionLog {
    /// Puts the parts that recovery has found to use. A log that goes on in the journal against its options changes its
    /// level later, by [`Self::follow_config`].
    pub(super) fn begin(&self, parts: OpenParts, is_replay: bool) -> Result<Arc<OpenLog>, LogError> {
        let wanted = self.level_at_opening();
        let natural = self.dir.shared().mode_of(wanted)?;
        let goes_on_in_journal = is_replay || self.has_journal_tail.load(Ordering::Relaxed);
        let mode = if goes_on_in_journal { Mode::Journal } else { natural };
        let (end, recovery_point) = (parts.writer.end, parts.writer.recovery_point);
        let log = OpenLog::new(self, mode, parts);
        let is_of_journal = is_replay && self.dir.is_checkpoint_trusted(self.id);
        if mode == Mode::Journal && !is_of_journal && recovery_point < end {
            // In a dir that has failed the log is only read. A start holds the state, of a higher rank, while it
            // replays, and nothing is written back then.
            let must_be_true = !is_replay && self.dir.check_usable().is_ok();
            log.sync_above(recovery_point)?;
            if must_be_true {
                self.dir.check_write_backs()?;
            }
        }
        self.marks.set_level(if mode == natural { wanted } else { counterpart(wanted) });
        self.marks.append_to(end);
        self.marks.sync_to(if mode == Mode::Journal { end } else { recovery_point });
        Ok(log)
    }

    /// Whether segments are removed before the journal's entries from `from` on are taken, because these have all that
    /// is in them.
    pub(crate) fn loses_segments_to(&self, from: Offset) -> bool {
        if self.is_open() || !self.dir.is_checkpoint_trusted(self.id) {
            return false;
        }
        let from = from.max(self.known_end());
        let cut_end = self.dir.checkpointed(self.id).and_then(|known| known.cut_end);
        let listing = Listing::read(self.dir.env(), &self.path());
        // The first one stays if it begins there, but is emptied if the log was cut there.
        let is_removed = |(index, base): (usize, Offset)| {
            base > from || (base == from && (index > 0 || cut_end == Some(base)))
        };
        let bases = listing.iter().flat_map(|listing| listing.logs.iter().map(|(base, _)| *base));
        bases.enumerate().any(is_removed)
    }

    /// The journal's entries are needed from here on: earlier ones were cut, or a checkpoint covers them. A checkpoint
    /// covers all of an entry or nothing, so the end of an entry need not be known.
    pub(crate) fn needed_from(&self) -> EntryPlace {
        let known = self.dir.checkpointed(self.id);
        let base_offset = known.as_ref().map_or(Offset::ZERO, PartitionCheckpoint::durable_end);
        EntryPlace { cuts: known.map_or(0, |known| known.cuts), base_offset }
    }

    /// Everything below is in the segments, and synced.
    pub(crate) fn known_end(&self) -> Offset {
        self.needed_from().base_offset
    }

    /// Takes the journal's entries of this partition, in order, before any other use of it. All that is durable after
    /// it was durable before.
    pub(crate) fn replay(&self, entries: &[TailEntry], target: Target) -> Result<Vec<Replayed>, LogError> {
        if Self::current(&self.state.read(), self.id).is_none() {
            self.dir.open_logs().make_room_at_once();
        }
        let mut state = self.state.write();
        self.replay_by(entries, target, |from| self.open_for_replay(&mut state, from))
    }

    /// Writes all the journal's entries of this partition, for which there was no room before, and then allows its use.
    /// Until then its users get the reason.
    pub(crate) fn replay_again(&self, entries: &[TailEntry]) -> Result<(), LogError> {
        self.dir.open_logs().make_room_at_once();
        // Does not hold up users of the log; a deletion waits for it.
        let _opening = self.opening.lock();
        if !self.is_waiting() {
            // It was deleted meanwhile.
            return Ok(());
        }
        let mut opened = None;
        let replayed = self.replay_by(entries, Target::Segments, |from| {
            let log = self.recover_for_replay(from)?;
            opened = Some(log.clone());
            Ok(log)
        });
        if let Err(error) = replayed {
            if let Some(log) = opened {
                log.abandon();
            }
            return Err(self.take_offline(error));
        }
        let usable = opened.filter(|log| self.goes_on_after_replay(log));
        let mut state = self.state.write();
        *state = State::Closed;
        if let Some(log) = usable {
            self.take_over(&mut state, Ok(log))?;
        }
        drop(state);
        tracing::info!(partition = %self.id, "partition is back");
        Ok(())
    }

    /// Gives the log its entries from the journal, once `open` has opened it for those from some offset on. Entries
    /// from before the log's last cut are known: they are in the segments, or were cut off.
    fn replay_by(
        &self,
        entries: &[TailEntry],
        target: Target,
        open: impl FnOnce(Offset) -> Result<Arc<OpenLog>, LogError>,
    ) -> Result<Vec<Replayed>, LogError> {
        let cuts = self.check_cuts(entries)?;
        let newest_epoch = entries.iter().map(|entry| entry.piece.epoch).max();
        let is_older = |entry: &TailEntry| {
            if is_planted(Planted::ReplayByEpoch) {
                return Some(entry.piece.epoch) < newest_epoch;
            }
            entry.piece.cuts < cuts && !is_planted(Planted::ReplayByOffset)
        };
        if !entries.iter().any(is_older) {
            return self.replay_newer(entries, target, open);
        }
        let newer: Vec<_> = entries.iter().filter(|entry| !is_older(entry)).cloned().collect();
        let mut replayed = self.replay_newer(&newer, target, open)?.into_iter();
        let verdict = |entry: &TailEntry| if is_older(entry) { None } else { replayed.next() };
        Ok(entries.iter().map(verdict).map(|replayed| replayed.unwrap_or(Replayed::Known)).collect())
    }

    fn replay_newer(
        &self,
        entries: &[TailEntry],
        target: Target,
        open: impl FnOnce(Offset) -> Result<Arc<OpenLog>, LogError>,
    ) -> Result<Vec<Replayed>, LogError> {
        let known_end = self.known_end();
        let known = entries.partition_point(|entry| entry.piece.next_offset <= known_end);
        let mut replayed = vec![Replayed::Known; known];
        let Some(first) = entries.get(known) else { return Ok(replayed) };
        let mut target = target;
        if self.dir.is_checkpoint_trusted(self.id) {
            // Records of it in the segments, if there are any, are left to a repair.
            entries[known..].iter().try_for_each(|entry| self.check_not_missing(&entry.piece))?;
        } else {
            // A checkpoint follows before anything is served, and the records that it covers have to be in the
            // segments.
            target = Target::Segments;
        }
        let log = open(first.piece.base_offset)?;
        if log.cuts < first.piece.cuts {
            // It was opened for entries from before the cut.
            return Err(self.cut_is_missing(first, log.cuts));
        }
        self.replay_into(&log, &entries[known..], target, &mut replayed)?;
        Ok(replayed)
    }

    /// Number of the log's cuts. Fails if an entry is from after a cut that the log dir does not know.
    fn check_cuts(&self, entries: &[TailEntry]) -> Result<u32, LogError> {
        let newest = entries.iter().map(|entry| entry.piece.cuts).max().unwrap_or(0);
        let cuts = self.dir.cuts_or(self.id, newest);
        match entries.iter().find(|entry| entry.piece.cuts > cuts) {
            None => Ok(cuts),
            Some(entry) => Err(self.cut_is_missing(entry, cuts)),
        }
    }

    fn cut_is_missing(&self, entry: &TailEntry, cuts: u32) -> LogError {
        let Piece { cuts: after, base_offset, .. } = &entry.piece;
        let what = format!(
            "the journal has records from offset {base_offset} on that came after cut {after} of the log, and {cuts} are \
             known"
        );
        LogError::corrupt(&self.path(), 0, what)
    }

    fn check_not_missing(&self, piece: &Piece) -> Result<(), LogError> {
        if piece.is_missing() { Err(self.damaged_in_journal(piece.base_offset)) } else { Ok(()) }
    }

    /// An error about records from `offset` on, which are in no segment as far as is known.
    pub(crate) fn damaged_in_journal(&self, offset: Offset) -> LogError {
        let what = format!("records from offset {offset} on were damaged in the journal");
        LogError::corrupt(&self.path(), 0, what)
    }

    fn open_for_replay(&self, state: &mut State, from: Offset) -> Result<Arc<OpenLog>, LogError> {
        if let Some(result) = Self::current(state, self.id) {
            return result;
        }
        let recovered = self.recover_for_replay(from).map_err(|error| self.dir.judge(error));
        self.take_over(state, recovered)
    }

    fn recover_for_replay(&self, from: Offset) -> Result<Arc<OpenLog>, LogError> {
        self.dir.check_open()?;
        self.dir.check_usable()?;
        recovery::recover(self, Some(from))
    }

    fn replay_into(
        &self,
        log: &OpenLog,
        entries: &[TailEntry],
        target: Target,
        replayed: &mut Vec<Replayed>,
    ) -> Result<(), LogError> {
        let mut writer = log.writer.lock_unshared();
        let mut taken: Vec<TailEntry> = Vec::with_capacity(entries.len());
        let mut end = log.end();
        for entry in entries {
            let piece = &entry.piece;
            if piece.next_offset <= end {
                replayed.push(Replayed::Known);
                continue;
            }
            self.check_not_missing(piece)?;
            if piece.base_offset > end && piece.base_offset <= log.log_start() {
                self.take_into_segments(log, &mut writer, &taken)?;
                taken.clear();
                log.skip_to(&mut writer, piece.base_offset)?;
                end = piece.base_offset;
            }
            if piece.base_offset != end {
                let what =
                    format!("offset {end} must come, and the journal goes on at {}", piece.base_offset);
                return Err(LogError::corrupt(&log.home.dir, 0, what));
            }
            end = piece.next_offset;
            taken.push(entry.clone());
            replayed.push(Replayed::Taken);
        }
        if target == Target::Tail && self.may_keep(log, &writer, &taken) {
            self.take_into_tail(log, taken);
        } else {
            self.take_into_segments(log, &mut writer, &taken)?;
        }
        let view = log.view();
        let mut appender = log.appender.lock();
        appender.next_offset = view.end;
        appender.latest_epoch = view.latest_epoch;
        self.marks.append_to(view.end);
        self.marks.sync_to(view.end);
        Ok(())
    }

    /// Whether entries may stay in memory: there is room, and the segments reach up to the log start, as they do
    /// whenever records are deleted.
    fn may_keep(&self, log: &OpenLog, writer: &SegmentWriter, entries: &[TailEntry]) -> bool {
        let bytes = entries.iter().map(|entry| entry.piece.bytes.len() as u64).sum();
        log.log_start() <= writer.end && self.dir.shared().cache.has_room_at_start(bytes)
    }

    /// Shows entries in the tail.
    fn take_into_tail(&self, log: &OpenLog, mut entries: Vec<TailEntry>) {
        own_memory(&mut entries);
        self.dir.add_unsettled(entries.iter().map(|entry| entry.piece.bytes.len() as u64).sum());
        for entry in entries {
            // It cannot be abandoned meanwhile: the handle's state is locked.
            if let Some(grown) = log.show_stored(entry, |_| {}) {
                self.dir.note_grown(grown, self.id);
            }
        }
    }

    /// Writes entries behind the tail, which is settled first.
    fn take_into_segments(
        &self,
        log: &OpenLog,
        writer: &mut SegmentWriter,
        entries: &[TailEntry],
    ) -> Result<(), LogError> {
        self.settle_in(log, writer)?;
        let pieces: Vec<Piece> = entries.iter().map(|entry| entry.piece.clone()).collect();
        self.write_pieces(log, writer, &pieces)
    }

    /// All entries of the journal were taken: the log may be used.
    pub(crate) fn end_replay(&self) {
        self.end_replay_in(&mut self.state.write());
    }

    /// A log that ends below its start is opened once more, by its next user, and goes on at its start. The next start
    /// reads the journal's entries first, unless a checkpoint covers them: so appends go to the journal until then.
    fn end_replay_in(&self, state: &mut State) {
        if let State::Open(log) = &*state
            && !self.goes_on_after_replay(log)
        {
            self.leave(state, State::Closed);
        }
    }

    /// Whether the log may be used as it is. Otherwise it is abandoned.
    fn goes_on_after_replay(&self, log: &OpenLog) -> bool {
        let mut writer = log.writer.lock_unshared();
        let has_tail = log.shown.lock().tail.end().is_some();
        // Settled records are written over the old bytes; the checkpoint that covers the log cuts the rest.
        if !has_tail && let Err(error) = writer.cut_stale() {
            // No checkpoint covers the log before it is cut, and if its dir fails, these records are put aside as they
            // are read here.
            let error = self.dir.judge(error);
            tracing::warn!(partition = %self.id, %error, "old bytes beyond the journal's entries are cut later");
        }
        log.reset_producers(&writer, &[]);
        drop(writer);
        let goes_on = log.end() >= log.log_start();
        if !goes_on {
            log.abandon();
            self.has_journal_tail.store(true, Ordering::Relaxed);
        }
        goes_on
    }

    /// Takes the partition out of use: an entry of the journal is missing in its log.
    pub(crate) fn take_offline(&self, error: LogError) -> LogError {
        // May wait for the disk, for which no user of the state waits.
        let error = self.dir.judge_at_once(error);
        let mut state = self.state.write();
        if is_told(&state, &error) {
            tracing::debug!(partition = %self.id, %error, "partition goes offline");
        } else {
            tracing::error!(partition = %self.id, %error, "partition goes offline");
        }
        if let State::Open(log) = &*state {
            log.abandon();
        }
        self.leave(&mut state, State::Offline(error.clone()));
        error
    }

    /// Whether it was taken out of use for a reason that may pass.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(&*self.state.read(), State::Offline(error) if !error.is_lasting())
    }

    /// Whether its files are open.
    pub(crate) fn is_open(&self) -> bool {
        matches!(&*self.state.read(), State::Open(_))
    }

    /// Whether it was taken out of use.
    pub(crate) fn is_offline(&self) -> bool {
        matches!(&*self.state.read(), State::Offline(_))
    }
}

/// Whether this reason was logged before, for a partition in this state or for its whole dir.
fn is_told(state: &State, error: &LogError) -> bool {
    let is_known = matches!(state, State::Offline(known) if known.to_string() == error.to_string());
    is_known || matches!(error, LogError::DirFailed { .. })
}

/// Copies the bytes of entries, which share their memory with others of the journal's file.
fn own_memory(entries: &mut [TailEntry]) {
    let mut left = entries;
    while !left.is_empty() {
        let mut size = 0;
        let fits = |entry: &&TailEntry| {
            size += entry.piece.bytes.len();
            size <= SHARED_BYTES
        };
        let count = left.iter().take_while(fits).count().max(1);
        let (together, rest) = left.split_at_mut(count);
        let mut bytes = BytesMut::with_capacity(together.iter().map(|entry| entry.piece.bytes.len()).sum());
        for entry in &*together {
            bytes.extend_from_slice(&entry.piece.bytes);
        }
        let mut bytes = bytes.freeze();
        for entry in together {
            entry.piece.bytes = bytes.split_to(entry.piece.bytes.len());
        }
        left = rest;
    }
}

impl OpenLog {
    /// Goes on at `offset`: records that are missing before it lie below the log start. The log had lost its end once,
    /// after a deletion of records up to beyond it, and has gone on at its start.
    fn skip_to(&self, writer: &mut SegmentWriter, offset: Offset) -> Result<(), LogError> {
        writer.end = offset;
        writer.seal_active(self)?;
        self.update_view(|view| {
            view.settled_end = offset;
            view.end = offset;
        });
        Ok(())
    }

    /// Syncs the segments that reach above `from`, and the names of all.
    pub(super) fn sync_above(&self, from: Offset) -> Result<(), LogError> {
        let view = self.view();
        if view.segments.is_empty() {
            return Ok(());
        }
        for (index, segment) in view.segments.iter().enumerate() {
            if view.extent(index).next_offset > from {
                let file = segment.log_file()?;
                file.sync_data().map_err(|error| LogError::sync(&segment.log_path(), error))?;
            }
        }
        partition_files::sync_dir(&self.home)?;
        // The directories above it may be as new.
        for dir in self.home.dir.ancestors().skip(1).take(2) {
            let synced = self.home.fs.sync_dir(dir);
            synced.map_err(|error| LogError::sync(dir, error))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use bytes::Bytes;
    use riverrun_env::sim::SimEnv;
    use riverrun_journal::EntryKind;
    use riverrun_records::{BatchBuilder, BatchOptions};
    use riverrun_types::{LeaderEpoch, PartitionId, Position, TimestampMs, TopicId};

    use super::*;
    use crate::config::LogConfig;
    use crate::log_starts::Change;
    use crate::options::StoreOptions;
    use crate::partition_log::AppendOptions;
    use crate::producer_state::AppendOrigin;
    use crate::shared::stream_of;
    use crate::store::LogStore;

    fn entry(bytes: Bytes) -> TailEntry {
        let piece = Piece {
            bytes,
            base_offset: Offset(0),
            next_offset: Offset(1),
            epoch: LeaderEpoch(1),
            cuts: 0,
            max_timestamp: TimestampMs(0),
            now: TimestampMs(0),
        };
        TailEntry { piece, position: Position(0) }
    }

    #[test]
    fn journal_entries_share_memory_with_few_of_their_partition() {
        let sizes = [SHARED_BYTES - 10, 10, 1, SHARED_BYTES, SHARED_BYTES + 1, 5];
        let mut file = Bytes::from((0..=u8::MAX).cycle().take(3 * SHARED_BYTES + 7).collect::<Vec<_>>());
        let before: Vec<TailEntry> = sizes.map(|size| entry(file.split_to(size))).into();
        let mut after = before.clone();
        own_memory(&mut after);
        let bytes = |entries: &[TailEntry]| -> Vec<Bytes> {
            entries.iter().map(|entry| entry.piece.bytes.clone()).collect()
        };
        assert_eq!(bytes(&after), bytes(&before));
        let is_alone: Vec<bool> = after.iter().map(|entry| entry.piece.bytes.is_unique()).collect();
        assert_eq!(is_alone, [false, false, true, true, true, true]);
    }

    #[test]
    fn offline_reason_is_logged_once_and_by_a_failed_dir_for_all() {
        let error = |what: &str| LogError::corrupt(Path::new("/logs/0.log"), 7, what);
        let offline = State::Offline(error("first"));
        assert!(is_told(&offline, &error("first")));
        assert!(!is_told(&offline, &error("second")));
        assert!(!is_told(&State::Closed, &error("first")));
        let failed = LogError::DirFailed { path: PathBuf::from("/logs"), reason: "dead".into() };
        assert!(is_told(&State::Closed, &failed));
    }

    /// A log whose first records are under a checkpoint, so many of them in one append.
    fn covered_log(records: usize) -> (LogStore, Arc<PartitionLog>) {
        let sim = SimEnv::new(1);
        let store = LogStore::open(&sim.env(), &[PathBuf::from("/logs")], StoreOptions::default()).unwrap();
        let id = PartitionId { topic: TopicId([1; 16]), index: 0 };
        let log = store.partition(id, 0, Arc::new(LogConfig::default()), LeaderEpoch(1)).unwrap();
        let mut batch = BatchBuilder::new(BatchOptions::default());
        for _ in 0..records {
            batch.append(TimestampMs(0), None, Some(b"value"), &[]).unwrap();
        }
        let options = AppendOptions { origin: AppendOrigin::Client, now: TimestampMs(0) };
        log.append(BytesMut::from(&batch.build().unwrap()[..]), options).unwrap();
        log.write_staged().unwrap();
        store.checkpoint().unwrap();
        (store, log)
    }

    #[test]
    fn damaged_entry_is_needed_if_a_replay_would_miss_it() {
        let (_store, log) = covered_log(3);
        let dir = log.dir().clone();
        let is_missed = |place: &EntryPlace| {
            let header = EntryHeader {
                stream: stream_of(log.id()),
                kind: EntryKind::Records,
                index: 0,
                cuts: place.cuts,
                base_offset: place.base_offset,
                leader_epoch: LeaderEpoch(1),
            };
            let piece = Piece::missing(&header, TimestampMs(0));
            log.replay(&[TailEntry { piece, position: Position(0) }], Target::Tail).is_err()
        };
        let place = |cuts, offset| EntryPlace { cuts, base_offset: Offset(offset) };
        let places = || (0..3).flat_map(|cuts| (0..6).map(move |offset| place(cuts, offset)));
        let missed = || places().filter(is_missed).collect::<Vec<_>>();
        let needed = || places().filter(|place| *place >= log.needed_from()).collect::<Vec<_>>();
        // All entries from after an unknown cut are among them.
        assert_eq!((missed().len(), missed()), (3 + 6 + 6, needed()));
        let cut = Change::Cut { number: 1, end: Offset(2), is_carried_out: false };
        dir.persist(log.id(), cut, || false).unwrap();
        assert_eq!((missed().len(), missed()), (4 + 6, needed()));
    }
}
