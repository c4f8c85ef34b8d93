//! A member of a classic group: join, sync, heartbeats; and, as leader, the assignment.
//!
//! Eager: gives everything up before it joins again. Cooperative: keeps reading while it joins, gives up the revoked
//! partitions, and joins once more so that others can have them; before joining it gives up only the topics that it
//! no longer subscribes to.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use riverrun_protocol::consumer_protocol::{
    PROTOCOL_TYPE, VERSION_MAX, decode_assignment, decode_subscription, encode_assignment,
    encode_subscription,
};
use riverrun_protocol::consumer_protocol_assignment::TopicPartition as AssignedTopic;
use riverrun_protocol::consumer_protocol_subscription::TopicPartition as OwnedTopic;
use riverrun_protocol::join_group_request::JoinGroupRequestProtocol;
use riverrun_protocol::sync_group_request::SyncGroupRequestAssignment;
use riverrun_protocol::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, ErrorCode, HeartbeatRequest, JoinGroupRequest,
    JoinGroupResponse, SyncGroupRequest,
};
use riverrun_types::ErrorKind;
use tokio::sync::oneshot;
use tokio::time::{Duration, Instant, sleep_until};

use super::assignors::{Assignor, Subscriber, assign};
use super::{GroupEvent, MemberContext};
use crate::cluster::{Cluster, Lane};
use crate::connection::{CallLimits, wire_ms};
use crate::consumer::subscription::Subscription;
use crate::coordinator::MemberIdentity;
use crate::error::ClientError;
use crate::retry::Chance;
use crate::topic_partition::{TopicPartition, by_topic};

/// How often the leader checks for a subscribed topic that does not exist yet.
const MISSING_TOPIC_CHECK: Duration = Duration::from_secs(2);
/// Shortest time between two checks of the topics, however soon metadata ages.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(100);

/// The generation that a member without an assignment claims.
const NO_GENERATION: i32 = -1;

/// Why a member stops sending mere heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stir {
    /// The group rebalances, or should.
    Rejoin,
    /// The group has removed the member.
    Lost,
}

/// A member and its task's state.
///
/// Invariants: `owned` are the partitions that the consumer was told to read, in the generation `assigned_in`;
/// `topics` are those of its last join. As leader, `counts` are the partition counts of the current
/// assignment, or, if another leader made it, those that were found first. `is_outdated` is true if the coordinator
/// last answered that it knows this member in another generation.
pub(super) struct ClassicMember {
    context: MemberContext,
    cooperative: bool,
    owned: BTreeSet<TopicPartition>,
    assigned_in: i32,
    is_outdated: bool,
    topics: Vec<String>,
    counts: Option<BTreeMap<String, i32>>,
    look_at: Instant,
    next_beat: Instant,
}

impl ClassicMember {
    pub(super) fn new(context: MemberContext) -> Self {
        let cooperative =
            context.options.assignors.iter().all(|assignor| *assignor == Assignor::CooperativeSticky);
        let (owned, topics) = (BTreeSet::new(), Vec::new());
        let now = Instant::now();
        Self {
            context,
            cooperative,
            owned,
            assigned_in: NO_GENERATION,
            is_outdated: false,
            topics,
            counts: None,
            look_at: now,
            next_beat: now,
        }
    }

    /// Runs until membership fails for good, and returns the error.
    pub(super) async fn run(mut self) -> ClientError {
        loop {
            if let Err(error) = self.one_generation().await {
                return error;
            }
        }
    }

    async fn one_generation(&mut self) -> Result<(), ClientError> {
        let assigned = self.join().await?;
        let mut stir = self.apply(assigned).await?;
        if stir.is_none() {
            stir = Some(self.stay().await?);
        }
        if stir == Some(Stir::Rejoin) && !self.cooperative {
            let owned = std::mem::take(&mut self.owned);
            stir = self.give_up(owned.into_iter().collect()).await?;
        }
        if stir == Some(Stir::Lost) {
            self.lose();
        }
        Ok(())
    }

    /// Ends the membership: the group has removed the member or is in another generation. A member that the group
    /// still knows returns with its id, as with Kafka's consumers (KAFKA-13419): otherwise the group would wait for
    /// the old one.
    fn lose(&mut self) {
        self.owned.clear();
        self.assigned_in = NO_GENERATION;
        let renew = if self.is_outdated { MemberIdentity::begin_anew } else { MemberIdentity::forget };
        self.context.lose(renew);
    }

    /// The coordinator's error for a member that it does not know any more, or only in another generation.
    fn given_up(&self) -> ClientError {
        let code =
            if self.is_outdated { ErrorCode::ILLEGAL_GENERATION } else { ErrorCode::UNKNOWN_MEMBER_ID };
        ClientError::Server { code, message: None }
    }

    /// Joins and syncs until there is an assignment. Pauses after each attempt except the one by which a new member
    /// gets its id.
    async fn join(&mut self) -> Result<BTreeSet<TopicPartition>, ClientError> {
        let mut named = false;
        loop {
            let attempt = match self.join_once().await {
                Ok(joined) => self.sync_once(&joined).await,
                Err(error) => Err(error),
            };
            let error = match attempt {
                Ok(assigned) => {
                    self.context.attempts.lock().succeed();
                    return Ok(assigned);
                }
                Err(error) => error,
            };
            self.context.coordinator.note(&error);
            match error.code() {
                Some(ErrorCode::MEMBER_ID_REQUIRED) if !std::mem::replace(&mut named, true) => {}
                Some(ErrorCode::MEMBER_ID_REQUIRED | ErrorCode::REBALANCE_IN_PROGRESS) => {
                    self.context.pause().await;
                }
                Some(code @ (ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::ILLEGAL_GENERATION)) => {
                    self.is_outdated = code == ErrorCode::ILLEGAL_GENERATION;
                    self.lose();
                    self.context.pause().await;
                }
                _ if error.kind() == ErrorKind::Retry => {
                    tracing::debug!(%error, "joining the group again");
                    // Counted from here on: before the answer, the group may have waited for other members.
                    self.context.attempts.lock().fail(&error);
                    self.context.pause().await;
                }
                _ => return Err(error),
            }
        }
    }

    /// Finds the topics to tell the group of, and gives up all others: the group does not wait for that after the
    /// join, but may assign them to others in the very generation that the join leads to.
    async fn prepare(&mut self) -> Result<(), ClientError> {
        let subscription = self.context.subscribed();
        let cluster = Arc::clone(self.context.coordinator.cluster());
        let finding = subscription.topics(&cluster);
        self.topics = if self.owned.is_empty() {
            finding.await?
        } else {
            self.alive_until(finding).await?.ok_or_else(|| self.given_up())??
        };
        let topics: BTreeSet<&str> = self.topics.iter().map(String::as_str).collect();
        let (kept, left): (BTreeSet<_>, BTreeSet<_>) =
            self.owned.iter().cloned().partition(|partition| topics.contains(&*partition.topic));
        if self.give_up(left.into_iter().collect()).await? == Some(Stir::Lost) {
            return Err(self.given_up());
        }
        self.owned = kept;
        Ok(())
    }

    async fn join_once(&mut self) -> Result<Joined, ClientError> {
        self.prepare().await?;
        let metadata = self.subscription()?;
        let options = &self.context.options;
        let identity = self.context.identity.get();
        let protocols = options.assignors.iter().map(|assignor| JoinGroupRequestProtocol {
            name: assignor.name().into(),
            metadata: metadata.as_slice().into(),
        });
        let request = JoinGroupRequest {
            group_id: self.context.coordinator.group().into(),
            session_timeout_ms: wire_ms(options.session_timeout),
            rebalance_timeout_ms: wire_ms(options.rebalance_timeout),
            member_id: identity.member_id.as_str().into(),
            group_instance_id: identity.instance_id.as_deref().map(Into::into),
            protocol_type: PROTOCOL_TYPE.into(),
            protocols: protocols.collect(),
            reason: None,
        };
        let limits = CallLimits { server_wait: options.rebalance_timeout, ..CallLimits::default() };
        let frame = self.context.coordinator.call(Lane::Group, &request, limits).await?;
        let answer = frame.decode::<JoinGroupRequest<'_>>()?;
        if answer.error_code == ErrorCode::MEMBER_ID_REQUIRED.0 {
            self.context.identity.set_member(&answer.member_id);
        }
        ClientError::check(answer.error_code, None)?;
        self.context.identity.set_member(&answer.member_id);
        // From here on the group accepts heartbeats and commits of no other generation.
        self.context.identity.set_epoch(answer.generation_id);
        self.beat_later();
        let assignments = self.lead(&answer).await?;
        let protocol = answer.protocol_name.as_deref().unwrap_or_default().to_owned();
        Ok(Joined { generation: answer.generation_id, protocol, assignments })
    }

    fn subscription(&self) -> Result<Vec<u8>, ClientError> {
        let owned = by_topic(self.owned.iter().map(|partition| (partition, ())));
        let subscription = ConsumerProtocolSubscription {
            topics: self.topics.iter().map(|topic| topic.as_str().into()).collect(),
            owned_partitions: owned
                .into_iter()
                .map(|(topic, partitions)| OwnedTopic {
                    topic: topic.into(),
                    partitions: partitions.into_iter().map(|(index, ())| index).collect(),
                })
                .collect(),
            generation_id: self.assigned_in,
            rack_id: self.context.options.rack.as_deref().map(Into::into),
            ..ConsumerProtocolSubscription::default()
        };
        Ok(encode_subscription(&subscription, VERSION_MAX)?)
    }

    /// As leader: the assignment of every member, by member id. Empty where the group keeps its assignment, because a
    /// static member has only returned; the leader watches the topics all the same (KIP-814).
    async fn lead(&mut self, answer: &JoinGroupResponse<'_>) -> Result<Vec<(String, Vec<u8>)>, ClientError> {
        self.counts = None;
        self.look_later(false);
        if answer.leader != answer.member_id {
            return Ok(Vec::new());
        }
        let name = answer.protocol_name.as_deref().unwrap_or_default();
        let assignor = Assignor::from_name(name).ok_or_else(|| {
            ClientError::Invalid(format!("the group has chosen {name:?}, which this member does not know"))
        })?;
        let members = answer
            .members
            .iter()
            .map(|member| {
                read_subscriber(&member.member_id, member.group_instance_id.as_deref(), &member.metadata)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let topics: BTreeSet<String> = members.iter().flat_map(|member| member.topics.clone()).collect();
        let counts = count_partitions(self.context.coordinator.cluster(), &topics).await?;
        self.look_later(counts.len() < topics.len());
        let counts = &*self.counts.insert(counts);
        if answer.skip_assignment {
            return Ok(Vec::new());
        }
        let plan = assign(assignor, &members, counts);
        plan.into_iter().map(|(member, partitions)| Ok((member, write_assignment(&partitions)?))).collect()
    }

    async fn sync_once(&mut self, joined: &Joined) -> Result<BTreeSet<TopicPartition>, ClientError> {
        let identity = self.context.identity.get();
        let assignments = joined.assignments.iter().map(|(member, assignment)| SyncGroupRequestAssignment {
            member_id: member.as_str().into(),
            assignment: assignment.as_slice().into(),
        });
        let request = SyncGroupRequest {
            group_id: self.context.coordinator.group().into(),
            generation_id: joined.generation,
            member_id: identity.member_id.as_str().into(),
            group_instance_id: identity.instance_id.as_deref().map(Into::into),
            protocol_type: Some(PROTOCOL_TYPE.into()),
            protocol_name: Some(joined.protocol.as_str().into()),
            assignments: assignments.collect(),
        };
        let limits =
            CallLimits { server_wait: self.context.options.rebalance_timeout, ..CallLimits::default() };
        let frame = self.context.coordinator.call(Lane::Group, &request, limits).await?;
        let answer = frame.decode::<SyncGroupRequest<'_>>()?;
        ClientError::check(answer.error_code, None)?;
        let assigned = read_assignment(&answer.assignment)?;
        self.assigned_in = joined.generation;
        self.beat_later();
        Ok(assigned)
    }

    /// Passes the new assignment to the consumer; in a cooperative rebalance, revokes partitions first. Partitions
    /// outside the subscription are neither read nor kept: the subscription has changed since the join, or the group
    /// has the one of the static member's former process.
    async fn apply(&mut self, mut assigned: BTreeSet<TopicPartition>) -> Result<Option<Stir>, ClientError> {
        let assigned_count = assigned.len();
        {
            let subscription = self.context.subscription.borrow();
            assigned.retain(|partition| subscription.reads(&partition.topic));
        }
        let astray = assigned.len() < assigned_count;
        let mut stir = astray.then_some(Stir::Rejoin);
        let revoked: Vec<TopicPartition> = self.owned.difference(&assigned).cloned().collect();
        if !revoked.is_empty() {
            stir = self.give_up(revoked).await?.or(Some(Stir::Rejoin));
        }
        if stir != Some(Stir::Lost) {
            let added: Vec<TopicPartition> = assigned.difference(&self.owned).cloned().collect();
            self.owned = assigned;
            if !added.is_empty() {
                self.context.tell(GroupEvent::Assign(added));
            }
        }
        if astray {
            // After a pause: the leader may repeat that assignment.
            self.context.pause().await;
        }
        Ok(stir)
    }

    /// Waits for the consumer to give partitions up, with heartbeats meanwhile. Returns `Lost` if the group did not
    /// wait.
    async fn give_up(&mut self, partitions: Vec<TopicPartition>) -> Result<Option<Stir>, ClientError> {
        if partitions.is_empty() {
            return Ok(None);
        }
        let (done, confirmed) = oneshot::channel();
        self.context.tell(GroupEvent::Revoke { partitions, done });
        // An error here means that the consumer has dropped the event with all of its partitions.
        let confirmed = self.alive_until(confirmed).await?;
        Ok(confirmed.is_none().then_some(Stir::Lost))
    }

    /// Waits for a future, with heartbeats meanwhile. `None` if the group has removed the member.
    async fn alive_until<T>(&mut self, awaited: impl Future<Output = T>) -> Result<Option<T>, ClientError> {
        let mut awaited = pin!(awaited);
        loop {
            tokio::select! {
                done = &mut awaited => return Ok(Some(done)),
                () = sleep_until(self.next_beat) => {
                    // Not counted in `attempts`: the future may be part of one that is retried.
                    let answer = self.beat().await;
                    if meaning(answer)? == Some(Stir::Lost) {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Sends heartbeats until something happens.
    async fn stay(&mut self) -> Result<Stir, ClientError> {
        let mut look: Option<BoxFuture<'static, bool>> = None;
        loop {
            let looks = look.is_none() && (self.counts.is_some() || self.context.has_pattern());
            let look_at = self.look_at;
            let looked = async {
                match &mut look {
                    Some(look) => look.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // Heartbeats first, so that the coordinator gets them in time.
                biased;
                () = sleep_until(self.next_beat) => {
                    if let Some(stir) = self.heartbeat().await? {
                        return Ok(stir);
                    }
                }
                changed = self.context.subscription.changed() => {
                    changed.map_err(|_| ClientError::Closed)?;
                    return Ok(Stir::Rejoin);
                }
                changed = looked => {
                    look = None;
                    if changed {
                        return Ok(Stir::Rejoin);
                    }
                }
                () = sleep_until(look_at), if looks => look = Some(self.begin_look()),
            }
        }
    }

    /// Schedules the next check of the topics: as often as metadata ages, but at least after a pause.
    fn look_later(&mut self, missing: bool) {
        let options = &self.context.options.cluster;
        let age = if missing { MISSING_TOPIC_CHECK } else { options.metadata_max_age };
        self.look_at = Instant::now() + age.max(options.retry_backoff).max(LOOK_PAUSE_MIN);
    }

    /// Begins to check whether the group should have other topics or partitions, however long that takes.
    fn begin_look(&mut self) -> BoxFuture<'static, bool> {
        let counted = self.counts.clone().map(|known| {
            let topics: BTreeSet<String> = known.keys().chain(&self.topics).cloned().collect();
            (known, topics)
        });
        self.look_later(counted.as_ref().is_some_and(|(known, topics)| known.len() < topics.len()));
        let cluster = Arc::clone(self.context.coordinator.cluster());
        let (subscribed, topics) = (self.context.subscription.borrow().clone(), self.topics.clone());
        Box::pin(async move {
            topics_have_changed(&cluster, &subscribed, &topics).await
                || counts_have_changed(&cluster, counted).await
        })
    }

    fn beat_later(&mut self) {
        self.next_beat = Instant::now() + self.context.options.heartbeat_interval;
    }

    /// Sends a heartbeat. A failure that may pass is repeated soon, because the session goes on.
    async fn heartbeat(&mut self) -> Result<Option<Stir>, ClientError> {
        self.context.attempts.lock().begin(Instant::now());
        let answer = self.beat().await;
        match &answer {
            Ok(()) => self.context.attempts.lock().succeed(),
            Err(error) if error.kind() == ErrorKind::Retry => {
                let mut attempts = self.context.attempts.lock();
                attempts.fail(error);
                let again = attempts.next_at(&self.context.options.cluster, Chance::draw());
                self.next_beat = self.next_beat.min(again);
            }
            Err(_) => {}
        }
        meaning(answer)
    }

    /// Sends a heartbeat. The wait for the answer is bounded by the session timeout: for a coordinator that hangs,
    /// another is looked up, however long other requests may wait.
    async fn beat(&mut self) -> Result<(), ClientError> {
        self.beat_later();
        let identity = self.context.identity.get();
        let request = HeartbeatRequest {
            group_id: self.context.coordinator.group().into(),
            generation_id: identity.epoch,
            member_id: identity.member_id.as_str().into(),
            group_instance_id: identity.instance_id.as_deref().map(Into::into),
        };
        let limits = CallLimits { useful: self.context.options.session_timeout, ..CallLimits::default() };
        let answer = self.context.coordinator.call(Lane::Group, &request, limits).await;
        let answer = answer
            .and_then(|frame| ClientError::check(frame.decode::<HeartbeatRequest<'_>>()?.error_code, None))
            .inspect_err(|error| self.context.coordinator.note(error));
        let code = answer.as_ref().err().and_then(ClientError::code);
        self.is_outdated = code == Some(ErrorCode::ILLEGAL_GENERATION);
        answer
    }
}

/// Interprets the answer to a heartbeat.
fn meaning(answer: Result<(), ClientError>) -> Result<Option<Stir>, ClientError> {
    let Err(error) = answer else { return Ok(None) };
    match error.code() {
        Some(ErrorCode::REBALANCE_IN_PROGRESS) => Ok(Some(Stir::Rejoin)),
        Some(ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::ILLEGAL_GENERATION) => Ok(Some(Stir::Lost)),
        _ if error.kind() == ErrorKind::Retry => Ok(None),
        _ => Err(error),
    }
}

/// Number of partitions of each topic that exists.
async fn count_partitions(
    cluster: &Cluster,
    topics: &BTreeSet<String>,
) -> Result<BTreeMap<String, i32>, ClientError> {
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let answer = cluster.refresh(Some(&names), false).await?;
    let exists = answer.into_iter().flatten();
    Ok(exists.map(|topic| (topic.name.clone(), topic.partition_count())).collect())
}

/// True if the subscription now matches other topics than those of the last join.
async fn topics_have_changed(cluster: &Cluster, subscribed: &Subscription, told: &[String]) -> bool {
    if subscribed.pattern().is_none() {
        return false;
    }
    match subscribed.topics(cluster).await {
        Ok(topics) => topics.iter().collect::<BTreeSet<_>>() != told.iter().collect(),
        Err(error) => {
            tracing::debug!(%error, "the topics could not be listed");
            false
        }
    }
}

/// True if a topic has another number of partitions than the leader has assigned.
async fn counts_have_changed(
    cluster: &Cluster,
    counted: Option<(BTreeMap<String, i32>, BTreeSet<String>)>,
) -> bool {
    let Some((known, topics)) = counted else { return false };
    match count_partitions(cluster, &topics).await {
        Ok(counts) => counts != known,
        Err(error) => {
            tracing::debug!(%error, "the topics' partitions could not be counted");
            false
        }
    }
}

/// The result of a join.
struct Joined {
    generation: i32,
    protocol: String,
    /// For the leader to distribute.
    assignments: Vec<(String, Vec<u8>)>,
}

fn read_subscriber(
    member_id: &str,
    instance_id: Option<&str>,
    metadata: &[u8],
) -> Result<Subscriber, ClientError> {
    let unreadable = |error| {
        ClientError::Invalid(format!("the subscription of member {member_id} cannot be read: {error}"))
    };
    let subscription = decode_subscription(metadata).map_err(unreadable)?;
    let mut owned = Vec::new();
    for topic in &subscription.owned_partitions {
        owned.extend(topic.partitions.iter().map(|index| TopicPartition::new(&*topic.topic, *index)));
    }
    Ok(Subscriber {
        member_id: member_id.to_owned(),
        instance_id: instance_id.map(str::to_owned),
        topics: subscription.topics.iter().map(ToString::to_string).collect(),
        owned,
        generation: subscription.generation_id,
    })
}

fn write_assignment(partitions: &[TopicPartition]) -> Result<Vec<u8>, ClientError> {
    let topics = by_topic(partitions.iter().map(|partition| (partition, ())));
    let assigned_partitions = topics
        .into_iter()
        .map(|(topic, partitions)| AssignedTopic {
            topic: topic.into(),
            partitions: partitions.into_iter().map(|(index, ())| index).collect(),
        })
        .collect();
    let assignment = ConsumerProtocolAssignment { assigned_partitions, user_data: None };
    // The version that every client reads; later ones do not differ.
    Ok(encode_assignment(&assignment, 0)?)
}

/// An empty assignment is that of a member to which the leader has assigned nothing.
fn read_assignment(bytes: &[u8]) -> Result<BTreeSet<TopicPartition>, ClientError> {
    if bytes.is_empty() {
        return Ok(BTreeSet::new());
    }
    let assignment = decode_assignment(bytes)
        .map_err(|error| ClientError::Invalid(format!("the assignment cannot be read: {error}")))?;
    let mut assigned = BTreeSet::new();
    for topic in &assignment.assigned_partitions {
        assigned.extend(topic.partitions.iter().map(|index| TopicPartition::new(&*topic.topic, *index)));
    }
    Ok(assigned)
}
