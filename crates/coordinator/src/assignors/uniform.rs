//! The `uniform` assignor: even shares over all topics together, moving as little as that allows.
//!
//! It works in three passes. (1) Members keep their current partitions, as far as they still may have them. (2)
//! Partitions without an owner go to the least loaded subscriber, topics with the fewest subscribers first. (3)
//! Single partitions move from the most loaded member that can usefully give one away to the least loaded one that
//! may take it.
//!
//! Guarantees: no single move of a partition makes the loads of two members more even. So members with the same
//! subscription differ by at most one partition, and when all members subscribe to the same topics, only necessary
//! moves are made. A second assignment of the same group is the same.
//!
//! Each move lowers the sum of the squared loads, so the last pass ends. Clients determine its cost, which is highest
//! if no two subscriptions are alike. So it stops after [`EVEN_OUT_LOOKS_MAX`] examined things, with loads that could
//! be more even. The first two passes take time proportional to the subscriptions and the partitions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::{iter, ptr};

use riverrun_types::{PartitionId, TopicId};

use super::{Assignment, Member, PartitionCounts, ranked};

/// Upper bound of things that the last pass examines: some hundred milliseconds, in which hundreds of thousands of
/// partitions move if members share a few subscriptions.
const EVEN_OUT_LOOKS_MAX: usize = 20_000_000;

pub(super) fn assign(members: &[Member<'_>], topics: &PartitionCounts) -> Vec<Assignment> {
    assign_within(members, topics, EVEN_OUT_LOOKS_MAX).0
}

/// Assigns with at most `looks_max` looks in the last pass. The second result is the number of members' places that
/// all passes have examined or changed.
pub(super) fn assign_within(
    members: &[Member<'_>],
    topics: &PartitionCounts,
    even_out_looks_max: usize,
) -> (Vec<Assignment>, usize) {
    let ranks = ranked(members);
    let in_order: Vec<Member<'_>> = ranks.iter().map(|&member| members[member]).collect();
    let mut balancer = Balancer::new(&in_order, topics);
    balancer.keep_current();
    balancer.hand_out_unowned();
    balancer.even_out(even_out_looks_max);
    let looks = balancer.looks;
    let mut shares = vec![Assignment::new(); members.len()];
    for (rank, share) in balancer.into_shares().into_iter().enumerate() {
        shares[ranks[rank]] = share;
    }
    (shares, looks)
}

/// Topics with the same subscribers: for the balance their partitions are interchangeable.
struct Class {
    /// The subscriptions that contain them.
    sets: Vec<usize>,
    topics: Vec<TopicId>,
}

/// A member's partitions of one class.
#[derive(Default)]
struct Holding {
    /// New to it: these are given away first, because nothing is lost.
    fresh: BTreeSet<PartitionId>,
    /// Its own already.
    kept: BTreeSet<PartitionId>,
}

/// The assignment that is being made. Members are identified by rank, classes by index.
///
/// Invariants: `loads[m]` is the number of partitions in `holdings[m]`; `by_load` holds `(loads[m], m)` for every member,
/// and `by_load_of_set` for every member that has the subscription; a partition is in one holding at most, and set in
/// `owned` exactly if it is in one.
struct Balancer<'a> {
    members: &'a [Member<'a>],
    classes: Vec<Class>,
    class_of: HashMap<TopicId, usize>,
    /// The subscription of each member.
    set_of: Vec<usize>,
    by_load_of_set: Vec<BTreeSet<(usize, usize)>>,
    owned: BTreeMap<TopicId, Vec<bool>>,
    holdings: Vec<BTreeMap<usize, Holding>>,
    loads: Vec<usize>,
    by_load: BTreeSet<(usize, usize)>,
    /// Number of members' places examined or changed.
    looks: usize,
}

impl<'a> Balancer<'a> {
    fn new(members: &'a [Member<'a>], topics: &PartitionCounts) -> Self {
        let (sets, set_of) = distinct_sets(members);
        let classes = classify(&sets, topics);
        let mut by_load_of_set = vec![BTreeSet::new(); sets.len()];
        for (member, &set) in set_of.iter().enumerate() {
            by_load_of_set[set].insert((0, member));
        }
        let class_of = classes.iter().enumerate();
        let class_of =
            class_of.flat_map(|(index, class)| class.topics.iter().map(move |&topic| (topic, index)));
        let unowned = |topic: &TopicId| (*topic, vec![false; usize::try_from(topics[topic]).unwrap_or(0)]);
        Self {
            members,
            class_of: class_of.collect(),
            set_of,
            by_load_of_set,
            owned: classes.iter().flat_map(|class| class.topics.iter().map(unowned)).collect(),
            classes,
            holdings: members.iter().map(|_| BTreeMap::new()).collect(),
            loads: vec![0; members.len()],
            by_load: (0..members.len()).map(|member| (0, member)).collect(),
            looks: 0,
        }
    }

    /// First pass. A partition that two members claim, which no assignment of these strategies gives, stays with the
    /// first.
    fn keep_current(&mut self) {
        for (rank, member) in self.members.iter().enumerate() {
            for (&topic, partitions) in member.current {
                if !member.subscribed.contains(&topic) {
                    continue;
                }
                for index in partitions.indexes() {
                    if self.claim(PartitionId { topic, index }) {
                        self.give(PartitionId { topic, index }, rank);
                    }
                }
            }
        }
    }

    /// Second pass.
    fn hand_out_unowned(&mut self) {
        let mut order: Vec<usize> = (0..self.classes.len()).collect();
        order.sort_by_cached_key(|&class| self.subscribers(class).count());
        for class in order {
            let by_load = self.subscribers(class).map(Reverse);
            let mut by_load: BinaryHeap<_> = by_load.collect();
            self.looks += by_load.len();
            for topic in self.classes[class].topics.clone() {
                self.hand_out_topic(&mut by_load, topic);
            }
        }
    }

    /// The subscribers of a class with their loads.
    fn subscribers(&self, class: usize) -> impl Iterator<Item = (usize, usize)> {
        self.classes[class].sets.iter().flat_map(|&set| self.by_load_of_set[set].iter().copied())
    }

    /// Hands out a topic to its subscribers; `by_load` has their loads, and is updated.
    fn hand_out_topic(&mut self, by_load: &mut BinaryHeap<Reverse<(usize, usize)>>, topic: TopicId) {
        let Some(owned) = self.owned.get(&topic) else { return };
        let unowned: Vec<i32> =
            (0..).zip(owned).filter(|(_, owned)| !**owned).map(|(index, _)| index).collect();
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for _ in &unowned {
            let Some(Reverse((load, receiver))) = by_load.pop() else { return };
            *counts.entry(receiver).or_default() += 1;
            by_load.push(Reverse((load + 1, receiver)));
        }
        // Neighbours go to one member, as in Kafka: that takes less memory in every map of partitions.
        let receivers = counts.into_iter().flat_map(|(receiver, count)| iter::repeat_n(receiver, count));
        for (index, receiver) in unowned.into_iter().zip(receivers) {
            let partition = PartitionId { topic, index };
            self.claim(partition);
            self.give(partition, receiver);
        }
    }

    /// Third pass.
    fn even_out(&mut self, looks_max: usize) {
        let looks_max = self.looks.saturating_add(looks_max);
        while let Some((donor, class, receiver)) = self.useful_move(looks_max) {
            let Some(partition) = self.take(donor, class) else { return };
            self.give(partition, receiver);
        }
    }

    /// The move that helps most: donor, class of the partition, receiver. `None` after `looks_max` looks.
    fn useful_move(&mut self, looks_max: usize) -> Option<(usize, usize, usize)> {
        let least = self.by_load.first()?.0;
        for &(load, donor) in self.by_load.iter().rev() {
            if load <= least + 1 {
                return None;
            }
            let classes = self.holdings[donor].keys();
            let looks: usize =
                1 + classes.clone().map(|&class| self.classes[class].sets.len()).sum::<usize>();
            self.looks += looks;
            if self.looks > looks_max {
                return None;
            }
            let receivers = classes.filter_map(|&class| {
                let sets = self.classes[class].sets.iter();
                let &(load, receiver) = sets.filter_map(|&set| self.by_load_of_set[set].first()).min()?;
                Some((load, receiver, class))
            });
            if let Some((lighter, receiver, class)) = receivers.min()
                && lighter + 1 < load
            {
                return Some((donor, class, receiver));
            }
        }
        None
    }

    /// Records the partition as owned; returns `false` if it does not exist or has an owner already.
    fn claim(&mut self, partition: PartitionId) -> bool {
        let flags = self.owned.get_mut(&partition.topic);
        let flag = flags.and_then(|flags| flags.get_mut(usize::try_from(partition.index).ok()?));
        flag.is_some_and(|flag| !std::mem::replace(flag, true))
    }

    fn give(&mut self, partition: PartitionId, receiver: usize) {
        let Some(&class) = self.class_of.get(&partition.topic) else { return };
        let current = self.members[receiver].current.get(&partition.topic);
        let is_kept = current.is_some_and(|current| current.contains(partition.index));
        let holding = self.holdings[receiver].entry(class).or_default();
        if is_kept {
            holding.kept.insert(partition)
        } else {
            holding.fresh.insert(partition)
        };
        self.set_load(receiver, self.loads[receiver] + 1);
    }

    fn take(&mut self, donor: usize, class: usize) -> Option<PartitionId> {
        let holding = self.holdings[donor].get_mut(&class)?;
        let partition = holding.fresh.pop_last().or_else(|| holding.kept.pop_last())?;
        if holding.fresh.is_empty() && holding.kept.is_empty() {
            self.holdings[donor].remove(&class);
        }
        self.set_load(donor, self.loads[donor] - 1);
        Some(partition)
    }

    fn set_load(&mut self, member: usize, load: usize) {
        let old = std::mem::replace(&mut self.loads[member], load);
        self.by_load.remove(&(old, member));
        self.by_load.insert((load, member));
        self.looks += 1;
        let by_load = &mut self.by_load_of_set[self.set_of[member]];
        by_load.remove(&(old, member));
        by_load.insert((load, member));
    }

    fn into_shares(self) -> Vec<Assignment> {
        let share = |holdings: BTreeMap<usize, Holding>| {
            let mut share = Assignment::new();
            for partition in
                holdings.into_values().flat_map(|holding| holding.fresh.into_iter().chain(holding.kept))
            {
                share.entry(partition.topic).or_default().insert(partition.index, ());
            }
            share
        };
        self.holdings.into_iter().map(share).collect()
    }
}

/// Sorts the subscribed topics into classes, by subscription and not by member: large groups usually share a few.
fn classify(sets: &[&BTreeSet<TopicId>], topics: &PartitionCounts) -> Vec<Class> {
    let mut sets_of_topic: BTreeMap<TopicId, Vec<usize>> = BTreeMap::new();
    for (set, subscribed) in sets.iter().enumerate() {
        for topic in subscribed.iter().filter(|topic| topics.contains_key(topic)) {
            sets_of_topic.entry(*topic).or_default().push(set);
        }
    }
    let mut topics_of_sets: BTreeMap<Vec<usize>, Vec<TopicId>> = BTreeMap::new();
    for (topic, sets) in sets_of_topic {
        topics_of_sets.entry(sets).or_default().push(topic);
    }
    topics_of_sets.into_iter().map(|(sets, topics)| Class { sets, topics }).collect()
}

/// The distinct subscriptions in order of first appearance, and the index of each member's. Sets are distinguished by
/// address: two equal ones may count twice, which does no harm, because they are in the same classes.
fn distinct_sets<'a>(members: &[Member<'a>]) -> (Vec<&'a BTreeSet<TopicId>>, Vec<usize>) {
    let mut sets = Vec::new();
    let mut seen = HashMap::new();
    let set_of = members.iter().map(|member| {
        *seen.entry(ptr::from_ref(member.subscribed)).or_insert_with(|| {
            sets.push(member.subscribed);
            sets.len() - 1
        })
    });
    let set_of = set_of.collect();
    (sets, set_of)
}
