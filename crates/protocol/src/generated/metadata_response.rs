// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `Metadata`. Versions 0 to 13, tagged fields from version 9 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};
use riverrun_types::TopicId;

/// `MetadataResponse`, versions 0 to 13.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataResponse<'a> {
    /// `int32`, versions 3 to 13.
    pub throttle_time_ms: i32,
    /// `[]MetadataResponseBroker`.
    pub brokers: Vec<MetadataResponseBroker<'a>>,
    /// `string`, versions 2 to 13, may be null, default null.
    pub cluster_id: Option<Str<'a>>,
    /// `int32`, versions 1 to 13, default -1.
    pub controller_id: i32,
    /// `[]MetadataResponseTopic`.
    pub topics: Vec<MetadataResponseTopic<'a>>,
    /// `int32`, versions 8 to 10, default -2147483648.
    pub cluster_authorized_operations: i32,
    /// `int16`, version 13.
    pub error_code: i16,
}

impl Default for MetadataResponse<'_> {
    fn default() -> Self {
        Self {
            throttle_time_ms: 0,
            brokers: Vec::new(),
            cluster_id: None,
            controller_id: -1,
            topics: Vec::new(),
            cluster_authorized_operations: -2_147_483_648,
            error_code: 0,
        }
    }
}

impl<'a> Decode<'a> for MetadataResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 13)?;
        let flexible = version >= 9;
        let throttle_time_ms = if version >= 3 { d.i32()? } else { 0 };
        let brokers = d.structs(flexible, 10, version)?;
        let cluster_id = if version >= 2 { d.nullable_string(flexible)? } else { None };
        let controller_id = if version >= 1 { d.i32()? } else { -1 };
        let topics = d.structs(flexible, 8, version)?;
        let cluster_authorized_operations =
            if (8..=10).contains(&version) { d.i32()? } else { -2_147_483_648 };
        let error_code = if version == 13 { d.i16()? } else { 0 };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self {
            throttle_time_ms,
            brokers,
            cluster_id,
            controller_id,
            topics,
            cluster_authorized_operations,
            error_code,
        })
    }
}

impl Encode for MetadataResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 13)?;
        let flexible = version >= 9;
        if version >= 3 {
            e.i32(self.throttle_time_ms);
        }
        e.structs(flexible, &self.brokers, version)?;
        if version >= 2 {
            e.nullable_string(flexible, self.cluster_id.as_deref())?;
        }
        if version >= 1 {
            e.i32(self.controller_id);
        }
        e.structs(flexible, &self.topics, version)?;
        if (8..=10).contains(&version) {
            e.i32(self.cluster_authorized_operations);
        } else if self.cluster_authorized_operations != -2_147_483_648 {
            return Err(EncodeError::AbsentField { field: "cluster_authorized_operations", version });
        }
        if version == 13 {
            e.i16(self.error_code);
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `MetadataResponseBroker`, versions 0 to 13.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataResponseBroker<'a> {
    /// `int32`.
    pub node_id: i32,
    /// `string`.
    pub host: Str<'a>,
    /// `int32`.
    pub port: i32,
    /// `string`, versions 1 to 13, may be null, default null.
    pub rack: Option<Str<'a>>,
}

impl<'a> Decode<'a> for MetadataResponseBroker<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 9;
        let node_id = d.i32()?;
        let host = d.string(flexible)?;
        let port = d.i32()?;
        let rack = if version >= 1 { d.nullable_string(flexible)? } else { None };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { node_id, host, port, rack })
    }
}

impl Encode for MetadataResponseBroker<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 9;
        e.i32(self.node_id);
        e.string(flexible, &self.host)?;
        e.i32(self.port);
        if version >= 1 {
            e.nullable_string(flexible, self.rack.as_deref())?;
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `MetadataResponseTopic`, versions 0 to 13.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataResponseTopic<'a> {
    /// `int16`.
    pub error_code: i16,
    /// `string`, may be null in versions 12 to 13.
    pub name: Option<Str<'a>>,
    /// `uuid`, versions 10 to 13.
    pub topic_id: TopicId,
    /// `bool`, versions 1 to 13.
    pub is_internal: bool,
    /// `[]MetadataResponsePartition`.
    pub partitions: Vec<MetadataResponsePartition>,
    /// `int32`, versions 8 to 13, default -2147483648.
    pub topic_authorized_operations: i32,
}

impl Default for MetadataResponseTopic<'_> {
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

impl<'a> Decode<'a> for MetadataResponseTopic<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 9;
        let error_code = d.i16()?;
        let name = if version >= 12 { d.nullable_string(flexible)? } else { Some(d.string(flexible)?) };
        let topic_id = if version >= 10 { d.uuid()? } else { TopicId::ZERO };
        let is_internal = if version >= 1 { d.bool()? } else { false };
        let partitions = d.structs(flexible, 18, version)?;
        let topic_authorized_operations = if version >= 8 { d.i32()? } else { -2_147_483_648 };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { error_code, name, topic_id, is_internal, partitions, topic_authorized_operations })
    }
}

impl Encode for MetadataResponseTopic<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 9;
        e.i16(self.error_code);
        if version < 12 && self.name.is_none() {
            return Err(EncodeError::NullField { field: "name", version });
        }
        e.nullable_string(flexible, self.name.as_deref())?;
        if version >= 10 {
            e.uuid(self.topic_id);
        }
        if version >= 1 {
            e.bool(self.is_internal);
        }
        e.structs(flexible, &self.partitions, version)?;
        if version >= 8 {
            e.i32(self.topic_authorized_operations);
        } else if self.topic_authorized_operations != -2_147_483_648 {
            return Err(EncodeError::AbsentField { field: "topic_authorized_operations", version });
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `MetadataResponsePartition`, versions 0 to 13.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataResponsePartition {
    /// `int16`.
    pub error_code: i16,
    /// `int32`.
    pub partition_index: i32,
    /// `int32`.
    pub leader_id: i32,
    /// `int32`, versions 7 to 13, default -1.
    pub leader_epoch: i32,
    /// `[]int32`.
    pub replica_nodes: Vec<i32>,
    /// `[]int32`.
    pub isr_nodes: Vec<i32>,
    /// `[]int32`, versions 5 to 13.
    pub offline_replicas: Vec<i32>,
}

impl Default for MetadataResponsePartition {
    fn default() -> Self {
        Self {
            error_code: 0,
            partition_index: 0,
            leader_id: 0,
            leader_epoch: -1,
            replica_nodes: Vec::new(),
            isr_nodes: Vec::new(),
            offline_replicas: Vec::new(),
        }
    }
}

impl<'a> Decode<'a> for MetadataResponsePartition {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 9;
        let error_code = d.i16()?;
        let partition_index = d.i32()?;
        let leader_id = d.i32()?;
        let leader_epoch = if version >= 7 { d.i32()? } else { -1 };
        let replica_nodes = d.array(flexible, 4, Decoder::i32)?;
        let isr_nodes = d.array(flexible, 4, Decoder::i32)?;
        let offline_replicas = if version >= 5 { d.array(flexible, 4, Decoder::i32)? } else { Vec::new() };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self {
            error_code,
            partition_index,
            leader_id,
            leader_epoch,
            replica_nodes,
            isr_nodes,
            offline_replicas,
        })
    }
}

impl Encode for MetadataResponsePartition {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 9;
        e.i16(self.error_code);
        e.i32(self.partition_index);
        e.i32(self.leader_id);
        if version >= 7 {
            e.i32(self.leader_epoch);
        }
        e.array(flexible, &self.replica_nodes, |e, value| {
            e.i32(*value);
            Ok(())
        })?;
        e.array(flexible, &self.isr_nodes, |e, value| {
            e.i32(*value);
            Ok(())
        })?;
        if version >= 5 {
            e.array(flexible, &self.offline_replicas, |e, value| {
                e.i32(*value);
                Ok(())
            })?;
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}
