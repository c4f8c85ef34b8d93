//! The world that the shards of groups share, and their view of the server: its topics, its configs, the topic that they lie in.

use std::sync::Arc;

use riverrun_coordinator::{GroupConfig, GroupMemory};
use riverrun_env::Env;
use riverrun_log::LogStore;
use riverrun_protocol::ErrorCode;

use super::own_configs::ImageConfigs;
use super::patterns::Patterns;
use super::shortage::Shortage;
use super::topics::ImageTopics;
use crate::config::BrokerConfig;
use crate::flow::source::Source;
use crate::metadata::Store;
use crate::mounts::Mounts;
use crate::partitions::Partition;
use crate::replicas::Replicas;
use crate::shard_host::ShardTopic;
use crate::topic_names::OFFSETS_TOPIC;

/// The parts of the server that groups use.
#[derive(Debug)]
pub(crate) struct Ports {
    pub(crate) env: Env,
    pub(crate) metadata: Arc<Store>,
    pub(crate) logs: Arc<LogStore>,
    pub(crate) mounts: Arc<Mounts>,
    pub(crate) replicas: Arc<Replicas>,
}

/// The state that all shards share.
#[derive(Debug)]
pub(crate) struct World {
    pub(super) ports: Ports,
    pub(super) config: GroupConfig,
    /// The memory that the groups of all shards take, and its limit.
    pub(super) memory: Arc<GroupMemory>,
    pub(super) shortage: Shortage,
    pub(super) patterns: Arc<Patterns>,
}

impl World {
    pub(super) fn new(config: &BrokerConfig, ports: Ports) -> Self {
        let own = Arc::new(ImageConfigs(Arc::clone(&ports.metadata)));
        Self {
            config: GroupConfig { own: Some(own), ..group_config(config) },
            memory: GroupMemory::new(config.groups.groups_memory_max_bytes),
            shortage: Shortage::default(),
            patterns: Arc::default(),
            ports,
        }
    }

    /// The topics as of now, as the coordinator sees them. Unknown patterns wait in the line of `source`, shared by its requests.
    pub(super) fn topics(&self, source: Option<Source>) -> ImageTopics {
        ImageTopics::new(self.ports.metadata.cluster(), Arc::clone(&self.patterns), source)
    }
}

impl ShardTopic for World {
    fn partition_count(&self) -> Option<usize> {
        let image = self.ports.metadata.cluster();
        image.topic(OFFSETS_TOPIC).map(|topic| usize::try_from(topic.partition_count()).unwrap_or_default())
    }

    fn open(&self, index: usize) -> Result<Arc<Partition>, ErrorCode> {
        let image = self.ports.metadata.cluster();
        let topic = image.topic(OFFSETS_TOPIC).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let number = i32::try_from(index).map_err(|_| ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        self.ports.replicas.partition(topic, number)
    }
}

fn group_config(config: &BrokerConfig) -> GroupConfig {
    let groups = &config.groups;
    GroupConfig {
        min_session_timeout_ms: groups.group_min_session_timeout_ms,
        max_session_timeout_ms: groups.group_max_session_timeout_ms,
        initial_rebalance_delay_ms: groups.group_initial_rebalance_delay_ms,
        max_size: groups.group_max_size,
        offset_metadata_max_bytes: groups.offset_metadata_max_bytes,
        offsets_retention_ms: groups.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms: groups.offsets_retention_check_interval_ms,
        consumer_session_timeout_ms: groups.group_consumer_session_timeout_ms,
        consumer_heartbeat_interval_ms: groups.group_consumer_heartbeat_interval_ms,
        consumer_max_size: groups.group_consumer_max_size,
        consumer_assignment_interval_ms: groups.group_consumer_assignment_interval_ms,
        consumer_migration_policy: groups.group_consumer_migration_policy,
        consumer_assignors: groups.group_consumer_assignors.clone(),
        ..GroupConfig::default()
    }
}
