//! `riverrun log repair`: cuts off the end of a partition's log at its first damage, on request.
//!
//! The server never does that by itself: behind damage there may be records that can still be saved. So planning
//! changes nothing, and cutting takes the number of intact records that go with the damage from its caller. The cut
//! part is copied and synced first. Refuses a log dir that a server holds, one that was not stopped in order or has no
//! checkpoint that says so (the journal may hold later records), and a log whose beginning is missing, of which nothing
//! could be kept.
//!
//! Order of the steps: backup, cut, later segments, index, directory, checkpoint; each is durable before the next. A
//! repair that is cut short leaves the partition offline, and the next one goes on from there.
//!
//! Bytes that the disk does not give back are damage. In the copies there are zeros in their place, and
//! [`Backup::unread_bytes`] counts them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_env::{Env, File, LockGuard, OpenMode, atomic_replace, read_whole};
use riverrun_records::BatchHeader;
use riverrun_types::{ErrorKind, Offset, PartitionId};
use thiserror::Error;

use crate::bad_sector::read_over;
use crate::checkpoint::{CHECKPOINT_FILE, DirCheckpoint, PartitionCheckpoint};
use crate::compaction::swap::Misfit;
use crate::epochs::EpochCache;
use crate::error::LogError;
use crate::file_names::INDEX_SUFFIX;
use crate::index::{IndexCursor, IndexHeader};
use crate::index_content::IndexContent;
use crate::listing::Listing;
use crate::log_dir::LOCK_FILE;
use crate::partition_log::record_producer;
use crate::producer_state::{EncodedProducers, ProducerStates};
use crate::scan::ScanStop;
use crate::segment::{FilePool, Home, Segment};
use crate::segment_check::boundaries::Boundaries;
use crate::segment_check::{Facts, Flaw, Half, SegmentCheck};
use crate::state_file::{STATE_BYTES_MAX, decode_state, encode_state, state_file};
use crate::verify::{LogDirFiles, Weight, weight};

/// `index.interval.bytes` of an index that is made anew: Kafka's default.
const INDEX_INTERVAL_BYTES: u32 = 4096;
/// Bytes that are copied at once.
const COPY_BYTES: usize = 1024 * 1024;
/// The checkpoint in bytes at most.
const CHECKPOINT_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// The reason why nothing was cut.
#[derive(Clone, Debug, Error)]
pub enum RepairError {
    /// The storage failed, or a server holds the log dir.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Intact records follow the damage, and the caller did not say that they may go.
    #[error("{records} intact records follow the damage and would go with it")]
    IntactFollow {
        /// Their number.
        records: u64,
    },
    /// The caller named another number of records than there is.
    #[error("{records} intact records follow the damage, not {said}")]
    OtherCount {
        /// The number of intact records.
        records: u64,
        /// The caller's number.
        said: u64,
    },
    /// The front of the log is missing, so cutting its end saves nothing.
    #[error("{}: the beginning of the log is missing: {what}", dir.display())]
    NoBeginning {
        /// The partition's directory.
        dir: PathBuf,
        /// The begin of its log.
        what: String,
    },
    /// The last server of the log dir was killed, so that its journal may hold later records; or this is unknown,
    /// because the checkpoint, which says so, cannot be read.
    #[error("{}: the server was not stopped in order, or its checkpoint does not say so", path.display())]
    NotStopped {
        /// The log dir.
        path: PathBuf,
    },
    /// An interrupted compaction, which only the next start can finish.
    #[error("{}: a compaction was interrupted", dir.display())]
    Compacting {
        /// The partition's directory.
        dir: PathBuf,
    },
    /// The backup would overwrite something.
    #[error("{} exists already", path.display())]
    BackupExists {
        /// The file.
        path: PathBuf,
    },
}

impl RepairError {
    /// The caller's right reaction.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Log(error) => error.kind(),
            Self::NoBeginning { .. } => ErrorKind::GiveUp,
            _ => ErrorKind::FixRequest,
        }
    }
}

/// A planned cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The `.log` file with the first damage.
    pub path: PathBuf,
    /// The position of the cut in it.
    pub position: u64,
    /// The fault there.
    pub what: String,
    /// The log's end after the cut.
    pub log_end: Offset,
    /// Bytes that are cut, in this file and in the later ones.
    pub bytes: u64,
    /// Intact records among them.
    pub intact_records: u64,
    /// The `.log` files of the later segments, which are removed.
    pub later: Vec<PathBuf>,
    base: Offset,
}

/// The options of a cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CutOptions {
    /// Directory for copies of the cut part; none: beside the segments, which the server leaves alone.
    pub backup: Option<PathBuf>,
    /// Number of intact records that may be cut with the damage.
    pub discard_intact: Option<u64>,
}

/// A copy of a cut part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// Its path.
    pub path: PathBuf,
    /// Bytes that the disk did not give back: there are zeros in their place.
    pub unread_bytes: u64,
}

/// A partition that nothing else uses, to be checked and repaired.
#[derive(Debug)]
pub struct Repair {
    env: Env,
    id: PartitionId,
    dir: PathBuf,
    log_dir: PathBuf,
    files: LogDirFiles,
    lock: Option<Box<dyn LockGuard>>,
}

impl Repair {
    /// Locks the log dir, if it was ever used, and reads its state of the partition whose files lie in `dir`.
    pub fn open(env: &Env, dir: &Path, id: PartitionId) -> Result<Self, RepairError> {
        let log_dir = dir.parent().and_then(Path::parent).unwrap_or(dir).to_path_buf();
        let lock = lock(env, &log_dir)?;
        let files = LogDirFiles::read(env, &log_dir)?;
        Ok(Self { env: env.clone(), id, dir: dir.to_path_buf(), log_dir, files, lock })
    }

    fn known(&self) -> Option<&PartitionCheckpoint> {
        self.files.partition(self.id)
    }

    /// Looks for the first damage that the next start would not put right by itself; `None` if there is none. Changes
    /// nothing.
    pub fn plan(&self) -> Result<Option<Cut>, RepairError> {
        let listing = Listing::read(&self.env, &self.dir)?;
        if listing.is_swapping.clone().map_err(Misfit::into_error)? {
            return Err(RepairError::Compacting { dir: self.dir.clone() });
        }
        self.check_beginning(&listing)?;
        let segments: Vec<_> = listing.segments(&self.dir, self.known()).collect();
        for (index, (facts, path)) in segments.iter().enumerate() {
            if let Some(damage) = self.first_damage(*facts, path)? {
                return self.cut_at(damage, &segments[index..]).map(Some);
            }
        }
        Ok(None)
    }

    fn check_beginning(&self, listing: &Listing) -> Result<(), RepairError> {
        let Some(known) = self.known().filter(|known| known.log_start < known.durable_end()) else {
            return Ok(());
        };
        let what = match listing.logs.first() {
            None => format!("no segments, where offsets up to {} were synced", known.durable_end()),
            Some((base, _)) if *base > known.log_start => {
                format!("the first segment begins at {base}, the log at {}", known.log_start)
            }
            Some(_) => return Ok(()),
        };
        Err(RepairError::NoBeginning { dir: self.dir.clone(), what })
    }

    fn index_of(&self, base_offset: Offset, path: &Path) -> Result<IndexContent, LogError> {
        let header = IndexHeader { partition: self.id, base_offset };
        IndexContent::read(&self.env, &path.with_extension(&INDEX_SUFFIX[1..]), header)
    }

    fn first_damage(&self, facts: Facts, path: &Path) -> Result<Option<Damage>, LogError> {
        let index = self.index_of(facts.base, path)?;
        let file = open(&self.env, path, OpenMode::Read)?;
        let mut check = SegmentCheck::new(facts, index);
        check.run(&*file, u64::MAX).map_err(|error| LogError::io(path, error))?;
        let is_damage = |flaw: &&Flaw| flaw.half == Half::Log && weight(flaw, self.known()) == Weight::Damage;
        if let Some(flaw) = check.flaws.iter().filter(is_damage).min_by_key(|flaw| flaw.position) {
            let (position, log_end, what) = (flaw.position, flaw.from, flaw.what.clone());
            return Ok(Some(Damage { position, log_end, what }));
        }
        let synced = self.known().map_or(Offset::ZERO, PartitionCheckpoint::durable_end);
        let log_start = self.known().map_or(Offset::ZERO, |known| known.log_start);
        let is_short = facts.next_base.is_none() && check.end() < synced && log_start < synced;
        let what = format!("ends at offset {}, where offsets up to {synced} were synced", check.end());
        Ok(is_short.then(|| Damage { position: check.position(), log_end: check.end(), what }))
    }

    /// The cut at the damage in the first of `segments`.
    fn cut_at(&self, damage: Damage, segments: &[(Facts, PathBuf)]) -> Result<Cut, RepairError> {
        let Damage { position, log_end, what } = damage;
        let ((facts, path), later) = segments.split_first().expect("the segment with the damage is one");
        let mut cut = Cut {
            path: path.clone(),
            position,
            what,
            log_end,
            bytes: facts.size_bytes.saturating_sub(position),
            intact_records: self.count_intact(*facts, path, position, log_end)?,
            later: Vec::new(),
            base: facts.base,
        };
        for (facts, path) in later {
            cut.bytes += facts.size_bytes;
            cut.intact_records += self.count_intact(*facts, path, 0, facts.base)?;
            cut.later.push(path.clone());
        }
        Ok(cut)
    }

    /// Records of the intact batches from `position` on, wherever they begin.
    fn count_intact(
        &self,
        facts: Facts,
        path: &Path,
        position: u64,
        expected: Offset,
    ) -> Result<u64, LogError> {
        let index = self.index_of(facts.base, path)?;
        let file = open(&self.env, path, OpenMode::Read)?;
        let boundaries = Boundaries::new(&*file, facts.base, facts.size_bytes, &index);
        boundaries.count_records(position, expected).map_err(|error| LogError::io(path, error))
    }

    /// Cuts as planned. Durable when it returns; returns the copies of the cut part.
    pub fn cut(&self, cut: &Cut, options: &CutOptions) -> Result<Vec<Backup>, RepairError> {
        match options.discard_intact {
            None if cut.intact_records > 0 => {
                return Err(RepairError::IntactFollow { records: cut.intact_records });
            }
            Some(said) if said != cut.intact_records => {
                return Err(RepairError::OtherCount { records: cut.intact_records, said });
            }
            _ => {}
        }
        let checkpoint = self.read_checkpoint()?;
        // A directory that no server has ever locked is no log dir: no journal has records of it.
        let was_stopped = checkpoint.as_ref().map_or(self.lock.is_none(), |checkpoint| checkpoint.is_clean);
        if !was_stopped {
            return Err(RepairError::NotStopped { path: self.log_dir.clone() });
        }
        let backups = self.back_up(cut, options.backup.as_deref().unwrap_or(&self.dir))?;
        self.shorten(cut)?;
        self.rebuild_index(cut)?;
        self.env.fs.sync_dir(&self.dir).map_err(|error| LogError::io(&self.dir, error))?;
        if let Some(checkpoint) = checkpoint {
            self.forget_synced(checkpoint, cut)?;
        }
        Ok(backups)
    }

    /// Copies the cut part into `backup`, synced.
    fn back_up(&self, cut: &Cut, backup: &Path) -> Result<Vec<Backup>, RepairError> {
        let io = |error| LogError::io(backup, error);
        self.env.fs.create_dir_all(backup).map_err(io)?;
        let indexes = cut.later.iter().map(|path| path.with_extension(&INDEX_SUFFIX[1..]));
        let whole = cut.later.iter().cloned().chain(indexes).map(|path| (path, 0));
        let mut backups = Vec::new();
        for (path, from) in std::iter::once((cut.path.clone(), cut.position)).chain(whole) {
            backups.extend(self.copy(&path, from, backup)?);
        }
        self.env.fs.sync_dir(backup).map_err(io)?;
        Ok(backups)
    }

    /// Copies a file from `from` on; none if there is nothing.
    fn copy(&self, path: &Path, from: u64, backup: &Path) -> Result<Option<Backup>, RepairError> {
        let source = match self.env.fs.open(path, OpenMode::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            source => source.map_err(|error| LogError::io(path, error))?,
        };
        if source.len().map_err(|error| LogError::io(path, error))? <= from {
            return Ok(None);
        }
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".cut-{from}"));
        let copy = backup.join(name);
        let target = self.env.fs.open(&copy, OpenMode::CreateNew).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => RepairError::BackupExists { path: copy.clone() },
            _ => LogError::io(&copy, error).into(),
        })?;
        let copied = copy_bytes(&*source, from, &*target);
        let unread_bytes = copied.map_err(|error| LogError::io(&copy, error))?;
        Ok(Some(Backup { path: copy, unread_bytes }))
    }

    /// Cuts the file and removes the later ones, the last one first: a crash leaves a log without gaps. State files
    /// beyond the cut have nothing that the log has not.
    fn shorten(&self, cut: &Cut) -> Result<(), LogError> {
        let states = Listing::read(&self.env, &self.dir)?.states;
        let states = states.into_iter().filter(|state| *state > cut.log_end);
        let states = states.map(|state| self.dir.join(state_file(state)));
        let segments = cut.later.iter().rev();
        let segments = segments.flat_map(|path| [path.with_extension(&INDEX_SUFFIX[1..]), path.clone()]);
        for path in states.chain(segments) {
            match self.env.fs.remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(LogError::io(&path, error));
                }
                _ => {}
            }
        }
        let file = open(&self.env, &cut.path, OpenMode::ReadWrite)?;
        let shortened = file.cut_as_old(cut.position).and_then(|()| file.sync_all());
        shortened.map_err(|error| LogError::io(&cut.path, error))
    }

    /// Makes the index anew for the shortened file. That is intact, but for batches below the log start.
    fn rebuild_index(&self, cut: &Cut) -> Result<(), LogError> {
        let known = self.index_of(cut.base, &cut.path)?;
        let (fs, pool) = (self.env.fs.clone(), Arc::new(FilePool::new(1)));
        let home = Arc::new(Home {
            fs,
            pool,
            dir: self.dir.clone(),
            partition: self.id,
            has_failed: Arc::default(),
        });
        let segment = Segment::open(home, cut.base);
        // Every entry is made anew: those of a damaged segment may describe its former batches.
        segment.load_trusted(|_| false)?;
        segment.cut_index_file()?;
        let file = segment.log_file()?;
        let mut cursor = IndexCursor::at(cut.base, crate::index::IndexEntry::START, INDEX_INTERVAL_BYTES);
        let boundaries = Boundaries::new(&*file, cut.base, cut.position, &known);
        let mut scan = boundaries.scan(0, cut.base);
        loop {
            let due = match scan.next_batch() {
                Ok(None) => break,
                Ok(Some(batch)) => {
                    let due = cursor.entry_due(batch.header.base_offset());
                    cursor.pass(&batch.header, &batch.stamp);
                    due
                }
                Err(stop) => {
                    scan = boundaries.pass(&scan, stop).map_err(|stop| segment.scan_failed(stop))?;
                    cursor.position = scan.position();
                    // Later batches are to be proved without the damage.
                    cursor.end_entry(scan.expected())
                }
            };
            if let Some(entry) = due {
                segment.push_entry(entry);
            }
        }
        if let Some(entry) = cursor.end_entry(cut.log_end) {
            segment.push_entry(entry);
        }
        segment.store_tail()?;
        let path = segment.index_path();
        let index = open(&self.env, &path, OpenMode::ReadWrite)?;
        index.sync_all().map_err(|error| LogError::io(&path, error))
    }

    /// The checkpoint, if there is one that can be believed.
    fn read_checkpoint(&self) -> Result<Option<DirCheckpoint>, LogError> {
        if !self.files.has_checkpoint() {
            return Ok(None);
        }
        let path = self.log_dir.join(CHECKPOINT_FILE);
        let bytes = read_whole(&*self.env.fs, &path, CHECKPOINT_BYTES_MAX)
            .map_err(|error| LogError::io(&path, error))?;
        let decoded = DirCheckpoint::decode(&bytes);
        decoded.map(Some).map_err(|source| LogError::Format { path, source })
    }

    /// Writes the state file of a log that ends at `end` now, with its producers. Durable when it returns.
    fn write_state(&self, end: Offset, epochs: &EpochCache) -> Result<(), LogError> {
        let now = self.env.clock.wall();
        let listing = Listing::read(&self.env, &self.dir)?;
        let (from, mut producers) = self.newest_producers(&listing, end);
        for (facts, path) in listing.segments(&self.dir, self.known()) {
            if facts.next_base.is_some_and(|next| next <= from) {
                continue;
            }
            let index = self.index_of(facts.base, &path)?;
            let file = open(&self.env, &path, OpenMode::Read)?;
            let boundaries = Boundaries::new(&*file, facts.base, facts.size_bytes, &index);
            let note = |header: &BatchHeader| {
                if header.base_offset() >= from {
                    record_producer(&mut producers, header, now);
                }
            };
            show_headers(&boundaries, facts.base, note).map_err(|error| LogError::io(&path, error))?;
        }
        let path = self.dir.join(state_file(end));
        atomic_replace(&*self.env.fs, &path, &encode_state(self.id, end, epochs, &producers))
            .map_err(|error| LogError::io(&path, error.into()))
    }

    /// The producers of the newest state file at or below `end` that decodes, and its offset.
    fn newest_producers(&self, listing: &Listing, end: Offset) -> (Offset, ProducerStates) {
        let read = |offset: Offset| {
            let bytes =
                read_whole(&*self.env.fs, &self.dir.join(state_file(offset)), STATE_BYTES_MAX).ok()?;
            Some((offset, decode_state(&bytes, self.id, offset).ok()?.producers))
        };
        let states = listing.states.iter().rev().filter(|state| **state <= end);
        states.copied().find_map(read).unwrap_or_default()
    }

    /// Makes the checkpoint say no more of the partition than is left. Its generation stays, so that the log starts
    /// that moved since count as before.
    fn forget_synced(&self, mut checkpoint: DirCheckpoint, cut: &Cut) -> Result<(), LogError> {
        let Some(known) = checkpoint.partitions.get_mut(&self.id) else { return Ok(()) };
        let end = cut.log_end;
        if known.is_lost {
            // Nothing else is said of it.
            known.cut_end = known.cut_end.map(|cut_end| cut_end.min(end));
            return self.replace_checkpoint(&checkpoint);
        }
        let is_cut = known.recovery_point > end;
        known.recovery_point = known.recovery_point.min(end);
        known.log_end = end.max(known.log_start);
        known.first_dirty = known.first_dirty.map(|first| first.min(end));
        known.epochs.truncate_end(end);
        // Cuts that were written down since count, too.
        if let Some(since) = self.known() {
            known.cuts = since.cuts;
            known.cut_end = since.cut_end.map(|cut_end| cut_end.min(end));
        }
        known.size_bytes = Listing::read(&self.env, &self.dir)?.logs.iter().map(|(_, size)| size).sum();
        if is_cut && (known.producers_at.is_some() || !known.producers.is_empty()) {
            self.write_state(end, &known.epochs)?;
            known.producers_at = Some(end);
            known.producers = EncodedProducers::default();
        }
        known.producers_end = known.producers_end.min(known.recovery_point);
        self.replace_checkpoint(&checkpoint)
    }

    fn replace_checkpoint(&self, checkpoint: &DirCheckpoint) -> Result<(), LogError> {
        let path = self.log_dir.join(CHECKPOINT_FILE);
        atomic_replace(&*self.env.fs, &path, &checkpoint.encode())
            .map_err(|error| LogError::io(&path, error.into()))
    }
}

/// Passes the headers of a shortened segment's batches to `note`: it is intact, but for batches below the log start.
/// Behind damage it goes on at a known boundary only: a client could make up a producer otherwise.
fn show_headers(
    boundaries: &Boundaries<'_, '_>,
    base: Offset,
    mut note: impl FnMut(&BatchHeader),
) -> io::Result<()> {
    let mut scan = boundaries.scan(0, base);
    loop {
        match scan.next_batch() {
            Ok(None) => return Ok(()),
            Ok(Some(batch)) => note(&batch.header),
            Err(stop) => match boundaries.pass(&scan, stop) {
                Ok(next) => scan = next,
                Err(ScanStop::Damage { .. }) => return Ok(()),
                Err(ScanStop::Io(error)) => return Err(error),
            },
        }
    }
}

/// The first damage of a segment.
struct Damage {
    position: u64,
    log_end: Offset,
    what: String,
}

/// Takes the lock of a log dir that a server has used. An unused one has none.
fn lock(env: &Env, log_dir: &Path) -> Result<Option<Box<dyn LockGuard>>, LogError> {
    let path = log_dir.join(LOCK_FILE);
    if !env.fs.exists(&path).map_err(|error| LogError::io(&path, error))? {
        return Ok(None);
    }
    match env.fs.lock(&path) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(LogError::Locked { path: log_dir.to_path_buf() })
        }
        locked => locked.map(Some).map_err(|error| LogError::io(&path, error)),
    }
}

fn open(env: &Env, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>, LogError> {
    env.fs.open(path, mode).map_err(|error| LogError::io(path, error))
}

/// Copies all bytes from `from` on to the beginning of `target`, and syncs it. Returns the number of unreadable bytes.
fn copy_bytes(source: &dyn File, from: u64, target: &dyn File) -> io::Result<u64> {
    let mut buffer = vec![0; COPY_BYTES];
    let (len, mut position, mut unread_bytes) = (source.len()?, from, 0);
    while position < len {
        let piece = usize::try_from(len - position).unwrap_or(usize::MAX).min(COPY_BYTES);
        let unread = read_over(source, &mut buffer[..piece], position)?;
        unread_bytes += unread.iter().map(|range| range.end - range.start).sum::<u64>();
        target.write_all_at(&buffer[..piece], position - from)?;
        position += piece as u64;
    }
    target.sync_all()?;
    Ok(unread_bytes)
}
