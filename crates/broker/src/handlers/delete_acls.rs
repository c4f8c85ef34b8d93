//! `DeleteAcls` (key 31), versions 1 to 3: there is no access control, so each filter is refused, as by a Kafka without
//! an authorizer.

use std::sync::Arc;

use riverrun_protocol::delete_acls_response::DeleteAclsFilterResult;
use riverrun_protocol::{DeleteAclsRequest, DeleteAclsResponse, ErrorCode};

use super::operations::NO_AUTHORIZER;
use crate::broker::Broker;
use crate::context::RequestContext;

pub(crate) async fn handle(
    _broker: &Arc<Broker>,
    _context: &RequestContext,
    request: DeleteAclsRequest<'_>,
    _version: i16,
) -> DeleteAclsResponse<'static> {
    let refused = |_| DeleteAclsFilterResult {
        error_code: ErrorCode::SECURITY_DISABLED.0,
        error_message: Some(NO_AUTHORIZER.into()),
        ..Default::default()
    };
    let filter_results = request.filters.iter().map(refused).collect();
    DeleteAclsResponse { filter_results, ..Default::default() }
}
