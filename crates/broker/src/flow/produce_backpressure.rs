//! The gate that requests with records pass: while records that are in no segment yet fill much of the memory that there is
//! for them, a connection starts another one only within its share (`shares.rs`). Requests that have started go on, on
//! whatever connection they came.
//!
//! Owns the counts of bytes that each connection and each source has sent of late. The partitions and log dirs of a request
//! are looked up only while the memory is more than half full.

mod shares;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use riverrun_protocol::ApiKey;
use tokio::sync::Notify;

use self::shares::{Ask, Sent, Terms, passes};
pub(crate) use self::shares::{Load, Places};
use super::source::Source;
use super::wait::{Counted, wait_until};

/// Looks at the write cache.
type Look = Box<dyn Fn() -> Load + Send + Sync>;

/// Shared by all connections.
pub(crate) struct ProduceGate {
    look: Look,
    terms: Mutex<Terms>,
    sources: Mutex<HashMap<Source, Arc<Mutex<Sent>>>>,
    /// How often there was more room.
    openings: AtomicU64,
    room: Notify,
    waiting: AtomicUsize,
}

impl fmt::Debug for ProduceGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProduceGate").field("load", &(self.look)()).finish_non_exhaustive()
    }
}

/// A connection, as the gate knows it.
#[derive(Debug)]
pub(crate) struct Guest {
    own: Mutex<Sent>,
    source: Arc<Mutex<Sent>>,
}

/// Until when a request that may not pass need not ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotNow {
    openings: u64,
}

impl ProduceGate {
    /// A gate before a write cache. Code that makes room in the cache calls [`Self::room_was_made`].
    pub(crate) fn new(look: impl Fn() -> Load + Send + Sync + 'static) -> Self {
        Self {
            look: Box::new(look),
            terms: Mutex::default(),
            sources: Mutex::default(),
            openings: AtomicU64::new(0),
            room: Notify::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// A connection from that source.
    pub(crate) fn guest(&self, source: Source) -> Guest {
        let mut sources = self.sources.lock();
        if sources.len() == sources.capacity() {
            sources.retain(|_, sent| Arc::strong_count(sent) > 1);
        }
        Guest { own: Mutex::default(), source: Arc::clone(sources.entry(source).or_default()) }
    }

    /// Fails if a request with that API key, and so many bytes, may not start now. `places` says where it goes.
    pub(crate) fn check(
        &self,
        guest: &Guest,
        api_key: Option<i16>,
        request_bytes: usize,
        places: impl FnOnce() -> Places,
    ) -> Result<(), NotNow> {
        if api_key != Some(ApiKey::Produce as i16) {
            return Ok(());
        }
        // Before the look: what makes room after it is noticed.
        let openings = self.openings.load(Ordering::Acquire);
        let load = (self.look)();
        let term = self.terms.lock().look(load);
        let ask = Ask {
            request_bytes: request_bytes as u64,
            of_connection: guest.own.lock().held_bytes(term, load),
            of_source: guest.source.lock().held_bytes(term, load),
        };
        if passes(load, ask, places) { Ok(()) } else { Err(NotNow { openings }) }
    }

    /// A request with that API key has passed.
    pub(crate) fn note_passed(&self, guest: &Guest, api_key: Option<i16>, request_bytes: usize) {
        if api_key == Some(ApiKey::Produce as i16) {
            let term = self.terms.lock().look((self.look)());
            guest.own.lock().add(term, request_bytes as u64);
            guest.source.lock().add(term, request_bytes as u64);
        }
    }

    /// Waits until there is more room than when a request could not pass.
    pub(crate) async fn has_changed(&self, since: NotNow) {
        let _counted = Counted::new(&self.waiting);
        // GATE: looked at.
        wait_until(&self.room, || self.openings.load(Ordering::Acquire) != since.openings).await;
    }

    /// Connections whose next request waits.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Makes all waiting requests ask again.
    pub(crate) fn room_was_made(&self) {
        // GATE: published.
        self.openings.fetch_add(1, Ordering::AcqRel);
        self.room.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const PRODUCE: Option<i16> = Some(ApiKey::Produce as i16);
    const MAX: u64 = 128 << 10;

    fn gate() -> (Arc<AtomicU64>, Arc<ProduceGate>) {
        let used = Arc::new(AtomicU64::new(MAX));
        let looked_at = Arc::clone(&used);
        let look = move || {
            let used_bytes = looked_at.load(Ordering::SeqCst);
            Load { used_bytes, held_bytes: used_bytes, bytes_max: MAX, removed_bytes: 0 }
        };
        (used, Arc::new(ProduceGate::new(look)))
    }

    #[tokio::test]
    async fn all_who_wait_ask_again_when_there_is_room_and_not_before() {
        let (used, gate) = gate();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let gate = Arc::clone(&gate);
                tokio::spawn(async move {
                    let guest = gate.guest(Source::SOME);
                    while let Err(not_now) = gate.check(&guest, PRODUCE, 1, Places::default) {
                        gate.has_changed(not_now).await;
                    }
                })
            })
            .collect();
        while gate.waiting() < 3 {
            tokio::task::yield_now().await;
        }
        let guest = gate.guest(Source::SOME);
        let not_now = gate.check(&guest, PRODUCE, 1, Places::default).expect_err("it is full");
        assert!(timeout(Duration::from_millis(5), gate.has_changed(not_now)).await.is_err());
        used.store(0, Ordering::SeqCst);
        gate.room_was_made();
        for waiting in waiting {
            timeout(Duration::from_secs(5), waiting).await.expect("woken").expect("ends");
        }
        timeout(Duration::from_secs(5), gate.has_changed(not_now)).await.expect("room was made since");
        assert_eq!(gate.waiting(), 0);
    }

    #[test]
    fn only_requests_with_records_are_held() {
        let (_, gate) = gate();
        let guest = gate.guest(Source::SOME);
        for (api_key, is_held) in [(PRODUCE, true), (Some(ApiKey::Fetch as i16), false), (None, false)] {
            assert_eq!(gate.check(&guest, api_key, 1, Places::default).is_err(), is_held, "{api_key:?}");
        }
    }

    #[test]
    fn sent_bytes_of_one_source_hold_up_no_other() {
        let (used, gate) = gate();
        let (greedy, modest) = (gate.guest(Source::SOME), gate.guest(Source::of([192, 0, 2, 1].into())));
        gate.note_passed(&greedy, PRODUCE, 100 << 10);
        gate.note_passed(&greedy, Some(ApiKey::Fetch as i16), 1 << 30);
        used.store(112 << 10, Ordering::SeqCst);
        assert!(gate.check(&greedy, PRODUCE, 100, Places::default).is_err());
        assert!(gate.check(&gate.guest(Source::SOME), PRODUCE, 100, Places::default).is_err());
        assert!(gate.check(&modest, PRODUCE, 100, Places::default).is_ok());
    }

    #[test]
    fn sources_that_have_gone_are_forgotten() {
        let (_, gate) = gate();
        let kept = gate.guest(Source::SOME);
        for last in 0..=u8::MAX {
            drop(gate.guest(Source::of([192, 0, 2, last].into())));
        }
        assert!(gate.sources.lock().len() < 64);
        assert!(Arc::ptr_eq(&kept.source, &gate.guest(Source::SOME).source));
    }
}
