//! The consumer: reads assigned partitions, or those that it shares with a group, in order.
//!
//! Owns positions, fetches and commits. A position moves when [`Consumer::poll`] returns the records before it, and
//! only such positions are committed. Fetching continues while the application works: the next answer is in flight
//! while the last is being read. A task of its own keeps the group membership; its decisions take effect in `poll`.

mod assignment;
mod commits;
mod fetch;
mod group;
mod listener;
mod metrics;
mod options;
mod records;
mod session;
mod start;
mod subscription;
mod trouble;
mod validation;
mod work;

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use riverrun_protocol::ApiKey;
use riverrun_records::Record;
use riverrun_types::{ErrorKind, NodeId, Offset, TimestampMs};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use self::assignment::{Assignment, Positions};
use self::commits::Outcome;
pub use self::group::Assignor;
use self::group::{Departure, GroupEvent, Membership};
use self::listener::Listener;
pub use self::listener::{RebalanceListener, Revocation};
pub use self::metrics::ConsumerMetrics;
pub use self::options::{ConsumerOptions, GroupProtocol, OffsetReset, StartAt};
pub use self::records::ConsumerRecord;
use self::records::{Chunk, Sink, Visitor};
use self::session::Sessions;
use self::subscription::{Pattern, Subscription};
use self::trouble::Attempts;
pub use self::trouble::Trouble;
use self::work::{COMMIT_PAUSE_MIN, Work};
use crate::cluster::Cluster;
use crate::coordinator::{CommittedOffset, GroupCoordinator};
use crate::error::ClientError;
use crate::leaders::Patience;
use crate::list_offsets::{Findings, FoundOffset, OffsetSpec, list_offsets, list_offsets_within, offsets_of};
use crate::topic_partition::TopicPartition;

/// Longest time of [`Consumer::close`], as with Kafka's consumer.
const CLOSE_LIMIT: Duration = Duration::from_secs(30);

/// Number for the next consumer without a configured name.
static CONSUMERS: AtomicU64 = AtomicU64::new(1);

/// An answer that any task can await without the consumer.
pub type Answer<T> = BoxFuture<'static, Result<T, ClientError>>;

/// Reads topics.
///
/// A consumer that is not polled keeps its partitions until its group rebalances, and then has `rebalance_timeout` to
/// be polled again. Dropping it commits nothing and does not leave the group; use [`close`](Self::close).
///
/// ```no_run
/// use std::time::Duration;
///
/// use riverrun_client::{ClusterOptions, Consumer, ConsumerOptions, OffsetReset};
///
/// # async fn example() -> Result<(), riverrun_client::ClientError> {
/// let mut options = ConsumerOptions::new(ClusterOptions::new("localhost:9092"));
/// options.group = Some("readers".to_owned());
/// options.offset_reset = OffsetReset::Earliest;
/// let mut consumer = Consumer::new(options).await?;
/// consumer.subscribe(&["clicks"]).await?;
/// for record in consumer.poll(Duration::from_secs(1)).await? {
///     println!("{}-{} {}: {:?}", record.topic, record.partition, record.offset, record.value);
/// }
/// consumer.close().await
/// # }
/// ```
///
/// Invariants: `chunks` holds, for each partition, as many chunks of its current incarnation as its state counts;
/// `busy` holds the nodes with a fetch in `work`, and `asked_bytes` the sum of the bytes that these requested.
#[derive(Debug)]
pub struct Consumer {
    cluster: Arc<Cluster>,
    options: Arc<ConsumerOptions>,
    coordinator: Option<Arc<GroupCoordinator>>,
    assignment: Assignment,
    chunks: VecDeque<Chunk>,
    work: FuturesUnordered<Work>,
    busy: HashSet<NodeId>,
    /// Bytes that the fetches in `work` may return.
    asked_bytes: usize,
    /// The last node that was asked: the next one is asked first, so that none is always left without room.
    asked_last: Option<NodeId>,
    sessions: Sessions,
    /// Topics whose metadata is missing or proved stale.
    stale: BTreeSet<Arc<str>>,
    refreshing: bool,
    refresh_at: Option<Instant>,
    /// Attempts to refresh metadata.
    refreshes: Attempts,
    membership: Option<Membership>,
    /// The end of the last membership, if the coordinator may not have received it.
    departure: Option<Departure>,
    /// The error that ended the membership.
    failed: Option<ClientError>,
    /// An error that occurred after records which have to be returned first.
    deferred: Option<ClientError>,
    /// The last background commit.
    committing: Option<JoinHandle<()>>,
    /// Number of background commits in `work`.
    committing_count: usize,
    committed_at: Instant,
    /// Number of the last commit.
    commits_begun: u64,
    listener: Listener,
    counts: ConsumerMetrics,
}

impl Consumer {
    /// Connects to the cluster. Fails if the options contradict each other or no server can be reached.
    pub fn new(mut options: ConsumerOptions) -> BoxFuture<'static, Result<Self, ClientError>> {
        Box::pin(async move {
            options.check()?;
            options.name_client(|| CONSUMERS.fetch_add(1, Ordering::Relaxed));
            let options = Arc::new(options);
            let cluster = Cluster::connect(options.cluster.clone()).await?;
            let coordinator = options
                .group
                .clone()
                .map(|group| Arc::new(GroupCoordinator::new(Arc::clone(&cluster), group)));
            Ok(Self {
                cluster,
                options,
                coordinator,
                assignment: Assignment::default(),
                chunks: VecDeque::new(),
                work: FuturesUnordered::new(),
                busy: HashSet::new(),
                asked_bytes: 0,
                asked_last: None,
                sessions: Sessions::new(),
                stale: BTreeSet::new(),
                refreshing: false,
                refresh_at: None,
                refreshes: Attempts::default(),
                membership: None,
                departure: None,
                failed: None,
                deferred: None,
                committing: None,
                committing_count: 0,
                committed_at: Instant::now(),
                commits_begun: 0,
                listener: Listener::default(),
                counts: ConsumerMetrics::default(),
            })
        })
    }

    /// Reports assigned and revoked partitions to this listener from now on.
    pub fn set_listener(&mut self, listener: impl RebalanceListener + 'static) {
        self.listener.set(Box::new(listener));
    }

    /// Subscribes to these topics with the group, in place of the former subscription or assignment. Topics may be
    /// created later. Subscribing to the same topics again changes nothing.
    ///
    /// With no topic at all, the consumer leaves the group. That fails if the group cannot be told within
    /// `request.timeout.ms`: the group then keeps the member until its session times out, unless the same call or
    /// [`close`](Self::close) tells it, or the member returns with another subscription.
    pub fn subscribe<T: AsRef<str>>(&mut self, topics: &[T]) -> BoxFuture<'_, Result<(), ClientError>> {
        self.subscribe_topics(topics.iter().map(|topic| topic.as_ref().to_owned()).collect())
    }

    fn subscribe_topics(&mut self, topics: Vec<String>) -> BoxFuture<'_, Result<(), ClientError>> {
        Box::pin(async move {
            if topics.is_empty() && self.coordinator.is_some() {
                return self.unassign().await;
            }
            self.join(Subscription::Topics(topics)).await
        })
    }

    /// Subscribes to all topics whose whole name matches this regular expression, in place of the former subscription
    /// or assignment: existing topics and future ones. With KIP-848 the server finds them, if it can; otherwise this
    /// consumer does, every `metadata.max.age.ms`. The servers' internal topics are left out.
    ///
    /// The syntax is that of RE2, as on the server: no look-around and no back references.
    pub fn subscribe_pattern<'a>(&'a mut self, pattern: &'a str) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async move {
            let pattern = Pattern::new(pattern);
            if self.options.group_protocol == GroupProtocol::Classic {
                pattern.check()?;
            }
            self.join(Subscription::Pattern(pattern)).await
        })
    }

    async fn join(&mut self, subscription: Subscription) -> Result<(), ClientError> {
        let Some(coordinator) = self.coordinator.clone() else {
            return Err(ClientError::Invalid("a subscription needs a group".to_owned()));
        };
        match &self.membership {
            Some(membership) if self.failed.is_none() => membership.resubscribe(subscription),
            failed => {
                // A member that has failed returns as a new one.
                let is_to_leave = failed.is_some();
                let committed = self.stop_reading().await;
                let left = if is_to_leave { self.leave(Duration::MAX).await } else { Ok(()) };
                committed.and(left)?;
                let (options, unheard) = (Arc::clone(&self.options), self.departure.take());
                self.membership = Some(Membership::start(options, coordinator, subscription, unheard));
            }
        }
        Ok(())
    }

    /// Reads exactly these partitions, without a group assignment. An offset or a time below 0 is refused.
    pub fn assign(
        &mut self,
        partitions: Vec<(TopicPartition, StartAt)>,
    ) -> BoxFuture<'_, Result<(), ClientError>> {
        Box::pin(async move {
            let of_group = |(_, start): &(TopicPartition, StartAt)| *start == StartAt::Committed;
            if self.coordinator.is_none() && partitions.iter().any(of_group) {
                return Err(ClientError::Invalid("committed offsets need a group".to_owned()));
            }
            partitions.iter().try_for_each(|(partition, start)| check_start(partition, *start))?;
            self.unassign().await?;
            for (partition, start) in partitions {
                self.assignment.put(partition, start);
            }
            Ok(())
        })
    }

    /// With auto commit, commits; then leaves the group, and forgets every partition.
    async fn unassign(&mut self) -> Result<(), ClientError> {
        let committed = self.stop_reading().await;
        committed.and(self.leave(Duration::MAX).await)
    }

    /// Tells the group, if necessary, that a membership has ended, within this time. Keeps a message that may get
    /// through later, to repeat it.
    async fn leave(&mut self, limit: Duration) -> Result<(), ClientError> {
        let Some(departure) = &self.departure else { return Ok(()) };
        let left = departure.leave(limit).await;
        if left.as_ref().err().is_none_or(|error| error.kind() != ErrorKind::Retry) {
            self.departure = None;
        }
        left
    }

    /// With auto commit, commits; then ends the membership, without telling the group yet, and forgets every
    /// partition.
    async fn stop_reading(&mut self) -> Result<(), ClientError> {
        let committed = self.commit_last().await;
        self.end_membership().await;
        committed
    }

    async fn commit_last(&mut self) -> Result<(), ClientError> {
        self.take_events();
        let partitions = self.assignment();
        let positions = match &self.membership {
            Some(_) if !partitions.is_empty() => self.give_back(partitions),
            None if self.commits_by_itself() => self.assignment.uncommitted(),
            _ => Positions::new(),
        };
        let committed = if self.coordinator.is_some() {
            // Also without positions: the commit of revoked partitions may still be in flight.
            self.commit_positions(positions).await.into_done().1
        } else {
            Ok(())
        };
        self.assignment.clear();
        self.chunks.clear();
        (self.failed, self.deferred) = (None, None);
        committed
    }

    async fn end_membership(&mut self) {
        if let Some(membership) = self.membership.take() {
            self.departure = Some(membership.end().await);
        }
    }

    fn commits_by_itself(&self) -> bool {
        self.commit_interval().is_some()
    }

    /// Returns records as soon as there are some, or none after `timeout`. The records of one partition come in
    /// order. Errors that may pass are not reported; [`trouble`](Self::trouble) shows them. Dropping the future while
    /// it waits loses nothing.
    pub fn poll(&mut self, timeout: Duration) -> BoxFuture<'_, Result<Vec<ConsumerRecord>, ClientError>> {
        Box::pin(async move {
            let mut records = Vec::new();
            self.poll_into(timeout, &mut records).await?;
            self.counts.records += records.len() as u64;
            Ok(records)
        })
    }

    /// Passes the next records to `each`, borrowed from the fetched bytes, and returns their number; 0 after
    /// `timeout`. Otherwise as [`poll`](Self::poll), without the cost of owned records.
    // Not boxed: it is compiled with `each`, which is called for every record. The futures that it awaits are boxed.
    pub async fn poll_each(
        &mut self,
        timeout: Duration,
        each: impl FnMut(&TopicPartition, &Record<'_>),
    ) -> Result<usize, ClientError> {
        let mut visitor = Visitor { each, seen: 0 };
        let polled = self.poll_into(timeout, &mut visitor).await;
        self.counts.records += visitor.seen as u64;
        polled.map(|()| visitor.seen)
    }

    async fn poll_into(&mut self, timeout: Duration, sink: &mut impl Sink) -> Result<(), ClientError> {
        // A time beyond the clock's range means no limit.
        let deadline = Instant::now().checked_add(timeout);
        let _polling = self.membership.as_ref().map(Membership::polling);
        self.take_events();
        let mut commit_pause = Duration::ZERO;
        self.commit_when_due(commit_pause);
        loop {
            self.take_finished()?;
            // The records of this poll are not processed yet: the next poll commits them.
            self.commit_when_due(commit_pause);
            commit_pause = COMMIT_PAUSE_MIN;
            self.take_records(sink)?;
            let now = Instant::now();
            self.start_work(now);
            if sink.len() > 0 {
                return Ok(());
            }
            if deadline.is_some_and(|at| now >= at) {
                // A loop of polls with no timeout would otherwise keep the tasks that fetch the records from ever
                // running.
                tokio::task::yield_now().await;
                return Ok(());
            }
            self.wait(now, deadline).await?;
        }
    }

    /// Waits for the next event that concerns a poll, and handles it. Boxed, so that it is not compiled again with
    /// the polls of each kind of sink.
    fn wait(&mut self, now: Instant, deadline: Option<Instant>) -> BoxFuture<'_, Result<(), ClientError>> {
        Box::pin(async move {
            let retries = self.assignment.next_retry(now).into_iter();
            let timers = retries.chain(self.refresh_at.filter(|at| *at > now && !self.stale.is_empty()));
            let wake = timers.chain(self.next_commit(now)).chain(deadline).min();
            let timer = async {
                match wake {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let group = async {
                match &mut self.membership {
                    Some(membership) => membership.next_event().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(done) = self.work.next(), if !self.work.is_empty() => self.handle(done)?,
                event = group => self.handle_group(event),
                () = timer => {}
            }
            Ok(())
        })
    }

    /// The longest-lasting problem that the consumer retries by itself, as known to the last poll. Retries have no
    /// time limit: an application that needs one checks this between two polls.
    pub fn trouble(&self) -> Option<Trouble> {
        let membership = self.membership.as_ref().and_then(Membership::trouble);
        let partitions = self.assignment.iter().filter_map(|(_, state)| state.attempts.trouble());
        let known = Trouble::older(membership, self.refreshes.trouble());
        partitions.fold(known, |oldest, trouble| Trouble::older(oldest, Some(trouble)))
    }

    /// All problems that the consumer retries by itself, as known to the last poll: with a partition, a problem that
    /// keeps it from being read; without one, a problem that affects all partitions.
    pub fn troubles(&self) -> Vec<(Option<TopicPartition>, Trouble)> {
        let membership = self.membership.as_ref().and_then(Membership::trouble);
        let of_all = [membership, self.refreshes.trouble()].into_iter().flatten();
        let of_one = self
            .assignment
            .iter()
            .filter_map(|(partition, state)| Some((Some(partition.clone()), state.attempts.trouble()?)));
        of_all.map(|trouble| (None, trouble)).chain(of_one).collect()
    }

    /// Handles the decisions of the group.
    fn take_events(&mut self) {
        while let Some(event) = self.membership.as_mut().and_then(Membership::try_event) {
            self.handle_group(event);
        }
    }

    /// Handles everything that has finished since the last call.
    fn take_finished(&mut self) -> Result<(), ClientError> {
        self.take_events();
        while let Some(Some(done)) = self.work.next().now_or_never() {
            self.handle(done)?;
        }
        match self.failed.clone().or_else(|| self.deferred.take()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn handle_group(&mut self, event: GroupEvent) {
        match event {
            GroupEvent::Assign(partitions) => {
                for (partition, start) in self.listener.assigned(partitions) {
                    self.assignment.put(partition, start);
                }
            }
            // The membership task has stopped waiting: other members have read on from the committed offsets.
            GroupEvent::Revoke { partitions, done } if done.is_closed() => self.lose(&partitions),
            GroupEvent::Revoke { partitions, done } => {
                let positions = self.give_back(partitions);
                // The group waits for `done`, and so until the commit has ended, with or without success.
                if positions.is_empty() {
                    self.confirm_after_commits(done);
                } else {
                    self.commit_in_background(positions, Some(done));
                }
            }
            GroupEvent::Lost { .. } => self.lose(&self.assignment()),
            GroupEvent::Failed(error) => {
                self.lose(&self.assignment());
                self.failed = Some(error);
            }
        }
    }

    /// Stops reading partitions that the group revokes. Returns the positions to commit before it gets them.
    fn give_back(&mut self, partitions: Vec<TopicPartition>) -> Positions {
        let mut revocation = Revocation { partitions, ..Revocation::default() };
        revocation.partitions.sort_unstable();
        let of_these = |positions: &mut Positions| {
            positions.retain(|partition, _| revocation.partitions.binary_search(partition).is_ok());
        };
        let mut positions = self.assignment.positions();
        of_these(&mut positions);
        let mut commit =
            if self.commits_by_itself() { self.assignment.uncommitted() } else { Positions::new() };
        of_these(&mut commit);
        (revocation.positions, revocation.commit) = (positions, commit);
        for partition in &revocation.partitions {
            self.assignment.remove(partition);
        }
        self.listener.revoked(revocation)
    }

    /// Stops reading partitions that other members already have.
    fn lose(&mut self, partitions: &[TopicPartition]) {
        for partition in partitions {
            self.assignment.remove(partition);
        }
        self.listener.lost(partitions);
    }

    /// Takes records of the chunks in memory, in whole batches, until there are enough.
    fn take_records(&mut self, sink: &mut impl Sink) -> Result<(), ClientError> {
        let mut at = 0;
        while sink.len() < self.options.poll_records {
            let Some(chunk) = self.chunks.get_mut(at) else { break };
            let state = self.assignment.current(chunk.incarnation);
            let Some((state, mut position)) = state.and_then(|state| state.position.map(|at| (state, at)))
            else {
                self.chunks.remove(at);
                continue;
            };
            if state.paused {
                at += 1;
                continue;
            }
            match chunk.next_batch(&mut position, sink) {
                Ok(Some(epoch)) => {
                    state.position = Some(position);
                    state.position_epoch = Some(epoch).filter(|epoch| epoch.0 >= 0);
                }
                Ok(None) => {
                    state.chunks -= 1;
                    self.chunks.remove(at);
                }
                Err(error) => {
                    let (partition, error) = (chunk.partition.clone(), chunk.unreadable(position, error));
                    self.assignment.restart(&partition, StartAt::Offset(position));
                    if sink.len() == 0 {
                        return Err(error);
                    }
                    self.deferred = Some(error);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Commits the positions after the records that [`poll`](Self::poll) has returned, and waits for it. Partitions
    /// that the group revokes meanwhile are given up after that. An error of one partition, such as a deleted one, is
    /// returned after the others have been committed. Fails with `UNKNOWN_MEMBER_ID` if the group has removed the
    /// member since the last poll, or removes it before the commit is done: the positions then belong to an ended
    /// membership, and the next poll begins a new one.
    pub fn commit(&mut self) -> BoxFuture<'_, Result<(), ClientError>> {
        Box::pin(async move {
            // Before the group's events are handled: a revoked partition would not be part of this commit any more,
            // and its next reader would repeat records that were processed here. No other member reads it before it
            // is given up.
            let outcome = self.commit_positions(self.assignment.uncommitted()).await;
            self.take_events();
            outcome.into_result()
        })
    }

    /// Commits these offsets, independent of what [`poll`](Self::poll) has returned, and waits for it. Fails as
    /// [`commit`](Self::commit) does if the group has removed the member since the last poll, and with
    /// `REBALANCE_IN_PROGRESS` until the group has admitted the member.
    pub fn commit_offsets<'a>(
        &'a mut self,
        offsets: &'a BTreeMap<TopicPartition, CommittedOffset>,
    ) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async move { self.commit_positions(offsets.clone()).await.into_result() })
    }

    async fn commit_positions(&mut self, positions: Positions) -> Outcome {
        let Some(coordinator) = self.coordinator.clone() else {
            return Outcome::failed(ClientError::Invalid("a commit needs a group".to_owned()));
        };
        if let Some(committing) = &mut self.committing {
            // Commits take effect in their order. A task that failed has nothing to commit any more.
            let _ = committing.await;
            self.committing = None;
        }
        if positions.is_empty() {
            return Outcome::default();
        }
        let committer = self.membership.as_ref().map(Membership::committer);
        let number = self.begin_commit(&positions);
        let outcome = commits::commit(coordinator, committer, positions).await;
        self.count_commit(outcome.is_complete());
        self.assignment.end_commit(number, outcome.committed());
        outcome
    }

    fn count_commit(&mut self, went_well: bool) {
        let count = if went_well { &mut self.counts.commits } else { &mut self.counts.commits_failed };
        *count += 1;
    }

    /// The group's committed offsets of these partitions; those without a commit are not in the result.
    pub fn committed(
        &self,
        partitions: &[TopicPartition],
    ) -> Answer<BTreeMap<TopicPartition, CommittedOffset>> {
        let (coordinator, partitions) = (self.coordinator.clone(), partitions.to_vec());
        Box::pin(async move {
            let Some(coordinator) = coordinator else {
                return Err(ClientError::Invalid("committed offsets need a group".to_owned()));
            };
            start::all_committed(&coordinator, &partitions).await
        })
    }

    /// Returns no more records of these partitions until they are resumed. Buffered records of them are kept, outside
    /// `read.ahead.bytes`, and so is the place in the group. A rebalance that revokes a partition and assigns it
    /// again resumes it.
    pub fn pause(&mut self, partitions: &[TopicPartition]) -> Result<(), ClientError> {
        self.set_paused(partitions, true)
    }

    /// Resumes paused partitions.
    pub fn resume(&mut self, partitions: &[TopicPartition]) -> Result<(), ClientError> {
        self.set_paused(partitions, false)
    }

    fn set_paused(&mut self, partitions: &[TopicPartition], paused: bool) -> Result<(), ClientError> {
        if let Some(other) = partitions.iter().find(|one| self.assignment.get(one).is_none()) {
            return Err(not_assigned(other));
        }
        for partition in partitions {
            if let Some(state) = self.assignment.get_mut(partition) {
                state.paused = paused;
            }
        }
        Ok(())
    }

    /// The partitions that are paused.
    pub fn paused(&self) -> Vec<TopicPartition> {
        let paused = self.assignment.iter().filter(|(_, state)| state.paused);
        paused.map(|(partition, _)| partition.clone()).collect()
    }

    /// Records between the position and the end of the partition in the last answer; `None` while either is unknown.
    pub fn lag(&self, partition: &TopicPartition) -> Option<i64> {
        let state = self.assignment.get(partition)?;
        Some(state.end?.0.saturating_sub(state.position?.0).max(0))
    }

    /// The offset after the last record that [`poll`](Self::poll) has returned; `None` while it is unknown.
    pub fn position(&self, partition: &TopicPartition) -> Option<Offset> {
        self.assignment.get(partition)?.position
    }

    /// The assigned partitions.
    pub fn assignment(&self) -> Vec<TopicPartition> {
        self.assignment.names().cloned().collect()
    }

    /// Moves the position of an assigned partition. An offset or a time below 0 is refused.
    pub fn seek(&mut self, partition: &TopicPartition, start: StartAt) -> Result<(), ClientError> {
        if self.assignment.get(partition).is_none() {
            return Err(not_assigned(partition));
        }
        check_start(partition, start)?;
        self.assignment.restart(partition, start);
        Ok(())
    }

    /// The current ends of partitions: the offset of the next record that readers will see.
    pub fn end_offsets(&self, partitions: &[TopicPartition]) -> Answer<BTreeMap<TopicPartition, Offset>> {
        self.offsets(partitions, OffsetSpec::Latest)
    }

    /// The current beginnings of partitions: the offset of the first record that is kept.
    pub fn beginning_offsets(
        &self,
        partitions: &[TopicPartition],
    ) -> Answer<BTreeMap<TopicPartition, Offset>> {
        self.offsets(partitions, OffsetSpec::Earliest)
    }

    fn offsets(
        &self,
        partitions: &[TopicPartition],
        spec: OffsetSpec,
    ) -> Answer<BTreeMap<TopicPartition, Offset>> {
        let (cluster, isolation, partitions) =
            (Arc::clone(&self.cluster), self.options.isolation, partitions.to_vec());
        Box::pin(async move { offsets_of(&cluster, &partitions, spec, isolation).await })
    }

    /// One offset of each partition, or the error of that partition: one result does not hide another. Retries errors
    /// that may pass for this time; with none, asks once.
    pub fn find_offsets(
        &self,
        wanted: Vec<(TopicPartition, OffsetSpec)>,
        patience: Duration,
    ) -> BoxFuture<'static, Findings> {
        let (cluster, isolation) = (Arc::clone(&self.cluster), self.options.isolation);
        let patience = Patience { errors: patience, leaders: true };
        Box::pin(async move { list_offsets_within(&cluster, wanted, isolation, patience).await })
    }

    /// The first record of each partition with at least this timestamp; `None` if there is no such record. A time
    /// below 0 is refused.
    pub fn offsets_for_times(
        &self,
        times: &[(TopicPartition, TimestampMs)],
    ) -> Answer<BTreeMap<TopicPartition, Option<FoundOffset>>> {
        let wanted = times.iter().map(|(partition, time)| (partition.clone(), OffsetSpec::Timestamp(*time)));
        let (cluster, isolation, wanted) =
            (Arc::clone(&self.cluster), self.options.isolation, wanted.collect());
        Box::pin(async move {
            let found = list_offsets(&cluster, wanted, isolation).await;
            found.into_iter().map(|(partition, found)| Ok((partition, found?))).collect()
        })
    }

    /// Counts of its work so far.
    pub fn metrics(&self) -> ConsumerMetrics {
        ConsumerMetrics {
            buffered_bytes: self.chunks.iter().map(|chunk| chunk.pinned_bytes).sum(),
            asked_bytes: self.asked_bytes,
            partitions: self.assignment.iter().count(),
            rebalances: self.listener.rebalances,
            ..self.counts
        }
    }

    /// The cluster that it is connected to.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// With auto commit, commits; then leaves the group, within 30 seconds, as [`close_within`](Self::close_within).
    pub fn close(self) -> BoxFuture<'static, Result<(), ClientError>> {
        self.close_within(CLOSE_LIMIT)
    }

    /// With auto commit, commits; then leaves the group. Takes no longer than `limit`, of which two thirds are for
    /// the commit, so that the group does not wait for a member that could not commit. Fails if the time is over, or
    /// if the group cannot be told within `request.timeout.ms`: the coordinator then notices when the session times
    /// out.
    pub fn close_within(mut self, limit: Duration) -> BoxFuture<'static, Result<(), ClientError>> {
        Box::pin(async move {
            let begun = Instant::now();
            let after = limit / 3 * 2;
            let committed = timeout(after, self.commit_last()).await.unwrap_or_else(|_| {
                let address =
                    format!("the coordinator of {}", self.options.group.as_deref().unwrap_or_default());
                Err(ClientError::Timeout { address, api: ApiKey::OffsetCommit, after })
            });
            if let Some(committing) = self.committing.take() {
                committing.abort();
            }
            // Outside the time of the commit: a membership whose end is cut short would never leave the group.
            self.end_membership().await;
            committed.and(self.leave(limit.saturating_sub(begun.elapsed())).await)
        })
    }
}

fn not_assigned(partition: &TopicPartition) -> ClientError {
    ClientError::Invalid(format!("{partition} is not assigned to this consumer"))
}

/// Refuses offsets and times that name no record.
fn check_start(partition: &TopicPartition, start: StartAt) -> Result<(), ClientError> {
    match start {
        StartAt::Offset(offset) if offset < Offset::ZERO => {
            Err(ClientError::Invalid(format!("{partition} has no offset {offset}: the first one is 0")))
        }
        _ => start.spec().check(partition),
    }
}
