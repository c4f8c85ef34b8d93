// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `OffsetDelete`. Version 0.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `OffsetDeleteResponse`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetDeleteResponse<'a> {
    /// `int16`.
    pub error_code: i16,
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `[]OffsetDeleteResponseTopic`.
    pub topics: Vec<OffsetDeleteResponseTopic<'a>>,
}

impl<'a> Decode<'a> for OffsetDeleteResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 0)?;
        let error_code = d.i16()?;
        let throttle_time_ms = d.i32()?;
        let topics = d.structs(false, 6, version)?;
        Ok(Self { error_code, throttle_time_ms, topics })
    }
}

impl Encode for OffsetDeleteResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 0)?;
        e.i16(self.error_code);
        e.i32(self.throttle_time_ms);
        e.structs(false, &self.topics, version)?;
        Ok(())
    }
}

/// `OffsetDeleteResponseTopic`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetDeleteResponseTopic<'a> {
    /// `string`.
    pub name: Str<'a>,
    /// `[]OffsetDeleteResponsePartition`.
    pub partitions: Vec<OffsetDeleteResponsePartition>,
}

impl<'a> Decode<'a> for OffsetDeleteResponseTopic<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let name = d.string(false)?;
        let partitions = d.structs(false, 6, version)?;
        Ok(Self { name, partitions })
    }
}

impl Encode for OffsetDeleteResponseTopic<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        e.string(false, &self.name)?;
        e.structs(false, &self.partitions, version)?;
        Ok(())
    }
}

/// `OffsetDeleteResponsePartition`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetDeleteResponsePartition {
    /// `int32`.
    pub partition_index: i32,
    /// `int16`.
    pub error_code: i16,
}

impl<'a> Decode<'a> for OffsetDeleteResponsePartition {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let partition_index = d.i32()?;
        let error_code = d.i16()?;
        Ok(Self { partition_index, error_code })
    }
}

impl Encode for OffsetDeleteResponsePartition {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.i32(self.partition_index);
        e.i16(self.error_code);
        Ok(())
    }
}
