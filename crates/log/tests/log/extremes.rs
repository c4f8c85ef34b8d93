//! Batches that inflate to very much: accepted ones stay readable after all changes, and batches beyond the bound are
//! left alone, and are not called damage.

use riverrun_log::compaction::execute::{CleanOutcome, CleanerOptions, Unhindered};
use riverrun_log::config::{CleanupPolicy, LogConfig};
use riverrun_log::producer_state::AppendOrigin;
use riverrun_log::{AppendOptions, CompactOptions, LogError, Repair, verify_partition};
use riverrun_records::{BatchBuilder, BatchOptions, Compression};
use riverrun_types::{Offset, TimestampMs};

use crate::machine::{ID, Machine, put};

fn compacted(compression: Option<Compression>) -> LogConfig {
    LogConfig { cleanup: CleanupPolicy { delete: false, compact: true }, compression, ..LogConfig::default() }
}

/// Letters that hardly compress.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b'@' + state.to_be_bytes()[0] % 64
    };
    (0..bytes).map(|_| byte()).collect()
}

fn batch(compression: Compression, records: &[(i64, &str, &[u8])]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions { compression, ..BatchOptions::default() });
    for (timestamp, key, value) in records {
        builder.append(TimestampMs(*timestamp), Some(key.as_bytes()), Some(value), &[]).unwrap();
    }
    builder.build().unwrap()
}

/// Compacts everything.
fn compact(machine: &Machine) -> Result<Option<CleanOutcome>, LogError> {
    machine.store().checkpoint().unwrap();
    let log = machine.log();
    let options = CompactOptions {
        now: machine.now(),
        high_watermark: log.log_end_offset().unwrap(),
        origin: AppendOrigin::Client,
        cleaner: CleanerOptions::default(),
        control: &Unhindered,
    };
    log.compact(options)
}

/// Appends a record in a segment of its own, so that earlier ones can be compacted.
fn roll(machine: &Machine, key: &str) {
    machine.sim.clock.advance(std::time::Duration::from_hours(24 * 30));
    let bytes = batch(Compression::None, &[(machine.now().0, key, b"x")]);
    put(&machine.log(), &bytes, machine.append_options()).unwrap();
}

fn values_bytes(machine: &Machine) -> usize {
    machine.records().unwrap().iter().map(|(_, value)| value.len()).sum()
}

fn assert_all_good(mut machine: Machine) {
    let dir = machine.partition_dir();
    machine.store.take().unwrap().close().unwrap();
    let report = verify_partition(&machine.sim.env(), &dir, ID).unwrap();
    assert_eq!(report.findings, []);
    assert_eq!(Repair::open(&machine.sim.env(), &dir, ID).unwrap().plan().unwrap(), None);
}

#[test]
fn batch_that_the_topics_codec_compresses_better_stays_readable() {
    let machine = Machine::new(1, compacted(Some(Compression::Zstd)));
    let value = [noise(1000), vec![0; 2_000_000]].concat();
    let now = machine.now().0;
    let sent = batch(Compression::Gzip, &[(now, "a", &value), (now, "b", &value), (now + 5, "c", &value)]);
    for _ in 0..2 {
        put(&machine.log(), &sent, machine.append_options()).unwrap();
    }
    assert_eq!(machine.log().offset_for_timestamp(TimestampMs(now + 5)).unwrap().unwrap().1, Offset(2));
    for key in ["d", "e", "f"] {
        roll(&machine, key);
        assert!(compact(&machine).unwrap().is_some());
    }
    assert_eq!(values_bytes(&machine), 3 * value.len() + 3);
    assert_all_good(machine);
}

#[test]
fn batch_that_compresses_better_after_compaction_stays_readable() {
    for codec in [Compression::Gzip, Compression::Zstd] {
        let machine = Machine::new(1, compacted(None));
        let (now, zeros) = (machine.now().0, vec![0; 20_000_000]);
        let sent = batch(codec, &[(now, "a", &noise(20_000)), (now, "b", &zeros)]);
        put(&machine.log(), &sent, machine.append_options()).unwrap();
        for key in ["a", "d", "e"] {
            roll(&machine, key);
            assert!(compact(&machine).unwrap().is_some(), "{codec}");
        }
        assert_eq!(values_bytes(&machine), zeros.len() + 3);
        assert_all_good(machine);
    }
}

#[test]
fn batch_beyond_the_bound_is_left_alone_and_is_no_damage() {
    let mut machine = Machine::new(1, compacted(None));
    let now = machine.now().0;
    // Only the server itself can append such a batch.
    let huge = batch(Compression::Zstd, &[(now, "a", &vec![0; 130 << 20])]);
    let own = AppendOptions { origin: AppendOrigin::Coordinator, ..machine.append_options() };
    put(&machine.log(), &huge, own).unwrap();
    roll(&machine, "b");
    let files = machine.files();
    for _ in 0..2 {
        let error = compact(&machine).unwrap_err();
        assert!(matches!(error, LogError::Unprocessed { position: 0, .. }), "{error}");
        let error = machine.log().offset_for_timestamp(TimestampMs(now)).unwrap_err();
        assert!(matches!(error, LogError::Unprocessed { position: 0, .. }), "{error}");
        roll(&machine, "c");
    }
    assert!(!machine.files().iter().any(|name| name.ends_with(".damaged")), "{files:?}");
    assert_eq!(machine.log().log_end_offset().unwrap(), Offset(4));
    let (env, dir) = (machine.sim.env(), machine.partition_dir());
    machine.store.take().unwrap().close().unwrap();
    let report = verify_partition(&env, &dir, ID).unwrap();
    let weights: Vec<_> = report.findings.iter().map(|finding| finding.weight.name()).collect();
    assert_eq!((weights, report.records), (vec!["not-checked"], 4));
    assert_eq!(Repair::open(&env, &dir, ID).unwrap().plan().unwrap(), None);
}
