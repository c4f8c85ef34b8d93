// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `Heartbeat`. Versions 0 to 4, tagged fields from version 4 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};

/// `HeartbeatRequest`, versions 0 to 4.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeartbeatRequest<'a> {
    /// `string`.
    pub group_id: Str<'a>,
    /// `int32`.
    pub generation_id: i32,
    /// `string`.
    pub member_id: Str<'a>,
    /// `string`, versions 3 to 4, may be null, default null.
    pub group_instance_id: Option<Str<'a>>,
}

impl<'a> Decode<'a> for HeartbeatRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 4)?;
        let flexible = version >= 4;
        let group_id = d.string(flexible)?;
        let generation_id = d.i32()?;
        let member_id = d.string(flexible)?;
        let group_instance_id = if version >= 3 { d.nullable_string(flexible)? } else { None };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { group_id, generation_id, member_id, group_instance_id })
    }
}

impl Encode for HeartbeatRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 4)?;
        let flexible = version >= 4;
        e.string(flexible, &self.group_id)?;
        e.i32(self.generation_id);
        e.string(flexible, &self.member_id)?;
        if version >= 3 {
            e.nullable_string(flexible, self.group_instance_id.as_deref())?;
        } else if self.group_instance_id.is_some() {
            return Err(EncodeError::AbsentField { field: "group_instance_id", version });
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

impl<'a> Request<'a> for HeartbeatRequest<'a> {
    const KEY: ApiKey = ApiKey::Heartbeat;
    type Response<'r> = super::HeartbeatResponse;
}
