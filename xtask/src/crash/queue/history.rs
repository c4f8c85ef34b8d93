//! Contents of a queue after each crash.

use std::collections::{BTreeMap, HashSet};

use anyhow::{bail, ensure};
use riverrun_queue::{Offset, Queue, QueueError, StartAt, Tailer};

use super::appender::partition;
use crate::crash::payload::{Identity, identify};
use crate::crash::verify::{Observed, ObservedLog};

/// Records before the known end that are read again after each crash; at the end of a run all are.
const AGAIN: usize = 2000;

/// Records found after the crashes.
///
/// Invariants: `records` begins at offset 0 and is of the last look. The queue ended at `ends[n]` after crash `n + 1`.
#[derive(Debug, Default)]
pub(super) struct History {
    records: Vec<Identity>,
    ends: Vec<i64>,
}

impl History {
    /// Reads the end of a queue: checks that the records of the look before still exist, and adds new ones. Retention
    /// may have removed records before `start`.
    pub(super) fn look(
        &mut self,
        run: u64,
        start: Offset,
        open: impl Fn(StartAt) -> Result<Tailer, QueueError>,
    ) -> anyhow::Result<()> {
        let start = usize::try_from(start.0)?;
        ensure!(start <= self.records.len(), "the queue begins at {start}, beyond the records read so far");
        let mut next = self.records.len().saturating_sub(AGAIN).max(start);
        let mut tailer = open(StartAt::Offset(offset(next)))?;
        while let Some(record) = tailer.next()? {
            ensure!(record.offset == offset(next), "offset {} where {next} was to come", record.offset);
            let found = identify(run, record.value.unwrap_or_default());
            let Ok(found) = found else { bail!("at {next}: {found:?}") };
            match self.records.get(next) {
                Some(before) => ensure!(*before == found, "at {next}: {found}, where {before} was"),
                None => self.records.push(found),
            }
            next += 1;
        }
        ensure!(next == self.records.len(), "the queue ends at {next}, and ended at {}", self.records.len());
        Ok(())
    }

    /// Records the end found last as the end that a crash has left.
    pub(super) fn crashed(&mut self) {
        self.ends.push(offset(self.records.len()).0);
    }

    /// Number of crashes that were looked at.
    pub(super) fn crashes(&self) -> usize {
        self.ends.len()
    }

    /// End of the queue after a crash, counted from 0; `None` if that was not looked at.
    pub(super) fn end(&self, crash: usize) -> Option<i64> {
        self.ends.get(crash).copied()
    }

    /// Every record that was ever found.
    pub(super) fn identities(&self) -> HashSet<Identity> {
        self.records.iter().copied().collect()
    }

    /// Every record that was ever found, as if none had been removed since.
    pub(super) fn observed(&self) -> Observed {
        let records = (0..).zip(self.records.iter().copied().map(Ok)).collect();
        observed(ObservedLog { start: 0, end: offset(self.records.len()).0, records })
    }
}

/// All records of a queue.
pub(super) fn everything(queue: &Queue, run: u64) -> anyhow::Result<Observed> {
    let mut records = Vec::new();
    let mut tailer = queue.tailer(StartAt::Start)?;
    while let Some(record) = tailer.next()? {
        records.push((record.offset.0, identify(run, record.value.unwrap_or_default())));
    }
    Ok(observed(ObservedLog { start: queue.start_offset()?.0, end: queue.end_offset()?.0, records }))
}

fn observed(log: ObservedLog) -> Observed {
    Observed { logs: BTreeMap::from([(partition(), log)]), positions: BTreeMap::new() }
}

fn offset(index: usize) -> Offset {
    Offset(i64::try_from(index).unwrap_or(i64::MAX))
}

#[cfg(test)]
impl History {
    /// The history of a queue with these ends after the crashes.
    pub(super) fn with_ends(ends: &[i64]) -> Self {
        Self { records: Vec::new(), ends: ends.to_vec() }
    }
}
