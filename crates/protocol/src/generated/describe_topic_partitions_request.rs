// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `DescribeTopicPartitions`. Version 0, tagged fields from version 0 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};

/// `DescribeTopicPartitionsRequest`, version 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribeTopicPartitionsRequest<'a> {
    /// `[]TopicRequest`.
    pub topics: Vec<TopicRequest<'a>>,
    /// `int32`, default 2000.
    pub response_partition_limit: i32,
    /// `Cursor`, may be null, default null.
    pub cursor: Option<Cursor<'a>>,
}

impl Default for DescribeTopicPartitionsRequest<'_> {
    fn default() -> Self {
        Self { topics: Vec::new(), response_partition_limit: 2000, cursor: None }
    }
}

impl<'a> Decode<'a> for DescribeTopicPartitionsRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 0)?;
        let topics = d.structs(true, 2, version)?;
        let response_partition_limit = d.i32()?;
        let cursor = d.nullable_struct(version)?;
        d.skip_tagged_fields()?;
        Ok(Self { topics, response_partition_limit, cursor })
    }
}

impl Encode for DescribeTopicPartitionsRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 0)?;
        e.structs(true, &self.topics, version)?;
        e.i32(self.response_partition_limit);
        e.nullable_struct(self.cursor.as_ref(), version)?;
        e.no_tagged_fields();
        Ok(())
    }
}

/// `TopicRequest`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicRequest<'a> {
    /// `string`.
    pub name: Str<'a>,
}

impl<'a> Decode<'a> for TopicRequest<'a> {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let name = d.string(true)?;
        d.skip_tagged_fields()?;
        Ok(Self { name })
    }
}

impl Encode for TopicRequest<'_> {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.string(true, &self.name)?;
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

impl<'a> Request<'a> for DescribeTopicPartitionsRequest<'a> {
    const KEY: ApiKey = ApiKey::DescribeTopicPartitions;
    type Response<'r> = super::DescribeTopicPartitionsResponse<'r>;
}
