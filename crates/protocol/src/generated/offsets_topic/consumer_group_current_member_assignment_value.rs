// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Value of the record `ConsumerGroupCurrentMemberAssignment`. Version 0, tagged fields from version 0 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, check_decode, check_encode};
use riverrun_types::TopicId;

/// `ConsumerGroupCurrentMemberAssignmentValue`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerGroupCurrentMemberAssignmentValue {
    /// `int32`.
    pub member_epoch: i32,
    /// `int32`.
    pub previous_member_epoch: i32,
    /// `int8`.
    pub state: i8,
    /// `[]TopicPartitions`.
    pub assigned_partitions: Vec<TopicPartitions>,
    /// `[]TopicPartitions`.
    pub partitions_pending_revocation: Vec<TopicPartitions>,
}

impl<'a> Decode<'a> for ConsumerGroupCurrentMemberAssignmentValue {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 0)?;
        let member_epoch = d.i32()?;
        let previous_member_epoch = d.i32()?;
        let state = d.i8()?;
        let assigned_partitions = d.structs(true, 18, version)?;
        let partitions_pending_revocation = d.structs(true, 18, version)?;
        d.skip_tagged_fields()?;
        Ok(Self {
            member_epoch,
            previous_member_epoch,
            state,
            assigned_partitions,
            partitions_pending_revocation,
        })
    }
}

impl Encode for ConsumerGroupCurrentMemberAssignmentValue {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 0)?;
        e.i32(self.member_epoch);
        e.i32(self.previous_member_epoch);
        e.i8(self.state);
        e.structs(true, &self.assigned_partitions, version)?;
        e.structs(true, &self.partitions_pending_revocation, version)?;
        e.no_tagged_fields();
        Ok(())
    }
}

/// `TopicPartitions`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicPartitions {
    /// `uuid`.
    pub topic_id: TopicId,
    /// `[]int32`.
    pub partitions: Vec<i32>,
    /// `[]int32`, tag 0, may be null, default null.
    pub assignment_epochs: Option<Vec<i32>>,
}

impl<'a> Decode<'a> for TopicPartitions {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let topic_id = d.uuid()?;
        let partitions = d.array(true, 4, Decoder::i32)?;
        let mut assignment_epochs = None;
        d.tagged_fields(|d, tag| {
            match tag {
                0 => assignment_epochs = d.nullable_array(true, 4, Decoder::i32)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(Self { topic_id, partitions, assignment_epochs })
    }
}

impl Encode for TopicPartitions {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.uuid(self.topic_id);
        e.array(true, &self.partitions, |e, value| {
            e.i32(*value);
            Ok(())
        })?;
        let tags = e.begin_tagged_fields();
        if self.assignment_epochs.is_some() {
            let start = e.begin_tagged_field(&tags, 0);
            e.nullable_array(true, self.assignment_epochs.as_deref(), |e, value| {
                e.i32(*value);
                Ok(())
            })?;
            e.end_tagged_field(&start)?;
        }
        Ok(())
    }
}
