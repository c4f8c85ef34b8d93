//! The account of this process's own log lines: how many are lost, and why.
//!
//! The thread that writes the log counts here, and a server's `/health` and metrics show it. No method waits for the
//! log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The account of one log. A new one has no losses.
#[derive(Debug, Default)]
pub struct LogAccount {
    lost_lines: AtomicU64,
    /// The error of the last write, until a write succeeds.
    failure: Mutex<Option<String>>,
}

impl LogAccount {
    /// Counts `lines` as lost: there was no room for them, or a write failed.
    pub fn lost(&self, lines: u64) {
        self.lost_lines.fetch_add(lines, Ordering::Relaxed);
    }

    /// Number of lines lost since the start.
    pub fn lost_lines(&self) -> u64 {
        self.lost_lines.load(Ordering::Relaxed)
    }

    /// Remembers that a write failed, for this reason.
    pub fn failed(&self, reason: String) {
        *self.failure() = Some(reason);
    }

    /// Remembers that a write succeeded.
    pub fn works(&self) {
        self.failure().take();
    }

    /// The text for the operator, if lines are lost or the log cannot be written. Neither keeps a server from its
    /// work.
    pub fn warning(&self) -> Option<String> {
        let lost = self.lost_lines();
        match &*self.failure() {
            Some(reason) => {
                Some(format!("the log cannot be written: {reason}; {lost} lines are lost since the start"))
            }
            None if lost > 0 => Some(format!("{lost} lines of the log are lost since the start")),
            None => None,
        }
    }

    /// No code under this lock can panic half way.
    fn failure(&self) -> MutexGuard<'_, Option<String>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_stay_and_a_failure_ends_with_a_successful_write() {
        let account = LogAccount::default();
        assert_eq!(account.warning(), None);
        account.lost(3);
        account.failed("broken pipe".to_owned());
        let told = account.warning().expect("lines are lost");
        assert!(told.contains("broken pipe") && told.contains("3 lines"), "{told}");
        account.works();
        assert_eq!(account.warning().as_deref(), Some("3 lines of the log are lost since the start"));
    }
}
