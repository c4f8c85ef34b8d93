//! Bounds on input from outside. Each length, count and queue that the network or a file can drive is named here, in an
//! option, or in a constant at the head of the module that enforces it; none is a literal at the place of use.

/// Upper bound of elements in one decoded array.
pub const ARRAY_ELEMENTS_MAX: usize = 1_000_000;
/// Upper bound of decoded objects (array elements, strings, structs) in one request.
pub const REQUEST_OBJECTS_MAX: usize = 1_000_000;
/// Upper bound of tagged fields in one struct.
pub const TAGGED_FIELDS_MAX: usize = 10_000;
/// Upper bound of a topic's name in bytes (Kafka's bound: it once was a file name).
pub const TOPIC_NAME_BYTES_MAX: usize = 249;
/// Upper bound of a topic's partitions.
pub const TOPIC_PARTITIONS_MAX: i32 = 100_000;
/// Upper bound of records in one batch.
pub const BATCH_RECORDS_MAX: i32 = 1_000_000;
/// Upper bound of refused records that the answer to one produce request names: each takes some hundred bytes of an
/// answer that a few compressed bytes can ask for. For the others the client learns only that their batch was
/// refused.
pub const REFUSED_RECORDS_NAMED_MAX: usize = 1_000;
/// Upper bound of headers on one record.
pub const RECORD_HEADERS_MAX: i32 = 100_000;
/// Upper bound of inflated bytes of one batch from a client. There is no bound on the ratio: a batch of equal bytes
/// is as good as any other, and an accepted batch must stay readable however it is compressed later.
pub const INFLATE_PRODUCED_BYTES_MAX: usize = 100 * 1024 * 1024;
/// As [`INFLATE_PRODUCED_BYTES_MAX`], for a batch whose codec has to remember more than 8 MiB: a zstd window above
/// that.
pub const INFLATE_LARGE_WINDOW_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Upper bound of inflated bytes of one stored batch, whatever its codec: the only bound on stored batches.
pub const INFLATE_STORED_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Bytes by which a record may grow when it is encoded anew: a timestamp further from the batch's takes up to 9 more,
/// and then the record's length one more.
const RECORD_GROWTH_BYTES_MAX: usize = 10;

// A batch that compaction writes from an accepted one can be read.
const _: () = assert!(
    INFLATE_STORED_BYTES_MAX
        >= INFLATE_PRODUCED_BYTES_MAX + BATCH_RECORDS_MAX as usize * RECORD_GROWTH_BYTES_MAX
);
/// Upper bound of group ids, member ids and client ids in bytes.
pub const NAME_BYTES_MAX: usize = 32 * 1024 - 1;
