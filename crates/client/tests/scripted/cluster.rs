//! Connections that several askers share.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use riverrun_client::{Admin, Cluster, ErrorCode, Producer, ProducerOptions, ProducerRecord, TopicPartition};
use riverrun_protocol::metadata_response::MetadataResponseBroker;
use riverrun_protocol::offset_delete_request::OffsetDeleteRequestPartition;
use riverrun_protocol::offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic};
use riverrun_protocol::{ApiKey, OffsetDeleteRequest, OffsetDeleteResponse};

use super::producer::answer;
use super::server::{Reply, ScriptedServer};

/// A consumer that connects for a fetch and then is told to commit leaves the fetch alone until the next poll.
#[tokio::test]
async fn who_does_not_go_on_connecting_holds_nobody_else_up() {
    let server = ScriptedServer::start(|_| Reply::Usual).await;
    let cluster = Cluster::connect(server.options()).await.unwrap();
    let mut left_alone = pin!(cluster.refresh(Some(&[]), false));
    assert!(left_alone.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let other = tokio::time::timeout(Duration::from_secs(5), cluster.refresh(Some(&[]), false)).await;
    assert!(other.expect("an answer in time").is_ok());
    assert!(left_alone.await.is_ok());
}

/// A partition without a leader, as one on a disk that has failed, keeps nobody from the others.
#[tokio::test]
async fn a_topic_can_be_used_when_one_of_its_partitions_has_a_leader() {
    let server = ScriptedServer::start(|call| match call.key {
        ApiKey::Metadata => {
            let mut metadata = call.metadata_of_epoch(0);
            metadata.topics[0].partitions[1].leader_id = -1;
            // Who connects asks for no topic.
            metadata.topics.truncate(call.nth);
            call.answer(&metadata)
        }
        _ => Reply::Usual,
    })
    .await;
    let cluster = Cluster::connect(server.options()).await.unwrap();
    let topic = tokio::time::timeout(Duration::from_secs(2), cluster.topic("t", true)).await;
    let topic = topic.expect("without waiting for the other").unwrap();
    let led: Vec<_> = topic.partitions.iter().map(|partition| partition.leader.is_some()).collect();
    assert_eq!(led, [true, false]);
}

/// The first of two servers stops to answer anything while the second is well.
#[tokio::test]
async fn a_server_that_owes_answers_is_not_asked_for_metadata_while_another_owes_none() {
    let addresses = [Arc::new(OnceLock::<SocketAddr>::new()), Arc::new(OnceLock::new())];
    let hangs = Arc::new(AtomicBool::new(false));
    let mut servers = Vec::new();
    for (place, address) in addresses.iter().enumerate() {
        let (all, hanging) = (addresses.clone(), Arc::clone(&hangs));
        let server = ScriptedServer::start(move |call| match call.key {
            ApiKey::Metadata => {
                let broker = |(node_id, address): (i32, &Arc<OnceLock<SocketAddr>>)| {
                    let address = address.get().expect("both have been started");
                    let (host, port) = (address.ip().to_string().into(), address.port().into());
                    MetadataResponseBroker { node_id, host, port, rack: None }
                };
                let mut metadata = call.metadata_of_epoch(0);
                metadata.brokers = (1..).zip(&all).map(broker).collect();
                metadata.topics[0].partitions[1].leader_id = 2;
                call.answer(&metadata)
            }
            ApiKey::Produce if place == 0 => {
                hanging.store(true, Ordering::SeqCst);
                Reply::Stall
            }
            ApiKey::Produce => answer(call, ErrorCode::NONE, 0),
            _ => Reply::Usual,
        })
        .await;
        address.set(server.address()).expect("it is set once");
        servers.push(server);
    }
    let mut options = ProducerOptions::new(servers[0].options());
    options.cluster.request_timeout = Duration::from_mins(10);
    let producer = Producer::new(options).await.unwrap();
    let to = |partition| ProducerRecord { partition: Some(partition), ..ProducerRecord::new("t", "value") };
    producer.send(to(1)).await.unwrap().await.unwrap();
    let _waits = producer.send(to(0)).await.unwrap();
    let deadline = Instant::now() + Duration::from_mins(1);
    while !hangs.load(Ordering::SeqCst) {
        assert!(Instant::now() < deadline, "the first server gets the record");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let looked =
        tokio::time::timeout(Duration::from_secs(30), producer.cluster().refresh(Some(&["t"]), false));
    assert!(looked.await.expect("the second server answers").is_ok());
}

/// Kafka keeps what one request forgets as one batch, too.
#[tokio::test]
async fn offsets_of_very_many_partitions_are_forgotten_in_several_requests() {
    const OFFSETS: i32 = 20_000;
    let requests = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&requests);
    let server = ScriptedServer::start(move |call| match call.key {
        ApiKey::OffsetDelete => {
            let request: OffsetDeleteRequest<'_> = call.decode();
            let deleted = |partition: &OffsetDeleteRequestPartition| OffsetDeleteResponsePartition {
                partition_index: partition.partition_index,
                error_code: 0,
            };
            let topics = request.topics.iter().map(|topic| OffsetDeleteResponseTopic {
                name: topic.name.clone(),
                partitions: topic.partitions.iter().map(deleted).collect(),
            });
            let topics: Vec<_> = topics.collect();
            heard.lock().unwrap().push(topics.iter().map(|topic| topic.partitions.len()).sum::<usize>());
            // One of them is refused for good.
            let error_code = if call.nth == 2 { ErrorCode::GROUP_AUTHORIZATION_FAILED.0 } else { 0 };
            let topics = if error_code == 0 { topics } else { Vec::new() };
            call.answer(&OffsetDeleteResponse { error_code, topics, ..OffsetDeleteResponse::default() })
        }
        _ => Reply::Usual,
    })
    .await;
    let admin = Admin::new(server.options()).await.unwrap();
    let partitions: Vec<_> = (0..OFFSETS).map(|index| TopicPartition::new("t", index)).collect();
    let results = admin.delete_group_offsets("g", &partitions).await;
    let requests = requests.lock().unwrap().clone();
    assert!(requests.len() == 3 && requests.iter().all(|offsets| *offsets < 8000), "{requests:?}");
    // Each partition has its result: the third request's error is that of all that were still to come.
    let named: Vec<_> = results.iter().map(|(partition, _)| partition.clone()).collect();
    assert_eq!(named, partitions);
    assert_eq!(results.iter().filter(|(_, result)| result.is_ok()).count(), requests[0] + requests[1]);
}
