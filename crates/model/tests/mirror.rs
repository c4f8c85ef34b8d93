//! A controller that is not the model's decides in its place: one written from docs/replication.md alone agrees with the model
//! wherever the two go, and each mistake that is planted in it is found.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::thread;

use riverrun_model::mirror::{
    BrokerView, CONTROLLER_RULES, Controller, Decision, Driven, Event, Events, Mismatch, PartitionView,
    drive, drive_scenario, drive_trace,
};
use riverrun_model::{Bounds, Invariant, Level, Model, Node, Quorum, Rule, Rules, Set, Setup, case};

/// Steps of a random way.
const STEPS: usize = 200;

/// Ways through each setup.
const WALKS: u64 = 2_600;

/// States that are looked at for a milestone.
const STATES_MAX: usize = 200_000;

/// A mistake of a controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    /// It does not keep a rule.
    Without(Rule),
    /// A replica that leaves a set that is too small is not eligible.
    EligibleNotKept,
    /// A leader is elected that is fenced.
    ElectsFenced,
    /// Eligible replicas are elected before those in sync.
    EligibleFirst,
    /// A fenced member stays in sync, unless it leads.
    FencedStaysIn,
    /// A leader that goes, and nobody comes after it, takes no epoch along.
    LeaderlessKeepsEpoch,
    /// An election does not move the version.
    ElectionKeepsVersion,
    /// A partition without a leader waits for more than an eligible replica's return.
    ReturnElectsNobody,
    /// A leader that was elected from the eligible replicas stays eligible.
    ElectedStaysEligible,
    /// A reassignment ends as soon as the leader's request has brought one of the target in.
    EndsAtFirstJoin,
    /// A resignation moves the version.
    ResignationMovesVersion,
    /// An operator's leader takes the place of one that is there.
    UncleanBesideLeader,
    /// An operator's leader leaves the eligible replicas as they were.
    UncleanKeepsEligible,
    /// A new life is not fenced if the one before was not in sync anywhere.
    UnsyncedLifeUnfenced,
}

const MISTAKES: [Mistake; 13] = [
    Mistake::EligibleNotKept,
    Mistake::ElectsFenced,
    Mistake::EligibleFirst,
    Mistake::FencedStaysIn,
    Mistake::LeaderlessKeepsEpoch,
    Mistake::ElectionKeepsVersion,
    Mistake::ReturnElectsNobody,
    Mistake::ElectedStaysEligible,
    Mistake::EndsAtFirstJoin,
    Mistake::ResignationMovesVersion,
    Mistake::UncleanBesideLeader,
    Mistake::UncleanKeepsEligible,
    Mistake::UnsyncedLifeUnfenced,
];

#[derive(Clone, PartialEq, Eq, Default)]
struct Partition {
    leader: Option<Node>,
    epoch: u8,
    replicas: BTreeSet<Node>,
    in_sync: BTreeSet<Node>,
    eligible: BTreeSet<Node>,
    target: BTreeSet<Node>,
}

/// A partition, its version, and the epoch in which its leader has resigned.
struct Versioned {
    partition: Partition,
    version: u64,
    resigned: u8,
}

#[derive(Clone, Copy)]
struct Registration {
    life: u8,
    fenced: bool,
}

/// The controller of docs/replication.md.
struct Reference {
    setup: Setup,
    mistake: Option<Mistake>,
    partitions: Vec<Versioned>,
    brokers: [Registration; 3],
}

impl Reference {
    fn new(setup: Setup, mistake: Option<Mistake>) -> Self {
        let replicas: BTreeSet<Node> = setup.replicas.iter().collect();
        let first = Partition {
            leader: Some(0),
            epoch: 1,
            in_sync: replicas.clone(),
            replicas,
            ..Partition::default()
        };
        // Versions are no matter of the model: they begin anywhere.
        let first =
            |part: u8| Versioned { partition: first.clone(), version: 40 + u64::from(part), resigned: 0 };
        Self {
            setup,
            mistake,
            partitions: (0..setup.partitions).map(first).collect(),
            brokers: [Registration { life: 1, fenced: false }; 3],
        }
    }

    fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    fn keeps(&self, rule: Rule) -> bool {
        !self.makes(Mistake::Without(rule))
    }

    fn acks_alone(&self) -> bool {
        matches!(self.setup.level, Level::AsyncSync | Level::AsyncAsync)
    }

    /// Changes a partition. One change is one version.
    fn change(&mut self, part: usize, change: impl FnOnce(&Self, &mut Partition)) {
        let before = self.partitions[part].partition.clone();
        let mut after = before.clone();
        change(self, &mut after);
        let elected = after.epoch != before.epoch && self.makes(Mistake::ElectionKeepsVersion);
        let versioned = &mut self.partitions[part];
        versioned.version += u64::from(after != before && !elected);
        versioned.partition = after;
    }

    fn change_all(&mut self, change: impl Fn(&Self, &mut Partition)) {
        for part in 0..self.partitions.len() {
            self.change(part, &change);
        }
    }

    fn set_in_sync(&self, partition: &mut Partition, in_sync: BTreeSet<Node>) {
        if in_sync.len() < usize::from(self.setup.minimum) {
            if !self.makes(Mistake::EligibleNotKept) {
                let left = partition.in_sync.difference(&in_sync);
                partition.eligible.extend(left);
            }
            partition.eligible.retain(|node| !in_sync.contains(node));
        } else if self.keeps(Rule::EligibleForgotten) {
            partition.eligible.clear();
        }
        partition.in_sync = in_sync;
    }

    fn elect(&self, partition: &mut Partition) {
        let able = |set: &BTreeSet<Node>| {
            let fenced = |node: &Node| self.brokers[usize::from(*node)].fenced;
            set.iter().copied().find(|node| !fenced(node) || self.makes(Mistake::ElectsFenced))
        };
        let mut leader = if self.makes(Mistake::EligibleFirst) {
            able(&partition.eligible).or_else(|| able(&partition.in_sync))
        } else {
            able(&partition.in_sync).or_else(|| able(&partition.eligible))
        };
        if !self.keeps(Rule::LeaderFromCandidates) {
            let fenced = |node: &Node| self.brokers[usize::from(*node)].fenced;
            leader = partition.replicas.iter().copied().rfind(|node| !fenced(node));
        }
        if leader.is_some() || !self.makes(Mistake::LeaderlessKeepsEpoch) {
            partition.epoch += 1;
        }
        partition.leader = leader;
        if let Some(leader) = leader.filter(|leader| !partition.in_sync.contains(leader)) {
            let mut in_sync = partition.in_sync.clone();
            in_sync.insert(leader);
            self.set_in_sync(partition, in_sync);
            if self.makes(Mistake::ElectedStaysEligible) {
                partition.eligible.insert(leader);
            }
        }
    }

    /// A broker that may not lead leaves a partition.
    fn retire(&self, partition: &mut Partition, node: Node) {
        let leads = partition.leader == Some(node);
        if partition.in_sync.contains(&node) && (leads || !self.makes(Mistake::FencedStaysIn)) {
            let mut in_sync = partition.in_sync.clone();
            in_sync.remove(&node);
            self.set_in_sync(partition, in_sync);
        }
        if leads {
            self.elect(partition);
        }
    }

    fn register(&mut self, node: Node, life: u8, suspect: bool) {
        let broker = &mut self.brokers[usize::from(node)];
        broker.life = life;
        let was_fenced = broker.fenced;
        let spared = self.makes(Mistake::UnsyncedLifeUnfenced)
            && !self.partitions.iter().any(|part| part.partition.in_sync.contains(&node));
        let ends = self.keeps(Rule::NewLifeNewEpoch) && !was_fenced && !spared;
        self.brokers[usize::from(node)].fenced |= ends;
        let lacks = suspect && self.setup.level != Level::SyncSync && self.keeps(Rule::UncleanExcluded);
        self.change_all(|controller, partition| {
            if ends {
                controller.retire(partition, node);
            }
            if lacks {
                partition.in_sync.remove(&node);
                partition.eligible.remove(&node);
            }
        });
    }

    fn unfence(&mut self, node: Node) {
        self.brokers[usize::from(node)].fenced = false;
        self.change_all(|controller, partition| {
            let candidate = partition.in_sync.contains(&node) || partition.eligible.contains(&node);
            let waits = controller.makes(Mistake::ReturnElectsNobody);
            if partition.leader.is_none() && candidate && !waits {
                controller.elect(partition);
            }
        });
    }

    fn alter(&mut self, part: usize, asked: (u8, u64), isr: Set, joiner: Option<(Node, u8)>) {
        let versioned = &self.partitions[part];
        if asked != (versioned.partition.epoch, versioned.version) && self.keeps(Rule::VersionChecked) {
            return;
        }
        let isr: BTreeSet<Node> = isr.iter().collect();
        let able = joiner.is_none_or(|(node, life)| {
            let broker = self.brokers[usize::from(node)];
            (!broker.fenced || !self.keeps(Rule::FencedStaysOut))
                && (broker.life == life || !self.keeps(Rule::Incarnation))
        });
        if able && isr.is_subset(&versioned.partition.replicas) {
            self.change(part, |controller, partition| controller.set_in_sync(partition, isr));
        } else if self.keeps(Rule::RefusalMovesVersion) {
            self.partitions[part].version += 1;
        }
        let partition = &self.partitions[part].partition;
        let is_target = joiner.is_some_and(|(node, _)| partition.target.contains(&node));
        if is_target && self.makes(Mistake::EndsAtFirstJoin) {
            self.change(part, Self::end_reassignment);
        }
    }

    fn finish_reassignment(&mut self, part: usize) {
        let Versioned { partition, resigned, .. } = &self.partitions[part];
        let leaves = partition.leader.is_some_and(|leader| !partition.target.contains(&leader));
        let waits = leaves && self.acks_alone() && *resigned != partition.epoch && self.keeps(Rule::Resigns);
        let in_sync = partition.target.is_subset(&partition.in_sync) || !self.keeps(Rule::TargetInSync);
        if !partition.target.is_empty() && in_sync && !waits {
            self.change(part, Self::end_reassignment);
        }
    }

    fn end_reassignment(&self, partition: &mut Partition) {
        let target = std::mem::take(&mut partition.target);
        partition.eligible.retain(|node| target.contains(node));
        partition.in_sync.clone_from(&target);
        partition.replicas = target;
        if partition.leader.is_some_and(|leader| !partition.replicas.contains(&leader)) {
            self.elect(partition);
        }
    }

    fn lead_unclean(&mut self, part: usize, node: Node) {
        self.change(part, |controller, partition| {
            let needed = partition.leader.is_none() || controller.makes(Mistake::UncleanBesideLeader);
            let fenced = controller.brokers[usize::from(node)].fenced;
            if needed && !fenced && partition.replicas.contains(&node) {
                partition.leader = Some(node);
                partition.epoch += 1;
                partition.in_sync = BTreeSet::from([node]);
                if !controller.makes(Mistake::UncleanKeepsEligible) {
                    partition.eligible.clear();
                }
            }
        });
    }
}

impl Controller for Reference {
    fn decide(&mut self, event: Event) {
        match event {
            Event::Fence { node } => {
                self.brokers[usize::from(node)].fenced = true;
                self.change_all(|controller, partition| controller.retire(partition, node));
            }
            Event::Unfence { node } => self.unfence(node),
            Event::Register { node, life, suspect } => self.register(node, life, suspect),
            Event::Alter { part, from: _, epoch, version, isr, joiner } => {
                self.alter(usize::from(part), (epoch, version), isr, joiner);
            }
            Event::StartReassignment { part, target } => {
                self.change(usize::from(part), |_, partition| {
                    partition.target = target.iter().collect();
                    partition.replicas.extend(target.iter());
                });
            }
            Event::FinishReassignment { part } => self.finish_reassignment(usize::from(part)),
            Event::Resign { part, node } => {
                let moves = self.makes(Mistake::ResignationMovesVersion);
                let versioned = &mut self.partitions[usize::from(part)];
                assert_eq!(versioned.partition.leader, Some(node), "the leader resigns");
                versioned.resigned = versioned.partition.epoch;
                versioned.version += u64::from(moves);
            }
            Event::UncleanLeader { part, node } => self.lead_unclean(usize::from(part), node),
        }
    }

    fn partition(&self, part: u8) -> PartitionView {
        let Versioned { partition, version, .. } = &self.partitions[usize::from(part)];
        let set = |set: &BTreeSet<Node>| set.iter().copied().collect();
        PartitionView {
            leader: partition.leader,
            epoch: partition.epoch,
            version: *version,
            isr: set(&partition.in_sync),
            elr: set(&partition.eligible),
            replicas: set(&partition.replicas),
            target: set(&partition.target),
        }
    }

    fn broker(&self, node: Node) -> BrokerView {
        let Registration { life, fenced } = self.brokers[usize::from(node)];
        BrokerView { life, fenced }
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

/// The setups that ways go through.
fn setups() -> Vec<Setup> {
    let base = Setup::default();
    let moved = Set::of(&[1, 2]);
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

/// `SplitMix64`, as the model's own ways use it.
fn random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |bound| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).expect("a number below another usize is one")
    }
}

fn walk(setup: Setup, seed: u64, mistake: Option<Mistake>) -> Result<Driven, Mismatch> {
    let model = Model::new(setup, WIDE, Rules::default());
    drive(&model, &mut Reference::new(setup, mistake), &mut random(seed), STEPS)
}

fn testdata() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata")
}

fn trace_of(rule: Rule) -> String {
    fs::read_to_string(testdata().join(format!("{rule}.txt"))).expect("each rule has a trace")
}

/// The invariant that a trace's first line says to be broken.
fn invariant_of(trace: &str) -> Invariant {
    let first = trace.lines().next().unwrap_or_default();
    let found = Invariant::ALL.iter().find(|invariant| first.contains(&invariant.to_string()));
    *found.expect("the first line names an invariant")
}

/// The rules about a quorum of all.
fn rules() -> impl Iterator<Item = Rule> {
    Rule::ALL.iter().copied().filter(|rule| case(*rule).0.quorum == Quorum::All)
}

fn trace_without(rule: Rule, mistake: Option<Mistake>) -> Result<Driven, Mismatch> {
    let (setup, bounds) = case(rule);
    let model = Model::new(setup, bounds, Rules::without(rule));
    drive_trace(&model, &mut Reference::new(setup, mistake), &trace_of(rule))
}

#[test]
fn reference_agrees_with_the_model_on_every_way() {
    let walks = |setup| {
        let mut events = Events::default();
        for seed in 0..WALKS {
            let driven = walk(setup, seed, None).unwrap_or_else(|mismatch| panic!("seed {seed}: {mismatch}"));
            assert_eq!(driven.broken, None, "{setup:?} seed {seed}:\n{}", driven.trace);
            events += driven.events;
        }
        events
    };
    let events = thread::scope(|scope| {
        let threads: Vec<_> = setups().into_iter().map(|setup| scope.spawn(move || walks(setup))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).fold(Events::default(), |mut all, events| {
            all += events;
            all
        })
    });
    println!("{events}");
    let rare: Vec<_> = events.iter().filter(|(_, count)| *count < 1_000).collect();
    assert!(rare.is_empty(), "decided too seldom: {rare:?}");
}

#[test]
fn every_planted_mistake_is_found_by_a_random_way() {
    let rules = CONTROLLER_RULES.iter().map(|rule| Mistake::Without(*rule));
    for mistake in rules.chain(MISTAKES) {
        let seeds = (0..500).flat_map(|seed| setups().into_iter().map(move |setup| (setup, seed)));
        let found = seeds.enumerate().find_map(|(count, (setup, seed))| {
            walk(setup, seed, Some(mistake)).err().map(|mismatch| (count, mismatch))
        });
        let Some((count, mismatch)) = found else { panic!("{mistake:?} is not found") };
        println!("{mistake:?}: walk {count}, {:?}", mismatch.event);
    }
}

#[test]
fn bad_trace_ends_before_anything_is_broken() {
    for rule in rules() {
        let (setup, bounds) = case(rule);
        let complete = Model::new(setup, bounds, Rules::default());
        let driven = drive_trace(&complete, &mut Reference::new(setup, None), &trace_of(rule));
        let driven = driven.unwrap_or_else(|mismatch| panic!("{rule}: {mismatch}"));
        assert_eq!(driven.broken, None, "{rule}:\n{}", driven.trace);
        println!("{rule}: {} steps, ended by {:?}", driven.steps, driven.ended);
    }
}

#[test]
fn bad_trace_of_another_rule_is_agreed_upon_to_its_end() {
    for rule in rules().filter(|rule| !CONTROLLER_RULES.contains(rule)) {
        let driven = trace_without(rule, None).unwrap_or_else(|mismatch| panic!("{rule}: {mismatch}"));
        assert_eq!(driven.ended, None, "{rule}:\n{}", driven.trace);
        assert_eq!(driven.broken, Some(invariant_of(&trace_of(rule))), "{rule}:\n{}", driven.trace);
    }
}

#[test]
fn bad_trace_of_a_controllers_rule_is_not_agreed_upon() {
    for rule in CONTROLLER_RULES.iter().copied() {
        match trace_without(rule, None) {
            Err(mismatch) => assert!(mismatch.event.is_some(), "{rule}: {mismatch}"),
            // The model without it may elect whom the rule names, too.
            Ok(driven) => assert_eq!((rule, driven.broken), (Rule::LeaderFromCandidates, None)),
        }
        let lacking = trace_without(rule, Some(Mistake::Without(rule)));
        let driven = lacking.unwrap_or_else(|mismatch| panic!("{rule}: {mismatch}"));
        assert_eq!(driven.broken, Some(invariant_of(&trace_of(rule))), "{rule}:\n{}", driven.trace);
    }
}

#[test]
fn scenario_breaks_only_without_its_rule() {
    for rule in rules() {
        let file = testdata().join("scenarios").join(format!("{rule}.txt"));
        let Ok(text) = fs::read_to_string(file) else { continue };
        let (setup, bounds) = case(rule);
        let go = |rules| {
            let model = Model::new(setup, bounds, rules);
            drive_scenario(&model, &mut Reference::new(setup, None), &text, STATES_MAX)
        };
        let guarded = go(Rules::default()).unwrap_or_else(|mismatch| panic!("{rule}: {mismatch}"));
        assert_eq!(guarded.broken, None, "{rule}:\n{}", guarded.trace);
        match go(Rules::without(rule)) {
            Ok(driven) => assert!(driven.broken.is_some(), "{rule}: {:?}\n{}", driven.ended, driven.trace),
            Err(mismatch) => assert!(CONTROLLER_RULES.contains(&rule), "{rule}: {mismatch}"),
        }
    }
}

#[test]
fn trace_of_a_mismatch_leads_to_it_again() {
    let mistake = Some(Mistake::Without(Rule::VersionChecked));
    let setup = Setup::default();
    let found = (0..1_000).find_map(|seed| walk(setup, seed, mistake).err()).unwrap();
    let text = found.trace.to_string();
    assert!(text.lines().last().unwrap().starts_with("refused: taken: p0 alter"), "{text}");
    let model = Model::new(setup, WIDE, Rules::default());
    assert_eq!(drive_trace(&model, &mut Reference::new(setup, mistake), &text), Err(found.clone()));
    assert!(found.to_string().contains("the model allows   p0 "), "{found}");
    let agreed = drive_trace(&model, &mut Reference::new(setup, None), &text).unwrap();
    assert_eq!((agreed.steps, agreed.ended), (found.trace.len(), None));
    assert_eq!(agreed.events.of(Decision::AlterStale), text.matches("refused: taken").count());
}

/// A controller that moves an epoch when it has been looked at so many times, without any event.
struct Restless {
    reference: Reference,
    looks: Cell<u32>,
}

impl Controller for Restless {
    fn decide(&mut self, event: Event) {
        self.reference.decide(event);
    }

    fn partition(&self, part: u8) -> PartitionView {
        self.looks.set(self.looks.get().saturating_sub(1));
        let view = self.reference.partition(part);
        PartitionView { epoch: view.epoch + u8::from(self.looks.get() == 0), ..view }
    }

    fn broker(&self, node: Node) -> BrokerView {
        self.reference.broker(node)
    }
}

#[test]
fn change_without_an_event_is_a_mismatch() {
    let setup = Setup::default();
    let model = Model::new(setup, Bounds { values: 4, ..Bounds::NONE }, Rules::default());
    let restless = |looks| Restless { reference: Reference::new(setup, None), looks: Cell::new(looks) };
    let text = "0 appends to p0\n0 syncs p0\n0 appends to p0\n0 syncs p0\n";
    let mismatch = drive_trace(&model, &mut restless(8), text).unwrap_err();
    assert_eq!(mismatch.event, None);
    assert!(mismatch.to_string().starts_with("the controller has changed without an event"), "{mismatch}");
    let mismatch = drive_trace(&model, &mut restless(0), text).unwrap_err();
    assert!(mismatch.trace.is_empty());
    assert!(mismatch.to_string().starts_with("the controller begins elsewhere"), "{mismatch}");
}
