//! The loop against targets with known delays: the effects of a stall, a refusal and a change of orders on the figures.

use std::convert::Infallible;
use std::iter::once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use riverrun_measure::pacing::{Rate, Schedule, sleep_until};

use super::clock::StampClock;
use super::figures::Interval;
use super::meter::{Meter, Sent};
use super::orders::{Orders, Produce};
use super::producing::Tally;
use super::sending::{Left, Place, Sending, Source, overdue};
use super::target::{Outgoing, Target};
use crate::keys::{KeyDistribution, Keys};
use crate::payload::Payloads;
use crate::plan::{KeySource, Stamp, ValueSource};

const ALONE: Place = Place { first: 0, own: 1, total: 1 };

/// Acks at once, except for a stall at the record of this number.
struct Stalling {
    tally: Tally<Infallible>,
    after_records: u64,
    stall: Duration,
}

impl Target for Stalling {
    type Error = Infallible;

    fn wait_for_room(&mut self, _: u64) -> bool {
        true
    }

    fn send(&mut self, turn: u64, _: &Outgoing<'_>, sent: Sent) -> Result<(), Infallible> {
        if turn == self.after_records {
            thread::sleep(self.stall);
        }
        self.tally.decided(once(&sent), Ok(()));
        Ok(())
    }
}

/// Fails every third record and acks the others, from another thread and some time after the send.
struct Refusing {
    outcomes: mpsc::SyncSender<(Instant, u64, Sent)>,
    delay: Duration,
    /// Refuses the record of this number at once.
    refused: u64,
}

impl Refusing {
    fn new(delay: Duration, tally: &Tally<u64>) -> Self {
        let (outcomes, due) = mpsc::sync_channel::<(Instant, u64, Sent)>(1000);
        let tally = tally.clone();
        thread::spawn(move || {
            for (at, number, sent) in due {
                sleep_until(at);
                tally.decided(once(&sent), if number % 3 == 0 { Err(&number) } else { Ok(()) });
            }
        });
        Self { outcomes, delay, refused: u64::MAX }
    }
}

impl Target for Refusing {
    type Error = u64;

    fn wait_for_room(&mut self, _: u64) -> bool {
        true
    }

    fn send(&mut self, turn: u64, _: &Outgoing<'_>, sent: Sent) -> Result<(), u64> {
        if turn + 1 == self.refused {
            return Err(turn + 1);
        }
        let outcome = (Instant::now() + self.delay, turn + 1, sent);
        self.outcomes.send(outcome).expect("the thread is there");
        Ok(())
    }
}

fn source() -> Source {
    Source {
        keys: KeySource::Distribution(Keys::new(KeyDistribution::None, 1, 1)),
        values: ValueSource::Payloads(Payloads::random(10, 1)),
        stamp: Stamp::None,
        clock: StampClock::new(),
    }
}

fn tally<E>(warmup_records: u64) -> Tally<E> {
    let steady_since = Arc::new(OnceLock::new());
    let (state, handed_over, orders) = Default::default();
    Tally { state, handed_over, warmup_records, steady_since, orders }
}

fn produce(rate: Option<f64>, records: u64) -> Produce {
    Produce { start: Instant::now(), rate: rate.and_then(Rate::per_second), quota: Some(records) }
}

/// Sends this many records, and waits for their outcomes.
fn run<T>(target: T, records: u64, rate: Option<f64>, tally: &Tally<T::Error>) -> Interval
where
    T: Target<Error: Clone + Sync>,
{
    tally.orders.give_last(produce(rate, records));
    Sending::new(target, tally.clone(), ALONE, source(), Arc::clone(&tally.orders)).run();
    while tally.pending() > 0 {
        thread::sleep(Duration::from_millis(1));
    }
    tally.take()
}

/// The self-check of the whole tool: 400 records a second for two seconds, one of which is a stall. Half of all records
/// were due in it, so half of all percentiles show it. Measured from the call of send, only one record does.
#[test]
fn stall_shows_in_the_percentiles() {
    let tally = tally(0);
    let target = Stalling { tally: tally.clone(), after_records: 100, stall: Duration::from_secs(1) };
    let interval = run(target, 800, Some(400.0), &tally);
    let (due, send) = (interval.steady.latency(), interval.steady.latency_from_send());
    assert_eq!((due.count(), send.count()), (800, 800));
    assert!(due.max_us() >= 1_000_000 && send.max_us() >= 1_000_000);
    let p90 = due.percentile_us(90.0);
    assert!(p90 >= 700_000, "p90 is {p90} us");
    assert!(due.percentile_us(75.0) >= 400_000, "p75 is {} us", due.percentile_us(75.0));
    assert!(send.percentile_us(99.0) < 500_000, "the old way hides it: {} us", send.percentile_us(99.0));
}

#[test]
fn late_load_catches_up_without_leaving_records_out() {
    let tally = tally(0);
    let target = Stalling { tally: tally.clone(), after_records: 10, stall: Duration::from_millis(800) };
    let begun = Instant::now();
    let interval = run(target, 1000, Some(1000.0), &tally);
    assert_eq!(interval.handed_over, 1000);
    let elapsed = begun.elapsed();
    assert!(elapsed >= Duration::from_millis(999), "{elapsed:?} is faster than the rate");
    assert!(elapsed < Duration::from_millis(1700), "{elapsed:?}: the stall was added to the schedule");
}

#[test]
fn warm_up_is_counted_apart_from_the_rest() {
    let tally = tally(30);
    let target = Stalling { tally: tally.clone(), after_records: u64::MAX, stall: Duration::ZERO };
    let interval = run(target, 100, None, &tally);
    assert_eq!((interval.warmup.records, interval.steady.records), (30, 70));
    assert_eq!(interval.all().bytes, 1000);
    assert!(tally.steady_since.get().is_some());
    assert!(!interval.steady.is_paced());
}

#[test]
fn unacked_records_are_counted_with_the_first_reason() {
    let tally = tally(0);
    let interval = run(Refusing::new(Duration::from_millis(20), &tally), 10, None, &tally);
    assert_eq!((interval.failed(), interval.steady.records, interval.all().bytes), (3, 7, 70));
    assert_eq!(interval.steady.latency().count(), 10, "those that failed have waited, too");
    assert_eq!(tally.lock().error, Some(3));
    let max_us = interval.steady.latency().max_us();
    assert!((20_000..400_000).contains(&max_us), "{max_us} us");
}

#[test]
fn refused_record_ends_the_load_but_loses_no_outcome() {
    let tally = tally(0);
    let target = Refusing { refused: 5, ..Refusing::new(Duration::from_millis(20), &tally) };
    let interval = run(target, 1000, None, &tally);
    assert_eq!((interval.handed_over, interval.acked(), interval.failed()), (4, 3, 1));
    assert_eq!(tally.lock().refusal, Some(5));
}

#[test]
fn load_ends_when_it_is_stopped() {
    let tally = tally(0);
    let watched = tally.clone();
    let ending = thread::spawn(move || {
        while watched.handed_over() < 10 {
            thread::sleep(Duration::from_millis(1));
        }
        watched.orders.end();
    });
    let interval = run(Refusing::new(Duration::from_millis(1), &tally), u64::MAX, Some(1000.0), &tally);
    ending.join().expect("it only sleeps");
    assert!(interval.handed_over >= 10, "{}", interval.handed_over);
    assert_eq!(interval.acked() + interval.failed(), interval.handed_over);
}

#[test]
fn senders_share_the_numbers_of_the_records() {
    let of = |first, own| (0..own as u64 * 3).map(move |turn| Place { first, own, total: 5 }.among_all(turn));
    let mut all: Vec<_> = of(0, 2).chain(of(2, 2)).chain(of(4, 1)).collect();
    all.sort_unstable();
    assert_eq!(all, (0..15).collect::<Vec<_>>());
}

/// Counts the records handed over, and keeps the waits of the overdue.
#[derive(Clone, Default)]
struct Late {
    sent: Arc<AtomicU64>,
    overdue: Arc<Mutex<Vec<(Duration, u64)>>>,
}

impl<E> Meter<E> for Late {
    fn sent(&self, _: &Sent) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    fn decided<'a>(&self, _: impl ExactSizeIterator<Item = &'a Sent>, _: Result<(), &E>) {}

    fn refused(&self, _: &Sent, _: E) {}

    fn overdue(&self, waited: impl Iterator<Item = (Duration, u64)>) {
        self.overdue.lock().expect("nobody panics").extend(waited);
    }
}

/// Takes this long for each record.
struct Slow(Duration);

impl Target for Slow {
    type Error = Infallible;

    fn wait_for_room(&mut self, _: u64) -> bool {
        true
    }

    fn send(&mut self, _: u64, _: &Outgoing<'_>, _: Sent) -> Result<(), Infallible> {
        thread::sleep(self.0);
        Ok(())
    }
}

/// A search for a rate changes it every few seconds: if the records due by then were forgotten, a server that cannot
/// keep up would appear to do so.
#[test]
fn unsent_records_count_their_wait_at_a_change_of_rate() {
    let (orders, late) = (Arc::<Orders>::default(), Late::default());
    let target = Slow(Duration::from_millis(20));
    let sending = Sending::new(target, late.clone(), ALONE, source(), Arc::clone(&orders));
    let thread = thread::spawn(move || sending.run());
    orders.give(Some(Produce { start: Instant::now(), rate: Rate::per_second(1000.0), quota: None }));
    thread::sleep(Duration::from_millis(400));
    let sent = late.sent.load(Ordering::Relaxed);
    orders.give_last(produce(Some(10.0), 3));
    thread.join().expect("it ended");
    let overdue = late.overdue.lock().expect("nobody panics").clone();
    let all = sent + overdue.len() as u64;
    assert!(sent < 100 && all >= 390, "{sent} sent, {} overdue", overdue.len());
    assert!(overdue[0].0 >= Duration::from_millis(300), "{:?}", overdue[0]);
    assert!(overdue.is_sorted_by(|one, next| one.0 >= next.0 && next.1 == 1));
}

/// Takes one record, waits in it for a message, and takes none after that.
struct Blocked(mpsc::Receiver<()>);

impl Target for Blocked {
    type Error = ();

    fn wait_for_room(&mut self, _: u64) -> bool {
        true
    }

    fn send(&mut self, _: u64, _: &Outgoing<'_>, _: Sent) -> Result<(), ()> {
        self.0.recv().map_err(|_| ())
    }
}

/// The server stalls, the client's buffer is full, and the thread hangs in `send` beyond the end of the load and
/// further orders.
#[test]
fn blocked_thread_reports_overdue_records_at_the_end() {
    let (orders, late) = (Arc::<Orders>::default(), Late::default());
    let (give_up, told) = mpsc::sync_channel(0);
    let sending = Sending::new(Blocked(told), late.clone(), ALONE, source(), Arc::clone(&orders));
    let thread = thread::spawn(move || sending.run());
    let begun = Instant::now();
    for rate in [1000.0, 10_000.0] {
        orders.give(Some(Produce { start: Instant::now(), rate: Rate::per_second(rate), quota: None }));
        thread::sleep(Duration::from_millis(200));
    }
    let held_s = begun.elapsed().as_secs_f64();
    orders.give(None);
    thread::sleep(Duration::from_millis(300));
    assert_eq!((late.overdue.lock().expect("nobody panics").len(), orders.idle()), (0, 0));
    drop(give_up);
    while orders.idle() == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let overdue = late.overdue.lock().expect("nobody panics").clone();
    let (all, sent) = (overdue.len() as f64, late.sent.load(Ordering::Relaxed));
    let due = 200.0 + (held_s - 0.2) * 10_000.0;
    assert!(sent == 1 && (all - due).abs() < due / 4.0, "{all} of about {due}, and {sent} sent");
    assert!(overdue[0].0 >= Duration::from_millis(600), "of the first order: {:?}", overdue[0]);
    let last = overdue[overdue.len() - 1].0;
    assert!(last >= Duration::from_millis(300), "none that was due after the last order: {last:?}");
    orders.end();
    thread.join().expect("it ended");
}

#[test]
fn records_are_overdue_only_if_the_thread_is_late() {
    let start = Instant::now();
    let schedule = Schedule::new(start, Rate::per_second(100.0));
    let now = start + Duration::from_millis(1005);
    let until =
        |sent, end, until| overdue(ALONE, schedule, &Left { sent, end, until }, now).collect::<Vec<_>>();
    let found = |sent, end| until(sent, end, now);
    assert_eq!(found(100, u64::MAX), [], "the last was due 5 ms ago");
    let late = found(51, u64::MAX);
    assert_eq!(late.len(), 50);
    let first = late[0].0.as_millis();
    assert!((494..=496).contains(&first), "{first} ms");
    assert_eq!(found(51, 60).len(), 9, "no more than were to be sent");
    assert_eq!(found(51, 51), []);
    let over = until(51, u64::MAX, start + Duration::from_millis(705));
    assert_eq!((over.len(), over[0]), (20, late[0]), "records due after the next orders are left out");
    assert_eq!(until(51, u64::MAX, start), []);
}

/// Ten million a second is a rate that is set to find the most that a server can do.
#[test]
fn very_many_overdue_records_are_reported_in_groups() {
    let start = Instant::now();
    let schedule = Schedule::new(start, Rate::per_second(1e7));
    let now = start + Duration::from_mins(15);
    let left = Left { sent: 1_000_000, end: u64::MAX, until: now };
    let told: Vec<_> = overdue(ALONE, schedule, &left, now).collect();
    assert!(told.len() <= 100_000, "{}", told.len());
    let count: u64 = told.iter().map(|(_, count)| count).sum();
    assert!((8_999_000_000..=8_999_000_001).contains(&count), "{count}");
    let mean_s =
        told.iter().map(|(late, count)| late.as_secs_f64() * *count as f64).sum::<f64>() / count as f64;
    assert!((mean_s - 449.95).abs() < 0.01, "{mean_s} s");
    assert!(told[0].0 > Duration::from_secs(899) && told[told.len() - 1].0 < Duration::from_millis(20));
}
