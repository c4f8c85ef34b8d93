//! More partitions than may be open: their users notice nothing but the time it takes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use riverrun_env::Env;
use riverrun_env::sim::SimEnv;
use riverrun_log::config::LogConfig;
use riverrun_log::producer_state::AppendOrigin;
use riverrun_log::{AppendOptions, LogStore, PartitionLog, StoreOptions};
use riverrun_records::{BatchOptions, ProducerStamp};
use riverrun_types::{DurabilityLevel, LeaderEpoch, Offset, PartitionId, TimestampMs, TopicId};

use crate::machine::{Machine, batch_at, numbers, put, stamp};

const PARTITIONS: i32 = 20;
const OPEN_MAX: usize = 4;
const NOW: TimestampMs = TimestampMs(1_700_000_000_000);

fn partition(index: i32) -> PartitionId {
    PartitionId { topic: TopicId([0xcd; 16]), index }
}

fn machine(seed: u64) -> Machine {
    let options = StoreOptions { open_logs_max: OPEN_MAX, open_files_max: 3, ..StoreOptions::default() };
    Machine::with_options(SimEnv::new(seed), Machine::small_segments(), options)
}

/// Appends one record, by an idempotent producer if the partition's index is even.
fn append(machine: &Machine, index: i32, number: i64) {
    let sequence = i32::try_from(number).unwrap();
    let producer = if index % 2 == 0 { stamp(7, sequence) } else { ProducerStamp::NONE };
    let appended = machine.try_append_to(partition(index), &format!("record {number}"), producer).unwrap();
    assert_eq!((appended.base_offset, appended.duplicate), (Offset(number), false));
    if index % 2 == 0 {
        let again = machine.try_append_to(partition(index), "again", producer).unwrap();
        assert_eq!((again.base_offset, again.duplicate), (Offset(number), true));
    }
    assert!(machine.store().open_log_count() <= OPEN_MAX);
}

fn append_round(machine: &Machine, number: i64) {
    for index in 0..PARTITIONS {
        append(machine, index, number);
    }
}

fn check_all(machine: &Machine, count: i64) {
    for index in 0..PARTITIONS {
        assert_eq!(machine.records_of(partition(index)).unwrap(), numbers(0, count), "partition {index}");
        assert!(machine.store().open_log_count() <= OPEN_MAX);
    }
}

fn open_partitions(machine: &Machine) -> Vec<i32> {
    let mut open: Vec<_> =
        machine.store().known(0).iter().filter(|known| known.is_open).map(|known| known.id.index).collect();
    open.sort_unstable();
    open
}

#[test]
fn appends_and_reads_go_round_more_partitions_than_may_be_open() {
    let mut machine = machine(1);
    let handles: Vec<_> = (0..PARTITIONS).map(|index| machine.partition(partition(index))).collect();
    for number in 0..15 {
        append_round(&machine, number);
        if number % 5 == 0 {
            check_all(&machine, number + 1);
        }
    }
    for handle in &handles {
        assert_eq!(handle.log_end_offset().unwrap(), Offset(15), "handles stay valid");
    }
    machine.restart();
    append_round(&machine, 15);
    machine.kill();
    append_round(&machine, 16);
    check_all(&machine, 17);
}

#[test]
fn log_that_was_closed_to_make_room_survives_a_power_cut() {
    for seed in 0..10 {
        let mut machine = machine(seed);
        for number in 0..5 {
            append_round(&machine, number);
        }
        let open = open_partitions(&machine);
        machine.crash();
        for index in (0..PARTITIONS).filter(|index| !open.contains(index)) {
            assert_eq!(machine.records_of(partition(index)).unwrap(), numbers(0, 5), "partition {index}");
        }
    }
}

#[test]
fn the_log_that_went_longest_without_use_is_closed_first() {
    let machine = machine(1);
    for index in 0..PARTITIONS {
        append(&machine, index, 0);
        machine.partition(partition(0)).log_end_offset().unwrap();
        let first = (index - 2).max(1);
        let expected: Vec<_> = std::iter::once(0).chain(first..=index).collect();
        if index > 2 {
            assert_eq!(open_partitions(&machine), expected);
        }
    }
}

#[test]
fn covered_logs_are_closed_without_another_checkpoint() {
    let machine = machine(1);
    for index in 0..4 {
        append(&machine, index, 0);
    }
    machine.store().checkpoint().unwrap();
    machine.sim.fs.fail_sync_after(0);
    for index in 4..PARTITIONS {
        assert_eq!(machine.partition(partition(index)).log_end_offset().unwrap(), Offset(0));
    }
    assert_eq!(machine.store().open_log_count(), OPEN_MAX);
    assert!(machine.store().dir_failure(0).is_none(), "nothing was synced");
}

#[test]
fn reads_go_on_beyond_the_bound_where_no_checkpoint_can_be_made() {
    let machine = machine(1);
    for index in 0..4 {
        append(&machine, index, 0);
    }
    machine.sim.fs.fail_sync_after(0);
    for index in 4..8 {
        assert_eq!(machine.partition(partition(index)).log_end_offset().unwrap(), Offset(0));
    }
    assert!(machine.store().dir_failure(0).is_some());
    for index in 0..4 {
        assert_eq!(machine.records_of(partition(index)).unwrap(), numbers(0, 1));
    }
}

/// More than this are open for a short time only: an eighth of the bound is a reserve.
const CROWD: usize = 28;

fn crowded_machine(seed: u64) -> Machine {
    let options = StoreOptions { open_logs_max: 32, open_files_max: 8, ..Machine::with_journal() };
    let config = LogConfig { durability: DurabilityLevel::SyncSync, ..Machine::small_segments() };
    Machine::with_options(SimEnv::new(seed), config, options)
}

#[test]
fn logs_are_closed_ahead_of_openings_and_others_are_left_alone() {
    for seed in 0..10 {
        let mut machine = crowded_machine(seed);
        let told = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&told);
        machine.store().on_surplus(move || _ = count.fetch_add(1, Ordering::Relaxed));
        let one_more = |machine: &Machine, index: i32| {
            machine.try_append_to(partition(index), &format!("record {index}"), ProducerStamp::NONE).unwrap();
        };
        for index in 0..28 {
            assert_eq!(told.load(Ordering::Relaxed), 0);
            one_more(&machine, index);
        }
        assert_eq!((told.load(Ordering::Relaxed), machine.store().close_some(0)), (1, false));
        one_more(&machine, 28);
        assert!(machine.store().may_open_slowly(partition(29), 0));
        assert!(machine.store().close_some(0) && !machine.store().close_some(0));
        assert_eq!(open_partitions(&machine), (2..=28).collect::<Vec<_>>(), "two at once, the oldest first");
        let covered_to = |index: i32| machine.partition(partition(index)).recovery_point().0;
        let expected: Vec<_> = (0..=28).map(|index| i64::from(index < 2)).collect();
        assert_eq!((0..=28).map(covered_to).collect::<Vec<_>>(), expected, "only closed logs are covered");
        machine.crash();
        for index in 0..=28 {
            let found = machine.records_of(partition(index)).unwrap();
            assert_eq!(found, [(0, format!("record {index}"))]);
        }
    }
}

#[test]
fn logs_that_cannot_be_covered_stay_open_and_others_are_opened() {
    let machine = crowded_machine(1);
    for index in 0..=28 {
        machine.try_append_to(partition(index), "record", ProducerStamp::NONE).unwrap();
    }
    machine.sim.fs.set_space(Some(0));
    assert!(!machine.store().close_some(0));
    assert_eq!(machine.store().open_log_count(), CROWD + 1);
    machine.sim.fs.set_space(None);
    assert!(machine.store().close_some(0));
    assert_eq!(machine.store().open_log_count(), CROWD - 1);
}

#[test]
fn deleted_partitions_are_not_counted() {
    let machine = machine(1);
    for index in 0..4 {
        append(&machine, index, 0);
        machine.store().delete(partition(index), 0).unwrap();
    }
    assert_eq!(machine.store().open_log_count(), 0);
}

#[test]
fn half_of_the_descriptors_are_for_logs_and_few_serve_many_logs() {
    let max = |descriptors| StoreOptions::for_descriptors(descriptors).open_files_max;
    assert_eq!((max(20_000), max(100), max(0)), (10_000, 64, 64));
    let max = |descriptors| StoreOptions::for_descriptors(descriptors).open_logs_max;
    assert_eq!((max(0), max(20_000), max(1_000_000)), (32_768, 32_768, 500_000));
}

// Appends a record on the real file system.

fn append_real(log: &PartitionLog, value: &str) -> Offset {
    let batch = batch_at(&[(NOW.0, value)], BatchOptions::default());
    let options = AppendOptions { origin: AppendOrigin::Client, now: NOW };
    put(log, &batch, options).unwrap().base_offset
}

/// Descriptors of this process for files of segments below `dir`; other tests have theirs elsewhere.
fn descriptors(dir: &Path) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = links.filter_map(|link| std::fs::read_link(link.unwrap().path()).ok());
    let is_segment =
        |path: &Path| path.extension().is_some_and(|ending| ending == "log" || ending == "index");
    targets.filter(|path| path.starts_with(dir) && is_segment(path)).count()
}

#[test]
fn open_partition_holds_one_descriptor_while_there_are_enough() {
    const COUNT: i32 = 200;
    let directory = tempfile::tempdir().unwrap();
    let dirs = [directory.path().join("logs")];
    let open_all = |store: &LogStore, epoch| -> Vec<_> {
        let config = Arc::new(LogConfig::default());
        let open = |index| store.partition(partition(index), 0, config.clone(), LeaderEpoch(epoch)).unwrap();
        (0..COUNT).map(open).collect()
    };
    for epoch in 1..=3 {
        let store = LogStore::open(
            &Env::real(),
            &dirs,
            StoreOptions { open_files_max: 300, ..StoreOptions::default() },
        )
        .unwrap();
        let logs = open_all(&store, epoch);
        for log in &logs {
            append_real(log, "x");
        }
        assert_eq!(descriptors(&dirs[0]), logs.len(), "after appends, start {epoch}");
        store.checkpoint().unwrap();
        assert_eq!(descriptors(&dirs[0]), logs.len(), "after a checkpoint, start {epoch}");
        // The second start is after a kill, the third after a stop in order.
        if epoch == 2 {
            store.close().unwrap();
        }
    }
    let store =
        LogStore::open(&Env::real(), &dirs, StoreOptions { open_files_max: 8, ..StoreOptions::default() })
            .unwrap();
    let logs = open_all(&store, 4);
    for offset in 3..6 {
        for log in &logs {
            assert_eq!(append_real(log, "x"), Offset(offset));
            assert!(descriptors(&dirs[0]) <= 8, "{}", descriptors(&dirs[0]));
        }
    }
    assert_eq!(store.open_log_count(), logs.len(), "a log stays open without its file");
    store.close().unwrap();
    assert_eq!(descriptors(&dirs[0]), 0);
}

#[test]
fn a_partition_with_many_segments_has_few_of_them_open() {
    let directory = tempfile::tempdir().unwrap();
    let dirs = [directory.path().join("logs")];
    let config = Arc::new(Machine::small_segments());
    let store =
        LogStore::open(&Env::real(), &dirs, StoreOptions { open_files_max: 8, ..StoreOptions::default() })
            .unwrap();
    let log = store.partition(partition(0), 0, config, LeaderEpoch(1)).unwrap();
    let value = "x".repeat(300);
    for _ in 0..200 {
        append_real(&log, &value);
    }
    let mut from = Offset(0);
    while from < Offset(200) {
        from = log.read(from, 500, Offset(200), true).unwrap().next_offset;
        log.offset_for_timestamp(NOW).unwrap();
    }
    log.max_timestamp().unwrap();
    let open = descriptors(&dirs[0]);
    assert!((2..=8).contains(&open), "{open}");
}

#[test]
fn threads_that_crowd_each_other_out_lose_nothing() {
    const THREADS: i32 = 4;
    const ROUNDS: i64 = 30;
    let directory = tempfile::tempdir().unwrap();
    let dirs = [directory.path().join("logs")];
    let config = Arc::new(Machine::small_segments());
    let store = LogStore::open(
        &Env::real(),
        &dirs,
        StoreOptions { open_logs_max: 2, open_files_max: 3, ..StoreOptions::default() },
    )
    .unwrap();
    let log = |index| store.partition(partition(index), 0, config.clone(), LeaderEpoch(1)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for number in 0..ROUNDS {
                    for index in 0..4 {
                        // Each partition has one appender, and the others read what it has appended.
                        let own = log(thread * 4 + index);
                        assert_eq!(append_real(&own, &number.to_string()), Offset(number));
                        let other = log((thread + 1) % THREADS * 4 + index);
                        let end = other.log_end_offset().unwrap();
                        let slice = other.read(Offset(0), 1000, end, true).unwrap();
                        assert!(slice.next_offset <= other.log_end_offset().unwrap());
                    }
                }
            });
        }
    });
    for index in 0..THREADS * 4 {
        assert_eq!(log(index).log_end_offset().unwrap(), Offset(ROUNDS));
    }
    assert!(store.open_log_count() <= 2, "{}", store.open_log_count());
}

/// The cost of the first record for each of ten thousand partitions.
#[test]
fn first_record_of_a_partition_costs_the_making_of_its_files() {
    let machine = Machine::new(1, Machine::small_segments());
    machine.append("makes the topic's directory");
    let other = PartitionId { index: 1, ..crate::machine::ID };
    let before = machine.sim.fs.operations();
    machine.try_append_to(other, "first", ProducerStamp::NONE).unwrap();
    let files = ["directory", "index", "log"].len() as u64;
    let writes = ["index header", "no batch yet", "batch"].len() as u64;
    assert_eq!(machine.sim.fs.operations() - before, files + writes);
}
