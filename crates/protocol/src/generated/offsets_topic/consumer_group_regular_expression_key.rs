// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Key of the record `ConsumerGroupRegularExpression`, type 16. Version 0.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `ConsumerGroupRegularExpressionKey`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerGroupRegularExpressionKey<'a> {
    /// `string`.
    pub group_id: Str<'a>,
    /// `string`.
    pub regular_expression: Str<'a>,
}

impl<'a> Decode<'a> for ConsumerGroupRegularExpressionKey<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 0)?;
        let group_id = d.string(false)?;
        let regular_expression = d.string(false)?;
        Ok(Self { group_id, regular_expression })
    }
}

impl Encode for ConsumerGroupRegularExpressionKey<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 0)?;
        e.string(false, &self.group_id)?;
        e.string(false, &self.regular_expression)?;
        Ok(())
    }
}
