//! Flips outside of a batch's own CRC, its base offset above all, if an entry of the index covers several batches:
//! reported as damage, never kept by a cut, never vouched for by an index that is made anew.

use std::path::{Path, PathBuf};

use riverrun_env::FileSystem;
use riverrun_log::compaction::execute::Unhindered;
use riverrun_log::config::LogConfig;
use riverrun_log::{Cut, CutOptions, LogError, Repair, SegmentDump, Weight, verify_partition};
use riverrun_records::layout;
use riverrun_types::Offset;

use crate::machine::{DIR, ID, Machine, numbers};

const RECORDS: i64 = 30;
/// Number of records above the checkpoint.
const TAIL: i64 = 4;
/// Bits of a base offset: those that lead to another batch's, beyond all of them, and out of the segment.
const BITS: [usize; 12] = [0, 1, 2, 3, 4, 5, 8, 12, 20, 30, 31, 63];

/// One segment with entries at its end and at checkpoints only.
fn one_segment() -> LogConfig {
    LogConfig::default()
}

/// A log that was closed in order, and its `.log` files.
fn closed(config: LogConfig) -> (Machine, Vec<PathBuf>) {
    let mut machine = Machine::new(1, config);
    machine.append_numbers(0, RECORDS);
    let paths = machine.log_paths();
    machine.store.take().unwrap().close().unwrap();
    (machine, paths)
}

fn dir_of(paths: &[PathBuf]) -> &Path {
    paths[0].parent().unwrap()
}

/// Offsets and positions of a segment's batches.
fn batches(machine: &Machine, path: &Path) -> Vec<(i64, usize)> {
    let dump = SegmentDump::open(&machine.sim.env(), path).unwrap().map(Result::unwrap);
    dump.map(|batch| (batch.header.base_offset().0, usize::try_from(batch.position).unwrap())).collect()
}

fn position_of(machine: &Machine, path: &Path, offset: i64) -> usize {
    batches(machine, path).into_iter().find(|(base, _)| *base == offset).unwrap().1
}

fn flip(machine: &Machine, path: &Path, position: usize, mask: u8) {
    let mut bytes = machine.content(path);
    bytes[position] ^= mask;
    machine.put_content(path, &bytes);
}

/// Flips one bit of the base offset of the batch at `position`.
fn flip_offset(machine: &Machine, path: &Path, position: usize, bit: usize) {
    flip(machine, path, position + layout::BASE_OFFSET + 7 - bit / 8, 1 << (bit % 8));
}

/// Position and weight of each finding of the verification.
fn found(machine: &Machine, paths: &[PathBuf]) -> Vec<(u64, Weight)> {
    let report = verify_partition(&machine.sim.env(), dir_of(paths), ID).unwrap();
    report.findings.iter().map(|finding| (finding.position, finding.weight)).collect()
}

fn repair(machine: &Machine, paths: &[PathBuf]) -> Option<Cut> {
    let repair = Repair::open(&machine.sim.env(), dir_of(paths), ID).unwrap();
    let cut = repair.plan().unwrap()?;
    let discard_intact = Some(cut.intact_records).filter(|count| *count > 0);
    repair.cut(&cut, &CutOptions { backup: None, discard_intact }).unwrap();
    Some(cut)
}

#[test]
fn a_flipped_offset_is_damage_and_no_cut_keeps_it() {
    for config in [Machine::spaced_entries(), one_segment()] {
        let (pristine, paths) = closed(config.clone());
        for path in &paths {
            for (offset, position) in batches(&pristine, path) {
                for bit in BITS {
                    let what = format!("offset {offset}, bit {bit}");
                    let (mut machine, paths) = closed(config.clone());
                    flip_offset(&machine, path, position, bit);
                    let weights = found(&machine, &paths).into_iter().map(|(_, weight)| weight);
                    assert!(weights.eq([Weight::Damage]), "{what}: {:?}", found(&machine, &paths));
                    let cut = repair(&machine, &paths).expect("damage");
                    let is_before = cut.path < *path || cut.position <= position as u64;
                    assert!(is_before && cut.log_end.0 <= offset, "{what}: {cut:?}");
                    // All but the one that was flipped.
                    let others = u64::try_from(RECORDS - cut.log_end.0 - 1).unwrap();
                    assert!((others..=others + 1).contains(&cut.intact_records), "{what}: {cut:?}");
                    assert_eq!(found(&machine, &paths), [], "{what}");
                    machine.start().unwrap();
                    assert_eq!(machine.records().unwrap(), numbers(0, cut.log_end.0), "{what}");
                }
            }
        }
    }
}

#[test]
fn without_an_index_the_cut_is_where_offsets_have_a_gap() {
    let (pristine, paths) = closed(one_segment());
    for (offset, position) in batches(&pristine, &paths[0]) {
        for bit in BITS {
            let (machine, paths) = closed(one_segment());
            machine.sim.fs.remove_file(&paths[0].with_extension("index")).unwrap();
            flip_offset(&machine, &paths[0], position, bit);
            let cut = repair(&machine, &paths).expect("damage");
            let at = (cut.position, cut.log_end.0);
            assert_eq!(at, (position as u64, offset), "offset {offset}, bit {bit}: {cut:?}");
        }
    }
}

#[test]
fn damaged_records_are_cut_from_their_batch_on() {
    // One before another batch, and the last one, before an entry of the index.
    for (offset, intact) in [(9, 20), (RECORDS - 1, 0)] {
        let (machine, paths) = closed(one_segment());
        let position = position_of(&machine, &paths[0], offset);
        flip(&machine, &paths[0], position + layout::RECORDS, 1);
        assert_eq!(found(&machine, &paths), [(position as u64, Weight::Damage)]);
        let cut = repair(&machine, &paths).unwrap();
        assert_eq!(
            (cut.position, cut.log_end, cut.intact_records),
            (position as u64, Offset(offset), intact)
        );
    }
}

#[test]
fn cut_for_damaged_records_keeps_no_damaged_header() {
    let (machine, paths) = closed(Machine::spaced_entries());
    let last = paths.len() - 1;
    let held = batches(&machine, &paths[last]);
    let of = |index: usize| held[index].1;
    // All of them lie between two entries: an epoch, and the records of the batch behind it.
    flip(&machine, &paths[last], of(1) + layout::LEADER_EPOCH + 3, 2);
    flip(&machine, &paths[last], of(2) + layout::RECORDS, 1);
    assert_eq!(found(&machine, &paths), [(0, Weight::Damage)]);
    let cut = repair(&machine, &paths).unwrap();
    assert_eq!((cut.position, cut.log_end.0), (0, held[0].0));
    assert_eq!(found(&machine, &paths), []);
}

#[test]
fn header_that_keeps_readers_out_is_damage_below_the_log_start() {
    let (mut machine, paths) = closed(one_segment());
    let position = position_of(&machine, &paths[0], 2);
    machine.start().unwrap();
    machine.log().delete_records(Offset(5)).unwrap();
    machine.store.take().unwrap().close().unwrap();
    flip(&machine, &paths[0], position + layout::CRC, 1);
    let weights = found(&machine, &paths).into_iter().map(|(_, weight)| weight);
    assert!(weights.eq([Weight::Damage]));
    machine.start().unwrap();
    machine.records().expect_err("one entry of the index proves it and the read batches");
    machine.store.take().unwrap().close().unwrap();
    assert!(repair(&machine, &paths).is_some());
    machine.start().unwrap();
    assert_eq!(machine.records().unwrap(), []);
}

#[test]
fn raised_offset_found_by_a_read_is_found_at_starts_until_cut() {
    // Below the recovery point, and far above it.
    for bit in [4, 20] {
        for config in [Machine::spaced_entries(), one_segment()] {
            let (mut machine, paths) = closed(config);
            flip_offset(&machine, &paths[0], position_of(&machine, &paths[0], 1), bit);
            machine.start().unwrap();
            machine.records().expect_err("damage");
            for _ in 0..2 {
                machine.restart();
                let error = machine.log().ensure_open().expect_err("the damage is still there");
                assert!(error.to_string().contains("riverrun log repair"), "bit {bit}: {error}");
            }
            machine.store.take().unwrap().close().unwrap();
            let cut = repair(&machine, &paths).expect("damage");
            machine.start().unwrap();
            assert_eq!(machine.records().unwrap(), numbers(0, cut.log_end.0), "bit {bit}");
        }
    }
}

/// A log of one segment whose process died with records above the checkpoint, without its index.
fn killed_without_index() -> (Machine, PathBuf) {
    let mut machine = Machine::new(1, one_segment());
    machine.append_numbers(0, RECORDS - TAIL);
    machine.store().checkpoint().unwrap();
    machine.append_numbers(RECORDS - TAIL, RECORDS);
    let path = machine.log_paths().remove(0);
    machine.sim.fs.kill();
    machine.store = None;
    machine.sim.fs.remove_file(&path.with_extension("index")).unwrap();
    (machine, path)
}

#[test]
fn start_without_an_index_takes_no_flipped_offset_for_the_end() {
    let (pristine, path) = killed_without_index();
    let synced = RECORDS - TAIL;
    for (offset, position) in batches(&pristine, &path) {
        for bit in BITS {
            let (mut machine, path) = killed_without_index();
            flip_offset(&machine, &path, position, bit);
            machine.start().unwrap();
            match machine.records() {
                Ok(records) => {
                    assert!(offset >= synced, "offset {offset}, bit {bit}: {records:?}");
                    assert_eq!(records, numbers(0, offset), "bit {bit}");
                }
                Err(error) => {
                    assert!(offset < synced, "offset {offset}, bit {bit}: {error}");
                    assert!(matches!(error, LogError::Corrupt { .. }), "{error}");
                }
            }
        }
    }
}

#[test]
fn start_without_a_checkpoint_cuts_nothing_at_a_flipped_offset() {
    let (pristine, path) = killed_without_index();
    let mut all = batches(&pristine, &path);
    // Behind the last one there is nothing to be cut, and a gap before it may come from a compaction.
    all.pop();
    for (offset, position) in all {
        for bit in BITS {
            let (mut machine, path) = killed_without_index();
            machine.put_content(&Path::new(DIR).join("checkpoint"), b"not a checkpoint");
            flip_offset(&machine, &path, position, bit);
            let before = machine.content(&path);
            machine.start().unwrap();
            let error = machine.records().expect_err("damage");
            assert!(matches!(error, LogError::Corrupt { .. }), "offset {offset}, bit {bit}: {error}");
            assert_eq!(machine.content(&path), before, "offset {offset}, bit {bit}");
        }
    }
}

#[test]
fn new_index_vouches_for_no_batch_that_the_old_one_refutes() {
    for is_scrubbed in [false, true] {
        let mut machine = Machine::new(1, Machine::small_segments());
        machine.append_numbers(0, RECORDS);
        machine.restart();
        machine.log().ensure_open().unwrap();
        let path = machine.log_paths().remove(0);
        // A leader epoch, which no CRC covers, and an entry of the index that lies elsewhere.
        let position = position_of(&machine, &path, 4);
        flip(&machine, &path, position + layout::LEADER_EPOCH + 3, 2);
        flip(&machine, &path.with_extension("index"), 44 + 24 + 1, 1);
        let error = if is_scrubbed {
            machine.log().scrub(Offset::ZERO, u64::MAX, &Unhindered).expect_err("damage")
        } else {
            machine.records().expect_err("damage")
        };
        assert!(matches!(&error, LogError::Corrupt { path: at, .. } if *at == path), "{error}");
        machine.restart();
        machine.log().ensure_open().expect_err("the damage is still there");
    }
}
