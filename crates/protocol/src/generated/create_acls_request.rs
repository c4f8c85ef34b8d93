// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `CreateAcls`. Versions 1 to 3, tagged fields from version 2 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};

/// `CreateAclsRequest`, versions 1 to 3.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateAclsRequest<'a> {
    /// `[]AclCreation`.
    pub creations: Vec<AclCreation<'a>>,
}

impl<'a> Decode<'a> for CreateAclsRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 1, 3)?;
        let flexible = version >= 2;
        let creations = d.structs(flexible, 8, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { creations })
    }
}

impl Encode for CreateAclsRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 1, 3)?;
        let flexible = version >= 2;
        e.structs(flexible, &self.creations, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `AclCreation`, versions 1 to 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclCreation<'a> {
    /// `int8`.
    pub resource_type: i8,
    /// `string`.
    pub resource_name: Str<'a>,
    /// `int8`, default 3.
    pub resource_pattern_type: i8,
    /// `string`.
    pub principal: Str<'a>,
    /// `string`.
    pub host: Str<'a>,
    /// `int8`.
    pub operation: i8,
    /// `int8`.
    pub permission_type: i8,
}

impl Default for AclCreation<'_> {
    fn default() -> Self {
        Self {
            resource_type: 0,
            resource_name: Str::Borrowed(""),
            resource_pattern_type: 3,
            principal: Str::Borrowed(""),
            host: Str::Borrowed(""),
            operation: 0,
            permission_type: 0,
        }
    }
}

impl<'a> Decode<'a> for AclCreation<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let resource_type = d.i8()?;
        let resource_name = d.string(flexible)?;
        let resource_pattern_type = d.i8()?;
        let principal = d.string(flexible)?;
        let host = d.string(flexible)?;
        let operation = d.i8()?;
        let permission_type = d.i8()?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self {
            resource_type,
            resource_name,
            resource_pattern_type,
            principal,
            host,
            operation,
            permission_type,
        })
    }
}

impl Encode for AclCreation<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 2;
        e.i8(self.resource_type);
        e.string(flexible, &self.resource_name)?;
        e.i8(self.resource_pattern_type);
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

impl<'a> Request<'a> for CreateAclsRequest<'a> {
    const KEY: ApiKey = ApiKey::CreateAcls;
    type Response<'r> = super::CreateAclsResponse<'r>;
}
