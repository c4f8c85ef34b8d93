//! The batches of embedded queues: one record, uncompressed, read at once.
//!
//! Gives the same result as [`UnverifiedBatch::trust`](crate::UnverifiedBatch::trust) and an iterator over the
//! records, for the batches that it reads; the others it does not judge. It is for a reader that waits for each
//! message, where copies of a header and of an iterator would be most of the work.

use riverrun_types::{Offset, TimestampMs};

use crate::layout;
use crate::record::Record;
use crate::source::{SliceSource, Source as _};
use crate::walk::read_record;

/// A batch of one record without any attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainBatch<'a> {
    /// Its record.
    pub record: Record<'a>,
    /// Bytes of the batch.
    pub size_bytes: usize,
}

impl<'a> PlainBatch<'a> {
    /// Reads the batch at the beginning of `bytes`. `None` if it is of any other kind, damaged, or not whole: then
    /// [`UnverifiedBatch`](crate::UnverifiedBatch) tells which. The CRC is not checked.
    #[inline]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let header = bytes.first_chunk::<{ layout::HEADER_BYTES }>()?;
        let length = usize::try_from(i32::from_be_bytes(field(header, layout::LENGTH))).ok()?;
        let size_bytes = layout::LENGTH_END + length;
        let payload = bytes.get(layout::RECORDS..size_bytes)?;
        let is_plain = header[layout::MAGIC] as i8 == layout::MAGIC_V2
            && i16::from_be_bytes(field(header, layout::ATTRIBUTES)) == 0
            && i32::from_be_bytes(field(header, layout::LAST_OFFSET_DELTA)) == 0
            && i32::from_be_bytes(field(header, layout::RECORD_COUNT)) == 1;
        if !is_plain {
            return None;
        }
        let mut source = SliceSource::new(payload);
        let shape = read_record(&mut source).ok()?;
        if shape.offset_delta != 0 || source.position() != payload.len() {
            return None;
        }
        let base_timestamp = i64::from_be_bytes(field(header, layout::BASE_TIMESTAMP));
        let record = Record {
            offset: Offset(i64::from_be_bytes(field(header, layout::BASE_OFFSET))),
            timestamp: TimestampMs(base_timestamp.wrapping_add(shape.timestamp_delta)),
            key: shape.key.map(|range| &payload[range]),
            value: shape.value.map(|range| &payload[range]),
            header_count: shape.header_count,
            header_bytes: &payload[shape.headers],
        };
        Some(Self { record, size_bytes })
    }
}

#[inline]
fn field<const N: usize>(header: &[u8; layout::HEADER_BYTES], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&header[at..at + N]);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{BatchBuilder, BatchOptions, Compression, Header, Timestamps, UnverifiedBatch};

    fn batch(options: BatchOptions, values: &[Option<&[u8]>], headers: &[Header<'_>]) -> Vec<u8> {
        let mut builder = BatchBuilder::new(BatchOptions { base_offset: Offset(77), ..options });
        for (index, value) in values.iter().enumerate() {
            let timestamp = TimestampMs(1000 + i64::try_from(index).expect("few"));
            builder.append(timestamp, Some(b"key"), *value, headers).expect("room");
        }
        builder.build().expect("records")
    }

    /// Reads a batch of one record in the general way.
    fn read_generally(bytes: &[u8]) -> Option<PlainBatch<'_>> {
        let (unverified, _) = UnverifiedBatch::split_first(bytes).ok()?;
        let batch = unverified.trust().ok()?;
        let payload = &unverified.bytes()[layout::RECORDS..];
        if batch.attributes() != 0 || batch.record_count() != 1 || batch.last_offset_delta() != 0 {
            return None;
        }
        let mut source = SliceSource::new(payload);
        let shape = read_record(&mut source).ok()?;
        let records = batch.records().ok()?;
        let mut found = records.iter();
        let record = found.next()?.ok()?;
        if found.next().is_some() {
            return None;
        }
        // The iterator borrows from `records`, which ends here: the same fields, of the same bytes.
        let record = Record {
            offset: record.offset,
            timestamp: record.timestamp,
            key: shape.key.map(|range| &payload[range]),
            value: shape.value.map(|range| &payload[range]),
            header_count: record.header_count,
            header_bytes: &payload[shape.headers],
        };
        Some(PlainBatch { record, size_bytes: unverified.bytes().len() })
    }

    #[test]
    fn a_batch_of_one_record_is_read_as_the_general_way_reads_it() {
        let header = Header { key: b"h", value: Some(b"v") };
        for headers in [&[][..], &[header][..]] {
            for value in [None, Some(&b""[..]), Some(&[7; 300][..])] {
                let mut bytes = batch(BatchOptions::default(), &[value], headers);
                let size_bytes = bytes.len();
                bytes.extend_from_slice(b"what comes next");
                let found = PlainBatch::read(&bytes).expect("plain");
                assert_eq!((found.size_bytes, found.record.value), (size_bytes, value));
                assert_eq!((found.record.offset, found.record.timestamp), (Offset(77), TimestampMs(1000)));
                assert_eq!(found.record.headers().collect::<Vec<_>>(), headers);
                assert_eq!(Some(found), read_generally(&bytes));
            }
        }
    }

    #[test]
    fn batches_of_other_kinds_are_left_to_the_general_way() {
        let one = [Some(&b"value"[..])];
        let default = BatchOptions::default();
        for (options, values) in [
            (default, &[one[0], one[0]][..]),
            (BatchOptions { compression: Compression::Lz4, ..default }, &one),
            (BatchOptions { timestamps: Timestamps::Append(TimestampMs(5)), ..default }, &one),
            (BatchOptions { control: true, ..default }, &one),
        ] {
            assert_eq!(PlainBatch::read(&batch(options, values, &[])), None, "{options:?}");
        }
        let bytes = batch(default, &one, &[]);
        for end in 0..bytes.len() {
            assert_eq!(PlainBatch::read(&bytes[..end]), None, "cut at {end}");
        }
    }

    proptest! {
        #[test]
        fn plain_and_general_reading_agree_on_any_batch(
            changes in prop::collection::vec((0_usize..90, any::<u8>()), 0..4),
        ) {
            let header = Header { key: b"h", value: None };
            let mut bytes = batch(BatchOptions::default(), &[Some(b"a value")], &[header]);
            for (at, byte) in changes {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            prop_assert_eq!(PlainBatch::read(&bytes), read_generally(&bytes));
        }
    }
}
