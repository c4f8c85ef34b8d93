//! Clients join, heartbeat, lose responses, change subscriptions, restart, leave and die at random, while topics are
//! created, grow and are deleted. At no time may two of them read one partition, and once the group is stable, every
//! subscribed partition has a reader.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use riverrun_protocol::ErrorCode;
use riverrun_types::TopicId;

use crate::GroupConfig;

use super::replay::assert_replays;
use super::world::{Client, World};

const TOPICS: [&str; 4] = ["alpha", "beta", "gamma", "delta"];
const PATTERNS: [&str; 3] = [".*", "(al|be).*", "gam{2}a|nothing"];
/// Live clients are never silent for longer, so that only dead ones lose their membership.
const SILENCE_MS_MAX: i64 = 10_000;

#[derive(Clone, Copy, Debug)]
enum Event {
    Join { topics: u8, pattern: Option<u8>, is_static: bool, wants_range: bool },
    Heartbeat { who: usize, is_lost: bool },
    Revoke { who: usize },
    Reconcile { who: usize },
    Subscribe { who: usize, topics: u8, pattern: Option<u8> },
    Leave { who: usize },
    Restart { who: usize },
    Die { who: usize },
    PutTopic { name: usize, partitions: i32 },
    DeleteTopic { name: usize },
    Advance { ms: i64 },
}

fn any_event() -> impl Strategy<Value = Event> {
    let who = 0_usize..16;
    let pattern = || prop::option::weighted(0.3, 0_u8..3);
    prop_oneof![
        3 => (0_u8..16, pattern(), any::<bool>(), any::<bool>()).prop_map(
            |(topics, pattern, is_static, wants_range)| Event::Join { topics, pattern, is_static, wants_range }
        ),
        12 => (who.clone(), prop::bool::weighted(0.15))
            .prop_map(|(who, is_lost)| Event::Heartbeat { who, is_lost }),
        4 => who.clone().prop_map(|who| Event::Revoke { who }),
        8 => who.clone().prop_map(|who| Event::Reconcile { who }),
        2 => (who.clone(), 0_u8..16, pattern())
            .prop_map(|(who, topics, pattern)| Event::Subscribe { who, topics, pattern }),
        1 => who.clone().prop_map(|who| Event::Leave { who }),
        1 => who.clone().prop_map(|who| Event::Restart { who }),
        1 => who.prop_map(|who| Event::Die { who }),
        2 => (0_usize..4, 1_i32..9).prop_map(|(name, partitions)| Event::PutTopic { name, partitions }),
        1 => (0_usize..4).prop_map(|name| Event::DeleteTopic { name }),
        6 => (0_i64..5_000).prop_map(|ms| Event::Advance { ms }),
    ]
}

fn names(bits: u8) -> BTreeSet<String> {
    let chosen = TOPICS.iter().enumerate().filter(|(index, _)| bits & (1 << index) != 0);
    chosen.map(|(_, &name)| name.to_owned()).collect()
}

fn pattern(choice: Option<u8>) -> Option<String> {
    choice.map(|choice| PATTERNS[usize::from(choice)].to_owned())
}

struct Simulation {
    world: World,
    clients: Vec<Client>,
    made: usize,
}

impl Simulation {
    fn new(assignment_interval_ms: i32) -> Self {
        let config =
            GroupConfig { consumer_assignment_interval_ms: assignment_interval_ms, ..GroupConfig::default() };
        Self { world: World::new(config), clients: Vec::new(), made: 0 }
    }

    fn new_id(&mut self) -> String {
        self.made += 1;
        format!("member-{}", self.made)
    }

    fn run(&mut self, event: Event) {
        let count = self.clients.len();
        match event {
            Event::Join { .. } if count >= 6 => {}
            Event::Join { topics, pattern: choice, is_static, wants_range } => {
                let mut client = Client::new(&self.new_id(), &[]);
                client.subscribe(names(topics), pattern(choice));
                client.instance_id = is_static.then(|| format!("instance-{}", self.made));
                client.assignor = wants_range.then(|| "range".to_owned());
                client.heartbeat(&mut self.world, false);
                self.clients.push(client);
            }
            Event::PutTopic { name, partitions } => self.world.topics.put(TOPICS[name], partitions),
            Event::DeleteTopic { name } => self.world.topics.delete(TOPICS[name]),
            Event::Advance { ms } => self.advance(ms),
            _ if count == 0 => {}
            Event::Heartbeat { who, is_lost } => {
                self.clients[who % count].heartbeat(&mut self.world, is_lost);
            }
            Event::Revoke { who } => self.clients[who % count].revoke(),
            Event::Reconcile { who } => self.clients[who % count].reconcile(),
            Event::Subscribe { who, topics, pattern: choice } => {
                self.clients[who % count].subscribe(names(topics), pattern(choice));
            }
            Event::Leave { who } => {
                let mut client = self.clients.remove(who % count);
                client.leave(&mut self.world);
            }
            Event::Restart { who } => self.restart(who % count),
            Event::Die { who } => drop(self.clients.remove(who % count)),
        }
    }

    /// A client goes down in order and comes back under a new id.
    fn restart(&mut self, who: usize) {
        let id = self.new_id();
        let client = &mut self.clients[who];
        client.leave(&mut self.world);
        client.id = id;
        client.heartbeat(&mut self.world, false);
    }

    /// Lets time pass; a client that would be silent for too long first sends a heartbeat, and follows its answer.
    fn advance(&mut self, ms: i64) {
        for client in &mut self.clients {
            if self.world.now_ms + ms - client.heard_at_ms > SILENCE_MS_MAX {
                client.reconcile();
                client.heartbeat(&mut self.world, false);
            }
        }
        self.world.advance(ms);
    }

    fn assert_no_partition_has_two_readers(&self) {
        let mut readers: BTreeMap<(TopicId, i32), &str> = BTreeMap::new();
        for client in &self.clients {
            for (topic, partitions) in &client.owned {
                for partition in partitions.indexes() {
                    let other = readers.insert((*topic, partition), &client.id);
                    assert_eq!(other, None, "{} reads {topic}-{partition} too", client.id);
                }
            }
        }
    }

    /// Clients do only what they are told, until the dead are forgotten and the group is stable.
    fn calm_down(&mut self) {
        for _ in 0..80 {
            self.advance(1_000);
            for client in &mut self.clients {
                let error = client.heartbeat(&mut self.world, false);
                assert!(error != ErrorCode::INVALID_REQUEST, "{client:?}");
                client.reconcile();
            }
            self.assert_no_partition_has_two_readers();
        }
    }

    fn assert_stable(&self) {
        let mut read: BTreeSet<(TopicId, i32)> = BTreeSet::new();
        let mut expected: BTreeSet<(TopicId, i32)> = BTreeSet::new();
        for client in &self.clients {
            let pattern =
                client.pattern.as_ref().map(|text| crate::pattern::TopicPattern::compile(text).unwrap());
            for (name, id, partitions) in self.world.topics.iter() {
                let wants = client.topics.contains(name)
                    || pattern.as_ref().is_some_and(|it| it.matches(name, &mut it.workspace()));
                if wants {
                    expected.extend((0..partitions).map(|partition| (id, partition)));
                } else {
                    assert!(!client.owned.contains_key(&id), "{} reads {name} unasked", client.id);
                }
            }
            let owned = client.owned.iter();
            read.extend(
                owned.flat_map(|(id, partitions)| partitions.indexes().map(move |index| (*id, index))),
            );
        }
        assert_eq!(read, expected);
        let state = self.world.group().map_or("Empty", |group| group.state_name());
        assert_eq!(state, if self.clients.is_empty() { "Empty" } else { "Stable" });
    }
}

proptest! {
    #[test]
    fn each_partition_is_read_by_one_client_and_in_the_end_all_are(
        events in prop::collection::vec(any_event(), 1..120),
        assignment_interval_ms in prop_oneof![Just(0), Just(1_000)],
    ) {
        let mut simulation = Simulation::new(assignment_interval_ms);
        for event in events {
            simulation.run(event);
            simulation.assert_no_partition_has_two_readers();
        }
        assert_replays(&simulation.world);
        simulation.calm_down();
        simulation.assert_stable();
        assert_replays(&simulation.world);
    }
}
