//! The options of a consumer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use riverrun_types::{Offset, TimestampMs};

use super::group::Assignor;
use crate::cluster::ClusterOptions;
use crate::error::ClientError;
use crate::list_offsets::{Isolation, OffsetSpec};
use crate::options::{Kind, OptionValue, options};

/// The protocol by which a group assigns partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupProtocol {
    /// One member computes the assignment; all members join again when it changes.
    #[default]
    Classic,
    /// The server computes the assignment and moves partitions one by one (KIP-848).
    Consumer,
}

/// Place to begin if no offset is committed, or the position is out of range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OffsetReset {
    /// At the first record that is kept.
    Earliest,
    /// At the next record that is written.
    #[default]
    Latest,
    /// At the first record that is at most this old, or the next one written if there is none (KIP-1106).
    Ago(Duration),
    /// Nowhere: [`poll`](super::Consumer::poll) fails.
    Error,
}

impl OffsetReset {
    /// Place to begin; `None` for an error.
    pub(super) fn start(self) -> Option<StartAt> {
        match self {
            Self::Earliest => Some(StartAt::Earliest),
            Self::Latest => Some(StartAt::Latest),
            Self::Ago(time) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let then = now.saturating_sub(time).as_millis();
                Some(StartAt::Timestamp(TimestampMs(i64::try_from(then).unwrap_or(i64::MAX))))
            }
            Self::Error => None,
        }
    }
}

/// Place to begin reading a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// At the first record that is kept.
    Earliest,
    /// At the next record that is written.
    Latest,
    /// At this offset, which is not below 0.
    Offset(Offset),
    /// At the first record of at least this timestamp, or the next one written if there is none. Not below 0: on the
    /// wire such times have other meanings.
    Timestamp(TimestampMs),
    /// At the group's committed offset, or by [`OffsetReset`] if there is none.
    Committed,
}

impl StartAt {
    /// The question for the partition's leader.
    pub(super) fn spec(self) -> OffsetSpec {
        match self {
            Self::Latest => OffsetSpec::Latest,
            Self::Timestamp(timestamp) => OffsetSpec::Timestamp(timestamp),
            Self::Earliest | Self::Committed | Self::Offset(_) => OffsetSpec::Earliest,
        }
    }
}

/// The largest 32-bit number of the wire.
const WIRE_MAX: i64 = i32::MAX as i64;

options! {
    /// How a consumer reads.
    pub struct ConsumerOptions {
        /// The servers.
        cluster: ClusterOptions;
    }

    /// The group to commit to, and to share topics with.
    group: Option<String> = "group.id", Kind::Text("a name, or empty"), None;
    /// How the group assigns partitions: classic, where one member computes the assignment and all join again when it
    /// changes, or consumer, where the server computes it and moves partitions one by one (KIP-848).
    group_protocol: GroupProtocol = "group.protocol", Kind::Choice(&["classic", "consumer"]), Some("classic");
    /// Classic protocol: the assignors that this member offers, the best first; the group uses one that all its
    /// members offer. A member that offers only cooperative-sticky gives up nothing while it joins again. A member
    /// that offers another one, too, gives up everything, whichever the group uses. As with Kafka's consumers, a
    /// group moves to cooperative-sticky when its members, which offer it by default, are restarted one by one
    /// without range. Kafka's class names are accepted, too. With the consumer protocol only the default is accepted.
    assignors: Vec<Assignor> = "partition.assignment.strategy",
        Kind::List("a list of range, roundrobin and cooperative-sticky"), Some("range,cooperative-sticky");
    /// KIP-848: the server's assignor; not set for its default. Refused with the classic protocol.
    server_assignor: Option<String> = "group.remote.assignor", Kind::Text("a name, or empty"), None;
    /// Name of this member across restarts (static membership): it does not leave the group when it ends.
    instance_id: Option<String> = "group.instance.id", Kind::Text("a name, or empty"), None;
    /// Classic protocol: time without heartbeats after which the group removes a member. With KIP-848 the server sets
    /// it, and only the default is accepted.
    session_timeout: Duration = "session.timeout.ms", Kind::Millis(1, WIRE_MAX), Some("45000");
    /// Classic protocol: time between heartbeats. With KIP-848 the server sets it, and only the default is accepted.
    heartbeat_interval: Duration = "heartbeat.interval.ms", Kind::Millis(1, WIRE_MAX), Some("3000");
    /// Longest time between two polls. A consumer that exceeds it leaves its group, so that other members read on,
    /// and joins again with the next poll. It is also the time in which members give up partitions in a rebalance.
    rebalance_timeout: Duration = "max.poll.interval.ms", Kind::Millis(1, WIRE_MAX), Some("300000");
    /// Whether the positions after the records that poll has returned are committed automatically: at an interval,
    /// before partitions are given up, and at the end.
    auto_commit: bool = "enable.auto.commit", Kind::Bool, Some("true");
    /// Time between automatic commits; not set or -1 for none, and 0 for one with every poll.
    auto_commit_interval: Option<Duration> = "auto.commit.interval.ms",
        Kind::Millis(-1, WIRE_MAX), Some("5000");
    /// Place to begin if no offset is committed, or the position is out of range: at the first record (earliest), at
    /// the next (latest), a time ago (`by_duration:` and an ISO 8601 time such as PT1H), or with an error of poll
    /// (none).
    offset_reset: OffsetReset = "auto.offset.reset",
        Kind::Text("earliest, latest, none or by_duration:PnDTnHnMnS"), Some("latest");
    /// Bytes that the server waits for before it answers a fetch.
    fetch_min_bytes: i32 = "fetch.min.bytes", Kind::Int(0, WIRE_MAX), Some("1");
    /// Most bytes of one answer, except for a first batch that is larger: with 0 one batch at a time.
    fetch_max_bytes: i32 = "fetch.max.bytes", Kind::Int(0, WIRE_MAX), Some("52428800");
    /// Most bytes of one partition in one answer, except for a first batch that is larger.
    partition_max_bytes: i32 = "max.partition.fetch.bytes", Kind::Int(0, WIRE_MAX), Some("1048576");
    /// How long the server waits for fetch.min.bytes.
    fetch_wait_max: Duration = "fetch.max.wait.ms", Kind::Millis(0, WIRE_MAX), Some("500");
    /// Most bytes buffered for later polls; fetches in flight count in full. Buffered records of paused partitions
    /// come on top: at most two answers of each. Kafka's consumer has no such bound.
    read_ahead_bytes: usize = "read.ahead.bytes", Kind::Int(0, i64::MAX), Some("67108864");
    /// Which records are visible.
    isolation: Isolation = "isolation.level",
        Kind::Choice(&["read_uncommitted", "read_committed"]), Some("read_uncommitted");
    /// Records at which poll takes no further batch; so it returns at most one batch more, for batches are returned
    /// whole.
    poll_records: usize = "max.poll.records", Kind::Int(1, WIRE_MAX), Some("500");
    /// Whether the checksum of each batch is verified before it is read.
    check_crcs: bool = "check.crcs", Kind::Bool, Some("true");
    /// Rack or zone of this consumer: leaders refer it to a replica there if there is one (KIP-392), and it is
    /// reported to the group (KIP-881, KIP-848).
    rack: Option<String> = "client.rack", Kind::Text("a name, or empty"), None;
}

impl ConsumerOptions {
    /// Defaults, without a group.
    pub fn new(cluster: ClusterOptions) -> Self {
        Self::defaults(cluster)
    }

    /// Options from their names and texts, `bootstrap.servers` among them.
    pub fn from_properties<'a>(
        properties: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ClientError> {
        let mut options = Self::new(ClusterOptions::new(""));
        for (name, value) in properties {
            options.set(name, value)?;
        }
        Ok(options)
    }

    /// Sets one option from its text.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ClientError> {
        let known = self
            .set_own(name, value)
            .and_then(|known| if known { Ok(true) } else { self.cluster.set_own(name, value) });
        match known {
            Ok(true) => Ok(()),
            Ok(false) => Err(ClientError::Invalid(format!("a consumer has no option {name}"))),
            Err(text) => Err(ClientError::Invalid(text)),
        }
    }

    /// The text of one option.
    pub fn get(&self, name: &str) -> Option<String> {
        self.get_own(name).or_else(|| self.cluster.get_own(name))
    }

    /// Time between automatic commits; `None` without them.
    pub(super) fn commit_interval(&self) -> Option<Duration> {
        self.auto_commit_interval.filter(|_| self.auto_commit)
    }

    /// Fails if options contradict each other; a consumer with them could not be created.
    pub fn check(&self) -> Result<(), ClientError> {
        let invalid = |text: &str| Err(ClientError::Invalid(text.to_owned()));
        if self.group.as_ref().is_some_and(String::is_empty) {
            return invalid("a group's name is not empty");
        }
        if self.assignors.is_empty() && self.group_protocol == GroupProtocol::Classic {
            return invalid("the classic protocol needs an assignor");
        }
        self.check_protocol()?;
        let classic = self.group.is_some() && self.group_protocol == GroupProtocol::Classic;
        if classic && self.heartbeat_interval >= self.session_timeout {
            return invalid("heartbeat.interval.ms must be below session.timeout.ms");
        }
        self.check_own()?;
        self.cluster.check_own()
    }

    /// Refuses options without effect in the group's protocol, unless they have their defaults. (Kafka's consumer
    /// refuses them if they are set at all.) There the server, or the leader, decides.
    fn check_protocol(&self) -> Result<(), ClientError> {
        use GroupProtocol::{Classic, Consumer};
        let usual = Self::defaults(ClusterOptions::new(""));
        // True for an option that is set without effect.
        let table = [
            ("group.remote.assignor", Classic, self.server_assignor.is_some()),
            ("partition.assignment.strategy", Consumer, self.assignors != usual.assignors),
            ("session.timeout.ms", Consumer, self.session_timeout != usual.session_timeout),
            ("heartbeat.interval.ms", Consumer, self.heartbeat_interval != usual.heartbeat_interval),
        ];
        let protocol = self.group_protocol;
        match table.into_iter().find(|(_, useless_in, is_set)| *is_set && *useless_in == protocol) {
            Some((name, ..)) => {
                let protocol = protocol.to_text();
                Err(ClientError::Invalid(format!("{name} cannot be set with group.protocol={protocol}")))
            }
            None => Ok(()),
        }
    }

    /// Sets the client's name if none is configured.
    pub(super) fn name_client(&mut self, number: impl FnOnce() -> u64) {
        let Self { cluster, group, instance_id, .. } = self;
        cluster.name_client(|| match (group, instance_id) {
            (Some(group), Some(instance)) => format!("consumer-{group}-{instance}"),
            (Some(group), None) => format!("consumer-{group}-{}", number()),
            (None, _) => format!("consumer-{}", number()),
        });
    }
}

macro_rules! by_words {
    ($type:ty: $($value:path = $word:literal),+) => {
        impl OptionValue for $type {
            /// Case-insensitive.
            fn from_text(text: &str) -> Option<Self> {
                match text.to_ascii_lowercase().as_str() {
                    $($word => Some($value),)+
                    _ => None,
                }
            }

            fn to_text(&self) -> String {
                match self {
                    $($value => $word,)+
                }
                .to_owned()
            }
        }
    };
}
by_words!(GroupProtocol: GroupProtocol::Classic = "classic", GroupProtocol::Consumer = "consumer");
by_words!(
    Isolation: Isolation::ReadUncommitted = "read_uncommitted",
    Isolation::ReadCommitted = "read_committed"
);

impl OptionValue for Assignor {
    fn from_text(text: &str) -> Option<Self> {
        Self::from_name(text).or(match text {
            "org.apache.kafka.clients.consumer.RangeAssignor" => Some(Self::Range),
            "org.apache.kafka.clients.consumer.RoundRobinAssignor" => Some(Self::RoundRobin),
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor" => Some(Self::CooperativeSticky),
            _ => None,
        })
    }

    fn to_text(&self) -> String {
        self.name().to_owned()
    }
}

/// Prefix of the time in `auto.offset.reset`.
const BY_DURATION: &str = "by_duration:";

impl OptionValue for OffsetReset {
    fn from_text(text: &str) -> Option<Self> {
        match text {
            "earliest" => Some(Self::Earliest),
            "latest" => Some(Self::Latest),
            "none" => Some(Self::Error),
            _ => read_iso_duration(text.strip_prefix(BY_DURATION)?).map(Self::Ago),
        }
    }

    fn to_text(&self) -> String {
        match self {
            Self::Earliest => "earliest".to_owned(),
            Self::Latest => "latest".to_owned(),
            Self::Error => "none".to_owned(),
            Self::Ago(time) => format!("{BY_DURATION}PT{}S", time.as_secs_f64()),
        }
    }
}

/// An ISO 8601 time of days, hours, minutes and seconds.
fn read_iso_duration(text: &str) -> Option<Duration> {
    let (days, time) = match text.strip_prefix('P')?.split_once('T') {
        Some((_, "")) => return None,
        Some((days, time)) => (days, time),
        None => (text.strip_prefix('P')?, ""),
    };
    let mut rest = days;
    let mut total = Duration::ZERO;
    for (units, part) in [(&[('D', 86_400)][..], days), (&[('H', 3600), ('M', 60), ('S', 1)][..], time)] {
        rest = part;
        for (unit, seconds) in units {
            let Some((number, after)) = rest.split_once(*unit) else { continue };
            let seconds = number.parse::<f64>().ok()? * f64::from(*seconds);
            total = total.checked_add(Duration::try_from_secs_f64(seconds).ok()?)?;
            rest = after;
        }
        if !rest.is_empty() {
            return None;
        }
    }
    (rest.is_empty() && text.len() > 1).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_without_effect_in_the_protocol_are_refused() {
        let check = |protocol, name, value| {
            let given = [("bootstrap.servers", "a:1"), ("group.id", "g"), ("group.protocol", protocol)];
            ConsumerOptions::from_properties(given.into_iter().chain([(name, value)])).unwrap().check()
        };
        for (protocol, other, name, value) in [
            ("consumer", "classic", "session.timeout.ms", "30000"),
            ("consumer", "classic", "heartbeat.interval.ms", "1000"),
            ("consumer", "classic", "partition.assignment.strategy", "range"),
            ("classic", "consumer", "group.remote.assignor", "uniform"),
        ] {
            let refused = check(protocol, name, value).unwrap_err().to_string();
            assert!(refused.contains(name) && refused.contains(protocol), "{refused}");
            assert!(check(other, name, value).is_ok(), "{other} {name}");
        }
    }

    #[test]
    fn a_reset_may_go_back_by_a_time() {
        for (text, seconds) in [("PT1H", 3600), ("P1D", 86_400), ("P1DT2H3M4S", 93_784), ("PT90S", 90)] {
            let reset = OffsetReset::from_text(&format!("by_duration:{text}"));
            assert_eq!(reset, Some(OffsetReset::Ago(Duration::from_secs(seconds))), "{text}");
            assert_eq!(OffsetReset::from_text(&reset.unwrap().to_text()), reset);
        }
        for bad in
            ["by_duration:", "by_duration:P", "by_duration:PT", "by_duration:1H", "by_duration:PT1", "soon"]
        {
            assert_eq!(OffsetReset::from_text(bad), None, "{bad}");
        }
    }

    #[test]
    fn assignors_have_kafka_s_class_names_too() {
        let mut options = ConsumerOptions::new(ClusterOptions::new("a:1"));
        let names = "org.apache.kafka.clients.consumer.RoundRobinAssignor, cooperative-sticky";
        options.set("partition.assignment.strategy", names).unwrap();
        assert_eq!(options.assignors, [Assignor::RoundRobin, Assignor::CooperativeSticky]);
    }

    #[test]
    fn range_comes_first_and_cooperative_sticky_is_offered() {
        let options = ConsumerOptions::new(ClusterOptions::new("a:1"));
        assert_eq!(options.assignors, [Assignor::Range, Assignor::CooperativeSticky]);
    }

    #[test]
    fn consumer_without_a_client_id_is_named_after_its_group() {
        let name = |pairs: &[(&'static str, &'static str)]| {
            let mut options = ConsumerOptions::from_properties(pairs.iter().copied()).unwrap();
            options.name_client(|| 7);
            options.cluster.client_id
        };
        assert_eq!(name(&[]), "consumer-7");
        assert_eq!(name(&[("group.id", "g")]), "consumer-g-7");
        assert_eq!(name(&[("group.id", "g"), ("group.instance.id", "i")]), "consumer-g-i");
        assert_eq!(name(&[("group.id", "g"), ("client.id", "me")]), "me");
    }

    #[test]
    fn heartbeat_interval_must_be_below_the_session_timeout() {
        let check = |pairs: &[(&'static str, &'static str)]| {
            let slow = [("heartbeat.interval.ms", "45000")];
            ConsumerOptions::from_properties(slow.into_iter().chain(pairs.iter().copied())).unwrap().check()
        };
        let refused = check(&[("group.id", "g")]).unwrap_err().to_string();
        assert!(
            refused.contains("heartbeat.interval.ms") && refused.contains("session.timeout.ms"),
            "{refused}"
        );
        assert!(check(&[]).is_ok());
    }

    #[test]
    fn commits_are_turned_off_by_either_option() {
        let mut options = ConsumerOptions::new(ClusterOptions::new("a:1"));
        assert_eq!(options.commit_interval(), Some(Duration::from_secs(5)));
        options.set("enable.auto.commit", "false").unwrap();
        assert_eq!(options.commit_interval(), None);
        options.set("enable.auto.commit", "true").unwrap();
        options.set("auto.commit.interval.ms", "-1").unwrap();
        assert_eq!(options.commit_interval(), None);
    }
}
