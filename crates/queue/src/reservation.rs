//! Writing a value in place: room in the mapping, filled by the user, then published.
//!
//! Guarantees that no reader sees the bytes before they are published, and that a reservation which is dropped leaves
//! nothing behind.

use std::ops::{Deref, DerefMut, Range};

use riverrun_records::layout;
use riverrun_types::Offset;

use crate::appender::{Appender, NewRecord, Room};
use crate::batch::{Cursor, Shape, seal};
use crate::error::QueueError;
use crate::sys;

/// Room for one record's value; the reservation derefs to it. Keeps the writer lock: other appenders wait until it is
/// published or dropped.
///
/// Invariants: the batch in `room` is written except for the value and the CRC; `value` is the value's place in it.
#[derive(Debug)]
pub struct Reservation<'a> {
    appender: &'a mut Appender,
    room: Room,
    value: Range<usize>,
    published: bool,
}

impl<'a> Reservation<'a> {
    pub(crate) fn open(
        appender: &'a mut Appender,
        len: usize,
        record: &NewRecord<'_>,
    ) -> Result<Self, QueueError> {
        // Refuses a length that no segment has: sums with it would overflow.
        let limit_bytes = appender.batch_bytes_max();
        if len > limit_bytes {
            return Err(QueueError::TooLarge { size_bytes: len, limit_bytes });
        }
        let timestamp = record.timestamp.map_or_else(sys::wall_coarse_ms, |timestamp| timestamp.0);
        let shape = Shape {
            key: record.key,
            value_bytes: Some(len),
            headers: record.headers,
            timestamp_delta: 0,
            offset_delta: 0,
        };
        let size_bytes = layout::HEADER_BYTES + shape.record_bytes();
        let room = appender.begin(size_bytes)?;
        let fields = appender.fields(size_bytes, 1, timestamp);
        let bytes = appender.bytes_mut(room);
        if let Some(header) = bytes.first_chunk_mut() {
            fields.put(header);
        }
        let mut before = Cursor::new(&mut bytes[layout::HEADER_BYTES..]);
        shape.put_before_value(&mut before);
        let begin = layout::HEADER_BYTES + before.at();
        shape.put_after_value(&mut Cursor::new(&mut bytes[begin + len..]));
        Ok(Self { appender, room, value: begin..begin + len, published: false })
    }

    /// Publishes the record. Returns its offset, and is as durable as [`Appender::append`].
    pub fn publish(mut self) -> Result<Offset, QueueError> {
        self.published = true;
        seal(self.appender.bytes_mut(self.room));
        self.appender.commit(self.room, 1)
    }
}

impl Deref for Reservation<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.appender.bytes(self.room, self.value.clone())
    }
}

impl DerefMut for Reservation<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.appender.bytes_mut(self.room)[self.value.clone()]
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.published {
            self.appender.abort(self.room);
        }
    }
}
