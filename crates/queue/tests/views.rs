//! Views: opening for reading only writes nothing, blocks no other process, and shows every record.

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
fn view_shows_an_unrecovered_queue_as_recovery_would() {
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

/// Makes the queue's last use one through another mount of this file system, as from a container.
fn use_by_another_mount(dir: &Path) {
    let control = std::fs::OpenOptions::new().write(true).open(dir.join("queue.control")).unwrap();
    control.write_all_at(&u64::MAX.to_le_bytes(), 64 + 16).unwrap();
}

#[test]
fn view_follows_appenders_of_another_mount() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), SMALL).unwrap();
    fill(&queue, 20);
    use_by_another_mount(dir.path());
    let view = QueueView::open(dir.path()).unwrap();
    assert!(!view.is_unrecovered(), "another process has it open");
    let mut tailer = view.tailer(StartAt::End).unwrap();
    fill(&queue, 20);
    assert_eq!(tailer.next().unwrap().unwrap().offset, Offset(20));
    assert_eq!((count(&view), view.end_offset().unwrap()), (40, Offset(40)));
}

#[test]
fn view_follows_an_opening_through_another_mount() {
    let dir = tempfile::tempdir().unwrap();
    fill(&Queue::create(dir.path(), SMALL).unwrap(), 20);
    for (stays, before) in [(true, 20), (false, 30)] {
        use_by_another_mount(dir.path());
        let view = QueueView::open(dir.path()).unwrap();
        assert!(view.is_unrecovered() && view.recovery().from_disk);
        assert_eq!(count(&view), before);
        let mut tailer = view.tailer(StartAt::End).unwrap();
        let queue = Queue::open(dir.path()).unwrap();
        fill(&queue, 10);
        use_by_another_mount(dir.path());
        // A process that came and went between two checks leaves the records that it published.
        let _open = stays.then_some(queue);
        assert_eq!(tailer.next().unwrap().unwrap().offset, Offset(before));
        assert!(!view.is_unrecovered());
        assert_eq!(count(&view), before + 10);
    }
}

#[test]
fn view_hides_records_that_a_recovery_may_cut() {
    for by_another_mount in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let queue = Queue::create(dir.path(), SMALL).unwrap();
        fill(&queue, 20);
        let path = dir.path().join("queue.control");
        let control = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let before = common::control_of(dir.path());
        fill(&queue, 1);
        drop(queue);
        // As left by an appender that is killed after its batch is whole and before it is published.
        let mut killed = before.clone();
        killed[4104..4112].copy_from_slice(&common::control_of(dir.path())[4104..4112]);
        control.write_all_at(&killed, 0).unwrap();
        use_by_another_mount(dir.path());
        let view = QueueView::open(dir.path()).unwrap();
        assert!(view.is_unrecovered());
        assert_eq!((view.end_offset().unwrap(), count(&view)), (Offset(20), 20));
        let mut tailer = view.tailer(StartAt::End).unwrap();
        if !by_another_mount {
            control.write_all_at(&before[80..88], 80).unwrap();
        }
        let queue = Queue::open(dir.path()).unwrap();
        assert_eq!(queue.recovery().from_disk, by_another_mount);
        fill(&queue, 2);
        for offset in 20..22 + i64::from(by_another_mount) {
            assert_eq!(tailer.next().unwrap().unwrap().offset, Offset(offset));
        }
        assert!(tailer.next().unwrap().is_none());
    }
}

#[test]
fn copy_in_place_is_not_taken_for_the_queue() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), SMALL).unwrap();
    fill(&queue, 10);
    let copy = common::after_a_cut_of_power(dir.path(), &common::control_of(dir.path()));
    let view = QueueView::open(copy.path()).unwrap();
    assert!(view.is_unrecovered());
    fill(&queue, 1);
    let control = std::fs::OpenOptions::new().write(true).open(copy.path().join("queue.control")).unwrap();
    control.write_all_at(&common::control_of(dir.path()), 0).unwrap();
    assert!(view.is_unrecovered(), "no process has opened it");
    assert_eq!((view.end_offset().unwrap(), count(&view)), (Offset(10), 10));
}

/// A process in a mount namespace of its own, in which the same directory lies on another mount.
struct Elsewhere(std::process::Child);

impl Elsewhere {
    /// `None` where this user may not make a mount namespace.
    fn start() -> Option<Self> {
        let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/mnt"));
        let mut child = std::process::Command::new("unshare").args(["-m", "sleep", "600"]).spawn().ok()?;
        for _ in 0..2000 {
            let there = namespace(&child.id().to_string()).ok();
            if there.is_some() && there != namespace("self").ok() {
                return Some(Self(child));
            }
            if child.try_wait().unwrap().is_some() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("unshare neither ends nor begins");
    }

    fn path(&self, dir: &Path) -> std::path::PathBuf {
        Path::new(&format!("/proc/{}/root", self.0.id())).join(dir.strip_prefix("/").unwrap())
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn appenders_and_views_of_two_mount_namespaces_see_one_queue() {
    let Some(elsewhere) = Elsewhere::start() else {
        eprintln!("skipped: this user may not make a mount namespace (unshare -m)");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().canonicalize().unwrap();
    let there = elsewhere.path(&here);
    let queue = Queue::create(&here, SMALL).unwrap();
    fill(&queue, 10);
    for (path, other) in [(&here, &there), (&there, &here)] {
        // The first process that opens the queue leaves its own mount in the control file.
        let queue = Queue::open(path).unwrap();
        let view = QueueView::open(other).unwrap();
        assert!(!view.is_unrecovered(), "another process has it open");
        let before = view.end_offset().unwrap();
        let mut tailer = view.tailer(StartAt::End).unwrap();
        fill(&queue, 10);
        assert_eq!(tailer.next().unwrap().unwrap().offset, before);
        assert_eq!(view.end_offset().unwrap().0, before.0 + 10);
    }
    drop(queue);
    let first = Queue::open(&there).unwrap();
    assert!(first.recovery().from_disk);
    let mut tailer = QueueView::open(&here).unwrap().tailer(StartAt::End).unwrap();
    fill(&first, 1);
    assert_eq!(tailer.next().unwrap().map(|record| record.offset), Some(Offset(30)));
}

#[test]
fn view_blocks_no_other_process() {
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
fn batch_over_a_bound_is_not_damage() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), CreateOptions { segment_bytes: 64 << 10 }).unwrap();
    let mut tailer = QueueView::open(dir.path()).unwrap().tailer(StartAt::Start).unwrap();
    queue.appender(AppendOptions::default()).unwrap().append(&vec![0; 60_000]).unwrap();

    // In its place, a batch of the same size that inflates beyond the bound of any reader.
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
fn verify_finds_a_leader_epoch_that_cannot_be() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), SMALL).unwrap();
    fill(&queue, 40);
    assert_eq!(queue.verify().unwrap(), 40);
    let file =
        std::fs::OpenOptions::new().write(true).open(dir.path().join(format!("{:020}.log", 0))).unwrap();
    for flipped in [1_i32, -1] {
        file.write_all_at(&flipped.to_be_bytes(), layout::LENGTH_END as u64).unwrap();
        let error = QueueView::open(dir.path()).unwrap().verify().unwrap_err();
        assert!(matches!(&error, QueueError::Damaged { position, .. } if position.0 == 0), "{error}");
    }
}

#[test]
fn verify_tells_the_first_damage() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), SMALL).unwrap();
    fill(&queue, 40);
    let bases = QueueView::open(dir.path()).unwrap().segments().unwrap();
    let segments: Vec<_> = bases.iter().map(|base| dir.path().join(format!("{:020}.log", base.0))).collect();
    let write = |path: &Path, bytes: &[u8], at| {
        std::fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
    };
    write(&segments[0], &[9], 500);
    // An epoch that no recovery has begun.
    write(&segments[1], &7_i32.to_be_bytes(), layout::LENGTH_END as u64);
    let error = QueueView::open(dir.path()).unwrap().verify().unwrap_err();
    assert!(matches!(&error, QueueError::Damaged { path, .. } if *path == segments[0]), "{error}");
}

#[test]
fn no_queue_is_no_view() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().to_owned(), dir.path().join("nowhere")] {
        assert!(matches!(QueueView::open(&path), Err(QueueError::NoQueue { .. })));
    }
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none());
}
