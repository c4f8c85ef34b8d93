//! Metadata marks: each log dir remembers how far the metadata has come, so that an older copy of `meta` is noticed after
//! it was put back. A server that went on with that copy would
//!
//! - count the same starts again;
//! - give out producer ids twice: records of a new producer would be taken for duplicates, acked and not stored;
//! - not know partitions that were added to a topic.
//!
//! ```text
//! <log dir>/metadata-mark    one frame: cluster, node, starts, producer_ids_end, added_partitions
//! ```
//!
//! A mark follows the metadata. A start, a block of producer ids or added partitions are durable there first; then the
//! mark is written; only then anything is served, an id is given out or the addition is answered. So a crash leaves the
//! mark behind the metadata, never ahead. Metadata behind a mark is refused, unless its owner accepts the loss: the
//! numbers go on above those of all marks then.
//!
//! A mark guards against a mistake and holds no data. So the server goes on without one that is missing, damaged, of
//! another server or a newer format, or cannot be written: it is written anew with the next start, block or addition. A
//! disk that does not answer holds up nothing either: each mark is written by a thread of its own, which is waited for
//! a moment.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use riverrun_env::{ChangeError, Env, atomic_replace, is_shortage, read_whole};
use serde::{Deserialize, Serialize};

use super::log_dirs::IDENTITY_FILE;
use crate::metadata::cluster::ClusterImage;
use crate::metadata::error::MetadataError;
use crate::metadata::frames::{FrameError, first_line, read_frames, write_frame};
use crate::metadata::image::Image;
use crate::metadata::records::to_json;

/// The mark's name in each log dir.
const MARK_FILE: &str = "metadata-mark";
const WHAT: &str = "metadata mark";
/// Upper bound of a mark in bytes.
const MARK_BYTES_MAX: u64 = 4096;
/// Upper bound of the starts in a mark: one each second for thirty years. A mark with more is damaged; above it the server
/// would soon have no number left.
const STARTS_MAX: i32 = 1 << 30;
/// Upper bound of producer ids, and of added partitions, in a mark: half of all numbers.
const COUNT_MAX: i64 = 1 << 62;

/// How long a mark's disk is waited for. A disk that is only busy writes some hundred bytes in that time; and a new producer
/// waits for it, or the addition of partitions, which may lie elsewhere.
const PATIENCE: Duration = Duration::from_secs(1);

/// How far the metadata has come, in the numbers that must not come twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Starts of the node that were counted.
    pub(crate) starts: i32,
    /// Producer ids below it may have been given out.
    pub(crate) producer_ids_end: i64,
    /// Partitions that were added to existing topics.
    pub(crate) added_partitions: i64,
}

impl Progress {
    pub(crate) fn of(cluster: &ClusterImage) -> Self {
        Self {
            starts: cluster.starts(),
            producer_ids_end: cluster.producer_ids_end(),
            added_partitions: cluster.added_partitions(),
        }
    }

    /// The larger of each number.
    pub(crate) fn furthest(self, other: Self) -> Self {
        Self {
            starts: self.starts.max(other.starts),
            producer_ids_end: self.producer_ids_end.max(other.producer_ids_end),
            added_partitions: self.added_partitions.max(other.added_partitions),
        }
    }

    fn is_behind(self, other: Self) -> bool {
        self.furthest(other) != self
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "start {}, producer ids below {} and {} added partitions",
            self.starts, self.producer_ids_end, self.added_partitions
        )
    }
}

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mark {
    /// The cluster's id.
    cluster: String,
    /// The node's id.
    node: i32,
    /// As in [`Progress`].
    starts: i32,
    /// As in [`Progress`].
    producer_ids_end: i64,
    /// As in [`Progress`].
    added_partitions: i64,
}

impl Mark {
    fn of(image: &Image) -> Self {
        let Progress { starts, producer_ids_end, added_partitions } = Progress::of(&image.cluster);
        let cluster = image.cluster.id().to_string();
        Self { cluster, node: image.node.id().0, starts, producer_ids_end, added_partitions }
    }

    fn is_of(&self, image: &Image) -> bool {
        *self.cluster == **image.cluster.id() && self.node == image.node.id().0
    }

    fn is_possible(&self) -> bool {
        let counts = [self.producer_ids_end, self.added_partitions];
        (0..=STARTS_MAX).contains(&self.starts) && counts.iter().all(|count| (0..=COUNT_MAX).contains(count))
    }

    fn progress(&self) -> Progress {
        Progress {
            starts: self.starts,
            producer_ids_end: self.producer_ids_end,
            added_partitions: self.added_partitions,
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = first_line(WHAT).into_bytes();
        write_frame(&mut bytes, 0, &to_json(self));
        bytes
    }

    fn parse(path: &Path, bytes: &[u8]) -> Result<Self, MetadataError> {
        let file_error = |source| MetadataError::File { path: path.to_owned(), source };
        let damaged = |position, reason| file_error(FrameError::Damaged { position, reason });
        let content = |reason| MetadataError::Content { path: path.to_owned(), reason };
        let frames = read_frames(WHAT, bytes).map_err(file_error)?;
        let [payload] = frames.payloads[..] else { return Err(damaged(frames.end, "it is not one frame")) };
        if frames.end != bytes.len() {
            return Err(damaged(frames.end, "something follows the frame"));
        }
        let mark: Self = serde_json::from_slice(payload).map_err(|error| content(error.to_string()))?;
        if mark.is_possible() {
            Ok(mark)
        } else {
            Err(content(format!("no server comes as far as {}", mark.progress())))
        }
    }
}

/// The mark in a log dir, of any server. `None`: there is none.
fn read_mark(env: &Env, dir: &Path) -> Result<Option<Mark>, MetadataError> {
    let path = dir.join(MARK_FILE);
    match read_whole(&*env.fs, &path, MARK_BYTES_MAX) {
        Ok(bytes) => Mark::parse(&path, &bytes).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(MetadataError::Content { path, reason: error.to_string() })
        }
        Err(error) => Err(MetadataError::io("read", path)(error)),
    }
}

/// The flaw of the mark in a log dir, if there is one.
pub(crate) fn verify(env: &Env, dir: &Path) -> Option<MetadataError> {
    read_mark(env, dir).err()
}

/// The marks of all log dirs.
///
/// Invariants: no mark is written that is ahead of the durable metadata. A mark that its disk has refused to take, for a
/// reason other than a shortage, is not written again.
#[derive(Debug)]
pub(crate) struct Marks(Vec<Arc<MarkFile>>);

/// A mark, and its path apart, which is read without waiting for the disk.
#[derive(Debug)]
struct MarkFile {
    path: PathBuf,
    attempt: Mutex<Attempt>,
    /// Notified when an attempt ends.
    free: Condvar,
    /// Locked by the thread of the attempt.
    state: Mutex<MarkState>,
}

/// The attempt to write a mark, of which there is one at a time.
#[derive(Debug, Default)]
struct Attempt {
    /// Its thread waits for the disk.
    is_running: bool,
    /// The disk has not answered in time: no caller waits for it again until it has.
    is_late: bool,
}

#[derive(Debug)]
struct MarkState {
    path: PathBuf,
    /// The progress that was read, if the mark is this server's.
    told: Option<Progress>,
    /// Why it could not be read, until it is written anew.
    flaw: Option<MetadataError>,
    writing: Writing,
}

/// The end of the last attempt to write a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    /// Well, if there was one.
    Well,
    /// There was no room. The next attempt may succeed.
    Short,
    /// The disk takes nothing, or is in an unknown state. Only a restart tries again.
    Failed,
}

impl Marks {
    /// Reads the marks in these log dirs. Changes nothing.
    pub(crate) fn read(env: &Env, image: &Image, log_dirs: &[PathBuf]) -> Self {
        Self(log_dirs.iter().map(|dir| MarkFile::new(MarkState::read(env, image, dir))).collect())
    }

    /// Fails if the metadata in `meta` is behind a mark that was read.
    pub(crate) fn check(&self, image: &Image, meta: &Path) -> Result<(), MetadataError> {
        let has = Progress::of(&image.cluster);
        let all = self.0.iter().filter_map(|file| Some((&file.path, file.state.lock().told?)));
        let ahead = all.filter(|(_, told)| has.is_behind(*told));
        match ahead.max_by_key(|(_, told)| (told.starts, told.producer_ids_end, told.added_partitions)) {
            None => Ok(()),
            Some((mark, told)) => Err(MetadataError::Older {
                meta: meta.to_owned(),
                has: has.to_string(),
                mark: mark.clone(),
                told: told.to_string(),
            }),
        }
    }

    /// Whether no mark of this server was read.
    pub(crate) fn are_missing(&self) -> bool {
        self.0.iter().all(|file| file.state.lock().told.is_none())
    }

    /// The furthest progress of all marks that were read.
    pub(crate) fn furthest(&self) -> Progress {
        self.0.iter().filter_map(|file| file.state.lock().told).fold(Progress::default(), Progress::furthest)
    }

    /// Writes the progress of `image`, which must be durable, to every mark. The marks are durable when it returns, except those
    /// that cannot be written, or not in time: each stays behind after one warning, and the caller goes on even without any.
    /// Until it is written again, such a mark may let an older copy of the metadata pass. A caller that waited for it would
    /// keep idempotent producers from their ids while the log dirs are full.
    pub(crate) fn write(&self, env: &Env, image: &Image) {
        let bytes: Arc<[u8]> = Mark::of(image).to_bytes().into();
        for file in &self.0 {
            file.write(env, &bytes);
        }
    }

    /// The path of the first mark whose disk does not answer.
    pub(crate) fn unanswered(&self) -> Option<&Path> {
        let mut late = self.0.iter().filter(|file| file.attempt.lock().is_late);
        late.next().map(|file| file.path.as_path())
    }
}

impl MarkFile {
    fn new(state: MarkState) -> Arc<Self> {
        let path = state.path.clone();
        Arc::new(Self { path, attempt: Mutex::default(), free: Condvar::new(), state: Mutex::new(state) })
    }

    /// Leaves the mark behind if its disk does not answer in time.
    fn write(self: &Arc<Self>, env: &Env, bytes: &Arc<[u8]>) {
        if !self.is_free_in_time() {
            return;
        }
        self.attempt.lock().is_running = true;
        let (file, env, bytes) = (Arc::clone(self), env.clone(), Arc::clone(bytes));
        let work = move || {
            file.state.lock().write(&env, &bytes);
            file.end_attempt();
        };
        if let Err(error) = std::thread::Builder::new().name("riverrun-mark".to_owned()).spawn(work) {
            tracing::warn!(path = %self.path.display(), %error, "a metadata mark is not written now");
            self.end_attempt();
            return;
        }
        if !self.is_free_in_time() {
            tracing::warn!(
                path = %self.path.display(),
                "a log dir's disk does not answer: its metadata mark stays behind until it does"
            );
        }
    }

    /// Waits until no attempt runs, but not again for a disk that has been late and still is.
    fn is_free_in_time(&self) -> bool {
        let mut attempt = self.attempt.lock();
        if attempt.is_running && !attempt.is_late {
            self.free.wait_while_for(&mut attempt, |attempt| attempt.is_running, PATIENCE);
            attempt.is_late = attempt.is_running;
        }
        !attempt.is_running
    }

    fn end_attempt(&self) {
        *self.attempt.lock() = Attempt::default();
        self.free.notify_all();
    }
}

impl MarkState {
    fn read(env: &Env, image: &Image, dir: &Path) -> Self {
        let (told, flaw) = match read_mark(env, dir) {
            Ok(mark) => (mark.filter(|mark| mark.is_of(image)).map(|mark| mark.progress()), None),
            Err(flaw) => (None, Some(flaw)),
        };
        Self { path: dir.join(MARK_FILE), told, flaw, writing: Writing::Well }
    }

    fn write(&mut self, env: &Env, bytes: &[u8]) {
        // A directory that has taken the place of a log dir under the running server gets no mark.
        let identity = self.path.with_file_name(IDENTITY_FILE);
        if self.writing == Writing::Failed || !env.fs.exists(&identity).unwrap_or(true) {
            return;
        }
        if let Some(flaw) = self.flaw.take() {
            tracing::warn!(error = %flaw, "a metadata mark cannot be read: it is written anew");
        }
        match atomic_replace(&*env.fs, &self.path, bytes) {
            Ok(()) => self.writing = Writing::Well,
            Err(error) => self.note(&error),
        }
    }

    fn note(&mut self, error: &ChangeError) {
        let may_pass = matches!(error, ChangeError::Undone(reason) if is_shortage(reason));
        if self.writing == Writing::Well {
            tracing::warn!(
                path = %self.path.display(), %error,
                "a metadata mark cannot be written: it may not show that the metadata was replaced by an older copy"
            );
        }
        self.writing = if may_pass { Writing::Short } else { Writing::Failed };
    }
}

#[cfg(test)]
mod tests;
