//! Taking a partition offline because bytes that were durable are not what was written.
//!
//! Nobody reads or appends any more until a restart, by which someone may have restored or repaired the files. What
//! was appended before goes its way: it is synced, settled and covered by checkpoints as if nothing had happened.

use super::{PartitionLog, State};
use crate::error::{LogError, ReadError};

impl PartitionLog {
    /// What was found to be damaged, if anything was.
    pub(super) fn check_undamaged(&self) -> Result<(), LogError> {
        self.damage.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// How its files are damaged, as far as anybody has seen. Waits for nobody.
    pub(crate) fn damage(&self) -> Option<LogError> {
        let found_open = || match &*self.state.try_read()? {
            State::Offline(error) => Some(error.clone()),
            _ => None,
        };
        self.damage.get().cloned().or_else(found_open)
    }

    /// Takes the partition offline if the error says that its files are damaged. The first such error stays the
    /// answer.
    pub(crate) fn note_damage(&self, error: &LogError) {
        if error.is_lasting() && self.damage.set(error.clone()).is_ok() {
            tracing::error!(partition = %self.id(), %error, "damage was found: the partition goes offline");
        }
    }

    /// As [`Self::note_damage`], of a read.
    pub(super) fn note_read_damage(&self, error: &ReadError) {
        if let ReadError::Storage(error) = error {
            self.note_damage(error);
        }
    }
}
