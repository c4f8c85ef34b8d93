//! The end of a producer's records: by a flush, by its close, or with its runtime.

use std::time::Duration;

use riverrun_client::{ClientError, Producer, ProducerOptions, ProducerRecord, RecordRef};

use super::{offset, producer, send, server};
use crate::server::Reply;

/// A task in another runtime does not wait for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_runtime_fails_buffered_and_later_records() {
    let (server, _) = server(|_, _, _| Some(Reply::Silence)).await;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let options =
        ProducerOptions { batch_bytes: 0, buffer_bytes: 8000, ..ProducerOptions::new(server.options()) };
    let task = async {
        let producer = Producer::new(options).await.unwrap();
        let mut sent = Vec::new();
        for _ in 0..3 {
            sent.push(send(&producer).await);
        }
        while producer.metrics().requests_in_flight == 0 {
            tokio::task::yield_now().await;
        }
        (producer, sent)
    };
    let (producer, sent) = runtime.spawn(task).await.unwrap();
    runtime.shutdown_background();
    let limit = Duration::from_mins(1);
    for delivery in sent {
        let outcome =
            tokio::time::timeout(limit, delivery).await.expect("under way or not, it has its outcome");
        assert!(matches!(outcome, Err(ClientError::Closed)), "{outcome:?}");
    }
    tokio::time::timeout(limit, producer.flush()).await.expect("nothing is left to wait for");
    let large = [0; 7000];
    for value in [&b"v"[..], &large, &large] {
        let sent = tokio::time::timeout(limit, producer.send_ref(&RecordRef::new("t", value))).await;
        assert!(matches!(sent.expect("it says so"), Err(ClientError::Closed)));
    }
}

#[tokio::test]
async fn close_delivers_buffered_records_and_refuses_more() {
    let (server, log) = server(|_, _, _| None).await;
    let producer = producer(&server, |options| {
        options.linger = Duration::from_hours(1);
        options.batch_bytes = 10_000;
    })
    .await;
    let (first, second) = (send(&producer).await, send(&producer).await);
    producer.close().await;
    assert_eq!((offset(first).await, offset(second).await), (0, 1));
    assert_eq!(log.lock().unwrap().taken.len(), 1, "one batch");
    let late = producer.send(ProducerRecord::new("t", "late")).await;
    assert!(matches!(late, Err(ClientError::Closed)));
}

#[tokio::test]
async fn flushing_does_not_linger() {
    let (server, _) = server(|_, _, _| None).await;
    let producer = producer(&server, |options| {
        options.linger = Duration::from_hours(1);
        options.batch_bytes = 10_000;
    })
    .await;
    let delivery = send(&producer).await;
    producer.flush().await;
    assert_eq!(offset(delivery).await, 0);
}
