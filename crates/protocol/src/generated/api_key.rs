// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! The keys of the requests in the schema.

use crate::api_key::ApiFacts;

/// A request of Kafka's protocol that Riverrun can read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i16)]
pub enum ApiKey {
    /// Key 0, versions 0 to 13.
    Produce = 0,
    /// Key 1, versions 4 to 18.
    Fetch = 1,
    /// Key 2, versions 1 to 11.
    ListOffsets = 2,
    /// Key 3, versions 0 to 13.
    Metadata = 3,
    /// Key 8, versions 2 to 10.
    OffsetCommit = 8,
    /// Key 9, versions 1 to 10.
    OffsetFetch = 9,
    /// Key 10, versions 0 to 6.
    FindCoordinator = 10,
    /// Key 11, versions 0 to 9.
    JoinGroup = 11,
    /// Key 12, versions 0 to 4.
    Heartbeat = 12,
    /// Key 13, versions 0 to 5.
    LeaveGroup = 13,
    /// Key 14, versions 0 to 5.
    SyncGroup = 14,
    /// Key 15, versions 0 to 6.
    DescribeGroups = 15,
    /// Key 16, versions 0 to 5.
    ListGroups = 16,
    /// Key 18, versions 0 to 4.
    ApiVersions = 18,
    /// Key 19, versions 2 to 7.
    CreateTopics = 19,
    /// Key 20, versions 1 to 6.
    DeleteTopics = 20,
    /// Key 21, versions 0 to 2.
    DeleteRecords = 21,
    /// Key 22, versions 0 to 5.
    InitProducerId = 22,
    /// Key 23, versions 2 to 4.
    OffsetForLeaderEpoch = 23,
    /// Key 29, versions 1 to 3.
    DescribeAcls = 29,
    /// Key 30, versions 1 to 3.
    CreateAcls = 30,
    /// Key 31, versions 1 to 3.
    DeleteAcls = 31,
    /// Key 32, versions 1 to 4.
    DescribeConfigs = 32,
    /// Key 33, versions 0 to 2.
    AlterConfigs = 33,
    /// Key 35, versions 1 to 5.
    DescribeLogDirs = 35,
    /// Key 37, versions 0 to 3.
    CreatePartitions = 37,
    /// Key 42, versions 0 to 2.
    DeleteGroups = 42,
    /// Key 43, versions 0 to 2.
    ElectLeaders = 43,
    /// Key 44, versions 0 to 1.
    IncrementalAlterConfigs = 44,
    /// Key 47, version 0.
    OffsetDelete = 47,
    /// Key 60, versions 0 to 2.
    DescribeCluster = 60,
    /// Key 61, version 0.
    DescribeProducers = 61,
    /// Key 68, versions 0 to 1.
    ConsumerGroupHeartbeat = 68,
    /// Key 69, versions 0 to 1.
    ConsumerGroupDescribe = 69,
    /// Key 71, version 0.
    GetTelemetrySubscriptions = 71,
    /// Key 72, version 0.
    PushTelemetry = 72,
    /// Key 74, versions 0 to 1.
    ListConfigResources = 74,
    /// Key 75, version 0.
    DescribeTopicPartitions = 75,
}

impl ApiKey {
    /// Every key, ascending.
    pub const ALL: &'static [Self] = &[
        Self::Produce,
        Self::Fetch,
        Self::ListOffsets,
        Self::Metadata,
        Self::OffsetCommit,
        Self::OffsetFetch,
        Self::FindCoordinator,
        Self::JoinGroup,
        Self::Heartbeat,
        Self::LeaveGroup,
        Self::SyncGroup,
        Self::DescribeGroups,
        Self::ListGroups,
        Self::ApiVersions,
        Self::CreateTopics,
        Self::DeleteTopics,
        Self::DeleteRecords,
        Self::InitProducerId,
        Self::OffsetForLeaderEpoch,
        Self::DescribeAcls,
        Self::CreateAcls,
        Self::DeleteAcls,
        Self::DescribeConfigs,
        Self::AlterConfigs,
        Self::DescribeLogDirs,
        Self::CreatePartitions,
        Self::DeleteGroups,
        Self::ElectLeaders,
        Self::IncrementalAlterConfigs,
        Self::OffsetDelete,
        Self::DescribeCluster,
        Self::DescribeProducers,
        Self::ConsumerGroupHeartbeat,
        Self::ConsumerGroupDescribe,
        Self::GetTelemetrySubscriptions,
        Self::PushTelemetry,
        Self::ListConfigResources,
        Self::DescribeTopicPartitions,
    ];

    #[expect(clippy::too_many_lines, reason = "one arm for each key")]
    pub(crate) fn facts(self) -> &'static ApiFacts {
        match self {
            Self::Produce => &ApiFacts {
                name: "Produce",
                advertised: (0, 13),
                codec: (3, 13),
                flexible_request: 9,
                flexible_response: 9,
            },
            Self::Fetch => &ApiFacts {
                name: "Fetch",
                advertised: (4, 18),
                codec: (4, 18),
                flexible_request: 12,
                flexible_response: 12,
            },
            Self::ListOffsets => &ApiFacts {
                name: "ListOffsets",
                advertised: (1, 11),
                codec: (1, 11),
                flexible_request: 6,
                flexible_response: 6,
            },
            Self::Metadata => &ApiFacts {
                name: "Metadata",
                advertised: (0, 13),
                codec: (0, 13),
                flexible_request: 9,
                flexible_response: 9,
            },
            Self::OffsetCommit => &ApiFacts {
                name: "OffsetCommit",
                advertised: (2, 10),
                codec: (2, 10),
                flexible_request: 8,
                flexible_response: 8,
            },
            Self::OffsetFetch => &ApiFacts {
                name: "OffsetFetch",
                advertised: (1, 10),
                codec: (1, 10),
                flexible_request: 6,
                flexible_response: 6,
            },
            Self::FindCoordinator => &ApiFacts {
                name: "FindCoordinator",
                advertised: (0, 6),
                codec: (0, 6),
                flexible_request: 3,
                flexible_response: 3,
            },
            Self::JoinGroup => &ApiFacts {
                name: "JoinGroup",
                advertised: (0, 9),
                codec: (0, 9),
                flexible_request: 6,
                flexible_response: 6,
            },
            Self::Heartbeat => &ApiFacts {
                name: "Heartbeat",
                advertised: (0, 4),
                codec: (0, 4),
                flexible_request: 4,
                flexible_response: 4,
            },
            Self::LeaveGroup => &ApiFacts {
                name: "LeaveGroup",
                advertised: (0, 5),
                codec: (0, 5),
                flexible_request: 4,
                flexible_response: 4,
            },
            Self::SyncGroup => &ApiFacts {
                name: "SyncGroup",
                advertised: (0, 5),
                codec: (0, 5),
                flexible_request: 4,
                flexible_response: 4,
            },
            Self::DescribeGroups => &ApiFacts {
                name: "DescribeGroups",
                advertised: (0, 6),
                codec: (0, 6),
                flexible_request: 5,
                flexible_response: 5,
            },
            Self::ListGroups => &ApiFacts {
                name: "ListGroups",
                advertised: (0, 5),
                codec: (0, 5),
                flexible_request: 3,
                flexible_response: 3,
            },
            Self::ApiVersions => &ApiFacts {
                name: "ApiVersions",
                advertised: (0, 4),
                codec: (0, 4),
                flexible_request: 3,
                flexible_response: 3,
            },
            Self::CreateTopics => &ApiFacts {
                name: "CreateTopics",
                advertised: (2, 7),
                codec: (2, 7),
                flexible_request: 5,
                flexible_response: 5,
            },
            Self::DeleteTopics => &ApiFacts {
                name: "DeleteTopics",
                advertised: (1, 6),
                codec: (1, 6),
                flexible_request: 4,
                flexible_response: 4,
            },
            Self::DeleteRecords => &ApiFacts {
                name: "DeleteRecords",
                advertised: (0, 2),
                codec: (0, 2),
                flexible_request: 2,
                flexible_response: 2,
            },
            Self::InitProducerId => &ApiFacts {
                name: "InitProducerId",
                advertised: (0, 5),
                codec: (0, 6),
                flexible_request: 2,
                flexible_response: 2,
            },
            Self::OffsetForLeaderEpoch => &ApiFacts {
                name: "OffsetForLeaderEpoch",
                advertised: (2, 4),
                codec: (2, 4),
                flexible_request: 4,
                flexible_response: 4,
            },
            Self::DescribeAcls => &ApiFacts {
                name: "DescribeAcls",
                advertised: (1, 3),
                codec: (1, 3),
                flexible_request: 2,
                flexible_response: 2,
            },
            Self::CreateAcls => &ApiFacts {
                name: "CreateAcls",
                advertised: (1, 3),
                codec: (1, 3),
                flexible_request: 2,
                flexible_response: 2,
            },
            Self::DeleteAcls => &ApiFacts {
                name: "DeleteAcls",
                advertised: (1, 3),
                codec: (1, 3),
                flexible_request: 2,
                flexible_response: 2,
            },
            Self::DescribeConfigs => &ApiFacts {
                name: "DescribeConfigs",
                advertised: (1, 4),
                codec: (1, 4),
                flexible_request: 4,
                flexible_response: 4,
            },
            Self::AlterConfigs => &ApiFacts {
                name: "AlterConfigs",
                advertised: (0, 2),
                codec: (0, 2),
                flexible_request: 2,
                flexible_response: 2,
            },
            Self::DescribeLogDirs => &ApiFacts {
                name: "DescribeLogDirs",
                advertised: (1, 5),
                codec: (1, 5),
                flexible_request: 2,
                flexible_response: 2,
            },
            Self::CreatePartitions => &ApiFacts {
                name: "CreatePartitions",
                advertised: (0, 3),
                codec: (0, 3),
                flexible_request: 2,
                flexible_response: 2,
            },
            Self::DeleteGroups => &ApiFacts {
                name: "DeleteGroups",
                advertised: (0, 2),
                codec: (0, 2),
                flexible_request: 2,
                flexible_response: 2,
            },
            Self::ElectLeaders => &ApiFacts {
                name: "ElectLeaders",
                advertised: (0, 2),
                codec: (0, 2),
                flexible_request: 2,
                flexible_response: 2,
            },
            Self::IncrementalAlterConfigs => &ApiFacts {
                name: "IncrementalAlterConfigs",
                advertised: (0, 1),
                codec: (0, 1),
                flexible_request: 1,
                flexible_response: 1,
            },
            Self::OffsetDelete => &ApiFacts {
                name: "OffsetDelete",
                advertised: (0, 0),
                codec: (0, 0),
                flexible_request: i16::MAX,
                flexible_response: i16::MAX,
            },
            Self::DescribeCluster => &ApiFacts {
                name: "DescribeCluster",
                advertised: (0, 2),
                codec: (0, 2),
                flexible_request: 0,
                flexible_response: 0,
            },
            Self::DescribeProducers => &ApiFacts {
                name: "DescribeProducers",
                advertised: (0, 0),
                codec: (0, 0),
                flexible_request: 0,
                flexible_response: 0,
            },
            Self::ConsumerGroupHeartbeat => &ApiFacts {
                name: "ConsumerGroupHeartbeat",
                advertised: (0, 1),
                codec: (0, 1),
                flexible_request: 0,
                flexible_response: 0,
            },
            Self::ConsumerGroupDescribe => &ApiFacts {
                name: "ConsumerGroupDescribe",
                advertised: (0, 1),
                codec: (0, 1),
                flexible_request: 0,
                flexible_response: 0,
            },
            Self::GetTelemetrySubscriptions => &ApiFacts {
                name: "GetTelemetrySubscriptions",
                advertised: (0, 0),
                codec: (0, 0),
                flexible_request: 0,
                flexible_response: 0,
            },
            Self::PushTelemetry => &ApiFacts {
                name: "PushTelemetry",
                advertised: (0, 0),
                codec: (0, 0),
                flexible_request: 0,
                flexible_response: 0,
            },
            Self::ListConfigResources => &ApiFacts {
                name: "ListConfigResources",
                advertised: (0, 1),
                codec: (0, 1),
                flexible_request: 0,
                flexible_response: 0,
            },
            Self::DescribeTopicPartitions => &ApiFacts {
                name: "DescribeTopicPartitions",
                advertised: (0, 0),
                codec: (0, 0),
                flexible_request: 0,
                flexible_response: 0,
            },
        }
    }
}
