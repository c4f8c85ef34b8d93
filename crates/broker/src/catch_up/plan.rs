//! The plan decides how a read that may have to wait for the disk goes on. No other module decides it.
//!
//! Pure: facts in, a decision out. The pass of a fetch ([`crate::fetch`]) and the outbox of a connection ([`crate::net`])
//! gather the facts and carry the decisions out; [`super::CatchUp`] remembers the cold spells. One call cannot decide it
//! all: a read comes by five moments, and each knows what those before it could not.
//!
//! | moment | what is known by then | decision |
//! |---|---|---|
//! | a fetch begins | whether its connection has a cold spell | [`ColdSpell::begin_fetch`]: the [`Thread`], and where the pass begins |
//! | a log dir comes up | whether records were found, and whether it hangs | [`DirTurn`]: await a turn, take a free one, or none |
//! | a partition comes up | what the pass has spent, whose turn it is, whether a log has the records | [`Step`]: read it now, or postpone it |
//! | its log was asked | how near the index is, how much has to be copied, what was proved | [`ReadEnd`]: read, or postponed after all |
//! | a range is sent | which of its pages are cached | [`Thread::of_range`] |
//!
//! How far a reader is behind decides nothing here: it only says what leaves the page cache later ([`super::readers`]).
//! The line in which sources wait ([`crate::flow::inflate_offload`]) gives out the turns of a log dir. The log itself bounds
//! how much one read proves.

use std::time::Duration;

use riverrun_log::Patience;

/// Fetches for which a cold spell lasts after its connection has met the disk.
pub(super) const SPELL_FETCHES: u32 = 16;
/// Bytes of records that one pass proves before it answers what it has: it must not keep who else waits, for the disk or
/// for its thread. What one partition had to prove is bounded alike by the log.
const PROVED_BYTES_MAX: u64 = 1024 * 1024;
/// Time that one pass spends on opening logs and on finding and proving what was not proved, before it answers what it has.
/// Many small partitions that are cold cost little each in bytes, and a turn of the disk each.
const COLD_TIME_MAX: Duration = Duration::from_millis(10);
/// Bytes of files that one read copies on a thread that serves others, for want of descriptors: well under a millisecond.
pub(crate) const COPIED_BYTES_MAX: usize = 1024 * 1024;

/// On which thread records are read or sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thread {
    /// One that serves other connections as well: it waits for the disk only where nobody could know before, and for little.
    Shared,
    /// One that serves nobody else meanwhile, in a turn of the log dir: it may wait for the disk.
    Own,
}

impl Thread {
    /// For a range of a file that is about to be sent. In a cold spell what lies between its ends may be missing, too.
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

/// The first and the last page of a range of a file. The system reads ahead: the one may be there, and the other not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Both are in the page cache, or nobody can tell.
    Cached,
    /// One of them is not: its connection has met the disk.
    Missing,
}

/// The next reads of a connection are expected to meet the disk: one of the last did, or nothing is known of it yet.
///
/// Invariants: a spell that is remembered has fetches left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ColdSpell {
    fetches_left: u32,
    /// Where a fetch without a session begins.
    begin_at: usize,
}

/// How a fetch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FetchStart {
    pub(crate) thread: Thread,
    /// The place of the partition with which a fetch without a session begins.
    pub(crate) begin_at: usize,
}

impl FetchStart {
    /// Of a connection without a cold spell.
    pub(super) const WARM: Self = Self { thread: Thread::Shared, begin_at: 0 };
}

impl ColdSpell {
    /// Of a connection that begins. Where it will read is unknown, so its first fetch may meet the disk.
    pub(super) const OF_NEWCOMER: Self = Self { fetches_left: 1, begin_at: 0 };

    /// A pass has postponed what comes at `begin_at`: the next one without a session begins there.
    pub(super) fn since_postponed(begin_at: usize) -> Self {
        Self { fetches_left: SPELL_FETCHES, begin_at }
    }

    /// The connection has met the disk, maybe in a spell that it had.
    pub(super) fn since_disk(before: Option<Self>) -> Self {
        Self::since_postponed(before.map_or(0, |spell| spell.begin_at))
    }

    /// A fetch begins. With it goes what is left of the spell.
    pub(super) fn begin_fetch(self) -> (FetchStart, Option<Self>) {
        let left = Self { fetches_left: self.fetches_left - 1, ..self };
        let left = (left.fetches_left > 0).then_some(left);
        (FetchStart { thread: Thread::Own, begin_at: left.map_or(0, |spell| spell.begin_at) }, left)
    }
}

/// How a pass that may wait for the disk comes to the partitions of a log dir.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirTurn {
    /// They lie in none: they are unknown, or mounted.
    NotNeeded,
    /// Once it is its turn in this log dir.
    Awaited(usize),
    /// If it is its turn in this log dir at once: who has found something holds memory, and waits for nothing more.
    IfFree(usize),
    /// The log dir's disk answers nothing, and the fetch wants records of others, which must not wait for it.
    LeftOut,
}

/// The facts that decide on a fetch's turn of a log dir, when it comes to the partitions there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirFacts {
    /// None: they lie in none.
    pub(crate) log_dir: Option<usize>,
    /// Whether the pass has found records before.
    pub(crate) has_found: bool,
    /// Whether its disk answers nothing, while the fetch wants what lies elsewhere, too.
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

/// Whose turn it is in the log dir of a partition that comes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnOf {
    /// That of this pass, or none is needed.
    This,
    /// That of others, who keep it for longer than this pass waits.
    Others,
    /// Nobody's for this pass: the log dir's disk answers nothing.
    Nobodys,
}

/// What a pass does with a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Reads it now, on the pass's thread; opens it if nobody has.
    Read,
    /// Leaves its records to a later pass, and opens nothing.
    Postpone,
    /// The same, and nobody need come again at once: the disk does not answer.
    LeaveOut,
}

/// How the read of a partition has ended.
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
    /// The index is so far from its records that to find them takes longer than the thread's patience.
    FarFromIndex,
    /// More has to be copied than a thread may that serves others.
    TooMuchToCopy,
    /// There is no descriptor for its files.
    NoDescriptor,
}

impl ReadEnd {
    /// With an answer that took nothing of the disk.
    pub(crate) const WARM: Self = Self::Done { proved_bytes: 0, met_disk: false };

    /// Whether a later pass has to read it.
    fn is_postponed(self) -> bool {
        match self {
            Self::Postponed | Self::FarFromIndex | Self::TooMuchToCopy => true,
            Self::Done { .. } | Self::LeftOut | Self::NoDescriptor => false,
        }
    }

    /// Whether its connection has a cold spell from now on. By the time that it is sent it lies in the page cache, and
    /// nobody would know any more that it did not before.
    pub(crate) fn meets_disk(self) -> bool {
        match self {
            Self::Done { met_disk, .. } => met_disk,
            // Its next reads must not meet a disk that hangs on a thread that serves others.
            Self::LeftOut | Self::FarFromIndex | Self::TooMuchToCopy => true,
            Self::Postponed | Self::NoDescriptor => false,
        }
    }

    /// What it counts as among the bytes that a pass may prove. A lookup far from the index is as much as a pass does.
    fn proved_bytes(self) -> u64 {
        match self {
            Self::Done { proved_bytes, .. } => proved_bytes,
            Self::FarFromIndex => PROVED_BYTES_MAX,
            Self::Postponed | Self::LeftOut | Self::TooMuchToCopy | Self::NoDescriptor => 0,
        }
    }
}

/// What a pass has spent on partitions that are cold.
#[derive(Clone, Copy, Debug, Default)]
struct ColdCost {
    proved_bytes: u64,
    time: Duration,
    /// There is no descriptor for what comes next either.
    is_short: bool,
}

impl ColdCost {
    /// Whether that is enough for one pass.
    fn is_enough(self) -> bool {
        self.is_short || self.proved_bytes >= PROVED_BYTES_MAX || self.time >= COLD_TIME_MAX
    }

    fn add(&mut self, proved_bytes: u64, time: Duration) {
        self.proved_bytes += proved_bytes;
        self.time += time;
    }
}

/// What one pass over the partitions of a fetch may do, and what it has done of it.
///
/// A pass without a session goes around: it begins where the one before it had enough, so that what was postponed comes
/// first. A session sees to that itself.
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

    /// A partition comes up. `may_meet_disk`: a log has its records, or nothing of it is in use yet.
    pub(crate) fn step(&self, turn: TurnOf, may_meet_disk: bool) -> Step {
        match (turn, may_meet_disk, self.cost.is_enough()) {
            (_, false, _) | (TurnOf::This, true, false) => Step::Read,
            (TurnOf::Nobodys, true, _) => Step::LeaveOut,
            (TurnOf::Others, true, _) | (_, true, true) => Step::Postpone,
        }
    }

    /// The read of the partition at `place` has ended. What is warm costs nothing, however many there are, so the `time`
    /// since it came up is asked for only if it is not.
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

    /// Where the next pass has to begin; none if this one came to its end, or if a session knows.
    pub(crate) fn next_begin(&self) -> Option<usize> {
        let goes_on = self.has_postponed() || self.cost.is_enough();
        (goes_on && !self.has_session).then(|| (self.first + self.postponed.unwrap_or(0)) % self.count)
    }
}

#[cfg(test)]
mod tests;
