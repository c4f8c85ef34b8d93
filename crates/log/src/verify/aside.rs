//! What journals keep aside, told by partition.
//!
//! What a journal keeps aside is in no log yet, and nothing is wrong with it: the next start that can takes it into the
//! log that it belongs to. Here it is counted, and the log has to reach up to where it begins: the records between would
//! be nowhere.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use riverrun_env::Env;
use riverrun_journal::{HeldEntry, JournalFinding, verify_with_held};
use riverrun_types::{Offset, PartitionId, TimestampMs};

use super::{Finding, Weight};
use crate::error::LogError;
use crate::partition_log::Piece;
use crate::shared::partition_of;

/// What one file of a journal keeps aside of a partition that came after the same number of cuts of its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    /// The file.
    pub path: PathBuf,
    /// Where the first entry of the partition begins in it.
    pub position: u64,
    /// Whose entries they are.
    pub partition: PartitionId,
    /// After how many cuts of the partition's log they came.
    pub cuts: u32,
    /// How many, with those that only stand for damaged ones.
    pub entries: usize,
    /// Bytes of their batches.
    pub bytes: u64,
    /// Where they begin.
    pub start: Offset,
    /// Where they end; after a damaged one, a record behind its beginning at least.
    pub end: Offset,
    /// Whether they end there, because nothing is wrong with the last of them.
    pub is_end_known: bool,
}

/// What was found in a journal's directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalReport {
    /// What is wrong, in the order of the files. Empty: nothing.
    pub findings: Vec<JournalFinding>,
    /// What is kept aside, in the order in which it was put there.
    pub aside: Vec<Aside>,
}

/// Verifies the journal whose files lie in `dir`, and tells what it keeps aside. Fails only if the system cannot read.
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

/// Behind the last record of an entry, and what is wrong with it.
fn end_of(path: &Path, held: &HeldEntry) -> (Offset, Option<JournalFinding>) {
    let HeldEntry { position, entry } = held;
    let at_least = Offset(entry.header.base_offset.0.saturating_add(1));
    if entry.is_damaged() {
        // The journal has told so.
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
    /// What begins with an entry that is yet to be added.
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

    /// Says that it is there. Nothing is wrong with it.
    pub fn note(&self) -> Finding {
        self.finding("the next start that can takes what no checkpoint covers into the log")
    }

    /// The same of what came before the log was cut last.
    pub(super) fn note_of_cut(&self) -> Finding {
        self.finding("the log was cut since, and no start takes it")
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
