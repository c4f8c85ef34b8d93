//! Batches that a client has sent as values. They show when the batch around them is damaged; they still must not count
//! as records, and must hide nothing.

use std::path::{Path, PathBuf};

use riverrun_log::config::LogConfig;
use riverrun_log::{CutOptions, Repair, SegmentDump, VerifyReport, Weight, verify_partition};
use riverrun_records::{BatchBuilder, BatchOptions, Compression, ProducerStamp, layout};
use riverrun_types::{Offset, TimestampMs};

use crate::machine::{ID, Machine, batch_at, put, stamp};

/// Offset of the batch that carries the forged one.
const CARRIER: usize = 3;
/// The id of the producer in the forged batch.
const MADE_UP: i64 = 66;

/// One batch with base offset `base`. As the last value of a batch it includes the zero behind it: its record has no
/// headers.
fn forged(base: i64) -> Vec<u8> {
    let mut bytes = batch_at(&[(0, "made up")], options(stamp(MADE_UP, 0)));
    bytes.push(0);
    let length = i32::try_from(bytes.len() - layout::LENGTH_END).unwrap();
    bytes[layout::BASE_OFFSET..layout::LENGTH].copy_from_slice(&base.to_be_bytes());
    bytes[layout::LENGTH..layout::LENGTH_END].copy_from_slice(&length.to_be_bytes());
    bytes[layout::LEADER_EPOCH..layout::MAGIC].copy_from_slice(&1_i32.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[layout::ATTRIBUTES..]);
    bytes[layout::CRC..layout::ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
    bytes.pop();
    bytes
}

fn options(producer: ProducerStamp) -> BatchOptions {
    BatchOptions { compression: Compression::None, producer, ..BatchOptions::default() }
}

/// A log without index entries, because it is so small, or with one for each batch.
fn config(is_indexed: bool) -> LogConfig {
    let index_interval_bytes = if is_indexed { 1 } else { LogConfig::default().index_interval_bytes };
    LogConfig { index_interval_bytes, ..LogConfig::default() }
}

/// Appends a batch with these values. Their records have keys, so that there is something to be damaged before them.
fn append_values(machine: &Machine, values: &[&[u8]]) {
    let mut builder = BatchBuilder::new(options(ProducerStamp::NONE));
    for value in values {
        builder.append(TimestampMs(0), Some(b"key"), Some(value), &[]).unwrap();
    }
    put(&machine.log(), &builder.build().unwrap(), machine.append_options()).unwrap();
}

/// A log that was closed in order, which is deleted below `log_start`: three records, a batch of these values, and
/// records up to offset 9.
fn closed(config: LogConfig, values: &[&[u8]], log_start: i64) -> (Machine, PathBuf) {
    let mut machine = Machine::new(1, config);
    machine.append_numbers(0, 3);
    append_values(&machine, values);
    machine.append_numbers(3 + i64::try_from(values.len()).unwrap(), 10);
    machine.log().delete_records(Offset(log_start)).unwrap();
    let path = machine.log_paths().remove(0);
    machine.store.take().unwrap().close().unwrap();
    (machine, path)
}

/// Damages the carrier at an offset in it; returns its position.
fn damage(machine: &Machine, path: &Path, offset: usize) -> u64 {
    let position =
        SegmentDump::open(&machine.sim.env(), path).unwrap().nth(CARRIER).unwrap().unwrap().position;
    flip(machine, path, usize::try_from(position).unwrap() + offset);
    position
}

fn flip(machine: &Machine, path: &Path, position: usize) {
    let mut bytes = machine.content(path);
    bytes[position] ^= 1;
    machine.put_content(path, &bytes);
}

fn verify(machine: &Machine, path: &Path) -> VerifyReport {
    verify_partition(&machine.sim.env(), path.parent().unwrap(), ID).unwrap()
}

fn weights(report: &VerifyReport) -> Vec<Weight> {
    report.findings.iter().map(|finding| finding.weight).collect()
}

#[test]
fn a_forged_batch_hides_none_of_those_that_follow() {
    // In the carrier's records; and in its header, so that only the index tells its end.
    for (is_indexed, offset) in
        [(false, layout::RECORDS + 4), (true, layout::RECORDS + 4), (true, layout::MAGIC)]
    {
        let (machine, path) = closed(config(is_indexed), &[&forged(1_000_000)], 0);
        let position = damage(&machine, &path, offset);
        let report = verify(&machine, &path);
        let found: Vec<_> = report.findings.iter().map(|finding| finding.position).collect();
        assert_eq!((found, report.records), (vec![position], 9), "{is_indexed} {offset}");
        let repair = Repair::open(&machine.sim.env(), path.parent().unwrap(), ID).unwrap();
        let cut = repair.plan().unwrap().unwrap();
        assert_eq!((cut.position, cut.log_end), (position, Offset(3)), "{is_indexed} {offset}");
        // The plan of a cut counts them, and perhaps the forged ones as well.
        assert!((6..=7).contains(&cut.intact_records), "{is_indexed} {offset}: {cut:?}");
    }
}

#[test]
fn damage_below_the_log_start_does_no_harm_to_what_is_above_it() {
    for is_indexed in [false, true] {
        let (machine, path) = closed(config(is_indexed), &[&forged(1_000_000)], 5);
        damage(&machine, &path, layout::RECORDS + 4);
        assert_eq!(weights(&verify(&machine, &path)), [Weight::BelowLogStart], "{is_indexed}");
        let repair = Repair::open(&machine.sim.env(), path.parent().unwrap(), ID).unwrap();
        assert_eq!(repair.plan().unwrap(), None, "{is_indexed}");
    }
}

#[test]
fn a_forged_batch_does_not_make_damage_end_below_the_log_start() {
    for (is_indexed, offset) in
        [(false, layout::RECORDS + 4), (true, layout::RECORDS + 4), (true, layout::MAGIC)]
    {
        let (machine, path) = closed(config(is_indexed), &[b"3", b"4", b"5", &forged(3)], 5);
        damage(&machine, &path, offset);
        assert_eq!(weights(&verify(&machine, &path)), [Weight::Damage], "{is_indexed} {offset}");
    }
}

#[test]
fn a_repair_learns_of_no_producer_from_a_forged_batch() {
    for offset in [layout::RECORDS + 4, layout::MAGIC] {
        let mut machine = Machine::new(1, Machine::small_segments());
        machine.append_numbers(0, 3);
        append_values(&machine, &[&forged(4)]);
        for number in 0..20 {
            machine.try_append(&format!("record {number}"), stamp(7, number)).unwrap();
        }
        machine.log().delete_records(Offset(5)).unwrap();
        let paths = machine.log_paths();
        machine.store.take().unwrap().close().unwrap();
        damage(&machine, &paths[0], offset);
        let last = paths.last().unwrap();
        flip(&machine, last, machine.content(last).len() - 1);
        let repair = Repair::open(&machine.sim.env(), last.parent().unwrap(), ID).unwrap();
        let cut = repair.plan().unwrap().unwrap();
        assert_eq!((&cut.path, cut.log_end), (last, Offset(23)), "{offset}");
        repair.cut(&cut, &CutOptions::default()).unwrap();
        drop(repair);
        machine.start().unwrap();
        let known = machine.try_append("record 18", stamp(7, 18)).unwrap();
        assert!(known.duplicate, "{offset}: the producers of the remaining records are known");
        let first = machine.try_append("my first", stamp(MADE_UP, 0)).unwrap();
        assert!(!first.duplicate && first.base_offset == Offset(23), "{offset}: {first:?}");
    }
}
