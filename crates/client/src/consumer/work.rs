//! What a consumer has under way: fetches, searches for positions, metadata, commits; and what follows from each.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use riverrun_protocol::ErrorCode;
use riverrun_types::{ErrorKind, NodeId, Offset};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::fetch::{self, Fetched, PartitionFetched, Wanted};
use super::group::Membership;
use super::start::{self, Sought, Started, after_out_of_range};
use super::{Consumer, commits};
use crate::error::ClientError;
use crate::topic_partition::TopicPartition;

/// Something that is under way.
pub(super) type Work = BoxFuture<'static, Done>;

/// Something that was under way.
#[derive(Debug)]
pub(super) enum Done {
    Fetched(Fetched),
    Started(Started),
    Refreshed(Result<(), ClientError>),
    /// Positions that were committed; none if it failed.
    Committed(Option<BTreeMap<TopicPartition, Offset>>),
}

impl Consumer {
    /// Starts all that can be started.
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
        if !sought.is_empty() {
            let (cluster, options) = (Arc::clone(&self.cluster), Arc::clone(&self.options));
            let found = start::find(cluster, self.coordinator.clone(), options, sought);
            self.work.push(Box::pin(async move { Done::Started(found.await) }));
        }
    }

    /// Fetches from every node that has nothing left to be read but what is held in reserve. To wait until then
    /// for all partitions of a node keeps a fetch of the idle ones from holding up the busy ones.
    fn start_fetches(&mut self, now: Instant) {
        let mut by_leader = BTreeMap::<NodeId, Vec<Wanted>>::new();
        let mut withheld = HashSet::new();
        for (partition, state) in self.assignment.iter_mut() {
            if !state.wants_fetch(now) && state.has_room() {
                continue;
            }
            let topic = self.cluster.cached_topic(&partition.topic);
            let info = topic
                .as_ref()
                .and_then(|topic| topic.partitions.get(usize::try_from(partition.partition).ok()?));
            let Some((topic, info, leader)) =
                topic.as_ref().zip(info).and_then(|(topic, info)| Some((topic, info, info.leader?)))
            else {
                self.stale.insert(Arc::clone(&partition.topic));
                continue;
            };
            if !state.has_room() {
                withheld.insert(leader);
            } else if !self.busy.contains(&leader) {
                by_leader.entry(leader).or_default().push(Wanted {
                    partition: partition.clone(),
                    topic_id: topic.id,
                    incarnation: state.incarnation,
                    from: state.fetch_from,
                    leader_epoch: info.leader_epoch,
                });
            }
        }
        for (leader, wanted) in by_leader.into_iter().filter(|(leader, _)| !withheld.contains(leader)) {
            self.start_fetch(leader, wanted, now);
        }
    }

    fn start_fetch(&mut self, leader: NodeId, wanted: Vec<Wanted>, now: Instant) {
        for wanted in &wanted {
            if let Some(state) = self.assignment.current(&wanted.partition, wanted.incarnation) {
                state.fetching = true;
                state.attempts.begin(now);
            }
        }
        self.busy.insert(leader);
        let (cluster, options) = (Arc::clone(&self.cluster), Arc::clone(&self.options));
        let fetched = fetch::fetch(cluster, options, leader, wanted);
        self.work.push(Box::pin(async move { Done::Fetched(fetched.await) }));
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
            Done::Refreshed(cluster.refresh(Some(&names), false).await.map(drop))
        }));
    }

    pub(super) fn handle(&mut self, done: Done) -> Result<(), ClientError> {
        match done {
            Done::Fetched(fetched) => {
                self.busy.remove(&fetched.node);
                let results = fetched.read();
                // An error of one partition is reported after all have been taken in.
                results.into_iter().map(|one| self.handle_fetched(one)).fold(Ok(()), Result::and)
            }
            Done::Started(started) => {
                let mut result = Ok(());
                for (sought, found) in started {
                    let Some(state) = self.assignment.current(&sought.partition, sought.incarnation) else {
                        continue;
                    };
                    match found {
                        Ok(found) => {
                            state.begin(found.offset);
                            state.committed = found.committed.then_some(found.offset);
                        }
                        Err(error) => {
                            state.starting = false;
                            state.attempts.fail(&error);
                            state.retry_at = Some(Instant::now() + self.options.cluster.retry_backoff);
                            // A group finds out by itself that a topic is gone, and takes it away.
                            let gone = matches!(error, ClientError::UnknownPartition(_));
                            if !(gone && self.membership.is_some()) {
                                result = result.and(report(error));
                            }
                        }
                    }
                }
                result
            }
            Done::Refreshed(result) => {
                self.refreshing = false;
                self.refresh_at = Some(Instant::now() + self.options.cluster.retry_backoff);
                match result {
                    Ok(()) => self.refreshes.succeed(),
                    Err(error) => {
                        self.refreshes.fail(&error);
                        report(error)?;
                    }
                }
                Ok(())
            }
            Done::Committed(positions) => {
                self.note_committed(&positions.unwrap_or_default());
                Ok(())
            }
        }
    }

    fn handle_fetched(&mut self, (wanted, result): PartitionFetched) -> Result<(), ClientError> {
        let partition = &wanted.partition;
        let Some(state) = self.assignment.current(partition, wanted.incarnation) else { return Ok(()) };
        state.fetching = false;
        let error = match result {
            Ok(None) => {
                state.attempts.succeed();
                return Ok(());
            }
            Ok(Some(chunk)) => {
                state.attempts.succeed();
                state.chunks += 1;
                state.fetch_from = chunk.end;
                self.chunks.push_back(chunk);
                return Ok(());
            }
            Err(error) => error,
        };
        state.attempts.fail(&error);
        state.retry_at = Some(Instant::now() + self.options.cluster.retry_backoff);
        if error.code() == Some(ErrorCode::OFFSET_OUT_OF_RANGE) {
            // What is held was read in range, and comes first.
            if state.chunks == 0 {
                let start = after_out_of_range(partition, self.options.offset_reset)?;
                tracing::info!(%partition, offset = %wanted.from, ?start, "the position is out of range");
                self.assignment.restart(partition, start);
            }
            return Ok(());
        }
        if error.kind() == ErrorKind::Retry {
            self.stale.insert(Arc::clone(&partition.topic));
        }
        report(error)
    }

    /// Begins a commit of what was returned before this call, if it is time.
    pub(super) fn commit_when_due(&mut self) {
        let Some(interval) = self.options.commit_interval() else { return };
        let idle = self.committing.as_ref().is_none_or(tokio::task::JoinHandle::is_finished);
        if self.coordinator.is_none() || !idle || self.committed_at.elapsed() < interval {
            return;
        }
        self.committed_at = Instant::now();
        let positions = self.assignment.uncommitted();
        if !positions.is_empty() {
            self.commit_in_background(positions, None);
        }
    }

    /// Commits after the commits that were begun before. `done` is told when it has ended.
    pub(super) fn commit_in_background(
        &mut self,
        positions: BTreeMap<TopicPartition, Offset>,
        done: Option<oneshot::Sender<()>>,
    ) {
        let Some(coordinator) = self.coordinator.clone() else { return };
        let identity = self.membership.as_ref().map(Membership::shared_identity);
        let previous = self.committing.take();
        let (tell, told) = oneshot::channel();
        self.committing = Some(tokio::spawn(async move {
            if let Some(previous) = previous {
                let _ = previous.await;
            }
            let result = commits::commit(coordinator, identity, positions.clone()).await;
            if let Err(error) = &result {
                tracing::warn!(%error, "positions could not be committed");
            }
            // Nobody listens when the consumer is gone.
            let _ = tell.send(result.is_ok().then_some(positions));
            if let Some(done) = done {
                let _ = done.send(());
            }
        }));
        self.work.push(Box::pin(async move { Done::Committed(told.await.ok().flatten()) }));
    }
}

/// Errors that pass are waited for; the others are the application's.
fn report(error: ClientError) -> Result<(), ClientError> {
    if error.kind() == ErrorKind::Retry {
        tracing::debug!(%error, "trying again");
        return Ok(());
    }
    Err(error)
}
