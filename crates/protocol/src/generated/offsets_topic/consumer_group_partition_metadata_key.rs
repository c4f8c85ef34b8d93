// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Key of the record `ConsumerGroupPartitionMetadata`, type 4. Version 0.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `ConsumerGroupPartitionMetadataKey`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerGroupPartitionMetadataKey<'a> {
    /// `string`.
    pub group_id: Str<'a>,
}

impl<'a> Decode<'a> for ConsumerGroupPartitionMetadataKey<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 0)?;
        let group_id = d.string(false)?;
        Ok(Self { group_id })
    }
}

impl Encode for ConsumerGroupPartitionMetadataKey<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 0)?;
        e.string(false, &self.group_id)?;
        Ok(())
    }
}
