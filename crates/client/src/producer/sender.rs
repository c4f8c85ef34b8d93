//! The sender task: takes batches out of the accumulator, keeps requests in flight to each leader, and decides the
//! outcome of each batch when its answer comes.
//!
//! Never waits for a single server: everything that takes time is an event. Guarantees that every batch that it takes
//! gets an outcome: within the delivery timeout, plus the second at most between two searches for expired batches,
//! plus one request's time.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use riverrun_protocol::{ApiKey, InitProducerIdRequest};
use riverrun_types::{ErrorKind, NodeId, ProducerEpoch, ProducerId};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::accumulator::{Accumulator, DrainPlan, Drained};
use super::batch::Batch;
use super::exchange::{self, Answered};
use super::options::ProducerOptions;
use super::random_seed;
use crate::cluster::{Cluster, KnownTopic, Lane, TopicInfo};
use crate::error::ClientError;
use crate::retry::{Backoff, Chance, Pauses};
use crate::topic_partition::TopicPartition;

/// Longest delay of giving freed room back, while more comes.
const RELEASE_PAUSE: Duration = Duration::from_millis(1);

/// A result that the sender task waited for.
enum Event {
    Answered(Answered),
    Connected {
        node: NodeId,
        error: Option<ClientError>,
    },
    Identified(Result<(ProducerId, ProducerEpoch), ClientError>),
    /// Whether all partitions with batches have a leader by now.
    Refreshed(Result<bool, ClientError>),
}

/// The state of one server.
#[derive(Debug, Default)]
struct NodeState {
    in_flight: usize,
    connecting: bool,
    /// Completes with the last request.
    last: Option<oneshot::Receiver<()>>,
}

/// The producer id's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    /// None: idempotence is off.
    Anonymous,
    /// To be requested, not before then.
    Wanted(Option<Instant>),
    /// Requested.
    Asked,
    Known(ProducerId, ProducerEpoch),
}

/// The sender task.
///
/// Invariants: `in_flight` of each node is the number of its requests in `events`; at most one refresh of metadata
/// and one request for a producer id are in flight.
pub(super) struct Sender {
    cluster: Arc<Cluster>,
    options: Arc<ProducerOptions>,
    accumulator: Arc<Accumulator>,
    events: FuturesUnordered<BoxFuture<'static, Event>>,
    nodes: HashMap<NodeId, NodeState>,
    identity: Identity,
    /// Topics whose metadata proved stale.
    stale: BTreeSet<Arc<str>>,
    refreshing: bool,
    refresh_at: Option<Instant>,
    refresh_pauses: Pauses,
    identity_pauses: Pauses,
    /// When freed room has to be given back, however little it is.
    release_at: Option<Instant>,
}

/// Runs however the task ends: also with its runtime, or with a panic in a partitioner.
impl Drop for Sender {
    fn drop(&mut self) {
        // Requests in flight first: dropping them completes their records.
        self.events.clear();
        self.accumulator.end_of_sender();
    }
}

impl Sender {
    pub(super) fn new(
        cluster: Arc<Cluster>,
        options: Arc<ProducerOptions>,
        accumulator: Arc<Accumulator>,
    ) -> Self {
        let pauses = Pauses::new(Backoff::of_retries(&options.cluster));
        let identity = if options.idempotent { Identity::Wanted(None) } else { Identity::Anonymous };
        Self {
            cluster,
            options,
            accumulator,
            events: FuturesUnordered::new(),
            nodes: HashMap::new(),
            identity,
            stale: BTreeSet::new(),
            refreshing: false,
            refresh_at: None,
            refresh_pauses: pauses,
            identity_pauses: pauses,
            release_at: None,
        }
    }

    /// Runs until the producer is closed and all records have their outcome.
    pub(super) async fn run(mut self) {
        loop {
            if self.accumulator.is_abandoned() {
                self.fail_all(&ClientError::Closed);
                self.stale.clear();
            }
            let next_check = self.step();
            if self.accumulator.is_done() {
                self.accumulator.release_freed();
                return;
            }
            let next_check = next_check.unwrap_or_else(|| Instant::now() + Duration::from_hours(1));
            tokio::select! {
                Some(event) = self.events.next(), if !self.events.is_empty() => {
                    self.handle(event);
                    self.handle_others();
                }
                () = self.accumulator.wake.notified() => {}
                () = tokio::time::sleep_until(next_check) => {}
            }
        }
    }

    /// Handles further events that have arrived, so that their consequences are drawn once.
    fn handle_others(&mut self) {
        while let Some(Some(event)) = self.events.next().now_or_never() {
            self.handle(event);
        }
    }

    /// Does everything that is possible now, and returns when to continue without an event.
    fn step(&mut self) -> Option<Instant> {
        let now = Instant::now();
        self.identify(now);
        let mut next_check = None;
        loop {
            let drained = self.drain(now);
            next_check = drained.next_check.into_iter().chain(next_check).min();
            for batch in drained.expired {
                self.give_up(batch);
            }
            for batch in drained.gone {
                self.fail_gone(batch);
            }
            self.stale.extend(drained.leaderless);
            for (node, batches) in drained.requests {
                self.send(node, batches);
            }
            if !drained.more {
                break;
            }
        }
        self.refresh(now);
        let release_at = self.release(now);
        let identity = match self.identity {
            Identity::Wanted(at) => at,
            _ => None,
        };
        let refresh_at = self.refresh_at.filter(|_| !self.stale.is_empty());
        let timers = identity.into_iter().chain(refresh_at).chain(release_at);
        next_check.into_iter().chain(timers.filter(|at| *at > now)).min()
    }

    /// Gives back room that was freed a while ago, and returns when to check again.
    fn release(&mut self, now: Instant) -> Option<Instant> {
        if self.release_at.is_some_and(|at| at <= now) {
            self.accumulator.release_freed();
        }
        let left = self.accumulator.freed_bytes() > 0;
        let pending = self.release_at.filter(|at| *at > now).unwrap_or(now + RELEASE_PAUSE);
        self.release_at = left.then_some(pending);
        self.release_at
    }

    fn drain(&mut self, now: Instant) -> Drained {
        let producer = match self.identity {
            Identity::Known(id, epoch) => Some((id, epoch)),
            _ => None,
        };
        let fresh_allowed = matches!(self.identity, Identity::Known(..) | Identity::Anonymous);
        let cluster = Arc::clone(&self.cluster);
        // The partitions of a topic usually follow each other.
        let mut last: Option<KnownTopic> = None;
        let mut aged = BTreeSet::<Arc<str>>::new();
        let mut leader = |name: &str, partition: i32| {
            if last.as_ref().is_none_or(|known| known.topic.name != name) {
                last = cluster.known_topic(name);
            }
            let KnownTopic { topic, fresh } = last.as_ref()?;
            if !fresh && !aged.contains(name) {
                aged.insert(name.into());
            }
            topic.partitions.get(usize::try_from(partition).ok()?)?.leader
        };
        let (nodes, events, cluster) = (&mut self.nodes, &self.events, &self.cluster);
        // Each queue bounds the batches of its partition.
        let in_flight_max = self.options.cluster.in_flight_max;
        let full: Vec<NodeId> =
            nodes.iter().filter(|(_, node)| node.in_flight >= in_flight_max).map(|(id, _)| *id).collect();
        let mut gone = false;
        let mut has_room = |id: NodeId| {
            let node = nodes.entry(id).or_default();
            if cluster.live_connection(id, Lane::Data).is_some() {
                return node.in_flight < in_flight_max;
            }
            if !cluster.has_node(id) {
                gone = true;
            } else if !node.connecting {
                node.connecting = true;
                events.push(Box::pin(connect(Arc::clone(cluster), id)));
            }
            false
        };
        let mut plan = DrainPlan {
            now,
            producer,
            fresh_allowed,
            leader: &mut leader,
            has_room: &mut has_room,
            full: &full,
        };
        let drained = self.accumulator.drain(&mut plan);
        if gone {
            self.stale.extend(self.accumulator.active_topics());
        }
        if !self.refreshing {
            self.stale.append(&mut aged);
        }
        drained
    }

    fn send(&mut self, node: NodeId, mut batches: Vec<Batch>) {
        for batch in &mut batches {
            batch.sent_to = Some(node);
        }
        let mut begun = exchange::begin(&self.cluster, &self.options, node, batches);
        self.accumulator.count(|metrics| {
            begun.count(metrics);
            metrics.requests_in_flight += 1;
        });
        begun.spares.drain(..).for_each(|spare| self.accumulator.keep(spare));
        let state = self.nodes.entry(node).or_default();
        state.in_flight += 1;
        // Outcomes come in the order of the requests.
        let (ended, ends) = oneshot::channel();
        let before = state.last.replace(ends);
        self.events.push(Box::pin(async move {
            let answered = begun.finish().await;
            if let Some(before) = before {
                // An error means that it has ended, too.
                let _ = before.await;
            }
            drop::<oneshot::Sender<()>>(ended);
            Event::Answered(answered)
        }));
    }

    /// Requests a producer id if one is needed, or if the old one has become useless and none of its batches is in
    /// flight any more.
    fn identify(&mut self, now: Instant) {
        let spent = self.accumulator.is_id_spent();
        let wanted = match self.identity {
            Identity::Wanted(at) => at.is_none_or(|at| at <= now),
            Identity::Known(..) => spent && self.accumulator.allows_new_id(),
            Identity::Anonymous | Identity::Asked => false,
        };
        if wanted {
            self.identity = Identity::Asked;
            let cluster = Arc::clone(&self.cluster);
            self.events.push(Box::pin(async move { Event::Identified(ask_identity(&cluster).await) }));
        }
    }

    /// Requests the metadata of stale topics, with pauses.
    fn refresh(&mut self, now: Instant) {
        if self.stale.is_empty() || self.refreshing || self.refresh_at.is_some_and(|at| at > now) {
            return;
        }
        self.refreshing = true;
        let asked_at = Instant::now();
        let (cluster, topics) = (Arc::clone(&self.cluster), std::mem::take(&mut self.stale));
        let accumulator = Arc::clone(&self.accumulator);
        // A closing producer does not create a deleted topic again.
        let create = !accumulator.is_closed();
        self.events.push(Box::pin(async move {
            let names: Vec<&str> = topics.iter().map(AsRef::as_ref).collect();
            let answer = cluster.refresh(Some(&names), create).await;
            let learn = |topic: Result<Arc<TopicInfo>, _>| {
                topic.is_ok_and(|topic| accumulator.learn(&topic, random_seed(), Some(asked_at)))
            };
            // All of them are learnt, whatever the result for one.
            let learnt = |topics: Vec<_>| topics.into_iter().map(learn).fold(true, |all, led| all & led);
            Event::Refreshed(answer.map(learnt))
        }));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Answered(answered) => self.complete(answered),
            Event::Connected { node, error } => {
                let state = self.nodes.entry(node).or_default();
                state.connecting = false;
                // The next attempt begins at once, with a growing pause.
                if let Some(error) = error {
                    tracing::debug!(node = node.0, %error, "cannot connect; requesting metadata");
                    self.stale.extend(self.accumulator.active_topics());
                    self.accumulator.set_trouble(error);
                }
            }
            Event::Identified(Ok((id, epoch))) => {
                self.identity_pauses.succeed();
                self.accumulator.restart_sequences();
                self.identity = Identity::Known(id, epoch);
            }
            Event::Identified(Err(error)) => {
                self.identity = Identity::Wanted(Some(Instant::now() + self.identity_pauses.fail()));
                if error.kind() != ErrorKind::Retry {
                    self.fail_all(&error);
                }
                self.accumulator.set_trouble(error);
            }
            Event::Refreshed(answer) => {
                self.refreshing = false;
                self.accumulator.list_stalled();
                let pauses = &mut self.refresh_pauses;
                // While a partition lacks a leader, each answer leads to the next request.
                let pause = if matches!(answer, Ok(true)) { pauses.succeed() } else { pauses.fail() };
                self.refresh_at = Some(Instant::now() + pause);
                if let Err(error) = answer {
                    tracing::debug!(%error, "the metadata request failed");
                    self.stale.extend(self.accumulator.active_topics());
                }
            }
        }
    }

    fn complete(&mut self, answered: Answered) {
        if let Some(node) = self.nodes.get_mut(&answered.node) {
            node.in_flight -= 1;
        }
        self.accumulator.count(|metrics| {
            metrics.requests_in_flight -= 1;
            if let Some(latency) = answered.latency {
                metrics.latency_us.add(exchange::in_us(latency));
            }
        });
        let chance = Chance::draw();
        for (batch, result) in answered.results {
            match result {
                Ok(place) => self.accumulator.complete(batch, Ok(place), false),
                Err(error) => self.handle_error(batch, error, chance),
            }
        }
    }

    fn handle_error(&mut self, batch: Batch, error: ClientError, chance: Chance) {
        let backoff = Backoff::of_retries(&self.options.cluster);
        let pause = backoff.pause(batch.attempts.saturating_sub(1), chance);
        let (topic, retry_at) = (Arc::clone(batch.topic()), chance.drawn_at() + pause);
        let is_new = batch.attempts <= 1;
        if self.accumulator.handle_error(batch, error, retry_at) {
            self.stale.insert(topic);
            if is_new {
                self.hasten_refresh();
            }
        }
    }

    /// A new reason does not wait for the pause of earlier attempts.
    fn hasten_refresh(&mut self) {
        let soon = Instant::now() + self.refresh_pauses.succeed();
        self.refresh_at = self.refresh_at.map(|at| at.min(soon));
    }

    /// Fails all waiting batches.
    fn fail_all(&self, error: &ClientError) {
        for batch in self.accumulator.take_all() {
            let broken = batch.stamp.is_some();
            self.accumulator.complete(batch, Err(error.clone()), broken);
        }
    }

    fn give_up(&self, mut batch: Batch) {
        let leader = self.leader_of(&batch);
        let last = batch.last_error.take().or_else(|| leader.clone().and_then(Result::err));
        let server = batch.sent_to.or_else(|| leader.and_then(Result::ok));
        let error = ClientError::Undelivered {
            topic: Arc::clone(batch.topic()),
            partition: batch.key.partition,
            after: self.options.delivery_timeout,
            attempts: batch.attempts,
            server: server.map(|node| self.cluster.name_of(node)),
            last: last.map(Arc::new).or_else(|| self.accumulator.trouble()),
        };
        self.accumulator.complete(batch, Err(error), false);
    }

    /// Fails a batch whose partition does not exist any more. Its sequence numbers are a gap, should the partition
    /// return.
    fn fail_gone(&self, batch: Batch) {
        let partition = TopicPartition::new(Arc::clone(batch.topic()), batch.key.partition);
        let broken = batch.stamp.is_some();
        self.accumulator.complete(batch, Err(ClientError::UnknownPartition(partition)), broken);
    }

    /// The leader of a batch's partition, or the reason why it has none; `None` if that is unknown.
    fn leader_of(&self, batch: &Batch) -> Option<Result<NodeId, ClientError>> {
        let KnownTopic { topic, .. } = self.cluster.known_topic(batch.topic())?;
        let partition = topic.partitions.get(usize::try_from(batch.key.partition).ok()?)?;
        Some(partition.led(&topic.name))
    }
}

async fn connect(cluster: Arc<Cluster>, node: NodeId) -> Event {
    Event::Connected { node, error: cluster.connection(node, Lane::Data).await.err() }
}

async fn ask_identity(cluster: &Cluster) -> Result<(ProducerId, ProducerEpoch), ClientError> {
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: i32::MAX,
        ..InitProducerIdRequest::default()
    };
    let frame = cluster.call_any(&request).await?;
    let answer = frame.decode::<InitProducerIdRequest<'_>>()?;
    ClientError::check(answer.error_code, None)?;
    let (id, epoch) = (answer.producer_id, answer.producer_epoch);
    // With these the server would accept batches as those of no producer, repeatedly.
    if id < 0 || epoch < 0 {
        let what = format!("producer id {id}, producer epoch {epoch}");
        return Err(ClientError::Impossible { api: ApiKey::InitProducerId, what });
    }
    Ok((ProducerId(id), ProducerEpoch(epoch)))
}
