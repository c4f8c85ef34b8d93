// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `DescribeConfigs`. Versions 1 to 4, tagged fields from version 4 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};

/// `DescribeConfigsRequest`, versions 1 to 4.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeConfigsRequest<'a> {
    /// `[]DescribeConfigsResource`.
    pub resources: Vec<DescribeConfigsResource<'a>>,
    /// `bool`.
    pub include_synonyms: bool,
    /// `bool`, versions 3 to 4.
    pub include_documentation: bool,
}

impl<'a> Decode<'a> for DescribeConfigsRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 1, 4)?;
        let flexible = version >= 4;
        let resources = d.structs(flexible, 4, version)?;
        let include_synonyms = d.bool()?;
        let include_documentation = if version >= 3 { d.bool()? } else { false };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { resources, include_synonyms, include_documentation })
    }
}

impl Encode for DescribeConfigsRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 1, 4)?;
        let flexible = version >= 4;
        e.structs(flexible, &self.resources, version)?;
        e.bool(self.include_synonyms);
        if version >= 3 {
            e.bool(self.include_documentation);
        } else if self.include_documentation {
            return Err(EncodeError::AbsentField { field: "include_documentation", version });
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `DescribeConfigsResource`, versions 1 to 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribeConfigsResource<'a> {
    /// `int8`.
    pub resource_type: i8,
    /// `string`.
    pub resource_name: Str<'a>,
    /// `[]string`, may be null.
    pub configuration_keys: Option<Vec<Str<'a>>>,
}

impl Default for DescribeConfigsResource<'_> {
    fn default() -> Self {
        Self { resource_type: 0, resource_name: Str::Borrowed(""), configuration_keys: Some(Vec::new()) }
    }
}

impl<'a> Decode<'a> for DescribeConfigsResource<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 4;
        let resource_type = d.i8()?;
        let resource_name = d.string(flexible)?;
        let configuration_keys = d.nullable_array(flexible, 1, |d| d.string(flexible))?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { resource_type, resource_name, configuration_keys })
    }
}

impl Encode for DescribeConfigsResource<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 4;
        e.i8(self.resource_type);
        e.string(flexible, &self.resource_name)?;
        e.nullable_array(flexible, self.configuration_keys.as_deref(), |e, value| e.string(flexible, value))?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

impl<'a> Request<'a> for DescribeConfigsRequest<'a> {
    const KEY: ApiKey = ApiKey::DescribeConfigs;
    type Response<'r> = super::DescribeConfigsResponse<'r>;
}
