//! Tailers that keep their place under a name.

#![expect(clippy::unwrap_used, reason = "a test asserts")]

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
fn a_place_that_is_no_longer_there_moves_to_what_is() {
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
