// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `SyncGroup`. Versions 0 to 5, tagged fields from version 4 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Blob, Decode, Encode, Request, Str, check_decode, check_encode};

/// `SyncGroupRequest`, versions 0 to 5.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncGroupRequest<'a> {
    /// `string`.
    pub group_id: Str<'a>,
    /// `int32`.
    pub generation_id: i32,
    /// `string`.
    pub member_id: Str<'a>,
    /// `string`, versions 3 to 5, may be null, default null.
    pub group_instance_id: Option<Str<'a>>,
    /// `string`, version 5, may be null, default null.
    pub protocol_type: Option<Str<'a>>,
    /// `string`, version 5, may be null, default null.
    pub protocol_name: Option<Str<'a>>,
    /// `[]SyncGroupRequestAssignment`.
    pub assignments: Vec<SyncGroupRequestAssignment<'a>>,
}

impl<'a> Decode<'a> for SyncGroupRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 5)?;
        let flexible = version >= 4;
        let group_id = d.string(flexible)?;
        let generation_id = d.i32()?;
        let member_id = d.string(flexible)?;
        let group_instance_id = if version >= 3 { d.nullable_string(flexible)? } else { None };
        let protocol_type = if version == 5 { d.nullable_string(true)? } else { None };
        let protocol_name = if version == 5 { d.nullable_string(true)? } else { None };
        let assignments = d.structs(flexible, 3, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self {
            group_id,
            generation_id,
            member_id,
            group_instance_id,
            protocol_type,
            protocol_name,
            assignments,
        })
    }
}

impl Encode for SyncGroupRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 5)?;
        let flexible = version >= 4;
        e.string(flexible, &self.group_id)?;
        e.i32(self.generation_id);
        e.string(flexible, &self.member_id)?;
        if version >= 3 {
            e.nullable_string(flexible, self.group_instance_id.as_deref())?;
        } else if self.group_instance_id.is_some() {
            return Err(EncodeError::AbsentField { field: "group_instance_id", version });
        }
        if version == 5 {
            e.nullable_string(true, self.protocol_type.as_deref())?;
        }
        if version == 5 {
            e.nullable_string(true, self.protocol_name.as_deref())?;
        }
        e.structs(flexible, &self.assignments, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `SyncGroupRequestAssignment`, versions 0 to 5.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncGroupRequestAssignment<'a> {
    /// `string`.
    pub member_id: Str<'a>,
    /// `bytes`.
    pub assignment: Blob<'a>,
}

impl<'a> Decode<'a> for SyncGroupRequestAssignment<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 4;
        let member_id = d.string(flexible)?;
        let assignment = d.bytes(flexible)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { member_id, assignment })
    }
}

impl Encode for SyncGroupRequestAssignment<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 4;
        e.string(flexible, &self.member_id)?;
        e.bytes(flexible, &self.assignment)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

impl<'a> Request<'a> for SyncGroupRequest<'a> {
    const KEY: ApiKey = ApiKey::SyncGroup;
    type Response<'r> = super::SyncGroupResponse<'r>;
}
