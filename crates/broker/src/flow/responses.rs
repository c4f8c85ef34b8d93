//! Memory for responses: held until their clients have taken them, and shared out among the requests that ask for more.
//!
//! Owns an account for each connection and for each [`Source`]. Guarantees that requests with small answers never wait,
//! however much others have not taken. Only requests for much wait. A source may hold as much as it leaves free, so that the
//! source that holds least comes first. While a request waits, or more is held than there is, connections that do not take
//! their responses are sent away, the largest first. To connect again gains them nothing: the memory that they held counts
//! for their source until it is free. A response that exists is charged as it stands (a request that was started must be able
//! to finish), unless so much is held that it could only be added at everybody's cost.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::source::Source;
use crate::log_limit::RESPONSE_MEMORY;

/// Bytes of a response that are small: so much each connection may hold beyond what is free.
pub(crate) const SMALL_BYTES: usize = 64 * 1024;
/// The part of the memory beyond which connections that have unsent responses are held to small ones.
const EASY_SHARE: usize = 4;
/// A fetch takes one of so many parts of what is free for it.
const FETCH_SHARE: usize = 4;
/// A request is let in for so many eighths of the memory at most, whatever it asks for: else it might wait for ever.
const EXPECTED_EIGHTHS_MAX: usize = 3;
/// Half as much again as there is: beyond, large responses are not kept.
const KEPT_HALVES_MAX: usize = 3;
/// Time between two looks for connections that take nothing.
pub(crate) const LOOK_PERIOD: Duration = Duration::from_millis(50);
/// In so long a client has to take a part of what it holds, if others wait for that. A client across the world has some in
/// such a time.
const PROGRESS_TIME: Duration = Duration::from_millis(200);
/// That part, and at least [`SMALL_BYTES`]: a client that takes 4 MB/s holds the largest fetch response at no risk.
const PROGRESS_SHARE: usize = 64;

/// Shared by all connections.
///
/// Invariants: `used_bytes` is the sum over all accounts, and those of a source over its connections. `sources` has those
/// that have an account. `holders` has all accounts that hold more than [`SMALL_BYTES`], and maybe
/// others. `waiting` is the length of `line`; it is raised before the last look for memory, and memory is given back before
/// it is looked at, so that no release is missed. A source outlives what its connections hold, because what is held keeps
/// their accounts.
pub(crate) struct ResponseMemory {
    capacity_bytes: usize,
    used_bytes: AtomicUsize,
    sources: Mutex<HashMap<Source, Arc<SourceAccount>>>,
    holders: Mutex<BTreeMap<u64, Weak<Account>>>,
    line: Mutex<Line>,
    waiting: AtomicUsize,
    looked_at: Mutex<Instant>,
    evicted: AtomicU64,
}

#[derive(Debug)]
struct SourceAccount {
    source: Source,
    /// Accounts of connections; changed only while the table is locked.
    accounts: AtomicUsize,
    held_bytes: AtomicUsize,
}

/// The memory that one connection's responses hold.
pub(crate) struct Account {
    memory: Arc<ResponseMemory>,
    source: Arc<SourceAccount>,
    connection: u64,
    held_bytes: AtomicUsize,
    /// Bytes that its client has taken.
    sent_bytes: AtomicU64,
    progress: Mutex<Progress>,
    is_evicted: AtomicBool,
    evicted: Notify,
}

#[derive(Debug)]
struct Progress {
    since: Instant,
    sent_bytes: u64,
    is_lagging: bool,
}

/// Memory of a response, given back when dropped.
pub(crate) struct Held {
    account: Arc<Account>,
    bytes: usize,
}

/// A request that waits for memory for its response. It leaves the line when dropped.
#[derive(Debug)]
pub(crate) struct InLine {
    account: Arc<Account>,
    ticket: u64,
    bytes: usize,
    granted: oneshot::Receiver<()>,
    is_taken: bool,
}

#[derive(Default)]
struct Line {
    waiting: BTreeMap<u64, Waiting>,
    next_ticket: u64,
}

struct Waiting {
    source: Arc<SourceAccount>,
    bytes: usize,
    since: Instant,
    grant: oneshot::Sender<()>,
}

impl Waiting {
    /// The lowest is served first: of the source that holds least, and of its requests the smallest; that counts for half
    /// with each second.
    fn rank(&self, now: Instant) -> (usize, usize) {
        let seconds = u32::try_from(now.duration_since(self.since).as_secs()).unwrap_or(u32::MAX);
        (self.source.held_bytes.load(SeqCst), self.bytes.checked_shr(seconds).unwrap_or(0))
    }
}

impl fmt::Debug for ResponseMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseMemory").field("used_bytes", &self.used_bytes()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("held_bytes", &self.held_bytes).finish_non_exhaustive()
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held({})", self.bytes)
    }
}

impl ResponseMemory {
    pub(crate) fn new(capacity_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            capacity_bytes,
            used_bytes: AtomicUsize::new(0),
            sources: Mutex::default(),
            holders: Mutex::default(),
            line: Mutex::default(),
            waiting: AtomicUsize::new(0),
            looked_at: Mutex::new(Instant::now()),
            evicted: AtomicU64::new(0),
        })
    }

    /// The account of a connection of that number from that address.
    pub(crate) fn account(self: &Arc<Self>, connection: u64, address: IpAddr) -> Arc<Account> {
        let source = Source::of(address);
        let mut sources = self.sources.lock();
        let source = sources.entry(source).or_insert_with(|| {
            let (accounts, held_bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
            Arc::new(SourceAccount { source, accounts, held_bytes })
        });
        source.accounts.fetch_add(1, Relaxed);
        Arc::new(Account {
            memory: Arc::clone(self),
            source: Arc::clone(source),
            connection,
            held_bytes: AtomicUsize::new(0),
            sent_bytes: AtomicU64::new(0),
            progress: Mutex::new(Progress { since: Instant::now(), sent_bytes: 0, is_lagging: false }),
            is_evicted: AtomicBool::new(false),
            evicted: Notify::new(),
        })
    }

    /// Bytes held now.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Relaxed)
    }

    /// Requests that wait for memory for their responses.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Connections that were sent away because they did not take their responses while others waited.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }

    /// Bytes of memory that a fetch from this address may answer with. One batch may be more.
    pub(crate) fn fetch_bytes_max(&self, address: IpAddr) -> usize {
        let used = self.used_bytes();
        let mut free = self.capacity_bytes.saturating_sub(used);
        if used > self.capacity_bytes / EASY_SHARE {
            let sources = self.sources.lock();
            let held = sources.get(&Source::of(address)).map_or(0, |source| source.held_bytes.load(Relaxed));
            free = free.saturating_sub(held);
        }
        (free / FETCH_SHARE).max(SMALL_BYTES)
    }

    /// The trouble, while more is held than there is or a request waits.
    pub(crate) fn trouble(&self) -> Option<String> {
        let (used, waiting) = (self.used_bytes(), self.waiting());
        if waiting == 0 && used <= self.capacity_bytes {
            return None;
        }
        let (source, held) = self.largest_source()?;
        Some(format!(
            "all memory for responses is in use: those that clients have not taken hold {used} bytes of {} \
             (queued.max.response.bytes), {held} of them for {source}; {waiting} requests with large answers wait",
            self.capacity_bytes
        ))
    }

    fn largest_source(&self) -> Option<(Source, usize)> {
        let sources = self.sources.lock();
        let held = sources.values().map(|source| (source.source, source.held_bytes.load(Relaxed)));
        held.max_by_key(|(_, held)| *held)
    }

    /// Whether so much more may be begun for a source that holds that much: as much as it leaves free.
    fn fits(&self, held: usize, bytes: usize) -> bool {
        let taken = held.saturating_add(self.used_bytes.load(SeqCst));
        taken.saturating_add(bytes) <= self.capacity_bytes
    }

    /// Gives free memory to the requests in line.
    fn serve(&self) {
        let now = Instant::now();
        let mut line = self.line.lock();
        loop {
            let fitting = line.waiting.iter().filter(|(_, waiting)| {
                waiting.grant.is_closed() || self.fits(waiting.source.held_bytes.load(SeqCst), waiting.bytes)
            });
            let first = fitting.min_by_key(|(ticket, waiting)| (waiting.rank(now), **ticket));
            let Some((&ticket, _)) = first else { return };
            let Some(waiting) = line.waiting.remove(&ticket) else { return };
            self.waiting.fetch_sub(1, SeqCst);
            waiting.source.held_bytes.fetch_add(waiting.bytes, SeqCst);
            self.used_bytes.fetch_add(waiting.bytes, SeqCst);
            // An `InLine` that is dropped before it took the grant gives it back.
            let _ = waiting.grant.send(());
        }
    }

    /// To be called now and then by a connection that waits or holds much: serves the line, and sends connections away that
    /// do not take their responses, if others need the memory. Does something once in [`LOOK_PERIOD`] only.
    pub(crate) fn look(&self) {
        let now = Instant::now();
        {
            let Some(mut looked_at) = self.looked_at.try_lock() else { return };
            if now.duration_since(*looked_at) < LOOK_PERIOD {
                return;
            }
            *looked_at = now;
        }
        if self.waiting.load(SeqCst) > 0 {
            self.serve();
        }
        let wanted = self.wanted_bytes();
        let spent = self.used_bytes().saturating_sub(self.capacity_bytes);
        if wanted + spent > 0 {
            self.evict(now, wanted + spent);
        }
    }

    /// The smallest request in line.
    fn wanted_bytes(&self) -> usize {
        self.line.lock().waiting.values().map(|waiting| waiting.bytes).min().unwrap_or(0)
    }

    /// Has connections go that take too little, those of the largest sources first and of these the largest, until so much
    /// comes free.
    fn evict(&self, now: Instant, wanted: usize) {
        let mut lagging = self.lagging(now);
        lagging.sort_by_key(|account| {
            let held = account.held_bytes.load(Relaxed);
            std::cmp::Reverse((account.source.held_bytes.load(Relaxed), held))
        });
        let mut freed = 0;
        for account in lagging {
            if freed >= wanted {
                break;
            }
            freed += account.held_bytes.load(Relaxed);
            if !account.is_evicted.swap(true, SeqCst) {
                self.evicted.fetch_add(1, Relaxed);
                account.evicted.notify_one();
            }
        }
        if let Some(trouble) = self.trouble() {
            RESPONSE_MEMORY.warn(|suppressed| tracing::warn!(suppressed, "{trouble}"));
        }
    }

    fn lagging(&self, now: Instant) -> Vec<Arc<Account>> {
        let mut holders = self.holders.lock();
        let accounts: Vec<_> = holders.values().filter_map(Weak::upgrade).collect();
        holders.retain(|_, account| account.strong_count() > 0);
        drop(holders);
        accounts.into_iter().filter(|account| account.is_lagging(now)).collect()
    }
}

impl Account {
    /// The source of the connection.
    pub(crate) fn source(&self) -> Source {
        self.source.source
    }

    /// Unsent bytes after which the connection starts no further request.
    pub(crate) fn unsent_bytes_max(&self, easy_max: usize) -> usize {
        let is_easy = self.memory.used_bytes() <= self.memory.capacity_bytes / EASY_SHARE;
        if is_easy { easy_max } else { easy_max.min(SMALL_BYTES) }
    }

    /// The client has taken so much.
    pub(crate) fn sent(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Waits until the connection is sent away.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Takes the memory of a response that is there. None if that is large and too much is held: it is not to be kept.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Option<Held> {
        let used = self.memory.used_bytes();
        if bytes > SMALL_BYTES && used > self.memory.capacity_bytes / 2 * KEPT_HALVES_MAX {
            return None;
        }
        self.source.held_bytes.fetch_add(bytes, SeqCst);
        self.memory.used_bytes.fetch_add(bytes, SeqCst);
        Some(self.hold(bytes))
    }

    /// Takes memory for a response that is expected to need so much, if the source may have it; otherwise its place in
    /// line.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: usize) -> Result<Held, InLine> {
        let memory = &self.memory;
        let bytes = bytes.min(memory.capacity_bytes / 8 * EXPECTED_EIGHTHS_MAX);
        let is_free =
            memory.waiting.load(SeqCst) == 0 && memory.fits(self.source.held_bytes.load(SeqCst), bytes);
        if is_free {
            self.source.held_bytes.fetch_add(bytes, SeqCst);
            memory.used_bytes.fetch_add(bytes, SeqCst);
            return Ok(self.hold(bytes));
        }
        let (grant, granted) = oneshot::channel();
        let ticket = {
            let mut line = memory.line.lock();
            line.next_ticket += 1;
            let ticket = line.next_ticket;
            let waiting = Waiting { source: Arc::clone(&self.source), bytes, since: Instant::now(), grant };
            line.waiting.insert(ticket, waiting);
            memory.waiting.fetch_add(1, SeqCst);
            ticket
        };
        // A release before it was counted as waiting did not serve the line.
        memory.serve();
        memory.look();
        Err(InLine { account: Arc::clone(self), ticket, bytes, granted, is_taken: false })
    }

    /// Holds bytes that were counted already for the source and in all.
    fn hold(self: &Arc<Self>, bytes: usize) -> Held {
        let before = self.held_bytes.fetch_add(bytes, SeqCst);
        if before <= SMALL_BYTES && before + bytes > SMALL_BYTES {
            let sent_bytes = self.sent_bytes.load(Relaxed);
            *self.progress.lock() = Progress { since: Instant::now(), sent_bytes, is_lagging: false };
            self.memory.holders.lock().insert(self.connection, Arc::downgrade(self));
        }
        if self.memory.used_bytes() > self.memory.capacity_bytes {
            self.memory.look();
        }
        Held { account: Arc::clone(self), bytes }
    }

    fn release(&self, bytes: usize) {
        self.held_bytes.fetch_sub(bytes, SeqCst);
        self.release_shared(bytes);
    }

    fn release_shared(&self, bytes: usize) {
        self.source.held_bytes.fetch_sub(bytes, SeqCst);
        self.memory.used_bytes.fetch_sub(bytes, SeqCst);
        // Small releases add up until a request in line looks.
        if bytes > SMALL_BYTES && self.memory.waiting.load(SeqCst) > 0 {
            self.memory.serve();
        }
    }

    /// Whether its client takes too little of what it holds. To be asked again and again.
    fn is_lagging(&self, now: Instant) -> bool {
        let held = self.held_bytes.load(Relaxed);
        if held <= SMALL_BYTES {
            return false;
        }
        let mut progress = self.progress.lock();
        if now.duration_since(progress.since) >= PROGRESS_TIME {
            let sent = self.sent_bytes.load(Relaxed);
            let taken = usize::try_from(sent - progress.sent_bytes).unwrap_or(usize::MAX);
            let is_lagging = taken < (held / PROGRESS_SHARE).max(SMALL_BYTES);
            *progress = Progress { since: now, sent_bytes: sent, is_lagging };
        }
        progress.is_lagging
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let mut sources = self.memory.sources.lock();
        if self.source.accounts.fetch_sub(1, Relaxed) == 1 {
            sources.remove(&self.source.source);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.account.release(self.bytes);
    }
}

impl InLine {
    /// Waits until there is memory. Safe to drop at any time; the place in line is kept.
    pub(crate) async fn granted(&mut self) {
        // The sender is in the line until it grants.
        let _ = (&mut self.granted).await;
    }

    /// The memory, once it was granted.
    pub(crate) fn take(mut self) -> Held {
        self.is_taken = true;
        self.account.hold(self.bytes)
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        if self.is_taken {
            return;
        }
        let memory = &self.account.memory;
        let left = memory.line.lock().waiting.remove(&self.ticket);
        match left {
            Some(_) => _ = memory.waiting.fetch_sub(1, SeqCst),
            None => self.account.release_shared(self.bytes),
        }
    }
}

#[cfg(test)]
mod tests;
