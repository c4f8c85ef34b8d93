//! Leader epochs of one partition: which epoch began at which offset.
//!
//! A client that sees an unexpected epoch asks where that epoch ended (`OffsetForLeaderEpoch`); the answer tells it how
//! much of the records that it has read is still true. The rules are those of KIP-101 and KIP-279.
//!
//! An epoch has an entry once a record was appended in it, and needs none before. An epoch that leads begins at the log
//! end, and its leading is durable in the metadata before anything is answered. The next one begins at the same offset
//! and takes its place, as it does in Kafka. So no answer from before a kill is contradicted after it.
//!
//! Pure: no I/O. The checkpoint carries the encoded list; recovery adds the epochs of the batches after it.

use riverrun_types::{LeaderEpoch, Offset};

use crate::fields::{DecodeError, FieldReader, put_count};

/// One epoch and the offset of the first record that was appended in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEntry {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// Its first offset.
    pub start_offset: Offset,
}

/// Bytes of one entry when encoded: epoch and start offset.
const ENTRY_BYTES: usize = size_of::<i32>() + size_of::<i64>();

/// The epochs of one partition in order.
///
/// Invariants:
/// - epochs and start offsets both rise strictly from entry to entry;
/// - neither is ever negative.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochCache {
    entries: Vec<EpochEntry>,
}

impl EpochCache {
    /// A partition that has no records yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    /// The newest epoch that has a record.
    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    /// Notes that `epoch` appends from `start_offset` on; `true` if that is news.
    ///
    /// An entry that contradicts the new one (an epoch as new or newer, or one that began there or later) is dropped:
    /// its records are being written over. Negative arguments are ignored: they are Kafka's sentinels.
    pub fn assign(&mut self, epoch: LeaderEpoch, start_offset: Offset) -> bool {
        if epoch.0 < 0 || start_offset.0 < 0 {
            return false;
        }
        let known =
            self.latest().is_some_and(|last| last.epoch == epoch && last.start_offset <= start_offset);
        if known {
            return false;
        }
        while self.latest().is_some_and(|last| last.epoch >= epoch || last.start_offset >= start_offset) {
            self.entries.pop();
        }
        // A vector by itself makes room for four, and most partitions have one.
        if self.entries.is_empty() {
            self.entries.reserve_exact(1);
        }
        self.entries.push(EpochEntry { epoch, start_offset });
        true
    }

    /// The end of `requested`, as `OffsetForLeaderEpoch` answers it: the largest known epoch that is not newer than the
    /// requested one, and the offset at which the epoch after it began. `leading` is the epoch of the next append;
    /// before its first append it begins at `log_end`, as a leader of Kafka notes when it begins.
    ///
    /// - The latest epoch ends at `log_end`.
    /// - An epoch older than all that are known answers itself and the start of the oldest known one: its records
    ///   are gone, and the reader has to go on there.
    /// - An epoch that is newer than all, or unknown (-1), answers (-1, -1).
    pub fn end_offset_for(
        &self,
        requested: LeaderEpoch,
        leading: LeaderEpoch,
        log_end: Offset,
    ) -> (LeaderEpoch, Offset) {
        let latest = self.latest().map_or(leading, |last| last.epoch.max(leading));
        if requested.0 < 0 || requested > latest {
            return (LeaderEpoch::UNKNOWN, Offset(-1));
        }
        if requested == latest {
            return (requested, log_end);
        }
        let after = self.entries.partition_point(|entry| entry.epoch <= requested);
        let end = self.entries.get(after).map_or(log_end, |higher| higher.start_offset);
        let floor = after.checked_sub(1).map_or(requested, |index| self.entries[index].epoch);
        (floor, end)
    }

    /// The epoch in which the record at `offset` was appended, if it is known.
    pub fn epoch_of(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self.entries.partition_point(|entry| entry.start_offset <= offset);
        after.checked_sub(1).map(|index| self.entries[index].epoch)
    }

    /// Forgets epochs that began at `end` or later: the log now ends there.
    pub fn truncate_end(&mut self, end: Offset) {
        let keep = self.entries.partition_point(|entry| entry.start_offset < end);
        self.entries.truncate(keep);
    }

    /// Forgets epochs that ended at or before `start`: the log now starts there. The epoch that holds `start`
    /// stays and begins at it.
    pub fn truncate_start(&mut self, start: Offset) {
        let after = self.entries.partition_point(|entry| entry.start_offset <= start);
        let Some(holder) = after.checked_sub(1) else { return };
        self.entries.drain(..holder);
        self.entries[0].start_offset = start;
    }

    /// Appends the encoded list to `out`: a count, then epoch and start offset of each, big-endian.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_count(out, self.entries.len());
        for entry in &self.entries {
            out.extend_from_slice(&entry.epoch.0.to_be_bytes());
            out.extend_from_slice(&entry.start_offset.0.to_be_bytes());
        }
    }

    /// Reads what [`encode`](Self::encode) wrote; a list that breaks the invariants is refused.
    pub(crate) fn decode(reader: &mut FieldReader<'_>) -> Result<Self, DecodeError> {
        let count = reader.count(ENTRY_BYTES, "leader epoch count")?;
        let mut entries: Vec<EpochEntry> = Vec::with_capacity(count);
        for _ in 0..count {
            let entry = EpochEntry {
                epoch: LeaderEpoch(reader.i32("leader epoch")?),
                start_offset: Offset(reader.i64("start offset of a leader epoch")?),
            };
            let rises = entries
                .last()
                .is_none_or(|last| last.epoch < entry.epoch && last.start_offset < entry.start_offset);
            if !rises || entry.epoch.0 < 0 || entry.start_offset.0 < 0 {
                return Err(DecodeError::Invalid("leader epoch"));
            }
            entries.push(entry);
        }
        Ok(Self { entries })
    }
}

#[cfg(test)]
mod tests;
