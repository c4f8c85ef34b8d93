//! Which records a power cut may have taken.
//!
//! The recorder's file has the order: a mark stands before the call that makes the cut, and another after it. So a
//! record was acked, or seen as synced,
//!
//! | when | and is gone |
//! |---|---|
//! | before the cut, with a sync | lost: there is no exception |
//! | before the cut, without a sync | allowed, if the queue ended before it |
//! | since the cut began | as without a sync, for the one append of each stream that was under way |
//! | after the cut, though its append began after the cut | must not have been acked, gone or not |
//!
//! An ack can arrive after the cut began for two reasons. Either its sync was done before, and the report came late. Or
//! its sync was under way, and the kernel returned success although nothing was on the disk (`disk.rs`), as it does for
//! a plain `fdatasync` after a `pwrite`. A later sync of the same stream then fails, so that this happens once to a
//! stream.

use std::collections::{BTreeMap, HashSet};

use super::appender::{is_synced, partition};
use super::history::History;
use crate::crash::event::{Event, Span};
use crate::crash::ledger::Ledger;
use crate::crash::payload::Identity;
use crate::crash::verify::{Observed, ObservedLog};

/// Marks in the recorder's file for each crash: before it, when it is made, and when its effects are looked at.
pub(super) const MARKS: u64 = 3;

/// The phase in which an event was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Working,
    BeingCut,
    Cut,
}

impl Phase {
    fn of(marks: u64) -> Self {
        match marks % MARKS {
            0 => Self::Working,
            1 => Self::BeingCut,
            _ => Self::Cut,
        }
    }
}

/// Records that the cuts have taken.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Records acked without a sync that are gone.
    pub(super) unsynced: usize,
    /// Records acked with a sync since a cut began.
    pub(super) late: usize,
    /// Those of them that are gone.
    pub(super) late_gone: usize,
    /// Losses that are not allowed.
    pub(super) findings: Vec<String>,
}

/// Removes from `ledger` the acks and sightings that a power cut was allowed to undo, and did.
pub(super) fn forgive(
    ledger: &mut Ledger,
    events: &[Event],
    observed: &Observed,
    history: &History,
) -> Taken {
    let fates = Fates { log: observed.logs.get(&partition()), history };
    let mut pass = Pass { fates, marks: 0, sent: BTreeMap::new(), undone: BTreeMap::new() };
    let (mut taken, mut forgiven) = (Taken::default(), HashSet::new());
    for event in events {
        match event {
            Event::Crash(number) => pass.marks = *number,
            Event::Sent(span) => drop(pass.sent.insert(span.stream, pass.marks)),
            Event::Acked { span, offset: Some(first) } => {
                pass.acked(*span, *first, &mut taken, &mut forgiven);
            }
            _ => {}
        }
    }
    let fates = pass.fates;
    ledger.acks.retain(|ack| !forgiven.contains(&ack.identity));
    ledger.sightings.retain(|seen| {
        Phase::of(seen.crashes_before) == Phase::Working
            || fates.must_be_there(seen.offset, seen.identity, seen.crashes_before)
    });
    // From here on the counts are of crashes, which findings name, instead of marks.
    let acks = ledger.acks.iter_mut().map(|ack| &mut ack.crashes_before);
    for marks in acks.chain(ledger.sightings.iter_mut().map(|seen| &mut seen.crashes_before)) {
        *marks /= MARKS;
    }
    taken
}

/// The records that were found.
struct Fates<'a> {
    log: Option<&'a ObservedLog>,
    history: &'a History,
}

impl Fates<'_> {
    /// Whether a record that a cut may take was found, or must be there because the queue did not end before it.
    fn must_be_there(&self, offset: i64, identity: Identity, marks: u64) -> bool {
        let record = self.log.and_then(|log| log.records.get(usize::try_from(offset).ok()?));
        let is_there = record.is_some_and(|(_, found)| found.as_ref() == Ok(&identity));
        let end = usize::try_from(marks / MARKS).ok().and_then(|crash| self.history.end(crash));
        is_there || end.is_none_or(|end| offset < end)
    }
}

struct Pass<'a> {
    fates: Fates<'a>,
    marks: u64,
    /// Number of marks when a stream began its last append.
    sent: BTreeMap<u32, u64>,
    /// The last crash that has undone an append of a stream which was acked with a sync.
    undone: BTreeMap<u32, u64>,
}

impl Pass<'_> {
    fn acked(&mut self, span: Span, first: i64, taken: &mut Taken, forgiven: &mut HashSet<Identity>) {
        let (phase, synced) = (Phase::of(self.marks), is_synced(span.stream));
        if phase == Phase::Working && synced {
            return;
        }
        let identities =
            (0..span.count).map(|index| Identity { stream: span.stream, sequence: span.first + index });
        let gone: Vec<Identity> = (first..)
            .zip(identities)
            .filter(|(at, identity)| !self.fates.must_be_there(*at, *identity, self.marks))
            .map(|(_, identity)| identity)
            .collect();
        if synced {
            taken.late += usize::try_from(span.count).unwrap_or_default();
            taken.late_gone += gone.len();
            taken.findings.extend(self.late(span, phase, !gone.is_empty()));
        } else {
            taken.unsynced += gone.len();
        }
        forgiven.extend(gone);
    }

    /// The fault of an append that was acked with a sync after a cut began, if there is one.
    fn late(&mut self, span: Span, phase: Phase, is_gone: bool) -> Option<String> {
        let crash = self.marks / MARKS + 1;
        let what = format!("record {} of stream {} acked in crash {crash}", span.first, span.stream);
        if phase == Phase::Cut && self.sent.get(&span.stream) == Some(&self.marks) {
            return Some(format!("{what}: its append began when the power was cut already"));
        }
        let is_second = is_gone && self.undone.insert(span.stream, crash) == Some(crash);
        is_second.then(|| {
            format!("{what}: gone, and so is another append of the stream, though only one was under way")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::verify::verify;

    fn observed(records: &[(u32, u64)]) -> Observed {
        let identity = |(stream, sequence): &(u32, u64)| Identity { stream: *stream, sequence: *sequence };
        let records: Vec<_> = (0..).zip(records).map(|(at, record)| (at, Ok(identity(record)))).collect();
        let log = ObservedLog { start: 0, end: i64::try_from(records.len()).unwrap(), records };
        Observed { logs: BTreeMap::from([(partition(), log)]), positions: BTreeMap::new() }
    }

    /// Stream 0 syncs, stream 1 does not. The queue ended at `end` after the only crash.
    fn judge(end: i64, lines: &[&str], records: &[(u32, u64)]) -> (usize, Taken) {
        let begin = ["stream 0 queue 0 once", "stream 1 queue 0 once", "sent 0 0 9", "sent 1 0 9"];
        let events: Vec<Event> = begin.iter().chain(lines).map(|line| line.parse().unwrap()).collect();
        let mut ledger = Ledger::default();
        for event in &events {
            ledger.add(event.clone()).unwrap();
        }
        let observed = observed(records);
        let taken = forgive(&mut ledger, &events, &observed, &History::with_ends(&[end]));
        (verify(&ledger, &observed).findings.len() + taken.findings.len(), taken)
    }

    fn findings(end: i64, lines: &[&str], records: &[(u32, u64)]) -> usize {
        judge(end, lines, records).0
    }

    #[test]
    fn cut_may_take_only_the_unsynced_end() {
        let acks = ["acked 0 0 1 0", "acked 1 0 1 1", "acked 1 1 1 2", "crash 1", "acked 0 3 1 3"];
        assert_eq!(findings(4, &acks, &[(0, 0), (1, 0), (1, 1), (0, 3)]), 0, "nothing is gone");
        assert_eq!(findings(3, &acks, &[(0, 0), (1, 0), (1, 1)]), 0, "a record acked during the cut is gone");
        assert_ne!(
            findings(4, &acks, &[(0, 0), (1, 0), (1, 1), (0, 4)]),
            0,
            "it is gone, but later records are not"
        );
        assert_eq!(findings(2, &acks, &[(0, 0), (1, 0)]), 0, "the end is gone");
        assert_eq!(findings(1, &acks, &[(0, 0), (0, 1), (0, 2)]), 0, "others came in its place");
        assert_ne!(findings(3, &acks, &[(0, 0), (1, 0), (0, 1)]), 0, "something before the end is gone");
        assert_ne!(findings(0, &acks, &[]), 0, "the synced is gone");
    }

    #[test]
    fn acks_since_the_cut_began_are_counted_apart() {
        let lines = ["acked 1 0 1 0", "crash 1", "acked 0 0 1 1", "crash 2", "acked 0 1 2 2"];
        let (found, taken) = judge(2, &lines, &[(1, 0), (0, 0)]);
        assert_eq!((found, taken.unsynced, taken.late, taken.late_gone), (0, 0, 3, 2));
    }

    #[test]
    fn cut_takes_at_most_one_append_of_a_syncing_stream() {
        let lines = ["crash 1", "acked 0 0 1 0", "crash 2", "acked 0 1 1 1"];
        assert_ne!(findings(0, &lines, &[]), 0, "two are gone");
        assert_eq!(findings(1, &lines, &[(0, 0)]), 0, "one is");
    }

    #[test]
    fn append_begun_after_the_cut_is_never_synced() {
        let lines = ["crash 1", "crash 2", "sent 0 9 1", "acked 0 9 1 0"];
        assert_ne!(findings(0, &lines, &[]), 0, "gone");
        assert_ne!(findings(1, &lines, &[(0, 9)]), 0, "there");
        let unsynced = ["crash 1", "crash 2", "sent 1 9 1", "acked 1 9 1 0"];
        assert_eq!(findings(0, &unsynced, &[]), 0, "that was not synced");
    }

    #[test]
    fn record_seen_as_synced_before_the_cut_must_stay() {
        assert_ne!(findings(0, &["seen queue 0 0 1 0", "crash 1"], &[]), 0);
        assert_eq!(findings(0, &["crash 1", "seen queue 0 0 1 0"], &[]), 0, "seen since it began");
        assert_ne!(
            findings(1, &["crash 1", "seen queue 0 0 1 0"], &[(1, 1)]),
            0,
            "the queue did not end there"
        );
    }
}
