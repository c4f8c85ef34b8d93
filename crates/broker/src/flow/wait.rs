//! Waiting for a condition that another task brings about, and counting the waits.

use std::pin::pin;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::Notify;

/// Waits until `is_so`, which is checked again at each wake-up of all. Safe to drop at any time.
pub(super) async fn wait_until(woken: &Notify, is_so: impl Fn() -> bool) {
    while !is_so() {
        let mut woken = pin!(woken.notified());
        // Enrolled before the second look, so that what became so between the two is not missed.
        woken.as_mut().enable();
        if is_so() {
            return;
        }
        woken.await;
    }
}

/// Counts as one wait while it lives.
pub(super) struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    pub(super) fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Relaxed);
        Self(waiting)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
