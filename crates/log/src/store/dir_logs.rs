//! The logs of one log dir: their handles, the work on them, and the part of the journals that they no longer need.
//!
//! The dir itself knows its partitions by their ids only, and keeps the lists of those with work. [`DirLogs`] has the
//! handles, and does the work.

mod checkpointing;
mod settling;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_env::Env;
use riverrun_journal::Position;
use riverrun_types::{LeaderEpoch, PartitionId};

pub(super) use self::checkpointing::Coverage;
use super::unreadable::FailedReread;
use crate::config::LogConfig;
use crate::error::LogError;
use crate::log_dir::LogDir;
use crate::pace::Haste;
use crate::partition_log::{KnownPartition, PartitionLog};
use crate::rank::{self, Ranked};
use crate::shared::StoreShared;

/// The logs of a log dir in use. Locks are taken in the order `cycle`, `settling`, `checkpointing`, then those of the
/// dir and of its logs. No thread waits for the disk under `partitions`, which every first use takes.
///
/// Invariants: every log of the dir that is open has its handle in `partitions`, until it is deleted or the dir is
/// closed.
#[derive(Debug)]
pub(super) struct DirLogs {
    pub(super) dir: Arc<LogDir>,
    partitions: Mutex<HashMap<PartitionId, Arc<PartitionLog>>>,
    /// Held by the thread that settles the dir and gives the journals back the entries that it needs no longer: one at
    /// a time.
    pub(super) cycle: Ranked<rank::Cycle, ()>,
    /// Held while tails are settled.
    settling: Ranked<rank::Settling, ()>,
    /// Held while a checkpoint is made: one at a time.
    checkpointing: Ranked<rank::Checkpointing, ()>,
    /// The last attempt to settle, or to put entries aside, has failed.
    pub(super) is_troubled: AtomicBool,
    /// Position below which this dir does not need the journal, for each journal.
    pub(super) covered: Mutex<Vec<Position>>,
    /// The error of the last attempt to put the dir's entries of the journals aside, if it failed.
    pub(super) aside_trouble: Mutex<Option<String>>,
    /// By the journal's index, rereads that have failed and are not tried in each cycle.
    pub(super) failed_rereads: Mutex<HashMap<usize, FailedReread>>,
    /// A checkpoint has covered all entries that recovery has brought.
    has_covered_recovery: AtomicBool,
}

impl DirLogs {
    /// No log is open yet.
    pub(super) fn new(dir: Arc<LogDir>) -> Self {
        let journal_count = dir.shared().journals.len();
        Self {
            dir,
            partitions: Mutex::default(),
            cycle: Ranked::default(),
            settling: Ranked::default(),
            checkpointing: Ranked::default(),
            is_troubled: AtomicBool::new(false),
            covered: Mutex::new(vec![Position(0); journal_count]),
            aside_trouble: Mutex::default(),
            failed_rereads: Mutex::default(),
            has_covered_recovery: AtomicBool::new(false),
        }
    }

    pub(super) fn env(&self) -> &Env {
        self.dir.env()
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The resources that the log dirs of a store share.
    pub(super) fn shared(&self) -> &Arc<StoreShared> {
        self.dir.shared()
    }

    /// A checkpoint has covered everything, and recovery is over.
    pub(super) fn note_recovery_covered(&self) {
        self.has_covered_recovery.store(true, Ordering::Relaxed);
    }

    /// Whether a checkpoint has covered all entries that recovery has brought.
    pub(super) fn has_covered_recovery(&self) -> bool {
        self.has_covered_recovery.load(Ordering::Relaxed)
    }

    /// The handle of a partition; made if there is none.
    pub(super) fn partition(
        &self,
        id: PartitionId,
        config: Arc<LogConfig>,
        epoch: LeaderEpoch,
    ) -> Arc<PartitionLog> {
        let config = self.shared().share_config(config);
        let mut partitions = self.partitions.lock();
        let Some(log) = partitions.get(&id).cloned() else {
            let log = PartitionLog::new(id, Arc::clone(&self.dir), config, epoch);
            partitions.insert(id, log.clone());
            return log;
        };
        // Users of other partitions do not wait for this one.
        drop(partitions);
        log.set_config(config);
        log.set_leader_epoch(epoch);
        log
    }

    /// The handle of a partition, if there is one.
    pub(super) fn handle(&self, id: PartitionId) -> Option<Arc<PartitionLog>> {
        self.partitions.lock().get(&id).cloned()
    }

    pub(super) fn handles(&self) -> Vec<Arc<PartitionLog>> {
        self.partitions.lock().values().cloned().collect()
    }

    /// The handles of those of the partitions that have one, in their order.
    pub(super) fn handles_of(&self, ids: &[PartitionId]) -> Vec<Arc<PartitionLog>> {
        let partitions = self.partitions.lock();
        ids.iter().filter_map(|id| partitions.get(id).cloned()).collect()
    }

    /// The facts in memory of every partition that the checkpoint knows or that has a handle.
    pub(super) fn known(&self) -> Vec<KnownPartition> {
        let checkpointed = self.dir.all_checkpointed(KnownPartition::of_checkpoint);
        let mut known: BTreeMap<_, _> = checkpointed.into_iter().map(|known| (known.id, known)).collect();
        for log in self.handles() {
            match log.known_if_open() {
                Some(open) => _ = known.insert(open.id, open),
                None => _ = known.entry(log.id()).or_insert_with(|| KnownPartition::new(log.id())),
            }
        }
        known.into_values().collect()
    }

    /// Whether no entry of its partitions is on its way through a journal.
    pub(super) fn is_drained(&self) -> bool {
        self.handles().iter().all(|log| log.is_drained())
    }

    /// Whether a partition cannot be read, as far as is known. Does not wait.
    pub(super) fn is_offline(&self, id: PartitionId) -> bool {
        let is_damaged = || self.handle(id).is_some_and(|log| log.damage().is_some());
        !self.dir.is_open() || (self.dir.has_met_trouble() && is_damaged())
    }

    /// Whether partitions whose files have vanished have records in no segment, which this process will not write.
    pub(super) fn has_left_behind(&self) -> bool {
        let is_left = |log: &Arc<PartitionLog>| log.has_vanished() && log.tail_end().is_some();
        self.dir.has_met_trouble() && self.handles().iter().any(is_left)
    }

    /// Looks at all logs that are open.
    pub(super) fn check_open_logs(&self) {
        for log in self.handles().iter().filter(|_| !self.dir.has_failed()) {
            // The partition's log has logged it.
            let _is_gone = log.check_in_place();
        }
    }

    /// Waits until appends are left, but not longer than `timeout`, and writes them, partition by partition.
    pub(super) fn write_left(&self, timeout: Duration) {
        let left = self.dir.take_left(timeout);
        for log in left.into_iter().filter_map(|id| self.handle(id)) {
            if let Err(error) = log.write_staged() {
                // Callers that wait for it get the error, too, and log it.
                tracing::debug!(partition = %log.id(), %error, "appends that were left are lost");
            }
        }
    }

    /// Removes a partition and its files: see [`LogDir::delete`].
    pub(super) fn delete(&self, id: PartitionId) -> Result<(), LogError> {
        // A dir that was closed may be another server's by now.
        self.dir.check_open()?;
        let log = self.partitions.lock().remove(&id);
        if let Some(log) = log {
            log.mark_deleted();
        }
        self.dir.delete(id)
    }

    /// Closes the partitions that were not used for `older_than`; returns their number.
    pub(super) fn close_idle(&self, older_than: Duration) -> usize {
        let now = self.env().clock.monotonic();
        self.handles().iter().filter(|log| log.close_if_idle(now, older_than)).count()
    }

    /// Checkpoints, closes every partition and unlocks the dir. Later calls on the handles fail. While a journal holds
    /// entries that could not be brought into the segments, the dir does not count as closed in order. Nor does one
    /// that has failed; its failure is logged, and the others are closed all the same. Returns whether there was time
    /// for the checkpoint.
    pub(super) fn close(&self) -> Result<bool, LogError> {
        self.dir.stop_opening();
        let is_left = |log: &Arc<PartitionLog>| log.tail_end().is_some();
        let is_settled = self.shared().check_recovered().is_ok() && !self.handles().iter().any(is_left);
        let closed = if !self.dir.has_failed() && is_settled {
            match self.checkpoint(true, Haste::AtOnce) {
                Err(LogError::OutOfTime) => Ok(false),
                made => made.map(|_| true),
            }
        } else {
            Ok(true)
        };
        if self.dir.check_time().is_err() {
            self.dir.tell_unwritten(self.handles().iter().flat_map(|log| log.unwritten()));
        }
        self.release();
        match self.dir.check_usable() {
            Ok(()) => closed,
            Err(error) => {
                tracing::warn!(
                    %error,
                    "this log dir was not stopped in order: its partitions are recovered when it is back, and the \
                     journals keep their entries"
                );
                Ok(true)
            }
        }
    }

    /// Drops the partitions and unlocks the dir, and writes nothing.
    pub(super) fn release(&self) {
        self.dir.stop_opening();
        // A checkpoint that a handle's user has begun ends before the lock goes.
        let _checkpointing = self.checkpointing.lock();
        let logs: Vec<_> = self.partitions.lock().drain().map(|(_, log)| log).collect();
        for log in logs {
            log.shut();
        }
        self.dir.unlock();
    }
}

#[cfg(test)]
mod tests;
