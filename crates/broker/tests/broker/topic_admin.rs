//! Requests about topics and configuration, over real sockets, in every version that is advertised.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use riverrun_broker::Server;
use riverrun_protocol::alter_configs_request::{
    AlterConfigsResource as ReplacedResource, AlterableConfig as ReplacedConfig,
};
use riverrun_protocol::create_partitions_request::CreatePartitionsTopic;
use riverrun_protocol::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use riverrun_protocol::delete_topics_request::DeleteTopicState;
use riverrun_protocol::describe_configs_request::DescribeConfigsResource;
use riverrun_protocol::describe_topic_partitions_request::{Cursor, TopicRequest};
use riverrun_protocol::elect_leaders_request::TopicPartitions;
use riverrun_protocol::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use riverrun_protocol::metadata_request::MetadataRequestTopic;
use riverrun_protocol::{
    AlterConfigsRequest, ApiKey, CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest,
    DescribeClusterRequest, DescribeConfigsRequest, DescribeLogDirsRequest, DescribeTopicPartitionsRequest,
    ElectLeadersRequest, ErrorCode, FindCoordinatorRequest, GetTelemetrySubscriptionsRequest,
    IncrementalAlterConfigsRequest, InitProducerIdRequest, MetadataRequest, Request,
};
use riverrun_types::TopicId;

use crate::support::Client;

/// Sends a request and looks at its response.
trait Look {
    fn look<'q, R: Request<'q>, T>(
        &mut self,
        request: &R,
        version: i16,
        look: impl FnOnce(R::Response<'static>) -> T,
    ) -> T;
}

impl Look for Client {
    fn look<'q, R: Request<'q>, T>(
        &mut self,
        request: &R,
        version: i16,
        look: impl FnOnce(R::Response<'static>) -> T,
    ) -> T {
        look(self.call(request, version))
    }
}

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

fn server() -> (Server, Client) {
    let server = Server::builder().start().expect("starts");
    let wire = Client::connect(server.bootstrap());
    (server, wire)
}

#[test]
fn a_built_server_has_a_rebalance_delay_only_if_it_is_set() {
    let delay = "group.initial.rebalance.delay.ms";
    let told = Server::builder().set(delay, "700").expect("an option");
    for (builder, value) in [(Server::builder(), "0"), (told, "700")] {
        let server = builder.start().expect("starts");
        let resource = DescribeConfigsResource {
            resource_type: BROKER,
            resource_name: "1".into(),
            configuration_keys: Some(vec![delay.into()]),
        };
        let request = DescribeConfigsRequest { resources: vec![resource], ..Default::default() };
        let found = Client::connect(server.bootstrap()).call(&request, 4).results.remove(0).configs.remove(0);
        assert_eq!(found.value.as_deref(), Some(value));
    }
}

fn newest(key: ApiKey) -> i16 {
    *key.versions().end()
}

fn new_topic(name: &str, num_partitions: i32) -> CreatableTopic<'_> {
    CreatableTopic { name: name.into(), num_partitions, replication_factor: 1, ..Default::default() }
}

/// Makes topics and answers their codes.
fn create(
    wire: &mut Client,
    version: i16,
    topics: Vec<CreatableTopic<'_>>,
    validate_only: bool,
) -> Vec<ErrorCode> {
    let request = CreateTopicsRequest { topics, validate_only, ..Default::default() };
    wire.look(&request, version, |response| {
        response.topics.iter().map(|topic| ErrorCode(topic.error_code)).collect()
    })
}

fn create_one(wire: &mut Client, name: &str, partitions: i32) {
    let codes = create(wire, newest(ApiKey::CreateTopics), vec![new_topic(name, partitions)], false);
    assert_eq!(codes, [ErrorCode::NONE], "{name}");
}

/// Code, id and number of partitions of the topics that a metadata request answers.
type Described = Vec<(Option<String>, ErrorCode, TopicId, usize)>;

fn metadata(
    wire: &mut Client,
    version: i16,
    topics: Option<Vec<MetadataRequestTopic<'_>>>,
    create: bool,
) -> Described {
    let request = MetadataRequest { topics, allow_auto_topic_creation: create, ..Default::default() };
    wire.look(&request, version, |response| {
        assert_eq!(response.brokers.len(), 1);
        let described = response.topics.iter().map(|topic| {
            let name = topic.name.as_deref().map(str::to_owned);
            (name, ErrorCode(topic.error_code), topic.topic_id, topic.partitions.len())
        });
        described.collect()
    })
}

fn named(name: &str) -> MetadataRequestTopic<'_> {
    MetadataRequestTopic { name: Some(name.into()), ..Default::default() }
}

fn by_id(topic_id: TopicId) -> MetadataRequestTopic<'static> {
    MetadataRequestTopic { topic_id, name: None }
}

/// The partitions of a topic that exists, without making it.
fn partitions(wire: &mut Client, name: &str) -> Option<usize> {
    let described = metadata(wire, newest(ApiKey::Metadata), Some(vec![named(name)]), false);
    (described[0].1 == ErrorCode::NONE).then_some(described[0].3)
}

#[test]
fn topics_are_created_grown_and_deleted_in_every_version() {
    let (server, mut wire) = server();
    for version in ApiKey::CreateTopics.versions() {
        let name = format!("topic-{version}");
        assert_eq!(create(&mut wire, version, vec![new_topic(&name, 2)], false), [ErrorCode::NONE]);
        assert_eq!(
            create(&mut wire, version, vec![new_topic(&name, 2)], false),
            [ErrorCode::TOPIC_ALREADY_EXISTS]
        );
        assert_eq!(partitions(&mut wire, &name), Some(2));
    }
    for version in ApiKey::CreatePartitions.versions() {
        let topic = CreatePartitionsTopic {
            name: "topic-2".into(),
            count: 3 + i32::from(version),
            assignments: None,
        };
        let request = CreatePartitionsRequest { topics: vec![topic], ..Default::default() };
        let codes: Vec<_> = (0..2)
            .map(|_| wire.look(&request, version, |response| ErrorCode(response.results[0].error_code)))
            .collect();
        assert_eq!(codes, [ErrorCode::NONE, ErrorCode::INVALID_PARTITIONS], "version {version}");
    }
    for version in ApiKey::DeleteTopics.versions() {
        let name = format!("delete-{version}");
        create_one(&mut wire, &name, 1);
        let request = if version < 6 {
            DeleteTopicsRequest { topic_names: vec![name.as_str().into()], ..Default::default() }
        } else {
            let state = DeleteTopicState { name: Some(name.as_str().into()), topic_id: TopicId::ZERO };
            DeleteTopicsRequest { topics: vec![state], ..Default::default() }
        };
        let codes: Vec<_> = (0..2)
            .map(|_| wire.look(&request, version, |response| ErrorCode(response.responses[0].error_code)))
            .collect();
        assert_eq!(codes, [ErrorCode::NONE, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION], "version {version}");
        assert_eq!(partitions(&mut wire, &name), None);
    }
    server.stop().expect("stops");
}

#[test]
fn a_topic_is_deleted_by_id_and_made_again_as_another() {
    let (_server, mut wire) = server();
    let delete = |wire: &mut Client, name: Option<&'static str>, topic_id| {
        let state = DeleteTopicState { name: name.map(Into::into), topic_id };
        let request = DeleteTopicsRequest { topics: vec![state], ..Default::default() };
        wire.look(&request, 6, |response| ErrorCode(response.responses[0].error_code))
    };
    create_one(&mut wire, "again", 1);
    let first = metadata(&mut wire, 12, Some(vec![named("again")]), false)[0].2;
    assert_eq!(delete(&mut wire, Some("again"), first), ErrorCode::INVALID_REQUEST);
    assert_eq!(delete(&mut wire, None, TopicId::ZERO), ErrorCode::INVALID_REQUEST);
    assert_eq!(delete(&mut wire, None, TopicId([7; 16])), ErrorCode::UNKNOWN_TOPIC_ID);
    assert_eq!(delete(&mut wire, None, first), ErrorCode::NONE);
    create_one(&mut wire, "again", 1);
    let second = metadata(&mut wire, 12, Some(vec![named("again"), by_id(first)]), false);
    assert_ne!(second[0].2, first);
    assert_eq!(second[1].1, ErrorCode::UNKNOWN_TOPIC_ID);
}

#[test]
fn a_refused_creation_leaves_nothing_behind() {
    let (_server, mut wire) = server();
    let version = newest(ApiKey::CreateTopics);
    let long = "x".repeat(250);
    let names = ["", ".", "..", "../x", "a/b", long.as_str(), "a\0b"];
    let topics = names.iter().map(|name| new_topic(name, 1)).collect();
    assert_eq!(
        create(&mut wire, version, topics, false),
        vec![ErrorCode::INVALID_TOPIC_EXCEPTION; names.len()]
    );
    for count in [0, -2, i32::MAX] {
        assert_eq!(
            create(&mut wire, version, vec![new_topic("t", count)], false),
            [ErrorCode::INVALID_PARTITIONS]
        );
    }
    for replication_factor in [0, 2, -2] {
        let topic = CreatableTopic { replication_factor, ..new_topic("t", 1) };
        assert_eq!(create(&mut wire, version, vec![topic], false), [ErrorCode::INVALID_REPLICATION_FACTOR]);
    }
    assert_eq!(create(&mut wire, version, vec![new_topic("t", 3)], true), [ErrorCode::NONE]);
    let all = metadata(&mut wire, newest(ApiKey::Metadata), None, false);
    assert_eq!(all, [], "nothing was made");
}

#[test]
fn metadata_answers_in_every_version() {
    let (_server, mut wire) = server();
    create_one(&mut wire, "there", 3);
    for version in ApiKey::Metadata.versions() {
        // Version 3 and older have no flag: a client that asks makes the topic.
        let may_create = version < 4;
        let described = metadata(&mut wire, version, Some(vec![named("there"), named("there")]), may_create);
        assert_eq!(described.len(), 1, "version {version}");
        assert_eq!((described[0].1, described[0].3), (ErrorCode::NONE, 3), "version {version}");
        let none = metadata(&mut wire, version, Some(Vec::new()), may_create);
        assert_eq!(
            none.len(),
            usize::from(version == 0),
            "version {version}: empty means all in version 0 only"
        );
    }
    let all = metadata(&mut wire, 12, None, false);
    assert_eq!((all.len(), all[0].2.is_zero()), (1, false));
    let found = metadata(&mut wire, 12, Some(vec![by_id(all[0].2), by_id(TopicId([1; 16]))]), true);
    assert_eq!(found[0].0.as_deref(), Some("there"));
    assert_eq!((found[1].0.as_deref(), found[1].1), (None, ErrorCode::UNKNOWN_TOPIC_ID));
}

#[test]
fn a_missing_topic_is_made_only_where_both_sides_allow_it() {
    let (_server, mut wire) = server();
    let ask =
        |wire: &mut Client, name, create| metadata(wire, 12, Some(vec![named(name)]), create)[0].clone();
    assert_eq!(ask(&mut wire, "new", false).1, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    let (_, code, id, count) = ask(&mut wire, "new", true);
    assert_eq!((code, id.is_zero(), count), (ErrorCode::NONE, false, 1));
    assert_eq!(ask(&mut wire, "a/b", true).1, ErrorCode::INVALID_TOPIC_EXCEPTION);

    let builder = Server::builder().set("auto.create.topics.enable", "false").expect("an option");
    let strict = builder.start().expect("starts");
    let mut wire = Client::connect(strict.bootstrap());
    assert_eq!(ask(&mut wire, "new", true).1, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
}

/// The value and source of a topic's config.
fn config(wire: &mut Client, topic: &str, name: &str) -> (String, i8) {
    let resource = DescribeConfigsResource {
        resource_type: TOPIC,
        resource_name: topic.into(),
        configuration_keys: Some(vec![name.into()]),
    };
    let request = DescribeConfigsRequest { resources: vec![resource], ..Default::default() };
    wire.look(&request, newest(ApiKey::DescribeConfigs), |response| {
        let configs = &response.results[0].configs;
        assert_eq!(configs.len(), 1, "{name}");
        (configs[0].value.as_deref().unwrap_or_default().to_owned(), configs[0].config_source)
    })
}

fn alter(
    wire: &mut Client,
    resource_type: i8,
    resource: &str,
    operation: i8,
    name: &str,
    value: &str,
) -> ErrorCode {
    let config =
        AlterableConfig { name: name.into(), config_operation: operation, value: Some(value.into()) };
    let resource =
        AlterConfigsResource { resource_type, resource_name: resource.into(), configs: vec![config] };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    wire.look(&request, 1, |response| ErrorCode(response.responses[0].error_code))
}

#[test]
fn topic_configs_change_and_survive_a_restart() {
    let data = tempfile::tempdir().expect("a directory");
    let start = || Server::builder().data_dir(data.path()).expect("a path").start().expect("starts");
    let server = start();
    let mut wire = Client::connect(server.bootstrap());
    create_one(&mut wire, "t", 1);
    assert_eq!(config(&mut wire, "t", "retention.ms"), ("604800000".into(), 5));
    assert_eq!(alter(&mut wire, TOPIC, "t", 0, "retention.ms", "1000"), ErrorCode::NONE);
    assert_eq!(alter(&mut wire, TOPIC, "t", 2, "cleanup.policy", "compact"), ErrorCode::NONE);
    for (name, value) in
        [("retention.ms", "soon"), ("nonsense", "1"), ("durability", "5"), ("min.insync.replicas", "2")]
    {
        assert_eq!(alter(&mut wire, TOPIC, "t", 0, name, value), ErrorCode::INVALID_CONFIG, "{name}={value}");
    }
    assert_eq!(alter(&mut wire, TOPIC, "u", 0, "retention.ms", "1"), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(alter(&mut wire, BROKER, "1", 0, "log.cleaner.threads", "2"), ErrorCode::INVALID_REQUEST);
    server.stop().expect("stops");

    let server = start();
    let mut wire = Client::connect(server.bootstrap());
    assert_eq!(config(&mut wire, "t", "retention.ms"), ("1000".into(), 1));
    assert_eq!(config(&mut wire, "t", "cleanup.policy"), ("delete,compact".into(), 1));
    // The older request replaces everything: what it leaves out goes back to the default.
    let entry = ReplacedConfig { name: "segment.ms".into(), value: Some("5000".into()) };
    let resource = ReplacedResource { resource_type: TOPIC, resource_name: "t".into(), configs: vec![entry] };
    let request = AlterConfigsRequest { resources: vec![resource], validate_only: false };
    for version in ApiKey::AlterConfigs.versions() {
        let code = wire.look(&request, version, |response| ErrorCode(response.responses[0].error_code));
        assert_eq!(code, ErrorCode::NONE, "version {version}");
    }
    assert_eq!(config(&mut wire, "t", "segment.ms"), ("5000".into(), 1));
    assert_eq!(config(&mut wire, "t", "retention.ms"), ("604800000".into(), 5));
}

#[test]
fn only_a_resource_named_twice_is_refused_both_times() {
    let (_server, mut wire) = server();
    for name in ["a", "b"] {
        create_one(&mut wire, name, 1);
    }
    let names = ["a", "b", "a"];
    let expected = ["a", "b", "a"].map(|name| {
        let code = if name == "a" { ErrorCode::INVALID_REQUEST } else { ErrorCode::NONE };
        (name.to_owned(), code)
    });
    let single = |name: &'static str| {
        let config =
            AlterableConfig { name: "segment.ms".into(), value: Some("5000".into()), ..Default::default() };
        AlterConfigsResource { resource_type: TOPIC, resource_name: name.into(), configs: vec![config] }
    };
    let request =
        IncrementalAlterConfigsRequest { resources: names.map(single).into(), validate_only: false };
    let answers = wire.look(&request, 1, |response| {
        let answers = response.responses.iter();
        answers
            .map(|answer| (answer.resource_name.to_string(), ErrorCode(answer.error_code)))
            .collect::<Vec<_>>()
    });
    assert_eq!(answers, expected);
    let all = |name: &'static str| {
        let config = ReplacedConfig { name: "segment.ms".into(), value: Some("6000".into()) };
        ReplacedResource { resource_type: TOPIC, resource_name: name.into(), configs: vec![config] }
    };
    let request = AlterConfigsRequest { resources: names.map(all).into(), validate_only: false };
    let answers = wire.look(&request, 2, |response| {
        let answers = response.responses.iter();
        answers
            .map(|answer| (answer.resource_name.to_string(), ErrorCode(answer.error_code)))
            .collect::<Vec<_>>()
    });
    assert_eq!(answers, expected);
    assert_eq!(config(&mut wire, "a", "segment.ms").1, 5, "untouched");
    assert_eq!(config(&mut wire, "b", "segment.ms"), ("6000".into(), 1));
}

#[test]
fn configs_given_at_creation_are_checked_and_kept() {
    let (_server, mut wire) = server();
    let with = |name: &'static str, value: &'static str| CreatableTopic {
        configs: vec![CreatableTopicConfig { name: name.into(), value: Some(value.into()) }],
        ..new_topic("t", 1)
    };
    let version = newest(ApiKey::CreateTopics);
    assert_eq!(
        create(&mut wire, version, vec![with("cleanup.polcy", "compact")], false),
        [ErrorCode::INVALID_CONFIG]
    );
    assert_eq!(create(&mut wire, version, vec![with("cleanup.policy", "compact")], false), [ErrorCode::NONE]);
    assert_eq!(config(&mut wire, "t", "cleanup.policy"), ("compact".into(), 1));
}

#[test]
fn the_servers_options_are_described_in_every_version() {
    let (_server, mut wire) = server();
    for version in ApiKey::DescribeConfigs.versions() {
        let resource = DescribeConfigsResource {
            resource_type: BROKER,
            resource_name: "1".into(),
            configuration_keys: None,
        };
        let request = DescribeConfigsRequest {
            resources: vec![resource],
            include_synonyms: true,
            include_documentation: version >= 3,
        };
        wire.look(&request, version, |response| {
            let result = &response.results[0];
            assert_eq!(ErrorCode(result.error_code), ErrorCode::NONE);
            let data = result.configs.iter().find(|config| config.name == "data.dir").expect("an option");
            assert_eq!((data.config_source, data.read_only, data.synonyms.len()), (4, true, 2));
            let documentation = data.documentation.as_deref().unwrap_or_default();
            assert_eq!(!documentation.is_empty(), version >= 3);
        });
    }
}

#[test]
fn topic_partitions_come_in_pages() {
    let (_server, mut wire) = server();
    for (name, count) in [("a", 3), ("b", 1), ("c", 4)] {
        create_one(&mut wire, name, count);
    }
    let mut cursor = None;
    let mut pages = Vec::new();
    loop {
        let request =
            DescribeTopicPartitionsRequest { response_partition_limit: 2, cursor, ..Default::default() };
        let next = wire.look(&request, 0, |response| {
            let page: Vec<_> = response
                .topics
                .iter()
                .flat_map(|topic| topic.partitions.iter().map(|partition| partition.partition_index))
                .collect();
            pages.push(page);
            response.next_cursor.map(|next| (next.topic_name.into_owned(), next.partition_index))
        });
        let Some((name, partition_index)) = next else { break };
        cursor = Some(Cursor { topic_name: name.into(), partition_index });
    }
    assert_eq!(pages, [vec![0, 1], vec![2, 0], vec![0, 1], vec![2, 3]]);
    let topics = vec![TopicRequest { name: "gone".into() }, TopicRequest { name: "b".into() }];
    let request = DescribeTopicPartitionsRequest { topics, ..Default::default() };
    let found = wire.look(&request, 0, |response| {
        let topics = response.topics.iter();
        topics.map(|topic| (topic.partitions.len(), ErrorCode(topic.error_code))).collect::<Vec<_>>()
    });
    assert_eq!(found, [(1, ErrorCode::NONE), (0, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)]);
}

#[test]
fn the_cluster_and_its_log_dirs_are_described_in_every_version() {
    let (server, mut wire) = server();
    create_one(&mut wire, "t", 2);
    for version in ApiKey::DescribeCluster.versions() {
        wire.look(&DescribeClusterRequest::default(), version, |response| {
            assert_eq!(ErrorCode(response.error_code), ErrorCode::NONE);
            let address = format!("{}:{}", response.brokers[0].host, response.brokers[0].port);
            assert_eq!((address.as_str(), response.cluster_id.len()), (server.bootstrap(), 22));
        });
    }
    let controllers = DescribeClusterRequest { endpoint_type: 2, ..Default::default() };
    let refused =
        wire.look(&controllers, 1, |response| (ErrorCode(response.error_code), response.endpoint_type));
    assert_eq!(refused, (ErrorCode::MISMATCHED_ENDPOINT_TYPE, 1));
    for version in ApiKey::DescribeLogDirs.versions() {
        wire.look(&DescribeLogDirsRequest { topics: None }, version, |response| {
            assert_eq!(response.results.len(), 1);
            let topics = &response.results[0].topics;
            assert_eq!((topics[0].name.as_ref(), topics[0].partitions.len()), ("t", 2));
        });
    }
}

#[test]
fn there_is_never_a_leader_to_elect() {
    let (_server, mut wire) = server();
    create_one(&mut wire, "t", 1);
    for version in ApiKey::ElectLeaders.versions() {
        let named = TopicPartitions { topic: "t".into(), partitions: vec![0, 1] };
        let request = ElectLeadersRequest { topic_partitions: Some(vec![named]), ..Default::default() };
        let codes = wire.look(&request, version, |response| {
            let results = response.replica_election_results[0].partition_result.iter();
            results.map(|result| ErrorCode(result.error_code)).collect::<Vec<_>>()
        });
        assert_eq!(codes, [ErrorCode::ELECTION_NOT_NEEDED, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION]);
        let all = ElectLeadersRequest { topic_partitions: None, ..Default::default() };
        assert!(wire.look(&all, version, |response| response.replica_election_results.is_empty()));
    }
    let unknown = ElectLeadersRequest { election_type: 5, ..Default::default() };
    let code = wire.look(&unknown, 2, |response| ErrorCode(response.error_code));
    assert_eq!(code, ErrorCode::INVALID_REQUEST);
}

#[test]
fn a_group_finds_this_node_and_the_offsets_topic_is_made() {
    let (server, mut wire) = server();
    assert_eq!(partitions(&mut wire, "__consumer_offsets"), None);
    for version in ApiKey::FindCoordinator.versions() {
        let request = match version {
            ..4 => FindCoordinatorRequest { key: "g".into(), ..Default::default() },
            _ => FindCoordinatorRequest {
                coordinator_keys: vec!["g".into(), "h".into()],
                ..Default::default()
            },
        };
        let found = wire.look(&request, version, |response| match response.coordinators.as_slice() {
            [] => vec![(response.error_code, format!("{}:{}", response.host, response.port))],
            many => many.iter().map(|one| (one.error_code, format!("{}:{}", one.host, one.port))).collect(),
        });
        assert_eq!(found.len(), if version < 4 { 1 } else { 2 });
        for (code, address) in found {
            assert_eq!((ErrorCode(code), address.as_str()), (ErrorCode::NONE, server.bootstrap()));
        }
    }
    assert_eq!(partitions(&mut wire, "__consumer_offsets"), Some(50));
    let state = DeleteTopicState { name: Some("__consumer_offsets".into()), topic_id: TopicId::ZERO };
    let request = DeleteTopicsRequest { topics: vec![state], ..Default::default() };
    let code = wire.look(&request, 6, |response| ErrorCode(response.responses[0].error_code));
    assert_eq!(code, ErrorCode::INVALID_TOPIC_EXCEPTION);
}

#[test]
fn producer_ids_are_distinct_and_transactions_are_refused() {
    let (_server, mut wire) = server();
    let idempotent = InitProducerIdRequest { transactional_id: None, ..Default::default() };
    let mut ids = Vec::new();
    for version in ApiKey::InitProducerId.versions() {
        ids.push(wire.look(&idempotent, version, |response| {
            assert_eq!((ErrorCode(response.error_code), response.producer_epoch), (ErrorCode::NONE, 0));
            response.producer_id
        }));
    }
    let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len());
    let transactional = InitProducerIdRequest { transactional_id: Some("t".into()), ..Default::default() };
    let code = wire.look(&transactional, 4, |response| ErrorCode(response.error_code));
    assert_eq!(code, ErrorCode::UNSUPPORTED_VERSION);
    let coordinator =
        FindCoordinatorRequest { key_type: 1, coordinator_keys: vec!["t".into()], ..Default::default() };
    let message = wire.look(&coordinator, 6, |response| {
        response.coordinators[0].error_message.as_deref().unwrap_or_default().to_owned()
    });
    assert!(message.contains("not supported"), "{message}");
}

#[test]
fn telemetry_is_declined_without_an_error() {
    let (_server, mut wire) = server();
    wire.look(&GetTelemetrySubscriptionsRequest::default(), 0, |response| {
        assert_eq!(ErrorCode(response.error_code), ErrorCode::NONE);
        assert!(response.requested_metrics.is_empty() && !response.client_instance_id.is_zero());
    });
}

#[test]
fn ten_thousand_partitions_are_made_fast() {
    let (_server, mut wire) = server();
    let started = Instant::now();
    create_one(&mut wire, "wide", 5000);
    let names: Vec<String> = (0..5000).map(|index| format!("t{index}")).collect();
    let topics = names.iter().map(|name| new_topic(name, 1)).collect();
    let codes = create(&mut wire, newest(ApiKey::CreateTopics), topics, false);
    assert_eq!(codes, vec![ErrorCode::NONE; 5000]);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[test]
fn the_versions_advertised_are_those_tested_here() {
    let expected: [(ApiKey, RangeInclusive<i16>); 5] = [
        (ApiKey::Metadata, 0..=13),
        (ApiKey::CreateTopics, 2..=7),
        (ApiKey::DeleteTopics, 1..=6),
        (ApiKey::FindCoordinator, 0..=6),
        (ApiKey::InitProducerId, 0..=5),
    ];
    for (key, versions) in expected {
        assert_eq!(key.versions(), versions, "{key}");
    }
}

#[test]
fn files_of_a_deleted_topic_are_gone_with_the_answer() {
    let data = tempfile::tempdir().expect("a directory");
    let server = Server::builder().data_dir(data.path()).expect("a path").start().expect("starts");
    let mut wire = Client::connect(server.bootstrap());
    create_one(&mut wire, "t", 2);
    // At an async level the records are in segments at once.
    assert_eq!(alter(&mut wire, TOPIC, "t", 0, "durability", "4"), ErrorCode::NONE);
    let id = metadata(&mut wire, 12, Some(vec![named("t")]), false)[0].2;
    crate::support::produce(&mut wire, "t", 0, &crate::support::batch(&["one"]));
    let hex = id.0.map(|byte| format!("{byte:02x}")).concat();
    let uuid = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
    let files = data.path().join("logs").join(uuid);
    assert!(files.exists(), "the topic has records");
    let state = DeleteTopicState { name: None, topic_id: id };
    let request = DeleteTopicsRequest { topics: vec![state], ..Default::default() };
    let code = wire.look(&request, 6, |response| ErrorCode(response.responses[0].error_code));
    assert_eq!((code, files.exists()), (ErrorCode::NONE, false));
}
