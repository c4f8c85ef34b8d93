//! Writes Kafka's wire types into one growing buffer.
//!
//! Owns the layout of lengths, nulls and tagged fields, and the splice points of records that the caller sends from
//! elsewhere. The encoder writes such records' length and remembers where they belong, so that a fetch response is a
//! small buffer plus file ranges. Refuses lengths that the wire cannot express; never truncates.

use bytes::{BufMut, BytesMut};
use riverrun_types::TopicId;

use crate::decoder::STRING_BYTES_MAX;
use crate::error::EncodeError;
use crate::message::{Encode, Records};

/// A place in the encoded bytes where external records belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Splice {
    /// Offset in the encoded bytes before which the records are inserted.
    pub position: usize,
    /// Bytes of the records.
    pub len: usize,
}

/// Position of the count of a struct's tagged fields, while they are written.
#[derive(Debug)]
pub struct TagCount(usize);

/// Start of a tagged field's content, while it is written.
#[derive(Debug)]
pub struct TagStart(usize);

/// A message that is being encoded.
///
/// Invariants:
/// - `splices` are ordered by position and none is inside a tagged field (the schema has no records there).
/// - The message's length on the wire is the buffer's length plus the lengths of all splices.
#[derive(Debug, Default)]
pub struct Encoder {
    buffer: BytesMut,
    splices: Vec<Splice>,
}

impl Encoder {
    /// An empty encoder.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty encoder with room for `bytes` bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { buffer: BytesMut::with_capacity(bytes), splices: Vec::new() }
    }

    /// The encoded bytes and the places where external records are inserted, in ascending order.
    pub fn into_parts(self) -> (BytesMut, Vec<Splice>) {
        (self.buffer, self.splices)
    }

    /// Bytes on the wire so far, external records included.
    pub fn wire_len(&self) -> usize {
        self.buffer.len() + self.splices.iter().map(|splice| splice.len).sum::<usize>()
    }

    /// Overwrites four bytes written before at `position` with `value`.
    pub(crate) fn patch_i32(&mut self, position: usize, value: i32) {
        self.buffer[position..position + size_of::<i32>()].copy_from_slice(&value.to_be_bytes());
    }

    /// One byte, 1 for true.
    pub fn bool(&mut self, value: bool) {
        self.buffer.put_u8(u8::from(value));
    }

    /// One byte.
    pub fn i8(&mut self, value: i8) {
        self.buffer.put_i8(value);
    }

    /// Two bytes, big endian.
    pub fn i16(&mut self, value: i16) {
        self.buffer.put_i16(value);
    }

    /// Four bytes, big endian.
    pub fn i32(&mut self, value: i32) {
        self.buffer.put_i32(value);
    }

    /// Eight bytes, big endian.
    pub fn i64(&mut self, value: i64) {
        self.buffer.put_i64(value);
    }

    /// Sixteen bytes.
    pub fn uuid(&mut self, value: TopicId) {
        self.buffer.put_slice(&value.0);
    }

    /// Bytes as they are, without a length.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buffer.put_slice(bytes);
    }

    /// Unsigned varint in its shortest form.
    pub fn varint(&mut self, value: u32) {
        let mut rest = value;
        while rest >= 0x80 {
            self.buffer.put_u8(rest.to_le_bytes()[0] | 0x80);
            rest >>= 7;
        }
        self.buffer.put_u8(rest.to_le_bytes()[0]);
    }

    /// A length of 32 bits, compact in flexible versions.
    fn length(&mut self, flexible: bool, length: usize) -> Result<(), EncodeError> {
        let classic = i32::try_from(length).map_err(|_| EncodeError::TooLong(length))?;
        if flexible {
            self.varint(classic as u32 + 1);
        } else {
            self.i32(classic);
        }
        Ok(())
    }

    /// A null byte array or array.
    fn null(&mut self, flexible: bool) {
        if flexible {
            self.varint(0);
        } else {
            self.i32(-1);
        }
    }

    /// A string.
    pub fn string(&mut self, flexible: bool, value: &str) -> Result<(), EncodeError> {
        let length = i16::try_from(value.len()).map_err(|_| EncodeError::TooLong(value.len()))?;
        const { assert!(STRING_BYTES_MAX == i16::MAX as usize) };
        if flexible {
            self.varint(length as u32 + 1);
        } else {
            self.i16(length);
        }
        self.raw(value.as_bytes());
        Ok(())
    }

    /// A string or null.
    pub fn nullable_string(&mut self, flexible: bool, value: Option<&str>) -> Result<(), EncodeError> {
        match value {
            Some(value) => return self.string(flexible, value),
            None if flexible => self.varint(0),
            None => self.i16(-1),
        }
        Ok(())
    }

    /// A byte array.
    pub fn bytes(&mut self, flexible: bool, value: &[u8]) -> Result<(), EncodeError> {
        self.length(flexible, value.len())?;
        self.raw(value);
        Ok(())
    }

    /// A byte array or null.
    pub fn nullable_bytes(&mut self, flexible: bool, value: Option<&[u8]>) -> Result<(), EncodeError> {
        match value {
            Some(value) => return self.bytes(flexible, value),
            None => self.null(flexible),
        }
        Ok(())
    }

    /// Record batches or null. External records leave their length here and a splice.
    pub fn nullable_records(
        &mut self,
        flexible: bool,
        value: Option<Records<'_>>,
    ) -> Result<(), EncodeError> {
        match value {
            Some(Records::Bytes(bytes)) => return self.bytes(flexible, bytes),
            Some(Records::External { len }) => {
                self.length(flexible, len)?;
                self.splices.push(Splice { position: self.buffer.len(), len });
            }
            None => self.null(flexible),
        }
        Ok(())
    }

    /// A struct or null: a byte says whether one follows.
    pub fn nullable_struct<T: Encode>(&mut self, value: Option<&T>, version: i16) -> Result<(), EncodeError> {
        self.i8(if value.is_some() { 1 } else { -1 });
        value.map_or(Ok(()), |value| value.encode(self, version))
    }

    /// An array, each element written by `element`.
    pub fn array<T>(
        &mut self,
        flexible: bool,
        elements: &[T],
        mut element: impl FnMut(&mut Self, &T) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.length(flexible, elements.len())?;
        elements.iter().try_for_each(|value| element(self, value))
    }

    /// An array or null.
    pub fn nullable_array<T>(
        &mut self,
        flexible: bool,
        elements: Option<&[T]>,
        element: impl FnMut(&mut Self, &T) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        match elements {
            Some(elements) => return self.array(flexible, elements, element),
            None => self.null(flexible),
        }
        Ok(())
    }

    /// An array of structs.
    pub fn structs<T: Encode>(
        &mut self,
        flexible: bool,
        elements: &[T],
        version: i16,
    ) -> Result<(), EncodeError> {
        self.array(flexible, elements, |e, value| value.encode(e, version))
    }

    /// An array of structs or null.
    pub fn nullable_structs<T: Encode>(
        &mut self,
        flexible: bool,
        elements: Option<&[T]>,
        version: i16,
    ) -> Result<(), EncodeError> {
        self.nullable_array(flexible, elements, |e, value| value.encode(e, version))
    }

    /// The end of a struct of a flexible version that has no tagged fields.
    pub fn no_tagged_fields(&mut self) {
        self.buffer.put_u8(0);
    }

    /// Begins a struct's tagged fields: none so far.
    pub fn begin_tagged_fields(&mut self) -> TagCount {
        self.buffer.put_u8(0);
        TagCount(self.buffer.len() - 1)
    }

    /// Begins one tagged field; tags come in ascending order. [`Self::end_tagged_field`] completes it.
    pub fn begin_tagged_field(&mut self, count: &TagCount, tag: u32) -> TagStart {
        // The generator refuses a struct with more tags than one byte of varint can count.
        self.buffer[count.0] += 1;
        self.varint(tag);
        TagStart(self.buffer.len())
    }

    /// Completes a tagged field: its size goes before its content, which moves up to make room.
    pub fn end_tagged_field(&mut self, start: &TagStart) -> Result<(), EncodeError> {
        let end = self.buffer.len();
        let size = u32::try_from(end - start.0).map_err(|_| EncodeError::TooLong(end - start.0))?;
        self.varint(size);
        let size_bytes = self.buffer.len() - end;
        self.buffer[start.0..].rotate_right(size_bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
