//! Starts, stops, and the records, offsets and topics after them; the bound of connections.

use std::fs;
use std::time::{Duration, Instant};

use riverrun_broker::Server;
use riverrun_protocol::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use riverrun_protocol::offset_fetch_request::OffsetFetchRequestGroup;
use riverrun_protocol::{ErrorCode, ListGroupsRequest, OffsetCommitRequest, OffsetFetchRequest};
use riverrun_queue::{CreateOptions, Queue, QueueError};

use crate::support::{
    Client, PATIENCE, assert_serves, batch, configured, create_topic, fetch_request, find_coordinator,
    framed, produce, read_all, server, server_with,
};

/// Commits as a client without membership; gives the error.
pub(crate) fn commit(client: &mut Client, group: &str, topic: &str, committed_offset: i64) -> ErrorCode {
    let request = commit_request(group, topic, committed_offset);
    ErrorCode(client.call(&request, 9).topics[0].partitions[0].error_code)
}

/// A commit of partition 0 by a client without membership.
pub(crate) fn commit_request<'a>(
    group: &'a str,
    topic: &'a str,
    committed_offset: i64,
) -> OffsetCommitRequest<'a> {
    let partition = OffsetCommitRequestPartition {
        committed_offset,
        committed_metadata: Some("m".into()),
        ..Default::default()
    };
    let topics = vec![OffsetCommitRequestTopic {
        name: topic.into(),
        partitions: vec![partition],
        ..Default::default()
    }];
    OffsetCommitRequest { group_id: group.into(), topics, ..Default::default() }
}

/// The topics that a group has committed offsets of, with the offset of partition 0.
pub(crate) fn committed(client: &mut Client, group: &str) -> Vec<(String, i64)> {
    let group =
        OffsetFetchRequestGroup { group_id: group.to_owned().into(), topics: None, ..Default::default() };
    let mut response = client.call(&OffsetFetchRequest { groups: vec![group], ..Default::default() }, 9);
    let group = response.groups.remove(0);
    assert_eq!(ErrorCode(group.error_code), ErrorCode::NONE);
    let topics = group.topics.iter();
    topics.map(|topic| (topic.name.to_string(), topic.partitions[0].committed_offset)).collect()
}

fn start_in(directory: &tempfile::TempDir) -> Server {
    server_with(&[("data.dir", directory.path().to_str().expect("text"))])
}

#[test]
fn server_and_queue_take_no_directory_of_each_other() {
    let (of_server, of_queue) =
        (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    start_in(&of_server).stop().expect("stops");
    for name in ["", "logs", "journal"] {
        let refused = Queue::create(&of_server.path().join(name), CreateOptions::default());
        assert!(matches!(refused, Err(QueueError::Taken { .. })), "{name}: {refused:?}");
    }
    assert_serves(&start_in(&of_server));
    let dir = of_queue.path();
    drop(Queue::create(dir, CreateOptions::default()).expect("made"));
    let names = || fs::read_dir(dir).expect("there").count();
    let before = names();
    for option in ["data.dir", "log.dirs", "journal.dirs"] {
        let other = tempfile::tempdir().expect("a directory");
        let builder = Server::builder().data_dir(other.path()).expect("valid");
        let error =
            builder.set(option, dir.to_str().expect("text")).expect("valid").start().expect_err("refused");
        assert!(error.to_string().starts_with(&format!("{option}: a queue lies in")), "{error}");
        assert_eq!((names(), fs::read_dir(other.path()).expect("there").count()), (before, 0));
    }
}

#[test]
fn records_and_offsets_are_there_after_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = start_in(&directory);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 2, &[("retention.ms", "-1")]);
    produce(&mut client, "t", 0, &batch(&["a", "b"]));
    find_coordinator(&mut client, "g");
    assert_eq!(commit(&mut client, "g", "t", 1), ErrorCode::NONE);
    server.stop().expect("a clean stop");
    for round in 0..3 {
        let server = start_in(&directory);
        let mut client = Client::new(&server);
        let mut wanted = vec!["a".to_owned(), "b".to_owned()];
        wanted.extend((0..round).map(|round| format!("round {round}")));
        assert_eq!(read_all(&mut client, "t", 0, 0), wanted);
        assert_eq!(committed(&mut client, "g"), [("t".to_owned(), 1)]);
        let groups = client.call(&ListGroupsRequest::default(), 4).groups;
        assert_eq!(groups.iter().map(|group| &*group.group_id).collect::<Vec<_>>(), ["g"]);
        produce(&mut client, "t", 0, &batch(&[&format!("round {round}")]));
        // Dropped without a word, with a client still there.
        drop(server);
    }
}

/// Copies a directory as it lies on the disk while a server writes to it.
pub(crate) fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).expect("made");
    for entry in std::fs::read_dir(from).expect("readable") {
        let entry = entry.expect("readable");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copied");
        }
    }
}

#[test]
fn acked_records_are_there_after_a_kill() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = start_in(&directory);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[("segment.bytes", "1048576")]);
    let large = "x".repeat(100_000);
    for index in 0..30 {
        assert_eq!(produce(&mut client, "t", 0, &batch(&[&large])), index);
    }
    find_coordinator(&mut client, "g");
    assert_eq!(commit(&mut client, "g", "t", 17), ErrorCode::NONE);
    // A killed server leaves its files as they are at that moment.
    let left = tempfile::tempdir().expect("a directory");
    copy(directory.path(), left.path());
    let server = start_in(&left);
    let mut client = Client::new(&server);
    // One fetch reads one segment at most, and there are three.
    let mut kept = 0;
    while kept < 30 {
        let more = read_all(&mut client, "t", 0, kept).len();
        assert!(more > 0, "{kept} of 30 records");
        kept += i64::try_from(more).expect("few");
    }
    assert_eq!(committed(&mut client, "g"), [("t".to_owned(), 17)]);
    assert_eq!(produce(&mut client, "t", 0, &batch(&["next"])), 30);
}

/// The batches of the topic of group offsets.
fn offset_records(client: &mut Client) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for partition in 0..4 {
        let data = crate::support::fetch(client, "__consumer_offsets", partition, 0);
        for batch in riverrun_records::Batches::new(crate::support::records(&data)) {
            found.push(batch.expect("whole").verify().expect("sound").bytes().to_vec());
        }
    }
    assert!(!found.is_empty(), "the topic of offsets can be read");
    found
}

#[test]
fn the_topic_of_offsets_is_read_like_any_other() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    find_coordinator(&mut client, "g");
    assert_eq!(commit(&mut client, "g", "t", 0), ErrorCode::NONE);
    let mut keys = Vec::new();
    for bytes in offset_records(&mut client) {
        for batch in riverrun_records::Batches::new(&bytes) {
            let batch = batch.expect("whole").verify().expect("sound");
            for record in &batch.records().expect("sound") {
                keys.push(record.expect("sound").key.expect("a key").to_vec());
            }
        }
    }
    // Version 1 of an offset's key: group, topic, partition.
    assert_eq!(keys, [b"\0\x01\0\x01g\0\x01t\0\0\0\0"]);
}

#[test]
fn a_second_server_on_the_same_data_is_refused_without_harm() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = start_in(&directory);
    let path = directory.path().to_str().expect("text");
    let error = configured(&[("data.dir", path)]).start().expect_err("the data are in use").to_string();
    assert!(error.contains("another") || error.contains("in use"), "{error}");
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    assert_eq!(produce(&mut client, "t", 0, &batch(&["a"])), 0);
    server.stop().expect("a clean stop");
    // The lock is gone with the server.
    start_in(&directory).stop().expect("a clean stop");
}

#[test]
fn data_of_another_node_are_refused_with_both_ids() {
    let directory = tempfile::tempdir().expect("a directory");
    start_in(&directory).stop().expect("a clean stop");
    let path = directory.path().to_str().expect("text");
    let error = configured(&[("data.dir", path), ("node.id", "2")]).start().expect_err("another node");
    assert!(error.to_string().contains('1') && error.to_string().contains('2'), "{error}");
    start_in(&directory).stop().expect("unharmed");
}

#[test]
fn a_start_error_names_the_address_that_is_taken() {
    let server = server();
    let taken = format!("PLAINTEXT://{}", server.bootstrap());
    let error = configured(&[("listeners", &taken)]).start().expect_err("the port is taken").to_string();
    assert!(error.contains(server.bootstrap()), "{error}");
}

#[test]
fn a_stop_does_not_wait_for_clients() {
    let server = server();
    let mut idle = Client::new(&server);
    let (mut parked, mut halfway) = (Client::new(&server), Client::new(&server));
    create_topic(&mut parked, "t", 1, &[]);
    let mut wait = fetch_request("t", 0, 0);
    wait.max_wait_ms = i32::MAX;
    parked.send(&wait, 12);
    halfway.write(&framed(&[0; 100])[..50]);
    assert!(idle.is_quiet_for(Duration::from_millis(50)));
    let since = Instant::now();
    server.stop().expect("a clean stop");
    assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
    for client in [&mut idle, &mut parked, &mut halfway] {
        client.expect_closed("a server that stopped");
    }
}

#[test]
fn a_stop_while_clients_produce_loses_nothing_that_was_acked() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = start_in(&directory);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    let producer = std::thread::spawn(move || {
        let bytes = batch(&["x"]);
        let mut acked = 0;
        loop {
            let request = crate::support::produce_request("t", 0, &bytes, -1);
            if client.try_write(&crate::support::request_bytes(&request, 9)).is_err() {
                return acked;
            }
            let Ok(frame) = client.read_frame() else { return acked };
            let decoded =
                riverrun_protocol::decode_response::<riverrun_protocol::ProduceRequest<'_>>(&frame, 9);
            let (_, response) = decoded.expect("decodes");
            // A server that is closing may say so.
            if response.responses[0].partition_responses[0].error_code != 0 {
                return acked;
            }
            acked += 1;
        }
    });
    std::thread::sleep(Duration::from_millis(200));
    server.stop().expect("a clean stop");
    let acked = producer.join().expect("the producer ends");
    let server = start_in(&directory);
    let kept = read_all(&mut Client::new(&server), "t", 0, 0).len();
    assert!(acked > 0 && (acked..=acked + 1).contains(&kept), "{acked} acked, {kept} kept");
}

#[test]
fn a_server_starts_quickly() {
    let mut fastest = Duration::MAX;
    for _ in 0..3 {
        let since = Instant::now();
        let server = server();
        assert_serves(&server);
        fastest = fastest.min(since.elapsed());
    }
    // Without optimization and on a busy machine; an optimized server is held to a tenth of it elsewhere.
    assert!(fastest < Duration::from_secs(1), "{fastest:?}");
}

#[test]
fn connections_above_the_limits_are_closed_at_once() {
    for option in ["max.connections", "max.connections.per.ip"] {
        let server = server_with(&[(option, "3")]);
        let mut open: Vec<Client> = (0..3).map(|_| Client::new(&server)).collect();
        for client in &mut open {
            assert!(client.is_quiet_for(Duration::from_millis(10)), "{option}");
        }
        Client::new(&server).expect_closed(option);
        drop(open.pop());
        // A place is free again as soon as the server has seen the end of the connection.
        let until = Instant::now() + PATIENCE;
        while !Client::new(&server).is_quiet_for(Duration::from_millis(50)) {
            assert!(Instant::now() < until, "{option}: no place came free");
        }
    }
}

#[test]
fn every_listener_tells_its_own_address() {
    let server = server_with(&[
        ("listeners", "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0"),
        ("advertised.listeners", "OUTSIDE://broker.example:19092"),
    ]);
    let told: Vec<(String, i32)> = server
        .listeners()
        .map(|(_, address)| {
            let request = riverrun_protocol::MetadataRequest::default();
            let response = Client::connect(&address.to_string()).call(&request, 12);
            (response.brokers[0].host.to_string(), response.brokers[0].port)
        })
        .collect();
    let inside = server.listeners().next().expect("two listeners").1;
    assert_eq!(told[0], ("127.0.0.1".to_owned(), i32::from(inside.port())));
    assert_eq!(told[1], ("broker.example".to_owned(), 19_092));
}
