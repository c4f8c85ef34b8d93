//! The metadata image as the coordinator's view of topics.

use std::sync::Arc;

use riverrun_coordinator::{PatternTopics, TopicMetadata};
use riverrun_types::TopicId;

use super::patterns::Patterns;
use crate::flow::source::Source;
use crate::metadata::ClusterImage;

/// One image, held for as long as a request runs.
pub(crate) struct ImageTopics {
    image: Arc<ClusterImage>,
    patterns: Arc<Patterns>,
    /// The source for which the topics of patterns are found.
    source: Option<Source>,
}

impl ImageTopics {
    pub(super) fn new(image: Arc<ClusterImage>, patterns: Arc<Patterns>, source: Option<Source>) -> Self {
        Self { image, patterns, source }
    }
}

impl TopicMetadata for ImageTopics {
    fn topic_id(&self, name: &str) -> Option<TopicId> {
        self.image.topic(name).map(|topic| topic.id)
    }

    fn topic_name(&self, id: TopicId) -> Option<&str> {
        self.image.topic_by_id(id).map(|topic| &*topic.name)
    }

    fn partition_count(&self, id: TopicId) -> Option<i32> {
        self.image.topic_by_id(id).map(|topic| topic.partition_count())
    }

    fn topics_of_pattern(&self, pattern: &str) -> PatternTopics {
        self.patterns.topics(self.source, pattern, &self.image)
    }

    fn peek_pattern(&self, pattern: &str) -> PatternTopics {
        self.patterns.known(pattern, &self.image)
    }

    fn partition_racks(&self, _id: TopicId, _partition: i32) -> Vec<&str> {
        // One node holds every replica: racks decide nothing.
        Vec::new()
    }

    fn generation(&self) -> u64 {
        self.image.topics_generation()
    }
}
