//! Owns the decisions about brokers: registered, fenced, unfenced, stopping, with other log dirs, gone.

use riverrun_types::{DurabilityLevel, NodeId};

use super::draft::{Draft, Refusal};
use super::image::{Broker, Image};
use super::partition::{DirSlot, Partition, Replica};
use super::placement::Placer;
use super::records::{LOG_DIRS_MAX, LogDir, Record, Registration};
#[cfg(test)]
use crate::planted::{Planted, is_planted};

/// A broker that asks to be part of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newcomer {
    /// The broker's account of itself. Its log dirs may be in any order.
    pub registration: Registration,
    /// The incarnation that has ended in order, with everything on the disk, as its data directory says; none if none has.
    pub clean_of: Option<u64>,
}

/// How a broker's life before has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// In order: everything that it had taken is on the disk.
    Clean,
    /// The process died. The page cache has stayed.
    Killed,
    /// The machine has booted since: what was not synced may be gone.
    PowerCut,
}

impl Ending {
    /// Whether replicas of this level may lack what they had appended.
    fn may_lack(self, level: DurabilityLevel) -> bool {
        match self {
            Self::Clean => false,
            // At level 3 followers' records wait in memory for the journal.
            Self::Killed => level == DurabilityLevel::AsyncSync,
            Self::PowerCut => level != DurabilityLevel::SyncSync,
        }
    }
}

impl Draft<'_> {
    /// A broker registers a new life of its process. The life before is over (`new-life-new-epoch`), and the new one is fenced. A
    /// registration that has been told before changes nothing.
    /// `is_heard` says whether the broker that has the id now has been heard from within its session.
    pub fn register(&mut self, newcomer: Newcomer, is_heard: bool) -> Result<(), Refusal> {
        let Newcomer { mut registration, clean_of } = newcomer;
        let node = registration.node;
        self.check_features(&registration)?;
        if registration.dirs.len() > LOG_DIRS_MAX {
            return Err(too_many_dirs());
        }
        let before = self.image.broker(node).cloned();
        if let Some(before) = &before {
            if before.registration.life == registration.life {
                return Ok(());
            }
            if is_heard && !before.is_fenced && before.registration.directory != registration.directory {
                return Err(Refusal::DuplicateBroker(node));
            }
            // A registration that is refused changes nothing.
            registration.dirs = merged(&self.image, before, registration.dirs)?;
            #[cfg(test)]
            let before = &Broker { is_fenced: is_planted(Planted::NewLifeSameEpoch), ..before.clone() };
            self.end_session(node, before);
        }
        let boot = registration.boot;
        self.record(Record::BrokerRegistered(registration));
        if let Some(before) = before {
            let ending = match clean_of {
                Some(ended) if ended == before.incarnation => Ending::Clean,
                _ if before.registration.boot == boot => Ending::Killed,
                _ => Ending::PowerCut,
            };
            self.exclude_what_may_lack(node, ending);
        }
        self.replace_lost_dirs(node);
        Ok(())
    }

    fn check_features(&self, registration: &Registration) -> Result<(), Refusal> {
        for (feature, level) in self.image.features().0 {
            let known = registration.features.iter().find(|(name, ..)| name == feature);
            if !known.is_some_and(|(_, from, to)| (*from..=*to).contains(level)) {
                return Err(Refusal::FeatureNotSupported { feature: feature.clone(), level: *level });
            }
        }
        Ok(())
    }

    fn end_session(&mut self, node: NodeId, broker: &Broker) {
        if !broker.is_fenced {
            self.record(Record::BrokerChanged { node, is_fenced: true, is_stopping: broker.is_stopping });
            self.retire(node);
        }
    }

    /// Takes a broker out of every in-sync set, and looks for other leaders where it leads.
    fn retire(&mut self, node: NodeId) {
        let is_in_sync = |partition: &Partition| {
            partition.place_of(node).is_some_and(|place| partition.roles.isr.has(place))
        };
        self.change_where(is_in_sync, |partition, rules, may_lead| {
            if let Some(place) = partition.place_of(node) {
                partition.retire(place, rules.minimum, may_lead);
            }
        });
    }

    fn exclude_what_may_lack(&mut self, node: NodeId, ending: Ending) {
        if ending == Ending::Clean {
            return;
        }
        let topics: Vec<_> = self.image.topics().cloned().collect();
        for topic in topics.iter().filter(|topic| ending.may_lack(self.policy.level(&topic.configs))) {
            let is_candidate = |partition: &Partition| {
                let candidates = partition.roles.isr.union(partition.roles.elr);
                partition.place_of(node).is_some_and(|place| candidates.has(place))
            };
            let meant = (0..).zip(topic.partitions()).filter(|(_, partition)| is_candidate(partition));
            let meant: Vec<i32> = meant.map(|(index, _)| index).collect();
            self.change_some(topic.id, &meant, |partition, _, _| {
                if let Some(place) = partition.place_of(node) {
                    partition.exclude(place);
                }
            });
        }
    }

    /// Replicas in log dirs that the broker has lost have lost their records: they are no candidates any more, and begin anew in
    /// another one of its dirs, once it has one.
    fn replace_lost_dirs(&mut self, node: NodeId) {
        let Some(broker) = self.image.broker(node) else { return };
        let dirs = broker.registration.dirs.clone();
        let mut placer = Placer::new(&self.image);
        let has_room = placer.has_room(node);
        let is_lost = |replica: &Replica| {
            let is_there = dirs.get(usize::from(replica.dir.0)).is_some_and(|dir| !dir.id.is_empty());
            replica.node == node && !is_there && (has_room || replica.dir != DirSlot::NONE)
        };
        let has_lost = |partition: &Partition| partition.replicas.iter().any(is_lost);
        self.change_where(has_lost, |partition, _, _| {
            let Some(place) = partition.place_of(node) else { return };
            partition.exclude(place);
            let mut replicas = partition.replicas.to_vec();
            replicas[place].dir = placer.dir(node).unwrap_or(DirSlot::NONE);
            partition.replicas = replicas.into();
        });
    }

    /// The session of a broker has ended: nobody has heard from it.
    pub fn fence(&mut self, node: NodeId) -> Result<(), Refusal> {
        let broker = self.known(node)?;
        self.end_session(node, &broker);
        Ok(())
    }

    /// A fenced broker is back, with an image that has reached what fenced it (`unfence-caught-up`). Partitions that it may lead
    /// have a leader again.
    pub fn unfence(&mut self, node: NodeId, incarnation: u64) -> Result<(), Refusal> {
        let broker = self.of_incarnation(node, incarnation)?;
        if !broker.is_fenced {
            return Ok(());
        }
        self.record(Record::BrokerChanged { node, is_fenced: false, is_stopping: false });
        self.elect_where_it_may_lead(node);
        Ok(())
    }

    fn elect_where_it_may_lead(&mut self, node: NodeId) {
        let may_lead = |partition: &Partition| {
            let candidates = partition.roles.isr.union(partition.roles.elr);
            let is_candidate = partition.place_of(node).is_some_and(|place| candidates.has(place));
            partition.roles.leader.is_none() && is_candidate
        };
        self.change_where(may_lead, |partition, rules, may_lead| partition.elect(rules.minimum, may_lead));
    }

    /// A broker is about to stop: others lead what it led, as far as there are any. Where it acks by itself it has resigned before.
    pub fn begin_to_stop(&mut self, node: NodeId, incarnation: u64) -> Result<(), Refusal> {
        let broker = self.of_incarnation(node, incarnation)?;
        if !broker.is_stopping {
            self.record(Record::BrokerChanged { node, is_fenced: broker.is_fenced, is_stopping: true });
            self.retire(node);
        }
        Ok(())
    }

    /// The log dirs of a broker have failed, come back or been cordoned.
    pub fn set_dirs(&mut self, node: NodeId, incarnation: u64, dirs: Vec<LogDir>) -> Result<(), Refusal> {
        let broker = self.of_incarnation(node, incarnation)?;
        let dirs = merged(&self.image, &broker, dirs)?;
        if dirs == broker.registration.dirs {
            return Ok(());
        }
        self.record(Record::BrokerDirsChanged { node, dirs: dirs.clone() });
        let is_offline = |dir: DirSlot| dirs.get(usize::from(dir.0)).is_none_or(|dir| !dir.is_online());
        let has_failed = |partition: &Partition| {
            let place = partition.place_of(node).filter(|place| partition.roles.isr.has(*place));
            place.is_some_and(|place| is_offline(partition.replicas[place].dir))
        };
        self.change_where(has_failed, |partition, rules, may_lead| {
            if let Some(place) = partition.place_of(node) {
                partition.retire(place, rules.minimum, may_lead);
            }
        });
        self.replace_lost_dirs(node);
        self.elect_where_it_may_lead(node);
        Ok(())
    }

    /// A broker is no part of the cluster any more.
    pub fn unregister(&mut self, node: NodeId) -> Result<(), Refusal> {
        let broker = self.known(node)?;
        if !broker.is_fenced {
            return Err(Refusal::BrokerInUse(node));
        }
        let replicas = u64::try_from(self.image.loads().of(node).replicas).unwrap_or(0);
        if replicas > 0 {
            return Err(Refusal::BrokerHasReplicas { node, replicas });
        }
        self.record(Record::BrokerUnregistered { node });
        Ok(())
    }

    /// Sets the level of a feature; 0: it is not in use any more.
    pub fn set_feature(&mut self, feature: &str, level: u16) -> Result<(), Refusal> {
        let knows = |broker: &Broker| {
            let known = broker.registration.features.iter().find(|(name, ..)| name == feature);
            known.is_some_and(|(_, from, to)| (*from..=*to).contains(&level))
        };
        if level > 0 && !self.image.brokers().all(|(_, broker)| knows(broker)) {
            return Err(Refusal::FeatureNotSupported { feature: feature.to_owned(), level });
        }
        let current = self.image.features().0.get(feature).copied().unwrap_or(0);
        if current != level {
            self.record(Record::FeatureSet { name: feature.to_owned(), level });
        }
        Ok(())
    }

    pub(super) fn known(&self, node: NodeId) -> Result<Broker, Refusal> {
        self.image.broker(node).cloned().ok_or(Refusal::UnknownBroker(node))
    }

    pub(super) fn of_incarnation(&self, node: NodeId, told: u64) -> Result<Broker, Refusal> {
        let broker = self.known(node)?;
        let current = broker.incarnation;
        if current == told { Ok(broker) } else { Err(Refusal::StaleIncarnation { node, told, current }) }
    }
}

fn too_many_dirs() -> Refusal {
    Refusal::InvalidReplicas(format!("a broker has at most {LOG_DIRS_MAX} log dirs"))
}

/// The log dirs of a broker by slot: those that it had keep theirs, and new ones take the first that is free.
fn merged(image: &Image, before: &Broker, told: Vec<LogDir>) -> Result<Vec<LogDir>, Refusal> {
    let node = before.registration.node;
    let gone = || LogDir { id: String::new(), is_available: false, is_cordoned: true };
    let of_id = |id: &str| told.iter().find(|dir| dir.id == id && !id.is_empty()).cloned();
    let mut dirs: Vec<_> =
        before.registration.dirs.iter().map(|dir| of_id(&dir.id).unwrap_or_else(gone)).collect();
    let load = image.loads().of(node);
    for dir in told {
        if dir.id.is_empty() || dirs.iter().any(|other| other.id == dir.id) {
            continue;
        }
        let slot = |slot: usize| u16::try_from(slot).map_or(DirSlot::NONE, DirSlot);
        let is_free = |at: &usize| dirs[*at].id.is_empty() && load.in_dir(slot(*at)) == 0;
        match (0..dirs.len()).find(is_free) {
            Some(free) => dirs[free] = dir,
            None if dirs.len() < LOG_DIRS_MAX => dirs.push(dir),
            None => return Err(too_many_dirs()),
        }
    }
    Ok(dirs)
}
