//! The preparation of produced bytes before the appender's lock is taken: checks, and the changes that a topic's
//! options ask for. One pass for the CRC and one over the records, and no allocation for a single batch that stays as
//! it came.

use bytes::{Bytes, BytesMut};
use riverrun_records::{
    Batch, BatchHeader, Compression, ProduceRules, ProducedInfo, RecompressOptions, TimestampBounds,
    TimestampType, UnverifiedBatch, patch_base_offset, patch_leader_epoch, patch_log_append_time,
    patch_max_timestamp, recompress, validate_produced,
};
use riverrun_types::{LeaderEpoch, Offset, TimestampMs};

use super::append::AppendOptions;
use super::tail::Piece;
use crate::config::LogConfig;
use crate::error::AppendError;
use crate::producer_state::{AppendOrigin, BatchPlace, SequencedBatch};

/// One batch among those to append.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchFacts {
    /// Its position in the bytes to append.
    pub(super) start: usize,
    /// Its header, before base offset and leader epoch are patched.
    pub(super) header: BatchHeader,
    /// The offset that was assigned to its first record; until then the one in the bytes.
    pub(super) base_offset: Offset,
}

impl BatchFacts {
    fn new(start: usize, bytes: &[u8]) -> Result<Self, AppendError> {
        let header = BatchHeader::parse(bytes)?;
        Ok(Self { start, header, base_offset: header.base_offset() })
    }

    /// The offset after its last record.
    pub(super) fn next_offset(&self) -> Offset {
        self.base_offset.plus(i64::from(self.header.last_offset_delta()) + 1)
    }

    /// Its place in the log once it has its offsets.
    pub(super) fn place(&self) -> BatchPlace {
        BatchPlace {
            base_offset: self.base_offset,
            last_offset: self.next_offset().plus(-1),
            timestamp: self.header.max_timestamp(),
        }
    }

    pub(super) fn sequenced(&self) -> SequencedBatch {
        SequencedBatch::from(&self.header)
    }
}

impl From<&BatchHeader> for SequencedBatch {
    fn from(header: &BatchHeader) -> Self {
        Self {
            producer_id: header.producer_id(),
            epoch: header.producer_epoch(),
            first_sequence: header.base_sequence(),
            last_sequence: header.last_sequence(),
        }
    }
}

/// Batches that may be appended.
///
/// Invariants: `first` and `rest` are all batches of the bytes, in order and without gaps.
#[derive(Debug)]
pub(super) struct Prepared {
    bytes: BytesMut,
    first: BatchFacts,
    rest: Vec<BatchFacts>,
    /// The time that was stamped on the records, if the topic asks for it.
    pub(super) log_append_time: Option<TimestampMs>,
}

impl Prepared {
    /// Gives the batches their offsets and their leader epoch, in place: both lie outside the batch's CRC.
    pub(super) fn assign(&mut self, base_offset: Offset, epoch: LeaderEpoch) {
        let mut next = base_offset;
        for batch in std::iter::once(&mut self.first).chain(&mut self.rest) {
            let bytes = &mut self.bytes[batch.start..];
            patch_base_offset(bytes, next);
            patch_leader_epoch(bytes, epoch);
            batch.base_offset = next;
            next = batch.next_offset();
        }
    }

    /// The finished bytes, which nothing changes any more.
    pub(super) fn take_piece(
        &mut self,
        base_offset: Offset,
        epoch: LeaderEpoch,
        cuts: u32,
        now: TimestampMs,
    ) -> Piece {
        Piece {
            base_offset,
            next_offset: base_offset.plus(self.offset_count()),
            epoch,
            cuts,
            max_timestamp: self.max_timestamp(),
            now,
            bytes: std::mem::take(&mut self.bytes).freeze(),
        }
    }

    /// Whether some batch is an idempotent producer's.
    pub(super) fn has_producers(&self) -> bool {
        self.batches().any(|batch| batch.header.has_producer_id())
    }

    /// Bytes of all batches.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn batches(&self) -> impl Iterator<Item = BatchFacts> + '_ {
        std::iter::once(self.first).chain(self.rest.iter().copied())
    }

    /// Largest timestamp of all batches.
    pub(super) fn max_timestamp(&self) -> TimestampMs {
        self.batches().map(|batch| batch.header.max_timestamp()).max().unwrap_or(TimestampMs::NONE)
    }

    /// Offsets that the batches take.
    pub(super) fn offset_count(&self) -> i64 {
        self.batches().map(|batch| i64::from(batch.header.last_offset_delta()) + 1).sum()
    }
}

/// A client's batch that was checked as if it were for a log with certain options, and has their form: for callers that
/// keep batches elsewhere.
#[derive(Debug)]
pub struct ProducedBatch(Prepared);

impl ProducedBatch {
    /// Checks `bytes`, which must be exactly one batch.
    pub fn check(bytes: BytesMut, config: &LogConfig, now: TimestampMs) -> Result<Self, AppendError> {
        prepare(bytes, config, AppendOptions { origin: AppendOrigin::Client, now }).map(Self)
    }

    /// The whole batch.
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// Its header.
    pub fn header(&self) -> &BatchHeader {
        &self.0.first.header
    }

    /// Its producer, epoch and sequences.
    pub fn sequenced(&self) -> SequencedBatch {
        self.0.first.sequenced()
    }

    /// The time that was stamped on the records, if the options ask for it.
    pub fn log_append_time(&self) -> Option<TimestampMs> {
        self.0.log_append_time
    }
}

/// Checks the bytes and brings them into the form that the topic wants.
pub(super) fn prepare(
    bytes: BytesMut,
    config: &LogConfig,
    options: AppendOptions,
) -> Result<Prepared, AppendError> {
    let prepared = match options.origin {
        AppendOrigin::Client => prepare_produced(bytes, config, options.now)?,
        AppendOrigin::Coordinator => prepare_own(bytes)?,
    };
    let total = prepared.bytes.len();
    if total > config.segment_bytes as usize {
        let segment_bytes = config.segment_bytes as usize;
        return Err(AppendError::LargerThanSegment { bytes: total, segment_bytes });
    }
    Ok(prepared)
}

/// Exactly one batch, from outside.
fn prepare_produced(
    mut bytes: BytesMut,
    config: &LogConfig,
    now: TimestampMs,
) -> Result<Prepared, AppendError> {
    let (info, rebuilt) = {
        let unverified = UnverifiedBatch::only(&bytes)?;
        // First, as in Kafka: a batch that is too large anyway is not looked through.
        check_size(bytes.len(), config)?;
        let batch = unverified.verify()?;
        let info = validate_produced(&batch, &rules(config, now))?;
        (info, recompressed(&batch, &info, config)?)
    };
    if let Some(rebuilt) = rebuilt {
        bytes = BytesMut::from(Bytes::from(rebuilt));
    }
    let log_append_time = set_timestamps(&mut bytes, &info, config, now)?;
    let first = BatchFacts::new(0, &bytes)?;
    Ok(Prepared { bytes, first, rest: Vec::new(), log_append_time })
}

/// One or several batches that this server has built a moment ago.
fn prepare_own(bytes: BytesMut) -> Result<Prepared, AppendError> {
    let (batch, mut left) = UnverifiedBatch::split_first(&bytes)?;
    let first = BatchFacts::new(0, batch.bytes())?;
    let mut rest = Vec::new();
    while !left.is_empty() {
        let start = bytes.len() - left.len();
        let (batch, after) = UnverifiedBatch::split_first(left)?;
        rest.push(BatchFacts::new(start, batch.bytes())?);
        left = after;
    }
    Ok(Prepared { bytes, first, rest, log_append_time: None })
}

fn check_size(bytes: usize, config: &LogConfig) -> Result<(), AppendError> {
    let bytes_max = config.max_message_bytes as usize;
    if bytes > bytes_max { Err(AppendError::TooLarge { bytes, bytes_max }) } else { Ok(()) }
}

fn rules(config: &LogConfig, now: TimestampMs) -> ProduceRules {
    let bounds = TimestampBounds {
        now,
        before_max_ms: i64::try_from(config.timestamp_before_max_ms).unwrap_or(i64::MAX),
        after_max_ms: i64::try_from(config.timestamp_after_max_ms).unwrap_or(i64::MAX),
    };
    let is_producers_time = config.timestamp_type == TimestampType::CreateTime;
    ProduceRules { require_keys: config.cleanup.compact, timestamps: is_producers_time.then_some(bounds) }
}

/// The batch in the topic's codec, if that is another. It has to keep to `max.message.bytes`, too.
fn recompressed(
    batch: &Batch<'_>,
    info: &ProducedInfo,
    config: &LogConfig,
) -> Result<Option<Vec<u8>>, AppendError> {
    let wanted: Option<Compression> = config.compression.filter(|wanted| *wanted != batch.compression());
    let Some(wanted) = wanted else { return Ok(None) };
    let level = match config.compression_levels.of(wanted) {
        0 => wanted.default_level(),
        level => level,
    };
    let options = RecompressOptions {
        compression: wanted,
        level,
        inflated_bytes: info.inflated_bytes,
        bytes_max: config.max_message_bytes as usize,
    };
    Ok(Some(recompress(batch, &options)?))
}

/// Stamps the append time, or corrects a header that misstates the largest timestamp: indexes rely on it.
fn set_timestamps(
    batch: &mut [u8],
    info: &ProducedInfo,
    config: &LogConfig,
    now: TimestampMs,
) -> Result<Option<TimestampMs>, AppendError> {
    if config.timestamp_type == TimestampType::LogAppendTime {
        patch_log_append_time(batch, now);
        return Ok(Some(now));
    }
    if BatchHeader::parse(batch)?.max_timestamp() != info.max_timestamp {
        patch_max_timestamp(batch, info.max_timestamp);
    }
    Ok(None)
}
