//! The connections that are open, and who goes when there are too many.
//!
//! Owns the counts over all listeners. Bounds that an operator sets close the newcomer, as Kafka does. Where descriptors run
//! out, room is made first: connections that have not sent a request in their first second go, then the newest of the source
//! that has most, as long as the newcomer's has fewer. So whoever opens many connections finds room for few, and the others
//! are served.

use std::collections::{BTreeMap, HashMap};
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
/// How often it is looked for connections that may go; whoever comes between finds the room that was made, or none.
const LOOK_PERIOD: Duration = Duration::from_millis(50);

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

/// Invariants: `by_ip` and `by_source` count what `connections` has; those that have none are in neither.
#[derive(Debug, Default)]
struct Open {
    connections: BTreeMap<u64, OpenConnection>,
    by_ip: HashMap<IpAddr, usize>,
    by_source: HashMap<Source, usize>,
    looked_at: Option<Instant>,
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
        let leaving =
            if open.connections.len() < bounds.descriptors_max { 0 } else { open.make_room(source) };
        if open.connections.len() >= bounds.descriptors_max && leaving == 0 {
            return Err(Refused::Descriptors);
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let standing = Arc::<Standing>::default();
        let connection = OpenConnection { source, since: Instant::now(), standing: Arc::clone(&standing) };
        open.connections.insert(id, connection);
        open.by_ip.insert(ip, here + 1);
        *open.by_source.entry(source).or_default() += 1;
        Ok((Counted { counts: Arc::clone(self), ip, id, standing }, leaving))
    }
}

impl Open {
    /// Has connections go for one from this source; answers how many.
    fn make_room(&mut self, newcomer: Source) -> usize {
        let now = Instant::now();
        if self.looked_at.is_some_and(|at| now.duration_since(at) < LOOK_PERIOD) {
            return 0;
        }
        self.looked_at = Some(now);
        let share = self.connections.len().div_ceil(LEAVE_SHARE);
        let leaving = self.silent(now, share);
        let leaving = if leaving.is_empty() { self.of_largest(newcomer, share) } else { leaving };
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

    /// The newest of the source that has most, as many as it has more than the newcomer's, halved.
    fn of_largest(&self, newcomer: Source, count: usize) -> Vec<Arc<Standing>> {
        let theirs = self.by_source.get(&newcomer).copied().unwrap_or(0);
        let Some((largest, most)) = self.by_source.iter().max_by_key(|(_, count)| **count) else {
            return Vec::new();
        };
        let count = count.min(most.saturating_sub(theirs) / 2);
        let newest = self.staying().rev().filter(|connection| connection.source == *largest).take(count);
        newest.map(|connection| Arc::clone(&connection.standing)).collect()
    }

    fn staying(&self) -> impl DoubleEndedIterator<Item = &OpenConnection> {
        self.connections.values().filter(|connection| !connection.standing.is_to_go.load(Ordering::Relaxed))
    }
}

fn count_down<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut open = self.counts.open.lock();
        if let Some(connection) = open.connections.remove(&self.id) {
            count_down(&mut open.by_source, &connection.source);
            count_down(&mut open.by_ip, &self.ip);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::config::BrokerConfig;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn bounds(descriptors_max: usize) -> ConnectionBounds {
        let config = BrokerConfig::from_pairs([
            ("max.connections.per.ip", "100"),
            ("max.connections.per.ip.overrides", "192.0.2.200:2, [2001:db8::1]:0, 192.0.2.201:1"),
        ]);
        ConnectionBounds::new(&config.expect("valid").network, descriptors_max)
    }

    fn told(connections: &[Counted]) -> Vec<usize> {
        let is_told = |counted: &Counted| counted.standing.told_to_go().now_or_never().is_some();
        (0..connections.len()).filter(|&index| is_told(&connections[index])).collect()
    }

    #[test]
    fn an_address_may_have_a_bound_of_its_own_however_a_socket_spells_it() {
        let bounds = bounds(usize::MAX);
        let counts = Arc::new(ConnectionCounts::default());
        let [busy, spelt, none, other] = ["192.0.2.200", "::ffff:192.0.2.200", "2001:db8::1", "192.0.2.201"]
            .map(|ip| ip.parse().expect("an address"));
        let _first = counts.admit(busy, &bounds).expect("the first of two");
        let second = counts.admit(spelt, &bounds).expect("the second of two");
        for ip in [busy, spelt, none] {
            assert_eq!(counts.admit(ip, &bounds).expect_err("full"), Refused::Bound);
        }
        let _other = counts.admit(other, &bounds).expect("the only one");
        assert_eq!(counts.admit(other, &bounds).expect_err("full"), Refused::Bound);
        drop(second);
        assert!(counts.admit(busy, &bounds).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_have_not_asked_go_for_newcomers_when_descriptors_run_out() {
        let (counts, bounds) = (Arc::new(ConnectionCounts::default()), bounds(32));
        let open: Vec<_> = (0..32).map(|_| counts.admit(address(1), &bounds).expect("room").0).collect();
        open[0].standing.note_asked();
        assert_eq!(counts.admit(address(1), &bounds).expect_err("none is old"), Refused::Descriptors);
        tokio::time::advance(SILENT_TIME_MAX).await;
        let (_newcomer, leaving) = counts.admit(address(1), &bounds).expect("room is made");
        assert_eq!((leaving, told(&open)), (2, vec![1, 2]));
        assert!(counts.admit(address(1), &bounds).is_err(), "they have not gone yet");
        drop(open);
        assert_eq!(counts.open.lock().connections.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_newest_of_the_source_that_has_most_go_for_those_of_others() {
        let (counts, bounds) = (Arc::new(ConnectionCounts::default()), bounds(32));
        let open: Vec<_> = (0..32)
            .map(|index| counts.admit(address(u8::from(index < 8)), &bounds).expect("room").0)
            .collect();
        for counted in &open {
            counted.standing.note_asked();
        }
        tokio::time::advance(SILENT_TIME_MAX).await;
        assert_eq!(counts.admit(address(0), &bounds).expect_err("it has most"), Refused::Descriptors);
        tokio::time::advance(LOOK_PERIOD).await;
        let (newcomer, leaving) = counts.admit(address(1), &bounds).expect("room is made");
        assert_eq!((leaving, told(&open)), (2, vec![30, 31]));
        drop((open, newcomer));
        let open = counts.open.lock();
        assert!(open.connections.is_empty() && open.by_ip.is_empty() && open.by_source.is_empty());
    }
}
