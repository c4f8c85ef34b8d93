// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Value of the record `ConsumerGroupRegularExpression`. Version 0, tagged fields from version 0 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `ConsumerGroupRegularExpressionValue`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerGroupRegularExpressionValue<'a> {
    /// `[]string`.
    pub topics: Vec<Str<'a>>,
    /// `int64`.
    pub version: i64,
    /// `int64`.
    pub timestamp: i64,
}

impl<'a> Decode<'a> for ConsumerGroupRegularExpressionValue<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 0)?;
        let topics = d.array(true, 1, |d| d.string(true))?;
        let version = d.i64()?;
        let timestamp = d.i64()?;
        d.skip_tagged_fields()?;
        Ok(Self { topics, version, timestamp })
    }
}

impl Encode for ConsumerGroupRegularExpressionValue<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 0)?;
        e.array(true, &self.topics, |e, value| e.string(true, value))?;
        e.i64(self.version);
        e.i64(self.timestamp);
        e.no_tagged_fields();
        Ok(())
    }
}
