use std::net::Ipv4Addr;
use std::pin::Pin;

use futures_util::FutureExt as _;

use super::*;

const QUICK: Worker = Worker { source: Source::SOME, length: Length::Short, micros: 0, connection: None };
const SLOW: Worker = Worker { length: Length::Long, ..QUICK };
/// Time of a slice whose batch inflates to very much.
const HEAVY_TIME: Duration = Duration::from_millis(200);

fn source(last: u8) -> Source {
    Source::of([192, 0, 2, last].into())
}

fn from(last: u8, micros: u64) -> Worker {
    Worker { source: source(last), micros, ..SLOW }
}

/// Has a source use the leave so often for a moment that it is known to be quick.
fn make_known(leave: &Arc<InflatingLeave>, last: u8) {
    for _ in 0..KNOWN_SLICES {
        drop(leave.try_get(leave.worker_of(source(last), last.into(), Length::Piece)).expect("free"));
    }
}

#[test]
fn as_many_inflate_at_once_as_cores_and_waiters_are_counted() {
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
fn quick_request_finds_a_place_beside_a_slow_one_on_one_core() {
    let leave = Arc::new(InflatingLeave::with_cores(1));
    let _held = leave.try_get(SLOW).expect("free");
    assert!(leave.try_get(SLOW).is_none());
    assert!(leave.try_get(QUICK).is_some());
}

#[tokio::test(start_paused = true)]
async fn source_with_least_time_is_next_and_its_idlest_connection() {
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
async fn source_leaves_places_unless_it_came_often_and_had_little() {
    for (length, few) in [(Length::Unknown, 2), (Length::Piece, 3)] {
        let leave = Arc::new(InflatingLeave::with_places(4));
        let take = |last: u8| leave.try_get(leave.worker_of(source(last), last.into(), length));
        let take_all = |last| (0..4).filter_map(|_| take(last)).collect::<Vec<_>>();
        for slices in (0..KNOWN_SLICES).step_by(few) {
            assert_eq!(take_all(1).len(), few, "hardly anything is known after {slices}");
        }
        make_known(&leave, 2);
        let held = take_all(1);
        assert_eq!(held.len(), 4, "it took no time");
        tokio::time::advance(LONG_SOURCE_TIME).await;
        drop(held);
        let held = take_all(1);
        assert_eq!(held.len(), few, "it takes long");
        drop(take(2).expect("free for another"));
        drop(held);
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(take_all(1).len(), 4, "that was long ago");
    }
}

#[test]
fn pieces_pass_long_requests_and_known_sources_pass_both() {
    let leave = Arc::new(InflatingLeave::with_places(4));
    make_known(&leave, 9);
    let worker = |last: u8, length| leave.worker_of(source(last), last.into(), length);
    let mut searches: Vec<_> =
        (10..90).map(|last| Box::pin(leave.get(worker(last, Length::Unknown)))).collect();
    let begun = searches.iter_mut().filter_map(|search| search.as_mut().now_or_never()).collect::<Vec<_>>();
    assert_eq!(begun.len(), 2);
    let piece = leave.try_get(worker(100, Length::Piece)).expect("not for searches");
    assert!(leave.try_get(worker(101, Length::Piece)).is_none(), "one place is for those that are known");
    let known = leave.try_get(worker(9, Length::Unknown)).expect("it is known");
    assert_eq!(leave.counts(), (4, 78));
    drop((piece, known, begun, searches));
    assert_eq!(leave.counts(), (0, 0));
}

type Wait = Pin<Box<dyn Future<Output = Leave>>>;

fn wait(leave: &Arc<InflatingLeave>, who: Worker) -> Wait {
    let leave = Arc::clone(leave);
    let mut wait: Wait = Box::pin(async move { leave.get(who).await });
    assert!(wait.as_mut().now_or_never().is_none());
    wait
}

/// Searches of ever new addresses from 10.0.0.1 on, each of which takes long.
struct Stream {
    leave: Arc<InflatingLeave>,
    addresses: u32,
    begun: Option<Leave>,
    waiting: Vec<Wait>,
}

impl Stream {
    /// One has begun, and many wait.
    fn begin(leave: &Arc<InflatingLeave>) -> Self {
        let mut stream = Self { leave: Arc::clone(leave), addresses: 0, begun: None, waiting: Vec::new() };
        let first = stream.newcomer();
        stream.begun = leave.try_get(first);
        (0..100).for_each(|_| stream.join());
        stream
    }

    fn newcomer(&mut self) -> Worker {
        self.addresses += 1;
        let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 0).to_bits() + self.addresses);
        self.leave.worker_of(Source::of(address.into()), self.addresses.into(), Length::Unknown)
    }

    fn join(&mut self) {
        let who = self.newcomer();
        self.waiting.push(wait(&self.leave, who));
    }

    /// How many of it have ended when it is the turn of this one. For each that ends another one comes.
    async fn turns_before(&mut self, mut other: Wait) -> (usize, Leave) {
        for turns in 1..=100 {
            tokio::time::advance(HEAVY_TIME).await;
            self.begun = None;
            self.join();
            if let Some(leave) = other.as_mut().now_or_never() {
                return (turns, leave);
            }
            let ready = |(index, wait): (usize, &mut Wait)| Some((index, wait.as_mut().now_or_never()?));
            let (index, begun) =
                self.waiting.iter_mut().enumerate().find_map(ready).expect("one has its turn");
            drop(self.waiting.remove(index));
            self.begun = Some(begun);
        }
        panic!("it waits for a stream of newcomers");
    }
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_waits_for_no_stream_of_others() {
    let elsewhere = Ipv4Addr::new(192, 0, 2, 1);
    let beside = Ipv4Addr::new(10, 0, 200, 1);
    for address in [elsewhere, beside] {
        let leave = Arc::new(InflatingLeave::with_places(1));
        let mut stream = Stream::begin(&leave);
        let who = leave.worker_of(Source::of(address.into()), 7, Length::Unknown);
        let (turns, _leave) = stream.turns_before(wait(&leave, who)).await;
        assert_eq!(turns, 1, "{address}");
    }
}

#[tokio::test(start_paused = true)]
async fn known_source_goes_on_beside_a_stream_of_newcomers() {
    let leave = Arc::new(InflatingLeave::with_places(1));
    let worker = |length| leave.worker_of(Source::SOME, 7, length);
    let first = leave.try_get(worker(Length::Unknown)).expect("free");
    tokio::time::advance(SLICE_TIME).await;
    drop(first);
    let mut stream = Stream::begin(&leave);
    for _ in 0..10 {
        let (turns, own) = stream.turns_before(wait(&leave, worker(Length::Unknown))).await;
        assert!(turns <= 2, "{turns}");
        // The next of the stream begins when this has ended.
        stream.begun = Some(own);
    }
}

#[tokio::test(start_paused = true)]
async fn source_that_leaves_the_line_stays_unknown() {
    let leave = Arc::new(InflatingLeave::with_places(1));
    let held = leave.try_get(leave.worker_of(source(1), 1, Length::Unknown)).expect("free");
    let granted = wait(&leave, leave.worker_of(source(2), 2, Length::Unknown));
    drop(held);
    assert_eq!(leave.counts(), (1, 0));
    drop(granted);
    assert_eq!(leave.counts(), (0, 0));
    assert!(!leave.line.lock().times.contains_key(&source(2)));
}

#[tokio::test(start_paused = true)]
async fn light_connection_passes_heavy_ones_of_its_source() {
    let leave = Arc::new(InflatingLeave::with_places(1));
    let worker = |connection: u64| leave.worker_of(Source::SOME, connection, Length::Unknown);
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
async fn slice_is_over_after_its_time_unless_it_is_the_whole_request() {
    let (slice, whole) = (Slice::begin(), Slice::whole());
    assert!(!slice.is_over() && !whole.is_over());
    tokio::time::advance(SLICE_TIME).await;
    assert!(slice.is_over() && !Slice::begin().is_over());
    tokio::time::advance(Duration::from_hours(1)).await;
    assert!(!whole.is_over());
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
        !inflating.is_for_aside(coded(HERE_BYTES_MAX)) && inflating.is_for_aside(coded(HERE_BYTES_MAX + 1))
    );
}

#[test]
fn costly_request_sends_the_next_ones_aside_until_cheap_ones() {
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
