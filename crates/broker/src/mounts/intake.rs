//! The intake of a mounted queue: a line of produced batches, and one thread that appends them.
//!
//! Owns the queue's appender, and the states of its [producers](super::producers). A produce request checks its batch, puts it
//! in the line and waits, so that no network thread waits for the holder of the queue, for a segment that is made, or for the
//! disk. Guarantees that
//! - the batches of one connection are appended in their order;
//! - a batch is answered when it is published, or synced where the mount shows only synced records;
//! - a batch that comes again is answered with the offsets of the first.
//!
//! Refuses a batch that has no room or cannot be appended in time, with an error that lets the client try again. A failed append
//! refuses all batches behind it in the line, too. Later batches of an idempotent producer are refused until the first refused
//! one comes again. Other producers that send several batches at once give up their order when they try again, as with Kafka.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use parking_lot::{Condvar, Mutex};
use riverrun_env::{Env, PatientWall};
use riverrun_log::config::LogConfig;
use riverrun_log::producer_state::{
    BatchPlace, ProducerStates, ProducerView, SequenceVerdict, SequencedBatch,
};
use riverrun_log::{AppendError, Appended, ProducedBatch};
use riverrun_protocol::ErrorCode;
use riverrun_queue::{Appender, QueueError, QueueView, StartAt};
use riverrun_records::UnverifiedBatch;
use riverrun_types::{ErrorKind, Offset, TimestampMs};
use tokio::sync::oneshot;

use super::MountedQueue;
use super::claim::Claim;
use super::producers::Producers;
use crate::error::{self, BlamedRecord};

/// Memory of the batches in line, at most: more are refused until some are appended.
const LINE_BYTES_MAX: usize = 64 << 20;
/// Memory of a batch besides its bytes: its place in the line, the channel for its answer, and the findings of its check.
const JOB_BYTES: usize = 1024;
/// How long a batch waits for the holder of the queue: appenders hold it well under a microsecond, unless they are stopped.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two searches for producers to forget.
const EXPIRY_INTERVAL: Duration = Duration::from_mins(1);
/// Bytes at the end of a queue, in whole segments, in which a start looks for producers; two segments at least.
const REMEMBERED_BYTES: u64 = 256 << 20;
const REMEMBERED_SEGMENTS_MIN: usize = 2;
/// How often a start looks at the segments anew because retention has removed some.
const REMEMBER_TRIES: u32 = 5;

const FULL: &str = "as many records wait for the queue as may; try again";
const STOPPING: &str = "the server stops";
const GONE: &str = "the queue is gone from its directory";
const TOO_LATE: &str = "the records could not be appended within the request's timeout";

/// Why a client's batch was not appended, or is not as durable as it has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotAppended {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
    /// The records that are to blame.
    pub(crate) records: Vec<BlamedRecord>,
}

impl NotAppended {
    pub(super) fn new(code: ErrorCode, message: impl fmt::Display) -> Self {
        Self { code, message: message.to_string(), records: Vec::new() }
    }

    fn of(trouble: &AppendError) -> Self {
        let records = error::blamed_records(trouble);
        Self { records, ..Self::new(error::append_error(trouble), trouble) }
    }
}

/// The outcome of a batch.
pub(crate) type Outcome = Result<Appended, NotAppended>;

/// A batch that waits to be appended.
#[derive(Debug)]
struct Job {
    batch: ProducedBatch,
    now: TimestampMs,
    /// Its turn comes before this, or not at all.
    until: Instant,
    answer: oneshot::Sender<Outcome>,
}

impl Job {
    /// The bytes that it takes of the line.
    fn line_bytes(&self) -> usize {
        self.batch.bytes().len().saturating_add(JOB_BYTES)
    }
}

/// Invariants: `bytes` is the sum for `jobs` and the batches that are being appended.
#[derive(Debug, Default)]
struct Line {
    jobs: VecDeque<Job>,
    bytes: usize,
    is_stopping: bool,
}

/// The way of clients' batches into a queue.
///
/// Invariants: `producers` are those of batches that came by way of this cluster. Only the thread of the intake appends.
#[derive(Debug)]
pub(super) struct Intake {
    /// The limits that batches have to keep.
    pub(super) config: LogConfig,
    appender: Mutex<Appender>,
    producers: Mutex<Producers>,
    line: Mutex<Line>,
    came: Condvar,
    env: Env,
    /// The clock for expiries, which must not come because the wall clock was set.
    patient_wall: PatientWall,
    _claim: Claim,
}

impl Intake {
    /// Reads the producers that are to be remembered.
    pub(super) fn open(
        view: &QueueView,
        appender: Appender,
        claim: Claim,
        config: LogConfig,
        env: Env,
    ) -> Result<Self, QueueError> {
        let segments = REMEMBERED_BYTES / view.status()?.segment_bytes;
        let segments_max =
            usize::try_from(segments).map_or(usize::MAX, |max| max.max(REMEMBERED_SEGMENTS_MIN));
        let producers = remembered(view, claim.since, segments_max, env.clock.wall())?;
        Ok(Self {
            config,
            appender: Mutex::new(appender),
            producers: Mutex::new(Producers::new(producers)),
            line: Mutex::default(),
            came: Condvar::new(),
            patient_wall: PatientWall::new(&*env.clock),
            env,
            _claim: claim,
        })
    }

    fn push(&self, job: Job) -> Result<(), NotAppended> {
        let bytes = job.line_bytes();
        let mut line = self.line.lock();
        if line.is_stopping {
            return Err(NotAppended::new(ErrorCode::NOT_LEADER_OR_FOLLOWER, STOPPING));
        }
        // A batch that is larger than the bound by itself has its turn, too.
        if line.bytes > 0 && line.bytes.saturating_add(bytes) > LINE_BYTES_MAX {
            drop(line);
            return Err(self.refuse(&job, NotAppended::new(ErrorCode::KAFKA_STORAGE_ERROR, FULL)));
        }
        line.bytes += bytes;
        line.jobs.push_back(job);
        drop(line);
        self.came.notify_one();
        Ok(())
    }

    /// Waits a while for batches and takes all in the line; none once the server stops and the line is empty.
    fn wait(&self) -> Option<VecDeque<Job>> {
        let mut line = self.line.lock();
        if line.jobs.is_empty() && !line.is_stopping {
            self.came.wait_for(&mut line, EXPIRY_INTERVAL);
        }
        (!line.jobs.is_empty() || !line.is_stopping).then(|| std::mem::take(&mut line.jobs))
    }

    /// Refuses a batch for a while: its producer sends it again, and none of its later batches goes before.
    fn refuse(&self, job: &Job, refused: NotAppended) -> NotAppended {
        self.producers.lock().refuse(job.batch.sequenced(), job.now);
        refused
    }

    /// Refuses all that waits.
    fn refuse_all(&self, trouble: &NotAppended) {
        let jobs = {
            let mut line = self.line.lock();
            let jobs = std::mem::take(&mut line.jobs);
            line.bytes -= jobs.iter().map(Job::line_bytes).sum::<usize>();
            jobs
        };
        for job in jobs {
            let refused = self.refuse(&job, trouble.clone());
            drop(job.answer.send(Err(refused)));
        }
    }

    fn stop(&self) {
        self.line.lock().is_stopping = true;
        self.came.notify_one();
    }

    /// Producers that are remembered.
    fn views(&self) -> Vec<ProducerView> {
        self.producers.lock().views().collect()
    }

    fn expire(&self) {
        let now = self.patient_wall.now(&*self.env.clock);
        self.producers.lock().expire(now, self.config.producer_id_expiration_ms);
    }
}

/// The producers of the batches in the last segments of a queue, from `since` on.
pub(super) fn remembered(
    view: &QueueView,
    since: Offset,
    segments_max: usize,
    now: TimestampMs,
) -> Result<ProducerStates, QueueError> {
    let mut tries = 1;
    loop {
        match try_remember(view, since, segments_max, now) {
            Err(QueueError::OffsetOutOfRange { .. }) if tries < REMEMBER_TRIES => tries += 1,
            remembered => return remembered,
        }
    }
}

fn try_remember(
    view: &QueueView,
    since: Offset,
    segments_max: usize,
    now: TimestampMs,
) -> Result<ProducerStates, QueueError> {
    let mut producers = ProducerStates::new();
    let bases = view.segments()?;
    let first = bases.len().saturating_sub(segments_max);
    let mut reader = view.batches(StartAt::Offset(bases[first].max(since)))?;
    while let Some(header) = reader.pass()? {
        // The first may begin before.
        if header.has_producer_id() && header.base_offset() >= since {
            let place = BatchPlace {
                base_offset: header.base_offset(),
                last_offset: header.next_offset().plus(-1),
                timestamp: header.max_timestamp(),
            };
            producers.record(SequencedBatch::from(&header), place, now);
        }
    }
    Ok(producers)
}

/// Batches that are published and not synced yet.
type Published = Vec<(oneshot::Sender<Outcome>, Appended)>;

impl MountedQueue {
    /// Whether clients may produce to it.
    pub(crate) fn is_writable(&self) -> bool {
        self.intake.is_ok()
    }

    /// The idempotent producers that are remembered.
    pub(crate) fn producers(&self) -> Vec<ProducerView> {
        self.intake.as_ref().map(Intake::views).unwrap_or_default()
    }

    /// Checks a client's batch and puts it in the line. The receiver that is returned gets the outcome. A batch whose turn comes
    /// after `until` is not appended any more.
    pub(crate) fn produce(
        &self,
        batch: BytesMut,
        now: TimestampMs,
        until: Instant,
    ) -> Result<oneshot::Receiver<Outcome>, NotAppended> {
        let intake = self.intake.as_ref().map_err(NotAppended::clone)?;
        let batch = ProducedBatch::check(batch, &intake.config, now);
        let batch = batch.map_err(|trouble| NotAppended::of(&trouble))?;
        let (answer, answered) = oneshot::channel();
        let job = Job { batch, now, until, answer };
        if let Err(gone) = self.check_in_place() {
            return Err(intake.refuse(&job, NotAppended::new(gone.code, GONE)));
        }
        intake.push(job)?;
        Ok(answered)
    }

    /// The work of the intake's thread until it is stopped.
    pub(super) fn take_in(&self) {
        let Ok(intake) = &self.intake else { return };
        let mut expired = Instant::now();
        while self.take_in_waiting(intake) {
            if expired.elapsed() >= EXPIRY_INTERVAL {
                intake.expire();
                expired = Instant::now();
            }
        }
    }

    /// Waits a while for batches and appends them; false once the server stops and everything is answered.
    pub(super) fn take_in_waiting(&self, intake: &Intake) -> bool {
        let Some(jobs) = intake.wait() else { return false };
        let bytes: usize = jobs.iter().map(Job::line_bytes).sum();
        if !jobs.is_empty() {
            self.append_all(intake, jobs);
        }
        intake.line.lock().bytes -= bytes;
        true
    }

    /// Has the thread end when all that waits is answered.
    pub(super) fn stop_taking_in(&self) {
        if let Ok(intake) = &self.intake {
            intake.stop();
        }
    }

    fn append_all(&self, intake: &Intake, jobs: VecDeque<Job>) {
        let mut appender = intake.appender.lock();
        let gone = || NotAppended::new(ErrorCode::KAFKA_STORAGE_ERROR, GONE);
        // A trouble that keeps one batch out keeps out those behind it, too, or their order would be lost.
        let mut trouble = self.notice_if_gone().then(gone);
        let mut published: Published = Vec::new();
        for job in jobs {
            let outcome = match &trouble {
                Some(trouble) => Err(intake.refuse(&job, trouble.clone())),
                None if job.until <= Instant::now() => {
                    Err(intake.refuse(&job, NotAppended::new(ErrorCode::REQUEST_TIMED_OUT, TOO_LATE)))
                }
                None => self.append_one(intake, &mut appender, &job, &mut trouble),
            };
            match outcome {
                Ok(done) if self.shows_synced_only() => published.push((job.answer, done)),
                // The client may be gone.
                answer => drop(job.answer.send(answer)),
            }
        }
        if let Some(trouble) = &trouble {
            // Batches that have come meanwhile stand behind the refused ones.
            intake.refuse_all(trouble);
        }
        if !published.is_empty() {
            self.sync_all(&mut appender, published);
        }
    }

    /// One sync serves all batches that wait.
    fn sync_all(&self, appender: &mut Appender, published: Published) {
        let synced = appender.sync().map_err(|error| self.refuse_append(&error));
        for (answer, done) in published {
            drop(answer.send(synced.clone().map(|()| done)));
        }
    }

    /// Appends a batch, unless it is there already. Sets `trouble` if the next ones are to be kept out, too.
    fn append_one(
        &self,
        intake: &Intake,
        appender: &mut Appender,
        job: &Job,
        trouble: &mut Option<NotAppended>,
    ) -> Outcome {
        let sequenced = job.batch.sequenced();
        // Not locked during the append: requests that read the producers do not wait for the queue.
        let verdict = intake.producers.lock().check(sequenced);
        let place = match verdict.map_err(|refused| NotAppended::of(&refused.into()))? {
            SequenceVerdict::Duplicate(place) => place,
            SequenceVerdict::Append => {
                let place = append(appender, &job.batch).map_err(|error| {
                    let refused = self.refuse_append(&error);
                    if error.kind() == ErrorKind::FixRequest {
                        return refused;
                    }
                    *trouble = Some(refused.clone());
                    intake.refuse(job, refused)
                })?;
                intake.producers.lock().record(sequenced, place, job.now);
                return Ok(self.appended(place, job.batch.log_append_time(), job.batch.bytes().len()));
            }
        };
        // The time that was stamped then.
        let stamped = job.batch.log_append_time().map(|_| place.timestamp);
        Ok(self.appended(place, stamped, 0))
    }

    /// A client's answer; a duplicate has added no bytes.
    fn appended(&self, place: BatchPlace, log_append_time: Option<TimestampMs>, bytes: usize) -> Appended {
        Appended {
            base_offset: place.base_offset,
            last_offset: place.last_offset,
            log_append_time,
            log_start_offset: self.log_start(),
            bytes,
            duplicate: bytes == 0,
            loss_count: 0,
        }
    }

    /// The words that a producer knows. All of this may be over when it tries again, but for a batch that is too large.
    pub(super) fn refuse_append(&self, error: &QueueError) -> NotAppended {
        self.note_trouble(error, "records that clients produce to a mounted queue are not acked");
        let code = match error {
            QueueError::TooLarge { .. } => ErrorCode::MESSAGE_TOO_LARGE,
            _ => ErrorCode::KAFKA_STORAGE_ERROR,
        };
        NotAppended::new(code, error)
    }
}

/// Appends a batch, which was checked. It is published when this returns.
fn append(appender: &mut Appender, batch: &ProducedBatch) -> Result<BatchPlace, QueueError> {
    // Another check of the sum would find nothing: these bytes are ours since the first.
    let whole = UnverifiedBatch::only(batch.bytes()).and_then(UnverifiedBatch::trust);
    let whole = whole.map_err(|error| QueueError::Options(error.to_string()))?;
    let base_offset = appender.append_whole(&whole)?;
    let header = batch.header();
    Ok(BatchPlace {
        base_offset,
        last_offset: base_offset.plus(i64::from(header.last_offset_delta())),
        timestamp: header.max_timestamp(),
    })
}
