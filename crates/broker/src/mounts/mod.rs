//! Queues of this machine that are offered as topics while processes append to them.
//!
//! Owns the queues that the configuration names, and one thread for each. A mounted topic has one partition, whose records
//! are those published in the queue, or synced if the mount says so; its id comes from the queue's own, so it is the
//! same after a restart, and another when the queue was made anew. A queue is open for reading only, unless the mount
//! lets clients produce to it: then it has an [`intake`], with a thread of its own, and the mount's retention, which
//! the queue's own background applies. Guarantees that a queue that is removed or damaged is an error of that topic and of
//! nothing else; one that was damaged when it was opened takes no records. Refuses whatever else would change the queue.

mod claim;
mod cursors;
mod intake;
mod lookup;
mod names;
mod producers;
mod watch;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use riverrun_env::Env;
use riverrun_log::config::{CleanupPolicy, LogConfig};
use riverrun_protocol::ErrorCode;
use riverrun_queue::{AppendOptions, BatchReader, Queue, QueueError, QueueView, Retention, StartAt};
use riverrun_types::{DurabilityLevel, ErrorKind, LeaderEpoch, Offset, TopicId};

use self::claim::{Claim, ClaimError};
use self::cursors::Cursors;
use self::intake::Intake;
pub(crate) use self::intake::{NotAppended, Outcome, PATIENCE};
use self::lookup::SegmentFacts;
use self::watch::Sleeper;
pub(crate) use self::watch::Watchers;
use crate::config::describe::{MountedTopic, MountedWrites};
use crate::config::{BrokerConfig, Mount, TopicOverrides};
use crate::health::{Code, Finding, Object};
use crate::log_limit::STORAGE_TROUBLE;
use crate::metadata::Store;
use crate::partitions::Durability;
use crate::partitions::{Waiter, Waiters};
use crate::start_error::StartError;

/// The error text for clients that produce to a mount without `:rw`.
pub(crate) const READ_ONLY: &str = "The topic is a queue that is mounted read-only: processes on the server's machine \
                                    append to it. A mount with :rw lets clients produce, too.";

/// Bytes of one answer of a mounted partition, unless the first batch has more.
const READ_BYTES_MAX: usize = 4 << 20;

/// Records nearer to the end than this are in memory: they were appended a moment ago.
const NEAR_BYTES: u64 = 64 << 20;

/// The queues that are mounted.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    by_topic: HashMap<TopicId, Arc<MountedQueue>>,
    /// Under which queues are mounted or were.
    names: BTreeSet<String>,
}

impl Mounts {
    /// Opens the queues that the configuration names, and makes topics of them. `meta_dir` is where it is remembered
    /// which ones these were.
    pub(crate) fn open(
        env: &Env,
        meta_dir: &Path,
        config: &BrokerConfig,
        metadata: &Store,
    ) -> Result<Self, StartError> {
        let mounts = &config.server.mounts;
        let cluster = Arc::clone(metadata.cluster().id());
        let mut by_topic: HashMap<TopicId, Arc<MountedQueue>> = HashMap::new();
        for mount in mounts {
            let failed = |reason: String| StartError::Mount { mount: mount.to_string(), reason };
            let not_opened = |error: ClaimError| match &error {
                ClaimError::Taken { .. } => {
                    StartError::MountTaken { mount: mount.to_string(), reason: error.to_string() }
                }
                _ => failed(error.to_string()),
            };
            let add = |id| {
                let added = metadata.mount(&mount.topic, id);
                added.map_err(|refused| {
                    failed(format!("{refused} Mount the queue under another name, or once only."))
                })
            };
            // Refused before it is opened: of a queue that takes records it would seem that another server has it.
            if !by_topic.is_empty()
                && let Some(id) = id_of(&mount.dir).filter(|id| by_topic.contains_key(id))
            {
                add(id)?;
            }
            let opened = if mount.writable {
                let defaults = config.topic_options(&mount.topic, &TopicOverrides::new());
                let rules = defaults.log_config(config.server.producer_id_expiration_ms);
                MountedQueue::open_writable(env, mount, &cluster, &rules)
            } else {
                MountedQueue::open(mount).map_err(ClaimError::from)
            };
            let queue = opened.map_err(not_opened)?;
            add(queue.id)?;
            by_topic.insert(queue.id, Arc::new(queue));
        }
        Ok(Self { by_topic, names: names::remember(env, meta_dir, mounts)? })
    }

    /// Whether a queue is mounted under this name or was once, so that it may be again.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// The queue behind a topic, if it is a mounted one.
    pub(crate) fn get(&self, topic: TopicId) -> Option<&Arc<MountedQueue>> {
        self.by_topic.get(&topic)
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<MountedQueue>> {
        self.by_topic.values()
    }

    /// The troubles of the mounted queues, one for each that is not well.
    pub(crate) fn troubles(&self) -> Vec<Finding> {
        let mut troubles: Vec<Finding> = self.all().filter_map(|queue| queue.trouble()).collect();
        troubles.sort_by(|one, other| one.text.cmp(&other.text));
        troubles
    }
}

/// Why a mounted partition does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) code: ErrorCode,
    /// The log start offset, for a client that is out of range.
    pub(crate) log_start: Offset,
}

/// The records for a fetch.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) bytes: Vec<u8>,
    pub(crate) log_start: Offset,
    /// The end of what readers may see: not before the end of `bytes`.
    pub(crate) high_watermark: Offset,
    /// Whether the limit, and not the end of the queue, ended the read.
    pub(crate) more: bool,
}

/// A queue that is a topic.
///
/// Invariants: `log_start` is an offset that the queue began with at some time. Once `damage` is set it stays. Records below
/// `synced_end` were synced; it stays at 0 where all published records are shown.
#[derive(Debug)]
pub(crate) struct MountedQueue {
    name: Arc<str>,
    id: TopicId,
    dir: PathBuf,
    view: QueueView,
    synced_only: bool,
    log_start: AtomicI64,
    synced_end: AtomicI64,
    is_gone: AtomicBool,
    damage: Mutex<Option<String>>,
    cursors: Mutex<Cursors>,
    /// The facts of full segments. The lock is held while one is searched, so that searches take turns.
    facts: Mutex<BTreeMap<Offset, SegmentFacts>>,
    waiters: Waiters,
    sleeper: Sleeper,
    retention: Retention,
    /// The intake for produced batches, or the answer to them if there is none.
    intake: Result<Intake, NotAppended>,
}

impl MountedQueue {
    /// Opens a queue for reading only.
    fn open(mount: &Mount) -> Result<Self, QueueError> {
        let view = QueueView::open(&mount.dir)?;
        if view.is_unrecovered() {
            let (topic, dir) = (&mount.topic, mount.dir.display());
            tracing::warn!(
                topic,
                %dir,
                "a mounted queue was last used before a boot or through another mount, and nobody has it open: it is \
                 served as a recovery would find it, until somebody opens it to append"
            );
        }
        let start = view.start_offset()?;
        Ok(Self {
            name: Arc::from(mount.topic.as_str()),
            id: topic_id(view.id()),
            dir: mount.dir.clone(),
            view,
            synced_only: mount.synced_only,
            log_start: AtomicI64::new(start.0),
            synced_end: AtomicI64::new(0),
            is_gone: AtomicBool::new(false),
            damage: Mutex::default(),
            cursors: Mutex::default(),
            facts: Mutex::default(),
            waiters: Waiters::default(),
            sleeper: Sleeper::default(),
            retention: mount.retention,
            intake: Err(NotAppended::new(ErrorCode::POLICY_VIOLATION, READ_ONLY)),
        })
    }

    /// Opens a queue that takes the records of this cluster's clients, as `rules` allow: as far as these apply to a queue, which
    /// keeps batches as they come and has its own segments. A damaged queue is open for reading only.
    fn open_writable(env: &Env, mount: &Mount, cluster: &str, rules: &LogConfig) -> Result<Self, ClaimError> {
        let intake = match Self::open_intake(env, mount, cluster, rules) {
            Ok(intake) => Ok(intake),
            Err(ClaimError::Queue(error @ (QueueError::Damaged { .. } | QueueError::OverBound { .. }))) => {
                Err(error)
            }
            Err(error) => return Err(error),
        };
        let mut mounted = Self::open(mount)?;
        mounted.intake = intake.map_err(|error| mounted.refuse_append(&error));
        Ok(mounted)
    }

    fn open_intake(env: &Env, mount: &Mount, cluster: &str, rules: &LogConfig) -> Result<Intake, ClaimError> {
        // The first process to open it decides which records a cut of power has left.
        let queue = Queue::open(&mount.dir)?;
        let claim = Claim::take(env, &mount.dir, cluster, || queue.end_offset())?;
        let (patience, retention) = (Some(PATIENCE), mount.retention);
        let options = AppendOptions { patience, retention, ..AppendOptions::default() };
        let appender = queue.appender(options)?;
        let bytes_max = u32::try_from(appender.batch_bytes_max()).unwrap_or(u32::MAX);
        let config = LogConfig {
            max_message_bytes: bytes_max,
            segment_bytes: bytes_max,
            compression: None,
            cleanup: CleanupPolicy { delete: true, compact: false },
            ..rules.clone()
        };
        Ok(Intake::open(&QueueView::open(&mount.dir)?, appender, claim, config, env.clone())?)
    }

    /// The topic's name.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The topic's id.
    pub(crate) fn id(&self) -> TopicId {
        self.id
    }

    /// The queue's directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether clients see only synced records.
    pub(crate) fn shows_synced_only(&self) -> bool {
        self.synced_only
    }

    /// The epoch that clients get: how often the queue was recovered. No batch has a later one.
    pub(crate) fn epoch(&self) -> LeaderEpoch {
        self.view.epoch()
    }

    /// The first offset, as it was known about a second ago.
    pub(crate) fn log_start(&self) -> Offset {
        Offset(self.log_start.load(Ordering::Relaxed))
    }

    /// The end of what readers may see.
    pub(crate) fn high_watermark(&self) -> Result<Offset, Refused> {
        self.check_in_place()?;
        self.end().map_err(|error| self.refuse(&error))
    }

    fn end(&self) -> Result<Offset, QueueError> {
        if !self.synced_only {
            return self.view.end_offset();
        }
        let end = self.view.synced_end_offset()?.0;
        let end = self.synced_end.fetch_max(end, Ordering::Relaxed).max(end);
        // Records that retention removes need not be synced.
        Ok(Offset(end).max(self.log_start()))
    }

    /// Whole batches that clients see, from the one on in which `at` lies.
    fn batches(&self, at: StartAt) -> Result<BatchReader, QueueError> {
        let mut reader = self.view.batches(at)?;
        reader.set_synced_only(self.synced_only);
        Ok(reader)
    }

    /// Bytes of the segments.
    pub(crate) fn size_bytes(&self) -> Result<u64, Refused> {
        self.check_in_place()?;
        let status = self.view.status().map_err(|error| self.refuse(&error))?;
        Ok(status.segments as u64 * status.segment_bytes)
    }

    /// Its properties, as the topic's configs show them.
    pub(crate) fn describe(&self) -> Result<MountedTopic, Refused> {
        let writes = self.intake.as_ref().ok().map(|intake| MountedWrites {
            level: self.level(),
            batch_bytes_max: u64::from(intake.config.max_message_bytes),
            timestamps: intake.config.timestamp_type,
            retention: self.retention,
        });
        Ok(MountedTopic {
            dir: self.dir.display().to_string(),
            segment_bytes: self.view.status().map_err(|error| self.refuse(&error))?.segment_bytes,
            synced_only: self.synced_only,
            writes,
        })
    }

    /// The durability level of an acked record, which is on this machine only.
    fn level(&self) -> DurabilityLevel {
        if self.synced_only { DurabilityLevel::AsyncSync } else { DurabilityLevel::AsyncAsync }
    }

    /// The durability of produced records; none where clients do not produce, as each appender has its own durability.
    pub(crate) fn durability(&self) -> Option<Durability> {
        self.intake.as_ref().ok()?;
        let end = self.view.end_offset().ok()?;
        let synced = self.view.synced_end_offset().ok()?.max(self.log_start());
        let unsynced_records = (end.0 - synced.0).max(0);
        Some(Durability { wanted: self.level(), reached: self.level(), unsynced_records })
    }

    /// Has `waiter` woken when something is published, or the queue is gone.
    pub(crate) fn enroll(&self, waiter: &Arc<Waiter>) {
        self.waiters.enroll(waiter);
        self.sleeper.call();
    }

    /// Whole batches from the one on in which `from` lies; the first also above `bytes_max` if `whole_first` is set.
    pub(crate) fn read(&self, from: Offset, bytes_max: usize, whole_first: bool) -> Result<Slice, Refused> {
        self.check_in_place()?;
        self.try_read(from, bytes_max.min(READ_BYTES_MAX), whole_first).map_err(|error| self.refuse(&error))
    }

    fn try_read(&self, from: Offset, bytes_max: usize, whole_first: bool) -> Result<Slice, QueueError> {
        let (start, end) = (self.log_start(), self.end()?);
        if from < start || from > end {
            return Err(QueueError::OffsetOutOfRange { offset: from, start, end });
        }
        let mut slice = Slice { bytes: Vec::new(), log_start: start, high_watermark: end, more: false };
        let found = self.cursors.lock().find(from, Instant::now());
        let mut reader = match found {
            Some(reader) => reader,
            // At the end there is no need to look for the place.
            None if from == end && !self.synced_only => self.batches(StartAt::End)?,
            None => tokio::task::block_in_place(|| self.batches(StartAt::Offset(from)))?,
        };
        if reader.offset() <= from {
            self.cursors.lock().keep(from, reader.clone(), Instant::now());
        } else {
            // It was the end at this look; the next one finds records that have come since.
            return Ok(Slice { more: true, ..slice });
        }
        if from < end {
            let is_far = reader.bytes_left() > NEAR_BYTES;
            let mut copy = || reader.copy(&mut slice.bytes, bytes_max, whole_first);
            // Records far behind the end may be on the disk only.
            if is_far { tokio::task::block_in_place(copy) } else { copy() }?;
            // The copy may include records that were published meanwhile.
            slice.high_watermark = self.end()?.max(reader.offset());
            slice.more = reader.offset() < slice.high_watermark;
            self.cursors.lock().keep(reader.offset(), reader, Instant::now());
        }
        Ok(slice)
    }

    fn check_in_place(&self) -> Result<(), Refused> {
        if self.is_gone.load(Ordering::Relaxed) {
            return Err(Refused { code: ErrorCode::KAFKA_STORAGE_ERROR, log_start: Offset(-1) });
        }
        Ok(())
    }

    /// The words that a consumer knows.
    fn refuse(&self, error: &QueueError) -> Refused {
        if let QueueError::OffsetOutOfRange { start, .. } = error {
            self.log_start.fetch_max(start.0, Ordering::Relaxed);
            return Refused { code: ErrorCode::OFFSET_OUT_OF_RANGE, log_start: *start };
        }
        self.note_trouble(error, "a mounted queue cannot be read");
        Refused { code: ErrorCode::KAFKA_STORAGE_ERROR, log_start: Offset(-1) }
    }

    /// Remembers damage for health, and says what went wrong.
    fn note_trouble(&self, error: &QueueError, what: &str) {
        let is_damage = error.kind() != ErrorKind::Retry && !matches!(error, QueueError::OverBound { .. });
        if is_damage && !self.notice_if_gone() {
            self.damage.lock().get_or_insert_with(|| error.to_string());
        }
        STORAGE_TROUBLE.warn(|suppressed| {
            tracing::error!(topic = &*self.name, suppressed, %error, "{what}");
        });
    }

    fn trouble(&self) -> Option<Finding> {
        let (name, topic) = (&self.name, Object::Topic(self.name.to_string()));
        if self.is_gone.load(Ordering::Relaxed) {
            let text = format!(
                "the queue of topic {name} is gone from {}, or another one is there: restart the server when it is as it \
                 should be",
                self.dir.display()
            );
            return Some(Finding::critical(Code::QueueGone, topic, text));
        }
        let damage = self.damage.lock();
        let text = format!("the queue of topic {name} is damaged: {}", damage.as_ref()?);
        Some(Finding::critical(Code::QueueDamaged, topic, text))
    }

    /// Looks at the directory: whether the queue is still there, and where it starts.
    fn look(&self) {
        if self.notice_if_gone() {
            return;
        }
        if let Ok(start) = self.view.start_offset() {
            self.log_start.fetch_max(start.0, Ordering::Relaxed);
        }
        let start = self.log_start();
        self.cursors.lock().release(start, Instant::now());
        // A search may hold it for long, and readers wait for this thread: another look comes.
        if let Some(mut facts) = self.facts.try_lock() {
            facts.retain(|base, _| *base >= start);
        }
    }

    /// Whether the queue is gone. Fetches that wait for it are woken when that changes.
    fn notice_if_gone(&self) -> bool {
        let is_gone = !self.view.is_in_place();
        if self.is_gone.swap(is_gone, Ordering::Relaxed) != is_gone {
            let (topic, dir) = (&*self.name, self.dir.display());
            if is_gone {
                tracing::error!(topic, %dir, "the queue of a topic is gone");
            } else {
                tracing::info!(topic, %dir, "the queue of a topic is back");
            }
            self.waiters.wake();
        }
        is_gone
    }
}

/// The topic id of the queue in a directory, if one is there that can be read.
fn id_of(dir: &Path) -> Option<TopicId> {
    QueueView::open(dir).ok().map(|view| topic_id(view.id()))
}

/// The topic id of a queue, in the form of a version 4 UUID whose text does not begin with `-`.
fn topic_id(queue: u128) -> TopicId {
    let mut bytes = queue.to_be_bytes();
    bytes[0] &= 0x7f;
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    TopicId(bytes)
}

#[cfg(test)]
mod tests;
