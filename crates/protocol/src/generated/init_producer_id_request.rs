// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `InitProducerId`. Versions 0 to 6, tagged fields from version 2 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};

/// `InitProducerIdRequest`, versions 0 to 6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitProducerIdRequest<'a> {
    /// `string`, may be null.
    pub transactional_id: Option<Str<'a>>,
    /// `int32`.
    pub transaction_timeout_ms: i32,
    /// `int64`, versions 3 to 6, default -1.
    pub producer_id: i64,
    /// `int16`, versions 3 to 6, default -1.
    pub producer_epoch: i16,
    /// `bool`, version 6.
    pub enable2_pc: bool,
    /// `bool`, version 6.
    pub keep_prepared_txn: bool,
}

impl Default for InitProducerIdRequest<'_> {
    fn default() -> Self {
        Self {
            transactional_id: Some(Str::Borrowed("")),
            transaction_timeout_ms: 0,
            producer_id: -1,
            producer_epoch: -1,
            enable2_pc: false,
            keep_prepared_txn: false,
        }
    }
}

impl<'a> Decode<'a> for InitProducerIdRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 6)?;
        let flexible = version >= 2;
        let transactional_id = d.nullable_string(flexible)?;
        let transaction_timeout_ms = d.i32()?;
        let producer_id = if version >= 3 { d.i64()? } else { -1 };
        let producer_epoch = if version >= 3 { d.i16()? } else { -1 };
        let enable2_pc = if version == 6 { d.bool()? } else { false };
        let keep_prepared_txn = if version == 6 { d.bool()? } else { false };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self {
            transactional_id,
            transaction_timeout_ms,
            producer_id,
            producer_epoch,
            enable2_pc,
            keep_prepared_txn,
        })
    }
}

impl Encode for InitProducerIdRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 6)?;
        let flexible = version >= 2;
        e.nullable_string(flexible, self.transactional_id.as_deref())?;
        e.i32(self.transaction_timeout_ms);
        if version >= 3 {
            e.i64(self.producer_id);
        } else if self.producer_id != -1 {
            return Err(EncodeError::AbsentField { field: "producer_id", version });
        }
        if version >= 3 {
            e.i16(self.producer_epoch);
        } else if self.producer_epoch != -1 {
            return Err(EncodeError::AbsentField { field: "producer_epoch", version });
        }
        if version == 6 {
            e.bool(self.enable2_pc);
        } else if self.enable2_pc {
            return Err(EncodeError::AbsentField { field: "enable2_pc", version });
        }
        if version == 6 {
            e.bool(self.keep_prepared_txn);
        } else if self.keep_prepared_txn {
            return Err(EncodeError::AbsentField { field: "keep_prepared_txn", version });
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

impl<'a> Request<'a> for InitProducerIdRequest<'a> {
    const KEY: ApiKey = ApiKey::InitProducerId;
    type Response<'r> = super::InitProducerIdResponse;
}
