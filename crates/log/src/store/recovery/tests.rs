use std::path::{Path, PathBuf};

use bytes::BytesMut;
use riverrun_env::sim::SimEnv;
use riverrun_env::{FileSystem as _, OpenMode};
use riverrun_journal::{JournalError, JournalOptions};
use riverrun_records::{BatchBuilder, BatchOptions};
use riverrun_types::{DurabilityLevel, TimestampMs, TopicId};

use super::*;
use crate::partition_log::AppendOptions;
use crate::producer_state::AppendOrigin;
use crate::store::StoreOptions;

const ID: PartitionId = PartitionId { topic: TopicId([1; 16]), index: 0 };
const COUNT: i64 = 24;

fn open(sim: &SimEnv) -> LogStore {
    let options = StoreOptions {
        journal_dirs: vec![PathBuf::from("/journal")],
        journal: JournalOptions::with_bytes(4 << 20),
        ..StoreOptions::default()
    };
    LogStore::open(&sim.env(), &[PathBuf::from("/logs")], options).unwrap()
}

fn config() -> Arc<LogConfig> {
    let durability = DurabilityLevel::SyncSync;
    Arc::new(LogConfig { durability, segment_bytes: 300_000, ..LogConfig::default() })
}

fn recover(store: &LogStore) -> Result<RecoveryReport, LogError> {
    store.recover(LeaderEpoch(1), |_| Place::In(0, config()))
}

fn partition(store: &LogStore) -> Arc<PartitionLog> {
    store.partition(ID, 0, config(), LeaderEpoch(1)).unwrap()
}

/// Several files of the journal, all of which was settled into many segments since the last checkpoint.
fn settled_and_killed(sim: &SimEnv) {
    let store = open(sim);
    recover(&store).unwrap();
    let log = partition(&store);
    for _ in 0..COUNT {
        let mut batch = BatchBuilder::new(BatchOptions::default());
        batch.append(TimestampMs(0), None, Some(&vec![1; 100_000]), &[]).unwrap();
        let options = AppendOptions { origin: AppendOrigin::Client, now: TimestampMs(0) };
        log.append(BytesMut::from(&batch.build().unwrap()[..]), options).unwrap();
    }
    while log.watermarks().synced < Offset(COUNT) {
        std::thread::yield_now();
    }
    store.dirs[0].settle(Haste::AtOnce).unwrap();
    sim.fs.kill();
}

fn names(sim: &SimEnv, dir: &Path, suffix: &str) -> Vec<String> {
    let entries = sim.fs.read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.iter().map(|entry| entry.name.to_str().unwrap().to_owned()).collect();
    names.retain(|name| name.ends_with(suffix));
    names.sort_unstable();
    names
}

#[test]
fn a_start_that_is_refused_for_a_later_file_of_the_journal_removes_no_segment() {
    for is_given_up in [false, true] {
        let sim = SimEnv::new(1);
        settled_and_killed(&sim);
        let files = names(&sim, Path::new("/journal"), ".journal");
        assert!(files.len() > 2, "{files:?}");
        let path = |name: &String| Path::new("/journal").join(name);
        let file = sim.fs.open(&path(&files[1]), OpenMode::ReadWrite).unwrap();
        let mut frame = [0; 4096];
        file.read_exact_at(&mut frame, 4096).unwrap();
        file.write_all_at(&[7; 4096], 4096).unwrap();
        let store = open(&sim);
        let dir = store.dirs[0].partition_path(ID);
        let segments = names(&sim, &dir, ".log");
        assert!(segments.len() > 5, "{segments:?}");
        let error = recover(&store).unwrap_err();
        let is_corrupt = matches!(error, LogError::Journal(JournalError::Corrupt { .. }));
        assert!(is_corrupt, "{error}");
        assert_eq!(names(&sim, &dir, ".log"), segments);
        drop(store);
        if is_given_up {
            for name in names(&sim, Path::new("/journal"), ".journal") {
                sim.fs.remove_file(&path(&name)).unwrap();
            }
        } else {
            file.write_all_at(&frame, 4096).unwrap();
        }
        let store = open(&sim);
        recover(&store).unwrap();
        assert_eq!(partition(&store).log_end_offset().unwrap(), Offset(COUNT), "{is_given_up}");
    }
}
