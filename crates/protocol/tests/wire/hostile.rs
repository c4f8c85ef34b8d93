//! Bytes that no correct peer sends: cut, random, altered and lying ones. Nothing panics, and memory stays within a
//! small multiple of the input.

use proptest::prelude::*;
use riverrun_protocol::catalog::{self, RecodeError};
use riverrun_protocol::offsets_topic::Key;
use riverrun_protocol::{DecodeError, Decoder, RequestHeader, consumer_protocol};

use crate::allocation::peak_bytes;
use crate::for_each_sample;
use crate::sample::Random;

/// Bytes that a decoder may hold for each byte of input: an empty compact string is one byte on the wire and
/// 24 in memory, and a growing vector holds its old and its new half for a moment.
const BYTES_PER_INPUT_BYTE: usize = 80;

/// Bytes that are allowed whatever the input's size: small vectors and the encoder's buffer.
const BYTES_ALWAYS: usize = 16 * 1024;

/// Eight bytes that make a decoder which trusts counts abort its process.
const TRUSTED_COUNT: [u8; 8] = [0x03, 0x00, 0x00, 0x03, 0x3c, 0x0c, 0x00, 0xb6];

/// Decodes `bytes` as every message in every version, within the bound of memory.
fn decode_as_everything(bytes: &[u8]) {
    for codec in catalog::messages() {
        for version in codec.versions() {
            recode_bounded(codec, version, bytes);
        }
    }
    let _ = RequestHeader::decode(&mut Decoder::new(bytes));
    let _ = Key::decode(bytes);
    let _ = consumer_protocol::decode_subscription(bytes);
    let _ = consumer_protocol::decode_assignment(bytes);
}

fn recode_bounded(codec: &catalog::Codec, version: i16, bytes: &[u8]) {
    let (result, peak) = peak_bytes(|| codec.recode(bytes, version));
    let bound = BYTES_PER_INPUT_BYTE * bytes.len() + BYTES_ALWAYS;
    assert!(peak <= bound, "{} version {version}: {peak} bytes for {}", codec.name, bytes.len());
    assert!(!matches!(result, Err(RecodeError::Encode(_))), "{} version {version}: {result:?}", codec.name);
}

#[test]
fn counts_that_lie_are_refused_by_every_message() {
    decode_as_everything(&TRUSTED_COUNT);
    for filler in [0x00, 0x01, 0x7f, 0x80, 0xff] {
        decode_as_everything(&[filler; 64]);
    }
}

#[test]
fn a_message_cut_anywhere_is_an_error() {
    for seed in 0..8 {
        for_each_sample(seed, |case, version, bytes| {
            for cut in 0..bytes.len() {
                let result = case.codec.recode(&bytes[..cut], version);
                assert!(
                    matches!(result, Err(RecodeError::Decode(_))),
                    "{} version {version} cut at {cut} of {}",
                    case.codec.name,
                    bytes.len()
                );
            }
        });
    }
}

#[test]
fn bytes_after_a_message_are_an_error() {
    for_each_sample(1, |case, version, bytes| {
        let longer = [bytes, &[0]].concat();
        let result = case.codec.recode(&longer, version);
        let name = case.codec.name;
        assert_eq!(result, Err(RecodeError::Decode(DecodeError::TrailingBytes(1))), "{name} {version}");
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn random_bytes_never_panic_and_stay_within_their_memory(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        decode_as_everything(&bytes);
    }

    #[test]
    fn altered_messages_never_panic_and_stay_within_their_memory(seed in any::<u64>()) {
        let mut random = Random(!seed);
        for_each_sample(seed, |case, version, bytes| {
            let mut altered = bytes.to_vec();
            for _ in 0..=random.below(3) {
                if !altered.is_empty() {
                    let place = random.below(altered.len());
                    altered[place] = [0x00, 0x01, 0x7f, 0x80, 0xff][random.below(5)];
                }
            }
            recode_bounded(case.codec, version, &altered);
        });
    }
}

#[test]
fn an_array_of_the_smallest_elements_stays_within_its_memory() {
    // DeleteGroups version 2: a compact array of 60,000 empty strings, then no tagged fields.
    let mut bytes = vec![0xe1, 0xd4, 0x03];
    bytes.resize(3 + 60_000, 1);
    bytes.push(0);
    let codec = catalog::messages().iter().find(|codec| codec.name == "DeleteGroupsRequest").unwrap();
    assert_eq!(codec.recode(&bytes, 2).unwrap()[..], bytes[..], "the array is read");
    recode_bounded(codec, 2, &bytes);
}
