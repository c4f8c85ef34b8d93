//! Owns what a replica does whoever leads: learn of metadata, sync, take frames, cut, ack.

use crate::log::{Epoch, Epochs, Node};
use crate::model::{Kind, Model, Step, Steps};
use crate::rules::{Rule, Rules};
use crate::state::{Mark, Message, Replica, State};

/// The steps of a replica on a node that runs.
pub(crate) fn steps(model: &Model, state: &State, part: u8, node: Node, steps: &mut Steps) {
    if !state.serves(node) {
        return;
    }
    learn(model, state, part, node, steps);
    sync(model, state, part, node, steps);
    ack(model, state, part, node, steps);
}

/// The broker's image reaches the controller's state of a partition.
fn learn(model: &Model, state: &State, part: u8, node: Node, steps: &mut Steps) {
    let view = state.meta(part).view;
    let leads = view.leader == node;
    let view = if leads { view } else { view.for_follower() };
    let known = state.replica(part, node).known;
    if known == view {
        return;
    }
    let mut next = *state;
    let replica = next.replica_mut(part, node);
    replica.known = view;
    if known.epoch != view.epoch {
        replica.leads = None;
    }
    if leads && (known.epoch, known.leader) != (view.epoch, node) {
        replica.begin(view.epoch, model.rules.has(Rule::EpochStartNoted));
    }
    if let Some(lead) = &mut replica.leads {
        lead.open = None;
    }
    steps.push((Step(Kind::Learn { part, node }), next));
}

/// Syncs all of the log. Where nothing can lose power at a level without a journal, a sync makes no difference.
fn sync(model: &Model, state: &State, part: u8, node: Node, steps: &mut Steps) {
    let level = model.setup.level;
    let replica = state.replica(part, node);
    if replica.synced == replica.log.len() || !level.has_journal() && model.bounds.power_cuts == 0 {
        return;
    }
    let mut next = *state;
    let synced = next.replica_mut(part, node);
    // Without its cut in the journal, a replay goes by offset: what lies there already is taken for what was appended later.
    synced.disk =
        if model.rules.has(Rule::CutIsReplayed) { replica.log } else { replica.disk.extended(&replica.log) };
    synced.synced = replica.log.len();
    steps.push((Step(Kind::Sync { part, node }), next));
}

/// Marks to the leader, if they say something new.
fn ack(model: &Model, state: &State, part: u8, node: Node, steps: &mut Steps) {
    let replica = state.replica(part, node);
    if model.rules.has(Rule::EpochOfImage) && replica.joined != replica.known.epoch {
        return;
    }
    let mark = Mark { life: state.broker(node).life, appended: replica.log.len(), synced: replica.synced };
    for to in crate::log::nodes().filter(|to| *to != node) {
        let Some(lead) = state.replica(part, to).leads else { continue };
        if lead.epoch == replica.joined && lead.marks[usize::from(node)] != mark {
            model.send(state, Message::Ack { part, from: node, to, epoch: lead.epoch, mark }, steps);
        }
    }
}

/// Takes a leader's records. False if they cannot be taken now, or change nothing.
pub(crate) fn take_frame(model: &Model, state: &mut State, message: &Message) -> bool {
    let Message::Frame { part, from, to, epoch, log, log_end, epochs, hw } = *message else { return false };
    if !state.serves(to) {
        return false;
    }
    let rules = model.rules;
    let replica = state.replica_mut(part, to);
    let view = replica.known;
    let expected = view.epoch == epoch && view.leader == from;
    if replica.leads.is_some() || rules.has(Rule::EpochOfImage) && !expected {
        return false;
    }
    let before = *replica;
    if replica.joined != epoch {
        let end = cut_point(rules, replica, epoch, log_end, &epochs);
        cut(rules, replica, end);
        replica.joined = epoch;
    }
    replica.log = replica.log.extended(&log);
    let end = replica.log.len();
    replica.epochs = replica.epochs.overlaid_by(&epochs.up_to(end));
    replica.hw = replica.hw.max(if rules.has(Rule::HighWatermarkWithinLog) { hw.min(end) } else { hw });
    *replica != before
}

/// The offset at which a replica's log and that of the leader of `epoch` part.
fn cut_point(rules: Rules, replica: &Replica, epoch: Epoch, log_end: u8, epochs: &Epochs) -> u8 {
    let end = replica.log.len();
    if !rules.has(Rule::CutByEpoch) {
        return replica.hw.min(end);
    }
    if !rules.has(Rule::CutToCommonEpoch) {
        let last = replica.epochs.last();
        let asked = epochs.descending().find(|epoch| *epoch <= last);
        return asked.map_or(0, |epoch| epochs.end_of(epoch, log_end)).min(end);
    }
    let common = replica.epochs.descending().find(|epoch| epochs.start_of(*epoch).is_some());
    let Some(common) = common else { return 0 };
    let own = replica.epochs.end_of(common, end);
    if common == epoch && rules.has(Rule::OwnEpochStays) {
        own
    } else {
        own.min(epochs.end_of(common, log_end))
    }
}

/// Cuts a replica's log, its epochs and, durably, its disk.
fn cut(rules: Rules, replica: &mut Replica, end: u8) {
    replica.log = replica.log.cut(end);
    replica.synced = replica.synced.min(end);
    replica.hw = replica.hw.min(end);
    if rules.has(Rule::CutForgetsEpochs) {
        replica.epochs = replica.epochs.below(end);
    }
    if rules.has(Rule::CutIsReplayed) {
        replica.disk = replica.disk.cut(end);
    }
}
