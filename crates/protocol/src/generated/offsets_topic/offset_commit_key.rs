// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Key of the record `OffsetCommit`, type 1. Version 0.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `OffsetCommitKey`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetCommitKey<'a> {
    /// `string`.
    pub group: Str<'a>,
    /// `string`.
    pub topic: Str<'a>,
    /// `int32`.
    pub partition: i32,
}

impl<'a> Decode<'a> for OffsetCommitKey<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 0)?;
        let group = d.string(false)?;
        let topic = d.string(false)?;
        let partition = d.i32()?;
        Ok(Self { group, topic, partition })
    }
}

impl Encode for OffsetCommitKey<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 0)?;
        e.string(false, &self.group)?;
        e.string(false, &self.topic)?;
        e.i32(self.partition);
        Ok(())
    }
}
