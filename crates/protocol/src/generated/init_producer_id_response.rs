// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `InitProducerId`. Versions 0 to 6, tagged fields from version 2 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, check_decode, check_encode};

/// `InitProducerIdResponse`, versions 0 to 6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitProducerIdResponse {
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `int16`.
    pub error_code: i16,
    /// `int64`, default -1.
    pub producer_id: i64,
    /// `int16`.
    pub producer_epoch: i16,
    /// `int64`, version 6, default -1.
    pub ongoing_txn_producer_id: i64,
    /// `int16`, version 6, default -1.
    pub ongoing_txn_producer_epoch: i16,
}

impl Default for InitProducerIdResponse {
    fn default() -> Self {
        Self {
            throttle_time_ms: 0,
            error_code: 0,
            producer_id: -1,
            producer_epoch: 0,
            ongoing_txn_producer_id: -1,
            ongoing_txn_producer_epoch: -1,
        }
    }
}

impl<'a> Decode<'a> for InitProducerIdResponse {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 6)?;
        let flexible = version >= 2;
        let throttle_time_ms = d.i32()?;
        let error_code = d.i16()?;
        let producer_id = d.i64()?;
        let producer_epoch = d.i16()?;
        let ongoing_txn_producer_id = if version == 6 { d.i64()? } else { -1 };
        let ongoing_txn_producer_epoch = if version == 6 { d.i16()? } else { -1 };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self {
            throttle_time_ms,
            error_code,
            producer_id,
            producer_epoch,
            ongoing_txn_producer_id,
            ongoing_txn_producer_epoch,
        })
    }
}

impl Encode for InitProducerIdResponse {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 6)?;
        let flexible = version >= 2;
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        e.i64(self.producer_id);
        e.i16(self.producer_epoch);
        if version == 6 {
            e.i64(self.ongoing_txn_producer_id);
        } else if self.ongoing_txn_producer_id != -1 {
            return Err(EncodeError::AbsentField { field: "ongoing_txn_producer_id", version });
        }
        if version == 6 {
            e.i16(self.ongoing_txn_producer_epoch);
        } else if self.ongoing_txn_producer_epoch != -1 {
            return Err(EncodeError::AbsentField { field: "ongoing_txn_producer_epoch", version });
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}
