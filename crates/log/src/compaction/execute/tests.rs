use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::rc::Rc;

use riverrun_env::sim::SimEnv;
use riverrun_env::{OpenMode, read_whole};
use riverrun_records::{BatchBuilder, BatchOptions, Compression};
use riverrun_types::TopicId;

use super::*;
use crate::compaction::plan::{CompactionInput, assess};
use crate::config::CleanupPolicy;
use crate::index::{ENTRY_BYTES, HEADER_BYTES, IndexHeader};

const DIR: &str = "/logs/t/0";
const PARTITION: PartitionId = PartitionId { topic: TopicId([9; 16]), index: 0 };
const NOW: TimestampMs = TimestampMs(50_000);

type KeyValue<'a> = (&'a str, Option<&'a str>);

fn path(base: i64) -> PathBuf {
    Path::new(DIR).join(format!("{base:020}.log"))
}

/// A log on the simulated disk: each inner list is one batch, each outer one a segment; the active segment after
/// the last one is left out.
struct TestLog {
    sim: SimEnv,
    segments: Vec<SourceSegment>,
    installed: Vec<Replacement>,
    first_dirty: Option<Offset>,
    config: LogConfig,
    options: CleanerOptions,
    now: TimestampMs,
    /// None without a limit.
    room: Option<Room>,
}

/// The disk's free space beside a reserve.
///
/// Invariants: at least `floor` bytes are free as long as nothing asks for more.
#[derive(Clone)]
struct Room {
    sim: SimEnv,
    reserve: u64,
    floor: Rc<Cell<u64>>,
}

impl Room {
    fn available(&self) -> u64 {
        self.sim.fs.available_bytes(Path::new(DIR)).unwrap()
    }

    fn check(&self, bytes: u64) -> Result<(), LogError> {
        self.check_asked();
        let available_bytes = self.available();
        if available_bytes < self.reserve + bytes {
            let (path, reserve_bytes) = (DIR.into(), self.reserve);
            return Err(LogError::DirFull { path, available_bytes, reserve_bytes });
        }
        self.floor.set(available_bytes - bytes);
        Ok(())
    }

    /// Every written byte was asked for.
    fn check_asked(&self) {
        assert!(self.available() >= self.floor.get(), "{} of {}", self.available(), self.floor.get());
    }
}

impl TestLog {
    fn new(segments: &[&[&[KeyValue<'_>]]]) -> Self {
        let sim = SimEnv::new(3);
        sim.fs.create_dir_all(Path::new(DIR)).unwrap();
        let config = LogConfig {
            cleanup: CleanupPolicy { delete: false, compact: true },
            index_interval_bytes: 100,
            delete_retention_ms: 1000,
            ..LogConfig::default()
        };
        let mut log = Self {
            sim,
            segments: vec![],
            installed: vec![],
            first_dirty: None,
            config,
            options: CleanerOptions::default(),
            now: NOW,
            room: None,
        };
        for batches in segments {
            log.add_segment(batches);
        }
        log
    }

    fn end(&self) -> Offset {
        self.segments.last().map_or(Offset(0), |segment| segment.facts.end_offset)
    }

    fn add_segment(&mut self, batches: &[&[KeyValue<'_>]]) {
        let base = self.end();
        let mut bytes = vec![];
        let mut next = base;
        for records in batches {
            let options = BatchOptions {
                base_offset: next,
                leader_epoch: riverrun_types::LeaderEpoch(1),
                compression: Compression::Lz4,
                ..BatchOptions::default()
            };
            let mut builder = BatchBuilder::new(options);
            for (key, value) in *records {
                let value = value.map(str::as_bytes);
                builder.append(TimestampMs(1000), Some(key.as_bytes()), value, &[]).unwrap();
            }
            next = next.plus(i64::try_from(records.len()).unwrap());
            bytes.extend(builder.build().unwrap());
        }
        let fs = &self.sim.fs;
        fs.open(&path(base.0), OpenMode::CreateNew).unwrap().write_all_at(&bytes, 0).unwrap();
        fs.open(&path(base.0).with_extension("index"), OpenMode::CreateNew).unwrap();
        self.segments.push(source(&self.sim, base, next, bytes.len() as u64));
    }

    fn cleanable(&self) -> Cleanable {
        let facts: Vec<_> = self.segments.iter().map(|segment| segment.facts).collect();
        let input = CompactionInput {
            segments: &facts,
            first_dirty: self.first_dirty,
            log_start: Offset(0),
            high_watermark: self.end(),
            now: self.now,
        };
        assess(input, &self.config)
    }

    fn clean_with(&mut self, control: &dyn CleanerControl) -> Result<CleanOutcome, LogError> {
        let mut target = Target { room: self.room.clone(), ..Target::new(&self.sim) };
        let outcome = self.clean_into(&mut target, control)?;
        self.first_dirty = outcome.first_dirty.or(self.first_dirty);
        for replacement in target.installed {
            self.replace(&replacement);
            self.installed.push(replacement);
        }
        Ok(outcome)
    }

    fn clean_into(
        &self,
        target: &mut Target,
        control: &dyn CleanerControl,
    ) -> Result<CleanOutcome, LogError> {
        let job = CleanJob {
            fs: &*self.sim.fs,
            dir: DIR.into(),
            partition: PARTITION,
            segments: &self.segments,
            cleanable: self.cleanable(),
            last_offsets: &BTreeMap::new(),
            config: &self.config,
            group_bytes_max: self.config.segment_bytes,
            room: &|bytes| self.room.as_ref().map_or(Ok(()), |room| room.check(bytes)),
            asks_ahead: true,
            options: self.options,
            now: self.now,
            seed: [8, 9],
        };
        clean(&job, target, control)
    }

    /// Finds the segments again after a restart: lengths come from the files, end offsets from the next segments.
    fn reopen(&mut self) {
        swap::recover(&*self.sim.fs, Path::new(DIR)).unwrap();
        let end = self.end();
        let entries = self.sim.fs.read_dir(Path::new(DIR)).unwrap();
        let logs = entries.iter().filter_map(|entry| {
            let base = entry.name.to_str()?.strip_suffix(".log")?.parse().ok()?;
            Some((Offset(base), entry.len))
        });
        let mut logs: Vec<_> = logs.collect();
        logs.sort_unstable();
        let ends = logs.iter().skip(1).map(|(base, _)| *base).chain([end]);
        let found = logs.iter().zip(ends).map(|((base, len), end)| source(&self.sim, *base, end, *len));
        self.segments = found.collect();
    }

    fn clean(&mut self) -> CleanOutcome {
        self.clean_with(&Unhindered).unwrap()
    }

    fn replace(&mut self, replacement: &Replacement) {
        let offsets = &replacement.offsets;
        let position = self.segments.iter().position(|segment| offsets.contains(&segment.facts.base_offset));
        self.segments.retain(|segment| !offsets.contains(&segment.facts.base_offset));
        let new = source(&self.sim, offsets.start, offsets.end, replacement.size_bytes);
        self.segments.insert(position.unwrap(), new);
    }

    /// Offset, key and value of every record.
    fn records(&self) -> Vec<(i64, String, Option<String>)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let mut found = vec![];
        for segment in &self.segments {
            let file = self.sim.fs.open(&segment.path, OpenMode::Read).unwrap();
            let mut reader = SegmentReader::new(segment, &*file);
            while let Some(bytes) = reader.next_batch(&Unhindered, &mut CleanStats::default()).unwrap() {
                let batch = reader.verify(&bytes).unwrap();
                for record in &batch.records().unwrap() {
                    let record = record.unwrap();
                    found.push((record.offset.0, text(record.key.unwrap()), record.value.map(text)));
                }
            }
        }
        found
    }

    fn bases(&self) -> Vec<i64> {
        self.segments.iter().map(|segment| segment.facts.base_offset.0).collect()
    }
}

fn source(sim: &SimEnv, base: Offset, end: Offset, size_bytes: u64) -> SourceSegment {
    let facts = SegmentFacts {
        base_offset: base,
        end_offset: end,
        size_bytes,
        first_timestamp: TimestampMs(1000),
        max_timestamp: TimestampMs(1000),
        is_active: false,
    };
    let file = sim.fs.open(&path(base.0), OpenMode::Read).unwrap();
    assert_eq!(file.len().unwrap(), size_bytes);
    SourceSegment { facts, path: path(base.0) }
}

struct Target {
    sim: SimEnv,
    installed: Vec<Replacement>,
    room: Option<Room>,
}

impl Target {
    fn new(sim: &SimEnv) -> Self {
        Self { sim: sim.clone(), installed: vec![], room: None }
    }
}

impl CompactionTarget for Target {
    fn install(&mut self, replacement: &Replacement) -> Result<(), LogError> {
        if let Some(room) = &self.room {
            room.check_asked();
        }
        let (fs, dir) = (&*self.sim.fs, Path::new(DIR));
        let installed =
            swap::Swap::commit(fs, dir, replacement.offsets.clone()).and_then(|swap| swap.finish(fs));
        installed.map_err(|error| LogError::io(Path::new(DIR), error))?;
        self.installed.push(replacement.clone());
        Ok(())
    }
}

fn row(offset: i64, key: &str, value: &str) -> (i64, String, Option<String>) {
    (offset, key.into(), Some(value.into()))
}

#[test]
fn the_last_record_of_each_key_stays_where_it_was() {
    let mut log = TestLog::new(&[
        &[&[("a", Some("1")), ("b", Some("1"))], &[("a", Some("2"))]],
        &[&[("c", Some("1"))], &[("b", Some("2")), ("d", Some("1"))]],
    ]);
    let outcome = log.clean();
    assert_eq!(log.records(), [row(2, "a", "2"), row(3, "c", "1"), row(4, "b", "2"), row(5, "d", "1")]);
    assert_eq!((outcome.first_dirty, log.bases()), (Some(Offset(6)), vec![0]));
    let stats = outcome.stats;
    assert_eq!((stats.records_before, stats.records_after), (6, 4));
    assert!(stats.bytes_after < stats.bytes_before);
    assert_eq!(stats.read_bytes, 2 * stats.bytes_before, "once for the map, once to rewrite");
}

#[test]
fn keys_of_the_dirty_part_supersede_the_clean_part() {
    let mut log = TestLog::new(&[&[&[("a", Some("1"))], &[("b", Some("1"))]]]);
    log.clean();
    log.add_segment(&[&[("a", Some("2"))], &[("c", Some("1"))]]);
    log.config.segment_bytes = 1;
    let outcome = log.clean();
    assert_eq!(log.records(), [row(1, "b", "1"), row(2, "a", "2"), row(3, "c", "1")]);
    assert_eq!((outcome.first_dirty, log.bases()), (Some(Offset(4)), vec![0, 2]));
}

#[test]
fn a_segment_in_which_nothing_changes_is_left_alone() {
    let mut log = TestLog::new(&[&[&[("a", Some("1"))]], &[&[("b", Some("1"))]]]);
    log.config.segment_bytes = 1;
    let outcome = log.clean();
    assert_eq!((log.installed.len(), outcome.first_dirty), (0, Some(Offset(2))));
    let names = log.sim.fs.read_dir(Path::new(DIR)).unwrap();
    assert_eq!(names.len(), 4, "no leftovers: {names:?}");
}

#[test]
fn emptied_group_leaves_an_empty_batch_for_one_run() {
    let mut log = TestLog::new(&[&[&[("a", Some("1"))]], &[&[("a", Some("2"))]], &[&[("b", Some("1"))]]]);
    log.config.segment_bytes = 1;
    log.clean();
    assert_eq!((log.bases(), log.segments[0].facts.size_bytes), (vec![0, 1, 2], 61), "a header");
    assert_eq!(log.records(), [row(1, "a", "2"), row(2, "b", "1")]);

    log.add_segment(&[&[("c", Some("1"))]]);
    log.config.segment_bytes = 10_000;
    log.clean();
    assert_eq!(log.bases(), [0]);
    assert_eq!(log.records(), [row(1, "a", "2"), row(2, "b", "1"), row(3, "c", "1")]);
}

#[test]
fn a_tombstone_outlives_its_retention_and_then_goes() {
    let mut log = TestLog::new(&[&[&[("a", Some("1"))], &[("b", Some("1"))], &[("a", None)]]]);
    log.clean();
    let tombstone = (2, "a".to_owned(), None);
    assert_eq!(log.records(), [row(1, "b", "1"), tombstone.clone()]);
    for (later_ms, stays) in [(999, true), (1000, false)] {
        log.now = TimestampMs(NOW.0 + later_ms);
        log.add_segment(&[&[("x", Some("1"))]]);
        log.clean();
        assert_eq!(log.records().contains(&tombstone), stays, "after {later_ms} ms");
    }
}

#[test]
fn full_map_cleans_up_to_its_end_and_the_next_run_goes_on() {
    let keys: Vec<String> = (0..40).map(|key| format!("key {key}")).collect();
    let records: Vec<KeyValue<'_>> = keys.iter().map(|key| (key.as_str(), Some("1"))).collect();
    let again: Vec<KeyValue<'_>> = keys.iter().map(|key| (key.as_str(), Some("2"))).collect();
    let mut log = TestLog::new(&[&[&records], &[&again]]);
    // Room for nine keys, fewer than one batch has.
    log.options.dedupe_buffer_bytes = 10 * super::super::offset_map::SLOT_BYTES;
    let mut points = vec![];
    while log.first_dirty != Some(Offset(80)) {
        points.push(log.clean().first_dirty.unwrap());
        assert!(points.len() < 20, "each run gets on: {points:?}");
    }
    assert_eq!(points[..3], [Offset(9), Offset(18), Offset(27)]);
    let expected: Vec<_> = (40..).zip(&keys).map(|(offset, key)| row(offset, key, "2")).collect();
    assert_eq!(log.records(), expected);
}

#[test]
fn nothing_above_the_uncleanable_point_is_touched() {
    let mut log = TestLog::new(&[&[&[("a", Some("1"))]], &[&[("a", Some("2"))]]]);
    log.segments[1].facts.max_timestamp = TimestampMs(NOW.0 - 10);
    log.config.min_compaction_lag_ms = 100;
    let outcome = log.clean();
    assert_eq!(outcome.first_dirty, Some(Offset(1)));
    assert_eq!(log.records(), [row(0, "a", "1"), row(1, "a", "2")]);
}

#[test]
fn the_index_of_a_cleaned_segment_is_whole() {
    let records: Vec<_> = (0..50).map(|key| format!("key {key}")).collect();
    let batches: Vec<Vec<KeyValue<'_>>> =
        records.iter().map(|key| vec![(key.as_str(), Some("a value of some length"))]).collect();
    let batches: Vec<&[KeyValue<'_>]> = batches.iter().map(Vec::as_slice).collect();
    let mut log = TestLog::new(&[&batches, &[&[("key 0", Some("last"))]]]);
    log.clean();
    let segment = &log.segments[0];
    let bytes = read_whole(&*log.sim.fs, &path(0).with_extension("index"), 100_000).unwrap();
    let header = IndexHeader { partition: PARTITION, base_offset: Offset(0) };
    header.check(bytes.first_chunk::<HEADER_BYTES>().unwrap()).unwrap();
    let entries: Vec<_> = (0..)
        .zip(bytes[HEADER_BYTES..].chunks(ENTRY_BYTES))
        .map(|(number, entry)| header.codec().decode(number, entry).unwrap())
        .collect();
    assert!(entries.len() > 10, "one for each 100 bytes: {}", entries.len());
    let last = entries.last().unwrap();
    assert_eq!((u64::from(last.position), last.relative_offset), (segment.facts.size_bytes, 51));
    assert_eq!(last.max_timestamp, TimestampMs(1000));
}

/// Stops after a number of looks.
struct StopAfter(Cell<u32>);

impl CleanerControl for StopAfter {
    fn on_io(&self, _bytes: u64) {}

    fn is_stopped(&self) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        left == 0
    }
}

/// Three segments of two batches each.
const OVERLAPPING: &[&[&[KeyValue<'static>]]] = &[
    &[&[("a", Some("1"))], &[("b", Some("1"))]],
    &[&[("a", Some("2"))], &[("c", Some("1"))]],
    &[&[("b", Some("2"))], &[("d", Some("1"))]],
];

fn newest_of_overlapping() -> [(i64, String, Option<String>); 4] {
    [row(2, "a", "2"), row(3, "c", "1"), row(4, "b", "2"), row(5, "d", "1")]
}

#[test]
fn stopped_run_leaves_a_right_log_and_its_dirty_point() {
    let newest = newest_of_overlapping();
    let mut stopped = 0;
    for looks in 0..20 {
        let mut log = TestLog::new(OVERLAPPING);
        log.config.segment_bytes = 1;
        let outcome = log.clean_with(&StopAfter(Cell::new(looks))).unwrap();
        stopped += u32::from(outcome.first_dirty.is_none());
        let found = log.records();
        assert!(newest.iter().all(|record| found.contains(record)), "after {looks} looks: {found:?}");
        log.clean();
        assert_eq!(log.records(), newest, "after {looks} looks and another run");
    }
    assert_eq!(stopped, 12, "six batches are looked at twice");
}

#[test]
fn a_power_cut_at_any_operation_loses_no_key() {
    let newest = newest_of_overlapping();
    for segment_bytes in [1, 10_000] {
        let mut cuts = 0;
        for stop in 0.. {
            let mut log = TestLog::new(OVERLAPPING);
            log.config.segment_bytes = segment_bytes;
            log.sim.fs.open_volume(Path::new(DIR)).unwrap().sync().unwrap();
            log.sim.fs.stop_after(stop);
            let is_done = log.clean_into(&mut Target::new(&log.sim), &Unhindered).is_ok();
            log.sim.fs.crash();
            log.reopen();
            let found = log.records();
            let has_all = newest.iter().all(|record| found.contains(record));
            assert!(has_all, "stop at {stop}, {segment_bytes} bytes: {found:?}");
            log.clean();
            assert_eq!(log.records(), newest, "stop at {stop}, and another run");
            if is_done {
                break;
            }
            cuts += 1;
        }
        assert!(cuts > 10, "{cuts}");
    }
}

#[test]
fn damage_ends_the_run_and_names_the_place() {
    let mut log = TestLog::new(&[&[&[("a", Some("1"))], &[("a", Some("2"))]]]);
    let file = log.sim.fs.open(&path(0), OpenMode::ReadWrite).unwrap();
    let last = file.len().unwrap() - 1;
    let mut byte = [0];
    file.read_exact_at(&mut byte, last).unwrap();
    file.write_all_at(&[byte[0] ^ 1], last).unwrap();
    match log.clean_with(&Unhindered) {
        Err(LogError::Corrupt { path: found, position, .. }) => {
            assert_eq!(found, path(0));
            assert!(position > 0);
        }
        other => panic!("{other:?}"),
    }
}

/// Names in the log's directory that belong to no segment.
fn leftovers(log: &TestLog) -> Vec<String> {
    let entries = log.sim.fs.read_dir(Path::new(DIR)).unwrap();
    let names = entries.iter().map(|entry| entry.name.to_str().unwrap().to_owned());
    names.filter(|name| name.contains(".cleaned") || name.contains(".swap")).collect()
}

#[test]
fn shortage_at_any_call_leaves_no_unused_file() {
    let newest = newest_of_overlapping();
    let calls_of = |log: &TestLog| {
        let before = log.sim.fs.calls();
        log.clean_into(&mut Target::new(&log.sim), &Unhindered).unwrap();
        log.sim.fs.calls() - before
    };
    let mut unfinished = 0;
    for call in 0..calls_of(&TestLog::new(OVERLAPPING)) {
        let mut log = TestLog::new(OVERLAPPING);
        log.sim.fs.fail_call_after(call, io::ErrorKind::OutOfMemory);
        log.clean_into(&mut Target::new(&log.sim), &Unhindered).unwrap_err();
        let left = leftovers(&log);
        // A swap past the point of no return stays, to be finished.
        let is_unfinished = left.iter().any(|name| swap::is_committed(name));
        unfinished += u32::from(is_unfinished);
        assert!(is_unfinished || left.is_empty(), "call {call}: {left:?}");
        log.reopen();
        log.clean();
        assert_eq!(log.records(), newest, "call {call}");
    }
    assert!(unfinished > 2, "{unfinished}");
}

/// Letters that hardly compress.
fn noise(letters: usize, seed: u64) -> String {
    let mut state = seed;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'a' + u8::try_from((state >> 33) % 26).unwrap())
    };
    (0..letters).map(|_| letter()).collect()
}

/// Two segments that become one: 20 keys with values of 60000 bytes, and one of the keys again.
fn large_log() -> TestLog {
    let values: Vec<String> = (0..20).map(|seed| noise(60_000, seed)).collect();
    let records: Vec<[KeyValue<'_>; 1]> =
        values.iter().map(|value| [(&value[..8], Some(&**value))]).collect();
    let batches: Vec<&[KeyValue<'_>]> = records.iter().map(<[_; 1]>::as_slice).collect();
    let mut log = TestLog::new(&[&batches, &[&[(&values[0][..8], Some("newest"))]]]);
    log.config.index_interval_bytes = 4096;
    log
}

#[test]
fn the_disk_takes_a_cleaned_segment_before_its_sync() {
    let mut log = large_log();
    let outcome = log.clean();
    let (begun, cleaned) = (log.sim.fs.write_back_bytes(), outcome.stats.bytes_after);
    assert!(begun == cleaned && cleaned > 1_000_000, "{begun} of {cleaned}");
}

#[test]
fn run_keeps_the_reserve_in_any_room_and_leaves_no_files() {
    const RESERVE: u64 = 10_000;
    let mut outcomes = [0, 0];
    for room_kb in (0..1500).step_by(50) {
        let mut log = large_log();
        let before = RESERVE + room_kb * 1000;
        log.sim.fs.set_space(Some(before));
        let room = Room { sim: log.sim.clone(), reserve: RESERVE, floor: Rc::default() };
        log.room = Some(room.clone());
        let operations = log.sim.fs.operations();
        let cleaned = log.clean_with(&Unhindered);
        assert_eq!(leftovers(&log), [""; 0], "{room_kb} KB");
        match cleaned {
            Ok(_) => outcomes[1] += 1,
            Err(LogError::DirFull { .. }) => {
                assert_eq!(room.available(), before, "{room_kb} KB");
                assert_eq!(log.sim.fs.operations(), operations, "{room_kb} KB: it is known before it begins");
                outcomes[0] += 1;
            }
            other => panic!("{room_kb} KB: {other:?}"),
        }
        log.sim.fs.set_space(None);
        log.clean();
        assert_eq!((log.records().len(), log.bases()), (20, vec![0]), "{room_kb} KB");
    }
    assert!(outcomes[0] > 20 && outcomes[1] > 3, "{outcomes:?}");
}

/// Takes as much space as the run reads and writes, while it goes on.
struct Others(Room);

impl CleanerControl for Others {
    fn on_io(&self, bytes: u64) {
        let Self(room) = self;
        room.sim.fs.set_space(Some(room.available().saturating_sub(bytes)));
        room.floor.set(room.floor.get().saturating_sub(bytes));
    }

    fn is_stopped(&self) -> bool {
        false
    }
}

#[test]
fn run_ends_before_the_reserve_when_others_take_its_room() {
    let mut log = large_log();
    log.sim.fs.set_space(Some(3_600_000));
    let room = Room { sim: log.sim.clone(), reserve: 1_000_000, floor: Rc::default() };
    log.room = Some(room.clone());
    let error = log.clean_with(&Others(room)).unwrap_err();
    // There was room for the group when it began.
    assert!(
        matches!(error, LogError::DirFull { available_bytes, .. } if available_bytes < 1_500_000),
        "{error}"
    );
    assert_eq!(leftovers(&log), [""; 0]);
    log.sim.fs.set_space(None);
    log.clean();
    assert_eq!(log.records().len(), 20);
}
