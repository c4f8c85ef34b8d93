// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `DescribeConfigs`. Versions 1 to 4, tagged fields from version 4 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `DescribeConfigsResponse`, versions 1 to 4.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeConfigsResponse<'a> {
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `[]DescribeConfigsResult`.
    pub results: Vec<DescribeConfigsResult<'a>>,
}

impl<'a> Decode<'a> for DescribeConfigsResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 1, 4)?;
        let flexible = version >= 4;
        let throttle_time_ms = d.i32()?;
        let results = d.structs(flexible, 7, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { throttle_time_ms, results })
    }
}

impl Encode for DescribeConfigsResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 1, 4)?;
        let flexible = version >= 4;
        e.i32(self.throttle_time_ms);
        e.structs(flexible, &self.results, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `DescribeConfigsResult`, versions 1 to 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribeConfigsResult<'a> {
    /// `int16`.
    pub error_code: i16,
    /// `string`, may be null.
    pub error_message: Option<Str<'a>>,
    /// `int8`.
    pub resource_type: i8,
    /// `string`.
    pub resource_name: Str<'a>,
    /// `[]DescribeConfigsResourceResult`.
    pub configs: Vec<DescribeConfigsResourceResult<'a>>,
}

impl Default for DescribeConfigsResult<'_> {
    fn default() -> Self {
        Self {
            error_code: 0,
            error_message: Some(Str::Borrowed("")),
            resource_type: 0,
            resource_name: Str::Borrowed(""),
            configs: Vec::new(),
        }
    }
}

impl<'a> Decode<'a> for DescribeConfigsResult<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 4;
        let error_code = d.i16()?;
        let error_message = d.nullable_string(flexible)?;
        let resource_type = d.i8()?;
        let resource_name = d.string(flexible)?;
        let configs = d.structs(flexible, 9, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { error_code, error_message, resource_type, resource_name, configs })
    }
}

impl Encode for DescribeConfigsResult<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 4;
        e.i16(self.error_code);
        e.nullable_string(flexible, self.error_message.as_deref())?;
        e.i8(self.resource_type);
        e.string(flexible, &self.resource_name)?;
        e.structs(flexible, &self.configs, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `DescribeConfigsResourceResult`, versions 1 to 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribeConfigsResourceResult<'a> {
    /// `string`.
    pub name: Str<'a>,
    /// `string`, may be null.
    pub value: Option<Str<'a>>,
    /// `bool`.
    pub read_only: bool,
    /// `int8`, default -1.
    pub config_source: i8,
    /// `bool`.
    pub is_sensitive: bool,
    /// `[]DescribeConfigsSynonym`.
    pub synonyms: Vec<DescribeConfigsSynonym<'a>>,
    /// `int8`, versions 3 to 4.
    pub config_type: i8,
    /// `string`, versions 3 to 4, may be null.
    pub documentation: Option<Str<'a>>,
}

impl Default for DescribeConfigsResourceResult<'_> {
    fn default() -> Self {
        Self {
            name: Str::Borrowed(""),
            value: Some(Str::Borrowed("")),
            read_only: false,
            config_source: -1,
            is_sensitive: false,
            synonyms: Vec::new(),
            config_type: 0,
            documentation: Some(Str::Borrowed("")),
        }
    }
}

impl<'a> Decode<'a> for DescribeConfigsResourceResult<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 4;
        let name = d.string(flexible)?;
        let value = d.nullable_string(flexible)?;
        let read_only = d.bool()?;
        let config_source = d.i8()?;
        let is_sensitive = d.bool()?;
        let synonyms = d.structs(flexible, 4, version)?;
        let config_type = if version >= 3 { d.i8()? } else { 0 };
        let documentation = if version >= 3 { d.nullable_string(flexible)? } else { Some(Str::Borrowed("")) };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { name, value, read_only, config_source, is_sensitive, synonyms, config_type, documentation })
    }
}

impl Encode for DescribeConfigsResourceResult<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 4;
        e.string(flexible, &self.name)?;
        e.nullable_string(flexible, self.value.as_deref())?;
        e.bool(self.read_only);
        e.i8(self.config_source);
        e.bool(self.is_sensitive);
        e.structs(flexible, &self.synonyms, version)?;
        if version >= 3 {
            e.i8(self.config_type);
        }
        if version >= 3 {
            e.nullable_string(flexible, self.documentation.as_deref())?;
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `DescribeConfigsSynonym`, versions 1 to 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribeConfigsSynonym<'a> {
    /// `string`.
    pub name: Str<'a>,
    /// `string`, may be null.
    pub value: Option<Str<'a>>,
    /// `int8`.
    pub source: i8,
}

impl Default for DescribeConfigsSynonym<'_> {
    fn default() -> Self {
        Self { name: Str::Borrowed(""), value: Some(Str::Borrowed("")), source: 0 }
    }
}

impl<'a> Decode<'a> for DescribeConfigsSynonym<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 4;
        let name = d.string(flexible)?;
        let value = d.nullable_string(flexible)?;
        let source = d.i8()?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { name, value, source })
    }
}

impl Encode for DescribeConfigsSynonym<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 4;
        e.string(flexible, &self.name)?;
        e.nullable_string(flexible, self.value.as_deref())?;
        e.i8(self.source);
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}
