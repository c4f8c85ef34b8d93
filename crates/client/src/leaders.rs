//! Finds the leaders of many partitions, with one metadata request for those that the cache lacks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use riverrun_protocol::ErrorCode;
use riverrun_types::{ErrorKind, NodeId};
use tokio::time::Instant;

use crate::cluster::{Cluster, TopicInfo};
use crate::error::ClientError;
use crate::retry::Retry;
use crate::topic_partition::TopicPartition;

/// How long an unknown partition, or one without a leader, counts as possibly new.
const NEW_GRACE: Duration = Duration::from_secs(1);

/// True if an unknown partition may still be new, this long after the first lookup.
pub(crate) fn may_be_new(after: Duration) -> bool {
    after < NEW_GRACE
}

/// Why a partition's leader was not found, or has not answered.
#[derive(Clone, Debug)]
pub(crate) enum Obstacle {
    /// No server knows the partition, or the one that was asked lags behind.
    Unknown(TopicPartition),
    /// The partition exists, and has no leader.
    Leaderless(ClientError),
    /// Any other error.
    Failed(ClientError),
}

/// How long to retry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Retriable errors. With zero there is one attempt.
    pub(crate) errors: Duration,
    /// Whether a partition without a leader is retried as long, and not only while it may be new.
    pub(crate) leaders: bool,
}

impl Obstacle {
    /// True if another lookup may succeed, this long after the first.
    pub(crate) fn may_pass(&self, after: Duration, patience: Patience) -> bool {
        match self {
            Self::Unknown(_) => may_be_new(after),
            // A server that cannot use the partition's files will not recover in a moment.
            Self::Leaderless(error) if !patience.leaders => {
                may_be_new(after) && error.code() == Some(ErrorCode::LEADER_NOT_AVAILABLE)
            }
            Self::Leaderless(_) => true,
            Self::Failed(error) => error.kind() == ErrorKind::Retry,
        }
    }

    /// Converts to an error, this long after the first lookup.
    pub(crate) fn into_error(self, after: Duration) -> ClientError {
        match self {
            Self::Unknown(partition) if may_be_new(after) => {
                let (code, message) = (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, Some(partition.to_string()));
                ClientError::Server { code, message }
            }
            Self::Unknown(partition) => ClientError::UnknownPartition(partition),
            Self::Leaderless(error) | Self::Failed(error) => error,
        }
    }
}

impl Cluster {
    /// Finds the leaders of these partitions in one attempt, with one answer for each in their order. One request
    /// covers all topics that the cache lacks, or for which it has no wanted leader; with `anew` it covers all
    /// topics.
    pub(crate) async fn leaders(
        &self,
        partitions: &[&TopicPartition],
        anew: bool,
    ) -> Vec<Result<NodeId, Obstacle>> {
        let mut found: Vec<_> = if anew {
            partitions.iter().map(|partition| Err(Obstacle::Unknown((*partition).clone()))).collect()
        } else {
            self.known_leaders(partitions, false)
        };
        let missing = partitions.iter().zip(&found).filter(|(_, leader)| leader.is_err());
        let names: BTreeSet<&str> = missing.map(|(partition, _)| &*partition.topic).collect();
        if names.is_empty() {
            return found;
        }
        let names: Vec<&str> = names.into_iter().collect();
        match self.refresh(Some(&names), false).await {
            Ok(answer) => {
                found = self.known_leaders(partitions, true);
                for (name, error) in answer.into_iter().filter_map(Result::err) {
                    if error.code() == Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION) {
                        continue;
                    }
                    let of_topic = partitions.iter().zip(&mut found);
                    of_topic.filter(|(partition, _)| *partition.topic == *name).for_each(|(_, leader)| {
                        *leader = Err(Obstacle::Failed(error.clone()));
                    });
                }
            }
            Err(error) => {
                for leader in found.iter_mut().filter(|leader| leader.is_err()) {
                    *leader = Err(Obstacle::Failed(error.clone()));
                }
            }
        }
        found
    }

    /// The same from the cache alone; with `aged`, however old the entries are.
    fn known_leaders(&self, partitions: &[&TopicPartition], aged: bool) -> Vec<Result<NodeId, Obstacle>> {
        let mut topic: Option<Arc<TopicInfo>> = None;
        let leader = |partition: &&TopicPartition| {
            // The partitions of a topic usually follow each other.
            if topic.as_ref().is_none_or(|topic| *topic.name != *partition.topic) {
                let known = self.known_topic(&partition.topic);
                topic = known.filter(|known| known.fresh || aged).map(|known| known.topic);
            }
            let info = usize::try_from(partition.partition)
                .ok()
                .and_then(|index| topic.as_ref()?.partitions.get(index))
                .ok_or_else(|| Obstacle::Unknown((*partition).clone()))?;
            info.led(&partition.topic).map_err(Obstacle::Leaderless)
        };
        partitions.iter().map(leader).collect()
    }

    /// The leaders of these partitions, with retries of errors that may pass. A partition without a leader is not
    /// waited for.
    pub(crate) async fn find_leaders(
        &self,
        partitions: &[&TopicPartition],
    ) -> Vec<Result<NodeId, ClientError>> {
        let patience = Patience { errors: self.options().retry_timeout, leaders: false };
        let (begun, mut retry) = (Instant::now(), Retry::within(self.options(), patience.errors));
        let mut found = self.leaders(partitions, false).await;
        loop {
            let after = begun.elapsed();
            let passing: Vec<usize> = (0..found.len())
                .filter(|at| found[*at].as_ref().is_err_and(|error| error.may_pass(after, patience)))
                .collect();
            let first = passing.first().and_then(|at| found[*at].clone().err());
            let Some(error) = first.map(|obstacle| obstacle.into_error(after)) else { break };
            if retry.pause_after(error).await.is_err() {
                break;
            }
            let again: Vec<&TopicPartition> = passing.iter().map(|at| partitions[*at]).collect();
            for (at, leader) in passing.into_iter().zip(self.leaders(&again, true).await) {
                found[at] = leader;
            }
        }
        let after = begun.elapsed();
        found.into_iter().map(|leader| leader.map_err(|obstacle| obstacle.into_error(after))).collect()
    }
}
