// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! `ConsumerProtocolAssignment`, a message inside other messages. Versions 0 to 3.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Blob, Decode, Encode, Str, check_decode, check_encode};

/// `ConsumerProtocolAssignment`, versions 0 to 3.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerProtocolAssignment<'a> {
    /// `[]TopicPartition`.
    pub assigned_partitions: Vec<TopicPartition<'a>>,
    /// `bytes`, may be null, default null.
    pub user_data: Option<Blob<'a>>,
}

impl<'a> Decode<'a> for ConsumerProtocolAssignment<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 3)?;
        let assigned_partitions = d.structs(false, 6, version)?;
        let user_data = d.nullable_bytes(false)?;
        Ok(Self { assigned_partitions, user_data })
    }
}

impl Encode for ConsumerProtocolAssignment<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 3)?;
        e.structs(false, &self.assigned_partitions, version)?;
        e.nullable_bytes(false, self.user_data.as_deref())?;
        Ok(())
    }
}

/// `TopicPartition`, versions 0 to 3.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicPartition<'a> {
    /// `string`.
    pub topic: Str<'a>,
    /// `[]int32`.
    pub partitions: Vec<i32>,
}

impl<'a> Decode<'a> for TopicPartition<'a> {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let topic = d.string(false)?;
        let partitions = d.array(false, 4, Decoder::i32)?;
        Ok(Self { topic, partitions })
    }
}

impl Encode for TopicPartition<'_> {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.string(false, &self.topic)?;
        e.array(false, &self.partitions, |e, value| {
            e.i32(*value);
            Ok(())
        })?;
        Ok(())
    }
}
