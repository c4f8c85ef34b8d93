//! Who wants to know what a group gives to a consumer and takes from it.

use std::collections::BTreeMap;
use std::fmt;

use super::assignment::Positions;
use super::options::StartAt;
use crate::coordinator::CommittedOffset;
use crate::topic_partition::TopicPartition;

/// Partitions that the group takes back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revocation {
    /// The partitions, sorted.
    pub partitions: Vec<TopicPartition>,
    /// The position after the last record of each that was returned, where it is known.
    pub positions: BTreeMap<TopicPartition, CommittedOffset>,
    /// What will be committed before others get the partitions: with `enable.auto.commit` the positions that have moved,
    /// else nothing. A listener may change it.
    pub commit: BTreeMap<TopicPartition, CommittedOffset>,
}

/// Is told what a group gives to a consumer and takes from it.
///
/// The consumer calls it from its own methods ([`poll`](super::Consumer::poll) above all, also `commit`, `subscribe` and
/// `close`), between two records and never beside them, so it must not wait. Partitions that are given once are taken
/// back or lost once, before they are given again. Partitions that were assigned by hand are not its business.
///
/// Here offsets are kept in a store of one's own, and the group is not asked:
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
    /// The group has given the consumer these partitions, in addition to what it has. Each will be read from where it says:
    /// the committed offset, unless that is changed here.
    fn assigned(&mut self, partitions: &mut BTreeMap<TopicPartition, StartAt>) {
        let _ = partitions;
    }

    /// The group takes partitions back, or the consumer leaves it. Others get them when what is to be committed is.
    fn revoked(&mut self, revocation: &mut Revocation) {
        let _ = revocation;
    }

    /// The group has given these partitions to others already: nothing can be committed any more.
    fn lost(&mut self, partitions: &[TopicPartition]) {
        let _ = partitions;
    }
}

/// The listener, if there is one, and how often it had something to hear.
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

    /// Where to begin with each of these.
    pub(super) fn assigned(&mut self, partitions: Vec<TopicPartition>) -> BTreeMap<TopicPartition, StartAt> {
        self.rebalances += 1;
        let mut starts = partitions.into_iter().map(|partition| (partition, StartAt::Committed)).collect();
        if let Some(listener) = &mut self.listener {
            listener.assigned(&mut starts);
        }
        starts
    }

    /// What to commit.
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
