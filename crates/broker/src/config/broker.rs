//! The whole configuration of a server: all sections, checked one by one and against each other.
//!
//! Guarantees that a [`BrokerConfig`] is complete and consistent, and remembers which options were set and where, as
//! `DescribeConfigs` shows. Refuses unknown names and values that cannot be honoured.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use super::definition::{BadField, OptionDef};
use super::durability::{self, DurabilityOptions};
use super::error::{ConfigError, Origin, nearest};
use super::groups::GroupOptions;
use super::listener::Listener;
use super::network::NetworkOptions;
use super::own_group;
use super::refused;
use super::server::ServerOptions;
use super::topic::{self, TopicOptions, TopicOverrides};
use super::upkeep::UpkeepOptions;
use crate::cordon::Cordon;
use crate::text::shown;
use crate::topic_names::OFFSETS_TOPIC;

/// A part of the documentation: a heading and its options.
pub(crate) struct Section {
    pub(crate) heading: &'static str,
    pub(crate) options: Vec<OptionDef>,
}

/// Every option of the server, in the order of the documentation.
pub(crate) static SECTIONS: LazyLock<Vec<Section>> = LazyLock::new(|| {
    let section = |heading, options: &[OptionDef]| Section { heading, options: options.to_vec() };
    vec![
        section("Server", ServerOptions::DEFINITIONS),
        section("Network", NetworkOptions::DEFINITIONS),
        section("Durability", DurabilityOptions::DEFINITIONS),
        section("Upkeep of logs", UpkeepOptions::DEFINITIONS),
        Section { heading: "Defaults of topics", options: topic::broker_definitions().collect() },
        section("Groups", GroupOptions::DEFINITIONS),
    ]
});

/// All options of the server.
pub(crate) fn definitions() -> impl Iterator<Item = &'static OptionDef> + Clone {
    SECTIONS.iter().flat_map(|section| &section.options)
}

/// The definition of a server option.
pub fn definition(name: &str) -> Option<&'static OptionDef> {
    definitions().find(|def| def.name == name)
}

/// Texts that were set, before they become a [`BrokerConfig`]. A later setting replaces an earlier one.
///
/// Invariants: every key is the name of an option, and every text passes that option's check.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    set: BTreeMap<&'static str, (String, Origin)>,
}

impl Settings {
    /// Sets one option, or says why it cannot be.
    pub fn set(&mut self, key: &str, value: &str, origin: Origin) -> Result<(), ConfigError> {
        let key = key.trim();
        let Some(def) = definition(key) else { return Err(unknown(key, origin)) };
        let value = value.trim();
        match def.check(value) {
            Ok(()) => {
                self.set.insert(def.name, (value.to_owned(), origin));
                Ok(())
            }
            Err(reason) => {
                Err(ConfigError::BadValue { key: key.into(), value: value.into(), origin, reason })
            }
        }
    }

    /// Forgets the text that was set for an option. Returns whether there was one.
    fn unset(&mut self, key: &str) -> bool {
        self.set.remove(key).is_some()
    }

    /// The text that was set for an option.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.set.get(name).map(|(text, _)| text.as_str())
    }

    /// The text that holds for an option: the one that was set, else its default.
    pub(crate) fn text_of(&self, name: &str) -> Option<Cow<'_, str>> {
        let default = || definition(name).and_then(|def| def.default).map(Cow::Borrowed);
        self.get(name).map(Cow::Borrowed).or_else(default)
    }

    fn bad_value(&self, BadField { name, reason }: BadField) -> ConfigError {
        let (value, origin) = self.set.get(name).cloned().unwrap_or_else(|| {
            let default = definition(name).and_then(|def| def.default).unwrap_or("(not set)");
            (default.to_owned(), Origin::Flag)
        });
        ConfigError::BadValue { key: name.to_owned(), value, origin, reason }
    }
}

fn unknown(key: &str, origin: Origin) -> ConfigError {
    if let Some(why) = refused::reason(key) {
        return ConfigError::NotHere { key: key.to_owned(), origin, why };
    }
    let nearest = nearest(key, definitions().map(|def| def.name));
    ConfigError::UnknownKey { key: key.to_owned(), origin, nearest }
}

/// The configuration of a server.
///
/// Invariants: every listener has an advertised address that a client can reach in principle (no wildcard); the
/// limits do not contradict each other.
#[derive(Clone, Debug, PartialEq)]
pub struct BrokerConfig {
    /// The server as a whole.
    pub server: ServerOptions,
    /// Connections.
    pub network: NetworkOptions,
    /// The journal, and what waits in memory for the segments.
    pub durability: DurabilityOptions,
    /// Upkeep of logs.
    pub upkeep: UpkeepOptions,
    /// Groups and offsets.
    pub groups: GroupOptions,
    /// The options of a topic that sets none for itself.
    pub topic_defaults: Arc<TopicOptions>,
    settings: Settings,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self::new(Settings::default()).expect("the defaults are a valid configuration, as a test checks")
    }
}

impl BrokerConfig {
    /// Makes a configuration of `settings`, with the defaults for the rest.
    pub fn new(settings: Settings) -> Result<Self, ConfigError> {
        let config = Self::read(settings)?;
        let conflict = config.conflicts().next();
        conflict.map_or(Ok(config), Err)
    }

    /// The errors that would each stop a start with these settings: values that cannot be read, then contradictions
    /// among the others.
    pub(super) fn errors(mut settings: Settings) -> Vec<ConfigError> {
        let mut errors = Vec::new();
        loop {
            match Self::read(settings.clone()) {
                Ok(config) => {
                    errors.extend(config.conflicts());
                    return errors;
                }
                Err(error) => {
                    let is_taken_out =
                        matches!(&error, ConfigError::BadValue { key, .. } if settings.unset(key));
                    errors.push(error);
                    if !is_taken_out {
                        return errors;
                    }
                }
            }
        }
    }

    fn conflicts(&self) -> impl Iterator<Item = ConfigError> {
        let checks = [Self::check_listeners, Self::check_limits, Self::check_dirs, Self::check_mounts];
        checks.into_iter().filter_map(|check| check(self).err())
    }

    /// Reads each option alone, and does not check one against another.
    pub(super) fn read(settings: Settings) -> Result<Self, ConfigError> {
        let value_of = |name: &str| settings.text_of(name);
        let bad = |field| settings.bad_value(field);
        Ok(Self {
            server: ServerOptions::read(&value_of).map_err(bad)?,
            network: NetworkOptions::read(&value_of).map_err(bad)?,
            durability: DurabilityOptions::read(&value_of).map_err(bad)?,
            upkeep: UpkeepOptions::read(&value_of).map_err(bad)?,
            groups: GroupOptions::read(&value_of).map_err(bad)?,
            topic_defaults: Arc::new(read_topic(&settings, &TopicOverrides::new()).map_err(bad)?),
            settings,
        })
    }

    /// Makes a configuration of `key`, `value` pairs, as a program does that starts a server in its own process.
    pub fn from_pairs<K: AsRef<str>, V: AsRef<str>>(
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self, ConfigError> {
        let mut settings = Settings::default();
        for (key, value) in pairs {
            settings.set(key.as_ref(), value.as_ref(), Origin::Flag)?;
        }
        Self::new(settings)
    }

    /// The options that were set, and where.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The options of the topic of this name with these configs of its own, which were checked when they were set. The default
    /// replaces a value that an older version took and this one does not.
    pub fn topic_options(&self, name: &str, overrides: &TopicOverrides) -> Arc<TopicOptions> {
        let is_offsets = name == OFFSETS_TOPIC;
        if overrides.is_empty() && !is_offsets {
            return Arc::clone(&self.topic_defaults);
        }
        let mut valid = valid(overrides);
        if is_offsets {
            let level = self.groups.offsets_topic_durability.to_string();
            valid.entry(topic::DURABILITY.to_owned()).or_insert(level);
            topic::keep_compacted(&mut valid);
        }
        read_topic(&self.settings, &valid).map_or_else(|_| Arc::clone(&self.topic_defaults), Arc::new)
    }

    /// The directory of the metadata.
    pub(crate) fn meta_dir(&self) -> PathBuf {
        self.server.data_dir.join("meta")
    }

    /// The directories of records: `log.dirs`, else `logs` in the data directory.
    pub fn log_dirs(&self) -> Vec<PathBuf> {
        if self.server.log_dirs.is_empty() {
            vec![self.server.data_dir.join("logs")]
        } else {
            self.server.log_dirs.clone()
        }
    }

    /// The directories of the journals: `journal.dirs`, else `journal` in the data directory.
    pub fn journal_dirs(&self) -> Vec<PathBuf> {
        if self.durability.journal_dirs.is_empty() {
            vec![self.server.data_dir.join("journal")]
        } else {
            self.durability.journal_dirs.clone()
        }
    }

    /// The address that clients of a listener are told.
    pub fn advertised(&self, listener: &str) -> Option<&Listener> {
        let named = |list: &'_ &Listener| list.name == listener;
        let advertised = self.network.advertised_listeners.iter().find(named);
        advertised.or_else(|| self.network.listeners.iter().find(named))
    }

    fn check_listeners(&self) -> Result<(), ConfigError> {
        let network = &self.network;
        if network.listeners.is_empty() {
            return Err(ConfigError::Conflict("listeners is empty: no client could connect".into()));
        }
        check_names_are_distinct("listeners", &network.listeners)?;
        check_ports_are_distinct(&network.listeners)?;
        check_names_are_distinct("advertised.listeners", &network.advertised_listeners)?;
        for advertised in &network.advertised_listeners {
            if !network.listeners.iter().any(|listener| listener.name == advertised.name) {
                let message = format!(
                    "advertised.listeners names {advertised}, but listeners has no {}",
                    advertised.name
                );
                return Err(ConfigError::Conflict(message));
            }
        }
        let mut seen = BTreeSet::new();
        let mut of_ips = network.max_connections_per_ip_overrides.iter();
        if let Some(twice) = of_ips.find(|of_ip| !seen.insert(of_ip.ip)) {
            let message = format!("max.connections.per.ip.overrides names {} twice", twice.ip);
            return Err(ConfigError::Conflict(message));
        }
        for listener in &network.listeners {
            check_is_reachable(&listener.name, self.advertised(&listener.name))?;
        }
        Ok(())
    }

    fn check_limits(&self) -> Result<(), ConfigError> {
        let groups = &self.groups;
        check_order(
            ("group.min.session.timeout.ms", i64::from(groups.group_min_session_timeout_ms)),
            ("group.max.session.timeout.ms", i64::from(groups.group_max_session_timeout_ms)),
        )?;
        check_order(
            (
                "group.consumer.heartbeat.interval.ms",
                i64::from(groups.group_consumer_heartbeat_interval_ms) + 1,
            ),
            ("group.consumer.session.timeout.ms", i64::from(groups.group_consumer_session_timeout_ms)),
        )?;
        for [low, high] in own_group::bounds(groups) {
            check_order(low, high)?;
        }
        if groups.group_consumer_assignors.is_empty() {
            return Err(ConfigError::Conflict(
                "group.consumer.assignors is empty: no group could be assigned".into(),
            ));
        }
        let topics = &self.topic_defaults;
        check_lags(topics.min_compaction_lag_ms, topics.max_compaction_lag_ms).map_err(ConfigError::Conflict)
    }

    fn check_mounts(&self) -> Result<(), ConfigError> {
        let mounts = &self.server.mounts;
        let mut seen = BTreeSet::new();
        if let Some(twice) = mounts.iter().find(|mount| !seen.insert(&mount.topic)) {
            return Err(ConfigError::Conflict(format!("mounts names the topic {} twice", twice.topic)));
        }
        if mounts.len() > MOUNTS_MAX {
            return Err(ConfigError::Conflict(format!("mounts has more than {MOUNTS_MAX} entries")));
        }
        Ok(())
    }

    /// Refuses log dirs, journals and metadata in one another: each has a lock and files of its own, and somebody who moves,
    /// mounts or gives up one of them would not expect another in it.
    fn check_apart(&self, logs: &[PathBuf], journals: &[PathBuf]) -> Result<(), ConfigError> {
        let meta = [self.meta_dir()];
        let kinds = [("log.dirs", logs), ("journal.dirs", journals), ("meta in data.dir", &meta[..])];
        kinds
            .iter()
            .flat_map(|dir| kinds.iter().map(move |other| (*dir, *other)))
            .try_for_each(|(dir, other)| check_none_inside(dir, other))
    }

    fn check_dirs(&self) -> Result<(), ConfigError> {
        let (logs, journals) = (self.log_dirs(), self.journal_dirs());
        for (option, dirs) in [("log.dirs", &logs), ("journal.dirs", &journals)] {
            let distinct: BTreeSet<_> = dirs.iter().collect();
            if distinct.len() < dirs.len() {
                return Err(ConfigError::Conflict(format!("{option} names the same directory twice")));
            }
        }
        self.check_apart(&logs, &journals)?;
        let logs: Vec<_> = logs.iter().map(PathBuf::as_path).collect();
        Cordon::parse(&self.server.cordoned_log_dirs, &logs).map(drop).map_err(ConfigError::Conflict)
    }
}

/// Refuses a directory of `dirs` that lies in one of `others`, or is it.
fn check_none_inside(
    (name, dirs): (&str, &[PathBuf]),
    (other_name, others): (&str, &[PathBuf]),
) -> Result<(), ConfigError> {
    for (dir, other) in dirs.iter().flat_map(|dir| others.iter().map(move |other| (dir, other))) {
        // A directory lies in itself; `check_dirs` has refused a list that names one twice.
        if dir.starts_with(other) && !(name == other_name && dir == other) {
            let (dir, other) = (dir.display(), other.display());
            let message =
                format!("{dir} ({name}) lies in {other} ({other_name}): each needs a directory of its own");
            return Err(ConfigError::Conflict(message));
        }
    }
    Ok(())
}

/// Queues that are mounted at most: a process maps a bounded number of files.
const MOUNTS_MAX: usize = 64;

/// Refuses lags by which a record must be compacted before it may be.
pub(crate) fn check_lags(min_ms: u64, max_ms: u64) -> Result<(), String> {
    if min_ms <= max_ms {
        return Ok(());
    }
    Err(format!("min.compaction.lag.ms ({min_ms}) is above max.compaction.lag.ms ({max_ms})"))
}

fn check_order(low: (&str, i64), high: (&str, i64)) -> Result<(), ConfigError> {
    if low.1 <= high.1 {
        return Ok(());
    }
    Err(ConfigError::Conflict(format!("{} must be below {}, which is {}", low.0, high.0, high.1)))
}

fn check_names_are_distinct(option: &str, listeners: &[Listener]) -> Result<(), ConfigError> {
    let mut seen = BTreeSet::new();
    match listeners.iter().find(|listener| !seen.insert(&listener.name)) {
        Some(twice) => {
            Err(ConfigError::Conflict(format!("{option} names the listener {} twice", twice.name)))
        }
        None => Ok(()),
    }
}

/// Two listeners of one port need an address each: a listener on every interface has them all.
fn check_ports_are_distinct(listeners: &[Listener]) -> Result<(), ConfigError> {
    let collide = |a: &Listener, b: &Listener| {
        let same_host = a.is_wildcard() || b.is_wildcard() || a.host.eq_ignore_ascii_case(&b.host);
        a.port != 0 && a.port == b.port && same_host
    };
    for (index, second) in listeners.iter().enumerate() {
        if let Some(first) = listeners[..index].iter().find(|first| collide(first, second)) {
            let message = format!("listeners has {first} and {second}, which cannot both have the port");
            return Err(ConfigError::Conflict(message));
        }
    }
    Ok(())
}

fn check_is_reachable(name: &str, advertised: Option<&Listener>) -> Result<(), ConfigError> {
    match advertised {
        Some(listener) if !listener.is_wildcard() => Ok(()),
        _ => Err(ConfigError::Conflict(format!(
            "listener {name} binds every interface, so clients must be told an address that they can reach: set \
             advertised.listeners={name}://<host name of this machine>:<port>"
        ))),
    }
}

/// Reads a topic's options from its own configs, the server's and the defaults.
pub(crate) fn read_topic(settings: &Settings, overrides: &TopicOverrides) -> Result<TopicOptions, BadField> {
    let server_text = |name: &str| settings.get(name);
    TopicOptions::read(&|name| topic::effective(topic::definition(name)?, overrides, &server_text))
}

/// Checks the configs that a topic would set for itself, alone and against each other. The error is a whole
/// sentence for the client.
pub fn check_topic_configs(config: &BrokerConfig, overrides: &TopicOverrides) -> Result<(), String> {
    check_altered_configs(config, &TopicOverrides::new(), overrides)
}

/// The same for a topic whose own configs were `current` until now. Configs that stay as they were are not checked again:
/// the server's options or its version may have changed since, and an old value must not stand in the way of an unrelated
/// change.
pub(crate) fn check_altered_configs(
    config: &BrokerConfig,
    current: &TopicOverrides,
    altered: &TopicOverrides,
) -> Result<(), String> {
    let is_touched = |name: &str| current.get(name) != altered.get(name);
    for (name, text) in altered.iter().filter(|(name, _)| is_touched(name)) {
        let Some(def) = topic::definition(name) else {
            let known = TopicOptions::DEFINITIONS.iter().map(|def| def.name);
            let hint =
                nearest(name, known).map_or_else(String::new, |near| format!(" (did you mean {near}?)"));
            return Err(format!("Unknown topic config name: {}{hint}", shown(name)));
        };
        def.check(text)
            .map_err(|reason| format!("Invalid value {} for configuration {name}: {reason}", shown(text)))?;
    }
    let valid = valid(altered);
    let options = read_topic(&config.settings, &valid)
        .map_err(|bad| format!("Invalid value for configuration {}: {}", bad.name, bad.reason))?;
    if ["min.compaction.lag.ms", "max.compaction.lag.ms"].into_iter().any(is_touched) {
        check_lags(options.min_compaction_lag_ms, options.max_compaction_lag_ms)?;
    }
    if [topic::DURABILITY, "flush.messages", "flush.ms"].into_iter().any(is_touched) {
        let own = valid.contains_key(topic::DURABILITY).then_some(options.durability);
        durability::check_level(own, options.flush_messages, options.flush_ms)?;
    }
    Ok(())
}

/// The topic's own configs that this version takes.
fn valid(overrides: &TopicOverrides) -> TopicOverrides {
    let is_valid =
        |name: &str, text: &str| topic::definition(name).is_some_and(|def| def.check(text).is_ok());
    let valid = overrides.iter().filter(|(name, text)| is_valid(name, text));
    valid.map(|(name, text)| (name.clone(), text.clone())).collect()
}

#[cfg(test)]
mod tests;
