//! How much memory the answer to a request may need, as far as its key and its size tell.
//!
//! Most answers are about as long as their requests. Those of the rest are expected to be long, and their requests wait
//! while clients that do not read hold the memory that there is for answers.

use riverrun_protocol::ApiKey;

use crate::flow::responses::SMALL_BYTES;

/// Bytes expected of an answer about all topics or groups: some ten thousand of them.
const BROAD_BYTES: usize = 1024 * 1024;
/// Bytes of an answer for each of its request, if that is a list of elements as small as they get: a partition is named by
/// four bytes, and answered with an error and its text.
const EXPANSION: usize = 16;

/// Bytes of memory that the answer to a request is expected to need; none if it is small.
pub(crate) fn expected_bytes(api_key: Option<i16>, frame_bytes: usize) -> Option<usize> {
    let key = ApiKey::from_i16(api_key?)?;
    if is_broad(key) {
        return Some(BROAD_BYTES.saturating_add(frame_bytes.saturating_mul(EXPANSION)));
    }
    let is_long = frame_bytes > SMALL_BYTES && !is_as_short_as_wanted(key);
    is_long.then(|| frame_bytes.saturating_mul(EXPANSION))
}

/// Requests whose answers may be long whatever their own length.
fn is_broad(key: ApiKey) -> bool {
    matches!(
        key,
        ApiKey::Metadata
            | ApiKey::OffsetFetch
            | ApiKey::ListGroups
            | ApiKey::DescribeGroups
            | ApiKey::ConsumerGroupDescribe
            | ApiKey::DescribeConfigs
            | ApiKey::DescribeLogDirs
            | ApiKey::DescribeProducers
            | ApiKey::DescribeTopicPartitions
    )
}

/// Requests that are long because of what they carry: a fetch takes what there is room for, and the others are answered
/// with little.
fn is_as_short_as_wanted(key: ApiKey) -> bool {
    matches!(key, ApiKey::Produce | ApiKey::Fetch | ApiKey::JoinGroup | ApiKey::SyncGroup)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_asks_for_much_is_expected_to_get_much() {
        for (key, frame_bytes, expected) in [
            (ApiKey::Produce, 1_000_000, None),
            (ApiKey::Fetch, 1_000_000, None),
            (ApiKey::OffsetCommit, 1_000, None),
            (ApiKey::OffsetCommit, 100_000, Some(1_600_000)),
            (ApiKey::ElectLeaders, 4_000_000, Some(64_000_000)),
            (ApiKey::Metadata, 0, Some(BROAD_BYTES)),
        ] {
            assert_eq!(expected_bytes(Some(key as i16), frame_bytes), expected, "{key:?}");
        }
        assert_eq!(expected_bytes(Some(999), 1_000_000), None, "it closes its connection");
    }
}
