// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `AlterConfigs`. Versions 0 to 2, tagged fields from version 2 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `AlterConfigsResponse`, versions 0 to 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlterConfigsResponse<'a> {
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `[]AlterConfigsResourceResponse`.
    pub responses: Vec<AlterConfigsResourceResponse<'a>>,
}

impl<'a> Decode<'a> for AlterConfigsResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 2)?;
        let flexible = version >= 2;
        let throttle_time_ms = d.i32()?;
        let responses = d.structs(flexible, 6, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { throttle_time_ms, responses })
    }
}

impl Encode for AlterConfigsResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 2)?;
        let flexible = version >= 2;
        e.i32(self.throttle_time_ms);
        e.structs(flexible, &self.responses, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `AlterConfigsResourceResponse`, versions 0 to 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterConfigsResourceResponse<'a> {
    /// `int16`.
    pub error_code: i16,
    /// `string`, may be null.
    pub error_message: Option<Str<'a>>,
    /// `int8`.
    pub resource_type: i8,
    /// `string`.
    pub resource_name: Str<'a>,
}

impl Default for AlterConfigsResourceResponse<'_> {
    fn default() -> Self {
        Self {
            error_code: 0,
            error_message: Some(Str::Borrowed("")),
            resource_type: 0,
            resource_name: Str::Borrowed(""),
        }
    }
}

impl<'a> Decode<'a> for AlterConfigsResourceResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let error_code = d.i16()?;
        let error_message = d.nullable_string(flexible)?;
        let resource_type = d.i8()?;
        let resource_name = d.string(flexible)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { error_code, error_message, resource_type, resource_name })
    }
}

impl Encode for AlterConfigsResourceResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 2;
        e.i16(self.error_code);
        e.nullable_string(flexible, self.error_message.as_deref())?;
        e.i8(self.resource_type);
        e.string(flexible, &self.resource_name)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}
