//! The turn of a request that is worked on aside: it has one while there is something to do, and none while it waits.
//!
//! Owns where the turn is kept, so that whatever waits deep within a handler gives it back ([`waiting`]) and comes to its turn
//! again behind the others of its source. A request has a turn of the first kind until it waits, and of the second kind from
//! then on: it may hold memory that requests with a turn of the first kind wait for, so it never waits for such a turn.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::task_local;

use super::turns::{Turn, Turns};
use crate::flow::source::Source;

task_local! {
    static OWN_TURN: RefCell<OwnTurn>;
}

/// The turn of one request aside, given back while the request waits for something.
///
/// Invariants: `turn` is none while `waits`, which counts what its parts wait for, is not 0. At most one of its parts is
/// in line for the next turn (`is_in_line`), or it would wait for the turn that it has itself.
struct OwnTurn {
    turn: Option<Turn>,
    waits: usize,
    is_in_line: bool,
    again: Arc<Turns>,
    source: Source,
}

/// Has `work` done with this turn, and with others of `again` after it has waited.
pub(super) async fn holding<T>(
    turn: Turn,
    source: Source,
    again: Arc<Turns>,
    work: impl Future<Output = T>,
) -> T {
    let own = OwnTurn { turn: Some(turn), waits: 0, is_in_line: false, again, source };
    OWN_TURN.scope(RefCell::new(own), work).await
}

/// Waits for something that others do, without a turn. Elsewhere than aside there is none to give back.
pub(crate) async fn waiting<T>(what: impl Future<Output = T>) -> T {
    let mut what = pin!(what);
    let at_once = poll_fn(|context| Poll::Ready(what.as_mut().poll(context)));
    if let Poll::Ready(come) = at_once.await {
        return come;
    }
    let Some(wait) = Wait::begin() else { return what.await };
    let come = what.await;
    wait.end().await;
    come
}

/// One part of a request waits; ends when it is dropped.
struct Wait;

impl Wait {
    fn begin() -> Option<Self> {
        let given_back = OWN_TURN.try_with(|own| {
            let mut own = own.borrow_mut();
            own.waits += 1;
            own.turn.take()
        });
        given_back.ok().map(|_| Self)
    }

    /// Comes to the next turn, unless another part waits or is in line.
    async fn end(self) {
        drop(self);
        let Some(place) = Place::join() else { return };
        let turn = Arc::clone(&place.again).take(place.source).await;
        drop(place);
        OWN_TURN.with(|own| {
            let mut own = own.borrow_mut();
            if own.waits == 0 {
                own.turn = Some(turn);
            }
        });
    }
}

/// A request's place in the line for its next turn; left when it is dropped.
struct Place {
    again: Arc<Turns>,
    source: Source,
}

impl Place {
    fn join() -> Option<Self> {
        OWN_TURN.with(|own| {
            let mut own = own.borrow_mut();
            if own.waits > 0 || own.turn.is_some() || std::mem::replace(&mut own.is_in_line, true) {
                return None;
            }
            Some(Self { again: Arc::clone(&own.again), source: own.source })
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let left = OWN_TURN.try_with(|own| own.borrow_mut().is_in_line = false);
        debug_assert!(left.is_ok(), "a place is left in the request that took it");
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let ended = OWN_TURN.try_with(|own| own.borrow_mut().waits -= 1);
        debug_assert!(ended.is_ok(), "a wait ends in the request that it began in");
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use futures_util::future::join;
    use tokio::sync::oneshot;

    use super::*;

    const ONE: Source = Source::SOME;

    fn has_turn() -> bool {
        OWN_TURN.with(|own| own.borrow().turn.is_some())
    }

    #[test]
    fn a_request_that_waits_has_no_turn_and_comes_to_one_again() {
        let (first, again) = (Turns::new(1, 1), Turns::new(1, 1));
        let turn = first.take(ONE).now_or_never().expect("free");
        let (tell, told) = oneshot::channel();
        let mut work = Box::pin(holding(turn, ONE, Arc::clone(&again), async {
            waiting(async {}).await;
            assert!(has_turn(), "it did not wait");
            waiting(told).await.expect("told");
            assert!(has_turn());
        }));
        assert!((&mut work).now_or_never().is_none());
        assert!(first.take(ONE).now_or_never().is_some(), "its turn is free");
        let others = again.take(ONE).now_or_never();
        assert!(others.is_some());
        tell.send(()).expect("it waits");
        assert!((&mut work).now_or_never().is_none(), "it is another's turn");
        drop(others);
        assert!((&mut work).now_or_never().is_some());
        assert!(again.take(ONE).now_or_never().is_some());
    }

    #[test]
    fn a_request_has_no_turn_while_one_of_its_parts_waits() {
        let (first, again) = (Turns::new(1, 1), Turns::new(1, 1));
        let turn = first.take(ONE).now_or_never().expect("free");
        let ((tell_one, one), (tell_other, other)) = (oneshot::channel::<()>(), oneshot::channel::<()>());
        let mut work = Box::pin(holding(turn, ONE, Arc::clone(&again), async {
            drop(join(waiting(one), waiting(other)).await);
            assert!(has_turn());
        }));
        assert!((&mut work).now_or_never().is_none());
        drop(tell_one);
        assert!((&mut work).now_or_never().is_none());
        assert!(again.take(ONE).now_or_never().is_some(), "the other part waits");
        drop(tell_other);
        assert!((&mut work).now_or_never().is_some());
    }

    #[test]
    fn work_outside_of_aside_waits_all_the_same() {
        let (tell, told) = oneshot::channel();
        let mut wait = Box::pin(waiting(told));
        assert!((&mut wait).now_or_never().is_none());
        tell.send(1).expect("it waits");
        assert_eq!(wait.now_or_never(), Some(Ok(1)));
    }

    #[test]
    fn a_wait_that_is_given_up_counts_no_more() {
        let (first, again) = (Turns::new(1, 1), Turns::new(1, 1));
        let turn = first.take(ONE).now_or_never().expect("free");
        let (tell, told) = oneshot::channel();
        let mut work = Box::pin(holding(turn, ONE, again, async {
            let mut given_up = Box::pin(waiting(std::future::pending::<()>()));
            assert!((&mut given_up).now_or_never().is_none());
            drop(given_up);
            waiting(told).await.expect("told");
            assert!(has_turn());
        }));
        assert!((&mut work).now_or_never().is_none());
        tell.send(()).expect("it waits");
        assert!((&mut work).now_or_never().is_some());
    }
}
