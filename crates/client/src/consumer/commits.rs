//! Commits offsets for a group, as a member of it or from outside.
//!
//! Owns the result of each partition of a commit: one that fails for good does not block the others. A partition that
//! the coordinator does not know may have been deleted, or may be so new that the coordinator lags behind. The
//! partition's leader decides; it is asked twice, because it may lag behind, too. Kafka's consumers decide by the
//! kind of commit: `commitSync` retries until its timeout (KAFKA-6829), and a commit before a rebalance gives up at
//! once (KAFKA-16224).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use riverrun_protocol::{ApiKey, ErrorCode};
use riverrun_types::ErrorKind;
use tokio::time::Instant;

use super::assignment::Positions;
use super::group::Committer;
use crate::cluster::Cluster;
use crate::coordinator::{GroupCoordinator, MemberIdentity};
use crate::error::ClientError;
use crate::leaders::{Patience, may_be_new};
use crate::list_offsets::{Isolation, OffsetSpec, list_offsets_within};
use crate::retry::Retry;
use crate::topic_partition::TopicPartition;

/// The coordinator's result for each partition.
type Answers = Vec<(TopicPartition, Result<(), ClientError>)>;

/// The outcome of a commit.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    committed: Positions,
    /// Positions of partitions that do not exist any more.
    gone: Positions,
    /// The first of the errors that kept partitions from being committed.
    failed: Option<ClientError>,
}

impl Outcome {
    /// The outcome of a commit that committed nothing.
    pub(super) fn failed(error: ClientError) -> Self {
        Self { failed: Some(error), ..Self::default() }
    }

    /// The committed positions.
    pub(super) fn committed(&self) -> &Positions {
        &self.committed
    }

    /// True if every position was committed.
    pub(super) fn is_complete(&self) -> bool {
        self.failed.is_none() && self.gone.is_empty()
    }

    /// For a caller that needs every position committed.
    pub(super) fn into_result(self) -> Result<(), ClientError> {
        let gone = self.gone.into_keys().next().map(ClientError::UnknownPartition);
        self.failed.or(gone).map_or(Ok(()), Err)
    }

    /// For a caller that wants as much committed as possible. Returns the positions that need no further commit:
    /// those that were committed and, after a log message, those of deleted partitions.
    pub(super) fn into_done(mut self) -> (Positions, Result<(), ClientError>) {
        if let Some(first) = self.gone.keys().next() {
            let count = self.gone.len();
            tracing::warn!(count, %first, "positions of partitions that no longer exist were not committed");
        }
        self.committed.append(&mut self.gone);
        (self.committed, self.failed.map_or(Ok(()), Err))
    }

    /// Handles the coordinator's answers for the positions `left` to commit, of which these partitions are `gone`.
    /// Returns an error of the remaining ones.
    fn take(
        &mut self,
        left: &mut Positions,
        answers: Answers,
        gone: &BTreeSet<TopicPartition>,
    ) -> Option<ClientError> {
        let mut again = None;
        for (partition, answer) in answers {
            let is_gone = gone.contains(&partition);
            if !is_gone && answer.as_ref().is_err_and(may_pass) {
                again = answer.err();
                continue;
            }
            let Some(position) = left.remove(&partition) else { continue };
            match answer {
                Ok(()) => drop(self.committed.insert(partition, position)),
                Err(_) if is_gone => drop(self.gone.insert(partition, position)),
                Err(error) => drop(self.failed.get_or_insert(error)),
            }
        }
        again
    }
}

/// True if a retry of an offset refused with this error may succeed.
fn may_pass(error: &ClientError) -> bool {
    match error.code() {
        // A new epoch or generation of this member is on its way, or has arrived while this request was in flight.
        Some(
            ErrorCode::STALE_MEMBER_EPOCH | ErrorCode::REBALANCE_IN_PROGRESS | ErrorCode::ILLEGAL_GENERATION,
        ) => true,
        _ => error.kind() == ErrorKind::Retry,
    }
}

fn is_unknown(error: &ClientError) -> bool {
    matches!(error.code(), Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION | ErrorCode::UNKNOWN_TOPIC_ID))
}

/// The positions whose partitions the coordinator does not know.
fn unknown_of(answers: &Answers, positions: &Positions) -> BTreeSet<TopicPartition> {
    let unknown = answers.iter().filter(|(_, answer)| answer.as_ref().is_err_and(is_unknown));
    let ours = unknown.filter(|(partition, _)| positions.contains_key(partition));
    ours.map(|(partition, _)| partition.clone()).collect()
}

/// The partitions that their leaders do not know, or the metadata where it names no leader.
async fn find_missing(cluster: &Cluster, unknown: BTreeSet<TopicPartition>) -> BTreeSet<TopicPartition> {
    let asked = unknown.into_iter().map(|partition| (partition, OffsetSpec::Latest)).collect();
    let once = Patience { errors: Duration::ZERO, leaders: false };
    let found = list_offsets_within(cluster, asked, Isolation::ReadUncommitted, once).await;
    let unknown = found.into_iter().filter(|(_, found)| found.as_ref().is_err_and(is_unknown));
    unknown.map(|(partition, _)| partition).collect()
}

/// State of the partitions that the coordinator does not know.
#[derive(Debug)]
struct Doubts {
    /// Since when it does not know some of them.
    since: Instant,
    /// Partitions that were missing at the last check.
    missing: BTreeSet<TopicPartition>,
}

impl Doubts {
    fn new() -> Self {
        Self { since: Instant::now(), missing: BTreeSet::new() }
    }

    /// Checks partitions that the coordinator does not know, and returns the deleted ones: those that are missing at
    /// two checks, after as many answers of the coordinator. A position with a leader epoch was read, so the leader
    /// knew the partition, and it was deleted. A partition that was never read may only be new.
    async fn find_gone(
        &mut self,
        cluster: &Cluster,
        unknown: BTreeSet<TopicPartition>,
        positions: &Positions,
    ) -> BTreeSet<TopicPartition> {
        let missing = find_missing(cluster, unknown).await;
        let before = std::mem::replace(&mut self.missing, missing);
        let was_read =
            |partition: &TopicPartition| positions.get(partition).is_some_and(|at| at.leader_epoch.is_some());
        let is_old = !may_be_new(self.since.elapsed());
        let twice = self.missing.intersection(&before);
        twice.filter(|partition| is_old || was_read(partition)).cloned().collect()
    }
}

/// Commits, and retries while the coordinator moves or the group rebalances, but not once the group has removed the
/// member.
pub(super) async fn commit(
    coordinator: Arc<GroupCoordinator>,
    committer: Option<Committer>,
    mut left: Positions,
) -> Outcome {
    let mut retry = Retry::new(coordinator.cluster().options());
    let mut outcome = Outcome::default();
    let mut doubts = None;
    while !left.is_empty() {
        let member = committer.as_ref().map_or_else(|| Ok(MemberIdentity::none()), Committer::member);
        let stopped = match member {
            Ok(member) => {
                let answers = coordinator.commit(&member, &left).await;
                let unknown = unknown_of(&answers, &left);
                let mut gone = BTreeSet::new();
                if !unknown.is_empty() {
                    let doubts = doubts.get_or_insert_with(Doubts::new);
                    // Boxed: rare, and larger than the rest of a commit.
                    gone = Box::pin(doubts.find_gone(coordinator.cluster(), unknown, &left)).await;
                }
                match outcome.take(&mut left, answers, &gone) {
                    Some(error) => retry.pause_or_give_up(error).await,
                    None => break,
                }
            }
            Err(error) => Err(error),
        };
        if let Err(error) = stopped {
            outcome.failed.get_or_insert(error);
            return outcome;
        }
    }
    if let Some(partition) = left.keys().next() {
        let missing = partition.to_string();
        outcome.failed.get_or_insert(ClientError::Incomplete { api: ApiKey::OffsetCommit, missing });
    }
    outcome
}
