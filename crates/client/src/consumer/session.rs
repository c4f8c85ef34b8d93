//! What a leader remembers of the fetches of one consumer (KIP-227), so that only what is new has to be said.
//!
//! Pure. After anything unclear the session is given up and everything is said again.

use std::collections::{BTreeMap, HashSet};

use riverrun_types::{LeaderEpoch, NodeId, Offset, TopicId};

use super::fetch::Wanted;
use crate::topic_partition::TopicPartition;

/// Epoch of a request that says everything.
const EPOCH_FULL: i32 = 0;

/// What the leader knows of a partition.
#[derive(Clone, Debug)]
struct Told {
    partition: TopicPartition,
    topic_id: TopicId,
    from: Offset,
    leader_epoch: LeaderEpoch,
    /// The plan that has confirmed it.
    round: u64,
}

impl Told {
    fn is_same_partition(&self, wanted: &Wanted) -> bool {
        self.topic_id == wanted.topic_id && self.partition == wanted.partition
    }
}

/// A session with one node.
///
/// Invariants: `told` is what the node knows after the request that was planned last, each partition at the place that
/// the assignment has it in, `count` of them; `epoch` is that of the next request, 0 while there is no session. Then `id` is
/// that of one which the node may still keep: a request that says it ends that one. `was_refused` is whether the node has refused the session before this one, and has yet to go on with this one.
#[derive(Debug, Default)]
pub(super) struct FetchSession {
    id: i32,
    epoch: i32,
    told: Vec<Option<Told>>,
    count: usize,
    round: u64,
    was_refused: bool,
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
    /// What to say to have these fetched, and nothing else. Costs a few nanoseconds for a partition of which there is
    /// nothing new.
    pub(super) fn plan(&mut self, wanted: &[Wanted]) -> SessionPlan {
        let mut plan = SessionPlan { id: self.id, epoch: self.epoch, ..SessionPlan::default() };
        self.round += 1;
        for (place, wanted) in wanted.iter().enumerate() {
            if self.tell(wanted, &mut plan.forgotten) {
                plan.said.push(place);
            }
        }
        if self.count > wanted.len() {
            self.forget_the_rest(&mut plan.forgotten);
        }
        if plan.is_full() {
            plan.said = (0..wanted.len()).collect();
            plan.forgotten.clear();
        }
        if !plan.forgotten.is_empty() {
            // What has only changed its place here is said; a node that forgets last would lose it by that.
            let wanted: HashSet<_> = wanted.iter().map(|one| (&one.partition, one.topic_id)).collect();
            plan.forgotten.retain(|(partition, topic_id)| !wanted.contains(&(partition, *topic_id)));
        }
        plan
    }

    /// Notes that a partition is wanted, and says whether the node does not know it like that.
    fn tell(&mut self, wanted: &Wanted, forgotten: &mut Vec<(TopicPartition, TopicId)>) -> bool {
        let slot = wanted.incarnation.slot;
        if slot >= self.told.len() {
            self.told.resize(slot + 1, None);
        }
        let (from, leader_epoch, round) = (wanted.from, wanted.leader_epoch, self.round);
        let entry = &mut self.told[slot];
        if let Some(told) = entry.as_mut().filter(|told| told.is_same_partition(wanted)) {
            let news = (told.from, told.leader_epoch) != (from, leader_epoch);
            (told.from, told.leader_epoch, told.round) = (from, leader_epoch, round);
            return news;
        }
        let (partition, topic_id) = (wanted.partition.clone(), wanted.topic_id);
        match entry.replace(Told { partition, topic_id, from, leader_epoch, round }) {
            Some(other) => forgotten.push((other.partition, other.topic_id)),
            None => self.count += 1,
        }
        true
    }

    fn forget_the_rest(&mut self, forgotten: &mut Vec<(TopicPartition, TopicId)>) {
        for entry in &mut self.told {
            if let Some(told) = entry.take_if(|told| told.round != self.round) {
                self.count -= 1;
                forgotten.push((told.partition, told.topic_id));
            }
        }
    }

    /// Takes in the answer's session id: 0 if the node keeps none.
    pub(super) fn answered(&mut self, id: i32) {
        if id == 0 {
            *self = Self::default();
            return;
        }
        let goes_on = self.epoch != EPOCH_FULL && self.id == id;
        self.epoch = if goes_on && self.epoch < i32::MAX { self.epoch + 1 } else { 1 };
        self.was_refused &= !goes_on;
        self.id = id;
    }

    /// The node knows no such session, or has lost count of its requests: says everything again, in a new one. Answers whether
    /// that may be at once, as with Kafka's consumers: a node gives sessions up for those of others. One that does so again and
    /// again, or refuses what is of no session, is given a pause.
    pub(super) fn refused(&mut self, is_known: bool) -> bool {
        let at_once = self.epoch != EPOCH_FULL && !self.was_refused;
        let id = if is_known { self.id } else { 0 };
        *self = Self { id, was_refused: true, ..Self::default() };
        at_once
    }

    /// Something went wrong: says everything again, in a new session. That ends the one before, which the node would keep
    /// otherwise, in the place of somebody's, until others need it.
    pub(super) fn give_up(&mut self) {
        *self = Self { id: self.id, ..Self::default() };
    }
}

/// The sessions with all nodes.
pub(super) type Sessions = BTreeMap<NodeId, FetchSession>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consumer::assignment::Incarnation;

    fn wanted(partition: i32, from: i64) -> Wanted {
        Wanted {
            partition: TopicPartition::new("t", partition),
            topic_id: TopicId([1; 16]),
            incarnation: Incarnation { slot: usize::try_from(partition).unwrap(), number: 1 },
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
    fn a_partition_that_has_taken_another_s_place_is_said_and_the_other_forgotten() {
        let mut session = FetchSession::default();
        session.plan(&[wanted(0, 5), wanted(1, 5)]);
        session.answered(77);
        let other = Wanted { partition: TopicPartition::new("u", 3), ..wanted(1, 5) };
        let plan = session.plan(&[wanted(0, 5), other]);
        assert_eq!(plan.said, [1]);
        assert_eq!(plan.forgotten, [(TopicPartition::new("t", 1), TopicId([1; 16]))]);
        session.answered(77);
        let plan = session.plan(&[]);
        assert_eq!(plan.forgotten.len(), 2);
        session.answered(77);
        assert_eq!(session.plan(&[wanted(0, 5)]).said, [0]);
    }

    /// As after a rebalance that gives everything back in another order.
    #[test]
    fn partitions_that_change_places_are_not_forgotten() {
        let mut session = FetchSession::default();
        session.plan(&[wanted(0, 5), wanted(1, 5), wanted(2, 5)]);
        session.answered(77);
        let at = |partition: i32, slot: usize| Wanted {
            incarnation: Incarnation { slot, number: 2 },
            ..wanted(partition, 5)
        };
        let plan = session.plan(&[at(1, 0), at(0, 1)]);
        assert_eq!(plan.said, [0, 1]);
        assert_eq!(plan.forgotten, [(TopicPartition::new("t", 2), TopicId([1; 16]))]);
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
        assert!(plan.is_full() && plan.said == [0]);
    }

    #[test]
    fn a_session_that_a_node_may_still_keep_ends_with_the_request_that_begins_another() {
        for (is_known, ended) in [(true, 77), (false, 0)] {
            let mut session = FetchSession::default();
            session.plan(&[wanted(0, 5)]);
            session.answered(77);
            session.refused(is_known);
            let plan = session.plan(&[wanted(0, 5)]);
            assert_eq!((plan.id, plan.epoch), (ended, EPOCH_FULL));
            session.answered(78);
            session.give_up();
            let plan = session.plan(&[wanted(0, 5)]);
            assert_eq!((plan.id, plan.epoch), (78, EPOCH_FULL));
            session.answered(0);
            let plan = session.plan(&[wanted(0, 5)]);
            assert_eq!((plan.id, plan.epoch), (0, EPOCH_FULL), "it keeps none");
        }
    }

    #[test]
    fn a_new_session_is_begun_at_once_unless_the_one_before_was_refused_as_well() {
        let mut session = FetchSession::default();
        let mut asked = |id: Option<i32>| {
            let plan = session.plan(&[wanted(0, 5)]);
            let at_once = match id {
                Some(id) => {
                    session.answered(id);
                    None
                }
                None => Some(session.refused(false)),
            };
            (plan.id, plan.is_full(), at_once)
        };
        assert_eq!(asked(None), (0, true, Some(false)), "no session was meant");
        for first in [77, 79] {
            assert_eq!(asked(Some(first)), (0, true, None));
            assert_eq!(asked(Some(first)), (first, false, None), "it is one that the node goes on with");
            assert_eq!(asked(None), (first, false, Some(true)));
            assert_eq!(asked(Some(first + 1)), (0, true, None));
            assert_eq!(asked(None), (first + 1, false, Some(false)), "at its first use");
        }
    }
}
