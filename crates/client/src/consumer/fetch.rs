//! One fetch: the request to a node, and the answer's part for each partition.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use riverrun_protocol::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use riverrun_protocol::fetch_response::{FetchableTopicResponse, PartitionData};
use riverrun_protocol::{ApiKey, FetchRequest, Records};
use riverrun_types::{LeaderEpoch, NodeId, Offset, TopicId};

use super::assignment::Incarnation;
use super::options::ConsumerOptions;
use super::records::Chunk;
use super::session::SessionPlan;
use crate::cluster::{Cluster, Lane};
use crate::connection::{ResponseFrame, wire_ms};
use crate::error::ClientError;
use crate::list_offsets::Isolation;
use crate::topic_partition::{TopicPartition, by_topic};

/// A partition to fetch from.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) partition: TopicPartition,
    pub(super) topic_id: TopicId,
    pub(super) incarnation: Incarnation,
    pub(super) from: Offset,
    pub(super) leader_epoch: LeaderEpoch,
    /// Epoch of the record before `from`, if it is known.
    pub(super) last_epoch: Option<LeaderEpoch>,
}

/// A fetch to send to a node.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) node: NodeId,
    pub(super) wanted: Vec<Wanted>,
    pub(super) session: SessionPlan,
    /// Most bytes of the answer.
    pub(super) bytes_max: usize,
}

/// The outcome of a fetch.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) ask: Ask,
    answer: Result<ResponseFrame, ClientError>,
}

/// Fetches from one node.
pub(super) async fn fetch(cluster: Arc<Cluster>, options: Arc<ConsumerOptions>, ask: Ask) -> Fetched {
    let request = request(&options, &ask);
    let answer = cluster.call_patiently(ask.node, Lane::Fetch, &request, options.fetch_wait_max).await;
    drop(request);
    Fetched { ask, answer }
}

fn request<'a>(options: &'a ConsumerOptions, ask: &'a Ask) -> FetchRequest<'a> {
    let said = ask.session.said.iter().map(|place| &ask.wanted[*place]);
    let topics = by_topic(said.map(|wanted| (&wanted.partition, wanted)));
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
    let forgotten = ask.session.forgotten.iter().map(|(partition, topic_id)| ForgottenTopic {
        topic: (&*partition.topic).into(),
        topic_id: *topic_id,
        partitions: vec![partition.partition],
    });
    FetchRequest {
        max_wait_ms: wire_ms(options.fetch_wait_max),
        min_bytes: options.fetch_min_bytes,
        max_bytes: i32::try_from(ask.bytes_max).unwrap_or(i32::MAX),
        isolation_level: options.isolation.wire(),
        session_id: ask.session.id,
        session_epoch: ask.session.epoch,
        topics: topics.collect(),
        forgotten_topics_data: forgotten.collect(),
        rack_id: options.rack.as_deref().unwrap_or_default().into(),
        ..FetchRequest::default()
    }
}

/// An answer's part for one partition.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) chunk: Option<Chunk>,
    /// End of the partition for this reader; `None` if the answer does not name it.
    pub(super) end: Option<Offset>,
    /// The replica that the leader prefers for this reader.
    pub(super) replica: Option<NodeId>,
}

/// The result of a fetch for one partition.
pub(super) type PartitionFetched = (Wanted, Result<Part, ClientError>);

/// The result of a fetch as a whole.
#[derive(Debug)]
pub(super) enum Brought {
    /// A result for each requested partition.
    Parts { parts: Vec<PartitionFetched>, session_id: i32 },
    /// One error for all of them.
    Nothing { wanted: Vec<Wanted>, error: ClientError },
}

impl Fetched {
    /// Splits the answer by the requested partitions.
    pub(super) fn read(self, options: &ConsumerOptions) -> Brought {
        let Self { ask: Ask { wanted, session, .. }, answer } = self;
        let frame = match answer {
            Ok(frame) => frame,
            Err(error) => return Brought::Nothing { wanted, error },
        };
        let answer = frame.decode::<FetchRequest<'_>>().and_then(|answer| {
            ClientError::check(answer.error_code, None)?;
            Ok(answer)
        });
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return Brought::Nothing { wanted, error },
        };
        let found = Found::new(&answer.responses);
        let parts = wanted.into_iter().map(|wanted| {
            let part = match found.of(&wanted) {
                Some(data) => part(&frame, &wanted, data, options),
                // A partition that the answer leaves out has no news.
                None if !session.is_full() => Ok(Part::default()),
                None => {
                    Err(ClientError::Incomplete { api: ApiKey::Fetch, missing: wanted.partition.to_string() })
                }
            };
            (wanted, part)
        });
        Brought::Parts { parts: parts.collect(), session_id: answer.session_id }
    }
}

/// The partitions of an answer, which from version 13 on names topics by id.
struct Found<'a, 'r>(HashMap<(TopicId, &'a str, i32), &'a PartitionData<'r>>);

impl<'a, 'r> Found<'a, 'r> {
    fn new(topics: &'a [FetchableTopicResponse<'r>]) -> Self {
        let partitions = topics.iter().flat_map(|topic| {
            let id = if topic.topic.is_empty() { topic.topic_id } else { TopicId::ZERO };
            topic.partitions.iter().map(move |data| ((id, &*topic.topic, data.partition_index), data))
        });
        Self(partitions.collect())
    }

    fn of(&self, wanted: &'a Wanted) -> Option<&'a PartitionData<'r>> {
        if self.0.is_empty() {
            return None;
        }
        let index = wanted.partition.partition;
        let by_id = self.0.get(&(wanted.topic_id, "", index));
        by_id.or_else(|| self.0.get(&(TopicId::ZERO, &*wanted.partition.topic, index))).copied()
    }
}

/// A partition's records of an answer, and the bytes that they keep alive: the whole answer if they are most of it,
/// else a copy of their own. A few records thus do not pin those of all other partitions.
fn apart(answer: &Bytes, records: &[u8]) -> (Bytes, usize) {
    if records.len() > answer.len() / 2 {
        (answer.slice_ref(records), answer.len())
    } else {
        (Bytes::copy_from_slice(records), records.len())
    }
}

fn part(
    frame: &ResponseFrame,
    wanted: &Wanted,
    data: &PartitionData<'_>,
    options: &ConsumerOptions,
) -> Result<Part, ClientError> {
    ClientError::check(data.error_code, Some(&wanted.partition.to_string()))?;
    let end = match options.isolation {
        Isolation::ReadUncommitted => data.high_watermark,
        Isolation::ReadCommitted => data.last_stable_offset,
    };
    let aborted = data.aborted_transactions.as_deref().unwrap_or_default();
    let chunk = match data.records.as_ref().and_then(Records::as_bytes) {
        None => None,
        Some(records) => {
            let (bytes, pinned_bytes) = apart(frame.bytes(), records);
            let (partition, from) = (wanted.partition.clone(), wanted.from);
            Chunk::new(partition, wanted.incarnation, from, bytes, pinned_bytes, aborted)?
        }
    };
    if let Some(chunk) = &chunk
        && chunk.end <= wanted.from
    {
        let what = format!("records before {}, for a fetch from {}", chunk.end, wanted.from);
        return Err(ClientError::Impossible { api: ApiKey::Fetch, what });
    }
    Ok(Part {
        chunk: chunk.map(|chunk| chunk.checked(options.check_crcs)),
        end: (end >= 0).then_some(Offset(end)),
        replica: (data.preferred_read_replica >= 0).then_some(NodeId(data.preferred_read_replica)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_part_of_an_answer_does_not_pin_the_rest() {
        let answer = Bytes::from(vec![7; 1000]);
        let (most, pinned_bytes) = apart(&answer, &answer[100..800]);
        assert_eq!((most.len(), pinned_bytes), (700, 1000));
        assert!(!answer.is_unique(), "it is not copied");
        drop(most);
        let (few, pinned_bytes) = apart(&answer, &answer[800..900]);
        assert_eq!((few.len(), pinned_bytes), (100, 100));
        assert!(answer.is_unique());
    }
}
