//! Bad sectors in segments and their indexes: records around them are served, one place is reported until it is well or
//! gone, and other partitions are not affected.

use std::path::{Path, PathBuf};
use std::time::Duration;

use riverrun_env::FileSystem;
use riverrun_log::compaction::execute::{CleanerOptions, Unhindered};
use riverrun_log::config::{CleanupPolicy, LogConfig};
use riverrun_log::producer_state::AppendOrigin;
use riverrun_log::{
    CompactOptions, CutOptions, LogDirFiles, LogError, ReadError, Repair, SegmentDump, Weight,
    verify_partition,
};
use riverrun_records::ProducerStamp;
use riverrun_types::{Offset, PartitionId};

use crate::machine::{DIR, ID, Machine, numbers};

const OTHER: PartitionId = PartitionId { index: 1, ..ID };
const RECORDS: i64 = 30;
/// The batch that is hit.
const HIT: i64 = 3;

fn position_of(machine: &Machine, path: &Path, offset: i64) -> u64 {
    let mut batches = SegmentDump::open(&machine.sim.env(), path).unwrap().map(Result::unwrap);
    batches.find(|batch| batch.header.base_offset() == Offset(offset)).unwrap().position
}

/// Breaks the sector with some bytes of a batch, from its byte `from` on; returns the position.
fn break_batch(machine: &Machine, path: &Path, offset: i64, from: u64) -> u64 {
    let position = position_of(machine, path, offset) + from;
    machine.sim.fs.break_sectors(path, position..position + 10).unwrap();
    position
}

/// The offset of the first entry in a segment's index, if the segment begins at 0.
fn first_entry(machine: &Machine, path: &Path) -> i64 {
    let index = machine.content(&path.with_extension("index"));
    u32::from_be_bytes(index[44..48].try_into().unwrap()).into()
}

fn heal(machine: &Machine, path: &Path) {
    machine.sim.fs.break_sectors(path, 0..0).unwrap();
}

fn read(machine: &Machine, offset: i64) -> Result<Offset, ReadError> {
    machine.log().read(Offset(offset), 1 << 20, Offset(RECORDS), true).map(|slice| slice.next_offset)
}

fn check_unreadable(error: &LogError, file: &Path, at: u64) {
    let LogError::Unreadable { path, position } = error else { panic!("{error}") };
    assert_eq!((&**path, *position), (file, at));
}

/// Reads the hit batch; the place is reported after that.
fn meet(machine: &Machine, path: &Path, position: u64) {
    let Err(ReadError::Storage(error)) = read(machine, HIT) else { panic!("it cannot be read") };
    check_unreadable(&error, path, position);
    check_told(machine, path, position);
}

fn check_told(machine: &Machine, path: &Path, position: u64) {
    let told = machine.store().unreadable();
    let [(ID, error)] = &told[..] else { panic!("{told:?}") };
    check_unreadable(error, path, position);
}

fn is_told(machine: &Machine) -> bool {
    !machine.store().unreadable().is_empty()
}

fn weights(machine: &Machine, path: &Path) -> Vec<(PathBuf, Weight)> {
    let report = verify_partition(&machine.sim.env(), path.parent().unwrap(), ID).unwrap();
    report.findings.into_iter().map(|finding| (finding.path, finding.weight)).collect()
}

#[test]
fn bad_sector_is_reported_until_read_and_the_rest_is_served() {
    for from in [0, 30, 70] {
        let (machine, paths) = Machine::reopened(Machine::small_segments(), RECORDS);
        let position = break_batch(&machine, &paths[0], HIT, from);
        assert_eq!(read(&machine, 0).unwrap(), Offset(HIT), "the batch before");
        assert!(!is_told(&machine), "no read has met it");
        meet(&machine, &paths[0], position);
        for offset in (0..RECORDS).filter(|offset| *offset != HIT) {
            let next = read(&machine, offset).unwrap();
            assert!(next > Offset(offset) && (offset > HIT || next <= Offset(HIT)), "{offset}: {next}");
        }
        assert!(machine.log().failure().is_none() && machine.store().damaged().is_empty());
        assert_eq!(machine.append("goes on"), Offset(RECORDS));
        check_told(&machine, &paths[0], position);
        heal(&machine, &paths[0]);
        assert!(read(&machine, HIT + 1).unwrap() > Offset(HIT + 1), "not the hit batch");
        check_told(&machine, &paths[0], position);
        assert_eq!(machine.records().unwrap()[..30], numbers(0, RECORDS));
        assert!(!is_told(&machine));
    }
}

#[test]
fn own_bytes_are_read_from_disk_before_the_place_is_forgotten() {
    let machine = Machine::new(1, Machine::small_segments());
    machine.append_numbers(0, RECORDS);
    let path = machine.log_paths().remove(0);
    let position = break_batch(&machine, &path, HIT, 0);
    let tell = || machine.log().read(Offset(HIT), 1, Offset(RECORDS), true);
    assert!(tell().is_err());
    check_told(&machine, &path, position);
    assert_eq!(read(&machine, 0).unwrap(), Offset(HIT));
    assert!(tell().is_err());
    check_told(&machine, &path, position);
    heal(&machine, &path);
    assert_eq!(machine.records().unwrap(), numbers(0, RECORDS));
    assert!(!is_told(&machine));
}

#[test]
fn a_log_that_was_closed_meanwhile_is_still_told_of() {
    let (machine, paths) = Machine::reopened(Machine::small_segments(), RECORDS);
    let position = break_batch(&machine, &paths[0], HIT, 70);
    meet(&machine, &paths[0], position);
    machine.store().close_idle(0, Duration::ZERO);
    assert_eq!(machine.store().close_idle(0, Duration::ZERO), 1);
    check_told(&machine, &paths[0], position);
    assert_eq!(read(&machine, 0).unwrap(), Offset(HIT));
    check_told(&machine, &paths[0], position);
    heal(&machine, &paths[0]);
    assert_eq!(machine.records().unwrap(), numbers(0, RECORDS));
    assert!(!is_told(&machine));
}

#[test]
fn scrub_reports_unreadable_segments_and_reads_the_others() {
    let (machine, paths) = Machine::reopened(Machine::small_segments(), RECORDS);
    let position = break_batch(&machine, &paths[0], HIT, 70);
    let scrubbed = machine.log().scrub(Offset::ZERO, u64::MAX, &Unhindered).unwrap();
    assert_eq!((scrubbed.unreadable, scrubbed.segments), (1, paths.len() - 2));
    check_told(&machine, &paths[0], position);
    heal(&machine, &paths[0]);
    let scrubbed = machine.log().scrub(Offset::ZERO, u64::MAX, &Unhindered).unwrap();
    assert_eq!((scrubbed.unreadable, scrubbed.segments), (0, paths.len() - 1));
    assert!(!is_told(&machine));

    break_batch(&machine, &paths[0], HIT, 70);
    let mut bytes = machine.content(&paths[1]);
    bytes[70] ^= 1;
    machine.put_content(&paths[1], &bytes);
    let error = machine.log().scrub(Offset::ZERO, u64::MAX, &Unhindered).unwrap_err();
    assert!(matches!(&error, LogError::Corrupt { path, .. } if *path == paths[1]), "{error}");
    assert!(!is_told(&machine), "it is offline");
}

#[test]
fn a_scrub_that_meets_a_dead_device_fails_its_log_dir() {
    let (machine, paths) = Machine::reopened(Machine::small_segments(), RECORDS);
    machine.log().scrub(Offset::ZERO, u64::MAX, &Unhindered).unwrap();
    let dir = paths[0].parent().unwrap().parent().unwrap().parent().unwrap();
    machine.sim.fs.kill_device(Some(dir)).unwrap();
    let error = machine.log().scrub(Offset::ZERO, u64::MAX, &Unhindered).unwrap_err();
    assert!(matches!(error, LogError::DirFailed { .. }), "{error}");
    assert!(!is_told(&machine), "the whole dir is");
}

#[test]
fn bad_sector_below_the_log_start_does_no_harm() {
    let (machine, paths) = Machine::reopened(Machine::small_segments(), RECORDS);
    let position = break_batch(&machine, &paths[0], HIT, 70);
    meet(&machine, &paths[0], position);
    machine.log().delete_records(Offset(HIT + 1)).unwrap();
    assert!(!is_told(&machine));
    let scrubbed = machine.log().scrub(Offset::ZERO, u64::MAX, &Unhindered).unwrap();
    assert_eq!((scrubbed.unreadable, scrubbed.segments), (0, paths.len() - 1));
    assert!(!is_told(&machine));
}

#[test]
fn a_place_is_forgotten_with_its_segment() {
    let (machine, paths) =
        Machine::reopened(LogConfig { retention_bytes: Some(1000), ..Machine::small_segments() }, RECORDS);
    let position = break_batch(&machine, &paths[0], HIT, 70);
    meet(&machine, &paths[0], position);
    assert!(machine.log().apply_retention(machine.now(), Offset(RECORDS)).unwrap().segments > 0);
    assert!(!is_told(&machine), "retention");

    let (machine, paths) = Machine::reopened(Machine::small_segments(), RECORDS);
    let position = break_batch(&machine, &paths[0], HIT, 70);
    meet(&machine, &paths[0], position);
    machine.store().delete(ID, 0).unwrap();
    assert!(!is_told(&machine), "deletion");
}

#[test]
fn compaction_keeps_a_bad_sector_until_the_segment_goes() {
    let cleanup = CleanupPolicy { delete: false, compact: true };
    let mut machine = Machine::new(1, LogConfig { cleanup, ..Machine::small_segments() });
    for _ in 0..RECORDS {
        machine.append("again and again");
    }
    machine.restart();
    machine.log().ensure_open().unwrap();
    let path = machine.log_paths().remove(0);
    let position = break_batch(&machine, &path, HIT, 70);
    let compact = || {
        let cleaner = CleanerOptions { dedupe_buffer_bytes: 10_000, load_factor: 0.9 };
        let (now, high_watermark) = (machine.now(), Offset(RECORDS));
        machine.log().compact(CompactOptions {
            now,
            high_watermark,
            origin: AppendOrigin::Client,
            cleaner,
            control: &Unhindered,
        })
    };
    check_unreadable(&compact().unwrap_err(), &path, position);
    check_told(&machine, &path, position);
    heal(&machine, &path);
    assert!(compact().unwrap().unwrap().stats.records_after < 3);
    assert!(!is_told(&machine));
}

#[test]
fn lookup_by_time_that_meets_a_bad_sector_takes_nothing_offline() {
    let (machine, paths) =
        Machine::reopened(LogConfig { index_interval_bytes: 1 << 20, ..Machine::small_segments() }, RECORDS);
    let position = break_batch(&machine, &paths[0], 0, 70);
    let error = machine.log().offset_for_timestamp(machine.now()).unwrap_err();
    check_unreadable(&error, &paths[0], position);
    check_told(&machine, &paths[0], position);
    assert!(machine.log().failure().is_none());
}

#[test]
fn start_passes_a_bad_sector_only_below_the_checkpoint() {
    for is_covered in [true, false] {
        let mut machine = Machine::new(1, Machine::small_segments());
        machine.append_numbers(0, RECORDS);
        machine.try_append_to(OTHER, "other", ProducerStamp::NONE).unwrap();
        if is_covered {
            machine.store().checkpoint().unwrap();
        }
        let path = machine.log_paths().remove(0);
        let position = break_batch(&machine, &path, HIT, 70);
        machine.kill();
        assert_eq!(machine.records_of(OTHER).unwrap().len(), 1);
        if !is_covered {
            check_unreadable(&machine.log().ensure_open().unwrap_err(), &path, position);
            check_told(&machine, &path, position);
            heal(&machine, &path);
            machine.log().ensure_open().unwrap();
            assert!(!is_told(&machine));
            assert_eq!(machine.records().unwrap(), numbers(0, RECORDS), "nothing was cut");
            continue;
        }
        assert_eq!(read(&machine, 0).unwrap(), Offset(HIT));
        meet(&machine, &path, position);
        assert_eq!(machine.append("goes on"), Offset(RECORDS));
    }
}

#[test]
fn partition_unreadable_below_the_journals_entries_waits_alone() {
    let mut machine = Machine::synced(1, &Machine::small_segments());
    machine.append_numbers(0, 5);
    machine.store().checkpoint().unwrap();
    machine.append_numbers(5, RECORDS);
    machine.try_append_to(OTHER, "other", ProducerStamp::NONE).unwrap();
    machine.store().settle().unwrap();
    let path = machine.log_paths().remove(0);
    let position = break_batch(&machine, &path, HIT, 70);
    machine.sim.fs.kill();
    machine.store = None;
    // The index would have the begin of the next batch.
    machine.sim.fs.remove_file(&path.with_extension("index")).unwrap();
    machine.start().unwrap();
    let [(ID, error)] = &machine.recovered.offline[..] else { panic!("{:?}", machine.recovered) };
    check_unreadable(error, &path, position);
    assert_eq!(machine.records_of(OTHER).unwrap().len(), 1);
    heal(&machine, &path);
    machine.store().settle().unwrap();
    assert_eq!(machine.records().unwrap(), numbers(0, RECORDS));
    assert!(!is_told(&machine) && machine.store().damaged().is_empty());
}

#[test]
fn partition_that_comes_back_in_vain_is_tried_in_growing_pauses() {
    let mut machine = Machine::synced(1, &Machine::small_segments());
    machine.append_numbers(0, 5);
    machine.store().checkpoint().unwrap();
    machine.append_numbers(5, RECORDS);
    machine.store().settle().unwrap();
    let path = machine.log_paths().remove(0);
    machine.sim.fs.kill();
    machine.store = None;
    machine.sim.fs.remove_file(&path.with_extension("index")).unwrap();
    let sector = break_batch(&machine, &path, HIT, 70);
    machine.start().unwrap();
    for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
        check_unreadable(&machine.store().settle().unwrap_err(), &path, sector);
        machine.store().settle().expect("nothing is tried");
        machine.sim.clock.advance(Duration::from_millis(pause * 1000 - 1));
        machine.store().settle().expect("nothing is tried yet");
        machine.sim.clock.advance(Duration::from_millis(1));
    }
    heal(&machine, &path);
    machine.store().settle().unwrap();
    assert_eq!(machine.records().unwrap(), numbers(0, RECORDS));
}

#[test]
fn an_index_with_a_bad_sector_is_made_anew() {
    for position in [3, 50, 100] {
        for is_scrubbed in [true, false] {
            let (machine, paths) = Machine::reopened(Machine::small_segments(), RECORDS);
            let index = paths[0].with_extension("index");
            machine.sim.fs.break_sectors(&index, position..position + 1).unwrap();
            assert_eq!(weights(&machine, &paths[0]), [(index, Weight::Damage)]);
            if is_scrubbed {
                machine.log().scrub(Offset::ZERO, u64::MAX, &Unhindered).unwrap();
            }
            assert_eq!(machine.records().unwrap(), numbers(0, RECORDS), "{position}");
            assert_eq!(machine.log().scrub(Offset::ZERO, u64::MAX, &Unhindered).unwrap().indexes_rebuilt, 0);
            assert_eq!(weights(&machine, &paths[0]), []);
        }
    }
}

#[test]
fn unreadable_index_of_the_active_segment_is_made_anew() {
    for position in [3, 50] {
        let (mut machine, paths) = Machine::reopened(Machine::small_segments(), RECORDS);
        let last = paths.last().unwrap();
        let index = last.with_extension("index");
        machine.store.take().unwrap().close().unwrap();
        let before = machine.content(&index);
        machine.sim.fs.break_sectors(&index, position..before.len() as u64).unwrap();
        machine.sim.fs.break_sectors(last, 10..20).unwrap();
        machine.start().unwrap();
        check_unreadable(&machine.log().ensure_open().unwrap_err(), last, 10);
        machine.sim.fs.break_sectors(&index, 0..0).unwrap();
        assert_eq!(machine.content(&index), before, "it is of use still");
        machine.sim.fs.break_sectors(&index, position..before.len() as u64).unwrap();
        heal(&machine, last);
        assert_eq!(machine.records().unwrap(), numbers(0, RECORDS));
        machine.append_numbers(RECORDS, RECORDS + 10);
        machine.restart();
        assert_eq!(machine.records().unwrap(), numbers(0, RECORDS + 10));
    }
}

#[test]
fn an_index_stays_until_its_log_can_be_read() {
    let (machine, paths) = Machine::reopened(Machine::small_segments(), RECORDS);
    let index = paths[0].with_extension("index");
    let mut bytes = machine.content(&index);
    bytes[50] ^= 1;
    machine.put_content(&index, &bytes);
    let position = break_batch(&machine, &paths[0], HIT, 70);
    check_unreadable(&machine.records().unwrap_err(), &paths[0], position);
    assert_eq!(machine.content(&index), bytes);
    heal(&machine, &paths[0]);
    assert_eq!(machine.records().unwrap(), numbers(0, RECORDS));
}

#[test]
fn earlier_damage_that_cannot_be_read_is_not_taken_for_mended() {
    let (mut machine, paths) = Machine::reopened(Machine::small_segments(), RECORDS);
    let intact = machine.content(&paths[0]);
    let mut bytes = intact.clone();
    bytes[70] ^= 1;
    machine.put_content(&paths[0], &bytes);
    machine.log().scrub(Offset::ZERO, u64::MAX, &Unhindered).unwrap_err();
    machine.store.take().unwrap().close().unwrap();
    machine.put_content(&paths[0], &intact);
    break_batch(&machine, &paths[0], HIT, 70);
    for is_readable in [false, true] {
        machine.start().unwrap();
        if is_readable {
            assert_eq!(machine.records().unwrap(), numbers(0, RECORDS));
        } else {
            let error = machine.records().unwrap_err();
            assert!(matches!(&error, LogError::Corrupt { path, .. } if *path == paths[0]), "{error}");
            assert_eq!(machine.store().damaged().len(), 1);
            machine.store.take().unwrap().close().unwrap();
            heal(&machine, &paths[0]);
        }
    }
}

#[test]
fn verify_names_what_cannot_be_read_and_reads_all_else() {
    for from in [0, 30, 70] {
        let (mut machine, paths) = Machine::reopened(Machine::small_segments(), RECORDS);
        machine.store.take().unwrap().close().unwrap();
        let batch = position_of(&machine, &paths[0], HIT);
        let position = break_batch(&machine, &paths[0], HIT, from);
        let report = verify_partition(&machine.sim.env(), paths[0].parent().unwrap(), ID).unwrap();
        let [finding] = &report.findings[..] else { panic!("{report:?}") };
        assert_eq!((&finding.path, finding.position, finding.weight), (&paths[0], batch, Weight::Damage));
        assert!(finding.what.starts_with(&format!("byte {position} cannot be read")), "{}", finding.what);
        assert_eq!(report.records, u64::try_from(RECORDS).unwrap() - 1);
    }
}

/// Records above the checkpoint after a kill are no torn tail if they cannot be read: the next start does not cut them.
#[test]
fn bad_sector_above_the_checkpoint_is_damage() {
    let mut machine = Machine::new(1, Machine::small_segments());
    machine.append_numbers(0, RECORDS);
    let path = machine.log_paths().remove(0);
    machine.sim.fs.kill();
    machine.store = None;
    break_batch(&machine, &path, HIT, 70);
    assert_eq!(weights(&machine, &path), [(path, Weight::Damage)]);
}

#[test]
fn cut_at_a_bad_sector_counts_the_intact_records_behind_it() {
    // Large enough for a sector to be a part of the batch only.
    let config = LogConfig { segment_bytes: 1_000_000, index_interval_bytes: 1, ..LogConfig::default() };
    for (has_index, is_header_hit) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut machine = Machine::new(1, config.clone());
        let value = |number: i64| format!("{number} {}", "x".repeat(10_000));
        (0..6).for_each(|number| _ = machine.append(&value(number)));
        let path = machine.log_paths().remove(0);
        machine.store.take().unwrap().close().unwrap();
        let bytes = machine.content(&path);
        // If the next batch begins in the sector, that one is lost, too.
        let hit = if is_header_hit { HIT - 1 } else { HIT };
        let start = position_of(&machine, &path, hit);
        let inside = if is_header_hit { position_of(&machine, &path, HIT) } else { start + 9000 };
        let sector = inside - inside % 4096;
        machine.sim.fs.break_sectors(&path, sector..sector + 4096).unwrap();
        if !has_index {
            machine.sim.fs.remove_file(&path.with_extension("index")).unwrap();
        }
        let dir = path.parent().unwrap();
        let repair = || Repair::open(&machine.sim.env(), dir, ID).unwrap();
        let cut = repair().plan().unwrap().unwrap();
        assert_eq!((&cut.path, cut.position, cut.log_end), (&path, start, Offset(hit)));
        assert!(cut.what.starts_with(&format!("byte {sector} cannot be read")), "{}", cut.what);
        assert_eq!(cut.intact_records, 2, "{has_index} {is_header_hit}");
        let options = CutOptions { backup: None, discard_intact: Some(2) };
        let backups = repair().cut(&cut, &options).unwrap();
        let [backup] = &backups[..] else { panic!("{backups:?}") };
        assert_eq!(backup.unread_bytes, 4096);
        let mut copied = bytes[usize::try_from(start).unwrap()..].to_vec();
        let hole = usize::try_from(sector - start).unwrap();
        copied[hole..hole + 4096].fill(0);
        assert!(machine.content(&backup.path) == copied, "all that can be read is saved");
        assert_eq!(weights(&machine, &path), []);
        machine.start().unwrap();
        let kept: Vec<_> = (0..hit).map(|number| (number, value(number))).collect();
        assert!(machine.records().unwrap() == kept);
        (hit..6).for_each(|number| _ = machine.append(&value(number)));
        machine.restart();
        assert_eq!(machine.records().unwrap().len(), 6);
    }
}

/// Only the headers tell which batches lie between two entries of the index.
#[test]
fn unreadable_header_hides_the_batches_up_to_the_next_entry() {
    let (mut machine, paths) = Machine::reopened(Machine::spaced_entries(), RECORDS);
    let position = break_batch(&machine, &paths[0], 1, 0);
    let scrubbed = machine.log().scrub(Offset::ZERO, u64::MAX, &Unhindered).unwrap();
    assert_eq!((scrubbed.unreadable, scrubbed.segments), (1, paths.len() - 2));
    check_told(&machine, &paths[0], position);
    assert!(machine.log().failure().is_none() && machine.store().damaged().is_empty());

    machine.store.take().unwrap().close().unwrap();
    let report = verify_partition(&machine.sim.env(), paths[0].parent().unwrap(), ID).unwrap();
    let [finding] = &report.findings[..] else { panic!("{report:?}") };
    assert_eq!((&finding.path, finding.position, finding.weight), (&paths[0], 0, Weight::Damage));
    assert!(finding.what.starts_with(&format!("byte {position} cannot be read")), "{}", finding.what);
    let second = first_entry(&machine, &paths[0]);
    assert!(second > 2, "others lie behind it");
    assert_eq!(report.records, u64::try_from(RECORDS - (second - 1)).unwrap());
}

#[test]
fn nothing_is_cut_for_what_cannot_be_read_below_the_log_start() {
    let (mut machine, paths) = Machine::reopened(Machine::small_segments(), RECORDS);
    machine.log().delete_records(Offset(HIT + 1)).unwrap();
    machine.store.take().unwrap().close().unwrap();
    break_batch(&machine, &paths[0], HIT, 70);
    let repair = Repair::open(&machine.sim.env(), paths[0].parent().unwrap(), ID).unwrap();
    assert_eq!(repair.plan().unwrap(), None);
}

#[test]
fn a_checkpoint_and_log_starts_in_a_bad_sector_are_made_anew() {
    for name in ["checkpoint", "log-starts"] {
        let (mut machine, _) = Machine::reopened(Machine::small_segments(), RECORDS);
        machine.store.take().unwrap().close().unwrap();
        let path = Path::new(DIR).join(name);
        machine.sim.fs.break_sectors(&path, 5..10).unwrap();
        let files = LogDirFiles::read(&machine.sim.env(), Path::new(DIR)).unwrap();
        let [finding] = files.findings() else { panic!("{:?}", files.findings()) };
        assert_eq!((&finding.path, finding.weight), (&path, Weight::Damage));
        assert!(finding.what.contains("byte 5 "), "{}", finding.what);
        machine.start().unwrap();
        assert!(machine.store().dir_failure(0).is_none(), "{name}");
        assert_eq!(machine.records().unwrap(), numbers(0, RECORDS), "{name}");
        machine.append_numbers(RECORDS, RECORDS + 3);
        machine.restart();
        assert!(!machine.content(&path).is_empty(), "{name} can be read");
        assert_eq!(machine.records().unwrap(), numbers(0, RECORDS + 3), "{name}");
    }
}

#[test]
fn journal_entry_in_a_bad_sector_costs_its_partition_alone() {
    let mut machine = Machine::synced(1, &LogConfig::default());
    let value = |number: i64| format!("{number}{}", "x".repeat(20_000));
    for number in 0..4 {
        assert_eq!(machine.append(&value(number)), Offset(number));
        machine.try_append_to(OTHER, "other", ProducerStamp::NONE).unwrap();
    }
    machine.sim.fs.kill();
    machine.store = None;
    let path = Path::new("/journal/00000000.journal");
    let bytes = machine.content(path);
    let begin = value(2)[..100].to_owned();
    let position = bytes.windows(100).position(|window| window == begin.as_bytes()).unwrap();
    let sector = position.next_multiple_of(4096);
    machine.sim.fs.break_sectors(path, sector as u64..sector as u64 + 4096).unwrap();
    let error = machine.start().unwrap_err().to_string();
    assert!(error.contains("00000000.journal") && error.contains("copy the file with zeros"), "{error}");
    heal(&machine, path);

    let mut copy = bytes;
    copy[sector..sector + 4096].fill(0);
    machine.put_content(path, &copy);
    for _ in 0..2 {
        machine.start().unwrap();
        let [(ID, error)] = &machine.recovered.offline[..] else { panic!("{:?}", machine.recovered) };
        assert!(matches!(error, LogError::Corrupt { .. }), "{error}");
        assert_eq!(machine.records_of(OTHER).unwrap().len(), 4);
        assert!(machine.records().is_err());
        machine.sim.fs.kill();
        machine.store = None;
    }
}
