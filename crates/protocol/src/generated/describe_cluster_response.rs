// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `DescribeCluster`. Versions 0 to 2, tagged fields from version 0 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `DescribeClusterResponse`, versions 0 to 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribeClusterResponse<'a> {
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `int16`.
    pub error_code: i16,
    /// `string`, may be null, default null.
    pub error_message: Option<Str<'a>>,
    /// `int8`, versions 1 to 2, default 1.
    pub endpoint_type: i8,
    /// `string`.
    pub cluster_id: Str<'a>,
    /// `int32`, default -1.
    pub controller_id: i32,
    /// `[]DescribeClusterBroker`.
    pub brokers: Vec<DescribeClusterBroker<'a>>,
    /// `int32`, default -2147483648.
    pub cluster_authorized_operations: i32,
}

impl Default for DescribeClusterResponse<'_> {
    fn default() -> Self {
        Self {
            throttle_time_ms: 0,
            error_code: 0,
            error_message: None,
            endpoint_type: 1,
            cluster_id: Str::Borrowed(""),
            controller_id: -1,
            brokers: Vec::new(),
            cluster_authorized_operations: -2_147_483_648,
        }
    }
}

impl<'a> Decode<'a> for DescribeClusterResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 2)?;
        let throttle_time_ms = d.i32()?;
        let error_code = d.i16()?;
        let error_message = d.nullable_string(true)?;
        let endpoint_type = if version >= 1 { d.i8()? } else { 1 };
        let cluster_id = d.string(true)?;
        let controller_id = d.i32()?;
        let brokers = d.structs(true, 11, version)?;
        let cluster_authorized_operations = d.i32()?;
        d.skip_tagged_fields()?;
        Ok(Self {
            throttle_time_ms,
            error_code,
            error_message,
            endpoint_type,
            cluster_id,
            controller_id,
            brokers,
            cluster_authorized_operations,
        })
    }
}

impl Encode for DescribeClusterResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 2)?;
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        e.nullable_string(true, self.error_message.as_deref())?;
        if version >= 1 {
            e.i8(self.endpoint_type);
        } else if self.endpoint_type != 1 {
            return Err(EncodeError::AbsentField { field: "endpoint_type", version });
        }
        e.string(true, &self.cluster_id)?;
        e.i32(self.controller_id);
        e.structs(true, &self.brokers, version)?;
        e.i32(self.cluster_authorized_operations);
        e.no_tagged_fields();
        Ok(())
    }
}

/// `DescribeClusterBroker`, versions 0 to 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeClusterBroker<'a> {
    /// `int32`.
    pub broker_id: i32,
    /// `string`.
    pub host: Str<'a>,
    /// `int32`.
    pub port: i32,
    /// `string`, may be null, default null.
    pub rack: Option<Str<'a>>,
    /// `bool`, version 2.
    pub is_fenced: bool,
}

impl<'a> Decode<'a> for DescribeClusterBroker<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let broker_id = d.i32()?;
        let host = d.string(true)?;
        let port = d.i32()?;
        let rack = d.nullable_string(true)?;
        let is_fenced = if version == 2 { d.bool()? } else { false };
        d.skip_tagged_fields()?;
        Ok(Self { broker_id, host, port, rack, is_fenced })
    }
}

impl Encode for DescribeClusterBroker<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        e.i32(self.broker_id);
        e.string(true, &self.host)?;
        e.i32(self.port);
        e.nullable_string(true, self.rack.as_deref())?;
        if version == 2 {
            e.bool(self.is_fenced);
        } else if self.is_fenced {
            return Err(EncodeError::AbsentField { field: "is_fenced", version });
        }
        e.no_tagged_fields();
        Ok(())
    }
}
