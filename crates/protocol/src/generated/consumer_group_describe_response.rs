// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `ConsumerGroupDescribe`. Versions 0 to 1, tagged fields from version 0 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};
use riverrun_types::TopicId;

/// `ConsumerGroupDescribeResponse`, versions 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerGroupDescribeResponse<'a> {
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `[]DescribedGroup`.
    pub groups: Vec<DescribedGroup<'a>>,
}

impl<'a> Decode<'a> for ConsumerGroupDescribeResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 1)?;
        let throttle_time_ms = d.i32()?;
        let groups = d.structs(true, 20, version)?;
        d.skip_tagged_fields()?;
        Ok(Self { throttle_time_ms, groups })
    }
}

impl Encode for ConsumerGroupDescribeResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 1)?;
        e.i32(self.throttle_time_ms);
        e.structs(true, &self.groups, version)?;
        e.no_tagged_fields();
        Ok(())
    }
}

/// `TopicPartitions`, versions 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicPartitions<'a> {
    /// `uuid`.
    pub topic_id: TopicId,
    /// `string`.
    pub topic_name: Str<'a>,
    /// `[]int32`.
    pub partitions: Vec<i32>,
}

impl<'a> Decode<'a> for TopicPartitions<'a> {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let topic_id = d.uuid()?;
        let topic_name = d.string(true)?;
        let partitions = d.array(true, 4, Decoder::i32)?;
        d.skip_tagged_fields()?;
        Ok(Self { topic_id, topic_name, partitions })
    }
}

impl Encode for TopicPartitions<'_> {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.uuid(self.topic_id);
        e.string(true, &self.topic_name)?;
        e.array(true, &self.partitions, |e, value| {
            e.i32(*value);
            Ok(())
        })?;
        e.no_tagged_fields();
        Ok(())
    }
}

/// `Assignment`, versions 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment<'a> {
    /// `[]TopicPartitions`.
    pub topic_partitions: Vec<TopicPartitions<'a>>,
}

impl<'a> Decode<'a> for Assignment<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let topic_partitions = d.structs(true, 19, version)?;
        d.skip_tagged_fields()?;
        Ok(Self { topic_partitions })
    }
}

impl Encode for Assignment<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        e.structs(true, &self.topic_partitions, version)?;
        e.no_tagged_fields();
        Ok(())
    }
}

/// `DescribedGroup`, versions 0 to 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedGroup<'a> {
    /// `int16`.
    pub error_code: i16,
    /// `string`, may be null, default null.
    pub error_message: Option<Str<'a>>,
    /// `string`.
    pub group_id: Str<'a>,
    /// `string`.
    pub group_state: Str<'a>,
    /// `int32`.
    pub group_epoch: i32,
    /// `int32`.
    pub assignment_epoch: i32,
    /// `string`.
    pub assignor_name: Str<'a>,
    /// `[]Member`.
    pub members: Vec<Member<'a>>,
    /// `int32`, default -2147483648.
    pub authorized_operations: i32,
}

impl Default for DescribedGroup<'_> {
    fn default() -> Self {
        Self {
            error_code: 0,
            error_message: None,
            group_id: Str::Borrowed(""),
            group_state: Str::Borrowed(""),
            group_epoch: 0,
            assignment_epoch: 0,
            assignor_name: Str::Borrowed(""),
            members: Vec::new(),
            authorized_operations: -2_147_483_648,
        }
    }
}

impl<'a> Decode<'a> for DescribedGroup<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let error_code = d.i16()?;
        let error_message = d.nullable_string(true)?;
        let group_id = d.string(true)?;
        let group_state = d.string(true)?;
        let group_epoch = d.i32()?;
        let assignment_epoch = d.i32()?;
        let assignor_name = d.string(true)?;
        let members = d.structs(true, 16, version)?;
        let authorized_operations = d.i32()?;
        d.skip_tagged_fields()?;
        Ok(Self {
            error_code,
            error_message,
            group_id,
            group_state,
            group_epoch,
            assignment_epoch,
            assignor_name,
            members,
            authorized_operations,
        })
    }
}

impl Encode for DescribedGroup<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        e.i16(self.error_code);
        e.nullable_string(true, self.error_message.as_deref())?;
        e.string(true, &self.group_id)?;
        e.string(true, &self.group_state)?;
        e.i32(self.group_epoch);
        e.i32(self.assignment_epoch);
        e.string(true, &self.assignor_name)?;
        e.structs(true, &self.members, version)?;
        e.i32(self.authorized_operations);
        e.no_tagged_fields();
        Ok(())
    }
}

/// `Member`, versions 0 to 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// `string`.
    pub member_id: Str<'a>,
    /// `string`, may be null, default null.
    pub instance_id: Option<Str<'a>>,
    /// `string`, may be null, default null.
    pub rack_id: Option<Str<'a>>,
    /// `int32`.
    pub member_epoch: i32,
    /// `string`.
    pub client_id: Str<'a>,
    /// `string`.
    pub client_host: Str<'a>,
    /// `[]string`.
    pub subscribed_topic_names: Vec<Str<'a>>,
    /// `string`, may be null, default null.
    pub subscribed_topic_regex: Option<Str<'a>>,
    /// `Assignment`.
    pub assignment: Assignment<'a>,
    /// `Assignment`.
    pub target_assignment: Assignment<'a>,
    /// `int8`, version 1, default -1.
    pub member_type: i8,
}

impl Default for Member<'_> {
    fn default() -> Self {
        Self {
            member_id: Str::Borrowed(""),
            instance_id: None,
            rack_id: None,
            member_epoch: 0,
            client_id: Str::Borrowed(""),
            client_host: Str::Borrowed(""),
            subscribed_topic_names: Vec::new(),
            subscribed_topic_regex: None,
            assignment: Assignment::default(),
            target_assignment: Assignment::default(),
            member_type: -1,
        }
    }
}

impl<'a> Decode<'a> for Member<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let member_id = d.string(true)?;
        let instance_id = d.nullable_string(true)?;
        let rack_id = d.nullable_string(true)?;
        let member_epoch = d.i32()?;
        let client_id = d.string(true)?;
        let client_host = d.string(true)?;
        let subscribed_topic_names = d.array(true, 1, |d| d.string(true))?;
        let subscribed_topic_regex = d.nullable_string(true)?;
        let assignment = Assignment::decode(d, version)?;
        let target_assignment = Assignment::decode(d, version)?;
        let member_type = if version == 1 { d.i8()? } else { -1 };
        d.skip_tagged_fields()?;
        Ok(Self {
            member_id,
            instance_id,
            rack_id,
            member_epoch,
            client_id,
            client_host,
            subscribed_topic_names,
            subscribed_topic_regex,
            assignment,
            target_assignment,
            member_type,
        })
    }
}

impl Encode for Member<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        e.string(true, &self.member_id)?;
        e.nullable_string(true, self.instance_id.as_deref())?;
        e.nullable_string(true, self.rack_id.as_deref())?;
        e.i32(self.member_epoch);
        e.string(true, &self.client_id)?;
        e.string(true, &self.client_host)?;
        e.array(true, &self.subscribed_topic_names, |e, value| e.string(true, value))?;
        e.nullable_string(true, self.subscribed_topic_regex.as_deref())?;
        self.assignment.encode(e, version)?;
        self.target_assignment.encode(e, version)?;
        if version == 1 {
            e.i8(self.member_type);
        }
        e.no_tagged_fields();
        Ok(())
    }
}
