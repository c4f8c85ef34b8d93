//! Work that time asks for: rolling, retention, compaction, checkpoints, forgetting.
//!
//! Each job is one task that sleeps, then works on the blocking pool, so that the disk's time is nobody else's. A
//! job that fails for one partition is logged and goes on with the next.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use riverrun_types::PartitionId;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::broker::Broker;
use crate::partitions::Partition;
use crate::shutdown::{StopSignal, stopped};
use crate::{cleaner, groups};

/// How often partitions that nobody used since the last look are closed.
const IDLE_CHECK: Duration = Duration::from_secs(30);

/// Starts all jobs; each ends when `stop` turns true.
pub(crate) fn spawn(broker: &Arc<Broker>, stop: &StopSignal, tasks: &mut JoinSet<()>) {
    let upkeep = &broker.config.upkeep;
    let every = |ms: u64| Duration::from_millis(ms.max(1));
    let server = &broker.config.server;
    tasks.spawn(groups::run_timer(Arc::clone(broker), stop.clone()));
    tasks.spawn(job(broker, stop, every(upkeep.log_retention_check_interval_ms), apply_retention));
    tasks.spawn(job(broker, stop, every(upkeep.log_flush_offset_checkpoint_interval_ms), checkpoint));
    tasks.spawn(job(broker, stop, every(server.producer_id_expiration_check_interval_ms), expire_producers));
    tasks.spawn(job(broker, stop, IDLE_CHECK, close_idle));
    if upkeep.log_cleaner_enable {
        tasks.spawn(cleaner::run(Arc::clone(broker), stop.clone()));
    }
}

/// Runs `work` every `period`, first after one period.
fn job(
    broker: &Arc<Broker>,
    stop: &StopSignal,
    period: Duration,
    work: fn(&Broker),
) -> impl Future<Output = ()> + Send + 'static {
    let (broker, mut stop) = (Arc::clone(broker), stop.clone());
    async move {
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            tokio::select! {
                () = stopped(&mut stop) => return,
                _ = ticks.tick() => {}
            }
            let broker = Arc::clone(&broker);
            if let Err(error) = tokio::task::spawn_blocking(move || work(&broker)).await {
                tracing::error!(%error, "a job of the upkeep failed");
            }
        }
    }
}

/// Every partition that has files, opened or not, with its topic's name. One that no topic has any more is removed:
/// a crash came between the deletion of its topic and that of its files.
pub(crate) fn partitions_with_data(broker: &Broker) -> Vec<(Arc<str>, Arc<Partition>)> {
    let image = broker.metadata.image();
    let mut found = Vec::new();
    for dir in 0..broker.logs.dir_count() {
        let remembered = broker.logs.known_partitions(dir);
        let with_handle = broker.logs.partition_sizes(dir).into_iter().map(|size| size.id);
        let ids: BTreeSet<PartitionId> = remembered.into_iter().chain(with_handle).collect();
        for id in ids {
            match image.topic_by_id(id.topic) {
                // What cannot be opened has been logged, and is offline.
                Some(topic) => found.extend(
                    broker
                        .partition(topic, id.index)
                        .ok()
                        .map(|partition| (Arc::clone(&topic.name), partition)),
                ),
                None => remove_orphan(broker, id, dir),
            }
        }
    }
    found
}

fn remove_orphan(broker: &Broker, id: PartitionId, dir: usize) {
    broker.partitions.remove(id);
    if let Err(error) = broker.logs.delete(id, dir) {
        tracing::warn!(partition = %id, %error, "the files of a deleted topic cannot be removed");
    }
}

fn apply_retention(broker: &Broker) {
    let now = broker.env.clock.wall();
    for (topic, partition) in partitions_with_data(broker) {
        let log = &partition.log;
        let applied = log.roll_if_due(now).and_then(|_| log.apply_retention(now, partition.high_watermark()));
        if let Err(error) = applied {
            tracing::error!(%topic, partition = partition.id.index, %error, "retention failed");
        }
    }
}

fn checkpoint(broker: &Broker) {
    if let Err(error) = broker.logs.checkpoint() {
        tracing::error!(%error, "a checkpoint failed; a restart has more to look at");
    }
}

fn expire_producers(broker: &Broker) {
    let now = broker.env.clock.wall();
    for partition in broker.partitions.all() {
        partition.log.expire_producers(now);
    }
}

fn close_idle(broker: &Broker) {
    broker.partitions.release_unused();
    broker.logs.close_idle(IDLE_CHECK);
}
