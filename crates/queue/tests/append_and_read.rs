//! A queue within one process: records in order, rolls, reopening, places to begin, errors.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test asserts, with small numbers"
)]

mod common;

use std::path::Path;

use proptest::prelude::*;
use riverrun_queue::{
    AppendOptions, Appender, CreateOptions, Damage, Header, NewRecord, Offset, Queue, QueueError, StartAt,
    Tailer, TimestampMs,
};
use riverrun_records::{BatchBuilder, BatchOptions, Batches, Compression, ProducerStamp, UnverifiedBatch};
use riverrun_types::{ProducerEpoch, ProducerId};

const SMALL: CreateOptions = CreateOptions { segment_bytes: 4096 };

fn create(dir: &Path) -> Queue {
    Queue::create(dir, SMALL).expect("a new queue")
}

fn appender(queue: &Queue) -> Appender {
    queue.appender(AppendOptions::default()).expect("an appender")
}

fn tailer(queue: &Queue, at: StartAt) -> Tailer {
    queue.tailer(at).expect("a tailer")
}

fn values(tailer: &mut Tailer) -> Vec<(i64, Vec<u8>)> {
    let mut found = Vec::new();
    while let Some(record) = tailer.next().expect("a readable queue") {
        found.push((record.offset.0, record.value.unwrap_or_default().to_vec()));
    }
    found
}

fn number(index: u64) -> Vec<u8> {
    index.to_le_bytes().repeat(1 + index as usize % 40)
}

fn fill(queue: &Queue, range: std::ops::Range<u64>) {
    let mut appender = appender(queue);
    for index in range {
        assert_eq!(appender.append(&number(index)).expect("room"), Offset(index as i64));
    }
}

fn expected(range: std::ops::Range<u64>) -> Vec<(i64, Vec<u8>)> {
    range.map(|index| (index as i64, number(index))).collect()
}

fn first_segment(dir: &Path) -> std::path::PathBuf {
    dir.join("00000000000000000000.log")
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).expect("the file");
    bytes[at] ^= 1;
    // Into the same file: a queue knows its files by their inodes.
    std::fs::write(path, bytes).expect("the file");
}

#[test]
fn records_come_in_order_over_many_segments() {
    let dir = tempfile::tempdir().unwrap();
    let queue = create(dir.path());
    fill(&queue, 0..500);
    assert_eq!(values(&mut tailer(&queue, StartAt::Start)), expected(0..500));
    assert!(std::fs::read_dir(dir.path()).unwrap().count() > 10, "the segments are small");
    assert_eq!(queue.end_offset().unwrap(), Offset(500));
}

#[test]
fn a_tailer_follows_and_another_begins_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let queue = create(dir.path());
    let mut follower = tailer(&queue, StartAt::Start);
    fill(&queue, 0..3);
    let mut late = tailer(&queue, StartAt::End);
    assert_eq!(values(&mut follower), expected(0..3));
    fill(&queue, 3..200);
    assert_eq!(values(&mut follower), expected(3..200));
    assert_eq!(values(&mut late), expected(3..200));
}

#[test]
fn a_queue_that_is_opened_again_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    fill(&create(dir.path()), 0..100);
    let queue = Queue::open(dir.path()).unwrap();
    fill(&queue, 100..150);
    assert_eq!(values(&mut tailer(&queue, StartAt::Start)), expected(0..150));
    assert!(!queue.recovery().from_disk);
}

#[test]
fn two_appenders_take_turns() {
    let dir = tempfile::tempdir().unwrap();
    let queue = create(dir.path());
    let (mut one, mut other) = (appender(&queue), appender(&queue));
    for index in 0..200 {
        let appender = if index % 3 == 0 { &mut one } else { &mut other };
        appender.append(&number(index)).unwrap();
    }
    assert_eq!(values(&mut tailer(&queue, StartAt::Start)), expected(0..200));
}

#[test]
fn a_tailer_begins_at_any_offset() {
    let dir = tempfile::tempdir().unwrap();
    let queue = create(dir.path());
    fill(&queue, 0..100);
    for from in [0, 1, 17, 63, 99, 100] {
        let mut tailer = tailer(&queue, StartAt::Offset(Offset(from as i64)));
        assert_eq!(values(&mut tailer), expected(from..100), "from {from}");
    }
    let beyond = queue.tailer(StartAt::Offset(Offset(101))).map(|_| ());
    assert!(matches!(beyond, Err(QueueError::OffsetOutOfRange { end: Offset(100), .. })), "{beyond:?}");
}

#[test]
fn a_tailer_begins_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let queue = create(dir.path());
    let mut appender = appender(&queue);
    for index in 0..60 {
        let record = NewRecord {
            value: Some(&[index as u8; 100]),
            timestamp: Some(TimestampMs(1000 + index * 10)),
            ..NewRecord::default()
        };
        appender.append_record(&record).unwrap();
    }
    for (time, first) in [(0, 0), (1000, 0), (1001, 1), (1305, 31), (1590, 59)] {
        let mut tailer = tailer(&queue, StartAt::Time(TimestampMs(time)));
        assert_eq!(tailer.next().unwrap().map(|record| record.offset), Some(Offset(first)), "at {time}");
    }
    assert!(tailer(&queue, StartAt::Time(TimestampMs(1591))).next().unwrap().is_none());
}

#[test]
fn key_headers_and_timestamp_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let queue = create(dir.path());
    let headers = [Header { key: b"a", value: Some(b"1") }, Header { key: b"a", value: None }];
    let record =
        NewRecord { key: Some(b"key"), value: None, headers: &headers, timestamp: Some(TimestampMs(77)) };
    let mut appender = appender(&queue);
    appender.append_record(&record).unwrap();
    let mut reserved = appender.reserve_record(3, &NewRecord { key: Some(b"k"), ..record }).unwrap();
    reserved.copy_from_slice(b"val");
    reserved.publish().unwrap();
    let mut tailer = tailer(&queue, StartAt::Start);
    for (key, value) in [(b"key".as_slice(), None), (b"k", Some(b"val".as_slice()))] {
        let found = tailer.next().unwrap().expect("a record");
        assert_eq!((found.key, found.value, found.timestamp), (Some(key), value, TimestampMs(77)));
        assert_eq!(found.headers().collect::<Vec<_>>(), headers);
    }
}

#[test]
fn a_batch_is_seen_whole_and_a_tailer_may_begin_inside() {
    let dir = tempfile::tempdir().unwrap();
    let queue = create(dir.path());
    let mut appender = appender(&queue);
    let records: Vec<Vec<u8>> = (0..20).map(number).collect();
    let batch: Vec<NewRecord<'_>> = records
        .iter()
        .zip(0..)
        .map(|(value, index)| NewRecord {
            value: Some(value),
            timestamp: Some(TimestampMs(500 - index * 3)),
            ..NewRecord::default()
        })
        .collect();
    assert_eq!(appender.append_batch(&batch).unwrap(), Offset(0));
    assert_eq!(appender.append(b"next").unwrap(), Offset(20));
    assert!(matches!(appender.append_batch(&[]), Err(QueueError::Options(_))));
    assert_eq!(&values(&mut tailer(&queue, StartAt::Start))[..20], expected(0..20));
    assert_eq!(&values(&mut tailer(&queue, StartAt::Offset(Offset(7))))[..13], expected(7..20));
    let mut tailer = tailer(&queue, StartAt::Start);
    tailer.next().unwrap();
    assert_eq!(tailer.next().unwrap().unwrap().timestamp, TimestampMs(497));
    let bytes = std::fs::read(first_segment(dir.path())).unwrap();
    let batch = UnverifiedBatch::split_first(&bytes).unwrap().0.verify().unwrap();
    assert_eq!((batch.record_count(), batch.max_timestamp()), (20, TimestampMs(500)));
    let rules = riverrun_records::ProduceRules::default();
    assert!(riverrun_records::validate_produced(&batch, &rules).is_ok(), "a broker would take it");
}

#[test]
fn the_files_hold_batches_that_every_reader_of_the_log_takes() {
    let dir = tempfile::tempdir().unwrap();
    let queue = create(dir.path());
    let mut appender = appender(&queue);
    for len in [0, 1, 50, 63, 64, 65, 500, 2000] {
        appender.append(&vec![7; len]).unwrap();
    }
    let bytes = std::fs::read(first_segment(dir.path())).unwrap();
    let mut rest = bytes.as_slice();
    for offset in 0..8 {
        let (batch, after) = UnverifiedBatch::split_first(rest).unwrap();
        let batch = batch.verify().expect("a batch with its checksum");
        assert_eq!((batch.base_offset(), batch.record_count()), (Offset(offset), 1));
        rest = after;
    }
    assert!(rest.iter().all(|byte| *byte == 0), "nothing lies beyond what is published");
}

#[test]
fn a_dropped_reservation_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let queue = create(dir.path());
    let mut appender = appender(&queue);
    appender.append(b"before").unwrap();
    let before = std::fs::read(first_segment(dir.path())).unwrap();
    appender.reserve(100).unwrap().fill(9);
    assert!(before == std::fs::read(first_segment(dir.path())).unwrap(), "the file is as it was");
    std::mem::forget(appender.reserve(100).unwrap());
    appender.append(b"after").unwrap();
    let found = values(&mut tailer(&queue, StartAt::Start));
    assert_eq!(found, [(0, b"before".to_vec()), (1, b"after".to_vec())]);
}

#[test]
fn a_leaked_reservation_dies_with_its_appender() {
    let dir = tempfile::tempdir().unwrap();
    let queue = create(dir.path());
    let mut leaky = appender(&queue);
    leaky.reserve(100).unwrap().fill(9);
    let mut reserved = leaky.reserve(100).unwrap();
    reserved.fill(9);
    std::mem::forget(reserved);
    let patience = Some(std::time::Duration::from_millis(20));
    let mut other = queue.appender(AppendOptions { patience, ..AppendOptions::default() }).unwrap();
    assert!(matches!(other.append(b"x"), Err(QueueError::Busy)), "the leaky appender lives");
    drop(leaky);
    other.append(b"x").unwrap();
    let bytes = std::fs::read(first_segment(dir.path())).unwrap();
    assert!(bytes[71..].iter().all(|byte| *byte == 0), "what was leaked is gone");
    assert_eq!(values(&mut tailer(&queue, StartAt::Start)), [(0, b"x".to_vec())]);
}

#[test]
fn a_record_that_fits_no_segment_is_refused_and_the_next_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let queue = create(dir.path());
    let mut appender = appender(&queue);
    let largest = 4096 - 12 - 61 - 9;
    assert!(matches!(
        appender.append(&vec![1; largest + 1]),
        Err(QueueError::TooLarge { limit_bytes: 4084, .. })
    ));
    appender.append(&vec![2; largest]).unwrap();
    appender.append(&vec![3; largest]).unwrap();
    assert_eq!(values(&mut tailer(&queue, StartAt::Start)).len(), 2);
}

#[test]
fn a_length_that_nothing_has_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let queue = create(dir.path());
    let mut appender = appender(&queue);
    for len in [4085, usize::MAX - 100, usize::MAX] {
        let refused = appender.reserve(len).map(|_| ());
        assert!(matches!(refused, Err(QueueError::TooLarge { .. })), "{len}: {refused:?}");
    }
    assert_eq!(appender.append(b"x").unwrap(), Offset(0));
}

#[test]
fn an_appender_that_could_not_follow_tries_again() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (create(dir.path()), Queue::open(dir.path()).unwrap());
    // Without the background, which could have the file open.
    let options = AppendOptions { ahead_bytes: 0, ..AppendOptions::default() };
    let (mut behind, mut ahead) = (one.appender(options).unwrap(), two.appender(options).unwrap());
    behind.append(b"0").unwrap();
    for _ in 1..3 {
        ahead.append(&[1; 3000]).unwrap();
    }
    let rolled_to = dir.path().join("00000000000000000002.log");
    let hidden = dir.path().join("hidden");
    std::fs::rename(&rolled_to, &hidden).unwrap();
    for _ in 0..2 {
        let error = behind.append(b"3").map(|_| ()).unwrap_err();
        assert!(matches!(error, QueueError::Damaged { what: Damage::Missing, .. }), "{error}");
    }
    std::fs::rename(&hidden, &rolled_to).unwrap();
    assert_eq!(behind.append(b"3").unwrap(), Offset(3));
    assert_eq!(values(&mut tailer(&one, StartAt::Start)).len(), 4);
}

#[test]
fn a_roll_that_fails_leaves_no_segment_behind() {
    let dir = tempfile::tempdir().unwrap();
    let queue = create(dir.path());
    let mut appender = queue.appender(AppendOptions { ahead_bytes: 0, ..AppendOptions::default() }).unwrap();
    appender.append(&[0; 3000]).unwrap();
    std::fs::write(dir.path().join("segment.prepared-1"), b"of another size").unwrap();
    assert!(matches!(appender.append(&[1; 3000]), Err(QueueError::Damaged { .. })));
    assert_eq!(appender.append(b"smaller").unwrap(), Offset(1));
    assert_eq!(appender.append(&[2; 3000]).unwrap(), Offset(2));
    assert_eq!(queue.status().unwrap().segments, 2);
    assert_eq!(values(&mut tailer(&queue, StartAt::Start)).len(), 3);
}

#[test]
fn unfinished_creation_does_not_block_the_next() {
    for segment_bytes in [0, 8192] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(first_segment(dir.path()), vec![0; segment_bytes]).unwrap();
        std::fs::write(dir.path().join("queue.control.new"), b"begun").unwrap();
        assert!(matches!(Queue::open(dir.path()), Err(QueueError::NoQueue { .. })));
        fill(&create(dir.path()), 0..3);
        // A queue that has lost its control file is not made anew over its records.
        std::fs::remove_file(dir.path().join("queue.control")).unwrap();
        assert!(matches!(Queue::create(dir.path(), SMALL), Err(QueueError::Exists { .. })));
        assert!(matches!(Queue::open_or_create(dir.path(), SMALL), Err(QueueError::NoQueue { .. })));
    }
}

#[test]
fn queue_is_not_made_in_a_server_directory() {
    for found in ["meta/lock", "directory.id", "lock"] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("meta")).unwrap();
        std::fs::write(dir.path().join(found), b"").unwrap();
        let made = [Queue::create(dir.path(), SMALL), Queue::open_or_create(dir.path(), SMALL)];
        for refused in made.map(|made| made.unwrap_err().to_string()) {
            assert!(refused.contains(&format!("'{found}' shows")), "{refused}");
        }
        assert!(!dir.path().join("queue.control").exists());
    }
}

#[test]
fn flipped_old_record_is_an_error_with_file_and_place() {
    let dir = tempfile::tempdir().unwrap();
    fill(&create(dir.path()), 0..100);
    flip(&first_segment(dir.path()), 700);
    let queue = Queue::open(dir.path()).unwrap();
    let mut tailer = tailer(&queue, StartAt::Start);
    let error = loop {
        match tailer.next() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the damage was not found"),
            Err(error) => break error,
        }
    };
    let QueueError::Damaged { path, position, .. } = error else { panic!("{error}") };
    assert_eq!(path, first_segment(dir.path()));
    assert!(position.0 <= 700);
}

#[test]
fn a_segment_that_ends_too_early_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    fill(&create(dir.path()), 0..100);
    let mut bytes = std::fs::read(first_segment(dir.path())).unwrap();
    let third = (0..3)
        .fold(0, |at, _| at + 12 + u32::from_be_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize);
    bytes[third + 8..third + 12].fill(0);
    std::fs::write(first_segment(dir.path()), bytes).unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    let mut tailer = tailer(&queue, StartAt::Start);
    for _ in 0..3 {
        assert!(tailer.next().unwrap().is_some());
    }
    let error = tailer.next().map(|_| ()).unwrap_err();
    let QueueError::Damaged { path, position, .. } = error else { panic!("{error}") };
    assert_eq!((path, position.0), (first_segment(dir.path()), third as u64));
}

#[test]
fn a_segment_that_was_cut_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fill(&create(dir.path()), 0..100);
    std::fs::File::options().write(true).open(first_segment(dir.path())).unwrap().set_len(1000).unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    let error = queue.tailer(StartAt::Start).map(|_| ()).unwrap_err();
    assert!(
        matches!(error, QueueError::Damaged { what: Damage::Size { found_bytes: 1000, .. }, .. }),
        "{error}"
    );
}

#[test]
fn a_damaged_control_file_is_refused() {
    for (at, want) in [(0, "not the control file"), (8, "newer"), (16, "checksum"), (32, "checksum")] {
        let dir = tempfile::tempdir().unwrap();
        drop(create(dir.path()));
        flip(&dir.path().join("queue.control"), at + usize::from(at == 8));
        let error = Queue::open(dir.path()).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(want) && error.contains("queue.control"), "byte {at}: {error}");
    }
}

#[test]
fn no_queue_and_two_queues_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(Queue::open(dir.path()), Err(QueueError::NoQueue { .. })));
    assert!(matches!(Queue::open(&dir.path().join("none")), Err(QueueError::NoQueue { .. })));
    drop(create(dir.path()));
    assert!(matches!(Queue::create(dir.path(), SMALL), Err(QueueError::Exists { .. })));
    assert!(Queue::open_or_create(dir.path(), SMALL).is_ok());
}

#[test]
fn whole_batches_are_kept_after_a_boot() {
    let dir = tempfile::tempdir().unwrap();
    let queue = create(dir.path());
    let control = common::control_of(dir.path());
    fill(&queue, 0..300);
    let dir = common::after_a_cut_of_power(dir.path(), &control);
    let queue = Queue::open(dir.path()).unwrap();
    assert_eq!((queue.recovery().from_disk, queue.recovery().records_kept), (true, 300));
    assert_eq!((&queue.recovery().cut_at, &queue.recovery().cut_to), (&None, &None));
    fill(&queue, 300..400);
    assert_eq!(values(&mut tailer(&queue, StartAt::Start)), expected(0..400));
}

#[test]
fn after_a_boot_everything_above_the_first_hole_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let queue = create(dir.path());
    let control = common::control_of(dir.path());
    fill(&queue, 0..300);
    let dir = common::after_a_cut_of_power(dir.path(), &control);
    flip(&first_segment(dir.path()), 2000);
    let queue = Queue::open(dir.path()).unwrap();
    let recovery = queue.recovery().clone();
    assert!(recovery.records_kept > 3 && recovery.cut_at.is_some(), "{recovery:?}");
    let kept = recovery.records_kept as u64;
    assert_eq!(values(&mut tailer(&queue, StartAt::Start)), expected(0..kept));
    fill(&queue, kept..200);
    assert_eq!(values(&mut tailer(&queue, StartAt::Start)), expected(0..200));
    drop(queue);
    let again = Queue::open(dir.path()).unwrap();
    assert!(!again.recovery().from_disk);
}

/// Simulates another boot, as far as the queue can tell.
fn in_another_life(dir: &Path) {
    flip(&dir.join("queue.control"), 64);
}

/// One step of the model test.
#[derive(Clone, Debug)]
enum Step {
    Append { len: usize, appender: usize },
    Reserve { len: usize, publish: bool },
    Read { count: usize, tailer: usize },
    Seek { to: usize, tailer: usize },
    Reopen,
    Boot,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3000_usize, 0..2_usize).prop_map(|(len, appender)| Step::Append { len, appender }),
        2 => (0..3000_usize, any::<bool>()).prop_map(|(len, publish)| Step::Reserve { len, publish }),
        4 => (0..20_usize, 0..3_usize).prop_map(|(count, tailer)| Step::Read { count, tailer }),
        1 => (0..100_usize, 0..3_usize).prop_map(|(to, tailer)| Step::Seek { to, tailer }),
        1 => Just(Step::Reopen),
        1 => Just(Step::Boot),
    ]
}

/// A queue, and a list that should hold the same.
struct Model {
    dir: tempfile::TempDir,
    queue: Option<Queue>,
    appenders: Vec<Appender>,
    tailers: Vec<(Tailer, usize)>,
    records: Vec<Vec<u8>>,
}

impl Model {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        drop(create(dir.path()));
        let mut model =
            Self { dir, queue: None, appenders: Vec::new(), tailers: Vec::new(), records: Vec::new() };
        model.open();
        model
    }

    fn open(&mut self) {
        let queue = Queue::open(self.dir.path()).unwrap();
        self.appenders = vec![appender(&queue), appender(&queue)];
        self.tailers = (0..3).map(|_| (tailer(&queue, StartAt::Start), 0)).collect();
        self.queue = Some(queue);
    }

    fn close(&mut self) {
        self.appenders.clear();
        self.tailers.clear();
        self.queue = None;
    }

    fn value(&self, len: usize) -> Vec<u8> {
        vec![self.records.len() as u8 | 1; len]
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Append { len, appender } => {
                let value = self.value(len);
                let offset = self.appenders[appender].append(&value).unwrap();
                assert_eq!(offset, Offset(self.records.len() as i64));
                self.records.push(value);
            }
            Step::Reserve { len, publish } => {
                let value = self.value(len);
                let mut reserved = self.appenders[0].reserve(len).unwrap();
                reserved.copy_from_slice(&value);
                if publish {
                    assert_eq!(reserved.publish().unwrap(), Offset(self.records.len() as i64));
                    self.records.push(value);
                }
            }
            Step::Read { count, tailer } => self.read(count, tailer),
            Step::Seek { to, tailer } => {
                let to = to.min(self.records.len());
                self.tailers[tailer].0.seek(StartAt::Offset(Offset(to as i64))).unwrap();
                self.tailers[tailer].1 = to;
            }
            Step::Reopen => {
                self.close();
                self.open();
            }
            Step::Boot => {
                self.close();
                in_another_life(self.dir.path());
                self.open();
            }
        }
    }

    fn read(&mut self, count: usize, tailer: usize) {
        let (tailer, next) = &mut self.tailers[tailer];
        for _ in 0..count {
            let record = tailer.next().unwrap();
            let expected = self.records.get(*next);
            assert_eq!(record.map(|record| record.offset), expected.map(|_| Offset(*next as i64)));
            let same = record.and_then(|record| record.value) == expected.map(Vec::as_slice);
            assert!(same, "record {next} has another value");
            *next += usize::from(expected.is_some());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_queue_is_a_list(steps in proptest::collection::vec(step(), 1..80)) {
        let mut model = Model::new();
        for step in &steps {
            model.run(step);
        }
    }
}

fn built(options: BatchOptions, values: &[&str]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    for value in values {
        builder.append(TimestampMs(7), None, Some(value.as_bytes()), &[]).expect("room");
    }
    builder.build().expect("a batch")
}

/// Appends a batch that was made elsewhere.
fn append_built(appender: &mut Appender, bytes: &[u8]) -> Result<Offset, QueueError> {
    appender.append_whole(&UnverifiedBatch::only(bytes).expect("one").verify().expect("whole"))
}

#[test]
fn batches_of_others_are_kept_as_they_are_and_read_like_any() {
    let dir = tempfile::tempdir().unwrap();
    let queue = create(dir.path());
    let mut appender = appender(&queue);
    let producer = ProducerStamp { id: ProducerId(5), epoch: ProducerEpoch(2), base_sequence: 40 };
    let codecs =
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
    let mut expected = Vec::new();
    for round in 0..60_i64 {
        let compression = codecs[round as usize % codecs.len()];
        let bytes = built(
            BatchOptions { compression, producer, ..BatchOptions::default() },
            &["one", "two", "three"],
        );
        assert_eq!(append_built(&mut appender, &bytes).expect("room"), Offset(round * 4));
        appender.append(b"four").expect("room");
        let values = ["one", "two", "three", "four"].map(|value| value.as_bytes().to_vec());
        expected.extend((round * 4..).zip(values));
    }
    assert_eq!(values(&mut tailer(&queue, StartAt::Start)), expected, "over several segments");

    drop((appender, queue));
    let queue = Queue::open(dir.path()).expect("whole");
    assert_eq!(values(&mut tailer(&queue, StartAt::Start)), expected, "with their checksums");
    let mut bytes = Vec::new();
    let view = riverrun_queue::QueueView::open(dir.path()).expect("whole");
    let mut reader = view.batches(StartAt::Start).expect("readable");
    while reader.copy(&mut bytes, 1 << 20, true).expect("readable") > 0 {}
    let batch = Batches::new(&bytes).next().expect("one").expect("whole").verify().expect("whole");
    assert_eq!(
        (batch.producer_id(), batch.producer_epoch(), batch.base_sequence(), batch.leader_epoch()),
        (ProducerId(5), ProducerEpoch(2), 40, view.epoch())
    );
}

#[test]
fn oversized_and_unreadable_batches_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let queue = create(dir.path());
    let mut appender = appender(&queue);
    let most = appender.batch_bytes_max();
    let sized = |bytes: usize| {
        let overhead = built(BatchOptions::default(), &["x".repeat(2000).as_str()]).len() - 2000;
        built(BatchOptions::default(), &["x".repeat(bytes - overhead).as_str()])
    };
    assert_eq!(sized(most).len(), most);
    assert!(matches!(append_built(&mut appender, &sized(most + 1)), Err(QueueError::TooLarge { .. })));
    assert_eq!(append_built(&mut appender, &sized(most)).expect("a whole segment"), Offset(0));

    let producer = ProducerStamp { id: ProducerId(5), epoch: ProducerEpoch(0), base_sequence: 0 };
    let transactional = BatchOptions { producer, transactional: true, ..BatchOptions::default() };
    let control = BatchOptions { control: true, ..transactional };
    for options in [transactional, control] {
        let refused = append_built(&mut appender, &built(options, &["x"])).expect_err("refused");
        assert!(matches!(refused, QueueError::Options(_)), "{refused}");
    }
    let mut gap = built(BatchOptions::default(), &["x"]);
    gap[riverrun_records::layout::LAST_OFFSET_DELTA + 3] = 5;
    riverrun_records::patch_max_timestamp(&mut gap, TimestampMs(7));
    let refused = append_built(&mut appender, &gap).expect_err("offsets without records");
    assert!(matches!(refused, QueueError::Options(_)), "{refused}");
    assert_eq!(appender.append(b"next").expect("the lock is free"), Offset(1));
}
