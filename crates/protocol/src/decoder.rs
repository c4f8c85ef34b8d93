//! Reads Kafka's wire types from a byte slice, without copying and without trusting it.
//!
//! Owns the bounds of design rule 7 for messages: a count is checked against the bytes that remain and against
//! [`limits`] before anything is allocated, one budget of objects holds for a whole message, and a vector never
//! reserves more memory than bytes remain. Strings, byte arrays and records are borrowed from the input.
//! Refuses input that a correct client never sends: trailing bytes, null where there is none, overlong varints, tags
//! that repeat or go backwards, text that is not UTF-8.

use std::borrow::Cow;

use riverrun_types::{TopicId, limits};

use crate::error::DecodeError;
use crate::message::{Blob, Decode, Records, Str};

/// Longest string in bytes: the classic length field has 16 bits, and the compact one keeps that bound.
pub(crate) const STRING_BYTES_MAX: usize = i16::MAX as usize;

/// Elements that a vector may reserve however few bytes remain: spares small arrays their regrowth.
const RESERVE_ALWAYS: usize = 4;

/// Smallest tagged field: one byte of tag, one byte of size.
const TAGGED_FIELD_BYTES_MIN: usize = 2;

/// A cursor over one message.
///
/// Invariants:
/// - `rest` is a suffix of the input (inside a tagged field: of that field's bytes).
/// - `objects_left` only falls; it is the number of objects that the rest of the message may still create.
/// - `missing` is 0 except where only the beginning of a message is decoded.
/// - After an error the cursor's place is meaningless and nothing more is read from it.
#[derive(Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
    objects_left: usize,
    /// Bytes of the message that have not come: a count may rely on them, and reading them fails with
    /// [`DecodeError::Truncated`].
    missing: usize,
}

impl<'a> Decoder<'a> {
    /// A decoder at the first byte of `bytes`, with the full budget of objects.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self::bounded(bytes, limits::REQUEST_OBJECTS_MAX)
    }

    /// A decoder at the first byte of `bytes`, for a message of at most `objects_max` objects: elements of arrays and
    /// tagged fields, over all of it. One more is [`DecodeError::TooManyObjects`], before any memory is taken for it.
    pub fn bounded(bytes: &'a [u8], objects_max: usize) -> Self {
        Self { rest: bytes, objects_left: objects_max.min(limits::REQUEST_OBJECTS_MAX), missing: 0 }
    }

    /// A decoder of the beginning of a message whose other `missing` bytes have not come. A message that announces
    /// too many objects there is [`DecodeError::TooManyObjects`] already; any other is [`DecodeError::Truncated`] at
    /// the latest where the beginning ends.
    pub fn beginning(bytes: &'a [u8], missing: usize, objects_max: usize) -> Self {
        Self { missing, ..Self::bounded(bytes, objects_max) }
    }

    /// Objects that the rest of the message may hold.
    pub fn objects_left(&self) -> usize {
        self.objects_left
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Ends the message: bytes that are left are an error.
    pub fn finish(self) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(DecodeError::TrailingBytes(left)),
        }
    }

    /// Returns the next `count` bytes as they are.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            return Err(DecodeError::Truncated { needed: count, remaining: self.rest.len() });
        };
        self.rest = rest;
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(DecodeError::Truncated { needed: N, remaining: self.rest.len() });
        };
        self.rest = rest;
        Ok(*taken)
    }

    /// One byte: zero is false, anything else true, as Kafka reads it.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.i8()? != 0)
    }

    /// One byte.
    pub fn i8(&mut self) -> Result<i8, DecodeError> {
        Ok(i8::from_be_bytes(self.fixed()?))
    }

    /// Two bytes, big endian.
    pub fn i16(&mut self) -> Result<i16, DecodeError> {
        Ok(i16::from_be_bytes(self.fixed()?))
    }

    /// Four bytes, big endian.
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        Ok(i32::from_be_bytes(self.fixed()?))
    }

    /// Eight bytes, big endian.
    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        Ok(i64::from_be_bytes(self.fixed()?))
    }

    /// Sixteen bytes.
    pub fn uuid(&mut self) -> Result<TopicId, DecodeError> {
        Ok(TopicId(self.fixed()?))
    }

    /// Unsigned varint of at most 32 bits in its shortest form.
    pub fn varint(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0_u32;
        for shift in (0..35).step_by(7) {
            let [byte] = self.fixed()?;
            let bits = u32::from(byte & 0x7f);
            let padded = byte == 0 && shift > 0;
            let overflows = shift == 28 && byte > 0x0f;
            if padded || overflows {
                return Err(DecodeError::OverlongVarint);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::OverlongVarint)
    }

    /// A compact length: 0 is null, else one more than the length.
    fn compact_length(&mut self) -> Result<Option<usize>, DecodeError> {
        Ok((self.varint()? as usize).checked_sub(1))
    }

    /// A length of 32 bits, compact in flexible versions.
    fn length(&mut self, flexible: bool) -> Result<Option<usize>, DecodeError> {
        if flexible { self.compact_length() } else { classic_length(self.i32()?) }
    }

    /// A string that may be null.
    pub fn nullable_string(&mut self, flexible: bool) -> Result<Option<Str<'a>>, DecodeError> {
        Ok(self.nullable_str(flexible)?.map(Cow::Borrowed))
    }

    /// A string that may be null, as a plain slice.
    pub(crate) fn nullable_str(&mut self, flexible: bool) -> Result<Option<&'a str>, DecodeError> {
        let length = if flexible { self.compact_length()? } else { classic_length(i32::from(self.i16()?))? };
        let Some(length) = length else { return Ok(None) };
        if length > STRING_BYTES_MAX {
            return Err(DecodeError::StringTooLong(length));
        }
        let text = std::str::from_utf8(self.take(length)?).map_err(|_| DecodeError::NotUtf8)?;
        Ok(Some(text))
    }

    /// A string.
    pub fn string(&mut self, flexible: bool) -> Result<Str<'a>, DecodeError> {
        self.nullable_string(flexible)?.ok_or(DecodeError::UnexpectedNull)
    }

    /// A byte array that may be null.
    pub fn nullable_bytes(&mut self, flexible: bool) -> Result<Option<Blob<'a>>, DecodeError> {
        let Some(length) = self.length(flexible)? else { return Ok(None) };
        Ok(Some(Cow::Borrowed(self.take(length)?)))
    }

    /// A byte array.
    pub fn bytes(&mut self, flexible: bool) -> Result<Blob<'a>, DecodeError> {
        self.nullable_bytes(flexible)?.ok_or(DecodeError::UnexpectedNull)
    }

    /// Record batches that may be null. Their content is not checked here.
    pub fn nullable_records(&mut self, flexible: bool) -> Result<Option<Records<'a>>, DecodeError> {
        let Some(length) = self.length(flexible)? else { return Ok(None) };
        Ok(Some(Records::Bytes(self.take(length)?)))
    }

    /// A struct that may be null: a byte says whether one follows.
    pub fn nullable_struct<T: Decode<'a>>(&mut self, version: i16) -> Result<Option<T>, DecodeError> {
        if self.i8()? < 0 { Ok(None) } else { T::decode(self, version).map(Some) }
    }

    /// An array that may be null. `element_bytes_min` is the fewest bytes that one element takes.
    pub fn nullable_array<T>(
        &mut self,
        flexible: bool,
        element_bytes_min: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        let Some(count) = self.length(flexible)? else { return Ok(None) };
        self.admit(count, element_bytes_min, limits::ARRAY_ELEMENTS_MAX)?;
        let affordable = self.rest.len() / size_of::<T>().max(1);
        let mut elements = Vec::with_capacity(count.min(affordable.max(RESERVE_ALWAYS)));
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(Some(elements))
    }

    /// An array. `element_bytes_min` is the fewest bytes that one element takes.
    pub fn array<T>(
        &mut self,
        flexible: bool,
        element_bytes_min: usize,
        element: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        self.nullable_array(flexible, element_bytes_min, element)?.ok_or(DecodeError::UnexpectedNull)
    }

    /// An array of structs that may be null.
    pub fn nullable_structs<T: Decode<'a>>(
        &mut self,
        flexible: bool,
        element_bytes_min: usize,
        version: i16,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        self.nullable_array(flexible, element_bytes_min, |d| T::decode(d, version))
    }

    /// An array of structs.
    pub fn structs<T: Decode<'a>>(
        &mut self,
        flexible: bool,
        element_bytes_min: usize,
        version: i16,
    ) -> Result<Vec<T>, DecodeError> {
        self.array(flexible, element_bytes_min, |d| T::decode(d, version))
    }

    /// Checks a count against the remaining bytes and its limit, and charges it to the message's budget.
    fn admit(&mut self, count: usize, bytes_min: usize, limit: usize) -> Result<(), DecodeError> {
        let to_come = self.rest.len().saturating_add(self.missing);
        let most = (to_come / bytes_min.max(1)).min(limit);
        if count > most {
            return Err(DecodeError::TooManyElements { count, most });
        }
        self.objects_left = self.objects_left.checked_sub(count).ok_or(DecodeError::TooManyObjects)?;
        Ok(())
    }

    /// The tagged fields that end a struct of a flexible version. `field` reads the tags that it knows and returns
    /// `false` for the others, which are skipped.
    pub fn tagged_fields(
        &mut self,
        mut field: impl FnMut(&mut Self, u32) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        let count = self.varint()? as usize;
        if count == 0 {
            return Ok(());
        }
        self.admit(count, TAGGED_FIELD_BYTES_MIN, limits::TAGGED_FIELDS_MAX)?;
        let mut next_tag = 0;
        for _ in 0..count {
            let tag = self.varint()?;
            if tag < next_tag {
                return Err(DecodeError::TagOrder(tag));
            }
            next_tag = tag.checked_add(1).ok_or(DecodeError::TagOrder(tag))?;
            self.tagged_field(|d| field(d, tag))?;
        }
        Ok(())
    }

    /// One tagged field's size and content. The content sees only its own bytes.
    fn tagged_field(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        let size = self.varint()? as usize;
        let content = self.take(size)?;
        let after = std::mem::replace(&mut self.rest, content);
        let known = read(self)?;
        let left = std::mem::replace(&mut self.rest, after).len();
        if known && left > 0 { Err(DecodeError::TaggedFieldSize(left)) } else { Ok(()) }
    }

    /// Skips the tagged fields of a struct that knows none.
    pub fn skip_tagged_fields(&mut self) -> Result<(), DecodeError> {
        self.tagged_fields(|_, _| Ok(false))
    }
}

/// A length of the classic encoding: -1 is null.
fn classic_length(length: i32) -> Result<Option<usize>, DecodeError> {
    match length {
        -1 => Ok(None),
        length => usize::try_from(length).map(Some).map_err(|_| DecodeError::NegativeLength(length)),
    }
}

#[cfg(test)]
mod tests;
