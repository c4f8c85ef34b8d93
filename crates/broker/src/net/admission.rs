//! The connections that are open, and the choice of those that go when there are too many.
//!
//! Owns the counts over all listeners. Bounds that an operator sets close the newcomer, as Kafka does. Where descriptors run
//! out, room is made first, by the first of these that finds any:
//!
//! - Connections that have not sent a request in their first second.
//! - Idle ones of the source that has most, if these are many, and more than the newcomer's has.
//! - Its newest, if it has more than half of all.
//! - Those that have been idle for longest, of any source. For a newcomer whose source has many itself only its own go.
//! - The newest of the source that has most, as long as it has more than a few, and more than the newcomer's.
//!
//! So as many idle connections as there are descriptors keep nobody out, from however many addresses they come: a client makes
//! one again when it needs it. And nobody loses one in use for them, unless it has more than half of all. Room that was made for
//! a newcomer is kept for a while, and not for sources that have many: a client that is closed for that and comes again at once
//! does not find it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config::NetworkOptions;
use crate::flow::source::Source;

/// Time that a new connection has to send a request while others find no room.
const SILENT_TIME_MAX: Duration = Duration::from_secs(1);
/// Time without a byte in either direction after which a connection with nothing in work is idle. The members of a group ask
/// every three seconds.
const IDLE_TIME_MIN: Duration = Duration::from_secs(5);
/// The same while something is in work: twice the time that clients wait for an answer. A member that waits longer for its group
/// joins it again.
const STUCK_TIME_MIN: Duration = Duration::from_mins(1);
/// Connections that a source keeps while it uses them: one more than a consumer has to one server.
const FEW: usize = 4;
/// A source that has more than one of so many of all connections has many, if they are more than a few.
const MANY_SHARE: usize = 8;
/// One of so many of all connections goes at once at most, so that room is made rarely.
const LEAVE_SHARE: usize = 16;
/// Time between two searches for connections that may go, for sources that have many and for others. A newcomer in between
/// finds the room that was made, or none.
const LOOK_PERIOD: Duration = Duration::from_millis(50);
/// How long room that was made is kept for others than sources that have many.
const KEPT_TIME: Duration = Duration::from_secs(1);

/// How many connections there may be.
#[derive(Debug)]
pub(crate) struct ConnectionBounds {
    max: usize,
    per_ip_max: usize,
    /// Addresses that have another bound. Canonical, as are those that are counted.
    of_ip_max: HashMap<IpAddr, usize>,
    /// Those that there are descriptors for.
    descriptors_max: usize,
}

impl ConnectionBounds {
    /// The bounds that the options set, of which so many have descriptors.
    pub(crate) fn new(network: &NetworkOptions, descriptors_max: usize) -> Self {
        let overrides = network.max_connections_per_ip_overrides.iter();
        Self {
            max: network.max_connections,
            per_ip_max: network.max_connections_per_ip,
            of_ip_max: overrides.map(|of_ip| (of_ip.ip, of_ip.connections_max)).collect(),
            descriptors_max,
        }
    }
}

/// A connection, as the others see it. What it notes is stored in passing: it reads no clock for this.
#[derive(Debug)]
pub(crate) struct Standing {
    since: Instant,
    /// Milliseconds from then to when a byte came or left last.
    used_ms: AtomicU64,
    is_in_work: AtomicBool,
    has_asked: AtomicBool,
    is_to_go: AtomicBool,
    told: Notify,
}

/// How idle a connection is: more so with nothing in work, then if it was not used for longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Idleness {
    rests: bool,
    unused: Duration,
}

impl Default for Standing {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            used_ms: AtomicU64::new(0),
            is_in_work: AtomicBool::new(false),
            has_asked: AtomicBool::new(false),
            is_to_go: AtomicBool::new(false),
            told: Notify::new(),
        }
    }
}

impl Standing {
    /// A request has come.
    pub(crate) fn note_asked(&self) {
        self.has_asked.store(true, Ordering::Relaxed);
    }

    /// Bytes came or left at that time: something is in work until the connection tells otherwise.
    pub(crate) fn note_used(&self, at: Instant) {
        let used_ms = at.duration_since(self.since).as_millis();
        self.used_ms.store(u64::try_from(used_ms).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.note_work(true);
    }

    /// Whether something waits to be worked on, to be answered, or to be sent.
    pub(crate) fn note_work(&self, is_in_work: bool) {
        self.is_in_work.store(is_in_work, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn is_in_work(&self) -> bool {
        self.is_in_work.load(Ordering::Relaxed)
    }

    /// How idle it is, if it is idle at all.
    fn idleness(&self, now: Instant) -> Option<Idleness> {
        let used = Duration::from_millis(self.used_ms.load(Ordering::Relaxed));
        let unused = now.duration_since(self.since).saturating_sub(used);
        let rests = !self.is_in_work.load(Ordering::Relaxed);
        let unused_min = if rests { IDLE_TIME_MIN } else { STUCK_TIME_MIN };
        (unused >= unused_min).then_some(Idleness { rests, unused })
    }

    fn is_silent(&self, now: Instant) -> bool {
        !self.has_asked.load(Ordering::Relaxed) && now.duration_since(self.since) >= SILENT_TIME_MAX
    }

    /// Waits until it is to make room.
    pub(crate) async fn told_to_go(&self) {
        self.told.notified().await;
    }

    fn tell_to_go(&self) {
        if !self.is_to_go.swap(true, Ordering::Relaxed) {
            self.told.notify_one();
        }
    }
}

/// Why a connection is closed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// `max.connections` or `max.connections.per.ip`.
    Bound,
    /// There are no descriptors for it.
    Descriptors,
}

/// Connections that are open, over all listeners.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCounts {
    next_id: AtomicU64,
    open: Mutex<Open>,
}

/// Invariants: `by_ip` and `by_source` count the entries of `connections`, and have none without any. `by_size` has the same
/// as `by_source`. Connections that stay and places that are kept are together no more than there are descriptors for.
#[derive(Debug, Default)]
struct Open {
    connections: BTreeMap<u64, OpenConnection>,
    by_ip: HashMap<IpAddr, usize>,
    by_source: HashMap<Source, usize>,
    by_size: BTreeSet<(usize, Source)>,
    /// When it was looked for some that may go, for a source that has many and for another.
    looked_at: [Option<Instant>; 2],
    kept: Option<Kept>,
}

/// Places of connections that go for a newcomer, beside its own.
#[derive(Clone, Copy, Debug)]
struct Kept {
    places: usize,
    until: Instant,
}

#[derive(Debug)]
struct OpenConnection {
    source: Source,
    standing: Arc<Standing>,
}

/// The claim of a newcomer on the room of other connections.
#[derive(Clone, Copy, Debug)]
struct Claim {
    newcomer: Source,
    /// Whether its source has many with it.
    has_many: bool,
    largest: Option<Largest>,
}

/// The source that has most.
#[derive(Clone, Copy, Debug)]
struct Largest {
    source: Source,
    has_many: bool,
    /// Whether it has more than half of all.
    has_half: bool,
    /// How many of them may go: half of what it has more than the newcomer's, and none of a few.
    surplus: usize,
}

impl Claim {
    /// Whether the room that others make is for it.
    fn is_good(&self) -> bool {
        !self.has_many || self.largest.is_some()
    }
}

/// One open connection in the counts; dropping it takes it out.
#[derive(Debug)]
pub(crate) struct Counted {
    counts: Arc<ConnectionCounts>,
    ip: IpAddr,
    pub(crate) id: u64,
    pub(crate) standing: Arc<Standing>,
}

impl ConnectionCounts {
    /// Counts a connection from this address, if there may be one more; answers how many others go for it, too.
    pub(crate) fn admit(
        self: &Arc<Self>,
        ip: IpAddr,
        bounds: &ConnectionBounds,
    ) -> Result<(Counted, usize), Refused> {
        let ip = ip.to_canonical();
        let source = Source::of(ip);
        let here_max = bounds.of_ip_max.get(&ip).copied().unwrap_or(bounds.per_ip_max);
        let mut open = self.open.lock();
        let here = open.by_ip.get(&ip).copied().unwrap_or_default();
        if open.connections.len() >= bounds.max || here >= here_max {
            return Err(Refused::Bound);
        }
        let leaving = open.find_place(source, bounds.descriptors_max).ok_or(Refused::Descriptors)?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let standing = Arc::<Standing>::default();
        let connection = OpenConnection { source, standing: Arc::clone(&standing) };
        open.add(id, ip, connection);
        Ok((Counted { counts: Arc::clone(self), ip, id, standing }, leaving))
    }
}

impl Open {
    /// Finds a place for one from this source; answers how many others go for it, or none if there is no place.
    fn find_place(&mut self, newcomer: Source, descriptors_max: usize) -> Option<usize> {
        let now = Instant::now();
        self.kept = self.kept.filter(|kept| kept.places > 0 && now < kept.until);
        let kept = self.kept.map_or(0, |kept| kept.places);
        if self.connections.len() + kept < descriptors_max {
            return Some(0);
        }
        let claim = self.claim(newcomer);
        if let Some(kept) = &mut self.kept
            && claim.is_good()
        {
            kept.places -= 1;
            return Some(0);
        }
        Some(self.make_room(now, claim)).filter(|leaving| *leaving > 0)
    }

    fn claim(&self, newcomer: Source) -> Claim {
        let theirs = self.by_source.get(&newcomer).copied().unwrap_or(0);
        let largest = self.by_size.last().map(|(most, source)| Largest {
            source: *source,
            has_many: self.is_many(*most),
            has_half: *most > self.connections.len() / 2,
            surplus: (most.saturating_sub(theirs) / 2).min(most.saturating_sub(FEW)),
        });
        let largest = largest.filter(|largest| largest.surplus > 0);
        Claim { newcomer, has_many: self.is_many(theirs + 1), largest }
    }

    fn is_many(&self, count: usize) -> bool {
        count > FEW.max(self.connections.len() / MANY_SHARE)
    }

    /// Has connections go for a newcomer; answers how many.
    fn make_room(&mut self, now: Instant, claim: Claim) -> usize {
        let looked_at = &mut self.looked_at[usize::from(claim.is_good())];
        if looked_at.is_some_and(|at| now.duration_since(at) < LOOK_PERIOD) {
            return 0;
        }
        *looked_at = Some(now);
        let leaving = self.leaving(now, claim);
        if claim.is_good() {
            self.kept = Some(Kept { places: leaving.len().saturating_sub(1), until: now + KEPT_TIME });
        }
        for standing in &leaving {
            standing.tell_to_go();
        }
        leaving.len()
    }

    /// Those that go for a newcomer.
    fn leaving(&self, now: Instant, claim: Claim) -> Vec<Arc<Standing>> {
        let Claim { newcomer, has_many, largest } = claim;
        let share = self.connections.len().div_ceil(LEAVE_SHARE);
        let newest = |of: Largest| self.newest_of(of.source, share.min(of.surplus));
        let idle = |of: Largest| self.idle(now, share.min(of.surplus), |source| source == of.source);
        let looks: [&dyn Fn() -> Vec<Arc<Standing>>; 5] = [
            &|| self.silent(now, share),
            &|| largest.filter(|of| of.has_many).map_or_else(Vec::new, idle),
            &|| largest.filter(|of| of.has_half).map_or_else(Vec::new, newest),
            &|| self.idle(now, share, |source| !has_many || source == newcomer),
            &|| largest.map_or_else(Vec::new, newest),
        ];
        looks.iter().map(|look| look()).find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// The oldest that have never asked for anything.
    fn silent(&self, now: Instant, count: usize) -> Vec<Arc<Standing>> {
        let silent = self.staying().filter(|connection| connection.standing.is_silent(now)).take(count);
        silent.map(|connection| Arc::clone(&connection.standing)).collect()
    }

    /// Those of some sources that have been idle for longest.
    fn idle(&self, now: Instant, count: usize, is_of: impl Fn(Source) -> bool) -> Vec<Arc<Standing>> {
        let of_sources = self.staying().filter(|connection| is_of(connection.source));
        let mut idle: Vec<_> = of_sources
            .filter_map(|connection| Some((connection.standing.idleness(now)?, &connection.standing)))
            .collect();
        if idle.len() > count {
            idle.select_nth_unstable_by_key(count, |(idleness, _)| Reverse(*idleness));
            idle.truncate(count);
        }
        idle.into_iter().map(|(_, standing)| Arc::clone(standing)).collect()
    }

    fn add(&mut self, id: u64, ip: IpAddr, connection: OpenConnection) {
        *self.by_ip.entry(ip).or_default() += 1;
        let size = self.by_source.entry(connection.source).or_default();
        self.by_size.remove(&(*size, connection.source));
        *size += 1;
        self.by_size.insert((*size, connection.source));
        self.connections.insert(id, connection);
    }

    fn remove(&mut self, id: u64, ip: IpAddr) {
        let Some(OpenConnection { source, .. }) = self.connections.remove(&id) else { return };
        count_down(&mut self.by_ip, &ip);
        let size = count_down(&mut self.by_source, &source);
        self.by_size.remove(&(size + 1, source));
        if size > 0 {
            self.by_size.insert((size, source));
        }
    }

    fn newest_of(&self, source: Source, count: usize) -> Vec<Arc<Standing>> {
        let newest = self.staying().rev().filter(|connection| connection.source == source).take(count);
        newest.map(|connection| Arc::clone(&connection.standing)).collect()
    }

    fn staying(&self) -> impl DoubleEndedIterator<Item = &OpenConnection> {
        self.connections.values().filter(|connection| !connection.standing.is_to_go.load(Ordering::Relaxed))
    }
}

/// Answers the count that is left.
fn count_down<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) -> usize {
    let Some(count) = counts.get_mut(key) else { return 0 };
    *count -= 1;
    let left = *count;
    if left == 0 {
        counts.remove(key);
    }
    left
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.counts.open.lock().remove(self.id, self.ip);
    }
}

#[cfg(test)]
mod tests;
