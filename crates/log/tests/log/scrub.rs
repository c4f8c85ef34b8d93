//! Damage that is found while the log is in use: by the scrub, by reads, by lookups and by compaction.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use riverrun_log::compaction::execute::{CleanerControl, CleanerOptions, Unhindered};
use riverrun_log::config::{CleanupPolicy, LogConfig};
use riverrun_log::producer_state::AppendOrigin;
use riverrun_log::{CompactOptions, CutOptions, LogError, ReadError, Repair, verify_partition};
use riverrun_types::{Offset, PartitionId, TimestampMs};

use crate::machine::{ID, Machine, batch_at, numbers, put};

const OTHER: PartitionId = PartitionId { index: 1, ..ID };
const RECORDS: i64 = 14;

fn flip(machine: &Machine, path: &Path, position: usize) {
    let mut bytes = machine.content(path);
    bytes[position] ^= 0x10;
    machine.put_content(path, &bytes);
}

fn assert_offline(machine: &Machine, error: &LogError, file: &Path) {
    assert!(matches!(error, LogError::Corrupt { path, .. } if path == file), "{error}");
    let told = error.to_string();
    assert_eq!(machine.log().failure().unwrap().to_string(), told);
    let read = machine.log().read(Offset(RECORDS - 1), 100, Offset(RECORDS), true).unwrap_err();
    assert_eq!(read.to_string(), told, "no offset is read any more");
    assert_eq!(machine.log().log_end_offset().unwrap_err().to_string(), told);
    let batch = batch_at(&[(0, "x")], riverrun_records::BatchOptions::default());
    assert_eq!(put(&machine.log(), &batch, machine.append_options()).unwrap_err().to_string(), told);
    put(&machine.partition(OTHER), &batch, machine.append_options()).expect("the others go on");
}

#[test]
fn an_intact_log_is_read_to_its_end_and_stays_as_it_is() {
    let (machine, paths) = Machine::reopened(Machine::small_segments(), RECORDS);
    let before: Vec<_> = paths.iter().map(|path| machine.content(path)).collect();
    let scrubbed = machine.log().scrub(Offset::ZERO, u64::MAX, &Unhindered).unwrap();
    assert_eq!((scrubbed.segments, scrubbed.bytes), (paths.len() - 1, before[0].len() as u64));
    assert_eq!(scrubbed.indexes_rebuilt, 0);
    assert_eq!(paths.iter().map(|path| machine.content(path)).collect::<Vec<_>>(), before);
    assert_eq!(machine.records().unwrap(), numbers(0, RECORDS));
}

#[test]
fn scrub_finds_every_flipped_byte_and_cut_of_a_sealed_segment() {
    let (pristine, paths) = Machine::reopened(Machine::small_segments(), RECORDS);
    let bytes = pristine.content(&paths[0]);
    for position in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[position] ^= 1 << (position % 8);
        for damaged in [&flipped[..], &bytes[..position]] {
            let (machine, _) = Machine::reopened(Machine::small_segments(), RECORDS);
            machine.put_content(&paths[0], damaged);
            let error = machine.log().scrub(Offset::ZERO, u64::MAX, &Unhindered).expect_err("damage");
            assert_offline(&machine, &error, &paths[0]);
        }
    }
}

#[test]
fn scrub_finds_a_byte_that_is_flipped_after_it_was_read() {
    let (machine, paths) = Machine::reopened(Machine::small_segments(), RECORDS);
    assert_eq!(machine.records().unwrap(), numbers(0, RECORDS));
    let intact = machine.content(&paths[0]);
    flip(&machine, &paths[0], 70);
    let served = machine.log().read(Offset(0), 1 << 20, Offset(RECORDS), true).unwrap();
    let served = served.chunks[0].to_bytes().unwrap();
    assert!(
        intact[..70] == served[..70] && intact[70] != served[70],
        "a reader's second look is not the disk's"
    );
    let error = machine.log().scrub(Offset::ZERO, u64::MAX, &Unhindered).expect_err("damage");
    assert_offline(&machine, &error, &paths[0]);
}

#[test]
fn a_damaged_index_is_made_anew_and_nothing_goes_offline() {
    let (pristine, paths) = Machine::reopened(Machine::small_segments(), RECORDS);
    let index = paths[0].with_extension("index");
    for position in 44..pristine.content(&index).len() {
        let (machine, _) = Machine::reopened(Machine::small_segments(), RECORDS);
        flip(&machine, &index, position);
        machine.log().scrub(Offset::ZERO, u64::MAX, &Unhindered).unwrap();
        let report = verify_partition(&machine.sim.env(), paths[0].parent().unwrap(), ID).unwrap();
        assert_eq!(report.findings, [], "byte {position}");
        assert_eq!(machine.records().unwrap(), numbers(0, RECORDS), "byte {position}");
    }
}

#[test]
fn damage_below_the_log_start_is_passed_over() {
    let (machine, paths) = Machine::reopened(Machine::small_segments(), RECORDS);
    machine.log().delete_records(Offset(3)).unwrap();
    flip(&machine, &paths[0], 100);
    machine.log().scrub(Offset::ZERO, u64::MAX, &Unhindered).unwrap();
    assert_eq!(machine.records().unwrap(), numbers(3, RECORDS));
    flip(&machine, &paths[0], machine.content(&paths[0]).len() - 1);
    let error = machine.log().scrub(Offset::ZERO, u64::MAX, &Unhindered).expect_err("damage above it");
    assert_offline(&machine, &error, &paths[0]);
}

#[test]
fn lookup_by_time_and_compaction_pass_damage_below_the_start() {
    let cleanup = CleanupPolicy { delete: false, compact: true };
    let config =
        LogConfig { segment_bytes: 1000, index_interval_bytes: 300, cleanup, ..LogConfig::default() };
    // Bytes that a CRC covers, and bytes that none does.
    for position in [70, 7, 15] {
        let (machine, paths) = Machine::reopened(config.clone(), RECORDS);
        machine.log().delete_records(Offset(9)).unwrap();
        flip(&machine, &paths[0], position);
        let found = machine.log().offset_for_timestamp(TimestampMs(0)).unwrap();
        assert_eq!(found.map(|(_, offset, _)| offset), Some(Offset(9)), "byte {position}");
        assert_eq!(machine.records().unwrap(), numbers(9, RECORDS), "byte {position}");
        machine.log().compact(compaction(&machine)).expect_err("it would be written anew");
        assert!(machine.log().failure().is_none(), "byte {position}");
    }
}

#[test]
fn deleted_batch_may_be_damaged_beside_a_live_one() {
    let config = LogConfig { segment_bytes: 1000, ..LogConfig::default() };
    let (machine, paths) = Machine::reopened(config.clone(), RECORDS);
    machine.log().delete_records(Offset(3)).unwrap();
    flip(&machine, &paths[0], 70);
    let found = machine.log().offset_for_timestamp(TimestampMs(0)).unwrap();
    assert_eq!(found.map(|(_, offset, _)| offset), Some(Offset(3)));
    assert_eq!(machine.records().unwrap(), numbers(3, RECORDS));

    let (machine, paths) = Machine::reopened(config, RECORDS);
    machine.log().delete_records(Offset(3)).unwrap();
    flip(&machine, &paths[0], 7);
    let error = machine.log().offset_for_timestamp(TimestampMs(0)).expect_err("up to the next boundary");
    assert_offline(&machine, &error, &paths[0]);
}

/// Has retention remove the sealed segments while they are read.
struct RetentionMeanwhile<'a> {
    machine: &'a Machine,
    path: PathBuf,
    calls: Cell<u32>,
}

impl CleanerControl for RetentionMeanwhile<'_> {
    fn on_io(&self, bytes: u64) {
        assert!(bytes > 0);
        self.calls.set(self.calls.get() + 1);
        let now = TimestampMs(self.machine.now().0 + 1_000_000_000);
        self.machine.log().apply_retention(now, Offset(RECORDS)).unwrap();
        assert!(!self.machine.log_paths().contains(&self.path), "it is gone");
    }

    fn is_stopped(&self) -> bool {
        false
    }
}

#[test]
fn finding_in_a_segment_that_went_meanwhile_means_nothing() {
    let (machine, paths) = Machine::reopened(Machine::small_segments(), RECORDS);
    flip(&machine, &paths[0], 100);
    let control = RetentionMeanwhile { machine: &machine, path: paths[0].clone(), calls: Cell::new(0) };
    let scrubbed = machine.log().scrub(Offset::ZERO, u64::MAX, &control).unwrap();
    assert_eq!((scrubbed.segments, control.calls.get()), (0, 1));
    assert!(machine.log().failure().is_none());
}

#[test]
fn read_that_finds_damage_takes_only_that_partition_offline() {
    let (mut machine, paths) = Machine::reopened(Machine::small_segments(), RECORDS);
    let intact = machine.content(&paths[0]);
    // The base offset of a batch in the middle, which no CRC covers.
    let third = intact.len() / 12 * 2;
    let at = (0..40).map(|shift| third + shift).find(|at| intact[*at..].starts_with(&2_i64.to_be_bytes()));
    flip(&machine, &paths[0], at.unwrap() + 7);
    let error = match machine.log().read(Offset(1), 1 << 20, Offset(RECORDS), true) {
        Err(ReadError::Storage(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_offline(&machine, &error, &paths[0]);
    machine.put_content(&paths[0], &intact);
    machine.log().read(Offset(1), 1 << 20, Offset(RECORDS), true).expect_err("still offline");
    machine.restart();
    assert_eq!(machine.records().unwrap(), numbers(0, RECORDS));
}

#[test]
fn scrubs_finding_is_known_at_every_start_until_it_is_mended() {
    for (is_settled_by_cut, is_crash) in [(false, false), (false, true), (true, false)] {
        let (mut machine, paths) = Machine::reopened(Machine::small_segments(), RECORDS);
        let intact = machine.content(&paths[0]);
        flip(&machine, &paths[0], 100);
        machine.log().scrub(Offset::ZERO, u64::MAX, &Unhindered).expect_err("damage");
        for _ in 0..3 {
            if is_crash {
                machine.crash();
            } else {
                machine.restart();
            }
            let error = machine.log().ensure_open().expect_err("the damage is still there");
            assert_offline(&machine, &error, &paths[0]);
            assert!(error.to_string().contains("riverrun log repair"), "{error}");
        }
        machine.store.take().unwrap().close().unwrap();
        if is_settled_by_cut {
            let repair = Repair::open(&machine.sim.env(), paths[0].parent().unwrap(), ID).unwrap();
            let cut = repair.plan().unwrap().expect("damage");
            let discard_intact = Some(cut.intact_records).filter(|count| *count > 0);
            repair.cut(&cut, &CutOptions { discard_intact, backup: None }).unwrap();
        } else {
            machine.put_content(&paths[0], &intact);
        }
        machine.start().unwrap();
        let kept = if is_settled_by_cut { machine.log().log_end_offset().unwrap().0 } else { RECORDS };
        assert_eq!(machine.records().unwrap(), numbers(0, kept));
        assert!(!machine.files().iter().any(|name| name.ends_with(".damaged")), "{:?}", machine.files());
        machine.append_numbers(kept, kept + 1);
    }
}

#[test]
fn lookup_by_time_that_finds_damage_takes_the_partition_offline() {
    let config = LogConfig { index_interval_bytes: 1 << 20, ..Machine::small_segments() };
    let (machine, paths) = Machine::reopened(config, RECORDS);
    flip(&machine, &paths[0], 70);
    let now = machine.now();
    let error = machine.log().offset_for_timestamp(now).expect_err("damage");
    assert_offline(&machine, &error, &paths[0]);
}

fn compaction(machine: &Machine) -> CompactOptions<'static> {
    CompactOptions {
        now: TimestampMs(machine.now().0 + 1_000_000_000),
        high_watermark: Offset(RECORDS),
        origin: AppendOrigin::Client,
        cleaner: CleanerOptions::default(),
        control: &Unhindered,
    }
}

/// Counts bytes of I/O, and stops a run at once or never.
struct Counting {
    bytes: Cell<u64>,
    is_stopped: bool,
}

impl CleanerControl for Counting {
    fn on_io(&self, bytes: u64) {
        self.bytes.set(self.bytes.get() + bytes);
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped
    }
}

#[test]
fn headers_compared_by_compaction_count_and_a_stop_ends_that() {
    let cleanup = CleanupPolicy { delete: false, compact: true };
    let (machine, paths) = Machine::reopened(LogConfig { cleanup, ..Machine::small_segments() }, RECORDS);
    let sealed = machine.content(&paths[0]).len() as u64;
    for is_stopped in [true, false] {
        let control = Counting { bytes: Cell::new(0), is_stopped };
        let options = CompactOptions { control: &control, ..compaction(&machine) };
        let outcome = machine.log().compact(options).unwrap().expect("something to do");
        assert_eq!(outcome.first_dirty.is_none(), is_stopped);
        let least = if is_stopped { 0 } else { outcome.stats.read_bytes + sealed };
        assert!(control.bytes.get() >= least && (control.bytes.get() == 0) == is_stopped, "{least}");
    }
}

#[test]
fn compaction_that_finds_damage_takes_the_partition_offline() {
    let config =
        LogConfig { cleanup: CleanupPolicy { delete: false, compact: true }, ..Machine::small_segments() };
    // The disk may have other bytes by now than were read before.
    for (position, is_read) in [7, 15, 70].into_iter().flat_map(|byte| [(byte, false), (byte, true)]) {
        let (machine, paths) = Machine::reopened(config.clone(), RECORDS);
        if is_read {
            machine.records().unwrap();
        }
        flip(&machine, &paths[0], position);
        let before = machine.files();
        let error = machine.log().compact(compaction(&machine)).expect_err("damage");
        let is_written = |name: &String| !name.ends_with(".damaged");
        assert!(machine.files().into_iter().filter(is_written).eq(before), "byte {position}");
        assert_offline(&machine, &error, &paths[0]);
    }
}
