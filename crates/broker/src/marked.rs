//! Partitions in which damage was found before this start.
//!
//! A mark beside the segment tells of it, but a partition is opened at its first use only, and until then nobody would be
//! told. So the marks are looked for once after a start, in the background, and what has one is opened: that checks it
//! again and either takes the mark away or has health and metrics tell. Costs a look at the names in each partition's
//! directory; nothing waits for it.

use std::sync::Arc;

use crate::broker::Broker;
use crate::shutdown::StopSignal;
use crate::upkeep::{Kept, kept_partitions};

/// Looks at all partitions once; ends between two of them when `stop` turns true.
pub(crate) async fn run(broker: Arc<Broker>, stop: StopSignal) {
    if let Err(error) = tokio::task::spawn_blocking(move || look(&broker, &stop)).await {
        tracing::error!(%error, "the look for marks of damage failed");
    }
}

fn look(broker: &Broker, stop: &StopSignal) {
    let is_marked = |kept: &Kept| {
        let dir = kept.topic.log_dir(kept.known.id.index);
        dir.is_some_and(|dir| broker.logs.has_damage_mark(kept.known.id, dir))
    };
    for kept in kept_partitions(broker) {
        if *stop.borrow() {
            return;
        }
        if is_marked(&kept) {
            // What is wrong with it is told by whoever opens it.
            let _opened = kept.open(broker);
        }
    }
}
