// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `DescribeProducers`. Version 0, tagged fields from version 0 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `DescribeProducersResponse`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeProducersResponse<'a> {
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `[]TopicResponse`.
    pub topics: Vec<TopicResponse<'a>>,
}

impl<'a> Decode<'a> for DescribeProducersResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 0)?;
        let throttle_time_ms = d.i32()?;
        let topics = d.structs(true, 3, version)?;
        d.skip_tagged_fields()?;
        Ok(Self { throttle_time_ms, topics })
    }
}

impl Encode for DescribeProducersResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 0)?;
        e.i32(self.throttle_time_ms);
        e.structs(true, &self.topics, version)?;
        e.no_tagged_fields();
        Ok(())
    }
}

/// `TopicResponse`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicResponse<'a> {
    /// `string`.
    pub name: Str<'a>,
    /// `[]PartitionResponse`.
    pub partitions: Vec<PartitionResponse<'a>>,
}

impl<'a> Decode<'a> for TopicResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let name = d.string(true)?;
        let partitions = d.structs(true, 9, version)?;
        d.skip_tagged_fields()?;
        Ok(Self { name, partitions })
    }
}

impl Encode for TopicResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        e.string(true, &self.name)?;
        e.structs(true, &self.partitions, version)?;
        e.no_tagged_fields();
        Ok(())
    }
}

/// `PartitionResponse`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionResponse<'a> {
    /// `int32`.
    pub partition_index: i32,
    /// `int16`.
    pub error_code: i16,
    /// `string`, may be null, default null.
    pub error_message: Option<Str<'a>>,
    /// `[]ProducerState`.
    pub active_producers: Vec<ProducerState>,
}

impl<'a> Decode<'a> for PartitionResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let partition_index = d.i32()?;
        let error_code = d.i16()?;
        let error_message = d.nullable_string(true)?;
        let active_producers = d.structs(true, 37, version)?;
        d.skip_tagged_fields()?;
        Ok(Self { partition_index, error_code, error_message, active_producers })
    }
}

impl Encode for PartitionResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        e.i32(self.partition_index);
        e.i16(self.error_code);
        e.nullable_string(true, self.error_message.as_deref())?;
        e.structs(true, &self.active_producers, version)?;
        e.no_tagged_fields();
        Ok(())
    }
}

/// `ProducerState`, version 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerState {
    /// `int64`.
    pub producer_id: i64,
    /// `int32`.
    pub producer_epoch: i32,
    /// `int32`, default -1.
    pub last_sequence: i32,
    /// `int64`, default -1.
    pub last_timestamp: i64,
    /// `int32`.
    pub coordinator_epoch: i32,
    /// `int64`, default -1.
    pub current_txn_start_offset: i64,
}

impl Default for ProducerState {
    fn default() -> Self {
        Self {
            producer_id: 0,
            producer_epoch: 0,
            last_sequence: -1,
            last_timestamp: -1,
            coordinator_epoch: 0,
            current_txn_start_offset: -1,
        }
    }
}

impl<'a> Decode<'a> for ProducerState {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let producer_id = d.i64()?;
        let producer_epoch = d.i32()?;
        let last_sequence = d.i32()?;
        let last_timestamp = d.i64()?;
        let coordinator_epoch = d.i32()?;
        let current_txn_start_offset = d.i64()?;
        d.skip_tagged_fields()?;
        Ok(Self {
            producer_id,
            producer_epoch,
            last_sequence,
            last_timestamp,
            coordinator_epoch,
            current_txn_start_offset,
        })
    }
}

impl Encode for ProducerState {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.i64(self.producer_id);
        e.i32(self.producer_epoch);
        e.i32(self.last_sequence);
        e.i64(self.last_timestamp);
        e.i32(self.coordinator_epoch);
        e.i64(self.current_txn_start_offset);
        e.no_tagged_fields();
        Ok(())
    }
}
