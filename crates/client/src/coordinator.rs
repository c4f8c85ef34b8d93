//! The coordinator of one group, found when needed and again when it has moved.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use riverrun_protocol::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use riverrun_protocol::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use riverrun_protocol::{ApiKey, ErrorCode, OffsetCommitRequest, OffsetFetchRequest, OffsetFetchResponse};
use riverrun_types::{LeaderEpoch, NodeId, Offset};

use crate::cluster::{Cluster, Lane};
use crate::connection::{AnyRequest, CallLimits, ResponseFrame};
use crate::error::ClientError;
use crate::topic_partition::{TopicPartition, by_topic};

/// Newest version of `OffsetCommit` and `OffsetFetch` with topic names; later ones have only ids.
const TOPIC_NAMES_UP_TO: i16 = 9;
/// First version of `OffsetFetch` with several groups.
const FETCH_GROUPS_SINCE: i16 = 8;
/// First version of `OffsetFetch` that can request stable offsets only (KIP-447).
const STABLE_SINCE: i16 = 7;

/// Most bytes that the offsets of one request may take on the server. It stores them as one batch, and Kafka refuses
/// a batch of more than its `message.max.bytes`, 1 MiB by default: about 10,000 offsets.
const COMMIT_BYTES_MAX: usize = 512 * 1024;
/// Bytes of one stored offset, besides names and metadata: those of its record and of the fixed fields, rounded up.
const OFFSET_BYTES: usize = 100;

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next offset to read.
    pub offset: Offset,
    /// Leader epoch of the last record read, if it was committed with the offset.
    pub leader_epoch: Option<LeaderEpoch>,
    /// Text that was committed with the offset.
    pub metadata: String,
}

/// A partition and its offset to commit.
type OffsetOf<'a> = (&'a TopicPartition, &'a CommittedOffset);

/// The identity of a committing client: a group member, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemberIdentity {
    pub(crate) member_id: String,
    pub(crate) instance_id: Option<String>,
    /// Generation of the classic protocol, or member epoch.
    pub(crate) epoch: i32,
}

impl MemberIdentity {
    /// The identity of a client that is not a member.
    pub(crate) fn none() -> Self {
        Self { member_id: String::new(), instance_id: None, epoch: -1 }
    }

    /// Ends the membership. A static member keeps its instance id.
    pub(crate) fn forget(&mut self) {
        self.member_id.clear();
        self.begin_anew();
    }

    /// Ends the membership on this side. The group may still know the member by its id.
    pub(crate) fn begin_anew(&mut self) {
        self.epoch = -1;
    }
}

/// Which committed offsets are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stability {
    /// Those that no open transaction may change: for others the server returns a retriable error. An older server
    /// does not distinguish.
    Required,
    /// All, as they are now.
    Any,
}

/// The coordinator of one group.
///
/// Invariants: `node` is the coordinator by the last lookup, until it proves wrong.
#[derive(Debug)]
pub(crate) struct GroupCoordinator {
    cluster: Arc<Cluster>,
    group: String,
    node: Mutex<Option<NodeId>>,
}

impl GroupCoordinator {
    pub(crate) fn new(cluster: Arc<Cluster>, group: String) -> Self {
        Self { cluster, group, node: Mutex::new(None) }
    }

    pub(crate) fn group(&self) -> &str {
        &self.group
    }

    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    fn known(&self) -> MutexGuard<'_, Option<NodeId>> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn node(&self) -> Result<NodeId, ClientError> {
        let known = *self.known();
        if let Some(node) = known {
            return Ok(node);
        }
        let node = self.cluster.ask_coordinator(&self.group).await?;
        *self.known() = Some(node);
        Ok(node)
    }

    /// Forgets the coordinator, if this error shows that it has moved or is unreachable.
    pub(crate) fn note(&self, error: &ClientError) {
        let moved = match error {
            ClientError::Connect { .. }
            | ClientError::Disconnected { .. }
            | ClientError::UnknownNode(_)
            | ClientError::Timeout { .. } => true,
            ClientError::Server { code, .. } => {
                matches!(*code, ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE)
            }
            _ => false,
        };
        if moved {
            *self.known() = None;
        }
    }

    /// The newest version of a request that the coordinator supports.
    pub(crate) async fn version_of(&self, lane: Lane, api: ApiKey) -> Result<i16, ClientError> {
        let node = self.node().await?;
        let version = match self.cluster.connection(node, lane).await {
            Ok(connection) => connection.version_of(api),
            Err(error) => Err(error),
        };
        version.inspect_err(|error| self.note(error))
    }

    /// One attempt.
    pub(crate) async fn call(
        &self,
        lane: Lane,
        request: &dyn AnyRequest,
        limits: CallLimits,
    ) -> Result<ResponseFrame, ClientError> {
        let node = self.node().await?;
        let answer = match self.cluster.connection(node, lane).await {
            Ok(connection) => connection.call(request, limits).await,
            Err(error) => Err(error),
        };
        answer.inspect_err(|error| self.note(error))
    }

    /// Commits offsets, once, in as many requests as they need. After a failed request no further one is sent: the
    /// remaining partitions get its error.
    pub(crate) async fn commit(
        &self,
        member: &MemberIdentity,
        offsets: &BTreeMap<TopicPartition, CommittedOffset>,
    ) -> Vec<(TopicPartition, Result<(), ClientError>)> {
        let mut results = Vec::with_capacity(offsets.len());
        let names = |(partition, offset): &OffsetOf<'_>| partition.topic.len() + offset.metadata.len();
        let mut chunks = self.chunks(offsets, names).into_iter();
        while let Some(some) = chunks.next() {
            match self.commit_some(member, &some).await {
                Ok(committed) => results.extend(committed),
                Err(error) => {
                    let left = some.into_iter().chain(chunks.by_ref().flatten());
                    results.extend(left.map(|(partition, _)| (partition.clone(), Err(error.clone()))));
                }
            }
        }
        results
    }

    /// Splits the offsets that are set or deleted into requests. `text_bytes` are those of the names and metadata of
    /// one.
    pub(crate) fn chunks<T>(
        &self,
        offsets: impl IntoIterator<Item = T>,
        text_bytes: impl Fn(&T) -> usize,
    ) -> Vec<Vec<T>> {
        let mut chunks = Vec::<Vec<_>>::new();
        let mut left = 0;
        for offset in offsets {
            let bytes = OFFSET_BYTES + self.group.len() + text_bytes(&offset);
            if bytes > left {
                chunks.push(Vec::new());
                left = COMMIT_BYTES_MAX;
            }
            left = left.saturating_sub(bytes);
            if let Some(last) = chunks.last_mut() {
                last.push(offset);
            }
        }
        chunks
    }

    /// One request. The result has the error of each partition; the outer error is that of the request.
    async fn commit_some(
        &self,
        member: &MemberIdentity,
        offsets: &[OffsetOf<'_>],
    ) -> Result<Vec<(TopicPartition, Result<(), ClientError>)>, ClientError> {
        let request = self.commit_request(member, offsets);
        let limits = CallLimits { version_max: TOPIC_NAMES_UP_TO, ..CallLimits::default() };
        let frame = self.call(Lane::Data, &request, limits).await?;
        let answer = frame.decode::<OffsetCommitRequest<'_>>()?;
        let mut results = Vec::with_capacity(offsets.len());
        for topic in &answer.topics {
            for partition in &topic.partitions {
                let name = TopicPartition::new(&*topic.name, partition.partition_index);
                let result = ClientError::check(partition.error_code, Some(&name.to_string()));
                if let Err(error) = &result {
                    self.note(error);
                }
                results.push((name, result));
            }
        }
        if results.len() < offsets.len() {
            let missing = "some of the committed partitions".to_owned();
            return Err(ClientError::Incomplete { api: ApiKey::OffsetCommit, missing });
        }
        Ok(results)
    }

    fn commit_request<'a>(
        &'a self,
        member: &'a MemberIdentity,
        offsets: &[OffsetOf<'a>],
    ) -> OffsetCommitRequest<'a> {
        let topics = by_topic(offsets.iter().copied()).into_iter().map(|(name, partitions)| {
            OffsetCommitRequestTopic {
                name: name.into(),
                partitions: partitions
                    .into_iter()
                    .map(|(partition_index, committed)| OffsetCommitRequestPartition {
                        partition_index,
                        committed_offset: committed.offset.0,
                        committed_leader_epoch: committed.leader_epoch.map_or(-1, |epoch| epoch.0),
                        committed_metadata: Some(committed.metadata.as_str().into()),
                    })
                    .collect(),
                ..OffsetCommitRequestTopic::default()
            }
        });
        OffsetCommitRequest {
            group_id: self.group.as_str().into(),
            generation_id_or_member_epoch: member.epoch,
            member_id: member.member_id.as_str().into(),
            group_instance_id: member.instance_id.as_deref().map(Into::into),
            topics: topics.collect(),
            ..OffsetCommitRequest::default()
        }
    }

    /// Requests once the committed offsets of these partitions, or of all with `None`. Partitions without one are not
    /// in the result.
    pub(crate) async fn committed(
        &self,
        partitions: Option<&[TopicPartition]>,
        stability: Stability,
    ) -> Result<BTreeMap<TopicPartition, Result<CommittedOffset, ClientError>>, ClientError> {
        let node = self.node().await?;
        let connection =
            self.cluster.connection(node, Lane::Data).await.inspect_err(|error| self.note(error))?;
        let version = connection.version_of(ApiKey::OffsetFetch)?.min(TOPIC_NAMES_UP_TO);
        let request = OffsetFetchRequest {
            require_stable: stability == Stability::Required && version >= STABLE_SINCE,
            ..self.fetch_request(partitions, version)
        };
        let limits = CallLimits { version_max: version, ..CallLimits::default() };
        let frame = connection.call(&request, limits).await.inspect_err(|error| self.note(error))?;
        let answer = frame.decode::<OffsetFetchRequest<'_>>()?;
        read_committed(&answer).inspect_err(|error| self.note(error))
    }

    fn fetch_request<'a>(
        &'a self,
        partitions: Option<&'a [TopicPartition]>,
        version: i16,
    ) -> OffsetFetchRequest<'a> {
        let topics =
            partitions.map(|partitions| by_topic(partitions.iter().map(|partition| (partition, ()))));
        let indexes = |partitions: Vec<(i32, ())>| partitions.into_iter().map(|(index, ())| index).collect();
        if version < FETCH_GROUPS_SINCE {
            let topics = topics.map(|topics| {
                let topic = |(name, partitions): (&'a str, _)| OffsetFetchRequestTopic {
                    name: name.into(),
                    partition_indexes: indexes(partitions),
                };
                topics.into_iter().map(topic).collect()
            });
            return OffsetFetchRequest {
                group_id: self.group.as_str().into(),
                topics,
                ..OffsetFetchRequest::default()
            };
        }
        let topics = topics.map(|topics| {
            let topic = |(name, partitions): (&'a str, _)| OffsetFetchRequestTopics {
                name: name.into(),
                partition_indexes: indexes(partitions),
                ..OffsetFetchRequestTopics::default()
            };
            topics.into_iter().map(topic).collect()
        });
        let group = OffsetFetchRequestGroup {
            group_id: self.group.as_str().into(),
            topics,
            ..OffsetFetchRequestGroup::default()
        };
        OffsetFetchRequest { groups: vec![group], ..OffsetFetchRequest::default() }
    }
}

fn read_committed(
    answer: &OffsetFetchResponse<'_>,
) -> Result<BTreeMap<TopicPartition, Result<CommittedOffset, ClientError>>, ClientError> {
    let mut found = BTreeMap::new();
    let mut put =
        |topic: &str, partition: i32, offset: i64, epoch: i32, metadata: Option<&str>, code: i16| {
            let partition = TopicPartition::new(topic, partition);
            if let Err(error) = ClientError::check(code, Some(&partition.to_string())) {
                found.insert(partition, Err(error));
            } else if offset >= 0 {
                let committed = CommittedOffset {
                    offset: Offset(offset),
                    leader_epoch: (epoch >= 0).then_some(LeaderEpoch(epoch)),
                    metadata: metadata.unwrap_or_default().to_owned(),
                };
                found.insert(partition, Ok(committed));
            }
        };
    ClientError::check(answer.error_code, None)?;
    for topic in &answer.topics {
        for one in &topic.partitions {
            let (offset, epoch) = (one.committed_offset, one.committed_leader_epoch);
            put(&topic.name, one.partition_index, offset, epoch, one.metadata.as_deref(), one.error_code);
        }
    }
    for group in &answer.groups {
        ClientError::check(group.error_code, None)?;
        for topic in &group.topics {
            for one in &topic.partitions {
                let (offset, epoch) = (one.committed_offset, one.committed_leader_epoch);
                put(&topic.name, one.partition_index, offset, epoch, one.metadata.as_deref(), one.error_code);
            }
        }
    }
    Ok(found)
}
