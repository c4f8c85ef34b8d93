//! The hand-written attacks, each a way to stop or starve other clients, with its preparations.

mod admin;
mod connections;
mod creation;
mod damaged;
mod deletes;
mod frames;
mod groups;
mod inflate;
mod internal;
mod lists;
mod log_reader;
mod nothing;
mod patterns;
mod segments;
mod sessions;
mod unread;
mod vanished;

use std::path::Path;

use anyhow::{Context, ensure};
use riverrun_protocol::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use riverrun_protocol::{CreateTopicsRequest, FindCoordinatorRequest};

use super::attacker::{From, Tally, Target};
use super::honest::{Shape, TOPIC_ALREADY_EXISTS};
use crate::wire::Conn;

/// Elements of a list that make a request of megabytes and are within the server's bound on most requests, so that they
/// are worked on: 250,000 with the containers of the list. The generated part tests requests beyond the bounds, which
/// are refused.
const MANY: usize = 249_000;

/// A version that reports errors with their text.
const CREATE_TOPICS_VERSION: i16 = 5;

/// A version that asks for one group by name.
const FIND_COORDINATOR_VERSION: i16 = 2;

/// Destination of the server's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LogReader {
    /// Into a file.
    #[default]
    Works,
    /// Into a pipe whose reader has gone.
    Gone,
    /// Into a pipe that is full, and that nobody reads.
    Paused,
}

/// Makes files in a directory; returns the settings that name them.
type Lay = fn(&Path) -> anyhow::Result<Vec<String>>;

/// Conditions at the start of the attacked server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ground {
    /// `name=value` settings.
    pub(super) settings: &'static [&'static str],
    /// Descriptors that the process may have, if they are to be few.
    pub(super) descriptors: Option<u32>,
    pub(super) log_reader: LogReader,
    /// Makes files for the server to find at its start.
    pub(super) lay: Option<Lay>,
}

/// One kind of attack.
pub(super) trait Attack: Sync {
    fn name(&self) -> &'static str;

    /// Description, in a line.
    fn about(&self) -> &'static str;

    /// Source addresses in the short form; `None` if it is not part of it.
    fn short(&self) -> Option<From> {
        None
    }

    fn ground(&self) -> Ground {
        Ground::default()
    }

    /// The honest clients that run beside it.
    fn beside(&self) -> &'static [Shape] {
        &[Shape::Small]
    }

    /// Prepares the attack, for example makes topics.
    fn prepare(&self, _conn: &mut Conn) -> anyhow::Result<()> {
        Ok(())
    }

    /// Damages the server's own files as an attack begins; the first pair has the number 0.
    fn harm(&self, _data: &Path, _pair: u32) -> anyhow::Result<()> {
        Ok(())
    }

    /// The attack itself, in the attacker's process.
    fn act(&self, target: &Target) -> anyhow::Result<Tally>;

    /// Words of which the server's log has to contain one afterwards, if an operator has to know of the attack.
    fn log_words(&self) -> &'static [&'static str] {
        &[]
    }

    /// Words of which `/health` has to have shown one.
    fn health_words(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether `/health` may be unanswered for as long as the attack lasts.
    fn takes_admin_port(&self) -> bool {
        false
    }

    /// Whether a stop has to report that it was not clean, since the journal has records whose files are gone.
    fn leaves_records_in_the_journal(&self) -> bool {
        false
    }

    /// Additional faults, found while the server still runs.
    fn check(&self, _conn: &mut Conn) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Every attack, in the order of a run.
pub(super) const ALL: &[&dyn Attack] = &[
    &lists::Lists,
    &unread::Unread,
    &unread::Abandoned,
    &sessions::Sessions,
    &frames::HalfFrames,
    &frames::Garbage,
    &inflate::Inflate,
    &patterns::LongPatterns,
    &patterns::ManyTopics,
    &patterns::WideGroups,
    &groups::Storm,
    &deletes::SameRecords,
    &creation::Metadata,
    &creation::TopicsInTurn,
    &internal::Commits,
    &internal::Keys,
    &segments::TinySegments,
    &admin::Slow,
    &connections::Idle,
    &connections::Churn,
    &log_reader::Gone,
    &log_reader::Paused,
    &damaged::Queue,
    &vanished::Directories,
];

/// No attack at all, for a server with a planted fault.
pub(super) const NOTHING: nothing::Nothing = nothing::Nothing;

/// The attack of this name.
pub(super) fn named(name: &str) -> Option<&'static dyn Attack> {
    ALL.iter().copied().chain([&NOTHING as &dyn Attack]).find(|attack| attack.name() == name)
}

/// Makes a topic; returns the error code if that is refused.
fn create_topic(
    conn: &mut Conn,
    name: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> anyhow::Result<Result<(), i16>> {
    let configs = configs
        .iter()
        .map(|(name, value)| CreatableTopicConfig { name: (*name).into(), value: Some((*value).into()) });
    let topic = CreatableTopic {
        name: name.into(),
        num_partitions: partitions,
        replication_factor: 1,
        configs: configs.collect(),
        ..CreatableTopic::default()
    };
    let request =
        CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..CreateTopicsRequest::default() };
    let mut buffer = Vec::new();
    let answer = conn.call(&request, CREATE_TOPICS_VERSION, &mut buffer)?;
    let topic = answer.topics.first().context("the server says nothing of the topic")?;
    Ok(if topic.error_code == 0 { Ok(()) } else { Err(topic.error_code) })
}

/// Makes a topic that must exist afterwards, unless another attack has made it.
fn must_create_topic(
    conn: &mut Conn,
    name: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> anyhow::Result<()> {
    let created = create_topic(conn, name, partitions, configs)?;
    ensure!(
        matches!(created, Ok(()) | Err(TOPIC_ALREADY_EXISTS)),
        "{name} cannot be made: error {created:?}"
    );
    Ok(())
}

/// Makes the server create its topic of groups.
fn find_coordinator(conn: &mut Conn, group: &str) -> anyhow::Result<()> {
    let request = FindCoordinatorRequest { key: group.into(), ..FindCoordinatorRequest::default() };
    let mut buffer = Vec::new();
    conn.call(&request, FIND_COORDINATOR_VERSION, &mut buffer)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_attack_has_a_name_of_its_own() {
        let names: BTreeSet<_> = ALL.iter().map(|attack| attack.name()).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(ALL.iter().all(|attack| named(attack.name()).is_some()));
    }
}
