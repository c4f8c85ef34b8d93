//! Whose connections come to their turn when they have more to do than the network's threads can.
//!
//! What wakes the task of a connection asks for a turn: one look at all that has come for it, of about a
//! [millisecond](super::pace). A connection whose source had little of the threads' time of late has its turn at once. Of the
//! others a few have theirs at the same time, and the rest waits in line outside of the runtime, whose queue stays short by
//! that: next is the source that had least time, and of that the connection that has waited for longest. So a source with many
//! connections gets no more than another one, and who asks for little waits for a few turns at the most.
//!
//! Guarantees that a wake-up is never lost, and that a turn of a connection that goes away is given to another one.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::task::yield_now;

use super::pace::TURN_TIME_MAX;
use super::source::Source;

/// Turns at once, for each thread of the network: one that it works on, and one for which another thread works on records
/// meanwhile, or that is ready when the first is over.
const GIVEN_PER_THREAD: usize = 2;
/// Half of the time that a source had is forgotten after so long.
const PERIOD: Duration = Duration::from_millis(20);
/// Time, as far as it is not forgotten, up to which a source does not wait in line: a twentieth of a thread. A client that
/// asks for something a hundred times a second takes less.
const FREE_TIME_MAX: Duration = Duration::from_millis(2);
/// The same where there are very many sources: together they are to take no more than some of the threads' time.
const FREE_TIME_MIN: Duration = Duration::from_micros(200);
/// Sources that are remembered, at the least, before those without connections are forgotten that had hardly any time.
const SOURCES_KEPT: usize = 256;

/// The turns of one server; shared by all connections.
///
/// Invariants: `given` is at most `given_max`, but for a moment in which somebody finds the line empty; `waiting` counts what
/// `line` has. Nobody waits in line while fewer turns are given: whoever gives one back looks at `waiting` after that, and
/// whoever joins the line looks at `given` after that.
#[derive(Debug)]
pub(crate) struct Turns {
    threads: usize,
    given_max: usize,
    given: AtomicUsize,
    waiting: AtomicUsize,
    line: Mutex<Line>,
    sources: Mutex<Sources>,
    /// How many sources are known.
    source_count: AtomicUsize,
    began: Instant,
}

/// Invariants: whoever has a connection is known.
#[derive(Debug, Default)]
struct Sources {
    shares: HashMap<Source, Arc<Share>>,
    /// So many are known before some are forgotten.
    kept: usize,
}

/// Invariants: no queue is empty.
#[derive(Debug, Default)]
struct Line(HashMap<Source, VecDeque<Arc<Seat>>>);

/// Time that a source had: a count of periods in the upper half, and nanoseconds as of that one in the lower.
#[derive(Debug, Default)]
struct Share(AtomicU64);

/// What a connection is at.
mod state {
    /// It has nothing to do.
    pub(super) const IDLE: u8 = 0;
    /// It has something to do, and waits for its turn.
    pub(super) const ASKED: u8 = 1;
    /// It has one of the turns that are counted, and waits for a thread.
    pub(super) const GIVEN: u8 = 2;
    /// It may go on without one of these, and waits for a thread.
    pub(super) const FREE: u8 = 3;
    /// A thread is at it.
    pub(super) const RUNNING: u8 = 4;
    /// The same, and it has more to do since.
    pub(super) const WOKEN: u8 = 5;
    /// It is gone.
    pub(super) const GONE: u8 = 6;
}

/// One connection, as the line sees it.
#[derive(Debug)]
struct Seat {
    turns: Arc<Turns>,
    source: Source,
    share: Arc<Share>,
    state: AtomicU8,
    task: AtomicWaker,
}

impl Turns {
    /// For a network that has so many threads.
    pub(crate) fn new(threads: usize) -> Arc<Self> {
        Arc::new(Self {
            threads,
            given_max: GIVEN_PER_THREAD * threads,
            given: AtomicUsize::new(0),
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

    /// The source that had most time of late of those that wait for their turn.
    pub(crate) fn busiest(&self) -> Option<Source> {
        let now = self.period();
        let line = self.line.lock();
        let busiest =
            line.0.iter().filter_map(|(source, queue)| Some((queue.front()?.share.time(now), *source)));
        busiest.max().map(|(_, source)| source)
    }

    fn share(&self, source: Source) -> Arc<Share> {
        let mut sources = self.sources.lock();
        if sources.shares.len() >= sources.kept.max(SOURCES_KEPT) {
            let now = self.period();
            sources.shares.retain(|_, share| Arc::strong_count(share) > 1 || share.time(now) > FREE_TIME_MIN);
            sources.kept = 2 * sources.shares.len();
        }
        let share = Arc::clone(sources.shares.entry(source).or_default());
        self.source_count.store(sources.shares.len(), Ordering::Relaxed);
        share
    }

    /// Periods since the server's start.
    fn period(&self) -> u32 {
        u32::try_from(self.began.elapsed().as_millis() / PERIOD.as_millis()).unwrap_or(u32::MAX)
    }

    /// Time up to which a source does not wait in line: together at most a quarter of the threads' time, if each has it.
    fn free_time(&self) -> Duration {
        let sources = u32::try_from(self.source_count.load(Ordering::Relaxed)).unwrap_or(u32::MAX).max(1);
        let threads = u32::try_from(self.threads).unwrap_or(u32::MAX);
        // What is not forgotten is twice what is taken in a period.
        (PERIOD.saturating_mul(threads) / 2 / sources).clamp(FREE_TIME_MIN, FREE_TIME_MAX)
    }

    fn is_free(&self, share: &Share) -> bool {
        let free_time = self.free_time();
        // Mostly the clock need not be looked at.
        share.time(0) < free_time || share.time(self.period()) < free_time
    }

    fn try_take(&self) -> bool {
        let more = |given: usize| (given < self.given_max).then_some(given + 1);
        self.given.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// Gives a turn back, which may be the next one's at once.
    fn give_back(&self) {
        self.given.fetch_sub(1, Ordering::SeqCst);
        self.serve(|next| next.task.wake());
    }

    /// The same at the end of a turn.
    fn end_turn(&self) {
        self.given.fetch_sub(1, Ordering::SeqCst);
        self.serve(Seat::wake_task_after_others);
    }

    fn join(&self, seat: &Arc<Seat>) {
        let mut line = self.line.lock();
        line.0.entry(seat.source).or_default().push_back(Arc::clone(seat));
        self.waiting.fetch_add(1, Ordering::SeqCst);
        drop(line);
        self.serve(|next| next.task.wake());
    }

    /// Gives what turns there are to those in line, and wakes these.
    fn serve(&self, wake: impl Fn(&Seat)) {
        while self.waiting.load(Ordering::SeqCst) > 0 && self.try_take() {
            let Some(seat) = self.next() else {
                self.given.fetch_sub(1, Ordering::SeqCst);
                continue;
            };
            if seat.moves(state::ASKED, state::GIVEN) {
                wake(&seat);
            } else {
                self.given.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    fn next(&self) -> Option<Arc<Seat>> {
        let now = self.period();
        let mut line = self.line.lock();
        let time = |queue: &VecDeque<Arc<Seat>>| queue.front().map(|seat| seat.share.time(now));
        let source = *line.0.iter().min_by_key(|(_, queue)| time(queue))?.0;
        let queue = line.0.get_mut(&source)?;
        let seat = queue.pop_front();
        if queue.is_empty() {
            line.0.remove(&source);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        seat
    }
}

impl Share {
    /// What is not forgotten in this period.
    fn time(&self, now: u32) -> Duration {
        Duration::from_nanos(Self::left(self.0.load(Ordering::Relaxed), now))
    }

    fn left(packed: u64, now: u32) -> u64 {
        let (period, nanos) = ((packed >> u32::BITS) as u32, packed & u64::from(u32::MAX));
        nanos.checked_shr(now.saturating_sub(period)).unwrap_or(0)
    }

    fn add(&self, now: u32, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let add = |packed: u64| {
            let nanos = Self::left(packed, now).saturating_add(took).min(u32::MAX.into());
            Some(u64::from(now) << u32::BITS | nanos)
        };
        // It never refuses.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
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
            }
        } else if self.turns.waiting() == 0 && self.turns.try_take() {
            if self.moves(state::ASKED, state::GIVEN) {
                wake(self);
            } else {
                self.turns.give_back();
            }
        } else {
            self.turns.join(self);
        }
    }

    /// Wakes the task when the thread that is here has looked at all others that are ready, and at the sockets: a turn that
    /// follows another one is to keep nobody waiting who has none. To be called by a task: the runtime must not be waking those
    /// that have yielded.
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
                return self.ask(|seat| seat.task.wake());
            }
            if self.moves(state::RUNNING, state::WOKEN) {
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

/// What a connection does, in its turns.
pub(super) struct InTurns<F> {
    work: Pin<Box<F>>,
    seat: Arc<Seat>,
    waker: Waker,
    has_begun: bool,
}

impl<F: Future> InTurns<F> {
    pub(super) fn new(turns: &Arc<Turns>, source: Source, work: F) -> Self {
        let share = turns.share(source);
        let seat = Seat {
            turns: Arc::clone(turns),
            source,
            share,
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
        let Seat { turns, share, .. } = &**self.seat;
        share.add(turns.period(), self.began.elapsed());
        if self.is_given {
            turns.end_turn();
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
        if self.seat.state.swap(state::GONE, Ordering::SeqCst) == state::GIVEN {
            self.seat.turns.give_back();
        }
    }
}

#[cfg(test)]
mod tests;
