//! Record batches that no producer should send: each gets the error that its mistake deserves, nothing of it is
//! written, and the next producer is served.

use riverrun_protocol::produce_response::PartitionProduceResponse;
use riverrun_protocol::{ErrorCode, ProduceRequest};
use riverrun_records::ProducerStamp;
use riverrun_records::{BatchBuilder, BatchOptions, Compression, compress, increment_sequence, layout};
use riverrun_types::limits::REFUSED_RECORDS_NAMED_MAX;
use riverrun_types::{ProducerEpoch, ProducerId, TimestampMs};

use crate::support::{
    Client, assert_serves, batch, batch_with, create_topic, produce, produce_request, read_all, server,
    server_with, try_produce, values,
};

/// Changes bytes of a batch.
type Spoil = fn(&mut Vec<u8>);

/// Sets the length and the checksum right again, so that only the mistake itself is wrong.
fn seal(bytes: &mut [u8]) {
    let length = i32::try_from(bytes.len() - layout::LENGTH_END).expect("short");
    bytes[layout::LENGTH..layout::LENGTH_END].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[layout::ATTRIBUTES..]);
    bytes[layout::CRC..layout::ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
}

fn put(bytes: &mut [u8], at: usize, value: i32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

fn set_attributes(bytes: &mut [u8], attributes: i16) {
    bytes[layout::ATTRIBUTES..layout::ATTRIBUTES + 2].copy_from_slice(&attributes.to_be_bytes());
}

/// Produces spoiled batches into a topic of their own and checks that nothing was written.
fn assert_refused(cases: &[(&str, ErrorCode, Spoil)]) {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    for (mistake, code, spoil) in cases {
        let mut bytes = batch(&["one", "two"]);
        spoil(&mut bytes);
        let answer = try_produce(&mut client, "t", 0, &bytes);
        assert_eq!(ErrorCode(answer.error_code), *code, "{mistake}: {:?}", answer.error_message);
        assert_eq!(answer.base_offset, -1, "{mistake}");
    }
    assert_eq!(read_all(&mut client, "t", 0, 0), Vec::<String>::new(), "nothing was written");
    assert_eq!(produce(&mut client, "t", 0, &batch(&["good"])), 0);
    assert_serves(&server);
}

#[test]
fn wrong_checksums_and_lengths_are_refused() {
    use ErrorCode as Code;
    assert_refused(&[
        ("a flipped byte", Code::CORRUPT_MESSAGE, |bytes| *bytes.last_mut().unwrap() ^= 1),
        ("a flipped checksum", Code::CORRUPT_MESSAGE, |bytes| bytes[layout::CRC] ^= 0x80),
        ("a length that is too long", Code::INVALID_RECORD, |bytes| put(bytes, layout::LENGTH, 1 << 20)),
        ("a negative length", Code::CORRUPT_MESSAGE, |bytes| put(bytes, layout::LENGTH, -1)),
        ("a length that is too short", Code::INVALID_RECORD, |bytes| put(bytes, layout::LENGTH, 48)),
        ("a batch that is cut short", Code::INVALID_RECORD, |bytes| bytes.truncate(bytes.len() - 1)),
        ("a header that is cut short", Code::INVALID_RECORD, |bytes| bytes.truncate(20)),
    ]);
}

#[test]
fn counts_and_deltas_that_lie_are_invalid() {
    use ErrorCode as Code;
    assert_refused(&[
        ("a count above the records", Code::INVALID_RECORD, |bytes| {
            put(bytes, layout::RECORD_COUNT, 3);
            put(bytes, layout::LAST_OFFSET_DELTA, 2);
            seal(bytes);
        }),
        ("a count below the records", Code::INVALID_RECORD, |bytes| {
            put(bytes, layout::RECORD_COUNT, 1);
            put(bytes, layout::LAST_OFFSET_DELTA, 0);
            seal(bytes);
        }),
        ("a count above all that a batch may hold", Code::MESSAGE_TOO_LARGE, |bytes| {
            put(bytes, layout::RECORD_COUNT, i32::MAX);
            put(bytes, layout::LAST_OFFSET_DELTA, i32::MAX - 1);
            seal(bytes);
        }),
        ("a negative count", Code::INVALID_RECORD, |bytes| {
            put(bytes, layout::RECORD_COUNT, -1);
            seal(bytes);
        }),
        ("a last offset delta that is not the count's", Code::INVALID_RECORD, |bytes| {
            put(bytes, layout::LAST_OFFSET_DELTA, 7);
            seal(bytes);
        }),
        ("a negative last offset delta", Code::INVALID_RECORD, |bytes| {
            put(bytes, layout::LAST_OFFSET_DELTA, -1);
            seal(bytes);
        }),
        // The first record: length, attributes, timestamp delta, offset delta, ...; zigzag 1 is -1, 2 is 1.
        ("a negative offset delta", Code::INVALID_RECORD, |bytes| {
            bytes[layout::RECORDS + 3] = 1;
            seal(bytes);
        }),
        ("an offset delta that skips", Code::INVALID_RECORD, |bytes| {
            bytes[layout::RECORDS + 3] = 2;
            seal(bytes);
        }),
        ("a record length beyond the batch", Code::INVALID_RECORD, |bytes| {
            bytes[layout::RECORDS] = 0x7e;
            seal(bytes);
        }),
        ("a negative record length", Code::INVALID_RECORD, |bytes| {
            bytes[layout::RECORDS] = 3;
            seal(bytes);
        }),
    ]);
}

#[test]
fn attributes_of_brokers_and_other_formats_are_refused() {
    use ErrorCode as Code;
    assert_refused(&[
        ("format 0", Code::INVALID_RECORD, |bytes| bytes[layout::MAGIC] = 0),
        ("format 1", Code::INVALID_RECORD, |bytes| bytes[layout::MAGIC] = 1),
        ("format 3", Code::CORRUPT_MESSAGE, |bytes| bytes[layout::MAGIC] = 3),
        ("format -1", Code::CORRUPT_MESSAGE, |bytes| bytes[layout::MAGIC] = 0xff),
        ("a message of format 0", Code::INVALID_RECORD, |bytes| *bytes = old_message(0)),
        ("a message of format 1", Code::INVALID_RECORD, |bytes| *bytes = old_message(1)),
        ("the control bit", Code::INVALID_RECORD, |bytes| {
            set_attributes(bytes, layout::CONTROL);
            seal(bytes);
        }),
        ("the control bit of a transaction", Code::INVALID_RECORD, |bytes| {
            set_attributes(bytes, layout::CONTROL | layout::TRANSACTIONAL);
            seal(bytes);
        }),
        ("the delete horizon", Code::INVALID_RECORD, |bytes| {
            set_attributes(bytes, layout::DELETE_HORIZON);
            seal(bytes);
        }),
    ]);
}

/// One message in the format before there were batches: offset, size, checksum (which the server never checks), format,
/// attributes, in format 1 a time, no key, a value.
fn old_message(format: u8) -> Vec<u8> {
    let time = if format == 1 { vec![0; 8] } else { Vec::new() };
    let rest = [&[format, 0][..], &time, &(-1_i32).to_be_bytes(), &1_i32.to_be_bytes(), b"x"].concat();
    let size = i32::try_from(4 + rest.len()).expect("short");
    [&[0; 8][..], &size.to_be_bytes(), &crc32c::crc32c(&rest).to_be_bytes(), &rest].concat()
}

#[test]
fn every_attribute_bit_that_means_nothing_is_refused() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    let mut refusal = |attributes: i16| {
        let mut bytes = batch(&["one", "two"]);
        set_attributes(&mut bytes, attributes);
        seal(&mut bytes);
        ErrorCode(try_produce(&mut client, "t", 0, &bytes).error_code)
    };
    // Bits 0 to 6 are codec, timestamp type, transactional, control and delete horizon.
    for bit in 7..16 {
        assert_eq!(refusal(1_i16 << bit), ErrorCode::INVALID_RECORD, "bit {bit}");
    }
    for codec in 5..8 {
        assert_eq!(refusal(codec), ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, "codec {codec}");
    }
    assert_eq!(read_all(&mut client, "t", 0, 0), Vec::<String>::new(), "nothing was written");
    assert_eq!(produce(&mut client, "t", 0, &batch(&["good"])), 0);
}

#[test]
fn another_format_is_refused_in_every_version_of_produce() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    for bytes in [old_message(0), old_message(1)] {
        for version in 3..=12 {
            let response = client.call(&produce_request("t", 0, &bytes, -1), version);
            let code = ErrorCode(response.responses[0].partition_responses[0].error_code);
            assert_eq!(code, ErrorCode::INVALID_RECORD, "version {version}");
        }
    }
    assert_eq!(read_all(&mut client, "t", 0, 0), Vec::<String>::new());
}

#[test]
fn several_batches_or_none_are_refused() {
    use ErrorCode as Code;
    assert_refused(&[
        ("two batches", Code::INVALID_RECORD, |bytes| {
            let second = bytes.clone();
            bytes.extend(second);
        }),
        ("bytes after the batch", Code::INVALID_RECORD, |bytes| bytes.extend([0; 5])),
        ("no batch", Code::INVALID_RECORD, Vec::clear),
        ("a batch without records", Code::INVALID_RECORD, |bytes| {
            bytes.truncate(layout::RECORDS);
            put(bytes, layout::RECORD_COUNT, 0);
            put(bytes, layout::LAST_OFFSET_DELTA, -1);
            seal(bytes);
        }),
    ]);
}

/// A batch of one record whose compressed bytes are `payload`.
fn compressed(codec: Compression, payload: &[u8]) -> Vec<u8> {
    let mut bytes = batch_with(BatchOptions { compression: codec, ..Default::default() }, &["x"]);
    bytes.truncate(layout::RECORDS);
    bytes.extend(payload);
    seal(&mut bytes);
    bytes
}

const CODECS: [Compression; 4] =
    [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

#[test]
fn zstd_is_taken_from_version_7_on() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    for codec in CODECS {
        let batch = batch_with(BatchOptions { compression: codec, ..Default::default() }, &["x"]);
        for version in 3..=8 {
            let response = client.call(&produce_request("t", 0, &batch, -1), version);
            let answer = &response.responses[0].partition_responses[0];
            let is_refused = codec == Compression::Zstd && version < 7;
            let expected = if is_refused { ErrorCode::UNSUPPORTED_COMPRESSION_TYPE } else { ErrorCode::NONE };
            assert_eq!(ErrorCode(answer.error_code), expected, "{codec} in version {version}");
        }
    }
    assert_eq!(read_all(&mut client, "t", 0, 0).len(), 3 * 6 + 2);
}

#[test]
fn cut_or_garbled_streams_are_invalid_in_every_codec() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    for codec in CODECS {
        let mut whole = Vec::new();
        compress(codec, codec.default_level(), &[b'x'; 10_000], &mut whole).unwrap();
        let cut = whole[..whole.len() / 2].to_vec();
        let mut garbled = whole.clone();
        for byte in &mut garbled {
            *byte ^= 0x5a;
        }
        for (mistake, payload) in [("cut", cut), ("garbled", garbled), ("none", Vec::new())] {
            let answer = try_produce(&mut client, "t", 0, &compressed(codec, &payload));
            let code = ErrorCode(answer.error_code);
            assert_eq!(code, ErrorCode::INVALID_RECORD, "{codec:?} {mistake}: {:?}", answer.error_message);
        }
    }
    assert_eq!(read_all(&mut client, "t", 0, 0), Vec::<String>::new());
    assert_serves(&server);
}

#[test]
fn a_batch_above_max_message_bytes_is_too_large() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "small", 1, &[("max.message.bytes", "1000")]);
    let large = try_produce(&mut client, "small", 0, &batch(&["x".repeat(1_000).as_str()]));
    assert_eq!(ErrorCode(large.error_code), ErrorCode::MESSAGE_TOO_LARGE);
    assert_eq!(produce(&mut client, "small", 0, &batch(&["x"])), 0);
}

#[test]
fn acks_other_than_0_1_and_all_are_refused() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    for acks in [2, -2, i16::MAX, i16::MIN] {
        let bytes = batch(&["x"]);
        let response = client.call(&produce_request("t", 0, &bytes, acks), 9);
        let code = ErrorCode(response.responses[0].partition_responses[0].error_code);
        assert_eq!(code, ErrorCode::INVALID_REQUIRED_ACKS, "{acks}");
    }
    assert_eq!(read_all(&mut client, "t", 0, 0), Vec::<String>::new());
}

#[test]
fn acks_0_is_not_answered_and_a_refusal_closes_the_connection() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[("durability", "4")]);
    let bytes = batch(&["quiet"]);
    client.send(&produce_request("t", 0, &bytes, 0), 9);
    // The next response belongs to the next request, and the record is there before it is read.
    assert_eq!(read_all(&mut client, "t", 0, 0), ["quiet"]);
    client.send(&produce_request("nowhere", 0, &bytes, 0), 9);
    client.expect_closed("a refused batch with acks=0");
    assert_serves(&server);
}

fn stamped(epoch: i16, base_sequence: i32, records: &[&str]) -> Vec<u8> {
    let producer = ProducerStamp { id: ProducerId(4_711), epoch: ProducerEpoch(epoch), base_sequence };
    batch_with(BatchOptions { producer, ..Default::default() }, records)
}

#[test]
fn idempotent_producers_are_held_to_their_sequence() {
    use ErrorCode as Code;
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    let mut send = |epoch, sequence, records: &[&str]| {
        let answer = try_produce(&mut client, "t", 0, &stamped(epoch, sequence, records));
        (Code(answer.error_code), answer.base_offset)
    };
    assert_eq!(send(3, 0, &["a", "b"]), (Code::NONE, 0));
    assert_eq!(send(3, 0, &["a", "b"]), (Code::NONE, 0), "a duplicate is acked with its first offset");
    assert_eq!(send(3, 5, &["x"]), (Code::OUT_OF_ORDER_SEQUENCE_NUMBER, -1), "a gap");
    for sequence in 2..7 {
        assert_eq!(send(3, sequence, &["c"]), (Code::NONE, i64::from(sequence)));
    }
    assert_eq!(send(3, 2, &["c"]), (Code::NONE, 2), "five batches are remembered");
    assert_eq!(send(2, 7, &["old"]), (Code::INVALID_PRODUCER_EPOCH, -1));
    assert_eq!(send(4, 1, &["new"]), (Code::OUT_OF_ORDER_SEQUENCE_NUMBER, -1), "a new epoch begins at 0");
    assert_eq!(send(4, 0, &["new"]), (Code::NONE, 7));
    let all = read_all(&mut client, "t", 0, 0);
    assert_eq!(all, ["a", "b", "c", "c", "c", "c", "c", "new"]);
}

#[test]
fn a_sequence_wraps_after_its_largest_number() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    let first = try_produce(&mut client, "t", 0, &stamped(0, i32::MAX - 1, &["a"]));
    assert_eq!(ErrorCode(first.error_code), ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    produce(&mut client, "t", 0, &batch(&["of another one"]));
    // A producer that is not known may begin anywhere: its earlier batches may have been deleted.
    assert_eq!(produce(&mut client, "t", 0, &stamped(0, i32::MAX - 1, &["a"])), 1);
    assert_eq!(produce(&mut client, "t", 0, &stamped(0, i32::MAX, &["b", "c", "d"])), 2);
    assert_eq!(increment_sequence(i32::MAX, 3), 2);
    assert_eq!(produce(&mut client, "t", 0, &stamped(0, 2, &["e"])), 5);
    let gap = try_produce(&mut client, "t", 0, &stamped(0, 4, &["f"]));
    assert_eq!(ErrorCode(gap.error_code), ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    let duplicate = try_produce(&mut client, "t", 0, &stamped(0, i32::MAX, &["b", "c", "d"]));
    assert_eq!((ErrorCode(duplicate.error_code), duplicate.base_offset), (ErrorCode::NONE, 2));
}

#[test]
fn sequences_are_remembered_across_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap().to_owned();
    for (sequence, base) in [(0, 0), (0, 0), (1, 1)] {
        let server = server_with(&[("data.dir", &path)]);
        let mut client = Client::new(&server);
        if sequence == 0 && read_topics(&mut client) == 0 {
            create_topic(&mut client, "t", 1, &[]);
        }
        let answer = try_produce(&mut client, "t", 0, &stamped(0, sequence, &["a"]));
        assert_eq!((ErrorCode(answer.error_code), answer.base_offset), (ErrorCode::NONE, base));
        server.stop().unwrap();
    }
}

fn read_topics(client: &mut Client) -> usize {
    let request = riverrun_protocol::MetadataRequest { topics: None, ..Default::default() };
    client.call(&request, 12).topics.len()
}

#[test]
fn transactional_batches_are_refused_without_harm() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    let bytes = batch(&["x"]);
    let request =
        ProduceRequest { transactional_id: Some("tx".into()), ..produce_request("t", 0, &bytes, -1) };
    let code = client.call(&request, 9).responses[0].partition_responses[0].error_code;
    assert_eq!(ErrorCode(code), ErrorCode::INVALID_TXN_STATE);
    // The batch says it, and the request does not.
    let producer = ProducerStamp { id: ProducerId(5), epoch: ProducerEpoch(0), base_sequence: 0 };
    let marked = batch_with(BatchOptions { producer, transactional: true, ..Default::default() }, &["x"]);
    let answer = try_produce(&mut client, "t", 0, &marked);
    assert_eq!(ErrorCode(answer.error_code), ErrorCode::INVALID_TXN_STATE);
    assert_eq!(read_all(&mut client, "t", 0, 0), Vec::<String>::new());
}

#[test]
fn timestamps_of_append_time_are_the_servers() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[("message.timestamp.type", "LogAppendTime")]);
    let answer = try_produce(&mut client, "t", 0, &batch(&["x"]));
    assert!(answer.log_append_time_ms > crate::support::SOME_TIME.0, "{answer:?}");
    let data = crate::support::fetch(&mut client, "t", 0, 0);
    let stored = crate::support::records(&data);
    let (unverified, _) = riverrun_records::UnverifiedBatch::split_first(stored).unwrap();
    let sound = unverified.verify().unwrap();
    assert_eq!(sound.max_timestamp().0, answer.log_append_time_ms);
    assert_eq!(values(stored), ["x"]);
}

/// The records that a refusal blames, by their places in the batch; each with a reason.
fn blamed(answer: &PartitionProduceResponse<'_>) -> Vec<i32> {
    assert!(answer.record_errors.iter().all(|error| error.batch_index_error_message.is_some()));
    answer.record_errors.iter().map(|error| error.batch_index).collect()
}

/// A batch whose records have these timestamps and, or not, a key.
fn records_of(records: &[(i64, bool)]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for (timestamp, has_key) in records {
        let key = has_key.then_some(&b"k"[..]);
        builder.append(TimestampMs(*timestamp), key, Some(b"v"), &[]).expect("fits");
    }
    builder.build().expect("records")
}

#[test]
fn each_record_of_the_future_is_blamed() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[("message.timestamp.after.max.ms", "1000")]);
    let now = 1_000_000_000_000;
    let (past, future) = ((now, true), (100 * now, true));
    for (records, expected) in [
        ([past, past, future], vec![2]),
        ([past, future, future], vec![1, 2]),
        ([future, past, past], vec![0]),
    ] {
        let answer = try_produce(&mut client, "t", 0, &records_of(&records));
        assert_eq!(ErrorCode(answer.error_code), ErrorCode::INVALID_TIMESTAMP);
        assert_eq!(blamed(&answer), expected);
    }
}

#[test]
fn each_record_without_a_key_is_blamed_in_a_compacted_topic() {
    let server = server();
    let mut client = Client::new(&server);
    let bounds = [("cleanup.policy", "compact"), ("message.timestamp.after.max.ms", "1000")];
    create_topic(&mut client, "t", 1, &bounds);
    let now = 1_000_000_000_000;
    let (good, keyless, future) = ((now, true), (now, false), (100 * now, true));
    for (records, code, expected) in [
        ([good, good, keyless], ErrorCode::INVALID_RECORD, vec![2]),
        ([good, keyless, keyless], ErrorCode::INVALID_RECORD, vec![1, 2]),
        ([keyless, good, future], ErrorCode::INVALID_TIMESTAMP, vec![0, 2]),
    ] {
        let answer = try_produce(&mut client, "t", 0, &records_of(&records));
        assert_eq!(ErrorCode(answer.error_code), code);
        assert_eq!(blamed(&answer), expected);
    }
    assert_eq!(produce(&mut client, "t", 0, &records_of(&[good])), 0, "nothing else was appended");
}

#[test]
fn a_batch_that_is_wrong_as_a_whole_blames_no_record() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    let twice = [batch(&["a"]), batch(&["b"])].concat();
    let answer = try_produce(&mut client, "t", 0, &twice);
    assert_eq!(ErrorCode(answer.error_code), ErrorCode::INVALID_RECORD);
    assert!(blamed(&answer).is_empty() && answer.error_message.is_some(), "{answer:?}");
}

#[test]
fn an_answer_blames_a_bounded_number_of_records() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 2, &[("cleanup.policy", "compact")]);
    let bytes = records_of(&[(1_000_000_000_000, false); REFUSED_RECORDS_NAMED_MAX - 1]);
    let mut request = produce_request("t", 0, &bytes, -1);
    let mut second = request.topic_data[0].partition_data[0].clone();
    second.index = 1;
    request.topic_data[0].partition_data.push(second);
    let answer = client.call(&request, 9);
    let blamed: Vec<usize> =
        answer.responses[0].partition_responses.iter().map(|answer| blamed(answer).len()).collect();
    assert_eq!(blamed, [REFUSED_RECORDS_NAMED_MAX - 1, 1]);
}
