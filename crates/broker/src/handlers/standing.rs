//! The leader of a partition, as clients are told: this node, or nobody while the partition is offline.

use riverrun_protocol::ErrorCode;
use riverrun_types::NodeId;

use crate::broker::Broker;
use crate::metadata::Topic;

/// The wire's mark for a partition without a leader.
const NO_LEADER: i32 = -1;

/// How a partition stands.
pub(super) struct Standing {
    pub(super) error_code: i16,
    pub(super) leader_id: i32,
    /// All of its replicas.
    pub(super) replica_nodes: Vec<i32>,
    pub(super) offline_replicas: Vec<i32>,
}

impl Standing {
    pub(super) fn of(broker: &Broker, topic: &Topic, index: i32) -> Self {
        let NodeId(node) = broker.node_id();
        let replica_nodes = vec![node];
        if broker.is_offline(topic, index) {
            let offline_replicas = vec![node];
            let error_code = ErrorCode::LEADER_NOT_AVAILABLE.0;
            return Self { error_code, leader_id: NO_LEADER, replica_nodes, offline_replicas };
        }
        Self { error_code: ErrorCode::NONE.0, leader_id: node, replica_nodes, offline_replicas: Vec::new() }
    }
}
