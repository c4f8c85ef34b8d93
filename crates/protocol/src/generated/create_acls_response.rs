// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `CreateAcls`. Versions 1 to 3, tagged fields from version 2 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `CreateAclsResponse`, versions 1 to 3.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateAclsResponse<'a> {
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `[]AclCreationResult`.
    pub results: Vec<AclCreationResult<'a>>,
}

impl<'a> Decode<'a> for CreateAclsResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 1, 3)?;
        let flexible = version >= 2;
        let throttle_time_ms = d.i32()?;
        let results = d.structs(flexible, 4, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { throttle_time_ms, results })
    }
}

impl Encode for CreateAclsResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 1, 3)?;
        let flexible = version >= 2;
        e.i32(self.throttle_time_ms);
        e.structs(flexible, &self.results, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `AclCreationResult`, versions 1 to 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclCreationResult<'a> {
    /// `int16`.
    pub error_code: i16,
    /// `string`, may be null.
    pub error_message: Option<Str<'a>>,
}

impl Default for AclCreationResult<'_> {
    fn default() -> Self {
        Self { error_code: 0, error_message: Some(Str::Borrowed("")) }
    }
}

impl<'a> Decode<'a> for AclCreationResult<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let error_code = d.i16()?;
        let error_message = d.nullable_string(flexible)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { error_code, error_message })
    }
}

impl Encode for AclCreationResult<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 2;
        e.i16(self.error_code);
        e.nullable_string(flexible, self.error_message.as_deref())?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}
