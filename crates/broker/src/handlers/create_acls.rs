//! `CreateAcls` (key 30), versions 1 to 3: there is no access control, so each is refused, as by a Kafka without an
//! authorizer.

use std::sync::Arc;

use riverrun_protocol::create_acls_response::AclCreationResult;
use riverrun_protocol::{CreateAclsRequest, CreateAclsResponse, ErrorCode};

use super::operations::NO_AUTHORIZER;
use crate::broker::Broker;
use crate::context::RequestContext;

pub(crate) async fn handle(
    _broker: &Arc<Broker>,
    _context: &RequestContext,
    request: CreateAclsRequest<'_>,
    _version: i16,
) -> CreateAclsResponse<'static> {
    let refused = |_| AclCreationResult {
        error_code: ErrorCode::SECURITY_DISABLED.0,
        error_message: Some(NO_AUTHORIZER.into()),
    };
    let results = request.creations.iter().map(refused).collect();
    CreateAclsResponse { results, ..Default::default() }
}
