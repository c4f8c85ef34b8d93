//! The harness itself under test: a faultless run passes, and each planted fault is found and named.

use super::*;

/// Two producers, one of them idempotent, in one partition; a reader that commits.
const LINES: &[&str] = &[
    "stream 1 t 0 once",
    "stream 2 t 0 again",
    "sent 1 0 3",
    "sent 2 0 2",
    "acked 1 0 2 0",
    "acked 2 0 1 2",
    "seen t 0 0 1 0",
    "seen t 0 1 1 1",
    "committing g t 0 2",
    "committed g t 0 2",
    "crash 1",
    "acked 1 2 1 4",
    "committing g t 0 4",
];

fn ledger(lines: &[&str]) -> Ledger {
    let mut ledger = Ledger::default();
    lines.iter().try_for_each(|line| ledger.add(line.parse()?)).unwrap();
    ledger
}

fn partition() -> TopicPartition {
    TopicPartition::new("t", 0)
}

/// The partition holds these records from offset 0, given as stream and sequence; the group's position is `position`.
fn observed(records: &[(u32, u64)], position: Option<i64>) -> Observed {
    let identity = |(stream, sequence): &(u32, u64)| Identity { stream: *stream, sequence: *sequence };
    let records: Vec<_> = (0..).zip(records).map(|(offset, record)| (offset, Ok(identity(record)))).collect();
    let log = ObservedLog { start: 0, end: records.len() as i64, records };
    let positions = position.map(|offset| (("g".to_owned(), partition()), offset)).into_iter().collect();
    Observed { logs: BTreeMap::from([(partition(), log)]), positions }
}

/// A correct partition: the second record of stream 2 was stored, but not acked.
const SOUND: [(u32, u64); 5] = [(1, 0), (1, 1), (2, 0), (2, 1), (1, 2)];

fn kinds(lines: &[&str], observed: &Observed) -> Vec<Kind> {
    verify(&ledger(lines), observed).findings.iter().map(|finding| finding.kind).collect()
}

fn kinds_of(records: &[(u32, u64)]) -> Vec<Kind> {
    kinds(LINES, &observed(records, Some(2)))
}

#[test]
fn a_sound_log_has_no_findings() {
    let verdict = verify(&ledger(LINES), &observed(&SOUND, Some(2)));
    assert_eq!((verdict.findings.as_slice(), verdict.records_read, verdict.repeats), ([].as_slice(), 5, 0));
}

#[test]
fn run_without_acks_reader_or_commits_tests_nothing() {
    let tested = |without: &str| {
        let lines: Vec<_> = LINES.iter().copied().filter(|line| !line.starts_with(without)).collect();
        verify(&ledger(&lines), &observed(&SOUND, Some(2))).tested
    };
    assert!(tested("nothing").check().is_ok());
    assert_eq!(tested("acked").missing(), ["acked records"]);
    assert_eq!(tested("seen").missing(), ["records that a reader saw"]);
    // A commit that was only attempted does not count.
    assert_eq!(tested("committed").missing(), ["commits"]);
    assert!(tested("seen").check().unwrap_err().to_string().contains("nothing was tested"));
}

#[test]
fn an_acked_record_that_is_gone_is_lost() {
    assert_eq!(kinds_of(&SOUND[..4]), [Kind::Lost]);
    assert_eq!(
        kinds(LINES, &Observed { logs: BTreeMap::new(), ..observed(&[], Some(2)) })[..4],
        [Kind::Lost; 4]
    );
}

#[test]
fn misplaced_record_is_lost_and_its_sighting_vanished() {
    let found = kinds_of(&[(1, 0), (2, 1), (2, 0), (1, 1), (1, 2)]);
    assert!(found.contains(&Kind::Lost) && found.contains(&Kind::Vanished), "{found:?}");
}

#[test]
fn a_record_that_nobody_sent_is_invented() {
    assert_eq!(kinds_of(&[SOUND.as_slice(), &[(1, 3)]].concat()), [Kind::Invented]);
    assert_eq!(kinds_of(&[SOUND.as_slice(), &[(3, 0)]].concat()), [Kind::Invented]);
}

#[test]
fn a_record_of_another_partition_is_invented() {
    let lines = [LINES, &["stream 3 t 1 once", "sent 3 0 1"]].concat();
    assert_eq!(kinds(&lines, &observed(&[SOUND.as_slice(), &[(3, 0)]].concat(), Some(2))), [Kind::Invented]);
}

#[test]
fn foreign_value_is_invented() {
    let mut observed = observed(&SOUND, Some(2));
    let log = observed.logs.get_mut(&partition()).unwrap();
    log.records[3].1 = Err("zeros".to_owned());
    assert_eq!(kinds(LINES, &observed), [Kind::Invented]);
}

#[test]
fn swapped_records_of_a_producer_are_reordered() {
    let lines = ["stream 1 t 0 once", "sent 1 0 3"];
    assert_eq!(kinds(&lines, &observed(&[(1, 1), (1, 0), (1, 2)], None)), [Kind::Reordered]);
}

#[test]
fn repeat_is_a_fault_only_of_an_idempotent_producer() {
    assert_eq!(kinds_of(&[SOUND.as_slice(), &[(1, 2)]].concat()), [Kind::Repeated]);
    let records = [SOUND.as_slice(), &[(2, 1)]].concat();
    let verdict = verify(&ledger(LINES), &observed(&records, Some(2)));
    assert_eq!((verdict.findings.as_slice(), verdict.repeats), ([].as_slice(), 1));
}

#[test]
fn hole_or_end_beyond_the_records_is_a_gap() {
    let mut with_hole = observed(&SOUND, Some(2));
    drop(with_hole.logs.get_mut(&partition()).unwrap().records.remove(3));
    assert_eq!(kinds(LINES, &with_hole), [Kind::Gap]);
    let mut short = observed(&SOUND, Some(2));
    short.logs.get_mut(&partition()).unwrap().end = 6;
    assert_eq!(kinds(LINES, &short), [Kind::Gap]);
}

/// As [`SOUND`], without the records before `start`.
fn beginning_at(start: i64) -> Observed {
    let mut observed = observed(&SOUND, Some(2));
    let log = observed.logs.get_mut(&partition()).unwrap();
    log.records.retain(|(offset, _)| *offset >= start);
    log.start = start;
    observed
}

#[test]
fn missing_beginning_is_a_gap_unless_it_was_deleted() {
    let found = |deletions: &[&str], start| kinds(&[LINES, deletions].concat(), &beginning_at(start));
    assert_eq!(found(&[], 2), [Kind::Gap, Kind::Lost, Kind::Lost, Kind::Vanished, Kind::Vanished]);
    assert_eq!(found(&["deleted t 0 2"], 2), []);
    assert_eq!(found(&["deletable t 0 2"], 2), []);
    assert_eq!(found(&["deletable t 0 2"], 1), [], "it need not all be gone");
    for deletions in [&["deleted t 0 1"][..], &["deletable t 0 1"], &["deletable t 0 2", "begins t 0 1"]] {
        assert_eq!(found(deletions, 2), [Kind::Gap, Kind::Lost, Kind::Vanished], "{deletions:?}");
    }
    assert_eq!(found(&["deleted t 1 2"], 2)[0], Kind::Gap, "another partition's deletion excuses nothing");
}

#[test]
fn deleted_records_that_come_back_are_found() {
    let found = |deletions: &[&str], start| kinds(&[LINES, deletions].concat(), &beginning_at(start));
    assert_eq!(found(&["deleted t 0 2"], 0), [Kind::CameBack]);
    assert_eq!(found(&["deleted t 0 2", "deletable t 0 4"], 1), [Kind::CameBack]);
}

#[test]
fn position_is_the_last_acked_commit_or_a_later_attempt() {
    for (position, sound) in
        [(Some(2), true), (Some(4), true), (Some(1), false), (Some(3), false), (None, false)]
    {
        let found = kinds(LINES, &observed(&SOUND, position));
        let expected = if sound { vec![] } else { vec![Kind::CommitWentBack] };
        assert_eq!(found, expected, "{position:?}");
    }
}

#[test]
fn commit_that_went_back_between_two_crashes_is_found() {
    // After crash 1 the server has no position, or the one before; then the reader commits as if nothing had happened.
    for (found, sound) in [("2", true), ("4", true), ("1", false), ("-1", false), ("5", false)] {
        let found_then = format!("found g t 0 {found}");
        let hidden = [&found_then, "committing g t 0 5", "committed g t 0 5", "crash 2", "found g t 0 5"];
        let lines = [LINES, &hidden].concat();
        let expected = if sound { vec![] } else { vec![Kind::CommitWentBack] };
        assert_eq!(kinds(&lines, &observed(&SOUND, Some(5))), expected, "{found}");
    }
}

#[test]
fn unanswered_commit_that_was_found_may_not_go_back() {
    let lines = [LINES, &["found g t 0 4", "crash 2", "found g t 0 2"]].concat();
    let verdict = verify(&ledger(&lines), &observed(&SOUND, Some(2)));
    let texts: Vec<_> = verdict.findings.iter().map(ToString::to_string).collect();
    assert!(matches!(texts.as_slice(), [text] if text.contains("after crash 2")), "{texts:?}");
}

#[test]
fn ack_without_an_offset_requires_the_record_anywhere() {
    let lines = ["stream 1 t 0 once", "sent 1 0 2", "acked 1 0 1 -1"];
    assert_eq!(kinds(&lines, &observed(&[(1, 0)], None)), []);
    assert_eq!(kinds(&lines, &observed(&[(1, 1)], None)), [Kind::Lost]);
}

#[test]
fn only_unsynced_records_may_be_gone_after_a_crash() {
    let after = |event: Option<&'static str>| {
        let crash = LINES.iter().position(|line| *line == "crash 1").unwrap();
        let lines = [&["changing"][..], &LINES[..crash], event.as_slice(), &LINES[crash..]].concat();
        let verdict = verify(&ledger(&lines), &observed(&[], Some(2)));
        let kinds: Vec<_> = verdict.findings.iter().map(|finding| finding.kind).collect();
        (kinds, verdict.excused)
    };
    assert_eq!(after(None), (vec![], Excused { acked: 4, seen: 2 }));
    // The level was found in the life before.
    assert_eq!(after(Some("syncs 1")).0, []);
    let (kinds, excused) = after(Some("syncs 0"));
    assert_eq!(kinds, [Kind::Lost, Kind::Lost, Kind::Lost, Kind::Vanished, Kind::Vanished]);
    assert_eq!(excused, Excused { acked: 1, seen: 0 }, "it was sent before the crash and acked after it");
}

#[test]
fn found_record_binds_again_once_a_level_syncs() {
    // A record that no level had synced before the first crash is gone in the end.
    let after = |events: &[&str]| {
        let begin = ["changing", "stream 1 t 0 once", "sent 1 0 1", "acked 1 0 1 0", "crash 1"];
        let verdict = verify(&ledger(&[&begin[..], events].concat()), &observed(&[], None));
        let kinds: Vec<_> = verdict.findings.iter().map(|finding| finding.kind).collect();
        (kinds, verdict.excused)
    };
    let excused = (vec![], Excused { acked: 1, seen: 0 });
    let found = "left t 0 0 1 0";
    for events in [
        // The first crash may have taken it: it was not found since.
        &["syncs 1", "crash 2"][..],
        // It was found, and no level synced it before the next crash.
        &[found, "crash 2", "syncs 2", "crash 3"],
        // The level was found in the life before.
        &[found, "syncs 0", "crash 2"],
    ] {
        assert_eq!(after(events), excused, "{events:?}");
    }
    for events in [
        &[found, "syncs 1", "crash 2"][..],
        &["syncs 1", found, "crash 2"],
        &[found, "crash 2", found, "syncs 2", "changing", "crash 3"],
    ] {
        assert_eq!(after(events).0, [Kind::Vanished], "{events:?}");
    }
}

#[test]
fn losses_are_told_apart_from_other_findings() {
    let verdict = verify(&ledger(LINES), &observed(&[(1, 0), (2, 0), (2, 0)], Some(1)));
    let (losses, faults) = verdict.split();
    assert!(losses.iter().all(|finding| matches!(finding.kind, Kind::Lost | Kind::Vanished)));
    assert_eq!(faults.iter().map(|finding| finding.kind).collect::<Vec<_>>(), [Kind::CommitWentBack]);
    assert!(shown(&losses).contains("lost"), "{}", shown(&losses));
}
