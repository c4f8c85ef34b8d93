//! The journal's services to its users, on the simulated disk and on a real one.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::{DIR, History, header, open, payload, read_all, small_options};
use riverrun_env::sim::SimEnv;
use riverrun_env::{Env, FileSystem as _};
use riverrun_journal::{
    EntryHeader, EntryOwner, Journal, JournalError, JournalOptions, Position, RecoveredEntry, StoredEntry,
    Submission, SyncMethod, Wants,
};
use riverrun_types::ErrorKind;

const METHODS: [SyncMethod; 2] = [SyncMethod::DirectDsync, SyncMethod::BufferedFdatasync];

#[test]
fn stored_entries_are_found_however_the_life_ends() {
    for method in METHODS {
        for is_closed in [false, true] {
            let sim = SimEnv::new(1);
            let history = History::default();
            let (journal, found, _) = open(&sim.env(), small_options(method)).unwrap();
            assert!(found.is_empty());
            let id = {
                for bytes in [10, 5000, 200_000, 1] {
                    history.store(&journal, bytes, Wants::Sync).unwrap();
                }
                assert_eq!(journal.synced(), journal.delivered());
                journal.id()
            };
            if is_closed {
                journal.close().unwrap();
            }
            drop(journal);
            let (journal, found, damaged) = open(&sim.env(), small_options(method)).unwrap();
            assert_eq!(history.check(&found).unwrap(), [0, 1, 2, 3]);
            assert_eq!((damaged, journal.id()), (0, id));
        }
    }
}

#[test]
fn nothing_is_made_before_the_first_submission() {
    let sim = SimEnv::new(1);
    let env = sim.env();
    let (journal, _, _) = open(&env, small_options(SyncMethod::DirectDsync)).unwrap();
    journal.settle_to(Position(99));
    assert_eq!((journal.settled(), journal.used_bytes()), (Position(0), 0));
    journal.close().unwrap();
    let names: Vec<_> =
        env.fs.read_dir(Path::new(DIR)).unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["lock"]);
}

#[test]
fn many_submitters_share_groups_and_each_stream_keeps_its_order() {
    let directory = tempfile::tempdir().unwrap();
    let options = JournalOptions::with_bytes(64 * 1024 * 1024);
    let (journal, _) = Journal::open(&Env::real(), directory.path(), options).unwrap();
    let history = History::default();
    let last = (0..2000).map(|index| history.submit(&journal, 300 + index % 700, Wants::Sync).unwrap()).max();
    history.wait(last.unwrap());
    let metrics = journal.metrics();
    let groups = metrics.groups_queue_empty + metrics.groups_bytes + metrics.groups_wait;
    assert_eq!(metrics.entries, 2000);
    assert!((1..500).contains(&groups), "{groups} groups");
    assert_eq!((metrics.queueing.count(), metrics.syncing.count()), (2000, groups));
    assert!(metrics.bytes.is_multiple_of(4096) && metrics.padding_bytes < groups * 4096);
    drop(journal);
    let (_journal, mut replay) = Journal::open(&Env::real(), directory.path(), options).unwrap();
    let found = read_all(&mut replay).unwrap();
    assert_eq!(history.check(&found).unwrap().len(), 2000);
}

/// Waits for work that the journal's thread does soon.
fn wait_until(is_done: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if is_done() {
            return;
        }
        Env::real().clock.sleep(Duration::from_millis(1));
    }
    panic!("it does not come");
}

#[test]
fn settled_files_are_used_again_and_the_rest_waits_for_that() {
    for method in METHODS {
        let sim = SimEnv::new(1);
        let history = History::default();
        let (journal, _, _) = open(&sim.env(), small_options(method)).unwrap();
        // Three fit into each of the two files.
        for _ in 0..6 {
            history.store(&journal, 300_000, Wants::Sync).unwrap();
        }
        let full = journal.delivered();
        for round in [2, 4] {
            let number = history.submit(&journal, 300_000, Wants::Sync).unwrap();
            Env::real().clock.sleep(Duration::from_millis(20));
            assert_eq!(journal.metrics().entries, round * 3, "the journal is full");
            wait_until(|| journal.full_for().is_some());
            assert!(journal.used_bytes() <= journal.bytes_max());
            history.settle(&journal);
            history.wait(number).unwrap();
            wait_until(|| journal.full_for().is_none());
            // Both files were settled.
            for _ in 0..5 {
                history.store(&journal, 300_000, Wants::Sync).unwrap();
            }
        }
        assert!(journal.delivered() > full);
        drop(journal);
        let files = sim.env().fs.read_dir(Path::new(DIR)).unwrap();
        let journals = files.iter().filter(|entry| entry.name.to_string_lossy().ends_with(".journal"));
        assert_eq!(journals.count(), 2);
        let (_journal, found, _) = open(&sim.env(), small_options(method)).unwrap();
        assert_eq!(history.check(&found).unwrap().last(), Some(&17));
    }
}

#[test]
fn a_write_that_wants_no_sync_is_synced_within_the_interval() {
    let sim = SimEnv::new(1);
    let options =
        JournalOptions { sync_interval: Duration::from_millis(1), ..small_options(SyncMethod::DirectDsync) };
    let history = History::default();
    let (journal, _, _) = open(&sim.env(), options).unwrap();
    let position = history.store(&journal, 100, Wants::Write).unwrap();
    assert!(journal.synced() <= position);
    sim.clock.advance(Duration::from_millis(2));
    let until = std::time::Duration::from_secs(10);
    let mut waited = Duration::ZERO;
    while journal.synced() <= position && waited < until {
        Env::real().clock.sleep(Duration::from_millis(1));
        waited += Duration::from_millis(1);
    }
    assert!(journal.synced() > position);
    sim.fs.crash();
    drop(journal);
    let (_journal, found, _) = open(&sim.env(), options).unwrap();
    assert_eq!(history.check(&found).unwrap(), [0]);
}

#[test]
fn a_sync_covers_what_was_written_before_without_one() {
    for method in METHODS {
        let sim = SimEnv::new(2);
        let history = History::default();
        let (journal, _, _) = open(&sim.env(), small_options(method)).unwrap();
        for wants in [Wants::Write, Wants::Write, Wants::Sync] {
            history.store(&journal, 3000, wants).unwrap();
        }
        assert_eq!(journal.synced(), journal.delivered());
        sim.fs.crash();
        drop(journal);
        let (_journal, found, _) = open(&sim.env(), small_options(method)).unwrap();
        assert_eq!(history.check(&found).unwrap(), [0, 1, 2]);
    }
}

#[test]
fn a_full_disk_delays_and_loses_nothing() {
    for method in METHODS {
        let sim = SimEnv::new(1);
        let history = History::default();
        let (journal, _, _) = open(&sim.env(), small_options(method)).unwrap();
        sim.fs.set_space(Some(100_000));
        let number = history.submit(&journal, 1000, Wants::Sync).unwrap();
        Env::real().clock.sleep(Duration::from_millis(150));
        assert_eq!(journal.metrics().entries, 0);
        assert!(journal.failure().is_none());
        sim.fs.set_space(None);
        history.wait(number).unwrap();
        drop(journal);
        let (_journal, found, _) = open(&sim.env(), small_options(method)).unwrap();
        assert_eq!(history.check(&found).unwrap(), [0]);
    }
}

#[test]
fn a_file_whose_name_finds_no_space_delays_and_loses_nothing() {
    for method in METHODS {
        let sim = SimEnv::new(1);
        let history = History::default();
        let (journal, _, _) = open(&sim.env(), small_options(method)).unwrap();
        sim.fs.refuse_renames(true);
        // More than one file has room for.
        let numbers: Vec<_> =
            (0..15).map(|_| history.submit(&journal, 100_000, Wants::Sync).unwrap()).collect();
        Env::real().clock.sleep(Duration::from_millis(150));
        assert!(journal.metrics().entries < 15);
        assert!(journal.failure().is_none());
        sim.fs.refuse_renames(false);
        for number in &numbers {
            history.wait(*number).unwrap();
        }
        sim.fs.crash();
        drop(journal);
        let (_journal, found, _) = open(&sim.env(), small_options(method)).unwrap();
        assert_eq!(history.check(&found).unwrap(), numbers);
    }
}

#[test]
fn no_direct_access_falls_back_to_the_page_cache() {
    let sim = SimEnv::new(1);
    sim.fs.refuse_direct(true);
    let history = History::default();
    let (journal, _, _) = open(&sim.env(), small_options(SyncMethod::DirectDsync)).unwrap();
    history.store(&journal, 1000, Wants::Sync).unwrap();
    sim.fs.crash();
    drop(journal);
    let (_journal, found, _) = open(&sim.env(), small_options(SyncMethod::DirectDsync)).unwrap();
    assert_eq!(history.check(&found).unwrap(), [0]);
}

#[test]
fn a_failed_sync_or_write_poisons_the_journal_for_good() {
    type Fault = fn(&SimEnv);
    let faults: [Fault; 2] = [|sim| sim.fs.fail_sync_after(0), |sim| sim.fs.fail_write_after(0)];
    for method in METHODS {
        for fault in faults {
            let sim = SimEnv::new(1);
            let history = History::default();
            let (journal, _, _) = open(&sim.env(), small_options(method)).unwrap();
            history.store(&journal, 100, Wants::Sync).unwrap();
            let before = journal.delivered();
            fault(&sim);
            let error = history.store(&journal, 100, Wants::Sync).unwrap_err();
            assert!(matches!(error, JournalError::Write { .. }), "{error}");
            assert_eq!(error.kind(), ErrorKind::GiveUp);
            let syncs = sim.fs.syncs();
            assert!(matches!(history.store(&journal, 100, Wants::Sync), Err(JournalError::Write { .. })));
            assert!(matches!(journal.close(), Err(JournalError::Write { .. })));
            assert_eq!((sim.fs.syncs(), journal.delivered()), (syncs, before));
        }
    }
}

#[test]
fn a_directory_has_one_journal_at_a_time() {
    let sim = SimEnv::new(1);
    let options = small_options(SyncMethod::DirectDsync);
    let (journal, _, _) = open(&sim.env(), options).unwrap();
    let error = Journal::open(&sim.env(), Path::new(DIR), options).unwrap_err();
    assert!(matches!(error, JournalError::Locked { .. }), "{error}");
    journal.close().unwrap();
    let (second, _, _) = open(&sim.env(), options).unwrap();
    let history = History::default();
    assert!(matches!(history.store(&journal, 1, Wants::Sync), Err(JournalError::Closed)));
    history.store(&second, 1, Wants::Sync).unwrap();
    drop(second);
    open(&sim.env(), options).unwrap();
}

#[test]
fn entry_as_large_as_a_file_is_taken_and_a_larger_refused() {
    let sim = SimEnv::new(1);
    let options = small_options(SyncMethod::DirectDsync);
    let history = History::default();
    let (journal, _, _) = open(&sim.env(), options).unwrap();
    let bytes_max = journal.entry_bytes_max();
    assert!(bytes_max > 1_000_000);
    history.store(&journal, bytes_max, Wants::Sync).unwrap();
    history.store(&journal, bytes_max, Wants::Sync).unwrap();
    let error = history.submit(&journal, bytes_max + 1, Wants::Sync).unwrap_err();
    assert!(matches!(error, JournalError::TooLarge { .. }), "{error}");
    history.forget_behind(2);
    drop(journal);
    let (_journal, found, _) = open(&sim.env(), options).unwrap();
    assert_eq!(history.check(&found).unwrap(), [0, 1]);
}

/// A journal after a start that has found one entry of 5000 bytes.
fn with_an_entry(sim: &SimEnv, options: JournalOptions) -> (Journal, Vec<RecoveredEntry>) {
    let (journal, ..) = open(&sim.env(), options).expect("opened");
    History::default().store(&journal, 5000, Wants::Sync).expect("stored");
    drop(journal);
    let (journal, found, _) = open(&sim.env(), options).expect("opened again");
    (journal, found)
}

fn names(sim: &SimEnv) -> Vec<String> {
    let entries = sim.env().fs.read_dir(Path::new(DIR)).expect("listed");
    entries.into_iter().filter_map(|entry| entry.name.into_string().ok()).collect()
}

#[test]
fn side_file_without_room_takes_none() {
    let sim = SimEnv::new(1);
    let options = JournalOptions { reserve_bytes: 80_000, ..small_options(SyncMethod::DirectDsync) };
    let (journal, found) = with_an_entry(&sim, options);
    let before = names(&sim);
    for space in [0, 4_000, 9_000, 14_000] {
        sim.fs.set_space(Some(space));
        let error = journal.hold("dir", &found).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
        let available = sim.env().fs.available_bytes(Path::new(DIR)).unwrap();
        assert_eq!((names(&sim), available), (before.clone(), space));
        assert!(journal.held().is_empty());
    }
    // An eighth of the reserve is left.
    sim.fs.set_space(Some(16_000));
    journal.hold("dir", &found).unwrap();
    assert_eq!(journal.held(), ["dir"]);
}

#[test]
fn unfinished_side_file_takes_no_room_after_a_start() {
    let mut stops = 0;
    for count in 0.. {
        let sim = SimEnv::new(count);
        let options = small_options(SyncMethod::DirectDsync);
        let (journal, found) = with_an_entry(&sim, options);
        sim.fs.stop_after(count);
        let held = journal.hold("dir", &found);
        sim.fs.kill();
        stops += usize::from(names(&sim).iter().any(|name| name == "held-dir-00000000.new"));
        let (_journal, found_again, _) = open(&sim.env(), options).unwrap();
        let is_unfinished = |name: &String| Path::new(name).extension() == Some("new".as_ref());
        assert!(!names(&sim).iter().any(is_unfinished), "{:?}", names(&sim));
        assert_eq!(found_again.len(), 1);
        if held.is_ok() {
            break;
        }
    }
    assert!(stops > 1, "{stops}");
}

#[test]
fn files_are_found_also_when_their_numbers_need_another_digit() {
    let sim = SimEnv::new(1);
    let options = small_options(SyncMethod::DirectDsync);
    let history = History::default();
    let (journal, ..) = open(&sim.env(), options).unwrap();
    history.store(&journal, 100, Wants::Sync).unwrap();
    drop(journal);
    let path = |name: &str| Path::new(DIR).join(name);
    sim.env().fs.rename(&path("00000000.journal"), &path("99999999.journal")).unwrap();
    for count in 1..4 {
        let (journal, found, _) = open(&sim.env(), options).unwrap();
        assert_eq!(history.check(&found).unwrap().len(), count);
        history.store(&journal, 100, Wants::Sync).unwrap();
        sim.fs.kill();
    }
    assert!(names(&sim).iter().any(|name| name == "100000001.journal"), "{:?}", names(&sim));
    let (journal, found, _) = open(&sim.env(), options).unwrap();
    journal.hold("dir", &found[..1]).unwrap();
    drop(journal);
    sim.env().fs.rename(&path("held-dir-00000000"), &path("held-dir-99999999")).unwrap();
    let (journal, found, _) = open(&sim.env(), options).unwrap();
    journal.hold("dir", &found[..1]).unwrap();
    drop(journal);
    let (journal, ..) = open(&sim.env(), options).unwrap();
    let mut files = 0;
    journal.read_held("dir", |_| files += 1).unwrap();
    assert_eq!(files, 2, "{:?}", names(&sim));
}

#[test]
fn held_entries_are_given_until_they_are_released_and_not_twice() {
    let sim = SimEnv::new(1);
    let options = small_options(SyncMethod::DirectDsync);
    let history = History::default();
    let (journal, _, _) = open(&sim.env(), options).unwrap();
    for _ in 0..6 {
        history.store(&journal, 500, Wants::Sync).unwrap();
    }
    drop(journal);
    let (journal, found, _) = open(&sim.env(), options).unwrap();
    // Streams have every third entry: those of the first one are held in two parts.
    journal.hold("dir-1", &found[..1]).unwrap();
    journal.hold("dir-1", &found[3..4]).unwrap();
    journal.hold("dir-0", &found[1..2]).unwrap();
    let mut all = Vec::new();
    let note =
        |name: &str, entries: Vec<RecoveredEntry>| all.push((name.to_owned(), entries[0].header.index));
    journal.read_all_held(note).unwrap();
    assert_eq!(all, [("dir-1".to_owned(), 0), ("dir-1".to_owned(), 3), ("dir-0".to_owned(), 1)]);
    journal.release_held("dir-0").unwrap();
    assert_eq!(journal.held(), ["dir-1"]);
    drop(journal);
    let (journal, found, _) = open(&sim.env(), options).unwrap();
    let numbers: Vec<_> = found.iter().map(|entry| entry.header.index).collect();
    assert_eq!(numbers, [0, 3, 1, 2, 4, 5]);
    journal.settle_to(journal.delivered());
    history.store(&journal, 500, Wants::Sync).unwrap();
    drop(journal);
    let (journal, found, _) = open(&sim.env(), options).unwrap();
    let numbers: Vec<_> = found.iter().map(|entry| entry.header.index).collect();
    assert_eq!(numbers, [0, 3, 6]);
    assert_eq!(found[1].payload, payload(3, 500));
    journal.release_held("dir-1").unwrap();
    journal.release_held("dir-1").unwrap();
    assert!(journal.held().is_empty());
    assert!(matches!(journal.hold("../x", &found), Err(JournalError::Invalid { .. })));
    drop(journal);
    let (_journal, found, _) = open(&sim.env(), options).unwrap();
    assert_eq!(found.iter().map(|entry| entry.header.index).collect::<Vec<_>>(), [6]);
}

#[test]
fn another_size_or_alignment_is_taken_over_with_what_is_there() {
    let sim = SimEnv::new(1);
    let history = History::default();
    let sizes = [(2 << 20, 4096), (3 << 20, 512), (9 << 20, 65536), (2 << 20, 4096)];
    let mut positions = Vec::new();
    for (bytes, alignment) in sizes {
        let options = JournalOptions { alignment, ..JournalOptions::with_bytes(bytes) };
        let (journal, found, _) = open(&sim.env(), options).unwrap();
        assert_eq!(history.check(&found).unwrap(), (0..positions.len()).collect::<Vec<_>>());
        for _ in 0..3 {
            positions.push(history.store(&journal, 20_000, Wants::Sync).unwrap());
        }
    }
    assert!(positions.is_sorted());
    let (journal, found, _) = open(&sim.env(), JournalOptions::with_bytes(2 << 20)).unwrap();
    assert_eq!(found.len(), positions.len());
    for _ in 0..12 {
        history.settle(&journal);
        history.store(&journal, 300_000, Wants::Sync).unwrap();
    }
    let files = sim.env().fs.read_dir(Path::new(DIR)).unwrap();
    assert!(files.len() <= 4, "{files:?}");
}

#[test]
fn options_that_cannot_work_are_refused() {
    let sim = SimEnv::new(1);
    let good = JournalOptions::with_bytes(8 << 20);
    for bad in [
        JournalOptions { alignment: 100, ..good },
        JournalOptions { alignment: 256, ..good },
        JournalOptions { file_bytes: 1000, ..good },
        JournalOptions { file_bytes: (1 << 20) + 512, ..good },
    ] {
        let error = Journal::open(&sim.env(), Path::new(DIR), bad).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FixRequest, "{error}");
    }
}

#[test]
fn owner_with_the_last_reference_lets_the_thread_end() {
    let sim = SimEnv::new(1);
    let history = History::default();
    let (journal, _, _) = open(&sim.env(), small_options(SyncMethod::DirectDsync)).unwrap();
    let journal = Arc::new(journal);
    history.store(&journal, 10, Wants::Sync).unwrap();
    drop(journal);
    open(&sim.env(), small_options(SyncMethod::DirectDsync)).expect("the lock is free");
}

struct Panicking;

impl EntryOwner for Panicking {
    fn stored(&self, _entry: StoredEntry<'_>) {
        panic!("an owner with a bug");
    }

    fn failed(&self, _header: &EntryHeader, _error: &JournalError) {}
}

#[test]
fn panicking_owner_fails_the_journal() {
    let sim = SimEnv::new(1);
    let (journal, _, _) = open(&sim.env(), small_options(SyncMethod::DirectDsync)).unwrap();
    let submission = Submission {
        header: header(0),
        payload: payload(0, 10),
        wants: Wants::Sync,
        owner: Arc::new(Panicking),
    };
    journal.submit(submission).unwrap();
    assert_eq!(journal.dead_thread(), None);
    while journal.failure().is_none() {
        std::thread::yield_now();
    }
    let history = History::default();
    assert!(matches!(history.store(&journal, 1, Wants::Sync), Err(JournalError::Write { .. })));
    assert_eq!(journal.dead_thread(), Some("journal"));
}

#[test]
fn a_panic_at_the_disk_acks_nothing_and_fails_the_journal() {
    for method in METHODS {
        let sim = SimEnv::new(1);
        let (journal, _, _) = open(&sim.env(), small_options(method)).unwrap();
        let history = History::default();
        history.store(&journal, 10, Wants::Sync).unwrap();
        let delivered = journal.delivered();
        sim.fs.during_next_sync(|| panic!("planted"));
        history.submit(&journal, 10, Wants::Sync).unwrap();
        while journal.failure().is_none() {
            std::thread::yield_now();
        }
        assert_eq!(journal.delivered(), delivered, "it was not synced");
        assert!(journal.dead_thread().is_some());
        assert!(history.submit(&journal, 10, Wants::Sync).is_err());
    }
}

#[test]
fn a_journal_in_use_gives_again_what_is_not_settled() {
    const LAG: usize = 5;
    for method in METHODS {
        let sim = SimEnv::new(1);
        let history = History::default();
        let (journal, _, _) = open(&sim.env(), small_options(method)).unwrap();
        assert!(journal.reread(Position(0)).unwrap().next().unwrap().is_none());
        let mut positions = vec![];
        for index in 0..60 {
            let wants = if index % 3 == 0 { Wants::Write } else { Wants::Sync };
            let number = history.submit(&journal, 60_000 + index, wants).unwrap();
            positions.push(history.wait(number).unwrap());
            while journal.delivered() <= positions[index] {
                std::thread::yield_now();
            }
            let from = index.saturating_sub(LAG);
            journal.settle_to(positions[from]);
            let found = read_all(&mut journal.reread(positions[from]).unwrap()).unwrap();
            let expected: Vec<_> = (from..=index).map(|index| (positions[index], header(index))).collect();
            let given: Vec<_> = found.iter().map(|entry| (entry.position, entry.header)).collect();
            assert_eq!(given, expected);
            assert!(
                found
                    .iter()
                    .zip(from..)
                    .all(|(entry, index)| entry.payload == payload(index, 60_000 + index))
            );
        }
        assert!(positions[59] > Position(3 << 20), "files were used again");
    }
}

fn journal_files(sim: &SimEnv) -> Vec<PathBuf> {
    let names = sim.fs.read_dir(Path::new(DIR)).expect("listed").into_iter().map(|entry| entry.name);
    let mut paths: Vec<_> = names.map(|name| Path::new(DIR).join(name)).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "journal"));
    paths.sort();
    paths
}

/// Overwrites the beginning of a file with other bytes; its length stays.
fn write_over(sim: &SimEnv, path: &Path) {
    let file = sim.fs.open(path, riverrun_env::OpenMode::ReadWrite).expect("there");
    file.write_all_at(&[7; 4096], 0).expect("written");
}

#[test]
fn overwritten_full_file_is_missed_until_it_is_settled() {
    for is_restarted in [false, true] {
        for is_settled in [false, true] {
            let sim = SimEnv::new(1);
            let history = History::default();
            let (mut journal, _, _) = open(&sim.env(), small_options(SyncMethod::DirectDsync)).unwrap();
            while journal_files(&sim).len() < 2 {
                history.store(&journal, 60_000, Wants::Sync).unwrap();
            }
            if is_restarted {
                journal.close().unwrap();
                drop(journal);
                (journal, _, _) = open(&sim.env(), small_options(SyncMethod::DirectDsync)).unwrap();
            }
            if is_settled {
                journal.settle_to(journal.delivered());
                history.store(&journal, 10, Wants::Sync).unwrap();
                history.store(&journal, 10, Wants::Sync).unwrap();
            }
            write_over(&sim, &journal_files(&sim)[0]);
            journal.check_in_place();
            assert_eq!(journal.vanished().is_some(), !is_settled, "restarted: {is_restarted}");
        }
    }
}

#[test]
fn removed_journal_fails_and_makes_no_replacement() {
    let spoils: [fn(&SimEnv); 6] = [
        |sim| sim.fs.remove_dir_all(Path::new(DIR)).unwrap(),
        |sim| sim.fs.rename(Path::new(DIR), Path::new("/away")).unwrap(),
        |sim| sim.fs.remove_file(&Path::new(DIR).join("lock")).unwrap(),
        |sim| {
            let entries = sim.fs.read_dir(Path::new(DIR)).unwrap();
            let is_file = |name: &&riverrun_env::DirEntry| name.name.to_str().unwrap().ends_with(".journal");
            for entry in entries.iter().filter(is_file) {
                sim.fs.remove_file(&Path::new(DIR).join(&entry.name)).unwrap();
            }
        },
        |sim| {
            let entries = sim.fs.read_dir(Path::new(DIR)).unwrap();
            let is_file = |name: &&riverrun_env::DirEntry| name.name.to_str().unwrap().ends_with(".journal");
            for entry in entries.iter().filter(is_file) {
                let path = Path::new(DIR).join(&entry.name);
                let file = sim.fs.open(&path, riverrun_env::OpenMode::ReadWrite).unwrap();
                file.set_len(0).unwrap();
            }
        },
        |sim| journal_files(sim).iter().for_each(|path| write_over(sim, path)),
    ];
    for (number, spoil) in spoils.into_iter().enumerate() {
        for is_used in [true, false] {
            let sim = SimEnv::new(1);
            let history = History::default();
            let (journal, _, _) = open(&sim.env(), small_options(SyncMethod::DirectDsync)).unwrap();
            if is_used {
                history.store(&journal, 10, Wants::Sync).unwrap();
            }
            journal.check_in_place();
            assert!(journal.failure().is_none() && journal.vanished().is_none());
            spoil(&sim);
            journal.check_in_place();
            if number >= 3 && !is_used {
                assert!(journal.vanished().is_none(), "there was none");
                continue;
            }
            wait_until(|| journal.failure().is_some());
            assert!(matches!(journal.failure(), Some(JournalError::Vanished { .. })));
            assert_eq!(journal.vanished().unwrap().kind(), ErrorKind::GiveUp);
            assert!(history.store(&journal, 10, Wants::Sync).is_err());
            assert!(matches!(journal.close(), Err(JournalError::Vanished { .. })));
            if number < 2 {
                assert!(!sim.fs.exists(Path::new(DIR)).unwrap());
            }
        }
    }
}
