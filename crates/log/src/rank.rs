//! Locks with a rank. A thread that holds a lock takes only locks of higher ranks, so no circle of waiting threads can arise.
//!
//! Owns the order of the locks of a log dir and its partitions, and the check of it, which builds with debug assertions
//! make at each lock that is waited for: all tests do. Other builds pay nothing. An attempt that does not wait
//! (`try_lock`) may come in any order; a lock that it has taken counts as held.
//!
//! Locks that are not of these types are leaves by inspection: the data behind them is read or changed without another
//! lock.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A place in the order.
pub(crate) trait Rank {
    /// Higher ranks are taken later.
    #[cfg(debug_assertions)]
    const NUMBER: u8;
    #[cfg(debug_assertions)]
    const NAME: &'static str;
}

macro_rules! ranks {
    ($($(#[$doc:meta])* $rank:ident;)*) => {
        #[cfg(debug_assertions)]
        #[derive(Clone, Copy)]
        enum Order {
            $($rank,)*
        }

        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub(crate) struct $rank;

            impl Rank for $rank {
                #[cfg(debug_assertions)]
                const NUMBER: u8 = Order::$rank as u8;
                #[cfg(debug_assertions)]
                const NAME: &'static str = stringify!($rank);
            }
        )*

        /// The name of each rank, by its number.
        #[cfg(debug_assertions)]
        const NAMES: &[&str] = &[$($rank::NAME),*];
    };
}

ranks! {
    /// The store closes logs to make room for others.
    MakingRoom;
    /// A log dir is settled and gives journals back the entries that it needs no longer. Those of several dirs are
    /// taken in the dirs' order.
    Cycle;
    /// Tails of a log dir are settled.
    Settling;
    /// A checkpoint of a log dir is made.
    Checkpointing;
    /// A partition's log is opened, cut, closed or ended.
    Opening;
    /// Entries are put aside for a log dir, or are released.
    Asides;
    /// Segments of an open log are removed or replaced.
    Reshaping;
    /// An open log's segments are written.
    Writer;
    /// The disk is told to begin with the settled bytes of a log dir.
    WriteBacks;
    /// A partition's log is open, closed, offline or deleted.
    State;
    /// An open log takes records.
    Appender;
    /// A log dir's file of changes is written.
    LogStarts;
    /// The state of a log dir's next checkpoint is read or changed.
    Memory;
    /// The readers' part of an open log is read or changed.
    Shown;
    /// Other parts of an open log, of which a thread holds one at a time.
    Part;
}

/// A mutex with a rank.
pub(crate) struct Ranked<R, T> {
    lock: Mutex<T>,
    rank: PhantomData<R>,
}

impl<R: Rank, T> Ranked<R, T> {
    pub(crate) fn new(value: T) -> Self {
        Self { lock: Mutex::new(value), rank: PhantomData }
    }

    /// Waits for the lock.
    pub(crate) fn lock(&self) -> RankedGuard<'_, T> {
        let held = Held::in_order::<R>();
        Guard { inner: self.lock.lock(), _held: held }
    }

    /// Waits for the lock although others of its rank may be held, in an order that the caller keeps.
    pub(crate) fn lock_beside(&self) -> RankedGuard<'_, T> {
        let held = Held::beside::<R>();
        Guard { inner: self.lock.lock(), _held: held }
    }

    /// Waits for the lock of an object that no other thread uses yet: its holder does not wait for this thread's locks.
    pub(crate) fn lock_unshared(&self) -> RankedGuard<'_, T> {
        Guard { inner: self.lock.lock(), _held: Held::unchecked::<R>() }
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_lock(&self) -> Option<RankedGuard<'_, T>> {
        Some(Guard { inner: self.lock.try_lock()?, _held: Held::unchecked::<R>() })
    }

    /// Whether the lock is held.
    pub(crate) fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }
}

/// A lock with a rank that many readers share.
pub(crate) struct RankedRw<R, T> {
    lock: RwLock<T>,
    rank: PhantomData<R>,
}

impl<R: Rank, T> RankedRw<R, T> {
    pub(crate) fn new(value: T) -> Self {
        Self { lock: RwLock::new(value), rank: PhantomData }
    }

    /// Waits for a share of the lock.
    pub(crate) fn read(&self) -> Guard<RwLockReadGuard<'_, T>> {
        let held = Held::in_order::<R>();
        Guard { inner: self.lock.read(), _held: held }
    }

    /// Waits for the lock.
    pub(crate) fn write(&self) -> Guard<RwLockWriteGuard<'_, T>> {
        let held = Held::in_order::<R>();
        Guard { inner: self.lock.write(), _held: held }
    }

    /// Takes a share of the lock if no thread has it alone.
    pub(crate) fn try_read(&self) -> Option<Guard<RwLockReadGuard<'_, T>>> {
        Some(Guard { inner: self.lock.try_read()?, _held: Held::unchecked::<R>() })
    }

    /// Takes a share of the lock within this time.
    pub(crate) fn try_read_for(&self, time: Duration) -> Option<Guard<RwLockReadGuard<'_, T>>> {
        Some(Guard { inner: self.lock.try_read_for(time)?, _held: Held::unchecked::<R>() })
    }

    /// Takes the lock if no thread has any of it.
    pub(crate) fn try_write(&self) -> Option<Guard<RwLockWriteGuard<'_, T>>> {
        Some(Guard { inner: self.lock.try_write()?, _held: Held::unchecked::<R>() })
    }
}

impl<R: Rank, T: Default> Default for Ranked<R, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<R: Rank, T: Default> Default for RankedRw<R, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<R, T: fmt::Debug> fmt::Debug for Ranked<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock.fmt(f)
    }
}

impl<R, T: fmt::Debug> fmt::Debug for RankedRw<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock.fmt(f)
    }
}

/// Holds a lock with a rank.
pub(crate) struct Guard<G> {
    inner: G,
    _held: Held,
}

/// Holds a [`Ranked`].
pub(crate) type RankedGuard<'a, T> = Guard<MutexGuard<'a, T>>;

impl<T> RankedGuard<'_, T> {
    /// Gives the lock to the thread that waits longest, instead of the one that comes first.
    pub(crate) fn unlock_fair(self) {
        MutexGuard::unlock_fair(self.inner);
    }
}

impl<G: Deref> Deref for Guard<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.inner
    }
}

impl<G: DerefMut> DerefMut for Guard<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.inner
    }
}

#[cfg(debug_assertions)]
use checked::Held;
#[cfg(not(debug_assertions))]
use unchecked::Held;

#[cfg(debug_assertions)]
mod checked {
    use std::cell::RefCell;

    use super::{NAMES, Rank};

    thread_local! {
        /// Ranks that the thread holds, in the order in which it took them.
        static RANKS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }

    /// A rank that this thread holds.
    pub(super) struct Held(u8);

    impl Held {
        pub(super) fn in_order<R: Rank>() -> Self {
            Self::check::<R>(|highest| highest < R::NUMBER);
            Self::unchecked::<R>()
        }

        pub(super) fn beside<R: Rank>() -> Self {
            Self::check::<R>(|highest| highest <= R::NUMBER);
            Self::unchecked::<R>()
        }

        pub(super) fn unchecked<R: Rank>() -> Self {
            RANKS.with_borrow_mut(|ranks| ranks.push(R::NUMBER));
            Self(R::NUMBER)
        }

        fn check<R: Rank>(is_before: impl Fn(u8) -> bool) {
            let highest = RANKS.with_borrow(|ranks| ranks.iter().copied().max());
            if let Some(highest) = highest {
                let name = NAMES[usize::from(highest)];
                assert!(is_before(highest), "{} is locked while {name} is held", R::NAME);
            }
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            RANKS.with_borrow_mut(|ranks| {
                if let Some(at) = ranks.iter().rposition(|rank| *rank == self.0) {
                    ranks.remove(at);
                }
            });
        }
    }
}

#[cfg(not(debug_assertions))]
mod unchecked {
    use super::Rank;

    /// Nothing: held locks are not tracked.
    pub(super) struct Held;

    impl Held {
        pub(super) fn in_order<R: Rank>() -> Self {
            Self
        }

        pub(super) fn beside<R: Rank>() -> Self {
            Self
        }

        pub(super) fn unchecked<R: Rank>() -> Self {
            Self
        }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::{Appender, Cycle, Ranked, RankedRw, State, Writer};

    #[test]
    fn locks_are_taken_in_the_order_of_their_ranks() {
        let (writer, state) = (Ranked::<Writer, ()>::new(()), RankedRw::<State, ()>::new(()));
        let held = (writer.lock(), state.read());
        drop(held);
        drop(state.write());
        drop(writer.lock());
    }

    #[test]
    #[should_panic(expected = "Writer is locked while State is held")]
    fn a_lower_rank_is_refused_under_a_higher_one() {
        let (writer, state) = (Ranked::<Writer, ()>::new(()), RankedRw::<State, ()>::new(()));
        let _state = state.read();
        let _writer = writer.lock();
    }

    #[test]
    #[should_panic(expected = "Appender is locked while Appender is held")]
    fn two_locks_of_a_rank_are_refused() {
        let (first, second) = (Ranked::<Appender, ()>::new(()), Ranked::<Appender, ()>::new(()));
        let _first = first.lock();
        let _second = second.lock();
    }

    #[test]
    fn try_lock_may_come_in_any_order_and_counts_as_held() {
        let (writer, appender) = (Ranked::<Writer, ()>::new(()), Ranked::<Appender, ()>::new(()));
        let held = appender.lock();
        let tried = writer.try_lock();
        assert!(tried.is_some());
        drop(held);
        let later = Ranked::<Cycle, ()>::new(());
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(later.lock())));
        assert!(refused.is_err(), "the writer is held");
        drop(tried);
        drop((later.lock(), Ranked::<Cycle, ()>::new(()).lock_beside()));
    }
}
