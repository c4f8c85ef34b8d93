//! Options of the work on logs that is the server's and not a topic's: retention runs, the cleaner, checkpoints, the scrub.
//! Options that a topic may set for itself, and the server's defaults for them, stand in the topic's table.

use super::definition::Kind::{Bool, Double, Int, Long};
use super::definition::options;

options! {
    /// Upkeep of logs.
    struct UpkeepOptions;

    /// Milliseconds between two searches for segments that retention lets go.
    log_retention_check_interval_ms: u64 = "log.retention.check.interval.ms", Long(1, i64::MAX), Some("300000");
    /// Milliseconds between two checkpoints, which note up to where each log is on disk. More often means less to look at
    /// after a crash. At the same interval the server looks whether files and directories that it uses were taken away or
    /// replaced. Retention and compaction touch only records that a checkpoint covers, and make one where newer ones are due.
    log_flush_offset_checkpoint_interval_ms: u64 = "log.flush.offset.checkpoint.interval.ms", Int(1, i32::MAX), Some("60000");
    /// Whether topics with the policy `compact` are compacted. Group offsets need it.
    log_cleaner_enable: bool = "log.cleaner.enable", Bool, Some("true");
    /// Partitions of a log dir that are compacted at once at most, each to its end. One more is compacted beside them if it
    /// holds little or is the server's own, so that it does not wait for large ones.
    log_cleaner_threads: usize = "log.cleaner.threads", Int(1, 1024), Some("1");
    /// Bytes of memory for the keys of the logs that are being compacted, over all log dirs and cleaner threads. More means fewer
    /// passes over a log with many keys.
    log_cleaner_dedupe_buffer_size: usize = "log.cleaner.dedupe.buffer.size", Long(1_048_576, i64::MAX), Some("134217728");
    /// Milliseconds to wait before looking again when there was nothing to compact.
    log_cleaner_backoff_ms: u64 = "log.cleaner.backoff.ms", Long(1, i64::MAX), Some("15000");
    /// Milliseconds between the beginnings of two passes of the scrub, which reads sealed segments again and takes a
    /// partition offline if its bytes are not those that were written. 0 or -1: never.
    log_scrub_interval_ms: i64 = "log.scrub.interval.ms", Long(-1, i64::MAX), Some("604800000");
    /// Bytes per second that the scrub may read at most. It takes half of the time between two passes, if it may.
    log_scrub_bytes_per_second: u64 = "log.scrub.bytes.per.second", Long(1, i64::MAX), Some("10485760");
    /// Bytes per second that compaction may read and write together.
    log_cleaner_io_max_bytes_per_second: f64 = "log.cleaner.io.max.bytes.per.second", Double(1.0, f64::MAX), Some("1.7976931348623157E308");
}
