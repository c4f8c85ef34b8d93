//! `FindCoordinator` (key 10), versions 0 to 6.
//!
//! This node coordinates every group. The topic of group offsets is made when the first group is asked for. From
//! version 4 on one request asks for many (KIP-699). Leaves out: coordinators of transactions and share groups. A client
//! that asks for one gets a refusal that it treats as final: from version 4 on (Java, franz-go) any code with a message,
//! before (librdkafka) only an authorization error, because others are retried until a time-out.

use std::sync::Arc;

use riverrun_protocol::find_coordinator_response::Coordinator;
use riverrun_protocol::{ErrorCode, FindCoordinatorRequest, FindCoordinatorResponse};

use crate::broker::Broker;
use crate::context::{Operation, RequestContext, Resource};
use crate::error;
use crate::flow::source::Source;

/// First version that asks for many coordinators at once.
const MANY_SINCE: i16 = 4;

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
const SHARE: i8 = 2;

type Refusal = (ErrorCode, String);

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: FindCoordinatorRequest<'_>,
    version: i16,
) -> FindCoordinatorResponse<'static> {
    let ready = match check_type(request.key_type, version) {
        Ok(()) => check_offsets_topic(broker, context.source()).await,
        Err(refusal) => Err(refusal),
    };
    let find = |key: &str| {
        let may = context.authorize(Operation::Describe, Resource::Group(key));
        let denied = || (ErrorCode::GROUP_AUTHORIZATION_FAILED, "Authorization failed.".to_owned());
        let outcome = ready.clone().and_then(|()| if may { Ok(()) } else { Err(denied()) });
        coordinator(broker, context, key, outcome)
    };
    if version >= MANY_SINCE {
        let coordinators = request.coordinator_keys.iter().map(|key| find(key)).collect();
        return FindCoordinatorResponse { coordinators, ..Default::default() };
    }
    let found = find(&request.key);
    FindCoordinatorResponse {
        error_code: found.error_code,
        error_message: found.error_message,
        node_id: found.node_id,
        host: found.host,
        port: found.port,
        ..Default::default()
    }
}

fn check_type(key_type: i8, version: i16) -> Result<(), Refusal> {
    let code = match (key_type, version) {
        (GROUP, _) => return Ok(()),
        (TRANSACTION, ..MANY_SINCE) => ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        (TRANSACTION | SHARE, _) => ErrorCode::UNSUPPORTED_VERSION,
        _ => ErrorCode::INVALID_REQUEST,
    };
    let message = match key_type {
        TRANSACTION => "Transactions are not supported by this server.".to_owned(),
        SHARE => "Share groups are not supported by this server.".to_owned(),
        other => format!("There are no coordinators of type {other}."),
    };
    Err((code, message))
}

async fn check_offsets_topic(broker: &Arc<Broker>, source: Source) -> Result<(), Refusal> {
    let made = broker.catalog.offsets_topic(source).await;
    made.map(|_| ()).map_err(|failed| {
        error::metadata_error(&failed);
        (ErrorCode::COORDINATOR_NOT_AVAILABLE, failed.to_string())
    })
}

fn coordinator(
    broker: &Broker,
    context: &RequestContext,
    key: &str,
    outcome: Result<(), Refusal>,
) -> Coordinator<'static> {
    let key = key.to_owned().into();
    match outcome {
        Ok(()) => {
            let (host, port) = broker.endpoint(context);
            Coordinator { key, node_id: broker.node_id().0, host: host.into(), port, ..Default::default() }
        }
        Err((code, message)) => Coordinator {
            key,
            node_id: -1,
            port: -1,
            error_code: code.0,
            error_message: Some(message.into()),
            ..Default::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_have_a_coordinator() {
        let code = |key_type, version| check_type(key_type, version).map_err(|(code, _)| code);
        for version in 0..=6 {
            assert_eq!(code(GROUP, version), Ok(()));
            assert_eq!(code(3, version), Err(ErrorCode::INVALID_REQUEST));
        }
        assert_eq!(code(TRANSACTION, 2), Err(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED));
        assert_eq!(code(TRANSACTION, 4), Err(ErrorCode::UNSUPPORTED_VERSION));
        assert_eq!(code(SHARE, 6), Err(ErrorCode::UNSUPPORTED_VERSION));
    }
}
