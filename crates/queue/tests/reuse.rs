//! Segments that retention removes are reused where files lie in memory: readers see no difference.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use riverrun_queue::{
    AppendOptions, CreateOptions, Offset, Queue, QueueError, QueueView, Retention, SpinThenYield, StartAt,
    Tailer,
};

const RECORDS: u64 = 60_000;
const SEGMENT_BYTES: u64 = 64 << 10;

fn value(index: u64) -> [u8; 200] {
    let mut value = [(index % 251) as u8; 200];
    value[..8].copy_from_slice(&index.to_le_bytes());
    value
}

/// Reads the next record, if there is one, and returns the offset after it.
fn check(tailer: &mut Tailer) -> Result<Option<Offset>, QueueError> {
    let Some(record) = tailer.next()? else { return Ok(None) };
    let index = u64::try_from(record.offset.0).expect("no offset is negative");
    assert_eq!(record.value, Some(value(index).as_slice()), "record {index}");
    Ok(Some(record.offset.next()))
}

fn inodes(dir: &std::path::Path) -> Vec<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let entries = std::fs::read_dir(dir).expect("a directory").flatten();
    let metadata = entries.filter_map(|entry| entry.metadata().ok());
    metadata.filter(|found| found.len() == SEGMENT_BYTES).map(|found| found.ino()).collect()
}

/// A directory on tmpfs; `None` on a machine without one, which no test machine of ours may be.
fn dir_in_memory() -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir_in("/dev/shm").ok();
    if dir.is_none() {
        assert!(std::env::var_os("CI").is_none(), "/dev/shm is needed");
        eprintln!("skipped: no files lie in memory here");
    }
    dir
}

/// Reads on with a view's tailer that retention has overtaken: the rest of its segment, and an error.
fn read_to_where_it_was_overtaken(tailer: &mut Tailer) {
    let mut last = None;
    let error = loop {
        match check(tailer) {
            Ok(next) => last = Some(next.expect("there is more")),
            Err(error) => break error,
        }
    };
    let start = match error {
        QueueError::OffsetOutOfRange { start, .. } => start,
        error => panic!("{error}"),
    };
    assert!(last.is_some_and(|last| last < start), "{last:?} lies before {start}");
}

#[test]
fn reuse_of_files_changes_no_record_that_is_read() {
    let Some(dir) = dir_in_memory() else { return };
    let queue = Queue::create(dir.path(), CreateOptions { segment_bytes: SEGMENT_BYTES }).expect("made");
    let retention = Retention { bytes: Some(4 * SEGMENT_BYTES), ..Retention::default() };
    let mut appender =
        queue.appender(AppendOptions { retention, ..AppendOptions::default() }).expect("there");
    let done = AtomicBool::new(false);
    let mut found = inodes(dir.path());
    let mut overtaken = QueueView::open(dir.path()).expect("there").tailer(StartAt::Start).expect("there");
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut tailer = queue.tailer(StartAt::Start).expect("there");
            let mut next = Offset(0);
            while next.0 < RECORDS as i64 {
                let record = tailer.wait(&mut SpinThenYield::default(), None).expect("whole");
                let record = record.expect("without a time-out there is one");
                assert_eq!(record.offset, next);
                assert_eq!(record.value, Some(value(next.0 as u64).as_slice()));
                next = next.next();
            }
        });
        let viewing = scope.spawn(|| {
            let view = QueueView::open(dir.path()).expect("there");
            let mut read = 0_u64;
            while !done.load(Ordering::Relaxed) {
                let mut tailer = view.tailer(StartAt::Start).expect("there");
                loop {
                    match check(&mut tailer) {
                        Ok(Some(_)) => read += 1,
                        // Retention does not wait for it.
                        Ok(None) | Err(QueueError::OffsetOutOfRange { .. }) => break,
                        Err(error) => panic!("{error}"),
                    }
                    // Slow enough to be overtaken, in the middle of a segment.
                    if read.is_multiple_of(64) {
                        std::thread::sleep(Duration::from_micros(200));
                    }
                }
            }
            read
        });
        for index in 0..RECORDS {
            appender.append(&value(index)).expect("room");
            if index == 0 {
                assert_eq!(check(&mut overtaken).expect("whole"), Some(Offset(1)));
            }
            if index % 200 == 0 {
                // Lets the background threads run.
                std::thread::sleep(Duration::from_millis(2));
                found.extend(inodes(dir.path()));
            }
        }
        reading.join().expect("no record is another one");
        done.store(true, Ordering::Relaxed);
        let read = viewing.join().expect("no record is another one");
        assert!(read > 0);
    });
    // Removes what the keeper kept while the reader was open.
    queue.apply_retention(&retention).expect("there");
    read_to_where_it_was_overtaken(&mut overtaken);
    found.sort_unstable();
    found.dedup();
    let segments = RECORDS * 270 / SEGMENT_BYTES;
    assert!((found.len() as u64) < segments * 9 / 10, "{} files for about {segments} segments", found.len());
}

#[test]
fn retention_goes_on_where_the_oldest_segment_was_cut() {
    let Some(dir) = dir_in_memory() else { return };
    let queue = Queue::create(dir.path(), CreateOptions { segment_bytes: SEGMENT_BYTES }).expect("made");
    let four = Retention { bytes: Some(4 * SEGMENT_BYTES), ..Retention::default() };
    let append = |retention, indices: std::ops::Range<u64>| {
        let options = AppendOptions { retention, ..AppendOptions::default() };
        let mut appender = queue.appender(options).expect("there");
        for index in indices {
            appender.append(&value(index)).expect("room");
        }
        appender
    };
    drop(append(Retention::default(), 0..3000));
    let oldest = dir.path().join(format!("{:020}.log", 0));
    std::fs::File::options().write(true).open(oldest).and_then(|file| file.set_len(1)).expect("cut");
    let _appender = append(four, 3000..3001);
    let deadline = Instant::now() + Duration::from_secs(20);
    while queue.status().expect("whole").segments > 4 {
        assert!(Instant::now() < deadline, "nothing is removed any more");
        std::thread::sleep(Duration::from_millis(5));
    }
}
