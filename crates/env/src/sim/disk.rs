//! The simulated disk: a tree of directories and files in two images, and the faults that a test has ordered.
//!
//! Directories are as volatile as files: an entry that was made, renamed or removed is durable once its directory was
//! synced. Until then a power cut keeps any subset of the changes that agrees with their order: a change that builds
//! on another survives only with it. That is harsher than file systems with an ordered metadata log.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use riverrun_types::TimestampMs;
use rustix::io::Errno;

use super::clock::SimClock;
use super::crash_states::Choose;
use super::image::FileImage;
use super::random::SplitMix;
use crate::{Clock as _, Identity, Stat};

/// Identity of a file or directory, never given twice.
pub(super) type Inode = u64;

const ROOT: Inode = 0;

/// A name in a directory.
type Entry = (Inode, OsString);

#[derive(Clone, Debug)]
enum Node {
    Directory(Directory),
    /// Shared by the disks that come from one power cut, until one of them changes it.
    File(Arc<FileImage>),
}

#[derive(Clone, Debug, Default)]
struct Directory {
    live: BTreeMap<OsString, Inode>,
    durable: BTreeMap<OsString, Inode>,
}

/// A bug that the code under test behaves as if it had, so that a check can prove that it finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// It leaves out each sync of a directory.
    SkippedDirectorySync,
    /// It takes a write that was carried out in part for a whole one.
    IgnoredShortWrite,
    /// It repeats a failed sync: the second one writes nothing and succeeds.
    RepeatedSync,
    /// It goes on when the system refuses to begin to write to the disk: the next sync succeeds.
    IgnoredWriteBackError,
}

/// A change of a directory that no sync has covered yet.
#[derive(Clone, Debug)]
enum Change {
    Link(Entry, Inode),
    Unlink(Entry),
    Rename(Entry, Entry),
}

impl Change {
    fn entries(&self) -> impl Iterator<Item = &Entry> {
        let (first, second) = match self {
            Self::Link(entry, _) | Self::Unlink(entry) => (entry, None),
            Self::Rename(from, to) => (from, Some(to)),
        };
        std::iter::once(first).chain(second)
    }
}

/// The whole disk.
///
/// Invariants: `changes` leads from the durable directories to the live ones. An operation that fails because the
/// machine has stopped has changed nothing, except for a write, which may have left a prefix.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    nodes: BTreeMap<Inode, Node>,
    next_inode: Inode,
    changes: Vec<Change>,
    random: SplitMix,
    /// The clock of file times.
    pub(super) clock: Arc<SimClock>,
    /// Lock files that have a holder.
    pub(super) locked: BTreeSet<Inode>,
    /// The root of a file system of its own.
    pub(super) mounted: Option<Inode>,
    /// Counts the lives of the process: handles of an earlier life are dead.
    pub(super) life: u64,
    /// Writes, syncs and directory changes that were carried out.
    pub(super) operations: u64,
    /// Syncs of any sort that were carried out.
    pub(super) syncs: u64,
    /// Bytes that callers asked the system to begin to write to the disk. It does not.
    pub(super) write_back_bytes: u64,
    /// Number of these calls.
    pub(super) write_backs: u64,
    /// The count of these at which one fails.
    pub(super) fail_write_back_at: Option<u64>,
    /// The operation count at which the machine stops.
    pub(super) stop_at: Option<u64>,
    /// The sync count at which one sync fails.
    pub(super) fail_sync_at: Option<u64>,
    /// Writes to files that were carried out.
    pub(super) writes: u64,
    /// The count of writes at which one write fails.
    pub(super) fail_write_at: Option<u64>,
    /// Number of the next cuts of files that fail.
    pub(super) cuts_to_fail: u64,
    /// Calls by path so far.
    pub(super) calls: u64,
    /// The count of these at which one fails, and its error.
    pub(super) fail_call_at: Option<(u64, io::ErrorKind)>,
    /// The bug of the code under test.
    pub(super) planted: Option<PlantedBug>,
    /// Nothing can be opened.
    pub(super) are_descriptors_exhausted: bool,
    /// Number of renamings after which all others are refused.
    pub(super) renames_left: Option<u64>,
    /// A power cut destroys blocks that are being written.
    pub(super) tears_blocks: bool,
    /// Files cannot be opened past the page cache.
    pub(super) is_direct_refused: bool,
    /// Nothing below can be opened or read.
    unreadable: Option<PathBuf>,
    /// The files that were there when it became so.
    unreadable_files: BTreeSet<Inode>,
    /// The system's error then.
    refusal: Errno,
    /// Bytes of files that cannot be read.
    bad_sectors: BTreeMap<Inode, Range<u64>>,
    /// Nothing below can be written, listed or synced either.
    dead: Option<PathBuf>,
    /// Bytes by which files may still grow.
    pub(super) space: Option<u64>,
    /// No file below may grow.
    pub(super) full: Option<PathBuf>,
    /// Files with a lost write that no sync has reported yet, where that of a volume does not.
    pub(super) untold: Option<BTreeSet<Inode>>,
}

fn stopped() -> io::Error {
    io::Error::other("the simulated machine has stopped")
}

impl Disk {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            nodes: BTreeMap::from([(ROOT, Node::Directory(Directory::default()))]),
            next_inode: ROOT + 1,
            changes: Vec::new(),
            random: SplitMix::new(seed),
            clock: Arc::default(),
            locked: BTreeSet::new(),
            mounted: None,
            life: 0,
            operations: 0,
            syncs: 0,
            write_back_bytes: 0,
            write_backs: 0,
            fail_write_back_at: None,
            stop_at: None,
            fail_sync_at: None,
            writes: 0,
            fail_write_at: None,
            cuts_to_fail: 0,
            calls: 0,
            fail_call_at: None,
            planted: None,
            are_descriptors_exhausted: false,
            renames_left: None,
            tears_blocks: false,
            is_direct_refused: false,
            unreadable: None,
            unreadable_files: BTreeSet::new(),
            refusal: Errno::IO,
            bad_sectors: BTreeMap::new(),
            dead: None,
            space: None,
            full: None,
            untold: None,
        }
    }

    /// Fails if the machine has stopped, or if the caller's handle is from an earlier life of the process.
    pub(super) fn check_alive(&self, life: u64) -> io::Result<()> {
        let dead = self.stop_at.is_some_and(|stop| self.operations >= stop) || life != self.life;
        if dead { Err(stopped()) } else { Ok(()) }
    }

    /// Passes one call by path, unless it is the one that has to fail.
    pub(super) fn pass_call(&mut self) -> io::Result<()> {
        self.calls += 1;
        match self.fail_call_at {
            Some((at, kind)) if self.calls > at => {
                self.fail_call_at = None;
                Err(kind.into())
            }
            _ => Ok(()),
        }
    }

    /// Passes one operation that changes something, or stops the machine.
    fn pass(&mut self) -> io::Result<()> {
        self.check_alive(self.life)?;
        self.operations += 1;
        Ok(())
    }

    /// Passes one sync; returns whether it is the one that has to fail.
    fn pass_sync(&mut self) -> io::Result<bool> {
        self.pass()?;
        self.syncs += 1;
        if self.fail_sync_at.is_some_and(|at| self.syncs > at) {
            self.fail_sync_at = None;
            return Ok(true);
        }
        Ok(false)
    }

    /// The result that the code under test sees for a write that was carried out in part.
    fn report_short_write(&self, error: io::Error) -> io::Result<()> {
        if self.planted == Some(PlantedBug::IgnoredShortWrite) { Ok(()) } else { Err(error) }
    }

    /// The result that the code under test sees for a failed sync.
    fn report_failed_sync(&self) -> io::Result<()> {
        let error = io::Error::other("simulated input/output error on a sync");
        if self.planted == Some(PlantedBug::RepeatedSync) { Ok(()) } else { Err(error) }
    }

    fn directory(&self, inode: Inode) -> io::Result<&Directory> {
        match self.nodes.get(&inode) {
            Some(Node::Directory(directory)) => Ok(directory),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn directory_mut(&mut self, inode: Inode) -> io::Result<&mut Directory> {
        match self.nodes.get_mut(&inode) {
            Some(Node::Directory(directory)) => Ok(directory),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    pub(super) fn file_mut(&mut self, inode: Inode) -> io::Result<&mut FileImage> {
        match self.nodes.get_mut(&inode) {
            Some(Node::File(image)) => Ok(Arc::make_mut(image)),
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    /// Finds the inode at `path`.
    pub(super) fn resolve(&self, path: &Path) -> io::Result<Inode> {
        let mut inode = ROOT;
        for name in names(path)? {
            inode = *self.directory(inode)?.live.get(name).ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(inode)
    }

    /// Finds the directory of `path`, which must exist, and the name in it, which need not.
    fn resolve_entry(&self, path: &Path) -> io::Result<Entry> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = self.resolve(path.parent().unwrap_or(Path::new("")))?;
        self.directory(parent)?;
        Ok((parent, name.to_os_string()))
    }

    fn link(&mut self, entry: Entry, node: Node) -> io::Result<Inode> {
        self.pass()?;
        let inode = self.next_inode;
        self.next_inode += 1;
        self.nodes.insert(inode, node);
        self.directory_mut(entry.0)?.live.insert(entry.1.clone(), inode);
        self.changes.push(Change::Link(entry, inode));
        Ok(inode)
    }

    /// Kills the device of everything below `path`, and heals everything else.
    pub(super) fn kill_device(&mut self, path: Option<&Path>) -> io::Result<()> {
        self.make_unreadable(path)?;
        self.dead.clone_from(&self.unreadable);
        Ok(())
    }

    /// Takes from the process its rights to `path` and everything below, and to nothing else.
    pub(super) fn forbid(&mut self, path: Option<&Path>) -> io::Result<()> {
        self.kill_device(path)?;
        self.refusal = Errno::ACCESS;
        Ok(())
    }

    fn check_device(&self, inode: Inode) -> io::Result<()> {
        if self.dead.is_some() { self.check_readable(inode) } else { Ok(()) }
    }

    pub(super) fn check_device_of(&self, path: &Path) -> io::Result<()> {
        if self.dead.is_some() { self.check_reachable(path) } else { Ok(()) }
    }

    /// Makes everything below `path` unreadable, and everything else readable.
    pub(super) fn make_unreadable(&mut self, path: Option<&Path>) -> io::Result<()> {
        self.unreadable = path.map(Path::to_path_buf);
        self.unreadable_files.clear();
        self.refusal = Errno::IO;
        if let Some(path) = path {
            self.unreadable_files = self.files_below(path)?;
        }
        Ok(())
    }

    fn files_below(&self, path: &Path) -> io::Result<BTreeSet<Inode>> {
        let (mut files, mut open) = (BTreeSet::new(), vec![self.resolve(path)?]);
        while let Some(inode) = open.pop() {
            match self.directory(inode) {
                Ok(directory) => open.extend(directory.live.values()),
                Err(_) => _ = files.insert(inode),
            }
        }
        Ok(files)
    }

    /// Bytes by which files below `path` may still grow; `None` means without end.
    pub(super) fn space_of(&self, path: &Path) -> Option<u64> {
        if self.full.as_ref().is_some_and(|full| path.starts_with(full)) { Some(0) } else { self.space }
    }

    fn is_on_full_device(&self, inode: Inode) -> bool {
        let files = self.full.as_ref().and_then(|full| self.files_below(full).ok());
        files.is_some_and(|files| files.contains(&inode))
    }

    pub(super) fn check_readable(&self, inode: Inode) -> io::Result<()> {
        if self.unreadable_files.contains(&inode) { Err(self.refusal.into()) } else { Ok(()) }
    }

    /// Makes these bytes of a file unreadable, and no others of it.
    pub(super) fn break_sectors(&mut self, path: &Path, bytes: Range<u64>) -> io::Result<()> {
        let inode = self.resolve(path)?;
        self.bad_sectors.insert(inode, bytes);
        Ok(())
    }

    /// Number of the `len` bytes from `position` on that a read gets.
    pub(super) fn readable_len(&self, inode: Inode, position: u64, len: usize) -> io::Result<usize> {
        self.check_readable(inode)?;
        match self.bad_sectors.get(&inode).filter(|bad| !bad.is_empty()) {
            Some(bad) if bad.contains(&position) => Err(Errno::IO.into()),
            Some(bad) if position < bad.start => {
                Ok(usize::try_from(bad.start - position).map_or(len, |before| before.min(len)))
            }
            _ => Ok(len),
        }
    }

    fn check_reachable(&self, path: &Path) -> io::Result<()> {
        let is_below = self.unreadable.as_ref().is_some_and(|unreadable| path.starts_with(unreadable));
        if is_below { Err(self.refusal.into()) } else { Ok(()) }
    }

    fn check_descriptors(&self) -> io::Result<()> {
        if self.are_descriptors_exhausted { Err(Errno::NFILE.into()) } else { Ok(()) }
    }

    /// Opens the directory at `path`.
    pub(super) fn open_dir(&self, path: &Path) -> io::Result<Inode> {
        self.check_descriptors()?;
        self.check_device_of(path)?;
        let inode = self.resolve(path)?;
        self.directory(inode).map(|_| inode)
    }

    /// Opens the file at `path`; makes it if `create`; refuses one that exists if `exclusive`.
    pub(super) fn open(&mut self, path: &Path, create: bool, exclusive: bool) -> io::Result<Inode> {
        self.check_descriptors()?;
        self.check_reachable(path)?;
        let entry = self.resolve_entry(path)?;
        let found = self.directory(entry.0)?.live.get(&entry.1).copied();
        match found {
            Some(_) if exclusive => Err(io::ErrorKind::AlreadyExists.into()),
            Some(inode) => self.file_mut(inode).map(|_| inode),
            None if create => {
                let mut image = FileImage::default();
                image.modified_ms = self.clock.wall().0;
                self.link(entry, Node::File(Arc::new(image)))
            }
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn create_dir_all(&mut self, path: &Path) -> io::Result<()> {
        self.check_device_of(path)?;
        let mut inode = ROOT;
        for name in names(path)? {
            let found = self.directory(inode)?.live.get(name).copied();
            inode = match found {
                Some(next) => next,
                None => self.link((inode, name.to_os_string()), Node::Directory(Directory::default()))?,
            };
        }
        self.directory(inode).map(|_| ())
    }

    /// Makes the directory `name` in another one; no error if it exists.
    pub(super) fn create_dir_in(&mut self, directory: Inode, name: &OsStr) -> io::Result<()> {
        self.check_device(directory)?;
        if self.links(directory) == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        match self.directory(directory)?.live.get(name) {
            Some(found) => self.directory(*found).map(|_| ()),
            None => {
                self.link((directory, name.to_os_string()), Node::Directory(Directory::default())).map(|_| ())
            }
        }
    }

    /// Facts about a file or a directory.
    pub(super) fn stat(&self, inode: Inode) -> Stat {
        let (len, modified_ms) = match self.nodes.get(&inode) {
            Some(Node::File(image)) => (Some(image.len() as u64), image.modified_ms),
            _ => (None, 0),
        };
        Stat {
            identity: Identity { device: u64::from(self.mounted().contains(&inode)), inode },
            is_dir: len.is_none(),
            links: self.links(inode),
            len: len.unwrap_or(0),
            modified: TimestampMs(modified_ms),
        }
    }

    /// Number of names of a file or a directory: one or none, as nothing here gives it another. The root has one that
    /// cannot be removed.
    fn links(&self, inode: Inode) -> u64 {
        let is_named = |node: &Node| match node {
            Node::Directory(directory) => directory.live.values().any(|named| *named == inode),
            Node::File(_) => false,
        };
        u64::from(inode == ROOT || self.nodes.values().any(is_named))
    }

    /// Names in a directory with, for files, their sizes.
    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<(OsString, Option<u64>)>> {
        self.check_descriptors()?;
        self.check_device_of(path)?;
        let directory = self.directory(self.resolve(path)?)?;
        let size = |inode: &Inode| match self.nodes.get(inode) {
            Some(Node::File(image)) => Some(image.len() as u64),
            _ => None,
        };
        Ok(directory.live.iter().map(|(name, inode)| (name.clone(), size(inode))).collect())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.check_device_of(from)?;
        let (from, to) = (self.resolve_entry(from)?, self.resolve_entry(to)?);
        let mounted = self.mounted();
        if mounted.contains(&from.0) != mounted.contains(&to.0) {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        let inode = *self.directory(from.0)?.live.get(&from.1).ok_or(io::ErrorKind::NotFound)?;
        if let Some(replaced) = self.directory(to.0)?.live.get(&to.1)
            && matches!(self.nodes.get(replaced), Some(Node::Directory(directory)) if !directory.live.is_empty())
        {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        if self.renames_left == Some(0) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.pass()?;
        self.renames_left = self.renames_left.map(|left| left - 1);
        self.directory_mut(from.0)?.live.remove(&from.1);
        if let Some(replaced) = self.directory_mut(to.0)?.live.insert(to.1.clone(), inode) {
            self.give_back(replaced);
        }
        self.changes.push(Change::Rename(from, to));
        Ok(())
    }

    pub(super) fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        let inode = self.resolve(path)?;
        self.file_mut(inode)?;
        let entry = self.resolve_entry(path)?;
        self.unlink(entry, inode)
    }

    /// Gives back the space of a file without a name, as if no handle led to it.
    fn give_back(&mut self, inode: Inode) {
        if let (Some(space), Some(Node::File(image))) = (self.space.as_mut(), self.nodes.get(&inode)) {
            *space += image.len() as u64;
        }
    }

    fn unlink(&mut self, entry: Entry, inode: Inode) -> io::Result<()> {
        self.pass()?;
        self.give_back(inode);
        self.directory_mut(entry.0)?.live.remove(&entry.1);
        self.changes.push(Change::Unlink(entry));
        Ok(())
    }

    pub(super) fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        let inode = self.resolve(path)?;
        if !self.directory(inode)?.live.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        let entry = self.resolve_entry(path)?;
        self.unlink(entry, inode)
    }

    pub(super) fn remove_dir_all(&mut self, path: &Path) -> io::Result<()> {
        let inode = self.resolve(path)?;
        let names: Vec<OsString> = self.directory(inode)?.live.keys().cloned().collect();
        for name in names {
            let child = path.join(&name);
            let child_inode = self.resolve(&child)?;
            match self.nodes.get(&child_inode) {
                Some(Node::Directory(_)) => self.remove_dir_all(&child)?,
                _ => self.unlink((inode, name), child_inode)?,
            }
        }
        let entry = self.resolve_entry(path)?;
        self.unlink(entry, inode)
    }

    /// Writes to a file. At the stop a prefix of the bytes may get through; on a full disk the bytes that fit do.
    pub(super) fn write(&mut self, inode: Inode, bytes: &[u8], position: u64) -> io::Result<()> {
        self.check_device(inode)?;
        let position = usize::try_from(position).map_err(io::Error::other)?;
        if let Err(error) = self.pass() {
            self.tear_last_write(inode, bytes, position)?;
            return Err(error);
        }
        self.writes += 1;
        if self.fail_write_at.is_some_and(|at| self.writes > at) {
            self.fail_write_at = None;
            let written = self.random.below(bytes.len() + 1);
            self.write_to(inode, position, &bytes[..written])?;
            return self.report_short_write(Errno::IO.into());
        }
        let len = self.file_mut(inode)?.len();
        let growth = (position + bytes.len()).saturating_sub(len) as u64;
        if growth > 0 && self.is_on_full_device(inode) {
            return self.report_short_write(io::ErrorKind::StorageFull.into());
        }
        if let Some(space) = self.space.filter(|space| *space < growth) {
            let missing = usize::try_from(growth - space).map_err(io::Error::other)?;
            self.space = Some(0);
            self.write_to(inode, position, &bytes[..bytes.len().saturating_sub(missing)])?;
            return self.report_short_write(io::ErrorKind::StorageFull.into());
        }
        self.space = self.space.map(|space| space - growth);
        self.write_to(inode, position, bytes)
    }

    fn write_to(&mut self, inode: Inode, position: usize, bytes: &[u8]) -> io::Result<()> {
        let now = self.clock.wall().0;
        let image = self.file_mut(inode)?;
        image.write(position, bytes);
        image.modified_ms = now;
        Ok(())
    }

    /// Sets the time at which a file last changed.
    pub(super) fn set_modified(&mut self, inode: Inode, time: TimestampMs) -> io::Result<()> {
        self.check_device(inode)?;
        self.file_mut(inode)?.modified_ms = time.0;
        Ok(())
    }

    /// The write at which the machine stops may have got through in part; those after it have not.
    fn tear_last_write(&mut self, inode: Inode, bytes: &[u8], position: usize) -> io::Result<()> {
        if self.stop_at == Some(self.operations) {
            let written = self.random.below(bytes.len() + 1);
            self.write_to(inode, position, &bytes[..written])?;
            self.operations += 1;
        }
        Ok(())
    }

    pub(super) fn set_len(&mut self, inode: Inode, len: u64) -> io::Result<()> {
        self.pass()?;
        self.check_device(inode)?;
        let len = usize::try_from(len).map_err(io::Error::other)?;
        let old = self.file_mut(inode)?.len();
        if len < old && self.cuts_to_fail > 0 {
            self.cuts_to_fail -= 1;
            return Err(Errno::IO.into());
        }
        self.space = self.space.map(|space| space + old.saturating_sub(len) as u64);
        let now = self.clock.wall().0;
        let image = self.file_mut(inode)?;
        image.set_len(len);
        image.modified_ms = now;
        self.bad_sectors.retain(|file, bad| *file != inode || bad.start < len as u64);
        Ok(())
    }

    /// Begins to write `len` bytes from `position` on to the disk, which changes nothing, or fails: the pages count
    /// as clean then, and no later sync reports that they were lost.
    pub(super) fn begin_write_back(&mut self, inode: Inode, position: u64, len: u64) -> io::Result<()> {
        self.write_back_bytes += len;
        self.write_backs += 1;
        if self.fail_write_back_at.is_none_or(|at| self.write_backs <= at) {
            return Ok(());
        }
        self.fail_write_back_at = None;
        let start = usize::try_from(position).map_err(io::Error::other)?;
        let end = start.saturating_add(usize::try_from(len).map_err(io::Error::other)?);
        self.file_mut(inode)?.fail_sync_range(start..end);
        if self.planted == Some(PlantedBug::IgnoredWriteBackError) {
            Ok(())
        } else {
            Err(Errno::NOSPC.into())
        }
    }

    pub(super) fn sync_file(&mut self, inode: Inode) -> io::Result<()> {
        let was_lost = self.untold.as_mut().is_some_and(|untold| untold.remove(&inode));
        let fails = self.pass_sync()? || was_lost || self.check_device(inode).is_err();
        let image = self.file_mut(inode)?;
        if fails {
            image.fail_sync();
            return self.report_failed_sync();
        }
        image.sync();
        Ok(())
    }

    /// Syncs the bytes of a durable write: `len` bytes from `position` on.
    pub(super) fn sync_range(&mut self, inode: Inode, position: u64, len: usize) -> io::Result<()> {
        let start = usize::try_from(position).map_err(io::Error::other)?;
        let fails = self.pass_sync()?;
        let image = self.file_mut(inode)?;
        if fails {
            image.fail_sync_range(start..start + len);
            return self.report_failed_sync();
        }
        image.sync_range(start..start + len);
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, inode: Inode) -> io::Result<()> {
        self.directory(inode)?;
        if self.planted == Some(PlantedBug::SkippedDirectorySync) {
            return Ok(());
        }
        if self.pass_sync()? {
            return self.report_failed_sync();
        }
        let wanted = self.changes_of(inode);
        let changes = std::mem::take(&mut self.changes);
        for (change, wanted) in changes.into_iter().zip(wanted) {
            if wanted {
                self.make_durable(change);
            } else {
                self.changes.push(change);
            }
        }
        Ok(())
    }

    /// For each pending change, whether a sync of `directory` covers it: it concerns that directory, or a later
    /// change that does builds on it.
    fn changes_of(&self, directory: Inode) -> Vec<bool> {
        let mut needed: BTreeSet<&Entry> = BTreeSet::new();
        let mut wanted = vec![false; self.changes.len()];
        for (change, wanted) in self.changes.iter().zip(&mut wanted).rev() {
            if change.entries().any(|entry| entry.0 == directory || needed.contains(entry)) {
                *wanted = true;
                needed.extend(change.entries());
            }
        }
        wanted
    }

    /// The files and directories of the file system that a test has mounted.
    pub(super) fn mounted(&self) -> BTreeSet<Inode> {
        let below = |root| self.reachable(root, |directory| &directory.live);
        self.mounted.map(below).unwrap_or_default()
    }

    /// Syncs all files below a directory, as if they were a file system of their own, and all names.
    pub(super) fn sync_volume(&mut self, directory: Inode) -> io::Result<()> {
        let fails = self.pass_sync()?;
        let mounted = self.mounted();
        let mut below = self.reachable(directory, |directory| &directory.live);
        below.retain(|inode| mounted.contains(inode) == mounted.contains(&directory));
        let fails = fails || below.iter().any(|inode| self.check_device(*inode).is_err());
        for (inode, node) in self.nodes.iter_mut().filter(|(inode, _)| below.contains(inode)) {
            match node {
                Node::File(image) if image.is_clean() => {}
                Node::File(image) if fails => {
                    Arc::make_mut(image).fail_sync();
                    if let Some(untold) = &mut self.untold {
                        untold.insert(*inode);
                    }
                }
                Node::File(image) => Arc::make_mut(image).sync(),
                Node::Directory(_) => {}
            }
        }
        if fails && self.untold.is_none() {
            return self.report_failed_sync();
        }
        for change in std::mem::take(&mut self.changes) {
            self.make_durable(change);
        }
        Ok(())
    }

    fn make_durable(&mut self, change: Change) {
        let mut set = |(directory, name): Entry, inode: Option<Inode>| {
            let Some(Node::Directory(directory)) = self.nodes.get_mut(&directory) else { return None };
            match inode {
                Some(inode) => directory.durable.insert(name, inode),
                None => directory.durable.remove(&name),
            }
        };
        match change {
            Change::Link(entry, inode) => _ = set(entry, Some(inode)),
            Change::Unlink(entry) => _ = set(entry, None),
            Change::Rename(from, to) => {
                if let Some(inode) = set(from, None) {
                    set(to, Some(inode));
                }
            }
        }
    }

    /// The process dies and is started again: locks and handles are gone, the page cache stays.
    pub(super) fn restart(&mut self) {
        self.locked.clear();
        self.life += 1;
        self.stop_at = None;
        self.fail_sync_at = None;
        self.fail_write_at = None;
        self.fail_write_back_at = None;
        self.cuts_to_fail = 0;
        self.fail_call_at = None;
        self.planted = None;
        self.are_descriptors_exhausted = false;
        self.renames_left = None;
    }

    /// The power fails: synced bytes are there, others may be there in part, as the disk's own randomness decides.
    pub(super) fn crash(&mut self) {
        let mut random = self.random.clone();
        self.lose_power(&mut random);
        self.random = random;
    }

    /// A copy of the disk after a power cut with these choices.
    pub(super) fn crashed(&self, choose: &mut dyn Choose) -> Self {
        let mut disk = self.clone();
        disk.lose_power(choose);
        disk
    }

    fn lose_power(&mut self, choose: &mut dyn Choose) {
        self.crash_directories(choose);
        self.untold = self.untold.take().map(|_| BTreeSet::new());
        let reachable = self.durably_reachable(ROOT);
        self.nodes.retain(|inode, _| reachable.contains(inode));
        let tears_blocks = self.tears_blocks;
        for node in self.nodes.values_mut() {
            match node {
                Node::File(image) if image.is_clean() => {}
                Node::File(image) => Arc::make_mut(image).crash(choose, tears_blocks),
                Node::Directory(directory) => directory.live.clone_from(&directory.durable),
            }
        }
        self.restart();
    }

    /// Chooses which of the pending changes survive. There is no choice for a change that is lost with an earlier
    /// one: of the same name, or of its directory.
    fn crash_directories(&mut self, choose: &mut dyn Choose) {
        let mut reachable = self.durably_reachable(ROOT);
        let mut lost: BTreeSet<Entry> = BTreeSet::new();
        for change in std::mem::take(&mut self.changes) {
            let is_possible =
                change.entries().all(|entry| reachable.contains(&entry.0) && !lost.contains(entry));
            if is_possible && choose.choose(2) == 1 {
                if let Change::Link(_, inode) = &change {
                    reachable.append(&mut self.durably_reachable(*inode));
                }
                self.make_durable(change);
            } else {
                lost.extend(change.entries().cloned());
            }
        }
    }

    /// The inodes that a walk from `start` finds on the disk.
    fn durably_reachable(&self, start: Inode) -> BTreeSet<Inode> {
        self.reachable(start, |directory| &directory.durable)
    }

    fn reachable(
        &self,
        start: Inode,
        names: fn(&Directory) -> &BTreeMap<OsString, Inode>,
    ) -> BTreeSet<Inode> {
        let mut reachable = BTreeSet::new();
        let mut open = vec![start];
        while let Some(inode) = open.pop() {
            if let Some(Node::Directory(directory)) = self.nodes.get(&inode)
                && !reachable.contains(&inode)
            {
                open.extend(names(directory).values());
            }
            reachable.insert(inode);
        }
        reachable
    }

    /// Distinguishes the states that a power cut may leave of `before`: two are equal if (and but for a collision
    /// only if) their contents are.
    pub(super) fn fingerprint(&self, before: &Self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (inode, node) in &self.nodes {
            inode.hash(&mut hasher);
            match node {
                Node::Directory(directory) => directory.live.hash(&mut hasher),
                Node::File(image) if !before.is_clean(*inode) => image.hash_content(&mut hasher),
                Node::File(_) => {}
            }
        }
        hasher.finish()
    }

    fn is_clean(&self, inode: Inode) -> bool {
        matches!(self.nodes.get(&inode), Some(Node::File(image)) if image.is_clean())
    }
}

/// The names on the way to `path`; relative paths begin at the root, which is the only directory to begin at.
fn names(path: &Path) -> io::Result<Vec<&OsStr>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return Err(io::ErrorKind::InvalidInput.into()),
        }
    }
    Ok(names)
}
