// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `ConsumerGroupHeartbeat`. Versions 0 to 1, tagged fields from version 0 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};
use riverrun_types::TopicId;

/// `ConsumerGroupHeartbeatResponse`, versions 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerGroupHeartbeatResponse<'a> {
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `int16`.
    pub error_code: i16,
    /// `string`, may be null, default null.
    pub error_message: Option<Str<'a>>,
    /// `string`, may be null, default null.
    pub member_id: Option<Str<'a>>,
    /// `int32`.
    pub member_epoch: i32,
    /// `int32`.
    pub heartbeat_interval_ms: i32,
    /// `Assignment`, may be null, default null.
    pub assignment: Option<Assignment>,
}

impl<'a> Decode<'a> for ConsumerGroupHeartbeatResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 1)?;
        let throttle_time_ms = d.i32()?;
        let error_code = d.i16()?;
        let error_message = d.nullable_string(true)?;
        let member_id = d.nullable_string(true)?;
        let member_epoch = d.i32()?;
        let heartbeat_interval_ms = d.i32()?;
        let assignment = d.nullable_struct(version)?;
        d.skip_tagged_fields()?;
        Ok(Self {
            throttle_time_ms,
            error_code,
            error_message,
            member_id,
            member_epoch,
            heartbeat_interval_ms,
            assignment,
        })
    }
}

impl Encode for ConsumerGroupHeartbeatResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 1)?;
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        e.nullable_string(true, self.error_message.as_deref())?;
        e.nullable_string(true, self.member_id.as_deref())?;
        e.i32(self.member_epoch);
        e.i32(self.heartbeat_interval_ms);
        e.nullable_struct(self.assignment.as_ref(), version)?;
        e.no_tagged_fields();
        Ok(())
    }
}

/// `TopicPartitions`, versions 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicPartitions {
    /// `uuid`.
    pub topic_id: TopicId,
    /// `[]int32`.
    pub partitions: Vec<i32>,
}

impl<'a> Decode<'a> for TopicPartitions {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let topic_id = d.uuid()?;
        let partitions = d.array(true, 4, Decoder::i32)?;
        d.skip_tagged_fields()?;
        Ok(Self { topic_id, partitions })
    }
}

impl Encode for TopicPartitions {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.uuid(self.topic_id);
        e.array(true, &self.partitions, |e, value| {
            e.i32(*value);
            Ok(())
        })?;
        e.no_tagged_fields();
        Ok(())
    }
}

/// `Assignment`, versions 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// `[]TopicPartitions`.
    pub topic_partitions: Vec<TopicPartitions>,
}

impl<'a> Decode<'a> for Assignment {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let topic_partitions = d.structs(true, 18, version)?;
        d.skip_tagged_fields()?;
        Ok(Self { topic_partitions })
    }
}

impl Encode for Assignment {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        e.structs(true, &self.topic_partitions, version)?;
        e.no_tagged_fields();
        Ok(())
    }
}
