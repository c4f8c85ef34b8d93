//! Log dirs that are full or keep a reserve, and the ways to make room in them.

use std::time::Duration;

use riverrun_env::FileSystem;
use riverrun_env::sim::SimEnv;
use riverrun_log::config::{CleanupPolicy, LogConfig};
use riverrun_log::producer_state::AppendOrigin;
use riverrun_log::{AppendError, AppendOptions, LogError, LogStore, Place, StoreOptions};
use riverrun_records::{BatchOptions, ProducerStamp};
use riverrun_types::{DurabilityLevel, ErrorKind, LeaderEpoch, Offset, PartitionId};

use crate::machine::{Machine, batch_at, numbers, put};

#[test]
fn full_dir_refuses_appends_and_goes_on_when_space_is_back() {
    let mut machine = Machine::synced(1, &Machine::small_segments());
    machine.append_numbers(0, 10);
    machine.store().checkpoint().unwrap();
    machine.append_numbers(10, 20);
    machine.sim.fs.set_space(Some(100));
    assert!(machine.store().settle().is_err());
    let error = machine.try_append("no", ProducerStamp::NONE).unwrap_err();
    assert!(matches!(error, AppendError::Storage(LogError::DirFull { .. })), "{error}");
    assert_eq!(error.kind(), ErrorKind::Retry);
    assert_eq!(machine.records().unwrap(), numbers(0, 20), "reads go on");
    machine.sim.fs.set_space(None);
    machine.store().settle().unwrap();
    machine.append_numbers(20, 25);
    machine.crash();
    assert_eq!(machine.records().unwrap(), numbers(0, 25));
}

#[test]
fn only_a_measurement_with_more_room_wakes_the_settler() {
    let machine = Machine::synced(1, &Machine::small_segments());
    let is_woken = || {
        machine.store().measure_space();
        machine.store().wait_for_settling(0, std::time::Duration::ZERO)
    };
    machine.append_numbers(0, 10);
    machine.sim.fs.set_space(Some(100));
    assert!(machine.store().settle().is_err());
    assert!(!is_woken() && !is_woken());
    machine.sim.fs.set_space(None);
    assert!(is_woken() && !is_woken());
    machine.store().settle().unwrap();
    machine.append_numbers(10, 12);
}

#[test]
fn clients_leave_the_reserve_to_the_coordinator() {
    for durability in [DurabilityLevel::SyncSync, DurabilityLevel::AsyncAsync] {
        let config = LogConfig { durability, ..Machine::small_segments() };
        let options = StoreOptions { reserve_bytes: 4 << 20, ..Machine::with_journal() };
        let machine = Machine::with_options(SimEnv::new(1), config, options);
        machine.append_numbers(0, 5);
        machine.sim.fs.set_space(Some(3 << 20));
        machine.store().settle().unwrap();
        let error = machine.try_append("no", ProducerStamp::NONE).unwrap_err();
        assert!(matches!(error, AppendError::Storage(LogError::DirFull { .. })), "{error}");
        let own = AppendOptions { origin: AppendOrigin::Coordinator, now: machine.now() };
        let batch = batch_at(&[(0, "record 5")], BatchOptions::default());
        put(&machine.log(), &batch, own).unwrap();
        machine.log().delete_records(Offset(2)).unwrap();
        machine.store().checkpoint().unwrap();
        machine.sim.fs.set_space(Some(5 << 20));
        machine.store().settle().unwrap();
        machine.append_numbers(6, 8);
        assert_eq!(machine.records().unwrap(), numbers(2, 8), "level {durability}");
    }
}

#[test]
fn start_in_the_reserve_leaves_it_to_the_coordinator_at_once() {
    for durability in [DurabilityLevel::SyncSync, DurabilityLevel::AsyncAsync] {
        let config = LogConfig { durability, ..Machine::small_segments() };
        let options = StoreOptions { reserve_bytes: 4 << 20, ..Machine::with_journal() };
        let mut machine = Machine::with_options(SimEnv::new(1), config, options);
        machine.append_numbers(0, 5);
        machine.sim.fs.set_space(Some(3 << 20));
        machine.kill();
        let error = machine.try_append("no", ProducerStamp::NONE).unwrap_err();
        assert!(matches!(error, AppendError::Storage(LogError::DirFull { .. })), "{error}");
        let own = AppendOptions { origin: AppendOrigin::Coordinator, now: machine.now() };
        put(&machine.log(), &batch_at(&[(0, "record 5")], BatchOptions::default()), own).unwrap();
    }
}

#[test]
fn retention_makes_space_where_nothing_can_be_settled() {
    let config = LogConfig {
        retention_bytes: Some(500),
        cleanup: CleanupPolicy { delete: true, compact: false },
        file_delete_delay_ms: 0,
        ..Machine::small_segments()
    };
    let machine = Machine::synced(1, &config);
    machine.append_numbers(0, 40);
    machine.store().checkpoint().unwrap();
    machine.append_numbers(40, 50);
    machine.sim.fs.set_space(Some(10));
    assert!(machine.store().settle().is_err());
    assert!(machine.try_append("no", ProducerStamp::NONE).is_err());
    assert!(machine.log().apply_retention(machine.now(), Offset(50)).unwrap().segments > 1);
    let later = riverrun_types::TimestampMs(machine.now().0 + 1);
    machine.log().apply_retention(later, Offset(50)).unwrap();
    machine.store().settle().unwrap();
    machine.append_numbers(50, 52);
    let start = machine.log().log_start_offset().unwrap().0;
    assert_eq!(machine.records().unwrap(), numbers(start, 52));
}

#[test]
fn partition_without_room_in_recovery_comes_back_later() {
    let other = PartitionId { index: 1, ..crate::machine::ID };
    for space in [0, 300, 1000, 2000] {
        for settled in [0, 15, 30] {
            let mut machine = Machine::synced(1, &Machine::small_segments());
            let value = "x".repeat(400);
            for number in 0..30 {
                machine.append_numbers(number, number + 1);
                for _ in 0..12 {
                    machine.try_append_to(other, &value, ProducerStamp::NONE).unwrap();
                }
                if number + 1 == settled {
                    machine.store().settle().unwrap();
                }
            }
            let dir = machine.partition_dir();
            machine.sim.fs.crash();
            machine.store = None;
            // The remaining bytes of its segments after the cut would be written over, which needs no room.
            let _is_left = machine.sim.fs.remove_dir_all(&dir);
            let (env, dirs) = (machine.sim.env(), [crate::machine::DIR.into()]);
            machine.options = Machine::settled_at_start();
            let store = LogStore::open(&env, &dirs, machine.options.clone()).unwrap();
            // The first partition has no room. The side file, which comes later, has.
            let place = |id| {
                machine.sim.fs.set_space((id == crate::machine::ID).then_some(space));
                Place::In(0, machine.config.clone())
            };
            let report = store.recover(|_| LeaderEpoch(2), place).unwrap();
            assert_eq!(report.offline.len(), 1, "space {space}, {settled} settled");
            assert_eq!(report.offline[0].1.kind(), ErrorKind::Retry);
            machine.store = Some(store);
            machine.sim.fs.set_space(Some(0));
            assert!(machine.store().settle().is_err());
            assert!(machine.records().is_err() && machine.try_append("no", ProducerStamp::NONE).is_err());
            machine.sim.fs.set_space(None);
            machine.store().checkpoint().unwrap();
            assert!(machine.records().is_err(), "it was not tried again");
            machine.sim.clock.advance(Duration::from_secs(1));
            machine.store().settle().unwrap();
            assert_eq!(machine.records().unwrap(), numbers(0, 30), "space {space}");
            machine.append_numbers(30, 33);
            if settled == 15 {
                machine.store().checkpoint().unwrap();
                assert!(machine.store().journals().all(|journal| journal.held().is_empty()));
            }
            machine.crash();
            assert_eq!(machine.records().unwrap(), numbers(0, 33), "space {space}");
            assert_eq!(machine.records_of(other).unwrap().len(), 360);
        }
    }
}
