//! Owns the door for a controller that decides in the model's place: the events it is told, the views it shows, and the report of
//! where it parts from the model.
//!
//! [`drive`] goes one random way, [`drive_trace`] the steps of a kept trace, [`drive_scenario`] from one milestone to the next.
//! Leaders, followers and failures are the model's. At each step of the controller, the one behind the door decides. The model
//! may allow several states there, for it leaves open which candidate is elected; the state that the views show is gone on
//! with, and if it is none of them, that is a [`Mismatch`]. Nothing but an event may change a view.
//!
//! Requests that a controller must refuse are offered as well: changes of an in-sync set from a stale version, a reassignment that is to
//! end too early, a leader without all records where none is needed or the broker is fenced.
//!
//! Versions are held against each other by their changes, not as numbers. A leader's request names the controller's version of
//! the state that the leader knows.

mod driver;

pub use driver::{drive, drive_scenario, drive_trace};

use std::fmt;
use std::ops::AddAssign;

use crate::invariants::Invariant;
use crate::log::{Epoch, NODES, Node, Set};
use crate::model::Step;
use crate::rules::Rule;
use crate::state::{Meta, NOBODY};

/// A controller that decides in the model's place.
///
/// It begins where a model does. Every broker has registered life 1 and is not fenced. Every partition has the replicas of the
/// [`Setup`](crate::Setup), all of them in sync, and node 0 leads it in epoch 1. A controller that counts from elsewhere is
/// translated by its implementation of this trait.
pub trait Controller {
    /// Decides about an event. Called once for each step that is the controller's, and for each offer that it must refuse.
    fn decide(&mut self, event: Event);

    /// A partition, from 0, as it is after the last decision.
    fn partition(&self, part: u8) -> PartitionView;

    /// A broker as it is registered after the last decision. Each node is one, also without a replica.
    fn broker(&self, node: Node) -> BrokerView;
}

/// An event that a controller decides about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The session of a broker that is not fenced has ended. At levels 3 and 4 its lease is over by then, by its own clock.
    Fence {
        /// The broker.
        node: Node,
    },
    /// A fenced broker, in the life that is registered, has caught up with the metadata: its image has reached what fenced it
    /// (`unfence-caught-up`). Whether it has is not the controller's to find out here.
    Unfence {
        /// The broker.
        node: Node,
    },
    /// A broker registers a new life. The one before is over, whether it was fenced or not. The new life begins fenced.
    Register {
        /// The broker.
        node: Node,
        /// One more than the life that is registered.
        life: u8,
        /// The life before ended so that it may lack what it had appended. The level says whether that excludes it: at level 1
        /// it does not.
        suspect: bool,
    },
    /// A leader asks for another in-sync set, of one member more or less.
    Alter {
        /// The partition.
        part: u8,
        /// The broker that asks. It may lead no more.
        from: Node,
        /// The epoch in which it leads.
        epoch: Epoch,
        /// The controller's version of the state that the request was made from.
        version: u64,
        /// The in-sync set asked for.
        isr: Set,
        /// The new member, and the life of it that was heard from; none if a member leaves.
        joiner: Option<(Node, u8)>,
    },
    /// An operator has the partition moved to other replicas.
    StartReassignment {
        /// The partition.
        part: u8,
        /// The replicas that it is to have at the end.
        target: Set,
    },
    /// A reassignment that has begun may be at its end. To be refused while some of the target is not in sync, and at levels 3
    /// and 4 while a leader that is none of the target has not resigned in its epoch.
    FinishReassignment {
        /// The partition.
        part: u8,
    },
    /// At levels 3 and 4: the leader, which is none of the target, says that it takes nothing more and that all of the target
    /// have its whole log. No view changes by it; [`Event::FinishReassignment`] may come from now on.
    Resign {
        /// The partition.
        part: u8,
        /// Its leader.
        node: Node,
    },
    /// An operator asks for a leader that may lack records. To be refused while there is a leader, and for a broker that is
    /// fenced or no replica.
    UncleanLeader {
        /// The partition.
        part: u8,
        /// The broker that is to lead.
        node: Node,
    },
}

/// A partition as a controller has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionView {
    /// The broker that leads, if one does.
    pub leader: Option<Node>,
    /// The leader epoch; it moves also when there is no leader any more.
    pub epoch: Epoch,
    /// Grows with each decision that changes the partition or refuses a request of its leader, and with nothing else.
    pub version: u64,
    /// The in-sync set.
    pub isr: Set,
    /// Eligible leader replicas.
    pub elr: Set,
    /// The replicas, with those of a reassignment that is under way.
    pub replicas: Set,
    /// The replicas that a reassignment leads to; empty without one.
    pub target: Set,
}

impl PartitionView {
    fn of(meta: &Meta, version: u64) -> Self {
        let Meta { view, elr, target, .. } = *meta;
        Self {
            leader: (view.leader != NOBODY).then_some(view.leader),
            epoch: view.epoch,
            version,
            isr: view.isr,
            elr,
            replicas: view.replicas,
            target,
        }
    }
}

impl fmt::Display for PartitionView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { leader, epoch, version, isr, elr, replicas, target } = self;
        match leader {
            Some(leader) => write!(f, "leader {leader}")?,
            None => write!(f, "no leader")?,
        }
        write!(f, " epoch {epoch} version {version} isr {isr} elr {elr} replicas {replicas} target {target}")
    }
}

/// A broker as a controller has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BrokerView {
    /// The life registered last.
    pub life: u8,
    /// Whether it may do nothing but follow.
    pub fenced: bool,
}

/// All that a controller has, or is allowed to have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Views {
    /// The partitions. In what is allowed, a version is the controller's last one, and one more if it has to move.
    pub partitions: Vec<PartitionView>,
    /// The brokers.
    pub brokers: [BrokerView; NODES],
}

impl fmt::Display for Views {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (part, view) in self.partitions.iter().enumerate() {
            write!(f, "p{part} {view}; ")?;
        }
        f.write_str("lives")?;
        for (node, BrokerView { life, fenced }) in self.brokers.iter().enumerate() {
            write!(f, " {node}.{life}{}", if *fenced { " fenced" } else { "" })?;
        }
        Ok(())
    }
}

/// One line of a way that was driven.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Line {
    /// A step of the model.
    Step(Step),
    /// An offer that the controller has to refuse: a step that the model does not have.
    Offer(Step),
}

const OFFERED: &str = "refused: ";

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(step) => step.fmt(f),
            Self::Offer(step) => write!(f, "{OFFERED}{step}"),
        }
    }
}

/// The way that was driven. Its text has a line for each step, and can be driven again by [`drive_trace`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace(Vec<Line>);

impl Trace {
    /// Its steps, and the offers between them.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was gone.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

macro_rules! decisions {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// A kind of decision, for counts.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Decision {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Decision {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$name,)+];
        }
    };
}

decisions! {
    /// A broker was fenced.
    Fence,
    /// A broker was unfenced.
    Unfence,
    /// A new life was registered.
    Register,
    /// A new life was registered that may lack what it had appended.
    RegisterSuspect,
    /// A member left the in-sync set by its leader's request.
    Shrink,
    /// A member joined the in-sync set by its leader's request.
    Join,
    /// A leader's request was refused.
    AlterRefused,
    /// A leader's request came from a stale version.
    AlterStale,
    /// A reassignment began.
    StartReassignment,
    /// A reassignment ended.
    FinishReassignment,
    /// A reassignment was to end too early.
    FinishRefused,
    /// A leader resigned.
    Resign,
    /// A leader without all records was named.
    UncleanLeader,
    /// A leader without all records was asked for in vain.
    UncleanRefused,
    /// A leader was elected from the in-sync set. Counted beside the event that made it necessary, as the next two are.
    ElectedInSync,
    /// A leader was elected from the eligible replicas.
    ElectedEligible,
    /// No candidate was left.
    LeftLeaderless,
}

/// How many decisions of each kind there were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Events([usize; Decision::ALL.len()]);

impl Events {
    /// Decisions of one kind.
    pub fn of(&self, decision: Decision) -> usize {
        self.0[decision as usize]
    }

    /// Every kind, and how many decisions were of it.
    pub fn iter(&self) -> impl Iterator<Item = (Decision, usize)> {
        Decision::ALL.iter().copied().zip(self.0)
    }

    fn add(&mut self, decision: Decision) {
        self.0[decision as usize] += 1;
    }
}

impl AddAssign for Events {
    fn add_assign(&mut self, other: Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }
}

impl fmt::Display for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (decision, count)) in self.iter().enumerate() {
            write!(f, "{}{decision:?} {count}", if place == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// A way that the controller and the model went together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Driven {
    /// Steps gone, and offers made.
    pub steps: usize,
    /// The controller's decisions.
    pub events: Events,
    /// The invariant that the last step broke; the way ends there.
    pub broken: Option<Invariant>,
    /// The line of the text that could not be gone, or the milestone that could not be reached; none if all were. A line that the
    /// controller can judge was offered to it, and refused.
    pub ended: Option<String>,
    /// The way.
    pub trace: Trace,
}

/// A controller has something that the model does not allow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// The way; its last line is the step after which the controller is elsewhere. Empty if it is so at the beginning.
    pub trace: Trace,
    /// The event that it decided about last; none if it had nothing to decide about in that step.
    pub event: Option<Event>,
    /// The views that the model allows: one of these.
    pub allowed: Vec<Views>,
    /// The views that the controller has.
    pub actual: Views,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.event {
            Some(event) => writeln!(f, "the controller decides otherwise than the model about {event:?}")?,
            None if self.trace.is_empty() => writeln!(f, "the controller begins elsewhere than the model")?,
            None => writeln!(f, "the controller has changed without an event")?,
        }
        writeln!(f, "after these {} steps:", self.trace.len())?;
        write!(f, "{}", self.trace)?;
        for (place, views) in self.allowed.iter().enumerate() {
            writeln!(f, "{} {views}", if place == 0 { "the model allows  " } else { "or                " })?;
        }
        write!(f, "the controller has {}", self.actual)
    }
}

impl std::error::Error for Mismatch {}

/// The rules that a controller keeps by its decisions, where the quorum is all of the in-sync set. A model without one of them
/// allows what such a controller refuses. `unfence-caught-up` is none of them: the event comes once the broker has caught up.
pub const CONTROLLER_RULES: &[Rule] = &[
    Rule::Incarnation,
    Rule::FencedStaysOut,
    Rule::VersionChecked,
    Rule::RefusalMovesVersion,
    Rule::EligibleForgotten,
    Rule::LeaderFromCandidates,
    Rule::NewLifeNewEpoch,
    Rule::UncleanExcluded,
    Rule::Resigns,
    Rule::TargetInSync,
];
