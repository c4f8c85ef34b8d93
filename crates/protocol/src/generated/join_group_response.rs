// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `JoinGroup`. Versions 0 to 9, tagged fields from version 6 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Blob, Decode, Encode, Str, check_decode, check_encode};

/// `JoinGroupResponse`, versions 0 to 9.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinGroupResponse<'a> {
    /// `int32`, versions 2 to 9.
    pub throttle_time_ms: i32,
    /// `int16`.
    pub error_code: i16,
    /// `int32`, default -1.
    pub generation_id: i32,
    /// `string`, versions 7 to 9, may be null, default null.
    pub protocol_type: Option<Str<'a>>,
    /// `string`, may be null in versions 7 to 9.
    pub protocol_name: Option<Str<'a>>,
    /// `string`.
    pub leader: Str<'a>,
    /// `bool`, version 9.
    pub skip_assignment: bool,
    /// `string`.
    pub member_id: Str<'a>,
    /// `[]JoinGroupResponseMember`.
    pub members: Vec<JoinGroupResponseMember<'a>>,
}

impl Default for JoinGroupResponse<'_> {
    fn default() -> Self {
        Self {
            throttle_time_ms: 0,
            error_code: 0,
            generation_id: -1,
            protocol_type: None,
            protocol_name: Some(Str::Borrowed("")),
            leader: Str::Borrowed(""),
            skip_assignment: false,
            member_id: Str::Borrowed(""),
            members: Vec::new(),
        }
    }
}

impl<'a> Decode<'a> for JoinGroupResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 9)?;
        let flexible = version >= 6;
        let throttle_time_ms = if version >= 2 { d.i32()? } else { 0 };
        let error_code = d.i16()?;
        let generation_id = d.i32()?;
        let protocol_type = if version >= 7 { d.nullable_string(true)? } else { None };
        let protocol_name =
            if version >= 7 { d.nullable_string(flexible)? } else { Some(d.string(flexible)?) };
        let leader = d.string(flexible)?;
        let skip_assignment = if version == 9 { d.bool()? } else { false };
        let member_id = d.string(flexible)?;
        let members = d.structs(flexible, 4, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self {
            throttle_time_ms,
            error_code,
            generation_id,
            protocol_type,
            protocol_name,
            leader,
            skip_assignment,
            member_id,
            members,
        })
    }
}

impl Encode for JoinGroupResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 9)?;
        let flexible = version >= 6;
        if version >= 2 {
            e.i32(self.throttle_time_ms);
        }
        e.i16(self.error_code);
        e.i32(self.generation_id);
        if version >= 7 {
            e.nullable_string(true, self.protocol_type.as_deref())?;
        }
        if version < 7 && self.protocol_name.is_none() {
            return Err(EncodeError::NullField { field: "protocol_name", version });
        }
        e.nullable_string(flexible, self.protocol_name.as_deref())?;
        e.string(flexible, &self.leader)?;
        if version == 9 {
            e.bool(self.skip_assignment);
        } else if self.skip_assignment {
            return Err(EncodeError::AbsentField { field: "skip_assignment", version });
        }
        e.string(flexible, &self.member_id)?;
        e.structs(flexible, &self.members, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `JoinGroupResponseMember`, versions 0 to 9.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinGroupResponseMember<'a> {
    /// `string`.
    pub member_id: Str<'a>,
    /// `string`, versions 5 to 9, may be null, default null.
    pub group_instance_id: Option<Str<'a>>,
    /// `bytes`.
    pub metadata: Blob<'a>,
}

impl<'a> Decode<'a> for JoinGroupResponseMember<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 6;
        let member_id = d.string(flexible)?;
        let group_instance_id = if version >= 5 { d.nullable_string(flexible)? } else { None };
        let metadata = d.bytes(flexible)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { member_id, group_instance_id, metadata })
    }
}

impl Encode for JoinGroupResponseMember<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 6;
        e.string(flexible, &self.member_id)?;
        if version >= 5 {
            e.nullable_string(flexible, self.group_instance_id.as_deref())?;
        }
        e.bytes(flexible, &self.metadata)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}
