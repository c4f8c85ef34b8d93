// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `ListConfigResources`. Versions 0 to 1, tagged fields from version 0 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `ListConfigResourcesResponse`, versions 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListConfigResourcesResponse<'a> {
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `int16`.
    pub error_code: i16,
    /// `[]ConfigResource`.
    pub config_resources: Vec<ConfigResource<'a>>,
}

impl<'a> Decode<'a> for ListConfigResourcesResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 1)?;
        let throttle_time_ms = d.i32()?;
        let error_code = d.i16()?;
        let config_resources = d.structs(true, 2, version)?;
        d.skip_tagged_fields()?;
        Ok(Self { throttle_time_ms, error_code, config_resources })
    }
}

impl Encode for ListConfigResourcesResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 1)?;
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        e.structs(true, &self.config_resources, version)?;
        e.no_tagged_fields();
        Ok(())
    }
}

/// `ConfigResource`, versions 0 to 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigResource<'a> {
    /// `string`.
    pub resource_name: Str<'a>,
    /// `int8`, version 1, default 16.
    pub resource_type: i8,
}

impl Default for ConfigResource<'_> {
    fn default() -> Self {
        Self { resource_name: Str::Borrowed(""), resource_type: 16 }
    }
}

impl<'a> Decode<'a> for ConfigResource<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let resource_name = d.string(true)?;
        let resource_type = if version == 1 { d.i8()? } else { 16 };
        d.skip_tagged_fields()?;
        Ok(Self { resource_name, resource_type })
    }
}

impl Encode for ConfigResource<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        e.string(true, &self.resource_name)?;
        if version == 1 {
            e.i8(self.resource_type);
        }
        e.no_tagged_fields();
        Ok(())
    }
}
