//! Retention and compaction of topics that nobody writes to any more: what is due goes without another record.

use std::fs::{self, DirEntry};
use std::path::Path;
use std::time::{Duration, Instant};

use riverrun_broker::Server;
use riverrun_protocol::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use riverrun_protocol::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use riverrun_protocol::{
    DeleteRecordsRequest, DescribeLogDirsRequest, ErrorCode, IncrementalAlterConfigsRequest,
};
use riverrun_records::{BatchBuilder, BatchOptions};
use riverrun_types::TimestampMs;

use crate::support::{Client, batch, create_topic, produce, server_with};

/// Checks come sooner than checkpoints, so that a check sees a log that no checkpoint covers yet.
const SOON: &[(&str, &str)] = &[
    ("log.retention.check.interval.ms", "100"),
    ("log.flush.offset.checkpoint.interval.ms", "700"),
    ("log.cleaner.backoff.ms", "100"),
];
/// No checkpoint comes by itself.
const UNCOVERED: &[(&str, &str)] = &[
    ("log.retention.check.interval.ms", "100"),
    ("log.flush.offset.checkpoint.interval.ms", "3600000"),
    ("log.cleaner.backoff.ms", "100"),
];
const SEGMENT: (&str, &str) = ("segment.bytes", "1048576");
/// Longer than any machine needs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Six records of 400 KB: three segments.
fn burst(client: &mut Client) {
    let large = "x".repeat(400_000);
    for _ in 0..6 {
        produce(client, "t", 0, &batch(&[&large]));
    }
}

fn size_bytes(client: &mut Client) -> i64 {
    let dirs = client.call(&DescribeLogDirsRequest { topics: None }, 4).results;
    let topics = dirs.iter().flat_map(|dir| &dir.topics).filter(|topic| topic.name == "t");
    topics.flat_map(|topic| &topic.partitions).map(|partition| partition.partition_size).sum()
}

fn wait_for_size_below(server: &Server, bytes: i64) {
    let mut client = Client::new(server);
    let begun = Instant::now();
    while size_bytes(&mut client) >= bytes {
        assert!(begun.elapsed() < PATIENCE, "{} bytes are left", size_bytes(&mut client));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn size_retention_comes_to_a_topic_that_has_stopped_growing() {
    let server = server_with(SOON);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[SEGMENT, ("retention.bytes", "1000000")]);
    burst(&mut client);
    wait_for_size_below(&server, 2_000_000);
}

/// On a full disk nobody can append, and nothing but this gives the space back.
#[test]
fn files_of_deleted_segments_go_after_their_delay() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = ("data.dir", directory.path().to_str().expect("text"));
    let server = server_with(&[SOON, &[data]].concat());
    let mut client = Client::new(&server);
    let configs = [SEGMENT, ("retention.bytes", "1000000"), ("file.delete.delay.ms", "1000")];
    create_topic(&mut client, "t", 1, &configs);
    burst(&mut client);
    wait_for_size_below(&server, 2_000_000);
    let begun = Instant::now();
    while deleted_files(directory.path()) > 0 {
        assert!(begun.elapsed() < PATIENCE, "{} files are left", deleted_files(directory.path()));
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn deleted_files(dir: &Path) -> usize {
    let count = |entry: DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => deleted_files(&entry.path()),
        _ => usize::from(entry.path().extension().is_some_and(|extension| extension == "deleted")),
    };
    fs::read_dir(dir).expect("a directory").flatten().map(count).sum()
}

#[test]
fn deleted_records_give_their_space_back_without_another_record() {
    let server = server_with(SOON);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[SEGMENT]);
    burst(&mut client);
    // Retention has looked, and found nothing to do.
    std::thread::sleep(Duration::from_secs(2));
    let partition = DeleteRecordsPartition { partition_index: 0, offset: 5 };
    let topic = DeleteRecordsTopic { name: "t".into(), partitions: vec![partition] };
    let request = DeleteRecordsRequest { topics: vec![topic], timeout_ms: 1000 };
    let answer = client.call(&request, 2);
    assert_eq!(ErrorCode(answer.topics[0].partitions[0].error_code), ErrorCode::NONE);
    wait_for_size_below(&server, 1_500_000);
}

#[test]
fn retention_that_is_set_later_acts_on_an_idle_topic() {
    let server = server_with(SOON);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[SEGMENT]);
    burst(&mut client);
    std::thread::sleep(Duration::from_secs(2));
    let configs = vec![AlterableConfig {
        name: "retention.bytes".into(),
        value: Some("1000000".into()),
        ..Default::default()
    }];
    let resource = AlterConfigsResource { resource_type: 2, resource_name: "t".into(), configs };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], ..Default::default() };
    assert_eq!(ErrorCode(client.call(&request, 1).responses[0].error_code), ErrorCode::NONE);
    wait_for_size_below(&server, 2_000_000);
}

#[test]
fn retention_waits_for_no_checkpoint() {
    let server = server_with(UNCOVERED);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[("retention.ms", "500")]);
    produce(&mut client, "t", 0, &batch(&["a", "b"]));
    wait_for_size_below(&server, 1);
}

#[test]
fn an_idle_topic_is_compacted_without_waiting_for_a_checkpoint() {
    for options in [SOON, UNCOVERED] {
        compact_idle_topic(options);
    }
}

fn compact_idle_topic(options: &[(&str, &str)]) {
    let server = server_with(options);
    let mut client = Client::new(&server);
    let configs = [SEGMENT, ("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.01")];
    create_topic(&mut client, "t", 1, &configs);
    let large = vec![b'x'; 400_000];
    for _ in 0..8 {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder.append(TimestampMs(1), Some(b"key"), Some(&large), &[]).expect("fits");
        produce(&mut client, "t", 0, &builder.build().expect("built"));
    }
    // The last record of the cleaned part and the active segment stay.
    wait_for_size_below(&server, 1_500_000);
}
