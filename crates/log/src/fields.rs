//! Big-endian fields of this crate's own files: a bounded reader and the few writing functions that match it.
//!
//! Guarantees: nothing is read past the end, and a count is believed only if that many smallest elements fit
//! into the bytes that remain, so a count from a damaged file never drives an allocation.

use riverrun_env::OddFile;
use thiserror::Error;

use riverrun_types::{ErrorKind, Offset, PartitionId, old_format};

/// Why bytes of one of our own files were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The bytes end before the named field does.
    #[error("the file ends inside {0}")]
    Truncated(&'static str),
    /// The named field holds a value that is never written.
    #[error("{0} holds a value that is never written")]
    Invalid(&'static str),
    /// The file is not of the named kind.
    #[error("this is not {0}")]
    WrongMagic(&'static str),
    /// The file was written by a newer program, which knows a newer format.
    #[error("{name} has format version {found}, and this program knows versions up to {supported}")]
    NewerVersion {
        /// The kind of file.
        name: &'static str,
        /// The version in the file.
        found: u16,
        /// The newest version that this program reads.
        supported: u16,
    },
    /// The file was written by an older program, in a format that is not read any more.
    #[error("{name} has {}", old_format(*.found, *.oldest))]
    OldVersion {
        /// The kind of file.
        name: &'static str,
        /// The version in the file.
        found: u16,
        /// The oldest version that this program reads.
        oldest: u16,
    },
    /// The checksum does not match the bytes.
    #[error("the checksum of {0} does not match")]
    Checksum(&'static str),
    /// The index is intact, and of another segment.
    #[error("this is the index of partition {partition}, of its segment from offset {base_offset} on")]
    OtherSegment {
        /// The partition of that segment.
        partition: PartitionId,
        /// The base offset of that segment.
        base_offset: Offset,
    },
    /// Another thing than a file is under the name.
    #[error(transparent)]
    Odd(OddFile),
    /// The disk does not give back this byte of the file.
    #[error("byte {0} cannot be read: the disk answers with an error")]
    Unreadable(u64),
}

impl DecodeError {
    /// All of these mean damage or a wrong file, which needs an administrator.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::GiveUp
    }
}

/// Reads fields one after another from untrusted bytes.
#[derive(Clone, Debug)]
pub(crate) struct FieldReader<'a> {
    rest: &'a [u8],
}

impl<'a> FieldReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn bytes(&mut self, len: usize, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let (head, tail) = self.rest.split_at_checked(len).ok_or(DecodeError::Truncated(field))?;
        self.rest = tail;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Truncated(field))?;
        self.rest = tail;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        Ok(u8::from_be_bytes(self.array(field)?))
    }

    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        Ok(u16::from_be_bytes(self.array(field)?))
    }

    pub(crate) fn i16(&mut self, field: &'static str) -> Result<i16, DecodeError> {
        Ok(i16::from_be_bytes(self.array(field)?))
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.array(field)?))
    }

    pub(crate) fn i32(&mut self, field: &'static str) -> Result<i32, DecodeError> {
        Ok(i32::from_be_bytes(self.array(field)?))
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        Ok(u64::from_be_bytes(self.array(field)?))
    }

    pub(crate) fn i64(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        Ok(i64::from_be_bytes(self.array(field)?))
    }

    /// A count of elements, each of which takes `element_bytes_min` bytes at least.
    pub(crate) fn count(
        &mut self,
        element_bytes_min: usize,
        field: &'static str,
    ) -> Result<usize, DecodeError> {
        let count = self.u32(field)? as usize;
        if count > self.rest.len() / element_bytes_min.max(1) {
            return Err(DecodeError::Truncated(field));
        }
        Ok(count)
    }

    /// Refuses bytes after the last field.
    pub(crate) fn finish(self, field: &'static str) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Invalid(field)) }
    }
}

/// Writes a count in the form that [`FieldReader::count`] reads. Everything counted here is bounded far below
/// `u32::MAX` by the structure that holds it.
pub(crate) fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).expect("counted structures are bounded below u32::MAX");
    out.extend_from_slice(&count.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_that_cannot_fit_is_refused_before_any_allocation() {
        let mut bytes = vec![0xff, 0xff, 0xff, 0xff];
        bytes.extend_from_slice(&[0; 40]);
        assert_eq!(FieldReader::new(&bytes).count(8, "list"), Err(DecodeError::Truncated("list")));
        bytes[..4].copy_from_slice(&5_u32.to_be_bytes());
        assert_eq!(FieldReader::new(&bytes).count(8, "list"), Ok(5));
        bytes[..4].copy_from_slice(&6_u32.to_be_bytes());
        assert_eq!(FieldReader::new(&bytes).count(8, "list"), Err(DecodeError::Truncated("list")));
    }

    #[test]
    fn bytes_after_the_last_field_are_refused() {
        let mut reader = FieldReader::new(&[0, 1, 2]);
        assert_eq!(reader.u16("pair"), Ok(1));
        assert_eq!(reader.clone().finish("tail"), Err(DecodeError::Invalid("tail")));
        assert_eq!(reader.u8("tail"), Ok(2));
        assert_eq!(reader.u8("more"), Err(DecodeError::Truncated("more")));
        assert_eq!(reader.finish("tail"), Ok(()));
    }
}
