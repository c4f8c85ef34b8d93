//! The layout of a segment's `.index` file, drawn once: the bytes, not the file.
//!
//! ```text
//! header, 44 bytes                             entry, 24 bytes
//!   magic "RRsegidx"          8                  relative offset           u32
//!   version                   u16                position                  u32
//!   zero                      u16                largest timestamp         i64
//!   topic id                  16                 running checksum          u32
//!   partition index           i32                CRC-32C                   u32
//!   base offset               i64
//!   CRC-32C of all before     u32
//! ```
//! All big-endian. An entry marks a boundary between batches: all batches before `position` end below base offset +
//! relative offset, have no timestamp above the largest one, and their first 21 bytes each, in order, have the
//! running checksum; all batches from `position` on begin at base offset + relative offset or later. So the same
//! entries find offsets, positions and times. The boundary at position 0 needs no entry; a sealed segment's last entry
//! is its end. There is one entry at most for each batch, so that the length of the `.log` bounds that of its index, and one
//! at least for each [`INTERVAL_BYTES_MAX`] and the batch that reaches beyond: that bounds what a lookup walks.
//!
//! The first 21 bytes of a batch are what its own CRC does not cover (base offset, length, leader epoch, magic), and
//! that CRC. Through it the running checksum covers every byte, so that a batch that was replaced by another valid
//! one is found as well. An entry's CRC begins with the header's CRC and the entry's number: an entry that was
//! written for another segment, or that lies in the wrong place, is found.
//!
//! The version also stands for the `.log` beside the index, which holds nothing but batches. It rises with each
//! change of either; a newer one is refused by name.

use riverrun_records::{BatchHeader, layout};
use riverrun_types::{Offset, PartitionId, TimestampMs, TopicId};

use crate::fields::{DecodeError, FieldReader};

/// Newest version that this program reads, and the one that it writes.
pub(crate) const INDEX_VERSION: u16 = 1;
/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 44;
/// Bytes of one entry.
pub(crate) const ENTRY_BYTES: usize = 24;
/// Bytes of each batch that the running checksum goes over.
pub(crate) const STAMP_BYTES: usize = layout::ATTRIBUTES;
/// Bytes of batches between two entries at most, whatever `index.interval.bytes` asks for: a lookup walks from one entry up
/// to the next, which with the smallest batches are some 240 headers, a fraction of a millisecond. To keep to it costs an
/// index 24 bytes for each 16 KiB of its segment.
pub(crate) const INTERVAL_BYTES_MAX: u32 = 16 * 1024;
/// Offsets that one segment may span: Kafka's bound.
pub(crate) const OFFSET_SPAN_MAX: i64 = i32::MAX as i64;

/// The error for an entry whose checksum is wrong.
pub(crate) const BAD_ENTRY: DecodeError = DecodeError::Checksum("an entry of a segment's index");

const MAGIC: &[u8; 8] = b"RRsegidx";
const NAME: &str = "a segment's index";
const ENTRY_BODY_BYTES: usize = ENTRY_BYTES - size_of::<u32>();
const HEADER_BODY_BYTES: usize = HEADER_BYTES - size_of::<u32>();

const _: () = assert!(HEADER_BODY_BYTES == 8 + 2 + 2 + 16 + 4 + 8);
const _: () = assert!(STAMP_BYTES == 21);

/// The bytes of a batch that go into the running checksum.
pub(crate) type Stamp = [u8; STAMP_BYTES];

/// The segment that an index belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexHeader {
    pub(crate) partition: PartitionId,
    pub(crate) base_offset: Offset,
}

impl IndexHeader {
    pub(crate) fn encode(self) -> [u8; HEADER_BYTES] {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&INDEX_VERSION.to_be_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&self.partition.topic.0);
        out.extend_from_slice(&self.partition.index.to_be_bytes());
        out.extend_from_slice(&self.base_offset.0.to_be_bytes());
        out.extend_from_slice(&crc32c::crc32c(&out).to_be_bytes());
        out.try_into().expect("the fields fill the header")
    }

    /// Checks that `bytes` are the header of this index.
    pub(crate) fn check(self, bytes: &[u8; HEADER_BYTES]) -> Result<(), DecodeError> {
        let mut reader = FieldReader::new(bytes);
        if reader.array::<8>(NAME)? != *MAGIC {
            return Err(DecodeError::WrongMagic(NAME));
        }
        let found = reader.u16(NAME)?;
        if found > INDEX_VERSION {
            return Err(DecodeError::NewerVersion { name: NAME, found, supported: INDEX_VERSION });
        }
        let (body, checksum) = bytes.split_at(HEADER_BODY_BYTES);
        if crc32c::crc32c(body).to_be_bytes() != checksum {
            return Err(DecodeError::Checksum(NAME));
        }
        let zero = reader.u16(NAME)?;
        let topic = TopicId(reader.array(NAME)?);
        let partition = PartitionId { topic, index: reader.i32(NAME)? };
        let base_offset = Offset(reader.i64(NAME)?);
        if zero != 0 {
            Err(DecodeError::Invalid(NAME))
        } else if (Self { partition, base_offset }) == self {
            Ok(())
        } else {
            Err(DecodeError::OtherSegment { partition, base_offset })
        }
    }

    /// Start value of each entry's CRC.
    fn seed(self) -> u32 {
        crc32c::crc32c(&self.encode())
    }

    pub(crate) fn codec(self) -> EntryCodec {
        EntryCodec { seed: self.seed() }
    }
}

/// A boundary between batches, and what is true of the batches before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) relative_offset: u32,
    pub(crate) position: u32,
    pub(crate) max_timestamp: TimestampMs,
    pub(crate) running_checksum: u32,
}

impl IndexEntry {
    /// The boundary before the first batch, which no file holds.
    pub(crate) const START: Self =
        Self { relative_offset: 0, position: 0, max_timestamp: TimestampMs::NONE, running_checksum: 0 };
}

/// Writes and reads the entries of one index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryCodec {
    seed: u32,
}

impl EntryCodec {
    pub(crate) fn encode(self, number: u32, entry: IndexEntry) -> [u8; ENTRY_BYTES] {
        let mut out = [0; ENTRY_BYTES];
        out[0..4].copy_from_slice(&entry.relative_offset.to_be_bytes());
        out[4..8].copy_from_slice(&entry.position.to_be_bytes());
        out[8..16].copy_from_slice(&entry.max_timestamp.0.to_be_bytes());
        out[16..20].copy_from_slice(&entry.running_checksum.to_be_bytes());
        let checksum = self.checksum(number, &out[..ENTRY_BODY_BYTES]);
        out[ENTRY_BODY_BYTES..].copy_from_slice(&checksum.to_be_bytes());
        out
    }

    pub(crate) fn decode(self, number: u32, bytes: &[u8]) -> Result<IndexEntry, DecodeError> {
        let mut reader = FieldReader::new(bytes);
        let entry = IndexEntry {
            relative_offset: reader.u32(NAME)?,
            position: reader.u32(NAME)?,
            max_timestamp: TimestampMs(reader.i64(NAME)?),
            running_checksum: reader.u32(NAME)?,
        };
        if reader.u32(NAME)? != self.checksum(number, &bytes[..ENTRY_BODY_BYTES]) {
            return Err(BAD_ENTRY);
        }
        Ok(entry)
    }

    fn checksum(self, number: u32, body: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c_append(self.seed, &number.to_be_bytes()), body)
    }
}

/// Position of entry `number` in the file.
pub(crate) fn entry_position(number: u32) -> u64 {
    HEADER_BYTES as u64 + u64::from(number) * ENTRY_BYTES as u64
}

/// The content of the next entry, kept while batches are appended or scanned.
///
/// Invariants: describes all batches before `position`; `indexed_position` is that of the last entry, 0 without one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexCursor {
    base_offset: Offset,
    interval_bytes: u32,
    indexed_position: u64,
    pub(crate) position: u64,
    pub(crate) max_timestamp: TimestampMs,
    pub(crate) running_checksum: u32,
}

impl IndexCursor {
    /// A cursor at a boundary that has an entry, or at the start. Entries come at least every [`INTERVAL_BYTES_MAX`],
    /// however large `interval_bytes` is.
    pub(crate) fn at(base_offset: Offset, entry: IndexEntry, interval_bytes: u32) -> Self {
        Self {
            base_offset,
            interval_bytes: interval_bytes.clamp(1, INTERVAL_BYTES_MAX),
            indexed_position: u64::from(entry.position),
            position: u64::from(entry.position),
            max_timestamp: entry.max_timestamp,
            running_checksum: entry.running_checksum,
        }
    }

    /// The entry for the boundary before a batch that begins at `offset`, if the last one is far enough behind.
    pub(crate) fn entry_due(&mut self, offset: Offset) -> Option<IndexEntry> {
        let is_due = self.position - self.indexed_position >= u64::from(self.interval_bytes);
        is_due.then(|| self.entry(offset))
    }

    /// The entry for the end of the batches so far, unless the last entry is there.
    pub(crate) fn end_entry(&mut self, next_offset: Offset) -> Option<IndexEntry> {
        (self.position > self.indexed_position).then(|| self.entry(next_offset))
    }

    fn entry(&mut self, offset: Offset) -> IndexEntry {
        self.indexed_position = self.position;
        let fits = "a segment is rolled before its positions and offsets outgrow 32 bits";
        IndexEntry {
            relative_offset: u32::try_from(offset.0 - self.base_offset.0).expect(fits),
            position: u32::try_from(self.position).expect(fits),
            max_timestamp: self.max_timestamp,
            running_checksum: self.running_checksum,
        }
    }

    /// Takes in the batch at the cursor.
    pub(crate) fn pass(&mut self, header: &BatchHeader, stamp: &Stamp) {
        self.position += header.size_bytes() as u64;
        self.max_timestamp = self.max_timestamp.max(header.max_timestamp());
        self.running_checksum = crc32c::crc32c_append(self.running_checksum, stamp);
    }

    /// Takes in a damaged batch at the cursor. Only its stamp and its end may be believed.
    pub(crate) fn pass_damaged(&mut self, end: u64, stamp: &Stamp) {
        self.position = end;
        self.running_checksum = crc32c::crc32c_append(self.running_checksum, stamp);
    }
}

/// The fault if the batches before an entry at `position` have another running checksum.
pub(crate) fn not_written(position: u64) -> String {
    format!("the batches from here to byte {position} are not those that were written (running checksum)")
}

/// The stamp of a whole batch.
///
/// # Panics
/// If `batch` is shorter than a batch's header.
pub(crate) fn stamp_of(batch: &[u8]) -> Stamp {
    *batch.first_chunk().expect("a whole batch")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(index: i32) -> IndexHeader {
        IndexHeader { partition: PartitionId { topic: TopicId([7; 16]), index }, base_offset: Offset(100) }
    }

    const ENTRY: IndexEntry = IndexEntry {
        relative_offset: 5,
        position: 4096,
        max_timestamp: TimestampMs(99),
        running_checksum: 0xabcd,
    };

    #[test]
    fn every_flipped_bit_of_header_and_entry_is_found() {
        let bytes = header(3).encode();
        assert_eq!(header(3).check(&bytes), Ok(()));
        for bit in 0..HEADER_BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(header(3).check(&damaged).is_err(), "bit {bit}");
        }
        let codec = header(3).codec();
        let bytes = codec.encode(9, ENTRY);
        assert_eq!(codec.decode(9, &bytes), Ok(ENTRY));
        for bit in 0..ENTRY_BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(codec.decode(9, &damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn entry_of_another_segment_or_place_is_refused() {
        let bytes = header(3).encode();
        let IndexHeader { partition, base_offset } = header(3);
        assert_eq!(header(4).check(&bytes), Err(DecodeError::OtherSegment { partition, base_offset }));
        let entry = header(3).codec().encode(9, ENTRY);
        assert!(header(4).codec().decode(9, &entry).is_err());
        assert!(header(3).codec().decode(8, &entry).is_err());
    }

    #[test]
    fn entries_are_never_further_apart_than_a_walk_may_be_long() {
        let mut cursor = IndexCursor::at(Offset(0), IndexEntry::START, u32::MAX);
        let (mut indexed, mut entries) = (0, 0);
        for offset in 0..10_000 {
            if let Some(entry) = cursor.entry_due(Offset(offset)) {
                (indexed, entries) = (cursor.position, entries + 1);
                assert_eq!(u64::from(entry.position), indexed);
            }
            cursor.pass_damaged(cursor.position + 69, &[0; STAMP_BYTES]);
            assert!(cursor.position - indexed <= u64::from(INTERVAL_BYTES_MAX) + 69, "at {offset}");
        }
        assert_eq!(entries, 690_000 / u64::from(INTERVAL_BYTES_MAX.next_multiple_of(69)));
    }

    #[test]
    fn a_newer_version_is_refused_by_name() {
        let mut bytes = header(3).encode();
        bytes[9] = 2;
        let error = header(3).check(&bytes).unwrap_err();
        assert_eq!(error, DecodeError::NewerVersion { name: NAME, found: 2, supported: 1 });
        assert!(error.to_string().contains("segment's index"));
    }
}
