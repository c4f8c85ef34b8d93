//! Queues of this machine as topics: read by clients during appends, and changed by none of them.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use riverrun_broker::Server;
use riverrun_protocol::alter_configs_request::{AlterConfigsResource, AlterableConfig};
use riverrun_protocol::create_partitions_request::CreatePartitionsTopic;
use riverrun_protocol::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use riverrun_protocol::delete_topics_request::DeleteTopicState;
use riverrun_protocol::describe_configs_request::DescribeConfigsResource;
use riverrun_protocol::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use riverrun_protocol::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use riverrun_protocol::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use riverrun_protocol::{
    AlterConfigsRequest, CreatePartitionsRequest, DeleteRecordsRequest, DeleteTopicsRequest,
    DescribeConfigsRequest, ErrorCode, FetchRequest, ListOffsetsRequest, OffsetCommitRequest,
    OffsetFetchRequest,
};
use riverrun_queue::{AppendOptions, Appender, CreateOptions, NewRecord, PartitionTailer, Queue, StartAt};
use riverrun_types::TimestampMs;

use crate::admin_port::get;
use crate::support::{
    Client, PATIENCE, batch, configured, create_topic, fetch, fetch_request, find_coordinator, only, produce,
    read_all, records, server_with, topic_id, try_create_topic, try_produce, values,
};

const TOPIC: &str = "quotes";

/// A new queue, and an appender to it.
fn queue(dir: &Path) -> Appender {
    let queue = Queue::create(dir, CreateOptions { segment_bytes: 1 << 16 }).expect("made");
    queue.appender(AppendOptions::default()).expect("attached")
}

fn append(appender: &mut Appender, value: &str, timestamp: i64) {
    let record = NewRecord {
        value: Some(value.as_bytes()),
        timestamp: Some(TimestampMs(timestamp)),
        ..NewRecord::default()
    };
    appender.append_record(&record).expect("room");
}

fn mounted(dir: &Path) -> Server {
    mounted_as(&mount_of(dir))
}

fn mounted_as(mount: &str) -> Server {
    server_with(&[("mounts", mount), ("admin.listen", "127.0.0.1:0")])
}

fn mount_of(dir: &Path) -> String {
    format!("{TOPIC}={}", dir.display())
}

fn list_offset(client: &mut Client, timestamp: i64) -> (ErrorCode, i64, i64) {
    let partition = ListOffsetsPartition { timestamp, current_leader_epoch: -1, ..Default::default() };
    let topic = ListOffsetsTopic { name: TOPIC.into(), partitions: vec![partition] };
    let request = ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..Default::default() };
    let found = client.call(&request, 8).topics.remove(0).partitions.remove(0);
    (ErrorCode(found.error_code), found.timestamp, found.offset)
}

fn health(server: &Server) -> String {
    get(server.admin_address().expect("an admin port"), "/health").1
}

#[test]
fn a_queue_is_read_from_any_offset_and_across_segments() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut appender = queue(dir.path());
    let expected: Vec<String> = (0..3000).map(|number| format!("{number:0100}")).collect();
    expected.iter().zip(0..).for_each(|(value, time)| append(&mut appender, value, time));
    let server = mounted(dir.path());
    let mut client = Client::new(&server);
    assert_eq!(read_all(&mut client, TOPIC, 0, 0), expected);
    assert_eq!(read_all(&mut client, TOPIC, 0, 2345), expected[2345..]);
    assert_eq!(ErrorCode(fetch(&mut client, TOPIC, 0, 3001).error_code), ErrorCode::OFFSET_OUT_OF_RANGE);
    assert_eq!(
        ErrorCode(fetch(&mut client, TOPIC, 1, 0).error_code),
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        "there is one partition"
    );
    for (timestamp, found) in [(-2, (-1, 0)), (-1, (-1, 3000)), (-3, (2999, 2999)), (1234, (1234, 1234))] {
        assert_eq!(list_offset(&mut client, timestamp), (ErrorCode::NONE, found.0, found.1), "{timestamp}");
    }
    // Appends go on while the queue is read.
    append(&mut appender, "more", 3000);
    assert_eq!(read_all(&mut client, TOPIC, 0, 3000), ["more"]);
    server.stop().expect("a clean stop");
}

#[test]
fn a_waiting_consumer_has_a_record_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut appender = queue(dir.path());
    let server = mounted(dir.path());
    let mut client = Client::new(&server);
    let mut latencies = Vec::new();
    for round in 0..50 {
        let request = FetchRequest { max_wait_ms: 20_000, min_bytes: 1, ..fetch_request(TOPIC, 0, round) };
        client.send(&request, 12);
        std::thread::sleep(Duration::from_millis(if round < 5 { 150 } else { 5 }));
        let begin = Instant::now();
        append(&mut appender, "quote", round);
        let data = only(client.receive::<FetchRequest<'_>>(12).1);
        latencies.push(begin.elapsed());
        assert_eq!(values(records(&data)), ["quote"]);
        assert_eq!(data.high_watermark, round + 1);
    }
    latencies.sort_unstable();
    println!("latencies: median {:?}, most {:?}", latencies[25], latencies[49]);
    // A fetch that is not woken looks once in a second. Some may be that late on a busy machine, but not nearly all.
    assert!(latencies[5] < Duration::from_millis(50), "{latencies:?}");
}

#[test]
fn a_fetch_at_a_synced_mount_waits_for_the_sync() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut appender = queue(dir.path());
    let server = mounted_as(&format!("{}:synced", mount_of(dir.path())));
    let mut client = Client::new(&server);
    append(&mut appender, "quote", 1);
    assert_eq!(list_offset(&mut client, -1), (ErrorCode::NONE, -1, 0));
    assert_eq!(ErrorCode(fetch(&mut client, TOPIC, 0, 1).error_code), ErrorCode::OFFSET_OUT_OF_RANGE);
    for end in 1..20 {
        let request = FetchRequest { max_wait_ms: 20_000, min_bytes: 1, ..fetch_request(TOPIC, 0, end - 1) };
        client.send(&request, 12);
        std::thread::sleep(Duration::from_millis(10));
        let begin = Instant::now();
        appender.sync().expect("synced");
        let data = only(client.receive::<FetchRequest<'_>>(12).1);
        assert!(begin.elapsed() < Duration::from_secs(10), "woken by the sync");
        assert_eq!((values(records(&data)), data.high_watermark), (vec!["quote".to_owned()], end));
        append(&mut appender, "quote", end);
    }
    server.stop().expect("a clean stop");
}

/// The variables that tell a started process what to do.
const APPEND_TO: &str = "RIVERRUN_MOUNT_APPEND_TO";
const APPENDER_ID: &str = "RIVERRUN_MOUNT_APPENDER_ID";

/// Most values that one started process appends, should nobody end it.
const SEQUENCES_MAX: u64 = 20_000;

fn value_of(id: u64, sequence: u64) -> Vec<u8> {
    let mut value = [id.to_le_bytes(), sequence.to_le_bytes()].concat();
    let filler = (id * 31 + sequence).to_le_bytes()[0];
    value.extend(std::iter::repeat_n(filler, usize::try_from(sequence * 37 % 400).expect("small")));
    value
}

fn account_of(dir: &Path, id: u64) -> PathBuf {
    dir.with_extension(format!("appended-{id}"))
}

/// Not a test of its own: the next test starts processes that run it.
#[test]
fn a_started_process_appends_until_it_is_killed() {
    let Ok(dir) = std::env::var(APPEND_TO) else { return };
    let id: u64 = std::env::var(APPENDER_ID).expect("given").parse().expect("a number");
    // Should the test be gone, its end of the pipe is.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_line(&mut String::new());
        std::process::exit(1);
    });
    let dir = Path::new(&dir);
    let queue = Queue::open(dir).expect("whole");
    let mut appender = queue.appender(AppendOptions::default()).expect("attached");
    let account = File::create(account_of(dir, id)).expect("a file");
    for sequence in 0..SEQUENCES_MAX {
        let value = value_of(id, sequence);
        if sequence % 2 == 0 {
            let mut reserved = appender.reserve(value.len()).expect("room");
            reserved.copy_from_slice(&value);
            reserved.publish().expect("published");
        } else {
            appender.append(&value).expect("room");
        }
        account.write_all_at(&(sequence + 1).to_le_bytes(), 0).expect("written");
    }
    std::thread::park();
}

fn start_appender(dir: &Path, id: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["mounts::a_started_process_appends_until_it_is_killed", "--exact", "--nocapture"]);
    command.env(APPEND_TO, dir).env(APPENDER_ID, id.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("started")
}

/// Reads the topic as a consumer does, until `is_over` and everything is read. Returns how many records of each
/// appender there were.
fn consume(server: &Server, is_over: &AtomicBool) -> HashMap<u64, u64> {
    let mut client = Client::new(server);
    let (mut counts, mut next) = (HashMap::new(), 0);
    loop {
        let was_over = is_over.load(Ordering::Acquire);
        let request = FetchRequest { max_wait_ms: 100, min_bytes: 1, ..fetch_request(TOPIC, 0, next) };
        let data = only(client.call(&request, 12));
        assert_eq!(ErrorCode(data.error_code), ErrorCode::NONE, "at {next}");
        let bytes = records(&data);
        if bytes.is_empty() && was_over && data.high_watermark == next {
            return counts;
        }
        for batch in riverrun_records::Batches::new(bytes) {
            let batch = batch.expect("whole").verify().expect("whole");
            for record in &batch.records().expect("readable") {
                let record = record.expect("whole");
                assert_eq!(record.offset.0, next, "offsets have no gap");
                next += 1;
                let value = record.value.expect("one");
                let id = u64::from_le_bytes(*value.first_chunk().expect("long enough"));
                let count: &mut u64 = counts.entry(id).or_default();
                assert!(value == value_of(id, *count), "record {count} of {id} is whole and in its turn");
                *count += 1;
            }
        }
    }
}

/// Ends a consumer when it is dropped, also by a test that fails: it would wait for the consumer for ever.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_consumer_goes_on_when_appenders_are_killed_and_others_come() {
    let kills: u64 =
        std::env::var("RIVERRUN_MOUNT_KILLS").map_or(12, |kills| kills.parse().expect("a number"));
    let above = tempfile::tempdir().expect("a directory");
    let dir = above.path().join("queue");
    drop(queue(&dir));
    let server = mounted(&dir);
    let is_over = AtomicBool::new(false);
    let counts = std::thread::scope(|scope| {
        let over = Over(&is_over);
        let consumer = scope.spawn(|| consume(&server, &is_over));
        for id in 0..kills {
            let mut child = start_appender(&dir, id);
            let until = Instant::now() + PATIENCE;
            while !account_of(&dir, id).exists() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_micros(3000 + id * 7919 % 20_000));
            child.kill().expect("killed");
            child.wait().expect("ended");
        }
        // A new one, in a process that stays.
        let mut last =
            Queue::open(&dir).expect("whole").appender(AppendOptions::default()).expect("attached");
        last.append(&value_of(kills, 0)).expect("room");
        drop(over);
        consumer.join().expect("no panic")
    });
    assert_eq!(counts[&kills], 1, "the consumer goes on with the next appender");
    for id in 0..kills {
        let account = std::fs::read(account_of(&dir, id)).expect("an account");
        let appended = account.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let read = counts.get(&id).copied().unwrap_or_default();
        assert!(read >= appended && read <= appended + 1, "{id} appended {appended}, and {read} were read");
    }
    assert!(counts.values().sum::<u64>() > kills, "the appenders were at work: {counts:?}");
    server.stop().expect("a clean stop");
}

#[test]
fn a_group_of_a_mounted_topic_goes_on_after_a_restart() {
    let (dir, data) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let mut appender = queue(dir.path());
    (0..10).for_each(|time| append(&mut appender, "quote", time));
    let mount = mount_of(dir.path());
    let options = [("mounts", mount.as_str()), ("data.dir", data.path().to_str().expect("text"))];
    let server = server_with(&options);
    let mut client = Client::new(&server);
    let id = topic_id(&mut client, TOPIC);
    find_coordinator(&mut client, "g");
    let partition = OffsetCommitRequestPartition { committed_offset: 7, ..Default::default() };
    let topic =
        OffsetCommitRequestTopic { name: TOPIC.into(), partitions: vec![partition], ..Default::default() };
    let commit = OffsetCommitRequest {
        group_id: "g".into(),
        generation_id_or_member_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    };
    assert_eq!(client.call(&commit, 7).topics[0].partitions[0].error_code, 0);
    server.stop().expect("a clean stop");

    let server = server_with(&options);
    let mut client = Client::new(&server);
    assert_eq!(topic_id(&mut client, TOPIC), id);
    assert_eq!(committed(&mut client), 7);
    server.stop().expect("a clean stop");

    // Without the mount, and with it again.
    let server = server_with(&options[1..]);
    assert_eq!(committed(&mut Client::new(&server)), 7, "the offsets wait for the mount");
    server.stop().expect("a clean stop");
    assert_eq!(committed(&mut Client::new(&server_with(&options))), 7);
}

fn committed(client: &mut Client) -> i64 {
    find_coordinator(client, "g");
    let topic =
        OffsetFetchRequestTopics { name: TOPIC.into(), partition_indexes: vec![0], ..Default::default() };
    let group =
        OffsetFetchRequestGroup { group_id: "g".into(), topics: Some(vec![topic]), ..Default::default() };
    let request = OffsetFetchRequest { groups: vec![group], ..Default::default() };
    client.call(&request, 8).groups.remove(0).topics.remove(0).partitions.remove(0).committed_offset
}

#[test]
fn clients_cannot_change_a_mounted_topic() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut appender = queue(dir.path());
    append(&mut appender, "quote", 1);
    let server = mounted(dir.path());
    let mut client = Client::new(&server);
    let refused = ErrorCode::POLICY_VIOLATION;
    let produced = try_produce(&mut client, TOPIC, 0, &batch(&["mine"]));
    assert_eq!(ErrorCode(produced.error_code), refused);
    assert!(produced.error_message.is_some_and(|message| message.contains("read-only")));

    let state = DeleteTopicState { name: Some(TOPIC.into()), ..Default::default() };
    let deleted = client.call(&DeleteTopicsRequest { topics: vec![state], ..Default::default() }, 6);
    assert_eq!(ErrorCode(deleted.responses[0].error_code), refused);

    let grown = CreatePartitionsTopic { name: TOPIC.into(), count: 2, ..Default::default() };
    let grown = client.call(&CreatePartitionsRequest { topics: vec![grown], ..Default::default() }, 3);
    assert_eq!(ErrorCode(grown.results[0].error_code), refused);

    let config = AlterableConfig { name: "retention.ms".into(), value: Some("1".into()) };
    let resource =
        AlterConfigsResource { resource_type: 2, resource_name: TOPIC.into(), configs: vec![config] };
    let altered = client.call(&AlterConfigsRequest { resources: vec![resource], ..Default::default() }, 2);
    assert_eq!(ErrorCode(altered.responses[0].error_code), refused);

    let deletion = DeleteRecordsTopic {
        name: TOPIC.into(),
        partitions: vec![DeleteRecordsPartition { offset: 1, ..Default::default() }],
    };
    let deleted = client.call(&DeleteRecordsRequest { topics: vec![deletion], ..Default::default() }, 2);
    assert_eq!(ErrorCode(deleted.topics[0].partitions[0].error_code), refused);

    for (name, code) in [(TOPIC, ErrorCode::TOPIC_ALREADY_EXISTS), ("other", ErrorCode::NONE)] {
        assert_eq!(try_create_topic(&mut client, name, 1, 1, &[]), code, "{name}");
    }
    assert_eq!(read_all(&mut client, TOPIC, 0, 0), ["quote"]);
}

#[test]
fn a_mounted_topic_shows_its_queues_size_and_configs() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut appender = queue(dir.path());
    append(&mut appender, "quote", 1);
    let server = mounted(dir.path());
    let mut client = Client::new(&server);
    let resource =
        DescribeConfigsResource { resource_type: 2, resource_name: TOPIC.into(), ..Default::default() };
    let request = DescribeConfigsRequest { resources: vec![resource], ..Default::default() };
    let told = client.call(&request, 4).results.remove(0);
    assert_eq!(ErrorCode(told.error_code), ErrorCode::NONE);
    let segment_bytes = told.configs.iter().find(|config| config.name == "segment.bytes").expect("told");
    assert_eq!((segment_bytes.value.as_deref(), segment_bytes.read_only), (Some("65536"), true));
    let (_, metrics) = get(server.admin_address().expect("an admin port"), "/metrics");
    for line in [
        "riverrun_log_size_bytes{topic=\"quotes\",partition=\"0\"} 65536",
        "riverrun_high_watermark{topic=\"quotes\",partition=\"0\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in:\n{metrics}");
    }
    assert!(health(&server).contains("ok"));
}

#[test]
fn a_queue_that_is_removed_is_an_error_of_its_topic_alone() {
    let above = tempfile::tempdir().expect("a directory");
    let dir = above.path().join("queue");
    let mut appender = queue(&dir);
    append(&mut appender, "quote", 1);
    let server = mounted(&dir);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    let mut waiting = Client::new(&server);
    waiting.send(&FetchRequest { max_wait_ms: 15_000, ..fetch_request(TOPIC, 0, 1) }, 12);
    std::fs::remove_dir_all(&dir).expect("removed");
    let answered = only(waiting.receive::<FetchRequest<'_>>(12).1);
    assert_eq!(ErrorCode(answered.error_code), ErrorCode::KAFKA_STORAGE_ERROR, "who waits is told");
    assert_eq!(list_offset(&mut client, -1).0, ErrorCode::KAFKA_STORAGE_ERROR);
    assert!(health(&server).contains(TOPIC));
    // Another queue in its place is another topic, which a start finds.
    let mut other = queue(&dir);
    append(&mut other, "other", 1);
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(ErrorCode(fetch(&mut client, TOPIC, 0, 0).error_code), ErrorCode::KAFKA_STORAGE_ERROR);
    assert_eq!(read_all(&mut client, "t", 0, 0), Vec::<String>::new());
    server.stop().expect("a clean stop");
}

#[test]
fn old_segments_go_while_readers_are_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut appender = queue(dir.path());
    let value = "x".repeat(1000);
    (0..500).for_each(|time| append(&mut appender, &value, time));
    let server = mounted(dir.path());
    let mut client = Client::new(&server);
    assert_eq!(read_all(&mut client, TOPIC, 0, 0).len(), 500);
    let queue = Queue::open(dir.path()).expect("whole");
    let retention = riverrun_queue::Retention { bytes: Some(2 << 16), ..Default::default() };
    assert!(queue.apply_retention(&retention).expect("removed") > 0);
    let start = queue.start_offset().expect("known").0;
    let until = Instant::now() + PATIENCE;
    while list_offset(&mut client, -2) != (ErrorCode::NONE, -1, start) {
        assert!(Instant::now() < until, "the start is not told");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(ErrorCode(fetch(&mut client, TOPIC, 0, 0).error_code), ErrorCode::OFFSET_OUT_OF_RANGE);
    assert_eq!(
        read_all(&mut client, TOPIC, 0, start).len(),
        500 - usize::try_from(start).expect("an offset")
    );
}

#[test]
fn a_wrong_mount_is_a_start_error_with_its_reason() {
    let (dir, data) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let data = data.path().to_str().expect("text");
    let start = |mounts: &str| {
        let started = configured(&[("mounts", mounts), ("data.dir", data)]).start();
        started.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let missing = start(&mount_of(dir.path()));
    assert!(missing.contains("no queue here"), "{missing}");
    drop(queue(dir.path()));
    for flags in ["", ":rw"] {
        let twice = start(&format!("a={0}{flags},b={0}{flags}", dir.path().display()));
        assert!(twice.contains("mounted as topic 'a' already"), "{twice}");
    }
    assert_eq!(start(&mount_of(dir.path())), "");
    let server = server_with(&[("data.dir", data)]);
    create_topic(&mut Client::new(&server), TOPIC, 1, &[]);
    server.stop().expect("a clean stop");
    let taken = start(&mount_of(dir.path()));
    assert!(taken.contains("already exists"), "{taken}");
}

#[test]
fn a_partition_of_the_server_is_read_from_its_files() {
    let data = tempfile::tempdir().expect("a directory");
    let server = server_with(&[("data.dir", data.path().to_str().expect("text"))]);
    let mut client = Client::new(&server);
    for (name, level) in [("synced", "1"), ("cached", "4")] {
        create_topic(&mut client, name, 1, &[("durability", level)]);
        produce(&mut client, name, 0, &batch(&["first"]));
    }
    let dirs =
        ["synced", "cached"].map(|name| data.path().join("logs").join(uuid(&mut client, name)).join("0"));
    let mut tailer = PartitionTailer::open(&dirs[1], StartAt::Start).expect("a directory");
    for value in ["first", "second", "third"] {
        let found = tailer.wait_batch(PATIENCE).expect("readable").expect("in the page cache");
        assert_eq!(values(found.bytes()), [value]);
        let next = if value == "first" { "second" } else { "third" };
        produce(&mut client, "cached", 0, &batch(&[next]));
    }
    // Synced records get into the segments now and then, and at a stop.
    server.stop().expect("a clean stop");
    let mut tailer = PartitionTailer::open(&dirs[0], StartAt::Start).expect("a directory");
    let found = tailer.next_batch().expect("readable").expect("settled");
    assert_eq!(values(found.bytes()), ["first"]);
}

/// The name of a topic's directories.
fn uuid(client: &mut Client, topic: &str) -> String {
    let id = format!("{:032x}", u128::from_be_bytes(topic_id(client, topic).0));
    format!("{}-{}-{}-{}-{}", &id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..])
}
