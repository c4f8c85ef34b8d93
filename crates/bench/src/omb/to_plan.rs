//! Turns a workload and a driver into a plan.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use riverrun_measure::pacing::Rate;

use super::driver::Driver;
use super::workload::{KeyDistributor, Workload};
use crate::input::{InputError, read_bounded};
use crate::keys::KeyDistribution;
use crate::plan::{
    Backlog, ConsumerPlan, KeyPlan, LoadPlan, Plan, ProducerPlan, Source, Stamp, TargetRate, TopicPlan,
    ValuePlan,
};
use crate::properties::Properties;

/// Prefix of the original's topic names.
const TOPIC_PREFIX: &str = "test-topic";
/// Number of different keys if the file names none: the original's.
const KEYS: u64 = 10_000;
/// Bytes of a GiB, which the original calls GB.
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// Inputs of a plan beside the files.
#[derive(Clone, Debug, Default)]
pub struct PlanOptions {
    /// Distinguishes this run's names from those of others.
    pub run: String,
    /// Zone of the clients, for `client.id`.
    pub zone: String,
    /// Directory of the workload file; payload files are searched from here upwards.
    pub directory: Option<PathBuf>,
    /// Replicas of each partition, in place of the file's; `min.insync.replicas` is lowered to it.
    pub replication: Option<i16>,
    /// Seed of everything that is random.
    pub seed: u64,
}

/// The plan of `workload` with clients and topics set by `driver`. `file` is for errors.
pub fn to_plan(
    file: &str,
    workload: &Workload,
    driver: &Driver,
    options: &PlanOptions,
) -> Result<Plan, InputError> {
    let mut notes = [workload.notes(), driver.notes()].concat();
    let values = values(file, workload, options, &mut notes)?;
    let producer_settings = driver.producer_settings(&options.zone);
    let consumers = consumers(workload, &options.run);
    let consumer_settings = driver.consumer_settings(&options.zone);
    let load = LoadPlan {
        producer_settings,
        commits_each_poll: commits_each_poll(&consumer_settings),
        // Members join before the producers send, but get their partitions only afterwards.
        consumer_settings: Properties::parse("auto.offset.reset=earliest").with(&consumer_settings),
        keys: keys(file, workload)?,
        values,
        value_bytes: workload.message_size,
        in_flight: workload.in_flight,
        stamp: if consumers.is_empty() { Stamp::None } else { Stamp::Value },
        seed: options.seed,
    };
    let mut plan = Plan {
        name: workload.name.clone(),
        topics: topics(workload, driver, &options.run),
        producers: producers(workload, &options.run),
        consumers,
        load,
        rate: rate(workload.producer_rate),
        warmup: workload.warmup(),
        test: workload.test(),
        messages: workload.messages,
        backlog: backlog(workload),
        // The text was checked when it was read.
        durability: workload.durability.as_deref().and_then(|text| text.parse().ok()),
        disk_full: workload.disk_full(),
        shrunk: None,
        notes,
    };
    options.replication.into_iter().for_each(|replication| plan.replicate(replication));
    Ok(plan)
}

/// Consumers of the original commit after each poll unless the client does so by itself.
fn commits_each_poll(consumer_settings: &Properties) -> bool {
    consumer_settings.get("enable.auto.commit").is_some_and(|value| !value.eq_ignore_ascii_case("true"))
}

fn rate(rate: f64) -> TargetRate {
    match Rate::per_second(rate) {
        Some(rate) => TargetRate::Fixed(rate),
        None if rate < 0.0 => TargetRate::Unpaced,
        None => TargetRate::Search,
    }
}

fn topic_name(run: &str, index: u32) -> String {
    format!("{TOPIC_PREFIX}-{run}-{index:07}")
}

fn topics(workload: &Workload, driver: &Driver, run: &str) -> Vec<TopicPlan> {
    let topic = |index| TopicPlan {
        name: topic_name(run, index),
        partitions: workload.partitions_per_topic,
        replication: driver.replication_factor,
        configs: driver.topic_configs(),
    };
    (0..workload.topics).map(topic).collect()
}

fn producers(workload: &Workload, run: &str) -> Vec<ProducerPlan> {
    // Round after round over the topics, so that workers that take turns get some of each.
    let of_round = |_| {
        (0..workload.topics)
            .map(|index| ProducerPlan { topics: vec![topic_name(run, index)], partitions_in_turn: None })
    };
    (0..workload.producers_per_topic).flat_map(of_round).collect()
}

fn consumers(workload: &Workload, run: &str) -> Vec<ConsumerPlan> {
    let tailing = (0..workload.subscriptions_per_topic).map(|index| (index, false));
    let catching_up = (0..workload.catch_up_subscriptions_per_topic).map(|index| (index, true));
    let mut consumers = Vec::new();
    for (index, catch_up) in tailing.chain(catching_up) {
        let kind = if catch_up { "catch-up" } else { "sub" };
        for topic in 0..workload.topics {
            let subscription = format!("{kind}-{run}-{topic:07}-{index:03}");
            let members = workload.consumer_per_subscription.max(1);
            consumers.extend((0..members).map(|member| ConsumerPlan {
                subscription: subscription.clone(),
                source: source(workload, run, topic, member, members),
                catch_up,
                rate: None,
            }));
        }
    }
    consumers
}

fn source(workload: &Workload, run: &str, topic: u32, member: u32, members: u32) -> Source {
    let name = topic_name(run, topic);
    if !workload.without_group {
        return Source::Group(vec![name]);
    }
    let own = (member..workload.partitions_per_topic).step_by(members as usize);
    Source::Partitions(own.map(|partition| (name.clone(), Some(partition.cast_signed()))).collect())
}

fn keys(file: &str, workload: &Workload) -> Result<KeyPlan, InputError> {
    let distribution = match (&workload.keys, workload.distributor()) {
        (Some(name), _) => {
            name.parse().map_err(|error| InputError::refused(file, format!("keys: {error}")))?
        }
        (None, KeyDistributor::None) => KeyDistribution::None,
        (None, KeyDistributor::RoundRobin) => KeyDistribution::Range,
        (None, KeyDistributor::RandomNano) => KeyDistribution::Random,
    };
    Ok(KeyPlan::Distribution { distribution, range: workload.key_count.unwrap_or(KEYS) })
}

#[expect(clippy::cast_possible_truncation, reason = "a backlog beyond u64 bytes stops at its greatest value")]
fn backlog(workload: &Workload) -> Option<Backlog> {
    let bytes = (workload.consumer_backlog_size_gb * GIB) as u64;
    (bytes > 0).then(|| Backlog {
        bytes,
        drain_ratio: workload.drain_ratio(),
        read_alone: workload.read_alone,
    })
}

fn values(
    file: &str,
    workload: &Workload,
    options: &PlanOptions,
    notes: &mut Vec<String>,
) -> Result<ValuePlan, InputError> {
    let bytes = workload.message_size;
    if workload.use_randomized_payloads {
        return Ok(ValuePlan::PartlyRandom {
            bytes,
            random_ratio: workload.random_bytes_ratio,
            pool_size: workload.randomized_payload_pool_size,
        });
    }
    let Some(name) = &workload.payload_file else { return Ok(ValuePlan::Letters { bytes }) };
    let Some(path) = find_payload(name, options.directory.as_deref()) else {
        notes.push(format!("workload: payloadFile {name} is not there: messages are random letters"));
        return Ok(ValuePlan::Letters { bytes });
    };
    let payload = read_bounded(&path, bytes as u64)?;
    if payload.len() != bytes {
        let reason = format!("{} has {} bytes, not {bytes}", path.display(), payload.len());
        return Err(InputError::refused(file, reason));
    }
    Ok(ValuePlan::Fixed { base64: base64::engine::general_purpose::STANDARD.encode(payload) })
}

/// The original runs above the directory of its workloads, and its files name payloads from there.
fn find_payload(name: &str, directory: Option<&Path>) -> Option<PathBuf> {
    let above = directory.into_iter().flat_map(Path::ancestors).take(3).map(|above| above.join(name));
    std::iter::once(PathBuf::from(name)).chain(above).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKLOAD: &str =
        "name: n\ntopics: 2\npartitionsPerTopic: 5\nmessageSize: 4\nsubscriptionsPerTopic: 2
consumerPerSubscription: 3\nproducersPerTopic: 2\nproducerRate: 7\ntestDurationMinutes: 1\n";

    fn plan_of(text: &str, options: &PlanOptions) -> Result<Plan, InputError> {
        to_plan("w.yaml", &Workload::parse("w.yaml", text)?, &Driver::default(), options)
    }

    fn options() -> PlanOptions {
        PlanOptions { run: "r".to_owned(), ..PlanOptions::default() }
    }

    #[test]
    fn workload_becomes_producers_topics_and_consumers() {
        let plan = plan_of(WORKLOAD, &options()).expect("it can be run");
        assert_eq!(plan.topics.len(), 2);
        assert_eq!(plan.topics[1].name, "test-topic-r-0000001");
        let sent_to: Vec<_> = plan.producers.iter().map(|one| one.topics[0].as_str()).collect();
        assert_eq!(sent_to, ["test-topic-r-0000000", "test-topic-r-0000001"].repeat(2));
        assert_eq!((plan.consumers.len(), plan.readers(false), plan.readers(true)), (12, 2, 0));
        assert_eq!(
            (plan.rate, plan.load.stamp, plan.backlog),
            (TargetRate::Fixed(Rate::nearest(7.0)), Stamp::Value, None)
        );
        assert_eq!(plan.load.values, ValuePlan::Letters { bytes: 4 });
        assert_eq!(plan.load.consumer_settings.get("auto.offset.reset"), Some("earliest"));
    }

    #[test]
    fn consumers_without_auto_commit_commit_each_poll() {
        let workload = Workload::parse("w.yaml", WORKLOAD).expect("a workload");
        let commits = |config: &str| {
            let text = "name: d\ndriverClass: x.KafkaBenchmarkDriver\nreplicationFactor: 1\nconsumerConfig: ";
            let driver = Driver::parse("d.yaml", &format!("{text}{config}\n")).expect("a driver");
            let plan = to_plan("w.yaml", &workload, &driver, &options()).expect("it can be run");
            plan.load.commits_each_poll
        };
        assert!(commits("enable.auto.commit=false"));
        assert!(!commits("enable.auto.commit=true") && !commits("fetch.min.bytes=1"));
    }

    #[test]
    fn rate_of_zero_searches_and_negative_one_is_unpaced() {
        let with = |rate: &str| plan_of(&WORKLOAD.replace("Rate: 7", rate), &options()).unwrap().rate;
        assert_eq!((with("Rate: 0"), with("Rate: -1")), (TargetRate::Search, TargetRate::Unpaced));
    }

    #[test]
    fn members_without_a_group_share_the_partitions() {
        let plan = plan_of(&format!("{WORKLOAD}withoutGroup: true\n"), &options()).expect("it can be run");
        let mut partitions: Vec<_> = plan.consumers[..3]
            .iter()
            .flat_map(|one| match &one.source {
                Source::Partitions(own) => own.clone(),
                Source::Group(topics) => panic!("a group of {topics:?}"),
            })
            .map(|(_, partition)| partition)
            .collect();
        partitions.sort_unstable();
        assert_eq!(partitions, [0, 1, 2, 3, 4].map(Some));
    }

    #[test]
    fn keys_are_those_of_the_file() {
        let with = |text: &str| plan_of(&format!("{WORKLOAD}{text}"), &options()).map(|plan| plan.load.keys);
        let keys = |distribution, range| KeyPlan::Distribution { distribution, range };
        assert_eq!(with("").unwrap(), keys(KeyDistribution::None, KEYS));
        assert_eq!(with("keyDistributor: KEY_ROUND_ROBIN\n").unwrap(), keys(KeyDistribution::Range, KEYS));
        assert_eq!(with("keyDistributor: RANDOM_NANO\n").unwrap(), keys(KeyDistribution::Random, KEYS));
        assert_eq!(with("keys: mixed\nkeyCount: 3\n").unwrap(), keys(KeyDistribution::Mixed, 3));
        assert!(with("keys: zipf\n").is_err());
    }

    #[test]
    fn payload_file_is_found_above_and_has_the_size() {
        let root = tempfile::tempdir().expect("a directory");
        let workloads = root.path().join("workloads");
        std::fs::create_dir_all(root.path().join("payload")).expect("room");
        std::fs::create_dir_all(&workloads).expect("room");
        let text = format!("{WORKLOAD}payloadFile: payload/four.data\n");
        let options = PlanOptions { directory: Some(workloads), ..options() };
        let missing = plan_of(&text, &options).expect("random letters instead");
        assert!(missing.notes[0].contains("payload/four.data is not there"), "{:?}", missing.notes);
        std::fs::write(root.path().join("payload/four.data"), b"abcd").expect("room");
        let found = plan_of(&text, &options).expect("the file is there");
        assert_eq!(found.load.values, ValuePlan::Fixed { base64: "YWJjZA==".to_owned() });
        let error = plan_of(&text.replace("Size: 4", "Size: 5"), &options).expect_err("another size");
        assert!(error.to_string().contains("has 4 bytes, not 5"), "{error}");
    }

    #[test]
    fn backlog_is_in_gib_and_adds_catch_up_groups() {
        let text = format!("{WORKLOAD}consumerBacklogSizeGB: 0.5\ncatchUpSubscriptionsPerTopic: 1\n");
        let plan = plan_of(&text, &options()).expect("it can be run");
        assert_eq!(
            plan.backlog,
            Some(Backlog { bytes: 512 * 1024 * 1024, drain_ratio: 1.0, read_alone: false })
        );
        assert_eq!((plan.readers(false), plan.readers(true)), (2, 1));
    }
}
