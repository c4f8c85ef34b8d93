// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `CreateTopics`. Versions 2 to 7, tagged fields from version 5 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};

/// `CreateTopicsRequest`, versions 2 to 7.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateTopicsRequest<'a> {
    /// `[]CreatableTopic`.
    pub topics: Vec<CreatableTopic<'a>>,
    /// `int32`, default 60000.
    pub timeout_ms: i32,
    /// `bool`.
    pub validate_only: bool,
}

impl Default for CreateTopicsRequest<'_> {
    fn default() -> Self {
        Self { topics: Vec::new(), timeout_ms: 60_000, validate_only: false }
    }
}

impl<'a> Decode<'a> for CreateTopicsRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 2, 7)?;
        let flexible = version >= 5;
        let topics = d.structs(flexible, 10, version)?;
        let timeout_ms = d.i32()?;
        let validate_only = d.bool()?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { topics, timeout_ms, validate_only })
    }
}

impl Encode for CreateTopicsRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 2, 7)?;
        let flexible = version >= 5;
        e.structs(flexible, &self.topics, version)?;
        e.i32(self.timeout_ms);
        e.bool(self.validate_only);
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `CreatableTopic`, versions 2 to 7.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreatableTopic<'a> {
    /// `string`.
    pub name: Str<'a>,
    /// `int32`.
    pub num_partitions: i32,
    /// `int16`.
    pub replication_factor: i16,
    /// `[]CreatableReplicaAssignment`.
    pub assignments: Vec<CreatableReplicaAssignment>,
    /// `[]CreatableTopicConfig`.
    pub configs: Vec<CreatableTopicConfig<'a>>,
}

impl<'a> Decode<'a> for CreatableTopic<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 5;
        let name = d.string(flexible)?;
        let num_partitions = d.i32()?;
        let replication_factor = d.i16()?;
        let assignments = d.structs(flexible, 6, version)?;
        let configs = d.structs(flexible, 3, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { name, num_partitions, replication_factor, assignments, configs })
    }
}

impl Encode for CreatableTopic<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 5;
        e.string(flexible, &self.name)?;
        e.i32(self.num_partitions);
        e.i16(self.replication_factor);
        e.structs(flexible, &self.assignments, version)?;
        e.structs(flexible, &self.configs, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `CreatableReplicaAssignment`, versions 2 to 7.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreatableReplicaAssignment {
    /// `int32`.
    pub partition_index: i32,
    /// `[]int32`.
    pub broker_ids: Vec<i32>,
}

impl<'a> Decode<'a> for CreatableReplicaAssignment {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 5;
        let partition_index = d.i32()?;
        let broker_ids = d.array(flexible, 4, Decoder::i32)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { partition_index, broker_ids })
    }
}

impl Encode for CreatableReplicaAssignment {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 5;
        e.i32(self.partition_index);
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

/// `CreatableTopicConfig`, versions 2 to 7.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatableTopicConfig<'a> {
    /// `string`.
    pub name: Str<'a>,
    /// `string`, may be null.
    pub value: Option<Str<'a>>,
}

impl Default for CreatableTopicConfig<'_> {
    fn default() -> Self {
        Self { name: Str::Borrowed(""), value: Some(Str::Borrowed("")) }
    }
}

impl<'a> Decode<'a> for CreatableTopicConfig<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 5;
        let name = d.string(flexible)?;
        let value = d.nullable_string(flexible)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { name, value })
    }
}

impl Encode for CreatableTopicConfig<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 5;
        e.string(flexible, &self.name)?;
        e.nullable_string(flexible, self.value.as_deref())?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

impl<'a> Request<'a> for CreateTopicsRequest<'a> {
    const KEY: ApiKey = ApiKey::CreateTopics;
    type Response<'r> = super::CreateTopicsResponse<'r>;
}
