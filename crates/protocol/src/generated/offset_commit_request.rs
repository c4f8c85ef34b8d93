// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `OffsetCommit`. Versions 2 to 10, tagged fields from version 8 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};
use riverrun_types::TopicId;

/// `OffsetCommitRequest`, versions 2 to 10.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommitRequest<'a> {
    /// `string`.
    pub group_id: Str<'a>,
    /// `int32`, default -1.
    pub generation_id_or_member_epoch: i32,
    /// `string`.
    pub member_id: Str<'a>,
    /// `string`, versions 7 to 10, may be null, default null.
    pub group_instance_id: Option<Str<'a>>,
    /// `int64`, versions 2 to 4, default -1.
    pub retention_time_ms: i64,
    /// `[]OffsetCommitRequestTopic`.
    pub topics: Vec<OffsetCommitRequestTopic<'a>>,
}

impl Default for OffsetCommitRequest<'_> {
    fn default() -> Self {
        Self {
            group_id: Str::Borrowed(""),
            generation_id_or_member_epoch: -1,
            member_id: Str::Borrowed(""),
            group_instance_id: None,
            retention_time_ms: -1,
            topics: Vec::new(),
        }
    }
}

impl<'a> Decode<'a> for OffsetCommitRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 2, 10)?;
        let flexible = version >= 8;
        let group_id = d.string(flexible)?;
        let generation_id_or_member_epoch = d.i32()?;
        let member_id = d.string(flexible)?;
        let group_instance_id = if version >= 7 { d.nullable_string(flexible)? } else { None };
        let retention_time_ms = if version <= 4 { d.i64()? } else { -1 };
        let topics = d.structs(flexible, 3, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self {
            group_id,
            generation_id_or_member_epoch,
            member_id,
            group_instance_id,
            retention_time_ms,
            topics,
        })
    }
}

impl Encode for OffsetCommitRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 2, 10)?;
        let flexible = version >= 8;
        e.string(flexible, &self.group_id)?;
        e.i32(self.generation_id_or_member_epoch);
        e.string(flexible, &self.member_id)?;
        if version >= 7 {
            e.nullable_string(flexible, self.group_instance_id.as_deref())?;
        } else if self.group_instance_id.is_some() {
            return Err(EncodeError::AbsentField { field: "group_instance_id", version });
        }
        if version <= 4 {
            e.i64(self.retention_time_ms);
        }
        e.structs(flexible, &self.topics, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `OffsetCommitRequestTopic`, versions 2 to 10.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetCommitRequestTopic<'a> {
    /// `string`, versions 2 to 9.
    pub name: Str<'a>,
    /// `uuid`, version 10.
    pub topic_id: TopicId,
    /// `[]OffsetCommitRequestPartition`.
    pub partitions: Vec<OffsetCommitRequestPartition<'a>>,
}

impl<'a> Decode<'a> for OffsetCommitRequestTopic<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 8;
        let name = if version <= 9 { d.string(flexible)? } else { Str::Borrowed("") };
        let topic_id = if version == 10 { d.uuid()? } else { TopicId::ZERO };
        let partitions = d.structs(flexible, 14, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { name, topic_id, partitions })
    }
}

impl Encode for OffsetCommitRequestTopic<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 8;
        if version <= 9 {
            e.string(flexible, &self.name)?;
        }
        if version == 10 {
            e.uuid(self.topic_id);
        }
        e.structs(flexible, &self.partitions, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `OffsetCommitRequestPartition`, versions 2 to 10.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommitRequestPartition<'a> {
    /// `int32`.
    pub partition_index: i32,
    /// `int64`.
    pub committed_offset: i64,
    /// `int32`, versions 6 to 10, default -1.
    pub committed_leader_epoch: i32,
    /// `string`, may be null.
    pub committed_metadata: Option<Str<'a>>,
}

impl Default for OffsetCommitRequestPartition<'_> {
    fn default() -> Self {
        Self {
            partition_index: 0,
            committed_offset: 0,
            committed_leader_epoch: -1,
            committed_metadata: Some(Str::Borrowed("")),
        }
    }
}

impl<'a> Decode<'a> for OffsetCommitRequestPartition<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 8;
        let partition_index = d.i32()?;
        let committed_offset = d.i64()?;
        let committed_leader_epoch = if version >= 6 { d.i32()? } else { -1 };
        let committed_metadata = d.nullable_string(flexible)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { partition_index, committed_offset, committed_leader_epoch, committed_metadata })
    }
}

impl Encode for OffsetCommitRequestPartition<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 8;
        e.i32(self.partition_index);
        e.i64(self.committed_offset);
        if version >= 6 {
            e.i32(self.committed_leader_epoch);
        }
        e.nullable_string(flexible, self.committed_metadata.as_deref())?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

impl<'a> Request<'a> for OffsetCommitRequest<'a> {
    const KEY: ApiKey = ApiKey::OffsetCommit;
    type Response<'r> = super::OffsetCommitResponse<'r>;
}
