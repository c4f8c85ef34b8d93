// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `DeleteTopics`. Versions 1 to 6, tagged fields from version 4 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};
use riverrun_types::TopicId;

/// `DeleteTopicsRequest`, versions 1 to 6.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteTopicsRequest<'a> {
    /// `[]DeleteTopicState`, version 6.
    pub topics: Vec<DeleteTopicState<'a>>,
    /// `[]string`, versions 1 to 5.
    pub topic_names: Vec<Str<'a>>,
    /// `int32`.
    pub timeout_ms: i32,
}

impl<'a> Decode<'a> for DeleteTopicsRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 1, 6)?;
        let flexible = version >= 4;
        let topics = if version == 6 { d.structs(true, 18, version)? } else { Vec::new() };
        let topic_names =
            if version <= 5 { d.array(flexible, 1, |d| d.string(flexible))? } else { Vec::new() };
        let timeout_ms = d.i32()?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { topics, topic_names, timeout_ms })
    }
}

impl Encode for DeleteTopicsRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 1, 6)?;
        let flexible = version >= 4;
        if version == 6 {
            e.structs(true, &self.topics, version)?;
        } else if !self.topics.is_empty() {
            return Err(EncodeError::AbsentField { field: "topics", version });
        }
        if version <= 5 {
            e.array(flexible, &self.topic_names, |e, value| e.string(flexible, value))?;
        }
        e.i32(self.timeout_ms);
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `DeleteTopicState`, version 6.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteTopicState<'a> {
    /// `string`, may be null, default null.
    pub name: Option<Str<'a>>,
    /// `uuid`.
    pub topic_id: TopicId,
}

impl<'a> Decode<'a> for DeleteTopicState<'a> {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let name = d.nullable_string(true)?;
        let topic_id = d.uuid()?;
        d.skip_tagged_fields()?;
        Ok(Self { name, topic_id })
    }
}

impl Encode for DeleteTopicState<'_> {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.nullable_string(true, self.name.as_deref())?;
        e.uuid(self.topic_id);
        e.no_tagged_fields();
        Ok(())
    }
}

impl<'a> Request<'a> for DeleteTopicsRequest<'a> {
    const KEY: ApiKey = ApiKey::DeleteTopics;
    type Response<'r> = super::DeleteTopicsResponse<'r>;
}
