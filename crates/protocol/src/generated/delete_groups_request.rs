// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `DeleteGroups`. Versions 0 to 2, tagged fields from version 2 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};

/// `DeleteGroupsRequest`, versions 0 to 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteGroupsRequest<'a> {
    /// `[]string`.
    pub groups_names: Vec<Str<'a>>,
}

impl<'a> Decode<'a> for DeleteGroupsRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 2)?;
        let flexible = version >= 2;
        let groups_names = d.array(flexible, 1, |d| d.string(flexible))?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { groups_names })
    }
}

impl Encode for DeleteGroupsRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 2)?;
        let flexible = version >= 2;
        e.array(flexible, &self.groups_names, |e, value| e.string(flexible, value))?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

impl<'a> Request<'a> for DeleteGroupsRequest<'a> {
    const KEY: ApiKey = ApiKey::DeleteGroups;
    type Response<'r> = super::DeleteGroupsResponse<'r>;
}
