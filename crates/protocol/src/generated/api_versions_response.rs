// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `ApiVersions`. Versions 0 to 4, tagged fields from version 3 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `ApiVersionsResponse`, versions 0 to 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiVersionsResponse<'a> {
    /// `int16`.
    pub error_code: i16,
    /// `[]ApiVersion`.
    pub api_keys: Vec<ApiVersion>,
    /// `int32`, versions 1 to 4.
    pub throttle_time_ms: i32,
    /// `[]SupportedFeatureKey`, versions 3 to 4, tag 0.
    pub supported_features: Vec<SupportedFeatureKey<'a>>,
    /// `int64`, versions 3 to 4, tag 1, default -1.
    pub finalized_features_epoch: i64,
    /// `[]FinalizedFeatureKey`, versions 3 to 4, tag 2.
    pub finalized_features: Vec<FinalizedFeatureKey<'a>>,
    /// `bool`, versions 3 to 4, tag 3.
    pub zk_migration_ready: bool,
}

impl Default for ApiVersionsResponse<'_> {
    fn default() -> Self {
        Self {
            error_code: 0,
            api_keys: Vec::new(),
            throttle_time_ms: 0,
            supported_features: Vec::new(),
            finalized_features_epoch: -1,
            finalized_features: Vec::new(),
            zk_migration_ready: false,
        }
    }
}

impl<'a> Decode<'a> for ApiVersionsResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 4)?;
        let flexible = version >= 3;
        let error_code = d.i16()?;
        let api_keys = d.structs(flexible, 6, version)?;
        let throttle_time_ms = if version >= 1 { d.i32()? } else { 0 };
        let mut supported_features = Vec::new();
        let mut finalized_features_epoch = -1;
        let mut finalized_features = Vec::new();
        let mut zk_migration_ready = false;
        if flexible {
            d.tagged_fields(|d, tag| {
                match tag {
                    0 => supported_features = d.structs(true, 6, version)?,
                    1 => finalized_features_epoch = d.i64()?,
                    2 => finalized_features = d.structs(true, 6, version)?,
                    3 => zk_migration_ready = d.bool()?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
        }
        Ok(Self {
            error_code,
            api_keys,
            throttle_time_ms,
            supported_features,
            finalized_features_epoch,
            finalized_features,
            zk_migration_ready,
        })
    }
}

impl Encode for ApiVersionsResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 4)?;
        let flexible = version >= 3;
        e.i16(self.error_code);
        e.structs(flexible, &self.api_keys, version)?;
        if version >= 1 {
            e.i32(self.throttle_time_ms);
        }
        if flexible {
            let tags = e.begin_tagged_fields();
            if !self.supported_features.is_empty() {
                let start = e.begin_tagged_field(&tags, 0);
                e.structs(true, &self.supported_features, version)?;
                e.end_tagged_field(&start)?;
            }
            if self.finalized_features_epoch != -1 {
                let start = e.begin_tagged_field(&tags, 1);
                e.i64(self.finalized_features_epoch);
                e.end_tagged_field(&start)?;
            }
            if !self.finalized_features.is_empty() {
                let start = e.begin_tagged_field(&tags, 2);
                e.structs(true, &self.finalized_features, version)?;
                e.end_tagged_field(&start)?;
            }
            if self.zk_migration_ready {
                let start = e.begin_tagged_field(&tags, 3);
                e.bool(self.zk_migration_ready);
                e.end_tagged_field(&start)?;
            }
        }
        Ok(())
    }
}

/// `ApiVersion`, versions 0 to 4.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiVersion {
    /// `int16`.
    pub api_key: i16,
    /// `int16`.
    pub min_version: i16,
    /// `int16`.
    pub max_version: i16,
}

impl<'a> Decode<'a> for ApiVersion {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 3;
        let api_key = d.i16()?;
        let min_version = d.i16()?;
        let max_version = d.i16()?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { api_key, min_version, max_version })
    }
}

impl Encode for ApiVersion {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 3;
        e.i16(self.api_key);
        e.i16(self.min_version);
        e.i16(self.max_version);
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `SupportedFeatureKey`, versions 3 to 4.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SupportedFeatureKey<'a> {
    /// `string`.
    pub name: Str<'a>,
    /// `int16`.
    pub min_version: i16,
    /// `int16`.
    pub max_version: i16,
}

impl<'a> Decode<'a> for SupportedFeatureKey<'a> {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let name = d.string(true)?;
        let min_version = d.i16()?;
        let max_version = d.i16()?;
        d.skip_tagged_fields()?;
        Ok(Self { name, min_version, max_version })
    }
}

impl Encode for SupportedFeatureKey<'_> {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.string(true, &self.name)?;
        e.i16(self.min_version);
        e.i16(self.max_version);
        e.no_tagged_fields();
        Ok(())
    }
}

/// `FinalizedFeatureKey`, versions 3 to 4.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinalizedFeatureKey<'a> {
    /// `string`.
    pub name: Str<'a>,
    /// `int16`.
    pub max_version_level: i16,
    /// `int16`.
    pub min_version_level: i16,
}

impl<'a> Decode<'a> for FinalizedFeatureKey<'a> {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let name = d.string(true)?;
        let max_version_level = d.i16()?;
        let min_version_level = d.i16()?;
        d.skip_tagged_fields()?;
        Ok(Self { name, max_version_level, min_version_level })
    }
}

impl Encode for FinalizedFeatureKey<'_> {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.string(true, &self.name)?;
        e.i16(self.max_version_level);
        e.i16(self.min_version_level);
        e.no_tagged_fields();
        Ok(())
    }
}
