//! Responses and records as scripts show them.

use std::fmt::Write as _;

use riverrun_coordinator::{GroupResponse, OffsetsRecord};
use riverrun_protocol::describe_groups_response::DescribedGroup;
use riverrun_protocol::list_groups_response::ListedGroup;
use riverrun_protocol::offset_fetch_response::OffsetFetchResponseGroup;
use riverrun_protocol::offsets_topic::{self, GroupMetadataValue, Key, OffsetCommitValue};
use riverrun_protocol::{ErrorCode, JoinGroupResponse, SyncGroupResponse, consumer_protocol};

use crate::consumer;

/// An error's name; `ok` for none.
pub(crate) fn error(code: i16) -> String {
    if code == 0 { "ok".to_owned() } else { ErrorCode(code).name().to_owned() }
}

/// Printable bytes, or their number.
fn bytes(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.chars().all(|c| !c.is_control()) => format!("'{text}'"),
        _ => format!("{} bytes", bytes.len()),
    }
}

/// An assignment: a consumer's as its partitions, any other as bytes.
fn assignment(assigned: &[u8]) -> String {
    let Ok(consumer) = consumer_protocol::decode_assignment(assigned) else { return bytes(assigned) };
    let topics = consumer.assigned_partitions.iter();
    let topics = topics.map(|topic| format!("{}:{:?}", topic.topic, topic.partitions).replace(", ", "+"));
    format!("[{}]", topics.collect::<Vec<_>>().join(" "))
}

/// One reply.
pub(crate) fn reply(body: &GroupResponse) -> String {
    match body {
        GroupResponse::JoinGroup(response) => join(response),
        GroupResponse::SyncGroup(response) => sync(response),
        GroupResponse::Heartbeat(response) => format!("heartbeat {}", error(response.error_code)),
        GroupResponse::LeaveGroup(response) => {
            let mut text = format!("leave {}", error(response.error_code));
            for member in &response.members {
                write!(text, " [{} {}]", member.member_id, error(member.error_code)).unwrap();
            }
            text
        }
        GroupResponse::OffsetCommit(response) => {
            let mut text = "commit".to_owned();
            for topic in &response.topics {
                for partition in &topic.partitions {
                    write!(
                        text,
                        " {}:{} {}",
                        topic.name,
                        partition.partition_index,
                        error(partition.error_code)
                    )
                    .unwrap();
                }
            }
            text
        }
        GroupResponse::OffsetDelete(response) => {
            let mut text = format!("delete-offsets {}", error(response.error_code));
            for topic in &response.topics {
                for partition in &topic.partitions {
                    write!(
                        text,
                        " {}:{} {}",
                        topic.name,
                        partition.partition_index,
                        error(partition.error_code)
                    )
                    .unwrap();
                }
            }
            text
        }
        GroupResponse::ConsumerGroupHeartbeat(response) => consumer::response(response),
    }
}

fn join(response: &JoinGroupResponse<'_>) -> String {
    if response.error_code != 0 {
        return format!("join {} member={}", error(response.error_code), response.member_id);
    }
    let mut text = format!(
        "join ok member={} gen={} leader={} protocol={}",
        response.member_id,
        response.generation_id,
        response.leader,
        response.protocol_name.as_deref().unwrap_or("none"),
    );
    if response.skip_assignment {
        text.push_str(" skip-assignment");
    }
    if !response.members.is_empty() {
        let names: Vec<_> = response.members.iter().map(|member| &*member.member_id).collect();
        write!(text, " members={}", names.join(",")).unwrap();
    }
    text
}

fn sync(response: &SyncGroupResponse<'_>) -> String {
    if response.error_code == 0 {
        format!("sync ok {}", assignment(&response.assignment))
    } else {
        format!("sync {}", error(response.error_code))
    }
}

/// One record.
pub(crate) fn record(record: &OffsetsRecord) -> String {
    let key = Key::decode(&record.key).unwrap();
    match (&key, &record.value) {
        (Key::OffsetCommit(key), Some(value)) => {
            let value: OffsetCommitValue<'_> = offsets_topic::decode_value(value).unwrap();
            format!("offset {} {}:{} = {}", key.group, key.topic, key.partition, value.offset)
        }
        (Key::OffsetCommit(key), None) => {
            format!("offset {} {}:{} gone", key.group, key.topic, key.partition)
        }
        (Key::GroupMetadata(key), Some(value)) => {
            let value: GroupMetadataValue<'_> = offsets_topic::decode_value(value).unwrap();
            let mut text = format!("group {} gen={}", key.group, value.generation);
            for member in &value.members {
                write!(text, " [{} {}]", member.member_id, assignment(&member.assignment)).unwrap();
            }
            text
        }
        (Key::GroupMetadata(key), None) => format!("group {} gone", key.group),
        (key, value) => {
            consumer::record(key, value.as_deref()).unwrap_or_else(|| panic!("an unexpected record: {key:?}"))
        }
    }
}

/// A described group.
pub(crate) fn described(group: &DescribedGroup<'_>) -> String {
    let mut text = format!("{} {}", group.group_id, group.group_state);
    if group.error_code != 0 {
        write!(text, " {} ({})", error(group.error_code), group.error_message.as_deref().unwrap_or(""))
            .unwrap();
    }
    writeln!(text, " type={} protocol={}", group.protocol_type, group.protocol_data).unwrap();
    for member in &group.members {
        let instance =
            member.group_instance_id.as_deref().map(|id| format!(" instance={id}")).unwrap_or_default();
        writeln!(
            text,
            "  {}{instance} client={} host={} metadata={} assignment={}",
            member.member_id,
            member.client_id,
            member.client_host,
            bytes(&member.member_metadata),
            assignment(&member.member_assignment),
        )
        .unwrap();
    }
    text
}

/// A listed group.
pub(crate) fn listed(group: &ListedGroup<'_>) -> String {
    format!("{} {} {} type={}\n", group.group_id, group.group_type, group.group_state, group.protocol_type)
}

/// A group's fetched offsets.
pub(crate) fn fetched(group: &OffsetFetchResponseGroup<'_>) -> String {
    let mut text = format!("{} {}\n", group.group_id, error(group.error_code));
    for topic in &group.topics {
        for partition in &topic.partitions {
            write!(text, "  {}:{} {}", topic.name, partition.partition_index, partition.committed_offset)
                .unwrap();
            if partition.error_code != 0 {
                write!(text, " {}", error(partition.error_code)).unwrap();
            }
            let metadata = partition.metadata.as_deref().unwrap_or("null");
            writeln!(text, " epoch={} '{metadata}'", partition.committed_leader_epoch).unwrap();
        }
    }
    text
}
