// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Value of the record `ConsumerGroupMetadata`. Version 0, tagged fields from version 0 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, check_decode, check_encode};

/// `ConsumerGroupMetadataValue`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerGroupMetadataValue {
    /// `int32`.
    pub epoch: i32,
    /// `int64`, tag 0.
    pub metadata_hash: i64,
}

impl<'a> Decode<'a> for ConsumerGroupMetadataValue {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 0)?;
        let epoch = d.i32()?;
        let mut metadata_hash = 0;
        d.tagged_fields(|d, tag| {
            match tag {
                0 => metadata_hash = d.i64()?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(Self { epoch, metadata_hash })
    }
}

impl Encode for ConsumerGroupMetadataValue {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 0)?;
        e.i32(self.epoch);
        let tags = e.begin_tagged_fields();
        if self.metadata_hash != 0 {
            let start = e.begin_tagged_field(&tags, 0);
            e.i64(self.metadata_hash);
            e.end_tagged_field(&start)?;
        }
        Ok(())
    }
}
