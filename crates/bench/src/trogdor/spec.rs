//! The specs themselves, as their files have them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::comments::blank_comments;
use super::generator::GeneratorSpec;
use crate::input::{InputError, from_json};

/// A task of one of the kinds that are run here.
#[derive(Clone, Debug, PartialEq)]
pub enum Spec {
    /// Sends records.
    Produce(ProduceBench),
    /// Reads records.
    Consume(ConsumeBench),
    /// Sends records and waits until all are read.
    RoundTrip(RoundTrip),
}

/// What every kind of task has.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Common {
    /// How long the task runs at most.
    pub duration_ms: u64,
    /// Where the servers are.
    pub bootstrap_servers: String,
    /// Records a second; none where it is 0.
    pub target_messages_per_sec: f64,
    /// Records in all.
    pub max_messages: u64,
    /// Settings of all clients.
    #[serde(rename = "commonClientConf")]
    pub client_conf: BTreeMap<String, Value>,
    /// What else the file holds.
    #[serde(flatten)]
    unknown: BTreeMap<String, Value>,
}

/// Sends records.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProduceBench {
    /// Keys; numbers of four bytes where the file does not say.
    #[serde(default = "default_keys")]
    pub key_generator: GeneratorSpec,
    /// Values; 512 zeros where the file does not say.
    #[serde(default = "default_values")]
    pub value_generator: GeneratorSpec,
    /// A transactional task; refused.
    #[serde(default)]
    pub transaction_generator: Option<Value>,
    /// Settings of the producer.
    #[serde(default)]
    pub producer_conf: BTreeMap<String, Value>,
    /// Topics that are made and sent to.
    pub active_topics: BTreeMap<String, TopicSpec>,
    /// Topics that are made.
    #[serde(default)]
    pub inactive_topics: BTreeMap<String, TopicSpec>,
    /// Whether the partitioner chooses, instead of one partition after the other.
    #[serde(default)]
    pub use_configured_partitioner: bool,
    /// What every task has, and what else the file holds.
    #[serde(flatten)]
    pub common: Common,
}

/// Reads records.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsumeBench {
    /// The group; for each consumer one that nobody else has where the file does not say.
    #[serde(default)]
    pub consumer_group: String,
    /// Settings of the consumers.
    #[serde(default)]
    pub consumer_conf: BTreeMap<String, Value>,
    /// How many consumers, each with the rate and the number of records that the file says.
    #[serde(default = "one")]
    pub threads_per_worker: u32,
    /// What is done with the records.
    #[serde(default)]
    pub record_processor: Option<RecordProcessor>,
    /// Topics, or partitions as `topic:partition`.
    pub active_topics: Vec<String>,
    /// What every task has, and what else the file holds.
    #[serde(flatten)]
    pub common: Common,
}

/// What is done with records that were read.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum RecordProcessor {
    /// The time in their values is compared with that of their arrival. Latencies have no bound here, so those of the
    /// file's histogram have no effect.
    Timestamp {},
}

/// Sends records and waits until all are read.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoundTrip {
    /// Values; 32 random bytes where the file does not say.
    #[serde(default = "default_round_trip_values")]
    pub value_generator: GeneratorSpec,
    /// Settings of the producer.
    #[serde(default)]
    pub producer_conf: BTreeMap<String, Value>,
    /// Settings of the consumer.
    #[serde(default)]
    pub consumer_conf: BTreeMap<String, Value>,
    /// Topics that are made, sent to and read.
    pub active_topics: BTreeMap<String, TopicSpec>,
    /// What every task has, and what else the file holds.
    #[serde(flatten)]
    pub common: Common,
}

/// A topic to make.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicSpec {
    /// Partitions.
    pub num_partitions: u32,
    /// Replicas of each.
    pub replication_factor: i16,
    /// The replicas of each partition, by its index.
    pub partition_assignments: BTreeMap<String, Vec<i32>>,
    /// Configs.
    pub configs: BTreeMap<String, String>,
}

fn default_keys() -> GeneratorSpec {
    GeneratorSpec::Sequential { size: 4, offset: 0 }
}

fn default_values() -> GeneratorSpec {
    GeneratorSpec::Constant { size: 512, value: None }
}

fn default_round_trip_values() -> GeneratorSpec {
    GeneratorSpec::UniformRandom { size: 32, seed: 123, padding: 10 }
}

fn one() -> u32 {
    1
}

/// Keys that name agents, or say what a task's place in a schedule is: there are none here.
const WITHOUT_EFFECT: [&str; 7] =
    ["class", "startMs", "producerNode", "consumerNode", "clientNode", "adminClientConf", "skipFlush"];

impl Common {
    /// What was read and has no effect, for people.
    pub(super) fn notes(&self) -> Vec<String> {
        let told = |key: &&String| !matches!(key.as_str(), "class" | "startMs");
        let note = |key: &String| {
            if WITHOUT_EFFECT.contains(&key.as_str()) {
                format!("spec: {key} has no effect here")
            } else {
                format!("spec: unknown key {key} is ignored")
            }
        };
        self.unknown.keys().filter(told).map(note).collect()
    }
}

impl Spec {
    /// Reads a spec; `file` is for errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, InputError> {
        #[derive(Deserialize)]
        struct Class {
            class: String,
        }
        let text = blank_comments(text);
        let class = from_json::<Class>(file, &text)?.class;
        match class.rsplit('.').next() {
            Some("ProduceBenchSpec") => Ok(Self::Produce(from_json(file, &text)?)),
            Some("ConsumeBenchSpec") => Ok(Self::Consume(from_json(file, &text)?)),
            Some("RoundTripWorkloadSpec") => Ok(Self::RoundTrip(from_json(file, &text)?)),
            _ => Err(InputError::refused(
                file,
                format!("{class} is none of ProduceBenchSpec, ConsumeBenchSpec and RoundTripWorkloadSpec"),
            )),
        }
    }

    /// What every kind has.
    pub fn common(&self) -> &Common {
        match self {
            Self::Produce(spec) => &spec.common,
            Self::Consume(spec) => &spec.common,
            Self::RoundTrip(spec) => &spec.common,
        }
    }
}
