//! Owns what the controller decides: who is fenced, who leads, which in-sync set holds. Its state is agreed upon elsewhere (the
//! metadata quorum), so here it is atomic and never lost.

use crate::log::{Node, Set, nodes};
use crate::model::{Kind, Model, Step, Steps};
use crate::rules::{Quorum, Rule};
use crate::state::{Message, Meta, NOBODY, Report, State};

/// The steps about one broker: fenced, unfenced, registered anew, and its lease.
pub(crate) fn broker_steps(model: &Model, state: &State, steps: &mut Steps) {
    for node in nodes() {
        fence(model, state, node, steps);
        unfence(model, state, node, steps);
        register(model, state, node, steps);
        lease(model, state, node, steps);
    }
}

/// The steps about one partition: a reassignment, a leader without all records, a leader chosen by a majority.
pub(crate) fn partition_steps(model: &Model, state: &State, part: u8, steps: &mut Steps) {
    start_reassignment(model, state, part, steps);
    resign(model, state, part, steps);
    finish_reassignment(model, state, part, steps);
    unclean_leader(model, state, part, steps);
    if model.setup.quorum == Quorum::Majority {
        report(model, state, part, steps);
        choose(model, state, part, steps);
    }
}

/// The session of a broker has ended.
fn fence(model: &Model, state: &State, node: Node, steps: &mut Steps) {
    let broker = state.broker(node);
    let leased =
        model.setup.level.acks_alone() && model.rules.has(Rule::Lease) && broker.alive && broker.lease;
    if !state.may_lead(node) || leased || broker.alive && state.spent.fences >= model.bounds.fences {
        return;
    }
    let mut next = *state;
    next.spent.fences += u8::from(broker.alive);
    for after in fenced(model, &next, node) {
        steps.push((Step(Kind::Fence(node)), after));
    }
}

/// The states after a broker was fenced: one for each choice of new leaders. None if an epoch would pass its bound.
fn fenced(model: &Model, state: &State, node: Node) -> Vec<State> {
    let mut next = *state;
    next.registered[usize::from(node)].fenced = true;
    let mut states = vec![next];
    for part in 0..model.setup.partitions {
        states = states.iter().flat_map(|state| without_member(model, state, part, node)).collect();
    }
    states
}

/// The states of a partition that a broker has left.
fn without_member(model: &Model, state: &State, part: u8, node: Node) -> Vec<State> {
    let mut next = *state;
    let meta = next.meta_mut(part);
    let shrinks = model.setup.quorum == Quorum::All || !model.rules.has(Rule::LeaderAloneShrinks);
    if shrinks && meta.view.isr.has(node) {
        set_isr(model, meta, meta.view.isr.without(node));
    }
    if meta.view.leader == node { elect(model, &next, part) } else { vec![next] }
}

/// Sets the in-sync set, and what follows from it for the eligible leader replicas.
fn set_isr(model: &Model, meta: &mut Meta, isr: Set) {
    let left = meta.view.isr.minus(isr);
    meta.view.isr = isr;
    meta.view.version += 1;
    if isr.len() < usize::from(model.setup.minimum) {
        meta.elr = meta.elr.union(left).minus(isr);
    } else if model.rules.has(Rule::EligibleForgotten) {
        meta.elr = Set::EMPTY;
    }
}

/// The states after a leader was looked for, in a new epoch.
fn elect(model: &Model, state: &State, part: u8) -> Vec<State> {
    let mut next = *state;
    let meta = next.meta_mut(part);
    if meta.view.epoch >= model.bounds.epochs {
        return Vec::new();
    }
    meta.view.epoch += 1;
    meta.view.version += 1;
    meta.view.leader = NOBODY;
    if model.setup.quorum == Quorum::Majority {
        meta.reports = [None; crate::log::NODES];
        return vec![next];
    }
    let able = |set: Set| nodes().filter(|node| set.has(*node) && state.may_lead(*node)).collect::<Vec<_>>();
    let mut candidates = able(meta.view.isr);
    if candidates.is_empty() {
        candidates = able(meta.elr);
    }
    if !model.rules.has(Rule::LeaderFromCandidates) {
        candidates = able(meta.view.replicas);
    }
    if candidates.is_empty() {
        return vec![next];
    }
    candidates.into_iter().map(|node| with_leader(model, &next, part, node)).collect()
}

fn with_leader(model: &Model, state: &State, part: u8, node: Node) -> State {
    let mut next = *state;
    let meta = next.meta_mut(part);
    meta.view.leader = node;
    if !meta.view.isr.has(node) {
        set_isr(model, meta, meta.view.isr.with(node));
        meta.elr = meta.elr.without(node);
    }
    next
}

/// A fenced broker is back. A partition without a leader may have one again.
fn unfence(model: &Model, state: &State, node: Node, steps: &mut Steps) {
    let registered = state.registered[usize::from(node)];
    if !state.serves(node) || !registered.fenced || state.broker(node).life != registered.life {
        return;
    }
    let caught_up = |part| state.replica(part, node).known.epoch == state.meta(part).view.epoch;
    if model.rules.has(Rule::UnfenceCaughtUp) && !(0..model.setup.partitions).all(caught_up) {
        return;
    }
    let mut next = *state;
    next.registered[usize::from(node)].fenced = false;
    next.broker_mut(node).lease = true;
    let mut states = vec![next];
    for part in 0..model.setup.partitions {
        states = states.iter().flat_map(|state| with_candidate(model, state, part, node)).collect();
    }
    for after in states {
        steps.push((Step(Kind::Unfence(node)), after));
    }
}

fn with_candidate(model: &Model, state: &State, part: u8, node: Node) -> Vec<State> {
    let meta = state.meta(part);
    let candidate = meta.view.isr.union(meta.elr).has(node);
    if model.setup.quorum == Quorum::All && meta.view.leader == NOBODY && candidate {
        elect(model, state, part)
    } else {
        vec![*state]
    }
}

/// A new life of a process takes the place of the one before: that one's session is over.
fn register(model: &Model, state: &State, node: Node, steps: &mut Steps) {
    let broker = *state.broker(node);
    if !broker.alive || broker.life != 0 {
        return;
    }
    let mut next = *state;
    let registered = &mut next.registered[usize::from(node)];
    registered.life += 1;
    let life = registered.life;
    let ends = model.rules.has(Rule::NewLifeNewEpoch) && !registered.fenced;
    next.broker_mut(node).life = life;
    next.broker_mut(node).suspect = false;
    let untrusted = broker.suspect && !model.setup.level.followers_sync();
    let states = if ends { fenced(model, &next, node) } else { vec![next] };
    for mut after in states {
        for part in 0..model.setup.partitions {
            if untrusted && model.rules.has(Rule::UncleanExcluded) {
                exclude(after.meta_mut(part), node);
            }
            if !model.rules.has(Rule::NewLifeNewEpoch) {
                lead_again(&mut after, part, node);
            }
        }
        steps.push((Step(Kind::Register(node)), after));
    }
}

fn exclude(meta: &mut Meta, node: Node) {
    if meta.view.isr.union(meta.elr).has(node) {
        meta.view.isr = meta.view.isr.without(node);
        meta.elr = meta.elr.without(node);
        meta.view.version += 1;
    }
}

/// Without the rule a process that was quick to come back goes on in the epoch of its life before.
fn lead_again(state: &mut State, part: u8, node: Node) {
    let view = state.meta(part).view;
    let replica = state.replica_mut(part, node);
    if view.leader == node && replica.known.epoch == view.epoch {
        replica.known = view;
        replica.begin(view.epoch, false);
    }
}

/// The lease of a broker by its own clock. It matters only where a leader acks by itself.
fn lease(model: &Model, state: &State, node: Node, steps: &mut Steps) {
    let broker = state.broker(node);
    if !model.setup.level.acks_alone() || !state.serves(node) {
        return;
    }
    let mut next = *state;
    if broker.lease && state.spent.fences < model.bounds.fences {
        next.broker_mut(node).lease = false;
        next.spent.leases = 1;
        steps.push((Step(Kind::LeaseEnds(node)), next));
    } else if !broker.lease && state.may_lead(node) && broker.life == state.registered[usize::from(node)].life
    {
        next.broker_mut(node).lease = true;
        steps.push((Step(Kind::LeaseRenewed(node)), next));
    }
}

/// Takes a change of an in-sync set that a leader has asked for. False if it is stale.
pub(crate) fn take_alter(model: &Model, state: &mut State, message: &Message) -> bool {
    let Message::Alter { part, from, epoch, version, change } = *message else { return false };
    let rules = model.rules;
    let registered = state.registered;
    let meta = state.meta_mut(part);
    let current = (meta.view.epoch, meta.view.version) == (epoch, version);
    if !current && rules.has(Rule::VersionChecked) {
        return false;
    }
    let able = change.joiner.is_none_or(|(node, life)| {
        let registered = registered[usize::from(node)];
        (!registered.fenced || !rules.has(Rule::FencedStaysOut))
            && (registered.life == life || !rules.has(Rule::Incarnation))
    });
    if able && change.isr.within(meta.view.replicas) {
        set_isr(model, meta, change.isr);
        return true;
    }
    if rules.has(Rule::RefusalMovesVersion) {
        meta.view.version += 1;
        return true;
    }
    // Without the rule the answer alone ends the change at its leader.
    let asking = state.replica_mut(part, from).leads.as_mut().filter(|lead| lead.epoch == epoch);
    match asking {
        Some(lead) if lead.open == Some(change) => {
            lead.open = None;
            true
        }
        _ => false,
    }
}

fn start_reassignment(model: &Model, state: &State, part: u8, steps: &mut Steps) {
    let target = model.setup.target;
    let meta = state.meta(part);
    if target.is_empty() || meta.target == target || meta.view.replicas == target {
        return;
    }
    let mut next = *state;
    let meta = next.meta_mut(part);
    meta.target = target;
    meta.view.replicas = meta.view.replicas.union(target);
    meta.view.version += 1;
    steps.push((Step(Kind::StartReassignment { part }), next));
}

fn finish_reassignment(model: &Model, state: &State, part: u8, steps: &mut Steps) {
    let target = state.meta(part).target;
    let in_sync = target.within(state.meta(part).view.isr);
    if target.is_empty()
        || !in_sync && model.rules.has(Rule::TargetInSync)
        || model.rules.has(Rule::Resigns) && is_to_resign(model, state, part)
    {
        return;
    }
    let mut next = *state;
    let meta = next.meta_mut(part);
    meta.target = Set::EMPTY;
    meta.view.replicas = target;
    meta.elr = meta.elr.both(target);
    meta.view.isr = target;
    meta.view.version += 1;
    let leader = meta.view.leader;
    let states = if leader != NOBODY && !target.has(leader) { elect(model, &next, part) } else { vec![next] };
    for after in states {
        steps.push((Step(Kind::FinishReassignment { part }), after));
    }
}

/// Whether the leader is none of the target, and acks by itself: it resigns first.
fn is_to_resign(model: &Model, state: &State, part: u8) -> bool {
    let meta = state.meta(part);
    let leader = meta.view.leader;
    let leaves = leader != NOBODY && !meta.target.is_empty() && !meta.target.has(leader);
    leaves
        && model.setup.level.acks_alone()
        && state.may_lead(leader)
        && state.replica(part, leader).leads.is_some()
}

/// A leader that is to leave takes nothing more, and resigns once the target has all that it has.
fn resign(model: &Model, state: &State, part: u8, steps: &mut Steps) {
    let meta = state.meta(part);
    if !is_to_resign(model, state, part) || !meta.target.within(meta.view.isr) {
        return;
    }
    let node = meta.view.leader;
    let replica = state.replica(part, node);
    let Some(lead) = replica.leads else { return };
    let is_whole = |member: Node| lead.marks[usize::from(member)].appended >= replica.log.len();
    if meta.target.iter().all(is_whole) {
        let mut next = *state;
        next.replica_mut(part, node).leads = None;
        steps.push((Step(Kind::Resign { part, node }), next));
    }
}

/// An operator asks for a leader that may lack records: what it lacks is lost, and said to be.
fn unclean_leader(model: &Model, state: &State, part: u8, steps: &mut Steps) {
    let meta = state.meta(part);
    let candidates = meta.view.isr.union(meta.elr);
    let can = state.spent.unclean < model.bounds.unclean && meta.view.epoch < model.bounds.epochs;
    if model.setup.quorum == Quorum::Majority || meta.view.leader != NOBODY || !can {
        return;
    }
    for node in meta.view.replicas.minus(candidates).iter().filter(|node| state.may_lead(*node)) {
        let mut next = *state;
        next.spent.unclean += 1;
        let partition = &mut next.parts[usize::from(part)];
        let replica = &partition.replicas[usize::from(node)];
        // At level 1 a record counts once it is synced: what is not goes with a power cut.
        let log = if model.setup.level.followers_sync() { replica.disk } else { replica.log };
        partition.seen = partition.seen.cut(partition.seen.common(&log));
        partition.acked_alone = partition.acked_alone.cut(partition.acked_alone.common(&log));
        let view = &mut partition.meta.view;
        *view =
            crate::state::View { leader: node, epoch: view.epoch + 1, version: view.version + 1, ..*view };
        view.isr = Set::EMPTY.with(node);
        partition.unclean = view.epoch;
        partition.meta.elr = Set::EMPTY;
        steps.push((Step(Kind::UncleanLeader { part, node }), next));
    }
}

/// A member of the set reports its log to a controller that looks for a leader, and takes nothing of older epochs from then on.
fn report(model: &Model, state: &State, part: u8, steps: &mut Steps) {
    let meta = state.meta(part);
    if meta.view.leader != NOBODY {
        return;
    }
    for node in meta.view.isr.iter() {
        if !state.serves(node) || meta.reports[usize::from(node)].is_some() {
            continue;
        }
        let mut next = *state;
        let view = meta.view.for_follower();
        let replica = next.replica_mut(part, node);
        if model.rules.has(Rule::ReportFences) {
            replica.known = view;
            replica.leads = None;
        }
        let last = replica.log.last().map_or(0, |entry| entry.epoch);
        let rank = if model.rules.has(Rule::RankByEpoch) { replica.epochs.last() } else { last };
        let end = replica.log.len();
        next.meta_mut(part).reports[usize::from(node)] = Some(Report { rank, end });
        steps.push((Step(Kind::Report { part, node }), next));
    }
}

/// The best of enough reports leads. Enough are so many that one of them is of each quorum that may have acked.
fn choose(model: &Model, state: &State, part: u8, steps: &mut Steps) {
    let meta = state.meta(part);
    let enough = meta.view.isr.len() - model.required(meta.view.isr) + 1;
    let reports = || meta.view.isr.iter().filter_map(|node| Some((node, meta.reports[usize::from(node)]?)));
    let Some(best) = reports().map(|(_, report)| report).max() else { return };
    if meta.view.leader != NOBODY || reports().count() < enough {
        return;
    }
    for (node, _) in reports().filter(|(_, report)| *report == best) {
        let mut next = *state;
        let meta = next.meta_mut(part);
        meta.view.leader = node;
        meta.view.version += 1;
        meta.reports = [None; crate::log::NODES];
        steps.push((Step(Kind::Choose { part, node }), next));
    }
}
