// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Value of the record `ConsumerGroupPartitionMetadata`. Version 0, tagged fields from version 0 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};
use riverrun_types::TopicId;

/// `ConsumerGroupPartitionMetadataValue`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerGroupPartitionMetadataValue<'a> {
    /// `[]TopicMetadata`.
    pub topics: Vec<TopicMetadata<'a>>,
}

impl<'a> Decode<'a> for ConsumerGroupPartitionMetadataValue<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 0)?;
        let topics = d.structs(true, 23, version)?;
        d.skip_tagged_fields()?;
        Ok(Self { topics })
    }
}

impl Encode for ConsumerGroupPartitionMetadataValue<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 0)?;
        e.structs(true, &self.topics, version)?;
        e.no_tagged_fields();
        Ok(())
    }
}

/// `TopicMetadata`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicMetadata<'a> {
    /// `uuid`.
    pub topic_id: TopicId,
    /// `string`.
    pub topic_name: Str<'a>,
    /// `int32`.
    pub num_partitions: i32,
    /// `[]PartitionMetadata`.
    pub partition_metadata: Vec<PartitionMetadata<'a>>,
}

impl<'a> Decode<'a> for TopicMetadata<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let topic_id = d.uuid()?;
        let topic_name = d.string(true)?;
        let num_partitions = d.i32()?;
        let partition_metadata = d.structs(true, 6, version)?;
        d.skip_tagged_fields()?;
        Ok(Self { topic_id, topic_name, num_partitions, partition_metadata })
    }
}

impl Encode for TopicMetadata<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        e.uuid(self.topic_id);
        e.string(true, &self.topic_name)?;
        e.i32(self.num_partitions);
        e.structs(true, &self.partition_metadata, version)?;
        e.no_tagged_fields();
        Ok(())
    }
}

/// `PartitionMetadata`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionMetadata<'a> {
    /// `int32`.
    pub partition: i32,
    /// `[]string`.
    pub racks: Vec<Str<'a>>,
}

impl<'a> Decode<'a> for PartitionMetadata<'a> {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let partition = d.i32()?;
        let racks = d.array(true, 1, |d| d.string(true))?;
        d.skip_tagged_fields()?;
        Ok(Self { partition, racks })
    }
}

impl Encode for PartitionMetadata<'_> {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.i32(self.partition);
        e.array(true, &self.racks, |e, value| e.string(true, value))?;
        e.no_tagged_fields();
        Ok(())
    }
}
