//! Connections that several askers share.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use riverrun_client::Cluster;

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
