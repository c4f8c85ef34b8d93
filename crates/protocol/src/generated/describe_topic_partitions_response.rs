// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `DescribeTopicPartitions`. Version 0, tagged fields from version 0 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};
use riverrun_types::TopicId;

/// `DescribeTopicPartitionsResponse`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeTopicPartitionsResponse<'a> {
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `[]DescribeTopicPartitionsResponseTopic`.
    pub topics: Vec<DescribeTopicPartitionsResponseTopic<'a>>,
    /// `Cursor`, may be null, default null.
    pub next_cursor: Option<Cursor<'a>>,
}

impl<'a> Decode<'a> for DescribeTopicPartitionsResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 0)?;
        let throttle_time_ms = d.i32()?;
        let topics = d.structs(true, 26, version)?;
        let next_cursor = d.nullable_struct(version)?;
        d.skip_tagged_fields()?;
        Ok(Self { throttle_time_ms, topics, next_cursor })
    }
}

impl Encode for DescribeTopicPartitionsResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 0)?;
        e.i32(self.throttle_time_ms);
        e.structs(true, &self.topics, version)?;
        e.nullable_struct(self.next_cursor.as_ref(), version)?;
        e.no_tagged_fields();
        Ok(())
    }
}

/// `DescribeTopicPartitionsResponseTopic`, version 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribeTopicPartitionsResponseTopic<'a> {
    /// `int16`.
    pub error_code: i16,
    /// `string`, may be null.
    pub name: Option<Str<'a>>,
    /// `uuid`.
    pub topic_id: TopicId,
    /// `bool`.
    pub is_internal: bool,
    /// `[]DescribeTopicPartitionsResponsePartition`.
    pub partitions: Vec<DescribeTopicPartitionsResponsePartition>,
    /// `int32`, default -2147483648.
    pub topic_authorized_operations: i32,
}

impl Default for DescribeTopicPartitionsResponseTopic<'_> {
    fn default() -> Self {
        Self {
            error_code: 0,
            name: Some(Str::Borrowed("")),
            topic_id: TopicId::ZERO,
            is_internal: false,
            partitions: Vec::new(),
            topic_authorized_operations: -2_147_483_648,
        }
    }
}

impl<'a> Decode<'a> for DescribeTopicPartitionsResponseTopic<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let error_code = d.i16()?;
        let name = d.nullable_string(true)?;
        let topic_id = d.uuid()?;
        let is_internal = d.bool()?;
        let partitions = d.structs(true, 20, version)?;
        let topic_authorized_operations = d.i32()?;
        d.skip_tagged_fields()?;
        Ok(Self { error_code, name, topic_id, is_internal, partitions, topic_authorized_operations })
    }
}

impl Encode for DescribeTopicPartitionsResponseTopic<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        e.i16(self.error_code);
        e.nullable_string(true, self.name.as_deref())?;
        e.uuid(self.topic_id);
        e.bool(self.is_internal);
        e.structs(true, &self.partitions, version)?;
        e.i32(self.topic_authorized_operations);
        e.no_tagged_fields();
        Ok(())
    }
}

/// `DescribeTopicPartitionsResponsePartition`, version 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribeTopicPartitionsResponsePartition {
    /// `int16`.
    pub error_code: i16,
    /// `int32`.
    pub partition_index: i32,
    /// `int32`.
    pub leader_id: i32,
    /// `int32`, default -1.
    pub leader_epoch: i32,
    /// `[]int32`.
    pub replica_nodes: Vec<i32>,
    /// `[]int32`.
    pub isr_nodes: Vec<i32>,
    /// `[]int32`, may be null, default null.
    pub eligible_leader_replicas: Option<Vec<i32>>,
    /// `[]int32`, may be null, default null.
    pub last_known_elr: Option<Vec<i32>>,
    /// `[]int32`.
    pub offline_replicas: Vec<i32>,
}

impl Default for DescribeTopicPartitionsResponsePartition {
    fn default() -> Self {
        Self {
            error_code: 0,
            partition_index: 0,
            leader_id: 0,
            leader_epoch: -1,
            replica_nodes: Vec::new(),
            isr_nodes: Vec::new(),
            eligible_leader_replicas: None,
            last_known_elr: None,
            offline_replicas: Vec::new(),
        }
    }
}

impl<'a> Decode<'a> for DescribeTopicPartitionsResponsePartition {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let error_code = d.i16()?;
        let partition_index = d.i32()?;
        let leader_id = d.i32()?;
        let leader_epoch = d.i32()?;
        let replica_nodes = d.array(true, 4, Decoder::i32)?;
        let isr_nodes = d.array(true, 4, Decoder::i32)?;
        let eligible_leader_replicas = d.nullable_array(true, 4, Decoder::i32)?;
        let last_known_elr = d.nullable_array(true, 4, Decoder::i32)?;
        let offline_replicas = d.array(true, 4, Decoder::i32)?;
        d.skip_tagged_fields()?;
        Ok(Self {
            error_code,
            partition_index,
            leader_id,
            leader_epoch,
            replica_nodes,
            isr_nodes,
            eligible_leader_replicas,
            last_known_elr,
            offline_replicas,
        })
    }
}

impl Encode for DescribeTopicPartitionsResponsePartition {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.i16(self.error_code);
        e.i32(self.partition_index);
        e.i32(self.leader_id);
        e.i32(self.leader_epoch);
        e.array(true, &self.replica_nodes, |e, value| {
            e.i32(*value);
            Ok(())
        })?;
        e.array(true, &self.isr_nodes, |e, value| {
            e.i32(*value);
            Ok(())
        })?;
        e.nullable_array(true, self.eligible_leader_replicas.as_deref(), |e, value| {
            e.i32(*value);
            Ok(())
        })?;
        e.nullable_array(true, self.last_known_elr.as_deref(), |e, value| {
            e.i32(*value);
            Ok(())
        })?;
        e.array(true, &self.offline_replicas, |e, value| {
            e.i32(*value);
            Ok(())
        })?;
        e.no_tagged_fields();
        Ok(())
    }
}

/// `Cursor`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor<'a> {
    /// `string`.
    pub topic_name: Str<'a>,
    /// `int32`.
    pub partition_index: i32,
}

impl<'a> Decode<'a> for Cursor<'a> {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let topic_name = d.string(true)?;
        let partition_index = d.i32()?;
        d.skip_tagged_fields()?;
        Ok(Self { topic_name, partition_index })
    }
}

impl Encode for Cursor<'_> {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.string(true, &self.topic_name)?;
        e.i32(self.partition_index);
        e.no_tagged_fields();
        Ok(())
    }
}
