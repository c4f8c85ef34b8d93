//! Entries that journals keep aside, by partition.
//!
//! Entries aside are in no log yet, and that is no fault: the next start that can takes them into their log. Here they
//! are counted, and the log has to reach up to the first of them: the records between would be nowhere.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use riverrun_env::Env;
use riverrun_journal::{HeldEntry, JournalFinding, verify_with_held};
use riverrun_types::{Offset, PartitionId, TimestampMs};

use super::{Finding, Weight};
use crate::error::LogError;
use crate::partition_log::Piece;
use crate::shared::partition_of;

/// The entries of a partition, all from after the same number of cuts of its log, that one file of a journal keeps
/// aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    /// The file.
    pub path: PathBuf,
    /// Position of the partition's first entry in it.
    pub position: u64,
    /// The partition.
    pub partition: PartitionId,
    /// Number of the log's cuts before them.
    pub cuts: u32,
    /// Number of entries, with those that only stand for damaged ones.
    pub entries: usize,
    /// Bytes of their batches.
    pub bytes: u64,
    /// Offset of the first record.
    pub start: Offset,
    /// The offset after the last record; after a damaged entry, at least one beyond its base offset.
    pub end: Offset,
    /// Whether they end there, because the last of them is intact.
    pub is_end_known: bool,
}

/// The result of verifying a journal's directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalReport {
    /// The faults, in the order of the files. Empty: nothing.
    pub findings: Vec<JournalFinding>,
    /// The entries aside, in the order in which they were put there.
    pub aside: Vec<Aside>,
}

/// Verifies the journal whose files lie in `dir`, and lists its entries aside. Fails only if the system cannot read.
pub fn verify_journal(env: &Env, dir: &Path) -> Result<JournalReport, LogError> {
    let mut aside = Vec::new();
    let mut wrong = Vec::new();
    let each = |path: &Path, entries: &[HeldEntry]| {
        let mut files = BTreeMap::new();
        for held in entries {
            let partition = partition_of(held.entry.header.stream);
            let (end, flaw) = end_of(path, held);
            let is_end_known = flaw.is_none() && !held.entry.is_damaged();
            wrong.extend(flaw);
            let key = (partition, held.entry.header.cuts);
            let aside = files.entry(key).or_insert_with(|| Aside::begin(path, held));
            aside.add(held, end, is_end_known);
        }
        aside.extend(files.into_values());
    };
    let mut findings = verify_with_held(env, dir, each).map_err(LogError::Journal)?;
    findings.append(&mut wrong);
    Ok(JournalReport { findings, aside })
}

/// The offset after the last record of an entry, and the entry's fault.
fn end_of(path: &Path, held: &HeldEntry) -> (Offset, Option<JournalFinding>) {
    let HeldEntry { position, entry } = held;
    let at_least = Offset(entry.header.base_offset.0.saturating_add(1));
    if entry.is_damaged() {
        // The journal's verification has reported it.
        return (at_least, None);
    }
    if let Some(piece) = Piece::of_entry(&entry.header, entry.payload.clone(), TimestampMs::NONE) {
        return (piece.next_offset, None);
    }
    let flaw = JournalFinding {
        path: path.to_path_buf(),
        position: *position,
        what: "the entry does not hold the batches that it says".to_owned(),
        is_torn_tail: false,
        is_settled: false,
        stream: Some(entry.header.stream),
    };
    (at_least, Some(flaw))
}

impl Aside {
    /// A span that begins with `first`, which is yet to be added.
    fn begin(path: &Path, first: &HeldEntry) -> Self {
        let start = first.entry.header.base_offset;
        let partition = partition_of(first.entry.header.stream);
        let path = path.to_path_buf();
        let position = first.position;
        let cuts = first.entry.header.cuts;
        Self { path, position, partition, cuts, entries: 0, bytes: 0, start, end: start, is_end_known: true }
    }

    fn add(&mut self, held: &HeldEntry, end: Offset, is_end_known: bool) {
        self.entries += 1;
        self.bytes += held.entry.payload.len() as u64;
        self.start = self.start.min(held.entry.header.base_offset);
        self.end = self.end.max(end);
        self.is_end_known = is_end_known;
    }

    /// The finding that these entries exist. They are no fault.
    pub fn to_finding(&self) -> Finding {
        self.finding("the next start that can takes those that no checkpoint covers into the log")
    }

    /// As [`Self::to_finding`], for entries from before the log's last cut.
    pub(super) fn to_finding_of_cut(&self) -> Finding {
        self.finding("the log was cut since, and no start takes them")
    }

    fn finding(&self, fate: &str) -> Finding {
        let Self { path, position, partition, entries, bytes, start, end, .. } = self;
        let noun = if *entries == 1 { "entry" } else { "entries" };
        let what = format!(
            "{entries} {noun} of partition {partition} kept aside, {bytes} bytes from offset {start} up to {end}: {fate}"
        );
        Finding { path: path.clone(), position: *position, weight: Weight::Aside, what }
    }
}

/// The partition whose entry a journal's finding is about, if it is about a single one.
pub fn partition_hit(finding: &JournalFinding) -> Option<PartitionId> {
    finding.stream.map(partition_of)
}
