//! The producer against a server that refuses, loses, doubts and sends nonsense.

mod ends;
mod given_up;
mod limits;
mod outcomes;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use riverrun_client::{
    Acks, Choice, ClientError, Cluster, Delivery, ErrorCode, Partitioner, PartitionerChoice, Producer,
    ProducerOptions, ProducerRecord, RecordMetadata, RecordRef, TopicPartitioner, TopicView,
    partition_of_key,
};
use riverrun_protocol::metadata_response::MetadataResponseBroker;
use riverrun_protocol::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use riverrun_protocol::{ApiKey, ProduceRequest, ProduceResponse, Records};
use riverrun_records::UnverifiedBatch;
use riverrun_types::{Offset, TimestampMs, TopicId};

use crate::leaders::{Looks, has_slowed_down, look_without_leader, looked_after};
use crate::server::{Call, PARTITIONS, Reply, ScriptedServer, TOPIC_ID};

/// A batch as the server has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    producer: (i64, i16),
    sequence: i32,
    records: i32,
}

/// Batches that a server has accepted, and its verdict on the next.
#[derive(Debug, Default)]
struct Log {
    taken: Vec<Seen>,
    next: HashMap<(i64, i16), i32>,
    end: i64,
}

impl Log {
    /// Appends as a server that tracks sequence numbers.
    fn append(&mut self, seen: Seen) -> (ErrorCode, i64) {
        // As Kafka does: from an unknown producer it accepts any number.
        let next = self.next.entry(seen.producer).or_insert(seen.sequence);
        if *next != seen.sequence {
            return (ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, -1);
        }
        *next += seen.records;
        self.taken.push(seen);
        self.end += i64::from(seen.records);
        (ErrorCode::NONE, self.end - i64::from(seen.records))
    }
}

/// The batch of a request that has one.
fn seen(request: &ProduceRequest<'_>) -> Seen {
    let partition = &request.topic_data[0].partition_data[0];
    let bytes = partition.records.as_ref().and_then(Records::as_bytes).expect("records");
    let batch = UnverifiedBatch::only(bytes).unwrap().verify().unwrap();
    let producer = (batch.producer_id().0, batch.producer_epoch().0);
    Seen { producer, sequence: batch.base_sequence(), records: batch.record_count() }
}

pub(crate) fn answer(call: &Call<'_>, code: ErrorCode, base_offset: i64) -> Reply {
    let request = call.decode::<ProduceRequest<'_>>();
    let index = request.topic_data[0].partition_data[0].index;
    let partition = PartitionProduceResponse { index, error_code: code.0, base_offset, ..Default::default() };
    let topic = TopicProduceResponse {
        topic_id: request.topic_data[0].topic_id,
        partition_responses: vec![partition],
        ..TopicProduceResponse::default()
    };
    call.answer(&ProduceResponse { responses: vec![topic], ..ProduceResponse::default() })
}

/// A server that accepts every batch.
pub(crate) async fn log_server() -> ScriptedServer {
    server(|_, _, _| None).await.0
}

/// A server that keeps a log. `meddle` may answer in its place, by the number of the produce request.
async fn server(
    mut meddle: impl FnMut(&Call<'_>, Seen, &mut Log) -> Option<Reply> + Send + 'static,
) -> (ScriptedServer, Arc<Mutex<Log>>) {
    let log = Arc::new(Mutex::new(Log::default()));
    let kept = Arc::clone(&log);
    let server = ScriptedServer::start(move |call| {
        if call.key != ApiKey::Produce {
            return Reply::Usual;
        }
        let seen = seen(&call.decode());
        let mut log = kept.lock().unwrap();
        if let Some(reply) = meddle(call, seen, &mut log) {
            return reply;
        }
        let (code, offset) = log.append(seen);
        answer(call, code, offset)
    })
    .await;
    (server, log)
}

/// A producer whose every record is a batch of its own.
async fn producer(server: &ScriptedServer, change: impl FnOnce(&mut ProducerOptions)) -> Producer {
    let mut options = ProducerOptions::new(server.options());
    options.batch_bytes = 1;
    options.linger = Duration::ZERO;
    change(&mut options);
    Producer::new(options).await.unwrap()
}

async fn send(producer: &Producer) -> Delivery {
    let record = ProducerRecord { partition: Some(0), ..ProducerRecord::new("t", "value") };
    producer.send(record).await.unwrap()
}

async fn offset(delivery: Delivery) -> i64 {
    delivery.await.expect("delivered").offset.0
}

/// Epoch and sequence number of each accepted batch, all of one producer.
fn sequences(log: &Mutex<Log>) -> Vec<(i16, i32)> {
    let log = log.lock().unwrap();
    assert!(log.taken.iter().all(|seen| seen.producer.0 == 100));
    log.taken.iter().map(|seen| (seen.producer.1, seen.sequence)).collect()
}

#[tokio::test]
async fn misdirected_batch_is_retried_after_a_metadata_request() {
    let looks = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&looks);
    let server = ScriptedServer::start(move |call| match call.key {
        ApiKey::Metadata => {
            *counted.lock().unwrap() += 1;
            Reply::Usual
        }
        ApiKey::Produce if call.nth == 0 => answer(call, ErrorCode::NOT_LEADER_OR_FOLLOWER, -1),
        ApiKey::Produce => answer(call, ErrorCode::NONE, 40),
        _ => Reply::Usual,
    })
    .await;
    let producer = producer(&server, |_| {}).await;
    let delivery = send(&producer).await;
    let before = *looks.lock().unwrap();
    assert_eq!(offset(delivery).await, 40);
    producer.close().await;
    assert!(*looks.lock().unwrap() > before);
}

#[tokio::test]
async fn batches_behind_a_refused_one_keep_their_sequences() {
    let (server, log) = server(|call, _, _| {
        [1, 4].contains(&call.nth).then(|| answer(call, ErrorCode::NOT_LEADER_OR_FOLLOWER, -1))
    })
    .await;
    let producer = producer(&server, |_| {}).await;
    let mut deliveries = Vec::new();
    for _ in 0..20 {
        deliveries.push(send(&producer).await);
    }
    for (delivery, expected) in deliveries.into_iter().zip(0..) {
        assert_eq!(offset(delivery).await, expected);
    }
    assert_eq!(sequences(&log), (0..20).map(|sequence| (0, sequence)).collect::<Vec<_>>());
    let deadline = Instant::now() + Duration::from_mins(1);
    let metrics = loop {
        let metrics = producer.metrics();
        // Metadata may be requested for longer than records are sent.
        if metrics.answers == metrics.all_requests {
            break metrics;
        }
        assert!(Instant::now() < deadline, "{metrics:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!((metrics.records_delivered, metrics.records_failed, metrics.batches), (20, 0, 20));
    assert!(metrics.batches_retried >= 2 && metrics.requests >= 22 && metrics.batches_waiting == 0);
    assert_eq!(metrics.records_retried, metrics.batches_retried, "each is a batch of its own");
    assert_eq!(metrics.records_sent, 20 + metrics.records_retried);
    assert_eq!((metrics.sent_batch_bytes.count, metrics.queued_us.count), (metrics.records_sent, 20));
    let sent = metrics.sent_batch_bytes;
    assert_eq!(sent.sum, sent.count * sent.max, "all have one length");
    assert_eq!((metrics.latency_us.count, metrics.requests_in_flight), (metrics.requests, 0));
    // Besides the producer id, metadata and versions.
    assert!(metrics.all_requests > metrics.requests);
    assert!(metrics.sent_bytes > metrics.sent_batch_bytes.sum && metrics.received_bytes > 0);
    assert_eq!((metrics.buffer_free_bytes, metrics.senders_waiting), (metrics.buffer_bytes, 0));
}

#[tokio::test]
async fn a_batch_whose_answer_was_lost_is_not_written_twice() {
    let (server, log) = server(|call, seen, log| match call.nth {
        0 => {
            log.append(seen);
            Some(Reply::Close)
        }
        1 => Some(answer(call, ErrorCode::DUPLICATE_SEQUENCE_NUMBER, -1)),
        _ => None,
    })
    .await;
    let producer = producer(&server, |_| {}).await;
    assert_eq!(send(&producer).await.await.unwrap().offset, Offset(-1));
    assert_eq!(offset(send(&producer).await).await, 1);
    assert_eq!(sequences(&log), [(0, 0), (0, 1)]);
}

#[tokio::test]
async fn forgotten_producer_continues_in_another_epoch() {
    let (server, log) =
        server(|call, _, _| (call.nth == 1).then(|| answer(call, ErrorCode::UNKNOWN_PRODUCER_ID, -1))).await;
    let producer = producer(&server, |_| {}).await;
    for expected in 0..3 {
        assert_eq!(offset(send(&producer).await).await, expected);
    }
    assert_eq!(sequences(&log), [(0, 0), (1, 0), (1, 1)]);
}

#[tokio::test]
async fn sequence_gap_restarts_in_the_next_epoch() {
    let (server, log) = server(|call, _, _| {
        (call.nth == 1).then(|| answer(call, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, -1))
    })
    .await;
    let producer = producer(&server, |_| {}).await;
    assert_eq!(offset(send(&producer).await).await, 0);
    let (refused, behind) = (send(&producer).await, send(&producer).await);
    assert_eq!((offset(refused).await, offset(behind).await), (1, 2));
    assert_eq!(sequences(&log), [(0, 0), (1, 0), (1, 1)]);
}

/// The server's answer for one partition is still to come while another restarts its sequence.
#[tokio::test]
async fn a_gap_in_one_partition_holds_up_no_other() {
    let (server, log) = server(|call, seen, _| {
        let index = call.decode::<ProduceRequest<'_>>().topic_data[0].partition_data[0].index;
        if index == 1 {
            return Some(answer(call, ErrorCode::NOT_LEADER_OR_FOLLOWER, -1));
        }
        (seen.sequence == 0 && seen.producer.1 == 0).then(|| answer(call, ErrorCode::INVALID_RECORD, -1))
    })
    .await;
    let producer = producer(&server, |_| {}).await;
    let other = ProducerRecord { partition: Some(1), ..ProducerRecord::new("t", "value") };
    let waits = producer.send(other).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(send(&producer).await.await.is_err());
    for _ in 0..3 {
        let delivered = tokio::time::timeout(Duration::from_secs(2), send(&producer).await);
        assert!(delivered.await.expect("without waiting for the other partition").is_ok());
    }
    drop(waits);
    assert_eq!(sequences(&log), [(1, 0), (1, 1), (1, 2)]);
}

#[tokio::test]
async fn refused_record_fails_alone() {
    let (server, log) =
        server(|call, _, _| (call.nth == 0).then(|| answer(call, ErrorCode::MESSAGE_TOO_LARGE, -1))).await;
    let producer = producer(&server, |_| {}).await;
    let error = send(&producer).await.await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::MESSAGE_TOO_LARGE));
    assert_eq!(offset(send(&producer).await).await, 0);
    assert_eq!(sequences(&log), [(1, 0)]);
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up_in_time() {
    let (server, _) = server(|_, _, _| Some(Reply::Silence)).await;
    let mut options = ProducerOptions::new(server.options());
    options.cluster.request_timeout = Duration::from_millis(100);
    options.delivery_timeout = Duration::from_millis(250);
    let producer = Producer::new(options).await.unwrap();
    let start = Instant::now();
    let error = send(&producer).await.await.unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    let ClientError::Undelivered { last: Some(last), .. } = &error else { panic!("{error}") };
    assert!(matches!(**last, ClientError::Timeout { .. }), "{last}");
}

/// So that a slow server can report a timeout before the client closes the connection with all its requests.
#[tokio::test]
async fn the_server_is_given_less_time_than_the_client_waits() {
    let asked = Arc::new(Mutex::new(0));
    let heard = Arc::clone(&asked);
    let (server, _) = server(move |call, _, _| {
        *heard.lock().unwrap() = call.decode::<ProduceRequest<'_>>().timeout_ms;
        None
    })
    .await;
    let producer = producer(&server, |options| {
        options.cluster.request_timeout = Duration::from_secs(30);
    })
    .await;
    assert_eq!(offset(send(&producer).await).await, 0);
    assert_eq!(*asked.lock().unwrap(), 27_000);
}

#[tokio::test]
async fn an_offset_that_cannot_be_is_an_error() {
    for base_offset in [i64::MAX, i64::MAX - 1] {
        let (server, _) = server(move |call, _, _| Some(answer(call, ErrorCode::NONE, base_offset))).await;
        let producer = producer(&server, |options| options.batch_bytes = 1000).await;
        let record = || ProducerRecord { partition: Some(0), ..ProducerRecord::new("t", "value") };
        let sent = [producer.send(record()).await.unwrap(), producer.send(record()).await.unwrap()];
        producer.flush().await;
        for delivery in sent {
            let error = delivery.await.unwrap_err();
            assert!(matches!(error, ClientError::Impossible { .. }), "{error}");
        }
    }
}

#[tokio::test]
async fn unreadable_answer_fails_the_batch_without_a_retry() {
    let (server, log) = server(|call, _, _| (call.nth == 0).then(|| call.nonsense())).await;
    let producer = producer(&server, |_| {}).await;
    let error = send(&producer).await.await.unwrap_err();
    assert!(matches!(error, ClientError::Malformed { .. }), "{error}");
    assert_eq!(offset(send(&producer).await).await, 0);
    assert_eq!(
        sequences(&log),
        [(1, 0)],
        "the first may have been taken: another epoch, so that nothing clashes"
    );
}

#[tokio::test]
async fn an_answer_that_leaves_the_batch_out_is_an_error() {
    let (server, _) = server(|call, _, _| Some(call.answer(&ProduceResponse::default()))).await;
    let producer = producer(&server, |_| {}).await;
    let error = send(&producer).await.await.unwrap_err();
    assert!(matches!(error, ClientError::Incomplete { .. }), "{error}");
}

#[tokio::test]
async fn unexpected_answer_ends_the_connection_and_retries() {
    for bad in [
        // Another request's number.
        [0, 0, 0, 8, 0x77, 0, 0, 0, 0, 0, 0, 0].to_vec(),
        // No frame can be that short, or that long.
        vec![0, 0, 0, 1, 9],
        vec![0xff; 8],
    ] {
        let (server, log) =
            server(move |call, _, _| (call.nth == 0).then(|| Reply::Bytes(bad.clone()))).await;
        let producer = producer(&server, |_| {}).await;
        assert_eq!(offset(send(&producer).await).await, 0);
        assert_eq!(sequences(&log), [(0, 0)]);
    }
}

#[tokio::test]
async fn without_acks_nothing_is_waited_for() {
    let (server, log) = server(|_, seen, log| {
        log.taken.push(seen);
        Some(Reply::Silence)
    })
    .await;
    let producer = producer(&server, |options| {
        options.acks = Acks::None;
        options.idempotent = false;
    })
    .await;
    for _ in 0..10 {
        assert_eq!(send(&producer).await.await.unwrap().offset, Offset(-1));
    }
    producer.close().await;
    let deadline = Instant::now() + Duration::from_mins(1);
    while log.lock().unwrap().taken.len() < 10 {
        assert!(Instant::now() < deadline, "{:?}", log.lock().unwrap());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn without_acks_a_server_that_does_not_read_is_given_up_in_time() {
    let (server, _) = server(|_, _, _| Some(Reply::Stall)).await;
    let mut options = ProducerOptions::new(server.options());
    (options.acks, options.idempotent) = (Acks::None, false);
    options.cluster.request_timeout = Duration::from_millis(200);
    options.delivery_timeout = Duration::from_millis(300);
    let producer = Producer::new(options).await.unwrap();
    let mut deliveries = Vec::new();
    // More than the system buffers for a connection.
    for _ in 0..30 {
        let record = ProducerRecord { partition: Some(0), ..ProducerRecord::new("t", vec![b'x'; 1_000_000]) };
        deliveries.push(producer.send(record).await.unwrap());
    }
    tokio::time::timeout(Duration::from_mins(1), producer.close()).await.expect("it ends");
    let mut given_up = 0;
    for delivery in deliveries {
        // The system has accepted some of the first records, and on a slow machine some on a later connection.
        if let Err(error) = delivery.await {
            assert!(matches!(error, ClientError::Undelivered { .. }), "{error}");
            given_up += 1;
        }
    }
    assert!(given_up > 0);
}

#[tokio::test]
async fn a_server_that_does_not_read_holds_up_no_other() {
    let (other, log) = server(|_, seen, log| {
        log.taken.push(seen);
        Some(Reply::Silence)
    })
    .await;
    let address = other.address();
    let stalled = ScriptedServer::start(move |call| match call.key {
        ApiKey::Metadata => {
            let mut metadata = call.metadata_of_epoch(0);
            let (host, port) = (address.ip().to_string().into(), address.port().into());
            metadata.brokers.push(MetadataResponseBroker { node_id: 2, host, port, rack: None });
            metadata.topics[0].partitions[1].leader_id = 2;
            call.answer(&metadata)
        }
        ApiKey::Produce => Reply::Stall,
        _ => Reply::Usual,
    })
    .await;
    let producer = producer(&stalled, |options| {
        (options.acks, options.idempotent) = (Acks::None, false);
        options.cluster.request_timeout = Duration::from_mins(1);
    })
    .await;
    // More than the system buffers for a connection.
    for _ in 0..30 {
        let record = ProducerRecord { partition: Some(0), ..ProducerRecord::new("t", vec![b'x'; 1_000_000]) };
        drop(producer.send(record).await.unwrap());
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    for _ in 0..3 {
        let record = ProducerRecord { partition: Some(1), ..ProducerRecord::new("t", "value") };
        let delivery = producer.send(record).await.unwrap();
        let delivered = tokio::time::timeout(Duration::from_secs(5), delivery).await;
        assert!(delivered.expect("without waiting for the first server").is_ok());
    }
    let deadline = Instant::now() + Duration::from_mins(1);
    while log.lock().unwrap().taken.len() < 3 {
        assert!(Instant::now() < deadline, "{:?}", log.lock().unwrap());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Each answer leads to the next request, without end.
#[tokio::test]
async fn leaderless_partition_requests_metadata_with_pauses() {
    // No leader, and a leader that does not exist.
    for leader_id in [-1, 9] {
        let looks = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&looks);
        let server = ScriptedServer::start(move |call| match call.key {
            ApiKey::Metadata => {
                *counted.lock().unwrap() += 1;
                let mut metadata = call.metadata_of_epoch(0);
                metadata.topics[0].partitions[0].leader_id = leader_id;
                call.answer(&metadata)
            }
            _ => Reply::Usual,
        })
        .await;
        let producer = producer(&server, |_| {}).await;
        let delivery = send(&producer).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let looks = *looks.lock().unwrap();
        // With pauses of 5 ms it would be more than 100.
        assert!((4..20).contains(&looks), "{leader_id}: {looks}");
        drop(delivery);
    }
}

#[tokio::test]
async fn leaderless_partition_does_not_delay_other_lookups() {
    let (looks, moved) = (Looks::default(), Arc::new(Mutex::new(None)));
    let (looked, has_moved) = (Arc::clone(&looks), Arc::clone(&moved));
    let server = ScriptedServer::start(move |call| match call.key {
        ApiKey::Metadata => look_without_leader(call, &looked),
        ApiKey::Produce if call.nth == 0 => {
            *has_moved.lock().unwrap() = Some(Instant::now());
            answer(call, ErrorCode::NOT_LEADER_OR_FOLLOWER, -1)
        }
        ApiKey::Produce => answer(call, ErrorCode::NONE, 40),
        _ => Reply::Usual,
    })
    .await;
    let producer = producer(&server, |options| {
        options.cluster.retry_backoff_max = Duration::from_secs(30);
    })
    .await;
    let waiting = send(&producer).await;
    let deadline = Instant::now() + Duration::from_secs(20);
    while !has_slowed_down(&looks) {
        assert!(Instant::now() < deadline, "{looks:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let record = ProducerRecord { partition: Some(1), ..ProducerRecord::new("t", "value") };
    assert_eq!(offset(producer.send(record).await.unwrap()).await, 40);
    let since = moved.lock().unwrap().expect("the first answer");
    let pause = loop {
        assert!(Instant::now() < deadline, "{looks:?}");
        if let Some(pause) = looked_after(&looks, since) {
            break pause;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert!(pause < Duration::from_millis(300), "{pause:?}");
    drop(waiting);
}

#[tokio::test]
async fn refused_producer_id_fails_records_with_the_reason() {
    let server = ScriptedServer::start(|call| match call.key {
        ApiKey::InitProducerId => call.answer(&riverrun_protocol::InitProducerIdResponse {
            error_code: ErrorCode::CLUSTER_AUTHORIZATION_FAILED.0,
            ..Default::default()
        }),
        _ => Reply::Usual,
    })
    .await;
    let producer = producer(&server, |_| {}).await;
    let error = send(&producer).await.await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::CLUSTER_AUTHORIZATION_FAILED));
}

#[tokio::test]
async fn a_producer_id_that_cannot_be_is_not_believed() {
    for (producer_id, producer_epoch) in [(-1, 0), (7, -1)] {
        let server = ScriptedServer::start(move |call| match call.key {
            ApiKey::InitProducerId => call.answer(&riverrun_protocol::InitProducerIdResponse {
                producer_id,
                producer_epoch,
                ..Default::default()
            }),
            _ => Reply::Usual,
        })
        .await;
        let producer = producer(&server, |_| {}).await;
        let error = send(&producer).await.await.unwrap_err();
        assert!(
            matches!(error, ClientError::Impossible { api: ApiKey::InitProducerId, .. }),
            "{producer_id}, {producer_epoch}: {error}"
        );
    }
}

#[tokio::test]
async fn a_record_of_a_time_that_cannot_be_is_refused() {
    let (server, _) = server(|_, _, _| None).await;
    let producer = producer(&server, |_| {}).await;
    let at = |time| ProducerRecord { timestamp: Some(TimestampMs(time)), ..ProducerRecord::new("t", "v") };
    let error = producer.send(at(-1)).await.unwrap_err();
    assert!(matches!(&error, ClientError::Invalid(text) if text.contains("-1")), "{error}");
    assert!(producer.send(at(0)).await.unwrap().await.is_ok());
}

/// Senders to other partitions do not wait meanwhile.
#[tokio::test]
async fn missing_partition_is_refused_and_others_stay_known() {
    let (cluster, known) = (Arc::new(OnceLock::<Arc<Cluster>>::new()), Arc::new(Mutex::new(Vec::new())));
    let (whose, told) = (Arc::clone(&cluster), Arc::clone(&known));
    let server = ScriptedServer::start(move |call| {
        if let (ApiKey::Metadata, Some(cluster)) = (call.key, whose.get()) {
            told.lock().unwrap().push(cluster.cached_topic("t").is_some());
        }
        Reply::Usual
    })
    .await;
    let producer = producer(&server, |options| options.block_max = Duration::from_millis(500)).await;
    producer.cluster().topic("t", false).await.unwrap();
    cluster.set(Arc::clone(producer.cluster())).unwrap();
    let record = ProducerRecord { partition: Some(PARTITIONS), ..ProducerRecord::new("t", "v") };
    let error = producer.send(record).await.unwrap_err();
    assert!(matches!(&error, ClientError::Invalid(text) if text.contains("0 to 1, not 2")), "{error}");
    let known = known.lock().unwrap();
    assert!(known.len() > 1 && known.iter().all(|known| *known), "{known:?}: it may have come meanwhile");
}

/// Chooses a partition that does not exist.
#[derive(Debug)]
struct Beyond;

impl Partitioner for Beyond {
    fn for_topic(&self, _: u64) -> Box<dyn TopicPartitioner> {
        Box::new(Self)
    }
}

impl TopicPartitioner for Beyond {
    fn choose(&mut self, _: &RecordRef<'_>, _: &dyn TopicView) -> Choice {
        Choice::Fixed(7)
    }
}

#[tokio::test]
async fn invented_partition_is_refused_by_its_number() {
    let server = log_server().await;
    let producer = producer(&server, |options| {
        options.partitioner = PartitionerChoice::Custom(Arc::new(Beyond));
    })
    .await;
    let error = producer.send(ProducerRecord::new("t", "v")).await.unwrap_err();
    assert!(matches!(&error, ClientError::Invalid(text) if text.contains("0 to 1, not 7")), "{error}");
}

#[tokio::test]
async fn silent_leader_gets_no_keyless_records() {
    let timeout = Duration::from_millis(50);
    let hanging = ScriptedServer::start(move |call| match call.key {
        // The first goes alone.
        ApiKey::Produce if call.nth == 0 => answer(call, ErrorCode::NONE, 0),
        ApiKey::Produce | ApiKey::Metadata => Reply::Silence,
        _ => Reply::Usual,
    })
    .await;
    let address = hanging.address();
    let quick = ScriptedServer::start(move |call| match call.key {
        ApiKey::Metadata => {
            let mut metadata = call.metadata_of_epoch(0);
            let (host, port) = (address.ip().to_string().into(), address.port().into());
            metadata.brokers.push(MetadataResponseBroker { node_id: 2, host, port, rack: None });
            metadata.topics[0].partitions[1].leader_id = 2;
            call.answer(&metadata)
        }
        ApiKey::Produce => answer(call, ErrorCode::NONE, 0),
        _ => Reply::Usual,
    })
    .await;
    let producer = producer(&quick, |options| {
        options.partitioner_availability_timeout = timeout;
        options.cluster.request_timeout = Duration::from_mins(2);
    })
    .await;
    let to = |partition| ProducerRecord { partition: Some(partition), ..ProducerRecord::new("t", "value") };
    offset(producer.send(to(1)).await.unwrap()).await;
    let mut hang = Vec::new();
    for _ in 0..5 {
        hang.push(producer.send(to(1)).await.unwrap());
    }
    // With each answer for the other, the sender task drains again.
    let deadline = Instant::now() + Duration::from_mins(1);
    while producer.metrics().requests_in_flight < 5 {
        assert!(Instant::now() < deadline, "all are under way");
        offset(producer.send(to(0)).await.unwrap()).await;
    }
    offset(producer.send(to(0)).await.unwrap()).await;
    tokio::time::sleep(timeout * 2).await;
    offset(producer.send(to(0)).await.unwrap()).await;
    for nth in 0..40 {
        let delivery = producer.send(ProducerRecord::new("t", "value")).await.unwrap();
        let placed = tokio::time::timeout(Duration::from_mins(1), delivery).await;
        assert_eq!(placed.map(|placed| placed.unwrap().partition), Ok(0), "record {nth}");
    }
}

/// Deleted and made again, with one partition in place of two.
#[tokio::test]
async fn recreated_topic_with_fewer_partitions_is_sent_to() {
    const ANEW: TopicId = TopicId([8; 16]);
    let anew = Arc::new(Mutex::new(false));
    let is_anew = Arc::clone(&anew);
    let server = ScriptedServer::start(move |call| match (call.key, *is_anew.lock().unwrap()) {
        (ApiKey::Metadata, true) => {
            let mut metadata = call.metadata_of_epoch(0);
            metadata.topics[0].topic_id = ANEW;
            metadata.topics[0].partitions.truncate(1);
            call.answer(&metadata)
        }
        (ApiKey::Produce, is_anew) => {
            let asked = call.decode::<ProduceRequest<'_>>().topic_data[0].topic_id;
            let known = asked == if is_anew { ANEW } else { TOPIC_ID };
            answer(call, if known { ErrorCode::NONE } else { ErrorCode::UNKNOWN_TOPIC_ID }, 40)
        }
        _ => Reply::Usual,
    })
    .await;
    let producer = producer(&server, |options| options.block_max = Duration::from_secs(2)).await;
    let to_second = || ProducerRecord { partition: Some(1), ..ProducerRecord::new("t", "value") };
    assert_eq!(offset(producer.send(to_second()).await.unwrap()).await, 40);
    *anew.lock().unwrap() = true;
    let failed = tokio::time::timeout(Duration::from_secs(30), producer.send(to_second()).await.unwrap());
    let error = failed.await.expect("long before the delivery timeout").unwrap_err();
    assert!(matches!(error, ClientError::UnknownPartition(_)), "{error}");
    let keys = (0_u8..).map(|key| [key]).filter(|key| partition_of_key(key, PARTITIONS) == 1);
    for key in keys.take(3) {
        let placed =
            producer.send(ProducerRecord::new("t", "value").with_key(key.to_vec())).await.unwrap().await;
        assert_eq!(placed.unwrap().partition, 0);
    }
    let error = producer.send(to_second()).await.unwrap_err();
    assert!(matches!(&error, ClientError::Invalid(text) if text.contains("0 to 0")), "{error}");
}

#[tokio::test]
async fn without_a_server_the_error_names_the_address() {
    let mut options = ProducerOptions::new(riverrun_client::ClusterOptions::new("127.0.0.1:1"));
    let error = Producer::new(options.clone()).await.unwrap_err();
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
    options.acks = Acks::Leader;
    assert!(
        matches!(Producer::new(options).await, Err(ClientError::Invalid(_))),
        "idempotence needs all acks"
    );
}

#[tokio::test]
async fn a_batch_that_is_too_large_is_split_until_its_parts_fit() {
    let (server, log) =
        server(|call, seen, _| (seen.records > 3).then(|| answer(call, ErrorCode::MESSAGE_TOO_LARGE, -1)))
            .await;
    let producer = producer(&server, |options| {
        options.linger = Duration::from_hours(1);
        options.batch_bytes = 10_000;
    })
    .await;
    let mut deliveries = Vec::new();
    for _ in 0..10 {
        deliveries.push(send(&producer).await);
    }
    producer.flush().await;
    for (delivery, expected) in deliveries.into_iter().zip(0..) {
        assert_eq!(offset(delivery).await, expected);
    }
    // Five and five, and each of these as two and three.
    assert_eq!(sequences(&log), [(0, 0), (0, 2), (0, 5), (0, 7)]);
}

#[tokio::test]
async fn records_do_not_wait_while_old_metadata_is_asked_for_again() {
    let looks = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&looks);
    let server = ScriptedServer::start(move |call| match call.key {
        ApiKey::Metadata => {
            *counted.lock().unwrap() += 1;
            Reply::Usual
        }
        ApiKey::Produce => answer(call, ErrorCode::NONE, 40),
        _ => Reply::Usual,
    })
    .await;
    // The metadata is always too old.
    let producer = producer(&server, |options| options.cluster.metadata_max_age = Duration::ZERO).await;
    for _ in 0..3 {
        assert_eq!(offset(send(&producer).await).await, 40);
    }
    let deadline = Instant::now() + Duration::from_mins(1);
    while *looks.lock().unwrap() < 4 {
        assert!(Instant::now() < deadline, "no request in time");
        offset(send(&producer).await).await;
    }
}

#[tokio::test]
async fn try_send_refuses_to_wait_and_waits_are_bounded() {
    let (server, _) = server(|_, _, _| Some(Reply::Silence)).await;
    let producer = producer(&server, |options| {
        options.buffer_bytes = 1000;
        options.request_bytes_max = 1000;
        options.block_max = Duration::from_millis(50);
        options.delivery_timeout = Duration::from_millis(300);
        options.cluster.request_timeout = Duration::from_millis(100);
    })
    .await;
    let value = [0; 600];
    let record = RecordRef::new("t", &value).with_partition(0);
    assert!(producer.try_send(&record).unwrap().is_none(), "the topic is not known");
    let first = producer.send_ref(&record).await.unwrap();
    assert!(producer.try_send(&record).unwrap().is_none(), "there is no room");
    let error = producer.send_ref(&record).await.unwrap_err();
    assert!(matches!(error, ClientError::Blocked { .. }), "{error}");
    assert!(first.await.is_err(), "the server says nothing");
    assert!(producer.try_send(&record).unwrap().is_some(), "there is room again");
}

#[tokio::test]
async fn a_batch_is_sent_again_only_as_often_as_it_may_be() {
    let (server, _) = server(|call, _, _| Some(answer(call, ErrorCode::NOT_LEADER_OR_FOLLOWER, -1))).await;
    let producer = producer(&server, |options| options.retries = 2).await;
    let error = send(&producer).await.await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::NOT_LEADER_OR_FOLLOWER));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_outside_of_the_runtime_send_too() {
    let (server, _) = server(|_, _, _| None).await;
    let producer = Arc::new(producer(&server, |_| {}).await);
    let sending = Arc::clone(&producer);
    let thread = std::thread::spawn(move || {
        let record = RecordRef::new("t", b"v").with_partition(0);
        (0..5).map(|_| sending.send_blocking(&record).unwrap()).collect::<Vec<_>>()
    });
    let deliveries = tokio::task::spawn_blocking(|| thread.join().unwrap()).await.unwrap();
    for (delivery, expected) in deliveries.into_iter().zip(0..) {
        assert_eq!(offset(delivery).await, expected);
    }
}
