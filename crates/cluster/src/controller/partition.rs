//! Owns a partition as the cluster knows it: its replicas, who of them leads, is in sync or may be elected, and in which epoch;
//! and the decisions about one partition alone.
//!
//! The rules are those of `docs/replication.md`, which names them.

use std::fmt;
use std::sync::Arc;

use riverrun_types::{LeaderEpoch, NodeId};

#[cfg(test)]
use crate::planted::{Planted, is_planted};

/// Upper bound of the replicas of a partition, those of a reassignment included.
pub const REPLICAS_MAX: usize = 16;

/// A log dir's number in a broker's registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirSlot(pub u16);

impl DirSlot {
    /// No log dir yet, or none any more: the broker has lost the one that there was.
    pub const NONE: Self = Self(u16::MAX);
}

/// A copy of a partition: the broker that has it, and the log dir there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Replica {
    /// The broker.
    pub node: NodeId,
    /// Its log dir.
    pub dir: DirSlot,
}

/// Some of a partition's replicas, by their places in its list: 0 up to [`REPLICAS_MAX`].
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaSet(u16);

impl ReplicaSet {
    /// None of them.
    pub const EMPTY: Self = Self(0);

    pub(crate) fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    pub(crate) fn bits(self) -> u16 {
        self.0
    }

    /// The first `count` places.
    pub(crate) fn first(count: usize) -> Self {
        (0..count).collect()
    }

    /// Whether the replica at a place is one of them.
    pub fn has(self, place: usize) -> bool {
        place < REPLICAS_MAX && self.0 >> place & 1 == 1
    }

    #[must_use]
    pub(crate) fn with(self, place: usize) -> Self {
        Self(self.0 | 1 << place)
    }

    #[must_use]
    pub(crate) fn without(self, place: usize) -> Self {
        Self(self.0 & !(1 << place))
    }

    #[must_use]
    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[must_use]
    pub(crate) fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    #[must_use]
    pub(crate) fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) fn within(self, other: Self) -> bool {
        self.minus(other).is_empty()
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many it has.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The places, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..REPLICAS_MAX).filter(move |place| self.has(*place))
    }
}

impl FromIterator<usize> for ReplicaSet {
    fn from_iter<I: IntoIterator<Item = usize>>(places: I) -> Self {
        places.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl fmt::Debug for ReplicaSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The replicas of a partition that are something, by their places in its list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Roles {
    /// The leader, if there is one.
    pub leader: Option<u8>,
    /// The in-sync set.
    pub isr: ReplicaSet,
    /// Eligible leader replicas: they left the in-sync set while it was too small for the high watermark to move (KIP-966).
    pub elr: ReplicaSet,
    /// Replicas that were eligible before an end that was not clean (KIP-966): the first to be asked for when an operator accepts a
    /// leader that may lack records.
    pub last_elr: ReplicaSet,
    /// Replicas that a reassignment adds.
    pub adding: ReplicaSet,
    /// Replicas that a reassignment removes at its end.
    pub removing: ReplicaSet,
    /// How many of the in-sync set must have a record before it is acked; 0: all.
    pub ack_quorum: u8,
}

/// A partition.
///
/// Invariants: the replicas are on different brokers; each role is of places in their list; the leader is in sync; no replica is
/// both in sync and eligible, or both added and removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The replicas; the first one that may lead is preferred.
    pub replicas: Arc<[Replica]>,
    /// The roles of the replicas.
    pub roles: Roles,
    /// One more with each leader that is chosen, and with each life of a leader.
    pub leader_epoch: LeaderEpoch,
    /// The version of all this: one more with each change (Kafka's partition epoch), and with each change that was refused.
    pub version: i32,
}

impl Partition {
    /// A new partition, led by the first of the replicas that is in sync.
    pub(crate) fn new(replicas: Arc<[Replica]>, isr: ReplicaSet) -> Self {
        let leader = isr.iter().next().and_then(|place| u8::try_from(place).ok());
        Self {
            replicas,
            roles: Roles { leader, isr, ..Roles::default() },
            leader_epoch: LeaderEpoch(0),
            version: 0,
        }
    }

    /// Why this cannot be a partition, if it cannot.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let count = self.replicas.len();
        if !(1..=REPLICAS_MAX).contains(&count) {
            return Err("a partition has no replica, or too many");
        }
        let on = |place: usize| self.replicas[place].node;
        if (0..count).any(|place| on(place).0 < 0 || (0..place).any(|before| on(before) == on(place))) {
            return Err("two replicas are on one broker, or one is on none");
        }
        let Roles { leader, isr, elr, last_elr, adding, removing, .. } = self.roles;
        let all = ReplicaSet::first(count);
        if ![isr, elr, last_elr, adding, removing].into_iter().all(|set| set.within(all)) {
            return Err("a set has a replica that the partition does not have");
        }
        if leader.is_some_and(|leader| !isr.has(usize::from(leader))) {
            return Err("the leader is not in sync");
        }
        if !isr.both(elr).is_empty() || !adding.both(removing).is_empty() {
            return Err("a replica is in two sets that exclude each other");
        }
        if usize::from(self.roles.ack_quorum) > REPLICAS_MAX || self.leader_epoch.0 < 0 || self.version < 0 {
            return Err("a quorum or an epoch is none");
        }
        Ok(())
    }

    /// The place of a broker's replica.
    pub fn place_of(&self, node: NodeId) -> Option<usize> {
        self.replicas.iter().position(|replica| replica.node == node)
    }

    /// The broker that leads.
    pub fn leader(&self) -> Option<NodeId> {
        self.roles.leader.map(|place| self.replicas[usize::from(place)].node)
    }

    /// The brokers of a set.
    pub fn nodes(&self, set: ReplicaSet) -> impl Iterator<Item = NodeId> {
        set.iter().filter_map(|place| self.replicas.get(place)).map(|replica| replica.node)
    }

    /// The places of a list of brokers, all of which have a replica.
    pub(crate) fn places(&self, nodes: impl IntoIterator<Item = NodeId>) -> Option<ReplicaSet> {
        nodes.into_iter().map(|node| self.place_of(node)).collect()
    }

    /// The replicas that a reassignment leads to; all of them without one.
    pub fn target(&self) -> ReplicaSet {
        ReplicaSet::first(self.replicas.len()).minus(self.roles.removing)
    }

    /// Whether a reassignment is under way.
    pub fn is_reassigned(&self) -> bool {
        !self.roles.adding.union(self.roles.removing).is_empty()
    }

    fn is_led_by(&self, place: usize) -> bool {
        self.roles.leader.is_some_and(|leader| usize::from(leader) == place)
    }

    /// Sets the in-sync set, and what follows from it for the eligible replicas: those that leave a set that is too small stay
    /// eligible, and all are forgotten once it is large enough (`eligible-forgotten`).
    pub(crate) fn set_isr(&mut self, isr: ReplicaSet, minimum: usize) {
        let left = self.roles.isr.minus(isr);
        #[cfg(test)]
        let left = if is_planted(Planted::EligibleForgotten) { ReplicaSet::EMPTY } else { left };
        #[cfg(test)]
        let minimum = if is_planted(Planted::EligibleKept) { usize::MAX } else { minimum };
        self.roles.isr = isr;
        if isr.len() < minimum {
            self.roles.elr = self.roles.elr.union(left).minus(isr);
        } else {
            self.roles.elr = ReplicaSet::EMPTY;
            self.roles.last_elr = ReplicaSet::EMPTY;
        }
    }

    /// Ends what a replica may do: it is not in sync any more, and leads no more.
    pub(crate) fn retire(&mut self, place: usize, minimum: usize, able: impl Fn(&Replica) -> bool) {
        if self.is_led_by(place) {
            // The leader is in sync, and stays so until it is none.
            self.roles.leader = None;
            self.set_isr(self.roles.isr.without(place), minimum);
            self.elect(minimum, able);
        } else if self.roles.isr.has(place) {
            self.set_isr(self.roles.isr.without(place), minimum);
        }
    }

    /// Takes a replica that may lack records out of all who may lead without a loss (`unclean-excluded`). It does not lead.
    pub(crate) fn exclude(&mut self, place: usize) {
        #[cfg(test)]
        if is_planted(Planted::UncleanKept) {
            return;
        }
        if self.roles.isr.union(self.roles.elr).has(place) {
            self.roles.isr = self.roles.isr.without(place);
            self.roles.elr = self.roles.elr.without(place);
            self.roles.last_elr = self.roles.last_elr.with(place);
        }
    }

    /// Begins a leader epoch, with a leader from the in-sync set, else from the eligible replicas, else with none
    /// (`leader-from-candidates`). Those who stay after a reassignment are preferred, then those earlier in the list.
    pub(crate) fn elect(&mut self, minimum: usize, able: impl Fn(&Replica) -> bool) {
        let best = |set: ReplicaSet| {
            let able: ReplicaSet = set.iter().filter(|place| able(&self.replicas[*place])).collect();
            able.both(self.target()).iter().next().or_else(|| able.iter().next())
        };
        let leader = best(self.roles.isr).or_else(|| best(self.roles.elr));
        self.lead(leader);
        if let Some(place) = leader.filter(|place| !self.roles.isr.has(*place)) {
            self.set_isr(self.roles.isr.with(place), minimum);
        }
    }

    /// Begins a leader epoch with a leader that was chosen.
    pub(crate) fn lead(&mut self, place: Option<usize>) {
        self.roles.leader = place.and_then(|place| u8::try_from(place).ok());
        #[cfg(test)]
        if is_planted(Planted::LeaderWithoutEpoch) {
            return;
        }
        self.leader_epoch = LeaderEpoch(self.leader_epoch.0.saturating_add(1));
    }

    /// Begins a leader epoch with a leader that may lack records: all others lose what they have beyond it.
    pub(crate) fn lead_unclean(&mut self, place: usize) {
        self.roles.isr = ReplicaSet::EMPTY.with(place);
        self.roles.elr = ReplicaSet::EMPTY;
        self.roles.last_elr = ReplicaSet::EMPTY;
        self.lead(Some(place));
    }

    /// Begins to move to another list of replicas: those of the target come first, then those that leave at the end. A
    /// reassignment that is under way is given up for it, and what it had added goes, if the target does not have it.
    pub(crate) fn reassign(&mut self, target: &[Replica], minimum: usize, able: impl Fn(&Replica) -> bool) {
        let is_original = |replica: &Replica| {
            self.place_of(replica.node).is_some_and(|place| !self.roles.adding.has(place))
        };
        let is_target = |replica: &Replica| target.iter().any(|other| other.node == replica.node);
        let leaving = self.replicas.iter().filter(|replica| is_original(replica) && !is_target(replica));
        let replicas: Arc<[Replica]> = target.iter().chain(leaving).copied().collect();
        let adding = (0..target.len()).filter(|place| !is_original(&replicas[*place])).collect();
        let removing = (target.len()..replicas.len()).collect();
        let had_leader = self.roles.leader.is_some();
        self.relist(replicas);
        self.roles.adding = adding;
        self.roles.removing = removing;
        if had_leader && self.roles.leader.is_none() {
            self.elect(minimum, able);
        }
    }

    /// Ends a reassignment: the replicas are the target. All of it is in sync (`target-in-sync`).
    pub(crate) fn finish_reassignment(&mut self, minimum: usize, able: impl Fn(&Replica) -> bool) {
        let replicas: Arc<[Replica]> = self.target().iter().map(|place| self.replicas[place]).collect();
        let had_leader = self.roles.leader.is_some();
        self.roles.adding = ReplicaSet::EMPTY;
        self.roles.removing = ReplicaSet::EMPTY;
        self.relist(replicas);
        if had_leader && self.roles.leader.is_none() {
            self.elect(minimum, able);
        }
    }

    /// Exchanges the list of replicas: each keeps its roles, and those that are no more lose them.
    fn relist(&mut self, replicas: Arc<[Replica]>) {
        let old = std::mem::replace(&mut self.replicas, replicas);
        let moved = |set: ReplicaSet| -> ReplicaSet {
            set.iter().filter_map(|place| self.place_of(old[place].node)).collect()
        };
        let roles = &self.roles;
        let leader = roles.leader.and_then(|place| self.place_of(old[usize::from(place)].node));
        self.roles = Roles {
            leader: leader.and_then(|place| u8::try_from(place).ok()),
            isr: moved(roles.isr),
            elr: moved(roles.elr),
            last_elr: moved(roles.last_elr),
            adding: moved(roles.adding),
            removing: moved(roles.removing),
            ack_quorum: roles.ack_quorum,
        };
    }
}
