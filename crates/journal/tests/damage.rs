//! Damaged journal files: found and named, or harmless; never served.

#![expect(clippy::unwrap_used, reason = "a test asserts with it, and so do its helpers")]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use common::{DIR, History, open, smallest_options};
use riverrun_env::sim::SimEnv;
use riverrun_env::{OpenMode, read_whole};
use riverrun_journal::{
    Journal, JournalError, JournalId, JournalOptions, RecoveredEntry, Replay, SyncMethod, Wants, verify,
};
use riverrun_types::ErrorKind;

/// Entries of a small journal; the last is the only one that a crash may have torn.
const SIZES: [usize; 6] = [60, 5, 90, 600, 30, 20];
/// Lives of a journal of several files, each of which begins a file with the tail of the one before.
const LIVES: usize = 3;
const ALIGNMENT: usize = 512;

fn options() -> JournalOptions {
    JournalOptions { alignment: ALIGNMENT, ..smallest_options(SyncMethod::DirectDsync) }
}

/// A journal whose process was killed, its history, and the bytes of its files by path.
struct Small {
    history: History,
    files: Vec<(String, Vec<u8>)>,
}

fn small(is_closed: bool) -> Small {
    lived(1, is_closed)
}

/// A journal with its entries spread over `lives`; each life has its own file, and each but the last ended with a
/// kill.
fn lived(lives: usize, is_closed: bool) -> Small {
    let sim = SimEnv::new(1);
    let history = History::default();
    for (life, sizes) in SIZES.chunks(SIZES.len() / lives).enumerate() {
        let (journal, ..) = open(&sim.env(), options()).unwrap();
        for bytes in sizes {
            history.store(&journal, *bytes, Wants::Sync).unwrap();
        }
        if is_closed && life + 1 == lives {
            journal.close().unwrap();
        }
        sim.fs.kill();
    }
    let env = sim.env();
    let mut names = env.fs.read_dir(Path::new(DIR)).unwrap();
    names.retain(|entry| entry.name.to_str().unwrap().ends_with(".journal"));
    names.sort_by(|one, other| one.name.cmp(&other.name));
    assert_eq!(names.len(), lives);
    let files = names.iter().map(|entry| {
        let path = format!("{DIR}/{}", entry.name.to_str().unwrap());
        let bytes = read_whole(&*env.fs, Path::new(&path), 1 << 30).unwrap();
        (path, bytes)
    });
    Small { history, files: files.collect() }
}

/// Opens a journal that has these files.
fn open_with(files: &[(String, Vec<u8>)]) -> Result<(Vec<RecoveredEntry>, usize), JournalError> {
    let sim = SimEnv::new(2);
    let env = sim.env();
    env.fs.create_dir_all(Path::new(DIR)).unwrap();
    for (path, bytes) in files {
        env.fs.open(Path::new(path), OpenMode::CreateNew).unwrap().write_all_at(bytes, 0).unwrap();
    }
    env.fs.open_volume(Path::new(DIR)).unwrap().sync().unwrap();
    open(&env, options()).map(|(_journal, entries, damaged)| (entries, damaged))
}

/// Checks that served entries equal submitted ones, and that all are served but those reported and those of a torn
/// last group.
fn check(
    small: &Small,
    what: &str,
    result: Result<(Vec<RecoveredEntry>, usize), JournalError>,
    lost_max: usize,
) {
    match result {
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::GiveUp, "{what}: {error}");
            let text = error.to_string();
            assert!(text.contains(".journal"), "{what}: {text} names no file");
        }
        Ok((found, damaged)) => {
            for entry in &found {
                let index = usize::try_from(entry.header.index).unwrap();
                assert_eq!(entry.header, common::header(index), "{what}");
                assert_eq!(entry.payload, common::payload(index, SIZES[index]), "{what}");
            }
            let lost = SIZES.len() - found.len();
            assert!(lost <= damaged + lost_max, "{what}: {lost} lost, {damaged} reported");
            if damaged == 0 {
                let is_whole = small.history.check(&found).is_ok();
                assert!(is_whole || lost > 0, "{what}");
            }
        }
    }
}

/// End of the bytes of a journal of a few entries; zeros lie behind.
fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Flips each byte of each file in turn. Returns the number of refused opens, and of reported entries. Only the last
/// frame, which fits into a block, may be lost without a report, and only if it is the damaged one.
fn flip_all(small: &Small, is_closed: bool) -> (usize, usize) {
    let (mut errors, mut damaged) = (0, 0);
    for number in 0..small.files.len() {
        let used = used(&small.files[number].1);
        let is_last = !is_closed && number + 1 == small.files.len();
        for at in 0..used {
            let lost_max = usize::from(is_last && at >= (used - 1) / ALIGNMENT * ALIGNMENT);
            let mut files = small.files.clone();
            files[number].1[at] ^= 1 << (at % 8);
            let result = open_with(&files);
            errors += usize::from(result.is_err());
            damaged += result.as_ref().map_or(0, |(_, damaged)| *damaged);
            check(small, &format!("byte {at} of file {number}"), result, lost_max);
        }
    }
    (errors, damaged)
}

#[test]
fn every_flipped_byte_is_found_or_harmless() {
    for is_closed in [false, true] {
        // After a crash, damage in the last group looks like a torn write.
        let (errors, damaged) = flip_all(&small(is_closed), is_closed);
        assert!(errors > 5 * 112, "{errors} errors");
        assert!(damaged > 700, "{damaged} damaged entries");
    }
}

#[test]
fn flipped_byte_of_several_files_is_found_or_harmless() {
    let (errors, damaged) = flip_all(&lived(LIVES, false), false);
    assert!(errors > 5 * 112 && damaged > 700, "{errors} errors, {damaged} damaged entries");
}

#[test]
fn a_file_that_was_cut_at_any_length_is_found() {
    for is_closed in [false, true] {
        let small = small(is_closed);
        let bytes = &small.files[0].1;
        let used = used(bytes);
        // Only zeros behind the last frame are not missed.
        let harmless_from = used.next_multiple_of(ALIGNMENT) + ALIGNMENT;
        for len in (0..harmless_from + 2).chain((0..bytes.len()).step_by(ALIGNMENT)) {
            let files = [(small.files[0].0.clone(), bytes[..len].to_vec())];
            let result = open_with(&files);
            let is_harmless = len >= harmless_from;
            assert_eq!(result.is_err(), !is_harmless, "cut to {len} of {used}, closed: {is_closed}");
            check(&small, &format!("cut to {len}"), result, 0);
        }
    }
}

#[test]
fn cut_of_any_file_of_several_is_found_or_harmless() {
    let small = lived(LIVES, false);
    for number in 0..LIVES {
        let used = used(&small.files[number].1);
        let mut refused = 0;
        for len in 0..=used {
            let mut files = small.files.clone();
            files[number].1.truncate(len);
            let result = open_with(&files);
            refused += usize::from(result.is_err());
            check(&small, &format!("file {number} cut to {len} of {used}"), result, 0);
        }
        // The last group of a file that has a successor is in that one, too.
        assert!(refused >= used.min(1024), "file {number}: {refused} of {used} refused");
    }
}

#[test]
fn a_damaged_payload_costs_its_own_entry_and_names_its_stream() {
    let small = small(true);
    let payload = common::payload(2, SIZES[2]);
    let mut files = small.files.clone();
    let at = files[0].1.windows(payload.len()).position(|window| window == &payload[..]).unwrap();
    files[0].1[at + 50] ^= 1;
    let sim = SimEnv::new(2);
    let env = sim.env();
    env.fs.create_dir_all(Path::new(DIR)).unwrap();
    let file = env.fs.open(Path::new(&files[0].0), OpenMode::CreateNew).unwrap();
    file.write_all_at(&files[0].1, 0).unwrap();
    file.sync_all().unwrap();
    let (_journal, mut replay) = riverrun_journal::Journal::open(&env, Path::new(DIR), options()).unwrap();
    let found = common::read_all(&mut replay).unwrap();
    let indexes: Vec<_> = found.iter().map(|entry| entry.header.index).collect();
    assert_eq!(indexes, [0, 1, 3, 4, 5]);
    let [damaged] = replay.damaged() else { panic!("{:?}", replay.damaged()) };
    assert_eq!(
        (damaged.header.stream, damaged.path.to_str()),
        (common::header(2).stream, Some(&*files[0].0))
    );
    assert!(found[1].position < damaged.position && damaged.position < found[2].position);
}

#[test]
fn files_of_two_journals_are_not_mixed() {
    let (first, second) = (small(true), {
        let sim = SimEnv::new(77);
        let history = History::default();
        let (journal, ..) = open(&sim.env(), options()).unwrap();
        history.store(&journal, 10, Wants::Sync).unwrap();
        drop(journal);
        read_whole(&*sim.env().fs, Path::new("/journal/00000000.journal"), 1 << 30).unwrap()
    });
    let mut files = first.files.clone();
    files.push((format!("{DIR}/00000001.journal"), second));
    let error = open_with(&files).unwrap_err();
    assert!(matches!(&error, JournalError::Format { what, .. } if what.contains("of journal")), "{error}");
}

#[test]
fn a_file_of_a_newer_version_is_refused_by_name() {
    let mut files = small(true).files;
    files[0].1[9] = 3;
    let error = open_with(&files).unwrap_err();
    assert!(matches!(&error, JournalError::Format { what, .. } if what.contains("version 3")), "{error}");
}

/// A journal with three files in use, the first of them to be used again next.
fn three_files() -> (Arc<SimEnv>, History) {
    let sim = Arc::new(SimEnv::new(1));
    let history = History::default();
    let options = JournalOptions { bytes: 4 * options().file_bytes, ..options() };
    let (journal, ..) = open(&sim.env(), options).unwrap();
    for _ in 0..7 {
        history.store(&journal, 20_000, Wants::Sync).unwrap();
    }
    drop(journal);
    (sim, history)
}

#[test]
fn a_missing_file_is_found() {
    for (number, expected) in [(0, "missing"), (1, "missing")] {
        let (sim, _history) = three_files();
        let env = sim.env();
        env.fs.remove_file(Path::new(&format!("{DIR}/0000000{number}.journal"))).unwrap();
        let error = open(&env, options()).unwrap_err();
        assert!(matches!(&error, JournalError::Corrupt { what, .. } if what.contains(expected)), "{error}");
    }
    let (sim, history) = three_files();
    let (_journal, found, _) = open(&sim.env(), options()).unwrap();
    assert_eq!(history.check(&found).unwrap().len(), 7);
}

#[test]
fn damage_in_an_earlier_file_ends_the_replay_by_name() {
    let (sim, _history) = three_files();
    let env = sim.env();
    let path = format!("{DIR}/00000001.journal");
    let file = env.fs.open(Path::new(&path), OpenMode::ReadWrite).unwrap();
    file.write_all_at(b"x", ALIGNMENT as u64 + 20).unwrap();
    file.sync_all().unwrap();
    let error = open(&env, options()).unwrap_err();
    let JournalError::Corrupt { path: named, position, what } = &error else { panic!("{error}") };
    assert_eq!((named.to_str(), *position), (Some(&*path), ALIGNMENT as u64));
    assert!(what.contains("move all files of this journal away, those that begin with held- too"), "{what}");
}

/// Entries of these sizes in a journal whose process was killed, and the positions of their rows. Those below
/// `settled` were settled before the next one was stored.
fn settled_in_part(sizes: &[usize], settled: usize) -> (SimEnv, History, Vec<u64>) {
    let sim = SimEnv::new(1);
    let history = History::default();
    let (journal, ..) = open(&sim.env(), large_options()).unwrap();
    let store = |(number, bytes): (usize, &usize)| {
        if number == settled {
            history.settle(&journal);
        }
        history.store(&journal, *bytes, Wants::Sync).unwrap().0
    };
    let positions = sizes.iter().enumerate().map(store).collect();
    sim.fs.kill();
    drop(journal);
    (sim, history, positions)
}

/// Room for several files.
fn large_options() -> JournalOptions {
    JournalOptions { bytes: 4 * options().file_bytes, ..options() }
}

/// Flips a bit in the first file, whose first byte has position 0.
fn flip(sim: &SimEnv, position: u64) {
    let file = sim.env().fs.open(Path::new("/journal/00000000.journal"), OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, position).unwrap();
    file.write_all_at(&[byte[0] ^ 1], position).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn structural_damage_of_settled_frames_loses_nothing() {
    // In one file, and in several.
    for sizes in [[60, 5, 90, 600], [20_000; 4]] {
        for (settled, damaged) in [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)] {
            let (sim, history, positions) = settled_in_part(&sizes, settled);
            flip(&sim, positions[damaged] + 10);
            let findings = verify(&sim.env(), Path::new(DIR)).unwrap();
            assert!(findings.len() == 1 && findings[0].is_settled, "{findings:?}");
            let (journal, found, _) = open(&sim.env(), large_options()).unwrap();
            let context = format!("{sizes:?}, {settled} settled, {damaged} damaged");
            assert!(history.check(&found).unwrap().into_iter().eq(settled..4), "{context}");
            history.store(&journal, 10, Wants::Sync).unwrap();
            drop(journal);
            sim.fs.crash();
            let (_journal, found, _) = open(&sim.env(), large_options()).unwrap();
            assert!(history.check(&found).unwrap().into_iter().eq(settled..5), "{context}");
        }
    }
}

#[test]
fn structural_damage_of_unsettled_frames_is_refused() {
    for sizes in [[60, 5, 90, 600], [20_000; 4]] {
        for (settled, damaged) in [(0, 0), (0, 2), (1, 1), (1, 2), (2, 2)] {
            let (sim, _history, positions) = settled_in_part(&sizes, settled);
            flip(&sim, positions[damaged] + 10);
            if settled > 0 {
                flip(&sim, positions[0] + 10);
            }
            let findings = verify(&sim.env(), Path::new(DIR)).unwrap();
            assert!(findings.iter().any(|found| !found.is_settled), "{findings:?}");
            let error = open(&sim.env(), large_options()).unwrap_err();
            let JournalError::Corrupt { path, position, .. } = &error else { panic!("{error}") };
            assert_eq!(path.to_str(), Some("/journal/00000000.journal"));
            assert!(*position < positions[damaged], "{settled} settled, {damaged} damaged: {error}");
        }
    }
}

/// Only the last frame states that the first one is settled. It lies behind a torn frame, and neither was synced, so
/// no chain of frames leads to it; and a start that finds no tail does not write down its settled position.
#[test]
fn damage_settled_by_a_frame_behind_a_torn_one_is_harmless() {
    for has_tail in [false, true] {
        let sim = SimEnv::new(1);
        let history = History::default();
        let (journal, ..) = open(&sim.env(), large_options()).unwrap();
        let settled = history.store(&journal, 60, Wants::Sync).unwrap().0;
        let settled_end = journal.delivered();
        for bytes in [5, 90] {
            history.store(&journal, bytes, Wants::Sync).unwrap();
        }
        if has_tail {
            history.store(&journal, 40, Wants::Write).unwrap();
        }
        let torn = history.store(&journal, 600, Wants::Write).unwrap().0;
        history.settled.store(1, Ordering::Relaxed);
        journal.settle_to(settled_end);
        history.store(&journal, 30, Wants::Write).unwrap();
        sim.fs.kill();
        drop(journal);
        for position in [settled, torn] {
            flip(&sim, position + 10);
        }
        let findings = verify(&sim.env(), Path::new(DIR)).unwrap();
        let kinds: Vec<_> = findings.iter().map(|found| (found.is_settled, found.is_torn_tail)).collect();
        assert_eq!(kinds, [(false, true), (true, false)], "{findings:?}");
        let end = 3 + usize::from(has_tail);
        for start in ["the first start", "the second"] {
            let (_journal, found, _) = open(&sim.env(), large_options()).unwrap();
            assert!(history.check(&found).unwrap().into_iter().eq(1..end), "{start}, a tail: {has_tail}");
        }
        history.forget_behind(end);
        let (journal, ..) = open(&sim.env(), large_options()).unwrap();
        history.store(&journal, 10, Wants::Sync).unwrap();
        drop(journal);
        sim.fs.crash();
        let (_journal, found, _) = open(&sim.env(), large_options()).unwrap();
        assert!(history.check(&found).unwrap().into_iter().eq(1..=end), "a tail: {has_tail}");
    }
}

/// A journal that holds an entry in a side file, and the path of each of its own files.
fn with_held() -> (SimEnv, Vec<PathBuf>) {
    with_held_of(&[50])
}

/// As [`with_held`], with payloads of these sizes in bytes.
fn with_held_of(sizes: &[usize]) -> (SimEnv, Vec<PathBuf>) {
    let sim = SimEnv::new(1);
    let env = sim.env();
    let history = History::default();
    let (journal, ..) = open(&env, options()).unwrap();
    for bytes in sizes {
        history.store(&journal, *bytes, Wants::Sync).unwrap();
    }
    drop(journal);
    let (journal, found, _) = open(&env, options()).unwrap();
    journal.hold("dir", &found).unwrap();
    drop(journal);
    let paths =
        env.fs.read_dir(Path::new(DIR)).unwrap().into_iter().map(|entry| Path::new(DIR).join(entry.name));
    let files =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "journal")).collect();
    (sim, files)
}

const HELD: &str = "/journal/held-dir-00000000";

#[test]
fn side_files_without_their_journal_are_refused_with_a_way_out() {
    let (sim, files) = with_held();
    let env = sim.env();
    for path in &files {
        env.fs.remove_file(path).unwrap();
    }
    let refusal = open(&env, options()).unwrap_err().to_string();
    let findings = verify(&env, Path::new(DIR)).unwrap();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].path, Path::new(HELD));
    for told in [&refusal, &findings[0].what] {
        assert!(told.contains("move this file away, too"), "{told}");
    }
    env.fs.remove_file(Path::new(HELD)).unwrap();
    open(&env, options()).unwrap();
}

#[test]
fn side_files_belong_to_an_unknown_journal_without_headers() {
    let (sim, files) = with_held();
    let env = sim.env();
    for path in &files {
        env.fs.open(path, OpenMode::ReadWrite).unwrap().write_all_at(b"x", 20).unwrap();
    }
    let findings = verify(&env, Path::new(DIR)).unwrap();
    assert!(!findings.is_empty() && findings.iter().all(|found| files.contains(&found.path)), "{findings:?}");
}

#[test]
fn a_damaged_file_of_held_entries_is_refused_at_every_byte() {
    let sim = SimEnv::new(1);
    let env = sim.env();
    let history = History::default();
    let (journal, ..) = open(&env, options()).unwrap();
    history.store(&journal, 50, Wants::Sync).unwrap();
    drop(journal);
    let (journal, found, _) = open(&env, options()).unwrap();
    journal.hold("dir", &found).unwrap();
    drop(journal);
    let path = Path::new("/journal/held-dir-00000000");
    let bytes: Bytes = read_whole(&*env.fs, path, 1 << 20).unwrap().into();
    let file = env.fs.open(path, OpenMode::ReadWrite).unwrap();
    for at in 0..bytes.len() {
        file.write_all_at(&[bytes[at] ^ 4], at as u64).unwrap();
        let error = open(&env, options()).unwrap_err();
        assert!(error.to_string().contains("held-dir"), "byte {at}: {error}");
        file.write_all_at(&bytes[at..=at], at as u64).unwrap();
    }
    for len in 0..bytes.len() {
        file.set_len(len as u64).unwrap();
        assert!(open(&env, options()).is_err(), "cut to {len}");
        file.write_all_at(&bytes, 0).unwrap();
    }
    open(&env, options()).unwrap();
}

#[test]
fn damage_of_held_entries_is_named_with_its_place() {
    const HEADER_BYTES: usize = 32;
    const ROW_BYTES: usize = 64;
    let sizes = [50, 70];
    let (sim, _) = with_held_of(&sizes);
    let env = sim.env();
    let bytes = read_whole(&*env.fs, Path::new(HELD), 1 << 20).unwrap();
    let file = env.fs.open(Path::new(HELD), OpenMode::ReadWrite).unwrap();
    let second = HEADER_BYTES + ROW_BYTES + sizes[0];
    assert_eq!(bytes.len(), second + ROW_BYTES + sizes[1] + 4);
    let told = || {
        let findings = verify(&env, Path::new(DIR)).unwrap();
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!(finding.path, Path::new(HELD));
        usize::try_from(finding.position).unwrap()
    };
    for (flipped, position) in [
        // The magic, and the version, which is a newer one then: such a file is refused as a whole.
        (0, 0),
        (9, 0),
        // A count that is far too large, and one that is a little.
        (30, 28),
        (31, bytes.len() - 4),
        (HEADER_BYTES + ROW_BYTES, HEADER_BYTES),
        (second - 1, HEADER_BYTES),
        (second + ROW_BYTES + 3, second),
        // The size in a row, and its stream, which nothing else repeats.
        (second + ROW_BYTES - 5, second),
        (second + 8, 0),
        (bytes.len() - 1, 0),
    ] {
        file.write_all_at(&[bytes[flipped] ^ 1], flipped as u64).unwrap();
        assert_eq!(told(), position, "byte {flipped}");
        file.write_all_at(&bytes[flipped..=flipped], flipped as u64).unwrap();
    }
    for (len, position) in [(second + 10, second), (HEADER_BYTES + 8, 28), (20, 16), (2, 0)] {
        file.set_len(len as u64).unwrap();
        assert_eq!(told(), position, "cut at {len}");
        file.write_all_at(&bytes, 0).unwrap();
    }
    assert_eq!(verify(&env, Path::new(DIR)).unwrap(), []);
}

#[test]
fn held_entry_may_be_damaged_in_the_journals_own_files() {
    let (sim, files) = with_held();
    let env = sim.env();
    let first = b"entry 0 ";
    for path in &files {
        let bytes = read_whole(&*env.fs, path, 1 << 30).unwrap();
        let Some(at) = bytes.windows(first.len()).position(|window| window == first) else { continue };
        env.fs.open(path, OpenMode::ReadWrite).unwrap().write_all_at(b"x", at as u64).unwrap();
    }
    let findings = verify(&env, Path::new(DIR)).unwrap();
    assert!(!findings.is_empty() && findings.iter().all(|finding| finding.is_settled), "{findings:?}");
    let (_journal, entries, damaged) = open(&env, options()).unwrap();
    assert_eq!((entries.len(), damaged), (1, 0), "a start finds it where it is held");
}

/// Files of three lives; the last ended in order, with all settled if `is_settled`.
fn ended_in_order(is_settled: bool) -> (Contents, JournalId) {
    lives_in_order(LIVES, is_settled)
}

/// Files of `lives`; the last ended in order.
fn lives_in_order(lives: usize, is_settled: bool) -> (Contents, JournalId) {
    let sim = SimEnv::new(1);
    let history = History::default();
    for (life, sizes) in SIZES.chunks(2).take(lives).enumerate() {
        let (journal, ..) = open(&sim.env(), options()).unwrap();
        for bytes in sizes {
            history.store(&journal, *bytes, Wants::Sync).unwrap();
        }
        if life + 1 == lives {
            if is_settled {
                history.settle(&journal);
            }
            journal.close().unwrap();
        }
        sim.fs.kill();
    }
    let env = sim.env();
    let paths = (0..lives).map(|number| format!("{DIR}/0000000{number}.journal"));
    let read = |path: String| (path.clone(), read_whole(&*env.fs, Path::new(&path), 1 << 30).unwrap());
    let (journal, ..) = open(&env, options()).unwrap();
    (paths.map(read).collect(), journal.id())
}

/// A disk with these files.
fn disk_with(files: &[(String, Vec<u8>)]) -> SimEnv {
    let sim = SimEnv::new(2);
    let env = sim.env();
    env.fs.create_dir_all(Path::new(DIR)).unwrap();
    for (path, bytes) in files {
        env.fs.open(Path::new(path), OpenMode::CreateNew).unwrap().write_all_at(bytes, 0).unwrap();
    }
    env.fs.open_volume(Path::new(DIR)).unwrap().sync().unwrap();
    sim
}

/// Opens a journal of which the caller knows that it was closed with all settled.
fn open_closed(sim: &SimEnv, id: JournalId) -> Result<(Journal, Replay), JournalError> {
    Journal::open_closed(&sim.env(), Path::new(DIR), options(), Some(id))
}

/// The bytes of files by path.
type Contents = Vec<(String, Vec<u8>)>;

/// Ways to damage the header of one file, by flipping and by cutting, each with its description.
fn damaged_files(files: &[(String, Vec<u8>)]) -> Vec<(Contents, String)> {
    let mut all = Vec::new();
    for number in 0..files.len() {
        // A newer version is refused by that name.
        for at in (0..76).step_by(3).filter(|at| !(8..10).contains(at)) {
            let mut files = files.to_vec();
            files[number].1[at] ^= 1 << (at % 8);
            all.push((files, format!("byte {at} of file {number}")));
        }
        for len in [0, 5, 75] {
            let mut files = files.to_vec();
            files[number].1.truncate(len);
            all.push((files, format!("file {number} cut to {len}")));
        }
    }
    all
}

#[test]
fn damaged_file_of_a_settled_closed_journal_is_retired() {
    let (files, id) = ended_in_order(true);
    for (files, how) in damaged_files(&files) {
        let sim = disk_with(&files);
        let opened = open_closed(&sim, id);
        // Without the last file nothing in the others says that they are settled.
        if how.contains("file 2 cut") {
            assert!(matches!(opened, Err(JournalError::Corrupt { .. })), "{how}");
            continue;
        }
        let (journal, mut replay) = opened.unwrap_or_else(|error| panic!("{how}: {error}"));
        assert_eq!(replay.next().unwrap(), None, "{how}");
        let names = sim.env().fs.read_dir(Path::new(DIR)).unwrap();
        let is_retired = |name: &str| name.ends_with(".damaged");
        assert_eq!(names.iter().filter(|entry| is_retired(entry.name.to_str().unwrap())).count(), 1, "{how}");
        let history = History::default();
        history.store(&journal, 10, Wants::Sync).unwrap();
        drop(journal);
        sim.fs.crash();
        let (_journal, found, _) = open(&sim.env(), options()).unwrap();
        assert_eq!(history.check(&found).unwrap(), [0], "{how}");
    }
}

#[test]
fn a_damaged_header_is_refused_where_something_may_be_needed() {
    let (files, id) = ended_in_order(false);
    for (files, how) in damaged_files(&files) {
        let Err(error) = open_closed(&disk_with(&files), id) else { panic!("{how}") };
        assert!(matches!(error, JournalError::Corrupt { .. }), "{how}: {error}");
    }
    let (files, _) = ended_in_order(true);
    for (files, how) in damaged_files(&files) {
        // The last file says that the others are settled, where anything in them can be read.
        let is_passed_over = !how.contains("file 2") && !how.contains("cut");
        let context = format!("{how}: the caller does not say that it was closed");
        assert_eq!(open_with(&files).is_ok(), is_passed_over, "{context}");
        let of_another = open_closed(&disk_with(&files), JournalId([9; 16]));
        assert_eq!(of_another.is_ok(), is_passed_over, "{context}, but of another one");
    }
}

/// The caller's word that a journal was closed may be of an older time: where nothing in the journal says that all is
/// settled, its records may be nowhere else.
#[test]
fn journal_without_anything_intact_is_not_retired() {
    let (files, id) = lives_in_order(1, true);
    let mut zeroed = files.clone();
    zeroed[0].1.fill(0);
    let mut cut = files.clone();
    cut[0].1.clear();
    let mut of_another = files.clone();
    of_another[0].1[20] ^= 1;
    for (files, id) in [(zeroed, id), (cut, id), (of_another.clone(), JournalId([9; 16]))] {
        assert!(matches!(open_closed(&disk_with(&files), id), Err(JournalError::Corrupt { .. })));
    }
    open_closed(&disk_with(&of_another), id).expect("its frames say that all is settled");
}

/// A header tells where the frames of the file before it end: they may be all that the journal had.
#[test]
fn missing_file_is_needed_unless_settled() {
    for (is_settled, is_cut) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut files, id) = lives_in_order(2, is_settled);
        files.remove(0);
        if is_cut {
            files[0].1.truncate(ALIGNMENT);
        }
        let opened = open_closed(&disk_with(&files), id);
        assert_eq!(opened.is_ok(), is_settled && !is_cut, "settled: {is_settled}, cut: {is_cut}");
    }
}

#[test]
fn settled_closed_journal_needs_no_damaged_frames() {
    let (files, id) = ended_in_order(true);
    for (at, number) in [(20, 1), (ALIGNMENT + 20, 2), (ALIGNMENT + 300, 2)] {
        let mut files = files.clone();
        files[number].1[ALIGNMENT + at] ^= 1;
        let (journal, mut replay) = open_closed(&disk_with(&files), id).unwrap();
        assert_eq!(replay.next().unwrap(), None);
        History::default().store(&journal, 10, Wants::Sync).unwrap();
    }
}

#[test]
fn power_cut_while_retiring_brings_no_settled_entry_back() {
    let (files, id) = ended_in_order(true);
    for number in 0..LIVES {
        let mut files = files.clone();
        files[number].1[20] ^= 1;
        for count in 0.. {
            let sim = disk_with(&files);
            sim.fs.stop_after(count);
            if open_closed(&sim, id).is_ok() {
                assert!(count > 3, "{count} operations");
                break;
            }
            for state in sim.crash_states(100) {
                let (_journal, mut replay) = open_closed(&state, id).unwrap();
                assert_eq!(replay.next().unwrap(), None, "file {number}, {count} operations");
            }
        }
    }
}
