use proptest::prelude::*;

use riverrun_types::LeaderEpoch;

use super::*;
use crate::checkpoint::DirCheckpoint;
use crate::checkpoint::tests::{partition, producers};

const AT: Offset = Offset(13);

fn epochs() -> EpochCache {
    let mut epochs = EpochCache::new();
    epochs.assign(LeaderEpoch(1), Offset(0));
    epochs.assign(LeaderEpoch(3), Offset(12));
    epochs
}

fn sample() -> Vec<u8> {
    encode_state(partition(1), AT, &epochs(), &producers())
}

#[test]
fn a_state_comes_back_as_it_was_written() {
    let state = LogState { epochs: epochs(), producers: producers() };
    assert_eq!(decode_state(&sample(), partition(1), AT), Ok(state));
    let empty = encode_state(partition(1), Offset(0), &EpochCache::new(), &ProducerStates::new());
    assert_eq!(decode_state(&empty, partition(1), Offset(0)), Ok(LogState::default()));
}

/// The layout is a promise to later versions: these bytes stay readable for as long as version 1 is.
#[test]
fn version_1_of_the_state_file_looks_like_this() {
    let head = [b"RRlstate".as_slice(), &[0, 1], &[7; 16], &[0, 0, 0, 1], &13_i64.to_be_bytes()].concat();
    let epochs = [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 12];
    let producer = [&1000_i64.to_be_bytes()[..], &[0, 2], &88_i64.to_be_bytes(), &[1]].concat();
    let batch = [&0_i32.to_be_bytes()[..], &9_i32.to_be_bytes()].concat();
    let place = [3_i64, 12, 77].map(i64::to_be_bytes).concat();
    let expected = [&head[..], &epochs, &[0, 0, 0, 1], &producer, &batch, &place].concat();
    assert_eq!(sample(), seal(expected));
}

#[test]
fn every_flipped_bit_and_every_cut_is_found() {
    let bytes = sample();
    let decode = |bytes: &[u8]| decode_state(bytes, partition(1), AT);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&flipped).is_err(), "bit {bit}");
    }
    for cut in 0..bytes.len() {
        assert!(decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    assert!(decode(&[&bytes[..], &[0]].concat()).is_err(), "a byte more");
}

#[test]
fn the_state_of_another_partition_or_offset_is_refused() {
    let other = decode_state(&sample(), partition(2), AT);
    assert_eq!(other, Err(DecodeError::Invalid("the state's partition")));
    let older = decode_state(&sample(), partition(1), Offset(12));
    assert_eq!(older, Err(DecodeError::Invalid("the state's offset")));
    let kind = DirCheckpoint::decode(&sample());
    assert_eq!(kind, Err(DecodeError::WrongMagic("the checkpoint of a log dir")));
}

#[test]
fn state_with_records_beyond_its_offset_is_refused() {
    let at_12 = |epochs: &EpochCache, producers: &ProducerStates| {
        let bytes = encode_state(partition(1), Offset(12), epochs, producers);
        decode_state(&bytes, partition(1), Offset(12))
    };
    let invalid = |field| Err(DecodeError::Invalid(field));
    assert_eq!(at_12(&epochs(), &ProducerStates::new()), invalid("leader epoch"));
    assert_eq!(at_12(&EpochCache::new(), &producers()), invalid("batch offsets"));
}

#[test]
fn a_newer_version_is_refused_by_name() {
    let mut bytes = sample();
    bytes[9] = 2;
    let error = decode_state(&bytes, partition(1), AT).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a state file has format version 2, and this program knows versions up to 1"
    );
}

#[test]
fn a_state_file_s_name_sorts_as_its_offset() {
    assert_eq!(state_file(Offset(42)), "00000000000000000042.state");
    assert!(state_file(Offset(i64::MAX)) > state_file(Offset(9)));
}

proptest! {
    #[test]
    fn arbitrary_content_under_a_right_checksum_never_panics(
        body in prop::collection::vec(any::<u8>(), 0..400),
        is_headed in any::<bool>(),
    ) {
        let head = [b"RRlstate".as_slice(), &[0, 1], &[7; 16], &[0, 0, 0, 1], &13_i64.to_be_bytes()].concat();
        let bytes = if is_headed { [head, body].concat() } else { body };
        let _ = decode_state(&seal(bytes), partition(1), AT);
    }
}
