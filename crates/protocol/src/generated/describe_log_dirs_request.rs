// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `DescribeLogDirs`. Versions 1 to 5, tagged fields from version 2 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};

/// `DescribeLogDirsRequest`, versions 1 to 5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribeLogDirsRequest<'a> {
    /// `[]DescribableLogDirTopic`, may be null.
    pub topics: Option<Vec<DescribableLogDirTopic<'a>>>,
}

impl Default for DescribeLogDirsRequest<'_> {
    fn default() -> Self {
        Self { topics: Some(Vec::new()) }
    }
}

impl<'a> Decode<'a> for DescribeLogDirsRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 1, 5)?;
        let flexible = version >= 2;
        let topics = d.nullable_structs(flexible, 3, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { topics })
    }
}

impl Encode for DescribeLogDirsRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 1, 5)?;
        let flexible = version >= 2;
        e.nullable_structs(flexible, self.topics.as_deref(), version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `DescribableLogDirTopic`, versions 1 to 5.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribableLogDirTopic<'a> {
    /// `string`.
    pub topic: Str<'a>,
    /// `[]int32`.
    pub partitions: Vec<i32>,
}

impl<'a> Decode<'a> for DescribableLogDirTopic<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let topic = d.string(flexible)?;
        let partitions = d.array(flexible, 4, Decoder::i32)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { topic, partitions })
    }
}

impl Encode for DescribableLogDirTopic<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 2;
        e.string(flexible, &self.topic)?;
        e.array(flexible, &self.partitions, |e, value| {
            e.i32(*value);
            Ok(())
        })?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

impl<'a> Request<'a> for DescribeLogDirsRequest<'a> {
    const KEY: ApiKey = ApiKey::DescribeLogDirs;
    type Response<'r> = super::DescribeLogDirsResponse<'r>;
}
