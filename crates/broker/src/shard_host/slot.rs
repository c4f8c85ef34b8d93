//! One shard of a host: whether it is there, what waits for it, and why it is not.
//!
//! Guarantees that a shard whose records were lost is not used again: it is discarded, and rests, before it is loaded anew.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use riverrun_env::Clock;
use riverrun_log::Appended;
use riverrun_protocol::ErrorCode;
use riverrun_types::Acks;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::held::{Held, Release, Unanswered};
use super::line::Lines;
use super::machine::{HostOptions, StateMachine};
use super::rest::{Failures, REST};
use super::unappended::Unappended;
use crate::aside::waiting;
use crate::partitions::{AckWaiter, NotDurable, Partition};

/// The acks that a shard's records ask for: all that their level gives.
const ACKS: Acks = Acks::All;

/// A shard that is loaded, and the partition that it writes to.
#[derive(Debug)]
pub(super) struct Loaded<M> {
    pub(super) machine: M,
    pub(super) partition: Arc<Partition>,
    /// The last batch that was appended for it.
    pub(super) last: Option<Appended>,
    /// Records that its load has left out, because the bounds of the machines had no room for them.
    pub(super) left_out: u64,
    /// Which load of its shard it is: a part that was lent by another one does not come back to it.
    pub(super) load: u64,
}

impl<M> Loaded<M> {
    /// Whether its log holds all that the machine knows; an error: never will.
    fn is_durable(&self) -> Option<Result<(), NotDurable>> {
        self.last.map_or(Some(Ok(())), |last| self.partition.outcome(last, ACKS))
    }
}

/// The last batch of a shard that failed, and the one waiter of all who try to load the shard until it is decided what
/// comes of that batch.
#[derive(Debug)]
pub(super) struct Last {
    partition: Arc<Partition>,
    batch: Appended,
    waiter: Arc<AckWaiter>,
}

impl Last {
    fn new(partition: Arc<Partition>, batch: Appended) -> Self {
        let waiter = Arc::new(AckWaiter::default());
        partition.expect_ack(batch, ACKS, 0, &waiter);
        Self { partition, batch, waiter }
    }

    fn is_decided(&self) -> bool {
        self.partition.outcome(self.batch, ACKS).is_some()
    }
}

/// Whether a shard is there.
#[derive(Debug)]
pub(super) enum SlotState<M> {
    /// Nobody has asked for it yet.
    NotLoaded,
    Loaded(Box<Loaded<M>>),
    /// It could not be loaded, or not append. Nobody tries again before this monotonic time, nor before it is decided
    /// what comes of the last batch that was appended.
    Failed {
        retry_at: Duration,
        last: Option<Last>,
    },
}

impl<M> SlotState<M> {
    pub(super) fn loaded(&self) -> Option<&Loaded<M>> {
        match self {
            Self::Loaded(loaded) => Some(loaded),
            _ => None,
        }
    }

    pub(super) fn loaded_mut(&mut self) -> Option<&mut Loaded<M>> {
        match self {
            Self::Loaded(loaded) => Some(loaded),
            _ => None,
        }
    }

    fn fail(&mut self, retry_at: Duration) {
        let last = match std::mem::replace(self, Self::NotLoaded) {
            Self::Loaded(loaded) => loaded.last.map(|last| Last::new(loaded.partition, last)),
            // That may still not be decided.
            Self::Failed { last, .. } => last,
            Self::NotLoaded => None,
        };
        *self = Self::Failed { retry_at, last };
    }

    /// Whether the shard is loaded, or why it is not to be loaded now.
    pub(super) fn is_loaded(&self, clock: &dyn Clock) -> Result<bool, ErrorCode> {
        match self {
            Self::Loaded(_) => Ok(true),
            Self::Failed { retry_at, .. } if clock.monotonic() < *retry_at => {
                Err(ErrorCode::COORDINATOR_NOT_AVAILABLE)
            }
            Self::NotLoaded | Self::Failed { .. } => Ok(false),
        }
    }

    /// Whether the shard has failed and rested. Of one whose records still wait for the disk it is known that it cannot be
    /// loaded yet.
    pub(super) fn has_rested(&self, clock: &dyn Clock) -> bool {
        match self {
            Self::Failed { retry_at, last } => {
                *retry_at <= clock.monotonic() && last.as_ref().is_none_or(Last::is_decided)
            }
            _ => false,
        }
    }
}

/// The place of one shard, whether it is loaded or not.
///
/// Invariants: `loading` is held while `state` becomes loaded.
#[derive(Debug)]
pub(super) struct Slot<M: StateMachine> {
    pub(super) index: usize,
    pub(super) state: Mutex<SlotState<M>>,
    pub(super) loading: tokio::sync::Mutex<()>,
    pub(super) held: Arc<Held<M::Response>>,
    /// Steps that wait for the log to be opened.
    pub(super) unappended: Unappended<M::Response>,
    /// Requests that wait for a part that is lent.
    pub(super) lines: Lines,
    pub(super) loads: AtomicU64,
    failures: Failures,
    /// Why the shard has failed last.
    trouble: Mutex<String>,
    options: Arc<HostOptions>,
}

impl<M: StateMachine> Slot<M> {
    pub(super) fn new(
        index: usize,
        unanswered: &Unanswered<M::Response>,
        options: &Arc<HostOptions>,
    ) -> Self {
        Self {
            index,
            state: Mutex::new(SlotState::NotLoaded),
            loading: tokio::sync::Mutex::default(),
            held: Arc::new(Held::new(index, Arc::clone(unanswered))),
            unappended: Unappended::default(),
            lines: Lines::default(),
            loads: AtomicU64::new(0),
            failures: Failures::default(),
            trouble: Mutex::default(),
            options: Arc::clone(options),
        }
    }

    /// The state, which is none of a shard whose records were lost.
    pub(super) fn state(&self) -> MutexGuard<'_, SlotState<M>> {
        let mut state = self.state.lock();
        if self.held.take_failure()
            && let Some(why) = state.loaded().map(|loaded| self.lost(&loaded.partition))
        {
            self.fail(&mut state, &why);
        }
        state
    }

    /// Whether the shard is loaded, or why it is not to be loaded now.
    pub(super) fn is_loaded(&self) -> Result<bool, ErrorCode> {
        self.state().is_loaded(&*self.options.clock)
    }

    /// Why the shard has failed, if it has, and was not loaded again.
    pub(super) fn failure(&self) -> Option<String> {
        let has_failed = matches!(*self.state(), SlotState::Failed { .. });
        has_failed.then(|| self.trouble.lock().clone())
    }

    /// Discards the shard, and lets it rest. Says why, unless it is the same trouble as before, or others were in trouble
    /// a moment ago.
    pub(super) fn fail(&self, state: &mut SlotState<M>, why: &dyn fmt::Display) {
        let rest = self.failures.count();
        self.unappended.clear();
        state.fail(self.options.clock.monotonic() + rest.lasts);
        *self.trouble.lock() = why.to_string();
        let (shard, what) = (self.index, self.options.what);
        tracing::debug!(shard, error = %why, rest = ?rest.lasts, "the {what} of a partition rest");
        if rest.is_first {
            self.options.trouble.warn(|suppressed| {
                tracing::error!(
                    shard, error = %why, suppressed,
                    "{what} take no changes while their partition is in trouble; others may follow"
                );
            });
        }
    }

    /// That records of the shard were lost, and why that is.
    pub(super) fn lost(&self, partition: &Partition) -> String {
        let reason = partition.log.loss_reason().map(|reason| format!(": {reason}"));
        format!("{} were lost{}", self.options.records, reason.unwrap_or_default())
    }

    /// The log has taken records.
    pub(super) fn note_appended(&self) {
        if self.failures.end() {
            let what = self.options.what;
            tracing::info!(shard = self.index, "the {what} of a partition take changes again");
        }
    }

    /// Waits until it is decided what comes of the last batch of a shard that failed: what the log holds is known then.
    /// But not for longer than requests wait for the disk. The caller holds `loading`: only one waits.
    pub(super) async fn await_last_outcome(&self) -> Result<(), ErrorCode> {
        let waiter = match &*self.state.lock() {
            SlotState::Failed { last: Some(last), .. } => Some(Arc::clone(&last.waiter)),
            _ => None,
        };
        if let Some(waiter) = waiter
            && timeout(self.options.stuck_after, waiter.decided()).await.is_err()
        {
            self.state.lock().fail(self.options.clock.monotonic() + REST);
            return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
        }
        // The shard that has lost records is not in memory any more.
        self.held.take_failure();
        Ok(())
    }

    /// Waits for something that a step releases, this one or a later one; but not while the log takes nothing.
    pub(super) async fn released<T>(&self, mut answer: oneshot::Receiver<T>) -> Result<T, ErrorCode> {
        loop {
            match waiting(timeout(self.options.stuck_after, &mut answer)).await {
                Ok(answer) => return answer.map_err(|_| ErrorCode::NOT_COORDINATOR),
                Err(_) => self.check_not_stuck()?,
            }
        }
    }

    /// Whether records of the shard have waited for the log for so long that requests are refused.
    pub(super) fn is_stuck(&self) -> bool {
        let after = self.options.stuck_after;
        self.held.is_stuck(after) || self.unappended.is_stuck(after)
    }

    /// Refuses a request that would be told at the end of its wait that the log takes nothing.
    pub(super) fn check_not_stuck(&self) -> Result<(), ErrorCode> {
        if self.is_stuck() { Err(ErrorCode::COORDINATOR_NOT_AVAILABLE) } else { Ok(()) }
    }

    /// Whether records may be added: not where many wait for the log and it takes nothing, nobody knows for how long.
    pub(super) fn has_room(&self) -> bool {
        let after = self.options.stuck_after;
        !self.held.has_no_room(after) && !self.unappended.has_no_room(after)
    }

    /// Sends what a step releases, now or when the log holds all that the shard knows.
    pub(super) fn release(&self, loaded: &Loaded<M>, release: Release<M::Response>) {
        if let Some(release) = self.unappended.join(release) {
            self.release_now(loaded, release);
        }
    }

    /// As [`Self::release`], of a step that none before it waits to be appended.
    pub(super) fn release_now(&self, loaded: &Loaded<M>, release: Release<M::Response>) {
        if release.is_empty() {
            return;
        }
        match loaded.last.filter(|_| !(loaded.is_durable() == Some(Ok(())) && self.held.is_empty())) {
            None => release.send(),
            Some(last) => {
                if let Some(ticket) = self.held.push(last, release) {
                    loaded.partition.await_ack(last, ACKS, ticket, Arc::clone(&self.held) as _);
                }
            }
        }
    }
}
