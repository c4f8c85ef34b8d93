//! Kafka's error codes: numbers, names, whether a retry can help, and a sentence for people.
//!
//! Owns the table. A code is kept as the number on the wire, so that one from a newer server survives being read and
//! shown.

use std::fmt;

/// An error code as it stands in responses. Zero is success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(pub i16);

/// Whether the same request may succeed when it is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remedy {
    Retry,
    Final,
}

/// The facts about one code.
struct Facts {
    code: i16,
    name: &'static str,
    remedy: Remedy,
    message: &'static str,
}

macro_rules! error_codes {
    ($($code:literal, $name:ident, $remedy:ident, $message:literal;)*) => {
        impl ErrorCode {
            $(
                #[doc = concat!("Code ", stringify!($code), ": ", $message, ".")]
                pub const $name: Self = Self($code);
            )*
        }

        /// Ascending by code and without gaps, from -1.
        const TABLE: &[Facts] = &[
            $(Facts { code: $code, name: stringify!($name), remedy: Remedy::$remedy, message: $message },)*
        ];
    };
}

error_codes! {
    -1, UNKNOWN_SERVER_ERROR, Final, "the server met an error that it has no code for";
    0, NONE, Final, "success";
    1, OFFSET_OUT_OF_RANGE, Final, "the offset is outside the partition's range";
    2, CORRUPT_MESSAGE, Retry, "a record batch is damaged or its checksum is wrong";
    3, UNKNOWN_TOPIC_OR_PARTITION, Retry, "this server has no such topic or partition";
    4, INVALID_FETCH_SIZE, Final, "the fetch size is not valid";
    5, LEADER_NOT_AVAILABLE, Retry, "the partition has no leader for the moment";
    6, NOT_LEADER_OR_FOLLOWER, Retry, "this server does not hold the partition in the role asked for";
    7, REQUEST_TIMED_OUT, Retry, "the request ran out of time";
    8, BROKER_NOT_AVAILABLE, Final, "the broker cannot be reached";
    9, REPLICA_NOT_AVAILABLE, Retry, "the replica is not available";
    10, MESSAGE_TOO_LARGE, Final, "a record batch is larger than the topic accepts";
    11, STALE_CONTROLLER_EPOCH, Final, "a newer controller has taken over";
    12, OFFSET_METADATA_TOO_LARGE, Final, "the text kept with a committed offset is too long";
    13, NETWORK_EXCEPTION, Retry, "the connection broke before an answer came";
    14, COORDINATOR_LOAD_IN_PROGRESS, Retry, "the coordinator is still reading its state";
    15, COORDINATOR_NOT_AVAILABLE, Retry, "there is no coordinator for the moment";
    16, NOT_COORDINATOR, Retry, "another server coordinates this group or transaction";
    17, INVALID_TOPIC_EXCEPTION, Final, "the topic may not be named or used so";
    18, RECORD_LIST_TOO_LARGE, Final, "the request holds more records than a segment can";
    19, NOT_ENOUGH_REPLICAS, Retry, "too few replicas are in sync to accept the write";
    20, NOT_ENOUGH_REPLICAS_AFTER_APPEND, Retry, "the write was made on fewer replicas than wanted";
    21, INVALID_REQUIRED_ACKS, Final, "acks is none of 0, 1 and -1";
    22, ILLEGAL_GENERATION, Final, "the generation is not the current one of the group";
    23, INCONSISTENT_GROUP_PROTOCOL, Final, "the member shares no protocol with the rest of the group";
    24, INVALID_GROUP_ID, Final, "the group id is not valid";
    25, UNKNOWN_MEMBER_ID, Final, "the group has no such member";
    26, INVALID_SESSION_TIMEOUT, Final, "the session timeout is outside the allowed range";
    27, REBALANCE_IN_PROGRESS, Final, "the group is rebalancing: join again";
    28, INVALID_COMMIT_OFFSET_SIZE, Final, "the offset commit is too large";
    29, TOPIC_AUTHORIZATION_FAILED, Final, "access to the topic is denied";
    30, GROUP_AUTHORIZATION_FAILED, Final, "access to the group is denied";
    31, CLUSTER_AUTHORIZATION_FAILED, Final, "access to the cluster is denied";
    32, INVALID_TIMESTAMP, Final, "a timestamp is outside the range that the topic accepts";
    33, UNSUPPORTED_SASL_MECHANISM, Final, "the SASL mechanism is not supported";
    34, ILLEGAL_SASL_STATE, Final, "the request does not fit the state of authentication";
    35, UNSUPPORTED_VERSION, Final, "the version of the request is not supported";
    36, TOPIC_ALREADY_EXISTS, Final, "a topic of this name exists";
    37, INVALID_PARTITIONS, Final, "the number of partitions is not valid";
    38, INVALID_REPLICATION_FACTOR, Final, "the replication factor is below one or above the number of brokers";
    39, INVALID_REPLICA_ASSIGNMENT, Final, "the replica assignment is not valid";
    40, INVALID_CONFIG, Final, "a configuration entry is not valid";
    41, NOT_CONTROLLER, Retry, "this server is not the controller";
    42, INVALID_REQUEST, Final, "the request contradicts itself or the protocol";
    43, UNSUPPORTED_FOR_MESSAGE_FORMAT, Final, "the record format does not support this";
    44, POLICY_VIOLATION, Final, "a policy of the server forbids this";
    45, OUT_OF_ORDER_SEQUENCE_NUMBER, Final, "a sequence number was skipped";
    46, DUPLICATE_SEQUENCE_NUMBER, Final, "the sequence number was used before";
    47, INVALID_PRODUCER_EPOCH, Final, "a producer with a newer epoch has taken over";
    48, INVALID_TXN_STATE, Final, "the transaction is not in a state that allows this";
    49, INVALID_PRODUCER_ID_MAPPING, Final, "the producer id does not belong to the transactional id";
    50, INVALID_TRANSACTION_TIMEOUT, Final, "the transaction timeout is above the allowed maximum";
    51, CONCURRENT_TRANSACTIONS, Retry, "another change of the same transaction is under way";
    52, TRANSACTION_COORDINATOR_FENCED, Final, "a newer transaction coordinator has taken over";
    53, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Final, "access to the transactional id is denied";
    54, SECURITY_DISABLED, Final, "security is not enabled";
    55, OPERATION_NOT_ATTEMPTED, Final, "the operation was not tried, as another one of its batch failed";
    56, KAFKA_STORAGE_ERROR, Retry, "the server cannot use the files of the partition";
    57, LOG_DIR_NOT_FOUND, Final, "the server has no such log directory";
    58, SASL_AUTHENTICATION_FAILED, Final, "authentication failed";
    59, UNKNOWN_PRODUCER_ID, Final, "nothing is known of this producer id";
    60, REASSIGNMENT_IN_PROGRESS, Final, "the partition is already being reassigned";
    61, DELEGATION_TOKEN_AUTH_DISABLED, Final, "delegation tokens are not enabled";
    62, DELEGATION_TOKEN_NOT_FOUND, Final, "there is no such delegation token";
    63, DELEGATION_TOKEN_OWNER_MISMATCH, Final, "the delegation token belongs to another principal";
    64, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, Final, "delegation tokens are not given over this kind of connection";
    65, DELEGATION_TOKEN_AUTHORIZATION_FAILED, Final, "access to the delegation token is denied";
    66, DELEGATION_TOKEN_EXPIRED, Final, "the delegation token has expired";
    67, INVALID_PRINCIPAL_TYPE, Final, "this kind of principal is not supported";
    68, NON_EMPTY_GROUP, Final, "the group still has members";
    69, GROUP_ID_NOT_FOUND, Final, "there is no such group";
    70, FETCH_SESSION_ID_NOT_FOUND, Retry, "the fetch session is gone: start a new one";
    71, INVALID_FETCH_SESSION_EPOCH, Retry, "the fetch session expected another epoch";
    72, LISTENER_NOT_FOUND, Retry, "the leader has no listener of the name used here";
    73, TOPIC_DELETION_DISABLED, Final, "topics may not be deleted";
    74, FENCED_LEADER_EPOCH, Retry, "the leader epoch is older than the current one";
    75, UNKNOWN_LEADER_EPOCH, Retry, "the leader epoch is newer than any known here";
    76, UNSUPPORTED_COMPRESSION_TYPE, Final, "the compression is not supported by this version of the request";
    77, STALE_BROKER_EPOCH, Final, "the broker epoch is out of date";
    78, OFFSET_NOT_AVAILABLE, Retry, "the leader cannot tell its offsets yet";
    79, MEMBER_ID_REQUIRED, Final, "join again with the member id that was given";
    80, PREFERRED_LEADER_NOT_AVAILABLE, Retry, "the preferred leader is not available";
    81, GROUP_MAX_SIZE_REACHED, Final, "the group has as many members as it may";
    82, FENCED_INSTANCE_ID, Final, "another member has taken over this instance id";
    83, ELIGIBLE_LEADERS_NOT_AVAILABLE, Retry, "no replica that could lead is available";
    84, ELECTION_NOT_NEEDED, Retry, "the partition already has the leader wanted";
    85, NO_REASSIGNMENT_IN_PROGRESS, Final, "the partition is not being reassigned";
    86, GROUP_SUBSCRIBED_TO_TOPIC, Final, "the group still reads the topic";
    87, INVALID_RECORD, Final, "a record breaks a rule of its topic or format";
    88, UNSTABLE_OFFSET_COMMIT, Retry, "offsets of an open transaction are pending";
    89, THROTTLING_QUOTA_EXCEEDED, Retry, "a quota is used up";
    90, PRODUCER_FENCED, Final, "a newer producer uses the same transactional id";
    91, RESOURCE_NOT_FOUND, Final, "the resource does not exist";
    92, DUPLICATE_RESOURCE, Final, "the resource is named twice";
    93, UNACCEPTABLE_CREDENTIAL, Final, "the credential does not meet the rules";
    94, INCONSISTENT_VOTER_SET, Final, "the voters differ from those expected";
    95, INVALID_UPDATE_VERSION, Final, "the feature version is not valid";
    96, FEATURE_UPDATE_FAILED, Final, "the features could not be changed";
    97, PRINCIPAL_DESERIALIZATION_FAILURE, Final, "a forwarded principal cannot be read";
    98, SNAPSHOT_NOT_FOUND, Final, "there is no such snapshot";
    99, POSITION_OUT_OF_RANGE, Final, "the position is outside the snapshot";
    100, UNKNOWN_TOPIC_ID, Retry, "this server has no topic of this id";
    101, DUPLICATE_BROKER_REGISTRATION, Final, "a broker of this id is already registered";
    102, BROKER_ID_NOT_REGISTERED, Final, "no broker of this id is registered";
    103, INCONSISTENT_TOPIC_ID, Retry, "the topic id is not the one of this topic";
    104, INCONSISTENT_CLUSTER_ID, Final, "the cluster id is another one";
    105, TRANSACTIONAL_ID_NOT_FOUND, Final, "there is no such transactional id";
    106, FETCH_SESSION_TOPIC_ID_ERROR, Retry, "the fetch session mixes topic names and topic ids";
    107, INELIGIBLE_REPLICA, Final, "the replica may not join those in sync";
    108, NEW_LEADER_ELECTED, Final, "the change of replicas made another broker leader";
    109, OFFSET_MOVED_TO_TIERED_STORAGE, Final, "the offset lies in remote storage only";
    110, FENCED_MEMBER_EPOCH, Final, "the member epoch is out of date: join again";
    111, UNRELEASED_INSTANCE_ID, Final, "the instance id is still held by another member";
    112, UNSUPPORTED_ASSIGNOR, Final, "the group does not know the assignor";
    113, STALE_MEMBER_EPOCH, Final, "the member epoch is out of date: ask for the current one";
    114, MISMATCHED_ENDPOINT_TYPE, Final, "the request went to the wrong kind of endpoint";
    115, UNSUPPORTED_ENDPOINT_TYPE, Final, "this kind of endpoint is not known";
    116, UNKNOWN_CONTROLLER_ID, Final, "there is no controller of this id";
    117, UNKNOWN_SUBSCRIPTION_ID, Final, "the telemetry subscription is out of date";
    118, TELEMETRY_TOO_LARGE, Final, "the telemetry is larger than accepted";
    119, INVALID_REGISTRATION, Final, "the controller refuses the registration";
    120, TRANSACTION_ABORTABLE, Final, "the transaction failed and must be aborted";
    121, INVALID_RECORD_STATE, Final, "the state of the record does not allow this";
    122, SHARE_SESSION_NOT_FOUND, Retry, "the share session is gone";
    123, INVALID_SHARE_SESSION_EPOCH, Retry, "the share session expected another epoch";
    124, FENCED_STATE_EPOCH, Final, "the share state epoch is out of date";
    125, INVALID_VOTER_KEY, Final, "the voter key is not the one expected";
    126, DUPLICATE_VOTER, Final, "the voter is already one";
    127, VOTER_NOT_FOUND, Final, "there is no such voter";
    128, INVALID_REGULAR_EXPRESSION, Final, "the regular expression is not valid";
    129, REBOOTSTRAP_REQUIRED, Final, "the client must begin again from its bootstrap servers";
    130, STREAMS_INVALID_TOPOLOGY, Final, "the topology is not valid";
    131, STREAMS_INVALID_TOPOLOGY_EPOCH, Final, "the topology epoch is not valid";
    132, STREAMS_TOPOLOGY_FENCED, Final, "the topology epoch is out of date";
    133, SHARE_SESSION_LIMIT_REACHED, Retry, "the server has as many share sessions as it may";
}

impl ErrorCode {
    fn facts(self) -> Option<&'static Facts> {
        TABLE.get(usize::try_from(i32::from(self.0) + 1).ok()?)
    }

    /// Kafka's name, for example `NOT_LEADER_OR_FOLLOWER`; `UNKNOWN_CODE` for a number that has none.
    pub fn name(self) -> &'static str {
        self.facts().map_or("UNKNOWN_CODE", |facts| facts.name)
    }

    /// One sentence for people, without capital and full stop.
    pub fn message(self) -> &'static str {
        self.facts().map_or("the server answered with a code that is not known here", |facts| facts.message)
    }

    /// The code of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        TABLE.iter().find(|facts| facts.name == name).map(|facts| Self(facts.code))
    }

    /// Whether Kafka's clients try again after this code. A code that is not known is final.
    pub fn is_retriable(self) -> bool {
        self.facts().is_some_and(|facts| facts.remedy == Remedy::Retry)
    }

    /// Whether the code says success.
    pub fn is_ok(self) -> bool {
        self == Self::NONE
    }

    /// Success as `Ok`, anything else as the code itself.
    pub fn into_result(self) -> Result<(), Self> {
        if self.is_ok() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for ErrorCode {
    /// Name, number and sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.name(), self.0, self.message())
    }
}

impl std::error::Error for ErrorCode {}

impl From<ErrorCode> for i16 {
    fn from(code: ErrorCode) -> Self {
        code.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_found_at_its_number_and_by_its_name() {
        for (code, facts) in (-1_i16..).zip(TABLE) {
            assert_eq!(facts.code, code, "{} is out of place", facts.name);
            assert_eq!(ErrorCode(code).name(), facts.name);
            assert_eq!(ErrorCode::from_name(facts.name), Some(ErrorCode(code)));
        }
        assert_eq!(ErrorCode::SHARE_SESSION_LIMIT_REACHED.name(), "SHARE_SESSION_LIMIT_REACHED");
    }

    #[test]
    fn codes_outside_the_table_are_shown_and_final() {
        for code in [i16::MIN, -2, 134, i16::MAX] {
            assert_eq!(ErrorCode(code).name(), "UNKNOWN_CODE");
            assert!(!ErrorCode(code).is_retriable());
        }
    }

    #[test]
    fn retriable_codes_are_those_that_clients_retry() {
        assert!(ErrorCode::NOT_LEADER_OR_FOLLOWER.is_retriable());
        assert!(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS.is_retriable());
        assert!(!ErrorCode::REBALANCE_IN_PROGRESS.is_retriable());
        assert!(!ErrorCode::NONE.is_retriable());
        assert_eq!(ErrorCode::NONE.into_result(), Ok(()));
    }
}
