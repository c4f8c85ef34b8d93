//! A topic: its name, id and configs, and the origin of each of its partitions.

use std::ops::Range;
use std::sync::Arc;

use riverrun_types::TopicId;

use crate::config::TopicOverrides;

/// A topic at one moment. The [image of the node](crate::metadata::NodeImage) says in which log dirs its partitions lie.
///
/// Invariants: it has one partition at least; partition indexes are 0 and up without a gap. A mounted topic has no configs.
/// In any other topic each partition has an origin, and neighbouring runs of `origins` differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topic {
    pub(crate) name: Arc<str>,
    /// Its identity, which names its directories.
    pub(crate) id: TopicId,
    /// The configs that it sets for itself, by name.
    pub(crate) configs: Arc<TopicOverrides>,
    /// Whether it is a queue of this machine: it has one partition then, which lies in no log dir, and is in the server's
    /// configuration instead of the metadata log.
    pub(crate) is_mounted: bool,
    partitions: usize,
    origins: Arc<[OriginRun]>,
}

/// A run of partitions with the same origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OriginRun {
    /// Index of its first partition; the run ends where the next one begins.
    first: usize,
    starts: i32,
}

impl Topic {
    /// A topic whose partitions all have the origin `starts`.
    pub(super) fn new(
        id: TopicId,
        name: &str,
        partitions: usize,
        configs: TopicOverrides,
        starts: i32,
    ) -> Self {
        let origins = Arc::from([OriginRun { first: 0, starts }]);
        Self { name: name.into(), id, configs: Arc::new(configs), is_mounted: false, partitions, origins }
    }

    /// A queue of this machine.
    pub(super) fn mounted(id: TopicId, name: &str) -> Self {
        let (configs, origins) = (Arc::default(), Arc::from([]));
        Self { name: name.into(), id, configs, is_mounted: true, partitions: 1, origins }
    }

    pub(crate) fn partition_count(&self) -> i32 {
        i32::try_from(self.partitions).unwrap_or(i32::MAX)
    }

    /// How many of its partitions lie in log dirs.
    pub(super) fn stored_partitions(&self) -> u64 {
        if self.is_mounted { 0 } else { self.partitions as u64 }
    }

    /// Whether clients may change its records, configs or number of partitions, or delete it. A queue is changed where it lies.
    pub(crate) fn is_changeable(&self) -> bool {
        !self.is_mounted
    }

    pub(crate) fn has_partition(&self, index: i32) -> bool {
        (0..self.partition_count()).contains(&index)
    }

    /// The origin of a partition; `None` if it lies in no log dir.
    pub(super) fn origin(&self, partition: i32) -> Option<i32> {
        let index = usize::try_from(partition).ok().filter(|index| *index < self.partitions)?;
        let after = self.origins.partition_point(|run| run.first <= index);
        after.checked_sub(1).map(|run| self.origins[run].starts)
    }

    /// Adds partitions with the origin `starts`.
    pub(super) fn grow(&mut self, more: usize, starts: i32) {
        let first = self.partitions;
        self.partitions += more;
        if self.origins.last().is_none_or(|run| run.starts != starts) {
            self.origins = self.origins.iter().copied().chain([OriginRun { first, starts }]).collect();
        }
    }

    /// Its partitions in log dirs as runs of one origin, each with that origin.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (Range<usize>, i32)> {
        let ends = self.origins.iter().skip(1).map(|run| run.first).chain([self.partitions]);
        self.origins.iter().zip(ends).map(|(run, end)| (run.first..end, run.starts))
    }
}
