//! The connections that are open, and who goes when there are too many.
//!
//! Owns the counts over all listeners. Bounds that an operator sets close the newcomer, as Kafka does. Where descriptors run
//! out, room is made first: connections that have not sent a request in their first second go, then the newest of the source
//! that has most, as long as the newcomer's has fewer. Room that was made so is kept for a while for those that have fewer, too:
//! whoever is closed and comes again at once does not find it. So whoever opens many connections finds room for few, and the
//! others are served.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::source::Source;
use crate::config::NetworkOptions;

/// Time that a new connection has to send a request while others find no room.
const SILENT_TIME_MAX: Duration = Duration::from_secs(1);
/// One of so many of all connections goes at once at most, so that room is made rarely.
const LEAVE_SHARE: usize = 16;
/// How often it is looked for connections that may go, for those of the source that has most and for others; whoever comes
/// between finds the room that was made, or none.
const LOOK_PERIOD: Duration = Duration::from_millis(50);
/// How long room that was made is kept for others than the source that has most.
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

/// A connection, as the others see it.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    has_asked: AtomicBool,
    is_to_go: AtomicBool,
    told: Notify,
}

impl Standing {
    /// A request has come.
    pub(crate) fn note_asked(&self) {
        self.has_asked.store(true, Ordering::Relaxed);
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

/// Invariants: `by_ip` and `by_source` count what `connections` has; those that have none are in neither. `by_size` has what
/// `by_source` has. Those that stay and the places that are kept are together no more than there are descriptors for.
#[derive(Debug, Default)]
struct Open {
    connections: BTreeMap<u64, OpenConnection>,
    by_ip: HashMap<IpAddr, usize>,
    by_source: HashMap<Source, usize>,
    by_size: BTreeSet<(usize, Source)>,
    /// When it was looked for some that may go, for the source that has most and for another.
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
    since: Instant,
    standing: Arc<Standing>,
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
        let connection = OpenConnection { source, since: Instant::now(), standing: Arc::clone(&standing) };
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
        let largest = self.largest(newcomer);
        if let (Some(kept), Some(_)) = (&mut self.kept, largest) {
            kept.places -= 1;
            return Some(0);
        }
        Some(self.make_room(now, largest)).filter(|leaving| *leaving > 0)
    }

    /// Has connections go for a newcomer from another source than the largest, if that is told; answers how many.
    fn make_room(&mut self, now: Instant, largest: Option<(Source, usize)>) -> usize {
        let looked_at = &mut self.looked_at[usize::from(largest.is_some())];
        if looked_at.is_some_and(|at| now.duration_since(at) < LOOK_PERIOD) {
            return 0;
        }
        *looked_at = Some(now);
        let share = self.connections.len().div_ceil(LEAVE_SHARE);
        let mut leaving = self.silent(now, share);
        if let Some((largest, surplus)) = largest {
            if leaving.is_empty() {
                leaving = self.newest_of(largest, share.min(surplus));
            }
            self.kept = Some(Kept { places: leaving.len().saturating_sub(1), until: now + KEPT_TIME });
        }
        for standing in &leaving {
            standing.tell_to_go();
        }
        leaving.len()
    }

    /// The oldest that have never asked for anything.
    fn silent(&self, now: Instant, count: usize) -> Vec<Arc<Standing>> {
        let is_silent = |connection: &&OpenConnection| {
            !connection.standing.has_asked.load(Ordering::Relaxed)
                && now.duration_since(connection.since) >= SILENT_TIME_MAX
        };
        let silent = self.staying().filter(is_silent).take(count);
        silent.map(|connection| Arc::clone(&connection.standing)).collect()
    }

    /// The source that has most, and as many of them as it has more than the newcomer's, halved; none if that is nothing.
    fn largest(&self, newcomer: Source) -> Option<(Source, usize)> {
        let theirs = self.by_source.get(&newcomer).copied().unwrap_or(0);
        let (most, largest) = self.by_size.last()?;
        let surplus = most.saturating_sub(theirs) / 2;
        (surplus > 0).then_some((*largest, surplus))
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

/// Answers what is left.
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
