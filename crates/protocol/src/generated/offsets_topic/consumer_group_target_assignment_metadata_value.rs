// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Value of the record `ConsumerGroupTargetAssignmentMetadata`. Version 0, tagged fields from version 0 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, check_decode, check_encode};

/// `ConsumerGroupTargetAssignmentMetadataValue`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerGroupTargetAssignmentMetadataValue {
    /// `int32`.
    pub assignment_epoch: i32,
    /// `int64`, tag 0.
    pub assignment_timestamp: i64,
}

impl<'a> Decode<'a> for ConsumerGroupTargetAssignmentMetadataValue {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 0)?;
        let assignment_epoch = d.i32()?;
        let mut assignment_timestamp = 0;
        d.tagged_fields(|d, tag| {
            match tag {
                0 => assignment_timestamp = d.i64()?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(Self { assignment_epoch, assignment_timestamp })
    }
}

impl Encode for ConsumerGroupTargetAssignmentMetadataValue {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 0)?;
        e.i32(self.assignment_epoch);
        let tags = e.begin_tagged_fields();
        if self.assignment_timestamp != 0 {
            let start = e.begin_tagged_field(&tags, 0);
            e.i64(self.assignment_timestamp);
            e.end_tagged_field(&start)?;
        }
        Ok(())
    }
}
