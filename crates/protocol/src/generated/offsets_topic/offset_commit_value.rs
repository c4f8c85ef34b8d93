// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Value of the record `OffsetCommit`. Versions 0 to 4, tagged fields from version 4 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};
use riverrun_types::TopicId;

/// `OffsetCommitValue`, versions 0 to 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommitValue<'a> {
    /// `int64`.
    pub offset: i64,
    /// `int32`, versions 3 to 4, default -1.
    pub leader_epoch: i32,
    /// `string`.
    pub metadata: Str<'a>,
    /// `int64`.
    pub commit_timestamp: i64,
    /// `int64`, version 1, default -1.
    pub expire_timestamp: i64,
    /// `uuid`, version 4, tag 0.
    pub topic_id: TopicId,
}

impl Default for OffsetCommitValue<'_> {
    fn default() -> Self {
        Self {
            offset: 0,
            leader_epoch: -1,
            metadata: Str::Borrowed(""),
            commit_timestamp: 0,
            expire_timestamp: -1,
            topic_id: TopicId::ZERO,
        }
    }
}

impl<'a> Decode<'a> for OffsetCommitValue<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 4)?;
        let flexible = version >= 4;
        let offset = d.i64()?;
        let leader_epoch = if version >= 3 { d.i32()? } else { -1 };
        let metadata = d.string(flexible)?;
        let commit_timestamp = d.i64()?;
        let expire_timestamp = if version == 1 { d.i64()? } else { -1 };
        let mut topic_id = TopicId::ZERO;
        if flexible {
            d.tagged_fields(|d, tag| {
                match tag {
                    0 => topic_id = d.uuid()?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
        }
        Ok(Self { offset, leader_epoch, metadata, commit_timestamp, expire_timestamp, topic_id })
    }
}

impl Encode for OffsetCommitValue<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 4)?;
        let flexible = version >= 4;
        e.i64(self.offset);
        if version >= 3 {
            e.i32(self.leader_epoch);
        }
        e.string(flexible, &self.metadata)?;
        e.i64(self.commit_timestamp);
        if version == 1 {
            e.i64(self.expire_timestamp);
        }
        if flexible {
            let tags = e.begin_tagged_fields();
            if !self.topic_id.is_zero() {
                let start = e.begin_tagged_field(&tags, 0);
                e.uuid(self.topic_id);
                e.end_tagged_field(&start)?;
            }
        }
        Ok(())
    }
}
