//! The one timer of all groups: sleeps until the nearest deadline of any shard.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use riverrun_coordinator::{Moment, Setting, Shard};
use tokio::sync::Notify;

use super::at_length::Work;
use super::line::Asker;
use super::{Slot, clock};
use crate::broker::Broker;
use crate::changes;
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
    async fn rings(&self, broker: &Broker, known: &mut Setting) {
        loop {
            let now = clock::now(&*broker.env.clock);
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

/// Loads shards again that have rested, though nobody asks for them, until `stop` turns true: their groups are not told
/// of as failed for longer than that. A task of its own, because loading waits for what the disk does with records.
pub(crate) async fn run_retries(broker: Arc<Broker>, mut stop: StopSignal) {
    let retries = async {
        loop {
            tokio::time::sleep(RETRY_CHECK).await;
            broker.groups.load_rested(&broker).await;
        }
    };
    tokio::select! {
        () = stopped(&mut stop) => {}
        () = retries => {}
    }
}

/// Loads all shards, and serves the deadlines of those that are there, until `stop` turns true. One that cannot be loaded
/// for the moment holds up no member of the others. What a wrong clock has given is written anew before the end, too.
pub(crate) async fn run(broker: Arc<Broker>, mut stop: StopSignal) {
    let work = async { tokio::join!(broker.groups.load_all(&broker), serve_deadlines(&broker)) };
    tokio::select! {
        () = stopped(&mut stop) => {}
        _ = work => {}
    }
    correct_times(&broker).await;
}

/// Writes times anew that a clock gave which was set a moment ago: another run cannot.
async fn correct_times(broker: &Arc<Broker>) {
    for (index, slot) in broker.groups.slots.get().into_iter().flatten().enumerate() {
        let is_due = || {
            let now = clock::now(&*broker.env.clock);
            slot.state(&*broker.env.clock).loaded_mut().is_some_and(|loaded| loaded.shard.note_clocks(now))
        };
        while is_due() {
            let topics = super::topics(broker);
            if broker.groups.step(broker, index, None, |shard, now| shard.expire(now, &topics)).is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Serves the deadlines of groups for which that takes long, each by a task of its own on a thread that may block.
fn expire_at_length(broker: &Arc<Broker>, index: usize, slot: &Slot) {
    let due = || {
        let mut state = slot.state(&*broker.env.clock);
        state.loaded_mut()?.shard.due_at_length(clock::now(&*broker.env.clock))
    };
    while let Some(group_id) = due() {
        let broker = Arc::clone(broker);
        tokio::spawn(async move {
            let topics = super::topics(&broker);
            let cost = |shard: &Shard| shard.cost_of_all(&group_id);
            let expire = |shard: &mut Shard, now| shard.expire_lent(now, &group_id, &topics);
            // A failed append is logged where it happens.
            let work = Work { asker: Asker::SERVER, group_id: &group_id, cost };
            let _ = broker.groups.step_of(&broker, index, work, None, expire).await;
        });
    }
}

async fn serve_deadlines(broker: &Arc<Broker>) {
    let mut known = clock::now(&*broker.env.clock).setting();
    loop {
        broker.groups.timer.rings(broker, &mut known).await;
        // Steps that follow set it again; one that runs meanwhile is seen by the loop below or sets it itself.
        broker.groups.timer.at_ms.store(i64::MAX, Ordering::Release);
        let now = clock::now(&*broker.env.clock);
        for (index, slot) in broker.groups.slots.get().into_iter().flatten().enumerate() {
            let deadline = slot.state(&*broker.env.clock).loaded_mut().and_then(|loaded| {
                loaded.shard.note_clocks(now);
                loaded.shard.next_deadline()
            });
            match deadline {
                Some(deadline) if deadline <= now.moment => {
                    expire_at_length(broker, index, slot);
                    // A failed append is logged where it happens, and the shard is loaded at the next request.
                    let topics = super::topics(broker);
                    let _ = broker.groups.step(broker, index, None, |shard, now| {
                        let before = shard.group_count();
                        let step = shard.expire(now, &topics);
                        changes::tell_expired(index, before.saturating_sub(shard.group_count()));
                        step
                    });
                }
                Some(deadline) => broker.groups.timer.set(deadline),
                None => {}
            }
            // What is due may be a slice of much, and each shard's may take as long as one.
            tokio::task::yield_now().await;
        }
    }
}
