//! Connections that several askers share.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use riverrun_client::{Admin, Cluster, ErrorCode, TopicPartition};
use riverrun_protocol::offset_delete_request::OffsetDeleteRequestPartition;
use riverrun_protocol::offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic};
use riverrun_protocol::{ApiKey, OffsetDeleteRequest, OffsetDeleteResponse};

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
