//! KIP-848 in scripts: its heartbeat, its records, its description.
//!
//! Partitions stand as `NUMBER:PARTITION+PARTITION`; the number is the order in which topics were made. The epochs at
//! which partitions were assigned follow behind `@`.

use std::fmt::Write as _;

use riverrun_protocol::consumer_group_describe_response::{Assignment, DescribedGroup};
use riverrun_protocol::consumer_group_heartbeat_request::TopicPartitions;
use riverrun_protocol::offsets_topic::consumer_group_current_member_assignment_value::TopicPartitions as Held;
use riverrun_protocol::offsets_topic::{
    ConsumerGroupCurrentMemberAssignmentValue, ConsumerGroupMemberMetadataValue, ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue, ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue, Key, decode_value,
};
use riverrun_protocol::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, Str};
use riverrun_types::TopicId;

use crate::show;
use crate::topics::Topics;
use crate::world::Args;

/// The heartbeat of a `consumer` command. It has all fields if it joins, or with `full=yes`.
pub(crate) fn request<'a>(args: &Args<'a>, topics: &Topics) -> ConsumerGroupHeartbeatRequest<'a> {
    let epoch = args.number("epoch", 0);
    let is_full = epoch == 0 || args.text("full").is_some();
    let names = |text: &'a str| text.split('+').filter(|name| !name.is_empty()).map(Into::into).collect();
    let owned = args.text("owned").map(|text| owned(text, topics));
    ConsumerGroupHeartbeatRequest {
        group_id: args.plain.first().copied().unwrap_or_default().into(),
        member_id: args.member().into(),
        member_epoch: epoch,
        instance_id: args.instance().map(Into::into),
        rack_id: args.text("rack").map(Into::into),
        rebalance_timeout_ms: args.number("timeout", if is_full { 60_000 } else { -1 }),
        subscribed_topic_names: args.text("topics").map(names),
        subscribed_topic_regex: args.text("regex").map(Into::into),
        server_assignor: args.text("assignor").map(Into::into),
        topic_partitions: owned.or_else(|| is_full.then(Vec::new)),
    }
}

fn owned(text: &str, topics: &Topics) -> Vec<TopicPartitions> {
    use riverrun_coordinator::TopicMetadata as _;
    let place = |text: &str| {
        let (name, partition) = text.split_once(':').unwrap();
        TopicPartitions {
            topic_id: topics.topic_id(name).unwrap(),
            partitions: vec![partition.parse().unwrap()],
        }
    };
    text.split('+').filter(|text| !text.is_empty()).map(place).collect()
}

/// The answer to a heartbeat; errors with their texts.
pub(crate) fn response(response: &ConsumerGroupHeartbeatResponse<'_>) -> String {
    let mut text = format!("consumer {}", show::error(response.error_code));
    if response.error_code != 0 {
        return format!("{text} ({})", response.error_message.as_deref().unwrap_or_default());
    }
    let member = response.member_id.as_deref().unwrap_or("none");
    write!(text, " member={member} epoch={}", response.member_epoch).unwrap();
    if let Some(assignment) = &response.assignment {
        let held = assignment.topic_partitions.iter();
        write!(text, " assigned={}", places(held.map(|it| (it.topic_id, &it.partitions[..])))).unwrap();
    }
    text
}

fn number(topic: TopicId) -> u8 {
    topic.0[0]
}

fn places<'a>(held: impl Iterator<Item = (TopicId, &'a [i32])>) -> String {
    let topic = |(topic, partitions): (TopicId, &[i32])| {
        let partitions: Vec<String> = partitions.iter().map(ToString::to_string).collect();
        format!("{}:{}", number(topic), partitions.join("+"))
    };
    format!("[{}]", held.map(topic).collect::<Vec<_>>().join(" "))
}

/// The record of a consumer group, or `None` if it is of another kind.
pub(crate) fn record(key: &Key<'_>, value: Option<&[u8]>) -> Option<String> {
    let (what, group, of) = match key {
        Key::ConsumerGroupMetadata(key) => ("epoch", &key.group_id, None),
        Key::ConsumerGroupMemberMetadata(key) => ("member", &key.group_id, Some(&key.member_id)),
        Key::ConsumerGroupTargetAssignmentMetadata(key) => ("target-epoch", &key.group_id, None),
        Key::ConsumerGroupTargetAssignmentMember(key) => ("target", &key.group_id, Some(&key.member_id)),
        Key::ConsumerGroupCurrentMemberAssignment(key) => ("current", &key.group_id, Some(&key.member_id)),
        Key::ConsumerGroupRegularExpression(key) => ("regex", &key.group_id, Some(&key.regular_expression)),
        _ => return None,
    };
    let value = value.map_or_else(|| "gone".to_owned(), |value| decoded(key, value));
    Some(format!("{what} {group} {}{}{value}", of.map_or("", |of| of), if of.is_some() { " " } else { "" }))
}

fn decoded(key: &Key<'_>, value: &[u8]) -> String {
    match key {
        Key::ConsumerGroupMetadata(_) => {
            let value: ConsumerGroupMetadataValue = decode_value(value).unwrap();
            format!("{} hash={}", value.epoch, if value.metadata_hash == 0 { "unknown" } else { "set" })
        }
        Key::ConsumerGroupMemberMetadata(_) => member(&decode_value(value).unwrap()),
        Key::ConsumerGroupTargetAssignmentMetadata(_) => {
            let value: ConsumerGroupTargetAssignmentMetadataValue = decode_value(value).unwrap();
            format!("{} at={}", value.assignment_epoch, value.assignment_timestamp)
        }
        Key::ConsumerGroupTargetAssignmentMember(_) => {
            let value: ConsumerGroupTargetAssignmentMemberValue = decode_value(value).unwrap();
            places(value.topic_partitions.iter().map(|it| (it.topic_id, &it.partitions[..])))
        }
        Key::ConsumerGroupCurrentMemberAssignment(_) => current(&decode_value(value).unwrap()),
        _ => {
            let value: ConsumerGroupRegularExpressionValue<'_> = decode_value(value).unwrap();
            format!("[{}] version={} at={}", value.topics.join(" "), value.version, value.timestamp)
        }
    }
}

fn member(value: &ConsumerGroupMemberMetadataValue<'_>) -> String {
    let mut text = format!("[{}]", value.subscribed_topic_names.join(" "));
    let optional = [
        ("regex", &value.subscribed_topic_regex),
        ("instance", &value.instance_id),
        ("rack", &value.rack_id),
        ("assignor", &value.server_assignor),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            write!(text, " {name}={value}").unwrap();
        }
    }
    write!(text, " timeout={}", value.rebalance_timeout_ms).unwrap();
    if let Some(classic) = &value.classic_member_metadata {
        let names: Vec<_> = classic.supported_protocols.iter().map(|protocol| &*protocol.name).collect();
        write!(text, " classic={} session={}", names.join(","), classic.session_timeout_ms).unwrap();
    }
    text
}

fn current(value: &ConsumerGroupCurrentMemberAssignmentValue) -> String {
    let state = ["stable", "unrevoked", "unreleased"][usize::try_from(value.state).unwrap()];
    let assigned = with_epochs(&value.assigned_partitions);
    let mut text =
        format!("epoch={} previous={} {state} {assigned}", value.member_epoch, value.previous_member_epoch);
    if !value.partitions_pending_revocation.is_empty() {
        write!(text, " revoking={}", with_epochs(&value.partitions_pending_revocation)).unwrap();
    }
    text
}

fn with_epochs(held: &[Held]) -> String {
    let topic = |held: &Held| {
        let epochs = held.assignment_epochs.as_deref().unwrap_or_default();
        let each: Vec<String> =
            held.partitions.iter().zip(epochs).map(|(index, epoch)| format!("{index}@{epoch}")).collect();
        format!("{}:{}", number(held.topic_id), each.join("+"))
    };
    format!("[{}]", held.iter().map(topic).collect::<Vec<_>>().join(" "))
}

/// A described group: a line for itself, and one for each member.
pub(crate) fn described(group: &DescribedGroup<'_>) -> String {
    if group.error_code != 0 {
        let message = group.error_message.as_deref().unwrap_or_default();
        return format!("{} {} ({message})\n", group.group_id, show::error(group.error_code));
    }
    let mut text = format!(
        "{} {} epoch={} assignment={} assignor={}\n",
        group.group_id, group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name
    );
    for member in &group.members {
        let none = Str::Borrowed("none");
        writeln!(
            text,
            "  {} epoch={} instance={} client={} host={} topics=[{}] regex={} assigned={} target={} type={}",
            member.member_id,
            member.member_epoch,
            member.instance_id.as_ref().unwrap_or(&none),
            member.client_id,
            member.client_host,
            member.subscribed_topic_names.join(" "),
            member.subscribed_topic_regex.as_ref().unwrap_or(&none),
            named(&member.assignment),
            named(&member.target_assignment),
            member.member_type,
        )
        .unwrap();
    }
    text
}

fn named(assignment: &Assignment<'_>) -> String {
    let topics = assignment.topic_partitions.iter();
    let topics =
        topics.map(|topic| format!("{}:{:?}", topic.topic_name, topic.partitions).replace(", ", "+"));
    format!("[{}]", topics.collect::<Vec<_>>().join(" "))
}
