//! Incremental fetch sessions (KIP-227): a client that fetches many partitions names only those that changed, and is
//! answered only with those that changed.
//!
//! Pure: requests and time in, decisions out. Owns the partitions that a session remembers, and its end. The number of
//! sessions is bounded, and so are the partitions of one, and those of all. When there is no room, the sessions unused for
//! longest make some if they have been unused for [`EVICTION_AGE`]; otherwise the newcomer is served without a session,
//! which every client understands. A session that grows where there is no room ends: its client begins another. A partition
//! that does not exist is answered and never remembered, so that a session holds no more partitions than the server.
//!
//! The partitions of a session go with the request that is being served, and come back with its end: they are never copied,
//! and nobody waits for a lock while they are looked through.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_protocol::ErrorCode;
use riverrun_types::{LeaderEpoch, Offset, TopicId};

/// Session epoch of a request that wants a new session.
const EPOCH_INITIAL: i32 = 0;
/// Session epoch of a request that wants no session, and ends the one that it names.
const EPOCH_FINAL: i32 = -1;
/// Session id of "no session".
pub(crate) const NO_SESSION: i32 = 0;
/// A session unused for this long gives way to a new one when all slots are taken.
const EVICTION_AGE: Duration = Duration::from_mins(2);
/// Partitions in all sessions together at most: some 200 bytes each.
const PARTITIONS_MAX: usize = 1_000_000;
/// Partitions in one session at most: with five such clients there is no room for more.
const SESSION_PARTITIONS_MAX: usize = 200_000;

/// How the request names a topic: by name up to version 12, by id from 13 on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TopicRef {
    Name(Arc<str>),
    Id(TopicId),
}

/// Names a partition in a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PartitionRef {
    pub(crate) topic: TopicRef,
    pub(crate) index: i32,
}

/// A partition that a client wants, and the range that it was last told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) partition: PartitionRef,
    pub(crate) fetch_offset: Offset,
    pub(crate) max_bytes: i32,
    /// The leader epoch that the client believes in; unknown if it does not check.
    pub(crate) current_leader_epoch: LeaderEpoch,
    /// The epoch of the last batch that it has; unknown if it does not check.
    pub(crate) last_fetched_epoch: LeaderEpoch,
    /// High watermark and log start as last sent in this session.
    pub(crate) told: Option<(Offset, Offset)>,
}

/// The session part of a fetch request.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionRequest {
    pub(crate) session_id: i32,
    pub(crate) session_epoch: i32,
    pub(crate) wanted: Vec<Wanted>,
    pub(crate) forgotten: Vec<PartitionRef>,
}

/// The facts of a partition's response that its session remembers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) high_watermark: Offset,
    pub(crate) log_start: Offset,
    pub(crate) records: bool,
    pub(crate) error: bool,
}

/// Partitions in the order in which they are read.
///
/// Invariants: `order` holds the index of each entry of `entries` that is there, once; those that are not are in `free`. A
/// partition that had records goes to the end of the order, so that one that always has some does not starve the others.
#[derive(Debug, Default)]
struct Wants {
    entries: Vec<Option<Wanted>>,
    order: Vec<u32>,
    free: Vec<u32>,
}

impl Wants {
    fn iter(&self) -> impl Iterator<Item = &Wanted> {
        self.order.iter().filter_map(|index| self.entry(*index))
    }

    fn entry(&self, index: u32) -> Option<&Wanted> {
        self.entries.get(index as usize)?.as_ref()
    }

    fn entry_mut(&mut self, index: u32) -> Option<&mut Wanted> {
        self.entries.get_mut(index as usize)?.as_mut()
    }

    /// Adds a partition at the end of the order.
    fn add(&mut self, wanted: Wanted) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            u32::try_from(self.entries.len() - 1).expect("sessions are bounded")
        });
        self.entries[index as usize] = Some(wanted);
        self.order.push(index);
        index
    }

    /// Remembers the response of each partition, in their order.
    fn tell(&mut self, told: &[Told]) {
        for (index, told) in self.order.iter().zip(told) {
            // After an error the client must hear of the partition again as soon as it is well.
            let news = (!told.error).then_some((told.high_watermark, told.log_start));
            if let Some(Some(wanted)) = self.entries.get_mut(*index as usize) {
                wanted.told = news;
            }
        }
        if told.iter().any(|told| told.records) {
            let had_records = |place: usize| told.get(place).is_some_and(|told| told.records);
            let parted: (Vec<_>, Vec<_>) =
                self.order.iter().enumerate().partition(|(place, _)| had_records(*place));
            let (last, first) = parted;
            self.order = first.into_iter().chain(last).map(|(_, index)| *index).collect();
        }
    }
}

/// The partitions of a session.
///
/// Invariants: `index_of` and `wants` hold the same partitions.
#[derive(Debug, Default)]
struct Known {
    wants: Wants,
    index_of: HashMap<PartitionRef, u32>,
}

impl Known {
    fn of(wanted: Vec<Wanted>) -> Self {
        let mut known = Self::default();
        for wanted in wanted {
            known.put(wanted);
        }
        known
    }

    /// Adds a partition or changes its request; the range that the client was told stays known.
    fn put(&mut self, mut wanted: Wanted) {
        match self.index_of.entry(wanted.partition.clone()) {
            Entry::Occupied(found) => {
                if let Some(known) = self.wants.entry_mut(*found.get()) {
                    wanted.told = known.told;
                    *known = wanted;
                }
            }
            Entry::Vacant(vacant) => _ = vacant.insert(self.wants.add(wanted)),
        }
    }

    fn remove_all(&mut self, partitions: &[PartitionRef]) {
        let Wants { entries, order, free } = &mut self.wants;
        for index in partitions.iter().filter_map(|partition| self.index_of.remove(partition)) {
            entries[index as usize] = None;
            free.push(index);
        }
        if !partitions.is_empty() {
            order.retain(|index| entries[*index as usize].is_some());
        }
    }

    fn len(&self) -> usize {
        self.index_of.len()
    }
}

/// Home of a session's partitions while no request is being served.
type Home = Arc<Mutex<Option<Known>>>;

/// A fetch as it is to be served.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The id to answer with.
    pub(crate) session_id: i32,
    /// Whether partitions without news are left out of the response.
    pub(crate) incremental: bool,
    known: Known,
    /// Place to put the partitions back, if they belong to a session.
    home: Option<Home>,
}

impl Plan {
    /// A plan to read these partitions without a session.
    pub(crate) fn alone(wanted: Vec<Wanted>) -> Self {
        Self { session_id: NO_SESSION, incremental: false, known: Known::of(wanted), home: None }
    }

    /// The partitions to read, in this order.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = &Wanted> {
        self.known.wants.iter()
    }

    /// The partition at this place of the order, which is below [`Self::len`].
    pub(crate) fn at(&self, place: usize) -> &Wanted {
        let wants = &self.known.wants;
        wants.entry(wants.order[place]).expect("the order holds what is there")
    }

    /// Number of partitions to read.
    pub(crate) fn len(&self) -> usize {
        self.known.wants.order.len()
    }

    /// Remembers the response of each partition, in their order.
    pub(crate) fn finish(mut self, told: &[Told]) {
        if self.home.is_some() {
            self.known.wants.tell(told);
        }
    }
}

impl Drop for Plan {
    /// The session goes on, whatever the end of the request.
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            *home.lock() = Some(std::mem::take(&mut self.known));
        }
    }
}

#[derive(Debug)]
struct Session {
    by_id: bool,
    next_epoch: i32,
    used_at: Duration,
    /// Number of partitions, as it is counted in the total.
    len: usize,
    home: Home,
}

/// The sessions by their ids.
///
/// Invariants: `partitions` is the number of partitions of all sessions together, at most `partitions_max`; there are at
/// most `slots_max` sessions. `removed` holds sessions that have ended since [`SessionCache::with`] took them last: dropping
/// them takes time, and is done when nobody waits for the lock.
#[derive(Debug)]
struct Sessions {
    slots_max: usize,
    partitions_max: usize,
    by_id: HashMap<i32, Session>,
    partitions: usize,
    removed: Vec<Session>,
}

impl Sessions {
    fn remove(&mut self, id: i32) {
        if let Some(session) = self.by_id.remove(&id) {
            self.partitions -= session.len;
            self.removed.push(session);
        }
    }

    /// Whether there is room for a session of so many partitions; the least used give way if they are old enough.
    fn make_room(&mut self, partitions: usize, now: Duration) -> bool {
        while self.by_id.len() >= self.slots_max || self.partitions + partitions > self.partitions_max {
            let oldest = self.by_id.iter().min_by_key(|(_, session)| session.used_at);
            let Some((&id, session)) = oldest else { return false };
            if now.saturating_sub(session.used_at) <= EVICTION_AGE {
                return false;
            }
            self.remove(id);
        }
        true
    }

    fn unused_id(&self, fresh: u64) -> i32 {
        let mut id = i32::try_from(fresh & 0x7fff_ffff).unwrap_or(i32::MAX);
        while id == NO_SESSION || self.by_id.contains_key(&id) {
            id = id.wrapping_add(1) & i32::MAX;
        }
        id
    }

    /// Begins a session of so many partitions if there is room.
    fn start(&mut self, len: usize, by_id: bool, now: Duration, fresh_id: u64) -> Option<(i32, Home)> {
        if len == 0 || len > self.partitions_max.min(SESSION_PARTITIONS_MAX) || !self.make_room(len, now) {
            return None;
        }
        let (id, home) = (self.unused_id(fresh_id), Home::default());
        let session = Session { by_id, next_epoch: 1, used_at: now, len, home: Arc::clone(&home) };
        self.partitions += len;
        self.by_id.insert(id, session);
        Some((id, home))
    }

    /// Takes the partitions of the session that an incremental request belongs to.
    fn resume(&mut self, request: &SessionRequest, by_id: bool, now: Duration) -> Result<Plan, ErrorCode> {
        let session_id = request.session_id;
        let session = self.by_id.get_mut(&session_id).ok_or(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)?;
        if session.next_epoch != request.session_epoch {
            return Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        if session.by_id != by_id {
            return Err(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        // Another request of the same session is being served: no client sends a second one before it is answered.
        let known = session.home.lock().take().ok_or(ErrorCode::INVALID_FETCH_SESSION_EPOCH)?;
        session.next_epoch = session.next_epoch.checked_add(1).unwrap_or(1);
        session.used_at = now;
        let home = Some(Arc::clone(&session.home));
        Ok(Plan { session_id, incremental: true, known, home })
    }

    /// Counts the partitions of a session anew; false if there is no room for them, and it ends.
    fn recount(&mut self, id: i32, len: usize) -> bool {
        let Some(session) = self.by_id.get_mut(&id) else { return true };
        self.partitions = self.partitions - session.len + len;
        session.len = len;
        let has_room = len <= SESSION_PARTITIONS_MAX && self.partitions <= self.partitions_max;
        if !has_room {
            self.remove(id);
        }
        has_room
    }
}

/// The sessions of one server.
#[derive(Debug)]
pub(crate) struct SessionCache {
    sessions: Mutex<Sessions>,
}

/// The answer to a request of a session that has ended, so that its client begins another.
const ENDED: ErrorCode = ErrorCode::FETCH_SESSION_ID_NOT_FOUND;

impl SessionCache {
    pub(crate) fn new(slots_max: usize) -> Self {
        Self::bounded(slots_max, PARTITIONS_MAX)
    }

    fn bounded(slots_max: usize, partitions_max: usize) -> Self {
        let (by_id, removed) = (HashMap::new(), Vec::new());
        let sessions = Sessions { slots_max, partitions_max, by_id, partitions: 0, removed };
        Self { sessions: Mutex::new(sessions) }
    }

    /// Sessions that live now.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.sessions.lock().by_id.len()
    }

    /// Changes the sessions. Those that end by it are dropped after the lock.
    fn with<T>(&self, change: impl FnOnce(&mut Sessions) -> T) -> T {
        let mut sessions = self.sessions.lock();
        let changed = change(&mut sessions);
        let removed = std::mem::take(&mut sessions.removed);
        drop(sessions);
        drop(removed);
        changed
    }

    /// Number of partitions of a session.
    pub(crate) fn partitions_of(&self, session_id: i32) -> usize {
        self.sessions.lock().by_id.get(&session_id).map_or(0, |session| session.len)
    }

    /// Decides how to serve a request. `fresh_id` is a random number that becomes the id of a new session; a session remembers
    /// only partitions that exist.
    pub(crate) fn begin(
        &self,
        request: SessionRequest,
        by_id: bool,
        now: Duration,
        fresh_id: u64,
        exists: impl Fn(&PartitionRef) -> bool,
    ) -> Result<Plan, ErrorCode> {
        let all_exist = request.wanted.iter().all(|wanted| exists(&wanted.partition));
        match request.session_epoch {
            EPOCH_INITIAL if all_exist => {
                self.with(|sessions| sessions.remove(request.session_id));
                Ok(self.start(request.wanted, by_id, now, fresh_id))
            }
            EPOCH_INITIAL | EPOCH_FINAL => {
                self.with(|sessions| sessions.remove(request.session_id));
                Ok(Plan::alone(request.wanted))
            }
            _ => self.resume(request, by_id, now, all_exist),
        }
    }

    fn start(&self, wanted: Vec<Wanted>, by_id: bool, now: Duration, fresh_id: u64) -> Plan {
        let known = Known::of(wanted);
        match self.with(|sessions| sessions.start(known.len(), by_id, now, fresh_id)) {
            Some((session_id, home)) => Plan { session_id, incremental: false, known, home: Some(home) },
            None => Plan { session_id: NO_SESSION, incremental: false, known, home: None },
        }
    }

    /// Applies the changes of an incremental request, and plans all partitions of its session.
    fn resume(
        &self,
        request: SessionRequest,
        by_id: bool,
        now: Duration,
        all_exist: bool,
    ) -> Result<Plan, ErrorCode> {
        let mut plan = self.sessions.lock().resume(&request, by_id, now)?;
        let id = request.session_id;
        if !all_exist {
            self.with(|sessions| sessions.remove(id));
            return Err(ENDED);
        }
        plan.known.remove_all(&request.forgotten);
        for wanted in request.wanted {
            plan.known.put(wanted);
        }
        if !self.with(|sessions| sessions.recount(id, plan.len())) {
            return Err(ENDED);
        }
        if plan.len() == 0 {
            // A session without partitions is worth nothing; the client starts another when it has one to fetch.
            self.with(|sessions| sessions.remove(id));
            plan.session_id = NO_SESSION;
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests;
