//! The options of a producer.

use std::time::Duration;

use riverrun_records::Compression;
use riverrun_types::Acks;

use super::partitioner::PartitionerChoice;
use crate::cluster::ClusterOptions;
use crate::error::ClientError;
use crate::options::{Kind, options};

/// The only level of the LZ4 encoder, by Kafka's numbering.
const LZ4_LEVEL: i32 = 9;

/// Largest `batch.size`: the format counts a batch's bytes in 31 bits.
const BATCH_BYTES_MAX: i64 = i32::MAX as i64;

/// Longest delivery timeout.
const DELIVERY_TIMEOUT_MAX: Duration = Duration::from_millis(i32::MAX as u64);

options! {
    /// How a producer sends.
    pub struct ProducerOptions {
        /// The servers.
        cluster: ClusterOptions;
    }

    /// Which replicas must have a record before it counts as delivered: none (0), the partition's leader (1), or as
    /// many as the topic's durability asks for (all).
    acks: Acks = "acks", Kind::Choice(&["0", "1", "all", "-1"]), Some("all");
    /// Whether the server recognises batches that it has already, so that retries neither repeat nor reorder records.
    /// Needs acks=all.
    idempotent: bool = "enable.idempotence", Kind::Bool, Some("true");
    /// The codec of the batches.
    compression: Compression = "compression.type",
        Kind::Choice(&["none", "gzip", "snappy", "lz4", "zstd"]), Some("none");
    /// Effort of gzip: from 1, the fastest, to 9, the smallest; -1 for its own default.
    gzip_level: i32 = "compression.gzip.level", Kind::OneOrInt(-1, 1, 9), Some("-1");
    /// The LZ4 encoder here has one level: with `compression.type=lz4` only the default is accepted.
    lz4_level: i32 = "compression.lz4.level", Kind::Int(1, 17), Some("9");
    /// Effort of Zstandard: the higher, the slower and the smaller.
    zstd_level: i32 = "compression.zstd.level", Kind::Int(-131_072, 22), Some("3");
    /// How long a batch waits for more records.
    linger: Duration = "linger.ms", Kind::Millis(0, i64::MAX), Some("5");
    /// Bytes of a batch, before compression, at which it is sent without waiting. A longer record gets a batch of its
    /// own. With 0 every record is a batch.
    batch_bytes: usize = "batch.size", Kind::Int(0, BATCH_BYTES_MAX), Some("16384");
    /// Most bytes of memory of undelivered batches; sending waits above that. Besides its records and the room for
    /// more, a batch counts with 640 bytes and its callbacks and tags, so that many small ones, as with thousands of
    /// partitions, fill the buffer with fewer records. A record that is larger than the whole buffer is refused.
    buffer_bytes: usize = "buffer.memory", Kind::Int(0, i64::MAX), Some("33554432");
    /// Most bytes of one request's records, and so of one record: a longer one is refused, and with 0 every one.
    request_bytes_max: usize = "max.request.size", Kind::Int(0, BATCH_BYTES_MAX), Some("1048576");
    /// How long sending a record may wait for the topic, for the partition that the record names, and for room in the
    /// buffer.
    block_max: Duration = "max.block.ms", Kind::Millis(0, i64::MAX), Some("60000");
    /// How long delivery of a record is tried. A request that is in flight at that time is still waited for. If this
    /// is not set and `linger.ms` and `request.timeout.ms` together are longer, it is as long as they are; Kafka's
    /// producer refuses a lower value.
    delivery_timeout: Duration = "delivery.timeout.ms", Kind::Millis(0, i32::MAX as i64), Some("120000");
    /// How often a batch is sent again after a retriable error, within the delivery timeout.
    retries: u32 = "retries", Kind::Int(0, i32::MAX as i64), Some("2147483647");
    /// The partitioner of records that name no partition: uniform-sticky (KIP-794); sticky (KIP-480); round-robin,
    /// which gives every record to the next partition whatever its key; keyed-round-robin, which does so with records
    /// without a key only, as Kafka's default did before KIP-480. Names of Kafka's classes are accepted, too:
    /// `DefaultPartitioner` is sticky, `RoundRobinPartitioner` is round-robin, and `UniformStickyPartitioner`, which
    /// is not uniform-sticky, is sticky for all records, whatever their keys.
    partitioner: PartitionerChoice = "partitioner.class",
        Kind::Text("uniform-sticky, sticky, round-robin or keyed-round-robin"), Some("uniform-sticky");
    /// Whether records with a key are spread as if they had none, by the partitioners that honour keys.
    partitioner_ignore_keys: bool = "partitioner.ignore.keys", Kind::Bool, Some("false");
    /// Whether the uniform sticky partitioner gives fewer records to partitions whose leader takes batches more
    /// slowly.
    partitioner_adaptive: bool = "partitioner.adaptive.partitioning.enable", Kind::Bool, Some("true");
    /// Time for which a leader may take none of its waiting batches before the uniform sticky partitioner avoids its
    /// partitions; 0 for any time.
    partitioner_availability_timeout: Duration = "partitioner.availability.timeout.ms",
        Kind::Millis(0, i64::MAX), Some("0");
}

impl ProducerOptions {
    /// Defaults: every record acknowledged by all in-sync replicas, once and in order.
    pub fn new(cluster: ClusterOptions) -> Self {
        Self::defaults(cluster)
    }

    /// Options from their names and texts, including `bootstrap.servers`. As with Kafka's own client, `acks` other
    /// than `all` and zero retries turn idempotence off unless it is requested; and the delivery timeout is at least
    /// as long as one attempt, unless it is set.
    pub fn from_properties<'a>(
        properties: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ClientError> {
        let mut options = Self::new(ClusterOptions::new(""));
        let (mut asked, mut timed) = (false, false);
        for (name, value) in properties {
            asked |= name == "enable.idempotence";
            timed |= name == "delivery.timeout.ms";
            options.set(name, value)?;
        }
        options.idempotent &= asked || (options.acks == Acks::All && options.retries > 0);
        if !timed {
            let least = options.linger.saturating_add(options.cluster.request_timeout);
            options.delivery_timeout = options.delivery_timeout.max(least.min(DELIVERY_TIMEOUT_MAX));
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
            Ok(false) => Err(ClientError::Invalid(format!("a producer has no option {name}"))),
            Err(text) => Err(ClientError::Invalid(text)),
        }
    }

    /// The text of one option.
    pub fn get(&self, name: &str) -> Option<String> {
        self.get_own(name).or_else(|| self.cluster.get_own(name))
    }

    /// Fails if options contradict each other; a producer with them could not be created.
    pub fn check(&self) -> Result<(), ClientError> {
        let invalid = |text: &str| Err(ClientError::Invalid(text.to_owned()));
        if self.idempotent && self.acks != Acks::All {
            return invalid("an idempotent producer needs acks=all");
        }
        if self.idempotent && self.retries == 0 {
            return invalid("an idempotent producer needs retries of at least 1");
        }
        if self.compression == Compression::Lz4 && self.lz4_level != LZ4_LEVEL {
            return invalid("the lz4 codec of this client has one level: compression.lz4.level is 9");
        }
        self.check_own()?;
        self.cluster.check_own()
    }

    /// Fails for a record of this size that no request could hold, or that would wait for ever for room in the
    /// buffer.
    pub fn check_record_bytes(&self, bytes: usize) -> Result<(), ClientError> {
        let limits = [("max.request.size", self.request_bytes_max), ("buffer.memory", self.buffer_bytes)];
        match limits.into_iter().find(|(_, limit)| bytes > *limit) {
            Some((option, limit)) => Err(ClientError::RecordTooLarge { bytes, option, limit }),
            None => Ok(()),
        }
    }

    /// The level of the codec in use, if it has levels.
    pub(super) fn compression_level(&self) -> Option<i32> {
        match self.compression {
            Compression::Gzip => Some(self.gzip_level),
            Compression::Zstd => Some(self.zstd_level),
            Compression::None | Compression::Snappy | Compression::Lz4 => None,
        }
    }

    /// `acks` as the wire has it.
    pub(super) fn wire_acks(&self) -> i16 {
        match self.acks {
            Acks::None => 0,
            Acks::Leader => 1,
            Acks::All => -1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_codec_has_its_level_and_that_of_the_codec_in_use_counts() {
        let given = |codec| {
            let levels = [("compression.gzip.level", "7"), ("compression.zstd.level", "-5")];
            let more = [("bootstrap.servers", "a:1"), ("compression.type", codec)];
            ProducerOptions::from_properties(levels.into_iter().chain(more)).unwrap()
        };
        for (codec, level) in
            [("gzip", Some(7)), ("lz4", None), ("zstd", Some(-5)), ("snappy", None), ("none", None)]
        {
            assert_eq!(given(codec).compression_level(), level, "{codec}");
            assert!(given(codec).check().is_ok(), "{codec}");
        }
        let fast = |codec| ProducerOptions { lz4_level: 1, ..given(codec) };
        assert!(fast("lz4").check().is_err() && fast("zstd").check().is_ok(), "it is not in use");
        let zero = |codec| ProducerOptions { gzip_level: 0, ..given(codec) };
        assert!(zero("gzip").check().is_err() && zero("zstd").check().is_err());
    }

    #[test]
    fn delivery_timeout_defaults_to_at_least_one_attempt() {
        let given = |pairs: &[(&'static str, &'static str)]| {
            ProducerOptions::from_properties(pairs.iter().copied()).unwrap().delivery_timeout.as_millis()
        };
        assert_eq!(given(&[]), 120_000);
        assert_eq!(given(&[("linger.ms", "150000")]), 180_000);
        assert_eq!(given(&[("linger.ms", "9223372036854775807")]), 2_147_483_647);
        assert_eq!(given(&[("delivery.timeout.ms", "500"), ("linger.ms", "150000")]), 500);
    }

    #[test]
    fn a_buffer_may_be_smaller_than_a_request_or_a_batch() {
        for (name, value) in [("buffer.memory", "1000"), ("buffer.memory", "0"), ("max.request.size", "0")] {
            let options = ProducerOptions::from_properties([(name, value)]).unwrap();
            assert!(options.check().is_ok(), "{name}={value}");
        }
    }

    #[test]
    fn fewer_acks_or_no_retries_disable_default_idempotence() {
        let options = ProducerOptions::from_properties([("bootstrap.servers", "a:1, b:2"), ("acks", "1")]);
        let options = options.unwrap();
        assert!(!options.idempotent && options.check().is_ok());
        assert_eq!(options.cluster.bootstrap, ["a:1", "b:2"]);
        let asked =
            ProducerOptions::from_properties([("acks", "1"), ("enable.idempotence", "true")]).unwrap();
        assert!(asked.check().is_err());
        let options = |asked: &[(&'static str, &'static str)]| {
            let given = [("bootstrap.servers", "a:1"), ("retries", "0")];
            ProducerOptions::from_properties([&given, asked].concat()).unwrap()
        };
        assert!(!options(&[]).idempotent && options(&[]).check().is_ok());
        assert!(options(&[("enable.idempotence", "true")]).check().is_err());
    }
}
