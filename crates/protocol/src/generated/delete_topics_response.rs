// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `DeleteTopics`. Versions 1 to 6, tagged fields from version 4 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};
use riverrun_types::TopicId;

/// `DeleteTopicsResponse`, versions 1 to 6.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteTopicsResponse<'a> {
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `[]DeletableTopicResult`.
    pub responses: Vec<DeletableTopicResult<'a>>,
}

impl<'a> Decode<'a> for DeleteTopicsResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 1, 6)?;
        let flexible = version >= 4;
        let throttle_time_ms = d.i32()?;
        let responses = d.structs(flexible, 4, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { throttle_time_ms, responses })
    }
}

impl Encode for DeleteTopicsResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 1, 6)?;
        let flexible = version >= 4;
        e.i32(self.throttle_time_ms);
        e.structs(flexible, &self.responses, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `DeletableTopicResult`, versions 1 to 6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletableTopicResult<'a> {
    /// `string`, may be null in version 6.
    pub name: Option<Str<'a>>,
    /// `uuid`, version 6.
    pub topic_id: TopicId,
    /// `int16`.
    pub error_code: i16,
    /// `string`, versions 5 to 6, may be null, default null.
    pub error_message: Option<Str<'a>>,
}

impl Default for DeletableTopicResult<'_> {
    fn default() -> Self {
        Self { name: Some(Str::Borrowed("")), topic_id: TopicId::ZERO, error_code: 0, error_message: None }
    }
}

impl<'a> Decode<'a> for DeletableTopicResult<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 4;
        let name = if version == 6 { d.nullable_string(flexible)? } else { Some(d.string(flexible)?) };
        let topic_id = if version == 6 { d.uuid()? } else { TopicId::ZERO };
        let error_code = d.i16()?;
        let error_message = if version >= 5 { d.nullable_string(true)? } else { None };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { name, topic_id, error_code, error_message })
    }
}

impl Encode for DeletableTopicResult<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 4;
        if version != 6 && self.name.is_none() {
            return Err(EncodeError::NullField { field: "name", version });
        }
        e.nullable_string(flexible, self.name.as_deref())?;
        if version == 6 {
            e.uuid(self.topic_id);
        }
        e.i16(self.error_code);
        if version >= 5 {
            e.nullable_string(true, self.error_message.as_deref())?;
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}
