//! Segments that are damaged under a running server: the partition goes offline with a message, and nothing else does.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use riverrun_broker::Server;
use riverrun_protocol::describe_topic_partitions_request::TopicRequest;
use riverrun_protocol::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use riverrun_protocol::metadata_request::MetadataRequestTopic;
use riverrun_protocol::{DescribeTopicPartitionsRequest, ErrorCode, ListOffsetsRequest, MetadataRequest};

use crate::admin_port::get;
use crate::support::{
    Client, PATIENCE, SOME_TIME, batch, create_topic, fetch, produce, read_all, records, server_with,
    try_produce,
};

/// Six records of 400 KB are three segments of this size.
const SEGMENT: (&str, &str) = ("segment.bytes", "1048576");

/// A server that was stopped in order and started again, with three segments in partition 0 of `t` and one record in
/// partition 1.
struct Damaged {
    server: Server,
    directory: tempfile::TempDir,
}

impl Damaged {
    /// Starts again with `damage` done to the first segment.
    fn with(options: &[(&str, &str)], damage: impl FnOnce(&mut Vec<u8>)) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let data = directory.path().to_str().expect("text").to_owned();
        let basic = [("admin.listen", "127.0.0.1:0"), ("data.dir", &*data)];
        let options = [&basic, options].concat();
        let server = server_with(&options);
        let mut client = Client::new(&server);
        create_topic(&mut client, "t", 2, &[SEGMENT]);
        let large = "x".repeat(400_000);
        for _ in 0..6 {
            produce(&mut client, "t", 0, &batch(&[&large]));
        }
        produce(&mut client, "t", 1, &batch(&["fine"]));
        server.stop().expect("a clean stop");
        let path = first_segment(directory.path());
        let mut bytes = fs::read(&path).expect("readable");
        damage(&mut bytes);
        fs::write(&path, bytes).expect("writable");
        Self { server: server_with(&options), directory }
    }

    /// Partition 0 answers nothing, partition 1 goes on, and errors and health name the file.
    fn assert_offline(&self) {
        let mut client = Client::new(&self.server);
        for offset in [0, 5] {
            let error = ErrorCode(fetch(&mut client, "t", 0, offset).error_code);
            assert_eq!(error, ErrorCode::KAFKA_STORAGE_ERROR, "offset {offset}");
        }
        let answer = try_produce(&mut client, "t", 0, &batch(&["more"]));
        assert_eq!(ErrorCode(answer.error_code), ErrorCode::KAFKA_STORAGE_ERROR);
        produce(&mut client, "t", 1, &batch(&["goes on"]));
        assert_eq!(read_all(&mut client, "t", 1, 0), ["fine", "goes on"]);
        assert_eq!(led(&mut client), [(-1, vec![1]), (1, vec![])]);
        let path = first_segment(self.directory.path());
        let (status, body) = self.admin("/health");
        assert!(status.contains("503") && body.contains(path.to_str().expect("text")), "{status} {body}");
        assert!(body.contains("partition t-0 is offline") && body.contains("at byte"), "{body}");
        assert_eq!(body.lines().count(), 1, "nothing else is wrong: {body}");
        let (_, text) = self.admin("/metrics");
        assert!(text.contains("riverrun_partitions_offline{} 1"), "{text}");
    }

    fn admin(&self, path: &str) -> (String, String) {
        get(self.server.admin_address().expect("an admin port"), path)
    }
}

/// The leader of each partition of `t`, and its offline replicas. Metadata and `DescribeTopicPartitions` agree, and a
/// partition without a leader has Kafka's error.
fn led(client: &mut Client) -> Vec<(i32, Vec<i32>)> {
    let wanted = MetadataRequestTopic { name: Some("t".into()), ..Default::default() };
    let metadata = client.call(&MetadataRequest { topics: Some(vec![wanted]), ..Default::default() }, 12);
    assert_eq!(metadata.topics[0].error_code, 0);
    let mut leaders = Vec::new();
    for partition in &metadata.topics[0].partitions {
        let is_led = partition.leader_id >= 0;
        let code = if is_led { ErrorCode::NONE } else { ErrorCode::LEADER_NOT_AVAILABLE };
        assert_eq!(ErrorCode(partition.error_code), code);
        assert_eq!((&*partition.replica_nodes, &*partition.isr_nodes), (&[1][..], &[1][..]));
        leaders.push((partition.leader_id, partition.offline_replicas.clone()));
    }
    let request = DescribeTopicPartitionsRequest {
        topics: vec![TopicRequest { name: "t".into() }],
        response_partition_limit: 100,
        ..Default::default()
    };
    let described = client.call(&request, 0).topics;
    let told = described[0].partitions.iter().zip(&metadata.topics[0].partitions);
    for (told, known) in told {
        assert_eq!((told.leader_id, told.error_code), (known.leader_id, known.error_code));
        assert_eq!((&told.isr_nodes, &told.offline_replicas), (&known.isr_nodes, &known.offline_replicas));
    }
    leaders
}

/// The first of several segments of a partition.
fn first_segment(dir: &Path) -> PathBuf {
    let mut logs = Vec::new();
    collect(dir, &mut logs);
    let has_sibling = |path: &&PathBuf| logs.iter().filter(|log| log.parent() == path.parent()).count() > 1;
    let mut logs: Vec<_> = logs.iter().filter(has_sibling).cloned().collect();
    logs.sort();
    logs.remove(0)
}

fn collect(dir: &Path, logs: &mut Vec<PathBuf>) {
    for path in fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            collect(&path, logs);
        } else if path.extension().is_some_and(|extension| extension == "log") {
            logs.push(path);
        }
    }
}

#[test]
fn a_fetch_that_finds_damage_takes_its_partition_offline() {
    // The base offset of the first batch, which no CRC covers.
    let damaged = Damaged::with(&[], |bytes| bytes[7] ^= 1);
    let mut client = Client::new(&damaged.server);
    assert_eq!(ErrorCode(fetch(&mut client, "t", 0, 0).error_code), ErrorCode::KAFKA_STORAGE_ERROR);
    damaged.assert_offline();
}

/// The `.log` files of a topic with one segment in each partition, by the partition's number.
fn segments_of(dir: &Path) -> BTreeMap<usize, PathBuf> {
    let mut logs = Vec::new();
    collect(dir, &mut logs);
    let index_of = |path: &PathBuf| path.parent()?.file_name()?.to_str()?.parse().ok();
    logs.into_iter().filter_map(|path| Some((index_of(&path)?, path))).collect()
}

#[test]
fn a_fetch_serves_no_flipped_byte() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().to_str().expect("text").to_owned();
    let server = server_with(&[("data.dir", &data)]);
    let mut client = Client::new(&server);
    let intact = [batch(&["one value"]), batch(&["another value"])].concat();
    let partitions = i32::try_from(intact.len()).expect("few");
    create_topic(&mut client, "t", partitions + 1, &[]);
    for index in 0..=partitions {
        produce(&mut client, "t", index, &batch(&["one value"]));
        produce(&mut client, "t", index, &batch(&["another value"]));
    }
    let intact = records(&fetch(&mut client, "t", 0, 0)).to_vec();
    drop(client);
    server.stop().expect("a clean stop");
    // In each partition but the last another byte is flipped.
    let paths = segments_of(directory.path());
    assert_eq!(paths.len(), intact.len() + 1);
    for (position, path) in paths.iter().take(intact.len()) {
        let mut bytes = fs::read(path).expect("readable");
        assert_eq!(bytes, intact);
        bytes[*position] ^= 1 << (position % 8);
        fs::write(path, bytes).expect("writable");
    }
    let server = server_with(&[("data.dir", &data)]);
    let mut client = Client::new(&server);
    for index in 0..partitions {
        let data = fetch(&mut client, "t", index, 0);
        assert_eq!(ErrorCode(data.error_code), ErrorCode::KAFKA_STORAGE_ERROR, "byte {index}");
        assert!(records(&data).is_empty(), "byte {index}");
    }
    assert_eq!(records(&fetch(&mut client, "t", partitions, 0)), intact);
}

#[test]
fn health_shows_damage_that_was_found_before_a_restart() {
    let mut damaged = Damaged::with(&[], |bytes| bytes[7] ^= 1);
    let mut client = Client::new(&damaged.server);
    fetch(&mut client, "t", 0, 0);
    drop(client);
    let data = damaged.directory.path().to_str().expect("text").to_owned();
    damaged.server.stop().expect("a clean stop");
    damaged.server = server_with(&[("admin.listen", "127.0.0.1:0"), ("data.dir", &data)]);
    let begun = Instant::now();
    while !damaged.admin("/metrics").1.contains("riverrun_partitions_offline{} 1") {
        assert!(begun.elapsed() < PATIENCE, "nobody tells, as long as nobody asks for the partition");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    damaged.assert_offline();
}

#[test]
fn a_damage_marker_is_found_without_the_checkpoint() {
    let damaged = Damaged::with(&[], |bytes| bytes[7] ^= 1);
    fetch(&mut Client::new(&damaged.server), "t", 0, 0);
    let segment = first_segment(damaged.directory.path());
    let mark = segment.with_extension("damaged");
    assert!(mark.exists());
    damaged.server.stop().expect("a clean stop");
    // The segment is whole again, so that the next check removes the damage marker.
    let mut bytes = fs::read(&segment).expect("readable");
    bytes[7] ^= 1;
    fs::write(&segment, bytes).expect("writable");
    let logs = segment.ancestors().find(|dir| dir.join("checkpoint").exists()).expect("a log dir");
    fs::remove_file(logs.join("checkpoint")).expect("it is there");
    let data = damaged.directory.path().to_str().expect("text").to_owned();
    let server = server_with(&[("data.dir", &data)]);
    let begun = Instant::now();
    while mark.exists() {
        assert!(begun.elapsed() < PATIENCE, "nobody looks, as long as nobody asks for the partition");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(read_all(&mut Client::new(&server), "t", 0, 0).len(), 6);
}

#[test]
fn a_mended_partition_has_its_leader_again_after_a_restart() {
    let mut damaged = Damaged::with(&[], |bytes| bytes[7] ^= 1);
    let mut client = Client::new(&damaged.server);
    assert_eq!(led(&mut client), [(1, vec![]), (1, vec![])], "nobody has seen it yet");
    fetch(&mut client, "t", 0, 0);
    assert_eq!(led(&mut client), [(-1, vec![1]), (1, vec![])]);
    drop(client);
    damaged.server.stop().expect("a clean stop");
    let path = first_segment(damaged.directory.path());
    let mut bytes = fs::read(&path).expect("readable");
    bytes[7] ^= 1;
    fs::write(&path, bytes).expect("writable");
    let data = damaged.directory.path().to_str().expect("text").to_owned();
    damaged.server = server_with(&[("data.dir", &data)]);
    let mut client = Client::new(&damaged.server);
    assert_eq!(read_all(&mut client, "t", 0, 0).len(), 6);
    assert_eq!(led(&mut client), [(1, vec![]), (1, vec![])]);
}

#[test]
fn a_segment_that_lost_its_end_is_found_when_it_is_opened() {
    let damaged = Damaged::with(&[], |bytes| bytes.truncate(bytes.len() - 1));
    let mut client = Client::new(&damaged.server);
    assert_eq!(ErrorCode(fetch(&mut client, "t", 0, 0).error_code), ErrorCode::KAFKA_STORAGE_ERROR);
    damaged.assert_offline();
}

#[test]
fn damage_in_a_search_by_time_takes_the_partition_offline() {
    let damaged = Damaged::with(&[], |bytes| bytes[100] ^= 1);
    let mut client = Client::new(&damaged.server);
    let partition = ListOffsetsPartition {
        partition_index: 0,
        timestamp: SOME_TIME.0,
        ..ListOffsetsPartition::default()
    };
    let topics = vec![ListOffsetsTopic { name: "t".into(), partitions: vec![partition] }];
    let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
    let answer = client.call(&request, 7);
    assert_eq!(ErrorCode(answer.topics[0].partitions[0].error_code), ErrorCode::KAFKA_STORAGE_ERROR);
    damaged.assert_offline();
}

#[test]
fn the_scrub_finds_damage_that_nobody_has_read() {
    let quick = [("log.scrub.interval.ms", "100"), ("log.scrub.bytes.per.second", "100000000")];
    let damaged = Damaged::with(&quick, |bytes| bytes[200_000] ^= 1);
    let begun = Instant::now();
    while damaged.admin("/health").0.contains("200") {
        assert!(begun.elapsed() < PATIENCE, "the scrub finds nothing");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    damaged.assert_offline();
}

#[test]
fn the_scrub_passes_intact_segments_and_can_be_off() {
    let quick = [("log.scrub.interval.ms", "100"), ("log.scrub.bytes.per.second", "100000000")];
    let intact = Damaged::with(&quick, |_| {});
    let begun = Instant::now();
    let passes = |text: &str| {
        let at = |count: u32| format!("riverrun_scrub_passes_total {count}\n");
        text.contains("riverrun_scrub_passes_total ") && !text.contains(&at(0)) && !text.contains(&at(1))
    };
    while !passes(&intact.admin("/metrics").1) {
        assert!(begun.elapsed() < PATIENCE, "the scrub does not run");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let (status, body) = intact.admin("/health");
    assert!(status.contains("200"), "{status} {body}");
    let (_, text) = intact.admin("/metrics");
    assert!(text.contains("riverrun_partitions_offline{} 0"), "{text}");
    assert!(!text.contains("riverrun_scrub_read_bytes_total 0\n"), "{text}");
    let off = Damaged::with(&[("log.scrub.interval.ms", "-1")], |bytes| bytes[200_000] ^= 1);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(off.admin("/health").0.contains("200"));
}
