//! The traits and value types that every message shares.
//!
//! Owns [`Decode`], [`Encode`] and [`Request`], and how strings, byte arrays and records are held: borrowed from
//! the input after decoding, owned or borrowed when building.

use std::borrow::Cow;
use std::fmt;

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};

/// A string of a message.
pub type Str<'a> = Cow<'a, str>;

/// A byte array of a message.
pub type Blob<'a> = Cow<'a, [u8]>;

/// Record batches of a message. Their content is the business of `riverrun-records`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Records<'a> {
    /// The batches themselves.
    Bytes(&'a [u8]),
    /// Batches that the sender inserts at the encoder's splice, from a file or from shared memory.
    External {
        /// Bytes of the batches.
        len: usize,
    },
}

impl<'a> Records<'a> {
    /// Bytes of the batches.
    pub fn len(&self) -> usize {
        match *self {
            Self::Bytes(bytes) => bytes.len(),
            Self::External { len } => len,
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The batches, unless they are external. Decoded records never are.
    pub fn as_bytes(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Bytes(bytes) => Some(bytes),
            Self::External { .. } => None,
        }
    }
}

impl fmt::Debug for Records<'_> {
    /// Payloads never reach a log, so only the size is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Records({} bytes)", self.len())
    }
}

/// A message or struct that can be read at a version.
pub trait Decode<'a>: Sized {
    /// Reads the value. Bytes after it stay in the decoder: [`Decoder::finish`] refuses them.
    fn decode(decoder: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError>;
}

/// A message or struct that can be written at a version.
pub trait Encode {
    /// Writes the value. After an error the encoder holds a torn message and is thrown away.
    fn encode(&self, encoder: &mut Encoder, version: i16) -> Result<(), EncodeError>;
}

/// A request, with the response that answers it.
pub trait Request<'a>: Decode<'a> + Encode {
    /// The request's key.
    const KEY: ApiKey;
    /// The response to it.
    type Response<'r>: Decode<'r> + Encode;
}

/// Refuses a version outside `min..=max` before a message is read.
pub(crate) fn check_decode(version: i16, min: i16, max: i16) -> Result<(), DecodeError> {
    if (min..=max).contains(&version) { Ok(()) } else { Err(DecodeError::UnsupportedVersion(version)) }
}

/// Refuses a version outside `min..=max` before a message is written.
pub(crate) fn check_encode(version: i16, min: i16, max: i16) -> Result<(), EncodeError> {
    if (min..=max).contains(&version) { Ok(()) } else { Err(EncodeError::UnsupportedVersion(version)) }
}
