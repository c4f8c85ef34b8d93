//! The records of a verified batch, as borrowed views.
//!
//! Guarantees that offsets rise strictly within the batch's range and that every length lies inside its record.
//! An uncompressed batch is read in place; a compressed one is inflated once, within its bound.

use bytes::Bytes;
use riverrun_types::{Offset, TimestampMs};

use crate::batch::Batch;
use crate::error::{BatchError, InvalidCause};
use crate::header::BatchHeader;
use crate::inflate::decompress;
use crate::source::{SliceSource, Source as _};
use crate::walk::{RecordShape, read_header, read_record};

/// The records of one batch, uncompressed.
#[derive(Clone, Debug)]
pub struct BatchRecords<'a> {
    header: BatchHeader,
    data: Data<'a>,
}

#[derive(Clone, Debug)]
enum Data<'a> {
    InPlace(&'a [u8]),
    Inflated(Bytes),
}

impl<'a> BatchRecords<'a> {
    pub(crate) fn open(batch: &Batch<'a>) -> Result<Self, BatchError> {
        let header = *batch.header();
        let data = if batch.is_compressed() {
            Data::Inflated(inflated(batch)?.into())
        } else {
            Data::InPlace(batch.payload())
        };
        Ok(Self { header, data })
    }

    /// The buffer that keys and values were inflated into, so that they can be kept without a copy
    /// (`Bytes::slice_ref`); `None` if they lie in the batch itself.
    pub fn inflated(&self) -> Option<&Bytes> {
        match &self.data {
            Data::InPlace(_) => None,
            Data::Inflated(bytes) => Some(bytes),
        }
    }

    /// The records' bytes, uncompressed.
    pub fn bytes(&self) -> &[u8] {
        match &self.data {
            Data::InPlace(bytes) => bytes,
            Data::Inflated(bytes) => bytes,
        }
    }

    /// Iterates over the records.
    pub fn iter(&self) -> RecordIter<'_> {
        RecordIter { header: self.header, bytes: self.bytes(), position: 0, seen: 0, previous_delta: -1 }
    }
}

/// A batch's records, inflated, in no more than twice the memory: they may be kept for long.
fn inflated(batch: &Batch<'_>) -> Result<Vec<u8>, BatchError> {
    let mut inflated = Vec::new();
    decompress(batch.compression(), batch.payload(), &mut inflated)?;
    if inflated.capacity() / 2 > inflated.len() {
        inflated.shrink_to_fit();
    }
    Ok(inflated)
}

impl<'a> IntoIterator for &'a BatchRecords<'_> {
    type Item = Result<Record<'a>, BatchError>;
    type IntoIter = RecordIter<'a>;

    fn into_iter(self) -> RecordIter<'a> {
        self.iter()
    }
}

/// Iterator over records. Ends after the first error; bytes after the last record are an error too.
///
/// Invariants: `position` is where the next record begins; `seen` records lie before it, the last of them with
/// `previous_delta`. After an error `seen` is past every count.
#[derive(Clone, Debug)]
pub struct RecordIter<'a> {
    header: BatchHeader,
    bytes: &'a [u8],
    position: usize,
    seen: u32,
    previous_delta: i32,
}

impl<'a> RecordIter<'a> {
    fn read(&mut self) -> Result<Record<'a>, BatchError> {
        let mut source = SliceSource::at(self.bytes, self.position);
        let shape = read_record(&mut source)?;
        self.previous_delta = self.header.check_delta(self.previous_delta, shape.offset_delta)?;
        self.position = source.position();
        Ok(self.view(&shape))
    }

    fn view(&self, shape: &RecordShape) -> Record<'a> {
        let bytes = self.bytes;
        Record {
            offset: self.header.offset_at(shape.offset_delta),
            timestamp: self.header.timestamp_at(shape.timestamp_delta),
            key: shape.key.clone().map(|range| &bytes[range]),
            value: shape.value.clone().map(|range| &bytes[range]),
            header_count: shape.header_count,
            header_bytes: &bytes[shape.headers.clone()],
        }
    }
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<Record<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let count = self.header.record_count() as u32;
        if self.seen > count {
            return None;
        }
        self.seen += 1;
        if self.seen <= count {
            let record = self.read();
            if record.is_err() {
                self.seen = u32::MAX;
            }
            return Some(record);
        }
        // After the last record nothing may be left.
        (self.position < self.bytes.len()).then_some(Err(InvalidCause::TrailingBytes.into()))
    }
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its position in the partition.
    pub offset: Offset,
    /// Its own timestamp, or the batch's append time.
    pub timestamp: TimestampMs,
    /// The key, if it has one.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is a tombstone where a topic is compacted.
    pub value: Option<&'a [u8]>,
    pub(crate) header_count: usize,
    pub(crate) header_bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record's headers, in order; keys may repeat.
    pub fn headers(&self) -> Headers<'a> {
        Headers { bytes: self.header_bytes, position: 0, left: self.header_count }
    }
}

/// One header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The key; UTF-8 from every known client, and not checked.
    pub key: &'a [u8],
    /// The value, if it has one.
    pub value: Option<&'a [u8]>,
}

/// Iterator over a record's headers.
///
/// Invariants: the `left` headers from `position` on were walked when the record was read, so reading them again
/// does not fail.
#[derive(Clone, Debug)]
pub struct Headers<'a> {
    bytes: &'a [u8],
    position: usize,
    left: usize,
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        self.left = self.left.checked_sub(1)?;
        let bytes = self.bytes;
        let mut source = SliceSource::at(bytes, self.position);
        let (key, value) = read_header(&mut source, bytes.len()).ok()?;
        self.position = source.position();
        Some(Header { key: &bytes[key], value: value.map(|range| &bytes[range]) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Headers<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchBuilder, BatchOptions, Compression, UnverifiedBatch};

    #[test]
    fn inflated_records_keep_no_more_than_twice_their_memory() {
        for value_bytes in [10, 1000, 20_000, 1_000_000] {
            let options = BatchOptions { compression: Compression::Gzip, ..BatchOptions::default() };
            let mut builder = BatchBuilder::new(options);
            builder.append(TimestampMs(0), None, Some(&vec![7; value_bytes]), &[]).unwrap();
            let bytes = builder.build().unwrap();
            let batch = UnverifiedBatch::split_first(&bytes).unwrap().0.verify().unwrap();
            let inflated = inflated(&batch).unwrap();
            assert!(inflated.len() > value_bytes && inflated.capacity() <= 2 * inflated.len() + 1);
        }
    }
}
