// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `GetTelemetrySubscriptions`. Version 0, tagged fields from version 0 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, check_decode, check_encode};
use riverrun_types::TopicId;

/// `GetTelemetrySubscriptionsRequest`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetTelemetrySubscriptionsRequest {
    /// `uuid`.
    pub client_instance_id: TopicId,
}

impl<'a> Decode<'a> for GetTelemetrySubscriptionsRequest {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 0)?;
        let client_instance_id = d.uuid()?;
        d.skip_tagged_fields()?;
        Ok(Self { client_instance_id })
    }
}

impl Encode for GetTelemetrySubscriptionsRequest {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 0)?;
        e.uuid(self.client_instance_id);
        e.no_tagged_fields();
        Ok(())
    }
}

impl Request<'_> for GetTelemetrySubscriptionsRequest {
    const KEY: ApiKey = ApiKey::GetTelemetrySubscriptions;
    type Response<'r> = super::GetTelemetrySubscriptionsResponse<'r>;
}
