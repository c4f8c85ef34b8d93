//! A workload: its topics, producers and consumers, and the load that goes through them.
//!
//! Owns the keys of the file and their defaults. Keys that the original does not know are ours: it ignores them, so one
//! file serves both. Guarantees that a [`Workload`] that was read can be run.

use std::collections::BTreeMap;
use std::time::Duration;

use riverrun_measure::pacing::Rate;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::input::{InputError, from_yaml};
use crate::plan::{Durability, UNTIL_DONE};

/// Minutes of warm-up if the file names none.
const WARMUP_MINUTES: f64 = 1.0;
/// Most topics, partitions, producers or consumers of one workload: each costs this process memory.
const PARTS_MAX: u64 = 1_000_000;
/// Most bytes of one message.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// A long run takes days; a longer duration would have no end.
const MINUTES_MAX: f64 = 60.0 * 24.0 * 30.0;

/// The original's ways to choose keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyDistributor {
    /// No record has a key.
    #[default]
    #[serde(rename = "NO_KEY")]
    None,
    /// Ten thousand keys in turn.
    #[serde(rename = "KEY_ROUND_ROBIN")]
    RoundRobin,
    /// One of ten thousand keys, by the clock.
    #[serde(rename = "RANDOM_NANO")]
    RandomNano,
}

/// A workload as its file has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Workload {
    /// Its title.
    pub name: String,
    /// Topics.
    pub topics: u32,
    /// Partitions of each topic.
    pub partitions_per_topic: u32,
    /// How keys are chosen: one of the names of [`KeyDistributor`]; an unknown one means none, as in the original.
    pub key_distributor: String,
    /// Bytes of a message.
    pub message_size: usize,
    /// Whether messages are generated instead of read from a file.
    pub use_randomized_payloads: bool,
    /// Share of generated messages that is random; the rest is zeros.
    pub random_bytes_ratio: f64,
    /// Number of different generated messages.
    pub randomized_payload_pool_size: u32,
    /// File that holds one message.
    pub payload_file: Option<String>,
    /// Consumer groups of each topic.
    pub subscriptions_per_topic: u32,
    /// Producers of each topic.
    pub producers_per_topic: u32,
    /// Members of each group.
    pub consumer_per_subscription: u32,
    /// Messages a second over all producers. 0 searches for the highest rate that lasts; ours: -1 for no pacing.
    pub producer_rate: f64,
    /// GiB that are written before the groups begin to read.
    #[serde(rename = "consumerBacklogSizeGB")]
    pub consumer_backlog_size_gb: f64,
    /// Share of the backlog that must be read before the run may end.
    pub backlog_drain_ratio: Option<f64>,
    /// Minutes of the measurement.
    pub test_duration_minutes: f64,
    /// Minutes of warm-up.
    pub warmup_duration_minutes: Option<f64>,

    /// Ours: the failure that acked messages survive: `sync`, `async`, or a level from 1 to 4; `None` for the server's
    /// default.
    #[serde(deserialize_with = "word_or_number")]
    pub durability: Option<String>,
    /// Ours: minutes for which the disk of the server is full, from a third of the measurement on.
    pub disk_full_minutes: f64,
    /// Ours: how keys are chosen, as `riverrun perf` names it; in place of `keyDistributor`.
    pub keys: Option<String>,
    /// Ours: number of different keys.
    pub key_count: Option<u64>,
    /// Ours: most unacked messages of a producer.
    pub in_flight: Option<u32>,
    /// Ours: groups of each topic that begin at its beginning when the backlog is written, beside the others.
    pub catch_up_subscriptions_per_topic: u32,
    /// Ours: whether producers stop when the backlog is written, so that it is read alone.
    pub read_alone: bool,
    /// Ours: whether consumers take partitions by themselves, without a group.
    pub without_group: bool,
    /// Ours: the run ends when this many messages were sent (read, if nobody sends), if that is before its time.
    pub messages: Option<u64>,

    /// Other keys of the file.
    #[serde(flatten, skip_serializing)]
    pub(crate) unknown: BTreeMap<String, Value>,
}

/// YAML reads a level as a number.
fn word_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let value = Option::<Value>::deserialize(deserializer)?;
    Ok(value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
}

impl Workload {
    /// Reads a workload; `file` is for errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, InputError> {
        let workload: Self = from_yaml(file, text)?;
        workload.checked(file)
    }

    /// The workload, if it can be run.
    pub fn checked(self, file: &str) -> Result<Self, InputError> {
        match self.fault() {
            Some(reason) => Err(InputError::refused(file, reason)),
            None => Ok(self),
        }
    }

    fn fault(&self) -> Option<String> {
        let at_least_one = [
            ("topics", u64::from(self.topics)),
            ("partitionsPerTopic", u64::from(self.partitions_per_topic)),
            ("messageSize", self.message_size as u64),
        ];
        if let Some((key, _)) = at_least_one.iter().find(|(_, value)| *value == 0) {
            return Some(format!("{key} is missing, or 0"));
        }
        if self.message_size > MESSAGE_BYTES_MAX {
            return Some(format!("messageSize is above {MESSAGE_BYTES_MAX}"));
        }
        if let Some((what, count)) = self.parts().into_iter().find(|(_, count)| *count > PARTS_MAX) {
            return Some(format!("{count} {what} are more than {PARTS_MAX}"));
        }
        self.fault_of_groups()
            .or_else(|| self.fault_of_numbers())
            .or_else(|| self.fault_of_backlog())
            .or_else(|| self.fault_of_messages().map(str::to_owned))
    }

    fn parts(&self) -> [(&'static str, u64); 4] {
        let topics = u64::from(self.topics);
        let groups =
            u64::from(self.subscriptions_per_topic) + u64::from(self.catch_up_subscriptions_per_topic);
        let partitions = topics * u64::from(self.partitions_per_topic);
        [
            ("partitions", partitions),
            ("producers", topics * u64::from(self.producers_per_topic)),
            (
                "consumers",
                topics.saturating_mul(groups).saturating_mul(self.consumer_per_subscription.max(1).into()),
            ),
            // Members of a group get their partitions from the server, so only those without a group count.
            (
                "partitions to read withoutGroup",
                if self.without_group { partitions.saturating_mul(groups) } else { 0 },
            ),
        ]
    }

    fn fault_of_groups(&self) -> Option<String> {
        if self.producers_per_topic == 0 {
            return Some(
                "producersPerTopic is 0 or missing: a run's topics are new, and nothing would be in them"
                    .to_owned(),
            );
        }
        if self.subscriptions_per_topic > 0 && self.consumer_per_subscription == 0 {
            return Some("subscriptionsPerTopic without consumerPerSubscription".to_owned());
        }
        match self.durability.as_deref() {
            Some(text) if text.parse::<Durability>().is_err() => {
                Some(format!("durability is sync, async, or a level from 1 to 4, not {text:?}"))
            }
            _ => None,
        }
    }

    fn fault_of_numbers(&self) -> Option<String> {
        let rate = self.producer_rate;
        let is_rate = Rate::per_second(rate).is_some();
        if !(is_rate || rate == 0.0 || (rate + 1.0).abs() < f64::EPSILON) {
            let least = Rate::MIN;
            return Some(format!("producerRate is {rate}, and not 0, -1 or a number of at least {least}"));
        }
        let minutes = [self.test_duration_minutes, self.warmup_minutes()];
        if minutes.iter().any(|minutes| !(0.0..=MINUTES_MAX).contains(minutes)) {
            return Some(format!("durations lie between 0 and {MINUTES_MAX} minutes"));
        }
        if !(0.0..=self.test_duration_minutes / 3.0).contains(&self.disk_full_minutes) {
            return Some("diskFullMinutes is at most a third of testDurationMinutes".to_owned());
        }
        if self.test_duration_minutes == 0.0 && self.messages.is_none() {
            return Some("testDurationMinutes is missing, or 0".to_owned());
        }
        let ratio = |value: f64| (0.0..=1.0).contains(&value);
        if !ratio(self.random_bytes_ratio) || !ratio(self.drain_ratio()) {
            return Some("randomBytesRatio and backlogDrainRatio lie between 0 and 1".to_owned());
        }
        (self.in_flight == Some(0)).then(|| "inFlight is at least 1".to_owned())
    }

    fn fault_of_backlog(&self) -> Option<String> {
        let backlog = self.consumer_backlog_size_gb;
        if !(backlog.is_finite() && backlog >= 0.0) {
            return Some(format!("consumerBacklogSizeGB is {backlog}"));
        }
        if backlog > 0.0 && self.producer_rate == 0.0 {
            return Some(
                "consumerBacklogSizeGB with producerRate 0: a search has no rate to build it with".to_owned(),
            );
        }
        let readers = self.subscriptions_per_topic.max(self.catch_up_subscriptions_per_topic);
        if backlog > 0.0 && readers == 0 {
            return Some("consumerBacklogSizeGB needs subscriptions".to_owned());
        }
        if self.read_alone && backlog == 0.0 {
            return Some("readAlone needs consumerBacklogSizeGB".to_owned());
        }
        if self.catch_up_subscriptions_per_topic > 0 && backlog == 0.0 {
            return Some("catchUpSubscriptionsPerTopic needs consumerBacklogSizeGB".to_owned());
        }
        None
    }

    /// A number of messages ends a run when they are sent.
    fn fault_of_messages(&self) -> Option<&'static str> {
        let messages = self.messages?;
        if messages == 0 {
            return Some("messages is at least 1");
        }
        if self.consumer_backlog_size_gb > 0.0 {
            return Some("messages with consumerBacklogSizeGB: such a run ends when its backlog is read");
        }
        (self.producer_rate == 0.0)
            .then_some("messages with producerRate 0: a search for a rate sends as long as it lasts")
    }

    fn warmup_minutes(&self) -> f64 {
        self.warmup_duration_minutes.unwrap_or(WARMUP_MINUTES)
    }

    /// Time of the measurement; with `messages` alone, as long as these take.
    pub fn test(&self) -> Duration {
        let minutes = self.test_duration_minutes;
        if minutes > 0.0 { Duration::from_secs_f64(minutes * 60.0) } else { UNTIL_DONE }
    }

    /// How long the disk is full within the measurement; `None` if it is left alone.
    pub fn disk_full(&self) -> Option<Duration> {
        (self.disk_full_minutes > 0.0).then(|| Duration::from_secs_f64(self.disk_full_minutes * 60.0))
    }

    /// Time of the load before the measurement.
    pub fn warmup(&self) -> Duration {
        Duration::from_secs_f64(self.warmup_minutes() * 60.0)
    }

    /// Share of the backlog that must be read before the run may end.
    pub fn drain_ratio(&self) -> f64 {
        self.backlog_drain_ratio.unwrap_or(1.0)
    }

    /// How keys are chosen.
    pub fn distributor(&self) -> KeyDistributor {
        match self.key_distributor.as_str() {
            "KEY_ROUND_ROBIN" => KeyDistributor::RoundRobin,
            "RANDOM_NANO" => KeyDistributor::RandomNano,
            _ => KeyDistributor::None,
        }
    }

    /// Settings that were read and have no effect, for people.
    pub fn notes(&self) -> Vec<String> {
        let mut notes: Vec<_> =
            self.unknown.keys().map(|key| format!("workload: unknown key {key} is ignored")).collect();
        if !matches!(self.key_distributor.as_str(), "" | "NO_KEY" | "KEY_ROUND_ROBIN" | "RANDOM_NANO") {
            notes.push(format!("workload: unknown keyDistributor {} means NO_KEY", self.key_distributor));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "# a comment
name: 1 producer / 1 consumers on 1 topic
topics: 1
partitionsPerTopic: 16
messageSize: 1024
payloadFile: \"payload/payload-1Kb.data\"
subscriptionsPerTopic: 1
consumerPerSubscription: 1
producersPerTopic: 1
producerRate: 50000
consumerBacklogSizeGB: 0
testDurationMinutes: 15
";

    fn parse(text: &str) -> Result<Workload, InputError> {
        Workload::parse("w.yaml", text)
    }

    #[test]
    fn file_of_the_original_is_read() {
        let workload = parse(SAMPLE).expect("the file is right");
        assert_eq!(workload.name, "1 producer / 1 consumers on 1 topic");
        assert_eq!((workload.topics, workload.partitions_per_topic, workload.message_size), (1, 16, 1024));
        assert_eq!(workload.payload_file.as_deref(), Some("payload/payload-1Kb.data"));
        assert!((workload.producer_rate - 50_000.0).abs() < f64::EPSILON);
        assert_eq!((workload.test().as_secs(), workload.warmup().as_secs()), (900, 60));
        assert_eq!(workload.distributor(), KeyDistributor::None);
        assert!((workload.drain_ratio() - 1.0).abs() < f64::EPSILON);
        assert_eq!(workload.notes(), Vec::<String>::new());
    }

    #[test]
    fn unknown_keys_are_ignored_and_noted() {
        let text = format!("{SAMPLE}colour: blue\nkeyDistributor: SOME\nkeys: random\n");
        let workload = parse(&text).expect("unknown keys are no error");
        assert_eq!(
            workload.notes(),
            ["workload: unknown key colour is ignored", "workload: unknown keyDistributor SOME means NO_KEY"]
        );
        assert_eq!(workload.keys.as_deref(), Some("random"));
    }

    #[test]
    fn impossible_workload_is_refused_with_its_reason() {
        let cases = [
            ("topics: 1", "topics: 0", "topics is missing"),
            ("messageSize: 1024", "messageSize: 99999999999", "messageSize is above"),
            ("partitionsPerTopic: 16", "partitionsPerTopic: 4000000", "4000000 partitions"),
            ("producerRate: 50000", "producerRate: -2", "producerRate is -2"),
            ("producerRate: 50000", "producerRate: .nan", "producerRate is NaN"),
            ("producerRate: 50000", "producerRate: .inf", "producerRate is inf"),
            ("producerRate: 50000", "producerRate: 9e-7", "or a number of at least 0.000001"),
            ("testDurationMinutes: 15", "testDurationMinutes: 0", "testDurationMinutes is missing"),
            ("testDurationMinutes: 15", "testDurationMinutes: 1e9", "durations lie"),
            ("consumerPerSubscription: 1", "consumerPerSubscription: 0", "without consumerPerSubscription"),
            ("producersPerTopic: 1", "producersPerTopic: 0", "nothing would be in them"),
            ("topics: 1", "topics: 1\nbacklogDrainRatio: 1.5", "backlogDrainRatio lie"),
            ("topics: 1", "topics: 1\ndurability: maybe", "sync, async, or a level"),
            ("topics: 1", "topics: 1\ndurability: 5", "a level from 1 to 4"),
            ("topics: 1", "topics: 1\ndiskFullMinutes: 6", "at most a third"),
            ("topics: 1", "topics: 1\ninFlight: 0", "inFlight is at least 1"),
            (
                "subscriptionsPerTopic: 1",
                "subscriptionsPerTopic: 4294967295\ncatchUpSubscriptionsPerTopic: 1",
                "4294967296 consumers",
            ),
            ("topics: 1", "topics: 1\ncatchUpSubscriptionsPerTopic: 1", "needs consumerBacklogSizeGB"),
            (
                "subscriptionsPerTopic: 1",
                "subscriptionsPerTopic: 62501\nwithoutGroup: true",
                "1000016 partitions to read withoutGroup",
            ),
        ];
        for (old, new, reason) in cases {
            let error = parse(&SAMPLE.replacen(old, new, 1)).expect_err(new);
            assert!(error.to_string().contains(reason), "{new}: {error}");
        }
    }

    #[test]
    fn number_of_messages_ends_a_run() {
        let counted = SAMPLE.replace("testDurationMinutes: 15", "messages: 3000");
        let workload = parse(&counted).expect("it has an end");
        assert_eq!((workload.messages, workload.test()), (Some(3000), UNTIL_DONE));
        let refused = |old: &str, new: &str, reason: &str| {
            let error = parse(&counted.replace(old, new)).expect_err(new);
            assert!(error.to_string().contains(reason), "{new}: {error}");
        };
        refused("SizeGB: 0", "SizeGB: 1", "messages with consumerBacklogSizeGB");
        refused("producerRate: 50000", "producerRate: 0", "messages with producerRate 0");
        refused("messages: 3000", "messages: 0", "messages is at least 1");
    }

    #[test]
    fn backlog_needs_a_rate_to_be_built() {
        let searched = SAMPLE.replace("producerRate: 50000", "producerRate: 0");
        assert!(parse(&searched).is_ok());
        let error = parse(&searched.replace("SizeGB: 0", "SizeGB: 1")).expect_err("both");
        assert!(error.to_string().contains("producerRate 0"), "{error}");
    }
}
