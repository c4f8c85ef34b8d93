//! The background of a process that appends: memory ahead of the append, the next segment, retention; and
//! beside it the syncs (`syncer.rs`).
//!
//! Two threads for each open queue that has appenders in this process, so that memory is made ready while a
//! sync waits for the disk. Everything they do an append can do without: if a thread is late, the append makes
//! its own room. Where there are no more cores than threads that spin, they run in the place of one of these: so
//! what lies ahead of the append is made ready in portions, as the append gets on; and on two cores the append makes
//! its memory present itself, where files lie in memory and it is not as fast as it can be. Their errors are those that
//! the appends meet themselves; what a sync loses poisons the queue, which every append reports.

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

/// How often retention is looked after, and how long the threads sleep if nobody calls them.
pub(crate) const ROUND: Duration = Duration::from_secs(1);

/// What the appenders of this process have asked for, all together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Duties {
    ahead_bytes: u64,
    pub(crate) sync_interval: Option<Duration>,
    pub(crate) sync_bytes: u64,
    retention: Retention,
}

/// Appended from one call of the keeper to the next at most: it does little at a time, and often.
const STEP_BYTES_MAX: u64 = 512 << 10;

/// The same where [appends make memory present](Keeper::leaves_memory_to_appends).
const LONG_STEP_BYTES: u64 = 4 << 20;

/// Whether the background is to leave memory to the appends, and to have few turns: where files lie in memory, and
/// there is no core for it while one thread appends and another one waits for it, both spinning.
pub(crate) fn lacks_cores(core: &Core) -> bool {
    let are_few = std::thread::available_parallelism().is_ok_and(|cores| cores.get() <= 2);
    are_few && sys::is_in_memory(core.control.file())
}

/// Whether the queue is appended to as fast as it goes: then its readers are behind anyway, and a turn of the background
/// instead of theirs costs nothing, while it saves the appends their time.
#[derive(Clone, Copy, Debug)]
struct Speed {
    /// Since when, and from which position on, it is looked how much is appended.
    since: Instant,
    from: u64,
    is_fast: bool,
}

impl Speed {
    /// Looked at over so many bytes: who catches up after a pause is not taken for fast.
    const WINDOW_BYTES: u64 = 32 << 20;
    /// Fast is more than this, several times what an application appends that does something else besides.
    const FAST_BYTES_PER_S: f64 = 1e9;

    fn new(now: Instant, position: u64) -> Self {
        Self { since: now, from: position, is_fast: false }
    }

    /// Takes in where the queue is by now; whether it is appended to fast.
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
    fn step_bytes(&self, segment_bytes: u64, ahead_bytes: u64, lacks_cores: bool) -> u64 {
        // Each segment has to be prepared, and synced when it is full, so one call at least for each.
        let ahead = match ahead_bytes {
            0 => segment_bytes,
            _ if lacks_cores => LONG_STEP_BYTES,
            ahead_bytes => (ahead_bytes / 2).min(STEP_BYTES_MAX),
        };
        ahead.min(segment_bytes / 2).min(self.sync_step_bytes()).max(1)
    }

    /// Bytes from one call of the syncer to the next, but for the one at the end of a segment.
    fn sync_step_bytes(&self) -> u64 {
        self.sync_interval.map_or(u64::MAX, |_| self.sync_bytes)
    }
}

/// How far ahead memory is made present: as much as is appended while the thread may be kept from running.
///
/// Pages that are made present are written to disk one day, used or not, so it is no more than that.
#[derive(Clone, Copy, Debug)]
struct Pace {
    ahead_bytes: u64,
    /// Since when, and from which position on, it is looked how much is appended.
    since: Instant,
    from: u64,
}

impl Pace {
    /// Ahead at first, and where little is appended.
    const AHEAD_BYTES_MIN: u64 = 1 << 20;
    /// How long the thread may be kept from running.
    const DELAY: Duration = Duration::from_millis(100);

    fn new(now: Instant) -> Self {
        Self { ahead_bytes: 0, since: now, from: 0 }
    }

    /// Adapts to how long half of what is ahead lasts.
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
    /// How far ahead the keeper is at the moment.
    ahead_bytes: AtomicU64,
    /// Whether it leaves memory to the appends, and has few turns, unless appends are fast.
    lacks_cores: bool,
    is_fast: AtomicBool,
    /// Position up to which it has nothing to do then.
    ready_until: AtomicU64,
    stop: AtomicBool,
}

impl Orders {
    pub(crate) fn duties(&self) -> MutexGuard<'_, Duties> {
        self.duties.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Acquire)
    }

    fn has_few_turns(&self) -> bool {
        self.lacks_cores && !self.is_fast.load(Relaxed)
    }
}

/// The threads' handle. Dropping it, with the last appender, ends them after a last sync of everything.
#[derive(Debug)]
pub(crate) struct Keeper {
    orders: Arc<Orders>,
    segment_bytes: u64,
    /// The syncer, and then the keeper.
    threads: Vec<JoinHandle<()>>,
    /// Position from which on the syncer is called. Stored while the duties are held, on which it depends.
    call_syncer_at: AtomicU64,
    speed: Mutex<Speed>,
}

impl Keeper {
    /// Starts the threads, which have few turns if they lack cores ([`lacks_cores`]), and else as many as they want.
    pub(crate) fn start(core: &Arc<Core>, lacks_cores: bool) -> Result<Self, QueueError> {
        let orders = Arc::new(Orders { lacks_cores, ..Orders::default() });
        // Made before the threads, so that a failure to start one ends the other.
        let segment_bytes = core.segments.segment_bytes();
        let mut keeper = Self {
            orders: Arc::clone(&orders),
            segment_bytes,
            threads: Vec::new(),
            call_syncer_at: AtomicU64::new(0),
            speed: Mutex::new(Speed::new(Instant::now(), core.published())),
        };
        let mut syncer = Syncer::new(core, &orders)?;
        keeper.spawn(core, "queue-syncer", move || syncer.run())?;
        let owner = Owner::attach(&core.control)?;
        let mut rounds = Rounds::new(core, owner, orders);
        keeper.spawn(core, "queue-keeper", move || rounds.run())?;
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

    /// Adds what another appender wants to what the others want.
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
        // What the syncer asked for was asked without these duties.
        self.call_syncer_at.store(0, Relaxed);
        drop(duties);
        // Before the first call, which asks for the next by it.
        self.orders.ahead_bytes.fetch_max(least, Relaxed);
        self.wake();
    }

    /// Whether appends make the memory present that they store into, a little at a time.
    ///
    /// Where both cores spin, each turn of the background costs one of the two threads a slice of the scheduler's, some
    /// milliseconds, or has it put on the core of the other. To make memory present costs less than that, but on a disk:
    /// there it may take longer than from one append to the next, and who appends does not keep up.
    pub(crate) fn leaves_memory_to_appends(&self) -> bool {
        self.orders.lacks_cores
    }

    fn wake(&self) {
        for thread in &self.threads {
            thread.thread().unpark();
        }
    }

    /// Tells the threads that the queue has got as far as `position`. Returns the position at which they want
    /// to be told next.
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
        for thread in &self.threads[usize::from(!syncs)..] {
            thread.thread().unpark();
        }
        let ahead_bytes = self.orders.ahead_bytes.load(Relaxed);
        let next = position.saturating_add(duties.step_bytes(
            self.segment_bytes,
            ahead_bytes,
            self.orders.lacks_cores,
        ));
        let is_fast =
            self.speed.lock().unwrap_or_else(PoisonError::into_inner).look(Instant::now(), position);
        self.orders.is_fast.store(is_fast, Relaxed);
        if !self.orders.has_few_turns() {
            return next;
        }
        let sync_next = position.saturating_add(duties.sync_step_bytes());
        next.max(self.orders.ready_until.load(Relaxed).min(sync_next))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.orders.stop.store(true, Release);
        self.wake();
        for thread in self.threads.drain(..) {
            // A panic of the thread is reported where it happened, and there is nothing left to do for it
            // here.
            let _ = thread.join();
        }
    }
}

/// Appended from one step of preparing the next segment to the next, half of what a step does: so the next segment is
/// ready when half of this one is full.
const PREPARE_STEP_BYTES: u64 = 1 << 20;

/// Prepared in one step at most, where the thread was kept from running.
const PREPARE_BYTES_MAX: u64 = 8 << 20;

/// From one step to the next where nothing is appended, but while a lock is kept that others may need.
const PAUSE: Duration = Duration::from_millis(50);

/// What the keeper's thread knows from one round to the next.
///
/// Invariants: pages of `segment` below `present` are in memory, as far as they lie above where the head was.
/// `passed` are segments before it.
struct Rounds {
    core: Arc<Core>,
    owner: Owner,
    orders: Arc<Orders>,
    pace: Pace,
    /// Where the queue ended in the last round.
    looked_at: u64,
    segment: Option<Arc<Segment>>,
    present: u64,
    passed: Passed,
    /// When retention was looked after, and the number of the segment that was appended to.
    kept_at: Option<(Instant, u64)>,
    /// Position from which on there is something to do for the next segment.
    prepare_at: u64,
    /// When something was done for it, and whether there was nothing left to do.
    worked_at: Instant,
    is_ready: bool,
    /// Whether the lock of who prepares segments is kept for the next round.
    clearing: bool,
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
        }
    }

    fn run(&mut self) {
        while !self.orders.stopped() {
            let duties = *self.orders.duties();
            // What fails here an append meets too, and says so.
            let went_on = self.round(&duties).is_ok();
            self.passed.let_go();
            std::thread::park_timeout(self.pause(went_on));
        }
    }

    /// How long to sleep after a round: not at all where nobody appends and others may need the lock that is kept.
    fn pause(&self, went_on: bool) -> Duration {
        if self.is_ready {
            return ROUND;
        }
        let hurries = went_on && self.clearing && self.core.published() == self.looked_at;
        if hurries { Duration::ZERO } else { PAUSE }
    }

    fn round(&mut self, duties: &Duties) -> Result<(), QueueError> {
        let (now, position) = (Instant::now(), self.core.published());
        let appended = position.saturating_sub(std::mem::replace(&mut self.looked_at, position));
        if duties.ahead_bytes == 0 {
            self.is_ready = true;
            return self.keep(&duties.retention, false);
        }
        let ahead_bytes = self.pace.call(now, position, duties.ahead_bytes);
        self.orders.ahead_bytes.store(ahead_bytes, Relaxed);
        let portion = appended.saturating_mul(2).max(2 * STEP_BYTES_MAX);
        self.make_present(ahead_bytes, portion)?;
        let rested = now.saturating_duration_since(self.worked_at) >= PAUSE;
        let idle = !self.is_ready && (rested || self.clearing && appended == 0);
        if idle || self.keeps(self.number()) || position >= self.prepare_at {
            let portion = if idle { u64::MAX } else { portion };
            let portion = portion.clamp(2 * PREPARE_STEP_BYTES, PREPARE_BYTES_MAX);
            return self.make_ready(duties, ahead_bytes, portion);
        }
        Ok(())
    }

    /// Number of the segment that is appended to.
    fn number(&self) -> u64 {
        self.core.published() / self.core.segments.segment_bytes()
    }

    /// A portion of what there is to do for the next segment, if no other process is at it.
    fn make_ready(&mut self, duties: &Duties, ahead_bytes: u64, portion: u64) -> Result<(), QueueError> {
        let core = Arc::clone(&self.core);
        let path = core.control.path();
        if !sys::try_lock_byte(self.owner.file(), PREPARE_BYTE, LockKind::Exclusive).at("lock", path)? {
            self.is_ready = true;
            return self.keep(&duties.retention, false);
        }
        // What can be used again is ready soonest.
        let (kept_lock, mut between) = (self.clearing, || drop(self.make_present(ahead_bytes, portion)));
        let renewed = core.segments.renew_spares(kept_lock, portion, &mut between);
        // And what goes now may be, before anything is made.
        let kept = self.keep(&duties.retention, true);
        self.prepare_at = core.control.published().saturating_add(PREPARE_STEP_BYTES);
        self.worked_at = Instant::now();
        // Nobody else goes on with a file that is being cleared: only here it is known how far it is.
        self.clearing = !renewed.unwrap_or(true);
        self.is_ready = false;
        if !self.clearing {
            // Short of space an append tries again, and says so; here it is tried after a while.
            self.is_ready = self.prepare(ahead_bytes, portion).unwrap_or(true);
            if self.is_ready {
                let end = (self.number() + 1).saturating_mul(core.segments.segment_bytes());
                self.prepare_at = self.prepare_at.max(end.saturating_sub(ahead_bytes));
                if self.orders.has_few_turns() {
                    self.prepare_at = end;
                    self.orders.ready_until.store(end, Relaxed);
                }
            }
            sys::unlock_byte(self.owner.file(), PREPARE_BYTE).at("unlock", path)?;
        }
        kept
    }

    /// Whether retention is to be looked after, while segment `number` is appended to.
    fn keeps(&self, number: u64) -> bool {
        self.kept_at.is_none_or(|(at, kept)| kept != number || at.elapsed() >= ROUND)
    }

    /// Looks after retention, each second and whenever a segment is full.
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

    /// Keeps the file of the segment that begins with `base` for the next one, if it can.
    fn make_spare(&mut self, base: Offset, prepares: bool) -> Result<bool, QueueError> {
        let spare = if prepares { self.core.segments.make_spare(base)? } else { None };
        let Some(inode) = spare else { return Ok(false) };
        if let Some(segment) = self.passed.take(base) {
            self.core.segments.keep_mapping(inode, segment);
        }
        Ok(true)
    }

    /// Makes the bytes that the next appends store into present in this process, up to `portion` more of them.
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
        let Some(segment) = self.segment.as_ref().filter(|_| !self.orders.has_few_turns()) else {
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

    /// Goes on with preparing the next segment, and makes memory present meanwhile: to allocate takes longer than
    /// an appender takes for what is ahead of it. Returns whether it is ready by now.
    fn prepare(&mut self, ahead_bytes: u64, portion: u64) -> Result<bool, QueueError> {
        let core = Arc::clone(&self.core);
        // What is ahead of the append beyond the end of its segment.
        let segment_bytes = core.segments.segment_bytes();
        let within = core.published() % segment_bytes;
        let beyond = (within + ahead_bytes).saturating_sub(segment_bytes).min(segment_bytes);
        let beyond = if self.orders.has_few_turns() { 0 } else { beyond };
        // What fails there fails in the next round, too.
        core.segments.prepare(portion, beyond, || drop(self.make_present(ahead_bytes, portion)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::appender::Appender;
    use crate::options::CreateOptions;
    use crate::queue::Queue;
    use crate::segment::{PREPARED_NAMES, make_file};
    use crate::spare::SPARE_NAMES;

    #[test]
    fn the_keeper_is_called_for_whatever_it_has_to_do() {
        const SEGMENT: u64 = 1 << 20;
        let hour = Some(Duration::from_hours(1));
        let sync_step = |duties: &Duties| duties.sync_interval.map_or(u64::MAX, |_| duties.sync_bytes);
        for (ahead_bytes, sync_interval, sync_bytes, step) in [
            (0, None, 0, SEGMENT / 2),
            (1 << 16, None, 0, 1 << 15),
            (1 << 30, None, 0, SEGMENT / 2),
            (0, hour, u64::MAX, SEGMENT / 2),
            (1 << 16, hour, 4000, 4000),
            (1 << 16, hour, u64::MAX, 1 << 15),
            (0, hour, 4000, 4000),
            (1 << 16, hour, 0, 1),
        ] {
            let duties = Duties { ahead_bytes, sync_interval, sync_bytes, retention: Retention::default() };
            assert_eq!(duties.step_bytes(SEGMENT, ahead_bytes, false), step, "{duties:?}");
            let step = if ahead_bytes > 0 { sync_step(&duties).min(SEGMENT / 2) } else { step };
            assert_eq!(duties.step_bytes(SEGMENT, ahead_bytes, true), step.max(1), "{duties:?}");
        }
    }

    #[test]
    fn what_is_ahead_grows_while_much_is_appended_and_shrinks_after() {
        let begin = Instant::now();
        let mut pace = Pace::new(begin);
        let (mut now, mut position) = (begin, 0);
        let mut call = |(after_ms, appended_mib): (u64, u64)| {
            now += Duration::from_millis(after_ms);
            position += appended_mib << 20;
            pace.call(now, position, 20 << 20) >> 20
        };
        assert_eq!([(1, 0), (1, 1), (1, 1), (1, 2), (1, 4), (1, 8)].map(&mut call), [1, 2, 4, 8, 16, 20]);
        assert_eq!([(1, 1), (1, 1), (40, 1)].map(&mut call), [20, 20, 20], "too little to tell");
        assert_eq!([(60, 10), (60, 10), (190, 10)].map(&mut call), [20, 20, 20], "that is about the pace");
        assert_eq!([(1000, 1); 5].map(&mut call), [10, 5, 2, 1, 1]);
        assert_eq!(Pace::new(begin).call(begin, 0, 4096), 4096, "no more than asked for");
    }

    /// A new queue's core, with no threads at it.
    fn core(dir: &tempfile::TempDir, segment_bytes: u64) -> (Queue, Arc<Core>) {
        let queue = Queue::create(dir.path(), CreateOptions { segment_bytes }).expect("made");
        let options = AppendOptions { ahead_bytes: 0, ..AppendOptions::default() };
        let core = Arc::clone(&queue.appender(options).expect("there").core);
        (queue, core)
    }

    #[test]
    fn appends_are_fast_that_are_so_for_many_megabytes() {
        let begun = Instant::now();
        let after = |ms| begun + Duration::from_millis(ms);
        let mut speed = Speed::new(begun, 0);
        assert!(!speed.look(after(1), 8 << 20), "that may be who catches up");
        assert!(!speed.look(after(50), 32 << 20));
        assert!(speed.look(after(60), 64 << 20));
        assert!(speed.look(after(500), 65 << 20), "nobody knows yet");
        assert!(!speed.look(after(600), 96 << 20));
    }

    #[test]
    fn an_appender_that_wants_syncs_has_them_from_its_first_call_on() {
        const SEGMENT: u64 = 1 << 20;
        let dir = tempfile::tempdir().expect("a directory");
        let (_queue, core) = core(&dir, SEGMENT);
        let keeper = Keeper::start(&core, false).expect("threads");
        let asynchronous = AppendOptions::default();
        keeper.serve(&asynchronous);
        keeper.call(100);
        assert_eq!(keeper.call_syncer_at.load(Relaxed), SEGMENT, "to sync it when it is full");
        let durability = Durability::SyncEvery { interval: Duration::from_hours(1), bytes: 4000 };
        keeper.serve(&AppendOptions { durability, ..asynchronous });
        keeper.call(200);
        assert_eq!(keeper.call_syncer_at.load(Relaxed), 4200);
    }

    #[test]
    fn a_roll_finds_the_next_segment_ready_whoever_makes_memory_present() {
        use std::os::unix::fs::MetadataExt as _;
        const SEGMENT: u64 = 8 << 20;
        for lacks_cores in [false, true] {
            let dir = tempfile::tempdir().expect("a directory");
            let (queue, core) = core(&dir, SEGMENT);
            let keeper = Arc::new(Keeper::start(&core, lacks_cores).expect("threads"));
            let mut appender =
                Appender::attach(Arc::clone(&core), Arc::clone(&keeper), AppendOptions::default())
                    .expect("there");
            let inode = |path| std::fs::metadata(path).map(|found| found.ino());
            let mut records = 0;
            for end in (1..=3).map(|number| number * SEGMENT) {
                let deadline = Instant::now() + Duration::from_secs(20);
                let lacks = || lacks_cores && keeper.orders.ready_until.load(Relaxed) != end;
                let prepared = loop {
                    if let Ok(inode) = inode(dir.path().join(PREPARED_NAMES[0]))
                        && !lacks()
                    {
                        break inode;
                    }
                    assert!(Instant::now() < deadline, "{lacks_cores}: nothing is ready before {end}");
                    std::thread::sleep(Duration::from_millis(1));
                };
                assert_eq!(keeper.call(core.published()) == end, lacks_cores, "called at the end only");
                while core.published() < end {
                    appender.append(&[7; 1000]).expect("room");
                    records += 1;
                }
                let base = core.head().expect("whole").segment_base;
                assert_eq!(inode(core.segments.path(base)).expect("there"), prepared);
            }
            assert_eq!(queue.verify().expect("whole"), records);
        }
    }

    #[test]
    fn who_clears_a_file_while_nobody_appends_keeps_the_lock_no_longer_than_that_takes() {
        // Four or five portions, as the first one is large or small.
        const SEGMENT: u64 = 32 << 20;
        let dir = tempfile::tempdir().expect("a directory");
        let (queue, core) = core(&dir, SEGMENT);
        let owner = Owner::attach(&core.control).expect("not many");
        let mut rounds = Rounds::new(&core, owner, Arc::default());
        make_file(&dir.path().join(SPARE_NAMES[0]), SEGMENT).expect("room");
        let duties = Duties { ahead_bytes: 1 << 20, ..Duties::default() };
        let round = |rounds: &mut Rounds| {
            rounds.round(&duties).expect("room");
            (rounds.clearing, rounds.pause(true))
        };
        assert_eq!(round(&mut rounds), (true, Duration::ZERO));
        assert_eq!(rounds.pause(false), PAUSE, "no loop over what fails");
        let options = AppendOptions { ahead_bytes: 0, ..AppendOptions::default() };
        queue.appender(options).expect("there").append(&[1; 1000]).expect("room");
        assert_eq!(rounds.pause(true), PAUSE, "who appends needs the core more");
        rounds.looked_at = core.published();
        assert_eq!([round(&mut rounds), round(&mut rounds)], [(true, Duration::ZERO); 2]);
        assert!((0..2).any(|_| round(&mut rounds) == (false, ROUND)), "each round does a portion");
    }

    #[test]
    fn who_has_no_retention_does_not_list_the_segments() {
        let dir = tempfile::tempdir().expect("a directory");
        let options = CreateOptions { segment_bytes: 4096 };
        let queue = Queue::create(dir.path(), options).expect("made");
        let appender =
            queue.appender(AppendOptions { ahead_bytes: 0, ..AppendOptions::default() }).expect("there");
        let owner = Owner::attach(&appender.core.control).expect("not many");
        let mut rounds = Rounds::new(&appender.core, owner, Arc::default());
        std::fs::rename(appender.core.segments.path(Offset(0)), dir.path().join("hidden")).expect("there");
        assert!(queue.status().is_err(), "who lists them finds one missing");
        assert!(rounds.keep(&Retention::default(), false).is_ok());
        rounds.kept_at = None;
        let much = Retention { bytes: Some(1 << 30), ..Retention::default() };
        assert!(rounds.keep(&much, false).is_err());
    }
}
