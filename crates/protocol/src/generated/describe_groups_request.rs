// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `DescribeGroups`. Versions 0 to 6, tagged fields from version 5 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};

/// `DescribeGroupsRequest`, versions 0 to 6.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeGroupsRequest<'a> {
    /// `[]string`.
    pub groups: Vec<Str<'a>>,
    /// `bool`, versions 3 to 6.
    pub include_authorized_operations: bool,
}

impl<'a> Decode<'a> for DescribeGroupsRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 6)?;
        let flexible = version >= 5;
        let groups = d.array(flexible, 1, |d| d.string(flexible))?;
        let include_authorized_operations = if version >= 3 { d.bool()? } else { false };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { groups, include_authorized_operations })
    }
}

impl Encode for DescribeGroupsRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 6)?;
        let flexible = version >= 5;
        e.array(flexible, &self.groups, |e, value| e.string(flexible, value))?;
        if version >= 3 {
            e.bool(self.include_authorized_operations);
        } else if self.include_authorized_operations {
            return Err(EncodeError::AbsentField { field: "include_authorized_operations", version });
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

impl<'a> Request<'a> for DescribeGroupsRequest<'a> {
    const KEY: ApiKey = ApiKey::DescribeGroups;
    type Response<'r> = super::DescribeGroupsResponse<'r>;
}
