//! Owns the state of a model: the controller's, the brokers', their replicas, and the messages between them.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::log::{Entry, Epoch, Epochs, Log, NODES, Node, PARTITIONS, Set};

/// No leader.
pub(crate) const NOBODY: Node = Node::MAX;

/// Messages that may be on their way at once.
pub(crate) const MESSAGES_MAX: usize = 4;

/// A partition's metadata as a broker's image has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct View {
    pub(crate) leader: Node,
    pub(crate) epoch: Epoch,
    /// Moves with every change ("partition epoch").
    pub(crate) version: u8,
    pub(crate) isr: Set,
    pub(crate) replicas: Set,
}

/// A partition as the controller has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Meta {
    pub(crate) view: View,
    /// Eligible leader replicas: they left the in-sync set while it was too small for the high watermark to move (KIP-966).
    pub(crate) elr: Set,
    /// The replicas that a reassignment leads to; empty without one.
    pub(crate) target: Set,
    /// The last epoch noted and the end of the log of the members that have reported, while a majority chooses a leader.
    pub(crate) reports: [Option<Report>; NODES],
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Report {
    pub(crate) rank: Epoch,
    pub(crate) end: u8,
}

/// A leader's knowledge of a follower.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Mark {
    /// The life that was heard from in this epoch; 0 if none was.
    pub(crate) life: u8,
    pub(crate) appended: u8,
    pub(crate) synced: u8,
}

/// A change of the in-sync set that the leader has asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Change {
    pub(crate) isr: Set,
    pub(crate) joiner: Option<(Node, u8)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Lead {
    pub(crate) epoch: Epoch,
    pub(crate) marks: [Mark; NODES],
    pub(crate) open: Option<Change>,
}

/// A broker's replica of a partition.
///
/// Invariants: `leads`, `joined` and `hw` are of this life of the process alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Replica {
    pub(crate) log: Log,
    /// The log that a power cut leaves.
    pub(crate) disk: Log,
    /// How much of the log the broker believes to be synced.
    pub(crate) synced: u8,
    pub(crate) epochs: Epochs,
    pub(crate) known: View,
    /// The epoch in which this life has shaken hands with the leader, or leads; 0 if none.
    pub(crate) joined: Epoch,
    pub(crate) hw: u8,
    pub(crate) leads: Option<Lead>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Partition {
    pub(crate) meta: Meta,
    pub(crate) replicas: [Replica; NODES],
    /// The records that readers have seen: all below a high watermark of a leader. At levels 1 and 2 they are those acked.
    pub(crate) seen: Log,
    /// The records that leaders have acked by themselves, at levels 3 and 4: they survive everything but a failure.
    pub(crate) acked_alone: Log,
    /// The epoch of the last leader that was asked for without all seen records; 0 if there was none. What leaders of earlier epochs
    /// do is no promise any more.
    pub(crate) unclean: Epoch,
    pub(crate) values: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Broker {
    pub(crate) alive: bool,
    /// The incarnation that this process has registered; 0 before it has.
    pub(crate) life: u8,
    /// It may lack records that it had appended, since it registered last.
    pub(crate) suspect: bool,
    /// Its own clock says that the controller has heard from it.
    pub(crate) lease: bool,
}

/// A broker's registration at the controller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Registration {
    pub(crate) life: u8,
    pub(crate) fenced: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Message {
    /// A leader's records from the first one up to one more than it knows the follower to have; a follower takes what it lacks.
    Frame { part: u8, from: Node, to: Node, epoch: Epoch, log: Log, log_end: u8, epochs: Epochs, hw: u8 },
    /// A follower's marks, cumulative.
    Ack { part: u8, from: Node, to: Node, epoch: Epoch, mark: Mark },
    /// A change of the in-sync set that a leader asks for.
    Alter { part: u8, from: Node, epoch: Epoch, version: u8, change: Change },
}

impl Message {
    /// Messages with the same key may overtake each other only over a new connection.
    pub(crate) fn key(&self) -> (u8, u8, Node, Node) {
        match *self {
            Self::Frame { part, from, to, .. } => (0, part, from, to),
            Self::Ack { part, from, to, .. } => (1, part, from, to),
            Self::Alter { part, from, .. } => (2, part, from, NOBODY),
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame { part, from, to, epoch, log, log_end, hw, .. } => {
                write!(f, "p{part} frame {from}->{to} epoch {epoch} {log} of {log_end} hw {hw}")
            }
            Self::Ack { part, from, to, epoch, mark } => write!(
                f,
                "p{part} ack {from}.{}->{to} epoch {epoch} appended {} synced {}",
                mark.life, mark.appended, mark.synced
            ),
            Self::Alter { part, from, epoch, version, change } => {
                write!(f, "p{part} alter by {from} epoch {epoch} version {version} to {}", change.isr)?;
                match change.joiner {
                    Some((node, life)) => write!(f, " with {node}.{life}"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// Messages on their way, sorted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Net([Option<Message>; MESSAGES_MAX]);

impl Net {
    pub(crate) fn iter(&self) -> impl Iterator<Item = Message> {
        self.0.iter().filter_map(|slot| *slot)
    }

    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }

    /// Adds a message. The caller has looked that there is room.
    pub(crate) fn add(&mut self, message: Message) {
        let free = self.0.iter_mut().find(|slot| slot.is_none());
        if let Some(slot) = free {
            *slot = Some(message);
        }
        self.0.sort_unstable();
    }

    /// Takes one copy of a message away.
    pub(crate) fn take(&mut self, message: &Message) {
        let found = self.0.iter_mut().find(|slot| slot.as_ref() == Some(message));
        if let Some(slot) = found {
            *slot = None;
        }
        self.0.sort_unstable();
    }
}

/// How often the costly things have happened; each has a bound.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Spent {
    pub(crate) crashes: u8,
    pub(crate) power_cuts: u8,
    pub(crate) fences: u8,
    pub(crate) changes: u8,
    pub(crate) copies: u8,
    pub(crate) unclean: u8,
    /// Leases that have ended.
    pub(crate) leases: u8,
}

impl Spent {
    /// Whether nothing has failed so far.
    pub(crate) fn has_no_failure(&self) -> bool {
        self.crashes + self.power_cuts + self.fences + self.unclean + self.leases == 0
    }
}

/// Everything.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    /// Partitions in use; the rest are as they were at first.
    count: u8,
    pub(crate) parts: [Partition; PARTITIONS],
    pub(crate) brokers: [Broker; NODES],
    pub(crate) registered: [Registration; NODES],
    pub(crate) net: Net,
    pub(crate) spent: Spent,
    /// A promise that a step itself has broken.
    pub(crate) broken: Option<crate::Invariant>,
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        for part in &self.parts[..usize::from(self.count)] {
            part.hash(hasher);
        }
        self.brokers.hash(hasher);
        self.registered.hash(hasher);
        self.net.hash(hasher);
        self.spent.hash(hasher);
        self.broken.hash(hasher);
    }
}

impl Replica {
    /// An empty replica that knows the first view.
    fn new(view: View) -> Self {
        Self {
            log: Log::default(),
            disk: Log::default(),
            synced: 0,
            epochs: Epochs::default(),
            known: view,
            joined: 0,
            hw: 0,
            leads: None,
        }
    }

    /// Begins to lead: the epoch's start is noted durably before the first record, unless `noted` is off.
    pub(crate) fn begin(&mut self, epoch: Epoch, noted: bool) {
        if noted {
            self.epochs.note(epoch, self.log.len());
        }
        self.joined = epoch;
        self.leads = Some(Lead { epoch, marks: [Mark::default(); NODES], open: None });
    }

    /// Appends as the leader of an epoch.
    pub(crate) fn append(&mut self, epoch: Epoch, value: u8) {
        if self.epochs.start_of(epoch).is_none() {
            self.epochs.note(epoch, self.log.len());
        }
        self.log.push(Entry { epoch, value });
    }
}

impl State {
    /// Every replica is in sync, and node 0 leads.
    pub(crate) fn first(partitions: u8, replicas: Set, noted: bool) -> Self {
        let view = View { leader: 0, epoch: 1, version: 1, isr: replicas, replicas };
        let mut part = Partition {
            meta: Meta { view, elr: Set::EMPTY, target: Set::EMPTY, reports: [None; NODES] },
            replicas: [Replica::new(view.for_follower()); NODES],
            seen: Log::default(),
            acked_alone: Log::default(),
            unclean: 0,
            values: 0,
        };
        part.replicas[0].known = view;
        part.replicas[0].begin(1, noted);
        Self {
            count: partitions,
            parts: [part; PARTITIONS],
            brokers: [Broker { alive: true, life: 1, suspect: false, lease: true }; NODES],
            registered: [Registration { life: 1, fenced: false }; NODES],
            net: Net::default(),
            spent: Spent::default(),
            broken: None,
        }
    }

    pub(crate) fn replica(&self, part: u8, node: Node) -> &Replica {
        &self.parts[usize::from(part)].replicas[usize::from(node)]
    }

    pub(crate) fn replica_mut(&mut self, part: u8, node: Node) -> &mut Replica {
        &mut self.parts[usize::from(part)].replicas[usize::from(node)]
    }

    pub(crate) fn meta(&self, part: u8) -> &Meta {
        &self.parts[usize::from(part)].meta
    }

    pub(crate) fn meta_mut(&mut self, part: u8) -> &mut Meta {
        &mut self.parts[usize::from(part)].meta
    }

    pub(crate) fn broker(&self, node: Node) -> &Broker {
        &self.brokers[usize::from(node)]
    }

    pub(crate) fn broker_mut(&mut self, node: Node) -> &mut Broker {
        &mut self.brokers[usize::from(node)]
    }

    /// A process that runs and has registered.
    pub(crate) fn serves(&self, node: Node) -> bool {
        self.broker(node).alive && self.broker(node).life != 0
    }

    /// A broker that may lead: registered in this life, and not fenced.
    pub(crate) fn may_lead(&self, node: Node) -> bool {
        !self.registered[usize::from(node)].fenced
    }
}

impl View {
    /// The view of a broker that does not lead: it acts by leader and epoch alone, so that the rest makes no states of its own.
    pub(crate) fn for_follower(self) -> Self {
        Self { version: 0, isr: Set::EMPTY, ..self }
    }
}
