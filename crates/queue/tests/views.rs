//! Opening for reading only: nothing is written, nobody is kept from anything, and what is there is seen.

#![expect(clippy::unwrap_used, reason = "a test asserts")]

mod common;

use std::collections::BTreeMap;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::time::Duration;

use riverrun_queue::{
    AppendOptions, CreateOptions, Offset, Park, Queue, QueueError, QueueView, Retention, StartAt, TimestampMs,
};
use riverrun_records::{BatchBuilder, BatchOptions, Compression, compress, layout};
use riverrun_types::limits::INFLATE_STORED_BYTES_MAX;

const SMALL: CreateOptions = CreateOptions { segment_bytes: 16 << 10 };

fn fill(queue: &Queue, count: i64) {
    let mut appender = queue.appender(AppendOptions::default()).unwrap();
    for _ in 0..count {
        appender.append(&[1; 1000]).unwrap();
    }
}

fn count(view: &QueueView) -> i64 {
    let mut tailer = view.tailer(StartAt::Start).unwrap();
    let mut count = 0;
    while tailer.next().unwrap().is_some() {
        count += 1;
    }
    count
}

/// Every file with its bytes and the time of its last change.
fn state(dir: &Path) -> BTreeMap<std::ffi::OsString, (Vec<u8>, i64, i64)> {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    let files = entries.map(|entry| {
        let metadata = entry.metadata().unwrap();
        (entry.file_name(), (std::fs::read(entry.path()).unwrap(), metadata.ctime(), metadata.ctime_nsec()))
    });
    files.collect()
}

#[test]
fn a_queue_that_nobody_recovered_is_seen_as_recovery_would_find_it_and_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), SMALL).unwrap();
    let control = common::control_of(dir.path());
    fill(&queue, 50);
    let dir = common::after_a_cut_of_power(dir.path(), &control);
    let path = dir.path().join("00000000000000000030.log");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[5000] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let before = state(dir.path());
    let view = QueueView::open(dir.path()).unwrap();
    assert_eq!((view.verify().unwrap(), count(&view)), (34, 34));
    let status = view.status().unwrap();
    assert_eq!((status.end_offset, status.segments, status.poisoned), (Offset(34), 3, false));
    assert!(status.unsynced_bytes > 34_000);
    assert_eq!((view.recovery().from_disk, view.recovery().records_kept), (true, 34));
    let cut_at = view.recovery().cut_at.clone();
    assert!(state(dir.path()) == before, "no byte, name or time has changed");

    let mut tailer = view.tailer(StartAt::End).unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    assert_eq!((queue.recovery().records_kept, &queue.recovery().cut_at), (34, &cut_at));
    fill(&queue, 10);
    assert_eq!(tailer.next().unwrap().unwrap().offset, Offset(34), "the queue lives, and the view with it");
    assert_eq!(count(&view), 44);
}

#[test]
fn a_view_follows_a_live_appender() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), SMALL).unwrap();
    let view = QueueView::open(dir.path()).unwrap();
    let mut tailer = view.tailer(StartAt::Start).unwrap();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            for offset in 0..200 {
                let record = tailer.wait(&mut Park::new(10), Some(Duration::from_secs(20))).unwrap().unwrap();
                assert_eq!(record.offset, Offset(offset));
            }
            tailer.wait(&mut Park::new(10), Some(Duration::from_millis(20))).unwrap().is_none()
        });
        let mut appender = queue.appender(AppendOptions::default()).unwrap();
        for index in 0..200 {
            appender.append(&[1; 1000]).unwrap();
            if index % 50 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        assert!(reading.join().unwrap(), "and waits no longer than it was told");
    });
}

#[test]
fn a_view_keeps_nobody_from_anything() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), SMALL).unwrap();
    fill(&queue, 100);
    drop(queue);
    let view = QueueView::open(dir.path()).unwrap();
    let mut tailer = view.tailer(StartAt::Start).unwrap();
    assert!(tailer.next().unwrap().is_some());
    let queue = Queue::open(dir.path()).unwrap();
    let two = Retention { bytes: Some(2 * SMALL.segment_bytes), ..Retention::default() };
    assert_eq!(queue.apply_retention(&two).unwrap(), 5);
    let lost = loop {
        match tailer.next() {
            Ok(record) => assert!(record.is_some()),
            Err(error) => break error,
        }
    };
    assert!(matches!(lost, QueueError::OffsetOutOfRange { .. }), "{lost}");
}

#[test]
fn what_passes_a_bound_is_not_called_damage() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), CreateOptions { segment_bytes: 64 << 10 }).unwrap();
    let mut tailer = QueueView::open(dir.path()).unwrap().tailer(StartAt::Start).unwrap();
    queue.appender(AppendOptions::default()).unwrap().append(&vec![0; 60_000]).unwrap();

    // In its place, as large, a batch that inflates to more than anybody reads.
    let options = BatchOptions { compression: Compression::Zstd, ..BatchOptions::default() };
    let mut builder = BatchBuilder::new(options);
    builder.append(TimestampMs(0), None, Some(b"value"), &[]).unwrap();
    let mut forged = builder.build().unwrap()[..layout::HEADER_BYTES].to_vec();
    compress(Compression::Zstd, 3, &vec![0; INFLATE_STORED_BYTES_MAX + 1], &mut forged).unwrap();
    assert!(forged.len() < 60_000);
    let segment = dir.path().join(format!("{:020}.log", 0));
    let file = std::fs::OpenOptions::new().write(true).open(&segment).unwrap();
    file.write_all_at(&forged[layout::LENGTH_END..], layout::LENGTH_END as u64).unwrap();

    let error = tailer.next().unwrap_err();
    assert!(
        matches!(&error, QueueError::OverBound { path, position, .. } if *path == segment && position.0 == 0)
    );
    assert!(error.to_string().contains("inflated bytes"), "{error}");
}

#[test]
fn no_queue_is_no_view() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().to_owned(), dir.path().join("nowhere")] {
        assert!(matches!(QueueView::open(&path), Err(QueueError::NoQueue { .. })));
    }
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none());
}
