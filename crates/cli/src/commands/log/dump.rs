//! `riverrun log dump`: the batches in files, one line each, with their records on demand.
//!
//! Keys and values of records are shown only with `--payload`: a dump is often passed on by people who may not read it.

use std::fmt::Write as _;
use std::io::{BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use riverrun_env::Env;
use riverrun_log::{DumpedBatch, SegmentDump};
use riverrun_records::{BatchError, BatchHeader, Record, TimestampType, UnverifiedBatch};
use riverrun_tools::exit::{Exit, Failure};
use riverrun_tools::text::bytes::{push_for_terminal, put_json};
use riverrun_tools::text::time::format_time;
use serde_json::{Map, Value, json};

use super::log_failure;

const EXAMPLES: &str = "\
Examples:
  riverrun log dump riverrun-data/logs/7014b4a1-5af8-4dd2-bc34-d4f7874e2d66/0
  riverrun log dump 00000000000000000000.log --records
  riverrun log dump 00000000000000000000.log --payload --json";

const ADVICE: &str = "a partition's directory is <log dir>/<topic id>/<partition>; an empty one has no files";

/// Flags of `log dump`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DumpArgs {
    /// A .log file, or a partition's directory
    path: PathBuf,
    /// Show each record's offset, time and sizes
    #[arg(long)]
    records: bool,
    /// Show each record with its key, value and headers
    #[arg(long)]
    payload: bool,
    /// Stop after so many batches
    #[arg(long, value_name = "N")]
    max: Option<u64>,
    /// Print one JSON object on a line for each batch
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &DumpArgs) -> Result<(), Failure> {
    let stdout = std::io::stdout();
    let escape = stdout.is_terminal();
    let mut dump =
        Dump { args, out: BufWriter::new(stdout.lock()), escape, left: args.max.unwrap_or(u64::MAX) };
    for path in files(&args.path)? {
        dump.file(&path)?;
    }
    dump.out.flush().map_err(|error| Failure::output(&error))
}

/// The file itself, or a directory's `.log` files in order: their names are offsets of equal length.
fn files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error: std::io::Error| Failure::io(path.display(), &error);
    let metadata = path.metadata().map_err(failed)?;
    if !metadata.is_dir() {
        if metadata.len() == 0 && !has_log_name(path) {
            let text = format!(
                "{}: no log file: it is empty, and its name is not 20 digits and .log",
                path.display()
            );
            return Err(Failure::new(Exit::NotFound, text).advise(ADVICE));
        }
        return Ok(vec![path.to_path_buf()]);
    }
    let mut files = Vec::new();
    for entry in path.read_dir().map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        let failure = Failure::new(Exit::NotFound, format!("{}: no .log file is here", path.display()));
        return Err(failure.advise(ADVICE));
    }
    Ok(files)
}

/// Whether the name is that of a log file: its first offset in 20 digits, and `.log`.
fn has_log_name(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".log"));
    name.is_some_and(|digits| digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

struct Dump<'a, W: Write> {
    args: &'a DumpArgs,
    out: W,
    escape: bool,
    left: u64,
}

impl<W: Write> Dump<'_, W> {
    fn file(&mut self, path: &Path) -> Result<(), Failure> {
        if self.left == 0 {
            return Ok(());
        }
        if !self.args.json {
            self.put(format!("{}\n", path.display()).as_bytes())?;
        }
        let batches = SegmentDump::open(&Env::real(), path).map_err(|error| log_failure(&error))?;
        for batch in batches {
            if self.left == 0 {
                break;
            }
            self.left -= 1;
            let batch = batch.map_err(|error| self.damaged(&log_failure(&error)))?;
            self.batch(path, &batch)?;
        }
        Ok(())
    }

    /// Batches before the damage are shown before the failure.
    fn damaged(&mut self, failure: &Failure) -> Failure {
        match self.out.flush() {
            Ok(()) => failure.clone().advise("riverrun log verify PATH   (lists all that is wrong)"),
            Err(error) => Failure::output(&error),
        }
    }

    fn batch(&mut self, path: &Path, batch: &DumpedBatch) -> Result<(), Failure> {
        let wants_records = self.args.records || self.args.payload;
        let not_read = |error: BatchError| {
            let text = format!("{}, batch at byte {}: {error}", path.display(), batch.position);
            Failure::new(Exit::CheckFailed, text)
        };
        if self.args.json {
            let mut object = batch_json(batch);
            if wants_records {
                let mut records = Vec::new();
                each_record(batch, |record| {
                    records.push(record_json(record, self.args.payload));
                    Ok(())
                })
                .map_err(|stop| stop.failure(not_read))?;
                object.insert("records".to_owned(), records.into());
            }
            return self.put((Value::Object(object).to_string() + "\n").as_bytes());
        }
        self.put(batch_line(batch).as_bytes())?;
        if wants_records {
            each_record(batch, |record| self.record(record)).map_err(|stop| stop.failure(not_read))?;
        }
        Ok(())
    }

    fn record(&mut self, record: &Record<'_>) -> Result<(), Failure> {
        let mut line = record_line(record).into_bytes();
        if self.args.payload {
            self.push_payload(&mut line, record);
        }
        line.push(b'\n');
        self.put(&line)
    }

    fn push_payload(&self, line: &mut Vec<u8>, record: &Record<'_>) {
        let mut part = |name: &str, bytes: Option<&[u8]>| {
            line.extend_from_slice(format!("\n      {name}: ").as_bytes());
            match bytes {
                None => line.extend_from_slice(b"(none)"),
                Some(bytes) if self.escape => push_for_terminal(line, bytes),
                Some(bytes) => line.extend_from_slice(bytes),
            }
        };
        part("key", record.key);
        part("value", record.value);
        for header in record.headers() {
            part(&format!("header {}", header.key.escape_ascii()), header.value);
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes).map_err(|error| Failure::output(&error))
    }
}

/// Why a walk over records ended early.
enum RecordStop {
    Batch(BatchError),
    Output(Failure),
}

impl RecordStop {
    fn failure(self, not_read: impl FnOnce(BatchError) -> Failure) -> Failure {
        match self {
            Self::Batch(error) => not_read(error),
            Self::Output(failure) => failure,
        }
    }
}

fn each_record(
    batch: &DumpedBatch,
    mut show: impl FnMut(&Record<'_>) -> Result<(), Failure>,
) -> Result<(), RecordStop> {
    let verified = UnverifiedBatch::only(&batch.bytes).and_then(UnverifiedBatch::verify);
    let records = verified.and_then(|batch| batch.records()).map_err(RecordStop::Batch)?;
    for record in &records {
        show(&record.map_err(RecordStop::Batch)?).map_err(RecordStop::Output)?;
    }
    Ok(())
}

fn codec(header: &BatchHeader) -> &'static str {
    header.try_compression().map_or("unknown", riverrun_records::Compression::name)
}

fn batch_line(batch: &DumpedBatch) -> String {
    let header = &batch.header;
    let mut line = batch_facts(batch);
    if header.has_producer_id() {
        let (id, epoch) = (header.producer_id().0, header.producer_epoch().0);
        let (first, last) = (header.base_sequence(), header.last_sequence());
        write!(line, ", producer {id} epoch {epoch} sequence {first}..{last}")
            .expect("a String takes every text");
    }
    for flag in flags(header) {
        line.push_str(", ");
        line.push_str(flag);
    }
    line + "\n"
}

fn batch_facts(batch: &DumpedBatch) -> String {
    let header = &batch.header;
    format!(
        "  at {:<10} offsets {}..{}, {} records, {} bytes, {}, leader epoch {}, {}",
        batch.position,
        header.base_offset(),
        header.last_offset(),
        header.record_count(),
        header.size_bytes(),
        codec(header),
        header.leader_epoch().0,
        format_time(header.max_timestamp()),
    )
}

fn flags(header: &BatchHeader) -> Vec<&'static str> {
    let all = [
        (header.is_transactional(), "transactional"),
        (header.is_control(), "control"),
        (header.has_delete_horizon(), "delete-horizon"),
        (header.timestamp_type() == TimestampType::LogAppendTime, "log-append-time"),
    ];
    all.into_iter().filter_map(|(is_set, name)| is_set.then_some(name)).collect()
}

fn batch_json(batch: &DumpedBatch) -> Map<String, Value> {
    let header = &batch.header;
    let object = json!({
        "position": batch.position,
        "base_offset": header.base_offset().0,
        "last_offset": header.last_offset().0,
        "record_count": header.record_count(),
        "size_bytes": header.size_bytes(),
        "compression": codec(header),
        "leader_epoch": header.leader_epoch().0,
        "base_timestamp_ms": header.base_timestamp().0,
        "max_timestamp_ms": header.max_timestamp().0,
        "producer_id": header.producer_id().0,
        "producer_epoch": header.producer_epoch().0,
        "base_sequence": header.base_sequence(),
        "last_sequence": header.last_sequence(),
        "crc": header.crc(),
        "flags": flags(header),
    });
    let Value::Object(object) = object else { unreachable!("the literal above is an object") };
    object
}

fn record_line(record: &Record<'_>) -> String {
    let len =
        |bytes: Option<&[u8]>| bytes.map_or("none".to_owned(), |bytes| format!("{} bytes", bytes.len()));
    format!(
        "    {}  {}  key {}, value {}, {} headers",
        record.offset,
        format_time(record.timestamp),
        len(record.key),
        len(record.value),
        record.headers().count(),
    )
}

fn record_json(record: &Record<'_>, with_payload: bool) -> Value {
    let mut object = Map::new();
    object.insert("offset".to_owned(), record.offset.0.into());
    object.insert("timestamp_ms".to_owned(), record.timestamp.0.into());
    if with_payload {
        put_json(&mut object, "key", record.key);
        put_json(&mut object, "value", record.value);
        let headers = record.headers().map(|header| {
            let mut object = Map::new();
            put_json(&mut object, "key", Some(header.key));
            put_json(&mut object, "value", header.value);
            Value::Object(object)
        });
        object.insert("headers".to_owned(), headers.collect());
    } else {
        object.insert("key_bytes".to_owned(), record.key.map(<[u8]>::len).into());
        object.insert("value_bytes".to_owned(), record.value.map(<[u8]>::len).into());
        object.insert("header_count".to_owned(), record.headers().count().into());
    }
    Value::Object(object)
}
