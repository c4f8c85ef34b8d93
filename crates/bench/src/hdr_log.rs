//! The `HdrHistogram` log: a file of histograms by interval that the standard tools read and merge.
//!
//! Owns the text format (1.3) and the binary one inside of it (V2, deflated, base64). Values are microseconds, so the
//! tools' `-outputValueUnitRatio 1000` shows milliseconds; a comment in the file says so. Guarantees that each line is
//! handed to the system when its call returns, so that an aborted run leaves its measurements.
//!
//! ```text
//! V2 histogram, big-endian            compressed
//!   0  cookie 0x1c849313                0  cookie 0x1c849314
//!   4  bytes of counts (i32)            4  bytes that follow (i32)
//!   8  normalizing index offset (0)     8  V2 histogram, zlib
//!  12  significant digits
//!  16  lowest value, i64
//!  24  highest value, i64
//!  32  conversion ratio, f64 (1)
//!  40  counts by index: ZigZag LEB128 of at most 9 bytes; a run of n zeroes is -n
//! ```

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use hdrhistogram::Histogram;
use riverrun_measure::histogram::{Latencies, SIGNIFICANT_DIGITS};

const COOKIE: i32 = 0x1c84_9313;
const COOKIE_COMPRESSED: i32 = 0x1c84_9314;
const HEADER_BYTES: usize = 40;

/// log2 of the sub-buckets for this many digits: 2 * 10^3 rounded up to a power of two.
const SUB_BUCKETS_LOG2: u32 = 11;
const SUB_BUCKETS_HALF: u64 = 1 << (SUB_BUCKETS_LOG2 - 1);
const _: () = assert!(2 * 10_u64.pow(SIGNIFICANT_DIGITS as u32) <= 1 << SUB_BUCKETS_LOG2);
const _: () = assert!(2 * 10_u64.pow(SIGNIFICANT_DIGITS as u32) > SUB_BUCKETS_HALF);

/// Microseconds in a millisecond: `Interval_Max` is in milliseconds, as the tools write it.
const US_PER_MS: f64 = 1000.0;

/// Writes a log.
///
/// Invariants: the head stands before the first interval.
#[derive(Debug)]
pub struct HdrLogWriter<W: Write> {
    out: W,
}

impl<W: Write> HdrLogWriter<W> {
    /// Begins a log whose intervals are counted from `start`. `comment` is one line about its content.
    pub fn new(mut out: W, start: SystemTime, comment: &str) -> io::Result<Self> {
        let start_s = start.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let comment = comment.replace(['\n', '\r'], " ");
        writeln!(out, "#[{comment}; values are microseconds]")?;
        writeln!(out, "#[Histogram log format version 1.3]")?;
        writeln!(out, "#[StartTime: {start_s:.3} (seconds since epoch)]")?;
        writeln!(
            out,
            "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\""
        )?;
        out.flush()?;
        Ok(Self { out })
    }

    /// Adds an interval, given by its begin since the log's start and its length. A tag names one of several series;
    /// commas, spaces and line ends in it become dashes.
    pub fn write(
        &mut self,
        tag: Option<&str>,
        begin: Duration,
        length: Duration,
        latencies: &Latencies,
    ) -> io::Result<()> {
        if let Some(tag) = tag {
            let tag = tag.replace(|letter: char| letter == ',' || letter.is_whitespace(), "-");
            write!(self.out, "Tag={tag},")?;
        }
        let (begin_s, length_s) = (begin.as_secs_f64(), length.as_secs_f64());
        let max_ms = latencies.max_us() as f64 / US_PER_MS;
        let encoded = STANDARD.encode(compressed(latencies.histogram())?);
        writeln!(self.out, "{begin_s:.3},{length_s:.3},{max_ms:.3},{encoded}")?;
        self.out.flush()
    }
}

fn compressed(histogram: &Histogram<u64>) -> io::Result<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&plain(histogram))?;
    let body = encoder.finish()?;
    let mut bytes = COOKIE_COMPRESSED.to_be_bytes().to_vec();
    bytes.extend_from_slice(&length(body.len()).to_be_bytes());
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

/// A histogram has some ten thousand counts, so its length always fits.
fn length(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

fn plain(histogram: &Histogram<u64>) -> Vec<u8> {
    let counts = counts(histogram);
    let mut bytes = Vec::with_capacity(HEADER_BYTES + counts.len());
    bytes.extend_from_slice(&COOKIE.to_be_bytes());
    bytes.extend_from_slice(&length(counts.len()).to_be_bytes());
    bytes.extend_from_slice(&0_i32.to_be_bytes());
    bytes.extend_from_slice(&i32::from(histogram.sigfig()).to_be_bytes());
    bytes.extend_from_slice(&histogram.low().to_be_bytes());
    bytes.extend_from_slice(&histogram.high().to_be_bytes());
    bytes.extend_from_slice(&1_f64.to_be_bytes());
    debug_assert_eq!(bytes.len(), HEADER_BYTES);
    bytes.extend_from_slice(&counts);
    bytes
}

fn counts(histogram: &Histogram<u64>) -> Vec<u8> {
    let (mut bytes, mut next) = (Vec::new(), 0);
    for step in histogram.iter_recorded() {
        let index = index_of(step.value_iterated_to());
        match index - next {
            0 => {}
            zeroes => push_zigzag(&mut bytes, -(zeroes as i64)),
        }
        push_zigzag(&mut bytes, i64::try_from(step.count_at_value()).unwrap_or(i64::MAX));
        next = index + 1;
    }
    bytes
}

/// Index of a value's count: linear up to 2048, then half as many steps to each doubling.
fn index_of(value: u64) -> u64 {
    let bucket = (value | ((1 << SUB_BUCKETS_LOG2) - 1)).ilog2() + 1 - SUB_BUCKETS_LOG2;
    (u64::from(bucket) << (SUB_BUCKETS_LOG2 - 1)) + (value >> bucket)
}

fn push_zigzag(bytes: &mut Vec<u8>, value: i64) {
    /// After this many bytes of 7 bits, the last one takes the 8 bits that are left.
    const SHORT_BYTES: usize = 8;
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    for _ in 0..SHORT_BYTES {
        let low = rest.to_le_bytes()[0] & 0x7f;
        rest >>= 7;
        if rest == 0 {
            return bytes.push(low);
        }
        bytes.push(low | 0x80);
    }
    bytes.push(rest.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn hex(bytes: &[u8]) -> String {
        use std::fmt::Write as _;
        bytes.iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        })
    }

    /// Expected bytes are the output of the Java library (2.2.2) for the same values.
    #[test]
    fn histogram_is_encoded_as_by_the_java_library() {
        let mut latencies = Latencies::new();
        for (value, count) in
            [(0, 1), (1, 3), (2047, 1), (2048, 1), (2050, 200), (1_000_000, 5_000_000_000), (59_999_999, 1)]
        {
            latencies.record_many_us(value, count);
        }
        let encoded = hex(&plain(latencies.histogram()));
        assert_eq!(&encoded[..48], "1c8493130000001300000000000000030000000000000001");
        assert_eq!(&encoded[64..], "3ff00000000000000206f91f02029003bd8e0180c8afa025895e02");
        let mut long = Latencies::new();
        long.record_us(7);
        long.record_us(108_000_000_000);
        let expected =
            "1c84931300000006000000000000000300000000000000010000001fffffffff3ff00000000000000d0281b90302";
        assert_eq!(hex(&plain(long.histogram())), expected);
    }

    #[test]
    fn greatest_counts_take_nine_bytes() {
        let encode = |value| {
            let mut bytes = Vec::new();
            push_zigzag(&mut bytes, value);
            hex(&bytes)
        };
        assert_eq!(encode(i64::MAX), "feffffffffffffffff");
        assert_eq!(encode(i64::MIN), "ffffffffffffffffff");
        assert_eq!(
            (encode(0), encode(-1), encode(63), encode(64)),
            ("00".into(), "01".into(), "7e".into(), "8001".into())
        );
    }

    #[test]
    fn log_has_a_head_and_one_line_per_interval() {
        let mut latencies = Latencies::new();
        latencies.record_us(1500);
        let mut out = Vec::new();
        let start = UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
        let mut log = HdrLogWriter::new(&mut out, start, "a\nb").unwrap();
        log.write(None, Duration::ZERO, Duration::from_secs(1), &latencies).unwrap();
        log.write(Some("old, def"), Duration::from_secs(1), Duration::from_millis(500), &latencies).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "#[a b; values are microseconds]");
        assert_eq!(lines[2], "#[StartTime: 1700000000.250 (seconds since epoch)]");
        assert!(lines[4].starts_with("0.000,1.000,1.500,HISTFAAAA"), "{}", lines[4]);
        assert!(lines[5].starts_with("Tag=old--def,1.000,0.500,1.500,HISTFAAAA"), "{}", lines[5]);
        let (_, encoded) = lines[4].rsplit_once(',').unwrap();
        let bytes = STANDARD.decode(encoded).unwrap();
        let mut inflated = Vec::new();
        flate2::read::ZlibDecoder::new(&bytes[8..]).read_to_end(&mut inflated).unwrap();
        assert_eq!(inflated, plain(latencies.histogram()));
        assert_eq!(bytes[4..8], length(bytes.len() - 8).to_be_bytes());
    }
}
