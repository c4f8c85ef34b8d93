//! A mounted queue and its answers, without a server around it.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use riverrun_queue::{Appender, CreateOptions, NewRecord};
use riverrun_records::{BatchBuilder, BatchOptions, Batches, ProducerStamp};
use riverrun_types::{ProducerEpoch, ProducerId, TimestampMs};
use tempfile::TempDir;
use tokio::sync::oneshot::error::TryRecvError;

use super::*;

mod refusals;

fn queue() -> (TempDir, Appender, MountedQueue) {
    let dir = tempfile::tempdir().expect("a directory");
    let queue = Queue::create(dir.path(), CreateOptions { segment_bytes: 4096 }).expect("made");
    let appender = queue.appender(AppendOptions::default()).expect("attached");
    let mounted = mount(dir.path());
    (dir, appender, mounted)
}

fn mount(dir: &Path) -> MountedQueue {
    mount_as(dir, false)
}

fn mount_as(dir: &Path, synced_only: bool) -> MountedQueue {
    let retention = Retention::default();
    let mount =
        Mount { topic: "quotes".to_owned(), dir: dir.to_owned(), writable: false, synced_only, retention };
    MountedQueue::open(&mount).expect("whole")
}

fn append(appender: &mut Appender, timestamp: i64) {
    let value = [7; 500];
    let record =
        NewRecord { timestamp: Some(TimestampMs(timestamp)), value: Some(&value), ..NewRecord::default() };
    appender.append_record(&record).expect("room");
}

fn offsets(slice: &Slice) -> Vec<i64> {
    Batches::new(&slice.bytes)
        .map(|batch| batch.expect("whole").verify().expect("whole").base_offset().0)
        .collect()
}

/// Searches step aside for the disk, which only a runtime with several threads lets them.
fn in_runtime(test: impl FnOnce()) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
    runtime.block_on(async { test() });
}

#[test]
fn whole_batches_are_read_in_order_within_the_limit() {
    in_runtime(|| {
        let (_dir, mut appender, mounted) = queue();
        (0..20).for_each(|time| append(&mut appender, time));
        let mut next = 0;
        while next < 20 {
            let slice = mounted.read(Offset(next), 1500, true).expect("readable");
            let found = offsets(&slice);
            assert_eq!(found, (next..next + 2).collect::<Vec<_>>());
            assert_eq!((slice.high_watermark, slice.more), (Offset(20), next + 2 < 20));
            next += 2;
        }
        assert!(mounted.read(Offset(20), 1500, true).expect("the end").bytes.is_empty());
        assert!(mounted.read(Offset(3), 10, false).expect("no room").bytes.is_empty());
        assert_eq!(offsets(&mounted.read(Offset(3), 10, true).expect("the first")), [3]);
        for wrong in [-1, 21] {
            let refused = mounted.read(Offset(wrong), 1500, true).expect_err("not there");
            assert_eq!(refused, Refused { code: ErrorCode::OFFSET_OUT_OF_RANGE, log_start: Offset(0) });
        }
    });
}

#[test]
fn offsets_by_time_are_those_of_the_first_records() {
    in_runtime(|| {
        let (_dir, mut appender, mounted) = queue();
        assert_eq!(mounted.max_timestamp(), Ok(None));
        for time in [10, 30, 20, 30, 5, 5, 5, 5, 5, 5, 5, 5, 40, 1] {
            append(&mut appender, time);
        }
        let epoch = mounted.epoch();
        for _ in 0..2 {
            for (time, found) in [(0, (10, 0)), (11, (30, 1)), (30, (30, 1)), (31, (40, 12))] {
                let expected = Some((TimestampMs(found.0), Offset(found.1), epoch));
                assert_eq!(mounted.offset_for_timestamp(TimestampMs(time)), Ok(expected), "{time}");
            }
            assert_eq!(mounted.offset_for_timestamp(TimestampMs(41)), Ok(None));
            assert_eq!(mounted.max_timestamp(), Ok(Some((TimestampMs(40), Offset(12), epoch))));
        }
    });
}

#[test]
fn a_mount_of_the_synced_ends_where_the_last_sync_did() {
    in_runtime(|| {
        let (dir, mut appender, _) = queue();
        let mounted = mount_as(dir.path(), true);
        (0..3).for_each(|time| append(&mut appender, time));
        assert_eq!(mounted.high_watermark(), Ok(Offset(0)));
        assert!(mounted.read(Offset(0), 5000, true).expect("nothing yet").bytes.is_empty());
        let refused = mounted.read(Offset(1), 5000, true).expect_err("beyond the end");
        assert_eq!(refused.code, ErrorCode::OFFSET_OUT_OF_RANGE);
        assert_eq!(
            (mounted.max_timestamp(), mounted.offset_for_timestamp(TimestampMs(0))),
            (Ok(None), Ok(None))
        );

        appender.sync().expect("synced");
        (3..6).for_each(|time| append(&mut appender, time));
        let slice = mounted.read(Offset(0), 5000, true).expect("readable");
        assert_eq!((offsets(&slice), slice.high_watermark, slice.more), (vec![0, 1, 2], Offset(3), false));
        let newest = Some((TimestampMs(2), Offset(2), mounted.epoch()));
        assert_eq!(mounted.max_timestamp(), Ok(newest));
        assert_eq!(mounted.offset_for_timestamp(TimestampMs(3)), Ok(None));
        assert_eq!(mounted.epoch_end_offset(mounted.epoch()), Ok((mounted.epoch(), Offset(3))));

        // A segment that was searched while only a part of it was synced is searched again.
        (6..20).for_each(|time| append(&mut appender, time));
        appender.sync().expect("synced");
        let newest = Some((TimestampMs(19), Offset(19), mounted.epoch()));
        assert_eq!(mounted.max_timestamp(), Ok(newest));
        assert_eq!(
            mounted.offset_for_timestamp(TimestampMs(4)).expect("found").map(|found| found.1),
            Some(Offset(4))
        );
        assert_eq!(
            offsets(&mounted.read(Offset(3), 50_000, true).expect("readable")),
            (3..20).collect::<Vec<_>>()
        );
    });
}

#[test]
fn an_epoch_ends_where_the_first_batch_of_a_later_one_begins() {
    in_runtime(|| {
        let (dir, mut appender, mounted) = queue();
        let first = mounted.epoch();
        (0..10).for_each(|time| append(&mut appender, time));
        drop(appender);
        drop(mounted);
        // Another boot id: the first to open the queue then recovers it.
        let control = OpenOptions::new().write(true).open(dir.path().join("queue.control")).expect("there");
        control.write_all_at(&[0x55; 16], 64).expect("written");
        let queue = Queue::open(dir.path()).expect("whole");
        let mut appender = queue.appender(AppendOptions::default()).expect("attached");
        (10..13).for_each(|time| append(&mut appender, time));
        let mounted = mount(dir.path());
        let second = mounted.epoch();
        assert!(second > first, "{first:?} {second:?}");
        assert_eq!(mounted.epoch_end_offset(first), Ok((first, Offset(10))));
        assert_eq!(mounted.epoch_end_offset(second), Ok((second, Offset(13))));
        assert_eq!(
            mounted.epoch_end_offset(LeaderEpoch(second.0 + 1)),
            Ok((LeaderEpoch::UNKNOWN, Offset(-1)))
        );
        assert_eq!(mounted.epoch_of(Offset(10)), Ok(second));
    });
}

#[test]
fn a_queue_that_is_gone_is_told_of_and_comes_back() {
    in_runtime(|| {
        let (dir, mut appender, mounted) = queue();
        append(&mut appender, 1);
        let control = dir.path().join("queue.control");
        let aside = dir.path().join("aside");
        std::fs::rename(&control, &aside).expect("renamed");
        mounted.look();
        let refused = mounted.read(Offset(0), 1000, true).expect_err("gone");
        assert_eq!(refused.code, ErrorCode::KAFKA_STORAGE_ERROR);
        assert!(mounted.trouble().is_some_and(|trouble| trouble.text.contains("quotes")));
        std::fs::rename(&aside, &control).expect("renamed");
        mounted.look();
        assert_eq!(offsets(&mounted.read(Offset(0), 1000, true).expect("back")), [0]);
        assert_eq!(mounted.trouble(), None);
    });
}

#[test]
fn a_file_that_was_cut_is_an_error_and_not_a_signal() {
    in_runtime(|| {
        let (dir, mut appender, mounted) = queue();
        (0..10).for_each(|time| append(&mut appender, time));
        let segment = dir.path().join(format!("{:020}.log", 0));
        OpenOptions::new().write(true).open(segment).expect("there").set_len(0).expect("cut");
        let refused = mounted.read(Offset(0), 100_000, true).expect_err("damaged");
        assert_eq!(refused.code, ErrorCode::KAFKA_STORAGE_ERROR);
        assert!(mounted.trouble().is_some_and(|trouble| trouble.text.contains("damaged")));
    });
}

#[test]
fn places_are_bounded_and_go_with_time_and_with_their_segments() {
    let (_dir, mut appender, mounted) = queue();
    append(&mut appender, 1);
    let mut cursors = Cursors::default();
    let reader = mounted.view.batches(StartAt::Start).expect("readable");
    let now = Instant::now();
    (0..1000).for_each(|offset| cursors.keep(Offset(offset), reader.clone(), now));
    let kept = |cursors: &mut Cursors| {
        (0..1000).filter(|offset| cursors.find(Offset(*offset), now).is_some()).count()
    };
    let full = kept(&mut cursors);
    assert!((1..100).contains(&full), "{full}");
    cursors.keep(Offset(2000), reader, now);
    cursors.release(Offset(2000), now);
    assert!(kept(&mut cursors) == 0 && cursors.find(Offset(2000), now).is_some());
    cursors.release(Offset(0), now + std::time::Duration::from_mins(1));
    assert!(cursors.find(Offset(2000), now).is_none());
}

#[test]
fn a_topic_id_is_a_uuid_that_does_not_look_like_an_option() {
    for queue in [0, 1, u128::MAX, 0xf8 << 120] {
        let id = topic_id(queue);
        assert!(!id.is_zero() && !id.to_string().starts_with('-'), "{id}");
    }
    assert_ne!(topic_id(2), topic_id(3));
}

/// A queue to which clients produce, whose thread does not run.
fn writable(segment_bytes: u64) -> (TempDir, MountedQueue) {
    let dir = tempfile::tempdir().expect("a directory");
    drop(Queue::create(dir.path(), CreateOptions { segment_bytes }).expect("made"));
    let mount = Mount {
        topic: "orders".to_owned(),
        dir: dir.path().to_owned(),
        writable: true,
        synced_only: false,
        retention: Retention::default(),
    };
    let mounted = MountedQueue::open_writable(&Env::real(), &mount, "cluster", &LogConfig::default());
    (dir, mounted.expect("whole"))
}

const NOW: TimestampMs = TimestampMs(1_700_000_000_000);

/// A batch of one record of a producer, which is its `sequence`th.
fn sent(sequence: i32, value: &[u8]) -> BytesMut {
    let producer = ProducerStamp { id: ProducerId(7), epoch: ProducerEpoch(0), base_sequence: sequence };
    let mut builder = BatchBuilder::new(BatchOptions { producer, ..BatchOptions::default() });
    builder.append(NOW, None, Some(value), &[]).expect("room");
    BytesMut::from(builder.build().expect("a batch").as_slice())
}

fn soon() -> Instant {
    Instant::now() + Duration::from_mins(1)
}

#[test]
fn batches_in_line_are_bounded_in_bytes() {
    let (_dir, mounted) = writable(8 << 20);
    let value = vec![7; 4 << 20];
    let mut waiting = Vec::new();
    let refused = loop {
        match mounted.produce(sent(i32::try_from(waiting.len()).expect("few"), &value), NOW, soon()) {
            Ok(answer) => waiting.push(answer),
            Err(refused) => break refused,
        }
    };
    assert_eq!((refused.code, waiting.len()), (ErrorCode::KAFKA_STORAGE_ERROR, 15), "64 MiB");
    mounted.stop_taking_in();
    mounted.take_in();
    for (offset, mut answer) in (0..).zip(waiting) {
        assert_eq!(answer.try_recv().expect("answered").expect("room").base_offset, Offset(offset));
    }
    let refused = mounted.produce(sent(15, b"x"), NOW, soon()).expect_err("it stops");
    assert_eq!(refused.code, ErrorCode::NOT_LEADER_OR_FOLLOWER);
}

#[test]
fn a_batch_for_which_nobody_waits_any_more_is_not_appended() {
    let (_dir, mounted) = writable(1 << 16);
    let mut late = mounted.produce(sent(0, b"late"), NOW, Instant::now()).expect("in the line");
    let mut next = mounted.produce(sent(0, b"next"), NOW, soon()).expect("in the line");
    assert_eq!(next.try_recv().expect_err("it waits"), TryRecvError::Empty);
    mounted.stop_taking_in();
    mounted.take_in();
    let refused = late.try_recv().expect("answered").expect_err("too late");
    assert_eq!(refused.code, ErrorCode::REQUEST_TIMED_OUT);
    assert_eq!(next.try_recv().expect("answered").expect("room").base_offset, Offset(0));
}

#[test]
fn a_start_remembers_the_producers_of_the_last_segments() {
    let (dir, mounted) = writable(4096);
    // Three to a segment.
    let answers: Vec<_> = (0..12)
        .map(|sequence| mounted.produce(sent(sequence, &[7; 1200]), NOW, soon()).expect("in the line"))
        .collect();
    mounted.stop_taking_in();
    mounted.take_in();
    drop(answers);
    let view = QueueView::open(dir.path()).expect("whole");
    assert_eq!(view.segments().expect("known"), [0, 3, 6, 9].map(Offset));
    let last = |since: i64, segments_max| {
        let producers = intake::remembered(&view, Offset(since), segments_max, NOW).expect("readable");
        let repeated = |sequence: i32| {
            let batch =
                riverrun_log::ProducedBatch::check(sent(sequence, &[7; 1200]), &LogConfig::default(), NOW);
            let batch = [batch.expect("whole").sequenced()];
            let verdict = producers.check(&batch, riverrun_log::producer_state::AppendOrigin::Client, true);
            matches!(verdict, Ok(riverrun_log::producer_state::SequenceVerdict::Duplicate(_)))
        };
        (0..12).filter(|sequence| repeated(*sequence)).collect::<Vec<_>>()
    };
    assert_eq!(last(0, 100), [7, 8, 9, 10, 11], "five of a producer");
    assert_eq!(last(0, 1), [9, 10, 11]);
    assert_eq!(last(10, 100), [10, 11]);
    assert_eq!(last(12, 100), [0; 0]);
}

#[test]
fn a_shortage_is_told_to_producers_and_does_not_stay() {
    let (_dir, mounted) = writable(1 << 16);
    let full =
        |kind: io::ErrorKind| QueueError::Io { action: "allocate", path: "q".into(), source: kind.into() };
    for error in [full(io::ErrorKind::StorageFull), full(io::ErrorKind::QuotaExceeded), QueueError::Busy] {
        assert_eq!(mounted.refuse_append(&error).code, ErrorCode::KAFKA_STORAGE_ERROR);
        assert_eq!(mounted.trouble(), None, "{error}");
    }
    let poisoned = QueueError::Poisoned { path: "q".into() };
    assert_eq!(mounted.refuse_append(&poisoned).code, ErrorCode::KAFKA_STORAGE_ERROR);
    assert!(mounted.trouble().is_some_and(|trouble| trouble.text.contains("a sync has failed")));
}
