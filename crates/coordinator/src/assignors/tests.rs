//! Guarantees of both assignors as properties over random groups, and their characteristic shares by example.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use riverrun_types::TopicId;

use super::{Assignment, Assignor, Indexes, Member, PartitionCounts, uniform};

const BOTH: [Assignor; 2] = [Assignor::Uniform, Assignor::Range];

/// A group that owns the values which [`Member`] borrows.
#[derive(Clone, Debug)]
struct TestGroup {
    members: Vec<TestMember>,
    topics: PartitionCounts,
}

#[derive(Clone, Debug)]
struct TestMember {
    id: String,
    instance_id: Option<String>,
    subscribed: BTreeSet<TopicId>,
    current: Assignment,
}

impl TestGroup {
    fn assign(&self, assignor: Assignor) -> Vec<Assignment> {
        let members: Vec<Member<'_>> = self.members.iter().map(TestMember::borrow).collect();
        assignor.assign(&members, &self.topics)
    }

    /// The shares that `uniform` gives if its last pass has at most this many looks, and the number of all looks.
    fn assign_uniform(&self, even_out_looks_max: usize) -> (Vec<Assignment>, usize) {
        let members: Vec<Member<'_>> = self.members.iter().map(TestMember::borrow).collect();
        uniform::assign_within(&members, &self.topics, even_out_looks_max)
    }

    /// Sets these shares as the members' current assignments.
    fn adopt(&mut self, shares: Vec<Assignment>) {
        for (member, share) in self.members.iter_mut().zip(shares) {
            member.current = share;
        }
    }
}

impl TestMember {
    fn borrow(&self) -> Member<'_> {
        Member {
            id: &self.id,
            instance_id: self.instance_id.as_deref(),
            subscribed: &self.subscribed,
            current: &self.current,
        }
    }

    fn new(id: &str, topics: &[u8]) -> Self {
        let subscribed = topics.iter().map(|&name| topic(name)).collect();
        Self { id: id.to_owned(), instance_id: None, subscribed, current: Assignment::new() }
    }
}

fn topic(name: u8) -> TopicId {
    TopicId([name; 16])
}

fn counts(topics: &[(u8, i32)]) -> PartitionCounts {
    topics.iter().map(|&(name, partitions)| (topic(name), partitions)).collect()
}

fn load(share: &Assignment) -> usize {
    share.values().map(Indexes::len).sum()
}

/// Number of partitions that members lose although these still exist and are subscribed to.
fn moved(before: &[TestMember], after: &[Assignment], topics: &PartitionCounts) -> usize {
    let lost = |member: &TestMember, share: &Assignment| {
        let had = member.current.iter().filter(|(topic, _)| member.subscribed.contains(topic));
        let had =
            had.flat_map(|(topic, partitions)| partitions.indexes().map(move |partition| (topic, partition)));
        had.filter(|(topic, partition)| topics.get(topic).is_some_and(|count| partition < count))
            .filter(|(topic, partition)| !share.get(topic).is_some_and(|share| share.contains(*partition)))
            .count()
    };
    before.iter().zip(after).map(|(member, share)| lost(member, share)).sum()
}

fn assert_each_once(group: &TestGroup, shares: &[Assignment]) {
    let mut owners: BTreeMap<(TopicId, i32), usize> = BTreeMap::new();
    for (index, share) in shares.iter().enumerate() {
        for (topic, partitions) in share {
            assert!(
                group.members[index].subscribed.contains(topic),
                "an unsubscribed member was given a partition"
            );
            assert!(!partitions.is_empty(), "an empty topic in an assignment");
            for partition in partitions.indexes() {
                assert_eq!(
                    owners.insert((*topic, partition), index),
                    None,
                    "two owners of {topic}-{partition}"
                );
            }
        }
    }
    let subscribed: BTreeSet<TopicId> =
        group.members.iter().flat_map(|member| member.subscribed.clone()).collect();
    let expected = group.topics.iter().filter(|(topic, _)| subscribed.contains(topic));
    let expected: BTreeSet<(TopicId, i32)> =
        expected.flat_map(|(topic, count)| (0..*count).map(move |partition| (*topic, partition))).collect();
    assert_eq!(owners.into_keys().collect::<BTreeSet<_>>(), expected);
}

/// Six topics, of which the last is in no metadata: subscriptions may name topics that do not exist.
fn any_group() -> impl Strategy<Value = TestGroup> {
    let member = (any::<bool>(), prop::collection::btree_set(0_u8..6, 0..6));
    (prop::collection::vec(member, 1..9), prop::collection::vec(0_i32..13, 5)).prop_map(
        |(members, partitions)| {
            let members = members.into_iter().enumerate().map(|(index, (is_static, topics))| TestMember {
                instance_id: is_static.then(|| format!("instance-{}", 9 - index)),
                ..TestMember::new(&format!("member-{index}"), &topics.into_iter().collect::<Vec<_>>())
            });
            let topics = partitions.into_iter().zip(0_u8..).filter(|(count, _)| *count > 0);
            TestGroup {
                members: members.collect(),
                topics: topics.map(|(count, name)| (topic(name), count)).collect(),
            }
        },
    )
}

/// A group before and after a change; the first one's assignment is the members' current one.
fn any_changed_group(assignor: Assignor) -> impl Strategy<Value = TestGroup> {
    (any_group(), any_group()).prop_map(move |(before, mut after)| {
        for (member, share) in after.members.iter_mut().zip(before.assign(assignor)) {
            member.current = share;
        }
        after
    })
}

proptest! {
    #[test]
    fn every_partition_has_one_owner_that_subscribes_to_it(
        uniform in any_changed_group(Assignor::Uniform),
        range in any_changed_group(Assignor::Range),
    ) {
        assert_each_once(&uniform, &uniform.assign(Assignor::Uniform));
        assert_each_once(&range, &range.assign(Assignor::Range));
    }

    #[test]
    fn the_order_in_which_members_are_named_does_not_matter(group in any_changed_group(Assignor::Uniform)) {
        let mut reversed = group.clone();
        reversed.members.reverse();
        for assignor in BOTH {
            let mut shares = reversed.assign(assignor);
            shares.reverse();
            prop_assert_eq!(shares, group.assign(assignor));
        }
    }

    #[test]
    fn a_group_that_does_not_change_keeps_its_assignment(group in any_changed_group(Assignor::Uniform)) {
        for assignor in BOTH {
            let mut group = group.clone();
            let shares = group.assign(assignor);
            group.adopt(shares.clone());
            prop_assert_eq!(group.assign(assignor), shares);
        }
    }

    #[test]
    fn uniform_leaves_no_single_move_that_would_even_the_loads(group in any_changed_group(Assignor::Uniform)) {
        let shares = group.assign(Assignor::Uniform);
        for donor in &shares {
            for (member, receiver) in group.members.iter().zip(&shares) {
                let could_take = donor.keys().any(|topic| member.subscribed.contains(topic));
                prop_assert!(!could_take || load(donor) <= load(receiver) + 1);
            }
        }
    }

    #[test]
    fn uniform_moves_no_more_than_equal_shares_need(
        before in 1_usize..9, after in 1_usize..9, partitions in prop::collection::vec(1_i32..20, 1..4),
    ) {
        let topics = counts(&(0_u8..).zip(partitions).collect::<Vec<_>>());
        let names: Vec<u8> = (0..u8::try_from(topics.len()).unwrap()).collect();
        let members = |count: usize| (0..count).map(|index| TestMember::new(&format!("m{index}"), &names)).collect();
        let first = TestGroup { members: members(before), topics: topics.clone() };
        let mut second = TestGroup { members: members(after), topics };
        second.adopt(first.assign(Assignor::Uniform));
        let shares = second.assign(Assignor::Uniform);
        // A member that stays gives up only the excess over its new share; members that left give up nothing.
        let had: Vec<usize> = second.members.iter().map(|member| load(&member.current)).collect();
        let excess: usize = had.iter().zip(&shares).map(|(had, share)| had.saturating_sub(load(share))).sum();
        prop_assert_eq!(moved(&second.members, &shares, &second.topics), excess);
        let loads = shares.iter().map(load);
        prop_assert!(loads.clone().max().unwrap() - loads.min().unwrap() <= 1);
    }

    #[test]
    fn range_gives_contiguous_ranges_that_differ_by_one(group in any_changed_group(Assignor::Range)) {
        let shares = group.assign(Assignor::Range);
        for topic in group.topics.keys() {
            let subscribers = group.members.iter().zip(&shares).filter(|(member, _)| member.subscribed.contains(topic));
            let ranges: Vec<Indexes> =
                subscribers.map(|(_, share)| share.get(topic).cloned().unwrap_or_default()).collect();
            prop_assert!(ranges.iter().all(|range| range.run_count() <= 1));
            let sizes = ranges.iter().map(Indexes::len);
            prop_assert!(sizes.clone().max().unwrap_or(0) - sizes.min().unwrap_or(0) <= 1);
        }
    }
}

#[test]
fn range_cuts_topics_with_as_many_partitions_alike() {
    let members = vec![TestMember::new("a", &[1, 2, 3]), TestMember::new("b", &[1, 2, 3])];
    let group = TestGroup { members, topics: counts(&[(1, 5), (2, 5), (3, 2)]) };
    let shares = group.assign(Assignor::Range);
    for share in &shares {
        assert_eq!(share[&topic(1)], share[&topic(2)]);
    }
    assert_eq!(shares[0][&topic(1)], Indexes::from([0, 1, 2]));
    assert_eq!(shares[0][&topic(3)], Indexes::from([0]));
}

#[test]
fn range_serves_static_members_first() {
    let mut group = TestGroup {
        members: vec![TestMember::new("zz", &[1]), TestMember::new("aa", &[1])],
        topics: counts(&[(1, 4)]),
    };
    group.members[0].instance_id = Some("i".to_owned());
    let before = group.assign(Assignor::Range);
    assert_eq!(before[0][&topic(1)], Indexes::from([0, 1]));
    group.members[0].id = "another".to_owned();
    assert_eq!(group.assign(Assignor::Range), before);
}

#[test]
fn uniform_gives_neighbours_to_one_member() {
    let members = ["a", "b", "c"].map(|id| TestMember::new(id, &[1, 2])).to_vec();
    let mut group = TestGroup { members, topics: counts(&[(1, 1_000), (2, 7)]) };
    let first = group.assign(Assignor::Uniform);
    assert!(first.iter().flat_map(Assignment::values).all(|indexes| indexes.run_count() == 1), "{first:?}");
    group.adopt(first);
    group.members.push(TestMember::new("d", &[1, 2]));
    let second = group.assign(Assignor::Uniform);
    let runs: usize = second.iter().flat_map(Assignment::values).map(Indexes::run_count).sum();
    assert!(runs <= 12, "{runs} runs after one more member has come");
}

#[test]
fn uniform_gives_constrained_topics_to_the_few_who_read_them() {
    let members = vec![TestMember::new("a", &[1, 2]), TestMember::new("b", &[2]), TestMember::new("c", &[2])];
    let group = TestGroup { members, topics: counts(&[(1, 2), (2, 4)]) };
    assert_eq!(group.assign(Assignor::Uniform).iter().map(load).collect::<Vec<_>>(), [2, 2, 2]);
}

#[test]
fn a_partition_that_two_members_claim_stays_with_one() {
    let mut group = TestGroup {
        members: vec![TestMember::new("a", &[1]), TestMember::new("b", &[1])],
        topics: counts(&[(1, 2)]),
    };
    for member in &mut group.members {
        member.current = Assignment::from([(topic(1), Indexes::from([0, 1]))]);
    }
    assert_each_once(&group, &group.assign(Assignor::Uniform));
}

#[test]
fn an_assignor_is_found_by_its_own_name_only() {
    for assignor in BOTH {
        assert_eq!(Assignor::by_name(assignor.name()), Some(assignor));
    }
    assert_eq!(Assignor::by_name("cooperative-sticky"), None);
}

/// Topics of which no two members read the same: each reads about half of them, by bits of the topic's name.
fn different_subscriptions(members: u64, topics: u64, partitions: i32) -> TestGroup {
    let id =
        |name: u64| TopicId([name.to_be_bytes(), name.to_be_bytes()].concat().try_into().expect("16 bytes"));
    let reads = |member: u64, name: u64| name.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (member % 60) & 1 == 1;
    let member = |member: u64| TestMember {
        subscribed: (0..topics).filter(|name| reads(member, *name)).map(id).collect(),
        ..TestMember::new(&format!("m{member:03}"), &[])
    };
    TestGroup {
        members: (0..members).map(member).collect(),
        topics: (0..topics).map(|name| (id(name), partitions)).collect(),
    }
}

#[test]
fn uniform_divides_in_a_time_that_grows_with_the_group() {
    let mut costs = Vec::new();
    for topics in [500, 1_000] {
        let group = different_subscriptions(50, topics, 4);
        let (shares, looks) = group.assign_uniform(usize::MAX);
        assert_each_once(&group, &shares);
        costs.push(looks);
    }
    assert!(costs[1] < 3 * costs[0], "{costs:?}: twice the group takes more than twice the time");
}

#[test]
fn uniform_ends_with_uneven_loads_rather_than_late() {
    let mut group = different_subscriptions(10, 40, 5);
    let first = group.assign(Assignor::Uniform);
    // All that the others have had is the first one's, as far as it reads it.
    let all = group.members[0].subscribed.iter().map(|topic| (*topic, (0..5).collect()));
    group.members[0].current = all.collect();
    let (shares, looks) = group.assign_uniform(0);
    assert_each_once(&group, &shares);
    assert!(load(&shares[0]) > load(&first[0]), "nothing is evened out");
    let (even, enough) = group.assign_uniform(usize::MAX);
    assert!(load(&even[0]) < load(&shares[0]) && enough > looks);
}
