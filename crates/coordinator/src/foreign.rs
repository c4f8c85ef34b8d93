//! Records of groups from another writer than a coordinator, such as a tool that imports offsets.
//!
//! Owns the checks of these records before they are in the log, where a replay accepts every record: that they
//! decode, and that their values keep to the bounds of the corresponding request.

use riverrun_protocol::offsets_topic::Key;
use thiserror::Error;

use crate::error::ReplayError;
use crate::offsets::CommittedOffset;
use crate::records;
use crate::shard::{GROUP_ID_BYTES_MAX, Shard};
use crate::{GroupConfig, GroupMemory};

/// Why a record is refused.
#[derive(Debug, Error)]
pub enum ForeignError {
    /// It is not a record of a group, or has an unknown version.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The group's id is longer than any group's.
    #[error("a group's id of {0} bytes is longer than the {GROUP_ID_BYTES_MAX} that are allowed")]
    GroupId(usize),
    /// No topic has such a partition.
    #[error("{0} is no partition of a topic")]
    Partition(i32),
    /// No log has such an offset.
    #[error("{0} is no offset")]
    Offset(i64),
    /// The metadata of the commit is too long.
    #[error("{bytes} bytes of metadata with an offset are more than offset.metadata.max.bytes, {bytes_max}")]
    Metadata {
        /// Its length.
        bytes: usize,
        /// Its upper bound.
        bytes_max: usize,
    },
}

/// Checks a record by itself and returns its group, whose place in the topic the caller checks. A record without a
/// value is a tombstone.
pub fn check_record(config: &GroupConfig, key: &[u8], value: Option<&[u8]>) -> Result<String, ForeignError> {
    let decoded = Key::decode(key).map_err(ReplayError::Key)?;
    let group = group_of(&decoded);
    if group.len() > GROUP_ID_BYTES_MAX {
        return Err(ForeignError::GroupId(group.len()));
    }
    if let Some((partition, offset)) = offset_of(&decoded, value)? {
        check_offset(config, partition, offset.as_ref())?;
    }
    Shard::new(GroupConfig::default(), GroupMemory::new(usize::MAX)).replay(key, value)?;
    Ok(group.to_owned())
}

fn group_of<'k>(key: &'k Key<'_>) -> &'k str {
    match key {
        Key::LegacyOffsetCommit(key) => &key.group,
        Key::OffsetCommit(key) => &key.group,
        Key::GroupMetadata(key) => &key.group,
        Key::ConsumerGroupMetadata(key) => &key.group_id,
        Key::ConsumerGroupPartitionMetadata(key) => &key.group_id,
        Key::ConsumerGroupMemberMetadata(key) => &key.group_id,
        Key::ConsumerGroupTargetAssignmentMetadata(key) => &key.group_id,
        Key::ConsumerGroupTargetAssignmentMember(key) => &key.group_id,
        Key::ConsumerGroupCurrentMemberAssignment(key) => &key.group_id,
        Key::ConsumerGroupRegularExpression(key) => &key.group_id,
    }
}

/// The partition and the offset of a record that commits one.
fn offset_of(
    key: &Key<'_>,
    value: Option<&[u8]>,
) -> Result<Option<(i32, Option<CommittedOffset>)>, ReplayError> {
    Ok(match key {
        Key::LegacyOffsetCommit(key) => {
            Some((key.partition, value.map(records::read_legacy_offset).transpose()?))
        }
        Key::OffsetCommit(key) => Some((key.partition, value.map(records::read_offset).transpose()?)),
        _ => None,
    })
}

fn check_offset(
    config: &GroupConfig,
    partition: i32,
    offset: Option<&CommittedOffset>,
) -> Result<(), ForeignError> {
    if partition < 0 {
        return Err(ForeignError::Partition(partition));
    }
    let Some(offset) = offset else { return Ok(()) };
    if offset.offset.0 < 0 {
        return Err(ForeignError::Offset(offset.offset.0));
    }
    let (bytes, bytes_max) = (offset.metadata.len(), config.offset_metadata_max_bytes);
    if bytes > bytes_max {
        return Err(ForeignError::Metadata { bytes, bytes_max });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use riverrun_protocol::offsets_topic::{
        GroupMetadataKey, LegacyOffsetCommitKey, OffsetCommitKey, OffsetCommitValue, encode_key, encode_value,
    };

    use super::*;

    fn check(group: &str, partition: i32, offset: i64, metadata: &str) -> Result<String, ForeignError> {
        let key = OffsetCommitKey { group: group.into(), topic: "t".into(), partition };
        let value = OffsetCommitValue { offset, metadata: metadata.into(), ..Default::default() };
        let (key, value) = (encode_key(&key).expect("short"), encode_value(&value, 3).expect("short"));
        check_record(&GroupConfig::default(), &key, Some(&value))
    }

    #[test]
    fn a_commit_keeps_to_the_bounds_of_the_request() {
        let (longest, metadata) = ("g".repeat(GROUP_ID_BYTES_MAX), "m".repeat(4_096));
        assert_eq!(check(&longest, 0, 0, &metadata).expect("within all bounds"), longest);
        assert!(matches!(check("g", 0, -5, ""), Err(ForeignError::Offset(-5))));
        assert!(matches!(check("g", -1, 0, ""), Err(ForeignError::Partition(-1))));
        let refused = check("g", 0, 0, &"m".repeat(4_097));
        assert!(matches!(refused, Err(ForeignError::Metadata { bytes: 4_097, bytes_max: 4_096 })));
        assert!(matches!(check(&"g".repeat(5_000), 0, 0, ""), Err(ForeignError::GroupId(5_000))));
    }

    #[test]
    fn a_commit_in_the_oldest_layout_keeps_to_them_as_well() {
        let key = LegacyOffsetCommitKey { group: "g".into(), topic: "t".into(), partition: 0 };
        let key = encode_key(&key).expect("short");
        let value =
            |offset: i64| [&[0, 0][..], &offset.to_be_bytes(), &[0, 0], &7_i64.to_be_bytes()].concat();
        let check = |offset| check_record(&GroupConfig::default(), &key, Some(&value(offset)));
        assert_eq!(check(5).expect("an offset"), "g");
        assert!(matches!(check(-5), Err(ForeignError::Offset(-5))));
    }

    #[test]
    fn a_tombstone_of_any_group_names_the_group() {
        let key = encode_key(&GroupMetadataKey { group: "g".into() }).expect("short");
        assert_eq!(check_record(&GroupConfig::default(), &key, None).expect("a tombstone"), "g");
        let long = encode_key(&GroupMetadataKey { group: "g".repeat(5_000).into() }).expect("short");
        let refused = check_record(&GroupConfig::default(), &long, None);
        assert!(matches!(refused, Err(ForeignError::GroupId(5_000))));
    }
}
