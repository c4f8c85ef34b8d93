// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `CreatePartitions`. Versions 0 to 3, tagged fields from version 2 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `CreatePartitionsResponse`, versions 0 to 3.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreatePartitionsResponse<'a> {
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `[]CreatePartitionsTopicResult`.
    pub results: Vec<CreatePartitionsTopicResult<'a>>,
}

impl<'a> Decode<'a> for CreatePartitionsResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 3)?;
        let flexible = version >= 2;
        let throttle_time_ms = d.i32()?;
        let results = d.structs(flexible, 5, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { throttle_time_ms, results })
    }
}

impl Encode for CreatePartitionsResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 3)?;
        let flexible = version >= 2;
        e.i32(self.throttle_time_ms);
        e.structs(flexible, &self.results, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `CreatePartitionsTopicResult`, versions 0 to 3.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreatePartitionsTopicResult<'a> {
    /// `string`.
    pub name: Str<'a>,
    /// `int16`.
    pub error_code: i16,
    /// `string`, may be null, default null.
    pub error_message: Option<Str<'a>>,
}

impl<'a> Decode<'a> for CreatePartitionsTopicResult<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let name = d.string(flexible)?;
        let error_code = d.i16()?;
        let error_message = d.nullable_string(flexible)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { name, error_code, error_message })
    }
}

impl Encode for CreatePartitionsTopicResult<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 2;
        e.string(flexible, &self.name)?;
        e.i16(self.error_code);
        e.nullable_string(flexible, self.error_message.as_deref())?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}
