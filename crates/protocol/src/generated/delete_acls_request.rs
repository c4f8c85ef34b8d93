// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `DeleteAcls`. Versions 1 to 3, tagged fields from version 2 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};

/// `DeleteAclsRequest`, versions 1 to 3.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteAclsRequest<'a> {
    /// `[]DeleteAclsFilter`.
    pub filters: Vec<DeleteAclsFilter<'a>>,
}

impl<'a> Decode<'a> for DeleteAclsRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 1, 3)?;
        let flexible = version >= 2;
        let filters = d.structs(flexible, 8, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { filters })
    }
}

impl Encode for DeleteAclsRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 1, 3)?;
        let flexible = version >= 2;
        e.structs(flexible, &self.filters, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `DeleteAclsFilter`, versions 1 to 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteAclsFilter<'a> {
    /// `int8`.
    pub resource_type_filter: i8,
    /// `string`, may be null.
    pub resource_name_filter: Option<Str<'a>>,
    /// `int8`, default 3.
    pub pattern_type_filter: i8,
    /// `string`, may be null.
    pub principal_filter: Option<Str<'a>>,
    /// `string`, may be null.
    pub host_filter: Option<Str<'a>>,
    /// `int8`.
    pub operation: i8,
    /// `int8`.
    pub permission_type: i8,
}

impl Default for DeleteAclsFilter<'_> {
    fn default() -> Self {
        Self {
            resource_type_filter: 0,
            resource_name_filter: Some(Str::Borrowed("")),
            pattern_type_filter: 3,
            principal_filter: Some(Str::Borrowed("")),
            host_filter: Some(Str::Borrowed("")),
            operation: 0,
            permission_type: 0,
        }
    }
}

impl<'a> Decode<'a> for DeleteAclsFilter<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let resource_type_filter = d.i8()?;
        let resource_name_filter = d.nullable_string(flexible)?;
        let pattern_type_filter = d.i8()?;
        let principal_filter = d.nullable_string(flexible)?;
        let host_filter = d.nullable_string(flexible)?;
        let operation = d.i8()?;
        let permission_type = d.i8()?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self {
            resource_type_filter,
            resource_name_filter,
            pattern_type_filter,
            principal_filter,
            host_filter,
            operation,
            permission_type,
        })
    }
}

impl Encode for DeleteAclsFilter<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 2;
        e.i8(self.resource_type_filter);
        e.nullable_string(flexible, self.resource_name_filter.as_deref())?;
        e.i8(self.pattern_type_filter);
        e.nullable_string(flexible, self.principal_filter.as_deref())?;
        e.nullable_string(flexible, self.host_filter.as_deref())?;
        e.i8(self.operation);
        e.i8(self.permission_type);
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

impl<'a> Request<'a> for DeleteAclsRequest<'a> {
    const KEY: ApiKey = ApiKey::DeleteAcls;
    type Response<'r> = super::DeleteAclsResponse<'r>;
}
