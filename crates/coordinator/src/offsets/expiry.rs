//! Expiry of offsets, and of groups that nothing is left of.
//!
//! Owns Kafka's rule (KIP-211): offsets expire `offsets.retention.minutes` after the group became empty, or after
//! the commit where there is no membership or nobody in the group reads the topic; topics that a live group reads
//! never do. An empty group without offsets goes with the same sweep.

use std::sync::Arc;

use riverrun_types::TimestampMs;

use super::CommittedOffset;
use crate::group::{Group, GroupEntry};
use crate::records;
use crate::shard::Shard;
use crate::step::{OffsetsRecord, Step};

impl Shard {
    /// Looks at every offset of the shard and removes what has expired.
    pub(crate) fn sweep(&mut self, now: TimestampMs) -> Step {
        let mut step = Step::default();
        let group_ids: Vec<Arc<str>> = self.groups.keys().cloned().collect();
        for group_id in group_ids {
            let Some(entry) = self.groups.get_mut(&group_id) else { continue };
            expire_offsets(entry, &group_id, now, self.config.offsets_retention_ms, &mut step.records);
            if entry.offsets.is_empty() && is_abandoned(&entry.group) {
                step.records.append(&mut entry.group.tombstones(&group_id));
                self.forget(&group_id);
            } else {
                self.finish(&group_id);
            }
        }
        step
    }
}

/// Whether nobody is in the group or on the way into it.
fn is_abandoned(group: &Group) -> bool {
    match group {
        Group::Classic(classic) => classic.is_empty() && !classic.has_pending(),
        Group::Simple | Group::Consumer(_) => group.is_empty(),
    }
}

/// Removes one group's expired offsets.
fn expire_offsets(
    entry: &mut GroupEntry,
    group_id: &str,
    now: TimestampMs,
    retention_ms: i64,
    tombstones: &mut Vec<OffsetsRecord>,
) {
    let mut expired = Vec::new();
    for (topic, partitions) in entry.offsets.topics() {
        if entry.group.is_subscribed_to(topic) {
            continue;
        }
        let of_topic =
            partitions.iter().filter(|(_, offset)| has_expired(&entry.group, offset, now, retention_ms));
        expired.extend(of_topic.map(|(partition, _)| (topic.to_owned(), *partition)));
    }
    for (topic, partition) in expired {
        entry.offsets.remove(&topic, partition);
        tombstones.push(records::offset_tombstone(group_id, &topic, partition));
    }
}

/// Whether this offset is over. A group that keeps its offsets keeps those with a retention of their own, too.
fn has_expired(group: &Group, offset: &CommittedOffset, now: TimestampMs, retention_ms: i64) -> bool {
    let Some(unused_since) = group.unused_since(offset.committed_at) else { return false };
    let expires_at = offset.expires_at.unwrap_or(TimestampMs(unused_since.0.saturating_add(retention_ms)));
    now >= expires_at
}
