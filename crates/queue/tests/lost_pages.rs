//! Files that are truncated while they are mapped: an error with file and place, and no signal.

#![expect(clippy::unwrap_used, reason = "a test asserts")]

use std::path::Path;

use riverrun_queue::{
    AppendOptions, BusySpin, CreateOptions, Damage, Park, Queue, QueueError, QueueView, StartAt,
};

const SEGMENT: &str = "00000000000000000000.log";

fn cut(dir: &Path, name: &str, bytes: u64) {
    std::fs::File::options().write(true).open(dir.join(name)).unwrap().set_len(bytes).unwrap();
}

fn options() -> AppendOptions {
    AppendOptions { ahead_bytes: 0, ..AppendOptions::default() }
}

fn is_unreadable(error: &QueueError, name: &str) -> bool {
    matches!(error, QueueError::Damaged { path, what: Damage::Unreadable, .. } if path.ends_with(name))
}

#[test]
fn tailer_reports_a_truncated_file() {
    // With one page left, the second record of 3000 bytes begins in it and ends beyond.
    for (value_bytes, left_bytes) in [(100, 0), (3000, 0), (20_000, 0), (3000, 4096), (20_000, 24_576)] {
        let dir = tempfile::tempdir().unwrap();
        let queue = Queue::create(dir.path(), CreateOptions { segment_bytes: 256 << 10 }).unwrap();
        let mut appender = queue.appender(options()).unwrap();
        let mut tailer = queue.tailer(StartAt::Start).unwrap();
        for _ in 0..10 {
            appender.append(&vec![7; value_bytes]).unwrap();
        }
        assert!(tailer.next().unwrap().is_some());
        cut(dir.path(), SEGMENT, left_bytes);
        let error = loop {
            match tailer.next() {
                Ok(record) => {
                    let value = record.expect("more records, or an error").value.unwrap();
                    assert!(value.iter().all(|byte| *byte == 7), "no record is made up");
                }
                Err(error) => break error,
            }
        };
        assert!(is_unreadable(&error, SEGMENT), "{error}");
    }
}

#[test]
fn appender_reports_a_truncated_file() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), CreateOptions { segment_bytes: 256 << 10 }).unwrap();
    let mut appender = queue.appender(options()).unwrap();
    appender.append(&[7; 100]).unwrap();
    cut(dir.path(), SEGMENT, 4096);
    let error = (0..100).find_map(|_| appender.append(&[7; 100]).err()).expect("the file has one page");
    assert!(is_unreadable(&error, SEGMENT), "{error}");
    assert!(queue.end_offset().unwrap().0 < 40, "nothing is called appended that is not there");
}

#[test]
fn a_control_file_that_was_cut_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), CreateOptions { segment_bytes: 256 << 10 }).unwrap();
    let mut appender = queue.appender(options()).unwrap();
    let mut tailer = queue.tailer(StartAt::Start).unwrap();
    cut(dir.path(), "queue.control", 0);
    assert!(appender.append(&[7; 100]).is_err());
    let error = tailer.next().map(|_| ()).unwrap_err();
    // The keeper, which checks the file each second, may have found it before the tailer's mapping did.
    let keeper_was_first = matches!(error, QueueError::Damaged { what: Damage::Vanished, .. });
    assert!(keeper_was_first || is_unreadable(&error, "queue.control"), "{error}");
}

#[test]
fn mapping_that_lost_a_page_syncs_nothing() {
    for name in [SEGMENT, "queue.control"] {
        let dir = tempfile::tempdir().unwrap();
        let queue = Queue::create(dir.path(), CreateOptions { segment_bytes: 256 << 10 }).unwrap();
        let mut appender = queue.appender(options()).unwrap();
        appender.append(&[7; 100]).unwrap();
        cut(dir.path(), name, 0);
        assert!(appender.append(&[7; 100]).is_err(), "{name}");
        assert!(appender.sync().is_err(), "{name}");
        assert!(queue.sync().is_err(), "{name}");
    }
}

#[test]
fn tailer_does_not_wait_on_a_truncated_control_file() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), CreateOptions { segment_bytes: 256 << 10 }).unwrap();
    queue.appender(options()).unwrap().append(&[7; 100]).unwrap();
    let (mut spinning, mut parked) =
        (queue.tailer(StartAt::End).unwrap(), queue.tailer(StartAt::End).unwrap());
    std::thread::scope(|scope| {
        let waits = [
            scope.spawn(move || spinning.wait(&mut BusySpin, None).map(|_| ()).unwrap_err()),
            scope.spawn(move || parked.wait(&mut Park::default(), None).map(|_| ()).unwrap_err()),
        ];
        std::thread::sleep(std::time::Duration::from_millis(20));
        cut(dir.path(), "queue.control", 0);
        for wait in waits {
            let error = wait.join().unwrap();
            assert!(is_unreadable(&error, "queue.control"), "{error}");
        }
    });
}

#[test]
fn control_file_that_goes_back_is_an_error() {
    const PAGE: usize = 4096;
    for (records, view_sees) in [(20, false), (200, true)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("queue.control");
        let queue = Queue::create(dir.path(), CreateOptions { segment_bytes: 64 << 10 }).unwrap();
        let empty = std::fs::read(&path).unwrap();
        let mut appender = queue.appender(options()).unwrap();
        (0..records).for_each(|_| drop(appender.append(&[7; 1000])));
        drop((appender, queue));
        let last = std::fs::read(&path).unwrap();
        let segment = std::fs::read(dir.path().join(SEGMENT)).unwrap();
        // In the same file, which is the same life.
        let put = |bytes: &[u8]| {
            let control = std::fs::File::options().write(true).open(&path).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&control, bytes, 0).unwrap();
        };
        let is_refused = |opened: Result<(), QueueError>| {
            matches!(opened, Err(QueueError::Damaged { what: Damage::Field("head"), .. }))
        };
        let mut no_head = last.clone();
        no_head[PAGE..2 * PAGE].fill(0);
        put(&no_head);
        assert!(is_refused(Queue::open(dir.path()).map(drop)), "it is before what was synced");
        assert!(is_refused(QueueView::open(dir.path()).map(drop)));
        put(&empty);
        assert!(is_refused(Queue::open(dir.path()).map(drop)), "{records}: something follows");
        assert_eq!(is_refused(QueueView::open(dir.path()).map(drop)), view_sees, "a later segment does");
        assert!(std::fs::read(dir.path().join(SEGMENT)).unwrap() == segment);
        put(&last);
        assert_eq!(Queue::open(dir.path()).unwrap().verify().unwrap(), records);
    }
}
