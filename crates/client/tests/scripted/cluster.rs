//! Connections that several callers share.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use riverrun_client::{
    Admin, ClientError, Cluster, Consumer, ErrorCode, Producer, ProducerOptions, ProducerRecord, StartAt,
    TopicInfo, TopicPartition,
};
use riverrun_protocol::find_coordinator_response::Coordinator;
use riverrun_protocol::metadata_response::MetadataResponseBroker;
use riverrun_protocol::offset_delete_request::OffsetDeleteRequestPartition;
use riverrun_protocol::offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic};
use riverrun_protocol::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use riverrun_protocol::{
    ApiKey, FindCoordinatorResponse, OffsetDeleteRequest, OffsetDeleteResponse, OffsetFetchResponse,
};

use super::consumer::{offsets, options, partition, records, server};
use super::producer::answer;
use super::server::{Call, Reply, ScriptedServer};

/// A consumer that connects for a fetch and then commits does not poll the fetch until the next poll.
#[tokio::test]
async fn abandoned_connect_blocks_no_other_caller() {
    let server = ScriptedServer::start(|_| Reply::Usual).await;
    let cluster = Cluster::connect(server.options()).await.unwrap();
    let mut left_alone = pin!(cluster.refresh(Some(&[]), false));
    assert!(left_alone.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let other = tokio::time::timeout(Duration::from_secs(5), cluster.refresh(Some(&[]), false)).await;
    assert!(other.expect("an answer in time").is_ok());
    assert!(left_alone.await.is_ok());
}

/// A partition without a leader, as on a failed disk, does not block the others.
#[tokio::test]
async fn a_topic_can_be_used_when_one_of_its_partitions_has_a_leader() {
    let server = ScriptedServer::start(|call| match call.key {
        ApiKey::Metadata => {
            let mut metadata = call.metadata_of_epoch(0);
            metadata.topics[0].partitions[1].leader_id = -1;
            // A connecting client requests no topic.
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

/// The topic that a client learns if the metadata has only two partitions with these indexes.
async fn told_of(indexes: [i32; 2]) -> Result<Arc<TopicInfo>, ClientError> {
    let server = ScriptedServer::start(move |call| match call.key {
        ApiKey::Metadata => {
            let mut metadata = call.metadata_of_epoch(0);
            for (partition, index) in metadata.topics[0].partitions.iter_mut().zip(indexes) {
                partition.partition_index = index;
            }
            // A connecting client requests no topic.
            metadata.topics.truncate(call.nth);
            call.answer(&metadata)
        }
        _ => Reply::Usual,
    })
    .await;
    Cluster::connect(server.options()).await.unwrap().topic("t", false).await
}

/// As from a cluster with `ZooKeeper` while the partition has never had a leader.
#[tokio::test]
async fn a_partition_that_is_not_told_of_is_there_without_a_leader() {
    let topic = told_of([3, 1]).await.unwrap();
    let led: Vec<_> = topic.partitions.iter().map(|one| (one.index, one.leader.is_some())).collect();
    assert_eq!(led, [(0, false), (1, true), (2, false), (3, true)]);
}

#[tokio::test]
async fn partitions_that_cannot_be_are_not_believed() {
    for indexes in [[1, 1], [-1, 0], [0, i32::MAX], [0, 10_001]] {
        let told = told_of(indexes).await;
        assert!(matches!(told, Err(ClientError::Impossible { .. })), "{indexes:?}: {told:?}");
    }
}

/// The first of two servers stops answering while the second is well.
#[tokio::test]
async fn metadata_is_requested_from_the_least_loaded_server() {
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

/// A machine that dies silently closes no connection.
#[tokio::test]
async fn server_with_an_open_fetch_is_not_asked_for_metadata() {
    const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
    let asked_second = Arc::new(OnceLock::<Instant>::new());
    let noted = Arc::clone(&asked_second);
    let second = server(move |call| {
        (call.key == ApiKey::Metadata).then(|| {
            noted.get_or_init(Instant::now);
            let mut metadata = call.metadata_of_epoch(1);
            metadata.brokers[0].node_id = 2;
            metadata.topics[0].partitions.iter_mut().for_each(|partition| partition.leader_id = 2);
            call.answer(&metadata)
        })
    })
    .await;
    let address = second.address();
    let death = Arc::new(OnceLock::<Instant>::new());
    let noted_death = Arc::clone(&death);
    let first = server(move |call| {
        if call.key == ApiKey::Fetch {
            noted_death.get_or_init(Instant::now);
        }
        if noted_death.get().is_some() {
            return Some(Reply::Stall);
        }
        (call.key == ApiKey::Metadata).then(|| {
            let mut metadata = call.metadata_of_epoch(0);
            let (host, port) = (address.ip().to_string().into(), address.port().into());
            // No other request comes before the fetch, so that only the first server is connected to.
            metadata.brokers.push(MetadataResponseBroker { node_id: 2, host, port, rack: None });
            call.answer(&metadata)
        })
    })
    .await;
    let mut options = options(&first);
    options.cluster.request_timeout = REQUEST_TIMEOUT;
    let mut consumer = Consumer::new(options).await.unwrap();
    consumer.assign(vec![(partition(0), StartAt::Earliest)]).await.unwrap();
    assert_eq!(offsets(&records(&mut consumer).await.unwrap()), [10, 11, 12, 13]);
    let (died, asked) = (*death.get().unwrap(), *asked_second.get().unwrap());
    assert!(asked - died < REQUEST_TIMEOUT * 2, "{:?}", asked - died);
}

/// Requests that wait to be written end with the connection that they wait for.
#[tokio::test]
async fn all_callers_of_a_hanging_server_get_the_error() {
    let server = ScriptedServer::start(|call| match call.key {
        ApiKey::DescribeCluster => Reply::Stall,
        _ => Reply::Usual,
    })
    .await;
    let mut options = server.options();
    options.request_timeout = Duration::from_millis(200);
    options.retry_timeout = Duration::from_millis(500);
    let admin = Admin::new(options).await.unwrap();
    let all = join_all((0..40).map(|_| admin.describe_cluster()));
    let described = tokio::time::timeout(Duration::from_secs(30), all).await.expect("an end");
    assert!(described.iter().all(Result::is_err), "{described:?}");
}

/// The caller may have less patience than `request.timeout.ms`.
#[tokio::test]
async fn hanging_server_is_reconnected_without_a_waiting_caller() {
    let mut connections = 0;
    let server = ScriptedServer::start(move |call| {
        connections += usize::from(call.key == ApiKey::ApiVersions);
        // The first connection has only returned the server's address.
        if call.key == ApiKey::Metadata && connections == 2 { Reply::Stall } else { Reply::Usual }
    })
    .await;
    let mut options = server.options();
    options.request_timeout = Duration::from_millis(300);
    let cluster = Cluster::connect(options).await.unwrap();
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let asked = cluster.refresh(Some(&["t"]), false);
        if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_millis(50), asked).await {
            break;
        }
        assert!(Instant::now() < deadline, "not noticed in time");
    }
}

/// Answers that node 1 coordinates the group, and is at this address.
fn coordinator_at(call: &Call<'_>, place: SocketAddr) -> Reply {
    let (host, port) = (place.ip().to_string().into(), place.port().into());
    let coordinator = Coordinator { key: "g".into(), node_id: 1, host, port, ..Coordinator::default() };
    call.answer(&FindCoordinatorResponse { coordinators: vec![coordinator], ..Default::default() })
}

/// Answers that the group has committed this offset for partition 0.
fn committed_is(call: &Call<'_>, committed_offset: i64) -> Reply {
    let partition = OffsetFetchResponsePartitions { committed_offset, ..Default::default() };
    let topic = OffsetFetchResponseTopics {
        name: "t".into(),
        partitions: vec![partition],
        ..OffsetFetchResponseTopics::default()
    };
    let group = OffsetFetchResponseGroup { group_id: "g".into(), topics: vec![topic], ..Default::default() };
    call.answer(&OffsetFetchResponse { groups: vec![group], ..OffsetFetchResponse::default() })
}

/// No metadata request comes meanwhile; metadata would have another address of the same node.
#[tokio::test]
async fn moved_coordinator_is_asked_over_its_live_connection() {
    let nowhere: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let place = Arc::new(Mutex::new(nowhere));
    let gone = Arc::new(AtomicBool::new(false));
    let (said, is_gone) = (Arc::clone(&place), Arc::clone(&gone));
    let old = ScriptedServer::start(move |call| match call.key {
        _ if is_gone.load(Ordering::SeqCst) => Reply::Close,
        ApiKey::FindCoordinator => coordinator_at(call, *said.lock().unwrap()),
        ApiKey::OffsetFetch => committed_is(call, 5),
        _ => Reply::Usual,
    })
    .await;
    let new = ScriptedServer::start(|call| match call.key {
        ApiKey::OffsetFetch => committed_is(call, 9),
        _ => Reply::Usual,
    })
    .await;
    let (said, first) = (Arc::clone(&place), old.address());
    let other = ScriptedServer::start(move |call| match call.key {
        ApiKey::Metadata => {
            let mut metadata = call.metadata_of_epoch(0);
            metadata.brokers[0].node_id = 2;
            let (host, port) = (first.ip().to_string().into(), first.port().into());
            metadata.brokers.push(MetadataResponseBroker { node_id: 1, host, port, rack: None });
            call.answer(&metadata)
        }
        ApiKey::FindCoordinator => coordinator_at(call, *said.lock().unwrap()),
        _ => Reply::Usual,
    })
    .await;
    let admin = Admin::new(other.options()).await.unwrap();
    let committed_by = async |coordinator: SocketAddr| {
        *place.lock().unwrap() = coordinator;
        admin.group_offsets("g").await.unwrap()[&partition(0)].offset.0
    };
    assert_eq!(committed_by(first).await, 5);
    assert_eq!(committed_by(nowhere).await, 5, "what is up is used");
    gone.store(true, Ordering::SeqCst);
    assert_eq!(committed_by(new.address()).await, 9);
}

/// Kafka stores the deletions of one request as one batch, too.
#[tokio::test]
async fn very_many_offsets_are_deleted_in_several_requests() {
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
    // Each partition has its result: the third request's error is that of all partitions still to come.
    let named: Vec<_> = results.iter().map(|(partition, _)| partition.clone()).collect();
    assert_eq!(named, partitions);
    assert_eq!(results.iter().filter(|(_, result)| result.is_ok()).count(), requests[0] + requests[1]);
}
