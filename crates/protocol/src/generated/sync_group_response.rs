// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `SyncGroup`. Versions 0 to 5, tagged fields from version 4 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Blob, Decode, Encode, Str, check_decode, check_encode};

/// `SyncGroupResponse`, versions 0 to 5.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncGroupResponse<'a> {
    /// `int32`, versions 1 to 5.
    pub throttle_time_ms: i32,
    /// `int16`.
    pub error_code: i16,
    /// `string`, version 5, may be null, default null.
    pub protocol_type: Option<Str<'a>>,
    /// `string`, version 5, may be null, default null.
    pub protocol_name: Option<Str<'a>>,
    /// `bytes`.
    pub assignment: Blob<'a>,
}

impl<'a> Decode<'a> for SyncGroupResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 5)?;
        let flexible = version >= 4;
        let throttle_time_ms = if version >= 1 { d.i32()? } else { 0 };
        let error_code = d.i16()?;
        let protocol_type = if version == 5 { d.nullable_string(true)? } else { None };
        let protocol_name = if version == 5 { d.nullable_string(true)? } else { None };
        let assignment = d.bytes(flexible)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { throttle_time_ms, error_code, protocol_type, protocol_name, assignment })
    }
}

impl Encode for SyncGroupResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 5)?;
        let flexible = version >= 4;
        if version >= 1 {
            e.i32(self.throttle_time_ms);
        }
        e.i16(self.error_code);
        if version == 5 {
            e.nullable_string(true, self.protocol_type.as_deref())?;
        }
        if version == 5 {
            e.nullable_string(true, self.protocol_name.as_deref())?;
        }
        e.bytes(flexible, &self.assignment)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}
