//! The errors of received bytes, and of messages that cannot be sent.
//!
//! Owns the crate's two error types. Both are small, `Copy`, and carry no text from outside, so that building one on
//! hostile input costs nothing and logging one leaks nothing.

use riverrun_types::ErrorKind;
use thiserror::Error;

/// Why bytes cannot be decoded. After any of these no part of the message is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The input ends inside a value.
    #[error("{needed} bytes are needed and {remaining} remain")]
    Truncated {
        /// Bytes that the value takes.
        needed: usize,
        /// Bytes that are left.
        remaining: usize,
    },
    /// A length or count is below -1; -1 alone means null.
    #[error("length {0} is negative")]
    NegativeLength(i32),
    /// Null stands where this version of the message has no null.
    #[error("null where the version has no null")]
    UnexpectedNull,
    /// A string is longer than its 16-bit length can express.
    #[error("a string of {0} bytes is too long")]
    StringTooLong(usize),
    /// A string is not UTF-8.
    #[error("a string is not UTF-8")]
    NotUtf8,
    /// A count cannot be true: more elements than the remaining bytes hold, or more than the limit.
    #[error("{count} elements, of which {most} are possible")]
    TooManyElements {
        /// The count on the wire.
        count: usize,
        /// The most that bytes and limits leave room for.
        most: usize,
    },
    /// The whole message holds more objects than one request may.
    #[error("more objects than one message may hold")]
    TooManyObjects,
    /// A varint that does not fit 32 bits, or that spends more bytes than it needs.
    #[error("an overlong varint")]
    OverlongVarint,
    /// Tags of tagged fields do not rise strictly: one is repeated or out of order.
    #[error("tag {0} is repeated or out of order")]
    TagOrder(u32),
    /// A tagged field's content is shorter than its declared size.
    #[error("a tagged field ends {0} bytes before its declared size")]
    TaggedFieldSize(usize),
    /// Bytes are left after the message's last field.
    #[error("{0} bytes after the end of the message")]
    TrailingBytes(usize),
    /// The codec does not know this version of the message.
    #[error("version {0} is not supported")]
    UnsupportedVersion(i16),
    /// A key of `__consumer_offsets` of a type that this crate does not know.
    #[error("record type {0} is not known")]
    UnknownRecordType(i16),
}

impl DecodeError {
    /// The same bytes will never decode: the sender has to change them.
    pub fn kind(self) -> ErrorKind {
        ErrorKind::FixRequest
    }
}

/// Why a message cannot be written at a version. All of these are faults of the program that built it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// The codec does not know this version of the message.
    #[error("version {0} is not supported")]
    UnsupportedVersion(i16),
    /// The field carries a value that matters, and the version has no place for it.
    #[error("field {field} cannot be said in version {version}")]
    AbsentField {
        /// The field's name.
        field: &'static str,
        /// The version that lacks it.
        version: i16,
    },
    /// The field is null, and the version has no null there.
    #[error("field {field} is null and version {version} has no null there")]
    NullField {
        /// The field's name.
        field: &'static str,
        /// The version in question.
        version: i16,
    },
    /// A string, byte array, array or frame exceeds what its length field can express.
    #[error("{0} bytes or elements are more than the length field can say")]
    TooLong(usize),
}

impl EncodeError {
    /// Building the same message again gives the same error.
    pub fn kind(self) -> ErrorKind {
        ErrorKind::FixRequest
    }
}
