//! The records of `__consumer_offsets`: their keys, their values, and the bytes of both.
//!
//! Owns the two leading bytes in front of both: before a key they are the record's type, before a value the version
//! of its layout. Keys have one layout only. Type 0 is the offset commit of Kafka before its first release with
//! types; it is read, and never written.
//!
//! ```
//! use riverrun_protocol::offsets_topic::{self, Key, OffsetCommitKey, OffsetCommitValue};
//!
//! let key = OffsetCommitKey { group: "g".into(), topic: "t".into(), partition: 3 };
//! let bytes = offsets_topic::encode_key(&key)?;
//! assert_eq!(Key::decode(&bytes)?, Key::OffsetCommit(key));
//!
//! let value = OffsetCommitValue { offset: 42, ..Default::default() };
//! let bytes = offsets_topic::encode_value(&value, 4)?;
//! assert_eq!(offsets_topic::decode_value::<OffsetCommitValue>(&bytes)?, value);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
pub use crate::generated::offsets_topic::*;
use crate::message::{Decode, Encode};

/// The only version of every key's layout.
const KEY_VERSION: i16 = 0;

/// A key that names its record's type.
pub trait RecordKey: Encode {
    /// The type, which stands in front of the key.
    const TYPE: i16;
}

/// Encodes a key behind its record's type.
pub fn encode_key<K: RecordKey>(key: &K) -> Result<Vec<u8>, EncodeError> {
    prefixed(K::TYPE, KEY_VERSION, key)
}

/// Encodes a value behind its version.
pub fn encode_value(value: &impl Encode, version: i16) -> Result<Vec<u8>, EncodeError> {
    prefixed(version, version, value)
}

/// Decodes a value at the version that stands in front of it. The key tells the type of the value.
pub fn decode_value<'a, V: Decode<'a>>(bytes: &'a [u8]) -> Result<V, DecodeError> {
    let mut decoder = Decoder::new(bytes);
    let version = decoder.i16()?;
    let value = V::decode(&mut decoder, version)?;
    decoder.finish()?;
    Ok(value)
}

fn prefixed(prefix: i16, version: i16, body: &impl Encode) -> Result<Vec<u8>, EncodeError> {
    let mut encoder = Encoder::new();
    encoder.i16(prefix);
    body.encode(&mut encoder, version)?;
    Ok(encoder.into_parts().0.into())
}

macro_rules! record_keys {
    ($($variant:ident($key:ident) = $type:literal, $doc:literal;)*) => {
        /// A key of any type.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Key<'a> {
            $(#[doc = $doc] $variant($key<'a>),)*
        }

        $(impl RecordKey for $key<'_> {
            const TYPE: i16 = $type;
        })*

        impl<'a> Key<'a> {
            /// Decodes a key. An unknown type, such as one of share groups, is an error of its own, so that a reader
            /// can pass over the record.
            pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
                let mut decoder = Decoder::new(bytes);
                let key = match decoder.i16()? {
                    $($type => Self::$variant($key::decode(&mut decoder, KEY_VERSION)?),)*
                    unknown => return Err(DecodeError::UnknownRecordType(unknown)),
                };
                decoder.finish()?;
                Ok(key)
            }
        }
    };
}

record_keys! {
    LegacyOffsetCommit(LegacyOffsetCommitKey) = 0, "A committed offset in the oldest layout.";
    OffsetCommit(OffsetCommitKey) = 1, "A committed offset.";
    GroupMetadata(GroupMetadataKey) = 2, "A group of the classic protocol.";
    ConsumerGroupMetadata(ConsumerGroupMetadataKey) = 3, "A group of the consumer protocol.";
    ConsumerGroupPartitionMetadata(ConsumerGroupPartitionMetadataKey) = 4, "The partitions a group last saw.";
    ConsumerGroupMemberMetadata(ConsumerGroupMemberMetadataKey) = 5, "A member's subscription and identity.";
    ConsumerGroupTargetAssignmentMetadata(ConsumerGroupTargetAssignmentMetadataKey) = 6,
        "The epoch of a group's target assignment.";
    ConsumerGroupTargetAssignmentMember(ConsumerGroupTargetAssignmentMemberKey) = 7,
        "A member's target assignment.";
    ConsumerGroupCurrentMemberAssignment(ConsumerGroupCurrentMemberAssignmentKey) = 8,
        "A member's current assignment.";
    ConsumerGroupRegularExpression(ConsumerGroupRegularExpressionKey) = 16,
        "The topics that a group's regular expression matches.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_commit_key_has_its_type_in_front() {
        let key = OffsetCommitKey { group: "g".into(), topic: "t".into(), partition: 3 };
        let bytes = encode_key(&key).unwrap();
        assert_eq!(bytes, [0, 1, 0, 1, b'g', 0, 1, b't', 0, 0, 0, 3]);
        assert_eq!(Key::decode(&bytes), Ok(Key::OffsetCommit(key)));
    }

    #[test]
    fn oldest_offset_commits_are_read() {
        let bytes = [0, 0, 0, 1, b'g', 0, 1, b't', 0, 0, 0, 3];
        let key = LegacyOffsetCommitKey { group: "g".into(), topic: "t".into(), partition: 3 };
        assert_eq!(Key::decode(&bytes), Ok(Key::LegacyOffsetCommit(key)));
    }

    #[test]
    fn records_of_unknown_type_are_told_apart_from_damaged_ones() {
        assert_eq!(Key::decode(&[0, 14, 0, 1, b'g']), Err(DecodeError::UnknownRecordType(14)));
        assert!(matches!(Key::decode(&[0, 2, 0, 9, b'g']), Err(DecodeError::Truncated { .. })));
        assert_eq!(Key::decode(&[0, 2, 0, 1, b'g', 0]), Err(DecodeError::TrailingBytes(1)));
    }

    #[test]
    fn values_are_read_in_every_layout_that_was_ever_written() {
        let value = OffsetCommitValue { offset: 42, metadata: "m".into(), ..Default::default() };
        for version in 0..=4 {
            let bytes = encode_value(&value, version).unwrap();
            assert_eq!(
                decode_value::<OffsetCommitValue<'_>>(&bytes).as_ref(),
                Ok(&value),
                "version {version}"
            );
        }
        let newer = decode_value::<OffsetCommitValue<'_>>(&[0, 5, 0]);
        assert_eq!(newer, Err(DecodeError::UnsupportedVersion(5)));
    }
}
