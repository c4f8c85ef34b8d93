//! The demo's output, while it runs and in the end.
//!
//! Each number stands beside the durability level that it was reached with: a rate says little without it. So does the
//! profile of the build, of which all but one are made to be compiled soon.

use std::path::PathBuf;
use std::time::Duration;

use riverrun_measure::histogram::Latencies;
use riverrun_measure::text::number::{bytes, count, counted, duration, per_second};
use riverrun_types::DurabilityLevel;
use serde::Serialize;

use super::checks::{Check, Seen};
use super::sending::{PACED_ROWS_PER_SECOND, Sent};
use super::{GROUP, MEMBERS, TOPIC};
use crate::exit::{Exit, Failure};
use crate::text::output::{has_colours, print_json, print_text};

/// The profile of `Cargo.toml` that this program was built in.
const PROFILE: &str = env!("RIVERRUN_PROFILE");
/// The one that is shipped, and that all published figures are made with.
const MEASURED_PROFILE: &str = "dist";

const PERCENTILES: [(&str, f64); 4] = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9)];

/// The facts known before anything is sent.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) bootstrap: String,
    pub(super) started_in: Duration,
    pub(super) durability: DurabilityLevel,
    /// The data directory, if it stays.
    pub(super) kept: Option<PathBuf>,
    pub(super) partitions: i32,
}

/// Records in a time.
#[derive(Clone, Copy, Debug, Serialize)]
struct Rate {
    records: usize,
    bytes: u64,
    seconds: f64,
    records_per_second: u64,
    bytes_per_second: u64,
}

impl Rate {
    fn new(records: usize, bytes: u64, time: Duration) -> Self {
        Self {
            records,
            bytes,
            seconds: time.as_secs_f64(),
            records_per_second: per_second(records as u64, time),
            bytes_per_second: per_second(bytes, time),
        }
    }
}

/// Latencies in microseconds.
#[derive(Clone, Debug, Serialize)]
struct Latency {
    records: u64,
    p50_us: u64,
    p90_us: u64,
    p99_us: u64,
    p99_9_us: u64,
    max_us: u64,
}

impl Latency {
    /// The percentiles of these nanoseconds; none of nothing.
    fn new(latencies_ns: impl Iterator<Item = u64>) -> Option<Self> {
        let mut latencies = Latencies::new();
        for latency_ns in latencies_ns {
            latencies.record_us(latency_ns.div_ceil(1000));
        }
        let [p50_us, p90_us, p99_us, p99_9_us] =
            PERCENTILES.map(|(_, percent)| latencies.percentile_us(percent));
        let (records, max_us) = (latencies.count(), latencies.max_us());
        (records > 0).then_some(Self { records, p50_us, p90_us, p99_us, p99_9_us, max_us })
    }

    fn cells(&self) -> String {
        let all = [self.p50_us, self.p90_us, self.p99_us, self.p99_9_us, self.max_us];
        row(all.iter().map(|us| duration(Duration::from_micros(*us))))
    }
}

/// Cells of equal width.
fn row(cells: impl Iterator<Item = String>) -> String {
    cells.fold(String::new(), |row, cell| row + &format!("{cell:>10}"))
}

/// All numbers, as JSON has them.
#[derive(Clone, Debug, Default, Serialize)]
struct Numbers {
    profile: &'static str,
    durability: u8,
    survives: &'static str,
    start_ms: f64,
    partitions: i32,
    group_members: usize,
    member_records: Vec<usize>,
    produced: Option<Rate>,
    consumed: Option<Rate>,
    paced_rows_per_second: u32,
    ack_latency: Option<Latency>,
    end_to_end_latency: Option<Latency>,
    checks: Vec<Check>,
    data: Option<String>,
}

/// Collects and prints.
pub(super) struct Report {
    facts: Facts,
    numbers: Numbers,
    json: bool,
    style: Style,
}

/// The line that says in which profile the demo was built, and whether its rates are those of a build that figures are made with.
fn build(profile: &str) -> String {
    if profile == MEASURED_PROFILE {
        return format!("profile {profile}, as it is shipped");
    }
    format!(
        "profile {profile}, quick to compile: the rates and latencies below are not those of profile {MEASURED_PROFILE}, \
         which is shipped and measured"
    )
}

/// Terminal attributes, or nothing.
#[derive(Clone, Copy)]
struct Style {
    has_colours: bool,
}

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        if self.has_colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }
}

impl Report {
    pub(super) fn begin(json: bool, facts: Facts) -> Result<Self, Failure> {
        let numbers = Numbers {
            profile: PROFILE,
            durability: facts.durability.number(),
            survives: facts.durability.survives(),
            start_ms: facts.started_in.as_secs_f64() * 1e3,
            partitions: facts.partitions,
            group_members: MEMBERS,
            paced_rows_per_second: PACED_ROWS_PER_SECOND,
            data: facts.kept.as_ref().map(|path| path.to_string_lossy().into_owned()),
            ..Numbers::default()
        };
        let report = Self { facts, numbers, json, style: Style { has_colours: has_colours() } };
        report.print(&report.head())?;
        Ok(report)
    }

    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    fn print(&self, text: &str) -> Result<(), Failure> {
        if self.json { Ok(()) } else { print_text(text) }
    }

    fn head(&self) -> String {
        let facts = &self.facts;
        let data = match &facts.kept {
            Some(path) => format!("{}, and stays there", path.display()),
            None => "a temporary directory, removed at the end".to_owned(),
        };
        let title = self.style.bold("riverrun demo");
        let line = |name: &str, text: &str| format!("  {}{text}\n", self.style.dim(&format!("{name:<12}")));
        [
            format!(
                "\n  {title}  the flights that left New York in 2013, through Kafka's protocol over TCP\n\n"
            ),
            line(
                "server",
                &format!("{}, in this process, ready in {}", facts.bootstrap, duration(facts.started_in)),
            ),
            line("build", &build(PROFILE)),
            line("data", &data),
            line(
                "durability",
                &format!("level {}: acked records survive {}", facts.durability, facts.durability.survives()),
            ),
            line("topic", &format!("{TOPIC}, {}, keyed by carrier", counted(facts.partitions, "partition"))),
            line("group", &format!("{GROUP}, {MEMBERS} consumers, reading while we write")),
            "\n".to_owned(),
        ]
        .concat()
    }

    /// After the fast part.
    pub(super) fn sent_fast(&mut self, sent: &Sent) -> Result<(), Failure> {
        let rate = Rate::new(sent.fast_rows, sent.fast_bytes, sent.fast_time);
        self.numbers.produced = Some(rate);
        let title = self.style.bold("As fast as it goes");
        let size = format!("{} rows, {}", count(sent.fast_rows as u64), bytes(sent.fast_bytes));
        self.print(&format!("  {title}  {size}\n{}", self.rate_line("produced", rate)))
    }

    /// After everything has arrived.
    pub(super) fn received(&mut self, sent: &Sent, seen: &[Seen]) -> Result<(), Failure> {
        let last_ns = seen.iter().map(|seen| seen.last_fast_ns).max().unwrap_or(0);
        let time = Duration::from_nanos(last_ns.saturating_sub(sent.fast_begun_ns));
        let rate = Rate::new(sent.fast_rows, sent.fast_bytes, time);
        self.numbers.consumed = Some(rate);
        self.numbers.member_records = seen.iter().map(|seen| seen.arrivals.len()).collect();
        self.numbers.ack_latency = Latency::new(sent.latencies_ns.iter().copied());
        self.numbers.end_to_end_latency =
            Latency::new(seen.iter().flat_map(|seen| seen.latencies_ns.iter().copied()));
        let shares: Vec<_> = seen.iter().map(|seen| count(seen.arrivals.len() as u64)).collect();
        let shares = format!(
            "  {}\n",
            self.style.dim(&format!("the three consumers read {} rows", shares.join(", ")))
        );
        self.print(&(self.rate_line("consumed", rate) + &shares + "\n" + &self.latencies()))
    }

    fn rate_line(&self, name: &str, rate: Rate) -> String {
        let rows = format!("{} rows/s", count(rate.records_per_second));
        let size = format!("{}/s", bytes(rate.bytes_per_second));
        let time = duration(Duration::from_secs_f64(rate.seconds));
        format!("  {name:<12}{rows:>17}{size:>14}    {time:>8}    {}\n", self.level())
    }

    fn level(&self) -> String {
        self.style.dim(&format!("durability {}", self.facts.durability))
    }

    fn latencies(&self) -> String {
        let (Some(ack), Some(end)) = (&self.numbers.ack_latency, &self.numbers.end_to_end_latency) else {
            return String::new();
        };
        let pace = format!("At {} rows/s", count(u64::from(PACED_ROWS_PER_SECOND)));
        let names = row(PERCENTILES.iter().map(|(name, _)| (*name).to_owned()).chain(["max".to_owned()]));
        let size = format!("{} rows, latency from the time each was due", count(end.records));
        format!(
            "  {}  {size}\n  {:<12}{}\n  {:<12}{}    {}\n  {:<12}{}    {}\n\n",
            self.style.bold(&pace),
            "",
            self.style.dim(&names),
            "to ack",
            ack.cells(),
            self.level(),
            "to consumer",
            end.cells(),
            self.level(),
        )
    }

    /// The checks, one line each.
    pub(super) fn checks(&mut self, checks: Vec<Check>) -> Result<(), Failure> {
        let mut text = format!("  {}\n", self.style.bold("Checks"));
        for check in &checks {
            let mark =
                if check.ok { self.style.paint("32", "ok  ") } else { self.style.paint("31;1", "FAIL") };
            let found = check.found.as_ref().map(|found| format!(": {found}")).unwrap_or_default();
            text.push_str(&["  ", &mark, "  ", &check.statement, &found, "\n"].concat());
        }
        self.numbers.checks = checks;
        self.print(&(text + "\n"))
    }

    /// Advice on the next steps; fails if a check did.
    pub(super) fn end(&self) -> Result<(), Failure> {
        if self.json {
            print_json(&self.numbers)?;
        }
        self.print(&self.next_steps())?;
        let failed = self.numbers.checks.iter().filter(|check| !check.ok).count();
        match failed {
            0 => Ok(()),
            _ => Err(Failure::new(Exit::CheckFailed, counted(failed, "check") + " failed")),
        }
    }

    fn next_steps(&self) -> String {
        // As it was started, so that the lines can be used as they stand.
        let program = std::env::args().next().unwrap_or_else(|| "riverrun".to_owned());
        let steps = match &self.facts.kept {
            None => vec![
                (format!("{program} serve"), "a server of your own, on 127.0.0.1:9092"),
                (
                    format!("echo me:hello | {program} produce greetings --key-separator :"),
                    "send it a record",
                ),
                (format!("{program} consume greetings --format key-value"), "read the record"),
                (format!("{program} --help"), "everything else; README.md says what this is"),
            ],
            Some(path) => vec![
                (format!("{program} log verify {}", path.display()), "check every byte that was written"),
                (format!("{program} serve --data {}", path.display()), "serve this data again"),
                (
                    format!("{program} consume {TOPIC} --max 5 --format json"),
                    "read it, from another terminal",
                ),
                (format!("{program} group describe {GROUP}"), "how far the group has read"),
            ],
        };
        let mut text = format!("  {}\n", self.style.bold("Where to look next"));
        for (command, what) in steps {
            text.push_str(&["  ", &command, "\n      ", &self.style.dim(what), "\n"].concat());
        }
        text + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_shipped_profile_claims_its_rates() {
        assert!(!build(MEASURED_PROFILE).contains("not those"));
        for other in ["dev", "release", "demo", "unknown"] {
            let text = build(other);
            assert!(text.contains(other) && text.contains("not those of profile dist"), "{text}");
        }
    }

    #[test]
    fn the_tests_know_their_own_profile() {
        assert_ne!(PROFILE, "unknown");
        assert_eq!(PROFILE == "dev", cfg!(debug_assertions));
    }
}
