// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Value of the record `GroupMetadata`. Versions 0 to 4, tagged fields from version 4 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Blob, Decode, Encode, Str, check_decode, check_encode};

/// `GroupMetadataValue`, versions 0 to 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMetadataValue<'a> {
    /// `string`.
    pub protocol_type: Str<'a>,
    /// `int32`.
    pub generation: i32,
    /// `string`, may be null.
    pub protocol: Option<Str<'a>>,
    /// `string`, may be null.
    pub leader: Option<Str<'a>>,
    /// `int64`, versions 2 to 4, default -1.
    pub current_state_timestamp: i64,
    /// `[]MemberMetadata`.
    pub members: Vec<MemberMetadata<'a>>,
}

impl Default for GroupMetadataValue<'_> {
    fn default() -> Self {
        Self {
            protocol_type: Str::Borrowed(""),
            generation: 0,
            protocol: Some(Str::Borrowed("")),
            leader: Some(Str::Borrowed("")),
            current_state_timestamp: -1,
            members: Vec::new(),
        }
    }
}

impl<'a> Decode<'a> for GroupMetadataValue<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 4)?;
        let flexible = version >= 4;
        let protocol_type = d.string(flexible)?;
        let generation = d.i32()?;
        let protocol = d.nullable_string(flexible)?;
        let leader = d.nullable_string(flexible)?;
        let current_state_timestamp = if version >= 2 { d.i64()? } else { -1 };
        let members = d.structs(flexible, 15, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { protocol_type, generation, protocol, leader, current_state_timestamp, members })
    }
}

impl Encode for GroupMetadataValue<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 4)?;
        let flexible = version >= 4;
        e.string(flexible, &self.protocol_type)?;
        e.i32(self.generation);
        e.nullable_string(flexible, self.protocol.as_deref())?;
        e.nullable_string(flexible, self.leader.as_deref())?;
        if version >= 2 {
            e.i64(self.current_state_timestamp);
        }
        e.structs(flexible, &self.members, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `MemberMetadata`, versions 0 to 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberMetadata<'a> {
    /// `string`.
    pub member_id: Str<'a>,
    /// `string`, versions 3 to 4, may be null, default null.
    pub group_instance_id: Option<Str<'a>>,
    /// `string`.
    pub client_id: Str<'a>,
    /// `string`.
    pub client_host: Str<'a>,
    /// `int32`, versions 1 to 4, default -1.
    pub rebalance_timeout: i32,
    /// `int32`.
    pub session_timeout: i32,
    /// `bytes`.
    pub subscription: Blob<'a>,
    /// `bytes`.
    pub assignment: Blob<'a>,
}

impl Default for MemberMetadata<'_> {
    fn default() -> Self {
        Self {
            member_id: Str::Borrowed(""),
            group_instance_id: None,
            client_id: Str::Borrowed(""),
            client_host: Str::Borrowed(""),
            rebalance_timeout: -1,
            session_timeout: 0,
            subscription: Blob::Borrowed(&[]),
            assignment: Blob::Borrowed(&[]),
        }
    }
}

impl<'a> Decode<'a> for MemberMetadata<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 4;
        let member_id = d.string(flexible)?;
        let group_instance_id = if version >= 3 { d.nullable_string(flexible)? } else { None };
        let client_id = d.string(flexible)?;
        let client_host = d.string(flexible)?;
        let rebalance_timeout = if version >= 1 { d.i32()? } else { -1 };
        let session_timeout = d.i32()?;
        let subscription = d.bytes(flexible)?;
        let assignment = d.bytes(flexible)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self {
            member_id,
            group_instance_id,
            client_id,
            client_host,
            rebalance_timeout,
            session_timeout,
            subscription,
            assignment,
        })
    }
}

impl Encode for MemberMetadata<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 4;
        e.string(flexible, &self.member_id)?;
        if version >= 3 {
            e.nullable_string(flexible, self.group_instance_id.as_deref())?;
        }
        e.string(flexible, &self.client_id)?;
        e.string(flexible, &self.client_host)?;
        if version >= 1 {
            e.i32(self.rebalance_timeout);
        }
        e.i32(self.session_timeout);
        e.bytes(flexible, &self.subscription)?;
        e.bytes(flexible, &self.assignment)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}
