// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Response of `DescribeLogDirs`. Versions 1 to 5, tagged fields from version 2 on.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Str, check_decode, check_encode};

/// `DescribeLogDirsResponse`, versions 1 to 5.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeLogDirsResponse<'a> {
    /// `int32`.
    pub throttle_time_ms: i32,
    /// `int16`, versions 3 to 5.
    pub error_code: i16,
    /// `[]DescribeLogDirsResult`.
    pub results: Vec<DescribeLogDirsResult<'a>>,
}

impl<'a> Decode<'a> for DescribeLogDirsResponse<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 1, 5)?;
        let flexible = version >= 2;
        let throttle_time_ms = d.i32()?;
        let error_code = if version >= 3 { d.i16()? } else { 0 };
        let results = d.structs(flexible, 5, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { throttle_time_ms, error_code, results })
    }
}

impl Encode for DescribeLogDirsResponse<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 1, 5)?;
        let flexible = version >= 2;
        e.i32(self.throttle_time_ms);
        if version >= 3 {
            e.i16(self.error_code);
        }
        e.structs(flexible, &self.results, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `DescribeLogDirsResult`, versions 1 to 5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribeLogDirsResult<'a> {
    /// `int16`.
    pub error_code: i16,
    /// `string`.
    pub log_dir: Str<'a>,
    /// `[]DescribeLogDirsTopic`.
    pub topics: Vec<DescribeLogDirsTopic<'a>>,
    /// `int64`, versions 4 to 5, default -1.
    pub total_bytes: i64,
    /// `int64`, versions 4 to 5, default -1.
    pub usable_bytes: i64,
    /// `bool`, version 5.
    pub is_cordoned: bool,
}

impl Default for DescribeLogDirsResult<'_> {
    fn default() -> Self {
        Self {
            error_code: 0,
            log_dir: Str::Borrowed(""),
            topics: Vec::new(),
            total_bytes: -1,
            usable_bytes: -1,
            is_cordoned: false,
        }
    }
}

impl<'a> Decode<'a> for DescribeLogDirsResult<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let error_code = d.i16()?;
        let log_dir = d.string(flexible)?;
        let topics = d.structs(flexible, 3, version)?;
        let total_bytes = if version >= 4 { d.i64()? } else { -1 };
        let usable_bytes = if version >= 4 { d.i64()? } else { -1 };
        let is_cordoned = if version == 5 { d.bool()? } else { false };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { error_code, log_dir, topics, total_bytes, usable_bytes, is_cordoned })
    }
}

impl Encode for DescribeLogDirsResult<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 2;
        e.i16(self.error_code);
        e.string(flexible, &self.log_dir)?;
        e.structs(flexible, &self.topics, version)?;
        if version >= 4 {
            e.i64(self.total_bytes);
        }
        if version >= 4 {
            e.i64(self.usable_bytes);
        }
        if version == 5 {
            e.bool(self.is_cordoned);
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `DescribeLogDirsTopic`, versions 1 to 5.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeLogDirsTopic<'a> {
    /// `string`.
    pub name: Str<'a>,
    /// `[]DescribeLogDirsPartition`.
    pub partitions: Vec<DescribeLogDirsPartition>,
}

impl<'a> Decode<'a> for DescribeLogDirsTopic<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let name = d.string(flexible)?;
        let partitions = d.structs(flexible, 21, version)?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { name, partitions })
    }
}

impl Encode for DescribeLogDirsTopic<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 2;
        e.string(flexible, &self.name)?;
        e.structs(flexible, &self.partitions, version)?;
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

/// `DescribeLogDirsPartition`, versions 1 to 5.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeLogDirsPartition {
    /// `int32`.
    pub partition_index: i32,
    /// `int64`.
    pub partition_size: i64,
    /// `int64`.
    pub offset_lag: i64,
    /// `bool`.
    pub is_future_key: bool,
}

impl<'a> Decode<'a> for DescribeLogDirsPartition {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        let flexible = version >= 2;
        let partition_index = d.i32()?;
        let partition_size = d.i64()?;
        let offset_lag = d.i64()?;
        let is_future_key = d.bool()?;
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { partition_index, partition_size, offset_lag, is_future_key })
    }
}

impl Encode for DescribeLogDirsPartition {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let flexible = version >= 2;
        e.i32(self.partition_index);
        e.i64(self.partition_size);
        e.i64(self.offset_lag);
        e.bool(self.is_future_key);
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}
