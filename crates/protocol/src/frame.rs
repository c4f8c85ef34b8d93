//! Whole frames: length, header, body.
//!
//! Owns the order of these three for both directions. The length counts records that are spliced in later, so a
//! frame's bytes can go out before its records have been read from anywhere.

use bytes::BytesMut;

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::{Encoder, Splice};
use crate::error::{DecodeError, EncodeError};
use crate::header::{RequestHeader, ResponseHeader};
use crate::message::{Decode, Encode, Request};

/// Room for a typical frame without its records, so that most are encoded without growing the buffer.
const FRAME_BYTES_TYPICAL: usize = 512;

/// A frame ready to be sent, its four bytes of length included.
#[derive(Debug)]
pub struct Frame {
    /// Everything but the external records.
    pub bytes: BytesMut,
    /// Places at which external records are inserted, in ascending order of position; empty for most frames.
    pub splices: Vec<Splice>,
}

/// Encodes a request with its header. Records in it may be external.
pub fn encode_request<'a, R: Request<'a>>(
    request: &R,
    version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
) -> Result<Frame, EncodeError> {
    let header = RequestHeader { api_key: R::KEY as i16, api_version: version, correlation_id, client_id };
    frame(|encoder| {
        header.encode(encoder)?;
        request.encode(encoder, version)
    })
}

/// Encodes the response to a request of `key` and `version`. Records in it may be external.
pub fn encode_response(
    key: ApiKey,
    version: i16,
    correlation_id: i32,
    body: &impl Encode,
) -> Result<Frame, EncodeError> {
    frame(|encoder| {
        ResponseHeader { correlation_id }.encode(encoder, key.response_header_version(version));
        body.encode(encoder, version)
    })
}

/// Decodes a response to `R` from a frame without its length; returns the correlation id and the body.
pub fn decode_response<'r, 'q, R: Request<'q>>(
    frame: &'r [u8],
    version: i16,
) -> Result<(i32, R::Response<'r>), DecodeError> {
    let mut decoder = Decoder::new(frame);
    let header = ResponseHeader::decode(&mut decoder, R::KEY.response_header_version(version))?;
    let body = R::Response::decode(&mut decoder, version)?;
    decoder.finish()?;
    Ok((header.correlation_id, body))
}

fn frame(fill: impl FnOnce(&mut Encoder) -> Result<(), EncodeError>) -> Result<Frame, EncodeError> {
    let mut encoder = Encoder::with_capacity(FRAME_BYTES_TYPICAL);
    encoder.i32(0);
    fill(&mut encoder)?;
    let length = encoder.wire_len() - size_of::<i32>();
    encoder.patch_i32(0, i32::try_from(length).map_err(|_| EncodeError::TooLong(length))?);
    let (bytes, splices) = encoder.into_parts();
    Ok(Frame { bytes, splices })
}
