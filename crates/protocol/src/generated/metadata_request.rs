// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `Metadata`. Versions 0 to 13, tagged fields from version 9 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};
use riverrun_types::TopicId;

/// `MetadataRequest`, versions 0 to 13.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataRequest<'a> {
    /// `[]MetadataRequestTopic`, may be null in versions 1 to 13.
    pub topics: Option<Vec<MetadataRequestTopic<'a>>>,
    /// `bool`, versions 4 to 13, default true.
    pub allow_auto_topic_creation: bool,
    /// `bool`, versions 8 to 10.
    pub include_cluster_authorized_operations: bool,
    /// `bool`, versions 8 to 13.
    pub include_topic_authorized_operations: bool,
}

impl Default for MetadataRequest<'_> {
    fn default() -> Self {
        Self {
            topics: Some(Vec::new()),
            allow_auto_topic_creation: true,
            include_cluster_authorized_operations: false,
            include_topic_authorized_operations: false,
        }
    }
}

impl<'a> Decode<'a> for MetadataRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 13)?;
        let flexible = version >= 9;
        let topics = if version >= 1 {
            d.nullable_structs(flexible, 2, version)?
        } else {
            Some(d.structs(flexible, 2, version)?)
        };
        let allow_auto_topic_creation = if version >= 4 { d.bool()? } else { true };
        let include_cluster_authorized_operations =
            if (8..=10).contains(&version) { d.bool()? } else { false };
        let include_topic_authorized_operations = if version >= 8 { d.bool()? } else { false };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self {
            topics,
            allow_auto_topic_creation,
            include_cluster_authorized_operations,
            include_topic_authorized_operations,
        })
    }
}

impl Encode for MetadataRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 13)?;
        let flexible = version >= 9;
        if version < 1 && self.topics.is_none() {
            return Err(EncodeError::NullField { field: "topics", version });
        }
        e.nullable_structs(flexible, self.topics.as_deref(), version)?;
        if version >= 4 {
            e.bool(self.allow_auto_topic_creation);
        } else if !self.allow_auto_topic_creation {
            return Err(EncodeError::AbsentField { field: "allow_auto_topic_creation", version });
        }
        if (8..=10).contains(&version) {
            e.bool(self.include_cluster_authorized_operations);
        } else if self.include_cluster_authorized_operations {
            return Err(EncodeError::AbsentField { field: "include_cluster_authorized_operations", version });
        }
        if version >= 8 {
            e.bool(self.include_topic_authorized_operations);
        } else if self.include_topic_authorized_operations {
            return Err(EncodeError::AbsentField { field: "include_topic_authorized_operations", version });
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `MetadataRequestTopic`, versions 0 to 13.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataRequestTopic<'a> {
    /// `uuid`, versions 10 to 13.
    pub topic_id: TopicId,
    /// `string`, may be null in versions 10 to 13.
    pub name: Option<Str<'a>>,
}

impl Default for MetadataRequestTopic<'_> {
    fn default() -> Self {
        Self { topic_id: TopicId::ZERO, name: Some(Str::Borrowed("")) }
    }
}

impl<'a> Decode<'a> for MetadataRequestTopic<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 9;
        let topic_id = if version >= 10 { d.uuid()? } else { TopicId::ZERO };
        let name = if version >= 10 { d.nullable_string(flexible)? } else { Some(d.string(flexible)?) };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { topic_id, name })
    }
}

impl Encode for MetadataRequestTopic<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 9;
        if version >= 10 {
            e.uuid(self.topic_id);
        }
        if version < 10 && self.name.is_none() {
            return Err(EncodeError::NullField { field: "name", version });
        }
        e.nullable_string(flexible, self.name.as_deref())?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

impl<'a> Request<'a> for MetadataRequest<'a> {
    const KEY: ApiKey = ApiKey::Metadata;
    type Response<'r> = super::MetadataResponse<'r>;
}
