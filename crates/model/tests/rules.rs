//! Each rule is needed: without it a search, or a scenario that is too deep for one, breaks an invariant that a model with all
//! rules keeps. The trace is kept in `testdata/`; `RIVERRUN_REWRITE_GOLDEN=1` writes it. A scenario in `testdata/scenarios/` is a
//! list of milestones.

use std::path::PathBuf;
use std::{fs, io};

use riverrun_model::{
    Invariant, Limits, Model, Outcome, Rule, Rules, Step, Walked, case, guided, replay, search,
};

/// States that a search without a rule visits at most.
const STATES_MAX: usize = 3_000_000;

/// The milestones of a scenario that is too deep to be found by a search in the gate's time; none where a search finds it.
fn milestones(rule: Rule) -> Vec<String> {
    let file = testdata().join("scenarios").join(format!("{rule}.txt"));
    let text = fs::read_to_string(file).unwrap_or_default();
    steps_of(&text).map(str::to_owned).collect()
}

/// The lines of a file of steps that are no comment.
fn steps_of(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with('#'))
}

fn testdata() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata")
}

/// The invariant that a model without a rule breaks, the steps to it, and the number of states that a search visited to find it.
fn broken_without(rule: Rule, model: &Model) -> (Invariant, Vec<String>, usize) {
    let texts = |trace: &[Step]| trace.iter().map(ToString::to_string).collect::<Vec<_>>();
    let milestones = milestones(rule);
    if milestones.is_empty() {
        match search(model, Limits::states(STATES_MAX)) {
            Outcome::Broken { invariant, trace, states } => return (invariant, texts(&trace), states),
            other => panic!("{rule}: nothing is broken without it: {other:?}"),
        }
    }
    let milestones: Vec<&str> = milestones.iter().map(String::as_str).collect();
    match guided(model, &milestones, STATES_MAX) {
        Ok(Walked::Broken { invariant, trace }) => (invariant, texts(&trace), 0),
        other => panic!("{rule}: the scenario breaks nothing without it: {other:?}"),
    }
}

fn check(rule: Rule) -> io::Result<()> {
    let (setup, bounds) = case(rule);
    let lacking = Model::new(setup, bounds, Rules::without(rule));
    let complete = Model::new(setup, bounds, Rules::default());
    let (invariant, trace, states) = broken_without(rule, &lacking);
    println!("{rule}: {states} states, {} steps, {invariant}", trace.len());
    let golden = testdata().join(format!("{rule}.txt"));
    if std::env::var_os("RIVERRUN_REWRITE_GOLDEN").is_some() {
        fs::write(
            &golden,
            format!("# Without {rule} these steps break {invariant}.\n{}\n", trace.join("\n")),
        )?;
    }
    let kept = fs::read_to_string(golden)?;
    assert_eq!(replay(&lacking, steps_of(&kept)), Ok(Some(invariant)), "{rule}: the kept trace");
    let milestones = milestones(rule);
    let milestones: Vec<&str> = milestones.iter().map(String::as_str).collect();
    let guarded = guided(&complete, &milestones, 200_000);
    assert!(!matches!(guarded, Ok(Walked::Broken { .. })), "{rule}: the scenario with the rule: {guarded:?}");
    // With the rule, the trace cannot be gone to its end, or breaks nothing there; nor does a search as wide break anything.
    assert!(
        !matches!(replay(&complete, steps_of(&kept)), Ok(Some(_))),
        "{rule}: the kept trace with the rule"
    );
    let wide = search(&complete, Limits::states(states.clamp(20_000, 200_000)));
    assert!(!matches!(wide, Outcome::Broken { .. }), "{rule}: with all rules {wide:?}");
    Ok(())
}

macro_rules! needed {
    ($($test:ident: $rule:ident,)+) => {
        $(#[test] fn $test() -> io::Result<()> { check(Rule::$rule) })+

        #[test]
        fn every_rule_has_a_test() {
            assert_eq!([$(Rule::$rule),+].as_slice(), Rule::ALL);
        }
    };
}

needed! {
    maximal_set_is_needed: MaximalSet,
    join_at_high_watermark_is_needed: JoinAtHighWatermark,
    join_at_epoch_start_is_needed: JoinAtEpochStart,
    incarnation_is_needed: Incarnation,
    fenced_stays_out_is_needed: FencedStaysOut,
    version_checked_is_needed: VersionChecked,
    refusal_moves_version_is_needed: RefusalMovesVersion,
    minimum_for_high_watermark_is_needed: MinimumForHighWatermark,
    eligible_forgotten_is_needed: EligibleForgotten,
    leader_from_candidates_is_needed: LeaderFromCandidates,
    new_life_new_epoch_is_needed: NewLifeNewEpoch,
    cut_by_epoch_is_needed: CutByEpoch,
    cut_to_common_epoch_is_needed: CutToCommonEpoch,
    own_epoch_stays_is_needed: OwnEpochStays,
    cut_forgets_epochs_is_needed: CutForgetsEpochs,
    cut_is_replayed_is_needed: CutIsReplayed,
    epoch_of_image_is_needed: EpochOfImage,
    marks_of_this_life_is_needed: MarksOfThisLife,
    synced_mark_is_needed: SyncedMark,
    unclean_excluded_is_needed: UncleanExcluded,
    lease_is_needed: Lease,
    unfence_caught_up_is_needed: UnfenceCaughtUp,
    resigns_is_needed: Resigns,
    target_in_sync_is_needed: TargetInSync,
    high_watermark_within_log_is_needed: HighWatermarkWithinLog,
    epoch_start_noted_is_needed: EpochStartNoted,
    report_fences_is_needed: ReportFences,
    rank_by_epoch_is_needed: RankByEpoch,
    ack_from_epoch_start_is_needed: AckFromEpochStart,
    leader_alone_shrinks_is_needed: LeaderAloneShrinks,
    shrink_after_epoch_began_is_needed: ShrinkAfterEpochBegan,
}

#[test]
fn every_rule_and_invariant_stands_in_the_page() {
    let page = testdata().join("../../../docs/replication.md");
    let page = fs::read_to_string(page).unwrap();
    let rules = Rule::ALL.iter().map(|rule| format!("(`{rule}`)"));
    let invariants = Invariant::ALL.iter().map(|invariant| format!("| `{invariant}` |"));
    let missing: Vec<_> = rules.chain(invariants).filter(|text| !page.contains(text)).collect();
    assert!(missing.is_empty(), "docs/replication.md lacks {missing:?}");
}

#[test]
fn a_test_has_the_name_of_its_rule() {
    let source = fs::read_to_string(testdata().join("../tests/rules.rs")).unwrap();
    for rule in Rule::ALL {
        let named = format!("{}_is_needed: {rule:?},", rule.name().replace('-', "_"));
        assert!(source.contains(&named), "{named}");
    }
}
