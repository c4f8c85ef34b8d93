//! Groups of both protocols: list, describe, delete.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use riverrun_protocol::consumer_group_describe_response::{Assignment, DescribedGroup as ServerSideGroup};
use riverrun_protocol::consumer_protocol::{PROTOCOL_TYPE, decode_assignment, decode_subscription};
use riverrun_protocol::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use riverrun_protocol::{
    ApiKey, ConsumerGroupDescribeRequest, DeleteGroupsRequest, DescribeGroupsRequest, ErrorCode,
    ListGroupsRequest,
};
use riverrun_types::ErrorKind;

use super::{Admin, Results};
use crate::cluster::Lane;
use crate::connection::{AnyRequest, CallLimits, ResponseFrame};
use crate::coordinator::GroupCoordinator;
use crate::error::ClientError;
use crate::topic_partition::TopicPartition;

/// Name of the KIP-848 kind of group in listings.
const TYPE_CONSUMER: &str = "consumer";
/// Name of the other kind.
const TYPE_CLASSIC: &str = "classic";
/// `MemberType` of a member of the classic protocol in a KIP-848 group.
const MEMBER_CLASSIC: i8 = 0;
/// `MemberType` of a member of the newer one.
const MEMBER_CONSUMER: i8 = 1;
/// State in which the classic describe shows a group that does not exist.
const STATE_DEAD: &str = "Dead";

/// A group in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupListing {
    /// Its name.
    pub group: String,
    /// Its protocol type: `consumer`, `connect`, or empty.
    pub protocol_type: String,
    /// Its state in Kafka's words, if the server sends it.
    pub state: Option<String>,
    /// `classic` or `consumer` (KIP-848), if the server sends it.
    pub group_type: Option<String>,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// Its id.
    pub member_id: String,
    /// Its name as a static member.
    pub instance_id: Option<String>,
    /// The client id of its connection.
    pub client_id: String,
    /// The host of its connection.
    pub host: String,
    /// The protocol that it speaks, `classic` or `consumer`: a group that changes from one to the other has members
    /// of both. `None` where the server does not report it, as before version 1 of `ConsumerGroupDescribe`.
    pub protocol: Option<&'static str>,
    /// KIP-848: its epoch.
    pub epoch: Option<i32>,
    /// The topics that it subscribes to, if its metadata can be read.
    pub topics: Vec<String>,
    /// The partitions that it is assigned, if they can be read.
    pub assignment: Vec<TopicPartition>,
    /// KIP-848: the partitions that it will have when it has caught up.
    pub target: Option<Vec<TopicPartition>>,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescription {
    /// Its name.
    pub group: String,
    /// `classic` or `consumer` (KIP-848).
    pub group_type: String,
    /// Its state in Kafka's words.
    pub state: String,
    /// Its protocol type: `consumer`, `connect`, or empty.
    pub protocol_type: String,
    /// Its assignor; empty while the group has not chosen one.
    pub assignor: String,
    /// KIP-848: its epoch.
    pub epoch: Option<i32>,
    /// Its members.
    pub members: Vec<GroupMember>,
}

impl Admin {
    pub(super) fn coordinator(&self, group: &str) -> GroupCoordinator {
        GroupCoordinator::new(self.cluster.clone(), group.to_owned())
    }

    /// All groups of all servers, sorted by name.
    pub fn list_groups(&self) -> BoxFuture<'_, Result<Vec<GroupListing>, ClientError>> {
        Box::pin(async move {
            let mut groups = BTreeMap::new();
            for node in self.known_nodes().await? {
                let mut retry = self.retry();
                let listed = loop {
                    let answer = self.cluster.call(node, Lane::Data, &ListGroupsRequest::default()).await;
                    match answer.and_then(|frame| read_listing(&frame)) {
                        Ok(listed) => break listed,
                        Err(error) => retry.pause_after(error).await?,
                    }
                };
                groups.extend(listed.into_iter().map(|group| (group.group.clone(), group)));
            }
            Ok(groups.into_values().collect())
        })
    }

    /// Describes groups of either protocol.
    pub fn describe_groups<'a>(
        &'a self,
        groups: &'a [String],
    ) -> BoxFuture<'a, Results<String, GroupDescription>> {
        Box::pin(async move {
            let mut results = Vec::with_capacity(groups.len());
            for group in groups {
                results.push((group.clone(), self.describe_group(group).await));
            }
            results
        })
    }

    async fn describe_group(&self, group: &str) -> Result<GroupDescription, ClientError> {
        let coordinator = self.coordinator(group);
        // A server without the newer protocol has only classic groups, and the newer request does not find those: in
        // both cases the older request follows.
        let request = ConsumerGroupDescribeRequest { group_ids: vec![group.into()], ..Default::default() };
        let described =
            self.ask_coordinator(&coordinator, &request, |frame| read_server_side(frame, group)).await;
        match described {
            Err(ClientError::Unsupported { .. }) => {}
            Err(error) if error.code() == Some(ErrorCode::GROUP_ID_NOT_FOUND) => {}
            result => return result,
        }
        let request = DescribeGroupsRequest { groups: vec![group.into()], ..Default::default() };
        self.ask_coordinator(&coordinator, &request, |frame| read_classic(frame, group)).await
    }

    /// Deletes groups with their committed offsets. They must have no members.
    pub fn delete_groups<'a>(&'a self, groups: &'a [String]) -> BoxFuture<'a, Results<String, ()>> {
        Box::pin(async move {
            let mut results = Vec::with_capacity(groups.len());
            for group in groups {
                let coordinator = self.coordinator(group);
                let request = DeleteGroupsRequest { groups_names: vec![group.as_str().into()] };
                let read = |frame: &ResponseFrame| {
                    let answer = frame.decode::<DeleteGroupsRequest<'_>>()?;
                    let result =
                        answer.results.first().ok_or_else(|| missing(ApiKey::DeleteGroups, group))?;
                    ClientError::check(result.error_code, None)
                };
                results.push((group.clone(), self.ask_coordinator(&coordinator, &request, read).await));
            }
            results
        })
    }

    /// Asks a group's coordinator, and retries errors that may pass.
    async fn ask_coordinator<T>(
        &self,
        coordinator: &GroupCoordinator,
        request: &dyn AnyRequest,
        read: impl Fn(&ResponseFrame) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let mut retry = self.retry();
        loop {
            let answer = coordinator.call(Lane::Data, request, CallLimits::default()).await;
            match answer.and_then(|frame| read(&frame)) {
                Err(error) if error.kind() == ErrorKind::Retry => {
                    coordinator.note(&error);
                    retry.pause_after(error).await?;
                }
                result => return result,
            }
        }
    }
}

fn missing(api: ApiKey, group: &str) -> ClientError {
    ClientError::Incomplete { api, missing: format!("group {group}") }
}

fn read_listing(frame: &ResponseFrame) -> Result<Vec<GroupListing>, ClientError> {
    let answer = frame.decode::<ListGroupsRequest<'_>>()?;
    ClientError::check(answer.error_code, None)?;
    let said = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let listings = answer.groups.iter().map(|group| GroupListing {
        group: group.group_id.to_string(),
        protocol_type: group.protocol_type.to_string(),
        state: said(&group.group_state),
        group_type: said(&group.group_type),
    });
    Ok(listings.collect())
}

fn read_server_side(frame: &ResponseFrame, name: &str) -> Result<GroupDescription, ClientError> {
    let answer = frame.decode::<ConsumerGroupDescribeRequest<'_>>()?;
    let group: &ServerSideGroup<'_> =
        answer.groups.first().ok_or_else(|| missing(ApiKey::ConsumerGroupDescribe, name))?;
    ClientError::check(group.error_code, group.error_message.as_deref())?;
    let members = group.members.iter().map(|member| GroupMember {
        member_id: member.member_id.to_string(),
        instance_id: member.instance_id.as_ref().map(ToString::to_string),
        client_id: member.client_id.to_string(),
        host: member.client_host.to_string(),
        protocol: protocol_of(member.member_type),
        epoch: Some(member.member_epoch),
        topics: member.subscribed_topic_names.iter().map(ToString::to_string).collect(),
        assignment: partitions_of(&member.assignment),
        target: Some(partitions_of(&member.target_assignment)),
    });
    Ok(GroupDescription {
        group: group.group_id.to_string(),
        group_type: TYPE_CONSUMER.to_owned(),
        state: group.group_state.to_string(),
        protocol_type: PROTOCOL_TYPE.to_owned(),
        assignor: group.assignor_name.to_string(),
        epoch: Some(group.group_epoch),
        members: members.collect(),
    })
}

/// The protocol of a member of a KIP-848 group.
fn protocol_of(member_type: i8) -> Option<&'static str> {
    match member_type {
        MEMBER_CLASSIC => Some(TYPE_CLASSIC),
        MEMBER_CONSUMER => Some(TYPE_CONSUMER),
        _ => None,
    }
}

fn partitions_of(assignment: &Assignment<'_>) -> Vec<TopicPartition> {
    let mut partitions = Vec::new();
    for topic in &assignment.topic_partitions {
        let name = |index: &i32| TopicPartition::new(&*topic.topic_name, *index);
        partitions.extend(topic.partitions.iter().map(name));
    }
    partitions.sort();
    partitions
}

fn read_classic(frame: &ResponseFrame, name: &str) -> Result<GroupDescription, ClientError> {
    let answer = frame.decode::<DescribeGroupsRequest<'_>>()?;
    let group: &DescribedGroup<'_> =
        answer.groups.first().ok_or_else(|| missing(ApiKey::DescribeGroups, name))?;
    ClientError::check(group.error_code, group.error_message.as_deref())?;
    if group.group_state == STATE_DEAD {
        // The error of servers before version 6 of the request for a group that does not exist.
        return Err(ClientError::Server {
            code: ErrorCode::GROUP_ID_NOT_FOUND,
            message: Some(format!("there is no group {name:?}")),
        });
    }
    let consumers = group.protocol_type == PROTOCOL_TYPE;
    Ok(GroupDescription {
        group: group.group_id.to_string(),
        group_type: TYPE_CLASSIC.to_owned(),
        state: group.group_state.to_string(),
        protocol_type: group.protocol_type.to_string(),
        assignor: group.protocol_data.to_string(),
        epoch: None,
        members: group.members.iter().map(|member| classic_member(member, consumers)).collect(),
    })
}

/// Only the members need to understand subscription and assignment: if they cannot be read, they are shown as empty.
fn classic_member(member: &DescribedGroupMember<'_>, consumers: bool) -> GroupMember {
    let mut assignment = Vec::new();
    let mut topics = Vec::new();
    if consumers {
        if let Ok(subscription) = decode_subscription(&member.member_metadata) {
            topics.extend(subscription.topics.iter().map(ToString::to_string));
        }
        if let Ok(assigned) = decode_assignment(&member.member_assignment) {
            for topic in &assigned.assigned_partitions {
                let name = |index: &i32| TopicPartition::new(&*topic.topic, *index);
                assignment.extend(topic.partitions.iter().map(name));
            }
        }
    }
    assignment.sort();
    GroupMember {
        member_id: member.member_id.to_string(),
        instance_id: member.group_instance_id.as_ref().map(ToString::to_string),
        client_id: member.client_id.to_string(),
        host: member.client_host.to_string(),
        protocol: Some(TYPE_CLASSIC),
        epoch: None,
        topics,
        assignment,
        target: None,
    }
}
