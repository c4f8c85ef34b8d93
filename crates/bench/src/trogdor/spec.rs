//! The specs as written in their files.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::comments::blank_comments;
use super::generator::GeneratorSpec;
use super::{lenient, nested};
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

/// Keys of every kind of task.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Common {
    /// Longest time of the task.
    #[serde(deserialize_with = "lenient::count")]
    pub duration_ms: u64,
    /// Bootstrap addresses of the servers.
    #[serde(deserialize_with = "lenient::or_default")]
    pub bootstrap_servers: String,
    /// Records a second; unpaced if not above 0.
    #[serde(deserialize_with = "lenient::real")]
    pub target_messages_per_sec: f64,
    /// Records in all.
    #[serde(deserialize_with = "lenient::count")]
    pub max_messages: u64,
    /// Settings of all clients.
    #[serde(rename = "commonClientConf", deserialize_with = "lenient::settings")]
    pub client_conf: BTreeMap<String, String>,
    /// Settings of the client that creates the topics; they have no effect here, and some are refused.
    #[serde(rename = "adminClientConf", deserialize_with = "lenient::settings")]
    pub admin_conf: BTreeMap<String, String>,
    /// Other keys of the file.
    #[serde(flatten)]
    unknown: BTreeMap<String, Value>,
    /// Notes on the keys of its parts.
    #[serde(skip)]
    nested: Vec<String>,
}

/// Sends records.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProduceBench {
    /// Keys; numbers of four bytes by default.
    #[serde(default)]
    pub key_generator: Option<GeneratorSpec>,
    /// Values; 512 zeros by default.
    #[serde(default)]
    pub value_generator: Option<GeneratorSpec>,
    /// A transactional task; refused.
    #[serde(default)]
    pub transaction_generator: Option<Value>,
    /// Settings of the producer.
    #[serde(default, deserialize_with = "lenient::settings")]
    pub producer_conf: BTreeMap<String, String>,
    /// Topics that are created and sent to.
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub active_topics: BTreeMap<String, TopicSpec>,
    /// Topics that are only created.
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub inactive_topics: BTreeMap<String, TopicSpec>,
    /// Whether the partitioner chooses, instead of one partition after the other.
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub use_configured_partitioner: bool,
    /// Keys of every task, and other keys of the file.
    #[serde(flatten)]
    pub common: Common,
}

/// Reads records.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsumeBench {
    /// The group; by default, a group of its own for each consumer.
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub consumer_group: String,
    /// Settings of the consumers.
    #[serde(default, deserialize_with = "lenient::settings")]
    pub consumer_conf: BTreeMap<String, String>,
    /// Number of consumers, each with the rate and the number of records of the file; 0 means one.
    #[serde(default, deserialize_with = "lenient::count")]
    pub threads_per_worker: u32,
    /// The processor of the records.
    #[serde(default)]
    pub record_processor: Option<RecordProcessor>,
    /// Topics, and partitions as `topic:partition`.
    #[serde(default, deserialize_with = "lenient::texts")]
    pub active_topics: Vec<String>,
    /// Keys of every task, and other keys of the file.
    #[serde(flatten)]
    pub common: Common,
}

/// The processing of records that were read.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum RecordProcessor {
    /// Measures the time from the stamp in a value to its arrival. Latencies have no bound here, so the bounds of the
    /// file's histogram have no effect.
    Timestamp {},
}

/// Sends records and waits until all are read.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoundTrip {
    /// Values; 32 random bytes by default.
    #[serde(default)]
    pub value_generator: Option<GeneratorSpec>,
    /// Settings of the producer.
    #[serde(default, deserialize_with = "lenient::settings")]
    pub producer_conf: BTreeMap<String, String>,
    /// Settings of the consumer.
    #[serde(default, deserialize_with = "lenient::settings")]
    pub consumer_conf: BTreeMap<String, String>,
    /// Topics that are created, sent to and read.
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub active_topics: BTreeMap<String, TopicSpec>,
    /// Keys of every task, and other keys of the file.
    #[serde(flatten)]
    pub common: Common,
}

/// A topic to create.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicSpec {
    /// Partitions; 1 if not above 0.
    #[serde(deserialize_with = "lenient::count")]
    pub num_partitions: u32,
    /// Replicas of each; 3 if not above 0.
    #[serde(deserialize_with = "lenient::count")]
    pub replication_factor: i16,
    /// The replicas of each partition, by its index, in place of both.
    #[serde(deserialize_with = "lenient::assignments")]
    pub partition_assignments: BTreeMap<u32, Vec<i32>>,
    /// Configs.
    #[serde(deserialize_with = "lenient::settings")]
    pub configs: BTreeMap<String, String>,
}

impl ProduceBench {
    /// The generator of keys.
    pub(super) fn keys(&self) -> GeneratorSpec {
        self.key_generator.clone().unwrap_or(GeneratorSpec::Sequential { size: 4, offset: 0 })
    }

    /// The generator of values.
    pub(super) fn values(&self) -> GeneratorSpec {
        self.value_generator.clone().unwrap_or(GeneratorSpec::Constant { size: 512, value: None })
    }
}

impl RoundTrip {
    /// The generator of values.
    pub(super) fn values(&self) -> GeneratorSpec {
        let default = GeneratorSpec::UniformRandom { size: 32, seed: 123, padding: 10 };
        self.value_generator.clone().unwrap_or(default)
    }
}

/// Keys that name agents, or a task's place in a schedule: there are none here.
const WITHOUT_EFFECT: [&str; 6] =
    ["class", "startMs", "producerNode", "consumerNode", "clientNode", "skipFlush"];

impl Common {
    /// Settings that were read and have no effect, for people.
    pub(super) fn notes(&self) -> Vec<String> {
        // Samples begin in 1970, which means at once.
        let is_now = |value: &Value| value.is_null() || value.as_i64() == Some(0);
        let told = |&(key, value): &(&String, &Value)| match key.as_str() {
            "class" => false,
            "startMs" => !is_now(value),
            _ => true,
        };
        let note = |(key, _): (&String, &Value)| {
            if WITHOUT_EFFECT.contains(&key.as_str()) {
                format!("spec: {key} has no effect here")
            } else {
                format!("spec: unknown key {key} is ignored")
            }
        };
        let admin =
            (!self.admin_conf.is_empty()).then(|| "spec: adminClientConf has no effect here".to_owned());
        let of_parts = self.nested.iter().cloned();
        self.unknown.iter().filter(told).map(note).chain(admin).chain(of_parts).collect()
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
        let mut spec = match class.rsplit('.').next() {
            Some("ProduceBenchSpec") => Self::Produce(from_json(file, &text)?),
            Some("ConsumeBenchSpec") => Self::Consume(from_json(file, &text)?),
            Some("RoundTripWorkloadSpec") => Self::RoundTrip(from_json(file, &text)?),
            _ => {
                let reason = format!(
                    "{class} is none of ProduceBenchSpec, ConsumeBenchSpec and RoundTripWorkloadSpec"
                );
                return Err(InputError::refused(file, reason));
            }
        };
        let common = match &mut spec {
            Self::Produce(spec) => &mut spec.common,
            Self::Consume(spec) => &mut spec.common,
            Self::RoundTrip(spec) => &mut spec.common,
        };
        common.nested = nested::notes(&from_json(file, &text)?);
        Ok(spec)
    }

    /// Keys of every kind of task.
    pub fn common(&self) -> &Common {
        match self {
            Self::Produce(spec) => &spec.common,
            Self::Consume(spec) => &spec.common,
            Self::RoundTrip(spec) => &spec.common,
        }
    }
}
