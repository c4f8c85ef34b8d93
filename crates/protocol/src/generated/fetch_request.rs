// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `Fetch`. Versions 4 to 18, tagged fields from version 12 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};
use riverrun_types::TopicId;

/// `FetchRequest`, versions 4 to 18.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRequest<'a> {
    /// `string`, versions 12 to 18, tag 0, may be null, default null.
    pub cluster_id: Option<Str<'a>>,
    /// `int32`, versions 4 to 14, default -1.
    pub replica_id: i32,
    /// `ReplicaState`, versions 15 to 18, tag 1.
    pub replica_state: ReplicaState,
    /// `int32`.
    pub max_wait_ms: i32,
    /// `int32`.
    pub min_bytes: i32,
    /// `int32`, default 2147483647.
    pub max_bytes: i32,
    /// `int8`.
    pub isolation_level: i8,
    /// `int32`, versions 7 to 18.
    pub session_id: i32,
    /// `int32`, versions 7 to 18, default -1.
    pub session_epoch: i32,
    /// `[]FetchTopic`.
    pub topics: Vec<FetchTopic<'a>>,
    /// `[]ForgottenTopic`, versions 7 to 18.
    pub forgotten_topics_data: Vec<ForgottenTopic<'a>>,
    /// `string`, versions 11 to 18.
    pub rack_id: Str<'a>,
}

impl Default for FetchRequest<'_> {
    fn default() -> Self {
        Self {
            cluster_id: None,
            replica_id: -1,
            replica_state: ReplicaState::default(),
            max_wait_ms: 0,
            min_bytes: 0,
            max_bytes: 2_147_483_647,
            isolation_level: 0,
            session_id: 0,
            session_epoch: -1,
            topics: Vec::new(),
            forgotten_topics_data: Vec::new(),
            rack_id: Str::Borrowed(""),
        }
    }
}

impl<'a> Decode<'a> for FetchRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 4, 18)?;
        let flexible = version >= 12;
        let mut cluster_id = None;
        let replica_id = if version <= 14 { d.i32()? } else { -1 };
        let mut replica_state = ReplicaState::default();
        let max_wait_ms = d.i32()?;
        let min_bytes = d.i32()?;
        let max_bytes = d.i32()?;
        let isolation_level = d.i8()?;
        let session_id = if version >= 7 { d.i32()? } else { 0 };
        let session_epoch = if version >= 7 { d.i32()? } else { -1 };
        let topics = d.structs(flexible, 3, version)?;
        let forgotten_topics_data = if version >= 7 { d.structs(flexible, 3, version)? } else { Vec::new() };
        let rack_id = if version >= 11 { d.string(flexible)? } else { Str::Borrowed("") };
        if flexible {
            d.tagged_fields(|d, tag| {
                match tag {
                    0 => cluster_id = d.nullable_string(true)?,
                    1 if version >= 15 => replica_state = ReplicaState::decode(d, version)?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
        }
        Ok(Self {
            cluster_id,
            replica_id,
            replica_state,
            max_wait_ms,
            min_bytes,
            max_bytes,
            isolation_level,
            session_id,
            session_epoch,
            topics,
            forgotten_topics_data,
            rack_id,
        })
    }
}

impl Encode for FetchRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 4, 18)?;
        let flexible = version >= 12;
        if version <= 14 {
            e.i32(self.replica_id);
        } else if self.replica_id != -1 {
            return Err(EncodeError::AbsentField { field: "replica_id", version });
        }
        e.i32(self.max_wait_ms);
        e.i32(self.min_bytes);
        e.i32(self.max_bytes);
        e.i8(self.isolation_level);
        if version >= 7 {
            e.i32(self.session_id);
        }
        if version >= 7 {
            e.i32(self.session_epoch);
        }
        e.structs(flexible, &self.topics, version)?;
        if version >= 7 {
            e.structs(flexible, &self.forgotten_topics_data, version)?;
        } else if !self.forgotten_topics_data.is_empty() {
            return Err(EncodeError::AbsentField { field: "forgotten_topics_data", version });
        }
        if version >= 11 {
            e.string(flexible, &self.rack_id)?;
        }
        if version < 15 && self.replica_state != ReplicaState::default() {
            return Err(EncodeError::AbsentField { field: "replica_state", version });
        }
        if flexible {
            let tags = e.begin_tagged_fields();
            if self.cluster_id.is_some() {
                let start = e.begin_tagged_field(&tags, 0);
                e.nullable_string(true, self.cluster_id.as_deref())?;
                e.end_tagged_field(&start)?;
            }
            if version >= 15 && self.replica_state != ReplicaState::default() {
                let start = e.begin_tagged_field(&tags, 1);
                self.replica_state.encode(e, version)?;
                e.end_tagged_field(&start)?;
            }
        }
        Ok(())
    }
}

/// `ReplicaState`, versions 15 to 18.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaState {
    /// `int32`, default -1.
    pub replica_id: i32,
    /// `int64`, default -1.
    pub replica_epoch: i64,
}

impl Default for ReplicaState {
    fn default() -> Self {
        Self { replica_id: -1, replica_epoch: -1 }
    }
}

impl<'a> Decode<'a> for ReplicaState {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let replica_id = d.i32()?;
        let replica_epoch = d.i64()?;
        d.skip_tagged_fields()?;
        Ok(Self { replica_id, replica_epoch })
    }
}

impl Encode for ReplicaState {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.i32(self.replica_id);
        e.i64(self.replica_epoch);
        e.no_tagged_fields();
        Ok(())
    }
}

/// `FetchTopic`, versions 4 to 18.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchTopic<'a> {
    /// `string`, versions 4 to 12.
    pub topic: Str<'a>,
    /// `uuid`, versions 13 to 18.
    pub topic_id: TopicId,
    /// `[]FetchPartition`.
    pub partitions: Vec<FetchPartition>,
}

impl<'a> Decode<'a> for FetchTopic<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 12;
        let topic = if version <= 12 { d.string(flexible)? } else { Str::Borrowed("") };
        let topic_id = if version >= 13 { d.uuid()? } else { TopicId::ZERO };
        let partitions = d.structs(flexible, 16, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { topic, topic_id, partitions })
    }
}

impl Encode for FetchTopic<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 12;
        if version <= 12 {
            e.string(flexible, &self.topic)?;
        }
        if version >= 13 {
            e.uuid(self.topic_id);
        }
        e.structs(flexible, &self.partitions, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `FetchPartition`, versions 4 to 18.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchPartition {
    /// `int32`.
    pub partition: i32,
    /// `int32`, versions 9 to 18, default -1.
    pub current_leader_epoch: i32,
    /// `int64`.
    pub fetch_offset: i64,
    /// `int32`, versions 12 to 18, default -1.
    pub last_fetched_epoch: i32,
    /// `int64`, versions 5 to 18, default -1.
    pub log_start_offset: i64,
    /// `int32`.
    pub partition_max_bytes: i32,
    /// `uuid`, versions 17 to 18, tag 0.
    pub replica_directory_id: TopicId,
    /// `int64`, version 18, tag 1, default 9223372036854775807.
    pub high_watermark: i64,
}

impl Default for FetchPartition {
    fn default() -> Self {
        Self {
            partition: 0,
            current_leader_epoch: -1,
            fetch_offset: 0,
            last_fetched_epoch: -1,
            log_start_offset: -1,
            partition_max_bytes: 0,
            replica_directory_id: TopicId::ZERO,
            high_watermark: 9_223_372_036_854_775_807,
        }
    }
}

impl<'a> Decode<'a> for FetchPartition {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 12;
        let partition = d.i32()?;
        let current_leader_epoch = if version >= 9 { d.i32()? } else { -1 };
        let fetch_offset = d.i64()?;
        let last_fetched_epoch = if version >= 12 { d.i32()? } else { -1 };
        let log_start_offset = if version >= 5 { d.i64()? } else { -1 };
        let partition_max_bytes = d.i32()?;
        let mut replica_directory_id = TopicId::ZERO;
        let mut high_watermark = 9_223_372_036_854_775_807;
        if flexible {
            d.tagged_fields(|d, tag| {
                match tag {
                    0 if version >= 17 => replica_directory_id = d.uuid()?,
                    1 if version == 18 => high_watermark = d.i64()?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
        }
        Ok(Self {
            partition,
            current_leader_epoch,
            fetch_offset,
            last_fetched_epoch,
            log_start_offset,
            partition_max_bytes,
            replica_directory_id,
            high_watermark,
        })
    }
}

impl Encode for FetchPartition {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 12;
        e.i32(self.partition);
        if version >= 9 {
            e.i32(self.current_leader_epoch);
        }
        e.i64(self.fetch_offset);
        if version >= 12 {
            e.i32(self.last_fetched_epoch);
        } else if self.last_fetched_epoch != -1 {
            return Err(EncodeError::AbsentField { field: "last_fetched_epoch", version });
        }
        if version >= 5 {
            e.i64(self.log_start_offset);
        }
        e.i32(self.partition_max_bytes);
        if flexible {
            let tags = e.begin_tagged_fields();
            if version >= 17 && !self.replica_directory_id.is_zero() {
                let start = e.begin_tagged_field(&tags, 0);
                e.uuid(self.replica_directory_id);
                e.end_tagged_field(&start)?;
            }
            if version == 18 && self.high_watermark != 9_223_372_036_854_775_807 {
                let start = e.begin_tagged_field(&tags, 1);
                e.i64(self.high_watermark);
                e.end_tagged_field(&start)?;
            }
        }
        Ok(())
    }
}

/// `ForgottenTopic`, versions 7 to 18.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForgottenTopic<'a> {
    /// `string`, versions 7 to 12.
    pub topic: Str<'a>,
    /// `uuid`, versions 13 to 18.
    pub topic_id: TopicId,
    /// `[]int32`.
    pub partitions: Vec<i32>,
}

impl<'a> Decode<'a> for ForgottenTopic<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 12;
        let topic = if version <= 12 { d.string(flexible)? } else { Str::Borrowed("") };
        let topic_id = if version >= 13 { d.uuid()? } else { TopicId::ZERO };
        let partitions = d.array(flexible, 4, Decoder::i32)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { topic, topic_id, partitions })
    }
}

impl Encode for ForgottenTopic<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 12;
        if version <= 12 {
            e.string(flexible, &self.topic)?;
        }
        if version >= 13 {
            e.uuid(self.topic_id);
        }
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

impl<'a> Request<'a> for FetchRequest<'a> {
    const KEY: ApiKey = ApiKey::Fetch;
    type Response<'r> = super::FetchResponse<'r>;
}
