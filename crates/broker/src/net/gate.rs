//! The gate that requests with records pass: while records that are in no segment yet fill the memory that there is for
//! them, no connection starts another one. What the others wait for is not held up, on whatever connection they came.

use std::fmt;

use riverrun_protocol::ApiKey;
use tokio::sync::Notify;

use super::wait::wait_until;

/// Whether there is room.
type HasRoom = Box<dyn Fn() -> bool + Send + Sync>;

/// Shared by all connections.
pub(crate) struct ProduceGate {
    has_room: HasRoom,
    room: Notify,
}

impl fmt::Debug for ProduceGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProduceGate").field("is_open", &self.is_open()).finish_non_exhaustive()
    }
}

impl ProduceGate {
    /// A gate that is open while `has_room` says so. Whoever makes room calls [`Self::room_was_made`].
    pub(crate) fn new(has_room: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { has_room: Box::new(has_room), room: Notify::new() }
    }

    /// Whether a request with this API key may not start now.
    pub(crate) fn holds(&self, api_key: Option<i16>) -> bool {
        api_key == Some(ApiKey::Produce as i16) && !self.is_open()
    }

    fn is_open(&self) -> bool {
        (self.has_room)()
    }

    /// Waits until it is open.
    pub(crate) async fn opened(&self) {
        wait_until(&self.room, || self.is_open()).await;
    }

    /// Has all who wait look again.
    pub(crate) fn room_was_made(&self) {
        self.room.notify_waiters();
    }

    /// The same if it is open, which may be so without anybody having made room.
    pub(crate) fn look_again(&self) {
        if self.is_open() {
            self.room_was_made();
        }
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

    #[test]
    fn only_requests_with_records_are_held() {
        let gate = ProduceGate::new(|| false);
        assert!(gate.holds(Some(ApiKey::Produce as i16)));
        assert!(!gate.holds(Some(ApiKey::Fetch as i16)) && !gate.holds(None));
        assert!(!ProduceGate::new(|| true).holds(Some(ApiKey::Produce as i16)));
    }
}
