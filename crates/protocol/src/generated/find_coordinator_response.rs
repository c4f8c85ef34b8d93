// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `FindCoordinator`. Versions 0 to 6, tagged fields from version 3 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `FindCoordinatorResponse`, versions 0 to 6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindCoordinatorResponse<'a> {
    /// `int32`, versions 1 to 6.
    pub throttle_time_ms: i32,
    /// `int16`, versions 0 to 3.
    pub error_code: i16,
    /// `string`, versions 1 to 3, may be null.
    pub error_message: Option<Str<'a>>,
    /// `int32`, versions 0 to 3.
    pub node_id: i32,
    /// `string`, versions 0 to 3.
    pub host: Str<'a>,
    /// `int32`, versions 0 to 3.
    pub port: i32,
    /// `[]Coordinator`, versions 4 to 6.
    pub coordinators: Vec<Coordinator<'a>>,
}

impl Default for FindCoordinatorResponse<'_> {
    fn default() -> Self {
        Self {
            throttle_time_ms: 0,
            error_code: 0,
            error_message: Some(Str::Borrowed("")),
            node_id: 0,
            host: Str::Borrowed(""),
            port: 0,
            coordinators: Vec::new(),
        }
    }
}

impl<'a> Decode<'a> for FindCoordinatorResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 6)?;
        let flexible = version >= 3;
        let throttle_time_ms = if version >= 1 { d.i32()? } else { 0 };
        let error_code = if version <= 3 { d.i16()? } else { 0 };
        let error_message =
            if (1..=3).contains(&version) { d.nullable_string(flexible)? } else { Some(Str::Borrowed("")) };
        let node_id = if version <= 3 { d.i32()? } else { 0 };
        let host = if version <= 3 { d.string(flexible)? } else { Str::Borrowed("") };
        let port = if version <= 3 { d.i32()? } else { 0 };
        let coordinators = if version >= 4 { d.structs(true, 14, version)? } else { Vec::new() };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { throttle_time_ms, error_code, error_message, node_id, host, port, coordinators })
    }
}

impl Encode for FindCoordinatorResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 6)?;
        let flexible = version >= 3;
        if version >= 1 {
            e.i32(self.throttle_time_ms);
        }
        if version <= 3 {
            e.i16(self.error_code);
        } else if self.error_code != 0 {
            return Err(EncodeError::AbsentField { field: "error_code", version });
        }
        if (1..=3).contains(&version) {
            e.nullable_string(flexible, self.error_message.as_deref())?;
        }
        if version <= 3 {
            e.i32(self.node_id);
        } else if self.node_id != 0 {
            return Err(EncodeError::AbsentField { field: "node_id", version });
        }
        if version <= 3 {
            e.string(flexible, &self.host)?;
        } else if !self.host.is_empty() {
            return Err(EncodeError::AbsentField { field: "host", version });
        }
        if version <= 3 {
            e.i32(self.port);
        } else if self.port != 0 {
            return Err(EncodeError::AbsentField { field: "port", version });
        }
        if version >= 4 {
            e.structs(true, &self.coordinators, version)?;
        } else if !self.coordinators.is_empty() {
            return Err(EncodeError::AbsentField { field: "coordinators", version });
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `Coordinator`, versions 4 to 6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coordinator<'a> {
    /// `string`.
    pub key: Str<'a>,
    /// `int32`.
    pub node_id: i32,
    /// `string`.
    pub host: Str<'a>,
    /// `int32`.
    pub port: i32,
    /// `int16`.
    pub error_code: i16,
    /// `string`, may be null.
    pub error_message: Option<Str<'a>>,
}

impl Default for Coordinator<'_> {
    fn default() -> Self {
        Self {
            key: Str::Borrowed(""),
            node_id: 0,
            host: Str::Borrowed(""),
            port: 0,
            error_code: 0,
            error_message: Some(Str::Borrowed("")),
        }
    }
}

impl<'a> Decode<'a> for Coordinator<'a> {
    fn decode(d: &mut Decoder<'a>, _version: i16) -> Result<Self, DecodeError> {
        let key = d.string(true)?;
        let node_id = d.i32()?;
        let host = d.string(true)?;
        let port = d.i32()?;
        let error_code = d.i16()?;
        let error_message = d.nullable_string(true)?;
        d.skip_tagged_fields()?;
        Ok(Self { key, node_id, host, port, error_code, error_message })
    }
}

impl Encode for Coordinator<'_> {
    fn encode(&self, e: &mut Encoder, _version: i16) -> Result<(), EncodeError> {
        e.string(true, &self.key)?;
        e.i32(self.node_id);
        e.string(true, &self.host)?;
        e.i32(self.port);
        e.i16(self.error_code);
        e.nullable_string(true, self.error_message.as_deref())?;
        e.no_tagged_fields();
        Ok(())
    }
}
