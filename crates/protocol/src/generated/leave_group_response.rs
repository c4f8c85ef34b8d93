// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `LeaveGroup`. Versions 0 to 5, tagged fields from version 4 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `LeaveGroupResponse`, versions 0 to 5.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaveGroupResponse<'a> {
    /// `int32`, versions 1 to 5.
    pub throttle_time_ms: i32,
    /// `int16`.
    pub error_code: i16,
    /// `[]MemberResponse`, versions 3 to 5.
    pub members: Vec<MemberResponse<'a>>,
}

impl<'a> Decode<'a> for LeaveGroupResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 5)?;
        let flexible = version >= 4;
        let throttle_time_ms = if version >= 1 { d.i32()? } else { 0 };
        let error_code = d.i16()?;
        let members = if version >= 3 { d.structs(flexible, 5, version)? } else { Vec::new() };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { throttle_time_ms, error_code, members })
    }
}

impl Encode for LeaveGroupResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 5)?;
        let flexible = version >= 4;
        if version >= 1 {
            e.i32(self.throttle_time_ms);
        }
        e.i16(self.error_code);
        if version >= 3 {
            e.structs(flexible, &self.members, version)?;
        } else if !self.members.is_empty() {
            return Err(EncodeError::AbsentField { field: "members", version });
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `MemberResponse`, versions 3 to 5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberResponse<'a> {
    /// `string`.
    pub member_id: Str<'a>,
    /// `string`, may be null.
    pub group_instance_id: Option<Str<'a>>,
    /// `int16`.
    pub error_code: i16,
}

impl Default for MemberResponse<'_> {
    fn default() -> Self {
        Self { member_id: Str::Borrowed(""), group_instance_id: Some(Str::Borrowed("")), error_code: 0 }
    }
}

impl<'a> Decode<'a> for MemberResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 4;
        let member_id = d.string(flexible)?;
        let group_instance_id = d.nullable_string(flexible)?;
        let error_code = d.i16()?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { member_id, group_instance_id, error_code })
    }
}

impl Encode for MemberResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 4;
        e.string(flexible, &self.member_id)?;
        e.nullable_string(flexible, self.group_instance_id.as_deref())?;
        e.i16(self.error_code);
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}
