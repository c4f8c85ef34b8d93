// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `ConsumerGroupHeartbeat`. Versions 0 to 1, tagged fields from version 0 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};
use riverrun_types::TopicId;

/// `ConsumerGroupHeartbeatRequest`, versions 0 to 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerGroupHeartbeatRequest<'a> {
    /// `string`.
    pub group_id: Str<'a>,
    /// `string`.
    pub member_id: Str<'a>,
    /// `int32`.
    pub member_epoch: i32,
    /// `string`, may be null, default null.
    pub instance_id: Option<Str<'a>>,
    /// `string`, may be null, default null.
    pub rack_id: Option<Str<'a>>,
    /// `int32`, default -1.
    pub rebalance_timeout_ms: i32,
    /// `[]string`, may be null, default null.
    pub subscribed_topic_names: Option<Vec<Str<'a>>>,
    /// `string`, version 1, may be null, default null.
    pub subscribed_topic_regex: Option<Str<'a>>,
    /// `string`, may be null, default null.
    pub server_assignor: Option<Str<'a>>,
    /// `[]TopicPartitions`, may be null, default null.
    pub topic_partitions: Option<Vec<TopicPartitions>>,
}

impl Default for ConsumerGroupHeartbeatRequest<'_> {
    fn default() -> Self {
        Self {
            group_id: Str::Borrowed(""),
            member_id: Str::Borrowed(""),
            member_epoch: 0,
            instance_id: None,
            rack_id: None,
            rebalance_timeout_ms: -1,
            subscribed_topic_names: None,
            subscribed_topic_regex: None,
            server_assignor: None,
            topic_partitions: None,
        }
    }
}

impl<'a> Decode<'a> for ConsumerGroupHeartbeatRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 1)?;
        let group_id = d.string(true)?;
        let member_id = d.string(true)?;
        let member_epoch = d.i32()?;
        let instance_id = d.nullable_string(true)?;
        let rack_id = d.nullable_string(true)?;
        let rebalance_timeout_ms = d.i32()?;
        let subscribed_topic_names = d.nullable_array(true, 1, |d| d.string(true))?;
        let subscribed_topic_regex = if version == 1 { d.nullable_string(true)? } else { None };
        let server_assignor = d.nullable_string(true)?;
        let topic_partitions = d.nullable_structs(true, 18, version)?;
        d.skip_tagged_fields()?;
        Ok(Self {
            group_id,
            member_id,
            member_epoch,
            instance_id,
            rack_id,
            rebalance_timeout_ms,
            subscribed_topic_names,
            subscribed_topic_regex,
            server_assignor,
            topic_partitions,
        })
    }
}

impl Encode for ConsumerGroupHeartbeatRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 1)?;
        e.string(true, &self.group_id)?;
        e.string(true, &self.member_id)?;
        e.i32(self.member_epoch);
        e.nullable_string(true, self.instance_id.as_deref())?;
        e.nullable_string(true, self.rack_id.as_deref())?;
        e.i32(self.rebalance_timeout_ms);
        e.nullable_array(true, self.subscribed_topic_names.as_deref(), |e, value| e.string(true, value))?;
        if version == 1 {
            e.nullable_string(true, self.subscribed_topic_regex.as_deref())?;
        } else if self.subscribed_topic_regex.is_some() {
            return Err(EncodeError::AbsentField { field: "subscribed_topic_regex", version });
        }
        e.nullable_string(true, self.server_assignor.as_deref())?;
        e.nullable_structs(true, self.topic_partitions.as_deref(), version)?;
        e.no_tagged_fields();
        Ok(())
    }
}

/// `TopicPartitions`, versions 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicPartitions {
    /// `uuid`.
    pub topic_id: TopicId,
    /// `[]int32`.
    pub partitions: Vec<i32>,
}

impl<'a> Decode<'a> for TopicPartitions {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let topic_id = d.uuid()?;
        let partitions = d.array(true, 4, Decoder::i32)?;
        d.skip_tagged_fields()?;
        Ok(Self { topic_id, partitions })
    }
}

impl Encode for TopicPartitions {
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

impl<'a> Request<'a> for ConsumerGroupHeartbeatRequest<'a> {
    const KEY: ApiKey = ApiKey::ConsumerGroupHeartbeat;
    type Response<'r> = super::ConsumerGroupHeartbeatResponse<'r>;
}
