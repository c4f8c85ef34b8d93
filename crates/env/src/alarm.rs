//! A wait for another thread that ends after a time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Wakes one thread that waits for a reason to work. Raised while nobody waits, it wakes the next one at once.
///
/// Its time is the machine's, in simulated worlds too: what raises it is another thread.
#[derive(Debug, Default)]
pub struct Alarm {
    is_raised: AtomicBool,
    lock: Mutex<()>,
    condition: Condvar,
}

impl Alarm {
    /// Wakes the thread that waits, or the next one that does.
    pub fn raise(&self) {
        // ALARM: published. Raised already: somebody is on the way.
        if !self.is_raised.swap(true, Ordering::AcqRel) {
            let _lock = self.lock.lock();
            self.condition.notify_one();
        }
    }

    /// Waits until it is raised, but not longer than `timeout`, and takes it back. Returns whether it was raised.
    pub fn wait(&self, timeout: Duration) -> bool {
        let mut lock = self.lock.lock();
        // ALARM: taken back.
        if self.is_raised.swap(false, Ordering::AcqRel) {
            return true;
        }
        self.condition.wait_for(&mut lock, timeout);
        self.is_raised.swap(false, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_that_was_raised_before_anybody_waits_wakes_who_waits_next() {
        let alarm = Alarm::default();
        assert!(!alarm.wait(Duration::from_millis(1)));
        alarm.raise();
        assert!(alarm.wait(Duration::from_hours(1)));
        assert!(!alarm.wait(Duration::from_millis(1)));
    }
}
