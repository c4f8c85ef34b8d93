//! An alarm: a thread's wait for another thread, with a timeout.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Wakes one thread that waits for a reason to work. Raised while no thread waits, it wakes the next one at once.
///
/// Its time is the machine's, in simulated worlds too: the thread that raises it is a real one.
#[derive(Debug, Default)]
pub struct Alarm {
    is_raised: AtomicBool,
    lock: Mutex<()>,
    condition: Condvar,
}

impl Alarm {
    /// Wakes the waiting thread, or the next one that waits.
    pub fn raise(&self) {
        // ALARM: published. If it was raised already, a thread is being woken.
        if !self.is_raised.swap(true, Ordering::AcqRel) {
            let _lock = self.lock.lock();
            self.condition.notify_one();
        }
    }

    /// Waits until the alarm is raised, but at most `timeout`, and resets it. Returns whether it was raised.
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
    fn alarm_raised_early_wakes_the_next_waiter() {
        let alarm = Alarm::default();
        assert!(!alarm.wait(Duration::from_millis(1)));
        alarm.raise();
        assert!(alarm.wait(Duration::from_hours(1)));
        assert!(!alarm.wait(Duration::from_millis(1)));
    }
}
