//! Compaction of a log in use, while the system refuses calls or has little room: the records to keep are there
//! afterwards, and no other files are left behind.

use std::cell::Cell;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use riverrun_env::FileSystem;
use riverrun_env::sim::SimEnv;
use riverrun_log::compaction::execute::{CleanOutcome, CleanerControl, CleanerOptions, Unhindered};
use riverrun_log::config::{CleanupPolicy, LogConfig};
use riverrun_log::producer_state::AppendOrigin;
use riverrun_log::{
    AppendOptions, CompactOptions, LogError, Repair, RepairError, StoreOptions, Weight, verify_partition,
};
use riverrun_records::{BatchBuilder, BatchOptions, ProducerStamp};
use riverrun_types::{self as types, Offset};

use crate::machine::{DIR, ID, Machine, put};

/// Bytes of the segments that are appended to.
const SMALL: u32 = 1000;
/// Bytes of the one segment that compaction makes of all.
const LARGE: u32 = 100_000;
const RESERVE: u64 = 1 << 20;

/// A log of 40 records in several segments, under a checkpoint.
fn filled(config: LogConfig) -> Machine {
    let options = StoreOptions { reserve_bytes: RESERVE, ..StoreOptions::default() };
    let mut machine = Machine::with_options(SimEnv::new(1), config, options);
    append(&mut machine, SMALL, 40);
    machine
}

fn compacted_only() -> LogConfig {
    LogConfig { cleanup: CleanupPolicy { delete: false, compact: true }, ..Machine::small_segments() }
}

fn set_segment_bytes(machine: &mut Machine, segment_bytes: u32) {
    machine.config = Arc::new(LogConfig { segment_bytes, ..(*machine.config).clone() });
}

/// Every other record has a key of its own, the others have the same.
fn value_of(offset: i64) -> String {
    if offset % 2 == 0 { format!("record {offset}") } else { "again and again".to_owned() }
}

/// Appends so many records to segments of so many bytes, and makes a checkpoint.
fn append(machine: &mut Machine, segment_bytes: u32, count: i64) {
    set_segment_bytes(machine, segment_bytes);
    let end = machine.log().log_end_offset().unwrap().0;
    for offset in end..end + count {
        assert_eq!(machine.append(&value_of(offset)), Offset(offset));
    }
    machine.store().checkpoint().unwrap();
}

/// Compacts into segments of at most so many bytes.
fn compact(machine: &mut Machine, segment_bytes: u32) -> Result<Option<CleanOutcome>, LogError> {
    compact_of(machine, segment_bytes, AppendOrigin::Client, &Unhindered)
}

/// Compacts a log that `origin` appends to.
fn compact_of(
    machine: &mut Machine,
    segment_bytes: u32,
    origin: AppendOrigin,
    control: &dyn CleanerControl,
) -> Result<Option<CleanOutcome>, LogError> {
    set_segment_bytes(machine, segment_bytes);
    let log = machine.log();
    let cleaner = CleanerOptions { dedupe_buffer_bytes: 100_000, load_factor: 0.9 };
    let high_watermark = log.log_end_offset()?;
    log.compact(CompactOptions { now: machine.now(), high_watermark, origin, cleaner, control })
}

/// The last record of each key is there, and of the others none that was never appended.
fn check(machine: &Machine, what: &str) {
    let log = machine.log();
    let (start, end) = (log.log_start_offset().unwrap().0, log.log_end_offset().unwrap().0);
    let found = machine.records().unwrap();
    assert!(found.iter().all(|(offset, value)| *value == value_of(*offset)), "{what}: {found:?}");
    let is_newest = |offset: &i64| offset % 2 == 0 || offset + 2 >= end;
    for offset in (start..end).filter(is_newest) {
        assert!(found.iter().any(|(other, _)| *other == offset), "{what}: {offset} is gone: {found:?}");
    }
}

/// Files that compaction has not removed.
fn leftovers(machine: &Machine) -> Vec<String> {
    let is_left = |name: &String| name.contains(".cleaned") || name.contains(".swap");
    machine.files().into_iter().filter(is_left).collect()
}

fn available(machine: &Machine) -> u64 {
    machine.sim.fs.available_bytes(DIR.as_ref()).unwrap()
}

/// Has each call by path of a compaction fail in turn, and calls `after` with the machine then.
fn fail_each_call(
    config: &LogConfig,
    kind: ErrorKind,
    after: impl Fn(&mut Machine, Result<Option<CleanOutcome>, LogError>, &str),
) {
    for segment_bytes in [SMALL, LARGE] {
        let mut whole = filled(config.clone());
        let before = whole.sim.fs.calls();
        compact(&mut whole, segment_bytes).unwrap().unwrap();
        let calls = whole.sim.fs.calls() - before;
        assert!(calls > 15, "{calls}");
        for call in 0..calls {
            let mut machine = filled(config.clone());
            machine.sim.fs.fail_call_after(call, kind);
            let outcome = compact(&mut machine, segment_bytes);
            after(&mut machine, outcome, &format!("{kind} at call {call}, {segment_bytes} bytes"));
        }
    }
}

#[test]
fn shortage_at_any_call_of_a_compaction_loses_nothing() {
    let next: [fn(&mut Machine); 4] = [
        |machine| machine.kill(),
        Machine::restart,
        |machine| {
            for _ in 0..2 {
                machine.store().close_idle(0, Duration::ZERO);
            }
        },
        // The next compaction begins at the same segment, and ends elsewhere.
        |machine| {
            append(machine, SMALL, 20);
            compact(machine, LARGE).unwrap();
            assert_eq!(leftovers(machine), [""; 0]);
        },
    ];
    for (number, next) in next.iter().enumerate() {
        fail_each_call(&compacted_only(), ErrorKind::OutOfMemory, |machine, outcome, what| {
            let what = format!("{what}, then {number}");
            if let Err(error) = outcome {
                assert_eq!(error.kind(), types::ErrorKind::Retry, "{what}: {error}");
            }
            assert!(machine.store().dir_failure(0).is_none(), "{what}");
            let left = leftovers(machine);
            let is_unfinished = left.iter().any(|name| name.ends_with(".log.swap"));
            assert!(is_unfinished || left.is_empty(), "{what}: {left:?}");
            check(machine, &what);
            next(machine);
            check(machine, &what);
            machine.kill();
            check(machine, &what);
            assert_eq!(leftovers(machine), [""; 0], "{what}");
        });
    }
}

#[test]
fn states_of_joined_segments_go_with_the_next_checkpoint() {
    let mut machine = filled(compacted_only());
    let before = machine.inner_bases();
    assert_eq!(machine.states(), before);
    compact(&mut machine, LARGE).unwrap();
    machine.store().checkpoint().unwrap();
    assert!(machine.inner_bases().len() < before.len());
    assert_eq!(machine.states(), machine.inner_bases());
    check(&machine, "compacted");
    machine.crash();
    check(&machine, "and started anew");
    assert_eq!(machine.states(), machine.inner_bases());
}

/// Stops a compaction after so many looks.
struct StopAfter(Cell<usize>);

impl CleanerControl for StopAfter {
    fn on_io(&self, _bytes: u64) {}

    fn is_stopped(&self) -> bool {
        let left = self.0.get().checked_sub(1);
        self.0.set(left.unwrap_or_default());
        left.is_none()
    }
}

/// A compaction that was stopped leaves no mark of its progress.
#[test]
fn cut_at_a_stopped_compaction_leaves_a_log_that_opens() {
    let mut refused = 0;
    for (stop, at) in (5..120).step_by(6).flat_map(|stop| [9, 10, 23, 31].map(|at| (stop, at))) {
        let options = StoreOptions { reserve_bytes: RESERVE, ..Machine::with_journal() };
        // An index with an entry for each batch would tell where one begins behind a gap.
        let config = LogConfig { index_interval_bytes: 300, ..compacted_only() };
        let mut machine = Machine::with_options(SimEnv::new(1), config, options);
        append(&mut machine, SMALL, 40);
        compact_of(&mut machine, SMALL, AppendOrigin::Client, &StopAfter(Cell::new(stop))).unwrap();
        let end = match machine.log().truncate_to(Offset(at)) {
            Ok(end) => end,
            Err(LogError::CutTooFar { .. }) => {
                refused += 1;
                Offset(40)
            }
            Err(error) => panic!("stop {stop}, at {at}: {error}"),
        };
        assert_eq!(machine.log().log_end_offset().unwrap(), end, "stop {stop}, at {at}");
        machine.crash();
        assert_eq!(machine.log().log_end_offset().unwrap(), end, "stop {stop}, at {at}");
        for (offset, value) in machine.records().unwrap() {
            assert_eq!(value, value_of(offset), "stop {stop}, at {at}");
        }
    }
    assert!(refused > 0, "some lie in a gap");
}

#[test]
fn retention_first_finishes_the_swap_of_a_compaction() {
    let config = LogConfig {
        cleanup: CleanupPolicy { delete: true, compact: true },
        retention_bytes: Some(1500),
        ..Machine::small_segments()
    };
    fail_each_call(&config, ErrorKind::OutOfMemory, |machine, _, what| {
        let log = machine.log();
        log.apply_retention(machine.now(), log.log_end_offset().unwrap()).unwrap();
        assert_eq!(leftovers(machine), [""; 0], "{what}");
        check(machine, what);
        let start = log.log_start_offset().unwrap();
        machine.kill();
        assert_eq!(machine.log().log_start_offset().unwrap(), start, "{what}");
        check(machine, what);
    });
}

#[test]
fn disk_error_at_any_call_of_a_compaction_loses_nothing() {
    fail_each_call(&compacted_only(), ErrorKind::Other, |machine, _, what| {
        check(machine, what);
        machine.kill();
        check(machine, what);
        append(machine, SMALL, 20);
        compact(machine, LARGE).unwrap();
        check(machine, what);
        machine.kill();
        check(machine, what);
    });
}

#[test]
fn swap_whose_sync_has_failed_is_left_to_the_next_start() {
    let (mut failed, mut refused) = (0, 0);
    for sync in 0.. {
        let mut machine = filled(compacted_only());
        machine.sim.fs.fail_sync_after(sync);
        if compact(&mut machine, LARGE).is_ok() {
            break;
        }
        assert!(machine.store().dir_failure(0).is_some(), "sync {sync}");
        check(&machine, &format!("sync {sync}: reads go on"));
        let left = leftovers(&machine);
        for _ in 0..2 {
            machine.store().close_idle(0, Duration::ZERO);
        }
        match machine.records() {
            Ok(_) => {}
            Err(LogError::DirFailed { .. }) => refused += 1,
            Err(error) => panic!("sync {sync}: {error}"),
        }
        assert_eq!(leftovers(&machine), left, "sync {sync}: nothing more is written there");
        machine.crash();
        check(&machine, &format!("sync {sync}"));
        failed += 1;
    }
    assert!(failed > 4 && refused > 2, "{failed} {refused}");
}

#[test]
fn overtaken_swap_is_left_alone_and_its_partition_is_offline() {
    let mut machine = filled(compacted_only());
    compact(&mut machine, LARGE).unwrap().unwrap();
    let path = machine.partition_dir().join(format!("{:020}-{:020}.log.swap", 0, 5));
    machine.put_content(&path, b"of another time");
    for _ in 0..2 {
        machine.kill();
        let error = machine.records().unwrap_err();
        assert!(matches!(&error, LogError::Corrupt { path: found, .. } if *found == path), "{error}");
        assert_eq!(machine.content(&path), b"of another time");
    }
    let (env, dir) = (machine.sim.env(), machine.partition_dir());
    machine.store.take().unwrap().close().unwrap();
    let report = verify_partition(&env, &dir, ID).unwrap();
    let damage: Vec<_> = report.findings.iter().filter(|found| found.weight == Weight::Damage).collect();
    assert_eq!(damage.iter().map(|found| &found.path).collect::<Vec<_>>(), [&path], "{report:?}");
    let error = Repair::open(&env, &dir, ID).unwrap().plan().unwrap_err();
    let is_named =
        |error: &LogError| matches!(error, LogError::Corrupt { path: found, .. } if *found == path);
    assert!(
        matches!(&error, RepairError::Log(error) if is_named(error)),
        "no start brings it to its end: {error}"
    );
    machine.sim.fs.remove_file(&path).unwrap();
    assert_eq!(verify_partition(&env, &dir, ID).unwrap().findings, []);
    machine.kill();
    check(&machine, "when it is moved away");
}

#[test]
fn compaction_without_room_keeps_the_reserve_and_no_files() {
    let mut machine = filled(compacted_only());
    let segments = machine.log_paths().len();
    machine.sim.fs.set_space(Some(RESERVE + 500));
    for _ in 0..2 {
        let error = compact(&mut machine, LARGE).unwrap_err();
        assert!(matches!(error, LogError::DirFull { reserve_bytes: RESERVE, .. }), "{error}");
        assert_eq!(error.kind(), types::ErrorKind::Retry);
        assert_eq!((leftovers(&machine), available(&machine)), (vec![], RESERVE + 500));
    }
    check(&machine, "without room");
    // There is room for each segment, and not for all at once.
    machine.sim.fs.set_space(Some(RESERVE + 2500));
    compact(&mut machine, LARGE).unwrap().unwrap();
    assert_eq!(machine.log_paths().len(), segments);
    check(&machine, "with room for some");
    machine.sim.fs.set_space(None);
    append(&mut machine, SMALL, 20);
    compact(&mut machine, LARGE).unwrap().unwrap();
    assert_eq!(machine.log_paths().len(), 2, "one, and the active one");
    check(&machine, "with room");
    machine.kill();
    check(&machine, "after a kill");
}

#[test]
fn log_is_compacted_below_a_segment_without_room() {
    let mut machine = filled(compacted_only());
    append(&mut machine, LARGE, 80);
    append(&mut machine, SMALL, 20);
    let bases: Vec<i64> = machine
        .log_paths()
        .iter()
        .map(|path| path.file_stem().unwrap().to_str().unwrap().parse().unwrap())
        .collect();
    let large = machine.log_paths().iter().position(|path| machine.content(path).len() > 5000).unwrap();
    assert!(large > 1 && large + 1 < bases.len(), "{large} of {bases:?}");
    machine.sim.fs.set_space(Some(RESERVE + 4000));
    let outcome = compact(&mut machine, SMALL).unwrap().unwrap();
    assert_eq!(outcome.first_dirty, Some(Offset(bases[large])));
    assert!(outcome.stats.records_after < outcome.stats.records_before, "{outcome:?}");
    let error = compact(&mut machine, SMALL).unwrap_err();
    assert!(matches!(error, LogError::DirFull { .. }), "{error}");
    check(&machine, "without room for it");
    machine.sim.fs.set_space(None);
    let outcome = compact(&mut machine, SMALL).unwrap().unwrap();
    assert_eq!(outcome.first_dirty, Some(Offset(*bases.last().unwrap())));
    check(&machine, "with room");
}

/// Compaction of the server's own logs does not go below this.
const FLOOR: u64 = RESERVE / 8;

/// A log that the server itself appends to, in segments of so many bytes.
fn own_log(segment_bytes: u32) -> Machine {
    let options = StoreOptions { reserve_bytes: RESERVE, ..StoreOptions::default() };
    Machine::with_options(SimEnv::new(1), LogConfig { segment_bytes, ..compacted_only() }, options)
}

/// Appends as the server does: one record with this key and value.
fn commit(machine: &Machine, key: usize, value: &str) {
    let mut batch = BatchBuilder::new(BatchOptions::default());
    batch.append(machine.now(), Some(key.to_string().as_bytes()), Some(value.as_bytes()), &[]).unwrap();
    let options = AppendOptions { origin: AppendOrigin::Coordinator, ..machine.append_options() };
    put(&machine.log(), &batch.build().unwrap(), options).unwrap();
}

/// Measures the least room while a compaction runs.
struct Lowest<'a> {
    machine: &'a SimEnv,
    bytes: Cell<u64>,
}

impl CleanerControl for Lowest<'_> {
    fn on_io(&self, _bytes: u64) {
        let now = self.machine.fs.available_bytes(DIR.as_ref()).unwrap();
        self.bytes.set(self.bytes.get().min(now));
    }

    fn is_stopped(&self) -> bool {
        false
    }
}

/// Compacts a log of the server's own. Returns the least room meanwhile as well.
fn compact_own(machine: &mut Machine) -> (Result<Option<CleanOutcome>, LogError>, u64) {
    machine.store().checkpoint().unwrap();
    let (sim, segment_bytes) = (machine.sim.clone(), machine.config.segment_bytes);
    let lowest = Lowest { machine: &sim, bytes: Cell::new(u64::MAX) };
    let outcome = compact_of(machine, segment_bytes, AppendOrigin::Coordinator, &lowest);
    (outcome, lowest.bytes.get())
}

#[test]
fn compaction_makes_the_reserve_last_longer_for_own_appends() {
    // A segment is larger than the rest of the room when it is full.
    let mut machine = own_log(400_000);
    machine.sim.fs.set_space(Some(RESERVE / 4 * 3));
    machine.store().measure_space();
    let (mut round, mut appended, mut compactions) = (0, 0, 0);
    while appended < 4 * RESERVE {
        round += 1;
        for key in 0..5 {
            let value = format!("{round} {}", "x".repeat(4000));
            appended += value.len() as u64;
            commit(&machine, key, &value);
        }
        if machine.log_paths().len() > 1 {
            let (outcome, lowest) = compact_own(&mut machine);
            compactions += u32::from(outcome.unwrap().is_some());
            assert!(lowest > FLOOR, "{lowest}");
        }
    }
    assert!(compactions > 5, "{compactions}");
    assert!(machine.try_append("no", ProducerStamp::NONE).is_err(), "clients wait");
    machine.store().checkpoint().unwrap();
    machine.crash();
    let found = machine.records().unwrap();
    let last: Vec<_> =
        found.iter().rev().take(5).map(|(_, value)| value.split(' ').next().unwrap()).collect();
    assert_eq!(last, [round.to_string().as_str(); 5], "the last value of each key");
}

#[test]
fn compaction_stops_at_the_floor_of_the_reserve_and_cleans_up() {
    let mut machine = own_log(700_000);
    // So that something would change.
    commit(&machine, 0, "superseded");
    for key in 0..90 {
        commit(&machine, key, &"x".repeat(10_000));
    }
    assert!(machine.log_paths().len() > 1);
    machine.store().checkpoint().unwrap();
    machine.sim.fs.set_space(Some(FLOOR + 600_000));
    let before = (machine.files(), available(&machine), machine.records().unwrap());
    let (outcome, lowest) = compact_own(&mut machine);
    assert!(matches!(outcome, Err(LogError::DirFull { .. })), "{outcome:?}");
    assert!(
        (FLOOR..FLOOR + 200_000).contains(&lowest),
        "{lowest}: it has used the reserve, but for the floor"
    );
    assert_eq!((machine.files(), available(&machine), machine.records().unwrap()), before);
    let error = compact(&mut machine, 700_000).unwrap_err();
    assert!(matches!(error, LogError::DirFull { .. }), "a client's log: {error}");
}

#[test]
fn active_segment_of_an_own_log_ends_early_in_the_reserve() {
    let mut machine = own_log(700_000);
    let share = usize::try_from(RESERVE / 128).unwrap();
    commit(&machine, 0, "superseded");
    commit(&machine, 0, &"x".repeat(share));
    assert!(!machine.log().roll_in_reserve().unwrap(), "there is room");
    machine.sim.fs.set_space(Some(RESERVE - 1));
    machine.store().measure_space();
    assert!(machine.log().roll_in_reserve().unwrap());
    commit(&machine, 0, "newest");
    assert!(!machine.log().roll_in_reserve().unwrap(), "it is small");
    assert!(compact_own(&mut machine).0.unwrap().is_some());
    let offsets: Vec<_> = machine.records().unwrap().into_iter().map(|(offset, _)| offset).collect();
    assert_eq!(offsets, [1, 2]);
}
