// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `GetTelemetrySubscriptions`. Version 0, tagged fields from version 0 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};
use riverrun_types::TopicId;

/// `GetTelemetrySubscriptionsResponse`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetTelemetrySubscriptionsResponse<'a> {
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `int16`.
    pub error_code: i16,
    /// `uuid`.
    pub client_instance_id: TopicId,
    /// `int32`.
    pub subscription_id: i32,
    /// `[]int8`.
    pub accepted_compression_types: Vec<i8>,
    /// `int32`.
    pub push_interval_ms: i32,
    /// `int32`.
    pub telemetry_max_bytes: i32,
    /// `bool`.
    pub delta_temporality: bool,
    /// `[]string`.
    pub requested_metrics: Vec<Str<'a>>,
}

impl<'a> Decode<'a> for GetTelemetrySubscriptionsResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 0)?;
        let throttle_time_ms = d.i32()?;
        let error_code = d.i16()?;
        let client_instance_id = d.uuid()?;
        let subscription_id = d.i32()?;
        let accepted_compression_types = d.array(true, 1, Decoder::i8)?;
        let push_interval_ms = d.i32()?;
        let telemetry_max_bytes = d.i32()?;
        let delta_temporality = d.bool()?;
        let requested_metrics = d.array(true, 1, |d| d.string(true))?;
        d.skip_tagged_fields()?;
        Ok(Self {
            throttle_time_ms,
            error_code,
            client_instance_id,
            subscription_id,
            accepted_compression_types,
            push_interval_ms,
            telemetry_max_bytes,
            delta_temporality,
            requested_metrics,
        })
    }
}

impl Encode for GetTelemetrySubscriptionsResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 0)?;
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        e.uuid(self.client_instance_id);
        e.i32(self.subscription_id);
        e.array(true, &self.accepted_compression_types, |e, value| {
            e.i8(*value);
            Ok(())
        })?;
        e.i32(self.push_interval_ms);
        e.i32(self.telemetry_max_bytes);
        e.bool(self.delta_temporality);
        e.array(true, &self.requested_metrics, |e, value| e.string(true, value))?;
        e.no_tagged_fields();
        Ok(())
    }
}
