//! The interface through which coordinators see topics: names, ids, partition counts, racks.

use riverrun_types::TopicId;

use crate::pattern::PatternTopics;

/// The topics as of one moment. The host implements it over its metadata image.
pub trait TopicMetadata {
    /// The id of the topic of this name.
    fn topic_id(&self, name: &str) -> Option<TopicId>;
    /// The name of the topic with this id.
    fn topic_name(&self, id: TopicId) -> Option<&str>;
    /// Number of partitions of the topic.
    fn partition_count(&self, id: TopicId) -> Option<i32>;
    /// The topics that a pattern matches, if known. Returns at once: the host determines unknown ones on another
    /// thread.
    fn topics_of_pattern(&self, pattern: &str) -> PatternTopics;
    /// As [`Self::topics_of_pattern`], but unknown topics are not determined.
    fn peek_pattern(&self, pattern: &str) -> PatternTopics {
        self.topics_of_pattern(pattern)
    }
    /// The racks with replicas of the partition; empty where racks are not configured.
    fn partition_racks(&self, id: TopicId, partition: i32) -> Vec<&str>;
    /// Changes whenever a topic is created, deleted or gains partitions, so that groups examine their topics only
    /// then.
    fn generation(&self) -> u64;
}
