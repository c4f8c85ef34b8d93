//! Decides where a connection's requests with records are worked on: aside, or on the network's thread, which serves no others
//! meanwhile unless it is let go.
//!
//! To check compressed records they are inflated, and for a topic with another codec they are compressed again. A few
//! bytes may inflate to a thousand times as many, so what a request costs is known afterwards only: one that is large, or
//! whose connection had costly ones before it, is worked on aside. So is one with plain records of many bytes, which are
//! looked at byte by byte for their checksum, and written if their topic's level is without a sync. As many are at once as
//! there are cores, and those of connections whose batches take long at most all but one, on threads that step back behind
//! the network's: the others always find a place. The leave to work aside is for a [slice](Slice) of a request: a batch, or
//! as many as fit in a moment. Between two slices others have their turn: first those of the source that had least time of
//! late.
//!
//! The line in which they wait is also that of catch-up reads and of searches by time ([`crate::catch_up`]). The time that these
//! will take is guessed from their source: one that came often and had little time is quick, and the last place is only for such.
//! For other sources, a read, which is bounded, finds a place beside all searches, each of which may inflate a large batch.
//!
//! A source that had no time yet would come before all others, and an owner of many addresses would hold up everybody with
//! ever new ones. So newcomers have every other turn only. The next newcomer is the one whose [networks](Source::networks) had
//! least time for newcomers of late: behind a stream of newcomers, one from other networks waits for none of them, and one from
//! a network beside them for one of each network there.

use std::collections::{BTreeMap, HashMap};
use std::future::pending;
use std::hash::Hash;
use std::net::IpAddr;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::source::Source;

/// Compressed bytes of a request above which it is worked on aside: with gzip they may inflate to 16 MiB, with zstd to
/// more, which takes longer than others should wait.
const HERE_BYTES_MAX: usize = 16 * 1024;
/// Bytes of plain records in a request above which it is worked on aside: what Kafka's producers send at most unless told
/// otherwise. To check so many takes a tenth of a millisecond, and a millisecond if the records are tiny.
const PLAIN_HERE_BYTES_MAX: usize = 1024 * 1024;
/// Time that a request may take without those after it being worked on aside.
const HERE_TIME_MAX: Duration = Duration::from_millis(1);
/// Compressed requests of a connection that are worked on aside after a costly one.
const ASIDE_FOR: u32 = 64;
/// Time of compressed requests after which a connection lets others go first.
const TURN_TIME: Duration = Duration::from_micros(500);
/// Time after which a request gives way between two batches.
const SLICE_TIME: Duration = Duration::from_millis(2);
/// A slice that takes longer is one of few large batches: a batch of a megabyte that holds ten takes less.
const LONG_TIME: Duration = Duration::from_millis(40);
/// Time of late from which on a source is one that takes long: that of a source that uses an eighth of one place without pause. A
/// client that searches or reads old records now and then stays far below, also where its turns are slow.
const LONG_SOURCE_TIME: Duration = Duration::from_millis(250);
/// Slices after which the time of a source tells what it will take: one with fewer may have had them to look quick.
const KNOWN_SLICES: u32 = 8;
/// Sources, and connections, whose time is remembered before those that had hardly any are forgotten: first those that had few
/// slices, and with twice as many all of them.
const TIMES_KEPT: usize = 1024;

/// The work on the records of a request before its batches have their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordsWork {
    /// Bytes that have to be inflated or compressed.
    pub(crate) coded_bytes: usize,
    /// Bytes that are only checked.
    pub(crate) plain_bytes: usize,
}

impl RecordsWork {
    /// Whether it is done at once, wherever the request is.
    pub(crate) fn is_little(self) -> bool {
        self.coded_bytes == 0 && !self.has_much_plain()
    }

    /// Whether it may take longer than others of a thread should wait.
    pub(crate) fn may_take_long(self) -> bool {
        self.coded_bytes > HERE_BYTES_MAX || self.has_much_plain()
    }

    fn has_much_plain(self) -> bool {
        self.plain_bytes > PLAIN_HERE_BYTES_MAX
    }
}

impl std::ops::Add for RecordsWork {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            coded_bytes: self.coded_bytes + other.coded_bytes,
            plain_bytes: self.plain_bytes + other.plain_bytes,
        }
    }
}

impl std::iter::Sum for RecordsWork {
    fn sum<I: Iterator<Item = Self>>(works: I) -> Self {
        works.fold(Self::default(), std::ops::Add::add)
    }
}

/// The leave to work on requests aside, or to wait for the disk of one log dir; shared by all connections.
#[derive(Debug)]
pub(crate) struct InflatingLeave {
    /// How many may be taken up to each [`Reach`].
    places: [usize; 3],
    line: Mutex<Line>,
}

/// Invariants: `working` counts the leaves of each [`Reach`] that were given and not given back.
#[derive(Debug, Default)]
struct Line {
    working: [usize; 3],
    waiting: BTreeMap<u64, Waiting>,
    next_ticket: u64,
    times: HashMap<Source, Recent>,
    /// The times of connections; nobody else counts those.
    of_connections: HashMap<u64, Recent>,
    /// The times of newcomers' first slices, by their networks: the wider ones, and those within them.
    of_networks: [HashMap<IpAddr, Recent>; 2],
    /// Whether a source that had time is next where a newcomer waits, too.
    is_known_next: bool,
}

#[derive(Debug)]
struct Waiting {
    who: Worker,
    grant: oneshot::Sender<Reach>,
}

/// A request that asks for leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worker {
    pub(crate) source: Source,
    pub(crate) length: Length,
    /// Time that its connection had of late.
    pub(crate) micros: u64,
    /// Its connection, if that time is counted here.
    pub(crate) connection: Option<u64>,
}

/// How long a slice takes, as far as the line can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// Its connection's last one was short.
    Short,
    /// Its connection's last one was long, or it had none.
    Long,
    /// It is a piece of bounded size.
    Piece,
    /// Nothing is known but the time that its source had.
    Unknown,
}

/// How many of the places a worker may have: those with less reach leave some to those with more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    Long,
    Piece,
    All,
}

/// A worker that may be next; the least of several candidates is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: [u64; 3],
    ticket: u64,
    reach: Reach,
}

impl Worker {
    pub(crate) fn is_long(self) -> bool {
        self.length == Length::Long
    }

    /// The places that it may have, given the time that its source had.
    fn reach(self, had: Option<&Recent>, now: Instant) -> Reach {
        match self.length {
            Length::Short => Reach::All,
            Length::Piece | Length::Unknown if had.is_some_and(|had| had.is_quick(now)) => Reach::All,
            Length::Piece => Reach::Piece,
            Length::Long | Length::Unknown => Reach::Long,
        }
    }
}

/// Time that was taken of late: each second halves it.
#[derive(Clone, Copy, Debug)]
struct Recent {
    micros: u64,
    at: Instant,
    /// How many slices that were.
    slices: u32,
}

impl Recent {
    fn new() -> Self {
        Self { micros: 0, at: Instant::now(), slices: 0 }
    }

    fn now(self, now: Instant) -> u64 {
        let seconds = u32::try_from(now.duration_since(self.at).as_secs()).unwrap_or(u32::MAX);
        self.micros.checked_shr(seconds).unwrap_or(0)
    }

    fn add(&mut self, now: Instant, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        // A second that has only begun is not lost: `at` moves only if something was halved.
        let before = self.now(now);
        if before != self.micros || self.micros == 0 {
            self.at = now;
        }
        self.micros = before.saturating_add(micros);
        self.slices = self.slices.saturating_add(1);
    }

    /// Whether that was little, and often enough to tell.
    fn is_quick(&self, now: Instant) -> bool {
        self.slices >= KNOWN_SLICES && u128::from(self.now(now)) < LONG_SOURCE_TIME.as_micros()
    }
}

impl InflatingLeave {
    /// One for each core, and two where there is one.
    pub(crate) fn new() -> Self {
        Self::with_cores(std::thread::available_parallelism().map_or(1, NonZero::get))
    }

    fn with_cores(cores: usize) -> Self {
        let places = cores.max(2);
        Self::of([places - 1, places - 1, places])
    }

    /// So many places. Sources that are not known to be quick may take all but one, and work that may take long all but two, but
    /// each at least one.
    pub(crate) fn with_places(places: usize) -> Self {
        Self::of([2, 1, 0].map(|left| places.saturating_sub(left).max(1)))
    }

    fn of(places: [usize; 3]) -> Self {
        Self { places, line: Mutex::default() }
    }

    /// As whom a connection of a source asks for a slice of which no more is known than the time that the source took of late.
    pub(crate) fn worker_of(&self, source: Source, connection: u64, length: Length) -> Worker {
        let (now, line) = (Instant::now(), self.line.lock());
        let micros = line.of_connections.get(&connection).map_or(0, |recent| recent.now(now));
        Worker { source, length, micros, connection: Some(connection) }
    }

    /// The leave, if it is free; it holds until it is dropped.
    pub(crate) fn try_get(self: &Arc<Self>, who: Worker) -> Option<Leave> {
        let now = Instant::now();
        let mut line = self.line.lock();
        let reach = line.reach(who, now);
        let is_free = self.has_place(&line, reach)
            && !line.waiting.values().any(|waiting| self.has_place(&line, line.reach(waiting.who, now)));
        is_free.then(|| {
            line.working[reach as usize] += 1;
            Leave { leaves: Arc::clone(self), who, reach, since: now }
        })
    }

    /// Waits for the leave; it holds until it is dropped.
    pub(crate) async fn get(self: &Arc<Self>, who: Worker) -> Leave {
        if let Some(leave) = self.try_get(who) {
            return leave;
        }
        let (grant, granted) = oneshot::channel();
        let mut place = {
            let mut line = self.line.lock();
            let ticket = line.next_ticket;
            line.next_ticket += 1;
            line.waiting.insert(ticket, Waiting { who, grant });
            // A place that came free since `try_get` did not serve the line.
            self.serve(&mut line);
            InLine { leaves: self, ticket, granted, is_taken: false }
        };
        let reach = match (&mut place.granted).await {
            Ok(reach) => reach,
            // The sender is in the line until it grants.
            Err(_) => pending().await,
        };
        place.is_taken = true;
        Leave { leaves: Arc::clone(self), who, reach, since: Instant::now() }
    }

    fn has_place(&self, line: &Line, reach: Reach) -> bool {
        let is_left = |upto: usize| line.working[..=upto].iter().sum::<usize>() < self.places[upto];
        (reach as usize..self.places.len()).all(is_left)
    }

    fn serve(&self, line: &mut Line) {
        let now = Instant::now();
        while self.has_place(line, Reach::All)
            && let Some(next) = self.next(line, now)
        {
            let Some(Waiting { grant, .. }) = line.waiting.remove(&next.ticket) else { return };
            line.working[next.reach as usize] += 1;
            // An `InLine` that is dropped before it took the grant gives it back.
            let _ = grant.send(next.reach);
        }
    }

    /// Chooses the next worker among the waiting ones that find a place.
    fn next(&self, line: &mut Line, now: Instant) -> Option<Candidate> {
        let (mut known, mut newcomer) = (None, None);
        for (&ticket, &Waiting { who, .. }) in &line.waiting {
            let had = line.times.get(&who.source);
            let reach = who.reach(had, now);
            if !self.has_place(line, reach) {
                continue;
            }
            let (best, rank) = if let Some(had) = had {
                (&mut known, [had.now(now), who.micros, 0])
            } else {
                let [wide, narrow] = line.networks_had(who.source, now);
                (&mut newcomer, [wide, narrow, who.micros])
            };
            let candidate = Candidate { rank, ticket, reach };
            *best = Some(best.map_or(candidate, |best: Candidate| best.min(candidate)));
        }
        line.choose(known, newcomer)
    }

    /// Gives a leave back, and says how long it was used, if it was.
    fn give_back(&self, reach: Reach, used: Option<(Worker, Duration)>) {
        let mut line = self.line.lock();
        line.working[reach as usize] -= 1;
        if let Some((who, took)) = used {
            line.note_time(who, took);
        }
        self.serve(&mut line);
    }

    /// How many have it now, and how many wait for it.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let line = self.line.lock();
        (line.working.iter().sum(), line.waiting.len())
    }
}

impl Line {
    fn reach(&self, who: Worker, now: Instant) -> Reach {
        who.reach(self.times.get(&who.source), now)
    }

    /// Time that newcomers from the networks of a source had of late, in microseconds.
    fn networks_had(&self, source: Source, now: Instant) -> [u64; 2] {
        let networks = source.networks();
        let had = |level: usize| self.of_networks[level].get(&networks[level]);
        [0, 1].map(|level| had(level).map_or(0, |recent| recent.now(now)))
    }

    fn note_time(&mut self, who: Worker, took: Duration) {
        if !self.times.contains_key(&who.source) {
            for (of_networks, network) in self.of_networks.iter_mut().zip(who.source.networks()) {
                note_time(of_networks, network, took);
            }
        }
        note_time(&mut self.times, who.source, took);
        if let Some(connection) = who.connection {
            note_time(&mut self.of_connections, connection, took);
        }
    }

    /// The candidate whose turn it is. The turn passes to the other kind only if both were there: a choice without a rival costs
    /// neither a turn.
    fn choose(&mut self, known: Option<Candidate>, newcomer: Option<Candidate>) -> Option<Candidate> {
        if known.is_none() || newcomer.is_none() {
            return known.or(newcomer);
        }
        let is_known = self.is_known_next;
        self.is_known_next = !is_known;
        if is_known { known } else { newcomer }
    }
}

fn note_time<K: Hash + Eq>(times: &mut HashMap<K, Recent>, whose: K, took: Duration) {
    let now = Instant::now();
    if times.len() >= TIMES_KEPT && !times.contains_key(&whose) {
        times.retain(|_, recent| recent.now(now) > 0 || recent.slices >= KNOWN_SLICES);
        if times.len() >= 2 * TIMES_KEPT {
            times.retain(|_, recent| recent.now(now) > 0);
        }
    }
    if times.len() < 2 * TIMES_KEPT || times.contains_key(&whose) {
        times.entry(whose).or_insert_with(Recent::new).add(now, took);
    }
}

/// The leave to work on a slice, given back when dropped.
#[derive(Debug)]
pub(crate) struct Leave {
    leaves: Arc<InflatingLeave>,
    who: Worker,
    reach: Reach,
    since: Instant,
}

impl Drop for Leave {
    fn drop(&mut self) {
        self.leaves.give_back(self.reach, Some((self.who, self.since.elapsed())));
    }
}

/// A place in line, left when dropped.
struct InLine<'a> {
    leaves: &'a InflatingLeave,
    ticket: u64,
    granted: oneshot::Receiver<Reach>,
    is_taken: bool,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        if self.is_taken {
            return;
        }
        let left = self.leaves.line.lock().waiting.remove(&self.ticket);
        if left.is_none()
            && let Ok(reach) = self.granted.try_recv()
        {
            self.leaves.give_back(reach, None);
        }
    }
}

/// How long a request may append before it gives way, between two of its batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    ends_at: Option<Instant>,
}

impl Slice {
    /// One that ends with the request.
    pub(crate) fn whole() -> Self {
        Self { ends_at: None }
    }

    /// One that begins now.
    pub(crate) fn begin() -> Self {
        Self { ends_at: Some(Instant::now() + SLICE_TIME) }
    }

    pub(crate) fn is_over(self) -> bool {
        self.ends_at.is_some_and(|end| Instant::now() >= end)
    }
}

/// The cost of one connection's compressed requests.
///
/// Invariants: `aside` is how many slices more are worked on aside whatever their size.
#[derive(Debug)]
pub(crate) struct Inflating {
    aside: u32,
    turn: Duration,
    is_long: bool,
    recent: Recent,
}

impl Inflating {
    /// Nothing is known of a new connection, so its first one is worked on aside.
    pub(crate) fn new() -> Self {
        Self { aside: 1, turn: Duration::ZERO, is_long: true, recent: Recent::new() }
    }

    /// As whom the connection from this source asks for leave.
    pub(crate) fn worker(&self, source: Source) -> Worker {
        let length = if self.is_long { Length::Long } else { Length::Short };
        Worker { source, length, micros: self.recent.now(Instant::now()), connection: None }
    }

    /// Whether a request with such records is worked on aside.
    pub(crate) fn is_for_aside(&self, work: RecordsWork) -> bool {
        work.may_take_long() || (work.coded_bytes > 0 && self.aside > 0)
    }

    /// A slice with compressed records took so long, aside.
    pub(crate) fn took_aside(&mut self, time: Duration) {
        self.aside = if time > HERE_TIME_MAX { ASIDE_FOR } else { self.aside.saturating_sub(1) };
        self.is_long = time > LONG_TIME;
        self.recent.add(Instant::now(), time);
    }

    /// A slice with compressed records took so long, here; answers whether others go first now.
    pub(crate) fn took_here(&mut self, time: Duration) -> bool {
        if time > HERE_TIME_MAX {
            self.aside = ASIDE_FOR;
            self.is_long = time > LONG_TIME;
        }
        self.turn += time;
        let is_over = self.turn > TURN_TIME;
        if is_over {
            self.turn = Duration::ZERO;
        }
        is_over
    }
}

#[cfg(test)]
mod tests;
