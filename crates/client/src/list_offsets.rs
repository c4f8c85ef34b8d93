//! Beginnings and ends of partitions, and offsets by time: requested from the partitions' leaders.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use riverrun_protocol::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use riverrun_protocol::list_offsets_response::ListOffsetsPartitionResponse;
use riverrun_protocol::{ApiKey, ErrorCode, ListOffsetsRequest, ListOffsetsResponse};
use riverrun_types::{LeaderEpoch, NodeId, Offset, TimestampMs};
use tokio::time::{Instant, timeout_at};

use crate::cluster::{Cluster, Lane};
use crate::error::ClientError;
use crate::leaders::{Obstacle, Patience};
use crate::retry::Retry;
use crate::topic_partition::{TopicPartition, by_topic};

const TIMESTAMP_LATEST: i64 = -1;
const TIMESTAMP_EARLIEST: i64 = -2;
const TIMESTAMP_MAX: i64 = -3;

/// The wanted offset of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetSpec {
    /// The first record that is kept.
    Earliest,
    /// The end: the offset of the next record, or of the first that readers do not see yet.
    Latest,
    /// The record with the largest timestamp.
    MaxTimestamp,
    /// The first record with at least this timestamp. One below 0 is refused: on the wire it has another meaning.
    Timestamp(TimestampMs),
}

impl OffsetSpec {
    /// Refuses a timestamp below 0.
    pub(crate) fn check(self, partition: &TopicPartition) -> Result<(), ClientError> {
        match self {
            Self::Timestamp(TimestampMs(time)) if time < 0 => {
                Err(ClientError::Invalid(format!("the timestamp {time} for {partition} is below 0")))
            }
            _ => Ok(()),
        }
    }

    fn wire(self) -> i64 {
        match self {
            Self::Earliest => TIMESTAMP_EARLIEST,
            Self::Latest => TIMESTAMP_LATEST,
            Self::MaxTimestamp => TIMESTAMP_MAX,
            Self::Timestamp(timestamp) => timestamp.0,
        }
    }
}

/// Which records a reader sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// All replicated records.
    #[default]
    ReadUncommitted,
    /// Records of transactions only once these are committed.
    ReadCommitted,
}

impl Isolation {
    pub(crate) fn wire(self) -> i8 {
        match self {
            Self::ReadUncommitted => 0,
            Self::ReadCommitted => 1,
        }
    }
}

/// An offset that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundOffset {
    /// The offset.
    pub offset: Offset,
    /// Timestamp of the record there, if a record was requested.
    pub timestamp: Option<TimestampMs>,
    /// Leader epoch of the record there, if the server reports it.
    pub leader_epoch: Option<LeaderEpoch>,
}

/// The result for each partition: `None` if no record has such a timestamp.
pub(crate) type Findings = Vec<(TopicPartition, Result<Option<FoundOffset>, ClientError>)>;

type Wanted = (TopicPartition, OffsetSpec);

/// Asks the leaders, and retries errors that may pass. An error of one partition does not hide the others.
pub(crate) async fn list_offsets(cluster: &Cluster, wanted: Vec<Wanted>, isolation: Isolation) -> Findings {
    let patience = Patience { errors: cluster.options().retry_timeout, leaders: true };
    list_offsets_within(cluster, wanted, isolation, patience).await
}

/// The same within `limit`: a retriable error is returned when there is no time for another attempt, and a server
/// without an answer by then is not waited for. With a limit of zero, one attempt takes as long as it needs.
pub(crate) async fn list_offsets_within(
    cluster: &Cluster,
    wanted: Vec<Wanted>,
    isolation: Isolation,
    patience: Patience,
) -> Findings {
    let (begun, mut retry) = (Instant::now(), Retry::within(cluster.options(), patience.errors));
    let end = begun.checked_add(patience.errors).filter(|_| !patience.errors.is_zero());
    let limit = end.map(|at| Limit { at, after: patience.errors });
    let (mut left, mut found) = sort_out(wanted);
    let mut anew = false;
    loop {
        let answers = ask_once(cluster, &left, isolation, anew, limit).await;
        let after = begun.elapsed();
        let mut passing = None;
        let mut again = Vec::new();
        for (wanted, result) in left.into_iter().zip(answers) {
            match result {
                Err(obstacle) if obstacle.may_pass(after, patience) => {
                    let error = obstacle.into_error(after);
                    passing = Some(error.clone());
                    again.push((wanted, error));
                }
                result => found.push((wanted.0, result.map_err(|obstacle| obstacle.into_error(after)))),
            }
        }
        let Some(error) = passing else { return found };
        if retry.pause_after(error).await.is_err() {
            for ((partition, _), error) in &again {
                if has_moved(error) {
                    cluster.forget_topic(&partition.topic);
                }
            }
            found.extend(again.into_iter().map(|(wanted, error)| (wanted.0, Err(error))));
            return found;
        }
        left = again.into_iter().map(|(wanted, _)| wanted).collect();
        anew = true;
    }
}

/// Splits the wanted offsets into valid ones and errors.
fn sort_out(wanted: Vec<Wanted>) -> (Vec<Wanted>, Findings) {
    let (mut asked, mut refused) = (Vec::with_capacity(wanted.len()), Vec::with_capacity(wanted.len()));
    for (partition, spec) in wanted {
        match spec.check(&partition) {
            Ok(()) => asked.push((partition, spec)),
            Err(error) => refused.push((partition, Err(error))),
        }
    }
    (asked, refused)
}

/// True if the server is not the leader any more, so that the next call has to request metadata first. Other
/// retriable errors are no reason to forget the topic's other partitions.
fn has_moved(error: &ClientError) -> bool {
    matches!(error.code(), Some(ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION))
}

/// The end of the time limit, and its length.
#[derive(Clone, Copy, Debug)]
struct Limit {
    at: Instant,
    after: Duration,
}

async fn in_time<T>(
    limit: Option<Limit>,
    (who, api): (&str, ApiKey),
    answer: impl Future<Output = T>,
) -> Result<T, ClientError> {
    let Some(Limit { at, after }) = limit else { return Ok(answer.await) };
    let late = |_| ClientError::Timeout { address: who.to_owned(), api, after };
    timeout_at(at, answer).await.map_err(late)
}

/// One answer for each of `wanted`, in their order: at most one request for metadata, and one to each leader. With
/// `anew`, requests metadata even if it is cached.
async fn ask_once(
    cluster: &Cluster,
    wanted: &[Wanted],
    isolation: Isolation,
    anew: bool,
    limit: Option<Limit>,
) -> Vec<Result<Option<FoundOffset>, Obstacle>> {
    let mut results: Vec<Option<Result<_, Obstacle>>> = wanted.iter().map(|_| None).collect();
    let mut by_leader = BTreeMap::<NodeId, Vec<usize>>::new();
    let partitions: Vec<&TopicPartition> = wanted.iter().map(|(partition, _)| partition).collect();
    let leaders = cluster.leaders(&partitions, anew);
    let leaders = match in_time(limit, ("the cluster", ApiKey::Metadata), leaders).await {
        Ok(leaders) => leaders,
        Err(error) => return wanted.iter().map(|_| Err(Obstacle::Failed(error.clone()))).collect(),
    };
    for (at, leader) in leaders.into_iter().enumerate() {
        match leader {
            Ok(leader) => by_leader.entry(leader).or_default().push(at),
            Err(obstacle) => results[at] = Some(Err(obstacle)),
        }
    }
    let asked = by_leader.into_iter().map(|(leader, places)| async move {
        let wanted: Vec<&Wanted> = places.iter().map(|at| &wanted[*at]).collect();
        let (name, answers) = (format!("node {}", leader.0), ask_leader(cluster, leader, &wanted, isolation));
        let answers = in_time(limit, (&name, ApiKey::ListOffsets), answers).await;
        (places, answers.unwrap_or_else(|error| wanted.iter().map(|_| Err(error.clone())).collect()))
    });
    for (places, answers) in join_all(asked).await {
        for (at, answer) in places.into_iter().zip(answers) {
            results[at] = Some(answer.map_err(Obstacle::Failed));
        }
    }
    let missing = || ClientError::Incomplete { api: ApiKey::ListOffsets, missing: "a partition".into() };
    let unanswered = || Err(Obstacle::Failed(missing()));
    results.into_iter().map(|result| result.unwrap_or_else(unanswered)).collect()
}

async fn ask_leader(
    cluster: &Cluster,
    leader: NodeId,
    wanted: &[&Wanted],
    isolation: Isolation,
) -> Vec<Result<Option<FoundOffset>, ClientError>> {
    let request = request(wanted, isolation);
    let all_failed = |error: ClientError| wanted.iter().map(|_| Err(error.clone())).collect();
    let frame = match cluster.call(leader, Lane::Data, &request).await {
        Ok(frame) => frame,
        Err(error) => return all_failed(error),
    };
    let answer = match frame.decode::<ListOffsetsRequest<'_>>() {
        Ok(answer) => answer,
        Err(error) => return all_failed(error),
    };
    read_all(&answer, wanted)
}

/// One answer for each of `wanted`, in their order. They are matched by name in a map: a topic may have a hundred
/// thousand partitions, and a server may answer in another order.
fn read_all(
    answer: &ListOffsetsResponse<'_>,
    wanted: &[&Wanted],
) -> Vec<Result<Option<FoundOffset>, ClientError>> {
    let partitions = answer.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(move |partition| ((&*topic.name, partition.partition_index), partition))
    });
    let by_name: HashMap<(&str, i32), &ListOffsetsPartitionResponse> = partitions.collect();
    let read_one = |(partition, spec): &Wanted| {
        let missing = || ClientError::Incomplete { api: ApiKey::ListOffsets, missing: partition.to_string() };
        let found = by_name.get(&(&*partition.topic, partition.partition)).ok_or_else(missing)?;
        read(partition, *spec, found)
    };
    wanted.iter().copied().map(read_one).collect()
}

fn request<'a>(wanted: &[&'a Wanted], isolation: Isolation) -> ListOffsetsRequest<'a> {
    let topics = by_topic(wanted.iter().map(|(partition, spec)| (partition, *spec)));
    ListOffsetsRequest {
        replica_id: -1,
        isolation_level: isolation.wire(),
        topics: topics
            .into_iter()
            .map(|(name, partitions)| ListOffsetsTopic {
                name: name.into(),
                partitions: partitions
                    .into_iter()
                    .map(|(partition_index, spec)| ListOffsetsPartition {
                        partition_index,
                        timestamp: spec.wire(),
                        ..ListOffsetsPartition::default()
                    })
                    .collect(),
            })
            .collect(),
        timeout_ms: 0,
    }
}

fn read(
    partition: &TopicPartition,
    spec: OffsetSpec,
    answer: &ListOffsetsPartitionResponse,
) -> Result<Option<FoundOffset>, ClientError> {
    ClientError::check(answer.error_code, Some(&partition.to_string()))?;
    // A timestamp may match no record, but every partition has a beginning and an end.
    if answer.offset < 0 && matches!(spec, OffsetSpec::Earliest | OffsetSpec::Latest) {
        let what = format!("{partition} begins or ends at offset {}", answer.offset);
        return Err(ClientError::Impossible { api: ApiKey::ListOffsets, what });
    }
    Ok((answer.offset >= 0).then(|| FoundOffset {
        offset: Offset(answer.offset),
        timestamp: (answer.timestamp >= 0).then_some(TimestampMs(answer.timestamp)),
        leader_epoch: (answer.leader_epoch >= 0).then_some(LeaderEpoch(answer.leader_epoch)),
    }))
}

/// Offsets by partition, or the first error.
pub(crate) async fn offsets_of(
    cluster: &Arc<Cluster>,
    partitions: &[TopicPartition],
    spec: OffsetSpec,
    isolation: Isolation,
) -> Result<BTreeMap<TopicPartition, Offset>, ClientError> {
    let wanted = partitions.iter().map(|partition| (partition.clone(), spec)).collect();
    let mut offsets = BTreeMap::new();
    for (partition, found) in list_offsets(cluster, wanted, isolation).await {
        if let Some(found) = found? {
            offsets.insert(partition, found.offset);
        }
    }
    Ok(offsets)
}

#[cfg(test)]
mod tests {
    use riverrun_protocol::list_offsets_response::ListOffsetsTopicResponse;

    use super::*;

    /// Partitions of a topic in reverse, each of which ends at its own index.
    fn reversed(name: &'static str, count: i32) -> ListOffsetsTopicResponse<'static> {
        let partition = |partition_index: i32| ListOffsetsPartitionResponse {
            partition_index,
            offset: i64::from(partition_index),
            ..ListOffsetsPartitionResponse::default()
        };
        let partitions = (0..count).rev().map(partition).collect();
        ListOffsetsTopicResponse { name: name.into(), partitions }
    }

    /// Comparing each with every other would take minutes.
    #[test]
    fn answers_of_many_partitions_are_found_by_their_names() {
        let count = 200_000;
        let topics = vec![reversed("a", 3), reversed("b", count)];
        let answer = ListOffsetsResponse { topics, ..ListOffsetsResponse::default() };
        let wanted = |index| (TopicPartition::new("b", index), OffsetSpec::Latest);
        let wanted: Vec<Wanted> = (0..count).map(wanted).collect();
        let begun = std::time::Instant::now();
        let read = read_all(&answer, &wanted.iter().collect::<Vec<_>>());
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        for ((partition, _), found) in wanted.iter().zip(read) {
            let offset = found.expect("named").expect("an offset").offset;
            assert_eq!(offset.0, i64::from(partition.partition));
        }
    }

    #[test]
    fn a_partition_that_is_not_named_has_that_for_its_answer() {
        let answer = ListOffsetsResponse { topics: vec![reversed("a", 1)], ..ListOffsetsResponse::default() };
        for (topic, index) in [("a", 1), ("b", 0)] {
            let wanted = (TopicPartition::new(topic, index), OffsetSpec::Latest);
            let read = read_all(&answer, &[&wanted]).remove(0);
            assert!(matches!(read, Err(ClientError::Incomplete { .. })), "{read:?}");
        }
    }
}
