//! Results of the generated attacks: the file that keeps them while a run lasts, and the page that is made from it.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::shape::Case;
use crate::attack::judge::{Witness, ms};

/// The page with the table.
pub(super) const PAGE: &str = "docs/attacks.md";

/// The figures of a row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    /// The time from a request to its answer on one connection; `None` if nothing was answered.
    pub(super) answer_ms: Option<f64>,
    /// The largest growth of the server's resident memory.
    pub(super) memory_mib: u64,
    /// The honest client's slowest pair by number of connections, with answers read and unread.
    pub(super) read_ms: Vec<f64>,
    pub(super) unread_ms: Vec<f64>,
    /// Its p99 over all of them, the p99 allowed, and the p99 of the control run.
    pub(super) p99_ms: f64,
    pub(super) allowed_ms: f64,
    pub(super) control_ms: f64,
}

impl Figures {
    /// Adds the honest client's figures of all tries.
    pub(super) fn judged(self, witness: &Witness) -> Self {
        let in_ms = |time: Duration| (time.as_secs_f64() * 1e4).round() / 10.0;
        Self {
            p99_ms: in_ms(witness.attack.p99()),
            allowed_ms: in_ms(witness.p99_allowed()),
            control_ms: in_ms(witness.control.p99()),
            ..self
        }
    }
}

/// A row of the grid, or a server that several rows have attacked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) name: String,
    /// `None` for a server, and for a row that could not be completed.
    pub(super) figures: Option<Figures>,
    /// Faults: limits that were not kept.
    pub(super) faults: Vec<String>,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.faults.is_empty() { "borne" } else { "NOT BORNE" };
        write!(f, "{verdict:<10} {:<76}", self.name)?;
        if let Some(seen) = &self.figures {
            let (p99, allowed, control) = (seen.p99_ms, seen.allowed_ms, seen.control_ms);
            write!(
                f,
                " p99 {p99:>6.1} of {allowed:>6.1} ms, control {control:>6.1}; {} MiB",
                seen.memory_mib
            )?;
        }
        let faults = self.faults.join("; ");
        if faults.is_empty() { Ok(()) } else { write!(f, "  {faults}") }
    }
}

/// Adds a line to the file.
pub(super) fn note(path: &Path, line: &Line) -> anyhow::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    Ok(writeln!(file, "{}", serde_json::to_string(line)?)?)
}

/// The newest line of each name.
pub(super) fn read(path: &Path) -> anyhow::Result<BTreeMap<String, Line>> {
    if !path.exists() {
        return Ok(BTreeMap::new());
    }
    let text = fs::read_to_string(path)?;
    let parse = |line: &str| -> anyhow::Result<(String, Line)> {
        let line: Line =
            serde_json::from_str(line).with_context(|| format!("not a line of figures: {line}"))?;
        Ok((line.name.clone(), line))
    };
    text.lines().map(parse).collect()
}

/// The page: a row for each list, count and filling, and the faults of whole servers.
pub(super) fn page(lines: &BTreeMap<String, Line>) -> String {
    let mut rows: Vec<(Case, &Line)> =
        lines.values().filter_map(|line| Some((line.name.parse().ok()?, line))).collect();
    rows.sort_by(|(one, _), (other, _)| one.cmp(other));
    let bad = lines.values().filter(|line| !line.faults.is_empty()).count();
    let mut page = HEAD.to_owned();
    // Cannot fail: a String takes every text.
    let _ = writeln!(page, "{} rows, {bad} of them not borne.\n\n{TABLE}", rows.len());
    for (case, line) in rows {
        let _ = writeln!(page, "{}", row(&case, line));
    }
    let servers = lines.values().filter(|line| line.name.parse::<Case>().is_err() && !line.faults.is_empty());
    for line in servers {
        let _ = write!(page, "\n**{}**: {}\n", line.name, line.faults.join("; "));
    }
    page
}

fn row(case: &Case, line: &Line) -> String {
    let Case { api, version, path, .. } = case;
    let fillings = if case.fillings.len() == 1 { case.fillings_name() } else { "all in turn".to_owned() };
    let verdict =
        if line.faults.is_empty() { "borne".to_owned() } else { format!("**{}**", line.faults.join("; ")) };
    let figures = match &line.figures {
        Some(seen) => {
            let Figures { answer_ms, memory_mib, p99_ms, control_ms, read_ms, unread_ms, .. } = seen;
            let answer = answer_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.0}"));
            let (p99, control) = (shown(*p99_ms), shown(*control_ms));
            format!("{answer} | {memory_mib} | {p99} | {control} | {} | {}", all(read_ms), all(unread_ms))
        }
        None => "- | - | - | - | - | -".to_owned(),
    };
    format!("| {api} v{version} | {path} | {} | {fillings} | {figures} | {verdict} |", case.counts_name())
}

fn shown(value_ms: f64) -> String {
    ms(Duration::from_secs_f64(value_ms.max(0.0) / 1e3))
}

fn all(values_ms: &[f64]) -> String {
    values_ms.iter().map(|value| shown(*value)).collect::<Vec<_>>().join(" ")
}

/// The text above the table.
const HEAD: &str = "\
# Long lists in every request

Written by `cargo xtask attack --generated`, which makes each list of each request that the server offers from the schema of
the protocol. It has as many elements as the server's table of bounds allows ([bounds.md](bounds.md)), all empty, all the same
one that exists, each another one, or what nothing can be named; as many as are worked on at once, all four in turn; and one
more than allowed and 990,000, which have to be refused. Each is sent without a pause on 1, 4 and 20 connections from other addresses, by
clients that read the answers and by clients that read nothing, while an honest client produces and fetches a small record
every 20 ms. In a control run after each row as much processor time is burnt for nothing.

*answer* is the time in milliseconds from the request to the end of its answer on one connection (`-`: none came in the time
of the attack), *MiB* what the server's resident memory grew by at most, *p99* the honest client's 99th percentile in
milliseconds over the row, *control* that of its control run, *read* and *unread* its slowest pair with 1, 4 and 20 connections. A row is borne
by the rules of [long-runs.md](long-runs.md#attacks), where the attacks by hand are, too.

";

const TABLE: &str = "\
| request | list | elements | filled | answer | MiB | p99 | control | read | unread | |
|---|---|---|---|---:|---:|---:|---:|---|---|---|";

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, faults: &[&str]) -> Line {
        let figures = Figures {
            answer_ms: Some(3.0),
            memory_mib: 7,
            read_ms: vec![2.0, 3.0, 40.0],
            unread_ms: vec![2.0, 2.5, 2.0],
            p99_ms: 31.0,
            allowed_ms: 7.5,
            control_ms: 2.5,
        };
        let faults = faults.iter().map(|fault| (*fault).to_owned()).collect();
        Line { name: name.to_owned(), figures: Some(figures), faults }
    }

    fn by_name(lines: impl IntoIterator<Item = Line>) -> BTreeMap<String, Line> {
        lines.into_iter().map(|line| (line.name.clone(), line)).collect()
    }

    const FETCH: &str = "Fetch:12:topics.partitions:same:250000";

    #[test]
    fn newer_of_two_lines_of_figures_counts() {
        let path = std::env::temp_dir().join(format!("riverrun-attack-figures-{}", std::process::id()));
        let other = line("Fetch:12:topics:same+empty:500", &[]);
        let written = [line(FETCH, &["late"]), other.clone(), line(FETCH, &[])];
        for line in &written {
            note(&path, line).unwrap();
        }
        let lines = read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(lines, by_name([line(FETCH, &[]), other]));
    }

    #[test]
    fn page_shows_each_row_and_its_faults() {
        let lost =
            Line { figures: None, ..line("Fetch:13:topics:same+empty:500", &["the server has ended"]) };
        let server = Line { figures: None, ..line("server A to B", &["a stop took 9.0 s"]) };
        let page = page(&by_name([line(FETCH, &[]), lost, server]));
        let row = "| Fetch v12 | topics.partitions | 250000 | same | 3 | 7 | 31 | 2.5 | 2.0 3.0 40 | 2.0 2.5 2.0 | borne |\n";
        assert!(page.contains(row), "{page}");
        let row =
            "| Fetch v13 | topics | 500 | all in turn | - | - | - | - | - | - | **the server has ended** |\n";
        assert!(page.contains(row), "{page}");
        assert!(page.ends_with("\n**server A to B**: a stop took 9.0 s\n"), "{page}");
        assert!(page.contains("2 rows, 2 of them not borne."), "{page}");
    }
}
