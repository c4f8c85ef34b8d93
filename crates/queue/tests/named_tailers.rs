//! Tailers that keep their place under a name.

#![expect(clippy::unwrap_used, reason = "a test asserts")]

mod common;

use riverrun_queue::{AppendOptions, CreateOptions, Offset, Queue, QueueError, Retention, StartAt};

const SMALL: CreateOptions = CreateOptions { segment_bytes: 16 << 10 };

fn filled(dir: &std::path::Path) -> Queue {
    let queue = Queue::open_or_create(dir, SMALL).unwrap();
    let mut appender = queue.appender(AppendOptions::default()).unwrap();
    for _ in 0..100 {
        appender.append(&[1; 1000]).unwrap();
    }
    drop(appender);
    queue
}

fn read(queue: &Queue, name: &str, count: i64) -> Offset {
    let mut tailer = queue.named_tailer(name, StartAt::Start).unwrap();
    let first = tailer.offset();
    for index in 0..count {
        assert_eq!(tailer.next().unwrap().unwrap().offset, first.plus(index));
        tailer.keep_place().unwrap();
    }
    first
}

#[test]
fn a_name_goes_on_where_its_place_was_kept() {
    let dir = tempfile::tempdir().unwrap();
    let queue = filled(dir.path());
    assert_eq!(read(&queue, "one", 10), Offset(0));
    assert_eq!(read(&queue, "one", 5), Offset(10));
    assert_eq!(read(&queue, "other", 1), Offset(0));
    drop(queue);
    let queue = Queue::open(dir.path()).unwrap();
    assert_eq!(read(&queue, "one", 0), Offset(15));
}

#[test]
fn closed_named_tailer_keeps_no_segment_and_counts_missed() {
    let dir = tempfile::tempdir().unwrap();
    let queue = filled(dir.path());
    assert_eq!(read(&queue, "one", 10), Offset(0));
    let two = Retention { bytes: Some(2 * SMALL.segment_bytes), ..Retention::default() };
    assert!(queue.apply_retention(&two).unwrap() > 0);
    let start = queue.start_offset().unwrap();
    let mut tailer = queue.named_tailer("one", StartAt::Start).unwrap();
    assert_eq!((tailer.offset(), tailer.missed()), (start, start.0.unsigned_abs() - 10));
    tailer.keep_place().unwrap();
    drop(tailer);
    assert_eq!(queue.named_tailer("one", StartAt::Start).unwrap().missed(), 0);
    assert_eq!(queue.named_tailer("new", StartAt::Start).unwrap().missed(), 0);
}

#[test]
fn a_slot_that_is_damaged_falls_back_to_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    let queue = filled(dir.path());
    read(&queue, "one", 10);
    let path = dir.path().join("tailers/one");
    let mut bytes = std::fs::read(&path).unwrap();
    // The tenth place lies in the even slot.
    bytes[0] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(read(&queue, "one", 0), Offset(9));
}

#[test]
fn a_name_is_used_once_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let queue = filled(dir.path());
    let held = queue.named_tailer("one", StartAt::End).unwrap();
    let second = queue.named_tailer("one", StartAt::End).map(|_| ());
    assert!(matches!(second, Err(QueueError::NameInUse { .. })), "{second:?}");
    drop(held);
    assert!(queue.named_tailer("one", StartAt::End).is_ok());
}

#[test]
fn removed_place_moves_to_the_first_record() {
    let dir = tempfile::tempdir().unwrap();
    let queue = filled(dir.path());
    read(&queue, "one", 3);
    let some =
        Retention { bytes: Some(4 * SMALL.segment_bytes), ignore_readers: true, ..Retention::default() };
    queue.apply_retention(&some).unwrap();
    let start = queue.start_offset().unwrap();
    assert!(start > Offset(3));
    assert_eq!(read(&queue, "one", 0), start);
}

#[test]
fn names_that_could_lead_elsewhere_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let queue = filled(dir.path());
    for name in ["", ".", "..", "../x", "a/b", ".hidden", "ü", &"x".repeat(101)] {
        let refused = queue.named_tailer(name, StartAt::Start).map(|_| ());
        assert!(matches!(refused, Err(QueueError::Options(_))), "{name:?}");
    }
}

fn open(queue: &Queue, name: &str) -> Result<Offset, QueueError> {
    queue.named_tailer(name, StartAt::Start).map(|tailer| tailer.offset())
}

#[test]
fn place_of_a_queue_made_anew_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    read(&filled(dir.path()), "one", 10);
    let tailers = dir.path().join("tailers");
    let other = tempfile::tempdir().unwrap();
    let queue = filled(other.path());
    std::fs::create_dir(other.path().join("tailers")).unwrap();
    std::fs::copy(tailers.join("one"), other.path().join("tailers/one")).unwrap();
    let refused = open(&queue, "one");
    assert!(matches!(refused, Err(QueueError::PlaceLost { offset: Offset(10), .. })), "{refused:?}");
    queue.remove_tailer("one").unwrap();
    assert_eq!(open(&queue, "one").unwrap(), Offset(0));
}

#[test]
fn place_beyond_the_recovered_end_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), SMALL).unwrap();
    let control = common::control_of(dir.path());
    drop(filled(dir.path()));
    read(&queue, "before", 40);
    read(&queue, "there", 41);
    read(&queue, "beyond", 42);
    let copy = common::after_a_cut_of_power(dir.path(), &control);
    std::fs::create_dir(copy.path().join("tailers")).unwrap();
    for name in ["before", "there", "beyond"] {
        std::fs::copy(dir.path().join("tailers").join(name), copy.path().join("tailers").join(name)).unwrap();
    }
    // 15 records fill a segment, and 11 of the third are left.
    let third = copy.path().join("00000000000000000030.log");
    let mut bytes = std::fs::read(&third).unwrap();
    bytes[11 * 1072 + 500] ^= 1;
    std::fs::write(&third, bytes).unwrap();
    let queue = Queue::open(copy.path()).unwrap();
    assert_eq!(queue.end_offset().unwrap(), Offset(41));
    let lost = |found: Result<Offset, QueueError>| matches!(found, Err(QueueError::PlaceLost { .. }));
    assert_eq!((open(&queue, "before").unwrap(), open(&queue, "there").unwrap()), (Offset(40), Offset(41)));
    assert!(lost(open(&queue, "beyond")));
    // New records take the place of the lost ones: the stored place lies in the queue again, and is as lost as
    // before.
    let mut appender = queue.appender(AppendOptions::default()).unwrap();
    for _ in 0..10 {
        appender.append(&[2; 1000]).unwrap();
    }
    assert_eq!(open(&queue, "there").unwrap(), Offset(41));
    assert!(lost(open(&queue, "beyond")));
}
