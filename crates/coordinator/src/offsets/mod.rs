//! Committed offsets: the kept fields, and the lookup of a group's offsets.
//!
//! Owns the offsets of one group. `commit` handles OffsetCommit, `fetch` OffsetFetch, `delete` OffsetDelete and the
//! deletion of topics, `expiry` removes offsets that are not needed any more.

mod commit;
mod delete;
mod expiry;
mod fetch;
mod shown;

use std::collections::BTreeMap;
use std::ops::Bound;

use riverrun_types::{LeaderEpoch, Offset, TimestampMs, TopicId};

use crate::time::Stamp;

pub use delete::Deletion;
pub(crate) use expiry::Sweep;
pub use fetch::{offset_fetch_groups, offset_fetch_response};
pub use shown::{Committed, CommittedPlace, CommittedSlice};

/// One committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next offset that the group wants to read. Clients may commit any number; it is stored as it came.
    pub offset: Offset,
    /// Leader epoch of the last record read, or [`LeaderEpoch::UNKNOWN`].
    pub leader_epoch: LeaderEpoch,
    /// Any text of the client.
    pub metadata: Box<str>,
    /// When it was committed.
    pub committed_at: Stamp,
    /// When it expires in any case, if an old client asked for its own retention.
    pub expires_at: Option<TimestampMs>,
    /// Id of the topic for which it was committed. [`TopicId::ZERO`] if unknown: a record with a retention of its own
    /// has no field for it, and older ones had none.
    pub topic_id: TopicId,
}

impl CommittedOffset {
    /// Whether it belongs to the topic that has this id now, and not to an earlier one of the same name, as far as
    /// known.
    fn is_of(&self, topic_id: Option<TopicId>) -> bool {
        self.topic_id.is_zero() || topic_id.is_none_or(|id| id == self.topic_id)
    }

    /// Memory of the offset in its group, in bytes.
    fn memory_bytes(&self) -> usize {
        OFFSET_BYTES + self.metadata.len()
    }
}

/// Memory of a topic with its name, beside its offsets, in bytes.
fn topic_bytes(topic: &str) -> usize {
    TOPIC_BYTES + topic.len()
}

/// Bytes of a topic of a group beside its name: its place in the map, and the first node of the map of its
/// partitions.
const TOPIC_BYTES: usize = 800;
/// Bytes of an offset beside its metadata.
const OFFSET_BYTES: usize = 160;

/// The offsets of one group.
///
/// Invariants: `count` is the number of offsets, and `memory_bytes` their memory; no topic is kept without an offset.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupOffsets {
    by_topic: BTreeMap<Box<str>, BTreeMap<i32, CommittedOffset>>,
    count: usize,
    memory_bytes: usize,
}

impl GroupOffsets {
    /// Whether the group has committed nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of offsets.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Memory of the offsets, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Memory of the offsets in bytes, once the partition has one with this much metadata.
    pub(crate) fn memory_bytes_with(&self, topic: &str, partition: i32, metadata_bytes: usize) -> usize {
        let partitions = self.by_topic.get(topic);
        let topic_bytes = if partitions.is_some() { 0 } else { topic_bytes(topic) };
        let replaced = partitions.and_then(|partitions| partitions.get(&partition));
        let replaced_bytes = replaced.map_or(0, CommittedOffset::memory_bytes);
        self.memory_bytes + topic_bytes + OFFSET_BYTES + metadata_bytes - replaced_bytes
    }

    /// The offset of one partition.
    pub(crate) fn get(&self, topic: &str, partition: i32) -> Option<&CommittedOffset> {
        self.by_topic.get(topic)?.get(&partition)
    }

    /// Whether there is an offset for the partition.
    pub(crate) fn contains(&self, topic: &str, partition: i32) -> bool {
        self.get(topic, partition).is_some()
    }

    /// Sets the offset of one partition.
    pub(crate) fn insert(&mut self, topic: &str, partition: i32, offset: CommittedOffset) {
        self.memory_bytes = self.memory_bytes_with(topic, partition, offset.metadata.len());
        let partitions = match self.by_topic.get_mut(topic) {
            Some(partitions) => partitions,
            None => self.by_topic.entry(topic.into()).or_default(),
        };
        if partitions.insert(partition, offset).is_none() {
            self.count += 1;
        }
    }

    /// Removes the offset of one partition; returns whether there was one.
    pub(crate) fn remove(&mut self, topic: &str, partition: i32) -> bool {
        let Some(partitions) = self.by_topic.get_mut(topic) else { return false };
        let Some(removed) = partitions.remove(&partition) else { return false };
        self.count -= 1;
        self.memory_bytes -= removed.memory_bytes();
        if partitions.is_empty() {
            self.by_topic.remove(topic);
            self.memory_bytes -= topic_bytes(topic);
        }
        true
    }

    /// Removes the offsets of a topic for which `is_gone` is true; returns their partitions.
    pub(crate) fn remove_where(
        &mut self,
        topic: &str,
        is_gone: impl Fn(&CommittedOffset) -> bool,
    ) -> Vec<i32> {
        let Some(partitions) = self.by_topic.get(topic) else { return Vec::new() };
        let of_topic = partitions.iter().filter(|(_, offset)| is_gone(offset));
        let gone: Vec<i32> = of_topic.map(|(partition, _)| *partition).collect();
        for partition in &gone {
            self.remove(topic, *partition);
        }
        gone
    }

    /// The topics with their offsets, in order of names and partitions.
    pub(crate) fn topics(&self) -> impl Iterator<Item = (&str, &BTreeMap<i32, CommittedOffset>)> {
        self.by_topic.iter().map(|(topic, partitions)| (&**topic, partitions))
    }

    /// Every offset with its topic and partition behind this place, or from the first on.
    pub(crate) fn behind(
        &self,
        place: Option<&(Box<str>, i32)>,
    ) -> impl Iterator<Item = (&str, i32, &CommittedOffset)> {
        let from = place.map_or(Bound::Unbounded, |(topic, _)| Bound::Included(&**topic));
        let topics = self.by_topic.range::<str, _>((from, Bound::Unbounded));
        topics.flat_map(move |(topic, partitions)| {
            let last = place.filter(|(last, _)| last == topic);
            let from = last.map_or(Bound::Unbounded, |(_, partition)| Bound::Excluded(*partition));
            let partitions = partitions.range((from, Bound::Unbounded));
            partitions.map(move |(partition, offset)| (&**topic, *partition, offset))
        })
    }

    /// Every offset with its topic and partition.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, i32, &CommittedOffset)> {
        self.topics().flat_map(|(topic, partitions)| {
            partitions.iter().map(move |(partition, offset)| (topic, *partition, offset))
        })
    }
}
