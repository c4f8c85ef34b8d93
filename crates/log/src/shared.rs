//! The resources that all log dirs of a store share: journals, the write cache, the bound of open logs.
//!
//! Logs of partitions use the journals through [`StoreShared`], which knows neither logs nor log dirs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_env::{Alarm, Clock};
use riverrun_journal::{Journal, StreamId};
use riverrun_types::{DurabilityLevel, PartitionId, TopicId};

use crate::config::LogConfig;
use crate::error::LogError;
use crate::mode::Mode;
use crate::open_logs::OpenLogs;
use crate::options::StoreOptions;
use crate::pace::Pressure;
use crate::write_cache::WriteCache;

/// No point in time.
const NO_END: u64 = u64::MAX;

/// Shared by the store and its log dirs.
#[derive(Debug)]
pub(crate) struct StoreShared {
    pub(crate) open_logs: OpenLogs,
    pub(crate) journals: Vec<Arc<Journal>>,
    options: StoreOptions,
    pub(crate) cache: WriteCache,
    /// The options of the partition that was asked for last.
    config: Mutex<Arc<LogConfig>>,
    /// Set once all entries of the journals' earlier lives are in the logs.
    is_recovered: AtomicBool,
    is_closing: AtomicBool,
    /// The end of the time to settle, in nanoseconds of monotonic time; [`NO_END`] while no close is in haste.
    settle_until_ns: AtomicU64,
    /// Some partition has a damage marker: it is checked when it is opened.
    has_damage_markers: AtomicBool,
    /// These wake the settlers of the log dirs, once all of them are there.
    alarms: OnceLock<Vec<Arc<Alarm>>>,
    /// Number of partitions of each topic that have reached another level since the last [`Self::take_reached`].
    reached: Mutex<BTreeMap<(TopicId, DurabilityLevel), usize>>,
}

impl StoreShared {
    pub(crate) fn new(open_logs: OpenLogs, journals: Vec<Arc<Journal>>, options: StoreOptions) -> Self {
        Self {
            open_logs,
            is_recovered: AtomicBool::new(journals.is_empty()),
            journals,
            cache: WriteCache::new(options.write_cache_bytes),
            options,
            config: Mutex::default(),
            is_closing: AtomicBool::new(false),
            settle_until_ns: AtomicU64::new(NO_END),
            has_damage_markers: AtomicBool::new(false),
            alarms: OnceLock::new(),
            reached: Mutex::default(),
        }
    }

    /// The same options as `config`, in the same memory as those of the partition before, if they are equal: ten
    /// thousand partitions of a topic read theirs with each batch.
    pub(crate) fn share_config(&self, config: Arc<LogConfig>) -> Arc<LogConfig> {
        let mut last = self.config.lock();
        if **last != *config {
            *last = config;
        }
        Arc::clone(&last)
    }

    /// Client appends to a log dir are refused while less than so much space is left.
    pub(crate) fn reserve_bytes(&self) -> u64 {
        self.options.reserve_bytes
    }

    /// The reason why a log dir is away, if the caller has given one.
    pub(crate) fn absence_of(&self, dir: &Path) -> Option<&str> {
        self.options.absent_dirs.get(dir).map(String::as_str)
    }

    /// The journal of a partition, always the same one of those in use.
    pub(crate) fn journal_of(&self, id: PartitionId) -> Option<&Arc<Journal>> {
        self.journals.get(self.journal_index_of(id)?)
    }

    /// Its place among the journals.
    pub(crate) fn journal_index_of(&self, id: PartitionId) -> Option<usize> {
        // The same in every version of the program: unsettled entries are found where they were put.
        let hash = crc32c::crc32c(&stream_of(id).0) as usize;
        hash.checked_rem(self.journals.len())
    }

    /// The way of appends of a level.
    pub(crate) fn mode_of(&self, level: DurabilityLevel) -> Result<Mode, LogError> {
        let wants_journal =
            level.syncs_locally() || (self.options.journal_async_write && !self.journals.is_empty());
        match (wants_journal, self.journals.is_empty()) {
            (false, _) => Ok(Mode::Segment),
            (true, false) => Ok(Mode::Journal),
            (true, true) => Err(LogError::NoJournal { level }),
        }
    }

    /// Fails while the entries of the journals' earlier lives are not in the logs.
    pub(crate) fn check_recovered(&self) -> Result<(), LogError> {
        if self.is_recovered.load(Ordering::Acquire) { Ok(()) } else { Err(LogError::NotRecovered) }
    }

    pub(crate) fn set_recovered(&self) {
        self.is_recovered.store(true, Ordering::Release);
    }

    /// Fails once the store is being closed: nothing more is appended.
    pub(crate) fn check_appending(&self) -> Result<(), LogError> {
        if self.is_closing.load(Ordering::Acquire) { Err(LogError::Closed) } else { Ok(()) }
    }

    pub(crate) fn stop_appending(&self) {
        self.is_closing.store(true, Ordering::Release);
    }

    /// Entries that are not settled at monotonic time `until` are left to the journals.
    pub(crate) fn settle_until(&self, until: Duration) {
        self.settle_until_ns.store(u64::try_from(until.as_nanos()).unwrap_or(NO_END), Ordering::Release);
    }

    /// Whether the store is to be closed by a certain time.
    fn is_in_haste(&self) -> bool {
        self.settle_until_ns.load(Ordering::Acquire) != NO_END
    }

    /// Fails if there is no time left to settle.
    pub(crate) fn check_time(&self, clock: &dyn Clock) -> Result<(), LogError> {
        match self.settle_until_ns.load(Ordering::Acquire) {
            NO_END => Ok(()),
            until if clock.monotonic() < Duration::from_nanos(until) => Ok(()),
            _ => Err(LogError::OutOfTime),
        }
    }

    pub(crate) fn note_damage_marker(&self) {
        self.has_damage_markers.store(true, Ordering::Relaxed);
    }

    /// Whether a damage marker was seen since the start.
    pub(crate) fn has_damage_markers(&self) -> bool {
        self.has_damage_markers.load(Ordering::Relaxed)
    }

    /// These wake the settlers of the log dirs.
    pub(crate) fn set_alarms(&self, alarms: Vec<Arc<Alarm>>) {
        self.alarms.get_or_init(|| alarms);
    }

    /// Wakes the settlers of all log dirs.
    pub(crate) fn raise_alarms(&self) {
        self.alarms.get().into_iter().flatten().for_each(|alarm| alarm.raise());
    }

    /// With so many bytes in tails a log dir is worth settling once the write cache is half full. All dirs with fewer
    /// have half of that together, so that one of them has enough then.
    pub(crate) fn worth_settling_bytes(&self) -> u64 {
        let dirs = self.alarms.get().map_or(1, Vec::len).max(1) as u64;
        self.cache.bytes_max() / 4 / dirs
    }

    /// A partition of this topic has reached another level.
    pub(crate) fn count_reached(&self, topic: TopicId, level: DurabilityLevel) {
        *self.reached.lock().entry((topic, level)).or_default() += 1;
    }

    pub(crate) fn take_reached(&self) -> BTreeMap<(TopicId, DurabilityLevel), usize> {
        std::mem::take(&mut self.reached.lock())
    }

    /// Whether some journal should be given files back, or has no room for more.
    pub(crate) fn is_journal_half_full(&self) -> bool {
        self.journals.iter().any(|journal| journal.wants_settling())
    }
}

impl Pressure for StoreShared {
    fn is_pressed(&self) -> bool {
        let is_near = |used: u64, max: u64| used >= max / 4 * 3;
        self.is_closing.load(Ordering::Acquire)
            || self.is_in_haste()
            || !self.is_recovered.load(Ordering::Acquire)
            || is_near(self.cache.bytes(), self.cache.bytes_max())
            || self
                .journals
                .iter()
                .any(|journal| is_near(journal.used_bytes(), journal.bytes_max()) || journal.is_out_of_room())
    }
}

/// The journal's name of a partition.
pub(crate) fn stream_of(id: PartitionId) -> StreamId {
    let mut stream = [0; 20];
    stream[..16].copy_from_slice(&id.topic.0);
    stream[16..].copy_from_slice(&id.index.to_be_bytes());
    StreamId(stream)
}

/// The partition with this name in the journal.
pub(crate) fn partition_of(stream: StreamId) -> PartitionId {
    let (topic, index) = stream.0.split_at(16);
    PartitionId {
        topic: TopicId(topic.try_into().expect("16 bytes")),
        index: i32::from_be_bytes(index.try_into().expect("4 bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_of_equal_options_look_at_the_same_memory() {
        let shared = StoreShared::new(OpenLogs::new(1, 1), Vec::new(), StoreOptions::default());
        let config = |segment_bytes| Arc::new(LogConfig { segment_bytes, ..LogConfig::default() });
        let first = shared.share_config(config(1000));
        assert!(Arc::ptr_eq(&first, &shared.share_config(config(1000))));
        let other = shared.share_config(config(2000));
        assert_eq!((first.segment_bytes, other.segment_bytes), (1000, 2000));
    }

    #[test]
    fn a_partition_is_found_again_by_its_stream() {
        for index in [0, 1, i32::MAX] {
            let id = PartitionId { topic: TopicId([7; 16]), index };
            assert_eq!(partition_of(stream_of(id)), id);
        }
    }
}
