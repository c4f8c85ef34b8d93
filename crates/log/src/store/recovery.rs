//! Bringing what the journals' earlier lives have left into the logs, before anything is served.
//!
//! The journals give their entries file by file. They go where appends would have left them, into the memory of what no
//! segment has yet, and are settled with what is appended then: so a start makes no file for a partition that has none
//! yet. What half of the write cache does not hold is written into the segments at once, that of one partition together.
//! Its time follows the journals' tail, not the number of partitions. It may be interrupted anywhere: until the next
//! checkpoint the journals keep what they gave, and the next start does the same again.

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

/// Where a partition lies that the journals have something of.
#[derive(Clone, Debug)]
pub enum Place {
    /// In the log dir with this index, with these options.
    In(usize, Arc<LogConfig>),
    /// It was deleted: what the journals have of it is dropped.
    Deleted,
    /// Nobody knows of it, nor that it was deleted: what the journals have of it is kept aside until somebody does.
    Unknown,
}

impl LogStore {
    /// Brings what the journals hold into the logs, and opens the partitions that it belongs to; `place` says where each
    /// lies, and `epoch` what it is led in, of those that lie somewhere. It stays in memory as far as half of the write cache holds it, and is in the segments otherwise. A partition that is damaged, or whose log does not reach up to what the journal has, goes
    /// offline; what belongs to a log dir that has failed, or to a partition that nobody knows, is put aside. Nothing is
    /// synced by it: the journals have all of it until the next checkpoint. Comes before any use of the partitions.
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
        };
        for journal in &self.shared.journals {
            recovery.run(journal)?;
        }
        let report = recovery.finish();
        *self.unknown.lock() = report.unknown.keys().copied().collect();
        self.shared.set_recovered();
        // Where the journal goes on is known now, and the next start must not have to find it out from it again.
        if self.dirs.iter().any(|logs| logs.dir.has_lost_partitions())
            && let Err(error) = self.checkpoint_in(&self.dirs, Haste::AtOnce, |_| true)
        {
            tracing::warn!(%error, "no checkpoint takes the place of the one that was damaged");
        }
        // Clients may come now, and would be through the reserve before somebody looks.
        self.measure_space();
        Ok(report)
    }
}

struct Recovery<'a> {
    store: &'a LogStore,
    epoch: &'a dyn Fn(PartitionId) -> LeaderEpoch,
    place: &'a dyn Fn(PartitionId) -> Place,
    /// Those of the journals that are left, the one first that is being read.
    replays: VecDeque<Replay>,
    /// The last damaged entry of each partition that has such in what is left of them. None: nobody has looked.
    damaged: Option<BTreeMap<PartitionId, EntryPlace>>,
    report: RecoveryReport,
    seen: HashSet<PartitionId>,
    /// Partitions of the journal that is being read which took some of it and no more, and the name under which all that
    /// the journal has of them is to be held.
    partly: BTreeMap<PartitionId, String>,
}

impl Recovery<'_> {
    fn run(&mut self, journal: &Journal) -> Result<(), LogError> {
        let mut damaged_count = 0;
        while let Some(replay) = self.replays.front_mut() {
            let held = replay.held_next().map(str::to_owned);
            let Some(mut entries) = replay.next().map_err(LogError::Journal)? else { break };
            for damaged in &replay.damaged()[damaged_count..] {
                tracing::error!(
                    path = %damaged.path.display(), position = damaged.position.0, what = damaged.what,
                    partition = %partition_of(damaged.header.stream), "an entry of the journal is damaged"
                );
                entries.push(RecoveredEntry::damaged(damaged));
            }
            damaged_count = replay.damaged().len();
            let mut source = Source { journal, held, aside: BTreeMap::new() };
            for (id, entries) in by_partition(entries) {
                self.replay(id, entries, &mut source)?;
            }
            // What cannot be written now must not be lost when the journal uses its files again.
            for (name, entries) in source.aside {
                journal.hold(&name, &entries).map_err(LogError::Journal)?;
            }
        }
        self.replays.pop_front();
        self.put_aside_partly_taken(journal)
    }

    /// Fails if something is missing in what is left of the journals: no start succeeds then, and whoever gives up a journal
    /// gives up what is nowhere else. Answers which entries are damaged there. To be called before anything is removed that
    /// the journals should have as well; hardly any start removes something, and to read the journals twice costs time.
    fn check_rest(&mut self) -> Result<&BTreeMap<PartitionId, EntryPlace>, LogError> {
        let damaged = match self.damaged.take() {
            Some(damaged) => damaged,
            None => damaged_in(&mut self.replays)?,
        };
        Ok(self.damaged.insert(damaged))
    }

    /// Why a log does not take these entries, the first ones of it, although they are intact: to take them removes segments
    /// that have what is damaged in the journal later on, and nothing else has that. They stay for whoever mends the log. What
    /// came before the log's last cut counts for nothing, as in a replay: neither is it taken, nor is it missed.
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
        if self.partly.contains_key(&id) {
            self.report.held_entries += entries.len() as u64;
            return Ok(());
        }
        let loss = self.find_loss(&log, &entries)?;
        let was_offline = log.is_offline();
        let usable = log.dir().check_usable().and(loss.map_or(Ok(()), Err));
        match usable.and_then(|()| take(&log, &entries, source.target())) {
            Ok((replayed, end)) => {
                self.count(id, &entries, &replayed);
                // If its dir fails once more, it is not put aside once more.
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

    /// Puts aside what a log could not take, now or, with what it has taken before, when all of the journal was read.
    /// Answers the error with the way out.
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
            // What it has taken is in no checkpoint, and is not found in the journal any more once something that comes
            // later is aside.
            self.partly.insert(log.id(), name);
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

    /// Puts aside all that a journal has of partitions that took only some of it. It is read once more, file by file, and
    /// not from the segments: these may be on a disk that is gone.
    fn put_aside_partly_taken(&mut self, journal: &Journal) -> Result<(), LogError> {
        let partly = std::mem::take(&mut self.partly);
        if partly.is_empty() {
            return Ok(());
        }
        let aside = aside_already(journal, &partly)?;
        for held in journal.held() {
            // File by file: all of them may be more than memory should hold.
            let mut result = Ok(());
            let again = |found| {
                if result.is_ok() {
                    result = hold_again(journal, found, &partly, &aside);
                }
            };
            journal.read_held(&held, again).map_err(LogError::Journal)?;
            result?;
        }
        let mut replay = journal.reread(Position(0)).map_err(LogError::Journal)?;
        let mut damaged_count = 0;
        let is_needed = |header: &EntryHeader, position: Position| {
            let id = partition_of(header.stream);
            partly.contains_key(&id) && aside.get(&id).is_none_or(|last| position > *last)
        };
        while let Some(mut entries) = replay.next_of(&is_needed).map_err(LogError::Journal)? {
            entries.extend(replay.damaged()[damaged_count..].iter().map(RecoveredEntry::damaged));
            damaged_count = replay.damaged().len();
            hold_again(journal, entries, &partly, &aside)?;
        }
        Ok(())
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

    fn finish(mut self) -> RecoveryReport {
        for logs in &self.store.dirs {
            for log in logs.handles() {
                log.end_replay();
            }
        }
        self.report.partitions = self.seen.len();
        self.report
    }
}

/// The last damaged entry of each partition in what is left of the journals.
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

/// Where entries come from, and those of them that are to be put aside.
struct Source<'a> {
    journal: &'a Journal,
    /// The name under which they are held already, if they are.
    held: Option<String>,
    aside: BTreeMap<String, Vec<RecoveredEntry>>,
}

impl Source<'_> {
    /// Held entries may be more than memory should hold, and count there no longer: they are written at once.
    fn target(&self) -> Target {
        if self.held.is_some() { Target::Segments } else { Target::Tail }
    }

    /// Whether the entries are aside already, where whoever comes for what this log's dir needs finds them.
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
            "{what}; what the journal has of this partition is kept in {}: stop the server in order and look with \
             `riverrun log verify`; then restore the log from a copy, or cut it with `riverrun log repair`; moving these \
             files away gives up what is in them, for a log that does not reach up to it; deleting the topic removes them",
            files.display()
        );
        LogError::Corrupt { path, position, what }
    }
}

/// Whether what is held already stays where it is, because whoever comes for it under `name` looks there, too.
fn is_found(held: &str, name: &str) -> bool {
    held == name || (is_of_dir(name) && is_of_partition(held))
}

/// The last entry of each of these partitions that is aside where whoever comes for it under its name finds it: so is all
/// before it that anybody needs.
fn aside_already(
    journal: &Journal,
    names: &BTreeMap<PartitionId, String>,
) -> Result<BTreeMap<PartitionId, Position>, LogError> {
    let mut last: BTreeMap<PartitionId, Position> = BTreeMap::new();
    for held in journal.held() {
        let note = |entries: Vec<RecoveredEntry>| {
            for entry in entries {
                let id = partition_of(entry.header.stream);
                if names.get(&id).is_some_and(|name| is_found(&held, name)) {
                    let last = last.entry(id).or_default();
                    *last = entry.position.max(*last);
                }
            }
        };
        journal.read_held(&held, note).map_err(LogError::Journal)?;
    }
    Ok(last)
}

/// Holds the entries of those partitions that have a name, each under that, apart from those that are `aside` already.
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

/// Gives entries to their partition, which are in order. Answers what became of each, and where they end.
fn take(
    log: &PartitionLog,
    entries: &[RecoveredEntry],
    target: Target,
) -> Result<(Vec<Replayed>, Offset), LogError> {
    let entries: Result<Vec<_>, LogError> = entries.iter().map(|entry| piece_of(log, entry)).collect();
    let entries = entries?;
    let end = entries.last().map_or(Offset::ZERO, |entry| entry.piece.next_offset);
    Ok((log.replay(&entries, target)?, end))
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
