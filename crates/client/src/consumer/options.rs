//! What a consumer can be told.

use std::time::Duration;

use riverrun_types::{Offset, TimestampMs};

use super::group::Assignor;
use crate::cluster::ClusterOptions;
use crate::error::ClientError;
use crate::list_offsets::{Isolation, OffsetSpec};

/// How the members of a group agree on who reads what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupProtocol {
    /// One member computes the assignment; everybody joins again when it changes.
    #[default]
    Classic,
    /// The server computes the assignment and moves partitions one by one (KIP-848).
    Consumer,
}

/// Where to begin where no offset is committed, or where the position is no longer there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OffsetReset {
    /// With the first record that is kept.
    Earliest,
    /// With the next record that is written.
    #[default]
    Latest,
    /// Nowhere: [`poll`](super::Consumer::poll) fails.
    Error,
}

impl OffsetReset {
    pub(super) fn spec(self) -> Option<OffsetSpec> {
        match self {
            Self::Earliest => Some(OffsetSpec::Earliest),
            Self::Latest => Some(OffsetSpec::Latest),
            Self::Error => None,
        }
    }
}

/// Where to begin to read a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// With the first record that is kept.
    Earliest,
    /// With the next record that is written.
    Latest,
    /// With this offset.
    Offset(Offset),
    /// With the first record of at least this timestamp, or the next that is written if there is none.
    Timestamp(TimestampMs),
    /// With the group's committed offset, or by [`OffsetReset`] if there is none.
    Committed,
}

/// How a consumer reads.
#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    /// The servers.
    pub cluster: ClusterOptions,
    /// The group to commit to, and to share topics with.
    pub group: Option<String>,
    /// How the group agrees on who reads what.
    pub group_protocol: GroupProtocol,
    /// Classic protocol: ways to assign that this member offers, the best first. The group rebalances
    /// cooperatively if all of them can.
    pub assignors: Vec<Assignor>,
    /// KIP-848: the server's assignor; none for its default.
    pub server_assignor: Option<String>,
    /// Name of this member that outlives it (static membership): it does not leave the group when it ends.
    pub instance_id: Option<String>,
    /// Classic protocol: silence after which the group takes a member for dead.
    pub session_timeout: Duration,
    /// Classic protocol: time between signs of life. With KIP-848 the server says it.
    pub heartbeat_interval: Duration,
    /// Time that a member has to give up its partitions in a rebalance, and so to call `poll` again.
    pub rebalance_timeout: Duration,
    /// Time between commits of what [`poll`](super::Consumer::poll) has returned; none to commit only on demand.
    pub auto_commit_interval: Option<Duration>,
    /// Where to begin where no offset is committed.
    pub offset_reset: OffsetReset,
    /// Bytes that the server waits for before it answers a fetch.
    pub fetch_min_bytes: i32,
    /// Bytes of one answer at most, apart from a first batch that is larger.
    pub fetch_max_bytes: i32,
    /// Bytes of one partition in one answer at most, apart from a first batch that is larger.
    pub partition_max_bytes: i32,
    /// How long the server waits for `fetch_min_bytes`.
    pub fetch_wait_max: Duration,
    /// Which records are seen.
    pub isolation: Isolation,
    /// Records at which [`poll`](super::Consumer::poll) takes no further batch; so it returns at most one batch more.
    pub poll_records: usize,
}

impl ConsumerOptions {
    /// Defaults, without a group.
    pub fn new(cluster: ClusterOptions) -> Self {
        Self {
            cluster,
            group: None,
            group_protocol: GroupProtocol::default(),
            assignors: vec![Assignor::Range],
            server_assignor: None,
            instance_id: None,
            session_timeout: Duration::from_secs(45),
            heartbeat_interval: Duration::from_secs(3),
            rebalance_timeout: Duration::from_mins(5),
            auto_commit_interval: Some(Duration::from_secs(5)),
            offset_reset: OffsetReset::default(),
            fetch_min_bytes: 1,
            fetch_max_bytes: 16 * 1024 * 1024,
            partition_max_bytes: 1024 * 1024,
            fetch_wait_max: Duration::from_millis(500),
            isolation: Isolation::default(),
            poll_records: 5000,
        }
    }

    pub(super) fn check(&self) -> Result<(), ClientError> {
        let invalid = |text: &str| Err(ClientError::Invalid(text.to_owned()));
        if self.group.as_ref().is_some_and(String::is_empty) {
            return invalid("a group's name is not empty");
        }
        if self.assignors.is_empty() && self.group_protocol == GroupProtocol::Classic {
            return invalid("the classic protocol needs an assignor");
        }
        if self.fetch_max_bytes < 1 || self.partition_max_bytes < 1 || self.fetch_min_bytes < 0 {
            return invalid(
                "fetch_max_bytes and partition_max_bytes are at least 1, fetch_min_bytes at least 0",
            );
        }
        if self.poll_records == 0 || self.cluster.in_flight_max == 0 {
            return invalid("poll_records and in_flight_max are at least 1");
        }
        if self.heartbeat_interval.is_zero() || self.heartbeat_interval >= self.session_timeout {
            return invalid("heartbeat_interval lies between 0 and session_timeout");
        }
        Ok(())
    }
}
