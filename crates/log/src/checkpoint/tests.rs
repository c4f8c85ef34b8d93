use proptest::prelude::*;

use riverrun_types::{LeaderEpoch, ProducerEpoch, ProducerId, TimestampMs};

use super::*;
use crate::producer_state::{BatchPlace, ProducerStates, SequencedBatch};

pub(crate) fn partition(index: i32) -> PartitionId {
    PartitionId { topic: TopicId([7; 16]), index }
}

fn sample() -> DirCheckpoint {
    let mut epochs = EpochCache::new();
    epochs.assign(LeaderEpoch(1), Offset(0));
    epochs.assign(LeaderEpoch(3), Offset(40));
    let first = PartitionCheckpoint {
        recovery_point: Offset(90),
        is_lost: false,
        cuts: 6,
        cut_end: Some(Offset(95)),
        producers_end: Offset(92),
        log_start: Offset(5),
        log_end: Offset(100),
        first_dirty: Some(Offset(60)),
        producers_at: Some(Offset(80)),
        producers: producers().encoded_since(Offset(0), 1024).unwrap(),
        size_bytes: 4096,
        epochs,
    };
    let second = PartitionCheckpoint::starting_at(Offset(0));
    let partitions = [(partition(0), first), (partition(12), second)].into();
    DirCheckpoint { is_clean: true, generation: 17, partitions }
}

pub(crate) fn producers() -> ProducerStates {
    let mut states = ProducerStates::new();
    let batch = SequencedBatch {
        producer_id: ProducerId(1000),
        epoch: ProducerEpoch(2),
        first_sequence: 0,
        last_sequence: 9,
    };
    let place = BatchPlace { base_offset: Offset(3), last_offset: Offset(12), timestamp: TimestampMs(77) };
    states.record(batch, place, TimestampMs(88));
    states
}

#[test]
fn a_checkpoint_comes_back_as_it_was_written() {
    let mut with_lost = sample();
    let lost = PartitionCheckpoint { log_start: Offset(7), ..PartitionCheckpoint::lost() };
    with_lost.partitions.insert(partition(13), lost);
    for checkpoint in [sample(), with_lost, DirCheckpoint::default()] {
        assert_eq!(DirCheckpoint::decode(&checkpoint.encode()), Ok(checkpoint));
    }
}

#[test]
fn checkpoint_with_a_withdrawn_clean_flag_differs_in_it_alone() {
    let mut bytes = sample().encode();
    bytes[VERSION_BYTE_AT] = 0xfb;
    assert_eq!(DirCheckpoint::decode(&bytes), Ok(DirCheckpoint { is_clean: false, ..sample() }));
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(DirCheckpoint::decode(&flipped).is_err(), "bit {bit}");
    }
    let mut not_clean = DirCheckpoint { is_clean: false, ..sample() }.encode();
    not_clean[VERSION_BYTE_AT] = 0xfb;
    assert!(DirCheckpoint::decode(&not_clean).is_err(), "there was nothing to take back");
}

/// The sample in the layout of `version`: `producers` are the bytes of the first and the second partition's producers,
/// with their lengths.
fn sample_bytes(version: u8, producers: [&[u8]; 2]) -> Vec<u8> {
    let version = [0, version, 0, 1];
    let head = [b"RRlogdir".as_slice(), &version, &17_u64.to_be_bytes(), &2_u32.to_be_bytes()].concat();
    let numbers = [90_i64, 5, 100, 60, 80, 95, 92].map(i64::to_be_bytes).concat();
    let numbers = [&numbers[..], &6_u32.to_be_bytes(), &4096_u64.to_be_bytes()].concat();
    let epochs = [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 40];
    let first = [[7; 16].as_slice(), &[0, 0, 0, 0], &numbers, &epochs, producers[0]].concat();
    let numbers = [[0_i64, 0, 0, -1, -1, -1, 0].map(i64::to_be_bytes).concat(), vec![0; 4 + 8]].concat();
    let second = [[7; 16].as_slice(), &[0, 0, 0, 12], &numbers, &[0; 4], producers[1]].concat();
    seal([head, first, second].concat())
}

/// The layout is a promise to later versions: these bytes stay readable for as long as version 4 is.
#[test]
fn version_4_of_the_checkpoint_looks_like_this() {
    let producer = [&1000_i64.to_be_bytes()[..], &[0, 2], &88_i64.to_be_bytes(), &[1]].concat();
    let batch = [&0_i32.to_be_bytes()[..], &9_i32.to_be_bytes()].concat();
    let place = [3_i64, 12, 77].map(i64::to_be_bytes).concat();
    let producers = [&[0, 0, 0, 1], &producer[..], &batch, &place].concat();
    let len = u32::try_from(producers.len()).unwrap().to_be_bytes();
    let expected = sample_bytes(4, [&[&len[..], &producers].concat(), &[0; 4]]);
    assert_eq!(sample().encode(), expected);
}

#[test]
fn older_checkpoint_versions_are_refused_with_the_way_out() {
    for version in [1, 2, 3] {
        let error = DirCheckpoint::decode(&sample_bytes(version, [&[0; 4], &[0; 4]])).unwrap_err();
        let found = u16::from(version);
        assert_eq!(error, DecodeError::OldVersion { name: CHECKPOINT_NAME, found, oldest: 4 });
        let text = error.to_string();
        assert!(
            text.contains(&format!("format version {version}")) && text.contains("older program"),
            "{text}"
        );
    }
}

/// A partition's producers are decoded only when it is opened: bytes that make no sense are an error of their own.
#[test]
fn undecodable_producers_are_refused_when_they_are_asked_for() {
    for producers in [&[0, 0, 0, 1, 7][..], &[0, 0, 0, 3, 0, 0, 0], &[0, 0, 0, 5, 0, 0, 0, 0, 9]] {
        let decoded = DirCheckpoint::decode(&sample_bytes(4, [producers, &[0; 4]])).unwrap();
        assert!(decoded.partitions[&partition(0)].producers.states().is_err());
    }
}

#[test]
fn every_flipped_bit_and_every_cut_is_found() {
    let bytes = sample().encode();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(DirCheckpoint::decode(&flipped).is_err(), "bit {bit}");
    }
    for cut in 0..bytes.len() {
        assert!(DirCheckpoint::decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    assert!(DirCheckpoint::decode(&[&bytes[..], &[0]].concat()).is_err(), "a byte more");
}

#[test]
fn a_newer_version_is_refused_by_name() {
    let mut bytes = sample().encode();
    bytes[8..10].copy_from_slice(&5_u16.to_be_bytes());
    let error = DirCheckpoint::decode(&bytes).unwrap_err();
    let text = "the checkpoint of a log dir has format version 5, and this program knows versions up to 4";
    assert_eq!(error.to_string(), text);
}

proptest! {
    #[test]
    fn arbitrary_content_under_a_right_checksum_never_panics(
        body in prop::collection::vec(any::<u8>(), 0..400),
        count in 0..5_u32,
    ) {
        let count = count.to_be_bytes();
        for version in [3, 4] {
            let head = [0, version, 0, 0];
            let bytes = [CHECKPOINT_MAGIC.as_slice(), &head, &[0; 8], &count, &body].concat();
            let _ = DirCheckpoint::decode(&seal(bytes));
        }
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let producers = [length.as_slice(), &body].concat();
        let _ = EncodedProducers::decode(&mut FieldReader::new(&producers)).unwrap().states();
    }
}
