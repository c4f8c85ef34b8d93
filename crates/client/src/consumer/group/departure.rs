//! Saying goodbye to a group, so that others get the partitions at once.
//!
//! Owns what is said and how often: a goodbye that may get through later is said again, for as long as an answer to it may
//! take. Kafka's consumers say it once, and only their log tells if it was not heard.

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

/// Member epoch that says goodbye (KIP-848).
const EPOCH_LEAVE: i32 = -1;
/// Member epoch of a static member that will come back (KIP-848).
const EPOCH_PAUSE: i32 = -2;

/// First version of `LeaveGroup` that names several members.
const MEMBERS_SINCE: i16 = 3;

/// A membership that is over, of which the group may not have heard.
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

    /// Leaves the group, trying again while that may help and there is time for an answer, and for so long at most. A static
    /// member of the classic protocol says nothing: it is expected back.
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

    /// Who left, to begin anew.
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

/// Whether the group does not know who left: one that it never took in, or had given up. There is nothing left to do then.
fn is_no_member(error: &ClientError) -> bool {
    use ErrorCode as Code;
    matches!(
        error.code(),
        Some(Code::UNKNOWN_MEMBER_ID | Code::GROUP_ID_NOT_FOUND | Code::FENCED_INSTANCE_ID)
    )
}

async fn leave_classic(coordinator: &GroupCoordinator, identity: &MemberIdentity) -> Result<(), ClientError> {
    // The data lane: a join may still be waiting in the other one.
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
    // Behind the heartbeat that may be under way: a join that came later would bring the member back for nobody.
    let frame = coordinator.call(Lane::Group, &request, CallLimits::default()).await?;
    let answer = frame.decode::<ConsumerGroupHeartbeatRequest<'_>>()?;
    ClientError::check(answer.error_code, answer.error_message.as_deref())
}
