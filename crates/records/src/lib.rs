//! Record batches, version 2: the one byte format that a record keeps from producer to consumer.
//!
//! Owns the layout ([`layout`]), the typed states from unchecked bytes to a checked batch ([`UnverifiedBatch`],
//! [`Batch`]), iteration over records, a broker's checks of a produced batch ([`validate_produced`]), the fields that
//! may be patched in place, the builder, and the four codecs with bounded inflation. Guarantees that no input panics,
//! and that inflating allocates no more than its bound. Refuses formats 0 and 1. Knows no files, no clocks and no
//! wire messages.
//!
//! ```
//! use riverrun_records::{BatchBuilder, BatchOptions, Compression, UnverifiedBatch};
//! use riverrun_types::TimestampMs;
//!
//! let mut builder = BatchBuilder::new(BatchOptions { compression: Compression::Lz4, ..BatchOptions::default() });
//! builder.append(TimestampMs(1_700_000_000_000), Some(b"key"), Some(b"value"), &[])?;
//! let bytes = builder.build()?;
//!
//! let (unverified, rest) = UnverifiedBatch::split_first(&bytes)?;
//! assert!(rest.is_empty());
//! let batch = unverified.verify()?;
//! let records = batch.records()?;
//! for record in &records {
//!     assert_eq!(record?.value, Some(b"value".as_slice()));
//! }
//! # Ok::<(), riverrun_records::BatchError>(())
//! ```

mod batch;
mod builder;
mod codec;
mod compression;
mod error;
mod header;
mod inflate;
pub mod layout;
mod patch;
mod plain;
mod record;
mod source;
mod stamps;
mod validate;
mod varint;
mod walk;

pub use batch::{Batch, Batches, UnverifiedBatch};
pub use builder::{BatchBuilder, BatchOptions, ProducerStamp, RetainOptions, Timestamps};
pub use compression::{Compression, ParseCompressionError, RecompressOptions, compress, recompress};
pub use error::{BatchError, CorruptCause, Excess, InvalidCause};
pub use header::{BatchHeader, TimestampType, increment_sequence};
pub use inflate::decompress;
pub use patch::{
    patch_base_offset, patch_leader_epoch, patch_log_append_time, patch_max_timestamp, patch_producer,
    uncovered_checksum,
};
pub use plain::PlainBatch;
pub use record::{BatchRecords, Header, Headers, Record, RecordIter};
pub use stamps::RecordStamp;
pub use validate::{
    ProduceError, ProduceRules, ProducedInfo, RefusedRecord, RefusedRecords, TimestampBounds,
    validate_produced,
};
