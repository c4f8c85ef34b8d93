// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `OffsetForLeaderEpoch`. Versions 2 to 4, tagged fields from version 4 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `OffsetForLeaderEpochResponse`, versions 2 to 4.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetForLeaderEpochResponse<'a> {
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `[]OffsetForLeaderTopicResult`.
    pub topics: Vec<OffsetForLeaderTopicResult<'a>>,
}

impl<'a> Decode<'a> for OffsetForLeaderEpochResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 2, 4)?;
        let flexible = version >= 4;
        let throttle_time_ms = d.i32()?;
        let topics = d.structs(flexible, 3, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { throttle_time_ms, topics })
    }
}

impl Encode for OffsetForLeaderEpochResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 2, 4)?;
        let flexible = version >= 4;
        e.i32(self.throttle_time_ms);
        e.structs(flexible, &self.topics, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `OffsetForLeaderTopicResult`, versions 2 to 4.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetForLeaderTopicResult<'a> {
    /// `string`.
    pub topic: Str<'a>,
    /// `[]EpochEndOffset`.
    pub partitions: Vec<EpochEndOffset>,
}

impl<'a> Decode<'a> for OffsetForLeaderTopicResult<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 4;
        let topic = d.string(flexible)?;
        let partitions = d.structs(flexible, 18, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { topic, partitions })
    }
}

impl Encode for OffsetForLeaderTopicResult<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 4;
        e.string(flexible, &self.topic)?;
        e.structs(flexible, &self.partitions, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `EpochEndOffset`, versions 2 to 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochEndOffset {
    /// `int16`.
    pub error_code: i16,
    /// `int32`.
    pub partition: i32,
    /// `int32`, default -1.
    pub leader_epoch: i32,
    /// `int64`, default -1.
    pub end_offset: i64,
}

impl Default for EpochEndOffset {
    fn default() -> Self {
        Self { error_code: 0, partition: 0, leader_epoch: -1, end_offset: -1 }
    }
}

impl<'a> Decode<'a> for EpochEndOffset {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 4;
        let error_code = d.i16()?;
        let partition = d.i32()?;
        let leader_epoch = d.i32()?;
        let end_offset = d.i64()?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { error_code, partition, leader_epoch, end_offset })
    }
}

impl Encode for EpochEndOffset {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 4;
        e.i16(self.error_code);
        e.i32(self.partition);
        e.i32(self.leader_epoch);
        e.i64(self.end_offset);
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}
