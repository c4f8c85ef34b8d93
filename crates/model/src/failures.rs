//! Owns what goes wrong with nodes: processes that die, power that goes, starts.

use crate::log::{Log, NODES, Node, Set, nodes};
use crate::model::{Kind, Model, Step, Steps};
use crate::state::State;

/// The failures that are possible now.
pub(crate) fn steps(model: &Model, state: &State, steps: &mut Steps) {
    for node in nodes() {
        crash(model, state, node, steps);
        restart(model, state, node, steps);
    }
    power_cut(model, state, steps);
}

/// A process dies: with a journal its records above the last sync were in memory or in the page cache.
fn crash(model: &Model, state: &State, node: Node, steps: &mut Steps) {
    if !state.broker(node).alive || state.spent.crashes >= model.bounds.crashes {
        return;
    }
    let mut next = *state;
    next.spent.crashes += 1;
    stop(model, &mut next, node);
    next.broker_mut(node).suspect |= model.setup.level.has_journal();
    steps.push((Step(Kind::Crash { node, unsynced_kept: true }), next));
    if model.setup.level.has_journal() {
        let mut gone = next;
        for part in 0..model.setup.partitions {
            back_to_disk(&mut gone, part, node);
            excuse(model, &mut gone, part);
        }
        if gone != next {
            steps.push((Step(Kind::Crash { node, unsynced_kept: false }), gone));
        }
    }
}

/// Ends a life, and all that it knew.
fn stop(model: &Model, state: &mut State, node: Node) {
    let broker = state.broker_mut(node);
    broker.alive = false;
    broker.life = 0;
    broker.lease = false;
    for part in 0..model.setup.partitions {
        let replica = state.replica_mut(part, node);
        replica.leads = None;
        replica.joined = 0;
        replica.hw = 0;
    }
}

fn back_to_disk(state: &mut State, part: u8, node: Node) {
    let replica = state.replica_mut(part, node);
    replica.log = replica.disk;
    replica.synced = replica.log.len();
    replica.epochs = replica.epochs.up_to(replica.log.len());
}

/// A start reads what is there. A journal is synced before anything else.
fn restart(model: &Model, state: &State, node: Node, steps: &mut Steps) {
    if state.broker(node).alive {
        return;
    }
    let mut next = *state;
    next.broker_mut(node).alive = true;
    if model.setup.level.has_journal() {
        for part in 0..model.setup.partitions {
            let replica = next.replica_mut(part, node);
            replica.disk = replica.log;
            replica.synced = replica.log.len();
        }
    }
    steps.push((Step(Kind::Restart(node)), next));
}

/// Power goes, of any of the nodes at once.
fn power_cut(model: &Model, state: &State, steps: &mut Steps) {
    if state.spent.power_cuts >= model.bounds.power_cuts {
        return;
    }
    for mask in 1..1_u8 << NODES {
        let set = nodes().filter(|node| mask & (1 << node) != 0).fold(Set::EMPTY, Set::with);
        let mut next = *state;
        next.spent.power_cuts += 1;
        for node in set.iter() {
            stop(model, &mut next, node);
            next.broker_mut(node).suspect = true;
            for part in 0..model.setup.partitions {
                back_to_disk(&mut next, part, node);
            }
        }
        for part in 0..model.setup.partitions {
            excuse(model, &mut next, part);
        }
        steps.push((Step(Kind::PowerCut(set)), next));
    }
}

/// Below level 1 a record may be lost once no node has it any more.
fn excuse(model: &Model, state: &mut State, part: u8) {
    if model.setup.level.followers_sync() {
        return;
    }
    let partition = &mut state.parts[usize::from(part)];
    let held = |log: &Log| partition.seen.common(log);
    let kept = partition.replicas.iter().map(|replica| held(&replica.log)).max().unwrap_or(0);
    partition.seen = partition.seen.cut(kept);
}
