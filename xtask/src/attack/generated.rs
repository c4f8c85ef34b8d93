//! The generated part: every list of every request that the server offers, long, on few and many connections, read and
//! unread.
//!
//! Owns the grid, the run over one server, and the table in `docs/attacks.md` that is made of it. A run that is interrupted
//! goes on where it was, with the same file of figures.

mod shape;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use riverrun_protocol::{ApiVersionsRequest, ErrorCode};

use super::attacker::{Armed, From, Order, Shot, Tally, Target};
use super::honest::{Honest, Shape};
use super::judge::{Samples, ms};
use super::rig::Rig;
use super::rows::Ground;
use super::run::Field;
use super::wire::Conn;
use crate::gen_protocol::schema::SchemaFile;
use crate::gen_protocol::{load_schema, request_of};
use shape::{Case, Filling};

/// What stands before the name of a generated attack.
const PREFIX: &str = "generated";

/// Elements of a list: about a bound, well beyond it, and as many as a request holds.
const COUNTS: [usize; 3] = [1_000, 100_000, 990_000];

/// Connections at once.
const CONNECTIONS: [usize; 3] = [1, 4, 20];

/// The time that is waited for a server to come to rest after an attack.
const CALM_MAX: Duration = Duration::from_secs(30);

/// The server is started anew after so many lists, so that what one leaves behind does not fall to all that follow.
const LISTS_PER_SERVER: usize = 8;

/// A pair of the honest client that takes longer is marked.
const SLOWEST_MAX: Duration = Duration::from_millis(250);

/// The receive buffer of who does not read.
const NARROW: usize = 4096;

/// The page with the table.
const PAGE: &str = "docs/attacks.md";

/// Whether answers are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Reading {
    Read,
    Unread,
}

impl Reading {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Unread => "unread",
        }
    }
}

/// One attack of the grid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    case: Case,
    connections: usize,
    reading: Reading,
}

impl Cell {
    fn name(&self) -> String {
        format!("{PREFIX}/{}/{}/{}", self.case, self.connections, self.reading.name())
    }

    fn parse(name: &str) -> anyhow::Result<Self> {
        let [PREFIX, case, connections, reading] = name.split('/').collect::<Vec<_>>()[..] else {
            bail!("no attack is named {name}");
        };
        let reading = Reading::from_str(reading, false).map_err(anyhow::Error::msg)?;
        Ok(Self { case: case.parse()?, connections: connections.parse()?, reading })
    }
}

/// What one attack came to.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    /// The time from a request to its answer; none if nobody waited, or nothing was answered.
    answer_ms: Option<f64>,
    /// Resident bytes at most, above those before.
    memory_mib: u64,
    p99_ms: f64,
    slowest_ms: f64,
}

/// What the attacker does, as its name says.
pub(super) fn act(name: &str, target: &Target) -> anyhow::Result<Tally> {
    let cell = Cell::parse(name)?;
    let schema = load_schema()?;
    let is_asked = |file: &&SchemaFile| file.api.as_ref().is_some_and(|api| api.name == cell.case.api);
    let file = schema.iter().find(is_asked).with_context(|| format!("no request {}", cell.case.api))?;
    let key = file.api.as_ref().map(|api| api.key).unwrap_or_default();
    let message = request_of(file).context("an api has a request")?;
    let frame = shape::frame(message, key, &cell.case)?;
    target.storm(cell.connections, |worker, kept: &mut Option<Conn>| {
        if cell.reading == Reading::Unread {
            let mut conn = worker.connect_narrow(NARROW)?;
            conn.send(&frame)?;
            worker.pause(Duration::from_secs(1));
            return Ok(Shot::Sent);
        }
        let mut conn = match kept.take() {
            Some(conn) => conn,
            None => worker.connect()?,
        };
        conn.send(&frame)?;
        conn.skip_answer()?;
        *kept = Some(conn);
        Ok(Shot::Answered)
    })
}

/// What a run of the whole grid needs.
pub(super) struct Plan<'a> {
    /// Requests whose name contains one of these; all when empty.
    pub(super) only: &'a [String],
    /// Seconds of each attack.
    pub(super) seconds: f64,
    /// Figures that are there already and those that are added.
    pub(super) figures: PathBuf,
    pub(super) checkout: PathBuf,
}

/// Runs what is not there yet, and writes the page.
pub(super) fn run(field: Field<'_>, plan: &Plan<'_>) -> anyhow::Result<()> {
    let mut figures = read_figures(&plan.figures)?;
    let lists = lists(field, plan.only)?;
    let begun = Instant::now();
    for lists in lists.chunks(LISTS_PER_SERVER) {
        let cells: Vec<_> = lists.iter().flat_map(cells).filter(|cell| !figures.contains_key(cell)).collect();
        if cells.is_empty() {
            continue;
        }
        run_cells(field, &cells, plan.seconds, |cell, seen| {
            println!("{:<90} p99 {:>7.1} slowest {:>7.1} ms", cell.name(), seen.p99_ms, seen.slowest_ms);
            note(&plan.figures, cell, seen)?;
            figures.insert(cell.clone(), seen);
            Ok(())
        })?;
    }
    let page = page(&figures)?;
    fs::write(plan.checkout.join(PAGE), &page)?;
    let slow = figures.values().filter(|seen| is_slow(seen)).count();
    let all = figures.len();
    println!("{all} generated attacks, {slow} of them not borne; {:.0} s", begun.elapsed().as_secs_f64());
    ensure!(slow == 0, "{slow} of {all} generated attacks were not borne: see {PAGE}");
    Ok(())
}

/// A list of a request, without how long it is and what fills it.
struct List {
    api: String,
    version: i16,
    path: String,
}

/// The lists of every request that the server offers, at the versions that matter.
fn lists(field: Field<'_>, only: &[String]) -> anyhow::Result<Vec<List>> {
    let rig = Rig::start(field.place, field.toolbox, Ground::default())?;
    let offered = offered(&mut rig.connect()?)?;
    drop(rig);
    let mut lists = Vec::new();
    for file in load_schema()? {
        let (Some(api), Some(message)) = (&file.api, request_of(&file)) else { continue };
        let is_meant = only.is_empty() || only.iter().any(|name| api.name.contains(name));
        let Some(newest) = offered.get(&api.key).copied().filter(|_| is_meant) else { continue };
        let newest = newest.min(message.root().versions.max);
        for version in shape::versions(message, newest) {
            let list = |path| List { api: api.name.clone(), version, path };
            lists.extend(shape::lists(message, version).into_iter().map(list));
        }
    }
    Ok(lists)
}

/// The newest version of each request that the server offers.
fn offered(conn: &mut Conn) -> anyhow::Result<BTreeMap<i16, i16>> {
    let mut buffer = Vec::new();
    let answer = conn.call(&ApiVersionsRequest::default(), 0, &mut buffer)?;
    ensure!(answer.error_code == ErrorCode::NONE.0, "the server does not say what it offers");
    Ok(answer.api_keys.iter().map(|api| (api.api_key, api.max_version)).collect())
}

fn cells(list: &List) -> Vec<Cell> {
    let mut cells = Vec::new();
    for filling in Filling::ALL {
        for count in COUNTS {
            for connections in CONNECTIONS {
                for reading in [Reading::Read, Reading::Unread] {
                    let List { api, version, path } = list;
                    let (api, path) = (api.clone(), path.clone());
                    let case = Case { api, version: *version, path, filling, count };
                    cells.push(Cell { case, connections, reading });
                }
            }
        }
    }
    cells
}

/// Attacks one server with several cells.
fn run_cells(
    field: Field<'_>,
    cells: &[Cell],
    seconds: f64,
    mut show: impl FnMut(&Cell, Figures) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let rig = Rig::start(field.place, field.toolbox, Ground::default())?;
    let mut honest = Honest::start(Shape::Small, rig.port())?;
    for cell in cells {
        let seen = run_cell(&rig, &mut honest, cell, seconds).with_context(|| cell.name())?;
        show(cell, seen)?;
        calm(&mut honest);
    }
    Ok(())
}

fn run_cell(rig: &Rig<'_>, honest: &mut Honest, cell: &Cell, seconds: f64) -> anyhow::Result<Figures> {
    let name = cell.name();
    let order = Order { name: &name, ports: rig.ports(), seconds, from: From::Others };
    let armed = Armed::start(order)?;
    drop(honest.phase()?);
    let before = rig.resident_bytes()?;
    let mut most = before;
    let begun = Instant::now();
    let tally = armed.fire(|_| most = most.max(rig.resident_bytes().unwrap_or_default()))?;
    let elapsed_ms = begun.elapsed().as_secs_f64() * 1e3;
    let mut samples = Samples::default();
    samples.add(honest.phase()?);
    let answered = (tally.answered > 0).then(|| elapsed_ms * cell.connections as f64 / tally.answered as f64);
    Ok(Figures {
        answer_ms: answered,
        memory_mib: most.saturating_sub(before) >> 20,
        p99_ms: samples.p99().as_secs_f64() * 1e3,
        slowest_ms: samples.slowest().as_secs_f64() * 1e3,
    })
}

/// Waits until an honest client is served as always, so that one attack is not counted for another.
fn calm(honest: &mut Honest) {
    let deadline = Instant::now() + CALM_MAX;
    while Instant::now() < deadline {
        thread::sleep(Duration::from_millis(100));
        let Ok(seen) = honest.phase() else { return };
        let slowest = seen.pairs_us.iter().copied().max();
        if seen.failed == 0 && slowest.is_some_and(|us| Duration::from_micros(us) < SLOWEST_MAX) {
            return;
        }
    }
}

fn is_slow(seen: &Figures) -> bool {
    seen.slowest_ms > SLOWEST_MAX.as_secs_f64() * 1e3
}

/// One line for each cell: its name and its figures.
fn note(path: &Path, cell: &Cell, seen: Figures) -> anyhow::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    let Figures { answer_ms, memory_mib, p99_ms, slowest_ms } = seen;
    let answer_ms = answer_ms.unwrap_or(-1.0);
    Ok(writeln!(file, "{} {answer_ms:.1} {memory_mib} {p99_ms:.1} {slowest_ms:.1}", cell.name())?)
}

fn read_figures(path: &Path) -> anyhow::Result<BTreeMap<Cell, Figures>> {
    if !path.exists() {
        return Ok(BTreeMap::new());
    }
    let text = fs::read_to_string(path)?;
    text.lines().map(|line| read_line(line).with_context(|| line.to_owned())).collect()
}

fn read_line(line: &str) -> anyhow::Result<(Cell, Figures)> {
    let [name, answer_ms, memory_mib, p99_ms, slowest_ms] = line.split(' ').collect::<Vec<_>>()[..] else {
        bail!("not a line of figures");
    };
    let answer_ms: f64 = answer_ms.parse()?;
    let figures = Figures {
        answer_ms: (answer_ms >= 0.0).then_some(answer_ms),
        memory_mib: memory_mib.parse()?,
        p99_ms: p99_ms.parse()?,
        slowest_ms: slowest_ms.parse()?,
    };
    Ok((Cell::parse(name)?, figures))
}

/// The page: a row for each list, filling and count, over all connections.
fn page(figures: &BTreeMap<Cell, Figures>) -> anyhow::Result<String> {
    let mut rows: BTreeMap<&Case, Vec<(&Cell, &Figures)>> = BTreeMap::new();
    for (cell, seen) in figures {
        rows.entry(&cell.case).or_default().push((cell, seen));
    }
    let mut page = HEAD.to_owned();
    for (case, cells) in rows {
        let Case { api, version, path, filling, count } = case;
        write!(page, "| {api} v{version} | {path} | {} | {count} |", filling.name())?;
        let mut answers = cells.iter().filter(|(cell, _)| cell.connections == 1);
        let answer = answers.find_map(|(_, seen)| seen.answer_ms);
        write!(page, " {} |", answer.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.0}")))?;
        let memory = cells.iter().map(|(_, seen)| seen.memory_mib).max().unwrap_or_default();
        write!(page, " {memory} |")?;
        for reading in [Reading::Read, Reading::Unread] {
            let of = CONNECTIONS.map(|connections| {
                let seen =
                    cells.iter().find(|(cell, _)| (cell.connections, cell.reading) == (connections, reading));
                seen.map_or_else(|| "-".to_owned(), |(_, seen)| shown(seen))
            });
            write!(page, " {} |", of.join(" "))?;
        }
        page.push('\n');
    }
    Ok(page)
}

/// The honest p99, and the slowest pair where it is not borne.
fn shown(seen: &Figures) -> String {
    let of = |value: f64| ms(Duration::from_secs_f64(value / 1e3));
    if is_slow(seen) { format!("**{}**", of(seen.slowest_ms)) } else { of(seen.p99_ms) }
}

/// What stands above the table.
const HEAD: &str = "\
# Long lists in every request

Written by `cargo xtask attack --generated`, which makes each list of each request that the server offers from the schema of the
protocol: so many elements, all empty, all the same one that exists, each another one, or what nothing can be named. Each was
sent for half a second on 1, 4 and 20 connections from other addresses, by clients that read the answers and by clients that read nothing,
while an honest client produced and fetched a small record every 20 ms.

*answer* is the time in milliseconds from the request to the end of its answer on one connection (`-`: none came in time); *MiB* what the
server's resident memory grew by at most; the last two columns the honest client's 99th percentile in milliseconds with 1, 4 and 20
connections. A bold figure is its slowest pair, which took longer than the 250 ms that are borne. The attacks by hand are in
[long-runs.md](long-runs.md#attacks).

| request | list | elements | count | answer | MiB | honest, read | honest, unread |
|---|---|---|---:|---:|---:|---|---|
";

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(connections: usize, reading: Reading) -> Cell {
        let case = "Fetch:12:topics.partitions:same:1000".parse().unwrap();
        Cell { case, connections, reading }
    }

    fn figures(slowest_ms: f64) -> Figures {
        Figures { answer_ms: Some(3.0), memory_mib: 7, p99_ms: 2.0, slowest_ms }
    }

    #[test]
    fn a_line_of_figures_is_read_as_it_was_written() {
        let dir = std::env::temp_dir().join(format!("riverrun-attack-figures-{}", std::process::id()));
        let written = [(cell(4, Reading::Unread), figures(2.5)), (cell(1, Reading::Read), figures(300.0))];
        for (cell, seen) in &written {
            note(&dir, cell, *seen).unwrap();
        }
        let read = read_figures(&dir).unwrap();
        fs::remove_file(&dir).unwrap();
        assert_eq!(read, BTreeMap::from(written));
    }

    #[test]
    fn the_page_has_a_row_for_each_list_and_marks_what_is_not_borne() {
        let cells = [
            (cell(1, Reading::Read), figures(2.5)),
            (cell(4, Reading::Read), figures(300.0)),
            (cell(1, Reading::Unread), figures(2.5)),
        ];
        let page = page(&BTreeMap::from(cells)).unwrap();
        let row = "| Fetch v12 | topics.partitions | same | 1000 | 3 | 7 | 2.0 **300** - | 2.0 - - |\n";
        assert!(page.ends_with(row), "{page}");
    }
}
