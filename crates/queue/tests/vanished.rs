//! Files that are removed, or overwritten, while a queue is in use; and names that are not of regular files.

#![expect(clippy::unwrap_used, reason = "a test asserts")]

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use riverrun_queue::{
    AppendOptions, Appender, CreateOptions, Damage, Offset, PartitionTailer, Queue, QueueError, QueueView,
    StartAt,
};

const SMALL: CreateOptions = CreateOptions { segment_bytes: 16 << 10 };
/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(20);
const CONTROL: &str = "queue.control";

fn fill(queue: &Queue, count: i64) -> Appender {
    let mut appender = queue.appender(AppendOptions::default()).unwrap();
    for _ in 0..count {
        appender.append(&[1; 1000]).unwrap();
    }
    appender
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "log")).collect();
    found.sort();
    found
}

/// Writes zeros over a whole file, as `dd conv=notrunc` does.
fn zero(path: &Path) {
    let zeros = vec![0; std::fs::read(path).unwrap().len()];
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(&zeros, 0).unwrap();
}

/// Appends until an append is refused. No offset may be given twice.
fn refused(appender: &mut Appender, published: i64) -> QueueError {
    let begun = Instant::now();
    let mut last = published - 1;
    loop {
        match appender.append(&[2; 10]) {
            Ok(offset) => {
                assert_eq!(offset.0, last + 1, "offsets go on");
                last = offset.0;
            }
            Err(error) => return error,
        }
        assert!(begun.elapsed() < PATIENCE, "no append was refused in time");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn removed_or_overwritten_files_refuse_appends() {
    let spoils: [fn(&Path); 6] = [
        |dir| zero(&dir.join(CONTROL)),
        |dir| {
            zero(&dir.join(CONTROL));
            for path in segments(dir) {
                std::fs::remove_file(path).unwrap();
            }
        },
        |dir| std::fs::remove_file(dir.join(CONTROL)).unwrap(),
        |dir| {
            std::fs::copy(dir.join(CONTROL), dir.join("copy")).unwrap();
            std::fs::rename(dir.join("copy"), dir.join(CONTROL)).unwrap();
        },
        |dir| std::fs::remove_file(segments(dir).last().unwrap()).unwrap(),
        // Files that the keeper prepares may appear meanwhile.
        |dir| while std::fs::remove_dir_all(dir).is_err() && dir.exists() {},
    ];
    for (number, spoil) in spoils.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("queue");
        let queue = Queue::create(&path, SMALL).unwrap();
        let mut appender = fill(&queue, 50);
        let mut other = queue.appender(AppendOptions::default()).unwrap();
        spoil(&path);
        let error = refused(&mut appender, 50);
        let is_told = matches!(
            &error,
            QueueError::Damaged {
                what: Damage::Vanished | Damage::WentBack | Damage::Missing | Damage::Magic,
                ..
            }
        );
        assert!(is_told, "{number}: {error:?}");
        // Later appends are refused as well, within a second.
        let begun = Instant::now();
        while other.append(b"more").is_ok() {
            assert!(begun.elapsed() < PATIENCE, "{number}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn reopening_refuses_a_published_position_that_went_back() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), SMALL).unwrap();
    let appender = fill(&queue, 50);
    queue.sync().unwrap();
    // Everything except the file's identity and its synced marks.
    let file = OpenOptions::new().write(true).open(dir.path().join(CONTROL)).unwrap();
    file.write_all_at(&[0; 4096], 4096).unwrap();
    for opened in [Queue::open(dir.path()).map(|_| ()), QueueView::open(dir.path()).map(|_| ())] {
        assert!(matches!(opened, Err(QueueError::Damaged { .. })), "{opened:?}");
    }
    drop(appender);
}

#[test]
fn sealed_segment_of_zeros_is_damaged_at_its_beginning() {
    for index in [0, 1] {
        let dir = tempfile::tempdir().unwrap();
        let queue = Queue::create(dir.path(), SMALL).unwrap();
        drop(fill(&queue, 50));
        let path = &segments(dir.path())[index];
        let base = path.file_stem().unwrap().to_str().unwrap().parse::<i64>().unwrap();
        for zeros in [16 << 10, 4096] {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.write_all_at(&vec![0; zeros], 0).unwrap();
            let is_found = |error: QueueError| match error {
                QueueError::Damaged { path: found, position, .. } => found == *path && position.0 == 0,
                error => panic!("{error}"),
            };
            assert!(is_found(queue.verify().unwrap_err()));
            let view = QueueView::open(dir.path()).unwrap();
            assert!(is_found(view.verify().unwrap_err()));
            let mut tailer = queue.tailer(StartAt::Start).unwrap();
            for _ in 0..base {
                assert!(tailer.next().unwrap().is_some());
            }
            assert!(is_found(tailer.next().unwrap_err()));
            assert!(is_found(queue.tailer(StartAt::Offset(Offset(base + 1))).unwrap_err()));
        }
    }
}

#[test]
fn special_files_are_refused_by_name_without_waiting() {
    for name in [CONTROL, "00000000000000000000.log", "00000000000000000015.log"] {
        let dir = tempfile::tempdir().unwrap();
        let queue = Queue::create(dir.path(), SMALL).unwrap();
        drop(fill(&queue, 50));
        drop(queue);
        let path = dir.path().join(name);
        std::fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let refused = |result: Result<u64, QueueError>| {
            let error = result.unwrap_err().to_string();
            assert!(
                error.contains(name) && error.contains("it is a FIFO, where a file is expected"),
                "{error}"
            );
        };
        refused(Queue::open(dir.path()).and_then(|queue| queue.verify()));
        refused(QueueView::open(dir.path()).and_then(|view| view.verify()));
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("queue");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert!(Queue::open(&path).is_err() && Queue::create(&path, SMALL).is_err());
    assert!(QueueView::open(&path).is_err() && PartitionTailer::open(&path, StartAt::Start).is_err());
}
