//! Every request that is advertised, in every version that is advertised: a valid one is answered without an
//! error, one about things that do not exist with the right error, and both answers decode.
//!
//! Guards against responses that set a field that an old version lacks: those cannot be encoded, and the
//! connection would be closed instead.

mod group_requests;
mod topic_requests;

use riverrun_broker::Server;
use riverrun_protocol::create_acls_request::AclCreation;
use riverrun_protocol::delete_acls_request::DeleteAclsFilter;
use riverrun_protocol::{ApiKey, ApiVersionsRequest, DescribeClusterRequest, ErrorCode, ListGroupsRequest};
use riverrun_protocol::{
    CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest, GetTelemetrySubscriptionsRequest,
    ListConfigResourcesRequest,
};
use riverrun_types::TopicId;
use tempfile::TempDir;

use crate::support::{Client, batch, create_topic, find_coordinator, produce, server, server_with, topic_id};

/// A server with a topic of two partitions, records in the first of them, and groups. It leads them in epoch 1.
struct World {
    _data: TempDir,
    server: Server,
    client: Client,
    topic_id: TopicId,
}

const TOPIC: &str = "things";
const RECORDS: i64 = 3;
const NOWHERE: &str = "nowhere";
const NO_ID: TopicId = TopicId([7; 16]);

impl World {
    fn new() -> Self {
        let data = tempfile::tempdir().expect("a directory");
        let path = data.path().to_str().expect("text");
        let start = || server_with(&[("auto.create.topics.enable", "false"), ("data.dir", path)]);
        let server = start();
        create_topic(&mut Client::new(&server), TOPIC, 2, &[]);
        server.stop().expect("a clean stop");
        let server = start();
        let mut client = Client::new(&server);
        let topic_id = topic_id(&mut client, TOPIC);
        produce(&mut client, TOPIC, 0, &batch(&["a", "b", "c"]));
        find_coordinator(&mut client, "g");
        Self { _data: data, server, client, topic_id }
    }
}

/// Every key and version that the server advertises.
fn advertised(client: &mut Client) -> Vec<(ApiKey, i16)> {
    let request =
        ApiVersionsRequest { client_software_name: "test".into(), client_software_version: "1".into() };
    let ranges = client.call(&request, 4).api_keys;
    assert!(ranges.len() > 30, "{ranges:?}");
    let versions = |range: riverrun_protocol::api_versions_response::ApiVersion| {
        let key = ApiKey::from_i16(range.api_key).expect("a key that we know ourselves");
        (range.min_version..=range.max_version).map(move |version| (key, version))
    };
    ranges.into_iter().flat_map(versions).collect()
}

#[track_caller]
fn assert_code(code: i16, wanted: ErrorCode) {
    assert_eq!(ErrorCode(code), wanted);
}

#[track_caller]
fn assert_ok(code: i16) {
    assert_code(code, ErrorCode::NONE);
}

#[test]
fn every_advertised_version_of_every_request_is_answered() {
    let mut world = World::new();
    for (key, version) in advertised(&mut world.client) {
        // Advertised for old clients that look for it, and not served, as in Kafka (KIP-896).
        if key == ApiKey::Produce && version < 3 {
            continue;
        }
        eprintln!("{key} {version}");
        check(&mut world, key, version);
    }
    world.server.stop().expect("a clean stop");
}

fn check(world: &mut World, key: ApiKey, version: i16) {
    use {group_requests as groups, topic_requests as topics};
    match key {
        ApiKey::Produce => topics::produce(world, version),
        ApiKey::Fetch => topics::fetch(world, version),
        ApiKey::ListOffsets => topics::list_offsets(world, version),
        ApiKey::Metadata => topics::metadata(world, version),
        ApiKey::CreateTopics => topics::create_topics(world, version),
        ApiKey::DeleteTopics => topics::delete_topics(world, version),
        ApiKey::CreatePartitions => topics::create_partitions(world, version),
        ApiKey::DeleteRecords => topics::delete_records(world, version),
        ApiKey::OffsetForLeaderEpoch => topics::offset_for_leader_epoch(world, version),
        ApiKey::DescribeConfigs => topics::describe_configs(world, version),
        ApiKey::AlterConfigs => topics::alter_configs(world, version),
        ApiKey::IncrementalAlterConfigs => topics::incremental_alter_configs(world, version),
        ApiKey::DescribeLogDirs => topics::describe_log_dirs(world, version),
        ApiKey::DescribeProducers => topics::describe_producers(world, version),
        ApiKey::DescribeTopicPartitions => topics::describe_topic_partitions(world, version),
        ApiKey::ElectLeaders => topics::elect_leaders(world, version),
        ApiKey::InitProducerId => topics::init_producer_id(world, version),
        ApiKey::FindCoordinator => groups::find_coordinator(world, version),
        ApiKey::JoinGroup => groups::join(world, version),
        ApiKey::SyncGroup => groups::sync(world, version),
        ApiKey::Heartbeat => groups::heartbeat(world, version),
        ApiKey::LeaveGroup => groups::leave(world, version),
        ApiKey::OffsetCommit => groups::offset_commit(world, version),
        ApiKey::OffsetFetch => groups::offset_fetch(world, version),
        ApiKey::OffsetDelete => groups::offset_delete(world, version),
        ApiKey::DescribeGroups => groups::describe(world, version),
        ApiKey::DeleteGroups => groups::delete(world, version),
        ApiKey::ConsumerGroupHeartbeat => groups::consumer_heartbeat(world, version),
        ApiKey::ConsumerGroupDescribe => groups::consumer_describe(world, version),
        ApiKey::ListGroups => list_groups(world, version),
        ApiKey::ApiVersions => api_versions(world, version),
        ApiKey::DescribeCluster => describe_cluster(world, version),
        ApiKey::GetTelemetrySubscriptions => telemetry(world, version),
        ApiKey::ListConfigResources => list_config_resources(world, version),
        ApiKey::DescribeAcls => describe_acls(world, version),
        ApiKey::CreateAcls => create_acls(world, version),
        ApiKey::DeleteAcls => delete_acls(world, version),
        ApiKey::PushTelemetry => panic!("{key} is advertised and has no test"),
    }
}

fn list_groups(world: &mut World, version: i16) {
    let mut request = ListGroupsRequest::default();
    assert_ok(world.client.call(&request, version).error_code);
    if version >= 4 {
        request.states_filter = vec!["Stable".into()];
    }
    if version >= 5 {
        request.types_filter = vec!["consumer".into()];
    }
    assert_ok(world.client.call(&request, version).error_code);
}

fn api_versions(world: &mut World, version: i16) {
    let mut request = ApiVersionsRequest::default();
    if version >= 3 {
        assert_code(world.client.call(&request, version).error_code, ErrorCode::INVALID_REQUEST);
        request.client_software_name = "test".into();
        request.client_software_version = "1.0".into();
    }
    let response = world.client.call(&request, version);
    assert_ok(response.error_code);
    assert!(response.api_keys.iter().any(|range| range.api_key == 18 && range.max_version >= version));
}

fn describe_cluster(world: &mut World, version: i16) {
    let mut request =
        DescribeClusterRequest { include_cluster_authorized_operations: true, ..Default::default() };
    let response = world.client.call(&request, version);
    assert_ok(response.error_code);
    assert_eq!(response.brokers.len(), 1);
    if version >= 1 {
        request.endpoint_type = 2;
        let refused = world.client.call(&request, version);
        assert_code(refused.error_code, ErrorCode::MISMATCHED_ENDPOINT_TYPE);
    }
}

fn telemetry(world: &mut World, version: i16) {
    let response = world.client.call(&GetTelemetrySubscriptionsRequest::default(), version);
    assert_ok(response.error_code);
    assert_ne!(response.client_instance_id, TopicId::ZERO);
    assert!(response.requested_metrics.is_empty());
}

fn list_config_resources(world: &mut World, version: i16) {
    let told = |world: &mut World, resource_types: &[i8]| {
        let request = ListConfigResourcesRequest { resource_types: resource_types.to_vec() };
        let response = world.client.call(&request, version);
        let told = response.config_resources.into_iter();
        (
            response.error_code,
            told.map(|told| (told.resource_type, told.resource_name.into_owned())).collect::<Vec<_>>(),
        )
    };
    if version == 0 {
        assert_eq!(told(world, &[]), (0, Vec::new()), "client metrics, of which there are none");
        return;
    }
    let broker = (4, "1".to_owned());
    let (code, all) = told(world, &[]);
    assert_ok(code);
    assert!(all.contains(&broker) && all.contains(&(2, TOPIC.to_owned())), "{all:?}");
    assert_eq!(told(world, &[4, 4, 8, 16, 32]), (0, vec![broker]));
    assert_code(told(world, &[4, 3]).0, ErrorCode::UNSUPPORTED_VERSION);
}

fn describe_acls(world: &mut World, version: i16) {
    let any = DescribeAclsRequest {
        resource_type_filter: 1,
        operation: 1,
        permission_type: 1,
        ..Default::default()
    };
    assert_code(world.client.call(&any, version).error_code, ErrorCode::SECURITY_DISABLED);
}

fn create_acls(world: &mut World, version: i16) {
    let request = CreateAclsRequest { creations: vec![AclCreation::default(); 2] };
    let codes: Vec<i16> =
        world.client.call(&request, version).results.iter().map(|result| result.error_code).collect();
    assert_eq!(codes, [ErrorCode::SECURITY_DISABLED.0; 2]);
}

fn delete_acls(world: &mut World, version: i16) {
    let request = DeleteAclsRequest { filters: vec![DeleteAclsFilter::default(); 2] };
    let codes: Vec<i16> =
        world.client.call(&request, version).filter_results.iter().map(|result| result.error_code).collect();
    assert_eq!(codes, [ErrorCode::SECURITY_DISABLED.0; 2]);
}

#[test]
fn a_version_that_is_not_advertised_closes_the_connection() {
    let server = server();
    let mut client = Client::new(&server);
    let keys: Vec<(ApiKey, i16)> = advertised(&mut client);
    let newest =
        |key: ApiKey| keys.iter().filter(|(other, _)| *other == key).map(|(_, version)| *version).max();
    for key in ApiKey::ALL.iter().copied().filter(|key| *key != ApiKey::ApiVersions) {
        for version in [newest(key).map_or(0, |version| version + 1), -1, i16::MAX] {
            let mut rude = Client::new(&server);
            let header = [key as i16, version, 0, 1, -1];
            let frame: Vec<u8> = header.iter().flat_map(|field| field.to_be_bytes()).collect();
            rude.write(&crate::support::framed(&[frame, vec![0; 64]].concat()));
            rude.expect_closed(&format!("{key} {version}"));
        }
    }
    crate::support::assert_serves(&server);
}

#[test]
fn produce_below_3_is_advertised_and_closes_the_connection() {
    let server = server();
    let oldest = advertised(&mut Client::new(&server)).into_iter().find(|(key, _)| *key == ApiKey::Produce);
    assert_eq!(oldest, Some((ApiKey::Produce, 0)));
    let mut client = Client::new(&server);
    // Key 0, version 2, correlation 1, no client id; acks 1, a time-out, no topics.
    client
        .write(&crate::support::framed(&[0, 0, 0, 2, 0, 0, 0, 1, 0xff, 0xff, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0]));
    client.expect_closed("Produce 2");
}

#[test]
fn an_unknown_version_of_api_versions_is_answered_in_version_0() {
    let server = server();
    // A client id, tagged fields if the version has them, and a body that nobody knows.
    let rests: [&[u8]; 2] = [&[0xff, 0xff, 0], &[0, 1, b'c', 0, 3, b'x', b'y', 9, 9, 9]];
    for (version, rest) in
        [5, 6, 100, i16::MAX, -1, i16::MIN].iter().flat_map(|version| rests.map(|rest| (*version, rest)))
    {
        let mut client = Client::new(&server);
        let header = [&18_i16.to_be_bytes()[..], &i16::to_be_bytes(version), &7_i32.to_be_bytes(), rest];
        client.write(&crate::support::framed(&header.concat()));
        let (id, response) = client.receive::<ApiVersionsRequest<'_>>(0);
        assert_eq!(id, 7);
        assert_code(response.error_code, ErrorCode::UNSUPPORTED_VERSION);
        assert_eq!(response.api_keys.len(), 1);
        let range = &response.api_keys[0];
        assert_eq!((range.api_key, range.min_version, range.max_version), (18, 0, 4));
        // The same connection goes on with a version that both know.
        assert_ok(client.call(&ApiVersionsRequest::default(), 0).error_code);
    }
}
