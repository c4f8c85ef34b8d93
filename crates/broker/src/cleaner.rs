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
use riverrun_log::compaction::plan::filthiest;
use riverrun_types::PartitionId;
use tokio::task::JoinSet;

use crate::broker::Broker;
use crate::partitions::Partition;
use crate::shutdown::{StopSignal, stopped};
use crate::upkeep::partitions_with_data;

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

/// Compacts until `stop` turns true.
pub(crate) async fn run(broker: Arc<Broker>, mut stop: StopSignal) {
    let upkeep = &broker.config.upkeep;
    let backoff = Duration::from_millis(upkeep.log_cleaner_backoff_ms);
    let pace = Arc::new(Mutex::new(IoPace::new(rate(upkeep.log_cleaner_io_max_bytes_per_second))));
    let busy = Arc::new(Mutex::new(HashSet::new()));
    let mut workers = JoinSet::new();
    for _ in 0..upkeep.log_cleaner_threads {
        let (broker, pace, busy, stop) =
            (Arc::clone(&broker), Arc::clone(&pace), Arc::clone(&busy), stop.clone());
        workers.spawn(work(broker, pace, busy, stop, backoff));
    }
    let () = stopped(&mut stop).await;
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

type Busy = Arc<Mutex<HashSet<PartitionId>>>;

async fn work(
    broker: Arc<Broker>,
    pace: Arc<Mutex<IoPace>>,
    busy: Busy,
    mut stop: StopSignal,
    backoff: Duration,
) {
    loop {
        let control = Control { broker: Arc::clone(&broker), pace: Arc::clone(&pace), stop: stop.clone() };
        let (broker, busy) = (Arc::clone(&broker), Arc::clone(&busy));
        let cleaned = tokio::task::spawn_blocking(move || clean_filthiest(&broker, &busy, &control)).await;
        if matches!(cleaned, Ok(true)) && !*stop.borrow() {
            continue;
        }
        tokio::select! {
            () = stopped(&mut stop) => return,
            () = tokio::time::sleep(backoff) => {}
        }
    }
}

/// Compacts one log, if one is due. Blocks for the disk and for the throttle.
fn clean_filthiest(broker: &Broker, busy: &Mutex<HashSet<PartitionId>>, control: &Control) -> bool {
    let Some((topic, partition)) = claim(broker, busy) else { return false };
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
    busy.lock().remove(&partition.id);
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

/// Chooses the log that most needs it among those that nobody compacts now.
fn claim(broker: &Broker, busy: &Mutex<HashSet<PartitionId>>) -> Option<(Arc<str>, Arc<Partition>)> {
    let now = broker.env.clock.wall();
    let compacted = partitions_with_data(broker)
        .into_iter()
        .filter(|(_, partition)| partition.log.config().cleanup.compact && partition.log.failure().is_none());
    let candidates: Vec<_> = compacted.collect();
    let mut busy = busy.lock();
    let due =
        candidates.into_iter().filter(|(_, partition)| !busy.contains(&partition.id)).filter_map(|found| {
            let log = &found.1.log;
            // A log that needs compacting but was never rolled is rolled by its time.
            log.roll_if_due(now).ok()?;
            let cleanable = log.cleanable(now, found.1.high_watermark()).ok()?;
            cleanable.is_due(&log.config()).then_some((found, cleanable))
        });
    let (found, _) = filthiest(due)?;
    busy.insert(found.1.id);
    Some(found)
}
