//! The part that appends of one value each have in common: everything before the value except offset and CRC.
//!
//! Batch header and record prefix depend on the value's length and on the time, which the kernel's tick moves some
//! hundred times a second. So an append can mostly use those of the append before, with their checksum.

use riverrun_records::layout;
use riverrun_types::{LeaderEpoch, Offset};

use crate::batch::{BatchFields, Cursor, PREFIX_BYTES_MAX, Shape};
use crate::crc;

/// The bytes after the value: no headers.
const SUFFIX: [u8; 1] = [0];

/// The bytes before a value.
///
/// Invariants: `prefix[..prefix_bytes]` are of a batch of one record without key and headers, whose value has
/// `value_bytes` at `timestamp`; offset and CRC are zeros. `sum` is the checksum of the part that the CRC covers.
#[derive(Debug)]
pub(crate) struct Template {
    value_bytes: usize,
    timestamp: i64,
    epoch: LeaderEpoch,
    size_bytes: usize,
    prefix: [u8; PREFIX_BYTES_MAX],
    prefix_bytes: usize,
    sum: u32,
}

impl Template {
    pub(crate) fn new(epoch: LeaderEpoch) -> Self {
        let mut template = Self {
            value_bytes: 0,
            timestamp: 0,
            epoch,
            size_bytes: 0,
            prefix: [0; PREFIX_BYTES_MAX],
            prefix_bytes: 0,
            sum: 0,
        };
        template.make();
        template
    }

    /// Adapts the template to a value of this length at this time.
    #[inline]
    pub(crate) fn fit(&mut self, value_bytes: usize, timestamp: i64) {
        if (self.value_bytes, self.timestamp) != (value_bytes, timestamp) {
            (self.value_bytes, self.timestamp) = (value_bytes, timestamp);
            self.make();
        }
    }

    #[cold]
    fn make(&mut self) {
        let shape = Shape {
            key: None,
            value_bytes: Some(self.value_bytes),
            headers: &[],
            timestamp_delta: 0,
            offset_delta: 0,
        };
        self.size_bytes = layout::HEADER_BYTES + shape.record_bytes();
        let fields = BatchFields {
            base_offset: Offset::ZERO,
            epoch: self.epoch,
            size_bytes: self.size_bytes,
            record_count: 1,
            base_timestamp: self.timestamp,
            max_timestamp: self.timestamp,
        };
        let (header, record) = self.prefix.split_at_mut(layout::HEADER_BYTES);
        if let Some(header) = header.first_chunk_mut() {
            fields.put(header);
        }
        let mut cursor = Cursor::new(record);
        shape.put_before_value(&mut cursor);
        self.prefix_bytes = layout::HEADER_BYTES + cursor.at();
        self.sum = crc::extend(0, &self.prefix[layout::ATTRIBUTES..self.prefix_bytes]);
    }

    /// Bytes of the batch.
    #[inline]
    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// The CRC of the batch around `value`.
    #[inline]
    pub(crate) fn sum(&self, value: &[u8]) -> u32 {
        crc::extend_by(self.sum, value, &SUFFIX)
    }

    /// Writes the batch around `value`, which has the template's length, into `out`, which has the batch's.
    #[inline]
    pub(crate) fn put(&self, out: &mut [u8], value: &[u8], sum: u32, offset: Offset) {
        let (before, rest) = out.split_at_mut(self.prefix_bytes);
        before.copy_from_slice(&self.prefix[..self.prefix_bytes]);
        before[..layout::LENGTH].copy_from_slice(&offset.0.to_be_bytes());
        before[layout::CRC..layout::ATTRIBUTES].copy_from_slice(&sum.to_be_bytes());
        let (middle, after) = rest.split_at_mut(value.len());
        middle.copy_from_slice(value);
        after.copy_from_slice(&SUFFIX);
    }
}

#[cfg(test)]
mod tests {
    use riverrun_records::UnverifiedBatch;

    use super::*;

    #[test]
    fn template_writes_a_batch_of_one_record_with_the_value() {
        let mut template = Template::new(LeaderEpoch(3));
        let lens = [0, 1, 7, 7, 8, 57, 58, 63, 64, 120, 127, 128, 512, 512, 1600, 0];
        for (index, len) in lens.into_iter().enumerate() {
            let value: Vec<u8> = (0..len).map(|byte| (byte * 7 + index) as u8).collect();
            // Times whose encodings differ in length, some twice.
            let (offset, timestamp) = (Offset(index as i64 * 1000), i64::from(index as i32 / 2) << 30);
            template.fit(len, timestamp);
            let mut out = vec![0; template.size_bytes()];
            template.put(&mut out, &value, template.sum(&value), offset);
            let batch = UnverifiedBatch::only(&out).and_then(UnverifiedBatch::verify).expect("a good batch");
            assert_eq!((batch.base_offset(), batch.leader_epoch()), (offset, LeaderEpoch(3)));
            let records = batch.records().expect("readable");
            let records: Vec<_> = records.iter().map(|record| record.expect("whole")).collect();
            assert_eq!(records.len(), 1);
            let found = (records[0].offset, records[0].timestamp.0, records[0].key, records[0].value);
            assert_eq!(found, (offset, timestamp, None, Some(value.as_slice())));
            assert_eq!(records[0].headers().count(), 0);
        }
    }
}
