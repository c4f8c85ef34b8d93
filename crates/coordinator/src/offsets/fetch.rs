//! OffsetFetch: reading committed offsets, for one group or many, by topic name or id.
//!
//! Owns the two shapes of the request. Versions 1 to 7 ask for one group in fields of their own. The host turns them
//! into the later shape with [`offset_fetch_groups`], asks each group's shard, and joins the answers with
//! [`offset_fetch_response`]. A partition that a request names twice is answered once: its metadata can be a thousand
//! times its name. Every offset is stable as long as there are no transactions.

use std::collections::HashSet;

use riverrun_protocol::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use riverrun_protocol::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use riverrun_protocol::{ErrorCode, OffsetFetchRequest, OffsetFetchResponse};
use riverrun_types::{LeaderEpoch, TopicId};

use super::{CommittedOffset, GroupOffsets};
use crate::shard::Shard;
use crate::topics::TopicMetadata;

/// From this version on a request asks for several groups.
const GROUPS_VERSION: i16 = 8;
/// From this version on topics are named by id.
const TOPIC_ID_VERSION: i16 = 10;
/// From this version on the response of one group has an error of its own.
const TOP_LEVEL_ERROR_VERSION: i16 = 2;
/// The offset in the answer for a partition without a committed one.
const NO_OFFSET: i64 = -1;

/// The groups that a request of any version asks for.
pub fn offset_fetch_groups<'a>(
    request: OffsetFetchRequest<'a>,
    api_version: i16,
) -> Vec<OffsetFetchRequestGroup<'a>> {
    if api_version >= GROUPS_VERSION {
        return request.groups;
    }
    let topics = request.topics.map(|topics| {
        let topic = |topic: riverrun_protocol::offset_fetch_request::OffsetFetchRequestTopic<'a>| {
            OffsetFetchRequestTopics {
                name: topic.name,
                partition_indexes: topic.partition_indexes,
                ..OffsetFetchRequestTopics::default()
            }
        };
        topics.into_iter().map(topic).collect()
    });
    vec![OffsetFetchRequestGroup { group_id: request.group_id, topics, ..OffsetFetchRequestGroup::default() }]
}

/// The response of any version with these groups' answers.
pub fn offset_fetch_response(
    groups: Vec<OffsetFetchResponseGroup<'static>>,
    api_version: i16,
) -> OffsetFetchResponse<'static> {
    if api_version >= GROUPS_VERSION {
        return OffsetFetchResponse { groups, ..OffsetFetchResponse::default() };
    }
    let mut response = OffsetFetchResponse::default();
    for group in groups {
        if api_version >= TOP_LEVEL_ERROR_VERSION {
            response.error_code = group.error_code;
        }
        let error = group.error_code;
        response.topics.extend(group.topics.into_iter().map(|topic| old_topic(topic, error)));
    }
    response
}

/// A topic's answer in the shape of versions 1 to 7.
fn old_topic(
    topic: OffsetFetchResponseTopics<'static>,
    group_error: i16,
) -> OffsetFetchResponseTopic<'static> {
    let partition = |partition: OffsetFetchResponsePartitions<'static>| OffsetFetchResponsePartition {
        partition_index: partition.partition_index,
        committed_offset: partition.committed_offset,
        committed_leader_epoch: partition.committed_leader_epoch,
        metadata: partition.metadata,
        error_code: if group_error == 0 { partition.error_code } else { group_error },
    };
    OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic.partitions.into_iter().map(partition).collect(),
    }
}

/// One partition's answer; no offset is -1 without an error.
fn answer(partition: i32, offset: Option<&CommittedOffset>) -> OffsetFetchResponsePartitions<'static> {
    OffsetFetchResponsePartitions {
        partition_index: partition,
        committed_offset: offset.map_or(NO_OFFSET, |offset| offset.offset.0),
        committed_leader_epoch: offset.map_or(LeaderEpoch::UNKNOWN, |offset| offset.leader_epoch).0,
        metadata: Some(offset.map(|offset| offset.metadata.to_string()).unwrap_or_default().into()),
        error_code: ErrorCode::NONE.0,
    }
}

impl Shard {
    /// Answers for one group. Without topics in the request, all committed offsets are returned. The group's error is
    /// only set for a KIP-848 member with a wrong or outdated member id or epoch.
    pub fn offset_fetch(
        &self,
        request: &OffsetFetchRequestGroup<'_>,
        api_version: i16,
        topics: &dyn TopicMetadata,
    ) -> OffsetFetchResponseGroup<'static> {
        let mut response = OffsetFetchResponseGroup {
            group_id: request.group_id.to_string().into(),
            ..OffsetFetchResponseGroup::default()
        };
        let entry = self.groups.get(&*request.group_id);
        let refused = entry.and_then(|entry| {
            entry.group.validate_fetch(request.member_id.as_deref(), request.member_epoch).err()
        });
        if let Some(error) = refused {
            response.error_code = error.0;
            return response;
        }
        let none = GroupOffsets::default();
        let offsets = entry.map_or(&none, |entry| &entry.offsets);
        response.topics = match &request.topics {
            Some(asked) => {
                let mut answered = HashSet::new();
                let fetch = |topic| fetch_topic(offsets, topic, api_version, topics, &mut answered);
                asked.iter().map(fetch).collect()
            }
            None => fetch_all(offsets, api_version, topics),
        };
        response
    }
}

/// The offsets of one requested topic, without those of partitions that are `answered` and those committed for an
/// earlier topic of the same name.
fn fetch_topic<'a>(
    offsets: &GroupOffsets,
    asked: &'a OffsetFetchRequestTopics<'_>,
    api_version: i16,
    topics: &dyn TopicMetadata,
    answered: &mut HashSet<(&'a str, TopicId, i32)>,
) -> OffsetFetchResponseTopics<'static> {
    let by_id = api_version >= TOPIC_ID_VERSION;
    let (name, id) = if by_id {
        (topics.topic_name(asked.topic_id), Some(asked.topic_id))
    } else {
        (Some(&*asked.name), topics.topic_id(&asked.name))
    };
    let partition = |index: &i32| {
        let found = name.and_then(|name| offsets.get(name, *index));
        let mut answer = answer(*index, found.filter(|offset| offset.is_of(id)));
        if name.is_none() {
            answer.error_code = ErrorCode::UNKNOWN_TOPIC_ID.0;
        }
        answer
    };
    let is_new = |index: &&i32| answered.insert((&*asked.name, asked.topic_id, **index));
    OffsetFetchResponseTopics {
        name: asked.name.to_string().into(),
        topic_id: asked.topic_id,
        partitions: asked.partition_indexes.iter().filter(is_new).map(partition).collect(),
    }
}

/// Every offset of the group, except those of an earlier topic of the same name. By id, only existing topics can be
/// named.
fn fetch_all(
    offsets: &GroupOffsets,
    api_version: i16,
    topics: &dyn TopicMetadata,
) -> Vec<OffsetFetchResponseTopics<'static>> {
    let mut answers = Vec::new();
    for (name, partitions) in offsets.topics() {
        let current = topics.topic_id(name);
        let topic_id = match current {
            _ if api_version < TOPIC_ID_VERSION => TopicId::ZERO,
            Some(id) => id,
            None => continue,
        };
        let found = partitions.iter().filter(|(_, offset)| offset.is_of(current));
        let partitions: Vec<_> = found.map(|(index, offset)| answer(*index, Some(offset))).collect();
        if !partitions.is_empty() {
            answers.push(OffsetFetchResponseTopics { name: name.to_owned().into(), topic_id, partitions });
        }
    }
    answers
}
