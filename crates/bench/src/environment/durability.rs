//! Durability of a topic's acked records: the level wanted and the level reached.
//!
//! Our server names both levels in the topic's configuration. Of any other server only `flush.messages` is known: with
//! 1, each record is synced before its ack; otherwise it lies in the page cache.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use riverrun_client::{Admin, ClientError, ConfigResource};
use serde::Serialize;

/// Our server's names of the level that is wanted, and of the level that holds now.
const WANTED: &str = "durability.wanted";
const REACHED: &str = "durability.reached";
/// Kafka's count of records between two syncs.
const SYNC_INTERVAL: &str = "flush.messages";

/// Durability of a topic's acked records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TopicDurability {
    /// The level that was asked for, 1 to 4, if the server knows levels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<String>,
    /// The level that holds, if the server knows levels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached: Option<String>,
    /// Whether an ack waits for a sync of the disk, by the topic's configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acked_when_synced: Option<bool>,
}

impl TopicDurability {
    /// Asks the server.
    pub async fn of(admin: &Admin, topic: &str) -> Result<Self, ClientError> {
        // Our server returns its levels only to a request that names them.
        let resource = ConfigResource::Topic(topic.to_owned());
        let entries = admin.describe_configs_named(&resource, &[WANTED, REACHED, SYNC_INTERVAL]).await?;
        let values: BTreeMap<_, _> =
            entries.into_iter().filter_map(|entry| Some((entry.name, entry.value?))).collect();
        Ok(Self::from_config(&values))
    }

    /// The weaker of the durabilities at two times; if one is unknown, the other.
    pub fn lesser(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        // Among sync levels, and among async levels, the higher number promises less.
        let worth = |held: &Self| (held.acked_when_synced, Reverse(held.reached.clone()));
        one.into_iter().chain(other).min_by_key(worth)
    }

    fn from_config(values: &BTreeMap<String, String>) -> Self {
        let value = |name: &str| values.get(name).cloned();
        let (wanted, reached) = (value(WANTED), value(REACHED));
        let by_level = |level: &String| matches!(level.as_str(), "1" | "3");
        let acked_when_synced = match &reached {
            Some(level) => Some(by_level(level)),
            None => value(SYNC_INTERVAL).map(|records| records == "1"),
        };
        Self { wanted, reached, acked_when_synced }
    }
}

/// For people, one or two words.
impl fmt::Display for TopicDurability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.reached, self.acked_when_synced) {
            (Some(level), _) => write!(f, "level {level}"),
            (None, Some(true)) => f.write_str("synced"),
            (None, Some(false)) => f.write_str("page cache"),
            (None, None) => f.write_str("not known"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> TopicDurability {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        TopicDurability::from_config(&pairs.iter().map(owned).collect())
    }

    #[test]
    fn reached_level_decides_and_not_the_wanted_one() {
        let ours = of(&[(WANTED, "1"), (REACHED, "4"), (SYNC_INTERVAL, "1")]);
        assert_eq!(
            ours,
            TopicDurability {
                wanted: Some("1".into()),
                reached: Some("4".into()),
                acked_when_synced: Some(false)
            }
        );
    }

    #[test]
    fn weaker_of_two_durabilities_counts() {
        let level = |level| of(&[(WANTED, "1"), (REACHED, level)]);
        let lesser = |one: &TopicDurability, other: &TopicDurability| {
            let one_way = TopicDurability::lesser(Some(one.clone()), Some(other.clone()));
            assert_eq!(one_way, TopicDurability::lesser(Some(other.clone()), Some(one.clone())));
            one_way.expect("one of them").to_string()
        };
        assert_eq!(lesser(&level("1"), &level("4")), "level 4");
        assert_eq!(lesser(&level("2"), &level("3")), "level 2", "3 syncs, and 2 does not");
        assert_eq!(lesser(&level("1"), &level("3")), "level 3");
        let (synced, cached) = (of(&[(SYNC_INTERVAL, "1")]), of(&[(SYNC_INTERVAL, "7")]));
        assert_eq!(lesser(&synced, &cached), "page cache");
        assert_eq!(TopicDurability::lesser(Some(synced.clone()), None), Some(synced));
        assert_eq!(TopicDurability::lesser(None, None), None);
    }

    #[test]
    fn other_server_is_known_by_its_sync_interval() {
        assert_eq!(of(&[(SYNC_INTERVAL, "1")]).acked_when_synced, Some(true));
        assert_eq!(of(&[(SYNC_INTERVAL, "9223372036854775807")]).acked_when_synced, Some(false));
        assert_eq!(of(&[]), TopicDurability::default());
    }
}
