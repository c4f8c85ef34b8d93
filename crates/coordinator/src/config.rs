//! The options of groups and offsets, with Kafka's meanings and defaults. The server's option table owns names,
//! ranges and help; here are plain typed values.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

/// `group.consumer.migration.policy`: which protocol a group with members may change to (KIP-848). A group without
/// members changes under any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationPolicy {
    /// Neither. Classic members stay out of a KIP-848 group, too.
    Disabled,
    /// A classic group may become a KIP-848 group, but not the reverse.
    Upgrade,
    /// A KIP-848 group may become a classic one, but not the reverse.
    Downgrade,
    /// Either.
    Bidirectional,
}

impl MigrationPolicy {
    /// The values of the option.
    pub const NAMES: [&str; 4] = ["disabled", "upgrade", "downgrade", "bidirectional"];

    /// Whether a classic group may become a KIP-848 group.
    pub(crate) fn allows_upgrade(self) -> bool {
        matches!(self, Self::Upgrade | Self::Bidirectional)
    }

    /// Whether a KIP-848 group may become a classic one.
    pub(crate) fn allows_downgrade(self) -> bool {
        matches!(self, Self::Downgrade | Self::Bidirectional)
    }
}

/// A text that is not a value of the option.
#[derive(Debug, Error)]
#[error("it is none of {}", MigrationPolicy::NAMES.join(", "))]
pub struct UnknownPolicy;

impl FromStr for MigrationPolicy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let policies = [Self::Disabled, Self::Upgrade, Self::Downgrade, Self::Bidirectional];
        let known = Self::NAMES.iter().position(|known| *known == name);
        known.map(|index| policies[index]).ok_or(UnknownPolicy)
    }
}

/// Options that a group sets for itself; they override the shard's options. Times are in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnConfig {
    /// `consumer.session.timeout.ms`; overrides [`GroupConfig::consumer_session_timeout_ms`].
    pub consumer_session_timeout_ms: Option<i32>,
    /// `consumer.heartbeat.interval.ms`; overrides [`GroupConfig::consumer_heartbeat_interval_ms`].
    pub consumer_heartbeat_interval_ms: Option<i32>,
    /// `consumer.assignment.interval.ms`; overrides [`GroupConfig::consumer_assignment_interval_ms`].
    pub consumer_assignment_interval_ms: Option<i32>,
}

/// The groups' own options as of now. The host implements it over its metadata.
pub trait OwnConfigs: fmt::Debug + Send + Sync {
    /// The options of this group, whether or not it exists.
    fn of(&self, group_id: &str) -> OwnConfig;
}

/// Options of one shard. Times are in milliseconds.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// `group.min.session.timeout.ms`: a classic member may not ask for less.
    pub min_session_timeout_ms: i32,
    /// `group.max.session.timeout.ms`: a classic member may not ask for more.
    pub max_session_timeout_ms: i32,
    /// `group.initial.rebalance.delay.ms`: how long the first rebalance of an empty classic group waits for more
    /// members. Each new member prolongs it, up to the rebalance timeout.
    pub initial_rebalance_delay_ms: i32,
    /// `group.max.size`: upper bound of the members of one classic group, and of the ids that were given out and have
    /// not joined yet.
    pub max_size: usize,
    /// `offset.metadata.max.bytes`: upper bound of the metadata of one committed offset.
    pub offset_metadata_max_bytes: usize,
    /// `offsets.retention.minutes`, in milliseconds: how long offsets outlive their group.
    pub offsets_retention_ms: i64,
    /// `offsets.retention.check.interval.ms`: how often expired offsets are looked for.
    pub offsets_retention_check_interval_ms: i64,
    /// `group.consumer.session.timeout.ms`: a KIP-848 member that is silent for this long is removed.
    pub consumer_session_timeout_ms: i32,
    /// `group.consumer.heartbeat.interval.ms`: told to KIP-848 members.
    pub consumer_heartbeat_interval_ms: i32,
    /// `group.consumer.max.size`: upper bound of the members of one KIP-848 group.
    pub consumer_max_size: usize,
    /// `group.consumer.assignment.interval.ms`: a KIP-848 group gets no new assignment within this time of the last,
    /// so that members that come together are assigned together.
    pub consumer_assignment_interval_ms: i32,
    /// `group.consumer.migration.policy`: whether groups change their protocol while members are in them.
    pub consumer_migration_policy: MigrationPolicy,
    /// `group.consumer.assignors`: server-side assignors that members may ask for; the first is the default.
    pub consumer_assignors: Vec<String>,
    /// Upper bound of the groups in one shard. A further one replaces the oldest group without a member that has
    /// joined; without such a group it is refused with `GROUP_MAX_SIZE_REACHED`. Kafka has no such bound.
    pub groups_max: usize,
    /// Upper bound of the committed offsets of one group, so that no single group fills the server's memory. Kafka
    /// has no such bound.
    pub group_offsets_max: usize,
    /// Upper bound of the subscriptions of all members of one group, in bytes. Kafka's bound is the size of the batch
    /// that the group's record must fit into, and so is this. The records of a change of protocol together have no
    /// more, so that the log has all of them or none.
    pub group_metadata_max_bytes: usize,
    /// The groups' own options; `None` if there are none. They are read at each heartbeat.
    pub own: Option<Arc<dyn OwnConfigs>>,
}

impl GroupConfig {
    /// The options that hold for this group.
    pub(crate) fn of_group(&self, group_id: &str) -> Cow<'_, Self> {
        let own = self.own.as_ref().map_or_else(OwnConfig::default, |own| own.of(group_id));
        if own == OwnConfig::default() {
            return Cow::Borrowed(self);
        }
        let OwnConfig {
            consumer_session_timeout_ms: session,
            consumer_heartbeat_interval_ms: heartbeat,
            consumer_assignment_interval_ms: assignment,
        } = own;
        Cow::Owned(Self {
            consumer_session_timeout_ms: session.unwrap_or(self.consumer_session_timeout_ms),
            consumer_heartbeat_interval_ms: heartbeat.unwrap_or(self.consumer_heartbeat_interval_ms),
            consumer_assignment_interval_ms: assignment.unwrap_or(self.consumer_assignment_interval_ms),
            ..self.clone()
        })
    }
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self {
            min_session_timeout_ms: 6_000,
            max_session_timeout_ms: 1_800_000,
            initial_rebalance_delay_ms: 3_000,
            max_size: 10_000,
            offset_metadata_max_bytes: 4_096,
            offsets_retention_ms: 7 * 24 * 60 * 60 * 1_000,
            offsets_retention_check_interval_ms: 600_000,
            consumer_session_timeout_ms: 45_000,
            consumer_heartbeat_interval_ms: 5_000,
            consumer_max_size: 10_000,
            consumer_assignment_interval_ms: 1_000,
            consumer_migration_policy: MigrationPolicy::Bidirectional,
            consumer_assignors: vec!["uniform".to_owned(), "range".to_owned()],
            groups_max: 10_000,
            group_offsets_max: 1_000_000,
            group_metadata_max_bytes: 1_000_000,
            own: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_allows_what_its_name_says() {
        let allowed = MigrationPolicy::NAMES.map(|name| {
            let policy: MigrationPolicy = name.parse().unwrap();
            (policy.allows_upgrade(), policy.allows_downgrade())
        });
        assert_eq!(allowed, [(false, false), (true, false), (false, true), (true, true)]);
        assert!("sideways".parse::<MigrationPolicy>().is_err());
    }
}
