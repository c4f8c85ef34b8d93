//! Files whose header is damaged after a kill: passed over where the other files say that all in them is settled,
//! else refused.

#![expect(clippy::unwrap_used, reason = "a test asserts with it, and so do its helpers")]

mod common;

use std::path::{Path, PathBuf};

use common::{DIR, History, open, smallest_options};
use riverrun_env::sim::SimEnv;
use riverrun_env::{FileSystem as _, OpenMode};
use riverrun_journal::{JournalError, JournalOptions, SyncMethod, Wants, verify};

/// Three of these fit into a file.
const ENTRY_BYTES: usize = 20_000;
/// More than the journal takes, so that a file is used again.
const FULL: usize = 12;
const AROUND: usize = 15;
/// Offset of the field of a file's header that holds the file's start.
const START_AT: u64 = 32;

fn options() -> JournalOptions {
    let options = smallest_options(SyncMethod::DirectDsync);
    JournalOptions { alignment: 512, bytes: 4 * options.file_bytes, ..options }
}

/// A journal whose process was killed.
struct Killed {
    sim: SimEnv,
    history: History,
    /// Positions of its entries.
    positions: Vec<u64>,
}

/// A journal of `entries` entries; those below `settled` were settled before the next one was stored.
fn killed(entries: usize, settled: usize) -> Killed {
    let (sim, history) = (SimEnv::new(1), History::default());
    let (journal, ..) = open(&sim.env(), options()).unwrap();
    let store = |number| {
        if number == settled {
            history.settle(&journal);
        }
        history.store(&journal, ENTRY_BYTES, Wants::Sync).unwrap().0
    };
    let positions = (0..entries).map(store).collect();
    sim.fs.kill();
    drop(journal);
    Killed { sim, history, positions }
}

/// A journal of several files: all in the first is settled, but not all in the second.
fn settled_in_front() -> Killed {
    let is_one = |killed: &Killed, settled: usize| {
        let [first, second] = [0, 1].map(|index| killed.entries_in(index).end);
        (1..=settled).contains(&first) && second > settled && killed.files().len() > 2
    };
    let all = (0..FULL).map(|settled| (killed(FULL, settled), settled));
    all.into_iter().find(|(killed, settled)| is_one(killed, *settled)).expect("there is one").0
}

impl Killed {
    /// The journal's files, each with its first position, in the order of positions.
    fn files(&self) -> Vec<(PathBuf, u64)> {
        let entries = self.sim.fs.read_dir(Path::new(DIR)).unwrap();
        let paths = entries.into_iter().map(|entry| Path::new(DIR).join(entry.name));
        let named = paths.filter(|path| path.extension().is_some_and(|extension| extension == "journal"));
        let with_start = |path: PathBuf| {
            let mut start = [0; 8];
            let file = self.sim.fs.open(&path, OpenMode::Read).unwrap();
            file.read_exact_at(&mut start, START_AT).unwrap();
            (path, u64::from_be_bytes(start))
        };
        let mut files: Vec<_> = named.map(with_start).collect();
        files.sort_by_key(|(_, start)| *start);
        files
    }

    /// Numbers of the entries in file `index`, in the order of positions.
    fn entries_in(&self, index: usize) -> std::ops::Range<usize> {
        let files = self.files();
        let first_from = |start: u64| self.positions.partition_point(|position| *position < start);
        let end = files.get(index + 1).map_or(self.positions.len(), |(_, start)| first_from(*start));
        first_from(files[index].1)..end
    }

    fn damage(&self, path: &Path, at: u64) {
        let file = self.sim.fs.open(path, OpenMode::ReadWrite).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        file.sync_all().unwrap();
    }

    /// Checks the entries of a start, goes on, and checks those of the next start.
    fn assert_goes_on(&self, context: &str) {
        let (journal, found, damaged) = open(&self.sim.env(), options()).expect(context);
        let found = self.history.check(&found).expect(context);
        let entries = self.positions.len();
        assert!(damaged == 0 && found.last() == Some(&(entries - 1)), "{context}: {found:?}");
        self.history.store(&journal, 10, Wants::Sync).unwrap();
        drop(journal);
        self.sim.fs.crash();
        let (_journal, found, _) = open(&self.sim.env(), options()).expect(context);
        assert_eq!(self.history.check(&found).expect(context).last(), Some(&entries), "{context}");
    }

    fn is_there(&self, path: &Path) -> bool {
        self.sim.fs.exists(path).unwrap()
    }
}

#[test]
fn damaged_header_of_a_settled_file_is_passed_over() {
    let (mut passed_over, mut refused) = (0, 0);
    let full = (0..FULL).map(|settled| (FULL, settled));
    for (entries, settled) in full.chain((3..=FULL).map(|settled| (AROUND, settled))) {
        let count = killed(entries, settled).files().len();
        for index in 0..count {
            // A newer version is refused by that name.
            for at in [3, 20, START_AT + 5, 70] {
                let killed = killed(entries, settled);
                let context = format!("{settled} of {entries} settled, byte {at} of file {index} of {count}");
                let path = killed.files()[index].0.clone();
                let is_settled = index + 1 < count && killed.entries_in(index).end <= settled;
                killed.damage(&path, at);
                let findings = verify(&killed.sim.env(), Path::new(DIR)).unwrap();
                assert!(
                    findings.iter().all(|found| found.is_settled == is_settled),
                    "{context}: {findings:?}"
                );
                assert!(findings.iter().any(|found| found.path == path), "{context}: {findings:?}");
                if is_settled {
                    passed_over += 1;
                    killed.assert_goes_on(&context);
                    assert!(killed.is_there(&path.with_extension("damaged")), "{context}");
                } else {
                    refused += 1;
                    let error = open(&killed.sim.env(), options()).expect_err(&context);
                    assert!(matches!(error, JournalError::Corrupt { .. }), "{context}: {error}");
                    assert!(killed.is_there(&path), "{context}: nothing has changed");
                }
            }
        }
    }
    assert!(passed_over >= 60 && refused >= 100, "{passed_over} passed over, {refused} refused");
}

#[test]
fn headless_file_without_readable_entries_is_refused() {
    let killed = settled_in_front();
    let path = killed.files()[0].0.clone();
    killed.sim.fs.open(&path, OpenMode::ReadWrite).unwrap().set_len(75).unwrap();
    let error = open(&killed.sim.env(), options()).unwrap_err();
    assert!(matches!(error, JournalError::Corrupt { .. }) && killed.is_there(&path), "{error}");
}

/// It may be the last file, which has nothing yet but the entries of before, and then the other files do not tell the
/// whole end.
#[test]
fn a_file_without_a_header_that_may_be_the_last_one_is_refused() {
    let killed = settled_in_front();
    let path = killed.files()[0].0.clone();
    let last = Path::new(DIR).join("00000099.journal");
    killed.sim.fs.rename(&path, &last).unwrap();
    killed.damage(&last, 20);
    let error = open(&killed.sim.env(), options()).unwrap_err();
    assert!(matches!(error, JournalError::Corrupt { .. }) && killed.is_there(&last), "{error}");
}

#[test]
fn headless_file_does_not_hide_a_missing_one() {
    let killed = settled_in_front();
    let files = killed.files();
    killed.damage(&files[0].0, 20);
    killed.sim.fs.remove_file(&files[1].0).unwrap();
    let error = open(&killed.sim.env(), options()).unwrap_err();
    assert!(matches!(error, JournalError::Corrupt { .. }) && killed.is_there(&files[0].0), "{error}");
}

#[test]
fn power_cut_while_a_headless_file_is_retired_changes_nothing() {
    for count in 0.. {
        let killed = settled_in_front();
        killed.damage(&killed.files()[0].0, 20);
        killed.sim.fs.stop_after(count);
        let is_open = open(&killed.sim.env(), options()).is_ok();
        for state in killed.sim.crash_states(100) {
            let (_journal, found, _) = open(&state.env(), options()).unwrap();
            let found = killed.history.check(&found).unwrap();
            assert_eq!(found.last(), Some(&(FULL - 1)), "{count} operations");
        }
        if is_open {
            assert!(count > 2, "{count} operations");
            return;
        }
    }
}
