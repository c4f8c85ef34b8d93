// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `ConsumerGroupDescribe`. Versions 0 to 1, tagged fields from version 0 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};

/// `ConsumerGroupDescribeRequest`, versions 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerGroupDescribeRequest<'a> {
    /// `[]string`.
    pub group_ids: Vec<Str<'a>>,
    /// `bool`.
    pub include_authorized_operations: bool,
}

impl<'a> Decode<'a> for ConsumerGroupDescribeRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 1)?;
        let group_ids = d.array(true, 1, |d| d.string(true))?;
        let include_authorized_operations = d.bool()?;
        d.skip_tagged_fields()?;
        Ok(Self { group_ids, include_authorized_operations })
    }
}

impl Encode for ConsumerGroupDescribeRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 1)?;
        e.array(true, &self.group_ids, |e, value| e.string(true, value))?;
        e.bool(self.include_authorized_operations);
        e.no_tagged_fields();
        Ok(())
    }
}

impl<'a> Request<'a> for ConsumerGroupDescribeRequest<'a> {
    const KEY: ApiKey = ApiKey::ConsumerGroupDescribe;
    type Response<'r> = super::ConsumerGroupDescribeResponse<'r>;
}
