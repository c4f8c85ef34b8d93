//! Bugs that are planted, each of which the checks have to find; and that each check is needed for one of them.

use super::EVENTS;
use super::faults::Fault;
use super::invariants::Broken;
use super::rig::Rig;
use crate::planted::Planted;

/// The promise that a run with a planted bug breaks, with these checks left out.
fn broken(planted: Planted, faults: &'static [Fault], seed: u64, left_out: &[Broken]) -> Option<Broken> {
    let run = || {
        let mut rig = Rig::new(seed, planted);
        rig.faults = faults;
        rig.seen.left_out = left_out.to_vec();
        rig.run(EVENTS).err()
    };
    std::panic::catch_unwind(run).unwrap_or(Some(Broken::Panicked))
}

/// The faults with which a bug shows soon, and the seed from which on.
type Where = (Planted, &'static [Fault], u64);

/// Bugs that are not found within some seeds.
fn missed(bugs: &[Where]) -> Vec<Planted> {
    let is_missed = |bug: &&Where| {
        let (planted, faults, first) = **bug;
        let found = (first..first + 40).find_map(|seed| Some((seed, broken(planted, faults, seed, &[])?)));
        println!("{planted:?}: {found:?}");
        found.is_none()
    };
    bugs.iter().filter(is_missed).map(|(planted, ..)| *planted).collect()
}

const STOPS: &[Fault] = &[Fault::Kill, Fault::CutPower, Fault::CutAllPower, Fault::Start, Fault::Start];
const SYNCS: &[Fault] = &[Fault::FailSync, Fault::FailSync, Fault::Start, Fault::Start, Fault::CutPower];
const SLOW: &[Fault] = &[Fault::CutPowerInSync, Fault::CutPowerInSync, Fault::Start, Fault::Start];
const WAYS: &[Fault] =
    &[Fault::Isolate, Fault::Isolate, Fault::HealWays, Fault::Start, Fault::Kill, Fault::RestartInTurns];
const FLIPS: &[Fault] = &[Fault::FlipByte, Fault::Start];
const LIVES: &[Fault] =
    &[Fault::LoseDirectory, Fault::CutWay, Fault::Start, Fault::HealWays, Fault::CutPower];

#[test]
fn bugs_of_syncs_are_found() {
    let bugs: [Where; 6] = [
        (Planted::VoteNotSynced, &Fault::ALL, 2),
        (Planted::VoteFromMemory, &Fault::ALL, 1),
        (Planted::EntriesNotSynced, STOPS, 1),
        (Planted::AnsweredBeforeSync, SLOW, 1),
        (Planted::FailedSyncIgnored, SYNCS, 4),
        (Planted::CachedTailBelieved, SYNCS, 2),
    ];
    assert_eq!(missed(&bugs), []);
}

#[test]
fn bugs_of_reading_the_log_are_found() {
    let bugs: [Where; 4] = [
        (Planted::ChecksumNotChecked, &Fault::ALL, 6),
        (Planted::OldEntriesKept, WAYS, 2),
        (Planted::TruncationNotWritten, WAYS, 2),
        (Planted::NoMark, FLIPS, 2),
    ];
    assert_eq!(missed(&bugs), []);
}

#[test]
fn bugs_of_snapshots_are_found() {
    let bugs: [Where; 5] = [
        (Planted::PurgedBeyond, STOPS, 2),
        (Planted::PurgedBeforeSnapshot, STOPS, 6),
        (Planted::SnapshotMidApply, STOPS, 2),
        (Planted::MembershipLost, STOPS, 1),
        (Planted::VoteLostAtRewrite, STOPS, 1),
    ];
    assert_eq!(missed(&bugs), []);
}

#[test]
fn bugs_of_who_is_who_are_found() {
    let bugs: [Where; 4] = [
        (Planted::LeadsOnAfterAStart, SLOW, 3),
        (Planted::IdReused, STOPS, 1),
        (Planted::OtherLifeAnswers, LIVES, 19),
        (Planted::VoteAlwaysGranted, WAYS, 3),
    ];
    assert_eq!(missed(&bugs), []);
}

/// Checks that others imply, and the one that finds the same later. They name the cause, and sooner.
const IMPLIED: [(Broken, Broken, Where); 2] = [
    (Broken::LeaderIncomplete, Broken::AcceptedLost, (Planted::AnsweredBeforeSync, SLOW, 1)),
    (Broken::Stopped, Broken::NoStart, (Planted::TruncationNotWritten, WAYS, 2)),
];

/// The other checks, and where one finds a bug that no other finds.
const NEEDED: [(Broken, Where); 7] = [
    (Broken::TwoLeaders, (Planted::VoteAlwaysGranted, WAYS, 3)),
    (Broken::AcceptedLost, (Planted::AnsweredBeforeSync, SLOW, 1)),
    (Broken::Digests, (Planted::OldEntriesKept, WAYS, 2)),
    (Broken::WentBack, (Planted::VoteFromMemory, &Fault::ALL, 1)),
    (Broken::AckedLost, (Planted::NoMark, FLIPS, 2)),
    (Broken::NoProgress, (Planted::MembershipLost, STOPS, 1)),
    (Broken::NoStart, (Planted::ChecksumNotChecked, &Fault::ALL, 6)),
];

/// Whether a run somewhere there breaks this, with these checks left out, and that with it left out, too.
fn is_found_so(check: Broken, then: Option<Broken>, left_out: &[Broken], place: Where) -> bool {
    let (planted, faults, first) = place;
    let without = [left_out, &[check]].concat();
    (first..first + 40).any(|seed| {
        broken(planted, faults, seed, left_out) == Some(check)
            && broken(planted, faults, seed, &without) == then
    })
}

#[test]
fn each_check_finds_what_no_other_finds_or_is_implied() {
    for (check, then, place) in IMPLIED {
        assert!(is_found_so(check, Some(then), &[], place), "{check:?}");
    }
    let implied = IMPLIED.map(|(check, ..)| check);
    for (check, place) in NEEDED {
        assert!(is_found_so(check, None, &implied, place), "{check:?}");
    }
}
