//! Queues of this machine to which clients produce while processes append to them.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use riverrun_broker::Server;
use riverrun_protocol::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use riverrun_protocol::delete_topics_request::DeleteTopicState;
use riverrun_protocol::describe_configs_request::DescribeConfigsResource;
use riverrun_protocol::describe_producers_request::TopicRequest;
use riverrun_protocol::produce_response::PartitionProduceResponse;
use riverrun_protocol::{
    DeleteRecordsRequest, DeleteTopicsRequest, DescribeConfigsRequest, DescribeProducersRequest, ErrorCode,
    ProduceRequest,
};
use riverrun_queue::{AppendOptions, Appender, CreateOptions, Queue, QueueView, StartAt, Tailer};
use riverrun_records::{BatchOptions, Batches, Compression, ProducerStamp};
use riverrun_types::{ProducerEpoch, ProducerId};

use crate::admin_port::get;
use crate::support::{
    Client, PATIENCE, SOME_TIME, batch, batch_with, configured, create_topic, fetch, produce,
    produce_request, read_all, records, server_with, try_produce, values,
};

const TOPIC: &str = "orders";
const SEGMENT_BYTES: u64 = 1 << 16;

fn queue(dir: &Path) -> Appender {
    let queue = Queue::create(dir, CreateOptions { segment_bytes: SEGMENT_BYTES }).expect("made");
    queue.appender(AppendOptions::default()).expect("attached")
}

fn mount_of(dir: &Path, flags: &str) -> String {
    format!("{TOPIC}={}{flags}", dir.display())
}

fn mounted(dir: &Path, flags: &str) -> Server {
    server_with(&[("mounts", &mount_of(dir, flags)), ("admin.listen", "127.0.0.1:0")])
}

fn tailed(tailer: &mut Tailer) -> Vec<String> {
    let mut found = Vec::new();
    while let Some(record) = tailer.next().expect("readable") {
        found.push(String::from_utf8(record.value.unwrap_or_default().to_vec()).expect("text"));
    }
    found
}

/// A batch of one record of an idempotent producer.
fn sequenced(id: i64, sequence: i32, value: &str) -> Vec<u8> {
    let producer = ProducerStamp { id: ProducerId(id), epoch: ProducerEpoch(0), base_sequence: sequence };
    batch_with(BatchOptions { producer, ..BatchOptions::default() }, &[value])
}

/// The offset of a batch that is produced until the queue is free. On a busy machine the thread that makes room in the
/// queue may hold it for as long as the server waits.
fn produce_when_free(client: &mut Client, batch: &[u8]) -> Option<i64> {
    (0..60).find_map(|_| {
        let answer = try_produce(client, TOPIC, 0, batch);
        (code(&answer) != ErrorCode::KAFKA_STORAGE_ERROR).then_some(answer.base_offset)
    })
}

fn code(answer: &PartitionProduceResponse<'_>) -> ErrorCode {
    ErrorCode(answer.error_code)
}

fn config(client: &mut Client, name: &'static str) -> Option<String> {
    sourced_config(client, name).map(|(value, _)| value)
}

/// A config's value and source.
fn sourced_config(client: &mut Client, name: &'static str) -> Option<(String, i8)> {
    let resource = DescribeConfigsResource {
        resource_type: 2,
        resource_name: TOPIC.into(),
        configuration_keys: Some(vec![name.into()]),
    };
    let request = DescribeConfigsRequest { resources: vec![resource], ..Default::default() };
    let told = client.call(&request, 4).results.remove(0);
    assert_eq!(ErrorCode(told.error_code), ErrorCode::NONE);
    let config = told.configs.into_iter().next()?;
    config.value.map(|value| (value.to_string(), config.config_source))
}

#[test]
fn clients_produce_among_appends_of_processes() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut appender = queue(dir.path());
    let server = mounted(dir.path(), ":rw");
    let mut client = Client::new(&server);
    let codecs =
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
    let large = "x".repeat(3000);
    let mut expected = Vec::new();
    for round in 0..300 {
        let compression = codecs[usize::try_from(round).expect("small") % codecs.len()];
        let options = BatchOptions { compression, ..BatchOptions::default() };
        assert_eq!(produce(&mut client, TOPIC, 0, &batch_with(options, &["one", &large])), round * 3);
        appender.append(b"mine").expect("room");
        expected.extend(["one", large.as_str(), "mine"].map(str::to_owned));
    }
    assert_eq!(read_all(&mut client, TOPIC, 0, 0), expected, "over several segments");
    let queue = Queue::open(dir.path()).expect("whole");
    assert_eq!(tailed(&mut queue.tailer(StartAt::Start).expect("readable")), expected);
    assert!(queue.status().expect("known").segments > 2);
    server.stop().expect("a clean stop");
    assert_eq!(queue.verify().expect("whole"), 900);
}

#[test]
fn a_batch_is_stored_as_it_was_sent() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut appender = queue(dir.path());
    appender.append(b"mine").expect("room");
    let server = mounted(dir.path(), ":rw");
    let mut client = Client::new(&server);
    let sent = batch_with(
        BatchOptions { compression: Compression::Zstd, ..BatchOptions::default() },
        &["a", "b", "c"],
    );
    assert_eq!(produce(&mut client, TOPIC, 0, &sent), 1);
    let data = fetch(&mut client, TOPIC, 0, 1);
    let stored = records(&data);
    // All but base offset and leader epoch.
    assert_eq!((&stored[8..12], &stored[16..]), (&sent[8..12], &sent[16..]));
    let stored = Batches::new(stored).next().expect("one").expect("whole").verify().expect("whole");
    let epoch = QueueView::open(dir.path()).expect("whole").epoch();
    assert_eq!((stored.base_offset().0, stored.leader_epoch()), (1, epoch));
}

#[test]
fn acks_come_at_the_level_of_the_mount() {
    for (flags, level) in [(":rw", "4"), (":rw:synced", "3")] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut appender = queue(dir.path());
        let server = mounted(dir.path(), flags);
        let mut client = Client::new(&server);
        let view = QueueView::open(dir.path()).expect("whole");
        for round in 0..20 {
            appender.append(b"mine").expect("room");
            assert_eq!(produce(&mut client, TOPIC, 0, &batch(&["theirs"])), round * 2 + 1);
            if level == "3" {
                assert!(view.synced_end_offset().expect("known").0 >= round * 2 + 2, "{round}");
            }
            assert_eq!(
                fetch(&mut client, TOPIC, 0, 0).high_watermark,
                round * 2 + 2,
                "who was acked reads it"
            );
        }
        assert_eq!(config(&mut client, "durability").as_deref(), Some(level));
        assert_eq!(config(&mut client, "durability.reached").as_deref(), Some(level));
        assert_eq!(config(&mut client, "mount.writable").as_deref(), Some("true"));
        assert_eq!(config(&mut client, "max.message.bytes"), Some((SEGMENT_BYTES - 12).to_string()));
        let unsynced = if level == "3" { "0" } else { "40" };
        assert_eq!(config(&mut client, "durability.unsynced.records").as_deref(), Some(unsynced));
        let (_, metrics) = get(server.admin_address().expect("an admin port"), "/metrics");
        for line in [
            format!("riverrun_durability_level{{topic=\"{TOPIC}\",partition=\"0\"}} {level}"),
            format!("riverrun_unsynced_records{{topic=\"{TOPIC}\",partition=\"0\"}} {unsynced}"),
        ] {
            assert!(metrics.contains(&line), "{line} is not in:\n{metrics}");
        }
        server.stop().expect("a clean stop");
    }
}

#[test]
fn only_a_mount_with_retention_loses_old_segments() {
    const BATCHES: usize = 60;
    let value = "x".repeat(10_000);
    // Six to a segment. By age all go but the last one, since their records are old.
    for (flags, left, told) in [
        (":rw:retention.bytes=200000", 3, ["200000", "-1"]),
        (":rw:synced:retention.ms=3600000", 1, ["-1", "3600000"]),
        (":rw", 10, ["-1", "-1"]),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        drop(queue(dir.path()));
        let mount = mount_of(dir.path(), flags);
        let server = server_with(&[("mounts", &mount), ("log.retention.ms", "1000")]);
        let mut client = Client::new(&server);
        for (name, told) in ["retention.bytes", "retention.ms"].into_iter().zip(told) {
            // The topic's own, or nobody's.
            let source = if told == "-1" { 5 } else { 1 };
            assert_eq!(sourced_config(&mut client, name), Some((told.to_owned(), source)), "{flags}");
        }
        for offset in (0..).take(BATCHES) {
            assert_eq!(produce(&mut client, TOPIC, 0, &sequenced(7, offset, &value)), i64::from(offset));
        }
        let view = QueueView::open(dir.path()).expect("whole");
        let until = Instant::now() + PATIENCE;
        while view.segments().expect("known").len() > left {
            assert!(Instant::now() < until, "{flags}: {:?}", view.segments());
            std::thread::sleep(Duration::from_millis(20));
        }
        let segments = view.segments().expect("known");
        assert_eq!(segments.len(), left, "{flags}");
        let start = usize::try_from(segments[0].0).expect("an offset");
        // The server itself looks each second.
        while fetch(&mut client, TOPIC, 0, 0).log_start_offset != segments[0].0 {
            assert!(Instant::now() < until, "the start is not told");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(read_all(&mut client, TOPIC, 0, segments[0].0).len(), BATCHES - start);
        assert_eq!(described(&mut client), [(7, 59)]);
        server.stop().expect("a clean stop");
    }
}

#[test]
fn idempotent_producers_are_remembered_also_over_a_restart() {
    let (dir, data) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let mut appender = queue(dir.path());
    let mount = mount_of(dir.path(), ":rw:synced");
    let options = [("mounts", mount.as_str()), ("data.dir", data.path().to_str().expect("text"))];
    let server = server_with(&options);
    let mut client = Client::new(&server);
    for sequence in 0..8 {
        appender.append(b"mine").expect("room");
        let sent = sequenced(7, sequence, "theirs");
        assert_eq!(produce(&mut client, TOPIC, 0, &sent), i64::from(sequence) * 2 + 1);
    }
    let again = |client: &mut Client| {
        for sequence in 3..8 {
            let first = i64::from(sequence) * 2 + 1;
            assert_eq!(produce(client, TOPIC, 0, &sequenced(7, sequence, "theirs")), first);
        }
        let gap = try_produce(client, TOPIC, 0, &sequenced(7, 9, "theirs"));
        assert_eq!(code(&gap), ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
        assert_eq!(fetch(client, TOPIC, 0, 0).high_watermark, 16);
        assert_eq!(described(client), [(7, 7)]);
    };
    again(&mut client);
    server.stop().expect("a clean stop");
    let server = server_with(&options);
    again(&mut Client::new(&server));
    server.stop().expect("a clean stop");

    // The producers of another cluster are others, though they have the same ids.
    let other = mounted(dir.path(), ":rw:synced");
    let mut client = Client::new(&other);
    assert_eq!(described(&mut client), []);
    assert_eq!(produce(&mut client, TOPIC, 0, &sequenced(7, 7, "another's")), 16);
    other.stop().expect("a clean stop");
    let server = server_with(&options);
    assert_eq!(described(&mut Client::new(&server)), [], "and so are what it left");
}

/// Id and last sequence of each producer.
fn described(client: &mut Client) -> Vec<(i64, i32)> {
    let topic = TopicRequest { name: TOPIC.into(), partition_indexes: vec![0] };
    let told = client.call(&DescribeProducersRequest { topics: vec![topic] }, 0).topics.remove(0);
    let told = &told.partitions[0];
    assert_eq!(ErrorCode(told.error_code), ErrorCode::NONE);
    told.active_producers.iter().map(|producer| (producer.producer_id, producer.last_sequence)).collect()
}

#[test]
fn a_queue_refuses_unfit_batches_with_a_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    drop(queue(dir.path()));
    let server = mounted(dir.path(), ":rw");
    let mut client = Client::new(&server);
    let producer = ProducerStamp { id: ProducerId(7), epoch: ProducerEpoch(0), base_sequence: 0 };
    let transactional = BatchOptions { producer, transactional: true, ..BatchOptions::default() };
    let overhead = batch(&["x".repeat(50_000).as_str()]).len() - 50_000;
    let most = usize::try_from(SEGMENT_BYTES).expect("small") - 12;
    let sized = |bytes: usize| batch(&["x".repeat(bytes - overhead).as_str()]);
    assert_eq!(sized(most).len(), most);
    let mut garbled = batch(&["x"]);
    *garbled.last_mut().expect("bytes") ^= 1;
    let many = [batch(&["x"]), batch(&["y"])].concat();
    for (sent, refused, reason) in [
        (batch_with(transactional, &["x"]), ErrorCode::INVALID_TXN_STATE, "transactions"),
        (sized(most + 1), ErrorCode::MESSAGE_TOO_LARGE, "max.message.bytes"),
        (garbled, ErrorCode::CORRUPT_MESSAGE, ""),
        (many, ErrorCode::INVALID_RECORD, ""),
        (Vec::new(), ErrorCode::INVALID_RECORD, ""),
    ] {
        let answer = try_produce(&mut client, TOPIC, 0, &sent);
        assert_eq!(code(&answer), refused);
        assert!(answer.error_message.is_some_and(|message| message.contains(reason)));
    }
    let elsewhere = try_produce(&mut client, TOPIC, 1, &batch(&["x"]));
    assert_eq!(code(&elsewhere), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(produce(&mut client, TOPIC, 0, &sized(most)), 0);
    assert_eq!(produce(&mut client, TOPIC, 0, &batch(&["next"])), 1);

    let deleted = DeleteTopicState { name: Some(TOPIC.into()), ..Default::default() };
    let deleted = client.call(&DeleteTopicsRequest { topics: vec![deleted], ..Default::default() }, 6);
    assert_eq!(ErrorCode(deleted.responses[0].error_code), ErrorCode::POLICY_VIOLATION);
    let deletion = DeleteRecordsTopic {
        name: TOPIC.into(),
        partitions: vec![DeleteRecordsPartition { offset: 1, ..Default::default() }],
    };
    let deleted = client.call(&DeleteRecordsRequest { topics: vec![deletion], ..Default::default() }, 2);
    assert_eq!(ErrorCode(deleted.topics[0].partitions[0].error_code), ErrorCode::POLICY_VIOLATION);
}

#[test]
fn append_time_is_stamped_on_a_queues_records_if_it_is_set() {
    let dir = tempfile::tempdir().expect("a directory");
    drop(queue(dir.path()));
    let mount = mount_of(dir.path(), ":rw");
    let server = server_with(&[("mounts", &mount), ("log.message.timestamp.type", "LogAppendTime")]);
    let mut client = Client::new(&server);
    let answer = try_produce(&mut client, TOPIC, 0, &sequenced(7, 0, "x"));
    assert_eq!((code(&answer), answer.base_offset), (ErrorCode::NONE, 0));
    assert!(answer.log_append_time_ms > SOME_TIME.0);
    let again = try_produce(&mut client, TOPIC, 0, &sequenced(7, 0, "x"));
    assert_eq!((again.base_offset, again.log_append_time_ms), (0, answer.log_append_time_ms));
    assert_eq!(config(&mut client, "message.timestamp.type").as_deref(), Some("LogAppendTime"));
    let queue = Queue::open(dir.path()).expect("whole");
    let mut tailer = queue.tailer(StartAt::Start).expect("readable");
    let record = tailer.next().expect("readable").expect("one");
    assert_eq!(record.timestamp.0, answer.log_append_time_ms);
    server.stop().expect("a clean stop");

    let server = server_with(&[("mounts", &mount), ("log.message.timestamp.before.max.ms", "1000")]);
    let old = try_produce(&mut Client::new(&server), TOPIC, 0, &batch(&["x"]));
    assert_eq!(code(&old), ErrorCode::INVALID_TIMESTAMP);
    let blamed: Vec<i32> = old.record_errors.iter().map(|error| error.batch_index).collect();
    assert_eq!(blamed, [0]);
}

#[test]
fn a_held_queue_keeps_no_other_request_waiting() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut appender = queue(dir.path());
    // One network thread.
    let mount = mount_of(dir.path(), ":rw");
    let server = server_with(&[("mounts", &mount), ("num.network.threads", "1")]);
    let (mut client, mut other) = (Client::new(&server), Client::new(&server));
    create_topic(&mut other, "t", 1, &[]);
    let held = appender.reserve(10).expect("room");
    // A request that waited for the queue would take a second. The machine may be as slow once, and not each time.
    let goes_on = (0..20).any(|round| {
        for sequence in 0..3 {
            client.send(&produce_request(TOPIC, 0, &sequenced(7, sequence, "x"), 1), 12);
        }
        let sent = Instant::now();
        assert_eq!(produce(&mut other, "t", 0, &batch(&["x"])), round);
        assert_eq!(described(&mut other), []);
        let took = sent.elapsed();
        for _ in 0..3 {
            let answer =
                client.receive::<ProduceRequest<'_>>(12).1.responses.remove(0).partition_responses.remove(0);
            assert_eq!(code(&answer), ErrorCode::KAFKA_STORAGE_ERROR, "which is retriable");
            assert!(answer.error_message.is_some_and(|message| message.contains("another appender")));
        }
        took < Duration::from_millis(900)
    });
    assert!(goes_on, "nobody waits for the queue");
    drop(held);
    for sequence in 0..3 {
        let offset = produce_when_free(&mut client, &sequenced(7, sequence, "x"));
        assert_eq!(offset, Some(i64::from(sequence)));
    }
    appender.append(b"mine").expect("room");
    assert_eq!(read_all(&mut client, TOPIC, 0, 0), ["x", "x", "x", "mine"]);
}

/// The variable with the queue that a started process is to hold.
const HOLD: &str = "RIVERRUN_MOUNT_HOLD";

/// Not a test of its own: the next test starts a process that runs it.
#[test]
fn a_started_process_holds_a_queue_until_it_is_killed() {
    let Ok(dir) = std::env::var(HOLD) else { return };
    let queue = Queue::open(Path::new(&dir)).expect("whole");
    let mut appender = queue.appender(AppendOptions::default()).expect("attached");
    let mut reserved = appender.reserve(1000).expect("room");
    reserved.fill(7);
    println!("holding");
    // Should the test be gone, its end of the pipe is.
    let _ = std::io::stdin().read_line(&mut String::new());
    std::process::exit(1);
}

#[test]
fn an_appender_that_died_does_not_block_produce() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut appender = queue(dir.path());
    appender.append(b"mine").expect("room");
    let server = mounted(dir.path(), ":rw");
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args([
        "mount_writes::a_started_process_holds_a_queue_until_it_is_killed",
        "--exact",
        "--nocapture",
    ]);
    let command = command.env(HOLD, dir.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("started");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert!(lines.any(|line| line.expect("text").contains("holding")), "it holds the queue");
    let mut client = Client::new(&server);
    let refused = try_produce(&mut client, TOPIC, 0, &batch(&["theirs"]));
    assert_eq!(code(&refused), ErrorCode::KAFKA_STORAGE_ERROR);
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert_eq!(produce_when_free(&mut client, &batch(&["theirs"])), Some(1));
    assert_eq!(read_all(&mut client, TOPIC, 0, 0), ["mine", "theirs"]);
}

#[test]
fn a_queue_damaged_at_the_start_takes_no_records() {
    let (dir, data) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    drop(queue(dir.path()));
    let mount = mount_of(dir.path(), ":rw");
    let data = data.path().to_str().expect("text");
    let options = [("mounts", mount.as_str()), ("data.dir", data), ("admin.listen", "127.0.0.1:0")];
    let server = server_with(&options);
    let mut client = Client::new(&server);
    for (offset, value) in (0..).zip(["one", "two", "three"]) {
        assert_eq!(produce(&mut client, TOPIC, 0, &batch(&[value])), offset);
    }
    server.stop().expect("a clean stop");
    let segment = dir.path().join(format!("{:020}.log", 0));
    let file = File::options().read(true).write(true).open(segment).expect("there");
    let second = batch(&["one"]).len() as u64;
    // The length of the second batch.
    file.write_all_at(&i32::MAX.to_be_bytes(), second + 8).expect("written");

    let server = server_with(&options);
    let mut client = Client::new(&server);
    for _ in 0..2 {
        let refused = try_produce(&mut client, TOPIC, 0, &batch(&["x"]));
        assert_eq!(code(&refused), ErrorCode::KAFKA_STORAGE_ERROR);
        let reason = refused.error_message.unwrap_or_default();
        assert!(reason.contains("is damaged at byte"), "{reason}");
    }
    assert_eq!(values(records(&fetch(&mut client, TOPIC, 0, 0))), ["one"]);
    let health = get(server.admin_address().expect("an admin port"), "/health").1;
    assert!(health.contains(TOPIC) && health.contains("is damaged"), "{health}");
    create_topic(&mut client, "t", 1, &[]);
    assert_eq!(produce(&mut client, "t", 0, &batch(&["x"])), 0);
}

#[test]
fn one_server_at_a_time_takes_records_for_a_queue() {
    let (dir, data) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    drop(queue(dir.path()));
    let first = mounted(dir.path(), ":rw");
    let data = data.path().to_str().expect("text");
    let second = configured(&[("mounts", &mount_of(dir.path(), ":rw")), ("data.dir", data)]).start();
    let refused = second.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("another server takes records"), "{refused}");
    // To read it is no matter.
    let reader = mounted(dir.path(), "");
    assert_eq!(produce(&mut Client::new(&first), TOPIC, 0, &batch(&["x"])), 0);
    assert_eq!(read_all(&mut Client::new(&reader), TOPIC, 0, 0), ["x"]);
    let refused = try_produce(&mut Client::new(&reader), TOPIC, 0, &batch(&["x"]));
    assert_eq!(code(&refused), ErrorCode::POLICY_VIOLATION);
    first.stop().expect("a clean stop");
    mounted(dir.path(), ":rw").stop().expect("the first has let go");
}

#[test]
fn nothing_is_acked_for_a_queue_that_is_gone() {
    let above = tempfile::tempdir().expect("a directory");
    let dir = above.path().join("queue");
    drop(queue(&dir));
    let server = mounted(&dir, ":rw");
    let mut client = Client::new(&server);
    assert_eq!(produce(&mut client, TOPIC, 0, &batch(&["x"])), 0);
    std::fs::remove_dir_all(&dir).expect("removed");
    let refused = try_produce(&mut client, TOPIC, 0, &batch(&["x"]));
    assert_eq!(code(&refused), ErrorCode::KAFKA_STORAGE_ERROR);
    assert!(get(server.admin_address().expect("an admin port"), "/health").1.contains(TOPIC));
}

#[test]
fn with_acks_0_nothing_is_answered_and_a_refusal_closes() {
    let dir = tempfile::tempdir().expect("a directory");
    drop(queue(dir.path()));
    let server = mounted(dir.path(), ":rw:synced");
    let mut client = Client::new(&server);
    for _ in 0..10 {
        client.send(&produce_request(TOPIC, 0, &batch(&["x"]), 0), 12);
    }
    // The next answer is that of a fetch.
    let until = Instant::now() + PATIENCE;
    while read_all(&mut client, TOPIC, 0, 0) != ["x"; 10] {
        assert!(Instant::now() < until, "they do not come");
    }
    client.send(&produce_request(TOPIC, 0, &sequenced(7, 0, "x"), 0), 12);
    client.send(&produce_request(TOPIC, 0, &sequenced(7, 5, "x"), 0), 12);
    client.expect_closed("a sequence that does not follow");
}

#[test]
fn many_producers_and_appenders_keep_all_records_in_order() {
    const BATCHES: i32 = 150;
    let dir = tempfile::tempdir().expect("a directory");
    drop(queue(dir.path()));
    let server = mounted(dir.path(), ":rw:synced");
    std::thread::scope(|scope| {
        for id in 0..4 {
            let server = &server;
            scope.spawn(move || {
                let mut client = Client::new(server);
                let sent = |sequence| sequenced(id, sequence, &format!("{id} {sequence}"));
                for sequence in 0..BATCHES {
                    client.send(&produce_request(TOPIC, 0, &sent(sequence), -1), 12);
                }
                for _ in 0..BATCHES {
                    let answer = client.receive::<ProduceRequest<'_>>(12).1.responses.remove(0);
                    assert_eq!(code(&answer.partition_responses[0]), ErrorCode::NONE);
                }
            });
        }
        for id in 4..6 {
            let queue = Queue::open(dir.path()).expect("whole");
            scope.spawn(move || {
                let mut appender = queue.appender(AppendOptions::default()).expect("attached");
                for sequence in 0..BATCHES {
                    appender.append(format!("{id} {sequence}").as_bytes()).expect("room");
                }
                appender.sync().expect("synced");
            });
        }
    });
    let mut client = Client::new(&server);
    let found = read_all(&mut client, TOPIC, 0, 0);
    for id in 0..6 {
        let own: Vec<&String> = found.iter().filter(|value| value.starts_with(&format!("{id} "))).collect();
        let expected: Vec<String> = (0..BATCHES).map(|sequence| format!("{id} {sequence}")).collect();
        assert!(own.into_iter().eq(&expected), "{id}");
    }
    server.stop().expect("a clean stop");
}
