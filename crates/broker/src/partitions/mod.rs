//! Live partitions: a log, its high watermark, the fetches that wait for it, and the acks that wait for durability.
//!
//! A partition is opened when it is first touched and closed when it has been idle; one that nobody touches
//! costs nothing here. Readers see nothing above the high watermark, and nobody is acked above the ack offset; both
//! follow from the level that the log has reached and its watermarks, by [`visible_offset`] and [`ack_offset`].

mod acks;
mod id_hasher;
mod waiters;

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};

use bytes::BytesMut;
use parking_lot::RwLock;
use riverrun_env::prefetch_arc;
use riverrun_log::config::LogConfig;
use riverrun_log::{AppendError, AppendOptions, Appended, LogError, LogObserver, LogStore, PartitionLog};
use riverrun_types::{
    Acks, DurabilityLevel, LeaderEpoch, Offset, PartitionId, TopicId, ack_offset, visible_offset,
};

use acks::{AckQueue, Decision};
pub(crate) use acks::{AckWaiter, Acknowledge, NotDurable};
use id_hasher::IdHasher;
pub(crate) use waiters::{Waiter, Waiters};

/// How far ahead partitions are prefetched: far enough for the memory, and not farther than the cache reaches.
const PREFETCHED_AHEAD: usize = 6;

/// One partition that is in use.
///
/// Invariants: `high_watermark` never goes back and never passes the log end. The log tells this partition of every move
/// of its watermarks.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) id: PartitionId,
    pub(crate) log: Arc<PartitionLog>,
    high_watermark: AtomicI64,
    waiters: Waiters,
    acks: AckQueue,
}

impl Partition {
    fn new(id: PartitionId, log: Arc<PartitionLog>) -> Result<Self, LogError> {
        log.ensure_open()?;
        let high_watermark = AtomicI64::new(visible_offset(log.level_reached(), log.watermarks()).0);
        Ok(Self { id, log, high_watermark, waiters: Waiters::default(), acks: AckQueue::default() })
    }

    /// Batches of these partitions come soon, in this order: what they need of one of the next is brought near, so that
    /// nobody waits for each. To be called for each.
    pub(crate) fn prefetch_next<'p>(coming: impl Fn(usize) -> Option<&'p Self>) {
        if let Some(partition) = coming(2 * PREFETCHED_AHEAD) {
            partition.log.prefetch();
        }
        if let Some(partition) = coming(PREFETCHED_AHEAD) {
            partition.log.prefetch_appender();
        }
    }

    /// Gives whole batches their place in the log. They are neither written nor acked by that: [`Self::write_staged`]
    /// comes next, and [`Self::outcome`] tells how they stand.
    pub(crate) fn append(&self, batches: BytesMut, options: AppendOptions) -> Result<Appended, AppendError> {
        self.log.append(batches, options)
    }

    /// Writes what is staged, if writing it is not the journal's work.
    pub(crate) fn write_staged(&self) -> Result<(), LogError> {
        self.log.write_staged()
    }

    /// How a staged batch stands; `None`: that is not decided yet.
    pub(crate) fn outcome(&self, staged: Appended, acks: Acks) -> Option<Result<(), NotDurable>> {
        self.judge()(staged, acks)
    }

    /// Has `target` told under `ticket` when it is decided what comes of a staged batch; that may be at once.
    pub(crate) fn await_ack(&self, staged: Appended, acks: Acks, ticket: u64, target: Arc<dyn Acknowledge>) {
        self.acks.push(staged, acks, ticket, target);
        // Whatever is not decided by now meets it in the queue when it is.
        match self.judge()(staged, acks) {
            None => {}
            Some(Ok(())) => self.acks.decide(self.judge()),
            Some(Err(NotDurable)) => self.acks.decide_all(self.judge()),
        }
    }

    /// Has `waiter` wait for one batch more.
    pub(crate) fn expect_ack(&self, staged: Appended, acks: Acks, ticket: u64, waiter: &Arc<AckWaiter>) {
        waiter.expect_one();
        self.await_ack(staged, acks, ticket, Arc::clone(waiter) as _);
    }

    /// The end of what readers may see.
    pub(crate) fn high_watermark(&self) -> Offset {
        Offset(self.high_watermark.load(Ordering::Acquire))
    }

    /// What an acked record of this partition survives now: the level before the one that is wanted, until that is
    /// reached.
    pub(crate) fn level(&self) -> DurabilityLevel {
        self.log.level_reached()
    }

    /// What is known now of staged batches.
    fn judge(&self) -> impl Fn(Appended, Acks) -> Decision + use<'_> {
        // The watermarks first: a level that is reached after they were read holds for them, too.
        let marks = self.log.watermarks();
        let level = self.log.level_reached();
        move |staged, acks| {
            if self.log.is_lost(&staged) {
                return Some(Err(NotDurable));
            }
            (ack_offset(level, acks, marks) >= staged.last_offset.next()).then_some(Ok(()))
        }
    }

    /// Has `waiter` woken at the next advance of the high watermark.
    pub(crate) fn enroll(&self, waiter: &Arc<Waiter>) {
        self.waiters.enroll(waiter);
    }

    /// Wakes whoever waits, because the partition is going away.
    fn abandon(&self) {
        self.waiters.wake();
        self.acks.decide_all(|_, _| Some(Err(NotDurable)));
    }

    /// Whether somebody waits for something to happen here.
    fn is_awaited(&self) -> bool {
        self.waiters.any() || self.acks.any()
    }
}

impl LogObserver for Partition {
    fn advanced(&self) {
        let marks = self.log.watermarks();
        let visible = visible_offset(self.log.level_reached(), marks);
        // Visible before it is acked, so that a producer reads what it was told is there.
        if self.high_watermark.fetch_max(visible.0, Ordering::AcqRel) < visible.0 {
            self.waiters.wake();
        }
        self.acks.decide(self.judge());
    }

    fn failed(&self) {
        self.acks.decide_all(self.judge());
    }
}

/// What is needed to open a partition that is not open yet.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    pub(crate) id: PartitionId,
    /// Index of its log dir.
    pub(crate) dir: usize,
    pub(crate) config: Arc<LogConfig>,
}

/// The partitions in use.
///
/// Invariants: at most one [`Partition`] lives for a [`PartitionId`], so that there is one high watermark.
#[derive(Debug)]
pub(crate) struct Partitions {
    logs: Arc<LogStore>,
    /// This node's start count: the leader epoch of all that is appended now.
    epoch: LeaderEpoch,
    open: RwLock<HashMap<PartitionId, Arc<Partition>, BuildHasherDefault<IdHasher>>>,
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

    /// Has brought near what finds partitions of a topic and what they begin with.
    pub(crate) fn prefetch(&self, topic: TopicId, indexes: impl Iterator<Item = i32>) {
        let open = self.open.read();
        for index in indexes {
            if let Some(partition) = open.get(&PartitionId { topic, index }) {
                prefetch_arc(partition);
            }
        }
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
        let partition = Arc::clone(self.open.write().entry(placement.id).or_insert(opened));
        let observer: Weak<Partition> = Arc::downgrade(&partition);
        partition.log.observe(observer);
        // What moved before the log knew whom to tell.
        partition.advanced();
        Ok(partition)
    }

    fn recover(&self, placement: &Placement, log: Arc<PartitionLog>) -> Result<Partition, LogError> {
        let open = || Partition::new(placement.id, log);
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
        self.open.write().retain(|_, partition| Arc::strong_count(partition) > 1 || partition.is_awaited());
    }
}
