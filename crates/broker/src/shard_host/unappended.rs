//! Steps of a shard whose records wait until its log is open.
//!
//! A log is closed while it is idle, and to open it may take as long as its disk does. So a step under the shard's lock
//! opens nothing: where the log is closed, its records are left here, in the order of the steps, and a thread that may
//! block opens the log and appends them. Steps behind them wait here, too. Where the log cannot be opened, the shard is
//! ahead of it, and is discarded.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_log::AppendError;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::held::{HELD_STEPS_MAX, Release};
use super::machine::StateMachine;
use super::slot::{Loaded, Slot, SlotState};
use super::{ShardHost, batches};

/// The steps of one shard that wait for its log.
#[derive(Debug)]
pub(super) struct Unappended<R>(Mutex<Queue<R>>);

/// Invariants: changed under the shard's lock only. `is_served` while a thread opens the log, or is about to.
#[derive(Debug)]
struct Queue<R> {
    steps: VecDeque<Waiting<R>>,
    is_served: bool,
}

/// A step: its appends, since when they wait, and what goes out once they are durable.
#[derive(Debug)]
struct Waiting<R> {
    appends: Vec<Vec<u8>>,
    since: Instant,
    release: Release<R>,
}

impl<R> Default for Unappended<R> {
    fn default() -> Self {
        Self(Mutex::new(Queue { steps: VecDeque::new(), is_served: false }))
    }
}

impl<R> Unappended<R> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().steps.is_empty()
    }

    /// Whether something has waited for so long: the disk does not answer.
    pub(super) fn is_stuck(&self, time: Duration) -> bool {
        self.0.lock().steps.front().is_some_and(|step| step.since.elapsed() >= time)
    }

    /// Whether it does not answer, and so much waits for it that nothing should be added.
    pub(super) fn has_no_room(&self, time: Duration) -> bool {
        self.is_stuck(time) && self.0.lock().steps.len() >= HELD_STEPS_MAX
    }

    /// Adds a step. Answers whether a thread has to be begun that serves it.
    fn push(&self, appends: Vec<Vec<u8>>) -> bool {
        let mut queue = self.0.lock();
        queue.steps.push_back(Waiting { appends, since: Instant::now(), release: Release::default() });
        !std::mem::replace(&mut queue.is_served, true)
    }

    /// Adds to what the last step releases; gives it back if none waits.
    pub(super) fn join(&self, release: Release<R>) -> Option<Release<R>> {
        match self.0.lock().steps.back_mut() {
            Some(last) => {
                last.release.join(release);
                None
            }
            None => Some(release),
        }
    }

    /// Drops all steps: requests that wait for them find their senders gone.
    pub(super) fn clear(&self) {
        self.0.lock().steps.clear();
    }

    fn pop(&self) -> Option<Waiting<R>> {
        self.0.lock().steps.pop_front()
    }

    /// Whether a thread opens the log, or is about to.
    #[cfg(test)]
    pub(super) fn is_served(&self) -> bool {
        self.0.lock().is_served
    }

    /// The thread that serves them ends.
    fn end(&self) {
        self.0.lock().is_served = false;
    }
}

impl<M: StateMachine> ShardHost<M> {
    /// Makes the appends of a step, or leaves them to a thread that may block. The caller holds the shard's lock.
    pub(super) fn append(
        &self,
        slot: &Arc<Slot<M>>,
        loaded: &mut Loaded<M>,
        appends: Vec<Vec<u8>>,
    ) -> Result<(), AppendError> {
        if appends.is_empty() {
            return Ok(());
        }
        if slot.unappended.is_empty()
            && let Some(_kept_open) = loaded.partition.log.keep_if_open()
        {
            return self.append_now(slot, loaded, &appends);
        }
        if slot.unappended.push(appends)
            && let Some(host) = self.this.upgrade()
        {
            let slot = Arc::clone(slot);
            spawn_blocking(move || {
                let served = catch_unwind(AssertUnwindSafe(|| host.serve_unappended(&slot)));
                served.unwrap_or_else(|panic| {
                    host.give_up_unappended(&slot);
                    resume_unwind(panic)
                });
            });
        }
        Ok(())
    }

    fn append_now(
        &self,
        slot: &Slot<M>,
        loaded: &mut Loaded<M>,
        appends: &[Vec<u8>],
    ) -> Result<(), AppendError> {
        for bytes in appends {
            batches::append_encoded(&self.options, &loaded.partition, bytes, &mut loaded.last)?;
        }
        slot.note_appended();
        Ok(())
    }

    /// Opens the log of a shard and makes the appends that wait for it. Blocks for the disk.
    fn serve_unappended(&self, slot: &Slot<M>) {
        loop {
            let (load, partition) = {
                let state = slot.state();
                match state.loaded() {
                    Some(loaded) if !slot.unappended.is_empty() => {
                        (loaded.load, Arc::clone(&loaded.partition))
                    }
                    _ => return slot.unappended.end(),
                }
            };
            let kept_open = partition.log.keep_open();
            let mut state = slot.state();
            if state.loaded().is_none_or(|loaded| loaded.load != load) {
                // Steps that wait now wait for another load of the shard, whatever came of this opening.
                continue;
            }
            let appended = match kept_open {
                Ok(_kept_open) => self.append_waiting(slot, &mut state),
                Err(error) => Err(error.into()),
            };
            if let Err(error) = appended {
                self.discard(slot, &mut state, &error);
            }
        }
    }

    /// The thread that served a shard has panicked: what it was about to append is lost. The next step begins another
    /// thread.
    fn give_up_unappended(&self, slot: &Slot<M>) {
        let mut state = slot.state();
        self.discard_because(slot, &mut state, &"the thread that opens its log has panicked");
        slot.unappended.end();
    }

    fn append_waiting(&self, slot: &Slot<M>, state: &mut SlotState<M>) -> Result<(), AppendError> {
        let Some(loaded) = state.loaded_mut() else { return Ok(()) };
        while let Some(step) = slot.unappended.pop() {
            self.append_now(slot, loaded, &step.appends)?;
            slot.release_now(loaded, step.release);
        }
        Ok(())
    }
}
