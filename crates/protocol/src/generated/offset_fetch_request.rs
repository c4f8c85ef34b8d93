// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `OffsetFetch`. Versions 1 to 10, tagged fields from version 6 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};
use riverrun_types::TopicId;

/// `OffsetFetchRequest`, versions 1 to 10.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetFetchRequest<'a> {
    /// `string`, versions 1 to 7.
    pub group_id: Str<'a>,
    /// `[]OffsetFetchRequestTopic`, versions 1 to 7, may be null in versions 2 to 7.
    pub topics: Option<Vec<OffsetFetchRequestTopic<'a>>>,
    /// `[]OffsetFetchRequestGroup`, versions 8 to 10.
    pub groups: Vec<OffsetFetchRequestGroup<'a>>,
    /// `bool`, versions 7 to 10.
    pub require_stable: bool,
}

impl Default for OffsetFetchRequest<'_> {
    fn default() -> Self {
        Self {
            group_id: Str::Borrowed(""),
            topics: Some(Vec::new()),
            groups: Vec::new(),
            require_stable: false,
        }
    }
}

impl<'a> Decode<'a> for OffsetFetchRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 1, 10)?;
        let flexible = version >= 6;
        let group_id = if version <= 7 { d.string(flexible)? } else { Str::Borrowed("") };
        let topics = if version <= 7 {
            if version >= 2 {
                d.nullable_structs(flexible, 3, version)?
            } else {
                Some(d.structs(flexible, 3, version)?)
            }
        } else {
            Some(Vec::new())
        };
        let groups = if version >= 8 { d.structs(true, 3, version)? } else { Vec::new() };
        let require_stable = if version >= 7 { d.bool()? } else { false };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { group_id, topics, groups, require_stable })
    }
}

impl Encode for OffsetFetchRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 1, 10)?;
        let flexible = version >= 6;
        if version <= 7 {
            e.string(flexible, &self.group_id)?;
        } else if !self.group_id.is_empty() {
            return Err(EncodeError::AbsentField { field: "group_id", version });
        }
        if version <= 7 {
            if version < 2 && self.topics.is_none() {
                return Err(EncodeError::NullField { field: "topics", version });
            }
            e.nullable_structs(flexible, self.topics.as_deref(), version)?;
        } else if self.topics.as_ref().is_none_or(|value| !value.is_empty()) {
            return Err(EncodeError::AbsentField { field: "topics", version });
        }
        if version >= 8 {
            e.structs(true, &self.groups, version)?;
        } else if !self.groups.is_empty() {
            return Err(EncodeError::AbsentField { field: "groups", version });
        }
        if version >= 7 {
            e.bool(self.require_stable);
        } else if self.require_stable {
            return Err(EncodeError::AbsentField { field: "require_stable", version });
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `OffsetFetchRequestTopic`, versions 1 to 7.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetFetchRequestTopic<'a> {
    /// `string`.
    pub name: Str<'a>,
    /// `[]int32`.
    pub partition_indexes: Vec<i32>,
}

impl<'a> Decode<'a> for OffsetFetchRequestTopic<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 6;
        let name = d.string(flexible)?;
        let partition_indexes = d.array(flexible, 4, Decoder::i32)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { name, partition_indexes })
    }
}

impl Encode for OffsetFetchRequestTopic<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 6;
        e.string(flexible, &self.name)?;
        e.array(flexible, &self.partition_indexes, |e, value| {
            e.i32(*value);
            Ok(())
        })?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `OffsetFetchRequestGroup`, versions 8 to 10.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetFetchRequestGroup<'a> {
    /// `string`.
    pub group_id: Str<'a>,
    /// `string`, versions 9 to 10, may be null, default null.
    pub member_id: Option<Str<'a>>,
    /// `int32`, versions 9 to 10, default -1.
    pub member_epoch: i32,
    /// `[]OffsetFetchRequestTopics`, may be null.
    pub topics: Option<Vec<OffsetFetchRequestTopics<'a>>>,
}

impl Default for OffsetFetchRequestGroup<'_> {
    fn default() -> Self {
        Self { group_id: Str::Borrowed(""), member_id: None, member_epoch: -1, topics: Some(Vec::new()) }
    }
}

impl<'a> Decode<'a> for OffsetFetchRequestGroup<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let group_id = d.string(true)?;
        let member_id = if version >= 9 { d.nullable_string(true)? } else { None };
        let member_epoch = if version >= 9 { d.i32()? } else { -1 };
        let topics = d.nullable_structs(true, 3, version)?;
        d.skip_tagged_fields()?;
        Ok(Self { group_id, member_id, member_epoch, topics })
    }
}

impl Encode for OffsetFetchRequestGroup<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        e.string(true, &self.group_id)?;
        if version >= 9 {
            e.nullable_string(true, self.member_id.as_deref())?;
        }
        if version >= 9 {
            e.i32(self.member_epoch);
        }
        e.nullable_structs(true, self.topics.as_deref(), version)?;
        e.no_tagged_fields();
        Ok(())
    }
}

/// `OffsetFetchRequestTopics`, versions 8 to 10.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetFetchRequestTopics<'a> {
    /// `string`, versions 8 to 9.
    pub name: Str<'a>,
    /// `uuid`, version 10.
    pub topic_id: TopicId,
    /// `[]int32`.
    pub partition_indexes: Vec<i32>,
}

impl<'a> Decode<'a> for OffsetFetchRequestTopics<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let name = if version <= 9 { d.string(true)? } else { Str::Borrowed("") };
        let topic_id = if version == 10 { d.uuid()? } else { TopicId::ZERO };
        let partition_indexes = d.array(true, 4, Decoder::i32)?;
        d.skip_tagged_fields()?;
        Ok(Self { name, topic_id, partition_indexes })
    }
}

impl Encode for OffsetFetchRequestTopics<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        if version <= 9 {
            e.string(true, &self.name)?;
        }
        if version == 10 {
            e.uuid(self.topic_id);
        }
        e.array(true, &self.partition_indexes, |e, value| {
            e.i32(*value);
            Ok(())
        })?;
        e.no_tagged_fields();
        Ok(())
    }
}

impl<'a> Request<'a> for OffsetFetchRequest<'a> {
    const KEY: ApiKey = ApiKey::OffsetFetch;
    type Response<'r> = super::OffsetFetchResponse<'r>;
}
