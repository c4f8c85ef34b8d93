//! Subscriptions and assignments, which consumers of the classic protocol exchange through their group.
//!
//! Owns the version in front of both and the rule that a newer version is read as the newest that is known here:
//! later versions only append fields. So bytes after the last known field are no error, unlike anywhere else in
//! this crate. The bytes come from clients and pass through the group; a server reads only what it needs.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode};
use crate::{ConsumerProtocolAssignment, ConsumerProtocolSubscription};

/// Newest version of subscription and assignment that is known here.
pub const VERSION_MAX: i16 = 3;

/// Name of the protocol type that consumers join a group with.
pub const PROTOCOL_TYPE: &str = "consumer";

/// Reads a subscription, whatever its version.
pub fn decode_subscription(bytes: &[u8]) -> Result<ConsumerProtocolSubscription<'_>, DecodeError> {
    decode(bytes)
}

/// Reads an assignment, whatever its version.
pub fn decode_assignment(bytes: &[u8]) -> Result<ConsumerProtocolAssignment<'_>, DecodeError> {
    decode(bytes)
}

/// Writes a subscription behind its version.
pub fn encode_subscription(
    subscription: &ConsumerProtocolSubscription<'_>,
    version: i16,
) -> Result<Vec<u8>, EncodeError> {
    encode(subscription, version)
}

/// Writes an assignment behind its version.
pub fn encode_assignment(
    assignment: &ConsumerProtocolAssignment<'_>,
    version: i16,
) -> Result<Vec<u8>, EncodeError> {
    encode(assignment, version)
}

fn decode<'a, T: Decode<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    let mut decoder = Decoder::new(bytes);
    let version = decoder.i16()?;
    T::decode(&mut decoder, version.min(VERSION_MAX))
}

fn encode(message: &impl Encode, version: i16) -> Result<Vec<u8>, EncodeError> {
    let mut encoder = Encoder::new();
    encoder.i16(version);
    message.encode(&mut encoder, version)?;
    Ok(encoder.into_parts().0.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_subscription_is_read_as_the_newest_known_version() {
        let subscription = ConsumerProtocolSubscription {
            topics: vec!["t".into()],
            generation_id: 5,
            rack_id: Some("r".into()),
            ..Default::default()
        };
        let mut bytes = encode_subscription(&subscription, VERSION_MAX).unwrap();
        bytes[1] = 9;
        bytes.extend_from_slice(b"a later field");
        assert_eq!(decode_subscription(&bytes), Ok(subscription));
    }

    #[test]
    fn fields_unknown_to_an_old_version_are_left_out() {
        let subscription = ConsumerProtocolSubscription { generation_id: 5, ..Default::default() };
        let bytes = encode_subscription(&subscription, 0).unwrap();
        assert_eq!(decode_subscription(&bytes), Ok(ConsumerProtocolSubscription::default()));
    }

    #[test]
    fn a_negative_version_is_refused() {
        assert_eq!(decode_assignment(&[0xff, 0xff, 0, 0]), Err(DecodeError::UnsupportedVersion(-1)));
    }
}
