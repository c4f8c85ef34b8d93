//! Bad sectors in journal files: those that are not needed are passed over, and all others are refused with their
//! place. Nothing is lost, and all of it is back once the disk reads it again.

#![expect(clippy::unwrap_used, reason = "a test asserts with it, and so do its helpers")]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{DIR, History, open, read_all, small_options, smallest_options};
use riverrun_env::sim::{SimEnv, SimFileSystem};
use riverrun_env::{FileSystem, OpenMode, read_whole};
use riverrun_journal::{
    Journal, JournalError, JournalFinding, JournalOptions, RecoveredEntry, SyncMethod, Wants, verify,
};
use riverrun_types::ErrorKind;

/// Bytes that a disk may fail to give back, and the least that the system reads.
const SECTOR: u64 = 512;
const BLOCK: u64 = 4096;
/// Payload sizes whose frames take a block, several, and parts of one.
const SIZES: [usize; 7] = [60, 9000, 5, 600, 20_000, 30, 20];

/// Room for several files.
fn options() -> JournalOptions {
    let smallest = smallest_options(SyncMethod::DirectDsync);
    JournalOptions { bytes: 8 * smallest.file_bytes, ..smallest }
}

/// A journal of entries of these sizes in several lives, each of which has a file of its own and ended with a kill.
struct Killed {
    sim: SimEnv,
    history: History,
}

impl Killed {
    fn after(lives: usize, sizes: &[usize]) -> Self {
        let killed = Self { sim: SimEnv::new(1), history: History::default() };
        for sizes in sizes.chunks(sizes.len().div_ceil(lives)) {
            let (journal, ..) = open(&killed.sim.env(), options()).unwrap();
            for bytes in sizes {
                killed.history.store(&journal, *bytes, Wants::Sync).unwrap();
            }
            killed.sim.fs.kill();
        }
        killed
    }

    fn files(&self) -> Vec<PathBuf> {
        self.named(".journal")
    }

    fn named(&self, ending: &str) -> Vec<PathBuf> {
        let entries = self.sim.fs.read_dir(Path::new(DIR)).unwrap();
        let mut names: Vec<_> = entries.into_iter().map(|entry| entry.name.into_string().unwrap()).collect();
        names.retain(|name| name.ends_with(ending));
        names.sort_unstable();
        names.into_iter().map(|name| Path::new(DIR).join(name)).collect()
    }

    /// Position behind the last byte that is not zero.
    fn used(&self, path: &Path) -> u64 {
        let bytes = read_whole(&*self.sim.fs, path, 1 << 30).unwrap();
        bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
    }

    fn break_at(&self, path: &Path, position: u64, bytes: u64) {
        self.sim.fs.break_sectors(path, position..position + bytes).unwrap();
    }

    fn heal(&self, path: &Path) {
        self.sim.fs.break_sectors(path, 0..0).unwrap();
    }

    fn open(&self) -> Result<(Journal, Vec<RecoveredEntry>, usize), JournalError> {
        open(&self.sim.env(), options())
    }

    fn verify(&self) -> Vec<JournalFinding> {
        verify(&self.sim.env(), Path::new(DIR)).unwrap()
    }

    /// All entries are there.
    fn check_whole(&self, context: &str) {
        let (_journal, found, damaged) = self.open().unwrap();
        assert_eq!((self.history.check(&found).unwrap().len(), damaged), (SIZES.len(), 0), "{context}");
    }
}

fn check_refused(error: &JournalError, file: &Path, context: &str) {
    assert_eq!(error.kind(), ErrorKind::GiveUp, "{context}: {error}");
    let JournalError::Corrupt { path, what, .. } = error else { panic!("{context}: {error}") };
    assert_eq!(path, file, "{context}");
    assert!(what.contains("move all files of this journal away"), "{context}: {what}");
}

#[test]
fn needed_bad_sector_is_refused_until_it_is_readable() {
    let (mut refused, mut passed) = (0, 0);
    for lives in [1, 3] {
        let count = Killed::after(lives, &SIZES).files().len();
        for number in 0..count {
            let used = {
                let killed = Killed::after(lives, &SIZES);
                killed.used(&killed.files()[number])
            };
            for position in (0..used / BLOCK + 3).map(|block| block * BLOCK) {
                let context = format!("{lives} lives, file {number}, byte {position}");
                let killed = Killed::after(lives, &SIZES);
                let path = killed.files().remove(number);
                killed.break_at(&path, position, BLOCK);
                let findings = killed.verify();
                assert!(findings.iter().all(|finding| !finding.is_torn_tail), "{context}: {findings:?}");
                match killed.open() {
                    Err(error) => {
                        check_refused(&error, &path, &context);
                        assert!(
                            findings.iter().any(|finding| finding.path == path),
                            "{context}: {findings:?}"
                        );
                        refused += 1;
                        killed.heal(&path);
                        killed.check_whole(&context);
                    }
                    Ok((_journal, found, damaged)) => {
                        assert_eq!(killed.history.check(&found).unwrap().len(), SIZES.len(), "{context}");
                        assert_eq!((damaged, findings), (0, vec![]), "{context}");
                        passed += 1;
                    }
                }
            }
        }
    }
    assert!(refused > 25 && passed >= 4, "{refused} {passed}");
}

/// A start reads some bytes twice. Which of its reads those are, and in which order, depends on the threads that read
/// ahead.
#[test]
fn a_sector_that_fails_from_some_read_on_ends_no_journal_early() {
    const ENTRIES: usize = 12;
    // Files of several windows.
    let options = JournalOptions::with_bytes(32 << 20);
    for sizes in [[300_000; ENTRIES], [9000; ENTRIES]] {
        let mut refused = 0;
        for reads in 0..20 {
            let (sim, history) = (SimEnv::new(1), History::default());
            let (journal, ..) = open(&sim.env(), options).unwrap();
            let positions: Vec<_> =
                sizes.iter().map(|bytes| history.store(&journal, *bytes, Wants::Sync).unwrap().0).collect();
            sim.fs.kill();
            drop(journal);
            let last = positions[ENTRIES - 1] - positions[ENTRIES - 1] % BLOCK;
            fail_after(&sim.fs, reads, last);
            match open(&sim.env(), options) {
                Err(error) => {
                    check_refused(&error, Path::new("/journal/00000000.journal"), &format!("{reads} reads"));
                    refused += 1;
                }
                Ok((_journal, found, damaged)) => {
                    assert_eq!(
                        (history.check(&found).unwrap().len(), damaged),
                        (ENTRIES, 0),
                        "{reads} reads"
                    );
                }
            }
        }
        // The first read is before all others, and the last one comes when everything was read.
        assert!((1..20).contains(&refused), "{refused} of entries of {} bytes", sizes[0]);
    }
}

/// Breaks a block of the first file at the read after `reads` others.
fn fail_after(fs: &Arc<SimFileSystem>, reads: usize, position: u64) {
    let later = Arc::clone(fs);
    fs.during_next_read(move || match reads {
        0 => later.break_sectors(Path::new("/journal/00000000.journal"), position..position + BLOCK).unwrap(),
        _ => fail_after(&later, reads - 1, position),
    });
}

#[test]
fn bad_sector_in_settled_bytes_is_passed_over() {
    let mut runs = 0;
    // In one file, and in several.
    for sizes in [[60, 5, 9000, 600], [20_000; 4]] {
        for (settled, hit) in [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)] {
            let context = format!("{sizes:?}, {settled} settled, {hit} hit");
            let killed = Killed { sim: SimEnv::new(1), history: History::default() };
            let (journal, ..) = killed.open().unwrap();
            let mut positions = vec![];
            for (number, bytes) in sizes.iter().enumerate() {
                if number == settled {
                    killed.history.settle(&journal);
                }
                positions.push(killed.history.store(&journal, *bytes, Wants::Sync).unwrap().0);
            }
            killed.sim.fs.kill();
            drop(journal);
            // The first file begins at position 0.
            let path = killed.files().remove(0);
            if positions[hit] > killed.used(&path) {
                continue;
            }
            runs += 1;
            killed.break_at(&path, positions[hit] - positions[hit] % BLOCK, BLOCK);
            let findings = killed.verify();
            assert!(findings.len() == 1 && findings[0].is_settled, "{context}: {findings:?}");
            let (journal, found, damaged) = killed.open().unwrap();
            assert!(killed.history.check(&found).unwrap().into_iter().eq(settled..4), "{context}");
            assert_eq!(damaged, 0, "{context}");
            killed.history.store(&journal, 10, Wants::Sync).unwrap();
            drop(journal);
            killed.sim.fs.crash();
            let (_journal, found, _) = killed.open().unwrap();
            assert!(killed.history.check(&found).unwrap().into_iter().eq(settled..5), "{context}");
        }
    }
    assert!(runs > 6, "{runs}");
}

#[test]
fn bad_sector_behind_the_frames_matters_only_at_their_end() {
    let killed = Killed::after(1, &SIZES);
    let path = killed.files().remove(0);
    let end = killed.used(&path).next_multiple_of(BLOCK);
    killed.break_at(&path, end + BLOCK, 4 * BLOCK);
    assert_eq!(killed.verify(), []);
    killed.check_whole("behind");

    let killed = Killed::after(1, &SIZES);
    killed.break_at(&path, end, BLOCK);
    let error = killed.open().unwrap_err();
    check_refused(&error, &path, "at the end");
    assert!(matches!(error, JournalError::Corrupt { position, .. } if position == end), "{error}");
    killed.heal(&path);
    killed.check_whole("at the end");
}

#[test]
fn file_with_bad_sector_is_retired_once_settled() {
    let killed = Killed { sim: SimEnv::new(1), history: History::default() };
    let (journal, ..) = killed.open().unwrap();
    let positions: Vec<_> = (0..4)
        .map(|number| {
            if number == 2 {
                killed.history.settle(&journal);
            }
            killed.history.store(&journal, 9000, Wants::Sync).unwrap().0
        })
        .collect();
    killed.sim.fs.kill();
    drop(journal);
    let hit = killed.files().remove(0);
    let before = read_whole(&*killed.sim.fs, &hit, 1 << 30).unwrap();
    // In the payload of a settled entry.
    killed.break_at(&hit, (positions[1] + 4000).next_multiple_of(BLOCK), BLOCK);
    let (journal, found, damaged) = killed.open().unwrap();
    assert_eq!((found.len(), damaged), (2, 0));
    for _ in 0..40 {
        killed.history.settle(&journal);
        killed.history.store(&journal, 20_000, Wants::Sync).unwrap();
    }
    let [retired] = &killed.named(".damaged")[..] else { panic!("{:?}", killed.named("")) };
    assert_eq!(retired.file_stem(), hit.file_stem());
    killed.heal(retired);
    assert!(read_whole(&*killed.sim.fs, retired, 1 << 30).unwrap() == before, "it is as it was");
    drop(journal);
    killed.sim.fs.crash();
    let (_journal, found, damaged) = killed.open().unwrap();
    assert!(!found.is_empty() && damaged == 0);
    killed.history.check(&found).unwrap();
}

#[test]
fn bad_sector_met_in_use_is_not_written_to_again() {
    // In the header, and in a payload.
    for position in [0, 2 * BLOCK] {
        let killed = Killed { sim: SimEnv::new(1), history: History::default() };
        let (journal, ..) = killed.open().unwrap();
        for _ in 0..4 {
            killed.history.store(&journal, 20_000, Wants::Sync).unwrap();
        }
        killed.history.settle(&journal);
        let from = killed.history.store(&journal, 20_000, Wants::Sync).unwrap();
        let hit = killed.files().remove(0);
        killed.break_at(&hit, position, BLOCK);
        let mut replay = journal.reread(from).unwrap();
        while replay.next().unwrap().is_some() {}
        for _ in 0..40 {
            killed.history.settle(&journal);
            killed.history.store(&journal, 20_000, Wants::Sync).unwrap();
        }
        let retired = hit.with_extension("damaged");
        assert_eq!(killed.named(".damaged"), [retired], "byte {position}");
    }
}

#[test]
fn a_disk_that_gives_back_nothing_is_not_asked_for_every_sector() {
    let killed = Killed { sim: SimEnv::new(1), history: History::default() };
    let env = killed.sim.env();
    let large = small_options(SyncMethod::DirectDsync);
    let (journal, ..) = open(&env, large).unwrap();
    for _ in 0..30 {
        killed.history.store(&journal, 20_000, Wants::Sync).unwrap();
    }
    killed.sim.fs.kill();
    drop(journal);
    let path = killed.files().remove(0);
    assert!(killed.used(&path) > 70 * BLOCK);
    killed.break_at(&path, BLOCK, 1 << 30);
    let error = open(&env, large).unwrap_err();
    assert!(matches!(&error, JournalError::Io { .. }), "{error}");
    assert!(verify(&env, Path::new(DIR)).is_err());
    killed.heal(&path);
    assert_eq!(open(&env, large).unwrap().1.len(), 30);
}

#[test]
fn a_header_that_cannot_be_read_is_a_damaged_one() {
    let killed = Killed::after(1, &SIZES);
    let path = killed.files().remove(0);
    killed.break_at(&path, 0, SECTOR);
    check_refused(&killed.open().unwrap_err(), &path, "after a kill");
    killed.heal(&path);
    killed.check_whole("after a kill");

    let killed = Killed { sim: SimEnv::new(1), history: History::default() };
    let (journal, ..) = killed.open().unwrap();
    killed.history.store(&journal, 60, Wants::Sync).unwrap();
    killed.history.settle(&journal);
    let id = journal.id();
    journal.close().unwrap();
    drop(journal);
    killed.break_at(&killed.files()[0], 0, SECTOR);
    let env = killed.sim.env();
    let opened = Journal::open_closed(&env, Path::new(DIR), options(), Some(id));
    let (_journal, mut replay) = opened.unwrap();
    assert_eq!(read_all(&mut replay).unwrap(), []);
    assert_eq!(killed.named(".damaged").len(), 1);
}

/// The caller's word that a journal was closed may be of an older time.
#[test]
fn unreadable_bytes_above_the_settled_position_are_kept() {
    for is_used_again in [false, true] {
        let killed = Killed { sim: SimEnv::new(1), history: History::default() };
        let (journal, ..) = killed.open().unwrap();
        killed.history.store(&journal, 60, Wants::Sync).unwrap();
        killed.history.settle(&journal);
        let id = journal.id();
        journal.close().unwrap();
        drop(journal);
        let mut path = killed.files().remove(0);
        // Right behind the note of the stop, or where the first frame of the next life begins.
        let mut position = killed.used(&path).next_multiple_of(BLOCK);
        if is_used_again {
            let (journal, ..) = killed.open().unwrap();
            killed.history.store(&journal, 9000, Wants::Sync).unwrap();
            killed.sim.fs.kill();
            drop(journal);
            (path, position) = (killed.files().remove(1), BLOCK);
        }
        killed.break_at(&path, position, 3 * BLOCK);
        let env = killed.sim.env();
        let opened = Journal::open_closed(&env, Path::new(DIR), options(), Some(id));
        if is_used_again {
            check_refused(&opened.map(drop).unwrap_err(), &path, "used again");
            killed.heal(&path);
            let (_journal, found, _) = killed.open().unwrap();
            assert_eq!(killed.history.check(&found).unwrap(), [1]);
        } else {
            let (_journal, mut replay) = opened.unwrap();
            assert_eq!(read_all(&mut replay).unwrap(), []);
            assert_eq!(killed.named(".damaged").len(), 1);
        }
    }
}

/// The other files say that all in it that can be read is settled.
#[test]
fn headless_file_with_bad_sector_is_not_passed_over() {
    for is_whole in [true, false] {
        let killed = Killed { sim: SimEnv::new(1), history: History::default() };
        let (journal, ..) = killed.open().unwrap();
        for number in 0..8 {
            killed.history.store(&journal, 20_000, Wants::Sync).unwrap();
            if number == 5 {
                killed.history.settle(&journal);
            }
        }
        killed.sim.fs.kill();
        drop(journal);
        let path = killed.files().remove(0);
        let bytes = if is_whole { SECTOR } else { BLOCK + SECTOR };
        killed.break_at(&path, 0, bytes);
        match killed.open() {
            Ok((_journal, found, _)) => {
                assert!(is_whole && killed.history.check(&found).unwrap().into_iter().eq(6..8));
            }
            Err(error) => {
                assert!(!is_whole, "{error}");
                check_refused(&error, &path, "more than a header");
            }
        }
    }
}

#[test]
fn unreadable_side_file_is_refused_with_its_place() {
    let killed = Killed::after(1, &[20_000]);
    let (journal, found, _) = killed.open().unwrap();
    journal.hold("dir", &found).unwrap();
    drop(journal);
    let held = killed.named("held-dir-00000000").remove(0);
    for position in [0, 5000, 20_000] {
        killed.break_at(&held, position, SECTOR);
        let error = killed.open().unwrap_err();
        let JournalError::Corrupt { path, position: at, what } = &error else { panic!("{error}") };
        assert_eq!((path, *at), (&held, position));
        assert!(what.contains("remove it to give up the entries"), "{what}");
        let findings = killed.verify();
        assert!(findings.iter().any(|finding| (&finding.path, finding.position) == (&held, position)));
        killed.heal(&held);
        assert_eq!(killed.open().unwrap().1, found);
    }
    let file = killed.sim.fs.open(&held, OpenMode::Read).unwrap();
    assert!(file.len().unwrap() > 20_000);
}
