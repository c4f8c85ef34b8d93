//! Live partitions: a log, its high watermark, the fetches that wait for it, and the acks that wait for durability.
//!
//! A partition is opened when it is first touched and closed when it has been idle; one that is not touched costs nothing
//! here. Readers see nothing above the high watermark, and no producer is acked above the ack offset. Both follow from the
//! log's watermarks: [`visible_offset`] by the level that the log has reached, [`ack_offset`] by the level that it promises,
//! which may still have to be reached.

mod acks;
mod id_hasher;
mod waiters;

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Weak};

use bytes::BytesMut;
use parking_lot::{Mutex, RwLock};
use riverrun_env::prefetch_arc;
#[cfg(test)]
use riverrun_log::config::LogConfig;
use riverrun_log::{AppendError, AppendOptions, Appended, LogError, LogObserver, LogStore, PartitionLog};
use riverrun_types::{
    Acks, DurabilityLevel, Offset, PartitionId, TopicId, Watermarks, ack_offset, visible_offset,
};

#[cfg(test)]
use riverrun_types::LeaderEpoch;

use acks::{AckQueue, Decision};
pub(crate) use acks::{AckWaiter, Acknowledge, NotDurable};
use id_hasher::IdHasher;
pub(crate) use waiters::{Waiter, Waiters};

use crate::aside::without_the_thread;

/// How far ahead partitions are prefetched: far enough for the memory, and not farther than the cache reaches.
const PREFETCHED_AHEAD: usize = 6;

/// The marks of a partition's other replicas: there are none.
const NO_OTHERS: [Watermarks; 0] = [];

/// One partition that is in use.
///
/// Invariants: `high_watermark` never goes back and never passes the log end. The log notifies this partition of every move
/// of its watermarks.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) id: PartitionId,
    pub(crate) log: Arc<PartitionLog>,
    high_watermark: AtomicI64,
    /// It is unknown whether the topic still exists: nothing more is taken, and nothing acked.
    is_withdrawn: AtomicBool,
    waiters: Waiters,
    acks: AckQueue,
}

impl Partition {
    fn new(id: PartitionId, log: Arc<PartitionLog>) -> Result<Self, LogError> {
        log.ensure_open()?;
        let high_watermark =
            AtomicI64::new(visible_offset(log.level_reached(), log.watermarks(), &NO_OTHERS).0);
        let (waiters, acks) = (Waiters::default(), AckQueue::default());
        Ok(Self { id, log, high_watermark, is_withdrawn: AtomicBool::new(false), waiters, acks })
    }

    /// Brings into the cache what the next batches' partitions need, so that no batch waits for it. `coming` tells the
    /// partitions of the coming batches, in this order. To be called for each batch.
    pub(crate) fn prefetch_next<'p>(coming: impl Fn(usize) -> Option<&'p Self>) {
        if let Some(partition) = coming(2 * PREFETCHED_AHEAD) {
            partition.log.prefetch();
        }
        if let Some(partition) = coming(PREFETCHED_AHEAD) {
            partition.log.prefetch_appender();
        }
    }

    /// Gives whole batches their place in the log. That neither writes nor acks them: [`Self::write_staged`] comes next, and
    /// [`Self::outcome`] tells what became of them.
    pub(crate) fn append(&self, batches: BytesMut, options: AppendOptions) -> Result<Appended, AppendError> {
        if self.is_withdrawn() {
            return Err(AppendError::Storage(LogError::Closed));
        }
        self.log.append(batches, options)
    }

    /// Writes staged records that the journal does not write, or leaves them to the log dir's writer. Once they are in the
    /// log, [`Self::outcome`] tells.
    pub(crate) fn write_staged(&self) -> Result<(), LogError> {
        self.log.leave_staged()
    }

    /// As [`Self::write_staged`], for a caller that holds a lock which others wait for: where the log dir has a writer,
    /// that one writes.
    pub(crate) fn leave_to_writer(&self) -> Result<(), LogError> {
        self.log.leave_to_writer()
    }

    /// The outcome of a staged batch; `None`: it is not decided yet.
    pub(crate) fn outcome(&self, staged: Appended, acks: Acks) -> Option<Result<(), NotDurable>> {
        self.judge()(staged, acks)
    }

    /// Calls `target` with `ticket` once the outcome of a staged batch is decided; that may be at once. A target that is
    /// dropped before is not called.
    #[expect(clippy::needless_pass_by_value, reason = "callers hand in a clone of what they share")]
    pub(crate) fn await_ack(&self, staged: Appended, acks: Acks, ticket: u64, target: Arc<dyn Acknowledge>) {
        self.acks.push(staged, acks, ticket, Arc::downgrade(&target));
        // An outcome that is decided after this call of `judge` finds the entry in the queue.
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

    /// How many acks wait to be decided.
    #[cfg(test)]
    pub(crate) fn waiting_acks(&self) -> usize {
        self.acks.len()
    }

    /// The end offset of the records that readers may see.
    pub(crate) fn high_watermark(&self) -> Offset {
        Offset(self.high_watermark.load(Ordering::Acquire))
    }

    /// Decides staged batches by the watermarks and the level of now.
    fn judge(&self) -> impl Fn(Appended, Acks) -> Decision + use<'_> {
        // The watermarks first: a level that is reached after they were read holds for them, too.
        let marks = self.log.watermarks();
        let level = self.log.level_promised();
        move |staged, acks| {
            if self.is_withdrawn() || self.log.is_lost(&staged) {
                return Some(Err(NotDurable));
            }
            (ack_offset(level, acks, marks, &NO_OTHERS) >= staged.last_offset.next()).then_some(Ok(()))
        }
    }

    /// Has `waiter` woken at the next advance of the high watermark.
    pub(crate) fn enroll(&self, waiter: &Arc<Waiter>) {
        self.waiters.enroll(waiter);
    }

    /// Wakes all waiting fetches and fails all waiting acks, because the partition is going away.
    fn abandon(&self) {
        self.waiters.wake();
        self.acks.decide_all(|_, _| Some(Err(NotDurable)));
    }

    fn is_withdrawn(&self) -> bool {
        // WITHDRAWN: read.
        self.is_withdrawn.load(Ordering::Acquire)
    }

    /// Nothing is acked when this returns, nor later.
    fn withdraw(&self) {
        // WITHDRAWN: published, before the lock of the acks is taken under which they are judged.
        self.is_withdrawn.store(true, Ordering::Release);
        self.acks.decide_all(self.judge());
    }

    /// Whether a fetch or an ack waits here.
    fn is_awaited(&self) -> bool {
        self.waiters.any() || self.acks.any()
    }
}

impl LogObserver for Partition {
    fn advanced(&self) {
        let marks = self.log.watermarks();
        let visible = visible_offset(self.log.level_reached(), marks, &NO_OTHERS);
        // Visible before it is acked, so that a producer can read its record once it has the ack.
        if self.high_watermark.fetch_max(visible.0, Ordering::AcqRel) < visible.0 {
            self.waiters.wake();
        }
        self.acks.decide(self.judge());
    }

    fn failed(&self) {
        self.acks.decide_all(self.judge());
    }
}

/// The facts that open a partition which is not open yet.
#[cfg(test)]
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    pub(crate) id: PartitionId,
    /// Index of its log dir.
    pub(crate) dir: usize,
    pub(crate) config: Arc<LogConfig>,
    /// The leader epoch of all that is appended now.
    pub(crate) epoch: LeaderEpoch,
}

/// A topic's durability at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Durability {
    /// The level that its options ask for.
    pub(crate) wanted: DurabilityLevel,
    /// The level that acked records have now. A change of level is reached partition by partition; while one of them is not
    /// there yet, this is the level that it still has.
    pub(crate) reached: DurabilityLevel,
    /// Records of all partitions that are appended and not synced yet.
    pub(crate) unsynced_records: i64,
}

/// The partitions in use.
///
/// Invariants: at most one [`Partition`] lives for a [`PartitionId`], so that there is one high watermark. All partitions in
/// use of `withdrawn` topics are withdrawn, and no other one of them comes into use.
#[derive(Debug)]
pub(crate) struct Partitions {
    logs: Arc<LogStore>,
    open: RwLock<HashMap<PartitionId, Arc<Partition>, BuildHasherDefault<IdHasher>>>,
    /// Read and extended only under the lock of `open`.
    withdrawn: Mutex<BTreeSet<TopicId>>,
}

impl Partitions {
    pub(crate) fn new(logs: Arc<LogStore>) -> Self {
        Self { logs, open: RwLock::default(), withdrawn: Mutex::default() }
    }

    /// The partition if it is in use already.
    pub(crate) fn get(&self, id: PartitionId) -> Option<Arc<Partition>> {
        self.open.read().get(&id).cloned()
    }

    /// Brings partitions of a topic into the cache: their entries in the table, and their beginnings.
    pub(crate) fn prefetch(&self, topic: TopicId, indexes: impl Iterator<Item = i32>) {
        let open = self.open.read();
        for index in indexes {
            if let Some(partition) = open.get(&PartitionId { topic, index }) {
                prefetch_arc(partition);
            }
        }
    }

    /// The partition, opened (and recovered, if it must be) at the first touch. Two callers at once share one recovery, which
    /// is the log's, and one of the two partitions made here, before either is used.
    ///
    /// `find` gives the log its options of now: the caller's may be older than those that the log has got meanwhile.
    pub(crate) fn open_in(
        &self,
        id: PartitionId,
        dir: usize,
        find: impl FnOnce(&LogStore) -> Result<Arc<PartitionLog>, LogError>,
    ) -> Result<Arc<Partition>, LogError> {
        if let Some(partition) = self.get(id) {
            return Ok(partition);
        }
        let opened = Arc::new(self.recover(id, dir, find)?);
        let mut open = self.open.write();
        if self.withdrawn.lock().contains(&id.topic) {
            return Err(LogError::Closed);
        }
        let partition = Arc::clone(open.entry(id).or_insert(opened));
        drop(open);
        let observer: Weak<Partition> = Arc::downgrade(&partition);
        partition.log.observe(observer);
        // Catches up with moves of the watermarks before the log had its observer.
        partition.advanced();
        Ok(partition)
    }

    /// The same with options that do not change.
    #[cfg(test)]
    pub(crate) fn open(&self, placement: &Placement) -> Result<Arc<Partition>, LogError> {
        let Placement { id, dir, ref config, epoch } = *placement;
        self.open_in(id, dir, |logs| logs.partition(id, dir, Arc::clone(config), epoch))
    }

    fn recover(
        &self,
        id: PartitionId,
        dir: usize,
        find: impl FnOnce(&LogStore) -> Result<Arc<PartitionLog>, LogError>,
    ) -> Result<Partition, LogError> {
        let open = || Partition::new(id, find(&self.logs)?);
        // A new partition opens in microseconds. Where the disk may be waited for, other connections' work moves to another
        // thread meanwhile.
        let is_slow = self.logs.may_open_slowly(id, dir);
        if is_slow { without_the_thread(open) } else { open() }
    }

    /// All partitions in use now.
    pub(crate) fn all(&self) -> Vec<Arc<Partition>> {
        self.open.read().values().cloned().collect()
    }

    /// Forgets a partition whose topic was deleted. Fetches that wait for it are woken and find it gone.
    pub(crate) fn remove(&self, id: PartitionId) {
        if let Some(partition) = self.open.write().remove(&id) {
            partition.abandon();
        }
    }

    /// Takes and acks nothing more of topics that may be gone after the next start, which has to come soon.
    pub(crate) fn withdraw(&self, topics: &[TopicId]) {
        let open = self.open.write();
        self.withdrawn.lock().extend(topics);
        let withdrawn: Vec<_> =
            open.values().filter(|partition| topics.contains(&partition.id.topic)).cloned().collect();
        drop(open);
        for partition in withdrawn {
            partition.withdraw();
        }
    }

    /// Forgets partitions that only this table holds; the log store closes their files when it finds them idle.
    pub(crate) fn release_unused(&self) {
        self.open.write().retain(|_, partition| Arc::strong_count(partition) > 1 || partition.is_awaited());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    use riverrun_env::sim::SimEnv;
    use riverrun_log::StoreOptions;
    use riverrun_log::producer_state::AppendOrigin;
    use riverrun_types::TimestampMs;

    use super::*;
    use crate::testing::record;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn placement(index: i32) -> Placement {
        let id = PartitionId { topic: TopicId([1; 16]), index };
        Placement { id, dir: 0, config: Arc::default(), epoch: LeaderEpoch(0) }
    }

    /// A store that was stopped in order before, and has room for one open log.
    fn open_stopped(sim: &SimEnv) -> LogStore {
        let open = || {
            let options = StoreOptions { open_logs_max: 1, ..StoreOptions::default() };
            LogStore::open(&sim.env(), &["/logs".into()], options).unwrap()
        };
        open().close().unwrap();
        open()
    }

    /// Gives a record its place.
    fn append(partition: &Partition) -> Result<Appended, AppendError> {
        let options = AppendOptions { origin: AppendOrigin::Client, now: TimestampMs(0) };
        partition.append(record(TimestampMs(0), b"value"), options)
    }

    #[test]
    fn withdrawn_topic_acks_nothing() {
        let sim = SimEnv::new(1);
        let logs = LogStore::open(&sim.env(), &["/logs".into()], StoreOptions::default()).unwrap();
        let partitions = Partitions::new(Arc::new(logs));
        let other = TopicId([2; 16]);
        let kept = Placement { id: PartitionId { topic: other, index: 0 }, ..placement(0) };
        let (partition, kept) = (partitions.open(&placement(0)).unwrap(), partitions.open(&kept).unwrap());
        let waiter = Arc::new(AckWaiter::default());
        let staged = append(&partition).unwrap();
        partition.expect_ack(staged, Acks::All, 7, &waiter);
        partitions.withdraw(&[placement(0).id.topic]);
        assert!(waiter.has_failed(7), "it waits");
        // The staged batch is stored all the same.
        partition.write_staged().unwrap();
        partition.advanced();
        assert_eq!(partition.outcome(staged, Acks::Leader), Some(Err(NotDurable)));
        assert!(matches!(append(&partition), Err(AppendError::Storage(LogError::Closed))));
        drop(partition);
        partitions.release_unused();
        for index in [0, 1] {
            assert!(matches!(partitions.open(&placement(index)), Err(LogError::Closed)), "{index}");
        }
        let staged = append(&kept).unwrap();
        kept.write_staged().unwrap();
        assert_eq!(kept.outcome(staged, Acks::Leader), Some(Ok(())));
    }

    #[test]
    fn first_touch_of_a_log_holds_up_no_other_connection() {
        let sim = SimEnv::new(1);
        let start = || {
            let logs = LogStore::open(&sim.env(), &["/logs".into()], StoreOptions::default()).unwrap();
            Arc::new(Partitions::new(Arc::new(logs)))
        };
        let before = start();
        let partition = before.open(&placement(0)).unwrap();
        append(&partition).unwrap();
        partition.write_staged().unwrap();
        before.logs.close().unwrap();
        let partitions = start();
        let (tell, told) = sync_channel(1);
        let has_waited = Arc::new(AtomicBool::new(false));
        let notes = Arc::clone(&has_waited);
        sim.fs.during_next_read(move || {
            told.recv_timeout(PATIENCE).expect("the other connection waits");
            notes.store(true, Ordering::Release);
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        runtime.block_on(async move {
            let opening = tokio::spawn(async move { partitions.open(&placement(0)).unwrap().id });
            let other = tokio::spawn(async move { tell.send(()).unwrap() });
            assert_eq!(opening.await.unwrap(), placement(0).id);
            other.await.unwrap();
        });
        assert!(has_waited.load(Ordering::Acquire), "nothing was read");
    }

    #[test]
    fn closing_one_partition_for_another_holds_up_no_connection() {
        let sim = SimEnv::new(1);
        let partitions = Arc::new(Partitions::new(Arc::new(open_stopped(&sim))));
        let first = partitions.open(&placement(0)).unwrap();
        append(&first).unwrap();
        first.write_staged().unwrap();
        let (tell, told) = sync_channel(1);
        // The sync of the checkpoint without which the first one cannot be closed.
        sim.fs.during_next_sync(move || told.recv_timeout(PATIENCE).expect("the other connection waits"));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        runtime.block_on(async move {
            let opening = tokio::spawn(async move { partitions.open(&placement(1)).unwrap().id });
            let other = tokio::spawn(async move { tell.send(()).unwrap() });
            assert_eq!(opening.await.unwrap(), placement(1).id);
            other.await.unwrap();
        });
    }
}
