// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `DeleteAcls`. Versions 1 to 3, tagged fields from version 2 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `DeleteAclsResponse`, versions 1 to 3.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteAclsResponse<'a> {
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `[]DeleteAclsFilterResult`.
    pub filter_results: Vec<DeleteAclsFilterResult<'a>>,
}

impl<'a> Decode<'a> for DeleteAclsResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 1, 3)?;
        let flexible = version >= 2;
        let throttle_time_ms = d.i32()?;
        let filter_results = d.structs(flexible, 5, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { throttle_time_ms, filter_results })
    }
}

impl Encode for DeleteAclsResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 1, 3)?;
        let flexible = version >= 2;
        e.i32(self.throttle_time_ms);
        e.structs(flexible, &self.filter_results, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `DeleteAclsFilterResult`, versions 1 to 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteAclsFilterResult<'a> {
    /// `int16`.
    pub error_code: i16,
    /// `string`, may be null.
    pub error_message: Option<Str<'a>>,
    /// `[]DeleteAclsMatchingAcl`.
    pub matching_acls: Vec<DeleteAclsMatchingAcl<'a>>,
}

impl Default for DeleteAclsFilterResult<'_> {
    fn default() -> Self {
        Self { error_code: 0, error_message: Some(Str::Borrowed("")), matching_acls: Vec::new() }
    }
}

impl<'a> Decode<'a> for DeleteAclsFilterResult<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let error_code = d.i16()?;
        let error_message = d.nullable_string(flexible)?;
        let matching_acls = d.structs(flexible, 11, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { error_code, error_message, matching_acls })
    }
}

impl Encode for DeleteAclsFilterResult<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 2;
        e.i16(self.error_code);
        e.nullable_string(flexible, self.error_message.as_deref())?;
        e.structs(flexible, &self.matching_acls, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `DeleteAclsMatchingAcl`, versions 1 to 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteAclsMatchingAcl<'a> {
    /// `int16`.
    pub error_code: i16,
    /// `string`, may be null.
    pub error_message: Option<Str<'a>>,
    /// `int8`.
    pub resource_type: i8,
    /// `string`.
    pub resource_name: Str<'a>,
    /// `int8`, default 3.
    pub pattern_type: i8,
    /// `string`.
    pub principal: Str<'a>,
    /// `string`.
    pub host: Str<'a>,
    /// `int8`.
    pub operation: i8,
    /// `int8`.
    pub permission_type: i8,
}

impl Default for DeleteAclsMatchingAcl<'_> {
    fn default() -> Self {
        Self {
            error_code: 0,
            error_message: Some(Str::Borrowed("")),
            resource_type: 0,
            resource_name: Str::Borrowed(""),
            pattern_type: 3,
            principal: Str::Borrowed(""),
            host: Str::Borrowed(""),
            operation: 0,
            permission_type: 0,
        }
    }
}

impl<'a> Decode<'a> for DeleteAclsMatchingAcl<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let error_code = d.i16()?;
        let error_message = d.nullable_string(flexible)?;
        let resource_type = d.i8()?;
        let resource_name = d.string(flexible)?;
        let pattern_type = d.i8()?;
        let principal = d.string(flexible)?;
        let host = d.string(flexible)?;
        let operation = d.i8()?;
        let permission_type = d.i8()?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self {
            error_code,
            error_message,
            resource_type,
            resource_name,
            pattern_type,
            principal,
            host,
            operation,
            permission_type,
        })
    }
}

impl Encode for DeleteAclsMatchingAcl<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 2;
        e.i16(self.error_code);
        e.nullable_string(flexible, self.error_message.as_deref())?;
        e.i8(self.resource_type);
        e.string(flexible, &self.resource_name)?;
        e.i8(self.pattern_type);
        e.string(flexible, &self.principal)?;
        e.string(flexible, &self.host)?;
        e.i8(self.operation);
        e.i8(self.permission_type);
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}
