//! What a queue held after each crash, and what of that a cut of power may have taken.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};
use riverrun_queue::{Offset, Queue, QueueError, StartAt, Tailer};

use super::appender::{is_synced, partition};
use crate::crash::ledger::Ledger;
use crate::crash::payload::{Identity, identify};
use crate::crash::verify::{Observed, ObservedLog};

/// Marks in the recorder's file for each crash: one before it begins, and one when it is over.
pub(super) const MARKS: u64 = 2;

/// Records before the end of what is known that are looked at again after each crash; all are in the end.
const AGAIN: usize = 2000;

/// What was found after the crashes.
///
/// Invariants: `records` are those from offset 0 on, of the last look. The queue ended at `ends[n]` after crash `n + 1`.
#[derive(Debug, Default)]
pub(super) struct History {
    records: Vec<Identity>,
    ends: Vec<i64>,
}

impl History {
    /// Reads the end of a queue: what the look before found is still there, and more may have come.
    pub(super) fn look(
        &mut self,
        run: u64,
        open: impl Fn(StartAt) -> Result<Tailer, QueueError>,
    ) -> anyhow::Result<()> {
        let mut next = self.records.len().saturating_sub(AGAIN);
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
        self.ends.push(offset(next).0);
        Ok(())
    }

    /// Takes out of `ledger` the acks and sightings that a cut of power may have undone, and has: the queue ended before
    /// them, and nobody had synced them before the cut began. A sync that is under way while the file system is shut down
    /// may return as if all were well, though nothing is on the disk: so does a plain `fdatasync` after a `pwrite`. Of a
    /// real cut nobody is there to be told. Returns how many acks these are.
    pub(super) fn forgive(&self, ledger: &mut Ledger, observed: &Observed) -> usize {
        let log = observed.logs.get(&partition());
        let is_certain = |at: i64, identity: Identity, marks: u64, synced: bool| {
            let found = log.and_then(|log| log.records.get(usize::try_from(at).ok()?));
            let is_there = found.is_some_and(|(_, found)| found.as_ref() == Ok(&identity));
            let end = usize::try_from(marks / MARKS).ok().and_then(|crash| self.ends.get(crash));
            let was_kept = end.is_none_or(|end| at < *end);
            is_there || was_kept || synced && marks.is_multiple_of(MARKS)
        };
        let before = ledger.acks.len();
        ledger.acks.retain(|ack| {
            let synced = is_synced(ack.identity.stream);
            ack.offset.is_none_or(|at| is_certain(at, ack.identity, ack.crashes_before, synced))
        });
        ledger.sightings.retain(|seen| is_certain(seen.offset, seen.identity, seen.crashes_before, true));
        before - ledger.acks.len()
    }
}

/// Everything that a queue holds.
pub(super) fn everything(queue: &Queue, run: u64) -> anyhow::Result<Observed> {
    let mut records = Vec::new();
    let mut tailer = queue.tailer(StartAt::Start)?;
    while let Some(record) = tailer.next()? {
        records.push((record.offset.0, identify(run, record.value.unwrap_or_default())));
    }
    let log = ObservedLog { start: queue.start_offset()?.0, end: queue.end_offset()?.0, records };
    Ok(Observed { logs: BTreeMap::from([(partition(), log)]), positions: BTreeMap::new() })
}

fn offset(index: usize) -> Offset {
    Offset(i64::try_from(index).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::verify::{Rules, verify};

    fn observed(records: &[(u32, u64)]) -> Observed {
        let identity = |(stream, sequence): &(u32, u64)| Identity { stream: *stream, sequence: *sequence };
        let records: Vec<_> = (0..).zip(records).map(|(at, record)| (at, Ok(identity(record)))).collect();
        let log = ObservedLog { start: 0, end: i64::try_from(records.len()).unwrap(), records };
        Observed { logs: BTreeMap::from([(partition(), log)]), positions: BTreeMap::new() }
    }

    /// Stream 0 syncs, stream 1 does not. The queue ended at `end` after the only crash.
    fn findings(end: i64, acks: &[&str], records: &[(u32, u64)]) -> usize {
        let mut ledger = Ledger::default();
        let begin = ["stream 0 queue 0 once", "stream 1 queue 0 once", "sent 0 0 9", "sent 1 0 9"];
        for line in begin.iter().chain(acks) {
            ledger.add(line.parse().unwrap()).unwrap();
        }
        let observed = observed(records);
        let history = History { records: Vec::new(), ends: vec![end] };
        history.forgive(&mut ledger, &observed);
        verify(&ledger, &observed, Rules::default()).findings.len()
    }

    #[test]
    fn a_cut_may_take_the_unsynced_end_and_nothing_else() {
        let acks = ["acked 0 0 1 0", "acked 1 0 1 1", "acked 1 1 1 2", "crash 1", "acked 0 3 1 3"];
        assert_eq!(findings(4, &acks, &[(0, 0), (1, 0), (1, 1), (0, 3)]), 0, "nothing is gone");
        assert_eq!(findings(3, &acks, &[(0, 0), (1, 0), (1, 1)]), 0, "what was acked during the cut is gone");
        assert_ne!(
            findings(4, &acks, &[(0, 0), (1, 0), (1, 1), (0, 4)]),
            0,
            "that is gone, and not what follows"
        );
        assert_eq!(findings(2, &acks, &[(0, 0), (1, 0)]), 0, "the end is gone");
        assert_eq!(findings(1, &acks, &[(0, 0), (0, 1), (0, 2)]), 0, "others came in its place");
        assert_ne!(findings(3, &acks, &[(0, 0), (1, 0), (0, 1)]), 0, "something before the end is gone");
        assert_ne!(findings(0, &acks, &[]), 0, "the synced is gone");
    }
}
