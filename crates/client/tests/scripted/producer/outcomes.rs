//! When outcomes arrive: in the order of the records, and for the waiters for the last of them.

use std::collections::BTreeMap;

use futures_util::FutureExt as _;
use riverrun_protocol::MetadataRequest;

use super::*;

/// Sends so many records, whose callbacks must come in their order and with offsets in it.
async fn assert_told_in_order(producer: &Producer, count: i64) {
    let called = Arc::new(Mutex::new(Vec::new()));
    for number in 0..count {
        let called = Arc::clone(&called);
        let record = RecordRef::new("t", b"v").with_partition(0);
        let callback = move |result: Result<RecordMetadata, ClientError>| {
            called.lock().unwrap().push((number, result.unwrap().offset.0));
        };
        producer.send_with(&record, callback).await.unwrap();
    }
    producer.flush().await;
    assert_eq!(*called.lock().unwrap(), (0..count).map(|number| (number, number)).collect::<Vec<_>>());
}

#[tokio::test]
async fn callbacks_come_in_the_order_of_the_records() {
    let (server, _) =
        server(|call, _, _| (call.nth == 3).then(|| answer(call, ErrorCode::NOT_LEADER_OR_FOLLOWER, -1)))
            .await;
    assert_told_in_order(&producer(&server, |_| {}).await, 50).await;
}

#[tokio::test]
async fn callbacks_stay_in_order_after_a_doubtful_delivery() {
    let known = Mutex::new(BTreeMap::new());
    let (server, _) = server(move |call, seen, _| {
        let mut known = known.lock().unwrap();
        let end = i64::try_from(known.len()).unwrap();
        let at = *known.entry(seen.sequence).or_insert(end);
        // The leader has it, and the other replicas do not have it in time.
        let code = if call.nth == 2 { ErrorCode::REQUEST_TIMED_OUT } else { ErrorCode::NONE };
        Some(answer(call, code, at))
    })
    .await;
    let producer = producer(&server, |_| {}).await;
    assert_told_in_order(&producer, 20).await;
    assert_eq!(producer.metrics().batches_retried, 1);
}

#[tokio::test]
async fn a_close_that_was_given_up_can_be_waited_for_again() {
    let (server, _) = server(|_, _, _| Some(Reply::Silence)).await;
    let producer = producer(&server, |options| {
        options.cluster.request_timeout = Duration::from_millis(300);
        options.delivery_timeout = Duration::from_millis(600);
    })
    .await;
    let delivery = send(&producer).await;
    let given_up = tokio::time::timeout(Duration::from_millis(50), producer.close()).await;
    assert!(given_up.is_err(), "the server says nothing");
    tokio::join!(producer.close(), producer.close());
    assert!(delivery.now_or_never().is_some_and(|told| told.is_err()));
    assert_eq!(producer.metrics().batches_waiting, 0);
    producer.close().await;
}

#[tokio::test]
async fn timed_out_close_sends_nothing_and_creates_no_topic() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let request_count = Arc::new(Mutex::new(0));
    let (noted, counted) = (Arc::clone(&asked), Arc::clone(&request_count));
    let server = ScriptedServer::start(move |call| match call.key {
        ApiKey::Produce => {
            *counted.lock().unwrap() += 1;
            answer(call, ErrorCode::UNKNOWN_TOPIC_ID, -1).after(Duration::from_millis(300))
        }
        ApiKey::Metadata => {
            let request = call.decode::<MetadataRequest<'_>>();
            noted.lock().unwrap().push(request.allow_auto_topic_creation);
            Reply::Usual
        }
        _ => Reply::Usual,
    })
    .await;
    let producer = producer(&server, |options| options.cluster.in_flight_max = 1).await;
    let deliveries = [send(&producer).await, send(&producer).await];
    assert!(!producer.close_within(Duration::from_millis(100)).await);
    let known = asked.lock().unwrap().len();
    for delivery in deliveries {
        let told = tokio::time::timeout(Duration::from_secs(1), delivery).await.expect("with the one answer");
        assert!(matches!(told, Err(ClientError::Closed)), "{told:?}");
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(*request_count.lock().unwrap(), 1);
    assert!(asked.lock().unwrap()[known..].iter().all(|creates| !creates));
}

#[tokio::test]
async fn a_close_with_a_limit_that_is_long_enough_sends_everything() {
    let (server, log) = server(|_, _, _| None).await;
    let producer = producer(&server, |_| {}).await;
    let delivery = send(&producer).await;
    assert!(producer.close_within(Duration::from_secs(30)).await);
    assert!(delivery.now_or_never().is_some_and(|told| told.is_ok()));
    assert_eq!(log.lock().unwrap().taken.len(), 1);
}
