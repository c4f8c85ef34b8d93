//! Options of one log as plain typed values, with Kafka 4.3's defaults. Kafka has no default for durability: here it is
//! the level that a store without a journal can keep, and the server sets its own.
//!
//! The broker owns their names, ranges and texts; here are only the values that the log acts on. A limit that Kafka
//! spells -1 is `None`.

use riverrun_records::{Compression, TimestampType};
use riverrun_types::DurabilityLevel;

/// One day in milliseconds.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// The policy for old records (`cleanup.policy`). Both at once is allowed, and so is neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanupPolicy {
    /// Segments go by time and size.
    pub delete: bool,
    /// The last record of each key stays.
    pub compact: bool,
}

/// Levels that the log uses where it compresses itself (`compression.gzip.level` and so on).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionLevels {
    /// -1 (the library's default) or 1 to 9.
    pub gzip: i32,
    /// 1 to 17.
    pub lz4: i32,
    /// -131072 to 22.
    pub zstd: i32,
}

impl CompressionLevels {
    /// The level for `codec`; 0 for a codec without levels.
    pub fn of(&self, codec: Compression) -> i32 {
        match codec {
            Compression::Gzip => self.gzip,
            Compression::Lz4 => self.lz4,
            Compression::Zstd => self.zstd,
            Compression::None | Compression::Snappy => 0,
        }
    }
}

/// Options of one log. Each field names Kafka's option for a topic, or for the server if topics have none.
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    /// `segment.bytes`: a segment is rolled before it grows past this.
    pub segment_bytes: u32,
    /// `segment.ms`: a segment is rolled when its records span this time; see [`Self::segment_span_ms_max`].
    pub segment_ms: u64,
    /// `segment.jitter.ms`: up to so much is taken off `segment.ms` at random, so that not all logs roll at once.
    pub segment_jitter_ms: u64,
    /// `segment.index.bytes`: a segment is rolled when its index is this large.
    pub segment_index_bytes: u32,
    /// `index.interval.bytes`: bytes of batches between two entries of the index; 16 KiB if it is more.
    pub index_interval_bytes: u32,
    /// `retention.ms`; `None`: for ever.
    pub retention_ms: Option<u64>,
    /// `retention.bytes`; `None`: without limit.
    pub retention_bytes: Option<u64>,
    /// `cleanup.policy`.
    pub cleanup: CleanupPolicy,
    /// `min.compaction.lag.ms`: records younger than this are not compacted.
    pub min_compaction_lag_ms: u64,
    /// `max.compaction.lag.ms`: records older than this are compacted however little there is to gain.
    pub max_compaction_lag_ms: u64,
    /// `delete.retention.ms`: how long a tombstone stays after it was first compacted.
    pub delete_retention_ms: u64,
    /// `min.cleanable.dirty.ratio`: compaction starts above this share of dirty bytes, 0 to 1.
    pub min_cleanable_dirty_ratio: f64,
    /// `max.message.bytes`: bytes of a batch at most, as it is stored.
    pub max_message_bytes: u32,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`: how far a record's timestamp may lie before the server's clock.
    pub timestamp_before_max_ms: u64,
    /// `message.timestamp.after.max.ms`: how far a record's timestamp may lie after the server's clock.
    pub timestamp_after_max_ms: u64,
    /// `compression.type`; `None` is `producer`: batches stay as they came.
    pub compression: Option<Compression>,
    /// `compression.gzip.level`, `compression.lz4.level`, `compression.zstd.level`.
    pub compression_levels: CompressionLevels,
    /// `file.delete.delay.ms`: how long the files of a deleted segment stay, for readers that still have them.
    pub file_delete_delay_ms: u64,
    /// `producer.id.expiration.ms` of the server: how long a silent idempotent producer is remembered.
    pub producer_id_expiration_ms: u64,
    /// `durability`: the failures that an acked record survives.
    pub durability: DurabilityLevel,
}

/// Kafka's largest `long`: its "no limit" for options that do not take -1.
const KAFKA_LONG_MAX: u64 = i64::MAX.unsigned_abs();

impl LogConfig {
    /// How long the records of a segment may span: compaction leaves the active segment alone, so that of a compacted
    /// log ends when its first record is `max.compaction.lag.ms` old, as in Kafka.
    pub fn segment_span_ms_max(&self) -> u64 {
        if self.cleanup.compact { self.segment_ms.min(self.max_compaction_lag_ms) } else { self.segment_ms }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 1024 * 1024 * 1024,
            segment_ms: 7 * DAY_MS,
            segment_jitter_ms: 0,
            segment_index_bytes: 10 * 1024 * 1024,
            index_interval_bytes: 4096,
            retention_ms: Some(7 * DAY_MS),
            retention_bytes: None,
            cleanup: CleanupPolicy { delete: true, compact: false },
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: KAFKA_LONG_MAX,
            delete_retention_ms: DAY_MS,
            min_cleanable_dirty_ratio: 0.5,
            max_message_bytes: 1_048_588,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: KAFKA_LONG_MAX,
            timestamp_after_max_ms: 60 * 60 * 1000,
            compression: None,
            compression_levels: CompressionLevels { gzip: -1, lz4: 9, zstd: 3 },
            file_delete_delay_ms: 60_000,
            producer_id_expiration_ms: DAY_MS,
            durability: DurabilityLevel::AsyncAsync,
        }
    }
}
