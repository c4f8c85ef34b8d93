//! Flipped, cut, swapped, emptied and missing files: found, or harmless, and only that partition suffers.

use std::path::{Path, PathBuf};

use riverrun_env::FileSystem;
use riverrun_log::config::LogConfig;
use riverrun_log::{LogError, VerifyReport, VerifyStep, Weight, verify_partition, verify_partition_of};
use riverrun_types::{ErrorKind, Offset, PartitionId};

use crate::machine::{ID, Machine, batch_at, numbers, put};

const OTHER: PartitionId = PartitionId { index: 1, ..ID };

/// A log of several segments that was closed in order, and its paths.
fn closed_log() -> (Machine, Vec<PathBuf>) {
    closed_log_of(Machine::small_segments())
}

fn closed_log_of(config: LogConfig) -> (Machine, Vec<PathBuf>) {
    let mut machine = Machine::new(1, config);
    machine.append_numbers(0, 30);
    let dir = machine.partition_dir();
    let paths = machine.files().iter().map(|name| dir.join(name)).collect();
    machine.store.take().unwrap().close().unwrap();
    (machine, paths)
}

/// Those of the paths that end with `kind`.
fn of_kind<'a>(paths: &'a [PathBuf], kind: &str) -> impl Iterator<Item = &'a PathBuf> {
    paths.iter().filter(move |path| path.extension().is_some_and(|is| is == kind))
}

fn verify(machine: &Machine, id: PartitionId, dir: &Path) -> VerifyReport {
    verify_partition(&machine.sim.env(), dir, id).unwrap()
}

/// Starts on damaged files, reads everything, and puts the intact file back.
fn read_damaged(machine: &mut Machine, path: &Path, damaged: &[u8]) -> Result<Vec<(i64, String)>, LogError> {
    let intact = machine.content(path);
    machine.put_content(path, damaged);
    machine.start().unwrap();
    let result = machine.records();
    machine.sim.fs.kill();
    machine.store = None;
    machine.put_content(path, &intact);
    result
}

#[test]
fn verification_finds_nothing_in_an_intact_log() {
    let (machine, paths) = closed_log();
    let report = verify(&machine, ID, paths[0].parent().unwrap());
    assert_eq!(report.findings, []);
    assert_eq!((report.segments, report.batches, report.records), (of_kind(&paths, "log").count(), 30, 30));
}

#[test]
fn verification_tells_of_each_segment_and_of_the_bytes_before() {
    let (machine, paths) = closed_log();
    let mut steps = Vec::new();
    let dir = paths[0].parent().unwrap();
    verify_partition_of(&machine.sim.env(), dir, ID, None, &[], &mut |step| steps.push(step)).unwrap();
    let sizes: Vec<u64> = of_kind(&paths, "log").map(|path| machine.content(path).len() as u64).collect();
    let passed = |segment: usize| sizes[..segment - 1].iter().sum();
    let wanted: Vec<_> = (1..=sizes.len())
        .map(|segment| VerifyStep {
            segment,
            segments: sizes.len(),
            bytes: passed(segment),
            bytes_total: sizes.iter().sum(),
        })
        .collect();
    assert!(sizes.len() > 2);
    assert_eq!(steps, wanted);
}

#[test]
fn verification_finds_every_flipped_bit_of_every_file() {
    for config in [Machine::small_segments(), Machine::spaced_entries()] {
        let (machine, paths) = closed_log_of(config);
        let dir = paths[0].parent().unwrap();
        for path in &paths {
            let intact = machine.content(path);
            for position in 0..intact.len() {
                let mut damaged = intact.clone();
                damaged[position] ^= 1 << (position % 8);
                machine.put_content(path, &damaged);
                let report = verify(&machine, ID, dir);
                assert!(!report.findings.is_empty(), "{} byte {position}", path.display());
                let finding = &report.findings[0];
                assert_eq!(finding.path.file_stem(), path.file_stem(), "byte {position}: {finding:?}");
                let is_log = path.extension().unwrap() == "log";
                assert!(!is_log || finding.weight == Weight::Damage, "byte {position}: {finding:?}");
            }
            machine.put_content(path, &intact);
        }
    }
}

#[test]
fn verification_finds_every_cut() {
    let (machine, paths) = closed_log();
    let dir = paths[0].parent().unwrap();
    for path in &paths {
        let intact = machine.content(path);
        for len in 0..intact.len() {
            machine.put_content(path, &intact[..len]);
            let is_active_index = Some(path) == of_kind(&paths, "index").last();
            let is_harmless = is_active_index && len >= 44 && (len - 44) % 24 == 0;
            let report = verify(&machine, ID, dir);
            assert_eq!(report.findings.is_empty(), is_harmless, "{} cut at {len}", path.display());
        }
        machine.put_content(path, &intact);
    }
}

#[test]
fn log_file_cut_anywhere_is_corruption_that_names_the_file() {
    let (mut machine, paths) = closed_log();
    for path in of_kind(&paths, "log") {
        let intact = machine.content(path);
        for len in 0..intact.len() {
            let error = read_damaged(&mut machine, path, &intact[..len]).unwrap_err();
            assert!(matches!(error, LogError::Corrupt { .. }), "cut at {len}: {error}");
            assert_eq!(error.kind(), ErrorKind::GiveUp);
            assert!(error.to_string().contains(path.to_str().unwrap()), "cut at {len}: {error}");
        }
    }
}

#[test]
fn flipped_cut_or_missing_index_is_rebuilt_without_loss() {
    let (mut machine, paths) = closed_log();
    for path in paths.iter().filter(|path| path.extension().unwrap() == "index") {
        let intact = machine.content(path);
        for position in 0..intact.len() {
            let mut damaged = intact.clone();
            damaged[position] ^= 0x20;
            match read_damaged(&mut machine, path, &damaged) {
                Ok(records) => assert_eq!(records, numbers(0, 30), "byte {position}"),
                // A flip in the version makes an unknown version.
                Err(error) => assert!(error.to_string().contains("version"), "byte {position}: {error}"),
            }
            let records = read_damaged(&mut machine, path, &intact[..position]).unwrap();
            assert_eq!(records, numbers(0, 30), "cut at {position}");
        }
        machine.sim.fs.remove_file(path).unwrap();
        machine.start().unwrap();
        assert_eq!(machine.records().unwrap(), numbers(0, 30));
        let report = verify(&machine, ID, path.parent().unwrap());
        assert_eq!(report.findings, [], "the rebuilt index is whole");
        machine.store.take().unwrap().close().unwrap();
    }
}

#[test]
fn a_missing_segment_is_found_wherever_it_was() {
    let (mut machine, paths) = closed_log();
    for path in of_kind(&paths, "log") {
        let intact = machine.content(path);
        let index = path.with_extension("index");
        let intact_index = machine.content(&index);
        machine.sim.fs.remove_file(path).unwrap();
        machine.start().unwrap();
        let error = machine.records().unwrap_err();
        assert!(matches!(error, LogError::Corrupt { .. }), "{}: {error}", path.display());
        machine.sim.fs.kill();
        machine.store = None;
        machine.put_content(path, &intact);
        machine.put_content(&index, &intact_index);
    }
}

#[test]
fn a_corrupt_partition_is_offline_and_the_others_go_on() {
    let (mut machine, paths) = closed_log();
    let last = of_kind(&paths, "log").last().unwrap();
    let intact = machine.content(last);
    machine.put_content(last, &intact[..intact.len() - 1]);
    machine.start().unwrap();
    let first = machine.log().log_end_offset().unwrap_err().to_string();
    assert!(machine.log().failure().is_some());
    machine.put_content(last, &intact);
    assert_eq!(machine.log().log_end_offset().unwrap_err().to_string(), first, "offline until a restart");
    let batch = batch_at(&[(0, "x")], riverrun_records::BatchOptions::default());
    put(&machine.partition(OTHER), &batch, machine.append_options()).unwrap();
    machine.restart();
    assert_eq!(machine.records().unwrap(), numbers(0, 30));
}

#[test]
fn files_of_another_partition_are_found() {
    let mut machine = Machine::new(1, Machine::small_segments());
    machine.append_numbers(0, 8);
    for number in 0..8 {
        let value = format!("secret {number}");
        let batch = batch_at(&[(machine.now().0, &value)], riverrun_records::BatchOptions::default());
        put(&machine.partition(OTHER), &batch, machine.append_options()).unwrap();
    }
    let (ours, theirs) = (machine.partition_dir(), machine.partition(OTHER).path());
    machine.store.take().unwrap().close().unwrap();
    let name = "00000000000000000000";
    let foreign_log = machine.content(&theirs.join(format!("{name}.log")));
    let foreign_index = machine.content(&theirs.join(format!("{name}.index")));
    machine.put_content(&ours.join(format!("{name}.index")), &foreign_index);
    let report = verify(&machine, ID, &ours);
    assert_eq!(report.findings[0].path, ours.join(format!("{name}.index")), "{report:?}");
    machine.start().unwrap();
    assert_eq!(machine.records().unwrap(), numbers(0, 8), "only the index was foreign, and is rebuilt");
    machine.store.take().unwrap().close().unwrap();

    // The same offsets, the same sizes, every batch with a right CRC of its own.
    machine.put_content(&ours.join(format!("{name}.log")), &foreign_log);
    let report = verify(&machine, ID, &ours);
    assert!(report.findings.iter().any(|finding| finding.what.contains("running checksum")), "{report:?}");
}

#[test]
fn index_of_another_partitions_longer_segment_is_made_anew() {
    let mut machine = Machine::new(1, LogConfig::default());
    machine.append_numbers(0, 3);
    let long = "x".repeat(10_000);
    for _ in 0..3 {
        let batch = batch_at(&[(machine.now().0, &long)], riverrun_records::BatchOptions::default());
        put(&machine.partition(OTHER), &batch, machine.append_options()).unwrap();
    }
    let (ours, theirs) = (machine.partition_dir(), machine.partition(OTHER).path());
    machine.store.take().unwrap().close().unwrap();
    let name = "00000000000000000000.index";
    machine.put_content(&ours.join(name), &machine.content(&theirs.join(name)));
    machine.start().unwrap();
    assert_eq!(machine.records().unwrap(), numbers(0, 3));
}

/// With its index a segment has right checksums everywhere, so that an index made anew would vouch for it.
#[test]
fn segment_in_another_partitions_directory_is_not_served_there() {
    let mut machine = Machine::new(1, Machine::small_segments());
    machine.append_numbers(0, 30);
    for number in 0..30 {
        let value = format!("secret {number}");
        let batch = batch_at(&[(machine.now().0, &value)], riverrun_records::BatchOptions::default());
        put(&machine.partition(OTHER), &batch, machine.append_options()).unwrap();
    }
    let (ours, theirs) = (machine.partition_dir(), machine.partition(OTHER).path());
    let logs: Vec<_> = machine.log_paths().iter().map(|path| path.file_name().unwrap().to_owned()).collect();
    machine.store.take().unwrap().close().unwrap();
    assert!(logs.len() > 2, "the first, others, and the last");
    for name in logs {
        let pair = [PathBuf::from(&name), Path::new(&name).with_extension("index")];
        let intact = pair.clone().map(|name| machine.content(&ours.join(name)));
        for name in &pair {
            machine.put_content(&ours.join(name), &machine.content(&theirs.join(name)));
        }
        let report = verify(&machine, ID, &ours);
        let whose = format!("the index of partition {OTHER}");
        assert!(report.findings.iter().any(|finding| finding.what.contains(&whose)), "{report:?}");
        for _ in 0..2 {
            machine.start().unwrap();
            let error = machine.records().unwrap_err();
            let LogError::Corrupt { path, what, .. } = &error else { panic!("{name:?}: {error}") };
            assert_eq!(*path, ours.join(&name));
            assert!(what.contains("lie in the wrong place") && what.contains(&OTHER.to_string()), "{what}");
            machine.sim.fs.kill();
            machine.store = None;
        }
        for (name, intact) in pair.iter().zip(&intact) {
            machine.put_content(&ours.join(name), intact);
        }
        machine.start().unwrap();
        assert_eq!(machine.records().unwrap(), numbers(0, 30), "all is back where its files are");
        machine.store.take().unwrap().close().unwrap();
    }
}

#[test]
fn a_torn_tail_is_cut_and_what_lies_below_the_checkpoint_never() {
    let mut machine = Machine::new(1, Machine::small_segments());
    machine.append_numbers(0, 20);
    machine.store().checkpoint().unwrap();
    machine.append_numbers(20, 24);
    let last = machine.log_paths().pop().unwrap();
    let intact = machine.content(&last);
    for position in 0..intact.len() {
        let mut damaged = intact.clone();
        damaged[position] ^= 0x04;
        machine.put_content(&last, &damaged);
        machine.kill();
        match machine.records() {
            Ok(records) => {
                let end = i64::try_from(records.len()).unwrap();
                // A flip of the leader epoch that makes it larger cannot be told from a later epoch up here.
                assert!((20..=24).contains(&end), "byte {position}: {end}");
                assert_eq!(records, numbers(0, end), "byte {position}");
            }
            Err(error) => {
                let LogError::Corrupt { path, position: found, .. } = &error else { panic!("{error}") };
                assert!(*path == last && *found <= position as u64, "byte {position}: {error}");
            }
        }
        machine.sim.fs.kill();
        machine.store = None;
        machine.put_content(&last, &intact);
        machine.start().unwrap();
    }
    assert_eq!(machine.log().log_end_offset().unwrap(), Offset(24));
}
