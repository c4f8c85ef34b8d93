// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `PushTelemetry`. Version 0, tagged fields from version 0 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, check_decode, check_encode};

/// `PushTelemetryResponse`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushTelemetryResponse {
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `int16`.
    pub error_code: i16,
}

impl<'a> Decode<'a> for PushTelemetryResponse {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 0)?;
        let throttle_time_ms = d.i32()?;
        let error_code = d.i16()?;
        d.skip_tagged_fields()?;
        Ok(Self { throttle_time_ms, error_code })
    }
}

impl Encode for PushTelemetryResponse {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 0)?;
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        e.no_tagged_fields();
        Ok(())
    }
}
