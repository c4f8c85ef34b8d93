//! From a spec to a plan.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::generator::GeneratorSpec;
use super::spec::{Common, ConsumeBench, ProduceBench, RecordProcessor, RoundTrip, Spec, TopicSpec};
use super::topics::expand;
use crate::input::InputError;
use crate::plan::{
    ConsumerPlan, KeyPlan, LoadPlan, Plan, ProducerPlan, Source, Stamp, TargetRate, TopicPlan, ValuePlan,
};
use crate::properties::Properties;
use crate::unsupported::{NO_TRANSACTIONS, refusal};

/// Partitions of one spec at most.
const PARTITIONS_MAX: u64 = 1_000_000;
/// Consumers of one spec at most.
const CONSUMERS_MAX: u32 = 10_000;

impl Spec {
    /// What the spec does. `file` is for errors; `run` tells this run's names apart from those of others.
    pub fn to_plan(&self, file: &str, run: &str) -> Result<Plan, InputError> {
        let refused = |reason: String| InputError::refused(file, reason);
        let mut plan = match self {
            Self::Produce(spec) => produce(spec),
            Self::Consume(spec) => consume(spec, run),
            Self::RoundTrip(spec) => round_trip(spec, run),
        }
        .map_err(refused)?;
        let common = self.common();
        if !(common.target_messages_per_sec.is_finite() && common.target_messages_per_sec >= 0.0) {
            return Err(refused(format!("targetMessagesPerSec is {}", common.target_messages_per_sec)));
        }
        if common.duration_ms == 0 && common.max_messages == 0 {
            return Err(refused("neither durationMs nor maxMessages: it would have no end".to_owned()));
        }
        file.clone_into(&mut plan.name);
        plan.notes.extend(common.notes());
        Ok(plan)
    }
}

fn produce(spec: &ProduceBench) -> Result<Plan, String> {
    if spec.transaction_generator.as_ref().is_some_and(|generator| !generator.is_null()) {
        return Err(format!("transactionGenerator: {NO_TRANSACTIONS}"));
    }
    check_generators(&[&spec.key_generator, &spec.value_generator])?;
    let mut plan = empty(&spec.common);
    let active = make_topics(&spec.active_topics, &mut plan)?;
    make_topics(&spec.inactive_topics, &mut plan)?;
    plan.producers = vec![producer(&active, &plan.topics, !spec.use_configured_partitioner)];
    plan.load.producer_settings = settings(&spec.common, &spec.producer_conf)?;
    plan.load.keys = KeyPlan::Generator(spec.key_generator.clone());
    plan.load.value_bytes = spec.value_generator.bytes();
    plan.load.values = ValuePlan::Generator(spec.value_generator.clone());
    Ok(plan)
}

/// Rate and number of records are those of each consumer, as in the original; so is the group where none is named.
fn consume(spec: &ConsumeBench, run: &str) -> Result<Plan, String> {
    let count = spec.threads_per_worker;
    if count == 0 || count > CONSUMERS_MAX {
        return Err(format!("threadsPerWorker is {count}"));
    }
    let mut plan = empty(&spec.common);
    let (topics, partitions) = sources(&spec.active_topics)?;
    let named = !spec.consumer_group.is_empty();
    if !partitions.is_empty() && named && count > 1 {
        return Err("threadsPerWorker with partitions in activeTopics: a group cannot share them".to_owned());
    }
    let source = if partitions.is_empty() { Source::Group(topics) } else { Source::Partitions(partitions) };
    let rate = Some(spec.common.target_messages_per_sec).filter(|rate| *rate > 0.0);
    let consumer = |index: u32| ConsumerPlan {
        subscription: if named {
            spec.consumer_group.clone()
        } else {
            format!("consume-bench-{run}-{index}")
        },
        source: source.clone(),
        catch_up: false,
        rate,
    };
    plan.consumers = (0..count).map(consumer).collect();
    plan.messages = plan.messages.map(|messages| messages.saturating_mul(count.into()));
    plan.load.consumer_settings = from_the_beginning(&settings(&spec.common, &spec.consumer_conf)?);
    plan.load.stamp = match spec.record_processor {
        Some(RecordProcessor::Timestamp {}) => Stamp::TrogdorValue,
        None => Stamp::None,
    };
    Ok(plan)
}

fn round_trip(spec: &RoundTrip, run: &str) -> Result<Plan, String> {
    check_generators(&[&spec.value_generator])?;
    if spec.common.max_messages == 0 {
        return Err("maxMessages is missing, or 0".to_owned());
    }
    let mut plan = empty(&spec.common);
    let active = make_topics(&spec.active_topics, &mut plan)?;
    plan.producers = vec![producer(&active, &plan.topics, true)];
    plan.consumers = vec![ConsumerPlan {
        subscription: format!("round-trip-{run}"),
        source: Source::Group(active),
        catch_up: false,
        rate: None,
    }];
    plan.load.producer_settings = settings(&spec.common, &spec.producer_conf)?;
    plan.load.consumer_settings = from_the_beginning(&settings(&spec.common, &spec.consumer_conf)?);
    plan.load.keys = KeyPlan::Generator(GeneratorSpec::Sequential { size: 4, offset: 0 });
    plan.load.value_bytes = spec.value_generator.bytes();
    plan.load.values = ValuePlan::Generator(spec.value_generator.clone());
    plan.load.stamp = Stamp::Value;
    Ok(plan)
}

/// What all specs have in common: no warm-up, one rate, an end.
fn empty(common: &Common) -> Plan {
    let rate = common.target_messages_per_sec;
    Plan {
        name: String::new(),
        topics: Vec::new(),
        producers: Vec::new(),
        consumers: Vec::new(),
        load: LoadPlan {
            producer_settings: Properties::default(),
            consumer_settings: Properties::default(),
            keys: KeyPlan::NONE,
            values: ValuePlan::Letters { bytes: 1 },
            value_bytes: 1,
            in_flight: None,
            stamp: Stamp::None,
            seed: 0,
        },
        rate: if rate > 0.0 { TargetRate::Fixed(rate) } else { TargetRate::Unpaced },
        warmup: Duration::ZERO,
        test: if common.duration_ms == 0 { UNTIL_DONE } else { Duration::from_millis(common.duration_ms) },
        messages: (common.max_messages > 0).then_some(common.max_messages),
        backlog: None,
        disk_full: None,
        durability: None,
        notes: Vec::new(),
    }
}

/// Where a spec bounds the number of records only.
const UNTIL_DONE: Duration = Duration::from_hours(24 * 30);

fn check_generators(generators: &[&GeneratorSpec]) -> Result<(), String> {
    generators.iter().find_map(|generator| generator.fault()).map_or(Ok(()), Err)
}

fn names(pattern: &str) -> Result<Vec<String>, String> {
    expand(pattern).ok_or_else(|| format!("{pattern}: the range stands for no names, or for too many"))
}

/// Adds topics to the plan, and answers their names.
fn make_topics(specs: &BTreeMap<String, TopicSpec>, plan: &mut Plan) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for (pattern, spec) in specs {
        let (partitions, replication) = shape(pattern, spec)?;
        if !spec.partition_assignments.is_empty() {
            plan.notes
                .push(format!("spec: {pattern}: partitionAssignments: the server places replicas itself"));
        }
        let configs: Properties = spec.configs.clone().into_iter().collect();
        for name in names(pattern)? {
            let configs = configs.clone();
            plan.topics.push(TopicPlan { name: name.clone(), partitions, replication, configs });
            all.push(name);
        }
        let total: u64 = plan.topics.iter().map(|topic| u64::from(topic.partitions)).sum();
        if total > PARTITIONS_MAX {
            return Err(format!("{total} partitions are more than {PARTITIONS_MAX}"));
        }
    }
    Ok(all)
}

fn shape(pattern: &str, spec: &TopicSpec) -> Result<(u32, i16), String> {
    let (partitions, replication) = match spec.partition_assignments.values().next() {
        Some(replicas) => (spec.partition_assignments.len(), replicas.len()),
        None => (spec.num_partitions as usize, spec.replication_factor.max(0).cast_unsigned().into()),
    };
    match (u32::try_from(partitions), i16::try_from(replication)) {
        (Ok(partitions @ 1..), Ok(replication @ 1..)) => Ok((partitions, replication)),
        _ => Err(format!("{pattern}: numPartitions and replicationFactor are at least 1")),
    }
}

fn producer(active: &[String], topics: &[TopicPlan], in_turn: bool) -> ProducerPlan {
    let partitions =
        |name: &String| topics.iter().find(|topic| topic.name == *name).map(|topic| topic.partitions);
    ProducerPlan {
        topics: active.to_vec(),
        partitions_in_turn: in_turn.then(|| active.iter().filter_map(partitions).collect()),
    }
}

/// Topics without partitions, and partitions, of a list in which both may stand.
type Sources = (Vec<String>, Vec<(String, i32)>);

fn sources(patterns: &[String]) -> Result<Sources, String> {
    let (mut topics, mut partitions) = (Vec::new(), Vec::new());
    for pattern in patterns {
        for name in names(pattern)? {
            match name.split_once(':') {
                None => topics.push(name),
                Some((topic, index)) => {
                    let index = index.parse().map_err(|_| format!("{name}: the partition is no number"))?;
                    partitions.push((topic.to_owned(), index));
                }
            }
        }
    }
    match (topics.is_empty(), partitions.is_empty()) {
        (true, true) => Err("activeTopics is empty".to_owned()),
        (false, false) => Err("activeTopics holds both topics and partitions".to_owned()),
        _ => Ok((topics, partitions)),
    }
}

fn settings(common: &Common, own: &BTreeMap<String, Value>) -> Result<Properties, String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let all = common.client_conf.iter().chain(own);
    let settings: Properties = all.map(|(key, value)| (key.clone(), text(value))).collect();
    refusal(&settings).map_or(Ok(settings), Err)
}

/// Trogdor's consumers begin at the beginning unless they are told otherwise.
fn from_the_beginning(settings: &Properties) -> Properties {
    Properties::parse("auto.offset.reset=earliest").with(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRODUCE: &str = r#"// A comment at the head, as the samples have it.
{ "class": "org.apache.kafka.trogdor.workload.ProduceBenchSpec", "durationMs": 10000000,
  "producerNode": "node0", "bootstrapServers": "localhost:9092",
  "targetMessagesPerSec": 10000, "maxMessages": 50000,
  "activeTopics":   { "foo[1-3]": { "numPartitions": 10, "replicationFactor": 1 } },
  "inactiveTopics": { "foo[4-5]": { "numPartitions": 10, "replicationFactor": 1 } } }"#;

    fn plan(text: &str) -> Result<Plan, InputError> {
        Spec::parse("spec.json", text)?.to_plan("spec.json", "r1")
    }

    fn refusal(text: &str) -> String {
        plan(text).expect_err("it is refused").to_string()
    }

    #[test]
    fn a_sample_spec_is_read_as_it_is() {
        let plan = plan(PRODUCE).expect("the sample is right");
        let topics: Vec<_> = plan.topics.iter().map(|topic| topic.name.as_str()).collect();
        assert_eq!(topics, ["foo1", "foo2", "foo3", "foo4", "foo5"]);
        assert_eq!((plan.topics[0].partitions, plan.replication()), (10, 1));
        let producer = &plan.producers[0];
        assert_eq!(producer.topics, ["foo1", "foo2", "foo3"]);
        assert_eq!(producer.partitions_in_turn.as_deref(), Some([10, 10, 10].as_slice()));
        assert_eq!((plan.rate, plan.messages), (TargetRate::Fixed(10_000.0), Some(50_000)));
        assert_eq!((plan.load.value_bytes, plan.load.stamp), (512, Stamp::None));
        assert_eq!(plan.notes, ["spec: producerNode has no effect here"]);
    }

    #[test]
    fn a_transactional_spec_is_refused_with_its_reason() {
        let with = |text: &str| PRODUCE.replacen("\"maxMessages\"", &format!("{text}, \"maxMessages\""), 1);
        let generator = r#""transactionGenerator": {"type": "uniform", "messagesPerTransaction": 5}"#;
        assert!(refusal(&with(generator)).contains("transactionGenerator: transactions are not supported"));
        let setting = r#""producerConf": {"transactional.id": "t"}"#;
        assert!(refusal(&with(setting)).contains("transactional.id: transactions are not supported"));
        assert!(plan(&with(r#""transactionGenerator": null"#)).is_ok(), "null is none");
    }

    #[test]
    fn consumers_share_a_group_that_is_named_or_each_has_its_own() {
        let spec = |topics: &str, threads: u32, group: &str| {
            format!(
                r#"{{"class": "x.ConsumeBenchSpec", "durationMs": 1000, "maxMessages": 5, "targetMessagesPerSec": 100,
                "consumerConf": {{"fetch.min.bytes": 7}}, "threadsPerWorker": {threads}, "activeTopics": [{topics}],
                "consumerGroup": "{group}", "recordProcessor": {{"type": "timestamp", "histogramMaxMs": 10000}}}}"#
            )
        };
        let groups = |plan: &Plan| -> Vec<_> {
            plan.consumers.iter().map(|consumer| consumer.subscription.clone()).collect()
        };
        let shared = plan(&spec(r#""foo[1-2]""#, 2, "g")).expect("topics");
        assert_eq!(groups(&shared), ["g", "g"]);
        assert_eq!(shared.consumers[1].source, Source::Group(vec!["foo1".into(), "foo2".into()]));
        assert_eq!((shared.consumers[0].rate, shared.messages), (Some(100.0), Some(10)), "of each consumer");
        assert_eq!(shared.load.stamp, Stamp::TrogdorValue);
        let settings = &shared.load.consumer_settings;
        assert_eq!(
            (settings.get("fetch.min.bytes"), settings.get("auto.offset.reset")),
            (Some("7"), Some("earliest"))
        );
        let apart = plan(&spec(r#""foo:[0-1]""#, 2, "")).expect("partitions");
        assert_eq!(groups(&apart), ["consume-bench-r1-0", "consume-bench-r1-1"]);
        assert_eq!(apart.consumers[1].source, Source::Partitions(vec![("foo".into(), 0), ("foo".into(), 1)]));
        assert!(refusal(&spec(r#""foo:[0-1]""#, 2, "g")).contains("cannot share"));
        assert!(refusal(&spec(r#""foo:0", "bar""#, 1, "")).contains("both topics and partitions"));
    }

    #[test]
    fn a_round_trip_reads_what_it_sends() {
        let text = PRODUCE.replace("ProduceBenchSpec", "RoundTripWorkloadSpec");
        let plan = plan(&text).expect("a round trip");
        assert_eq!((plan.producers.len(), plan.consumers.len(), plan.topics.len()), (1, 1, 3));
        assert_eq!((plan.load.value_bytes, plan.load.stamp), (32, Stamp::Value));
        assert!(plan.notes.contains(&"spec: unknown key inactiveTopics is ignored".to_owned()));
    }

    #[test]
    fn what_cannot_be_run_is_refused_with_its_reason() {
        for (old, new, reason) in [
            ("ProduceBenchSpec", "ProcessStopFaultSpec", "is none of"),
            ("\"maxMessages\": 50000", "\"maxMessages\": 0, \"durationMs\": 0", "duplicate"),
            ("foo[1-3]", "foo[3-1]", "no names"),
            ("\"numPartitions\": 10", "\"numPartitions\": 0", "at least 1"),
            ("\"numPartitions\": 10", "\"numPartitions\": 4000000", "partitions are more than"),
            ("\"targetMessagesPerSec\": 10000", "\"targetMessagesPerSec\": -1", "targetMessagesPerSec is -1"),
        ] {
            let error = refusal(&PRODUCE.replacen(old, new, 1));
            assert!(error.contains(reason), "{new}: {error}");
        }
        let endless = PRODUCE.replace("10000000", "0").replace("50000", "0");
        assert!(refusal(&endless).contains("no end"));
    }
}
