//! `riverrun log repair`: shows which records of a damaged partition can be kept, and with `--cut` cuts off the rest.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use riverrun_broker::{NamedKind, Whereabouts, unseen_dirs};
use riverrun_env::Env;
use riverrun_log::{Cut, CutOptions, LogError, Repair, RepairError};
use riverrun_measure::text::number;
use riverrun_tools::exit::{Exit, Failure};
use riverrun_tools::text::output::OutputArgs;
use serde::Serialize;

use super::log_failure;
use super::partitions::{Found, PartitionDir, Unread, is_in_use};

const EXAMPLES: &str = "\
Examples:
  riverrun log repair riverrun-data
  riverrun log repair logs/7014b4a1-5af8-4dd2-bc34-d4f7874e2d66/0 --cut
  riverrun log repair logs/7014b4a1-5af8-4dd2-bc34-d4f7874e2d66/0 --cut --discard-intact 1200

Without --cut nothing is changed: it says where the log of each damaged partition would end. With
--cut the log of one partition is cut at its first damage, after a synced copy of the part that
goes was made beside it or in --backup. Intact records behind the damage go with it only if
--discard-intact says how many they are. An index alone needs no repair: a server makes it anew.

Bytes that the disk does not give back (a bad sector) are damage here, too. The copy has zeros in
their place; try to copy the file by other means first.

Links to directories are followed, and each directory is looked at once. A link that leads nowhere,
a directory that cannot be read, a log dir that the metadata names and that lies elsewhere, and a
partition that no cut would mend are listed as not checked.

Stop the server first, in order; a log dir in use is refused.

Exit code 0 if nothing has to be cut, or it was cut; 5 if something would have to be; else that of
the first path that could not be checked.";

/// Flags of `log repair`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RepairArgs {
    /// A partition's directory; without --cut also a data directory, a log dir or a topic's directory
    path: PathBuf,
    /// Cut the log at its first damage
    #[arg(long)]
    cut: bool,
    /// Let this many intact records behind the damage go with it
    #[arg(long, value_name = "RECORDS", requires = "cut")]
    discard_intact: Option<u64>,
    /// Put copies of the cut part here instead of beside the segments
    #[arg(long, value_name = "DIR", requires = "cut")]
    backup: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// A finding or a deed, as JSON has it.
#[derive(Serialize)]
struct Report {
    partitions: Vec<PartitionReport>,
    /// Paths that could not be checked.
    problems: Vec<Problem>,
}

#[derive(Serialize)]
struct Problem {
    path: String,
    what: String,
}

#[derive(Serialize)]
struct PartitionReport {
    path: String,
    topic_id: String,
    partition: i32,
    /// Absent: there is nothing to cut.
    cut: Option<CutReport>,
    is_done: bool,
    backups: Vec<String>,
    /// Unreadable bytes, for which the copies have zeros.
    unread_bytes: u64,
}

#[derive(Serialize)]
struct CutReport {
    file: String,
    position: u64,
    what: String,
    log_end_offset: i64,
    bytes: u64,
    intact_records: u64,
    later_segments: Vec<String>,
}

pub(super) fn run(args: &RepairArgs) -> Result<(), Failure> {
    let found = Found::at(&args.path)?;
    if args.cut && !is_partition(&args.path)? {
        let text = format!("{}: --cut takes the directory of one partition", args.path.display());
        return Err(Failure::usage(text).advise("riverrun log repair PATH   (lists the damaged ones)"));
    }
    check_stopped(&found)?;
    let mut unread = elsewhere(&found);
    unread.extend(found.unread);
    unread.extend(found.shared.iter().map(|(partition, real)| {
        let what = PartitionDir::shared_with(real);
        let failure = Failure::new(Exit::CheckFailed, format!("{}: {what}", partition.path.display()));
        Unread { path: partition.path.clone(), failure }
    }));
    let mut partitions = Vec::new();
    for partition in found.partitions {
        match repair(args, &partition) {
            Ok(repaired) => partitions.push(repaired),
            Err(error) if args.cut || is_of_all(&error) => return Err(failure(&error)),
            Err(error) => unread.push(Unread { path: partition.path, failure: failure(&error) }),
        }
    }
    let report = Report { partitions, problems: unread.iter().map(Problem::from).collect() };
    args.output.print(&report, text)?;
    let open = report.partitions.iter().filter(|partition| partition.cut.is_some() && !partition.is_done);
    match open.count() {
        0 => unread.into_iter().next().map_or(Ok(()), |unread| Err(unread.failure)),
        count => {
            let message = number::counted(count, "partition") + " with something to cut; nothing was changed";
            Err(Failure::new(Exit::CheckFailed, message))
        }
    }
}

/// The log dirs that the metadata below the path names and that do not lie there: nothing is known of their partitions.
fn elsewhere(found: &Found) -> Vec<Unread> {
    let env = Env::real();
    let unseen = found.metadata.iter().flat_map(|meta| {
        unseen_dirs(&env, meta, &found.log_dirs, &found.journals)
            .into_iter()
            .map(move |unseen| (meta, unseen))
    });
    let log_dirs = unseen.filter(|(_, unseen)| unseen.kind == NamedKind::LogDir);
    let unread = log_dirs.map(|(meta, unseen)| {
        let path = std::path::absolute(&unseen.path).unwrap_or(unseen.path);
        let why = match unseen.place {
            Whereabouts::Elsewhere => format!("it lies elsewhere; riverrun log repair {}", path.display()),
            Whereabouts::Gone(why) | Whereabouts::Unknown(why) => why,
        };
        let what = format!("{}, a log dir that {} names: {why}", path.display(), meta.display());
        Unread { path, failure: Failure::new(Exit::Failed, what) }
    });
    unread.collect()
}

/// Refuses directories of a running server, also where no partition has files yet: the journal may have its records.
fn check_stopped(found: &Found) -> Result<(), Failure> {
    let env = Env::real();
    for dir in found.lockable() {
        if is_in_use(&env, dir)? {
            return Err(failure(&LogError::Locked { path: dir.to_path_buf() }.into()));
        }
    }
    Ok(())
}

fn is_partition(path: &Path) -> Result<bool, Failure> {
    let partition = PartitionDir::at(path).map_err(|error| Failure::io(path.display(), &error))?;
    Ok(partition.is_some())
}

/// Whether no partition of the log dir can be looked at.
fn is_of_all(error: &RepairError) -> bool {
    matches!(error, RepairError::NotStopped { .. } | RepairError::Log(LogError::Locked { .. }))
}

fn repair(args: &RepairArgs, partition: &PartitionDir) -> Result<PartitionReport, RepairError> {
    let PartitionDir { path, id } = partition;
    let repair = Repair::open(&Env::real(), path, *id)?;
    let cut = repair.plan()?;
    let mut backups = Vec::new();
    if let Some(cut) = cut.as_ref().filter(|_| args.cut) {
        let options = CutOptions { backup: args.backup.clone(), discard_intact: args.discard_intact };
        backups = repair.cut(cut, &options)?;
    }
    Ok(PartitionReport {
        path: text_of(path),
        topic_id: id.topic.to_string(),
        partition: id.index,
        is_done: cut.is_some() && args.cut,
        cut: cut.map(CutReport::from),
        backups: backups.iter().map(|backup| text_of(&backup.path)).collect(),
        unread_bytes: backups.iter().map(|backup| backup.unread_bytes).sum(),
    })
}

fn text_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

impl From<&Unread> for Problem {
    fn from(unread: &Unread) -> Self {
        Self { path: text_of(&unread.path), what: unread.failure.message().to_owned() }
    }
}

impl From<Cut> for CutReport {
    fn from(cut: Cut) -> Self {
        Self {
            file: text_of(&cut.path),
            position: cut.position,
            log_end_offset: cut.log_end.0,
            bytes: cut.bytes,
            intact_records: cut.intact_records,
            later_segments: cut.later.iter().map(|path| text_of(path)).collect(),
            what: cut.what,
        }
    }
}

fn failure(error: &RepairError) -> Failure {
    let told = |exit, advice: &str| Failure::new(exit, error.to_string()).advise(advice);
    match error {
        RepairError::Log(LogError::Locked { .. }) => told(Exit::Conflict, "stop the server first"),
        RepairError::Log(error) => log_failure(error),
        RepairError::IntactFollow { records } => {
            told(Exit::CheckFailed, &format!("--discard-intact {records}, if a copy of them is enough"))
        }
        RepairError::OtherCount { records, .. } => {
            told(Exit::Usage, &format!("--discard-intact {records}, if a copy of them is enough"))
        }
        RepairError::NoBeginning { .. } => told(Exit::CheckFailed, "restore the missing files from a copy"),
        RepairError::NotStopped { .. } | RepairError::Compacting { .. } => {
            told(Exit::Conflict, "start the server once and stop it with Ctrl-C; the damaged partition waits")
        }
        RepairError::BackupExists { .. } => told(Exit::Conflict, "--backup with another directory"),
    }
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    for partition in &report.partitions {
        let Some(cut) = &partition.cut else { continue };
        describe(&mut text, partition, cut).expect("a String takes every text");
    }
    if text.is_empty() {
        text.push_str("nothing has to be cut\n");
    }
    for problem in &report.problems {
        writeln!(text, "not checked: {}", problem.what).expect("a String takes every text");
    }
    text
}

fn describe(text: &mut String, partition: &PartitionReport, cut: &CutReport) -> std::fmt::Result {
    let verb = if partition.is_done { "cut" } else { "to cut" };
    writeln!(text, "{} at byte {}: {}", cut.file, cut.position, cut.what)?;
    let size = number::bytes(cut.bytes);
    writeln!(
        text,
        "  {verb}: {size} with {} intact records; the log ends at offset {}",
        cut.intact_records, cut.log_end_offset
    )?;
    for path in &cut.later_segments {
        writeln!(text, "  goes with it: {path}")?;
    }
    for path in &partition.backups {
        writeln!(text, "  copy: {path}")?;
    }
    if partition.unread_bytes > 0 {
        let size = number::bytes(partition.unread_bytes);
        writeln!(
            text,
            "  not read: {size} of it, which the disk does not give back: the copy has zeros there"
        )?;
    }
    if !partition.is_done {
        let consent = match cut.intact_records {
            0 => String::new(),
            records => format!(" --discard-intact {records}"),
        };
        writeln!(text, "  riverrun log repair {} --cut{consent}", partition.path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_reports_unread_bytes_of_its_copy() {
        let cut = CutReport {
            file: "a.log".to_owned(),
            position: 100,
            what: "byte 4096 cannot be read".to_owned(),
            log_end_offset: 7,
            bytes: 10_000,
            intact_records: 0,
            later_segments: Vec::new(),
        };
        let partition = |unread_bytes| PartitionReport {
            path: "0".to_owned(),
            topic_id: "topic".to_owned(),
            partition: 0,
            cut: None,
            is_done: true,
            backups: vec!["a.log.cut-100".to_owned()],
            unread_bytes,
        };
        let told = |unread_bytes| {
            let mut text = String::new();
            describe(&mut text, &partition(unread_bytes), &cut).expect("a String takes every text");
            text
        };
        assert!(told(0).ends_with("copy: a.log.cut-100\n"), "{}", told(0));
        let lacking =
            "  not read: 4.1 kB of it, which the disk does not give back: the copy has zeros there\n";
        assert_eq!(told(4096), told(0) + lacking);
    }
}
