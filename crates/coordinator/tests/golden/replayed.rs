//! The replayed log must show the same as the shard.

use std::collections::BTreeMap;

use riverrun_coordinator::{GroupMemory, Now, OffsetsRecord, Shard};
use riverrun_protocol::ListGroupsRequest;

use crate::consumer;
use crate::show;
use crate::world::World;

/// The log after compaction: the last record of each key, in their old order. Tombstones are dropped, as they are
/// after `delete.retention.ms`.
fn compacted(log: &[OffsetsRecord]) -> Vec<&OffsetsRecord> {
    let last: BTreeMap<&[u8], usize> =
        log.iter().enumerate().map(|(at, record)| (&record.key[..], at)).collect();
    let is_kept =
        |(at, record): &(usize, &OffsetsRecord)| last[&record.key[..]] == *at && record.value.is_some();
    log.iter().enumerate().filter(is_kept).map(|(_, record)| record).collect()
}

/// A shard with just these records.
fn replay<'a>(world: &World, records: impl IntoIterator<Item = &'a OffsetsRecord>) -> Shard {
    let mut shard = Shard::new(world.config.clone(), GroupMemory::unbounded());
    for record in records {
        shard.replay(&record.key, record.value.as_deref()).unwrap();
    }
    shard
}

/// A shard's offsets, KIP-848 groups and stable classic groups as text. Classic groups that rebalance are left out:
/// the state of a rebalance is lost with the process, and clients start over.
fn told(world: &World, shard: &Shard, other: &Shard) -> Vec<String> {
    let offsets = shard.committed_offsets();
    let mut told: Vec<String> = offsets.map(|offset| format!("{offset:?}")).collect();
    let others: Vec<_> = other.list_groups(&ListGroupsRequest::default(), None).0;
    for group in shard.list_groups(&ListGroupsRequest::default(), None).0 {
        if group.group_type == "consumer" {
            told.push(consumer::described(&shard.consumer_group_describe(&group.group_id, &world.topics)));
        }
        let is_stable = matches!(&*group.group_state, "Stable" | "Empty");
        // A group that only has ids given out, or that is rebalancing in the other shard, is not comparable.
        let counterpart = others.iter().find(|other| other.group_id == group.group_id);
        if is_stable && counterpart.is_some_and(|other| matches!(&*other.group_state, "Stable" | "Empty")) {
            told.push(show::listed(&group) + &show::described(&shard.describe_group(&group.group_id, 5)));
        }
    }
    told
}

/// Checks the world's log against its shard.
pub(crate) fn check(world: &World) {
    let full = replay(world, &world.log);
    let small = replay(world, compacted(&world.log));
    assert_eq!(told(world, &full, &small), told(world, &small, &full), "compaction changes what is replayed");
    assert_eq!(
        told(world, &world.shard, &full),
        told(world, &full, &world.shard),
        "what is replayed differs from what lived"
    );
    let lived = world.shard.list_groups(&ListGroupsRequest::default(), None).0;
    for group in full.list_groups(&ListGroupsRequest::default(), None).0 {
        assert!(lived.iter().any(|other| other.group_id == group.group_id), "{} came back", group.group_id);
    }
    // The replayed shard works: it takes requests and time.
    let mut full = full;
    let step = full.on_loaded(Now::simulated(world.now));
    assert!(step.replies.is_empty());
    assert!(full.group_count() == 0 || full.next_deadline().is_some());
}
