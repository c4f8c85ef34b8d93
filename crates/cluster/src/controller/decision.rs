//! Owns what may be asked of the controller, and its answers, as values and as bytes on the wire.
//!
//! Encoding as in `records`: a kind u8, then the fields in the order below.

use riverrun_types::{LeaderEpoch, NodeId, PartitionId, TopicId};

use super::brokers::Newcomer;
use super::draft::{Draft, Refusal};
use super::partitions::IsrChange;
use super::records::LogDir;
use super::topics::{ConfigChanges, NewPartitions, NewTopic};
use crate::codec::{Malformed, Reader, Writer};

/// Something that is asked of the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A broker registers a new life of its process.
    Register(Newcomer),
    /// A broker is about to stop.
    BeginToStop {
        /// The broker.
        node: NodeId,
        /// Its incarnation.
        incarnation: u64,
    },
    /// The log dirs of a broker have failed, come back or been cordoned.
    SetDirs {
        /// The broker.
        node: NodeId,
        /// Its incarnation.
        incarnation: u64,
        /// All of them.
        dirs: Vec<LogDir>,
    },
    /// A broker is to be no part of the cluster any more.
    Unregister(NodeId),
    /// The level of a feature is to be another one.
    SetFeature {
        /// Its name.
        feature: String,
        /// Its level; 0: it is not in use.
        level: u16,
    },
    /// A topic is to be made.
    CreateTopic(NewTopic),
    /// A topic is to have more partitions.
    AddPartitions {
        /// The topic.
        id: TopicId,
        /// The number that it has.
        from: usize,
        /// The new ones.
        partitions: NewPartitions,
    },
    /// A topic is to go.
    DeleteTopic(TopicId),
    /// A topic is to set or unset configs for itself.
    ChangeTopicConfigs {
        /// The topic.
        id: TopicId,
        /// Those that change.
        changes: ConfigChanges,
    },
    /// A consumer group is to set or unset configs for itself.
    ChangeGroupConfigs {
        /// The group's id.
        group: String,
        /// Those that change.
        changes: ConfigChanges,
    },
    /// Producer ids are to be reserved.
    ReserveProducerIds(u32),
    /// A leader asks for another in-sync set.
    ChangeIsr {
        /// The leader.
        from: NodeId,
        /// Its incarnation.
        incarnation: u64,
        /// The change.
        change: IsrChange,
    },
    /// A partition is to move to other brokers.
    Reassign {
        /// The partition.
        id: PartitionId,
        /// The brokers.
        nodes: Vec<NodeId>,
    },
    /// A reassignment is given up.
    CancelReassignment(PartitionId),
    /// A reassignment may end.
    FinishReassignment {
        /// The partition.
        id: PartitionId,
        /// The epoch in which a leader that acks by itself has resigned.
        resigned_in: Option<LeaderEpoch>,
    },
    /// The preferred replica is to lead.
    ElectPreferred {
        /// The partition.
        id: PartitionId,
        /// The epoch in which a leader that acks by itself has resigned.
        resigned_in: Option<LeaderEpoch>,
    },
    /// A replica is to lead that may lack records.
    ElectUnclean {
        /// The partition.
        id: PartitionId,
        /// The broker; the best that is there, if none is named.
        named: Option<NodeId>,
    },
}

/// The controller's answer to a decision that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decided {
    /// It holds.
    Done,
    /// It holds, and these producer ids, from this one on, are the asker's alone.
    FirstId(i64),
    /// It does not.
    Refused(Refusal),
}

impl Draft<'_> {
    /// Makes a decision. `is_heard` says of a broker whether it has been heard from within its session.
    pub fn decide(&mut self, decision: Decision, is_heard: &dyn Fn(NodeId) -> bool) -> Decided {
        let done = match decision {
            Decision::Register(newcomer) => {
                let is_heard = is_heard(newcomer.registration.node);
                self.register(newcomer, is_heard)
            }
            Decision::BeginToStop { node, incarnation } => self.begin_to_stop(node, incarnation),
            Decision::SetDirs { node, incarnation, dirs } => self.set_dirs(node, incarnation, dirs),
            Decision::Unregister(node) => self.unregister(node),
            Decision::SetFeature { feature, level } => self.set_feature(&feature, level),
            Decision::CreateTopic(new) => self.create_topic(new),
            Decision::AddPartitions { id, from, partitions } => self.add_partitions(id, from, &partitions),
            Decision::DeleteTopic(id) => self.delete_topic(id),
            Decision::ChangeTopicConfigs { id, changes } => self.change_topic_configs(id, &changes),
            Decision::ChangeGroupConfigs { group, changes } => {
                self.change_group_configs(&group, &changes);
                Ok(())
            }
            Decision::ReserveProducerIds(count) => return Decided::FirstId(self.reserve_producer_ids(count)),
            Decision::ChangeIsr { from, incarnation, change } => self.change_isr(from, incarnation, &change),
            Decision::Reassign { id, nodes } => self.reassign(id, &nodes),
            Decision::CancelReassignment(id) => self.cancel_reassignment(id),
            Decision::FinishReassignment { id, resigned_in } => self.finish_reassignment(id, resigned_in),
            Decision::ElectPreferred { id, resigned_in } => self.elect_preferred(id, resigned_in),
            Decision::ElectUnclean { id, named } => self.elect_unclean(id, named),
        };
        done.map_or_else(Decided::Refused, |()| Decided::Done)
    }
}

const REGISTER: u8 = 1;
const BEGIN_TO_STOP: u8 = 2;
const SET_DIRS: u8 = 3;
const UNREGISTER: u8 = 4;
const SET_FEATURE: u8 = 5;
const CREATE_TOPIC: u8 = 6;
const ADD_PARTITIONS: u8 = 7;
const DELETE_TOPIC: u8 = 8;
const CHANGE_TOPIC_CONFIGS: u8 = 9;
const CHANGE_GROUP_CONFIGS: u8 = 10;
const RESERVE_PRODUCER_IDS: u8 = 11;
const CHANGE_ISR: u8 = 12;
const REASSIGN: u8 = 13;
const CANCEL_REASSIGNMENT: u8 = 14;
const FINISH_REASSIGNMENT: u8 = 15;
const ELECT_PREFERRED: u8 = 16;
const ELECT_UNCLEAN: u8 = 17;

impl Writer {
    fn topic_id(&mut self, id: TopicId) {
        self.0.extend_from_slice(&id.0);
    }

    fn partition_id(&mut self, id: PartitionId) {
        self.topic_id(id.topic);
        self.i32(id.index);
    }

    fn config_changes(&mut self, changes: &ConfigChanges) {
        self.length(changes.len());
        for (name, value) in changes {
            self.text(name);
            self.u8(u8::from(value.is_some()));
            if let Some(value) = value {
                self.text(value);
            }
        }
    }

    fn nodes(&mut self, nodes: &[NodeId]) {
        self.list(nodes, |writer, node| writer.i32(node.0));
    }

    fn new_partitions(&mut self, partitions: &NewPartitions) {
        match partitions {
            NewPartitions::Placed { count, replicas } => {
                self.u8(0);
                self.u64(*count as u64);
                self.u64(*replicas as u64);
            }
            NewPartitions::Assigned(lists) => {
                self.u8(1);
                self.list(lists, |writer, nodes| writer.nodes(nodes));
            }
        }
    }

    pub(super) fn decision(&mut self, decision: &Decision) {
        match decision {
            Decision::Register(Newcomer { registration, clean_of }) => {
                self.u8(REGISTER);
                self.registration(registration);
                self.u8(u8::from(clean_of.is_some()));
                if let Some(incarnation) = clean_of {
                    self.u64(*incarnation);
                }
            }
            Decision::BeginToStop { node, incarnation } => {
                self.u8(BEGIN_TO_STOP);
                self.i32(node.0);
                self.u64(*incarnation);
            }
            Decision::SetDirs { node, incarnation, dirs } => {
                self.u8(SET_DIRS);
                self.i32(node.0);
                self.u64(*incarnation);
                self.dirs(dirs);
            }
            Decision::Unregister(node) => {
                self.u8(UNREGISTER);
                self.i32(node.0);
            }
            Decision::SetFeature { feature, level } => {
                self.u8(SET_FEATURE);
                self.text(feature);
                self.u16(*level);
            }
            Decision::ChangeGroupConfigs { group, changes } => {
                self.u8(CHANGE_GROUP_CONFIGS);
                self.text(group);
                self.config_changes(changes);
            }
            Decision::ReserveProducerIds(count) => {
                self.u8(RESERVE_PRODUCER_IDS);
                self.u32(*count);
            }
            of_topic => self.topic_decision(of_topic),
        }
    }

    fn topic_decision(&mut self, decision: &Decision) {
        match decision {
            Decision::CreateTopic(NewTopic { id, name, configs, partitions }) => {
                self.u8(CREATE_TOPIC);
                self.topic_id(*id);
                self.text(name);
                self.configs(configs);
                self.new_partitions(partitions);
            }
            Decision::AddPartitions { id, from, partitions } => {
                self.u8(ADD_PARTITIONS);
                self.topic_id(*id);
                self.u64(*from as u64);
                self.new_partitions(partitions);
            }
            Decision::DeleteTopic(id) => {
                self.u8(DELETE_TOPIC);
                self.topic_id(*id);
            }
            Decision::ChangeTopicConfigs { id, changes } => {
                self.u8(CHANGE_TOPIC_CONFIGS);
                self.topic_id(*id);
                self.config_changes(changes);
            }
            of_partition => self.partition_decision(of_partition),
        }
    }

    fn partition_decision(&mut self, decision: &Decision) {
        match decision {
            Decision::ChangeIsr { from, incarnation, change } => {
                self.u8(CHANGE_ISR);
                self.i32(from.0);
                self.u64(*incarnation);
                self.partition_id(change.id);
                self.i32(change.leader_epoch.0);
                self.i32(change.version);
                self.list(&change.isr, |writer, (node, incarnation)| {
                    writer.i32(node.0);
                    writer.u64(*incarnation);
                });
            }
            Decision::Reassign { id, nodes } => {
                self.u8(REASSIGN);
                self.partition_id(*id);
                self.nodes(nodes);
            }
            Decision::CancelReassignment(id) => {
                self.u8(CANCEL_REASSIGNMENT);
                self.partition_id(*id);
            }
            Decision::FinishReassignment { id, resigned_in } => {
                self.u8(FINISH_REASSIGNMENT);
                self.partition_id(*id);
                self.i32(resigned_in.map_or(-1, |epoch| epoch.0));
            }
            Decision::ElectPreferred { id, resigned_in } => {
                self.u8(ELECT_PREFERRED);
                self.partition_id(*id);
                self.i32(resigned_in.map_or(-1, |epoch| epoch.0));
            }
            Decision::ElectUnclean { id, named } => {
                self.u8(ELECT_UNCLEAN);
                self.partition_id(*id);
                self.u8(u8::from(named.is_some()));
                if let Some(node) = named {
                    self.i32(node.0);
                }
            }
            _ => unreachable!("`decision` and `topic_decision` write all others"),
        }
    }

    pub(super) fn decided(&mut self, decided: &Decided) {
        match decided {
            Decided::Done => self.u8(0),
            Decided::FirstId(id) => {
                self.u8(1);
                self.u64(id.cast_unsigned());
            }
            Decided::Refused(refusal) => {
                self.u8(2);
                self.refusal(refusal);
            }
        }
    }

    fn refusal(&mut self, refusal: &Refusal) {
        self.u8(code_of(refusal));
        match refusal {
            Refusal::UnknownBroker(node) | Refusal::DuplicateBroker(node) | Refusal::BrokerInUse(node) => {
                self.i32(node.0);
            }
            Refusal::StaleIncarnation { node, told, current } => {
                self.i32(node.0);
                self.u64(*told);
                self.u64(*current);
            }
            Refusal::FeatureNotSupported { feature, level } => {
                self.text(feature);
                self.u16(*level);
            }
            Refusal::BrokerHasReplicas { node, replicas } => {
                self.i32(node.0);
                self.u64(*replicas);
            }
            Refusal::TopicExists(text)
            | Refusal::InvalidReplicas(text)
            | Refusal::InvalidPartitions(text) => {
                self.text(text);
            }
            Refusal::NotEnoughBrokers { asked, there } => {
                self.u64(*asked as u64);
                self.u64(*there as u64);
            }
            Refusal::UnknownTopic
            | Refusal::UnknownPartition
            | Refusal::NotLeader
            | Refusal::StaleLeaderEpoch
            | Refusal::StaleVersion
            | Refusal::Ineligible
            | Refusal::NoElection
            | Refusal::NoReassignment
            | Refusal::LeaderMustResign
            | Refusal::TooLarge => {}
        }
    }
}

fn code_of(refusal: &Refusal) -> u8 {
    match refusal {
        Refusal::UnknownBroker(_) => 1,
        Refusal::StaleIncarnation { .. } => 2,
        Refusal::DuplicateBroker(_) => 3,
        Refusal::FeatureNotSupported { .. } => 4,
        Refusal::BrokerInUse(_) => 5,
        Refusal::BrokerHasReplicas { .. } => 6,
        Refusal::UnknownTopic => 7,
        Refusal::UnknownPartition => 8,
        Refusal::TopicExists(_) => 9,
        Refusal::NotLeader => 10,
        Refusal::StaleLeaderEpoch => 11,
        Refusal::StaleVersion => 12,
        Refusal::Ineligible => 13,
        Refusal::NoElection => 14,
        Refusal::NoReassignment => 15,
        Refusal::LeaderMustResign => 16,
        Refusal::InvalidReplicas(_) => 17,
        Refusal::InvalidPartitions(_) => 18,
        Refusal::NotEnoughBrokers { .. } => 19,
        Refusal::TooLarge => 20,
    }
}

fn count_of(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

impl Reader<'_> {
    fn partition_id(&mut self) -> Result<PartitionId, Malformed> {
        Ok(PartitionId { topic: self.topic_id()?, index: self.i32()? })
    }

    fn config_changes(&mut self) -> Result<ConfigChanges, Malformed> {
        let pairs = self.list(|reader| Ok((reader.text()?, reader.option(Self::text)?)))?;
        Ok(pairs.into_iter().collect())
    }

    /// An epoch; -1 is none.
    fn epoch(&mut self) -> Result<Option<LeaderEpoch>, Malformed> {
        Ok(Some(self.i32()?).filter(|epoch| *epoch >= 0).map(LeaderEpoch))
    }

    fn nodes(&mut self) -> Result<Vec<NodeId>, Malformed> {
        self.list(Self::node)
    }

    fn new_partitions(&mut self) -> Result<NewPartitions, Malformed> {
        if self.flag()? {
            return Ok(NewPartitions::Assigned(self.list(Self::nodes)?));
        }
        Ok(NewPartitions::Placed { count: count_of(self.u64()?), replicas: count_of(self.u64()?) })
    }

    pub(super) fn decision(&mut self) -> Result<Decision, Malformed> {
        Ok(match self.u8()? {
            REGISTER => {
                let (registration, clean_of) = (self.registration()?, self.option(Self::u64)?);
                Decision::Register(Newcomer { registration, clean_of })
            }
            BEGIN_TO_STOP => Decision::BeginToStop { node: self.node()?, incarnation: self.u64()? },
            SET_DIRS => {
                Decision::SetDirs { node: self.node()?, incarnation: self.u64()?, dirs: self.dirs()? }
            }
            UNREGISTER => Decision::Unregister(self.node()?),
            SET_FEATURE => Decision::SetFeature { feature: self.text()?, level: self.u16()? },
            CREATE_TOPIC => {
                let (id, name, configs) = (self.topic_id()?, self.text()?, self.configs()?);
                Decision::CreateTopic(NewTopic { id, name, configs, partitions: self.new_partitions()? })
            }
            ADD_PARTITIONS => {
                let (id, from) = (self.topic_id()?, count_of(self.u64()?));
                Decision::AddPartitions { id, from, partitions: self.new_partitions()? }
            }
            DELETE_TOPIC => Decision::DeleteTopic(self.topic_id()?),
            CHANGE_TOPIC_CONFIGS => {
                Decision::ChangeTopicConfigs { id: self.topic_id()?, changes: self.config_changes()? }
            }
            CHANGE_GROUP_CONFIGS => {
                Decision::ChangeGroupConfigs { group: self.text()?, changes: self.config_changes()? }
            }
            RESERVE_PRODUCER_IDS => Decision::ReserveProducerIds(self.u32()?),
            CHANGE_ISR => {
                let (from, incarnation, id) = (self.node()?, self.u64()?, self.partition_id()?);
                let (leader_epoch, version) = (LeaderEpoch(self.i32()?), self.i32()?);
                let isr = self.list(|reader| Ok((reader.node()?, reader.u64()?)))?;
                let change = IsrChange { id, leader_epoch, version, isr };
                Decision::ChangeIsr { from, incarnation, change }
            }
            REASSIGN => Decision::Reassign { id: self.partition_id()?, nodes: self.nodes()? },
            CANCEL_REASSIGNMENT => Decision::CancelReassignment(self.partition_id()?),
            FINISH_REASSIGNMENT => {
                Decision::FinishReassignment { id: self.partition_id()?, resigned_in: self.epoch()? }
            }
            ELECT_PREFERRED => {
                Decision::ElectPreferred { id: self.partition_id()?, resigned_in: self.epoch()? }
            }
            ELECT_UNCLEAN => {
                Decision::ElectUnclean { id: self.partition_id()?, named: self.option(Self::node)? }
            }
            _ => return Err(Malformed("a decision is of a kind that this program does not know")),
        })
    }

    pub(super) fn decided(&mut self) -> Result<Decided, Malformed> {
        Ok(match self.u8()? {
            0 => Decided::Done,
            1 => Decided::FirstId(self.u64()?.cast_signed()),
            2 => Decided::Refused(self.refusal()?),
            _ => return Err(Malformed("an answer is of a kind that this program does not know")),
        })
    }

    fn refusal(&mut self) -> Result<Refusal, Malformed> {
        Ok(match self.u8()? {
            1 => Refusal::UnknownBroker(self.node()?),
            2 => Refusal::StaleIncarnation { node: self.node()?, told: self.u64()?, current: self.u64()? },
            3 => Refusal::DuplicateBroker(self.node()?),
            4 => Refusal::FeatureNotSupported { feature: self.text()?, level: self.u16()? },
            5 => Refusal::BrokerInUse(self.node()?),
            6 => Refusal::BrokerHasReplicas { node: self.node()?, replicas: self.u64()? },
            7 => Refusal::UnknownTopic,
            8 => Refusal::UnknownPartition,
            9 => Refusal::TopicExists(self.text()?),
            10 => Refusal::NotLeader,
            11 => Refusal::StaleLeaderEpoch,
            12 => Refusal::StaleVersion,
            13 => Refusal::Ineligible,
            14 => Refusal::NoElection,
            15 => Refusal::NoReassignment,
            16 => Refusal::LeaderMustResign,
            17 => Refusal::InvalidReplicas(self.text()?),
            18 => Refusal::InvalidPartitions(self.text()?),
            19 => Refusal::NotEnoughBrokers { asked: count_of(self.u64()?), there: count_of(self.u64()?) },
            20 => Refusal::TooLarge,
            _ => return Err(Malformed("a refusal is of a kind that this program does not know")),
        })
    }
}
