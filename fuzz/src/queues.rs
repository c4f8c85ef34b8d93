//! The embedded queue: a directory that was damaged is opened in every way, and used.
//!
//! The input is a list of damages to a queue that was made once. Checksums are mended after, if the input says so,
//! so that fields are believed that no queue has written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use riverrun_queue::{
    AppendOptions, CreateOptions, Offset, Queue, QueueError, QueueView, Retention, StartAt,
};

const SEGMENT_BYTES: u64 = 4096;
const CONTROL: &str = "queue.control";
/// Places of the control file's checksums, and the bytes that they cover.
const IDENTITY_CRC_AT: usize = 48;
const MARKS_AT: [usize; 2] = [12288, 12800];
const MARK_COVERED_BYTES: usize = 40;
/// Boot, mount, device and inode: the life in which the fields are true.
const LIFE: std::ops::Range<usize> = 64..104;

type Files = BTreeMap<String, Vec<u8>>;

/// Damages a queue as `data` says, and does with it whatever can be done.
pub fn check_queue(data: &[u8]) {
    let Some((flags, damages)) = data.split_first() else { return };
    let mut files = sound().clone();
    for damage in damages.chunks_exact(5) {
        apply(&mut files, damage);
    }
    if flags & 1 != 0 {
        mend(&mut files);
    }
    let dir = place();
    write(&dir, &files, flags & 2 != 0);
    let seen = look(&dir);
    let used = use_it(&dir);
    if used.is_ok() {
        assert!(look(&dir).is_ok(), "what was used to its end can be looked at; before that: {seen:?}");
    }
    std::fs::remove_dir_all(&dir).expect("the directory is removed");
}

/// Directory of this process's queues: in memory, if there is such a place.
fn place() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let root = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    root.join(format!("riverrun-fuzz-queue-{}", std::process::id()))
}

/// The files of a queue with a few segments, part of which is synced.
fn sound() -> &'static Files {
    static SOUND: OnceLock<Files> = OnceLock::new();
    SOUND.get_or_init(|| {
        let dir = place();
        let queue = Queue::create(&dir, CreateOptions { segment_bytes: SEGMENT_BYTES }).expect("a queue");
        fill(&queue, 20).expect("room");
        let options = AppendOptions { ahead_bytes: 0, ..AppendOptions::default() };
        let mut appender = queue.appender(options).expect("an appender");
        for _ in 0..4 {
            appender.append(&[3; 400]).expect("room");
        }
        let names = std::fs::read_dir(&dir).expect("a directory").map(|entry| entry.expect("a name"));
        let files = names.map(|entry| {
            let bytes = std::fs::read(entry.path()).expect("a file");
            (entry.file_name().into_string().expect("a plain name"), bytes)
        });
        let files = files.collect();
        drop((appender, queue));
        std::fs::remove_dir_all(&dir).expect("the directory is removed");
        files
    })
}

fn fill(queue: &Queue, records: u8) -> Result<(), QueueError> {
    // Damage may look like another holder of the queue, so it is not waited for long.
    let patience = Some(Duration::from_millis(5));
    let options = AppendOptions { ahead_bytes: 0, patience, ..AppendOptions::default() };
    let mut appender = queue.appender(options)?;
    for index in 0..records {
        appender.append(&[index; 400])?;
    }
    Ok(())
}

/// One damage: what, in which file, where (two bytes), and with what.
fn apply(files: &mut Files, damage: &[u8]) {
    let names: Vec<String> = files.keys().cloned().collect();
    let Some(name) = names.get(usize::from(damage[1]) % names.len().max(1)) else { return };
    let Some(bytes) = files.get_mut(name) else { return };
    let at = usize::from(u16::from_le_bytes([damage[2], damage[3]]));
    match damage[0] % 8 {
        0 => drop(files.remove(name)),
        1 => bytes.truncate(at),
        2 => {
            let copy = bytes.clone();
            files.insert(format!("{:020}.log", at % 64), copy);
        }
        kind => {
            if bytes.is_empty() {
                return;
            }
            let at = at % bytes.len();
            bytes[at] = if kind == 3 { bytes[at] ^ damage[4] } else { damage[4] };
        }
    }
}

/// Makes the checksums fit.
fn mend(files: &mut Files) {
    for (name, bytes) in files {
        if name == CONTROL && bytes.len() >= MARKS_AT[1] + MARK_COVERED_BYTES + 4 {
            let sum = crc32c::crc32c(&bytes[..IDENTITY_CRC_AT]);
            bytes[IDENTITY_CRC_AT..IDENTITY_CRC_AT + 4].copy_from_slice(&sum.to_le_bytes());
            for at in MARKS_AT {
                let covered = at..at + MARK_COVERED_BYTES;
                let sum = crc32c::crc32c_append(crc32c::crc32c(b"RRQUEUE1"), &bytes[covered.clone()]);
                bytes[covered.end..covered.end + 4].copy_from_slice(&sum.to_le_bytes());
            }
        } else if name != CONTROL {
            mend_batches(bytes);
        }
    }
}

fn mend_batches(mut bytes: &mut [u8]) {
    while bytes.len() > 61 {
        let length = i32::from_be_bytes(bytes[8..12].try_into().expect("four bytes"));
        let Some(size) = usize::try_from(length).ok().map(|length| length + 12) else { return };
        if size < 61 || size > bytes.len() {
            return;
        }
        let (batch, rest) = std::mem::take(&mut bytes).split_at_mut(size);
        let sum = crc32c::crc32c(&batch[21..]);
        batch[17..21].copy_from_slice(&sum.to_be_bytes());
        bytes = rest;
    }
}

/// Writes the files. In the same life, the control file says that its fields are true of them.
fn write(dir: &Path, files: &Files, same_life: bool) {
    // A crash of an earlier input may have left it.
    let _ = std::fs::remove_dir_all(dir);
    let queue = Queue::create(dir, CreateOptions { segment_bytes: SEGMENT_BYTES }).expect("a queue");
    drop(queue);
    let path = dir.join(CONTROL);
    let life = std::fs::read(&path).expect("a control file")[LIFE].to_vec();
    for name in sound().keys().filter(|name| !files.contains_key(*name)) {
        // The new queue has not all the files of the sound one.
        let _ = std::fs::remove_file(dir.join(name));
    }
    for (name, bytes) in files {
        let mut bytes = bytes.clone();
        if same_life && name == CONTROL && bytes.len() >= LIFE.end {
            bytes[LIFE].copy_from_slice(&life);
        }
        std::fs::write(dir.join(name), bytes).expect("room");
    }
}

fn look(dir: &Path) -> Result<(), QueueError> {
    let view = QueueView::open(dir)?;
    view.status()?;
    let verified = view.verify();
    let mut tailer = view.tailer(StartAt::Start)?;
    while let Some(record) = tailer.next()? {
        std::hint::black_box(record.headers().count());
    }
    verified.map(|_| ())
}

fn use_it(dir: &Path) -> Result<(), QueueError> {
    let queue = Queue::open(dir)?;
    queue.status()?;
    queue.tailer(StartAt::Offset(Offset(7)))?.next()?;
    fill(&queue, 15)?;
    queue.sync()?;
    queue.named_tailer("fuzz", StartAt::Start)?.keep_place()?;
    queue.verify()?;
    queue.apply_retention(&Retention { bytes: Some(2 * SEGMENT_BYTES), ..Retention::default() })?;
    queue.verify().map(|_| ())
}
