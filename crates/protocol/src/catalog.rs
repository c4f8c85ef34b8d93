//! Every message by name, for tools that work on all of them: fuzzers, round-trip tests, dumps.
//!
//! Owns the type-erased view of a codec. A server or client never needs it.

use std::ops::RangeInclusive;

use bytes::BytesMut;
use thiserror::Error;

use crate::error::{DecodeError, EncodeError};

/// One message's codec, without its type.
#[derive(Clone, Copy, Debug)]
pub struct Codec {
    /// The message's name in Kafka's words, for example `FetchRequest`.
    pub name: &'static str,
    pub(crate) versions: (i16, i16),
    pub(crate) recode: fn(&[u8], i16) -> Result<BytesMut, RecodeError>,
}

impl Codec {
    /// The versions that can be read and written.
    pub fn versions(&self) -> RangeInclusive<i16> {
        self.versions.0..=self.versions.1
    }

    /// Decodes exactly one message and encodes it again. For bytes from a correct writer the result is the
    /// input, apart from tagged fields that are unknown or have their default value.
    pub fn recode(&self, bytes: &[u8], version: i16) -> Result<BytesMut, RecodeError> {
        (self.recode)(bytes, version)
    }
}

/// Why bytes could not be decoded and encoded again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecodeError {
    /// The bytes are no message of this version.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A message that was read cannot be written: a fault of the codec.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// Every message of the schema.
pub fn messages() -> &'static [Codec] {
    crate::generated::catalog::MESSAGES
}

/// One row of the catalog.
macro_rules! codec {
    ($message:path, $name:literal, $min:literal, $max:literal) => {
        $crate::catalog::Codec {
            name: $name,
            versions: ($min, $max),
            recode: |bytes, version| {
                use $message as Message;

                use $crate::message::{Decode as _, Encode as _};
                let mut decoder = $crate::decoder::Decoder::new(bytes);
                let message = Message::decode(&mut decoder, version)?;
                decoder.finish()?;
                let mut encoder = $crate::encoder::Encoder::new();
                message.encode(&mut encoder, version)?;
                Ok(encoder.into_parts().0)
            },
        }
    };
}
pub(crate) use codec;
