//! What became of the log lines of this process: how many nobody will ever read, and why.
//!
//! Whoever writes the log counts here, and a server's `/health` and metrics tell it. Nothing here waits.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// The account of one log. The default one is of a log that loses nothing.
#[derive(Debug, Default)]
pub struct LogAccount {
    lost_lines: AtomicU64,
    /// Why the last write failed, until one succeeds.
    failure: Mutex<Option<String>>,
}

impl LogAccount {
    /// So many lines are lost: there was no room for them, or a write failed.
    pub fn lost(&self, lines: u64) {
        self.lost_lines.fetch_add(lines, Ordering::Relaxed);
    }

    /// Lines that were lost since the start.
    pub fn lost_lines(&self) -> u64 {
        self.lost_lines.load(Ordering::Relaxed)
    }

    /// A write failed, for this reason.
    pub fn failed(&self, reason: String) {
        *self.failure.lock() = Some(reason);
    }

    /// A write succeeded.
    pub fn works(&self) {
        self.failure.lock().take();
    }

    /// What whoever looks after the server should know, if there is something. It keeps no server from its work.
    pub(crate) fn note(&self) -> Option<String> {
        let lost = self.lost_lines();
        match &*self.failure.lock() {
            Some(reason) => {
                Some(format!("the log cannot be written: {reason}; {lost} lines are lost since the start"))
            }
            None if lost > 0 => Some(format!("{lost} lines of the log are lost since the start")),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_told_and_a_failure_until_a_write_succeeds() {
        let account = LogAccount::default();
        assert_eq!(account.note(), None);
        account.lost(3);
        account.failed("broken pipe".to_owned());
        let told = account.note().expect("lines are lost");
        assert!(told.contains("broken pipe") && told.contains("3 lines"), "{told}");
        account.works();
        assert_eq!(account.note().as_deref(), Some("3 lines of the log are lost since the start"));
    }
}
