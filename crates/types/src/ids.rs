//! Newtypes of the field's words. Each says its unit and range; none converts silently into another.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use thiserror::Error;

/// Java's decoder ignores the spare bits of the last character, so ids that Kafka accepts may have some set.
const ENGINE: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// Position of a record in a partition, counted in records from 0. Negative values are Kafka's sentinels and
/// never name a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub i64);

impl Offset {
    /// The first offset of every partition.
    pub const ZERO: Self = Self(0);

    /// The offset after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// This offset moved by `delta` records.
    #[must_use]
    pub fn plus(self, delta: i64) -> Self {
        Self(self.0 + delta)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Byte position in a file or a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Leader epoch of a partition: 0 at its creation, and one more with each start of the node that leads it. -1 is
/// Kafka's "unknown".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaderEpoch(pub i32);

impl LeaderEpoch {
    /// Kafka's sentinel for "no epoch given".
    pub const UNKNOWN: Self = Self(-1);
}

/// Milliseconds since 1970-01-01 UTC; -1 is Kafka's "no timestamp".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimestampMs(pub i64);

impl TimestampMs {
    /// Kafka's sentinel for "no timestamp".
    pub const NONE: Self = Self(-1);
}

/// Broker id, 0 and up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub i32);

/// Id of an idempotent producer, given by `InitProducerId`; -1 is "none".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerId(pub i64);

impl ProducerId {
    /// A producer without idempotence.
    pub const NONE: Self = Self(-1);
}

/// Epoch of a producer id: a newer one fences the older.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerEpoch(pub i16);

/// A topic's identity: 128 bits, printed as Kafka prints its `Uuid` (22 characters of URL-safe base64).
/// All zeros is Kafka's "no id".
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// Kafka's sentinel for "no id given".
    pub const ZERO: Self = Self([0; 16]);

    /// Whether this is the sentinel.
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&ENGINE.encode(self.0))
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicId({self})")
    }
}

/// The text is not 22 characters of URL-safe base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a topic id is 22 characters of URL-safe base64")]
pub struct ParseTopicIdError;

impl FromStr for TopicId {
    type Err = ParseTopicIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = ENGINE.decode(text).map_err(|_| ParseTopicIdError)?;
        Ok(Self(bytes.try_into().map_err(|_| ParseTopicIdError)?))
    }
}

/// One partition of one topic, by identity and not by name, so that a topic made again under an old name never
/// meets the old one's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId {
    /// The topic.
    pub topic: TopicId,
    /// Partition index, 0 and up.
    pub index: i32,
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_id_prints_and_parses_as_kafka_does() {
        let id: TopicId = "MkU3OEVBNTcwNTJENDM2Qk".parse().expect("a Kafka uuid");
        assert_eq!(id.to_string().len(), 22);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("not an id".parse::<TopicId>(), Err(ParseTopicIdError));
        assert_eq!("../../../../etc/passwd".parse::<TopicId>(), Err(ParseTopicIdError));
    }
}
