//! A simulated quorum: members on machines of one world, of which everything fails that can, and what must hold all the same.
//!
//! `RIVERRUN_QUORUM_SEEDS=N` runs more seeds, from `RIVERRUN_QUORUM_SEED` on. A failing seed is named.

mod bugs;
mod faults;
mod invariants;
mod operator;
mod rig;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use openraft_rt::WatchReceiver as _;
use parking_lot::Mutex;
use riverrun_env::Env;

use self::invariants::Broken;
use self::rig::{NAMES, Rig, SECOND, Shape};
use crate::planted::Planted;
use crate::quorum::ProposeError;
use crate::types::Peer;

/// Things that happen in a run.
const EVENTS: usize = 40;

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

/// The tally of long runs.
#[derive(Default)]
struct Sum {
    seeds: u64,
    accepted: usize,
    changes: usize,
    simulated: Duration,
}

impl Sum {
    fn add(&mut self, rig: &Rig) {
        self.seeds += 1;
        self.accepted += rig.accepted.lock().len();
        self.changes += rig.operator.lock().changes;
        self.simulated += rig.world.now();
    }

    fn print(&self, seed: u64, real: Duration) {
        let Self { seeds, accepted, changes, simulated } = self;
        println!(
            "up to seed {seed}: {seeds} seeds, {accepted} commands accepted, {changes} changes of the members, {:.0} simulated \
             seconds in {:.0} s ({:.0} a second, {:.0} seeds an hour)",
            simulated.as_secs_f64(),
            real.as_secs_f64(),
            simulated.as_secs_f64() / real.as_secs_f64(),
            *seeds as f64 * 3600.0 / real.as_secs_f64()
        );
    }
}

#[test]
fn what_is_accepted_stays_whatever_fails() {
    let clock = Env::real().clock;
    let begin = clock.monotonic();
    let mut sum = Sum::default();
    let seeds = seeds(3);
    for seed in seeds.clone() {
        let _named = Named(seed);
        let mut rig = Rig::new(seed, Planted::None);
        let result = rig.run(EVENTS);
        assert_eq!(result, Ok(()), "seed {seed}");
        sum.add(&rig);
        if seed % 100 == 0 || seed + 1 == seeds.end {
            sum.print(seed, clock.monotonic().saturating_sub(begin));
        }
    }
    assert!(sum.accepted > 0 && (sum.changes > 0 || sum.seeds < 3));
}

#[test]
fn the_same_seed_goes_the_same_way() {
    let run = |seed| {
        let mut rig = Rig::new(seed, Planted::None);
        rig.run(10).expect("nothing is broken");
        (rig.world.trace(), rig.world.steps(), rig.accepted.lock().len())
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5).0, run(6).0);
}

/// The host that leads, once one does.
fn leader(rig: &mut Rig) -> usize {
    let leads =
        |rig: &Rig| rig.running().into_iter().find(|(_, quorum)| quorum.leads().1).map(|(host, _)| host);
    assert!(rig.comes(10 * SECOND, |rig| leads(rig).is_some()).expect("nothing is broken"), "nobody leads");
    leads(rig).expect("one leads")
}

/// Whether commands are accepted again within a time, while a leader of five reaches one of a majority that has no other leader.
fn goes_on_without_the_one_that_reaches_one(seed: u64, planted: Planted) -> Result<bool, Broken> {
    let mut rig = Rig::shaped(seed, Shape::FIVE, planted);
    let old = leader(&mut rig);
    let others: Vec<_> = (0..rig.shape.founders).filter(|host| *host != old).collect();
    rig.stop(others[3], true);
    for lost in [others[1], others[2]] {
        rig.world.cut(NAMES[old], NAMES[lost], true);
        rig.world.cut(NAMES[lost], NAMES[old], true);
    }
    let begin = rig.accepted.lock().len();
    rig.pass(SECOND)?;
    let before = rig.accepted.lock().len().max(begin);
    rig.comes(10 * SECOND, |rig| rig.accepted.lock().len() > before + 10)
}

#[test]
fn a_leader_that_reaches_one_of_a_majority_gives_way() {
    for seed in 1..4 {
        assert_eq!(goes_on_without_the_one_that_reaches_one(seed, Planted::None), Ok(true), "seed {seed}");
    }
    assert_eq!(goes_on_without_the_one_that_reaches_one(1, Planted::NoProbe), Ok(false));
}

#[test]
fn a_member_whose_sync_fails_stops_and_others_go_on() {
    let mut rig = Rig::shaped(1, Shape::THREE, Planted::None);
    let leader = leader(&mut rig);
    for host in [(leader + 1) % 3, leader] {
        rig.fail_a_sync(host);
        let failed = rig.comes(2 * SECOND, |rig| rig.has_failed(host));
        assert_eq!(failed, Ok(true));
        let quorum = rig.hosts[host].slot.lock().quorum.clone().expect("it has started");
        assert!(quorum.inner.raft.metrics().borrow_watched().running_state.is_err());
        let before = rig.accepted.lock().len();
        assert_eq!(rig.comes(5 * SECOND, |rig| rig.accepted.lock().len() > before + 10), Ok(true));
        rig.stop(host, true);
        rig.start(host);
        rig.pass(SECOND).expect("nothing is broken");
    }
    assert_eq!(rig.settle(), Ok(()));
}

#[test]
fn a_leader_that_has_left_changes_no_members() {
    let mut rig = Rig::shaped(1, Shape::THREE, Planted::None);
    let leader = leader(&mut rig);
    let quorum = rig.hosts[leader].slot.lock().quorum.clone().expect("it has started");
    let rest: BTreeSet<_> = (0..3).filter(|host| *host != leader).map(|host| rig.id(host)).collect();
    let (late, peer) = (rig.id(3), Peer { address: NAMES[3].to_owned() });
    let results = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&results);
    let changing = async move {
        let left = quorum.set_voters(rest).await;
        let after = quorum.add_learner(late, peer).await;
        told.lock().extend([left, after]);
    };
    rig.world.node("client").env().tasks.spawn("change", Box::pin(changing));
    rig.pass(SECOND).expect("nothing is broken");
    assert_eq!(*results.lock(), [Ok(()), Err(ProposeError::NotLeader(None))]);
}

/// A leader dies in the middle of a change that takes one member out, and the next leader is asked to take another one out. Returns
/// whether the next leader was the one that the first change takes out.
fn a_change_comes_on_top_of_another(seed: u64) -> bool {
    let mut rig = Rig::shaped(seed, Shape::THREE, Planted::None);
    let former = leader(&mut rig);
    let (kept, out) = ((former + 1) % 3, (former + 2) % 3);
    let quorum_of =
        |rig: &Rig, host: usize| rig.hosts[host].slot.lock().quorum.clone().expect("it has started");
    let set = |rig: &Rig, host: usize, voters: BTreeSet<_>| {
        let (quorum, result) = (quorum_of(rig, host), Arc::new(Mutex::new(None)));
        let told = Arc::clone(&result);
        let setting = async move { *told.lock() = Some(quorum.set_voters(voters).await) };
        rig.world.node("client").env().tasks.spawn("set", Box::pin(setting));
        result
    };
    let (first, second) = (BTreeSet::from([rig.id(former), rig.id(kept)]), BTreeSet::from([rig.id(kept)]));
    set(&rig, former, first);
    let others = [kept, out].map(|host| quorum_of(&rig, host));
    let is_begun = || {
        others.iter().all(|quorum| {
            let metrics = quorum.inner.raft.metrics();
            metrics.borrow_watched().membership_config.membership().get_joint_config().len() > 1
        })
    };
    assert!(rig.world.run_until(SECOND, is_begun));
    rig.stop(former, true);
    rig.start(former);
    leader(&mut rig);
    rig.pass(SECOND).expect("nothing is broken");
    let next = leader(&mut rig);
    let result = set(&rig, next, second);
    rig.pass(5 * SECOND).expect("nothing is broken");
    let expected = if next == out { Err(ProposeError::NotLeader(None)) } else { Ok(()) };
    assert_eq!(*result.lock(), Some(expected), "seed {seed}");
    next == out
}

#[test]
fn a_change_on_top_of_one_that_was_not_ended_ends_it_first() {
    assert!((17..60).any(a_change_comes_on_top_of_another));
}

/// A follower without room has entries that are committed and not durable when a snapshot of them comes, and loses power.
fn a_snapshot_comes_where_its_entries_wait(planted: Planted) -> Result<(), Broken> {
    let mut rig = Rig::shaped(3, Shape::THREE, planted);
    let leader = leader(&mut rig);
    let late = (leader + 1) % 3;
    rig.hosts[late].node.sim().fs.set_space(Some(0));
    rig.pass(10 * SECOND)?;
    rig.stop(late, true);
    rig.hosts[late].node.sim().fs.set_space(None);
    rig.start(late);
    rig.pass(SECOND)?;
    rig.settle()
}

#[test]
fn a_snapshot_is_answered_once_its_entries_are_durable() {
    assert_eq!(a_snapshot_comes_where_its_entries_wait(Planted::None), Ok(()));
    let answered_early = a_snapshot_comes_where_its_entries_wait(Planted::InstallAnsweredEarly);
    assert_eq!(answered_early, Err(Broken::AckedLost));
}
