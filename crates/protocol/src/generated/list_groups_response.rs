// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `ListGroups`. Versions 0 to 5, tagged fields from version 3 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `ListGroupsResponse`, versions 0 to 5.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListGroupsResponse<'a> {
    /// `int32`, versions 1 to 5.
    pub throttle_time_ms: i32,
    /// `int16`.
    pub error_code: i16,
    /// `[]ListedGroup`.
    pub groups: Vec<ListedGroup<'a>>,
}

impl<'a> Decode<'a> for ListGroupsResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 5)?;
        let flexible = version >= 3;
        let throttle_time_ms = if version >= 1 { d.i32()? } else { 0 };
        let error_code = d.i16()?;
        let groups = d.structs(flexible, 3, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { throttle_time_ms, error_code, groups })
    }
}

impl Encode for ListGroupsResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 5)?;
        let flexible = version >= 3;
        if version >= 1 {
            e.i32(self.throttle_time_ms);
        }
        e.i16(self.error_code);
        e.structs(flexible, &self.groups, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `ListedGroup`, versions 0 to 5.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedGroup<'a> {
    /// `string`.
    pub group_id: Str<'a>,
    /// `string`.
    pub protocol_type: Str<'a>,
    /// `string`, versions 4 to 5.
    pub group_state: Str<'a>,
    /// `string`, version 5.
    pub group_type: Str<'a>,
}

impl<'a> Decode<'a> for ListedGroup<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 3;
        let group_id = d.string(flexible)?;
        let protocol_type = d.string(flexible)?;
        let group_state = if version >= 4 { d.string(true)? } else { Str::Borrowed("") };
        let group_type = if version == 5 { d.string(true)? } else { Str::Borrowed("") };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { group_id, protocol_type, group_state, group_type })
    }
}

impl Encode for ListedGroup<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 3;
        e.string(flexible, &self.group_id)?;
        e.string(flexible, &self.protocol_type)?;
        if version >= 4 {
            e.string(true, &self.group_state)?;
        }
        if version == 5 {
            e.string(true, &self.group_type)?;
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}
