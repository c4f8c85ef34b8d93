//! Batches that inflate to very much: how much memory they take while they are looked at, not only afterwards.

use std::time::{Duration, Instant};

use riverrun_protocol::{ApiVersionsRequest, ErrorCode};
use riverrun_records::{BatchOptions, Compression, compress, layout};

use crate::support::{Client, assert_serves, batch, batch_with, create_topic, produce, server, try_produce};
use crate::{MIB, alone, assert_peak_less_than, reset_peak};

const INFLATED: usize = 1 << 30;
/// Repeated until it makes up [`INFLATED`].
const PIECE: usize = MIB;

/// A batch of one record whose compressed bytes are `payload`.
fn compressed(codec: Compression, payload: &[u8]) -> Vec<u8> {
    let mut bytes = batch_with(BatchOptions { compression: codec, ..Default::default() }, &["x"]);
    bytes.truncate(layout::RECORDS);
    bytes.extend(payload);
    let length = i32::try_from(bytes.len() - layout::LENGTH_END).expect("small");
    bytes[layout::LENGTH..layout::LENGTH_END].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[layout::ATTRIBUTES..]);
    bytes[layout::CRC..layout::ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// Seven bits a byte, the lowest first.
fn put_varint(out: &mut Vec<u8>, mut value: usize) {
    while value > 0x7f {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// The first piece of a sound record of so many zeros: its size, attributes, both deltas, no key, the value's size.
fn first_piece(value_bytes: usize) -> Vec<u8> {
    let mut record = Vec::with_capacity(PIECE);
    put_varint(&mut record, 2 * (value_bytes + 9));
    record.extend([0, 0, 0, 1]);
    put_varint(&mut record, 2 * value_bytes);
    record.resize(PIECE, 0);
    record
}

fn packed(codec: Compression, piece: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    compress(codec, codec.default_level(), piece, &mut out).expect("compresses");
    out
}

/// One stream of `first` and of many equal pieces. `head` and `tail` are the lengths of a packed piece's beginning and
/// end that a stream has only once.
fn repeated(codec: Compression, pieces: usize, head: usize, tail: usize) -> Vec<u8> {
    let (mut stream, zeros) = (packed(codec, &first_piece(INFLATED)), packed(codec, &vec![0; PIECE]));
    let end = stream.split_off(stream.len() - tail);
    for _ in 1..pieces {
        stream.extend(&zeros[head..zeros.len() - tail]);
    }
    stream.extend(end);
    stream
}

/// A frame of zstd with this window: a raw block with the beginning of a record, and so many blocks that say "131,072
/// zeros" in four bytes.
fn zstd(window_log: u8, blocks: usize) -> Vec<u8> {
    let record: Vec<u8> = first_piece(INFLATED).into_iter().take(32).collect();
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, (window_log - 10) << 3];
    frame.extend(&(32_u32 << 3).to_le_bytes()[..3]);
    frame.extend(record);
    for block in 1..=blocks {
        let is_last = u32::from(block == blocks);
        frame.extend(&((131_072 << 3) | (1 << 1) | is_last).to_le_bytes()[..3]);
        frame.push(0);
    }
    frame
}

/// Bombs of a gigabyte, and bombs that fit into a few kibibytes.
fn bombs() -> Vec<(&'static str, Compression, Vec<u8>)> {
    let (gzip, lz4, snappy) = (Compression::Gzip, Compression::Lz4, Compression::Snappy);
    vec![
        // Members in a row; a frame of many blocks, behind a header of seven bytes; chunks behind one of sixteen.
        ("gzip", gzip, repeated(gzip, INFLATED / PIECE, 0, 0)),
        ("lz4", lz4, repeated(lz4, INFLATED / PIECE, 7, 4)),
        ("snappy", snappy, repeated(snappy, 200, 16, 0)),
        ("zstd", Compression::Zstd, zstd(23, INFLATED / 131_072)),
        ("zstd with a large window", Compression::Zstd, zstd(27, INFLATED / 131_072)),
        // As little as is allowed to inflate to a hundred megabytes.
        ("more zstd with a large window", Compression::Zstd, zstd(27, 4 * INFLATED / 131_072)),
        ("a few kibibytes of zstd", Compression::Zstd, zstd(23, 900)),
        // A raw block of snappy says its size in front: a gigabyte.
        ("a few bytes of snappy", snappy, vec![0x80, 0x80, 0x80, 0x80, 0x04, 0xfe, 0, 0]),
    ]
}

#[test]
fn bombs_of_every_codec_are_refused_without_being_inflated() {
    let _alone = alone();
    let server = server();
    let mut client = Client::new(&server);
    // A limit above the size of each of them.
    create_topic(&mut client, "t", 1, &[("max.message.bytes", "33554432")]);
    for (what, codec, payload) in bombs() {
        let bytes = compressed(codec, &payload);
        assert!(what != "a few kibibytes of zstd" || bytes.len() < 4096, "{}", bytes.len());
        let before = reset_peak();
        let answer = try_produce(&mut client, "t", 0, &bytes);
        let code = ErrorCode(answer.error_code);
        assert_eq!(code, ErrorCode::MESSAGE_TOO_LARGE, "{what}: {:?}", answer.error_message);
        assert_peak_less_than(64 * MIB, before, what);
    }
    assert_eq!(produce(&mut client, "t", 0, &batch(&["the first"])), 0);
    assert_serves(&server);
}

#[test]
fn batches_that_inflate_to_much_do_not_hold_up_small_requests() {
    const CLIENTS: usize = 16;
    let _alone = alone();
    let server = server();
    let mut honest = Client::new(&server);
    create_topic(&mut honest, "t", 1, &[("compression.type", "zstd")]);
    // Enough that is not repeated for no more than a few hundred times the size.
    let noise: Vec<String> =
        (0_u64..1_500).map(|n| format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    let value = noise.concat() + &"a".repeat(12 * MIB);
    let options = BatchOptions { compression: Compression::Gzip, ..Default::default() };
    let bytes = batch_with(options, &[&value]);
    assert!(bytes.len() > 17_000, "{}", bytes.len());
    let mut slowest = Duration::ZERO;
    std::thread::scope(|scope| {
        let producing: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let mut client = Client::new(&server);
                let bytes = &bytes;
                scope.spawn(move || produce(&mut client, "t", 0, bytes))
            })
            .collect();
        while producing.iter().any(|producer| !producer.is_finished()) {
            let since = Instant::now();
            assert_eq!(honest.call(&ApiVersionsRequest::default(), 0).error_code, 0);
            slowest = slowest.max(since.elapsed());
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut offsets: Vec<i64> =
            producing.into_iter().map(|producer| producer.join().expect("appended")).collect();
        offsets.sort_unstable();
        assert!(offsets.into_iter().eq(0..CLIENTS as i64));
    });
    assert!(slowest < Duration::from_millis(500), "{slowest:?}");
}
