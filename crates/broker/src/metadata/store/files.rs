//! The store's files: reading them at a start, appending to the log, beginning a new generation.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_env::{ChangeError, Env, File, OpenMode, atomic_replace, is_shortage, read_whole};

use super::log_path;
use crate::metadata::error::MetadataError;
use crate::metadata::frames::{FrameError, PAYLOAD_BYTES_MAX, first_line, read_frames, write_frame};
use crate::metadata::image::Image;
use crate::metadata::records::{Head, Record, to_json};
use crate::metadata::verify::MetadataFinding;

const SNAPSHOT: &str = "snapshot";
const SNAPSHOT_KIND: &str = "metadata snapshot";
const LOG_KIND: &str = "metadata log";
/// Records in one frame of a snapshot, so that a frame stays far below its largest size.
const SNAPSHOT_FRAME_RECORDS: usize = 256;
/// A metadata file in bytes at most.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

/// The open log of the current generation.
///
/// Invariants: the file holds whole synced frames up to `end` and nothing after it; `sequence` is the next frame's.
#[derive(Debug)]
pub(super) struct LogFile {
    file: Arc<dyn File>,
    path: PathBuf,
    end: u64,
    sequence: u64,
}

/// A failed append, or a generation that could not begin.
#[derive(Debug)]
pub(super) struct WriteFailure {
    pub(super) error: MetadataError,
    /// Whether nobody knows what the disk holds now.
    pub(super) is_unknown: bool,
}

impl LogFile {
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Appends one frame; synced when it returns.
    pub(super) fn append(&mut self, payload: &[u8]) -> Result<(), WriteFailure> {
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(WriteFailure { error: MetadataError::TooLarge, is_unknown: false });
        }
        let mut frame = Vec::with_capacity(payload.len() + 64);
        write_frame(&mut frame, self.sequence, payload);
        if let Err(source) = self.file.write_all_at(&frame, self.end) {
            // A full disk leaves a part of the frame. Nothing of it was promised, so it may go. A disk that fails is
            // not written to again.
            let is_undone = is_shortage(&source) && self.file.set_len(self.end).is_ok();
            let error = MetadataError::io("write", &self.path)(source);
            return Err(WriteFailure { error, is_unknown: !is_undone });
        }
        if let Err(source) = self.file.sync_data() {
            return Err(WriteFailure {
                error: MetadataError::io("sync", &self.path)(source),
                is_unknown: true,
            });
        }
        self.end += frame.len() as u64;
        self.sequence += 1;
        Ok(())
    }

    /// Removes a log that a snapshot has replaced. If it fails, the next start removes it.
    pub(super) fn remove(self, env: &Env) {
        if let Err(error) = env.fs.remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "an old metadata log could not be removed");
        }
    }
}

/// Begins the generation of `head`: an empty log, then the snapshot that names it. Both are durable when it returns;
/// before the snapshot is replaced, the generation before is the valid one, and a failure before the first sync leaves
/// it in use. Answers the snapshot's size too.
pub(super) fn start_generation(
    env: &Env,
    dir: &Path,
    head: &Head,
    image: &Image,
) -> Result<(LogFile, u64), WriteFailure> {
    let log_path = log_path(dir, head.generation);
    let log = create_log(env, dir, head).map_err(failed("make", log_path))?;
    let snapshot = snapshot_bytes(head, image);
    let path = dir.join(SNAPSHOT);
    atomic_replace(&*env.fs, &path, &snapshot).map_err(failed("write", path))?;
    Ok((log, snapshot.len() as u64))
}

fn failed(action: &'static str, path: PathBuf) -> impl FnOnce(ChangeError) -> WriteFailure {
    move |error| WriteFailure {
        is_unknown: matches!(error, ChangeError::Unknown(_)),
        error: MetadataError::io(action, path)(error.into()),
    }
}

fn create_log(env: &Env, dir: &Path, head: &Head) -> Result<LogFile, ChangeError> {
    let path = log_path(dir, head.generation);
    let mut bytes = first_line(LOG_KIND).into_bytes();
    write_frame(&mut bytes, 0, &to_json(head));
    let write = || -> io::Result<_> {
        let directory = env.fs.open_dir(dir)?;
        let file = env.fs.open(&path, OpenMode::CreateOrOpen)?;
        file.set_len(0)?;
        file.write_all_at(&bytes, 0)?;
        Ok((file, directory))
    };
    let (file, directory) = write().map_err(ChangeError::Undone)?;
    file.sync_all().and_then(|()| directory.sync()).map_err(ChangeError::Unknown)?;
    Ok(LogFile { file, path, end: bytes.len() as u64, sequence: 1 })
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

/// Reads what is there, and answers the head of the generation that comes next; `None` if no server was ever started
/// here.
pub(super) fn load(env: &Env, dir: &Path) -> Result<Option<(Head, Image)>, MetadataError> {
    let path = dir.join(SNAPSHOT);
    let bytes = match read_whole(&*env.fs, &path, FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            check_nothing_is_lost(env, dir)?;
            return Ok(None);
        }
        Err(error) => return Err(MetadataError::io("read", path)(error)),
    };
    let (head, mut image) = read_snapshot(&path, &bytes)?;
    read_log(env, dir, &head, &mut image)?;
    Ok(Some((Head { generation: head.generation + 1, ..head }, image)))
}

/// A first start that was cut short leaves a log without any change, and no snapshot. A log with changes means
/// that the snapshot is lost.
fn check_nothing_is_lost(env: &Env, dir: &Path) -> Result<(), MetadataError> {
    for (_, path) in logs(env, dir)? {
        let bytes = read_file(env, &path)?;
        if read_frames(LOG_KIND, &bytes).is_ok_and(|frames| frames.payloads.len() > 1) {
            let reason = format!("it has changes, but the {SNAPSHOT} that it follows is missing: restore it");
            return Err(MetadataError::Content { path, reason });
        }
    }
    Ok(())
}

fn read_snapshot(path: &Path, bytes: &[u8]) -> Result<(Head, Image), MetadataError> {
    let frames = read_frames(SNAPSHOT_KIND, bytes).map_err(file_error(path))?;
    let head: Head = parse(path, frames.payloads.first().copied().unwrap_or_default())?;
    // A snapshot is written whole before it gets its name, so a torn one is damage too.
    if frames.payloads.len() as u64 != head.frames || frames.end != bytes.len() {
        return Err(content(path, "it is cut".to_owned()));
    }
    let mut image = Image::new(&head);
    apply_all(path, &mut image, &frames.payloads[1..])?;
    Ok((Head { frames: 0, ..head }, image))
}

/// Reads the log of this generation into the image.
fn read_log(env: &Env, dir: &Path, head: &Head, image: &mut Image) -> Result<(), MetadataError> {
    let path = log_path(dir, head.generation);
    let ReadLog { bytes, end } = parse_log(env, &path, head, image)?;
    if end < bytes {
        tracing::warn!(path = %path.display(), bytes = bytes - end, "a torn tail of the metadata log is left out");
    }
    Ok(())
}

/// What was read of a log.
struct ReadLog {
    /// Bytes of the file.
    bytes: u64,
    /// Where its last whole frame ends.
    end: u64,
}

/// Reads the log at `path` into the image.
fn parse_log(env: &Env, path: &Path, head: &Head, image: &mut Image) -> Result<ReadLog, MetadataError> {
    let bytes = read_file(env, path)?;
    let frames = read_frames(LOG_KIND, &bytes).map_err(file_error(path))?;
    let found: Head = parse(path, frames.payloads.first().copied().unwrap_or_default())?;
    if found != *head {
        let reason =
            "it does not belong to the snapshot beside it: one of them comes from elsewhere".to_owned();
        return Err(content(path, reason));
    }
    apply_all(path, image, &frames.payloads[1..])?;
    Ok(ReadLog { bytes: bytes.len() as u64, end: frames.end as u64 })
}

/// Reads what is there as a start does, and changes nothing. An error is the first flaw that would stop a start.
pub(crate) fn verify(env: &Env, dir: &Path) -> Result<Vec<MetadataFinding>, MetadataError> {
    let path = dir.join(SNAPSHOT);
    let (head, mut image) = read_snapshot(&path, &read_file(env, &path)?)?;
    let path = log_path(dir, head.generation);
    let ReadLog { bytes, end } = parse_log(env, &path, &head, &mut image)?;
    Ok(if end < bytes { vec![MetadataFinding::torn(&path, end)] } else { Vec::new() })
}

fn apply_all(path: &Path, image: &mut Image, payloads: &[&[u8]]) -> Result<(), MetadataError> {
    for payload in payloads {
        for record in parse::<Vec<Record>>(path, payload)? {
            image.apply(record).map_err(|reason| content(path, reason))?;
        }
    }
    Ok(())
}

fn parse<T: serde::de::DeserializeOwned>(path: &Path, payload: &[u8]) -> Result<T, MetadataError> {
    serde_json::from_slice(payload).map_err(|error| {
        content(
            path,
            format!("this program does not understand it ({error}); a newer one may have written it"),
        )
    })
}

fn content(path: &Path, reason: String) -> MetadataError {
    MetadataError::Content { path: path.to_owned(), reason }
}

fn file_error(path: &Path) -> impl FnOnce(FrameError) -> MetadataError {
    let path = path.to_owned();
    move |source| MetadataError::File { path, source }
}

fn read_file(env: &Env, path: &Path) -> Result<Vec<u8>, MetadataError> {
    read_whole(&*env.fs, path, FILE_BYTES_MAX).map_err(MetadataError::io("read", path))
}

/// The logs in the directory, by generation.
fn logs(env: &Env, dir: &Path) -> Result<Vec<(u64, PathBuf)>, MetadataError> {
    let entries = env.fs.read_dir(dir).map_err(MetadataError::io("read the directory", dir))?;
    let generation = |name: &str| name.strip_prefix("log-").and_then(|digits| digits.parse().ok());
    let named =
        entries.iter().filter_map(|entry| Some((generation(entry.name.to_str()?)?, dir.join(&entry.name))));
    Ok(named.collect())
}

/// Removes the generation before, and what a start or snapshot that was cut short has left.
pub(super) fn remove_other_generations(env: &Env, dir: &Path, current: u64) -> Result<(), MetadataError> {
    for (generation, path) in logs(env, dir)? {
        if generation != current {
            env.fs.remove_file(&path).map_err(MetadataError::io("remove", path))?;
        }
    }
    Ok(())
}
