//! Owns where new replicas go: brokers with few, on different racks, and the log dir of a broker that has the fewest.
//!
//! Followers of a broker's partitions are among its next [`SCATTER`] in a ring of all brokers, in which racks take turns. So a group
//! of records goes to few other brokers at once, however many there are, at the price of a loss being made good by few.

use std::collections::BTreeMap;
use std::sync::Arc;

use riverrun_types::NodeId;

use super::draft::Refusal;
use super::image::{Broker, Image};
use super::load::Load;
use super::partition::{DirSlot, REPLICAS_MAX, Replica};

/// The brokers behind one in the ring that may follow it.
const SCATTER: usize = 8;

/// A broker, as placement sees it.
#[derive(Debug)]
struct Place {
    node: NodeId,
    rack: Option<String>,
    load: Load,
    /// The log dirs that take new partitions.
    dirs: Vec<DirSlot>,
    /// Whether it takes replicas that nobody has named it for.
    is_open: bool,
}

impl Place {
    fn new(node: NodeId, broker: &Broker, load: Load) -> Self {
        let slots = broker.registration.dirs.iter().enumerate();
        let takes = slots.filter(|(_, dir)| dir.is_online() && !dir.is_cordoned);
        let dirs: Vec<_> = takes.filter_map(|(slot, _)| u16::try_from(slot).ok()).map(DirSlot).collect();
        let is_open = !broker.is_fenced && !broker.is_stopping && !dirs.is_empty();
        Self { node, rack: broker.registration.rack.clone(), load, dirs, is_open }
    }

    fn emptiest(&self) -> Option<DirSlot> {
        self.dirs.iter().copied().min_by_key(|dir| (self.load.in_dir(*dir), *dir))
    }
}

/// Places replicas one after the other, each by the loads that those before have left.
pub(super) struct Placer {
    /// All brokers; racks take turns.
    ring: Vec<Place>,
    at: BTreeMap<NodeId, usize>,
    /// Lists that were given out: equal ones are shared.
    lists: BTreeMap<Vec<Replica>, Arc<[Replica]>>,
}

impl Placer {
    pub(super) fn new(image: &Image) -> Self {
        let mut of_rack: BTreeMap<Option<String>, usize> = BTreeMap::new();
        let mut ring = Vec::new();
        for (node, broker) in image.brokers() {
            let turn = of_rack.entry(broker.registration.rack.clone()).or_default();
            ring.push((*turn, Place::new(node, broker, image.loads().of(node))));
            *turn += 1;
        }
        ring.sort_by(|(turn, one), (other_turn, other)| {
            (turn, &one.rack, one.node).cmp(&(other_turn, &other.rack, other.node))
        });
        let ring: Vec<_> = ring.into_iter().map(|(_, place)| place).collect();
        let at = ring.iter().enumerate().map(|(at, place)| (place.node, at)).collect();
        Self { ring, at, lists: BTreeMap::new() }
    }

    /// Whether a broker has a log dir that takes new partitions.
    pub(super) fn has_room(&self, node: NodeId) -> bool {
        self.at.get(&node).is_some_and(|at| !self.ring[*at].dirs.is_empty())
    }

    /// The log dir of a broker that has the fewest replicas. The replica that it is for is counted already, elsewhere.
    pub(super) fn dir(&mut self, node: NodeId) -> Option<DirSlot> {
        let place = &mut self.ring[*self.at.get(&node)?];
        let dir = place.emptiest()?;
        place.load.add_replica(dir, 1);
        Some(dir)
    }

    /// Places the replicas of a new partition.
    pub(super) fn place(&mut self, count: usize) -> Result<Arc<[Replica]>, Refusal> {
        let there = self.ring.iter().filter(|place| place.is_open).count();
        if count == 0 || count > REPLICAS_MAX {
            return Err(Refusal::InvalidReplicas(format!("a partition has 1 to {REPLICAS_MAX} replicas")));
        }
        if count > there {
            return Err(Refusal::NotEnoughBrokers { asked: count, there });
        }
        let open = || (0..self.ring.len()).filter(|at| self.ring[*at].is_open);
        let load = |at: &usize| (self.ring[*at].load.leaders, self.ring[*at].load.replicas, *at);
        let leader = open().min_by_key(load).ok_or(Refusal::NotEnoughBrokers { asked: count, there })?;
        let behind = (1..self.ring.len()).map(|step| (leader + step) % self.ring.len());
        let near: Vec<_> = behind.filter(|at| self.ring[*at].is_open).take(SCATTER.max(count - 1)).collect();
        let mut chosen = vec![leader];
        while chosen.len() < count {
            let shares_rack =
                |at: usize| chosen.iter().any(|other| self.ring[*other].rack == self.ring[at].rack);
            let free = near.iter().copied().filter(|at| !chosen.contains(at));
            let next = free.min_by_key(|at| (shares_rack(*at), self.ring[*at].load.replicas));
            chosen.push(next.ok_or(Refusal::NotEnoughBrokers { asked: count, there })?);
        }
        let nodes: Vec<_> = chosen.into_iter().map(|at| self.ring[at].node).collect();
        self.assign(&nodes)
    }

    /// The replicas on brokers that were named, in their order; the first is counted as the leader.
    pub(super) fn assign(&mut self, nodes: &[NodeId]) -> Result<Arc<[Replica]>, Refusal> {
        if nodes.is_empty() || nodes.len() > REPLICAS_MAX {
            return Err(Refusal::InvalidReplicas(format!("a partition has 1 to {REPLICAS_MAX} replicas")));
        }
        let mut replicas = Vec::with_capacity(nodes.len());
        for (order, node) in nodes.iter().enumerate() {
            if nodes[..order].contains(node) {
                return Err(Refusal::InvalidReplicas(format!("broker {} is in it twice", node.0)));
            }
            replicas.push(self.replica(*node)?);
            if let (0, Some(at)) = (order, self.at.get(node)) {
                self.ring[*at].load.leaders += 1;
            }
        }
        let shared = self.lists.entry(replicas).or_insert_with_key(|replicas| replicas.as_slice().into());
        Ok(Arc::clone(shared))
    }

    /// A new replica on a broker.
    pub(super) fn replica(&mut self, node: NodeId) -> Result<Replica, Refusal> {
        let place = &mut self.ring[*self.at.get(&node).ok_or(Refusal::UnknownBroker(node))?];
        let dir = place.emptiest().ok_or_else(|| {
            Refusal::InvalidReplicas(format!("no log dir of broker {} takes new partitions", node.0))
        })?;
        place.load.add_replica(dir, 1);
        Ok(Replica { node, dir })
    }
}
