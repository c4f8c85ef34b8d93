// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `Produce`. Versions 3 to 13, tagged fields from version 9 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};
use riverrun_types::TopicId;

/// `ProduceResponse`, versions 3 to 13.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProduceResponse<'a> {
    /// `[]TopicProduceResponse`.
    pub responses: Vec<TopicProduceResponse<'a>>,
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `[]NodeEndpoint`, versions 10 to 13, tag 0.
    pub node_endpoints: Vec<NodeEndpoint<'a>>,
}

impl<'a> Decode<'a> for ProduceResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 3, 13)?;
        let flexible = version >= 9;
        let responses = d.structs(flexible, 3, version)?;
        let throttle_time_ms = d.i32()?;
        let mut node_endpoints = Vec::new();
        if flexible {
            d.tagged_fields(|d, tag| {
                match tag {
                    0 if version >= 10 => node_endpoints = d.structs(true, 11, version)?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
        }
        Ok(Self { responses, throttle_time_ms, node_endpoints })
    }
}

impl Encode for ProduceResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 3, 13)?;
        let flexible = version >= 9;
        e.structs(flexible, &self.responses, version)?;
        e.i32(self.throttle_time_ms);
        if version < 10 && !self.node_endpoints.is_empty() {
            return Err(EncodeError::AbsentField { field: "node_endpoints", version });
        }
        if flexible {
            let tags = e.begin_tagged_fields();
            if version >= 10 && !self.node_endpoints.is_empty() {
                let start = e.begin_tagged_field(&tags, 0);
                e.structs(true, &self.node_endpoints, version)?;
                e.end_tagged_field(&start)?;
            }
        }
        Ok(())
    }
}

/// `TopicProduceResponse`, versions 3 to 13.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicProduceResponse<'a> {
    /// `string`, versions 3 to 12.
    pub name: Str<'a>,
    /// `uuid`, version 13.
    pub topic_id: TopicId,
    /// `[]PartitionProduceResponse`.
    pub partition_responses: Vec<PartitionProduceResponse<'a>>,
}

impl<'a> Decode<'a> for TopicProduceResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 9;
        let name = if version <= 12 { d.string(flexible)? } else { Str::Borrowed("") };
        let topic_id = if version == 13 { d.uuid()? } else { TopicId::ZERO };
        let partition_responses = d.structs(flexible, 22, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { name, topic_id, partition_responses })
    }
}

impl Encode for TopicProduceResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 9;
        if version <= 12 {
            e.string(flexible, &self.name)?;
        }
        if version == 13 {
            e.uuid(self.topic_id);
        }
        e.structs(flexible, &self.partition_responses, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `PartitionProduceResponse`, versions 3 to 13.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionProduceResponse<'a> {
    /// `int32`.
    pub index: i32,
    /// `int16`.
    pub error_code: i16,
    /// `int64`.
    pub base_offset: i64,
    /// `int64`, default -1.
    pub log_append_time_ms: i64,
    /// `int64`, versions 5 to 13, default -1.
    pub log_start_offset: i64,
    /// `[]BatchIndexAndErrorMessage`, versions 8 to 13.
    pub record_errors: Vec<BatchIndexAndErrorMessage<'a>>,
    /// `string`, versions 8 to 13, may be null, default null.
    pub error_message: Option<Str<'a>>,
    /// `LeaderIdAndEpoch`, versions 10 to 13, tag 0.
    pub current_leader: LeaderIdAndEpoch,
}

impl Default for PartitionProduceResponse<'_> {
    fn default() -> Self {
        Self {
            index: 0,
            error_code: 0,
            base_offset: 0,
            log_append_time_ms: -1,
            log_start_offset: -1,
            record_errors: Vec::new(),
            error_message: None,
            current_leader: LeaderIdAndEpoch::default(),
        }
    }
}

impl<'a> Decode<'a> for PartitionProduceResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 9;
        let index = d.i32()?;
        let error_code = d.i16()?;
        let base_offset = d.i64()?;
        let log_append_time_ms = d.i64()?;
        let log_start_offset = if version >= 5 { d.i64()? } else { -1 };
        let record_errors = if version >= 8 { d.structs(flexible, 6, version)? } else { Vec::new() };
        let error_message = if version >= 8 { d.nullable_string(flexible)? } else { None };
        let mut current_leader = LeaderIdAndEpoch::default();
        if flexible {
            d.tagged_fields(|d, tag| {
                match tag {
                    0 if version >= 10 => current_leader = LeaderIdAndEpoch::decode(d, version)?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
        }
        Ok(Self {
            index,
            error_code,
            base_offset,
            log_append_time_ms,
            log_start_offset,
            record_errors,
            error_message,
            current_leader,
        })
    }
}

impl Encode for PartitionProduceResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 9;
        e.i32(self.index);
        e.i16(self.error_code);
        e.i64(self.base_offset);
        e.i64(self.log_append_time_ms);
        if version >= 5 {
            e.i64(self.log_start_offset);
        }
        if version >= 8 {
            e.structs(flexible, &self.record_errors, version)?;
        }
        if version >= 8 {
            e.nullable_string(flexible, self.error_message.as_deref())?;
        }
        if version < 10 && self.current_leader != LeaderIdAndEpoch::default() {
            return Err(EncodeError::AbsentField { field: "current_leader", version });
        }
        if flexible {
            let tags = e.begin_tagged_fields();
            if version >= 10 && self.current_leader != LeaderIdAndEpoch::default() {
                let start = e.begin_tagged_field(&tags, 0);
                self.current_leader.encode(e, version)?;
                e.end_tagged_field(&start)?;
            }
        }
        Ok(())
    }
}

/// `BatchIndexAndErrorMessage`, versions 8 to 13.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchIndexAndErrorMessage<'a> {
    /// `int32`.
    pub batch_index: i32,
    /// `string`, may be null, default null.
    pub batch_index_error_message: Option<Str<'a>>,
}

impl<'a> Decode<'a> for BatchIndexAndErrorMessage<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 9;
        let batch_index = d.i32()?;
        let batch_index_error_message = d.nullable_string(flexible)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { batch_index, batch_index_error_message })
    }
}

impl Encode for BatchIndexAndErrorMessage<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 9;
        e.i32(self.batch_index);
        e.nullable_string(flexible, self.batch_index_error_message.as_deref())?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `LeaderIdAndEpoch`, versions 10 to 13.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderIdAndEpoch {
    /// `int32`, default -1.
    pub leader_id: i32,
    /// `int32`, default -1.
    pub leader_epoch: i32,
}

impl Default for LeaderIdAndEpoch {
    fn default() -> Self {
        Self { leader_id: -1, leader_epoch: -1 }
    }
}

impl<'a> Decode<'a> for LeaderIdAndEpoch {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let leader_id = d.i32()?;
        let leader_epoch = d.i32()?;
        d.skip_tagged_fields()?;
        Ok(Self { leader_id, leader_epoch })
    }
}

impl Encode for LeaderIdAndEpoch {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.i32(self.leader_id);
        e.i32(self.leader_epoch);
        e.no_tagged_fields();
        Ok(())
    }
}

/// `NodeEndpoint`, versions 10 to 13.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeEndpoint<'a> {
    /// `int32`.
    pub node_id: i32,
    /// `string`.
    pub host: Str<'a>,
    /// `int32`.
    pub port: i32,
    /// `string`, may be null, default null.
    pub rack: Option<Str<'a>>,
}

impl<'a> Decode<'a> for NodeEndpoint<'a> {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let node_id = d.i32()?;
        let host = d.string(true)?;
        let port = d.i32()?;
        let rack = d.nullable_string(true)?;
        d.skip_tagged_fields()?;
        Ok(Self { node_id, host, port, rack })
    }
}

impl Encode for NodeEndpoint<'_> {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.i32(self.node_id);
        e.string(true, &self.host)?;
        e.i32(self.port);
        e.nullable_string(true, self.rack.as_deref())?;
        e.no_tagged_fields();
        Ok(())
    }
}
