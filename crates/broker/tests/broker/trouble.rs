//! Data that is damaged: everything else goes on, and health names the damage.

use std::fs;
use std::path::{Path, PathBuf};

use riverrun_protocol::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use riverrun_protocol::offset_fetch_request::OffsetFetchRequestGroup;
use riverrun_protocol::{ErrorCode, ListGroupsRequest, OffsetCommitRequest, OffsetFetchRequest};

use crate::admin_port::get;
use crate::support::{Client, create_topic, find_coordinator, server_with};

/// Java's hashes of "a" and "b" are 97 and 98: of two partitions, they are in the second and the first.
const GROUP_OF_SHARD_1: &str = "a";
const GROUP_OF_SHARD_0: &str = "b";

fn commit(client: &mut Client, group: &'static str) {
    find_coordinator(client, group);
    let partition = OffsetCommitRequestPartition { committed_offset: 1, ..Default::default() };
    let topics = vec![OffsetCommitRequestTopic {
        name: "t".into(),
        partitions: vec![partition],
        ..Default::default()
    }];
    let request = OffsetCommitRequest { group_id: group.into(), topics, ..Default::default() };
    assert_eq!(client.call(&request, 9).topics[0].partitions[0].error_code, 0);
}

fn fetch_error(client: &mut Client, group: &'static str) -> ErrorCode {
    let groups = vec![OffsetFetchRequestGroup { group_id: group.into(), ..Default::default() }];
    ErrorCode(client.call(&OffsetFetchRequest { groups, ..Default::default() }, 8).groups[0].error_code)
}

/// The segments of every topic's partition of this number that have records.
fn segments(dir: &Path, partition: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path()) {
        let is_segment = entry.extension().is_some_and(|extension| extension == "log");
        if entry.is_dir() {
            found.extend(segments(&entry, partition));
        } else if is_segment && dir.ends_with(partition) && !fs::read(&entry).expect("readable").is_empty() {
            found.push(entry);
        }
    }
    found
}

#[test]
fn groups_whose_log_is_damaged_hold_back_no_others() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = [
        ("admin.listen", "127.0.0.1:0"),
        ("data.dir", directory.path().to_str().expect("text")),
        ("offsets.topic.num.partitions", "2"),
    ];
    let server = server_with(&options);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    commit(&mut client, GROUP_OF_SHARD_0);
    commit(&mut client, GROUP_OF_SHARD_1);
    server.stop().expect("a clean stop");
    let damaged = segments(directory.path(), "1");
    assert_eq!(damaged.len(), 1, "{damaged:?}");
    let mut bytes = fs::read(&damaged[0]).expect("readable");
    *bytes.last_mut().expect("a record") ^= 1;
    fs::write(&damaged[0], bytes).expect("written");

    let server = server_with(&options);
    let mut client = Client::new(&server);
    let listed = client.call(&ListGroupsRequest::default(), 4);
    assert_eq!(ErrorCode(listed.error_code), ErrorCode::COORDINATOR_NOT_AVAILABLE);
    let groups: Vec<_> = listed.groups.iter().map(|group| &*group.group_id).collect();
    assert_eq!(groups, [GROUP_OF_SHARD_0]);
    assert_eq!(fetch_error(&mut client, GROUP_OF_SHARD_0), ErrorCode::NONE);
    assert_eq!(fetch_error(&mut client, GROUP_OF_SHARD_1), ErrorCode::NOT_COORDINATOR);
    let admin = server.admin_address().expect("an admin port");
    let (status, body) = get(admin, "/health");
    assert!(status.contains("503") && body.contains("__consumer_offsets"), "{status} {body}");
    // Commits in a healthy log dir are shown, although nobody holds their partition open.
    let (_, text) = get(admin, "/metrics");
    assert!(
        text.contains("riverrun_log_start_offset{topic=\"__consumer_offsets\",partition=\"0\"} 0"),
        "{text}"
    );
}
