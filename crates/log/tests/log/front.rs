//! Removal of records from the front, and the rest of it after a crash.

use std::time::Duration;

use riverrun_log::Retained;
use riverrun_log::config::{CleanupPolicy, LogConfig};
use riverrun_types::{Offset, TimestampMs};

use crate::machine::{Machine, numbers};

#[test]
fn deleted_records_stay_deleted_after_a_power_cut() {
    for seed in 0..20 {
        let mut machine = Machine::new(seed, Machine::small_segments());
        machine.append_numbers(0, 30);
        machine.store().checkpoint().unwrap();
        assert_eq!(machine.log().delete_records(Offset(13)).unwrap(), Offset(13));
        assert_eq!(machine.log().delete_records(Offset(5)).unwrap(), Offset(13), "never backwards");
        assert!(machine.log().delete_records(Offset(31)).is_err());
        machine.crash();
        assert_eq!(machine.records().unwrap(), numbers(13, 30));
        machine.restart();
        assert_eq!(machine.records().unwrap(), numbers(13, 30));
    }
}

#[test]
fn offsets_below_a_log_start_are_not_given_again() {
    for seed in 0..20 {
        let mut machine = Machine::new(seed, Machine::small_segments());
        machine.append_numbers(0, 3);
        machine.store().checkpoint().unwrap();
        machine.append_numbers(3, 30);
        machine.log().delete_records(Offset(30)).unwrap();
        machine.crash();
        let log = machine.log();
        assert_eq!(log.log_start_offset().unwrap(), Offset(30));
        assert_eq!(log.log_end_offset().unwrap(), Offset(30));
        machine.append_numbers(30, 35);
        machine.restart();
        assert_eq!(machine.records().unwrap(), numbers(30, 35));
    }
}

#[test]
fn retention_that_takes_everything_keeps_the_end_offset() {
    let config =
        LogConfig { retention_ms: Some(1000), file_delete_delay_ms: 500, ..Machine::small_segments() };
    let mut machine = Machine::new(1, config);
    machine.append_numbers(0, 30);
    machine.store().checkpoint().unwrap();
    machine.sim.clock.advance(Duration::from_secs(5));
    assert!(machine.log().apply_retention(machine.now(), Offset(30)).unwrap().segments > 1);
    assert_eq!(machine.log().size_bytes(), 0);
    assert!(machine.files().iter().any(|name| name.ends_with(".deleted")), "{:?}", machine.files());
    machine.sim.clock.advance(Duration::from_secs(1));
    machine.log().apply_retention(machine.now(), Offset(30)).unwrap();
    let left = ["index", "log", "state"].map(|kind| format!("00000000000000000030.{kind}"));
    assert_eq!(machine.files(), left);
    machine.kill();
    assert_eq!(machine.log().log_start_offset().unwrap(), Offset(30));
    machine.append_numbers(30, 32);
    assert_eq!(machine.records().unwrap(), numbers(30, 32));
}

#[test]
fn a_turn_of_retention_takes_and_removes_no_more_than_its_share() {
    const RECORDS: i64 = 3000;
    let config =
        LogConfig { retention_ms: Some(1000), file_delete_delay_ms: 500, ..Machine::small_segments() };
    let mut machine = Machine::new(1, config);
    machine.append_numbers(0, RECORDS);
    machine.store().checkpoint().unwrap();
    machine.sim.clock.advance(Duration::from_secs(5));
    let of_kind = |suffix: &str| machine.files().iter().filter(|name| name.ends_with(suffix)).count();
    let before = of_kind(".log");
    assert!(before > 210 && before < 300, "{before}");
    let turn = || machine.log().apply_retention(machine.now(), Offset(RECORDS)).unwrap();
    assert_eq!(turn(), Retained { segments: 100, is_more: true });
    assert_eq!((of_kind(".log"), of_kind(".deleted")), (before - 100, 200));
    assert_eq!(turn(), Retained { segments: 100, is_more: true });
    assert_eq!(turn(), Retained { segments: before - 200, is_more: false });
    let deleted = 2 * before;
    assert_eq!((of_kind(".log"), of_kind(".deleted")), (1, deleted));
    machine.sim.clock.advance(Duration::from_secs(1));
    assert_eq!(turn(), Retained { segments: 0, is_more: true });
    assert_eq!(of_kind(".deleted"), deleted - 200);
    while turn().is_more {}
    assert_eq!(of_kind(".deleted"), 0);
    assert_eq!(machine.log().log_start_offset().unwrap(), Offset(RECORDS));
    machine.kill();
    assert_eq!(machine.log().log_start_offset().unwrap(), Offset(RECORDS));
}

#[test]
fn removed_files_go_in_time_though_the_wall_clock_is_set_back() {
    let config =
        LogConfig { retention_ms: Some(1000), file_delete_delay_ms: 500, ..Machine::small_segments() };
    let machine = Machine::new(1, config);
    machine.append_numbers(0, 30);
    machine.store().checkpoint().unwrap();
    machine.sim.clock.advance(Duration::from_secs(5));
    machine.log().apply_retention(machine.now(), Offset(30)).unwrap();
    machine.sim.clock.set_wall(TimestampMs(machine.now().0 - 86_400_000));
    machine.log().apply_retention(machine.now(), Offset(30)).unwrap();
    assert!(machine.files().iter().any(|name| name.ends_with(".deleted")), "{:?}", machine.files());
    machine.sim.clock.advance(Duration::from_secs(1));
    machine.log().apply_retention(machine.now(), Offset(30)).unwrap();
    assert!(!machine.files().iter().any(|name| name.ends_with(".deleted")), "{:?}", machine.files());
}

#[test]
fn retention_stops_at_the_high_watermark_and_last_checkpoint() {
    let config = LogConfig { retention_bytes: Some(0), ..Machine::small_segments() };
    let machine = Machine::new(1, config);
    machine.append_numbers(0, 40);
    assert_eq!(machine.log().apply_retention(machine.now(), Offset(40)).unwrap().segments, 0);
    let awaits = |until| machine.log().retention_awaits_checkpoint(machine.now(), Offset(until)).unwrap();
    assert!(awaits(40) && !awaits(0));
    machine.store().checkpoint().unwrap();
    assert!(!awaits(40));
    assert_eq!(machine.log().apply_retention(machine.now(), Offset(0)).unwrap().segments, 0);
    machine.log().apply_retention(machine.now(), Offset(20)).unwrap();
    let start = machine.log().log_start_offset().unwrap();
    assert!(start > Offset(0) && start <= Offset(20), "{start}");
}

#[test]
fn retention_awaits_no_checkpoint_where_none_can_be_made() {
    let config = LogConfig { retention_bytes: Some(0), ..Machine::small_segments() };
    let machine = Machine::new(1, config);
    machine.append_numbers(0, 40);
    let awaits = || machine.log().retention_awaits_checkpoint(machine.now(), Offset(40)).unwrap();
    assert!(awaits());
    machine.sim.fs.fail_sync_after(0);
    assert!(machine.store().checkpoint().is_err());
    assert!(!awaits(), "the log dir has failed");
    assert_eq!(machine.records().unwrap(), numbers(0, 40));
}

#[test]
fn an_idle_segment_is_rolled_when_its_time_has_come() {
    let config = LogConfig { segment_ms: 1000, ..LogConfig::default() };
    let mut machine = Machine::new(1, config);
    assert!(!machine.log().roll_if_due(machine.now()).unwrap());
    machine.append_numbers(0, 2);
    assert!(!machine.log().roll_if_due(machine.now()).unwrap());
    machine.sim.clock.advance(Duration::from_millis(1001));
    assert!(machine.log().roll_if_due(machine.now()).unwrap());
    assert!(!machine.log().roll_if_due(machine.now()).unwrap());
    machine.append_numbers(2, 3);
    assert_eq!(machine.log_paths().len(), 2);
    machine.kill();
    assert_eq!(machine.records().unwrap(), numbers(0, 3));
}

#[test]
fn active_segment_of_a_compacted_log_ends_in_time_for_its_lag() {
    for (delete, compact, is_rolled) in [(false, true, true), (true, true, true), (true, false, false)] {
        let cleanup = CleanupPolicy { delete, compact };
        let config = LogConfig { cleanup, max_compaction_lag_ms: 1000, ..LogConfig::default() };
        let machine = Machine::new(1, config);
        machine.append_numbers(0, 2);
        machine.sim.clock.advance(Duration::from_secs(1));
        assert!(!machine.log().roll_if_due(machine.now()).unwrap(), "{cleanup:?}");
        machine.sim.clock.advance(Duration::from_millis(1));
        assert_eq!(machine.log().roll_if_due(machine.now()).unwrap(), is_rolled, "{cleanup:?}");
    }
}
