use proptest::prelude::*;

use super::*;
use crate::fields::{DecodeError, FieldReader};

const MAX: i32 = i32::MAX;

fn batch(id: i64, epoch: i16, first: i32, last: i32) -> SequencedBatch {
    SequencedBatch {
        producer_id: ProducerId(id),
        epoch: ProducerEpoch(epoch),
        first_sequence: first,
        last_sequence: last,
    }
}

fn place(base: i64, last: i64) -> BatchPlace {
    BatchPlace { base_offset: Offset(base), last_offset: Offset(last), timestamp: TimestampMs(1000 + last) }
}

/// Producer 7 at epoch 1 with the given batches of ten records each, from offset 100 on.
fn with_sequences(firsts: &[i32]) -> ProducerStates {
    let mut states = ProducerStates::new();
    let mut offset = 100;
    for first in firsts {
        let last = i32::try_from((i64::from(*first) + 9) % (i64::from(MAX) + 1)).unwrap();
        states.record(batch(7, 1, *first, last), place(offset, offset + 9), TimestampMs(0));
        offset += 10;
    }
    states
}

fn out_of_order(expected: i32, found: i32) -> Result<SequenceVerdict, SequenceError> {
    Err(SequenceError::OutOfOrder { producer_id: ProducerId(7), expected, found })
}

#[test]
fn each_row_of_the_table_of_verdicts_holds() {
    use SequenceVerdict::{Append, Duplicate};
    let states = with_sequences(&[0, 10, 20, 30, 40, 50]);
    let old_epoch = Err(SequenceError::InvalidEpoch {
        producer_id: ProducerId(7),
        current: ProducerEpoch(1),
        found: ProducerEpoch(0),
    });
    let cases = [
        ("follows", batch(7, 1, 60, 69), Ok(Append)),
        ("the last one again", batch(7, 1, 50, 59), Ok(Duplicate(place(150, 159)))),
        ("the fifth from the end again", batch(7, 1, 10, 19), Ok(Duplicate(place(110, 119)))),
        ("the sixth from the end again", batch(7, 1, 0, 9), out_of_order(60, 0)),
        ("a part of a known one", batch(7, 1, 50, 54), out_of_order(60, 50)),
        ("a gap", batch(7, 1, 61, 61), out_of_order(60, 61)),
        ("older epoch", batch(7, 0, 60, 69), old_epoch),
        ("older epoch, known sequences", batch(7, 0, 50, 59), old_epoch),
        ("newer epoch from 0", batch(7, 2, 0, 3), Ok(Append)),
        ("newer epoch from elsewhere", batch(7, 2, 60, 69), out_of_order(0, 60)),
        ("unknown producer from 0", batch(8, 0, 0, 9), Ok(Append)),
        ("unknown producer from elsewhere", batch(8, 3, 500, 509), Ok(Append)),
        ("no producer id", batch(-1, -1, -1, -1), Ok(Append)),
    ];
    for (name, incoming, expected) in cases {
        assert_eq!(states.check(&[incoming], AppendOrigin::Client, true), expected, "{name}");
    }
}

#[test]
fn only_sequence_0_begins_a_log_that_never_held_a_record() {
    let states = ProducerStates::new();
    let check =
        |sequence, origin, has_history| states.check(&[batch(7, 1, sequence, sequence)], origin, has_history);
    let (client, coordinator) = (AppendOrigin::Client, AppendOrigin::Coordinator);
    assert_eq!(check(5, client, false), out_of_order(0, 5));
    for (sequence, origin, has_history) in [(0, client, false), (5, client, true), (-1, coordinator, false)] {
        assert_eq!(check(sequence, origin, has_history), Ok(SequenceVerdict::Append));
    }
}

#[test]
fn sequences_wrap_after_the_largest() {
    let states = with_sequences(&[MAX - 19, MAX - 9]);
    let follows = states.check(&[batch(7, 1, 0, 4)], AppendOrigin::Client, true);
    assert_eq!(follows, Ok(SequenceVerdict::Append), "0 follows 2^31-1");
    assert_eq!(states.check(&[batch(7, 1, 1, 4)], AppendOrigin::Client, true), out_of_order(0, 1));

    let across = with_sequences(&[MAX - 4]);
    let again = states_check_one(&across, batch(7, 1, MAX - 4, 4));
    assert_eq!(again, Ok(SequenceVerdict::Duplicate(place(100, 109))), "a batch that wraps inside");
    assert_eq!(states_check_one(&across, batch(7, 1, 5, 5)), Ok(SequenceVerdict::Append));
}

fn states_check_one(
    states: &ProducerStates,
    incoming: SequencedBatch,
) -> Result<SequenceVerdict, SequenceError> {
    states.check(&[incoming], AppendOrigin::Client, true)
}

#[test]
fn several_batches_of_one_append_follow_one_another() {
    let states = with_sequences(&[0]);
    let check = |batches: &[SequencedBatch]| states.check(batches, AppendOrigin::Client, true);
    assert_eq!(check(&[batch(7, 1, 10, 14), batch(7, 1, 15, 15)]), Ok(SequenceVerdict::Append));
    assert_eq!(check(&[batch(7, 1, 10, 14), batch(7, 1, 16, 16)]), out_of_order(15, 16));
    assert_eq!(check(&[batch(7, 2, 0, 4), batch(7, 2, 5, 5)]), Ok(SequenceVerdict::Append));
    assert_eq!(states, with_sequences(&[0]), "checking changes nothing");
}

#[test]
fn the_coordinator_is_held_to_its_epoch_only() {
    let states = with_sequences(&[0]);
    let check = |incoming| states.check(&[incoming], AppendOrigin::Coordinator, true);
    assert_eq!(check(batch(7, 1, -1, -1)), Ok(SequenceVerdict::Append));
    assert!(matches!(check(batch(7, 0, -1, -1)), Err(SequenceError::InvalidEpoch { .. })));
}

#[test]
fn a_new_epoch_forgets_the_batches_of_the_old_one() {
    let mut states = with_sequences(&[0, 10]);
    states.record(batch(7, 2, 0, 9), place(200, 209), TimestampMs(5));
    let again = states.check(&[batch(7, 2, 0, 9)], AppendOrigin::Client, true);
    assert_eq!(again, Ok(SequenceVerdict::Duplicate(place(200, 209))), "not the one of epoch 1");
    assert!(states.check(&[batch(7, 1, 10, 19)], AppendOrigin::Client, true).is_err());
    let view: Vec<_> = states.views().collect();
    let expected = ProducerView {
        producer_id: ProducerId(7),
        epoch: ProducerEpoch(2),
        last_sequence: 9,
        last_offset: Offset(209),
        last_timestamp: TimestampMs(1209),
    };
    assert_eq!(view, [expected]);
}

#[test]
fn producer_expires_by_its_silence_and_not_by_timestamps() {
    let mut states = ProducerStates::new();
    let long_ago = BatchPlace { timestamp: TimestampMs(3), ..place(0, 0) };
    states.record(batch(1, 0, 0, 0), long_ago, TimestampMs(10_000));
    states.record(batch(2, 0, 0, 0), place(1, 1), TimestampMs(10_500));
    assert_eq!(states.expire(TimestampMs(10_999), 1000), 0);
    assert_eq!(states.expire(TimestampMs(11_000), 1000), 1);
    assert_eq!(states.views().map(|view| view.producer_id).collect::<Vec<_>>(), [ProducerId(2)]);
    assert_eq!(states.expire(TimestampMs(i64::MAX), u64::MAX), 0, "no expiry");
}

#[test]
fn past_the_bound_the_longest_silent_go_first() {
    let mut states = ProducerStates::with_bound(16);
    for id in 0..16 {
        states.record(batch(id, 0, 0, 0), place(id, id), TimestampMs(100 - id));
    }
    states.record(batch(3, 0, 1, 1), place(50, 50), TimestampMs(200));
    assert_eq!(states.len(), 16, "a known producer pushes no other out");
    states.record(batch(99, 0, 0, 0), place(60, 60), TimestampMs(201));
    let ids: Vec<_> = states.views().map(|view| view.producer_id.0).collect();
    assert_eq!(ids, (0..14).chain([99]).collect::<Vec<_>>(), "14 and 15 were silent for longest");

    let mut one = ProducerStates::with_bound(0);
    for id in 0..5 {
        one.record(batch(id, 0, 0, 0), place(id, id), TimestampMs(id));
        assert_eq!(one.len(), 1);
    }
}

#[test]
fn there_is_room_for_few_more_producers_than_come() {
    let mut states = ProducerStates::new();
    for id in 0..100 {
        states.record(batch(id, 0, 0, 0), place(id, id), TimestampMs(id));
        let count = states.producers.len();
        assert!(states.producers.capacity() <= count + (count / 8).max(1), "{count}");
    }
}

#[test]
fn only_producers_beyond_a_cut_are_forgotten() {
    let mut states = with_sequences(&[0, 10, 20]);
    states.record(batch(9, 0, 0, 0), place(90, 95), TimestampMs(0));
    assert!(!states.forget_from(Offset(130)), "nothing lies above");
    assert!(states.forget_from(Offset(129)));
    assert!(!states.knows(ProducerId(7)) && states.knows(ProducerId(9)));
    assert!(!states.forget_from(Offset(96)));
    assert!(states.forget_from(Offset(95)) && states.is_empty());
}

#[test]
fn the_last_offset_of_each_producer_is_known_to_compaction() {
    let mut states = with_sequences(&[0, 10]);
    states.record(batch(9, 0, 0, 0), place(120, 120), TimestampMs(0));
    let expected = [(ProducerId(7), Offset(119)), (ProducerId(9), Offset(120))];
    assert_eq!(states.last_offsets(), expected.into());
}

#[test]
fn damaged_encodings_are_refused() {
    let mut bytes = vec![];
    with_sequences(&[0, 10]).encode(&mut bytes);
    for cut in 0..bytes.len() {
        let decoded = ProducerStates::decode(&mut FieldReader::new(&bytes[..cut]));
        assert!(matches!(decoded, Err(DecodeError::Truncated(_))), "cut at {cut}: {decoded:?}");
    }
    let batch_count = 4 + 8 + 2 + 8;
    for count in [0, 6, 255] {
        let mut bad = bytes.clone();
        bad[batch_count] = count;
        let decoded = ProducerStates::decode(&mut FieldReader::new(&bad));
        assert_eq!(decoded, Err(DecodeError::Invalid("batch count")), "{count}");
    }
}

proptest! {
    /// A client that retries anything unanswered, in any order of loss, ends with each record once.
    #[test]
    fn retries_never_double_and_never_lose(
        sizes in prop::collection::vec(1..50_i32, 1..60),
        start in prop_oneof![Just(0), (MAX - 200)..=MAX],
        losses in prop::collection::vec(0..3_usize, 60),
    ) {
        let mut states = ProducerStates::new();
        let mut offset = 0;
        let mut sequence = start;
        for (index, size) in sizes.iter().enumerate() {
            let last = (i64::from(sequence) + i64::from(*size) - 1) % (i64::from(MAX) + 1);
            let incoming = batch(1, 0, sequence, i32::try_from(last).unwrap());
            let at = place(offset, offset + i64::from(*size) - 1);
            prop_assert_eq!(states_check_one(&states, incoming), Ok(SequenceVerdict::Append));
            states.record(incoming, at, TimestampMs(0));
            for _ in 0..losses[index] {
                prop_assert_eq!(states_check_one(&states, incoming), Ok(SequenceVerdict::Duplicate(at)));
            }
            sequence = next_sequence(incoming.last_sequence);
            offset += i64::from(*size);
        }
        let mut bytes = vec![];
        states.encode(&mut bytes);
        let mut reader = FieldReader::new(&bytes);
        prop_assert_eq!(ProducerStates::decode(&mut reader), Ok(states));
        prop_assert_eq!(reader.finish("end"), Ok(()));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = ProducerStates::decode(&mut FieldReader::new(&bytes));
    }
}
