//! Names and numbers of things that nobody should be able to make: refused, with nothing half created and no file
//! outside of the data directory.

use std::collections::BTreeSet;
use std::path::Path;

use riverrun_protocol::metadata_request::MetadataRequestTopic;
use riverrun_protocol::{ErrorCode, MetadataRequest};

use crate::support::{
    Client, assert_serves, batch, create_topic, fetch_request, produce, server, server_with,
    try_create_topic, try_produce,
};

/// Every path below a directory.
fn paths(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).expect("readable") {
            let path = entry.expect("readable").path();
            found.insert(path.strip_prefix(root).expect("below").display().to_string());
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    found
}

fn topic_names(client: &mut Client) -> Vec<String> {
    let all = client.call(&MetadataRequest { topics: None, ..Default::default() }, 12);
    all.topics.iter().map(|topic| topic.name.as_deref().expect("a name").to_owned()).collect()
}

#[test]
fn clients_cannot_make_topics_with_the_servers_own_names() {
    let server = server();
    let mut client = Client::new(&server);
    for name in ["__transaction_state", "__share_group_state", "__transaction.state", "__share_group.state"] {
        let code = try_create_topic(&mut client, name, 1, 1, &[]);
        assert_eq!(code, ErrorCode::INVALID_TOPIC_EXCEPTION, "create {name:?}");
        let topic = MetadataRequestTopic { name: Some(name.into()), ..Default::default() };
        let described = client.call(&MetadataRequest { topics: Some(vec![topic]), ..Default::default() }, 9);
        let code = ErrorCode(described.topics[0].error_code);
        assert_eq!(code, ErrorCode::INVALID_TOPIC_EXCEPTION, "made by its name {name:?}");
        let refused = try_produce(&mut client, name, 0, &batch(&["x"]));
        assert_ne!(refused.error_code, 0, "produce {name:?}");
    }
    assert_eq!(topic_names(&mut client), Vec::<String>::new());
}

#[test]
fn bad_topic_names_are_refused_wherever_they_come() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let server = server_with(&[("data.dir", data.to_str().expect("text"))]);
    let mut client = Client::new(&server);
    let long = "x".repeat(250);
    let before = paths(directory.path());
    for name in ["", ".", "..", "../x", "a/b", &long, "nul\0inside", "a b", "ä", "a\\b", "/etc/passwd"] {
        let code = try_create_topic(&mut client, name, 1, 1, &[]);
        assert_eq!(code, ErrorCode::INVALID_TOPIC_EXCEPTION, "create {name:?}");
        let topic = MetadataRequestTopic { name: Some(name.into()), ..Default::default() };
        let described = client.call(&MetadataRequest { topics: Some(vec![topic]), ..Default::default() }, 9);
        let code = ErrorCode(described.topics[0].error_code);
        assert_eq!(code, ErrorCode::INVALID_TOPIC_EXCEPTION, "describe {name:?}");
        let refused = try_produce(&mut client, name, 0, &batch(&["x"]));
        assert_ne!(refused.error_code, 0, "produce {name:?}");
    }
    assert_eq!(paths(directory.path()), before, "nothing was made, inside or outside");
    assert_eq!(topic_names(&mut client), Vec::<String>::new());
    assert_eq!(try_create_topic(&mut client, &"x".repeat(249), 1, 1, &[]), ErrorCode::NONE);
    assert_serves(&server);
}

#[test]
fn names_that_differ_by_dot_and_underscore_collide_as_in_kafka() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "a.b", 1, &[]);
    assert_eq!(try_create_topic(&mut client, "a_b", 1, 1, &[]), ErrorCode::INVALID_TOPIC_EXCEPTION);
    create_topic(&mut client, "a-b", 1, &[]);
    assert_eq!(topic_names(&mut client), ["a-b", "a.b"]);
}

#[test]
fn impossible_numbers_of_partitions_and_replicas_are_refused() {
    let server = server();
    let mut client = Client::new(&server);
    for partitions in [0, -2, i32::MIN] {
        let code = try_create_topic(&mut client, "t", partitions, 1, &[]);
        assert_eq!(code, ErrorCode::INVALID_PARTITIONS, "{partitions}");
    }
    assert_ne!(try_create_topic(&mut client, "t", i32::MAX, 1, &[]), ErrorCode::NONE);
    for replicas in [0, 2, -2, i16::MAX] {
        let code = try_create_topic(&mut client, "t", 1, replicas, &[]);
        assert_eq!(code, ErrorCode::INVALID_REPLICATION_FACTOR, "{replicas}");
    }
    assert_eq!(topic_names(&mut client), Vec::<String>::new());
    // -1 leaves both to the server.
    assert_eq!(try_create_topic(&mut client, "t", -1, -1, &[]), ErrorCode::NONE);
}

#[test]
fn a_fetch_out_of_range_is_told_the_range() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    produce(&mut client, "t", 0, &batch(&["a", "b"]));
    for offset in [-5, -1, 3, i64::MAX, i64::MIN] {
        let data = crate::support::fetch(&mut client, "t", 0, offset);
        assert_eq!(ErrorCode(data.error_code), ErrorCode::OFFSET_OUT_OF_RANGE, "{offset}");
        assert_eq!((data.high_watermark, data.log_start_offset), (2, 0), "{offset}");
    }
    for partition in [-1, 1, i32::MAX, i32::MIN] {
        let data = crate::support::fetch(&mut client, "t", partition, 0);
        assert_eq!(ErrorCode(data.error_code), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "{partition}");
    }
    assert_serves(&server);
}

#[test]
fn a_fetch_as_a_replica_is_refused() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    produce(&mut client, "t", 0, &batch(&["a", "b"]));
    let mut old = fetch_request("t", 0, 1_000_000);
    old.replica_id = 1;
    let mut new = fetch_request("t", 0, 1_000_000);
    new.replica_state.replica_id = 1;
    assert_eq!(ErrorCode(client.call(&old, 12).error_code), ErrorCode::CLUSTER_AUTHORIZATION_FAILED);
    assert_eq!(ErrorCode(client.call(&new, 17).error_code), ErrorCode::CLUSTER_AUTHORIZATION_FAILED);
    let data = crate::support::fetch(&mut client, "t", 0, 0);
    assert_eq!(data.high_watermark, 2);
}

#[test]
fn sizes_and_waits_of_a_fetch_that_make_no_sense_are_harmless() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    produce(&mut client, "t", 0, &batch(&["a"]));
    for (max_bytes, partition_max_bytes, min_bytes, max_wait_ms) in [
        (i32::MAX, i32::MAX, i32::MIN, i32::MIN),
        (i32::MIN, i32::MIN, 0, -1),
        (0, 0, i32::MAX, 0),
        (-1, -1, -1, 10),
    ] {
        let mut request = fetch_request("t", 0, 0);
        (request.max_bytes, request.min_bytes, request.max_wait_ms) = (max_bytes, min_bytes, max_wait_ms);
        request.topics[0].partitions[0].partition_max_bytes = partition_max_bytes;
        let data = crate::support::only(client.call(&request, 12));
        assert_eq!(ErrorCode(data.error_code), ErrorCode::NONE);
        // The first batch comes whole at any limit, so that a consumer is never stuck.
        assert_eq!(crate::support::values(crate::support::records(&data)), ["a"]);
    }
    assert_serves(&server);
}
