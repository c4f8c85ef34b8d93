//! Descriptions of a cluster: its servers and their log directories.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use riverrun_protocol::describe_log_dirs_response::DescribeLogDirsResult;
use riverrun_protocol::{DescribeClusterRequest, DescribeLogDirsRequest};
use riverrun_types::NodeId;

use super::{Admin, Results};
use crate::error::ClientError;
use crate::topic_partition::TopicPartition;

/// Kind of endpoints that clients connect to.
const ENDPOINT_BROKERS: i8 = 1;

/// A server of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedNode {
    /// Its id.
    pub id: NodeId,
    /// Its advertised host.
    pub host: String,
    /// Its advertised port.
    pub port: i32,
    /// Its rack or zone.
    pub rack: Option<String>,
}

/// The cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterDescription {
    /// Its id.
    pub cluster_id: String,
    /// Its controller, if clients can see one.
    pub controller: Option<NodeId>,
    /// Its servers.
    pub nodes: Vec<DescribedNode>,
}

/// A replica in a log directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDirReplica {
    /// The replica's partition.
    pub partition: TopicPartition,
    /// Bytes on disk.
    pub size_bytes: i64,
    /// How many records it lags behind.
    pub offset_lag: i64,
    /// True if it is going to replace the current replica.
    pub is_future: bool,
}

/// A log directory.
#[derive(Clone, Debug)]
pub struct LogDir {
    /// Its path on the server.
    pub path: String,
    /// Why it cannot be used; `None` if it can.
    pub error: Option<ClientError>,
    /// Size of its file system in bytes, if the server reports it.
    pub total_bytes: Option<i64>,
    /// Free bytes of its file system, if the server reports them.
    pub usable_bytes: Option<i64>,
    /// The replicas in it.
    pub replicas: Vec<LogDirReplica>,
}

impl Admin {
    /// The cluster and its servers.
    pub fn describe_cluster(&self) -> BoxFuture<'_, Result<ClusterDescription, ClientError>> {
        Box::pin(async move {
            let request = DescribeClusterRequest {
                endpoint_type: ENDPOINT_BROKERS,
                ..DescribeClusterRequest::default()
            };
            let frame = self.ask_any(&request).await?;
            let answer = frame.decode::<DescribeClusterRequest>()?;
            ClientError::check(answer.error_code, answer.error_message.as_deref())?;
            let nodes = answer.brokers.iter().map(|broker| DescribedNode {
                id: NodeId(broker.broker_id),
                host: broker.host.to_string(),
                port: broker.port,
                rack: broker.rack.as_ref().map(ToString::to_string),
            });
            Ok(ClusterDescription {
                cluster_id: answer.cluster_id.to_string(),
                controller: (answer.controller_id >= 0).then_some(NodeId(answer.controller_id)),
                nodes: nodes.collect(),
            })
        })
    }

    /// The log directories of each server, or only of the given ones.
    pub fn describe_log_dirs<'a>(
        &'a self,
        nodes: Option<&'a [NodeId]>,
    ) -> BoxFuture<'a, Result<Results<NodeId, Vec<LogDir>>, ClientError>> {
        Box::pin(async move {
            let nodes = match nodes {
                Some(nodes) => nodes.to_vec(),
                None => self.known_nodes().await?,
            };
            let mut results = Vec::with_capacity(nodes.len());
            for node in nodes {
                results.push((node, self.log_dirs_of(node).await));
            }
            Ok(results)
        })
    }

    async fn log_dirs_of(&self, node: NodeId) -> Result<Vec<LogDir>, ClientError> {
        let frame = self.ask_node(node, &DescribeLogDirsRequest { topics: None }).await?;
        let answer = frame.decode::<DescribeLogDirsRequest<'_>>()?;
        ClientError::check(answer.error_code, None)?;
        Ok(answer.results.iter().map(log_dir).collect())
    }

    /// Bytes of each partition on all servers together, replicas included. Replicas in failed log dirs are left out,
    /// because their size is unknown.
    pub fn partition_sizes(&self) -> BoxFuture<'_, Result<BTreeMap<TopicPartition, i64>, ClientError>> {
        Box::pin(async move {
            let mut sizes = BTreeMap::new();
            for (_, dirs) in self.describe_log_dirs(None).await? {
                let well = dirs?.into_iter().filter(|dir| dir.error.is_none());
                for replica in well.flat_map(|dir| dir.replicas) {
                    *sizes.entry(replica.partition).or_default() += replica.size_bytes;
                }
            }
            Ok(sizes)
        })
    }
}

fn log_dir(dir: &DescribeLogDirsResult<'_>) -> LogDir {
    let known = |bytes: i64| (bytes >= 0).then_some(bytes);
    let mut replicas = Vec::new();
    for topic in &dir.topics {
        replicas.extend(topic.partitions.iter().map(|partition| LogDirReplica {
            partition: TopicPartition::new(&*topic.name, partition.partition_index),
            size_bytes: partition.partition_size,
            offset_lag: partition.offset_lag,
            is_future: partition.is_future_key,
        }));
    }
    LogDir {
        path: dir.log_dir.to_string(),
        error: ClientError::check(dir.error_code, None).err(),
        total_bytes: known(dir.total_bytes),
        usable_bytes: known(dir.usable_bytes),
        replicas,
    }
}
