//! `ConsumerGroupHeartbeat`: join, stay, leave.
//!
//! Owns the effects of a heartbeat. All checks that can refuse it come first; then the group changes, and no step
//! fails any more. One fact is known only when the group has changed: whether a member's target is more than a record
//! holds. Where that may be, the group is kept as it was until then.

use std::sync::Arc;

use riverrun_protocol::consumer_group_heartbeat_response::{
    Assignment as ResponseAssignment, TopicPartitions,
};
use riverrun_protocol::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, ErrorCode, Str};
use riverrun_types::TopicId;

use crate::assignors::Assignment;
use crate::memory::Room;
use crate::pattern::PatternTopics;
use crate::step::{OffsetsRecord, RequestContext};
use crate::time::{Moment, Now};
use crate::{GroupConfig, TopicMetadata};

use super::ConsumerGroup;
use super::changes::{Change, Recorder, pattern_bytes_max};
use super::member::{Member, MemberId, MemberState, Progress, STATIC_LEAVE_EPOCH, Subscription};
use super::reconcile::Reconciliation;
use super::request::{JOIN_EPOCH, Refusal};

/// Upper bound of the patterns of one group: each is matched against all topics whenever topics change. Kafka has no
/// such bound.
const PATTERNS_MAX: usize = 128;
/// Upper bound of the subscriptions of all members of one group, as a multiple of one member's bound. Kafka has no
/// such bound.
pub(super) const GROUP_BYTES_MULTIPLE: usize = 64;

/// The context in which a request is served.
#[derive(Clone, Copy)]
pub(crate) struct Given<'a> {
    pub(crate) now: Now,
    pub(crate) topics: &'a dyn TopicMetadata,
    pub(crate) config: &'a GroupConfig,
    /// The memory by which the group may grow.
    pub(crate) room: Room<'a>,
}

/// The relation of a request's sender to the group.
pub(super) enum Sender {
    /// It is new.
    New,
    /// It is a member.
    Member,
    /// It is a static member that comes back under a new id, in the place of this one.
    Successor(MemberId),
}

/// A member that joins or stays: its id, its former state, and its current subscription.
pub(super) struct Arrival {
    pub(super) id: MemberId,
    pub(super) sender: Sender,
    /// The member's former state, or its predecessor's.
    pub(super) before: Member,
    pub(super) subscription: Subscription,
    /// The partitions that it claims to own, if it reports any.
    pub(super) reported: Option<Assignment>,
}

impl ConsumerGroup {
    /// Serves a heartbeat that passed [`super::request::validate`]: the response, and the records of its changes.
    pub(crate) fn heartbeat(
        &mut self,
        context: &RequestContext<'_>,
        request: &ConsumerGroupHeartbeatRequest<'_>,
        given: Given<'_>,
    ) -> Result<(ConsumerGroupHeartbeatResponse<'static>, Vec<OffsetsRecord>), Refusal> {
        let mut recorder = Recorder::new(&request.group_id);
        let response = if request.member_epoch < JOIN_EPOCH {
            self.leave(context.now, request, &mut recorder)?
        } else {
            self.stay(context, request, given, &mut recorder)?
        };
        Ok((response, recorder.into_records()))
    }

    /// Extends the member's session and ignores the rest of the heartbeat, where nothing may be recorded.
    pub(super) fn keep_alive(
        &mut self,
        now: Moment,
        request: &ConsumerGroupHeartbeatRequest<'_>,
        config: &GroupConfig,
    ) {
        let id: MemberId = (&*request.member_id).into();
        let is_staying = request.member_epoch > JOIN_EPOCH;
        if is_staying && self.admit(&id, request, reported(request).as_ref()).is_ok() {
            self.timers.set_session(&id, after(now, config.consumer_session_timeout_ms));
            // The report that the member has given up partitions may be among the facts that cannot be recorded.
            if let Some(member) = self.members.get(&id)
                && member.progress.state == MemberState::UnrevokedPartitions
            {
                self.timers.set_revocation(&id, Some(after(now, member.subscription.rebalance_timeout_ms)));
            }
        }
    }

    /// Whether the group is empty of everything: it was made for a request that was then refused.
    pub(super) fn is_blank(&self) -> bool {
        self.group_epoch == 0 && self.members.is_empty()
    }

    fn leave(
        &mut self,
        now: Now,
        request: &ConsumerGroupHeartbeatRequest<'_>,
        recorder: &mut Recorder<'_>,
    ) -> Result<ConsumerGroupHeartbeatResponse<'static>, Refusal> {
        let (id, progress) = match &request.instance_id {
            Some(instance_id) => self.static_member(instance_id, &request.member_id)?,
            None => self.member(&request.member_id)?,
        };
        if request.member_epoch == STATIC_LEAVE_EPOCH {
            let away = progress.away();
            self.timers.set_revocation(&id, None);
            self.commit(Change::Progress(id, Some(away)), recorder);
        } else {
            self.fence(&[id], now, recorder);
        }
        Ok(ConsumerGroupHeartbeatResponse {
            member_id: Some(request.member_id.to_string().into()),
            member_epoch: request.member_epoch,
            ..ConsumerGroupHeartbeatResponse::default()
        })
    }

    fn stay(
        &mut self,
        context: &RequestContext<'_>,
        request: &ConsumerGroupHeartbeatRequest<'_>,
        given: Given<'_>,
        recorder: &mut Recorder<'_>,
    ) -> Result<ConsumerGroupHeartbeatResponse<'static>, Refusal> {
        let id: MemberId = if request.member_id.is_empty() {
            TopicId(context.random).to_string().into()
        } else {
            (&*request.member_id).into()
        };
        let reported = reported(request);
        let sender = self.admit(&id, request, reported.as_ref())?;
        let before = self.place_of(&id, &sender);
        let subscription = updated(&before.subscription, context, request);
        let arrival = Arrival { id, sender, before, subscription, reported };
        self.check_arrival(&arrival, given)?;
        self.take_in(&arrival, given, recorder)?;
        let Arrival { id, before, .. } = arrival;
        self.timers.set_session(&id, after(given.now.moment, given.config.consumer_session_timeout_ms));
        self.restart_revocation(&id, &before.progress, given.now.moment);
        Ok(self.response(&id, &before.progress, request, given.config))
    }

    /// The sender's former state.
    pub(super) fn place_of(&self, id: &MemberId, sender: &Sender) -> Member {
        match sender {
            Sender::New => Member::default(),
            Sender::Member => self.members.get(id).cloned().unwrap_or_default(),
            Sender::Successor(predecessor) => self.successor_of(predecessor),
        }
    }

    /// Checks that there is room for the member and its subscription.
    pub(super) fn check_arrival(&self, arrival: &Arrival, given: Given<'_>) -> Result<(), Refusal> {
        let Arrival { id, sender, before, subscription, .. } = arrival;
        self.check_room(sender, given.config)?;
        self.check_subscription(&before.subscription, subscription, given.topics, given.config)?;
        let known = (!matches!(sender, Sender::New)).then_some(&before.subscription);
        let checked = self.check_memory(id, known, subscription, given.topics, given.room);
        checked.map_err(Refusal::no_memory)
    }

    /// Takes over the member's subscription, moves the group on, and moves the member towards its target. Where that is
    /// refused the group is as it was, and the caller drops the records.
    pub(super) fn take_in(
        &mut self,
        arrival: &Arrival,
        given: Given<'_>,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), Refusal> {
        let Arrival { id, sender, before, subscription, reported } = arrival;
        let may_fail = self.may_outgrow_record(&before.subscription, subscription, given);
        let group_before = may_fail.then(|| self.clone());
        if let Sender::Successor(predecessor) = sender {
            self.succeed(predecessor, id, before.clone(), recorder);
        }
        let has_changed = self.update_subscription(id, sender, before, subscription.clone(), recorder);
        if let (Err(refusal), Some(group_before)) = (self.move_on(has_changed, given, recorder), group_before)
        {
            *self = group_before;
            return Err(refusal);
        }
        self.reconcile(id, has_changed, reported.as_ref(), given.topics, recorder);
        Ok(())
    }

    /// Updates the topics that the group reads, and makes a new target if it is time for one. The error says why there
    /// is none.
    pub(super) fn move_on(
        &mut self,
        subscription_changed: bool,
        given: Given<'_>,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), Refusal> {
        let patterns_changed = self.refresh_patterns(given, recorder);
        self.refresh_epoch(subscription_changed || patterns_changed, given.topics, recorder);
        self.refresh_target(given, recorder)
    }

    /// Checks whether there may be one more member, if the sender would be one.
    fn check_room(&self, sender: &Sender, config: &GroupConfig) -> Result<(), Refusal> {
        if self.members.len() < config.consumer_max_size || !matches!(sender, Sender::New) {
            return Ok(());
        }
        let message = format!("the group has {} members, and may have no more", self.members.len());
        Err(Refusal::new(ErrorCode::GROUP_MAX_SIZE_REACHED, message))
    }

    /// Determines the sender and checks whether it may join or stay.
    fn admit(
        &self,
        id: &MemberId,
        request: &ConsumerGroupHeartbeatRequest<'_>,
        reported: Option<&Assignment>,
    ) -> Result<Sender, Refusal> {
        let is_joining = request.member_epoch == JOIN_EPOCH;
        let is_here = |member: &&Member| member.progress.epoch != STATIC_LEAVE_EPOCH;
        if is_joining && let Some(known) = self.members.get(id).filter(is_here) {
            return admit_again(known, request.instance_id.as_deref());
        }
        if is_joining && let Some(instance_id) = &request.instance_id {
            return self.admit_static(instance_id);
        }
        if is_joining {
            return Ok(Sender::New);
        }
        let (_, progress) = match &request.instance_id {
            Some(instance_id) => self.static_member(instance_id, id)?,
            None => self.member(id)?,
        };
        check_epoch(request.member_epoch, progress, reported)?;
        Ok(Sender::Member)
    }

    /// A static member that joins takes its place back, but only once the place has been left; unless the place is a
    /// classic member's, which cannot tell that it leaves for a while.
    fn admit_static(&self, instance_id: &str) -> Result<Sender, Refusal> {
        let Some(predecessor) = self.static_members.get(instance_id) else { return Ok(Sender::New) };
        let is_free = |member: &Member| member.is_classic() || member.progress.epoch == STATIC_LEAVE_EPOCH;
        if self.members.get(predecessor).is_none_or(is_free) {
            return Ok(Sender::Successor(Arc::clone(predecessor)));
        }
        let message = format!("the instance id {instance_id:?} is in use by member {predecessor}");
        Err(Refusal::new(ErrorCode::UNRELEASED_INSTANCE_ID, message))
    }

    pub(super) fn member(&self, id: &str) -> Result<(MemberId, &Progress), Refusal> {
        let member = self.members.get_key_value(id);
        let found = member.map(|(id, member)| (Arc::clone(id), &member.progress));
        found.ok_or_else(|| Refusal::no_member(id))
    }

    pub(super) fn static_member(
        &self,
        instance_id: &str,
        id: &str,
    ) -> Result<(MemberId, &Progress), Refusal> {
        let Some(holder) = self.static_members.get(instance_id) else {
            let message = format!("the group has no member with the instance id {instance_id:?}");
            return Err(Refusal::new(ErrorCode::UNKNOWN_MEMBER_ID, message));
        };
        if **holder != *id {
            let message = format!("the instance id {instance_id:?} is in use by member {holder}");
            return Err(Refusal::new(ErrorCode::FENCED_INSTANCE_ID, message));
        }
        self.member(id)
    }

    fn check_subscription(
        &self,
        before: &Subscription,
        after: &Subscription,
        topics: &dyn TopicMetadata,
        config: &GroupConfig,
    ) -> Result<(), Refusal> {
        let (size_bytes, record_bytes) = (after.size_bytes(), after.record_bytes());
        if record_bytes > config.group_metadata_max_bytes {
            let message = format!("a subscription of {record_bytes} bytes is too large");
            return Err(Refusal::new(ErrorCode::INVALID_REQUEST, message));
        }
        let total_bytes = (self.subscription_bytes + size_bytes).saturating_sub(before.size_bytes());
        let is_too_much = total_bytes > config.group_metadata_max_bytes.saturating_mul(GROUP_BYTES_MULTIPLE);
        if is_too_much && size_bytes > before.size_bytes() {
            let message = "the group's members together subscribe to more than it may hold";
            return Err(Refusal::new(ErrorCode::GROUP_MAX_SIZE_REACHED, message));
        }
        match &after.pattern {
            Some(pattern) if !self.pattern_users.contains_key(pattern) => {
                self.check_pattern(pattern, topics, config)
            }
            _ => Ok(()),
        }
    }

    fn check_pattern(
        &self,
        pattern: &str,
        topics: &dyn TopicMetadata,
        config: &GroupConfig,
    ) -> Result<(), Refusal> {
        let invalid = match topics.topics_of_pattern(pattern) {
            PatternTopics::Invalid(why) => Some(format!("is not valid: {why}")),
            PatternTopics::Known(names) if pattern_bytes_max(&names) > config.group_metadata_max_bytes => {
                Some(format!("matches {} topics, whose names are more than a record can hold", names.len()))
            }
            PatternTopics::Known(_) | PatternTopics::Pending => None,
        };
        if let Some(why) = invalid {
            let message = format!("the subscription's regular expression {why}");
            return Err(Refusal::new(ErrorCode::INVALID_REGULAR_EXPRESSION, message));
        }
        if self.pattern_users.len() < PATTERNS_MAX {
            return Ok(());
        }
        let message =
            format!("the group subscribes with {PATTERNS_MAX} regular expressions, and may have no more");
        Err(Refusal::new(ErrorCode::GROUP_MAX_SIZE_REACHED, message))
    }

    /// The member that takes over the place of a static one: it starts at epoch 0 with the same partitions.
    fn successor_of(&self, predecessor: &MemberId) -> Member {
        let mut member = self.members.get(predecessor).cloned().unwrap_or_default();
        member.progress.epoch = JOIN_EPOCH;
        member.progress.previous_epoch = JOIN_EPOCH;
        member
    }

    fn succeed(
        &mut self,
        predecessor: &MemberId,
        id: &MemberId,
        member: Member,
        recorder: &mut Recorder<'_>,
    ) {
        let target = self.targets.get(predecessor).cloned().unwrap_or_default();
        self.remove_with_records(predecessor, recorder);
        self.commit(Change::Member(Arc::clone(id), Some(member.subscription)), recorder);
        self.commit(Change::Target(Arc::clone(id), Some(target)), recorder);
        self.commit(Change::Progress(Arc::clone(id), Some(member.progress)), recorder);
    }

    /// Takes over the member's subscription; returns whether it reads other topics than before.
    fn update_subscription(
        &mut self,
        id: &MemberId,
        sender: &Sender,
        before: &Member,
        subscription: Subscription,
        recorder: &mut Recorder<'_>,
    ) -> bool {
        let is_new = matches!(sender, Sender::New);
        if !is_new && subscription == before.subscription {
            return false;
        }
        let has_changed = is_new || !subscription.has_same_topics(&before.subscription);
        self.commit(Change::Member(Arc::clone(id), Some(subscription)), recorder);
        self.drop_unused_patterns(recorder);
        has_changed
    }

    fn reconcile(
        &mut self,
        id: &MemberId,
        subscription_changed: bool,
        reported: Option<&Assignment>,
        topics: &dyn TopicMetadata,
        recorder: &mut Recorder<'_>,
    ) {
        let Some(member) = self.members.get(id) else { return };
        let is_done =
            member.progress.state == MemberState::Stable && member.progress.epoch == self.assignment_epoch;
        if is_done && !subscription_changed {
            return;
        }
        let nothing = Assignment::new();
        let next = Reconciliation {
            progress: &member.progress,
            target_epoch: self.assignment_epoch,
            target: self.targets.get(id).unwrap_or(&nothing),
            subscribed: &self.subscribed_ids(&member.subscription, topics),
            subscription_changed,
            reported,
            is_free: &|partition| self.holders.get(partition).is_none_or(|holder| holder == id),
        };
        let next = next.next();
        if next != member.progress {
            self.commit(Change::Progress(Arc::clone(id), Some(next)), recorder);
        }
    }

    /// A member that was told to give up partitions has its rebalance timeout for it, from the last new instruction
    /// on.
    fn restart_revocation(&mut self, id: &MemberId, before: &Progress, now: Moment) {
        let Some(member) = self.members.get(id) else { return };
        if member.progress.state != MemberState::UnrevokedPartitions {
            self.timers.set_revocation(id, None);
        } else if member.progress != *before {
            let deadline = after(now, member.subscription.rebalance_timeout_ms);
            self.timers.set_revocation(id, Some(deadline));
        }
    }

    /// The assignment is only sent to a member that joins, asks for everything, or has another one than before.
    fn response(
        &self,
        id: &MemberId,
        before: &Progress,
        request: &ConsumerGroupHeartbeatRequest<'_>,
        config: &GroupConfig,
    ) -> ConsumerGroupHeartbeatResponse<'static> {
        let progress = self.members.get(id).map(|member| &member.progress);
        let is_subscribing =
            request.subscribed_topic_names.is_some() || request.subscribed_topic_regex.is_some();
        let is_full =
            request.rebalance_timeout_ms != -1 && is_subscribing && request.topic_partitions.is_some();
        let tells = request.member_epoch == JOIN_EPOCH || is_full;
        let told = progress.filter(|progress| tells || !progress.has_same_assignment(before));
        ConsumerGroupHeartbeatResponse {
            member_id: Some(id.to_string().into()),
            member_epoch: progress.map_or(0, |progress| progress.epoch),
            heartbeat_interval_ms: config.consumer_heartbeat_interval_ms,
            assignment: told.map(assignment),
            ..ConsumerGroupHeartbeatResponse::default()
        }
    }
}

/// A member that joins again under its id did not get the answer to its join, or has restarted. It stays the same
/// member. That includes a static one, which Kafka refuses while it has not left.
fn admit_again(known: &Member, instance_id: Option<&str>) -> Result<Sender, Refusal> {
    if known.subscription.instance_id.as_deref() == instance_id {
        return Ok(Sender::Member);
    }
    let message = "a member that joins again has the same instance id as before, or none as before";
    Err(Refusal::new(ErrorCode::INVALID_REQUEST, message))
}

/// The partitions that the member claims to own, if it reports any.
fn reported(request: &ConsumerGroupHeartbeatRequest<'_>) -> Option<Assignment> {
    let topics = request.topic_partitions.as_ref()?;
    let topics = topics.iter().filter(|topic| !topic.partitions.is_empty());
    Some(topics.map(|topic| (topic.topic_id, topic.partitions.iter().copied().collect())).collect())
}

/// A heartbeat has the epoch that was last sent to the member, or the one before if the response got lost; then the
/// member cannot own partitions that it was not told of.
fn check_epoch(received: i32, progress: &Progress, reported: Option<&Assignment>) -> Result<(), Refusal> {
    let is_retry =
        || received == progress.previous_epoch && reported.is_some_and(|reported| progress.covers(reported));
    if received == progress.epoch || (received < progress.epoch && is_retry()) {
        return Ok(());
    }
    let message = format!("the member epoch is {}, not {received}; join again", progress.epoch);
    Err(Refusal::new(ErrorCode::FENCED_MEMBER_EPOCH, message))
}

/// The member's subscription after this request: fields that are null have not changed.
fn updated(
    before: &Subscription,
    context: &RequestContext<'_>,
    request: &ConsumerGroupHeartbeatRequest<'_>,
) -> Subscription {
    let newer = |new: &Option<Str<'_>>, old: &Option<String>| {
        new.as_ref().map(ToString::to_string).or_else(|| old.clone())
    };
    let names = request.subscribed_topic_names.as_ref();
    let topics = names.map(|names| Arc::new(names.iter().map(ToString::to_string).collect()));
    let pattern = newer(&request.subscribed_topic_regex, &before.pattern);
    let timeout_ms = request.rebalance_timeout_ms;
    Subscription {
        instance_id: newer(&request.instance_id, &before.instance_id),
        rack_id: newer(&request.rack_id, &before.rack_id),
        client_id: context.client_id.to_owned(),
        client_host: context.client_host.to_owned(),
        topics: topics.unwrap_or_else(|| Arc::clone(&before.topics)),
        pattern: pattern.filter(|pattern| !pattern.is_empty()),
        rebalance_timeout_ms: if timeout_ms == -1 { before.rebalance_timeout_ms } else { timeout_ms },
        server_assignor: newer(&request.server_assignor, &before.server_assignor),
        classic: None,
    }
}

fn assignment(progress: &Progress) -> ResponseAssignment {
    let topics = progress
        .assigned
        .iter()
        .map(|(&topic_id, epochs)| TopicPartitions { topic_id, partitions: epochs.indexes().collect() });
    ResponseAssignment { topic_partitions: topics.collect() }
}

/// The time `delay_ms` after `now`.
pub(super) fn after(now: Moment, delay_ms: i32) -> Moment {
    now.after(i64::from(delay_ms.max(0)))
}
