//! The servers that partitions are read from: changing leaders, and nearer replicas.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use riverrun_client::{
    Admin, ClientError, ClusterOptions, Consumer, ConsumerOptions, ErrorCode, Isolation, OffsetReset,
    OffsetSpec, StartAt,
};
use riverrun_protocol::fetch_response::{FetchableTopicResponse, PartitionData};
use riverrun_protocol::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use riverrun_protocol::metadata_response::{MetadataResponseBroker, MetadataResponsePartition};
use riverrun_protocol::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use riverrun_protocol::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use riverrun_protocol::{
    ApiKey, FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse, OffsetFetchResponse,
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
};
use riverrun_types::{Offset, TimestampMs};

use crate::consumer::{
    BEGIN, END, POLL, answer_fetch, batch, consumer_at, offsets, options, partition, records, server,
};
use crate::server::{Call, Reply, ScriptedServer, TOPIC_ID};

/// A server whose partition 0 gets a new leader after the first records, whose log is truncated at offset 12.
async fn cut_server() -> ScriptedServer {
    let cut = Arc::new(Mutex::new(false));
    server(move |call| {
        let mut cut = cut.lock().unwrap();
        match call.key {
            ApiKey::Metadata => Some(call.answer(&call.metadata_of_epoch(if *cut { 5 } else { 0 }))),
            ApiKey::Fetch => {
                let request = call.decode::<FetchRequest<'_>>();
                let from = request.topics[0].partitions[0].fetch_offset;
                let epoch = request.topics[0].partitions[0].current_leader_epoch;
                match (from, epoch) {
                    (BEGIN, 0) => Some(answer_fetch(call, &[(0, 0, batch(BEGIN))])),
                    (END, 0) => {
                        *cut = true;
                        Some(answer_fetch(call, &[(0, ErrorCode::FENCED_LEADER_EPOCH.0, Vec::new())]))
                    }
                    // The records written in place of those that are gone.
                    (12, 5) => Some(answer_fetch(call, &[(0, 0, batch(12))])),
                    _ => None,
                }
            }
            ApiKey::OffsetForLeaderEpoch => {
                let request = call.decode::<OffsetForLeaderEpochRequest<'_>>();
                let asked = &request.topics[0].partitions[0];
                assert_eq!((asked.current_leader_epoch, asked.leader_epoch), (5, 0));
                let end = EpochEndOffset { leader_epoch: 0, end_offset: 12, ..EpochEndOffset::default() };
                let topic = OffsetForLeaderTopicResult { topic: "t".into(), partitions: vec![end] };
                Some(call.answer(&OffsetForLeaderEpochResponse {
                    topics: vec![topic],
                    ..OffsetForLeaderEpochResponse::default()
                }))
            }
            _ => None,
        }
    })
    .await
}

#[tokio::test]
async fn truncation_is_detected_and_reading_continues_there() {
    let server = cut_server().await;
    let mut consumer = consumer_at(&server, StartAt::Offset(Offset(BEGIN))).await;
    assert_eq!(offsets(&records(&mut consumer).await.unwrap()), [10, 11, 12, 13]);
    assert_eq!(offsets(&records(&mut consumer).await.unwrap()), [12, 13], "others than before");
}

#[tokio::test]
async fn without_a_reset_truncation_is_an_error() {
    let server = cut_server().await;
    let strict = ConsumerOptions { offset_reset: OffsetReset::Error, ..options(&server) };
    let mut consumer = Consumer::new(strict).await.unwrap();
    consumer.assign(vec![(partition(0), StartAt::Offset(Offset(BEGIN)))]).await.unwrap();
    assert_eq!(offsets(&records(&mut consumer).await.unwrap()), [10, 11, 12, 13]);
    let error = records(&mut consumer).await.unwrap_err();
    assert!(error.to_string().contains("truncated at offset 12"), "{error}");
    consumer.seek(&partition(0), StartAt::Offset(Offset(12))).unwrap();
    assert_eq!(offsets(&records(&mut consumer).await.unwrap()), [12, 13]);
}

/// The leader's answer without records that names node 2.
fn replica_named(call: &Call<'_>) -> Reply {
    let data = PartitionData { high_watermark: END, preferred_read_replica: 2, ..PartitionData::default() };
    let topic = FetchableTopicResponse { topic_id: TOPIC_ID, partitions: vec![data], ..Default::default() };
    call.answer(&FetchResponse { responses: vec![topic], ..FetchResponse::default() })
}

/// The first offsets that a consumer in the rack of that node reads.
async fn read_near(leader: &ScriptedServer) -> Vec<i64> {
    let near = ConsumerOptions { rack: Some("here".to_owned()), ..options(leader) };
    let mut consumer = Consumer::new(near).await.unwrap();
    consumer.assign(vec![(partition(0), StartAt::Earliest)]).await.unwrap();
    offsets(&records(&mut consumer).await.unwrap())
}

/// A node that the leader names, and that has all records; and the leader.
async fn leader_and_replica(leader_has_records: bool) -> (ScriptedServer, ScriptedServer) {
    let replica = server(|_| None).await;
    let address = replica.address();
    let leader = server(move |call| match call.key {
        ApiKey::Metadata => {
            let mut metadata = call.metadata_of_epoch(0);
            let (host, port) = (address.ip().to_string().into(), address.port().into());
            metadata.brokers.push(MetadataResponseBroker { node_id: 2, host, port, rack: None });
            Some(call.answer(&metadata))
        }
        ApiKey::Fetch => {
            let request = call.decode::<FetchRequest<'_>>();
            assert_eq!(request.rack_id, "here");
            if leader_has_records && call.nth > 0 {
                return None;
            }
            Some(replica_named(call))
        }
        _ => None,
    })
    .await;
    (leader, replica)
}

#[tokio::test]
async fn records_are_fetched_from_the_replica_that_the_leader_names() {
    let (leader, _replica) = leader_and_replica(false).await;
    assert_eq!(read_near(&leader).await, [10, 11, 12, 13]);
}

#[tokio::test]
async fn when_the_replica_is_gone_the_leader_is_asked_again() {
    let (leader, replica) = leader_and_replica(true).await;
    drop(replica);
    assert_eq!(read_near(&leader).await, [10, 11, 12, 13]);
}

#[tokio::test]
async fn a_replica_that_is_not_among_the_servers_is_no_error() {
    let leader = server(|call| {
        let first_fetch = call.key == ApiKey::Fetch && call.nth == 0;
        first_fetch.then(|| replica_named(call))
    })
    .await;
    assert_eq!(read_near(&leader).await, [10, 11, 12, 13]);
}

/// A server whose partition 1 has no leader, with these replicas offline, or one whose files it cannot use.
async fn server_with_one_offline(leaderless: Option<&'static [i32]>) -> ScriptedServer {
    server(move |call| match (call.key, leaderless) {
        (ApiKey::Metadata, Some(offline)) => {
            let mut metadata = call.metadata_of_epoch(0);
            let partition = &mut metadata.topics[0].partitions[1];
            (partition.leader_id, partition.offline_replicas) = (-1, offline.to_vec());
            partition.error_code = ErrorCode::LEADER_NOT_AVAILABLE.0;
            Some(call.answer(&metadata))
        }
        (ApiKey::ListOffsets, _) => {
            let request = call.decode::<ListOffsetsRequest<'_>>();
            let asked = request.topics[0].partitions.iter();
            let answer = |partition_index| ListOffsetsPartitionResponse {
                partition_index,
                error_code: if partition_index == 1 { ErrorCode::KAFKA_STORAGE_ERROR.0 } else { 0 },
                offset: BEGIN,
                ..ListOffsetsPartitionResponse::default()
            };
            let partitions = asked.map(|partition| answer(partition.partition_index)).collect();
            let topic = ListOffsetsTopicResponse { name: "t".into(), partitions };
            Some(call.answer(&ListOffsetsResponse { topics: vec![topic], ..Default::default() }))
        }
        _ => None,
    })
    .await
}

#[tokio::test]
async fn impatient_lookup_refreshes_a_moved_leader() {
    for (code, asks_again) in
        [(ErrorCode::NOT_LEADER_OR_FOLLOWER, true), (ErrorCode::KAFKA_STORAGE_ERROR, false)]
    {
        let metadata = Arc::new(Mutex::new(0));
        let asked = Arc::clone(&metadata);
        let server = server(move |call| match call.key {
            ApiKey::Metadata => {
                *asked.lock().unwrap() += 1;
                None
            }
            ApiKey::ListOffsets => {
                let partition = ListOffsetsPartitionResponse { error_code: code.0, ..Default::default() };
                let topic = ListOffsetsTopicResponse { name: "t".into(), partitions: vec![partition] };
                Some(call.answer(&ListOffsetsResponse { topics: vec![topic], ..Default::default() }))
            }
            _ => None,
        })
        .await;
        let consumer = Consumer::new(options(&server)).await.unwrap();
        let find = || async {
            let wanted = vec![(partition(0), OffsetSpec::Latest)];
            let found = consumer.find_offsets(wanted, Duration::ZERO).await;
            assert_eq!(found[0].1.as_ref().unwrap_err().code(), Some(code));
            *metadata.lock().unwrap()
        };
        let before = find().await;
        assert_eq!(find().await > before, asks_again, "{code}");
    }
}

#[tokio::test]
async fn offline_partition_is_reported_and_blocks_no_other() {
    // Replica 1 is the live server, and 7 is not.
    for (leaderless, start, code) in [
        (None, StartAt::Earliest, ErrorCode::KAFKA_STORAGE_ERROR),
        (Some(&[][..]), StartAt::Earliest, ErrorCode::LEADER_NOT_AVAILABLE),
        (Some(&[7]), StartAt::Offset(Offset(BEGIN)), ErrorCode::LEADER_NOT_AVAILABLE),
        (Some(&[1]), StartAt::Earliest, ErrorCode::KAFKA_STORAGE_ERROR),
        (Some(&[1]), StartAt::Offset(Offset(BEGIN)), ErrorCode::KAFKA_STORAGE_ERROR),
    ] {
        let server = server_with_one_offline(leaderless).await;
        let mut consumer = Consumer::new(options(&server)).await.unwrap();
        consumer.assign(vec![(partition(0), start), (partition(1), start)]).await.unwrap();
        // Sooner than an attempt times out.
        assert_eq!(offsets(&records(&mut consumer).await.unwrap()), [10, 11, 12, 13]);
        consumer.poll(POLL).await.unwrap();
        let troubles = consumer.troubles();
        assert_eq!(troubles.len(), 1, "{troubles:?}");
        assert_eq!((&troubles[0].0, troubles[0].1.error.code()), (&Some(partition(1)), Some(code)));
        let wanted = [0, 1].map(|index| (partition(index), OffsetSpec::Earliest)).to_vec();
        let found = consumer.find_offsets(wanted, Duration::ZERO).await;
        assert!(found[0].1.is_ok() && found.len() == 2, "{found:?}");
        assert_eq!(found[1].1.as_ref().unwrap_err().code(), Some(code));
    }
}

/// A server whose topic has 20 partitions, all of which have this leader unless `leaderless` returns replicas, and
/// the number of metadata requests.
async fn wide_server(leaderless: fn(i32) -> Option<&'static [i32]>) -> (ScriptedServer, Arc<Mutex<u32>>) {
    let asked = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&asked);
    let server = server(move |call| {
        if call.key != ApiKey::Metadata {
            return None;
        }
        *counted.lock().unwrap() += 1;
        let mut metadata = call.metadata_of_epoch(0);
        metadata.topics[0].partitions = (0..20)
            .map(|partition_index| MetadataResponsePartition {
                partition_index,
                leader_id: if leaderless(partition_index).is_some() { -1 } else { 1 },
                offline_replicas: leaderless(partition_index).unwrap_or_default().to_vec(),
                replica_nodes: vec![1],
                ..MetadataResponsePartition::default()
            })
            .collect();
        Some(call.answer(&metadata))
    })
    .await;
    (server, asked)
}

#[tokio::test]
async fn one_lookup_requests_metadata_once() {
    let odd = |index: i32| (index % 2 == 1).then_some(&[1][..]);
    let (damaged, gone) = (ErrorCode::KAFKA_STORAGE_ERROR, ErrorCode::LEADER_NOT_AVAILABLE);
    for (leaderless, code) in
        [(odd as fn(i32) -> Option<&'static [i32]>, damaged), (|_| Some(&[7]), gone), (|_| Some(&[]), gone)]
    {
        let (server, asked) = wide_server(leaderless).await;
        let consumer = Consumer::new(options(&server)).await.unwrap();
        for _ in 0..2 {
            let (before, begun) = (*asked.lock().unwrap(), Instant::now());
            let wanted = (0..20).map(|index| (partition(index), OffsetSpec::Latest)).collect();
            let found = consumer.find_offsets(wanted, Duration::ZERO).await;
            for (partition, found) in found {
                let leads = leaderless(partition.partition).is_none();
                assert_eq!(found.err().and_then(|error| error.code()), (!leads).then_some(code));
            }
            assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
            assert_eq!(*asked.lock().unwrap() - before, 1);
        }
    }
}

#[tokio::test]
async fn admin_gets_a_leaderless_error_at_once() {
    for (offline, code) in [(1, ErrorCode::KAFKA_STORAGE_ERROR), (7, ErrorCode::LEADER_NOT_AVAILABLE)] {
        let server = server_with_one_offline(Some(if offline == 1 { &[1] } else { &[7] })).await;
        let options = ClusterOptions { retry_timeout: Duration::from_mins(1), ..server.options() };
        let admin = Admin::new(options).await.unwrap();
        let wanted = [0, 1].map(|index| (partition(index), OffsetSpec::Latest)).to_vec();
        let listing = admin.list_offsets(wanted, Isolation::ReadUncommitted);
        let listed = tokio::time::timeout(Duration::from_secs(4), listing).await.expect("at once");
        assert!(listed[0].1.is_ok() && listed.len() == 2, "{listed:?}");
        assert_eq!(listed[1].1.as_ref().unwrap_err().code(), Some(code));
        let offline = [partition(1)];
        let producers = admin.describe_producers(&offline);
        let told = tokio::time::timeout(Duration::from_secs(4), producers).await.expect("at once");
        assert_eq!(told[0].1.as_ref().unwrap_err().code(), Some(code));
    }
}

/// On the wire a time below 0 has another meaning: -1 asks for the end.
#[tokio::test]
async fn a_time_below_0_is_refused_and_not_looked_for() {
    let server = server(|_| None).await;
    let mut consumer = Consumer::new(options(&server)).await.unwrap();
    consumer.assign(vec![(partition(0), StartAt::Latest)]).await.unwrap();
    let admin = Admin::new(server.options()).await.unwrap();
    for time in [-1, -2, -3, i64::MIN] {
        let time = TimestampMs(time);
        let wanted = vec![
            (partition(0), OffsetSpec::Timestamp(time)),
            (partition(1), OffsetSpec::Timestamp(TimestampMs(0))),
        ];
        let listed = admin.list_offsets(wanted, Isolation::ReadUncommitted).await;
        assert_eq!(listed.len(), 2);
        for (of, found) in listed {
            let as_it_should = match &found {
                Ok(found) => of == partition(1) && found.is_some_and(|found| found.offset == Offset(BEGIN)),
                Err(ClientError::Invalid(text)) => of == partition(0) && text.contains("below 0"),
                Err(_) => false,
            };
            assert!(as_it_should, "{of}: {found:?}");
        }
        let error = consumer.offsets_for_times(&[(partition(0), time)]).await.unwrap_err();
        assert!(matches!(error, ClientError::Invalid(_)), "{error}");
        let start = StartAt::Timestamp(time);
        let assigned = consumer.assign(vec![(partition(1), start)]).await;
        for refused in [assigned, consumer.seek(&partition(0), start)] {
            assert!(
                matches!(&refused, Err(ClientError::Invalid(text)) if text.contains("below 0")),
                "{refused:?}"
            );
        }
        assert_eq!(consumer.assignment(), [partition(0)], "nothing has changed by that");
    }
}

#[tokio::test]
async fn gone_server_is_waited_for_once() {
    let server = server(|call| (call.key == ApiKey::Metadata && call.nth > 0).then_some(Reply::Close)).await;
    let options = ClusterOptions { retry_timeout: Duration::from_secs(1), ..server.options() };
    let admin = Admin::new(options).await.unwrap();
    let begun = Instant::now();
    // For a topic that is not in the first answer.
    let wanted = (0..20).map(|index| (riverrun_client::TopicPartition::new("u", index), OffsetSpec::Latest));
    let found = admin.list_offsets(wanted.collect(), Isolation::ReadUncommitted).await;
    assert!(found.len() == 20 && found.iter().all(|(_, found)| found.is_err()), "{found:?}");
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn offset_lookup_ends_within_its_time_limit() {
    for silent in [ApiKey::ListOffsets, ApiKey::Metadata] {
        let server = server(move |call| {
            let first = silent == ApiKey::Metadata && call.nth == 0;
            (call.key == silent && !first).then_some(Reply::Silence)
        })
        .await;
        let mut options = options(&server);
        options.cluster.request_timeout = Duration::from_mins(1);
        let consumer = Consumer::new(options).await.unwrap();
        // For a topic that is not in the first answer.
        let other = riverrun_client::TopicPartition::new("u", 0);
        let wanted = if silent == ApiKey::Metadata { other } else { partition(0) };
        let looking = consumer.find_offsets(vec![(wanted, OffsetSpec::Latest)], Duration::from_millis(300));
        let found = tokio::time::timeout(Duration::from_mins(1), looking).await.expect("in time");
        let error = found[0].1.as_ref().unwrap_err();
        assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
    }
}

#[tokio::test]
async fn committed_partitions_are_read_despite_a_silent_leader() {
    let server = server(|call| match call.key {
        ApiKey::ListOffsets => Some(Reply::Silence),
        ApiKey::OffsetFetch => {
            let committed = OffsetFetchResponsePartitions {
                partition_index: 0,
                committed_offset: BEGIN,
                committed_leader_epoch: -1,
                ..OffsetFetchResponsePartitions::default()
            };
            let topic = OffsetFetchResponseTopics {
                name: "t".into(),
                partitions: vec![committed],
                ..OffsetFetchResponseTopics::default()
            };
            let group =
                OffsetFetchResponseGroup { group_id: "g".into(), topics: vec![topic], ..Default::default() };
            Some(call.answer(&OffsetFetchResponse { groups: vec![group], ..Default::default() }))
        }
        _ => None,
    })
    .await;
    let mut options = ConsumerOptions { group: Some("g".to_owned()), ..options(&server) };
    options.cluster.request_timeout = Duration::from_mins(1);
    let mut consumer = Consumer::new(options).await.unwrap();
    consumer
        .assign(vec![(partition(0), StartAt::Committed), (partition(1), StartAt::Committed)])
        .await
        .unwrap();
    assert_eq!(offsets(&records(&mut consumer).await.unwrap()), [10, 11, 12, 13]);
}

/// Not every server knows a new partition yet.
#[tokio::test]
async fn unknown_partition_is_an_error_only_after_the_grace() {
    let server = server(|_| None).await;
    let mut consumer = Consumer::new(options(&server)).await.unwrap();
    consumer
        .assign(vec![(partition(0), StartAt::Earliest), (partition(9), StartAt::Earliest)])
        .await
        .unwrap();
    let begun = Instant::now();
    assert_eq!(offsets(&records(&mut consumer).await.unwrap()), [10, 11, 12, 13], "the other is there");
    let error = loop {
        assert!(begun.elapsed() < Duration::from_mins(1), "no error in time");
        if let Err(error) = consumer.poll(POLL).await {
            break error;
        }
    };
    assert!(matches!(error, ClientError::UnknownPartition(_)), "{error}");
    assert!(begun.elapsed() > Duration::from_millis(900), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_leader_that_does_not_know_a_partition_yet_is_waited_for() {
    let begun = Instant::now();
    let server = server(move |call| {
        let is_behind = call.key == ApiKey::ListOffsets && begun.elapsed() < Duration::from_millis(1500);
        is_behind.then(|| {
            let error_code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0;
            let partition = ListOffsetsPartitionResponse { error_code, ..Default::default() };
            let topic = ListOffsetsTopicResponse { name: "t".into(), partitions: vec![partition] };
            call.answer(&ListOffsetsResponse { topics: vec![topic], ..Default::default() })
        })
    })
    .await;
    let mut options = options(&server);
    options.cluster.retry_backoff_max = Duration::from_millis(50);
    let mut consumer = Consumer::new(options).await.unwrap();
    consumer.assign(vec![(partition(0), StartAt::Earliest)]).await.unwrap();
    assert_eq!(offsets(&records(&mut consumer).await.unwrap()), [10, 11, 12, 13]);
    assert!(begun.elapsed() > Duration::from_millis(1500), "{:?}", begun.elapsed());
}

/// Times of the metadata requests.
pub(crate) type Looks = Arc<Mutex<Vec<Instant>>>;

/// The usual metadata, in which partition 0 has no leader.
pub(crate) fn look_without_leader(call: &Call<'_>, looks: &Looks) -> Reply {
    looks.lock().unwrap().push(Instant::now());
    let mut metadata = call.metadata_of_epoch(0);
    metadata.topics[0].partitions[0].leader_id = -1;
    call.answer(&metadata)
}

/// True if the pause between two lookups has grown to half a second: the next is longer.
pub(crate) fn has_slowed_down(looks: &Looks) -> bool {
    let looks = looks.lock().unwrap();
    looks.windows(2).next_back().is_some_and(|pair| pair[1] - pair[0] > Duration::from_millis(500))
}

/// Time until the first lookup after `since`, if there was one.
pub(crate) fn looked_after(looks: &Looks, since: Instant) -> Option<Duration> {
    looks.lock().unwrap().iter().find(|at| **at > since).map(|at| *at - since)
}

#[tokio::test]
async fn leaderless_partition_does_not_delay_other_lookups() {
    let (looks, moved) = (Looks::default(), Arc::new(Mutex::new(None)));
    let (looked, has_moved) = (Arc::clone(&looks), Arc::clone(&moved));
    let server = server(move |call| match call.key {
        ApiKey::Metadata => Some(look_without_leader(call, &looked)),
        ApiKey::Fetch if has_moved.lock().unwrap().is_none() && has_slowed_down(&looked) => {
            *has_moved.lock().unwrap() = Some(Instant::now());
            Some(answer_fetch(call, &[(1, ErrorCode::NOT_LEADER_OR_FOLLOWER.0, Vec::new())]))
        }
        _ => None,
    })
    .await;
    let mut options = options(&server);
    options.cluster.retry_backoff_max = Duration::from_secs(30);
    let mut consumer = Consumer::new(options).await.unwrap();
    let both = [0, 1].map(|index| (partition(index), StartAt::Offset(Offset(BEGIN))));
    consumer.assign(both.into()).await.unwrap();
    let begun = Instant::now();
    let pause = loop {
        assert!(begun.elapsed() < Duration::from_secs(20), "{looks:?}");
        consumer.poll(POLL).await.unwrap();
        if let Some(pause) = moved.lock().unwrap().and_then(|since| looked_after(&looks, since)) {
            break pause;
        }
    };
    assert!(pause < Duration::from_millis(300), "{pause:?}");
}
