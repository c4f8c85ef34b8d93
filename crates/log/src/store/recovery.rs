//! Brings the entries of the journals' earlier lives into the logs, before anything is served.
//!
//! The journals give their entries file by file. They go where appends would have put them, into the memory of records
//! that no segment has yet, and are settled with later appends: so a start makes no file for a partition that has none
//! yet. Entries that exceed half of the write cache are written into the segments at once, those of one partition
//! together. The time of it follows the journals' tail, not the number of partitions. It may be interrupted anywhere:
//! until the next checkpoint the journals keep their entries, and the next start does the same again.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use riverrun_journal::{EntryHeader, Journal, Position, RecoveredEntry, Replay};
use riverrun_types::{LeaderEpoch, Offset, PartitionId};

use super::reopen::Waiting;
use super::side_files::{UNKNOWN_NAME, held_name_of, is_of_dir, is_of_partition};
use super::{LogStore, RecoveryReport};
use crate::config::LogConfig;
use crate::error::LogError;
use crate::pace::Haste;
use crate::partition_log::{EntryPlace, PartitionLog, Piece, Replayed, TailEntry, Target};
use crate::shared::partition_of;

/// The place of a partition with entries in the journals.
#[derive(Clone, Debug)]
pub enum Place {
    /// In the log dir with this index, with these options.
    In(usize, Arc<LogConfig>),
    /// It was deleted: the journals' entries of it are dropped.
    Deleted,
    /// Neither it nor its deletion is known: the journals' entries of it are kept aside until it is.
    Unknown,
}

impl LogStore {
    /// Brings the journals' entries into the logs, and opens their partitions; `place` tells where each lies, and
    /// `epoch` the leader epoch of each that lies in a log dir. Entries stay in memory as far as half of the write
    /// cache holds them, and are in the segments otherwise. A partition that is damaged, or whose log does not reach up
    /// to the journal's entries, goes offline; entries for a log dir that has failed, and those of an unknown
    /// partition, are put aside. Nothing is synced: the journals have all of it until the next checkpoint. Comes before
    /// any use of the partitions.
    pub fn recover(
        &self,
        epoch: impl Fn(PartitionId) -> LeaderEpoch,
        place: impl Fn(PartitionId) -> Place,
    ) -> Result<RecoveryReport, LogError> {
        let replays = std::mem::take(&mut *self.replays.lock());
        let mut recovery = Recovery {
            store: self,
            epoch: &epoch,
            place: &place,
            replays: replays.into(),
            damaged: None,
            report: RecoveryReport::default(),
            seen: HashSet::new(),
            partly: BTreeMap::new(),
            strays: Strays::default(),
        };
        recovery.run_held(&self.shared.journals)?;
        for (index, journal) in self.shared.journals.iter().enumerate() {
            recovery.run(index, journal)?;
        }
        let (report, strays) = recovery.finish();
        *self.unknown.lock() = report.unknown.keys().copied().collect();
        // The begin of the journals' entries is known now, and the next start must not have to find it out from them
        // again.
        let is_due = !strays.is_empty() || self.dirs.iter().any(|logs| logs.dir.has_lost_partitions());
        if is_due && let Err(error) = self.checkpoint_in(&self.dirs, Haste::AtOnce, |_| true) {
            tracing::warn!(%error, "no checkpoint covers what the journals had");
        }
        // The journals are given nothing back before the recovery is over, so they still have it.
        self.hold_uncovered(strays)?;
        self.shared.set_recovered();
        // Clients may come now, and would use up the reserve before the next measurement.
        self.measure_space();
        Ok(report)
    }
}

struct Recovery<'a> {
    store: &'a LogStore,
    epoch: &'a dyn Fn(PartitionId) -> LeaderEpoch,
    place: &'a dyn Fn(PartitionId) -> Place,
    /// The remaining journals; the first is being read.
    replays: VecDeque<Replay>,
    /// The last damaged entry of each partition that has one in the remaining journals. `None`: they were not searched.
    damaged: Option<BTreeMap<PartitionId, EntryPlace>>,
    report: RecoveryReport,
    seen: HashSet<PartitionId>,
    /// By the journal's index, partitions that took some of its entries and no more, and the names under which all
    /// their entries in the journal are to be held.
    partly: BTreeMap<usize, BTreeMap<PartitionId, String>>,
    strays: Strays,
}

/// Partitions that took entries from another journal than their present one, because the journals were other ones
/// before: by the journal's index, with the end of these entries.
type Strays = BTreeMap<usize, BTreeMap<PartitionId, Offset>>;

impl LogStore {
    /// Puts aside the entries of partitions in journals that are not their present ones, unless a checkpoint covers
    /// them. Nothing looks there later: a journal is given back once its own partitions need it no longer.
    fn hold_uncovered(&self, strays: Strays) -> Result<(), LogError> {
        for (index, ends) in strays {
            let handle = |id| self.dirs.iter().find_map(|logs| logs.handle(id));
            let logs = ends.into_iter().filter_map(|(id, end)| Some((handle(id)?, end)));
            let uncovered: Vec<_> = logs.filter(|(log, end)| log.known_end() < *end).collect();
            let names = uncovered.iter().map(|(log, _)| (log.id(), log.dir().held_name())).collect();
            hold_all_of(&self.shared.journals[index], &names)?;
            for (log, end) in uncovered {
                log.note_held(log.needed_from().cuts, end, 0);
            }
        }
        Ok(())
    }
}

impl Recovery<'_> {
    /// Gives the entries aside in several journals, those of a partition in their order. If the journals were other
    /// ones before, a partition may have some in any of them; what a journal has of it in its own files comes behind.
    fn run_held(&mut self, journals: &[Arc<Journal>]) -> Result<(), LogError> {
        if journals.len() < 2 {
            return Ok(());
        }
        let mut turns = turns_of_held(journals)?;
        while !turns.is_empty() {
            for (index, journal) in journals.iter().enumerate() {
                let mut result = Ok(());
                let give = |held: &str, mut entries: Vec<RecoveredEntry>| {
                    entries.retain(|entry| {
                        let turns = turns.get(&partition_of(entry.header.stream));
                        turns.is_some_and(|turns| turns.front() == Some(&index))
                    });
                    if result.is_ok() {
                        result = self.give(entries, Source::new(index, journal, Some(held.to_owned())));
                    }
                };
                journal.read_all_held(give).map_err(LogError::Journal)?;
                result?;
            }
            turns.retain(|_, turns| turns.pop_front().is_some() && !turns.is_empty());
        }
        Ok(())
    }

    fn run(&mut self, index: usize, journal: &Journal) -> Result<(), LogError> {
        let has_run_held = self.store.shared.journals.len() > 1;
        let mut damaged_count = 0;
        while let Some(replay) = self.replays.front_mut() {
            let held = replay.held_next().map(str::to_owned);
            let Some(mut entries) = replay.next().map_err(LogError::Journal)? else { break };
            if held.is_some() && has_run_held {
                continue;
            }
            for damaged in &replay.damaged()[damaged_count..] {
                tracing::error!(
                    path = %damaged.path.display(), position = damaged.position.0, what = damaged.what,
                    partition = %partition_of(damaged.header.stream), "an entry of the journal is damaged"
                );
                entries.push(RecoveredEntry::damaged(damaged));
            }
            damaged_count = replay.damaged().len();
            self.give(entries, Source::new(index, journal, held))?;
        }
        self.replays.pop_front();
        // The journal is read once more, and not the segments: these may be on a disk that is gone.
        hold_all_of(journal, &self.partly.remove(&index).unwrap_or_default())
    }

    /// Gives entries to their partitions, and puts those aside that these do not take.
    fn give(&mut self, entries: Vec<RecoveredEntry>, mut source: Source<'_>) -> Result<(), LogError> {
        for (id, entries) in by_partition(entries) {
            self.replay(id, entries, &mut source)?;
        }
        // Entries that cannot be written now must not be lost when the journal uses its files again.
        for (name, entries) in source.aside {
            source.journal.hold(&name, &entries).map_err(LogError::Journal)?;
        }
        Ok(())
    }

    /// Fails if something is missing in the remaining journals: then no start succeeds, and giving up a journal loses
    /// entries that are nowhere else. Returns the damaged entries there. To be called before anything is removed that
    /// the journals should have as well; hardly any start removes something, and a second reading of the journals costs
    /// time.
    fn check_rest(&mut self) -> Result<&BTreeMap<PartitionId, EntryPlace>, LogError> {
        let damaged = match self.damaged.take() {
            Some(damaged) => damaged,
            None => damaged_in(&mut self.replays)?,
        };
        Ok(self.damaged.insert(damaged))
    }

    /// The reason why a log does not take these entries, its first ones, although they are intact: to take them removes
    /// segments with the only copy of records whose later entry in the journal is damaged. The entries stay for a
    /// repair of the log. Entries from before the log's last cut do not count, as in a replay: they are neither taken
    /// nor missed.
    fn find_loss(
        &mut self,
        log: &PartitionLog,
        entries: &[RecoveredEntry],
    ) -> Result<Option<LogError>, LogError> {
        let needed_from = log.needed_from();
        let mut places = entries.iter().map(|entry| EntryPlace::of(&entry.header));
        let first = places.find(|place| *place >= needed_from);
        if first.is_none_or(|first| !log.loses_segments_to(first.base_offset)) {
            return Ok(None);
        }
        let damaged = self.check_rest()?.get(&log.id()).copied();
        let needed = damaged.filter(|damaged| *damaged >= needed_from);
        Ok(needed.map(|damaged| log.damaged_in_journal(damaged.base_offset)))
    }

    /// Gives entries to their partition, or puts them aside: for its log dir if that cannot take them now, and for the
    /// partition alone if its log does not go on with them, now or at any later start.
    fn replay(
        &mut self,
        id: PartitionId,
        entries: Vec<RecoveredEntry>,
        source: &mut Source<'_>,
    ) -> Result<(), LogError> {
        let (dir, config) = match (self.place)(id) {
            Place::In(dir, config) => (dir, config),
            Place::Deleted => {
                self.report.dropped_entries += entries.len() as u64;
                return Ok(());
            }
            Place::Unknown => {
                *self.report.unknown.entry(id).or_default() += entries.len() as u64;
                source.put_aside(UNKNOWN_NAME.to_owned(), entries);
                return Ok(());
            }
        };
        let log = self.store.dirs[dir].partition(id, config, (self.epoch)(id));
        if self.partly.get(&source.index).is_some_and(|partly| partly.contains_key(&id)) {
            self.report.held_entries += entries.len() as u64;
            return Ok(());
        }
        let loss = self.find_loss(&log, &entries)?;
        let was_offline = log.is_offline();
        let usable = log.dir().check_usable().and(loss.map_or(Ok(()), Err));
        match usable.and_then(|()| take(&log, &entries, source)) {
            Ok((replayed, end)) => {
                self.count(id, &entries, &replayed);
                if replayed.contains(&Replayed::Taken) && !source.is_present_of(&log) {
                    self.strays.entry(source.index).or_default().insert(id, end);
                }
                // If its dir fails once more, the entries are not put aside once more.
                if source.has_aside(&log) {
                    log.note_held(entries.last().map_or(0, |last| last.header.cuts), end, 0);
                }
            }
            Err(error) => {
                let error = self.set_aside(&log, entries, error, source);
                if !was_offline {
                    self.take_offline(log, error);
                }
            }
        }
        Ok(())
    }

    /// Puts aside entries that a log could not take, now or, with those that it has taken before, after the whole
    /// journal. Returns the error with the way out.
    fn set_aside(
        &mut self,
        log: &PartitionLog,
        entries: Vec<RecoveredEntry>,
        error: LogError,
        source: &mut Source<'_>,
    ) -> LogError {
        self.report.held_entries += entries.len() as u64;
        let name = if error.is_lasting() { held_name_of(log.id()) } else { log.dir().held_name() };
        let error = source.explain(error, &name);
        if log.is_open() {
            // The entries that it has taken are in no checkpoint, and are not found in the journal any more once a
            // later one is aside.
            self.partly.entry(source.index).or_default().insert(log.id(), name);
        } else {
            source.put_aside(name, entries);
        }
        error
    }

    fn take_offline(&mut self, log: Arc<PartitionLog>, error: LogError) {
        let waits = !error.is_lasting();
        self.note_offline(log.id(), log.take_offline(error));
        if waits && log.dir().check_usable().is_ok() {
            self.store.waiting.lock().push(Waiting::new(log));
        }
    }

    fn count(&mut self, id: PartitionId, entries: &[RecoveredEntry], replayed: &[Replayed]) {
        for (entry, replayed) in entries.iter().zip(replayed) {
            match replayed {
                Replayed::Known => self.report.known_entries += 1,
                Replayed::Taken => {
                    self.report.entries += 1;
                    self.report.bytes += entry.payload.len() as u64;
                    self.seen.insert(id);
                }
            }
        }
    }

    fn note_offline(&mut self, id: PartitionId, error: LogError) {
        if self.report.offline.iter().all(|(known, _)| *known != id) {
            self.report.offline.push((id, error));
        }
    }

    fn finish(mut self) -> (RecoveryReport, Strays) {
        for logs in &self.store.dirs {
            for log in logs.handles() {
                log.end_replay();
            }
        }
        self.report.partitions = self.seen.len();
        (self.report, self.strays)
    }
}

/// For each partition with entries aside, the journals that have some, by their first ones.
fn turns_of_held(journals: &[Arc<Journal>]) -> Result<BTreeMap<PartitionId, VecDeque<usize>>, LogError> {
    let mut first: BTreeMap<PartitionId, BTreeMap<usize, EntryPlace>> = BTreeMap::new();
    for (index, journal) in journals.iter().enumerate() {
        let note = |_: &str, entries: Vec<RecoveredEntry>| {
            for header in entries.into_iter().map(|entry| entry.header) {
                let found = EntryPlace::of(&header);
                let places = first.entry(partition_of(header.stream)).or_default();
                let place = places.entry(index).or_insert(found);
                *place = found.min(*place);
            }
        };
        journal.read_all_held(note).map_err(LogError::Journal)?;
    }
    let by_place = |places: BTreeMap<usize, EntryPlace>| {
        let mut places: Vec<_> = places.into_iter().map(|(index, place)| (place, index)).collect();
        places.sort_unstable();
        places.into_iter().map(|(_, index)| index).collect()
    };
    Ok(first.into_iter().map(|(id, places)| (id, by_place(places))).collect())
}

/// The last damaged entry of each partition in the remaining journals.
fn damaged_in(replays: &mut VecDeque<Replay>) -> Result<BTreeMap<PartitionId, EntryPlace>, LogError> {
    let mut damaged = BTreeMap::new();
    for replay in replays {
        // A partition may have some in several journals, in any order.
        for entry in replay.check().map_err(LogError::Journal)? {
            let found = EntryPlace::of(&entry.header);
            let last = damaged.entry(partition_of(entry.header.stream)).or_insert(found);
            *last = found.max(*last);
        }
    }
    Ok(damaged)
}

/// The source of entries, and those of them that are to be put aside.
struct Source<'a> {
    /// The journal's place among the journals.
    index: usize,
    journal: &'a Journal,
    /// The name under which they are held already, if they are.
    held: Option<String>,
    aside: BTreeMap<String, Vec<RecoveredEntry>>,
}

impl<'a> Source<'a> {
    fn new(index: usize, journal: &'a Journal, held: Option<String>) -> Self {
        Self { index, journal, held, aside: BTreeMap::new() }
    }

    /// Held entries may be more than memory should hold, and the write cache no longer counts them: they are written at
    /// once.
    fn target(&self) -> Target {
        if self.held.is_some() { Target::Segments } else { Target::Tail }
    }

    /// Whether the log's entries go to this journal now.
    fn is_present_of(&self, log: &PartitionLog) -> bool {
        log.dir().shared().journal_index_of(log.id()) == Some(self.index)
    }

    /// Whether the entries are aside already, under a name that is read for this log's dir.
    fn has_aside(&self, log: &PartitionLog) -> bool {
        self.held.as_deref().is_some_and(|held| is_found(held, &log.dir().held_name()))
    }

    /// Has entries held under `name`.
    fn put_aside(&mut self, name: String, entries: Vec<RecoveredEntry>) {
        if !self.held.as_deref().is_some_and(|held| is_found(held, &name)) {
            self.aside.entry(name).or_default().extend(entries);
        }
    }

    /// Adds the way out to an error that comes again with each start.
    fn explain(&self, error: LogError, name: &str) -> LogError {
        let LogError::Corrupt { path, position, what } = error else { return error };
        let files = self.journal.dir().join(format!("held-{name}-*"));
        let what = format!(
            "{what}; the journal's entries of this partition are kept in {}: stop the server in order and look with \
             `riverrun log verify`; then restore the log from a copy, or cut it with `riverrun log repair`; moving these \
             files away gives up their entries, for a log that does not reach up to these; deleting the topic removes them",
            files.display()
        );
        LogError::Corrupt { path, position, what }
    }
}

/// Whether held entries stay where they are, because a reader of the side files of `name` reads them, too.
fn is_found(held: &str, name: &str) -> bool {
    held == name || (is_of_dir(name) && is_of_partition(held))
}

/// Puts aside all entries in a journal of partitions that need them, each under its name, file by file: all of them may
/// be more than memory should hold.
fn hold_all_of(journal: &Journal, names: &BTreeMap<PartitionId, String>) -> Result<(), LogError> {
    if names.is_empty() {
        return Ok(());
    }
    let aside = hold_held_of(journal, names)?;
    let mut replay = journal.reread(Position(0)).map_err(LogError::Journal)?;
    let mut damaged_count = 0;
    let is_needed = |header: &EntryHeader, position: Position| {
        let id = partition_of(header.stream);
        names.contains_key(&id) && aside.get(&id).is_none_or(|last| position > *last)
    };
    while let Some(mut entries) = replay.next_of(&is_needed).map_err(LogError::Journal)? {
        entries.extend(replay.damaged()[damaged_count..].iter().map(RecoveredEntry::damaged));
        damaged_count = replay.damaged().len();
        hold_again(journal, entries, names, &aside)?;
    }
    Ok(())
}

/// As [`hold_all_of`], of the entries that are aside already, under whichever name. Returns the last ones that were
/// found under the given names before.
pub(super) fn hold_held_of(
    journal: &Journal,
    names: &BTreeMap<PartitionId, String>,
) -> Result<BTreeMap<PartitionId, Position>, LogError> {
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let aside = aside_already(journal, names)?;
    let mut result = Ok(());
    let again = |_: &str, found| {
        if result.is_ok() {
            result = hold_again(journal, found, names, &aside);
        }
    };
    journal.read_all_held(again).map_err(LogError::Journal)?;
    result.map(|()| aside)
}

/// For each of these partitions, the last entry that is aside and is found under its name: all earlier needed ones are
/// aside, too.
fn aside_already(
    journal: &Journal,
    names: &BTreeMap<PartitionId, String>,
) -> Result<BTreeMap<PartitionId, Position>, LogError> {
    let mut last: BTreeMap<PartitionId, Position> = BTreeMap::new();
    let note = |held: &str, entries: Vec<RecoveredEntry>| {
        for entry in entries {
            let id = partition_of(entry.header.stream);
            if names.get(&id).is_some_and(|name| is_found(held, name)) {
                let last = last.entry(id).or_default();
                *last = entry.position.max(*last);
            }
        }
    };
    journal.read_all_held(note).map_err(LogError::Journal)?;
    Ok(last)
}

/// Holds the entries of the partitions with a name, each under that, apart from those that are `aside` already.
fn hold_again(
    journal: &Journal,
    entries: Vec<RecoveredEntry>,
    names: &BTreeMap<PartitionId, String>,
    aside: &BTreeMap<PartitionId, Position>,
) -> Result<(), LogError> {
    let mut held: BTreeMap<&str, Vec<RecoveredEntry>> = BTreeMap::new();
    for (id, mut entries) in by_partition(entries) {
        let Some(name) = names.get(&id) else { continue };
        entries.retain(|entry| aside.get(&id).is_none_or(|last| entry.position > *last));
        held.entry(name).or_default().extend(entries);
    }
    for (name, entries) in held {
        journal.hold(name, &entries).map_err(LogError::Journal)?;
    }
    Ok(())
}

/// The entries of each partition in the order of the journal.
fn by_partition(entries: Vec<RecoveredEntry>) -> BTreeMap<PartitionId, Vec<RecoveredEntry>> {
    let mut partitions: BTreeMap<PartitionId, Vec<RecoveredEntry>> = BTreeMap::new();
    for entry in entries {
        partitions.entry(partition_of(entry.header.stream)).or_default().push(entry);
    }
    for entries in partitions.values_mut() {
        entries.sort_by_key(|entry| entry.position);
    }
    partitions
}

/// Gives entries to their partition, which are in order. Returns the outcome for each, and their end.
fn take(
    log: &PartitionLog,
    entries: &[RecoveredEntry],
    source: &Source<'_>,
) -> Result<(Vec<Replayed>, Offset), LogError> {
    let is_present = source.is_present_of(log);
    let placed = |entry: &RecoveredEntry| {
        let piece = piece_of(log, entry)?;
        // Positions in a log's memory are those of its present journal: all of another one's entries come before.
        let position = if is_present { entry.position } else { Position(0) };
        Ok(TailEntry { position, ..piece })
    };
    let entries: Result<Vec<_>, LogError> = entries.iter().map(placed).collect();
    let entries = entries?;
    let end = entries.last().map_or(Offset::ZERO, |entry| entry.piece.next_offset);
    Ok((log.replay(&entries, source.target())?, end))
}

pub(super) fn piece_of(log: &PartitionLog, entry: &RecoveredEntry) -> Result<TailEntry, LogError> {
    let now = log.dir().env().clock.wall();
    let piece = if entry.is_damaged() {
        Piece::missing(&entry.header, now)
    } else {
        Piece::of_entry(&entry.header, entry.payload.clone(), now).ok_or_else(|| {
            let what =
                format!("the journal's entry at {} does not hold the batches that it says", entry.position);
            LogError::Corrupt { path: log.path(), position: 0, what }
        })?
    };
    Ok(TailEntry { piece, position: entry.position })
}

#[cfg(test)]
mod tests;
