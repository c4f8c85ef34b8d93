//! Bytes to message and back are the same bytes, in every version of every message.

use proptest::prelude::*;
use riverrun_protocol::ApiKey;
use riverrun_protocol::catalog::{self, RecodeError};
use riverrun_protocol::{DecodeError, EncodeError};

use crate::schema::Role;
use crate::{CASES, for_each_sample};

proptest! {
    #[test]
    fn every_message_comes_back_as_it_was_in_every_version(seed in any::<u64>()) {
        for_each_sample(seed, |case, version, bytes| {
            let name = case.codec.name;
            match case.codec.recode(bytes, version) {
                Ok(again) => assert_eq!(again[..], bytes[..], "{name} version {version}"),
                Err(error) => panic!("{name} version {version}: {error}\n{bytes:02x?}"),
            }
        });
    }
}

#[test]
fn the_catalog_and_the_schema_list_the_same_messages() {
    assert_eq!(catalog::messages().len(), CASES.len());
    for case in CASES.iter() {
        let versions = case.message.root().versions;
        assert_eq!(case.codec.versions(), versions.min..=versions.max, "{}", case.codec.name);
    }
}

#[test]
fn headers_become_flexible_with_the_messages_behind_them() {
    for case in CASES.iter() {
        let (api, is_request) = match &case.message.role {
            Role::Request { api } => (api, true),
            Role::Response { api } => (api, false),
            _ => continue,
        };
        let key = ApiKey::ALL.iter().find(|key| key.name() == api).unwrap();
        for version in case.codec.versions() {
            let flexible = case.message.is_flexible(version);
            if is_request {
                assert_eq!(key.request_header_version(version), if flexible { 2 } else { 1 }, "{api}");
            } else if *key != ApiKey::ApiVersions {
                assert_eq!(key.response_header_version(version), i16::from(flexible), "{api}");
            }
        }
    }
}

#[test]
fn versions_outside_the_range_are_refused_in_both_directions() {
    for codec in catalog::messages() {
        let (first, last) = (*codec.versions().start(), *codec.versions().end());
        for version in [first - 1, last + 1, i16::MIN, i16::MAX] {
            let refused = RecodeError::Decode(DecodeError::UnsupportedVersion(version));
            assert_eq!(codec.recode(&[], version), Err(refused), "{}", codec.name);
        }
    }
    let result = riverrun_protocol::encode_request(&riverrun_protocol::FetchRequest::default(), 3, 0, None);
    assert_eq!(result.err(), Some(EncodeError::UnsupportedVersion(3)));
}
