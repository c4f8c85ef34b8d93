//! The assignors of the classic protocol, run by the leader of a group.
//!
//! Pure. `range` assigns each topic separately, in blocks, and `roundrobin` all partitions in turn, as Kafka's
//! clients do. `cooperative-sticky` keeps existing assignments as far as balance allows, and gives a partition to its
//! new reader only once the old one has given it up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::topic_partition::TopicPartition;

/// An assignor of a classic group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Assignor {
    /// Blocks of each topic, in the order of the members' names.
    Range,
    /// All partitions in turn, in the order of the members' names.
    RoundRobin,
    /// Balanced over all topics with few moves; members keep reading their partitions during a rebalance.
    CooperativeSticky,
}

impl Assignor {
    /// All assignors.
    pub const ALL: [Self; 3] = [Self::Range, Self::RoundRobin, Self::CooperativeSticky];

    /// Its name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::Range => "range",
            Self::RoundRobin => "roundrobin",
            Self::CooperativeSticky => "cooperative-sticky",
        }
    }

    /// The assignor of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|assignor| assignor.name() == name)
    }
}

/// A member as the leader knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subscriber {
    pub(super) member_id: String,
    pub(super) instance_id: Option<String>,
    pub(super) topics: BTreeSet<String>,
    /// The partitions that it claims, and their generation.
    pub(super) owned: Vec<TopicPartition>,
    pub(super) generation: i32,
}

/// The partitions of each member, by member id.
pub(super) type Plan = BTreeMap<String, Vec<TopicPartition>>;

/// Assigns every partition of the subscribed topics; `counts` has the number of partitions of each.
pub(super) fn assign(assignor: Assignor, members: &[Subscriber], counts: &BTreeMap<String, i32>) -> Plan {
    match assignor {
        Assignor::Range => range(members, counts),
        Assignor::RoundRobin => round_robin(members, counts),
        Assignor::CooperativeSticky => cooperative_sticky(members, counts),
    }
}

/// Static members first and by their own names, so that a restart, which changes the member id, moves nothing.
fn order(member: &Subscriber) -> (bool, Option<&str>, &str) {
    (member.instance_id.is_none(), member.instance_id.as_deref(), &member.member_id)
}

/// Indexes of the members that read each topic, in the order of these members. Visits each member once, however many
/// topics and partitions there are.
fn readers<'a>(members: &[&'a Subscriber]) -> BTreeMap<&'a str, Vec<usize>> {
    let mut readers = BTreeMap::<&str, Vec<usize>>::new();
    for (place, member) in members.iter().enumerate() {
        for topic in &member.topics {
            readers.entry(topic).or_default().push(place);
        }
    }
    readers
}

/// An empty plan, and the members in their order.
fn begin(members: &[Subscriber]) -> (Plan, Vec<&Subscriber>) {
    let plan = members.iter().map(|member| (member.member_id.clone(), Vec::new())).collect();
    let mut sorted: Vec<&Subscriber> = members.iter().collect();
    sorted.sort_by(|one, other| order(one).cmp(&order(other)));
    (plan, sorted)
}

/// Assigns every partition to the next member that reads its topic.
fn round_robin(members: &[Subscriber], counts: &BTreeMap<String, i32>) -> Plan {
    let (mut plan, sorted) = begin(members);
    let readers = readers(&sorted);
    let mut next = 0;
    for (topic, &count) in counts {
        let Some(readers) = readers.get(topic.as_str()) else { continue };
        let name: Arc<str> = topic.as_str().into();
        for partition in 0..count {
            let after = readers.partition_point(|place| *place < next);
            let place = readers[after % readers.len()];
            next = place + 1;
            let partition = TopicPartition::new(Arc::clone(&name), partition);
            plan.entry(sorted[place].member_id.clone()).or_default().push(partition);
        }
    }
    plan
}

fn range(members: &[Subscriber], counts: &BTreeMap<String, i32>) -> Plan {
    let (mut plan, sorted) = begin(members);
    let readers = readers(&sorted);
    for (topic, &count) in counts {
        let Some(readers) = readers.get(topic.as_str()) else { continue };
        let Ok(readers_count) = i32::try_from(readers.len()) else { continue };
        let name: Arc<str> = topic.as_str().into();
        let (each, extra) = (count / readers_count, count % readers_count);
        let mut next = 0;
        for (reader, rank) in readers.iter().zip(0..) {
            let end = next + each + i32::from(rank < extra);
            let block = (next..end).map(|partition| TopicPartition::new(Arc::clone(&name), partition));
            plan.entry(sorted[*reader].member_id.clone()).or_default().extend(block);
            next = end;
        }
    }
    plan
}

fn cooperative_sticky(members: &[Subscriber], counts: &BTreeMap<String, i32>) -> Plan {
    let mut balance = Balance::new(members, counts);
    balance.fill();
    balance.level();
    balance.into_plan()
}

/// A topic and its readers.
struct Topic {
    partitions: Vec<TopicPartition>,
    /// Indexes of members.
    readers: Vec<usize>,
}

/// The readers of one topic by their loads, so that the least loaded one is found without a search.
///
/// Invariants: holds the load of each of the `readers`.
#[derive(Default)]
struct Ranking {
    readers: Vec<usize>,
    by_load: BTreeSet<(usize, usize)>,
}

impl Ranking {
    /// Moves to another topic. Changes nothing where the same members read it.
    fn move_to(&mut self, topic: &Topic, loads: &[usize]) {
        if self.readers != topic.readers {
            self.readers.clone_from(&topic.readers);
            self.by_load = topic.readers.iter().map(|place| (loads[*place], *place)).collect();
        }
    }

    /// The first of the readers with the smallest load.
    fn least_loaded(&self) -> Option<usize> {
        self.by_load.first().map(|(_, place)| *place)
    }

    /// Updates the load of a reader.
    fn change(&mut self, place: usize, load: &mut usize, to: usize) {
        self.by_load.remove(&(*load, place));
        *load = to;
        self.by_load.insert((to, place));
    }
}

/// A plan in the making. Members are named by their index.
///
/// Invariants: every partition of `topics` is in `reader`, once `fill` has run, and its reader is among those of its
/// topic; `loads` counts its entries for each member. Every partition in `owner` is in `claimed`, too.
struct Balance<'a> {
    members: &'a [Subscriber],
    /// The topics that have readers.
    topics: Vec<Topic>,
    /// The member that has a partition now, and may keep it.
    owner: BTreeMap<TopicPartition, usize>,
    /// Partitions that any member claims, rightly or not: it may be reading them.
    claimed: BTreeSet<&'a TopicPartition>,
    /// The member that will have the partition.
    reader: BTreeMap<TopicPartition, usize>,
    loads: Vec<usize>,
}

impl<'a> Balance<'a> {
    fn new(members: &'a [Subscriber], counts: &BTreeMap<String, i32>) -> Self {
        let mut readers = readers(&members.iter().collect::<Vec<_>>());
        let mut topics = Vec::new();
        for (topic, &count) in counts {
            if let Some(readers) = readers.remove(topic.as_str()) {
                let name: Arc<str> = topic.as_str().into();
                let partition = |index| TopicPartition::new(Arc::clone(&name), index);
                topics.push(Topic { partitions: (0..count).map(partition).collect(), readers });
            }
        }
        let owner = owners(members, topics.iter().flat_map(|topic| &topic.partitions));
        let claimed = members.iter().flat_map(|member| &member.owned).collect();
        let mut loads = vec![0; members.len()];
        for place in owner.values() {
            loads[*place] += 1;
        }
        Self { members, topics, reader: owner.clone(), owner, claimed, loads }
    }

    /// Gives each unassigned partition to the least loaded reader.
    fn fill(&mut self) {
        let mut ranking = Ranking::default();
        for topic in &self.topics {
            ranking.move_to(topic, &self.loads);
            for partition in &topic.partitions {
                if self.reader.contains_key(partition) {
                    continue;
                }
                if let Some(place) = ranking.least_loaded() {
                    let load = self.loads[place] + 1;
                    ranking.change(place, &mut self.loads[place], load);
                    self.reader.insert(partition.clone(), place);
                }
            }
        }
    }

    /// Moves partitions from a member to one that has at least two less, until there is no such pair. Each move
    /// reduces the sum of the squared loads, so it ends.
    fn level(&mut self) {
        let mut moved = true;
        let mut ranking = Ranking::default();
        while moved {
            moved = false;
            for topic in &self.topics {
                ranking.move_to(topic, &self.loads);
                for partition in &topic.partitions {
                    let Some(reader) = self.reader.get_mut(partition) else { continue };
                    let Some(to) = ranking.least_loaded() else { continue };
                    let (from, most, least) = (*reader, self.loads[*reader], self.loads[to]);
                    if least + 2 <= most {
                        ranking.change(from, &mut self.loads[from], most - 1);
                        ranking.change(to, &mut self.loads[to], least + 1);
                        *reader = to;
                        moved = true;
                    }
                }
            }
        }
    }

    /// Leaves moving partitions unassigned: the member that claims one sees that it is gone, gives it up and joins
    /// again. The same goes for claims without an owner, such as one on a topic that its member no longer reads.
    fn into_plan(self) -> Plan {
        let mut plan: Plan =
            self.members.iter().map(|member| (member.member_id.clone(), Vec::new())).collect();
        for (partition, reader) in self.reader {
            if self.owner.get(&partition) == Some(&reader) || !self.claimed.contains(&partition) {
                plan.entry(self.members[reader].member_id.clone()).or_default().push(partition);
            }
        }
        plan
    }
}

/// The possible owner of each partition: the member of the latest generation that claims it, if it still reads the
/// topic. Of two claims of the same generation one is wrong, so neither counts.
fn owners<'a>(
    members: &[Subscriber],
    partitions: impl IntoIterator<Item = &'a TopicPartition>,
) -> BTreeMap<TopicPartition, usize> {
    let known: BTreeSet<&TopicPartition> = partitions.into_iter().collect();
    let mut claims = BTreeMap::<&TopicPartition, (i32, Option<usize>)>::new();
    for (place, member) in members.iter().enumerate() {
        for partition in member.owned.iter().filter(|partition| known.contains(partition)) {
            let claim = claims.entry(partition).or_insert((i32::MIN, None));
            match member.generation.cmp(&claim.0) {
                std::cmp::Ordering::Greater => *claim = (member.generation, Some(place)),
                std::cmp::Ordering::Equal => claim.1 = None,
                std::cmp::Ordering::Less => {}
            }
        }
    }
    let owner = |(partition, (_, place)): (&TopicPartition, (i32, Option<usize>))| {
        let place = place.filter(|place| members[*place].topics.contains(&*partition.topic))?;
        Some((partition.clone(), place))
    };
    claims.into_iter().filter_map(owner).collect()
}

#[cfg(test)]
mod tests;
