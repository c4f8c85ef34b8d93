//! The properties of batches and streams that the targets check.

use riverrun_records::{
    Batch, BatchBuilder, Compression, ProduceRules, RecompressOptions, RetainOptions, UnverifiedBatch,
    compress, decompress, layout, recompress, validate_produced,
};
use riverrun_types::limits::INFLATE_STORED_BYTES_MAX;

use crate::peak_bytes_during;

/// Bytes that codecs and buffers hold whatever the input: two LZ4 blocks of 4 MiB are the largest of them.
const FIXED_BYTES_MAX: usize = 12 << 20;
/// A raw snappy block is inflated as a whole, to this many times its size at most.
const SNAPPY_RATIO_MAX: usize = 22;

/// Reads `data` as a batch, as it is and with its format, length and CRC mended, and checks what comes out.
pub fn check_batch(data: &[u8]) {
    check_sealed(data);
    if data.len() > layout::HEADER_BYTES {
        check_sealed(&seal(data.to_vec()));
    }
}

/// Inflates `data` as a stream of `compression`, alone and inside a batch, and checks that it stays within its
/// bound; then that `data` itself survives the codec.
pub fn check_stream(compression: Compression, data: &[u8]) {
    let limit = INFLATE_STORED_BYTES_MAX;
    let peak = peak_bytes_during(|| {
        let mut out = Vec::new();
        let inflated = decompress(compression, data, &mut out);
        assert!(inflated.is_err() || out.len() <= limit, "{} bytes came out", out.len());
    });
    assert!(peak <= 2 * limit + FIXED_BYTES_MAX, "{peak} bytes allocated");
    let count = data.first().map_or(1, |byte| i32::from(byte % 8) + 1);
    check_sealed(&around(compression, data, count));

    let (mut compressed, mut restored) = (Vec::new(), Vec::new());
    compress(compression, compression.default_level(), data, &mut compressed).expect("compressed");
    decompress(compression, &compressed, &mut restored).expect("a fuzzer's input is small");
    assert_eq!(restored, data);
}

fn check_sealed(bytes: &[u8]) {
    let Ok(batch) = UnverifiedBatch::split_first(bytes).and_then(|(batch, _)| batch.verify()) else {
        return;
    };
    let mut accepted = false;
    let peak = peak_bytes_during(|| accepted = validate_produced(&batch, &ProduceRules::default()).is_ok());
    assert!(peak <= FIXED_BYTES_MAX + SNAPPY_RATIO_MAX * bytes.len(), "{peak} bytes allocated");
    let is_in_place = accepted && batch.compression() == Compression::None;
    assert!(peak == 0 || !is_in_place, "checked in place without allocating");
    let readable = read(&batch);
    if accepted {
        assert_eq!(readable, Some(batch.record_count()), "what is accepted can be read");
    }
    if readable.is_some() {
        check_rewritten(&batch);
    }
}

/// How many records there are, if all of them can be read.
fn read(batch: &Batch<'_>) -> Option<i32> {
    let records = batch.records().ok()?;
    let mut count = 0;
    for record in &records {
        let record = record.ok()?;
        assert_eq!(record.headers().count(), record.headers().len());
        count += 1;
    }
    Some(count)
}

/// A readable batch keeps its records when compaction or another codec rewrites it.
fn check_rewritten(batch: &Batch<'_>) {
    let records = batch.records().expect("readable");
    let options = RetainOptions { compression: Compression::None, level: None, delete_horizon: None };
    let mut builder = BatchBuilder::retaining(batch.header(), options);
    for record in &records {
        builder.append_record(&record.expect("readable")).expect("what is readable is written anew");
    }
    let inflated_bytes = records.bytes().len();
    let options =
        RecompressOptions { compression: Compression::None, level: 0, inflated_bytes, bytes_max: 1 << 30 };
    for rewritten in [builder.build(), recompress(batch, &options)] {
        let rewritten = rewritten.expect("a batch");
        let again = UnverifiedBatch::only(&rewritten).and_then(UnverifiedBatch::verify).expect("good");
        let again = again.records().expect("readable");
        assert!(again.iter().eq(records.iter()), "the same records");
    }
}

/// A batch of `count` records whose bytes are `payload`.
fn around(compression: Compression, payload: &[u8], count: i32) -> Vec<u8> {
    let mut bytes = vec![0; layout::HEADER_BYTES];
    bytes[layout::ATTRIBUTES + 1] = compression.id();
    bytes[layout::LAST_OFFSET_DELTA..layout::BASE_TIMESTAMP].copy_from_slice(&(count - 1).to_be_bytes());
    bytes[layout::PRODUCER_ID..layout::PRODUCER_EPOCH].copy_from_slice(&(-1_i64).to_be_bytes());
    bytes[layout::RECORD_COUNT..layout::RECORDS].copy_from_slice(&count.to_be_bytes());
    bytes.extend_from_slice(payload);
    seal(bytes)
}

fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[layout::MAGIC] = layout::MAGIC_V2 as u8;
    let length = u32::try_from(bytes.len() - layout::LENGTH_END).expect("a fuzzer's input is small");
    bytes[layout::LENGTH..layout::LENGTH_END].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[layout::ATTRIBUTES..]);
    bytes[layout::CRC..layout::ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
    bytes
}
