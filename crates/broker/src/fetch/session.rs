//! Incremental fetch sessions (KIP-227): a client that fetches many partitions names only what changed, and is
//! told only what changed.
//!
//! Pure: requests and time in, decisions out. Owns what a session remembers and when it ends. The number of
//! sessions is bounded; when all slots are taken, the one unused for longest makes room, if it has been unused
//! for [`EVICTION_AGE`], and otherwise the newcomer is served without a session, which every client understands.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_protocol::ErrorCode;
use riverrun_types::{LeaderEpoch, Offset, TopicId};

/// Session epoch of a request that wants a new session.
const EPOCH_INITIAL: i32 = 0;
/// Session epoch of a request that wants none, and ends the one it names.
const EPOCH_FINAL: i32 = -1;
/// Session id of "no session".
pub(crate) const NO_SESSION: i32 = 0;
/// A session unused for this long gives way to a new one when all slots are taken.
const EVICTION_AGE: Duration = Duration::from_mins(2);

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
        let Some(&sequence) = self.sequence_of.get(partition) else { return };
        let Some(mut wanted) = self.order.remove(&sequence) else { return };
        // After an error the client must hear of the partition again as soon as it is well.
        wanted.told = (!told.error).then_some((told.high_watermark, told.log_start));
        let place = if told.records { self.next_sequence } else { sequence };
        self.next_sequence += u64::from(told.records);
        self.sequence_of.insert(partition.clone(), place);
        self.order.insert(place, wanted);
    }
}

/// The sessions of one server.
#[derive(Debug)]
pub(crate) struct SessionCache {
    slots_max: usize,
    sessions: Mutex<HashMap<i32, Session>>,
}

impl SessionCache {
    pub(crate) fn new(slots_max: usize) -> Self {
        Self { slots_max, sessions: Mutex::default() }
    }

    /// Sessions that live now.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.sessions.lock().len()
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
        if matches!(request.session_epoch, EPOCH_INITIAL | EPOCH_FINAL) {
            sessions.remove(&request.session_id);
            let wants_session = request.session_epoch == EPOCH_INITIAL && !request.wanted.is_empty();
            let session_id = if wants_session && make_room(&mut sessions, self.slots_max, now) {
                let id = unused_id(&sessions, fresh_id);
                sessions.insert(id, Session::new(by_id, now, &request.wanted));
                id
            } else {
                NO_SESSION
            };
            return Ok(Plan { session_id, incremental: false, wanted: request.wanted });
        }
        let session_id = request.session_id;
        let plan = continue_session(&mut sessions, request, by_id, now)?;
        if plan.wanted.is_empty() {
            // A session of nothing is worth nothing; the client starts another when it has something to fetch.
            sessions.remove(&session_id);
            return Ok(Plan { session_id: NO_SESSION, ..plan });
        }
        Ok(plan)
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
        if let Some(session) = self.sessions.lock().get_mut(&session_id) {
            for (partition, told) in told {
                session.told(partition, told);
            }
        }
    }
}

fn continue_session(
    sessions: &mut HashMap<i32, Session>,
    request: SessionRequest,
    by_id: bool,
    now: Duration,
) -> Result<Plan, ErrorCode> {
    let session = sessions.get_mut(&request.session_id).ok_or(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)?;
    if session.next_epoch != request.session_epoch {
        return Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
    }
    if session.by_id != by_id {
        return Err(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
    }
    session.next_epoch = session.next_epoch.checked_add(1).unwrap_or(1);
    session.used_at = now;
    request.forgotten.iter().for_each(|partition| session.remove(partition));
    request.wanted.into_iter().for_each(|wanted| session.put(wanted));
    let wanted = session.order.values().cloned().collect();
    Ok(Plan { session_id: request.session_id, incremental: true, wanted })
}

/// Whether a slot is free, made so if the least used session is old enough.
fn make_room(sessions: &mut HashMap<i32, Session>, slots_max: usize, now: Duration) -> bool {
    if sessions.len() < slots_max {
        return true;
    }
    let oldest = sessions.iter().min_by_key(|(_, session)| session.used_at);
    let Some((&id, session)) = oldest else { return false };
    let evict = now.saturating_sub(session.used_at) > EVICTION_AGE;
    if evict {
        sessions.remove(&id);
    }
    evict
}

fn unused_id(sessions: &HashMap<i32, Session>, fresh: u64) -> i32 {
    let mut id = i32::try_from(fresh & 0x7fff_ffff).unwrap_or(i32::MAX);
    while id == NO_SESSION || sessions.contains_key(&id) {
        id = id.wrapping_add(1) & i32::MAX;
    }
    id
}

#[cfg(test)]
mod tests;
