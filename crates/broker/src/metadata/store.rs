//! The store: the metadata's log and snapshot in `<data>/meta`, and the image that readers see.
//!
//! A change is durable before anyone sees it: [`Store::change`] appends its records, syncs, and only then publishes
//! the new image. A snapshot follows the log when that has grown, so that its length is bounded by the size of the image,
//! and at every start: what a start reads may be in the page cache only, if an earlier sync failed or never came, and is
//! written anew before anything is built on it. Refuses a directory of another cluster or node, one in use, one that is
//! older than the metadata marks, and files that are damaged, cut in their middle, missing, or of another generation.
//!
//! ```text
//! meta/lock                  held while the server runs
//! meta/snapshot              the image when the log of the same generation began; replaced atomically
//! meta/log-<generation>      one frame for each change since then, synced before the change is answered
//! ```
//!
//! Snapshot and log are kept twice, with `-copy` behind their names. A copy of the snapshot that finds no room stays old
//! until [`Store::write_copy`] finds some.

mod files;
mod log;
mod standing;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use riverrun_env::{Directory, Env, LockGuard, Vanishing};
use riverrun_types::{LeaderEpoch, PartitionId, TopicId};

use self::files::{Loaded, Snapshot, WriteFailure, load, start_generation, write_copy, write_snapshot};
pub(super) use self::files::{Verified, verify};
use self::log::{LogFile, remove_other_generations};
use self::standing::Standing;
use super::cluster::{ClusterImage, Topic};
use super::copies::Behind;
use super::draft::{Draft, random_id};
use super::error::{MetadataError, TopicError};
use super::image::Image;
use super::node::absent_dirs::AbsentDirs;
use super::node::directory::make_durable;
use super::node::marks::{Marks, Progress};
use super::node::unknown::UnknownTopics;
use super::node::{NodeImage, log_dirs};
use super::proposal::{MetadataLog, Proposal};
use super::records::{Head, to_json};
use crate::cordon::Cordon;
use crate::supervisor::on_blocking_thread;

/// Name of the lock file in the directory.
const LOCK_FILE: &str = "lock";
/// A log shorter than this is not worth a snapshot.
const LOG_BYTES_MIN: u64 = 1024 * 1024;

/// A file of this name in the directory: its owner accepts that metadata is lost.
pub(crate) const ACCEPT_METADATA_LOSS_FILE: &str = "accept-metadata-loss";

#[derive(Clone, Debug)]
pub(crate) struct StoreOptions {
    /// Its directory, `<data>/meta`. It is made if it does not exist.
    pub(crate) dir: PathBuf,
    pub(crate) node_id: i32,
    /// The cluster that the directory must belong to; `None`: any, or a new one.
    pub(crate) cluster_id: Option<String>,
    /// The directories of records.
    pub(crate) log_dirs: Vec<PathBuf>,
}

/// The metadata of a running server.
///
/// Invariants: `image` is the synced content of snapshot and log. At most one change is under way. Nothing changes any
/// more once a write or sync has failed in a way that leaves the disk's state unknown, nor after
/// [`Store::close`].
#[derive(Debug)]
pub(crate) struct Store {
    env: Env,
    dir: PathBuf,
    image: ArcSwap<Image>,
    /// Locked during waits for the disk.
    writer: Mutex<Writer>,
    standing: Standing,
    marks: Marks,
    unknown: UnknownTopics,
    absent: AbsentDirs,
    may_lack_changes: bool,
    /// The directory itself, to notice that another has taken its place.
    root: Box<dyn Directory>,
    _lock: Box<dyn LockGuard>,
}

#[derive(Debug)]
struct Writer {
    head: Head,
    log: LogFile,
    /// The log's length at which the next snapshot is due.
    snapshot_at_bytes: u64,
    /// The copy of the last snapshot, while there is no room for it.
    behind: Option<Behind>,
    poison: Option<String>,
    is_closed: bool,
}

impl Store {
    /// Opens the directory, counts one more start of the node, and recognises the log dirs. All of that is durable when it
    /// returns.
    pub(crate) fn open(env: &Env, options: &StoreOptions) -> Result<Self, MetadataError> {
        let dir = &options.dir;
        make_durable(&*env.fs, dir).map_err(MetadataError::io("make the directory", dir))?;
        let root = env.fs.open_dir(dir).map_err(MetadataError::io("open the directory", dir))?;
        let lock = env.fs.lock(&dir.join(LOCK_FILE)).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => MetadataError::InUse(dir.clone()),
            _ => MetadataError::io("lock", dir.join(LOCK_FILE))(error),
        })?;
        let accept = dir.join(ACCEPT_METADATA_LOSS_FILE);
        let accepts_loss = env.fs.exists(&accept).map_err(MetadataError::io("look at", &accept))?;
        let Loaded { head, image, may_lack_changes } = match load(env, dir, accepts_loss)? {
            Some(loaded) => loaded,
            None => first(env, options)?,
        };
        check_owner(&head, options)?;
        let absent = AbsentDirs::find(env, &image.node, &options.log_dirs)?;
        let present = absent.present(&options.log_dirs);
        log_dirs::refuse_in_use(env, &present)?;
        let marks = Marks::read(env, &image, &present);
        if !accepts_loss {
            marks.check(&image, dir)?;
        }
        let told = marks.furthest();
        let mut unknown = if accepts_loss || marks.are_missing() {
            UnknownTopics::find(env, &image, &present)
        } else {
            UnknownTopics::find_topics(env, &image, &present).0
        };
        if accepts_loss {
            unknown.set_aside(env)?;
        } else {
            unknown.check(dir)?;
        }
        let started = start_generation(env, dir, &head, &image).map_err(|failure| failure.error)?;
        let (log, Snapshot { behind, .. }) = started;
        remove_other_generations(env, dir, head.generation)?;
        let snapshot_at_bytes = log.end().max(LOG_BYTES_MIN);
        let store = Self {
            env: env.clone(),
            dir: dir.clone(),
            image: ArcSwap::from_pointee(image),
            writer: Mutex::new(Writer {
                head,
                log,
                snapshot_at_bytes,
                behind,
                poison: None,
                is_closed: false,
            }),
            standing: Standing::default(),
            marks,
            unknown,
            absent,
            may_lack_changes,
            root,
            _lock: lock,
        };
        store.count_start(options, accepts_loss.then_some(told))?;
        log_dirs::end_acceptance(env, &present);
        if accepts_loss {
            env.fs.remove_file(&accept).map_err(MetadataError::io("remove", accept))?;
        }
        Ok(store)
    }

    /// Counts one more start, and records the changes of the log dirs. `told` has the progress of their marks if the loss of
    /// metadata is accepted: the counts go on above it.
    fn count_start(&self, options: &StoreOptions, told: Option<Progress>) -> Result<(), MetadataError> {
        let mut records =
            log_dirs::claim(&self.env, &self.image(), &options.log_dirs, &self.absent, told.is_some())?;
        let taken_back = self.rehearse(|draft| {
            for record in &records {
                draft.record(record.clone());
            }
            self.unknown.take_back(draft.image())
        })?;
        records.extend(taken_back);
        self.change(|draft| {
            if let Some(told) = told {
                draft.skip_what_is_lost(told);
            }
            draft.start_node();
            for record in records {
                draft.record(record);
            }
        })
    }

    /// Ends the metadata in order: all of it is in one snapshot that no log follows. Durable when it returns. Changes after it
    /// are refused. Does nothing if a write failed before: the next start reads what the disk has.
    pub(crate) fn close(&self) -> Result<(), MetadataError> {
        let mut writer = self.standing.lock(&self.writer);
        if writer.is_closed || writer.poison.is_some() {
            return Ok(());
        }
        writer.is_closed = true;
        writer.asks_disk(&*self.env.clock);
        let head = Head { generation: writer.head.generation + 1, is_last: true, ..writer.head.clone() };
        write_snapshot(&self.env, &self.dir, &head, &self.image()).map_err(|failure| failure.error)?;
        writer.log.remove(&self.env);
        Ok(())
    }

    /// Directories of topics that were given up with the metadata, and that are still there.
    pub(crate) fn set_aside(&self) -> &[PathBuf] {
        self.unknown.aside()
    }

    /// Whether there may have been topics that the image does not know, so that files without a topic must not be deleted.
    pub(crate) fn may_lack_topics(&self) -> bool {
        self.may_lack_changes || self.unknown.is_in_doubt() || !self.absent_dirs().is_empty()
    }

    /// Log dirs that are away, by their paths, each with the reason. Nothing may be made there, and their partitions are offline.
    pub(crate) fn absent_dirs(&self) -> &BTreeMap<PathBuf, String> {
        self.absent.reasons()
    }

    /// The metadata now.
    pub(crate) fn image(&self) -> Arc<Image> {
        self.image.load_full()
    }

    /// The cluster's half now.
    pub(crate) fn cluster(&self) -> Arc<ClusterImage> {
        Arc::clone(&self.image.load().cluster)
    }

    /// This node's half now.
    pub(crate) fn node(&self) -> Arc<NodeImage> {
        Arc::clone(&self.image.load().node)
    }

    /// The log dir that holds a partition; `None` if there is no such partition here.
    pub(crate) fn log_dir(&self, id: PartitionId) -> Option<usize> {
        self.image.load().node.log_dir(id)
    }

    /// The leader epoch of a partition of this topic: see [`ClusterImage::leader_epoch`]. It stays while the server runs.
    pub(crate) fn leader_epoch(&self, topic: &Topic, partition: i32) -> LeaderEpoch {
        self.image.load().cluster.leader_epoch(topic, partition)
    }

    /// Makes a change: `plan` drafts it against the current image; its records are appended and synced; then the new
    /// image is seen by everyone. A plan that records nothing costs no sync. Blocks for the disk: only for a start, and for
    /// work that blocks in any case. Requests propose.
    pub(crate) fn change<T>(&self, plan: impl FnOnce(&mut Draft<'_>) -> T) -> Result<T, MetadataError> {
        let mut writer = self.standing.lock(&self.writer);
        if let Some(reason) = &writer.poison {
            return Err(MetadataError::Poisoned(reason.clone()));
        }
        if writer.is_closed {
            return Err(MetadataError::Stopping);
        }
        let mut draft = self.draft();
        let outcome = plan(&mut draft);
        let (image, records) = draft.into_parts();
        if records.is_empty() {
            return Ok(outcome);
        }
        writer.asks_disk(&*self.env.clock);
        self.look_for_vanished(&mut writer)?;
        writer.append(&to_json(&records))?;
        let is_marked = Progress::of(&image.cluster) == Progress::of(&self.cluster());
        let image = Arc::new(image);
        self.image.store(Arc::clone(&image));
        if writer.log.end() >= writer.snapshot_at_bytes {
            self.snapshot(&mut writer, &image);
        }
        drop(writer);
        // Before anything that they count is served or given out. A log dir that hangs holds up no other change.
        if !is_marked {
            self.marks.write(&self.env, &self.image());
        }
        Ok(outcome)
    }

    /// Adds a queue of this machine to the image, or says why it cannot be a topic. It is not written down.
    pub(crate) fn mount(&self, name: &str, id: TopicId) -> Result<(), TopicError> {
        // Keeps changes out: the image is replaced.
        let _writer = self.writer.lock();
        self.draft().check_new_name(name)?;
        let mut image = Image::clone(&self.image());
        if let Some(other) = image.cluster.topic_by_id(id) {
            return Err(TopicError::MountedTwice { other: Arc::clone(&other.name) });
        }
        image.cluster_mut().mount(name, id);
        self.image.store(Arc::new(image));
        Ok(())
    }

    /// Sets the configuration's cordon, which holds while clients have set none. It is not written down.
    pub(crate) fn cordon_by_default(&self, cordon: Cordon) {
        // Keeps changes out: the image is replaced.
        let _writer = self.writer.lock();
        let mut image = Image::clone(&self.image());
        image.node_mut().cordon_by_default(cordon);
        self.image.store(Arc::new(image));
    }

    /// Checks that the directory and the log are still in place. Otherwise nothing changes any more: no start would find what
    /// is written there. Waits for the disk.
    pub(crate) fn check_in_place(&self) {
        let mut writer = self.standing.lock(&self.writer);
        if writer.poison.is_some() || writer.is_closed {
            return;
        }
        writer.asks_disk(&*self.env.clock);
        if let Err(error) = self.look_for_vanished(&mut writer) {
            tracing::error!(%error, "the metadata is not where it was: nothing more is written to it");
        }
    }

    fn look_for_vanished(&self, writer: &mut Writer) -> Result<(), MetadataError> {
        let fs = &*self.env.fs;
        let snapshot = self.dir.join(files::SNAPSHOT);
        let checks = [
            (self.dir.clone(), Vanishing::of_directory(fs, &self.dir, &*self.root)),
            (self.dir.join(LOCK_FILE), Vanishing::of_file(fs, &self.dir.join(LOCK_FILE), None, 0)),
            (snapshot.clone(), Vanishing::of_file(fs, &snapshot, None, 0)),
        ];
        for (path, found) in checks.into_iter().chain(writer.log.check(fs)) {
            if let Some(how) = found.map_err(MetadataError::io("look at", &path))? {
                let error = MetadataError::Vanished { path, how };
                writer.poison = Some(error.to_string());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Tries again to write a copy of the snapshot that found no room. Blocks for the disk.
    pub(crate) fn write_copy(&self) {
        let mut writer = self.standing.lock(&self.writer);
        if writer.is_closed || writer.poison.is_some() {
            return;
        }
        let Some(behind) = writer.behind.take() else { return };
        writer.asks_disk(&*self.env.clock);
        match write_copy(&self.env, &self.dir, behind) {
            Ok(behind) => writer.behind = behind,
            Err(failure) => {
                tracing::error!(error = %failure.error, "the copy of the metadata snapshot failed");
                writer.note(&failure);
            }
        }
    }

    /// The error that keeps the copy of the snapshot older than the snapshot. Does not wait for the writer.
    pub(crate) fn copy_trouble(&self) -> Option<String> {
        self.standing.copy_trouble()
    }

    /// Lets nothing change any more, because another write to the directory has failed: it is not known what the disk holds.
    pub(crate) fn fail(&self, error: &MetadataError) {
        self.standing.lock(&self.writer).poison.get_or_insert_with(|| error.to_string());
    }

    /// Why nothing changes any more, if that is so. Does not wait for the writer: a change that is under way is not in it.
    pub(crate) fn failure(&self) -> Option<String> {
        self.standing.failure()
    }

    /// Since when the writer has been waiting for its disk, by monotonic time, if it is: changes wait then. Does not wait for
    /// the writer.
    pub(crate) fn disk_asked_since(&self) -> Option<Duration> {
        self.standing.asked_since()
    }

    /// Drafts a change, answers the outcome, and drops it.
    fn rehearse<T>(&self, plan: impl FnOnce(&mut Draft<'_>) -> T) -> T {
        plan(&mut self.draft())
    }

    fn draft(&self) -> Draft<'_> {
        Draft::new(&self.image.load(), &*self.env.random)
    }

    #[cfg(test)]
    pub(super) fn marks(&self) -> &Marks {
        &self.marks
    }

    /// The path of a mark whose log dir does not answer, if there is one.
    pub(crate) fn unanswered_mark(&self) -> Option<&Path> {
        self.marks.unanswered()
    }

    /// Begins the next generation. The change that led here is durable already, so a failure is not the caller's: it
    /// is logged, and poisons the writer if it leaves the disk's state unknown. Otherwise the generation stays, and the
    /// next snapshot is tried when its log has grown again.
    fn snapshot(&self, writer: &mut Writer, image: &Image) {
        let head = Head { generation: writer.head.generation + 1, ..writer.head.clone() };
        match start_generation(&self.env, &self.dir, &head, image) {
            Ok((log, Snapshot { bytes, behind })) => {
                let old = std::mem::replace(&mut writer.log, log);
                writer.head = head;
                writer.snapshot_at_bytes = bytes.max(LOG_BYTES_MIN);
                writer.behind = behind;
                old.remove(&self.env);
            }
            Err(failure) => {
                tracing::error!(error = %failure.error, "metadata snapshot failed");
                writer.snapshot_at_bytes = writer.log.end() + LOG_BYTES_MIN;
                writer.note(&failure);
            }
        }
    }
}

impl MetadataLog for Store {
    fn image(&self) -> Arc<Image> {
        self.image()
    }

    fn cluster(&self) -> Arc<ClusterImage> {
        self.cluster()
    }

    fn propose(self: Arc<Self>, mut proposal: Box<dyn Proposal>) -> BoxFuture<'static, ()> {
        let work = move || {
            let ended = self.change(|draft| proposal.draft(draft));
            proposal.end(ended);
        };
        Box::pin(async move { _ = on_blocking_thread(work).await })
    }
}

impl Writer {
    /// Appends one frame; synced when it returns. A write that fails is undone; a sync that fails poisons.
    fn append(&mut self, payload: &[u8]) -> Result<(), MetadataError> {
        self.log.append(payload).map_err(|failure| {
            self.note(&failure);
            failure.error
        })
    }

    /// Poisons the writer if the failure leaves the disk's state unknown.
    fn note(&mut self, failure: &WriteFailure) {
        if failure.is_unknown {
            self.poison = Some(failure.error.to_string());
        }
    }
}

/// The metadata of a new server.
fn first(env: &Env, options: &StoreOptions) -> Result<Loaded, MetadataError> {
    log_dirs::check_unowned(env, &options.log_dirs, &options.dir)?;
    let cluster_id = options.cluster_id.clone().unwrap_or_else(|| random_id(&*env.random).to_string());
    let head = Head { cluster_id, node_id: options.node_id, generation: 1, frames: 0, is_last: false };
    let image = Image::new(&head);
    Ok(Loaded { head, image, may_lack_changes: false })
}

fn check_owner(head: &Head, options: &StoreOptions) -> Result<(), MetadataError> {
    let is_cluster = options.cluster_id.as_ref().is_none_or(|id| *id == head.cluster_id);
    if is_cluster && head.node_id == options.node_id {
        return Ok(());
    }
    if is_cluster {
        let (path, found, node) = (options.dir.clone(), head.node_id, options.node_id);
        return Err(MetadataError::OtherNode { path, found, node });
    }
    Err(MetadataError::Foreign {
        path: options.dir.clone(),
        found_cluster: head.cluster_id.clone(),
        found_node: head.node_id,
        cluster: options.cluster_id.clone().unwrap_or_else(|| head.cluster_id.clone()),
        node: options.node_id,
    })
}

#[cfg(test)]
mod tests;
