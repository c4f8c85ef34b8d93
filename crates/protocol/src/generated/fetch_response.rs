// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `Fetch`. Versions 4 to 18, tagged fields from version 12 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Records, Str, check_decode, check_encode};
use riverrun_types::TopicId;

/// `FetchResponse`, versions 4 to 18.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchResponse<'a> {
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `int16`, versions 7 to 18.
    pub error_code: i16,
    /// `int32`, versions 7 to 18.
    pub session_id: i32,
    /// `[]FetchableTopicResponse`.
    pub responses: Vec<FetchableTopicResponse<'a>>,
    /// `[]NodeEndpoint`, versions 16 to 18, tag 0.
    pub node_endpoints: Vec<NodeEndpoint<'a>>,
}

impl<'a> Decode<'a> for FetchResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 4, 18)?;
        let flexible = version >= 12;
        let throttle_time_ms = d.i32()?;
        let error_code = if version >= 7 { d.i16()? } else { 0 };
        let session_id = if version >= 7 { d.i32()? } else { 0 };
        let responses = d.structs(flexible, 3, version)?;
        let mut node_endpoints = Vec::new();
        if flexible {
            d.tagged_fields(|d, tag| {
                match tag {
                    0 if version >= 16 => node_endpoints = d.structs(true, 11, version)?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
        }
        Ok(Self { throttle_time_ms, error_code, session_id, responses, node_endpoints })
    }
}

impl Encode for FetchResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 4, 18)?;
        let flexible = version >= 12;
        e.i32(self.throttle_time_ms);
        if version >= 7 {
            e.i16(self.error_code);
        }
        if version >= 7 {
            e.i32(self.session_id);
        } else if self.session_id != 0 {
            return Err(EncodeError::AbsentField { field: "session_id", version });
        }
        e.structs(flexible, &self.responses, version)?;
        if version < 16 && !self.node_endpoints.is_empty() {
            return Err(EncodeError::AbsentField { field: "node_endpoints", version });
        }
        if flexible {
            let tags = e.begin_tagged_fields();
            if version >= 16 && !self.node_endpoints.is_empty() {
                let start = e.begin_tagged_field(&tags, 0);
                e.structs(true, &self.node_endpoints, version)?;
                e.end_tagged_field(&start)?;
            }
        }
        Ok(())
    }
}

/// `FetchableTopicResponse`, versions 4 to 18.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchableTopicResponse<'a> {
    /// `string`, versions 4 to 12.
    pub topic: Str<'a>,
    /// `uuid`, versions 13 to 18.
    pub topic_id: TopicId,
    /// `[]PartitionData`.
    pub partitions: Vec<PartitionData<'a>>,
}

impl<'a> Decode<'a> for FetchableTopicResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 12;
        let topic = if version <= 12 { d.string(flexible)? } else { Str::Borrowed("") };
        let topic_id = if version >= 13 { d.uuid()? } else { TopicId::ZERO };
        let partitions = d.structs(flexible, 30, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { topic, topic_id, partitions })
    }
}

impl Encode for FetchableTopicResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 12;
        if version <= 12 {
            e.string(flexible, &self.topic)?;
        }
        if version >= 13 {
            e.uuid(self.topic_id);
        }
        e.structs(flexible, &self.partitions, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `PartitionData`, versions 4 to 18.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionData<'a> {
    /// `int32`.
    pub partition_index: i32,
    /// `int16`.
    pub error_code: i16,
    /// `int64`.
    pub high_watermark: i64,
    /// `int64`, default -1.
    pub last_stable_offset: i64,
    /// `int64`, versions 5 to 18, default -1.
    pub log_start_offset: i64,
    /// `EpochEndOffset`, versions 12 to 18, tag 0.
    pub diverging_epoch: EpochEndOffset,
    /// `LeaderIdAndEpoch`, versions 12 to 18, tag 1.
    pub current_leader: LeaderIdAndEpoch,
    /// `SnapshotId`, versions 12 to 18, tag 2.
    pub snapshot_id: SnapshotId,
    /// `[]AbortedTransaction`, may be null.
    pub aborted_transactions: Option<Vec<AbortedTransaction>>,
    /// `int32`, versions 11 to 18, default -1.
    pub preferred_read_replica: i32,
    /// `records`, may be null.
    pub records: Option<Records<'a>>,
}

impl Default for PartitionData<'_> {
    fn default() -> Self {
        Self {
            partition_index: 0,
            error_code: 0,
            high_watermark: 0,
            last_stable_offset: -1,
            log_start_offset: -1,
            diverging_epoch: EpochEndOffset::default(),
            current_leader: LeaderIdAndEpoch::default(),
            snapshot_id: SnapshotId::default(),
            aborted_transactions: Some(Vec::new()),
            preferred_read_replica: -1,
            records: None,
        }
    }
}

impl<'a> Decode<'a> for PartitionData<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 12;
        let partition_index = d.i32()?;
        let error_code = d.i16()?;
        let high_watermark = d.i64()?;
        let last_stable_offset = d.i64()?;
        let log_start_offset = if version >= 5 { d.i64()? } else { -1 };
        let mut diverging_epoch = EpochEndOffset::default();
        let mut current_leader = LeaderIdAndEpoch::default();
        let mut snapshot_id = SnapshotId::default();
        let aborted_transactions = d.nullable_structs(flexible, 16, version)?;
        let preferred_read_replica = if version >= 11 { d.i32()? } else { -1 };
        let records = d.nullable_records(flexible)?;
        if flexible {
            d.tagged_fields(|d, tag| {
                match tag {
                    0 => diverging_epoch = EpochEndOffset::decode(d, version)?,
                    1 => current_leader = LeaderIdAndEpoch::decode(d, version)?,
                    2 => snapshot_id = SnapshotId::decode(d, version)?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
        }
        Ok(Self {
            partition_index,
            error_code,
            high_watermark,
            last_stable_offset,
            log_start_offset,
            diverging_epoch,
            current_leader,
            snapshot_id,
            aborted_transactions,
            preferred_read_replica,
            records,
        })
    }
}

impl Encode for PartitionData<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 12;
        e.i32(self.partition_index);
        e.i16(self.error_code);
        e.i64(self.high_watermark);
        e.i64(self.last_stable_offset);
        if version >= 5 {
            e.i64(self.log_start_offset);
        }
        e.nullable_structs(flexible, self.aborted_transactions.as_deref(), version)?;
        if version >= 11 {
            e.i32(self.preferred_read_replica);
        } else if self.preferred_read_replica != -1 {
            return Err(EncodeError::AbsentField { field: "preferred_read_replica", version });
        }
        e.nullable_records(flexible, self.records)?;
        if version < 12 && self.diverging_epoch != EpochEndOffset::default() {
            return Err(EncodeError::AbsentField { field: "diverging_epoch", version });
        }
        if version < 12 && self.current_leader != LeaderIdAndEpoch::default() {
            return Err(EncodeError::AbsentField { field: "current_leader", version });
        }
        if version < 12 && self.snapshot_id != SnapshotId::default() {
            return Err(EncodeError::AbsentField { field: "snapshot_id", version });
        }
        if flexible {
            let tags = e.begin_tagged_fields();
            if self.diverging_epoch != EpochEndOffset::default() {
                let start = e.begin_tagged_field(&tags, 0);
                self.diverging_epoch.encode(e, version)?;
                e.end_tagged_field(&start)?;
            }
            if self.current_leader != LeaderIdAndEpoch::default() {
                let start = e.begin_tagged_field(&tags, 1);
                self.current_leader.encode(e, version)?;
                e.end_tagged_field(&start)?;
            }
            if self.snapshot_id != SnapshotId::default() {
                let start = e.begin_tagged_field(&tags, 2);
                self.snapshot_id.encode(e, version)?;
                e.end_tagged_field(&start)?;
            }
        }
        Ok(())
    }
}

/// `EpochEndOffset`, versions 12 to 18.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochEndOffset {
    /// `int32`, default -1.
    pub epoch: i32,
    /// `int64`, default -1.
    pub end_offset: i64,
}

impl Default for EpochEndOffset {
    fn default() -> Self {
        Self { epoch: -1, end_offset: -1 }
    }
}

impl<'a> Decode<'a> for EpochEndOffset {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let epoch = d.i32()?;
        let end_offset = d.i64()?;
        d.skip_tagged_fields()?;
        Ok(Self { epoch, end_offset })
    }
}

impl Encode for EpochEndOffset {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.i32(self.epoch);
        e.i64(self.end_offset);
        e.no_tagged_fields();
        Ok(())
    }
}

/// `LeaderIdAndEpoch`, versions 12 to 18.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderIdAndEpoch {
    /// `int32`, default -1.
    pub leader_id: i32,
    /// `int32`, default -1.
    pub leader_epoch: i32,
}

impl Default for LeaderIdAndEpoch {
    fn default() -> Self {
        Self { leader_id: -1, leader_epoch: -1 }
    }
}

impl<'a> Decode<'a> for LeaderIdAndEpoch {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let leader_id = d.i32()?;
        let leader_epoch = d.i32()?;
        d.skip_tagged_fields()?;
        Ok(Self { leader_id, leader_epoch })
    }
}

impl Encode for LeaderIdAndEpoch {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.i32(self.leader_id);
        e.i32(self.leader_epoch);
        e.no_tagged_fields();
        Ok(())
    }
}

/// `SnapshotId`, versions 12 to 18.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotId {
    /// `int64`, default -1.
    pub end_offset: i64,
    /// `int32`, default -1.
    pub epoch: i32,
}

impl Default for SnapshotId {
    fn default() -> Self {
        Self { end_offset: -1, epoch: -1 }
    }
}

impl<'a> Decode<'a> for SnapshotId {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let end_offset = d.i64()?;
        let epoch = d.i32()?;
        d.skip_tagged_fields()?;
        Ok(Self { end_offset, epoch })
    }
}

impl Encode for SnapshotId {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.i64(self.end_offset);
        e.i32(self.epoch);
        e.no_tagged_fields();
        Ok(())
    }
}

/// `AbortedTransaction`, versions 4 to 18.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// `int64`.
    pub producer_id: i64,
    /// `int64`.
    pub first_offset: i64,
}

impl<'a> Decode<'a> for AbortedTransaction {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 12;
        let producer_id = d.i64()?;
        let first_offset = d.i64()?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { producer_id, first_offset })
    }
}

impl Encode for AbortedTransaction {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 12;
        e.i64(self.producer_id);
        e.i64(self.first_offset);
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `NodeEndpoint`, versions 16 to 18.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeEndpoint<'a> {
    /// `int32`.
    pub node_id: i32,
    /// `string`.
    pub host: Str<'a>,
    /// `int32`.
    pub port: i32,
    /// `string`, may be null, default null.
    pub rack: Option<Str<'a>>,
}

impl<'a> Decode<'a> for NodeEndpoint<'a> {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let node_id = d.i32()?;
        let host = d.string(true)?;
        let port = d.i32()?;
        let rack = d.nullable_string(true)?;
        d.skip_tagged_fields()?;
        Ok(Self { node_id, host, port, rack })
    }
}

impl Encode for NodeEndpoint<'_> {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.i32(self.node_id);
        e.string(true, &self.host)?;
        e.i32(self.port);
        e.nullable_string(true, self.rack.as_deref())?;
        e.no_tagged_fields();
        Ok(())
    }
}
