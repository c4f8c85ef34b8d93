// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `DescribeAcls`. Versions 1 to 3, tagged fields from version 2 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `DescribeAclsResponse`, versions 1 to 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribeAclsResponse<'a> {
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `int16`.
    pub error_code: i16,
    /// `string`, may be null.
    pub error_message: Option<Str<'a>>,
    /// `[]DescribeAclsResource`.
    pub resources: Vec<DescribeAclsResource<'a>>,
}

impl Default for DescribeAclsResponse<'_> {
    fn default() -> Self {
        Self {
            throttle_time_ms: 0,
            error_code: 0,
            error_message: Some(Str::Borrowed("")),
            resources: Vec::new(),
        }
    }
}

impl<'a> Decode<'a> for DescribeAclsResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 1, 3)?;
        let flexible = version >= 2;
        let throttle_time_ms = d.i32()?;
        let error_code = d.i16()?;
        let error_message = d.nullable_string(flexible)?;
        let resources = d.structs(flexible, 5, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { throttle_time_ms, error_code, error_message, resources })
    }
}

impl Encode for DescribeAclsResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 1, 3)?;
        let flexible = version >= 2;
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        e.nullable_string(flexible, self.error_message.as_deref())?;
        e.structs(flexible, &self.resources, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `DescribeAclsResource`, versions 1 to 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribeAclsResource<'a> {
    /// `int8`.
    pub resource_type: i8,
    /// `string`.
    pub resource_name: Str<'a>,
    /// `int8`, default 3.
    pub pattern_type: i8,
    /// `[]AclDescription`.
    pub acls: Vec<AclDescription<'a>>,
}

impl Default for DescribeAclsResource<'_> {
    fn default() -> Self {
        Self { resource_type: 0, resource_name: Str::Borrowed(""), pattern_type: 3, acls: Vec::new() }
    }
}

impl<'a> Decode<'a> for DescribeAclsResource<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let resource_type = d.i8()?;
        let resource_name = d.string(flexible)?;
        let pattern_type = d.i8()?;
        let acls = d.structs(flexible, 5, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { resource_type, resource_name, pattern_type, acls })
    }
}

impl Encode for DescribeAclsResource<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 2;
        e.i8(self.resource_type);
        e.string(flexible, &self.resource_name)?;
        e.i8(self.pattern_type);
        e.structs(flexible, &self.acls, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `AclDescription`, versions 1 to 3.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclDescription<'a> {
    /// `string`.
    pub principal: Str<'a>,
    /// `string`.
    pub host: Str<'a>,
    /// `int8`.
    pub operation: i8,
    /// `int8`.
    pub permission_type: i8,
}

impl<'a> Decode<'a> for AclDescription<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let principal = d.string(flexible)?;
        let host = d.string(flexible)?;
        let operation = d.i8()?;
        let permission_type = d.i8()?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { principal, host, operation, permission_type })
    }
}

impl Encode for AclDescription<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 2;
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
