use super::*;

const WARM: FetchStart = FetchStart::WARM;

/// A pass without a session that begins at this place.
fn pass(begin_at: usize, count: usize) -> PassPlan {
    PassPlan::new(FetchStart { begin_at, ..WARM }, count, false)
}

/// Notes the end of a read of a log that was open, at a clock that stands still.
fn note(pass: &mut PassPlan, place: usize, end: ReadEnd) {
    pass.note(place, end, true, || Duration::ZERO);
}

fn proved(proved_bytes: u64) -> ReadEnd {
    ReadEnd::Done { proved_bytes, met_disk: false }
}

#[test]
fn only_cached_ranges_out_of_a_spell_go_by_a_shared_thread() {
    let table = [
        (Ends::Cached, false, Thread::Shared),
        (Ends::Cached, true, Thread::Own),
        (Ends::Missing, false, Thread::Own),
        (Ends::Missing, true, Thread::Own),
    ];
    for (ends, has_spell, thread) in table {
        assert_eq!(Thread::of_range(ends, has_spell), thread, "{ends:?} {has_spell}");
    }
}

#[test]
fn a_shared_thread_has_no_patience_and_copies_little() {
    assert_eq!(Thread::Shared.patience(), Patience::None);
    assert_eq!(Thread::Own.patience(), Patience::Slice);
    let table = [
        (Thread::Shared, COPIED_BYTES_MAX, true),
        (Thread::Shared, COPIED_BYTES_MAX + 1, false),
        (Thread::Own, COPIED_BYTES_MAX, true),
        (Thread::Own, COPIED_BYTES_MAX + 1, true),
    ];
    for (thread, bytes, may_copy) in table {
        assert_eq!(thread.may_copy(bytes), may_copy, "{thread:?} {bytes}");
    }
}

#[test]
fn a_spell_ends_with_its_last_fetch_and_keeps_its_place() {
    let own = |begin_at| FetchStart { thread: Thread::Own, begin_at };
    assert_eq!(ColdSpell::OF_NEWCOMER.begin_fetch(), (own(0), None));
    let mut spell = ColdSpell::since_postponed(7);
    for _ in 1..SPELL_FETCHES {
        let (start, left) = spell.begin_fetch();
        assert_eq!(start, own(7));
        spell = left.expect("it goes on");
        assert_eq!(ColdSpell::since_disk(Some(spell)), ColdSpell::since_postponed(7));
    }
    assert_eq!(spell.begin_fetch(), (own(0), None));
    assert_eq!(ColdSpell::since_disk(None), ColdSpell::since_postponed(0));
}

#[test]
fn only_a_pass_without_records_waits_for_a_turn() {
    let table = [
        (None, false, false, DirTurn::NotNeeded),
        (None, true, false, DirTurn::NotNeeded),
        (None, false, true, DirTurn::NotNeeded),
        (None, true, true, DirTurn::NotNeeded),
        (Some(3), false, false, DirTurn::Awaited(3)),
        (Some(3), true, false, DirTurn::IfFree(3)),
        (Some(3), false, true, DirTurn::LeftOut),
        (Some(3), true, true, DirTurn::LeftOut),
    ];
    for (log_dir, has_found, holds_up_others, turn) in table {
        let facts = DirFacts { log_dir, has_found, holds_up_others };
        assert_eq!(DirTurn::of(facts), turn, "{facts:?}");
    }
}

#[test]
fn cold_partitions_are_read_until_enough_was_spent() {
    let costs = [
        (ReadEnd::WARM, Duration::ZERO, false),
        (proved(PROVED_BYTES_MAX - 1), COLD_TIME_MAX / 2, false),
        (proved(PROVED_BYTES_MAX), Duration::ZERO, true),
        (proved(1), COLD_TIME_MAX, true),
        (ReadEnd::FarFromIndex, Duration::ZERO, true),
        (ReadEnd::TooMuchToCopy, Duration::ZERO, false),
        (ReadEnd::Postponed, Duration::ZERO, false),
        (ReadEnd::LeftOut, Duration::ZERO, false),
        (ReadEnd::NoDescriptor, Duration::ZERO, true),
    ];
    for (end, time, is_enough) in costs {
        let mut pass = pass(0, 2);
        pass.note(0, end, true, || time);
        let table = [
            (TurnOf::This, true, if is_enough { Step::Postpone } else { Step::Read }),
            (TurnOf::This, false, Step::Read),
            (TurnOf::Others, true, Step::Postpone),
            (TurnOf::Others, false, Step::Read),
            (TurnOf::Nobodys, true, Step::LeaveOut),
            (TurnOf::Nobodys, false, Step::Read),
        ];
        for (turn, may_meet_disk, step) in table {
            assert_eq!(pass.step(turn, may_meet_disk), step, "{end:?} {turn:?} {may_meet_disk}");
        }
    }
}

#[test]
fn each_end_of_a_read_says_what_comes_again_and_what_is_cold() {
    let met = |met_disk| ReadEnd::Done { proved_bytes: 1, met_disk };
    // Its end, whether it is postponed, whether its connection has met the disk, whether descriptors are short.
    let table = [
        (ReadEnd::WARM, false, false, false),
        (met(false), false, false, false),
        (met(true), false, true, false),
        (ReadEnd::Postponed, true, false, false),
        (ReadEnd::LeftOut, false, true, false),
        (ReadEnd::FarFromIndex, true, true, false),
        (ReadEnd::TooMuchToCopy, true, true, false),
        (ReadEnd::NoDescriptor, false, false, true),
    ];
    for (end, is_postponed, meets_disk, is_short) in table {
        let mut pass = pass(0, 1);
        note(&mut pass, 0, end);
        let noted = (pass.has_postponed(), end.meets_disk(), pass.is_short());
        assert_eq!(noted, (is_postponed, meets_disk, is_short), "{end:?}");
    }
}

#[test]
fn only_what_was_cold_is_timed() {
    // Its end, whether its log was open, whether it costs time.
    let table = [
        (ReadEnd::WARM, true, false),
        (ReadEnd::WARM, false, true),
        (proved(1), true, true),
        (ReadEnd::FarFromIndex, true, true),
        (ReadEnd::TooMuchToCopy, true, false),
        (ReadEnd::TooMuchToCopy, false, true),
        (ReadEnd::Postponed, true, false),
        (ReadEnd::NoDescriptor, true, false),
        (ReadEnd::NoDescriptor, false, true),
    ];
    for (end, was_open, is_timed) in table {
        let mut asked = false;
        pass(0, 1).note(0, end, was_open, || {
            asked = true;
            Duration::ZERO
        });
        assert_eq!(asked, is_timed, "{end:?} {was_open}");
    }
}

#[test]
fn a_pass_goes_around_from_what_was_postponed_first() {
    let order = |begin_at, count, has_session| {
        let plan = PassPlan::new(FetchStart { begin_at, ..WARM }, count, has_session);
        plan.order().collect::<Vec<_>>()
    };
    assert_eq!(order(2, 4, false), [2, 3, 0, 1]);
    assert_eq!(order(4, 4, false), [0, 1, 2, 3], "there are fewer now");
    assert_eq!(order(2, 4, true), [0, 1, 2, 3], "a session knows by itself");
    assert_eq!(order(0, 0, false), [0; 0]);
    // The place where a pass begins, the places that it postpones, the place where the next pass begins.
    let table: [(usize, &[usize], Option<usize>); 5] = [
        (0, &[], None),
        (0, &[3, 1], Some(1)),
        (2, &[1, 0], Some(0)),
        (2, &[0, 3], Some(3)),
        (2, &[1], Some(1)),
    ];
    for (begin_at, postponed, next) in table {
        let mut pass = pass(begin_at, 4);
        for place in postponed {
            note(&mut pass, *place, ReadEnd::Postponed);
        }
        assert_eq!(pass.next_begin(), next, "{begin_at} {postponed:?}");
        pass.has_session = true;
        assert_eq!(pass.next_begin(), None);
    }
    let mut pass = pass(2, 4);
    note(&mut pass, 0, proved(PROVED_BYTES_MAX));
    assert_eq!(pass.next_begin(), Some(2), "enough was spent, and nothing is left");
}

#[test]
fn a_pass_ends_by_bytes_and_by_time_and_not_by_the_first_wait() {
    let mut cost = ColdCost::default();
    for _ in 0..9 {
        cost.add(5000, Duration::from_millis(1));
        assert!(!cost.is_enough());
    }
    cost.add(0, Duration::from_millis(1));
    assert!(cost.is_enough(), "opening logs takes its time, too");
    let mut cost = ColdCost::default();
    cost.add(PROVED_BYTES_MAX, Duration::ZERO);
    assert!(cost.is_enough());
}
