//! The loop against a target whose every delay is known: what a stall does to the figures.

use std::convert::Infallible;
use std::thread;

use super::*;
use crate::keys::KeyDistribution;
use crate::pacing::Rate;

/// Acks at once, except that it takes nothing for a while after a number of records.
struct Stalling {
    after_records: u64,
    stall: Duration,
    taken: u64,
}

impl Target for Stalling {
    type Pending = Instant;
    type Error = Infallible;

    fn send(&mut self, _: Option<&[u8]>, _: &[u8]) -> Result<Instant, Infallible> {
        if self.taken == self.after_records {
            thread::sleep(self.stall);
        }
        self.taken += 1;
        Ok(Instant::now())
    }

    fn poll(&mut self, pending: &mut Instant) -> Option<Result<Instant, Infallible>> {
        Some(Ok(*pending))
    }

    fn wait(&mut self, pending: Instant) -> Result<Instant, Infallible> {
        Ok(pending)
    }
}

/// Takes every record and acks none of every third; acks come a fixed time after the send.
struct Refusing {
    sent: u64,
    delay: Duration,
    /// Has everybody stop with the record of this number.
    stop: Option<(u64, Arc<Control>)>,
}

impl Target for Refusing {
    type Pending = (u64, Instant);
    type Error = u64;

    fn send(&mut self, _: Option<&[u8]>, _: &[u8]) -> Result<(u64, Instant), u64> {
        self.sent += 1;
        if let Some((last, control)) = &self.stop
            && self.sent == *last
        {
            control.stop.store(true, Ordering::Relaxed);
        }
        Ok((self.sent, Instant::now() + self.delay))
    }

    fn poll(&mut self, pending: &mut (u64, Instant)) -> Option<Result<Instant, u64>> {
        let (number, acked) = *pending;
        (Instant::now() >= acked).then_some(if number % 3 == 0 { Err(number) } else { Ok(acked) })
    }

    fn wait(&mut self, mut pending: (u64, Instant)) -> Result<Instant, u64> {
        // Late, as whoever waits for one ack after the other is.
        sleep_until(pending.1 + Duration::from_millis(500));
        self.poll(&mut pending).expect("its time has passed")
    }
}

fn control(warmup_records: u64) -> Arc<Control> {
    Arc::new(Control { stop: AtomicBool::new(false), warmup_records, steady_since: OnceLock::new() })
}

fn run<T: Target>(
    target: T,
    records: u64,
    rate: Option<f64>,
    control: &Arc<Control>,
) -> (Interval, Arc<Shared<T::Error>>)
where
    T::Error: std::fmt::Debug,
{
    let rate = rate.map(|rate| Rate::per_second(rate).expect("a rate"));
    let sources = (Payloads::random(10, 1), Keys::new(KeyDistribution::None, 1, 1));
    let schedule = Schedule::new(Instant::now(), rate);
    let shared = Arc::new(Shared::default());
    let numbers = Numbers::new(0, 1, records);
    Sending::new(target, numbers, schedule, sources, Arc::clone(control), Arc::clone(&shared)).run().unwrap();
    (shared.take(), shared)
}

/// The self-check of the whole tool. 400 records a second for two seconds, of which one is a stall: half of all
/// records were due in it, so half of all percentiles show it. Measured from the call of send, one record does.
#[test]
fn a_stall_of_a_second_shows_in_the_percentiles_and_not_only_in_the_maximum() {
    let stall = Duration::from_secs(1);
    let target = Stalling { after_records: 100, stall, taken: 0 };
    let (interval, _) = run(target, 800, Some(400.0), &control(0));
    let (due, send) = (interval.steady.latency(), interval.steady.latency_from_send());
    assert_eq!((due.count(), send.count()), (800, 800));
    assert!(due.max_us() >= 1_000_000 && send.max_us() >= 1_000_000);
    let p90 = due.percentile_us(90.0);
    assert!(p90 >= 700_000, "p90 is {p90} us");
    assert!(due.percentile_us(75.0) >= 400_000, "p75 is {} us", due.percentile_us(75.0));
    assert!(send.percentile_us(99.0) < 500_000, "the old way hides it: {} us", send.percentile_us(99.0));
}

#[test]
fn a_load_that_fell_behind_makes_up_for_it_and_leaves_nothing_out() {
    let target = Stalling { after_records: 10, stall: Duration::from_millis(800), taken: 0 };
    let begun = Instant::now();
    let (interval, _) = run(target, 1000, Some(1000.0), &control(0));
    assert_eq!(interval.handed_over, 1000);
    let elapsed = begun.elapsed();
    assert!(elapsed >= Duration::from_millis(999), "{elapsed:?} is faster than the rate");
    assert!(elapsed < Duration::from_millis(1700), "{elapsed:?}: the stall was added to the schedule");
}

#[test]
fn warm_up_is_counted_apart_and_the_rest_begins_when_its_first_record_is_sent() {
    let control = control(30);
    let target = Stalling { after_records: u64::MAX, stall: Duration::ZERO, taken: 0 };
    let (interval, _) = run(target, 100, None, &control);
    assert_eq!((interval.warmup.records, interval.steady.records), (30, 70));
    assert_eq!(interval.all().bytes, 1000);
    assert!(control.steady_since.get().is_some());
    assert!(!interval.steady.is_paced());
}

#[test]
fn what_is_not_acked_is_counted_and_the_first_reason_kept() {
    let target = Refusing { sent: 0, delay: Duration::from_millis(20), stop: None };
    let (interval, shared) = run(target, 10, None, &control(0));
    assert_eq!((interval.failed, interval.steady.records), (3, 7));
    assert_eq!(shared.take_error(), Some(3));
    // Somebody looked much later, and the latency is what the target says.
    let max_us = interval.steady.latency().max_us();
    assert!((20_000..400_000).contains(&max_us), "{max_us} us");
}

#[test]
fn it_stops_when_it_is_told_to_and_settles_what_it_has_sent() {
    let control = control(0);
    let delay = Duration::from_millis(1);
    let target = Refusing { sent: 0, delay, stop: Some((5, Arc::clone(&control))) };
    let (interval, _) = run(target, u64::MAX, Some(1000.0), &control);
    assert_eq!((interval.handed_over, interval.acked(), interval.failed), (5, 4, 1));
}

#[test]
fn senders_share_the_numbers_without_a_gap() {
    let mut all: Vec<_> = (0..3).flat_map(|index| Numbers::new(index, 3, 10)).collect();
    all.sort_unstable();
    assert_eq!(all, (0..10).collect::<Vec<_>>());
}
