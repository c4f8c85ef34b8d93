//! The background threads of a process that appends: the keeper makes memory present, prepares the next segment and
//! applies retention; the syncer (`syncer.rs`) syncs.
//!
//! Each open queue with appenders in this process has these two threads, so that memory is made ready while a sync
//! waits for the disk. An append needs neither: if a thread is late, the append makes its own room.
//!
//! If the spinning threads occupy all cores, the keeper would take the place of one of them. It therefore prepares
//! memory in portions as the append proceeds; on two cores with files in memory, the append itself prepares a little
//! at a time ([`Manner`]). Appends meet the keeper's errors themselves; a failed sync poisons the queue, which every
//! append reports.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use riverrun_types::Offset;

use crate::error::{At as _, QueueError};
use crate::layout::PREPARE_BYTE;
use crate::lock::Owner;
use crate::options::{AppendOptions, Durability, Retention};
use crate::passed::Passed;
use crate::queue::Core;
use crate::retention;
use crate::segment::Segment;
use crate::syncer::Syncer;
use crate::sys::{self, LockKind};

/// How often retention is applied, and how long the threads sleep if no append calls them.
pub(crate) const ROUND: Duration = Duration::from_secs(1);

/// The combined requests of this process's appenders.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Duties {
    ahead_bytes: u64,
    pub(crate) sync_interval: Option<Duration>,
    pub(crate) sync_bytes: u64,
    retention: Retention,
}

/// How much is made ready at a time, and by which thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Much, by the keeper: the queue is appended to at full speed, and running the keeper costs no latency.
    Large,
    /// In portions, by the keeper.
    Portions,
    /// Little, by the append itself, in some microseconds. A run of the keeper would cost one of two spinning threads
    /// a time slice of some milliseconds.
    Little,
}

impl Manner {
    /// Most bytes appended between two calls of the keeper.
    fn step_bytes(self) -> u64 {
        match self {
            Self::Large => 16 << 20,
            Self::Portions => 512 << 10,
            Self::Little => 128 << 10,
        }
    }

    /// Bytes made ready in one step: twice what was `appended` since the last. A large step is limited to some tens
    /// of milliseconds, because stopping the threads waits for it and other processes may need the locks.
    fn portion(self, appended: u64) -> u64 {
        match self {
            Self::Large => 4 * self.step_bytes(),
            Self::Portions => appended.saturating_mul(2).max(2 * self.step_bytes()),
            Self::Little => 2 * self.step_bytes(),
        }
    }
}

/// True if the keeper leaves its work to the appends unless they are fast: files lie in memory, and one spinning
/// appender and one spinning reader occupy all cores.
pub(crate) fn lacks_cores(core: &Core) -> bool {
    let are_few = std::thread::available_parallelism().is_ok_and(|cores| cores.get() <= 2);
    are_few && sys::is_in_memory(core.control.file())
}

/// Whether the queue is appended to at full speed. Its readers are behind then, so that a run of the keeper delays
/// none of them, and it saves the appends time.
#[derive(Clone, Copy, Debug)]
struct Speed {
    /// Beginning of the measured window, as time and as position.
    since: Instant,
    from: u64,
    is_fast: bool,
}

impl Speed {
    /// Window length in bytes: long enough that catching up after a pause does not count as fast.
    const WINDOW_BYTES: u64 = 32 << 20;
    /// Above this an append is fast: several times the rate of an application that also does other work.
    const FAST_BYTES_PER_S: f64 = 0.7e9;

    fn new(now: Instant, position: u64) -> Self {
        Self { since: now, from: position, is_fast: false }
    }

    /// Excludes time in which appends did the keeper's work: it would keep them from ever counting as fast again.
    fn leave_out(&mut self, time: Duration) {
        self.since += time;
    }

    /// Updates the window with the queue's position. Returns whether the queue is appended to at full speed.
    fn look(&mut self, now: Instant, position: u64) -> bool {
        let bytes = position.saturating_sub(self.from);
        if bytes >= Self::WINDOW_BYTES {
            let passed = now.saturating_duration_since(self.since);
            let is_fast = bytes as f64 > passed.as_secs_f64() * Self::FAST_BYTES_PER_S;
            *self = Self { is_fast, ..Self::new(now, position) };
        }
        self.is_fast
    }
}

impl Duties {
    /// Bytes from one call to the next, where the keeper makes `ahead_bytes` present.
    fn step_bytes(&self, segment_bytes: u64, ahead_bytes: u64, manner: Manner) -> u64 {
        // Each segment must be prepared, and synced when it is full, so each needs at least one call.
        let ahead = match ahead_bytes {
            0 => segment_bytes,
            _ if manner == Manner::Little => manner.step_bytes(),
            ahead_bytes => (ahead_bytes / 2).min(manner.step_bytes()),
        };
        ahead.min(segment_bytes / 2).min(self.sync_step_bytes()).max(1)
    }

    /// Bytes from one call of the syncer to the next, apart from the call at the end of a segment.
    fn sync_step_bytes(&self) -> u64 {
        self.sync_interval.map_or(u64::MAX, |_| self.sync_bytes)
    }
}

/// How far ahead memory is made present: as much as is appended while the thread may be kept from running.
///
/// The kernel eventually writes every present page to disk, used or not, so the keeper makes no more of them present.
#[derive(Clone, Copy, Debug)]
struct Pace {
    ahead_bytes: u64,
    /// Beginning of the measured window, as time and as position.
    since: Instant,
    from: u64,
}

impl Pace {
    /// Bytes ahead at first, and while little is appended.
    const AHEAD_BYTES_MIN: u64 = 1 << 20;
    /// How long the scheduler may keep the thread from running.
    const DELAY: Duration = Duration::from_millis(100);

    fn new(now: Instant) -> Self {
        Self { ahead_bytes: 0, since: now, from: 0 }
    }

    /// Adapts to the time in which half of the bytes ahead are used.
    fn call(&mut self, now: Instant, position: u64, ahead_bytes_max: u64) -> u64 {
        let passed = now.saturating_duration_since(self.since);
        if passed > Self::DELAY * 2 {
            self.ahead_bytes /= 2;
            (self.since, self.from) = (now, position);
        } else if position.saturating_sub(self.from) >= self.ahead_bytes / 2 {
            if passed < Self::DELAY / 2 {
                self.ahead_bytes = self.ahead_bytes.saturating_mul(2);
            }
            (self.since, self.from) = (now, position);
        }
        self.ahead_bytes = self.ahead_bytes.max(Self::AHEAD_BYTES_MIN).min(ahead_bytes_max);
        self.ahead_bytes
    }
}

#[derive(Debug, Default)]
pub(crate) struct Orders {
    duties: Mutex<Duties>,
    /// How many bytes ahead the keeper is at the moment.
    ahead_bytes: AtomicU64,
    /// True if the keeper leaves its work to the appends unless they are fast.
    lacks_cores: bool,
    is_fast: AtomicBool,
    /// Position up to which the appends have nothing to make ready.
    ready_until: AtomicU64,
    stop: AtomicBool,
}

impl Orders {
    pub(crate) fn duties(&self) -> MutexGuard<'_, Duties> {
        lock(&self.duties)
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Acquire)
    }

    fn manner(&self) -> Manner {
        match (self.is_fast.load(Relaxed), self.lacks_cores) {
            (true, _) => Manner::Large,
            (false, true) => Manner::Little,
            (false, false) => Manner::Portions,
        }
    }
}

/// Handle of both threads. Dropping it, with the last appender, ends them after a last sync of everything.
#[derive(Debug)]
pub(crate) struct Keeper {
    orders: Arc<Orders>,
    segment_bytes: u64,
    /// The syncer, and then the keeper.
    threads: Vec<JoinHandle<()>>,
    /// Position from which on the syncer is called. Stored while the duties' lock is held, because it depends on
    /// them.
    call_syncer_at: AtomicU64,
    speed: Mutex<Speed>,
    /// State of the keeper's work, used by its thread or by an append.
    rounds: Arc<Mutex<Rounds>>,
}

impl Keeper {
    /// Starts the threads. With `lacks_cores` they leave their work to the appends ([`lacks_cores`]).
    pub(crate) fn start(core: &Arc<Core>, lacks_cores: bool) -> Result<Self, QueueError> {
        let orders = Arc::new(Orders { lacks_cores, ..Orders::default() });
        let owner = Owner::attach(&core.control)?;
        let rounds = Arc::new(Mutex::new(Rounds::new(core, owner, Arc::clone(&orders))));
        // Made before the threads are started, so that a failure to start one ends the other.
        let segment_bytes = core.segments.segment_bytes();
        let mut keeper = Self {
            orders: Arc::clone(&orders),
            segment_bytes,
            threads: Vec::new(),
            call_syncer_at: AtomicU64::new(0),
            speed: Mutex::new(Speed::new(Instant::now(), core.published())),
            rounds: Arc::clone(&rounds),
        };
        let mut syncer = Syncer::new(core, &orders)?;
        keeper.spawn(core, "queue-syncer", move || syncer.run())?;
        keeper.spawn(core, "queue-keeper", move || run(&rounds, &orders))?;
        Ok(keeper)
    }

    fn spawn(
        &mut self,
        core: &Core,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<(), QueueError> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        self.threads.push(thread.at("start a thread for", core.segments.dir())?);
        Ok(())
    }

    /// Adds the requests of another appender.
    pub(crate) fn serve(&self, options: &AppendOptions) {
        let mut duties = self.orders.duties();
        duties.ahead_bytes = duties.ahead_bytes.max(options.ahead_bytes);
        if let Durability::SyncEvery { interval, bytes } = options.durability {
            let before = duties.sync_interval.map_or((interval, bytes), |old| (old, duties.sync_bytes));
            duties.sync_interval = Some(before.0.min(interval));
            duties.sync_bytes = before.1.min(bytes);
        }
        let wanted = options.retention;
        if wanted != Retention::default() {
            duties.retention = wanted;
        }
        let least = Pace::AHEAD_BYTES_MIN.min(duties.ahead_bytes);
        // The syncer chose its next call without these duties.
        self.call_syncer_at.store(0, Relaxed);
        drop(duties);
        // Before the first call, which computes the next one from it.
        self.orders.ahead_bytes.fetch_max(least, Relaxed);
        self.wake();
    }

    /// True if appends make the memory present that they store into, a little at a time.
    pub(crate) fn leaves_memory_to_appends(&self) -> bool {
        self.orders.manner() == Manner::Little
    }

    fn wake(&self) {
        for thread in &self.threads {
            thread.thread().unpark();
        }
    }

    /// Tells the threads that the queue has reached `position`. Returns the position at which to call next.
    #[cold]
    pub(crate) fn call(&self, position: u64) -> u64 {
        let held = self.orders.duties();
        let duties = *held;
        let syncs = position >= self.call_syncer_at.load(Relaxed);
        if syncs {
            let segment_end = (position / self.segment_bytes + 1).saturating_mul(self.segment_bytes);
            let next = position.saturating_add(duties.sync_step_bytes()).min(segment_end);
            self.call_syncer_at.store(next, Relaxed);
        }
        drop(held);
        let is_fast = lock(&self.speed).look(Instant::now(), position);
        self.orders.is_fast.store(is_fast, Relaxed);
        let manner = self.orders.manner();
        let done = manner == Manner::Little && self.work(&duties);
        let called = usize::from(!syncs)..self.threads.len() - usize::from(done);
        for thread in self.threads.get(called).unwrap_or_default() {
            thread.thread().unpark();
        }
        let ahead_bytes = self.orders.ahead_bytes.load(Relaxed);
        let next = position.saturating_add(duties.step_bytes(self.segment_bytes, ahead_bytes, manner));
        if manner != Manner::Little {
            return next;
        }
        let look_next = position.saturating_add(duties.sync_step_bytes().min(Speed::WINDOW_BYTES));
        next.max(self.orders.ready_until.load(Relaxed).min(look_next))
    }

    /// Does a little of the keeper's work in the calling thread. False if something is due that takes long.
    fn work(&self, duties: &Duties) -> bool {
        // The thread that has the lock does the work.
        let Ok(mut rounds) = self.rounds.try_lock() else { return true };
        // The keeper, and an append that depends on it, will meet the same error.
        self.in_its_place(|| rounds.work(duties).unwrap_or(false))
    }

    /// Runs `work` in the place of the keeper.
    pub(crate) fn in_its_place<T>(&self, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let done = work();
        lock(&self.speed).leave_out(begin.elapsed());
        done
    }
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.orders.stop.store(true, Release);
        self.wake();
        for thread in self.threads.drain(..) {
            // A panic of the thread was reported where it happened; nothing is left to do here.
            let _ = thread.join();
        }
    }
}

/// Bytes appended between two steps of preparing the next segment: half of what a step prepares, so that the next
/// segment is ready when half of this one is full.
const PREPARE_STEP_BYTES: u64 = 1 << 20;

/// Most bytes prepared in one step, after the thread was kept from running.
const PREPARE_BYTES_MAX: u64 = 8 << 20;

/// Pause between steps while nothing is appended and a lock is kept that other processes may need.
const PAUSE: Duration = Duration::from_millis(50);

/// The keeper's thread.
fn run(rounds: &Mutex<Rounds>, orders: &Orders) {
    while !orders.stopped() {
        let duties = *orders.duties();
        let mut rounds = lock(rounds);
        // An append meets the same error and reports it.
        let went_on = rounds.round(&duties).is_ok();
        rounds.passed.let_go();
        let pause = rounds.pause(went_on);
        drop(rounds);
        std::thread::park_timeout(pause);
    }
}

/// State of the keeper between two rounds.
///
/// Invariants: pages of `segment` below `present` are in memory, as far as they lie above where the head was.
/// `passed` are segments before it.
#[derive(Debug)]
struct Rounds {
    core: Arc<Core>,
    owner: Owner,
    orders: Arc<Orders>,
    pace: Pace,
    /// End of the queue in the last round.
    looked_at: u64,
    segment: Option<Arc<Segment>>,
    present: u64,
    passed: Passed,
    /// When retention was last applied, and the number of the active segment then.
    kept_at: Option<(Instant, u64)>,
    /// Position from which on the next segment needs work.
    prepare_at: u64,
    /// When the next segment was last worked on, and whether it is finished.
    worked_at: Instant,
    is_ready: bool,
    /// Whether the lock of preparing segments is kept for the next round.
    clearing: bool,
    /// When the queue's files were last compared with those that were opened.
    looked_in_place_at: Option<Instant>,
}

impl Rounds {
    fn new(core: &Arc<Core>, owner: Owner, orders: Arc<Orders>) -> Self {
        Self {
            core: Arc::clone(core),
            owner,
            orders,
            pace: Pace::new(Instant::now()),
            looked_at: core.published(),
            segment: None,
            present: 0,
            passed: Passed::default(),
            kept_at: None,
            prepare_at: 0,
            worked_at: Instant::now(),
            is_ready: false,
            clearing: false,
            looked_in_place_at: None,
        }
    }

    /// How long to sleep after a round. Zero while nothing is appended and a lock is kept that other processes may
    /// need.
    fn pause(&self, went_on: bool) -> Duration {
        if self.is_ready {
            return ROUND;
        }
        let hurries = went_on && self.clearing && self.core.published() == self.looked_at;
        if hurries { Duration::ZERO } else { PAUSE }
    }

    fn round(&mut self, duties: &Duties) -> Result<(), QueueError> {
        let now = Instant::now();
        if self.looked_in_place_at.is_none_or(|at| now.saturating_duration_since(at) >= ROUND) {
            self.looked_in_place_at = Some(now);
            // Appends report the error.
            self.core.check_in_place()?;
        }
        let position = self.core.published();
        let appended = position.saturating_sub(std::mem::replace(&mut self.looked_at, position));
        if duties.ahead_bytes == 0 {
            self.is_ready = true;
            return self.keep(&duties.retention, false);
        }
        let ahead_bytes = self.pace.call(now, position, duties.ahead_bytes);
        self.orders.ahead_bytes.store(ahead_bytes, Relaxed);
        let manner = self.orders.manner();
        let portion = manner.portion(appended);
        self.make_present(ahead_bytes, portion)?;
        let rested = now.saturating_duration_since(self.worked_at) >= PAUSE;
        let idle = !self.is_ready && (rested || self.clearing && appended == 0);
        let is_due = manner != Manner::Little && position >= self.prepare_at;
        if idle || is_due || self.keeps(self.number()) {
            let portion = match manner {
                Manner::Large => portion,
                _ if idle => PREPARE_BYTES_MAX,
                Manner::Portions => portion.clamp(2 * PREPARE_STEP_BYTES, PREPARE_BYTES_MAX),
                Manner::Little => portion,
            };
            return self.make_ready(duties, ahead_bytes, portion);
        }
        Ok(())
    }

    /// Does a little for the next segment, between two appends. False if the keeper's thread has to work: retention
    /// takes long and comes first.
    fn work(&mut self, duties: &Duties) -> Result<bool, QueueError> {
        self.looked_at = self.core.published();
        if duties.ahead_bytes == 0 || self.keeps(self.number()) {
            return Ok(false);
        }
        if self.looked_at >= self.prepare_at {
            self.make_present(0, 0)?;
            self.make_ready(duties, 0, Manner::Little.portion(0))?;
        }
        Ok(true)
    }

    /// Number of the active segment.
    fn number(&self) -> u64 {
        self.core.published() / self.core.segments.segment_bytes()
    }

    /// Makes a portion of the next segment ready, unless another process is doing so.
    fn make_ready(&mut self, duties: &Duties, ahead_bytes: u64, portion: u64) -> Result<(), QueueError> {
        let core = Arc::clone(&self.core);
        let path = core.control.path();
        if !sys::try_lock_byte(self.owner.file(), PREPARE_BYTE, LockKind::Exclusive).at("lock", path)? {
            self.is_ready = true;
            return self.keep(&duties.retention, false);
        }
        // A spare file is ready soonest.
        let (kept_lock, mut between) = (self.clearing, || drop(self.make_present(ahead_bytes, portion)));
        let renewed = core.segments.renew_spares(kept_lock, portion, &mut between);
        // Retention comes before making a file: a segment that it removes may become one.
        let kept = self.keep(&duties.retention, true);
        let manner = self.orders.manner();
        let step_bytes = PREPARE_STEP_BYTES.min(manner.step_bytes());
        self.prepare_at = core.control.published().saturating_add(step_bytes);
        self.worked_at = Instant::now();
        // Only this process knows how far a file is cleared, so no other may continue it.
        self.clearing = !renewed.unwrap_or(true);
        self.is_ready = false;
        if !self.clearing {
            // Short of space, an append tries again and reports it; the keeper tries again after a while.
            self.is_ready = self.prepare(ahead_bytes, portion).unwrap_or(true);
            if self.is_ready {
                let end = (self.number() + 1).saturating_mul(core.segments.segment_bytes());
                self.prepare_at = self.prepare_at.max(end.saturating_sub(ahead_bytes));
                if manner == Manner::Little {
                    self.prepare_at = end;
                    self.orders.ready_until.store(end, Relaxed);
                }
            }
            sys::unlock_byte(self.owner.file(), PREPARE_BYTE).at("unlock", path)?;
        }
        kept
    }

    /// True if retention is due, with segment `number` as the active one.
    fn keeps(&self, number: u64) -> bool {
        self.kept_at.is_none_or(|(at, kept)| kept != number || at.elapsed() >= ROUND)
    }

    /// Applies retention, each second and whenever a segment is full.
    fn keep(&mut self, retention: &Retention, prepares: bool) -> Result<(), QueueError> {
        let core = Arc::clone(&self.core);
        let number = self.number();
        if !self.keeps(number) {
            return Ok(());
        }
        self.kept_at = Some((Instant::now(), number));
        let kept = retention::apply(&core, retention, |base| {
            Ok(self.make_spare(base, prepares)? || core.segments.remove(base, retention.ignore_readers)?)
        });
        kept.map(|_| ())
    }

    /// Keeps the file of the segment that begins with `base` as a spare for the next one, if possible.
    fn make_spare(&mut self, base: Offset, prepares: bool) -> Result<bool, QueueError> {
        let spare = if prepares { self.core.segments.make_spare(base)? } else { None };
        let Some(inode) = spare else { return Ok(false) };
        if let Some(segment) = self.passed.take(base) {
            self.core.segments.keep_mapping(inode, segment);
        }
        Ok(true)
    }

    /// Makes up to `portion` more of the bytes present in this process that the next appends will store into.
    fn make_present(&mut self, ahead_bytes: u64, portion: u64) -> Result<(), QueueError> {
        let head = self.core.head()?;
        let number = head.position / self.core.segments.segment_bytes();
        if self.segment.as_ref().is_none_or(|segment| segment.number != number) {
            let segment = self.core.segments.expect(head.segment_base, number)?;
            self.present = head.position.max(segment.start() + segment.present);
            if let Some(passed) = self.segment.replace(segment) {
                self.passed.push(passed);
            }
        }
        let Some(segment) = self.segment.as_ref().filter(|_| self.orders.manner() != Manner::Little) else {
            return Ok(());
        };
        let begin = self.present.max(head.position);
        let end = (head.position + ahead_bytes).min(begin.saturating_add(portion));
        let end = end.min(segment.start() + segment.map.len() as u64);
        if begin < end {
            segment.map.populate((begin - segment.start()) as usize, (end - begin) as usize);
            self.present = end;
        }
        Ok(())
    }

    /// Continues with preparing the next segment, and makes memory present between the steps: allocating takes longer
    /// than an appender takes to use up the bytes ahead of it. Returns whether the segment is ready.
    fn prepare(&mut self, ahead_bytes: u64, portion: u64) -> Result<bool, QueueError> {
        let core = Arc::clone(&self.core);
        // Bytes ahead of the append that lie beyond the end of its segment.
        let segment_bytes = core.segments.segment_bytes();
        let within = core.published() % segment_bytes;
        let beyond = (within + ahead_bytes).saturating_sub(segment_bytes).min(segment_bytes);
        let beyond = if self.orders.manner() == Manner::Little { 0 } else { beyond };
        // An error here recurs in the next round.
        core.segments.prepare(portion, beyond, || drop(self.make_present(ahead_bytes, portion)))
    }
}

#[cfg(test)]
mod tests;
