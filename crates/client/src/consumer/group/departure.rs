//! Leaving a group, so that the other members get the partitions at once.
//!
//! Owns the leave request and its retries: one that may get through later is repeated, as long as an answer may take.
//! Kafka's consumers send it once, and report a failure only in their log.

use std::sync::Arc;
use std::time::Duration;

use riverrun_protocol::leave_group_request::MemberIdentity as LeavingMember;
use riverrun_protocol::{ApiKey, ConsumerGroupHeartbeatRequest, ErrorCode, LeaveGroupRequest};
use tokio::time::timeout;

use crate::cluster::Lane;
use crate::connection::CallLimits;
use crate::consumer::options::{ConsumerOptions, GroupProtocol};
use crate::coordinator::{GroupCoordinator, MemberIdentity};
use crate::error::ClientError;
use crate::retry::Retry;

/// Member epoch with which a member leaves (KIP-848).
const EPOCH_LEAVE: i32 = -1;
/// Member epoch with which a static member leaves for a while (KIP-848).
const EPOCH_PAUSE: i32 = -2;

/// First version of `LeaveGroup` with several members.
const MEMBERS_SINCE: i16 = 3;

/// A membership that is over, of which the coordinator may not know.
#[derive(Debug)]
pub(in crate::consumer) struct Departure {
    coordinator: Arc<GroupCoordinator>,
    options: Arc<ConsumerOptions>,
    member: MemberIdentity,
}

impl Departure {
    pub(super) fn new(
        coordinator: Arc<GroupCoordinator>,
        options: Arc<ConsumerOptions>,
        member: MemberIdentity,
    ) -> Self {
        Self { coordinator, options, member }
    }

    /// Leaves the group, with retries as long as they may help and there is time for an answer, within `limit`. A
    /// static member of the classic protocol sends nothing: the group expects it back.
    pub(in crate::consumer) async fn leave(&self, limit: Duration) -> Result<(), ClientError> {
        let cluster = &self.options.cluster;
        let after = cluster.request_timeout.min(limit);
        let mut retry = Retry::within(cluster, after);
        let goodbye = async {
            loop {
                match leave(&self.coordinator, &self.options, &self.member).await {
                    Err(error) => {
                        self.coordinator.note(&error);
                        retry.pause_after(error).await?;
                    }
                    left => return left,
                }
            }
        };
        let (address, api) = (format!("the coordinator of {}", self.coordinator.group()), self.api());
        timeout(after, goodbye).await.unwrap_or(Err(ClientError::Timeout { address, api, after }))
    }

    fn api(&self) -> ApiKey {
        match self.options.group_protocol {
            GroupProtocol::Classic => ApiKey::LeaveGroup,
            GroupProtocol::Consumer => ApiKey::ConsumerGroupHeartbeat,
        }
    }

    /// The identity that has left, for a new membership.
    pub(super) fn into_member(mut self) -> MemberIdentity {
        self.member.begin_anew();
        self.member
    }
}

/// Leaves a group, in one attempt.
pub(super) async fn leave(
    coordinator: &GroupCoordinator,
    options: &ConsumerOptions,
    identity: &MemberIdentity,
) -> Result<(), ClientError> {
    if identity.member_id.is_empty() {
        return Ok(());
    }
    let left = match options.group_protocol {
        GroupProtocol::Classic if identity.instance_id.is_some() => Ok(()),
        GroupProtocol::Classic => leave_classic(coordinator, identity).await,
        GroupProtocol::Consumer => leave_server_side(coordinator, identity).await,
    };
    match left {
        Err(error) if is_no_member(&error) => Ok(()),
        left => left,
    }
}

/// True if the group does not know the member: it was never admitted, or was removed. Nothing is left to do then.
fn is_no_member(error: &ClientError) -> bool {
    use ErrorCode as Code;
    matches!(
        error.code(),
        Some(Code::UNKNOWN_MEMBER_ID | Code::GROUP_ID_NOT_FOUND | Code::FENCED_INSTANCE_ID)
    )
}

async fn leave_classic(coordinator: &GroupCoordinator, identity: &MemberIdentity) -> Result<(), ClientError> {
    // On the data lane: a join may still be waiting on the other.
    let version = coordinator.version_of(Lane::Data, ApiKey::LeaveGroup).await?;
    let mut request =
        LeaveGroupRequest { group_id: coordinator.group().into(), ..LeaveGroupRequest::default() };
    let member_id = identity.member_id.as_str().into();
    if version < MEMBERS_SINCE {
        request.member_id = member_id;
    } else {
        request.members.push(LeavingMember { member_id, ..LeavingMember::default() });
    }
    let frame = coordinator.call(Lane::Data, &request, CallLimits::default()).await?;
    let answer = frame.decode::<LeaveGroupRequest<'_>>()?;
    ClientError::check(answer.error_code, None)
}

pub(super) async fn leave_server_side(
    coordinator: &GroupCoordinator,
    identity: &MemberIdentity,
) -> Result<(), ClientError> {
    let request = ConsumerGroupHeartbeatRequest {
        group_id: coordinator.group().into(),
        member_id: identity.member_id.as_str().into(),
        instance_id: identity.instance_id.as_deref().map(Into::into),
        member_epoch: if identity.instance_id.is_some() { EPOCH_PAUSE } else { EPOCH_LEAVE },
        ..ConsumerGroupHeartbeatRequest::default()
    };
    // Behind the heartbeat that may be in flight: a join that arrived later would revive a member without a process.
    let frame = coordinator.call(Lane::Group, &request, CallLimits::default()).await?;
    let answer = frame.decode::<ConsumerGroupHeartbeatRequest<'_>>()?;
    ClientError::check(answer.error_code, answer.error_message.as_deref())
}
