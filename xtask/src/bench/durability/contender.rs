//! The contenders: the two servers, each at its durability levels.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde::Serialize;

use super::super::level::{KAFKA_DEFAULT, Level};
use super::super::probe::{Probe, Topic, until_answered};
use crate::clients::server::{Server, ServerKind};

/// Partitions in one request, which Kafka accepts.
const PARTITIONS_PER_REQUEST: usize = 1000;

/// Changing the level of ten thousand partitions takes seconds.
const REACH_LIMIT: Duration = Duration::from_mins(2);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Kafka's own default: it never syncs by itself.
const NEVER: &str = "9223372036854775807";

/// A server at a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Contender {
    KafkaUnsynced,
    KafkaSynced,
    RiverrunSynced,
    RiverrunUnsynced,
}

impl Contender {
    /// In the order of a round.
    pub(super) const ALL: [Self; 4] =
        [Self::KafkaUnsynced, Self::RiverrunSynced, Self::KafkaSynced, Self::RiverrunUnsynced];

    pub(super) fn server(self) -> ServerKind {
        match self {
            Self::KafkaUnsynced | Self::KafkaSynced => ServerKind::Kafka,
            Self::RiverrunSynced | Self::RiverrunUnsynced => ServerKind::Riverrun,
        }
    }

    /// Our server's level; `None` for Kafka.
    fn level(self) -> Option<Level> {
        match self {
            Self::KafkaUnsynced | Self::KafkaSynced => None,
            Self::RiverrunSynced => Some(Level::Synced),
            Self::RiverrunUnsynced => Some(Level::PageCache),
        }
    }

    /// Meaning of an ack, printed beside every figure.
    pub(super) fn durability(self) -> &'static str {
        match self {
            Self::KafkaUnsynced => KAFKA_DEFAULT,
            Self::KafkaSynced => "flush.messages=1",
            Self::RiverrunSynced => Level::Synced.name(),
            Self::RiverrunUnsynced => Level::PageCache.name(),
        }
    }

    /// Part of a topic's name.
    pub(super) fn slug(self) -> &'static str {
        match self {
            Self::KafkaUnsynced | Self::RiverrunUnsynced => "unsynced",
            Self::KafkaSynced | Self::RiverrunSynced => "synced",
        }
    }

    /// Configs that give a topic this level.
    pub(super) fn configs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::KafkaUnsynced => &[("flush.messages", NEVER), ("flush.ms", NEVER)],
            Self::KafkaSynced => &[("flush.messages", "1"), ("flush.ms", "0")],
            Self::RiverrunSynced => Level::Synced.topic_configs(),
            Self::RiverrunUnsynced => Level::PageCache.topic_configs(),
        }
    }

    /// Waits until acked records of a topic have this level, if the server is ours, which changes its partitions one by
    /// one.
    pub(super) fn until_reached(self, server: &mut Server, topic: &str) -> anyhow::Result<()> {
        let Some(wanted) = self.level().map(Level::number) else { return Ok(()) };
        let deadline = Instant::now() + REACH_LIMIT;
        loop {
            let mut reached = None;
            until_answered(server, |probe| {
                reached = probe.config(topic, "durability.reached")?;
                Ok(())
            })?;
            if reached.as_deref() == Some(wanted) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{topic} is at level {reached:?}, not at {wanted}");
            thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Creates a topic at this level, in as many requests as necessary. Tolerates that answers to earlier tries were
    /// lost.
    pub(super) fn create(self, probe: &mut Probe, topic: &Topic) -> anyhow::Result<()> {
        let mut counts = (0..=topic.partitions).step_by(PARTITIONS_PER_REQUEST).skip(1).collect::<Vec<_>>();
        if counts.last() != Some(&topic.partitions) {
            counts.push(topic.partitions);
        }
        for (index, partitions) in counts.into_iter().enumerate() {
            let topic = Topic { name: topic.name.clone(), partitions };
            if index == 0 {
                // Deleted topics free their space soon, in both servers.
                let delay = ("file.delete.delay.ms", "1000");
                let configs: Vec<_> = self.configs().iter().copied().chain([delay]).collect();
                probe.create_with(&[topic], &configs)?;
            } else {
                probe.grow(&topic)?;
            }
        }
        Ok(())
    }
}
