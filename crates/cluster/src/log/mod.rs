//! Owns the stored half of a quorum: its log with votes and entries, and its snapshot. Knows nothing of what commands mean.
//!
//! Entries are held in memory, too: a snapshot takes their place after some thousands, so that they are few.

mod frame;
mod record;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use parking_lot::Mutex;
use riverrun_env::{Env, OpenMode, atomic_replace, read_whole};
use thiserror::Error;
use tokio::sync::oneshot;

use self::frame::{Frames, HEADER_BYTES, header, read_frames};
use self::record::{LogContent, Record};
use self::writer::{Batch, Job, Queue, Writer};
use crate::codec::Malformed;
use crate::types::{Entry, LogId, Types, Vote};

/// The log's file in the quorum's directory.
const LOG_FILE: &str = "quorum.log";
/// The snapshot's file in the quorum's directory.
const SNAPSHOT_FILE: &str = "quorum.snapshot";
/// Upper bound of either file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Why the stored half of a quorum cannot be read.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The system refused.
    #[error("{0}: {1}")]
    Io(String, #[source] io::Error),
    /// A file is damaged, or of another version. Nothing of it is used: a vote or a committed entry might be missing.
    #[error("{path}: {reason}")]
    Damaged {
        /// The file.
        path: String,
        /// The flaw.
        reason: String,
    },
}

/// The log of a quorum. Clones share it.
#[derive(Clone)]
pub(crate) struct LogStore {
    content: Arc<Mutex<LogContent>>,
    queue: Arc<Queue>,
}

impl fmt::Debug for LogStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogStore").finish_non_exhaustive()
    }
}

/// A quorum's files, read.
pub(crate) struct Opened {
    pub(crate) store: LogStore,
    /// The bytes of the snapshot's file, if there is one.
    pub(crate) snapshot: Option<Bytes>,
}

impl LogStore {
    /// Opens the files in a directory, which is made in an existing one if need be, and starts the worker that writes them.
    pub(crate) fn open(env: &Env, directory: &Path) -> Result<Opened, StoreError> {
        let failed = |error| StoreError::Io(directory.display().to_string(), error);
        make_directory(env, directory).map_err(failed)?;
        let snapshot = read_file(env, &directory.join(SNAPSHOT_FILE)).map_err(failed)?;
        let writer = open_log(env, directory)?;
        let store =
            Self { content: Arc::new(Mutex::new(writer.content.clone())), queue: writer.queue.clone() };
        let worker = env.workers.start("riverrun-quorum", Box::new(writer)).map_err(failed)?;
        store.queue.wake_by(worker.wake());
        Ok(Opened { store, snapshot })
    }

    /// Ends once the log has failed, also in a write that nobody waits for; an error once it is gone.
    pub(crate) fn failure(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        *self.queue.failing.lock() = Some(sender);
        receiver
    }

    /// Ends the worker once it has written what is there.
    pub(crate) fn close(&self) {
        self.queue.close();
    }

    /// Replaces the snapshot's file, unless that is of a later index: one is built while another arrives. Durable when it returns,
    /// as is all that was asked for before.
    pub(crate) async fn save_snapshot(&self, index: Option<u64>, bytes: Bytes) -> io::Result<()> {
        self.durable(|done| Job::Snapshot(index, bytes, done)).await
    }

    /// All that was asked for before is durable when it returns.
    pub(crate) async fn sync_all(&self) -> io::Result<()> {
        self.durable(Job::Barrier).await
    }

    /// The vote, and the id of the last entry.
    #[cfg(test)]
    pub(crate) fn ends(&self) -> (Option<Vote>, Option<LogId>) {
        let content = self.content.lock();
        (content.vote, content.last())
    }

    /// All entries.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.content.lock().range(0, u64::MAX).cloned().collect()
    }

    async fn save(&self, record: Record) -> io::Result<()> {
        self.durable(|done| Job::Record(record, Some(done))).await
    }

    async fn durable(&self, job: impl FnOnce(writer::Done) -> Job) -> io::Result<()> {
        let (sender, receiver) = oneshot::channel();
        let done = Box::new(move |result| {
            // A caller that is gone has no use for it.
            let _ = sender.send(result);
        });
        self.queue.add([job(done)]);
        receiver.await.unwrap_or_else(|_| Err(io::Error::other("the writer of the quorum's log has ended")))
    }

    fn apply(&self, record: Record) -> io::Result<()> {
        self.content.lock().apply(record).map_err(out_of_order)
    }
}

fn out_of_order(error: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

/// Durable when it returns: files in a directory that a power cut takes away are gone with it.
fn make_directory(env: &Env, directory: &Path) -> io::Result<()> {
    env.fs.create_dir(directory)?;
    directory.parent().map_or(Ok(()), |parent| env.fs.sync_dir(parent))
}

fn read_file(env: &Env, path: &Path) -> io::Result<Option<Bytes>> {
    match read_whole(&*env.fs, path, FILE_BYTES_MAX) {
        Ok(bytes) => Ok(Some(bytes.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the log, cuts a torn tail off, and returns the worker that goes on with it. The cut is durable before anything is appended.
fn open_log(env: &Env, directory: &Path) -> Result<Writer, StoreError> {
    let path = directory.join(LOG_FILE);
    let failed = |error| StoreError::Io(path.display().to_string(), error);
    let damaged = |reason: String| StoreError::Damaged { path: path.display().to_string(), reason };
    let bytes = read_file(env, &path).map_err(failed)?.unwrap_or_default();
    let (content, frames) = content_of(&bytes).map_err(damaged)?;
    let frames = frames.map_or_else(|| begin_log(env, &path), Ok).map_err(failed)?;
    let file = env.fs.open(&path, OpenMode::ReadWrite).map_err(failed)?;
    // After a failed sync the page cache has what the disk has not, and takes it for written: no later sync writes it.
    let known = written_again_from(&frames);
    let unknown = bytes.get(known..frames.end).unwrap_or_default();
    file.write_all_at(unknown, known as u64).map_err(failed)?;
    file.set_len(frames.end as u64).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    env.fs.sync_dir(directory).map_err(failed)?;
    Ok(Writer {
        env: env.clone(),
        directory: directory.to_owned(),
        queue: Arc::default(),
        file,
        content,
        end: frames.end as u64,
        crc: frames.crc,
        batch: Batch::default(),
        snapshot: None,
        is_marked: false,
        #[cfg(test)]
        put_off: None,
        failed: None,
    })
}

/// Makes a log without frames, in one step: a power cut must not leave a file of which nobody knows whether it has lost
/// something.
fn begin_log(env: &Env, path: &Path) -> io::Result<Frames> {
    let (start, crc) = header();
    atomic_replace(&*env.fs, path, &start)?;
    Ok(Frames { payloads: Vec::new(), end: HEADER_BYTES, synced: HEADER_BYTES, crc })
}

/// The position up to which the file is known to have been synced.
fn written_again_from(frames: &Frames) -> usize {
    #[cfg(test)]
    if crate::planted::is_planted(crate::planted::Planted::CachedTailBelieved) {
        return frames.end;
    }
    frames.synced
}

/// The content of a log file, and its frames; `None` if not even its header is whole.
fn content_of(file: &Bytes) -> Result<(LogContent, Option<Frames>), String> {
    let frames = read_frames(file).map_err(|error| error.to_string())?;
    let mut content = LogContent::default();
    // A frame without a payload is a mark, see `frame`.
    for payload in frames.iter().flat_map(|frames| &frames.payloads).filter(|payload| !payload.is_empty()) {
        let record = Record::decode(payload).map_err(|error| error.to_string())?;
        #[cfg(test)]
        if keeps_older(&content, &record) {
            continue;
        }
        content.apply(record).map_err(|error| error.to_string())?;
    }
    Ok((content, frames))
}

/// Whether a planted bug keeps what this record would replace.
#[cfg(test)]
fn keeps_older(content: &LogContent, record: &Record) -> bool {
    let is_replacing = match record {
        Record::TruncatedFrom(_) => true,
        Record::Entry(entry) => entry.log_id.index < content.next_index(),
        _ => false,
    };
    is_replacing && crate::planted::is_planted(crate::planted::Planted::OldEntriesKept)
}

/// Reads a log file; what is accepted is the same after it was written again.
#[cfg(feature = "fuzzing")]
pub(crate) fn check_log(file: &Bytes) {
    if let Ok((content, _)) = content_of(file) {
        let written = Bytes::from(writer::encode(&content).0);
        assert_eq!(content_of(&written).expect("it was just written").0, content);
    }
}

/// A log file whose frames have these payloads, whatever they are.
#[cfg(feature = "fuzzing")]
pub fn sealed_log(payloads: &[&[u8]]) -> Bytes {
    let (start, mut crc) = header();
    let mut file = start.to_vec();
    for payload in payloads {
        crc = frame::write_frame(&mut file, crc, 0, payload);
    }
    file.into()
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<Entry>>
    where
        RB: RangeBounds<u64> + Clone + fmt::Debug + OptionalSend,
    {
        let from = match range.start_bound() {
            Bound::Included(index) => *index,
            Bound::Excluded(index) => index + 1,
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(index) => index + 1,
            Bound::Excluded(index) => *index,
            Bound::Unbounded => u64::MAX,
        };
        Ok(self.content.lock().range(from, to).cloned().collect())
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.content.lock().vote)
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let content = self.content.lock();
        Ok(LogState { last_purged_log_id: content.purged, last_log_id: content.last() })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    /// Durable when it returns.
    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        #[cfg(test)]
        if crate::planted::is_planted(crate::planted::Planted::VoteFromMemory) {
            self.queue.add([Job::Record(Record::Vote(*vote), None)]);
            return self.apply(Record::Vote(*vote));
        }
        self.save(Record::Vote(*vote)).await?;
        self.apply(Record::Vote(*vote))
    }

    /// Durable with what comes next: a start that knows of fewer committed entries waits for the leader to say so.
    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        let Some(committed) = committed else { return Ok(()) };
        self.apply(Record::Committed(committed))?;
        self.queue.add([Job::Record(Record::Committed(committed), None)]);
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.content.lock().committed)
    }

    /// Readable when it returns; the callback says when the entries are durable.
    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut jobs = Vec::new();
        for entry in entries {
            self.apply(Record::Entry(entry.clone()))?;
            jobs.push(Job::Record(Record::Entry(entry), None));
        }
        match jobs.last_mut() {
            Some(Job::Record(_, done)) => *done = Some(Box::new(|result| callback.io_completed(result))),
            // No entries: what was appended before may not be durable yet.
            _ => jobs.push(Job::Barrier(Box::new(|result| callback.io_completed(result)))),
        }
        self.queue.add(jobs);
        Ok(())
    }

    /// Durable when it returns.
    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let record = Record::TruncatedFrom(last.map_or(0, |id| id.index + 1));
        self.apply(record.clone())?;
        #[cfg(test)]
        if crate::planted::is_planted(crate::planted::Planted::TruncationNotWritten) {
            return Ok(());
        }
        self.save(record).await
    }

    /// Durable with what comes next: entries that come back are in the snapshot, too.
    async fn purge(&mut self, id: LogId) -> io::Result<()> {
        self.apply(Record::Purged(id))?;
        #[cfg(test)]
        let id = if crate::planted::is_planted(crate::planted::Planted::PurgedBeyond) {
            self.content.lock().last().unwrap_or(id)
        } else {
            id
        };
        self.queue.add([Job::Record(Record::Purged(id), None)]);
        Ok(())
    }
}
