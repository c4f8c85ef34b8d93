//! Several processes at one queue, some of which are killed or stopped.
//!
//! The other processes are this test's own binary, started again with a role in its environment.
//! `RIVERRUN_QUEUE_KILLS` sets how many appenders are killed.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test asserts, with small numbers"
)]

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use riverrun_queue::{
    AppendOptions, Appender, BusySpin, CreateOptions, Offset, Park, Queue, QueueError, Retention,
    SpinThenYield, StartAt, Tailer,
};

const ROLE: &str = "RIVERRUN_QUEUE_ROLE";
const DIR: &str = "RIVERRUN_QUEUE_DIR";
const ID: &str = "RIVERRUN_QUEUE_ID";
/// Segments that take a while to prepare, and how many bytes of them are kept.
const LARGE_SEGMENT_BYTES: u64 = 4 << 20;
const FEW_LARGE_SEGMENTS: Retention =
    Retention { age: None, bytes: Some(3 * LARGE_SEGMENT_BYTES), ignore_readers: true };
const BURST_RECORD_BYTES: usize = 10_000;
/// Most records of one appender, so that the test needs little disk space.
const RECORDS_MAX: u64 = 20_000;

/// Not a test of its own: the entry point of the started processes.
#[test]
fn a_started_process_plays_its_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let dir = PathBuf::from(std::env::var(DIR).unwrap());
    let id: u64 = std::env::var(ID).unwrap().parse().unwrap();
    match role.as_str() {
        "append" => append_until_killed(&dir, id),
        "hold" => hold_a_reservation(&dir),
        "follow" => follow(&dir, id),
        "fill" => append_until_refused(&dir),
        "keep" => append_in_bursts(&dir),
        other => panic!("no role {other}"),
    }
}

fn start(role: &str, dir: &Path, id: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["a_started_process_plays_its_role", "--exact", "--nocapture"])
        .env(ROLE, role)
        .env(DIR, dir)
        .env(ID, id.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

fn wait_for_line(child: &mut Child, want: &str) {
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    for line in lines {
        if line.unwrap().contains(want) {
            return;
        }
    }
    panic!("the process ended without saying {want}");
}

fn value(id: u64, sequence: u64) -> Vec<u8> {
    let mut value = [id.to_le_bytes(), sequence.to_le_bytes()].concat();
    value.resize(16 + (sequence * 37 % 400) as usize, (id * 31 + sequence) as u8);
    value
}

fn acked_path(dir: &Path, id: u64) -> PathBuf {
    dir.with_extension(format!("acked-{id}"))
}

fn append_until_killed(dir: &Path, id: u64) {
    // If the test ends, its end of the pipe is closed.
    std::thread::spawn(|| {
        std::io::stdin().read_line(&mut String::new()).unwrap();
        std::process::exit(1);
    });
    let queue = Queue::open(dir).unwrap();
    let mut appender = queue.appender(AppendOptions { ahead_bytes: 0, ..AppendOptions::default() }).unwrap();
    let acked = File::create(acked_path(dir, id)).unwrap();
    for sequence in 0..RECORDS_MAX {
        let value = value(id, sequence);
        if sequence % 3 == 0 {
            let mut reserved = appender.reserve(value.len()).unwrap();
            reserved.copy_from_slice(&value);
            reserved.publish().unwrap();
        } else {
            appender.append(&value).unwrap();
        }
        if sequence % 16 == 0 {
            acked.write_all_at(&(sequence + 1).to_le_bytes(), 0).unwrap();
        }
    }
    std::thread::park();
}

fn hold_a_reservation(dir: &Path) {
    let queue = Queue::open(dir).unwrap();
    let mut appender = queue.appender(AppendOptions::default()).unwrap();
    let mut reserved = appender.reserve(100).unwrap();
    reserved.fill(b'x');
    println!("held");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    reserved.publish().unwrap();
    println!("published");
}

/// Appends as much as a segment holds, so that another one has to be prepared, and rests.
fn append_in_bursts(dir: &Path) {
    let end_with_test = std::thread::spawn(|| std::io::stdin().read_line(&mut String::new()));
    let queue = Queue::open(dir).unwrap();
    let options = AppendOptions { retention: FEW_LARGE_SEGMENTS, ..AppendOptions::default() };
    let mut appender = queue.appender(options).unwrap();
    println!("keeping");
    while !end_with_test.is_finished() {
        for _ in 0..LARGE_SEGMENT_BYTES / BURST_RECORD_BYTES as u64 {
            appender.append(&[1; BURST_RECORD_BYTES]).unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn append_until_refused(dir: &Path) {
    let queue = Queue::open(dir).unwrap();
    let mut appender = queue.appender(AppendOptions { ahead_bytes: 0, ..AppendOptions::default() }).unwrap();
    let (count, error) =
        (0..).find_map(|count| appender.append(&[7; 1000]).err().map(|error| (count, error))).unwrap();
    assert!(matches!(&error, QueueError::Io { path, .. } if path.starts_with(dir)), "{error}");
    assert_eq!(queue.end_offset().unwrap(), Offset(count));
    // A record that still fits goes where there is room.
    assert_eq!(appender.append(&[8; 10]).unwrap(), Offset(count));
    println!("refused after {count}");
}

fn follow(dir: &Path, count: u64) {
    let queue = Queue::open(dir).unwrap();
    let mut tailer = queue.tailer(StartAt::Start).unwrap();
    println!("following");
    for offset in 0..count {
        let record = tailer.wait(&mut Park::new(0), Some(Duration::from_secs(20))).unwrap().unwrap();
        assert_eq!(record.offset, Offset(offset as i64));
        println!("read {offset}.");
    }
}

/// Records read so far, by appender.
#[derive(Default)]
struct Account {
    next: HashMap<u64, u64>,
    records: i64,
}

impl Account {
    /// Reads to the end, or at most `records_max` records: the appenders may be faster.
    fn take(&mut self, tailer: &mut Tailer, records_max: u64) {
        for _ in 0..records_max {
            let Some(record) = tailer.next().unwrap() else { return };
            assert_eq!(record.offset, Offset(self.records), "offsets have no gap");
            self.records += 1;
            let found = record.value.unwrap();
            let id = u64::from_le_bytes(*found.first_chunk().unwrap());
            let next = self.next.entry(id).or_default();
            assert!(found == value(id, *next), "record {next} of {id} is whole and in its turn");
            *next += 1;
        }
    }
}

fn cheap_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn killed_appenders_leave_nothing_torn_and_lose_nothing() {
    let kills: u64 = std::env::var("RIVERRUN_QUEUE_KILLS").map_or(20, |kills| kills.parse().unwrap());
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("queue");
    let queue = Queue::create(&dir, CreateOptions { segment_bytes: 64 << 10 }).unwrap();
    let mut live = queue.tailer(StartAt::Start).unwrap();
    let (mut account, mut random) = (Account::default(), 0x9e37_79b9_7f4a_7c15);
    let mut children: Vec<(u64, Child)> = (0..2).map(|id| (id, start("append", &dir, id))).collect();
    for id in 2..kills + 2 {
        let until = Instant::now() + Duration::from_micros(20_000 + cheap_random(&mut random) % 20_000);
        while Instant::now() < until {
            account.take(&mut live, 100);
            std::thread::yield_now();
        }
        let index = (cheap_random(&mut random) % 2) as usize;
        children[index].1.kill().unwrap();
        children[index].1.wait().unwrap();
        children[index] = (id, start("append", &dir, id));
    }
    for (_, child) in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    account.take(&mut live, u64::MAX);
    for id in 0..kills + 2 {
        let acked = std::fs::read(acked_path(&dir, id)).unwrap_or_default();
        let acked = acked.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let read = account.next.get(&id).copied().unwrap_or(0);
        assert!(read >= acked, "{id} appended {acked} records and {read} were read");
    }
    assert!(account.records > 1000, "the appenders were at work: {}", account.records);
    let mut again = Account::default();
    again.take(&mut queue.tailer(StartAt::Start).unwrap(), u64::MAX);
    assert_eq!(again.records, account.records);
    queue.appender(AppendOptions::default()).unwrap().append(b"the queue goes on").unwrap();
    nothing_lies_beyond(&dir);
}

/// Checks that each segment holds batches and then zeros.
fn nothing_lies_beyond(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "log") {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let mut rest = bytes.as_slice();
        while rest.len() >= 12 && rest[8..12] != [0; 4] {
            let (batch, after) = riverrun_records::UnverifiedBatch::split_first(rest).unwrap();
            batch.verify().unwrap();
            rest = after;
        }
        assert!(rest.iter().all(|byte| *byte == 0), "{} has zeros after its last batch", path.display());
    }
}

#[test]
fn a_stopped_appender_keeps_the_queue_and_a_dead_one_does_not() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("queue");
    let queue = Queue::create(&dir, CreateOptions { segment_bytes: 64 << 10 }).unwrap();
    let patience = Some(Duration::from_millis(100));
    let mut appender = queue.appender(AppendOptions { patience, ..AppendOptions::default() }).unwrap();
    let mut child = start("hold", &dir, 0);
    wait_for_line(&mut child, "held");
    signal(&child, "-STOP");
    assert!(matches!(appender.append(b"y"), Err(QueueError::Busy)));
    assert_eq!(queue.end_offset().unwrap(), Offset(0));
    signal(&child, "-CONT");
    child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    wait_for_line(&mut child, "published");
    child.wait().unwrap();
    assert_eq!(appender.append(b"y").unwrap(), Offset(1));

    let mut child = start("hold", &dir, 0);
    wait_for_line(&mut child, "held");
    signal(&child, "-STOP");
    assert!(matches!(appender.append(b"z"), Err(QueueError::Busy)));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(appender.append(b"z").unwrap(), Offset(2));
    let mut tailer = queue.tailer(StartAt::Start).unwrap();
    let mut found = Vec::new();
    while let Some(record) = tailer.next().unwrap() {
        found.push(record.value.unwrap().to_vec());
    }
    assert_eq!(found, [vec![b'x'; 100], b"y".to_vec(), b"z".to_vec()]);
}

/// A process that does not outlive the test, not even as a stopped one.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Stops a process, all of its threads.
fn stop(child: &Child) {
    signal(child, "-STOP");
    let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(task.unwrap().path().join("status"));
        status.is_ok_and(|status| status.contains("State:\tT"))
    };
    let until = Instant::now() + Duration::from_mins(1);
    while !std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap().all(is_stopped) {
        assert!(Instant::now() < until, "it has ended, or does not stop");
        std::thread::yield_now();
    }
}

/// Whether a process holds the lock of preparing segments, and none the writer lock.
fn is_preparing(dir: &Path) -> bool {
    const PREPARE_BYTE: u64 = (1 << 32) + 1;
    const WRITER_LOCK_AT: u64 = 4096;
    let control = File::open(dir.join("queue.control")).unwrap();
    let mut writer = [0; 4];
    control.read_exact_at(&mut writer, WRITER_LOCK_AT).unwrap();
    let held = format!(":{} {PREPARE_BYTE} {PREPARE_BYTE}", control.metadata().unwrap().ino());
    writer == [0; 4] && std::fs::read_to_string("/proc/locks").unwrap().contains(&held)
}

#[test]
fn stopped_keeper_blocks_no_append() {
    // In memory that takes a while. On a disk, the state may be too short to be seen.
    let Ok(root) = tempfile::tempdir_in("/dev/shm") else {
        assert!(std::env::var_os("CI").is_none(), "/dev/shm is needed");
        return;
    };
    let dir = root.path().join("queue");
    let queue = Queue::create(&dir, CreateOptions { segment_bytes: LARGE_SEGMENT_BYTES }).unwrap();
    let mut child = Killed(start("keep", &dir, 0));
    wait_for_line(&mut child.0, "keeping");
    let is_stopped = (0..20_000).any(|_| {
        stop(&child.0);
        let is_preparing = is_preparing(&dir);
        if !is_preparing {
            signal(&child.0, "-CONT");
        }
        is_preparing
    });
    assert!(is_stopped, "it makes segments ready now and then");

    let patience = Some(Duration::from_mins(1));
    let options = AppendOptions { patience, retention: FEW_LARGE_SEGMENTS, ..AppendOptions::default() };
    let mut appender = queue.appender(options).unwrap();
    let append_segments = |appender: &mut Appender, count: u64| {
        let records = count * LARGE_SEGMENT_BYTES / BURST_RECORD_BYTES as u64;
        (0..records).for_each(|_| assert!(appender.append(&[2; BURST_RECORD_BYTES]).is_ok()));
    };
    let until = Instant::now() + Duration::from_mins(1);
    let (begin, end) = (queue.start_offset().unwrap(), queue.end_offset().unwrap());
    append_segments(&mut appender, 5);
    // Retention continues as well.
    while queue.start_offset().unwrap() <= begin {
        assert!(Instant::now() < until, "the background of this process goes on");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(is_preparing(&dir), "that was without the other");
    let before = queue.end_offset().unwrap();
    assert!(before > end);
    signal(&child.0, "-CONT");
    while queue.end_offset().unwrap() <= before {
        assert!(Instant::now() < until, "it goes on where it was");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(child);
    append_segments(&mut appender, 3);
    // Its background would remove the records that are read.
    drop(appender);
    let mut tailer = queue.tailer(StartAt::Start).unwrap();
    while let Some(record) = tailer.next().unwrap() {
        let value = record.value.unwrap();
        assert!(value.len() == BURST_RECORD_BYTES && value.iter().all(|byte| *byte == value[0]));
    }
}

#[test]
fn append_fails_without_space_and_succeeds_with_it_again() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("queue");
    let queue = Queue::create(&dir, CreateOptions { segment_bytes: 64 << 10 }).unwrap();
    // The file size limit is half a segment: the first segment is made already, and the next cannot be.
    let script =
        "trap '' XFSZ; ulimit -f 64; exec \"$0\" a_started_process_plays_its_role --exact --nocapture";
    let mut child = Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .envs([(ROLE, "fill"), (DIR, dir.to_str().unwrap()), (ID, "0")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_line(&mut child, "refused after 6");
    assert!(child.wait().unwrap().success());
    let before = queue.end_offset().unwrap();
    assert_eq!(queue.appender(AppendOptions::default()).unwrap().append(&[9; 1000]).unwrap(), before);
    assert_eq!(queue.verify().unwrap(), before.0 as u64 + 1);
    assert_eq!(queue.status().unwrap().segments, 2);
}

#[test]
fn parked_tailers_of_other_processes_are_woken() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("queue");
    let queue = Queue::create(&dir, CreateOptions { segment_bytes: 64 << 10 }).unwrap();
    let mut children: Vec<Child> = (0..2).map(|_| start("follow", &dir, 50)).collect();
    for child in &mut children {
        wait_for_line(child, "following");
    }
    let mut appender = queue.appender(AppendOptions::default()).unwrap();
    let mut took: Vec<Duration> = (0..50)
        .map(|offset| {
            // Long enough that the tailers usually sleep.
            std::thread::sleep(Duration::from_millis(1));
            let begin = Instant::now();
            appender.append(&[1; 1000]).unwrap();
            for child in &mut children {
                wait_for_line(child, &format!("read {offset}."));
            }
            begin.elapsed()
        })
        .collect();
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    took.sort_unstable();
    // Without wake-ups, each tailer would sleep 100 ms for each record. On a busy machine some wake-ups take longer.
    assert!(took[10] < Duration::from_millis(50), "{took:?}");
}

#[test]
fn every_wait_strategy_ends_in_time_and_sees_records() {
    let root = tempfile::tempdir().unwrap();
    let queue = Queue::create(root.path(), CreateOptions { segment_bytes: 64 << 10 }).unwrap();
    let mut tailer = queue.tailer(StartAt::Start).unwrap();
    let short = Some(Duration::from_millis(20));
    let begin = Instant::now();
    assert!(tailer.wait(&mut BusySpin, short).unwrap().is_none());
    assert!(tailer.wait(&mut SpinThenYield::default(), short).unwrap().is_none());
    assert!(tailer.wait(&mut Park::default(), short).unwrap().is_none());
    assert!(begin.elapsed() >= Duration::from_millis(60));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut offsets = Vec::new();
            for round in 0..300 {
                let record = match round % 3 {
                    0 => tailer.wait(&mut BusySpin, Some(Duration::MAX)),
                    1 => tailer.wait(&mut SpinThenYield::new(10), None),
                    _ => tailer.wait(&mut Park::new(10), None),
                };
                offsets.push(record.unwrap().unwrap().offset.0);
            }
            offsets
        });
        let mut appender = queue.appender(AppendOptions::default()).unwrap();
        for index in 0..300 {
            appender.append(&[index as u8; 700]).unwrap();
            if index % 10 == 0 {
                std::thread::sleep(Duration::from_micros(300));
            }
        }
        assert_eq!(reader.join().unwrap(), (0..300).collect::<Vec<_>>());
    });
}
