//! Bounds on what comes from outside. Each length, count and queue that the network or a file can drive is
//! named here or is an option of the server; nothing is bounded by a literal at the place of use.

/// Elements in one decoded array at most.
pub const ARRAY_ELEMENTS_MAX: usize = 1_000_000;
/// Decoded objects (array elements, strings, structs) in one request at most.
pub const REQUEST_OBJECTS_MAX: usize = 1_000_000;
/// Tagged fields in one struct at most.
pub const TAGGED_FIELDS_MAX: usize = 10_000;
/// A topic's name in bytes at most (Kafka's bound: it once was a file name).
pub const TOPIC_NAME_BYTES_MAX: usize = 249;
/// Partitions that one topic may have.
pub const TOPIC_PARTITIONS_MAX: i32 = 100_000;
/// Records in one batch at most.
pub const BATCH_RECORDS_MAX: i32 = 1_000_000;
/// Headers on one record at most.
pub const RECORD_HEADERS_MAX: i32 = 100_000;
/// A batch inflates to this many times its compressed size at most, once past [`INFLATE_FLOOR_BYTES`].
pub const INFLATE_RATIO_MAX: usize = 1_000;
/// Inflated bytes that are allowed whatever the ratio.
pub const INFLATE_FLOOR_BYTES: usize = 1024 * 1024;
/// Inflated bytes of one batch at most, whatever the ratio.
pub const INFLATE_BYTES_MAX: usize = 100 * 1024 * 1024;
/// Inflated bytes of one batch at most if its codec has to remember more than 8 MiB of them to go on.
pub const INFLATE_LARGE_WINDOW_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Group ids, member ids, client ids: bytes at most.
pub const NAME_BYTES_MAX: usize = 32 * 1024 - 1;
