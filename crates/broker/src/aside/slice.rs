//! Slices of time: work that gives way once it has run for a while.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::task::yield_now;

/// How long work goes on before others come to their turn.
const SLICE: Duration = Duration::from_millis(1);

thread_local! {
    /// When the work that runs on this thread came to its turn; none where no work in slices runs.
    static BEGUN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Work whose turns are measured.
pub(super) struct Sliced<F>(Pin<Box<F>>);

impl<F> Sliced<F> {
    pub(super) fn new(work: F) -> Self {
        Self(Box::pin(work))
    }
}

/// Ends a turn, also where the work panics.
struct TurnEnds;

impl Drop for TurnEnds {
    fn drop(&mut self) {
        BEGUN.set(None);
    }
}

impl<F: Future> Future for Sliced<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        BEGUN.set(Some(Instant::now()));
        let _ends = TurnEnds;
        self.0.as_mut().poll(context)
    }
}

/// Lets other work go on if this has had its slice. Elsewhere than aside there is nothing to do.
pub(crate) async fn give_way() {
    if BEGUN.get().is_some_and(|begun| begun.elapsed() >= SLICE) {
        // Threads that were woken meanwhile and have more weight come first. A kernel that preempts lazily would let them
        // wait for its next tick, which is some milliseconds.
        std::thread::yield_now();
        yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn work_gives_way_once_its_slice_is_over_and_not_before() {
        let work = async {
            give_way().await;
            std::thread::sleep(SLICE);
            give_way().await;
        };
        let mut work = pin!(Sliced::new(work));
        assert_eq!(work.as_mut().now_or_never(), None, "it has had its slice");
        assert_eq!(work.now_or_never(), Some(()));
    }

    #[test]
    fn work_outside_of_aside_never_gives_way() {
        std::thread::sleep(SLICE);
        assert_eq!(give_way().now_or_never(), Some(()));
    }
}
