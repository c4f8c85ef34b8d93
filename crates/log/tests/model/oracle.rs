//! The model of the log: every record that was ever appended, in a `Vec` by offset, and which of them may be gone.

use std::collections::{BTreeMap, BTreeSet};

use riverrun_log::producer_state::BATCHES_PER_PRODUCER;

/// One appended record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) timestamp: i64,
    pub(crate) epoch: i32,
}

/// One appended batch of an idempotent producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) epoch: i16,
    pub(crate) first_sequence: i32,
    pub(crate) last_sequence: i32,
    pub(crate) base_offset: i64,
    pub(crate) last_offset: i64,
}

/// The simple model.
///
/// Invariants: `records[n]` is the record at offset n; `surely_cleaned <= maybe_cleaned`.
#[derive(Default)]
pub(crate) struct Oracle {
    pub(crate) records: Vec<Written>,
    pub(crate) log_start: i64,
    /// Below, no record is left that another one below supersedes.
    pub(crate) surely_cleaned: i64,
    /// Below, a superseded record may be gone: runs that were stopped count too.
    pub(crate) maybe_cleaned: i64,
    /// Time at which a tombstone was first compacted.
    first_compacted: BTreeMap<i64, i64>,
    /// Tombstones that a run met after their retention.
    droppable: BTreeSet<i64>,
    /// Everything below survives a power cut.
    pub(crate) durable_end: i64,
    /// The offset up to which the last checkpoint covered a log that was cut since.
    pub(crate) cut_end: Option<i64>,
    /// Everything below is under a checkpoint.
    pub(crate) covered_end: i64,
    pub(crate) producers: BTreeMap<i64, Vec<Sent>>,
    /// Producers of which the log's knowledge is uncertain, since it was cut.
    pub(crate) retired: BTreeSet<i64>,
}

impl Oracle {
    pub(crate) fn end(&self) -> i64 {
        i64::try_from(self.records.len()).unwrap()
    }

    /// Offset of the last record with this key below `end`.
    fn last_of_key(&self, key: &[u8], end: i64) -> Option<i64> {
        let below = &self.records[..usize::try_from(end).unwrap()];
        let found = below.iter().rposition(|record| record.key.as_deref() == Some(key));
        found.map(|index| i64::try_from(index).unwrap())
    }

    fn is_superseded(&self, offset: i64, end: i64) -> bool {
        let key = self.records[usize::try_from(offset).unwrap()].key.as_deref();
        offset < end && key.is_none_or(|key| self.last_of_key(key, end) != Some(offset))
    }

    /// Whether a reader must find this record.
    pub(crate) fn must_be_there(&self, offset: i64) -> bool {
        offset >= self.log_start
            && !self.is_superseded(offset, self.maybe_cleaned)
            && !self.droppable.contains(&offset)
    }

    /// Whether a reader may find this record.
    pub(crate) fn may_be_there(&self, offset: i64) -> bool {
        offset < self.end() && !self.is_superseded(offset, self.surely_cleaned)
    }

    /// A run of compaction looked at everything below `reached`, and completed if `is_complete`.
    pub(crate) fn compacted(&mut self, reached: i64, is_complete: bool, now: i64, delete_retention_ms: i64) {
        self.maybe_cleaned = self.maybe_cleaned.max(reached);
        if is_complete {
            self.surely_cleaned = self.surely_cleaned.max(reached);
        }
        for offset in 0..self.maybe_cleaned {
            let is_tombstone = self.records[usize::try_from(offset).unwrap()].value.is_none();
            if is_tombstone && !self.is_superseded(offset, self.maybe_cleaned) {
                let since = *self.first_compacted.entry(offset).or_insert(now);
                if now >= since.saturating_add(delete_retention_ms) {
                    self.droppable.insert(offset);
                }
            }
        }
    }

    /// A checkpoint has covered all of the log.
    pub(crate) fn cover(&mut self) {
        self.durable_end = self.end();
        self.covered_end = self.end();
        self.cut_end = None;
    }

    /// Compaction has seen no record at `end` or beyond.
    fn end_at(&mut self, end: i64) {
        self.records.truncate(usize::try_from(end).unwrap());
        self.maybe_cleaned = self.maybe_cleaned.min(end);
        self.surely_cleaned = self.surely_cleaned.min(end);
    }

    /// Records at `end` or beyond were taken back. The others are durable. The caller handles the producers.
    pub(crate) fn cut(&mut self, end: i64) {
        self.end_at(end);
        self.durable_end = end;
        self.covered_end = self.covered_end.min(end);
        self.cut_end = Some(self.covered_end);
    }

    /// The log ends at `end` after a power cut.
    pub(crate) fn truncate(&mut self, end: i64) {
        self.end_at(end);
        for sent in self.producers.values_mut() {
            sent.retain(|batch| batch.last_offset < end);
        }
    }

    /// The batches that a retry of this producer may repeat, oldest first.
    pub(crate) fn remembered(&self, producer: i64) -> &[Sent] {
        let Some(sent) = self.producers.get(&producer) else { return &[] };
        let epoch = sent.last().map(|batch| batch.epoch);
        let same_epoch = sent.iter().rev().take_while(|batch| Some(batch.epoch) == epoch).count();
        &sent[sent.len() - same_epoch.min(BATCHES_PER_PRODUCER)..]
    }

    /// The end of each epoch that still has a record: the next one's first offset, or the log end.
    pub(crate) fn epoch_ends(&self) -> Vec<(i32, i64)> {
        let mut ends: Vec<(i32, i64)> = vec![];
        for offset in self.log_start..self.end() {
            let epoch = self.records[usize::try_from(offset).unwrap()].epoch;
            match ends.last_mut() {
                Some((last, end)) if *last == epoch => *end = offset + 1,
                _ => ends.push((epoch, offset + 1)),
            }
        }
        ends
    }
}
