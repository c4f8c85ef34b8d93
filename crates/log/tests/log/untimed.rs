//! Records without timestamps grow old with their segment: from its last write on, over restarts and compaction.

use std::time::Duration;

use riverrun_log::CompactOptions;
use riverrun_log::compaction::execute::{CleanerOptions, Unhindered};
use riverrun_log::config::{CleanupPolicy, LogConfig};
use riverrun_log::producer_state::AppendOrigin;
use riverrun_records::BatchOptions;
use riverrun_types::{Offset, TimestampMs};

use crate::machine::{Machine, batch_at, put};

const SECOND: Duration = Duration::from_secs(1);

fn append(machine: &Machine, count: usize) {
    for _ in 0..count {
        let batch = batch_at(&[(TimestampMs::NONE.0, "the same")], BatchOptions::default());
        put(&machine.log(), &batch, machine.append_options()).unwrap();
    }
    machine.store().checkpoint().unwrap();
}

/// Nothing counts as older than `age`, and everything as so old, in a log that ends at `end`.
fn expires_after(machine: &mut Machine, age: Duration, end: i64) {
    let mut retain = |retention: Duration| {
        let retention_ms = Some(u64::try_from(retention.as_millis()).unwrap());
        machine.config = LogConfig { retention_ms, ..(*machine.config).clone() }.into();
        machine.log().apply_retention(machine.now(), Offset(end)).unwrap();
        machine.log().log_start_offset().unwrap()
    };
    let start = retain(age);
    assert!(start < Offset(end), "{start}");
    assert_eq!(retain(age.saturating_sub(Duration::from_millis(1))), Offset(end));
}

#[test]
fn records_without_timestamps_age_by_the_last_write() {
    let mut machine = Machine::new(1, Machine::small_segments());
    append(&machine, 15);
    machine.sim.clock.advance(5 * SECOND);
    append(&machine, 15);
    machine.sim.clock.advance(SECOND);
    let retention_ms = Some(3000);
    machine.config = LogConfig { retention_ms, ..(*machine.config).clone() }.into();
    machine.log().apply_retention(machine.now(), Offset(30)).unwrap();
    let start = machine.log().log_start_offset().unwrap();
    assert!((Offset(5)..=Offset(15)).contains(&start), "those of the first write go: {start}");
    expires_after(&mut machine, SECOND, 30);
}

#[test]
fn segments_without_timestamps_are_as_old_after_a_restart() {
    let mut machine = Machine::new(1, Machine::small_segments());
    append(&machine, 30);
    machine.sim.clock.advance(SECOND);
    machine.kill();
    machine.sim.clock.advance(SECOND);
    machine.restart();
    expires_after(&mut machine, 2 * SECOND, 30);
}

#[test]
fn compaction_leaves_records_without_timestamps_as_old() {
    let config = LogConfig {
        cleanup: CleanupPolicy { delete: true, compact: true },
        min_compaction_lag_ms: 1000,
        retention_ms: None,
        ..Machine::small_segments()
    };
    let mut machine = Machine::new(1, config);
    append(&machine, 30);
    let compact = |machine: &Machine| {
        let cleaner = CleanerOptions { dedupe_buffer_bytes: 100_000, load_factor: 0.9 };
        let (now, origin) = (machine.now(), AppendOrigin::Client);
        let options =
            CompactOptions { now, high_watermark: Offset(30), origin, cleaner, control: &Unhindered };
        machine.log().compact(options).unwrap()
    };
    machine.sim.clock.advance(Duration::from_millis(999));
    assert_eq!(compact(&machine), None, "the lag has not passed");
    machine.sim.clock.advance(Duration::from_millis(1));
    assert!(compact(&machine).unwrap().stats.records_after < 5);
    machine.store().checkpoint().unwrap();
    machine.sim.clock.advance(SECOND);
    expires_after(&mut machine, 2 * SECOND, 30);
}
