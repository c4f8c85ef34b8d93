//! Cutting a damaged tail on request: removed and remaining records, refusals, and the end of an interrupted repair.

use std::path::{Path, PathBuf};

use riverrun_env::sim::SimEnv;
use riverrun_env::{FileSystem, OpenMode};
use riverrun_log::config::LogConfig;
use riverrun_log::{Cut, CutOptions, LogError, Repair, RepairError, SegmentDump, verify_partition};

use crate::machine::{DIR, ID, Machine, numbers, stamp};

const RECORDS: i64 = 14;

/// A log of two segments that was closed in order, and the paths of its `.log` files.
fn closed_log(sim: SimEnv) -> (Machine, Vec<PathBuf>) {
    closed_log_of(sim, Machine::small_segments())
}

fn closed_log_of(sim: SimEnv, config: LogConfig) -> (Machine, Vec<PathBuf>) {
    let mut machine = Machine::on(sim, config);
    machine.append_numbers(0, RECORDS);
    let paths = machine.log_paths();
    assert_eq!(paths.len(), 2);
    machine.store.take().unwrap().close().unwrap();
    (machine, paths)
}

fn dir_of(path: &Path) -> &Path {
    path.parent().unwrap()
}

fn flip(machine: &Machine, path: &Path, position: usize) {
    let mut bytes = machine.content(path);
    bytes[position] ^= 0x10;
    machine.put_content(path, &bytes);
}

fn open(machine: &Machine, paths: &[PathBuf]) -> Repair {
    Repair::open(&machine.sim.env(), dir_of(&paths[0]), ID).unwrap()
}

fn plan(machine: &Machine, paths: &[PathBuf]) -> Option<Cut> {
    open(machine, paths).plan().unwrap()
}

fn consent(cut: &Cut) -> CutOptions {
    CutOptions { backup: None, discard_intact: (cut.intact_records > 0).then_some(cut.intact_records) }
}

/// Every file below the log dir, with its bytes.
fn all_files(machine: &Machine, dir: &Path, found: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in machine.sim.fs.read_dir(dir).unwrap() {
        let path = dir.join(&entry.name);
        if entry.is_dir {
            all_files(machine, &path, found);
        } else {
            let bytes = machine.content(&path);
            found.push((path, bytes));
        }
    }
}

fn image(machine: &Machine) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    all_files(machine, Path::new(DIR), &mut found);
    found.sort();
    found
}

#[test]
fn an_intact_log_has_nothing_to_cut() {
    let (machine, paths) = closed_log(SimEnv::new(1));
    let before = image(&machine);
    assert_eq!(plan(&machine, &paths), None);
    assert_eq!(image(&machine), before);
}

#[test]
fn damaged_tail_is_cut_at_its_first_damage_and_backed_up() {
    let (mut machine, paths) = closed_log(SimEnv::new(1));
    let last = paths.last().unwrap();
    let intact = machine.content(last);
    flip(&machine, last, intact.len() - 1);
    let damaged = machine.content(last);
    let before = image(&machine);
    let cut = plan(&machine, &paths).unwrap();
    assert_eq!(image(&machine), before, "a plan changes nothing");
    assert_eq!((cut.path.clone(), cut.log_end.0, cut.intact_records), (last.clone(), RECORDS - 1, 0));
    assert_eq!(cut.bytes, damaged.len() as u64 - cut.position);

    let backups = open(&machine, &paths).cut(&cut, &CutOptions::default()).unwrap();
    assert_eq!(backups.len(), 1);
    let position = usize::try_from(cut.position).unwrap();
    assert_eq!(machine.content(&backups[0].path), &damaged[position..]);
    let report = verify_partition(&machine.sim.env(), dir_of(last), ID).unwrap();
    assert_eq!(report.findings, [], "nothing is wrong any more, the index included");

    machine.start().unwrap();
    assert_eq!(machine.records().unwrap(), numbers(0, RECORDS - 1));
    machine.append_numbers(RECORDS - 1, RECORDS + 5);
    machine.crash();
    assert_eq!(machine.records().unwrap()[..13], numbers(0, RECORDS - 1));
    assert!(machine.sim.fs.exists(&backups[0].path).unwrap(), "the server leaves the backup alone");
}

#[test]
fn intact_records_go_only_with_their_count() {
    let (mut machine, paths) = closed_log(SimEnv::new(1));
    let second_batch = machine.content(&paths[0]).len() / 7;
    flip(&machine, &paths[0], second_batch + 30);
    let cut = plan(&machine, &paths).unwrap();
    assert_eq!((cut.log_end.0, cut.later.clone()), (1, vec![paths[1].clone()]));
    assert_eq!(cut.intact_records, u64::try_from(RECORDS).unwrap() - 2);
    let before = image(&machine);
    let refused = |options: CutOptions| open(&machine, &paths).cut(&cut, &options).unwrap_err();
    let error = refused(CutOptions::default());
    assert!(matches!(error, RepairError::IntactFollow { records: 12 }), "{error}");
    let error = refused(CutOptions { discard_intact: Some(11), ..CutOptions::default() });
    assert!(matches!(error, RepairError::OtherCount { records: 12, said: 11 }), "{error}");
    assert_eq!(image(&machine), before, "a refusal changes nothing");

    let backups = open(&machine, &paths).cut(&cut, &consent(&cut)).unwrap();
    assert_eq!(backups.len(), 3, "the rest of one segment, and both files of the other: {backups:?}");
    machine.start().unwrap();
    assert_eq!(machine.records().unwrap(), numbers(0, 1));
    machine.append_numbers(1, 10);
}

#[test]
fn repaired_log_is_a_prefix_wherever_a_byte_is_flipped() {
    for config in [Machine::small_segments(), Machine::spaced_entries()] {
        let (machine, paths) = closed_log_of(SimEnv::new(1), config.clone());
        let pristine = image(&machine);
        for path in &paths {
            for position in 0..machine.content(path).len() {
                let (mut machine, paths) = closed_log_of(SimEnv::new(1), config.clone());
                flip(&machine, path, position);
                let cut = plan(&machine, &paths).unwrap();
                assert!(cut.path < *path || cut.position <= position as u64, "{cut:?}, byte {position}");
                open(&machine, &paths).cut(&cut, &consent(&cut)).unwrap();
                assert_eq!(plan(&machine, &paths), None, "byte {position}");
                machine.start().unwrap();
                let records = machine.records().unwrap();
                let count = i64::try_from(records.len()).unwrap();
                assert_eq!(count, cut.log_end.0, "byte {position}");
                assert_eq!(records, numbers(0, count), "byte {position}");
            }
        }
        assert_eq!(image(&machine), pristine);
    }
}

#[test]
fn a_log_that_is_too_short_is_accepted_as_it_is() {
    let (mut machine, paths) = closed_log(SimEnv::new(1));
    let last = paths.last().unwrap();
    let batches: Vec<_> = SegmentDump::open(&machine.sim.env(), last).unwrap().map(Result::unwrap).collect();
    let end = usize::try_from(batches[batches.len() - 2].position).unwrap();
    let shorter = machine.content(last)[..end].to_vec();
    machine.put_content(last, &shorter);
    let cut = plan(&machine, &paths).unwrap();
    assert!(cut.what.contains("ends here") || cut.what.contains("ends at"), "{}", cut.what);
    open(&machine, &paths).cut(&cut, &consent(&cut)).unwrap();
    machine.start().unwrap();
    assert_eq!(machine.records().unwrap(), numbers(0, RECORDS - 2));
}

#[test]
fn repair_that_is_cut_short_anywhere_is_finished_by_the_next() {
    let damaged = |seed| {
        let (machine, paths) = closed_log(SimEnv::new(seed));
        flip(&machine, &paths[0], 200);
        (machine, paths)
    };
    let repair = |machine: &Machine, paths: &[PathBuf]| -> Result<(), RepairError> {
        let repair = Repair::open(&machine.sim.env(), dir_of(&paths[0]), ID)?;
        let Some(cut) = repair.plan()? else { return Ok(()) };
        // Backups of an earlier attempt would be in the way beside the segments.
        let number = machine.sim.fs.operations();
        let backup = Some(PathBuf::from(format!("/backup-{number}")));
        repair.cut(&cut, &CutOptions { backup, ..consent(&cut) }).map(|_| ())
    };
    let (whole, paths) = damaged(0);
    let first = whole.sim.fs.operations();
    repair(&whole, &paths).unwrap();
    let operations = whole.sim.fs.operations() - first;
    assert!(operations > 10, "{operations}");
    for stop in 0..operations {
        for seed in 0..3 {
            let (mut machine, paths) = damaged(seed);
            machine.sim.fs.stop_after(stop);
            let _ = repair(&machine, &paths);
            machine.sim.fs.crash();
            repair(&machine, &paths).unwrap_or_else(|error| panic!("stop {stop}, seed {seed}: {error}"));
            machine.start().unwrap();
            assert_eq!(machine.records().unwrap(), numbers(0, 2), "stop {stop}, seed {seed}");
            let report = verify_partition(&machine.sim.env(), dir_of(&paths[0]), ID).unwrap();
            assert_eq!(report.findings, [], "stop {stop}, seed {seed}");
        }
    }
}

#[test]
fn producers_of_what_stays_are_still_known() {
    let mut machine = Machine::new(1, Machine::small_segments());
    for number in 0..10 {
        machine.try_append(&format!("record {number}"), stamp(7, number)).unwrap();
    }
    let paths = machine.log_paths();
    machine.store.take().unwrap().close().unwrap();
    let last = paths.last().unwrap();
    flip(&machine, last, machine.content(last).len() - 1);
    let cut = plan(&machine, &paths).unwrap();
    open(&machine, &paths).cut(&cut, &consent(&cut)).unwrap();
    machine.start().unwrap();
    let again = machine.try_append("record 8", stamp(7, 8)).unwrap();
    assert_eq!(again.base_offset.0, 8, "a duplicate is recognised");
    assert_eq!(machine.try_append("record 9", stamp(7, 9)).unwrap().base_offset.0, 9);
}

#[test]
fn a_log_dir_in_use_or_not_stopped_in_order_is_refused() {
    let (mut machine, paths) = closed_log(SimEnv::new(1));
    flip(&machine, &paths[1], 100);
    machine.start().unwrap();
    let error = Repair::open(&machine.sim.env(), dir_of(&paths[0]), ID).unwrap_err();
    assert!(matches!(error, RepairError::Log(LogError::Locked { .. })), "{error}");
    machine.sim.fs.kill();
    machine.store = None;
    let repair = open(&machine, &paths);
    let cut = repair.plan().unwrap().unwrap();
    let error = repair.cut(&cut, &consent(&cut)).unwrap_err();
    assert!(matches!(error, RepairError::NotStopped { .. }), "{error}");
}

#[test]
fn log_dir_without_a_clean_checkpoint_is_refused() {
    for is_there in [true, false] {
        let (mut machine, paths) = closed_log(SimEnv::new(1));
        flip(&machine, &paths[1], 100);
        machine.start().unwrap();
        machine.sim.fs.kill();
        machine.store = None;
        let checkpoint = Path::new(DIR).join("checkpoint");
        if is_there {
            flip(&machine, &checkpoint, 20);
        } else {
            machine.sim.fs.remove_file(&checkpoint).unwrap();
        }
        let repair = open(&machine, &paths);
        let cut = repair.plan().unwrap().unwrap();
        let error = repair.cut(&cut, &consent(&cut)).unwrap_err();
        assert!(matches!(error, RepairError::NotStopped { .. }), "{error}");
        drop(repair);
        // The way out: a start and a stop in order.
        machine.start().unwrap();
        machine.store.take().unwrap().close().unwrap();
        let repair = open(&machine, &paths);
        repair.cut(&repair.plan().unwrap().unwrap(), &consent(&cut)).unwrap();
    }
}

#[test]
fn repair_leaves_to_the_next_start_what_that_puts_right() {
    for has_checkpoint in [true, false] {
        let mut machine = Machine::new(1, Machine::small_segments());
        machine.append_numbers(0, 5);
        if has_checkpoint {
            machine.store().checkpoint().unwrap();
        }
        machine.append_numbers(5, 7);
        let paths = machine.log_paths();
        machine.sim.fs.kill();
        machine.store = None;
        flip(&machine, &paths[0], machine.content(&paths[0]).len() - 1);
        let report = verify_partition(&machine.sim.env(), dir_of(&paths[0]), ID).unwrap();
        let weights: Vec<_> = report.findings.iter().map(|finding| finding.weight.name()).collect();
        assert_eq!(weights, ["torn-tail"], "{report:?}");
        assert_eq!(plan(&machine, &paths), None, "a torn tail");
        machine.start().unwrap();
        assert_eq!(machine.records().unwrap(), numbers(0, 6));
    }
}

#[test]
fn an_index_that_a_crash_has_torn_is_no_damage() {
    let mut machine = Machine::new(1, Machine::small_segments());
    machine.append_numbers(0, 5);
    let paths = machine.log_paths();
    machine.sim.fs.kill();
    machine.store = None;
    let index = paths[0].with_extension("index");
    let file = machine.sim.fs.open(&index, OpenMode::ReadWrite).unwrap();
    file.set_len(file.len().unwrap() - 3).unwrap();
    let report = verify_partition(&machine.sim.env(), dir_of(&paths[0]), ID).unwrap();
    let weights: Vec<_> = report.findings.iter().map(|finding| finding.weight.name()).collect();
    assert_eq!(weights, ["torn-tail"], "{report:?}");
    machine.start().unwrap();
    assert_eq!(machine.records().unwrap(), numbers(0, 5));
}

#[test]
fn damage_below_the_log_start_is_nothing_to_cut_for() {
    let (mut machine, paths) = closed_log(SimEnv::new(1));
    machine.start().unwrap();
    machine.log().delete_records(riverrun_types::Offset(3)).unwrap();
    machine.store.take().unwrap().close().unwrap();
    flip(&machine, &paths[0], 100);
    assert_eq!(plan(&machine, &paths), None);
    let report = verify_partition(&machine.sim.env(), dir_of(&paths[0]), ID).unwrap();
    let weights: Vec<_> = report.findings.iter().map(|finding| finding.weight.name()).collect();
    assert_eq!(weights, ["below-log-start"], "{report:?}");
}

#[test]
fn log_with_damage_below_its_start_is_cut_like_any_other() {
    // In the records of the second batch, and in its header.
    for offset in [70, 16] {
        let (mut machine, paths) = closed_log(SimEnv::new(1));
        machine.start().unwrap();
        machine.log().delete_records(riverrun_types::Offset(3)).unwrap();
        machine.store.take().unwrap().close().unwrap();
        let batches: Vec<_> =
            SegmentDump::open(&machine.sim.env(), &paths[0]).unwrap().map(Result::unwrap).collect();
        let last = batches[batches.len() - 1].header.base_offset();
        flip(&machine, &paths[0], usize::try_from(batches[1].position).unwrap() + offset);
        flip(&machine, &paths[0], machine.content(&paths[0]).len() - 1);
        let cut = plan(&machine, &paths).unwrap();
        assert_eq!((&cut.path, cut.log_end), (&paths[0], last), "{offset}");
        open(&machine, &paths).cut(&cut, &consent(&cut)).unwrap();
        let report = verify_partition(&machine.sim.env(), dir_of(&paths[0]), ID).unwrap();
        let weights: Vec<_> = report.findings.iter().map(|finding| finding.weight.name()).collect();
        assert_eq!(weights, ["below-log-start"], "{offset}: {report:?}");
        machine.start().unwrap();
        assert_eq!(machine.records().unwrap(), numbers(3, last.0), "{offset}");
    }
}

#[test]
fn a_log_without_its_beginning_is_refused() {
    let (machine, paths) = closed_log(SimEnv::new(1));
    machine.sim.fs.remove_file(&paths[0]).unwrap();
    let error = open(&machine, &paths).plan().unwrap_err();
    assert!(matches!(error, RepairError::NoBeginning { .. }), "{error}");
}

#[test]
fn a_backup_overwrites_nothing() {
    let (machine, paths) = closed_log(SimEnv::new(1));
    let last = &paths[1];
    flip(&machine, last, machine.content(last).len() - 1);
    let cut = plan(&machine, &paths).unwrap();
    let name = format!("{}.cut-{}", last.file_name().unwrap().to_str().unwrap(), cut.position);
    let elsewhere = PathBuf::from("/backups");
    machine.sim.fs.create_dir_all(&elsewhere).unwrap();
    machine.put_content(&elsewhere.join(&name), b"of another day");
    let options = CutOptions { backup: Some(elsewhere.clone()), ..consent(&cut) };
    let error = open(&machine, &paths).cut(&cut, &options).unwrap_err();
    assert!(
        matches!(&error, RepairError::BackupExists { path } if *path == elsewhere.join(&name)),
        "{error}"
    );
    assert_eq!(machine.content(&elsewhere.join(&name)), b"of another day");
    assert_eq!(plan(&machine, &paths), Some(cut), "nothing was cut");
}
