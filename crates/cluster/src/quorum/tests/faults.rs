//! Owns what happens to a simulated quorum: everything that fails, what becomes well again, and changes of its members.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use riverrun_env::{FileSystem, OpenMode, Random as _};

use super::invariants::Broken;
use super::rig::{NAMES, Rig, SECOND};
use crate::planted::{Planted, is_planted};
use crate::types::VoterId;

/// A sort of thing that happens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Kill,
    CutPower,
    CutAllPower,
    Start,
    RestartInTurns,
    CutWay,
    Isolate,
    BreakLinks,
    HealWays,
    Pause,
    Drift,
    Space,
    FailSync,
    SlowSync,
    CutPowerInSync,
    TearWrite,
    FlipByte,
    LoseDirectory,
    ChangeVoters,
}

impl Fault {
    /// Each sort as often as it is drawn.
    pub(super) const ALL: [Self; 25] = [
        Self::Kill,
        Self::Kill,
        Self::CutPower,
        Self::CutPower,
        Self::CutAllPower,
        Self::Start,
        Self::Start,
        Self::Start,
        Self::Start,
        Self::Start,
        Self::RestartInTurns,
        Self::CutWay,
        Self::Isolate,
        Self::BreakLinks,
        Self::HealWays,
        Self::Pause,
        Self::Drift,
        Self::Space,
        Self::FailSync,
        Self::SlowSync,
        Self::CutPowerInSync,
        Self::TearWrite,
        Self::FlipByte,
        Self::LoseDirectory,
        Self::ChangeVoters,
    ];
}

impl Rig {
    /// Lets things happen, and then all be well again.
    pub(super) fn run(&mut self, events: usize) -> Result<(), Broken> {
        for _ in 0..events {
            let pause = Duration::from_millis(20 + self.random.next_u64() % 700);
            self.happen()?;
            self.pass(pause)?;
        }
        self.settle()
    }

    /// One thing that goes wrong, or right again.
    fn happen(&mut self) -> Result<(), Broken> {
        let count = self.hosts.len();
        let (one, other) = (self.below(count), self.below(count));
        match self.faults[self.below(self.faults.len())] {
            Fault::Kill => self.stop(one, false),
            Fault::CutPower => self.stop(one, true),
            Fault::CutAllPower => (0..count).for_each(|host| self.stop(host, true)),
            Fault::Start => self.start_all(),
            Fault::RestartInTurns => self.restart_in_turns()?,
            Fault::CutWay if one != other => self.world.cut(NAMES[one], NAMES[other], true),
            Fault::BreakLinks if one != other => self.world.break_links(NAMES[one], NAMES[other]),
            Fault::CutWay | Fault::BreakLinks => {}
            Fault::Isolate => self.isolate_leader(),
            Fault::HealWays => self.heal_links(),
            Fault::Pause => self.hosts[one].node.pause(self.below(2) == 0),
            Fault::Drift => {
                let ppm = i32::try_from(self.below(2_000)).expect("small") - 1_000;
                self.hosts[one].node.set_drift(ppm);
            }
            Fault::Space => self.change_space(one),
            Fault::FailSync => self.fail_a_sync(one),
            Fault::SlowSync => self.slow_sync(one),
            Fault::CutPowerInSync => self.cut_power_in_a_sync(one),
            Fault::TearWrite => self.tear_a_write(one)?,
            Fault::FlipByte => self.flip_a_byte(one),
            Fault::LoseDirectory => self.lose_directory(one),
            Fault::ChangeVoters => self.want_others(),
        }
        Ok(())
    }

    /// Starts what does not run, also where a member has stopped by itself.
    pub(super) fn start_all(&mut self) {
        for host in 0..self.hosts.len() {
            if self.has_failed(host) {
                self.stop(host, false);
            }
            self.start(host);
        }
    }

    pub(super) fn heal_links(&self) {
        let names = &NAMES[..self.hosts.len()];
        for one in names {
            for other in names.iter().filter(|other| *other != one) {
                self.world.cut(one, other, false);
            }
        }
    }

    /// Nobody reaches the leader, nor the leader anybody.
    fn isolate_leader(&self) {
        let leading = self.running().into_iter().find(|(_, quorum)| quorum.leads().1);
        let Some((leader, _)) = leading else { return };
        for other in (0..self.hosts.len()).filter(|other| *other != leader) {
            self.world.cut(NAMES[leader], NAMES[other], true);
            self.world.cut(NAMES[other], NAMES[leader], true);
        }
    }

    /// No room at all, a little, or plenty.
    fn change_space(&self, host: usize) {
        let space = match self.below(3) {
            0 => Some(0),
            1 => Some(self.below(1_000) as u64),
            _ => None,
        };
        self.hosts[host].node.sim().fs.set_space(space);
    }

    /// One of the next syncs fails.
    pub(super) fn fail_a_sync(&mut self, host: usize) {
        self.hosts[host].may_fail = true;
        self.hosts[host].node.sim().fs.fail_sync_after(self.below(4) as u64);
    }

    /// The next sync takes long.
    fn slow_sync(&self, host: usize) {
        let time = Duration::from_millis(20 + self.random.next_u64() % 2_000);
        let clock = self.hosts[host].node.env().env.clock;
        self.hosts[host].node.sim().fs.during_next_sync(move || clock.sleep(time));
    }

    /// In the middle of the next sync, which takes long, the power goes.
    fn cut_power_in_a_sync(&self, host: usize) {
        let time = Duration::from_millis(self.random.next_u64() % 300);
        let (node, slot) = (Arc::clone(&self.hosts[host].node), Arc::clone(&self.hosts[host].slot));
        let cut = move || {
            node.env().env.clock.sleep(time);
            slot.lock().end();
            node.cut_power();
        };
        self.hosts[host].node.sim().fs.during_next_sync(cut);
    }

    /// The machine stops in the middle of a write, or between two operations of its disk, and then the power goes.
    fn tear_a_write(&mut self, host: usize) -> Result<(), Broken> {
        self.hosts[host].may_fail = true;
        self.hosts[host].node.sim().fs.stop_after(self.below(12) as u64);
        self.pass(Duration::from_millis(100))?;
        self.stop(host, true);
        Ok(())
    }

    /// Whether the quorum bears it that the files of a machine are lost: no other loss is being mended, so that a majority has
    /// everything.
    fn may_lose(&self, host: usize) -> bool {
        let is_flipped = self.hosts.iter().any(|host| host.is_flipped);
        let operator = self.operator.lock();
        let is_voter = operator.voters.contains(&self.id(host));
        operator.wish.is_none() && !is_flipped && (!is_voter || operator.voters.len() > 2)
    }

    /// A bit of the log or of the snapshot changes while the process is killed.
    fn flip_a_byte(&mut self, host: usize) {
        if !self.may_lose(host) || !self.hosts[host].slot.lock().is_started {
            return;
        }
        self.stop(host, false);
        self.calm_disk(host);
        let name = if self.below(4) == 0 { "/quorum/quorum.snapshot" } else { "/quorum/quorum.log" };
        let fs = &self.hosts[host].node.sim().fs;
        let Ok(file) = fs.open(Path::new(name), OpenMode::ReadWrite) else { return };
        let len = usize::try_from(file.len().expect("it is there")).expect("small");
        // Without a mark nobody can tell a changed end from a torn one: there was no room for it, or a power cut has taken it.
        if len == 0 || !is_marked(&**fs) {
            return;
        }
        // The end is the place where a flip is hard to notice.
        let at = if self.below(2) == 0 { self.below(len) } else { len - 1 - self.below(len.min(100)) } as u64;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("read");
        byte[0] ^= 1 << self.below(8);
        file.write_all_at(&byte, at).expect("written");
        file.sync_all().expect("synced");
        self.hosts[host].is_flipped = true;
    }

    /// The directory is lost, and another life begins.
    fn lose_directory(&mut self, host: usize) {
        if self.may_lose(host) {
            self.stop(host, false);
            self.replace(host);
        }
    }

    /// Other voters are wanted.
    fn want_others(&self) {
        if self.operator.lock().wish.is_some() {
            return;
        }
        let sizes = match self.shape.founders {
            1 => 1..=3,
            3 => 2..=4,
            _ => 3..=6,
        };
        let size = sizes.start() + self.below(sizes.end() - sizes.start() + 1);
        let mut ids: Vec<VoterId> = (0..self.hosts.len())
            .filter(|host| !self.hosts[*host].is_flipped)
            .map(|host| self.id(host))
            .collect();
        let mut wanted = BTreeSet::new();
        while wanted.len() < size && !ids.is_empty() {
            wanted.insert(ids.swap_remove(self.below(ids.len())));
        }
        self.operator.lock().want(wanted);
    }

    /// Each member is killed and started, one after the other.
    fn restart_in_turns(&mut self) -> Result<(), Broken> {
        for host in 0..self.hosts.len() {
            self.stop(host, false);
            self.pass(Duration::from_millis(self.random.next_u64() % 100))?;
            self.start(host);
            self.pass(Duration::from_millis(self.random.next_u64() % 500))?;
        }
        Ok(())
    }

    /// A disk has room, and its syncs succeed at once.
    pub(super) fn calm_disk(&self, host: usize) {
        let fs = &self.hosts[host].node.sim().fs;
        fs.set_space(None);
        fs.fail_sync_after(u64::from(u32::MAX));
        fs.during_next_sync(|| {});
    }

    /// Nothing fails from now on.
    pub(super) fn end_faults(&mut self) -> Result<(), Broken> {
        self.heal_links();
        for host in 0..self.hosts.len() {
            self.hosts[host].node.pause(false);
            self.calm_disk(host);
        }
        // Something that a fault has met may be under way.
        self.pass(3 * SECOND)?;
        self.start_all();
        self.hosts.iter_mut().for_each(|host| host.may_fail = false);
        self.is_settling = true;
        Ok(())
    }
}

/// Whether the log ends with a mark.
fn is_marked(fs: &dyn FileSystem) -> bool {
    let log = riverrun_env::read_whole(fs, Path::new("/quorum/quorum.log"), 1 << 30).unwrap_or_default();
    let is_mark = log.len() > 24 && log[log.len() - 24..].starts_with(b"RQFR\0\0\0\0");
    is_mark || is_planted(Planted::NoMark)
}
