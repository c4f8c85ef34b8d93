use std::net::{Ipv4Addr, SocketAddr};

use riverrun_env::sim::SimEnv;
use riverrun_protocol::create_topics_request::CreatableTopicConfig;

use super::*;
use crate::context::ConnectionInfo;
use crate::metadata::testing::image;
use crate::topic_names::OFFSETS_TOPIC;

fn context() -> RequestContext {
    let connection =
        ConnectionInfo::new(1, SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), Arc::from("PLAINTEXT"));
    RequestContext { connection: Arc::new(connection), client_id: Arc::from("") }
}

fn topic(name: &str, num_partitions: i32, replication_factor: i16) -> CreatableTopic<'_> {
    CreatableTopic { name: name.into(), num_partitions, replication_factor, ..Default::default() }
}

fn codes(config: &BrokerConfig, topics: &[CreatableTopic<'_>]) -> Vec<ErrorCode> {
    let env = SimEnv::new(1).env();
    let planned =
        distinct(topics).map(|(_, topic)| topic.and_then(|topic| plan(config, 1, &context(), topic)));
    let mut draft = Draft::new(&image(1), &*env.random);
    let outcomes = create(&mut draft, planned.collect());
    outcomes.into_iter().map(|outcome| outcome.map_or_else(|(code, _)| code, |_| ErrorCode::NONE)).collect()
}

fn code(topic: CreatableTopic<'_>) -> ErrorCode {
    codes(&BrokerConfig::default(), &[topic])[0]
}

#[test]
fn bad_names_are_refused() {
    let long = "x".repeat(250);
    for name in ["", ".", "..", "../x", "a/b", long.as_str(), "a\0b"] {
        assert_eq!(code(topic(name, 1, 1)), ErrorCode::INVALID_TOPIC_EXCEPTION, "{name:?}");
    }
}

#[test]
fn a_topic_of_the_servers_own_is_made_by_the_server_alone() {
    let config = |name: &'static str, value: &'static str| CreatableTopicConfig {
        name: name.into(),
        value: Some(value.into()),
    };
    let deletes = vec![config("cleanup.policy", "delete"), config("retention.ms", "1000")];
    for configs in [deletes, Vec::new()] {
        let wanted = CreatableTopic { configs, ..topic(OFFSETS_TOPIC, 1, 1) };
        let (code, message) = plan(&BrokerConfig::default(), 1, &context(), &wanted).expect_err("refused");
        assert_eq!(code, ErrorCode::INVALID_TOPIC_EXCEPTION);
        assert!(message.contains("the server's own"), "{message}");
    }
    let like_it = ["__consumer.offsets", "..consumer_offsets", "__transaction.state", "__share.group_state"];
    for name in like_it.into_iter().chain(["__transaction_state", "__share_group_state"]) {
        assert_eq!(code(topic(name, 1, 1)), ErrorCode::INVALID_TOPIC_EXCEPTION, "{name}");
    }
}

#[test]
fn impossible_numbers_are_refused() {
    for partitions in [0, -2, i32::MIN, i32::MAX] {
        assert_eq!(code(topic("t", partitions, 1)), ErrorCode::INVALID_PARTITIONS, "{partitions}");
    }
    for replicas in [0, -2, 2, i16::MAX, i16::MIN] {
        assert_eq!(code(topic("t", 1, replicas)), ErrorCode::INVALID_REPLICATION_FACTOR, "{replicas}");
    }
}

#[test]
fn minus_one_leaves_the_numbers_to_the_server() {
    let config = BrokerConfig::from_pairs([("num.partitions", "9")]).expect("valid");
    let new = plan(&config, 1, &context(), &topic("t", -1, -1)).expect("valid");
    assert_eq!(new.partition_count, 9);
}

#[test]
fn topics_of_one_request_see_each_other() {
    let topics = [
        topic("a.b", 1, 1),
        topic("a_b", 1, 1),
        topic("twice", 1, 1),
        topic("twice", 1, 1),
        topic("c", 1, 1),
    ];
    let expected =
        [ErrorCode::NONE, ErrorCode::INVALID_TOPIC_EXCEPTION, ErrorCode::INVALID_REQUEST, ErrorCode::NONE];
    assert_eq!(codes(&BrokerConfig::default(), &topics), expected);
}

#[test]
fn manual_assignments_name_this_node_and_every_partition() {
    let assigned = |partitions: &[(i32, &[i32])], count| CreatableTopic {
        assignments: partitions
            .iter()
            .map(|(index, brokers)| CreatableReplicaAssignment {
                partition_index: *index,
                broker_ids: brokers.to_vec(),
            })
            .collect(),
        ..topic("t", count, -1)
    };
    let planned = plan(&BrokerConfig::default(), 1, &context(), &assigned(&[(1, &[1]), (0, &[1])], -1));
    assert_eq!(planned.expect("valid").partition_count, 2);
    assert_eq!(code(assigned(&[(0, &[1])], 1)), ErrorCode::INVALID_REQUEST);
    let bad: [&[(i32, &[i32])]; 5] =
        [&[(0, &[2])], &[(0, &[])], &[(0, &[1, 1])], &[(1, &[1])], &[(0, &[1]), (0, &[1])]];
    for partitions in bad {
        assert_eq!(code(assigned(partitions, -1)), ErrorCode::INVALID_REPLICA_ASSIGNMENT, "{partitions:?}");
    }
}

#[test]
fn configs_that_cannot_be_honoured_are_refused() {
    let with = |name: &'static str, value: Option<&'static str>| CreatableTopic {
        configs: vec![CreatableTopicConfig { name: name.into(), value: value.map(Into::into) }],
        ..topic("t", 1, 1)
    };
    assert_eq!(code(with("retention.ms", Some("5"))), ErrorCode::NONE);
    for (name, value) in [
        ("retention.ms", None),
        ("retention.ms", Some("x")),
        ("nonsense", Some("1")),
        ("durability", Some("5")),
        ("remote.storage.enable", Some("true")),
    ] {
        assert_eq!(code(with(name, value)), ErrorCode::INVALID_CONFIG, "{name}={value:?}");
    }
}
