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
/// Refused records of one produce request that are named to the client at most: each takes some hundred bytes of an answer
/// that a few compressed bytes can ask for. The client is told of the others that their batch was refused.
pub const REFUSED_RECORDS_NAMED_MAX: usize = 1_000;
/// Headers on one record at most.
pub const RECORD_HEADERS_MAX: i32 = 100_000;
/// Inflated bytes of one batch that a client sends at most. There is no bound on the ratio: a batch of equal bytes is
/// as good as any other, and whatever is accepted must stay readable however it is compressed later.
pub const INFLATE_PRODUCED_BYTES_MAX: usize = 100 * 1024 * 1024;
/// The same if its codec has to remember more than 8 MiB of them to go on.
pub const INFLATE_LARGE_WINDOW_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Inflated bytes of one batch that is read at most. The only bound on what is stored, whatever its codec.
pub const INFLATE_STORED_BYTES_MAX: usize = 128 * 1024 * 1024;
/// By how many bytes a record may grow when it is encoded anew: a timestamp further from the batch's takes up to 9
/// more, and then the record's length one more.
const RECORD_GROWTH_BYTES_MAX: usize = 10;

// What compaction writes of an accepted batch can be read.
const _: () = assert!(
    INFLATE_STORED_BYTES_MAX
        >= INFLATE_PRODUCED_BYTES_MAX + BATCH_RECORDS_MAX as usize * RECORD_GROWTH_BYTES_MAX
);
/// Group ids, member ids, client ids: bytes at most.
pub const NAME_BYTES_MAX: usize = 32 * 1024 - 1;
