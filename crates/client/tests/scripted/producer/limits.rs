//! The bounds of a producer: how long sending a record waits, what it holds meanwhile, and how much is under way.

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

/// What is missing comes with time, however short that is for other calls.
#[tokio::test]
async fn a_topic_and_a_partition_are_waited_for_as_long_as_sending_may_block() {
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

/// Others have more use for it until then.
#[tokio::test]
async fn who_waits_for_a_topic_holds_no_room_in_the_buffer() {
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
        // Else it may leave together with the next.
        while came.load(Ordering::SeqCst) == before {
            assert!(Instant::now() < deadline, "only {before} are under way");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    assert_eq!(producer.metrics().requests_in_flight, REQUESTS);
    drop(deliveries);
}

/// When somebody looked at a topic.
type Looks = Arc<Mutex<Vec<Instant>>>;

/// Whether this is a look at a topic, which is noted: who connects asks for none.
fn is_look(call: &Call<'_>, looks: &Looks) -> bool {
    let topics = || call.decode::<MetadataRequest<'_>>().topics.unwrap_or_default();
    let is_look = call.key == ApiKey::Metadata && !topics().is_empty();
    if is_look {
        looks.lock().unwrap().push(Instant::now());
    }
    is_look
}

/// What sending a record has come to, but for its outcome.
type Sent = Result<(), ClientError>;

/// Returns after so many looks; what is sent meanwhile waits for all of this time.
async fn until_looked(looks: &Looks, count: usize, sent: impl Future<Output = Vec<Sent>>) {
    let looked = async {
        let deadline = Instant::now() + Duration::from_mins(1);
        while looks.lock().unwrap().len() < count {
            assert!(Instant::now() < deadline, "nobody looks: {looks:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        sent = sent => panic!("there is no place for that: {sent:?}"),
        () = looked => {}
    }
}

/// Sends a record, and hears no more of it.
async fn sent(producer: &Producer, record: ProducerRecord) -> Sent {
    producer.send(record).await.map(drop)
}

/// Else their questions would keep the records of others waiting.
#[tokio::test]
async fn however_many_wait_for_a_partition_it_is_looked_for_once_at_a_time_and_with_pauses() {
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
async fn however_many_topics_are_waited_for_few_are_looked_at_together() {
    let looks = Looks::default();
    let looked = Arc::clone(&looks);
    let server =
        ScriptedServer::start(move |call| if is_look(call, &looked) { Reply::Silence } else { Reply::Usual })
            .await;
    let producer = producer(&server, |options| {
        options.block_max = Duration::from_mins(10);
        options.cluster.request_timeout = Duration::from_mins(10);
        options.cluster.in_flight_max = 50;
        // Nothing but looks goes to the server, so that its silence puts no answer out of order.
        options.idempotent = false;
    })
    .await;
    let record = |index| ProducerRecord::new(format!("topic {index}"), "value");
    let mut all = pin!(join_all((0..50).map(|index| sent(&producer, record(index)))));
    until_looked(&looks, 4, &mut all).await;
    assert!(tokio::time::timeout(Duration::from_millis(100), all).await.is_err());
    assert_eq!(looks.lock().unwrap().len(), 4);
}

/// As with Kafka's producer, where nobody waits for what it asks.
#[tokio::test]
async fn who_does_not_wait_for_a_topic_finds_it_there_later() {
    let server = ScriptedServer::start(|call| match call.key {
        // By then who looks at the topic has gone.
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
        assert!(Instant::now() < deadline, "nobody looks");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(offset(delivery).await, 40);
}
