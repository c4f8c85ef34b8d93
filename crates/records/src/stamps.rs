//! Offsets and timestamps of a batch's records, without their keys and values.
//!
//! Gives the same guarantees as [`BatchRecords`](crate::BatchRecords), and holds no inflated bytes of a compressed
//! batch: for searches through a log that any client can ask for.

use std::ops::ControlFlow;

use riverrun_types::{Offset, TimestampMs};

use crate::batch::Batch;
use crate::error::{BatchError, InvalidCause};
use crate::header::BatchHeader;
use crate::inflate::Inflate;
use crate::source::{SliceSource, Source, StreamSource};
use crate::walk::read_record;

/// A record's offset and timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordStamp {
    /// Its position in the partition.
    pub offset: Offset,
    /// Its own timestamp, or the batch's append time.
    pub timestamp: TimestampMs,
}

impl Batch<'_> {
    /// Calls `visit` with the stamp of each record, in order, until it breaks or all are seen.
    pub fn visit_stamps(&self, visit: impl FnMut(RecordStamp) -> ControlFlow<()>) -> Result<(), BatchError> {
        if self.is_compressed() {
            let inflate = Inflate::stored(self.compression(), self.payload())?;
            walk(StreamSource::new(inflate), self.header(), visit)
        } else {
            walk(SliceSource::new(self.payload()), self.header(), visit)
        }
    }
}

fn walk(
    mut source: impl Source,
    header: &BatchHeader,
    mut visit: impl FnMut(RecordStamp) -> ControlFlow<()>,
) -> Result<(), BatchError> {
    let mut previous_delta = -1;
    for _ in 0..header.record_count() {
        let shape = read_record(&mut source)?;
        previous_delta = header.check_delta(previous_delta, shape.offset_delta)?;
        let offset = header.offset_at(shape.offset_delta);
        let timestamp = header.timestamp_at(shape.timestamp_delta);
        if visit(RecordStamp { offset, timestamp }).is_break() {
            return Ok(());
        }
    }
    if source.at_end()? { Ok(()) } else { Err(InvalidCause::TrailingBytes.into()) }
}
