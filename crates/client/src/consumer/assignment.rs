//! The partitions that a consumer reads, and how far it is in each.
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

/// Chunks of one partition that are held or under way at most: one to read from, one in reserve.
const CHUNKS_MAX: usize = 2;

/// How far one partition has been read.
///
/// Invariants: `fetch_from` is where the next fetch begins, after `chunks` held ones; without a position there is
/// neither a chunk nor a fetch under way.
#[derive(Debug)]
pub(super) struct PartitionState {
    pub(super) incarnation: Incarnation,
    /// How to find the position while there is none.
    pub(super) start: StartAt,
    /// The next offset that `poll` returns.
    pub(super) position: Option<Offset>,
    pub(super) fetch_from: Offset,
    pub(super) chunks: usize,
    pub(super) fetching: bool,
    /// Whether somebody is finding the position.
    pub(super) starting: bool,
    /// After an error: when to go on.
    pub(super) retry_at: Option<Instant>,
    /// Finding the position, and fetching from it.
    pub(super) attempts: Attempts,
    /// Since when no server knows it.
    pub(super) missing_since: Option<Instant>,
    /// What is committed, as far as is known; nothing is while a commit of it is under way.
    pub(super) committed: Option<Offset>,
    /// Number of the last commit of it that was begun; 0 for none.
    pub(super) commit: u64,
    /// Whether the application wants nothing of it for now.
    pub(super) paused: bool,
    /// Leader epoch of the record before `position`, if it is known.
    pub(super) position_epoch: Option<LeaderEpoch>,
    /// Leader epoch of the record before `fetch_from`, if it is known.
    pub(super) fetch_epoch: Option<LeaderEpoch>,
    /// Epoch of the leader that is known to have what was read.
    pub(super) validated: Option<LeaderEpoch>,
    /// A replica that the leader has named for this reader's rack, and until when that is believed.
    pub(super) replica: Option<(NodeId, Instant)>,
    /// Where the partition ends for this reader, by the last answer.
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

    /// Sets the position that was looked for.
    pub(super) fn begin(&mut self, offset: Offset, epoch: Option<LeaderEpoch>) {
        self.position = Some(offset);
        self.fetch_from = offset;
        (self.position_epoch, self.fetch_epoch) = (epoch, epoch);
        self.starting = false;
        self.missing_since = None;
        self.retry_at = None;
        self.attempts.get_on();
    }

    /// What it means that the search for the position has ended with this: what no server knows for some time is not on
    /// its way, but not there. A leader that does not know it is only behind what the others say.
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

    /// Whether there is a position to find.
    pub(super) fn wants_start(&self, now: Instant) -> bool {
        self.position.is_none() && !self.starting && self.is_due(now)
    }

    /// Whether more could be held.
    pub(super) fn has_room(&self) -> bool {
        self.chunks < CHUNKS_MAX
    }

    /// Whether a leader of this epoch has to be asked whether it has what was read before: the log may have been cut
    /// since the epoch of the last record.
    pub(super) fn is_doubtful(&self, leader_epoch: LeaderEpoch) -> bool {
        self.fetch_epoch.is_some_and(|epoch| epoch < leader_epoch)
            && self.validated.is_none_or(|validated| validated < leader_epoch)
    }

    /// Whom to ask: the replica that the leader has named, or the leader.
    pub(super) fn source(&mut self, leader: NodeId, now: Instant) -> NodeId {
        self.replica = self.replica.filter(|(_, until)| now < *until);
        self.replica.map_or(leader, |(replica, _)| replica)
    }

    /// Whether there is something to fetch.
    pub(super) fn wants_fetch(&self, now: Instant) -> bool {
        self.position.is_some() && !self.fetching && !self.paused && self.has_room() && self.is_due(now)
    }
}

/// A partition in one of its positions: where its state is kept, and which change of it is meant. It finds the state
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

    /// Looks for the position anew; what is held or under way counts no more.
    pub(super) fn restart(&mut self, partition: &TopicPartition, start: StartAt) {
        let Some(&slot) = self.index.get(partition) else { return };
        let incarnation = self.incarnation(slot);
        if let Some(Slot { state, .. }) = &mut self.slots[slot] {
            let (committed, commit, paused) = (state.committed, state.commit, state.paused);
            *state = PartitionState { committed, commit, paused, ..PartitionState::new(incarnation, start) };
        }
    }

    /// The same after an error, with the pause that is due: its leader may say the same again and again.
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

    /// By name.
    pub(super) fn names(&self) -> impl Iterator<Item = &TopicPartition> {
        self.index.keys()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&TopicPartition, &PartitionState)> {
        self.slots.iter().flatten().map(|slot| (&slot.partition, &slot.state))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&TopicPartition, &mut PartitionState)> {
        self.slots.iter_mut().flatten().map(|slot| (&slot.partition, &mut slot.state))
    }

    /// All positions that are known.
    pub(super) fn positions(&self) -> Positions {
        let position = |state: &PartitionState| {
            let (offset, leader_epoch) = (state.position?, state.position_epoch);
            Some(CommittedOffset { offset, leader_epoch, metadata: String::new() })
        };
        self.iter().filter_map(|(name, state)| Some((name.clone(), position(state)?))).collect()
    }

    /// A commit of this number begins, after all with a lower one. How it ends is not known: until then, and if it fails,
    /// every position is one that is not committed, the one before it too.
    pub(super) fn begin_commit(&mut self, number: u64, positions: &Positions) {
        for partition in positions.keys() {
            if let Some(state) = self.get_mut(partition) {
                (state.committed, state.commit) = (None, number);
            }
        }
    }

    /// This commit has gone well. Where a later one has been begun, or the partition was given up meanwhile, that tells
    /// nothing of it.
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

    /// When the next partition goes on after an error.
    pub(super) fn next_retry(&self, now: Instant) -> Option<Instant> {
        self.iter().filter_map(|(_, state)| state.retry_at).filter(|at| *at > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Incarnation = Incarnation { slot: 0, number: 1 };

    #[test]
    fn the_place_of_a_partition_that_is_gone_is_used_again_and_nothing_is_mixed_up() {
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
    fn what_was_fetched_for_an_old_position_counts_no_more() {
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
    async fn a_paused_partition_wants_nothing_and_stays_paused_when_it_is_moved() {
        let partition = TopicPartition::new("t", 0);
        let mut assignment = Assignment::default();
        assignment.put(partition.clone(), StartAt::Offset(Offset(5)));
        assignment.iter_mut().for_each(|(_, state)| state.paused = true);
        assignment.restart(&partition, StartAt::Offset(Offset(1)));
        assert!(!assignment.get(&partition).unwrap().wants_fetch(Instant::now()));
    }

    #[test]
    fn only_a_leader_of_a_later_epoch_than_the_last_record_s_is_asked_and_only_once() {
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
    fn only_the_last_commit_of_a_partition_tells_what_is_committed_and_only_when_it_has_ended() {
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
