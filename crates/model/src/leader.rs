//! Owns what a leader does: append, push, count marks, move the high watermark, ask for another in-sync set.

use crate::invariants::Invariant;
use crate::log::{Node, Set};
use crate::model::{Kind, Model, Step, Steps};
use crate::rules::{Quorum, Rule};
use crate::state::{Change, Lead, Mark, Message, Replica, State};

/// The steps of a node that takes itself for the leader.
pub(crate) fn steps(model: &Model, state: &State, part: u8, node: Node, steps: &mut Steps) {
    let replica = state.replica(part, node);
    let Some(lead) = replica.leads else { return };
    append(model, state, part, node, &lead, steps);
    push(model, state, part, node, &lead, steps);
    advance(model, state, part, node, &lead, steps);
    ack_alone(model, state, part, node, &lead, steps);
    match lead.open {
        None => ask(model, state, part, node, &lead, steps),
        Some(change) => ask_again(model, state, part, node, change, steps),
    }
}

fn append(model: &Model, state: &State, part: u8, node: Node, lead: &Lead, steps: &mut Steps) {
    let partition = &state.parts[usize::from(part)];
    if partition.values >= model.bounds.values || !state.replica(part, node).log.has_room() {
        return;
    }
    let mut next = *state;
    let partition = &mut next.parts[usize::from(part)];
    partition.values += 1;
    let value = partition.values;
    next.replica_mut(part, node).append(lead.epoch, value);
    steps.push((Step(Kind::Append { part, node }), next));
}

/// Frames to followers that lack something, as far as their marks tell.
fn push(model: &Model, state: &State, part: u8, node: Node, lead: &Lead, steps: &mut Steps) {
    let replica = state.replica(part, node);
    for to in replica.known.replicas.without(node).iter() {
        let mark = lead.marks[usize::from(to)];
        let complete = mark.life == state.broker(to).life
            && mark.appended >= replica.log.len()
            && state.replica(part, to).hw >= replica.hw;
        if state.serves(to) && !complete {
            let frame = Message::Frame {
                part,
                from: node,
                to,
                epoch: lead.epoch,
                log: replica.log.cut(mark.appended + 1),
                log_end: replica.log.len(),
                epochs: replica.epochs,
                hw: replica.hw,
            };
            model.send(state, frame, steps);
        }
    }
}

/// How far a follower counts.
fn counted(model: &Model, mark: Mark) -> u8 {
    if model.setup.level.followers_sync() && model.rules.has(Rule::SyncedMark) {
        mark.synced
    } else {
        mark.appended
    }
}

/// How far a member counts for the leader `node`.
fn counted_of(model: &Model, replica: &Replica, lead: &Lead, node: Node, member: Node) -> u8 {
    if member != node {
        counted(model, lead.marks[usize::from(member)])
    } else if model.setup.level.leader_syncs() {
        replica.synced
    } else {
        replica.log.len()
    }
}

/// The start offset of the leader's own epoch.
fn epoch_start(replica: &Replica, lead: &Lead) -> u8 {
    replica.epochs.start_of(lead.epoch).unwrap_or(replica.log.len())
}

/// The offset that as many of `set` have as are required.
fn held_by(model: &Model, replica: &Replica, lead: &Lead, node: Node, set: Set) -> u8 {
    let mut ends: Vec<u8> = set.iter().map(|member| counted_of(model, replica, lead, node, member)).collect();
    ends.sort_unstable_by(|a, b| b.cmp(a));
    ends.get(model.required(set).wrapping_sub(1)).copied().unwrap_or(0)
}

/// The high watermark that the marks allow; none while it must stand still.
fn high_watermark(model: &Model, replica: &Replica, lead: &Lead, node: Node) -> Option<u8> {
    let isr = replica.known.isr;
    if model.rules.has(Rule::MinimumForHighWatermark) && isr.len() < usize::from(model.setup.minimum) {
        return None;
    }
    let changed = lead.open.map_or(isr, |change| change.isr);
    let to = if !model.rules.has(Rule::MaximalSet) {
        held_by(model, replica, lead, node, changed)
    } else if model.setup.quorum == Quorum::All {
        held_by(model, replica, lead, node, isr.union(changed))
    } else {
        held_by(model, replica, lead, node, isr).min(held_by(model, replica, lead, node, changed))
    };
    let begun = model.setup.quorum == Quorum::All
        || !model.rules.has(Rule::AckFromEpochStart)
        || to >= epoch_start(replica, lead);
    begun.then_some(to)
}

fn advance(model: &Model, state: &State, part: u8, node: Node, lead: &Lead, steps: &mut Steps) {
    let replica = state.replica(part, node);
    let Some(to) = high_watermark(model, replica, lead, node).filter(|to| *to > replica.hw) else { return };
    let mut next = *state;
    next.replica_mut(part, node).hw = to;
    let below = replica.log.cut(to);
    let partition = &mut next.parts[usize::from(part)];
    if lead.epoch < partition.unclean {
        // An operator has given up what this leader still brings about.
    } else if below.starts_with(&partition.seen) {
        partition.seen = below;
    } else if !partition.seen.starts_with(&below) {
        next.broken = Some(Invariant::SeenOnce);
    }
    steps.push((Step(Kind::Advance { part, node, to }), next));
}

/// At levels 3 and 4 a leader acks by itself. A former leader must not: what it acks then is lost.
fn ack_alone(model: &Model, state: &State, part: u8, node: Node, lead: &Lead, steps: &mut Steps) {
    let replica = state.replica(part, node);
    let own = replica.log.last().is_some_and(|entry| entry.epoch == lead.epoch);
    let held = !model.setup.level.leader_syncs() || replica.synced == replica.log.len();
    let leased = !model.rules.has(Rule::Lease) || state.broker(node).lease;
    if !model.setup.level.acks_alone() || !own || !held || !leased {
        return;
    }
    let view = state.meta(part).view;
    let mut next = *state;
    let partition = &mut next.parts[usize::from(part)];
    if view.leader != node || view.epoch != lead.epoch {
        next.broken = Some(Invariant::AckedByLeader);
    } else if partition.acked_alone == replica.log {
        return;
    } else {
        partition.acked_alone = replica.log;
    }
    steps.push((Step(Kind::AckAlone { part, node }), next));
}

/// Asks for an in-sync set with one member less or more.
fn ask(model: &Model, state: &State, part: u8, node: Node, lead: &Lead, steps: &mut Steps) {
    if state.spent.changes >= model.bounds.changes {
        return;
    }
    let replica = state.replica(part, node);
    let known = replica.known;
    for member in known.isr.without(node).iter() {
        let isr = known.isr.without(member);
        if may_shrink(model, replica, lead, node, isr) {
            propose(model, state, part, node, Change { isr, joiner: None }, steps);
        }
    }
    for member in known.replicas.minus(known.isr).iter() {
        if may_join(model, replica, lead, member) {
            let joiner = Some((member, lead.marks[usize::from(member)].life));
            propose(model, state, part, node, Change { isr: known.isr.with(member), joiner }, steps);
        }
    }
}

fn may_shrink(model: &Model, replica: &Replica, lead: &Lead, node: Node, isr: Set) -> bool {
    if model.setup.quorum == Quorum::All {
        return true;
    }
    if isr.len() < 2 {
        return false;
    }
    if !model.rules.has(Rule::ShrinkAfterEpochBegan) {
        return true;
    }
    let start = epoch_start(replica, lead);
    let floor = start.max(replica.hw);
    let holds = |member: &Node| {
        let heard = *member == node || lead.marks[usize::from(*member)].life != 0;
        heard && counted_of(model, replica, lead, node, *member) >= floor
    };
    replica.hw >= start && isr.iter().filter(holds).count() >= model.required(isr)
}

fn may_join(model: &Model, replica: &Replica, lead: &Lead, member: Node) -> bool {
    let mark = lead.marks[usize::from(member)];
    let end = counted(model, mark);
    mark.life != 0
        && (!model.rules.has(Rule::JoinAtHighWatermark) || end >= replica.hw)
        && (!model.rules.has(Rule::JoinAtEpochStart) || end >= epoch_start(replica, lead))
}

fn alter(state: &State, part: u8, node: Node, change: Change) -> Message {
    let known = state.replica(part, node).known;
    Message::Alter { part, from: node, epoch: known.epoch, version: known.version, change }
}

fn propose(model: &Model, state: &State, part: u8, node: Node, change: Change, steps: &mut Steps) {
    let mut next = *state;
    next.spent.changes += 1;
    if let Some(lead) = &mut next.replica_mut(part, node).leads {
        lead.open = Some(change);
    }
    model.send(&next, alter(state, part, node, change), steps);
}

/// An answer that does not come is no answer: the leader asks for the same again, and for nothing else.
fn ask_again(model: &Model, state: &State, part: u8, node: Node, change: Change, steps: &mut Steps) {
    if state.meta(part).view.version == state.replica(part, node).known.version {
        model.send(state, alter(state, part, node, change), steps);
    }
}

/// Takes a follower's marks. False if they change nothing.
pub(crate) fn take_ack(model: &Model, state: &mut State, message: &Message) -> bool {
    let Message::Ack { part, from, to, epoch, mark } = *message else { return false };
    let Some(lead) = &mut state.replica_mut(part, to).leads else { return false };
    let known = &mut lead.marks[usize::from(from)];
    if lead.epoch != epoch || mark.life < known.life {
        return false;
    }
    let before = *known;
    if mark.life > known.life && model.rules.has(Rule::MarksOfThisLife) {
        *known = mark;
    } else {
        known.life = mark.life;
        known.appended = known.appended.max(mark.appended);
        known.synced = known.synced.max(mark.synced);
    }
    *known != before
}
