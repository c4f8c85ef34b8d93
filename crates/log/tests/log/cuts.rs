//! Reports of the tools that need no server about a log that was cut: entries from before the cut are not asked for,
//! and those from after it are missed.

use std::path::{Path, PathBuf};

use riverrun_env::FileSystem;
use riverrun_log::config::LogConfig;
use riverrun_log::{
    Aside, Chunk, Cut, LogDirFiles, LogError, Repair, VerifyReport, Weight, verify_journal,
    verify_partition_of,
};
use riverrun_types::Offset;

use crate::machine::{DIR, ID, Machine};

const JOURNAL: &str = "/journal";

/// A log that was cut at offset 3 and filled again up to `end`, and was never under a checkpoint. All of it is in its segments.
fn cut_log(end: i64) -> Machine {
    let machine = Machine::synced(1, &LogConfig::default());
    machine.append_numbers(0, 6);
    machine.log().truncate_to(Offset(3)).unwrap();
    for number in 3..end {
        assert_eq!(machine.append(&value_after(number)), Offset(number));
    }
    machine.store().settle().unwrap();
    machine
}

fn value_after(number: i64) -> String {
    format!("record {number} after the cut")
}

fn kill(machine: &mut Machine) {
    machine.sim.fs.kill();
    machine.store = None;
}

/// Flips a bit of a value in each of the files that has it.
fn damage(machine: &Machine, files: &[PathBuf], value: &str) {
    let mut is_found = false;
    for path in files {
        let mut bytes = machine.content(path);
        if let Some(at) = bytes.windows(value.len()).position(|window| window == value.as_bytes()) {
            bytes[at] ^= 1;
            machine.put_content(path, &bytes);
            is_found = true;
        }
    }
    assert!(is_found, "{value} is in none of {files:?}");
}

fn journal_files(machine: &Machine) -> Vec<PathBuf> {
    let entries = machine.sim.fs.read_dir(Path::new(JOURNAL)).unwrap();
    let names = entries.into_iter().map(|entry| entry.name.into_string().unwrap());
    names.filter(|name| name.ends_with(".journal")).map(|name| Path::new(JOURNAL).join(name)).collect()
}

fn verified(machine: &Machine, dir: &Path, aside: &[Aside]) -> VerifyReport {
    let files = LogDirFiles::read(&machine.sim.env(), Path::new(DIR)).unwrap();
    verify_partition_of(&machine.sim.env(), dir, ID, Some(&files), aside, &mut |_| {}).unwrap()
}

fn weights(report: &VerifyReport) -> Vec<Weight> {
    report.findings.iter().map(|finding| finding.weight).collect()
}

fn aside(cuts: u32, start: i64, end: i64) -> Aside {
    let path = Path::new("/journal/held-x-00000000").to_path_buf();
    let (start, end) = (Offset(start), Offset(end));
    Aside { path, position: 32, partition: ID, cuts, entries: 1, bytes: 70, start, end, is_end_known: true }
}

#[test]
fn damage_below_a_cut_is_found_in_the_segments() {
    let mut machine = cut_log(5);
    let (dir, paths) = (machine.partition_dir(), machine.log_paths());
    kill(&mut machine);
    assert!(!weights(&verified(&machine, &dir, &[])).contains(&Weight::Damage));
    damage(&machine, &paths, "record 1");
    let report = verified(&machine, &dir, &[]);
    assert!(weights(&report).contains(&Weight::Damage), "{report:?}");
    // The next start has no other copy of it.
    machine.start().unwrap();
    let error = machine.records().unwrap_err();
    assert!(matches!(error, LogError::Corrupt { .. }), "{error}");
    let is_kept = |path: &PathBuf| machine.content(path).windows(8).any(|window| window == b"record 2");
    assert!(paths.iter().any(is_kept), "the records behind the damage are intact, and were synced");
    machine.store.take().unwrap().close().unwrap();
    let planned = Repair::open(&machine.sim.env(), &dir, ID).unwrap().plan().unwrap();
    assert!(matches!(planned, Some(Cut { log_end: Offset(1), .. })), "{planned:?}");
}

#[test]
fn records_after_a_cut_are_a_torn_tail_in_segments_alone() {
    let mut machine = cut_log(5);
    let (dir, paths) = (machine.partition_dir(), machine.log_paths());
    let records = machine.records().unwrap();
    kill(&mut machine);
    damage(&machine, &paths, &value_after(4));
    let report = verified(&machine, &dir, &[]);
    assert!(weights(&report).iter().all(|weight| *weight == Weight::TornTail), "{report:?}");
    assert!(!report.findings.is_empty());
    machine.start().unwrap();
    assert_eq!(machine.records().unwrap(), records, "the journal has it");
}

#[test]
fn a_log_that_lost_what_a_cut_had_left_is_damaged() {
    let mut machine = cut_log(3);
    let (dir, paths) = (machine.partition_dir(), machine.log_paths());
    kill(&mut machine);
    let [path, _empty] = &paths[..] else { panic!("{paths:?}") };
    let intact = machine.content(path);
    let report = verified(&machine, &dir, &[]);
    assert_eq!(report.batches, 3, "no cut record is in the files any more");
    let batch_bytes = usize::try_from(report.bytes).unwrap() / 3;
    machine.put_content(path, &intact[..2 * batch_bytes]);
    assert!(weights(&verified(&machine, &dir, &[])).contains(&Weight::Damage));
    machine.sim.fs.remove_file(path).unwrap();
    assert!(weights(&verified(&machine, &dir, &[])).contains(&Weight::Damage));
}

#[test]
fn entries_aside_from_before_a_cut_are_not_asked_for() {
    for is_covered in [false, true] {
        let mut machine = cut_log(4);
        let dir = machine.partition_dir();
        if is_covered {
            machine.store().checkpoint().unwrap();
        }
        kill(&mut machine);
        let found = |aside: &[Aside]| {
            let mut weights = weights(&verified(&machine, &dir, aside));
            // The index of records above the checkpoint is not complete yet.
            weights.retain(|weight| *weight != Weight::TornTail);
            weights
        };
        assert_eq!(
            found(&[aside(0, 5, 6)]),
            [Weight::Aside],
            "the log does not reach up to it, and need not"
        );
        assert_eq!(found(&[aside(0, 0, 6), aside(1, 3, 5)]), [Weight::Aside; 2]);
        let [none, one] = [Weight::Aside, Weight::Damage];
        assert_eq!(found(&[aside(1, 5, 6)]), [none, one]);
        assert_eq!(found(&[aside(0, 0, 6), aside(1, 5, 6)]), [none, none, one], "cut records bridge no gap");
        assert_eq!(found(&[aside(1, 3, 5), aside(1, 6, 7)]), [none, none, one]);
        assert_eq!(found(&[aside(2, 4, 5)]), [none, one], "that cut is unknown");
    }
}

#[test]
fn entries_aside_are_told_apart_by_the_cuts_before_them() {
    let mut machine = cut_log(5);
    let dir = machine.partition_dir();
    kill(&mut machine);
    damage(&machine, &journal_files(&machine), &value_after(3));
    machine.start().unwrap();
    assert!(matches!(machine.records().unwrap_err(), LogError::Corrupt { .. }));
    kill(&mut machine);
    let report = verify_journal(&machine.sim.env(), Path::new(JOURNAL)).unwrap();
    let told = |it: &Aside| (it.cuts, it.entries, it.start.0, it.end.0, it.is_end_known);
    let told: Vec<_> = report.aside.iter().map(told).collect();
    assert_eq!(told, [(0, 6, 0, 6, true), (1, 1, 3, 4, false), (1, 1, 4, 5, true)]);
    let report = verified(&machine, &dir, &report.aside);
    assert!(weights(&report).iter().all(|weight| *weight < Weight::Damage), "{report:?}");
}

#[test]
fn range_read_before_a_cut_is_never_written_over() {
    let machine = Machine::synced(1, &LogConfig::default());
    let value = |number: i64, life: &str| format!("{:x>6000}", format!("record {number} {life}"));
    for number in 0..4 {
        assert_eq!(machine.append(&value(number, "before")), Offset(number));
    }
    machine.store().settle().unwrap();
    for cut_at in [2, 0] {
        let log = machine.log();
        let slice = log.read(Offset(cut_at), 1 << 20, Offset(4), true).unwrap();
        let chunk = &slice.chunks[0];
        assert!(matches!(chunk, Chunk::File { .. }), "{chunk:?}");
        let handed_out = chunk.to_bytes().unwrap();
        assert_eq!(log.truncate_to(Offset(cut_at)).unwrap(), Offset(cut_at));
        for number in cut_at..4 {
            assert_eq!(machine.append(&value(number, "behind")), Offset(number));
        }
        machine.store().settle().unwrap();
        // A part of the file that is gone is sent to nobody.
        if let Ok(bytes) = chunk.to_bytes() {
            assert!(bytes == handed_out, "a cut at {cut_at}");
        }
    }
}
