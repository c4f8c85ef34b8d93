// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `CreateTopics`. Versions 2 to 7, tagged fields from version 5 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};
use riverrun_types::TopicId;

/// `CreateTopicsResponse`, versions 2 to 7.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateTopicsResponse<'a> {
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `[]CreatableTopicResult`.
    pub topics: Vec<CreatableTopicResult<'a>>,
}

impl<'a> Decode<'a> for CreateTopicsResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 2, 7)?;
        let flexible = version >= 5;
        let throttle_time_ms = d.i32()?;
        let topics = d.structs(flexible, 6, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { throttle_time_ms, topics })
    }
}

impl Encode for CreateTopicsResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 2, 7)?;
        let flexible = version >= 5;
        e.i32(self.throttle_time_ms);
        e.structs(flexible, &self.topics, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `CreatableTopicResult`, versions 2 to 7.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatableTopicResult<'a> {
    /// `string`.
    pub name: Str<'a>,
    /// `uuid`, version 7.
    pub topic_id: TopicId,
    /// `int16`.
    pub error_code: i16,
    /// `string`, may be null.
    pub error_message: Option<Str<'a>>,
    /// `int16`, versions 5 to 7, tag 0.
    pub topic_config_error_code: i16,
    /// `int32`, versions 5 to 7, default -1.
    pub num_partitions: i32,
    /// `int16`, versions 5 to 7, default -1.
    pub replication_factor: i16,
    /// `[]CreatableTopicConfigs`, versions 5 to 7, may be null.
    pub configs: Option<Vec<CreatableTopicConfigs<'a>>>,
}

impl Default for CreatableTopicResult<'_> {
    fn default() -> Self {
        Self {
            name: Str::Borrowed(""),
            topic_id: TopicId::ZERO,
            error_code: 0,
            error_message: Some(Str::Borrowed("")),
            topic_config_error_code: 0,
            num_partitions: -1,
            replication_factor: -1,
            configs: Some(Vec::new()),
        }
    }
}

impl<'a> Decode<'a> for CreatableTopicResult<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 5;
        let name = d.string(flexible)?;
        let topic_id = if version == 7 { d.uuid()? } else { TopicId::ZERO };
        let error_code = d.i16()?;
        let error_message = d.nullable_string(flexible)?;
        let mut topic_config_error_code = 0;
        let num_partitions = if version >= 5 { d.i32()? } else { -1 };
        let replication_factor = if version >= 5 { d.i16()? } else { -1 };
        let configs = if version >= 5 { d.nullable_structs(true, 6, version)? } else { Some(Vec::new()) };
        if flexible {
            d.tagged_fields(|d, tag| {
                match tag {
                    0 => topic_config_error_code = d.i16()?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
        }
        Ok(Self {
            name,
            topic_id,
            error_code,
            error_message,
            topic_config_error_code,
            num_partitions,
            replication_factor,
            configs,
        })
    }
}

impl Encode for CreatableTopicResult<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 5;
        e.string(flexible, &self.name)?;
        if version == 7 {
            e.uuid(self.topic_id);
        }
        e.i16(self.error_code);
        e.nullable_string(flexible, self.error_message.as_deref())?;
        if version >= 5 {
            e.i32(self.num_partitions);
        }
        if version >= 5 {
            e.i16(self.replication_factor);
        }
        if version >= 5 {
            e.nullable_structs(true, self.configs.as_deref(), version)?;
        }
        if flexible {
            let tags = e.begin_tagged_fields();
            if self.topic_config_error_code != 0 {
                let start = e.begin_tagged_field(&tags, 0);
                e.i16(self.topic_config_error_code);
                e.end_tagged_field(&start)?;
            }
        }
        Ok(())
    }
}

/// `CreatableTopicConfigs`, versions 5 to 7.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatableTopicConfigs<'a> {
    /// `string`.
    pub name: Str<'a>,
    /// `string`, may be null.
    pub value: Option<Str<'a>>,
    /// `bool`.
    pub read_only: bool,
    /// `int8`, default -1.
    pub config_source: i8,
    /// `bool`.
    pub is_sensitive: bool,
}

impl Default for CreatableTopicConfigs<'_> {
    fn default() -> Self {
        Self {
            name: Str::Borrowed(""),
            value: Some(Str::Borrowed("")),
            read_only: false,
            config_source: -1,
            is_sensitive: false,
        }
    }
}

impl<'a> Decode<'a> for CreatableTopicConfigs<'a> {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let name = d.string(true)?;
        let value = d.nullable_string(true)?;
        let read_only = d.bool()?;
        let config_source = d.i8()?;
        let is_sensitive = d.bool()?;
        d.skip_tagged_fields()?;
        Ok(Self { name, value, read_only, config_source, is_sensitive })
    }
}

impl Encode for CreatableTopicConfigs<'_> {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.string(true, &self.name)?;
        e.nullable_string(true, self.value.as_deref())?;
        e.bool(self.read_only);
        e.i8(self.config_source);
        e.bool(self.is_sensitive);
        e.no_tagged_fields();
        Ok(())
    }
}
