//! Owns the machines of a simulated quorum, their members and clients, and how they are looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::EntryPayload;
use openraft_rt::WatchReceiver as _;
use parking_lot::Mutex;
use riverrun_env::sim::{SimNode, SimRandom, World};
use riverrun_env::{FileSystem as _, Random as _};

use super::faults::Fault;
use super::invariants::{Broken, Found, Seen, Taken, View};
use super::operator::{Operator, operate};
use crate::log::StoreError;
use crate::machine::{Machine, Unreadable};
use crate::planted::{Planted, Planting, plant};
use crate::quorum::{Quorum, QuorumOptions, StartError};
use crate::secret::Secret;
use crate::types::{Peer, VoterId};

pub(super) const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
pub(super) const SECOND: Duration = Duration::from_secs(1);
/// The time between two looks. A state that lasts shorter may not be seen.
const LOOK: Duration = Duration::from_millis(50);
const DIRECTORY: &str = "/quorum";

/// A machine that keeps every command. Its answer is how many it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kept(pub(super) Vec<(u64, u64)>);

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

impl Machine for Kept {
    fn apply(&mut self, index: u64, command: &[u8]) -> Result<Bytes, Unreadable> {
        self.0.push((index, word(command)));
        Ok(Bytes::copy_from_slice(&(self.0.len() as u64).to_le_bytes()))
    }

    fn snapshot(&self) -> Bytes {
        self.0
            .iter()
            .flat_map(|(index, command)| [index.to_le_bytes(), command.to_le_bytes()].concat())
            .collect()
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), String> {
        self.0 = snapshot.chunks_exact(16).map(|pair| (word(&pair[..8]), word(&pair[8..]))).collect();
        Ok(())
    }
}

/// The process on a machine, as those who use it have it.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) quorum: Option<Quorum<Kept>>,
    pub(super) is_started: bool,
    /// The number of its starts.
    pub(super) starts: u64,
}

impl Slot {
    pub(super) fn end(&mut self) {
        self.quorum = None;
        self.is_started = false;
    }
}

/// A machine, and the life of its directory.
pub(super) struct Host {
    pub(super) node: Arc<SimNode>,
    pub(super) life: u32,
    pub(super) slot: Arc<Mutex<Slot>>,
    /// A byte of its files was changed, so that it may refuse to start.
    pub(super) is_flipped: bool,
    /// Its disk may fail, so that it may stop.
    pub(super) may_fail: bool,
}

/// How many machines there are, and how many of them found the quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) founders: usize,
    pub(super) hosts: usize,
}

impl Shape {
    pub(super) const ONE: Self = Self { founders: 1, hosts: 3 };
    pub(super) const THREE: Self = Self { founders: 3, hosts: 4 };
    pub(super) const FIVE: Self = Self { founders: 5, hosts: 6 };

    fn of(seed: u64) -> Self {
        match seed % 8 {
            1 => Self::ONE,
            2 | 6 => Self::FIVE,
            _ => Self::THREE,
        }
    }
}

/// The outcome of a start.
struct Started {
    host: usize,
    start: u64,
    result: Result<Found, StartError>,
}

/// The members, and what was seen of them.
pub(super) struct Rig {
    pub(super) world: World,
    pub(super) shape: Shape,
    pub(super) hosts: Vec<Host>,
    started: Arc<Mutex<Vec<Started>>>,
    pub(super) accepted: Arc<Mutex<BTreeMap<u64, Taken>>>,
    pub(super) operator: Arc<Mutex<Operator>>,
    pub(super) seen: Seen,
    pub(super) random: SimRandom,
    pub(super) is_settling: bool,
    pub(super) ids_are_reused: bool,
    snapshot_every: u64,
    /// The faults that may happen.
    pub(super) faults: &'static [Fault],
    _planting: Planting,
}

impl Rig {
    pub(super) fn new(seed: u64, planted: Planted) -> Self {
        Self::shaped(seed, Shape::of(seed), planted)
    }

    /// Machines that have founded a quorum, and clients.
    pub(super) fn shaped(seed: u64, shape: Shape, planted: Planted) -> Self {
        let world = World::new(seed);
        world.set_delay(Duration::from_micros(100)..=Duration::from_millis(3));
        let host = |name: &&str| Host {
            node: Arc::new(world.node(name)),
            life: 1,
            slot: Arc::default(),
            is_flipped: false,
            may_fail: false,
        };
        let hosts: Vec<_> = NAMES[..shape.hosts].iter().map(host).collect();
        let mut rig = Self {
            world,
            shape,
            hosts,
            started: Arc::default(),
            accepted: Arc::default(),
            operator: Arc::default(),
            seen: Seen::default(),
            random: SimRandom::new(seed ^ 0xfa17),
            is_settling: false,
            ids_are_reused: planted == Planted::IdReused,
            // Seldom a snapshot, long logs; often one, hardly any.
            snapshot_every: if seed.is_multiple_of(4) { 500 } else { 50 },
            faults: &Fault::ALL,
            _planting: plant(planted),
        };
        (0..shape.hosts).for_each(|host| rig.start(host));
        rig.world.run_for(SECOND);
        rig.found();
        (0..shape.hosts).for_each(|host| rig.propose_from(host, seed));
        rig
    }

    pub(super) fn below(&self, bound: usize) -> usize {
        usize::try_from(self.random.next_u64() % bound as u64).expect("small")
    }

    pub(super) fn id(&self, host: usize) -> VoterId {
        VoterId { node: u32::try_from(host).expect("few"), life: self.hosts[host].life }
    }

    /// Starts a member where none runs.
    pub(super) fn start(&mut self, host: usize) {
        let options = QuorumOptions {
            cluster: [7; 16],
            secret: Secret::new([9; 32]),
            voter: self.id(host),
            listen: NAMES[host].to_owned(),
            directory: PathBuf::from(DIRECTORY),
            heartbeat: Duration::from_millis(50),
            snapshot_every: self.snapshot_every,
        };
        let (slot, started) = (Arc::clone(&self.hosts[host].slot), Arc::clone(&self.started));
        let start = {
            let mut slot = slot.lock();
            if std::mem::replace(&mut slot.is_started, true) {
                return;
            }
            slot.starts += 1;
            slot.starts
        };
        let node = self.hosts[host].node.env();
        let env = node.clone();
        let starting = async move {
            let id = options.voter;
            let result = Quorum::start(&env, options, Kept::default()).await.map(|quorum| {
                let (vote, last) = quorum.inner.store.ends();
                slot.lock().quorum = Some(quorum);
                let voted = vote.map_or(0, |vote| vote.leader_id.term);
                Found { voter: id, voted, last: last.map(|id| id.index) }
            });
            started.lock().push(Started { host, start, result });
        };
        node.tasks.spawn("start", Box::pin(starting));
    }

    fn found(&mut self) {
        let founders: BTreeSet<_> = (0..self.shape.founders).map(|host| self.id(host)).collect();
        let peer = |id: &VoterId| (*id, Peer { address: NAMES[id.node as usize].to_owned() });
        let members = founders.iter().map(peer).collect();
        self.operator.lock().voters = founders;
        let quorum = self.hosts[0].slot.lock().quorum.clone().expect("it has started");
        let founding = async move { quorum.found(members).await.expect("founded") };
        self.hosts[0].node.env().tasks.spawn("found", Box::pin(founding));
        self.world.run_for(2 * SECOND);
        let env = self.world.node("operator").env();
        let slots = self.hosts.iter().map(|host| Arc::clone(&host.slot)).collect();
        env.tasks.spawn("operate", Box::pin(operate(env.clone(), Arc::clone(&self.operator), slots)));
    }

    /// A client of a member, on a machine that nothing happens to.
    fn propose_from(&self, host: usize, seed: u64) {
        let client = self.world.node(&format!("client-{host}"));
        let (slot, accepted) = (Arc::clone(&self.hosts[host].slot), Arc::clone(&self.accepted));
        let env = client.env();
        let mut command = (seed << 40) + ((host as u64) << 32);
        let proposing = async move {
            loop {
                env.tasks.sleep(Duration::from_millis(7)).await;
                let Some(quorum) = slot.lock().quorum.clone() else { continue };
                command += 1;
                if let Ok(taken) = quorum.propose(Bytes::copy_from_slice(&command.to_le_bytes())).await {
                    let term = quorum.leads().0;
                    accepted.lock().insert(command, Taken { index: taken.index, term });
                }
            }
        };
        client.env().tasks.spawn("propose", Box::pin(proposing));
    }

    /// Ends the process of a machine, with its power or without.
    pub(super) fn stop(&mut self, host: usize, power: bool) {
        self.hosts[host].slot.lock().end();
        if power {
            self.hosts[host].may_fail = false;
            self.hosts[host].node.cut_power();
        } else {
            self.hosts[host].node.kill();
        }
        if self.ids_are_reused && self.below(2) == 0 {
            self.remove_directory(host);
        }
    }

    pub(super) fn remove_directory(&self, host: usize) {
        self.calm_disk(host);
        let fs = &self.hosts[host].node.sim().fs;
        // There may be none.
        let _ = fs.remove_dir_all(Path::new(DIRECTORY));
        fs.sync_dir(Path::new("/")).expect("synced");
    }

    pub(super) fn running(&self) -> Vec<(usize, Quorum<Kept>)> {
        let running = self.hosts.iter().map(|host| host.slot.lock().quorum.clone());
        running.enumerate().filter_map(|(host, quorum)| Some((host, quorum?))).collect()
    }

    /// Whether the member of a machine has stopped by itself.
    pub(super) fn has_failed(&self, host: usize) -> bool {
        let quorum = self.hosts[host].slot.lock().quorum.clone();
        quorum.is_some_and(|quorum| quorum.inner.raft.metrics().borrow_watched().running_state.is_err())
    }

    /// A machine whose files are lost gets a new life, and its member takes the place of the former one.
    pub(super) fn replace(&mut self, host: usize) {
        let former = self.id(host);
        self.remove_directory(host);
        self.hosts[host].life += 1;
        self.hosts[host].is_flipped = false;
        let mut operator = self.operator.lock();
        let mut wanted = operator.wish.clone().unwrap_or_else(|| operator.voters.clone());
        if wanted.remove(&former) {
            wanted.insert(self.id(host));
            operator.want(wanted);
        }
    }

    /// Takes note of the starts that are over.
    fn take_starts(&mut self) -> Result<(), Broken> {
        let started = std::mem::take(&mut *self.started.lock());
        for Started { host, start, result } in started {
            // A process that has ended since says nothing of the files as they are.
            let slot = Arc::clone(&self.hosts[host].slot);
            let runs = slot.lock().is_started && slot.lock().starts == start;
            match result {
                Ok(found) => {
                    self.hosts[host].is_flipped &= !runs;
                    self.seen.start(&found)?;
                }
                Err(error) => {
                    if runs {
                        slot.lock().end();
                    }
                    self.refused(host, &error)?;
                }
            }
        }
        Ok(())
    }

    /// A member has refused to start.
    fn refused(&mut self, host: usize, error: &StartError) -> Result<(), Broken> {
        let by_name =
            matches!(error, StartError::Store(StoreError::Damaged { .. }) | StartError::Snapshot(_));
        if by_name && self.hosts[host].is_flipped {
            self.replace(host);
            return Ok(());
        }
        // A disk that fails is tried again.
        if matches!(error, StartError::Store(StoreError::Io(..))) && !self.is_settling {
            return Ok(());
        }
        let result = self.seen.hold(false, Broken::NoStart);
        if result.is_err() {
            eprintln!("{} does not start: {error}", self.id(host));
        }
        result
    }

    /// Looks at each member.
    fn look(&mut self) -> Result<(), Broken> {
        self.take_starts()?;
        for (host, quorum) in self.running() {
            let is_well = self.hosts[host].may_fail || !self.has_failed(host);
            self.seen.hold(is_well, Broken::Stopped)?;
            let view = self.view(host, &quorum);
            self.seen.applied(view.applied, view.digest)?;
            if self.seen.look(&view)? {
                self.look_at_leader(&quorum, view.leads.unwrap_or(0))?;
            }
        }
        Ok(())
    }

    fn view(&self, host: usize, quorum: &Quorum<Kept>) -> View {
        let progress = quorum.progress();
        let metrics = quorum.inner.raft.metrics();
        let metrics = metrics.borrow_watched();
        let leads = metrics.state == openraft::ServerState::Leader;
        let heard = metrics.replication.iter().flatten();
        let heard = heard.filter_map(|(id, last)| Some((*id, last.as_ref()?.index)));
        View {
            voter: self.id(host),
            start: self.hosts[host].slot.lock().starts,
            voted: quorum.inner.store.ends().0.map_or(0, |vote| vote.leader_id.term),
            leads: leads.then_some(metrics.current_term),
            applied: progress.applied,
            digest: progress.digest,
            heard: heard.collect(),
        }
    }

    fn look_at_leader(&self, quorum: &Quorum<Kept>, term: u64) -> Result<(), Broken> {
        let mut log = quorum.look(|kept| kept.0.iter().copied().collect::<BTreeMap<_, _>>());
        for entry in quorum.inner.store.entries() {
            if let EntryPayload::Normal(command) = &entry.payload {
                log.insert(entry.log_id.index, word(&command.0));
            }
        }
        let has = |command, index| log.get(&index) == Some(&command);
        self.seen.is_complete(term, &self.accepted.lock(), has)
    }

    /// Lets time pass, and looks at the members meanwhile.
    pub(super) fn pass(&mut self, time: Duration) -> Result<(), Broken> {
        let end = self.world.now() + time;
        while self.world.now() < end {
            self.world.run_for(LOOK.min(end.saturating_sub(self.world.now())));
            self.look()?;
        }
        Ok(())
    }

    /// Whether this comes true in time.
    pub(super) fn comes(
        &mut self,
        time: Duration,
        is_so: impl Fn(&mut Self) -> bool,
    ) -> Result<bool, Broken> {
        let end = self.world.now() + time;
        while !is_so(self) {
            if self.world.now() >= end {
                return Ok(false);
            }
            self.world.run_for(LOOK);
            self.look()?;
        }
        Ok(true)
    }

    /// All faults end. The quorum has to go on, and to have everything.
    pub(super) fn settle(&mut self) -> Result<(), Broken> {
        self.end_faults()?;
        let changed = self.comes(60 * SECOND, |rig| {
            // One that was refused has another life.
            rig.start_all();
            let wanted: BTreeSet<_> = (0..rig.shape.founders).map(|host| rig.id(host)).collect();
            let mut operator = rig.operator.lock();
            operator.want(wanted.clone());
            operator.voters == wanted && operator.wish.is_none()
        })?;
        self.progresses(changed)?;
        let before = self.accepted.lock().len();
        let goes_on = self.comes(60 * SECOND, |rig| rig.accepted.lock().len() > before + 3)?;
        self.progresses(goes_on)?;
        self.pass(5 * SECOND)?;
        self.has_all_accepted()
    }

    /// Tells how the members stand, unless things go on.
    fn progresses(&self, does: bool) -> Result<(), Broken> {
        self.seen.hold(does, Broken::NoProgress).inspect_err(|_| self.tell())
    }

    fn tell(&self) {
        let operator = self.operator.lock();
        eprintln!("voters {:?}, wanted {:?}", operator.voters, operator.wish);
        for (host, quorum) in self.running() {
            let metrics = quorum.inner.raft.metrics();
            eprintln!("{}: {}", self.id(host), *metrics.borrow_watched());
        }
    }

    fn has_all_accepted(&self) -> Result<(), Broken> {
        let accepted = self.accepted.lock().clone();
        for (_, quorum) in self.running() {
            let kept: BTreeMap<u64, u64> =
                quorum.look(|kept| kept.0.iter().map(|(at, command)| (*command, *at)).collect());
            let last = quorum.progress().applied.unwrap_or(0);
            let is_there = |(command, taken): (&u64, &Taken)| {
                taken.index > last || kept.get(command) == Some(&taken.index)
            };
            self.seen.hold(accepted.iter().all(is_there), Broken::AcceptedLost)?;
        }
        Ok(())
    }
}
