//! The requests that Riverrun speaks: their keys, versions and headers.
//!
//! The enum and its table are generated from the schema; this file answers questions about them. A server closes a
//! connection that sends a key which is not here.

use std::fmt;
use std::ops::RangeInclusive;

pub use crate::generated::api_key::ApiKey;

/// The schema's facts about one key.
pub(crate) struct ApiFacts {
    pub(crate) name: &'static str,
    /// First and last version that a broker advertises.
    pub(crate) advertised: (i16, i16),
    /// First and last version that the codec reads and writes.
    pub(crate) codec: (i16, i16),
    /// First version of the request with tagged fields, `i16::MAX` where there is none yet.
    pub(crate) flexible_request: i16,
    /// As `flexible_request`, for the response.
    pub(crate) flexible_response: i16,
}

impl ApiKey {
    /// The key with this number on the wire.
    pub fn from_i16(key: i16) -> Option<Self> {
        let index = Self::ALL.binary_search_by_key(&key, |candidate| *candidate as i16).ok()?;
        Some(Self::ALL[index])
    }

    /// Kafka's name for the request.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// The versions that a Kafka 4.3 broker advertises. They are the codec's, with two exceptions: Produce is
    /// advertised from 0, which librdkafka wants to see, and refused below 3; a version that Kafka still calls
    /// unstable is not advertised.
    pub fn versions(self) -> RangeInclusive<i16> {
        let (min, max) = self.facts().advertised;
        min..=max
    }

    /// The versions that can be read and written.
    pub fn codec_versions(self) -> RangeInclusive<i16> {
        let (min, max) = self.facts().codec;
        min..=max
    }

    /// Version of the header in front of a request: 2 has tagged fields, 1 has none.
    pub fn request_header_version(self, version: i16) -> i16 {
        if version >= self.facts().flexible_request { 2 } else { 1 }
    }

    /// Version of the header in front of a response: 1 has tagged fields, 0 has none. `ApiVersions` always
    /// answers with 0, since a client that asks for versions cannot know yet which header the server writes.
    pub fn response_header_version(self, version: i16) -> i16 {
        match self {
            Self::ApiVersions => 0,
            _ if version >= self.facts().flexible_response => 1,
            _ => 0,
        }
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_by_number_and_only_those() {
        for key in ApiKey::ALL {
            assert_eq!(ApiKey::from_i16(*key as i16), Some(*key));
        }
        for unknown in [-1, 4, 5, 6, 7, 17, i16::MIN, i16::MAX] {
            assert_eq!(ApiKey::from_i16(unknown), None);
        }
    }

    #[test]
    fn produce_is_advertised_from_zero_with_codec_from_three() {
        assert_eq!(ApiKey::Produce.versions(), 0..=13);
        assert_eq!(ApiKey::Produce.codec_versions(), 3..=13);
    }

    #[test]
    fn an_unstable_version_is_not_advertised() {
        assert_eq!(ApiKey::InitProducerId.versions(), 0..=5);
        assert_eq!(ApiKey::InitProducerId.codec_versions(), 0..=6);
    }

    #[test]
    fn api_versions_response_always_has_the_old_header() {
        assert_eq!(ApiKey::ApiVersions.request_header_version(3), 2);
        assert_eq!(ApiKey::ApiVersions.response_header_version(3), 0);
        assert_eq!(ApiKey::ApiVersions.response_header_version(i16::MAX), 0);
        assert_eq!(ApiKey::Metadata.response_header_version(8), 0);
        assert_eq!(ApiKey::Metadata.response_header_version(9), 1);
        assert_eq!(ApiKey::OffsetDelete.request_header_version(0), 1);
    }
}
