//! Incremental fetch sessions (KIP-227): a client that fetches many partitions names only what changed, and is
//! told only what changed.
//!
//! Pure: requests and time in, decisions out. Owns what a session remembers and when it ends. The number of
//! sessions is bounded, and so is that of all their partitions; when there is no room, those unused for longest make
//! some, if they have been unused for [`EVICTION_AGE`], and otherwise the newcomer is served without a session, which
//! every client understands. A session that grows where there is no room ends: its client begins another. A name that
//! no topic can have, being too long, is answered and never remembered, so that a session takes no more than its
//! partitions allow.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_protocol::ErrorCode;
use riverrun_types::limits::TOPIC_NAME_BYTES_MAX;
use riverrun_types::{LeaderEpoch, Offset, TopicId};

/// Session epoch of a request that wants a new session.
const EPOCH_INITIAL: i32 = 0;
/// Session epoch of a request that wants none, and ends the one it names.
const EPOCH_FINAL: i32 = -1;
/// Session id of "no session".
pub(crate) const NO_SESSION: i32 = 0;
/// A session unused for this long gives way to a new one when all slots are taken.
const EVICTION_AGE: Duration = Duration::from_mins(2);
/// Partitions in all sessions together at most: some 200 bytes each.
const PARTITIONS_MAX: usize = 1_000_000;

/// How the request names a topic: by name up to version 12, by id from 13 on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TopicRef {
    Name(Arc<str>),
    Id(TopicId),
}

impl TopicRef {
    /// Whether it is short enough to be kept.
    fn may_be_remembered(&self) -> bool {
        match self {
            Self::Name(name) => name.len() <= TOPIC_NAME_BYTES_MAX,
            Self::Id(_) => true,
        }
    }
}

/// Names a partition in a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PartitionRef {
    pub(crate) topic: TopicRef,
    pub(crate) index: i32,
}

/// What a client wants of a partition, and what it was last told of it.
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

/// How a fetch is to be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The id to answer with.
    pub(crate) session_id: i32,
    /// Whether partitions without news are left out of the response.
    pub(crate) incremental: bool,
    /// What to read, in this order.
    pub(crate) wanted: Vec<Wanted>,
}

/// What one partition's response said, to be remembered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) high_watermark: Offset,
    pub(crate) log_start: Offset,
    pub(crate) records: bool,
    pub(crate) error: bool,
}

/// Invariants: `order` and `sequence_of` hold the same partitions; a partition that had records goes to the end
/// of the order, so that one that always has some does not starve the others.
#[derive(Debug)]
struct Session {
    by_id: bool,
    next_epoch: i32,
    used_at: Duration,
    order: BTreeMap<u64, Wanted>,
    sequence_of: HashMap<PartitionRef, u64>,
    next_sequence: u64,
}

impl Session {
    fn new(by_id: bool, now: Duration, wanted: &[Wanted]) -> Self {
        let mut session = Self {
            by_id,
            next_epoch: 1,
            used_at: now,
            order: BTreeMap::new(),
            sequence_of: HashMap::new(),
            next_sequence: 0,
        };
        for wanted in wanted {
            session.put(wanted.clone());
        }
        session
    }

    /// Adds a partition or changes what is wanted of it; what the client was told stays known.
    fn put(&mut self, mut wanted: Wanted) {
        if let Some(sequence) = self.sequence_of.get(&wanted.partition) {
            if let Some(known) = self.order.get_mut(sequence) {
                wanted.told = known.told;
                *known = wanted;
            }
            return;
        }
        self.sequence_of.insert(wanted.partition.clone(), self.next_sequence);
        self.order.insert(self.next_sequence, wanted);
        self.next_sequence += 1;
    }

    fn remove(&mut self, partition: &PartitionRef) {
        if let Some(sequence) = self.sequence_of.remove(partition) {
            self.order.remove(&sequence);
        }
    }

    fn told(&mut self, partition: &PartitionRef, told: Told) {
        let Some(place) = self.sequence_of.get_mut(partition) else { return };
        // After an error the client must hear of the partition again as soon as it is well.
        let news = (!told.error).then_some((told.high_watermark, told.log_start));
        if !told.records {
            if let Some(wanted) = self.order.get_mut(place) {
                wanted.told = news;
            }
        } else if let Some(mut wanted) = self.order.remove(place) {
            wanted.told = news;
            *place = self.next_sequence;
            self.order.insert(self.next_sequence, wanted);
            self.next_sequence += 1;
        }
    }

    fn len(&self) -> usize {
        self.order.len()
    }
}

/// The sessions by their ids.
///
/// Invariants: `partitions` is how many all sessions have together, at most `partitions_max`; there are at most
/// `slots_max` sessions.
#[derive(Debug)]
struct Sessions {
    slots_max: usize,
    partitions_max: usize,
    by_id: HashMap<i32, Session>,
    partitions: usize,
}

impl Sessions {
    fn remove(&mut self, id: i32) {
        if let Some(session) = self.by_id.remove(&id) {
            self.partitions -= session.len();
        }
    }

    fn insert(&mut self, id: i32, session: Session) {
        self.partitions += session.len();
        self.by_id.insert(id, session);
    }

    /// Whether there is room for a session of so many partitions, made if those least used are old enough.
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

    /// Begins a session if there is room; its id, or that of none.
    fn start(&mut self, wanted: &[Wanted], by_id: bool, now: Duration, fresh_id: u64) -> i32 {
        if wanted.is_empty() || wanted.len() > self.partitions_max || !may_be_remembered(wanted) {
            return NO_SESSION;
        }
        if !self.make_room(wanted.len(), now) {
            return NO_SESSION;
        }
        let id = self.unused_id(fresh_id);
        self.insert(id, Session::new(by_id, now, wanted));
        id
    }

    /// Applies what an incremental request changes, and plans all that its session fetches.
    fn resume(&mut self, request: SessionRequest, by_id: bool, now: Duration) -> Result<Plan, ErrorCode> {
        let session_id = request.session_id;
        let session = self.by_id.get_mut(&session_id).ok_or(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)?;
        if session.next_epoch != request.session_epoch {
            return Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        if session.by_id != by_id {
            return Err(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        if !may_be_remembered(&request.wanted) {
            self.remove(session_id);
            return Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
        }
        session.next_epoch = session.next_epoch.checked_add(1).unwrap_or(1);
        session.used_at = now;
        let before = session.len();
        request.forgotten.iter().for_each(|partition| session.remove(partition));
        request.wanted.into_iter().for_each(|wanted| session.put(wanted));
        self.partitions = self.partitions - before + session.len();
        if self.partitions > self.partitions_max {
            self.remove(session_id);
            return Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
        }
        let wanted: Vec<_> = session.order.values().cloned().collect();
        if wanted.is_empty() {
            // A session of nothing is worth nothing; the client starts another when it has something to fetch.
            self.remove(session_id);
            return Ok(Plan { session_id: NO_SESSION, incremental: true, wanted });
        }
        Ok(Plan { session_id, incremental: true, wanted })
    }
}

fn may_be_remembered(wanted: &[Wanted]) -> bool {
    wanted.iter().all(|wanted| wanted.partition.topic.may_be_remembered())
}

/// The sessions of one server.
#[derive(Debug)]
pub(crate) struct SessionCache {
    sessions: Mutex<Sessions>,
}

impl SessionCache {
    pub(crate) fn new(slots_max: usize) -> Self {
        Self::bounded(slots_max, PARTITIONS_MAX)
    }

    fn bounded(slots_max: usize, partitions_max: usize) -> Self {
        let sessions = Sessions { slots_max, partitions_max, by_id: HashMap::new(), partitions: 0 };
        Self { sessions: Mutex::new(sessions) }
    }

    /// Sessions that live now.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.sessions.lock().by_id.len()
    }

    /// Decides how to serve a request. `fresh_id` is a random number that becomes the id of a new session.
    pub(crate) fn begin(
        &self,
        request: SessionRequest,
        by_id: bool,
        now: Duration,
        fresh_id: u64,
    ) -> Result<Plan, ErrorCode> {
        let mut sessions = self.sessions.lock();
        if !matches!(request.session_epoch, EPOCH_INITIAL | EPOCH_FINAL) {
            return sessions.resume(request, by_id, now);
        }
        sessions.remove(request.session_id);
        let session_id = match request.session_epoch {
            EPOCH_INITIAL => sessions.start(&request.wanted, by_id, now, fresh_id),
            _ => NO_SESSION,
        };
        Ok(Plan { session_id, incremental: false, wanted: request.wanted })
    }

    /// Remembers what a response told of its partitions.
    pub(crate) fn finish<'a>(
        &self,
        session_id: i32,
        told: impl IntoIterator<Item = (&'a PartitionRef, Told)>,
    ) {
        if session_id == NO_SESSION {
            return;
        }
        if let Some(session) = self.sessions.lock().by_id.get_mut(&session_id) {
            for (partition, told) in told {
                session.told(partition, told);
            }
        }
    }
}

#[cfg(test)]
mod tests;
