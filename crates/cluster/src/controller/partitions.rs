//! Owns the decisions about partitions that exist: what a leader asks for its in-sync set, reassignments, and leaders that somebody
//! asks for.

use riverrun_types::{LeaderEpoch, NodeId, PartitionId};

use super::draft::{Draft, Refusal, Rules};
use super::partition::{Partition, REPLICAS_MAX, Replica, ReplicaSet};
use super::placement::Placer;
#[cfg(test)]
use crate::planted::{Planted, is_planted};

/// A change of a partition's in-sync set that its leader asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsrChange {
    /// The partition.
    pub id: PartitionId,
    /// The epoch in which it leads.
    pub leader_epoch: LeaderEpoch,
    /// The partition's version that it knows (`version-checked`).
    pub version: i32,
    /// The new set, each member with the incarnation that was heard from (`incarnation`).
    pub isr: Vec<(NodeId, u64)>,
}

impl Draft<'_> {
    /// A leader asks for another in-sync set. Refused with [`Refusal::Ineligible`], it has moved the partition's version all the
    /// same, so that a copy of the request that comes later is stale (`refusal-moves-version`).
    pub fn change_isr(&mut self, from: NodeId, incarnation: u64, asked: &IsrChange) -> Result<(), Refusal> {
        self.of_incarnation(from, incarnation)?;
        let partition = self.partition(asked.id)?;
        if partition.leader() != Some(from) {
            return Err(Refusal::NotLeader);
        }
        if partition.leader_epoch != asked.leader_epoch {
            return Err(Refusal::StaleLeaderEpoch);
        }
        let is_current = partition.version == asked.version;
        #[cfg(test)]
        let is_current = is_current || is_planted(Planted::VersionNotChecked);
        if !is_current {
            return Err(Refusal::StaleVersion);
        }
        let Some(isr) = self.eligible(partition, &asked.isr) else {
            #[cfg(test)]
            if is_planted(Planted::RefusalKeepsVersion) {
                return Err(Refusal::Ineligible);
            }
            self.change(asked.id, |_, _, _| {});
            return Err(Refusal::Ineligible);
        };
        self.change(asked.id, |partition, rules, _| partition.set_isr(isr, rules.minimum));
        Ok(())
    }

    /// The replicas of a new in-sync set, if its leader is one of them and whoever joins may.
    fn eligible(&self, partition: &Partition, members: &[(NodeId, u64)]) -> Option<ReplicaSet> {
        let isr = partition.places(members.iter().map(|(node, _)| *node))?;
        let has_leader = partition.roles.leader.is_some_and(|leader| isr.has(usize::from(leader)));
        let may_join = |(node, incarnation): &(NodeId, u64)| {
            let place = partition.place_of(*node)?;
            if partition.roles.isr.has(place) {
                return Some(());
            }
            let broker = self.image.broker(*node)?;
            let is_able = broker.may_lead_in(partition.replicas[place].dir);
            let is_of_this_life = broker.incarnation == *incarnation;
            #[cfg(test)]
            let (is_able, is_of_this_life) = (
                is_able || is_planted(Planted::FencedJoins),
                is_of_this_life || is_planted(Planted::IncarnationNotChecked),
            );
            (is_able && is_of_this_life).then_some(())
        };
        (has_leader && members.iter().all(|member| may_join(member).is_some())).then_some(isr)
    }

    /// Begins to move a partition to other brokers, in this order; those that have a replica keep it. A reassignment that is under
    /// way is given up for it.
    pub fn reassign(&mut self, id: PartitionId, nodes: &[NodeId]) -> Result<(), Refusal> {
        let partition = self.partition(id)?;
        if nodes.is_empty() || (0..nodes.len()).any(|order| nodes[..order].contains(&nodes[order])) {
            let reason = "there is none, or a broker is in it twice".to_owned();
            return Err(Refusal::InvalidReplicas(reason));
        }
        let mut placer = Placer::new(&self.image);
        let replica = |node: &NodeId| match partition.place_of(*node) {
            Some(place) => Ok(partition.replicas[place]),
            None => placer.replica(*node),
        };
        let target = nodes.iter().map(replica).collect::<Result<Vec<_>, _>>()?;
        self.move_to(id, &target)
    }

    /// Gives up a reassignment: the partition goes back to the replicas that it had.
    pub fn cancel_reassignment(&mut self, id: PartitionId) -> Result<(), Refusal> {
        let partition = self.partition(id)?;
        if !partition.is_reassigned() {
            return Err(Refusal::NoReassignment);
        }
        let adding = partition.roles.adding;
        let original = partition.replicas.iter().enumerate().filter(|(place, _)| !adding.has(*place));
        let original: Vec<_> = original.map(|(_, replica)| *replica).collect();
        self.move_to(id, &original)
    }

    /// Begins to move a partition. Refused where nobody would be left who has all records, or where a leader would go that acks by
    /// itself: it cannot have resigned for this.
    fn move_to(&mut self, id: PartitionId, target: &[Replica]) -> Result<(), Refusal> {
        let (partition, rules) = self.partition_and_rules(id)?;
        let added = target.iter().filter(|replica| partition.place_of(replica.node).is_none()).count();
        if added + partition.replicas.len() > REPLICAS_MAX {
            let reason = format!("old and new replicas are more than {REPLICAS_MAX}");
            return Err(Refusal::InvalidReplicas(reason));
        }
        let mut moved = partition.clone();
        moved.reassign(target, rules.minimum, |replica| self.may_lead_as(*replica));
        let candidates = |partition: &Partition| partition.roles.isr.union(partition.roles.elr);
        if candidates(&moved).is_empty() && !candidates(partition).is_empty() {
            let reason = "none of those that stay has all records".to_owned();
            return Err(Refusal::InvalidReplicas(reason));
        }
        if moved.leader() != partition.leader() && !rules.level.waits_for_replicas() {
            return Err(Refusal::LeaderMustResign);
        }
        self.change(id, |partition, rules, may_lead| partition.reassign(target, rules.minimum, may_lead));
        Ok(())
    }

    /// Ends a reassignment whose whole target is in sync. A leader that acks by itself and is none of the target has resigned
    /// before (`resigns`), in the epoch that is named.
    pub fn finish_reassignment(
        &mut self,
        id: PartitionId,
        resigned_in: Option<LeaderEpoch>,
    ) -> Result<(), Refusal> {
        let (partition, rules) = self.partition_and_rules(id)?;
        let target = partition.target();
        let is_in_sync = target.within(partition.roles.isr);
        let has_resigned = resigned_in == Some(partition.leader_epoch);
        #[cfg(test)]
        let (is_in_sync, has_resigned) = (
            is_in_sync || is_planted(Planted::ReassignmentEndsEarly),
            has_resigned || is_planted(Planted::NobodyResigns),
        );
        if !partition.is_reassigned() || !is_in_sync {
            return Err(Refusal::NoReassignment);
        }
        let leaves = partition.roles.leader.is_some_and(|leader| !target.has(usize::from(leader)));
        if leaves && !rules.level.waits_for_replicas() && !has_resigned {
            return Err(Refusal::LeaderMustResign);
        }
        self.change(id, |partition, rules, may_lead| partition.finish_reassignment(rules.minimum, may_lead));
        Ok(())
    }

    /// Makes the preferred replica the leader. A leader that acks by itself has resigned before (`resigns`), in the epoch that is
    /// named.
    pub fn elect_preferred(
        &mut self,
        id: PartitionId,
        resigned_in: Option<LeaderEpoch>,
    ) -> Result<(), Refusal> {
        let (partition, rules) = self.partition_and_rules(id)?;
        let may_lead = self.may_lead(partition, 0) && partition.roles.isr.has(0);
        if !may_lead || partition.roles.leader == Some(0) {
            return Err(Refusal::NoElection);
        }
        let has_resigned = resigned_in == Some(partition.leader_epoch);
        if partition.roles.leader.is_some() && !rules.level.waits_for_replicas() && !has_resigned {
            return Err(Refusal::LeaderMustResign);
        }
        self.change(id, |partition, _, _| partition.lead(Some(0)));
        Ok(())
    }

    /// Makes a replica the leader that may lack records, because somebody has asked for it: the one that is named, else the best
    /// that is there. A partition with a leader, or with candidates that lack nothing and are there, keeps its records.
    pub fn elect_unclean(&mut self, id: PartitionId, named: Option<NodeId>) -> Result<(), Refusal> {
        let partition = self.partition(id)?;
        if partition.roles.leader.is_some() {
            return Err(Refusal::NoElection);
        }
        let is_there = |place: &usize| self.may_lead(partition, *place);
        let candidates = partition.roles.isr.union(partition.roles.elr);
        if candidates.iter().any(|place| is_there(&place)) {
            self.change(id, |partition, rules, may_lead| partition.elect(rules.minimum, may_lead));
            return Ok(());
        }
        let is_named = |place: &usize| named.is_none_or(|node| partition.replicas[*place].node == node);
        let best = |set: ReplicaSet| set.iter().find(|place| is_named(place) && is_there(place));
        let all = ReplicaSet::first(partition.replicas.len());
        let place = best(partition.roles.last_elr).or_else(|| best(all)).ok_or(Refusal::NoElection)?;
        self.change(id, |partition, _, _| partition.lead_unclean(place));
        Ok(())
    }

    fn may_lead(&self, partition: &Partition, place: usize) -> bool {
        partition.replicas.get(place).is_some_and(|replica| self.may_lead_as(*replica))
    }

    fn may_lead_as(&self, replica: Replica) -> bool {
        self.image.broker(replica.node).is_some_and(|broker| broker.may_lead_in(replica.dir))
    }

    fn partition(&self, id: PartitionId) -> Result<&Partition, Refusal> {
        self.topic(id.topic)?.partition(id.index).ok_or(Refusal::UnknownPartition)
    }

    fn partition_and_rules(&self, id: PartitionId) -> Result<(&Partition, Rules), Refusal> {
        let topic = self.topic(id.topic)?;
        let partition = topic.partition(id.index).ok_or(Refusal::UnknownPartition)?;
        Ok((partition, self.rules(topic, partition)))
    }
}
