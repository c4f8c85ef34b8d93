// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `ListOffsets`. Versions 1 to 11, tagged fields from version 6 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `ListOffsetsResponse`, versions 1 to 11.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOffsetsResponse<'a> {
    /// `int32`, versions 2 to 11.
    pub throttle_time_ms: i32,
    /// `[]ListOffsetsTopicResponse`.
    pub topics: Vec<ListOffsetsTopicResponse<'a>>,
}

impl<'a> Decode<'a> for ListOffsetsResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 1, 11)?;
        let flexible = version >= 6;
        let throttle_time_ms = if version >= 2 { d.i32()? } else { 0 };
        let topics = d.structs(flexible, 3, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { throttle_time_ms, topics })
    }
}

impl Encode for ListOffsetsResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 1, 11)?;
        let flexible = version >= 6;
        if version >= 2 {
            e.i32(self.throttle_time_ms);
        }
        e.structs(flexible, &self.topics, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `ListOffsetsTopicResponse`, versions 1 to 11.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOffsetsTopicResponse<'a> {
    /// `string`.
    pub name: Str<'a>,
    /// `[]ListOffsetsPartitionResponse`.
    pub partitions: Vec<ListOffsetsPartitionResponse>,
}

impl<'a> Decode<'a> for ListOffsetsTopicResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 6;
        let name = d.string(flexible)?;
        let partitions = d.structs(flexible, 22, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { name, partitions })
    }
}

impl Encode for ListOffsetsTopicResponse<'_> {
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

/// `ListOffsetsPartitionResponse`, versions 1 to 11.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListOffsetsPartitionResponse {
    /// `int32`.
    pub partition_index: i32,
    /// `int16`.
    pub error_code: i16,
    /// `int64`, default -1.
    pub timestamp: i64,
    /// `int64`, default -1.
    pub offset: i64,
    /// `int32`, versions 4 to 11, default -1.
    pub leader_epoch: i32,
}

impl Default for ListOffsetsPartitionResponse {
    fn default() -> Self {
        Self { partition_index: 0, error_code: 0, timestamp: -1, offset: -1, leader_epoch: -1 }
    }
}

impl<'a> Decode<'a> for ListOffsetsPartitionResponse {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 6;
        let partition_index = d.i32()?;
        let error_code = d.i16()?;
        let timestamp = d.i64()?;
        let offset = d.i64()?;
        let leader_epoch = if version >= 4 { d.i32()? } else { -1 };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { partition_index, error_code, timestamp, offset, leader_epoch })
    }
}

impl Encode for ListOffsetsPartitionResponse {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 6;
        e.i32(self.partition_index);
        e.i16(self.error_code);
        e.i64(self.timestamp);
        e.i64(self.offset);
        if version >= 4 {
            e.i32(self.leader_epoch);
        } else if self.leader_epoch != -1 {
            return Err(EncodeError::AbsentField { field: "leader_epoch", version });
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}
