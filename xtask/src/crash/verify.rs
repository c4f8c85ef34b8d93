//! The verdict: compares the recorder's events with the server's records after a crash. Pure.
//!
//! | must hold | broken |
//! |---|---|
//! | an acked record lies where it was acked, unless a loss of power was allowed to take it | lost |
//! | a record that was read, or found after a loss of power, stays, unless another loss was allowed to take it | vanished |
//! | records missing at the beginning of a partition were to be deleted, and deleted records are gone | lost, gap; came back |
//! | every record was sent, byte for byte | invented |
//! | offsets follow each other without a gap | gap |
//! | one producer's records to a partition lie in the order of sending | reordered |
//! | no record is stored twice, if the producer is idempotent | repeated |
//! | a group's position is the last acked commit, or a later attempt, after each crash and in the end | commit went back |

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use riverrun_client::TopicPartition;

use super::ledger::{Beginning, Ledger};
use super::payload::Identity;

/// Findings that are shown in full; the rest are counted.
const SHOWN_MAX: usize = 20;

/// A partition as it was read back.
#[derive(Debug, Default)]
pub(super) struct ObservedLog {
    /// Beginning and end as the server reports them.
    pub(super) start: i64,
    pub(super) end: i64,
    /// Every record between, in the order of reading; the error describes a foreign value.
    pub(super) records: Vec<(i64, Result<Identity, String>)>,
}

/// Everything that was read back.
#[derive(Debug, Default)]
pub(super) struct Observed {
    pub(super) logs: BTreeMap<TopicPartition, ObservedLog>,
    pub(super) positions: BTreeMap<(String, TopicPartition), i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Lost,
    Vanished,
    Invented,
    Gap,
    CameBack,
    Reordered,
    Repeated,
    CommitWentBack,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Vanished => "vanished",
            Self::Invented => "invented",
            Self::Gap => "gap",
            Self::CameBack => "came back",
            Self::Reordered => "reordered",
            Self::Repeated => "repeated",
            Self::CommitWentBack => "commit went back",
        }
    }

    /// Whether async levels allow it after a power cut.
    fn is_loss(self) -> bool {
        matches!(self, Self::Lost | Self::Vanished)
    }
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) kind: Kind,
    pub(super) text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.text)
    }
}

/// Result of the comparison.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) findings: Vec<Finding>,
    pub(super) records_read: usize,
    /// Records that are stored more than once, if that is allowed.
    pub(super) repeats: usize,
    /// Missing records that no level had synced.
    pub(super) excused: Excused,
    pub(super) tested: Tested,
}

/// Records that are gone and may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Excused {
    pub(super) acked: usize,
    pub(super) seen: usize,
}

/// Amounts of evidence for the verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tested {
    pub(super) acked: usize,
    pub(super) seen: usize,
    /// Positions of groups with an acked commit.
    pub(super) committed: usize,
}

impl Tested {
    fn of(ledger: &Ledger) -> Self {
        let committed = ledger.positions.values().filter(|position| position.committed.is_some());
        let seen = ledger.sightings.iter().filter(|sighting| !sighting.looked_for);
        Self { acked: ledger.acks.len(), seen: seen.count(), committed: committed.count() }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.acked += other.acked;
        self.seen += other.seen;
        self.committed += other.committed;
    }

    /// Kinds of evidence that are missing, so that the verdict says nothing about them.
    pub(super) fn missing(self) -> Vec<&'static str> {
        let counts = [
            (self.acked, "acked records"),
            (self.seen, "records that a reader saw"),
            (self.committed, "commits"),
        ];
        counts.into_iter().filter(|(count, _)| *count == 0).map(|(_, what)| what).collect()
    }

    /// Fails if some kind of evidence is missing.
    pub(super) fn check(self) -> anyhow::Result<()> {
        let missing = self.missing();
        anyhow::ensure!(missing.is_empty(), "nothing was tested: there were no {}", missing.join(", no "));
        Ok(())
    }
}

impl Verdict {
    fn add(&mut self, kind: Kind, text: String) {
        self.findings.push(Finding { kind, text });
    }

    /// Losses, which a level may allow, and findings that no level allows.
    pub(super) fn split(&self) -> (Vec<&Finding>, Vec<&Finding>) {
        self.findings.iter().partition(|finding| finding.kind.is_loss())
    }
}

/// The number of findings of each kind, and the first ones in full.
pub(super) fn shown(findings: &[&Finding]) -> String {
    let lines = findings.iter().take(SHOWN_MAX).map(|finding| format!("\n  {finding}"));
    counted(findings) + &lines.collect::<String>()
}

/// The number of findings of each kind.
pub(super) fn counted(findings: &[&Finding]) -> String {
    let mut counts = BTreeMap::<Kind, usize>::new();
    for finding in findings {
        *counts.entry(finding.kind).or_default() += 1;
    }
    let counts: Vec<_> = counts.iter().map(|(kind, count)| format!("{count} {}", kind.name())).collect();
    counts.join(", ")
}

/// Compares.
pub(super) fn verify(ledger: &Ledger, observed: &Observed) -> Verdict {
    let mut verdict = Verdict { tested: Tested::of(ledger), ..Verdict::default() };
    let mut indexes = BTreeMap::new();
    for (partition, log) in &observed.logs {
        indexes.insert(partition, index(ledger, partition, log, &mut verdict));
    }
    acks(ledger, observed, &indexes, &mut verdict);
    sightings(ledger, observed, &mut verdict);
    positions(ledger, observed, &mut verdict);
    verdict
}

/// First offset of each record.
type Index = HashMap<Identity, i64>;

/// Walks a partition once: is every record ours, in its place, in order, and stored once?
fn index(ledger: &Ledger, partition: &TopicPartition, log: &ObservedLog, verdict: &mut Verdict) -> Index {
    let mut walk = Walk { ledger, partition, index: Index::new(), last: HashMap::new() };
    let mut next = begin(ledger, partition, log, verdict);
    for (offset, record) in &log.records {
        if *offset != next {
            verdict.add(Kind::Gap, format!("{partition}: offset {offset} where {next} was to come"));
        }
        next = offset + 1;
        match record {
            Ok(identity) => walk.step(*offset, *identity, verdict),
            Err(what) => verdict.add(Kind::Invented, format!("{partition} at {offset}: {what}")),
        }
    }
    if next != log.end {
        verdict.add(Kind::Gap, format!("{partition}: ends at {}, but was read up to {next}", log.end));
    }
    verdict.records_read += log.records.len();
    walk.index
}

/// Offset at which the first record has to be.
fn begin(ledger: &Ledger, partition: &TopicPartition, log: &ObservedLog, verdict: &mut Verdict) -> i64 {
    let Beginning { least, most } = ledger.beginning(partition);
    if log.start < least {
        let text = format!("{partition}: begins at {}, but records before {least} were deleted", log.start);
        verdict.add(Kind::CameBack, text);
    }
    if log.start > most {
        let text = format!("{partition}: begins at {}, but none from {most} on was to be deleted", log.start);
        verdict.add(Kind::Gap, text);
    }
    log.start
}

struct Walk<'a> {
    ledger: &'a Ledger,
    partition: &'a TopicPartition,
    index: Index,
    /// The newest record of each stream so far.
    last: HashMap<u32, u64>,
}

impl Walk<'_> {
    fn step(&mut self, offset: i64, identity: Identity, verdict: &mut Verdict) {
        let partition = self.partition;
        let stream = self.ledger.streams.get(&identity.stream);
        let Some(stream) =
            stream.filter(|stream| stream.partition == *partition && identity.sequence < stream.sent)
        else {
            verdict.add(Kind::Invented, format!("{partition} at {offset}: {identity}, never sent there"));
            return;
        };
        if let Some(first) = self.index.get(&identity) {
            if stream.exactly_once {
                let text = format!("{partition} at {offset}: {identity}, which lies at {first} already");
                verdict.add(Kind::Repeated, text);
            } else {
                verdict.repeats += 1;
            }
            return;
        }
        self.index.insert(identity, offset);
        let last = self.last.entry(identity.stream).or_insert(identity.sequence);
        if identity.sequence < *last {
            let text = format!("{partition} at {offset}: {identity} after record {last} of it");
            verdict.add(Kind::Reordered, text);
        }
        *last = identity.sequence.max(*last);
    }
}

fn acks(
    ledger: &Ledger,
    observed: &Observed,
    indexes: &BTreeMap<&TopicPartition, Index>,
    verdict: &mut Verdict,
) {
    let nothing = ObservedLog::default();
    for ack in &ledger.acks {
        let Some(stream) = ledger.streams.get(&ack.identity.stream) else { continue };
        let log = observed.logs.get(&stream.partition).unwrap_or(&nothing);
        let most = ledger.beginning(&stream.partition).most;
        let found = match ack.offset {
            Some(offset) if offset < log.start.min(most) => continue,
            Some(offset) => record_at(log, offset),
            // A record without a known offset may have been deleted since.
            None if most > 0 => continue,
            None => indexes
                .get(&stream.partition)
                .and_then(|index| index.get(&ack.identity))
                .map(|_| Ok(ack.identity)),
        };
        if found == Some(Ok(ack.identity)) {
            continue;
        }
        if ledger.binding.excuses_ack(ack.identity) {
            verdict.excused.acked += 1;
        } else {
            let place = ack.offset.map_or_else(|| "somewhere".to_owned(), |offset| format!("at {offset}"));
            let text = format!(
                "{} acked {place} before crash {}: {}",
                missing(&stream.partition, ack.identity),
                ack.crashes_before + 1,
                instead(found)
            );
            verdict.add(Kind::Lost, text);
        }
    }
}

fn missing(partition: &TopicPartition, identity: Identity) -> String {
    format!("{partition}: {identity}")
}

fn instead(found: Option<Result<Identity, &str>>) -> String {
    match found {
        None => "nothing is there".to_owned(),
        Some(Ok(identity)) => format!("{identity} is there"),
        Some(Err(what)) => format!("{what} is there"),
    }
}

/// The record at an offset. Records are sorted by offset, whatever else may be wrong with them.
fn record_at(log: &ObservedLog, offset: i64) -> Option<Result<Identity, &str>> {
    let at = log.records.binary_search_by_key(&offset, |(offset, _)| *offset).ok()?;
    Some(log.records[at].1.as_ref().copied().map_err(String::as_str))
}

fn sightings(ledger: &Ledger, observed: &Observed, verdict: &mut Verdict) {
    let nothing = ObservedLog::default();
    for (number, sighting) in ledger.sightings.iter().enumerate() {
        let log = observed.logs.get(&sighting.partition).unwrap_or(&nothing);
        let found = record_at(log, sighting.offset);
        let most = ledger.beginning(&sighting.partition).most;
        if sighting.offset < log.start.min(most) || found == Some(Ok(sighting.identity)) {
            continue;
        }
        if ledger.binding.excuses_sighting(number) {
            verdict.excused.seen += usize::from(!sighting.looked_for);
        } else {
            let text = format!(
                "{} seen at {} before crash {}: {}",
                missing(&sighting.partition, sighting.identity),
                sighting.offset,
                sighting.crashes_before + 1,
                instead(found)
            );
            verdict.add(Kind::Vanished, text);
        }
    }
}

fn positions(ledger: &Ledger, observed: &Observed, verdict: &mut Verdict) {
    for regression in &ledger.regressions {
        verdict.add(Kind::CommitWentBack, regression.to_string());
    }
    for (place, position) in &ledger.positions {
        let found = observed.positions.get(place).copied();
        if !position.may_be(found) {
            let (group, partition) = place;
            let text = format!("{group} in {partition} is at {found:?}, was committed as {position:?}");
            verdict.add(Kind::CommitWentBack, text);
        }
    }
}

#[cfg(test)]
mod tests;
