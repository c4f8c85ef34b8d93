use riverrun_journal::{JournalOptions, SyncMethod};
use riverrun_types::DurabilityLevel;

use super::*;
use crate::config::definition::Kind;

fn error_of(pairs: &[(&str, &str)]) -> String {
    BrokerConfig::from_pairs(pairs.iter().copied()).expect_err("refused").to_string()
}

#[test]
fn the_defaults_are_valid_and_loopback_only() {
    let config = BrokerConfig::default();
    assert_eq!(config.network.listeners[0].to_string(), "PLAINTEXT://127.0.0.1:9092");
    assert_eq!(config.advertised("PLAINTEXT"), Some(&config.network.listeners[0]));
    assert_eq!(config.advertised("OTHER"), None);
    assert_eq!(config.topic_defaults.durability, DurabilityLevel::SyncSync);
    assert_eq!(config.topic_defaults.retention_ms, 7 * 24 * 3_600_000);
    assert_eq!(config.topic_defaults.max_message_bytes, 1_048_588);
}

#[test]
fn definitions_are_unique_documented_and_take_their_default() {
    let mut names = BTreeSet::new();
    for def in definitions().chain(TopicOptions::DEFINITIONS) {
        assert!(def.doc.trim().ends_with(['.', ')']), "{}: {}", def.name, def.doc);
        if let Some(default) = def.default {
            assert_eq!(def.check(default), Ok(()), "{}", def.name);
        }
    }
    for def in definitions() {
        assert!(names.insert(def.name), "{} is defined twice", def.name);
    }
}

#[test]
fn the_bounds_of_every_range_reach_the_typed_configuration() {
    for def in definitions() {
        let bounds = match def.kind {
            Kind::Int(min, max) => vec![min.to_string(), max.to_string()],
            Kind::Long(min, max) => vec![min.to_string(), max.to_string()],
            Kind::Double(min, max) => vec![min.to_string(), max.to_string()],
            Kind::Choice(words) => words.iter().map(|word| (*word).to_owned()).collect(),
            _ => Vec::new(),
        };
        for bound in bounds.iter().filter(|bound| def.check(bound).is_ok()) {
            match BrokerConfig::from_pairs([(def.name, bound.as_str())]) {
                Ok(_) | Err(ConfigError::Conflict(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn level_of_a_topic_is_its_own_the_servers_or_one_that_syncs() {
    let level = |default: &str, name: &str, own: &[(&str, &str)]| {
        let config = BrokerConfig::from_pairs([("default.durability", default)]).expect("valid");
        let overrides = own.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        assert_eq!(check_topic_configs(&config, &overrides), Ok(()), "{own:?}");
        config.topic_options(name, &overrides).level().number()
    };
    assert_eq!(level("4", "t", &[]), 4);
    assert_eq!(level("4", "t", &[("durability", "1")]), 1);
    assert_eq!(level("4", "t", &[("flush.messages", "1")]), 3);
    assert_eq!(level("2", "t", &[("flush.messages", "1"), ("flush.ms", "0")]), 1);
    assert_eq!(level("4", "t", &[("flush.messages", "9223372036854775807"), ("durability", "2")]), 2);
    assert_eq!(level("4", OFFSETS_TOPIC, &[]), 1, "group offsets have a default of their own");
    assert_eq!(level("1", OFFSETS_TOPIC, &[("durability", "4")]), 4);
    assert!(error_of(&[("default.durability", "5")]).contains("from 1 to 4"));
}

#[test]
fn the_journals_options_fit_each_other_whatever_is_set() {
    for bytes in ["8388608", "10000001", "536870912", "9223372036854775807"] {
        for alignment in ["512", "4096", "65536"] {
            let pairs = [("journal.bytes", bytes), ("journal.alignment", alignment)];
            let options = BrokerConfig::from_pairs(pairs).expect("valid").durability.journal_options();
            assert!(options.file_bytes.is_multiple_of(options.alignment as u64), "{options:?}");
            assert!(options.file_bytes >= 2 << 20 && 4 * options.file_bytes <= options.bytes, "{options:?}");
        }
    }
    let options = BrokerConfig::from_pairs([("journal.sync.method", "buffered")]).expect("valid");
    assert_eq!(options.durability.journal_options().sync_method, SyncMethod::BufferedFdatasync);
    let fitting = JournalOptions { fits_volume: true, ..JournalOptions::default() };
    assert_eq!(BrokerConfig::default().durability.journal_options(), fitting);
}

#[test]
fn kafkas_options_without_meaning_here_say_what_to_do() {
    assert!(error_of(&[("broker.id", "1")]).contains("set node.id"));
    assert!(error_of(&[("process.roles", "broker")]).contains("leave it out"));
    assert!(error_of(&[("default.replication.factor", "3")]).contains("one node"));
    assert!(error_of(&[("min.insync.replicas", "2")]).contains("one replica"));
}

#[test]
fn listeners_of_one_port_need_an_address_each() {
    for (listeners, good) in [
        ("A://127.0.0.1:9092,B://127.0.0.1:9092", false),
        ("A://localhost:9092,B://127.0.0.1:9093,C://LocalHost:9092", false),
        ("A://0.0.0.0:9092,B://127.0.0.1:9092", false),
        ("A://127.0.0.1:9092,B://:9092", false),
        ("A://127.0.0.1:9092,B://127.0.0.2:9092", true),
        ("A://127.0.0.1:0,B://127.0.0.1:0", true),
    ] {
        let told = ("advertised.listeners", "A://a:1,B://b:1");
        let refusal = BrokerConfig::from_pairs([("listeners", listeners), told]).err().map(|e| e.to_string());
        assert_eq!(refusal.is_none(), good, "{listeners}: {refusal:?}");
        if let Some(refusal) = refusal {
            let named =
                |name: &str| listeners.split(',').any(|one| one.starts_with(name) && refusal.contains(one));
            assert!(named("A") && (named("B") || named("C")), "{refusal}");
        }
    }
}

#[test]
fn a_wildcard_listener_needs_an_advertised_address() {
    let error = error_of(&[("listeners", "PLAINTEXT://0.0.0.0:9092")]);
    assert!(error.contains("advertised.listeners=PLAINTEXT://"), "{error}");
    let pairs =
        [("listeners", "PLAINTEXT://0.0.0.0:9092"), ("advertised.listeners", "PLAINTEXT://example.org:9092")];
    let config = BrokerConfig::from_pairs(pairs).expect("valid");
    assert_eq!(config.advertised("PLAINTEXT").map(|listener| listener.host.as_str()), Some("example.org"));
}

#[test]
fn contradictions_are_refused() {
    for pairs in [
        &[("listeners", "")] as &[_],
        &[("listeners", "A://127.0.0.1:1,A://127.0.0.1:2")],
        &[("listeners", "A://127.0.0.1:1,B://127.0.0.1:1")],
        &[("advertised.listeners", "OTHER://example.org:1")],
        &[("advertised.listeners", "PLAINTEXT://0.0.0.0:1")],
        &[("log.dirs", "/a,/a")],
        &[("journal.dirs", "/a,/a")],
        &[("log.dirs", "/a,/b"), ("journal.dirs", "/b")],
        &[("log.dirs", "/a,/a/b")],
        &[("log.dirs", "/a"), ("journal.dirs", "/a/b")],
        &[("journal.dirs", "/a"), ("log.dirs", "/a/b")],
        &[("data.dir", "/a"), ("log.dirs", "/a/meta")],
        &[("data.dir", "/a"), ("log.dirs", "/a")],
        &[("log.dirs", "/a,/b"), ("cordoned.log.dirs", "/c")],
        &[("log.dirs", "/a,/b"), ("cordoned.log.dirs", "*,/b")],
        &[("group.min.session.timeout.ms", "9000"), ("group.max.session.timeout.ms", "8000")],
        &[("group.consumer.session.timeout.ms", "5000")],
        &[("group.consumer.assignors", "")],
        &[("max.connections.per.ip.overrides", "127.0.0.1:1,[::ffff:127.0.0.1]:2")],
        &[("log.cleaner.min.compaction.lag.ms", "5"), ("log.cleaner.max.compaction.lag.ms", "4")],
    ] {
        let result = BrokerConfig::from_pairs(pairs.iter().copied());
        assert!(matches!(result, Err(ConfigError::Conflict(_))), "{pairs:?}: {result:?}");
    }
}

#[test]
fn topic_configs_are_checked_alone_and_against_each_other() {
    let config = BrokerConfig::default();
    let check = |pairs: &[(&str, &str)]| {
        let overrides = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        check_topic_configs(&config, &overrides)
    };
    assert_eq!(
        check(&[("cleanup.policy", "compact,delete"), ("retention.ms", "-1"), ("durability", "4")]),
        Ok(())
    );
    for (pairs, part) in [
        (&[("retention.mss", "1")] as &[_], "did you mean retention.ms?"),
        (&[("retention.ms", "soon")], "Invalid value soon for configuration retention.ms"),
        (&[("segment.bytes", "1")], "from 1048576"),
        (&[("durability", "0")], "from 1 to 4"),
        (&[("remote.storage.enable", "true")], "not supported yet"),
        (&[("flush.messages", "1"), ("durability", "4")], "durability=4"),
        (&[("min.insync.replicas", "2")], "one replica"),
        (&[("compression.gzip.level", "0")], "-1 or"),
        (&[("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")], "above"),
    ] {
        let error = check(pairs).expect_err("refused");
        assert!(error.contains(part), "{pairs:?}: {error}");
    }
}

#[test]
fn unknown_stored_topic_config_does_not_hide_the_others() {
    let config = BrokerConfig::default();
    let stored = [("retention.ms", "5"), ("gone.with.the.wind", "1"), ("segment.ms", "0")];
    let overrides = stored.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let options = config.topic_options("t", &overrides);
    assert_eq!((options.retention_ms, options.segment_ms), (5, 604_800_000));
}

#[test]
fn journal_lies_in_the_data_directory_by_default() {
    let dirs = |pairs: &[(&str, &str)]| {
        BrokerConfig::from_pairs(pairs.iter().copied()).expect("valid").journal_dirs()
    };
    assert_eq!(dirs(&[("data.dir", "/d")]), [PathBuf::from("/d/journal")]);
    assert_eq!(
        dirs(&[("data.dir", "/d"), ("journal.dirs", "/x,/y")]),
        [PathBuf::from("/x"), PathBuf::from("/y")]
    );
}
