//! Turns settings with Kafka's names into the client's options.
//!
//! A setting that the client lacks is no error, since files are written for other clients: it is left out and reported.
//! A value that the client refuses is an error.

use std::time::Duration;

use riverrun_client::{
    Assignor, ClientError, ClusterOptions, ConsumerOptions, GroupProtocol, OptionDef, ProducerOptions,
    RecordRef,
};

use crate::plan::{KeySource, LoadPlan};
use crate::properties::Properties;

/// Settings that name Java classes, and mean nothing to other clients.
const JAVA_ONLY: [&str; 4] = ["key.serializer", "value.serializer", "key.deserializer", "value.deserializer"];

/// `max.poll.interval.ms` if it is not set.
const POLL_INTERVAL_MAX: Duration = Duration::from_hours(24);

const PRODUCER: [&[OptionDef]; 2] = [ProducerOptions::DEFINITIONS, ClusterOptions::DEFINITIONS];
const CONSUMER: [&[OptionDef]; 2] = [ConsumerOptions::DEFINITIONS, ClusterOptions::DEFINITIONS];

/// All settings except the bootstrap addresses, which come from elsewhere, and Java classes.
fn meant(settings: &Properties) -> impl Iterator<Item = (&str, &str)> {
    settings.iter().filter(|(name, _)| *name != "bootstrap.servers" && !JAVA_ONLY.contains(name))
}

fn is_in(tables: &[&[OptionDef]], name: &str) -> bool {
    tables.iter().any(|table| table.iter().any(|one| one.name == name))
}

fn unknown(settings: &Properties, tables: &[&[OptionDef]], of: &str) -> Vec<String> {
    let names = meant(settings).map(|(name, _)| name).filter(|name| !is_in(tables, name));
    names.map(|name| format!("{of} setting {name} is not one of this client's, and has no effect")).collect()
}

/// Notes on settings that the client lacks. Fails for a value that it refuses, and for records that a producer of these
/// settings would refuse.
pub(crate) fn check(load: &LoadPlan) -> Result<Vec<String>, ClientError> {
    let options = producer(&load.producer_settings, "")?;
    options.check()?;
    check_record(load, &options)?;
    // Stands for the group's name, which the plan adds.
    ConsumerOptions { group: Some("checked".to_owned()), ..consumer(load, "")? }.check()?;
    let of_producer = unknown(&load.producer_settings, &PRODUCER, "producer");
    Ok([of_producer, unknown(&load.consumer_settings, &CONSUMER, "consumer")].concat())
}

/// Fails if a producer would refuse every record, because it is longer than its buffer or its largest request.
fn check_record(load: &LoadPlan, options: &ProducerOptions) -> Result<(), ClientError> {
    let key = KeySource::new(&load.keys, load.seed).next(0);
    let record = RecordRef { key: key.as_deref(), ..RecordRef::new("", &[]) };
    options.check_record_bytes(record.size_bound_bytes().saturating_add(load.value_bytes))
}

/// Options of a producer.
pub(super) fn producer(settings: &Properties, bootstrap: &str) -> Result<ProducerOptions, ClientError> {
    let known = meant(settings).filter(|(name, _)| is_in(&PRODUCER, name));
    let mut options = ProducerOptions::from_properties(known)?;
    options.cluster.bootstrap = ClusterOptions::new(bootstrap).bootstrap;
    Ok(options)
}

/// Options of a consumer.
pub(super) fn consumer(load: &LoadPlan, bootstrap: &str) -> Result<ConsumerOptions, ClientError> {
    let mut options = ConsumerOptions::new(ClusterOptions::new(bootstrap));
    // A consumer with a low rate polls seldom, and is to stay a member all the same.
    options.rebalance_timeout = POLL_INTERVAL_MAX;
    for (name, value) in meant(&load.consumer_settings).filter(|(name, _)| is_in(&CONSUMER, name)) {
        options.set(name, value)?;
    }
    if load.commits_each_poll {
        // Commits when the next poll begins, in the background and one commit at a time.
        (options.auto_commit, options.auto_commit_interval) = (true, Some(Duration::ZERO));
    }
    Ok(options)
}

/// Whether groups share out each topic by itself, so that the first members have some of every topic before the others
/// have any.
pub(crate) fn shares_each_topic_apart(load: &LoadPlan) -> Result<bool, ClientError> {
    let options = consumer(load, "")?;
    Ok(match options.group_protocol {
        // All members offer the same assignors, so the group uses their first choice.
        GroupProtocol::Classic => options.assignors.first() == Some(&Assignor::Range),
        GroupProtocol::Consumer => options.server_assignor.as_deref() == Some(Assignor::Range.name()),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::idle_share;
    use super::*;

    fn load(consumer_settings: &str) -> LoadPlan {
        LoadPlan { consumer_settings: Properties::parse(consumer_settings), ..idle_share().load }
    }

    #[test]
    fn unknown_settings_are_noted_and_wrong_values_refused() {
        let settings = Properties::parse(
            "acks=1\nlinger.ms=7\nsend.buffer.bytes=9\nkey.serializer=x\nbootstrap.servers=y",
        );
        let options = producer(&settings, "a:1").expect("known ones are right");
        assert_eq!(options.get("linger.ms").as_deref(), Some("7"));
        assert_eq!(options.cluster.bootstrap, ["a:1"]);
        let told = unknown(&settings, &PRODUCER, "producer");
        assert_eq!(told.len(), 1);
        assert!(told[0].starts_with("producer setting send.buffer.bytes is not"), "{told:?}");
        assert!(producer(&Properties::parse("linger.ms=soon"), "a:1").is_err());
        let read = load("fetch.min.bytes=5\nacks=1");
        let options = consumer(&read, "a:1").expect("known ones are right");
        assert_eq!((options.fetch_min_bytes, options.rebalance_timeout), (5, POLL_INTERVAL_MAX));
        let own = load("max.poll.interval.ms=700");
        assert_eq!(consumer(&own, "a:1").expect("a time").rebalance_timeout, Duration::from_millis(700));
        assert_eq!(unknown(&read.consumer_settings, &CONSUMER, "consumer").len(), 1);
    }

    #[test]
    fn oversized_records_are_refused_before_the_run() {
        let check_of = |settings: &str| {
            let producer_settings = Properties::parse(settings);
            check(&LoadPlan { value_bytes: 2000, producer_settings, ..load("") })
                .map_err(|error| error.to_string())
        };
        assert!(check_of("").is_ok());
        // A record is more than its value.
        assert!(check_of("max.request.size=2039").is_err() && check_of("max.request.size=2200").is_ok());
        assert!(check_of("acks=1\nenable.idempotence=true").is_err(), "they contradict each other");
        let late = check(&load("session.timeout.ms=1000\nheartbeat.interval.ms=3000"));
        assert!(late.is_err(), "as these do");
        for name in ["max.request.size", "buffer.memory"] {
            let refused = check_of(&format!("{name}=1999")).expect_err(name);
            assert!(refused.contains("1999") && refused.contains(name), "{refused}");
        }
    }

    #[test]
    fn each_poll_is_committed_at_any_setting() {
        let made = |commits_each_poll| {
            let load = load("enable.auto.commit=false\nauto.commit.interval.ms=9000");
            let options = consumer(&LoadPlan { commits_each_poll, ..load }, "a:1").expect("they are right");
            (options.auto_commit, options.auto_commit_interval)
        };
        assert_eq!(made(true), (true, Some(Duration::ZERO)));
        assert_eq!(made(false), (false, Some(Duration::from_secs(9))));
    }

    #[test]
    fn topics_are_shared_apart_by_range() {
        let apart = |settings| shares_each_topic_apart(&load(settings)).expect("they are right");
        assert!(apart("") && apart("group.protocol=consumer\ngroup.remote.assignor=range"));
        assert!(
            !apart("partition.assignment.strategy=roundrobin,range") && !apart("group.protocol=consumer")
        );
    }
}
