// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `ElectLeaders`. Versions 0 to 2, tagged fields from version 2 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `ElectLeadersResponse`, versions 0 to 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElectLeadersResponse<'a> {
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `int16`, versions 1 to 2.
    pub error_code: i16,
    /// `[]ReplicaElectionResult`.
    pub replica_election_results: Vec<ReplicaElectionResult<'a>>,
}

impl<'a> Decode<'a> for ElectLeadersResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 2)?;
        let flexible = version >= 2;
        let throttle_time_ms = d.i32()?;
        let error_code = if version >= 1 { d.i16()? } else { 0 };
        let replica_election_results = d.structs(flexible, 3, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { throttle_time_ms, error_code, replica_election_results })
    }
}

impl Encode for ElectLeadersResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 2)?;
        let flexible = version >= 2;
        e.i32(self.throttle_time_ms);
        if version >= 1 {
            e.i16(self.error_code);
        } else if self.error_code != 0 {
            return Err(EncodeError::AbsentField { field: "error_code", version });
        }
        e.structs(flexible, &self.replica_election_results, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `ReplicaElectionResult`, versions 0 to 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaElectionResult<'a> {
    /// `string`.
    pub topic: Str<'a>,
    /// `[]PartitionResult`.
    pub partition_result: Vec<PartitionResult<'a>>,
}

impl<'a> Decode<'a> for ReplicaElectionResult<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let topic = d.string(flexible)?;
        let partition_result = d.structs(flexible, 8, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { topic, partition_result })
    }
}

impl Encode for ReplicaElectionResult<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 2;
        e.string(flexible, &self.topic)?;
        e.structs(flexible, &self.partition_result, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `PartitionResult`, versions 0 to 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionResult<'a> {
    /// `int32`.
    pub partition_id: i32,
    /// `int16`.
    pub error_code: i16,
    /// `string`, may be null.
    pub error_message: Option<Str<'a>>,
}

impl Default for PartitionResult<'_> {
    fn default() -> Self {
        Self { partition_id: 0, error_code: 0, error_message: Some(Str::Borrowed("")) }
    }
}

impl<'a> Decode<'a> for PartitionResult<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let partition_id = d.i32()?;
        let error_code = d.i16()?;
        let error_message = d.nullable_string(flexible)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { partition_id, error_code, error_message })
    }
}

impl Encode for PartitionResult<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 2;
        e.i32(self.partition_id);
        e.i16(self.error_code);
        e.nullable_string(flexible, self.error_message.as_deref())?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}
