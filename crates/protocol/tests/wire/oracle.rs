//! The same bytes through an independent implementation, the crate `kafka-protocol`.
//!
//! It was generated from an earlier release of Kafka, so only the versions that it knows are compared.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{self as theirs, RequestKind, ResponseKind};
use kafka_protocol::protocol::{Decodable, Encodable};
use proptest::prelude::*;
use riverrun_protocol::{Decoder, Encoder, RequestHeader};

use crate::schema::Role;
use crate::{Case, for_each_sample};

/// Messages and versions that both implementations know. Guards against a comparison of nothing.
const COMPARED_MIN: usize = 360;

/// The bytes after the oracle has decoded and encoded them, `None` where it does not know the version.
fn recode(case: &Case, version: i16, bytes: &[u8]) -> Option<BytesMut> {
    let mut input = Bytes::copy_from_slice(bytes);
    let mut output = BytesMut::new();
    match &case.message.role {
        Role::Request { api } => {
            let key = known_key(api, version)?;
            let request = known_version(RequestKind::decode(key, &mut input, version))?;
            request.encode(&mut output, version).unwrap();
        }
        Role::Response { api } => {
            let key = known_key(api, version)?;
            let response = known_version(ResponseKind::decode(key, &mut input, version))?;
            response.encode(&mut output, version).unwrap();
        }
        _ if case.codec.name == "ConsumerProtocolSubscription" => {
            let message = theirs::ConsumerProtocolSubscription::decode(&mut input, version).unwrap();
            message.encode(&mut output, version).unwrap();
        }
        _ if case.codec.name == "ConsumerProtocolAssignment" => {
            let message = theirs::ConsumerProtocolAssignment::decode(&mut input, version).unwrap();
            message.encode(&mut output, version).unwrap();
        }
        _ => return None,
    }
    assert!(input.is_empty(), "{} version {version}: the oracle left bytes", case.codec.name);
    Some(output)
}

fn known_key(api: &str, version: i16) -> Option<theirs::ApiKey> {
    let key = riverrun_protocol::ApiKey::ALL.iter().find(|key| key.name() == api)?;
    let key = theirs::ApiKey::try_from(*key as i16).ok()?;
    let versions = key.valid_versions();
    (versions.min..=versions.max).contains(&version).then_some(key)
}

/// The message, unless the oracle lacks the version: its keys claim a few that its messages do not have.
fn known_version<T>(result: anyhow::Result<T>) -> Option<T> {
    match result {
        Err(error) if error.root_cause().to_string().contains("version not supported") => None,
        result => Some(result.unwrap()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn an_independent_codec_reads_and_writes_the_same_bytes(seed in any::<u64>()) {
        let mut compared = 0;
        for_each_sample(seed, |case, version, bytes| {
            if let Some(again) = recode(case, version, bytes) {
                compared += 1;
                assert_eq!(again[..], bytes[..], "{} version {version}", case.codec.name);
            }
        });
        prop_assert!(compared >= COMPARED_MIN, "only {compared} were compared");
    }

    #[test]
    fn an_independent_codec_writes_request_headers_that_we_read(
        version in 0_i16..=13, correlation_id in any::<i32>(), client_id in any::<Option<String>>(),
    ) {
        let header = theirs::RequestHeader::default()
            .with_request_api_key(3)
            .with_request_api_version(version)
            .with_correlation_id(correlation_id)
            .with_client_id(client_id.clone().map(Into::into));
        let mut bytes = BytesMut::new();
        header.encode(&mut bytes, if version >= 9 { 2 } else { 1 }).unwrap();

        let mut decoder = Decoder::new(&bytes);
        let ours = RequestHeader::decode(&mut decoder).unwrap();
        decoder.finish().unwrap();
        prop_assert_eq!((ours.api_key, ours.api_version), (3, version));
        prop_assert_eq!((ours.correlation_id, ours.client_id), (correlation_id, client_id.as_deref()));
        let mut encoder = Encoder::new();
        ours.encode(&mut encoder).unwrap();
        prop_assert_eq!(encoder.into_parts().0, bytes);
    }
}
