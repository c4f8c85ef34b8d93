//! The invariants of a classic group, each as a named check. The shard's tests run them after every step.

use std::collections::{BTreeMap, BTreeSet};

use super::member::{PENDING_BYTES, protocols_bytes};
use super::{ClassicGroup, State};

/// Checks everything that must hold between steps.
pub(crate) fn check_invariants(group: &ClassicGroup) {
    states_have_the_members_that_they_imply(group);
    the_leader_is_a_member(group);
    parked_requests_fit_the_state(group);
    members_have_a_protocol_in_common(group);
    protocols_are_counted(group);
    memory_is_counted(group);
    instance_ids_name_their_members(group);
    ids_given_out_are_nobodys(group);
    timers_fit_the_state(group);
    members_that_are_not_excused_can_expire(group);
}

fn states_have_the_members_that_they_imply(group: &ClassicGroup) {
    match group.state {
        State::Empty => assert!(group.members.is_empty(), "an empty group has members"),
        State::PreparingRebalance => {}
        State::CompletingRebalance | State::Stable => {
            assert!(!group.members.is_empty(), "a {} group has no members", group.state_name());
            assert!(group.protocol.is_some(), "a {} group has no protocol", group.state_name());
        }
    }
}

fn the_leader_is_a_member(group: &ClassicGroup) {
    match &group.leader {
        None => assert!(group.members.is_empty(), "members without a leader"),
        Some(leader) => assert!(group.members.contains_key(leader), "the leader is gone"),
    }
}

fn parked_requests_fit_the_state(group: &ClassicGroup) {
    let joins = group.members.values().filter(|member| member.awaiting_join.is_some()).count();
    assert_eq!(group.awaiting_join, joins, "parked joins are counted wrongly");
    assert!(joins == 0 || group.state == State::PreparingRebalance, "a join is parked for nothing");
    for (id, member) in &group.members {
        if member.awaiting_sync.is_some() {
            assert_eq!(group.state, State::CompletingRebalance, "a sync is parked for nothing");
            assert!(!group.pending_sync.contains(id), "{id} has synced and owes a sync");
        }
    }
}

fn members_have_a_protocol_in_common(group: &ClassicGroup) {
    let is_common = |count: &usize| *count == group.members.len();
    assert!(group.members.is_empty() || group.votes.values().any(is_common), "nothing in common");
    if matches!(group.state, State::CompletingRebalance | State::Stable) {
        let chosen = group.votes.get(group.protocol());
        assert!(chosen.is_some_and(is_common), "not all members support the chosen protocol");
    }
}

fn protocols_are_counted(group: &ClassicGroup) {
    let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
    let mut bytes = 0;
    for member in group.members.values() {
        let names: BTreeSet<&str> = member.terms.protocols.iter().map(|p| p.name.as_str()).collect();
        for name in names {
            *votes.entry(name).or_default() += 1;
        }
        bytes += protocols_bytes(&member.terms.protocols);
    }
    let counted: BTreeMap<&str, usize> =
        group.votes.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    assert_eq!(counted, votes, "votes are counted wrongly");
    assert_eq!(group.protocols_bytes, bytes, "the protocols' size is counted wrongly");
}

fn memory_is_counted(group: &ClassicGroup) {
    let members: usize = group.members.iter().map(|(id, member)| member.size_bytes(id)).sum();
    let assignments: usize = group.members.values().map(|member| member.assignment.len()).sum();
    let pending: usize = group.pending.keys().map(|id| PENDING_BYTES + id.len()).sum();
    assert_eq!(group.members_bytes, members, "the members' size is counted wrongly");
    assert_eq!(group.assignments_bytes, assignments, "the assignments' size is counted wrongly");
    assert_eq!(group.pending_bytes, pending, "the size of ids that were given out is counted wrongly");
}

fn instance_ids_name_their_members(group: &ClassicGroup) {
    let instances =
        group.members.iter().filter_map(|(id, member)| Some((member.instance_id.as_deref()?, id)));
    let named = group.static_members.iter().map(|(instance, id)| (instance.as_str(), id));
    assert_eq!(named.collect::<BTreeMap<_, _>>(), instances.collect::<BTreeMap<_, _>>());
}

fn ids_given_out_are_nobodys(group: &ClassicGroup) {
    assert!(group.pending.keys().all(|id| !group.members.contains_key(id)), "a member is still expected");
}

fn timers_fit_the_state(group: &ClassicGroup) {
    assert_eq!(group.join_timer.is_some(), group.state == State::PreparingRebalance, "the join phase's end");
    assert_eq!(group.sync_deadline.is_some(), !group.pending_sync.is_empty(), "the sync phase's end");
    assert!(group.pending_sync.iter().all(|id| group.members.contains_key(id)), "a stranger owes a sync");
}

fn members_that_are_not_excused_can_expire(group: &ClassicGroup) {
    for (id, member) in &group.members {
        assert!(member.expires_at.is_some() || member.is_excused(), "{id} never expires");
    }
}
