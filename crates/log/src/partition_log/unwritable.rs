//! A log that alone cannot be settled, while its log dir takes other logs' records: its directory or its rights were
//! taken away, or the disk does not read it any more.
//!
//! It takes no more records until it can be settled. Its records in memory leave the count of the write cache, as far
//! as there is room for them beside it: the cache is one for all, and while it is full all producers are held up.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use riverrun_types::{ErrorKind, PartitionId};

use super::open::OpenLog;
use super::{PartitionLog, State};
use crate::error::LogError;

/// The reason why a log alone could not be settled at the last attempt, if it could not.
///
/// Invariants: `is_set` while there is a reason, for checks without the lock.
#[derive(Debug, Default)]
pub(super) struct Unwritable {
    is_set: AtomicBool,
    reason: Mutex<Option<Box<LogError>>>,
}

impl Unwritable {
    fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    fn reason(&self) -> Option<LogError> {
        if self.is_set() { self.reason.lock().as_deref().cloned() } else { None }
    }

    /// Sets the reason; returns whether there was one before.
    fn set(&self, reason: Option<&LogError>) -> bool {
        let mut before = self.reason.lock();
        self.is_set.store(reason.is_some(), Ordering::Relaxed);
        std::mem::replace(&mut *before, reason.cloned().map(Box::new)).is_some()
    }
}

impl PartitionLog {
    /// The reason why it takes no more records, if it alone does not. Opens nothing, and does not wait.
    pub(crate) fn unwritable(&self) -> Option<LogError> {
        let state = self.state.try_read()?;
        let State::Open(log) = &*state else { return None };
        log.unwritable.reason().or_else(|| log.check_takes_more(self.id).err())
    }
}

impl OpenLog {
    /// Whether files of it are away, and may come back.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self.unwritable.reason(), Some(LogError::Vanished { .. }))
    }

    /// Refuses an append while earlier ones cannot be written.
    pub(super) fn check_takes_more(&self, id: PartitionId) -> Result<(), LogError> {
        if self.unwritable.is_set() || self.is_aside() { Err(LogError::Aside(id)) } else { Ok(()) }
    }

    /// Remembers and logs how settling it has ended.
    pub(super) fn judge_settling(&self, id: PartitionId, failure: Option<&LogError>) {
        match failure {
            None if self.unwritable.is_set() => {
                self.unwritable.set(None);
                tracing::info!(partition = %id, "the partition can be written to again");
            }
            Some(error) if self.is_own(error) => {
                // A partition that is offline has logged its reason.
                if !self.unwritable.set(Some(error)) && !error.is_lasting() {
                    tracing::error!(
                        partition = %id, %error,
                        "the partition takes no more records until its earlier ones can be written"
                    );
                }
                self.uncount_below(self.end());
            }
            _ => {}
        }
    }

    /// Whether an error of settling is this log's alone. A shortage passes, and is no log's own: appends go on
    /// meanwhile, for as long as the write cache has room for them.
    fn is_own(&self, error: &LogError) -> bool {
        let passes = error.kind() == ErrorKind::Retry && !self.dir.shared().cache.is_half_full();
        !passes && !error.is_full() && !self.dir.has_failed()
    }
}
