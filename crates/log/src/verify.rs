//! `riverrun log verify`: reads all files of a partition or of a log dir, changes nothing, and lists faults.
//!
//! Goes further than recovery does: every batch of every segment, its records, and the running checksums of the index,
//! which find a flipped bit outside of a batch's own CRC and a batch that was replaced by another valid one. The log
//! dir's checkpoint tells damage from a torn tail, which the next start cuts off, and from damage below the log start,
//! which is never read. Needs no server; with one running, the active segment's tail may look damaged although it is
//! not.

mod aside;
mod files;

use std::path::{Path, PathBuf};

use riverrun_env::{Env, OpenMode, is_odd_file};
use riverrun_types::{Offset, PartitionId};

pub use aside::{Aside, JournalReport, partition_hit, verify_journal};
pub use files::LogDirFiles;

use crate::checkpoint::PartitionCheckpoint;
use crate::compaction::swap::Misfit;
use crate::error::LogError;
use crate::file_names::INDEX_SUFFIX;
use crate::index::IndexHeader;
use crate::index_content::IndexContent;
use crate::listing::Listing;
use crate::segment_check::{Facts, Flaw, Half, SegmentCheck};

/// The weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Nothing is wrong: a journal keeps records of the partition aside, which are in no log yet.
    Aside,
    /// Damage below the log start, which is never read.
    BelowLogStart,
    /// Records that inflate to more than is read here: their batch is intact by its checksum, and was not inflated.
    NotChecked,
    /// A fault above the last checkpoint, or the last cut, as a crash leaves it. The next start cuts it off, and writes
    /// the journal's entries anew.
    TornTail,
    /// Bytes that were once durable have changed.
    Damage,
}

impl Weight {
    /// The word for it in programs' output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aside => "aside",
            Self::BelowLogStart => "below-log-start",
            Self::NotChecked => "not-checked",
            Self::TornTail => "torn-tail",
            Self::Damage => "damage",
        }
    }
}

/// A fault, or a fact that matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub path: PathBuf,
    /// The position in it.
    pub position: u64,
    /// Its weight.
    pub weight: Weight,
    /// The fault there.
    pub what: String,
}

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Segments.
    pub segments: usize,
    /// Intact batches.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// The faults, in the order of the files, and the entries aside. Empty: nothing.
    pub findings: Vec<Finding>,
}

/// Bytes of a segment between two reports of a verification's place: a fraction of a second's work.
const STEP_BYTES: u64 = 16 * 1024 * 1024;

/// The place of a partition's verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyStep {
    /// The segment that it is in, counted from 1.
    pub segment: usize,
    /// Number of segments.
    pub segments: usize,
    /// Bytes of all segments that it has passed.
    pub bytes: u64,
    /// Bytes of all segments.
    pub bytes_total: u64,
}

/// Verifies the partition whose files lie in `dir`, by the checkpoint of its log dir if there is one two levels above.
/// Fails only if the system cannot list or open files; damage is a finding.
pub fn verify_partition(env: &Env, dir: &Path, partition: PartitionId) -> Result<VerifyReport, LogError> {
    let log_dir = dir.parent().and_then(Path::parent);
    let files = log_dir.map(|path| LogDirFiles::read(env, path)).transpose()?;
    verify_partition_of(env, dir, partition, files.as_ref(), &[], &mut |_| {})
}

/// As [`verify_partition`], by the files of its log dir, and by the entries that journals keep `aside`, of this
/// partition and of others. Both were read before. `on_step` is called with the verification's place, at each segment
/// and a few times a second.
pub fn verify_partition_of(
    env: &Env,
    dir: &Path,
    partition: PartitionId,
    log_dir: Option<&LogDirFiles>,
    aside: &[Aside],
    on_step: &mut dyn FnMut(VerifyStep),
) -> Result<VerifyReport, LogError> {
    let known = log_dir.and_then(|files| files.partition(partition));
    let listing = Listing::read(env, dir)?;
    let report = VerifyReport::default();
    let mut verification = Verification { dir, partition, log_dir, known, end: None, report };
    verification.check_listing(&listing);
    let bytes_total = listing.logs.iter().map(|(_, bytes)| bytes).sum();
    let mut step = VerifyStep { segments: listing.logs.len(), bytes_total, ..VerifyStep::default() };
    for (facts, path) in listing.segments(dir, known) {
        step.segment += 1;
        let mut on_position = |position| on_step(VerifyStep { bytes: step.bytes + position, ..step });
        verification.segment(env, facts, &path, partition, &mut on_position)?;
        step.bytes += facts.size_bytes;
    }
    verification.report.findings.extend(files::check_states(env, dir, partition, &listing.states, known)?);
    let aside: Vec<_> = aside.iter().filter(|aside| aside.partition == partition).collect();
    verification.check_aside(&listing, &aside);
    Ok(verification.report)
}

/// The verification of one partition.
struct Verification<'a> {
    dir: &'a Path,
    partition: PartitionId,
    log_dir: Option<&'a LogDirFiles>,
    known: Option<&'a PartitionCheckpoint>,
    /// The end of the last segment, once that was read.
    end: Option<LogEnd>,
    report: VerifyReport,
}

/// The end of the log, by its last segment. Until a checkpoint covers a cut, bytes beyond it count for nothing.
struct LogEnd {
    path: PathBuf,
    position: u64,
    offset: Offset,
    /// The segment itself has no fault, as far as it counts.
    is_sound: bool,
}

impl Verification<'_> {
    /// Compares the list of segments with the checkpoint.
    fn check_listing(&mut self, listing: &Listing) {
        self.report.segments = listing.logs.len();
        match &listing.is_swapping {
            Ok(false) => {}
            Ok(true) => {
                let what = "a compaction was interrupted; the next start brings it to its end".to_owned();
                self.find(self.dir.to_path_buf(), 0, Weight::TornTail, what);
            }
            // A start refuses the swap, and the partition with it.
            Err(Misfit { path, what }) => self.find(path.clone(), 0, Weight::Damage, what.clone()),
        }
        let Some(known) = self.known.filter(|known| known.log_start < known.durable_end()) else { return };
        let what = match listing.logs.first() {
            None => format!("no segments, where offsets up to {} were synced", known.durable_end()),
            Some((base, _)) if *base > known.log_start => {
                format!("the first segment begins at {base}, the log at {}", known.log_start)
            }
            Some(_) => return,
        };
        self.find(self.dir.to_path_buf(), 0, Weight::Damage, what);
    }

    fn find(&mut self, path: PathBuf, position: u64, weight: Weight, what: String) {
        self.report.findings.push(Finding { path, position, weight, what });
    }

    fn segment(
        &mut self,
        env: &Env,
        facts: Facts,
        log_path: &Path,
        partition: PartitionId,
        on_position: &mut dyn FnMut(u64),
    ) -> Result<(), LogError> {
        let file = match env.fs.open(log_path, OpenMode::Read) {
            Err(error) if is_odd_file(&error) => {
                self.find(log_path.to_path_buf(), 0, Weight::Damage, error.to_string());
                return Ok(());
            }
            opened => opened.map_err(|error| LogError::io(log_path, error))?,
        };
        let index_path = log_path.with_extension(&INDEX_SUFFIX[1..]);
        let header = IndexHeader { partition, base_offset: facts.base };
        let index = IndexContent::read(env, &index_path, header)?;
        let mut check = SegmentCheck::new(facts, index);
        let checked = loop {
            on_position(check.position());
            match check.run(&*file, STEP_BYTES) {
                Ok(false) => {}
                ended => break ended,
            }
        };
        for flaw in &check.flaws {
            let path = if flaw.half == Half::Log { log_path } else { &index_path };
            self.find(path.to_path_buf(), flaw.position, weight(flaw, self.known), flaw.what.clone());
        }
        self.report.batches += check.counts.batches;
        self.report.records += check.counts.records;
        self.report.bytes += check.counts.bytes;
        match checked {
            // A disk that cannot give back its bytes has lost them.
            Err(error) => {
                let what = format!("it cannot be read: {error}");
                self.find(log_path.to_path_buf(), check.position(), Weight::Damage, what);
            }
            Ok(_) if facts.next_base.is_none() => {
                self.end = Some(self.log_end(log_path, &check));
                self.check_reaches(log_path, &check, &file.len());
            }
            Ok(_) => {}
        }
        Ok(())
    }

    fn log_end(&self, path: &Path, check: &SegmentCheck) -> LogEnd {
        let cut_end = self.known.and_then(|known| known.cut_end).unwrap_or(Offset(i64::MAX));
        let is_passed = |flaw: &Flaw| flaw.is_unchecked || flaw.half == Half::Index || flaw.from >= cut_end;
        LogEnd {
            path: path.to_path_buf(),
            position: check.position(),
            offset: check.end().min(cut_end),
            is_sound: check.flaws.iter().all(is_passed),
        }
    }

    /// Reports the entries aside, and whether the log reaches up to them and they go on from file to file without a
    /// gap, as far as no checkpoint covers them. Entries from before the log's last cut fill no gap, and make none.
    fn check_aside(&mut self, listing: &Listing, aside: &[&Aside]) {
        let newest = aside.iter().map(|aside| aside.cuts).max().unwrap_or(0);
        let cuts = self.log_dir.map_or(newest, |files| files.cuts_or(self.partition, newest));
        let to_finding =
            |aside: &&Aside| if aside.cuts < cuts { aside.to_finding_of_cut() } else { aside.to_finding() };
        self.report.findings.extend(aside.iter().map(to_finding));
        if let Some(aside) = aside.iter().find(|aside| aside.cuts > cuts) {
            let what =
                format!("the entries aside came after cut {} of the log, and {cuts} are known", aside.cuts);
            self.find(aside.path.clone(), aside.position, Weight::Damage, what);
        }
        let first_base = listing.logs.first().map_or(Offset::ZERO, |(base, _)| *base);
        let log_start = self.known.map_or(first_base, |known| known.log_start.max(first_base));
        let covered = self.known.map_or(log_start, |known| known.durable_end().max(log_start));
        let (path, position, end) = match &self.end {
            Some(end) if end.is_sound => (end.path.clone(), end.position, end.offset),
            None if listing.logs.is_empty() => (self.dir.to_path_buf(), 0, log_start),
            // The fault there was reported.
            _ => return,
        };
        let mut uncovered = aside.iter().filter(|aside| aside.cuts == cuts && aside.end > covered);
        let Some(first) = uncovered.next() else { return };
        if first.start > end.max(log_start) {
            let start = first.start;
            let what = format!(
                "the log ends at offset {end}, and its entries aside begin at {start}: the records between are in neither"
            );
            self.find(path, position, Weight::Damage, what);
        }
        let mut before = first;
        let mut reached = first.end.max(end);
        for aside in uncovered {
            if aside.start > reached && before.is_end_known {
                let what = format!(
                    "the partition's entries aside go on at offset {} instead of {reached}: the records between are \
                     missing",
                    aside.start
                );
                self.find(aside.path.clone(), aside.position, Weight::Damage, what);
            }
            reached = reached.max(aside.end);
            before = aside;
        }
    }

    /// Whether the last segment ends above all that was synced.
    fn check_reaches(&mut self, path: &Path, check: &SegmentCheck, len: &std::io::Result<u64>) {
        let Some(known) = self.known else { return };
        let synced = known.durable_end();
        let is_short = check.end() < synced && known.log_start < synced;
        if is_short && check.flaws.iter().all(|flaw| flaw.is_unchecked) {
            let what = format!("ends at offset {}, where offsets up to {synced} were synced", check.end());
            let position = len.as_ref().map_or(check.position(), |len| *len);
            self.find(path.to_path_buf(), position, Weight::Damage, what);
        }
    }
}

/// The weight of a flaw, by the checkpoint's state of the partition.
pub(crate) fn weight(flaw: &Flaw, known: Option<&PartitionCheckpoint>) -> Weight {
    let Some(known) = known else {
        return if flaw.is_unchecked { Weight::NotChecked } else { Weight::Damage };
    };
    if flaw.until.is_some_and(|until| until <= known.log_start) {
        Weight::BelowLogStart
    } else if flaw.is_unchecked {
        Weight::NotChecked
    } else if flaw.from >= known.durable_end() && flaw.unreadable_at.is_none() {
        Weight::TornTail
    } else {
        Weight::Damage
    }
}
