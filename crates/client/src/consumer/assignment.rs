//! The partitions that a consumer reads, and its position in each.
//!
//! Pure. Each change of a position has its own number, by which late answers are recognised.

use std::collections::BTreeMap;
use std::time::Duration;

use riverrun_types::{LeaderEpoch, NodeId, Offset};
use tokio::time::Instant;

use super::options::StartAt;
use super::trouble::Attempts;
use crate::coordinator::CommittedOffset;
use crate::error::ClientError;
use crate::leaders::Obstacle;
use crate::topic_partition::TopicPartition;

/// Positions to commit.
pub(super) type Positions = BTreeMap<TopicPartition, CommittedOffset>;

/// Most chunks of one partition, buffered or in flight: one to read from, one in reserve.
const CHUNKS_MAX: usize = 2;

/// The state of one partition.
///
/// Invariants: `fetch_from` is where the next fetch begins, after the `chunks` buffered ones; without a position
/// there is neither a chunk nor a fetch in flight.
#[derive(Debug)]
pub(super) struct PartitionState {
    pub(super) incarnation: Incarnation,
    /// How to find the position while it is unknown.
    pub(super) start: StartAt,
    /// The next offset that `poll` returns.
    pub(super) position: Option<Offset>,
    pub(super) fetch_from: Offset,
    pub(super) chunks: usize,
    pub(super) fetching: bool,
    /// True while a search for the position is in flight.
    pub(super) starting: bool,
    /// After an error: when to continue.
    pub(super) retry_at: Option<Instant>,
    /// Attempts to find the position and to fetch from it.
    pub(super) attempts: Attempts,
    /// Since when no server knows the partition.
    pub(super) missing_since: Option<Instant>,
    /// The committed offset, if known; `None` while a commit of the partition is in flight.
    pub(super) committed: Option<Offset>,
    /// Number of its last commit; 0 for none.
    pub(super) commit: u64,
    /// True while the application has paused it.
    pub(super) paused: bool,
    /// Leader epoch of the record before `position`, if it is known.
    pub(super) position_epoch: Option<LeaderEpoch>,
    /// Leader epoch of the record before `fetch_from`, if it is known.
    pub(super) fetch_epoch: Option<LeaderEpoch>,
    /// Epoch of the last leader that is known to have all records that were read.
    pub(super) validated: Option<LeaderEpoch>,
    /// The replica that the leader has named for this reader's rack, and until when it is used.
    pub(super) replica: Option<(NodeId, Instant)>,
    /// End of the partition for this reader, by the last answer.
    pub(super) end: Option<Offset>,
}

impl PartitionState {
    fn new(incarnation: Incarnation, start: StartAt) -> Self {
        let mut state = Self {
            incarnation,
            start,
            position: None,
            fetch_from: Offset::ZERO,
            chunks: 0,
            fetching: false,
            starting: false,
            retry_at: None,
            attempts: Attempts::default(),
            missing_since: None,
            committed: None,
            commit: 0,
            paused: false,
            position_epoch: None,
            fetch_epoch: None,
            validated: None,
            replica: None,
            end: None,
        };
        if let StartAt::Offset(offset) = start {
            state.begin(offset, None);
        }
        state
    }

    /// Sets the position that a search has found.
    pub(super) fn begin(&mut self, offset: Offset, epoch: Option<LeaderEpoch>) {
        self.position = Some(offset);
        self.fetch_from = offset;
        (self.position_epoch, self.fetch_epoch) = (epoch, epoch);
        self.starting = false;
        self.missing_since = None;
        self.retry_at = None;
        self.attempts.get_on();
    }

    /// Handles a failed search for the position. If no server knows the partition for some time, it is not new but
    /// missing; if only the leader does not know it, the leader lags behind the metadata.
    pub(super) fn not_started(&mut self, obstacle: Obstacle) -> ClientError {
        if !matches!(obstacle, Obstacle::Unknown(_)) {
            self.missing_since = None;
            return obstacle.into_error(Duration::ZERO);
        }
        let since = *self.missing_since.get_or_insert_with(Instant::now);
        obstacle.into_error(since.elapsed())
    }

    fn is_due(&self, now: Instant) -> bool {
        self.retry_at.is_none_or(|at| at <= now)
    }

    /// True if a search for the position is due.
    pub(super) fn wants_start(&self, now: Instant) -> bool {
        self.position.is_none() && !self.starting && self.is_due(now)
    }

    /// True if another chunk may be buffered.
    pub(super) fn has_room(&self) -> bool {
        self.chunks < CHUNKS_MAX
    }

    /// True if a leader of this epoch has to confirm the records read before the position: the log may have been
    /// truncated since the epoch of the last record.
    pub(super) fn is_doubtful(&self, leader_epoch: LeaderEpoch) -> bool {
        self.fetch_epoch.is_some_and(|epoch| epoch < leader_epoch)
            && self.validated.is_none_or(|validated| validated < leader_epoch)
    }

    /// The server to fetch from: the replica that the leader has named, or the leader.
    pub(super) fn source(&mut self, leader: NodeId, now: Instant) -> NodeId {
        self.replica = self.replica.filter(|(_, until)| now < *until);
        self.replica.map_or(leader, |(replica, _)| replica)
    }

    /// True if a fetch is due.
    pub(super) fn wants_fetch(&self, now: Instant) -> bool {
        self.position.is_some() && !self.fetching && !self.paused && self.has_room() && self.is_due(now)
    }
}

/// A partition at one change of its position: the slot of its state, and the number of the change. It finds the state
/// without the name, which matters with thousands of partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Incarnation {
    pub(super) slot: usize,
    pub(super) number: u64,
}

#[derive(Debug)]
struct Slot {
    partition: TopicPartition,
    state: PartitionState,
}

/// The partitions.
///
/// Invariants: `index` names the slot of each partition; all other slots are empty and in `free`.
#[derive(Debug, Default)]
pub(super) struct Assignment {
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    index: BTreeMap<TopicPartition, usize>,
    incarnations: u64,
}

impl Assignment {
    fn incarnation(&mut self, slot: usize) -> Incarnation {
        self.incarnations += 1;
        Incarnation { slot, number: self.incarnations }
    }

    /// Adds a partition, or moves it to another position.
    pub(super) fn put(&mut self, partition: TopicPartition, start: StartAt) {
        let slot = match self.index.get(&partition) {
            Some(slot) => *slot,
            None => self.free.pop().unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() - 1
            }),
        };
        let state = PartitionState::new(self.incarnation(slot), start);
        self.index.insert(partition.clone(), slot);
        self.slots[slot] = Some(Slot { partition, state });
    }

    /// Searches the position anew; buffered records and fetches in flight become void.
    pub(super) fn restart(&mut self, partition: &TopicPartition, start: StartAt) {
        let Some(&slot) = self.index.get(partition) else { return };
        let incarnation = self.incarnation(slot);
        if let Some(Slot { state, .. }) = &mut self.slots[slot] {
            let (committed, commit, paused) = (state.committed, state.commit, state.paused);
            *state = PartitionState { committed, commit, paused, ..PartitionState::new(incarnation, start) };
        }
    }

    /// The same after an error, with the pause that is due: the leader may return the same error repeatedly.
    pub(super) fn restart_later(&mut self, partition: &TopicPartition, start: StartAt) {
        let Some(state) = self.get_mut(partition) else { return };
        let (retry_at, attempts) = (state.retry_at, std::mem::take(&mut state.attempts));
        self.restart(partition, start);
        if let Some(state) = self.get_mut(partition) {
            (state.retry_at, state.attempts) = (retry_at, attempts);
        }
    }

    pub(super) fn remove(&mut self, partition: &TopicPartition) {
        if let Some(slot) = self.index.remove(partition) {
            self.slots[slot] = None;
            self.free.push(slot);
        }
    }

    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.free.clear();
        self.index.clear();
    }

    pub(super) fn get(&self, partition: &TopicPartition) -> Option<&PartitionState> {
        let slot = *self.index.get(partition)?;
        Some(&self.slots[slot].as_ref()?.state)
    }

    pub(super) fn get_mut(&mut self, partition: &TopicPartition) -> Option<&mut PartitionState> {
        let slot = *self.index.get(partition)?;
        Some(&mut self.slots[slot].as_mut()?.state)
    }

    /// The state of a partition, unless its position was changed since.
    pub(super) fn current(&mut self, incarnation: Incarnation) -> Option<&mut PartitionState> {
        let Slot { state, .. } = self.slots.get_mut(incarnation.slot)?.as_mut()?;
        Some(state).filter(|state| state.incarnation == incarnation)
    }

    /// The partitions' names.
    pub(super) fn names(&self) -> impl Iterator<Item = &TopicPartition> {
        self.index.keys()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&TopicPartition, &PartitionState)> {
        self.slots.iter().flatten().map(|slot| (&slot.partition, &slot.state))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&TopicPartition, &mut PartitionState)> {
        self.slots.iter_mut().flatten().map(|slot| (&slot.partition, &mut slot.state))
    }

    /// All known positions.
    pub(super) fn positions(&self) -> Positions {
        let position = |state: &PartitionState| {
            let (offset, leader_epoch) = (state.position?, state.position_epoch);
            Some(CommittedOffset { offset, leader_epoch, metadata: String::new() })
        };
        self.iter().filter_map(|(name, state)| Some((name.clone(), position(state)?))).collect()
    }

    /// Begins the commit of this number, after all with a lower one. Until it ends, and if it fails, its positions
    /// count as uncommitted, and so do the ones before it.
    pub(super) fn begin_commit(&mut self, number: u64, positions: &Positions) {
        for partition in positions.keys() {
            if let Some(state) = self.get_mut(partition) {
                (state.committed, state.commit) = (None, number);
            }
        }
    }

    /// Ends a successful commit. Ignored for partitions with a later commit, or given up meanwhile.
    pub(super) fn end_commit(&mut self, number: u64, positions: &Positions) {
        for (partition, position) in positions {
            if let Some(state) = self.get_mut(partition).filter(|state| state.commit == number) {
                state.committed = Some(position.offset);
            }
        }
    }

    /// Positions that are not committed.
    pub(super) fn uncommitted(&self) -> Positions {
        let dirty = |name: &TopicPartition, position: &CommittedOffset| {
            self.get(name).is_some_and(|state| state.committed != Some(position.offset))
        };
        let mut positions = self.positions();
        positions.retain(|name, position| dirty(name, position));
        positions
    }

    /// When the next partition continues after an error.
    pub(super) fn next_retry(&self, now: Instant) -> Option<Instant> {
        self.iter().filter_map(|(_, state)| state.retry_at).filter(|at| *at > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Incarnation = Incarnation { slot: 0, number: 1 };

    #[test]
    fn slot_of_a_removed_partition_is_reused_safely() {
        let [one, two, three] = [0, 1, 2].map(|index| TopicPartition::new("t", index));
        let mut assignment = Assignment::default();
        for partition in [&one, &two] {
            assignment.put(partition.clone(), StartAt::Offset(Offset(5)));
        }
        let old = assignment.get(&one).unwrap().incarnation;
        assignment.remove(&one);
        assert!(assignment.current(old).is_none() && assignment.get(&one).is_none());
        assignment.put(three.clone(), StartAt::Offset(Offset(9)));
        assert_eq!(assignment.get(&three).unwrap().incarnation.slot, old.slot);
        assert!(assignment.current(old).is_none(), "another partition's");
        assert_eq!(assignment.names().collect::<Vec<_>>(), [&two, &three]);
        assert_eq!(assignment.iter().count(), 2);
    }

    #[test]
    fn fetch_for_an_old_position_is_void() {
        let partition = TopicPartition::new("t", 0);
        let mut assignment = Assignment::default();
        assignment.put(partition.clone(), StartAt::Offset(Offset(5)));
        let old = assignment.get(&partition).unwrap().incarnation;
        assert!(assignment.current(old).is_some());
        assignment.restart(&partition, StartAt::Earliest);
        assert!(assignment.current(old).is_none());
        assert_eq!(assignment.get(&partition).unwrap().position, None);
    }

    #[tokio::test]
    async fn a_partition_holds_one_chunk_in_reserve() {
        let mut state = PartitionState::new(FIRST, StartAt::Offset(Offset(0)));
        let now = Instant::now();
        for _ in 0..2 {
            assert!(state.wants_fetch(now));
            state.chunks += 1;
        }
        assert!(!state.wants_fetch(now));
    }

    #[tokio::test]
    async fn paused_partition_stays_paused_after_a_seek() {
        let partition = TopicPartition::new("t", 0);
        let mut assignment = Assignment::default();
        assignment.put(partition.clone(), StartAt::Offset(Offset(5)));
        assignment.iter_mut().for_each(|(_, state)| state.paused = true);
        assignment.restart(&partition, StartAt::Offset(Offset(1)));
        assert!(!assignment.get(&partition).unwrap().wants_fetch(Instant::now()));
    }

    #[test]
    fn only_a_leader_of_a_later_epoch_is_asked_and_only_once() {
        let mut state = PartitionState::new(FIRST, StartAt::Earliest);
        state.begin(Offset(5), None);
        assert!(!state.is_doubtful(LeaderEpoch(9)), "nothing is known of what was read");
        state.begin(Offset(5), Some(LeaderEpoch(3)));
        assert!(!state.is_doubtful(LeaderEpoch(3)));
        assert!(state.is_doubtful(LeaderEpoch(4)));
        state.validated = Some(LeaderEpoch(4));
        assert!(!state.is_doubtful(LeaderEpoch(4)));
        assert!(state.is_doubtful(LeaderEpoch(5)));
    }

    #[test]
    fn only_positions_that_moved_are_committed() {
        let partition = TopicPartition::new("t", 0);
        let mut assignment = Assignment::default();
        assignment.put(partition.clone(), StartAt::Offset(Offset(5)));
        let offset = |positions: Positions| positions.get(&partition).map(|position| position.offset);
        assert_eq!(offset(assignment.uncommitted()), Some(Offset(5)));
        assignment.iter_mut().for_each(|(_, state)| state.committed = Some(Offset(5)));
        assert_eq!(assignment.uncommitted(), BTreeMap::new());
    }

    #[test]
    fn only_the_last_ended_commit_sets_the_committed_offset() {
        let partition = TopicPartition::new("t", 0);
        let mut assignment = Assignment::default();
        assignment.put(partition.clone(), StartAt::Offset(Offset(5)));
        let before = assignment.uncommitted();
        assignment.begin_commit(1, &before);
        assignment.end_commit(1, &before);
        assert_eq!(assignment.uncommitted(), BTreeMap::new());
        assignment.restart(&partition, StartAt::Offset(Offset(9)));
        let after = assignment.uncommitted();
        assignment.begin_commit(2, &after);
        assignment.restart(&partition, StartAt::Offset(Offset(5)));
        assert_eq!(assignment.uncommitted(), before, "what is under way may take its place");
        assignment.begin_commit(3, &before);
        assignment.end_commit(2, &after);
        assert_eq!(assignment.uncommitted(), before);
        assignment.end_commit(3, &before);
        assert_eq!(assignment.uncommitted(), BTreeMap::new());
        assignment.remove(&partition);
        assignment.put(partition.clone(), StartAt::Offset(Offset(5)));
        assignment.end_commit(3, &before);
        assert_eq!(assignment.uncommitted(), before, "others may have committed since");
    }
}
