// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `OffsetForLeaderEpoch`. Versions 2 to 4, tagged fields from version 4 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};

/// `OffsetForLeaderEpochRequest`, versions 2 to 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetForLeaderEpochRequest<'a> {
    /// `int32`, versions 3 to 4, default -2.
    pub replica_id: i32,
    /// `[]OffsetForLeaderTopic`.
    pub topics: Vec<OffsetForLeaderTopic<'a>>,
}

impl Default for OffsetForLeaderEpochRequest<'_> {
    fn default() -> Self {
        Self { replica_id: -2, topics: Vec::new() }
    }
}

impl<'a> Decode<'a> for OffsetForLeaderEpochRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 2, 4)?;
        let flexible = version >= 4;
        let replica_id = if version >= 3 { d.i32()? } else { -2 };
        let topics = d.structs(flexible, 3, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { replica_id, topics })
    }
}

impl Encode for OffsetForLeaderEpochRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 2, 4)?;
        let flexible = version >= 4;
        if version >= 3 {
            e.i32(self.replica_id);
        }
        e.structs(flexible, &self.topics, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `OffsetForLeaderTopic`, versions 2 to 4.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetForLeaderTopic<'a> {
    /// `string`.
    pub topic: Str<'a>,
    /// `[]OffsetForLeaderPartition`.
    pub partitions: Vec<OffsetForLeaderPartition>,
}

impl<'a> Decode<'a> for OffsetForLeaderTopic<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 4;
        let topic = d.string(flexible)?;
        let partitions = d.structs(flexible, 12, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { topic, partitions })
    }
}

impl Encode for OffsetForLeaderTopic<'_> {
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

/// `OffsetForLeaderPartition`, versions 2 to 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetForLeaderPartition {
    /// `int32`.
    pub partition: i32,
    /// `int32`, default -1.
    pub current_leader_epoch: i32,
    /// `int32`.
    pub leader_epoch: i32,
}

impl Default for OffsetForLeaderPartition {
    fn default() -> Self {
        Self { partition: 0, current_leader_epoch: -1, leader_epoch: 0 }
    }
}

impl<'a> Decode<'a> for OffsetForLeaderPartition {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 4;
        let partition = d.i32()?;
        let current_leader_epoch = d.i32()?;
        let leader_epoch = d.i32()?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { partition, current_leader_epoch, leader_epoch })
    }
}

impl Encode for OffsetForLeaderPartition {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 4;
        e.i32(self.partition);
        e.i32(self.current_leader_epoch);
        e.i32(self.leader_epoch);
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

impl<'a> Request<'a> for OffsetForLeaderEpochRequest<'a> {
    const KEY: ApiKey = ApiKey::OffsetForLeaderEpoch;
    type Response<'r> = super::OffsetForLeaderEpochResponse<'r>;
}
