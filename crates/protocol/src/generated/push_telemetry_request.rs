// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `PushTelemetry`. Version 0, tagged fields from version 0 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Blob, Decode, Encode, Request, check_decode, check_encode};
use riverrun_types::TopicId;

/// `PushTelemetryRequest`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushTelemetryRequest<'a> {
    /// `uuid`.
    pub client_instance_id: TopicId,
    /// `int32`.
    pub subscription_id: i32,
    /// `bool`.
    pub terminating: bool,
    /// `int8`.
    pub compression_type: i8,
    /// `bytes`.
    pub metrics: Blob<'a>,
}

impl<'a> Decode<'a> for PushTelemetryRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 0)?;
        let client_instance_id = d.uuid()?;
        let subscription_id = d.i32()?;
        let terminating = d.bool()?;
        let compression_type = d.i8()?;
        let metrics = d.bytes(true)?;
        d.skip_tagged_fields()?;
        Ok(Self { client_instance_id, subscription_id, terminating, compression_type, metrics })
    }
}

impl Encode for PushTelemetryRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 0)?;
        e.uuid(self.client_instance_id);
        e.i32(self.subscription_id);
        e.bool(self.terminating);
        e.i8(self.compression_type);
        e.bytes(true, &self.metrics)?;
        e.no_tagged_fields();
        Ok(())
    }
}

impl<'a> Request<'a> for PushTelemetryRequest<'a> {
    const KEY: ApiKey = ApiKey::PushTelemetry;
    type Response<'r> = super::PushTelemetryResponse;
}
