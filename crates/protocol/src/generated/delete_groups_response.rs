// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `DeleteGroups`. Versions 0 to 2, tagged fields from version 2 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `DeleteGroupsResponse`, versions 0 to 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteGroupsResponse<'a> {
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `[]DeletableGroupResult`.
    pub results: Vec<DeletableGroupResult<'a>>,
}

impl<'a> Decode<'a> for DeleteGroupsResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 2)?;
        let flexible = version >= 2;
        let throttle_time_ms = d.i32()?;
        let results = d.structs(flexible, 4, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { throttle_time_ms, results })
    }
}

impl Encode for DeleteGroupsResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 2)?;
        let flexible = version >= 2;
        e.i32(self.throttle_time_ms);
        e.structs(flexible, &self.results, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `DeletableGroupResult`, versions 0 to 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeletableGroupResult<'a> {
    /// `string`.
    pub group_id: Str<'a>,
    /// `int16`.
    pub error_code: i16,
}

impl<'a> Decode<'a> for DeletableGroupResult<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let group_id = d.string(flexible)?;
        let error_code = d.i16()?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { group_id, error_code })
    }
}

impl Encode for DeletableGroupResult<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 2;
        e.string(flexible, &self.group_id)?;
        e.i16(self.error_code);
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}
