// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `ListGroups`. Versions 0 to 5, tagged fields from version 3 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};

/// `ListGroupsRequest`, versions 0 to 5.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListGroupsRequest<'a> {
    /// `[]string`, versions 4 to 5.
    pub states_filter: Vec<Str<'a>>,
    /// `[]string`, version 5.
    pub types_filter: Vec<Str<'a>>,
}

impl<'a> Decode<'a> for ListGroupsRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 5)?;
        let flexible = version >= 3;
        let states_filter = if version >= 4 { d.array(true, 1, |d| d.string(true))? } else { Vec::new() };
        let types_filter = if version == 5 { d.array(true, 1, |d| d.string(true))? } else { Vec::new() };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { states_filter, types_filter })
    }
}

impl Encode for ListGroupsRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 5)?;
        let flexible = version >= 3;
        if version >= 4 {
            e.array(true, &self.states_filter, |e, value| e.string(true, value))?;
        } else if !self.states_filter.is_empty() {
            return Err(EncodeError::AbsentField { field: "states_filter", version });
        }
        if version == 5 {
            e.array(true, &self.types_filter, |e, value| e.string(true, value))?;
        } else if !self.types_filter.is_empty() {
            return Err(EncodeError::AbsentField { field: "types_filter", version });
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

impl<'a> Request<'a> for ListGroupsRequest<'a> {
    const KEY: ApiKey = ApiKey::ListGroups;
    type Response<'r> = super::ListGroupsResponse<'r>;
}
