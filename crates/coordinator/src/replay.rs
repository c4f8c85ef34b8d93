//! Replay: the records of a partition, in their order, become the groups again.
//!
//! Owns the effect of each record on the shard. A record that does not decode leaves the shard unchanged; records of
//! foreign types, such as those of share groups, are passed over. The bounds on the numbers of groups and of offsets
//! hold here, too, whichever program has written the log: records beyond them are left out. The bound on memory does
//! not hold: it may have become smaller since the records were acked, and memory is only counted here.

use riverrun_protocol::DecodeError;
use riverrun_protocol::offsets_topic::{GroupMetadataValue, Key};

use crate::classic::ClassicGroup;
use crate::error::ReplayError;
use crate::group::{Group, GroupEntry};
use crate::offsets::CommittedOffset;
use crate::records;
use crate::shard::Shard;

impl Shard {
    /// Applies one record of the log; a record without a value is a tombstone. A record that adds nothing always
    /// finds room.
    pub fn replay(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), ReplayError> {
        let key = match Key::decode(key) {
            Ok(key) => key,
            Err(DecodeError::UnknownRecordType(_)) => return Ok(()),
            Err(error) => return Err(ReplayError::Key(error)),
        };
        match key {
            Key::OffsetCommit(key) => {
                let offset = value.map(records::read_offset).transpose()?;
                self.replay_offset(&key.group, &key.topic, key.partition, offset)?;
            }
            Key::LegacyOffsetCommit(key) => {
                let offset = value.map(records::read_legacy_offset).transpose()?;
                self.replay_offset(&key.group, &key.topic, key.partition, offset)?;
            }
            Key::GroupMetadata(key) => {
                let value = value.map(|value| records::read("GroupMetadata", value)).transpose()?;
                self.replay_group(&key.group, value.as_ref())?;
            }
            key => self.replay_consumer(&key, value)?,
        }
        Ok(())
    }

    /// Sets or deletes an offset.
    fn replay_offset(
        &mut self,
        group_id: &str,
        topic: &str,
        partition: i32,
        offset: Option<CommittedOffset>,
    ) -> Result<(), ReplayError> {
        let offsets_max = self.config.group_offsets_max;
        match offset {
            Some(offset) => {
                let offsets = &mut self.entry(group_id)?.offsets;
                if !offsets.contains(topic, partition) && offsets.len() >= offsets_max {
                    return Err(ReplayError::NoRoom);
                }
                offsets.insert(topic, partition, offset);
                self.charge(group_id);
            }
            None => {
                if let Some(entry) = self.groups.get_mut(group_id) {
                    entry.offsets.remove(topic, partition);
                    self.finish_replayed(group_id);
                }
            }
        }
        Ok(())
    }

    /// Sets or deletes a classic group. A tombstone of a group that has become another kind has no effect.
    fn replay_group(
        &mut self,
        group_id: &str,
        value: Option<&GroupMetadataValue<'_>>,
    ) -> Result<(), ReplayError> {
        if let Some(value) = value {
            let group = ClassicGroup::from_record(group_id.into(), value);
            self.entry(group_id)?.group = Group::Classic(Box::new(group));
            self.charge(group_id);
        } else if let Some(entry) = self.groups.get_mut(group_id)
            && matches!(entry.group, Group::Classic(_))
        {
            entry.group = Group::Simple;
            self.finish_replayed(group_id);
        }
        Ok(())
    }

    /// The group of this id; made without members if it does not exist.
    pub(crate) fn entry(&mut self, group_id: &str) -> Result<&mut GroupEntry, ReplayError> {
        if !self.groups.contains_key(group_id) {
            if self.groups.len() >= self.config.groups_max {
                return Err(ReplayError::NoRoom);
            }
            self.groups.insert(group_id.into(), GroupEntry::new(Group::Simple));
        }
        self.groups.get_mut(group_id).ok_or(ReplayError::NoRoom)
    }

    /// Updates the group's charge, or removes a group without members and offsets.
    pub(crate) fn finish_replayed(&mut self, group_id: &str) {
        let is_bare = |entry: &GroupEntry| matches!(entry.group, Group::Simple) && entry.offsets.is_empty();
        if self.groups.get(group_id).is_some_and(is_bare) {
            self.forget(group_id);
        } else {
            self.charge(group_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use riverrun_protocol::offsets_topic::{ConsumerGroupMetadataKey, ConsumerGroupMetadataValue};
    use riverrun_types::{LeaderEpoch, Offset, TimestampMs, TopicId};

    use super::*;
    use crate::step::OffsetsRecord;
    use crate::time::Stamp;
    use crate::{GroupConfig, GroupMemory};

    fn commit(group: &str, partition: i32, offset: i64) -> OffsetsRecord {
        let committed = CommittedOffset {
            offset: Offset(offset),
            leader_epoch: LeaderEpoch::UNKNOWN,
            metadata: "".into(),
            committed_at: Stamp::recorded(TimestampMs(1)),
            expires_at: None,
            topic_id: TopicId::ZERO,
        };
        records::offset_commit(group, "t", partition, &committed)
    }

    fn replay(shard: &mut Shard, record: &OffsetsRecord) -> Result<(), ReplayError> {
        shard.replay(&record.key, record.value.as_deref())
    }

    /// The record of a group of each protocol, without members.
    fn groups() -> [OffsetsRecord; 2] {
        let classic = GroupMetadataValue { protocol_type: "consumer".into(), ..Default::default() };
        let key = ConsumerGroupMetadataKey { group_id: "new-consumer".into() };
        let consumer = ConsumerGroupMetadataValue { epoch: 1, ..Default::default() };
        [records::group_metadata("new-classic", &classic), records::put(&key, &consumer, 0)]
    }

    #[test]
    fn a_load_takes_all_of_the_log_whatever_the_memory_is() {
        let memory = GroupMemory::new(100_000);
        let mut shard = Shard::new(GroupConfig::default(), Arc::clone(&memory));
        for number in 0..10_000 {
            replay(&mut shard, &commit(&format!("g{}", number % 500), number, 1)).unwrap();
        }
        for record in groups() {
            replay(&mut shard, &record).unwrap();
        }
        assert_eq!((shard.committed_offsets().count(), shard.group_count()), (10_000, 502));
        assert!(memory.held_bytes() > 1_000_000, "it is counted: {}", memory.held_bytes());
    }

    #[test]
    fn a_load_keeps_to_the_bounds_on_groups_and_offsets() {
        let config = GroupConfig { groups_max: 2, group_offsets_max: 3, ..GroupConfig::default() };
        let mut shard = Shard::new(config, GroupMemory::unbounded());
        let taken = |shard: &mut Shard, group: &str| {
            (0..5).filter(|partition| replay(shard, &commit(group, *partition, 1)).is_ok()).count()
        };
        let taken: Vec<usize> = ["a", "b", "c"].into_iter().map(|group| taken(&mut shard, group)).collect();
        assert_eq!(taken, [3, 3, 0]);
        replay(&mut shard, &commit("a", 0, 2)).unwrap();
    }
}
