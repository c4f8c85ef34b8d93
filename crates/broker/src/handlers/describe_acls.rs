//! `DescribeAcls` (key 29), versions 1 to 3: the access control list. There is none, which is answered as by a Kafka
//! without an authorizer.

use std::sync::Arc;

use riverrun_protocol::{DescribeAclsRequest, DescribeAclsResponse, ErrorCode};

use super::operations::NO_AUTHORIZER;
use crate::broker::Broker;
use crate::context::RequestContext;

pub(crate) async fn handle(
    _broker: &Arc<Broker>,
    _context: &RequestContext,
    _request: DescribeAclsRequest<'_>,
    _version: i16,
) -> DescribeAclsResponse<'static> {
    DescribeAclsResponse {
        error_code: ErrorCode::SECURITY_DISABLED.0,
        error_message: Some(NO_AUTHORIZER.into()),
        ..Default::default()
    }
}
