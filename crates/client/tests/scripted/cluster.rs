//! Connections that several askers share.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use riverrun_client::Cluster;
use riverrun_protocol::ApiKey;

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
