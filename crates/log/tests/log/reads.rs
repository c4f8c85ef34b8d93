//! Reading: ranges, limits, lookups by time.

use std::task::Poll;

use riverrun_env::sim::SimEnv;
use riverrun_log::config::LogConfig;
use riverrun_log::{Chunk, ReadError, TimeSearch};
use riverrun_records::BatchOptions;
use riverrun_types::{DurabilityLevel, LeaderEpoch, Offset, TimestampMs};

use crate::machine::{Machine, batch_at, numbers, put};

#[test]
fn offsets_outside_the_log_are_refused_and_its_end_is_empty() {
    let machine = Machine::new(1, LogConfig::default());
    machine.append_numbers(0, 10);
    let log = machine.log();
    log.delete_records(Offset(4)).unwrap();
    for outside in [-5, 3, 11] {
        let error = log.read(Offset(outside), 100, Offset(10), true).unwrap_err();
        let ReadError::OutOfRange { log_start, log_end, .. } = error else { panic!("{error}") };
        assert_eq!((log_start, log_end), (Offset(4), Offset(10)));
    }
    let slice = log.read(Offset(10), 100, Offset(10), true).unwrap();
    assert_eq!((slice.len, slice.next_offset), (0, Offset(10)));
}

#[test]
fn nothing_at_or_above_the_high_watermark_is_read() {
    let machine = Machine::new(1, Machine::small_segments());
    machine.append_numbers(0, 30);
    let log = machine.log();
    for high_watermark in 0..=30 {
        let mut from = Offset(0);
        while from < Offset(high_watermark) {
            let slice = log.read(from, 10_000, Offset(high_watermark), true).unwrap();
            assert!(slice.next_offset > from && slice.next_offset <= Offset(high_watermark));
            from = slice.next_offset;
        }
        assert_eq!(log.read(from, 10_000, Offset(high_watermark), true).unwrap().len, 0);
    }
}

#[test]
fn a_read_keeps_to_its_limit_except_for_the_first_batch() {
    for index_interval_bytes in [1, 500, 4096] {
        let config = LogConfig { index_interval_bytes, ..LogConfig::default() };
        let machine = Machine::new(1, config);
        machine.append_numbers(0, 200);
        let log = machine.log();
        let one = log.read(Offset(7), 1, Offset(200), true).unwrap();
        assert_eq!(one.next_offset, Offset(8));
        assert_eq!(log.read(Offset(7), 1, Offset(200), false).unwrap().len, 0);
        for limit in [one.len, one.len + 1, 5 * one.len, 9000] {
            let slice = log.read(Offset(7), limit, Offset(200), false).unwrap();
            assert!(slice.len <= limit && slice.len > 0, "{} of {limit}", slice.len);
            assert!(
                slice.len + index_interval_bytes as usize + 2 * one.len > limit,
                "{} of {limit}",
                slice.len
            );
        }
    }
}

#[test]
fn large_range_is_one_of_the_file_and_a_small_one_is_in_memory() {
    let machine = Machine::new(1, LogConfig::default());
    machine.append_numbers(0, 200);
    let log = machine.log();
    let large = log.read(Offset(0), 1 << 20, Offset(200), true).unwrap();
    assert!(matches!(large.chunks[..], [Chunk::File { position: 0, .. }]), "{large:?}");
    let small = log.read(Offset(199), 1 << 20, Offset(200), true).unwrap();
    assert!(matches!(small.chunks[..], [Chunk::Memory(_)]), "{small:?}");
    let bytes = large.chunks[0].to_bytes().unwrap();
    assert!(bytes.ends_with(&small.chunks[0].to_bytes().unwrap()));
}

#[test]
fn reads_in_any_order_and_from_any_offset_find_the_same_records() {
    let machine = Machine::new(1, Machine::small_segments());
    for number in 0..60 {
        let records: Vec<_> = (0..3).map(|_| (machine.now().0, "abc")).collect();
        let batch = batch_at(&records, BatchOptions::default());
        let appended = put(&machine.log(), &batch, machine.append_options()).unwrap();
        assert_eq!(appended.base_offset, Offset(3 * number));
    }
    let log = machine.log();
    for from in (0..180).rev().chain(0..180) {
        let slice = log.read(Offset(from), 1, Offset(180), true).unwrap();
        let header = riverrun_records::BatchHeader::parse(&slice.chunks[0].to_bytes().unwrap()).unwrap();
        assert_eq!(header.base_offset(), Offset(from / 3 * 3), "from {from}");
        assert_eq!(slice.next_offset, Offset(from / 3 * 3 + 3));
    }
}

#[test]
fn a_time_finds_the_first_record_that_is_not_older() {
    let mut machine = Machine::new(1, Machine::small_segments());
    let base = machine.now().0 - 100_000;
    for number in 0..50_i64 {
        // Not in order: each second batch is older than the one before.
        let timestamp = base + if number % 2 == 0 { number * 10 } else { number * 10 - 25 };
        let batch = batch_at(&[(timestamp, "a"), (timestamp + 3, "b")], BatchOptions::default());
        put(&machine.log(), &batch, machine.append_options()).unwrap();
    }
    let timestamps: Vec<i64> = (0..50_i64)
        .flat_map(|number| {
            let first = base + if number % 2 == 0 { number * 10 } else { number * 10 - 25 };
            [first, first + 3]
        })
        .collect();
    for restarted in [false, true] {
        if restarted {
            machine.kill();
        }
        for wanted in base - 30..base + 500 {
            let expected = timestamps.iter().position(|timestamp| *timestamp >= wanted);
            let found = machine.log().offset_for_timestamp(TimestampMs(wanted)).unwrap();
            let expected = expected
                .map(|at| (TimestampMs(timestamps[at]), Offset(i64::try_from(at).unwrap()), LeaderEpoch(1)));
            assert_eq!(found, expected, "at {}", wanted - base);
        }
        let largest = machine.log().max_timestamp().unwrap().unwrap();
        assert_eq!(largest.0, TimestampMs(base + 483));
        assert_eq!(largest.1, Offset(97));
    }
}

/// The result of a search that ends its slices after each batch, and the number of its slices; `meanwhile` runs between
/// them.
fn in_slices(
    machine: &Machine,
    mut search: TimeSearch,
    mut meanwhile: impl FnMut(usize),
) -> (Option<(TimestampMs, Offset, LeaderEpoch)>, usize) {
    for slices in 1.. {
        if let Poll::Ready(found) = machine.log().search_by_time(&mut search, &mut || true).unwrap() {
            return (found, slices);
        }
        meanwhile(slices);
    }
    unreachable!("it ends")
}

/// A log of sixty batches, each older than the one before, and the timestamp of the first record.
fn with_falling_timestamps(level: DurabilityLevel) -> (Machine, i64) {
    let config = LogConfig { durability: level, ..Machine::small_segments() };
    let machine = Machine::with_options(SimEnv::new(1), config, Machine::with_journal());
    let log = machine.log();
    let base = machine.now().0 - 100_000;
    for number in 0..60_i64 {
        let records = [(base - number * 10, "a"), (base - number * 10 - 3, "b")];
        put(&log, &batch_at(&records, BatchOptions::default()), machine.append_options()).unwrap();
    }
    (machine, base)
}

#[test]
fn a_search_gives_way_after_each_batch_and_finds_the_same() {
    for level in [DurabilityLevel::SyncSync, DurabilityLevel::AsyncAsync] {
        let (machine, base) = with_falling_timestamps(level);
        let log = machine.log();
        for wanted in [base - 600, base - 593, base - 300, base, base + 1] {
            let expected = log.offset_for_timestamp(TimestampMs(wanted)).unwrap();
            let search = TimeSearch::first_from(TimestampMs(wanted));
            assert_eq!(in_slices(&machine, search, |_| {}).0, expected, "{level}, {wanted}");
        }
        for deleted in [0, 1, 57, 119] {
            log.delete_records(Offset(deleted)).unwrap();
            let expected = log.max_timestamp().unwrap();
            let (found, slices) = in_slices(&machine, TimeSearch::largest(), |_| {});
            assert_eq!(found, expected, "{level}, from {deleted} on");
            assert!(deleted % 2 == 0 || slices > 1, "{level}: {slices}");
        }
    }
}

#[test]
fn search_goes_on_while_its_log_is_settled_appended_to_and_cut() {
    let config = LogConfig { durability: DurabilityLevel::SyncSync, ..Machine::small_segments() };
    let machine = Machine::with_options(SimEnv::new(1), config, Machine::with_journal());
    let log = machine.log();
    let base = machine.now().0 - 100_000;
    let append = |timestamp| {
        let batch = batch_at(&[(timestamp, "a"), (timestamp, "b")], BatchOptions::default());
        put(&log, &batch, machine.append_options()).unwrap();
    };
    // From here on all indexes and pieces have a later time than any record but the last.
    for _ in 0..40 {
        append(base);
    }
    append(base + 5);
    let mut deleted = 0;
    let (found, slices) =
        in_slices(&machine, TimeSearch::first_from(TimestampMs(base + 1)), |slices| match slices % 3 {
            0 => machine.store().checkpoint().unwrap(),
            1 => append(base),
            _ => {
                deleted += 3;
                log.delete_records(Offset(deleted)).unwrap();
            }
        });
    assert_eq!(found, Some((TimestampMs(base + 5), Offset(80), LeaderEpoch(1))), "after {slices} slices");
}

#[test]
fn the_largest_timestamp_is_of_a_record_that_is_there() {
    for level in [DurabilityLevel::SyncSync, DurabilityLevel::AsyncAsync] {
        let (machine, base) = with_falling_timestamps(level);
        let log = machine.log();
        for deleted in [0, 1, 2, 57, 118, 119] {
            log.delete_records(Offset(deleted)).unwrap();
            let (at, later) = (deleted / 2, deleted % 2);
            let expected = (TimestampMs(base - at * 10 - later * 3), Offset(deleted), LeaderEpoch(1));
            assert_eq!(log.max_timestamp().unwrap(), Some(expected), "{level}, from {deleted} on");
        }
        log.delete_records(Offset(120)).unwrap();
        assert_eq!(log.max_timestamp().unwrap(), None);
    }
}

#[test]
fn a_reader_goes_on_while_segments_are_appended_and_deleted() {
    let config = LogConfig { retention_bytes: Some(0), ..Machine::small_segments() };
    let machine = Machine::new(1, config);
    machine.append_numbers(0, 40);
    machine.store().checkpoint().unwrap();
    let held = machine.log().read(Offset(0), 1 << 20, Offset(40), true).unwrap();
    assert!(machine.log().apply_retention(machine.now(), Offset(40)).unwrap().segments > 2);
    assert!(!held.chunks[0].to_bytes().unwrap().is_empty(), "handed out batches stay readable");
    assert!(machine.log().read(Offset(0), 100, Offset(40), true).is_err());
    machine.append_numbers(40, 45);
    assert_eq!(machine.records().unwrap(), numbers(40, 45));
}
