//! Topic configs: the table of all that Kafka 4.3 knows by name, and the server's defaults for them.
//!
//! Owns which values can be honoured (others are refused with the reason, never taken and ignored) and the chain
//! from a topic's own value over the server's option of the same meaning to the default. The server's options for
//! topics (`log.retention.hours`, …) are made from this table, so type, range and text stand once.

use std::borrow::Cow;
use std::collections::BTreeMap;

use riverrun_types::DurabilityLevel;

use super::definition::Kind::{Bool, Choice, Choices, Double, Int, List, Long};
use super::definition::{Accept, OptionDef, options};
use super::durability;

/// Texts of the configs that a topic sets for itself, by name.
pub type TopicOverrides = BTreeMap<String, String>;

const NOT_REPLICATED: &str = "there are no replicas to throttle on a server of one node";
const NOT_TIERED: &str = "tiered storage is not supported yet";

options! {
    /// The configs of a topic.
    struct TopicOptions;

    /// Policies for old records: `delete` drops them by age and size, `compact` keeps the newest of each key. Both may
    /// stand together; none keeps everything.
    cleanup_policy: Vec<String> = "cleanup.policy", Choices(&["compact", "delete"]), Some("delete");
    /// Level of gzip where `compression.type` is gzip; -1 is the codec's default.
    compression_gzip_level: i32 = "compression.gzip.level", Int(-1, 9), Some("-1"),
        Accept::Only(&["-1", "1", "2", "3", "4", "5", "6", "7", "8", "9"], "it must be -1 or a whole number from 1 to 9");
    /// Level of lz4 where `compression.type` is lz4.
    compression_lz4_level: i32 = "compression.lz4.level", Int(1, 17), Some("9"),
        Accept::Only(&["9"], "the lz4 codec of this server has one level; only the default 9 is accepted");
    /// Codec in which records are kept. `producer` keeps what the producer chose; another value recompresses on the
    /// server.
    compression_type: String = "compression.type", Choice(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), Some("producer");
    /// Level of zstd where `compression.type` is zstd.
    compression_zstd_level: i32 = "compression.zstd.level", Int(-131_072, 22), Some("3");
    /// Milliseconds for which compaction keeps a tombstone, so that readers see the deletion.
    delete_retention_ms: u64 = "delete.retention.ms", Long(0, i64::MAX), Some("86400000");
    /// Failure that an acked record survives. 1: loss of power on every node; 2: loss of a minority of nodes; 3: loss of power
    /// on one node; 4: a crash of the process. On a server of one node 1 is as 3, and 2 as 4. It may change while the
    /// topic is in use: acks keep a level that syncs as soon as the change is answered. Riverrun's own config.
    durability: DurabilityLevel = "durability", Int(1, 4), Some("1");
    /// Milliseconds between a segment's removal from the log and that of its file.
    file_delete_delay_ms: u64 = "file.delete.delay.ms", Long(0, i64::MAX), Some("60000");
    /// Records between two syncs in Kafka. Any value but the default replaces a level from `default.durability` by the level
    /// that syncs (1 for 2, 3 for 4): each acked record is then synced, which is more than a count could ask for. A topic
    /// that sets `durability` 2 or 4 itself cannot set it, since the two contradict each other.
    flush_messages: u64 = "flush.messages", Long(1, i64::MAX), Some("9223372036854775807");
    /// Milliseconds between two syncs in Kafka. Any value but the default has the effect of one of `flush.messages`, and is
    /// refused in the same case.
    flush_ms: u64 = "flush.ms", Long(0, i64::MAX), Some("9223372036854775807");
    /// Followers whose replication is throttled.
    follower_replication_throttled_replicas: Vec<String> = "follower.replication.throttled.replicas",
        List("partition:broker pairs"), Some(""), Accept::Only(&[""], NOT_REPLICATED);
    /// Bytes of records between two entries of the offset index. A value above 16384 has the effect of 16384, since a fetch
    /// reads from an entry on up to the offset that it asks for.
    index_interval_bytes: u32 = "index.interval.bytes", Int(0, i32::MAX), Some("4096");
    /// Leaders whose replication is throttled.
    leader_replication_throttled_replicas: Vec<String> = "leader.replication.throttled.replicas",
        List("partition:broker pairs"), Some(""), Accept::Only(&[""], NOT_REPLICATED);
    /// Bytes that stay on local disk beside tiered storage; -2 is the whole `retention.bytes`.
    local_retention_bytes: i64 = "local.retention.bytes", Long(-2, i64::MAX), Some("-2"), Accept::Only(&["-2"], NOT_TIERED);
    /// Milliseconds that stay on local disk beside tiered storage; -2 is the whole `retention.ms`.
    local_retention_ms: i64 = "local.retention.ms", Long(-2, i64::MAX), Some("-2"), Accept::Only(&["-2"], NOT_TIERED);
    /// Milliseconds after which a record becomes compactable even if the share of new records is small.
    max_compaction_lag_ms: u64 = "max.compaction.lag.ms", Long(1, i64::MAX), Some("9223372036854775807");
    /// Bytes of one record batch at most, as it is sent.
    max_message_bytes: u32 = "max.message.bytes", Int(0, i32::MAX), Some("1048588");
    /// Milliseconds by which a record's timestamp may be ahead of the server's clock.
    message_timestamp_after_max_ms: u64 = "message.timestamp.after.max.ms", Long(0, i64::MAX), Some("3600000");
    /// Milliseconds by which a record's timestamp may be behind the server's clock.
    message_timestamp_before_max_ms: u64 = "message.timestamp.before.max.ms", Long(0, i64::MAX), Some("9223372036854775807");
    /// Clock of a record's timestamp: the producer's at creation or the server's at append.
    message_timestamp_type: String = "message.timestamp.type", Choice(&["CreateTime", "LogAppendTime"]), Some("CreateTime");
    /// Share of a log that must be new before it is compacted.
    min_cleanable_dirty_ratio: f64 = "min.cleanable.dirty.ratio", Double(0.0, 1.0), Some("0.5");
    /// Milliseconds for which a record is safe from compaction.
    min_compaction_lag_ms: u64 = "min.compaction.lag.ms", Long(0, i64::MAX), Some("0");
    /// Replicas that must be in sync for a write with acks=all.
    min_insync_replicas: u32 = "min.insync.replicas", Int(1, i32::MAX), Some("1"),
        Accept::Only(&["1"], "it must be 1, because a partition has one replica on a server of one node");
    /// Whether a segment's file is made in its full size at once.
    preallocate: bool = "preallocate", Bool, Some("false"),
        Accept::Only(&["false"], "segments are not preallocated; only false is accepted");
    /// Whether copying to tiered storage is paused.
    remote_log_copy_disable: bool = "remote.log.copy.disable", Bool, Some("false"), Accept::Only(&["false"], NOT_TIERED);
    /// Whether tiered records go when tiered storage is switched off.
    remote_log_delete_on_disable: bool = "remote.log.delete.on.disable", Bool, Some("false"), Accept::Only(&["false"], NOT_TIERED);
    /// Whether old segments go to tiered storage.
    remote_storage_enable: bool = "remote.storage.enable", Bool, Some("false"), Accept::Only(&["false"], NOT_TIERED);
    /// Bytes that each partition keeps at least before its oldest segments go; -1 is no limit.
    retention_bytes: i64 = "retention.bytes", Long(-1, i64::MAX), Some("-1");
    /// Milliseconds after which a segment is removed; -1 is no limit.
    retention_ms: i64 = "retention.ms", Long(-1, i64::MAX), Some("604800000");
    /// Bytes of one segment file.
    segment_bytes: u32 = "segment.bytes", Int(1_048_576, i32::MAX), Some("1073741824");
    /// Bytes of one segment's index at most; a full index ends the segment. One of less than 1 MiB is ended not more often than
    /// once a second in the long run.
    segment_index_bytes: u32 = "segment.index.bytes", Int(4, i32::MAX), Some("10485760");
    /// Milliseconds by which the end of a segment is varied, so that not all partitions begin a new one at once.
    segment_jitter_ms: u64 = "segment.jitter.ms", Long(0, i64::MAX), Some("0");
    /// Milliseconds after which a segment ends even if it is not full. One of less than 1 MiB ends not more often than once a
    /// second in the long run.
    segment_ms: u64 = "segment.ms", Long(1, i64::MAX), Some("604800000");
    /// Whether a replica that lags may become the leader.
    unclean_leader_election_enable: bool = "unclean.leader.election.enable", Bool, Some("false"),
        Accept::Only(&["false"], "there are no other replicas to elect on a server of one node; only false is accepted");
}

impl TopicOptions {
    /// The durability level that holds for the topic.
    pub fn level(&self) -> DurabilityLevel {
        durability::level(self.durability, self.flush_messages, self.flush_ms)
    }
}

/// Makes the topic of group offsets compacted, whatever was set for it: any other policy would delete committed offsets.
/// On an older server a client may have made the topic with one.
pub(crate) fn keep_compacted(overrides: &mut TopicOverrides) {
    overrides.insert("cleanup.policy".to_owned(), "compact".to_owned());
}

/// The topic config of the durability level.
pub(crate) const DURABILITY: &str = "durability";

/// An option of the server that is the default of a topic config.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Synonym {
    pub(crate) name: &'static str,
    /// Milliseconds in one unit of the option where its topic config counts milliseconds; otherwise 1.
    unit: i64,
    /// The default in that unit, where it differs from the topic config's text.
    scaled_default: Option<&'static str>,
}

const fn same(name: &'static str) -> Synonym {
    Synonym { name, unit: 1, scaled_default: None }
}

const fn scaled(name: &'static str, unit: i64, default: Option<&'static str>) -> Synonym {
    Synonym { name, unit, scaled_default: default }
}

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 3_600_000;

/// Topic config -> the server's options for it. The first that is set counts; the last bears the default.
const SYNONYMS: &[(&str, &[Synonym])] = &[
    ("cleanup.policy", &[same("log.cleanup.policy")]),
    ("compression.gzip.level", &[same("compression.gzip.level")]),
    ("compression.lz4.level", &[same("compression.lz4.level")]),
    ("compression.type", &[same("compression.type")]),
    ("compression.zstd.level", &[same("compression.zstd.level")]),
    ("delete.retention.ms", &[same("log.cleaner.delete.retention.ms")]),
    ("durability", &[same("default.durability")]),
    ("file.delete.delay.ms", &[same("log.segment.delete.delay.ms")]),
    ("index.interval.bytes", &[same("log.index.interval.bytes")]),
    ("max.compaction.lag.ms", &[same("log.cleaner.max.compaction.lag.ms")]),
    ("max.message.bytes", &[same("message.max.bytes")]),
    ("message.timestamp.after.max.ms", &[same("log.message.timestamp.after.max.ms")]),
    ("message.timestamp.before.max.ms", &[same("log.message.timestamp.before.max.ms")]),
    ("message.timestamp.type", &[same("log.message.timestamp.type")]),
    ("min.cleanable.dirty.ratio", &[same("log.cleaner.min.cleanable.ratio")]),
    ("min.compaction.lag.ms", &[same("log.cleaner.min.compaction.lag.ms")]),
    ("min.insync.replicas", &[same("min.insync.replicas")]),
    ("preallocate", &[same("log.preallocate")]),
    ("retention.bytes", &[same("log.retention.bytes")]),
    (
        "retention.ms",
        &[
            same("log.retention.ms"),
            scaled("log.retention.minutes", MINUTE_MS, None),
            scaled("log.retention.hours", HOUR_MS, Some("168")),
        ],
    ),
    ("segment.bytes", &[same("log.segment.bytes")]),
    ("segment.index.bytes", &[same("log.index.size.max.bytes")]),
    ("segment.jitter.ms", &[same("log.roll.jitter.ms"), scaled("log.roll.jitter.hours", HOUR_MS, Some("0"))]),
    ("segment.ms", &[same("log.roll.ms"), scaled("log.roll.hours", HOUR_MS, Some("168"))]),
    ("unclean.leader.election.enable", &[same("unclean.leader.election.enable")]),
];

/// The server's options for a topic config, the one that counts first in front.
pub(crate) fn synonyms(topic_config: &str) -> &'static [Synonym] {
    SYNONYMS.iter().find(|(name, _)| *name == topic_config).map_or(&[], |(_, synonyms)| synonyms)
}

/// The definition of a topic config.
pub fn definition(name: &str) -> Option<&'static OptionDef> {
    TopicOptions::DEFINITIONS.iter().find(|def| def.name == name)
}

/// The server's options that are defaults of topic configs.
pub(crate) fn broker_definitions() -> impl Iterator<Item = OptionDef> {
    SYNONYMS.iter().flat_map(|(topic, synonyms)| {
        let def = definition(topic).expect("every row of SYNONYMS names a topic config, as a test checks");
        let last = synonyms.len() - 1;
        synonyms.iter().enumerate().map(move |(at, synonym)| broker_definition(def, synonym, at == last))
    })
}

fn broker_definition(topic: &OptionDef, synonym: &Synonym, bears_default: bool) -> OptionDef {
    let default = synonym.scaled_default.or(topic.default).filter(|_| bears_default);
    let unit = match synonym.unit {
        MINUTE_MS => " In minutes.",
        HOUR_MS => " In hours.",
        _ => "",
    };
    let kind = match topic.kind {
        Long(min, _) if synonym.unit > 1 => Int(i32::try_from(min).unwrap_or(1), i32::MAX),
        kind => kind,
    };
    let doc = format!("{unit} Default of the topic config `{}`:{}", topic.name, topic.doc);
    OptionDef { name: synonym.name, kind, default, accept: topic.accept, doc: Cow::Owned(doc) }
}

impl Synonym {
    /// The default that this option shows where nothing is set for the topic config `def`.
    pub(crate) fn default_text(&self, def: &OptionDef) -> Option<&'static str> {
        self.scaled_default.or(def.default)
    }

    /// The option's text in the unit of the topic config.
    fn in_topic_unit(&self, text: &str) -> String {
        match text.parse::<i64>() {
            Ok(count) if self.unit > 1 && count > 0 => count.saturating_mul(self.unit).to_string(),
            _ => text.to_owned(),
        }
    }
}

/// The text that holds for a topic config: the topic's own, else the first of the server's options that is set,
/// else the default. `server_text` answers the server's options that are set.
pub(crate) fn effective<'v>(
    def: &'static OptionDef,
    overrides: &'v TopicOverrides,
    server_text: &dyn Fn(&str) -> Option<&'v str>,
) -> Option<Cow<'v, str>> {
    if let Some(own) = overrides.get(def.name) {
        return Some(Cow::Borrowed(own));
    }
    let mut set = synonyms(def.name).iter().filter_map(|synonym| Some((synonym, server_text(synonym.name)?)));
    match set.next() {
        Some((synonym, text)) => Some(Cow::Owned(synonym.in_topic_unit(text))),
        None => def.default.map(Cow::Borrowed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effective_text(name: &str, own: &[(&str, &str)], server: &[(&str, &str)]) -> String {
        let overrides = own.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let def = definition(name).expect("a topic config");
        let server_text = |name: &str| server.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        let text = effective(def, &overrides, &server_text);
        text.expect("a value").into_owned()
    }

    #[test]
    fn synonyms_name_a_topic_config_and_keep_its_default() {
        for (topic, synonyms) in SYNONYMS {
            let def = definition(topic).unwrap_or_else(|| panic!("{topic}"));
            let last = synonyms.last().expect("one option at least");
            let default = last.default_text(def).expect("a default");
            assert_eq!(last.in_topic_unit(default), def.default.expect("a default"), "{topic}");
        }
    }

    #[test]
    fn a_topic_config_falls_back_to_the_servers_options_in_order() {
        assert_eq!(effective_text("retention.ms", &[], &[]), "604800000");
        assert_eq!(effective_text("retention.ms", &[], &[("log.retention.hours", "1")]), "3600000");
        let both = [("log.retention.hours", "1"), ("log.retention.minutes", "2")];
        assert_eq!(effective_text("retention.ms", &[], &both), "120000");
        assert_eq!(effective_text("retention.ms", &[("retention.ms", "-1")], &both), "-1");
        assert_eq!(effective_text("retention.ms", &[], &[("log.retention.hours", "-1")]), "-1");
    }

    #[test]
    fn every_topic_config_of_kafka_is_known() {
        // Names as Kafka 4.3 lists them for a topic, besides its internal ones.
        let kafka = [
            "cleanup.policy",
            "compression.gzip.level",
            "compression.lz4.level",
            "compression.type",
            "compression.zstd.level",
            "delete.retention.ms",
            "file.delete.delay.ms",
            "flush.messages",
            "flush.ms",
            "follower.replication.throttled.replicas",
            "index.interval.bytes",
            "leader.replication.throttled.replicas",
            "local.retention.bytes",
            "local.retention.ms",
            "max.compaction.lag.ms",
            "max.message.bytes",
            "message.timestamp.after.max.ms",
            "message.timestamp.before.max.ms",
            "message.timestamp.type",
            "min.cleanable.dirty.ratio",
            "min.compaction.lag.ms",
            "min.insync.replicas",
            "preallocate",
            "remote.log.copy.disable",
            "remote.log.delete.on.disable",
            "remote.storage.enable",
            "retention.bytes",
            "retention.ms",
            "segment.bytes",
            "segment.index.bytes",
            "segment.jitter.ms",
            "segment.ms",
            "unclean.leader.election.enable",
        ];
        for name in kafka {
            assert!(definition(name).is_some(), "{name}");
        }
        assert_eq!(TopicOptions::DEFINITIONS.len(), kafka.len() + 1, "durability is the only one of our own");
    }
}
