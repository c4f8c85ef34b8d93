//! A broker's checks of a client's batch, beyond the rules of every batch.
//!
//! Walks every record once. An uncompressed batch is walked in place without allocating; a compressed one is inflated
//! through a small buffer and never held as a whole. The rules are those of Kafka's log validator, except that
//! reserved attribute bits, a client's delete horizon and offsets with gaps are refused here too. As there, a record
//! that breaks a rule of its own does not end the walk: all such records of a batch are named.

use std::fmt;

use riverrun_types::limits::{BATCH_RECORDS_MAX, REFUSED_RECORDS_NAMED_MAX};
use riverrun_types::{Offset, TimestampMs};
use thiserror::Error;

use crate::Compression;
use crate::batch::Batch;
use crate::error::{BatchError, Excess, InvalidCause};
use crate::header::{BatchHeader, TimestampType};
use crate::inflate::Inflate;
use crate::source::{SliceSource, Source, StreamSource};
use crate::walk::{RecordShape, read_record};

/// A topic's rules for records, besides being well formed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProduceRules {
    /// Each record must have a key, because the topic is compacted.
    pub require_keys: bool,
    /// How far from the broker's clock a timestamp may lie; `None` where the broker sets the timestamps.
    pub timestamps: Option<TimestampBounds>,
}

/// How far a producer's timestamp may lie from the broker's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampBounds {
    /// The broker's clock.
    pub now: TimestampMs,
    /// Milliseconds by which a timestamp may be earlier.
    pub before_max_ms: i64,
    /// Milliseconds by which a timestamp may be later.
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

/// The results of the walk.
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

/// A refused record, and why it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedRecord {
    /// Its place in the batch, counted from 0.
    pub index: i32,
    /// The rule that it breaks, the first if there are several.
    pub error: BatchError,
}

/// The refused records of a well-formed batch.
///
/// Invariants: `named` are the first of them in their order, at least one and at most [`REFUSED_RECORDS_NAMED_MAX`];
/// `count` is the number of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRecords {
    named: Vec<RefusedRecord>,
    count: i32,
    error: BatchError,
}

impl RefusedRecords {
    fn new(first: RefusedRecord) -> Self {
        Self { named: vec![first], count: 1, error: first.error }
    }

    fn add(&mut self, refused: RefusedRecord) {
        let is_timestamp = |error| matches!(error, BatchError::InvalidTimestamp { .. });
        if is_timestamp(refused.error) && !is_timestamp(self.error) {
            self.error = refused.error;
        }
        self.count += 1;
        if self.named.len() < REFUSED_RECORDS_NAMED_MAX {
            self.named.push(refused);
        }
    }

    /// The first of them, in their order.
    pub fn named(&self) -> &[RefusedRecord] {
        &self.named
    }

    /// The error that stands for all: the first timestamp that is not allowed, as in Kafka, or else the first
    /// record's error.
    pub fn error(&self) -> BatchError {
        self.error
    }
}

impl fmt::Display for RefusedRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.count, self.named.first()) {
            (1, Some(only)) => write!(f, "record {} is refused: {}", only.index, self.error),
            (count, _) => write!(f, "{count} records are refused, for one of them: {}", self.error),
        }
    }
}

/// Why a client's batch is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProduceError {
    /// The batch as a whole is at fault, or cannot be read to its end.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// Some of its records are at fault.
    #[error("{0}")]
    Records(RefusedRecords),
}

impl ProduceError {
    /// The fault; if several records are at fault, one that stands for all.
    pub fn error(&self) -> BatchError {
        match self {
            Self::Batch(error) => *error,
            Self::Records(refused) => refused.error(),
        }
    }

    /// The records that are at fault and named.
    pub fn records(&self) -> &[RefusedRecord] {
        match self {
            Self::Batch(_) => &[],
            Self::Records(refused) => refused.named(),
        }
    }
}

/// Checks a client's batch: header rules first, then each record.
pub fn validate_produced(batch: &Batch<'_>, rules: &ProduceRules) -> Result<ProducedInfo, ProduceError> {
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
) -> Result<ProducedInfo, ProduceError> {
    let mut max_timestamp = TimestampMs(i64::MIN);
    let mut max_timestamp_offset_delta = 0;
    let mut refused: Option<RefusedRecords> = None;
    for expected_delta in 0..header.record_count() {
        if source.at_end()? {
            return Err(BatchError::from(InvalidCause::RecordCount).into());
        }
        let shape = read_record(&mut source)?;
        match check_record(&shape, expected_delta, header, rules) {
            Ok(timestamp) if timestamp > max_timestamp => {
                max_timestamp = timestamp;
                max_timestamp_offset_delta = expected_delta;
            }
            Ok(_) => {}
            Err(error) => note_refused(&mut refused, RefusedRecord { index: expected_delta, error }),
        }
    }
    if !source.at_end()? {
        return Err(BatchError::from(InvalidCause::TrailingBytes).into());
    }
    if let Some(refused) = refused {
        return Err(ProduceError::Records(refused));
    }
    Ok(ProducedInfo {
        record_count: header.record_count(),
        max_timestamp,
        max_timestamp_offset_delta,
        inflated_bytes: source.position(),
    })
}

#[cold]
fn note_refused(refused: &mut Option<RefusedRecords>, record: RefusedRecord) {
    match refused {
        Some(refused) => refused.add(record),
        None => *refused = Some(RefusedRecords::new(record)),
    }
}

/// Checks the rules for the record at this place in its batch; returns its timestamp.
#[inline]
fn check_record(
    shape: &RecordShape,
    index: i32,
    header: &BatchHeader,
    rules: &ProduceRules,
) -> Result<TimestampMs, BatchError> {
    if shape.offset_delta != index {
        return Err(InvalidCause::OffsetDelta.into());
    }
    if rules.require_keys && shape.key.is_none() {
        return Err(InvalidCause::MissingKey.into());
    }
    let base = header.base_timestamp();
    let refused = |timestamp| BatchError::InvalidTimestamp { timestamp, record: index };
    let timestamp = base.0.checked_add(shape.timestamp_delta).map(TimestampMs).ok_or(refused(base))?;
    match rules.timestamps {
        Some(bounds) if !bounds.allow(timestamp) => Err(refused(timestamp)),
        _ => Ok(timestamp),
    }
}
