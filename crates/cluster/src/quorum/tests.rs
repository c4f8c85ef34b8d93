//! A simulated quorum: members on machines of one world, of which everything fails that can, and what must hold all the same.
//!
//! `RIVERRUN_QUORUM_SEEDS=N` runs more seeds, from `RIVERRUN_QUORUM_SEED` on. A failing seed is named.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use riverrun_env::sim::{SimNode, SimRandom, World};
use riverrun_env::{FileSystem as _, Random as _};

use super::*;
use crate::planted::Planted;

const MEMBERS: usize = 3;
const NAMES: [&str; MEMBERS] = ["a", "b", "c"];
const SECOND: Duration = Duration::from_secs(1);

/// A machine that keeps every command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Kept(Vec<(u64, u64)>);

impl Machine for Kept {
    fn apply(&mut self, index: u64, command: &[u8]) -> Bytes {
        let command = u64::from_le_bytes(command.try_into().expect("eight bytes"));
        self.0.push((index, command));
        Bytes::copy_from_slice(&index.to_le_bytes())
    }

    fn snapshot(&self) -> Bytes {
        self.0
            .iter()
            .flat_map(|(index, command)| [index.to_le_bytes(), command.to_le_bytes()].concat())
            .collect()
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), String> {
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        self.0 = snapshot.chunks_exact(16).map(|pair| (word(&pair[..8]), word(&pair[8..]))).collect();
        Ok(())
    }
}

/// A promise of the quorum that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// Two members lead in one term.
    TwoLeaders,
    /// Two members have another command at an index.
    Disagreement,
    /// A command that was accepted is gone, or is at another index.
    AcceptedLost,
    /// Two members that have applied as much have another digest.
    Digests,
    /// All is well again, and no command is accepted.
    NoProgress,
    /// A member does not start.
    NoStart,
}

type Slot = Arc<Mutex<Option<Quorum<Kept>>>>;

/// The members, and what was seen of them.
struct Rig {
    world: World,
    nodes: Vec<SimNode>,
    slots: Vec<Slot>,
    started: Vec<bool>,
    refused: Arc<Mutex<Option<String>>>,
    /// Commands that were accepted, with their indexes.
    accepted: Arc<Mutex<BTreeMap<u64, u64>>>,
    leaders: BTreeMap<u64, VoterId>,
    random: SimRandom,
    planted: Planted,
}

fn voter(member: usize) -> VoterId {
    VoterId { node: u32::try_from(member).expect("few"), life: 1 }
}

impl Rig {
    fn new(seed: u64, planted: Planted) -> Self {
        let world = World::new(seed);
        world.set_delay(Duration::from_micros(100)..=Duration::from_millis(3));
        let nodes: Vec<_> = NAMES.iter().map(|name| world.node(name)).collect();
        let slots = (0..MEMBERS).map(|_| Slot::default()).collect();
        let mut rig = Self {
            world,
            nodes,
            slots,
            started: vec![false; MEMBERS],
            refused: Arc::default(),
            accepted: Arc::default(),
            leaders: BTreeMap::new(),
            random: SimRandom::new(seed ^ 0xfa17),
            planted,
        };
        for member in 0..MEMBERS {
            rig.start(member);
        }
        rig.world.run_for(SECOND);
        rig.found();
        for member in 0..MEMBERS {
            rig.propose_from(member, seed);
        }
        rig
    }

    fn below(&self, bound: usize) -> usize {
        usize::try_from(self.random.next_u64() % bound as u64).expect("small")
    }

    fn options(&self, member: usize) -> QuorumOptions {
        QuorumOptions {
            cluster: [7; 16],
            secret: Secret::new([9; 32]),
            voter: voter(member),
            listen: NAMES[member].to_owned(),
            directory: PathBuf::from("/quorum"),
            heartbeat: Duration::from_millis(50),
            snapshot_every: 50,
            planted: self.planted,
        }
    }

    fn start(&mut self, member: usize) {
        let (node, options) = (self.nodes[member].env(), self.options(member));
        let (slot, refused) = (Arc::clone(&self.slots[member]), Arc::clone(&self.refused));
        let env = node.clone();
        node.tasks.spawn(
            "start",
            Box::pin(async move {
                match Quorum::start(&env, options, Kept::default()).await {
                    Ok(quorum) => *slot.lock() = Some(quorum),
                    Err(error) => *refused.lock() = Some(error.to_string()),
                }
            }),
        );
        self.started[member] = true;
    }

    fn found(&self) {
        let slot = Arc::clone(&self.slots[0]);
        let members =
            (0..MEMBERS).map(|member| (voter(member), Peer { address: NAMES[member].to_owned() })).collect();
        let quorum = slot.lock().clone().unwrap_or_else(|| panic!("not started: {:?}", self.refused));
        let founding = async move { quorum.found(members).await.expect("founded") };
        self.nodes[0].env().tasks.spawn("found", Box::pin(founding));
        self.world.run_for(2 * SECOND);
    }

    /// A client of a member, on a machine that nothing happens to.
    fn propose_from(&self, member: usize, seed: u64) {
        let client = self.world.node(&format!("client-{member}"));
        let (slot, accepted) = (Arc::clone(&self.slots[member]), Arc::clone(&self.accepted));
        let env = client.env();
        let mut command = (seed << 40) + ((member as u64) << 32);
        let proposing = async move {
            loop {
                env.tasks.sleep(Duration::from_millis(7)).await;
                let Some(quorum) = slot.lock().clone() else { continue };
                command += 1;
                if let Ok(taken) = quorum.propose(Bytes::copy_from_slice(&command.to_le_bytes())).await {
                    accepted.lock().insert(command, taken.index);
                }
            }
        };
        client.env().tasks.spawn("propose", Box::pin(proposing));
    }

    fn stop(&mut self, member: usize, power: bool) {
        *self.slots[member].lock() = None;
        if power {
            self.nodes[member].cut_power();
        } else {
            self.nodes[member].kill();
        }
        self.started[member] = false;
        if self.planted == Planted::IdReused && self.below(2) == 0 {
            let removed = self.nodes[member].sim().fs.remove_dir_all(Path::new("/quorum"));
            assert!(
                removed.is_ok() || !self.nodes[member].sim().fs.exists(Path::new("/quorum")).expect("looked")
            );
        }
    }

    /// One thing that goes wrong, or right again.
    fn happen(&mut self) {
        let (one, other) = (self.below(MEMBERS), self.below(MEMBERS));
        match self.below(12) {
            0 => self.stop(one, false),
            1 | 2 => self.stop(one, true),
            3 => (0..MEMBERS).for_each(|member| self.stop(member, true)),
            4..=6 => {
                for member in 0..MEMBERS {
                    if !self.started[member] {
                        self.start(member);
                    }
                }
            }
            7 if one != other => self.world.cut(NAMES[one], NAMES[other], true),
            8 => self.heal_links(),
            9 => self.nodes[one].pause(self.below(2) == 0),
            10 => self.nodes[one].set_drift(i32::try_from(self.below(2_000)).expect("small") - 1_000),
            11 => self.nodes[one].sim().fs.set_space((self.below(2) == 0).then_some(0)),
            _ => {}
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

    fn members(&self) -> impl Iterator<Item = (usize, Quorum<Kept>)> {
        let running: Vec<_> = self.slots.iter().map(|slot| slot.lock().clone()).collect();
        running.into_iter().enumerate().filter_map(|(member, quorum)| Some((member, quorum?)))
    }

    fn check(&mut self) -> Result<(), Broken> {
        if let Some(reason) = &*self.refused.lock() {
            eprintln!("{reason}");
            return Err(Broken::NoStart);
        }
        let running: Vec<_> = self.members().collect();
        for (member, quorum) in &running {
            let (term, leads) = quorum.leads();
            if leads && *self.leaders.entry(term).or_insert(voter(*member)) != voter(*member) {
                return Err(Broken::TwoLeaders);
            }
        }
        let mut commands = BTreeMap::new();
        let mut digests = BTreeMap::new();
        for (_, quorum) in &running {
            let progress = quorum.progress();
            if *digests.entry(progress.applied).or_insert(progress.digest) != progress.digest {
                return Err(Broken::Digests);
            }
            for (index, command) in quorum.look(|kept| kept.0.clone()) {
                if *commands.entry(index).or_insert(command) != command {
                    return Err(Broken::Disagreement);
                }
            }
        }
        Ok(())
    }

    /// All faults end. The quorum has to go on, and to have everything.
    fn settle(&mut self) -> Result<(), Broken> {
        self.heal_links();
        for member in 0..MEMBERS {
            self.nodes[member].pause(false);
            self.nodes[member].sim().fs.set_space(None);
            if !self.started[member] {
                self.start(member);
            }
        }
        let before = self.accepted.lock().len();
        let accepted = Arc::clone(&self.accepted);
        if !self
            .world
            .run_until(60 * SECOND, || accepted.lock().len() > before + 3 || self.refused.lock().is_some())
        {
            return Err(Broken::NoProgress);
        }
        self.check()?;
        self.world.run_for(5 * SECOND);
        self.check()?;
        let accepted = self.accepted.lock().clone();
        for (_, quorum) in self.members() {
            let kept: BTreeMap<u64, u64> =
                quorum.look(|kept| kept.0.iter().map(|(at, command)| (*command, *at)).collect());
            let last = quorum.progress().applied.unwrap_or(0);
            let is_there = |(command, index): (&u64, &u64)| *index > last || kept.get(command) == Some(index);
            if !accepted.iter().all(is_there) {
                return Err(Broken::AcceptedLost);
            }
        }
        Ok(())
    }

    fn run(&mut self, events: usize) -> Result<(), Broken> {
        for _ in 0..events {
            let pause = Duration::from_millis(20 + self.random.next_u64() % 700);
            self.happen();
            self.world.run_for(pause);
            self.check()?;
        }
        self.settle()
    }
}

fn seeds(count: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = number("RIVERRUN_QUORUM_SEED").unwrap_or(1);
    first..first + number("RIVERRUN_QUORUM_SEEDS").unwrap_or(count)
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
fn what_is_accepted_stays_whatever_fails() {
    let mut accepted = 0;
    for seed in seeds(8) {
        let _named = Named(seed);
        let mut rig = Rig::new(seed, Planted::None);
        let result = rig.run(40);
        assert_eq!(result, Ok(()), "seed {seed}");
        accepted += rig.accepted.lock().len();
    }
    println!("{accepted} commands accepted");
    assert!(accepted > 0);
}

#[test]
fn the_same_seed_goes_the_same_way() {
    let run = |seed| {
        let mut rig = Rig::new(seed, Planted::None);
        rig.run(20).expect("nothing is broken");
        (rig.world.trace(), rig.world.steps(), rig.accepted.lock().len())
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5).0, run(6).0);
}

/// The first seed that finds a planted bug.
fn found(planted: Planted, seeds: Range<u64>) -> Option<(u64, Broken)> {
    seeds.into_iter().find_map(|seed| {
        let broken = std::panic::catch_unwind(|| Rig::new(seed, planted).run(40).err());
        broken.unwrap_or(Some(Broken::NoStart)).map(|broken| (seed, broken))
    })
}

#[test]
fn entries_that_are_not_synced_are_found() {
    let found = found(Planted::EntriesNotSynced, 1..200);
    println!("{found:?}");
    assert!(found.is_some());
}

#[test]
fn leaders_that_lead_on_after_a_start_are_found() {
    let found = found(Planted::LeadsOnAfterAStart, 1..200);
    println!("{found:?}");
    assert_eq!(found.map(|(_, broken)| broken), Some(Broken::Disagreement));
}

#[test]
fn ids_that_are_used_again_are_found() {
    let found = found(Planted::IdReused, 1..400);
    println!("{found:?}");
    assert!(found.is_some());
}
