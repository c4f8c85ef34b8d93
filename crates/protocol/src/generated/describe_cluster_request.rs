// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `DescribeCluster`. Versions 0 to 2, tagged fields from version 0 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, check_decode, check_encode};

/// `DescribeClusterRequest`, versions 0 to 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribeClusterRequest {
    /// `bool`.
    pub include_cluster_authorized_operations: bool,
    /// `int8`, versions 1 to 2, default 1.
    pub endpoint_type: i8,
    /// `bool`, version 2.
    pub include_fenced_brokers: bool,
}

impl Default for DescribeClusterRequest {
    fn default() -> Self {
        Self { include_cluster_authorized_operations: false, endpoint_type: 1, include_fenced_brokers: false }
    }
}

impl<'a> Decode<'a> for DescribeClusterRequest {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 2)?;
        let include_cluster_authorized_operations = d.bool()?;
        let endpoint_type = if version >= 1 { d.i8()? } else { 1 };
        let include_fenced_brokers = if version == 2 { d.bool()? } else { false };
        d.skip_tagged_fields()?;
        Ok(Self { include_cluster_authorized_operations, endpoint_type, include_fenced_brokers })
    }
}

impl Encode for DescribeClusterRequest {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 2)?;
        e.bool(self.include_cluster_authorized_operations);
        if version >= 1 {
            e.i8(self.endpoint_type);
        } else if self.endpoint_type != 1 {
            return Err(EncodeError::AbsentField { field: "endpoint_type", version });
        }
        if version == 2 {
            e.bool(self.include_fenced_brokers);
        } else if self.include_fenced_brokers {
            return Err(EncodeError::AbsentField { field: "include_fenced_brokers", version });
        }
        e.no_tagged_fields();
        Ok(())
    }
}

impl Request<'_> for DescribeClusterRequest {
    const KEY: ApiKey = ApiKey::DescribeCluster;
    type Response<'r> = super::DescribeClusterResponse<'r>;
}
