//! Finds where to begin: committed offsets from the group, ends and timestamps from the leaders.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use riverrun_types::{LeaderEpoch, Offset};

use super::assignment::Incarnation;
use super::options::{ConsumerOptions, OffsetReset, StartAt};
use crate::cluster::Cluster;
use crate::coordinator::{CommittedOffset, GroupCoordinator};
use crate::error::ClientError;
use crate::list_offsets::{OffsetSpec, list_offsets_within};
use crate::retry::Retry;
use crate::topic_partition::TopicPartition;

/// A partition whose position is to be found.
#[derive(Clone, Debug)]
pub(super) struct Sought {
    pub(super) partition: TopicPartition,
    pub(super) incarnation: Incarnation,
    pub(super) start: StartAt,
}

/// Where a partition begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) offset: Offset,
    /// Leader epoch of the record before it, if it is known.
    pub(super) leader_epoch: Option<LeaderEpoch>,
    /// Whether this is what the group has committed.
    pub(super) committed: bool,
}

pub(super) type Started = Vec<(Sought, Result<Found, ClientError>)>;

/// Finds the positions. Leaders are asked once: who does not answer keeps the others from nothing, and is asked again
/// by the consumer.
pub(super) async fn find(
    cluster: Arc<Cluster>,
    coordinator: Option<Arc<GroupCoordinator>>,
    options: Arc<ConsumerOptions>,
    sought: Vec<Sought>,
) -> Started {
    let mut found = Started::new();
    let mut by_leader = Vec::new();
    let (of_group, others): (Vec<_>, Vec<_>) =
        sought.into_iter().partition(|sought| sought.start == StartAt::Committed);
    let partitions: Vec<TopicPartition> = of_group.iter().map(|sought| sought.partition.clone()).collect();
    let committed = match coordinator.as_deref() {
        Some(coordinator) if !partitions.is_empty() => committed(coordinator, &partitions).await,
        _ => Ok(BTreeMap::new()),
    };
    for sought in of_group {
        let committed = match &committed {
            Err(error) => Err(error.clone()),
            Ok(committed) => committed.get(&sought.partition).cloned().transpose(),
        };
        match (committed, options.offset_reset.start()) {
            (Err(error), _) => found.push((sought, Err(error))),
            (Ok(Some(committed)), _) => {
                let (offset, leader_epoch) = (committed.offset, committed.leader_epoch);
                found.push((sought, Ok(Found { offset, leader_epoch, committed: true })));
            }
            (Ok(None), Some(reset)) => by_leader.push((sought, reset.spec())),
            (Ok(None), None) => {
                let error = no_position(&sought.partition, "no offset is committed for the group");
                found.push((sought, Err(error)));
            }
        }
    }
    for sought in others {
        let spec = sought.start.spec();
        by_leader.push((sought, spec));
    }
    found.extend(ask_leaders(&cluster, &options, by_leader).await);
    found
}

type Committed = BTreeMap<TopicPartition, Result<CommittedOffset, ClientError>>;

/// What the group has committed for each of these partitions, trying again where that may help.
pub(super) async fn committed(
    coordinator: &GroupCoordinator,
    partitions: &[TopicPartition],
) -> Result<Committed, ClientError> {
    let mut retry = Retry::new(coordinator.cluster().options());
    loop {
        match coordinator.committed(Some(partitions)).await {
            Ok(committed) => return Ok(committed),
            Err(error) => retry.pause_after(error).await?,
        }
    }
}

async fn ask_leaders(
    cluster: &Cluster,
    options: &ConsumerOptions,
    wanted: Vec<(Sought, OffsetSpec)>,
) -> Started {
    let asked = |(sought, spec): &(Sought, OffsetSpec)| (sought.partition.clone(), *spec);
    let asked = wanted.iter().map(asked).collect();
    let findings = list_offsets_within(cluster, asked, options.isolation, Duration::ZERO).await;
    let mut results: BTreeMap<_, _> = findings.into_iter().collect();
    let mut started = Started::new();
    let mut at_end = Vec::new();
    for (sought, spec) in wanted {
        match results.remove(&sought.partition) {
            Some(Ok(Some(found))) => {
                let found = Found { offset: found.offset, leader_epoch: None, committed: false };
                started.push((sought, Ok(found)));
            }
            Some(Err(error)) => started.push((sought, Err(error))),
            // No record is that late.
            Some(Ok(None)) if matches!(spec, OffsetSpec::Timestamp(_)) => {
                at_end.push((sought, OffsetSpec::Latest));
            }
            Some(Ok(None)) | None => {
                let error = no_position(&sought.partition, "the server does not say where it begins or ends");
                started.push((sought, Err(error)));
            }
        }
    }
    if !at_end.is_empty() {
        started.extend(Box::pin(ask_leaders(cluster, options, at_end)).await);
    }
    started
}

/// The error of a partition that cannot be begun.
pub(super) fn no_position(partition: &TopicPartition, reason: &str) -> ClientError {
    ClientError::NoPosition { partition: partition.clone(), reason: reason.to_owned() }
}

/// How to go on where the position is out of range.
pub(super) fn after_out_of_range(
    partition: &TopicPartition,
    reset: OffsetReset,
) -> Result<StartAt, ClientError> {
    reset.start().ok_or_else(|| no_position(partition, "the position is not in the log, or no longer"))
}

/// How to go on where the log was cut before the position: where it was cut, or as for a position out of range if the
/// leader does not say where that is. Without a reset the application has to decide.
pub(super) fn after_truncation(
    partition: &TopicPartition,
    position: Offset,
    end: Option<Offset>,
    reset: OffsetReset,
) -> Result<StartAt, ClientError> {
    match (reset, end) {
        (OffsetReset::Error, Some(end)) if end < position => Err(no_position(
            partition,
            &format!("the log was cut at offset {end}, before the position {position}"),
        )),
        (_, Some(end)) => Ok(StartAt::Offset(end.min(position))),
        (reset, None) => after_out_of_range(partition, reset),
    }
}
