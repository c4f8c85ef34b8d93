// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `LeaveGroup`. Versions 0 to 5, tagged fields from version 4 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};

/// `LeaveGroupRequest`, versions 0 to 5.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaveGroupRequest<'a> {
    /// `string`.
    pub group_id: Str<'a>,
    /// `string`, versions 0 to 2.
    pub member_id: Str<'a>,
    /// `[]MemberIdentity`, versions 3 to 5.
    pub members: Vec<MemberIdentity<'a>>,
}

impl<'a> Decode<'a> for LeaveGroupRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 5)?;
        let flexible = version >= 4;
        let group_id = d.string(flexible)?;
        let member_id = if version <= 2 { d.string(false)? } else { Str::Borrowed("") };
        let members = if version >= 3 { d.structs(flexible, 3, version)? } else { Vec::new() };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { group_id, member_id, members })
    }
}

impl Encode for LeaveGroupRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 5)?;
        let flexible = version >= 4;
        e.string(flexible, &self.group_id)?;
        if version <= 2 {
            e.string(false, &self.member_id)?;
        } else if !self.member_id.is_empty() {
            return Err(EncodeError::AbsentField { field: "member_id", version });
        }
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

/// `MemberIdentity`, versions 3 to 5.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberIdentity<'a> {
    /// `string`.
    pub member_id: Str<'a>,
    /// `string`, may be null, default null.
    pub group_instance_id: Option<Str<'a>>,
    /// `string`, version 5, may be null, default null.
    pub reason: Option<Str<'a>>,
}

impl<'a> Decode<'a> for MemberIdentity<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 4;
        let member_id = d.string(flexible)?;
        let group_instance_id = d.nullable_string(flexible)?;
        let reason = if version == 5 { d.nullable_string(true)? } else { None };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { member_id, group_instance_id, reason })
    }
}

impl Encode for MemberIdentity<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 4;
        e.string(flexible, &self.member_id)?;
        e.nullable_string(flexible, self.group_instance_id.as_deref())?;
        if version == 5 {
            e.nullable_string(true, self.reason.as_deref())?;
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

impl<'a> Request<'a> for LeaveGroupRequest<'a> {
    const KEY: ApiKey = ApiKey::LeaveGroup;
    type Response<'r> = super::LeaveGroupResponse<'r>;
}
