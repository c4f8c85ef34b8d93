//! The store's files: reading them at a start, and beginning a new generation.

use std::io;
use std::path::{Path, PathBuf};

use riverrun_env::{ChangeError, Env, atomic_replace, read_whole};

use super::ACCEPT_METADATA_LOSS_FILE;
use super::log::{LOG_KIND, LogFile, ReadLog, log_path, logs, read_log, verify_logs};
use crate::metadata::copies::{self, Behind};
use crate::metadata::error::MetadataError;
use crate::metadata::frames::{FrameError, first_line, read_frames, read_up_to_flaw, write_frame};
use crate::metadata::image::Image;
use crate::metadata::records::{Head, Record, to_json};
use crate::metadata::verify::MetadataFinding;

pub(super) const SNAPSHOT: &str = "snapshot";
/// Prefix of the copies of files that an owner gives up.
const DAMAGED_PREFIX: &str = "damaged-";
const SNAPSHOT_KIND: &str = "metadata snapshot";
/// Records in one frame of a snapshot, so that a frame stays far below its largest size.
const SNAPSHOT_FRAME_RECORDS: usize = 256;
/// Upper bound of a metadata file in bytes.
pub(super) const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

/// A failed append, or a generation that could not begin.
#[derive(Debug)]
pub(super) struct WriteFailure {
    pub(super) error: MetadataError,
    /// Whether it is unknown what the disk holds now.
    pub(super) is_unknown: bool,
}

/// A snapshot that was written.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) bytes: u64,
    /// Its copy, if that found no room.
    pub(super) behind: Option<Behind>,
}

/// Begins the generation of `head`: an empty log, then the snapshot that names it. Both are durable when it returns;
/// before the snapshot is replaced, the generation before is the valid one, and a failure before the first sync leaves
/// it in use.
pub(super) fn start_generation(
    env: &Env,
    dir: &Path,
    head: &Head,
    image: &Image,
) -> Result<(LogFile, Snapshot), WriteFailure> {
    let log_path = log_path(dir, head.generation);
    let log = LogFile::create(env, dir, head).map_err(failed("make", log_path))?;
    Ok((log, write_snapshot(env, dir, head, image)?))
}

/// Replaces the snapshot; durable when it returns.
pub(super) fn write_snapshot(
    env: &Env,
    dir: &Path,
    head: &Head,
    image: &Image,
) -> Result<Snapshot, WriteFailure> {
    let content = snapshot_bytes(head, image);
    let (path, bytes) = (dir.join(SNAPSHOT), content.len() as u64);
    let behind = copies::replace(env, &path, content).map_err(failed("write", path))?;
    Ok(Snapshot { bytes, behind })
}

/// Tries again to write a copy of the snapshot that found no room; durable if there is some now.
pub(super) fn write_copy(env: &Env, dir: &Path, behind: Behind) -> Result<Option<Behind>, WriteFailure> {
    behind.retry(env).map_err(failed("write", copies::copy_of(&dir.join(SNAPSHOT))))
}

fn failed(action: &'static str, path: PathBuf) -> impl FnOnce(ChangeError) -> WriteFailure {
    move |error| WriteFailure {
        is_unknown: matches!(error, ChangeError::Unknown(_)),
        error: MetadataError::io(action, path)(error.into()),
    }
}

fn snapshot_bytes(head: &Head, image: &Image) -> Vec<u8> {
    let records: Vec<Record> = image.to_records().collect();
    let frames = records.chunks(SNAPSHOT_FRAME_RECORDS);
    let head = Head { frames: 1 + frames.len() as u64, ..head.clone() };
    let mut bytes = first_line(SNAPSHOT_KIND).into_bytes();
    write_frame(&mut bytes, 0, &to_json(&head));
    for (sequence, chunk) in (1..).zip(frames) {
        write_frame(&mut bytes, sequence, &to_json(chunk));
    }
    bytes
}

/// The metadata that a start reads.
#[derive(Debug)]
pub(super) struct Loaded {
    /// The head of the generation that comes next.
    pub(super) head: Head,
    pub(super) image: Image,
    /// The image may lack changes: the log's tail is torn, or an owner gave up what cannot be read.
    pub(super) may_lack_changes: bool,
}

/// Reads the metadata; `None` if no server was ever started here. With `accepts_loss`, parts of the log that cannot be read
/// are left out, and copies of all files stay.
pub(super) fn load(env: &Env, dir: &Path, accepts_loss: bool) -> Result<Option<Loaded>, MetadataError> {
    let path = dir.join(SNAPSHOT);
    let read = copies::read(env, &path, FILE_BYTES_MAX, read_snapshot).map_err(without_snapshot(dir))?;
    let Some(copies::Read { value: (head, mut image), .. }) = read else {
        return orphan(env, dir, None)?.map_or(Ok(None), |log| Err(without_snapshot(dir)(log)));
    };
    let ReadLog { is_torn, flaw } = read_log(env, dir, &head, &mut image)?;
    let flaw = flaw.map_or_else(|| orphan(env, dir, Some(head.generation)), |flaw| Ok(Some(flaw)))?;
    let may_lack_changes = flaw.is_some() || is_torn;
    if let Some(flaw) = flaw {
        if !accepts_loss {
            return Err(in_part(dir, flaw));
        }
        tracing::error!(error = %flaw, "metadata that cannot be read is given up, as the owner wishes");
        keep_copies(env, dir)?;
    }
    let head = Head { generation: head.generation + 1, is_last: false, ..head };
    Ok(Some(Loaded { head, image, may_lack_changes }))
}

/// The error for a snapshot that cannot be read: there is no way on without one.
fn without_snapshot(dir: &Path) -> impl FnOnce(MetadataError) -> MetadataError {
    let way_out = format!(
        "Restore {} from a copy of the data directory: without it nobody knows which topic's records are which",
        dir.display()
    );
    move |error| match error {
        MetadataError::File { source: FrameError::NewerFormat(_), .. } => error,
        MetadataError::File { .. } | MetadataError::Content { .. } => {
            MetadataError::Lost { source: Box::new(error), way_out }
        }
        error => error,
    }
}

/// The error for metadata that can be read in part only.
fn in_part(dir: &Path, flaw: MetadataError) -> MetadataError {
    let way_out = format!(
        "Restore {} from a copy of the data directory; or make a file {ACCEPT_METADATA_LOSS_FILE} in it to go on with \
         what can be read: changes behind that are given up",
        dir.display()
    );
    MetadataError::Lost { source: Box::new(flaw), way_out }
}

/// A start or snapshot that was cut short leaves a log without changes beside the snapshot before it, or beside none. If
/// such a log has changes, the snapshot that it follows is lost.
fn orphan(env: &Env, dir: &Path, generation: Option<u64>) -> Result<Option<MetadataError>, MetadataError> {
    for (found, path) in logs(env, dir)? {
        if generation.is_some_and(|generation| found <= generation) {
            continue;
        }
        let bytes = read_file(env, &path)?;
        if read_up_to_flaw(LOG_KIND, &bytes).0.payloads.len() > 1 {
            let reason = format!("it has changes, but the {SNAPSHOT} that it follows is missing");
            return Ok(Some(content(&path, reason)));
        }
    }
    Ok(None)
}

/// Copies every file to one that no server reads.
fn keep_copies(env: &Env, dir: &Path) -> Result<(), MetadataError> {
    let snapshot = dir.join(SNAPSHOT);
    let logs = logs(env, dir)?.into_iter().map(|(_, path)| path);
    for path in logs.chain([copies::copy_of(&snapshot), snapshot]) {
        let Ok(bytes) = read_file(env, &path) else { continue };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let kept = dir.join(format!("{DAMAGED_PREFIX}{name}"));
        let copied = atomic_replace(&*env.fs, &kept, &bytes);
        copied.map_err(|error| MetadataError::io("write", kept)(error.into()))?;
    }
    Ok(())
}

fn read_snapshot(path: &Path, bytes: &[u8]) -> Result<(Head, Image), MetadataError> {
    let frames = read_frames(SNAPSHOT_KIND, bytes).map_err(file_error(path))?;
    // A snapshot is written whole before it gets its name, so a torn one is damage too.
    let cut = || file_error(path)(FrameError::Damaged { position: frames.end, reason: "it is cut" });
    let head: Head = parse(path, frames.payloads.first().ok_or_else(cut)?)?;
    if frames.payloads.len() as u64 != head.frames || frames.end != bytes.len() {
        return Err(cut());
    }
    let mut image = Image::new(&head);
    apply_all(path, &mut image, &frames.payloads[1..])?;
    Ok((Head { frames: 0, ..head }, image))
}

/// Reads the metadata as a start does, and changes nothing: the flaws, a torn tail, and the image if there is one.
pub(crate) fn verify(env: &Env, dir: &Path) -> Result<Verified, MetadataError> {
    let path = dir.join(SNAPSHOT);
    let (read, mut flaws) = copies::verify(env, &path, FILE_BYTES_MAX, read_snapshot);
    let Some((head, mut image)) = read else {
        if flaws.is_empty() {
            flaws.push(MetadataError::io("read", path)(io::ErrorKind::NotFound.into()));
        }
        flaws.extend(orphan(env, dir, None)?);
        return Ok(Verified { flaws, torn: Vec::new(), image: None });
    };
    let (of_logs, mut torn) = verify_logs(env, dir, &head)?;
    flaws.extend(of_logs);
    flaws.extend(read_log(env, dir, &head, &mut image)?.flaw.filter(|_| flaws.is_empty()));
    flaws.extend(orphan(env, dir, Some(head.generation))?);
    torn.retain(|_| flaws.is_empty());
    Ok(Verified { flaws, torn, image: Some(image) })
}

/// The findings in the files.
#[derive(Debug)]
pub(crate) struct Verified {
    pub(crate) flaws: Vec<MetadataError>,
    pub(crate) torn: Vec<MetadataFinding>,
    pub(crate) image: Option<Image>,
}

pub(super) fn apply_all(path: &Path, image: &mut Image, payloads: &[&[u8]]) -> Result<(), MetadataError> {
    for payload in payloads {
        for record in parse::<Vec<Record>>(path, payload)? {
            image.apply(record).map_err(|reason| content(path, reason))?;
        }
    }
    Ok(())
}

pub(super) fn parse<T: serde::de::DeserializeOwned>(path: &Path, payload: &[u8]) -> Result<T, MetadataError> {
    serde_json::from_slice(payload).map_err(|error| {
        content(
            path,
            format!("this program does not understand it ({error}); a newer one may have written it"),
        )
    })
}

pub(super) fn content(path: &Path, reason: String) -> MetadataError {
    MetadataError::Content { path: path.to_owned(), reason }
}

pub(super) fn file_error(path: &Path) -> impl FnOnce(FrameError) -> MetadataError {
    let path = path.to_owned();
    move |source| MetadataError::File { path, source }
}

pub(super) fn read_file(env: &Env, path: &Path) -> Result<Vec<u8>, MetadataError> {
    read_whole(&*env.fs, path, FILE_BYTES_MAX).map_err(MetadataError::io("read", path))
}
