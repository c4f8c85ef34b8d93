//! Segments that retention removes are used again where files lie in memory: whoever reads sees nothing of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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

/// Reads a record that is there, and returns the offset after it.
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

#[test]
fn readers_and_views_see_every_record_as_it_was_while_files_are_used_again() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
    let queue = Queue::create(dir.path(), CreateOptions { segment_bytes: SEGMENT_BYTES }).expect("made");
    let retention = Retention { bytes: Some(4 * SEGMENT_BYTES), ..Retention::default() };
    let mut appender =
        queue.appender(AppendOptions { retention, ..AppendOptions::default() }).expect("there");
    let done = AtomicBool::new(false);
    let mut found = inodes(dir.path());
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
            let (mut overtaken, mut read) = (0, 0_u64);
            while !done.load(Ordering::Relaxed) {
                let mut tailer = view.tailer(StartAt::Start).expect("there");
                loop {
                    match check(&mut tailer) {
                        Ok(Some(_)) => read += 1,
                        Ok(None) => break,
                        // Retention does not wait for it.
                        Err(QueueError::OffsetOutOfRange { .. }) => {
                            overtaken += 1;
                            break;
                        }
                        Err(error) => panic!("{error}"),
                    }
                    // Slow enough to be overtaken, in the middle of a segment.
                    if read % 64 == 0 {
                        std::thread::sleep(Duration::from_micros(200));
                    }
                }
            }
            (overtaken, read)
        });
        for index in 0..RECORDS {
            appender.append(&value(index)).expect("room");
            if index % 200 == 0 {
                // The background gets its turn.
                std::thread::sleep(Duration::from_millis(2));
                found.extend(inodes(dir.path()));
            }
        }
        reading.join().expect("no record is another one");
        done.store(true, Ordering::Relaxed);
        let (_, read) = viewing.join().expect("no record is another one");
        assert!(read > 0);
    });
    found.sort_unstable();
    found.dedup();
    let segments = RECORDS * 270 / SEGMENT_BYTES;
    assert!((found.len() as u64) < segments * 9 / 10, "{} files for about {segments} segments", found.len());
}
