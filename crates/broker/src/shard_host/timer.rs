//! The one timer of a host: sleeps until the nearest deadline of any shard.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use riverrun_coordinator::{Moment, Setting};
use riverrun_protocol::ErrorCode;
use tokio::sync::Notify;

use super::ShardHost;
use super::at_length::Work;
use super::line::Asker;
use super::machine::{HostOptions, StateMachine};
use super::slot::Slot;
use crate::stop_signal::{StopSignal, stopped};

/// The longest sleep: the system may have slept, and a deadline must not be missed by more than this. Nor is a clock that was
/// set.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The nearest deadline that the timer knows.
#[derive(Debug)]
pub(super) struct Alarm {
    at_ms: AtomicI64,
    sooner: Notify,
}

impl Default for Alarm {
    fn default() -> Self {
        Self { at_ms: AtomicI64::new(i64::MAX), sooner: Notify::new() }
    }
}

impl Alarm {
    /// Sees to it that the timer wakes at `deadline` or before.
    pub(super) fn set(&self, deadline: Moment) {
        if self.at_ms.fetch_min(deadline.0, Ordering::AcqRel) > deadline.0 {
            self.sooner.notify_one();
        }
    }

    /// Waits for the nearest deadline, or for somebody to set the wall clock, which was set like this when last looked at.
    async fn rings(&self, options: &HostOptions, known: &mut Setting) {
        loop {
            let now = options.now();
            if now.setting().is_other_than(*known) {
                *known = now.setting();
                return;
            }
            let wait_ms = self.at_ms.load(Ordering::Acquire).saturating_sub(now.moment.0);
            let Ok(wait_ms @ 1..) = u64::try_from(wait_ms) else { return };
            let sleep = tokio::time::sleep(Duration::from_millis(wait_ms).min(SLEEP_MAX));
            tokio::select! {
                () = sleep => {}
                () = self.sooner.notified() => {}
            }
        }
    }
}

/// How often shards that have rested are looked for.
const RETRY_CHECK: Duration = Duration::from_secs(1);

impl<M: StateMachine> ShardHost<M> {
    /// Loads all shards, and serves the deadlines of those that are there, until `stop` turns true. One that cannot be loaded
    /// for the moment holds up none of the others. What a wrong clock has given is written anew before the end, too.
    pub(crate) async fn run_timer(self: Arc<Self>, mut stop: StopSignal) {
        let work = async { tokio::join!(self.load_all(), self.serve_deadlines()) };
        tokio::select! {
            () = stopped(&mut stop) => {}
            _ = work => {}
        }
        self.correct_times().await;
    }

    /// Loads shards again that have rested, though nobody asks for them, until `stop` turns true: they are not told of as
    /// failed for longer than that. A task of its own, because loading waits for what the disk does with records.
    pub(crate) async fn run_retries(self: Arc<Self>, mut stop: StopSignal) {
        let retries = async {
            loop {
                tokio::time::sleep(RETRY_CHECK).await;
                self.load_rested().await;
            }
        };
        tokio::select! {
            () = stopped(&mut stop) => {}
            () = retries => {}
        }
    }

    /// Writes times anew that a clock gave which was set a moment ago: another run cannot.
    async fn correct_times(&self) {
        for slot in self.known_slots() {
            let is_due = || {
                let now = self.options.now();
                slot.state().loaded_mut().is_some_and(|loaded| loaded.machine.note_clocks(now))
            };
            while is_due() && self.expire(slot.index).is_ok() {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Acts on what is due in a shard. A failed append is logged where it happens.
    fn expire(&self, index: usize) -> Result<(), ErrorCode> {
        self.step(index, None, |machine, now| machine.expire(&self.world, index, now))
    }

    /// Serves the deadlines of parts for which that takes long, each by a task of its own on a thread that may block.
    fn expire_at_length(self: &Arc<Self>, slot: &Slot<M>) {
        let due = || slot.state().loaded_mut()?.machine.due_at_length(self.options.now());
        while let Some(key) = due() {
            let (host, index) = (Arc::clone(self), slot.index);
            tokio::spawn(async move {
                let cost = |machine: &M| machine.cost_of_all(&key);
                let work = Work { asker: Asker::SERVER, key: &key, cost };
                let expire = |machine: &mut M, now| machine.expire_part(&host.world, &key, now);
                // A failed append is logged where it happens.
                let _ = host.step_of(index, work, None, expire).await;
            });
        }
    }

    async fn serve_deadlines(self: &Arc<Self>) {
        let mut known = self.options.now().setting();
        loop {
            self.alarm.rings(&self.options, &mut known).await;
            // Steps that follow set it again; one that runs meanwhile is seen by the loop below or sets it itself.
            self.alarm.at_ms.store(i64::MAX, Ordering::Release);
            let now = self.options.now();
            for slot in self.known_slots() {
                let deadline = slot.state().loaded_mut().and_then(|loaded| {
                    loaded.machine.note_clocks(now);
                    loaded.machine.next_deadline()
                });
                match deadline {
                    Some(deadline) if deadline <= now.moment => {
                        self.expire_at_length(slot);
                        // One whose append has failed is loaded at the next request.
                        let _ = self.expire(slot.index);
                    }
                    Some(deadline) => self.alarm.set(deadline),
                    None => {}
                }
                // Each shard may have a whole slice to do.
                tokio::task::yield_now().await;
            }
        }
    }
}
