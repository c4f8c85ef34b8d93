//! Refusals of bad bytes: the batch rules of the list of bad inputs, each with the error class that a broker answers
//! by.

use std::io::Write as _;

use lz4_flex::frame::{BlockMode, FrameEncoder, FrameInfo};
use riverrun_records::{
    Batch, BatchBuilder, BatchError, BatchHeader, BatchOptions, Compression, CorruptCause, InvalidCause,
    ProduceRules, ProducedInfo, ProducerStamp, TimestampBounds, UnverifiedBatch, compress, layout,
    patch_base_offset, patch_log_append_time, uncovered_checksum, validate_produced,
};
use riverrun_types::limits::REFUSED_RECORDS_NAMED_MAX;
use riverrun_types::{ErrorKind, Offset, ProducerEpoch, ProducerId, TimestampMs};

use support::seal;

mod support;

const BASE: i64 = 1_700_000_000_000;

fn good(compression: Compression) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions { compression, ..BatchOptions::default() });
    for index in 0..3_u8 {
        let value = [b'a' + index; 40];
        builder.append(TimestampMs(BASE), Some(b"key"), Some(&value), &[]).expect("room");
    }
    builder.build().expect("a batch")
}

fn with_field(at: usize, field: &[u8]) -> Vec<u8> {
    let mut bytes = good(Compression::None);
    bytes[at..at + field.len()].copy_from_slice(field);
    seal(bytes)
}

/// A batch of `count` records whose bytes are `payload`.
fn with_payload(compression: Compression, payload: &[u8], count: i32) -> Vec<u8> {
    let mut bytes = good(compression);
    bytes.truncate(layout::RECORDS);
    bytes[layout::LAST_OFFSET_DELTA..layout::BASE_TIMESTAMP].copy_from_slice(&(count - 1).to_be_bytes());
    bytes[layout::RECORD_COUNT..layout::RECORDS].copy_from_slice(&count.to_be_bytes());
    bytes.extend_from_slice(payload);
    seal(bytes)
}

fn verify(bytes: &[u8]) -> Result<Batch<'_>, BatchError> {
    UnverifiedBatch::only(bytes)?.verify()
}

fn validate(bytes: &[u8]) -> Result<ProducedInfo, BatchError> {
    validate_produced(&verify(bytes)?, &ProduceRules::default()).map_err(|refused| refused.error())
}

/// A reader's result for a batch that was stored all the same.
fn read(bytes: &[u8]) -> Result<usize, BatchError> {
    let batch = verify(bytes)?;
    let records = batch.records()?;
    records.iter().try_fold(0, |count, record| record.map(|_| count + 1))
}

#[track_caller]
fn assert_invalid(bytes: &[u8], cause: InvalidCause) {
    assert_eq!(validate(bytes), Err(BatchError::Invalid(cause)));
}

#[test]
fn flipped_bit_is_found_by_one_of_the_checksums() {
    for compression in Compression::ALL {
        let bytes = good(compression);
        let outside = uncovered_checksum(0, &bytes);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let at = bit / 8;
            if at >= layout::CRC {
                let found =
                    matches!(verify(&flipped), Err(BatchError::Corrupt(CorruptCause::Checksum { .. })));
                assert!(found, "{compression}: bit {bit}");
            } else if verify(&flipped).is_ok() {
                let uncovered = at < layout::LENGTH || (layout::LEADER_EPOCH..layout::MAGIC).contains(&at);
                assert!(uncovered, "{compression}: bit {bit}");
                assert_ne!(uncovered_checksum(0, &flipped), outside, "{compression}: bit {bit}");
            }
        }
    }
}

#[test]
fn a_cut_batch_is_corrupt_wherever_it_is_cut() {
    for compression in Compression::ALL {
        let bytes = good(compression);
        for end in 0..bytes.len() {
            let cut = UnverifiedBatch::split_first(&bytes[..end]).err();
            assert_eq!(cut, Some(BatchError::Corrupt(CorruptCause::Cut)), "{compression} at {end}");
        }
    }
}

#[test]
fn a_cut_stream_in_a_whole_batch_is_refused_wherever_it_is_cut() {
    for compression in Compression::ALL {
        let bytes = good(compression);
        for end in layout::RECORDS..bytes.len() {
            let cut = seal(bytes[..end].to_vec());
            let (validated, read) = (validate(&cut), read(&cut));
            assert!(validated.is_err() && read.is_err(), "{compression} at {end}");
            if !matches!(compression, Compression::None | Compression::Snappy) {
                let stream = BatchError::Corrupt(CorruptCause::Stream(compression));
                assert_eq!(read, Err(stream), "{compression} at {end}");
            }
        }
    }
}

#[test]
fn garbled_stream_is_judged_alike_by_validation_and_reading() {
    for compression in Compression::ALL {
        let bytes = good(compression);
        for bit in layout::RECORDS * 8..bytes.len() * 8 {
            let mut garbled = bytes.clone();
            garbled[bit / 8] ^= 1 << (bit % 8);
            let garbled = seal(garbled);
            if validate(&garbled).is_ok() {
                assert_eq!(read(&garbled), Ok(3), "{compression}: bit {bit}");
            }
        }
    }
}

#[test]
fn bytes_after_a_stream_are_refused() {
    for compression in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        let mut bytes = good(compression);
        bytes.extend_from_slice(&[1, 2, 3, 4, 5]);
        let stream = BatchError::Corrupt(CorruptCause::Stream(compression));
        assert_eq!(read(&seal(bytes)), Err(stream), "{compression}");
    }
}

#[test]
fn other_formats_are_named() {
    for magic in [0, 1, 3, -1] {
        let mut bytes = good(Compression::None);
        bytes[layout::MAGIC] = i8::to_be_bytes(magic)[0];
        assert_eq!(verify(&bytes).err(), Some(BatchError::UnsupportedMagic(magic)));
        assert_eq!(BatchHeader::parse(&bytes), Err(BatchError::UnsupportedMagic(magic)));
    }
    // An old message is shorter than a header of version 2.
    let mut old = vec![0; 34];
    old[layout::LENGTH..layout::LENGTH_END].copy_from_slice(&22_u32.to_be_bytes());
    assert_eq!(verify(&old).err(), Some(BatchError::UnsupportedMagic(0)));
}

#[test]
fn impossible_lengths_are_corrupt() {
    for length in [i32::MIN, -1, 0, 4] {
        let mut bytes = good(Compression::None);
        bytes[layout::LENGTH..layout::LENGTH_END].copy_from_slice(&length.to_be_bytes());
        let error = UnverifiedBatch::split_first(&bytes).err();
        assert_eq!(error, Some(BatchError::Corrupt(CorruptCause::Length(length))));
    }
    let mut bytes = good(Compression::None);
    bytes[layout::LENGTH..layout::LENGTH_END].copy_from_slice(&i32::MAX.to_be_bytes());
    assert_eq!(verify(&bytes).err(), Some(BatchError::Corrupt(CorruptCause::Cut)));
    assert!(BatchHeader::parse(&bytes[..61]).is_ok(), "a scan reads headers before it has the records");
    bytes[layout::LENGTH..layout::LENGTH_END].copy_from_slice(&48_i32.to_be_bytes());
    assert_eq!(BatchHeader::parse(&bytes), Err(BatchError::Corrupt(CorruptCause::Length(48))));
}

#[test]
fn nothing_and_two_batches_are_not_one_batch() {
    assert_invalid(&[], InvalidCause::Empty);
    let twice = [good(Compression::None), good(Compression::None)].concat();
    assert_invalid(&twice, InvalidCause::TrailingBytes);
}

#[test]
fn attributes_that_a_client_may_not_set_are_refused() {
    for bit in 7..16 {
        let attributes = (1_u16 << bit).to_be_bytes();
        assert_invalid(&with_field(layout::ATTRIBUTES, &attributes), InvalidCause::ReservedAttributes);
    }
    assert_invalid(
        &with_field(layout::ATTRIBUTES, &layout::CONTROL.to_be_bytes()),
        InvalidCause::ControlBatch,
    );
    let horizon = layout::DELETE_HORIZON.to_be_bytes();
    assert_invalid(&with_field(layout::ATTRIBUTES, &horizon), InvalidCause::DeleteHorizon);
    for id in [5, 6, 7] {
        let error = verify(&with_field(layout::ATTRIBUTES, &[0, id])).err();
        assert_eq!(error, Some(BatchError::UnsupportedCompression(id)));
    }
    let mut claimed = good(Compression::None);
    patch_log_append_time(&mut claimed, TimestampMs(BASE));
    assert_eq!(
        validate(&claimed),
        Err(BatchError::InvalidTimestamp { timestamp: TimestampMs(BASE), record: 0 })
    );
}

#[test]
fn counts_that_differ_from_the_records_are_refused() {
    let count = |value: i32| with_field(layout::RECORD_COUNT, &value.to_be_bytes());
    let last = |value: i32| with_field(layout::LAST_OFFSET_DELTA, &value.to_be_bytes());
    assert_invalid(&count(-1), InvalidCause::RecordCount);
    assert_invalid(&count(0), InvalidCause::Empty);
    assert_invalid(&count(2), InvalidCause::LastOffsetDelta);
    assert_invalid(&count(4), InvalidCause::LastOffsetDelta);
    assert_invalid(&last(-1), InvalidCause::LastOffsetDelta);
    assert_invalid(&last(1), InvalidCause::LastOffsetDelta);
    assert_invalid(&last(3), InvalidCause::LastOffsetDelta);
    assert_invalid(&last(i32::MAX), InvalidCause::LastOffsetDelta);
    for compression in Compression::ALL {
        let payload = verify(&good(compression)).expect("good").payload().to_vec();
        assert_invalid(&with_payload(compression, &payload, 2), InvalidCause::TrailingBytes);
        assert_invalid(&with_payload(compression, &payload, 4), InvalidCause::RecordCount);
        assert!(matches!(
            validate(&with_payload(compression, &payload, i32::MAX)),
            Err(BatchError::TooLarge { .. })
        ));
    }
}

#[test]
fn a_largest_timestamp_that_lies_is_told_apart_from_the_records() {
    let bytes = with_field(layout::MAX_TIMESTAMP, &i64::MAX.to_be_bytes());
    assert_eq!(verify(&bytes).expect("good").max_timestamp(), TimestampMs(i64::MAX));
    assert_eq!(validate(&bytes).map(|info| info.max_timestamp), Ok(TimestampMs(BASE)));
}

#[test]
fn a_client_counts_from_offset_zero() {
    let mut bytes = good(Compression::None);
    patch_base_offset(&mut bytes, Offset(1));
    assert_invalid(&bytes, InvalidCause::BaseOffset);
    patch_base_offset(&mut bytes, Offset(i64::MAX));
    assert_eq!(verify(&bytes).expect("good").next_offset(), Offset(i64::MAX), "saturates");
    assert!(read(&bytes).is_ok());
}

#[test]
fn producer_fields_are_complete_also_for_transactions() {
    let stamped = |id, epoch, base_sequence, transactional| {
        let producer = ProducerStamp { id: ProducerId(id), epoch: ProducerEpoch(epoch), base_sequence };
        let mut builder =
            BatchBuilder::new(BatchOptions { producer, transactional, ..BatchOptions::default() });
        builder.append(TimestampMs(BASE), None, None, &[]).expect("room");
        builder.build().expect("a batch")
    };
    assert!(validate(&stamped(0, 0, 0, false)).is_ok());
    assert!(validate(&stamped(0, 0, i32::MAX, true)).is_ok());
    assert_invalid(&stamped(0, 0, -1, false), InvalidCause::Producer);
    assert_invalid(&stamped(0, -1, 0, false), InvalidCause::Producer);
    assert_invalid(&stamped(-1, -1, -1, true), InvalidCause::Producer);
}

/// One record's bytes: its length, then attributes 0, timestamp delta 0, offset delta 0, and `fields`.
fn record(fields: &[u8]) -> Vec<u8> {
    let zigzag_length = u8::try_from((fields.len() + 3) * 2).expect("a length of one byte");
    [&[zigzag_length, 0, 0, 0], fields].concat()
}

#[test]
fn lengths_that_lie_are_refused_in_the_clear_and_compressed() {
    // Zigzag: 1 is -1, 3 is -2, 2n is n.
    let cases: [(&str, Vec<u8>, InvalidCause); 13] = [
        ("negative record length", vec![1, 0, 0, 0, 1, 1, 0], InvalidCause::RecordLength),
        ("record longer than the batch", vec![14, 0, 0, 0, 1, 1, 0], InvalidCause::RecordLength),
        ("record shorter than its fields", vec![10, 0, 0, 0, 1, 1, 0], InvalidCause::RecordLength),
        ("record longer than its fields", record(&[1, 1, 0, 9]), InvalidCause::RecordLength),
        ("key length -2", record(&[3, 1, 0]), InvalidCause::FieldLength),
        ("value length -2", record(&[1, 3, 0]), InvalidCause::FieldLength),
        ("key past its record", record(&[200, 1, 1, 0]), InvalidCause::FieldLength),
        ("value past its record", record(&[1, 6, b'v', b'v', 0]), InvalidCause::RecordLength),
        ("value of 2^31-1 bytes", record(&[1, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0]), InvalidCause::FieldLength),
        ("header count -1", record(&[1, 1, 1]), InvalidCause::HeaderCount),
        ("more headers than bytes", record(&[1, 1, 4, 0, 0]), InvalidCause::RecordLength),
        ("header without a key", record(&[1, 1, 2, 1, 0]), InvalidCause::FieldLength),
        ("header value length -2", record(&[1, 1, 2, 0, 3]), InvalidCause::FieldLength),
    ];
    for (name, payload, cause) in cases {
        for compression in Compression::ALL {
            let mut compressed = Vec::new();
            compress(compression, compression.default_level(), &payload, &mut compressed)
                .expect("compressed");
            let bytes = with_payload(compression, &compressed, 1);
            let expected = BatchError::Invalid(cause);
            assert_eq!(validate(&bytes), Err(expected), "{name}, {compression}");
            assert_eq!(read(&bytes), Err(expected), "{name}, {compression}");
        }
    }
}

#[test]
fn a_header_count_past_its_bound_is_too_large() {
    let bytes = with_payload(Compression::None, &record(&[1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f]), 1);
    assert!(matches!(validate(&bytes), Err(BatchError::TooLarge { .. })));
}

#[test]
fn offset_deltas_of_a_client_are_without_gaps() {
    let delta = |zigzag: u8| vec![12, 0, 0, zigzag, 1, 1, 0];
    let payload = |deltas: &[u8]| deltas.iter().flat_map(|zigzag| delta(*zigzag)).collect::<Vec<u8>>();
    assert!(validate(&with_payload(Compression::None, &payload(&[0, 2]), 2)).is_ok());
    for deltas in [[2, 4], [0, 4], [0, 0], [2, 0], [1, 0]] {
        let bytes = with_payload(Compression::None, &payload(&deltas), 2);
        assert_invalid(&bytes, InvalidCause::OffsetDelta);
    }
    // A reader allows gaps, which compaction leaves, and nothing else.
    let gap = seal({
        let mut bytes = with_payload(Compression::None, &payload(&[2, 8]), 2);
        bytes[layout::LAST_OFFSET_DELTA..layout::BASE_TIMESTAMP].copy_from_slice(&4_i32.to_be_bytes());
        bytes
    });
    assert_eq!(read(&gap), Ok(2));
    for deltas in [[0, 0], [2, 0], [0, 4], [1, 2]] {
        let bytes = with_payload(Compression::None, &payload(&deltas), 2);
        assert_eq!(read(&bytes), Err(BatchError::Invalid(InvalidCause::OffsetDelta)), "{deltas:?}");
    }
}

#[test]
fn timestamps_are_bounded_where_a_topic_bounds_them() {
    let bytes = good(Compression::Lz4);
    let batch = verify(&bytes).expect("good");
    let with_clock = |now, before_max_ms, after_max_ms| {
        let bounds = TimestampBounds { now: TimestampMs(now), before_max_ms, after_max_ms };
        let rules = ProduceRules { timestamps: Some(bounds), ..ProduceRules::default() };
        validate_produced(&batch, &rules).map_err(|refused| refused.error())
    };
    assert!(with_clock(BASE, 0, 0).is_ok());
    assert!(with_clock(BASE + 10, 10, 0).is_ok());
    assert!(with_clock(BASE - 10, 0, 10).is_ok());
    let refused = Err(BatchError::InvalidTimestamp { timestamp: TimestampMs(BASE), record: 0 });
    assert_eq!(with_clock(BASE + 11, 10, i64::MAX), refused);
    assert_eq!(with_clock(BASE - 11, i64::MAX, 10), refused);
    assert!(with_clock(0, i64::MAX, i64::MAX).is_ok());
}

#[test]
fn a_timestamp_past_the_range_of_the_format_is_refused() {
    let mut bytes = with_payload(Compression::None, &[12, 0, 2, 0, 1, 1, 0], 1);
    bytes[layout::BASE_TIMESTAMP..layout::MAX_TIMESTAMP].copy_from_slice(&i64::MAX.to_be_bytes());
    let refused = Err(BatchError::InvalidTimestamp { timestamp: TimestampMs(i64::MAX), record: 0 });
    assert_eq!(validate(&seal(bytes)), refused);
}

#[test]
fn a_compacted_topic_takes_no_record_without_a_key() {
    let rules = ProduceRules { require_keys: true, ..ProduceRules::default() };
    let keyed = good(Compression::Zstd);
    assert!(validate_produced(&verify(&keyed).expect("good"), &rules).is_ok());
    let keyless = with_payload(Compression::None, &record(&[1, 1, 0]), 1);
    let refused = validate_produced(&verify(&keyless).expect("good"), &rules);
    let refused = refused.map_err(|refused| refused.error());
    assert_eq!(refused, Err(BatchError::Invalid(InvalidCause::MissingKey)));
}

/// The named records, and the error that stands for all, of a batch of a compacted topic whose records have these
/// timestamps, and a key or not.
fn named(compression: Compression, records: &[(i64, bool)]) -> (Vec<i32>, BatchError) {
    let mut builder = BatchBuilder::new(BatchOptions { compression, ..Default::default() });
    for (timestamp, has_key) in records {
        let key = has_key.then_some(&b"k"[..]);
        builder.append(TimestampMs(*timestamp), key, Some(b"v"), &[]).expect("fits");
    }
    let bytes = builder.build().expect("a batch");
    let bounds = TimestampBounds { now: TimestampMs(BASE), before_max_ms: 10, after_max_ms: 10 };
    let rules = ProduceRules { require_keys: true, timestamps: Some(bounds) };
    let refused = validate_produced(&verify(&bytes).expect("good"), &rules).expect_err("refused");
    (refused.records().iter().map(|record| record.index).collect(), refused.error())
}

#[test]
fn every_record_that_breaks_a_rule_is_named() {
    let no_key = BatchError::Invalid(InvalidCause::MissingKey);
    let late = |record| BatchError::InvalidTimestamp { timestamp: TimestampMs(BASE + 11), record };
    for codec in [Compression::None, Compression::Zstd] {
        let (good, keyless, future) = ((BASE, true), (BASE, false), (BASE + 11, true));
        assert_eq!(named(codec, &[good, good, keyless]), (vec![2], no_key));
        assert_eq!(named(codec, &[good, keyless, keyless]), (vec![1, 2], no_key));
        assert_eq!(named(codec, &[good, future, future]), (vec![1, 2], late(1)));
        // A timestamp gives all their code, as in Kafka; a record without a key is blamed for that alone.
        assert_eq!(named(codec, &[keyless, (BASE + 11, false), future]), (vec![0, 1, 2], late(2)));
    }
}

#[test]
fn no_more_refused_records_are_named_than_there_is_room_for() {
    let (named, _) = named(Compression::None, &vec![(BASE, false); REFUSED_RECORDS_NAMED_MAX + 5]);
    let expected: Vec<i32> = (0..).take(REFUSED_RECORDS_NAMED_MAX).collect();
    assert_eq!(named, expected);
}

#[test]
fn a_batch_that_cannot_be_read_to_its_end_blames_no_record() {
    let rules = ProduceRules { require_keys: true, ..ProduceRules::default() };
    let bytes = with_payload(Compression::None, &record(&[1, 1, 0]), 2);
    let bytes = seal({
        let mut bytes = bytes;
        bytes[layout::LAST_OFFSET_DELTA..layout::BASE_TIMESTAMP].copy_from_slice(&1_i32.to_be_bytes());
        bytes
    });
    let refused = validate_produced(&verify(&bytes).expect("good"), &rules).expect_err("refused");
    assert_eq!((refused.records(), refused.error()), (&[][..], InvalidCause::RecordCount.into()));
}

#[test]
fn a_raw_snappy_block_is_read_as_librdkafka_writes_it() {
    let plain = good(Compression::None);
    let raw = snap::raw::Encoder::new().compress_vec(&plain[layout::RECORDS..]).expect("compressed");
    let bytes = with_payload(Compression::Snappy, &raw, 3);
    assert_eq!(validate(&bytes).map(|info| info.record_count), Ok(3));
    assert_eq!(read(&bytes), Ok(3));
}

fn lz4_frame(mode: BlockMode, content: &[u8]) -> Vec<u8> {
    let mut encoder = FrameEncoder::with_frame_info(FrameInfo::new().block_mode(mode), Vec::new());
    encoder.write_all(content).expect("written");
    encoder.finish().expect("a frame")
}

#[test]
fn lz4_frames_that_java_cannot_read_are_corrupt() {
    let records = good(Compression::None)[layout::RECORDS..].to_vec();
    let readable = lz4_frame(BlockMode::Independent, &records);
    assert!(validate(&with_payload(Compression::Lz4, &readable, 3)).is_ok());
    let block = lz4_flex::block::compress(&records);
    let block_length = u32::try_from(block.len()).expect("small").to_le_bytes();
    let legacy = [&0x184C_2102_u32.to_le_bytes()[..], &block_length, &block].concat();
    let skipped = [&0x184D_2A50_u32.to_le_bytes()[..], &1_u32.to_le_bytes(), &[0], &readable].concat();
    let twice = [readable.clone(), readable].concat();
    for frame in [lz4_frame(BlockMode::Linked, &records), legacy, skipped, twice] {
        let bytes = with_payload(Compression::Lz4, &frame, 3);
        assert_eq!(read(&bytes), Err(BatchError::Corrupt(CorruptCause::Stream(Compression::Lz4))));
        assert!(validate(&bytes).is_err());
    }
}

#[test]
fn wrong_bytes_are_for_the_sender_to_mend() {
    assert_eq!(BatchError::UnsupportedMagic(1).kind(), ErrorKind::FixRequest);
    assert_eq!(BatchError::Corrupt(CorruptCause::Cut).kind(), ErrorKind::FixRequest);
    assert_eq!(BatchError::CompressFailed(Compression::Zstd).kind(), ErrorKind::GiveUp);
}
