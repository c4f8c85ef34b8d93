// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `ElectLeaders`. Versions 0 to 2, tagged fields from version 2 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};

/// `ElectLeadersRequest`, versions 0 to 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectLeadersRequest<'a> {
    /// `int8`, versions 1 to 2.
    pub election_type: i8,
    /// `[]TopicPartitions`, may be null.
    pub topic_partitions: Option<Vec<TopicPartitions<'a>>>,
    /// `int32`, default 60000.
    pub timeout_ms: i32,
}

impl Default for ElectLeadersRequest<'_> {
    fn default() -> Self {
        Self { election_type: 0, topic_partitions: Some(Vec::new()), timeout_ms: 60_000 }
    }
}

impl<'a> Decode<'a> for ElectLeadersRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 2)?;
        let flexible = version >= 2;
        let election_type = if version >= 1 { d.i8()? } else { 0 };
        let topic_partitions = d.nullable_structs(flexible, 3, version)?;
        let timeout_ms = d.i32()?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { election_type, topic_partitions, timeout_ms })
    }
}

impl Encode for ElectLeadersRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 2)?;
        let flexible = version >= 2;
        if version >= 1 {
            e.i8(self.election_type);
        } else if self.election_type != 0 {
            return Err(EncodeError::AbsentField { field: "election_type", version });
        }
        e.nullable_structs(flexible, self.topic_partitions.as_deref(), version)?;
        e.i32(self.timeout_ms);
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `TopicPartitions`, versions 0 to 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicPartitions<'a> {
    /// `string`.
    pub topic: Str<'a>,
    /// `[]int32`.
    pub partitions: Vec<i32>,
}

impl<'a> Decode<'a> for TopicPartitions<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let topic = d.string(flexible)?;
        let partitions = d.array(flexible, 4, Decoder::i32)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { topic, partitions })
    }
}

impl Encode for TopicPartitions<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 2;
        e.string(flexible, &self.topic)?;
        e.array(flexible, &self.partitions, |e, value| {
            e.i32(*value);
            Ok(())
        })?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

impl<'a> Request<'a> for ElectLeadersRequest<'a> {
    const KEY: ApiKey = ApiKey::ElectLeaders;
    type Response<'r> = super::ElectLeadersResponse<'r>;
}
