//! Commits of a member, and committed offsets of a group.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use riverrun_client::{
    Admin, ClientError, CommittedOffset, Consumer, ConsumerOptions, ErrorCode, GroupProtocol, StartAt,
    TopicPartition,
};
use riverrun_protocol::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use riverrun_protocol::consumer_protocol::encode_assignment;
use riverrun_protocol::consumer_protocol_assignment::TopicPartition as AssignedTopic;
use riverrun_protocol::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use riverrun_protocol::offset_commit_request::OffsetCommitRequestPartition;
use riverrun_protocol::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use riverrun_protocol::offset_fetch_request::OffsetFetchRequestTopics;
use riverrun_protocol::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use riverrun_protocol::{
    ApiKey, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, ConsumerProtocolAssignment,
    HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupResponse, ListOffsetsRequest,
    ListOffsetsResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse,
    SyncGroupResponse,
};
use riverrun_types::Offset;

use crate::consumer::{
    BEGIN, END, Told, committed, member_options, nothing_committed, offsets, options, partition, records,
    server, wait_for,
};
use crate::groups::classic_group;
use crate::server::{Call, Reply, ScriptedServer, TOPIC_ID};

/// A group of either protocol that refuses the commits of the member of the first commit, with a retriable error, and
/// accepts those of a later one.
struct Group {
    /// True if it removes the member meanwhile.
    gives_up: bool,
    /// Generation or epoch of the first commit.
    first: Option<i32>,
    gave_up: bool,
    joins: i32,
    told: Told,
}

impl Group {
    fn answer(&mut self, call: &Call<'_>) -> Option<Reply> {
        let reply = match call.key {
            ApiKey::JoinGroup => self.join(call),
            ApiKey::SyncGroup => {
                let assigned = AssignedTopic { topic: "t".into(), partitions: vec![0, 1] };
                let assignment =
                    ConsumerProtocolAssignment { assigned_partitions: vec![assigned], user_data: None };
                let assignment = encode_assignment(&assignment, 0).unwrap().into();
                call.answer(&SyncGroupResponse { assignment, ..SyncGroupResponse::default() })
            }
            ApiKey::Heartbeat => {
                let error_code = self.opinion().0;
                call.answer(&HeartbeatResponse { error_code, ..HeartbeatResponse::default() })
            }
            ApiKey::ConsumerGroupHeartbeat => self.beat(call),
            ApiKey::LeaveGroup => call.answer(&LeaveGroupResponse::default()),
            ApiKey::OffsetCommit => self.commit(call),
            ApiKey::OffsetFetch => nothing_committed(call),
            _ => return None,
        };
        Some(reply)
    }

    /// The error of a heartbeat: once, after the first commit, that the member is unknown.
    fn opinion(&mut self) -> ErrorCode {
        let due = self.gives_up && self.first.is_some();
        if due && !std::mem::replace(&mut self.gave_up, true) {
            return ErrorCode::UNKNOWN_MEMBER_ID;
        }
        ErrorCode::NONE
    }

    fn join(&mut self, call: &Call<'_>) -> Reply {
        self.joins += 1;
        let request = call.decode::<JoinGroupRequest<'_>>();
        call.answer(&JoinGroupResponse {
            generation_id: self.joins,
            protocol_name: Some(request.protocols[0].name.clone()),
            leader: "another".into(),
            member_id: "me".into(),
            ..JoinGroupResponse::default()
        })
    }

    fn beat(&mut self, call: &Call<'_>) -> Reply {
        let request = call.decode::<ConsumerGroupHeartbeatRequest<'_>>();
        let joins = request.member_epoch == 0;
        self.joins += i32::from(joins);
        let topic_partitions = vec![TopicPartitions { topic_id: TOPIC_ID, partitions: vec![0, 1] }];
        let error_code = if joins || request.member_epoch < 0 { 0 } else { self.opinion().0 };
        call.answer(&ConsumerGroupHeartbeatResponse {
            error_code,
            member_epoch: if request.member_epoch < 0 { -1 } else { self.joins },
            heartbeat_interval_ms: 10,
            assignment: joins.then_some(Assignment { topic_partitions }),
            ..ConsumerGroupHeartbeatResponse::default()
        })
    }

    fn commit(&mut self, call: &Call<'_>) -> Reply {
        let request = call.decode::<OffsetCommitRequest<'_>>();
        let epoch = request.generation_id_or_member_epoch;
        if *self.first.get_or_insert(epoch) != epoch {
            return committed(call, &self.told);
        }
        refused(call, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS)
    }
}

/// Answers each partition of a commit with this code.
pub(crate) fn refused(call: &Call<'_>, code: ErrorCode) -> Reply {
    judged(call, |_| code)
}

/// Answers each partition of a commit with the code that `judge` returns.
fn judged(call: &Call<'_>, mut judge: impl FnMut(i32) -> ErrorCode) -> Reply {
    let request = call.decode::<OffsetCommitRequest<'_>>();
    let mut partition = |one: &OffsetCommitRequestPartition<'_>| OffsetCommitResponsePartition {
        partition_index: one.partition_index,
        error_code: judge(one.partition_index).0,
    };
    let topics = request.topics.iter().map(|topic| OffsetCommitResponseTopic {
        name: topic.name.clone(),
        partitions: topic.partitions.iter().map(&mut partition).collect(),
        ..OffsetCommitResponseTopic::default()
    });
    call.answer(&OffsetCommitResponse { topics: topics.collect(), ..OffsetCommitResponse::default() })
}

/// How often each partition was in a commit.
type Asked = Arc<Mutex<[usize; 2]>>;

/// Answers each partition with a code by its index and the number of the attempt.
fn counted(call: &Call<'_>, asked: &Asked, judge: impl Fn(i32, usize) -> ErrorCode) -> Reply {
    let mut asked = asked.lock().unwrap();
    judged(call, |index| {
        let count = &mut asked[usize::try_from(index).unwrap()];
        *count += 1;
        judge(index, *count)
    })
}

/// The coordinator does not know partition 1.
fn without_second(index: i32, _: usize) -> ErrorCode {
    if index == 1 { ErrorCode::UNKNOWN_TOPIC_OR_PARTITION } else { ErrorCode::NONE }
}

/// Partition 1 was deleted: its leader does not know its end either.
fn second_is_deleted(call: &Call<'_>, asked: &Asked) -> Option<Reply> {
    match call.key {
        ApiKey::OffsetCommit => Some(counted(call, asked, without_second)),
        ApiKey::ListOffsets => second_is_missing(call),
        _ => None,
    }
}

/// Answers requests for the end of partition 1 that it does not exist.
fn second_is_missing(call: &Call<'_>) -> Option<Reply> {
    let request = call.decode::<ListOffsetsRequest<'_>>();
    let [topic] = &*request.topics else { return None };
    let [wanted] = &*topic.partitions else { return None };
    let is_meant = (wanted.partition_index, wanted.timestamp) == (1, -1);
    is_meant.then(|| {
        let partition = ListOffsetsPartitionResponse {
            partition_index: 1,
            error_code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0,
            ..ListOffsetsPartitionResponse::default()
        };
        let (name, partitions) = (topic.name.clone(), vec![partition]);
        let topics = vec![ListOffsetsTopicResponse { name, partitions }];
        call.answer(&ListOffsetsResponse { topics, ..ListOffsetsResponse::default() })
    })
}

/// A consumer that has read both partitions to their end, with a long time limit for commits.
async fn at_ends(server: &ScriptedServer, change: impl FnOnce(&mut ConsumerOptions)) -> Consumer {
    let mut options = ConsumerOptions { group: Some("g".to_owned()), auto_commit: false, ..options(server) };
    options.cluster.retry_timeout = Duration::from_mins(1);
    change(&mut options);
    let mut consumer = Consumer::new(options).await.unwrap();
    let both = [0, 1].map(|index| (partition(index), StartAt::Earliest));
    consumer.assign(both.to_vec()).await.unwrap();
    both_are_read(&mut consumer).await;
    consumer
}

async fn both_are_read(consumer: &mut Consumer) {
    wait_for(consumer, "both are read", |consumer| {
        [0, 1].iter().all(|index| consumer.position(&partition(*index)) == Some(Offset(END)))
    })
    .await;
}

/// The result of a manual commit, by the group's code for each partition and attempt; and the number of attempts of
/// each.
async fn commits(
    judge: impl Fn(i32, usize) -> ErrorCode + Send + 'static,
) -> (Result<(), ClientError>, [usize; 2]) {
    let asked = Asked::default();
    let noted = Arc::clone(&asked);
    let server =
        server(move |call| (call.key == ApiKey::OffsetCommit).then(|| counted(call, &noted, &judge))).await;
    let mut consumer = at_ends(&server, |_| {}).await;
    let result = consumer.commit().await;
    let asked = *asked.lock().unwrap();
    (result, asked)
}

/// Its leader, which it was read from, would know it, except while that leader lags behind.
#[tokio::test]
async fn deleted_partition_is_reported_after_a_second_check() {
    let asked = Asked::default();
    let noted = Arc::clone(&asked);
    let server = server(move |call| second_is_deleted(call, &noted)).await;
    let mut consumer = at_ends(&server, |_| {}).await;
    for attempts in [2, 4] {
        let result = consumer.commit().await;
        assert!(
            matches!(&result, Err(ClientError::UnknownPartition(of)) if *of == partition(1)),
            "{result:?}"
        );
        assert_eq!(*asked.lock().unwrap(), [1, attempts], "the first is known to be committed");
    }
}

/// However long that takes: the partition's leader knows it.
#[tokio::test]
async fn partition_new_to_the_coordinator_is_committed() {
    let begun = Instant::now();
    let late = move |index, attempt| {
        if begun.elapsed() < Duration::from_secs(3) {
            without_second(index, attempt)
        } else {
            ErrorCode::NONE
        }
    };
    let (result, [first, second]) = commits(late).await;
    assert!(result.is_ok(), "{result:?}");
    assert!(first == 1 && second > 1, "{first} {second}");
}

/// As with a server that has just started: a second request gets the current state.
#[tokio::test]
async fn a_partition_that_is_missing_once_is_committed() {
    for from_metadata in [false, true] {
        let asked = Asked::default();
        let noted = Arc::clone(&asked);
        let mut is_behind = false;
        let server = server(move |call| match call.key {
            ApiKey::OffsetCommit => {
                is_behind = call.nth == 0;
                let first = |index, attempt| {
                    if attempt == 1 { without_second(index, attempt) } else { ErrorCode::NONE }
                };
                Some(counted(call, &noted, first))
            }
            ApiKey::Metadata if from_metadata && std::mem::take(&mut is_behind) => {
                let mut metadata = call.metadata_of_epoch(0);
                metadata.topics[0].error_code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0;
                metadata.topics[0].partitions.clear();
                Some(call.answer(&metadata))
            }
            ApiKey::ListOffsets if std::mem::take(&mut is_behind) => second_is_missing(call),
            _ => None,
        })
        .await;
        let mut consumer = at_ends(&server, |options| {
            if from_metadata {
                // So that every lookup requests the metadata.
                options.cluster.metadata_max_age = Duration::ZERO;
            }
        })
        .await;
        let result = consumer.commit().await;
        assert!(result.is_ok(), "{from_metadata}: {result:?}");
        assert_eq!(*asked.lock().unwrap(), [1, 2], "{from_metadata}");
    }
}

/// The result of a commit for this partition, which no server knows and which was never read, if the coordinator
/// learns of it at some attempt; and the number of attempts.
async fn commits_unread(heard_at: usize) -> (Result<(), ClientError>, usize) {
    let asked = Arc::new(Mutex::new(0));
    let noted = Arc::clone(&asked);
    let server = server(move |call| {
        (call.key == ApiKey::OffsetCommit).then(|| {
            let mut asked = noted.lock().unwrap();
            *asked += 1;
            let is_known = *asked >= heard_at;
            refused(call, if is_known { ErrorCode::NONE } else { ErrorCode::UNKNOWN_TOPIC_OR_PARTITION })
        })
    })
    .await;
    let mut options = ConsumerOptions { group: Some("g".to_owned()), ..options(&server) };
    options.cluster.retry_timeout = Duration::from_mins(1);
    let mut consumer = Consumer::new(options).await.unwrap();
    let offset = CommittedOffset { offset: Offset(1), leader_epoch: None, metadata: String::new() };
    let result = consumer.commit_offsets(&[(TopicPartition::new("new", 0), offset)].into()).await;
    let asked = *asked.lock().unwrap();
    (result, asked)
}

/// As after it was created by another server.
#[tokio::test]
async fn unread_unknown_partition_counts_as_new_for_a_moment() {
    let (result, asked) = commits_unread(3).await;
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(asked, 3);
    let begun = Instant::now();
    let (result, asked) = commits_unread(usize::MAX).await;
    assert!(matches!(result, Err(ClientError::UnknownPartition(_))), "{result:?}");
    assert!(asked > 3 && begun.elapsed() < Duration::from_secs(30), "{asked} in {:?}", begun.elapsed());
}

#[tokio::test]
async fn partition_is_retried_although_another_failed() {
    let (result, asked) = commits(|index, attempt| match (index, attempt) {
        (1, _) => ErrorCode::OFFSET_METADATA_TOO_LARGE,
        (_, 1) => ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
        _ => ErrorCode::NONE,
    })
    .await;
    assert_eq!(result.unwrap_err().code(), Some(ErrorCode::OFFSET_METADATA_TOO_LARGE));
    assert_eq!(asked, [2, 1]);
}

#[tokio::test]
async fn commit_answer_with_a_repeated_partition_fails() {
    let server = server(|call| {
        (call.key == ApiKey::OffsetCommit).then(|| {
            let twice = vec![OffsetCommitResponsePartition::default(); 2];
            let topic = OffsetCommitResponseTopic {
                name: "t".into(),
                partitions: twice,
                ..OffsetCommitResponseTopic::default()
            };
            call.answer(&OffsetCommitResponse { topics: vec![topic], ..OffsetCommitResponse::default() })
        })
    })
    .await;
    let mut consumer = at_ends(&server, |_| {}).await;
    let error = consumer.commit().await.unwrap_err();
    assert!(matches!(&error, ClientError::Incomplete { missing, .. } if missing == "t-1"), "{error}");
}

/// An automatic commit leaves out partitions that do not exist, because the application can do nothing about them.
#[tokio::test]
async fn later_commits_leave_a_deleted_partition_out() {
    let asked = Asked::default();
    let noted = Arc::clone(&asked);
    let server = server(move |call| second_is_deleted(call, &noted)).await;
    let begun = Instant::now();
    let mut consumer = at_ends(&server, |options| {
        options.auto_commit = true;
        options.auto_commit_interval = Some(Duration::from_millis(100));
    })
    .await;
    wait_for(&mut consumer, "a commit has ended", |consumer| consumer.metrics().commits_failed > 0).await;
    let made = *asked.lock().unwrap();
    let later = Instant::now() + Duration::from_millis(300);
    wait_for(&mut consumer, "three more are due", |_| Instant::now() > later).await;
    consumer.close().await.unwrap();
    assert_eq!(*asked.lock().unwrap(), made);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn deleted_partition_does_not_stop_others_from_starting() {
    let asked = Asked::default();
    let noted = Arc::clone(&asked);
    let server = server(move |call| second_is_deleted(call, &noted)).await;
    let mut consumer = at_ends(&server, |options| {
        options.auto_commit = true;
        options.auto_commit_interval = Some(Duration::from_hours(1));
    })
    .await;
    consumer.assign(vec![(partition(0), StartAt::Earliest)]).await.unwrap();
    assert_eq!(consumer.assignment(), [partition(0)]);
    assert_eq!(*asked.lock().unwrap(), [1, 2]);
}

#[tokio::test]
async fn deleted_partition_delays_no_rebalance_and_no_close() {
    let (told, ready, asked) = (Told::default(), Arc::new(Mutex::new(false)), Asked::default());
    let (heard, rebalance, noted) = (Arc::clone(&told), Arc::clone(&ready), Arc::clone(&asked));
    let server = server(move |call| {
        second_is_deleted(call, &noted).or_else(|| classic_group(call, &heard, &rebalance))
    })
    .await;
    let mut options = ConsumerOptions {
        group: Some("g".to_owned()),
        heartbeat_interval: Duration::from_millis(10),
        auto_commit_interval: Some(Duration::from_hours(1)),
        ..options(&server)
    };
    options.cluster.retry_timeout = Duration::from_mins(1);
    let mut consumer = Consumer::new(options).await.unwrap();
    consumer.subscribe(&["t"]).await.unwrap();
    both_are_read(&mut consumer).await;
    let begun = Instant::now();
    *ready.lock().unwrap() = true;
    wait_for(&mut consumer, "it joins again", |_| {
        told.lock().unwrap().iter().filter(|what| what.starts_with("join")).count() == 2
    })
    .await;
    consumer.close().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(told.lock().unwrap().last().unwrap(), "leave");
    assert!(asked.lock().unwrap()[0] > 0);
}

/// A reader that continues from here would miss the records before it.
#[tokio::test]
async fn seek_back_is_committed_after_the_commit_in_flight() {
    let (told, refusals) = (Told::default(), Arc::new(Mutex::new(0)));
    let (heard, counted) = (Arc::clone(&told), Arc::clone(&refusals));
    let server = server(move |call| {
        if call.key != ApiKey::OffsetCommit {
            return None;
        }
        let mut refusals = counted.lock().unwrap();
        let is_first = call.nth == 0;
        if is_first || *refusals == 7 {
            return Some(committed(call, &heard));
        }
        *refusals += 1;
        Some(refused(call, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS))
    })
    .await;
    let mut consumer = Consumer::new(ConsumerOptions {
        group: Some("g".to_owned()),
        auto_commit_interval: Some(Duration::ZERO),
        ..options(&server)
    })
    .await
    .unwrap();
    consumer.assign(vec![(partition(0), StartAt::Offset(Offset(BEGIN)))]).await.unwrap();
    wait_for(&mut consumer, "a commit is put off", |_| *refusals.lock().unwrap() > 0).await;
    assert_eq!(consumer.position(&partition(0)), Some(Offset(END)));
    consumer.seek(&partition(0), StartAt::Offset(Offset(BEGIN))).unwrap();
    consumer.close().await.unwrap();
    assert_eq!(*told.lock().unwrap(), ["commit 0 10", "commit 0 14", "commit 0 10"]);
}

/// A poll that finds nothing may last as long as it likes; the records of the poll before are committed without
/// waiting for its end.
#[tokio::test]
async fn returned_records_are_committed_during_the_next_poll() {
    let told = Told::default();
    let heard = Arc::clone(&told);
    let server =
        server(move |call| (call.key == ApiKey::OffsetCommit).then(|| committed(call, &heard))).await;
    let mut consumer = Consumer::new(ConsumerOptions {
        group: Some("g".to_owned()),
        auto_commit_interval: Some(Duration::from_secs(1)),
        ..options(&server)
    })
    .await
    .unwrap();
    consumer.assign(vec![(partition(0), StartAt::Earliest)]).await.unwrap();
    assert_eq!(offsets(&records(&mut consumer).await.unwrap()), [10, 11, 12, 13]);
    let is_committed = async {
        while !told.lock().unwrap().contains(&format!("commit 0 {END}")) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        polled = consumer.poll(Duration::from_mins(1)) => panic!("nothing is committed: {polled:?}"),
        () = is_committed => {}
    }
}

/// Other members may have read on meanwhile, and would be set back.
#[tokio::test]
async fn retried_commit_ends_with_its_membership() {
    for group_protocol in [GroupProtocol::Classic, GroupProtocol::Consumer] {
        // The group removes the member, or the member leaves, because it is not polled meanwhile.
        for gives_up in [true, false] {
            let told = Told::default();
            let heard = Arc::clone(&told);
            let mut group = Group { gives_up, first: None, gave_up: false, joins: 0, told: heard };
            let server = server(move |call| group.answer(call)).await;
            let mut options =
                ConsumerOptions { auto_commit: false, ..member_options(&server, group_protocol) };
            options.cluster.retry_timeout = Duration::from_mins(1);
            if !gives_up {
                options.rebalance_timeout = Duration::from_secs(2);
            }
            let mut consumer = Consumer::new(options).await.unwrap();
            consumer.subscribe(&["t".to_owned()]).await.unwrap();
            wait_for(&mut consumer, "both are read", |consumer| {
                [0, 1].iter().all(|index| consumer.position(&partition(*index)) == Some(Offset(END)))
            })
            .await;
            let error = consumer.commit().await.unwrap_err();
            assert_eq!(error.code(), Some(ErrorCode::UNKNOWN_MEMBER_ID), "{group_protocol:?}, {gives_up}");
            assert!(told.lock().unwrap().is_empty(), "{group_protocol:?}, {gives_up}: {told:?}");
        }
    }
}

/// Committed offsets of partitions 0 and 1.
const COMMITTED: [i64; 2] = [12, 13];

/// The committed offsets of these partitions; that of the first is unstable if `unstable`.
fn offsets_of(call: &Call<'_>, indexes: &[i32], unstable: bool, version: i16) -> Reply {
    let code = |index: i32| {
        if unstable && index == 0 { ErrorCode::UNSTABLE_OFFSET_COMMIT.0 } else { ErrorCode::NONE.0 }
    };
    let offset = |index: i32| if code(index) == 0 { COMMITTED[usize::try_from(index).unwrap()] } else { -1 };
    if version < 8 {
        let partitions = indexes.iter().map(|&partition_index| OffsetFetchResponsePartition {
            partition_index,
            committed_offset: offset(partition_index),
            error_code: code(partition_index),
            ..OffsetFetchResponsePartition::default()
        });
        let topic = OffsetFetchResponseTopic { name: "t".into(), partitions: partitions.collect() };
        return call.answer(&OffsetFetchResponse { topics: vec![topic], ..OffsetFetchResponse::default() });
    }
    let partitions = indexes.iter().map(|&partition_index| OffsetFetchResponsePartitions {
        partition_index,
        committed_offset: offset(partition_index),
        error_code: code(partition_index),
        ..OffsetFetchResponsePartitions::default()
    });
    let topic = OffsetFetchResponseTopics {
        name: "t".into(),
        partitions: partitions.collect(),
        ..OffsetFetchResponseTopics::default()
    };
    let group = OffsetFetchResponseGroup {
        group_id: "g".into(),
        topics: vec![topic],
        ..OffsetFetchResponseGroup::default()
    };
    call.answer(&OffsetFetchResponse { groups: vec![group], ..OffsetFetchResponse::default() })
}

/// A consumer would begin before the records that the transaction has read, and so read them twice.
#[tokio::test]
async fn offsets_that_a_transaction_may_still_set_are_waited_for() {
    for (version, can_wait) in [(6, false), (7, true), (9, true)] {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&asked);
        let server = server(move |call| match call.key {
            ApiKey::ApiVersions => Some(call.versions_but(ApiKey::OffsetFetch, version)),
            ApiKey::OffsetFetch => {
                let request = call.decode::<OffsetFetchRequest<'_>>();
                heard.lock().unwrap().push(request.require_stable);
                let of_group = |topic: &OffsetFetchRequestTopics<'_>| topic.partition_indexes.clone();
                let mut indexes: Vec<i32> = request
                    .groups
                    .iter()
                    .flat_map(|group| &group.topics)
                    .flatten()
                    .flat_map(of_group)
                    .collect();
                let named = request.topics.iter().flatten();
                indexes.extend(named.flat_map(|topic| topic.partition_indexes.clone()));
                Some(offsets_of(call, &indexes, request.require_stable && call.nth % 3 != 2, version))
            }
            _ => None,
        })
        .await;
        let grouped = ConsumerOptions { group: Some("g".to_owned()), ..options(&server) };
        let mut consumer = Consumer::new(grouped).await.unwrap();
        let known = consumer.committed(&[partition(0), partition(1)]).await.unwrap();
        let known: Vec<i64> = known.values().map(|committed| committed.offset.0).collect();
        assert_eq!(known, COMMITTED, "version {version}");
        consumer.assign(vec![(partition(0), StartAt::Committed)]).await.unwrap();
        assert_eq!(offsets(&records(&mut consumer).await.unwrap()), [12, 13], "version {version}");
        let asked = asked.lock().unwrap();
        let expected = if can_wait { vec![true; 6] } else { vec![false; 2] };
        assert_eq!(*asked, expected, "version {version}");
    }
}

/// An application that asks for trouble gets it long before the retries end.
#[tokio::test]
async fn missing_committed_offsets_are_trouble_at_once() {
    let code = ErrorCode::COORDINATOR_LOAD_IN_PROGRESS;
    let loads = Arc::new(Mutex::new(true));
    let is_loading = Arc::clone(&loads);
    let server = server(move |call| {
        (call.key == ApiKey::OffsetFetch).then(|| {
            if !*is_loading.lock().unwrap() {
                return nothing_committed(call);
            }
            let group = OffsetFetchResponseGroup {
                group_id: "g".into(),
                error_code: code.0,
                ..OffsetFetchResponseGroup::default()
            };
            call.answer(&OffsetFetchResponse { groups: vec![group], ..OffsetFetchResponse::default() })
        })
    })
    .await;
    let mut patient = ConsumerOptions { group: Some("g".to_owned()), ..options(&server) };
    patient.cluster.retry_timeout = Duration::from_hours(1);
    let mut consumer = Consumer::new(patient).await.unwrap();
    consumer.assign(vec![(partition(0), StartAt::Committed)]).await.unwrap();
    wait_for(&mut consumer, "it is told", |consumer| !consumer.troubles().is_empty()).await;
    let troubles = consumer.troubles();
    assert_eq!((&troubles[0].0, troubles[0].1.error.code()), (&Some(partition(0)), Some(code)));
    *loads.lock().unwrap() = false;
    assert_eq!(offsets(&records(&mut consumer).await.unwrap()), [10, 11, 12, 13]);
    assert!(consumer.troubles().is_empty());
}

/// As Kafka's own tools do.
#[tokio::test]
async fn admin_reads_offsets_despite_open_transactions() {
    let server = server(|call| {
        (call.key == ApiKey::OffsetFetch).then(|| {
            let unstable = call.decode::<OffsetFetchRequest<'_>>().require_stable;
            offsets_of(call, &[0, 1], unstable, 9)
        })
    })
    .await;
    let admin = Admin::new(server.options()).await.unwrap();
    let known = admin.group_offsets("g").await.unwrap();
    let known: Vec<i64> = known.values().map(|committed| committed.offset.0).collect();
    assert_eq!(known, COMMITTED);
}
