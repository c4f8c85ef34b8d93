//! The plan decides how a read that may have to wait for the disk goes on. No other module decides it.
//!
//! Pure: facts in, a decision out. The pass of a fetch ([`crate::fetch`]) and the outbox of a connection ([`crate::net`])
//! gather the facts and carry the decisions out; [`super::CatchUp`] remembers the cold spells. A read is decided on at five
//! moments, because each brings facts that were not known before:
//!
//! | moment | what is known by then | decision |
//! |---|---|---|
//! | a fetch begins | whether its connection has a cold spell | [`ColdSpell::begin_fetch`]: the [`Thread`], and where the pass begins |
//! | a log dir comes up | whether records were found, and whether it hangs | [`DirTurn`]: await a turn, take a free one, or none |
//! | a partition comes up | what the pass has spent, whose turn it is, whether a log has the records | [`Step`]: read it now, or postpone it |
//! | the partition's log has answered | how near the index is, how much has to be copied, what was proved | [`ReadEnd`]: read, or postponed after all |
//! | a range is sent | which of its pages are cached | [`Thread::of_range`] |
//!
//! The distance of a reader from the log's end decides nothing here, but which pages are dropped later ([`super::readers`]).
//! The line in which sources wait ([`crate::flow::inflate_offload`]) gives out the turns of a log dir. The log itself bounds
//! how much one read proves.

use std::time::Duration;

use riverrun_log::Patience;

/// Fetches for which a cold spell lasts after its connection has met the disk.
pub(super) const SPELL_FETCHES: u32 = 16;
/// Bytes of records that one pass proves before it answers with the records that it has: others wait for the disk or for its
/// thread. The log bounds the bytes that one partition proves alike.
const PROVED_BYTES_MAX: u64 = 1024 * 1024;
/// Time that one pass spends on opening logs and on finding and proving records, before it answers with those that it has.
/// Many small partitions that are cold cost few bytes each, and a turn of the disk each.
const COLD_TIME_MAX: Duration = Duration::from_millis(10);
/// Bytes of files that one read copies on a thread that serves others, for want of descriptors: well under a millisecond.
pub(crate) const COPIED_BYTES_MAX: usize = 1024 * 1024;

/// The thread on which records are read or sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thread {
    /// A thread that serves other connections as well: it waits for the disk only where no fact foretold it, and briefly.
    Shared,
    /// A thread that serves no other connection meanwhile, in a turn of the log dir: it may wait for the disk.
    Own,
}

impl Thread {
    /// The thread for a range of a file that is about to be sent. In a cold spell pages between its ends may be missing, too.
    pub(crate) fn of_range(ends: Ends, has_spell: bool) -> Self {
        match (ends, has_spell) {
            (Ends::Cached, false) => Self::Shared,
            (Ends::Cached, true) | (Ends::Missing, _) => Self::Own,
        }
    }

    /// How long a log may look for the first batch.
    pub(crate) fn patience(self) -> Patience {
        match self {
            Self::Shared => Patience::None,
            Self::Own => Patience::Slice,
        }
    }

    /// Whether so many bytes may be copied out of files: a batch larger than [`COPIED_BYTES_MAX`] is found whole.
    pub(crate) fn may_copy(self, bytes: usize) -> bool {
        match self {
            Self::Shared => bytes <= COPIED_BYTES_MAX,
            Self::Own => true,
        }
    }
}

/// The first and the last page of a range of a file. The system reads ahead, so one may be cached and the other not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Both are in the page cache, or the system does not say.
    Cached,
    /// One of them is not cached: the connection has met the disk.
    Missing,
}

/// The next reads of a connection are expected to meet the disk: one of the last did, or nothing is known of it yet.
///
/// Invariants: a spell that is remembered has fetches left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ColdSpell {
    fetches_left: u32,
    /// The place where a fetch without a session begins.
    begin_at: usize,
}

/// The thread and the place with which a fetch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FetchStart {
    pub(crate) thread: Thread,
    /// The place of the partition with which a fetch without a session begins.
    pub(crate) begin_at: usize,
}

impl FetchStart {
    /// The start for a connection without a cold spell.
    pub(super) const WARM: Self = Self { thread: Thread::Shared, begin_at: 0 };
}

impl ColdSpell {
    /// The spell of a new connection. It is unknown where it will read, so its first fetch may meet the disk.
    pub(super) const OF_NEWCOMER: Self = Self { fetches_left: 1, begin_at: 0 };

    /// A pass has postponed the partition at `begin_at`: the next pass without a session begins there.
    pub(super) fn since_postponed(begin_at: usize) -> Self {
        Self { fetches_left: SPELL_FETCHES, begin_at }
    }

    /// The connection has met the disk, maybe in a spell that it had.
    pub(super) fn since_disk(before: Option<Self>) -> Self {
        Self::since_postponed(before.map_or(0, |spell| spell.begin_at))
    }

    /// A fetch begins. It gets the rest of the spell, less this fetch.
    pub(super) fn begin_fetch(self) -> (FetchStart, Option<Self>) {
        let left = Self { fetches_left: self.fetches_left - 1, ..self };
        let left = (left.fetches_left > 0).then_some(left);
        (FetchStart { thread: Thread::Own, begin_at: left.map_or(0, |spell| spell.begin_at) }, left)
    }
}

/// The turn of a log dir that a pass needs for the partitions there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirTurn {
    /// None: the partitions lie in no log dir. They are unknown, or mounted.
    NotNeeded,
    /// The turn of this log dir, awaited.
    Awaited(usize),
    /// The turn of this log dir, if it is free: a pass that has found records holds memory, and waits for nothing more.
    IfFree(usize),
    /// The log dir's disk answers nothing, and the fetch wants records of others, which must not wait for it.
    LeftOut,
}

/// The facts that decide on a fetch's turn of a log dir, when it comes to the partitions there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirFacts {
    /// None: the partitions lie in no log dir.
    pub(crate) log_dir: Option<usize>,
    /// Whether the pass has found records before.
    pub(crate) has_found: bool,
    /// Whether the log dir's disk does not answer, while the fetch wants records of others, too.
    pub(crate) holds_up_others: bool,
}

impl DirTurn {
    pub(crate) fn of(facts: DirFacts) -> Self {
        match facts {
            DirFacts { log_dir: None, .. } => Self::NotNeeded,
            DirFacts { holds_up_others: true, .. } => Self::LeftOut,
            DirFacts { log_dir: Some(log_dir), has_found: false, .. } => Self::Awaited(log_dir),
            DirFacts { log_dir: Some(log_dir), has_found: true, .. } => Self::IfFree(log_dir),
        }
    }
}

/// The holder of the turn of the log dir, when a partition there comes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnOf {
    /// This pass, or no turn is needed.
    This,
    /// Other passes, which keep it for longer than this one waits.
    Others,
    /// No turn is given out to this pass: the log dir's disk answers nothing.
    Nobodys,
}

/// The decision of a pass about a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Reads it now, on the pass's thread; opens it if it is not open.
    Read,
    /// Leaves its records to a later pass, and opens nothing.
    Postpone,
    /// The same, but its client need not come again at once: the disk does not answer.
    LeaveOut,
}

/// The end of a partition's read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadEnd {
    /// With an answer.
    Done {
        /// Bytes that its log had to prove, or that were copied out of its files.
        proved_bytes: u64,
        /// Whether the disk had to bring some of them.
        met_disk: bool,
    },
    /// It was not begun ([`Step::Postpone`]).
    Postponed,
    /// It was not begun ([`Step::LeaveOut`]).
    LeftOut,
    /// The index is so far from its records that finding them takes longer than the thread's patience.
    FarFromIndex,
    /// More has to be copied than a thread may that serves others.
    TooMuchToCopy,
    /// There is no descriptor for its files.
    NoDescriptor,
}

impl ReadEnd {
    /// An answer that took nothing of the disk.
    pub(crate) const WARM: Self = Self::Done { proved_bytes: 0, met_disk: false };

    /// Whether a later pass has to read it.
    fn is_postponed(self) -> bool {
        match self {
            Self::Postponed | Self::FarFromIndex | Self::TooMuchToCopy => true,
            Self::Done { .. } | Self::LeftOut | Self::NoDescriptor => false,
        }
    }

    /// Whether the connection has a cold spell from now on. It is noted now: by the time that the records are sent, they lie in
    /// the page cache.
    pub(crate) fn meets_disk(self) -> bool {
        match self {
            Self::Done { met_disk, .. } => met_disk,
            // The connection's next reads must not meet a disk that hangs on a thread that serves others.
            Self::LeftOut | Self::FarFromIndex | Self::TooMuchToCopy => true,
            Self::Postponed | Self::NoDescriptor => false,
        }
    }

    /// The bytes that the read counts as, of those that a pass may prove. A lookup far from the index counts as a whole pass.
    fn proved_bytes(self) -> u64 {
        match self {
            Self::Done { proved_bytes, .. } => proved_bytes,
            Self::FarFromIndex => PROVED_BYTES_MAX,
            Self::Postponed | Self::LeftOut | Self::TooMuchToCopy | Self::NoDescriptor => 0,
        }
    }
}

/// The time and bytes that a pass has spent on cold partitions.
#[derive(Clone, Copy, Debug, Default)]
struct ColdCost {
    proved_bytes: u64,
    time: Duration,
    /// There is no descriptor for the next partition either.
    is_short: bool,
}

impl ColdCost {
    /// Whether this is enough for one pass.
    fn is_enough(self) -> bool {
        self.is_short || self.proved_bytes >= PROVED_BYTES_MAX || self.time >= COLD_TIME_MAX
    }

    fn add(&mut self, proved_bytes: u64, time: Duration) {
        self.proved_bytes += proved_bytes;
        self.time += time;
    }
}

/// The order and the allowance of one pass over the partitions of a fetch.
///
/// A pass without a session goes around: it begins at the first partition that the pass before it has postponed. A session
/// keeps that order itself.
///
/// Invariants: `first` is the place of a partition, or 0. `postponed` counts from there, and is less than `count`.
#[derive(Debug)]
pub(crate) struct PassPlan {
    pub(crate) thread: Thread,
    has_session: bool,
    first: usize,
    count: usize,
    /// The first of the partitions that were postponed, by its distance from `first`.
    postponed: Option<usize>,
    cost: ColdCost,
}

impl PassPlan {
    /// Over `count` partitions.
    pub(crate) fn new(start: FetchStart, count: usize, has_session: bool) -> Self {
        let first = if has_session || start.begin_at >= count { 0 } else { start.begin_at };
        Self { thread: start.thread, has_session, first, count, postponed: None, cost: ColdCost::default() }
    }

    /// The places of all partitions, in the order in which they come up.
    pub(crate) fn order(&self) -> impl Iterator<Item = usize> + use<> {
        (self.first..self.count).chain(0..self.first)
    }

    /// A partition comes up. `may_meet_disk`: a log has its records, or it is not in use yet.
    pub(crate) fn step(&self, turn: TurnOf, may_meet_disk: bool) -> Step {
        match (turn, may_meet_disk, self.cost.is_enough()) {
            (_, false, _) | (TurnOf::This, true, false) => Step::Read,
            (TurnOf::Nobodys, true, _) => Step::LeaveOut,
            (TurnOf::Others, true, _) | (_, true, true) => Step::Postpone,
        }
    }

    /// The read of the partition at `place` has ended. A warm partition costs nothing, however many there are, so `time`, which
    /// says how long ago it came up, is called only for a cold one.
    pub(crate) fn note(
        &mut self,
        place: usize,
        end: ReadEnd,
        was_open: bool,
        time: impl FnOnce() -> Duration,
    ) {
        if end.is_postponed() {
            let distance = (place + self.count - self.first) % self.count;
            self.postponed = Some(self.postponed.map_or(distance, |postponed| postponed.min(distance)));
        }
        self.cost.is_short |= end == ReadEnd::NoDescriptor;
        let proved_bytes = end.proved_bytes();
        if !was_open || proved_bytes > 0 {
            self.cost.add(proved_bytes, time());
        }
    }

    /// Whether a partition was postponed: its client should come again at once.
    pub(crate) fn has_postponed(&self) -> bool {
        self.postponed.is_some()
    }

    /// Whether the pass has ended for want of descriptors.
    pub(crate) fn is_short(&self) -> bool {
        self.cost.is_short
    }

    /// The place where the next pass has to begin. None: this pass came to its end, or a session keeps the order.
    pub(crate) fn next_begin(&self) -> Option<usize> {
        let goes_on = self.has_postponed() || self.cost.is_enough();
        (goes_on && !self.has_session).then(|| (self.first + self.postponed.unwrap_or(0)) % self.count)
    }
}

#[cfg(test)]
mod tests;
