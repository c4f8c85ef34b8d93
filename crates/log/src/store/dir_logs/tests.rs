mod counts;

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use bytes::BytesMut;
use riverrun_env::sim::SimEnv;
use riverrun_env::{FileSystem as _, atomic_replace, read_whole};
use riverrun_journal::JournalOptions;
use riverrun_records::{BatchBuilder, BatchOptions};
use riverrun_types::{DurabilityLevel, Offset, TimestampMs, TopicId};

use super::*;
use crate::checkpoint::CHECKPOINT_FILE;
use crate::log_dir::{DirWork, LOCK_FILE};
use crate::options::StoreOptions;
use crate::partition_log::{AppendOptions, Appended};
use crate::producer_state::AppendOrigin;
use crate::store::{LogStore, Place};

const KNOWN: PartitionId = PartitionId { topic: TopicId([1; 16]), index: 0 };
const NEW: PartitionId = PartitionId { index: 1, ..KNOWN };

/// The longest wait for an event that comes at once, unless it never comes.
const PATIENCE: Duration = Duration::from_secs(30);
/// Looks with a millisecond between them.
const LOOKS_MAX: u32 = 30_000;

const EIO: i32 = 5;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

fn config() -> Arc<LogConfig> {
    Arc::new(LogConfig { durability: DurabilityLevel::SyncSync, ..LogConfig::default() })
}

fn open(sim: &SimEnv) -> LogStore {
    let options = StoreOptions {
        journal_dirs: vec![PathBuf::from("/journal")],
        journal: JournalOptions::with_bytes(4 << 20),
        ..StoreOptions::default()
    };
    LogStore::open(&sim.env(), &[PathBuf::from("/logs")], options).unwrap()
}

fn recover(store: &LogStore) {
    store.recover(|_| LeaderEpoch(1), |_| Place::In(0, config())).unwrap();
}

fn partition(store: &LogStore, id: PartitionId) -> Arc<PartitionLog> {
    store.partition(id, 0, config(), LeaderEpoch(1)).unwrap()
}

/// Appends a record and waits until it is synced.
fn append(store: &LogStore, id: PartitionId) {
    let log = partition(store, id);
    let appended = stage(&log);
    while log.watermarks().synced <= appended.last_offset {
        thread::yield_now();
    }
}

/// Stages a record.
fn stage(log: &PartitionLog) -> Appended {
    let mut batch = BatchBuilder::new(BatchOptions::default());
    batch.append(TimestampMs(0), None, Some(b"value"), &[]).unwrap();
    let options = AppendOptions { origin: AppendOrigin::Client, now: TimestampMs(0) };
    log.append(BytesMut::from(&batch.build().unwrap()[..]), options).unwrap()
}

/// Whether a caller is in haste during the next sync.
fn haste_of_next_sync(sim: &SimEnv, store: &LogStore) -> Receiver<bool> {
    let dir = partition(store, NEW).dir().clone();
    let (tell, told) = sync_channel(1);
    sim.fs.during_next_sync(move || tell.send(dir.hurry.is_any()).unwrap());
    told
}

#[test]
fn some_partitions_are_covered_while_a_pass_over_all_goes_on() {
    let sim = SimEnv::new(1);
    let store = open(&sim);
    recover(&store);
    append(&store, KNOWN);
    append(&store, NEW);
    let (known, new) = (partition(&store, KNOWN), partition(&store, NEW));
    let logs = &store.dirs[0];
    let _passes = (logs.cycle.lock(), logs.settling.lock());
    logs.cover_some(std::slice::from_ref(&known), Haste::Spread).unwrap();
    assert_eq!((known.recovery_point(), new.recovery_point()), (Offset(1), Offset(0)));
    assert!(known.close_if_unused() && !new.close_if_unused());
}

#[test]
fn checkpoints_of_start_and_stop_do_not_rest() {
    let sim = SimEnv::new(1);
    let store = open(&sim);
    recover(&store);
    append(&store, KNOWN);
    store.close().unwrap();
    drop(store);
    let checkpoint = Path::new("/logs").join(CHECKPOINT_FILE);
    atomic_replace(&*sim.env().fs, &checkpoint, b"damaged").unwrap();
    let store = open(&sim);
    recover(&store);
    append(&store, NEW);
    sim.fs.kill();
    drop(store);

    let store = open(&sim);
    let told = haste_of_next_sync(&sim, &store);
    recover(&store);
    assert_eq!(told.try_recv(), Ok(true), "as it starts");
    append(&store, NEW);
    let told = haste_of_next_sync(&sim, &store);
    store.checkpoint().unwrap();
    assert_eq!(told.try_recv(), Ok(false), "while it runs");
    append(&store, NEW);
    let told = haste_of_next_sync(&sim, &store);
    store.close().unwrap();
    assert_eq!(told.try_recv(), Ok(true), "as it stops");
}

#[test]
fn partition_deleted_during_a_checkpoint_is_not_remembered() {
    let sim = SimEnv::new(1);
    let store = open(&sim);
    recover(&store);
    append(&store, KNOWN);
    append(&store, NEW);
    store.settle().unwrap();
    let (logs, dir) = (&store.dirs[0], partition(&store, NEW).dir().clone());
    let (captured, coverage) = logs.capture(vec![KNOWN, NEW]);
    assert_eq!((captured.len(), coverage), (2, Coverage::Complete));
    store.delete(NEW, 0).unwrap();
    logs.write_checkpoint(&captured, false).unwrap();
    assert!(dir.checkpointed(KNOWN).is_some());
    assert_eq!(dir.checkpointed(NEW), None);
    assert!(!dir.holds(NEW).unwrap());
}

#[test]
fn partition_deleted_during_a_log_start_move_is_not_remembered() {
    let sim = SimEnv::new(1);
    let store = open(&sim);
    recover(&store);
    append(&store, NEW);
    store.settle().unwrap();
    let log = partition(&store, NEW);
    let dir = log.dir().clone();
    let deleting = store.dirs[0].clone();
    sim.fs.during_next_sync(move || {
        thread::scope(|scope| _ = scope.spawn(|| deleting.delete(NEW).unwrap()));
    });
    log.delete_records(Offset(1)).unwrap_err();
    assert_eq!(dir.checkpointed(NEW), None);
}

#[test]
fn a_dir_is_let_go_of_when_nobody_writes_to_it_any_more() {
    let sim = SimEnv::new(1);
    let store = open(&sim);
    recover(&store);
    append(&store, KNOWN);
    let log = partition(&store, KNOWN).open().unwrap();
    let writer = log.writer.lock();
    let (tell, told) = sync_channel(1);
    thread::scope(|scope| {
        scope.spawn(|| {
            drop(store);
            tell.send(()).unwrap();
        });
        // The handle is closed, and the dir is not unlocked before the writer is.
        while !log.appender.lock().is_retired {
            thread::yield_now();
        }
        assert!(told.try_recv().is_err());
        assert!(sim.env().fs.lock(&Path::new("/logs").join(LOCK_FILE)).is_err());
        drop(writer);
        told.recv().unwrap();
        assert!(sim.env().fs.lock(&Path::new("/logs").join(LOCK_FILE)).is_ok());
    });
}

/// A dir with the file `log-starts` of a server that runs, and a partition with records.
fn running(sim: &SimEnv) -> (LogStore, Arc<PartitionLog>) {
    let store = open(sim);
    recover(&store);
    (0..3).for_each(|_| append(&store, KNOWN));
    store.checkpoint().unwrap();
    let log = partition(&store, KNOWN);
    (store, log)
}

#[test]
fn log_start_move_fails_if_its_dir_fails_during_the_sync() {
    let sim = SimEnv::new(1);
    let (_store, log) = running(&sim);
    let (dir, fs) = (log.dir().clone(), sim.fs.clone());
    sim.fs.during_next_sync(move || {
        fs.fail_sync_after(0);
        assert!(dir.look_at_device().is_err());
    });
    let error = log.delete_records(Offset(2)).unwrap_err();
    assert!(error.to_string().contains("device-check"), "{error}");
}

#[test]
fn power_cut_during_a_look_at_the_device_spares_synced_files() {
    for seed in 0..20 {
        let sim = SimEnv::new(seed);
        sim.fs.tear_blocks(true);
        let (store, log) = running(&sim);
        log.delete_records(Offset(2)).unwrap();
        sim.fs.stop_after(1);
        assert!(log.dir().look_at_device().is_err());
        sim.fs.crash();
        drop((store, log));
        let store = open(&sim);
        recover(&store);
        assert_eq!(partition(&store, KNOWN).log_start_offset().unwrap(), Offset(2), "seed {seed}");
    }
}

#[test]
fn dir_without_the_device_file_gets_one_of_any_content() {
    let sim = SimEnv::new(1);
    let path = Path::new("/logs/device-check");
    open(&sim).close().unwrap();
    sim.fs.remove_file(path).unwrap();
    open(&sim).close().unwrap();
    let made = read_whole(&*sim.fs, path, 100).unwrap();
    assert_eq!(made[..8], *b"RRdevice");
    for content in [&b""[..], b"something else"] {
        atomic_replace(&*sim.fs, path, content).unwrap();
        let store = open(&sim);
        store.look_at_device(0);
        assert!(store.dir_failure(0).is_none());
        assert_eq!(read_whole(&*sim.fs, path, 100).unwrap()[..12], made[..]);
        store.close().unwrap();
    }
}

/// A file that is missing or not writable, and too few descriptors, are not the device's fault.
#[test]
fn file_that_cannot_be_opened_for_writing_fails_no_dir() {
    let sim = SimEnv::new(1);
    let (_store, log) = running(&sim);
    let (dir, index) = (log.dir(), log.path().join("00000000000000000000.index"));
    let name = [io::ErrorKind::PermissionDenied, io::ErrorKind::NotFound].map(io::Error::from);
    let shortage = [EMFILE, ENFILE].map(io::Error::from_raw_os_error);
    for error in name.into_iter().chain(shortage) {
        let error = dir.judge_at_once(LogError::write(&index, error));
        assert!(matches!(error, LogError::Io { .. }) && dir.check_usable().is_ok(), "{error}");
    }
    let error = dir.judge_at_once(LogError::write(&index, io::Error::from_raw_os_error(EIO)));
    assert!(matches!(error, LogError::DirFailed { .. }), "{error}");
}

/// Appends so much that the disk is told to begin with it as soon as it is settled.
fn append_much(store: &LogStore) {
    let mut batch = BatchBuilder::new(BatchOptions::default());
    batch.append(TimestampMs(0), None, Some(&vec![1; 600_000]), &[]).unwrap();
    let batch = batch.build().unwrap();
    let log = partition(store, KNOWN);
    let options = AppendOptions { origin: AppendOrigin::Client, now: TimestampMs(0) };
    for _ in 0..2 {
        log.append(BytesMut::from(&batch[..]), options).unwrap();
    }
    while log.watermarks().synced < Offset(2) {
        thread::yield_now();
    }
}

#[test]
fn nobody_waits_for_the_writer_while_the_disk_is_told_to_begin() {
    let sim = SimEnv::new(1);
    let store = open(&sim);
    recover(&store);
    append_much(&store);
    let log = partition(&store, KNOWN).open().unwrap();
    let (tell, told) = sync_channel(1);
    sim.fs.during_next_write_back(move || tell.send(log.writer.try_lock().is_some()).unwrap());
    store.settle().unwrap();
    assert_eq!(told.try_recv(), Ok(true));
}

/// Runs `sync` while the disk is told by `write_back` to begin with some bytes, and refuses.
fn beside_a_failed_write_back<T: Send>(
    sim: &SimEnv,
    write_back: impl FnOnce() -> Result<(), LogError>,
    sync: impl FnOnce() -> Result<T, LogError> + Send,
) -> Result<T, LogError> {
    let (tell, told) = sync_channel(1);
    let fs = sim.fs.clone();
    sim.fs.during_next_write_back(move || {
        let syncs = fs.syncs();
        tell.send(()).unwrap();
        let mut looks = 0;
        while fs.syncs() == syncs && looks < LOOKS_MAX {
            Env::real().clock.sleep(Duration::from_millis(1));
            looks += 1;
        }
        // Time for it to go on, which it must not.
        Env::real().clock.sleep(Duration::from_millis(300));
    });
    sim.fs.fail_write_back_after(0);
    thread::scope(|scope| {
        let syncing = scope.spawn(move || {
            told.recv_timeout(PATIENCE).unwrap();
            sync()
        });
        write_back().unwrap_err();
        syncing.join().unwrap()
    })
}

#[test]
fn checkpoint_believes_no_sync_beside_a_failed_write_back() {
    let sim = SimEnv::new(1);
    let store = open(&sim);
    recover(&store);
    append_much(&store);
    let dir = partition(&store, KNOWN).dir().clone();
    let beside = store.dirs[0].clone();
    let checkpoint = || beside.checkpoint(false, Haste::AtOnce);
    beside_a_failed_write_back(&sim, || store.settle(), checkpoint).unwrap_err();
    assert!(dir.checkpointed(KNOWN).is_none_or(|known| known.recovery_point == Offset(0)));
}

#[test]
fn cut_believes_no_sync_beside_a_failed_write_back() {
    let sim = SimEnv::new(1);
    let store = open(&sim);
    recover(&store);
    append_much(&store);
    let log = partition(&store, KNOWN);
    beside_a_failed_write_back(&sim, || store.settle(), || log.truncate_to(Offset(1))).unwrap_err();
    assert_eq!(log.dir().cuts_or(KNOWN, 0), 0, "the records below may be lost");
}

#[test]
fn opening_believes_no_sync_beside_a_failed_write_back() {
    let sim = SimEnv::new(1);
    let store = open(&sim);
    recover(&store);
    let unsynced = LogConfig { durability: DurabilityLevel::AsyncAsync, ..LogConfig::default() };
    let log = store.partition(KNOWN, 0, Arc::new(unsynced), LeaderEpoch(1)).unwrap();
    stage(&log);
    log.write_staged().unwrap();
    sim.fs.kill();
    let store = open(&sim);
    recover(&store);
    let log = partition(&store, KNOWN);
    let opened = beside_a_failed_write_back(&sim, || store.dirs[0].sync_found(), || log.log_end_offset());
    opened.unwrap_err();
    assert_eq!(log.watermarks().synced, Offset(0));
}

#[test]
fn checkpoint_believes_no_volume_that_hides_lost_writes() {
    let sim = SimEnv::new(1);
    sim.fs.silence_volumes(true);
    let (store, log) = running(&sim);
    let covered = log.recovery_point();
    append(&store, KNOWN);
    store.settle().unwrap();
    sim.fs.fail_sync_after(0);
    let error = store.checkpoint().unwrap_err();
    assert!(error.to_string().contains("00000000000000000000.log"), "{error}");
    assert_eq!(log.dir().checkpointed(KNOWN).unwrap().recovery_point, covered);
    sim.fs.crash();
    drop(store);
    let store = open(&sim);
    recover(&store);
    let log = partition(&store, KNOWN);
    log.open().unwrap();
    assert_eq!(log.watermarks().synced, covered.plus(1));
}

#[test]
fn segment_that_cannot_be_opened_for_a_sync_is_covered_later() {
    let sim = SimEnv::new(1);
    sim.fs.silence_volumes(true);
    let (store, log) = running(&sim);
    let covered = log.recovery_point();
    (0..2).for_each(|_| append(&store, KNOWN));
    // Each batch gets a segment of its own.
    let config = Arc::new(LogConfig { segment_bytes: 1, ..(*config()).clone() });
    store.partition(KNOWN, 0, config, LeaderEpoch(1)).unwrap();
    store.settle().unwrap();
    let last = log.open().unwrap().view().segments[2].clone();
    let fs = sim.fs.clone();
    sim.fs.during_next_sync(move || {
        // The file of the segment before, while others need its descriptor more.
        last.close_unused_files();
        last.close_unused_files();
        fs.exhaust_descriptors(true);
    });
    let error = store.checkpoint().unwrap_err();
    assert!(error.to_string().contains("00000000000000000004.log"), "{error}");
    assert_eq!(log.dir().checkpointed(KNOWN).unwrap().recovery_point, covered);
    sim.fs.exhaust_descriptors(false);
    store.checkpoint().unwrap();
    assert_eq!(log.dir().checkpointed(KNOWN).unwrap().recovery_point, covered.plus(2));
}

/// A read finds damage in a dir that has failed: it is left to the next start, which has the journal, and nothing is
/// written there.
#[test]
fn damage_in_a_failed_dir_is_not_written_down_there() {
    for has_failed in [false, true] {
        let sim = SimEnv::new(1);
        let (_store, log) = running(&sim);
        let path = log.path().join("00000000000000000000.log");
        if has_failed {
            log.dir().judge(LogError::write(&path, io::Error::from_raw_os_error(EIO)));
        }
        log.take_offline_if_damaged(&LogError::corrupt(&path, 0, "not what was written"));
        assert!(log.damage().is_some());
        let marker = log.path().join("00000000000000000000.damaged");
        assert_eq!(sim.fs.exists(&marker).unwrap(), !has_failed);
    }
}

#[test]
fn damaged_index_in_a_failed_dir_is_rebuilt_in_memory() {
    for has_failed in [false, true] {
        let sim = SimEnv::new(1);
        let store = open(&sim);
        recover(&store);
        append_much(&store);
        store.settle().unwrap();
        store.checkpoint().unwrap();
        let log = partition(&store, KNOWN);
        let path = log.path().join("00000000000000000000.index");
        let file = sim.fs.open(&path, riverrun_env::OpenMode::ReadWrite).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let last = bytes.len() - 1;
        for byte in &mut bytes[crate::index::HEADER_BYTES..=last] {
            *byte ^= 0xff;
        }
        file.write_all_at(&bytes, 0).unwrap();
        if has_failed {
            log.dir().judge(LogError::write(&path, io::Error::from_raw_os_error(EIO)));
        }
        for from in [0, 1, 0] {
            let found = log.read(Offset(from), 100, Offset(2), true).unwrap();
            assert_eq!(found.next_offset, Offset(from + 1));
        }
        let mut after = vec![0; bytes.len()];
        file.read_exact_at(&mut after, 0).unwrap();
        assert_eq!(after == bytes, has_failed, "whether it was left as it is");
    }
}

#[test]
fn a_read_error_in_a_dir_that_has_failed_is_its_failure() {
    let sim = SimEnv::new(1);
    let (_store, log) = running(&sim);
    let (dir, path) = (log.dir(), log.path().join("00000000000000000000.log"));
    dir.judge(LogError::write(&path, io::Error::from_raw_os_error(EIO)));
    let error = || LogError::io(&path, io::Error::from_raw_os_error(EIO));
    for error in [dir.judge(error()), dir.judge_at_once(error())] {
        assert!(matches!(error, LogError::DirFailed { .. }), "{error}");
    }
}

#[test]
fn a_wait_for_the_writer_tells_of_no_write_that_hangs() {
    let sim = SimEnv::new(1);
    let (store, _) = running(&sim);
    let unsynced = LogConfig { durability: DurabilityLevel::AsyncAsync, ..LogConfig::default() };
    let log = store.partition(NEW, 0, Arc::new(unsynced), LeaderEpoch(1)).unwrap();
    stage(&log);
    let dir = log.dir();
    let open = log.open().unwrap();
    let writer = open.writer.lock();
    thread::scope(|scope| {
        let written = scope.spawn(|| log.write_staged());
        while !matches!(dir.work(), Some((DirWork::AwaitsWriter(_), _))) {
            thread::yield_now();
        }
        sim.clock.advance(Duration::from_secs(3));
        assert!(dir.is_slow(), "others leave their writes");
        dir.check_takes_writes().unwrap();
        dir.check_opens().unwrap();
        drop(writer);
        written.join().unwrap().unwrap();
    });
}

#[test]
fn log_that_is_closed_on_a_slow_disk_keeps_no_look_waiting() {
    let sim = SimEnv::new(1);
    let (store, log) = running(&sim);
    store.checkpoint().unwrap();
    let open = log.open().unwrap();
    // Space that the closing gives back.
    open.writer.lock().active.as_mut().unwrap().allocated = Some(1 << 20);
    // A log in use is not closed.
    drop(open);
    let before = (log.known_range(), log.size_bytes());
    sim.fs.hang_device(Some(Path::new("/logs")));
    let clock = Env::real().clock;
    let end = clock.monotonic() + PATIENCE;
    thread::scope(|scope| {
        let closing = scope.spawn(|| log.close_if_unused());
        while log.is_open() {
            assert!(clock.monotonic() < end, "the log is not closed");
            thread::yield_now();
        }
        let looking = scope.spawn(|| (log.known_range(), log.size_bytes()));
        while !looking.is_finished() && clock.monotonic() < end {
            thread::yield_now();
        }
        let has_looked = looking.is_finished() && !closing.is_finished();
        sim.fs.hang_device(None);
        assert!(closing.join().unwrap());
        assert!(has_looked, "it waits for the disk");
        assert_eq!(looking.join().unwrap(), before);
    });
}
