//! Reading what earlier lives have left.

use crate::{DamagedEntry, JournalError, RecoveredEntry};

/// The unsettled entries of earlier lives, file by file.
#[derive(Debug, Default)]
pub struct Replay {
    damaged: Vec<DamagedEntry>,
}

impl Replay {
    /// The next entries in the order of their submission, those of one file at most; `None` at the end. First come
    /// those that were held aside. After an error the replay is over: what comes later must not be served without
    /// what is missing.
    #[expect(clippy::should_implement_trait, reason = "an iterator of results would go on after an error")]
    pub fn next(&mut self) -> Result<Option<Vec<RecoveredEntry>>, JournalError> {
        Ok(None)
    }

    /// Entries found so far whose payloads are damaged although they were synced once.
    pub fn damaged(&self) -> &[DamagedEntry] {
        &self.damaged
    }
}
