// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `JoinGroup`. Versions 0 to 9, tagged fields from version 6 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Blob, Decode, Encode, Request, Str, check_decode, check_encode};

/// `JoinGroupRequest`, versions 0 to 9.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinGroupRequest<'a> {
    /// `string`.
    pub group_id: Str<'a>,
    /// `int32`.
    pub session_timeout_ms: i32,
    /// `int32`, versions 1 to 9, default -1.
    pub rebalance_timeout_ms: i32,
    /// `string`.
    pub member_id: Str<'a>,
    /// `string`, versions 5 to 9, may be null, default null.
    pub group_instance_id: Option<Str<'a>>,
    /// `string`.
    pub protocol_type: Str<'a>,
    /// `[]JoinGroupRequestProtocol`.
    pub protocols: Vec<JoinGroupRequestProtocol<'a>>,
    /// `string`, versions 8 to 9, may be null, default null.
    pub reason: Option<Str<'a>>,
}

impl Default for JoinGroupRequest<'_> {
    fn default() -> Self {
        Self {
            group_id: Str::Borrowed(""),
            session_timeout_ms: 0,
            rebalance_timeout_ms: -1,
            member_id: Str::Borrowed(""),
            group_instance_id: None,
            protocol_type: Str::Borrowed(""),
            protocols: Vec::new(),
            reason: None,
        }
    }
}

impl<'a> Decode<'a> for JoinGroupRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 9)?;
        let flexible = version >= 6;
        let group_id = d.string(flexible)?;
        let session_timeout_ms = d.i32()?;
        let rebalance_timeout_ms = if version >= 1 { d.i32()? } else { -1 };
        let member_id = d.string(flexible)?;
        let group_instance_id = if version >= 5 { d.nullable_string(flexible)? } else { None };
        let protocol_type = d.string(flexible)?;
        let protocols = d.structs(flexible, 3, version)?;
        let reason = if version >= 8 { d.nullable_string(true)? } else { None };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self {
            group_id,
            session_timeout_ms,
            rebalance_timeout_ms,
            member_id,
            group_instance_id,
            protocol_type,
            protocols,
            reason,
        })
    }
}

impl Encode for JoinGroupRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 9)?;
        let flexible = version >= 6;
        e.string(flexible, &self.group_id)?;
        e.i32(self.session_timeout_ms);
        if version >= 1 {
            e.i32(self.rebalance_timeout_ms);
        }
        e.string(flexible, &self.member_id)?;
        if version >= 5 {
            e.nullable_string(flexible, self.group_instance_id.as_deref())?;
        } else if self.group_instance_id.is_some() {
            return Err(EncodeError::AbsentField { field: "group_instance_id", version });
        }
        e.string(flexible, &self.protocol_type)?;
        e.structs(flexible, &self.protocols, version)?;
        if version >= 8 {
            e.nullable_string(true, self.reason.as_deref())?;
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `JoinGroupRequestProtocol`, versions 0 to 9.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinGroupRequestProtocol<'a> {
    /// `string`.
    pub name: Str<'a>,
    /// `bytes`.
    pub metadata: Blob<'a>,
}

impl<'a> Decode<'a> for JoinGroupRequestProtocol<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 6;
        let name = d.string(flexible)?;
        let metadata = d.bytes(flexible)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { name, metadata })
    }
}

impl Encode for JoinGroupRequestProtocol<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 6;
        e.string(flexible, &self.name)?;
        e.bytes(flexible, &self.metadata)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

impl<'a> Request<'a> for JoinGroupRequest<'a> {
    const KEY: ApiKey = ApiKey::JoinGroup;
    type Response<'r> = super::JoinGroupResponse<'r>;
}
