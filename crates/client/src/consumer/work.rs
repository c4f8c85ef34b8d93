//! A consumer's operations in flight (fetches, searches for positions, metadata, commits), and the handling of their
//! results.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use riverrun_protocol::ErrorCode;
use riverrun_types::{ErrorKind, NodeId, Offset};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::assignment::Positions;
use super::fetch::{self, Ask, Brought, Fetched, PartitionFetched, Wanted};
use super::group::Membership;
use super::options::{ConsumerOptions, StartAt};
use super::records::Chunk;
use super::start::{self, Asked, Found, Progress, Sought, after_out_of_range, after_truncation};
use super::validation::{self, Validated};
use super::{Consumer, commits};
use crate::cluster::{PartitionInfo, TopicInfo};
use crate::error::ClientError;
use crate::leaders::Obstacle;
use crate::retry::Chance;
use crate::topic_partition::TopicPartition;

/// Shortest time between two commits that one poll begins, because the first may have failed.
pub(super) const COMMIT_PAUSE_MIN: Duration = Duration::from_millis(100);

/// An operation in flight.
pub(super) type Work = BoxFuture<'static, Done>;

/// The result of an operation.
#[derive(Debug)]
pub(super) enum Done {
    Fetched(Fetched),
    Validated(Validated),
    Started(Progress),
    /// The topics whose metadata was requested.
    Refreshed(Result<BTreeSet<Arc<str>>, ClientError>),
    /// The number of the commit, the positions that need no other, and whether all were committed.
    Committed(u64, Positions, bool),
}

/// The operations that are due for the partitions.
#[derive(Debug, Default)]
struct Due {
    /// Fetches by node.
    fetches: BTreeMap<NodeId, Vec<Wanted>>,
    /// Positions to validate, by leader, before they are fetched from.
    doubtful: BTreeMap<NodeId, Vec<Wanted>>,
    /// Nodes of which enough records are buffered.
    withheld: HashSet<NodeId>,
}

/// The leader of a partition, and its topic.
fn led<'a>(
    topic: &'a TopicInfo,
    partition: &TopicPartition,
) -> Option<(&'a TopicInfo, &'a PartitionInfo, NodeId)> {
    let info = topic.partitions.get(usize::try_from(partition.partition).ok()?)?;
    Some((topic, info, info.leader?))
}

/// The reason why an existing partition has no leader.
fn leaderless(topic: &TopicInfo, partition: &TopicPartition) -> Option<ClientError> {
    let info = usize::try_from(partition.partition).ok().and_then(|index| topic.partitions.get(index));
    info?.led(&topic.name).err()
}

impl Consumer {
    /// Starts everything that can be started.
    pub(super) fn start_work(&mut self, now: Instant) {
        self.start_positions(now);
        self.start_fetches(now);
        self.start_refresh(now);
    }

    fn start_positions(&mut self, now: Instant) {
        let mut sought = Vec::new();
        for (partition, state) in self.assignment.iter_mut() {
            if state.wants_start(now) {
                state.starting = true;
                state.attempts.begin(now);
                let (incarnation, start) = (state.incarnation, state.start);
                sought.push(Sought { partition: partition.clone(), incarnation, start });
            }
        }
        let (of_group, others): (Vec<_>, Vec<_>) =
            sought.into_iter().partition(|sought| sought.start == StartAt::Committed);
        if !of_group.is_empty() {
            let asked = start::ask_group(self.coordinator.clone(), Arc::clone(&self.options), of_group);
            self.work.push(Box::pin(async move { Done::Started(asked.await) }));
        }
        let asked = |sought: Sought| {
            let spec = sought.start.spec();
            (sought, spec)
        };
        self.go_on_starting(others.into_iter().map(asked).collect(), BTreeMap::new());
    }

    /// Starts the search for leaders, and a request to each known one.
    fn go_on_starting(&mut self, open: Vec<Asked>, of_leaders: BTreeMap<NodeId, Vec<Asked>>) {
        if !open.is_empty() {
            let found = start::find_leaders(Arc::clone(&self.cluster), open);
            self.work.push(Box::pin(async move { Done::Started(found.await) }));
        }
        for asked in of_leaders.into_values() {
            let (cluster, options) = (Arc::clone(&self.cluster), Arc::clone(&self.options));
            let found = start::ask_leaders(cluster, options, asked);
            self.work.push(Box::pin(async move { Done::Started(found.await) }));
        }
    }

    /// Fetches from every node whose buffered records are all in reserve. Waiting until then for all partitions of a
    /// node keeps a fetch of the idle ones from delaying the busy ones.
    fn start_fetches(&mut self, now: Instant) {
        let Due { mut fetches, doubtful, withheld } = self.find_due(now);
        for (leader, wanted) in doubtful {
            self.begin_fetching(&wanted, now);
            let validated = validation::validate(Arc::clone(&self.cluster), leader, wanted);
            self.work.push(Box::pin(async move { Done::Validated(validated.await) }));
        }
        fetches.retain(|node, _| !withheld.contains(node));
        let after = self.asked_last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut order: Vec<NodeId> =
            fetches.range((after, Bound::Unbounded)).map(|(node, _)| *node).collect();
        order.extend(fetches.keys().take(fetches.len() - order.len()));
        let mut nodes = order.len();
        for node in order {
            if let Some(wanted) = fetches.remove(&node) {
                self.start_fetch(node, wanted, nodes, now);
            }
            nodes -= 1;
        }
    }

    fn find_due(&mut self, now: Instant) -> Due {
        let mut due = Due::default();
        let mut topic = None;
        for (partition, state) in self.assignment.iter_mut() {
            if state.paused || (!state.wants_fetch(now) && state.has_room()) {
                continue;
            }
            // The partitions of a topic usually follow each other.
            if topic.as_ref().is_none_or(|topic: &Arc<TopicInfo>| *topic.name != *partition.topic) {
                let known = self.cluster.known_topic(&partition.topic);
                if !self.refreshing && known.as_ref().is_some_and(|known| !known.fresh) {
                    self.stale.insert(Arc::clone(&partition.topic));
                }
                topic = known.map(|known| known.topic);
            }
            let Some((topic, info, leader)) = topic.as_ref().and_then(|topic| led(topic, partition)) else {
                self.stale.insert(Arc::clone(&partition.topic));
                if let Some(error) = topic.as_ref().and_then(|topic| leaderless(topic, partition)) {
                    state.attempts.fail_without(|| error);
                }
                continue;
            };
            let node = state.source(leader, now);
            if !state.has_room() {
                due.withheld.insert(node);
                continue;
            }
            let wanted = Wanted {
                partition: partition.clone(),
                topic_id: topic.id,
                incarnation: state.incarnation,
                from: state.fetch_from,
                leader_epoch: info.leader_epoch,
                last_epoch: state.fetch_epoch,
            };
            if state.is_doubtful(info.leader_epoch) {
                due.doubtful.entry(leader).or_default().push(wanted);
            } else if !self.busy.contains(&node) {
                due.fetches.entry(node).or_default().push(wanted);
            }
        }
        due
    }

    fn begin_fetching(&mut self, wanted: &[Wanted], now: Instant) {
        for wanted in wanted {
            if let Some(state) = self.assignment.current(wanted.incarnation) {
                state.fetching = true;
                state.attempts.begin(now);
            }
        }
    }

    /// Makes them fetchable again at once: no partition has failed.
    fn cancel_fetching(&mut self, wanted: &[Wanted]) {
        for wanted in wanted {
            if let Some(state) = self.assignment.current(wanted.incarnation) {
                state.fetching = false;
            }
        }
    }

    /// Fetches from a node its share of the remaining budget, where `nodes` nodes are still to be asked.
    fn start_fetch(&mut self, node: NodeId, wanted: Vec<Wanted>, nodes: usize, now: Instant) {
        let taken_bytes = self.asked_bytes + self.moving_bytes();
        let Some(bytes_max) = room(&self.options, taken_bytes, wanted.len(), nodes) else { return };
        self.asked_last = Some(node);
        self.begin_fetching(&wanted, now);
        self.busy.insert(node);
        self.asked_bytes += bytes_max;
        let session = self.sessions.entry(node).or_default().plan(&wanted);
        let (cluster, options) = (Arc::clone(&self.cluster), Arc::clone(&self.options));
        let fetched = fetch::fetch(cluster, options, Ask { node, wanted, session, bytes_max });
        self.work.push(Box::pin(async move { Done::Fetched(fetched.await) }));
    }

    /// Buffered bytes that later polls will take. Records of paused partitions stay as long as the application likes,
    /// and must not block the others; they are bounded by the number of chunks of a partition.
    fn moving_bytes(&mut self) -> usize {
        let Self { chunks, assignment, .. } = self;
        let moves = |chunk: &&Chunk| assignment.current(chunk.incarnation).is_none_or(|state| !state.paused);
        chunks.iter().filter(moves).map(|chunk| chunk.pinned_bytes).sum()
    }

    fn start_refresh(&mut self, now: Instant) {
        if self.stale.is_empty() || self.refreshing || self.refresh_at.is_some_and(|at| at > now) {
            return;
        }
        self.refreshing = true;
        self.refreshes.begin(now);
        let (cluster, topics) = (Arc::clone(&self.cluster), std::mem::take(&mut self.stale));
        self.work.push(Box::pin(async move {
            let names: Vec<&str> = topics.iter().map(AsRef::as_ref).collect();
            let refreshed = cluster.refresh(Some(&names), false).await;
            Done::Refreshed(refreshed.map(|_| topics))
        }));
    }

    pub(super) fn handle(&mut self, done: Done) -> Result<(), ClientError> {
        let chance = Chance::draw();
        match done {
            Done::Fetched(fetched) => self.handle_brought(fetched, chance),
            Done::Validated(validated) => {
                validated.into_iter().map(|one| self.handle_validated(one, chance)).fold(Ok(()), Result::and)
            }
            Done::Started(Progress { found, open, of_leaders }) => {
                self.go_on_starting(open, of_leaders);
                found.into_iter().map(|one| self.handle_started(one, chance)).fold(Ok(()), Result::and)
            }
            Done::Refreshed(result) => {
                self.refreshing = false;
                match &result {
                    // While a partition lacks a leader, each answer leads to the next request.
                    Ok(topics) if self.lacks_leader(topics) => self.refreshes.work_in_vain(),
                    Ok(_) => self.refreshes.succeed(),
                    Err(error) => self.refreshes.fail(error),
                }
                self.refresh_at = Some(self.refreshes.next_at(&self.options.cluster, chance));
                result.map(drop).or_else(report)
            }
            Done::Committed(number, done_positions, is_complete) => {
                self.committing_count -= 1;
                self.count_commit(is_complete);
                self.assignment.end_commit(number, &done_positions);
                Ok(())
            }
        }
    }

    fn handle_brought(&mut self, fetched: Fetched, chance: Chance) -> Result<(), ClientError> {
        let node = fetched.ask.node;
        self.busy.remove(&node);
        self.asked_bytes -= fetched.ask.bytes_max;
        self.counts.fetches += 1;
        let session = self.sessions.entry(node).or_default();
        let parts: Vec<PartitionFetched> = match fetched.read(&self.options) {
            Brought::Parts { parts, session_id } => {
                session.answered(session_id);
                parts
            }
            Brought::Nothing { wanted, error } => {
                self.counts.fetches_failed += 1;
                let begins_anew = match error.code() {
                    Some(ErrorCode::FETCH_SESSION_ID_NOT_FOUND) => session.refused(false),
                    Some(ErrorCode::INVALID_FETCH_SESSION_EPOCH) => session.refused(true),
                    _ => {
                        session.give_up();
                        false
                    }
                };
                if begins_anew {
                    self.cancel_fetching(&wanted);
                    return Ok(());
                }
                wanted.into_iter().map(|wanted| (wanted, Err(error.clone()))).collect()
            }
        };
        // An error of one partition is returned after all have been handled.
        parts.into_iter().map(|one| self.handle_fetched(one, node, chance)).fold(Ok(()), Result::and)
    }

    /// True if an assigned partition of these topics lacks a leader.
    fn lacks_leader(&self, topics: &BTreeSet<Arc<str>>) -> bool {
        let mut topic = None;
        self.assignment
            .iter()
            .filter(|(partition, state)| !state.paused && topics.contains(&partition.topic))
            .any(|(partition, _)| {
                // The partitions of a topic usually follow each other.
                if topic.as_ref().is_none_or(|topic: &Arc<TopicInfo>| *topic.name != *partition.topic) {
                    topic = self.cluster.known_topic(&partition.topic).map(|known| known.topic);
                }
                topic.as_ref().and_then(|topic| led(topic, partition)).is_none()
            })
    }

    fn handle_started(
        &mut self,
        (sought, found): (Sought, Result<Found, Obstacle>),
        chance: Chance,
    ) -> Result<(), ClientError> {
        let Some(state) = self.assignment.current(sought.incarnation) else { return Ok(()) };
        let error = match found {
            Ok(found) => {
                state.begin(found.offset, found.leader_epoch);
                state.committed = found.committed.then_some(found.offset);
                return Ok(());
            }
            Err(obstacle) => state.not_started(obstacle),
        };
        state.starting = false;
        state.attempts.fail(&error);
        state.retry_at = Some(state.attempts.next_at(&self.options.cluster, chance));
        let is_new = state.attempts.are_new();
        if error.kind() == ErrorKind::Retry {
            self.look_again(&sought.partition.topic, is_new, chance);
        }
        // A group notices by itself that a topic is gone, and revokes it.
        let gone = matches!(error, ClientError::UnknownPartition(_));
        if gone && self.membership.is_some() { Ok(()) } else { report(error) }
    }

    fn handle_fetched(
        &mut self,
        (wanted, result): PartitionFetched,
        node: NodeId,
        chance: Chance,
    ) -> Result<(), ClientError> {
        let partition = &wanted.partition;
        let Some(state) = self.assignment.current(wanted.incarnation) else { return Ok(()) };
        state.fetching = false;
        let error = match result {
            Ok(part) => {
                state.attempts.succeed();
                state.end = part.end.or(state.end);
                if let Some(replica) = part.replica {
                    state.replica = Some((replica, Instant::now() + self.options.cluster.metadata_max_age));
                }
                if let Some(chunk) = part.chunk {
                    self.counts.fetched_bytes += chunk.size_bytes() as u64;
                    state.chunks += 1;
                    state.fetch_from = chunk.end;
                    // A server without epochs sends -1.
                    state.fetch_epoch = Some(chunk.last_epoch).filter(|epoch| epoch.0 >= 0);
                    self.chunks.push_back(chunk);
                }
                return Ok(());
            }
            Err(error) => error,
        };
        state.attempts.fail(&error);
        state.retry_at = Some(state.attempts.next_at(&self.options.cluster, chance));
        let is_new = state.attempts.are_new();
        let of_replica = state.replica.take_if(|(replica, _)| *replica == node).is_some();
        if error.code() == Some(ErrorCode::OFFSET_OUT_OF_RANGE) {
            // Buffered records were in range and come first; a replica may lag behind its leader.
            if state.chunks == 0 && !of_replica {
                let start = after_out_of_range(partition, self.options.offset_reset)?;
                tracing::info!(%partition, offset = %wanted.from, ?start, "the position is out of range");
                self.assignment.restart_later(partition, start);
            }
            return Ok(());
        }
        if error.kind() == ErrorKind::Retry {
            self.look_again(&partition.topic, is_new, chance);
        }
        report(error)
    }

    /// Requests a topic's metadata. A new reason does not wait for the pause of earlier attempts.
    fn look_again(&mut self, topic: &Arc<str>, is_new: bool, chance: Chance) {
        self.stale.insert(Arc::clone(topic));
        if is_new {
            self.refreshes.begin_anew();
            let soon = self.refreshes.next_at(&self.options.cluster, chance);
            self.refresh_at = self.refresh_at.map(|at| at.min(soon));
        }
    }

    /// Handles a new leader's answer about the records read from the former one.
    fn handle_validated(
        &mut self,
        (wanted, result): (Wanted, Result<Option<Offset>, ClientError>),
        chance: Chance,
    ) -> Result<(), ClientError> {
        let partition = &wanted.partition;
        let Some(state) = self.assignment.current(wanted.incarnation) else { return Ok(()) };
        state.fetching = false;
        match result {
            Ok(Some(end)) if end >= wanted.from => {
                state.attempts.succeed();
                state.validated = Some(wanted.leader_epoch);
                Ok(())
            }
            Ok(end) => {
                state.retry_at = Some(state.attempts.next_at(&self.options.cluster, chance));
                let position = state.position.unwrap_or(wanted.from);
                let start = after_truncation(partition, position, end, self.options.offset_reset)?;
                tracing::warn!(%partition, %position, ?end, ?start, "the log was truncated; reading continues at its end");
                self.assignment.restart_later(partition, start);
                Ok(())
            }
            // An old server does not support the request.
            Err(ClientError::Unsupported { .. }) => {
                state.validated = Some(wanted.leader_epoch);
                Ok(())
            }
            Err(error) => {
                state.attempts.fail(&error);
                state.retry_at = Some(state.attempts.next_at(&self.options.cluster, chance));
                let is_new = state.attempts.are_new();
                if error.kind() == ErrorKind::Retry {
                    self.look_again(&partition.topic, is_new, chance);
                }
                report(error)
            }
        }
    }

    /// Begins a commit of the records returned before this call, if it is due: after the configured interval, and
    /// after this pause at least.
    pub(super) fn commit_when_due(&mut self, pause: Duration) {
        let Some(interval) = self.commit_interval() else { return };
        // A commit whose result was not handled yet counts as in flight: otherwise it would be repeated.
        if self.committing_count > 0 || self.committed_at.elapsed() < interval.max(pause) {
            return;
        }
        self.committed_at = Instant::now();
        let positions = self.assignment.uncommitted();
        if !positions.is_empty() {
            self.commit_in_background(positions, None);
        }
    }

    /// When a waiting poll has to check again whether a commit is due; always later than now.
    pub(super) fn next_commit(&self, now: Instant) -> Option<Instant> {
        let pause = self.commit_interval()?.max(COMMIT_PAUSE_MIN);
        let at = self.committed_at.checked_add(pause)?;
        if at > now { Some(at) } else { now.checked_add(pause) }
    }

    /// Time between automatic commits; `None` without them.
    pub(super) fn commit_interval(&self) -> Option<Duration> {
        self.options.commit_interval().filter(|_| self.coordinator.is_some())
    }

    /// Completes `done` after the earlier commits. Their partitions may be given up by then, and a late commit would
    /// take effect after others have read on.
    pub(super) fn confirm_after_commits(&mut self, done: oneshot::Sender<()>) {
        let previous = self.committing.take_if(|committing| !committing.is_finished());
        let Some(previous) = previous else {
            // The receiver is gone when the group has removed the member.
            let _ = done.send(());
            return;
        };
        self.committing = Some(tokio::spawn(async move {
            let _ = previous.await;
            let _ = done.send(());
        }));
    }

    /// Commits after the earlier commits, and then completes `done`.
    pub(super) fn commit_in_background(&mut self, positions: Positions, done: Option<oneshot::Sender<()>>) {
        let Some(coordinator) = self.coordinator.clone() else { return };
        let committer = self.membership.as_ref().map(Membership::committer);
        let previous = self.committing.take();
        let number = self.begin_commit(&positions);
        self.committing_count += 1;
        let (tell, told) = oneshot::channel();
        self.committing = Some(tokio::spawn(async move {
            if let Some(previous) = previous {
                let _ = previous.await;
            }
            let outcome = commits::commit(coordinator, committer, positions).await;
            let is_complete = outcome.is_complete();
            let (done_positions, result) = outcome.into_done();
            if let Err(error) = result {
                tracing::warn!(%error, "positions could not be committed");
            }
            // The receiver is gone when the consumer is dropped.
            let _ = tell.send((done_positions, is_complete));
            if let Some(done) = done {
                let _ = done.send(());
            }
        }));
        self.work.push(Box::pin(async move {
            // A task that failed has sent nothing.
            let (done_positions, is_complete) = told.await.unwrap_or_default();
            Done::Committed(number, done_positions, is_complete)
        }));
    }

    /// Begins a commit and returns its number.
    pub(super) fn begin_commit(&mut self, positions: &Positions) -> u64 {
        self.commits_begun += 1;
        self.assignment.begin_commit(self.commits_begun, positions);
        self.commits_begun
    }
}

/// Bytes that a fetch of so many partitions may return; `None` to wait until fewer are taken by buffered records and
/// fetches in flight. The remaining budget is shared among the `nodes` that are to be asked. If nothing will become
/// free, there is always room, so that reading goes on whatever the budget.
fn room(options: &ConsumerOptions, taken_bytes: usize, partitions: usize, nodes: usize) -> Option<usize> {
    let most = |bytes: i32| usize::try_from(bytes).unwrap_or_default();
    let (answer, partition) = (most(options.fetch_max_bytes), most(options.partition_max_bytes));
    let left = options.read_ahead_bytes.saturating_sub(taken_bytes);
    // With a limit of 0, a server sends one batch all the same.
    let least = partition.min(answer).max(1);
    let share = (left / nodes.max(1)).max(least).min(left);
    let enough = taken_bytes == 0 || left >= least;
    enough.then(|| partition.saturating_mul(partitions).min(answer).min(share).max(1))
}

/// Retriable errors are retried; the others are returned to the application.
fn report(error: ClientError) -> Result<(), ClientError> {
    if error.kind() == ErrorKind::Retry {
        tracing::debug!(%error, "trying again");
        return Ok(());
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClusterOptions;

    #[test]
    fn fetch_stays_within_the_budget_and_waits_for_room() {
        let mut options = ConsumerOptions::new(ClusterOptions::new("a:1"));
        (options.fetch_max_bytes, options.partition_max_bytes) = (5000, 1000);
        options.read_ahead_bytes = 3000;
        let alone = |options: &ConsumerOptions, bytes: usize, partitions| room(options, bytes, partitions, 1);
        assert_eq!(alone(&options, 0, 2), Some(2000));
        assert_eq!(alone(&options, 0, 9), Some(3000));
        assert_eq!(alone(&options, 2000, 9), Some(1000));
        assert_eq!(alone(&options, 2001, 9), None);
        options.read_ahead_bytes = 0;
        assert_eq!(alone(&options, 0, 9), Some(1), "one batch at least goes on");
        options.read_ahead_bytes = usize::MAX;
        assert_eq!(alone(&options, 1 << 40, 9), Some(5000));
        options.read_ahead_bytes = 3000;
        for (answer, partition) in [(0, 1000), (5000, 0), (0, 0)] {
            (options.fetch_max_bytes, options.partition_max_bytes) = (answer, partition);
            let rooms = [0, 2999, 3000, 9000].map(|bytes| alone(&options, bytes, 9));
            assert_eq!(rooms, [Some(1), Some(1), None, None], "{answer} {partition}: batch after batch");
        }
    }

    #[test]
    fn nodes_share_the_budget() {
        let mut options = ConsumerOptions::new(ClusterOptions::new("a:1"));
        (options.fetch_max_bytes, options.partition_max_bytes) = (5000, 1000);
        options.read_ahead_bytes = 6000;
        let first = room(&options, 0, 9, 3);
        assert_eq!(first, Some(2000), "the first of three leaves something for the others");
        assert_eq!(room(&options, 4500, 9, 2), Some(1000), "a partition's worth at least");
        assert_eq!(room(&options, 9000, 9, 1), None);
    }
}
