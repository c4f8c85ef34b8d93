//! A group rolls from one protocol to the other and back while its members read and commit, and the server crashes
//! before and after it has written the records of a request. At no time may two members read one partition, a
//! committed offset vanish or go back, or a member get an error that ends it. Once the group is stable, each
//! partition has a reader.

mod classic;
mod server;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use riverrun_protocol::ErrorCode;

use self::classic::ClassicClient;
use self::server::{Committer, Crash, PARTITIONS, Server, TOPIC};
use super::world::Client;
use crate::assignors::Indexes;
use crate::migration::{JOINED, LAST_GONE, LAST_IS_CLASSIC, TAKEN_OVER};

/// Upper bound of members at once.
const MEMBERS_MAX: usize = 4;
/// Live members are never silent for longer, so that only dead ones lose their membership.
const SILENCE_MS_MAX: i64 = 5_000;
/// Upper bound of a client's steps until it waits for another one.
const STEPS: usize = 4;

#[derive(Clone, Copy, Debug)]
enum Event {
    Start {
        is_classic: bool,
        is_static: bool,
    },
    /// The next thing that a member does by itself.
    Step {
        who: usize,
    },
    /// The same, and the answer gets lost.
    Lose {
        who: usize,
    },
    Read {
        who: usize,
    },
    Commit {
        who: usize,
    },
    /// A process ends in order and another one takes its place, mostly in the other protocol.
    Roll {
        who: usize,
        is_classic: bool,
    },
    /// All processes are rolled one after another while the others go on.
    RollAll {
        is_classic: bool,
    },
    Die {
        who: usize,
    },
    /// A process dies, and the next one has its instance id at once, and also its member id if that is remembered.
    Restart {
        who: usize,
        is_classic: bool,
        keeps_id: bool,
    },
    /// A process that is not a member any more commits its position.
    Haunt {
        who: usize,
    },
    Crash {
        crash: Crash,
    },
    Advance {
        ms: i64,
    },
}

fn any_event() -> impl Strategy<Value = Event> {
    let who = 0_usize..8;
    let crash = prop_oneof![Just(Crash::Now), Just(Crash::BeforeWrite), Just(Crash::AfterWrite)];
    prop_oneof![
        3 => any::<(bool, bool)>().prop_map(|(is_classic, is_static)| Event::Start { is_classic, is_static }),
        16 => who.clone().prop_map(|who| Event::Step { who }),
        2 => who.clone().prop_map(|who| Event::Lose { who }),
        6 => who.clone().prop_map(|who| Event::Read { who }),
        6 => who.clone().prop_map(|who| Event::Commit { who }),
        3 => (who.clone(), any::<bool>()).prop_map(|(who, is_classic)| Event::Roll { who, is_classic }),
        2 => any::<bool>().prop_map(|is_classic| Event::RollAll { is_classic }),
        1 => who.clone().prop_map(|who| Event::Die { who }),
        2 => (who.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(who, is_classic, keeps_id)| Event::Restart { who, is_classic, keeps_id }),
        2 => who.prop_map(|who| Event::Haunt { who }),
        2 => crash.prop_map(|crash| Event::Crash { crash }),
        6 => (0_i64..4_000).prop_map(|ms| Event::Advance { ms }),
    ]
}

/// A consumer process of either protocol.
#[derive(Clone, Debug)]
enum Kind {
    Classic(ClassicClient),
    Newer(Client),
}

/// A process, and its positions in the partitions that it owns.
#[derive(Clone, Debug)]
struct Member {
    kind: Kind,
    positions: BTreeMap<i32, i64>,
}

impl Member {
    fn instance_id(&self) -> Option<String> {
        match &self.kind {
            Kind::Classic(client) => client.instance_id.clone(),
            Kind::Newer(client) => client.instance_id.clone(),
        }
    }

    fn owned(&self) -> BTreeSet<i32> {
        match &self.kind {
            Kind::Classic(client) => client.owned.clone(),
            Kind::Newer(client) => client.owned.values().flat_map(Indexes::indexes).collect(),
        }
    }

    fn committer(&self) -> Committer {
        match &self.kind {
            Kind::Classic(client) => client.committer(),
            Kind::Newer(client) => Committer {
                member_id: client.id.clone(),
                instance_id: client.instance_id.clone(),
                epoch: client.epoch,
            },
        }
    }

    /// Whether the server has a durable record of its membership.
    fn is_in(&self) -> bool {
        match &self.kind {
            Kind::Classic(client) => client.is_stable(),
            Kind::Newer(client) => client.epoch > 0,
        }
    }

    fn heard_at_ms(&self) -> i64 {
        match &self.kind {
            Kind::Classic(client) => client.heard_at_ms,
            Kind::Newer(client) => client.heard_at_ms,
        }
    }

    /// The next thing that it does by itself.
    fn step(&mut self, server: &mut Server, is_lost: bool) {
        match &mut self.kind {
            Kind::Classic(client) => client.step(server, is_lost),
            Kind::Newer(client) => {
                client.reconcile();
                let response = server.consumer_heartbeat(&client.request());
                let is_lost = is_lost || response.is_none();
                let error = client.hear(response.unwrap_or_default(), server.now_ms, is_lost);
                let may_be = [ErrorCode::NONE, ErrorCode::UNKNOWN_MEMBER_ID, ErrorCode::FENCED_MEMBER_EPOCH];
                // The process before it has died without a word, and holds its place until its session ends.
                let is_kept_out = error == ErrorCode::UNRELEASED_INSTANCE_ID && client.instance_id.is_some();
                assert!(is_kept_out || may_be.contains(&error), "{client:?} was told {error:?}");
                client.revoke();
            }
        }
    }

    /// Uses the member id of another process; returns whether that one has the same protocol.
    fn take_id(&mut self, other: &Self) -> bool {
        match (&mut self.kind, &other.kind) {
            (Kind::Classic(client), Kind::Classic(other)) => client.id.clone_from(&other.id),
            (Kind::Newer(client), Kind::Newer(other)) => client.id.clone_from(&other.id),
            _ => return false,
        }
        true
    }

    /// Ends in order. As in the Java client, a static classic member sends nothing.
    fn leave(&mut self, server: &mut Server) {
        match &mut self.kind {
            Kind::Classic(client) => client.leave(server),
            Kind::Newer(client) => {
                let request = client.farewell();
                // A request to a crashed server is repeated.
                while server.consumer_heartbeat(&request).is_none() {}
                client.start_over();
            }
        }
    }
}

struct Simulation {
    server: Server,
    members: Vec<Member>,
    /// Processes that are not members any more, in their last state.
    ghosts: Vec<Member>,
    /// The committed offsets, as the acks tell them.
    committed: BTreeMap<i32, i64>,
    is_cooperative: bool,
    has_static: bool,
    made: usize,
}

impl Simulation {
    fn new(is_cooperative: bool, has_static: bool) -> Self {
        Self {
            server: Server::new(),
            members: Vec::new(),
            ghosts: Vec::new(),
            committed: BTreeMap::new(),
            is_cooperative,
            has_static,
            made: 0,
        }
    }

    fn new_member(&mut self, is_classic: bool, instance_id: Option<String>) -> Member {
        self.made += 1;
        let now_ms = self.server.now_ms;
        let kind = if is_classic {
            Kind::Classic(ClassicClient::new(instance_id, self.is_cooperative, now_ms))
        } else {
            let mut client = Client::new(&format!("member-{}", self.made), &[TOPIC]);
            client.instance_id = instance_id;
            client.heard_at_ms = now_ms;
            Kind::Newer(client)
        };
        Member { kind, positions: BTreeMap::new() }
    }

    fn run(&mut self, event: Event) {
        let count = self.members.len();
        match event {
            Event::Start { .. } if count >= MEMBERS_MAX => {}
            Event::Start { is_classic, is_static } => {
                let instance_id = (is_static && self.has_static).then(|| format!("instance-{}", self.made));
                let member = self.new_member(is_classic, instance_id);
                self.members.push(member);
                self.step(count, false);
            }
            Event::Crash { crash } => self.server.crash(crash),
            Event::Advance { ms } => self.advance(ms),
            Event::Haunt { who } => self.haunt(who),
            _ if count == 0 => {}
            Event::Step { who } => self.step(who % count, false),
            Event::Lose { who } => self.step(who % count, true),
            Event::Read { who } => {
                self.members[who % count].positions.values_mut().for_each(|position| *position += 1);
            }
            Event::Commit { who } => self.commit(who % count),
            Event::Roll { who, is_classic } => self.roll(who % count, is_classic),
            Event::RollAll { is_classic } => {
                for who in 0..count {
                    self.roll(who, is_classic);
                    (0..count).for_each(|who| self.step(who, false));
                    self.advance(1_000);
                }
            }
            Event::Restart { who, is_classic, keeps_id } => self.restart(who % count, is_classic, keeps_id),
            Event::Die { who } => {
                let member = self.members.remove(who % count);
                self.ghosts.push(member);
            }
        }
    }

    fn step(&mut self, who: usize, is_lost: bool) {
        self.members[who].step(&mut self.server, is_lost);
        self.check();
    }

    /// A process goes down in order, having committed, and the next one has its instance id.
    fn roll(&mut self, who: usize, is_classic: bool) {
        self.commit(who);
        let mut old = self.members[who].clone();
        self.ghosts.push(old.clone());
        old.leave(&mut self.server);
        self.members[who] = self.new_member(is_classic, old.instance_id());
        self.step(who, false);
    }

    /// A process dies, and the next one takes its place.
    fn restart(&mut self, who: usize, is_classic: bool, keeps_id: bool) {
        let old = self.members[who].clone();
        let mut next = self.new_member(is_classic, old.instance_id());
        // A process with the same id is the same member for all others.
        if !(keeps_id && next.take_id(&old)) {
            self.ghosts.push(old);
        }
        self.members[who] = next;
        self.step(who, false);
    }

    /// Lets time pass; a process that would be silent for too long sends a request first.
    fn advance(&mut self, ms: i64) {
        for who in 0..self.members.len() {
            if self.server.now_ms + ms - self.members[who].heard_at_ms() > SILENCE_MS_MAX {
                (0..STEPS).for_each(|_| self.step(who, false));
            }
        }
        self.server.advance(ms);
        self.check();
    }

    fn commit(&mut self, who: usize) {
        let member = self.members[who].clone();
        self.commit_of(&member);
    }

    fn haunt(&mut self, who: usize) {
        if let Some(ghost) = self.ghosts.get(who % self.ghosts.len().max(1)).cloned() {
            let took = self.commit_of(&ghost);
            let is_replaced = |member: &Member| {
                ghost.instance_id().is_some() && ghost.instance_id() == member.instance_id() && member.is_in()
            };
            let successor = self.members.iter().find(|member| is_replaced(member));
            assert!(successor.is_none() || !took, "{ghost:?} commits beside {successor:?}");
        }
    }

    /// Commits the positions of the process; returns whether any of them was taken. Without an answer the commit may
    /// be in the log or not.
    fn commit_of(&mut self, member: &Member) -> bool {
        let mut took = false;
        for (&partition, &offset) in &member.positions {
            let answer = self.server.commit(&member.committer(), partition, offset);
            took |= answer == Some(ErrorCode::NONE);
            let is_there = self.server.committed().get(&partition) == Some(&offset);
            if answer == Some(ErrorCode::NONE) || (answer.is_none() && is_there) {
                let before = self.committed.insert(partition, offset);
                assert!(
                    before.is_none_or(|before| before <= offset),
                    "{partition} went back from {before:?} to {offset}"
                );
            }
        }
        self.check();
        took
    }

    /// The conditions that hold at any time.
    fn check(&mut self) {
        let mut readers: BTreeMap<i32, usize> = BTreeMap::new();
        for (who, member) in self.members.iter().enumerate() {
            for partition in member.owned() {
                let other = readers.insert(partition, who).map(|other| &self.members[other]);
                assert!(other.is_none(), "partition {partition} is read by {member:?} and {other:?}");
            }
        }
        assert_eq!(self.server.committed(), self.committed, "offsets vanished or went back");
        // A member that gets a partition begins at the group's offset.
        for member in &mut self.members {
            let owned = member.owned();
            member.positions.retain(|partition, _| owned.contains(partition));
            for partition in owned {
                let begin = self.committed.get(&partition).copied().unwrap_or_default();
                member.positions.entry(partition).or_insert(begin);
            }
        }
    }

    /// Members do only what they are told, until the dead are forgotten and the group is stable.
    fn calm_down(&mut self) {
        for _ in 0..300 {
            (0..self.members.len()).for_each(|who| self.step(who, false));
            self.advance(1_000);
        }
    }

    fn assert_stable(&self) {
        let read: BTreeSet<i32> = self.members.iter().flat_map(Member::owned).collect();
        let expected = if self.members.is_empty() { 0..0 } else { 0..PARTITIONS };
        assert_eq!(read, expected.collect(), "{:#?} in {}", self.members, self.server.describe());
        let is_newer = |member: &Member| matches!(member.kind, Kind::Newer(_));
        if !self.members.is_empty() {
            assert_eq!(self.server.is_consumer_group(), self.members.iter().any(is_newer));
        }
    }
}

#[test]
fn each_change_of_protocol_is_told_once_with_its_reason() {
    let mut simulation = Simulation::new(false, true);
    let stabilize = |simulation: &mut Simulation| {
        for _ in 0..10 {
            (0..simulation.members.len()).for_each(|who| simulation.step(who, false));
            simulation.advance(1_000);
        }
        simulation.server.protocol_changes()
    };
    simulation.run(Event::Start { is_classic: true, is_static: false });
    assert_eq!(stabilize(&mut simulation), [[""; 3]; 0], "it is new");
    simulation.run(Event::Start { is_classic: false, is_static: false });
    assert_eq!(stabilize(&mut simulation), [["classic", "consumer", JOINED]]);
    simulation.members.remove(1).leave(&mut simulation.server);
    assert_eq!(stabilize(&mut simulation), [["consumer", "classic", LAST_GONE]]);
    simulation.run(Event::Start { is_classic: false, is_static: true });
    assert_eq!(stabilize(&mut simulation), [["classic", "consumer", JOINED]]);
    simulation.run(Event::Restart { who: 1, is_classic: true, keeps_id: false });
    assert_eq!(stabilize(&mut simulation), [["consumer", "classic", LAST_IS_CLASSIC]]);
    simulation.members.clear();
    simulation.advance(60_000);
    assert_eq!(stabilize(&mut simulation), [[""; 3]; 0], "it is empty, and what it was");
    simulation.run(Event::Start { is_classic: false, is_static: false });
    assert_eq!(stabilize(&mut simulation), [["classic", "consumer", TAKEN_OVER]]);
}

proptest! {
    #[test]
    fn a_group_that_rolls_between_protocols_loses_nothing(
        events in prop::collection::vec(any_event(), 1..150),
        is_cooperative in any::<bool>(),
        has_static in any::<bool>(),
    ) {
        let mut simulation = Simulation::new(is_cooperative, has_static);
        for event in events {
            simulation.run(event);
        }
        simulation.run(Event::Crash { crash: Crash::Now });
        simulation.check();
        simulation.calm_down();
        simulation.assert_stable();
    }
}
