//! Each rule is needed: without it a search, or a scenario that is too deep for one, breaks a promise that a model with all rules keeps.
//! The trace is kept in `testdata/`; `RIVERRUN_REWRITE_GOLDEN=1` writes it.

use std::fmt::Write as _;
use std::path::PathBuf;

use riverrun_model::{
    Bounds, Invariant, Level, Limits, Model, Outcome, Quorum, Rule, Rules, Set, Setup, Step, Walked, guided,
    replay, search,
};

/// States that a search without a rule visits at most.
const STATES_MAX: usize = 3_000_000;

/// The milestones of a scenario that is too deep to be found by a search in the gate's time; none where a search finds it.
fn milestones(rule: Rule) -> &'static [&'static str] {
    match rule {
        // KIP-279: two leaders in a row, and neither has the other's record.
        Rule::CutToCommonEpoch => &[
            "fences 0",
            "1 learns",
            "1 appends",
            "fences 1",
            "2 learns",
            "2 appends",
            "1 learns",
            "unfences 1",
            "fences 2",
            "1 learns",
            "2 learns",
            "taken: p0 frame 1->2",
        ],
        // KAFKA-10706: the log is cut, and the epochs that it had are not.
        Rule::CutForgetsEpochs => &[
            "0 appends",
            "taken: p0 frame 0->1 epoch 1 [e1",
            "fences 0",
            "1 learns",
            "fences 1",
            "2 learns",
            "1 learns",
            "taken: p0 frame 2->1",
            "unfences 1",
            "fences 2",
            "1 learns",
            "1 appends",
            "0 learns",
            "taken: p0 frame 1->0",
        ],
        Rule::CutIsReplayed => &[
            "0 appends",
            "taken: p0 frame 0->2 epoch 1 [e1",
            "2 syncs",
            "fences 0",
            "1 learns",
            "1 appends",
            "1 syncs",
            "2 learns",
            "taken: p0 frame 1->2",
            "2 syncs",
            "taken: p0 ack 2.1->1 epoch 2 appended 1 synced 1",
            "1 moves",
        ],
        Rule::MarksOfThisLife => &[
            "taken, and a copy stays: p0 frame 0->2 epoch 1 []",
            "0 appends",
            "taken: p0 frame 0->2 epoch 1 [e1",
            "taken: p0 ack 2.1->0 epoch 1 appended 1",
            "taken: p0 frame 0->1 epoch 1 [e1",
            "taken: p0 ack 1.1->0 epoch 1 appended 1",
            "0 moves",
            "power cut of {2}",
            "2 registers",
            "the controller unfences 2",
            "0 learns",
            "taken: p0 frame 0->2 epoch 1 []",
            "taken: p0 ack 2.2->0",
            "taken: p0 alter by 0 epoch 1 version 2 to {0,1,2} with 2.2",
        ],
        Rule::Incarnation => &[
            "taken: p0 alter by 0 epoch 1 version 1 to {0,1}",
            "0 learns",
            "0 appends",
            "taken: p0 frame 0->2 epoch 1 [e1",
            "taken: p0 ack 2.1->0 epoch 1 appended 1",
            "taken: p0 frame 0->1 epoch 1 [e1",
            "taken: p0 ack 1.1->0 epoch 1 appended 1",
            "0 moves",
            "sent: p0 alter by 0 epoch 1 version 2 to {0,1,2} with 2.1",
            "power cut of {2}",
            "2 registers",
            "the controller unfences 2",
            "taken: p0 alter by 0 epoch 1 version 2 to {0,1,2} with 2.1",
        ],
        // KIP-966: the last replica stands, and falls with what it had not synced.
        Rule::UncleanExcluded => &[
            "0 appends",
            "taken: p0 frame 0->1 epoch 1 [e1",
            "taken: p0 ack 1.1->0 epoch 1 appended 1",
            "taken: p0 frame 0->2 epoch 1 [e1",
            "taken: p0 ack 2.1->0 epoch 1 appended 1",
            "0 moves",
            "fences 2",
            "fences 1",
            "power cut of {0}",
            "0 registers",
        ],
        // Raft's figure 8: an older record reaches a majority, and a newer one that did not is chosen above it.
        Rule::EpochStartNoted | Rule::RankByEpoch => &[
            "0 appends",
            "fences 0",
            "chooses 2",
            "2 learns",
            "2 appends",
            "fences 2",
            "0 reports",
            "1 reports",
            "chooses 0",
            "0 learns",
            "1 learns",
            "taken: p0 frame 0->1 epoch 3 [e1",
            "taken: p0 ack 1.1->0 epoch 3 appended 1",
            "0 moves",
            "unfences 0",
            "fences 0",
            "1 reports",
            "2 reports",
            "chooses 2",
            "2 learns",
        ],
        Rule::AckFromEpochStart => &[
            "0 appends",
            "0 appends",
            "fences 0",
            "chooses 2",
            "2 learns",
            "2 appends",
            "fences 2",
            "0 reports",
            "1 reports",
            "chooses 0",
            "0 learns",
            "1 learns",
            "taken: p0 frame 0->1 epoch 3 [e1:1] of 2",
            "taken: p0 ack 1.1->0 epoch 3 appended 1",
            "0 moves",
            "unfences 0",
            "fences 0",
            "1 reports",
            "2 reports",
            "chooses 2",
            "2 learns",
        ],
        Rule::ShrinkAfterEpochBegan => &[
            "0 appends",
            "taken: p0 frame 0->1 epoch 1 [e1",
            "taken: p0 ack 1.1->0 epoch 1 appended 1",
            "0 moves",
            "fences 0",
            "1 reports",
            "2 reports",
            "chooses 1",
            "1 learns",
            "taken: p0 alter by 1 epoch 2 version 3 to {1,2}",
            "1 learns",
            "fences 1",
            "2 reports",
            "chooses 2",
            "2 learns",
        ],
        _ => &[],
    }
}

/// The smallest setup and bounds in which a rule is missed.
fn case(rule: Rule) -> (Setup, Bounds) {
    let base = Setup::default();
    let bounds = Bounds { values: 1, epochs: 1, messages: 1, ..Bounds::NONE };
    // Without power cuts a level without syncs has fewer steps to the same end.
    let unsynced = Setup { level: Level::SyncAsync, ..base };
    let majority = Setup { quorum: Quorum::Majority, ..unsynced };
    match rule {
        Rule::MaximalSet | Rule::LeaderFromCandidates => {
            (base, Bounds { epochs: 2, changes: 1, fences: 1, ..bounds })
        }
        Rule::VersionChecked => (base, Bounds { epochs: 2, messages: 2, changes: 1, fences: 1, ..bounds }),
        Rule::JoinAtHighWatermark => (base, Bounds { changes: 2, ..bounds }),
        Rule::JoinAtEpochStart => (base, Bounds { epochs: 2, changes: 2, fences: 1, ..bounds }),
        Rule::FencedStaysOut => (base, Bounds { values: 0, changes: 2, fences: 1, ..bounds }),
        Rule::RefusalMovesVersion => (base, Bounds { values: 0, changes: 2, fences: 1, copies: 1, ..bounds }),
        Rule::MinimumForHighWatermark => (base, Bounds { changes: 1, fences: 1, ..bounds }),
        Rule::EligibleForgotten => (base, Bounds { changes: 1, fences: 2, ..bounds }),
        Rule::NewLifeNewEpoch => (base, Bounds { values: 2, epochs: 2, crashes: 1, ..bounds }),
        Rule::CutByEpoch => (base, Bounds { epochs: 2, fences: 1, ..bounds }),
        Rule::CutToCommonEpoch => (unsynced, Bounds { values: 2, epochs: 4, fences: 3, ..bounds }),
        Rule::CutForgetsEpochs => (unsynced, Bounds { values: 2, epochs: 4, fences: 3, ..bounds }),
        Rule::CutIsReplayed => (base, Bounds { values: 2, epochs: 2, fences: 1, power_cuts: 1, ..bounds }),
        Rule::EpochOfImage => (base, Bounds { values: 2, epochs: 2, fences: 1, ..bounds }),
        Rule::Incarnation => (unsynced, Bounds { changes: 2, power_cuts: 1, epochs: 2, ..bounds }),
        Rule::MarksOfThisLife => {
            (unsynced, Bounds { messages: 3, slots: 2, changes: 1, power_cuts: 1, copies: 1, ..bounds })
        }
        Rule::SyncedMark => (base, Bounds { epochs: 2, power_cuts: 1, ..bounds }),
        Rule::UncleanExcluded => (unsynced, Bounds { epochs: 2, fences: 2, power_cuts: 1, ..bounds }),
        Rule::Lease | Rule::UnfenceCaughtUp => {
            (Setup { level: Level::AsyncSync, ..base }, Bounds { epochs: 2, fences: 1, ..bounds })
        }
        Rule::TargetInSync => (
            Setup { replicas: Set::of(&[0, 1]), target: Set::of(&[0, 2]), ..base },
            Bounds { changes: 1, ..bounds },
        ),
        Rule::HighWatermarkWithinLog => (base, Bounds { values: 2, changes: 1, ..bounds }),
        Rule::EpochStartNoted | Rule::RankByEpoch => {
            (majority, Bounds { values: 2, epochs: 4, fences: 3, ..bounds })
        }
        Rule::AckFromEpochStart => (majority, Bounds { values: 3, epochs: 4, fences: 3, ..bounds }),
        Rule::ReportFences => (majority, Bounds { epochs: 2, fences: 1, ..bounds }),
        Rule::LeaderAloneShrinks => (majority, Bounds { epochs: 3, fences: 2, ..bounds }),
        Rule::ShrinkAfterEpochBegan => {
            (majority, Bounds { values: 2, epochs: 4, fences: 3, changes: 1, ..bounds })
        }
    }
}

fn golden(rule: Rule) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata").join(format!("{rule}.txt"))
}

/// What a model without a rule breaks, how, and how many states a search visited to find it.
fn broken_without(rule: Rule, model: &Model) -> (Invariant, Vec<String>, usize) {
    let texts = |trace: &[Step]| trace.iter().map(ToString::to_string).collect::<Vec<_>>();
    if milestones(rule).is_empty() {
        match search(model, Limits::states(STATES_MAX)) {
            Outcome::Broken { invariant, trace, states } => return (invariant, texts(&trace), states),
            other => panic!("{rule}: nothing is broken without it: {other:?}"),
        }
    }
    match guided(model, milestones(rule), STATES_MAX) {
        Ok(Walked::Broken { invariant, trace }) => (invariant, texts(&trace), 0),
        other => panic!("{rule}: the scenario breaks nothing without it: {other:?}"),
    }
}

fn check(rule: Rule) {
    let (setup, bounds) = case(rule);
    let lacking = Model::new(setup, bounds, Rules::without(rule));
    let complete = Model::new(setup, bounds, Rules::default());
    let began = std::time::Instant::now();
    let (invariant, trace, states) = broken_without(rule, &lacking);
    println!("{rule}: {states} states, {} steps, {invariant}, {:?}", trace.len(), began.elapsed());
    let mut text = format!("# Without {rule} these steps break {invariant}.\n");
    for line in &trace {
        writeln!(text, "{line}").unwrap();
    }
    if std::env::var_os("RIVERRUN_REWRITE_GOLDEN").is_some() {
        std::fs::write(golden(rule), &text).unwrap();
    }
    let kept = std::fs::read_to_string(golden(rule)).unwrap();
    let lines = || kept.lines().filter(|line| !line.starts_with('#'));
    assert_eq!(replay(&lacking, lines()), Ok(Some(invariant)), "{rule}: the kept trace");
    // With the rule, the trace cannot be gone to its end, or breaks nothing there; nor does a search as wide break anything.
    assert!(!matches!(replay(&complete, lines()), Ok(Some(_))), "{rule}: the kept trace with the rule");
    let wide = search(&complete, Limits::states(states.clamp(20_000, 200_000)));
    assert!(!matches!(wide, Outcome::Broken { .. }), "{rule}: with all rules {wide:?}");
}

macro_rules! needed {
    ($($test:ident: $rule:ident,)+) => {
        $(#[test] fn $test() { check(Rule::$rule); })+

        #[test]
        fn every_rule_has_a_test() {
            assert_eq!([$(Rule::$rule),+].as_slice(), Rule::ALL);
        }
    };
}

needed! {
    the_maximal_set_is_needed: MaximalSet,
    joining_at_the_high_watermark_is_needed: JoinAtHighWatermark,
    joining_at_the_epoch_start_is_needed: JoinAtEpochStart,
    incarnations_are_needed: Incarnation,
    keeping_the_fenced_out_is_needed: FencedStaysOut,
    checking_the_version_is_needed: VersionChecked,
    moving_the_version_at_a_refusal_is_needed: RefusalMovesVersion,
    the_minimum_is_needed: MinimumForHighWatermark,
    forgetting_the_eligible_is_needed: EligibleForgotten,
    leaders_from_candidates_are_needed: LeaderFromCandidates,
    a_new_epoch_for_a_new_life_is_needed: NewLifeNewEpoch,
    cutting_by_epoch_is_needed: CutByEpoch,
    cutting_to_a_common_epoch_is_needed: CutToCommonEpoch,
    forgetting_epochs_at_a_cut_is_needed: CutForgetsEpochs,
    replaying_cuts_is_needed: CutIsReplayed,
    the_epoch_of_the_image_is_needed: EpochOfImage,
    marks_of_this_life_are_needed: MarksOfThisLife,
    the_synced_mark_is_needed: SyncedMark,
    excluding_the_unclean_is_needed: UncleanExcluded,
    the_lease_is_needed: Lease,
    unfencing_the_caught_up_is_needed: UnfenceCaughtUp,
    the_target_in_sync_is_needed: TargetInSync,
    a_high_watermark_within_the_log_is_needed: HighWatermarkWithinLog,
    noting_the_epoch_start_is_needed: EpochStartNoted,
    fencing_by_reports_is_needed: ReportFences,
    ranking_by_epoch_is_needed: RankByEpoch,
    acking_from_the_epoch_start_is_needed: AckFromEpochStart,
    shrinking_by_the_leader_alone_is_needed: LeaderAloneShrinks,
    shrinking_after_the_epoch_began_is_needed: ShrinkAfterEpochBegan,
}

#[test]
fn every_rule_stands_in_the_page() {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/replication.md");
    let page = std::fs::read_to_string(page).unwrap();
    let missing: Vec<_> = Rule::ALL.iter().filter(|rule| !page.contains(&format!("(`{rule}`)"))).collect();
    assert!(missing.is_empty(), "docs/replication.md lacks {missing:?}");
}
