//! Owns what a model is given, and the list of the steps that are possible in a state.

use std::fmt;

use crate::controller;
use crate::failures;
use crate::follower;
use crate::leader;
use crate::log::{EPOCH_MAX, Epoch, LOG_MAX, Node, PARTITIONS, Set, nodes};
use crate::rules::{Level, Quorum, Rule, Rules};
use crate::state::{MESSAGES_MAX, Message, State};

/// The partitions that a model is about.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Partitions; they share their brokers, and each has its own leader. At most two.
    pub partitions: u8,
    /// The topic's durability level.
    pub level: Level,
    /// How many of the in-sync set must have a record.
    pub quorum: Quorum,
    /// `min.insync.replicas`.
    pub minimum: u8,
    /// The replicas; node 0 is one of them, and leads first.
    pub replicas: Set,
    /// The replicas that a reassignment may lead to; empty for none.
    pub target: Set,
}

impl Default for Setup {
    /// One partition at level 1 with three replicas, two of them required.
    fn default() -> Self {
        Self {
            partitions: 1,
            level: Level::SyncSync,
            quorum: Quorum::All,
            minimum: 2,
            replicas: Set::of(&[0, 1, 2]),
            target: Set::EMPTY,
        }
    }
}

/// How much of everything a search goes through.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Records of each partition.
    pub values: u8,
    /// The highest leader epoch.
    pub epochs: Epoch,
    /// Messages on their way at once.
    pub messages: u8,
    /// Messages of a kind between the same two nodes at once; two may overtake each other.
    pub slots: u8,
    /// Processes that die.
    pub crashes: u8,
    /// Power cuts, each of any set of nodes.
    pub power_cuts: u8,
    /// Brokers that are fenced while they run.
    pub fences: u8,
    /// Changes of an in-sync set that a leader asks for.
    pub changes: u8,
    /// Messages that arrive twice.
    pub copies: u8,
    /// Leaders that are asked for without all records.
    pub unclean: u8,
}

impl Bounds {
    /// One message of a kind at once, and nothing happens.
    pub const NONE: Self = Self {
        values: 0,
        epochs: 1,
        messages: 1,
        slots: 1,
        crashes: 0,
        power_cuts: 0,
        fences: 0,
        changes: 0,
        copies: 0,
        unclean: 0,
    };
}

/// A setup, its bounds and the rules that are obeyed.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    pub(crate) setup: Setup,
    pub(crate) bounds: Bounds,
    pub(crate) rules: Rules,
}

/// One step from a state to the next. Its text is one line of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step(pub(crate) Kind);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Append { part: u8, node: Node },
    Sync { part: u8, node: Node },
    Advance { part: u8, node: Node, to: u8 },
    AckAlone { part: u8, node: Node },
    Send(Message),
    Take(Message),
    TakeCopy(Message),
    Drop(Message),
    Learn { part: u8, node: Node },
    Fence(Node),
    Unfence(Node),
    LeaseEnds(Node),
    LeaseRenewed(Node),
    Register(Node),
    Crash { node: Node, unsynced_kept: bool },
    PowerCut(Set),
    Restart(Node),
    StartReassignment { part: u8 },
    FinishReassignment { part: u8 },
    Resign { part: u8, node: Node },
    UncleanLeader { part: u8, node: Node },
    Report { part: u8, node: Node },
    Choose { part: u8, node: Node },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Append { part, node } => write!(f, "{node} appends to p{part}"),
            Kind::Sync { part, node } => write!(f, "{node} syncs p{part}"),
            Kind::Advance { part, node, to } => {
                write!(f, "{node} moves the high watermark of p{part} to {to}")
            }
            Kind::AckAlone { part, node } => write!(f, "{node} acks its last record of p{part}"),
            Kind::Send(message) => write!(f, "sent: {message}"),
            Kind::Take(message) => write!(f, "taken: {message}"),
            Kind::TakeCopy(message) => write!(f, "taken, and a copy stays: {message}"),
            Kind::Drop(message) => write!(f, "lost: {message}"),
            Kind::Learn { part, node } => write!(f, "{node} learns of p{part}"),
            Kind::Fence(node) => write!(f, "the controller fences {node}"),
            Kind::Unfence(node) => write!(f, "the controller unfences {node}"),
            Kind::LeaseEnds(node) => write!(f, "the lease of {node} ends"),
            Kind::LeaseRenewed(node) => write!(f, "the lease of {node} is renewed"),
            Kind::Register(node) => write!(f, "{node} registers a new life"),
            Kind::Crash { node, unsynced_kept: true } => {
                write!(f, "{node} dies, the page cache keeps its records")
            }
            Kind::Crash { node, unsynced_kept: false } => write!(f, "{node} dies with its unsynced records"),
            Kind::PowerCut(set) => write!(f, "power cut of {set}"),
            Kind::Restart(node) => write!(f, "{node} starts"),
            Kind::StartReassignment { part } => write!(f, "reassignment of p{part} begins"),
            Kind::FinishReassignment { part } => write!(f, "reassignment of p{part} ends"),
            Kind::Resign { part, node } => write!(f, "{node} resigns from p{part}"),
            Kind::UncleanLeader { part, node } => {
                write!(f, "{node} is made leader of p{part} without all records")
            }
            Kind::Report { part, node } => write!(f, "{node} reports its log of p{part}"),
            Kind::Choose { part, node } => write!(f, "the controller chooses {node} for p{part}"),
        }
    }
}

/// Steps and the states that they lead to.
pub(crate) type Steps = Vec<(Step, State)>;

impl Model {
    /// # Panics
    /// If the bounds are larger than a state can hold, or the setup is none: node 0 must be a replica, `minimum` at least 1.
    pub fn new(setup: Setup, bounds: Bounds, rules: Rules) -> Self {
        assert!(usize::from(bounds.values) <= LOG_MAX, "a log holds {LOG_MAX} records");
        assert!(usize::from(bounds.epochs) <= EPOCH_MAX, "epochs go up to {EPOCH_MAX}");
        assert!(usize::from(bounds.messages) <= MESSAGES_MAX, "{MESSAGES_MAX} messages at once");
        assert!((1..=PARTITIONS as u8).contains(&setup.partitions), "one or {PARTITIONS} partitions");
        assert!(
            setup.quorum == Quorum::All
                || setup.level.followers_sync()
                || bounds.crashes + bounds.power_cuts == 0,
            "with a majority below level 1 an excluded member would have to stay in the set without a say"
        );
        assert!(setup.replicas.has(0) && setup.minimum >= 1, "node 0 leads first");
        Self { setup, bounds, rules }
    }

    pub(crate) fn first(&self) -> State {
        State::first(self.setup.partitions, self.setup.replicas, self.rules.has(Rule::EpochStartNoted))
    }

    /// Every step that is possible, and where it leads, in an order that does not change.
    pub(crate) fn steps(&self, state: &State, steps: &mut Steps) {
        steps.clear();
        for part in 0..self.setup.partitions {
            for node in nodes() {
                leader::steps(self, state, part, node, steps);
                follower::steps(self, state, part, node, steps);
            }
            controller::partition_steps(self, state, part, steps);
        }
        controller::broker_steps(self, state, steps);
        self.arrivals(state, steps);
        failures::steps(self, state, steps);
    }

    /// Messages that arrive, twice perhaps, or are lost.
    fn arrivals(&self, state: &State, steps: &mut Steps) {
        let mut before = None;
        for message in state.net.iter() {
            if before.replace(message) == Some(message) {
                continue;
            }
            let mut without = *state;
            without.net.take(&message);
            if !self.has_room(state, &message) {
                steps.push((Step(Kind::Drop(message)), without));
            }
            if let Some(next) = self.taken(&without, &message) {
                steps.push((Step(Kind::Take(message)), next));
            }
            if state.spent.copies < self.bounds.copies {
                let mut copied = *state;
                copied.spent.copies += 1;
                if let Some(next) = self.taken(&copied, &message) {
                    steps.push((Step(Kind::TakeCopy(message)), next));
                }
            }
        }
    }

    /// The states after a message was taken; none where it cannot be taken now or changes nothing.
    fn taken(&self, state: &State, message: &Message) -> Option<State> {
        let mut next = *state;
        let done = match message {
            Message::Frame { .. } => follower::take_frame(self, &mut next, message),
            Message::Ack { .. } => leader::take_ack(self, &mut next, message),
            Message::Alter { .. } => controller::take_alter(self, &mut next, message),
        };
        done.then_some(next)
    }

    /// Whether a message like this one can be sent. What cannot be sent for want of room can be after one is lost.
    pub(crate) fn has_room(&self, state: &State, message: &Message) -> bool {
        let alike = state.net.iter().filter(|other| other.key() == message.key()).count();
        state.net.len() < usize::from(self.bounds.messages) && alike < usize::from(self.bounds.slots)
    }

    /// Sends a message, if there is room and it is not on its way already.
    pub(crate) fn send(&self, state: &State, message: Message, steps: &mut Steps) {
        if self.has_room(state, &message) && state.net.iter().all(|other| other != message) {
            let mut next = *state;
            next.net.add(message);
            steps.push((Step(Kind::Send(message)), next));
        }
    }

    /// How many of a set must have a record.
    pub(crate) fn required(&self, set: Set) -> usize {
        match self.setup.quorum {
            Quorum::All => set.len(),
            Quorum::Majority => set.len() / 2 + 1,
        }
    }
}
