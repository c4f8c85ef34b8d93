// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `AlterConfigs`. Versions 0 to 2, tagged fields from version 2 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};

/// `AlterConfigsRequest`, versions 0 to 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlterConfigsRequest<'a> {
    /// `[]AlterConfigsResource`.
    pub resources: Vec<AlterConfigsResource<'a>>,
    /// `bool`.
    pub validate_only: bool,
}

impl<'a> Decode<'a> for AlterConfigsRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 2)?;
        let flexible = version >= 2;
        let resources = d.structs(flexible, 4, version)?;
        let validate_only = d.bool()?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { resources, validate_only })
    }
}

impl Encode for AlterConfigsRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 2)?;
        let flexible = version >= 2;
        e.structs(flexible, &self.resources, version)?;
        e.bool(self.validate_only);
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `AlterConfigsResource`, versions 0 to 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlterConfigsResource<'a> {
    /// `int8`.
    pub resource_type: i8,
    /// `string`.
    pub resource_name: Str<'a>,
    /// `[]AlterableConfig`.
    pub configs: Vec<AlterableConfig<'a>>,
}

impl<'a> Decode<'a> for AlterConfigsResource<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let resource_type = d.i8()?;
        let resource_name = d.string(flexible)?;
        let configs = d.structs(flexible, 3, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { resource_type, resource_name, configs })
    }
}

impl Encode for AlterConfigsResource<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 2;
        e.i8(self.resource_type);
        e.string(flexible, &self.resource_name)?;
        e.structs(flexible, &self.configs, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `AlterableConfig`, versions 0 to 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterableConfig<'a> {
    /// `string`.
    pub name: Str<'a>,
    /// `string`, may be null.
    pub value: Option<Str<'a>>,
}

impl Default for AlterableConfig<'_> {
    fn default() -> Self {
        Self { name: Str::Borrowed(""), value: Some(Str::Borrowed("")) }
    }
}

impl<'a> Decode<'a> for AlterableConfig<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let name = d.string(flexible)?;
        let value = d.nullable_string(flexible)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { name, value })
    }
}

impl Encode for AlterableConfig<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 2;
        e.string(flexible, &self.name)?;
        e.nullable_string(flexible, self.value.as_deref())?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

impl<'a> Request<'a> for AlterConfigsRequest<'a> {
    const KEY: ApiKey = ApiKey::AlterConfigs;
    type Response<'r> = super::AlterConfigsResponse<'r>;
}
