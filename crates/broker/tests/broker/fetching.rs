//! Fetches as a consumer may rely on them: waiting, limits, sessions, order, and deletion.

use std::sync::Arc;
use std::time::{Duration, Instant};

use riverrun_env::Env;
use riverrun_env::sim::SimClock;
use riverrun_protocol::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use riverrun_protocol::delete_topics_request::DeleteTopicState;
use riverrun_protocol::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use riverrun_protocol::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use riverrun_protocol::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use riverrun_protocol::{
    ApiVersionsRequest, DeleteRecordsRequest, DeleteTopicsRequest, ErrorCode, FetchRequest, FetchResponse,
    ListOffsetsRequest, MetadataRequest, OffsetForLeaderEpochRequest,
};
use riverrun_records::{BatchOptions, Compression, UnverifiedBatch};
use riverrun_types::TimestampMs;

use crate::support::{
    Client, batch, batch_with, configured, create_topic, fetch, fetch_request, only, produce, read_all,
    records, server, server_with, topic_id, try_produce, values,
};

const CODECS: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

fn codec_of(bytes: &[u8]) -> Compression {
    let (batch, _) = UnverifiedBatch::split_first(bytes).expect("a batch");
    batch.verify().expect("sound").compression()
}

#[test]
fn batches_of_every_codec_come_back_as_they_went() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 5, &[]);
    let sent: Vec<String> = (0..50).map(|index| format!("record {index} {}", "x".repeat(index))).collect();
    let sent: Vec<&str> = sent.iter().map(String::as_str).collect();
    for (index, compression) in (0..).zip(CODECS) {
        let bytes = batch_with(BatchOptions { compression, ..Default::default() }, &sent);
        assert_eq!(produce(&mut client, "t", index, &bytes), 0);
        let data = fetch(&mut client, "t", index, 0);
        assert_eq!(values(records(&data)), sent, "{compression:?}");
        // Offset and epoch are patched; all else, compressed records and checksum, is as sent.
        assert_eq!(records(&data)[16..], bytes[16..], "{compression:?}");
        assert_eq!((data.high_watermark, data.last_stable_offset), (50, 50));
    }
}

#[test]
fn an_empty_partition_has_the_epoch_of_its_leader() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    for timestamp in [-1, -2] {
        let partition = ListOffsetsPartition { timestamp, ..Default::default() };
        let topic = ListOffsetsTopic { name: "t".into(), partitions: vec![partition] };
        let request = ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..Default::default() };
        let answer = client.call(&request, 7).topics.remove(0).partitions.remove(0);
        assert_eq!((answer.offset, answer.leader_epoch), (0, 0), "{timestamp}");
    }
    for (leader_epoch, expected) in [(0, (0, 0)), (1, (-1, -1))] {
        let asked = OffsetForLeaderPartition { leader_epoch, ..Default::default() };
        let topic = OffsetForLeaderTopic { topic: "t".into(), partitions: vec![asked] };
        let request = OffsetForLeaderEpochRequest { replica_id: -1, topics: vec![topic] };
        let answer = client.call(&request, 4).topics.remove(0).partitions.remove(0);
        assert_eq!((answer.leader_epoch, answer.end_offset), expected, "{leader_epoch}");
    }
}

#[test]
fn a_topic_with_a_codec_of_its_own_stores_in_that() {
    let server = server();
    let mut client = Client::new(&server);
    for stored in CODECS {
        let name = format!("as-{}", stored.name());
        let value = if stored == Compression::None { "uncompressed" } else { stored.name() };
        create_topic(&mut client, &name, 1, &[("compression.type", value)]);
        for compression in CODECS {
            let next = read_all(&mut client, &name, 0, 0).len();
            let bytes = batch_with(BatchOptions { compression, ..Default::default() }, &["a"]);
            produce(&mut client, &name, 0, &bytes);
            let data = fetch(&mut client, &name, 0, i64::try_from(next).expect("few"));
            assert_eq!(codec_of(records(&data)), stored, "{compression:?}");
            assert_eq!(values(records(&data)), ["a"]);
        }
    }
}

#[test]
fn a_waiting_fetch_is_answered_when_something_is_produced() {
    let server = server();
    let (mut consumer, mut producer) = (Client::new(&server), Client::new(&server));
    create_topic(&mut producer, "t", 1, &[]);
    let mut shortest = Duration::MAX;
    for round in 0..5 {
        let mut wait = fetch_request("t", 0, round);
        wait.max_wait_ms = 10_000;
        consumer.send(&wait, 12);
        assert!(consumer.is_quiet_for(Duration::from_millis(50)), "nothing is there yet");
        let since = Instant::now();
        assert_eq!(produce(&mut producer, "t", 0, &batch(&["now"])), round);
        let data = only(consumer.receive::<FetchRequest<'_>>(12).1);
        shortest = shortest.min(since.elapsed());
        assert_eq!(values(records(&data)), ["now"]);
    }
    assert!(shortest < Duration::from_millis(50), "{shortest:?}");
}

#[test]
fn a_waiting_fetch_ends_with_its_time_and_counts_bytes() {
    let server = server();
    let (mut consumer, mut producer) = (Client::new(&server), Client::new(&server));
    // Records that are produced come within the wait, however long a sync takes.
    create_topic(&mut producer, "t", 1, &[("durability", "4")]);
    let mut wait = fetch_request("t", 0, 0);
    (wait.max_wait_ms, wait.min_bytes) = (2_000, 1_000);
    let since = Instant::now();
    consumer.send(&wait, 12);
    produce(&mut producer, "t", 0, &batch(&["too little"]));
    let data = only(consumer.receive::<FetchRequest<'_>>(12).1);
    assert!(since.elapsed() >= Duration::from_secs(2), "{:?}", since.elapsed());
    assert_eq!(values(records(&data)), ["too little"], "at the end of the time, what is there is sent");
    wait.max_wait_ms = 10_000;
    let since = Instant::now();
    consumer.send(&wait, 12);
    produce(&mut producer, "t", 0, &batch(&["x".repeat(1_000).as_str()]));
    assert_eq!(values(records(&only(consumer.receive::<FetchRequest<'_>>(12).1))).len(), 2);
    assert!(since.elapsed() < Duration::from_secs(9), "enough bytes end the wait");
}

#[test]
fn a_producer_waits_for_no_waiting_fetch() {
    let server = server();
    let mut producer = Client::new(&server);
    create_topic(&mut producer, "t", 1, &[]);
    let mut wait = fetch_request("t", 0, 0);
    wait.max_wait_ms = 10_000;
    let mut consumers: Vec<Client> = (0..20).map(|_| Client::new(&server)).collect();
    for consumer in &mut consumers {
        consumer.send(&wait, 12);
    }
    produce(&mut producer, "t", 0, &batch(&["for all"]));
    for consumer in &mut consumers {
        assert_eq!(values(records(&only(consumer.receive::<FetchRequest<'_>>(12).1))), ["for all"]);
    }
}

#[test]
fn byte_limits_hold_except_for_the_first_batch() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 2, &[]);
    let large = "x".repeat(1_000);
    for index in [0, 0, 0, 1, 1] {
        produce(&mut client, "t", index, &batch(&[&large]));
    }
    let size = i32::try_from(batch(&[&large]).len()).expect("small");
    let mut counts = |max_bytes, partition_max_bytes| {
        let partition = |partition| FetchPartition { partition, partition_max_bytes, ..Default::default() };
        let partitions = vec![partition(0), partition(1)];
        let topic = FetchTopic { topic: "t".into(), partitions, ..Default::default() };
        let request = FetchRequest { max_bytes, min_bytes: 1, topics: vec![topic], ..Default::default() };
        let response = client.call(&request, 12);
        let partitions = &response.responses[0].partitions;
        partitions.iter().map(|data| values(records(data)).len()).collect::<Vec<_>>()
    };
    assert_eq!(counts(i32::MAX, i32::MAX), [3, 2]);
    assert_eq!(counts(i32::MAX, 2 * size), [2, 2]);
    assert_eq!(counts(i32::MAX, 2 * size + 500), [2, 2], "no part of a batch is sent");
    assert_eq!(counts(4 * size, i32::MAX), [3, 1]);
    assert_eq!(counts(10, i32::MAX), [1, 0], "the first batch is sent whatever the limits");
    assert_eq!(counts(i32::MAX, 10), [1, 0]);
}

#[test]
fn the_servers_own_limit_on_a_fetch_holds() {
    let server = server_with(&[("fetch.max.bytes", "1024")]);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    for _ in 0..4 {
        produce(&mut client, "t", 0, &batch(&["x".repeat(400).as_str()]));
    }
    assert_eq!(values(records(&fetch(&mut client, "t", 0, 0))).len(), 2);
}

/// A consumer with an incremental session of three partitions.
struct Session {
    client: Client,
    id: i32,
    epoch: i32,
}

impl Session {
    /// Fetches, naming only these partitions and offsets. Gives partitions and the number of records of each.
    fn next(&mut self, named: &[(i32, i64)], forgotten: &[i32]) -> Vec<(i32, usize)> {
        let partition = |&(partition, fetch_offset): &(i32, i64)| FetchPartition {
            partition,
            fetch_offset,
            partition_max_bytes: 1 << 20,
            ..Default::default()
        };
        let topic = || "t".into();
        let partitions: Vec<_> = named.iter().map(partition).collect();
        let forgotten =
            ForgottenTopic { topic: topic(), partitions: forgotten.to_vec(), ..Default::default() };
        let request = FetchRequest {
            session_id: self.id,
            session_epoch: self.epoch,
            topics: vec![FetchTopic { topic: topic(), partitions, ..Default::default() }],
            forgotten_topics_data: vec![forgotten],
            ..Default::default()
        };
        let response = self.client.call(&request, 12);
        assert_eq!(ErrorCode(response.error_code), ErrorCode::NONE);
        self.id = response.session_id;
        self.epoch += 1;
        counts(&response)
    }
}

fn counts(response: &FetchResponse<'_>) -> Vec<(i32, usize)> {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    let mut counts: Vec<_> =
        partitions.map(|data| (data.partition_index, values(records(data)).len())).collect();
    counts.sort_unstable();
    counts
}

#[test]
fn a_session_answers_only_with_news() {
    let server = server();
    let mut producer = Client::new(&server);
    create_topic(&mut producer, "t", 3, &[]);
    let mut session = Session { client: Client::new(&server), id: 0, epoch: 0 };
    assert_eq!(session.next(&[(0, 0), (1, 0), (2, 0)], &[]), [(0, 0), (1, 0), (2, 0)], "all at first");
    assert_ne!(session.id, 0);
    assert_eq!(session.next(&[], &[]), [], "nothing is new");
    produce(&mut producer, "t", 1, &batch(&["a", "b"]));
    assert_eq!(session.next(&[], &[]), [(1, 2)]);
    assert_eq!(session.next(&[(1, 2)], &[]), [], "the consumer has moved on");
    produce(&mut producer, "t", 0, &batch(&["c"]));
    produce(&mut producer, "t", 2, &batch(&["d"]));
    assert_eq!(session.next(&[], &[0]), [(2, 1)], "a forgotten partition is not told");
    assert_eq!(session.next(&[(2, 1)], &[]), []);
    assert_eq!(session.next(&[(0, 0)], &[]), [(0, 1)], "and can be added again");
}

#[test]
fn a_session_out_of_step_gets_the_error_that_begins_another() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    let mut request = fetch_request("t", 0, 0);
    request.session_epoch = 0;
    let id = client.call(&request, 12).session_id;
    let mut at = |session_id, session_epoch| {
        let request = FetchRequest { session_id, session_epoch, ..Default::default() };
        ErrorCode(client.call(&request, 12).error_code)
    };
    assert_eq!(at(id, 5), ErrorCode::INVALID_FETCH_SESSION_EPOCH);
    assert_eq!(at(id, 1), ErrorCode::NONE);
    assert_eq!(at(id, 1), ErrorCode::INVALID_FETCH_SESSION_EPOCH);
    assert_eq!(at(id.wrapping_add(1).max(1), 1), ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
    assert_eq!(at(id, -1), ErrorCode::NONE, "the end");
    assert_eq!(at(id, 2), ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
}

#[test]
fn sessions_above_the_limit_are_served_without_one() {
    let server = server_with(&[("max.incremental.fetch.session.cache.slots", "2")]);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    produce(&mut client, "t", 0, &batch(&["a"]));
    let mut request = fetch_request("t", 0, 0);
    request.session_epoch = 0;
    let mut sessions = 0;
    for _ in 0..5 {
        let response = client.call(&request, 12);
        sessions += usize::from(response.session_id != 0);
        assert_eq!(counts(&response), [(0, 1)]);
    }
    assert_eq!(sessions, 2);
}

#[test]
fn the_session_that_is_unused_for_longest_makes_room() {
    let clock = Arc::new(SimClock::new());
    let env = Env { clock: Arc::<SimClock>::clone(&clock), ..Env::real() };
    let options = [("max.incremental.fetch.session.cache.slots", "2")];
    let server = configured(&options).env(env).start().expect("the server starts");
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    let mut begin = fetch_request("t", 0, 0);
    begin.session_epoch = 0;
    let mut ask = |session_id, session_epoch| {
        let go_on = FetchRequest { session_id, session_epoch, ..Default::default() };
        let request = if session_epoch == 0 { begin.clone() } else { go_on };
        let response = client.call(&request, 12);
        (ErrorCode(response.error_code), response.session_id)
    };
    let (_, old) = ask(0, 0);
    clock.advance(Duration::from_secs(1));
    let (_, newer) = ask(0, 0);
    clock.advance(Duration::from_secs(119));
    assert_eq!(ask(0, 0), (ErrorCode::NONE, 0), "both are in use");
    assert_eq!(ask(old, 1).0, ErrorCode::NONE, "so it is the other that is unused for longer now");
    clock.advance(Duration::from_secs(2));
    let (_, newest) = ask(0, 0);
    assert!(newest != 0 && newest != old && newest != newer);
    assert_eq!(ask(newer, 1).0, ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
    assert_eq!(ask(old, 2).0, ErrorCode::NONE);
    assert_eq!(ask(newest, 1).0, ErrorCode::NONE);
}

#[test]
fn a_topic_that_is_deleted_ends_the_fetches_that_wait_for_it() {
    let server = server();
    let (mut consumer, mut admin) = (Client::new(&server), Client::new(&server));
    create_topic(&mut admin, "doomed", 1, &[]);
    let id = topic_id(&mut admin, "doomed");
    let mut by_name = fetch_request("doomed", 0, 0);
    by_name.max_wait_ms = 15_000;
    let mut by_id = by_name.clone();
    (by_id.topics[0].topic, by_id.topics[0].topic_id) = ("".into(), id);
    let mut other = Client::new(&server);
    consumer.send(&by_name, 12);
    other.send(&by_id, 17);
    assert!(consumer.is_quiet_for(Duration::from_millis(50)));
    let since = Instant::now();
    let topics = vec![DeleteTopicState { name: Some("doomed".into()), ..Default::default() }];
    let deleted = admin.call(&DeleteTopicsRequest { topics, ..Default::default() }, 6);
    assert_eq!(deleted.responses[0].error_code, 0);
    let data = only(consumer.receive::<FetchRequest<'_>>(12).1);
    assert_eq!(ErrorCode(data.error_code), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    let data = only(other.receive::<FetchRequest<'_>>(17).1);
    assert_eq!(ErrorCode(data.error_code), ErrorCode::UNKNOWN_TOPIC_ID);
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
}

#[test]
fn waiting_fetches_of_closed_connections_harm_nobody() {
    let server = server();
    let mut producer = Client::new(&server);
    create_topic(&mut producer, "t", 1, &[]);
    for _ in 0..20 {
        let mut gone = Client::new(&server);
        let mut wait = fetch_request("t", 0, 0);
        wait.max_wait_ms = i32::MAX;
        gone.send(&wait, 12);
    }
    produce(&mut producer, "t", 0, &batch(&["a"]));
    assert_eq!(read_all(&mut producer, "t", 0, 0), ["a"]);
    server.stop().expect("a clean stop");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    let mut wait = fetch_request("t", 0, 0);
    wait.max_wait_ms = 300;
    let bytes = batch(&["a"]);
    let mut ids = Vec::new();
    for _ in 0..10 {
        ids.push(client.send(&wait, 12));
        ids.push(client.send(&MetadataRequest::default(), 12));
        ids.push(client.send(&ApiVersionsRequest::default(), 0));
        ids.push(client.send(&crate::support::produce_request("t", 0, &bytes, -1), 12));
    }
    for id in ids.chunks(4) {
        assert_eq!(client.receive::<FetchRequest<'_>>(12).0, id[0]);
        assert_eq!(client.receive::<MetadataRequest<'_>>(12).0, id[1]);
        assert_eq!(client.receive::<ApiVersionsRequest<'_>>(0).0, id[2]);
        assert_eq!(client.receive::<riverrun_protocol::ProduceRequest<'_>>(12).0, id[3]);
    }
    assert_eq!(read_all(&mut client, "t", 0, 0).len(), 10);
}

#[test]
fn a_pipelined_fetch_finds_the_records_produced_before_it() {
    let server = server();
    let mut client = Client::new(&server);
    // At a level that syncs, records are not visible before the sync.
    create_topic(&mut client, "t", 1, &[("durability", "4")]);
    let bytes = batch(&["a"]);
    for round in 1..=20 {
        // All of a round is sent before anything is received, so much of it arrives together.
        for _ in 0..3 {
            client.send(&crate::support::produce_request("t", 0, &bytes, -1), 12);
        }
        client.send(&fetch_request("t", 0, 0), 12);
        for _ in 0..3 {
            client.receive::<riverrun_protocol::ProduceRequest<'_>>(12);
        }
        let (_, response) = client.receive::<FetchRequest<'_>>(12);
        assert_eq!(response.responses[0].partitions[0].high_watermark, 3 * round);
    }
}

#[test]
fn requests_before_one_that_closes_the_connection_are_answered() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    let bytes = batch(&["a"]);
    let answered = client.send(&crate::support::produce_request("t", 0, &bytes, -1), 12);
    client.send(&crate::support::produce_request("nowhere", 0, &bytes, 0), 12);
    assert_eq!(client.receive::<riverrun_protocol::ProduceRequest<'_>>(12).0, answered);
    client.expect_closed("a refused batch with acks=0");
    assert_eq!(read_all(&mut Client::new(&server), "t", 0, 0), ["a"]);
}

fn list_offset(client: &mut Client, topic: &str, timestamp: i64) -> (i64, i64) {
    let partition = ListOffsetsPartition { timestamp, ..Default::default() };
    let topic = ListOffsetsTopic { name: topic.to_owned().into(), partitions: vec![partition] };
    let request = ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..Default::default() };
    let response = client.call(&request, 8);
    let found = &response.topics[0].partitions[0];
    assert_eq!(ErrorCode(found.error_code), ErrorCode::NONE);
    (found.timestamp, found.offset)
}

#[test]
fn offsets_are_found_by_time() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    for time in [1_000, 3_000, 2_000] {
        let mut builder = riverrun_records::BatchBuilder::new(BatchOptions::default());
        builder.append(TimestampMs(time), None, Some(b"x"), &[]).expect("fits");
        produce(&mut client, "t", 0, &builder.build().expect("builds"));
    }
    for (asked, found) in [
        (0, (1_000, 0)),
        (1_000, (1_000, 0)),
        (1_001, (3_000, 1)),
        (3_001, (-1, -1)),
        (-1, (-1, 3)),
        (-2, (-1, 0)),
        (-3, (3_000, 1)),
    ] {
        assert_eq!(list_offset(&mut client, "t", asked), found, "{asked}");
    }
}

#[test]
fn deleted_records_are_gone_for_every_reader() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    for value in ["a", "b", "c", "d"] {
        produce(&mut client, "t", 0, &batch(&[value]));
    }
    let mut delete = |offset| {
        let partitions = vec![DeleteRecordsPartition { partition_index: 0, offset }];
        let topics = vec![DeleteRecordsTopic { name: "t".into(), partitions }];
        let response = client.call(&DeleteRecordsRequest { topics, timeout_ms: 1_000 }, 2);
        let partition = &response.topics[0].partitions[0];
        (ErrorCode(partition.error_code), partition.low_watermark)
    };
    assert_eq!(delete(2), (ErrorCode::NONE, 2));
    assert_eq!(delete(1), (ErrorCode::NONE, 2), "the start never goes back");
    assert_eq!(delete(5), (ErrorCode::OFFSET_OUT_OF_RANGE, -1));
    assert_eq!(list_offset(&mut client, "t", -2).1, 2);
    let below = fetch(&mut client, "t", 0, 1);
    assert_eq!(ErrorCode(below.error_code), ErrorCode::OFFSET_OUT_OF_RANGE);
    assert_eq!(below.log_start_offset, 2);
    assert_eq!(read_all(&mut client, "t", 0, 2), ["c", "d"]);
}

#[test]
fn retention_is_seen_by_readers() {
    // Records that no checkpoint has covered stay.
    let server = server_with(&[
        ("log.retention.check.interval.ms", "50"),
        ("log.flush.offset.checkpoint.interval.ms", "50"),
    ]);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[("retention.ms", "1000")]);
    // Records of the past are old at once.
    produce(&mut client, "t", 0, &batch(&["old"]));
    let until = Instant::now() + crate::support::PATIENCE;
    while list_offset(&mut client, "t", -2).1 == 0 {
        assert!(Instant::now() < until, "retention never came");
        std::thread::sleep(Duration::from_millis(20));
    }
    let gone = fetch(&mut client, "t", 0, 0);
    assert_eq!(ErrorCode(gone.error_code), ErrorCode::OFFSET_OUT_OF_RANGE);
    assert_eq!(try_produce(&mut client, "t", 0, &batch(&["new"])).base_offset, 1, "offsets go on");
}

#[test]
fn a_topic_is_made_by_the_first_metadata_request_for_it() {
    let server = server_with(&[("num.partitions", "3")]);
    let mut client = Client::new(&server);
    let id = topic_id(&mut client, "new");
    assert!(id.is_zero(), "a client that does not allow it makes nothing");
    let topic = riverrun_protocol::metadata_request::MetadataRequestTopic {
        name: Some("new".into()),
        ..Default::default()
    };
    let response = client.call(&MetadataRequest { topics: Some(vec![topic]), ..Default::default() }, 12);
    assert_eq!(response.topics[0].error_code, 0);
    assert_eq!(response.topics[0].partitions.len(), 3);
    assert_eq!(produce(&mut client, "new", 2, &batch(&["a"])), 0);
}
