// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `DescribeGroups`. Versions 0 to 6, tagged fields from version 5 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Blob, Decode, Encode, Str, check_decode, check_encode};

/// `DescribeGroupsResponse`, versions 0 to 6.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeGroupsResponse<'a> {
    /// `int32`, versions 1 to 6.
    pub throttle_time_ms: i32,
    /// `[]DescribedGroup`.
    pub groups: Vec<DescribedGroup<'a>>,
}

impl<'a> Decode<'a> for DescribeGroupsResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 6)?;
        let flexible = version >= 5;
        let throttle_time_ms = if version >= 1 { d.i32()? } else { 0 };
        let groups = d.structs(flexible, 12, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { throttle_time_ms, groups })
    }
}

impl Encode for DescribeGroupsResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 6)?;
        let flexible = version >= 5;
        if version >= 1 {
            e.i32(self.throttle_time_ms);
        }
        e.structs(flexible, &self.groups, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `DescribedGroup`, versions 0 to 6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedGroup<'a> {
    /// `int16`.
    pub error_code: i16,
    /// `string`, version 6, may be null, default null.
    pub error_message: Option<Str<'a>>,
    /// `string`.
    pub group_id: Str<'a>,
    /// `string`.
    pub group_state: Str<'a>,
    /// `string`.
    pub protocol_type: Str<'a>,
    /// `string`.
    pub protocol_data: Str<'a>,
    /// `[]DescribedGroupMember`.
    pub members: Vec<DescribedGroupMember<'a>>,
    /// `int32`, versions 3 to 6, default -2147483648.
    pub authorized_operations: i32,
}

impl Default for DescribedGroup<'_> {
    fn default() -> Self {
        Self {
            error_code: 0,
            error_message: None,
            group_id: Str::Borrowed(""),
            group_state: Str::Borrowed(""),
            protocol_type: Str::Borrowed(""),
            protocol_data: Str::Borrowed(""),
            members: Vec::new(),
            authorized_operations: -2_147_483_648,
        }
    }
}

impl<'a> Decode<'a> for DescribedGroup<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 5;
        let error_code = d.i16()?;
        let error_message = if version == 6 { d.nullable_string(true)? } else { None };
        let group_id = d.string(flexible)?;
        let group_state = d.string(flexible)?;
        let protocol_type = d.string(flexible)?;
        let protocol_data = d.string(flexible)?;
        let members = d.structs(flexible, 7, version)?;
        let authorized_operations = if version >= 3 { d.i32()? } else { -2_147_483_648 };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self {
            error_code,
            error_message,
            group_id,
            group_state,
            protocol_type,
            protocol_data,
            members,
            authorized_operations,
        })
    }
}

impl Encode for DescribedGroup<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 5;
        e.i16(self.error_code);
        if version == 6 {
            e.nullable_string(true, self.error_message.as_deref())?;
        } else if self.error_message.is_some() {
            return Err(EncodeError::AbsentField { field: "error_message", version });
        }
        e.string(flexible, &self.group_id)?;
        e.string(flexible, &self.group_state)?;
        e.string(flexible, &self.protocol_type)?;
        e.string(flexible, &self.protocol_data)?;
        e.structs(flexible, &self.members, version)?;
        if version >= 3 {
            e.i32(self.authorized_operations);
        } else if self.authorized_operations != -2_147_483_648 {
            return Err(EncodeError::AbsentField { field: "authorized_operations", version });
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `DescribedGroupMember`, versions 0 to 6.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribedGroupMember<'a> {
    /// `string`.
    pub member_id: Str<'a>,
    /// `string`, versions 4 to 6, may be null, default null.
    pub group_instance_id: Option<Str<'a>>,
    /// `string`.
    pub client_id: Str<'a>,
    /// `string`.
    pub client_host: Str<'a>,
    /// `bytes`.
    pub member_metadata: Blob<'a>,
    /// `bytes`.
    pub member_assignment: Blob<'a>,
}

impl<'a> Decode<'a> for DescribedGroupMember<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 5;
        let member_id = d.string(flexible)?;
        let group_instance_id = if version >= 4 { d.nullable_string(flexible)? } else { None };
        let client_id = d.string(flexible)?;
        let client_host = d.string(flexible)?;
        let member_metadata = d.bytes(flexible)?;
        let member_assignment = d.bytes(flexible)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { member_id, group_instance_id, client_id, client_host, member_metadata, member_assignment })
    }
}

impl Encode for DescribedGroupMember<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 5;
        e.string(flexible, &self.member_id)?;
        if version >= 4 {
            e.nullable_string(flexible, self.group_instance_id.as_deref())?;
        }
        e.string(flexible, &self.client_id)?;
        e.string(flexible, &self.client_host)?;
        e.bytes(flexible, &self.member_metadata)?;
        e.bytes(flexible, &self.member_assignment)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}
