//! Where a connection's requests with records are worked on: on the network's thread, which serves others meanwhile only if
//! it is let go, or aside.
//!
//! To check compressed records they are inflated, and for a topic with another codec they are compressed again. A few
//! bytes may inflate to a thousand times as many, so what a request costs is known afterwards only: one that is large, or
//! whose connection had costly ones before it, is worked on aside. So is one with plain records of many bytes, which are
//! looked at byte by byte for their checksum, and written if their topic's level is without a sync. As many are at once as
//! there are cores, and those of connections whose batches take long at most all but one, on threads that step back behind
//! the network's: the others always find a place. The leave to work aside is for a [slice](Slices) of a request: a batch, or
//! as many as fit in a moment. Between two slices others have their turn: first those of the source that had least time of
//! late.
//!
//! The line in which they wait is also that of catch-up reads ([`crate::fetch::catch_up`]), for which nobody knows what a
//! connection will take: there a source counts as one that takes long once it had much time of late.

use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::hash::Hash;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::source::Source;

/// Compressed bytes of a request above which it is worked on aside: with gzip they may inflate to 16 MiB, with zstd to
/// more, which takes longer than others should wait.
const HERE_BYTES_MAX: usize = 16 * 1024;
/// Bytes of plain records in a request above which it is worked on aside: what Kafka's producers send at most unless told
/// otherwise. To check so many takes a tenth of a millisecond, and a millisecond if the records are tiny.
const PLAIN_HERE_BYTES_MAX: usize = 1024 * 1024;
/// Time that a request may take without those after it being worked on aside.
const HERE_TIME_MAX: Duration = Duration::from_millis(1);
/// Compressed requests of a connection that are worked on aside after a costly one.
const ASIDE_FOR: u32 = 64;
/// Time of compressed requests after which a connection lets others go first.
const TURN_TIME: Duration = Duration::from_micros(500);
/// Time after which a request gives way between two batches.
const SLICE_TIME: Duration = Duration::from_millis(2);
/// A slice that takes longer is one of few large batches: a batch of a megabyte that holds ten takes less.
const LONG_TIME: Duration = Duration::from_millis(40);
/// Time of late from which on a source is one that takes long: what it gets who uses an eighth of one place without pause. A
/// client that searches or reads old records now and then stays far below, also where its turns are slow.
const LONG_SOURCE_TIME: Duration = Duration::from_millis(250);
/// Sources, and connections, whose time is remembered before those that had hardly any are forgotten.
const TIMES_KEPT: usize = 1024;

/// What is to be done with the records of a request before its batches have their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordsWork {
    /// Bytes that have to be inflated or compressed.
    pub(crate) coded_bytes: usize,
    /// Bytes that are only checked.
    pub(crate) plain_bytes: usize,
}

impl RecordsWork {
    /// Whether it is done at once, wherever the request is.
    pub(crate) fn is_little(self) -> bool {
        self.coded_bytes == 0 && !self.has_much_plain()
    }

    /// Whether it may take longer than others of a thread should wait.
    pub(crate) fn may_take_long(self) -> bool {
        self.coded_bytes > HERE_BYTES_MAX || self.has_much_plain()
    }

    fn has_much_plain(self) -> bool {
        self.plain_bytes > PLAIN_HERE_BYTES_MAX
    }
}

impl std::ops::Add for RecordsWork {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            coded_bytes: self.coded_bytes + other.coded_bytes,
            plain_bytes: self.plain_bytes + other.plain_bytes,
        }
    }
}

impl std::iter::Sum for RecordsWork {
    fn sum<I: Iterator<Item = Self>>(works: I) -> Self {
        works.fold(Self::default(), std::ops::Add::add)
    }
}

/// The leave to work on requests aside, or to wait for the disk of one log dir; shared by all connections.
#[derive(Debug)]
pub(crate) struct InflatingLeave {
    /// At once, and of these such as take long.
    places: usize,
    long_places: usize,
    line: Mutex<Line>,
}

/// Invariants: `working` and `long` count the leaves that were given and not given back.
#[derive(Debug, Default)]
struct Line {
    working: usize,
    long: usize,
    waiting: BTreeMap<u64, Waiting>,
    next_ticket: u64,
    times: HashMap<Source, Recent>,
    /// Of connections whose time nobody else counts.
    of_connections: HashMap<u64, Recent>,
}

#[derive(Debug)]
struct Waiting {
    who: Worker,
    grant: oneshot::Sender<()>,
}

/// Who asks for leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worker {
    pub(super) source: Source,
    /// Its slices take long, or nothing is known of them.
    pub(super) is_long: bool,
    /// Time that its connection had of late.
    pub(super) micros: u64,
    /// Its connection, if that time is counted here.
    pub(super) connection: Option<u64>,
}

/// Time that was taken of late: what is a second old counts for half.
#[derive(Clone, Copy, Debug)]
struct Recent {
    micros: u64,
    at: Instant,
}

impl Recent {
    fn new() -> Self {
        Self { micros: 0, at: Instant::now() }
    }

    fn now(self, now: Instant) -> u64 {
        let seconds = u32::try_from(now.duration_since(self.at).as_secs()).unwrap_or(u32::MAX);
        self.micros.checked_shr(seconds).unwrap_or(0)
    }

    fn add(&mut self, now: Instant, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        // What was halved stays so; of a second that has only begun nothing is lost.
        let before = self.now(now);
        if before != self.micros || self.micros == 0 {
            self.at = now;
        }
        self.micros = before.saturating_add(micros);
    }
}

impl InflatingLeave {
    /// One for each core, and two where there is one.
    pub(crate) fn new() -> Self {
        Self::with_cores(std::thread::available_parallelism().map_or(1, NonZero::get))
    }

    fn with_cores(cores: usize) -> Self {
        Self::with_places(cores.max(2))
    }

    /// So many, of which all but one may be taken by those that take long; the only one by everybody.
    pub(crate) fn with_places(places: usize) -> Self {
        Self { places, long_places: (places - 1).max(1), line: Mutex::default() }
    }

    /// As whom a connection of a source asks of whose work nothing is known but the time that it took of late. A source that
    /// comes for the first time may be about to take long in all places at once.
    pub(crate) fn worker_of(&self, source: Source, connection: u64) -> Worker {
        let (now, line) = (Instant::now(), self.line.lock());
        let of_source = line.times.get(&source).map(|recent| u128::from(recent.now(now)));
        let is_long = of_source.is_none_or(|micros| micros >= LONG_SOURCE_TIME.as_micros());
        let micros = line.of_connections.get(&connection).map_or(0, |recent| recent.now(now));
        Worker { source, is_long, micros, connection: Some(connection) }
    }

    /// The leave, if it is free; it holds until it is dropped.
    pub(crate) fn try_get(self: &Arc<Self>, who: Worker) -> Option<Leave> {
        let mut line = self.line.lock();
        let is_free = self.has_place(&line, who)
            && !line.waiting.values().any(|waiting| self.has_place(&line, waiting.who));
        is_free.then(|| {
            line.give(who);
            Leave { leaves: Arc::clone(self), who, since: Instant::now() }
        })
    }

    /// Waits for the leave; it holds until it is dropped.
    pub(crate) async fn get(self: &Arc<Self>, who: Worker) -> Leave {
        if let Some(leave) = self.try_get(who) {
            return leave;
        }
        let (grant, granted) = oneshot::channel();
        let mut place = {
            let mut line = self.line.lock();
            let ticket = line.next_ticket;
            line.next_ticket += 1;
            line.waiting.insert(ticket, Waiting { who, grant });
            // What came free since it was looked told nobody.
            self.serve(&mut line);
            InLine { leaves: self, ticket, who, granted, is_taken: false }
        };
        // The sender is in the line until it grants.
        let _ = (&mut place.granted).await;
        place.is_taken = true;
        Leave { leaves: Arc::clone(self), who, since: Instant::now() }
    }

    fn has_place(&self, line: &Line, who: Worker) -> bool {
        line.working < self.places && (!who.is_long || line.long < self.long_places)
    }

    fn serve(&self, line: &mut Line) {
        let now = Instant::now();
        loop {
            let may_go = line.waiting.iter().filter(|(_, waiting)| self.has_place(line, waiting.who));
            let rank = |(ticket, waiting): &(&u64, &Waiting)| {
                let of_source = line.times.get(&waiting.who.source).map_or(0, |recent| recent.now(now));
                (of_source, waiting.who.micros, **ticket)
            };
            let Some((&ticket, _)) = may_go.min_by_key(rank) else { return };
            let Some(Waiting { who, grant }) = line.waiting.remove(&ticket) else { return };
            line.give(who);
            // Whoever stops waiting gives it back.
            let _ = grant.send(());
        }
    }

    fn give_back(&self, who: Worker, took: Duration) {
        let mut line = self.line.lock();
        line.working -= 1;
        line.long -= usize::from(who.is_long);
        note_time(&mut line.times, who.source, took);
        if let Some(connection) = who.connection {
            note_time(&mut line.of_connections, connection, took);
        }
        self.serve(&mut line);
    }

    /// How many have it now, and how many wait for it.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let line = self.line.lock();
        (line.working, line.waiting.len())
    }
}

impl Line {
    fn give(&mut self, who: Worker) {
        self.working += 1;
        self.long += usize::from(who.is_long);
    }
}

fn note_time<K: Hash + Eq>(times: &mut HashMap<K, Recent>, whose: K, took: Duration) {
    let now = Instant::now();
    if times.len() >= TIMES_KEPT && !times.contains_key(&whose) {
        times.retain(|_, recent| recent.now(now) > 0);
    }
    if times.len() < 2 * TIMES_KEPT || times.contains_key(&whose) {
        times.entry(whose).or_insert_with(Recent::new).add(now, took);
    }
}

/// The leave to work on a slice, given back when dropped.
#[derive(Debug)]
pub(crate) struct Leave {
    leaves: Arc<InflatingLeave>,
    who: Worker,
    since: Instant,
}

impl Drop for Leave {
    fn drop(&mut self) {
        self.leaves.give_back(self.who, self.since.elapsed());
    }
}

/// A place in line, left when dropped.
struct InLine<'a> {
    leaves: &'a InflatingLeave,
    ticket: u64,
    who: Worker,
    granted: oneshot::Receiver<()>,
    is_taken: bool,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        if self.is_taken {
            return;
        }
        let left = self.leaves.line.lock().waiting.remove(&self.ticket);
        if left.is_none() {
            self.leaves.give_back(self.who, Duration::ZERO);
        }
    }
}

/// How a request that has much to inflate or to check tells its connection that it gives way, between two of its batches.
#[derive(Debug)]
pub(crate) struct Slices {
    has_given_way: AtomicBool,
    since: Mutex<Instant>,
}

impl Slices {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { has_given_way: AtomicBool::new(false), since: Mutex::new(Instant::now()) })
    }

    /// Ends the slice, if it has taken long enough. The connection polls again without being woken.
    pub(crate) async fn give_way(&self) {
        if self.since.lock().elapsed() < SLICE_TIME {
            return;
        }
        let mut has_left = false;
        poll_fn(|_| {
            if std::mem::replace(&mut has_left, true) {
                return Poll::Ready(());
            }
            self.has_given_way.store(true, Relaxed);
            Poll::Pending
        })
        .await;
    }

    /// A slice begins.
    pub(super) fn begin(&self) {
        *self.since.lock() = Instant::now();
    }

    /// Whether the request, which is not ready, has more to do at once.
    pub(super) fn go_on(&self) -> bool {
        self.has_given_way.swap(false, Relaxed)
    }
}

/// What one connection's compressed requests have cost.
///
/// Invariants: `aside` is how many slices more are worked on aside whatever their size.
#[derive(Debug)]
pub(super) struct Inflating {
    aside: u32,
    turn: Duration,
    is_long: bool,
    recent: Recent,
}

impl Inflating {
    /// Nothing is known of a new connection, so its first one is worked on aside.
    pub(super) fn new() -> Self {
        Self { aside: 1, turn: Duration::ZERO, is_long: true, recent: Recent::new() }
    }

    /// As whom the connection from this source asks for leave.
    pub(super) fn worker(&self, source: Source) -> Worker {
        Worker { source, is_long: self.is_long, micros: self.recent.now(Instant::now()), connection: None }
    }

    /// Whether a request with such records is worked on aside.
    pub(super) fn is_for_aside(&self, work: RecordsWork) -> bool {
        work.may_take_long() || (work.coded_bytes > 0 && self.aside > 0)
    }

    /// A slice with compressed records took so long, aside.
    pub(super) fn took_aside(&mut self, time: Duration) {
        self.aside = if time > HERE_TIME_MAX { ASIDE_FOR } else { self.aside.saturating_sub(1) };
        self.is_long = time > LONG_TIME;
        self.recent.add(Instant::now(), time);
    }

    /// A slice with compressed records took so long, here; answers whether others go first now.
    pub(super) fn took_here(&mut self, time: Duration) -> bool {
        if time > HERE_TIME_MAX {
            self.aside = ASIDE_FOR;
            self.is_long = time > LONG_TIME;
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
    use futures_util::FutureExt as _;

    use super::*;

    const QUICK: Worker = Worker { source: Source::SOME, is_long: false, micros: 0, connection: None };
    const SLOW: Worker = Worker { is_long: true, ..QUICK };

    fn from(last: u8, micros: u64) -> Worker {
        Worker { source: Source::of([192, 0, 2, last].into()), micros, ..SLOW }
    }

    #[test]
    fn as_many_as_there_are_cores_inflate_at_once_and_who_waits_is_counted() {
        let leave = Arc::new(InflatingLeave::with_cores(4));
        let mut held: Vec<_> = (0..3).map(|_| leave.try_get(SLOW).expect("free")).collect();
        assert!(leave.try_get(SLOW).is_none(), "one place is for those that are quick");
        held.push(leave.try_get(QUICK).expect("free"));
        assert_eq!(leave.counts(), (4, 0));
        {
            let mut waiting = Box::pin(leave.get(QUICK));
            assert!(waiting.as_mut().now_or_never().is_none());
            assert_eq!(leave.counts(), (4, 1));
            assert!(leave.try_get(QUICK).is_none());
        }
        assert_eq!(leave.counts(), (4, 0), "it has gone");
        drop(held);
        assert_eq!(leave.counts(), (0, 0));
        assert!(leave.try_get(QUICK).is_some());
    }

    #[test]
    fn who_is_quick_finds_a_place_beside_one_that_is_not_also_on_one_core() {
        let leave = Arc::new(InflatingLeave::with_cores(1));
        let _held = leave.try_get(SLOW).expect("free");
        assert!(leave.try_get(SLOW).is_none());
        assert!(leave.try_get(QUICK).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_source_that_had_least_time_is_next_and_of_it_the_connection_that_had_least() {
        let leave = Arc::new(InflatingLeave::with_cores(1));
        let held = leave.get(from(1, 0)).await;
        tokio::time::advance(Duration::from_millis(300)).await;
        drop(held);
        let held = leave.get(from(3, 0)).await;
        let waits = [from(1, 0), from(2, 500), from(2, 100)];
        let mut waiting: Vec<_> = waits.into_iter().map(|who| Box::pin(leave.get(who))).collect();
        for waiting in &mut waiting {
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        let mut held = Some(held);
        for next in [2, 1, 0] {
            drop(held.take());
            let (working, _) = leave.counts();
            assert_eq!(working, 1);
            held = waiting[next].as_mut().now_or_never();
            assert!(held.is_some(), "{next}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_had_much_time_of_late_leaves_a_place_to_others() {
        let leave = Arc::new(InflatingLeave::with_places(3));
        let worker = |last: u8| leave.worker_of(Source::of([192, 0, 2, last].into()), last.into());
        let first: Vec<_> = (0..3).filter_map(|_| leave.try_get(worker(1))).collect();
        assert_eq!(first.len(), 2, "nothing is known of it");
        drop(first);
        drop(leave.try_get(worker(2)).expect("free"));
        let first: Vec<_> = (0..3).filter_map(|_| leave.try_get(worker(1))).collect();
        assert_eq!(first.len(), 3, "it took no time");
        tokio::time::advance(LONG_SOURCE_TIME).await;
        drop(first);
        let held: Vec<_> = (0..2).map(|_| leave.try_get(worker(1)).expect("free")).collect();
        assert!(leave.try_get(worker(1)).is_none(), "it takes all but one");
        drop(leave.try_get(worker(2)).expect("free for another"));
        drop(held);
        tokio::time::advance(Duration::from_secs(3)).await;
        let again: Vec<_> = (0..3).filter_map(|_| leave.try_get(worker(1))).collect();
        assert_eq!(again.len(), 3, "that was long ago");
    }

    #[tokio::test(start_paused = true)]
    async fn of_one_source_a_connection_that_asks_for_little_passes_those_that_had_much() {
        let leave = Arc::new(InflatingLeave::with_places(1));
        let worker = |connection: u64| leave.worker_of(Source::SOME, connection);
        for heavy in 1..=3 {
            let held = leave.try_get(worker(heavy)).expect("free");
            tokio::time::advance(Duration::from_millis(5)).await;
            drop(held);
        }
        let held = leave.try_get(worker(1)).expect("free");
        let mut waiting: Vec<_> = [2, 3, 4].into_iter().map(|who| Box::pin(leave.get(worker(who)))).collect();
        for waiting in &mut waiting {
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        drop(held);
        assert!(waiting[0].as_mut().now_or_never().is_none());
        assert!(waiting[2].as_mut().now_or_never().is_some(), "the newcomer is next");
        assert!(waiting[0].as_mut().now_or_never().is_some(), "and then the one that came first");
    }

    #[test]
    fn the_only_place_is_for_everybody() {
        let leave = Arc::new(InflatingLeave::with_places(1));
        let held = leave.try_get(SLOW).expect("free");
        assert!(leave.try_get(QUICK).is_none());
        drop(held);
        assert!(leave.try_get(QUICK).is_some());
    }

    #[test]
    fn a_leave_that_was_given_to_one_that_has_gone_is_given_back() {
        let leave = Arc::new(InflatingLeave::with_cores(1));
        let held = leave.try_get(SLOW).expect("free");
        let mut gone = Box::pin(leave.get(SLOW));
        assert!(gone.as_mut().now_or_never().is_none());
        drop(held);
        assert_eq!(leave.counts(), (1, 0));
        drop(gone);
        assert_eq!(leave.counts(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_gives_way_once_it_has_taken_a_slice_of_time() {
        let slices = Slices::new();
        slices.begin();
        assert!(slices.give_way().now_or_never().is_some() && !slices.go_on());
        tokio::time::advance(SLICE_TIME).await;
        let mut giving = Box::pin(slices.give_way());
        assert!(giving.as_mut().now_or_never().is_none());
        assert!(slices.go_on() && !slices.go_on());
        slices.begin();
        assert!(giving.as_mut().now_or_never().is_some() && !slices.go_on());
    }

    #[tokio::test(start_paused = true)]
    async fn time_of_late_halves_each_second() {
        let mut recent = Recent::new();
        recent.add(Instant::now(), Duration::from_millis(8));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(recent.now(Instant::now()), 2_000);
        recent.add(Instant::now(), Duration::from_millis(1));
        assert_eq!(recent.now(Instant::now()), 3_000);
        tokio::time::advance(Duration::from_secs(100)).await;
        assert_eq!(recent.now(Instant::now()), 0);
    }

    const SHORT: Duration = Duration::from_micros(100);
    const LONG: Duration = Duration::from_millis(20);

    fn coded(coded_bytes: usize) -> RecordsWork {
        RecordsWork { coded_bytes, plain_bytes: 0 }
    }

    #[test]
    fn plain_records_are_for_aside_if_they_are_many_bytes() {
        let inflating = Inflating::new();
        for (plain_bytes, is_little) in [(PLAIN_HERE_BYTES_MAX, true), (PLAIN_HERE_BYTES_MAX + 1, false)] {
            let work = RecordsWork { coded_bytes: 0, plain_bytes };
            assert_eq!((work.is_little(), inflating.is_for_aside(work)), (is_little, !is_little));
        }
    }

    #[test]
    fn small_requests_stay_here_once_the_first_one_was_cheap() {
        let mut inflating = Inflating::new();
        assert!(!inflating.is_for_aside(coded(0)), "nothing to inflate");
        assert!(inflating.is_for_aside(coded(100)), "nothing is known yet");
        inflating.took_aside(SHORT);
        assert!(
            !inflating.is_for_aside(coded(HERE_BYTES_MAX))
                && inflating.is_for_aside(coded(HERE_BYTES_MAX + 1))
        );
    }

    #[test]
    fn after_a_costly_request_the_next_ones_are_for_aside_and_after_cheap_ones_no_more() {
        let mut inflating = Inflating::new();
        inflating.took_aside(SHORT);
        inflating.took_here(LONG);
        for _ in 0..ASIDE_FOR {
            assert!(inflating.is_for_aside(coded(100)) && !inflating.is_for_aside(coded(0)));
            inflating.took_aside(SHORT);
        }
        assert!(!inflating.is_for_aside(coded(100)));
        inflating.took_aside(LONG);
        assert!(inflating.is_for_aside(coded(100)));
    }

    #[test]
    fn many_small_requests_let_others_go_first_now_and_then() {
        let mut inflating = Inflating::new();
        let turns = (0..60).filter(|_| inflating.took_here(SHORT)).count();
        assert_eq!(turns, 10);
    }
}
