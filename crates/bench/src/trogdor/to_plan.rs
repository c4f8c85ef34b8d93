//! Turns a spec into a plan.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use riverrun_measure::pacing::Rate;

use super::generator::GeneratorSpec;
use super::spec::{Common, ConsumeBench, ProduceBench, RecordProcessor, RoundTrip, Spec, TopicSpec};
use super::topics::expand;
use crate::input::InputError;
use crate::plan::{
    ConsumerPlan, KeyPlan, LoadPlan, PLACES_MAX, Plan, ProducerPlan, Source, Stamp, TargetRate, TopicPlan,
    UNTIL_DONE, ValuePlan,
};
use crate::properties::Properties;
use crate::unsupported::{NO_TRANSACTIONS, refusal};

/// Most partitions of one spec.
const PARTITIONS_MAX: u64 = 1_000_000;
/// Most consumers of one spec.
const CONSUMERS_MAX: u32 = 10_000;
/// Replicas if a spec names no number: the original's.
const REPLICATION: i16 = 3;

impl Spec {
    /// The plan of the spec. `file` is for errors; `run` distinguishes this run's names from those of others.
    pub fn to_plan(&self, file: &str, run: &str) -> Result<Plan, InputError> {
        let refused = |reason: String| InputError::refused(file, reason);
        let mut plan = match self {
            Self::Produce(spec) => produce(spec),
            Self::Consume(spec) => consume(spec, run),
            Self::RoundTrip(spec) => round_trip(spec, run),
        }
        .map_err(refused)?;
        let common = self.common();
        let rate = common.target_messages_per_sec;
        if Rate::per_second(rate).is_none() && !(rate.is_finite() && rate <= 0.0) {
            let least = Rate::MIN;
            return Err(refused(format!(
                "targetMessagesPerSec is {rate}, and neither a number of at least {least} nor 0"
            )));
        }
        if let (Some(of_original), true) = (self.without_a_rate(), rate <= 0.0) {
            plan.notes.push(format!(
                "spec: targetMessagesPerSec {rate} means as fast as possible here, where the original {of_original}"
            ));
        }
        if common.duration_ms == 0 && common.max_messages == 0 {
            return Err(refused("neither durationMs nor maxMessages: the run would have no end".to_owned()));
        }
        file.clone_into(&mut plan.name);
        plan.notes.extend(common.notes());
        Ok(plan)
    }
}

impl Spec {
    /// The original's behaviour without a rate, if it differs from ours.
    fn without_a_rate(&self) -> Option<&'static str> {
        match self {
            Self::Produce(_) => Some("sends 10 records a second"),
            Self::RoundTrip(_) => Some("refuses it"),
            Self::Consume(_) => None,
        }
    }
}

fn produce(spec: &ProduceBench) -> Result<Plan, String> {
    if spec.transaction_generator.as_ref().is_some_and(|generator| !generator.is_null()) {
        return Err(format!("transactionGenerator: {NO_TRANSACTIONS}"));
    }
    let (keys, values) = (spec.keys(), spec.values());
    check_generators(&[&keys, &values])?;
    let mut plan = empty(&spec.common);
    let active = make_topics(&spec.active_topics, &mut plan)?;
    if active.is_empty() {
        return Err(NO_TOPICS.to_owned());
    }
    make_topics(&spec.inactive_topics, &mut plan)?;
    plan.producers = vec![producer(&active, &plan.topics, !spec.use_configured_partitioner)];
    plan.load.producer_settings = settings(&spec.common, &spec.producer_conf)?;
    plan.load.keys = KeyPlan::Generator(keys);
    plan.load.value_bytes = values.bytes();
    plan.load.values = ValuePlan::Generator(values);
    Ok(plan)
}

/// The reason for refusing a spec that names no topics.
const NO_TOPICS: &str = "activeTopics is missing, or empty";

/// Rate and number of records count for each consumer, as in the original; without a group name each consumer has its
/// own group.
fn consume(spec: &ConsumeBench, run: &str) -> Result<Plan, String> {
    let count = spec.threads_per_worker.max(1);
    if count > CONSUMERS_MAX {
        return Err(format!("threadsPerWorker {count} is more than {CONSUMERS_MAX}"));
    }
    let mut plan = empty(&spec.common);
    let source = source(&spec.active_topics)?;
    let named = !spec.consumer_group.is_empty();
    if matches!(source, Source::Partitions(_)) && named && count > 1 {
        return Err("threadsPerWorker with partitions in activeTopics: a group cannot share them".to_owned());
    }
    let places = source.places();
    if places.saturating_mul(count.into()) > PLACES_MAX {
        let reason = format!("each: more than {PLACES_MAX} in all");
        return Err(format!("threadsPerWorker {count} with {places} of activeTopics {reason}"));
    }
    let consumer = |index: u32| ConsumerPlan {
        subscription: if named {
            spec.consumer_group.clone()
        } else {
            format!("consume-bench-{run}-{index}")
        },
        source: source.clone(),
        catch_up: false,
        rate: rate(&spec.common),
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
    let values = spec.values();
    check_generators(&[&values])?;
    if spec.common.max_messages == 0 {
        return Err("maxMessages is missing, or 0".to_owned());
    }
    let mut plan = empty(&spec.common);
    let active = make_topics(&spec.active_topics, &mut plan)?;
    if active.is_empty() {
        return Err(NO_TOPICS.to_owned());
    }
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
    plan.load.value_bytes = values.bytes();
    plan.load.values = ValuePlan::Generator(values);
    plan.load.stamp = Stamp::Value;
    Ok(plan)
}

/// The rate of a spec; `None` for as fast as possible.
fn rate(common: &Common) -> Option<Rate> {
    Rate::per_second(common.target_messages_per_sec)
}

/// The common part of all plans of specs: no warm-up, one rate, an end.
fn empty(common: &Common) -> Plan {
    Plan {
        name: String::new(),
        topics: Vec::new(),
        producers: Vec::new(),
        consumers: Vec::new(),
        load: LoadPlan {
            producer_settings: Properties::default(),
            consumer_settings: Properties::default(),
            commits_each_poll: false,
            keys: KeyPlan::NONE,
            values: ValuePlan::Letters { bytes: 1 },
            value_bytes: 1,
            in_flight: None,
            stamp: Stamp::None,
            seed: 0,
        },
        rate: rate(common).map_or(TargetRate::Unpaced, TargetRate::Fixed),
        warmup: Duration::ZERO,
        test: if common.duration_ms == 0 { UNTIL_DONE } else { Duration::from_millis(common.duration_ms) },
        messages: (common.max_messages > 0).then_some(common.max_messages),
        backlog: None,
        disk_full: None,
        durability: None,
        shrunk: None,
        notes: Vec::new(),
    }
}

fn check_generators(generators: &[&GeneratorSpec]) -> Result<(), String> {
    generators.iter().find_map(|generator| generator.fault()).map_or(Ok(()), Err)
}

fn names(pattern: &str) -> Result<Vec<String>, String> {
    expand(pattern).ok_or_else(|| format!("{pattern}: the range stands for no names, or for too many"))
}

/// Adds topics to the plan, and returns their names. Of two specs for one name the later one wins, as in the original.
fn make_topics(specs: &BTreeMap<String, TopicSpec>, plan: &mut Plan) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    let mut known: HashMap<_, _> =
        plan.topics.iter().enumerate().map(|(at, topic)| (topic.name.clone(), at)).collect();
    let mut active = HashSet::new();
    for (pattern, spec) in specs {
        let (partitions, replication) = shape(pattern, spec)?;
        if !spec.partition_assignments.is_empty() {
            plan.notes
                .push(format!("spec: {pattern}: partitionAssignments: the server places replicas itself"));
        }
        let configs: Properties = spec.configs.clone().into_iter().collect();
        for name in names(pattern)? {
            let topic = TopicPlan { name: name.clone(), partitions, replication, configs: configs.clone() };
            if let Some(at) = known.get(&name) {
                plan.topics[*at] = topic;
            } else {
                known.insert(name.clone(), plan.topics.len());
                plan.topics.push(topic);
            }
            if active.insert(name.clone()) {
                all.push(name);
            }
        }
        let total: u64 = plan.topics.iter().map(|topic| u64::from(topic.partitions)).sum();
        if total > PARTITIONS_MAX {
            return Err(format!("{total} partitions are more than {PARTITIONS_MAX}"));
        }
    }
    Ok(all)
}

/// The number of partitions, and of replicas of each.
fn shape(pattern: &str, spec: &TopicSpec) -> Result<(u32, i16), String> {
    let assignments = &spec.partition_assignments;
    let Some(first) = assignments.values().next() else {
        let replication = if spec.replication_factor > 0 { spec.replication_factor } else { REPLICATION };
        return Ok((spec.num_partitions.max(1), replication));
    };
    if !(0..).zip(assignments.keys()).all(|(expected, partition)| expected == *partition) {
        return Err(format!("{pattern}: partitionAssignments: partitions are 0, 1, 2 and so on"));
    }
    let replication = first.len();
    if replication == 0 || assignments.values().any(|replicas| replicas.len() != replication) {
        let reason = "every partition has as many replicas as the others, and at least one";
        return Err(format!("{pattern}: partitionAssignments: {reason}"));
    }
    let partitions = u32::try_from(assignments.len()).unwrap_or(u32::MAX);
    i16::try_from(replication)
        .map(|replication| (partitions, replication))
        .map_err(|_| format!("{pattern}: {replication} replicas"))
}

fn producer(active: &[String], topics: &[TopicPlan], in_turn: bool) -> ProducerPlan {
    let partitions: HashMap<_, _> =
        topics.iter().map(|topic| (topic.name.as_str(), topic.partitions)).collect();
    let of_active = || active.iter().filter_map(|name| partitions.get(name.as_str()).copied());
    ProducerPlan { topics: active.to_vec(), partitions_in_turn: in_turn.then(|| of_active().collect()) }
}

/// The topics or partitions that consumers read. If the list names partitions, consumers without a group read all of
/// those named, and every partition of the topics named whole.
fn source(patterns: &[String]) -> Result<Source, String> {
    let (mut found, mut count) = (BTreeMap::<String, Vec<i32>>::new(), 0);
    for pattern in patterns {
        for name in names(pattern)? {
            let (topic, partition) = match name.split_once(':') {
                None => (name.as_str(), None),
                Some((topic, index)) => {
                    let index = index.parse::<i32>().ok().filter(|index| *index >= 0);
                    let wrong = || format!("activeTopics: {name}: the partition is no number");
                    (topic, Some(index.ok_or_else(wrong)?))
                }
            };
            if topic.is_empty() {
                return Err(format!("activeTopics: {name:?} names no topic"));
            }
            found.entry(topic.to_owned()).or_default().extend(partition);
            count += 1;
        }
        if count > PARTITIONS_MAX {
            return Err(format!("activeTopics: {count} names are more than {PARTITIONS_MAX}"));
        }
    }
    if found.is_empty() {
        return Err(NO_TOPICS.to_owned());
    }
    if found.values().all(Vec::is_empty) {
        return Ok(Source::Group(found.into_keys().collect()));
    }
    let of_topic = |(topic, mut partitions): (String, Vec<i32>)| {
        partitions.sort_unstable();
        partitions.dedup();
        let all = partitions.is_empty().then_some(None);
        let places: Vec<_> = partitions.into_iter().map(Some).chain(all).collect();
        places.into_iter().map(move |partition| (topic.clone(), partition))
    };
    Ok(Source::Partitions(found.into_iter().flat_map(of_topic).collect()))
}

fn settings(common: &Common, own: &BTreeMap<String, String>) -> Result<Properties, String> {
    let properties = |own: &BTreeMap<String, String>| {
        let all = common.client_conf.iter().chain(own);
        all.map(|(key, value)| (key.clone(), value.clone())).collect::<Properties>()
    };
    let settings = properties(own);
    refusal(&settings).or_else(|| refusal(&properties(&common.admin_conf))).map_or(Ok(settings), Err)
}

/// Trogdor's consumers begin at the beginning by default.
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
    fn sample_spec_is_read() {
        let plan = plan(PRODUCE).expect("the sample is right");
        let topics: Vec<_> = plan.topics.iter().map(|topic| topic.name.as_str()).collect();
        assert_eq!(topics, ["foo1", "foo2", "foo3", "foo4", "foo5"]);
        assert_eq!((plan.topics[0].partitions, plan.replication()), (10, 1));
        let producer = &plan.producers[0];
        assert_eq!(producer.topics, ["foo1", "foo2", "foo3"]);
        assert_eq!(producer.partitions_in_turn.as_deref(), Some([10, 10, 10].as_slice()));
        assert_eq!((plan.rate, plan.messages), (TargetRate::Fixed(Rate::nearest(10_000.0)), Some(50_000)));
        assert_eq!((plan.load.value_bytes, plan.load.stamp), (512, Stamp::None));
        assert_eq!(plan.notes, ["spec: producerNode has no effect here"]);
    }

    #[test]
    fn transactional_spec_is_refused_with_its_reason() {
        let with = |text: &str| PRODUCE.replacen("\"maxMessages\"", &format!("{text}, \"maxMessages\""), 1);
        let generator = r#""transactionGenerator": {"type": "uniform", "messagesPerTransaction": 5}"#;
        assert!(refusal(&with(generator)).contains("transactionGenerator: transactions are not supported"));
        let setting = r#""producerConf": {"transactional.id": "t"}"#;
        assert!(refusal(&with(setting)).contains("transactional.id: transactions are not supported"));
        assert!(plan(&with(r#""transactionGenerator": null"#)).is_ok(), "null is none");
    }

    #[test]
    fn consumers_share_a_named_group_or_have_their_own() {
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
        assert_eq!(
            (shared.consumers[0].rate, shared.messages),
            (Rate::per_second(100.0), Some(10)),
            "of each consumer"
        );
        assert_eq!(shared.load.stamp, Stamp::TrogdorValue);
        let settings = &shared.load.consumer_settings;
        assert_eq!(
            (settings.get("fetch.min.bytes"), settings.get("auto.offset.reset")),
            (Some("7"), Some("earliest"))
        );
        let apart = plan(&spec(r#""foo:[0-1]""#, 2, "")).expect("partitions");
        assert_eq!(groups(&apart), ["consume-bench-r1-0", "consume-bench-r1-1"]);
        let partitions = |all: &[(&str, Option<i32>)]| {
            Source::Partitions(all.iter().map(|(topic, index)| ((*topic).to_owned(), *index)).collect())
        };
        assert_eq!(apart.consumers[1].source, partitions(&[("foo", Some(0)), ("foo", Some(1))]));
        assert!(refusal(&spec(r#""foo:[0-1]""#, 2, "g")).contains("cannot share"));
        let mixed = plan(&spec(r#""foo[1-2]:[3-4]", "bar", "foo1:0", "foo2:4", "baz", "baz:1""#, 0, ""));
        let (mixed, expected) = (mixed.expect("both"), [3, 4].map(|index| ("foo2", Some(index))));
        let expected = [
            &[("bar", None), ("baz", Some(1)), ("foo1", Some(0)), ("foo1", Some(3)), ("foo1", Some(4))],
            expected.as_slice(),
        ];
        assert_eq!(mixed.consumers.len(), 1, "0 threads are one");
        assert_eq!(
            mixed.consumers[0].source,
            partitions(&expected.concat()),
            "all of a topic where none is named"
        );
        assert!(refusal(&spec(r#""foo:x""#, 1, "")).contains("foo:x: the partition is no number"));
        assert!(refusal(&spec(r#"":1""#, 1, "")).contains("names no topic"));
        assert!(refusal(&spec("", 1, "")).contains("activeTopics is missing, or empty"));
    }

    #[test]
    fn partitions_of_all_consumers_are_bounded() {
        let spec = |threads: u32, topics: &str| {
            format!(
                r#"{{"class": "x.ConsumeBenchSpec", "durationMs": 1000, "threadsPerWorker": {threads}, "activeTopics": ["{topics}"]}}"#
            )
        };
        for topics in ["foo[1-1001]", "foo:[0-1000]"] {
            let reason = refusal(&spec(1000, topics));
            assert!(reason.contains("threadsPerWorker 1000 with 1001 of activeTopics each"), "{reason}");
            assert_eq!(plan(&spec(999, topics)).expect("fewer").consumers.len(), 999);
        }
    }

    #[test]
    fn mistyped_keys_and_a_future_start_are_noted() {
        let text = PRODUCE.replace("\"numPartitions\": 10, \"rep", "\"numPartition\": 10, \"rep");
        let of_parts = plan(&text).expect("a spec").notes;
        assert!(
            of_parts.contains(&"spec: unknown key activeTopics.foo[1-3].numPartition is ignored".to_owned())
        );
        let starting = |at: &str| {
            let text = PRODUCE.replacen("\"maxMessages\"", &format!("\"startMs\": {at}, \"maxMessages\""), 1);
            plan(&text).expect("a spec").notes.contains(&"spec: startMs has no effect here".to_owned())
        };
        assert_eq!(["0", "null", "1700000000000"].map(starting), [false, false, true]);
    }

    #[test]
    fn null_counts_as_absent() {
        let common = r#""startMs": null, "adminClientConf": null, "commonClientConf": null, "targetMessagesPerSec": 5"#;
        let of_topic = r#"{"numPartitions": null, "replicationFactor": null, "partitionAssignments": null, "configs": null}"#;
        let produce = format!(
            r#"{{"class": "x.ProduceBenchSpec", {common}, "durationMs": null, "maxMessages": "7", "producerNode": null,
            "bootstrapServers": null, "keyGenerator": null, "valueGenerator": null, "transactionGenerator": null,
            "producerConf": null, "inactiveTopics": null, "useConfiguredPartitioner": null, "skipFlush": null,
            "activeTopics": {{"foo": {of_topic}}}}}"#
        );
        let produced = plan(&produce).expect("a spec");
        let sequence = GeneratorSpec::Sequential { size: 4, offset: 0 };
        assert_eq!((produced.messages, produced.load.value_bytes), (Some(7), 512));
        assert_eq!(produced.load.keys, KeyPlan::Generator(sequence));
        let topic = &produced.topics[0];
        assert_eq!((topic.partitions, topic.replication), (1, REPLICATION), "as the original makes them");
        assert_eq!(produced.producers[0].partitions_in_turn.as_deref(), Some([1].as_slice()));
        let consume = format!(
            r#"{{"class": "x.ConsumeBenchSpec", {common}, "durationMs": 9, "maxMessages": null, "consumerNode": null,
            "consumerGroup": null, "consumerConf": null, "threadsPerWorker": null, "recordProcessor": null,
            "activeTopics": "foo"}}"#
        );
        let consumed = plan(&consume).expect("a spec");
        assert_eq!((consumed.messages, consumed.consumers.len()), (None, 1));
        assert_eq!(consumed.consumers[0].source, Source::Group(vec!["foo".into()]));
        let round_trip = produce.replace("ProduceBench", "RoundTripWorkload");
        assert_eq!(plan(&round_trip).expect("a spec").load.value_bytes, 32);
    }

    #[test]
    fn configs_and_assignments_are_read_as_by_the_original() {
        let topics = r#"{"foo[1-2]": {"partitionAssignments": {"0": [1, 2], "1": [2, 1]}},
            "bar": {"numPartitions": 4, "replicationFactor": 1, "configs": {"retention.ms": 5000, "preallocate": true, "x": null}}}"#;
        let spec = |topics: &str| {
            PRODUCE.replace(r#"{ "foo[1-3]": { "numPartitions": 10, "replicationFactor": 1 } }"#, topics)
        };
        let made = plan(&spec(topics)).expect("a spec");
        let shapes: Vec<_> = made.topics[..3]
            .iter()
            .map(|topic| (topic.name.as_str(), topic.partitions, topic.replication))
            .collect();
        assert_eq!(shapes, [("bar", 4, 1), ("foo1", 2, 2), ("foo2", 2, 2)]);
        let configs: Vec<_> = made.topics[0].configs.iter().collect();
        assert_eq!(configs, [("preallocate", "true"), ("retention.ms", "5000")]);
        let both =
            r#"{"foo4": {"numPartitions": 3, "replicationFactor": 1}, "foo[4-5]": {"numPartitions": 2}}"#;
        let made = plan(&spec(both)).expect("a spec");
        let names: Vec<_> = made.topics.iter().map(|topic| topic.name.as_str()).collect();
        assert_eq!((names, made.producers[0].topics.len()), (vec!["foo4", "foo5"], 2), "each is made once");
        for (wrong, reason) in [
            (r#"{"a": {"partitionAssignments": {"1": [1]}}}"#, "partitions are 0, 1, 2"),
            (r#"{"a": {"partitionAssignments": {"0": [1], "1": [1, 2]}}}"#, "as many replicas"),
            (r#"{"a": {"partitionAssignments": {"0": null}}}"#, "at least one"),
            (r#"{"a": {"configs": {"retention.ms": [1]}}}"#, "retention.ms: its value is a text"),
            ("{}", "activeTopics is missing, or empty"),
        ] {
            assert!(refusal(&spec(wrong)).contains(reason), "{wrong}: {}", refusal(&spec(wrong)));
        }
    }

    #[test]
    fn spec_without_a_rate_is_unpaced_and_notes_it() {
        let without = plan(&PRODUCE.replace(": 10000,", ": -1,")).expect("a spec");
        assert_eq!(without.rate, TargetRate::Unpaced);
        assert!(
            without.notes.iter().any(|note| note.contains("sends 10 records a second")),
            "{:?}",
            without.notes
        );
    }

    #[test]
    fn settings_of_the_admin_client_are_refused_too() {
        let text = PRODUCE.replacen(
            "\"maxMessages\"",
            r#""adminClientConf": {"security.protocol": "SSL"}, "maxMessages""#,
            1,
        );
        assert!(refusal(&text).contains("security.protocol"));
        let text =
            PRODUCE.replacen("\"maxMessages\"", r#""adminClientConf": {"retries": 3}, "maxMessages""#, 1);
        assert!(
            plan(&text)
                .expect("a spec")
                .notes
                .contains(&"spec: adminClientConf has no effect here".to_owned())
        );
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
    fn impossible_spec_is_refused_with_its_reason() {
        for (old, new, reason) in [
            ("ProduceBenchSpec", "ProcessStopFaultSpec", "is none of"),
            ("\"maxMessages\": 50000", "\"maxMessages\": 0, \"durationMs\": 0", "duplicate"),
            ("foo[1-3]", "foo[3-1]", "no names"),
            ("\"numPartitions\": 10", "\"numPartitions\": []", "[] is no whole number"),
            ("\"numPartitions\": 10", "\"numPartitions\": 4000000", "partitions are more than"),
            ("\"targetMessagesPerSec\": 10000", "\"targetMessagesPerSec\": true", "true is no number"),
            (
                "\"targetMessagesPerSec\": 10000",
                "\"targetMessagesPerSec\": 1e-300",
                "a number of at least 0.000001",
            ),
        ] {
            let error = refusal(&PRODUCE.replacen(old, new, 1));
            assert!(error.contains(reason), "{new}: {error}");
        }
        let endless = PRODUCE.replace("10000000", "0").replace("50000", "0");
        assert!(refusal(&endless).contains("no end"));
    }
}
