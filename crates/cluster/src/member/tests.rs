//! A simulated cluster: members with their controllers and brokers on machines of one world, of which everything fails that can, and
//! what must hold all the same.
//!
//! `RIVERRUN_CLUSTER_SEEDS=N` runs more seeds, from `RIVERRUN_CLUSTER_SEED` on. A failing seed is named.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_env::Random as _;
use riverrun_env::sim::{SimNode, SimRandom, World};
use riverrun_types::{DurabilityLevel, NodeId, PartitionId, TopicId};

use super::asks::Heartbeat;
use super::lead::{Command, Plan};
use super::*;
use crate::controller::{Configs, LogDir, NewPartitions, NewTopic, Record, Refusal, Registration, Sessions};
use crate::planted::{Planted, plant};
use crate::types::Peer;

const MEMBERS: usize = 3;
const NAMES: [&str; MEMBERS] = ["a", "b", "c"];
const SECOND: Duration = Duration::from_secs(1);

/// The level by a config `level`, and a majority of the replicas.
struct Levels;

impl Policy for Levels {
    fn level(&self, configs: &Configs) -> DurabilityLevel {
        configs.get("level").map_or(DurabilityLevel::SyncSync, |level| level.parse().expect("a level"))
    }

    fn min_insync(&self, _configs: &Configs, replicas: usize) -> usize {
        replicas / 2 + 1
    }
}

/// A promise of the cluster that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// Two members have another image of one version.
    Images,
    /// A partition's epoch or version has gone back.
    EpochBack,
    /// Two brokers act as the leader of a partition at once.
    TwoActing,
    /// A topic whose creation was acked is gone, or has another id; or one whose deletion was acked is back.
    AckedLost,
    /// Two lives act as leaders of a partition in one epoch.
    EpochReused,
    /// A partition is led by a broker that is fenced.
    FencedLeads,
    /// A change that was acked is not to be seen at the member that was asked.
    AckedUnseen,
    /// Two askers were given the same producer id.
    SameProducerId,
    /// All is well again, and a broker stays fenced, a partition has no leader, or nothing can be changed.
    NoProgress,
    /// A member does not start, or its broker's life has ended by itself.
    Stopped,
}

/// A member and its broker.
#[derive(Clone)]
struct Running {
    broker: NodeId,
    member: Member,
    life: Life,
}

type Slot = Arc<Mutex<Option<Running>>>;

/// The knowledge of the clients.
#[derive(Default)]
struct Known {
    /// Topics whose creation was acked: their names, and the version from which on they are there.
    made: BTreeMap<TopicId, (String, u64)>,
    /// Topics whose deletion was acked, and the version from which on they are gone.
    deleted: BTreeMap<TopicId, u64>,
    /// Topics whose deletion was tried.
    doomed: BTreeSet<TopicId>,
    producer_ids: BTreeSet<i64>,
    same_producer_id: bool,
    acked_unseen: bool,
    refused: Vec<String>,
}

struct Rig {
    world: World,
    nodes: Vec<SimNode>,
    slots: Vec<Slot>,
    started: Vec<bool>,
    boots: Vec<u8>,
    lives: u128,
    known: Arc<Mutex<Known>>,
    random: Arc<SimRandom>,
    images: BTreeMap<u64, u64>,
    epochs: BTreeMap<PartitionId, (i32, i32)>,
    /// The life that acted as the leader of a partition in an epoch.
    actors: BTreeMap<(PartitionId, i32), (NodeId, u64)>,
    acting: usize,
}

fn voter(member: usize) -> VoterId {
    VoterId { node: u32::try_from(member).expect("few"), life: 1 }
}

fn number(member: usize) -> i32 {
    i32::try_from(member).expect("few")
}

fn below(random: &SimRandom, bound: usize) -> usize {
    usize::try_from(random.next_u64() % bound as u64).expect("small")
}

impl Rig {
    fn new(seed: u64) -> Self {
        let world = World::new(seed);
        world.set_delay(Duration::from_micros(100)..=Duration::from_millis(3));
        let nodes: Vec<_> = NAMES.iter().map(|name| world.node(name)).collect();
        let mut rig = Self {
            world,
            nodes,
            slots: (0..MEMBERS).map(|_| Slot::default()).collect(),
            started: vec![false; MEMBERS],
            boots: vec![0; MEMBERS],
            lives: 0,
            known: Arc::default(),
            random: Arc::new(SimRandom::new(seed ^ 0xfa17)),
            images: BTreeMap::new(),
            epochs: BTreeMap::new(),
            actors: BTreeMap::new(),
            acting: 0,
        };
        for member in 0..MEMBERS {
            rig.start(member);
        }
        rig.world.run_for(SECOND);
        rig.found();
        for client in 0..MEMBERS {
            rig.change_from(client, seed);
        }
        rig
    }

    fn options(member: usize) -> MemberOptions {
        MemberOptions {
            quorum: QuorumOptions {
                cluster: [7; 16],
                secret: crate::Secret::new([9; 32]),
                voter: voter(member),
                listen: NAMES[member].to_owned(),
                directory: PathBuf::from("/quorum"),
                heartbeat: Duration::from_millis(50),
                snapshot_every: 50,
            },
            policy: Arc::new(Levels),
            session: 3 * SECOND,
            heartbeat: SECOND / 2,
        }
    }

    fn newcomer(&mut self, member: usize) -> Newcomer {
        self.lives += 1;
        let dir = LogDir { id: format!("dir-{member}"), is_available: true, is_cordoned: false };
        let registration = Registration {
            node: NodeId(number(member)),
            directory: [u8::try_from(member).expect("few"); 16],
            life: self.lives.to_le_bytes(),
            boot: [self.boots[member]; 16],
            rack: None,
            software: String::new(),
            endpoints: Vec::new(),
            dirs: vec![dir],
            features: Vec::new(),
        };
        Newcomer { registration, clean_of: None }
    }

    fn start(&mut self, member: usize) {
        let newcomer = self.newcomer(member);
        let broker = newcomer.registration.node;
        let node = self.nodes[member].env();
        let (slot, known, env) = (Arc::clone(&self.slots[member]), Arc::clone(&self.known), node.clone());
        let starting = async move {
            match Member::start(&env, Self::options(member)).await {
                Ok(member) => {
                    let life = member.begin_life(newcomer);
                    *slot.lock() = Some(Running { broker, member, life });
                }
                Err(error) => known.lock().refused.push(error.to_string()),
            }
        };
        node.tasks.spawn("start", Box::pin(starting));
        self.started[member] = true;
    }

    fn found(&self) {
        let running = self.slots[0].lock().clone().expect("started");
        let members =
            (0..MEMBERS).map(|member| (voter(member), Peer { address: NAMES[member].to_owned() })).collect();
        let founding = async move { running.member.quorum().found(members).await.expect("founded") };
        self.nodes[0].env().tasks.spawn("found", Box::pin(founding));
        self.world.run_for(5 * SECOND);
    }

    /// A client on a machine that nothing happens to, which asks any member.
    fn change_from(&self, client: usize, seed: u64) {
        let machine = self.world.node(&format!("client-{client}"));
        let (slots, known, env) = (self.slots.clone(), Arc::clone(&self.known), machine.env());
        let random = SimRandom::new(seed ^ client as u64 ^ 0x0c11);
        let changing = async move {
            let mut count = (client as u64) << 32;
            loop {
                env.tasks.sleep(Duration::from_millis(40)).await;
                let running = slots[below(&random, MEMBERS)].lock().clone();
                let Some(Running { member, .. }) = running else { continue };
                count += 1;
                change_once(&member, &known, &random, count).await;
            }
        };
        machine.env().tasks.spawn("change", Box::pin(changing));
    }

    fn stop(&mut self, member: usize, power: bool) {
        *self.slots[member].lock() = None;
        if power {
            self.nodes[member].cut_power();
            self.boots[member] = self.boots[member].wrapping_add(1);
        } else {
            self.nodes[member].kill();
        }
        self.started[member] = false;
    }

    /// One thing that goes wrong, or right again.
    fn happen(&mut self) {
        let (one, other) = (below(&self.random, MEMBERS), below(&self.random, MEMBERS));
        match below(&self.random, 12) {
            0 | 1 => self.stop(one, false),
            2 => self.stop(one, true),
            3 => (0..MEMBERS).for_each(|member| self.stop(member, true)),
            4..=6 => self.start_all(),
            7 if one != other => self.world.cut(NAMES[one], NAMES[other], true),
            8 => self.heal_links(),
            9 => self.nodes[one].pause(below(&self.random, 2) == 0),
            10 => self.nodes[one].set_drift(number(below(&self.random, 2_000)) - 1_000),
            11 => self.nodes[one].sim().fs.set_space((below(&self.random, 2) == 0).then_some(0)),
            _ => {}
        }
    }

    fn start_all(&mut self) {
        for member in 0..MEMBERS {
            if !self.started[member] {
                self.start(member);
            }
        }
    }

    fn heal_links(&self) {
        for one in NAMES {
            for other in NAMES {
                if one != other {
                    self.world.cut(one, other, false);
                }
            }
        }
    }

    fn running(&self) -> Vec<Running> {
        self.slots.iter().filter_map(|slot| slot.lock().clone()).collect()
    }

    fn check(&mut self) -> Result<(), Broken> {
        let known = self.known.lock();
        if let Some(reason) = known.refused.first() {
            eprintln!("{reason}");
            return Err(Broken::Stopped);
        }
        if known.same_producer_id {
            return Err(Broken::SameProducerId);
        }
        if known.acked_unseen {
            return Err(Broken::AckedUnseen);
        }
        drop(known);
        let running = self.running();
        let mut acting: BTreeMap<PartitionId, usize> = BTreeMap::new();
        for Running { broker, member, life } in &running {
            if let Some(ended) = life.ended() {
                eprintln!("{ended}");
                return Err(Broken::Stopped);
            }
            let image = member.image();
            let print = print_of(&image);
            if *self.images.entry(image.version()).or_insert(print) != print {
                return Err(Broken::Images);
            }
            for (id, epoch, version) in partitions_of(&image) {
                // Members learn of changes at different times: only what the newest image of all has shown goes forth.
                let seen = self.epochs.entry(id).or_insert((epoch, version));
                if version > seen.1 && epoch < seen.0 || version == seen.1 && epoch != seen.0 {
                    return Err(Broken::EpochBack);
                }
                *seen = (*seen).max((epoch, version));
            }
            if !leaders_are_unfenced(&image) {
                return Err(Broken::FencedLeads);
            }
            for id in acted_on(&image, *broker, life) {
                *acting.entry(id).or_default() += 1;
                let epoch = image.partition(id).map_or(-1, |partition| partition.leader_epoch.0);
                let actor = (*broker, life.incarnation().unwrap_or(0));
                if *self.actors.entry((id, epoch)).or_insert(actor) != actor {
                    return Err(Broken::EpochReused);
                }
            }
        }
        self.acting += acting.len();
        if acting.values().any(|count| *count > 1) {
            self.show();
            return Err(Broken::TwoActing);
        }
        Ok(())
    }

    /// Shows what every member knows, for whoever looks for the reason.
    fn show(&self) {
        eprintln!("at {:?}", self.world.now());
        for Running { broker, member, life } in self.running() {
            let image = member.image();
            let version = image.version();
            let acted = acted_on(&image, broker, &life).len();
            let (leads, now) = (member.quorum().leads(), member.asking.node.env.clock.monotonic());
            eprintln!("version {version}, leads {leads:?}, at {now:?}: {life:?}, acts on {acted}");
            for (node, broker) in image.brokers() {
                let (since, changed_at) = (broker.incarnation, broker.changed_at);
                eprintln!(
                    "  broker {} of {since}, fenced {}, changed at {changed_at}",
                    node.0, broker.is_fenced
                );
            }
        }
    }

    /// All faults end. The cluster has to go on, and to have everything.
    fn settle(&mut self) -> Result<(), Broken> {
        self.heal_links();
        for member in 0..MEMBERS {
            self.nodes[member].pause(false);
            self.nodes[member].sim().fs.set_space(None);
        }
        self.start_all();
        let (slots, known) = (self.slots.clone(), Arc::clone(&self.known));
        let before = known.lock().made.len();
        let is_well = || {
            let running: Vec<_> = slots.iter().filter_map(|slot| slot.lock().clone()).collect();
            let all_act = running.len() == MEMBERS && running.iter().all(|running| running.life.may_act());
            all_act
                && known.lock().made.len() > before + 3
                && running.iter().all(|running| has_leaders(&running.member.image()))
        };
        if !self.world.run_until(90 * SECOND, is_well) {
            self.show();
            return Err(Broken::NoProgress);
        }
        self.check()?;
        self.world.run_for(5 * SECOND);
        self.check()?;
        let known = self.known.lock();
        for Running { member, .. } in self.running() {
            let image = member.image();
            let is_kept = |(id, (name, version)): (&TopicId, &(String, u64))| {
                let is_there = || image.topic_named(name).is_some_and(|topic| topic.id == *id);
                *version > image.version() || known.doomed.contains(id) || is_there()
            };
            let lost = known.made.iter().filter(|made| !is_kept(*made)).count();
            let is_back =
                |(id, version): (&TopicId, &u64)| *version <= image.version() && image.topic(*id).is_some();
            let back = known.deleted.iter().any(is_back);
            if lost > 0 || back {
                return Err(Broken::AckedLost);
            }
        }
        Ok(())
    }

    fn run(&mut self, events: usize) -> Result<(), Broken> {
        for _ in 0..events {
            self.happen();
            for _ in 0..=below(&self.random, 8) {
                self.world.run_for(Duration::from_millis(20 + self.random.next_u64() % 500));
                self.check()?;
            }
        }
        self.quiet();
        self.settle()
    }

    /// Waits for what the clients have under way.
    fn quiet(&self) {
        self.world.run_for(SECOND);
    }
}

/// Makes a topic, deletes one, or takes producer ids, and notes what was acked.
async fn change_once(member: &Member, known: &Mutex<Known>, random: &SimRandom, count: u64) {
    let victim = known.lock().made.keys().nth(below(random, 40)).copied();
    let decision = match (below(random, 8), victim) {
        (0, Some(id)) => {
            known.lock().doomed.insert(id);
            Decision::DeleteTopic(id)
        }
        (1, _) => Decision::ReserveProducerIds(10),
        _ => {
            let mut id = [0; 16];
            id[8..].copy_from_slice(&count.to_be_bytes());
            let configs = Configs::from([("level".to_owned(), (1 + below(random, 4)).to_string())]);
            let partitions =
                NewPartitions::Placed { count: 1 + below(random, 3), replicas: 1 + below(random, 2) };
            Decision::CreateTopic(NewTopic {
                id: TopicId(id),
                name: format!("t{count}"),
                configs,
                partitions,
            })
        }
    };
    let Ok(decisions) = member.decide(vec![decision.clone()], 2 * SECOND).await else { return };
    let mut known = known.lock();
    match (decision, &decisions.answers[..]) {
        (Decision::CreateTopic(new), [Decided::Done]) => {
            let seen = member.image().topic(new.id).is_some_and(|topic| *topic.name == *new.name);
            if !seen {
                known.acked_unseen = true;
            }
            known.made.insert(new.id, (new.name, decisions.version));
        }
        (Decision::DeleteTopic(id), [Decided::Done | Decided::Refused(Refusal::UnknownTopic)]) => {
            known.deleted.insert(id, decisions.version);
        }
        (Decision::ReserveProducerIds(_), [Decided::FirstId(first)]) => {
            known.same_producer_id |= !known.producer_ids.insert(*first);
        }
        _ => {}
    }
}

/// A number that stands for all that an image says. Not made from a snapshot: one that lacks something would hide it.
fn print_of(image: &Image) -> u64 {
    let (brokers, topics): (Vec<_>, Vec<_>) = (image.brokers().collect(), image.topics().collect());
    let text = format!("{brokers:?} {topics:?} {:?} {}", image.features(), image.producer_ids_end());
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, add)
}

fn partitions_of(image: &Image) -> Vec<(PartitionId, i32, i32)> {
    let topics = image.topics().flat_map(|topic| {
        (0..).zip(topic.partitions()).map(|(index, partition)| {
            let id = PartitionId { topic: topic.id, index };
            (id, partition.leader_epoch.0, partition.version)
        })
    });
    topics.collect()
}

/// The partitions that a broker acts on as their leader.
fn acted_on(image: &Image, broker: NodeId, life: &Life) -> Vec<PartitionId> {
    let Some(incarnation) = life.incarnation().filter(|_| life.may_act()) else { return Vec::new() };
    if image.broker(broker).is_none_or(|known| known.incarnation != incarnation) {
        return Vec::new();
    }
    let topics = image.topics().flat_map(|topic| {
        let led = (0..).zip(topic.partitions());
        let led = led.filter(|(_, partition)| partition.leader() == Some(broker));
        led.map(|(index, _)| PartitionId { topic: topic.id, index })
    });
    topics.collect()
}

/// Whether every partition has a leader that can have one without a loss.
fn has_leaders(image: &Image) -> bool {
    let mut partitions = image.topics().flat_map(|topic| topic.partitions());
    partitions.all(|partition| {
        partition.leader().is_some() || partition.roles.isr.is_empty() && partition.roles.elr.is_empty()
    })
}

fn leaders_are_unfenced(image: &Image) -> bool {
    let is_unfenced = |node: NodeId| image.broker(node).is_some_and(|broker| !broker.is_fenced);
    let mut partitions = image.topics().flat_map(|topic| topic.partitions());
    partitions.all(|partition| partition.leader().is_none_or(is_unfenced))
}

fn seeds(count: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = number("RIVERRUN_CLUSTER_SEED").unwrap_or(1);
    first..first + number("RIVERRUN_CLUSTER_SEEDS").unwrap_or(count)
}

/// Names the seed of a run that panics.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the real time that the simulated one takes is printed")]
fn the_cluster_keeps_its_promises_whatever_fails() {
    let (mut made, mut acting, mut simulated) = (0, 0, Duration::ZERO);
    let begun = std::time::Instant::now();
    for seed in seeds(6) {
        let _named = Named(seed);
        let mut rig = Rig::new(seed);
        assert_eq!(rig.run(30), Ok(()), "seed {seed}");
        made += rig.known.lock().made.len();
        acting += rig.acting;
        simulated += rig.world.now();
    }
    let took = begun.elapsed();
    println!(
        "{made} topics made, {acting} times a broker was seen to act, {simulated:?} simulated in {took:?}"
    );
    assert!(made > 0 && acting > 0);
}

#[test]
fn the_same_seed_goes_the_same_way() {
    let run = |seed| {
        let mut rig = Rig::new(seed);
        rig.run(12).expect("nothing is broken");
        let made = rig.known.lock().made.len();
        (rig.world.trace(), rig.world.steps(), made)
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3).0, run(4).0);
}

/// The first seed that finds a planted bug.
fn found(bug: Planted, seeds: Range<u64>) -> Option<(u64, Broken)> {
    let _planting = plant(bug);
    seeds.into_iter().find_map(|seed| {
        let broken = std::panic::catch_unwind(|| Rig::new(seed).run(30).err());
        broken.unwrap_or(Some(Broken::Stopped)).map(|broken| (seed, broken))
    })
}

/// Each bug is found by the promise that it breaks, which nothing else would notice. The seeds begin shortly before the one that
/// finds it.
#[test]
fn planted_bugs_are_found_by_the_promise_that_they_break() {
    for (bug, promise, first) in [
        (Planted::NewLifeSameEpoch, Broken::EpochReused, 1),
        (Planted::FencedElected, Broken::FencedLeads, 1),
        (Planted::VersionStandsStill, Broken::EpochBack, 1),
        (Planted::LeaseTooLong, Broken::TwoActing, 15),
        (Planted::SessionsFromZero, Broken::TwoActing, 34),
        (Planted::AnsweredEarly, Broken::AckedUnseen, 1),
        (Planted::DeletionTakesAnother, Broken::AckedLost, 1),
        (Planted::ProducerIdsNotReserved, Broken::SameProducerId, 1),
        (Planted::SnapshotLacksConfigs, Broken::Images, 1),
        (Planted::SnapshotUnfences, Broken::Images, 1),
        (Planted::SnapshotLacksVersion, Broken::AckedUnseen, 1),
        (Planted::NeverUnfenced, Broken::NoProgress, 1),
    ] {
        let found = found(bug, first..first + 60);
        println!("{bug:?}: {found:?}");
        assert_eq!(found.map(|(_, broken)| broken), Some(promise), "{bug:?}");
    }
}

/// Needs a broker whose signs of life arrive while entries of the log do not, which the simulation hardly makes.
#[test]
fn a_fenced_broker_is_unfenced_once_it_knows_that_it_was() {
    let registration = Registration {
        node: NodeId(0),
        directory: [0; 16],
        life: [1; 16],
        boot: [0; 16],
        rack: None,
        software: String::new(),
        endpoints: Vec::new(),
        dirs: vec![LogDir { id: "d".to_owned(), is_available: true, is_cordoned: false }],
        features: Vec::new(),
    };
    let image = Image::default().after(7, vec![Record::BrokerRegistered(registration)]).expect("it fits");
    let is_unfenced = |applied| {
        let (answer, _told) = oneshot::channel();
        let beat = Heartbeat { node: NodeId(0), incarnation: 7, applied, digest: 0 };
        let asked = [Asked { ask: Ask::Heartbeat(beat), answer }];
        let mut sessions = Sessions::new(3 * SECOND, Duration::ZERO);
        let plan = Plan::make(&image, &Levels, &mut sessions, &asked, SECOND, |_| false);
        matches!(plan.command, Command::Some(_))
    };
    assert!(!is_unfenced(6));
    assert!(is_unfenced(7));
    let _planting = plant(Planted::UnfencedUnaware);
    assert!(is_unfenced(6), "the planted bug is found");
}

#[test]
fn an_older_life_has_no_session() {
    let registration = |life| Registration {
        node: NodeId(0),
        directory: [life; 16],
        life: [life; 16],
        boot: [0; 16],
        rack: None,
        software: String::new(),
        endpoints: Vec::new(),
        dirs: Vec::new(),
        features: Vec::new(),
    };
    let mut image = Image::default();
    for index in [5, 9] {
        let registered = Record::BrokerRegistered(registration(u8::try_from(index).expect("small")));
        image = image.after(index, vec![registered]).expect("it fits");
    }
    let unfenced = Record::BrokerChanged { node: NodeId(0), is_fenced: false, is_stopping: false };
    let image = image.after(10, vec![unfenced]).expect("it fits");
    let mut sessions = Sessions::new(3 * SECOND, Duration::ZERO);
    sessions.hear(&image, NodeId(0), 9, 4 * SECOND);
    sessions.hear(&image, NodeId(0), 5, 5 * SECOND);
    assert!(sessions.over(&image, 6 * SECOND).is_empty(), "the newer one was heard");
    assert_eq!(sessions.over(&image, 8 * SECOND), [NodeId(0)]);
}
