// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `OffsetFetch`. Versions 1 to 10, tagged fields from version 6 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};
use riverrun_types::TopicId;

/// `OffsetFetchResponse`, versions 1 to 10.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetFetchResponse<'a> {
    /// `int32`, versions 3 to 10.
    pub throttle_time_ms: i32,
    /// `[]OffsetFetchResponseTopic`, versions 1 to 7.
    pub topics: Vec<OffsetFetchResponseTopic<'a>>,
    /// `int16`, versions 2 to 7.
    pub error_code: i16,
    /// `[]OffsetFetchResponseGroup`, versions 8 to 10.
    pub groups: Vec<OffsetFetchResponseGroup<'a>>,
}

impl<'a> Decode<'a> for OffsetFetchResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 1, 10)?;
        let flexible = version >= 6;
        let throttle_time_ms = if version >= 3 { d.i32()? } else { 0 };
        let topics = if version <= 7 { d.structs(flexible, 3, version)? } else { Vec::new() };
        let error_code = if (2..=7).contains(&version) { d.i16()? } else { 0 };
        let groups = if version >= 8 { d.structs(true, 5, version)? } else { Vec::new() };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { throttle_time_ms, topics, error_code, groups })
    }
}

impl Encode for OffsetFetchResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 1, 10)?;
        let flexible = version >= 6;
        if version >= 3 {
            e.i32(self.throttle_time_ms);
        }
        if version <= 7 {
            e.structs(flexible, &self.topics, version)?;
        } else if !self.topics.is_empty() {
            return Err(EncodeError::AbsentField { field: "topics", version });
        }
        if (2..=7).contains(&version) {
            e.i16(self.error_code);
        }
        if version >= 8 {
            e.structs(true, &self.groups, version)?;
        } else if !self.groups.is_empty() {
            return Err(EncodeError::AbsentField { field: "groups", version });
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `OffsetFetchResponseTopic`, versions 1 to 7.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetFetchResponseTopic<'a> {
    /// `string`.
    pub name: Str<'a>,
    /// `[]OffsetFetchResponsePartition`.
    pub partitions: Vec<OffsetFetchResponsePartition<'a>>,
}

impl<'a> Decode<'a> for OffsetFetchResponseTopic<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 6;
        let name = d.string(flexible)?;
        let partitions = d.structs(flexible, 16, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { name, partitions })
    }
}

impl Encode for OffsetFetchResponseTopic<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 6;
        e.string(flexible, &self.name)?;
        e.structs(flexible, &self.partitions, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `OffsetFetchResponsePartition`, versions 1 to 7.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetFetchResponsePartition<'a> {
    /// `int32`.
    pub partition_index: i32,
    /// `int64`.
    pub committed_offset: i64,
    /// `int32`, versions 5 to 7, default -1.
    pub committed_leader_epoch: i32,
    /// `string`, may be null.
    pub metadata: Option<Str<'a>>,
    /// `int16`.
    pub error_code: i16,
}

impl Default for OffsetFetchResponsePartition<'_> {
    fn default() -> Self {
        Self {
            partition_index: 0,
            committed_offset: 0,
            committed_leader_epoch: -1,
            metadata: Some(Str::Borrowed("")),
            error_code: 0,
        }
    }
}

impl<'a> Decode<'a> for OffsetFetchResponsePartition<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 6;
        let partition_index = d.i32()?;
        let committed_offset = d.i64()?;
        let committed_leader_epoch = if version >= 5 { d.i32()? } else { -1 };
        let metadata = d.nullable_string(flexible)?;
        let error_code = d.i16()?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { partition_index, committed_offset, committed_leader_epoch, metadata, error_code })
    }
}

impl Encode for OffsetFetchResponsePartition<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 6;
        e.i32(self.partition_index);
        e.i64(self.committed_offset);
        if version >= 5 {
            e.i32(self.committed_leader_epoch);
        }
        e.nullable_string(flexible, self.metadata.as_deref())?;
        e.i16(self.error_code);
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `OffsetFetchResponseGroup`, versions 8 to 10.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetFetchResponseGroup<'a> {
    /// `string`.
    pub group_id: Str<'a>,
    /// `[]OffsetFetchResponseTopics`.
    pub topics: Vec<OffsetFetchResponseTopics<'a>>,
    /// `int16`.
    pub error_code: i16,
}

impl<'a> Decode<'a> for OffsetFetchResponseGroup<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let group_id = d.string(true)?;
        let topics = d.structs(true, 3, version)?;
        let error_code = d.i16()?;
        d.skip_tagged_fields()?;
        Ok(Self { group_id, topics, error_code })
    }
}

impl Encode for OffsetFetchResponseGroup<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        e.string(true, &self.group_id)?;
        e.structs(true, &self.topics, version)?;
        e.i16(self.error_code);
        e.no_tagged_fields();
        Ok(())
    }
}

/// `OffsetFetchResponseTopics`, versions 8 to 10.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetFetchResponseTopics<'a> {
    /// `string`, versions 8 to 9.
    pub name: Str<'a>,
    /// `uuid`, version 10.
    pub topic_id: TopicId,
    /// `[]OffsetFetchResponsePartitions`.
    pub partitions: Vec<OffsetFetchResponsePartitions<'a>>,
}

impl<'a> Decode<'a> for OffsetFetchResponseTopics<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let name = if version <= 9 { d.string(true)? } else { Str::Borrowed("") };
        let topic_id = if version == 10 { d.uuid()? } else { TopicId::ZERO };
        let partitions = d.structs(true, 20, version)?;
        d.skip_tagged_fields()?;
        Ok(Self { name, topic_id, partitions })
    }
}

impl Encode for OffsetFetchResponseTopics<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        if version <= 9 {
            e.string(true, &self.name)?;
        }
        if version == 10 {
            e.uuid(self.topic_id);
        }
        e.structs(true, &self.partitions, version)?;
        e.no_tagged_fields();
        Ok(())
    }
}

/// `OffsetFetchResponsePartitions`, versions 8 to 10.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetFetchResponsePartitions<'a> {
    /// `int32`.
    pub partition_index: i32,
    /// `int64`.
    pub committed_offset: i64,
    /// `int32`, default -1.
    pub committed_leader_epoch: i32,
    /// `string`, may be null.
    pub metadata: Option<Str<'a>>,
    /// `int16`.
    pub error_code: i16,
}

impl Default for OffsetFetchResponsePartitions<'_> {
    fn default() -> Self {
        Self {
            partition_index: 0,
            committed_offset: 0,
            committed_leader_epoch: -1,
            metadata: Some(Str::Borrowed("")),
            error_code: 0,
        }
    }
}

impl<'a> Decode<'a> for OffsetFetchResponsePartitions<'a> {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let partition_index = d.i32()?;
        let committed_offset = d.i64()?;
        let committed_leader_epoch = d.i32()?;
        let metadata = d.nullable_string(true)?;
        let error_code = d.i16()?;
        d.skip_tagged_fields()?;
        Ok(Self { partition_index, committed_offset, committed_leader_epoch, metadata, error_code })
    }
}

impl Encode for OffsetFetchResponsePartitions<'_> {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.i32(self.partition_index);
        e.i64(self.committed_offset);
        e.i32(self.committed_leader_epoch);
        e.nullable_string(true, self.metadata.as_deref())?;
        e.i16(self.error_code);
        e.no_tagged_fields();
        Ok(())
    }
}
