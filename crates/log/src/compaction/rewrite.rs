//! Compaction of one batch: keeps its bytes, builds it anew, or drops it.
//!
//! | record | stays |
//! |---|---|
//! | at or above the mapped end | always: later records of the key are not known yet |
//! | without a key | never: it can be neither the first nor the last of anything |
//! | not the last of its key | never |
//! | the last of its key, with a value | always |
//! | the last of its key, a tombstone in the dirty part | always |
//! | the last of its key, a tombstone in the clean part | until the delete horizon of its batch |
//!
//! A batch gets its delete horizon (KIP-534) when a tombstone survives its first compaction: now plus
//! `delete.retention.ms`. So a consumer that reads from the beginning within that time sees every deletion. A later run
//! that finds a tombstone of the same batch in its dirty part, because the map was full or the run before was stopped,
//! sets the horizon anew: the record that this tombstone deletes was still there until now.
//!
//! A batch of which no record stays is dropped, unless it ends its segment or holds the last record
//! of an idempotent producer: then a header without records keeps the last offset and the last sequence. Control
//! batches stay as they are.

use std::collections::BTreeMap;

use riverrun_records::{Batch, BatchBuilder, BatchError, Record, RetainOptions};
use riverrun_types::{Offset, ProducerId, TimestampMs};

use super::offset_map::OffsetMap;

/// The rules for every batch of one run.
#[derive(Clone, Copy)]
pub struct RewriteRules<'a> {
    /// Last offset of each key in the dirty part.
    pub map: &'a OffsetMap,
    /// An earlier run has compacted all below it.
    pub first_dirty: Offset,
    /// The map knows every record from `first_dirty` up to here.
    pub mapped_end: Offset,
    /// End of the segments that become one: the batch that ends there stays, if need be empty, so that the end of
    /// each segment is where the next one begins.
    pub segment_end: Offset,
    /// Offset of the last record of each idempotent producer.
    pub last_offsets: &'a BTreeMap<ProducerId, Offset>,
    /// Wall clock.
    pub now: TimestampMs,
    /// `delete.retention.ms`.
    pub delete_retention_ms: u64,
}

/// The outcome for one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rewritten {
    /// Its bytes stay as they are.
    Kept,
    /// These bytes replace it.
    Rebuilt(Vec<u8>),
    /// Nothing of it stays.
    Dropped,
}

/// Counts of one batch's records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordCounts {
    /// Records that the batch had.
    pub read: u64,
    /// Records that stay.
    pub kept: u64,
    /// Records that went because they had no key.
    pub keyless: u64,
}

/// Decides about one batch and builds its replacement.
pub fn rewrite(batch: &Batch<'_>, rules: &RewriteRules<'_>) -> Result<(Rewritten, RecordCounts), BatchError> {
    let count = u64::try_from(batch.record_count()).unwrap_or(0);
    if batch.is_control() || batch.base_offset() >= rules.mapped_end {
        return Ok((Rewritten::Kept, RecordCounts { read: count, kept: count, keyless: 0 }));
    }
    let survey = survey(batch, rules)?;
    let counts = RecordCounts { read: count, kept: survey.kept, keyless: survey.keyless };
    if survey.kept == 0 && !must_keep_header(batch, rules) {
        return Ok((Rewritten::Dropped, counts));
    }
    let starts_horizon =
        survey.keeps_dirty_tombstone || (survey.keeps_tombstone && !batch.has_delete_horizon());
    if survey.kept == count && !starts_horizon {
        return Ok((Rewritten::Kept, counts));
    }
    let horizon = if starts_horizon { Some(rules.new_horizon()) } else { batch.delete_horizon() };
    Ok((Rewritten::Rebuilt(rebuild(batch, rules, horizon)?), counts))
}

struct Survey {
    kept: u64,
    keyless: u64,
    keeps_tombstone: bool,
    keeps_dirty_tombstone: bool,
}

fn survey(batch: &Batch<'_>, rules: &RewriteRules<'_>) -> Result<Survey, BatchError> {
    let mut survey = Survey { kept: 0, keyless: 0, keeps_tombstone: false, keeps_dirty_tombstone: false };
    let records = batch.records()?;
    for record in &records {
        let record = record?;
        if rules.stays(&record, batch.delete_horizon()) {
            survey.kept += 1;
            let is_tombstone = record.value.is_none() && record.offset < rules.mapped_end;
            survey.keeps_tombstone |= is_tombstone;
            survey.keeps_dirty_tombstone |= is_tombstone && record.offset >= rules.first_dirty;
        } else if record.key.is_none() {
            survey.keyless += 1;
        }
    }
    Ok(survey)
}

/// Builds the batch of the remaining records, with the same offsets, sequences and codec.
fn rebuild(
    batch: &Batch<'_>,
    rules: &RewriteRules<'_>,
    delete_horizon: Option<TimestampMs>,
) -> Result<Vec<u8>, BatchError> {
    let options = RetainOptions { compression: batch.compression(), level: None, delete_horizon };
    let mut builder = BatchBuilder::retaining(batch.header(), options);
    let records = batch.records()?;
    for record in &records {
        let record = record?;
        // The old horizon decides, not the one that begins now.
        if rules.stays(&record, batch.delete_horizon()) {
            builder.append_record(&record)?;
        }
    }
    builder.build()
}

fn must_keep_header(batch: &Batch<'_>, rules: &RewriteRules<'_>) -> bool {
    let ends_segment = batch.next_offset() == rules.segment_end;
    let is_producers_last = batch.has_producer_id()
        && rules.last_offsets.get(&batch.producer_id()).is_some_and(|last| *last == batch.last_offset());
    ends_segment || is_producers_last
}

impl RewriteRules<'_> {
    fn stays(&self, record: &Record<'_>, horizon: Option<TimestampMs>) -> bool {
        if record.offset >= self.mapped_end {
            return true;
        }
        let Some(key) = record.key else { return false };
        let is_last_of_key = self.map.get(key).is_none_or(|last| record.offset >= last);
        let is_clean_tombstone = record.value.is_none() && record.offset < self.first_dirty;
        let is_due_tombstone = is_clean_tombstone && horizon.is_some_and(|horizon| horizon <= self.now);
        is_last_of_key && !is_due_tombstone
    }

    fn new_horizon(&self) -> TimestampMs {
        let retention_ms = i64::try_from(self.delete_retention_ms).unwrap_or(i64::MAX);
        TimestampMs(self.now.0.saturating_add(retention_ms))
    }
}

#[cfg(test)]
mod tests;
