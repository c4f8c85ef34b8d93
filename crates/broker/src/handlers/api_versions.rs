//! `ApiVersions` (key 18), versions 0 to 4.
//!
//! Advertises every request that this server answers, in the versions of Kafka 4.3. The response's header is
//! always version 0, and a version that we do not know is answered with error 35 in the body of version 0, so
//! that a newer client learns which one to use (KIP-511). Leaves out: features, of which there are none.

use std::sync::Arc;

use riverrun_protocol::api_versions_response::ApiVersion;
use riverrun_protocol::{ApiKey, ApiVersionsRequest, ApiVersionsResponse, ErrorCode};

use crate::broker::Broker;
use crate::context::RequestContext;
use crate::handlers::router;

/// First version in which a client names its software.
const SOFTWARE_NAME_SINCE: i16 = 3;

pub(crate) async fn handle(
    _broker: &Arc<Broker>,
    _context: &RequestContext,
    request: ApiVersionsRequest<'_>,
    version: i16,
) -> ApiVersionsResponse<'static> {
    let named = [&request.client_software_name, &request.client_software_version];
    if version >= SOFTWARE_NAME_SINCE && !named.into_iter().all(|name| is_software_name(name)) {
        return ApiVersionsResponse { error_code: ErrorCode::INVALID_REQUEST.0, ..Default::default() };
    }
    let api_keys = router::served_keys().map(range).collect();
    ApiVersionsResponse { api_keys, ..Default::default() }
}

/// The answer to a version that is not known here, to be encoded in version 0.
pub(crate) fn unsupported() -> ApiVersionsResponse<'static> {
    ApiVersionsResponse {
        error_code: ErrorCode::UNSUPPORTED_VERSION.0,
        api_keys: vec![range(ApiKey::ApiVersions)],
        ..Default::default()
    }
}

fn range(key: ApiKey) -> ApiVersion {
    let versions = key.versions();
    ApiVersion { api_key: key as i16, min_version: *versions.start(), max_version: *versions.end() }
}

/// Letters, digits, `-` and `.`, the first and last a letter or digit (KIP-511).
fn is_software_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    ends.iter().all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_names_are_checked_as_the_kip_says() {
        for good in ["apache-kafka-java", "librdkafka", "4.3.1", "a"] {
            assert!(is_software_name(good), "{good:?}");
        }
        for bad in ["", "-a", "a-", "a b", "é", "a\n"] {
            assert!(!is_software_name(bad), "{bad:?}");
        }
    }
}
