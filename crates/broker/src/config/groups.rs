//! Options of consumer groups and of the topic that holds their offsets.

use riverrun_coordinator::MigrationPolicy;
use riverrun_types::{DurabilityLevel, limits};

use super::definition::Kind::{Bool, Choice, Choices, Int, Long};
use super::definition::{Accept, options};

options! {
    /// Consumer groups and committed offsets.
    struct GroupOptions;

    /// Shortest session time-out in milliseconds that a member of a classic group may ask for.
    group_min_session_timeout_ms: i32 = "group.min.session.timeout.ms", Int(1, i32::MAX), Some("6000");
    /// Longest session time-out in milliseconds that a member of a classic group may ask for.
    group_max_session_timeout_ms: i32 = "group.max.session.timeout.ms", Int(1, i32::MAX), Some("1800000");
    /// Milliseconds for which the first rebalance of an empty classic group waits for more members.
    group_initial_rebalance_delay_ms: i32 = "group.initial.rebalance.delay.ms", Int(0, i32::MAX), Some("3000");
    /// Members of one classic group at most. Kafka's default has no bound.
    group_max_size: usize = "group.max.size", Int(1, i32::MAX), Some("10000");
    /// Milliseconds of silence after which a member of a group of the newer protocol (KIP-848) is removed.
    group_consumer_session_timeout_ms: i32 = "group.consumer.session.timeout.ms", Int(1, i32::MAX), Some("45000");
    /// Milliseconds between two heartbeats of a member of the newer protocol.
    group_consumer_heartbeat_interval_ms: i32 = "group.consumer.heartbeat.interval.ms", Int(1, i32::MAX), Some("5000");
    /// Shortest `consumer.session.timeout.ms` that a group may set for itself.
    group_consumer_min_session_timeout_ms: i32 = "group.consumer.min.session.timeout.ms", Int(1, i32::MAX), Some("45000");
    /// Longest `consumer.session.timeout.ms` that a group may set for itself.
    group_consumer_max_session_timeout_ms: i32 = "group.consumer.max.session.timeout.ms", Int(1, i32::MAX), Some("60000");
    /// Shortest `consumer.heartbeat.interval.ms` that a group may set for itself.
    group_consumer_min_heartbeat_interval_ms: i32 = "group.consumer.min.heartbeat.interval.ms", Int(1, i32::MAX), Some("5000");
    /// Longest `consumer.heartbeat.interval.ms` that a group may set for itself.
    group_consumer_max_heartbeat_interval_ms: i32 = "group.consumer.max.heartbeat.interval.ms", Int(1, i32::MAX), Some("15000");
    /// Members of one group of the newer protocol at most. Kafka's default has no bound.
    group_consumer_max_size: usize = "group.consumer.max.size", Int(1, i32::MAX), Some("10000");
    /// Milliseconds after an assignment of a group of the newer protocol before it gets another one, so that members
    /// that come together are assigned together.
    group_consumer_assignment_interval_ms: i32 = "group.consumer.assignment.interval.ms", Int(0, i32::MAX), Some("1000");
    /// Shortest `consumer.assignment.interval.ms` that a group may set for itself.
    group_consumer_min_assignment_interval_ms: i32 = "group.consumer.min.assignment.interval.ms", Int(0, i32::MAX), Some("0");
    /// Longest `consumer.assignment.interval.ms` that a group may set for itself.
    group_consumer_max_assignment_interval_ms: i32 = "group.consumer.max.assignment.interval.ms", Int(0, i32::MAX), Some("15000");
    /// Which protocol a group may change to while members are in it. `upgrade`: a group of the classic protocol becomes one
    /// of the newer protocol when the first such member joins it, if its members are consumers. `downgrade`: the reverse,
    /// when the last member of the newer protocol leaves classic members behind. `bidirectional`: both. `disabled`:
    /// neither, and a group refuses members of the other protocol. A group without members changes under any of them.
    group_consumer_migration_policy: MigrationPolicy = "group.consumer.migration.policy",
        Choice(&MigrationPolicy::NAMES), Some("bidirectional");
    /// Assignors that groups of the newer protocol may use; the first is used where a member asks for none.
    group_consumer_assignors: Vec<String> = "group.consumer.assignors", Choices(&["uniform", "range"]), Some("uniform,range");
    /// Bytes of memory that all groups together may take: what members say about themselves, assignments and committed
    /// offsets. It is an estimate, rather too high than too low. A group may grow as long as it is no larger than a
    /// third of what is left of seven eighths, so no group has more than a quarter of these. The same
    /// holds for all groups together that clients of one address (or one /64 of IPv6) were the last to make grow since the
    /// start; groups of up to 16 KiB go on until these hold as much as is left. The last eighth is for addresses that hold
    /// little in all: a 1024th of the whole, 16 KiB at least. A request that would need more is told to try again later, and
    /// groups that are there go on. While requests are refused, `/health` and the log name the addresses that hold most. A
    /// start takes all that the log has, although that may be more.
    groups_memory_max_bytes: usize = "groups.memory.max.bytes", Long(1_048_576, i64::MAX), Some("268435456");
    /// Bytes of the metadata that may go with one committed offset.
    offset_metadata_max_bytes: usize = "offset.metadata.max.bytes", Int(0, i32::MAX), Some("4096");
    /// Milliseconds for which the records of a commit, or of any other change of a group, may wait for the disk. Then the
    /// request is answered that there is no coordinator for the moment. The records may still become durable.
    offsets_commit_timeout_ms: u64 = "offsets.commit.timeout.ms", Int(1, i32::MAX), Some("5000");
    /// Replicas of the topic of group offsets.
    offsets_topic_replication_factor: i16 = "offsets.topic.replication.factor", Int(1, 32767), Some("1"),
        Accept::Only(&["1"], "it must be 1, because this server is one node");
    /// Partitions of the topic of group offsets when it is made. It cannot be changed afterwards.
    offsets_topic_num_partitions: i32 = "offsets.topic.num.partitions", Int(1, limits::TOPIC_PARTITIONS_MAX), Some("50");
    /// Bytes of one segment of the topic of group offsets when it is made.
    offsets_topic_segment_bytes: i32 = "offsets.topic.segment.bytes", Int(1_048_576, i32::MAX), Some("104857600");
    /// Codec of the batches in the topic of group offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
    offsets_topic_compression_codec: u32 = "offsets.topic.compression.codec", Int(0, 4), Some("0");
    /// Whether clients may produce to the topic of group offsets. Only tools that bring offsets from elsewhere need to. Each
    /// record must then be one of a group, in that group's partition of the topic; its offset is not negative,
    /// and a group's id and an offset's metadata keep to the bounds of a commit. Nothing else of it is checked, and it counts
    /// from the next start on.
    offsets_topic_client_writes: bool = "offsets.topic.client.writes", Bool, Some("false");
    /// Durability level of acked commits and other changes of groups, with the values of the topic config `durability`. The
    /// default of other topics does not count for it; a `durability` that the topic of group offsets sets for itself goes first.
    offsets_topic_durability: DurabilityLevel = "offsets.topic.durability", Int(1, 4), Some("1");
    /// Minutes for which a group's offsets are kept after its last member left.
    offsets_retention_minutes: i64 = "offsets.retention.minutes", Int(1, i32::MAX), Some("10080");
    /// Milliseconds between two searches for offsets to forget.
    offsets_retention_check_interval_ms: i64 = "offsets.retention.check.interval.ms", Long(1, i64::MAX), Some("600000");
}
