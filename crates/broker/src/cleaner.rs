//! The cleaner: compacts the filthiest log, again and again.
//!
//! Owns when and how fast; what is kept is the log's business. `log.cleaner.threads` logs are compacted at once at
//! most, and all together read and write at most `log.cleaner.io.max.bytes.per.second`.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_log::CompactOptions;
use riverrun_log::compaction::execute::{CleanerControl, CleanerOptions};
use riverrun_log::compaction::pace::IoPace;
use riverrun_log::compaction::plan::{Cleanable, filthiest};
use riverrun_types::PartitionId;
use tokio::task::JoinSet;

use crate::broker::Broker;
use crate::partitions::Partition;
use crate::shutdown::{StopSignal, stopped};
use crate::upkeep::{Kept, Looks, kept_partitions};

/// Lent to every run: the shared throttle, and the server's wish to stop.
struct Control {
    broker: Arc<Broker>,
    pace: Arc<Mutex<IoPace>>,
    stop: StopSignal,
}

impl CleanerControl for Control {
    fn on_io(&self, bytes: u64) {
        let wait = self.pace.lock().charge(bytes, self.broker.env.clock.monotonic());
        if let Some(wait) = wait {
            std::thread::sleep(wait);
        }
    }

    fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }
}

/// What the workers share.
#[derive(Debug, Default)]
struct State {
    /// Logs that are being compacted.
    busy: HashSet<PartitionId>,
    looks: Looks,
}

/// Compacts until `stop` turns true.
pub(crate) async fn run(broker: Arc<Broker>, mut stop: StopSignal) {
    let upkeep = &broker.config.upkeep;
    let pace = Arc::new(Mutex::new(IoPace::new(rate(upkeep.log_cleaner_io_max_bytes_per_second))));
    let state = Arc::new(Mutex::new(State::default()));
    let mut workers = JoinSet::new();
    for _ in 0..upkeep.log_cleaner_threads {
        let control = Control { broker: Arc::clone(&broker), pace: Arc::clone(&pace), stop: stop.clone() };
        workers.spawn(work(Arc::new(control), Arc::clone(&state)));
    }
    stopped(&mut stop).await;
    while workers.join_next().await.is_some() {}
}

/// A rate above all that a disk can do is none.
fn rate(bytes_per_second: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "checked to be in range; parts of a byte do not matter"
    )]
    (bytes_per_second < u64::MAX as f64).then(|| bytes_per_second.max(1.0) as u64)
}

async fn work(control: Arc<Control>, state: Arc<Mutex<State>>) {
    let mut stop = control.stop.clone();
    loop {
        let (for_run, state) = (Arc::clone(&control), Arc::clone(&state));
        let cleaned = tokio::task::spawn_blocking(move || clean_filthiest(&for_run, &state)).await;
        if matches!(cleaned, Ok(true)) && !*stop.borrow() {
            continue;
        }
        let backoff = Duration::from_millis(control.broker.config.upkeep.log_cleaner_backoff_ms);
        tokio::select! {
            () = stopped(&mut stop) => return,
            () = tokio::time::sleep(backoff) => {}
        }
    }
}

/// Compacts one log, if one is due. Blocks for the disk and for the throttle.
fn clean_filthiest(control: &Control, state: &Mutex<State>) -> bool {
    let broker = &control.broker;
    let Some((topic, partition)) = claim(broker, state) else { return false };
    let upkeep = &broker.config.upkeep;
    let options = CompactOptions {
        now: broker.env.clock.wall(),
        high_watermark: partition.high_watermark(),
        cleaner: CleanerOptions {
            dedupe_buffer_bytes: upkeep.log_cleaner_dedupe_buffer_size / upkeep.log_cleaner_threads.max(1),
            ..CleanerOptions::default()
        },
        control,
    };
    let compacted = partition.log.compact(options);
    state.lock().busy.remove(&partition.id);
    match compacted {
        Ok(outcome) => {
            tracing::info!(%topic, partition = partition.id.index, ?outcome, "compacted");
            outcome.is_some_and(|outcome| outcome.first_dirty.is_some())
        }
        Err(error) => {
            tracing::error!(%topic, partition = partition.id.index, %error, "compaction failed");
            false
        }
    }
}

/// A log in which nothing has changed is looked at again after this time at the latest.
const LOOK_AGAIN: Duration = Duration::from_mins(10);

/// A log that is due, and how filthy it is.
type Candidate = ((Arc<str>, Arc<Partition>), Cleanable);

/// Chooses the log that most needs it among those that nobody compacts now. Only logs that may have become due are
/// opened.
fn claim(broker: &Broker, state: &Mutex<State>) -> Option<(Arc<str>, Arc<Partition>)> {
    let kept = kept_partitions(broker);
    let mut state = state.lock();
    state.looks.keep_only(&kept);
    let mut due = Vec::new();
    for kept in kept.iter().filter(|kept| is_compacted(broker, kept)) {
        due.extend(assess(broker, &mut state, kept));
    }
    let (found, _) = filthiest(due)?;
    state.busy.insert(found.1.id);
    Some(found)
}

fn is_compacted(broker: &Broker, kept: &Kept) -> bool {
    let options = broker.config.topic_options(&kept.topic.name, &kept.topic.configs);
    options.cleanup_policy.iter().any(|policy| policy == "compact")
}

/// Looks at one log, unless nothing can have changed since the last look.
fn assess(broker: &Broker, state: &mut State, kept: &Kept) -> Option<Candidate> {
    let (now, monotonic) = (broker.env.clock.wall(), broker.env.clock.monotonic());
    let period = look_again(broker, kept);
    if state.busy.contains(&kept.known.id) || !state.looks.is_due(kept, monotonic, period) {
        return None;
    }
    let partition = kept.open(broker)?;
    let covered = partition.log.recovery_point();
    // A log that needs compacting but was never rolled is rolled by its time.
    partition.log.roll_if_due(now).ok()?;
    let cleanable = partition.log.cleanable(now, partition.high_watermark()).ok()?;
    if !cleanable.is_due(&partition.log.config()) {
        state.looks.note(kept, &partition.log, covered, monotonic);
        return None;
    }
    Some(((Arc::clone(&kept.topic.name), partition), cleanable))
}

/// When time alone may have made a log due: its records have come of age, or its active segment has.
fn look_again(broker: &Broker, kept: &Kept) -> Duration {
    let options = broker.config.topic_options(&kept.topic.name, &kept.topic.configs);
    let ages = [options.min_compaction_lag_ms, options.max_compaction_lag_ms, options.segment_ms];
    let soonest = ages.into_iter().filter(|&ms| ms > 0).min().map_or(LOOK_AGAIN, Duration::from_millis);
    soonest.min(LOOK_AGAIN)
}
