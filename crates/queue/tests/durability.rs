//! Syncs, retention, and the memory that an append needs.

#![expect(clippy::unwrap_used, reason = "a test asserts")]

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use riverrun_queue::{
    AppendOptions, CreateOptions, Damage, Durability, NewRecord, Offset, Queue, QueueError, Retention,
    StartAt, TimestampMs,
};

const SMALL: CreateOptions = CreateOptions { segment_bytes: 16 << 10 };

fn with(durability: Durability) -> AppendOptions {
    AppendOptions { durability, ..AppendOptions::default() }
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn count(queue: &Queue, synced_only: bool) -> i64 {
    let mut tailer = queue.tailer(StartAt::Start).unwrap();
    tailer.set_synced_only(synced_only);
    let mut count = 0;
    while tailer.next().unwrap().is_some() {
        count += 1;
    }
    count
}

#[test]
fn synced_tailer_sees_only_synced_records() {
    let dir = tempfile::tempdir().unwrap();
    // No segment gets full: a full one would be synced in the background.
    let queue = Queue::create(dir.path(), CreateOptions::default()).unwrap();
    let mut asynchronous = queue.appender(AppendOptions::default()).unwrap();
    for _ in 0..50 {
        asynchronous.append(&[1; 500]).unwrap();
    }
    assert_eq!((count(&queue, false), count(&queue, true)), (50, 0));
    let mut synchronous = queue.appender(with(Durability::Sync)).unwrap();
    assert_eq!(synchronous.append(&[2; 500]).unwrap(), Offset(50));
    assert_eq!(count(&queue, true), 51);
    asynchronous.append(&[1; 500]).unwrap();
    assert_eq!((count(&queue, false), count(&queue, true)), (52, 51));
    queue.sync().unwrap();
    assert_eq!(count(&queue, true), 52);
}

#[test]
fn status_counts_unsynced_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), SMALL).unwrap();
    let mut appender = queue.appender(AppendOptions::default()).unwrap();
    appender.append(&[1; 500]).unwrap();
    let status = queue.status().unwrap();
    assert_eq!((status.start_offset, status.end_offset, status.segments), (Offset(0), Offset(1), 1));
    assert_eq!((status.unsynced_bytes, status.poisoned), (61 + 500 + 9, false));
    appender.sync().unwrap();
    assert_eq!(queue.status().unwrap().unsynced_bytes, 0);
    assert_eq!(queue.verify().unwrap(), 1);
}

#[test]
fn syncs_in_the_background_come_by_time_and_by_bytes() {
    for (interval, bytes) in [(Duration::from_millis(5), u64::MAX), (Duration::from_hours(1), 4000)] {
        let dir = tempfile::tempdir().unwrap();
        let queue = Queue::create(dir.path(), SMALL).unwrap();
        let mut appender = queue.appender(with(Durability::SyncEvery { interval, bytes })).unwrap();
        for _ in 0..100 {
            appender.append(&[1; 500]).unwrap();
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        while count(&queue, true) < 80 {
            assert!(Instant::now() < deadline, "{} are synced", count(&queue, true));
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(appender);
        assert_eq!(count(&queue, true), 100, "what is left is synced when the last appender goes");
    }
}

#[test]
fn after_a_boot_recovery_begins_where_the_sync_was() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), SMALL).unwrap();
    let mut appender = queue.appender(AppendOptions::default()).unwrap();
    for _ in 0..100 {
        appender.append(&[1; 500]).unwrap();
    }
    appender.sync().unwrap();
    let control = common::control_of(dir.path());
    for _ in 0..7 {
        appender.append(&[1; 500]).unwrap();
    }
    let dir = common::after_a_cut_of_power(dir.path(), &control);
    // Damage below the mark is not cut by recovery, but reported when it is read.
    flip(&dir.path().join("00000000000000000000.log"), 1000);
    let queue = Queue::open(dir.path()).unwrap();
    assert_eq!(queue.recovery().records_kept, 7);
    assert_eq!(queue.end_offset().unwrap(), Offset(107));
    assert_first_damage(&queue, "00000000000000000000.log");
}

fn assert_first_damage(queue: &Queue, name: &str) {
    let mut tailer = queue.tailer(StartAt::Start).unwrap();
    let damage = loop {
        match tailer.next() {
            Ok(record) => assert!(record.is_some()),
            Err(error) => break error,
        }
    };
    assert!(matches!(&damage, QueueError::Damaged { path, .. } if path.ends_with(name)), "{damage}");
}

#[test]
fn full_segments_are_synced_at_every_durability() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), SMALL).unwrap();
    let control = common::control_of(dir.path());
    let mut appender = queue.appender(AppendOptions::default()).unwrap();
    for _ in 0..100 {
        appender.append(&[1; 500]).unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    // 28 records fill a segment.
    while count(&queue, true) < 84 || common::control_of(dir.path())[12288..] == control[12288..] {
        assert!(Instant::now() < deadline, "{} are synced", count(&queue, true));
        std::thread::sleep(Duration::from_millis(1));
    }
    let dir = common::after_a_cut_of_power(dir.path(), &common::control_of(dir.path()));
    flip(&dir.path().join("00000000000000000000.log"), 1000);
    let queue = Queue::open(dir.path()).unwrap();
    assert_eq!((queue.recovery().records_kept, queue.end_offset().unwrap()), (16, Offset(100)));
    assert_first_damage(&queue, "00000000000000000000.log");
}

#[test]
fn a_clean_close_leaves_nothing_that_a_recovery_may_cut() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), CreateOptions::default()).unwrap();
    let mut appender = queue.appender(AppendOptions::default()).unwrap();
    for _ in 0..100 {
        appender.append(&[1; 500]).unwrap();
    }
    drop(appender);
    assert_eq!(queue.status().unwrap().unsynced_bytes, 0);
    let dir = common::after_a_cut_of_power(dir.path(), &common::control_of(dir.path()));
    flip(&dir.path().join("00000000000000000000.log"), 1000);
    let queue = Queue::open(dir.path()).unwrap();
    assert_eq!((queue.recovery().from_disk, queue.recovery().records_kept), (true, 0));
    assert_eq!((queue.end_offset().unwrap(), &queue.recovery().cut_at), (Offset(100), &None));
    assert_first_damage(&queue, "00000000000000000000.log");
}

#[test]
fn recovery_moves_cut_bytes_to_the_cut_directory() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), SMALL).unwrap();
    let control = common::control_of(dir.path());
    let mut appender = queue.appender(AppendOptions::default()).unwrap();
    for _ in 0..100 {
        appender.append(&[1; 500]).unwrap();
    }
    let dir = common::after_a_cut_of_power(dir.path(), &control);
    let (first, second, third) =
        ("00000000000000000000.log", "00000000000000000028.log", "00000000000000000056.log");
    flip(&dir.path().join(second), 1000);
    let before: Vec<Vec<u8>> =
        [first, second, third].map(|name| std::fs::read(dir.path().join(name)).unwrap()).into();
    let queue = Queue::open(dir.path()).unwrap();
    // The second record of the second segment is damaged.
    let cut_at = u64::try_from(61 + 500 + 9).unwrap();
    assert_eq!(queue.end_offset().unwrap(), Offset(29));
    assert_eq!(queue.recovery().cut_at, Some((dir.path().join(second), cut_at)));
    let cut_dir = queue.recovery().cut_to.clone().unwrap();
    let part = std::fs::read(cut_dir.join(format!("{second}.from-{cut_at}"))).unwrap();
    let (kept, cut) = before[1].split_at(570);
    assert!(cut.starts_with(&part) && cut[part.len()..].iter().all(|byte| *byte == 0));
    assert!(std::fs::read(cut_dir.join(third)).unwrap() == before[2]);
    assert!(!dir.path().join(third).exists());
    let after = std::fs::read(dir.path().join(second)).unwrap();
    assert!(after.starts_with(kept) && after[570..].iter().all(|byte| *byte == 0));
    assert!(std::fs::read(dir.path().join(first)).unwrap() == before[0]);
}

#[test]
fn a_cut_of_the_same_epoch_overwrites_none_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), SMALL).unwrap();
    let control = common::control_of(dir.path());
    queue.appender(AppendOptions::default()).unwrap().append(&[1; 500]).unwrap();
    let dir = common::after_a_cut_of_power(dir.path(), &control);
    let older = dir.path().join("cut-000001/00000000000000000000.log.from-0");
    std::fs::create_dir(older.parent().unwrap()).unwrap();
    std::fs::write(&older, b"of a recovery that was cut off itself").unwrap();
    flip(&dir.path().join("00000000000000000000.log"), 100);
    let queue = Queue::open(dir.path()).unwrap();
    assert_eq!(queue.recovery().cut_to.as_deref(), older.parent());
    assert_eq!(std::fs::read(&older).unwrap(), b"of a recovery that was cut off itself");
    assert_eq!(std::fs::read(older.with_extension("from-0.1")).unwrap().len(), 569);
}

#[test]
fn stopped_syncer_blocks_no_other_sync() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), SMALL).unwrap();
    let mut appender = queue.appender(with(Durability::Sync)).unwrap();
    appender.append(b"x").unwrap();
    // The lock names an owner that lives, as a stopped process does: the keeper of this queue.
    let control = std::fs::File::options().write(true).open(dir.path().join("queue.control")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&control, &2_u32.to_le_bytes(), 8200).unwrap();
    let mut took = Vec::new();
    for index in 0..30 {
        let begin = Instant::now();
        assert_eq!(appender.append(&[1; 1000]).unwrap(), Offset(index + 1));
        took.push(begin.elapsed());
        assert_eq!(count(&queue, true), index + 2);
    }
    // A wait takes 100 ms. A sync may take as long on a busy machine, but not each time.
    let waits = took.iter().filter(|took| **took >= Duration::from_millis(100)).count();
    assert!(waits < took.len() / 2, "only the first waits: {took:?}");
}

#[test]
fn an_idle_appender_keeps_no_old_segment() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), SMALL).unwrap();
    let mut idle = queue.appender(AppendOptions::default()).unwrap();
    idle.append(&[1; 1000]).unwrap();
    let elsewhere = Queue::open(dir.path()).unwrap();
    let mut busy = elsewhere.appender(AppendOptions::default()).unwrap();
    for _ in 0..100 {
        busy.append(&[1; 1000]).unwrap();
    }
    let two = Retention { bytes: Some(2 * SMALL.segment_bytes), ..Retention::default() };
    assert!(elsewhere.apply_retention(&two).unwrap() >= 4);
    assert_eq!(idle.append(&[1; 1000]).unwrap(), Offset(101));
}

#[test]
fn records_after_a_loss_have_another_epoch() {
    let dir = tempfile::tempdir().unwrap();
    for life in 0..3 {
        let queue = Queue::open_or_create(dir.path(), SMALL).unwrap();
        queue.appender(AppendOptions::default()).unwrap().append(&[life]).unwrap();
        drop(queue);
        flip(&dir.path().join("queue.control"), 64);
    }
    let bytes = std::fs::read(dir.path().join("00000000000000000000.log")).unwrap();
    let epochs: Vec<u8> = (0..3).map(|index| bytes[index * 69 + 15]).collect();
    assert_eq!(epochs, [0, 1, 2]);
}

#[test]
fn many_appenders_share_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), CreateOptions::default()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut appender = queue.appender(with(Durability::Sync)).unwrap();
                for _ in 0..50 {
                    let offset = appender.append(&[1; 100]).unwrap();
                    assert!(count(&queue, true) > offset.0);
                }
            });
        }
    });
    assert_eq!(count(&queue, true), 400);
}

#[test]
fn retention_by_size_removes_the_oldest_segments() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), SMALL).unwrap();
    let mut appender = queue.appender(AppendOptions::default()).unwrap();
    for _ in 0..200 {
        appender.append(&[1; 1000]).unwrap();
    }
    let mut reader = queue.tailer(StartAt::Offset(Offset(20))).unwrap();
    let four = Retention { bytes: Some(4 * SMALL.segment_bytes), ..Retention::default() };
    assert_eq!(queue.apply_retention(&four).unwrap(), 1, "the second is open");
    assert_eq!(reader.next().unwrap().unwrap().offset, Offset(20));
    let whatever = Retention { ignore_readers: true, ..four };
    assert!(queue.apply_retention(&whatever).unwrap() > 5);
    let start = queue.start_offset().unwrap();
    let lost = loop {
        match reader.next() {
            Ok(record) => assert!(record.is_some()),
            Err(error) => break error,
        }
    };
    assert!(matches!(lost, QueueError::OffsetOutOfRange { start: found, .. } if found == start), "{lost}");
    reader.seek(StartAt::Start).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().offset, start);
    assert_eq!(queue.end_offset().unwrap(), Offset(200));
    drop((reader, appender, queue));
    let queue = Queue::open(dir.path()).unwrap();
    assert_eq!(queue.start_offset().unwrap(), start);
    assert_eq!(count(&queue, false), 200 - start.0);
}

#[test]
fn retention_by_age_goes_by_the_records() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), SMALL).unwrap();
    let hour = Retention { age: Some(Duration::from_hours(1)), ..Retention::default() };
    let mut appender = queue.appender(AppendOptions { retention: hour, ..AppendOptions::default() }).unwrap();
    for index in 0..100 {
        let timestamp = (index < 60).then_some(TimestampMs(1_000_000));
        let record = NewRecord { value: Some(&[1; 1000]), timestamp, ..NewRecord::default() };
        appender.append_record(&record).unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while queue.start_offset().unwrap() < Offset(30) {
        assert!(Instant::now() < deadline, "the background removes what is old");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(queue.apply_retention(&hour).is_ok());
    assert!(queue.start_offset().unwrap() <= Offset(60), "what is young stays");
}

#[test]
fn a_single_record_of_long_ago_takes_no_young_segment_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), SMALL).unwrap();
    let mut appender = queue.appender(AppendOptions { ahead_bytes: 0, ..AppendOptions::default() }).unwrap();
    for index in 0..40 {
        // The first of the second segment.
        let timestamp = (index == 15).then_some(TimestampMs(0));
        let record = NewRecord { value: Some(&[1; 1000]), timestamp, ..NewRecord::default() };
        appender.append_record(&record).unwrap();
    }
    assert!(dir.path().join("00000000000000000015.log").exists());
    let hour = Retention { age: Some(Duration::from_hours(1)), ..Retention::default() };
    assert_eq!(queue.apply_retention(&hour).unwrap(), 0);
}

#[test]
fn retention_by_age_passes_over_a_segment_that_was_cut() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), SMALL).unwrap();
    let mut appender = queue.appender(AppendOptions { ahead_bytes: 0, ..AppendOptions::default() }).unwrap();
    for index in 0..100 {
        let timestamp = (index < 60).then_some(TimestampMs(1_000_000));
        let record = NewRecord { value: Some(&[1; 1000]), timestamp, ..NewRecord::default() };
        appender.append_record(&record).unwrap();
    }
    let segment = dir.path().join("00000000000000000015.log");
    std::fs::File::options().write(true).open(segment).unwrap().set_len(40).unwrap();
    let hour = Retention { age: Some(Duration::from_hours(1)), ..Retention::default() };
    assert_eq!(queue.apply_retention(&hour).unwrap(), 3);
    assert_eq!(queue.start_offset().unwrap(), Offset(45), "what is young stays");
}

#[test]
fn a_next_segment_is_ready_before_it_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), SMALL).unwrap();
    let mut appender = queue.appender(AppendOptions::default()).unwrap();
    let prepared = dir.path().join("segment.prepared-1");
    for round in 0..5 {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !prepared.exists() {
            assert!(Instant::now() < deadline, "in round {round}");
            std::thread::sleep(Duration::from_millis(1));
        }
        for _ in 0..16 {
            appender.append(&[1; 1000]).unwrap();
        }
    }
    drop((appender, queue));
    let queue = Queue::open(dir.path()).unwrap();
    assert!(!prepared.exists(), "opening alone removes unused files");
    assert_eq!(count(&queue, false), 80);
}

#[test]
fn synced_tailer_sees_only_synced_records_after_seeking() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), SMALL).unwrap();
    let mut appender = queue.appender(AppendOptions::default()).unwrap();
    appender.append(b"synced").unwrap();
    appender.sync().unwrap();
    appender.append(b"not synced").unwrap();
    let mut tailer = queue.tailer(StartAt::Start).unwrap();
    tailer.set_synced_only(true);
    tailer.seek(StartAt::End).unwrap();
    assert!(tailer.next().unwrap().is_none());
    tailer.seek(StartAt::Start).unwrap();
    assert_eq!(tailer.next().unwrap().unwrap().value, Some(b"synced".as_slice()));
    assert!(tailer.next().unwrap().is_none());
}

/// Makes a sync fail because a segment is missing, and another one succeed; returns what an append returns then.
fn append_after_a_sync_that_could_not_begin() -> Result<(), QueueError> {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), SMALL).unwrap();
    let mut appender = queue.appender(AppendOptions { ahead_bytes: 0, ..AppendOptions::default() }).unwrap();
    for _ in 0..20 {
        appender.append(&[1; 1000]).unwrap();
    }
    let elsewhere = Queue::open(dir.path()).unwrap();
    // With nothing of the first segment left to sync, the time for which the second is hidden does not depend on the
    // disk.
    elsewhere.sync().unwrap();
    appender.append(&[1; 1000]).unwrap();
    let segment = dir.path().join("00000000000000000015.log");
    let hidden = dir.path().join("hidden");
    std::fs::rename(&segment, &hidden).unwrap();
    assert!(elsewhere.sync().is_err());
    std::fs::rename(&hidden, &segment).unwrap();
    elsewhere.sync().unwrap();
    appender.append(&[1; 1000])?;
    assert!(!queue.status().unwrap().poisoned);
    Ok(())
}

#[test]
fn a_sync_that_could_not_begin_may_be_tried_again() {
    // The keeper, which checks the files once a second, may do so just while the segment is hidden.
    let is_over = |outcome: &Result<(), QueueError>| {
        !matches!(outcome, Err(QueueError::Damaged { what: Damage::Vanished, .. }))
    };
    let outcome = (0..5).map(|_| append_after_a_sync_that_could_not_begin()).find(is_over);
    outcome.expect("the keeper does not look each time").unwrap();
}

#[test]
fn a_sync_after_a_roll_does_not_go_by_the_names_of_all_segments() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), CreateOptions { segment_bytes: 4096 }).unwrap();
    let mut appender = queue.appender(AppendOptions { ahead_bytes: 0, ..AppendOptions::default() }).unwrap();
    // Its name looks like a segment's.
    std::fs::write(dir.path().join("00000000000000000001.log"), b"none").unwrap();
    for _ in 0..9 {
        appender.append(&[1; 1000]).unwrap();
        appender.sync().unwrap();
    }
    assert!(dir.path().join("00000000000000000003.log").exists(), "it has rolled");
}

#[test]
fn failed_sync_is_forgotten_by_a_boot_but_not_by_a_mount() {
    const POISONED_AT: usize = 4360;
    for (life_at, poisoned) in [(64, false), (80, true)] {
        let dir = tempfile::tempdir().unwrap();
        drop(Queue::create(dir.path(), SMALL).unwrap());
        let control = dir.path().join("queue.control");
        flip(&control, POISONED_AT);
        flip(&control, life_at);
        let queue = Queue::open(dir.path()).unwrap();
        assert!(queue.recovery().from_disk);
        assert_eq!(queue.status().unwrap().poisoned, poisoned);
        let appended = queue.appender(AppendOptions::default()).unwrap().append(b"x").map(|_| ());
        assert_eq!(matches!(appended, Err(QueueError::Poisoned { .. })), poisoned);
    }
}
