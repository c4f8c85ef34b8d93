//! Owns the records that a change of the cluster consists of, and the command that carries them through the quorum's log.
//!
//! A record says what is, not why: each member applies it without a decision, so that members of different versions cannot come
//! to different images. Encoding: little-endian integers, lengths before what has one.
//!
//! ```text
//! command    version u8 = 1, base u64: the image's version that the change was made from, count u32, records
//! record     kind u8, then its fields in the order below
//! text       length u32, UTF-8
//! partition  count of replicas u8, each node i32 and dir u16; roles; leader epoch i32; version i32
//! roles      flags u8, leader u8 (255: none), then those that flags 1, 2, 4, 8, 16, 32 say are not empty or 0: isr, elr, last elr,
//!            adding, removing as bits u16 each, ack quorum u8; flag 64: new leader epoch, flag 128: replicas follow
//! change     first partition and count as varints, roles, replicas
//! ```
//!
//! A change of every partition that there may be, each unlike its neighbours, fits into one command.

use std::sync::Arc;

use bytes::Bytes;
use riverrun_types::{LeaderEpoch, NodeId, TopicId};

use super::image::Configs;
use super::partition::{DirSlot, Partition, REPLICAS_MAX, Replica, ReplicaSet, Roles};
use crate::codec::{Malformed, Reader, Writer};
#[cfg(test)]
use crate::planted::{Planted, is_planted};

/// Version of the encoding of commands.
const VERSION: u8 = 1;
/// Upper bound of the records of a command, and of whatever else is counted in one.
const COUNT_MAX: usize = 4_000_000;
/// Upper bound of the partitions that one run may stand for.
const RUN_MAX: u32 = 1_000_000;
/// Upper bound of the slots for log dirs of a broker.
pub(super) const LOG_DIRS_MAX: usize = 1_000;
/// Upper bound of a text in bytes.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// A log dir, as its broker knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDir {
    /// Its id; empty if the slot has none any more.
    pub id: String,
    /// Whether records can be written to it and read from it.
    pub is_available: bool,
    /// Whether it takes no new partitions.
    pub is_cordoned: bool,
}

impl LogDir {
    pub(crate) fn is_online(&self) -> bool {
        self.is_available && !self.id.is_empty()
    }
}

/// An address that a broker has told others to reach it at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Name of the listener.
    pub listener: String,
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// A broker's account of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Its id (`node.id`).
    pub node: NodeId,
    /// The id of its data directory: two nodes that were given one id have different ones.
    pub directory: [u8; 16],
    /// A number that no other life of a process has: a registration that is told twice is one.
    pub life: [u8; 16],
    /// The boot of its machine: another one means that what was not synced may be gone.
    pub boot: [u8; 16],
    /// Its rack (`broker.rack`).
    pub rack: Option<String>,
    /// The program's version, for people.
    pub software: String,
    /// Its listeners for clients.
    pub endpoints: Vec<Endpoint>,
    /// Its log dirs, by slot. A slot is never used for another directory while a replica names it.
    pub dirs: Vec<LogDir>,
    /// The levels of each feature that it knows: from, to.
    pub features: Vec<(String, u16, u16)>,
}

/// Equal partitions behind each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// How many.
    pub count: u32,
    /// Each of them.
    pub partition: Partition,
}

/// The change of a partition; its version is one more in any case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Whether its leader epoch is one more.
    pub has_new_epoch: bool,
    /// The new list of replicas, if it is another one.
    pub replicas: Option<Arc<[Replica]>>,
    /// The roles of the replicas.
    pub roles: Roles,
}

impl Change {
    /// The change that leads from one partition to another.
    pub(crate) fn between(before: &Partition, after: &Partition) -> Self {
        Self {
            has_new_epoch: before.leader_epoch != after.leader_epoch,
            replicas: (before.replicas != after.replicas).then(|| Arc::clone(&after.replicas)),
            roles: after.roles,
        }
    }

    pub(crate) fn apply_to(&self, partition: &mut Partition) {
        if let Some(replicas) = &self.replicas {
            partition.replicas = Arc::clone(replicas);
        }
        partition.roles = self.roles;
        #[cfg(test)]
        if is_planted(Planted::VersionStandsStill) && self.has_new_epoch {
            partition.version -= 1;
        }
        partition.version = partition.version.saturating_add(1);
        let step = i32::from(self.has_new_epoch);
        partition.leader_epoch = LeaderEpoch(partition.leader_epoch.0.saturating_add(step));
    }
}

/// The same change of partitions behind each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Index of the first.
    pub first: i32,
    /// How many.
    pub count: u32,
    /// The change of each.
    pub change: Change,
}

/// One step of the cluster's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A broker registered: its incarnation is the index of this record's command. It is fenced.
    BrokerRegistered(Registration),
    /// A broker was fenced or unfenced, or is about to stop.
    BrokerChanged {
        /// The broker.
        node: NodeId,
        /// Whether it is fenced from here on.
        is_fenced: bool,
        /// Whether it is about to stop.
        is_stopping: bool,
    },
    /// The log dirs of a broker came, went, failed or were cordoned.
    BrokerDirsChanged {
        /// The broker.
        node: NodeId,
        /// All of them, by slot.
        dirs: Vec<LogDir>,
    },
    /// A broker is no part of the cluster any more.
    BrokerUnregistered {
        /// The broker.
        node: NodeId,
    },
    /// In a snapshot: a broker.
    BrokerRestored {
        /// The broker's account of itself.
        registration: Registration,
        /// The index at which it registered.
        incarnation: u64,
        /// Whether it is fenced.
        is_fenced: bool,
        /// Whether it is about to stop.
        is_stopping: bool,
        /// The index of the last of these changes.
        changed_at: u64,
    },
    /// A topic was made; in a snapshot: there is one.
    TopicCreated {
        /// Its identity.
        id: TopicId,
        /// Its name.
        name: String,
        /// The configs that it sets for itself.
        configs: Configs,
        /// Its partitions.
        runs: Vec<Run>,
    },
    /// A topic got more partitions.
    PartitionsAdded {
        /// The topic.
        id: TopicId,
        /// The new ones.
        runs: Vec<Run>,
    },
    /// Partitions of a topic changed.
    PartitionsChanged {
        /// The topic.
        id: TopicId,
        /// The changes.
        changes: Vec<Changed>,
    },
    /// A topic was deleted.
    TopicDeleted {
        /// The topic.
        id: TopicId,
    },
    /// The configs that a topic sets for itself from here on.
    TopicConfigsSet {
        /// The topic.
        id: TopicId,
        /// All of them.
        configs: Configs,
    },
    /// The configs that a consumer group sets for itself from here on; none: it sets nothing.
    GroupConfigsSet {
        /// The group's id.
        group: String,
        /// All of them.
        configs: Configs,
    },
    /// Producer ids below `end` may have been given out.
    ProducerIdsReserved {
        /// The first that has not been.
        end: i64,
    },
    /// The level of a feature that is in use from here on; 0: none.
    FeatureSet {
        /// Its name.
        name: String,
        /// Its level.
        level: u16,
    },
    /// In a snapshot, the last one: the index of the change that made the image, and that of the last change of features.
    VersionsRestored {
        /// The image's.
        version: u64,
        /// The features'.
        features_epoch: u64,
    },
}

/// A change of the image that the quorum is to agree upon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChangeCommand {
    /// The version of the image that it was made from: it fits no other.
    pub(crate) base: u64,
    pub(crate) records: Vec<Record>,
}

impl ChangeCommand {
    pub(crate) fn encode(&self) -> Bytes {
        let mut writer = Writer::default();
        writer.u8(VERSION);
        writer.u64(self.base);
        write_records(&mut writer, &self.records);
        writer.0.into()
    }

    pub(crate) fn decode(bytes: &Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != VERSION {
            return Err(Malformed("a command has a version that this program does not know"));
        }
        let base = reader.u64()?;
        let records = reader.list(Reader::record)?;
        reader.end()?;
        Ok(Self { base, records })
    }
}

pub(crate) fn write_records(writer: &mut Writer, records: &[Record]) {
    writer.length(records.len());
    for record in records {
        writer.record(record);
    }
}

const BROKER_REGISTERED: u8 = 1;
const BROKER_CHANGED: u8 = 2;
const BROKER_DIRS_CHANGED: u8 = 3;
const BROKER_UNREGISTERED: u8 = 4;
const BROKER_RESTORED: u8 = 5;
const TOPIC_CREATED: u8 = 6;
const PARTITIONS_ADDED: u8 = 7;
const PARTITIONS_CHANGED: u8 = 8;
const TOPIC_DELETED: u8 = 9;
const TOPIC_CONFIGS_SET: u8 = 10;
const GROUP_CONFIGS_SET: u8 = 11;
const PRODUCER_IDS_RESERVED: u8 = 12;
const FEATURE_SET: u8 = 13;
const VERSIONS_RESTORED: u8 = 14;

/// The flag of roles with an ack quorum.
const ACK_QUORUM: u8 = 32;
/// The flag of a change that has a new leader epoch.
const NEW_EPOCH: u8 = 64;
/// The flag of a change that has replicas.
const REPLICAS: u8 = 128;
/// The place of a leader that there is not.
const NO_LEADER: u8 = 255;

impl Writer {
    pub(super) fn i32(&mut self, value: i32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(super) fn list<T>(&mut self, values: &[T], write: impl Fn(&mut Self, &T)) {
        self.length(values.len());
        for value in values {
            write(self, value);
        }
    }

    pub(super) fn configs(&mut self, configs: &Configs) {
        self.length(configs.len());
        for (name, value) in configs {
            self.text(name);
            self.text(value);
        }
    }

    pub(super) fn dirs(&mut self, dirs: &[LogDir]) {
        self.list(dirs, |writer, dir| {
            writer.text(&dir.id);
            writer.u8(u8::from(dir.is_available) | u8::from(dir.is_cordoned) << 1);
        });
    }

    pub(super) fn registration(&mut self, registration: &Registration) {
        self.i32(registration.node.0);
        self.0.extend_from_slice(&registration.directory);
        self.0.extend_from_slice(&registration.life);
        self.0.extend_from_slice(&registration.boot);
        self.u8(u8::from(registration.rack.is_some()));
        if let Some(rack) = &registration.rack {
            self.text(rack);
        }
        self.text(&registration.software);
        self.list(&registration.endpoints, |writer, endpoint| {
            writer.text(&endpoint.listener);
            writer.text(&endpoint.host);
            writer.u16(endpoint.port);
        });
        self.dirs(&registration.dirs);
        self.list(&registration.features, |writer, (name, from, to)| {
            writer.text(name);
            writer.u16(*from);
            writer.u16(*to);
        });
    }

    fn replicas(&mut self, replicas: &[Replica]) {
        self.u8(u8::try_from(replicas.len()).unwrap_or(u8::MAX));
        for replica in replicas {
            self.i32(replica.node.0);
            self.u16(replica.dir.0);
        }
    }

    /// Writes roles, with more flags.
    fn roles(&mut self, roles: &Roles, flags: u8) {
        let sets = [roles.isr, roles.elr, roles.last_elr, roles.adding, roles.removing];
        let is_there = sets.iter().enumerate().filter(|(_, set)| !set.is_empty());
        let flags = is_there.fold(flags, |flags, (at, _)| flags | 1 << at);
        self.u8(flags | if roles.ack_quorum == 0 { 0 } else { ACK_QUORUM });
        self.u8(roles.leader.unwrap_or(NO_LEADER));
        for set in sets.into_iter().filter(|set| !set.is_empty()) {
            self.u16(set.bits());
        }
        if roles.ack_quorum != 0 {
            self.u8(roles.ack_quorum);
        }
    }

    /// Writes seven bits in each byte, the lowest first; all but the last have the highest bit.
    fn varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.u8(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
            value >>= 7;
        }
        self.u8(u8::try_from(value).unwrap_or(0));
    }

    fn runs(&mut self, runs: &[Run]) {
        self.list(runs, |writer, run| {
            writer.u32(run.count);
            writer.replicas(&run.partition.replicas);
            writer.roles(&run.partition.roles, 0);
            writer.i32(run.partition.leader_epoch.0);
            writer.i32(run.partition.version);
        });
    }

    fn changed(&mut self, changed: &Changed) {
        let Change { has_new_epoch, replicas, roles } = &changed.change;
        self.varint(changed.first.cast_unsigned());
        self.varint(changed.count);
        let has = |bit, is_there| if is_there { bit } else { 0 };
        self.roles(roles, has(NEW_EPOCH, *has_new_epoch) | has(REPLICAS, replicas.is_some()));
        if let Some(replicas) = replicas {
            self.replicas(replicas);
        }
    }

    fn record(&mut self, record: &Record) {
        match record {
            Record::BrokerRegistered(registration) => {
                self.u8(BROKER_REGISTERED);
                self.registration(registration);
            }
            Record::BrokerChanged { node, is_fenced, is_stopping } => {
                self.u8(BROKER_CHANGED);
                self.i32(node.0);
                self.u8(u8::from(*is_fenced));
                self.u8(u8::from(*is_stopping));
            }
            Record::BrokerDirsChanged { node, dirs } => {
                self.u8(BROKER_DIRS_CHANGED);
                self.i32(node.0);
                self.dirs(dirs);
            }
            Record::BrokerUnregistered { node } => {
                self.u8(BROKER_UNREGISTERED);
                self.i32(node.0);
            }
            Record::BrokerRestored { registration, incarnation, is_fenced, is_stopping, changed_at } => {
                self.u8(BROKER_RESTORED);
                self.registration(registration);
                self.u64(*incarnation);
                self.u8(u8::from(*is_fenced));
                self.u8(u8::from(*is_stopping));
                self.u64(*changed_at);
            }
            Record::VersionsRestored { version, features_epoch } => {
                self.u8(VERSIONS_RESTORED);
                self.u64(*version);
                self.u64(*features_epoch);
            }
            Record::ProducerIdsReserved { end } => {
                self.u8(PRODUCER_IDS_RESERVED);
                self.u64(end.cast_unsigned());
            }
            Record::FeatureSet { name, level } => {
                self.u8(FEATURE_SET);
                self.text(name);
                self.u16(*level);
            }
            Record::GroupConfigsSet { group, configs } => {
                self.u8(GROUP_CONFIGS_SET);
                self.text(group);
                self.configs(configs);
            }
            of_topic => self.topic_record(of_topic),
        }
    }

    fn topic_record(&mut self, record: &Record) {
        let mut head = |kind, id: &TopicId| {
            self.u8(kind);
            self.0.extend_from_slice(&id.0);
        };
        match record {
            Record::TopicCreated { id, name, configs, runs } => {
                head(TOPIC_CREATED, id);
                self.text(name);
                self.configs(configs);
                self.runs(runs);
            }
            Record::PartitionsAdded { id, runs } => {
                head(PARTITIONS_ADDED, id);
                self.runs(runs);
            }
            Record::PartitionsChanged { id, changes } => {
                head(PARTITIONS_CHANGED, id);
                self.list(changes, Self::changed);
            }
            Record::TopicDeleted { id } => head(TOPIC_DELETED, id),
            Record::TopicConfigsSet { id, configs } => {
                head(TOPIC_CONFIGS_SET, id);
                self.configs(configs);
            }
            _ => unreachable!("`record` writes all others"),
        }
    }
}

impl Reader<'_> {
    pub(super) fn i32(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_le_bytes)
    }

    /// A list. Room is made as its values come, not as its length says.
    pub(super) fn list<T>(
        &mut self,
        read: impl Fn(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.length(COUNT_MAX)?;
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(read(self)?);
        }
        Ok(values)
    }

    pub(super) fn text(&mut self) -> Result<String, Malformed> {
        let bytes = self.bytes()?;
        if bytes.len() > TEXT_BYTES_MAX {
            return Err(Malformed("a text is too long"));
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| Malformed("a text is not UTF-8"))?;
        Ok(text.to_owned())
    }

    pub(super) fn node(&mut self) -> Result<NodeId, Malformed> {
        let id = self.i32()?;
        if id < 0 { Err(Malformed("a broker's id is negative")) } else { Ok(NodeId(id)) }
    }

    pub(super) fn topic_id(&mut self) -> Result<TopicId, Malformed> {
        self.array().map(TopicId)
    }

    pub(super) fn configs(&mut self) -> Result<Configs, Malformed> {
        let pairs = self.list(|reader| Ok((reader.text()?, reader.text()?)))?;
        Ok(pairs.into_iter().collect())
    }

    pub(super) fn dirs(&mut self) -> Result<Vec<LogDir>, Malformed> {
        let dirs = self.list(|reader| {
            let (id, flags) = (reader.text()?, reader.u8()?);
            if flags > 3 {
                return Err(Malformed("a log dir has flags that this program does not know"));
            }
            Ok(LogDir { id, is_available: flags & 1 == 1, is_cordoned: flags & 2 == 2 })
        })?;
        if dirs.len() > LOG_DIRS_MAX {
            return Err(Malformed("a broker has too many log dirs"));
        }
        Ok(dirs)
    }

    pub(super) fn registration(&mut self) -> Result<Registration, Malformed> {
        Ok(Registration {
            node: self.node()?,
            directory: self.array()?,
            life: self.array()?,
            boot: self.array()?,
            rack: self.option(Self::text)?,
            software: self.text()?,
            endpoints: self.list(|reader| {
                Ok(Endpoint { listener: reader.text()?, host: reader.text()?, port: reader.u16()? })
            })?,
            dirs: self.dirs()?,
            features: self.list(|reader| Ok((reader.text()?, reader.u16()?, reader.u16()?)))?,
        })
    }

    fn replicas(&mut self) -> Result<Arc<[Replica]>, Malformed> {
        let count = usize::from(self.u8()?);
        if count > REPLICAS_MAX {
            return Err(Malformed("a partition has too many replicas"));
        }
        (0..count).map(|_| Ok(Replica { node: self.node()?, dir: DirSlot(self.u16()?) })).collect()
    }

    /// Reads roles, and their flags.
    fn roles(&mut self) -> Result<(Roles, u8), Malformed> {
        let flags = self.u8()?;
        let leader = Some(self.u8()?).filter(|leader| *leader != NO_LEADER);
        let mut set = |at: u8| match flags >> at & 1 {
            0 => Ok(ReplicaSet::EMPTY),
            _ => self.u16().map(ReplicaSet::from_bits),
        };
        let (isr, elr, last_elr) = (set(0)?, set(1)?, set(2)?);
        let (adding, removing) = (set(3)?, set(4)?);
        let ack_quorum = if flags & ACK_QUORUM == 0 { 0 } else { self.u8()? };
        Ok((Roles { leader, isr, elr, last_elr, adding, removing, ack_quorum }, flags))
    }

    fn varint(&mut self) -> Result<u32, Malformed> {
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let byte = u32::from(self.u8()?);
            if shift == 28 && byte > 0xf {
                break;
            }
            value |= (byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed("a number is too large"))
    }

    fn count(count: u32) -> Result<u32, Malformed> {
        if (1..=RUN_MAX).contains(&count) {
            Ok(count)
        } else {
            Err(Malformed("a run is of none, or of too many"))
        }
    }

    fn runs(&mut self) -> Result<Vec<Run>, Malformed> {
        self.list(|reader| {
            let count = Self::count(reader.u32()?)?;
            let (replicas, (roles, _)) = (reader.replicas()?, reader.roles()?);
            let (leader_epoch, version) = (LeaderEpoch(reader.i32()?), reader.i32()?);
            let partition = Partition { replicas, roles, leader_epoch, version };
            partition.check().map_err(Malformed)?;
            Ok(Run { count, partition })
        })
    }

    fn changed(&mut self) -> Result<Changed, Malformed> {
        let (first, count) = (self.varint()?.cast_signed(), Self::count(self.varint()?)?);
        let (roles, flags) = self.roles()?;
        let replicas = if flags & REPLICAS == 0 { None } else { Some(self.replicas()?) };
        let change = Change { has_new_epoch: flags & NEW_EPOCH != 0, replicas, roles };
        Ok(Changed { first, count, change })
    }

    pub(super) fn record(&mut self) -> Result<Record, Malformed> {
        Ok(match self.u8()? {
            BROKER_REGISTERED => Record::BrokerRegistered(self.registration()?),
            BROKER_CHANGED => {
                let (node, is_fenced, is_stopping) = (self.node()?, self.flag()?, self.flag()?);
                Record::BrokerChanged { node, is_fenced, is_stopping }
            }
            BROKER_DIRS_CHANGED => Record::BrokerDirsChanged { node: self.node()?, dirs: self.dirs()? },
            BROKER_UNREGISTERED => Record::BrokerUnregistered { node: self.node()? },
            BROKER_RESTORED => {
                let (registration, incarnation) = (self.registration()?, self.u64()?);
                let (is_fenced, is_stopping, changed_at) = (self.flag()?, self.flag()?, self.u64()?);
                Record::BrokerRestored { registration, incarnation, is_fenced, is_stopping, changed_at }
            }
            TOPIC_CREATED => {
                let (id, name, configs) = (self.topic_id()?, self.text()?, self.configs()?);
                Record::TopicCreated { id, name, configs, runs: self.runs()? }
            }
            PARTITIONS_ADDED => Record::PartitionsAdded { id: self.topic_id()?, runs: self.runs()? },
            PARTITIONS_CHANGED => {
                Record::PartitionsChanged { id: self.topic_id()?, changes: self.list(Self::changed)? }
            }
            TOPIC_DELETED => Record::TopicDeleted { id: self.topic_id()? },
            TOPIC_CONFIGS_SET => Record::TopicConfigsSet { id: self.topic_id()?, configs: self.configs()? },
            GROUP_CONFIGS_SET => Record::GroupConfigsSet { group: self.text()?, configs: self.configs()? },
            PRODUCER_IDS_RESERVED => {
                let end = i64::try_from(self.u64()?).map_err(|_| Malformed("a producer id is negative"))?;
                Record::ProducerIdsReserved { end }
            }
            FEATURE_SET => Record::FeatureSet { name: self.text()?, level: self.u16()? },
            VERSIONS_RESTORED => {
                Record::VersionsRestored { version: self.u64()?, features_epoch: self.u64()? }
            }
            _ => return Err(Malformed("a record is of a kind that this program does not know")),
        })
    }
}
