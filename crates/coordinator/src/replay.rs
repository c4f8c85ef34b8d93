//! Replay: the records of a partition, in their order, become the groups again.
//!
//! Owns what each record does to the shard. A record that does not decode leaves the shard as it was; records of
//! types that belong to others, such as share groups, are passed over.

use riverrun_protocol::DecodeError;
use riverrun_protocol::offsets_topic::{GroupMetadataValue, Key};

use crate::classic::ClassicGroup;
use crate::error::ReplayError;
use crate::group::{Group, GroupEntry};
use crate::offsets::CommittedOffset;
use crate::records;
use crate::shard::Shard;

impl Shard {
    /// Applies one record of the log; no value is a tombstone.
    pub fn replay(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), ReplayError> {
        let key = match Key::decode(key) {
            Ok(key) => key,
            Err(DecodeError::UnknownRecordType(_)) => return Ok(()),
            Err(error) => return Err(ReplayError::Key(error)),
        };
        match key {
            Key::OffsetCommit(key) => {
                let offset = value.map(records::read_offset).transpose()?;
                self.replay_offset(&key.group, &key.topic, key.partition, offset);
            }
            Key::LegacyOffsetCommit(key) => {
                let offset = value.map(records::read_legacy_offset).transpose()?;
                self.replay_offset(&key.group, &key.topic, key.partition, offset);
            }
            Key::GroupMetadata(key) => {
                let value = value.map(|value| records::read("GroupMetadata", value)).transpose()?;
                self.replay_group(&key.group, value.as_ref());
            }
            key => self.replay_consumer(&key, value)?,
        }
        Ok(())
    }

    /// Sets or deletes an offset. The groups of a log are taken as they are: bounds are for newcomers.
    fn replay_offset(
        &mut self,
        group_id: &str,
        topic: &str,
        partition: i32,
        offset: Option<CommittedOffset>,
    ) {
        match offset {
            Some(offset) => self.entry(group_id).offsets.insert(topic, partition, offset),
            None => {
                if let Some(entry) = self.groups.get_mut(group_id) {
                    entry.offsets.remove(topic, partition);
                    self.drop_if_bare(group_id);
                }
            }
        }
    }

    /// Sets or deletes a classic group. A tombstone of a group that has become another kind says nothing new.
    fn replay_group(&mut self, group_id: &str, value: Option<&GroupMetadataValue<'_>>) {
        if let Some(value) = value {
            let group = ClassicGroup::from_record(group_id.into(), value);
            self.entry(group_id).group = Group::Classic(Box::new(group));
        } else if let Some(entry) = self.groups.get_mut(group_id)
            && matches!(entry.group, Group::Classic(_))
        {
            entry.group = Group::Simple;
            self.drop_if_bare(group_id);
        }
    }

    /// The group of this id; made without members if it is not there.
    pub(crate) fn entry(&mut self, group_id: &str) -> &mut GroupEntry {
        self.groups.entry(group_id.into()).or_insert_with(|| GroupEntry::new(Group::Simple))
    }

    /// Removes a group of which neither membership nor offsets are left.
    pub(crate) fn drop_if_bare(&mut self, group_id: &str) {
        let is_bare = |entry: &GroupEntry| matches!(entry.group, Group::Simple) && entry.offsets.is_empty();
        if self.groups.get(group_id).is_some_and(is_bare) {
            self.forget(group_id);
        }
    }
}
