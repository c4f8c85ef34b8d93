//! The journal on a disk that stops, fails and loses power everywhere. `RIVERRUN_CRASH_SEEDS` makes the runs longer.

mod common;

use common::faulty::Bug;
use common::lives::{End, Fault, every};
use riverrun_journal::SyncMethod::{self, BufferedFdatasync, DirectDsync};

/// Fewer boundaries than this, and the scenario no longer does what it is for.
const BOUNDARIES_MIN: u64 = 12;

fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("RIVERRUN_CRASH_SEEDS").ok().and_then(|count| count.parse().ok());
    0..count.unwrap_or(1)
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
fn a_power_cut_at_any_boundary_costs_nothing_that_was_acked_through_the_page_cache() {
    hold_everywhere(Fault::Stop, BufferedFdatasync, End::Crash);
}

#[test]
fn a_kill_at_any_boundary_and_a_power_cut_after_the_restart_cost_nothing_that_was_seen() {
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

/// The same runs over files with a bug: one of them has to find it.
fn is_found(bug: Bug) {
    let faults: [fn(u64) -> Fault; 3] = [Fault::Stop, Fault::Sync, Fault::Write];
    for seeds in [0..1, 1..4] {
        for fault in faults {
            for method in [DirectDsync, BufferedFdatasync] {
                for end in [End::Crash, End::KillThenCrash] {
                    if every(fault, method, end, Some(bug), seeds.clone()).is_err() {
                        return;
                    }
                }
            }
        }
    }
    panic!("nobody noticed {bug:?}");
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
