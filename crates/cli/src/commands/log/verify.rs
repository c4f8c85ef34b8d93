//! `riverrun log verify`: everything that can be checked of partitions' files.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use riverrun_env::Env;
use riverrun_log::{VerifyReport, verify_partition};
use serde::Serialize;

use super::log_failure;
use super::partitions::{PartitionDir, find};
use crate::exit::{Exit, Failure};
use crate::text::number;
use crate::text::output::OutputArgs;
use crate::text::table::{Column, Table};

const EXAMPLES: &str = "\
Examples:
  riverrun log verify riverrun-data
  riverrun log verify riverrun-data/logs/7014b4a1-5af8-4dd2-bc34-d4f7874e2d66/0

Exit code 5 if anything is wrong. Stop the server first: while it writes, the end of a partition may
look damaged.";

/// Flags of `log verify`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct VerifyArgs {
    /// Data directories, log dirs, topics' or partitions' directories
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// What was found, as JSON has it.
#[derive(Serialize)]
struct Report {
    partitions: Vec<PartitionReport>,
    findings: usize,
}

#[derive(Serialize)]
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

#[derive(Serialize)]
struct FindingReport {
    path: String,
    position: u64,
    what: String,
}

pub(super) fn run(args: &VerifyArgs) -> Result<(), Failure> {
    let mut partitions: Vec<PartitionReport> = Vec::new();
    for path in &args.paths {
        for partition in find(path)? {
            partitions.push(verify(partition)?);
        }
    }
    let findings = partitions.iter().map(|partition| partition.findings.len()).sum();
    let report = Report { partitions, findings };
    args.output.print(&report, text)?;
    match findings {
        0 => Ok(()),
        _ => {
            Err(Failure::new(Exit::CheckFailed, format!("{findings} finding(s); the files were not changed")))
        }
    }
}

fn verify(partition: PartitionDir) -> Result<PartitionReport, Failure> {
    let PartitionDir { path, id } = partition;
    let VerifyReport { segments, batches, records, bytes, findings } =
        verify_partition(&Env::real(), &path, id).map_err(|error| log_failure(&error))?;
    let findings = findings
        .into_iter()
        .map(|finding| FindingReport {
            path: finding.path.to_string_lossy().into_owned(),
            position: finding.position,
            what: finding.what,
        })
        .collect();
    let path = path.to_string_lossy().into_owned();
    let (topic_id, partition) = (id.topic.to_string(), id.index);
    Ok(PartitionReport { path, topic_id, partition, segments, batches, records, bytes, findings })
}

fn text(report: &Report) -> String {
    let mut table = Table::new(&[
        Column::Left("TOPIC ID"),
        Column::Right("PARTITION"),
        Column::Right("SEGMENTS"),
        Column::Right("BATCHES"),
        Column::Right("RECORDS"),
        Column::Right("SIZE"),
        Column::Left("RESULT"),
    ]);
    for partition in &report.partitions {
        table.row(&[
            partition.topic_id.clone(),
            partition.partition.to_string(),
            partition.segments.to_string(),
            number::count(partition.batches),
            number::count(partition.records),
            number::bytes(partition.bytes),
            if partition.findings.is_empty() { "good".to_owned() } else { "DAMAGED".to_owned() },
        ]);
    }
    let mut text = table.render(0);
    for finding in report.partitions.iter().flat_map(|partition| &partition.findings) {
        writeln!(text, "{} at byte {}: {}", finding.path, finding.position, finding.what)
            .expect("a String takes every text");
    }
    text
}
