//! Decides which connections get their turn when they have more to do than the network's threads can.
//!
//! A wake-up of a connection's task asks for a turn: one look at all that has come for it, of about a
//! [millisecond](super::pace). A few connections whose source had little of the threads' time of late have their turn at once.
//! A few of the others have theirs at the same time. The rest waits in line outside of the runtime, which keeps the runtime's
//! queue short.
//!
//! The line orders sources by a [time](level): that at which a source came into line, or had its last turn, and more for what it
//! had of late, for how long its turns take, and if it is one of a [crowd](wake_crowd) that was woken. The next connection of
//! that source is found likewise. So a source that asks for little comes before all that ask for much, however many these are,
//! and one with many connections gets no more than another. Some turns go to the connection that has waited for longest, so
//! that none starves.
//!
//! Guarantees that a wake-up is never lost, and that a turn of a connection that goes away is given to another one.

mod level;
mod line;

use std::cell::Cell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::task::yield_now;

use self::level::Level;
use self::line::Line;
use super::pace::TURN_TIME_MAX;
use super::source::Source;

/// Turns at once, for each thread of the network: one that it works on, and one for which another thread works on records
/// meanwhile, or that is ready when the first is over.
const GIVEN_PER_THREAD: usize = 2;
/// Turns beside these, for each thread of the network, of connections whose source had little time.
const FREE_PER_THREAD: usize = 8;
/// Time of late up to which a source had little where there are very many: together they are to take no more than some of the
/// threads' time.
const FREE_TIME_MIN: Duration = Duration::from_millis(10);
/// Time of late below which a source without connections is forgotten. All of them have no more than the threads had, so no
/// more than about 1,500 for each thread are remembered.
const FORGOTTEN_TIME: Duration = Duration::from_millis(1);
/// Sources that are remembered, at the least, before those are forgotten.
const SOURCES_KEPT: usize = 256;

/// The turns of one server; shared by all connections.
///
/// Invariants: `waiting` counts the connections in `line`. None waits in line while a place of `given` is left: a connection
/// that gives one back looks at `waiting` after that, and one that joins the line looks at `given` after that. Places of
/// `free` are for connections that have not come into line, so none waits for one.
#[derive(Debug)]
pub(crate) struct Turns {
    threads: usize,
    given: Places,
    free: Places,
    waiting: AtomicUsize,
    line: Mutex<Line<Seat>>,
    sources: Mutex<Sources>,
    /// How many sources are known.
    source_count: AtomicUsize,
    began: Instant,
}

/// Invariants: each source with a connection is known.
#[derive(Debug, Default)]
struct Sources {
    shares: HashMap<Source, Arc<Share>>,
    /// So many are known before some are forgotten.
    kept: usize,
}

/// Turns of one kind. Invariants: `taken` is at most `max`.
#[derive(Debug)]
struct Places {
    max: usize,
    taken: AtomicUsize,
}

/// The time that the connections of one source had.
#[derive(Debug, Default)]
struct Share {
    level: Level,
    connections: AtomicUsize,
}

/// The states of a connection.
mod state {
    /// It has nothing to do.
    pub(crate) const IDLE: u8 = 0;
    /// It has something to do, and waits for its turn.
    pub(crate) const ASKED: u8 = 1;
    /// It has one of the turns that are counted, and waits for a thread.
    pub(crate) const GIVEN: u8 = 2;
    /// It has one of the turns for sources that had little, and waits for a thread.
    pub(crate) const FREE: u8 = 3;
    /// A thread is at it.
    pub(crate) const RUNNING: u8 = 4;
    /// The same, and it has more to do since.
    pub(crate) const WOKEN: u8 = 5;
    /// It is gone.
    pub(crate) const GONE: u8 = 6;
}

/// One connection, as the line sees it.
#[derive(Debug)]
struct Seat {
    turns: Arc<Turns>,
    source: Source,
    share: Arc<Share>,
    level: Level,
    /// Whether it was woken as one of a crowd.
    is_in_crowd: AtomicBool,
    state: AtomicU8,
    task: AtomicWaker,
}

impl Places {
    fn new(max: usize) -> Self {
        Self { max, taken: AtomicUsize::new(0) }
    }

    fn try_take(&self) -> bool {
        let more = |taken: usize| (taken < self.max).then_some(taken + 1);
        self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    fn give_back(&self) {
        self.taken.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Turns {
    /// For a network that has so many threads.
    pub(crate) fn new(threads: usize) -> Arc<Self> {
        Arc::new(Self {
            threads,
            given: Places::new(GIVEN_PER_THREAD * threads),
            free: Places::new(FREE_PER_THREAD * threads),
            waiting: AtomicUsize::new(0),
            line: Mutex::default(),
            sources: Mutex::default(),
            source_count: AtomicUsize::new(0),
            began: Instant::now(),
        })
    }

    /// How many connections wait for their turn.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// The source that had most time of late, of all that wait for their turn.
    pub(crate) fn busiest(&self) -> Option<Source> {
        let now = self.now();
        let had = |seat: &Seat| seat.share.level.had(now);
        self.line.lock().firsts().max_by_key(|seat| had(seat)).map(|seat| seat.source)
    }

    fn share(&self, source: Source) -> Arc<Share> {
        let mut sources = self.sources.lock();
        if sources.shares.len() >= sources.kept.max(SOURCES_KEPT) {
            let now = self.now();
            let is_kept =
                |share: &Arc<Share>| Arc::strong_count(share) > 1 || share.level.had(now) > FORGOTTEN_TIME;
            sources.shares.retain(|_, share| is_kept(share));
            sources.kept = 2 * sources.shares.len();
        }
        let share = Arc::clone(sources.shares.entry(source).or_default());
        self.source_count.store(sources.shares.len(), Ordering::Relaxed);
        share
    }

    /// Time since the server's start.
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Time of late up to which a source had little: together at most a third of the threads' time, if each has it.
    fn free_time(&self) -> Duration {
        let sources = u32::try_from(self.source_count.load(Ordering::Relaxed)).unwrap_or(u32::MAX).max(1);
        let threads = u32::try_from(self.threads).unwrap_or(u32::MAX);
        (level::HALF_LIFE.saturating_mul(threads) / 2 / sources).clamp(FREE_TIME_MIN, level::LIGHT_TIME)
    }

    fn is_free(&self, share: &Share) -> bool {
        share.level.had(self.now()) < self.free_time() && self.free.try_take()
    }

    /// Gives a turn back, which may be the next one's at once.
    fn give_back(&self) {
        self.given.give_back();
        self.serve(|next| next.task.wake());
    }

    /// The same at the end of a turn.
    fn end_turn(&self) {
        self.given.give_back();
        self.serve(Seat::wake_task_after_others);
    }

    fn join(&self, seat: &Arc<Seat>) {
        let now = self.now();
        let mut line = self.line.lock();
        line.join(now, Arc::clone(seat));
        self.waiting.fetch_add(1, Ordering::SeqCst);
        drop(line);
        self.serve(|next| next.task.wake());
    }

    /// Gives free turns to connections in line, and wakes these.
    fn serve(&self, wake: impl Fn(&Seat)) {
        while self.waiting.load(Ordering::SeqCst) > 0 && self.given.try_take() {
            let Some(seat) = self.next() else {
                self.given.give_back();
                continue;
            };
            if seat.moves(state::ASKED, state::GIVEN) {
                wake(&seat);
            } else {
                self.given.give_back();
            }
        }
    }

    fn next(&self) -> Option<Arc<Seat>> {
        let now = self.now();
        let mut line = self.line.lock();
        let seat = line.next(now)?;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        Some(seat)
    }
}

impl line::Waits for Seat {
    type Source = Source;

    fn source(&self) -> Source {
        self.source
    }

    fn source_level(&self) -> &Level {
        &self.share.level
    }

    fn level(&self) -> &Level {
        &self.level
    }

    fn is_in_crowd(&self) -> bool {
        self.is_in_crowd.load(Ordering::Relaxed)
    }
}

impl Seat {
    fn moves(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// It has something to do: a thread is to look at it, now, which `wake` sees to, or in its turn.
    fn ask(self: &Arc<Self>, wake: impl Fn(&Self)) {
        if self.turns.is_free(&self.share) {
            if self.moves(state::ASKED, state::FREE) {
                wake(self);
            } else {
                self.turns.free.give_back();
            }
        } else if self.turns.waiting() == 0 && self.turns.given.try_take() {
            if self.moves(state::ASKED, state::GIVEN) {
                wake(self);
            } else {
                self.turns.give_back();
            }
        } else {
            self.turns.join(self);
        }
    }

    /// Wakes the task once this thread has looked at all other tasks that are ready, and at the sockets: a second turn in a row
    /// must not hold up a task that has had none. Called by a task, because the runtime must not be waking those that have
    /// yielded.
    fn wake_task_after_others(&self) {
        if let Some(task) = self.task.take() {
            // A task that yields is put where it is woken at that time; here it is another one that is put there.
            let yielding = pin!(yield_now());
            let _ = yielding.poll(&mut Context::from_waker(&task));
        }
    }
}

impl Wake for Seat {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        loop {
            if self.moves(state::IDLE, state::ASKED) {
                self.is_in_crowd.store(WAKES_CROWD.get(), Ordering::Relaxed);
                return self.ask(|seat| seat.task.wake());
            }
            if self.moves(state::RUNNING, state::WOKEN) {
                self.is_in_crowd.store(WAKES_CROWD.get(), Ordering::Relaxed);
                return;
            }
            if !matches!(self.state.load(Ordering::SeqCst), state::IDLE | state::RUNNING) {
                return;
            }
        }
    }
}

thread_local! {
    /// When the turn began that this thread is at.
    static BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
    /// Whether this thread wakes many for the same thing.
    static WAKES_CROWD: Cell<bool> = const { Cell::new(false) };
}

/// Runs code that may wake many connections for the same thing. They have their turns after connections that were woken for a
/// request of their own, such as the one that wakes the crowd, which is not to wait for it.
pub(crate) fn wake_crowd<T>(wake: impl FnOnce() -> T) -> T {
    let before = WAKES_CROWD.replace(true);
    let woken = wake();
    WAKES_CROWD.set(before);
    woken
}

/// Lets others go first if this turn has had its time. Elsewhere there is nothing to do.
pub(crate) async fn give_way() {
    poll_fn(|context| {
        let is_over = BEGAN.get().is_some_and(|began| began.elapsed() >= TURN_TIME_MAX);
        if is_over {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

/// The work of a connection, done in its turns.
pub(crate) struct InTurns<F> {
    work: Pin<Box<F>>,
    seat: Arc<Seat>,
    waker: Waker,
    has_begun: bool,
}

impl<F: Future> InTurns<F> {
    pub(crate) fn new(turns: &Arc<Turns>, source: Source, work: F) -> Self {
        let share = turns.share(source);
        let connections = share.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let seat = Seat {
            turns: Arc::clone(turns),
            source,
            level: share.level.part(connections),
            share,
            is_in_crowd: AtomicBool::new(false),
            state: AtomicU8::new(state::IDLE),
            task: AtomicWaker::new(),
        };
        let seat = Arc::new(seat);
        Self { work: Box::pin(work), waker: Waker::from(Arc::clone(&seat)), seat, has_begun: false }
    }
}

/// A turn that a thread is at. It ends also where the work panics.
struct Running<'a> {
    seat: &'a Arc<Seat>,
    is_given: bool,
    began: Instant,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        BEGAN.set(None);
        let Seat { turns, share, level, .. } = &**self.seat;
        let ended = Instant::now();
        let (now, took) = (ended.duration_since(turns.began), ended.duration_since(self.began));
        share.level.add(now, took);
        level.add(now, took);
        if self.is_given {
            turns.end_turn();
        } else {
            turns.free.give_back();
        }
        if !self.seat.moves(state::RUNNING, state::IDLE) && self.seat.moves(state::WOKEN, state::ASKED) {
            // One turn after the other, a thread would look at the sockets after dozens of them.
            self.seat.ask(Seat::wake_task_after_others);
        }
    }
}

impl<F: Future> Future for InTurns<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { work, seat, waker, has_begun } = &mut *self;
        seat.task.register(context.waker());
        if !std::mem::replace(has_begun, true) {
            waker.wake_by_ref();
        }
        let is_given = seat.moves(state::GIVEN, state::RUNNING);
        if !is_given && !seat.moves(state::FREE, state::RUNNING) {
            return Poll::Pending;
        }
        let began = Instant::now();
        BEGAN.set(Some(began));
        let _running = Running { seat, is_given, began };
        work.as_mut().poll(&mut Context::from_waker(waker))
    }
}

impl<F> Drop for InTurns<F> {
    fn drop(&mut self) {
        let Seat { turns, share, state, .. } = &*self.seat;
        share.connections.fetch_sub(1, Ordering::Relaxed);
        match state.swap(state::GONE, Ordering::SeqCst) {
            state::GIVEN => turns.give_back(),
            state::FREE => turns.free.give_back(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
