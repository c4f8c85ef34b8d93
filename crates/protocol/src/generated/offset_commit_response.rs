// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `OffsetCommit`. Versions 2 to 10, tagged fields from version 8 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};
use riverrun_types::TopicId;

/// `OffsetCommitResponse`, versions 2 to 10.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetCommitResponse<'a> {
    /// `int32`, versions 3 to 10.
    pub throttle_time_ms: i32,
    /// `[]OffsetCommitResponseTopic`.
    pub topics: Vec<OffsetCommitResponseTopic<'a>>,
}

impl<'a> Decode<'a> for OffsetCommitResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 2, 10)?;
        let flexible = version >= 8;
        let throttle_time_ms = if version >= 3 { d.i32()? } else { 0 };
        let topics = d.structs(flexible, 3, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { throttle_time_ms, topics })
    }
}

impl Encode for OffsetCommitResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 2, 10)?;
        let flexible = version >= 8;
        if version >= 3 {
            e.i32(self.throttle_time_ms);
        }
        e.structs(flexible, &self.topics, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `OffsetCommitResponseTopic`, versions 2 to 10.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetCommitResponseTopic<'a> {
    /// `string`, versions 2 to 9.
    pub name: Str<'a>,
    /// `uuid`, version 10.
    pub topic_id: TopicId,
    /// `[]OffsetCommitResponsePartition`.
    pub partitions: Vec<OffsetCommitResponsePartition>,
}

impl<'a> Decode<'a> for OffsetCommitResponseTopic<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 8;
        let name = if version <= 9 { d.string(flexible)? } else { Str::Borrowed("") };
        let topic_id = if version == 10 { d.uuid()? } else { TopicId::ZERO };
        let partitions = d.structs(flexible, 6, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { name, topic_id, partitions })
    }
}

impl Encode for OffsetCommitResponseTopic<'_> {
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

/// `OffsetCommitResponsePartition`, versions 2 to 10.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetCommitResponsePartition {
    /// `int32`.
    pub partition_index: i32,
    /// `int16`.
    pub error_code: i16,
}

impl<'a> Decode<'a> for OffsetCommitResponsePartition {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 8;
        let partition_index = d.i32()?;
        let error_code = d.i16()?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { partition_index, error_code })
    }
}

impl Encode for OffsetCommitResponsePartition {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 8;
        e.i32(self.partition_index);
        e.i16(self.error_code);
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}
