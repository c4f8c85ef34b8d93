//! Brings the tails of a log dir's partitions into their segments, each a share in its turn.
//!
//! If very many partitions have small tails, a turn comes late: a new partition costs the file system a directory and
//! two files. So partitions with a large tail have a share in between, one after each slice of the others, and their
//! settled bytes make room before the others are through.

use std::sync::Arc;
use std::time::Duration;

use riverrun_types::Offset;

use super::DirLogs;
use crate::error::LogError;
use crate::log_dir::DirWork;
use crate::pace::{Haste, Pace};
use crate::partition_log::PartitionLog;

/// Time after which a pass makes room for waiting producers, again and again. The bytes that are copied for that are at
/// most the write cache's.
const LET_GO_EVERY: Duration = Duration::from_millis(250);

impl DirLogs {
    /// Brings all tails into the segments, in the order of the partitions. Failed tails stay in memory; the first error
    /// is returned.
    pub(in crate::store) fn settle(&self, haste: Haste) -> Result<(), LogError> {
        let _in_haste = self.dir.hurry.enter(haste);
        // A second caller must not believe that nothing is left to do while the first is at it.
        let _settling = self.settling.lock();
        let _their_memory = self.dir.keep_memory();
        let logs = self.handles_of(&self.dir.take_tails());
        let mut result = self.cover_lost(&logs);
        let mut pace = self.dir.pace();
        let mut logs: Vec<_> = logs.into_iter().map(|log| ToSettle { log, upto: None }).collect();
        let mut let_go_at = self.env().clock.monotonic() + LET_GO_EVERY;
        while !logs.is_empty() {
            logs = self.settle_shares(logs, &mut let_go_at, &mut result, &mut pace);
        }
        if result.is_ok() && self.dir.space().found_room() {
            tracing::info!(path = %self.path().display(), "the log dir has room again");
        }
        result
    }

    /// Brings the tails of some partitions into the segments, and has a checkpoint cover these. Does not wait for a
    /// pass over all tails, which may go on meanwhile, and leaves to it what fails here.
    pub(in crate::store) fn cover_some(
        &self,
        logs: &[Arc<PartitionLog>],
        haste: Haste,
    ) -> Result<(), LogError> {
        let _in_haste = self.dir.hurry.enter(haste);
        let _their_memory = self.dir.keep_memory();
        let mut result = self.cover_lost(logs);
        let mut pace = self.dir.pace();
        for log in logs {
            let mut upto = None;
            loop {
                upto = self.settle_share(log, upto, &mut result, &mut pace);
                if upto.is_none() {
                    break;
                }
            }
            pace.step();
        }
        let ids = logs.iter().map(|log| log.id()).collect();
        // Settled logs can be covered, and closed.
        let covered = self.checkpoint_some(&ids, haste);
        result.and(covered)
    }

    /// Brings a share of each tail into the segments; returns those of which something is left, in the same order.
    fn settle_shares(
        &self,
        logs: Vec<ToSettle>,
        let_go_at: &mut Duration,
        result: &mut Result<(), LogError>,
        pace: &mut Pace<'_>,
    ) -> Vec<ToSettle> {
        let mut left = Vec::new();
        let mut logs = logs.into_iter();
        while let Some(ToSettle { log, upto }) = logs.next() {
            prefetch_next(logs.as_slice());
            if let Some(upto) = self.settle_share(&log, upto, result, pace) {
                left.push(ToSettle { log, upto: Some(upto) });
            }
            if pace.step() {
                self.settle_large(result, pace);
                self.let_go_at(let_go_at);
            }
        }
        left
    }

    /// Once that time has come, and producers may wait for room, gives the rest of the tails memory of its own: settled
    /// bytes make room now, and not at the end of the pass.
    fn let_go_at(&self, time: &mut Duration) {
        let now = self.env().clock.monotonic();
        if now < *time || !self.shared().cache.is_contended() {
            return;
        }
        *time = now + LET_GO_EVERY;
        self.unshare_tails();
        self.dir.let_go_of_kept();
    }

    /// Brings a share of one tail into the segments. Returns the offset to settle it up to, if something below is left.
    fn settle_share(
        &self,
        log: &Arc<PartitionLog>,
        upto: Option<Offset>,
        result: &mut Result<(), LogError>,
        pace: &mut Pace<'_>,
    ) -> Option<Offset> {
        let settled = match &*result {
            Err(error) if self.is_hopeless(error) => Err(error.clone()),
            _ => {
                let _working = self.dir.working(DirWork::Settles(log.id()));
                log.settle(upto, pace)
            }
        };
        settled.unwrap_or_else(|error| {
            if error.is_full() {
                self.dir.space().found_full();
            }
            self.dir.note_tail(log.id());
            // A log whose files have vanished for good has logged it, and stays as it is: no more is tried for it.
            if !log.has_vanished() {
                *result = std::mem::replace(result, Ok(())).and(Err(error));
            }
            None
        })
    }

    /// Brings a share of one large tail into the segments, out of turn: a producer of many records waits for no more
    /// than a slice of the others, however many of them are in the pass.
    fn settle_large(&self, result: &mut Result<(), LogError>, pace: &mut Pace<'_>) {
        let Some(log) = self.dir.take_large().and_then(|id| self.handle(id)) else { return };
        self.settle_share(&log, None, result, pace);
        // Entries that have come to it meanwhile have not put it into the list.
        if result.is_ok() && log.has_large_tail() {
            self.dir.note_large(log.id());
        }
    }

    /// Makes a checkpoint if one of the logs has none that can be believed: if a power cut tore the bytes that are
    /// settled now, the next start could not tell them from damaged synced ones.
    fn cover_lost(&self, logs: &[Arc<PartitionLog>]) -> Result<(), LogError> {
        if logs.iter().all(|log| self.dir.is_checkpoint_trusted(log.id())) {
            return Ok(());
        }
        self.checkpoint(false, Haste::AtOnce).map(|_| ())
    }

    /// Whether other partitions would meet the error of this one, too.
    fn is_hopeless(&self, error: &LogError) -> bool {
        error.is_full() || matches!(error, LogError::OutOfTime) || self.dir.check_usable().is_err()
    }
}

/// A log with a tail, and the offset to settle it up to: the tail's end if there is none.
struct ToSettle {
    log: Arc<PartitionLog>,
    upto: Option<Offset>,
}

/// Prefetches the memory for settling one of the next partitions.
fn prefetch_next(coming: &[ToSettle]) {
    if let Some(next) = coming.get(1) {
        next.log.prefetch();
    }
    if let Some(next) = coming.first() {
        next.log.prefetch_writer();
    }
}
