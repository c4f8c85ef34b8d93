//! Where a connection's compressed requests are worked on: on the network's thread, which serves others meanwhile only if
//! it is let go, or aside.
//!
//! To check compressed records they are inflated, and for a topic with another codec they are compressed again. A few
//! bytes may inflate to a thousand times as many, so what a request costs is known afterwards only: one that is large, or
//! whose connection had costly ones before it, is worked on aside. As many are at once as there are cores.

use std::num::NonZero;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::wait::Counted;

/// Compressed bytes of a request above which it is worked on aside: with gzip they may inflate to 16 MiB, with zstd to
/// more, which takes longer than others should wait.
const HERE_BYTES_MAX: usize = 16 * 1024;
/// Time that a request may take without those after it being worked on aside.
const HERE_TIME_MAX: Duration = Duration::from_millis(1);
/// Compressed requests of a connection that are worked on aside after a costly one.
const ASIDE_FOR: u32 = 64;
/// Time of compressed requests after which a connection lets others go first.
const TURN_TIME: Duration = Duration::from_micros(500);

/// The leave to work on a request aside; shared by all connections.
#[derive(Debug)]
pub(crate) struct InflatingLeave {
    cores: usize,
    free: Semaphore,
    /// How many wait for it.
    waiting: AtomicUsize,
}

impl InflatingLeave {
    /// One for each core.
    pub(crate) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self { cores, free: Semaphore::new(cores), waiting: AtomicUsize::new(0) }
    }

    /// The leave, if it is free; it holds until it is dropped.
    pub(super) fn try_get(&self) -> Option<SemaphorePermit<'_>> {
        self.free.try_acquire().ok()
    }

    /// Waits for the leave; it holds until it is dropped.
    pub(super) async fn get(&self) -> Option<SemaphorePermit<'_>> {
        let _counted = Counted::new(&self.waiting);
        // It is never closed.
        self.free.acquire().await.ok()
    }

    /// How many have it now, and how many wait for it.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.cores - self.free.available_permits(), self.waiting.load(Relaxed))
    }
}

/// What one connection's compressed requests have cost.
///
/// Invariants: `aside` is how many requests more are worked on aside whatever their size.
#[derive(Debug)]
pub(super) struct Inflating {
    aside: u32,
    turn: Duration,
}

impl Inflating {
    /// Nothing is known of a new connection, so its first one is worked on aside.
    pub(super) fn new() -> Self {
        Self { aside: 1, turn: Duration::ZERO }
    }

    /// Whether a request with so many bytes of compressed records is worked on aside.
    pub(super) fn is_for_aside(&self, compressed_bytes: usize) -> bool {
        compressed_bytes > HERE_BYTES_MAX || (compressed_bytes > 0 && self.aside > 0)
    }

    /// A request with compressed records took so long, aside.
    pub(super) fn took_aside(&mut self, time: Duration) {
        self.aside = if time > HERE_TIME_MAX { ASIDE_FOR } else { self.aside.saturating_sub(1) };
    }

    /// A request with compressed records took so long, here; answers whether others go first now.
    pub(super) fn took_here(&mut self, time: Duration) -> bool {
        if time > HERE_TIME_MAX {
            self.aside = ASIDE_FOR;
        }
        self.turn += time;
        let is_over = self.turn > TURN_TIME;
        if is_over {
            self.turn = Duration::ZERO;
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn as_many_as_there_are_cores_inflate_at_once_and_who_waits_is_counted() {
        let leave = InflatingLeave::new();
        let mut held = Vec::new();
        for _ in 0..leave.cores {
            held.push(leave.get().await);
        }
        assert_eq!(leave.counts(), (leave.cores, 0));
        {
            let mut waiting = pin!(leave.get());
            assert!(timeout(Duration::from_millis(5), &mut waiting).await.is_err());
            assert_eq!(leave.counts(), (leave.cores, 1));
            assert!(leave.try_get().is_none());
        }
        assert_eq!(leave.counts(), (leave.cores, 0), "it has gone");
        drop(held);
        assert_eq!(leave.counts(), (0, 0));
        assert!(leave.try_get().is_some());
    }

    const SHORT: Duration = Duration::from_micros(100);
    const LONG: Duration = Duration::from_millis(20);

    #[test]
    fn small_requests_stay_here_once_the_first_one_was_cheap() {
        let mut inflating = Inflating::new();
        assert!(!inflating.is_for_aside(0), "nothing to inflate");
        assert!(inflating.is_for_aside(100), "nothing is known yet");
        inflating.took_aside(SHORT);
        assert!(!inflating.is_for_aside(HERE_BYTES_MAX) && inflating.is_for_aside(HERE_BYTES_MAX + 1));
    }

    #[test]
    fn after_a_costly_request_the_next_ones_are_for_aside_and_after_cheap_ones_no_more() {
        let mut inflating = Inflating::new();
        inflating.took_aside(SHORT);
        inflating.took_here(LONG);
        for _ in 0..ASIDE_FOR {
            assert!(inflating.is_for_aside(100) && !inflating.is_for_aside(0));
            inflating.took_aside(SHORT);
        }
        assert!(!inflating.is_for_aside(100));
        inflating.took_aside(LONG);
        assert!(inflating.is_for_aside(100));
    }

    #[test]
    fn many_small_requests_let_others_go_first_now_and_then() {
        let mut inflating = Inflating::new();
        let turns = (0..60).filter(|_| inflating.took_here(SHORT)).count();
        assert_eq!(turns, 10);
    }
}
