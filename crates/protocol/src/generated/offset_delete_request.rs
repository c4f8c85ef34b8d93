// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `OffsetDelete`. Version 0.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};

/// `OffsetDeleteRequest`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetDeleteRequest<'a> {
    /// `string`.
    pub group_id: Str<'a>,
    /// `[]OffsetDeleteRequestTopic`.
    pub topics: Vec<OffsetDeleteRequestTopic<'a>>,
}

impl<'a> Decode<'a> for OffsetDeleteRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 0)?;
        let group_id = d.string(false)?;
        let topics = d.structs(false, 6, version)?;
        Ok(Self { group_id, topics })
    }
}

impl Encode for OffsetDeleteRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 0)?;
        e.string(false, &self.group_id)?;
        e.structs(false, &self.topics, version)?;
        Ok(())
    }
}

/// `OffsetDeleteRequestTopic`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetDeleteRequestTopic<'a> {
    /// `string`.
    pub name: Str<'a>,
    /// `[]OffsetDeleteRequestPartition`.
    pub partitions: Vec<OffsetDeleteRequestPartition>,
}

impl<'a> Decode<'a> for OffsetDeleteRequestTopic<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let name = d.string(false)?;
        let partitions = d.structs(false, 4, version)?;
        Ok(Self { name, partitions })
    }
}

impl Encode for OffsetDeleteRequestTopic<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        e.string(false, &self.name)?;
        e.structs(false, &self.partitions, version)?;
        Ok(())
    }
}

/// `OffsetDeleteRequestPartition`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetDeleteRequestPartition {
    /// `int32`.
    pub partition_index: i32,
}

impl<'a> Decode<'a> for OffsetDeleteRequestPartition {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let partition_index = d.i32()?;
        Ok(Self { partition_index })
    }
}

impl Encode for OffsetDeleteRequestPartition {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.i32(self.partition_index);
        Ok(())
    }
}

impl<'a> Request<'a> for OffsetDeleteRequest<'a> {
    const KEY: ApiKey = ApiKey::OffsetDelete;
    type Response<'r> = super::OffsetDeleteResponse<'r>;
}
