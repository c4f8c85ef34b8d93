//! What a broker checks of a batch that a client sends, beyond what every batch must satisfy.
//!
//! Walks every record once. An uncompressed batch is walked in place without allocating; a compressed one is
//! inflated through a small buffer and never held as a whole. The rules are those of Kafka's log validator,
//! except that reserved attribute bits and a client's delete horizon are refused here too.

use riverrun_types::limits::BATCH_RECORDS_MAX;
use riverrun_types::{Offset, TimestampMs};

use crate::Compression;
use crate::batch::Batch;
use crate::error::{BatchError, Excess, InvalidCause};
use crate::header::{BatchHeader, TimestampType};
use crate::inflate::Inflate;
use crate::source::{SliceSource, Source, StreamSource};
use crate::walk::{RecordShape, read_record};

/// What a topic asks of records, besides being well formed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProduceRules {
    /// Each record must have a key, because the topic is compacted.
    pub require_keys: bool,
    /// How far from the broker's clock a timestamp may lie; none where the broker sets the timestamps.
    pub timestamps: Option<TimestampBounds>,
}

/// How far a producer's timestamp may lie from the broker's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampBounds {
    /// The broker's clock.
    pub now: TimestampMs,
    /// How many milliseconds earlier a timestamp may be.
    pub before_max_ms: i64,
    /// How many milliseconds later a timestamp may be.
    pub after_max_ms: i64,
}

impl TimestampBounds {
    fn allow(&self, timestamp: TimestampMs) -> bool {
        if timestamp == TimestampMs::NONE {
            return true;
        }
        let early_ms = self.now.0.saturating_sub(timestamp.0);
        let late_ms = timestamp.0.saturating_sub(self.now.0);
        early_ms <= self.before_max_ms && late_ms <= self.after_max_ms
    }
}

/// What the walk has learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducedInfo {
    /// Number of records, 1 or more.
    pub record_count: i32,
    /// The largest timestamp of the records, which the header may misstate: see
    /// [`patch_max_timestamp`](crate::patch_max_timestamp).
    pub max_timestamp: TimestampMs,
    /// The first record that has it, counted from the base offset.
    pub max_timestamp_offset_delta: i32,
    /// Bytes of the records when uncompressed.
    pub inflated_bytes: usize,
}

/// Checks a client's batch: header rules first, then each record.
pub fn validate_produced(batch: &Batch<'_>, rules: &ProduceRules) -> Result<ProducedInfo, BatchError> {
    check_header(batch.header())?;
    if batch.compression() == Compression::None {
        walk(SliceSource::new(batch.payload()), batch.header(), rules)
    } else {
        let inflate = Inflate::produced(batch.compression(), batch.payload())?;
        walk(StreamSource::new(inflate), batch.header(), rules)
    }
}

fn check_header(header: &BatchHeader) -> Result<(), BatchError> {
    if header.is_control() {
        return Err(InvalidCause::ControlBatch.into());
    }
    if header.has_delete_horizon() {
        return Err(InvalidCause::DeleteHorizon.into());
    }
    if header.base_offset() != Offset::ZERO {
        return Err(InvalidCause::BaseOffset.into());
    }
    if header.timestamp_type() == TimestampType::LogAppendTime {
        return Err(BatchError::InvalidTimestamp { timestamp: header.max_timestamp(), record: 0 });
    }
    check_counts(header)?;
    check_producer(header)
}

/// A producer leaves no gaps: as many records as offsets, and at least one.
fn check_counts(header: &BatchHeader) -> Result<(), BatchError> {
    if header.record_count() == 0 {
        return Err(InvalidCause::Empty.into());
    }
    if header.record_count() > BATCH_RECORDS_MAX {
        return Err(BatchError::TooLarge { excess: Excess::Records, limit: BATCH_RECORDS_MAX as usize });
    }
    if header.last_offset_delta() != header.record_count() - 1 {
        return Err(InvalidCause::LastOffsetDelta.into());
    }
    Ok(())
}

fn check_producer(header: &BatchHeader) -> Result<(), BatchError> {
    let consistent = if header.has_producer_id() {
        header.base_sequence() >= 0 && header.producer_epoch().0 >= 0
    } else {
        !header.is_transactional()
    };
    if consistent { Ok(()) } else { Err(InvalidCause::Producer.into()) }
}

fn walk(
    mut source: impl Source,
    header: &BatchHeader,
    rules: &ProduceRules,
) -> Result<ProducedInfo, BatchError> {
    let mut max_timestamp = TimestampMs(i64::MIN);
    let mut max_timestamp_offset_delta = 0;
    for expected_delta in 0..header.record_count() {
        if source.at_end()? {
            return Err(InvalidCause::RecordCount.into());
        }
        let shape = read_record(&mut source)?;
        if shape.offset_delta != expected_delta {
            return Err(InvalidCause::OffsetDelta.into());
        }
        let timestamp = check_record(&shape, header, rules)?;
        if timestamp > max_timestamp {
            max_timestamp = timestamp;
            max_timestamp_offset_delta = expected_delta;
        }
    }
    if !source.at_end()? {
        return Err(InvalidCause::TrailingBytes.into());
    }
    Ok(ProducedInfo {
        record_count: header.record_count(),
        max_timestamp,
        max_timestamp_offset_delta,
        inflated_bytes: source.position(),
    })
}

/// A record's own rules; answers its timestamp.
#[inline]
fn check_record(
    shape: &RecordShape,
    header: &BatchHeader,
    rules: &ProduceRules,
) -> Result<TimestampMs, BatchError> {
    if rules.require_keys && shape.key.is_none() {
        return Err(InvalidCause::MissingKey.into());
    }
    let base = header.base_timestamp();
    let refused = |timestamp| BatchError::InvalidTimestamp { timestamp, record: shape.offset_delta };
    let timestamp = base.0.checked_add(shape.timestamp_delta).map(TimestampMs).ok_or(refused(base))?;
    match rules.timestamps {
        Some(bounds) if !bounds.allow(timestamp) => Err(refused(timestamp)),
        _ => Ok(timestamp),
    }
}
