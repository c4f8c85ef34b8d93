//! Threads that send a number of records, and the handle on them.
//!
//! A thread has its lanes to itself or shares producers with others. The rate and the records are divided evenly among
//! the threads, whose record numbers interleave.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use riverrun_client::ClientError;
use riverrun_measure::pacing::Rate;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::LoadError;
use super::clock::StampClock;
use super::figures::Interval;
use super::meter::{Meter, Sent};
use super::orders::{Orders, Produce};
use super::sending::{Place, Sending, Source};
use super::target::{Lane, Lanes};
use crate::keys::Keys;
use crate::payload::Payloads;
use crate::plan::{KeySource, Stamp, ValueSource};

/// Records to send, and their rate.
#[derive(Debug)]
pub struct ProduceLoad {
    /// The lanes of each thread, none of them empty; a thread sends over its lanes in turn.
    pub threads: Vec<Vec<Lane>>,
    /// Records in all.
    pub records: u64,
    /// The first records, which are counted apart.
    pub warmup_records: u64,
    /// Records per second of all threads together; `None` for as fast as possible.
    pub rate: Option<Rate>,
    /// Their values.
    pub payloads: Payloads,
    /// Their keys.
    pub keys: Keys,
}

/// A running load. Dropping it ends the load.
///
/// Invariants: one of `tallies` for each thread that was started.
#[derive(Debug)]
pub struct ProduceRun {
    threads: Vec<JoinHandle<()>>,
    tallies: Vec<Tally<ClientError>>,
    steady_since: Arc<OnceLock<Instant>>,
    orders: Arc<Orders>,
    /// Dropped with the run, which ends threads that wait for room.
    wanted: watch::Sender<()>,
    started: Instant,
}

impl ProduceLoad {
    /// Starts the threads; the first record is due now. The producers' tasks run on `runtime`.
    pub fn start(mut self, runtime: &Handle) -> Result<ProduceRun, LoadError> {
        let started = Instant::now();
        let mut run = ProduceRun {
            threads: Vec::new(),
            tallies: Vec::new(),
            steady_since: Arc::default(),
            orders: Arc::default(),
            wanted: watch::Sender::new(()),
            started,
        };
        let total = self.threads.len();
        for (first, lanes) in std::mem::take(&mut self.threads).into_iter().enumerate() {
            self.start_thread(&mut run, runtime, lanes, Place { first, own: 1, total })?;
        }
        run.orders.give_last(Produce { start: started, rate: self.rate, quota: Some(self.records) });
        Ok(run)
    }

    fn start_thread(
        &mut self,
        run: &mut ProduceRun,
        runtime: &Handle,
        lanes: Vec<Lane>,
        place: Place,
    ) -> Result<(), LoadError> {
        let tally = Tally {
            state: Arc::default(),
            handed_over: Arc::default(),
            warmup_records: self.warmup_records,
            steady_since: Arc::clone(&run.steady_since),
            orders: Arc::clone(&run.orders),
        };
        let source = Source {
            keys: KeySource::Distribution(self.keys.another()),
            values: ValueSource::Payloads(self.payloads.another()),
            stamp: Stamp::None,
            clock: StampClock::new(),
        };
        let lanes = Lanes::new(runtime.clone(), lanes, run.wanted.subscribe(), || tally.clone());
        let sending = Sending::new(lanes, tally.clone(), place, source, Arc::clone(&run.orders));
        run.threads.push(sending.start(runtime).map_err(LoadError::Thread)?);
        run.tallies.push(tally);
        Ok(())
    }
}

/// Outcomes of a thread's records.
///
/// Invariants: `interval.handed_over` is empty until it is taken.
#[derive(Debug)]
pub(super) struct State<E> {
    interval: Interval,
    /// Records whose outcome is known.
    decided: u64,
    /// Records that were handed over when the last interval was taken.
    taken: u64,
    last_outcome: Option<Instant>,
    pub(super) error: Option<E>,
    pub(super) refusal: Option<E>,
}

impl<E> Default for State<E> {
    fn default() -> Self {
        Self {
            interval: Interval::default(),
            decided: 0,
            taken: 0,
            last_outcome: None,
            error: None,
            refusal: None,
        }
    }
}

/// The meter of a thread.
///
/// Invariants: `handed_over` counts a record before it is decided, and no refused one.
#[derive(Debug)]
pub(super) struct Tally<E> {
    pub(super) state: Arc<Mutex<State<E>>>,
    /// Changed by the sending thread, without a lock.
    pub(super) handed_over: Arc<AtomicU64>,
    /// Records below this number warm up.
    pub(super) warmup_records: u64,
    /// When the first record after the warm-up was sent, by any thread.
    pub(super) steady_since: Arc<OnceLock<Instant>>,
    pub(super) orders: Arc<Orders>,
}

impl<E> Clone for Tally<E> {
    fn clone(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            handed_over: Arc::clone(&self.handed_over),
            warmup_records: self.warmup_records,
            steady_since: Arc::clone(&self.steady_since),
            orders: Arc::clone(&self.orders),
        }
    }
}

impl<E> Tally<E> {
    pub(super) fn lock(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outcome(&self, now: Instant) -> MutexGuard<'_, State<E>> {
        let mut state = self.lock();
        state.last_outcome = Some(now);
        state
    }

    /// Records that were handed over so far.
    pub(super) fn handed_over(&self) -> u64 {
        self.handed_over.load(Ordering::Relaxed)
    }

    /// Records whose outcome is not known yet. Final only when the thread has ended.
    pub(super) fn pending(&self) -> u64 {
        let decided = self.lock().decided;
        self.handed_over().saturating_sub(decided)
    }

    /// Outcomes since the last call.
    pub(super) fn take(&self) -> Interval {
        let mut state = self.lock();
        let handed_over = self.handed_over();
        let before = std::mem::replace(&mut state.taken, handed_over);
        let interval = std::mem::take(&mut state.interval);
        Interval { handed_over: handed_over.saturating_sub(before), ..interval }
    }
}

impl<E: Clone + Send + Sync + 'static> Meter<E> for Tally<E> {
    fn sent(&self, sent: &Sent) {
        if sent.number >= self.warmup_records {
            self.steady_since.get_or_init(|| sent.begun);
        }
        // Only this thread changes it, so a load and a store are enough.
        self.handed_over.store(self.handed_over() + 1, Ordering::Relaxed);
    }

    fn decided<'a>(&self, sent: impl ExactSizeIterator<Item = &'a Sent>, outcome: Result<(), &E>) {
        let now = Instant::now();
        let mut state = self.outcome(now);
        state.decided += sent.len() as u64;
        if let Err(error) = outcome {
            state.error.get_or_insert_with(|| error.clone());
        }
        let interval = &mut state.interval;
        let since = |begin: Instant| now.saturating_duration_since(begin);
        for sent in sent {
            let is_steady = sent.number >= self.warmup_records;
            let figures = if is_steady { &mut interval.steady } else { &mut interval.warmup };
            let (from_due, from_send) = (sent.due.map(since), since(sent.begun));
            match outcome {
                Ok(()) => figures.record(sent.bytes as u64, from_due, from_send),
                Err(_) => figures.fail(from_due, from_send),
            }
        }
    }

    fn refused(&self, _: &Sent, error: E) {
        // The figures of the others would be those of another load.
        self.orders.end();
        self.handed_over.store(self.handed_over() - 1, Ordering::Relaxed);
        self.outcome(Instant::now()).refusal.get_or_insert(error);
    }

    /// Not counted: a run that ends before its last record reports that it was interrupted.
    fn overdue(&self, _: impl Iterator<Item = (Duration, u64)>) {}
}

impl ProduceRun {
    /// When its first record was due.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// When the first record after the warm-up was sent; `None` before.
    pub fn steady_since(&self) -> Option<Instant> {
        self.steady_since.get().copied()
    }

    /// When the latest outcome became known; `None` before the first.
    pub fn last_outcome(&self) -> Option<Instant> {
        self.tallies.iter().filter_map(|tally| tally.lock().last_outcome).max()
    }

    /// Whether all records were sent and all outcomes are known.
    pub fn is_done(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
            && self.tallies.iter().all(|tally| tally.pending() == 0)
    }

    /// Outcomes since the last call, of all threads.
    pub fn take(&self) -> Interval {
        let mut sum = Interval::default();
        for tally in &self.tallies {
            sum.merge(&tally.take());
        }
        sum
    }

    /// The reason why a record was not acked: the first one of a thread, returned once.
    pub fn take_error(&self) -> Option<ClientError> {
        self.tallies.iter().find_map(|tally| tally.lock().error.take())
    }

    /// Makes the threads send no more. The records already sent still get their outcomes.
    pub fn stop(&self) {
        self.orders.end();
    }

    /// Waits for the threads. Fails if the client refused a record.
    pub fn join(&mut self) -> Result<(), LoadError> {
        let mut outcome = Ok(());
        for thread in self.threads.drain(..) {
            outcome = outcome.and(thread.join().map_err(|_| LoadError::Broken));
        }
        let refusal = self.tallies.iter().find_map(|tally| tally.lock().refusal.take());
        outcome.and(refusal.map_or(Ok(()), |error| Err(error.into())))
    }
}

/// Ends the threads of a load that could not be started completely; those of a complete one end by themselves.
impl Drop for ProduceRun {
    fn drop(&mut self) {
        self.orders.end();
    }
}
