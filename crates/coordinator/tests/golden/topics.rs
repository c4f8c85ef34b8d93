//! The topics of a script.

use std::collections::BTreeMap;
use std::sync::Arc;

use riverrun_coordinator::{PatternTopics, TopicMetadata, TopicPattern};
use riverrun_types::TopicId;

/// Topics by name, each with its id and number of partitions.
#[derive(Default)]
pub(crate) struct Topics {
    by_name: BTreeMap<String, (TopicId, i32)>,
    changes: u64,
}

impl Topics {
    /// Creates a topic, or gives it another number of partitions.
    pub(crate) fn put(&mut self, name: &str, partitions: i32) {
        self.changes += 1;
        let id = TopicId([u8::try_from(self.changes).unwrap(); 16]);
        self.by_name.entry(name.to_owned()).or_insert((id, partitions)).1 = partitions;
    }

    /// Deletes a topic.
    pub(crate) fn remove(&mut self, name: &str) {
        self.changes += 1;
        self.by_name.remove(name);
    }
}

impl TopicMetadata for Topics {
    fn topic_id(&self, name: &str) -> Option<TopicId> {
        self.by_name.get(name).map(|(id, _)| *id)
    }

    fn topic_name(&self, id: TopicId) -> Option<&str> {
        self.by_name.iter().find(|(_, (other, _))| *other == id).map(|(name, _)| name.as_str())
    }

    fn partition_count(&self, id: TopicId) -> Option<i32> {
        self.by_name.values().find(|(other, _)| *other == id).map(|(_, count)| *count)
    }

    fn topics_of_pattern(&self, pattern: &str) -> PatternTopics {
        let compiled = match TopicPattern::compile(pattern) {
            Ok(compiled) => compiled,
            Err(error) => return PatternTopics::Invalid(error.to_string()),
        };
        let mut workspace = compiled.workspace();
        let names = self.by_name.keys().filter(|name| compiled.matches(name, &mut workspace));
        PatternTopics::Known(Arc::new(names.cloned().collect()))
    }

    fn partition_racks(&self, _id: TopicId, _partition: i32) -> Vec<&str> {
        Vec::new()
    }

    fn generation(&self) -> u64 {
        self.changes
    }
}
