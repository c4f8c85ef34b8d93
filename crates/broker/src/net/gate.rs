//! The gate that requests with records pass: while records that are in no segment yet fill the memory that there is for
//! them, no connection starts another one. What the others wait for is not held up, on whatever connection they came.
//! Here, too, is the leave to inflate much aside from the network's threads, which as many have at once as there are cores.

use std::fmt;
use std::num::NonZero;
use std::pin::pin;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use riverrun_protocol::ApiKey;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

/// Whether there is room.
type HasRoom = Box<dyn Fn() -> bool + Send + Sync>;

/// Shared by all connections.
pub(crate) struct ProduceGate {
    has_room: HasRoom,
    room: Notify,
    cores: usize,
    inflating: Semaphore,
    /// How many wait for the leave to inflate.
    waiting: AtomicUsize,
}

/// Counts one who waits, while it lives.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Relaxed);
        Self(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl fmt::Debug for ProduceGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProduceGate").field("is_open", &self.is_open()).finish_non_exhaustive()
    }
}

impl ProduceGate {
    /// A gate that is open while `has_room` says so. Whoever makes room calls [`Self::room_was_made`].
    pub(crate) fn new(has_room: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let (room, inflating) = (Notify::new(), Semaphore::new(cores));
        Self { has_room: Box::new(has_room), room, cores, inflating, waiting: AtomicUsize::new(0) }
    }

    /// Whether a request with this API key may not start now.
    pub(crate) fn holds(&self, api_key: Option<i16>) -> bool {
        api_key == Some(ApiKey::Produce as i16) && !self.is_open()
    }

    fn is_open(&self) -> bool {
        (self.has_room)()
    }

    /// Waits for the leave to inflate much; it holds until it is dropped.
    pub(crate) async fn leave_to_inflate(&self) -> Option<SemaphorePermit<'_>> {
        let _waits = Waits::new(&self.waiting);
        // It is never closed.
        self.inflating.acquire().await.ok()
    }

    /// How many inflate aside now, and how many wait for the leave to.
    pub(crate) fn inflating(&self) -> (usize, usize) {
        (self.cores - self.inflating.available_permits(), self.waiting.load(Relaxed))
    }

    /// Waits until it is open.
    pub(crate) async fn opened(&self) {
        loop {
            let mut woken = pin!(self.room.notified());
            // Enlisted before the look, so that room that is made between the two is not missed.
            woken.as_mut().enable();
            if self.is_open() {
                return;
            }
            woken.await;
        }
    }

    /// Has all who wait look again.
    pub(crate) fn room_was_made(&self) {
        self.room.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn all_who_wait_pass_when_there_is_room_and_not_before() {
        let has_room = Arc::new(AtomicBool::new(false));
        let gate = Arc::new(ProduceGate::new({
            let has_room = Arc::clone(&has_room);
            move || has_room.load(Ordering::SeqCst)
        }));
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let gate = Arc::clone(&gate);
                tokio::spawn(async move { gate.opened().await })
            })
            .collect();
        tokio::task::yield_now().await;
        gate.room_was_made();
        assert!(timeout(Duration::from_millis(5), gate.opened()).await.is_err(), "a wake-up is no room");
        has_room.store(true, Ordering::SeqCst);
        gate.room_was_made();
        for waiting in waiting {
            timeout(Duration::from_secs(5), waiting).await.expect("woken").expect("ends");
        }
        gate.opened().await;
    }

    #[tokio::test]
    async fn as_many_as_there_are_cores_inflate_at_once_and_who_waits_is_counted() {
        let gate = ProduceGate::new(|| true);
        let mut leaves = Vec::new();
        for _ in 0..gate.cores {
            leaves.push(gate.leave_to_inflate().await);
        }
        assert_eq!(gate.inflating(), (gate.cores, 0));
        {
            let mut waiting = pin!(gate.leave_to_inflate());
            assert!(timeout(Duration::from_millis(5), &mut waiting).await.is_err());
            assert_eq!(gate.inflating(), (gate.cores, 1));
        }
        assert_eq!(gate.inflating(), (gate.cores, 0), "it has gone");
        drop(leaves);
        assert_eq!(gate.inflating(), (0, 0));
    }

    #[test]
    fn only_requests_with_records_are_held() {
        let gate = ProduceGate::new(|| false);
        assert!(gate.holds(Some(ApiKey::Produce as i16)));
        assert!(!gate.holds(Some(ApiKey::Fetch as i16)) && !gate.holds(None));
        assert!(!ProduceGate::new(|| true).holds(Some(ApiKey::Produce as i16)));
    }
}
