//! Finds start positions: committed offsets from the group, ends and timestamps from the leaders.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use riverrun_protocol::ErrorCode;
use riverrun_types::{LeaderEpoch, NodeId, Offset};

use super::assignment::Incarnation;
use super::options::{ConsumerOptions, OffsetReset, StartAt};
use crate::cluster::Cluster;
use crate::coordinator::{CommittedOffset, GroupCoordinator, Stability};
use crate::error::ClientError;
use crate::leaders::{Obstacle, Patience};
use crate::list_offsets::{OffsetSpec, list_offsets_within};
use crate::retry::Retry;
use crate::topic_partition::TopicPartition;

/// A partition whose position is unknown.
#[derive(Clone, Debug)]
pub(super) struct Sought {
    pub(super) partition: TopicPartition,
    pub(super) incarnation: Incarnation,
    pub(super) start: StartAt,
}

/// The position found for a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) offset: Offset,
    /// Leader epoch of the record before it, if it is known.
    pub(super) leader_epoch: Option<LeaderEpoch>,
    /// True for a committed offset of the group.
    pub(super) committed: bool,
}

pub(super) type Started = Vec<(Sought, Result<Found, Obstacle>)>;

/// A partition, and the offset to request from its leader.
pub(super) type Asked = (Sought, OffsetSpec);

/// Progress of a search. Found positions stay valid, whichever other server does not answer.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) found: Started,
    /// Partitions whose leaders are not known yet.
    pub(super) open: Vec<Asked>,
    /// Partitions by their leaders.
    pub(super) of_leaders: BTreeMap<NodeId, Vec<Asked>>,
}

/// Requests the group's committed offsets of these partitions; for those without one, the leaders are asked next.
/// Asks once; without an answer the consumer asks again.
pub(super) async fn ask_group(
    coordinator: Option<Arc<GroupCoordinator>>,
    options: Arc<ConsumerOptions>,
    sought: Vec<Sought>,
) -> Progress {
    let mut progress = Progress::default();
    let partitions: Vec<TopicPartition> = sought.iter().map(|sought| sought.partition.clone()).collect();
    let committed = match coordinator.as_deref() {
        Some(coordinator) => coordinator.committed(Some(&partitions), Stability::Required).await,
        None => Ok(BTreeMap::new()),
    };
    for sought in sought {
        let committed = match &committed {
            Err(error) => Err(error.clone()),
            Ok(committed) => committed.get(&sought.partition).cloned().transpose(),
        };
        match (committed, options.offset_reset.start()) {
            (Err(error), _) => progress.found.push((sought, Err(Obstacle::Failed(error)))),
            (Ok(Some(committed)), _) => {
                let (offset, leader_epoch) = (committed.offset, committed.leader_epoch);
                progress.found.push((sought, Ok(Found { offset, leader_epoch, committed: true })));
            }
            (Ok(None), Some(reset)) => progress.open.push((sought, reset.spec())),
            (Ok(None), None) => {
                let error = no_position(&sought.partition, "no offset is committed for the group");
                progress.found.push((sought, Err(Obstacle::Failed(error))));
            }
        }
    }
    progress
}

/// Finds the leaders of these partitions, in one attempt.
pub(super) async fn find_leaders(cluster: Arc<Cluster>, open: Vec<Asked>) -> Progress {
    let mut progress = Progress::default();
    let partitions: Vec<&TopicPartition> = open.iter().map(|(sought, _)| &sought.partition).collect();
    let leaders = cluster.leaders(&partitions, false).await;
    for (asked, leader) in open.into_iter().zip(leaders) {
        match leader {
            Ok(leader) => progress.of_leaders.entry(leader).or_default().push(asked),
            Err(obstacle) => progress.found.push((asked.0, Err(obstacle))),
        }
    }
    progress
}

/// The group's committed offsets of these partitions, for a caller that waits for all of them. Retries errors that
/// may pass, and offsets that an open transaction may change.
pub(super) async fn all_committed(
    coordinator: &GroupCoordinator,
    partitions: &[TopicPartition],
) -> Result<BTreeMap<TopicPartition, CommittedOffset>, ClientError> {
    let mut retry = Retry::new(coordinator.cluster().options());
    loop {
        let error = match coordinator.committed(Some(partitions), Stability::Required).await {
            Ok(committed) => {
                let found: Result<_, ClientError> =
                    committed.into_iter().map(|(partition, found)| Ok((partition, found?))).collect();
                match found {
                    Err(error) if error.code() == Some(ErrorCode::UNSTABLE_OFFSET_COMMIT) => error,
                    found => return found,
                }
            }
            Err(error) => error,
        };
        retry.pause_after(error).await?;
    }
}

/// Asks the leaders once; the consumer asks again for partitions without an answer.
pub(super) async fn ask_leaders(
    cluster: Arc<Cluster>,
    options: Arc<ConsumerOptions>,
    mut wanted: Vec<Asked>,
) -> Progress {
    let mut progress = Progress::default();
    while !wanted.is_empty() {
        let asked = |(sought, spec): &Asked| (sought.partition.clone(), *spec);
        let asked = wanted.iter().map(asked).collect();
        let once = Patience { errors: Duration::ZERO, leaders: true };
        let findings = list_offsets_within(&cluster, asked, options.isolation, once).await;
        let mut results: BTreeMap<_, _> = findings.into_iter().collect();
        let mut at_end = Vec::new();
        for (sought, spec) in wanted {
            match results.remove(&sought.partition) {
                Some(Ok(Some(found))) => {
                    let found = Found { offset: found.offset, leader_epoch: None, committed: false };
                    progress.found.push((sought, Ok(found)));
                }
                Some(Err(error)) => progress.found.push((sought, Err(Obstacle::Failed(error)))),
                // No record has this timestamp or a later one.
                Some(Ok(None)) if matches!(spec, OffsetSpec::Timestamp(_)) => {
                    at_end.push((sought, OffsetSpec::Latest));
                }
                Some(Ok(None)) | None => {
                    let reason = "the server does not say where it begins or ends";
                    let error = no_position(&sought.partition, reason);
                    progress.found.push((sought, Err(Obstacle::Failed(error))));
                }
            }
        }
        wanted = at_end;
    }
    progress
}

/// The error of a partition that has no position to begin at.
pub(super) fn no_position(partition: &TopicPartition, reason: &str) -> ClientError {
    ClientError::NoPosition { partition: partition.clone(), reason: reason.to_owned() }
}

/// Place to continue from if the position is out of range.
pub(super) fn after_out_of_range(
    partition: &TopicPartition,
    reset: OffsetReset,
) -> Result<StartAt, ClientError> {
    reset.start().ok_or_else(|| no_position(partition, "the position is out of range"))
}

/// Place to continue from if the log was truncated below the position: the point of truncation, or as for a position
/// out of range if the leader does not report that point. Without a reset policy the application has to decide.
pub(super) fn after_truncation(
    partition: &TopicPartition,
    position: Offset,
    end: Option<Offset>,
    reset: OffsetReset,
) -> Result<StartAt, ClientError> {
    match (reset, end) {
        (OffsetReset::Error, Some(end)) if end < position => Err(no_position(
            partition,
            &format!("the log was truncated at offset {end}, before the position {position}"),
        )),
        (_, Some(end)) => Ok(StartAt::Offset(end.min(position))),
        (reset, None) => after_out_of_range(partition, reset),
    }
}
