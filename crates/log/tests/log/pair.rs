//! A server with two log dirs and one journal, for tests of one dir while the other is in trouble.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use riverrun_env::Env;
use riverrun_env::sim::SimEnv;
use riverrun_journal::Journal;
use riverrun_log::config::LogConfig;
use riverrun_log::producer_state::AppendOrigin;
use riverrun_log::{
    AppendError, AppendOptions, Appended, LogError, LogStore, PartitionLog, Place, RecoveryReport,
    StoreOptions,
};
use riverrun_records::BatchOptions;
use riverrun_types::{DurabilityLevel, LeaderEpoch, Offset, PartitionId, TopicId};

use crate::machine::{batch_at, put};

pub(crate) const DIRS: [&str; 2] = ["/one", "/two"];

pub(crate) fn wait_until(is_so: impl Fn() -> bool) {
    for _ in 0..30_000 {
        if is_so() {
            return;
        }
        Env::real().clock.sleep(Duration::from_millis(1));
    }
    panic!("it never is so");
}

pub(crate) fn synced() -> Arc<LogConfig> {
    Arc::new(LogConfig { durability: DurabilityLevel::SyncSync, ..LogConfig::default() })
}

/// A partition of each dir.
fn partition(dir: usize) -> PartitionId {
    PartitionId { topic: TopicId([7; 16]), index: i32::try_from(dir).unwrap() }
}

/// The values of all records, from the first offset on.
pub(crate) fn values_of(log: &PartitionLog) -> Vec<String> {
    let end = log.log_end_offset().unwrap();
    let mut values = vec![];
    let mut from = Offset(0);
    while from < end {
        let slice = log.read(from, 1 << 20, end, true).unwrap();
        for chunk in &slice.chunks {
            for batch in riverrun_records::Batches::new(&chunk.to_bytes().unwrap()) {
                let batch = batch.unwrap().verify().unwrap();
                let records = batch.records().unwrap();
                values.extend(
                    (&records)
                        .into_iter()
                        .map(|record| String::from_utf8(record.unwrap().value.unwrap().to_vec()).unwrap()),
                );
            }
        }
        from = slice.next_offset;
    }
    values
}

/// A server with two log dirs and one journal.
pub(crate) struct Pair {
    pub(crate) sim: SimEnv,
    pub(crate) options: StoreOptions,
    pub(crate) epoch: i32,
    pub(crate) store: LogStore,
    pub(crate) report: RecoveryReport,
}

impl Pair {
    pub(crate) fn new(options: StoreOptions) -> Self {
        Self::start(SimEnv::new(1), options, 1).unwrap()
    }

    pub(crate) fn start(sim: SimEnv, options: StoreOptions, epoch: i32) -> Result<Self, LogError> {
        let store = LogStore::open(&sim.env(), &DIRS.map(PathBuf::from), options.clone())?;
        let place = |id: PartitionId| Place::In(usize::try_from(id.index).unwrap() % DIRS.len(), synced());
        let report = store.recover(|_| LeaderEpoch(epoch), place)?;
        Ok(Self { sim, options, epoch, store, report })
    }

    pub(crate) fn kill(self) -> Self {
        self.sim.fs.kill();
        let Self { sim, options, epoch, store, .. } = self;
        drop(store);
        Self::start(sim, options, epoch + 1).unwrap()
    }

    pub(crate) fn log(&self, dir: usize) -> Arc<PartitionLog> {
        let config = synced();
        self.store.partition(partition(dir), dir, config, LeaderEpoch(self.epoch)).unwrap()
    }

    pub(crate) fn append(&self, dir: usize, value: &str) -> Result<Offset, AppendError> {
        self.append_to(&self.log(dir), value)
    }

    pub(crate) fn append_to(&self, log: &PartitionLog, value: &str) -> Result<Offset, AppendError> {
        let now = self.sim.env().clock.wall();
        let batch = batch_at(&[(now.0, value)], BatchOptions::default());
        let options = AppendOptions { origin: AppendOrigin::Client, now };
        put(log, &batch, options).map(|appended| appended.base_offset)
    }

    /// Stages a record.
    pub(crate) fn stage(&self, log: &PartitionLog, value: &str) -> Result<Appended, AppendError> {
        let now = self.sim.env().clock.wall();
        let batch = batch_at(&[(now.0, value)], BatchOptions::default());
        log.append(BytesMut::from(&batch[..]), AppendOptions { origin: AppendOrigin::Client, now })
    }

    /// Another partition of the first dir.
    pub(crate) fn beside(&self) -> Arc<PartitionLog> {
        let id = PartitionId { index: 2, ..partition(0) };
        self.store.partition(id, 0, synced(), LeaderEpoch(self.epoch)).unwrap()
    }

    /// The partition of an index, in the dir that it has at a start, if its records go through the journal at
    /// `journal`. A record shows that.
    pub(crate) fn partition_in(&self, index: i32, journal: usize) -> Option<Arc<PartitionLog>> {
        let dir = usize::try_from(index).unwrap() % DIRS.len();
        let id = PartitionId { index, ..partition(0) };
        let log = self.store.partition(id, dir, synced(), LeaderEpoch(self.epoch)).unwrap();
        let used_bytes = || self.store.journals().nth(journal).unwrap().used_bytes();
        let before = used_bytes();
        self.append_to(&log, "which?").unwrap();
        (used_bytes() > before).then_some(log)
    }

    /// Appends a record for each of the numbers, with the number in its value.
    pub(crate) fn append_numbers(&self, dir: usize, numbers: Range<i64>) {
        numbers.for_each(|number| _ = self.append(dir, &format!("record {number}")).unwrap());
    }

    pub(crate) fn values(&self, dir: usize) -> Vec<String> {
        values_of(&self.log(dir))
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.store.journals().map(Journal::used_bytes).sum()
    }

    /// Appends to a dir until the journal has gone round more than once.
    pub(crate) fn go_round(&self, dir: usize) {
        let value = "x".repeat(200_000);
        for _ in 0..40 {
            self.append(dir, &value).unwrap();
            let _one_dir_has_failed = self.store.settle();
            assert!(self.used_bytes() < 3 << 20, "the journal is pinned");
        }
    }
}
