//! The headers in front of every request and response.
//!
//! Owns the choice of a header's version, and two oddities: a request's client id keeps its old 16-bit length
//! in every version, so that any server can read it, and a header of an unknown key is read as far as its
//! layout is certain.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};

/// Header of a request, borrowed from its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader<'a> {
    /// Number of the request's key: [`ApiKey::from_i16`] tells whether it is a known one.
    pub api_key: i16,
    /// Version of the request. Not checked against the key's versions: only the router knows the right answer.
    pub api_version: i16,
    /// The client's number for this request, returned with the response.
    pub correlation_id: i32,
    /// The client's name for itself.
    pub client_id: Option<&'a str>,
}

impl<'a> RequestHeader<'a> {
    /// Reads a header and leaves the decoder at the request's body. With an unknown key the decoder stays
    /// before the tagged fields that may or may not follow, and nothing after can be read.
    pub fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let api_key = decoder.i16()?;
        let api_version = decoder.i16()?;
        let correlation_id = decoder.i32()?;
        let client_id = decoder.nullable_str(false)?;
        if ApiKey::from_i16(api_key).is_some_and(|key| key.request_header_version(api_version) >= 2) {
            decoder.skip_tagged_fields()?;
        }
        Ok(Self { api_key, api_version, correlation_id, client_id })
    }

    /// Writes the header in the version that its key and version call for.
    pub fn encode(&self, encoder: &mut Encoder) -> Result<(), EncodeError> {
        encoder.i16(self.api_key);
        encoder.i16(self.api_version);
        encoder.i32(self.correlation_id);
        encoder.nullable_string(false, self.client_id)?;
        if ApiKey::from_i16(self.api_key).is_some_and(|key| key.request_header_version(self.api_version) >= 2)
        {
            encoder.no_tagged_fields();
        }
        Ok(())
    }
}

/// Header of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHeader {
    /// The number that the request carried.
    pub correlation_id: i32,
}

impl ResponseHeader {
    /// Reads a header of the version that [`ApiKey::response_header_version`] names.
    pub fn decode(decoder: &mut Decoder<'_>, header_version: i16) -> Result<Self, DecodeError> {
        let correlation_id = decoder.i32()?;
        if header_version >= 1 {
            decoder.skip_tagged_fields()?;
        }
        Ok(Self { correlation_id })
    }

    /// Writes a header of the version that [`ApiKey::response_header_version`] names.
    pub fn encode(self, encoder: &mut Encoder, header_version: i16) {
        encoder.i32(self.correlation_id);
        if header_version >= 1 {
            encoder.no_tagged_fields();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(api_key: i16, api_version: i16, client_id: Option<&str>) -> usize {
        let header = RequestHeader { api_key, api_version, correlation_id: 7, client_id };
        let mut encoder = Encoder::new();
        header.encode(&mut encoder).unwrap();
        let (bytes, _) = encoder.into_parts();
        let mut decoder = Decoder::new(&bytes);
        assert_eq!(RequestHeader::decode(&mut decoder), Ok(header));
        decoder.finish().unwrap();
        bytes.len()
    }

    #[test]
    fn client_id_keeps_its_two_byte_length_in_flexible_headers() {
        assert_eq!(round_trip(ApiKey::Metadata as i16, 8, Some("abc")), 8 + 2 + 3);
        assert_eq!(round_trip(ApiKey::Metadata as i16, 9, Some("abc")), 8 + 2 + 3 + 1);
        assert_eq!(round_trip(ApiKey::Metadata as i16, 9, None), 8 + 2 + 1);
    }

    #[test]
    fn header_of_an_unknown_key_is_still_read() {
        assert_eq!(round_trip(4242, 3, Some("abc")), 8 + 2 + 3);
    }

    #[test]
    fn header_cut_anywhere_is_an_error() {
        let mut encoder = Encoder::new();
        let header = RequestHeader { api_key: 18, api_version: 4, correlation_id: 1, client_id: Some("me") };
        header.encode(&mut encoder).unwrap();
        let (bytes, _) = encoder.into_parts();
        for cut in 0..bytes.len() {
            assert!(RequestHeader::decode(&mut Decoder::new(&bytes[..cut])).is_err(), "cut at {cut}");
        }
    }
}
