//! What a queue held after each crash.

use std::collections::{BTreeMap, HashSet};

use anyhow::{bail, ensure};
use riverrun_queue::{Offset, Queue, QueueError, StartAt, Tailer};

use super::appender::partition;
use crate::crash::payload::{Identity, identify};
use crate::crash::verify::{Observed, ObservedLog};

/// Records before the end of what is known that are looked at again after each crash; all are in the end.
const AGAIN: usize = 2000;

/// What was found after the crashes.
///
/// Invariants: `records` are those from offset 0 on, of the last look. The queue ended at `ends[n]`
/// after crash `n + 1`.
#[derive(Debug, Default)]
pub(super) struct History {
    records: Vec<Identity>,
    ends: Vec<i64>,
}

impl History {
    /// Reads the end of a queue: what the look before found is still there, and more may have come. Retention may have
    /// removed what was found before `start`.
    pub(super) fn look(
        &mut self,
        run: u64,
        start: Offset,
        open: impl Fn(StartAt) -> Result<Tailer, QueueError>,
    ) -> anyhow::Result<()> {
        let start = usize::try_from(start.0)?;
        ensure!(start <= self.records.len(), "the queue begins at {start}, and nobody has read that far");
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

    /// Notes that what was found last is what a crash has left.
    pub(super) fn crashed(&mut self) {
        self.ends.push(offset(self.records.len()).0);
    }

    /// Crashes that were looked at.
    pub(super) fn crashes(&self) -> usize {
        self.ends.len()
    }

    /// Where the queue ended after a crash, counted from 0; none if that was not looked at.
    pub(super) fn end(&self, crash: usize) -> Option<i64> {
        self.ends.get(crash).copied()
    }

    /// Every record that was ever found.
    pub(super) fn identities(&self) -> HashSet<Identity> {
        self.records.iter().copied().collect()
    }

    /// Everything that was ever found, as if nothing had been removed since.
    pub(super) fn observed(&self) -> Observed {
        let records = (0..).zip(self.records.iter().copied().map(Ok)).collect();
        observed(ObservedLog { start: 0, end: offset(self.records.len()).0, records })
    }
}

/// Everything that a queue holds.
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
    /// Of a queue that ended there after each crash.
    pub(super) fn with_ends(ends: &[i64]) -> Self {
        Self { records: Vec::new(), ends: ends.to_vec() }
    }
}
