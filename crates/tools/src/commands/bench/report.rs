//! `bench report`: results as one page.

use std::path::{Path, PathBuf};

use clap::Args;
use riverrun_bench::report::{Report, ReportError};
use riverrun_bench::result::OURS;
use riverrun_env::{RealFileSystem, is_odd_file, read_whole};
use serde_json::Value;

use crate::exit::{Exit, Failure};
use crate::text::output::print_text;

/// A result file in bytes at most: the longest run writes a few megabytes.
const RESULT_BYTES_MAX: u64 = 256 * 1024 * 1024;

#[derive(Args, Debug)]
pub(super) struct ReportArgs {
    /// Result files, or directories of them
    #[arg(required = true, value_name = "PATH")]
    results: Vec<PathBuf>,
    /// Write the page here
    #[arg(short, long, value_name = "FILE", default_value = "bench-report.html")]
    output: PathBuf,
    /// Title of the page
    #[arg(long, value_name = "TEXT", default_value = "Riverrun benchmark results")]
    title: String,
}

pub(super) fn run(args: &ReportArgs) -> Result<(), Failure> {
    let mut report = Report::new(&args.title);
    for path in &args.results {
        for file in files(path)? {
            let text = read_result(&file)?;
            report.add(&file.display().to_string(), &text).map_err(|error| failure(&error))?;
        }
    }
    let page = report.page().map_err(|error| failure(&error))?;
    std::fs::write(&args.output, page).map_err(|error| Failure::io(args.output.display(), &error))?;
    print_text(&format!("{} with {} results\n", args.output.display(), report.len()))
}

fn failure(error: &ReportError) -> Failure {
    Failure::new(Exit::Usage, error.to_string())
}

/// The text of a result file. What is no file is refused, whatever its name ends with: a FIFO would be waited for.
fn read_result(path: &Path) -> Result<String, Failure> {
    let bytes = read_whole(&RealFileSystem, path, RESULT_BYTES_MAX).map_err(|error| match error.kind() {
        _ if is_odd_file(&error) => Failure::usage(format!("{}: {error}", path.display())),
        std::io::ErrorKind::InvalidData => Failure::usage(error.to_string()),
        _ => Failure::io(path.display(), &error),
    })?;
    String::from_utf8(bytes).map_err(|_| Failure::usage(format!("{}: it is not UTF-8", path.display())))
}

/// The file itself, or the result files of a directory, by name.
fn files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let failed = |error: std::io::Error| Failure::io(path.display(), &error);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        if file.extension().is_some_and(|extension| extension == "json") {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// The outcome of a run, in a line.
pub(super) fn line_of(document: &Value) -> String {
    let ours = &document[OURS];
    let totals = &ours["totals"];
    let mut parts = vec![
        search(&ours["search"]),
        rate(totals, "publish", "published"),
        rate(totals, "consume", "read"),
        backlog(&ours["backlog"]),
        disk_full(&ours["diskFull"]),
        latency(ours, "publish", "publish"),
        latency(ours, "endToEnd", "end to end"),
        latency(ours, "poll", "poll"),
        format!("durability {}", durability(&ours["durability"])),
    ];
    parts.retain(|part| !part.is_empty());
    let workload = document["workload"].as_str().unwrap_or_default();
    format!("{workload} on {}: {}", ours["server"].as_str().unwrap_or_default(), parts.join("; "))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

fn rate(totals: &Value, key: &str, word: &str) -> String {
    let records = number(&totals[format!("{key}Rate")]);
    let bytes = number(&totals[format!("{key}BytesRate")]);
    if records <= 0.0 {
        return String::new();
    }
    let share = shares(&totals[format!("{key}ToLoopback")], &totals[format!("{key}ToUnpacedLoopback")]);
    format!("{records:.0} rec/s ({:.1} MB/s{share}) {word}", bytes / 1e6)
}

/// The rates after it are means of all that were tried, as a note says.
fn search(found: &Value) -> String {
    let Some(kept_up) = found["keptUp"].as_f64() else { return String::new() };
    let seconds = number(&found["periodS"]);
    let end = match found["refused"].as_f64() {
        Some(refused) => format!("{refused:.0} was not"),
        None => "none above it was tried for as long".to_owned(),
    };
    format!("{kept_up:.0} rec/s kept up for {seconds} s, {end}")
}

/// The shares of the loopback interface's rate, as any program finds that, and without pacing.
fn shares(paced: &Value, unpaced: &Value) -> String {
    let share = |share: &Value, words: &str| {
        // Less is a trace, which says nothing of a limit.
        let told = share.as_f64().filter(|share| *share >= 0.01);
        told.map_or_else(String::new, |share| format!(", {share:.3} of {words}"))
    };
    share(paced, "loopback TCP") + &share(unpaced, "it without pacing")
}

/// The rates before it are of the whole measurement, in which the backlog was written, too.
fn backlog(backlog: &Value) -> String {
    let (records, seconds) = (number(&backlog["drainedRecords"]), number(&backlog["drainS"]));
    if seconds <= 0.0 {
        return String::new();
    }
    let mb_per_s = number(&backlog["drainedBytes"]) / 1e6 / seconds;
    let share = shares(&backlog["toLoopback"], &backlog["toUnpacedLoopback"]);
    let meanwhile = match latency(backlog, "publishMeanwhile", "publish") {
        none if none.is_empty() => none,
        told => format!(", meanwhile {told}"),
    };
    format!(
        "backlog of {records:.0} read in {seconds:.2} s ({:.0} rec/s, {mb_per_s:.1} MB/s{share}){meanwhile}",
        records / seconds
    )
}

fn disk_full(full: &Value) -> String {
    match full["firstAckS"].as_f64() {
        _ if !full.is_object() => String::new(),
        Some(after) => format!("first ack {after:.2} s after the disk had room again"),
        None => "no ack after the disk had room again".to_owned(),
    }
}

fn latency(ours: &Value, key: &str, name: &str) -> String {
    let latency = &ours[key];
    if !latency.is_object() {
        return String::new();
    }
    let ms = |key: &str| number(&latency[key]) / 1000.0;
    let (p50, p99, p999, max) = (ms("p50_us"), ms("p99_us"), ms("p999_us"), ms("max_us"));
    format!("{name} p50 {p50:.2}, p99 {p99:.2}, p99.9 {p999:.2}, max {max:.2} ms")
}

fn durability(durability: &Value) -> String {
    match (durability["reached"].as_str(), durability["acked_when_synced"].as_bool()) {
        (Some(level), _) => format!("level {level}"),
        (None, Some(true)) => "synced".to_owned(),
        (None, Some(false)) => "page cache".to_owned(),
        (None, None) => "not known".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_backlog_is_told_by_itself_and_so_is_a_full_disk() {
        let drained = json!({"drainedRecords": 2000, "drainS": 0.5, "drainedBytes": 5_000_000});
        assert_eq!(backlog(&drained), "backlog of 2000 read in 0.50 s (4000 rec/s, 10.0 MB/s)");
        let beside = json!({
            "drainedRecords": 2000, "drainS": 0.5, "drainedBytes": 5_000_000, "toLoopback": 0.25, "toUnpacedLoopback": 0.125,
            "publishMeanwhile": {"p50_us": 1500, "p99_us": 20_000, "p999_us": 30_000, "max_us": 40_000},
        });
        let expected = "backlog of 2000 read in 0.50 s (4000 rec/s, 10.0 MB/s, 0.250 of loopback TCP, 0.125 of it without pacing), \
meanwhile publish p50 1.50, p99 20.00, p99.9 30.00, max 40.00 ms";
        assert_eq!(backlog(&beside), expected);
        assert_eq!(disk_full(&json!({"firstAckS": 0.254})), "first ack 0.25 s after the disk had room again");
        assert_eq!(disk_full(&json!({"fullAtS": 1.0})), "no ack after the disk had room again");
        assert_eq!((backlog(&Value::Null), disk_full(&Value::Null)), (String::new(), String::new()));
    }

    #[test]
    fn a_fifo_among_results_is_refused_by_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let fifo = dir.path().join("fifo.json");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("run").success());
        for results in [fifo.as_path(), dir.path()] {
            let args = ReportArgs {
                results: vec![results.to_owned()],
                output: dir.path().join("page.html"),
                title: String::new(),
            };
            let refused = run(&args).expect_err("no file");
            assert_eq!(refused.exit, Exit::Usage);
            assert!(refused.message().contains("fifo.json: it is a FIFO"), "{refused}");
        }
    }

    #[test]
    fn a_search_is_told_with_where_it_ended() {
        let found = json!({"keptUp": 40_000.4, "refused": 80_000.0, "periodS": 3.0});
        assert_eq!(search(&found), "40000 rec/s kept up for 3 s, 80000 was not");
        let unsettled = json!({"keptUp": 40_000.4, "periodS": 3.0});
        assert_eq!(search(&unsettled), "40000 rec/s kept up for 3 s, none above it was tried for as long");
        assert_eq!(search(&Value::Null), "");
    }

    #[test]
    fn a_run_s_line_leaves_out_what_it_did_not_do() {
        let document = json!({"workload": "w", OURS: {
            "server": "s",
            "totals": {"publishRate": 1000.4, "publishBytesRate": 2.5e6, "publishToLoopback": 0.25, "publishToUnpacedLoopback": 0.125, "consumeRate": 0.0},
            "publish": {"p50_us": 1500, "p99_us": 2000, "p999_us": 3000, "max_us": 4000},
            "endToEnd": null,
            "durability": {"reached": "4", "acked_when_synced": false},
        }});
        let expected = "w on s: 1000 rec/s (2.5 MB/s, 0.250 of loopback TCP, 0.125 of it without pacing) published; publish p50 1.50, p99 2.00, p99.9 3.00, max 4.00 ms; \
durability level 4";
        assert_eq!(line_of(&document), expected);
        let mut paced = document;
        paced[OURS]["totals"]["publishToLoopback"] = 0.0004.into();
        paced[OURS]["totals"]["publishToUnpacedLoopback"] = 0.0001.into();
        assert!(line_of(&paced).contains(" (2.5 MB/s) published"), "a trace of a limit is not told");
        let reading = json!({"workload": "w", OURS: {"server": "s", "totals": {"consumeRate": 500.0, "consumeBytesRate": 3e5}}});
        assert!(
            line_of(&reading).starts_with("w on s: 500 rec/s (0.3 MB/s) read; "),
            "{}",
            line_of(&reading)
        );
    }
}
