//! Configuration as clients see it: the entries of `DescribeConfigs` and `CreateTopics`.
//!
//! Pure: the configuration and a topic's own configs in, entries out. The handlers turn them into responses.

use std::borrow::Cow;
use std::collections::BTreeMap;

use riverrun_queue::Retention;
use riverrun_records::TimestampType;
use riverrun_types::DurabilityLevel;

use super::alter::is_dynamic;
use super::broker::{BrokerConfig, definition, definitions};
use super::definition::{Kind, OptionDef};
use super::own_group::{self, GroupOverrides};
use super::topic::{self, TopicOptions, TopicOverrides};
use crate::topic_names::OFFSETS_TOPIC;

/// The source of a value, with Kafka's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// The topic's own.
    Topic = 1,
    /// Set for this server by a client.
    DynamicServer = 2,
    /// Set for this server in its file, environment or flags.
    Server = 4,
    /// Nobody set it.
    Default = 5,
    /// The group's own.
    Group = 8,
}

/// One value that an option has or would fall back to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigSynonym {
    /// The option that the value was set for.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// The source of this value.
    pub source: ConfigSource,
}

/// All that a client may learn of one option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    /// The option's name.
    pub name: &'static str,
    /// The value that holds; `None` where it is not set and has no default.
    pub value: Option<String>,
    /// Whether a client cannot change it while the server runs.
    pub is_read_only: bool,
    /// The source of the value.
    pub source: ConfigSource,
    /// The values that were set, the one that holds in front, the default at the end.
    pub synonyms: Vec<ConfigSynonym>,
    /// Kafka's number of the type.
    pub type_code: i8,
    /// The description, for people.
    pub documentation: String,
}

impl Kind {
    /// Kafka's number of the type in `DescribeConfigs` (`ConfigType` in its clients).
    fn type_code(&self) -> i8 {
        match self {
            Self::Bool => 1,
            Self::Choice(_) | Self::Text(_) => 2,
            Self::Int(..) => 3,
            Self::Long(..) => 5,
            Self::Double(..) => 6,
            Self::Choices(_) | Self::List(_) => 7,
        }
    }
}

/// The configs of the topic of this name, in the order of their names.
pub fn describe_topic(config: &BrokerConfig, name: &str, overrides: &TopicOverrides) -> Vec<ConfigEntry> {
    if name == OFFSETS_TOPIC {
        return describe_offsets(config, overrides.clone());
    }
    TopicOptions::DEFINITIONS.iter().map(|def| topic_entry(config, overrides, def)).collect()
}

/// The configs of the topic of group offsets, with the level and the policy that hold.
fn describe_offsets(config: &BrokerConfig, mut overrides: TopicOverrides) -> Vec<ConfigEntry> {
    topic::keep_compacted(&mut overrides);
    let entry = |def: &'static OptionDef| match def.name {
        topic::DURABILITY => offsets_level(config, &overrides, def),
        _ => topic_entry(config, &overrides, def),
    };
    TopicOptions::DEFINITIONS.iter().map(entry).collect()
}

/// The facts about a mounted queue that its topic's configs show.
#[derive(Clone, Debug)]
pub struct MountedTopic {
    /// The queue's directory.
    pub dir: String,
    /// Bytes of its segments.
    pub segment_bytes: u64,
    /// Readers see only what a sync has covered.
    pub synced_only: bool,
    /// The facts for clients that produce to it, if they may.
    pub writes: Option<MountedWrites>,
}

/// The facts for clients that produce to a mounted queue.
#[derive(Clone, Copy, Debug)]
pub struct MountedWrites {
    /// The level of acked records.
    pub level: DurabilityLevel,
    /// Bytes of a batch at most.
    pub batch_bytes_max: u64,
    /// The clock of the records' timestamps.
    pub timestamps: TimestampType,
    /// The limits beyond which this server removes old records.
    pub retention: Retention,
}

/// The configs of a mounted queue's topic, in the order of their names. A client can change none of them.
pub fn describe_mounted(mounted: &MountedTopic) -> Vec<ConfigEntry> {
    let of_queue = |name: &'static str, value: String| {
        let def = topic::definition(name).expect("a row of the table of topics");
        entry(def, Some(value), Vec::new(), true)
    };
    let timestamps = match mounted.writes.map(|writes| writes.timestamps) {
        Some(TimestampType::LogAppendTime) => "LogAppendTime",
        Some(TimestampType::CreateTime) | None => "CreateTime",
    };
    let mut entries = vec![
        of_queue("cleanup.policy", "delete".to_owned()),
        of_queue("compression.type", "producer".to_owned()),
        of_queue("message.timestamp.type", timestamps.to_owned()),
        fixed(
            "mount.directory",
            Kind::Text("a path"),
            mounted.dir.clone(),
            "Directory of the queue on the server's machine.",
        ),
        fixed(
            "mount.synced.only",
            Kind::Bool,
            mounted.synced_only.to_string(),
            "Whether readers see only what a sync of the queue has covered, instead of all that is published.",
        ),
        fixed(
            "mount.writable",
            Kind::Bool,
            mounted.writes.is_some().to_string(),
            "Whether clients may produce to the queue.",
        ),
        of_queue("segment.bytes", mounted.segment_bytes.to_string()),
    ];
    if let Some(writes) = mounted.writes {
        entries.push(of_queue(topic::DURABILITY, writes.level.to_string()));
        entries.push(of_queue("max.message.bytes", writes.batch_bytes_max.to_string()));
        // Limits of the mount count as the topic's own: some tools show no others.
        let limit = |name: &'static str, limit: Option<u128>| match limit.map(|limit| limit.to_string()) {
            None => of_queue(name, "-1".to_owned()),
            Some(value) => {
                let source = ConfigSource::Topic;
                let own = ConfigSynonym { name, value: value.clone(), source };
                ConfigEntry { source, synonyms: vec![own], ..of_queue(name, value) }
            }
        };
        let Retention { age, bytes, .. } = writes.retention;
        entries.push(limit("retention.bytes", bytes.map(u128::from)));
        entries.push(limit("retention.ms", age.map(|age| age.as_millis())));
        entries.sort_by_key(|entry| entry.name);
    }
    entries
}

/// A value that cannot be set.
fn fixed(name: &'static str, kind: Kind, value: String, documentation: &str) -> ConfigEntry {
    ConfigEntry {
        name,
        value: Some(value),
        is_read_only: true,
        source: ConfigSource::Default,
        synonyms: Vec::new(),
        type_code: kind.type_code(),
        documentation: documentation.to_owned(),
    }
}

/// Values of a topic that cannot be set. A client gets them only if it asks for them by name, so that tools that copy or
/// compare all configs of a topic do not meet them.
pub fn topic_state(
    wanted: DurabilityLevel,
    reached: DurabilityLevel,
    unsynced_records: i64,
) -> Vec<ConfigEntry> {
    let level = Kind::Int(1, 4);
    let records = Kind::Long(0, i64::MAX);
    vec![
        fixed("durability.wanted", level, wanted.to_string(), "The level that the topic's configs ask for."),
        fixed("durability.reached", level, reached.to_string(), "The level that acked records have now."),
        fixed(
            "durability.unsynced.records",
            records,
            unsynced_records.to_string(),
            "Records of all partitions that are appended and not synced yet.",
        ),
    ]
}

/// The level of the topic of group offsets, which falls back to an option of its own.
fn offsets_level(config: &BrokerConfig, overrides: &TopicOverrides, def: &'static OptionDef) -> ConfigEntry {
    let servers = definition("offsets.topic.durability").expect("a row of the table of groups");
    let own = overrides.get(def.name).map(|own| ConfigSynonym {
        name: def.name,
        value: own.clone(),
        source: ConfigSource::Topic,
    });
    let synonyms: Vec<_> = own.into_iter().chain(broker_entry(config, servers).synonyms).collect();
    let value = synonyms.first().map(|first| first.value.clone());
    entry(def, value, synonyms, false)
}

fn topic_entry(config: &BrokerConfig, overrides: &TopicOverrides, def: &'static OptionDef) -> ConfigEntry {
    let server_text = |name: &str| config.settings().get(name);
    let value = topic::effective(def, overrides, &server_text).map(Cow::into_owned);
    let mut synonyms = Vec::new();
    if let Some(own) = overrides.get(def.name) {
        synonyms.push(ConfigSynonym { name: def.name, value: own.clone(), source: ConfigSource::Topic });
    }
    for synonym in topic::synonyms(def.name) {
        if let Some(text) = server_text(synonym.name) {
            let value = text.to_owned();
            synonyms.push(ConfigSynonym { name: synonym.name, value, source: ConfigSource::Server });
        }
    }
    let last = topic::synonyms(def.name).last();
    let default = last.map_or(def.default, |synonym| synonym.default_text(def));
    if let Some(text) = default {
        let name = last.map_or(def.name, |synonym| synonym.name);
        synonyms.push(ConfigSynonym { name, value: text.to_owned(), source: ConfigSource::Default });
    }
    entry(def, value, synonyms, false)
}

/// Options of the server that clients have set while it runs, by name.
pub type ServerOverrides = BTreeMap<&'static str, String>;

/// The options of the server, in the order of the documentation.
pub fn describe_broker(config: &BrokerConfig, overrides: &ServerOverrides) -> Vec<ConfigEntry> {
    definitions().map(|def| altered(broker_entry(config, def), overrides.get(def.name))).collect()
}

/// Puts a value that a client has set before all others.
fn altered(entry: ConfigEntry, own: Option<&String>) -> ConfigEntry {
    let is_read_only = !is_dynamic(entry.name);
    let Some(value) = own else { return ConfigEntry { is_read_only, ..entry } };
    let source = ConfigSource::DynamicServer;
    let own = ConfigSynonym { name: entry.name, value: value.clone(), source };
    let synonyms = std::iter::once(own).chain(entry.synonyms).collect();
    ConfigEntry { value: Some(value.clone()), is_read_only, source, synonyms, ..entry }
}

/// The configs of a group, in the order of their names.
pub(crate) fn describe_group(config: &BrokerConfig, overrides: &GroupOverrides) -> Vec<ConfigEntry> {
    let group_entry = |def: &'static OptionDef| {
        let servers = definition(&own_group::synonym(def.name)).expect("a row of the table of groups");
        let own = overrides.get(def.name).map(|own| ConfigSynonym {
            name: def.name,
            value: own.clone(),
            source: ConfigSource::Group,
        });
        let synonyms: Vec<_> = own.into_iter().chain(broker_entry(config, servers).synonyms).collect();
        let value = synonyms.first().map(|first| first.value.clone());
        entry(def, value, synonyms, false)
    };
    own_group::DEFINITIONS.iter().map(group_entry).collect()
}

fn broker_entry(config: &BrokerConfig, def: &'static OptionDef) -> ConfigEntry {
    let mut synonyms = Vec::new();
    if let Some(text) = config.settings().get(def.name) {
        synonyms.push(ConfigSynonym { name: def.name, value: text.to_owned(), source: ConfigSource::Server });
    }
    if let Some(text) = def.default {
        synonyms.push(ConfigSynonym {
            name: def.name,
            value: text.to_owned(),
            source: ConfigSource::Default,
        });
    }
    let value = config.settings().text_of(def.name).map(Cow::into_owned);
    entry(def, value, synonyms, true)
}

fn entry(
    def: &'static OptionDef,
    value: Option<String>,
    synonyms: Vec<ConfigSynonym>,
    is_read_only: bool,
) -> ConfigEntry {
    ConfigEntry {
        name: def.name,
        value,
        is_read_only,
        source: synonyms.first().map_or(ConfigSource::Default, |first| first.source),
        synonyms,
        type_code: def.kind.type_code(),
        documentation: def.text(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic_entry_of(config: &BrokerConfig, own: &[(&str, &str)], name: &str) -> ConfigEntry {
        let overrides = own.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let entries = describe_topic(config, "t", &overrides);
        entries.into_iter().find(|entry| entry.name == name).expect("a topic config")
    }

    fn shown(entry: &ConfigEntry) -> Vec<String> {
        entry.synonyms.iter().map(|s| format!("{}={} {:?}", s.name, s.value, s.source)).collect()
    }

    #[test]
    fn a_topic_config_shows_every_value_that_it_could_fall_back_to() {
        let config = BrokerConfig::from_pairs([("log.retention.minutes", "5")]).expect("valid");
        let own = topic_entry_of(&config, &[("retention.ms", "9")], "retention.ms");
        assert_eq!(
            (own.value.as_deref(), own.source, own.is_read_only),
            (Some("9"), ConfigSource::Topic, false)
        );
        assert_eq!(
            shown(&own),
            ["retention.ms=9 Topic", "log.retention.minutes=5 Server", "log.retention.hours=168 Default"],
        );
        let inherited = topic_entry_of(&config, &[], "retention.ms");
        assert_eq!((inherited.value.as_deref(), inherited.source), (Some("300000"), ConfigSource::Server));
        let default = topic_entry_of(&BrokerConfig::default(), &[], "retention.ms");
        assert_eq!((default.value.as_deref(), default.source), (Some("604800000"), ConfigSource::Default));
    }

    #[test]
    fn values_of_a_topics_state_have_no_name_of_a_config() {
        let state = topic_state(DurabilityLevel::SyncSync, DurabilityLevel::AsyncAsync, 7);
        let shown: Vec<_> = state.iter().map(|entry| (entry.name, entry.value.as_deref())).collect();
        assert_eq!(
            shown,
            [
                ("durability.wanted", Some("1")),
                ("durability.reached", Some("4")),
                ("durability.unsynced.records", Some("7"))
            ]
        );
        assert!(state.iter().all(|entry| entry.is_read_only && topic::definition(entry.name).is_none()));
    }

    #[test]
    fn level_of_group_offsets_falls_back_to_its_own_option() {
        let level = |pairs: &[(&str, &str)], own: &[(&str, &str)]| {
            let config = BrokerConfig::from_pairs(pairs.iter().copied()).expect("valid");
            let overrides = own.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let entries = describe_topic(&config, OFFSETS_TOPIC, &overrides);
            let entry = entries.into_iter().find(|entry| entry.name == "durability").expect("a topic config");
            let holds = config.topic_options(OFFSETS_TOPIC, &overrides).level().to_string();
            assert_eq!(entry.value.as_ref(), Some(&holds));
            (holds, entry.source, shown(&entry))
        };
        let default = "offsets.topic.durability=1 Default".to_owned();
        assert_eq!(level(&[], &[]), ("1".into(), ConfigSource::Default, vec![default.clone()]));
        let (holds, source, synonyms) = level(&[("offsets.topic.durability", "3")], &[("durability", "4")]);
        assert_eq!((holds.as_str(), source), ("4", ConfigSource::Topic));
        assert_eq!(synonyms, ["durability=4 Topic", "offsets.topic.durability=3 Server", &default]);
    }

    #[test]
    fn the_topic_of_offsets_is_compacted_whatever_was_set_for_it() {
        let config = BrokerConfig::default();
        for policy in ["delete", "compact,delete", "compact"] {
            let set = [("cleanup.policy", policy), ("retention.ms", "1000")];
            let overrides = set.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            let cleanup = config.topic_options(OFFSETS_TOPIC, &overrides).log_config(1).cleanup;
            assert_eq!((cleanup.compact, cleanup.delete), (true, false), "{policy}");
            let entries = describe_topic(&config, OFFSETS_TOPIC, &overrides);
            let told =
                entries.into_iter().find(|entry| entry.name == "cleanup.policy").expect("a topic config");
            assert_eq!(told.value.as_deref(), Some("compact"), "{policy}");
        }
    }

    #[test]
    fn a_group_config_falls_back_to_the_servers_option() {
        let pairs = [("group.consumer.session.timeout.ms", "46000")];
        let config = BrokerConfig::from_pairs(pairs).expect("valid");
        let session = |own: &[(&str, &str)]| {
            let own = own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let entry = describe_group(&config, &own).pop().expect("the last one");
            assert_eq!((entry.name, entry.is_read_only), ("consumer.session.timeout.ms", false));
            (entry.value.clone(), entry.source, shown(&entry))
        };
        let below = [
            "group.consumer.session.timeout.ms=46000 Server",
            "group.consumer.session.timeout.ms=45000 Default",
        ];
        let below = below.map(str::to_owned).to_vec();
        assert_eq!(session(&[]), (Some("46000".into()), ConfigSource::Server, below.clone()));
        let own = [vec!["consumer.session.timeout.ms=50000 Group".to_owned()], below].concat();
        let set = [("consumer.session.timeout.ms", "50000")];
        assert_eq!(session(&set), (Some("50000".into()), ConfigSource::Group, own));
    }

    #[test]
    fn an_option_of_the_server_is_read_only_and_typed() {
        let config = BrokerConfig::from_pairs([("num.partitions", "3")]).expect("valid");
        let entries = describe_broker(&config, &ServerOverrides::new());
        let find = |name: &str| entries.iter().find(|entry| entry.name == name).expect("an option");
        let partitions = find("num.partitions");
        assert_eq!(
            (partitions.value.as_deref(), partitions.source, partitions.type_code),
            (Some("3"), ConfigSource::Server, 3)
        );
        assert!(partitions.is_read_only && !partitions.documentation.is_empty());
        assert_eq!(find("broker.rack").value, None);
        assert_eq!(find("log.cleanup.policy").type_code, 7);
    }

    #[test]
    fn value_set_by_a_client_comes_before_the_servers_own() {
        let pairs = [("log.dirs", "/a,/b"), ("cordoned.log.dirs", "/a")];
        let config = BrokerConfig::from_pairs(pairs).expect("valid");
        let cordoned = |overrides: &ServerOverrides| {
            let entries = describe_broker(&config, overrides).into_iter();
            let entry = entries.into_iter().find(|entry| entry.name == "cordoned.log.dirs").expect("there");
            assert!(!entry.is_read_only);
            (entry.value.clone(), entry.source, shown(&entry))
        };
        let below = ["cordoned.log.dirs=/a Server", "cordoned.log.dirs= Default"].map(str::to_owned);
        assert_eq!(
            cordoned(&ServerOverrides::new()),
            (Some("/a".into()), ConfigSource::Server, below.to_vec())
        );
        let own = [vec!["cordoned.log.dirs=/b DynamicServer".to_owned()], below.to_vec()].concat();
        assert_eq!(
            cordoned(&[("cordoned.log.dirs", "/b".to_owned())].into()),
            (Some("/b".into()), ConfigSource::DynamicServer, own)
        );
    }
}
