//! Group configs: the configs that clients set for a consumer group (`DescribeConfigs` of a resource of type GROUP).
//!
//! Owns their table, the server's options that each falls back to and is bounded by, and the check of a change. Kafka's
//! configs of share groups and streams groups are refused by name. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;

use riverrun_coordinator::OwnConfig;

use super::GroupOptions;
use super::alter::ConfigChange;
use super::broker::BrokerConfig;
use super::definition::Kind::Int;
use super::definition::{OptionDef, options};
use super::error::nearest;
use crate::text::shown;

/// Texts of the configs that a group sets for itself, by name.
pub(crate) type GroupOverrides = BTreeMap<String, String>;

options! {
    /// The configs of a consumer group, as far as it sets them for itself.
    struct OwnGroupOptions;

    /// Milliseconds after an assignment before the group gets another one, so that members that come together are assigned
    /// together. Like all group configs it is for groups of the newer protocol (KIP-848).
    assignment_interval_ms: Option<i32> = "consumer.assignment.interval.ms", Int(0, i32::MAX), None;
    /// Milliseconds between heartbeats. A member learns a new value with the answer to its next heartbeat.
    heartbeat_interval_ms: Option<i32> = "consumer.heartbeat.interval.ms", Int(1, i32::MAX), None;
    /// Milliseconds of silence after which a member is removed, from its next heartbeat on.
    session_timeout_ms: Option<i32> = "consumer.session.timeout.ms", Int(1, i32::MAX), None;
}

const ASSIGNMENT_INTERVAL: &str = "consumer.assignment.interval.ms";
const HEARTBEAT_INTERVAL: &str = "consumer.heartbeat.interval.ms";
const SESSION_TIMEOUT: &str = "consumer.session.timeout.ms";

/// The definitions, by name.
pub(super) const DEFINITIONS: &[OptionDef] = OwnGroupOptions::DEFINITIONS;

/// Beginnings of names that Kafka has for a group, and why they are not here.
const REFUSED: &[(&str, &str)] = &[
    ("consumer.assignor.offload.enable", "an assignment that takes long never holds up other groups"),
    ("errors.deadletterqueue.", "share groups are not supported yet"),
    ("share.", "share groups are not supported yet"),
    ("streams.", "streams groups are not supported yet"),
];

/// The server's option that holds where a group sets nothing.
pub(super) fn synonym(name: &str) -> String {
    format!("group.{name}")
}

/// The value of the server's option that holds where a group sets nothing.
fn server_value(groups: &GroupOptions, name: &str) -> i32 {
    match name {
        ASSIGNMENT_INTERVAL => groups.group_consumer_assignment_interval_ms,
        HEARTBEAT_INTERVAL => groups.group_consumer_heartbeat_interval_ms,
        _ => groups.group_consumer_session_timeout_ms,
    }
}

type Limit = (&'static str, i64);

/// The lowest and the highest value that a group may set: the options that say so, and their values. In the order of the
/// definitions.
pub(super) fn bounds(groups: &GroupOptions) -> [[Limit; 2]; 3] {
    [
        [
            (
                "group.consumer.min.assignment.interval.ms",
                groups.group_consumer_min_assignment_interval_ms.into(),
            ),
            (
                "group.consumer.max.assignment.interval.ms",
                groups.group_consumer_max_assignment_interval_ms.into(),
            ),
        ],
        [
            (
                "group.consumer.min.heartbeat.interval.ms",
                groups.group_consumer_min_heartbeat_interval_ms.into(),
            ),
            (
                "group.consumer.max.heartbeat.interval.ms",
                groups.group_consumer_max_heartbeat_interval_ms.into(),
            ),
        ],
        [
            ("group.consumer.min.session.timeout.ms", groups.group_consumer_min_session_timeout_ms.into()),
            ("group.consumer.max.session.timeout.ms", groups.group_consumer_max_session_timeout_ms.into()),
        ],
    ]
}

/// The configs after `changes`, of which there is at most one for each config; or a sentence for the client.
pub(crate) fn alter_group_configs(
    config: &BrokerConfig,
    current: &GroupOverrides,
    changes: &[(String, ConfigChange)],
) -> Result<GroupOverrides, String> {
    let mut altered = current.clone();
    for (name, change) in changes {
        match change {
            ConfigChange::Set(value) => _ = altered.insert(name.clone(), value.trim().to_owned()),
            // A config that a newer version has set and this one does not know can be taken back.
            ConfigChange::Delete => _ = altered.remove(name),
            ConfigChange::Append(_) | ConfigChange::Subtract(_) => {
                definition(name)?;
                return Err(format!("Can't append to or subtract from {}: it is not a list.", shown(name)));
            }
        }
    }
    check_group_configs(config, current, &altered)?;
    Ok(altered)
}

/// Checks the configs `altered` of a group that had `current` until now. Configs that stay as they were are not checked
/// again: they were right once, and must not stand in the way of an unrelated change.
pub(crate) fn check_group_configs(
    config: &BrokerConfig,
    current: &GroupOverrides,
    altered: &GroupOverrides,
) -> Result<(), String> {
    let is_touched = |name: &str| current.get(name) != altered.get(name);
    for (name, text) in altered.iter().filter(|(name, _)| is_touched(name)) {
        let (def, [min, max]) = definition_in(&config.groups, name)?;
        let invalid = |reason| format!("Invalid value {} for configuration {name}: {reason}", shown(text));
        def.check(text).map_err(invalid)?;
        if !text.parse().is_ok_and(|value: i64| (min.1..=max.1).contains(&value)) {
            let (min_name, max_name) = (min.0, max.0);
            let reason = format!("it must be from {} to {} ({min_name}, {max_name})", min.1, max.1);
            return Err(invalid(reason));
        }
    }
    let value = |name| parsed(altered, name).unwrap_or_else(|| server_value(&config.groups, name));
    let (session, heartbeat) = (value(SESSION_TIMEOUT), value(HEARTBEAT_INTERVAL));
    if session <= heartbeat && [SESSION_TIMEOUT, HEARTBEAT_INTERVAL].into_iter().any(is_touched) {
        return Err(format!(
            "{SESSION_TIMEOUT} ({session}) must be greater than {HEARTBEAT_INTERVAL} ({heartbeat})"
        ));
    }
    Ok(())
}

fn definition(name: &str) -> Result<usize, String> {
    if let Some(index) = DEFINITIONS.iter().position(|def| def.name == name) {
        return Ok(index);
    }
    if let Some((_, why)) = REFUSED.iter().find(|(beginning, _)| name.starts_with(beginning)) {
        return Err(format!("The group config {} is not supported: {why}", shown(name)));
    }
    let hint = nearest(name, DEFINITIONS.iter().map(|def| def.name));
    let hint = hint.map_or_else(String::new, |near| format!(" (did you mean {near}?)"));
    Err(format!("Unknown group config name: {}{hint}", shown(name)))
}

fn definition_in(groups: &GroupOptions, name: &str) -> Result<(&'static OptionDef, [Limit; 2]), String> {
    definition(name).map(|index| (&DEFINITIONS[index], bounds(groups)[index]))
}

fn parsed(overrides: &GroupOverrides, name: &str) -> Option<i32> {
    overrides.get(name)?.parse().ok()
}

/// The values that the group's coordinator goes by.
pub(crate) fn own_config(overrides: &GroupOverrides) -> OwnConfig {
    let text = |name: &str| overrides.get(name).map(|text| Cow::Borrowed(text.as_str()));
    // All were checked when they were set.
    OwnGroupOptions::read(&text).map_or_else(
        |_| OwnConfig::default(),
        |own| OwnConfig {
            consumer_session_timeout_ms: own.session_timeout_ms,
            consumer_heartbeat_interval_ms: own.heartbeat_interval_ms,
            consumer_assignment_interval_ms: own.assignment_interval_ms,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::super::broker::definition as server_definition;
    use super::*;

    fn overrides(own: &[(&str, &str)]) -> GroupOverrides {
        own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn set(current: &[(&str, &str)], name: &str, value: &str) -> Result<GroupOverrides, String> {
        let change = ConfigChange::Set(value.to_owned());
        alter_group_configs(&BrokerConfig::default(), &overrides(current), &[(name.to_owned(), change)])
    }

    #[test]
    fn group_configs_fall_back_to_a_server_option_in_their_bounds() {
        let groups = &BrokerConfig::default().groups;
        for (def, [min, max]) in DEFINITIONS.iter().zip(bounds(groups)) {
            let server = server_definition(&synonym(def.name)).expect("an option");
            assert_eq!(
                (server.kind, server.default),
                (def.kind, Some(&*server_value(groups, def.name).to_string()))
            );
            assert!((min.1..=max.1).contains(&server_value(groups, def.name).into()), "{}", def.name);
            let limits = ["min", "max"]
                .map(|limit| def.name.replace("consumer.", &format!("group.consumer.{limit}.")));
            assert_eq!([min.0, max.0], limits.each_ref().map(String::as_str));
        }
    }

    #[test]
    fn coordinator_gets_group_configs_in_the_servers_bounds() {
        let altered = set(&[(HEARTBEAT_INTERVAL, "6000")], SESSION_TIMEOUT, " 50000 ").expect("taken");
        let own = own_config(&altered);
        let expected = OwnConfig {
            consumer_session_timeout_ms: Some(50_000),
            consumer_heartbeat_interval_ms: Some(6_000),
            consumer_assignment_interval_ms: None,
        };
        assert_eq!(own, expected);
        for (name, value, part) in [
            (SESSION_TIMEOUT, "44999", "from 45000 to 60000 (group.consumer.min.session.timeout.ms"),
            (SESSION_TIMEOUT, "60001", "from 45000 to 60000"),
            (HEARTBEAT_INTERVAL, "soon", "a whole number"),
            (HEARTBEAT_INTERVAL, "15001", "from 5000 to 15000"),
            (ASSIGNMENT_INTERVAL, "-1", "a whole number"),
            ("consumer.session.timeout", "1", "did you mean consumer.session.timeout.ms"),
            ("share.session.timeout.ms", "45000", "share groups are not supported"),
            ("streams.num.standby.replicas", "1", "streams groups are not supported"),
            ("nonsense", "1", "Unknown group config name: nonsense"),
        ] {
            let error = set(&[], name, value).expect_err("refused");
            assert!(error.contains(part), "{name}={value}: {error}");
        }
    }

    #[test]
    fn session_must_be_longer_than_the_heartbeat_interval() {
        let pairs = [
            ("group.consumer.min.session.timeout.ms", "1"),
            ("group.consumer.max.heartbeat.interval.ms", "60000"),
        ];
        let config = BrokerConfig::from_pairs(pairs).expect("valid");
        let alter = |current: &[(&str, &str)], name: &str, change| {
            alter_group_configs(&config, &overrides(current), &[(name.to_owned(), change)])
        };
        let set = |value: &str| ConfigChange::Set(value.to_owned());
        for (current, name, change) in [
            (&[] as &[_], SESSION_TIMEOUT, set("5000")),
            (&[], HEARTBEAT_INTERVAL, set("45000")),
            (
                &[(SESSION_TIMEOUT, "50000"), (HEARTBEAT_INTERVAL, "46000")],
                SESSION_TIMEOUT,
                ConfigChange::Delete,
            ),
        ] {
            let error = alter(current, name, change).expect_err("refused");
            assert!(error.contains("must be greater"), "{error}");
        }
        assert!(
            alter(&[(SESSION_TIMEOUT, "4000")], ASSIGNMENT_INTERVAL, set("0")).is_ok(),
            "it was so before"
        );
        assert!(alter(&[(SESSION_TIMEOUT, "4000")], SESSION_TIMEOUT, ConfigChange::Delete).is_ok());
    }

    #[test]
    fn group_config_that_is_no_list_takes_no_items() {
        let alter = |name: &str, change| {
            alter_group_configs(
                &BrokerConfig::default(),
                &GroupOverrides::new(),
                &[(name.to_owned(), change)],
            )
        };
        assert!(alter(SESSION_TIMEOUT, ConfigChange::Append("1".into())).is_err());
        assert!(alter(SESSION_TIMEOUT, ConfigChange::Subtract("1".into())).is_err());
        assert_eq!(alter("nonsense", ConfigChange::Delete), Ok(GroupOverrides::new()));
        assert_eq!(alter(SESSION_TIMEOUT, ConfigChange::Delete), Ok(GroupOverrides::new()));
    }
}
