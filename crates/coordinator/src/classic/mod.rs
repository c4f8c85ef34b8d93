//! Groups of the classic protocol: members join, the coordinator picks a protocol and a leader, the leader assigns.
//!
//! Owns the state of one group and the rules that every request checks. `join` handles JoinGroup, `sync` SyncGroup,
//! `session` heartbeats, leaving and commits; `rebalance` moves the group from state to state, `timers` acts on
//! deadlines, `persist` writes and restores the group, and `convert` changes its protocol. A *classic member* of a
//! KIP-848 group belongs to `consumer`.
//!
//! ```text
//!            join                all joined, or timeout             leader's sync
//!   Empty --------> Preparing ----------------------------> Completing ----------> Stable
//!     ^             Rebalance <---------------------------- Rebalance               |
//!     |  no members   |  ^       join, leave, expiry                                |
//!     +---------------+  +----------------------------------------------------------+
//! ```

mod convert;
mod join;
mod member;
mod persist;
mod rebalance;
mod session;
mod sync;
mod timers;
mod topic_names;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use riverrun_protocol::{ErrorCode, consumer_protocol};

use crate::GroupConfig;
use crate::group::Committer;
use crate::memory::{Room, Shortage};
use crate::step::{OffsetsRecord, Step};
use crate::time::{Ages, Moment, Now, Stamp};

pub(crate) use join::{MEMBER_ID_REQUIRED_VERSION, distinct_names, join_error, join_refusal};
use member::FIRST_MEMBER_BYTES;
pub(crate) use member::{
    Member, MemberId, Parked, Protocol, Terms, kept_client_id, new_member_id, protocols_bytes,
    requested_bytes,
};
pub(crate) use session::leave_response;
pub(crate) use sync::sync_error;
#[cfg(test)]
pub(crate) use tests::check_invariants;
use topic_names::TopicNames;

/// Copies of members' protocols: as they came, and the set of topics that is read from them, in which a name takes at
/// most twice its size.
const PROTOCOL_COPIES: usize = 3;

/// The state of a classic group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No members; offsets may remain.
    Empty,
    /// Members are joining.
    PreparingRebalance,
    /// All have joined; the leader's assignment is awaited.
    CompletingRebalance,
    /// Each member may fetch its assignment.
    Stable,
}

impl State {
    /// The state's name on the wire.
    fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

/// The timer that ends the joining phase at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinTimer {
    /// The first rebalance of an empty group: wait a little for more members, and again if some came.
    Initial {
        /// When the wait ends.
        at: Moment,
        /// Length of this wait.
        delay_ms: i64,
        /// Time by which it may be prolonged.
        remaining_ms: i64,
    },
    /// Members that have not rejoined by then are removed.
    Rebalance {
        /// When.
        at: Moment,
    },
}

impl JoinTimer {
    /// When the timer fires.
    fn at(self) -> Moment {
        match self {
            Self::Initial { at, .. } | Self::Rebalance { at } => at,
        }
    }
}

/// Applies one input to a group: its time, the options, and the step that it leads to.
pub(crate) struct StepBuilder<'a> {
    /// Now.
    pub(crate) now: Now,
    /// The options.
    pub(crate) config: &'a GroupConfig,
    /// The step so far.
    pub(crate) step: Step,
    /// The memory by which the group may grow; unset for inputs that do not let it grow.
    room: Option<Room<'a>>,
}

impl<'a> StepBuilder<'a> {
    /// A builder with an empty step.
    pub(crate) fn new(now: Now, config: &'a GroupConfig) -> Self {
        Self { now, config, step: Step::default(), room: None }
    }

    /// The same, for an input that may let the group grow.
    pub(crate) fn within(self, room: Room<'a>) -> Self {
        Self { room: Some(room), ..self }
    }

    /// Checks whether the group may take `group_bytes` of memory.
    fn check_room(&self, group_bytes: usize) -> Result<(), Shortage> {
        self.room.map_or(Ok(()), |room| room.check(group_bytes))
    }

    /// The moment `ms` from now, but never now itself: a timeout of zero would be due again while it is handled.
    fn after(&self, ms: i64) -> Moment {
        self.now.moment.after(ms.max(1))
    }
}

/// A classic group.
///
/// Invariants:
/// - `Empty` if and only if a completed rebalance left no members (a group in `PreparingRebalance` may have none for
///   a moment).
/// - The leader is a member, and there is one if there are members.
/// - `awaiting_join` counts the members with a parked join; `votes` counts the members that support each protocol.
/// - `static_members` maps each instance id to the one member that has it; `pending` and `members` share no id.
/// - Every member has a protocol that all support.
/// - The `_bytes` count the memory of members and ids.
///
/// `check` in the tests names each.
#[derive(Debug)]
pub(crate) struct ClassicGroup {
    group_id: Arc<str>,
    state: State,
    /// The state before this one: a rebalance that began in `Empty` waits for the initial delay.
    previous: State,
    /// When the state was entered; unknown in groups that an old version wrote.
    state_since: Option<Stamp>,
    generation: i32,
    protocol_type: Option<String>,
    protocol: Option<String>,
    leader: Option<MemberId>,
    members: BTreeMap<MemberId, Member>,
    static_members: BTreeMap<String, MemberId>,
    /// Ids that were given out and have not joined yet (KIP-394), each with its deadline.
    pending: BTreeMap<MemberId, Moment>,
    /// Members that have not synced in this generation.
    pending_sync: BTreeSet<MemberId>,
    awaiting_join: usize,
    votes: BTreeMap<String, usize>,
    /// Memory of all members' protocols, in bytes.
    protocols_bytes: usize,
    /// Memory of all members beside their protocols and assignments, in bytes.
    members_bytes: usize,
    /// Memory of all members' assignments, in bytes.
    assignments_bytes: usize,
    /// Memory of the ids that were given out, in bytes.
    pending_bytes: usize,
    /// The topics that the members read; `None` if unknown.
    subscribed: Option<TopicNames>,
    /// A member joined during the initial delay, so the delay may be prolonged.
    new_member_added: bool,
    join_timer: Option<JoinTimer>,
    sync_deadline: Option<Moment>,
    /// Whether a record of the group is in the log, so that deleting it takes a tombstone.
    persisted: bool,
    /// Whether the record that it was loaded from asks for a rebalance, which begins when the load is over.
    must_rebalance: bool,
}

impl ClassicGroup {
    /// A group without members and without a record in the log.
    pub(crate) fn new(group_id: Arc<str>, since: Option<Stamp>) -> Self {
        Self {
            group_id,
            state: State::Empty,
            previous: State::Empty,
            state_since: since,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            static_members: BTreeMap::new(),
            pending: BTreeMap::new(),
            pending_sync: BTreeSet::new(),
            awaiting_join: 0,
            votes: BTreeMap::new(),
            protocols_bytes: 0,
            members_bytes: 0,
            assignments_bytes: 0,
            pending_bytes: 0,
            subscribed: None,
            new_member_added: false,
            join_timer: None,
            sync_deadline: None,
            persisted: false,
            must_rebalance: false,
        }
    }

    /// The state's name on the wire.
    pub(crate) fn state_name(&self) -> &'static str {
        self.state.name()
    }

    /// Number of completed rebalances, which members send with each request.
    pub(crate) fn generation(&self) -> i32 {
        self.generation
    }

    /// The protocol type of its members, past or present.
    pub(crate) fn protocol_type(&self) -> Option<&str> {
        self.protocol_type.as_deref()
    }

    /// The protocol that the members agreed on; empty until then.
    pub(crate) fn protocol(&self) -> &str {
        self.protocol.as_deref().unwrap_or_default()
    }

    /// Whether the group is stable, so that metadata and assignments may be shown.
    pub(crate) fn is_stable(&self) -> bool {
        self.state == State::Stable
    }

    /// Its members, in order of their ids.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&MemberId, &Member)> {
        self.members.iter()
    }

    /// Whether it has no members and no rebalance is on.
    pub(crate) fn is_empty(&self) -> bool {
        self.state == State::Empty
    }

    /// Whether nothing would be lost with it: no members, no ids given out, and no record in the log.
    pub(crate) fn is_vanishing(&self) -> bool {
        self.is_empty() && self.pending.is_empty() && !self.persisted
    }

    /// Whether an id was given out, with which a client may join any moment.
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether the log has a record of the group.
    pub(crate) fn is_persisted(&self) -> bool {
        self.persisted
    }

    /// Whether its members are consumers, whose subscriptions the coordinator can read. Others, such as Connect, do
    /// not reveal what they read.
    pub(crate) fn is_of_consumers(&self) -> bool {
        self.protocol_type.as_deref() == Some(consumer_protocol::PROTOCOL_TYPE)
    }

    /// Whether members read this topic. Where that is unknown, consumers count as reading every topic.
    pub(crate) fn is_subscribed_to(&self, topic: &str) -> bool {
        match &self.subscribed {
            Some(topics) => topics.contains(topic),
            None => self.is_of_consumers(),
        }
    }

    /// Time in milliseconds for which an offset committed at `committed` has been unused: since the group is empty,
    /// or, in a stable group of consumers that do not read the topic, since the commit. `None` while the group keeps
    /// its offsets (KIP-211).
    pub(crate) fn unused_ms(&self, committed: Stamp, ages: &Ages) -> Option<i64> {
        let since = if self.protocol_type.is_none() {
            Some(committed)
        } else if self.is_empty() {
            Some(self.state_since.unwrap_or(committed))
        } else {
            (self.is_stable() && self.is_of_consumers() && self.subscribed.is_some()).then_some(committed)
        };
        since.map(|since| ages.of(since))
    }

    /// The record of an empty group, if the clock was set since it wrote down its time.
    pub(crate) fn correct_time(&mut self, now: Now) -> Option<OffsetsRecord> {
        let corrected = self.state_since.filter(|_| self.persisted && self.is_empty())?.corrected(now)?;
        self.state_since = Some(corrected);
        Some(self.to_record())
    }

    /// Checks that the request comes from a member, and, if it names an instance id, from its present holder.
    pub(crate) fn validate_member(
        &self,
        member_id: &str,
        instance_id: Option<&str>,
    ) -> Result<(), ErrorCode> {
        if let Some(instance_id) = instance_id {
            match self.static_members.get(instance_id) {
                None => return Err(ErrorCode::UNKNOWN_MEMBER_ID),
                Some(holder) if **holder != *member_id => return Err(ErrorCode::FENCED_INSTANCE_ID),
                Some(_) => {}
            }
        }
        if self.members.contains_key(member_id) { Ok(()) } else { Err(ErrorCode::UNKNOWN_MEMBER_ID) }
    }

    /// Checks whether the committer may commit. Without membership only an empty group takes commits. Between join
    /// and sync no member may commit, because the partitions may already be another's.
    pub(crate) fn validate_commit(&self, committer: &Committer<'_>) -> Result<(), ErrorCode> {
        if committer.epoch < 0 && self.is_empty() {
            return Ok(());
        }
        if committer.epoch < 0 && committer.member_id.is_empty() && committer.instance_id.is_none() {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        }
        self.validate_member(committer.member_id, committer.instance_id)?;
        if committer.epoch != self.generation {
            return Err(ErrorCode::ILLEGAL_GENERATION);
        }
        if self.state == State::CompletingRebalance {
            return Err(ErrorCode::REBALANCE_IN_PROGRESS);
        }
        Ok(())
    }

    /// Whether a member of this protocol type, with these protocols, could be in the group with all its members.
    fn supports<'p>(&self, protocol_type: &str, mut protocols: impl Iterator<Item = &'p str>) -> bool {
        // A rebalance from empty may have lost its members again: then, too, there are no protocols to agree with.
        if self.members.is_empty() {
            return !protocol_type.is_empty() && protocols.next().is_some();
        }
        self.protocol_type.as_deref() == Some(protocol_type)
            && protocols.any(|name| self.votes.get(name) == Some(&self.members.len()))
    }

    /// Memory of the ids that were given out, in bytes.
    #[cfg(test)]
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Upper bound of the group's memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let names = [&self.protocol_type, &self.protocol].into_iter().flatten();
        let first_bytes = if self.members.is_empty() { 0 } else { FIRST_MEMBER_BYTES };
        first_bytes
            + self.members_bytes
            + PROTOCOL_COPIES * self.protocols_bytes
            + self.assignments_bytes
            + self.pending_bytes
            + names.map(String::len).sum::<usize>()
    }

    /// The topics that the members read, if they are consumers and all subscriptions are in Kafka's format.
    fn compute_subscribed(&self) -> Option<TopicNames> {
        if !self.is_of_consumers() {
            return None;
        }
        if self.members.is_empty() {
            return Some(TopicNames::default());
        }
        let protocol = self.protocol.as_deref()?;
        let (mut topics, mut distinct) = (Vec::new(), 0);
        for member in self.members.values() {
            let subscription = consumer_protocol::decode_subscription(member.metadata(protocol)).ok()?;
            topics.extend(subscription.topics);
            // Members mostly read the same topics: removing duplicates bounds the list.
            if topics.len() > 2 * distinct + 1_024 {
                topics.sort_unstable();
                topics.dedup();
                distinct = topics.len();
            }
        }
        topics.sort_unstable();
        topics.dedup();
        Some(TopicNames::new(&topics))
    }
}
