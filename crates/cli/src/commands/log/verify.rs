//! `riverrun log verify`: everything that can be checked of a server's files.
//!
//! Goes over all that lies at or below the paths, whatever it finds in some of it, and tells damage from what is
//! harmless: a tail that a crash has left, and what lies below the log start.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use riverrun_broker::{
    MetadataError, MetadataFinding, NamedKind, UnseenDir, Whereabouts, named_partitions, unseen_dirs,
    verify_identity, verify_lost_metadata, verify_mark, verify_metadata,
};
use riverrun_env::{Env, OpenMode, is_odd_file};
use riverrun_journal::JournalFinding;
use riverrun_log::{
    Aside, Finding, LogDirFiles, VerifyStep, Weight, partition_hit, verify_journal, verify_partition_of,
};
use riverrun_measure::text::number;
use riverrun_measure::text::table::{Column, Table};
use riverrun_tools::exit::{Exit, Failure};
use riverrun_tools::text::output::OutputArgs;
use riverrun_types::PartitionId;
use serde::Serialize;

use super::log_failure;
use super::partitions::{Found, PartitionDir, Unread, is_in_use};
use super::progress::Progress;

const EXAMPLES: &str = "\
Examples:
  riverrun log verify riverrun-data
  riverrun log verify riverrun-data/logs/7014b4a1-5af8-4dd2-bc34-d4f7874e2d66/0
  riverrun log verify /disk1/logs /disk2/logs --json

It checks segments, indexes and state files of partitions; checkpoint, log starts, identity and
metadata mark of log dirs; files of journals; snapshot and log of the metadata. It goes through
all paths, whatever it finds, and changes nothing: the right to read is enough. Bytes that the
disk does not give back (a bad sector) are damage, and all others are checked.

A data directory without metadata is damage. So is a log dir or a journal that the metadata names,
that is not where it says, and that a start would miss; one that is there and lies below none of the
paths is listed as not checked (exit code 1), with the path to give as well.

Links to directories are followed, and each directory is checked once. A link to the directory of
another partition is damage. A link that leads nowhere and a directory that cannot be read are
listed as not checked. Holes of a file are passed over. Where stderr is a terminal, it says how far
the check is.

Exit code 5 if anything is damaged; else that of the first path that could not be checked (3:
nothing of a server is there); else 0. These are listed and count as good: a torn tail that a
crash has left above the last checkpoint, and that the next start cuts off; damage below the log
start; records that inflate to more than is read here; and damage in settled parts of a journal.
Records of a partition that a journal keeps aside count as good, too; they are known if the
journal's directory lies at or below a path.

Stop the server first: while it writes, intact files may look damaged, and a file that was found
intact may be so no longer. Directories in use are named, and do not change the exit code.";

/// Result of a directory or partition that has damage.
const DAMAGED: &str = "DAMAGED";
/// The weight of damage in a part of a journal that is durable elsewhere.
const SETTLED: &str = "settled";
/// Names of the kinds of directories.
const JOURNAL: &str = "journal";
const LOG_DIR: &str = "log dir";
const METADATA: &str = "metadata";
/// Files of a server's directories of which a start wants nothing but that they are files.
const PLAIN_FILES: [&str; 3] = ["lock", "device-check", "mounted-topics"];

/// Flags of `log verify`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct VerifyArgs {
    /// Data directories, log dirs, topics' or partitions' directories, those of metadata and journals
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// The findings, as JSON has them.
#[derive(Debug, Default, Serialize)]
struct Report {
    partitions: Vec<PartitionReport>,
    directories: Vec<DirectoryReport>,
    /// Paths that could not be checked.
    problems: Vec<Problem>,
    /// Directories that a server had in use when the check began: what is said of them may be so no longer.
    in_use: Vec<String>,
    /// Directories of which nobody can tell whether a server has them in use, and why.
    in_doubt: Vec<String>,
    /// All findings, the harmless ones included.
    findings: usize,
    /// Those that are damage.
    damage: usize,
}

impl PartitionReport {
    /// The report of a partition whose directory is a link to another one's.
    fn shared(partition: &PartitionDir, real: &Path) -> Self {
        let what = PartitionDir::shared_with(real);
        let finding = Finding { path: partition.path.clone(), position: 0, weight: Weight::Damage, what };
        Self {
            path: text_of(&partition.path),
            topic_id: partition.id.topic.to_string(),
            partition: partition.id.index,
            segments: 0,
            batches: 0,
            records: 0,
            bytes: 0,
            findings: vec![finding.into()],
        }
    }
}

#[derive(Debug, Serialize)]
struct PartitionReport {
    path: String,
    topic_id: String,
    partition: i32,
    segments: usize,
    batches: u64,
    records: u64,
    bytes: u64,
    findings: Vec<FindingReport>,
}

/// A log dir, a journal or the metadata.
#[derive(Debug, Serialize)]
struct DirectoryReport {
    path: String,
    kind: &'static str,
    /// Whether it was looked at: it is named by the metadata only, if not.
    is_checked: bool,
    findings: Vec<FindingReport>,
}

/// Directories that were found.
#[derive(Debug, Default)]
struct Shown {
    log_dirs: Vec<PathBuf>,
    journals: Vec<PathBuf>,
}

impl Shown {
    fn add(&mut self, found: &Found) {
        self.log_dirs.extend_from_slice(&found.log_dirs);
        self.journals.extend_from_slice(&found.journals);
    }
}

#[derive(Debug, Serialize)]
struct FindingReport {
    path: String,
    position: u64,
    weight: &'static str,
    what: String,
}

#[derive(Debug, Serialize)]
struct Problem {
    path: String,
    what: String,
    #[serde(skip)]
    failure: Failure,
}

pub(super) fn run(args: &VerifyArgs) -> Result<(), Failure> {
    let found: Vec<_> = args.paths.iter().map(|path| (path, Found::at(path))).collect();
    let partitions =
        found.iter().filter_map(|(_, found)| found.as_ref().ok()).map(|found| found.partitions.len());
    let mut verification = Verification::new(Progress::start(partitions.sum()));
    for found in found.iter().filter_map(|(_, found)| found.as_ref().ok()) {
        verification.note_in_use(found);
    }
    // Entries that journals keep aside are listed with their partitions.
    for path in found.iter().filter_map(|(_, found)| found.as_ref().ok()).flat_map(|found| &found.journals) {
        verification.read_journal(path);
    }
    verification.note_shown(found.iter().filter_map(|(_, found)| found.as_ref().ok()));
    for (path, found) in found {
        match found {
            Ok(found) => verification.check(found),
            Err(failure) => verification.problem(path, failure),
        }
    }
    let report = verification.finish();
    args.output.print(&report, text)?;
    if report.damage > 0 {
        let message = number::counted(report.damage, "finding") + " of damage; the files were not changed";
        let failure = Failure::new(Exit::CheckFailed, message);
        return Err(match report.advice() {
            Some(advice) => failure.advise(advice),
            None => failure,
        });
    }
    report.problems.into_iter().next().map_or(Ok(()), |problem| Err(problem.failure))
}

/// Goes over directories, one after the other.
struct Verification {
    env: Env,
    /// The log dirs' files about their partitions; none of those that have none.
    log_dirs: BTreeMap<PathBuf, Option<LogDirFiles>>,
    /// Findings in journals that are yet to be told.
    journals: BTreeMap<PathBuf, Result<Vec<FindingReport>, Failure>>,
    /// Entries that journals keep aside.
    aside: Vec<Aside>,
    /// The partitions that were checked.
    partitions: BTreeSet<PartitionId>,
    /// Findings below paths without metadata.
    without_metadata: Shown,
    has_metadata: bool,
    /// The partitions that the metadata has.
    named: BTreeSet<PartitionId>,
    progress: Progress,
    report: Report,
}

impl Verification {
    fn new(progress: Progress) -> Self {
        Self {
            env: Env::real(),
            log_dirs: BTreeMap::new(),
            journals: BTreeMap::new(),
            aside: Vec::new(),
            partitions: BTreeSet::new(),
            without_metadata: Shown::default(),
            has_metadata: false,
            named: BTreeSet::new(),
            progress,
            report: Report::default(),
        }
    }

    /// Notes what metadata below one path may name below another, and the partitions that it has. What lies beside metadata
    /// of its own belongs to that: the paths may be those of a data directory and of its copy.
    fn note_shown<'a>(&mut self, found: impl Iterator<Item = &'a Found>) {
        for found in found {
            self.has_metadata |= !found.metadata.is_empty();
            self.named.extend(found.metadata.iter().flat_map(|path| named_partitions(&self.env, path)));
            if found.metadata.is_empty() {
                self.without_metadata.add(found);
            }
        }
    }

    fn check(&mut self, found: Found) {
        for path in &found.metadata {
            let findings =
                verify_metadata(&self.env, path, &found.log_dirs).map_err(|error| metadata_failure(&error));
            let findings = findings.map(|found| found.into_iter().map(FindingReport::from).collect());
            self.directory(path, METADATA, findings);
            self.check_named(path, &found);
        }
        if let Some(path) = found.lost_metadata.as_ref().filter(|_| !self.has_metadata) {
            let finding = verify_lost_metadata(&self.env, path, &found.log_dirs);
            self.directory(path, METADATA, Ok(vec![finding.into()]));
        }
        for path in found.journals {
            if let Some(findings) = self.journals.remove(&path) {
                self.directory(&path, JOURNAL, findings);
            }
        }
        for path in found.log_dirs {
            let findings = self.log_dir(&path);
            self.directory(&path, LOG_DIR, findings);
        }
        for partition in found.partitions {
            let path = partition.path.clone();
            match self.partition(partition) {
                Ok(report) => self.report.partitions.push(report),
                Err(failure) => self.problem(&path, failure),
            }
        }
        for (partition, real) in found.shared {
            self.report.partitions.push(PartitionReport::shared(&partition, &real));
        }
        for Unread { path, failure } in found.unread {
            self.problem(&path, failure);
        }
    }

    /// Tells of the directories that the metadata at `meta` names, and that were not found beside it.
    fn check_named(&mut self, meta: &Path, found: &Found) {
        let mut shown = Shown::default();
        shown.add(found);
        let Shown { log_dirs, journals } = &self.without_metadata;
        shown.log_dirs.extend_from_slice(log_dirs);
        shown.journals.extend_from_slice(journals);
        for unseen in unseen_dirs(&self.env, meta, &shown.log_dirs, &shown.journals) {
            self.unseen(meta, unseen);
        }
    }

    fn unseen(&mut self, meta: &Path, UnseenDir { path, kind, place }: UnseenDir) {
        let kind = match kind {
            NamedKind::LogDir => LOG_DIR,
            NamedKind::Journal => JOURNAL,
        };
        let path = std::path::absolute(&path).unwrap_or(path);
        let why = match place {
            Whereabouts::Gone(what) => {
                let finding = Finding { path: path.clone(), position: 0, weight: Weight::Damage, what };
                return self.directory(&path, kind, Ok(vec![finding.into()]));
            }
            Whereabouts::Elsewhere => {
                format!("it lies below none of the paths; give {} as well", path.display())
            }
            Whereabouts::Unknown(why) => why,
        };
        let (name, findings) = (text_of(&path), Vec::new());
        self.report.directories.push(DirectoryReport { path: name, kind, is_checked: false, findings });
        let what = format!("{}, a {kind} that {} names: {why}", path.display(), meta.display());
        self.problem(&path, Failure::new(Exit::Failed, what));
    }

    fn note_in_use(&mut self, found: &Found) {
        for dir in found.lockable() {
            let (list, line) = match is_in_use(&self.env, dir) {
                Ok(false) => continue,
                Ok(true) => (&mut self.report.in_use, text_of(dir)),
                Err(failure) => (&mut self.report.in_doubt, failure.message().to_owned()),
            };
            if !list.contains(&line) {
                list.push(line);
            }
        }
    }

    fn problem(&mut self, path: &Path, failure: Failure) {
        let what = failure.message().to_owned();
        self.report.problems.push(Problem { path: text_of(path), what, failure });
    }

    fn directory(&mut self, path: &Path, kind: &'static str, findings: Result<Vec<FindingReport>, Failure>) {
        match findings {
            Ok(mut findings) => {
                findings.extend(odd_files(&self.env, path));
                let (path, is_checked) = (text_of(path), true);
                self.report.directories.push(DirectoryReport { path, kind, is_checked, findings });
            }
            Err(failure) => self.problem(path, failure),
        }
    }

    /// Notes what is wrong with a journal and what it keeps aside, once.
    fn read_journal(&mut self, path: &Path) {
        if self.journals.contains_key(path) {
            return;
        }
        let report = verify_journal(&self.env, path).map_err(|error| log_failure(&error));
        let findings = report.map(|report| {
            self.aside.extend(report.aside);
            report.findings.into_iter().map(FindingReport::from).collect()
        });
        self.journals.insert(path.to_path_buf(), findings);
    }

    fn log_dir(&mut self, path: &Path) -> Result<Vec<FindingReport>, Failure> {
        let files = LogDirFiles::read(&self.env, path).map_err(|error| log_failure(&error))?;
        let identity = verify_identity(&self.env, path).map_err(|error| metadata_failure(&error))?;
        let mark = verify_mark(&self.env, path).map_err(|error| metadata_failure(&error))?;
        let missing =
            files.missing_partitions(&self.env, &self.named).map_err(|error| log_failure(&error))?;
        let findings = files.findings().iter().cloned().chain(missing).map(FindingReport::from);
        let of_metadata = identity.into_iter().chain(mark).map(FindingReport::from);
        let findings = findings.chain(of_metadata).collect();
        self.log_dirs.insert(path.to_path_buf(), Some(files));
        Ok(findings)
    }

    fn partition(&mut self, partition: PartitionDir) -> Result<PartitionReport, Failure> {
        let files = files_of(&self.env, &mut self.log_dirs, &partition);
        let PartitionDir { path, id } = partition;
        self.progress.begin_partition();
        let mut on_step = |step: VerifyStep| self.progress.show(&step);
        let report = verify_partition_of(&self.env, &path, id, files, &self.aside, &mut on_step);
        let report = report.map_err(|error| log_failure(&error))?;
        self.partitions.insert(id);
        Ok(PartitionReport {
            path: text_of(&path),
            topic_id: id.topic.to_string(),
            partition: id.index,
            segments: report.segments,
            batches: report.batches,
            records: report.records,
            bytes: report.bytes,
            findings: report.findings.into_iter().map(FindingReport::from).collect(),
        })
    }

    /// Tells with a journal what it keeps aside of partitions that are not among those that were checked.
    fn tell_of_others(&mut self) {
        for aside in self.aside.iter().filter(|aside| !self.partitions.contains(&aside.partition)) {
            let is_its = |directory: &&mut DirectoryReport| {
                directory.kind == JOURNAL
                    && aside.path.parent().map(text_of).as_ref() == Some(&directory.path)
            };
            if let Some(journal) = self.report.directories.iter_mut().find(is_its) {
                journal.findings.push(aside.to_finding().into());
            }
        }
    }

    fn finish(mut self) -> Report {
        self.progress.finish();
        self.tell_of_others();
        let weights: Vec<_> = self.report.all_findings().map(|finding| finding.weight).collect();
        self.report.findings = weights.len();
        self.report.damage = weights.iter().filter(|weight| **weight == Weight::Damage.name()).count();
        self.report
    }
}

/// Entries of `dir` that stand in the place of a file that a start only opens, and are none.
fn odd_files(env: &Env, dir: &Path) -> impl Iterator<Item = FindingReport> {
    PLAIN_FILES.into_iter().filter_map(|name| {
        let path = dir.join(name);
        let error = env.fs.open(&path, OpenMode::Read).err().filter(is_odd_file)?;
        Some(Finding { path, position: 0, weight: Weight::Damage, what: error.to_string() }.into())
    })
}

/// The files in a partition's log dir that tell of it, read once.
fn files_of<'a>(
    env: &Env,
    log_dirs: &'a mut BTreeMap<PathBuf, Option<LogDirFiles>>,
    partition: &PartitionDir,
) -> Option<&'a LogDirFiles> {
    let path = partition.log_dir()?;
    if !log_dirs.contains_key(path) {
        log_dirs.insert(path.to_path_buf(), LogDirFiles::read(env, path).ok());
    }
    log_dirs.get(path)?.as_ref()
}

fn metadata_failure(error: &MetadataError) -> Failure {
    Failure::new(Exit::Failed, error.to_string())
}

fn text_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

impl Report {
    fn all_findings(&self) -> impl Iterator<Item = &FindingReport> {
        let directories = self.directories.iter().flat_map(|directory| &directory.findings);
        directories.chain(self.partitions.iter().flat_map(|partition| &partition.findings))
    }

    /// Advice about damage, beside the text of each finding.
    fn advice(&self) -> Option<&'static str> {
        let is_damaged = |partition: &PartitionReport| result(&partition.findings) == DAMAGED;
        if !self.in_use.is_empty() {
            Some("stop the server and check again; while it writes, files may look damaged that are not")
        } else if self.partitions.iter().any(is_damaged) {
            Some("riverrun log repair PATH   (shows which records of a damaged partition can be kept)")
        } else {
            None
        }
    }
}

impl From<Finding> for FindingReport {
    fn from(finding: Finding) -> Self {
        let Finding { path, position, weight, what } = finding;
        Self { path: text_of(&path), position, weight: weight.name(), what }
    }
}

impl From<MetadataFinding> for FindingReport {
    fn from(finding: MetadataFinding) -> Self {
        let MetadataFinding { path, position, what, is_torn_tail } = finding;
        let weight = if is_torn_tail { Weight::TornTail } else { Weight::Damage };
        Self { path: text_of(&path), position, weight: weight.name(), what }
    }
}

impl From<JournalFinding> for FindingReport {
    fn from(finding: JournalFinding) -> Self {
        let partition = partition_hit(&finding);
        let JournalFinding { path, position, what, is_torn_tail, is_settled, .. } = finding;
        let what = match partition {
            Some(partition) => format!("{what}, of partition {partition}"),
            None => what,
        };
        let weight = match (is_settled, is_torn_tail) {
            (true, _) => SETTLED,
            (false, true) => Weight::TornTail.name(),
            (false, false) => Weight::Damage.name(),
        };
        Self { path: text_of(&path), position, weight, what }
    }
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    if !report.directories.is_empty() {
        text += &directory_table(&report.directories);
        text.push('\n');
    }
    if !report.partitions.is_empty() {
        text += &partition_table(&report.partitions);
    }
    for FindingReport { path, position, weight, what } in report.all_findings() {
        let note = if *weight == Weight::Damage.name() { String::new() } else { format!(" [{weight}]") };
        writeln!(text, "{path} at byte {position}: {what}{note}").expect("a String takes every text");
    }
    for problem in &report.problems {
        writeln!(text, "not checked: {}", problem.what).expect("a String takes every text");
    }
    for dir in &report.in_use {
        writeln!(text, "in use by a server, which may change it meanwhile: {dir}")
            .expect("a String takes every text");
    }
    for why in &report.in_doubt {
        writeln!(text, "it cannot be told whether a server is using it: {why}")
            .expect("a String takes every text");
    }
    text
}

fn directory_table(directories: &[DirectoryReport]) -> String {
    let mut table = Table::new(&[Column::Left("DIRECTORY"), Column::Left("OF"), Column::Left("RESULT")]);
    for DirectoryReport { path, kind, is_checked, findings } in directories {
        let result = if *is_checked { result(findings) } else { "not checked" };
        table.row(&[path.clone(), (*kind).to_owned(), result.to_owned()]);
    }
    table.render(0)
}

fn partition_table(partitions: &[PartitionReport]) -> String {
    let mut table = Table::new(&[
        Column::Left("TOPIC ID"),
        Column::Right("PARTITION"),
        Column::Right("SEGMENTS"),
        Column::Right("BATCHES"),
        Column::Right("RECORDS"),
        Column::Right("SIZE"),
        Column::Left("RESULT"),
    ]);
    for partition in partitions {
        table.row(&[
            partition.topic_id.clone(),
            partition.partition.to_string(),
            partition.segments.to_string(),
            number::count(partition.batches),
            number::count(partition.records),
            number::bytes(partition.bytes),
            result(&partition.findings).to_owned(),
        ]);
    }
    table.render(0)
}

/// The worst of it, in a word.
fn result(findings: &[FindingReport]) -> &'static str {
    let has = |weight: Weight| findings.iter().any(|finding| finding.weight == weight.name());
    if has(Weight::Damage) {
        DAMAGED
    } else if has(Weight::TornTail) {
        "torn tail"
    } else if has(Weight::NotChecked) {
        "not checked"
    } else if has(Weight::Aside) {
        "good, more aside"
    } else {
        "good"
    }
}
