// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `CreatePartitions`. Versions 0 to 3, tagged fields from version 2 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};

/// `CreatePartitionsRequest`, versions 0 to 3.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreatePartitionsRequest<'a> {
    /// `[]CreatePartitionsTopic`.
    pub topics: Vec<CreatePartitionsTopic<'a>>,
    /// `int32`.
    pub timeout_ms: i32,
    /// `bool`.
    pub validate_only: bool,
}

impl<'a> Decode<'a> for CreatePartitionsRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 3)?;
        let flexible = version >= 2;
        let topics = d.structs(flexible, 7, version)?;
        let timeout_ms = d.i32()?;
        let validate_only = d.bool()?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { topics, timeout_ms, validate_only })
    }
}

impl Encode for CreatePartitionsRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 3)?;
        let flexible = version >= 2;
        e.structs(flexible, &self.topics, version)?;
        e.i32(self.timeout_ms);
        e.bool(self.validate_only);
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `CreatePartitionsTopic`, versions 0 to 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatePartitionsTopic<'a> {
    /// `string`.
    pub name: Str<'a>,
    /// `int32`.
    pub count: i32,
    /// `[]CreatePartitionsAssignment`, may be null.
    pub assignments: Option<Vec<CreatePartitionsAssignment>>,
}

impl Default for CreatePartitionsTopic<'_> {
    fn default() -> Self {
        Self { name: Str::Borrowed(""), count: 0, assignments: Some(Vec::new()) }
    }
}

impl<'a> Decode<'a> for CreatePartitionsTopic<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let name = d.string(flexible)?;
        let count = d.i32()?;
        let assignments = d.nullable_structs(flexible, 2, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { name, count, assignments })
    }
}

impl Encode for CreatePartitionsTopic<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 2;
        e.string(flexible, &self.name)?;
        e.i32(self.count);
        e.nullable_structs(flexible, self.assignments.as_deref(), version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `CreatePartitionsAssignment`, versions 0 to 3.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreatePartitionsAssignment {
    /// `[]int32`.
    pub broker_ids: Vec<i32>,
}

impl<'a> Decode<'a> for CreatePartitionsAssignment {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let broker_ids = d.array(flexible, 4, Decoder::i32)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { broker_ids })
    }
}

impl Encode for CreatePartitionsAssignment {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 2;
        e.array(flexible, &self.broker_ids, |e, value| {
            e.i32(*value);
            Ok(())
        })?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

impl<'a> Request<'a> for CreatePartitionsRequest<'a> {
    const KEY: ApiKey = ApiKey::CreatePartitions;
    type Response<'r> = super::CreatePartitionsResponse<'r>;
}
