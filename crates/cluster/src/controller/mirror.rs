//! The controller against the model of replication (`crates/model`): it decides in the model's place, wherever that goes.
//!
//! `RIVERRUN_MIRROR_WALKS=N` goes more ways.

use std::collections::BTreeMap;
use std::sync::Arc;

use riverrun_model::mirror::{
    BrokerView, CONTROLLER_RULES, Controller as Deciding, Driven, Event, Events, Mismatch, PartitionView,
    drive, drive_trace,
};
use riverrun_model::{Bounds, Level, Model, Node, Quorum, Rule, Rules, Set, Setup, case};
use riverrun_types::{DurabilityLevel, LeaderEpoch, NodeId, PartitionId, TopicId};

use super::*;
use crate::planted::{Planted, plant};

const STEPS: usize = 200;

/// The setup's level and minimum, whatever the configs.
struct OfSetup(Setup);

impl Policy for OfSetup {
    fn level(&self, _configs: &Configs) -> DurabilityLevel {
        match self.0.level {
            Level::SyncSync => DurabilityLevel::SyncSync,
            Level::SyncAsync => DurabilityLevel::SyncAsync,
            Level::AsyncSync => DurabilityLevel::AsyncSync,
            Level::AsyncAsync => DurabilityLevel::AsyncAsync,
        }
    }

    fn min_insync(&self, _configs: &Configs, _replicas: usize) -> usize {
        usize::from(self.0.minimum)
    }
}

/// The controller behind the model's door.
struct Mirror {
    policy: OfSetup,
    controller: Controller,
    index: u64,
    /// The incarnation of each life of a broker, from life 1 on.
    lives: BTreeMap<Node, Vec<u64>>,
    /// The epoch in which the leader of a partition has resigned.
    resigned: BTreeMap<u8, LeaderEpoch>,
    boots: u8,
}

fn node_of(node: Node) -> NodeId {
    NodeId(i32::from(node))
}

fn id_of(part: u8) -> PartitionId {
    PartitionId { topic: TopicId([part + 1; 16]), index: 0 }
}

impl Mirror {
    fn new(setup: Setup) -> Self {
        let mut mirror = Self {
            policy: OfSetup(setup),
            controller: Controller::default(),
            index: 0,
            lives: BTreeMap::new(),
            resigned: BTreeMap::new(),
            boots: 0,
        };
        for node in 0..3 {
            mirror.register(node, false);
            mirror.unfence(node);
        }
        for part in 0..setup.partitions {
            let partitions = NewPartitions::Assigned(vec![setup.replicas.iter().map(node_of).collect()]);
            let (id, name) = (id_of(part).topic, format!("p{part}"));
            let new = NewTopic { id, name, configs: Configs::new(), partitions };
            mirror.decide(|draft| draft.create_topic(new)).expect("made");
        }
        mirror
    }

    fn register(&mut self, node: Node, suspect: bool) {
        self.boots += u8::from(suspect);
        let clean_of = if suspect { None } else { self.lives.get(&node).and_then(|lives| lives.last()) };
        let clean_of = clean_of.copied();
        let registration = Registration {
            node: node_of(node),
            directory: [node; 16],
            life: u128::from(self.index + 1).to_le_bytes(),
            boot: [self.boots; 16],
            rack: None,
            software: String::new(),
            endpoints: Vec::new(),
            dirs: vec![LogDir { id: "d".to_owned(), is_available: true, is_cordoned: false }],
            features: Vec::new(),
        };
        self.decide(|draft| draft.register(Newcomer { registration, clean_of }, false)).expect("registered");
        self.lives.entry(node).or_default().push(self.index);
    }

    fn unfence(&mut self, node: Node) {
        let incarnation = self.incarnation(node, None);
        self.decide(|draft| draft.unfence(node_of(node), incarnation)).expect("unfenced");
    }

    /// The incarnation of a life; of the registered one, if none is named.
    fn incarnation(&self, node: Node, life: Option<u8>) -> u64 {
        let lives = &self.lives[&node];
        life.map_or(lives[lives.len() - 1], |life| lives[usize::from(life) - 1])
    }

    fn decide<T>(&mut self, decide: impl FnOnce(&mut Draft<'_>) -> T) -> T {
        let image = Arc::clone(self.controller.image());
        let mut draft = Draft::new(&image, &self.policy);
        let decided = decide(&mut draft);
        if !draft.is_empty() {
            self.index += 1;
            let command = draft.into_bytes();
            let outcome = Outcome::decode(&self.controller.apply(self.index, &command).expect("readable"));
            assert_eq!(outcome, Some(Outcome::Taken));
        }
        decided
    }

    fn partition_of(&self, part: u8) -> &Partition {
        self.controller.image().partition(id_of(part)).expect("made")
    }

    fn alter(&mut self, event: Event) {
        let Event::Alter { part, from, epoch, version, isr, joiner } = event else { return };
        let life_of = |node: Node| joiner.filter(|(joiner, _)| *joiner == node).map(|(_, life)| life);
        let members = isr.iter().map(|node| (node_of(node), self.incarnation(node, life_of(node))));
        let asked = IsrChange {
            id: id_of(part),
            leader_epoch: LeaderEpoch(i32::from(epoch) - 1),
            version: i32::try_from(version).expect("small"),
            isr: members.collect(),
        };
        let incarnation = self.incarnation(from, None);
        // A refusal shows in the views.
        let _ = self.decide(|draft| draft.change_isr(node_of(from), incarnation, &asked));
    }
}

impl Deciding for Mirror {
    fn decide(&mut self, event: Event) {
        match event {
            Event::Fence { node } => {
                self.decide(|draft| draft.fence(node_of(node))).expect("registered");
            }
            Event::Unfence { node } => self.unfence(node),
            Event::Register { node, life: _, suspect } => self.register(node, suspect),
            alter @ Event::Alter { .. } => self.alter(alter),
            Event::StartReassignment { part, target } => {
                let target: Vec<_> = target.iter().map(node_of).collect();
                self.decide(|draft| draft.reassign(id_of(part), &target)).expect("begun");
            }
            Event::FinishReassignment { part } => {
                let resigned_in = self.resigned.get(&part).copied();
                let _ = self.decide(|draft| draft.finish_reassignment(id_of(part), resigned_in));
            }
            Event::Resign { part, node: _ } => {
                self.resigned.insert(part, self.partition_of(part).leader_epoch);
            }
            Event::UncleanLeader { part, node } => {
                let _ = self.decide(|draft| draft.elect_unclean(id_of(part), Some(node_of(node))));
            }
        }
    }

    fn partition(&self, part: u8) -> PartitionView {
        let partition = self.partition_of(part);
        let narrow = |node: NodeId| Node::try_from(node.0).expect("small");
        let set = |places: ReplicaSet| -> Set { partition.nodes(places).map(narrow).collect() };
        let all = ReplicaSet::first(partition.replicas.len());
        let target = if partition.is_reassigned() { partition.target() } else { ReplicaSet::EMPTY };
        PartitionView {
            leader: partition.leader().map(narrow),
            epoch: u8::try_from(partition.leader_epoch.0 + 1).expect("small"),
            version: u64::try_from(partition.version).expect("not negative"),
            isr: set(partition.roles.isr),
            elr: set(partition.roles.elr),
            replicas: set(all),
            target: set(target),
        }
    }

    fn broker(&self, node: Node) -> BrokerView {
        let broker = self.controller.image().broker(node_of(node)).expect("registered");
        let life = u8::try_from(self.lives[&node].len()).expect("few");
        BrokerView { life, fenced: broker.is_fenced }
    }
}

/// All that may happen, and much of it.
const WIDE: Bounds = Bounds {
    values: 4,
    epochs: 6,
    messages: 4,
    slots: 2,
    crashes: 6,
    power_cuts: 3,
    fences: 8,
    changes: 20,
    copies: 6,
    unclean: 2,
};

fn setups() -> Vec<Setup> {
    let (base, moved) = (Setup::default(), Set::of(&[1, 2]));
    vec![
        base,
        Setup { partitions: 2, ..base },
        Setup { minimum: 1, level: Level::SyncAsync, ..base },
        Setup { minimum: 3, level: Level::SyncAsync, partitions: 2, ..base },
        Setup { level: Level::AsyncSync, target: moved, ..base },
        Setup { level: Level::AsyncAsync, target: moved, ..base },
        Setup { replicas: Set::of(&[0, 1]), target: Set::of(&[0, 2]), ..base },
        Setup { replicas: Set::of(&[0, 1]), target: Set::of(&[2]), level: Level::AsyncSync, ..base },
    ]
}

fn walk(setup: Setup, seed: u64) -> Result<Driven, Mismatch> {
    let model = Model::new(setup, WIDE, Rules::default());
    let random = riverrun_env::sim::SimRandom::new(seed);
    let mut below = |bound: usize| {
        usize::try_from(riverrun_env::Random::next_u64(&random) % bound as u64).expect("small")
    };
    drive(&model, &mut Mirror::new(setup), &mut below, STEPS)
}

fn trace_of(rule: Rule) -> String {
    let file = format!("{}/../model/testdata/{rule}.txt", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(file).expect("each rule has a trace")
}

fn rules() -> impl Iterator<Item = Rule> {
    Rule::ALL.iter().copied().filter(|rule| case(*rule).0.quorum == Quorum::All)
}

#[test]
fn the_controller_agrees_with_the_model_on_every_way() {
    let walks = std::env::var("RIVERRUN_MIRROR_WALKS").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    let mut events = Events::default();
    for setup in setups() {
        for seed in 0..walks {
            let driven = walk(setup, seed).unwrap_or_else(|mismatch| panic!("{setup:?} {seed}: {mismatch}"));
            assert_eq!(driven.broken, None, "{setup:?} {seed}:\n{}", driven.trace);
            events += driven.events;
        }
    }
    println!("{events}");
    let rare: Vec<_> = events.iter().filter(|(_, count)| *count < 100).collect();
    assert!(rare.is_empty(), "decided too seldom: {rare:?}");
}

#[test]
fn bad_traces_end_before_anything_is_broken() {
    for rule in rules() {
        let (setup, bounds) = case(rule);
        let model = Model::new(setup, bounds, Rules::default());
        let driven = drive_trace(&model, &mut Mirror::new(setup), &trace_of(rule));
        let driven = driven.unwrap_or_else(|mismatch| panic!("{rule}: {mismatch}"));
        assert_eq!(driven.broken, None, "{rule}:\n{}", driven.trace);
    }
}

#[test]
fn bad_traces_of_others_rules_are_agreed_upon_to_their_end() {
    for rule in rules().filter(|rule| !CONTROLLER_RULES.contains(rule)) {
        let (setup, bounds) = case(rule);
        let model = Model::new(setup, bounds, Rules::without(rule));
        let driven = drive_trace(&model, &mut Mirror::new(setup), &trace_of(rule));
        let driven = driven.unwrap_or_else(|mismatch| panic!("{rule}: {mismatch}"));
        assert_eq!(driven.ended, None, "{rule}:\n{}", driven.trace);
        assert!(driven.broken.is_some(), "{rule}:\n{}", driven.trace);
    }
}

#[test]
fn bad_traces_of_its_own_rules_are_not_agreed_upon() {
    for rule in CONTROLLER_RULES.iter().copied() {
        let (setup, bounds) = case(rule);
        let model = Model::new(setup, bounds, Rules::without(rule));
        match drive_trace(&model, &mut Mirror::new(setup), &trace_of(rule)) {
            Err(mismatch) => assert!(mismatch.event.is_some(), "{rule}: {mismatch}"),
            // The model without it may elect whom the rule names, too.
            Ok(driven) => assert_eq!((rule, driven.broken), (Rule::LeaderFromCandidates, None)),
        }
    }
}

#[test]
fn bugs_of_the_controller_are_found_by_the_model() {
    for planted in [
        Planted::LeaderWithoutEpoch,
        Planted::VersionStandsStill,
        Planted::FencedElected,
        Planted::NewLifeSameEpoch,
        Planted::UncleanKept,
        Planted::EligibleKept,
        Planted::EligibleForgotten,
        Planted::VersionNotChecked,
        Planted::IncarnationNotChecked,
        Planted::FencedJoins,
        Planted::RefusalKeepsVersion,
        Planted::ReassignmentEndsEarly,
        Planted::NobodyResigns,
    ] {
        let planting = plant(planted);
        let mut ways = (0..200).flat_map(|seed| setups().into_iter().map(move |setup| (setup, seed)));
        let found = ways.position(|(setup, seed)| walk(setup, seed).is_err());
        drop(planting);
        println!("{planted:?}: way {found:?}");
        assert!(found.is_some(), "{planted:?} is not found");
    }
}
