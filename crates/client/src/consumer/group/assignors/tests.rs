//! Known assignments of Kafka's range assignor, and invariants of every sticky one.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

fn member(id: &str, topics: &[&str]) -> Subscriber {
    Subscriber {
        member_id: id.to_owned(),
        instance_id: None,
        topics: topics.iter().map(ToString::to_string).collect(),
        owned: Vec::new(),
        generation: 1,
    }
}

fn counts(topics: &[(&str, i32)]) -> BTreeMap<String, i32> {
    topics.iter().map(|(topic, count)| ((*topic).to_owned(), *count)).collect()
}

fn indexes(plan: &Plan, member: &str, topic: &str) -> Vec<i32> {
    plan[member].iter().filter(|one| &*one.topic == topic).map(|one| one.partition).collect()
}

/// Runs rounds as a group would, each member owning its assignment, until nothing moves.
fn converge(members: &mut [Subscriber], counts: &BTreeMap<String, i32>) -> Plan {
    for generation in 2..6 {
        let plan = assign(Assignor::CooperativeSticky, members, counts);
        let total: usize = plan.values().map(Vec::len).sum();
        for member in members.iter_mut() {
            member.owned.clone_from(&plan[&member.member_id]);
            member.generation = generation;
        }
        if total == usize::try_from(counts.values().sum::<i32>()).unwrap() {
            return plan;
        }
    }
    panic!("the group does not come to rest");
}

#[test]
fn range_gives_blocks_and_the_first_members_one_more() {
    let members = [member("b", &["t", "u"]), member("a", &["t", "u"]), member("c", &["u"])];
    let plan = assign(Assignor::Range, &members, &counts(&[("t", 3), ("u", 7)]));
    assert_eq!(indexes(&plan, "a", "t"), [0, 1]);
    assert_eq!(indexes(&plan, "b", "t"), [2]);
    assert_eq!(indexes(&plan, "a", "u"), [0, 1, 2]);
    assert_eq!(indexes(&plan, "b", "u"), [3, 4]);
    assert_eq!(indexes(&plan, "c", "u"), [5, 6]);
}

#[test]
fn round_robin_deals_all_partitions_out_in_turn() {
    let members = [member("b", &["t", "u"]), member("a", &["t", "u"])];
    let plan = assign(Assignor::RoundRobin, &members, &counts(&[("t", 3), ("u", 3)]));
    assert_eq!((indexes(&plan, "a", "t"), indexes(&plan, "a", "u")), (vec![0, 2], vec![1]));
    assert_eq!((indexes(&plan, "b", "t"), indexes(&plan, "b", "u")), (vec![1], vec![0, 2]));
}

#[test]
fn round_robin_passes_over_members_that_do_not_read_a_topic() {
    let members = [member("a", &["t"]), member("b", &["t", "u"]), member("c", &["t", "u", "v"])];
    let plan = assign(Assignor::RoundRobin, &members, &counts(&[("t", 1), ("u", 2), ("v", 3), ("w", 1)]));
    assert_eq!(indexes(&plan, "a", "t"), [0]);
    assert_eq!((indexes(&plan, "b", "u"), indexes(&plan, "c", "u")), (vec![0], vec![1]));
    assert_eq!(indexes(&plan, "c", "v"), [0, 1, 2]);
}

#[test]
fn range_orders_static_members_by_their_instance() {
    let named = |id: &str, instance: &str| Subscriber {
        instance_id: Some(instance.to_owned()),
        ..member(id, &["t"])
    };
    let members = [member("a", &["t"]), named("z", "1"), named("y", "2")];
    let plan = assign(Assignor::Range, &members, &counts(&[("t", 3)]));
    assert_eq!(indexes(&plan, "z", "t"), [0]);
    assert_eq!(indexes(&plan, "y", "t"), [1]);
    assert_eq!(indexes(&plan, "a", "t"), [2]);
}

#[test]
fn more_members_than_partitions_leaves_some_without() {
    for assignor in Assignor::ALL {
        let members = [member("a", &["t"]), member("b", &["t"])];
        let plan = assign(assignor, &members, &counts(&[("t", 1)]));
        assert_eq!(plan["a"].len() + plan["b"].len(), 1, "{assignor:?}");
    }
}

#[test]
fn partition_moves_only_after_its_old_reader_gave_it_up() {
    let counts = counts(&[("t", 4)]);
    let mut members = vec![member("a", &["t"])];
    converge(&mut members, &counts);
    members.push(member("b", &["t"]));
    let first = assign(Assignor::CooperativeSticky, &members, &counts);
    assert_eq!((first["a"].len(), first["b"].len()), (2, 0));
    let last = converge(&mut members, &counts);
    assert_eq!((last["a"].len(), last["b"].len()), (2, 2));
    assert_eq!(last["a"], first["a"], "partitions that a keeps do not move");
}

#[test]
fn other_members_keep_their_partitions_when_one_leaves() {
    let counts = counts(&[("t", 6), ("u", 3)]);
    let mut members: Vec<_> = ["a", "b", "c"].iter().map(|id| member(id, &["t", "u"])).collect();
    let before = converge(&mut members, &counts);
    members.pop();
    let after = assign(Assignor::CooperativeSticky, &members, &counts);
    for id in ["a", "b"] {
        assert!(before[id].iter().all(|kept| after[id].contains(kept)), "{id} lost something");
        assert!((4..=5).contains(&after[id].len()));
    }
}

#[test]
fn members_with_different_topics_are_balanced() {
    let counts = counts(&[("t", 6), ("u", 2)]);
    let mut members = vec![member("a", &["t"]), member("b", &["t", "u"]), member("c", &["u"])];
    let plan = converge(&mut members, &counts);
    assert!(plan["a"].iter().all(|one| &*one.topic == "t"));
    assert!(plan["c"].iter().all(|one| &*one.topic == "u"));
    assert_eq!((plan["a"].len(), plan["b"].len(), plan["c"].len()), (3, 3, 2));
}

#[test]
fn claims_of_one_generation_on_a_partition_cancel_out() {
    let claim = |id: &str, generation| Subscriber {
        owned: vec![TopicPartition::new("t", 0)],
        generation,
        ..member(id, &["t"])
    };
    let partitions = [TopicPartition::new("t", 0)];
    assert_eq!(owners(&[claim("a", 5), claim("b", 5)], &partitions), BTreeMap::new());
    let newest = owners(&[claim("a", 4), claim("b", 5)], &partitions);
    assert_eq!(newest, BTreeMap::from([(partitions[0].clone(), 1)]));
}

fn with_claims(id: &str, topics: &[&str], owned: &[(&str, i32)], generation: i32) -> Subscriber {
    let owned = owned.iter().map(|(topic, index)| TopicPartition::new(*topic, *index)).collect();
    Subscriber { owned, generation, ..member(id, topics) }
}

/// The member gives the partitions up only when it sees that it is not assigned them.
#[test]
fn claim_on_an_unsubscribed_topic_stays_unassigned() {
    let counts = counts(&[("t", 2), ("u", 2)]);
    let all = [("t", 0), ("t", 1), ("u", 0), ("u", 1)];
    // An older claim on t by a current reader makes it no owner either: the newer one counts.
    for older in [&[][..], &[("t", 0)]] {
        let leaving = with_claims("a", &["u"], &all, 5);
        let mut members = [leaving, with_claims("b", &["t", "u"], older, 4)];
        let plan = assign(Assignor::CooperativeSticky, &members, &counts);
        assert_eq!((indexes(&plan, "a", "t"), indexes(&plan, "b", "t")), (vec![], vec![]), "{older:?}");
        for member in &mut members {
            member.owned.clone_from(&plan[&member.member_id]);
            member.generation = 6;
        }
        let plan = assign(Assignor::CooperativeSticky, &members, &counts);
        assert_eq!(indexes(&plan, "b", "t"), [0, 1], "{older:?}: a has let go");
        assert_eq!(indexes(&plan, "a", "u"), [0, 1], "{older:?}: a keeps what it reads");
    }
}

#[test]
fn partition_claimed_twice_stays_unassigned() {
    let counts = counts(&[("t", 1)]);
    let mut members =
        vec![with_claims("a", &["t"], &[("t", 0)], 5), with_claims("b", &["t"], &[("t", 0)], 5)];
    members.push(member("c", &["t"]));
    let plan = assign(Assignor::CooperativeSticky, &members, &counts);
    assert!(plan.values().all(Vec::is_empty), "{plan:?}");
    let plan = converge(&mut members, &counts);
    assert_eq!(plan.values().map(Vec::len).sum::<usize>(), 1);
}

#[test]
fn owner_outranks_a_claim_of_an_older_generation() {
    let members = [with_claims("a", &["t"], &[("t", 0)], 4), with_claims("b", &["t"], &[("t", 0)], 5)];
    let plan = assign(Assignor::CooperativeSticky, &members, &counts(&[("t", 1)]));
    assert_eq!((indexes(&plan, "a", "t"), indexes(&plan, "b", "t")), (vec![], vec![0]));
}

#[test]
fn unsubscribed_topic_stays_unassigned() {
    for assignor in Assignor::ALL {
        let plan = assign(assignor, &[member("a", &["t"])], &counts(&[("other", 3)]));
        assert_eq!(plan["a"], [], "{assignor:?}");
    }
}

/// It takes a second. A search through all members for each topic or partition would take minutes.
#[test]
fn very_large_group_is_assigned_quickly() {
    const MEMBERS: i32 = 20_000;
    let topics: Vec<String> = (0..MEMBERS).map(|number| format!("t{number:05}")).collect();
    let apart: Vec<_> = topics.iter().map(|topic| member(topic, &[topic.as_str()])).collect();
    let one_each = topics.iter().map(|topic| (topic.clone(), 1)).collect();
    let together: Vec<_> = topics.iter().map(|id| member(id, &["t"])).collect();
    let begun = Instant::now();
    for assignor in Assignor::ALL {
        let plan = assign(assignor, &apart, &one_each);
        assert!(plan.iter().all(|(id, own)| own.len() == 1 && *own[0].topic == **id), "{assignor:?}");
        let plan = assign(assignor, &together, &counts(&[("t", 3 * MEMBERS)]));
        assert!(plan.values().all(|own| own.len() == 3), "{assignor:?}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{assignor:?}: {:?}", begun.elapsed());
    }
}

/// Deals partitions to the members in a circle; each partition skips members that do not read its topic.
fn dealt_in_a_circle(members: &[Subscriber], counts: &BTreeMap<String, i32>) -> Plan {
    let mut plan: Plan = members.iter().map(|member| (member.member_id.clone(), Vec::new())).collect();
    let mut changes = members.iter().cycle();
    for (topic, count) in counts {
        let reads = |member: &&Subscriber| member.topics.contains(topic);
        let partitions = (0..*count).take_while(|_| members.iter().any(|member| reads(&member)));
        for partition in partitions {
            let reader = changes.find(reads).expect("there is one");
            plan.get_mut(&reader.member_id)
                .expect("a member")
                .push(TopicPartition::new(topic.as_str(), partition));
        }
    }
    plan
}

proptest! {
    #[test]
    fn round_robin_deals_out_in_a_circle(
        subscriptions in prop::collection::vec(prop::collection::btree_set("[a-d]", 0..4), 1..7),
        sizes in prop::collection::btree_map("[a-d]", 0..6, 0..4),
    ) {
        let numbered = subscriptions.into_iter().enumerate();
        let members: Vec<_> =
            numbered.map(|(at, topics)| Subscriber { topics, ..member(&format!("m{at}"), &[]) }).collect();
        let plan = assign(Assignor::RoundRobin, &members, &sizes);
        prop_assert_eq!(plan, dealt_in_a_circle(&members, &sizes));
    }
}

const TOPICS: [(&str, i32); 2] = [("a", 5), ("b", 3)];

/// An event of a member in one generation.
#[derive(Clone, Copy, Debug)]
enum Change {
    Joins,
    /// It subscribes to other topics, and gives up the rest before it joins.
    Subscribes([bool; 2]),
    /// The same, but after it has joined.
    SubscribesLate([bool; 2]),
    /// It receives no assignment: the group rebalances again before.
    MissesSync,
    /// The group removes it, and it returns as another member.
    IsLost,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => Just(Change::Joins),
        1 => any::<[bool; 2]>().prop_map(Change::Subscribes),
        1 => any::<[bool; 2]>().prop_map(Change::SubscribesLate),
        1 => Just(Change::MissesSync),
        1 => Just(Change::IsLost),
    ]
}

fn subscribe(member: &mut Subscriber, topics: [bool; 2]) {
    let named = TOPICS.iter().zip(topics).filter(|(_, reads)| *reads);
    member.topics = named.map(|((topic, _), _)| (*topic).to_owned()).collect();
}

fn give_up_others(member: &mut Subscriber) {
    member.owned.retain(|partition| member.topics.contains(&*partition.topic));
}

/// One generation of a group, in which no member may get a partition that another reads when it begins.
fn rebalance(members: &mut [Subscriber], changes: &[Change], generation: i32) {
    for (member, change) in members.iter_mut().zip(changes) {
        match change {
            Change::Subscribes(topics) => subscribe(member, *topics),
            Change::IsLost => (member.owned, member.generation) = (Vec::new(), -1),
            Change::Joins | Change::SubscribesLate(_) | Change::MissesSync => {}
        }
        give_up_others(member);
    }
    let plan = assign(Assignor::CooperativeSticky, members, &counts(&TOPICS));
    for member in &*members {
        let mut others = members.iter().filter(|other| other.member_id != member.member_id);
        let taken = plan[&member.member_id].iter().find(|one| others.any(|other| other.owned.contains(one)));
        assert_eq!(taken, None, "{} gets it: {members:?}", member.member_id);
    }
    for (member, change) in members.iter_mut().zip(changes) {
        if let Change::SubscribesLate(topics) = change {
            subscribe(member, *topics);
        }
        if !matches!(change, Change::MissesSync) {
            (member.owned, member.generation) = (plan[&member.member_id].clone(), generation);
            give_up_others(member);
        }
    }
}

proptest! {
    /// Whatever happens to its members, none is assigned a partition that another still reads; and once they are left
    /// alone, every subscribed partition is read.
    #[test]
    fn a_partition_never_has_two_readers(
        histories in prop::collection::vec(prop::collection::vec(change(), 1..12), 1..5),
    ) {
        let newcomer = |at| Subscriber { generation: -1, ..member(&format!("m{at}"), &["a", "b"]) };
        let mut members: Vec<Subscriber> = (0..histories.len()).map(newcomer).collect();
        let rounds = histories.iter().map(Vec::len).max().unwrap_or_default();
        let at = |history: &Vec<Change>, round: usize| history.get(round).copied().unwrap_or(Change::Joins);
        // Moving a partition takes two generations.
        for (round, generation) in (0..rounds + 3).zip(1..) {
            let changes: Vec<Change> = histories.iter().map(|history| at(history, round)).collect();
            rebalance(&mut members, &changes, generation);
        }
        let is_wanted = |topic: &str| members.iter().any(|member| member.topics.contains(topic));
        let wanted: i32 = TOPICS.iter().filter(|(topic, _)| is_wanted(topic)).map(|(_, count)| count).sum();
        let read: usize = members.iter().map(|member| member.owned.len()).sum();
        prop_assert_eq!(i32::try_from(read).unwrap(), wanted, "{:?}", members);
    }
}
