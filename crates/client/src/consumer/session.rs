//! What a leader remembers of the fetches of one consumer (KIP-227), so that only what is new has to be said.
//!
//! Pure. After anything unclear the session is given up and everything is said again.

use std::collections::BTreeMap;

use riverrun_types::{LeaderEpoch, NodeId, Offset, TopicId};

use super::fetch::Wanted;
use crate::topic_partition::TopicPartition;

/// Epoch of a request that says everything.
const EPOCH_FULL: i32 = 0;

/// What the leader knows of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    topic_id: TopicId,
    from: Offset,
    leader_epoch: LeaderEpoch,
}

impl Told {
    fn of(wanted: &Wanted) -> Self {
        Self { topic_id: wanted.topic_id, from: wanted.from, leader_epoch: wanted.leader_epoch }
    }
}

/// A session with one node.
///
/// Invariants: `told` is what the node knows after the request that was planned last; `epoch` is that of the next
/// request, 0 while there is no session.
#[derive(Debug, Default)]
pub(super) struct FetchSession {
    id: i32,
    epoch: i32,
    told: BTreeMap<TopicPartition, Told>,
}

/// What a request says of the session.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SessionPlan {
    pub(super) id: i32,
    pub(super) epoch: i32,
    /// Places in what is wanted that have to be said.
    pub(super) said: Vec<usize>,
    pub(super) forgotten: Vec<(TopicPartition, TopicId)>,
}

impl SessionPlan {
    /// Whether the answer names every partition, rather than those that have news.
    pub(super) fn is_full(&self) -> bool {
        self.epoch == EPOCH_FULL
    }
}

impl FetchSession {
    /// What to say to have these fetched, and nothing else.
    pub(super) fn plan(&mut self, wanted: &[Wanted]) -> SessionPlan {
        let (id, epoch) = (self.id, self.epoch);
        let mut before = std::mem::take(&mut self.told);
        let mut plan = SessionPlan { id, epoch, ..SessionPlan::default() };
        for (place, wanted) in wanted.iter().enumerate() {
            let told = Told::of(wanted);
            let known = before.remove(&wanted.partition);
            if let Some(known) = known.filter(|known| known.topic_id != told.topic_id) {
                plan.forgotten.push((wanted.partition.clone(), known.topic_id));
            }
            if epoch == EPOCH_FULL || known != Some(told) {
                plan.said.push(place);
            }
            self.told.insert(wanted.partition.clone(), told);
        }
        plan.forgotten.extend(before.into_iter().map(|(partition, told)| (partition, told.topic_id)));
        plan
    }

    /// Takes in the answer's session id: 0 if the node keeps none.
    pub(super) fn answered(&mut self, id: i32) {
        if id == 0 {
            *self = Self::default();
            return;
        }
        self.epoch = if self.id == id && self.epoch < i32::MAX { self.epoch + 1 } else { 1 };
        self.id = id;
    }

    /// Something went wrong: says everything again, in a new session.
    pub(super) fn give_up(&mut self) {
        *self = Self::default();
    }
}

/// The sessions with all nodes.
pub(super) type Sessions = BTreeMap<NodeId, FetchSession>;

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(partition: i32, from: i64) -> Wanted {
        Wanted {
            partition: TopicPartition::new("t", partition),
            topic_id: TopicId([1; 16]),
            incarnation: 1,
            from: Offset(from),
            leader_epoch: LeaderEpoch(0),
            last_epoch: None,
        }
    }

    #[test]
    fn only_what_has_changed_is_said_again() {
        let mut session = FetchSession::default();
        let first = session.plan(&[wanted(0, 5), wanted(1, 5), wanted(2, 5)]);
        assert!(first.is_full());
        assert_eq!((first.id, first.said), (0, vec![0, 1, 2]));
        session.answered(77);
        let second = session.plan(&[wanted(0, 5), wanted(1, 9)]);
        assert_eq!((second.id, second.epoch, second.said), (77, 1, vec![1]));
        assert_eq!(second.forgotten, [(TopicPartition::new("t", 2), TopicId([1; 16]))]);
        session.answered(77);
        let third = session.plan(&[wanted(0, 5), wanted(1, 9), wanted(2, 5)]);
        assert_eq!((third.epoch, third.said, third.forgotten), (2, vec![2], vec![]));
    }

    #[test]
    fn a_topic_that_was_made_anew_is_forgotten_and_said() {
        let mut session = FetchSession::default();
        session.plan(&[wanted(0, 5)]);
        session.answered(77);
        let plan = session.plan(&[Wanted { topic_id: TopicId([2; 16]), ..wanted(0, 5) }]);
        assert_eq!(plan.said, [0]);
        assert_eq!(plan.forgotten, [(TopicPartition::new("t", 0), TopicId([1; 16]))]);
    }

    #[test]
    fn everything_is_said_to_who_keeps_no_session_and_after_a_failure() {
        let mut session = FetchSession::default();
        session.plan(&[wanted(0, 5)]);
        session.answered(0);
        let plan = session.plan(&[wanted(0, 5)]);
        assert!(plan.is_full() && plan.said == [0]);
        session.answered(77);
        session.give_up();
        let plan = session.plan(&[wanted(0, 5)]);
        assert!(plan.is_full() && plan.id == 0 && plan.said == [0]);
    }
}
