//! The consumer against a server that moves partitions, loses positions and answers late.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use riverrun_client::{
    ClientError, CommittedOffset, Consumer, ConsumerOptions, ConsumerRecord, ErrorCode, GroupProtocol,
    OffsetReset, OffsetSpec, Record, StartAt, TopicPartition,
};
use riverrun_protocol::fetch_response::{FetchableTopicResponse, PartitionData};
use riverrun_protocol::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use riverrun_protocol::metadata_response::{MetadataResponseBroker, MetadataResponsePartition};
use riverrun_protocol::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use riverrun_protocol::offset_fetch_response::OffsetFetchResponseGroup;
use riverrun_protocol::{
    ApiKey, FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse, OffsetCommitRequest,
    OffsetCommitResponse, OffsetFetchResponse, Records,
};
use riverrun_records::{BatchBuilder, BatchOptions};
use riverrun_types::{LeaderEpoch, Offset, TimestampMs};
use tokio::time::timeout;

use crate::server::{Call, Reply, ScriptedServer, TOPIC_ID};

/// Beginning and end of the scripted partitions.
pub(crate) const BEGIN: i64 = 10;
pub(crate) const END: i64 = 14;
pub(crate) const POLL: Duration = Duration::from_millis(50);

pub(crate) fn batch(from: i64) -> Vec<u8> {
    let (base_offset, leader_epoch) = (Offset(from), LeaderEpoch(0));
    let mut builder =
        BatchBuilder::new(BatchOptions { base_offset, leader_epoch, ..BatchOptions::default() });
    for offset in from..END {
        builder.append(TimestampMs(offset), None, Some(offset.to_string().as_bytes()), &[]).unwrap();
    }
    builder.build().unwrap()
}

/// The result of a fetch, one answer for each partition. An empty one takes as long as the client allows.
fn fetched(call: &Call<'_>) -> Reply {
    let request = call.decode::<FetchRequest<'_>>();
    let wanted: Vec<(i32, i64)> = request.topics[0]
        .partitions
        .iter()
        .map(|partition| (partition.partition, partition.fetch_offset))
        .collect();
    let bytes: Vec<Vec<u8>> = wanted
        .iter()
        .map(|(_, from)| if (BEGIN..END).contains(from) { batch(*from) } else { Vec::new() })
        .collect();
    if bytes.iter().all(Vec::is_empty) {
        std::thread::sleep(Duration::from_millis(2));
    }
    let partition = |((partition_index, from), bytes): (&(i32, i64), &'_ Vec<u8>)| {
        let in_range = (BEGIN..=END).contains(from);
        let code = if in_range { ErrorCode::NONE } else { ErrorCode::OFFSET_OUT_OF_RANGE };
        (*partition_index, code.0, bytes.clone())
    };
    let found: Vec<_> = wanted.iter().zip(&bytes).map(partition).collect();
    answer_fetch(call, &found)
}

pub(crate) fn answer_fetch(call: &Call<'_>, found: &[(i32, i16, Vec<u8>)]) -> Reply {
    answer_fetch_in(call, found, 0)
}

fn answer_fetch_in(call: &Call<'_>, found: &[(i32, i16, Vec<u8>)], session_id: i32) -> Reply {
    let partitions = found.iter().map(|(partition_index, error_code, bytes)| PartitionData {
        partition_index: *partition_index,
        error_code: *error_code,
        high_watermark: END,
        records: Some(Records::Bytes(bytes)),
        ..PartitionData::default()
    });
    let topic = FetchableTopicResponse {
        topic_id: TOPIC_ID,
        partitions: partitions.collect(),
        ..FetchableTopicResponse::default()
    };
    call.answer(&FetchResponse { session_id, responses: vec![topic], ..FetchResponse::default() })
}

fn listed(call: &Call<'_>) -> Reply {
    call.answer(&offsets_of(call))
}

fn offsets_of<'a>(call: &'a Call<'_>) -> ListOffsetsResponse<'a> {
    let request = call.decode::<ListOffsetsRequest<'_>>();
    let partition = |wanted: &riverrun_protocol::list_offsets_request::ListOffsetsPartition| {
        let offset = match wanted.timestamp {
            -2 => BEGIN,
            -1 => END,
            timestamp if timestamp < END => timestamp.max(BEGIN),
            _ => -1,
        };
        ListOffsetsPartitionResponse {
            partition_index: wanted.partition_index,
            offset,
            ..ListOffsetsPartitionResponse::default()
        }
    };
    let topics = request.topics.iter().map(|topic| ListOffsetsTopicResponse {
        name: topic.name.clone(),
        partitions: topic.partitions.iter().map(partition).collect(),
    });
    ListOffsetsResponse { topics: topics.collect(), ..ListOffsetsResponse::default() }
}

/// A server with records in every partition. `meddle` may answer in its place.
pub(crate) async fn server(
    mut meddle: impl FnMut(&Call<'_>) -> Option<Reply> + Send + 'static,
) -> ScriptedServer {
    ScriptedServer::start(move |call| match meddle(call) {
        Some(reply) => reply,
        None => match call.key {
            ApiKey::Fetch => fetched(call),
            ApiKey::ListOffsets => listed(call),
            _ => Reply::Usual,
        },
    })
    .await
}

pub(crate) fn options(server: &ScriptedServer) -> ConsumerOptions {
    let mut options = ConsumerOptions::new(server.options());
    options.offset_reset = OffsetReset::Earliest;
    options.fetch_wait_max = Duration::from_millis(10);
    options
}

/// Options of a member of group g with frequent heartbeats: in KIP-848 the server sets the interval.
pub(crate) fn member_options(server: &ScriptedServer, group_protocol: GroupProtocol) -> ConsumerOptions {
    let mut options = ConsumerOptions { group: Some("g".to_owned()), group_protocol, ..options(server) };
    if group_protocol == GroupProtocol::Classic {
        options.heartbeat_interval = Duration::from_millis(10);
    }
    options
}

pub(crate) fn partition(index: i32) -> TopicPartition {
    TopicPartition::new("t", index)
}

pub(crate) async fn consumer_at(server: &ScriptedServer, start: StartAt) -> Consumer {
    let mut consumer = Consumer::new(options(server)).await.unwrap();
    consumer.assign(vec![(partition(0), start)]).await.unwrap();
    consumer
}

/// Polls until there are records.
pub(crate) async fn records(consumer: &mut Consumer) -> Result<Vec<ConsumerRecord>, ClientError> {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let records = consumer.poll(POLL).await?;
        if !records.is_empty() {
            return Ok(records);
        }
        assert!(Instant::now() < deadline, "no records");
    }
}

pub(crate) fn offsets(records: &[ConsumerRecord]) -> Vec<i64> {
    records.iter().map(|record| record.offset.0).collect()
}

#[tokio::test]
async fn a_partition_is_read_from_where_it_was_asked_for() {
    let server = server(|_| None).await;
    for (start, first) in [
        (StartAt::Earliest, BEGIN),
        (StartAt::Offset(Offset(12)), 12),
        (StartAt::Timestamp(TimestampMs(13)), 13),
    ] {
        let mut consumer = consumer_at(&server, start).await;
        let records = records(&mut consumer).await.unwrap();
        assert_eq!(offsets(&records), (first..END).collect::<Vec<_>>(), "{start:?}");
        assert_eq!(records[0].value.as_deref(), Some(first.to_string().as_bytes()));
        assert_eq!(consumer.position(&partition(0)), Some(Offset(END)));
    }
    for start in [StartAt::Latest, StartAt::Timestamp(TimestampMs(99))] {
        let mut consumer = consumer_at(&server, start).await;
        assert_eq!(offsets(&consumer.poll(POLL).await.unwrap()), [0; 0]);
        assert_eq!(consumer.position(&partition(0)), Some(Offset(END)), "{start:?}");
    }
}

#[tokio::test]
async fn errors_that_pass_are_not_reported_and_lose_nothing() {
    let codes = [
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode::FENCED_LEADER_EPOCH,
        ErrorCode::UNKNOWN_TOPIC_ID,
    ];
    let server = server(move |call| match call.key {
        ApiKey::Fetch => codes.get(call.nth).map(|code| answer_fetch(call, &[(0, code.0, Vec::new())])),
        _ => None,
    })
    .await;
    let mut consumer = consumer_at(&server, StartAt::Earliest).await;
    assert_eq!(offsets(&records(&mut consumer).await.unwrap()), [10, 11, 12, 13]);
}

#[tokio::test]
async fn a_broken_connection_is_made_again() {
    let server = server(|call| (call.key == ApiKey::Fetch && call.nth == 0).then_some(Reply::Close)).await;
    let mut consumer = consumer_at(&server, StartAt::Earliest).await;
    assert_eq!(offsets(&records(&mut consumer).await.unwrap()), [10, 11, 12, 13]);
}

#[tokio::test]
async fn a_position_out_of_range_is_reset_or_reported() {
    let server = server(|_| None).await;
    let mut consumer = consumer_at(&server, StartAt::Offset(Offset(3))).await;
    assert_eq!(offsets(&records(&mut consumer).await.unwrap()), [10, 11, 12, 13]);

    let mut strict = Consumer::new(ConsumerOptions { offset_reset: OffsetReset::Error, ..options(&server) })
        .await
        .unwrap();
    strict.assign(vec![(partition(0), StartAt::Offset(Offset(3)))]).await.unwrap();
    let error = records(&mut strict).await.unwrap_err();
    assert!(matches!(error, ClientError::NoPosition { .. }), "{error}");
}

/// The answer has the log's start, and then an out-of-range error.
#[tokio::test]
async fn repeated_out_of_range_is_retried_with_growing_pauses() {
    let fetches = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&fetches);
    let server = server(move |call| {
        (call.key == ApiKey::Fetch).then(|| {
            *counted.lock().unwrap() += 1;
            answer_fetch(call, &[(0, ErrorCode::OFFSET_OUT_OF_RANGE.0, Vec::new())])
        })
    })
    .await;
    let mut consumer = consumer_at(&server, StartAt::Earliest).await;
    assert!(consumer.poll(Duration::from_secs(1)).await.unwrap().is_empty());
    let fetches = *fetches.lock().unwrap();
    // With pauses of 5 ms it would be more than 100.
    assert!((4..20).contains(&fetches), "{fetches}");
}

#[tokio::test]
async fn leaderless_partition_requests_metadata_with_pauses() {
    let looks = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&looks);
    let server = server(move |call| {
        (call.key == ApiKey::Metadata).then(|| {
            *counted.lock().unwrap() += 1;
            let mut metadata = call.metadata_of_epoch(0);
            metadata.topics[0].partitions[0].leader_id = -1;
            call.answer(&metadata)
        })
    })
    .await;
    let mut consumer = consumer_at(&server, StartAt::Offset(Offset(BEGIN))).await;
    assert!(consumer.poll(Duration::from_secs(1)).await.unwrap().is_empty());
    let looks = *looks.lock().unwrap();
    assert!((4..20).contains(&looks), "{looks}");
    let troubles = consumer.troubles();
    assert!(troubles.iter().all(|(of, _)| *of == Some(partition(0))), "only of the partition: {troubles:?}");
}

#[tokio::test]
async fn very_many_partitions_are_paused_and_resumed_in_little_time() {
    let server = server(|_| None).await;
    let mut consumer = Consumer::new(options(&server)).await.unwrap();
    let all: Vec<_> = (0..40_000).map(partition).collect();
    consumer.assign(all.iter().map(|one| (one.clone(), StartAt::Earliest)).collect()).await.unwrap();
    let begun = Instant::now();
    consumer.pause(&all).unwrap();
    assert_eq!(consumer.paused().len(), 40_000);
    consumer.resume(&all).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn damaged_records_are_reported_and_read_again() {
    let server = server(|call| {
        (call.key == ApiKey::Fetch && call.nth == 0).then(|| {
            let mut bytes = batch(BEGIN);
            *bytes.last_mut().unwrap() ^= 1;
            answer_fetch(call, &[(0, 0, bytes)])
        })
    })
    .await;
    let mut consumer = consumer_at(&server, StartAt::Earliest).await;
    let error = records(&mut consumer).await.unwrap_err();
    let told = "t-0 cannot be read at offset 10: corrupt batch: ";
    assert!(error.to_string().starts_with(told), "{error}");
    let ClientError::Unreadable { next: Some(next), .. } = error else { panic!("{error}") };
    assert_eq!(next, Offset(14), "where a seek leaves it out");
    assert_eq!(offsets(&records(&mut consumer).await.unwrap()), [10, 11, 12, 13]);
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_reported() {
    let server = server(|call| (call.key == ApiKey::Fetch).then(|| call.nonsense())).await;
    let mut consumer = consumer_at(&server, StartAt::Earliest).await;
    let error = records(&mut consumer).await.unwrap_err();
    assert!(matches!(error, ClientError::Malformed { .. }), "{error}");
}

#[tokio::test]
async fn seek_back_discards_fetched_records() {
    let server = server(|_| None).await;
    let mut consumer = consumer_at(&server, StartAt::Earliest).await;
    records(&mut consumer).await.unwrap();
    consumer.seek(&partition(0), StartAt::Offset(Offset(12))).unwrap();
    assert_eq!(offsets(&records(&mut consumer).await.unwrap()), [12, 13]);
    assert!(consumer.seek(&partition(1), StartAt::Earliest).is_err(), "not assigned");
}

/// Requests that a group's coordinator got, in order.
pub(crate) type Told = Arc<Mutex<Vec<String>>>;

pub(crate) fn tell(told: &Told, what: impl Into<String>) {
    told.lock().unwrap().push(what.into());
}

pub(crate) async fn wait_for(
    consumer: &mut Consumer,
    what: &str,
    mut happened: impl FnMut(&Consumer) -> bool,
) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !happened(consumer) {
        assert!(Instant::now() < deadline, "{what}");
        consumer.poll(Duration::from_millis(5)).await.unwrap();
    }
}

pub(crate) fn committed(call: &Call<'_>, told: &Told) -> Reply {
    let request = call.decode::<OffsetCommitRequest<'_>>();
    let mut topics = Vec::new();
    for topic in &request.topics {
        let partitions = topic.partitions.iter().map(|one| {
            tell(told, format!("commit {} {}", one.partition_index, one.committed_offset));
            OffsetCommitResponsePartition { partition_index: one.partition_index, error_code: 0 }
        });
        topics.push(OffsetCommitResponseTopic {
            name: topic.name.clone(),
            partitions: partitions.collect(),
            ..OffsetCommitResponseTopic::default()
        });
    }
    call.answer(&OffsetCommitResponse { topics, ..OffsetCommitResponse::default() })
}

pub(crate) fn nothing_committed(call: &Call<'_>) -> Reply {
    let group = OffsetFetchResponseGroup { group_id: "g".into(), ..OffsetFetchResponseGroup::default() };
    call.answer(&OffsetFetchResponse { groups: vec![group], ..OffsetFetchResponse::default() })
}

#[tokio::test]
async fn group_operations_are_refused_without_a_group() {
    let server = server(|_| None).await;
    let mut consumer = Consumer::new(options(&server)).await.unwrap();
    assert!(matches!(consumer.subscribe(&["t".to_owned()]).await, Err(ClientError::Invalid(_))));
    assert!(matches!(consumer.commit().await, Err(ClientError::Invalid(_))));
    let committed = consumer.assign(vec![(partition(0), StartAt::Committed)]).await;
    assert!(matches!(committed, Err(ClientError::Invalid(_))));
}

/// Without an error code: a client that took it for "no such record" would leave the partition out.
#[tokio::test]
async fn a_partition_that_ends_nowhere_is_an_error() {
    let server = server(|call| {
        (call.key == ApiKey::ListOffsets).then(|| {
            let mut answer = offsets_of(call);
            answer.topics[0].partitions[0].offset = -1;
            call.answer(&answer)
        })
    })
    .await;
    let consumer = Consumer::new(options(&server)).await.unwrap();
    for spec in [OffsetSpec::Earliest, OffsetSpec::Latest] {
        let found = consumer.find_offsets(vec![(partition(0), spec)], Duration::ZERO).await;
        assert!(matches!(found[0].1, Err(ClientError::Impossible { .. })), "{found:?}");
    }
    assert!(matches!(consumer.end_offsets(&[partition(0)]).await, Err(ClientError::Impossible { .. })));
    let by_time = vec![(partition(0), OffsetSpec::MaxTimestamp)];
    let found = consumer.find_offsets(by_time, Duration::ZERO).await;
    assert!(matches!(found[0].1, Ok(None)), "it has no record: {found:?}");
}

/// Requirements of a spawned task.
#[tokio::test]
async fn questions_are_asked_without_holding_the_consumer() {
    let server = server(|_| None).await;
    let consumer = consumer_at(&server, StartAt::Earliest).await;
    let (begin, end) = (consumer.beginning_offsets(&[partition(0)]), consumer.end_offsets(&[partition(0)]));
    drop(consumer);
    let offsets = [tokio::spawn(begin).await, tokio::spawn(end).await];
    let offsets = offsets.map(|answer| answer.unwrap().unwrap()[&partition(0)].0);
    assert_eq!(offsets, [BEGIN, END]);
}

/// In a runtime of one thread, which runs the connections, too.
#[tokio::test]
async fn polls_without_time_bring_records_at_last() {
    let server = server(|_| None).await;
    let mut consumer = consumer_at(&server, StartAt::Earliest).await;
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut heard = Vec::new();
    while heard.is_empty() {
        heard = consumer.poll(Duration::ZERO).await.unwrap();
        assert!(Instant::now() < deadline, "no records");
    }
    assert_eq!(offsets(&heard), [10, 11, 12, 13]);
}

#[tokio::test]
async fn metrics_count_the_work() {
    let server = server(|_| None).await;
    let mut consumer = consumer_at(&server, StartAt::Earliest).await;
    let records = records(&mut consumer).await.unwrap();
    let metrics = consumer.metrics();
    assert_eq!((metrics.records, metrics.partitions), (records.len() as u64, 1));
    assert!(metrics.fetches >= 1 && metrics.fetched_bytes >= batch(BEGIN).len() as u64);
    assert_eq!((metrics.buffered_bytes, metrics.fetches_failed, metrics.commits), (0, 0, 0));
}

#[tokio::test]
async fn fetches_do_not_wait_while_old_metadata_is_asked_for_again() {
    let server = server(|_| None).await;
    let mut aged = options(&server);
    aged.cluster.metadata_max_age = Duration::ZERO;
    let mut consumer = Consumer::new(aged).await.unwrap();
    consumer.assign(vec![(partition(0), StartAt::Offset(Offset(BEGIN)))]).await.unwrap();
    assert_eq!(offsets(&records(&mut consumer).await.unwrap()), [10, 11, 12, 13]);
}

#[tokio::test]
async fn records_are_shown_where_they_lie() {
    let server = server(|_| None).await;
    let mut consumer = consumer_at(&server, StartAt::Earliest).await;
    let mut seen = Vec::new();
    let each = |partition: &TopicPartition, record: &Record<'_>| {
        seen.push((partition.partition, record.offset.0, record.value.map(<[u8]>::to_vec)));
    };
    let count = consumer.poll_each(Duration::from_secs(5), each).await.unwrap();
    let expected: Vec<_> =
        (BEGIN..END).map(|offset| (0, offset, Some(offset.to_string().into_bytes()))).collect();
    assert_eq!((count, seen), (4, expected));
    assert_eq!(consumer.position(&partition(0)), Some(Offset(END)));
    assert_eq!(consumer.lag(&partition(0)), Some(0));
}

/// It stands for "for ever".
#[tokio::test]
async fn a_time_that_no_clock_reaches_is_no_limit() {
    let server =
        server(|call| (call.key == ApiKey::ListOffsets && call.nth == 0).then_some(Reply::Close)).await;
    let mut consumer = consumer_at(&server, StartAt::Offset(Offset(BEGIN))).await;
    let patience = Duration::from_mins(1);
    let wanted = vec![(partition(0), OffsetSpec::Latest)];
    let found = timeout(patience, consumer.find_offsets(wanted, Duration::MAX)).await.expect("in time");
    assert_eq!(found[0].1.as_ref().unwrap().map(|found| found.offset), Some(Offset(END)));
    let polled = timeout(patience, consumer.poll(Duration::MAX)).await.expect("in time");
    assert_eq!(offsets(&polled.unwrap()), [10, 11, 12, 13]);
    consumer.seek(&partition(0), StartAt::Offset(Offset(12))).unwrap();
    let shown = timeout(patience, consumer.poll_each(Duration::MAX, |_, _| {})).await.expect("in time");
    assert_eq!(shown.unwrap(), 2);
}

#[tokio::test]
async fn a_paused_partition_is_silent_and_goes_on_where_it_was() {
    let server = server(|_| None).await;
    let mut consumer = Consumer::new(options(&server)).await.unwrap();
    consumer
        .assign(vec![(partition(0), StartAt::Earliest), (partition(1), StartAt::Earliest)])
        .await
        .unwrap();
    consumer.pause(&[partition(0)]).unwrap();
    assert_eq!(consumer.paused(), [partition(0)]);
    let mut heard = records(&mut consumer).await.unwrap();
    heard.extend(consumer.poll(POLL).await.unwrap());
    assert_eq!(heard.iter().map(|record| record.partition).collect::<Vec<_>>(), [1; 4]);
    consumer.resume(&[partition(0)]).unwrap();
    let resumed = records(&mut consumer).await.unwrap();
    assert_eq!((resumed[0].partition, offsets(&resumed)), (0, vec![10, 11, 12, 13]));
    assert!(consumer.pause(&[partition(7)]).is_err(), "not assigned");
}

#[tokio::test]
async fn buffered_records_of_a_paused_partition_block_no_other() {
    let server = server(|_| None).await;
    let tight = ConsumerOptions { poll_records: 1, read_ahead_bytes: 1, ..options(&server) };
    let mut consumer = Consumer::new(tight).await.unwrap();
    consumer
        .assign(vec![(partition(0), StartAt::Earliest), (partition(1), StartAt::Earliest)])
        .await
        .unwrap();
    let read = records(&mut consumer).await.unwrap()[0].partition;
    // The other partition's records came with the same answer.
    consumer.pause(&[partition(1 - read)]).unwrap();
    consumer.seek(&partition(read), StartAt::Offset(Offset(BEGIN))).unwrap();
    let again = records(&mut consumer).await.unwrap();
    assert_eq!((again[0].partition, offsets(&again)), (read, vec![10, 11, 12, 13]));
}

/// The bytes that a fetch may return, and the node.
type Asked = Arc<Mutex<Vec<(i32, i32)>>>;

fn note_fetch(asked: &Asked, node: i32, call: &Call<'_>) {
    if call.key == ApiKey::Fetch {
        asked.lock().unwrap().push((node, call.decode::<FetchRequest<'_>>().max_bytes));
    }
}

/// Two nodes: the second leads only partition 2. The first does not answer fetches while it is silent.
async fn two_nodes(asked: &Asked, silent: &Arc<Mutex<bool>>) -> [ScriptedServer; 2] {
    let (of_first, of_second, is_silent) = (Arc::clone(asked), Arc::clone(asked), Arc::clone(silent));
    let second = server(move |call| {
        note_fetch(&of_second, 2, call);
        None
    })
    .await;
    let address = second.address();
    let first = server(move |call| {
        note_fetch(&of_first, 1, call);
        match call.key {
            ApiKey::Metadata => {
                let mut metadata = call.metadata_of_epoch(0);
                let (host, port) = (address.ip().to_string().into(), address.port().into());
                metadata.brokers.push(MetadataResponseBroker { node_id: 2, host, port, rack: None });
                let partitions = &mut metadata.topics[0].partitions;
                let third =
                    MetadataResponsePartition { partition_index: 2, leader_id: 2, ..partitions[0].clone() };
                partitions.push(third);
                Some(call.answer(&metadata))
            }
            ApiKey::Fetch => is_silent.lock().unwrap().then_some(Reply::Silence),
            _ => None,
        }
    })
    .await;
    [first, second]
}

#[tokio::test]
async fn buffered_records_of_a_paused_partition_take_no_room() {
    const PARTITION_BYTES: i32 = 30;
    let (asked, silent) = (Asked::default(), Arc::new(Mutex::new(false)));
    let [first, _second] = two_nodes(&asked, &silent).await;
    // The buffered records of one partition exceed it.
    let read_ahead_bytes = 60;
    assert!(batch(BEGIN).len() > read_ahead_bytes);
    let tight = ConsumerOptions {
        poll_records: 1,
        partition_max_bytes: PARTITION_BYTES,
        read_ahead_bytes,
        ..options(&first)
    };
    let mut consumer = Consumer::new(tight).await.unwrap();
    let starts = [StartAt::Earliest, StartAt::Earliest, StartAt::Offset(Offset(END))];
    consumer.assign((0..).map(partition).zip(starts).collect()).await.unwrap();
    let read = records(&mut consumer).await.unwrap()[0].partition;
    // The other partition's records came with the same answer.
    consumer.pause(&[partition(1 - read)]).unwrap();
    let buffered_bytes = consumer.metrics().buffered_bytes;
    assert!(buffered_bytes > read_ahead_bytes, "{buffered_bytes}");
    *silent.lock().unwrap() = true;
    asked.lock().unwrap().clear();
    consumer.seek(&partition(read), StartAt::Offset(Offset(END))).unwrap();
    wait_for(&mut consumer, "node 2 is asked while node 1 waits", |_| {
        let asked = asked.lock().unwrap();
        asked.iter().skip_while(|(node, _)| *node != 1).any(|(node, _)| *node == 2)
    })
    .await;
    let asked = asked.lock().unwrap();
    assert!(asked.iter().all(|(_, bytes_max)| *bytes_max >= PARTITION_BYTES), "{asked:?}");
}

#[tokio::test]
async fn session_request_names_only_changed_partitions() {
    const SESSION: i32 = 99;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&asked);
    let server = server(move |call| {
        (call.key == ApiKey::Fetch).then(|| {
            let request = call.decode::<FetchRequest<'_>>();
            let said: Vec<i32> = request
                .topics
                .iter()
                .flat_map(|topic| topic.partitions.iter().map(|partition| partition.partition))
                .collect();
            heard.lock().unwrap().push((request.session_id, request.session_epoch, said.clone()));
            if call.nth == 3 {
                let refusal = ErrorCode::FETCH_SESSION_ID_NOT_FOUND.0;
                return call.answer(&FetchResponse { error_code: refusal, ..FetchResponse::default() });
            }
            // Partition 0 has records at first, partition 1 never.
            let bytes = if call.nth == 0 { batch(BEGIN) } else { Vec::new() };
            std::thread::sleep(Duration::from_millis(2));
            let mut found = vec![(0, 0, bytes)];
            if call.nth == 0 || call.nth == 4 {
                found.push((1, 0, Vec::new()));
            }
            answer_fetch_in(call, &found, SESSION)
        })
    })
    .await;
    let mut consumer = Consumer::new(options(&server)).await.unwrap();
    consumer
        .assign(vec![(partition(0), StartAt::Earliest), (partition(1), StartAt::Earliest)])
        .await
        .unwrap();
    records(&mut consumer).await.unwrap();
    wait_for(&mut consumer, "five fetches", |_| asked.lock().unwrap().len() >= 5).await;
    let expected = [
        (0, 0, vec![0, 1]),
        (SESSION, 1, vec![0]),
        (SESSION, 2, vec![]),
        (SESSION, 3, vec![]),
        (0, 0, vec![0, 1]),
    ];
    assert_eq!(asked.lock().unwrap()[..5], expected);
}

fn refuse_session(call: &Call<'_>, code: ErrorCode) -> Reply {
    call.answer(&FetchResponse { error_code: code.0, ..FetchResponse::default() })
}

#[tokio::test]
async fn evicted_session_is_restarted_without_a_pause() {
    const SESSION: i32 = 99;
    // A session that the node still has ends with the request that begins the next.
    for (code, ended) in
        [(ErrorCode::FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode::INVALID_FETCH_SESSION_EPOCH, SESSION)]
    {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&asked);
        let server = server(move |call| {
            (call.key == ApiKey::Fetch).then(|| {
                let request = call.decode::<FetchRequest<'_>>();
                heard.lock().unwrap().push((request.session_id, request.session_epoch));
                if call.nth == 1 {
                    return refuse_session(call, code);
                }
                std::thread::sleep(Duration::from_millis(2));
                let bytes = if call.nth == 2 { batch(BEGIN) } else { Vec::new() };
                answer_fetch_in(call, &[(0, 0, bytes)], SESSION)
            })
        })
        .await;
        let mut options = options(&server);
        // The test does not wait for the end of a pause.
        options.cluster.retry_backoff = Duration::from_hours(1);
        options.cluster.retry_backoff_max = Duration::from_hours(1);
        let mut consumer = Consumer::new(options).await.unwrap();
        consumer.assign(vec![(partition(0), StartAt::Offset(Offset(BEGIN)))]).await.unwrap();
        assert_eq!(offsets(&records(&mut consumer).await.unwrap()), [10, 11, 12, 13]);
        assert_eq!(asked.lock().unwrap()[..3], [(0, 0), (SESSION, 1), (ended, 0)], "{code}");
    }
}

#[tokio::test]
async fn node_that_refuses_all_sessions_gets_pauses() {
    for refuses_all in [false, true] {
        let fetches = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&fetches);
        let server = server(move |call| {
            (call.key == ApiKey::Fetch).then(|| {
                *counted.lock().unwrap() += 1;
                let is_full = call.decode::<FetchRequest<'_>>().session_epoch == 0;
                if refuses_all || !is_full {
                    return refuse_session(call, ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
                }
                answer_fetch_in(call, &[(0, 0, Vec::new())], 100 + i32::try_from(call.nth).unwrap())
            })
        })
        .await;
        let mut options = options(&server);
        options.cluster.retry_backoff = Duration::from_millis(100);
        let mut consumer = Consumer::new(options).await.unwrap();
        consumer.assign(vec![(partition(0), StartAt::Offset(Offset(END)))]).await.unwrap();
        assert!(consumer.poll(Duration::from_secs(1)).await.unwrap().is_empty());
        let fetches = *fetches.lock().unwrap();
        assert!((3..60).contains(&fetches), "{refuses_all}: {fetches}");
    }
}

/// The isolation level is in each fetch and each lookup of an offset, and decides which end of an answer counts.
#[tokio::test]
async fn isolation_level_decides_which_records_are_visible() {
    const STABLE: i64 = 12;
    for (word, level, lag) in [("read_committed", 1, 0), ("read_uncommitted", 0, END - STABLE)] {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&asked);
        let server = server(move |call| {
            let (level, reply) = match call.key {
                ApiKey::ListOffsets => (call.decode::<ListOffsetsRequest<'_>>().isolation_level, None),
                ApiKey::Fetch => {
                    std::thread::sleep(Duration::from_millis(2));
                    let (high_watermark, last_stable_offset) = (END, STABLE);
                    let data =
                        PartitionData { high_watermark, last_stable_offset, ..PartitionData::default() };
                    let (topic_id, partitions) = (TOPIC_ID, vec![data]);
                    let topic = FetchableTopicResponse { topic_id, partitions, ..Default::default() };
                    let answer = FetchResponse { responses: vec![topic], ..FetchResponse::default() };
                    (call.decode::<FetchRequest<'_>>().isolation_level, Some(call.answer(&answer)))
                }
                _ => return None,
            };
            heard.lock().unwrap().push((call.key, level));
            reply
        })
        .await;
        let mut options = options(&server);
        options.set("isolation.level", word).unwrap();
        let mut consumer = Consumer::new(options).await.unwrap();
        consumer.end_offsets(&[partition(0)]).await.unwrap();
        consumer.assign(vec![(partition(0), StartAt::Offset(Offset(STABLE)))]).await.unwrap();
        wait_for(&mut consumer, "it fetches", |consumer| consumer.lag(&partition(0)).is_some()).await;
        assert_eq!(consumer.lag(&partition(0)), Some(lag), "{word}");
        let asked = asked.lock().unwrap();
        assert!(asked.iter().all(|(_, asked)| *asked == level), "{word}: {asked:?}");
        for api in [ApiKey::ListOffsets, ApiKey::Fetch] {
            assert!(asked.iter().any(|(asked, _)| *asked == api), "{word}: {asked:?}");
        }
    }
}

#[tokio::test]
async fn offsets_are_found_by_time_and_committed_by_hand() {
    let told = Told::default();
    let heard = Arc::clone(&told);
    let server = server(move |call| match call.key {
        ApiKey::OffsetCommit => Some(committed(call, &heard)),
        ApiKey::OffsetFetch => Some(nothing_committed(call)),
        _ => None,
    })
    .await;
    let mut consumer =
        Consumer::new(ConsumerOptions { group: Some("g".to_owned()), ..options(&server) }).await.unwrap();
    let times = [(partition(0), TimestampMs(12)), (partition(1), TimestampMs(99))];
    let found = consumer.offsets_for_times(&times).await.unwrap();
    assert_eq!(found[&partition(0)].map(|found| found.offset), Some(Offset(12)));
    assert_eq!(found[&partition(1)], None);
    let offset = CommittedOffset { offset: Offset(12), leader_epoch: None, metadata: "mine".to_owned() };
    consumer.commit_offsets(&[(partition(0), offset)].into()).await.unwrap();
    assert_eq!(*told.lock().unwrap(), ["commit 0 12"]);
    assert!(consumer.committed(&[partition(0)]).await.unwrap().is_empty());
}

/// Kafka keeps the offsets of one request as one batch, and refuses a batch above a megabyte.
#[tokio::test]
async fn very_many_offsets_are_committed_in_several_requests() {
    const OFFSETS: i32 = 20_000;
    let told = Told::default();
    let heard = Arc::clone(&told);
    let server = server(move |call| match call.key {
        ApiKey::OffsetCommit => {
            tell(&heard, "request".to_owned());
            // One of them is lost.
            Some(if call.nth == 2 { Reply::Close } else { committed(call, &heard) })
        }
        _ => None,
    })
    .await;
    let mut consumer =
        Consumer::new(ConsumerOptions { group: Some("g".to_owned()), ..options(&server) }).await.unwrap();
    let offset = CommittedOffset { offset: Offset(7), leader_epoch: None, metadata: String::new() };
    let offsets = (0..OFFSETS).map(|index| (partition(index), offset.clone())).collect();
    consumer.commit_offsets(&offsets).await.unwrap();
    let told = told.lock().unwrap();
    let requests: Vec<_> = told.split(|line| line == "request").skip(1).map(<[String]>::len).collect();
    assert!(requests.len() > 3 && requests.iter().all(|offsets| *offsets < 8000), "{requests:?}");
    // Commits of other requests were not repeated for the lost one.
    assert_eq!(requests.iter().sum::<usize>(), 20_000, "{requests:?}");
    let commits: BTreeSet<_> = told.iter().filter(|line| line.starts_with("commit")).collect();
    assert_eq!(commits.len(), 20_000);
}
