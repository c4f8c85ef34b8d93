//! Changes to a topic's own configs, as `IncrementalAlterConfigs` asks for them (KIP-339), and which of the server's
//! options can be changed while it runs.
//!
//! Pure: configs and changes in, checked configs out, or a sentence for the client that says why not.

use super::broker::{BrokerConfig, check_altered_configs};
use super::definition::{Kind, split_list};
use super::server::CORDONED_LOG_DIRS;
use super::topic::{self, TopicOverrides};
use crate::text::shown;

/// Items of a list at most.
const ITEMS_MAX: usize = 1000;

/// Whether clients can change an option of the server while it runs.
pub(crate) fn is_dynamic(name: &str) -> bool {
    name == CORDONED_LOG_DIRS
}

/// The items of a list that a client gives: lists are short, and a long one is looked at no further.
pub(crate) fn list_items(list: &str) -> Result<Vec<&str>, String> {
    checked_items(list).map(split_list)
}

/// A change to one config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigChange {
    /// Sets the config to this value.
    Set(String),
    /// Removes the topic's own value.
    Delete,
    /// Adds these items to the list that holds now.
    Append(String),
    /// Takes these items out of the list that holds now.
    Subtract(String),
}

/// The configs after `changes`, of which there is at most one for each config. If a changed config is invalid, alone or
/// against the others, nothing is changed.
pub fn alter_topic_configs(
    config: &BrokerConfig,
    current: &TopicOverrides,
    changes: &[(String, ConfigChange)],
) -> Result<TopicOverrides, String> {
    let mut altered = current.clone();
    for (name, change) in changes {
        let value = match change {
            ConfigChange::Set(value) => Some(value.trim().to_owned()),
            ConfigChange::Delete => None,
            ConfigChange::Append(items) => {
                Some(with_items(&list(config, current, name)?, checked_items(items)?))
            }
            ConfigChange::Subtract(items) => {
                Some(without_items(&list(config, current, name)?, checked_items(items)?))
            }
        };
        match value {
            Some(value) => _ = altered.insert(name.clone(), value),
            None => _ = altered.remove(name),
        }
    }
    check_altered_configs(config, current, &altered)?;
    Ok(altered)
}

/// The list that holds now for a config: the topic's own, else the value that it falls back to.
fn list(config: &BrokerConfig, current: &TopicOverrides, name: &str) -> Result<String, String> {
    let def = topic::definition(name).filter(|def| matches!(def.kind, Kind::List(_) | Kind::Choices(_)));
    let def =
        def.ok_or_else(|| format!("Can't append to or subtract from {}: it is not a list.", shown(name)))?;
    let server_text = |name: &str| config.settings().get(name);
    Ok(topic::effective(def, current, &server_text).unwrap_or_default().into_owned())
}

/// Lists are short; a long one is looked at no further.
fn checked_items(items: &str) -> Result<&str, String> {
    let is_short = items.bytes().filter(|byte| *byte == b',').count() < ITEMS_MAX;
    if is_short { Ok(items) } else { Err(format!("A list has at most {ITEMS_MAX} items.")) }
}

fn with_items(list: &str, items: &str) -> String {
    let mut all = split_list(list);
    for item in split_list(items) {
        if !all.contains(&item) {
            all.push(item);
        }
    }
    all.join(",")
}

fn without_items(list: &str, items: &str) -> String {
    let gone = split_list(items);
    let kept: Vec<_> = split_list(list).into_iter().filter(|item| !gone.contains(item)).collect();
    kept.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alter(current: &[(&str, &str)], changes: &[(&str, ConfigChange)]) -> Result<Vec<String>, String> {
        let current = current.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let changes: Vec<_> = changes.iter().map(|(k, c)| ((*k).to_owned(), c.clone())).collect();
        let altered = alter_topic_configs(&BrokerConfig::default(), &current, &changes)?;
        Ok(altered.iter().map(|(name, value)| format!("{name}={value}")).collect())
    }

    fn set(value: &str) -> ConfigChange {
        ConfigChange::Set(value.to_owned())
    }

    #[test]
    fn configs_are_set_and_deleted() {
        let current = [("retention.ms", "1"), ("segment.ms", "2")];
        let changes =
            [("retention.ms", set("5")), ("segment.ms", ConfigChange::Delete), ("retention.bytes", set("7"))];
        assert_eq!(alter(&current, &changes), Ok(vec!["retention.bytes=7".into(), "retention.ms=5".into()]));
        assert_eq!(alter(&[], &[("retention.ms", ConfigChange::Delete)]), Ok(vec![]));
    }

    #[test]
    fn lists_grow_and_shrink_from_what_holds_now() {
        let append = |items: &str| ConfigChange::Append(items.to_owned());
        let subtract = |items: &str| ConfigChange::Subtract(items.to_owned());
        let policy = |current: &[(&str, &str)], change| alter(current, &[("cleanup.policy", change)]);
        assert_eq!(policy(&[], append("compact")), Ok(vec!["cleanup.policy=delete,compact".into()]));
        assert_eq!(policy(&[], append("delete")), Ok(vec!["cleanup.policy=delete".into()]));
        let both = [("cleanup.policy", "compact,delete")];
        assert_eq!(policy(&both, subtract("delete")), Ok(vec!["cleanup.policy=compact".into()]));
        assert_eq!(policy(&both, subtract("delete,compact")), Ok(vec!["cleanup.policy=".into()]));
    }

    #[test]
    fn untouched_configs_do_not_stand_in_the_way_of_a_change() {
        let config = BrokerConfig::from_pairs([("log.cleaner.max.compaction.lag.ms", "100")]).expect("valid");
        let current = [
            ("min.compaction.lag.ms", "1000"),
            ("flush.messages", "1"),
            ("durability", "4"),
            ("segment.ms", "0"),
            ("gone.with.the.wind", "1"),
        ];
        let current: TopicOverrides = current.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let change =
            |name: &str, change| alter_topic_configs(&config, &current, &[(name.to_owned(), change)]);
        for (name, value) in [("retention.ms", "5"), ("durability", "4"), ("durability", "1")] {
            let altered = change(name, set(value)).expect("taken");
            assert_eq!(altered.get(name).map(String::as_str), Some(value));
        }
        assert!(change("flush.messages", ConfigChange::Delete).is_ok());
        for (name, value, part) in [
            ("durability", "2", "flush.messages=1"),
            ("flush.messages", "2", "durability=4"),
            ("flush.ms", "2", "durability=4"),
            ("min.compaction.lag.ms", "999", "above"),
            ("segment.ms", "-1", "segment.ms"),
        ] {
            let error = change(name, set(value)).expect_err("refused");
            assert!(error.contains(part), "{name}={value}: {error}");
        }
    }

    #[test]
    fn invalid_changes_are_refused_with_the_reason() {
        for (changes, part) in [
            (&[("retention.ms", ConfigChange::Append("1".into()))] as &[_], "not a list"),
            (&[("retention.ms", set("-2"))], "Invalid value -2"),
            (&[("nonsense", set("1"))], "Unknown topic config name: nonsense"),
            (&[("cleanup.policy", ConfigChange::Append("truncate".into()))], "cleanup.policy"),
        ] {
            let error = alter(&[], changes).expect_err("refused");
            assert!(error.contains(part), "{changes:?}: {error}");
        }
    }
}
