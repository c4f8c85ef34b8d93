//! The bounds of one group.

use riverrun_protocol::join_group_request::JoinGroupRequestProtocol;
use riverrun_protocol::{ConsumerProtocolSubscription, ErrorCode, JoinGroupRequest, consumer_protocol};

use crate::assignors::Indexes;
use crate::consumer::heartbeat::GROUP_BYTES_MULTIPLE;
use crate::{GroupConfig, GroupResponse};

use super::replay::assert_replays;
use super::world::{Client, GROUP, World};

/// The records of a group have a thousand bytes at most, and each change of it gives a target at once.
const RECORD_BYTES: usize = 1_000;

fn with_small_records() -> World {
    let config = GroupConfig {
        group_metadata_max_bytes: RECORD_BYTES,
        consumer_assignment_interval_ms: 0,
        ..GroupConfig::default()
    };
    let mut world = World::new(config);
    world.topics.put("small", 10);
    world.topics.put("large", 110);
    world
}

/// The group, and the log's length.
fn state(world: &World) -> (String, usize) {
    (format!("{:?}", world.group()), world.log.len())
}

fn assert_records_fit(world: &World) {
    let largest = world.log.iter().filter_map(|record| record.value.as_ref()).map(Vec::len).max();
    assert!(largest.is_some_and(|bytes| bytes <= RECORD_BYTES), "{largest:?}");
}

#[test]
fn a_join_that_outgrows_a_record_is_refused_and_changes_nothing() {
    let mut world = with_small_records();
    let mut a = Client::new("a", &["small"]);
    assert_eq!(a.heartbeat(&mut world, false), ErrorCode::NONE);
    a.reconcile();
    let before = state(&world);
    let mut b = Client::new("b", &["large"]);
    for _ in 0..2 {
        assert_eq!(b.heartbeat(&mut world, false), ErrorCode::UNKNOWN_SERVER_ERROR);
        assert_eq!(state(&world), before);
    }
    a.subscribe(["small", "large"].map(str::to_owned).into(), None);
    assert_eq!(a.heartbeat(&mut world, false), ErrorCode::UNKNOWN_SERVER_ERROR);
    assert_eq!(state(&world), before);
    a.subscribe(["small".to_owned()].into(), None);
    assert_eq!(a.heartbeat(&mut world, false), ErrorCode::NONE, "it goes on");
    assert_replays(&world);
}

#[test]
fn a_classic_join_that_outgrows_a_record_changes_nothing() {
    let mut world = with_small_records();
    assert_eq!(Client::new("a", &["small"]).heartbeat(&mut world, false), ErrorCode::NONE);
    let before = state(&world);
    let subscription = ConsumerProtocolSubscription { topics: vec!["large".into()], ..Default::default() };
    let metadata = consumer_protocol::encode_subscription(&subscription, 3).unwrap().into();
    let request = JoinGroupRequest {
        group_id: GROUP.into(),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 30_000,
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol { name: "range".into(), metadata }],
        ..Default::default()
    };
    let mut step = world.shard.join_group(&world.context(), &request, &world.topics);
    let code = match step.replies.remove(0).body {
        GroupResponse::JoinGroup(response) => ErrorCode(response.error_code),
        other => panic!("a join was answered with {other:?}"),
    };
    assert_eq!((code, step.records.len()), (ErrorCode::UNKNOWN_SERVER_ERROR, 0));
    assert_eq!(state(&world), before);
}

#[test]
fn a_static_member_whose_return_is_refused_keeps_its_place() {
    let mut world = with_small_records();
    let mut first = Client::new("a", &["small"]);
    first.instance_id = Some("i".to_owned());
    assert_eq!(first.heartbeat(&mut world, false), ErrorCode::NONE);
    first.leave(&mut world);
    let before = state(&world);
    let mut second = Client::new("b", &["large"]);
    second.instance_id = Some("i".to_owned());
    assert_eq!(second.heartbeat(&mut world, false), ErrorCode::UNKNOWN_SERVER_ERROR);
    assert_eq!(state(&world), before);
    world.advance(60_000);
    assert!(world.group().is_some_and(|group| group.members.is_empty()), "its session ends all the same");
}

#[test]
fn members_that_share_many_partitions_leave_records_that_fit() {
    let mut world = with_small_records();
    let mut clients: Vec<Client> = ["a", "b"].map(|id| Client::new(id, &["small"])).into();
    for client in &mut clients {
        assert_eq!(client.heartbeat(&mut world, false), ErrorCode::NONE);
    }
    world.topics.put("small", 180);
    for _ in 0..4 {
        for client in &mut clients {
            client.reconcile();
            assert_eq!(client.heartbeat(&mut world, false), ErrorCode::NONE);
        }
    }
    assert_eq!(clients.iter().flat_map(|client| client.owned.values()).map(Indexes::len).sum::<usize>(), 180);
    let mut last = clients.pop().expect("two");
    assert_eq!(last.leave(&mut world), ErrorCode::NONE);
    let before = state(&world);
    assert_eq!(clients[0].heartbeat(&mut world, false), ErrorCode::UNKNOWN_SERVER_ERROR);
    assert_eq!(state(&world), before);
    assert_eq!(last.heartbeat(&mut world, false), ErrorCode::NONE, "with a second member there is room");
    assert_records_fit(&world);
    assert_replays(&world);
}

#[test]
fn a_pattern_whose_topics_outgrow_a_record_is_refused_or_left() {
    let mut world = with_small_records();
    let mut a = Client::new("a", &[]);
    a.pattern = Some("t-.*".to_owned());
    world.topics.put("t-0", 1);
    assert_eq!(a.heartbeat(&mut world, false), ErrorCode::NONE);
    for index in 1..200 {
        world.topics.put(&format!("t-{index}"), 1);
    }
    world.now_ms += 20_000;
    assert_eq!(a.heartbeat(&mut world, false), ErrorCode::NONE);
    assert_eq!(world.group().map(|group| group.patterns["t-.*"].topics.len()), Some(1));
    let mut b = Client::new("b", &[]);
    b.pattern = Some("t-.+".to_owned());
    assert_eq!(b.heartbeat(&mut world, false), ErrorCode::INVALID_REGULAR_EXPRESSION);
    assert_records_fit(&world);
}

/// Lets members join until one is refused; returns how many joined, and the last one's error.
fn fill(world: &mut World, client: impl Fn(usize) -> Client) -> (usize, ErrorCode) {
    (0..10_000)
        .map(|index| (index, client(index).heartbeat(world, false)))
        .find(|(_, error)| *error != ErrorCode::NONE)
        .expect("a group without bound")
}

#[test]
fn patterns_of_a_group_are_bounded_but_may_be_shared() {
    let mut world = World::new(GroupConfig::default());
    let with_pattern = |index: usize, pattern: String| {
        let mut client = Client::new(&format!("m{index}"), &[]);
        client.pattern = Some(pattern);
        client
    };
    let refused = fill(&mut world, |index| with_pattern(index, format!("topic-{index}")));
    assert_eq!(refused, (128, ErrorCode::GROUP_MAX_SIZE_REACHED));
    let mut sharing = with_pattern(999, "topic-7".to_owned());
    assert_eq!(sharing.heartbeat(&mut world, false), ErrorCode::NONE);
    assert_replays(&world);
}

#[test]
fn subscriptions_of_a_group_are_bounded_together() {
    let mut world = World::new(GroupConfig { group_metadata_max_bytes: 103, ..GroupConfig::default() });
    let topic = "t".repeat(100 - "client".len() - "/127.0.0.1".len());
    let refused = fill(&mut world, |index| Client::new(&format!("m{index}"), &[&topic]));
    assert_eq!(refused, (65, ErrorCode::GROUP_MAX_SIZE_REACHED), "{GROUP_BYTES_MULTIPLE} times the bound");
    let mut larger = Client::new("m0", &[&topic, "u"]);
    assert_eq!(larger.heartbeat(&mut world, false), ErrorCode::INVALID_REQUEST);
    let mut smaller = Client::new("m0", &["u"]);
    assert_eq!(smaller.heartbeat(&mut world, false), ErrorCode::NONE);
}

#[test]
fn the_last_member_that_leaves_takes_along_all_that_was_counted() {
    let mut world = World::new(GroupConfig::default());
    let mut clients: Vec<Client> =
        (0..5).map(|index| Client::new(&format!("m{index}"), &["t", "u"])).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        client.pattern = (index % 2 == 0).then(|| "v.*".to_owned());
        client.heartbeat(&mut world, false);
    }
    let group = world.group().unwrap();
    assert_eq!(group.topic_sets.len(), 1, "equal subscriptions share their names");
    for client in &mut clients {
        client.leave(&mut world);
    }
    let group = world.group().unwrap();
    assert_eq!(group.subscription_bytes, 0);
    assert!(group.topic_sets.is_empty() && group.pattern_users.is_empty() && group.patterns.is_empty());
    assert!(group.targets.is_empty() && group.holders.topic_count() == 0 && group.next_deadline().is_none());
}

#[test]
fn a_static_member_takes_its_place_back_in_a_full_group() {
    let mut world = World::new(GroupConfig { consumer_max_size: 1, ..GroupConfig::default() });
    let with_instance = |id: &str, instance_id: &str| {
        let mut client = Client::new(id, &["t"]);
        client.instance_id = Some(instance_id.to_owned());
        client
    };
    let mut first = with_instance("m0", "i");
    assert_eq!(first.heartbeat(&mut world, false), ErrorCode::NONE);
    first.leave(&mut world);
    assert_eq!(with_instance("m1", "j").heartbeat(&mut world, false), ErrorCode::GROUP_MAX_SIZE_REACHED);
    assert_eq!(with_instance("m2", "i").heartbeat(&mut world, false), ErrorCode::NONE);
    assert_replays(&world);
}
