//! A simulated machine with one log store on it, and short ways to append and read.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::BytesMut;
use riverrun_env::sim::SimEnv;
use riverrun_env::{Clock, FileSystem, OpenMode, RealClock, read_whole};
use riverrun_journal::JournalOptions;
use riverrun_log::config::LogConfig;
use riverrun_log::producer_state::AppendOrigin;
use riverrun_log::{
    AppendError, AppendOptions, Appended, LogError, LogStore, PartitionLog, Place, RecoveryReport,
    StoreOptions,
};
use riverrun_records::{BatchBuilder, BatchOptions, Batches, Compression, ProducerStamp};
use riverrun_types::{
    Acks, DurabilityLevel, LeaderEpoch, Offset, PartitionId, ProducerEpoch, ProducerId, TimestampMs, TopicId,
    ack_offset,
};

/// The log dir.
pub(crate) const DIR: &str = "/logs";
/// The partition that most tests use.
pub(crate) const ID: PartitionId = PartitionId { topic: TopicId([0xab; 16]), index: 0 };

/// A batch whose records have these values and timestamps.
pub(crate) fn batch_at(records: &[(i64, &str)], options: BatchOptions) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    for (timestamp, value) in records {
        builder.append(TimestampMs(*timestamp), Some(value.as_bytes()), Some(value.as_bytes()), &[]).unwrap();
    }
    builder.build().unwrap()
}

pub(crate) fn stamp(id: i64, base_sequence: i32) -> ProducerStamp {
    ProducerStamp { id: ProducerId(id), epoch: ProducerEpoch(0), base_sequence }
}

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Appends whole batches and waits until they may be acked, like a caller that has nothing else to append.
pub(crate) fn put(
    log: &PartitionLog,
    batches: &[u8],
    options: AppendOptions,
) -> Result<Appended, AppendError> {
    let appended = log.append(BytesMut::from(batches), options)?;
    log.write_staged()?;
    let clock = RealClock::new();
    while !log.is_lost(&appended) {
        if ack_offset(log.level_reached(), Acks::All, log.watermarks(), &[]) > appended.last_offset {
            return Ok(appended);
        }
        assert!(clock.monotonic() < PATIENCE, "no mark and no loss for {appended:?}");
        thread::yield_now();
    }
    Err(AppendError::Storage(log.failure().unwrap_or(LogError::Closed)))
}

/// A simulated machine.
pub(crate) struct Machine {
    pub(crate) sim: SimEnv,
    pub(crate) config: Arc<LogConfig>,
    pub(crate) epoch: i32,
    pub(crate) options: StoreOptions,
    pub(crate) store: Option<LogStore>,
    /// Records that the last start has found in the journal.
    pub(crate) recovered: RecoveryReport,
}

impl Machine {
    pub(crate) fn new(seed: u64, config: LogConfig) -> Self {
        Self::on(SimEnv::new(seed), config)
    }

    pub(crate) fn on(sim: SimEnv, config: LogConfig) -> Self {
        Self::with_options(sim, config, StoreOptions::default())
    }

    pub(crate) fn with_options(sim: SimEnv, config: LogConfig, options: StoreOptions) -> Self {
        let recovered = RecoveryReport::default();
        let mut machine = Self { sim, config: Arc::new(config), epoch: 0, options, store: None, recovered };
        machine.start().unwrap();
        machine
    }

    /// A machine whose partitions are synced by a journal before they are acked.
    pub(crate) fn synced(seed: u64, config: &LogConfig) -> Self {
        let config = LogConfig { durability: DurabilityLevel::SyncSync, ..config.clone() };
        Self::with_options(SimEnv::new(seed), config, Self::with_journal())
    }

    /// A store with one small journal.
    pub(crate) fn with_journal() -> StoreOptions {
        StoreOptions {
            journal_dirs: vec![PathBuf::from("/journal")],
            journal: JournalOptions::with_bytes(4 << 20),
            ..StoreOptions::default()
        }
    }

    /// As [`Self::with_journal`], with a write cache that holds nothing when a server starts: the journal's entries are
    /// in the segments then.
    pub(crate) fn settled_at_start() -> StoreOptions {
        StoreOptions { write_cache_bytes: 1, ..Self::with_journal() }
    }

    /// Small segments and an index entry for each batch, so that little data goes far.
    pub(crate) fn small_segments() -> LogConfig {
        LogConfig { segment_bytes: 1000, index_interval_bytes: 1, ..LogConfig::default() }
    }

    /// As [`Self::small_segments`], with an index entry for each few batches.
    pub(crate) fn spaced_entries() -> LogConfig {
        LogConfig { index_interval_bytes: 300, ..Self::small_segments() }
    }

    /// A log of some sealed segments and an active one, opened after an orderly stop, and the paths of the `.log` files.
    pub(crate) fn reopened(config: LogConfig, records: i64) -> (Self, Vec<PathBuf>) {
        let mut machine = Self::new(1, config);
        machine.append_numbers(0, records);
        machine.restart();
        machine.log().ensure_open().unwrap();
        let paths = machine.log_paths();
        assert!(paths.len() >= 2);
        (machine, paths)
    }

    pub(crate) fn start(&mut self) -> Result<(), LogError> {
        self.epoch += 1;
        let store = LogStore::open(&self.sim.env(), &[PathBuf::from(DIR)], self.options.clone())?;
        self.recovered = store.recover(|_| LeaderEpoch(self.epoch), |_| Place::In(0, self.config.clone()))?;
        self.store = Some(store);
        Ok(())
    }

    pub(crate) fn store(&self) -> &LogStore {
        self.store.as_ref().unwrap()
    }

    pub(crate) fn partition(&self, id: PartitionId) -> Arc<PartitionLog> {
        self.store().partition(id, 0, self.config.clone(), LeaderEpoch(self.epoch)).unwrap()
    }

    pub(crate) fn log(&self) -> Arc<PartitionLog> {
        self.partition(ID)
    }

    pub(crate) fn now(&self) -> TimestampMs {
        self.sim.env().clock.wall()
    }

    /// Stops in order and starts again.
    pub(crate) fn restart(&mut self) {
        self.store.take().unwrap().close().unwrap();
        self.start().unwrap();
    }

    /// The process dies and starts again.
    pub(crate) fn kill(&mut self) {
        self.sim.fs.kill();
        self.store = None;
        self.start().unwrap();
    }

    /// The power fails and comes back.
    pub(crate) fn crash(&mut self) {
        self.sim.fs.crash();
        self.store = None;
        self.start().unwrap();
    }

    pub(crate) fn append_options(&self) -> AppendOptions {
        AppendOptions { origin: AppendOrigin::Client, now: self.now() }
    }

    pub(crate) fn try_append(&self, value: &str, producer: ProducerStamp) -> Result<Appended, AppendError> {
        self.try_append_to(ID, value, producer)
    }

    pub(crate) fn try_append_to(
        &self,
        id: PartitionId,
        value: &str,
        producer: ProducerStamp,
    ) -> Result<Appended, AppendError> {
        let options = BatchOptions { compression: Compression::None, producer, ..BatchOptions::default() };
        let batch = batch_at(&[(self.now().0, value)], options);
        put(&self.partition(id), &batch, self.append_options())
    }

    /// Appends one record in a batch of its own.
    pub(crate) fn append(&self, value: &str) -> Offset {
        self.try_append(value, ProducerStamp::NONE).unwrap().base_offset
    }

    /// Appends records `from` to `to` - 1, each saying its own offset.
    pub(crate) fn append_numbers(&self, from: i64, to: i64) {
        for number in from..to {
            assert_eq!(self.append(&format!("record {number}")), Offset(number));
        }
    }

    /// All records from the log start on, as offset and value.
    pub(crate) fn records(&self) -> Result<Vec<(i64, String)>, LogError> {
        self.records_of(ID)
    }

    pub(crate) fn records_of(&self, id: PartitionId) -> Result<Vec<(i64, String)>, LogError> {
        let log = self.partition(id);
        let (mut from, end) = (log.log_start_offset()?, log.log_end_offset()?);
        let mut found = Vec::new();
        while from < end {
            let slice = match log.read(from, 300, end, true) {
                Err(riverrun_log::ReadError::Storage(error)) => return Err(error),
                slice => slice.unwrap(),
            };
            assert!(slice.next_offset > from, "reading gets on");
            for chunk in &slice.chunks {
                collect(&chunk.to_bytes().unwrap(), from, &mut found);
            }
            from = slice.next_offset;
        }
        Ok(found)
    }

    pub(crate) fn partition_dir(&self) -> PathBuf {
        self.log().path()
    }

    /// Names of the partition's files, in order.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = self.sim.fs.read_dir(&self.partition_dir()).unwrap();
        entries.iter().map(|entry| entry.name.to_str().unwrap().to_owned()).collect()
    }

    /// The paths of the partition's `.log` files, in order.
    pub(crate) fn log_paths(&self) -> Vec<PathBuf> {
        let dir = self.partition_dir();
        let paths = self.files().into_iter().map(|name| dir.join(name));
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "log")).collect()
    }

    /// Base offsets of the partition's segments but the first: the ends of those before them.
    pub(crate) fn inner_bases(&self) -> Vec<i64> {
        let paths = self.log_paths();
        paths
            .iter()
            .skip(1)
            .map(|path| path.file_stem().unwrap().to_str().unwrap().parse().unwrap())
            .collect()
    }

    /// Offsets of the partition's state files, in order.
    pub(crate) fn states(&self) -> Vec<i64> {
        let names = self.files();
        names.iter().filter_map(|name| name.strip_suffix(".state")?.parse().ok()).collect()
    }

    pub(crate) fn content(&self, path: &Path) -> Vec<u8> {
        read_whole(&*self.sim.fs, path, 1 << 30).unwrap()
    }

    /// Replaces a file's bytes, synced.
    pub(crate) fn put_content(&self, path: &Path, bytes: &[u8]) {
        let file = self.sim.fs.open(path, OpenMode::CreateOrOpen).unwrap();
        file.set_len(0).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file.sync_all().unwrap();
        self.sim.fs.sync_dir(path.parent().unwrap()).unwrap();
    }
}

fn collect(bytes: &[u8], from: Offset, found: &mut Vec<(i64, String)>) {
    for batch in Batches::new(bytes) {
        let batch = batch.unwrap().verify().unwrap();
        for record in &batch.records().unwrap() {
            let record = record.unwrap();
            if record.offset >= from {
                let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
                found.push((record.offset.0, value));
            }
        }
    }
}

/// The log's records after [`Machine::append_numbers`].
pub(crate) fn numbers(from: i64, to: i64) -> Vec<(i64, String)> {
    (from..to).map(|number| (number, format!("record {number}"))).collect()
}
