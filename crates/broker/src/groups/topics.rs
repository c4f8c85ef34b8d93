//! The metadata image as the coordinator's view of topics.

use std::sync::Arc;

use riverrun_coordinator::TopicMetadata;
use riverrun_types::TopicId;

use crate::metadata::Image;

/// One image, held for as long as a request runs.
pub(crate) struct ImageTopics {
    image: Arc<Image>,
}

impl ImageTopics {
    pub(super) fn new(image: Arc<Image>) -> Self {
        Self { image }
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

    fn visit_topic_names(&self, visit: &mut dyn FnMut(&str)) {
        for topic in self.image.topics_sorted() {
            visit(&topic.name);
        }
    }

    fn partition_racks(&self, _id: TopicId, _partition: i32) -> Vec<&str> {
        // One node holds every replica: racks decide nothing.
        Vec::new()
    }

    fn generation(&self) -> u64 {
        self.image.topics_generation()
    }
}
