//! Responses that refuse a whole request when no shard can be asked: it is being loaded, it failed, or the client has
//! no permission.
//!
//! Owns where each response has its error: at the top, with each partition, or with each member.

use riverrun_protocol::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use riverrun_protocol::offset_fetch_request::OffsetFetchRequestGroup;
use riverrun_protocol::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use riverrun_protocol::{
    ErrorCode, JoinGroupRequest, JoinGroupResponse, OffsetCommitRequest, OffsetCommitResponse,
};

use crate::classic::join_refusal;

/// A JoinGroup that is refused.
pub fn refuse_join_group(
    request: &JoinGroupRequest<'_>,
    api_version: i16,
    error: ErrorCode,
) -> JoinGroupResponse<'static> {
    join_refusal(api_version, &request.member_id, error)
}

/// An OffsetCommit that is refused: every partition has the error.
pub fn refuse_offset_commit(
    request: &OffsetCommitRequest<'_>,
    error: ErrorCode,
) -> OffsetCommitResponse<'static> {
    let topics = request.topics.iter().map(|topic| OffsetCommitResponseTopic {
        name: topic.name.to_string().into(),
        topic_id: topic.topic_id,
        partitions: topic
            .partitions
            .iter()
            .map(|partition| OffsetCommitResponsePartition {
                partition_index: partition.partition_index,
                error_code: error.0,
            })
            .collect(),
    });
    OffsetCommitResponse { topics: topics.collect(), ..OffsetCommitResponse::default() }
}

/// One group of an OffsetFetch that is refused. The partitions have the error as well, for version 1, which has no
/// other place for it; [`crate::offset_fetch_response`] makes the right response of it.
pub fn refuse_offset_fetch(
    request: &OffsetFetchRequestGroup<'_>,
    error: ErrorCode,
) -> OffsetFetchResponseGroup<'static> {
    let refused = |partition_index: &i32| OffsetFetchResponsePartitions {
        partition_index: *partition_index,
        committed_offset: -1,
        committed_leader_epoch: -1,
        metadata: Some("".into()),
        error_code: error.0,
    };
    let topics = request.topics.iter().flatten().map(|topic| OffsetFetchResponseTopics {
        name: topic.name.to_string().into(),
        topic_id: topic.topic_id,
        partitions: topic.partition_indexes.iter().map(refused).collect(),
    });
    OffsetFetchResponseGroup {
        group_id: request.group_id.to_string().into(),
        topics: topics.collect(),
        error_code: error.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use riverrun_protocol::offset_fetch_request::OffsetFetchRequestTopics;
    use riverrun_protocol::{Encode, Encoder, OffsetFetchRequest};

    #[test]
    fn a_refused_join_can_be_said_in_every_version() {
        for version in 0..=9 {
            let response =
                refuse_join_group(&JoinGroupRequest::default(), version, ErrorCode::NOT_COORDINATOR);
            response.encode(&mut Encoder::new(), version).unwrap();
        }
    }

    #[test]
    fn a_refused_fetch_says_so_in_every_version() {
        let topics = vec![OffsetFetchRequestTopics {
            name: "t".into(),
            partition_indexes: vec![0],
            ..OffsetFetchRequestTopics::default()
        }];
        let group = OffsetFetchRequestGroup { topics: Some(topics), ..OffsetFetchRequestGroup::default() };
        let code = ErrorCode::COORDINATOR_LOAD_IN_PROGRESS;
        for version in 1..=10 {
            let response = crate::offset_fetch_response(vec![refuse_offset_fetch(&group, code)], version);
            response.encode(&mut Encoder::new(), version).unwrap();
            let found = match version {
                1 => response.topics[0].partitions[0].error_code,
                2..=7 => response.error_code,
                _ => response.groups[0].error_code,
            };
            assert_eq!(found, code.0, "version {version}");
        }
    }

    #[test]
    fn old_requests_ask_for_one_group() {
        let request =
            OffsetFetchRequest { group_id: "g".into(), topics: None, ..OffsetFetchRequest::default() };
        let groups = crate::offset_fetch_groups(request, 7);
        assert_eq!((groups.len(), &*groups[0].group_id, groups[0].topics.is_none()), (1, "g", true));
    }
}
