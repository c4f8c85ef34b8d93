//! The log of changes, kept twice, as `log-<generation>` and `log-<generation>-copy`: damage to one of them loses nothing,
//! and neither does a cut, which at the end of a frame would look as if the changes behind had never been made.
//!
//! Both have the same bytes. Each change is written to both, and synced in both, before it is answered. So a crash in
//! between may leave one of them with a change more, which was not answered; the longer one holds.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_env::{ChangeError, Env, File, FileSystem, OpenMode, Vanishing, is_shortage};

use super::files::{WriteFailure, apply_all, content, file_error, parse, read_file};
use crate::metadata::copies::copy_of;
use crate::metadata::error::MetadataError;
use crate::metadata::frames::{FrameError, PAYLOAD_BYTES_MAX, first_line, read_up_to_flaw, write_frame};
use crate::metadata::image::Image;
use crate::metadata::records::{Head, to_json};
use crate::metadata::verify::MetadataFinding;

pub(super) const LOG_KIND: &str = "metadata log";
const LOG_PREFIX: &str = "log-";
const COPY_SUFFIX: &str = "-copy";

/// The open log of the current generation.
///
/// Invariants: both files hold the same whole synced frames up to `end` and nothing after it; `sequence` is the next
/// frame's.
#[derive(Debug)]
pub(super) struct LogFile {
    files: [(Arc<dyn File>, PathBuf); 2],
    end: u64,
    sequence: u64,
}

impl LogFile {
    /// Makes the log of `head`'s generation, without changes; durable when it returns.
    pub(super) fn create(env: &Env, dir: &Path, head: &Head) -> Result<Self, ChangeError> {
        let path = log_path(dir, head.generation);
        let mut bytes = first_line(LOG_KIND).into_bytes();
        write_frame(&mut bytes, 0, &to_json(head));
        let write = |path: PathBuf| -> io::Result<_> {
            let file = env.fs.open(&path, OpenMode::CreateOrOpen)?;
            file.set_len(0)?;
            file.write_all_at(&bytes, 0)?;
            Ok((file, path))
        };
        let directory = env.fs.open_dir(dir).map_err(ChangeError::Undone)?;
        let copy = copy_of(&path);
        let files = [write(path).map_err(ChangeError::Undone)?, write(copy).map_err(ChangeError::Undone)?];
        for (file, _) in &files {
            file.sync_all().map_err(ChangeError::Unknown)?;
        }
        directory.sync().map_err(ChangeError::Unknown)?;
        Ok(Self { files, end: bytes.len() as u64, sequence: 1 })
    }

    /// Whether each of the files has vanished, and how.
    pub(super) fn check(&self, fs: &dyn FileSystem) -> [(PathBuf, io::Result<Option<Vanishing>>); 2] {
        let look = |(file, path): &(Arc<dyn File>, PathBuf)| {
            (path.clone(), Vanishing::of_file(fs, path, Some(&**file), self.end))
        };
        self.files.each_ref().map(look)
    }

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
        for (file, path) in &self.files {
            file.write_all_at(&frame, self.end).map_err(|source| {
                // A full disk leaves a part of the frame. Nothing of it was promised, so it may go. A failed disk is not written
                // to again.
                let is_undone = is_shortage(&source) && self.cut();
                WriteFailure { error: MetadataError::io("write", path)(source), is_unknown: !is_undone }
            })?;
        }
        for (file, path) in &self.files {
            file.sync_data().map_err(|source| WriteFailure {
                error: MetadataError::io("sync", path)(source),
                is_unknown: true,
            })?;
        }
        self.end += frame.len() as u64;
        self.sequence += 1;
        Ok(())
    }

    /// Cuts both files after the last frame, durably. `false` if that fails: one of the files may have the whole change then,
    /// which would hold after a crash although it was refused.
    fn cut(&self) -> bool {
        self.files.iter().all(|(file, _)| file.set_len(self.end).and_then(|()| file.sync_data()).is_ok())
    }

    /// Removes a log that a snapshot has replaced. If it fails, the next start removes it.
    pub(super) fn remove(&self, env: &Env) {
        for (_, path) in &self.files {
            if let Err(error) = env.fs.remove_file(path) {
                tracing::warn!(path = %path.display(), %error, "an old metadata log could not be removed");
            }
        }
    }
}

/// The end of the log that a start has read.
#[derive(Debug)]
pub(super) struct ReadLog {
    /// The beginning of another change follows the last one.
    pub(super) is_torn: bool,
    /// Why changes that were answered may be missing.
    pub(super) flaw: Option<MetadataError>,
}

/// One of the two files.
#[derive(Debug)]
struct OneLog {
    path: PathBuf,
    bytes: Vec<u8>,
    /// Frames that can be read, the head's among them.
    frames: usize,
    /// End of the last of them.
    end: usize,
    /// Why the bytes behind cannot be read, unless they are a torn tail.
    flaw: Option<MetadataError>,
}

impl OneLog {
    fn read(env: &Env, path: PathBuf, head: &Head) -> Result<Self, MetadataError> {
        let bytes = match read_file(env, &path) {
            Ok(bytes) => bytes,
            Err(flaw) => return Ok(Self { path, bytes: Vec::new(), frames: 0, end: 0, flaw: Some(flaw) }),
        };
        let (read, flaw) = read_up_to_flaw(LOG_KIND, &bytes);
        let mut flaw = flaw.map(file_error(&path));
        let (mut frames, mut end) = (read.payloads.len(), read.end);
        match read.payloads.first() {
            Some(first) if parse::<Head>(&path, first)? == *head => {}
            Some(_) => {
                let reason = "it does not belong to the snapshot beside it: one of them comes from elsewhere";
                flaw = Some(content(&path, reason.to_owned()));
                (frames, end) = (0, 0);
            }
            None => flaw = flaw.or_else(|| Some(cut_at(&path, end, "it is cut"))),
        }
        Ok(Self { path, bytes, frames, end, flaw })
    }

    fn is_torn(&self) -> bool {
        self.flaw.is_none() && self.end < self.bytes.len()
    }

    fn is_missing(&self) -> bool {
        matches!(&self.flaw, Some(MetadataError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound)
    }

    fn is_newer(&self) -> bool {
        matches!(self.flaw, Some(MetadataError::File { source: FrameError::NewerFormat(_), .. }))
    }
}

fn cut_at(path: &Path, end: usize, reason: &'static str) -> MetadataError {
    file_error(path)(FrameError::Damaged { position: end, reason })
}

/// Reads both files. Neither stands in for one that a newer program has written.
fn read_both(env: &Env, dir: &Path, head: &Head) -> Result<[OneLog; 2], MetadataError> {
    let path = log_path(dir, head.generation);
    let copy = copy_of(&path);
    let mut log = OneLog::read(env, path, head)?;
    if log.is_newer()
        && let Some(newer) = log.flaw.take()
    {
        return Err(newer);
    }
    Ok([log, OneLog::read(env, copy, head)?])
}

/// Reads the log that follows a snapshot into the image, as far as one of the files can be read.
pub(super) fn read_log(
    env: &Env,
    dir: &Path,
    head: &Head,
    image: &mut Image,
) -> Result<ReadLog, MetadataError> {
    if head.is_last {
        return Ok(ReadLog { is_torn: false, flaw: None });
    }
    let [log, copy] = read_both(env, dir, head)?;
    // An older program writes no copy.
    let has_copy = !copy.is_missing();
    let is_copy_better = (copy.end, copy.flaw.is_none()) > (log.end, log.flaw.is_none());
    let (best, other) = if is_copy_better { (copy, log) } else { (log, copy) };
    let (frames, _) = read_up_to_flaw(LOG_KIND, &best.bytes);
    apply_all(&best.path, image, frames.payloads.get(1..best.frames).unwrap_or_default())?;
    if has_copy && best.flaw.is_none() && other.end < best.end {
        tracing::error!(
            path = %other.path.display(), at = other.end, flaw = other.flaw.as_ref().map(tracing::field::display),
            "one of the two metadata logs ends early: the other one is used, and both are written anew"
        );
    }
    let is_torn = best.is_torn();
    if is_torn {
        let bytes = best.bytes.len() - best.end;
        tracing::warn!(path = %best.path.display(), bytes, "a torn tail of the metadata log is left out");
    }
    // Bytes that cannot be read in one file and are not in the other may be a change that was answered. The same change
    // begins at the same byte in both.
    let hides_more = other.end >= best.end || other.end > 0 && other.bytes.len() > best.end;
    let flaw = best.flaw.or(other.flaw.filter(|_| hides_more));
    Ok(ReadLog { is_torn, flaw })
}

/// The flaws of both files, and the torn tails that a crash has left in them. A missing copy is no flaw: data of an older
/// program has none.
pub(super) fn verify_logs(
    env: &Env,
    dir: &Path,
    head: &Head,
) -> Result<(Vec<MetadataError>, Vec<MetadataFinding>), MetadataError> {
    let (mut flaws, mut torn) = (Vec::new(), Vec::new());
    if head.is_last {
        return Ok((flaws, torn));
    }
    let [log, copy] = read_both(env, dir, head)?;
    if copy.is_missing() {
        torn.extend(log.is_torn().then(|| MetadataFinding::torn(&log.path, log.end as u64)));
        flaws.extend(log.flaw);
        return Ok((flaws, torn));
    }
    let frames = log.frames.max(copy.frames);
    for one in [log, copy] {
        let missing = frames - one.frames;
        if one.flaw.is_none() && missing > 1 {
            flaws.push(cut_at(&one.path, one.end, "changes that the other log has are missing"));
        } else if one.is_torn() || one.flaw.is_none() && missing == 1 {
            torn.push(MetadataFinding::torn(&one.path, one.end as u64));
        }
        flaws.extend(one.flaw);
    }
    Ok((flaws, torn))
}

pub(super) fn log_path(dir: &Path, generation: u64) -> PathBuf {
    dir.join(format!("{LOG_PREFIX}{generation:020}"))
}

/// The logs in the directory and their copies, by generation.
pub(super) fn logs(env: &Env, dir: &Path) -> Result<Vec<(u64, PathBuf)>, MetadataError> {
    let entries = env.fs.read_dir(dir).map_err(MetadataError::io("read the directory", dir))?;
    let generation = |name: &str| {
        let digits = name.strip_prefix(LOG_PREFIX)?;
        digits.strip_suffix(COPY_SUFFIX).unwrap_or(digits).parse().ok()
    };
    let named =
        entries.iter().filter_map(|entry| Some((generation(entry.name.to_str()?)?, dir.join(&entry.name))));
    Ok(named.collect())
}

/// Removes the generation before, and logs of a start or snapshot that was cut short.
pub(super) fn remove_other_generations(env: &Env, dir: &Path, current: u64) -> Result<(), MetadataError> {
    for (generation, path) in logs(env, dir)? {
        if generation != current {
            env.fs.remove_file(&path).map_err(MetadataError::io("remove", path))?;
        }
    }
    Ok(())
}
