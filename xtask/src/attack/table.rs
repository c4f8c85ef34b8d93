//! Results of a run's attacks: the tally from which an interrupted run continues, and the table at the end.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::judge::{Samples, Witness, ms};
use super::run::Outcome;

/// One attack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) name: String,
    /// Its time, with all preparations and all tries.
    seconds: f64,
    /// Figures of the honest clients in milliseconds, by kind; empty if the attack was not completed.
    honest: Vec<Honest>,
    peak_mib: u64,
    budget_mib: u64,
    stop_ms: u64,
    pub(super) faults: Vec<String>,
}

/// Figures of one honest client, in milliseconds for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Honest {
    p99: String,
    allowed: String,
    control: String,
    slowest: String,
    after: String,
}

impl Honest {
    fn of(witness: &Witness) -> Self {
        let slowest = |samples: &Samples| ms(samples.slowest());
        Self {
            p99: ms(witness.attack.p99()),
            allowed: ms(witness.p99_allowed()),
            control: ms(witness.control.p99()),
            slowest: slowest(&witness.attack),
            after: slowest(&witness.after),
        }
    }
}

impl Row {
    /// The outcome of an attack, or the reason why it was not completed.
    pub(super) fn new(name: &str, took: Duration, outcome: &anyhow::Result<Outcome>) -> Self {
        let (name, seconds) = (name.to_owned(), took.as_secs_f64().round());
        match outcome {
            Ok(outcome) => Self {
                name,
                seconds,
                honest: outcome.witnesses.iter().map(Honest::of).collect(),
                peak_mib: outcome.peak_bytes >> 20,
                budget_mib: outcome.budget_bytes >> 20,
                stop_ms: u64::try_from(outcome.stop.as_millis()).unwrap_or(u64::MAX),
                faults: outcome.faults.clone(),
            },
            Err(error) => Self {
                name,
                seconds,
                honest: Vec::new(),
                peak_mib: 0,
                budget_mib: 0,
                stop_ms: 0,
                faults: vec![format!("{error:#}")],
            },
        }
    }

    pub(super) fn is_borne(&self) -> bool {
        self.faults.is_empty()
    }

    fn line(&self) -> String {
        let all = |of: fn(&Honest) -> &str| self.honest.iter().map(of).collect::<Vec<_>>().join(" / ");
        let verdict = if self.is_borne() {
            "borne".to_owned()
        } else {
            format!("NOT BORNE: {}", first_lines(&self.faults))
        };
        format!(
            "| {:<32} | {:>4} | {:>10} | {:>10} | {:>10} | {:>10} | {:>10} | {:>4} of {:>4} | {:>7} | {verdict} |",
            self.name,
            self.seconds,
            all(|honest| &honest.p99),
            all(|honest| &honest.allowed),
            all(|honest| &honest.control),
            all(|honest| &honest.slowest),
            all(|honest| &honest.after),
            self.peak_mib,
            self.budget_mib,
            self.stop_ms,
        )
    }
}

/// Faults without the log that may follow one.
fn first_lines(faults: &[String]) -> String {
    faults.iter().filter_map(|fault| fault.lines().next()).collect::<Vec<_>>().join("; ")
}

/// The head of the table: times of the honest clients, then the server's memory and stop.
const HEAD: &str = "\
| attack                           |    s |     p99 ms | allowed ms | control ms | slowest ms |   after ms | MiB          | stop ms | |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---|";

/// All rows in one table.
pub(super) fn table(rows: &[Row]) -> String {
    rows.iter().fold(HEAD.to_owned(), |table, row| table + "\n" + &row.line())
}

/// The rows of a tally that have passed; the others are made again.
pub(super) fn passed(tally: Option<&Path>) -> anyhow::Result<Vec<Row>> {
    let Some(path) = tally.filter(|path| path.exists()) else { return Ok(Vec::new()) };
    let parse = |line: &str| -> anyhow::Result<Row> {
        serde_json::from_str(line).with_context(|| format!("not a line of a tally: {line}"))
    };
    let rows = fs::read_to_string(path)?.lines().map(parse).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(rows.into_iter().filter(Row::is_borne).collect())
}

/// Adds a row to the tally.
pub(super) fn note(tally: Option<&Path>, row: &Row) -> anyhow::Result<()> {
    let Some(path) = tally else { return Ok(()) };
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    Ok(writeln!(file, "{}", serde_json::to_string(row)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, faults: &[&str]) -> Row {
        let time = |text: &str| text.to_owned();
        let honest = Honest {
            p99: time("4.2"),
            allowed: time("6.0"),
            control: time("1.0"),
            slowest: time("9.1"),
            after: time("1.1"),
        };
        let faults = faults.iter().map(|fault| (*fault).to_owned()).collect();
        let (peak_mib, budget_mib, stop_ms) = (80, 700, 12);
        Row {
            name: name.to_owned(),
            seconds: 93.0,
            honest: vec![honest; 2],
            peak_mib,
            budget_mib,
            stop_ms,
            faults,
        }
    }

    #[test]
    fn tally_returns_only_rows_that_have_passed() {
        let path = std::env::temp_dir().join(format!("riverrun-attack-tally-{}", std::process::id()));
        let (borne, bad) = (row("lists from others", &[]), row("unread from own", &["late"]));
        for row in [&bad, &borne] {
            note(Some(&path), row).unwrap();
        }
        let rows = passed(Some(&path)).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(rows, [borne]);
        assert_eq!(passed(Some(&path)).unwrap(), []);
    }

    #[test]
    fn incomplete_attack_is_a_row_with_its_reason() {
        let failed =
            Row::new("lists from own", Duration::from_secs(3), &Err(anyhow::anyhow!("it has ended")));
        assert!(!failed.is_borne());
        let table = table(&[row("unread from own", &[]), failed]);
        let [_, _, borne, bad] = table.lines().collect::<Vec<_>>()[..] else { panic!("{table}") };
        assert!(borne.contains("4.2 / 4.2") && borne.ends_with("| borne |"), "{borne}");
        assert!(bad.ends_with("| NOT BORNE: it has ended |"), "{bad}");
    }
}
