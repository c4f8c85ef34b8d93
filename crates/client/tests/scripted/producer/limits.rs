//! The bounds of a producer: how long sending a record waits, the room it takes meanwhile, and the requests in
//! flight.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use riverrun_client::{ClientError, ErrorCode, Producer, ProducerRecord, RecordRef};
use riverrun_protocol::metadata_response::MetadataResponsePartition;
use riverrun_protocol::{ApiKey, MetadataRequest, MetadataResponse};

use super::{answer, offset, producer, send};
use crate::server::{Call, PARTITIONS, Reply, ScriptedServer};

/// Missing metadata comes with time, however short the time of other calls is.
#[tokio::test]
async fn send_waits_max_block_for_a_topic_and_a_partition() {
    const LATE: Duration = Duration::from_secs(1);
    for lacks_topic in [true, false] {
        let begun = Instant::now();
        let server = ScriptedServer::start(move |call| match call.key {
            ApiKey::Metadata => {
                let mut metadata = call.metadata_of_epoch(0);
                let topic = &mut metadata.topics[0];
                if begun.elapsed() >= LATE {
                    let first = topic.partitions[0].clone();
                    topic.partitions.push(MetadataResponsePartition { partition_index: PARTITIONS, ..first });
                } else if lacks_topic {
                    topic.error_code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0;
                    topic.partitions.clear();
                }
                call.answer(&metadata)
            }
            ApiKey::Produce => answer(call, ErrorCode::NONE, 40),
            _ => Reply::Usual,
        })
        .await;
        let producer = producer(&server, |options| {
            options.cluster.retry_timeout = LATE / 5;
            options.block_max = Duration::from_mins(1);
        })
        .await;
        let record = ProducerRecord { partition: Some(PARTITIONS), ..ProducerRecord::new("t", "value") };
        assert_eq!(offset(producer.send(record).await.unwrap()).await, 40, "{lacks_topic}");
        assert!(begun.elapsed() >= LATE, "{:?}", begun.elapsed());
    }
}

/// Other records can use the room until then.
#[tokio::test]
async fn sender_waiting_for_a_topic_takes_no_buffer_room() {
    let server = ScriptedServer::start(|call| match call.key {
        ApiKey::Metadata => {
            let asked = call.decode::<MetadataRequest<'_>>().topics.unwrap_or_default();
            let mut metadata = call.metadata_of_epoch(0);
            if asked.iter().any(|topic| topic.name.as_deref() == Some("u")) {
                let topic = &mut metadata.topics[0];
                topic.name = Some("u".into());
                topic.error_code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0;
                topic.partitions.clear();
            }
            call.answer(&metadata)
        }
        ApiKey::Produce => answer(call, ErrorCode::NONE, 40),
        _ => Reply::Usual,
    })
    .await;
    let producer = producer(&server, |options| {
        options.buffer_bytes = 1000;
        options.request_bytes_max = 1000;
    })
    .await;
    assert_eq!(offset(send(&producer).await).await, 40);
    let value = [0; 600];
    let missing = RecordRef::new("u", &value).with_partition(0);
    let mut waiting = pin!(producer.send_ref(&missing));
    let sent = tokio::time::timeout(Duration::from_millis(200), &mut waiting).await;
    assert!(sent.is_err(), "there is no such topic");
    let known = RecordRef::new("t", &value).with_partition(0);
    assert!(producer.try_send(&known).unwrap().is_some(), "there is no room");
}

/// More than one partition may have.
#[tokio::test]
async fn as_many_requests_are_under_way_to_a_server_as_it_is_set_to() {
    const REQUESTS: usize = 20;
    let came = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&came);
    let server = ScriptedServer::start(move |call| match call.key {
        ApiKey::Metadata => {
            let mut metadata = call.metadata_of_epoch(0);
            let partitions = &mut metadata.topics[0].partitions;
            let first = partitions[0].clone();
            let partition = |partition_index| MetadataResponsePartition { partition_index, ..first.clone() };
            *partitions = (0..).take(REQUESTS).map(partition).collect();
            call.answer(&metadata)
        }
        ApiKey::Produce => {
            counted.fetch_add(1, Ordering::SeqCst);
            Reply::Silence
        }
        _ => Reply::Usual,
    })
    .await;
    let producer = producer(&server, |options| {
        options.cluster.in_flight_max = REQUESTS;
        options.cluster.request_timeout = Duration::from_mins(10);
    })
    .await;
    let deadline = Instant::now() + Duration::from_mins(1);
    let mut deliveries = Vec::new();
    for (index, before) in (0..).zip(0..REQUESTS) {
        let record = ProducerRecord { partition: Some(index), ..ProducerRecord::new("t", "value") };
        deliveries.push(producer.send(record).await.unwrap());
        // Otherwise it may leave together with the next.
        while came.load(Ordering::SeqCst) == before {
            assert!(Instant::now() < deadline, "only {before} are under way");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    assert_eq!(producer.metrics().requests_in_flight, REQUESTS);
    drop(deliveries);
}

/// When a topic was looked up.
type Looks = Arc<Mutex<Vec<Instant>>>;

/// Whether this is a lookup of a topic, which is recorded: a connecting client requests none.
fn is_look(call: &Call<'_>, looks: &Looks) -> bool {
    let topics = || call.decode::<MetadataRequest<'_>>().topics.unwrap_or_default();
    let is_look = call.key == ApiKey::Metadata && !topics().is_empty();
    if is_look {
        looks.lock().unwrap().push(Instant::now());
    }
    is_look
}

/// The result of sending a record, without its outcome.
type Sent = Result<(), ClientError>;

/// Returns after so many lookups; `sent` waits for all of this time.
async fn until_looked(looks: &Looks, count: usize, sent: impl Future<Output = Vec<Sent>>) {
    let looked = async {
        let deadline = Instant::now() + Duration::from_mins(1);
        while looks.lock().unwrap().len() < count {
            assert!(Instant::now() < deadline, "no lookup in time: {looks:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        sent = sent => panic!("there is no place for that: {sent:?}"),
        () = looked => {}
    }
}

/// Sends a record, and drops its delivery.
async fn sent(producer: &Producer, record: ProducerRecord) -> Sent {
    producer.send(record).await.map(drop)
}

/// Otherwise their lookups would delay the records of others.
#[tokio::test]
async fn waiting_senders_share_paused_partition_lookups() {
    const PAUSE: Duration = Duration::from_millis(50);
    let looks = Looks::default();
    let looked = Arc::clone(&looks);
    let server = ScriptedServer::start(move |call| {
        is_look(call, &looked);
        Reply::Usual
    })
    .await;
    let producer = producer(&server, |options| {
        options.block_max = Duration::from_mins(10);
        (options.cluster.retry_backoff, options.cluster.retry_backoff_max) = (PAUSE, PAUSE);
    })
    .await;
    let record = || ProducerRecord { partition: Some(PARTITIONS), ..ProducerRecord::new("t", "value") };
    let all = join_all((0..100).map(|_| sent(&producer, record())));
    until_looked(&looks, 5, all).await;
    let looks = looks.lock().unwrap();
    let pauses: Vec<Duration> = looks.windows(2).map(|looks| looks[1] - looks[0]).collect();
    assert!(pauses.iter().all(|pause| *pause >= PAUSE), "{pauses:?}");
}

#[tokio::test]
async fn few_topics_are_looked_up_at_once() {
    let looks = Looks::default();
    let looked = Arc::clone(&looks);
    let server =
        ScriptedServer::start(move |call| if is_look(call, &looked) { Reply::Silence } else { Reply::Usual })
            .await;
    let producer = producer(&server, |options| {
        options.block_max = Duration::from_mins(10);
        options.cluster.request_timeout = Duration::from_mins(10);
        options.cluster.in_flight_max = 50;
        // Only lookups go to the server, so that its silence puts no answer out of order.
        options.idempotent = false;
    })
    .await;
    let record = |index| ProducerRecord::new(format!("topic {index}"), "value");
    let mut all = pin!(join_all((0..50).map(|index| sent(&producer, record(index)))));
    until_looked(&looks, 4, &mut all).await;
    assert!(tokio::time::timeout(Duration::from_millis(100), all).await.is_err());
    assert_eq!(looks.lock().unwrap().len(), 4);
}

/// As with Kafka's producer, where the caller does not wait for the lookup.
#[tokio::test]
async fn try_send_finds_a_topic_later() {
    let server = ScriptedServer::start(|call| match call.key {
        // By then the caller of the lookup has gone.
        ApiKey::Metadata if is_look(call, &Looks::default()) => {
            call.answer(&call.metadata_of_epoch(0)).after(Duration::from_millis(50))
        }
        ApiKey::Metadata => call.answer(&MetadataResponse { topics: vec![], ..call.metadata_of_epoch(0) }),
        ApiKey::Produce => answer(call, ErrorCode::NONE, 40),
        _ => Reply::Usual,
    })
    .await;
    let producer = producer(&server, |options| options.block_max = Duration::ZERO).await;
    let deadline = Instant::now() + Duration::from_mins(1);
    let delivery = loop {
        let record = ProducerRecord { partition: Some(0), ..ProducerRecord::new("t", "value") };
        match producer.send(record).await {
            Ok(delivery) => break delivery,
            Err(error) => assert!(matches!(error, ClientError::Blocked { .. }), "{error}"),
        }
        assert!(Instant::now() < deadline, "no lookup in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(offset(delivery).await, 40);
}
