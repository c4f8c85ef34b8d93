//! Owns the worker that makes a quorum's log durable: it takes all that has come, writes it in one piece and syncs it once.
//!
//! Votes and entries lie in one file in the order in which `openraft` asked for them, so that none is durable before an earlier one. A
//! shortage is waited for: `openraft` ends at any error of its storage, for good. Any other failed write or sync ends the log.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use riverrun_env::{ChangeError, Env, File, OpenMode, Step, Wake, Work, atomic_replace, is_shortage};
use tokio::sync::oneshot;

use super::frame::{frame_bytes, header, write_frame};
use super::record::{LogContent, Record};

/// Told when a job is durable, or will never be.
pub(crate) type Done = Box<dyn FnOnce(io::Result<()>) + Send>;

/// Pause before a write is tried again for which there was no room.
const SHORTAGE_PAUSE: Duration = Duration::from_secs(1);
/// Size in bytes at which a log file is looked at for what is no longer needed. Tests come there, too.
const REWRITE_BYTES_MIN: u64 = if cfg!(test) { 32 << 10 } else { 4 << 20 };

/// Size in bytes of a mark.
const MARK_BYTES: usize = frame_bytes(0);

pub(super) enum Job {
    Record(Record, Option<Done>),
    /// Nothing: it is durable once all before it is.
    Barrier(Done),
    /// The last index of a snapshot, and the bytes of its file, which replaces the one before.
    Snapshot(Option<u64>, Bytes, Done),
}

/// The jobs that wait for the worker.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    /// Told once the log has failed.
    pub(super) failing: Mutex<Option<oneshot::Sender<()>>>,
}

#[derive(Default)]
struct QueueState {
    jobs: Vec<Job>,
    is_closed: bool,
    wake: Option<Wake>,
}

impl Queue {
    pub(super) fn wake_by(&self, wake: Wake) {
        self.state.lock().wake = Some(wake);
    }

    /// Adds jobs, in order. Once the queue is closed they fail.
    pub(super) fn add(&self, jobs: impl IntoIterator<Item = Job>) {
        let mut state = self.state.lock();
        if state.is_closed {
            drop(state);
            jobs.into_iter().for_each(|job| job.end(Err(closed())));
            return;
        }
        state.jobs.extend(jobs);
        let wake = state.wake.clone();
        drop(state);
        wake.iter().for_each(Wake::wake);
    }

    /// Ends the worker once it has done what is there.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let wake = state.wake.clone();
        drop(state);
        wake.iter().for_each(Wake::wake);
    }

    fn take(&self) -> (Vec<Job>, bool) {
        let mut state = self.state.lock();
        (std::mem::take(&mut state.jobs), state.is_closed)
    }
}

fn closed() -> io::Error {
    io::Error::other("the log of the quorum is closed")
}

impl Job {
    fn end(self, result: io::Result<()>) {
        if let Self::Record(_, Some(done)) | Self::Barrier(done) | Self::Snapshot(.., done) = self {
            done(result);
        }
    }
}

/// Invariants: `content` is that of the file up to `end`, all of which is synced; `batch` is written behind it, perhaps in part.
/// Behind a batch there is room for a mark.
pub(super) struct Writer {
    pub(super) env: Env,
    pub(super) directory: PathBuf,
    pub(super) queue: Arc<Queue>,
    pub(super) file: Arc<dyn File>,
    pub(super) content: LogContent,
    pub(super) end: u64,
    pub(super) crc: u32,
    pub(super) batch: Batch,
    /// The last index of the newest snapshot that was stored since the start.
    pub(super) snapshot: Option<u64>,
    /// Something behind the last frame says that it was synced.
    pub(super) is_marked: bool,
    /// A snapshot that a planted bug has answered, and whether its entries were purged.
    #[cfg(test)]
    pub(super) put_off: Option<(Bytes, bool)>,
    pub(super) failed: Option<String>,
}

/// Jobs that are being made durable together: records, or one snapshot.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    crc: u32,
    records: Vec<Record>,
    snapshot: Option<(Option<u64>, Bytes)>,
    done: Vec<Done>,
    later: Vec<Job>,
}

impl Work for Writer {
    fn step(&mut self) -> Step {
        if self.batch.is_empty() {
            let (mut jobs, is_closed) = self.queue.take();
            let mut waiting = std::mem::take(&mut self.batch.later);
            waiting.append(&mut jobs);
            #[cfg(test)]
            self.put_snapshots_off(&mut waiting);
            if waiting.is_empty() {
                self.mark();
                return if is_closed { Step::Done } else { Step::Sleep(None) };
            }
            self.batch = Batch::of(waiting, self.crc, self.end);
        }
        match self.write() {
            Ok(()) => {
                self.note_durable();
                self.finish(None);
            }
            Err(Refused::Shortage(error)) => {
                tracing::warn!("the log of the quorum waits for room: {error}");
                return Step::Sleep(Some(SHORTAGE_PAUSE));
            }
            Err(Refused::Failed(error)) => {
                tracing::error!("the log of the quorum has failed: {error}");
                self.failed = Some(error.to_string());
                if let Some(failing) = self.queue.failing.lock().take() {
                    // Without a member nobody wants to know.
                    let _ = failing.send(());
                }
                self.finish(Some(&error.to_string()));
            }
        }
        Step::Again
    }
}

enum Refused {
    /// The disk is as it was, and there may be room later.
    Shortage(io::Error),
    /// The state of the disk is unknown.
    Failed(io::Error),
}

impl From<ChangeError> for Refused {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Undone(error) if is_shortage(&error) => Self::Shortage(error),
            ChangeError::Undone(error) | ChangeError::Unknown(error) => Self::Failed(error),
        }
    }
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.records.is_empty() && self.snapshot.is_none() && self.done.is_empty()
    }

    /// The records up to the first snapshot, or that snapshot; the other jobs come later.
    fn of(jobs: Vec<Job>, crc: u32, synced: u64) -> Self {
        let mut batch = Self { crc, ..Self::default() };
        let mut jobs = jobs.into_iter();
        for job in jobs.by_ref() {
            match job {
                Job::Record(record, done) => {
                    batch.crc = write_frame(&mut batch.bytes, batch.crc, synced, &record.encode());
                    batch.records.push(record);
                    batch.done.extend(done);
                }
                Job::Barrier(done) => batch.done.push(done),
                Job::Snapshot(index, bytes, done) if batch.is_empty() => {
                    batch.snapshot = Some((index, bytes));
                    batch.done.push(done);
                    break;
                }
                snapshot @ Job::Snapshot(..) => {
                    batch.later.push(snapshot);
                    break;
                }
            }
        }
        batch.later.extend(jobs);
        if !batch.bytes.is_empty() {
            // Room for the mark, so that a full disk has it.
            batch.bytes.resize(batch.bytes.len() + MARK_BYTES, 0);
        }
        batch
    }
}

impl Writer {
    /// Makes the batch durable.
    fn write(&mut self) -> Result<(), Refused> {
        if let Some(failed) = &self.failed {
            return Err(Refused::Failed(io::Error::other(failed.clone())));
        }
        if let Some((index, snapshot)) = &self.batch.snapshot {
            if *index < self.snapshot && !is_planted_older() {
                return Ok(());
            }
            atomic_replace(&*self.env.fs, &self.directory.join(super::SNAPSHOT_FILE), snapshot)?;
            self.snapshot = *index;
            return Ok(());
        }
        self.file.write_all_at(&self.batch.bytes, self.end).map_err(|error| {
            if is_shortage(&error) { Refused::Shortage(error) } else { Refused::Failed(error) }
        })?;
        #[cfg(test)]
        if let Some(result) = self.planted_sync() {
            return result;
        }
        self.file.sync_data().map_err(Refused::Failed)
    }

    /// The result of a sync with a planted bug.
    #[cfg(test)]
    fn planted_sync(&mut self) -> Option<Result<(), Refused>> {
        use crate::planted::{Planted, is_planted};
        let is_of = |is: fn(&Record) -> bool| self.batch.records.iter().all(is);
        if is_planted(Planted::AnsweredBeforeSync) {
            for done in std::mem::take(&mut self.batch.done) {
                done(Ok(()));
            }
            return None;
        }
        if is_planted(Planted::FailedSyncIgnored) {
            return Some(self.file.sync_data().or(Ok(())));
        }
        let is_left_out = (is_planted(Planted::VoteNotSynced)
            && is_of(|record| matches!(record, Record::Vote(_))))
            || (is_planted(Planted::EntriesNotSynced) && is_of(|record| !matches!(record, Record::Vote(_))));
        is_left_out.then_some(Ok(()))
    }

    /// Answers snapshots at once, if that is the planted bug, and stores each after its entries were purged and something else has
    /// come.
    #[cfg(test)]
    fn put_snapshots_off(&mut self, waiting: &mut Vec<Job>) {
        use crate::planted::{Planted, is_planted};
        if !is_planted(Planted::PurgedBeforeSnapshot) || waiting.is_empty() {
            return;
        }
        if let Some((bytes, _)) = self.put_off.take_if(|(_, is_purged)| *is_purged) {
            let _ = atomic_replace(&*self.env.fs, &self.directory.join(super::SNAPSHOT_FILE), &bytes);
        }
        for job in std::mem::take(waiting) {
            match job {
                Job::Snapshot(_, bytes, done) => {
                    done(Ok(()));
                    self.put_off = Some((bytes, false));
                }
                job => waiting.push(job),
            }
        }
        let is_purge = |job: &Job| matches!(job, Job::Record(Record::Purged(_), _));
        if let Some((_, is_purged)) = &mut self.put_off {
            *is_purged |= waiting.iter().any(is_purge);
        }
    }

    /// Writes behind the last frame that it was synced. Nothing depends on it but the discovery of damage.
    fn mark(&mut self) {
        if self.failed.is_some() || std::mem::replace(&mut self.is_marked, true) {
            return;
        }
        #[cfg(test)]
        if crate::planted::is_planted(crate::planted::Planted::NoMark) {
            return;
        }
        let mut mark = Vec::new();
        write_frame(&mut mark, self.crc, self.end, &[]);
        if let Err(error) = self.file.write_all_at(&mark, self.end) {
            tracing::debug!("the end of the quorum's log was not marked: {error}");
        }
    }

    fn note_durable(&mut self) {
        self.end += self.batch.bytes.len().saturating_sub(MARK_BYTES) as u64;
        self.is_marked &= self.batch.bytes.is_empty();
        self.crc = self.batch.crc;
        for record in std::mem::take(&mut self.batch.records) {
            // The store has made the same step before it asked for this one.
            if let Err(error) = self.content.apply(record) {
                self.failed = Some(error.to_string());
            }
        }
    }

    /// Answers the batch: it is durable, or has failed for this reason.
    fn finish(&mut self, failed: Option<&str>) {
        let later = std::mem::take(&mut self.batch.later);
        let done = std::mem::take(&mut self.batch.done);
        self.batch = Batch { later, ..Batch::default() };
        if failed.is_none() && self.end >= REWRITE_BYTES_MIN {
            self.rewrite();
        }
        for done in done {
            done(failed.map_or(Ok(()), |reason| Err(io::Error::other(reason.to_owned()))));
        }
    }

    /// Replaces the file by one with what is still needed, if that is at most half of it.
    fn rewrite(&mut self) {
        let (bytes, crc) = encode(&self.content);
        if bytes.len() as u64 > self.end / 2 {
            return;
        }
        let path = self.directory.join(super::LOG_FILE);
        match atomic_replace(&*self.env.fs, &path, &bytes) {
            Ok(()) => {}
            // It is only longer than it has to be.
            Err(ChangeError::Undone(error)) => {
                return tracing::warn!("the log of the quorum stays long: {error}");
            }
            Err(ChangeError::Unknown(error)) => return self.failed = Some(error.to_string()),
        }
        match self.env.fs.open(&path, OpenMode::ReadWrite) {
            Ok(file) => (self.file, self.end, self.crc) = (file, bytes.len() as u64, crc),
            Err(error) => self.failed = Some(error.to_string()),
        }
    }
}

/// Whether a planted bug stores an older snapshot.
fn is_planted_older() -> bool {
    #[cfg(test)]
    let is_planted = crate::planted::is_planted(crate::planted::Planted::OlderSnapshotStored);
    #[cfg(not(test))]
    let is_planted = false;
    is_planted
}

/// A file with this content, and the CRC that its next frame names.
pub(super) fn encode(content: &LogContent) -> (Vec<u8>, u32) {
    let (start, mut crc) = header();
    #[cfg(test)]
    let content = &without_planted(content);
    let payloads: Vec<_> = content.records().map(|record| record.encode()).collect();
    // The file is synced as a whole before it takes the other's place.
    let synced = start.len() + payloads.iter().map(|payload| frame_bytes(payload.len())).sum::<usize>();
    let mut bytes = start.to_vec();
    for payload in payloads {
        crc = write_frame(&mut bytes, crc, synced as u64, &payload);
    }
    (bytes, crc)
}

/// The content that a planted bug keeps.
#[cfg(test)]
fn without_planted(content: &LogContent) -> LogContent {
    let mut content = content.clone();
    if crate::planted::is_planted(crate::planted::Planted::VoteLostAtRewrite) {
        content.vote = None;
    }
    content
}
