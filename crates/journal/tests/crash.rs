//! The journal on a disk that stops, fails and loses power everywhere. `RIVERRUN_CRASH_SEEDS` makes the runs longer.

mod common;

use common::faulty::{Bug, plant};
use common::lives::{End, Fault, every};
use common::{History, open, smallest_options};
use riverrun_env::sim::SimEnv;
use riverrun_journal::SyncMethod::{self, BufferedFdatasync, DirectDsync};
use riverrun_journal::{JournalError, JournalOptions, Wants};

/// With fewer boundaries than this, the scenario does not serve its purpose any more.
const BOUNDARIES_MIN: u64 = 12;

fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("RIVERRUN_CRASH_SEEDS").ok().and_then(|count| count.parse().ok());
    0..count.unwrap_or(2)
}

fn hold_everywhere(fault: fn(u64) -> Fault, method: SyncMethod, end: End) {
    let boundaries = every(fault, method, end, None, seeds()).unwrap_or_else(|what| panic!("{what}"));
    assert!(boundaries >= BOUNDARIES_MIN, "{boundaries} boundaries");
}

#[test]
fn a_power_cut_at_any_boundary_costs_nothing_that_was_acked() {
    hold_everywhere(Fault::Stop, DirectDsync, End::Crash);
}

#[test]
fn power_cut_anywhere_loses_no_acked_buffered_entry() {
    hold_everywhere(Fault::Stop, BufferedFdatasync, End::Crash);
}

#[test]
fn kill_then_power_cut_loses_no_entry_that_was_seen() {
    hold_everywhere(Fault::Stop, DirectDsync, End::KillThenCrash);
    hold_everywhere(Fault::Stop, BufferedFdatasync, End::KillThenCrash);
}

#[test]
fn a_failed_sync_anywhere_costs_nothing_that_was_acked() {
    for method in [DirectDsync, BufferedFdatasync] {
        for end in [End::Crash, End::KillThenCrash] {
            hold_everywhere(Fault::Sync, method, end);
        }
    }
}

#[test]
fn a_failed_write_anywhere_costs_nothing_that_was_acked() {
    for method in [DirectDsync, BufferedFdatasync] {
        for end in [End::Crash, End::KillThenCrash] {
            hold_everywhere(Fault::Write, method, end);
        }
    }
}

/// A few groups, two of them unsynced; fails if a fault came.
fn short_life(sim: &SimEnv, history: &History, options: JournalOptions) -> Result<(), JournalError> {
    let (journal, ..) = open(&sim.env(), options)?;
    for (bytes, wants) in [(100, Wants::Sync), (1500, Wants::Write), (300, Wants::Write), (700, Wants::Sync)]
    {
        history.store(&journal, bytes, wants)?;
    }
    history.store(&journal, 900, Wants::Write)?;
    journal.close()
}

/// Recovers in one state of the disk, twice.
fn check_state(sim: &SimEnv, history: &History, options: JournalOptions) -> Result<(), String> {
    let recover = || {
        let (_journal, found, damaged) = open(&sim.env(), options).map_err(|error| error.to_string())?;
        if damaged > 0 {
            return Err("an entry is damaged".to_owned());
        }
        history.check(&found)
    };
    let first = recover()?;
    sim.fs.crash();
    if first == recover()? { Ok(()) } else { Err(format!("{first:?} was found first")) }
}

#[test]
fn every_state_that_a_power_cut_may_leave_has_what_was_acked() {
    let options = JournalOptions { alignment: 512, ..smallest_options(DirectDsync) };
    let states_max = 24 * usize::try_from(seeds().end).expect("a small number");
    let (mut states, mut exhausted) = (0, 0);
    for stop in 0.. {
        let (sim, history) = (SimEnv::new(stop), History::default());
        sim.fs.stop_after(stop);
        let is_whole = short_life(&sim, &history, options).is_ok();
        exhausted += usize::from(sim.fs.crash_states(states_max).is_exhaustive());
        for state in sim.crash_states(states_max) {
            check_state(&state, &history, options).unwrap_or_else(|what| panic!("stop {stop}: {what}"));
            states += 1;
        }
        if is_whole {
            break;
        }
    }
    assert!(states > 100 && exhausted > 5, "{states} states, all of them at {exhausted} stops");
}

/// Without a fault, a journal over files with the bug works as any other: only a loss shows the bug.
fn check_harmless_alone(bug: Bug, method: SyncMethod) {
    let (sim, history) = (SimEnv::new(1), History::default());
    let env = plant(&sim.env(), bug);
    for life in 0..3 {
        let (journal, found, damaged) = open(&env, smallest_options(method)).expect("opened");
        assert_eq!((history.check(&found).map(|found| found.len()), damaged), (Ok(2 * life), 0), "{bug:?}");
        for bytes in [100, 9000] {
            history.store(&journal, bytes, Wants::Sync).expect("stored");
        }
        journal.close().expect("closed");
    }
}

/// The same runs over files with a bug: one of them has to find it. Without the bug they find nothing.
fn is_found(bug: Bug) {
    for method in [DirectDsync, BufferedFdatasync] {
        check_harmless_alone(bug, method);
    }
    let faults: [fn(u64) -> Fault; 3] = [Fault::Stop, Fault::Sync, Fault::Write];
    for seeds in [0..1, 1..4] {
        for fault in faults {
            for method in [DirectDsync, BufferedFdatasync] {
                for end in [End::Crash, End::KillThenCrash] {
                    if every(fault, method, end, Some(bug), seeds.clone()).is_err() {
                        every(fault, method, end, None, seeds).unwrap_or_else(|what| panic!("{what}"));
                        return;
                    }
                }
            }
        }
    }
    panic!("no run has found {bug:?}");
}

#[test]
fn an_ack_before_its_sync_is_noticed() {
    is_found(Bug::AckBeforeSync);
}

#[test]
fn a_retried_sync_is_noticed() {
    is_found(Bug::RetryFailedSync);
}

#[test]
fn a_missing_sync_of_the_directory_is_noticed() {
    is_found(Bug::SkipDirectorySync);
}

#[test]
fn a_synced_block_that_is_written_again_is_noticed() {
    is_found(Bug::RewriteSyncedBlock);
}

#[test]
fn a_short_write_that_counts_as_done_is_noticed() {
    is_found(Bug::IgnoreShortWrite);
}
