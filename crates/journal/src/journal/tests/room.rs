//! A journal whose volume is full, or in its reserve: it goes on in its files as long as they can be settled, grows
//! to its part of the reserve, and reports at once when it cannot go on.

use super::*;
use crate::frames::frame_bytes;
use crate::prefill::FIRST_STEP_BYTES;

const BLOCK_BYTES: usize = 4096;

/// Submits an entry whose frame takes `blocks`, and stores it if there is room.
fn store_blocks(played: &mut Played, blocks: usize) -> Step {
    queue_blocks(played, blocks);
    played.writer.step()
}

fn queue_blocks(played: &mut Played, blocks: usize) {
    let queued = played.queued();
    let payload = vec![7; blocks * BLOCK_BYTES - frame_bytes(1, 0)].into();
    let submission = Submission { payload, ..queued.submission };
    played.journal.shared.queue.lock().entries.push_back(Queued { submission, ..queued });
}

/// The last of the entries that are found in order.
fn last_found(sim: &SimEnv, method: SyncMethod) -> Option<u64> {
    let (_journal, mut replay) =
        Journal::open(&sim.env(), Path::new(DIR), options(method, 3)).expect("it opens");
    let mut last = None;
    while let Some(entries) = replay.next().unwrap() {
        for entry in entries {
            assert!(last.is_none_or(|last| last + 1 == entry.header.index));
            last = Some(entry.header.index);
        }
    }
    assert!(replay.damaged().is_empty());
    last
}

fn settle(played: &Played) {
    played.journal.settle_to(played.journal.delivered());
}

fn space_left(sim: &SimEnv) -> u64 {
    sim.env().fs.available_bytes(Path::new(DIR)).unwrap()
}

/// A journal of the default file size, on a volume of which only the reserve is free.
fn in_reserve(sim: &SimEnv, space: u64, reserve_bytes: u64) -> Played {
    sim.fs.set_space(Some(space));
    let options = JournalOptions { reserve_bytes, ..options(SyncMethod::DirectDsync, 8) };
    Played::open(sim, options).unwrap()
}

#[test]
fn journal_in_the_reserve_hardly_grows_and_reuses_files() {
    let sim = SimEnv::new(1);
    let reserve_bytes = 8 << 20;
    let mut played = in_reserve(&sim, reserve_bytes - 1, reserve_bytes);
    for number in 0..200 {
        assert_eq!(played.store(), Step::Again, "entry {number}");
        played.step(u64::MAX);
        if played.journal.wants_settling() {
            played.journal.settle_to(played.journal.delivered());
        }
    }
    assert_eq!(played.acked(), 200);
    let left = sim.env().fs.available_bytes(Path::new(DIR)).unwrap();
    assert!(left > reserve_bytes / 8 * 6, "{left} bytes are left of {reserve_bytes}");
    // With space it has its size again.
    sim.fs.set_space(Some(100 << 20));
    for _ in 0..30 {
        assert_eq!(played.store(), Step::Again);
        played.step(u64::MAX);
    }
    assert!(played.journal.used_bytes() > 3_000_000);
    assert!(!played.journal.is_out_of_room());
    drop(played);
    sim.fs.crash();
    Journal::open(&sim.env(), Path::new(DIR), options(SyncMethod::DirectDsync, 8)).unwrap();
}

#[test]
fn a_journal_without_any_space_goes_on_in_files_that_it_has() {
    for method in METHODS {
        for with_reserve in [false, true] {
            let sim = SimEnv::new(1);
            let reserve_bytes = if with_reserve { 1 << 20 } else { 0 };
            let options = JournalOptions { reserve_bytes, ..options(method, 8) };
            let mut played = Played::open(&sim, options).unwrap();
            for _ in 0..2 {
                assert_eq!(played.store(), Step::Again);
                played.step(u64::MAX);
            }
            sim.fs.set_space(Some(0));
            for number in 0..50 {
                assert_eq!(played.store(), Step::Again, "{method:?}, {with_reserve}, entry {number}");
                played.step(u64::MAX);
                played.journal.settle_to(played.journal.delivered());
            }
            // So it does after a start, which removes the file that was made ahead.
            drop(played);
            sim.fs.crash();
            let mut played = Played::open(&sim, options).unwrap();
            for number in 0..50 {
                assert_eq!(played.store(), Step::Again, "{method:?}, {with_reserve}, later entry {number}");
                played.step(u64::MAX);
                played.journal.settle_to(played.journal.delivered());
            }
            assert_eq!(played.acked(), 50);
        }
    }
}

#[test]
fn submission_is_refused_while_the_journal_waits_for_space() {
    let sim = SimEnv::new(1);
    let mut played = in_reserve(&sim, (1 << 20) - 1, 1 << 20);
    while played.store() == Step::Again {
        played.step(u64::MAX);
    }
    let acked = played.acked();
    assert!(played.journal.is_out_of_room(), "the settler is asked for room");
    sim.clock.advance(Duration::from_secs(10));
    assert!(matches!(played.writer.step(), Step::Sleep(Some(_))));
    // The writer is the test's: the journal takes the thread for started.
    played.journal.wake.set(std::thread::current().into()).unwrap();
    let submission = played.queued().submission;
    let refused = played.journal.submit_unless_short(submission).unwrap_err();
    assert_eq!(refused.kind(), riverrun_types::ErrorKind::Retry, "{refused}");
    sim.fs.set_space(None);
    assert_eq!(played.writer.step(), Step::Again);
    assert_eq!(played.acked(), acked + 1, "the waiting entry is stored");
    let submission = played.queued().submission;
    played.journal.submit_unless_short(submission).unwrap();
    assert_eq!(played.writer.step(), Step::Again);
    assert_eq!(played.acked(), acked + 2);
}

#[test]
fn acked_entries_in_the_reserve_survive_power_cut_anywhere() {
    for (method, space) in METHODS.into_iter().flat_map(|method| [(method, 2 << 20), (method, 900_000)]) {
        for stop in 0.. {
            let sim = SimEnv::new(stop);
            sim.fs.tear_blocks(true);
            sim.fs.set_space(Some(space));
            let options = JournalOptions { reserve_bytes: 4 << 20, ..options(method, 8) };
            sim.fs.stop_after(stop);
            let (mut settled, mut is_whole) = (0, false);
            let mut acked = 0;
            if let Ok(mut played) = Played::open(&sim, options) {
                is_whole = true;
                for number in 0..24 {
                    is_whole &= played.store() != Step::Done;
                    played.step(number % 4);
                    acked = played.acked();
                    if played.journal.wants_settling() {
                        settled = acked;
                        played.journal.settle_to(played.journal.delivered());
                    }
                }
            }
            sim.fs.crash();
            sim.fs.set_space(None);
            let (_journal, mut replay) = Journal::open(&sim.env(), Path::new(DIR), options).unwrap();
            let mut next = None;
            while let Some(entries) = replay.next().unwrap() {
                for entry in entries {
                    let index = entry.header.index;
                    assert!(next.is_none_or(|next| next == index), "{method:?}, stop {stop}");
                    assert!(next.is_some() || index <= settled, "{method:?}, stop {stop}: from {index}");
                    assert!(entry.payload == payload(index), "entry {index}");
                    next = Some(index + 1);
                }
            }
            assert!(replay.damaged().is_empty());
            let found = next.unwrap_or(settled);
            assert!(found >= acked, "{method:?}, stop {stop}: {acked} acked, {found} found");
            if is_whole {
                assert!(acked > 10 && settled > 0, "{acked} acked, {settled} settled");
                break;
            }
        }
    }
}

#[test]
fn unrefusable_submission_waits_through_a_shortage() {
    let sim = SimEnv::new(1);
    let mut played = in_reserve(&sim, (1 << 20) - 1, 1 << 20);
    while played.store() == Step::Again {
        played.step(u64::MAX);
    }
    let acked = played.acked();
    sim.clock.advance(Duration::from_secs(10));
    assert!(matches!(played.writer.step(), Step::Sleep(Some(_))));
    assert!(played.journal.shortage().is_some());
    // The writer is the test's: the journal takes the thread for started.
    played.journal.wake.set(std::thread::current().into()).unwrap();
    let submission = played.queued().submission;
    played.journal.submit(submission).expect("it is taken");
    assert!(matches!(played.writer.step(), Step::Sleep(Some(_))));
    assert_eq!(played.acked(), acked);
    sim.fs.set_space(None);
    assert_eq!(played.writer.step(), Step::Again);
    assert_eq!(played.writer.step(), Step::Again);
    assert_eq!(played.acked(), acked + 2, "waiting entries are stored, and those taken meanwhile");
    assert!(played.journal.shortage().is_none());
}

#[test]
fn young_journal_grows_to_its_part_of_the_reserve() {
    for reserve_bytes in [32 << 20, 33 << 20] {
        let sim = SimEnv::new(1);
        let mut played = in_reserve(&sim, reserve_bytes - 1, reserve_bytes);
        while played.store() == Step::Again {
            played.step(u64::MAX);
        }
        let taken = reserve_bytes - 1 - space_left(&sim);
        let part = reserve_bytes / 8;
        assert!(taken <= part && taken + FIRST_STEP_BYTES > part, "{taken} bytes of {part}");
        assert!(played.journal.is_out_of_room(), "the settler is asked for room");
        assert!(played.journal.shortage().is_none(), "it may be settled in time");
        sim.clock.advance(Duration::from_secs(10));
        assert!(matches!(played.writer.step(), Step::Sleep(Some(_))));
        assert!(played.journal.shortage().is_some(), "no entry waits without an end");
        // With space it has its size, of small files and large ones, and then of large ones only.
        sim.fs.set_space(None);
        assert_eq!(played.writer.step(), Step::Again);
        while played.store() == Step::Again {
            played.step(u64::MAX);
        }
        let (used, size) = (played.journal.used_bytes(), played.journal.bytes_max());
        assert!(used <= size && used + FILE_BYTES > size, "{used} bytes of {size}");
        sim.clock.advance(Duration::from_secs(10));
        assert!(matches!(played.writer.step(), Step::Sleep(Some(_))));
        settle(&played);
        assert_eq!(played.writer.step(), Step::Again);
        assert!(played.journal.shortage().is_none());
        for _ in 0..100 {
            settle(&played);
            assert_eq!(played.store(), Step::Again);
            played.step(u64::MAX);
        }
        assert_eq!(names(&sim, ".journal"), 8);
    }
}

#[test]
fn the_note_that_frees_settled_files_always_finds_its_block() {
    for method in METHODS {
        let sim = SimEnv::new(1);
        let mut played = Played::open(&sim, options(method, 3)).unwrap();
        for _ in 0..7 {
            assert_eq!(played.store(), Step::Again);
        }
        sim.fs.set_space(Some(0));
        // All blocks but the last of the filled part of the second file.
        let step = store_blocks(&mut played, 30);
        settle(&played);
        if step != Step::Again {
            assert_eq!(played.writer.step(), Step::Again);
        }
        for number in 0..20 {
            settle(&played);
            assert_eq!(played.store(), Step::Again, "{method:?}, entry {number}");
        }
    }
}

/// A journal with two files of the smallest size and no more space.
fn two_small_files(sim: &SimEnv, method: SyncMethod) -> Played {
    let mut played = Played::open(sim, options(method, 3)).unwrap();
    for blocks in [1, 32] {
        assert_eq!(store_blocks(&mut played, blocks), Step::Again);
    }
    // The first file cannot be filled further, the second one neither.
    sim.fs.set_space(Some(FIRST_STEP_BYTES));
    played.step(u64::MAX);
    assert_eq!((names(sim, ".new"), space_left(sim)), (1, 0));
    played
}

#[test]
fn groups_of_any_size_fit_existing_files_without_space() {
    for method in METHODS {
        let sim = SimEnv::new(1);
        let mut played = two_small_files(&sim, method);
        for blocks in (1..=62).chain((1..=62).rev()) {
            if store_blocks(&mut played, blocks) != Step::Again {
                settle(&played);
                assert_eq!(played.writer.step(), Step::Again, "{method:?}, {blocks} blocks");
            }
            played.step(u64::MAX);
        }
        let acked = played.acked();
        assert_eq!(acked, played.submitted);
        drop(played);
        sim.fs.crash();
        sim.fs.set_space(None);
        assert_eq!(last_found(&sim, method), Some(acked - 1), "{method:?}");
    }
}

#[test]
fn group_too_large_for_the_files_is_split_without_space() {
    // With two files, or with one and another that is still to be used.
    for (method, with_spare) in METHODS.into_iter().flat_map(|method| [(method, false), (method, true)]) {
        let sim = SimEnv::new(1);
        let mut played = two_small_files(&sim, method);
        if !with_spare {
            settle(&played);
            while names(&sim, ".journal") < 2 {
                store_blocks(&mut played, 20);
            }
        }
        for round in 0..20 {
            for blocks in [1, 20, 40, 3, 62, 2] {
                queue_blocks(&mut played, blocks);
            }
            for _ in 0..40 {
                settle(&played);
                played.writer.step();
                played.step(u64::MAX);
            }
            assert_eq!(played.acked(), played.submitted, "{method:?}, {with_spare}, round {round}");
        }
        assert!(played.acked.0.lock().is_sorted());
        let acked = played.acked();
        drop(played);
        sim.fs.crash();
        sim.fs.set_space(None);
        assert_eq!(last_found(&sim, method), Some(acked - 1), "{method:?}");
    }
}

#[test]
fn entry_too_large_for_the_files_waits_and_costs_no_file() {
    for method in METHODS {
        let sim = SimEnv::new(1);
        let mut played = two_small_files(&sim, method);
        settle(&played);
        while names(&sim, ".journal") < 2 {
            store_blocks(&mut played, 20);
        }
        let acked = played.acked();
        store_blocks(&mut played, 63);
        for _ in 0..3 {
            settle(&played);
            assert!(matches!(played.writer.step(), Step::Sleep(Some(_))), "{method:?}");
            assert!(played.journal.shortage().is_some(), "others are refused meanwhile");
            assert_eq!((played.acked(), names(&sim, ".journal")), (acked, 2), "{method:?}");
        }
        // Two blocks are enough for it and the zeros behind it, and it takes them by itself.
        sim.fs.set_space(Some(2 * BLOCK_BYTES as u64));
        assert_eq!(played.writer.step(), Step::Again, "{method:?}");
        assert_eq!(played.acked(), acked + 1);
        assert!(played.journal.shortage().is_none());
        for _ in 0..10 {
            settle(&played);
            assert_eq!(store_blocks(&mut played, 50), Step::Again, "{method:?}");
        }
        let acked = played.acked();
        drop(played);
        sim.fs.crash();
        sim.fs.set_space(None);
        assert_eq!(last_found(&sim, method), Some(acked - 1), "{method:?}");
    }
}

#[test]
fn recycled_file_without_space_for_its_name_is_used_later() {
    // Either its old name cannot be removed, or its new one cannot be given.
    for (method, renames) in METHODS.into_iter().flat_map(|method| [(method, 0), (method, 1)]) {
        let sim = SimEnv::new(1);
        let mut played = Played::open(&sim, options(method, 3)).unwrap();
        let mut settled = None;
        while played.store() == Step::Again {
            if names(&sim, ".journal") == 2 {
                settled.get_or_insert(played.journal.delivered());
            }
        }
        let acked = played.acked();
        played.journal.settle_to(settled.unwrap());
        sim.fs.refuse_renames_after(renames);
        for attempt in 0..3 {
            assert!(matches!(played.writer.step(), Step::Sleep(Some(_))), "{method:?}, {renames}, {attempt}");
            assert!(played.journal.failure().is_none() && played.journal.shortage().is_some());
            let files = [".journal", ".new"].map(|end| names(&sim, end) as u64);
            assert_eq!(files, [3 - renames, renames], "{method:?}, attempt {attempt}");
            for state in sim.crash_states(8) {
                assert_eq!(last_found(&state, method), Some(acked - 1), "{method:?}, {renames}");
            }
        }
        sim.fs.refuse_renames(false);
        assert_eq!(played.writer.step(), Step::Again, "{method:?}, {renames}");
        assert_eq!(played.acked(), acked + 1);
        for _ in 0..30 {
            settle(&played);
            assert_eq!(played.store(), Step::Again);
            assert_eq!([".journal", ".new"].map(|end| names(&sim, end)), [3, 0], "{method:?}, {renames}");
        }
        let acked = played.acked();
        drop(played);
        sim.fs.crash();
        assert_eq!(last_found(&sim, method), Some(acked - 1), "{method:?}, {renames}");
    }
}

#[test]
fn file_too_small_gives_its_space_to_another_one() {
    for method in METHODS {
        let sim = SimEnv::new(1);
        let mut played = two_small_files(&sim, method);
        while store_blocks(&mut played, 20) == Step::Again {}
        sim.fs.set_space(Some(FIRST_STEP_BYTES));
        assert_eq!(played.writer.step(), Step::Again, "{method:?}");
        assert_eq!((names(&sim, ".journal"), space_left(&sim)), (3, 0), "{method:?}");
        queue_blocks(&mut played, 100);
        for _ in 0..4 {
            settle(&played);
            played.writer.step();
        }
        assert_eq!(played.acked(), played.submitted, "{method:?}");
        assert_eq!(names(&sim, ".journal"), 2, "{method:?}");
    }
}

#[test]
fn a_standby_that_cannot_be_made_is_not_tried_with_every_group() {
    let sim = SimEnv::new(1);
    let mut played = Played::open(&sim, options(SyncMethod::DirectDsync, 3)).unwrap();
    assert_eq!(played.store(), Step::Again);
    // The first file is filled.
    played.step(1);
    sim.fs.set_space(Some(0));
    played.step(u64::MAX);
    for number in 1..6 {
        assert_eq!(played.store(), Step::Again);
        assert_eq!(played.prefiller.step(), Step::Sleep(None), "entry {number}");
    }
}

#[test]
fn settling_is_not_asked_for_with_every_group() {
    let sim = SimEnv::new(1);
    let mut played = in_reserve(&sim, 400_000, 1 << 20);
    let mut settled = 0;
    for _ in 0..60 {
        assert_eq!(store_blocks(&mut played, 1), Step::Again);
        if played.journal.wants_settling() {
            settle(&played);
            settled += 1;
        }
    }
    assert_eq!(settled, 1, "once half of the file is used");
}

#[test]
fn journal_waits_for_descriptors_and_is_not_lost() {
    for method in METHODS {
        let sim = SimEnv::new(1);
        let mut played = Played::open(&sim, options(method, 3)).unwrap();
        for _ in 0..6 {
            assert_eq!(played.store(), Step::Again);
            played.step(u64::MAX);
        }
        sim.fs.exhaust_descriptors(true);
        assert!(matches!(played.store(), Step::Sleep(Some(_))), "{method:?}: another file begins");
        assert!(played.journal.failure().is_none() && played.journal.shortage().is_some());
        sim.fs.exhaust_descriptors(false);
        assert_eq!(played.writer.step(), Step::Again);
        assert_eq!(played.acked(), 7);
    }
}
