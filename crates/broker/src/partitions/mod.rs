//! Live partitions: a log, its high watermark, and the fetches that wait for it.
//!
//! A partition is opened when it is first touched and closed when it has been idle; one that nobody touches
//! costs nothing here. Readers see nothing above the high watermark, which follows from the durability level and
//! the log's watermarks by [`visible_offset`].

mod waiters;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::BytesMut;
use parking_lot::RwLock;
use riverrun_log::config::LogConfig;
use riverrun_log::{AppendError, AppendOptions, Appended, LogError, LogStore, PartitionLog};
use riverrun_types::{DurabilityLevel, LeaderEpoch, Offset, PartitionId, Watermarks, visible_offset};

pub(crate) use waiters::Waiter;
use waiters::Waiters;

/// One partition that is in use.
///
/// Invariants: `high_watermark` never goes back and never passes the log end.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) id: PartitionId,
    pub(crate) log: Arc<PartitionLog>,
    level: DurabilityLevel,
    high_watermark: AtomicI64,
    waiters: Waiters,
}

impl Partition {
    fn new(id: PartitionId, log: Arc<PartitionLog>, level: DurabilityLevel) -> Result<Self, LogError> {
        log.ensure_open()?;
        let high_watermark = AtomicI64::new(visible_offset(level, log.watermarks()).0);
        Ok(Self { id, log, level, high_watermark, waiters: Waiters::default() })
    }

    /// Appends whole batches, which are patched in place, and makes visible what the level allows.
    pub(crate) fn append(&self, batches: &mut [u8], options: AppendOptions) -> Result<Appended, AppendError> {
        let appended = self.log.append(BytesMut::from(&*batches), options)?;
        self.log.write_staged()?;
        self.advance(appended.last_offset.next());
        Ok(appended)
    }

    /// The end of what readers may see.
    pub(crate) fn high_watermark(&self) -> Offset {
        Offset(self.high_watermark.load(Ordering::Acquire))
    }

    /// What an acked record of this partition survives.
    pub(crate) fn level(&self) -> DurabilityLevel {
        self.level
    }

    /// Makes visible what the level allows now that the log is appended up to `appended`. An append by itself
    /// syncs nothing.
    fn advance(&self, appended: Offset) {
        let marks = Watermarks { appended, synced: self.high_watermark() };
        let visible = visible_offset(self.level, marks);
        let before = self.high_watermark.fetch_max(visible.0, Ordering::AcqRel);
        if before < visible.0 {
            self.waiters.wake();
        }
    }

    /// Has `waiter` woken at the next advance of the high watermark.
    pub(crate) fn enroll(&self, waiter: &Arc<Waiter>) {
        self.waiters.enroll(waiter);
    }

    /// Wakes whoever waits, because the partition is going away.
    fn abandon(&self) {
        self.waiters.wake();
    }
}

/// What is needed to open a partition that is not open yet.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    pub(crate) id: PartitionId,
    /// Index of its log dir.
    pub(crate) dir: usize,
    pub(crate) config: Arc<LogConfig>,
    pub(crate) level: DurabilityLevel,
}

/// The partitions in use.
///
/// Invariants: at most one [`Partition`] lives for a [`PartitionId`], so that there is one high watermark.
#[derive(Debug)]
pub(crate) struct Partitions {
    logs: Arc<LogStore>,
    /// This node's start count: the leader epoch of all that is appended now.
    epoch: LeaderEpoch,
    open: RwLock<HashMap<PartitionId, Arc<Partition>>>,
}

impl Partitions {
    pub(crate) fn new(logs: Arc<LogStore>, epoch: LeaderEpoch) -> Self {
        Self { logs, epoch, open: RwLock::default() }
    }

    /// The leader epoch of all that is appended now.
    pub(crate) fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// The partition if it is in use already.
    pub(crate) fn get(&self, id: PartitionId) -> Option<Arc<Partition>> {
        self.open.read().get(&id).cloned()
    }

    /// The partition, opened (and recovered, if it must be) at the first touch. Two callers at once share one
    /// recovery, which is the log's business, and one of the two partitions made here, before either is used.
    pub(crate) fn open(&self, placement: &Placement) -> Result<Arc<Partition>, LogError> {
        if let Some(partition) = self.get(placement.id) {
            return Ok(partition);
        }
        let config = Arc::clone(&placement.config);
        let log = self.logs.partition(placement.id, placement.dir, config, self.epoch)?;
        let opened = Arc::new(self.recover(placement, log)?);
        Ok(Arc::clone(self.open.write().entry(placement.id).or_insert(opened)))
    }

    fn recover(&self, placement: &Placement, log: Arc<PartitionLog>) -> Result<Partition, LogError> {
        let open = || Partition::new(placement.id, log, placement.level);
        // After a clean stop opening is a matter of microseconds; otherwise a scan may be needed, and other
        // connections' work moves to another thread meanwhile.
        if self.logs.was_clean() { open() } else { tokio::task::block_in_place(open) }
    }

    /// All partitions in use now.
    pub(crate) fn all(&self) -> Vec<Arc<Partition>> {
        self.open.read().values().cloned().collect()
    }

    /// Forgets a partition whose topic was deleted; what waits for it is woken and finds it gone.
    pub(crate) fn remove(&self, id: PartitionId) {
        if let Some(partition) = self.open.write().remove(&id) {
            partition.abandon();
        }
    }

    /// Forgets those that only this table holds; the log store closes their files when it finds them idle.
    pub(crate) fn release_unused(&self) {
        self.open.write().retain(|_, partition| Arc::strong_count(partition) > 1 || partition.waiters.any());
    }
}
