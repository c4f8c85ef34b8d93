//! The door through which coordinators see topics: names, ids, partition counts, racks.

use riverrun_types::TopicId;

use crate::pattern::PatternTopics;

/// The topics as of one moment. The shell implements it over its metadata snapshot.
pub trait TopicMetadata {
    /// The id of the topic of this name.
    fn topic_id(&self, name: &str) -> Option<TopicId>;
    /// The name of the topic with this id.
    fn topic_name(&self, id: TopicId) -> Option<&str>;
    /// How many partitions the topic has.
    fn partition_count(&self, id: TopicId) -> Option<i32>;
    /// The topics that a pattern names, if that is known. It is told at once: whoever has to find it out does so aside.
    fn topics_of_pattern(&self, pattern: &str) -> PatternTopics;
    /// The same, but nobody finds out what is not known.
    fn peek_pattern(&self, pattern: &str) -> PatternTopics {
        self.topics_of_pattern(pattern)
    }
    /// The racks that hold replicas of the partition; empty where racks are not configured.
    fn partition_racks(&self, id: TopicId, partition: i32) -> Vec<&str>;
    /// Changes whenever a topic is created, deleted or gains partitions, so that groups look again only then.
    fn generation(&self) -> u64;
}
