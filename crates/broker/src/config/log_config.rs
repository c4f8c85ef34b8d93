//! From a topic's options to the plain values that its logs act on.

use riverrun_log::config::{CleanupPolicy, CompressionLevels, LogConfig};
use riverrun_records::{Compression, TimestampType};

use super::topic::TopicOptions;

impl TopicOptions {
    /// The options of this topic's logs. `producer_id_expiration_ms` is the server's.
    pub fn log_config(&self, producer_id_expiration_ms: u64) -> LogConfig {
        let has_policy = |word: &str| self.cleanup_policy.iter().any(|policy| policy == word);
        LogConfig {
            segment_bytes: self.segment_bytes,
            segment_ms: self.segment_ms,
            segment_jitter_ms: self.segment_jitter_ms,
            segment_index_bytes: self.segment_index_bytes,
            index_interval_bytes: self.index_interval_bytes,
            retention_ms: limit(self.retention_ms),
            retention_bytes: limit(self.retention_bytes),
            cleanup: CleanupPolicy { delete: has_policy("delete"), compact: has_policy("compact") },
            min_compaction_lag_ms: self.min_compaction_lag_ms,
            max_compaction_lag_ms: self.max_compaction_lag_ms,
            delete_retention_ms: self.delete_retention_ms,
            min_cleanable_dirty_ratio: self.min_cleanable_dirty_ratio,
            max_message_bytes: self.max_message_bytes,
            timestamp_type: timestamp_type(&self.message_timestamp_type),
            timestamp_before_max_ms: self.message_timestamp_before_max_ms,
            timestamp_after_max_ms: self.message_timestamp_after_max_ms,
            compression: compression(&self.compression_type),
            compression_levels: CompressionLevels {
                gzip: self.compression_gzip_level,
                lz4: self.compression_lz4_level,
                zstd: self.compression_zstd_level,
            },
            file_delete_delay_ms: self.file_delete_delay_ms,
            producer_id_expiration_ms,
            durability: self.level(),
        }
    }
}

/// Kafka's -1 is no limit.
fn limit(value: i64) -> Option<u64> {
    u64::try_from(value).ok()
}

fn timestamp_type(word: &str) -> TimestampType {
    if word == "LogAppendTime" { TimestampType::LogAppendTime } else { TimestampType::CreateTime }
}

/// `None` for `producer`: batches stay as they came.
fn compression(word: &str) -> Option<Compression> {
    match word {
        "uncompressed" => Some(Compression::None),
        "gzip" => Some(Compression::Gzip),
        "snappy" => Some(Compression::Snappy),
        "lz4" => Some(Compression::Lz4),
        "zstd" => Some(Compression::Zstd),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use riverrun_types::DurabilityLevel;

    use super::*;
    use crate::config::{BrokerConfig, TopicOverrides};

    fn log_config(pairs: &[(&str, &str)]) -> LogConfig {
        let overrides: TopicOverrides =
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let config = BrokerConfig::default();
        config.topic_options("t", &overrides).log_config(config.server.producer_id_expiration_ms)
    }

    #[test]
    fn a_topic_that_sets_nothing_has_the_logs_own_defaults() {
        // A log by itself has no journal.
        let logs = LogConfig { durability: DurabilityLevel::SyncSync, ..LogConfig::default() };
        assert_eq!(log_config(&[]), logs);
    }

    #[test]
    fn words_and_sentinels_become_values() {
        let config = log_config(&[
            ("cleanup.policy", "compact"),
            ("retention.ms", "-1"),
            ("retention.bytes", "5"),
            ("compression.type", "zstd"),
            ("message.timestamp.type", "LogAppendTime"),
        ]);
        assert_eq!(config.cleanup, CleanupPolicy { delete: false, compact: true });
        assert_eq!((config.retention_ms, config.retention_bytes), (None, Some(5)));
        assert_eq!(config.compression, Some(Compression::Zstd));
        assert_eq!(config.timestamp_type, TimestampType::LogAppendTime);
        assert_eq!(log_config(&[("compression.type", "uncompressed")]).compression, Some(Compression::None));
    }
}
