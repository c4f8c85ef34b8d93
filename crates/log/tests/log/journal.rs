//! Partitions whose appends go through the journal: tail, settling, recovery, levels that change.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use riverrun_env::sim::{SimEnv, SimFileSystem};
use riverrun_env::{Env, FileSystem};
use riverrun_journal::{Journal, JournalOptions};
use riverrun_log::config::LogConfig;
use riverrun_log::producer_state::AppendOrigin;
use riverrun_log::{AppendOptions, Chunk, LogObserver, StoreOptions};
use riverrun_records::{BatchOptions, ProducerStamp};
use riverrun_types::{DurabilityLevel, LeaderEpoch, Offset, PartitionId, TimestampMs, Watermarks};

use crate::machine::{ID, Machine, batch_at, numbers, put, stamp};

fn at_level(config: &LogConfig, durability: DurabilityLevel) -> Arc<LogConfig> {
    Arc::new(LogConfig { durability, ..config.clone() })
}

/// Puts another level into force and waits for it as the broker's thread does.
fn change_level(machine: &mut Machine, durability: DurabilityLevel) {
    machine.config = at_level(&machine.config, durability);
    machine.log().set_config(machine.config.clone());
    machine.store().settle().unwrap();
    assert_eq!(machine.log().level_reached(), durability);
}

#[test]
fn acked_records_are_read_from_memory_without_a_segment() {
    let machine = Machine::synced(1, &Machine::small_segments());
    machine.append_numbers(0, 20);
    assert_eq!(machine.records().unwrap(), numbers(0, 20));
    let marks = Watermarks { appended: Offset(20), synced: Offset(20) };
    assert_eq!(machine.log().watermarks(), marks);
    assert!(!machine.sim.fs.exists(&machine.partition_dir()).unwrap(), "no files yet");
    let slice = machine.log().read(Offset(7), 300, Offset(20), true).unwrap();
    assert!(
        slice.chunks.iter().all(|chunk| matches!(chunk, Chunk::Memory(_))) && slice.next_offset > Offset(8)
    );
    assert!(machine.log().size_bytes() > 1000 && machine.store().write_cache().bytes() > 1000);
}

#[test]
fn settling_moves_the_tail_into_segments_unseen_by_readers() {
    let machine = Machine::synced(1, &Machine::small_segments());
    machine.append_numbers(0, 20);
    let (size, time) = (machine.log().size_bytes(), machine.now());
    let by_time = machine.log().offset_for_timestamp(time).unwrap();
    machine.store().settle().unwrap();
    assert_eq!(machine.store().write_cache().bytes(), 0);
    assert!(machine.log_paths().len() > 1, "it rolled");
    assert_eq!(machine.records().unwrap(), numbers(0, 20));
    assert_eq!(
        (machine.log().size_bytes(), machine.log().offset_for_timestamp(time).unwrap()),
        (size, by_time)
    );
    machine.append_numbers(20, 30);
    assert_eq!(machine.records().unwrap(), numbers(0, 30), "segments first, then the tail");
    assert_eq!(machine.log().known_range(), (Offset(0), Offset(30)));
}

#[test]
fn disk_has_begun_with_settled_bytes_before_a_checkpoint_syncs() {
    let options = StoreOptions { journal: JournalOptions::with_bytes(64 << 20), ..Machine::with_journal() };
    let config = LogConfig { durability: DurabilityLevel::SyncSync, ..LogConfig::default() };
    let machine = Machine::with_options(SimEnv::new(1), config, options);
    let value = "v".repeat(100_000);
    let settled = |records: u32| {
        (0..records).for_each(|_| _ = machine.append(&value));
        machine.store().settle().unwrap();
        machine.sim.fs.write_back_bytes()
    };
    assert_eq!(settled(2), 0, "hardly worth a write");
    let begun = settled(50);
    let size = machine.log().size_bytes();
    assert!(begun > size - (2 << 20) && begun <= size && begun % 4096 == 0, "{begun} of {size}");
    assert_eq!(settled(1), begun, "not with each run that is settled");
}

/// Two of them are enough for the disk to begin with.
fn large_batch() -> Vec<u8> {
    let value = "v".repeat(300_000);
    batch_at(&[(0, value.as_str())], BatchOptions::default())
}

/// Runs `action` whenever the disk is told to begin, for as long as it returns true.
fn during_write_backs(fs: &SimFileSystem, mut action: impl FnMut() -> bool + Send + 'static) {
    let again = fs.clone();
    fs.during_next_write_back(move || {
        if action() {
            during_write_backs(&again, action);
        }
    });
}

/// Has records appended whenever the disk is told to begin with others, so many times; counts them.
fn append_during_write_backs(machine: &Machine, times: usize, told: &Arc<AtomicUsize>) {
    let (log, fs, told, options) =
        (machine.log(), machine.sim.fs.clone(), told.clone(), machine.append_options());
    let batch = large_batch();
    during_write_backs(&fs, move || {
        (0..2).for_each(|_| _ = put(&log, &batch, options).unwrap());
        told.fetch_add(1, Ordering::SeqCst) + 1 < times
    });
}

#[test]
fn settling_leaves_later_entries_to_the_next_time() {
    let options = StoreOptions { journal: JournalOptions::with_bytes(64 << 20), ..Machine::with_journal() };
    let config = LogConfig { durability: DurabilityLevel::SyncSync, ..LogConfig::default() };
    let machine = Machine::with_options(SimEnv::new(1), config, options);
    (0..4).for_each(|_| _ = put(&machine.log(), &large_batch(), machine.append_options()).unwrap());
    let told = Arc::new(AtomicUsize::new(0));
    append_during_write_backs(&machine, 6, &told);
    let is_left = || machine.store().write_cache().bytes() > 0;
    for pass in 1..=3 {
        machine.store().settle().unwrap();
        assert_eq!((told.load(Ordering::SeqCst), is_left()), (2 * pass, true));
    }
    machine.store().settle().unwrap();
    assert!(!is_left());
    assert_eq!(machine.records().unwrap().len(), 16);
}

#[test]
fn read_goes_on_from_the_last_segment_into_memory_to_its_limit() {
    let machine = Machine::synced(1, &LogConfig::default());
    (0..10).for_each(|_| _ = machine.append("of one size"));
    machine.store().settle().unwrap();
    (0..10).for_each(|_| _ = machine.append("of one size"));
    let size = usize::try_from(machine.log().size_bytes()).unwrap() / 20;
    for (from, bytes, upto, end) in [
        (0, 100 * size, 20, 20),
        (7, 100 * size, 15, 15),
        (3, 10 * size, 20, 13),
        (9, size, 20, 10),
        (5, 5 * size, 20, 10),
        (5, 6 * size - 1, 20, 10),
        (0, 100 * size, 10, 10),
        (10, 2 * size, 20, 12),
    ] {
        let slice = machine.log().read(Offset(from), bytes, Offset(upto), true).unwrap();
        assert_eq!(slice.next_offset, Offset(end), "{bytes} bytes from {from} up to {upto}");
        let bytes: usize = slice.chunks.iter().map(|chunk| chunk.to_bytes().unwrap().len()).sum();
        assert!(bytes == slice.len && bytes == size * usize::try_from(end - from).unwrap());
    }
}

/// A machine whose segments have the journal's records, which recovery writes anew, without a checkpoint.
fn settled_and_killed() -> Machine {
    let machine = Machine::synced(1, &LogConfig::default());
    machine.append_numbers(0, 8);
    machine.store().checkpoint().unwrap();
    machine.append_numbers(8, 40);
    machine.store().settle().unwrap();
    machine.sim.fs.kill();
    machine
}

#[test]
fn recovery_writes_over_settled_bytes_without_freeing_space() {
    let whole = {
        let machine = settled_and_killed();
        machine.content(&machine.log_paths()[0])
    };
    for options in [Machine::with_journal(), Machine::settled_at_start()] {
        let mut is_settled = false;
        for stop in 0..100 {
            let mut machine = settled_and_killed();
            let path = machine.log_paths().remove(0);
            machine.store = None;
            machine.options = options.clone();
            machine.sim.fs.stop_after(stop);
            is_settled |= machine.start().is_ok() && machine.store().checkpoint().is_ok();
            machine.sim.fs.kill();
            assert_eq!(machine.content(&path), whole, "stopped at {stop}");
            if is_settled {
                break;
            }
        }
        assert!(is_settled);
    }
}

#[test]
fn old_bytes_beyond_the_replay_are_cut_once_it_is_written() {
    for (options, is_at_start) in [(Machine::with_journal(), false), (Machine::settled_at_start(), true)] {
        let mut machine = settled_and_killed();
        let path = machine.log_paths().remove(0);
        let whole = machine.content(&path);
        // Intact, and in order: a later start would take it for records.
        let mut longer = whole.clone();
        let extra = batch_at(&[(0, "never acked")], BatchOptions::default());
        longer.extend(extra);
        riverrun_records::patch_base_offset(&mut longer[whole.len()..], Offset(40));
        machine.put_content(&path, &longer);
        machine.store = None;
        machine.options = options;
        machine.start().unwrap();
        assert_eq!(machine.records().unwrap(), numbers(0, 40));
        if !is_at_start {
            assert!(machine.content(&path) == longer, "nothing was written");
            machine.store().checkpoint().unwrap();
        }
        assert!(machine.content(&path) == whole);
        machine.kill();
        assert_eq!(machine.records().unwrap(), numbers(0, 40));
        machine.restart();
        assert_eq!(machine.records().unwrap(), numbers(0, 40));
    }
}

#[test]
fn acked_records_survive_a_power_cut_settled_or_not() {
    for seed in 0..20 {
        let mut machine = Machine::synced(seed, &Machine::small_segments());
        machine.append_numbers(0, 5);
        machine.store().settle().unwrap();
        machine.append_numbers(5, 12);
        machine.crash();
        assert_eq!(machine.records().unwrap(), numbers(0, 12), "seed {seed}");
        assert_eq!((machine.recovered.entries, machine.recovered.partitions), (12, 1));
        assert_eq!(machine.log().watermarks().synced, Offset(12));
        machine.append_numbers(12, 15);
        machine.store().checkpoint().unwrap();
        machine.append_numbers(15, 17);
        machine.crash();
        assert_eq!(machine.records().unwrap(), numbers(0, 17), "seed {seed}");
        assert_eq!(machine.recovered.entries, 2, "a checkpoint covers the others");
    }
}

#[test]
fn a_stop_in_order_leaves_nothing_to_recover() {
    let mut machine = Machine::synced(1, &Machine::small_segments());
    machine.append_numbers(0, 12);
    machine.restart();
    assert!(machine.store().was_clean());
    let report = &machine.recovered;
    assert_eq!((report.entries, report.known_entries), (0, 0));
    assert_eq!(machine.records().unwrap(), numbers(0, 12));
    machine.append_numbers(12, 15);
    machine.restart();
    assert_eq!(machine.records().unwrap(), numbers(0, 15));
}

#[test]
fn duplicates_are_found_wherever_the_first_of_them_is() {
    let mut machine = Machine::synced(1, &Machine::small_segments());
    for sequence in 0..4 {
        machine.try_append(&format!("record {sequence}"), stamp(9, sequence)).unwrap();
    }
    for round in 0..4 {
        let again = machine.try_append("record 2", stamp(9, 2)).unwrap();
        assert!(again.duplicate && again.base_offset == Offset(2), "round {round}");
        assert!(machine.try_append("gap", stamp(9, 5)).is_err());
        match round {
            0 => machine.store().settle().unwrap(),
            1 => machine.crash(),
            _ => machine.restart(),
        }
    }
    assert_eq!(machine.records().unwrap(), numbers(0, 4));
}

#[test]
fn duplicate_of_a_staged_batch_is_found_and_one_write_takes_all() {
    let machine = Machine::new(1, LogConfig::default());
    let log = machine.log();
    let stage = |sequence: i32| {
        let options = BatchOptions { producer: stamp(9, sequence), ..BatchOptions::default() };
        let batch = batch_at(&[(machine.now().0, "staged")], options);
        log.append(BytesMut::from(&batch[..]), machine.append_options())
    };
    let first = stage(0).unwrap();
    stage(1).unwrap();
    let again = stage(0).unwrap();
    assert!(again.duplicate && again.base_offset == first.base_offset);
    assert!(stage(3).is_err(), "a gap after the staged batch");
    assert_eq!((log.log_end_offset().unwrap(), log.watermarks().appended), (Offset(0), Offset(0)));
    log.write_staged().unwrap();
    assert_eq!((log.log_end_offset().unwrap(), log.watermarks().appended), (Offset(2), Offset(2)));
    let before = machine.sim.fs.operations();
    for sequence in 2..7 {
        stage(sequence).unwrap();
    }
    log.write_staged().unwrap();
    assert_eq!((machine.sim.fs.operations() - before, log.log_end_offset().unwrap()), (1, Offset(7)));
}

#[test]
fn staged_batches_are_lost_with_a_write_and_can_be_sent_again() {
    let machine = Machine::new(1, Machine::small_segments());
    machine.try_append("record 0", stamp(9, 0)).unwrap();
    let log = machine.log();
    let batch = |sequence: i32, value: &str| {
        let options = BatchOptions { producer: stamp(9, sequence), ..BatchOptions::default() };
        BytesMut::from(&batch_at(&[(machine.now().0, value)], options)[..])
    };
    let one = log.append(batch(1, "record 1"), machine.append_options()).unwrap();
    let two = log.append(batch(2, "record 2"), machine.append_options()).unwrap();
    machine.sim.fs.set_space(Some(10));
    assert!(log.write_staged().is_err());
    assert!(log.is_lost(&one) && log.is_lost(&two));
    machine.sim.fs.set_space(None);
    for sequence in 1..3 {
        let again = machine.try_append(&format!("record {sequence}"), stamp(9, sequence)).unwrap();
        assert!(!again.duplicate, "{sequence}: it was lost");
    }
    assert_eq!(machine.records().unwrap(), numbers(0, 3));
    assert!(log.is_lost(&one), "others have its offset");
}

struct Watching {
    advances: AtomicUsize,
    failures: AtomicUsize,
}

fn until(is_so: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if is_so() {
            return;
        }
        Env::real().clock.sleep(std::time::Duration::from_millis(1));
    }
    panic!("it never comes");
}

impl LogObserver for Watching {
    fn advanced(&self) {
        self.advances.fetch_add(1, Ordering::SeqCst);
    }

    fn failed(&self) {
        self.failures.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn failed_journal_fails_its_appends_and_other_levels_go_on() {
    let mut machine = Machine::synced(1, &LogConfig::default());
    machine.append_numbers(0, 3);
    let watching = Arc::new(Watching { advances: AtomicUsize::new(0), failures: AtomicUsize::new(0) });
    let observer: std::sync::Weak<Watching> = Arc::downgrade(&watching);
    machine.log().observe(observer);
    machine.append_numbers(3, 4);
    // The observer is called right after the mark has moved.
    until(|| watching.advances.load(Ordering::SeqCst) > 0);
    machine.sim.fs.fail_sync_after(0);
    assert!(machine.try_append("lost", ProducerStamp::NONE).is_err());
    until(|| watching.failures.load(Ordering::SeqCst) > 0);
    let error = machine.try_append("refused", ProducerStamp::NONE).unwrap_err();
    assert!(error.to_string().contains("journal has failed"), "{error}");
    assert_eq!(machine.records().unwrap(), numbers(0, 4), "reads go on");
    let other = PartitionId { index: 1, ..ID };
    let config = at_level(&machine.config, DurabilityLevel::AsyncAsync);
    let log = machine.store().partition(other, 0, config, LeaderEpoch(1)).unwrap();
    put(&log, &batch_at(&[(0, "async")], BatchOptions::default()), machine.append_options()).unwrap();
    machine.kill();
    let records = machine.records().unwrap();
    assert_eq!(records[..4], numbers(0, 4));
    machine.try_append("after", ProducerStamp::NONE).unwrap();
}

#[test]
fn a_change_of_level_loses_and_reorders_nothing_either_way() {
    for seed in 0..10 {
        let mut machine = Machine::synced(seed, &Machine::small_segments());
        machine.append_numbers(0, 6);
        change_level(&mut machine, DurabilityLevel::AsyncAsync);
        machine.append_numbers(6, 12);
        change_level(&mut machine, DurabilityLevel::AsyncSync);
        assert_eq!(machine.log().watermarks().synced, Offset(12), "synced before the first ack");
        machine.append_numbers(12, 15);
        change_level(&mut machine, DurabilityLevel::SyncSync);
        machine.append_numbers(15, 18);
        machine.crash();
        assert_eq!(machine.records().unwrap(), numbers(0, 18), "seed {seed}");
        change_level(&mut machine, DurabilityLevel::SyncAsync);
        machine.append_numbers(18, 20);
        machine.kill();
        assert_eq!(machine.records().unwrap(), numbers(0, 20), "seed {seed}: a kill takes nothing");
    }
}

#[test]
fn reached_levels_are_counted_for_each_topic_and_told_once() {
    let mut machine = Machine::synced(9, &Machine::small_segments());
    machine.config = at_level(&machine.config, DurabilityLevel::AsyncAsync);
    machine.log().set_config(machine.config.clone());
    machine.log().ensure_open().unwrap();
    let id = PartitionId { index: ID.index + 1, ..ID };
    let other = machine.store().partition(id, 0, machine.config.clone(), LeaderEpoch(1));
    let logs = [machine.log(), other.unwrap()];
    logs[1].ensure_open().unwrap();
    machine.store().settle().unwrap();
    machine.store().take_level_changes();
    for log in &logs {
        log.set_config(at_level(&machine.config, DurabilityLevel::SyncSync));
    }
    machine.store().settle().unwrap();
    let expected = [((ID.topic, DurabilityLevel::SyncSync), 2)];
    assert_eq!(machine.store().take_level_changes().into_iter().collect::<Vec<_>>(), expected);
    assert!(machine.store().take_level_changes().is_empty());
}

#[test]
fn the_level_of_a_log_that_has_nothing_but_a_log_start_changes() {
    let mut machine = Machine::with_options(SimEnv::new(1), LogConfig::default(), Machine::with_journal());
    machine.append_numbers(0, 6);
    machine.log().delete_records(Offset(4)).unwrap();
    machine.sim.fs.remove_dir_all(&machine.partition_dir()).unwrap();
    machine.kill();
    assert_eq!(machine.log().watermarks(), Watermarks { appended: Offset(0), synced: Offset(0) });
    machine.log().ensure_open().unwrap();
    assert_eq!(machine.log().watermarks(), Watermarks { appended: Offset(4), synced: Offset(4) });
    change_level(&mut machine, DurabilityLevel::SyncSync);
    assert_eq!(machine.append("after"), Offset(4));
    machine.crash();
    assert_eq!(machine.records().unwrap(), [(4, "after".to_owned())]);
}

#[test]
fn level_changed_while_the_server_was_down_comes_after_recovery() {
    let mut machine = Machine::synced(1, &Machine::small_segments());
    machine.append_numbers(0, 6);
    machine.config = at_level(&machine.config, DurabilityLevel::AsyncAsync);
    machine.crash();
    assert_eq!(machine.log().level_reached(), DurabilityLevel::AsyncSync, "the journal has its end");
    machine.append_numbers(6, 8);
    machine.store().settle().unwrap();
    assert_eq!(machine.log().level_reached(), DurabilityLevel::AsyncAsync);
    machine.append_numbers(8, 12);
    machine.kill();
    assert_eq!(machine.records().unwrap(), numbers(0, 12));
    machine.config = at_level(&machine.config, DurabilityLevel::SyncSync);
    machine.kill();
    assert_eq!(machine.log().watermarks(), Watermarks { appended: Offset(0), synced: Offset(0) });
    assert_eq!(machine.records().unwrap(), numbers(0, 12), "synced when it was opened");
    assert_eq!(machine.log().level_reached(), DurabilityLevel::SyncSync);
    machine.append_numbers(12, 14);
    machine.crash();
    assert_eq!(machine.records().unwrap(), numbers(0, 14));
}

#[test]
fn deleted_records_stay_deleted_wherever_they_were() {
    let mut machine = Machine::synced(1, &Machine::small_segments());
    machine.append_numbers(0, 10);
    assert_eq!(machine.log().delete_records(Offset(7)).unwrap(), Offset(7));
    assert_eq!(machine.records().unwrap(), numbers(7, 10));
    machine.crash();
    assert_eq!(machine.records().unwrap(), numbers(7, 10));
    machine.append_numbers(10, 12);
    machine.log().delete_records(Offset(12)).unwrap();
    machine.crash();
    assert_eq!(machine.records().unwrap(), []);
    assert_eq!(machine.log().log_end_offset().unwrap(), Offset(12));
    machine.append_numbers(12, 13);
}

#[test]
fn epochs_of_the_tail_are_known_and_follow_a_recovery() {
    let mut machine = Machine::synced(1, &LogConfig::default());
    machine.append_numbers(0, 3);
    machine.crash();
    machine.append_numbers(3, 5);
    for round in 0..2 {
        let log = machine.log();
        assert_eq!(
            log.epoch_end_offset(LeaderEpoch(1)).unwrap(),
            (LeaderEpoch(1), Offset(3)),
            "round {round}"
        );
        assert_eq!(log.epoch_of(Offset(4)).unwrap(), Some(LeaderEpoch(2)));
        assert_eq!(log.latest_epoch().unwrap(), Some(LeaderEpoch(2)));
        machine.crash();
    }
}

#[test]
fn a_journal_goes_round_while_records_keep_coming() {
    let mut machine = Machine::synced(1, &LogConfig::default());
    let value = "x".repeat(200_000);
    for number in 0..60 {
        let options = AppendOptions { origin: AppendOrigin::Client, now: TimestampMs(number) };
        let batch = batch_at(&[(number, &value)], BatchOptions::default());
        put(&machine.log(), &batch, options).unwrap();
        machine.store().settle().unwrap();
        let used: u64 = machine.store().journals().map(Journal::used_bytes).sum();
        assert!(used < 3 << 20, "{used} bytes of 4 MiB");
    }
    machine.crash();
    assert_eq!(machine.log().log_end_offset().unwrap(), Offset(60));
    assert!(machine.recovered.entries < 20, "{:?}", machine.recovered);
}

#[test]
fn entries_of_a_topic_that_was_deleted_are_dropped() {
    let mut machine = Machine::synced(1, &LogConfig::default());
    machine.append_numbers(0, 3);
    machine.sim.fs.crash();
    machine.store = None;
    let store =
        riverrun_log::LogStore::open(&machine.sim.env(), &["/logs".into()], machine.options.clone()).unwrap();
    assert!(
        store.partition(ID, 0, machine.config.clone(), LeaderEpoch(2)).unwrap().log_end_offset().is_err()
    );
    let report = store.recover(|_| LeaderEpoch(2), |_| riverrun_log::Place::Deleted).unwrap();
    assert_eq!((report.dropped_entries, report.entries), (3, 0));
    let log = store.partition(ID, 0, machine.config.clone(), LeaderEpoch(2)).unwrap();
    assert_eq!(log.log_end_offset().unwrap(), Offset(0));
}

#[test]
fn the_memory_of_a_deleted_partition_comes_back() {
    let machine = Machine::synced(1, &LogConfig::default());
    machine.append_numbers(0, 5);
    let other = PartitionId { index: 1, ..ID };
    machine.try_append_to(other, "stays", ProducerStamp::NONE).unwrap();
    let before = machine.store().write_cache().bytes();
    machine.store().delete(ID, 0).unwrap();
    let left = machine.store().write_cache().bytes();
    assert!(left > 0 && left < before / 2, "{left} of {before}");
    machine.store().settle().unwrap();
    assert_eq!(machine.store().write_cache().bytes(), 0);
}

#[test]
fn level_stays_if_the_wanted_one_needs_a_failed_journal() {
    let mut machine = Machine::with_options(SimEnv::new(1), LogConfig::default(), Machine::with_journal());
    let synced = at_level(&machine.config, DurabilityLevel::SyncSync);
    machine.append_numbers(0, 1);
    let other = PartitionId { index: 1, ..ID };
    let synced_log = machine.store().partition(other, 0, synced.clone(), LeaderEpoch(1)).unwrap();
    let options = machine.append_options();
    let batch = |value: &str, producer| {
        batch_at(&[(options.now.0, value)], BatchOptions { producer, ..BatchOptions::default() })
    };
    machine.store().checkpoint().unwrap();
    let log = machine.log();
    log.set_config(synced.clone());
    // Records from the beginning of the change are synced while appends are held up.
    log.append(BytesMut::from(&batch("record 1", ProducerStamp::NONE)[..]), options).unwrap();
    let (held_up, appended) = (batch("record 2", stamp(9, 0)), Arc::new(std::sync::Mutex::new(None)));
    let (inner, told, bytes) = (log.clone(), appended.clone(), held_up.clone());
    let (sim, fails) = (machine.sim.clone(), batch("fails", ProducerStamp::NONE));
    machine.sim.fs.during_next_sync(move || {
        *told.lock().unwrap() = Some(inner.append(BytesMut::from(&bytes[..]), options).unwrap());
        sim.fs.fail_sync_after(0);
        assert!(put(&synced_log, &fails, options).is_err());
    });
    machine.store().settle().unwrap();
    let appended = appended.lock().unwrap().take().expect("something was held up");
    assert!(!log.is_lost(&appended));
    assert_eq!(log.level_reached(), DurabilityLevel::AsyncAsync);
    let again = put(&log, &held_up, options).unwrap();
    assert!(again.duplicate && again.base_offset == Offset(2));
    // Once that is known nothing is held up for it: no checkpoint is made.
    machine.store().checkpoint().unwrap();
    log.set_config(machine.config.clone());
    log.set_config(synced.clone());
    put(&log, &batch("record 3", ProducerStamp::NONE), options).unwrap();
    let syncs = machine.sim.fs.syncs();
    machine.store().settle().unwrap();
    assert_eq!(machine.sim.fs.syncs(), syncs);
    // Nor does it change when the log is opened anew, which the options alone would ask for.
    machine.store().checkpoint().unwrap();
    machine.store().close_idle(0, Duration::ZERO);
    assert!(machine.store().close_idle(0, Duration::ZERO) > 0);
    assert_eq!(machine.store().level_reached(ID, 0, DurabilityLevel::SyncSync), DurabilityLevel::AsyncAsync);
    put(&log, &batch("record 4", ProducerStamp::NONE), options).unwrap();
    machine.config = synced;
    machine.kill();
    assert_eq!(machine.records().unwrap(), numbers(0, 5));
    assert_eq!(machine.log().level_reached(), DurabilityLevel::SyncSync, "the journal is another one now");
    machine.append_numbers(5, 6);
}

#[test]
fn records_of_a_killed_process_count_as_synced_after_a_sync() {
    let mut machine = Machine::with_options(SimEnv::new(1), LogConfig::default(), Machine::with_journal());
    machine.append_numbers(0, 3);
    let level = |machine: &Machine, wanted| machine.store().level_reached(ID, 0, wanted);
    let (wanted, before) = (DurabilityLevel::SyncSync, DurabilityLevel::SyncAsync);
    assert_eq!(level(&machine, wanted), DurabilityLevel::AsyncAsync, "the log is open");
    machine.config = at_level(&machine.config, wanted);
    machine.kill();
    assert_eq!([level(&machine, wanted), level(&machine, before)], [before, before]);
    let made_now = PartitionId { index: 1, ..ID };
    assert_eq!(machine.store().level_reached(made_now, 0, wanted), wanted, "nothing of it was found");
    machine.store().sync_found(0);
    assert_eq!(level(&machine, wanted), wanted);
    assert_eq!(machine.store().open_log_count(), 0);
    let syncs = machine.sim.fs.syncs();
    machine.store().sync_found(0);
    assert_eq!(machine.sim.fs.syncs(), syncs, "once is enough");
    machine.crash();
    assert_eq!(machine.records().unwrap(), numbers(0, 3));
}

#[test]
fn a_stop_in_order_syncs_what_a_killed_process_has_left() {
    for seed in 0..10 {
        let sim = SimEnv::new(seed);
        let mut machine = Machine::with_options(sim, LogConfig::default(), Machine::with_journal());
        machine.append_numbers(0, 3);
        machine.kill();
        machine.restart();
        machine.crash();
        assert_eq!(machine.records().unwrap(), numbers(0, 3), "seed {seed}");
    }
}

#[test]
fn handle_that_outlives_its_store_does_not_hinder_the_next_one() {
    let mut machine = Machine::synced(1, &LogConfig::default());
    machine.append_numbers(0, 3);
    let held = machine.log();
    machine.store = None;
    machine.start().unwrap();
    machine.append_numbers(3, 5);
    assert!(held.log_end_offset().is_err());
    assert!(put(&held, &batch_at(&[(0, "no")], BatchOptions::default()), machine.append_options()).is_err());
    assert_eq!(machine.records().unwrap(), numbers(0, 5));
}

/// The journal's entries end below the log start, because the log's end was lost with the power, and the level wants
/// the segments. Appends must not go there while the next start would put the journal's entries before them.
#[test]
fn log_that_lost_its_end_below_its_start_keeps_later_acks() {
    let mut count = 0;
    for seed in 0..40 {
        let options = StoreOptions { journal_async_write: true, ..Machine::with_journal() };
        let config = LogConfig { durability: DurabilityLevel::AsyncAsync, ..Machine::small_segments() };
        let mut machine = Machine::with_options(SimEnv::new(seed), config, options);
        machine.append_numbers(0, 5);
        let synced = at_level(&machine.config, DurabilityLevel::SyncSync);
        let other =
            machine.store().partition(PartitionId { index: 1, ..ID }, 0, synced, LeaderEpoch(1)).unwrap();
        put(&other, &batch_at(&[(0, "synced")], BatchOptions::default()), machine.append_options()).unwrap();
        machine.append_numbers(5, 10);
        machine.log().delete_records(Offset(8)).unwrap();
        machine.options.journal_async_write = false;
        machine.crash();
        let end = machine.log().log_end_offset().unwrap().0;
        let is_wanted = end == 8 && machine.recovered.entries > 0;
        count += i32::from(is_wanted);
        machine.append_numbers(end, end + 3);
        machine.kill();
        let (start, end) = (8, end + 3);
        assert_eq!(machine.records().unwrap(), numbers(start, end), "seed {seed}");
        machine.store().settle().unwrap();
        assert_eq!(machine.log().level_reached(), DurabilityLevel::AsyncAsync);
        machine.append_numbers(end, end + 2);
        machine.kill();
        assert_eq!(machine.records().unwrap(), numbers(start, end + 2), "seed {seed}");
    }
    assert!(count > 5, "{count} logs ended below their start");
}

#[test]
fn append_during_a_level_change_counts_in_the_write_cache() {
    let mut machine = Machine::synced(1, &LogConfig::default());
    change_level(&mut machine, DurabilityLevel::AsyncAsync);
    machine.append_numbers(0, 3);
    machine.store().checkpoint().unwrap();
    let (log, options) = (machine.log(), machine.append_options());
    let batch = |value| batch_at(&[(machine.now().0, value)], BatchOptions::default());
    log.set_config(at_level(&machine.config, DurabilityLevel::SyncSync));
    // Records from the beginning of the change are synced while appends are held up.
    log.append(BytesMut::from(&batch("record 3")[..]), options).unwrap();
    let (inner, bytes, counted) = (log.clone(), batch("record 4"), Arc::new(AtomicUsize::new(0)));
    let (store, told, size) = (machine.store.take().map(Arc::new).unwrap(), counted.clone(), bytes.len());
    let cache_of = store.clone();
    machine.sim.fs.during_next_sync(move || {
        inner.append(BytesMut::from(&bytes[..]), options).unwrap();
        told.store(usize::try_from(cache_of.write_cache().bytes()).unwrap(), Ordering::SeqCst);
    });
    store.settle().unwrap();
    assert_eq!(counted.load(Ordering::SeqCst), size);
    machine.store = Arc::into_inner(store);
    assert_eq!(log.level_reached(), DurabilityLevel::SyncSync);
    machine.append_numbers(5, 6);
    machine.store().settle().unwrap();
    assert_eq!(machine.store().write_cache().bytes(), 0);
    assert_eq!(machine.records().unwrap(), numbers(0, 6));
}

#[test]
fn a_change_of_level_that_found_no_room_is_made_later() {
    let mut machine = Machine::synced(1, &Machine::small_segments());
    change_level(&mut machine, DurabilityLevel::AsyncAsync);
    machine.append_numbers(0, 3);
    let log = machine.log();
    log.set_config(at_level(&machine.config, DurabilityLevel::SyncSync));
    let batch = batch_at(&[(machine.now().0, "no room")], BatchOptions::default());
    let lost = log.append(BytesMut::from(&batch[..]), machine.append_options()).unwrap();
    machine.sim.fs.set_space(Some(10));
    assert!(machine.store().settle().is_err());
    assert!(log.is_lost(&lost));
    machine.sim.fs.set_space(None);
    machine.store().settle().unwrap();
    assert_eq!(log.level_reached(), DurabilityLevel::SyncSync);
}

#[test]
fn level_changes_after_a_checkpoint_that_could_not_be_written() {
    let mut failed = 0;
    for space in (0..400).step_by(10) {
        let mut machine = Machine::synced(1, &Machine::small_segments());
        machine.append_numbers(0, 3);
        machine.store().settle().unwrap();
        machine.sim.fs.set_space(Some(space));
        failed += i32::from(machine.store().checkpoint().is_err());
        machine.sim.fs.set_space(None);
        change_level(&mut machine, DurabilityLevel::AsyncAsync);
    }
    assert!(failed > 10, "{failed}");
}

#[test]
fn a_stop_that_leaves_records_in_the_journal_is_none_in_order() {
    let mut failed = 0;
    for space in (0..3000).step_by(100) {
        let mut machine = Machine::synced(1, &Machine::small_segments());
        machine.append_numbers(0, 3);
        machine.store().checkpoint().unwrap();
        machine.append_numbers(3, 20);
        machine.sim.fs.set_space(Some(space));
        let closed = machine.store.take().unwrap().close();
        machine.sim.fs.set_space(None);
        machine.start().unwrap();
        assert_eq!(machine.store().was_clean(), closed.is_ok(), "space {space}");
        failed += i32::from(closed.is_err());
        assert_eq!(machine.records().unwrap(), numbers(0, 20));
    }
    assert!(failed > 10, "{failed}");
}

/// The journal's groups hold records of many partitions, and their memory is freed when the last of these is settled.
#[test]
fn there_is_room_in_the_write_cache_once_all_tails_are_settled() {
    let options = StoreOptions { write_cache_bytes: 500, ..Machine::with_journal() };
    let config = LogConfig { durability: DurabilityLevel::SyncSync, ..LogConfig::default() };
    let mut machine = Machine::with_options(SimEnv::new(1), config, options);
    for index in 0..20 {
        machine.try_append_to(PartitionId { index, ..ID }, "value", ProducerStamp::NONE).unwrap();
    }
    let store = machine.store.take().map(Arc::new).unwrap();
    assert!(store.write_cache().is_full());
    let told = Arc::new(AtomicUsize::new(usize::MAX));
    let (noted, cache_of) = (told.clone(), Arc::downgrade(&store));
    store.write_cache().on_room(Box::new(move || {
        let bytes = cache_of.upgrade().map_or(0, |store| store.write_cache().bytes());
        noted.store(usize::try_from(bytes).unwrap(), Ordering::SeqCst);
    }));
    store.settle().unwrap();
    assert_eq!(told.load(Ordering::SeqCst), 0, "the bytes at the first moment with room");
}

/// A group of the journal holds records of many partitions, and a slow client would keep all of it in memory.
#[test]
fn small_batches_of_a_reader_have_memory_of_their_own() {
    let machine = Machine::synced(1, &LogConfig::default());
    let large = "x".repeat(10_000);
    for value in ["one", "two", &large, "three"] {
        machine.append(value);
    }
    let log = machine.log();
    let read = || {
        let chunks = log.read(Offset(0), 1 << 20, Offset(4), true).unwrap().chunks;
        let bytes: Vec<_> = chunks.iter().map(|chunk| chunk.to_bytes().unwrap()).collect();
        bytes
    };
    let (first, second) = (read(), read());
    assert_eq!(first, second);
    let is_shared: Vec<_> =
        first.iter().zip(&second).map(|(one, other)| one.as_ptr() == other.as_ptr()).collect();
    assert_eq!(is_shared, [false, true, false], "two small ones, a large one, and a small one");
    assert_eq!(machine.records().unwrap().len(), 4);
}
