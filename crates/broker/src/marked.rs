//! Partitions in which damage was found before this start.
//!
//! A mark beside the segment tells of it, but a partition is opened at its first use only, and until then nobody would be
//! told. So the marks are looked for once after a start, in the background, and what has one is opened: that checks it
//! again and either takes the mark away or has health and metrics tell. Costs a look at the names in each partition's
//! directory; nothing waits for it.

use std::sync::Arc;

use riverrun_types::PartitionId;

use crate::broker::Broker;
use crate::shutdown::StopSignal;

/// Looks at all partitions once; ends between two of them when `stop` turns true.
pub(crate) async fn run(broker: Arc<Broker>, stop: StopSignal) {
    if let Err(error) = tokio::task::spawn_blocking(move || look(&broker, &stop)).await {
        tracing::error!(%error, "the look for marks of damage failed");
    }
}

fn look(broker: &Broker, stop: &StopSignal) {
    // Of what the metadata knows: a checkpoint that was lost knows nothing.
    let image = broker.metadata.image();
    let own = image.topics_sorted().into_iter().filter(|topic| !topic.is_mounted);
    for (topic, index) in own.flat_map(|topic| (0..topic.partition_count()).map(move |index| (topic, index)))
    {
        if *stop.borrow() {
            return;
        }
        if topic
            .log_dir(index)
            .is_some_and(|dir| is_marked(broker, PartitionId { topic: topic.id, index }, dir))
        {
            // What is wrong with it is told by whoever opens it.
            let _opened = broker.partition(topic, index);
        }
    }
}

/// Whether a partition has a mark, or may have one: who opens it then finds out.
fn is_marked(broker: &Broker, id: PartitionId, dir: usize) -> bool {
    broker.logs.has_damage_mark(id, dir).unwrap_or_else(|error| {
        tracing::warn!(partition = %id, %error, "whether damage was found in a partition cannot be read");
        true
    })
}
