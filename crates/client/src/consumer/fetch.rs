//! One fetch: what to ask a leader, and what its answer holds for each partition.

use std::sync::Arc;

use riverrun_protocol::fetch_request::{FetchPartition, FetchTopic};
use riverrun_protocol::fetch_response::{FetchableTopicResponse, PartitionData};
use riverrun_protocol::{ApiKey, FetchRequest, Records};
use riverrun_types::{LeaderEpoch, NodeId, Offset, TopicId};

use super::options::ConsumerOptions;
use super::records::Chunk;
use crate::cluster::{Cluster, Lane};
use crate::connection::{ResponseFrame, wire_ms};
use crate::error::ClientError;
use crate::topic_partition::{TopicPartition, by_topic};

/// A partition to fetch from.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) partition: TopicPartition,
    pub(super) topic_id: TopicId,
    pub(super) incarnation: u64,
    pub(super) from: Offset,
    pub(super) leader_epoch: LeaderEpoch,
}

/// What became of a fetch.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) node: NodeId,
    wanted: Vec<Wanted>,
    answer: Result<ResponseFrame, ClientError>,
}

/// Fetches from one leader.
pub(super) async fn fetch(
    cluster: Arc<Cluster>,
    options: Arc<ConsumerOptions>,
    node: NodeId,
    wanted: Vec<Wanted>,
) -> Fetched {
    let request = request(&options, &wanted);
    let answer = cluster.call_patiently(node, Lane::Fetch, &request, options.fetch_wait_max).await;
    Fetched { node, wanted, answer }
}

fn request<'a>(options: &ConsumerOptions, wanted: &'a [Wanted]) -> FetchRequest<'a> {
    let topics = by_topic(wanted.iter().map(|wanted| (&wanted.partition, wanted)));
    let topics = topics.into_iter().map(|(name, partitions)| FetchTopic {
        topic: name.into(),
        topic_id: partitions.first().map_or(TopicId::ZERO, |(_, wanted)| wanted.topic_id),
        partitions: partitions
            .into_iter()
            .map(|(partition, wanted)| FetchPartition {
                partition,
                current_leader_epoch: wanted.leader_epoch.0,
                fetch_offset: wanted.from.0,
                partition_max_bytes: options.partition_max_bytes,
                ..FetchPartition::default()
            })
            .collect(),
    });
    FetchRequest {
        max_wait_ms: wire_ms(options.fetch_wait_max),
        min_bytes: options.fetch_min_bytes,
        max_bytes: options.fetch_max_bytes,
        isolation_level: options.isolation.wire(),
        topics: topics.collect(),
        ..FetchRequest::default()
    }
}

/// What a fetch gave for one partition.
pub(super) type PartitionFetched = (Wanted, Result<Option<Chunk>, ClientError>);

impl Fetched {
    /// What there is for each partition that was asked for.
    pub(super) fn read(self) -> Vec<PartitionFetched> {
        let all_failed = |wanted: Vec<Wanted>, error: &ClientError| {
            wanted.into_iter().map(|wanted| (wanted, Err(error.clone()))).collect()
        };
        let frame = match self.answer {
            Ok(frame) => frame,
            Err(error) => return all_failed(self.wanted, &error),
        };
        let answer = frame.decode::<FetchRequest<'_>>().and_then(|answer| {
            ClientError::check(answer.error_code, None)?;
            Ok(answer)
        });
        match answer {
            Err(error) => all_failed(self.wanted, &error),
            Ok(answer) => self
                .wanted
                .into_iter()
                .map(|wanted| {
                    let chunk =
                        find(&answer.responses, &wanted).and_then(|data| chunk(&frame, &wanted, data));
                    (wanted, chunk)
                })
                .collect(),
        }
    }
}

/// The answer for one partition. From version 13 on topics are named by id.
fn find<'a, 'r>(
    topics: &'a [FetchableTopicResponse<'r>],
    wanted: &Wanted,
) -> Result<&'a PartitionData<'r>, ClientError> {
    let name = &*wanted.partition.topic;
    topics
        .iter()
        .filter(
            |topic| {
                if topic.topic.is_empty() { topic.topic_id == wanted.topic_id } else { topic.topic == name }
            },
        )
        .flat_map(|topic| &topic.partitions)
        .find(|data| data.partition_index == wanted.partition.partition)
        .ok_or_else(|| ClientError::Incomplete { api: ApiKey::Fetch, missing: wanted.partition.to_string() })
}

fn chunk(
    frame: &ResponseFrame,
    wanted: &Wanted,
    data: &PartitionData<'_>,
) -> Result<Option<Chunk>, ClientError> {
    ClientError::check(data.error_code, Some(&wanted.partition.to_string()))?;
    let Some(records) = data.records.as_ref().and_then(Records::as_bytes) else { return Ok(None) };
    let aborted = data.aborted_transactions.as_deref().unwrap_or_default();
    let bytes = frame.bytes().slice_ref(records);
    Ok(Chunk::new(wanted.partition.clone(), wanted.incarnation, bytes, aborted)?)
}
