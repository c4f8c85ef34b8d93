//! Fetches that wait for a partition to advance.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// One waiting fetch; it may be enrolled at many partitions.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    woken: Notify,
}

impl Waiter {
    /// Waits until a partition has advanced since the last call. One wake-up that came before is kept.
    pub(crate) async fn woken(&self) {
        self.woken.notified().await;
    }
}

/// The waiting fetches of one partition.
///
/// Invariants: entries of fetches that are gone are at most as many as the live ones plus the vector's smallest
/// capacity, so that an idle partition with a polling consumer does not grow.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    enrolled: Mutex<Vec<Weak<Waiter>>>,
}

impl Waiters {
    pub(crate) fn enroll(&self, waiter: &Arc<Waiter>) {
        let waiter = Arc::downgrade(waiter);
        let mut enrolled = self.enrolled.lock();
        // One that was woken by another partition is still here.
        if enrolled.iter().any(|other| other.ptr_eq(&waiter)) {
            return;
        }
        if enrolled.len() == enrolled.capacity() {
            enrolled.retain(|other| other.strong_count() > 0);
        }
        enrolled.push(waiter);
    }

    /// Wakes all and forgets them: whoever still waits enrolls again after its next look.
    pub(crate) fn wake(&self) {
        let mut enrolled = self.enrolled.lock();
        for waiter in enrolled.drain(..) {
            if let Some(waiter) = waiter.upgrade() {
                waiter.woken.notify_one();
            }
        }
    }

    /// Whether a live fetch waits.
    pub(crate) fn any(&self) -> bool {
        self.enrolled.lock().iter().any(|waiter| waiter.strong_count() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wake_up_between_enrolling_and_waiting_is_not_lost() {
        let waiters = Waiters::default();
        let waiter = Arc::new(Waiter::default());
        waiters.enroll(&waiter);
        waiters.wake();
        tokio::time::timeout(std::time::Duration::from_secs(5), waiter.woken()).await.expect("kept");
        assert!(!waiters.any());
    }

    #[test]
    fn a_fetch_that_looks_again_is_enrolled_once() {
        let waiters = Waiters::default();
        let waiter = Arc::new(Waiter::default());
        for _ in 0..100 {
            waiters.enroll(&waiter);
        }
        assert_eq!(waiters.enrolled.lock().len(), 1);
    }

    #[test]
    fn fetches_that_come_and_go_do_not_pile_up() {
        let waiters = Waiters::default();
        for _ in 0..10_000 {
            waiters.enroll(&Arc::new(Waiter::default()));
        }
        assert!(waiters.enrolled.lock().len() < 16);
    }
}
