// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `FindCoordinator`. Versions 0 to 6, tagged fields from version 3 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};

/// `FindCoordinatorRequest`, versions 0 to 6.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FindCoordinatorRequest<'a> {
    /// `string`, versions 0 to 3.
    pub key: Str<'a>,
    /// `int8`, versions 1 to 6.
    pub key_type: i8,
    /// `[]string`, versions 4 to 6.
    pub coordinator_keys: Vec<Str<'a>>,
}

impl<'a> Decode<'a> for FindCoordinatorRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 6)?;
        let flexible = version >= 3;
        let key = if version <= 3 { d.string(flexible)? } else { Str::Borrowed("") };
        let key_type = if version >= 1 { d.i8()? } else { 0 };
        let coordinator_keys = if version >= 4 { d.array(true, 1, |d| d.string(true))? } else { Vec::new() };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { key, key_type, coordinator_keys })
    }
}

impl Encode for FindCoordinatorRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 6)?;
        let flexible = version >= 3;
        if version <= 3 {
            e.string(flexible, &self.key)?;
        } else if !self.key.is_empty() {
            return Err(EncodeError::AbsentField { field: "key", version });
        }
        if version >= 1 {
            e.i8(self.key_type);
        } else if self.key_type != 0 {
            return Err(EncodeError::AbsentField { field: "key_type", version });
        }
        if version >= 4 {
            e.array(true, &self.coordinator_keys, |e, value| e.string(true, value))?;
        } else if !self.coordinator_keys.is_empty() {
            return Err(EncodeError::AbsentField { field: "coordinator_keys", version });
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

impl<'a> Request<'a> for FindCoordinatorRequest<'a> {
    const KEY: ApiKey = ApiKey::FindCoordinator;
    type Response<'r> = super::FindCoordinatorResponse<'r>;
}
