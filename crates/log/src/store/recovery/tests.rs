use std::path::{Path, PathBuf};

use bytes::BytesMut;
use riverrun_env::sim::SimEnv;
use riverrun_env::{FileSystem as _, OpenMode};
use riverrun_journal::{JournalError, JournalOptions};
use riverrun_records::{BatchBuilder, BatchOptions};
use riverrun_types::{DurabilityLevel, TimestampMs, TopicId};

use super::*;
use crate::partition_log::AppendOptions;
use crate::producer_state::AppendOrigin;
use crate::store::StoreOptions;

const ID: PartitionId = PartitionId { topic: TopicId([1; 16]), index: 0 };
const COUNT: i64 = 24;

const SEGMENT_BYTES: u32 = 300_000;

fn open(sim: &SimEnv) -> LogStore {
    open_with(sim, StoreOptions::default().write_cache_bytes)
}

fn open_with(sim: &SimEnv, write_cache_bytes: u64) -> LogStore {
    open_in(sim, &["/journal"], write_cache_bytes)
}

fn open_in(sim: &SimEnv, journal_dirs: &[&str], write_cache_bytes: u64) -> LogStore {
    let options = StoreOptions {
        journal_dirs: journal_dirs.iter().map(PathBuf::from).collect(),
        journal: JournalOptions::with_bytes(4 << 20),
        write_cache_bytes,
        ..StoreOptions::default()
    };
    LogStore::open(&sim.env(), &[PathBuf::from("/logs")], options).unwrap()
}

fn config() -> Arc<LogConfig> {
    config_with(SEGMENT_BYTES)
}

fn config_with(segment_bytes: u32) -> Arc<LogConfig> {
    let durability = DurabilityLevel::SyncSync;
    Arc::new(LogConfig { segment_bytes, durability, ..LogConfig::default() })
}

fn recover(store: &LogStore) -> Result<RecoveryReport, LogError> {
    store.recover(|_| LeaderEpoch(1), |_| Place::In(0, config()))
}

fn partition(store: &LogStore) -> Arc<PartitionLog> {
    store.partition(ID, 0, config(), LeaderEpoch(1)).unwrap()
}

/// Several files of the journal, all of whose entries were settled into segments of this size since the last
/// checkpoint.
fn settled_and_killed(sim: &SimEnv, segment_bytes: u32) {
    let store = open(sim);
    recover(&store).unwrap();
    append(&store, COUNT, segment_bytes);
    store.dirs[0].settle(Haste::AtOnce).unwrap();
    sim.fs.kill();
}

/// Appends so many records, which the journal has then.
fn append(store: &LogStore, count: i64, segment_bytes: u32) {
    append_to(store, ID, count, segment_bytes);
}

fn append_to(store: &LogStore, id: PartitionId, count: i64, segment_bytes: u32) {
    let log = store.partition(id, 0, config_with(segment_bytes), LeaderEpoch(1)).unwrap();
    let begin = log.log_end_offset().unwrap();
    let end = begin.plus(count);
    let cuts = log.dir().cuts_or(id, 0);
    for offset in begin.0..end.0 {
        let mut batch = BatchBuilder::new(BatchOptions::default());
        let mut value = name_of(offset, cuts).into_bytes();
        value.resize(100_000, 1);
        batch.append(TimestampMs(0), None, Some(&value), &[]).unwrap();
        let options = AppendOptions { origin: AppendOrigin::Client, now: TimestampMs(0) };
        log.append(BytesMut::from(&batch.build().unwrap()[..]), options).unwrap();
    }
    while log.watermarks().synced < end {
        std::thread::yield_now();
    }
}

/// The begin of a record's value.
fn name_of(offset: i64, cuts: u32) -> String {
    format!("record {offset} after {cuts} cuts")
}

fn names(sim: &SimEnv, dir: &Path, suffix: &str) -> Vec<String> {
    let entries = sim.fs.read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.iter().map(|entry| entry.name.to_str().unwrap().to_owned()).collect();
    names.retain(|name| name.ends_with(suffix));
    names.sort_unstable();
    names
}

#[test]
fn start_refused_for_a_later_journal_file_removes_no_segment() {
    for is_given_up in [false, true] {
        let sim = SimEnv::new(1);
        settled_and_killed(&sim, SEGMENT_BYTES);
        let files = names(&sim, Path::new("/journal"), ".journal");
        assert!(files.len() > 2, "{files:?}");
        let path = |name: &String| Path::new("/journal").join(name);
        let file = sim.fs.open(&path(&files[1]), OpenMode::ReadWrite).unwrap();
        let mut frame = [0; 4096];
        file.read_exact_at(&mut frame, 4096).unwrap();
        file.write_all_at(&[7; 4096], 4096).unwrap();
        let store = open(&sim);
        let dir = store.dirs[0].dir.partition_path(ID);
        let segments = names(&sim, &dir, ".log");
        assert!(segments.len() > 5, "{segments:?}");
        let error = recover(&store).unwrap_err();
        let is_corrupt = matches!(error, LogError::Journal(JournalError::Corrupt { .. }));
        assert!(is_corrupt, "{error}");
        assert_eq!(names(&sim, &dir, ".log"), segments);
        drop(store);
        if is_given_up {
            for name in names(&sim, Path::new("/journal"), ".journal") {
                sim.fs.remove_file(&path(&name)).unwrap();
            }
        } else {
            file.write_all_at(&frame, 4096).unwrap();
        }
        let store = open(&sim);
        recover(&store).unwrap();
        assert_eq!(partition(&store).log_end_offset().unwrap(), Offset(COUNT), "{is_given_up}");
    }
}

/// The bytes of the partition's segments.
fn segments(sim: &SimEnv, dir: &Path) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| {
        let bytes = riverrun_env::read_whole(&*sim.fs, &dir.join(&name), 1 << 30).unwrap();
        (name, bytes)
    };
    names(sim, dir, ".log").into_iter().map(read).collect()
}

fn flip(sim: &SimEnv, path: &Path, position: u64) {
    let file = sim.fs.open(path, OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, position).unwrap();
    file.write_all_at(&[byte[0] ^ 1], position).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn record_damaged_in_a_later_journal_file_stays_in_the_segments() {
    // In many segments, which a replay removes, and in one, which it would cut when it turns to another.
    for (segment_bytes, write_cache_bytes) in [(SEGMENT_BYTES, 1 << 30), (SEGMENT_BYTES, 1), (1 << 30, 1)] {
        let sim = SimEnv::new(1);
        settled_and_killed(&sim, segment_bytes);
        let files = names(&sim, Path::new("/journal"), ".journal");
        flip(&sim, &Path::new("/journal").join(&files[1]), 50_000);
        let mut before = None;
        // The second start finds that an entry aside is missing.
        for _ in 0..2 {
            let store = open_with(&sim, write_cache_bytes);
            let dir = store.dirs[0].dir.partition_path(ID);
            let before = before.get_or_insert_with(|| segments(&sim, &dir));
            let report = recover(&store).unwrap();
            assert!(matches!(&report.offline[..], [(ID, LogError::Corrupt { .. })]), "{report:?}");
            assert!(segments(&sim, &dir) == *before, "{:?}", names(&sim, &dir, ".log"));
            store.close().unwrap();
        }
        for name in names(&sim, Path::new("/journal"), "") {
            if name.starts_with("held-") {
                sim.fs.remove_file(&Path::new("/journal").join(name)).unwrap();
            }
        }
        let store = open(&sim);
        recover(&store).unwrap();
        assert_eq!(partition(&store).log_end_offset().unwrap(), Offset(COUNT));
    }
}

/// As after a change of the journals' number and a kill: one has the entries that a checkpoint covers, and the other
/// the later ones.
#[test]
fn record_damaged_in_a_journal_stays_beside_damage_in_the_next() {
    let sim = SimEnv::new(1);
    let covered = 4;
    let store = open_in(&sim, &["/covered"], 1 << 30);
    recover(&store).unwrap();
    // A frame each, so that only the last one may be torn.
    for _ in 0..covered {
        append(&store, 1, SEGMENT_BYTES);
    }
    store.checkpoint().unwrap();
    sim.fs.kill();
    drop(store);
    settled_and_killed(&sim, SEGMENT_BYTES);
    for (journal, number, position) in [("/covered", 0, 150_000), ("/journal", 1, 50_000)] {
        let file = &names(&sim, Path::new(journal), ".journal")[number];
        flip(&sim, &Path::new(journal).join(file), position);
    }
    let store = open_in(&sim, &["/journal", "/covered"], 1 << 30);
    let damaged = |replay: &mut Replay| replay.check().unwrap().last().unwrap().header.base_offset.0;
    let places: Vec<i64> = store.replays.lock().iter_mut().map(damaged).collect();
    assert!(places[0] > covered && places[1] < covered, "{places:?}");
    let dir = store.dirs[0].dir.partition_path(ID);
    let before = segments(&sim, &dir);
    let report = recover(&store).unwrap();
    assert!(matches!(&report.offline[..], [(ID, LogError::Corrupt { .. })]), "{report:?}");
    assert!(segments(&sim, &dir) == before, "{:?}", names(&sim, &dir, ".log"));
}

/// The end of the log's cut in the tests below.
const CUT_AT: i64 = 4;

/// Several files of the journal, all of whose entries were settled since the last checkpoint: a log that ended at
/// `before`, was cut, and was filled again up to `after`.
fn cut_and_killed(sim: &SimEnv, before: i64, after: i64) {
    let store = open(sim);
    recover(&store).unwrap();
    // A frame each, so that the journal has room for all of them, however busy the machine is.
    let append_each = |count| (0..count).for_each(|_| append(&store, 1, SEGMENT_BYTES));
    append_each(before);
    assert_eq!(partition(&store).truncate_to(Offset(CUT_AT)).unwrap(), Offset(CUT_AT));
    append_each(after - CUT_AT);
    store.dirs[0].settle(Haste::AtOnce).unwrap();
    sim.fs.kill();
}

/// The place of the begin of a record's value in a file.
fn place_of(sim: &SimEnv, path: &Path, name: &str) -> Option<u64> {
    let bytes = riverrun_env::read_whole(&*sim.fs, path, 1 << 30).unwrap();
    bytes.windows(name.len()).position(|window| window == name.as_bytes()).map(|at| at as u64)
}

/// Damages the journal's entry of a record. It lies neither in the first file, of which a start takes some before it
/// sees the damage, nor in the last one.
fn damage_entry(sim: &SimEnv, offset: i64, cuts: u32) {
    let name = name_of(offset, cuts);
    let files = names(sim, Path::new("/journal"), ".journal");
    let find = |file: &String| {
        let path = Path::new("/journal").join(file);
        place_of(sim, &path, &name).map(|at| (path, at))
    };
    let (path, at) =
        files[1..files.len() - 1].iter().find_map(find).unwrap_or_else(|| panic!("{name}: {files:?}"));
    flip(sim, &path, at);
}

#[test]
fn cut_record_is_no_loss_if_the_journal_has_it_damaged() {
    // Filled again with fewer records than before, and with more.
    for (before, after) in [(18, 12), (12, 20)] {
        let sim = SimEnv::new(1);
        cut_and_killed(&sim, before, after);
        damage_entry(&sim, 11, 0);
        let store = open(&sim);
        let report = recover(&store).unwrap();
        assert!(report.offline.is_empty(), "{report:?}");
        assert_eq!(partition(&store).log_end_offset().unwrap(), Offset(after));
        store.checkpoint().unwrap();
        let dir = store.dirs[0].dir.partition_path(ID);
        let (segments, name) = (segments(&sim, &dir), name_of(11, 1));
        let has_it = |bytes: &[u8]| bytes.windows(name.len()).any(|window| window == name.as_bytes());
        assert!(segments.iter().any(|(_, bytes)| has_it(bytes)), "the records from after the cut");
    }
}

#[test]
fn record_after_a_cut_damaged_in_the_journal_stays_in_segments() {
    for is_other_damaged in [false, true] {
        let sim = SimEnv::new(1);
        cut_and_killed(&sim, 12, 20);
        let lost = 6;
        damage_entry(&sim, lost, 1);
        if is_other_damaged {
            // It lies beyond the lost entry, and was cut.
            damage_entry(&sim, 11, 0);
        }
        let store = open(&sim);
        let dir = store.dirs[0].dir.partition_path(ID);
        let before = segments(&sim, &dir);
        let report = recover(&store).unwrap();
        let [(ID, error @ LogError::Corrupt { .. })] = &report.offline[..] else { panic!("{report:?}") };
        assert!(error.to_string().contains(&format!("offset {lost} on")), "{error}");
        assert!(segments(&sim, &dir) == before, "{:?}", names(&sim, &dir, ".log"));
    }
}

/// The journals after one was added, in each order: with one of them the partition has another journal than before.
const EXTENDED: [[&str; 2]; 2] = [["/first", "/second"], ["/second", "/first"]];

/// A machine that was killed with records in a journal that was the only one.
fn killed_with_one_journal() -> SimEnv {
    killed_with_records(CUT_AT)
}

fn killed_with_records(count: i64) -> SimEnv {
    killed_with_seed(count, 1)
}

fn killed_with_seed(count: i64, seed: u64) -> SimEnv {
    let sim = SimEnv::new(seed);
    let store = open_in(&sim, &["/first"], 1 << 30);
    recover(&store).unwrap();
    append(&store, count, SEGMENT_BYTES);
    sim.fs.kill();
    sim
}

/// A partition whose journal is the one at this path.
fn partition_with_journal(store: &LogStore, journal: &str) -> PartitionId {
    let is_of = |id: &PartitionId| store.shared.journal_of(*id).unwrap().dir() == Path::new(journal);
    (1..100).map(|index| PartitionId { index, ..ID }).find(is_of).unwrap()
}

fn has_aside(store: &LogStore, journal: &str) -> bool {
    store.journals().any(|it| it.dir() == Path::new(journal) && !it.held().is_empty())
}

#[test]
fn entries_in_another_journal_are_covered_before_the_first_use() {
    let is_covered = |journals: [&str; 2]| {
        let sim = killed_with_one_journal();
        let store = open_in(&sim, &journals, 1 << 30);
        recover(&store).unwrap();
        assert!(!store.has_aside());
        partition(&store).known_end() == Offset(CUT_AT)
    };
    assert_eq!(EXTENDED.map(is_covered).iter().filter(|is_covered| **is_covered).count(), 1);
}

#[test]
fn entries_in_another_journal_are_held_if_nothing_covers_them() {
    let is_held = |journals: [&str; 2]| {
        let sim = killed_with_one_journal();
        sim.fs.fill_device(Some(Path::new("/logs")));
        let store = open_in(&sim, &journals, 1 << 30);
        recover(&store).unwrap();
        let is_held = has_aside(&store, "/first");
        assert_eq!(partition(&store).log_end_offset().unwrap(), Offset(CUT_AT));
        sim.fs.fill_device(None);
        store.checkpoint().unwrap();
        assert!(!store.has_aside());
        is_held
    };
    assert_eq!(EXTENDED.map(is_held).iter().filter(|is_held| **is_held).count(), 1);
}

#[test]
fn partition_without_room_comes_back_from_another_journal() {
    for journals in EXTENDED {
        let sim = killed_with_one_journal();
        let store = open_in(&sim, &journals, 1);
        let place = |_| {
            sim.fs.fill_device(Some(Path::new("/logs")));
            Place::In(0, config())
        };
        let report = store.recover(|_| LeaderEpoch(1), place).unwrap();
        assert_eq!(report.offline.len(), 1);
        assert!(has_aside(&store, "/first"));
        sim.fs.fill_device(None);
        for _ in 0..2 {
            sim.clock.advance(std::time::Duration::from_mins(1));
            store.settle().unwrap();
        }
        assert_eq!(partition(&store).log_end_offset().unwrap(), Offset(CUT_AT), "{journals:?}");
        store.checkpoint().unwrap();
        assert!(!store.has_aside(), "{journals:?}");
    }
}

#[test]
fn entries_in_a_half_full_journal_are_held_unless_covered() {
    for journals in EXTENDED {
        let sim = killed_with_records(COUNT);
        sim.fs.fill_device(Some(Path::new("/logs")));
        let store = open_in(&sim, &journals, 1 << 30);
        assert!(store.shared.is_journal_half_full());
        recover(&store).unwrap();
        sim.fs.fill_device(None);
        store.dirs[0].dir.space().found_room();
        // The next frame of that journal says what is settled.
        append_to(&store, partition_with_journal(&store, "/first"), 1, SEGMENT_BYTES);
        sim.fs.kill();
        let store = open_in(&sim, &journals, 1 << 30);
        recover(&store).unwrap();
        assert_eq!(partition(&store).log_end_offset().unwrap(), Offset(COUNT), "{journals:?}");
    }
}

#[test]
fn entries_in_another_journal_are_held_there_if_their_dir_fails() {
    for journals in EXTENDED {
        let sim = killed_with_one_journal();
        let store = open_in(&sim, &journals, 1 << 30);
        let place = |_| {
            sim.fs.fail_sync_after(0);
            Place::In(0, config())
        };
        store.recover(|_| LeaderEpoch(1), place).unwrap();
        if store.dir_failure(0).is_none() {
            // The partition's journal is the former one, and nothing was to be synced.
            assert!(store.checkpoint().is_err());
        }
        assert!(has_aside(&store, "/first") && !has_aside(&store, "/second"), "{journals:?}");
        sim.fs.kill();
        let store = open_in(&sim, &journals, 1 << 30);
        recover(&store).unwrap();
        append(&store, 1, SEGMENT_BYTES);
        sim.fs.kill();
        let store = open_in(&sim, &journals, 1 << 30);
        recover(&store).unwrap();
        assert_eq!(partition(&store).log_end_offset().unwrap(), Offset(CUT_AT + 1), "{journals:?}");
    }
}

/// A store that has recovered a partition whose first records were in another journal. These are aside there and in
/// segments that were never synced, and there is room again.
fn recovered_from_another_journal(sim: &SimEnv, journals: &[&str]) -> LogStore {
    sim.fs.fill_device(Some(Path::new("/logs")));
    let store = open_in(sim, journals, 1 << 30);
    recover(&store).unwrap();
    sim.fs.fill_device(None);
    store.dirs[0].settle(Haste::AtOnce).unwrap();
    store
}

#[test]
fn entries_of_the_former_journal_come_before_the_present_ones() {
    for seed in 0..8 {
        for is_aside in [false, true] {
            let sim = killed_with_seed(CUT_AT, seed);
            let journals = EXTENDED[1];
            let store = recovered_from_another_journal(&sim, &journals);
            append(&store, 1, SEGMENT_BYTES);
            if is_aside {
                sim.fs.fail_sync_after(0);
                store.checkpoint().unwrap_err();
            }
            assert_eq!((has_aside(&store, "/first"), has_aside(&store, "/second")), (true, is_aside));
            sim.fs.crash();
            let store = open_in(&sim, &journals, 1 << 30);
            let report = recover(&store).unwrap();
            assert!(report.offline.is_empty(), "{seed}: {report:?}");
            assert_eq!(partition(&store).log_end_offset().unwrap(), Offset(CUT_AT + 1), "{seed}");
            store.checkpoint().unwrap();
            assert!(!store.has_aside());
        }
    }
}

#[test]
fn entries_stay_aside_if_the_partition_cannot_take_later_ones() {
    let sim = killed_with_one_journal();
    let journals = EXTENDED[1];
    let store = recovered_from_another_journal(&sim, &journals);
    // A frame each: the last one may be torn.
    (0..3).for_each(|_| append(&store, 1, SEGMENT_BYTES));
    sim.fs.crash();
    let file = &names(&sim, Path::new("/second"), ".journal")[0];
    let path = Path::new("/second").join(file);
    flip(&sim, &path, place_of(&sim, &path, &name_of(CUT_AT + 1, 0)).unwrap());
    for _ in 0..2 {
        let store = open_in(&sim, &journals, 1 << 30);
        let report = recover(&store).unwrap();
        assert!(matches!(&report.offline[..], [(ID, LogError::Corrupt { .. })]), "{report:?}");
        store.checkpoint().unwrap();
        let first = store.journals().find(|it| it.dir() == Path::new("/first")).unwrap();
        let mut ends = Vec::new();
        let note = |_: &str, entries: Vec<RecoveredEntry>| {
            ends.extend(entries.iter().map(|entry| entry.header.base_offset.0));
        };
        first.read_all_held(note).unwrap();
        assert_eq!(ends, (0..CUT_AT).collect::<Vec<_>>());
        assert_eq!(first.held(), [held_name_of(ID)]);
    }
}
