//! A scenario of two lives, run up to every place where a fault can come, and the conditions that have to hold after
//! it.

use std::sync::atomic::Ordering;

use riverrun_env::Env;
use riverrun_env::sim::SimEnv;
use riverrun_journal::{Journal, JournalError, JournalOptions, SyncMethod, Wants};

use super::faulty::{Bug, plant};
use super::{History, open, smallest_options};

/// Counts of each fault up to which a planted bug is looked for.
const BOUNDARIES_OF_BUGS: u64 = 60;

/// The fault of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The machine stops after this many operations.
    Stop(u64),
    /// This many syncs succeed, and the next one fails.
    Sync(u64),
    /// This many writes succeed, and the next one fails in part.
    Write(u64),
}

/// The fate of unsynced bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The power is cut.
    Crash,
    /// The process is killed and its page cache stays; after the next start the power is cut.
    KillThenCrash,
}

pub(crate) struct Run {
    pub(crate) seed: u64,
    pub(crate) method: SyncMethod,
    pub(crate) fault: Fault,
    pub(crate) end: End,
    pub(crate) bug: Option<Bug>,
}

impl Run {
    /// Runs the scenario with its fault, then recovers twice. `Ok(true)`: the scenario ended before the fault came.
    pub(crate) fn run(&self) -> Result<bool, String> {
        let sim = SimEnv::new(self.seed);
        // A block that is being written when the power is cut may hold anything afterwards.
        sim.fs.tear_blocks(true);
        let env = self.bug.map_or(sim.env(), |bug| plant(&sim.env(), bug));
        let history = History::default();
        match self.fault {
            Fault::Stop(count) => sim.fs.stop_after(count),
            Fault::Sync(count) => sim.fs.fail_sync_after(count),
            Fault::Write(count) => sim.fs.fail_write_after(count),
        }
        let is_whole = self.live(&env, &history)?;
        match self.end {
            End::Crash => sim.fs.crash(),
            End::KillThenCrash => sim.fs.kill(),
        }
        let first = self.recover(&env, &history)?;
        if self.end == End::KillThenCrash {
            // The entries that the killed process left in the page cache may have been seen, so they count from now
            // on.
            history.saw(first.last().map_or(0, |last| last + 1));
        }
        sim.fs.crash();
        let second = self.recover(&env, &history)?;
        let is_unsettled = |index: &usize| *index >= history.settled.load(Ordering::Relaxed);
        if !first.iter().copied().filter(is_unsettled).eq(second.iter().copied().filter(is_unsettled)) {
            return Err(format!("{first:?} was found first, and {second:?} then"));
        }
        self.go_on(&sim, &env, &history, second.last().map_or(0, |last| last + 1))?;
        Ok(is_whole)
    }

    fn options(&self) -> JournalOptions {
        smallest_options(self.method)
    }

    /// Two lives; `Ok(true)`: nothing went wrong in them.
    fn live(&self, env: &Env, history: &History) -> Result<bool, String> {
        match self.first_life(env, history) {
            Ok(()) => {}
            Err(_) => return Ok(false),
        }
        match open(env, self.options()) {
            Ok((journal, found, damaged)) => {
                let found = history.check(&found)?;
                if damaged > 0 {
                    return Err("an entry is damaged".into());
                }
                history.forget_behind(found.last().map_or(0, |last| last + 1));
                Ok(Self::second_life(&journal, history).is_ok())
            }
            Err(_) => Ok(false),
        }
    }

    /// Fills both files and uses one of them again. Ends without closing.
    fn first_life(&self, env: &Env, history: &History) -> Result<(), JournalError> {
        let (journal, ..) = open(env, self.options())?;
        for bytes in [700, 3900, 4096, 10_000, 20] {
            history.store(&journal, bytes, Wants::Sync)?;
        }
        history.store(&journal, 9000, Wants::Write)?;
        history.store(&journal, 500, Wants::Write)?;
        history.settle(&journal);
        for bytes in [14_000, 30_000, 10, 38_000, 30] {
            history.store(&journal, bytes, Wants::Sync)?;
            if bytes == 30_000 {
                history.settle(&journal);
            }
        }
        history.store(&journal, 5000, Wants::Write)?;
        Ok(())
    }

    /// Goes on behind the tail, settles, and closes.
    fn second_life(journal: &Journal, history: &History) -> Result<(), JournalError> {
        history.store(journal, 5000, Wants::Sync)?;
        history.settle(journal);
        history.store(journal, 100, Wants::Sync)?;
        history.store(journal, 20_000, Wants::Sync)?;
        journal.close()
    }

    fn recover(&self, env: &Env, history: &History) -> Result<Vec<usize>, String> {
        let (_journal, found, damaged) = open(env, self.options()).map_err(|error| error.to_string())?;
        if damaged > 0 {
            return Err("an entry is damaged".into());
        }
        history.check(&found)
    }

    /// Checks that the recovered journal works.
    fn go_on(&self, sim: &SimEnv, env: &Env, history: &History, end: usize) -> Result<(), String> {
        let (journal, ..) = open(env, self.options()).map_err(|error| error.to_string())?;
        history.forget_behind(end);
        for _ in 0..3 {
            history.settle(&journal);
            history.store(&journal, 30_000, Wants::Sync).map_err(|error| error.to_string())?;
        }
        sim.fs.crash();
        drop(journal);
        self.recover(env, history).map(|_| ())
    }
}

/// Runs the scenario with each count of `fault` until the fault comes after the end. Returns the number of counts, or
/// the first violation.
pub(crate) fn every(
    fault: fn(u64) -> Fault,
    method: SyncMethod,
    end: End,
    bug: Option<Bug>,
    seeds: std::ops::Range<u64>,
) -> Result<u64, String> {
    for count in 0.. {
        let mut is_whole = true;
        for seed in seeds.clone() {
            let run = Run { seed, method, fault: fault(count), end, bug };
            let result = run.run();
            is_whole &= result.map_err(|what| format!("{:?}, {end:?}, seed {seed}: {what}", run.fault))?;
        }
        // With a bug a life may go on as if nothing had happened.
        let is_over = if bug.is_some() { count >= BOUNDARIES_OF_BUGS } else { is_whole };
        if is_over {
            return Ok(count);
        }
    }
    unreachable!("the scenario has an end")
}
