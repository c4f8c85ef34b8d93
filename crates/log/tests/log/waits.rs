//! Work that goes on while other work waits: for the disk, or for a throttle.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use riverrun_env::{Env, FileSystem as _};
use riverrun_log::compaction::execute::{CleanerControl, CleanerOptions};
use riverrun_log::config::{CleanupPolicy, LogConfig};
use riverrun_log::producer_state::AppendOrigin;
use riverrun_log::{AppendOptions, CompactOptions, LogError, LogStore, PartitionLog, Place, Retained};
use riverrun_records::{BatchOptions, ProducerStamp};
use riverrun_types::{DurabilityLevel, ErrorKind, LeaderEpoch, Offset, PartitionId, TimestampMs};

use crate::machine::{DIR, ID, Machine, batch_at, numbers, put};

/// Longer than any append takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Appends to `log` from another thread during the next sync, and fails the test if the append waits for the sync.
fn append_during_next_sync(machine: &Machine, log: Arc<PartitionLog>) {
    let now = machine.now();
    let options = AppendOptions { origin: AppendOrigin::Client, now };
    machine.sim.fs.during_next_sync(move || {
        let (done, appended) = sync_channel(1);
        let append = move || {
            let batch = batch_at(&[(now.0, "meanwhile")], BatchOptions::default());
            done.send(put(&log, &batch, options).is_ok()).unwrap();
        };
        thread::Builder::new().spawn(append).unwrap();
        assert_eq!(appended.recv_timeout(PATIENCE), Ok(true), "the append waits for the sync");
    });
}

#[test]
fn appends_go_on_while_retention_makes_the_log_start_durable() {
    let config = LogConfig { retention_bytes: Some(1000), ..Machine::small_segments() };
    let mut machine = Machine::new(1, config);
    machine.append_numbers(0, 30);
    machine.store().checkpoint().unwrap();
    append_during_next_sync(&machine, machine.log());
    assert!(machine.log().apply_retention(machine.now(), Offset(30)).unwrap().segments > 0);
    assert_eq!(machine.log().log_end_offset().unwrap(), Offset(31), "it was appended");
    let start = machine.log().log_start_offset().unwrap().0;
    machine.kill();
    let records = machine.records().unwrap();
    assert_eq!(records[..records.len() - 1], numbers(start, 30));
    assert_eq!(records.last().unwrap(), &(30, "meanwhile".to_owned()));
}

#[test]
fn append_while_retention_removes_everything_stays() {
    let config = LogConfig { retention_ms: Some(1000), ..Machine::small_segments() };
    let mut machine = Machine::new(1, config);
    machine.append_numbers(0, 30);
    machine.store().checkpoint().unwrap();
    machine.sim.clock.advance(Duration::from_secs(5));
    append_during_next_sync(&machine, machine.log());
    assert!(machine.log().apply_retention(machine.now(), Offset(30)).unwrap().segments > 1);
    let left = [(30, "meanwhile".to_owned())];
    assert_eq!(machine.records().unwrap(), left);
    machine.kill();
    assert_eq!(machine.records().unwrap(), left);
    assert_eq!(machine.log().log_start_offset().unwrap(), Offset(30));
}

#[test]
fn a_log_start_that_is_made_durable_holds_up_no_other_partition() {
    let machine = Machine::new(1, LogConfig::default());
    machine.append_numbers(0, 5);
    let other = PartitionId { index: 1, ..ID };
    append_during_next_sync(&machine, machine.partition(other));
    machine.log().delete_records(Offset(3)).unwrap();
    assert_eq!(machine.partition(other).log_end_offset().unwrap(), Offset(1));
    assert_eq!(machine.log().log_start_offset().unwrap(), Offset(3));
}

/// A throttle; retention runs while it waits.
struct RetentionMeanwhile<'a> {
    log: &'a PartitionLog,
    now: TimestampMs,
    found: RefCell<Vec<Result<Retained, LogError>>>,
}

impl CleanerControl for RetentionMeanwhile<'_> {
    fn on_io(&self, _bytes: u64) {
        self.found.borrow_mut().push(self.log.apply_retention(self.now, Offset(30)));
    }

    fn is_stopped(&self) -> bool {
        false
    }
}

#[test]
fn retention_passes_over_a_log_that_is_being_compacted() {
    let config = LogConfig {
        retention_bytes: Some(0),
        cleanup: CleanupPolicy { delete: true, compact: true },
        ..Machine::small_segments()
    };
    let machine = Machine::new(1, config);
    machine.append_numbers(0, 30);
    machine.store().checkpoint().unwrap();
    let (log, now) = (machine.log(), machine.now());
    let control = RetentionMeanwhile { log: &log, now, found: RefCell::default() };
    let cleaner = CleanerOptions { dedupe_buffer_bytes: 10_000, load_factor: 0.9 };
    let options = CompactOptions {
        now,
        high_watermark: Offset(30),
        origin: AppendOrigin::Client,
        cleaner,
        control: &control,
    };
    assert!(log.compact(options).unwrap().is_some());
    let found = control.found.into_inner();
    assert!(
        found.len() > 2
            && found.iter().all(|found| matches!(found, Ok(none) if *none == Retained::default())),
        "{found:?}"
    );
    assert_eq!(machine.records().unwrap(), numbers(0, 30));
    assert!(log.apply_retention(now, Offset(30)).unwrap().segments > 1, "the next time");
}

/// A store, and the partition `ID` in it: it has five records that no checkpoint covers, and its first use syncs them.
struct Unrecovered {
    machine: Machine,
    store: Arc<LogStore>,
    log: Arc<PartitionLog>,
}

impl Unrecovered {
    fn new() -> Self {
        let mut machine = Machine::synced(1, &LogConfig::default());
        let synced = machine.config.clone();
        machine.config = at_level(&synced, DurabilityLevel::AsyncAsync);
        machine.append_numbers(0, 5);
        machine.config = synced;
        machine.kill();
        let log = machine.log();
        Self { store: Arc::new(machine.store.take().unwrap()), machine, log }
    }

    fn partition(&self, id: PartitionId) -> impl Fn() -> Arc<PartitionLog> + Send + use<> {
        let (store, config) = (self.store.clone(), self.machine.config.clone());
        let epoch = LeaderEpoch(self.machine.epoch);
        move || store.partition(id, 0, config.clone(), epoch).unwrap()
    }

    /// Opens the log, while another thread does `work`, and fails the test if that waits for the opening.
    fn open_during(&self, work: impl FnOnce() + Send + 'static) {
        let (action, told) = meanwhile(work);
        self.machine.sim.fs.during_next_sync(action);
        self.log.ensure_open().unwrap();
        told.try_recv().expect("nothing was synced");
    }
}

/// An action that has another thread do `work` and waits for it, and fails the test if `work` waits for the caller. The
/// receiver gets the end of it.
fn meanwhile(work: impl FnOnce() + Send + 'static) -> (impl FnOnce() + Send + 'static, Receiver<()>) {
    let (tell, told) = sync_channel(1);
    let action = move || {
        let (done, finished) = sync_channel(1);
        let work = move || {
            work();
            done.send(()).unwrap();
        };
        thread::Builder::new().spawn(work).unwrap();
        assert_eq!(finished.recv_timeout(PATIENCE), Ok(()), "it waits for the recovery, or has failed");
        tell.send(()).unwrap();
    };
    (action, told)
}

fn at_level(config: &LogConfig, durability: DurabilityLevel) -> Arc<LogConfig> {
    Arc::new(LogConfig { durability, ..config.clone() })
}

#[test]
fn a_recovery_holds_up_nobody_but_who_wants_the_same_log() {
    let found = Unrecovered::new();
    let (same, other) = (found.partition(ID), found.partition(PartitionId { index: 1, ..ID }));
    let (store, options) = (found.store.clone(), found.machine.append_options());
    let (tell, told) = sync_channel(1);
    found.open_during(move || {
        let second = same();
        assert_eq!(second.size_bytes(), 0, "as the checkpoint says");
        thread::Builder::new().spawn(move || tell.send(second.log_end_offset()).unwrap()).unwrap();
        let batch = batch_at(&[(options.now.0, "meanwhile")], BatchOptions::default());
        put(&other(), &batch, options).unwrap();
        assert_eq!(store.known(0).len(), 2);
        store.settle().unwrap();
        store.checkpoint().unwrap();
        assert_eq!(store.close_idle(0, Duration::ZERO), 0, "the other was used just now");
        assert!(store.damaged().is_empty() && !store.is_offline(ID, 0));
    });
    assert_eq!(told.recv_timeout(PATIENCE).unwrap().unwrap(), Offset(5));
}

#[test]
fn checkpoint_during_a_recovery_forgets_no_recovered_records() {
    let found = Unrecovered::new();
    let store = found.store.clone();
    found.open_during(move || store.checkpoint().unwrap());
    found.store.checkpoint().unwrap();
    assert_eq!(found.log.recovery_point(), Offset(5));
}

#[test]
fn options_that_change_during_a_recovery_are_followed() {
    let found = Unrecovered::new();
    let (log, config) = (found.log.clone(), at_level(&found.machine.config, DurabilityLevel::AsyncAsync));
    found.open_during(move || log.set_config(config));
    found.store.settle().unwrap();
    assert_eq!(found.log.level_reached(), DurabilityLevel::AsyncAsync);
}

#[test]
fn a_deletion_waits_for_the_end_of_a_recovery() {
    let found = Unrecovered::new();
    let store = found.store.clone();
    let (tell, told) = sync_channel(1);
    found.open_during(move || {
        thread::Builder::new().spawn(move || tell.send(store.delete(ID, 0)).unwrap()).unwrap();
        // Time for it to go on, which it must not.
        Env::real().clock.sleep(Duration::from_millis(50));
    });
    told.recv_timeout(PATIENCE).unwrap().unwrap();
    assert!(matches!(found.log.log_end_offset(), Err(LogError::Deleted(_))));
    assert!(!found.machine.sim.fs.exists(&found.log.path()).unwrap());
}

#[test]
fn partition_that_is_brought_back_holds_up_no_use_of_it() {
    let mut machine = Machine::synced(1, &Machine::small_segments());
    machine.append_numbers(0, 30);
    machine.try_append_to(PartitionId { index: 1, ..ID }, "other", ProducerStamp::NONE).unwrap();
    machine.sim.fs.kill();
    machine.store = None;
    machine.options = Machine::settled_at_start();
    let store = LogStore::open(&machine.sim.env(), &[DIR.into()], machine.options.clone()).unwrap();
    // There is room for its first segment only, and for a side file afterwards.
    let place = |id| {
        machine.sim.fs.set_space((id == ID).then_some(2000));
        Place::In(0, machine.config.clone())
    };
    let report = store.recover(|_| LeaderEpoch(2), place).unwrap();
    assert_eq!(report.offline.len(), 1);
    machine.store = Some(store);
    let log = machine.log();
    // The index of that segment is cut.
    let (action, told) = meanwhile(move || {
        let error = log.log_end_offset().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
        assert!(log.failure().is_some());
        log.size_bytes();
    });
    machine.sim.fs.during_next_cut(action);
    machine.store().settle().unwrap();
    told.try_recv().expect("nothing was cut");
    assert_eq!(machine.records().unwrap(), numbers(0, 30));
    machine.append_numbers(30, 32);
    machine.store().checkpoint().unwrap();
    assert!(machine.store().journals().all(|journal| journal.held().is_empty()), "a checkpoint has it");
    machine.crash();
    assert_eq!(machine.records().unwrap(), numbers(0, 32));
}
