// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Value of the record `ConsumerGroupMemberMetadata`. Version 0, tagged fields from version 0 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Blob, Decode, Encode, Str, check_decode, check_encode};

/// `ConsumerGroupMemberMetadataValue`, version 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerGroupMemberMetadataValue<'a> {
    /// `string`, may be null.
    pub instance_id: Option<Str<'a>>,
    /// `string`, may be null.
    pub rack_id: Option<Str<'a>>,
    /// `string`.
    pub client_id: Str<'a>,
    /// `string`.
    pub client_host: Str<'a>,
    /// `[]string`.
    pub subscribed_topic_names: Vec<Str<'a>>,
    /// `string`, may be null.
    pub subscribed_topic_regex: Option<Str<'a>>,
    /// `int32`, default -1.
    pub rebalance_timeout_ms: i32,
    /// `string`, may be null.
    pub server_assignor: Option<Str<'a>>,
    /// `ClassicMemberMetadata`, tag 0, may be null, default null.
    pub classic_member_metadata: Option<ClassicMemberMetadata<'a>>,
}

impl Default for ConsumerGroupMemberMetadataValue<'_> {
    fn default() -> Self {
        Self {
            instance_id: Some(Str::Borrowed("")),
            rack_id: Some(Str::Borrowed("")),
            client_id: Str::Borrowed(""),
            client_host: Str::Borrowed(""),
            subscribed_topic_names: Vec::new(),
            subscribed_topic_regex: Some(Str::Borrowed("")),
            rebalance_timeout_ms: -1,
            server_assignor: Some(Str::Borrowed("")),
            classic_member_metadata: None,
        }
    }
}

impl<'a> Decode<'a> for ConsumerGroupMemberMetadataValue<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 0)?;
        let instance_id = d.nullable_string(true)?;
        let rack_id = d.nullable_string(true)?;
        let client_id = d.string(true)?;
        let client_host = d.string(true)?;
        let subscribed_topic_names = d.array(true, 1, |d| d.string(true))?;
        let subscribed_topic_regex = d.nullable_string(true)?;
        let rebalance_timeout_ms = d.i32()?;
        let server_assignor = d.nullable_string(true)?;
        let mut classic_member_metadata = None;
        d.tagged_fields(|d, tag| {
            match tag {
                0 => classic_member_metadata = d.nullable_struct(version)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(Self {
            instance_id,
            rack_id,
            client_id,
            client_host,
            subscribed_topic_names,
            subscribed_topic_regex,
            rebalance_timeout_ms,
            server_assignor,
            classic_member_metadata,
        })
    }
}

impl Encode for ConsumerGroupMemberMetadataValue<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 0)?;
        e.nullable_string(true, self.instance_id.as_deref())?;
        e.nullable_string(true, self.rack_id.as_deref())?;
        e.string(true, &self.client_id)?;
        e.string(true, &self.client_host)?;
        e.array(true, &self.subscribed_topic_names, |e, value| e.string(true, value))?;
        e.nullable_string(true, self.subscribed_topic_regex.as_deref())?;
        e.i32(self.rebalance_timeout_ms);
        e.nullable_string(true, self.server_assignor.as_deref())?;
        let tags = e.begin_tagged_fields();
        if self.classic_member_metadata.is_some() {
            let start = e.begin_tagged_field(&tags, 0);
            e.nullable_struct(self.classic_member_metadata.as_ref(), version)?;
            e.end_tagged_field(&start)?;
        }
        Ok(())
    }
}

/// `ClassicMemberMetadata`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassicMemberMetadata<'a> {
    /// `int32`.
    pub session_timeout_ms: i32,
    /// `[]ClassicProtocol`.
    pub supported_protocols: Vec<ClassicProtocol<'a>>,
}

impl<'a> Decode<'a> for ClassicMemberMetadata<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let session_timeout_ms = d.i32()?;
        let supported_protocols = d.structs(true, 3, version)?;
        d.skip_tagged_fields()?;
        Ok(Self { session_timeout_ms, supported_protocols })
    }
}

impl Encode for ClassicMemberMetadata<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        e.i32(self.session_timeout_ms);
        e.structs(true, &self.supported_protocols, version)?;
        e.no_tagged_fields();
        Ok(())
    }
}

/// `ClassicProtocol`, version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassicProtocol<'a> {
    /// `string`.
    pub name: Str<'a>,
    /// `bytes`.
    pub metadata: Blob<'a>,
}

impl<'a> Decode<'a> for ClassicProtocol<'a> {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let name = d.string(true)?;
        let metadata = d.bytes(true)?;
        d.skip_tagged_fields()?;
        Ok(Self { name, metadata })
    }
}

impl Encode for ClassicProtocol<'_> {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.string(true, &self.name)?;
        e.bytes(true, &self.metadata)?;
        e.no_tagged_fields();
        Ok(())
    }
}
