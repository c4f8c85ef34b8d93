//! The replicas that serve the partitions of this node's topics.
//!
//! Owns the way from a topic of the image to a replica: a live partition, opened at its first touch, or a mounted queue; and
//! the memory of partitions that cannot be opened. Guarantees that a replica belongs to a topic that existed a moment ago,
//! with the options of the newest image. Knows neither handlers nor groups, which both use it.

mod open_failures;
mod replica;
mod staged;

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use riverrun_log::config::LogConfig;
use riverrun_log::{LogError, LogStore};
use riverrun_protocol::ErrorCode;
use riverrun_types::{LeaderEpoch, PartitionId, TopicId};

use self::open_failures::OpenFailures;
pub(crate) use self::replica::{ByTime, Found, KnownRange, Replica, known_range};
pub(crate) use self::staged::{Awaiting, Deadlines, Fate, NotStaged, Staged};
use crate::config::describe::{ConfigEntry, describe_mounted, describe_topic};
use crate::config::{BrokerConfig, TopicOverrides};
use crate::error;
use crate::log_limit::{REMOVAL_TROUBLE, STORAGE_TROUBLE};
use crate::metadata::{Store, Topic};
use crate::mounts::{MountedQueue, Mounts};
use crate::partitions::{Partition, Partitions};

/// Locks under which logs get new options. Giving them to a log that is being closed may wait for its disk, and then holds
/// up few other logs.
const TELLING_LOCKS: usize = 64;

/// The partitions that this node serves.
#[derive(Debug)]
pub(crate) struct Replicas {
    config: Arc<BrokerConfig>,
    metadata: Arc<Store>,
    logs: Arc<LogStore>,
    partitions: Arc<Partitions>,
    mounts: Arc<Mounts>,
    /// Partitions that are in no table because they cannot be opened.
    pub(crate) open_failures: OpenFailures,
    /// One of these is held while a log gets the options of the newest image, so that its options never go back.
    telling_configs: [Mutex<()>; TELLING_LOCKS],
}

impl Replicas {
    pub(crate) fn new(
        config: &Arc<BrokerConfig>,
        metadata: &Arc<Store>,
        logs: &Arc<LogStore>,
        partitions: &Arc<Partitions>,
        mounts: &Arc<Mounts>,
    ) -> Self {
        Self {
            config: Arc::clone(config),
            metadata: Arc::clone(metadata),
            logs: Arc::clone(logs),
            partitions: Arc::clone(partitions),
            mounts: Arc::clone(mounts),
            open_failures: OpenFailures::default(),
            telling_configs: [const { Mutex::new(()) }; TELLING_LOCKS],
        }
    }

    /// The replica of a partition, opened at its first touch.
    pub(crate) fn find(&self, topic: &Topic, index: i32) -> Result<Replica, ErrorCode> {
        match self.queue(topic) {
            Some(queue) => mounted(queue, topic, index),
            None => self.partition(topic, index).map(Replica::Local),
        }
    }

    /// The replica if it is in use already: nothing is opened.
    pub(crate) fn in_use(&self, topic: &Topic, index: i32) -> Result<Option<Replica>, ErrorCode> {
        if let Some(queue) = self.queue(topic) {
            return mounted(queue, topic, index).map(Some);
        }
        if !topic.has_partition(index) {
            return Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        }
        Ok(self.partitions.get(PartitionId { topic: topic.id, index }).map(Replica::Local))
    }

    /// The queue behind a topic; none if logs are behind it.
    pub(crate) fn queue(&self, topic: &Topic) -> Option<&Arc<MountedQueue>> {
        if topic.is_mounted { self.mounts.get(topic.id) } else { None }
    }

    /// The leader epoch of a partition, as the metadata says; the queue behind a mounted topic counts its own.
    pub(crate) fn leader_epoch(&self, topic: &Topic, index: i32) -> LeaderEpoch {
        self.queue(topic).map_or_else(|| self.metadata.leader_epoch(topic, index), |queue| queue.epoch())
    }

    /// The log dir that a partition lies in; none if it is no partition of a log.
    pub(crate) fn log_dir(&self, id: PartitionId) -> Option<usize> {
        self.metadata.log_dir(id)
    }

    /// The configs of a topic; of a mounted one those that hold for its queue: the appenders of a queue decide all others.
    pub(crate) fn configs(&self, topic: &Topic) -> Result<Vec<ConfigEntry>, ErrorCode> {
        match self.queue(topic) {
            Some(queue) => {
                queue.describe().map(|mounted| describe_mounted(&mounted)).map_err(|refused| refused.code)
            }
            None => Ok(describe_topic(&self.config, &topic.name, &topic.configs)),
        }
    }

    /// A live partition of a topic, opened at its first touch.
    pub(crate) fn partition(&self, topic: &Topic, index: i32) -> Result<Arc<Partition>, ErrorCode> {
        let id = PartitionId { topic: topic.id, index };
        if let Some(partition) = self.partitions.get(id) {
            return Ok(partition);
        }
        let dir = self.log_dir(id).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let epoch = self.leader_epoch(topic, index);
        let find = |logs: &LogStore| {
            let _telling = self.telling_config(id);
            let config = self.newest_config(topic.id).unwrap_or_else(|| self.log_config(topic));
            logs.partition(id, dir, config, epoch)
        };
        let opened = self.partitions.open_in(id, dir, find);
        let opened = opened.map_err(|error| self.note_open_failure(topic, id, &error))?;
        self.open_failures.forget(id);
        self.check_still_there(id, dir)?;
        Ok(opened)
    }

    /// The options of a topic's logs.
    pub(crate) fn log_config(&self, topic: &Topic) -> Arc<LogConfig> {
        let options = self.config.topic_options(&topic.name, &topic.configs);
        Arc::new(options.log_config(self.config.server.producer_id_expiration_ms))
    }

    /// Gives the logs of topics their current options, also open logs whose partitions nobody uses. Closed logs read them when
    /// they are opened.
    pub(crate) fn apply_topic_configs(&self, topics: &[TopicId]) {
        let image = self.metadata.image();
        for topic in topics {
            // A topic may have thousands of partitions: its options are made once for each change of them.
            let mut made: Option<(Arc<TopicOverrides>, Arc<LogConfig>)> = None;
            for (id, dir) in image.node.placed(*topic) {
                let _telling = self.telling_config(id);
                let cluster = self.metadata.cluster();
                let Some((log, topic)) = self.logs.handle(id, dir).zip(cluster.topic_by_id(*topic)) else {
                    continue;
                };
                let is_made = made.as_ref().is_some_and(|(configs, _)| Arc::ptr_eq(configs, &topic.configs));
                if !is_made {
                    made = Some((Arc::clone(&topic.configs), self.log_config(topic)));
                }
                if let Some((_, config)) = &made {
                    log.set_config(Arc::clone(config));
                }
            }
        }
    }

    fn telling_config(&self, id: PartitionId) -> MutexGuard<'_, ()> {
        let number = usize::from(id.topic.0[15]) + usize::try_from(id.index).unwrap_or_default();
        self.telling_configs[number % TELLING_LOCKS].lock()
    }

    /// The current options of a topic's logs, if the topic is still there.
    fn newest_config(&self, topic: TopicId) -> Option<Arc<LogConfig>> {
        self.metadata.cluster().topic_by_id(topic).map(|topic| self.log_config(topic))
    }

    /// Notes that a partition cannot be opened, and answers with the code for clients.
    fn note_open_failure(&self, topic: &Topic, id: PartitionId, failed: &LogError) -> ErrorCode {
        let code = error::log_error(failed);
        if error::is_our_trouble(code) {
            self.open_failures.remember(id, failed.to_string(), failed.kind());
            STORAGE_TROUBLE.warn(|suppressed| {
                let (topic, partition) = (&*topic.name, id.index);
                tracing::error!(topic, partition, error = %failed, suppressed, "a partition cannot be opened");
            });
        }
        code
    }

    /// The topic may have been deleted while its partition was being opened by an older image. A deletion changes the image
    /// before it looks for open partitions, so one of the two always sees the other.
    fn check_still_there(&self, id: PartitionId, dir: usize) -> Result<(), ErrorCode> {
        if self.metadata.cluster().topic_by_id(id.topic).is_some() {
            return Ok(());
        }
        self.partitions.remove(id);
        if let Err(error) = self.logs.delete(id, dir) {
            REMOVAL_TROUBLE.warn(|suppressed| {
                tracing::warn!(partition = %id, %error, suppressed, "files of a deleted topic stay");
            });
        }
        Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
    }
}

fn mounted(queue: &Arc<MountedQueue>, topic: &Topic, index: i32) -> Result<Replica, ErrorCode> {
    if !topic.has_partition(index) {
        return Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    }
    Ok(Replica::Queue(Arc::clone(queue)))
}
