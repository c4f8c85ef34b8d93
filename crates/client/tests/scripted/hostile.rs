//! Consumers whose server repeats the same answer, or returns impossible ones.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use riverrun_client::{ClientError, Consumer, ConsumerOptions, ErrorCode, StartAt};
use riverrun_protocol::consumer_protocol::encode_assignment;
use riverrun_protocol::join_group_response::JoinGroupResponseMember;
use riverrun_protocol::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use riverrun_protocol::{
    ApiKey, ConsumerProtocolAssignment, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse,
    OffsetFetchResponse, SyncGroupResponse,
};
use riverrun_types::Offset;

use crate::consumer::{
    BEGIN, END, answer_fetch, batch, consumer_at, options, partition, records, server, wait_for,
};
use crate::server::Reply;

/// Shortest time between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

async fn member(options: ConsumerOptions) -> Consumer {
    let mut consumer =
        Consumer::new(ConsumerOptions { group: Some("g".to_owned()), ..options }).await.unwrap();
    consumer.subscribe(&["t".to_owned()]).await.unwrap();
    consumer
}

/// A new member gets its id at once, and joins with it at once.
#[tokio::test]
async fn a_group_that_takes_no_member_is_not_asked_without_a_pause() {
    for (code, at_once) in [
        (ErrorCode::MEMBER_ID_REQUIRED, 1),
        (ErrorCode::UNKNOWN_MEMBER_ID, 0),
        (ErrorCode::ILLEGAL_GENERATION, 0),
    ] {
        let joins = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&joins);
        let server = server(move |call| {
            (call.key == ApiKey::JoinGroup).then(|| {
                noted.lock().unwrap().push(Instant::now());
                call.answer(&JoinGroupResponse {
                    error_code: code.0,
                    protocol_name: Some("".into()),
                    member_id: "me".into(),
                    ..JoinGroupResponse::default()
                })
            })
        })
        .await;
        let mut options = options(&server);
        (options.cluster.retry_backoff, options.cluster.retry_backoff_max) = (PAUSE, PAUSE);
        let mut consumer = member(options).await;
        wait_for(&mut consumer, "it tries again", |_| joins.lock().unwrap().len() > 4).await;
        let joins = joins.lock().unwrap();
        let pauses: Vec<Duration> = joins.windows(2).map(|joins| joins[1] - joins[0]).collect();
        // A slow machine makes them longer.
        assert!(pauses.iter().skip(at_once).all(|pause| *pause >= PAUSE), "{code}: {pauses:?}");
    }
}

/// The leader of a group checks for new partitions.
#[tokio::test]
async fn leader_sends_heartbeats_while_it_searches_partitions() {
    let (beats, looks) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (beaten, looked) = (Arc::clone(&beats), Arc::clone(&looks));
    let server = server(move |call| {
        let reply = match call.key {
            ApiKey::Metadata => {
                looked.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            ApiKey::JoinGroup => {
                let protocol = call.decode::<JoinGroupRequest<'_>>().protocols.remove(0);
                let members = vec![JoinGroupResponseMember {
                    member_id: "me".into(),
                    metadata: protocol.metadata,
                    ..JoinGroupResponseMember::default()
                }];
                call.answer(&JoinGroupResponse {
                    protocol_name: Some(protocol.name),
                    leader: "me".into(),
                    member_id: "me".into(),
                    members,
                    ..JoinGroupResponse::default()
                })
            }
            ApiKey::SyncGroup => {
                let nothing = ConsumerProtocolAssignment { assigned_partitions: vec![], user_data: None };
                let assignment = encode_assignment(&nothing, 0).unwrap().into();
                call.answer(&SyncGroupResponse { assignment, ..SyncGroupResponse::default() })
            }
            ApiKey::Heartbeat => {
                beaten.fetch_add(1, Ordering::Relaxed);
                call.answer(&HeartbeatResponse::default())
            }
            _ => return None,
        };
        Some(reply)
    })
    .await;
    let mut options = options(&server);
    options.cluster.metadata_max_age = Duration::ZERO;
    options.heartbeat_interval = Duration::from_millis(150);
    let mut consumer = member(options).await;
    consumer.poll(Duration::from_secs(1)).await.unwrap();
    let (beats, looks) = (beats.load(Ordering::Relaxed), looks.load(Ordering::Relaxed));
    assert!((3..=8).contains(&beats), "{beats} signs of life");
    assert!(looks < 20, "{looks} looks");
}

#[tokio::test]
async fn records_before_the_position_are_an_error() {
    let fetches = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&fetches);
    let server = server(move |call| {
        (call.key == ApiKey::Fetch).then(|| {
            counted.fetch_add(1, Ordering::Relaxed);
            answer_fetch(call, &[(0, 0, batch(BEGIN))])
        })
    })
    .await;
    let mut consumer = consumer_at(&server, StartAt::Offset(Offset(END))).await;
    let error = records(&mut consumer).await.unwrap_err();
    assert!(matches!(error, ClientError::Impossible { .. }), "{error}");
    assert!(fetches.load(Ordering::Relaxed) < 3);
}

/// A group's committed offsets may be anything: they come from other clients.
#[tokio::test]
async fn committed_offsets_at_the_ends_of_their_range_do_no_harm() {
    for (offset, expected) in [(i64::MAX, i64::MAX), (i64::MIN, BEGIN), (-2, BEGIN)] {
        let server = server(move |call| match call.key {
            ApiKey::OffsetFetch => {
                let committed = OffsetFetchResponsePartitions {
                    committed_offset: offset,
                    committed_leader_epoch: -1,
                    ..OffsetFetchResponsePartitions::default()
                };
                let topic = OffsetFetchResponseTopics {
                    name: "t".into(),
                    partitions: vec![committed],
                    ..OffsetFetchResponseTopics::default()
                };
                let group = OffsetFetchResponseGroup {
                    group_id: "g".into(),
                    topics: vec![topic],
                    ..OffsetFetchResponseGroup::default()
                };
                Some(call.answer(&OffsetFetchResponse { groups: vec![group], ..Default::default() }))
            }
            ApiKey::Fetch => {
                std::thread::sleep(Duration::from_millis(2));
                Some(answer_fetch(call, &[(0, 0, Vec::new())]))
            }
            _ => None,
        })
        .await;
        let options = ConsumerOptions { group: Some("g".to_owned()), auto_commit: false, ..options(&server) };
        let mut consumer = Consumer::new(options).await.unwrap();
        consumer.assign(vec![(partition(0), StartAt::Committed)]).await.unwrap();
        consumer.poll(Duration::from_millis(100)).await.unwrap();
        assert_eq!(consumer.position(&partition(0)), Some(Offset(expected)));
        assert!(consumer.lag(&partition(0)).is_none_or(|lag| lag >= 0));
    }
}

#[tokio::test]
async fn an_application_cannot_ask_for_offsets_that_name_no_record() {
    let server = server(|_| Some(Reply::Usual)).await;
    let mut consumer = consumer_at(&server, StartAt::Offset(Offset(0))).await;
    let before = StartAt::Offset(Offset(-1));
    let refused = [consumer.seek(&partition(0), before), consumer.assign(vec![(partition(0), before)]).await];
    for result in refused {
        assert!(matches!(result, Err(ClientError::Invalid(_))));
    }
    assert_eq!(consumer.assignment(), [partition(0)], "nothing has changed");
}
