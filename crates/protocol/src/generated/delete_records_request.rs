// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `DeleteRecords`. Versions 0 to 2, tagged fields from version 2 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};

/// `DeleteRecordsRequest`, versions 0 to 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteRecordsRequest<'a> {
    /// `[]DeleteRecordsTopic`.
    pub topics: Vec<DeleteRecordsTopic<'a>>,
    /// `int32`.
    pub timeout_ms: i32,
}

impl<'a> Decode<'a> for DeleteRecordsRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 2)?;
        let flexible = version >= 2;
        let topics = d.structs(flexible, 3, version)?;
        let timeout_ms = d.i32()?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { topics, timeout_ms })
    }
}

impl Encode for DeleteRecordsRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 2)?;
        let flexible = version >= 2;
        e.structs(flexible, &self.topics, version)?;
        e.i32(self.timeout_ms);
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `DeleteRecordsTopic`, versions 0 to 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteRecordsTopic<'a> {
    /// `string`.
    pub name: Str<'a>,
    /// `[]DeleteRecordsPartition`.
    pub partitions: Vec<DeleteRecordsPartition>,
}

impl<'a> Decode<'a> for DeleteRecordsTopic<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let name = d.string(flexible)?;
        let partitions = d.structs(flexible, 12, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { name, partitions })
    }
}

impl Encode for DeleteRecordsTopic<'_> {
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

/// `DeleteRecordsPartition`, versions 0 to 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteRecordsPartition {
    /// `int32`.
    pub partition_index: i32,
    /// `int64`.
    pub offset: i64,
}

impl<'a> Decode<'a> for DeleteRecordsPartition {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let partition_index = d.i32()?;
        let offset = d.i64()?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { partition_index, offset })
    }
}

impl Encode for DeleteRecordsPartition {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 2;
        e.i32(self.partition_index);
        e.i64(self.offset);
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

impl<'a> Request<'a> for DeleteRecordsRequest<'a> {
    const KEY: ApiKey = ApiKey::DeleteRecords;
    type Response<'r> = super::DeleteRecordsResponse<'r>;
}
