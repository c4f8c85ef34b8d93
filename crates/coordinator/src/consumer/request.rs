//! The fields of a heartbeat, checked without a group, and its refusals.

use riverrun_protocol::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, ErrorCode, Str};
use riverrun_types::limits::NAME_BYTES_MAX;

use crate::GroupConfig;
use crate::memory::Shortage;

use super::member::STATIC_LEAVE_EPOCH;

/// The epoch of a heartbeat that joins.
pub(super) const JOIN_EPOCH: i32 = 0;
/// The epoch of a heartbeat that leaves.
const LEAVE_EPOCH: i32 = -1;
/// The first version of the request in which clients make their own member ids (KIP-1082).
const CLIENT_MEMBER_ID_VERSION: i16 = 1;

/// Why a heartbeat is refused: a code and a text for the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    code: ErrorCode,
    message: String,
}

impl Refusal {
    /// A refusal with this code and explanation.
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// A heartbeat for a group that does not exist and that the request does not create.
    pub(crate) fn no_such_group(group_id: &str) -> Self {
        Self::new(ErrorCode::GROUP_ID_NOT_FOUND, format!("there is no consumer group {group_id:?}"))
    }

    /// A member that the group does not have, or not any more.
    pub(super) fn no_member(id: &str) -> Self {
        Self::new(ErrorCode::UNKNOWN_MEMBER_ID, format!("the group has no member {id:?}"))
    }

    /// A static member whose place another one has taken.
    pub(super) fn fenced(instance_id: &str) -> Self {
        let message = format!("the instance id {instance_id:?} is in use by another member");
        Self::new(ErrorCode::FENCED_INSTANCE_ID, message)
    }

    /// A group without room.
    pub(super) fn of_group(code: ErrorCode, group_id: &str) -> Self {
        let why = code.message();
        let message = format!("the group {group_id:?} cannot be joined with the consumer protocol: {why}");
        Self::new(code, message)
    }

    /// A classic group with members that does not change its protocol. The code is Kafka's, although the group
    /// exists.
    pub(crate) fn no_upgrade(group_id: &str, why: &str) -> Self {
        let message = format!(
            "the group {group_id:?} cannot be joined with the consumer protocol: its members use the classic \
             protocol, and {why}"
        );
        Self::new(ErrorCode::GROUP_ID_NOT_FOUND, message)
    }

    /// A member or a group without memory.
    pub(crate) fn no_memory(shortage: Shortage) -> Self {
        let when = match shortage {
            Shortage::ForNow => "at the moment: other groups have taken it",
            Shortage::Forever => {
                "at all: the group would take more than a quarter of the memory that all groups share"
            }
        };
        let message = format!("there is no memory for this member's request {when}");
        Self::new(shortage.code(ErrorCode::GROUP_MAX_SIZE_REACHED), message)
    }

    /// A request after which a member's partitions would be more than a record holds. The code is Kafka's, which finds
    /// out when it appends the record.
    pub(super) fn too_large(id: &str) -> Self {
        let message = format!("the partitions of member {id:?} would be more than a record can hold");
        Self::new(ErrorCode::UNKNOWN_SERVER_ERROR, message)
    }

    /// Its code.
    pub(super) fn code(&self) -> ErrorCode {
        self.code
    }

    /// The response with this refusal.
    pub(super) fn into_response(self) -> ConsumerGroupHeartbeatResponse<'static> {
        ConsumerGroupHeartbeatResponse {
            error_code: self.code.0,
            error_message: Some(self.message.into()),
            ..ConsumerGroupHeartbeatResponse::default()
        }
    }

    fn invalid(message: &'static str) -> Self {
        Self::new(ErrorCode::INVALID_REQUEST, message)
    }
}

/// Checks the fields of a heartbeat by themselves, before any group is looked up or made for it.
pub(super) fn validate(
    request: &ConsumerGroupHeartbeatRequest<'_>,
    version: i16,
    config: &GroupConfig,
) -> Result<(), Refusal> {
    let epoch = request.member_epoch;
    let needs_id = version >= CLIENT_MEMBER_ID_VERSION || epoch > JOIN_EPOCH || epoch == LEAVE_EPOCH;
    if needs_id && request.member_id.is_empty() {
        return Err(Refusal::invalid("the member id is empty"));
    }
    validate_names(request)?;
    if epoch == JOIN_EPOCH {
        validate_join(request)?;
    } else if epoch == STATIC_LEAVE_EPOCH && request.instance_id.is_none() {
        return Err(Refusal::invalid("a static member that leaves for a while must name its instance id"));
    } else if epoch < STATIC_LEAVE_EPOCH {
        return Err(Refusal::invalid("the member epoch is below -2"));
    }
    validate_assignor(request, config)
}

fn validate_names(request: &ConsumerGroupHeartbeatRequest<'_>) -> Result<(), Refusal> {
    let is_empty = |name: &Option<Str<'_>>| name.as_ref().is_some_and(|name| name.is_empty());
    if request.group_id.is_empty() {
        return Err(Refusal::invalid("the group id is empty"));
    }
    if is_empty(&request.instance_id) || is_empty(&request.rack_id) {
        return Err(Refusal::invalid("an instance id or rack id, if given, is not empty"));
    }
    let names = [&request.group_id, &request.member_id].into_iter();
    let optional = [&request.instance_id, &request.rack_id].into_iter().flatten();
    let topics = request.subscribed_topic_names.iter().flatten();
    if names.chain(optional).chain(topics).any(|name| name.len() > NAME_BYTES_MAX) {
        return Err(Refusal::invalid("a name is longer than a record can hold"));
    }
    Ok(())
}

fn validate_join(request: &ConsumerGroupHeartbeatRequest<'_>) -> Result<(), Refusal> {
    if request.rebalance_timeout_ms == -1 {
        return Err(Refusal::invalid("a member that joins must give its rebalance timeout"));
    }
    if request.topic_partitions.as_ref().is_none_or(|owned| !owned.is_empty()) {
        return Err(Refusal::invalid("a member that joins must report that it owns no partitions"));
    }
    if request.subscribed_topic_names.is_none() && request.subscribed_topic_regex.is_none() {
        return Err(Refusal::invalid(
            "a member that joins must subscribe by names or by a regular expression",
        ));
    }
    Ok(())
}

fn validate_assignor(
    request: &ConsumerGroupHeartbeatRequest<'_>,
    config: &GroupConfig,
) -> Result<(), Refusal> {
    let Some(asked) = &request.server_assignor else { return Ok(()) };
    if config.consumer_assignors.iter().any(|known| known == asked) {
        return Ok(());
    }
    let known = config.consumer_assignors.join(", ");
    let message = format!("the assignor {asked:?} is not supported; this server has: {known}");
    Err(Refusal::new(ErrorCode::UNSUPPORTED_ASSIGNOR, message))
}
