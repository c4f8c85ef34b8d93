//! Every byte of every file of a log dir flipped in turn, and each file cut at every length: a reader then gets the
//! written bytes, or an error, or the server's log has told that deleted records may show again. Readers need not check
//! CRCs for that. For state files see `producers.rs`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_env::FileSystem;
use riverrun_env::sim::SimEnv;
use riverrun_log::config::LogConfig;
use riverrun_log::{
    LogDirFiles, LogError, PartitionLog, ReadError, RecoveryReport, StoreOptions, Weight, verify_partition,
};
use riverrun_records::{BatchOptions, Batches, UnverifiedBatch};
use riverrun_types::{Offset, TimestampMs};

use crate::machine::{DIR, ID, Machine, batch_at, numbers, put, stamp};

const RECORDS: i64 = 8;
const LOG_START: i64 = 2;
const FIRST_TIME: i64 = 1_700_000_000_000;
/// Bytes at the front of the log starts' file that are damaged; the rest is mostly zeros.
const FRONT_BYTES: usize = 150;

/// The time of record number `offset`: an hour after the one before.
fn time_of(offset: i64) -> TimestampMs {
    TimestampMs(FIRST_TIME + offset * 3_600_000)
}

/// Segments of a few batches, with an index entry for each batch or for all of a segment's.
fn configs() -> [LogConfig; 2] {
    let small = LogConfig { segment_bytes: 300, index_interval_bytes: 150, ..LogConfig::default() };
    [small.clone(), LogConfig { segment_bytes: 500, index_interval_bytes: 500, ..small }]
}

/// A used log dir, on a machine that is off, and every file with its bytes.
struct Image {
    config: LogConfig,
    sim: SimEnv,
    files: Vec<(PathBuf, Vec<u8>)>,
    /// The result of [`first_found`].
    found: Vec<Result<Option<Found>, String>>,
}

/// Idempotent records, one in each batch, in several segments, all of them synced; then the first ones are deleted, and
/// the process dies.
fn lived_in(config: LogConfig) -> Image {
    let mut machine = Machine::new(1, config.clone());
    for offset in 0..RECORDS {
        machine.sim.clock.set_wall(time_of(offset));
        append(&machine, offset);
    }
    machine.restart();
    machine.log().delete_records(Offset(LOG_START)).unwrap();
    machine.sim.fs.crash();
    machine.store = None;
    let mut files = Vec::new();
    collect(&machine, Path::new(DIR), &mut files);
    let mut image = Image { config, sim: machine.sim, files, found: Vec::new() };
    image.found = first_found(&image, None);
    assert!(image.found.iter().all(|found| matches!(found, Ok(Some(_)))));
    image
}

fn append(machine: &Machine, offset: i64) {
    let producer = stamp(7, i32::try_from(offset).unwrap());
    let options = BatchOptions { producer, ..BatchOptions::default() };
    let batch = batch_at(&[(time_of(offset).0, &format!("record {offset}"))], options);
    let appended = put(&machine.log(), &batch, machine.append_options()).unwrap();
    assert_eq!(appended.base_offset, Offset(offset));
}

fn collect(machine: &Machine, dir: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in machine.sim.fs.read_dir(dir).unwrap() {
        let path = dir.join(&entry.name);
        if entry.is_dir {
            collect(machine, &path, files);
        } else {
            let bytes = machine.content(&path);
            files.push((path, bytes));
        }
    }
}

/// The machine as it was, but for the bytes of one file.
fn machine_with(image: &Image, damaged: Option<(&Path, &[u8])>) -> Machine {
    let sim = image.sim.crash_states(1).next().expect("a disk on which all is synced has one state");
    let options = StoreOptions::default();
    let recovered = RecoveryReport::default();
    let config = Arc::new(image.config.clone());
    let machine = Machine { sim, config, epoch: 2, options, store: None, recovered };
    if let Some((path, bytes)) = damaged {
        machine.put_content(path, bytes);
    }
    machine
}

/// The answers of a log.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    log_start: i64,
    records: Vec<(i64, String)>,
    by_time: Vec<Option<i64>>,
    largest: Option<(i64, i64)>,
    duplicate: i64,
}

fn intact() -> Seen {
    Seen {
        log_start: LOG_START,
        records: numbers(LOG_START, RECORDS),
        by_time: (LOG_START..RECORDS).map(Some).collect(),
        largest: Some((time_of(RECORDS - 1).0, RECORDS - 1)),
        duplicate: RECORDS - 1,
    }
}

/// Starts, and asks for everything. Served batches must be those of the image.
fn see(image: &Image, machine: &mut Machine) -> Result<Seen, String> {
    let text = |error: LogError| error.to_string();
    machine.start().map_err(text)?;
    let log = machine.log();
    let log_start = log.log_start_offset().map_err(text)?.0;
    let found = |found: Option<(TimestampMs, Offset, _)>| found.map(|(time, offset, _)| (time.0, offset.0));
    let by_time =
        |offset| Ok(found(log.offset_for_timestamp(time_of(offset)).map_err(text)?).map(|(_, at)| at));
    let records = read(image, &log, 1)?;
    assert_eq!(records, read(image, &log, 1 << 20)?, "it does not matter how much is read at once");
    Ok(Seen {
        log_start,
        records,
        by_time: (LOG_START..RECORDS).map(by_time).collect::<Result<_, String>>()?,
        largest: found(log.max_timestamp().map_err(text)?),
        duplicate: duplicate(machine)?,
    })
}

/// The epoch of a record that was found by time, its offset and its timestamp.
type Found = (i32, i64, i64);

/// Starts, and asks by time before anything is read: each time first in a start of its own.
fn first_found(image: &Image, damaged: Option<(&Path, &[u8])>) -> Vec<Result<Option<Found>, String>> {
    let ask = |time: Option<i64>| {
        let mut machine = machine_with(image, damaged);
        machine.start()?;
        let log = machine.log();
        let found = match time {
            Some(offset) => log.offset_for_timestamp(time_of(offset)),
            None => log.max_timestamp(),
        };
        Ok(found?.map(|(time, offset, epoch)| (epoch.0, offset.0, time.0)))
    };
    let times = [LOG_START, RECORDS / 2, RECORDS - 1].map(Some).into_iter().chain([None]);
    times.map(|time| ask(time).map_err(|error: LogError| error.to_string())).collect()
}

/// Reads as a client does that checks nothing.
fn read(image: &Image, log: &PartitionLog, bytes_max: usize) -> Result<Vec<(i64, String)>, String> {
    let text = |error: LogError| error.to_string();
    let (mut from, end) = (log.log_start_offset().map_err(text)?, log.log_end_offset().map_err(text)?);
    let mut records = Vec::new();
    while from < end {
        let slice = log.read(from, bytes_max, end, true).map_err(|error: ReadError| error.to_string())?;
        for chunk in &slice.chunks {
            let bytes = chunk.to_bytes().map_err(|error| error.to_string())?;
            assert!(image.has_written(&bytes), "the bytes served at offset {from} were never written");
            for batch in Batches::new(&bytes) {
                let batch = batch.and_then(UnverifiedBatch::verify).expect("written batches are right");
                for record in &batch.records().expect("whole records") {
                    let record = record.expect("a whole record");
                    if record.offset >= from {
                        let value = String::from_utf8_lossy(record.value.unwrap()).into_owned();
                        records.push((record.offset.0, value));
                    }
                }
            }
        }
        assert!(slice.next_offset > from, "reading gets on");
        from = slice.next_offset;
    }
    Ok(records)
}

/// The place of the last record, as its producer gets it for a repetition.
fn duplicate(machine: &Machine) -> Result<i64, String> {
    let producer = stamp(7, i32::try_from(RECORDS - 1).unwrap());
    let options = BatchOptions { producer, ..BatchOptions::default() };
    let batch = batch_at(&[(time_of(RECORDS - 1).0, "again")], options);
    let appended =
        put(&machine.log(), &batch, machine.append_options()).map_err(|error| error.to_string())?;
    Ok(appended.base_offset.0)
}

/// Tries one damage.
fn check(image: &Image, path: &Path, bytes: &[u8], damage: &str) {
    let mut machine = machine_with(image, Some((path, bytes)));
    let env = machine.sim.env();
    let findings = LogDirFiles::read(&env, Path::new(DIR)).unwrap().findings().to_vec();
    let report = verify_partition(&env, &image.partition_dir(), ID).unwrap();
    let of_it: Vec<_> =
        findings.iter().chain(&report.findings).filter(|finding| finding.path == path).collect();
    let is_found = !of_it.is_empty();
    // All of it was synced.
    let is_torn = is_found && of_it.iter().all(|finding| finding.weight == Weight::TornTail);
    assert!(!has_extension(path, "log") || !is_torn, "{}, {damage}: {of_it:?}", path.display());
    // Missing entries at the end of the last index may never have been written: nothing depends on them.
    let is_last_index = image.files.iter().rfind(|(path, _)| has_extension(path, "index")).unwrap().0 == path;
    let lacks_entries = is_last_index && bytes.len() >= 44 && (bytes.len() - 44).is_multiple_of(24);
    assert!(is_found || lacks_entries, "{}, {damage}: verification sees nothing", path.display());
    let found = first_found(image, Some((path, bytes)));
    for (found, intact) in found.iter().zip(&image.found) {
        assert!(found.is_err() || found == intact, "{}, {damage}: {found:?} by time", path.display());
    }
    let seen = match see(image, &mut machine) {
        Ok(seen) => seen,
        Err(error) => {
            // Nothing depends on an index, unless a newer program has written it.
            let is_index = has_extension(path, "index") && !error.contains("format version");
            assert!(!is_index, "{}, {damage}: {error}", path.display());
            return;
        }
    };
    let forgets_deletions = path.ends_with("checkpoint") || path.ends_with("log-starts");
    if forgets_deletions && seen.log_start < LOG_START {
        assert_eq!(seen.records, numbers(seen.log_start, RECORDS), "{}, {damage}", path.display());
        assert_eq!(seen.duplicate, RECORDS - 1, "{}, {damage}", path.display());
    } else {
        assert_eq!(seen, intact(), "{}, {damage}", path.display());
    }
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

impl Image {
    fn partition_dir(&self) -> PathBuf {
        let segment = self.files.iter().find(|(path, _)| has_extension(path, "log")).unwrap();
        segment.0.parent().unwrap().to_path_buf()
    }

    /// Whether a segment has these bytes.
    fn has_written(&self, bytes: &[u8]) -> bool {
        let mut segments = self.files.iter().filter(|(path, _)| has_extension(path, "log"));
        segments.any(|(_, content)| content.windows(bytes.len()).any(|window| window == bytes))
    }
}

fn check_all(is_wanted: impl Fn(&Path) -> bool) -> usize {
    configs().into_iter().map(|config| check_each(&lived_in(config), &is_wanted)).sum()
}

fn check_each(image: &Image, is_wanted: impl Fn(&Path) -> bool) -> usize {
    let mut count = 0;
    for (path, bytes) in image.files.iter().filter(|(path, _)| is_wanted(path)) {
        let front = if path.ends_with("log-starts") { FRONT_BYTES } else { bytes.len() };
        for position in 0..front {
            let mut flipped = bytes.clone();
            flipped[position] ^= 1 << (position % 8);
            check(image, path, &flipped, &format!("byte {position}"));
            check(image, path, &bytes[..position], &format!("cut at {position}"));
            count += 2;
        }
    }
    count
}

#[test]
fn without_damage_everything_is_seen() {
    for config in configs() {
        let image = lived_in(config);
        let mut machine = machine_with(&image, None);
        assert_eq!(see(&image, &mut machine), Ok(intact()));
        let logs = image.files.iter().filter(|(path, _)| has_extension(path, "log"));
        assert!(logs.count() >= 2);
    }
}

#[test]
fn damage_in_any_byte_of_a_segment_is_never_served() {
    assert!(check_all(|path| has_extension(path, "log")) > 1000);
}

#[test]
fn damage_in_any_byte_of_an_index_changes_no_served_record() {
    assert!(check_all(|path| has_extension(path, "index")) > 300);
}

#[test]
fn damage_in_any_byte_of_a_dirs_own_files_is_found_or_harmless() {
    assert!(check_all(|path| path.ends_with("checkpoint") || path.ends_with("log-starts")) > 400);
}
