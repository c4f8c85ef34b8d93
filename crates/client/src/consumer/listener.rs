//! Callbacks for the partitions that a group assigns to a consumer and revokes from it.

use std::collections::BTreeMap;
use std::fmt;

use super::assignment::Positions;
use super::options::StartAt;
use crate::coordinator::CommittedOffset;
use crate::topic_partition::TopicPartition;

/// Partitions that the group revokes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revocation {
    /// The partitions, sorted.
    pub partitions: Vec<TopicPartition>,
    /// For each partition, the position after its last returned record, where known.
    pub positions: BTreeMap<TopicPartition, CommittedOffset>,
    /// The offsets to be committed before other members get the partitions: with `enable.auto.commit` the positions
    /// that have moved, else none. A listener may change them.
    pub commit: BTreeMap<TopicPartition, CommittedOffset>,
}

/// Gets the partitions that a group assigns to a consumer and revokes from it.
///
/// The consumer calls it from its own methods ([`poll`](super::Consumer::poll) above all, also `commit`, `subscribe`
/// and `close`), between two records and never concurrently, so it must not wait. Each assigned partition is revoked
/// or lost once, before it is assigned again. Partitions assigned by [`assign`](super::Consumer::assign) are not
/// reported.
///
/// With a store for offsets of the application's own, instead of the group's:
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::{Arc, Mutex};
///
/// use riverrun_client::{Offset, RebalanceListener, Revocation, StartAt, TopicPartition};
///
/// #[derive(Clone, Default)]
/// struct OwnStore(Arc<Mutex<BTreeMap<TopicPartition, Offset>>>);
///
/// impl RebalanceListener for OwnStore {
///     fn assigned(&mut self, partitions: &mut BTreeMap<TopicPartition, StartAt>) {
///         let store = self.0.lock().unwrap();
///         for (partition, start) in partitions {
///             *start = store.get(partition).map_or(StartAt::Earliest, |offset| StartAt::Offset(*offset));
///         }
///     }
///
///     fn revoked(&mut self, revocation: &mut Revocation) {
///         let positions = std::mem::take(&mut revocation.positions);
///         self.0.lock().unwrap().extend(positions.into_iter().map(|(partition, at)| (partition, at.offset)));
///         revocation.commit.clear();
///     }
/// }
/// ```
pub trait RebalanceListener: Send {
    /// The group has assigned these partitions, in addition to the present ones. Each is read from the given start,
    /// the committed offset, unless the listener changes it.
    fn assigned(&mut self, partitions: &mut BTreeMap<TopicPartition, StartAt>) {
        let _ = partitions;
    }

    /// The group revokes partitions, or the consumer leaves it. Other members get them after `revocation.commit` is
    /// committed.
    fn revoked(&mut self, revocation: &mut Revocation) {
        let _ = revocation;
    }

    /// Other members already have these partitions: nothing can be committed any more.
    fn lost(&mut self, partitions: &[TopicPartition]) {
        let _ = partitions;
    }
}

/// The listener, if there is one, and the number of rebalances.
#[derive(Default)]
pub(super) struct Listener {
    listener: Option<Box<dyn RebalanceListener>>,
    pub(super) rebalances: u64,
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("rebalances", &self.rebalances).finish_non_exhaustive()
    }
}

impl Listener {
    pub(super) fn set(&mut self, listener: Box<dyn RebalanceListener>) {
        self.listener = Some(listener);
    }

    /// The start of each of these partitions.
    pub(super) fn assigned(&mut self, partitions: Vec<TopicPartition>) -> BTreeMap<TopicPartition, StartAt> {
        self.rebalances += 1;
        let mut starts = partitions.into_iter().map(|partition| (partition, StartAt::Committed)).collect();
        if let Some(listener) = &mut self.listener {
            listener.assigned(&mut starts);
        }
        starts
    }

    /// The offsets to commit.
    pub(super) fn revoked(&mut self, mut revocation: Revocation) -> Positions {
        self.rebalances += 1;
        if let Some(listener) = self.listener.as_mut().filter(|_| !revocation.partitions.is_empty()) {
            listener.revoked(&mut revocation);
        }
        revocation.commit
    }

    pub(super) fn lost(&mut self, partitions: &[TopicPartition]) {
        self.rebalances += 1;
        if let Some(listener) = self.listener.as_mut().filter(|_| !partitions.is_empty()) {
            listener.lost(partitions);
        }
    }
}
