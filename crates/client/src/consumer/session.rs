//! The fetch session of one consumer with a node (KIP-227), by which a fetch names only partitions that are new or
//! changed.
//!
//! Pure. After an unclear outcome the session ends, and the next fetch names every partition again.

use std::collections::{BTreeMap, HashSet};

use riverrun_types::{LeaderEpoch, NodeId, Offset, TopicId};

use super::fetch::Wanted;
use crate::topic_partition::TopicPartition;

/// Epoch of a request that names every partition.
const EPOCH_FULL: i32 = 0;

/// A partition as the node knows it.
#[derive(Clone, Debug)]
struct Told {
    partition: TopicPartition,
    topic_id: TopicId,
    from: Offset,
    leader_epoch: LeaderEpoch,
    /// The last plan that has confirmed it.
    round: u64,
}

impl Told {
    fn is_same_partition(&self, wanted: &Wanted) -> bool {
        self.topic_id == wanted.topic_id && self.partition == wanted.partition
    }
}

/// A session with one node.
///
/// Invariants: `told` is what the node knows after the last planned request, each partition at its slot of the
/// assignment, `count` of them; `epoch` is that of the next request, 0 while there is no session. Then `id` is that
/// of a session which the node may still keep: a request with it ends that session. `was_refused` is true if the node
/// has refused the session before this one, and has not continued this one yet.
#[derive(Debug, Default)]
pub(super) struct FetchSession {
    id: i32,
    epoch: i32,
    told: Vec<Option<Told>>,
    count: usize,
    round: u64,
    was_refused: bool,
}

/// The session fields of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SessionPlan {
    pub(super) id: i32,
    pub(super) epoch: i32,
    /// Indexes of the wanted partitions that the request has to name.
    pub(super) said: Vec<usize>,
    pub(super) forgotten: Vec<(TopicPartition, TopicId)>,
}

impl SessionPlan {
    /// True if the answer names every partition, rather than those with news.
    pub(super) fn is_full(&self) -> bool {
        self.epoch == EPOCH_FULL
    }
}

impl FetchSession {
    /// Plans a request that fetches these partitions and no others. Costs a few nanoseconds for an unchanged
    /// partition.
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
            // A partition that has only changed its slot is named; a node that forgets after adding would lose it
            // otherwise.
            let wanted: HashSet<_> = wanted.iter().map(|one| (&one.partition, one.topic_id)).collect();
            plan.forgotten.retain(|(partition, topic_id)| !wanted.contains(&(partition, *topic_id)));
        }
        plan
    }

    /// Marks a partition as wanted, and returns whether the node knows it differently.
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

    /// Handles the answer's session id: 0 if the node keeps no session.
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

    /// Handles a node that does not know the session, or has another request count: starts a new session with all
    /// partitions. Returns whether to do so at once, as Kafka's consumers do: nodes drop sessions to make room for
    /// others. A node that does so repeatedly, or refuses a request without a session, gets a pause.
    pub(super) fn refused(&mut self, is_known: bool) -> bool {
        let at_once = self.epoch != EPOCH_FULL && !self.was_refused;
        let id = if is_known { self.id } else { 0 };
        *self = Self { id, was_refused: true, ..Self::default() };
        at_once
    }

    /// Starts a new session with all partitions after a failure. That ends the former one, which the node would
    /// otherwise keep, in the place of another client's, until it needs the room.
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
    fn request_names_only_changed_partitions() {
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
    fn partition_in_a_reused_slot_replaces_the_former_one() {
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
    fn request_is_full_without_a_session_and_after_a_failure() {
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
    fn new_session_ends_the_former_one_on_the_node() {
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
    fn second_refused_session_in_a_row_causes_a_pause() {
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
