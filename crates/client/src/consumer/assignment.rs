//! The partitions that a consumer reads, and how far it is in each.
//!
//! Pure. Each change of a position has its own number, its incarnation, by which late answers are recognised.

use std::collections::BTreeMap;

use riverrun_types::Offset;
use tokio::time::Instant;

use super::options::StartAt;
use super::trouble::Attempts;
use crate::topic_partition::TopicPartition;

/// Chunks of one partition that are held or under way at most: one to read from, one in reserve.
const CHUNKS_MAX: usize = 2;

/// How far one partition has been read.
///
/// Invariants: `fetch_from` is where the next fetch begins, after `chunks` held ones; without a position there is
/// neither a chunk nor a fetch under way.
#[derive(Debug)]
pub(super) struct PartitionState {
    pub(super) incarnation: u64,
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
    /// What is committed, as far as is known.
    pub(super) committed: Option<Offset>,
}

impl PartitionState {
    fn new(incarnation: u64, start: StartAt) -> Self {
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
            committed: None,
        };
        if let StartAt::Offset(offset) = start {
            state.begin(offset);
        }
        state
    }

    /// Sets the position that was looked for.
    pub(super) fn begin(&mut self, offset: Offset) {
        self.position = Some(offset);
        self.fetch_from = offset;
        self.starting = false;
        self.retry_at = None;
        self.attempts.succeed();
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

    /// Whether there is something to fetch.
    pub(super) fn wants_fetch(&self, now: Instant) -> bool {
        self.position.is_some() && !self.fetching && self.has_room() && self.is_due(now)
    }
}

/// The partitions, by name.
#[derive(Debug, Default)]
pub(super) struct Assignment {
    partitions: BTreeMap<TopicPartition, PartitionState>,
    incarnations: u64,
}

impl Assignment {
    fn next_incarnation(&mut self) -> u64 {
        self.incarnations += 1;
        self.incarnations
    }

    /// Adds a partition, or moves it to another position.
    pub(super) fn put(&mut self, partition: TopicPartition, start: StartAt) {
        let state = PartitionState::new(self.next_incarnation(), start);
        self.partitions.insert(partition, state);
    }

    /// Looks for the position anew; what is held or under way counts no more.
    pub(super) fn restart(&mut self, partition: &TopicPartition, start: StartAt) {
        let incarnation = self.next_incarnation();
        if let Some(state) = self.partitions.get_mut(partition) {
            let committed = state.committed;
            *state = PartitionState { committed, ..PartitionState::new(incarnation, start) };
        }
    }

    pub(super) fn remove(&mut self, partition: &TopicPartition) -> Option<PartitionState> {
        self.partitions.remove(partition)
    }

    pub(super) fn clear(&mut self) {
        self.partitions.clear();
    }

    pub(super) fn get(&self, partition: &TopicPartition) -> Option<&PartitionState> {
        self.partitions.get(partition)
    }

    /// The state of a partition, unless its position was changed since `incarnation`.
    pub(super) fn current(
        &mut self,
        partition: &TopicPartition,
        incarnation: u64,
    ) -> Option<&mut PartitionState> {
        self.partitions.get_mut(partition).filter(|state| state.incarnation == incarnation)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&TopicPartition, &PartitionState)> {
        self.partitions.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&TopicPartition, &mut PartitionState)> {
        self.partitions.iter_mut()
    }

    /// Positions that are not committed.
    pub(super) fn uncommitted(&self) -> BTreeMap<TopicPartition, Offset> {
        let dirty =
            |state: &PartitionState| state.position.filter(|position| state.committed != Some(*position));
        self.partitions.iter().filter_map(|(name, state)| Some((name.clone(), dirty(state)?))).collect()
    }

    /// When the next partition goes on after an error.
    pub(super) fn next_retry(&self, now: Instant) -> Option<Instant> {
        self.partitions.values().filter_map(|state| state.retry_at).filter(|at| *at > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_fetched_for_an_old_position_counts_no_more() {
        let partition = TopicPartition::new("t", 0);
        let mut assignment = Assignment::default();
        assignment.put(partition.clone(), StartAt::Offset(Offset(5)));
        let old = assignment.get(&partition).unwrap().incarnation;
        assert!(assignment.current(&partition, old).is_some());
        assignment.restart(&partition, StartAt::Earliest);
        assert!(assignment.current(&partition, old).is_none());
        assert_eq!(assignment.get(&partition).unwrap().position, None);
    }

    #[tokio::test]
    async fn a_partition_holds_one_chunk_in_reserve() {
        let mut state = PartitionState::new(1, StartAt::Offset(Offset(0)));
        let now = Instant::now();
        for _ in 0..2 {
            assert!(state.wants_fetch(now));
            state.chunks += 1;
        }
        assert!(!state.wants_fetch(now));
    }

    #[test]
    fn only_positions_that_moved_are_committed() {
        let partition = TopicPartition::new("t", 0);
        let mut assignment = Assignment::default();
        assignment.put(partition.clone(), StartAt::Offset(Offset(5)));
        assert_eq!(assignment.uncommitted(), BTreeMap::from([(partition.clone(), Offset(5))]));
        assignment.iter_mut().for_each(|(_, state)| state.committed = Some(Offset(5)));
        assert_eq!(assignment.uncommitted(), BTreeMap::new());
    }
}
