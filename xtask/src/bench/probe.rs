//! A client of one blocking socket, for operations that are timed to the millisecond: on topics, and on single records.
//!
//! Not a client for anything else: it knows one node, waits for each answer, and leaves retries to [`until_answered`].
//! Versions are fixed to ones that both servers know and that name topics by name.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use anyhow::bail;
use riverrun_protocol::create_partitions_request::CreatePartitionsTopic;
use riverrun_protocol::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use riverrun_protocol::delete_topics_request::DeleteTopicState;
use riverrun_protocol::describe_configs_request::DescribeConfigsResource;
use riverrun_protocol::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use riverrun_protocol::produce_request::{PartitionProduceData, TopicProduceData};
use riverrun_protocol::{
    ApiVersionsRequest, CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest,
    DescribeConfigsRequest, ErrorCode, IncrementalAlterConfigsRequest, ProduceRequest, Records,
};
use riverrun_records::Compression;

use super::client::RECORD_BYTES;
use crate::clients::server::{Patience, Server};
use crate::wire::{Conn, Dial, batch};

/// The oldest: newer ones require the client's name.
const API_VERSIONS_VERSION: i16 = 0;
const CREATE_TOPICS_VERSION: i16 = 7;
const CREATE_PARTITIONS_VERSION: i16 = 3;
const DELETE_TOPICS_VERSION: i16 = 6;
const ALTER_CONFIGS_VERSION: i16 = 1;
const DESCRIBE_CONFIGS_VERSION: i16 = 4;
const PRODUCE_VERSION: i16 = 12;

/// Codes of `IncrementalAlterConfigs`.
const RESOURCE_TOPIC: i8 = 2;
const OPERATION_SET: i8 = 0;

/// Timeout field of requests.
const TIMEOUT_MS: i32 = 60_000;

/// Longest wait for an answer: a server takes its time to create thousands of partitions.
const ANSWER_LIMIT: Duration = Duration::from_mins(5);

/// Longest time for an operation to succeed by retries.
const PATIENCE: Duration = Duration::from_mins(10);

/// Time between two tries: short, because it is part of the times measured.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// A topic to create.
#[derive(Clone, Debug)]
pub(super) struct Topic {
    pub(super) name: String,
    pub(super) partitions: i32,
}

/// Partitions of a topic to produce to.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) topic: String,
    pub(super) partitions: Range<i32>,
}

/// A connection.
pub(crate) struct Probe {
    conn: Conn,
}

impl Probe {
    pub(crate) fn connect(server: &Server) -> anyhow::Result<Self> {
        Self::open(Dial::to(server.port(), ANSWER_LIMIT))
    }

    pub(crate) fn open(dial: Dial) -> anyhow::Result<Self> {
        Ok(Self { conn: Conn::open(dial)? })
    }

    /// Sends a request that touches no disk.
    pub(crate) fn greet(&mut self) -> anyhow::Result<()> {
        let mut buffer = Vec::new();
        let response = self.conn.call(&ApiVersionsRequest::default(), API_VERSIONS_VERSION, &mut buffer)?;
        all_fine("greet", [("", ErrorCode(response.error_code))].into_iter())
    }

    /// Creates topics in one request. A topic that exists already is no error: the answer to an earlier try was lost.
    pub(super) fn create(&mut self, topics: &[Topic]) -> anyhow::Result<()> {
        self.create_with(topics, &[])
    }

    /// As [`create`](Self::create), each with these configs.
    pub(super) fn create_with(&mut self, topics: &[Topic], configs: &[(&str, &str)]) -> anyhow::Result<()> {
        let config = |(name, value): &(&str, &str)| CreatableTopicConfig {
            name: (*name).to_owned().into(),
            value: Some((*value).to_owned().into()),
        };
        let creatable = |topic: &Topic| CreatableTopic {
            name: topic.name.clone().into(),
            num_partitions: topic.partitions,
            replication_factor: 1,
            configs: configs.iter().map(config).collect(),
            ..CreatableTopic::default()
        };
        let request =
            CreateTopicsRequest { topics: topics.iter().map(creatable).collect(), ..Default::default() };
        let mut buffer = Vec::new();
        let response = self.conn.call(&request, CREATE_TOPICS_VERSION, &mut buffer)?;
        let answers = response.topics.iter().map(|topic| (&*topic.name, ErrorCode(topic.error_code)));
        all_fine("create", answers.filter(|(_, code)| *code != ErrorCode::TOPIC_ALREADY_EXISTS))
    }

    /// Grows a topic to its number of partitions. A topic that has them already is no error.
    pub(super) fn grow(&mut self, topic: &Topic) -> anyhow::Result<()> {
        let name = topic.name.as_str().into();
        let growth = CreatePartitionsTopic { name, count: topic.partitions, assignments: None };
        let request =
            CreatePartitionsRequest { topics: vec![growth], timeout_ms: TIMEOUT_MS, ..Default::default() };
        let mut buffer = Vec::new();
        let response = self.conn.call(&request, CREATE_PARTITIONS_VERSION, &mut buffer)?;
        let answers = response.results.iter().map(|answer| (&*answer.name, ErrorCode(answer.error_code)));
        all_fine("grow", answers.filter(|(_, code)| *code != ErrorCode::INVALID_PARTITIONS))
    }

    /// Sets configs of a topic.
    pub(super) fn alter(&mut self, topic: &str, configs: &[(&str, &str)]) -> anyhow::Result<()> {
        let config = |(name, value): &(&str, &str)| AlterableConfig {
            name: (*name).to_owned().into(),
            config_operation: OPERATION_SET,
            value: Some((*value).to_owned().into()),
        };
        let resource = AlterConfigsResource {
            resource_type: RESOURCE_TOPIC,
            resource_name: topic.into(),
            configs: configs.iter().map(config).collect(),
        };
        let request = IncrementalAlterConfigsRequest { resources: vec![resource], ..Default::default() };
        let mut buffer = Vec::new();
        let response = self.conn.call(&request, ALTER_CONFIGS_VERSION, &mut buffer)?;
        all_fine("configure", response.responses.iter().map(|answer| (topic, ErrorCode(answer.error_code))))
    }

    /// The value of a config of a topic, if it has one.
    pub(super) fn config(&mut self, topic: &str, name: &str) -> anyhow::Result<Option<String>> {
        let resource = DescribeConfigsResource {
            resource_type: RESOURCE_TOPIC,
            resource_name: topic.into(),
            configuration_keys: Some(vec![name.into()]),
        };
        let request = DescribeConfigsRequest { resources: vec![resource], ..Default::default() };
        let mut buffer = Vec::new();
        let response = self.conn.call(&request, DESCRIBE_CONFIGS_VERSION, &mut buffer)?;
        all_fine("describe", response.results.iter().map(|answer| (topic, ErrorCode(answer.error_code))))?;
        let mut configs = response.results.into_iter().flat_map(|answer| answer.configs);
        Ok(configs.find(|config| config.name == name).and_then(|config| config.value).map(Into::into))
    }

    pub(super) fn delete(&mut self, topic: &str) -> anyhow::Result<()> {
        let state = DeleteTopicState { name: Some(topic.into()), ..Default::default() };
        let request =
            DeleteTopicsRequest { topics: vec![state], timeout_ms: TIMEOUT_MS, ..Default::default() };
        let mut buffer = Vec::new();
        let response = self.conn.call(&request, DELETE_TOPICS_VERSION, &mut buffer)?;
        all_fine("delete", response.responses.iter().map(|answer| (topic, ErrorCode(answer.error_code))))
    }

    /// Produces one record to each of the partitions, in one request, acked by all replicas.
    pub(super) fn produce(&mut self, targets: &[Target]) -> anyhow::Result<()> {
        self.produce_batch(targets, &batch_of(RECORD_BYTES.into())?)
    }

    /// Produces the same batch to each of the partitions, in one request, acked by all replicas.
    pub(super) fn produce_batch(&mut self, targets: &[Target], batch: &[u8]) -> anyhow::Result<()> {
        let data = |index| PartitionProduceData { index, records: Some(Records::Bytes(batch)) };
        let topic_data = targets.iter().map(|target| TopicProduceData {
            name: target.topic.as_str().into(),
            partition_data: target.partitions.clone().map(data).collect(),
            ..Default::default()
        });
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: TIMEOUT_MS,
            topic_data: topic_data.collect(),
            ..Default::default()
        };
        let mut buffer = Vec::new();
        let response = self.conn.call(&request, PRODUCE_VERSION, &mut buffer)?;
        let of_topic = response.responses.iter().map(|topic| (&*topic.name, &topic.partition_responses));
        let answers = of_topic.flat_map(|(name, partitions)| {
            partitions.iter().map(move |partition| (name, ErrorCode(partition.error_code)))
        });
        all_fine("produce", answers)
    }
}

/// A batch of one record, with a value of this many bytes and the present time.
pub(super) fn batch_of(value_bytes: usize) -> anyhow::Result<Vec<u8>> {
    batch(Compression::None, &[&vec![b'r'; value_bytes]])
}

/// An answer with an error code.
#[derive(Debug)]
struct Refused {
    what: &'static str,
    topic: String,
    code: ErrorCode,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.what, self.topic, self.code)
    }
}

impl std::error::Error for Refused {}

impl Refused {
    /// Whether another try would get the same answer. While its own node is not registered yet, Kafka returns an error
    /// that clients regard as final.
    fn is_final(&self) -> bool {
        !self.code.is_retriable() && self.code != ErrorCode::INVALID_REPLICATION_FACTOR
    }
}

/// Fails with the first error code.
fn all_fine<'a>(
    what: &'static str,
    mut answers: impl Iterator<Item = (&'a str, ErrorCode)>,
) -> anyhow::Result<()> {
    match answers.find(|(_, code)| *code != ErrorCode::NONE) {
        Some((topic, code)) => bail!(Refused { what, topic: topic.to_owned(), code }),
        None => Ok(()),
    }
}

/// Repeats an operation with fresh connections until it succeeds: while a server starts, connections are refused, then
/// partitions have no leader. Fails if the server ends, its answer is final, or [`PATIENCE`] is over.
pub(super) fn until_answered(
    server: &mut Server,
    mut attempt: impl FnMut(&mut Probe) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let is_final = |error: &anyhow::Error| error.downcast_ref::<Refused>().is_some_and(Refused::is_final);
    let patience = Patience { limit: PATIENCE, pause: RETRY_INTERVAL, is_final };
    server.until(patience, |server| attempt(&mut Probe::connect(server)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_is_named_by_topic_and_code() {
        let answers = [("a", ErrorCode::NONE), ("b", ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)];
        let error = all_fine("produce", answers.into_iter()).unwrap_err().to_string();
        assert!(error.contains("produce b") && error.contains("UNKNOWN_TOPIC_OR_PARTITION"), "{error}");
    }

    #[test]
    fn answer_that_will_not_change_is_final() {
        let of = |code| Refused { what: "create", topic: String::new(), code };
        assert!(of(ErrorCode::POLICY_VIOLATION).is_final());
        assert!(!of(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION).is_final());
        assert!(!of(ErrorCode::INVALID_REPLICATION_FACTOR).is_final());
    }

    #[test]
    fn sent_batch_is_sound_and_has_one_record() {
        let bytes = batch_of(512).unwrap();
        let (batch, rest) = riverrun_records::UnverifiedBatch::split_first(&bytes).unwrap();
        assert!(rest.is_empty());
        assert_eq!(batch.verify().unwrap().record_count(), 1);
    }
}
