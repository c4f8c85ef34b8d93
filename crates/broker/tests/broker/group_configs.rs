//! Configs that consumer groups set for themselves, as Kafka's tools change and show them.

use std::path::Path;

use riverrun_broker::Server;
use riverrun_protocol::alter_configs_request::{
    AlterConfigsResource as ReplacedResource, AlterableConfig as ReplacedConfig,
};
use riverrun_protocol::describe_configs_request::DescribeConfigsResource;
use riverrun_protocol::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use riverrun_protocol::{
    AlterConfigsRequest, ConsumerGroupHeartbeatRequest, DescribeConfigsRequest, ErrorCode,
    IncrementalAlterConfigsRequest, ListConfigResourcesRequest,
};

use crate::support::{Client, create_topic, find_coordinator, server_with};

const GROUP: i8 = 32;

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;

const SESSION: &str = "consumer.session.timeout.ms";
const HEARTBEAT: &str = "consumer.heartbeat.interval.ms";

fn start(data: &Path) -> Server {
    server_with(&[
        ("data.dir", data.to_str().expect("text")),
        ("group.consumer.heartbeat.interval.ms", "6000"),
    ])
}

/// The answer, and its text.
fn try_alter(
    client: &mut Client,
    group: &str,
    changes: &[(&str, i8, &str)],
    validate_only: bool,
) -> (ErrorCode, String) {
    let config = |(name, operation, value): &(&str, i8, &str)| AlterableConfig {
        name: (*name).to_owned().into(),
        config_operation: *operation,
        value: (*operation != DELETE).then(|| (*value).to_owned().into()),
    };
    let configs = changes.iter().map(config).collect();
    let resource = AlterConfigsResource { resource_type: GROUP, resource_name: group.into(), configs };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only };
    let answer = client.call(&request, 1).responses.remove(0);
    assert_eq!((answer.resource_type, &*answer.resource_name), (GROUP, group));
    (ErrorCode(answer.error_code), answer.error_message.unwrap_or_default().to_string())
}

fn alter(client: &mut Client, group: &str, changes: &[(&str, i8, &str)]) {
    assert_eq!(try_alter(client, group, changes, false), (ErrorCode::NONE, String::new()));
}

/// A config's values in the order in which they go before each other, each with where it comes from.
fn described(client: &mut Client, group: &str, name: &'static str) -> Vec<(String, i8)> {
    let resource = DescribeConfigsResource {
        resource_type: GROUP,
        resource_name: group.to_owned().into(),
        configuration_keys: Some(vec![name.into()]),
    };
    let request =
        DescribeConfigsRequest { resources: vec![resource], include_synonyms: true, ..Default::default() };
    let result = client.call(&request, 4).results.remove(0);
    assert_eq!((result.error_code, result.configs.len()), (0, 1));
    let entry = &result.configs[0];
    let all = entry.synonyms.iter().map(|synonym| (synonym.value.as_deref(), synonym.source));
    assert!(!entry.read_only);
    assert_eq!(all.clone().next(), Some((entry.value.as_deref(), entry.config_source)));
    all.map(|(value, source)| (value.unwrap_or_default().to_owned(), source)).collect()
}

fn configured_groups(client: &mut Client) -> Vec<String> {
    let request = ListConfigResourcesRequest { resource_types: vec![GROUP] };
    let listed = client.call(&request, 1);
    assert_eq!(listed.error_code, 0);
    listed.config_resources.iter().map(|resource| resource.resource_name.to_string()).collect()
}

/// The heartbeat interval that a member of the group is told.
fn told_interval_ms(client: &mut Client, group: &str, member_epoch: &mut i32) -> i32 {
    let is_joining = *member_epoch == 0;
    let request = ConsumerGroupHeartbeatRequest {
        group_id: group.to_owned().into(),
        member_id: "m".into(),
        member_epoch: *member_epoch,
        rebalance_timeout_ms: if is_joining { 10_000 } else { -1 },
        subscribed_topic_names: is_joining.then(|| vec!["t".into()]),
        topic_partitions: is_joining.then(Vec::new),
        ..Default::default()
    };
    let answer = client.call(&request, 1);
    assert_eq!(ErrorCode(answer.error_code), ErrorCode::NONE, "{:?}", answer.error_message);
    *member_epoch = answer.member_epoch;
    answer.heartbeat_interval_ms
}

#[test]
fn a_groups_configs_apply_and_outlive_a_restart() {
    let data = tempfile::tempdir().expect("a directory");
    let server = start(data.path());
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    find_coordinator(&mut client, "g");
    let (mut epoch, mut other_epoch) = (0, 0);
    assert_eq!(told_interval_ms(&mut client, "g", &mut epoch), 6_000);
    assert_eq!(told_interval_ms(&mut client, "other", &mut other_epoch), 6_000);
    let below = [("6000".to_owned(), 4), ("5000".to_owned(), 5)];
    assert_eq!(described(&mut client, "g", HEARTBEAT), below);

    let changes = [(HEARTBEAT, SET, "7000"), (SESSION, SET, "50000")];
    assert_eq!(try_alter(&mut client, "g", &changes, true).0, ErrorCode::NONE);
    assert_eq!(told_interval_ms(&mut client, "g", &mut epoch), 6_000, "it was only tried");
    alter(&mut client, "g", &changes);
    assert_eq!(told_interval_ms(&mut client, "g", &mut epoch), 7_000);
    assert_eq!(told_interval_ms(&mut client, "other", &mut other_epoch), 6_000);
    alter(&mut client, "not there yet", &[(SESSION, SET, "50000")]);
    server.stop().expect("a clean stop");

    let server = start(data.path());
    let mut client = Client::new(&server);
    assert_eq!(configured_groups(&mut client), ["g", "not there yet"]);
    let set = [vec![("7000".to_owned(), 8)], below.to_vec()].concat();
    assert_eq!(described(&mut client, "g", HEARTBEAT), set);
    assert_eq!(told_interval_ms(&mut client, "g", &mut epoch), 7_000);
    alter(&mut client, "g", &[(HEARTBEAT, DELETE, ""), (SESSION, DELETE, "")]);
    assert_eq!(told_interval_ms(&mut client, "g", &mut epoch), 6_000);
    assert_eq!(configured_groups(&mut client), ["not there yet"]);
}

#[test]
fn older_clients_replace_all_that_a_group_sets() {
    let data = tempfile::tempdir().expect("a directory");
    let server = start(data.path());
    let mut client = Client::new(&server);
    alter(&mut client, "g", &[(HEARTBEAT, SET, "7000")]);
    let config = ReplacedConfig { name: SESSION.into(), value: Some("50000".into()) };
    let resource =
        ReplacedResource { resource_type: GROUP, resource_name: "g".into(), configs: vec![config] };
    let request = AlterConfigsRequest { resources: vec![resource], validate_only: false };
    assert_eq!(client.call(&request, 2).responses[0].error_code, 0);
    assert_eq!(described(&mut client, "g", HEARTBEAT)[0], ("6000".to_owned(), 4));
    assert_eq!(described(&mut client, "g", SESSION)[0], ("50000".to_owned(), 8));
}

#[test]
fn configs_that_a_group_cannot_set_are_refused_by_name() {
    let data = tempfile::tempdir().expect("a directory");
    let server = start(data.path());
    let mut client = Client::new(&server);
    for (name, operation, value, part) in [
        (SESSION, SET, "44999", "group.consumer.min.session.timeout.ms"),
        (HEARTBEAT, SET, "x", HEARTBEAT),
        (HEARTBEAT, APPEND, "1", "not a list"),
        ("share.session.timeout.ms", SET, "45000", "share groups"),
        ("streams.session.timeout.ms", SET, "45000", "streams groups"),
        ("retention.ms", SET, "1", "Unknown group config name"),
    ] {
        // A valid change beside the wrong one is not made either.
        let changes = [("consumer.assignment.interval.ms", SET, "1"), (name, operation, value)];
        let (code, text) = try_alter(&mut client, "g", &changes, false);
        assert!(code == ErrorCode::INVALID_CONFIG && text.contains(part), "{name}: {code:?} {text}");
    }
    assert_eq!(try_alter(&mut client, "", &[(SESSION, SET, "50000")], false).0, ErrorCode::INVALID_REQUEST);
    assert!(configured_groups(&mut client).is_empty());
}
