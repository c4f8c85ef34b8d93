//! `DescribeLogDirs` (key 35), versions 1 to 5.
//!
//! Tells each log dir with the partitions in it and their sizes, of all topics or of the partitions that are named,
//! the size of each dir's volume with the room that is left (KIP-827), and whether it takes new partitions (KIP-1066).
//! A dir that has failed answers `KAFKA_STORAGE_ERROR`. The size of a partition that is not in use is that of the last
//! checkpoint.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::Arc;

use riverrun_protocol::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use riverrun_protocol::{DescribeLogDirsRequest, DescribeLogDirsResponse, ErrorCode};
use riverrun_types::PartitionId;

use super::bounds::partitions_bytes;
use crate::broker::Broker;
use crate::context::{Operation, RequestContext, Resource};
use crate::cordon::absolute;
use crate::metadata::{ClusterImage, MetadataError, Topic};
use crate::supervisor::on_blocking_thread;

/// Partitions that the client asks for, by topic; a topic without an entry is left out.
type Wanted = BTreeMap<String, BTreeSet<i32>>;

/// Memory that a partition takes in the answer, and to find its size.
const PARTITION_BYTES: usize = 120;

/// Memory of the answer, about: the sizes of all partitions are gathered, whichever are named.
pub(crate) fn answer_bytes(broker: &Broker, _request: &DescribeLogDirsRequest<'_>, _version: i16) -> usize {
    partitions_bytes(broker, PARTITION_BYTES)
}

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeLogDirsRequest<'_>,
    _version: i16,
) -> DescribeLogDirsResponse<'static> {
    if !context.authorize(Operation::Describe, Resource::Cluster) {
        let error_code = ErrorCode::CLUSTER_AUTHORIZATION_FAILED.0;
        return DescribeLogDirsResponse { error_code, ..Default::default() };
    }
    let wanted = request.topics.map(|topics| {
        let mut wanted = Wanted::new();
        for topic in topics {
            wanted.entry(topic.topic.into_owned()).or_default().extend(topic.partitions);
        }
        wanted
    });
    let of_work = Arc::clone(broker);
    let results = on_blocking_thread(move || describe(&of_work, wanted.as_ref())).await;
    match results.ok_or(MetadataError::Stopping) {
        Ok(results) => DescribeLogDirsResponse { results, ..Default::default() },
        Err(failed) => {
            let error_code = crate::error::metadata_error(&failed).0;
            DescribeLogDirsResponse { error_code, ..Default::default() }
        }
    }
}

fn describe(broker: &Broker, wanted: Option<&Wanted>) -> Vec<DescribeLogDirsResult<'static>> {
    let image = broker.catalog.image();
    let (cluster, node) = (&image.cluster, &image.node);
    let known = known_sizes(broker);
    let mut topics = vec![Vec::new(); node.log_dirs().len()];
    for topic in named(cluster, wanted) {
        let indexes = wanted.and_then(|wanted| wanted.get(&*topic.name));
        for (dir, partitions) in sizes(&known, node.placed(topic.id), indexes) {
            topics[dir].push(DescribeLogDirsTopic { name: topic.name.to_string().into(), partitions });
        }
    }
    let dirs = node.log_dirs().iter().enumerate().zip(topics);
    dirs.map(|((index, dir), topics)| {
        let failure = broker.logs.dir_failure(index);
        DescribeLogDirsResult {
            error_code: failure.map_or(ErrorCode::NONE, |_| ErrorCode::KAFKA_STORAGE_ERROR).0,
            log_dir: absolute(&dir.path).to_string_lossy().into_owned().into(),
            topics,
            total_bytes: or_unknown(broker.env.fs.total_bytes(&dir.path)),
            usable_bytes: or_unknown(broker.env.fs.available_bytes(&dir.path)),
            is_cordoned: node.is_cordoned(index),
        }
    })
    .collect()
}

/// The wire's mark for a size that is not known is -1.
fn or_unknown(bytes: io::Result<u64>) -> i64 {
    bytes.ok().and_then(|bytes| i64::try_from(bytes).ok()).unwrap_or(-1)
}

fn named<'i>(image: &'i ClusterImage, wanted: Option<&Wanted>) -> Vec<&'i Arc<Topic>> {
    match wanted {
        None => image.topics_sorted(),
        Some(wanted) => wanted.keys().filter_map(|name| image.topic(name)).collect(),
    }
}

/// Size of each partition with records, from memory: nothing is opened for this.
fn known_sizes(broker: &Broker) -> HashMap<PartitionId, u64> {
    let dirs = 0..broker.logs.dir_count();
    dirs.flat_map(|dir| broker.logs.known(dir)).map(|known| (known.id, known.size_bytes)).collect()
}

/// Sizes of a topic's partitions by log dir; `placed` names the dir of each.
fn sizes(
    known: &HashMap<PartitionId, u64>,
    placed: impl Iterator<Item = (PartitionId, usize)>,
    indexes: Option<&BTreeSet<i32>>,
) -> BTreeMap<usize, Vec<DescribeLogDirsPartition>> {
    let mut sizes: BTreeMap<usize, Vec<_>> = BTreeMap::new();
    for (id, dir) in placed {
        if indexes.is_some_and(|indexes| !indexes.contains(&id.index)) {
            continue;
        }
        let size_bytes = known.get(&id).copied().unwrap_or_default();
        sizes.entry(dir).or_default().push(DescribeLogDirsPartition {
            partition_index: id.index,
            partition_size: i64::try_from(size_bytes).unwrap_or(i64::MAX),
            offset_lag: 0,
            is_future_key: false,
        });
    }
    sizes
}
