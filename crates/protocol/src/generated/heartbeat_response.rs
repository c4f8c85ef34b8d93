// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `Heartbeat`. Versions 0 to 4, tagged fields from version 4 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, check_decode, check_encode};

/// `HeartbeatResponse`, versions 0 to 4.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeartbeatResponse {
    /// `int32`, versions 1 to 4.
    pub throttle_time_ms: i32,
    /// `int16`.
    pub error_code: i16,
}

impl<'a> Decode<'a> for HeartbeatResponse {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 4)?;
        let flexible = version >= 4;
        let throttle_time_ms = if version >= 1 { d.i32()? } else { 0 };
        let error_code = d.i16()?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { throttle_time_ms, error_code })
    }
}

impl Encode for HeartbeatResponse {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 4)?;
        let flexible = version >= 4;
        if version >= 1 {
            e.i32(self.throttle_time_ms);
        }
        e.i16(self.error_code);
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}
