// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Value of the record `ConsumerGroupTargetAssignmentMember`. Version 0, tagged fields from version 0 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, check_decode, check_encode};
use riverrun_types::TopicId;

/// `ConsumerGroupTargetAssignmentMemberValue`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerGroupTargetAssignmentMemberValue {
    /// `[]TopicPartition`.
    pub topic_partitions: Vec<TopicPartition>,
}

impl<'a> Decode<'a> for ConsumerGroupTargetAssignmentMemberValue {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 0)?;
        let topic_partitions = d.structs(true, 18, version)?;
        d.skip_tagged_fields()?;
        Ok(Self { topic_partitions })
    }
}

impl Encode for ConsumerGroupTargetAssignmentMemberValue {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 0)?;
        e.structs(true, &self.topic_partitions, version)?;
        e.no_tagged_fields();
        Ok(())
    }
}

/// `TopicPartition`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicPartition {
    /// `uuid`.
    pub topic_id: TopicId,
    /// `[]int32`.
    pub partitions: Vec<i32>,
}

impl<'a> Decode<'a> for TopicPartition {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let topic_id = d.uuid()?;
        let partitions = d.array(true, 4, Decoder::i32)?;
        d.skip_tagged_fields()?;
        Ok(Self { topic_id, partitions })
    }
}

impl Encode for TopicPartition {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.uuid(self.topic_id);
        e.array(true, &self.partitions, |e, value| {
            e.i32(*value);
            Ok(())
        })?;
        e.no_tagged_fields();
        Ok(())
    }
}
