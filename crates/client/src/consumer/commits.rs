//! Commits offsets for a group, as a member of it or from outside.

use std::sync::Arc;

use riverrun_protocol::ErrorCode;

use super::assignment::Positions;
use super::group::Committer;
use crate::coordinator::{GroupCoordinator, MemberIdentity};
use crate::error::ClientError;
use crate::retry::Retry;

/// Commits, trying again while the coordinator moves or the group is between two assignments, but not once the group has
/// given the member up.
pub(super) async fn commit(
    coordinator: Arc<GroupCoordinator>,
    committer: Option<Committer>,
    positions: Positions,
) -> Result<(), ClientError> {
    let mut left = positions;
    let mut retry = Retry::new(coordinator.cluster().options());
    loop {
        let member = match &committer {
            Some(committer) => committer.member()?,
            None => MemberIdentity::none(),
        };
        let mut failed = None;
        for (partition, result) in coordinator.commit(&member, &left).await {
            match result {
                Ok(()) => drop(left.remove(&partition)),
                Err(error) => failed = Some(error),
            }
        }
        let Some(error) = failed else { return Ok(()) };
        match error.code() {
            // Another epoch or generation is on its way to this member, or has come while this was under way.
            Some(
                ErrorCode::STALE_MEMBER_EPOCH
                | ErrorCode::REBALANCE_IN_PROGRESS
                | ErrorCode::ILLEGAL_GENERATION,
            ) => {
                retry.pause_or_give_up(error).await?;
            }
            _ => retry.pause_after(error).await?,
        }
    }
}
