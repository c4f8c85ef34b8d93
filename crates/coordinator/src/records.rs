//! The records of `__consumer_offsets` that this crate writes and reads, byte for byte as Kafka's.
//!
//! Owns the choice of versions: each value is written in the oldest version that has its fields, so that the tools of
//! older releases read it too. An offset has its topic's id, which Kafka adds only where the client sent one: without
//! it, it could not be distinguished from one of an earlier topic of the same name. The layouts themselves are in
//! `riverrun_protocol::offsets_topic`.

use riverrun_protocol::offsets_topic::{
    self, GroupMetadataKey, GroupMetadataValue, LegacyOffsetCommitValue, OffsetCommitKey, OffsetCommitValue,
    RecordKey,
};
use riverrun_protocol::{Decode, DecodeError, Encode};
use riverrun_types::{LeaderEpoch, Offset, TimestampMs, TopicId};

use crate::error::ReplayError;
use crate::offsets::CommittedOffset;
use crate::step::OffsetsRecord;
use crate::time::Stamp;

/// The one version of an offset's value that has an expiry of its own.
const OFFSET_WITH_EXPIRY_VERSION: i16 = 1;
/// Version of an offset's value that names no topic id.
const OFFSET_VERSION: i16 = 3;
/// Version of an offset's value that names the topic id.
const OFFSET_WITH_TOPIC_ID_VERSION: i16 = 4;
/// Version of a classic group's value.
const GROUP_METADATA_VERSION: i16 = 3;

/// A record that sets a value. Its fields were built here or came over the wire, whose strings are bounded, so that
/// every name fits its 16-bit length.
pub(crate) fn put<K: RecordKey, V: Encode>(key: &K, value: &V, version: i16) -> OffsetsRecord {
    let key = offsets_topic::encode_key(key).expect("a key of ours fits its format");
    let value = offsets_topic::encode_value(value, version).expect("a value of ours fits its format");
    OffsetsRecord { key, value: Some(value) }
}

/// A record that deletes a key.
pub(crate) fn tombstone<K: RecordKey>(key: &K) -> OffsetsRecord {
    OffsetsRecord { key: offsets_topic::encode_key(key).expect("a key of ours fits its format"), value: None }
}

/// Reads the value of a record; `record` names it in the error.
pub(crate) fn read<'a, V: Decode<'a>>(record: &'static str, value: &'a [u8]) -> Result<V, ReplayError> {
    offsets_topic::decode_value(value).map_err(|source| match source {
        DecodeError::UnsupportedVersion(version) => ReplayError::NewerVersion { record, version },
        source => ReplayError::Value { record, source },
    })
}

/// The key of one committed offset.
fn offset_key<'a>(group: &'a str, topic: &'a str, partition: i32) -> OffsetCommitKey<'a> {
    OffsetCommitKey { group: group.into(), topic: topic.into(), partition }
}

/// The record of one committed offset.
pub(crate) fn offset_commit(
    group: &str,
    topic: &str,
    partition: i32,
    offset: &CommittedOffset,
) -> OffsetsRecord {
    let version = match (offset.expires_at, offset.topic_id) {
        (Some(_), _) => OFFSET_WITH_EXPIRY_VERSION,
        (None, TopicId::ZERO) => OFFSET_VERSION,
        (None, _) => OFFSET_WITH_TOPIC_ID_VERSION,
    };
    let value = OffsetCommitValue {
        offset: offset.offset.0,
        leader_epoch: offset.leader_epoch.0,
        metadata: (&*offset.metadata).into(),
        commit_timestamp: offset.committed_at.wall.0,
        expire_timestamp: offset.expires_at.unwrap_or(TimestampMs::NONE).0,
        topic_id: offset.topic_id,
    };
    put(&offset_key(group, topic, partition), &value, version)
}

/// The record that deletes one committed offset.
pub(crate) fn offset_tombstone(group: &str, topic: &str, partition: i32) -> OffsetsRecord {
    tombstone(&offset_key(group, topic, partition))
}

/// The committed offset in a record's value.
pub(crate) fn read_offset(value: &[u8]) -> Result<CommittedOffset, ReplayError> {
    let value: OffsetCommitValue<'_> = read("OffsetCommit", value)?;
    Ok(CommittedOffset {
        offset: Offset(value.offset),
        leader_epoch: LeaderEpoch(value.leader_epoch),
        metadata: (&*value.metadata).into(),
        committed_at: Stamp::recorded(TimestampMs(value.commit_timestamp)),
        expires_at: (value.expire_timestamp >= 0).then_some(TimestampMs(value.expire_timestamp)),
        topic_id: value.topic_id,
    })
}

/// The committed offset in the value of a record of the oldest type.
pub(crate) fn read_legacy_offset(value: &[u8]) -> Result<CommittedOffset, ReplayError> {
    let value: LegacyOffsetCommitValue<'_> = read("LegacyOffsetCommit", value)?;
    Ok(CommittedOffset {
        offset: Offset(value.offset),
        leader_epoch: LeaderEpoch::UNKNOWN,
        metadata: (&*value.metadata).into(),
        committed_at: Stamp::recorded(TimestampMs(value.commit_timestamp)),
        expires_at: None,
        topic_id: TopicId::ZERO,
    })
}

/// The record of a classic group.
pub(crate) fn group_metadata(group_id: &str, value: &GroupMetadataValue<'_>) -> OffsetsRecord {
    put(&GroupMetadataKey { group: group_id.into() }, value, GROUP_METADATA_VERSION)
}

/// The record that deletes a classic group.
pub(crate) fn group_metadata_tombstone(group_id: &str) -> OffsetsRecord {
    tombstone(&GroupMetadataKey { group: group_id.into() })
}

#[cfg(test)]
mod tests {
    use riverrun_protocol::offsets_topic::group_metadata_value::MemberMetadata;

    use super::*;

    fn committed(expires_at: Option<i64>, topic_id: TopicId) -> CommittedOffset {
        CommittedOffset {
            offset: Offset(42),
            leader_epoch: LeaderEpoch(if expires_at.is_some() { -1 } else { 5 }),
            metadata: "note".into(),
            committed_at: Stamp::recorded(TimestampMs(1_000)),
            expires_at: expires_at.map(TimestampMs),
            topic_id,
        }
    }

    #[test]
    fn offset_is_written_in_the_oldest_sufficient_version() {
        let id = TopicId([7; 16]);
        let cases = [
            (committed(None, TopicId::ZERO), 3),
            (committed(Some(9), TopicId::ZERO), 1),
            (committed(None, id), 4),
        ];
        for (offset, version) in cases {
            let value = offset_commit("g", "t", 1, &offset).value.unwrap();
            assert_eq!(value[..2], i16::to_be_bytes(version), "{offset:?}");
            assert_eq!(read_offset(&value).unwrap(), offset);
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    }

    /// The bytes are those that Kafka 4.3.1's own classes write for the same fields.
    #[test]
    fn records_have_the_bytes_that_kafka_writes() {
        let value = |offset| hex(&offset_commit("g", "t", 1, &offset).value.unwrap());
        let plain = committed(None, TopicId::ZERO);
        assert_eq!(hex(&offset_commit("g", "t", 1, &plain).key), "000100016700017400000001");
        assert_eq!(value(plain), "0003000000000000002a0000000500046e6f746500000000000003e8");
        let with_expiry = "0001000000000000002a00046e6f746500000000000003e80000000000000009";
        assert_eq!(value(committed(Some(9), TopicId::ZERO)), with_expiry);
        let with_topic_id =
            "0004000000000000002a00000005056e6f746500000000000003e801001007070707070707070707070707070707";
        assert_eq!(value(committed(None, TopicId([7; 16]))), with_topic_id);
        let group = group_metadata("g", &a_group());
        assert_eq!(hex(&group.key), "0002000167");
        let expected = "00030008636f6e73756d657200000003000572616e676500016d00000000000003e8\
                        0000000100016d00016900016300022f6800000005000000060000000201020000000103";
        assert_eq!(hex(&group.value.unwrap()), expected);
        assert_eq!(offset_tombstone("g", "t", 1).value, None);
        assert_eq!(group_metadata_tombstone("g"), OffsetsRecord { key: group.key, value: None });
    }

    fn a_group() -> GroupMetadataValue<'static> {
        GroupMetadataValue {
            protocol_type: "consumer".into(),
            generation: 3,
            protocol: Some("range".into()),
            leader: Some("m".into()),
            current_state_timestamp: 1_000,
            members: vec![MemberMetadata {
                member_id: "m".into(),
                group_instance_id: Some("i".into()),
                client_id: "c".into(),
                client_host: "/h".into(),
                rebalance_timeout: 5,
                session_timeout: 6,
                subscription: vec![1, 2].into(),
                assignment: vec![3].into(),
            }],
        }
    }

    #[test]
    fn a_value_of_a_newer_version_is_refused_by_name() {
        let error = read_offset(&[0, 9, 0]).unwrap_err();
        assert!(matches!(error, ReplayError::NewerVersion { record: "OffsetCommit", version: 9 }), "{error}");
    }

    #[test]
    fn a_cut_value_is_refused() {
        let mut value = offset_commit("g", "t", 1, &committed(None, TopicId::ZERO)).value.unwrap();
        while value.pop().is_some() {
            assert!(read_offset(&value).is_err(), "{} bytes", value.len());
        }
    }
}
