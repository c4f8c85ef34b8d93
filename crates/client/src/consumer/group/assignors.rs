//! Who reads what, computed by the leader of a classic group.
//!
//! Pure. `range` deals out each topic by itself, in blocks, and `roundrobin` all partitions in turn, as Kafka's clients
//! do. `cooperative-sticky` keeps what
//! members have as far as balance allows, and gives a partition to its new reader only once the old one let go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::topic_partition::TopicPartition;

/// A way to assign partitions in a classic group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Assignor {
    /// Blocks of each topic, in the order of the members' names.
    Range,
    /// All partitions in turn, in the order of the members' names.
    RoundRobin,
    /// Balanced over all topics with few moves; readers keep what they keep during a rebalance.
    CooperativeSticky,
}

impl Assignor {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Range, Self::RoundRobin, Self::CooperativeSticky];

    /// The name that the group knows it by.
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

/// What the leader knows of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subscriber {
    pub(super) member_id: String,
    pub(super) instance_id: Option<String>,
    pub(super) topics: BTreeSet<String>,
    /// What it reads now, by its own words, and since which generation.
    pub(super) owned: Vec<TopicPartition>,
    pub(super) generation: i32,
}

/// What each member reads, by member id.
pub(super) type Plan = BTreeMap<String, Vec<TopicPartition>>;

/// Assigns every partition of the subscribed topics, of which `counts` has the number of partitions.
pub(super) fn assign(assignor: Assignor, members: &[Subscriber], counts: &BTreeMap<String, i32>) -> Plan {
    match assignor {
        Assignor::Range => range(members, counts),
        Assignor::RoundRobin => round_robin(members, counts),
        Assignor::CooperativeSticky => cooperative_sticky(members, counts),
    }
}

/// Static members first and by their own names, so that a restart, which changes the id, moves nothing.
fn order(member: &Subscriber) -> (bool, Option<String>, String) {
    (member.instance_id.is_none(), member.instance_id.clone(), member.member_id.clone())
}

/// Every partition to the next member that reads its topic.
fn round_robin(members: &[Subscriber], counts: &BTreeMap<String, i32>) -> Plan {
    let mut plan: Plan = members.iter().map(|member| (member.member_id.clone(), Vec::new())).collect();
    let mut sorted: Vec<&Subscriber> = members.iter().collect();
    sorted.sort_by_key(|member| order(member));
    let mut turns = sorted.iter().cycle();
    for (topic, &count) in counts {
        if !sorted.iter().any(|member| member.topics.contains(topic)) {
            continue;
        }
        let name: Arc<str> = topic.as_str().into();
        for partition in 0..count {
            let Some(reader) = turns.find(|member| member.topics.contains(topic)) else { break };
            let partition = TopicPartition::new(Arc::clone(&name), partition);
            plan.entry(reader.member_id.clone()).or_default().push(partition);
        }
    }
    plan
}

fn range(members: &[Subscriber], counts: &BTreeMap<String, i32>) -> Plan {
    let mut plan: Plan = members.iter().map(|member| (member.member_id.clone(), Vec::new())).collect();
    for (topic, &count) in counts {
        let mut readers: Vec<&Subscriber> =
            members.iter().filter(|member| member.topics.contains(topic)).collect();
        readers.sort_by_key(|member| order(member));
        let Ok(readers_count) = i32::try_from(readers.len()) else { continue };
        if readers_count == 0 {
            continue;
        }
        let name: Arc<str> = topic.as_str().into();
        let (each, extra) = (count / readers_count, count % readers_count);
        let mut next = 0;
        for (reader, place) in readers.into_iter().zip(0..) {
            let end = next + each + i32::from(place < extra);
            let block = (next..end).map(|partition| TopicPartition::new(Arc::clone(&name), partition));
            plan.entry(reader.member_id.clone()).or_default().extend(block);
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

/// A plan in the making. Members are named by their place.
///
/// Invariants: every partition of `counts` that somebody reads is in `reader`, once `fill` has run; `loads` counts
/// its entries for each member. All that is in `owner` is in `claimed`, too.
struct Balance<'a> {
    members: &'a [Subscriber],
    /// Places of those who may read a topic.
    eligible: BTreeMap<&'a str, Vec<usize>>,
    partitions: Vec<TopicPartition>,
    /// Who has a partition now, and may keep it.
    owner: BTreeMap<TopicPartition, usize>,
    /// What some member says to have, rightly or not: it may be reading it.
    claimed: BTreeSet<&'a TopicPartition>,
    /// Who is to have it.
    reader: BTreeMap<TopicPartition, usize>,
    loads: Vec<usize>,
}

impl<'a> Balance<'a> {
    fn new(members: &'a [Subscriber], counts: &'a BTreeMap<String, i32>) -> Self {
        let mut eligible = BTreeMap::<&str, Vec<usize>>::new();
        let mut partitions = Vec::new();
        for (topic, &count) in counts {
            let readers: Vec<usize> =
                (0..members.len()).filter(|at| members[*at].topics.contains(topic)).collect();
            if !readers.is_empty() {
                let name: Arc<str> = topic.as_str().into();
                partitions.extend((0..count).map(|index| TopicPartition::new(Arc::clone(&name), index)));
                eligible.insert(topic, readers);
            }
        }
        let owner = owners(members, &partitions);
        let claimed = members.iter().flat_map(|member| &member.owned).collect();
        let mut loads = vec![0; members.len()];
        for place in owner.values() {
            loads[*place] += 1;
        }
        Self { members, eligible, partitions, reader: owner.clone(), owner, claimed, loads }
    }

    fn least_loaded(&self, topic: &str) -> Option<usize> {
        self.eligible.get(topic)?.iter().copied().min_by_key(|place| self.loads[*place])
    }

    /// Gives what nobody has to who has least.
    fn fill(&mut self) {
        for at in 0..self.partitions.len() {
            let partition = self.partitions[at].clone();
            if self.reader.contains_key(&partition) {
                continue;
            }
            if let Some(place) = self.least_loaded(&partition.topic) {
                self.loads[place] += 1;
                self.reader.insert(partition, place);
            }
        }
    }

    /// Moves partitions from who has more to who has at least two less, until there is no such pair. Each move
    /// makes the sum of the squared loads smaller, so it ends.
    fn level(&mut self) {
        let mut moved = true;
        while moved {
            moved = false;
            for partition in &self.partitions {
                let Some(&from) = self.reader.get(partition) else { continue };
                let Some(to) = self.least_loaded(&partition.topic) else { continue };
                if self.loads[to] + 2 <= self.loads[from] {
                    self.loads[from] -= 1;
                    self.loads[to] += 1;
                    self.reader.insert(partition.clone(), to);
                    moved = true;
                }
            }
        }
    }

    /// What moves is given to nobody yet: whoever claims it sees that it is gone, lets go and joins again. That goes for
    /// claims that make nobody its owner, too, such as one on a topic that its member no longer reads.
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

/// Who may count as the owner of each partition: the member of the latest generation that claims it, if it still reads
/// the topic. Of two with the same generation one is wrong, so neither does.
fn owners(members: &[Subscriber], partitions: &[TopicPartition]) -> BTreeMap<TopicPartition, usize> {
    let known: BTreeSet<&TopicPartition> = partitions.iter().collect();
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
