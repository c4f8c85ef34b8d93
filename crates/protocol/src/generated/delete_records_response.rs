// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `DeleteRecords`. Versions 0 to 2, tagged fields from version 2 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `DeleteRecordsResponse`, versions 0 to 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteRecordsResponse<'a> {
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `[]DeleteRecordsTopicResult`.
    pub topics: Vec<DeleteRecordsTopicResult<'a>>,
}

impl<'a> Decode<'a> for DeleteRecordsResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 2)?;
        let flexible = version >= 2;
        let throttle_time_ms = d.i32()?;
        let topics = d.structs(flexible, 3, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { throttle_time_ms, topics })
    }
}

impl Encode for DeleteRecordsResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 2)?;
        let flexible = version >= 2;
        e.i32(self.throttle_time_ms);
        e.structs(flexible, &self.topics, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `DeleteRecordsTopicResult`, versions 0 to 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteRecordsTopicResult<'a> {
    /// `string`.
    pub name: Str<'a>,
    /// `[]DeleteRecordsPartitionResult`.
    pub partitions: Vec<DeleteRecordsPartitionResult>,
}

impl<'a> Decode<'a> for DeleteRecordsTopicResult<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let name = d.string(flexible)?;
        let partitions = d.structs(flexible, 14, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { name, partitions })
    }
}

impl Encode for DeleteRecordsTopicResult<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 2;
        e.string(flexible, &self.name)?;
        e.structs(flexible, &self.partitions, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `DeleteRecordsPartitionResult`, versions 0 to 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteRecordsPartitionResult {
    /// `int32`.
    pub partition_index: i32,
    /// `int64`.
    pub low_watermark: i64,
    /// `int16`.
    pub error_code: i16,
}

impl<'a> Decode<'a> for DeleteRecordsPartitionResult {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let partition_index = d.i32()?;
        let low_watermark = d.i64()?;
        let error_code = d.i16()?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { partition_index, low_watermark, error_code })
    }
}

impl Encode for DeleteRecordsPartitionResult {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 2;
        e.i32(self.partition_index);
        e.i64(self.low_watermark);
        e.i16(self.error_code);
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}
