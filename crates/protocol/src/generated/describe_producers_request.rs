// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `DescribeProducers`. Version 0, tagged fields from version 0 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};

/// `DescribeProducersRequest`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeProducersRequest<'a> {
    /// `[]TopicRequest`.
    pub topics: Vec<TopicRequest<'a>>,
}

impl<'a> Decode<'a> for DescribeProducersRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 0)?;
        let topics = d.structs(true, 3, version)?;
        d.skip_tagged_fields()?;
        Ok(Self { topics })
    }
}

impl Encode for DescribeProducersRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 0)?;
        e.structs(true, &self.topics, version)?;
        e.no_tagged_fields();
        Ok(())
    }
}

/// `TopicRequest`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicRequest<'a> {
    /// `string`.
    pub name: Str<'a>,
    /// `[]int32`.
    pub partition_indexes: Vec<i32>,
}

impl<'a> Decode<'a> for TopicRequest<'a> {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let name = d.string(true)?;
        let partition_indexes = d.array(true, 4, Decoder::i32)?;
        d.skip_tagged_fields()?;
        Ok(Self { name, partition_indexes })
    }
}

impl Encode for TopicRequest<'_> {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.string(true, &self.name)?;
        e.array(true, &self.partition_indexes, |e, value| {
            e.i32(*value);
            Ok(())
        })?;
        e.no_tagged_fields();
        Ok(())
    }
}

impl<'a> Request<'a> for DescribeProducersRequest<'a> {
    const KEY: ApiKey = ApiKey::DescribeProducers;
    type Response<'r> = super::DescribeProducersResponse<'r>;
}
