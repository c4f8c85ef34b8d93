//! The shape of one record: where its fields lie. The only place that knows how to read a record, for checking (over
//! slices and streams) and for iterating alike.

use std::ops::Range;

use riverrun_types::limits::RECORD_HEADERS_MAX;

use crate::error::{BatchError, Excess, InvalidCause};
use crate::source::Source;

/// A record's fields, as positions in its source.
#[derive(Debug)]
pub(crate) struct RecordShape {
    pub(crate) timestamp_delta: i64,
    pub(crate) offset_delta: i32,
    pub(crate) key: Option<Range<usize>>,
    pub(crate) value: Option<Range<usize>>,
    pub(crate) header_count: usize,
    /// The headers' bytes, without their count; they end where the record ends.
    pub(crate) headers: Range<usize>,
}

/// Reads one record and leaves the source behind it. Every length is checked against the record's own, so that a
/// record which lies about one field cannot borrow bytes of the next record.
///
/// The record's attribute byte has no meaning yet and is passed over, as in Kafka.
#[inline]
pub(crate) fn read_record(source: &mut impl Source) -> Result<RecordShape, BatchError> {
    let length = usize::try_from(source.varint()?).map_err(|_| InvalidCause::RecordLength)?;
    let end = source.position().checked_add(length).ok_or(InvalidCause::RecordLength)?;
    source.byte()?;
    let timestamp_delta = source.varlong()?;
    let offset_delta = source.varint()?;
    let key = read_field(source, end)?;
    let value = read_field(source, end)?;
    let header_count = read_header_count(source)?;
    let headers_start = source.position();
    for _ in 0..header_count {
        read_header(source, end)?;
    }
    if source.position() != end {
        return Err(InvalidCause::RecordLength.into());
    }
    Ok(RecordShape { timestamp_delta, offset_delta, key, value, header_count, headers: headers_start..end })
}

/// Reads one header: its key, which must be there, and its value.
pub(crate) fn read_header(
    source: &mut impl Source,
    end: usize,
) -> Result<(Range<usize>, Option<Range<usize>>), BatchError> {
    let key = read_field(source, end)?.ok_or(InvalidCause::FieldLength)?;
    Ok((key, read_field(source, end)?))
}

fn read_header_count(source: &mut impl Source) -> Result<usize, BatchError> {
    let count = source.varint()?;
    if count > RECORD_HEADERS_MAX {
        return Err(BatchError::TooLarge { excess: Excess::Headers, limit: RECORD_HEADERS_MAX as usize });
    }
    usize::try_from(count).map_err(|_| InvalidCause::HeaderCount.into())
}

/// Reads a length and passes over as many bytes; -1 stands for a field that is absent.
#[inline]
fn read_field(source: &mut impl Source, end: usize) -> Result<Option<Range<usize>>, BatchError> {
    let length = source.varint()?;
    if length == -1 {
        return Ok(None);
    }
    let length = usize::try_from(length).map_err(|_| InvalidCause::FieldLength)?;
    let start = source.position();
    if start > end || length > end - start {
        return Err(InvalidCause::FieldLength.into());
    }
    source.skip(length)?;
    Ok(Some(start..start + length))
}
