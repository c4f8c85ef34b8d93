// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Key of the record `GroupMetadata`, type 2. Version 0.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `GroupMetadataKey`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMetadataKey<'a> {
    /// `string`.
    pub group: Str<'a>,
}

impl<'a> Decode<'a> for GroupMetadataKey<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 0)?;
        let group = d.string(false)?;
        Ok(Self { group })
    }
}

impl Encode for GroupMetadataKey<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 0)?;
        e.string(false, &self.group)?;
        Ok(())
    }
}
