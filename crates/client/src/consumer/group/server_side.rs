//! A member of a KIP-848 group: one heartbeat carries everything, and the server computes the assignment.
//!
//! The member reports its partitions; the server answers with its target assignment. The member first gives up
//! revoked partitions and reports that, and then takes new ones, so that no partition has two readers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use riverrun_protocol::consumer_group_heartbeat_request::TopicPartitions;
use riverrun_protocol::{ApiKey, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, ErrorCode};
use riverrun_types::{ErrorKind, TopicId};
use tokio::sync::oneshot;
use tokio::time::{Duration, Instant, sleep_until};

use super::departure::leave_server_side;
use super::{GroupEvent, MemberContext};
use crate::cluster::Lane;
use crate::connection::{CallLimits, wire_ms};
use crate::error::ClientError;
use crate::retry::Chance;
use crate::topic_partition::TopicPartition;

/// Time between heartbeats until the server has sent its own interval.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// First version of the heartbeat with patterns.
const PATTERNS_SINCE: i16 = 1;
/// Shortest time between two checks of the topics, however soon metadata ages.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(100);

/// Partitions by topic id, as the wire has them.
type ById = BTreeMap<TopicId, BTreeSet<i32>>;

/// Names of topics, requested by id or found by listing all.
type Naming = BoxFuture<'static, Result<Vec<(TopicId, String)>, ClientError>>;

/// How much the next heartbeat contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Detail {
    /// Only that the member is alive.
    Life,
    /// Its partitions, too.
    Owned,
    /// Every field, as in the first heartbeat.
    Everything,
}

/// The partitions that the consumer is giving up, and those that it will have afterwards.
struct Revocation {
    confirmed: oneshot::Receiver<()>,
    left: ById,
}

/// A member and its task's state. Waits only for its heartbeats; other requests run beside them, so that the
/// coordinator gets heartbeats in time.
///
/// Invariants: `owned` are the partitions that the consumer was told to read and has not confirmed to have given up,
/// and `names` has the names of all of them. During a revocation no new partition is taken. `look_at` is set if, and
/// only if, this member finds the topics of the subscribed pattern itself; `topics` are of that pattern unless it
/// `is_resolving`.
pub(super) struct ServerSideMember {
    context: MemberContext,
    owned: ById,
    target: Option<ById>,
    names: BTreeMap<TopicId, String>,
    /// The request for topic names that is in flight.
    naming: Option<Naming>,
    /// Topics without a name in the last answer, and when to request them again.
    asked: BTreeSet<TopicId>,
    ask_at: Instant,
    revocation: Option<Revocation>,
    interval: Duration,
    next_beat: Instant,
    detail: Detail,
    /// True if the group may have this member although the member does not know: a join or leave got no answer, or
    /// its epoch was lost.
    may_be_in: bool,
    /// The topics by name that the server was sent.
    topics: Vec<String>,
    /// True if the server may have been sent a pattern, by this member or by the former process of a static member.
    told_pattern: bool,
    /// When to search for the topics of a pattern that the server does not support.
    look_at: Option<Instant>,
    /// The search in progress. Heartbeats go on meanwhile, however long it takes.
    look: Option<BoxFuture<'static, Result<Vec<String>, ClientError>>>,
    /// The topics that the search has found, if they differ from those that the server was sent and the subscription
    /// is unchanged.
    found: Option<Vec<String>>,
    /// True while a member searches the topics of its subscription for the first time. Its heartbeats leave them out
    /// until then.
    is_resolving: bool,
}

/// The subscription fields of a heartbeat.
struct Said {
    topics: Vec<String>,
    /// `None` leaves the pattern out; an empty one cancels it.
    pattern: Option<String>,
}

impl ServerSideMember {
    pub(super) fn new(context: MemberContext) -> Self {
        let is_static = context.options.instance_id.is_some();
        // A member with an id was in the group before, and the coordinator has not received its leave request.
        let may_be_in = !context.identity.get().member_id.is_empty();
        Self {
            context,
            owned: ById::new(),
            target: None,
            names: BTreeMap::new(),
            naming: None,
            asked: BTreeSet::new(),
            ask_at: Instant::now(),
            revocation: None,
            interval: HEARTBEAT_INTERVAL,
            next_beat: Instant::now(),
            detail: Detail::Everything,
            may_be_in,
            topics: Vec::new(),
            told_pattern: is_static,
            look_at: None,
            look: None,
            found: None,
            is_resolving: false,
        }
    }

    /// Runs until membership fails for good, and returns the error.
    pub(super) async fn run(mut self) -> ClientError {
        if !self.may_be_in {
            self.context.identity.set_member(&new_member_id());
        }
        self.context.identity.set_epoch(0);
        loop {
            let stepped = match self.beat().await {
                Ok(()) => {
                    self.reconcile();
                    Ok(())
                }
                Err(error) => self.recover(error).await,
            };
            let waited = match stepped {
                Ok(()) => self.wait().await,
                Err(error) => Err(error),
            };
            if let Err(error) = waited {
                return error;
            }
        }
    }

    /// Waits until the next heartbeat is due, or until an event requires one earlier.
    async fn wait(&mut self) -> Result<(), ClientError> {
        let (look_at, looks) = (self.look_at, self.look.is_none());
        let look = async {
            match &mut self.look {
                Some(look) => look.await,
                None => std::future::pending().await,
            }
        };
        let naming = async {
            match &mut self.naming {
                Some(naming) => naming.await,
                None => std::future::pending().await,
            }
        };
        let revocation = async {
            match &mut self.revocation {
                Some(revocation) => (&mut revocation.confirmed).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep_until(self.next_beat) => {}
            changed = self.context.subscription.changed() => {
                changed.map_err(|_| ClientError::Closed)?;
                self.detail = Detail::Everything;
                self.forget_look();
            }
            learnt = naming => {
                self.naming = None;
                match learnt {
                    Ok(names) => self.names.extend(names),
                    Err(error) if error.kind() == ErrorKind::Retry => {
                        tracing::debug!(%error, "topic names could not be fetched");
                    }
                    Err(error) => return Err(error),
                }
            }
            found = look => {
                self.look = None;
                self.looked(found)?;
            }
            () = sleep_until(look_at.unwrap_or(self.next_beat)), if looks && look_at.is_some() => {
                self.begin_look();
            }
            // An error means that the consumer has dropped the event with all of its partitions.
            _ = revocation => {
                if let Some(revocation) = self.revocation.take() {
                    self.owned = revocation.left;
                    self.detail = self.detail.max(Detail::Owned);
                }
            }
        }
        Ok(())
    }

    async fn beat(&mut self) -> Result<(), ClientError> {
        let now = Instant::now();
        self.next_beat = now + self.interval;
        self.context.attempts.lock().begin(now);
        let said = if self.detail == Detail::Everything { self.subscribed().await? } else { None };
        let pattern = said.as_ref().and_then(|said| said.pattern.clone());
        let takes_back = pattern.as_deref() == Some("");
        // Even if no answer comes.
        self.told_pattern |= pattern.is_some();
        let identity = self.context.identity.get();
        let options = &self.context.options;
        let first = said.is_some();
        let names = |said: &Said| said.topics.iter().map(|topic| topic.clone().into()).collect();
        let request = ConsumerGroupHeartbeatRequest {
            group_id: self.context.coordinator.group().into(),
            member_id: identity.member_id.as_str().into(),
            member_epoch: identity.epoch,
            instance_id: identity.instance_id.as_deref().filter(|_| first).map(Into::into),
            rack_id: options.rack.as_deref().filter(|_| first).map(Into::into),
            rebalance_timeout_ms: if first { wire_ms(options.rebalance_timeout) } else { -1 },
            subscribed_topic_names: said.as_ref().map(names),
            subscribed_topic_regex: pattern.map(Into::into),
            server_assignor: options.server_assignor.as_deref().filter(|_| first).map(Into::into),
            topic_partitions: (self.detail >= Detail::Owned).then(|| wire_partitions(&self.owned)),
        };
        let frame = self.context.coordinator.call(Lane::Group, &request, CallLimits::default()).await?;
        let answer = frame.decode::<ConsumerGroupHeartbeatRequest<'_>>()?;
        ClientError::check(answer.error_code, answer.error_message.as_deref())?;
        self.learn(&answer);
        self.told_pattern &= !takes_back;
        self.may_be_in = false;
        if !self.is_resolving {
            self.context.attempts.lock().succeed();
        }
        Ok(())
    }

    /// The subscription in the form that this server supports: a pattern, or the topics that match it. `None` while a
    /// member still searches these: waiting here would delay its heartbeats beyond the session timeout. A client that
    /// is not a member yet simply waits.
    async fn subscribed(&mut self) -> Result<Option<Said>, ClientError> {
        if self.context.subscription.has_changed().is_ok_and(|changed| changed) {
            self.forget_look();
        }
        let subscription = self.context.subscribed();
        let coordinator = &self.context.coordinator;
        let takes_patterns = (subscription.pattern().is_some() || self.told_pattern)
            && coordinator.version_of(Lane::Group, ApiKey::ConsumerGroupHeartbeat).await? >= PATTERNS_SINCE;
        if let Some(pattern) = subscription.pattern().filter(|_| takes_patterns) {
            let pattern = Some(pattern.text.clone());
            self.forget_look();
            self.topics.clear();
            return Ok(Some(Said { topics: Vec::new(), pattern }));
        }
        let is_member = self.context.identity.get().epoch > 0;
        if let Some(found) = self.found.take() {
            (self.topics, self.is_resolving) = (found, false);
        } else if is_member && subscription.pattern().is_some() && self.look_at.is_none() {
            self.is_resolving = true;
            self.begin_look();
        } else if self.look_at.is_none() || (self.is_resolving && !is_member) {
            self.topics = subscription.topics(coordinator.cluster()).await?;
            self.forget_look();
            if subscription.pattern().is_some() {
                self.look_later();
            }
        }
        if self.is_resolving {
            return Ok(None);
        }
        let takes_back = self.told_pattern && takes_patterns;
        Ok(Some(Said { topics: self.topics.clone(), pattern: takes_back.then(String::new) }))
    }

    /// Cancels the search and its result: they belong to another subscription.
    fn forget_look(&mut self) {
        (self.look_at, self.look, self.found, self.is_resolving) = (None, None, None, false);
    }

    fn look_later(&mut self) {
        let age = self.context.options.cluster.metadata_max_age.max(LOOK_PAUSE_MIN);
        self.look_at = Some(Instant::now() + age);
    }

    /// Begins to check whether the pattern matches other topics than the server was sent.
    fn begin_look(&mut self) {
        self.look_later();
        let subscription = self.context.subscription.borrow().clone();
        let cluster = Arc::clone(self.context.coordinator.cluster());
        self.look = Some(Box::pin(async move { subscription.topics(&cluster).await }));
    }

    fn looked(&mut self, found: Result<Vec<String>, ClientError>) -> Result<(), ClientError> {
        match found {
            Ok(topics) if topics == self.topics && !self.is_resolving => {}
            Ok(topics) => {
                self.found = Some(topics);
                self.detail = Detail::Everything;
            }
            Err(error) if self.is_resolving && error.kind() != ErrorKind::Retry => return Err(error),
            Err(error) => {
                tracing::debug!(%error, "the topics could not be listed");
                if self.is_resolving {
                    let mut attempts = self.context.attempts.lock();
                    attempts.fail(&error);
                    self.look_at = Some(attempts.next_at(&self.context.options.cluster, Chance::draw()));
                }
            }
        }
        Ok(())
    }

    fn learn(&mut self, answer: &ConsumerGroupHeartbeatResponse<'_>) {
        if let Some(member_id) = answer.member_id.as_deref() {
            self.context.identity.set_member(member_id);
        }
        self.context.identity.set_epoch(answer.member_epoch);
        self.detail = Detail::Life;
        if let Ok(interval) = u64::try_from(answer.heartbeat_interval_ms)
            && interval > 0
        {
            self.interval = Duration::from_millis(interval);
            self.next_beat = Instant::now() + self.interval;
        }
        if let Some(assignment) = &answer.assignment {
            let mut target = ById::new();
            for topic in &assignment.topic_partitions {
                target.entry(topic.topic_id).or_default().extend(&topic.partitions);
            }
            self.target = Some(target);
        }
    }

    /// Handles an error of a heartbeat.
    async fn recover(&mut self, error: ClientError) -> Result<(), ClientError> {
        self.context.coordinator.note(&error);
        match error.code() {
            Some(ErrorCode::FENCED_MEMBER_EPOCH | ErrorCode::UNKNOWN_MEMBER_ID) => self.lose(),
            // The group was deleted, which is possible while it has no members. For a joining member, the error means
            // a group of the other protocol.
            Some(ErrorCode::GROUP_ID_NOT_FOUND) if self.context.identity.get().epoch > 0 => self.lose(),
            Some(ErrorCode::UNRELEASED_INSTANCE_ID) if self.may_be_in => self.release(error).await?,
            _ if error.kind() == ErrorKind::Retry => {
                tracing::debug!(%error, "a heartbeat failed");
                self.may_be_in |= self.context.identity.get().epoch == 0;
                self.context.attempts.lock().fail(&error);
            }
            _ => return Err(error),
        }
        // The answer may have carried an assignment: a full heartbeat makes the server repeat it.
        self.detail = Detail::Everything;
        self.next_beat = self.context.attempts.lock().next_at(&self.context.options.cluster, Chance::draw());
        Ok(())
    }

    /// Ends the membership: the group has removed the member.
    fn lose(&mut self) {
        self.owned.clear();
        (self.target, self.revocation) = (None, None);
        self.may_be_in = true;
        self.context.lose(|member| member.epoch = 0);
    }

    /// Leaves the group in the name of this member's instance id, so that it can join as another member. That
    /// succeeds only for this member's own place: otherwise this returns the error that led here.
    async fn release(&mut self, unreleased: ClientError) -> Result<(), ClientError> {
        let left = leave_server_side(&self.context.coordinator, &self.context.identity.get()).await;
        match left {
            Ok(()) => self.context.identity.set_member(&new_member_id()),
            // The session of that place has timed out meanwhile.
            Err(error) if is_free(&error) => self.context.identity.set_member(&new_member_id()),
            Err(error) if error.kind() == ErrorKind::Retry => self.context.attempts.lock().fail(&error),
            Err(_) => return Err(unreleased),
        }
        Ok(())
    }

    /// Makes one step towards the target assignment.
    fn reconcile(&mut self) {
        if self.revocation.is_some() {
            return;
        }
        let Some(target) = self.target.take() else { return };
        let gone = difference(&self.owned, &target);
        if !gone.is_empty() {
            let (done, confirmed) = oneshot::channel();
            let partitions = self.named(&gone);
            self.context.tell(GroupEvent::Revoke { partitions, done });
            self.revocation = Some(Revocation { confirmed, left: difference(&self.owned, &gone) });
            self.target = Some(target);
            return;
        }
        let mut added = difference(&target, &self.owned);
        let is_unnamed = |id: &&TopicId| !self.names.contains_key(id);
        let unnamed: BTreeSet<TopicId> = added.keys().filter(is_unnamed).copied().collect();
        added.retain(|id, _| self.names.contains_key(id));
        if !added.is_empty() {
            self.context.tell(GroupEvent::Assign(self.named(&added)));
            for (id, partitions) in added {
                self.owned.entry(id).or_default().extend(partitions);
            }
            self.detail = self.detail.max(Detail::Owned);
            self.next_beat = Instant::now();
        }
        if !unnamed.is_empty() {
            self.target = Some(target);
            self.begin_naming(unnamed);
        }
    }

    /// Requests the names of topics that the server names by id: only subscribed topics are possible. Unknown ids are
    /// requested again about as often as heartbeats are sent; new ones at once.
    fn begin_naming(&mut self, unnamed: BTreeSet<TopicId>) {
        let now = Instant::now();
        let is_asked = now < self.ask_at && unnamed.is_subset(&self.asked);
        if self.naming.is_some() || is_asked {
            return;
        }
        (self.asked, self.ask_at) = (unnamed, now + self.interval);
        let cluster = Arc::clone(self.context.coordinator.cluster());
        // With a pattern, only the server knows which topics match.
        let asked = (!self.context.has_pattern()).then(|| self.topics.clone());
        self.naming = Some(Box::pin(async move {
            let names: Option<Vec<&str>> =
                asked.as_ref().map(|names| names.iter().map(String::as_str).collect());
            let answer = cluster.refresh(names.as_deref(), false).await?;
            Ok(answer.into_iter().flatten().map(|topic| (topic.id, topic.name.clone())).collect())
        }));
    }

    fn named(&self, partitions: &ById) -> Vec<TopicPartition> {
        let mut named = Vec::new();
        for (id, indexes) in partitions {
            if let Some(name) = self.names.get(id) {
                named.extend(indexes.iter().map(|index| TopicPartition::new(name.as_str(), *index)));
            }
        }
        named
    }
}

/// True if no member has the instance id any more.
fn is_free(error: &ClientError) -> bool {
    matches!(error.code(), Some(ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::GROUP_ID_NOT_FOUND))
}

/// The partitions in `one` and not in `other`.
fn difference(one: &ById, other: &ById) -> ById {
    one.iter()
        .map(|(id, indexes)| match other.get(id) {
            Some(without) => (*id, indexes.difference(without).copied().collect()),
            None => (*id, indexes.clone()),
        })
        .filter(|(_, indexes): &(TopicId, BTreeSet<i32>)| !indexes.is_empty())
        .collect()
}

fn wire_partitions(partitions: &ById) -> Vec<TopicPartitions> {
    partitions
        .iter()
        .map(|(topic_id, indexes)| TopicPartitions {
            topic_id: *topic_id,
            partitions: indexes.iter().copied().collect(),
        })
        .collect()
}

/// A member generates its own id, of 128 random bits in the form of topic ids.
fn new_member_id() -> String {
    let mut id = [0; 16];
    if getrandom::fill(&mut id).is_err() {
        // Without the system's randomness the server generates the id.
        return String::new();
    }
    TopicId(id).to_string()
}
