//! Threads that send, and the handle on them.
//!
//! A thread has its lanes to itself or shares producers with others; the rate and the records are shared out evenly
//! among the threads, and the numbers of the records interleave.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use riverrun_client::ClientError;
use tokio::runtime::Handle;

use super::LoadError;
use super::figures::Interval;
use super::sending::{Control, Numbers, Sending, Shared};
use super::target::{Lane, Lanes};
use crate::keys::Keys;
use crate::pacing::{Rate, Schedule};
use crate::payload::Payloads;

/// What is sent, and how fast.
#[derive(Debug)]
pub struct ProduceLoad {
    /// For each thread the lanes that it sends over in turn; none of them is empty.
    pub threads: Vec<Vec<Lane>>,
    /// Records in all.
    pub records: u64,
    /// The first of them, which are counted apart.
    pub warmup_records: u64,
    /// Records per second of all threads together; none for as fast as it goes.
    pub rate: Option<Rate>,
    /// Their values.
    pub payloads: Payloads,
    /// Their keys.
    pub keys: Keys,
}

/// A load under way. Dropping it lets it go on; see [`stop`](Self::stop).
///
/// Invariants: one of `shared` for each thread that was started.
#[derive(Debug)]
pub struct ProduceRun {
    threads: Vec<JoinHandle<Result<(), ClientError>>>,
    shared: Vec<Arc<Shared<ClientError>>>,
    control: Arc<Control>,
    started: Instant,
}

impl ProduceLoad {
    /// Starts the threads; the first record is due now. The producers' tasks run on `runtime`.
    pub fn start(mut self, runtime: &Handle) -> Result<ProduceRun, LoadError> {
        let started = Instant::now();
        let control = Arc::new(Control {
            stop: AtomicBool::new(false),
            warmup_records: self.warmup_records,
            steady_since: OnceLock::new(),
        });
        let mut run = ProduceRun { threads: Vec::new(), shared: Vec::new(), control, started };
        let count = self.threads.len();
        for (index, lanes) in std::mem::take(&mut self.threads).into_iter().enumerate() {
            if let Err(error) = self.start_thread(&mut run, runtime, lanes, (index, count)) {
                run.stop();
                return Err(error);
            }
        }
        Ok(run)
    }

    fn start_thread(
        &mut self,
        run: &mut ProduceRun,
        runtime: &Handle,
        lanes: Vec<Lane>,
        (index, count): (usize, usize),
    ) -> Result<(), LoadError> {
        let shared = Arc::new(Shared::default());
        let sending = Sending::new(
            Lanes::new(runtime.clone(), lanes),
            Numbers::new(index, count, self.records),
            Schedule::new(run.started, self.rate),
            (self.payloads.another(), self.keys.another()),
            Arc::clone(&run.control),
            Arc::clone(&shared),
        );
        let thread = thread::Builder::new().name(format!("send-{index}")).spawn(move || sending.run());
        run.threads.push(thread.map_err(LoadError::Thread)?);
        run.shared.push(shared);
        Ok(())
    }
}

impl ProduceRun {
    /// When its first record was due.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// When the first record after the warm-up was sent; none before.
    pub fn steady_since(&self) -> Option<Instant> {
        self.control.steady_since.get().copied()
    }

    /// When the last thread had the last outcome; none before.
    pub fn finished(&self) -> Option<Instant> {
        let times: Option<Vec<_>> = self.shared.iter().map(|shared| shared.finished.get().copied()).collect();
        times?.into_iter().max()
    }

    /// What happened since the last call, of all threads.
    pub fn take(&self) -> Interval {
        let mut sum = Interval::default();
        for shared in &self.shared {
            sum.merge(&shared.take());
        }
        sum
    }

    /// Why a record was not acked: the first reason of a thread that was not asked for yet.
    pub fn take_error(&self) -> Option<ClientError> {
        self.shared.iter().find_map(|shared| shared.take_error())
    }

    /// Lets the threads send no more. They still wait for what they have sent.
    pub fn stop(&self) {
        self.control.stop.store(true, Ordering::Relaxed);
    }

    /// Whether all threads have ended.
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits for the threads. Afterwards, [`take`](Self::take) has the rest. Fails if a record was not even taken.
    pub fn join(&mut self) -> Result<(), LoadError> {
        let mut outcome = Ok(());
        for thread in self.threads.drain(..) {
            let ended = thread.join().map_err(|_| LoadError::Broken);
            outcome = outcome.and(ended.and_then(|ended| ended.map_err(LoadError::from)));
        }
        outcome
    }
}
