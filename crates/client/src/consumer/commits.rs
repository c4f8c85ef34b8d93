//! Commits offsets for a group, as a member of it or from outside.
//!
//! Owns what becomes of each partition of a commit: one that fails for good holds no other back.

use std::sync::Arc;
use std::time::Duration;

use riverrun_protocol::{ApiKey, ErrorCode};
use riverrun_types::ErrorKind;
use tokio::time::Instant;

use super::assignment::Positions;
use super::group::Committer;
use crate::coordinator::{GroupCoordinator, MemberIdentity};
use crate::error::ClientError;
use crate::retry::Retry;
use crate::topic_partition::TopicPartition;

/// How long a partition that the coordinator does not know may be one that it has not heard of yet. It has been read, so
/// that others know it, or knew it before it was deleted.
const NEW_GRACE: Duration = Duration::from_millis(500);

/// What the coordinator says of each partition.
type Answers = Vec<(TopicPartition, Result<(), ClientError>)>;

/// What a commit has come to.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    committed: Positions,
    /// Of partitions that are not there any more.
    gone: Positions,
    /// The first of the errors for which others were not committed.
    failed: Option<ClientError>,
    /// Since when the coordinator is known not to know some partition.
    unknown_since: Option<Instant>,
}

/// What becomes of an offset that was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It may be taken later.
    Again,
    /// There is no such partition any more.
    Gone,
    Failed,
}

impl Outcome {
    /// Nothing was committed.
    pub(super) fn failed(error: ClientError) -> Self {
        Self { failed: Some(error), ..Self::default() }
    }

    /// What was committed.
    pub(super) fn committed(&self) -> &Positions {
        &self.committed
    }

    /// Whether that is all.
    pub(super) fn is_complete(&self) -> bool {
        self.failed.is_none() && self.gone.is_empty()
    }

    /// For who wants all of it committed.
    pub(super) fn into_result(self) -> Result<(), ClientError> {
        let gone = self.gone.into_keys().next().map(ClientError::UnknownPartition);
        self.failed.or(gone).map_or(Ok(()), Err)
    }

    /// For who wants committed what can be. Answers the positions that need no other commit, too: those that were committed
    /// and, besides a word in the log, those that never can be.
    pub(super) fn settle(mut self) -> (Positions, Result<(), ClientError>) {
        if let Some(first) = self.gone.keys().next() {
            let count = self.gone.len();
            tracing::warn!(count, %first, "positions are not committed, for their partitions are not there any more");
        }
        self.committed.append(&mut self.gone);
        (self.committed, self.failed.map_or(Ok(()), Err))
    }

    /// Takes in what the coordinator says of what was `left` to commit. Of what still is, it answers an error.
    fn take(&mut self, left: &mut Positions, answers: Answers) -> Option<ClientError> {
        let mut again = None;
        for (partition, answer) in answers {
            let verdict = answer.as_ref().err().map(|error| self.judge(error));
            if verdict == Some(Verdict::Again) {
                again = answer.err();
                continue;
            }
            let Some(position) = left.remove(&partition) else { continue };
            match answer {
                Ok(()) => drop(self.committed.insert(partition, position)),
                Err(_) if verdict == Some(Verdict::Gone) => drop(self.gone.insert(partition, position)),
                Err(error) => drop(self.failed.get_or_insert(error)),
            }
        }
        again
    }

    fn judge(&mut self, error: &ClientError) -> Verdict {
        match error.code() {
            Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION | ErrorCode::UNKNOWN_TOPIC_ID) => {
                let since = self.unknown_since.get_or_insert_with(Instant::now);
                if since.elapsed() < NEW_GRACE { Verdict::Again } else { Verdict::Gone }
            }
            // Another epoch or generation is on its way to this member, or has come while this was under way.
            Some(
                ErrorCode::STALE_MEMBER_EPOCH
                | ErrorCode::REBALANCE_IN_PROGRESS
                | ErrorCode::ILLEGAL_GENERATION,
            ) => Verdict::Again,
            _ if error.kind() == ErrorKind::Retry => Verdict::Again,
            _ => Verdict::Failed,
        }
    }
}

/// Commits, trying again while the coordinator moves or the group is between two assignments, but not once the group has
/// given the member up.
pub(super) async fn commit(
    coordinator: Arc<GroupCoordinator>,
    committer: Option<Committer>,
    mut left: Positions,
) -> Outcome {
    let mut retry = Retry::new(coordinator.cluster().options());
    let mut outcome = Outcome::default();
    while !left.is_empty() {
        let member = committer.as_ref().map_or_else(|| Ok(MemberIdentity::none()), Committer::member);
        let stopped = match member {
            Ok(member) => {
                let answers = coordinator.commit(&member, &left).await;
                match outcome.take(&mut left, answers) {
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
