//! Random decisions against a simple check of everything that must hold, and one test for each rule.

use std::collections::{BTreeMap, BTreeSet};

use riverrun_env::Random as _;
use riverrun_env::sim::SimRandom;
use riverrun_types::{DurabilityLevel, LeaderEpoch, NodeId, PartitionId, TopicId};

use super::load::Loads;
use super::*;

/// The level by a config `level`, and a majority, or as many as a config `minimum` says.
struct Levels;

impl Policy for Levels {
    fn level(&self, configs: &Configs) -> DurabilityLevel {
        configs.get("level").map_or(DurabilityLevel::SyncSync, |level| level.parse().expect("a level"))
    }

    fn min_insync(&self, configs: &Configs, replicas: usize) -> usize {
        let minimum = configs.get("minimum").and_then(|minimum| minimum.parse().ok());
        minimum.unwrap_or(replicas / 2 + 1)
    }
}

/// A controller whose quorum takes everything at once.
#[derive(Default)]
struct Cluster {
    controller: Controller,
    index: u64,
}

fn dir(id: &str) -> LogDir {
    LogDir { id: id.to_owned(), is_available: true, is_cordoned: false }
}

fn registration(node: i32) -> Registration {
    Registration {
        node: NodeId(node),
        directory: [u8::try_from(node).expect("small"); 16],
        life: [0; 16],
        boot: [1; 16],
        rack: None,
        software: "test".to_owned(),
        endpoints: vec![Endpoint { listener: "PLAIN".to_owned(), host: format!("host-{node}"), port: 9092 }],
        dirs: vec![dir(&format!("{node}-a")), dir(&format!("{node}-b"))],
        features: vec![("metadata.version".to_owned(), 1, 3)],
    }
}

const TOPIC: TopicId = TopicId([7; 16]);

fn first_partition() -> PartitionId {
    PartitionId { topic: TOPIC, index: 0 }
}

impl Cluster {
    /// Brokers 0 and up that lead and follow, and a topic of three replicas at a level.
    fn of(brokers: i32, level: &str) -> Self {
        let mut cluster = Self::default();
        for node in 0..brokers {
            cluster.start(node);
        }
        let configs = Configs::from([("level".to_owned(), level.to_owned())]);
        let assigned = NewPartitions::Assigned(vec![vec![NodeId(0), NodeId(1), NodeId(2)]]);
        cluster.decide(|draft| {
            draft
                .create_topic(NewTopic { id: TOPIC, name: "t".to_owned(), configs, partitions: assigned })
                .expect("made");
        });
        cluster
    }

    fn start(&mut self, node: i32) {
        let newcomer = Newcomer { registration: registration(node), clean_of: None };
        self.decide(|draft| draft.register(newcomer, false).expect("registered"));
        self.unfence(node);
    }

    fn next_life(&self) -> [u8; 16] {
        u128::from(self.index + 1).to_le_bytes()
    }

    fn unfence(&mut self, node: i32) {
        let incarnation = self.incarnation(node);
        self.decide(|draft| draft.unfence(NodeId(node), incarnation).expect("unfenced"));
    }

    fn fence(&mut self, node: i32) {
        self.decide(|draft| draft.fence(NodeId(node)).expect("fenced"));
    }

    /// A new life of a broker's process, after an end of the life before.
    fn restart(&mut self, node: i32, boot: u8, clean: bool) {
        let clean_of = clean.then(|| self.incarnation(node));
        let life = self.next_life();
        let registration = Registration { boot: [boot; 16], life, ..registration(node) };
        self.decide(|draft| draft.register(Newcomer { registration, clean_of }, false).expect("registered"));
    }

    fn incarnation(&self, node: i32) -> u64 {
        self.image().broker(NodeId(node)).expect("registered").incarnation
    }

    fn image(&self) -> &Image {
        self.controller.image()
    }

    fn partition(&self) -> &Partition {
        self.image().partition(first_partition()).expect("made")
    }

    fn isr(&self) -> Vec<i32> {
        self.partition().nodes(self.partition().roles.isr).map(|node| node.0).collect()
    }

    fn elr(&self) -> Vec<i32> {
        self.partition().nodes(self.partition().roles.elr).map(|node| node.0).collect()
    }

    fn leader(&self) -> Option<i32> {
        self.partition().leader().map(|node| node.0)
    }

    fn decide<T>(&mut self, decide: impl FnOnce(&mut Draft<'_>) -> T) -> T {
        let image = Arc::clone(self.controller.image());
        let mut draft = Draft::new(&image, &Levels);
        let decided = decide(&mut draft);
        if !draft.is_empty() {
            self.index += 3;
            let command = draft.into_bytes();
            let outcome = Outcome::decode(&self.controller.apply(self.index, &command).expect("readable"));
            assert_eq!(outcome, Some(Outcome::Taken));
        }
        decided
    }

    /// The leader asks for an in-sync set, naming the incarnations that are registered.
    fn ask(&mut self, isr: &[i32]) -> Result<(), Refusal> {
        let isr = isr.iter().map(|node| (NodeId(*node), self.incarnation(*node))).collect();
        self.ask_of(isr)
    }

    fn ask_of(&mut self, isr: Vec<(NodeId, u64)>) -> Result<(), Refusal> {
        let (partition, leader) = (self.partition().clone(), self.leader().expect("led"));
        let asked = IsrChange {
            id: first_partition(),
            leader_epoch: partition.leader_epoch,
            version: partition.version,
            isr,
        };
        let incarnation = self.incarnation(leader);
        self.decide(|draft| draft.change_isr(NodeId(leader), incarnation, &asked))
    }
}

#[test]
fn leaders_come_from_the_in_sync_set_then_from_the_eligible() {
    let mut cluster = Cluster::of(3, "1");
    assert_eq!((cluster.leader(), cluster.isr(), cluster.elr()), (Some(0), vec![0, 1, 2], vec![]));
    cluster.fence(0);
    assert_eq!((cluster.leader(), cluster.isr(), cluster.elr()), (Some(1), vec![1, 2], vec![]));
    cluster.fence(2);
    assert_eq!((cluster.leader(), cluster.isr(), cluster.elr()), (Some(1), vec![1], vec![2]));
    cluster.fence(1);
    assert_eq!((cluster.leader(), cluster.isr(), cluster.elr()), (None, vec![], vec![1, 2]));
    cluster.unfence(0);
    assert_eq!(cluster.leader(), None, "it lacks what was acked since");
    cluster.unfence(2);
    assert_eq!((cluster.leader(), cluster.isr(), cluster.elr()), (Some(2), vec![2], vec![1]));
    cluster.unfence(1);
    cluster.ask(&[2, 1]).expect("taken");
    assert_eq!((cluster.isr(), cluster.elr()), (vec![1, 2], vec![]));
    assert_eq!(cluster.partition().leader_epoch, LeaderEpoch(3));
}

#[test]
fn a_new_life_leads_in_a_new_epoch_only() {
    let mut cluster = Cluster::of(3, "1");
    cluster.restart(0, 1, true);
    assert_eq!((cluster.leader(), cluster.partition().leader_epoch), (Some(1), LeaderEpoch(1)));
    assert!(cluster.image().broker(NodeId(0)).expect("there").is_fenced);
}

#[test]
fn brokers_that_may_lack_records_are_no_candidates() {
    for (level, boot, clean, stays) in [
        ("1", 2, false, true),
        ("2", 1, false, true),
        ("2", 2, false, false),
        ("2", 2, true, true),
        ("3", 1, false, false),
        ("3", 1, true, true),
        ("4", 1, false, true),
        ("4", 2, false, false),
    ] {
        let mut cluster = Cluster::of(3, level);
        cluster.fence(1);
        cluster.fence(2);
        cluster.restart(2, boot, clean);
        let expected = if stays { vec![2] } else { vec![] };
        assert_eq!(cluster.elr(), expected, "level {level}, boot {boot}, clean {clean}");
        cluster.fence(0);
        cluster.unfence(2);
        assert_eq!(cluster.leader(), stays.then_some(2), "level {level}, boot {boot}, clean {clean}");
    }
}

#[test]
fn changes_of_the_in_sync_set_name_version_and_incarnation() {
    let mut cluster = Cluster::of(3, "1");
    cluster.fence(2);
    let version = cluster.partition().version;
    assert_eq!(cluster.ask(&[0, 1, 2]), Err(Refusal::Ineligible), "it is fenced");
    assert_eq!(cluster.partition().version, version + 1, "a copy of the request is stale");
    let old = cluster.incarnation(2);
    cluster.restart(2, 1, false);
    cluster.unfence(2);
    let (zero, one) = (cluster.incarnation(0), cluster.incarnation(1));
    let members = |two| vec![(NodeId(0), zero), (NodeId(1), one), (NodeId(2), two)];
    assert_eq!(cluster.ask_of(members(old)), Err(Refusal::Ineligible), "an older life was heard from");
    assert_eq!(cluster.ask(&[1, 2]), Err(Refusal::Ineligible), "its leader is not in it");
    cluster.ask(&[0, 1, 2]).expect("taken");
    let partition = cluster.partition().clone();
    let asked = |epoch: i32, version| IsrChange {
        id: first_partition(),
        leader_epoch: LeaderEpoch(epoch),
        version,
        isr: vec![(NodeId(0), zero)],
    };
    let refused = |cluster: &mut Cluster, from: i32, incarnation, asked| {
        cluster.decide(|draft| draft.change_isr(NodeId(from), incarnation, &asked).expect_err("refused"))
    };
    let (epoch, version) = (partition.leader_epoch.0, partition.version);
    assert_eq!(refused(&mut cluster, 0, zero, asked(epoch, version - 1)), Refusal::StaleVersion);
    assert_eq!(refused(&mut cluster, 0, zero, asked(epoch + 1, version)), Refusal::StaleLeaderEpoch);
    assert_eq!(refused(&mut cluster, 1, one, asked(epoch, version)), Refusal::NotLeader);
    let stale = Refusal::StaleIncarnation { node: NodeId(0), told: zero - 1, current: zero };
    assert_eq!(refused(&mut cluster, 0, zero - 1, asked(epoch, version)), stale);
    assert_eq!(cluster.partition(), &partition, "nothing has moved");
}

#[test]
fn a_reassignment_ends_when_its_target_is_in_sync() {
    for level in ["1", "4"] {
        let mut cluster = Cluster::of(5, level);
        let id = first_partition();
        cluster.decide(|draft| draft.reassign(id, &[NodeId(3), NodeId(4), NodeId(1)]).expect("begun"));
        let replicas: Vec<_> = cluster.partition().replicas.iter().map(|replica| replica.node.0).collect();
        assert_eq!(replicas, [3, 4, 1, 0, 2]);
        assert_eq!((cluster.leader(), cluster.isr()), (Some(0), vec![1, 0, 2]));
        let resigned_in = Some(cluster.partition().leader_epoch);
        let early = cluster.decide(|draft| draft.finish_reassignment(id, resigned_in));
        assert_eq!(early, Err(Refusal::NoReassignment));
        cluster.ask(&[0, 1, 2, 3, 4]).expect("taken");
        let unasked = cluster.decide(|draft| draft.finish_reassignment(id, None));
        if level == "4" {
            assert_eq!(unasked, Err(Refusal::LeaderMustResign));
            let earlier = Some(LeaderEpoch(cluster.partition().leader_epoch.0 - 1));
            let of_another = cluster.decide(|draft| draft.finish_reassignment(id, earlier));
            assert_eq!(of_another, Err(Refusal::LeaderMustResign), "another leader has resigned");
            cluster.decide(|draft| draft.finish_reassignment(id, resigned_in)).expect("ends");
        }
        assert_eq!((cluster.leader(), cluster.isr()), (Some(3), vec![3, 4, 1]));
        assert!(!cluster.partition().is_reassigned());
    }
}

#[test]
fn a_reassignment_that_is_given_up_leaves_no_trace() {
    let mut cluster = Cluster::of(5, "1");
    let (id, before) = (first_partition(), cluster.partition().clone());
    cluster.decide(|draft| draft.reassign(id, &[NodeId(3), NodeId(4), NodeId(1)]).expect("begun"));
    cluster.ask(&[0, 1, 2, 3]).expect("taken");
    cluster.decide(|draft| draft.reassign(id, &[NodeId(4), NodeId(1), NodeId(0)]).expect("another one"));
    let replicas: Vec<_> = cluster.partition().replicas.iter().map(|replica| replica.node.0).collect();
    assert_eq!((replicas, cluster.isr()), (vec![4, 1, 0, 2], vec![1, 0, 2]));
    cluster.decide(|draft| draft.cancel_reassignment(id).expect("given up"));
    let after = cluster.partition();
    let nodes = |partition: &Partition| -> BTreeSet<_> {
        partition.replicas.iter().map(|replica| (replica.node, replica.dir)).collect()
    };
    assert_eq!((nodes(after), after.leader()), (nodes(&before), before.leader()));
    assert_eq!(cluster.isr().into_iter().collect::<BTreeSet<_>>(), [0, 1, 2].into());
}

#[test]
fn a_reassignment_is_kept_where_it_alone_has_all_records() {
    let mut cluster = Cluster::of(6, "1");
    let id = first_partition();
    let two = ConfigChanges::from([("minimum".to_owned(), Some("2".to_owned()))]);
    cluster.decide(|draft| draft.change_topic_configs(TOPIC, &two)).expect("set");
    cluster.decide(|draft| draft.reassign(id, &[NodeId(3), NodeId(4), NodeId(5)]).expect("begun"));
    cluster.ask(&[0, 1, 2, 3, 4, 5]).expect("taken");
    for node in 0..3 {
        cluster.fence(node);
    }
    assert_eq!((cluster.isr(), cluster.elr()), (vec![3, 4, 5], vec![]));
    let refused = cluster.decide(|draft| draft.cancel_reassignment(id));
    assert!(matches!(refused, Err(Refusal::InvalidReplicas(_))), "{refused:?}");
    let mut cluster = Cluster::of(6, "4");
    cluster.decide(|draft| draft.reassign(id, &[NodeId(3), NodeId(4), NodeId(5)]).expect("begun"));
    cluster.ask(&[0, 3, 4, 5]).expect("taken");
    cluster.fence(0);
    let refused = cluster.decide(|draft| draft.cancel_reassignment(id));
    assert_eq!(refused, Err(Refusal::LeaderMustResign));
    assert!(cluster.leader().is_some_and(|leader| leader >= 3));
}

#[test]
fn eligible_replicas_follow_the_configs() {
    let change = |cluster: &mut Cluster, name: &str, value: &str| {
        let changes = ConfigChanges::from([(name.to_owned(), Some(value.to_owned()))]);
        cluster.decide(|draft| draft.change_topic_configs(TOPIC, &changes)).expect("set");
    };
    for (name, value, stays) in [("minimum", "1", false), ("minimum", "3", true), ("level", "2", false)] {
        let mut cluster = Cluster::of(3, "1");
        cluster.fence(1);
        cluster.fence(2);
        assert_eq!((cluster.isr(), cluster.elr()), (vec![0], vec![2]));
        change(&mut cluster, name, value);
        assert_eq!(cluster.elr().is_empty(), !stays, "{name} {value}");
    }
}

#[test]
fn changes_of_configs_by_two_askers_are_both_kept() {
    let mut cluster = Cluster::of(3, "1");
    for (name, value) in [("a", Some("1")), ("b", Some("2")), ("a", None)] {
        let changes = ConfigChanges::from([(name.to_owned(), value.map(str::to_owned))]);
        cluster.decide(|draft| draft.change_topic_configs(TOPIC, &changes)).expect("set");
    }
    let configs = &cluster.image().topic(TOPIC).expect("made").configs;
    let expected = [("b", "2"), ("level", "1")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(**configs, Configs::from(expected));
}

#[test]
fn partitions_are_added_to_as_many_as_the_asker_knows() {
    let mut cluster = Cluster::of(3, "1");
    let more = NewPartitions::Placed { count: 2, replicas: 3 };
    let add = |cluster: &mut Cluster, from| cluster.decide(|draft| draft.add_partitions(TOPIC, from, &more));
    add(&mut cluster, 1).expect("added");
    assert!(matches!(add(&mut cluster, 1), Err(Refusal::InvalidPartitions(_))), "it was asked before");
    assert_eq!(cluster.image().topic(TOPIC).expect("made").partition_count(), 3);
    let fewer = NewPartitions::Placed { count: 1, replicas: 2 };
    let refused = cluster.decide(|draft| draft.add_partitions(TOPIC, 3, &fewer));
    assert!(matches!(refused, Err(Refusal::InvalidReplicas(_))), "{refused:?}");
}

#[test]
fn a_leader_that_may_lack_records_is_asked_for() {
    let mut cluster = Cluster::of(3, "2");
    let id = first_partition();
    let too_early = cluster.decide(|draft| draft.elect_unclean(id, None));
    assert_eq!(too_early, Err(Refusal::NoElection), "it has a leader");
    cluster.fence(2);
    cluster.fence(1);
    cluster.restart(1, 2, false);
    cluster.fence(0);
    cluster.unfence(2);
    cluster.unfence(1);
    assert_eq!((cluster.leader(), cluster.elr()), (None, vec![0]));
    cluster.decide(|draft| draft.elect_unclean(id, None)).expect("elected");
    assert_eq!((cluster.leader(), cluster.isr(), cluster.elr()), (Some(1), vec![1], vec![]));
}

#[test]
fn the_preferred_replica_leads_again_when_asked() {
    let mut cluster = Cluster::of(3, "1");
    let id = first_partition();
    cluster.fence(0);
    cluster.unfence(0);
    let elect = |cluster: &mut Cluster| cluster.decide(|draft| draft.elect_preferred(id, None));
    assert_eq!(elect(&mut cluster), Err(Refusal::NoElection), "it is not in sync");
    cluster.ask(&[0, 1, 2]).expect("taken");
    elect(&mut cluster).expect("elected");
    assert_eq!(cluster.leader(), Some(0));
    assert_eq!(elect(&mut cluster), Err(Refusal::NoElection), "it leads");
}

#[test]
fn a_broker_that_stops_hands_over_before() {
    let mut cluster = Cluster::of(3, "1");
    let incarnation = cluster.incarnation(0);
    cluster.decide(|draft| draft.begin_to_stop(NodeId(0), incarnation).expect("begins"));
    assert_eq!((cluster.leader(), cluster.isr()), (Some(1), vec![1, 2]));
    assert_eq!(cluster.ask(&[0, 1, 2]), Err(Refusal::Ineligible), "it would leave at once");
}

#[test]
fn failed_log_dirs_take_their_replicas_out_and_bring_them_back() {
    let mut cluster = Cluster::of(3, "1");
    let incarnation = cluster.incarnation(0);
    let used = usize::from(cluster.partition().replicas[0].dir.0);
    let mut dirs = registration(0).dirs;
    dirs[used].is_available = false;
    cluster.decide(|draft| draft.set_dirs(NodeId(0), incarnation, dirs.clone()).expect("set"));
    assert_eq!((cluster.leader(), cluster.isr()), (Some(1), vec![1, 2]));
    assert_eq!(cluster.ask(&[0, 1, 2]), Err(Refusal::Ineligible), "its log dir is not there");
    dirs[used].is_available = true;
    cluster.decide(|draft| draft.set_dirs(NodeId(0), incarnation, dirs.clone()).expect("set"));
    cluster.ask(&[0, 1, 2]).expect("taken");
}

#[test]
fn replicas_in_lost_log_dirs_begin_anew_in_others() {
    let mut cluster = Cluster::of(3, "1");
    cluster.fence(1);
    cluster.fence(2);
    let used = usize::from(cluster.partition().replicas[0].dir.0);
    let mut told = Registration { life: cluster.next_life(), ..registration(0) };
    told.dirs[used] = dir("0-new");
    cluster.decide(|draft| {
        draft.register(Newcomer { registration: told, clean_of: None }, false).expect("registered");
    });
    cluster.unfence(0);
    assert_eq!((cluster.leader(), cluster.elr()), (None, vec![2]), "it has lost what it had acked");
    let slot = cluster.partition().replicas[0].dir;
    assert_ne!(slot, DirSlot::NONE);
    let dirs = &cluster.image().broker(NodeId(0)).expect("there").registration.dirs;
    assert!(dirs[usize::from(slot.0)].is_online());
    assert!(dirs.iter().any(|dir| dir.id == "0-new"));
}

#[test]
fn a_node_with_a_live_ones_id_is_refused() {
    let mut cluster = Cluster::of(3, "1");
    let newcomer = || Newcomer {
        registration: Registration { directory: [99; 16], life: [99; 16], ..registration(0) },
        clean_of: None,
    };
    let refused = cluster.decide(|draft| draft.register(newcomer(), true));
    assert_eq!(refused, Err(Refusal::DuplicateBroker(NodeId(0))));
    assert_eq!(cluster.leader(), Some(0));
    cluster.decide(|draft| draft.register(newcomer(), false)).expect("the first is gone");
}

#[test]
fn a_registration_that_is_refused_changes_nothing() {
    let mut cluster = Cluster::of(3, "1");
    let version = cluster.image().version();
    for old_ones in [true, false] {
        let mut told = Registration { life: cluster.next_life(), ..registration(0) };
        // With the slots of the old ones they are too many, too.
        told.dirs.truncate(if old_ones { 2 } else { 0 });
        told.dirs.extend((0..1_000).map(|number| dir(&format!("more-{number}"))));
        let refused =
            cluster.decide(|draft| draft.register(Newcomer { registration: told, clean_of: None }, false));
        assert!(matches!(refused, Err(Refusal::InvalidReplicas(_))), "{refused:?}");
        assert_eq!((cluster.image().version(), cluster.leader()), (version, Some(0)));
    }
}

#[test]
fn a_registration_that_is_told_twice_is_one() {
    let mut cluster = Cluster::of(3, "1");
    let (incarnation, version) = (cluster.incarnation(0), cluster.image().version());
    let again = Newcomer { registration: registration(0), clean_of: None };
    cluster.decide(|draft| draft.register(again, false)).expect("registered");
    assert_eq!((cluster.incarnation(0), cluster.image().version()), (incarnation, version));
}

#[test]
fn features_hold_only_levels_that_every_broker_knows() {
    let mut cluster = Cluster::of(3, "1");
    let set =
        |cluster: &mut Cluster, level| cluster.decide(|draft| draft.set_feature("metadata.version", level));
    let unknown = Refusal::FeatureNotSupported { feature: "metadata.version".to_owned(), level: 4 };
    assert_eq!(set(&mut cluster, 4), Err(unknown));
    set(&mut cluster, 3).expect("known");
    let (features, epoch) = cluster.image().features();
    assert_eq!((features.get("metadata.version"), epoch), (Some(&3), cluster.index));
    let mut older = registration(3);
    older.features[0].2 = 2;
    let refused =
        cluster.decide(|draft| draft.register(Newcomer { registration: older, clean_of: None }, false));
    let too_new = Refusal::FeatureNotSupported { feature: "metadata.version".to_owned(), level: 3 };
    assert_eq!(refused, Err(too_new));
}

#[test]
fn brokers_leave_when_they_are_fenced_and_empty() {
    let mut cluster = Cluster::of(4, "1");
    let leave = |cluster: &mut Cluster, node| cluster.decide(|draft| draft.unregister(NodeId(node)));
    assert_eq!(leave(&mut cluster, 3), Err(Refusal::BrokerInUse(NodeId(3))));
    cluster.fence(3);
    cluster.fence(2);
    let full = Refusal::BrokerHasReplicas { node: NodeId(2), replicas: 1 };
    assert_eq!(leave(&mut cluster, 2), Err(full));
    leave(&mut cluster, 3).expect("left");
    assert!(cluster.image().broker(NodeId(3)).is_none());
}

#[test]
fn a_command_fits_the_image_that_it_was_made_from_alone() {
    let mut cluster = Cluster::of(3, "1");
    let image = Arc::clone(cluster.controller.image());
    let late = {
        let mut draft = Draft::new(&image, &Levels);
        draft.fence(NodeId(0)).expect("fenced");
        draft.into_bytes()
    };
    cluster.fence(1);
    let before = cluster.image().version();
    let outcome = Outcome::decode(&cluster.controller.apply(cluster.index + 1, &late).expect("readable"));
    assert_eq!(outcome, Some(Outcome::Stale { version: before }));
    cluster.controller.apply(cluster.index + 2, b"nonsense").expect_err("its member stops");
    assert_eq!(cluster.image().version(), before);
    assert_eq!(cluster.leader(), Some(0));
}

#[test]
fn decisions_of_one_draft_move_versions_and_epochs_once() {
    let mut cluster = Cluster::of(3, "1");
    let before = cluster.partition().clone();
    cluster.decide(|draft| {
        draft.fence(NodeId(0)).expect("fenced");
        draft.fence(NodeId(1)).expect("fenced");
    });
    let after = cluster.partition();
    assert_eq!(after.version, before.version + 1);
    assert_eq!(after.leader_epoch.0, before.leader_epoch.0 + 1);
    assert_eq!((cluster.leader(), cluster.isr()), (Some(2), vec![2]));
}

#[test]
fn placement_spreads_over_brokers_racks_and_log_dirs() {
    let mut cluster = Cluster::default();
    for node in 0..6 {
        let mut told = registration(node);
        told.rack = Some(format!("rack-{}", node % 3));
        cluster.decide(|draft| {
            draft.register(Newcomer { registration: told, clean_of: None }, false).expect("registered");
        });
        cluster.unfence(node);
    }
    let partitions = NewPartitions::Placed { count: 600, replicas: 3 };
    let new = NewTopic { id: TOPIC, name: "t".to_owned(), configs: Configs::new(), partitions };
    cluster.decide(|draft| draft.create_topic(new).expect("made"));
    let topic = cluster.image().topic(TOPIC).expect("made");
    let (mut leaders, mut dirs) = (BTreeMap::<NodeId, usize>::new(), BTreeMap::<_, usize>::new());
    for partition in topic.partitions() {
        *leaders.entry(partition.leader().expect("led")).or_default() += 1;
        let racks: BTreeSet<_> = partition.replicas.iter().map(|replica| replica.node.0 % 3).collect();
        assert_eq!(racks.len(), 3, "{partition:?}");
        for replica in &*partition.replicas {
            *dirs.entry((replica.node, replica.dir)).or_default() += 1;
        }
    }
    assert!(leaders.values().all(|count| *count == 100), "{leaders:?}");
    assert_eq!(dirs.len(), 12);
    assert!(dirs.values().all(|count| (145..=155).contains(count)), "{dirs:?}");
    let too_many = NewPartitions::Placed { count: 1, replicas: 7 };
    let new = NewTopic {
        id: TopicId([8; 16]),
        name: "u".to_owned(),
        configs: Configs::new(),
        partitions: too_many,
    };
    let refused = cluster.decide(|draft| draft.create_topic(new));
    assert_eq!(refused, Err(Refusal::NotEnoughBrokers { asked: 7, there: 6 }));
}

#[test]
fn followers_of_a_broker_are_few() {
    let mut cluster = Cluster::default();
    for node in 0..40 {
        cluster.start(node);
    }
    let partitions = NewPartitions::Placed { count: 4000, replicas: 3 };
    let new = NewTopic { id: TOPIC, name: "t".to_owned(), configs: Configs::new(), partitions };
    cluster.decide(|draft| draft.create_topic(new).expect("made"));
    let mut peers: BTreeMap<NodeId, BTreeSet<NodeId>> = BTreeMap::new();
    for partition in cluster.image().topic(TOPIC).expect("made").partitions() {
        let leader = partition.leader().expect("led");
        let followers = partition.replicas.iter().map(|replica| replica.node).filter(|node| *node != leader);
        peers.entry(leader).or_default().extend(followers);
    }
    assert_eq!(peers.len(), 40);
    assert!(peers.values().all(|peers| peers.len() <= 8), "{peers:?}");
}

#[test]
fn a_change_of_every_partition_fits_into_one_command() {
    let mut cluster = Cluster::default();
    for node in 0..3 {
        cluster.start(node);
    }
    let lists = |count: i32| (0..count).map(|index| (0..3).map(|step| NodeId((index + step) % 3)).collect());
    let per_topic = 100;
    for number in 0..40_u64 {
        let id = TopicId([u8::try_from(number).expect("few"); 16]);
        let partitions = NewPartitions::Assigned(lists(per_topic).collect());
        let new = NewTopic { id, name: format!("t{number}"), configs: Configs::new(), partitions };
        cluster.decide(|draft| draft.create_topic(new).expect("made"));
    }
    let image = Arc::clone(cluster.controller.image());
    let mut draft = Draft::new(&image, &Levels);
    draft.fence(NodeId(0)).expect("fenced");
    let partitions = 40 * usize::try_from(per_topic).expect("few");
    let each = draft.into_bytes().len().div_ceil(partitions);
    // A topic has an id and a count of its own, of 21 bytes.
    let largest = (each + 21) * usize::try_from(PARTITIONS_MAX).expect("few");
    assert!(largest <= crate::COMMAND_BYTES_MAX, "{each} bytes a partition");
}

#[test]
fn a_partition_is_small() {
    assert!(size_of::<Partition>() <= 40, "{} bytes", size_of::<Partition>());
}

/// The promises that hold between any two images that follow each other.
fn check(before: &Image, after: &Image) {
    let mut loads = Loads::default();
    let mut partitions = 0;
    for topic in after.topics() {
        assert_eq!(after.topic_named(&topic.name).map(|found| found.id), Some(topic.id));
        for (index, partition) in (0..).zip(topic.partitions()) {
            partition.check().expect("a partition");
            loads.add(partition, 1);
            partitions += 1;
            for node in partition.nodes(partition.roles.isr) {
                let broker = after.broker(node).expect("registered");
                assert!(!broker.is_fenced && !broker.is_stopping, "{partition:?}");
            }
            let id = PartitionId { topic: topic.id, index };
            let Some(was) = before.partition(id) else { continue };
            let epochs = partition.leader_epoch.0 - was.leader_epoch.0;
            let versions = partition.version - was.version;
            assert!((0..=1).contains(&epochs) && (0..=1).contains(&versions), "{was:?} {partition:?}");
            assert!(versions == 1 || was == partition, "{was:?} {partition:?}");
            let has_other_leader = was.leader() != partition.leader();
            assert!(!has_other_leader || epochs == 1, "{was:?} {partition:?}");
        }
    }
    assert_eq!(after.partition_count(), partitions);
    for (node, _) in after.brokers() {
        let (counted, kept) = (loads.of(node), after.loads().of(node));
        assert_eq!((counted.leaders, counted.replicas), (kept.leaders, kept.replicas));
    }
}

fn records(image: &Image) -> Vec<Record> {
    image.to_records().collect()
}

/// One random decision; what is refused changes nothing, or a version.
fn decide_at_random(draft: &mut Draft<'_>, below: &dyn Fn(usize) -> usize, step: u64) {
    let small = |bound: usize| i32::try_from(below(bound)).expect("small");
    let node = NodeId(small(5));
    let incarnation = draft.image().broker(node).map_or(0, |broker| broker.incarnation);
    let topics: Vec<_> = draft.image().topics().map(|topic| (topic.id, topic.partition_count())).collect();
    let chosen = (!topics.is_empty()).then(|| topics[below(topics.len())]);
    let id = chosen.map(|(topic, count)| PartitionId { topic, index: small(count) });
    let nodes: Vec<_> =
        (0..=below(3)).map(|step| NodeId((node.0 + small(2) + small(step + 1)) % 5)).collect();
    let _ = match (below(14), id) {
        (0, _) => {
            let boot = [u8::try_from(below(2)).expect("small"); 16];
            let life = u128::from(step).to_le_bytes();
            let mut registration = Registration { life, boot, ..registration(node.0) };
            if below(4) == 0 {
                registration.dirs[below(2)] = dir(&format!("{}-{step}", node.0));
            }
            let clean_of = (below(2) == 0).then_some(incarnation);
            draft.register(Newcomer { registration, clean_of }, below(2) == 0)
        }
        (1 | 2, _) => draft.unfence(node, incarnation),
        (3, _) => draft.fence(node),
        (4, _) => draft.begin_to_stop(node, incarnation),
        (5, _) => {
            let mut dirs = draft.image().broker(node).map_or(vec![], |node| node.registration.dirs.clone());
            for dir in &mut dirs {
                dir.is_available = below(3) > 0;
            }
            draft.set_dirs(node, incarnation, dirs)
        }
        (6, _) => {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&step.to_le_bytes());
            bytes[15] = bytes[0];
            let partitions = NewPartitions::Placed { count: 1 + below(3), replicas: 1 + below(3) };
            let configs = Configs::from([("level".to_owned(), (1 + below(4)).to_string())]);
            draft.create_topic(NewTopic { id: TopicId(bytes), name: format!("t{step}"), configs, partitions })
        }
        (7, Some(id)) if topics.len() > 4 => draft.delete_topic(id.topic),
        (8, Some(id)) => draft.reassign(id, &nodes),
        (9, Some(id)) => {
            let epoch = draft.image().partition(id).map(|partition| partition.leader_epoch);
            draft.finish_reassignment(id, epoch).or_else(|_| draft.cancel_reassignment(id))
        }
        (10, Some(id)) => {
            let epoch = draft.image().partition(id).map(|partition| partition.leader_epoch);
            draft.elect_preferred(id, epoch).or_else(|_| draft.elect_unclean(id, None))
        }
        (11, Some(id)) => {
            let level = Some((1 + below(4)).to_string());
            draft.change_topic_configs(id.topic, &ConfigChanges::from([("level".to_owned(), level)]))
        }
        (_, Some(id)) => {
            let partition = draft.image().partition(id).expect("there").clone();
            let Some(leader) = partition.leader() else { return };
            let known = |node: NodeId| draft.image().broker(node).map_or(0, |broker| broker.incarnation);
            let isr = partition.replicas.iter().filter(|replica| replica.node == leader || below(3) > 0);
            let isr = isr.map(|replica| (replica.node, known(replica.node))).collect();
            let (leader_epoch, version) = (partition.leader_epoch, partition.version);
            let asked = IsrChange { id, leader_epoch, version, isr };
            draft.change_isr(leader, known(leader), &asked)
        }
        _ => Ok(()),
    };
}

/// Runs random decisions, and holds every image against what must hold, against a copy that takes the commands, and against
/// what its snapshot gives.
fn run(seed: u64, steps: u64) -> usize {
    let random = SimRandom::new(seed);
    let below = |bound: usize| usize::try_from(random.next_u64() % bound as u64).expect("small");
    let (mut cluster, mut copy) = (Cluster::default(), Controller::default());
    for step in 0..steps {
        let before = Arc::clone(cluster.controller.image());
        let mut draft = Draft::new(&before, &Levels);
        for part in 0..=below(3) as u64 {
            decide_at_random(&mut draft, &below, seed * 1_000_000 + step * 10 + part);
        }
        let drafted = records(draft.image());
        let command = draft.into_bytes();
        cluster.index += 1;
        let replies = [&mut cluster.controller, &mut copy]
            .map(|controller| controller.apply(cluster.index, &command).expect("readable"));
        assert_eq!(Outcome::decode(&replies[0]), Some(Outcome::Taken), "seed {seed}, step {step}");
        assert_eq!(replies[0], replies[1]);
        let after = Arc::clone(cluster.controller.image());
        check(&before, &after);
        let without_indexes = |records: Vec<Record>| -> Vec<Record> {
            let plain = |record| match record {
                Record::BrokerRestored { registration, is_fenced, is_stopping, .. } => {
                    let (incarnation, changed_at) = (0, 0);
                    Record::BrokerRestored { registration, incarnation, is_fenced, is_stopping, changed_at }
                }
                Record::VersionsRestored { .. } => Record::VersionsRestored { version: 0, features_epoch: 0 },
                other => other,
            };
            records.into_iter().map(plain).collect()
        };
        assert_eq!(without_indexes(records(&after)), without_indexes(drafted), "seed {seed}, step {step}");
        if step % 7 == 0 {
            let snapshot = copy.snapshot();
            copy = Controller::default();
            copy.restore(&snapshot).expect("restored");
            assert_eq!(copy.snapshot(), cluster.controller.snapshot(), "seed {seed}, step {step}");
        }
    }
    cluster.image().topics().map(|topic| topic.partition_count()).sum()
}

#[test]
fn random_decisions_keep_every_promise() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first: u64 = number("RIVERRUN_CONTROLLER_SEED").unwrap_or(1);
    let count: u64 = number("RIVERRUN_CONTROLLER_SEEDS").unwrap_or(60);
    let partitions: usize = (first..first + count).map(|seed| run(seed, 150)).sum();
    assert!(partitions > 0);
}
