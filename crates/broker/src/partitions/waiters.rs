//! Fetches that wait for a partition to advance.
//!
//! The thread that makes a partition advance must not pay for the whole crowd that waits there. It wakes a few fetches, and
//! of each source that has more a few of these, one where the sources are many. The others of a source are woken by its own
//! fetches: each wakes two when its turn comes or it is given up. So the crowd of a source is woken as fast as that source
//! gets on, and fetches of other sources do not wait for it. Where connections have to wait for their turn, those of the
//! crowd come after others ([`wake_crowd`]).

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::flow::source::Source;
use crate::flow::turns::wake_crowd;

/// Fetches of any source that the thread which makes the partition advance wakes: a few microseconds.
const FIRST_MAX: usize = 32;
/// Fetches of all other sources that it wakes beside these, unless there are more sources: then one of each.
const OTHERS_MAX: usize = 64;
/// Fetches of each source at most, of these.
const OF_SOURCE_MAX: usize = 4;
/// Fetches that a woken fetch wakes in turn.
const WOKEN_BY_EACH: usize = 2;
/// Entries that are looked at when one is added: more than one, so that entries of fetches that are gone do not add up.
const LOOKED_AT: usize = 2;
/// Entries of fetches that are gone which are taken out in one go.
const TRIMMED_MAX: usize = 64;

/// One waiting fetch; it may be enrolled at many partitions, at each of them once.
#[derive(Debug)]
pub(crate) struct Waiter {
    source: Source,
    woken: Notify,
    /// The fetches that it is to wake, of each partition that has woken it.
    others: Mutex<Vec<Arc<Others>>>,
}

/// Fetches of one source that are still to be woken.
type Others = Mutex<Vec<Weak<Waiter>>>;

impl Waiter {
    pub(crate) fn new(source: Source) -> Arc<Self> {
        Arc::new(Self { source, woken: Notify::new(), others: Mutex::default() })
    }

    /// Waits until a partition has advanced since it was enrolled, and wakes some others then.
    pub(crate) async fn woken(&self) {
        self.woken.notified().await;
        self.wake_others();
    }

    fn notify(&self) {
        wake_crowd(|| self.woken.notify_one());
    }

    fn wake_others(&self) {
        for others in std::mem::take(&mut *self.others.lock()) {
            (0..WOKEN_BY_EACH).for_each(|_| wake_next(&others));
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.wake_others();
    }
}

/// Wakes the next of `others`, if there is one, and has it wake more of them.
fn wake_next(others: &Arc<Others>) {
    let next = || others.lock().pop();
    while let Some(waiter) = next() {
        if let Some(waiter) = waiter.upgrade() {
            waiter.others.lock().push(Arc::clone(others));
            waiter.notify();
            return;
        }
    }
}

/// Entries of fetches, of which some may be gone.
#[derive(Debug, Default)]
struct Entries {
    waiters: Vec<Weak<Waiter>>,
    looked_at: usize,
}

impl Entries {
    /// Looks at the next few entries and takes out those of fetches that are gone.
    fn look(&mut self) {
        for _ in 0..LOOKED_AT {
            let Some(waiter) = self.waiters.get(self.looked_at) else {
                self.looked_at = 0;
                continue;
            };
            if waiter.strong_count() > 0 {
                self.looked_at += 1;
            } else {
                self.waiters.swap_remove(self.looked_at);
            }
        }
    }

    /// Takes out the last entries if their fetches are gone; answers whether others are left.
    fn trim(&mut self) -> bool {
        let is_gone = |waiter: &Weak<Waiter>| waiter.strong_count() == 0;
        let gone = self.waiters.iter().rev().take(TRIMMED_MAX).take_while(|waiter| is_gone(waiter)).count();
        self.waiters.truncate(self.waiters.len() - gone);
        !self.waiters.is_empty()
    }
}

/// Invariants: `first` has [`FIRST_MAX`] at most, and each source in the crowd has entries.
#[derive(Debug, Default)]
struct Enrolled {
    first: Entries,
    crowd: HashMap<Source, Entries>,
}

/// The waiting fetches of one partition.
///
/// Invariants: entries of fetches that are gone are about as many as the live ones at most, so that an idle partition with a
/// polling consumer does not grow.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    enrolled: Mutex<Enrolled>,
}

impl Waiters {
    pub(crate) fn enroll(&self, waiter: &Arc<Waiter>) {
        let mut enrolled = self.enrolled.lock();
        let Enrolled { first, crowd } = &mut *enrolled;
        first.look();
        if first.waiters.len() < FIRST_MAX {
            return first.waiters.push(Arc::downgrade(waiter));
        }
        let of_source = crowd.entry(waiter.source).or_default();
        of_source.look();
        of_source.waiters.push(Arc::downgrade(waiter));
    }

    /// Wakes all and forgets them: a fetch that still waits enrolls again for its next look.
    pub(crate) fn wake(&self) {
        let mut enrolled = self.enrolled.lock();
        for waiter in enrolled.first.waiters.drain(..) {
            if let Some(waiter) = waiter.upgrade() {
                waiter.notify();
            }
        }
        if enrolled.crowd.is_empty() {
            return;
        }
        let crowd = std::mem::take(&mut enrolled.crowd);
        drop(enrolled);
        let of_each = (OTHERS_MAX / crowd.len()).clamp(1, OF_SOURCE_MAX);
        for Entries { waiters, .. } in crowd.into_values() {
            let others = Arc::new(Mutex::new(waiters));
            (0..of_each).for_each(|_| wake_next(&others));
        }
    }

    /// Whether a live fetch waits, by a short look: it may be one that has gone a moment ago.
    pub(crate) fn any(&self) -> bool {
        let mut enrolled = self.enrolled.lock();
        let Enrolled { first, crowd } = &mut *enrolled;
        crowd.retain(|_, of_source| of_source.trim());
        first.trim() || !crowd.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use futures_util::FutureExt as _;

    use super::*;

    fn waiter(last: u8) -> Arc<Waiter> {
        Waiter::new(Source::of(IpAddr::from([192, 0, 2, last])))
    }

    fn crowd(waiters: &Waiters, last: u8, count: usize) -> Vec<Arc<Waiter>> {
        let all: Vec<_> = (0..count).map(|_| waiter(last)).collect();
        for waiter in &all {
            waiters.enroll(waiter);
        }
        all
    }

    /// Takes out the woken ones, and has them wake others.
    fn take_woken(crowd: &mut Vec<Arc<Waiter>>) -> usize {
        let before = crowd.len();
        let woken: Vec<_> = crowd.iter().map(|waiter| waiter.woken().now_or_never().is_some()).collect();
        let mut woken = woken.into_iter();
        crowd.retain(|_| !woken.next().expect("one for each"));
        before - crowd.len()
    }

    fn entries(waiters: &Waiters) -> usize {
        let enrolled = waiters.enrolled.lock();
        enrolled.first.waiters.len()
            + enrolled.crowd.values().map(|of_source| of_source.waiters.len()).sum::<usize>()
    }

    #[tokio::test]
    async fn a_wake_up_between_enrolling_and_waiting_is_not_lost() {
        let waiters = Waiters::default();
        let waiter = waiter(1);
        waiters.enroll(&waiter);
        waiters.wake();
        tokio::time::timeout(std::time::Duration::from_secs(5), waiter.woken()).await.expect("kept");
        assert!(!waiters.any());
    }

    #[test]
    fn few_of_each_source_are_woken_and_wake_the_others() {
        let waiters = Waiters::default();
        let mut first = crowd(&waiters, 1, FIRST_MAX);
        let (mut many, mut few) = (crowd(&waiters, 1, 10_000), crowd(&waiters, 2, 3));
        waiters.wake();
        let woken =
            |crowd: &[Arc<Waiter>]| crowd.iter().filter(|waiter| !waiter.others.lock().is_empty()).count();
        assert_eq!((woken(&many), woken(&few)), (OF_SOURCE_MAX, 3));
        assert_eq!((take_woken(&mut first), take_woken(&mut few)), (FIRST_MAX, 3));
        assert_eq!(woken(&many), OF_SOURCE_MAX, "nobody else wakes them");
        let rounds = (0..10_000).position(|_| {
            take_woken(&mut many);
            many.is_empty()
        });
        assert!(rounds.is_some(), "{} still wait", many.len());
    }

    #[test]
    fn one_of_each_is_woken_at_once_where_the_sources_are_many() {
        let waiters = Waiters::default();
        let _first = crowd(&waiters, 255, FIRST_MAX);
        let crowds: Vec<_> = (0..200).map(|last| crowd(&waiters, last, 10)).collect();
        waiters.wake();
        let woken =
            |crowd: &Vec<Arc<Waiter>>| crowd.iter().filter(|waiter| !waiter.others.lock().is_empty()).count();
        assert!(crowds.iter().all(|crowd| woken(crowd) == 1));
    }

    #[test]
    fn woken_fetch_that_is_given_up_wakes_the_others() {
        let waiters = Waiters::default();
        let _first = crowd(&waiters, 1, FIRST_MAX);
        let mut many = crowd(&waiters, 1, 1000);
        let last = many.swap_remove(0);
        waiters.wake();
        while !many.is_empty() {
            let is_woken = |waiter: &Arc<Waiter>| !waiter.others.lock().is_empty();
            let place = many.iter().position(is_woken);
            drop(many.swap_remove(place.expect("one is woken as long as some wait")));
        }
        assert!(last.woken().now_or_never().is_some());
    }

    #[test]
    fn fetches_that_come_and_go_do_not_pile_up() {
        let waiters = Waiters::default();
        for _ in 0..10_000 {
            waiters.enroll(&waiter(1));
        }
        assert!(entries(&waiters) < 16);
        let first = crowd(&waiters, 1, FIRST_MAX);
        for _ in 0..10_000 {
            waiters.enroll(&waiter(1));
        }
        assert!(entries(&waiters) < 2 * FIRST_MAX);
        drop((crowd(&waiters, 2, TRIMMED_MAX), first));
        assert!(!waiters.any());
        assert_eq!(entries(&waiters), 0);
    }
}
