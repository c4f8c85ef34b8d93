//! Bringing what the journals' earlier lives have left into the segments, before anything is served.
//!
//! The journals give their entries file by file; those of one partition are written together. Its time follows the
//! journals' tail, not the number of partitions. It may be interrupted anywhere: until the next checkpoint the journals
//! keep what they gave, and the next start does the same again.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use riverrun_journal::{EntryHeader, Journal, RecoveredEntry, Replay};
use riverrun_types::{LeaderEpoch, PartitionId};

use super::aside::entry_of;
use super::{LogStore, RecoveryReport};
use crate::config::LogConfig;
use crate::error::LogError;
use crate::partition_log::{PartitionLog, Piece, Replayed};
use crate::shared::partition_of;

/// Where a partition lies and what holds for it; none if it is no more.
type Place<'a> = dyn Fn(PartitionId) -> Option<(usize, Arc<LogConfig>)> + 'a;

impl LogStore {
    /// Brings what the journals hold into the segments, and opens the partitions that it belongs to; `place` says
    /// where each lies. A partition that is damaged, or whose log does not reach up to what the journal has, goes
    /// offline; what belongs to a log dir that has failed is put aside. Nothing is synced by it: the journals have all
    /// of it until the next checkpoint. Comes before any use of the partitions.
    pub fn recover(
        &self,
        epoch: LeaderEpoch,
        place: impl Fn(PartitionId) -> Option<(usize, Arc<LogConfig>)>,
    ) -> Result<RecoveryReport, LogError> {
        let replays = std::mem::take(&mut *self.replays.lock());
        let mut recovery = Recovery {
            store: self,
            epoch,
            place: &place,
            report: RecoveryReport::default(),
            seen: HashSet::new(),
        };
        for (replay, journal) in replays.into_iter().zip(&self.shared.journals) {
            recovery.run(replay, journal)?;
        }
        let report = recovery.finish();
        self.shared.set_recovered();
        // Where the journal goes on is known now, and the next start must not have to find it out from it again.
        if self.dirs.iter().any(|dir| !dir.is_checkpoint_trusted())
            && let Err(error) = self.checkpoint()
        {
            tracing::warn!(%error, "no checkpoint takes the place of the one that was damaged");
        }
        Ok(report)
    }
}

struct Recovery<'a> {
    store: &'a LogStore,
    epoch: LeaderEpoch,
    place: &'a Place<'a>,
    report: RecoveryReport,
    seen: HashSet<PartitionId>,
}

impl Recovery<'_> {
    fn run(&mut self, mut replay: Replay, journal: &Journal) -> Result<(), LogError> {
        loop {
            let are_held = replay.is_held_next();
            let Some(entries) = replay.next().map_err(LogError::Journal)? else { break };
            let mut partitions: BTreeMap<PartitionId, Vec<RecoveredEntry>> = BTreeMap::new();
            for entry in entries {
                partitions.entry(partition_of(entry.header.stream)).or_default().push(entry);
            }
            let mut aside = BTreeMap::new();
            for (id, entries) in partitions {
                self.replay(id, entries, &mut aside)?;
            }
            // What cannot be written now must not be lost when the journal uses its files again. What is aside stays
            // there.
            for (name, entries) in aside.into_iter().filter(|_| !are_held) {
                journal.hold(&name, &entries).map_err(LogError::Journal)?;
            }
        }
        for damaged in replay.damaged() {
            self.note_damage(partition_of(damaged.stream), damaged);
        }
        Ok(())
    }

    /// Writes entries of one partition, or adds them to what is put aside for its log dir.
    fn replay(
        &mut self,
        id: PartitionId,
        entries: Vec<RecoveredEntry>,
        aside: &mut BTreeMap<String, Vec<RecoveredEntry>>,
    ) -> Result<(), LogError> {
        let Some((dir, config)) = (self.place)(id) else {
            self.report.dropped_entries += entries.len() as u64;
            return Ok(());
        };
        let log = self.store.dirs[dir].partition(id, config, self.epoch);
        match log.dir().check_usable().and_then(|()| write(&log, &entries)) {
            Ok(replayed) => self.count(id, &entries, &replayed),
            Err(error) => {
                self.report.held_entries += entries.len() as u64;
                aside.entry(log.dir().held_name()).or_default().extend(with_written(&log, entries)?);
                self.note_offline(id, log.take_offline(error));
            }
        }
        Ok(())
    }

    fn count(&mut self, id: PartitionId, entries: &[RecoveredEntry], replayed: &[Replayed]) {
        for (entry, replayed) in entries.iter().zip(replayed) {
            match replayed {
                Replayed::Known => self.report.known_entries += 1,
                Replayed::Written => {
                    self.report.entries += 1;
                    self.report.bytes += entry.payload.len() as u64;
                    self.seen.insert(id);
                }
            }
        }
    }

    /// An entry that was synced is damaged, and nobody can say which offsets it had. If the log reached beyond it, or
    /// does not reach it, that was noticed.
    fn note_damage(&mut self, id: PartitionId, damaged: &riverrun_journal::DamagedEntry) {
        let Some((dir, config)) = (self.place)(id) else { return };
        let log = self.store.dirs[dir].partition(id, config, self.epoch);
        let error = LogError::Corrupt {
            path: damaged.path.clone(),
            position: damaged.position.0,
            what: damaged.what.clone(),
        };
        let error = log.take_offline(error);
        self.note_offline(id, error);
    }

    fn note_offline(&mut self, id: PartitionId, error: LogError) {
        if self.report.offline.iter().all(|(known, _)| *known != id) {
            self.report.offline.push((id, error));
        }
    }

    fn finish(mut self) -> RecoveryReport {
        for dir in &self.store.dirs {
            for log in dir.handles() {
                log.end_replay();
            }
        }
        self.report.partitions = self.seen.len();
        self.report
    }
}

/// What has to be put aside of a partition that cannot take `entries`: what it took before is in no checkpoint either,
/// and is not found in the journal any more once something that comes later is aside. If it cannot be read back, there
/// is no start, and nothing changes: the journal still has it all.
fn with_written(log: &PartitionLog, entries: Vec<RecoveredEntry>) -> Result<Vec<RecoveredEntry>, LogError> {
    let position = entries.first().map_or_else(Default::default, |entry| entry.position);
    let written = log.take_unheld(position)?;
    let Some(end) = written.last().map(|(piece, _)| piece.next_offset) else { return Ok(entries) };
    let mut all: Vec<_> =
        written.iter().map(|(piece, position)| entry_of(log.id(), piece, *position)).collect();
    all.extend(entries.into_iter().filter(|entry| entry.header.base_offset >= end));
    Ok(all)
}

/// Writes entries of one partition, which are in order.
fn write(log: &PartitionLog, entries: &[RecoveredEntry]) -> Result<Vec<Replayed>, LogError> {
    let now = log.dir().env().clock.wall();
    let mut pieces: Vec<(EntryHeader, Piece)> = Vec::with_capacity(entries.len());
    for entry in entries {
        let piece = Piece::of_entry(&entry.header, entry.payload.clone(), now).ok_or_else(|| {
            let what =
                format!("the journal's entry at {} does not hold the batches that it says", entry.position);
            LogError::Corrupt { path: log.path(), position: 0, what }
        })?;
        pieces.push((entry.header, piece));
    }
    log.replay(&pieces)
}
