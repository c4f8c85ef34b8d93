//! Figures of the metadata quorum on this machine: three members in one process, each with its own directory, port and synced log.
//!
//! `cargo run --profile dist -p riverrun-cluster --example figures -- [--partitions N] [--dir DIR]`

#![allow(clippy::disallowed_methods, reason = "it measures the time that passes")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use riverrun_cluster::controller::{
    Configs, Controller, Decided, Decision, Draft, Image, LogDir, NewPartitions, NewTopic, Newcomer, Policy,
    Registration,
};
use riverrun_cluster::{
    Life, MESSAGE_BYTES_MAX, Machine as _, Member, MemberOptions, Peer, QuorumOptions, Secret, VoterId,
};
use riverrun_env::{Env, NodeEnv, RealNetwork, RealTasks};
use riverrun_types::{DurabilityLevel, NodeId, TopicId};

const MEMBERS: u32 = 3;
const TIME: Duration = Duration::from_secs(30);

struct Level1;

impl Policy for Level1 {
    fn level(&self, _configs: &Configs) -> DurabilityLevel {
        DurabilityLevel::SyncSync
    }

    fn min_insync(&self, _configs: &Configs, replicas: usize) -> usize {
        replicas / 2 + 1
    }
}

fn registration(node: u32) -> Registration {
    let id = u8::try_from(node).expect("few");
    Registration {
        node: NodeId(i32::from(id)),
        directory: [id; 16],
        life: [id; 16],
        boot: [1; 16],
        rack: None,
        software: String::new(),
        endpoints: Vec::new(),
        dirs: vec![LogDir { id: format!("dir-{node}"), is_available: true, is_cordoned: false }],
        features: Vec::new(),
    }
}

fn topic(number: u64, partitions: NewPartitions) -> NewTopic {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_be_bytes());
    id[8..].copy_from_slice(&number.to_be_bytes());
    NewTopic { id: TopicId(id), name: format!("topic-{number}"), configs: Configs::new(), partitions }
}

fn placed(count: usize) -> NewPartitions {
    NewPartitions::Placed { count, replicas: 3 }
}

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    pages * 4096
}

/// The snapshot of an image with so many partitions in topics of `each`.
fn snapshot(partitions: usize, each: usize) -> Bytes {
    let mut controller = Controller::default();
    let mut index = 0;
    let mut decide = |controller: &mut Controller, decide: &dyn Fn(&mut Draft<'_>)| {
        let image = Arc::clone(controller.image());
        let mut draft = Draft::new(&image, &Level1);
        decide(&mut draft);
        index += 1;
        controller.apply(index, &draft.into_bytes()).expect("readable");
    };
    for node in 0..MEMBERS {
        let newcomer = Newcomer { registration: registration(node), clean_of: None };
        decide(&mut controller, &|draft| draft.register(newcomer.clone(), false).expect("registered"));
        let (id, incarnation) = (newcomer.registration.node, controller.image().version());
        decide(&mut controller, &|draft| draft.unfence(id, incarnation).expect("unfenced"));
    }
    for number in 0..(partitions / each) as u64 {
        decide(&mut controller, &|draft| draft.create_topic(topic(number, placed(each))).expect("made"));
    }
    controller.snapshot()
}

/// Prints the memory of the image of a snapshot, in a process that has done nothing else.
fn restore(file: &str) {
    let snapshot = std::fs::read(file).expect("read");
    let before = resident();
    let mut controller = Controller::default();
    controller.restore(&snapshot).expect("restored");
    let partitions = controller.image().partition_count();
    println!("{}", resident().saturating_sub(before) / partitions);
}

fn print_memory(dir: &Path, partitions: usize, each: usize) {
    let file = dir.join("snapshot");
    let snapshot = snapshot(partitions, each);
    std::fs::write(&file, &snapshot).expect("written");
    let this = std::env::current_exe().expect("a program");
    let restored = std::process::Command::new(this).arg("--restore").arg(&file).output().expect("started");
    println!(
        "{partitions} partitions, {each} in a topic: {} bytes of memory each, a snapshot of {} bytes",
        String::from_utf8_lossy(&restored.stdout).trim(),
        snapshot.len()
    );
}

fn options(dir: &Path, member: u32) -> MemberOptions {
    MemberOptions {
        quorum: QuorumOptions {
            cluster: [7; 16],
            secret: Secret::new([9; 32]),
            voter: VoterId { node: member, life: 1 },
            listen: address(member),
            directory: dir.join(format!("member-{member}")),
            heartbeat: Duration::from_millis(100),
            snapshot_every: 10_000,
        },
        policy: Arc::new(Level1),
        session: Duration::from_secs(9),
        heartbeat: Duration::from_secs(1),
    }
}

fn address(member: u32) -> String {
    format!("127.0.0.1:{}", 19_700 + member)
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < TIME, "{what}: not within {TIME:?}");
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
}

async fn start(env: &NodeEnv, dir: &Path) -> (Vec<Member>, Vec<Life>) {
    let begun = Instant::now();
    let mut members = Vec::new();
    for member in 0..MEMBERS {
        let options = options(dir, member);
        std::fs::create_dir_all(&options.quorum.directory).expect("made");
        members.push(Member::start(env, options).await.expect("started"));
    }
    let peers: BTreeMap<_, _> =
        (0..MEMBERS).map(|node| (VoterId { node, life: 1 }, Peer { address: address(node) })).collect();
    members[0].quorum().found(peers).await.expect("founded");
    let lives: Vec<_> = (0..MEMBERS)
        .zip(&members)
        .map(|(node, member)| {
            member.begin_life(Newcomer { registration: registration(node), clean_of: None })
        })
        .collect();
    until("all brokers", || lives.iter().all(Life::may_act)).await;
    println!("three members from nothing to three brokers that may lead: {:?}", begun.elapsed());
    (members, lives)
}

/// Times of a write and its sync, one after the other, in microseconds, ascending.
fn syncs(dir: &Path) -> Vec<u128> {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::File::create(dir.join("syncs")).expect("made");
    let once = |at: u64| {
        let begun = Instant::now();
        file.write_all_at(&[1; 512], at * 512).expect("written");
        file.sync_data().expect("synced");
        begun.elapsed().as_micros()
    };
    let mut times: Vec<_> = (0..300).map(once).collect();
    times.sort_unstable();
    times
}

async fn decide(member: &Member, decisions: Vec<Decision>) {
    let decided = member.decide(decisions, TIME).await.expect("decided");
    let refused = decided.answers.iter().find(|answer| matches!(answer, Decided::Refused(_)));
    assert_eq!(refused, None);
}

async fn topics(members: &[Member], dir: &Path) {
    let leader = members.iter().position(|member| member.quorum().leads().1).expect("one leads");
    for (name, member) in [("that leads", leader), ("that follows", (leader + 1) % members.len())] {
        let mut times = Vec::new();
        for number in 0..500 {
            let begun = Instant::now();
            let new = topic(1_000_000 * (member as u64 + 1) + number, placed(1));
            decide(&members[member], vec![Decision::CreateTopic(new)]).await;
            times.push(begun.elapsed().as_micros());
        }
        times.sort_unstable();
        println!(
            "one topic at a time at the member {name}: p50 {} us, p99 {} us",
            times[times.len() / 2],
            times[times.len() * 99 / 100]
        );
    }
    let alone = syncs(dir);
    println!("a write of 512 bytes and its sync, alone: p50 {} us, p99 {} us", alone[150], alone[297]);
    for each in [1, 1_000] {
        let begun = Instant::now();
        for first in (0..10_000).step_by(each) {
            let new = (first..first + each)
                .map(|number| topic(10_000_000 * each as u64 + number as u64, placed(1)));
            decide(&members[leader], new.map(Decision::CreateTopic).collect()).await;
        }
        println!("10,000 topics, {each} in a request: {:?}", begun.elapsed());
    }
}

fn led_by(image: &Image, id: TopicId, node: i32) -> usize {
    let topic = image.topic(id).expect("made");
    topic.partitions().filter(|partition| partition.leader() == Some(NodeId(node))).count()
}

/// Moves the leaders of all partitions of a topic at once, there and back.
async fn leaders(members: &[Member], lives: &[Life], partitions: usize) {
    let nodes = [0, 1, 2].map(NodeId).to_vec();
    let new = topic(77, NewPartitions::Assigned(vec![nodes; partitions]));
    let id = new.id;
    let begun = Instant::now();
    decide(&members[1], vec![Decision::CreateTopic(new)]).await;
    println!("a topic of {partitions} partitions with three replicas: {:?}", begun.elapsed());
    until("all know it", || members.iter().all(|member| member.image().topic(id).is_some())).await;
    let incarnation = lives[0].incarnation().expect("registered");
    let node = NodeId(0);
    let mut dirs = registration(0).dirs;
    dirs[0].is_available = false;
    let begun = Instant::now();
    decide(&members[1], vec![Decision::SetDirs { node, incarnation, dirs: dirs.clone() }]).await;
    let committed = begun.elapsed();
    until("all know it", || members.iter().all(|member| led_by(&member.image(), id, 1) == partitions)).await;
    println!(
        "the leaders of {partitions} partitions changed: agreed upon in {committed:?}, known to all in {:?}",
        begun.elapsed()
    );
    dirs[0].is_available = true;
    decide(&members[1], vec![Decision::SetDirs { node, incarnation, dirs }]).await;
}

fn argument(name: &str) -> Option<String> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1)
}

fn main() {
    if let Some(file) = argument("--restore") {
        return restore(&file);
    }
    let partitions = argument("--partitions").map_or(10_000, |text| text.parse().expect("a number"));
    let dir = argument("--dir").map_or_else(std::env::temp_dir, PathBuf::from).join("riverrun-figures");
    // An earlier run may have left it.
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("made");
    for each in [partitions, 1] {
        print_memory(&dir, partitions, each);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let tasks = Arc::new(RealTasks(runtime.handle().clone()));
    let network = Arc::new(RealNetwork { message_bytes_max: MESSAGE_BYTES_MAX });
    let env = NodeEnv { env: Env::real(), tasks, network };
    runtime.block_on(async {
        let (members, lives) = start(&env, &dir).await;
        leaders(&members, &lives, partitions).await;
        topics(&members, &dir).await;
        for member in members {
            member.stop().await;
        }
    });
    let _ = std::fs::remove_dir_all(&dir);
}
