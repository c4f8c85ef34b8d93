//! When a connection's task lets the others of its thread go first.
//!
//! Thousands of requests may arrive at once, and a large frame comes as fast as a client sends it. Neither makes the
//! connection's task wait by itself, so it is to leave its thread after about a millisecond. The clock is looked at after each
//! request but Produce: the time for that goes with its bytes, and for few bytes it is less than the look.

use std::time::Duration;

use tokio::time::Instant;

/// How long a task works on the requests that it has read before others come to their turn.
pub(crate) const TURN_TIME_MAX: Duration = Duration::from_millis(1);
/// Bytes of Produce requests after which the clock is looked at: to check so many takes a tenth of a millisecond.
const LOOK_BYTES: usize = 64 * 1024;
/// Bytes that a request counts for beside its own: sixteen of the smallest make a look.
const REQUEST_BYTES: usize = 4 * 1024;
/// Bytes of a large frame that are read before others come to their turn: with the pages that are taken for them about half
/// of the time.
const TURN_READ_BYTES: usize = 512 * 1024;

/// Invariants: `worked_bytes` counts the bytes worked on since the clock was looked at, `read_bytes` those read of large frames
/// since the task left its thread for it.
#[derive(Debug)]
pub(crate) struct Pace {
    worked_bytes: usize,
    read_bytes: usize,
    left_at: Instant,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self { worked_bytes: 0, read_bytes: 0, left_at: Instant::now() }
    }

    /// A Produce request of so many bytes was started, out of what was read at `read_at`; answers whether the turn is over.
    pub(crate) fn produced(&mut self, bytes: usize, read_at: Instant) -> bool {
        self.worked_bytes = self.worked_bytes.saturating_add(REQUEST_BYTES).saturating_add(bytes);
        self.worked_bytes >= LOOK_BYTES && self.started(read_at)
    }

    /// Any other request was started, out of what was read at `read_at`; answers whether the turn is over.
    pub(crate) fn started(&mut self, read_at: Instant) -> bool {
        self.worked_bytes = 0;
        let now = Instant::now();
        let is_over = now.duration_since(read_at.max(self.left_at)) >= TURN_TIME_MAX;
        if is_over {
            self.left_at = now;
        }
        is_over
    }

    /// So many bytes of a large frame were read; answers whether the turn is over.
    pub(crate) fn read(&mut self, bytes: usize) -> bool {
        self.read_bytes = self.read_bytes.saturating_add(bytes);
        let is_over = self.read_bytes >= TURN_READ_BYTES;
        if is_over {
            self.read_bytes = 0;
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_turn_is_over_once_what_was_read_took_its_time() {
        let mut pace = Pace::new();
        let read_at = Instant::now();
        assert!((0..1000).all(|_| !pace.produced(10, read_at)), "no time has passed");
        advance(TURN_TIME_MAX).await;
        let first = (0..1000).position(|_| pace.produced(10, read_at));
        assert!(first.is_some_and(|count| count < LOOK_BYTES / REQUEST_BYTES), "{first:?}");
        assert!((0..1000).all(|_| !pace.produced(10, read_at)), "the next turn has begun");
        advance(TURN_TIME_MAX).await;
        assert!(!pace.produced(LOOK_BYTES, Instant::now()), "it was read a moment ago");
        assert!(pace.started(read_at), "what is no Produce is looked at each time");
        assert!(!pace.started(read_at), "the next turn has begun");
    }

    #[test]
    fn a_turn_is_over_after_a_part_of_a_large_frame() {
        let mut pace = Pace::new();
        let ends: Vec<bool> = (0..6).map(|_| pace.read(TURN_READ_BYTES / 2)).collect();
        assert_eq!(ends, [false, true, false, true, false, true]);
    }
}
