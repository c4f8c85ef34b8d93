//! Members among strangers: who is heard, and what strangers can take from members. All of it in a simulated world.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use openraft::network::RPCOption;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest};
use openraft::{EntryPayload, RaftNetworkFactory as _, RaftNetworkV2 as _};
use parking_lot::Mutex;
use riverrun_env::sim::{SimNode, World};
use riverrun_env::{BoxFuture, Link, LinkSender, NodeEnv};

use super::arrival::SNAPSHOT_BYTES_MAX;
use super::hello::{Hello, SHORT_BYTES_MAX, Welcome, encode_proof};
use super::*;
use crate::planted::{Planted, plant};
use crate::runtime::InNode;
use crate::types::{Command, Entry, LogId, Peer, SnapshotMeta, Vote};
use crate::wire::{Answer, Beginning, MESSAGE_BYTES_MAX, Request};
use crate::{Machine, ProposeError, Quorum, QuorumOptions, Unreadable};

const NAMES: [&str; 3] = ["a", "b", "c"];
const CLUSTER: [u8; 16] = [7; 16];
const TOKEN: [u8; 32] = [9; 32];
const ANOTHER_TOKEN: [u8; 32] = [10; 32];
const SECOND: Duration = Duration::from_secs(1);
/// Longer than anything takes that is to happen.
const PATIENCE: Duration = Duration::from_mins(10);

/// A machine that counts commands.
#[derive(Default)]
struct Count(u64);

impl Machine for Count {
    fn apply(&mut self, _index: u64, _command: &[u8]) -> Result<Bytes, Unreadable> {
        self.0 += 1;
        Ok(Bytes::new())
    }

    fn snapshot(&self) -> Bytes {
        Bytes::copy_from_slice(&self.0.to_le_bytes())
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), String> {
        self.0 = u64::from_le_bytes(snapshot.try_into().map_err(|_| "not eight bytes")?);
        Ok(())
    }
}

/// The lines that this crate writes to the log of a test's thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn those_with(&self, parts: &[&str]) -> usize {
        self.0.lock().iter().filter(|line| parts.iter().all(|part| line.contains(part))).count()
    }
}

struct Message<'a>(&'a mut String);

impl tracing::field::Visit for Message<'_> {
    fn record_debug(&mut self, _field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        write!(self.0, "{value:?} ").expect("a string takes everything");
    }
}

impl tracing::Subscriber for Lines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("riverrun") && *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = String::new();
        event.record(&mut Message(&mut line));
        self.0.lock().push(line);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

fn voter(member: usize) -> VoterId {
    VoterId { node: u32::try_from(member).expect("few"), life: 1 }
}

fn identity(member: usize, token: [u8; 32]) -> Identity {
    Identity { cluster: CLUSTER, voter: voter(member), secret: Secret::new(token) }
}

/// Runs something on a node until it is over.
fn run<T: Send + 'static>(
    world: &World,
    node: &SimNode,
    future: impl Future<Output = T> + Send + 'static,
) -> T {
    let slot = Arc::new(Mutex::new(None));
    let result = Arc::clone(&slot);
    let task = async move {
        let value = future.await;
        *result.lock() = Some(value);
    };
    let env = node.env();
    env.tasks.spawn("test", Box::pin(InNode::new(&env, task)));
    assert!(world.run_until(PATIENCE, || slot.lock().is_some()), "it does not get on");
    let value = slot.lock().take();
    value.expect("it is there")
}

/// Members, and a machine of somebody else.
struct Rig {
    world: World,
    nodes: Vec<SimNode>,
    members: Vec<Option<Quorum<Count>>>,
    stranger: SimNode,
}

impl Rig {
    fn new(seed: u64, tokens: &[[u8; 32]]) -> Self {
        let world = World::new(seed);
        let nodes: Vec<_> = NAMES[..tokens.len()].iter().map(|name| world.node(name)).collect();
        let stranger = world.node("x");
        let members = tokens.iter().map(|_| None).collect();
        let mut rig = Self { world, nodes, members, stranger };
        for (member, token) in tokens.iter().enumerate() {
            rig.start(member, *token);
        }
        let peers =
            (0..tokens.len()).map(|member| (voter(member), Peer { address: NAMES[member].to_owned() }));
        let (peers, first) = (peers.collect(), rig.member(0).clone());
        run(&rig.world, &rig.nodes[0], async move { first.found(peers).await }).expect("founded");
        rig
    }

    fn start(&mut self, member: usize, token: [u8; 32]) {
        let options = QuorumOptions {
            cluster: CLUSTER,
            secret: Secret::new(token),
            voter: voter(member),
            listen: NAMES[member].to_owned(),
            directory: PathBuf::from("/quorum"),
            heartbeat: Duration::from_millis(50),
            snapshot_every: 1_000,
        };
        let node = &self.nodes[member];
        let env = node.env();
        let started =
            run(&self.world, node, async move { Quorum::start(&env, options, Count::default()).await });
        self.members[member] = Some(started.expect("it starts"));
    }

    fn kill(&mut self, member: usize) {
        self.members[member] = None;
        self.nodes[member].kill();
    }

    fn member(&self, member: usize) -> &Quorum<Count> {
        self.members[member].as_ref().expect("it runs")
    }

    fn count(&self, member: usize) -> u64 {
        self.member(member).look(|count| count.0)
    }

    /// Proposes commands to whoever leads until that many are accepted.
    fn propose(&self, commands: usize) {
        for _ in 0..commands {
            let members: Vec<_> = self.members.iter().flatten().cloned().collect();
            let tasks = self.nodes[0].env().tasks;
            run(&self.world, &self.nodes[0], async move {
                'tries: loop {
                    for member in &members {
                        match member.propose(Bytes::from_static(b"command")).await {
                            Ok(_) => break 'tries,
                            Err(ProposeError::NotLeader(_)) => tasks.sleep(Duration::from_millis(50)).await,
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
        }
    }

    /// Runs something on the stranger's machine.
    fn run<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        task: impl FnOnce(NodeEnv) -> F,
    ) -> T {
        run(&self.world, &self.stranger, task(self.stranger.env()))
    }
}

fn pre_vote() -> VoteRequest<crate::types::Types> {
    VoteRequest::new(Vote::new(1, voter(1)), None)
}

/// Whether the other side hears what comes over a link.
async fn is_heard(link: &mut Link) -> bool {
    matches!(ask(link, &Request::PreVote(pre_vote())).await, Some(Answer::Vote(_)))
}

async fn ask(link: &mut Link, request: &Request) -> Option<Answer> {
    link.sender.send(request.encode()).await.ok()?;
    let answer = link.receiver.receive().await.ok()??;
    Some(Answer::decode(&answer).expect("it is an answer"))
}

/// A link of another member of the cluster to the first one, which has proved itself.
async fn link_of(env: &NodeEnv, member: usize) -> Link {
    let mut link = env.network.connect("a").await.expect("it listens");
    let begun = identity(member, TOKEN).begin(&mut link, Some(voter(0)), &*env.env.random).await;
    assert_eq!(begun.expect("it has the token"), voter(0));
    link
}

/// Waits until the other side has closed a link; returns the time.
async fn time_to_close(env: &NodeEnv, link: &mut Link) -> Duration {
    let begun = env.env.clock.monotonic();
    while let Ok(Some(_)) = link.receiver.receive().await {}
    env.env.clock.monotonic().saturating_sub(begun)
}

#[test]
fn a_member_with_another_token_is_never_heard() {
    let heard = |planted| {
        let _planting = plant(planted);
        let lines = Lines::default();
        let _listening = tracing::subscriber::set_default(lines.clone());
        let rig = Rig::new(1, &[TOKEN, TOKEN, ANOTHER_TOKEN]);
        rig.propose(10);
        rig.world.run_for(10 * SECOND);
        assert_eq!([rig.count(0), rig.count(1)], [10; 2]);
        let third = rig.member(2);
        (third.progress().applied.is_some() || third.leads().0 > 0, lines)
    };
    let (is_heard, lines) = heard(Planted::None);
    assert!(!is_heard);
    let reason = "cluster token is not this one's: all nodes of a cluster need the same one";
    assert!(lines.those_with(&["a link from a was let go", reason]) > 0, "{lines:?}", lines = lines.0.lock());
    let told = lines.those_with(&["member 2.1 at c does not take messages", reason]);
    assert!((1..=2).contains(&told), "one line of each of the others: {told}");
    let (is_heard, _) = heard(Planted::ProofNotChecked);
    assert!(is_heard, "a planted bug is found");
}

#[test]
fn a_member_back_with_another_token_says_why_it_is_alone() {
    let lines = Lines::default();
    let _listening = tracing::subscriber::set_default(lines.clone());
    let mut rig = Rig::new(2, &[TOKEN; 3]);
    rig.propose(10);
    rig.kill(2);
    rig.propose(1);
    let term = rig.member(0).leads().0;
    rig.start(2, ANOTHER_TOKEN);
    rig.world.run_for(30 * SECOND);
    rig.propose(10);
    rig.world.run_for(SECOND);
    assert_eq!([rig.count(0), rig.count(1)], [21; 2]);
    assert!(rig.count(2) <= 10);
    assert_eq!(rig.member(0).leads().0, term, "it has disturbed nobody");
    let reason = "cluster token is not this one's";
    for address in ["0.1 at a", "1.1 at b"] {
        let told = lines.those_with(&[address, "does not take messages of this one", reason]);
        assert_eq!(told, 1, "half a minute of refusals is one line");
    }
    rig.kill(2);
    rig.start(2, TOKEN);
    rig.world.run_for(10 * SECOND);
    assert_eq!(rig.count(2), 21);
}

/// Keeps what is sent.
struct Recorded {
    sender: Box<dyn LinkSender>,
    sent: Arc<Mutex<Vec<Bytes>>>,
}

impl LinkSender for Recorded {
    fn send(&mut self, message: Bytes) -> BoxFuture<'_, std::io::Result<()>> {
        self.sent.lock().push(message.clone());
        self.sender.send(message)
    }
}

/// Whether a conversation is heard a second time.
fn is_replayed(planted: Planted) -> bool {
    let _planting = plant(planted);
    let rig = Rig::new(3, &[TOKEN]);
    rig.run(|env| async move {
        let mut link = env.network.connect("a").await.expect("it listens");
        let sent = Arc::new(Mutex::new(Vec::new()));
        link.sender = Box::new(Recorded { sender: link.sender, sent: Arc::clone(&sent) });
        identity(1, TOKEN)
            .begin(&mut link, Some(voter(0)), &*env.env.random)
            .await
            .expect("it has the token");
        assert!(is_heard(&mut link).await);
        let [hello, proof, _] = <[Bytes; 3]>::try_from(sent.lock().clone()).expect("three messages");
        let mut link = env.network.connect("a").await.expect("it listens");
        link.sender.send(hello).await.expect("sent");
        link.receiver.receive().await.expect("received").expect("a welcome");
        link.sender.send(proof).await.expect("sent");
        is_heard(&mut link).await
    })
}

#[test]
fn a_replayed_conversation_is_not_heard() {
    assert!(!is_replayed(Planted::None));
    assert!(is_replayed(Planted::NonceReused), "a planted bug is found");
}

fn hello(versions: (u16, u16)) -> Hello {
    Hello { versions, cluster: CLUSTER, from: voter(1), to: Some(voter(0)), nonce: [1; 32] }
}

/// The answer of a member to a hello.
async fn welcome(link: &mut Link, hello: &Hello) -> Result<Welcome, String> {
    link.sender.send(hello.encode()).await.expect("sent");
    let answer = link.receiver.receive().await.expect("received").expect("an answer");
    Welcome::decode(&answer).expect("it is a welcome")
}

/// Whether a member hears one that gives it its own proof back.
fn is_reflected(planted: Planted) -> bool {
    let _planting = plant(planted);
    let rig = Rig::new(4, &[TOKEN]);
    rig.run(|env| async move {
        let mut link = env.network.connect("a").await.expect("it listens");
        let welcome = welcome(&mut link, &hello(VERSIONS)).await.expect("it is welcome");
        link.sender.send(encode_proof(&welcome.proof)).await.expect("sent");
        is_heard(&mut link).await
    })
}

#[test]
fn a_reflected_proof_is_not_heard() {
    assert!(!is_reflected(Planted::None));
    assert!(is_reflected(Planted::RoleNotProved), "a planted bug is found");
}

/// Why a hello is refused.
fn refusal(hello: Hello) -> Option<String> {
    let rig = Rig::new(5, &[TOKEN]);
    rig.run(|env| async move {
        let mut link = env.network.connect("a").await.expect("it listens");
        welcome(&mut link, &hello).await.err()
    })
}

#[test]
fn strangers_are_told_why_they_are_refused() {
    let (min, max) = VERSIONS;
    assert_eq!(refusal(hello(VERSIONS)), None);
    assert_eq!(refusal(hello((min, u16::MAX))), None, "a newer one that knows ours");
    assert_eq!(refusal(Hello { to: None, ..hello(VERSIONS) }), None, "one that knows the address alone");
    for versions in [(0, min - 1), (max + 1, max + 1), (max, min - 1)] {
        let reason = refusal(hello(versions)).expect("there is no common version");
        assert!(
            reason.contains(
                "this node speaks version 1 of the protocol between nodes and the other one version"
            )
        );
    }
    let other_cluster = refusal(Hello { cluster: [8; 16], ..hello(VERSIONS) }).expect("it is refused");
    assert!(other_cluster.contains("a cluster with another id"), "{other_cluster}");
    let other_voter = refusal(Hello { to: Some(voter(7)), ..hello(VERSIONS) }).expect("it is refused");
    assert!(other_voter.contains("this node is voter 0.1, and 7.1 was asked for"), "{other_voter}");
}

/// Passes the beginning of a link on, but for a byte that it changes. Returns what the calling and the answering side make of it.
fn changed_on_the_way(change: Option<(usize, usize)>) -> [bool; 2] {
    let world = World::new(6);
    let [a, b, m] = ["a", "b", "m"].map(|name| world.node(name));
    let results = Arc::new(Mutex::new([None; 2]));
    let answered = Arc::clone(&results);
    let answering = b.env();
    let mut listener = answering.network.listen("b").expect("free");
    b.env().tasks.spawn(
        "answer",
        Box::pin(async move {
            let mut link = listener.accept().await.expect("a link");
            let from = identity(1, TOKEN).let_in(&mut link, &*answering.env.random).await;
            answered.lock()[1] = Some(from.is_ok_and(|from| from == voter(0)));
        }),
    );
    let between = m.env();
    let mut listener = between.network.listen("m").expect("free");
    m.env().tasks.spawn(
        "pass",
        Box::pin(async move {
            let mut near = listener.accept().await.expect("a link");
            let mut far = between.network.connect("b").await.expect("it listens");
            for turn in 0..3 {
                let (from, to) = if turn == 1 { (&mut far, &mut near) } else { (&mut near, &mut far) };
                let Ok(Some(message)) = from.receiver.receive().await else { return };
                let mut message = message.to_vec();
                if let Some((_, at)) = change.filter(|(changed, _)| *changed == turn) {
                    message[at] ^= 1;
                }
                let _ = to.sender.send(message.into()).await;
            }
        }),
    );
    let (calling, called) = (a.env(), Arc::clone(&results));
    a.env().tasks.spawn(
        "call",
        Box::pin(async move {
            let mut link = calling.network.connect("m").await.expect("it listens");
            let begun = identity(0, TOKEN).begin(&mut link, Some(voter(1)), &*calling.env.random).await;
            called.lock()[0] = Some(begun.is_ok());
        }),
    );
    assert!(
        world.run_until(PATIENCE, || results.lock().iter().all(Option::is_some)),
        "both sides come to an end"
    );
    let results = *results.lock();
    results.map(|result| result.expect("it is there"))
}

#[test]
fn a_beginning_that_is_changed_on_the_way_is_none() {
    assert_eq!(changed_on_the_way(None), [true; 2]);
    for (turn, bytes) in [(0, 76), (1, 75), (2, 33)] {
        for at in 0..bytes {
            let [calling, answering] = changed_on_the_way(Some((turn, at)));
            assert!(!answering, "byte {at} of message {turn}");
            assert!(!calling || turn == 2, "byte {at} of message {turn}");
        }
    }
}

#[test]
fn a_link_that_proves_nothing_is_closed_soon() {
    let lines = Lines::default();
    let _listening = tracing::subscriber::set_default(lines.clone());
    let rig = Rig::new(7, &[TOKEN]);
    let times = rig.run(|env| async move {
        let mut silent = env.network.connect("a").await.expect("it listens");
        let silent_time = time_to_close(&env, &mut silent).await;
        let mut polite = env.network.connect("a").await.expect("it listens");
        env.tasks.sleep(3 * SECOND).await;
        welcome(&mut polite, &hello(VERSIONS)).await.expect("it is welcome");
        let polite_time = time_to_close(&env, &mut polite).await;
        // The log has no more than a line of such things in ten seconds.
        env.tasks.sleep(10 * SECOND).await;
        let mut large = env.network.connect("a").await.expect("it listens");
        large.sender.send(Bytes::from(vec![0; SHORT_BYTES_MAX + 1])).await.expect("sent");
        [silent_time, polite_time, time_to_close(&env, &mut large).await].map(|time| time.as_millis())
    });
    assert!((4_990..=5_010).contains(&times[0]), "{times:?}");
    assert!((1_980..=2_010).contains(&times[1]), "{times:?}");
    assert!(times[2] < 10, "{times:?}");
    assert_eq!(lines.those_with(&["a link from x was let go", "has not proved itself in time"]), 1);
    assert_eq!(lines.those_with(&["a link from x was let go", "1025 bytes is too long"]), 1);
}

#[test]
fn an_idle_link_is_closed_and_made_anew_when_needed() {
    let rig = Rig::new(8, &[TOKEN]);
    rig.run(|env| async move {
        let mut connections = Connections::new(&env, identity(1, TOKEN));
        let mut connection = connections.new_client(voter(0), &Peer { address: "a".to_owned() }).await;
        let option = || RPCOption::new(Duration::from_millis(50));
        connection.pre_vote(pre_vote(), option()).await.expect("answered");
        let mut link = link_of(&env, 2).await;
        for _ in 0..3 {
            assert!(is_heard(&mut link).await);
            env.tasks.sleep(IDLE_TIME.saturating_sub(SECOND)).await;
        }
        assert!(is_heard(&mut link).await);
        let time = time_to_close(&env, &mut link).await;
        assert!((59_990..=60_010).contains(&time.as_millis()), "{time:?}");
        connection.pre_vote(pre_vote(), option()).await.expect("answered over a new link");
    });
}

#[test]
fn links_that_take_longer_to_make_than_a_request_are_made() {
    let rig = Rig::new(9, &[TOKEN]);
    rig.world.set_delay(Duration::from_millis(20)..=Duration::from_millis(20));
    rig.run(|env| async move {
        let mut connections = Connections::new(&env, identity(1, TOKEN));
        let mut connection = connections.new_client(voter(0), &Peer { address: "a".to_owned() }).await;
        // There and back takes 40 ms: once to connect, once to begin, once to be answered.
        for tries in 0.. {
            assert!(tries < 3, "each try begins anew");
            let option = RPCOption::new(Duration::from_millis(50));
            if connection.pre_vote(pre_vote(), option).await.is_ok() {
                break;
            }
        }
    });
}

#[test]
fn many_links_of_strangers_keep_no_member_out() {
    let mut rig = Rig::new(10, &[TOKEN; 3]);
    for at in 0..20 {
        let env = rig.world.node(&format!("stranger {at}")).env();
        let tasks = Arc::clone(&env.tasks);
        tasks.spawn(
            "crowd",
            Box::pin(async move {
                let mut links = VecDeque::new();
                for made in 0_usize.. {
                    if let Ok(link) = env.network.connect(NAMES[made % 3]).await {
                        links.push_back(link);
                    }
                    if links.len() > 60 {
                        links.pop_front();
                    }
                    env.tasks.sleep(Duration::from_millis(5)).await;
                }
            }),
        );
    }
    rig.world.run_for(SECOND);
    rig.propose(5);
    for member in 0..3 {
        rig.kill(member);
        rig.start(member, TOKEN);
    }
    rig.propose(5);
    rig.world.run_for(10 * SECOND);
    assert_eq!([0, 1, 2].map(|member| rig.count(member)), [10; 3]);
}

#[test]
fn a_voter_with_many_links_keeps_the_newest() {
    let rig = Rig::new(11, &[TOKEN]);
    let heard = rig.run(|env| async move {
        let mut links = Vec::new();
        for _ in 0..10 {
            links.push(link_of(&env, 1).await);
            env.tasks.sleep(Duration::from_millis(10)).await;
        }
        let mut heard = Vec::new();
        for link in &mut links {
            heard.push(is_heard(link).await);
        }
        heard
    });
    assert_eq!(heard, [[false; 2].as_slice(), &[true; 8]].concat());
}

fn piece(total: Option<u64>, bytes: &'static [u8]) -> Request {
    let vote = Vote::new_committed(1, voter(1));
    let beginning = total.map(|total| Beginning { vote, meta: SnapshotMeta::default(), total });
    Request::Piece { beginning, bytes: Bytes::from_static(bytes) }
}

#[test]
fn one_snapshot_arrives_at_a_time_over_all_links() {
    let rig = Rig::new(12, &[TOKEN]);
    rig.run(|env| async move {
        let (mut one, mut other) = (link_of(&env, 1).await, link_of(&env, 2).await);
        assert!(matches!(ask(&mut one, &piece(Some(100), b"begins")).await, Some(Answer::Piece)));
        assert!(matches!(ask(&mut other, &piece(Some(100), b"begins")).await, Some(Answer::Piece)));
        let Some(Answer::Refused(reason)) = ask(&mut one, &piece(None, b"goes on")).await else {
            panic!("two arrive");
        };
        assert_eq!(reason, "another snapshot has begun to arrive");
        assert!(matches!(ask(&mut other, &piece(None, b"goes on")).await, Some(Answer::Piece)));
        let too_large = piece(Some(SNAPSHOT_BYTES_MAX as u64 + 1), b"begins");
        assert!(matches!(ask(&mut other, &too_large).await, Some(Answer::Refused(_))));
    });
}

#[test]
fn a_member_that_stops_ends_its_links() {
    let rig = Rig::new(13, &[TOKEN]);
    let (member, stopping) = (rig.member(0).clone(), rig.nodes[0].env());
    let time = rig.run(|env| async move {
        let mut link = link_of(&env, 1).await;
        assert!(is_heard(&mut link).await);
        let stop = async move { member.stop().await };
        stopping.tasks.spawn("stop", Box::pin(stop));
        time_to_close(&env, &mut link).await
    });
    assert!(time < SECOND, "{time:?}");
}

#[test]
fn an_append_has_no_more_commands_than_fit_into_a_message() {
    let rig = Rig::new(14, &[TOKEN]);
    let (mega, last) = (vec![1; 1 << 20], AppendEntriesResponse::PartialSuccess);
    let entries = |sizes: &[usize]| -> Vec<Entry> {
        let entry = |(index, size): (usize, &usize)| Entry {
            log_id: LogId::new_term_index(1, index as u64),
            payload: EntryPayload::Normal(Command(mega[..*size].repeat(16).into())),
        };
        sizes.iter().enumerate().map(entry).collect()
    };
    // Sixteenths of the commands' sizes, and how many of them are sent.
    let cases = [
        (vec![], 0, AppendEntriesResponse::Success),
        (vec![1 << 20; 2], 2, AppendEntriesResponse::Success),
        (vec![1 << 20, 1, 1 << 20], 2, last(Some(LogId::new_term_index(1, 1)))),
        (vec![1 << 20; 5], 2, last(Some(LogId::new_term_index(1, 1)))),
    ];
    let cases = cases.map(|(sizes, sent, answer)| (entries(&sizes), sent, answer));
    rig.run(|env| async move {
        let mut listener = env.network.listen("x").expect("free");
        let (answering, received) = (env.clone(), Arc::new(Mutex::new(0)));
        let noted = Arc::clone(&received);
        let answer_all = async move {
            let mut link = listener.accept().await.expect("a link");
            identity(1, TOKEN).let_in(&mut link, &*answering.env.random).await.expect("it has the token");
            while let Ok(Some(message)) = link.receiver.receive_at_most(MESSAGE_BYTES_MAX).await {
                let Ok(Request::Append(append)) = Request::decode(&message) else {
                    panic!("it is no append")
                };
                *noted.lock() = append.entries.len();
                let answer = Answer::Append(AppendEntriesResponse::Success);
                link.sender.send(answer.encode()).await.expect("sent");
            }
        };
        env.tasks.spawn("answer", Box::pin(answer_all));
        let mut connections = Connections::new(&env, identity(2, TOKEN));
        let mut connection = connections.new_client(voter(1), &Peer { address: "x".to_owned() }).await;
        for (entries, sent, answer) in cases {
            let vote = Vote::new_committed(1, voter(2));
            let append = AppendEntriesRequest { vote, prev_log_id: None, entries, leader_commit: None };
            let answered = connection.append_entries(append, RPCOption::new(SECOND)).await.expect("answered");
            assert_eq!((*received.lock(), answered), (sent, answer));
        }
    });
}
