//! `GetTelemetrySubscriptions` (key 71), version 0 (KIP-714).
//!
//! Declines: the answer says that nobody subscribes to the client's metrics, so the client sends none and asks again after
//! a day. An error would appear as a warning in the logs of some clients.

use std::sync::Arc;

use riverrun_protocol::{GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse};

use crate::broker::Broker;
use crate::context::RequestContext;
use crate::metadata::random_id;

/// Milliseconds until the client asks again.
const PUSH_INTERVAL_MS: i32 = 24 * 60 * 60 * 1000;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    _context: &RequestContext,
    request: GetTelemetrySubscriptionsRequest,
    _version: i16,
) -> GetTelemetrySubscriptionsResponse<'static> {
    // A client without an id gets one, which it shows its user.
    let client_instance_id = match request.client_instance_id {
        id if id.is_zero() => random_id(&*broker.env.random),
        id => id,
    };
    GetTelemetrySubscriptionsResponse {
        client_instance_id,
        push_interval_ms: PUSH_INTERVAL_MS,
        delta_temporality: true,
        ..Default::default()
    }
}
