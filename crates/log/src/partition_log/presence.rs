//! Whether a log's files are still at their places.
//!
//! A log whose files are removed, replaced or cut is offline until a start has read them: later writes to them are
//! lost. A log whose files are missing takes no records until they are back, which they are if they were only renamed.
//! Neither is settled meanwhile, so that the journal keeps its entries.

use riverrun_env::Vanishing;
use riverrun_types::Offset;

use super::PartitionLog;
use super::open::OpenLog;
use crate::error::LogError;

impl PartitionLog {
    /// Fails unless all segments are at their places. A log that is closed is checked when it is opened. Waits for the
    /// disk.
    pub(crate) fn check_in_place(&self) -> Result<(), LogError> {
        self.check_from(Offset::ZERO)
    }

    /// As [`Self::check_in_place`], for the segments that no checkpoint covers to their ends, and for the last one.
    pub(crate) fn check_uncovered_in_place(&self) -> Result<(), LogError> {
        let Some(log) = self.current_log() else { return Ok(()) };
        self.check_from(log.recovery_point())
    }

    fn check_from(&self, from: Offset) -> Result<(), LogError> {
        self.check_not_vanished()?;
        let Some(log) = self.current_log() else { return Ok(()) };
        let found = self.look(&log, from);
        match &found {
            Ok(()) if from == Offset::ZERO && log.is_missing() => {
                log.judge_settling(self.id, found.as_ref().err());
            }
            Err(error @ LogError::Vanished { .. }) if error.is_lasting() => {
                self.take_offline_if_damaged(error);
            }
            Err(LogError::Vanished { .. }) => log.judge_settling(self.id, found.as_ref().err()),
            _ => {}
        }
        found
    }

    /// Looks at the segments. Retention and compaction rename files, too: if one is missing, the look is repeated while
    /// neither is at work.
    fn look(&self, log: &OpenLog, from: Offset) -> Result<(), LogError> {
        if log.look(from).is_ok() || log.look(from).is_ok() {
            return Ok(());
        }
        let Some(reshaping) = log.reshaping.try_lock() else {
            return Err(LogError::BeingReshaped(self.id));
        };
        // A compaction that was cut short leaves some of its files under other names, and goes on later. A log that is
        // not the partition's current one has no files any more.
        let is_over = log.appender.lock().is_retired || self.is_deleted() || self.dir.check_open().is_err();
        if reshaping.is_some() || is_over {
            return Ok(());
        }
        // If the dir itself is away, its partitions are not damaged.
        self.dir.check_in_place()?;
        log.look(from)
    }

    /// Fails if files of the log have vanished for good.
    pub(super) fn check_not_vanished(&self) -> Result<(), LogError> {
        match self.damage.get() {
            Some(error @ LogError::Vanished { .. }) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Whether files of the log have vanished for good.
    pub(crate) fn has_vanished(&self) -> bool {
        self.check_not_vanished().is_err()
    }

    /// Fails if records that are brought into the segments now would be lost.
    pub(super) fn check_settles(&self, log: &OpenLog) -> Result<(), LogError> {
        if log.is_missing() { self.check_in_place() } else { self.check_not_vanished() }
    }
}

impl OpenLog {
    fn look(&self, from: Offset) -> Result<(), LogError> {
        let view = self.view();
        let mut missing = None;
        for (index, segment) in view.segments.iter().enumerate() {
            let extent = view.extent(index);
            if extent.next_offset <= from && index + 1 < view.segments.len() {
                continue;
            }
            match segment.check_in_place(extent.size_bytes) {
                // Another segment may have vanished for good.
                Err(LogError::Vanished { path, how: Vanishing::Missing }) => {
                    missing.get_or_insert(LogError::Vanished { path, how: Vanishing::Missing });
                }
                looked => looked?,
            }
        }
        missing.map_or(Ok(()), Err)
    }
}
