// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `ListOffsets`. Versions 1 to 11, tagged fields from version 6 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};

/// `ListOffsetsRequest`, versions 1 to 11.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOffsetsRequest<'a> {
    /// `int32`.
    pub replica_id: i32,
    /// `int8`, versions 2 to 11.
    pub isolation_level: i8,
    /// `[]ListOffsetsTopic`.
    pub topics: Vec<ListOffsetsTopic<'a>>,
    /// `int32`, versions 10 to 11.
    pub timeout_ms: i32,
}

impl<'a> Decode<'a> for ListOffsetsRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 1, 11)?;
        let flexible = version >= 6;
        let replica_id = d.i32()?;
        let isolation_level = if version >= 2 { d.i8()? } else { 0 };
        let topics = d.structs(flexible, 3, version)?;
        let timeout_ms = if version >= 10 { d.i32()? } else { 0 };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { replica_id, isolation_level, topics, timeout_ms })
    }
}

impl Encode for ListOffsetsRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 1, 11)?;
        let flexible = version >= 6;
        e.i32(self.replica_id);
        if version >= 2 {
            e.i8(self.isolation_level);
        } else if self.isolation_level != 0 {
            return Err(EncodeError::AbsentField { field: "isolation_level", version });
        }
        e.structs(flexible, &self.topics, version)?;
        if version >= 10 {
            e.i32(self.timeout_ms);
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `ListOffsetsTopic`, versions 1 to 11.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOffsetsTopic<'a> {
    /// `string`.
    pub name: Str<'a>,
    /// `[]ListOffsetsPartition`.
    pub partitions: Vec<ListOffsetsPartition>,
}

impl<'a> Decode<'a> for ListOffsetsTopic<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 6;
        let name = d.string(flexible)?;
        let partitions = d.structs(flexible, 12, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { name, partitions })
    }
}

impl Encode for ListOffsetsTopic<'_> {
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

/// `ListOffsetsPartition`, versions 1 to 11.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListOffsetsPartition {
    /// `int32`.
    pub partition_index: i32,
    /// `int32`, versions 4 to 11, default -1.
    pub current_leader_epoch: i32,
    /// `int64`.
    pub timestamp: i64,
}

impl Default for ListOffsetsPartition {
    fn default() -> Self {
        Self { partition_index: 0, current_leader_epoch: -1, timestamp: 0 }
    }
}

impl<'a> Decode<'a> for ListOffsetsPartition {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 6;
        let partition_index = d.i32()?;
        let current_leader_epoch = if version >= 4 { d.i32()? } else { -1 };
        let timestamp = d.i64()?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { partition_index, current_leader_epoch, timestamp })
    }
}

impl Encode for ListOffsetsPartition {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 6;
        e.i32(self.partition_index);
        if version >= 4 {
            e.i32(self.current_leader_epoch);
        }
        e.i64(self.timestamp);
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

impl<'a> Request<'a> for ListOffsetsRequest<'a> {
    const KEY: ApiKey = ApiKey::ListOffsets;
    type Response<'r> = super::ListOffsetsResponse<'r>;
}
