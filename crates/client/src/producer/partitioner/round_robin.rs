//! Every record to the next partition, whatever its key.

use super::{Choice, TopicPartitioner, TopicView};
use crate::producer::record::RecordRef;

/// Takes the partitions that have a leader in turn, or all of them while none has, as Kafka's `RoundRobinPartitioner`
/// does.
#[derive(Debug, Default)]
pub struct RoundRobin {
    next: usize,
}

impl TopicPartitioner for RoundRobin {
    fn choose(&mut self, _: &RecordRef<'_>, topic: &dyn TopicView) -> Choice {
        let at = self.next;
        self.next = self.next.wrapping_add(1);
        let available = topic.available();
        if available.is_empty() {
            let count = usize::try_from(topic.partition_count()).unwrap_or(1).max(1);
            return Choice::Fixed(i32::try_from(at % count).unwrap_or_default());
        }
        Choice::Fixed(available[at % available.len()])
    }
}
