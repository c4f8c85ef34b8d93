//! The properties of wire messages that the targets check.

use riverrun_protocol::catalog::{Codec, RecodeError, messages};
use riverrun_protocol::{Decoder, RequestHeader};

use crate::peak_bytes_during;

/// Decoded bytes per byte of input, at most: the largest struct of the smallest encoding, and its vector's
/// spare capacity. The re-encoded message is counted with it.
const DECODED_RATIO_MAX: usize = 1024;
/// Bytes that decoding and encoding allocate whatever the input.
const FIXED_BYTES_MAX: usize = 64 << 10;

/// Reads `data` as a request's header, and then as the request that its first bytes choose.
pub fn check_request(data: &[u8]) {
    // A header that cannot be read is an answer, too: only a panic would be wrong.
    let _header = RequestHeader::decode(&mut Decoder::new(data));
    check_one(data, |codec| codec.name.ends_with("Request"));
}

/// Reads `data` as the response, group record or consumer's metadata that its first bytes choose.
pub fn check_message(data: &[u8]) {
    check_one(data, |codec| !codec.name.ends_with("Request"));
}

/// The first two bytes choose message and version. What can be read can be written, and written again it is the
/// same bytes: unknown tagged fields are gone after the first time.
fn check_one(data: &[u8], chosen: impl Fn(&Codec) -> bool) {
    let [index, version_index, body @ ..] = data else {
        return;
    };
    let codecs: Vec<&Codec> = messages().iter().filter(|codec| chosen(codec)).collect();
    let codec = codecs[usize::from(*index) % codecs.len()];
    let versions: Vec<i16> = codec.versions().collect();
    let version = versions[usize::from(*version_index) % versions.len()];

    let mut written = None;
    let peak = peak_bytes_during(|| match codec.recode(body, version) {
        Ok(bytes) => written = Some(bytes),
        Err(RecodeError::Decode(_)) => {}
        Err(RecodeError::Encode(error)) => panic!("{} {version}: {error}", codec.name),
    });
    assert!(
        peak <= FIXED_BYTES_MAX + DECODED_RATIO_MAX * body.len(),
        "{}: {peak} bytes allocated",
        codec.name
    );
    if let Some(written) = written {
        let again = codec.recode(&written, version).expect("our own bytes");
        assert_eq!(again, written, "{} {version}", codec.name);
    }
}
