//! `InitProducerId` (key 22), versions 0 to 5.
//!
//! Gives an idempotent producer an id that nobody had before. A producer that already has one and asks again gets a
//! new one (KIP-360 needs the old only for transactions). Leaves out: transactional ids, refused with
//! `UNSUPPORTED_VERSION`; a client is refused earlier, when it looks for the transaction's coordinator.

use std::sync::Arc;

use riverrun_protocol::{ErrorCode, InitProducerIdRequest, InitProducerIdResponse};
use riverrun_types::ProducerId;

use crate::broker::Broker;
use crate::context::{Operation, RequestContext, Resource};
use crate::error;
use crate::flow::source::Source;

const NONE: i64 = -1;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: InitProducerIdRequest<'_>,
    _version: i16,
) -> InitProducerIdResponse {
    let given = check(&request).and_then(|()| {
        let may = context.authorize(Operation::IdempotentWrite, Resource::Cluster);
        if may { Ok(()) } else { Err(ErrorCode::CLUSTER_AUTHORIZATION_FAILED) }
    });
    let id = match given {
        Ok(()) => allocate(broker, context.source()).await,
        Err(code) => Err(code),
    };
    match id {
        Ok(ProducerId(producer_id)) => {
            InitProducerIdResponse { producer_id, producer_epoch: 0, ..Default::default() }
        }
        Err(code) => InitProducerIdResponse {
            error_code: code.0,
            producer_id: NONE,
            producer_epoch: -1,
            ..Default::default()
        },
    }
}

fn check(request: &InitProducerIdRequest<'_>) -> Result<(), ErrorCode> {
    match request.transactional_id.as_deref() {
        None => {}
        Some("") => return Err(ErrorCode::INVALID_REQUEST),
        Some(_) => return Err(ErrorCode::UNSUPPORTED_VERSION),
    }
    // An id and its epoch come together or not at all.
    let is_whole = (request.producer_id == NONE) == (request.producer_epoch == -1);
    let is_valid = request.producer_id >= NONE && request.producer_epoch >= -1;
    if is_whole && is_valid { Ok(()) } else { Err(ErrorCode::INVALID_REQUEST) }
}

async fn allocate(broker: &Arc<Broker>, source: Source) -> Result<ProducerId, ErrorCode> {
    broker.catalog.producer_id(source).await.map_err(|failed| error::metadata_error(&failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_without_an_epoch_and_a_transactional_id_are_refused() {
        let request = |transactional_id: Option<&'static str>, producer_id, producer_epoch| {
            check(&InitProducerIdRequest {
                transactional_id: transactional_id.map(Into::into),
                producer_id,
                producer_epoch,
                ..Default::default()
            })
        };
        assert_eq!(request(None, -1, -1), Ok(()));
        assert_eq!(request(None, 5, 0), Ok(()));
        for (id, epoch) in [(5, -1), (-1, 0), (-2, -1), (5, -2)] {
            assert_eq!(request(None, id, epoch), Err(ErrorCode::INVALID_REQUEST), "{id} {epoch}");
        }
        assert_eq!(request(Some("t"), -1, -1), Err(ErrorCode::UNSUPPORTED_VERSION));
        assert_eq!(request(Some(""), -1, -1), Err(ErrorCode::INVALID_REQUEST));
    }
}
