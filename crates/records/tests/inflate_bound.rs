//! A stream that inflates without end costs little memory. One test, alone in its process, because the peak of
//! resident memory is the process's: it counts what C libraries allocate, too.
#![cfg(target_os = "linux")]

use std::io::{Read as _, Write};
use std::ops::ControlFlow;

use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, FrameEncoder, FrameInfo};
use riverrun_records::{
    BatchBuilder, BatchError, BatchOptions, Compression, Excess, ProduceRules, RecompressOptions,
    UnverifiedBatch, layout, recompress, validate_produced,
};
use riverrun_types::TimestampMs;

mod support;

const BOMB_BYTES: usize = 1 << 30;
const EXTRA_BYTES_MAX: usize = 64 << 20;

/// The peak of resident memory so far.
fn peak_resident_bytes() -> usize {
    let mut status = String::new();
    #[expect(clippy::disallowed_methods, reason = "the kernel's account of this process, not a file of ours")]
    let mut file = std::fs::File::open("/proc/self/status").expect("procfs");
    file.read_to_string(&mut status).expect("readable");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let kib = line.trim().strip_suffix(" kB").expect("in kB").parse::<usize>().expect("a number");
    kib * 1024
}

/// One record whose value is zeros without end: every length that can be read is right.
fn write_bomb(out: &mut impl Write, bytes: usize) {
    let largest = [0xfe, 0xff, 0xff, 0xff, 0x0f];
    let below = [0x80, 0xff, 0xff, 0xff, 0x0f];
    out.write_all(&largest).expect("written");
    out.write_all(&[0, 0, 0, 1]).expect("written");
    out.write_all(&below).expect("written");
    let zeros = vec![0; 1 << 20];
    for _ in 0..bytes / zeros.len() {
        out.write_all(&zeros).expect("written");
    }
}

fn stream(compression: Compression, bytes: usize) -> Vec<u8> {
    match compression {
        Compression::None => Vec::new(),
        Compression::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
            write_bomb(&mut encoder, bytes);
            encoder.finish().expect("a stream")
        }
        Compression::Snappy => framed_snappy(bytes),
        Compression::Lz4 => {
            let info = FrameInfo::new().block_mode(BlockMode::Independent);
            let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
            write_bomb(&mut encoder, bytes);
            encoder.finish().expect("a stream")
        }
        Compression::Zstd => {
            let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).expect("an encoder");
            encoder.long_distance_matching(true).expect("an option");
            encoder.window_log(27).expect("the largest window");
            write_bomb(&mut encoder, bytes);
            encoder.finish().expect("a stream")
        }
    }
}

/// Equal chunks of a little more than 1 MiB each: the first one's beginning is read as the record's.
fn framed_snappy(bytes: usize) -> Vec<u8> {
    let mut out = vec![0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1];
    let mut chunk = Vec::new();
    write_bomb(&mut chunk, 1 << 20);
    let block = snap::raw::Encoder::new().compress_vec(&chunk).expect("compressed");
    let length = u32::try_from(block.len()).expect("a small block").to_be_bytes();
    for _ in 0..bytes >> 20 {
        out.extend_from_slice(&length);
        out.extend_from_slice(&block);
    }
    out
}

fn batch(compression: Compression, payload: &[u8]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions { compression, ..BatchOptions::default() });
    builder.append(TimestampMs(0), None, None, &[]).expect("room");
    let mut bytes = builder.build().expect("a batch");
    bytes.truncate(layout::RECORDS);
    bytes.extend_from_slice(payload);
    support::seal(bytes)
}

#[track_caller]
fn assert_too_large<T>(name: &str, result: Result<T, BatchError>) {
    let error = result.err();
    assert!(
        matches!(error, Some(BatchError::TooLarge { excess: Excess::InflatedBytes, .. })),
        "{name}: {error:?}"
    );
}

/// A sound batch that inflates to nearly the bound is neither held inflated nor written past its bound.
fn walking_and_recompressing_follow_the_batches() {
    let value_bytes = 99 << 20;
    let mut record = Vec::new();
    put_varint(&mut record, 2 * (value_bytes + 9));
    record.extend([0, 0, 0, 1]);
    put_varint(&mut record, 2 * value_bytes);
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).expect("an encoder");
    encoder.write_all(&record).expect("written");
    let zeros = vec![0; 1 << 20];
    for _ in 0..99 {
        encoder.write_all(&zeros).expect("written");
    }
    encoder.write_all(&[0]).expect("written");
    let bytes = batch(Compression::Zstd, &encoder.finish().expect("a stream"));
    let batch = UnverifiedBatch::only(&bytes).and_then(UnverifiedBatch::verify).expect("a good header");
    let info = validate_produced(&batch, &ProduceRules::default()).expect("a client may send it");
    let mut seen = 0;
    let visited = batch.visit_stamps(|_| {
        seen += 1;
        ControlFlow::Continue(())
    });
    assert_eq!((visited, seen), (Ok(()), 1));
    for compression in Compression::ALL {
        let options = RecompressOptions {
            compression,
            level: compression.default_level(),
            inflated_bytes: info.inflated_bytes,
            bytes_max: 1 << 20,
        };
        let fits = matches!(compression, Compression::Gzip | Compression::Lz4 | Compression::Zstd);
        match recompress(&batch, &options) {
            Ok(new) => assert!(fits && new.len() <= 1 << 20, "{compression}"),
            Err(error) => {
                assert_eq!(error, BatchError::TooLarge { excess: Excess::Bytes, limit: 1 << 20 });
                assert!(!fits, "{compression}");
            }
        }
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: usize) {
    while value > 0x7f {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

#[test]
fn a_bomb_is_too_large_and_costs_little_memory() {
    let codecs = [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
    let bombs = codecs.map(|codec| batch(codec, &stream(codec, BOMB_BYTES)));
    // The streams with the largest ratio: a claim in snappy, repeated blocks in zstd.
    let claim = batch(Compression::Snappy, &[&[0x80, 0x80, 0x80, 0x80, 0x04][..], &[0; 1024]].concat());
    let small = batch(Compression::Zstd, &stream(Compression::Zstd, 160 << 20));
    assert!(claim.len() < 2048 && small.len() < 20_000, "{} and {}", claim.len(), small.len());

    let before = peak_resident_bytes();
    for (codec, bytes) in codecs.iter().zip(&bombs) {
        let batch = UnverifiedBatch::only(bytes).and_then(UnverifiedBatch::verify).expect("a good header");
        assert_too_large(
            codec.name(),
            validate_produced(&batch, &ProduceRules::default()).map_err(|refused| refused.error()),
        );
        let extra = peak_resident_bytes() - before;
        assert!(extra < EXTRA_BYTES_MAX, "{codec}: {extra} bytes");
    }
    for bytes in [&claim, &small] {
        let batch = UnverifiedBatch::only(bytes).and_then(UnverifiedBatch::verify).expect("a good header");
        assert_too_large(
            "validate",
            validate_produced(&batch, &ProduceRules::default()).map_err(|refused| refused.error()),
        );
    }
    walking_and_recompressing_follow_the_batches();
    let extra = peak_resident_bytes() - before;
    assert!(extra < EXTRA_BYTES_MAX, "small ones: {extra} bytes");
    // A reader of a batch holds all of it, up to the bound.
    for bytes in [&claim, &small] {
        let batch = UnverifiedBatch::only(bytes).and_then(UnverifiedBatch::verify).expect("a good header");
        assert_too_large("records", batch.records());
    }
}
