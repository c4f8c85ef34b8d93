// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `Produce`. Versions 3 to 13, tagged fields from version 9 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Records, Request, Str, check_decode, check_encode};
use riverrun_types::TopicId;

/// `ProduceRequest`, versions 3 to 13.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProduceRequest<'a> {
    /// `string`, may be null, default null.
    pub transactional_id: Option<Str<'a>>,
    /// `int16`.
    pub acks: i16,
    /// `int32`.
    pub timeout_ms: i32,
    /// `[]TopicProduceData`.
    pub topic_data: Vec<TopicProduceData<'a>>,
}

impl<'a> Decode<'a> for ProduceRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 3, 13)?;
        let flexible = version >= 9;
        let transactional_id = d.nullable_string(flexible)?;
        let acks = d.i16()?;
        let timeout_ms = d.i32()?;
        let topic_data = d.structs(flexible, 3, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { transactional_id, acks, timeout_ms, topic_data })
    }
}

impl Encode for ProduceRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 3, 13)?;
        let flexible = version >= 9;
        e.nullable_string(flexible, self.transactional_id.as_deref())?;
        e.i16(self.acks);
        e.i32(self.timeout_ms);
        e.structs(flexible, &self.topic_data, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `TopicProduceData`, versions 3 to 13.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicProduceData<'a> {
    /// `string`, versions 3 to 12.
    pub name: Str<'a>,
    /// `uuid`, version 13.
    pub topic_id: TopicId,
    /// `[]PartitionProduceData`.
    pub partition_data: Vec<PartitionProduceData<'a>>,
}

impl<'a> Decode<'a> for TopicProduceData<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 9;
        let name = if version <= 12 { d.string(flexible)? } else { Str::Borrowed("") };
        let topic_id = if version == 13 { d.uuid()? } else { TopicId::ZERO };
        let partition_data = d.structs(flexible, 6, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { name, topic_id, partition_data })
    }
}

impl Encode for TopicProduceData<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 9;
        if version <= 12 {
            e.string(flexible, &self.name)?;
        }
        if version == 13 {
            e.uuid(self.topic_id);
        }
        e.structs(flexible, &self.partition_data, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `PartitionProduceData`, versions 3 to 13.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionProduceData<'a> {
    /// `int32`.
    pub index: i32,
    /// `records`, may be null.
    pub records: Option<Records<'a>>,
}

impl<'a> Decode<'a> for PartitionProduceData<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 9;
        let index = d.i32()?;
        let records = d.nullable_records(flexible)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { index, records })
    }
}

impl Encode for PartitionProduceData<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 9;
        e.i32(self.index);
        e.nullable_records(flexible, self.records)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

impl<'a> Request<'a> for ProduceRequest<'a> {
    const KEY: ApiKey = ApiKey::Produce;
    type Response<'r> = super::ProduceResponse<'r>;
}
