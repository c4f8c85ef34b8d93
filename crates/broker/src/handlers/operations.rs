//! The operations that a client may carry out on a resource, as the bits in the answers of Metadata, `DescribeCluster` and
//! the requests that describe groups (KIP-430).

use crate::context::{Operation, RequestContext, Resource};

/// Kafka's text about access control lists of a server without an authorizer.
pub(crate) const NO_AUTHORIZER: &str = "No Authorizer is configured.";

/// The bits in an answer to a client that did not ask for them.
pub(crate) const NOT_ASKED: i32 = i32::MIN;

const TOPIC: [Operation; 8] = [
    Operation::Read,
    Operation::Write,
    Operation::Create,
    Operation::Delete,
    Operation::Alter,
    Operation::Describe,
    Operation::DescribeConfigs,
    Operation::AlterConfigs,
];

const CLUSTER: [Operation; 7] = [
    Operation::Create,
    Operation::Alter,
    Operation::Describe,
    Operation::ClusterAction,
    Operation::DescribeConfigs,
    Operation::AlterConfigs,
    Operation::IdempotentWrite,
];

const GROUP: [Operation; 5] = [
    Operation::Read,
    Operation::Delete,
    Operation::Describe,
    Operation::DescribeConfigs,
    Operation::AlterConfigs,
];

/// Position of an operation's bit, which is its number in Kafka's `AclOperation`.
fn bit(operation: Operation) -> u32 {
    match operation {
        Operation::Read => 3,
        Operation::Write => 4,
        Operation::Create => 5,
        Operation::Delete => 6,
        Operation::Alter => 7,
        Operation::Describe => 8,
        Operation::ClusterAction => 9,
        Operation::DescribeConfigs => 10,
        Operation::AlterConfigs => 11,
        Operation::IdempotentWrite => 12,
    }
}

fn allowed(context: &RequestContext, operations: &[Operation], resource: Resource<'_>) -> i32 {
    let allowed = operations.iter().filter(|operation| context.authorize(**operation, resource));
    allowed.fold(0, |bits, operation| bits | 1 << bit(*operation))
}

/// The operations that this client may carry out on a topic.
pub(crate) fn on_topic(context: &RequestContext, name: &str) -> i32 {
    allowed(context, &TOPIC, Resource::Topic(name))
}

/// The operations that this client may carry out on a group.
pub(crate) fn on_group(context: &RequestContext, group_id: &str) -> i32 {
    allowed(context, &GROUP, Resource::Group(group_id))
}

/// The operations that this client may carry out on the server.
pub(crate) fn on_cluster(context: &RequestContext) -> i32 {
    allowed(context, &CLUSTER, Resource::Cluster)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_are_those_of_a_kafka_that_allows_everything() {
        let bits = |operations: &[Operation]| operations.iter().fold(0_u32, |bits, of| bits | 1 << bit(*of));
        assert_eq!([bits(&TOPIC), bits(&CLUSTER), bits(&GROUP)], [0xdf8, 0x1fa0, 0xd48]);
    }
}
