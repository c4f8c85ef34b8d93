// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Every message of the schema with its codec.

use crate::catalog::{Codec, codec};

pub(crate) const MESSAGES: &[Codec] = &[
    codec!(crate::generated::AlterConfigsRequest, "AlterConfigsRequest", 0, 2),
    codec!(crate::generated::AlterConfigsResponse, "AlterConfigsResponse", 0, 2),
    codec!(crate::generated::ApiVersionsRequest, "ApiVersionsRequest", 0, 4),
    codec!(crate::generated::ApiVersionsResponse, "ApiVersionsResponse", 0, 4),
    codec!(crate::generated::ConsumerGroupDescribeRequest, "ConsumerGroupDescribeRequest", 0, 1),
    codec!(crate::generated::ConsumerGroupDescribeResponse, "ConsumerGroupDescribeResponse", 0, 1),
    codec!(crate::generated::ConsumerGroupHeartbeatRequest, "ConsumerGroupHeartbeatRequest", 0, 1),
    codec!(crate::generated::ConsumerGroupHeartbeatResponse, "ConsumerGroupHeartbeatResponse", 0, 1),
    codec!(crate::generated::ConsumerProtocolSubscription, "ConsumerProtocolSubscription", 0, 3),
    codec!(crate::generated::ConsumerProtocolAssignment, "ConsumerProtocolAssignment", 0, 3),
    codec!(crate::generated::CreatePartitionsRequest, "CreatePartitionsRequest", 0, 3),
    codec!(crate::generated::CreatePartitionsResponse, "CreatePartitionsResponse", 0, 3),
    codec!(crate::generated::CreateTopicsRequest, "CreateTopicsRequest", 2, 7),
    codec!(crate::generated::CreateTopicsResponse, "CreateTopicsResponse", 2, 7),
    codec!(crate::generated::DeleteGroupsRequest, "DeleteGroupsRequest", 0, 2),
    codec!(crate::generated::DeleteGroupsResponse, "DeleteGroupsResponse", 0, 2),
    codec!(crate::generated::DeleteRecordsRequest, "DeleteRecordsRequest", 0, 2),
    codec!(crate::generated::DeleteRecordsResponse, "DeleteRecordsResponse", 0, 2),
    codec!(crate::generated::DeleteTopicsRequest, "DeleteTopicsRequest", 1, 6),
    codec!(crate::generated::DeleteTopicsResponse, "DeleteTopicsResponse", 1, 6),
    codec!(crate::generated::DescribeClusterRequest, "DescribeClusterRequest", 0, 2),
    codec!(crate::generated::DescribeClusterResponse, "DescribeClusterResponse", 0, 2),
    codec!(crate::generated::DescribeConfigsRequest, "DescribeConfigsRequest", 1, 4),
    codec!(crate::generated::DescribeConfigsResponse, "DescribeConfigsResponse", 1, 4),
    codec!(crate::generated::DescribeGroupsRequest, "DescribeGroupsRequest", 0, 6),
    codec!(crate::generated::DescribeGroupsResponse, "DescribeGroupsResponse", 0, 6),
    codec!(crate::generated::DescribeLogDirsRequest, "DescribeLogDirsRequest", 1, 5),
    codec!(crate::generated::DescribeLogDirsResponse, "DescribeLogDirsResponse", 1, 5),
    codec!(crate::generated::DescribeProducersRequest, "DescribeProducersRequest", 0, 0),
    codec!(crate::generated::DescribeProducersResponse, "DescribeProducersResponse", 0, 0),
    codec!(crate::generated::DescribeTopicPartitionsRequest, "DescribeTopicPartitionsRequest", 0, 0),
    codec!(crate::generated::DescribeTopicPartitionsResponse, "DescribeTopicPartitionsResponse", 0, 0),
    codec!(crate::generated::ElectLeadersRequest, "ElectLeadersRequest", 0, 2),
    codec!(crate::generated::ElectLeadersResponse, "ElectLeadersResponse", 0, 2),
    codec!(crate::generated::FetchRequest, "FetchRequest", 4, 18),
    codec!(crate::generated::FetchResponse, "FetchResponse", 4, 18),
    codec!(crate::generated::FindCoordinatorRequest, "FindCoordinatorRequest", 0, 6),
    codec!(crate::generated::FindCoordinatorResponse, "FindCoordinatorResponse", 0, 6),
    codec!(crate::generated::GetTelemetrySubscriptionsRequest, "GetTelemetrySubscriptionsRequest", 0, 0),
    codec!(crate::generated::GetTelemetrySubscriptionsResponse, "GetTelemetrySubscriptionsResponse", 0, 0),
    codec!(crate::generated::HeartbeatRequest, "HeartbeatRequest", 0, 4),
    codec!(crate::generated::HeartbeatResponse, "HeartbeatResponse", 0, 4),
    codec!(crate::generated::IncrementalAlterConfigsRequest, "IncrementalAlterConfigsRequest", 0, 1),
    codec!(crate::generated::IncrementalAlterConfigsResponse, "IncrementalAlterConfigsResponse", 0, 1),
    codec!(crate::generated::InitProducerIdRequest, "InitProducerIdRequest", 0, 6),
    codec!(crate::generated::InitProducerIdResponse, "InitProducerIdResponse", 0, 6),
    codec!(crate::generated::JoinGroupRequest, "JoinGroupRequest", 0, 9),
    codec!(crate::generated::JoinGroupResponse, "JoinGroupResponse", 0, 9),
    codec!(crate::generated::LeaveGroupRequest, "LeaveGroupRequest", 0, 5),
    codec!(crate::generated::LeaveGroupResponse, "LeaveGroupResponse", 0, 5),
    codec!(crate::generated::ListConfigResourcesRequest, "ListConfigResourcesRequest", 0, 1),
    codec!(crate::generated::ListConfigResourcesResponse, "ListConfigResourcesResponse", 0, 1),
    codec!(crate::generated::ListGroupsRequest, "ListGroupsRequest", 0, 5),
    codec!(crate::generated::ListGroupsResponse, "ListGroupsResponse", 0, 5),
    codec!(crate::generated::ListOffsetsRequest, "ListOffsetsRequest", 1, 11),
    codec!(crate::generated::ListOffsetsResponse, "ListOffsetsResponse", 1, 11),
    codec!(crate::generated::MetadataRequest, "MetadataRequest", 0, 13),
    codec!(crate::generated::MetadataResponse, "MetadataResponse", 0, 13),
    codec!(crate::generated::OffsetCommitRequest, "OffsetCommitRequest", 2, 10),
    codec!(crate::generated::OffsetCommitResponse, "OffsetCommitResponse", 2, 10),
    codec!(crate::generated::OffsetDeleteRequest, "OffsetDeleteRequest", 0, 0),
    codec!(crate::generated::OffsetDeleteResponse, "OffsetDeleteResponse", 0, 0),
    codec!(crate::generated::OffsetFetchRequest, "OffsetFetchRequest", 1, 10),
    codec!(crate::generated::OffsetFetchResponse, "OffsetFetchResponse", 1, 10),
    codec!(crate::generated::OffsetForLeaderEpochRequest, "OffsetForLeaderEpochRequest", 2, 4),
    codec!(crate::generated::OffsetForLeaderEpochResponse, "OffsetForLeaderEpochResponse", 2, 4),
    codec!(crate::generated::offsets_topic::LegacyOffsetCommitKey, "LegacyOffsetCommitKey", 0, 0),
    codec!(crate::generated::offsets_topic::LegacyOffsetCommitValue, "LegacyOffsetCommitValue", 0, 0),
    codec!(crate::generated::offsets_topic::OffsetCommitKey, "OffsetCommitKey", 0, 0),
    codec!(crate::generated::offsets_topic::OffsetCommitValue, "OffsetCommitValue", 0, 4),
    codec!(crate::generated::offsets_topic::GroupMetadataKey, "GroupMetadataKey", 0, 0),
    codec!(crate::generated::offsets_topic::GroupMetadataValue, "GroupMetadataValue", 0, 4),
    codec!(crate::generated::offsets_topic::ConsumerGroupMetadataKey, "ConsumerGroupMetadataKey", 0, 0),
    codec!(crate::generated::offsets_topic::ConsumerGroupMetadataValue, "ConsumerGroupMetadataValue", 0, 0),
    codec!(
        crate::generated::offsets_topic::ConsumerGroupPartitionMetadataKey,
        "ConsumerGroupPartitionMetadataKey",
        0,
        0
    ),
    codec!(
        crate::generated::offsets_topic::ConsumerGroupPartitionMetadataValue,
        "ConsumerGroupPartitionMetadataValue",
        0,
        0
    ),
    codec!(
        crate::generated::offsets_topic::ConsumerGroupMemberMetadataKey,
        "ConsumerGroupMemberMetadataKey",
        0,
        0
    ),
    codec!(
        crate::generated::offsets_topic::ConsumerGroupMemberMetadataValue,
        "ConsumerGroupMemberMetadataValue",
        0,
        0
    ),
    codec!(
        crate::generated::offsets_topic::ConsumerGroupTargetAssignmentMetadataKey,
        "ConsumerGroupTargetAssignmentMetadataKey",
        0,
        0
    ),
    codec!(
        crate::generated::offsets_topic::ConsumerGroupTargetAssignmentMetadataValue,
        "ConsumerGroupTargetAssignmentMetadataValue",
        0,
        0
    ),
    codec!(
        crate::generated::offsets_topic::ConsumerGroupTargetAssignmentMemberKey,
        "ConsumerGroupTargetAssignmentMemberKey",
        0,
        0
    ),
    codec!(
        crate::generated::offsets_topic::ConsumerGroupTargetAssignmentMemberValue,
        "ConsumerGroupTargetAssignmentMemberValue",
        0,
        0
    ),
    codec!(
        crate::generated::offsets_topic::ConsumerGroupCurrentMemberAssignmentKey,
        "ConsumerGroupCurrentMemberAssignmentKey",
        0,
        0
    ),
    codec!(
        crate::generated::offsets_topic::ConsumerGroupCurrentMemberAssignmentValue,
        "ConsumerGroupCurrentMemberAssignmentValue",
        0,
        0
    ),
    codec!(
        crate::generated::offsets_topic::ConsumerGroupRegularExpressionKey,
        "ConsumerGroupRegularExpressionKey",
        0,
        0
    ),
    codec!(
        crate::generated::offsets_topic::ConsumerGroupRegularExpressionValue,
        "ConsumerGroupRegularExpressionValue",
        0,
        0
    ),
    codec!(crate::generated::ProduceRequest, "ProduceRequest", 3, 13),
    codec!(crate::generated::ProduceResponse, "ProduceResponse", 3, 13),
    codec!(crate::generated::PushTelemetryRequest, "PushTelemetryRequest", 0, 0),
    codec!(crate::generated::PushTelemetryResponse, "PushTelemetryResponse", 0, 0),
    codec!(crate::generated::SyncGroupRequest, "SyncGroupRequest", 0, 5),
    codec!(crate::generated::SyncGroupResponse, "SyncGroupResponse", 0, 5),
];
