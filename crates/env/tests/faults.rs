//! The faults of the simulated file system: stops, power cuts, failing syncs, full disks.

use std::io::ErrorKind;
use std::path::Path;

use riverrun_env::sim::{PlantedBug, SimFileSystem};
use riverrun_env::{
    ChangeError, FileSystem, OpenMode, atomic_replace, is_device_error, is_shortage, read_whole,
};

fn content(fs: &SimFileSystem, path: &str) -> Option<Vec<u8>> {
    read_whole(fs, Path::new(path), 1 << 20).ok()
}

#[test]
fn kill_keeps_written_bytes_and_power_cut_synced_ones() {
    for seed in 0..40 {
        let fs = SimFileSystem::new(seed);
        let file = fs.open("/f".as_ref(), OpenMode::CreateNew).unwrap();
        file.write_all_at(b"synced", 0).unwrap();
        file.sync_data().unwrap();
        fs.sync_dir("/".as_ref()).unwrap();
        fs.open("/g".as_ref(), OpenMode::CreateNew).unwrap().write_all_at(b"not", 0).unwrap();
        fs.kill();
        assert_eq!(content(&fs, "/g").as_deref(), Some(b"not".as_slice()));
        fs.crash();
        assert_eq!(content(&fs, "/f").as_deref(), Some(b"synced".as_slice()), "seed {seed}");
    }
}

#[test]
fn a_synced_file_whose_directory_was_not_synced_may_be_gone() {
    let vanished = (0..40).filter(|seed| {
        let fs = SimFileSystem::new(*seed);
        let file = fs.open("/f".as_ref(), OpenMode::CreateNew).unwrap();
        file.write_all_at(b"synced", 0).unwrap();
        file.sync_all().unwrap();
        fs.crash();
        content(&fs, "/f").is_none()
    });
    let vanished = vanished.count();
    assert!((1..40).contains(&vanished), "{vanished} of 40");
}

#[test]
fn an_atomic_replacement_is_old_or_new_at_every_stop() {
    let old = vec![1; 2000];
    let new = vec![2; 3000];
    let prepared = |seed| {
        let fs = SimFileSystem::new(seed);
        atomic_replace(&fs, "/f".as_ref(), &old).unwrap();
        fs
    };
    let reference = prepared(0);
    let before = reference.operations();
    atomic_replace(&reference, "/f".as_ref(), &new).unwrap();
    let steps = reference.operations() - before;
    let mut seen_old = false;
    for step in 0..=steps {
        for seed in 0..30 {
            let fs = prepared(seed);
            fs.stop_after(step);
            let finished = atomic_replace(&fs, "/f".as_ref(), &new).is_ok();
            assert_eq!(finished, step == steps);
            fs.crash();
            let found = content(&fs, "/f").expect("one of the two");
            assert!(found == new || (found == old && !finished), "step {step}, seed {seed}");
            seen_old |= found == old;
        }
    }
    assert!(seen_old);
}

#[test]
fn after_the_stop_nothing_works_and_old_handles_stay_dead() {
    let fs = SimFileSystem::new(3);
    let file = fs.open("/f".as_ref(), OpenMode::CreateNew).unwrap();
    let lock = fs.lock("/lock".as_ref()).unwrap();
    fs.stop_after(1);
    file.write_all_at(b"last", 0).unwrap();
    assert!(file.sync_data().is_err());
    assert!(fs.exists("/f".as_ref()).is_err());
    fs.kill();
    assert!(file.len().is_err());
    let _held_by_the_new_life = fs.lock("/lock".as_ref()).expect("the old holder is dead");
    drop(lock);
    assert_eq!(fs.lock("/lock".as_ref()).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn the_write_at_the_stop_leaves_a_prefix() {
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let fs = SimFileSystem::new(seed);
        let file = fs.open("/f".as_ref(), OpenMode::CreateNew).unwrap();
        fs.stop_after(0);
        assert!(file.write_all_at(&[7; 100], 0).is_err());
        assert!(file.write_all_at(&[8; 100], 0).is_err());
        fs.kill();
        let found = content(&fs, "/f").unwrap();
        assert!(found.iter().all(|byte| *byte == 7));
        lengths.insert(found.len());
    }
    assert!(lengths.len() > 10, "{lengths:?}");
}

#[test]
fn one_sync_fails_and_the_repeated_one_lies() {
    let fs = SimFileSystem::new(1);
    let file = fs.open("/f".as_ref(), OpenMode::CreateNew).unwrap();
    file.write_all_at(b"old", 0).unwrap();
    fs.open_volume("/".as_ref()).unwrap().sync().unwrap();
    fs.fail_sync_after(1);
    file.sync_data().unwrap();
    file.write_all_at(b"new", 0).unwrap();
    assert!(file.sync_data().is_err());
    file.sync_data().unwrap();
    assert_eq!(content(&fs, "/f").unwrap(), b"new");
    fs.crash();
    assert_eq!(content(&fs, "/f").unwrap(), b"old");
}

#[test]
fn a_silent_volume_leaves_it_to_each_file_to_say_what_was_lost() {
    let fs = SimFileSystem::new(1);
    fs.silence_volumes(true);
    let [lost, kept] = ["/lost", "/kept"].map(|path| fs.open(path.as_ref(), OpenMode::CreateNew).unwrap());
    let volume = fs.open_volume("/".as_ref()).unwrap();
    assert!(!volume.tells_of_lost_writes());
    lost.write_all_at(b"old", 0).unwrap();
    volume.sync().unwrap();
    lost.write_all_at(b"new", 0).unwrap();
    fs.fail_sync_after(0);
    volume.sync().unwrap();
    assert!(lost.sync_data().is_err());
    lost.sync_data().unwrap();
    kept.sync_data().unwrap();
    fs.crash();
    assert_eq!(content(&fs, "/lost").unwrap(), b"old");
}

#[test]
fn unstarted_writes_are_lost_and_no_sync_reports_it() {
    for planted in [None, Some(PlantedBug::IgnoredWriteBackError)] {
        let fs = SimFileSystem::new(1);
        let file = fs.open("/f".as_ref(), OpenMode::CreateNew).unwrap();
        file.write_all_at(&[1; 3 * 4096], 0).unwrap();
        fs.open_volume("/".as_ref()).unwrap().sync().unwrap();
        file.write_all_at(&[2; 3 * 4096], 0).unwrap();
        if let Some(bug) = planted {
            fs.plant(bug);
        }
        fs.fail_write_back_after(1);
        file.begin_write_back(0, 4096).unwrap();
        assert_eq!(file.begin_write_back(4096, 4096).is_err(), planted.is_none());
        file.begin_write_back(8192, 4096).unwrap();
        file.sync_data().unwrap();
        assert_eq!(content(&fs, "/f").unwrap(), [2; 3 * 4096]);
        fs.crash();
        assert_eq!(content(&fs, "/f").unwrap(), [[2; 4096], [1; 4096], [2; 4096]].concat());
    }
}

#[test]
fn a_full_disk_takes_what_fits_and_recovers_when_space_returns() {
    let fs = SimFileSystem::new(1);
    let file = fs.open("/f".as_ref(), OpenMode::CreateNew).unwrap();
    fs.set_space(Some(5));
    assert_eq!(file.write_all_at(b"12345678", 0).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(file.len().unwrap(), 5);
    assert_eq!(fs.available_bytes("/".as_ref()).unwrap(), 0);
    file.write_all_at(b"abcde", 0).expect("overwriting needs no space");
    file.set_len(1).unwrap();
    assert_eq!(fs.available_bytes("/".as_ref()).unwrap(), 4);
    file.write_all_at(b"bcde", 1).unwrap();
}

#[test]
fn full_device_refuses_writes_and_others_take_them() {
    let fs = SimFileSystem::new(1);
    let make = |path: &str| fs.open(path.as_ref(), OpenMode::CreateNew).unwrap();
    fs.create_dir_all("/full/below".as_ref()).unwrap();
    let (before, other) = (make("/full/before"), make("/other"));
    before.write_all_at(b"1234", 0).unwrap();
    fs.fill_device(Some("/full".as_ref()));
    let after = make("/full/below/after");
    for (file, at) in [(&before, 2), (&after, 0)] {
        assert_eq!(file.write_all_at(b"abc", at).unwrap_err().kind(), ErrorKind::StorageFull);
    }
    assert_eq!((before.len().unwrap(), after.len().unwrap()), (4, 0));
    before.write_all_at(b"abcd", 0).expect("overwriting needs no space");
    other.write_all_at(b"abc", 0).unwrap();
    let available = |path: &str| fs.available_bytes(path.as_ref()).unwrap();
    assert_eq!((available("/full/below"), available("/")), (0, u64::MAX));
    fs.fill_device(None);
    after.write_all_at(b"abc", 0).unwrap();
}

#[test]
fn replaced_or_removed_file_gives_its_space_back() {
    let fs = SimFileSystem::new(1);
    for (path, bytes) in [("/old", 10), ("/new", 20)] {
        fs.open(path.as_ref(), OpenMode::CreateNew).unwrap().write_all_at(&vec![1; bytes], 0).unwrap();
    }
    fs.set_space(Some(100));
    fs.rename("/new".as_ref(), "/old".as_ref()).unwrap();
    assert_eq!(fs.available_bytes("/".as_ref()).unwrap(), 110);
    fs.remove_file("/old".as_ref()).unwrap();
    assert_eq!(fs.available_bytes("/".as_ref()).unwrap(), 130);
}

#[test]
fn one_call_by_path_fails_and_has_done_nothing() {
    let fs = SimFileSystem::new(1);
    let open = || fs.open("/f".as_ref(), OpenMode::CreateNew);
    fs.fail_call_after(1, ErrorKind::OutOfMemory);
    let before = fs.calls();
    assert!(!fs.exists("/f".as_ref()).unwrap());
    let error = open().unwrap_err();
    assert!(error.kind() == ErrorKind::OutOfMemory && is_shortage(&error), "{error}");
    open().unwrap();
    assert_eq!(fs.calls() - before, 3);
}

#[test]
fn no_descriptors_stop_opens_and_lists_but_not_renames() {
    let fs = SimFileSystem::new(1);
    fs.open("/f".as_ref(), OpenMode::CreateNew).unwrap();
    fs.exhaust_descriptors(true);
    let refusals = [
        fs.open("/f".as_ref(), OpenMode::Read).map(|_| ()),
        fs.open_dir("/".as_ref()).map(|_| ()),
        fs.read_dir("/".as_ref()).map(|_| ()),
    ];
    assert!(refusals.iter().all(|refused| refused.as_ref().is_err_and(is_shortage)), "{refusals:?}");
    fs.rename("/f".as_ref(), "/g".as_ref()).unwrap();
    fs.exhaust_descriptors(false);
    assert!(fs.exists("/g".as_ref()).unwrap());
}

#[test]
fn a_replacement_says_whether_the_disk_is_known() {
    let fs = SimFileSystem::new(1);
    let replace = |bytes: &[u8]| atomic_replace(&fs, "/f".as_ref(), bytes);
    replace(b"old").unwrap();
    let shortages: [fn(&SimFileSystem, bool); 2] =
        [|fs, is_short| fs.exhaust_descriptors(is_short), |fs, is_short| fs.set_space(is_short.then_some(1))];
    for (what, set) in shortages.into_iter().enumerate() {
        set(&fs, true);
        let error = replace(b"new").unwrap_err();
        set(&fs, false);
        assert!(
            matches!(&error, ChangeError::Undone(cause) if is_shortage(cause)),
            "shortage {what}: {error:?}"
        );
        assert_eq!(content(&fs, "/f").unwrap(), b"old", "shortage {what}");
    }
    fs.fail_write_after(0);
    let error = replace(b"new").unwrap_err();
    assert!(matches!(&error, ChangeError::Undone(cause) if !is_shortage(cause)), "{error:?}");
    assert_eq!(content(&fs, "/f").unwrap(), b"old");
    for sync in 0..2 {
        fs.fail_sync_after(sync);
        let error = replace(b"new").unwrap_err();
        assert!(matches!(error, ChangeError::Unknown(_)), "sync {sync}: {error:?}");
    }
    replace(b"new").unwrap();
    assert_eq!(content(&fs, "/f").unwrap(), b"new");
}

#[test]
fn a_replacement_for_which_there_is_no_space_keeps_none() {
    let fs = SimFileSystem::new(1);
    atomic_replace(&fs, "/f".as_ref(), &[1; 100]).unwrap();
    let names = || fs.read_dir("/".as_ref()).unwrap().len();
    for is_name_refused in [false, true] {
        fs.set_space(Some(if is_name_refused { 5000 } else { 999 }));
        fs.refuse_renames(is_name_refused);
        let before = fs.available_bytes("/".as_ref()).unwrap();
        let error = atomic_replace(&fs, "/f".as_ref(), &[2; 1000]).unwrap_err();
        assert!(matches!(&error, ChangeError::Undone(cause) if is_shortage(cause)), "{error:?}");
        assert_eq!((names(), fs.available_bytes("/".as_ref()).unwrap()), (1, before), "{is_name_refused}");
        assert_eq!(content(&fs, "/f").unwrap(), [1; 100]);
    }
    fs.refuse_renames(false);
    atomic_replace(&fs, "/f".as_ref(), &[2; 1000]).unwrap();
    assert_eq!(content(&fs, "/f").unwrap(), [2; 1000]);
}

#[test]
fn a_durable_write_survives_a_power_cut_and_nothing_else_does() {
    let mut others_lost = 0;
    for seed in 0..40 {
        let fs = SimFileSystem::new(seed);
        let file = fs.open("/f".as_ref(), OpenMode::CreateNew).unwrap();
        fs.sync_dir("/".as_ref()).unwrap();
        file.write_all_at(&[1; 512], 0).unwrap();
        file.write_durable_at(&[2; 512], 512).unwrap();
        fs.crash();
        let found = content(&fs, "/f").unwrap();
        assert_eq!(found[512..], [2; 512], "seed {seed}");
        others_lost += usize::from(found[..512] != [1; 512]);
    }
    assert!((1..40).contains(&others_lost), "{others_lost} of 40");
}

#[test]
fn a_durable_write_fails_as_a_write_and_as_a_sync() {
    let fs = SimFileSystem::new(1);
    let file = fs.open("/f".as_ref(), OpenMode::CreateNew).unwrap();
    fs.sync_dir("/".as_ref()).unwrap();
    let before = (fs.operations(), fs.syncs());
    file.write_durable_at(&[1; 1024], 0).unwrap();
    assert_eq!((fs.operations(), fs.syncs()), (before.0 + 2, before.1 + 1));
    fs.fail_sync_after(0);
    assert!(file.write_durable_at(&[2; 512], 0).is_err());
    file.sync_data().expect("the repeated sync lies");
    assert_eq!(content(&fs, "/f").unwrap()[..512], [2; 512]);
    fs.crash();
    assert_eq!(content(&fs, "/f").unwrap(), [1; 1024]);
    let file = fs.open("/f".as_ref(), OpenMode::ReadWrite).unwrap();
    fs.fail_write_after(0);
    assert!(file.write_durable_at(&[3; 512], 0).is_err());
    fs.set_space(Some(512));
    let error = file.write_durable_at(&[4; 1024], 1024).unwrap_err();
    assert_eq!((error.kind(), file.len().unwrap()), (ErrorKind::StorageFull, 1536));
}

#[test]
fn a_file_past_the_page_cache_can_be_refused() {
    let fs = SimFileSystem::new(1);
    fs.open("/f".as_ref(), OpenMode::CreateNew).unwrap();
    fs.refuse_direct(true);
    assert_eq!(fs.open_direct("/f".as_ref()).unwrap_err().kind(), ErrorKind::Unsupported);
    fs.refuse_direct(false);
    fs.open_direct("/f".as_ref()).unwrap();
}

#[test]
fn bad_sectors_end_earlier_reads_and_fail_those_inside() {
    let fs = SimFileSystem::new(1);
    let file = fs.open("/f".as_ref(), OpenMode::CreateNew).unwrap();
    file.write_all_at(b"0123456789", 0).unwrap();
    fs.break_sectors("/f".as_ref(), 4..6).unwrap();
    let read = |position, len| {
        let mut buffer = vec![0; len];
        file.read_at(&mut buffer, position).map(|read| buffer[..read].to_vec()).ok()
    };
    assert_eq!(read(0, 10).unwrap(), b"0123");
    assert_eq!((read(4, 1), read(5, 5)), (None, None));
    assert_eq!(read(6, 10).unwrap(), b"6789");
    let exact = |position, len| file.read_exact_at(&mut vec![0; len], position).map_err(|error| error.kind());
    assert_eq!((exact(0, 4), exact(6, 4)), (Ok(()), Ok(())));
    assert!(exact(0, 5).is_err_and(|kind| kind != ErrorKind::UnexpectedEof));
    assert_eq!(exact(6, 5), Err(ErrorKind::UnexpectedEof));
    let exact_is_device_error =
        |position| is_device_error(&file.read_exact_at(&mut [0; 5], position).unwrap_err());
    assert!(exact_is_device_error(0) && !exact_is_device_error(6));
    fs.break_sectors("/f".as_ref(), 0..0).unwrap();
    assert_eq!(read(0, 10).unwrap(), b"0123456789");
    fs.break_sectors("/f".as_ref(), 4..6).unwrap();
    file.set_len(5).unwrap();
    assert_eq!(read(4, 1), None);
    file.set_len(4).unwrap();
    file.write_all_at(b"4567", 4).unwrap();
    assert_eq!(read(0, 10).unwrap(), b"01234567", "other sectors were taken for it");
}

#[test]
fn forbidden_path_is_neither_opened_nor_listed_nor_made() {
    let fs = SimFileSystem::new(1);
    fs.create_dir_all("/a".as_ref()).unwrap();
    fs.open("/a/f".as_ref(), OpenMode::CreateNew).unwrap();
    let refusals = || {
        let opened = fs.open("/a/f".as_ref(), OpenMode::Read).map(|_| ());
        let listed = fs.read_dir("/a".as_ref()).map(|_| ());
        [opened, listed, fs.create_dir_all("/a/b".as_ref())].map(|tried| tried.map_err(|error| error.kind()))
    };
    fs.forbid(Some("/a".as_ref())).unwrap();
    assert_eq!(refusals(), [Err(ErrorKind::PermissionDenied); 3]);
    fs.forbid(None).unwrap();
    assert_eq!(refusals(), [Ok(()); 3]);
}
