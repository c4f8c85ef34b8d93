// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! `ConsumerProtocolSubscription`, a message inside other messages. Versions 0 to 3.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Blob, Decode, Encode, Str, check_decode, check_encode};

/// `ConsumerProtocolSubscription`, versions 0 to 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerProtocolSubscription<'a> {
    /// `[]string`.
    pub topics: Vec<Str<'a>>,
    /// `bytes`, may be null, default null.
    pub user_data: Option<Blob<'a>>,
    /// `[]TopicPartition`, versions 1 to 3.
    pub owned_partitions: Vec<TopicPartition<'a>>,
    /// `int32`, versions 2 to 3, default -1.
    pub generation_id: i32,
    /// `string`, version 3, may be null, default null.
    pub rack_id: Option<Str<'a>>,
}

impl Default for ConsumerProtocolSubscription<'_> {
    fn default() -> Self {
        Self {
            topics: Vec::new(),
            user_data: None,
            owned_partitions: Vec::new(),
            generation_id: -1,
            rack_id: None,
        }
    }
}

impl<'a> Decode<'a> for ConsumerProtocolSubscription<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 3)?;
        let topics = d.array(false, 2, |d| d.string(false))?;
        let user_data = d.nullable_bytes(false)?;
        let owned_partitions = if version >= 1 { d.structs(false, 6, version)? } else { Vec::new() };
        let generation_id = if version >= 2 { d.i32()? } else { -1 };
        let rack_id = if version == 3 { d.nullable_string(false)? } else { None };
        Ok(Self { topics, user_data, owned_partitions, generation_id, rack_id })
    }
}

impl Encode for ConsumerProtocolSubscription<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 3)?;
        e.array(false, &self.topics, |e, value| e.string(false, value))?;
        e.nullable_bytes(false, self.user_data.as_deref())?;
        if version >= 1 {
            e.structs(false, &self.owned_partitions, version)?;
        }
        if version >= 2 {
            e.i32(self.generation_id);
        }
        if version == 3 {
            e.nullable_string(false, self.rack_id.as_deref())?;
        }
        Ok(())
    }
}

/// `TopicPartition`, versions 1 to 3.
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
