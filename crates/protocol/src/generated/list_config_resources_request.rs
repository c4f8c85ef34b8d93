// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `ListConfigResources`. Versions 0 to 1, tagged fields from version 0 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, check_decode, check_encode};

/// `ListConfigResourcesRequest`, versions 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListConfigResourcesRequest {
    /// `[]int8`, version 1.
    pub resource_types: Vec<i8>,
}

impl<'a> Decode<'a> for ListConfigResourcesRequest {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 1)?;
        let resource_types = if version == 1 { d.array(true, 1, Decoder::i8)? } else { Vec::new() };
        d.skip_tagged_fields()?;
        Ok(Self { resource_types })
    }
}

impl Encode for ListConfigResourcesRequest {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 1)?;
        if version == 1 {
            e.array(true, &self.resource_types, |e, value| {
                e.i8(*value);
                Ok(())
            })?;
        } else if !self.resource_types.is_empty() {
            return Err(EncodeError::AbsentField { field: "resource_types", version });
        }
        e.no_tagged_fields();
        Ok(())
    }
}

impl Request<'_> for ListConfigResourcesRequest {
    const KEY: ApiKey = ApiKey::ListConfigResources;
    type Response<'r> = super::ListConfigResourcesResponse<'r>;
}
