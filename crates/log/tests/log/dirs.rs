//! Log dirs: locks, idle partitions, deletion, sizes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use riverrun_env::sim::SimEnv;
use riverrun_env::{FileSystem, OpenMode};
use riverrun_log::config::{CleanupPolicy, LogConfig};
use riverrun_log::{KnownPartition, LogError, LogStore, RecoveryReport, StoreOptions};
use riverrun_records::ProducerStamp;
use riverrun_types::{DurabilityLevel, ErrorKind, LeaderEpoch, Offset, PartitionId, TopicId};

use crate::machine::{DIR, ID, Machine, numbers, put, stamp};

fn open(sim: &SimEnv) -> Result<LogStore, LogError> {
    LogStore::open(&sim.env(), &[PathBuf::from(DIR)], StoreOptions::default())
}

#[test]
fn a_log_dir_has_one_user_at_a_time() {
    let mut machine = Machine::new(1, LogConfig::default());
    let error = open(&machine.sim).unwrap_err();
    assert!(matches!(error, LogError::Locked { .. }), "{error}");
    machine.store.take().unwrap().close().unwrap();
    open(&machine.sim).unwrap();
}

#[test]
fn files_of_the_dir_that_are_damaged_missing_or_newer_are_found() {
    for file in ["checkpoint", "log-starts"] {
        let path = Path::new(DIR).join(file);
        let mut machine = Machine::new(1, LogConfig::default());
        machine.append_numbers(0, 5);
        machine.store.take().unwrap().close().unwrap();
        let intact = machine.content(&path);

        let mut newer = intact.clone();
        newer[9] = 99;
        machine.put_content(&path, &newer);
        let error = machine.start().unwrap_err();
        assert!(error.to_string().contains("version 99"), "{file}: {error}");

        machine.sim.fs.remove_file(&path).unwrap();
        machine.start().unwrap();
        assert_eq!(machine.records().unwrap(), numbers(0, 5), "{file}");
    }
}

#[test]
fn a_damaged_checkpoint_costs_a_scan_and_no_records() {
    let mut machine = Machine::new(1, Machine::small_segments());
    machine.append_numbers(0, 30);
    machine.try_append("record 30", stamp(9, 0)).unwrap();
    machine.restart();
    machine.append_numbers(31, 33);
    machine.store.take().unwrap().close().unwrap();
    let path = Path::new(DIR).join("checkpoint");
    let intact = machine.content(&path);
    for position in 0..intact.len() {
        let mut damaged = intact.clone();
        damaged[position] ^= 0x10;
        machine.put_content(&path, &damaged);
        if let Err(error) = machine.start() {
            assert!(error.to_string().contains("version"), "{error}");
            continue;
        }
        assert_eq!(machine.records().unwrap(), numbers(0, 33), "byte {position}");
        assert!(machine.try_append("record 30", stamp(9, 0)).unwrap().duplicate);
        machine.sim.fs.kill();
        machine.store = None;
    }
}

/// A log whose first segments retention has deleted, in a dir whose checkpoint is damaged.
fn retained_without_checkpoint() -> (Machine, Vec<(i64, String)>) {
    let cleanup = CleanupPolicy { delete: true, compact: false };
    let config = LogConfig { retention_bytes: Some(500), cleanup, ..Machine::small_segments() };
    let mut machine = Machine::new(1, config);
    machine.append_numbers(0, 40);
    machine.store().checkpoint().unwrap();
    assert!(machine.log().apply_retention(machine.now(), Offset(40)).unwrap().segments > 1);
    machine.store().checkpoint().unwrap();
    // The dir's other file has a record of it, which is written over.
    let other = PartitionId { index: 1, ..ID };
    machine.try_append_to(other, "deleted", ProducerStamp::NONE).unwrap();
    machine.partition(other).delete_records(Offset(1)).unwrap();
    machine.append_numbers(40, 43);
    let expected = machine.records().unwrap();
    assert!(expected.len() < 30);
    machine.restart();
    machine.sim.fs.kill();
    machine.store = None;
    let path = Path::new(DIR).join("checkpoint");
    let mut bytes = machine.content(&path);
    bytes[30] ^= 1;
    machine.put_content(&path, &bytes);
    (machine, expected)
}

/// The checkpoint that replaces a damaged one is intact. It must not say that logs that were not opened since are
/// empty.
#[test]
fn unopened_logs_of_a_damaged_checkpoint_are_not_taken_for_new() {
    let (mut machine, expected) = retained_without_checkpoint();
    for round in 0..6 {
        let store = open(&machine.sim).unwrap();
        match round {
            0 => machine.sim.fs.kill(),
            1 => machine.sim.fs.crash(),
            2 => store.checkpoint().unwrap(),
            3 => {
                let other = PartitionId { index: 1, ..ID };
                let log = store.partition(other, 0, machine.config.clone(), LeaderEpoch(9)).unwrap();
                let batch = crate::machine::batch_at(&[(0, "x")], riverrun_records::BatchOptions::default());
                put(&log, &batch, machine.append_options()).unwrap();
                store.close().unwrap();
            }
            4 => _ = store.close().unwrap(),
            _ => {}
        }
        drop(store);
        let report = riverrun_log::verify_partition(
            &machine.sim.env(),
            &Path::new(DIR).join("abababab-abab-abab-abab-abababababab").join("0"),
            ID,
        );
        assert_eq!(report.unwrap().findings, [], "round {round}");
    }
    machine.start().unwrap();
    assert_eq!(machine.records().unwrap(), expected);
    machine.append("goes on");
    machine.restart();
    assert_eq!(machine.records().unwrap()[..expected.len()], expected);
}

/// Once a log was opened and a checkpoint covers it, its torn tails are cut like any other's.
#[test]
fn log_opened_since_a_damaged_checkpoint_is_like_any_other() {
    let (mut machine, expected) = retained_without_checkpoint();
    machine.start().unwrap();
    assert_eq!(machine.records().unwrap(), expected);
    machine.store().checkpoint().unwrap();
    machine.append_numbers(43, 46);
    for path in machine.log_paths() {
        let mut bytes = machine.content(&path);
        if let Some(at) = bytes.windows(9).position(|window| window == b"record 43") {
            bytes[at] ^= 1;
            machine.put_content(&path, &bytes);
        }
    }
    machine.kill();
    assert_eq!(machine.records().unwrap(), expected, "batches behind the damage go, as none was synced");
}

/// Entries of the journal are settled into a log whose checkpoint was damaged, and a power cut leaves some of their
/// bytes: the journal has them all, so nothing has to be judged.
#[test]
fn log_of_a_damaged_checkpoint_is_covered_before_it_is_settled() {
    let mut machine = Machine::synced(1, &LogConfig::default());
    machine.append_numbers(0, 6);
    machine.store.take().unwrap().close().unwrap();
    let path = Path::new(DIR).join("checkpoint");
    let mut bytes = machine.content(&path);
    bytes[30] ^= 1;
    machine.put_content(&path, &bytes);
    machine.start().unwrap();
    let value = "x".repeat(1000);
    for number in 6..16 {
        assert_eq!(machine.append(&value), Offset(number));
        machine.store().settle().unwrap();
    }
    let (config, options) = (machine.config.clone(), machine.options.clone());
    let mut states = 0;
    for sim in machine.sim.crash_states(300) {
        let (config, options) = (config.clone(), options.clone());
        let recovered = riverrun_log::RecoveryReport::default();
        let mut found = Machine { sim, config, epoch: 5, options, store: None, recovered };
        found.start().unwrap();
        assert_eq!(found.records().unwrap().len(), 16, "state {states}");
        states += 1;
    }
    assert!(states > 1);
}

#[test]
fn start_that_ends_before_recovery_mends_no_damaged_checkpoint() {
    let mut machine = Machine::synced(1, &Machine::small_segments());
    machine.append_numbers(0, 6);
    machine.store().settle().unwrap();
    machine.config =
        LogConfig { durability: DurabilityLevel::AsyncAsync, ..(*machine.config).clone() }.into();
    machine.log().set_config(machine.config.clone());
    machine.store().settle().unwrap();
    assert_eq!(machine.log().level_reached(), DurabilityLevel::AsyncAsync);
    machine.append_numbers(6, 12);
    machine.sim.fs.kill();
    machine.store = None;
    let path = Path::new(DIR).join("checkpoint");
    let mut bytes = machine.content(&path);
    bytes[30] ^= 1;
    machine.put_content(&path, &bytes);
    for _ in 0..2 {
        drop(LogStore::open(&machine.sim.env(), &[PathBuf::from(DIR)], machine.options.clone()).unwrap());
    }
    machine.start().unwrap();
    assert_eq!(machine.records().unwrap(), numbers(0, 12));
    machine.kill();
    assert_eq!(machine.records().unwrap(), numbers(0, 12));
}

#[test]
fn a_log_that_is_kept_open_is_not_closed_while_idle() {
    let machine = Machine::new(1, Machine::small_segments());
    machine.append_numbers(0, 20);
    machine.store().checkpoint().unwrap();
    let log = machine.log();
    let kept = log.keep_if_open().expect("it is open");
    for _ in 0..2 {
        assert_eq!(machine.store().close_idle(0, Duration::ZERO), 0);
    }
    drop(kept);
    assert_eq!(machine.store().close_idle(0, Duration::ZERO), 1);
    assert!(log.keep_if_open().is_none());
    let _kept = log.keep_open().unwrap();
    assert!(log.keep_if_open().is_some());
}

#[test]
fn idle_partitions_handles_stay_valid_after_their_files_closed() {
    let machine = Machine::new(1, Machine::small_segments());
    machine.append_numbers(0, 20);
    machine.try_append("record 20", stamp(9, 0)).unwrap();
    let held = machine.log();
    let idle = Duration::from_secs(10);
    assert_eq!(machine.store().close_idle(0, idle), 0, "in use until now");
    machine.sim.clock.advance(idle);
    assert_eq!(machine.store().close_idle(0, idle), 0, "the checkpoint lacks it");
    machine.store().checkpoint().unwrap();
    machine.sim.clock.advance(idle);
    assert_eq!(machine.store().close_idle(0, idle), 1);
    assert_eq!(machine.store().close_idle(0, idle), 0);
    assert_eq!(held.known_range(), (Offset(0), Offset(21)));
    assert!(held.size_bytes() > 1000, "known without opening");
    assert!(held.read(Offset(3), 100, Offset(20), true).unwrap().len > 0);
    assert!(machine.try_append("record 20", stamp(9, 0)).unwrap().duplicate);
    machine.append_numbers(21, 25);
    assert_eq!(machine.records().unwrap(), numbers(0, 25));
}

#[test]
fn a_deleted_partition_is_gone_at_once_and_its_handle_says_so() {
    let mut machine = Machine::new(1, Machine::small_segments());
    machine.append_numbers(0, 20);
    machine.store().checkpoint().unwrap();
    let held = machine.log();
    machine.store().delete(ID, 0).unwrap();
    assert!(matches!(held.log_end_offset(), Err(LogError::Deleted(ID))));
    assert!(!machine.sim.fs.exists(held.path().parent().unwrap()).unwrap(), "the topic's directory goes too");
    assert_eq!(machine.store().find(ID).unwrap(), None);
    machine.store().delete(ID, 0).unwrap();
    machine.restart();
    assert_eq!(machine.store().known(0), []);
    assert_eq!(machine.log().log_end_offset().unwrap(), Offset(0));
}

#[test]
fn an_interrupted_deletion_is_finished_at_the_next_start() {
    let mut step = 0;
    loop {
        let mut machine = Machine::new(1, Machine::small_segments());
        machine.append_numbers(0, 20);
        machine.store().checkpoint().unwrap();
        machine.sim.fs.stop_after(step);
        let finished = machine.store().delete(ID, 0).is_ok();
        machine.sim.fs.kill();
        machine.store = None;
        machine.start().unwrap();
        let names: Vec<_> =
            machine.sim.fs.read_dir(DIR.as_ref()).unwrap().into_iter().map(|e| e.name).collect();
        let left = names.iter().any(|name| name.to_str().unwrap().starts_with("deleted-"));
        assert!(!left, "step {step}: {names:?}");
        if finished {
            break;
        }
        step += 1;
    }
    assert!(step > 3);
}

#[test]
fn a_closed_store_refuses_its_handles() {
    let machine = Machine::new(1, LogConfig::default());
    machine.append_numbers(0, 2);
    let held = machine.log();
    machine.store().close().unwrap();
    assert!(matches!(held.log_end_offset(), Err(LogError::Closed)));
    assert!(machine.store().partition(ID, 0, machine.config.clone(), LeaderEpoch(1)).is_err());
}

#[test]
fn a_stop_in_order_is_known_at_the_next_start_and_a_kill_too() {
    let mut machine = Machine::new(1, LogConfig::default());
    machine.append_numbers(0, 2);
    machine.restart();
    assert!(machine.store().was_clean());
    machine.kill();
    assert!(!machine.store().was_clean());
}

#[test]
fn a_failed_sync_makes_the_dir_fail_for_good_while_reads_go_on() {
    let machine = Machine::new(1, LogConfig::default());
    machine.append_numbers(0, 5);
    machine.sim.fs.fail_sync_after(0);
    let error = machine.store().checkpoint().unwrap_err();
    assert!(matches!(error, LogError::DirFailed { .. }), "{error}");
    assert!(machine.store().checkpoint().is_err(), "never tried again");
    assert!(machine.try_append("no", ProducerStamp::NONE).is_err());
    assert!(machine.store().dir_failure(0).is_some());
    assert!(machine.log().failure().is_some());
    assert_eq!(machine.records().unwrap(), numbers(0, 5));
}

#[test]
fn bytes_lost_by_a_failed_sync_are_not_served_until_a_start() {
    let mut machine = Machine::synced(1, &LogConfig::default());
    machine.append_numbers(0, 5);
    machine.store().settle().unwrap();
    machine.sim.fs.fail_sync_after(0);
    machine.store().checkpoint().unwrap_err();
    // Memory still has it.
    assert_eq!(machine.records().unwrap(), numbers(0, 5));
    let path = machine.log_paths().remove(0);
    let file = machine.sim.fs.open(&path, OpenMode::ReadWrite).unwrap();
    let len = file.len().unwrap();
    // The end of the last record, on the disk.
    file.write_all_at(&[0; 4], len - 5).unwrap();
    let error = machine.log().read(Offset(0), 1 << 20, Offset(5), true).unwrap_err();
    assert!(matches!(error, riverrun_log::ReadError::Storage(LogError::Corrupt { .. })), "{error}");
    machine.crash();
    assert!(machine.recovered.offline.is_empty(), "{:?}", machine.recovered);
    assert_eq!(machine.records().unwrap(), numbers(0, 5));
}

#[test]
fn a_checkpoint_that_finds_no_descriptor_or_space_is_made_later() {
    let shortages: [fn(&SimEnv, bool); 2] = [
        |sim, is_short| sim.fs.exhaust_descriptors(is_short),
        |sim, is_short| sim.fs.set_space(is_short.then_some(0)),
    ];
    for (number, set) in shortages.iter().enumerate() {
        let mut machine = Machine::new(1, Machine::small_segments());
        machine.append_numbers(0, 5);
        set(&machine.sim, true);
        let error = machine.store().checkpoint().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry, "shortage {number}: {error}");
        assert_eq!(machine.records().unwrap(), numbers(0, 5), "shortage {number}: reads go on");
        set(&machine.sim, false);
        machine.append_numbers(5, 10);
        machine.store().checkpoint().unwrap();
        machine.crash();
        assert_eq!(machine.records().unwrap(), numbers(0, 10), "shortage {number}");
    }
}

#[test]
fn checkpoint_that_may_have_been_replaced_is_not_replaced_again() {
    // The volume, the new file, the directory.
    for sync in 0..3 {
        let machine = Machine::new(1, LogConfig::default());
        machine.append_numbers(0, 5);
        machine.sim.fs.fail_sync_after(sync);
        assert!(machine.store().checkpoint().is_err());
        let error = machine.store().checkpoint().unwrap_err();
        assert!(matches!(error, LogError::DirFailed { .. }), "sync {sync}: {error}");
    }
}

/// Every write of a few appends with rolls, and of a checkpoint, fails in turn.
#[test]
fn refused_write_fails_the_dir_and_loses_no_acked_record() {
    let mut failed_appends = 0;
    for write in 0.. {
        let mut machine = Machine::new(write, Machine::small_segments());
        machine.append_numbers(0, 5);
        machine.sim.fs.fail_write_after(write);
        let mut acked = 5;
        while acked < 25 && machine.try_append(&format!("record {acked}"), ProducerStamp::NONE).is_ok() {
            acked += 1;
        }
        if acked == 25 && machine.store().checkpoint().is_ok() {
            assert!(write > 25, "every append is a write at least");
            break;
        }
        let is_of_the_checkpoint_file = acked == 25 && machine.store().dir_failure(0).is_none();
        if !is_of_the_checkpoint_file {
            let error = machine.try_append("no", ProducerStamp::NONE).unwrap_err();
            assert!(error.to_string().contains("has failed"), "write {write}: {error}");
            failed_appends += 1;
        }
        assert_eq!(
            machine.records().unwrap(),
            numbers(0, acked),
            "write {write}: readers see the acked records"
        );
        machine.kill();
        assert_eq!(machine.records().unwrap(), numbers(0, acked), "write {write}");
        machine.append_numbers(acked, acked + 3);
    }
    assert!(failed_appends > 20, "{failed_appends}");
}

#[test]
fn log_start_whose_sync_failed_is_not_acked_and_not_retried() {
    let machine = Machine::new(1, LogConfig::default());
    machine.append_numbers(0, 5);
    machine.sim.fs.fail_sync_after(0);
    assert!(machine.log().delete_records(Offset(3)).is_err());
    let again = machine.log().delete_records(Offset(3)).unwrap_err();
    assert!(again.to_string().contains("has failed"), "{again}");
    assert_eq!(machine.records().unwrap(), numbers(0, 5));
}

#[test]
fn several_dirs_hold_partitions_of_their_own() {
    let sim = SimEnv::new(1);
    let dirs = [PathBuf::from("/one"), PathBuf::from("/two")];
    let store = LogStore::open(&sim.env(), &dirs, StoreOptions::default()).unwrap();
    let machine = Machine {
        sim,
        config: LogConfig::default().into(),
        epoch: 1,
        options: StoreOptions::default(),
        store: Some(store),
        recovered: RecoveryReport::default(),
    };
    let store = machine.store();
    assert_eq!((store.dir_count(), store.dir_path(1)), (2, Path::new("/two")));
    let other = PartitionId { topic: TopicId([9; 16]), index: 7 };
    machine.append("record 0");
    let log = store.partition(other, 1, machine.config.clone(), LeaderEpoch(1)).unwrap();
    let batch = crate::machine::batch_at(&[(0, "x")], riverrun_records::BatchOptions::default());
    put(&log, &batch, machine.append_options()).unwrap();
    assert_eq!((store.find(ID).unwrap(), store.find(other).unwrap()), (Some(0), Some(1)));
    let known = store.known(1);
    assert_eq!((known.len(), known[0].id, known[0].size_bytes), (1, other, batch.len() as u64));
}

#[test]
fn known_partitions_come_from_memory_and_none_is_opened() {
    let mut machine = Machine::new(1, Machine::small_segments());
    machine.append_numbers(0, 20);
    machine.store().checkpoint().unwrap();
    machine.log().delete_records(Offset(3)).unwrap();
    let size_bytes = machine.log().size_bytes();
    let open = KnownPartition {
        id: ID,
        size_bytes,
        log_start: Offset(3),
        log_end: Offset(20),
        is_open: true,
        awaits_removals: false,
    };
    assert_eq!(machine.store().known(0), [open]);
    machine.restart();
    let closed = KnownPartition { is_open: false, ..open };
    assert_eq!(machine.store().known(0), [closed], "without any handle");
    let other = PartitionId { index: 1, ..ID };
    machine.partition(other);
    let empty = KnownPartition {
        id: other,
        size_bytes: 0,
        log_start: Offset(0),
        log_end: Offset(0),
        is_open: false,
        awaits_removals: false,
    };
    machine.sim.fs.stop_after(0);
    assert_eq!(machine.store().known(0), [closed, empty], "without the disk");
}
