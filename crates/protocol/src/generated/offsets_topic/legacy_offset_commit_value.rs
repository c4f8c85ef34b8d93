// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Value of the record `LegacyOffsetCommit`. Version 0.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `LegacyOffsetCommitValue`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LegacyOffsetCommitValue<'a> {
    /// `int64`.
    pub offset: i64,
    /// `string`.
    pub metadata: Str<'a>,
    /// `int64`.
    pub commit_timestamp: i64,
}

impl<'a> Decode<'a> for LegacyOffsetCommitValue<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 0)?;
        let offset = d.i64()?;
        let metadata = d.string(false)?;
        let commit_timestamp = d.i64()?;
        Ok(Self { offset, metadata, commit_timestamp })
    }
}

impl Encode for LegacyOffsetCommitValue<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 0)?;
        e.i64(self.offset);
        e.string(false, &self.metadata)?;
        e.i64(self.commit_timestamp);
        Ok(())
    }
}
