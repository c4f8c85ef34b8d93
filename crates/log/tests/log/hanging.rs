//! A log dir whose disk does not answer: it holds up its own partitions, and no others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bytes::BytesMut;
use riverrun_env::sim::SimEnv;
use riverrun_journal::JournalOptions;
use riverrun_log::config::LogConfig;
use riverrun_log::producer_state::AppendOrigin;
use riverrun_log::{
    AppendError, AppendOptions, Appended, Closed, DirWork, Leaves, PartitionLog, StoreOptions,
};
use riverrun_records::BatchOptions;
use riverrun_types::{DurabilityLevel, ErrorKind, LeaderEpoch, Offset, PartitionId, TopicId};

use crate::machine::{DIR, ID, Machine, batch_at};
use crate::pair::{Pair, values_of, wait_until};

const HUNG: &str = "/two";
const LARGE_BYTES: usize = 200_000;

/// A pair with records in each dir, whose second one does not answer any more; and the values in that one.
fn hung() -> (Pair, Vec<String>) {
    hung_beside(Machine::with_journal().journal)
}

fn hung_beside(journal: JournalOptions) -> (Pair, Vec<String>) {
    let pair = Pair::new(StoreOptions { write_cache_bytes: 16 << 20, journal, ..Machine::with_journal() });
    for dir in [0, 1] {
        pair.append(dir, "the log has its files").unwrap();
    }
    pair.store.settle().unwrap();
    pair.append_numbers(1, 0..3);
    let expected = pair.values(1);
    pair.sim.fs.hang_device(Some(HUNG.as_ref()));
    (pair, expected)
}

/// Runs `action` while a thread waits for the dir that hangs, and then has its disk answer, also after a panic.
fn while_it_hangs(pair: &Pair, action: impl FnOnce()) {
    struct Answers<'a>(&'a Pair);
    impl Drop for Answers<'_> {
        fn drop(&mut self) {
            self.0.sim.fs.hang_device(None);
        }
    }
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // It fails if the machine has lost its power meanwhile.
            let _settled = pair.store.settle_dir(1);
            has_ended.store(true, Ordering::SeqCst);
        });
        let answers = Answers(pair);
        wait_until(|| matches!(pair.store.dir_work(1), Some((DirWork::Settles(_), _))));
        action();
        assert!(!has_ended.load(Ordering::SeqCst), "it did not hang");
        drop(answers);
    });
}

#[test]
fn hanging_dir_holds_up_no_settling_or_checkpoint_of_another() {
    let (pair, _) = hung();
    while_it_hangs(&pair, || {
        let hung_bytes = pair.store.write_cache().bytes();
        for number in 0..5 {
            pair.append(0, &format!("{number}")).unwrap();
            pair.store.settle_dir(0).unwrap();
            assert_eq!(pair.store.write_cache().bytes(), hung_bytes, "settled bytes make room");
            pair.store.checkpoint_dir(0).unwrap();
        }
        pair.append_numbers(1, 3..4);
    });
    pair.store.settle().unwrap();
    assert_eq!((pair.values(0).len(), pair.values(1).len()), (6, 5));
}

#[test]
fn a_dir_that_hangs_keeps_no_journal_from_being_used_again() {
    for is_killed in [false, true] {
        let (pair, expected) = hung();
        while_it_hangs(&pair, || {
            assert!(!pair.store.dir_hangs(1), "it may be busy");
            pair.sim.clock.advance(Duration::from_secs(3));
            assert!(pair.store.dir_hangs(1));
            for _ in 0..40 {
                pair.append(0, &"x".repeat(LARGE_BYTES)).unwrap();
                pair.store.settle_dir(0).unwrap();
                assert!(pair.used_bytes() < 3 << 20, "the journal is pinned");
            }
            let refused = pair.append(1, "no").unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Retry, "{refused}");
            if is_killed {
                pair.sim.fs.crash();
            }
        });
        let pair = if is_killed {
            let pair = pair.kill();
            assert!(pair.report.offline.is_empty(), "{:?}", pair.report);
            pair
        } else {
            pair.store.checkpoint().unwrap();
            assert!(!pair.store.has_aside(), "it has all of it");
            pair
        };
        assert_eq!(pair.values(1), expected);
        pair.append(1, "it goes on").unwrap();
        assert_eq!(pair.values(0).len(), 41);
    }
}

#[test]
fn entries_aside_for_a_hung_dir_stay_until_a_checkpoint() {
    let (pair, expected) = hung();
    while_it_hangs(&pair, || {
        pair.sim.clock.advance(Duration::from_secs(3));
        for _ in 0..40 {
            pair.append(0, &"x".repeat(LARGE_BYTES)).unwrap();
            pair.store.settle_dir(0).unwrap();
        }
    });
    assert!(pair.store.has_aside());
    pair.sim.fs.crash();
    let pair = pair.kill();
    assert_eq!(pair.values(1), expected);
}

#[test]
fn stop_leaves_a_hanging_dir_to_the_journal_and_closes_others() {
    let (pair, expected) = hung();
    pair.append_numbers(0, 0..3);
    while_it_hangs(&pair, || {
        pair.sim.clock.advance(Duration::from_secs(3));
        let closed = pair.store.close().unwrap();
        assert!(matches!(closed, Closed::LeftToJournals { bytes: 1.. }), "{closed:?}");
        pair.sim.fs.crash();
    });
    let pair = pair.kill();
    assert_eq!((pair.values(0).len(), pair.values(1)), (4, expected));
}

#[test]
fn a_dir_that_hangs_does_not_fill_the_write_cache_for_good() {
    // Less than half of it is used.
    let (pair, expected) = hung_beside(JournalOptions::with_bytes(64 << 20));
    while_it_hangs(&pair, || {
        pair.sim.clock.advance(Duration::from_secs(3));
        for _ in 0..25 {
            pair.append(1, &"x".repeat(LARGE_BYTES)).unwrap();
        }
        let cache = pair.store.write_cache();
        assert!(cache.is_contended());
        assert!(
            pair.store.wait_for_settling(0, Duration::from_millis(1)),
            "the other dir has nothing to settle"
        );
        pair.store.settle_dir(0).unwrap();
        assert_eq!(cache.bytes(), 0, "it is aside");
        assert!(!pair.store.wait_for_settling(0, Duration::from_millis(1)), "nothing is in the way any more");
    });
    pair.store.checkpoint().unwrap();
    assert!(!pair.store.has_aside());
    assert_eq!((pair.values(1).len(), pair.store.write_cache().bytes()), (expected.len() + 25, 0));
}

/// A partition of each dir whose appends go to no journal, with a record.
fn without_journal(pair: &Pair) -> [Arc<PartitionLog>; 2] {
    [0, 1].map(|dir| {
        let id = PartitionId { topic: TopicId([8; 16]), index: i32::try_from(dir).unwrap() };
        let log = pair.store.partition(id, dir, Arc::<LogConfig>::default(), LeaderEpoch(1)).unwrap();
        pair.append_to(&log, "the log has its files").unwrap();
        log
    })
}

/// Appends a record as a thread does that serves clients.
fn leave(pair: &Pair, log: &PartitionLog) {
    pair.stage(log, "left").unwrap();
    log.leave_staged().unwrap();
}

#[test]
fn appends_that_are_left_to_a_writer_wait_for_no_disk() {
    let pair = Pair::new(Machine::with_journal());
    let [well, hung] = without_journal(&pair);
    for dir in [0, 1] {
        pair.store.set_leaves(dir, Leaves::Always);
    }
    pair.sim.fs.hang_device(Some(HUNG.as_ref()));
    leave(&pair, &hung);
    thread::scope(|scope| {
        scope.spawn(|| pair.store.write_left(1, Duration::ZERO));
        wait_until(|| matches!(pair.store.dir_work(1), Some((DirWork::Writes(_), _))));
        leave(&pair, &hung);
        pair.sim.clock.advance(Duration::from_secs(3));
        let refused = pair.stage(&hung, "no").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Retry, "{refused}");
        leave(&pair, &well);
        assert_eq!(well.watermarks().appended, Offset(1), "its writer has not come");
        pair.store.write_left(0, Duration::ZERO);
        assert_eq!((well.watermarks().appended, hung.watermarks().appended), (Offset(2), Offset(1)));
        assert!(pair.store.write_cache().bytes() > 0, "waiting bytes count");
        pair.sim.fs.hang_device(None);
    });
    pair.store.write_left(1, Duration::ZERO);
    assert_eq!((hung.watermarks().appended, pair.store.write_cache().bytes()), (Offset(3), 0));
    assert_eq!(values_of(&hung).len(), 3);
    pair.append_to(&hung, "it goes on").unwrap();
}

#[test]
fn while_a_write_takes_long_others_leave_theirs() {
    let pair = Pair::new(Machine::with_journal());
    let [_, hung] = without_journal(&pair);
    pair.store.set_leaves(1, Leaves::WhileSlow);
    leave(&pair, &hung);
    assert_eq!(hung.watermarks().appended, Offset(2), "it is written at once");
    pair.sim.fs.hang_device(Some(HUNG.as_ref()));
    thread::scope(|scope| {
        scope.spawn(|| leave(&pair, &hung));
        wait_until(|| matches!(pair.store.dir_work(1), Some((DirWork::Writes(_), _))));
        pair.sim.clock.advance(Duration::from_millis(20));
        leave(&pair, &hung);
        pair.sim.fs.hang_device(None);
    });
    pair.store.write_left(1, Duration::ZERO);
    assert_eq!((hung.watermarks().appended, pair.store.write_cache().bytes()), (Offset(4), 0));
}

#[test]
fn an_append_that_is_handed_over_waits_for_no_disk() {
    let pair = Pair::new(Machine::with_journal());
    let [_, hung] = without_journal(&pair);
    pair.store.set_leaves(1, Leaves::WhileSlow);
    pair.sim.fs.hang_device(Some(HUNG.as_ref()));
    for _ in 0..2 {
        pair.stage(&hung, "left").unwrap();
        hung.leave_to_writer().unwrap();
    }
    assert_eq!(hung.watermarks().appended, Offset(1), "the writer has not come");
    pair.sim.fs.hang_device(None);
    pair.store.write_left(1, Duration::ZERO);
    assert_eq!((hung.watermarks().appended, pair.store.write_cache().bytes()), (Offset(3), 0));
}

#[test]
fn left_appends_that_cannot_be_written_are_lost_and_uncounted() {
    let pair = Pair::new(Machine::with_journal());
    let [_, log] = without_journal(&pair);
    pair.store.set_leaves(1, Leaves::Always);
    let staged = pair.stage(&log, "left").unwrap();
    log.leave_staged().unwrap();
    pair.sim.fs.fill_device(Some(HUNG.as_ref()));
    pair.store.write_left(1, Duration::ZERO);
    assert!(log.is_lost(&staged));
    assert_eq!(pair.store.write_cache().bytes(), 0);
}

/// Has a checkpoint, which `begin` leads to, wait for the machine's only log dir, which does not answer. The disk
/// answers after `action`, also after a panic.
fn while_a_checkpoint_hangs(machine: &Machine, begin: impl FnOnce() + Send, action: impl FnOnce()) {
    struct Answers<'a>(&'a Machine);
    impl Drop for Answers<'_> {
        fn drop(&mut self) {
            self.0.sim.fs.hang_device(None);
        }
    }
    machine.sim.fs.hang_device(Some(DIR.as_ref()));
    thread::scope(|scope| {
        let _answers = Answers(machine);
        scope.spawn(begin);
        wait_until(|| matches!(machine.store().dir_work(0), Some((DirWork::Checkpoint, _))));
        action();
    });
}

/// A machine with a log dir, a journal and a small write cache, whose partition has a record at this level.
fn with_small_cache(durability: DurabilityLevel) -> Machine {
    let options = StoreOptions { write_cache_bytes: 2 << 20, ..Machine::with_journal() };
    let config = LogConfig { durability, ..LogConfig::default() };
    let machine = Machine::with_options(SimEnv::new(1), config, options);
    machine.append_numbers(0, 1);
    machine
}

/// Stages a client's record.
fn stage_large(machine: &Machine, log: &PartitionLog) -> Result<Appended, AppendError> {
    let now = machine.sim.env().clock.wall();
    let batch = batch_at(&[(now.0, &"x".repeat(LARGE_BYTES / 2))], BatchOptions::default());
    log.append(BytesMut::from(&batch[..]), AppendOptions { origin: AppendOrigin::Client, now })
}

#[test]
fn a_dir_stands_still_only_when_its_checkpoint_takes_very_long() {
    let machine = with_small_cache(DurabilityLevel::AsyncAsync);
    let checkpoint = || machine.store().checkpoint().unwrap();
    let found = || (machine.store().dir_hangs(0), machine.store().dir_stands_still(0));
    while_a_checkpoint_hangs(&machine, checkpoint, || {
        machine.sim.clock.advance(Duration::from_secs(3));
        assert_eq!(found(), (true, false));
        machine.sim.clock.advance(Duration::from_mins(1));
        assert_eq!(found(), (true, true));
    });
    assert_eq!(found(), (false, false));
}

#[test]
fn a_checkpoint_that_takes_long_refuses_no_write() {
    let machine = with_small_cache(DurabilityLevel::AsyncAsync);
    let log = machine.log();
    let checkpoint = || machine.store().checkpoint().unwrap();
    while_a_checkpoint_hangs(&machine, checkpoint, || {
        for seconds in [3, 60] {
            machine.sim.clock.advance(Duration::from_secs(seconds));
            stage_large(&machine, &log).unwrap();
        }
    });
    log.write_staged().unwrap();
    assert_eq!(log.watermarks().appended, Offset(3));
}

#[test]
fn a_partition_is_opened_while_a_checkpoint_takes_long() {
    let machine = with_small_cache(DurabilityLevel::AsyncAsync);
    let closed = machine.partition(PartitionId { index: 5, ..ID });
    let (clock, told) = (Arc::clone(&machine.sim.clock), Arc::new(AtomicBool::new(false)));
    let tell = Arc::clone(&told);
    machine.sim.fs.during_next_sync(move || {
        clock.advance(Duration::from_secs(3));
        closed.ensure_open().unwrap();
        tell.store(true, Ordering::SeqCst);
    });
    machine.store().checkpoint().unwrap();
    assert!(told.load(Ordering::SeqCst));
}

#[test]
fn full_cache_waits_for_a_long_checkpoint_but_not_a_hung_disk() {
    let machine = with_small_cache(DurabilityLevel::SyncSync);
    let log = machine.log();
    let checkpoint = || machine.store().checkpoint().unwrap();
    machine.store().settle().unwrap();
    while_a_checkpoint_hangs(&machine, checkpoint, || {
        machine.sim.clock.advance(Duration::from_secs(3));
        while !machine.store().write_cache().is_contended() {
            stage_large(&machine, &log).unwrap();
        }
        stage_large(&machine, &log).unwrap();
        assert!(!machine.store().is_any_stuck(), "producers wait for room");
        machine.sim.clock.advance(Duration::from_secs(30));
        assert!(machine.store().is_any_stuck());
        let refused = stage_large(&machine, &log).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Retry, "{refused}");
    });
}
