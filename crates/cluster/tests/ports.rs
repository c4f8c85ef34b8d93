//! Members on ports of this machine, among strangers who speak to the same ports.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use riverrun_cluster::{
    MESSAGE_BYTES_MAX, Machine, Peer, ProposeError, Quorum, QuorumOptions, Secret, Unreadable, VoterId,
};
use riverrun_env::{Env, NodeEnv, RealNetwork, RealTasks};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::runtime::Handle;

/// Longer than anything takes that is to happen, even on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);
const TOKEN: [u8; 32] = [9; 32];
const ANOTHER_TOKEN: [u8; 32] = [10; 32];

/// A machine that adds commands up.
struct Sum(u64);

impl Machine for Sum {
    fn apply(&mut self, _index: u64, command: &[u8]) -> Result<Bytes, Unreadable> {
        self.0 += command.len() as u64;
        Ok(Bytes::copy_from_slice(&self.0.to_le_bytes()))
    }

    fn snapshot(&self) -> Bytes {
        Bytes::copy_from_slice(&self.0.to_le_bytes())
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), String> {
        self.0 = u64::from_le_bytes(snapshot.try_into().map_err(|_| "not eight bytes")?);
        Ok(())
    }
}

fn voter(member: usize) -> VoterId {
    VoterId { node: u32::try_from(member).expect("few"), life: 1 }
}

/// Ports of this machine that nobody uses.
fn free_addresses(count: usize) -> Vec<String> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    listeners.iter().map(|listener| listener.local_addr().expect("it has one").to_string()).collect()
}

async fn start(
    node: &NodeEnv,
    member: usize,
    address: &str,
    token: [u8; 32],
    directory: &Path,
) -> Quorum<Sum> {
    let options = QuorumOptions {
        cluster: [7; 16],
        secret: Secret::new(token),
        voter: voter(member),
        listen: address.to_owned(),
        directory: directory.join(member.to_string()),
        heartbeat: Duration::from_millis(100),
        snapshot_every: 1_000,
    };
    Quorum::start(node, options, Sum(0)).await.expect("it starts")
}

/// Proposes a command until it is accepted; returns the sum after it.
async fn propose(members: &[Quorum<Sum>], bytes: usize) -> u64 {
    loop {
        for member in members {
            match member.propose(vec![1; bytes].into()).await {
                Ok(accepted) => {
                    return u64::from_le_bytes(accepted.reply[..].try_into().expect("eight bytes"));
                }
                Err(ProposeError::NotLeader(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Speaks to a port as no member does, and stays.
async fn annoy(address: String) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    // A message of 4 GiB is announced.
    stream.write_all(&[0xff; 100]).await.expect("sent");
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_on_ports_agree_among_strangers() {
    let directory = tempfile::tempdir().expect("a directory");
    let addresses = free_addresses(3);
    let tasks = Arc::new(RealTasks(Handle::current()));
    let network = Arc::new(RealNetwork { message_bytes_max: MESSAGE_BYTES_MAX });
    let node = NodeEnv { env: Env::real(), tasks, network };
    let mut members = Vec::new();
    for (member, token) in [TOKEN, TOKEN, ANOTHER_TOKEN].into_iter().enumerate() {
        members.push(start(&node, member, &addresses[member], token, directory.path()).await);
    }
    let third = members.pop().expect("there are three");
    let peers = addresses.iter().enumerate();
    let peers: BTreeMap<_, _> =
        peers.map(|(member, address)| (voter(member), Peer { address: address.clone() })).collect();
    let agreeing = async {
        members[0].found(peers).await.expect("founded");
        assert_eq!(propose(&members, 10).await, 10);
        let mut strangers = Vec::new();
        for at in 0..300 {
            strangers.push(annoy(addresses[at % 2].clone()).await);
        }
        for at in 1..=10 {
            assert_eq!(propose(&members, 1).await, 10 + at);
        }
        let large = 16 << 20;
        for at in 1..=5 {
            assert_eq!(propose(&members, large).await, 20 + at * large as u64);
        }
    };
    tokio::time::timeout(PATIENCE, agreeing).await.expect("they agree in time");
    assert_eq!((third.progress().applied, third.leads().0), (None, 0), "it is never heard");
    for member in members.iter().chain([&third]) {
        member.stop().await;
    }
}
