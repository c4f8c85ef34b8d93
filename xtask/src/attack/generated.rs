//! The generated part: every list of every request that the server offers, at its bound and beyond, on few and many
//! connections, read and unread.
//!
//! Owns the grid and the run. The bounds are those of the server's own table, as shown in `docs/bounds.md`. A row of
//! the grid that is not borne, or cannot even be run, is noted as such, and the run goes on. An interrupted run
//! continues where it was, with the same file of figures.

mod figures;
mod shape;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use riverrun_protocol::{ApiVersionsRequest, ErrorCode};

use super::attacker::{self, Armed, From, Order, Shot, Tally, Target};
use super::burn::{self, Effort};
use super::honest::{Seen, Shape};
use super::judge::Witness;
use super::rig::{Expected, Rig};
use super::rows::Ground;
use super::run::{self, Bout, Field, Fired};
use crate::gen_protocol::schema::SchemaFile;
use crate::gen_protocol::{load_schema, request_of};
use crate::wire::Conn;
use figures::{Figures, Line, PAGE};
use shape::{Case, Filling};

/// Prefix of the name of a generated attack.
const PREFIX: &str = "generated/";

/// The page that shows the server's table of bounds.
const BOUNDS_PAGE: &str = "docs/bounds.md";

/// Elements that the server works on at once, by the same page.
const SMALL: usize = 200;

/// Elements of a request far beyond every bound.
const FAR_BEYOND: usize = 990_000;

/// Numbers of connections.
const CONNECTIONS: [usize; 3] = [1, 4, 20];

/// Whether answers are read. Each combination with a number of connections is a storm of a row.
const READING: [Reading; 2] = [Reading::Read, Reading::Unread];

/// Pause between two storms; pairs within it count as after an attack.
const BETWEEN: Duration = Duration::from_millis(80);

/// Seconds of the control run of a row: enough for a p99 of 40 pairs.
const CONTROL_SECONDS: f64 = 0.8;

/// Additional time of a row, in which requests of some megabytes are made and a process is started.
const ROW_OVERHEAD_SECONDS: f64 = 0.4;

/// Most tries of a row that is not borne, since other users of the machine may have slowed the attack alone. The honest
/// pairs of all tries count.
const TRIES_MAX: u32 = 3;

/// Number of lists after which the server is started anew, so that the effects of one list do not reach all that
/// follow.
const LISTS_PER_SERVER: usize = 8;

/// Receive buffer of a connection that does not read.
const NARROW: usize = 4096;

/// Whether answers are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Read,
    Unread,
}

/// The attack of a name: a storm with each number of connections, read and unread.
pub(super) fn act(name: &str, target: &Target) -> anyhow::Result<()> {
    let case = name.strip_prefix(PREFIX).with_context(|| format!("no attack is named {name}"))?;
    let case: Case = case.parse()?;
    let schema = load_schema()?;
    let is_asked = |file: &&SchemaFile| file.api.as_ref().is_some_and(|api| api.name == case.api);
    let file = schema.iter().find(is_asked).with_context(|| format!("no request {}", case.api))?;
    let key = file.api.as_ref().map(|api| api.key).unwrap_or_default();
    let message = request_of(file).context("an api has a request")?;
    let frames = shape::frames(message, key, &case)?;
    for reading in READING {
        for connections in CONNECTIONS {
            attacker::tell(&storm(target, &frames, connections, reading)?)?;
        }
    }
    Ok(())
}

fn storm(target: &Target, frames: &[Vec<u8>], connections: usize, reading: Reading) -> anyhow::Result<Tally> {
    target.storm(connections, |worker, kept: &mut Option<Conn>| {
        let turn = usize::try_from(worker.shot)? + worker.index;
        let frame = &frames[turn % frames.len()];
        if reading == Reading::Unread {
            let mut conn = worker.connect_narrow(NARROW)?;
            conn.send(frame)?;
            worker.pause(Duration::from_secs(1));
            return Ok(Shot::Sent);
        }
        let mut conn = match kept.take() {
            Some(conn) => conn,
            None => worker.connect()?,
        };
        conn.send(frame)?;
        conn.skip_answer()?;
        *kept = Some(conn);
        Ok(Shot::Answered)
    })
}

/// Parameters of a run of the whole grid.
pub(super) struct Plan<'a> {
    /// Requests whose name contains one of these; all when empty.
    pub(super) only: &'a [String],
    /// Seconds of each storm.
    pub(super) seconds: f64,
    /// File with the figures so far, to which new ones are added.
    pub(super) figures: PathBuf,
    pub(super) checkout: PathBuf,
}

/// Runs the rows that have not been borne yet, and writes the page.
pub(super) fn run(field: Field<'_>, plan: &Plan<'_>) -> anyhow::Result<()> {
    let mut lines = figures::read(&plan.figures)?;
    let bounds = bounds(&fs::read_to_string(plan.checkout.join(BOUNDS_PAGE))?)?;
    let lists = lists(field, plan.only)?;
    let begun = Instant::now();
    let is_open = |case: &Case, lines: &BTreeMap<String, Line>| {
        lines.get(&case.to_string()).is_none_or(|line| !line.faults.is_empty())
    };
    let rows = lists.iter().map(|list| rows(list, &bounds)).collect::<anyhow::Result<Vec<_>>>()?;
    let open = rows.iter().flatten().filter(|case| is_open(case, &lines)).count();
    let seconds = open as f64 * row_seconds(plan.seconds);
    println!("{} lists, {open} rows to be made: about {:.0} min", lists.len(), seconds / 60.0);
    for rows in rows.chunks(LISTS_PER_SERVER) {
        let mut cases: Vec<_> = rows.iter().flatten().filter(|case| is_open(case, &lines)).cloned().collect();
        while !cases.is_empty() {
            run_server(field, plan, &bounds, &mut cases, |line| {
                figures::note(&plan.figures, &line)?;
                println!("{line}");
                lines.insert(line.name.clone(), line);
                Ok(())
            })?;
        }
    }
    fs::write(plan.checkout.join(PAGE), figures::page(&lines))?;
    let failed: Vec<_> = lines.values().filter(|line| !line.faults.is_empty()).collect();
    let (all, bad) = (lines.len(), failed.len());
    println!("\n{all} rows, {bad} of them not borne; {:.0} s", begun.elapsed().as_secs_f64());
    for line in &failed {
        println!("  {line}");
    }
    ensure!(bad == 0, "{bad} of {all} rows were not borne: see {PAGE}");
    Ok(())
}

/// About the time of a row that is borne at once.
fn row_seconds(seconds: f64) -> f64 {
    let storms = (CONNECTIONS.len() * READING.len()) as f64;
    storms * (seconds + 2.0 * BETWEEN.as_secs_f64()) + CONTROL_SECONDS + ROW_OVERHEAD_SECONDS
}

/// The most elements of each request, from the page that shows the server's table.
fn bounds(page: &str) -> anyhow::Result<BTreeMap<String, usize>> {
    let mut bounds = BTreeMap::new();
    for line in page.lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        if let [_, request, _, elements_max, _, _, _] = cells[..]
            && let Ok(elements_max) = elements_max.parse()
        {
            bounds.insert(request.to_owned(), elements_max);
        }
    }
    ensure!(!bounds.is_empty(), "{BOUNDS_PAGE} has no table");
    Ok(bounds)
}

/// A list of a request, without its length and filling.
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
    ensure!(!lists.is_empty(), "no request that is offered has such a name and a list");
    Ok(lists)
}

/// The newest version of each request that the server offers.
fn offered(conn: &mut Conn) -> anyhow::Result<BTreeMap<i16, i16>> {
    let mut buffer = Vec::new();
    let answer = conn.call(&ApiVersionsRequest::default(), 0, &mut buffer)?;
    ensure!(answer.error_code == ErrorCode::NONE.0, "the server does not say what it offers");
    Ok(answer.api_keys.iter().map(|api| (api.api_key, api.max_version)).collect())
}

/// The rows of a list: at its bound with each filling; with all fillings in turn, as long as the server works on at
/// once; and beyond the bound, where the server looks at no element.
fn rows(list: &List, bounds: &BTreeMap<String, usize>) -> anyhow::Result<Vec<Case>> {
    let List { api, version, path } = list;
    let most = *bounds.get(api).with_context(|| format!("{BOUNDS_PAGE} has no bound of {api}"))?;
    let case =
        |counts, fillings| Case { api: api.clone(), version: *version, path: path.clone(), counts, fillings };
    let mut rows: Vec<_> = Filling::ALL.map(|filling| case(vec![most], vec![filling])).into();
    rows.push(case(vec![SMALL.min(most)], Filling::ALL.to_vec()));
    rows.push(case(vec![most + 1, FAR_BEYOND.max(most + 1)], Filling::ALL.to_vec()));
    Ok(rows)
}

/// Attacks one server with the remaining cases, until it does not serve any more.
fn run_server(
    field: Field<'_>,
    plan: &Plan<'_>,
    bounds: &BTreeMap<String, usize>,
    cases: &mut Vec<Case>,
    mut show: impl FnMut(Line) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut bout = Bout::begin(field, Ground::default(), &[Shape::Small])?;
    bout.rest()?;
    let first = cases.first().map(Case::to_string).unwrap_or_default();
    let mut last = String::new();
    while !cases.is_empty() {
        let case = cases.remove(0);
        last = case.to_string();
        let most = bounds.get(&case.api).copied().unwrap_or_default();
        let terms = Terms { seconds: plan.seconds, is_beyond: case.counts.iter().all(|count| *count > most) };
        let line = match run_row(field, &mut bout, &case, terms) {
            Ok(line) => line,
            Err(error) => Line { name: last.clone(), figures: None, faults: vec![first_line(&error)] },
        };
        // A server that was lost in a row gets no further ones.
        let is_lost = line.figures.is_none();
        show(line)?;
        if is_lost {
            break;
        }
    }
    let faults = match bout.rig.faults(Expected::default()) {
        Ok(faults) => bout.end(faults, false).map(|outcome| outcome.faults),
        Err(error) => Err(error),
    };
    let faults = faults.unwrap_or_else(|error| vec![first_line(&error)]);
    let name =
        if faults.is_empty() { format!("{SERVER} {first}") } else { format!("{SERVER} {first} to {last}") };
    show(Line { name, figures: None, faults })
}

/// An error without the log that may follow it.
fn first_line(error: &anyhow::Error) -> String {
    format!("{error:#}").lines().next().unwrap_or_default().to_owned()
}

/// Name of a line about a whole server.
const SERVER: &str = "server";

/// Conditions of a row.
#[derive(Clone, Copy, Debug)]
struct Terms {
    /// Seconds of each storm.
    seconds: f64,
    /// Whether every request is to be refused.
    is_beyond: bool,
}

/// Runs a row, and again if it is not borne.
fn run_row(field: Field<'_>, bout: &mut Bout<'_>, case: &Case, terms: Terms) -> anyhow::Result<Line> {
    let name = case.to_string();
    let mut witness = Witness::new(Shape::Small, field.above_max);
    let mut tries = 0;
    loop {
        tries += 1;
        let Tried { figures, counts } = try_row(bout, case, terms, &mut witness)?;
        let mut faults = counts.faults(terms);
        faults.extend(witness.faults());
        faults.append(&mut bout.faults);
        if faults.is_empty() || tries == TRIES_MAX {
            return Ok(Line { name, figures: Some(figures.judged(&witness)), faults });
        }
        // A try that the machine itself has disturbed proves nothing.
        if witness.is_disturbed() {
            witness = Witness::new(Shape::Small, field.above_max);
        }
    }
}

/// Outcome of one try, without the honest client's verdict.
#[derive(Default)]
struct Tried {
    figures: Figures,
    counts: Counts,
}

/// Counts of the requests of one try.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Number of storms in which nothing was sent.
    idle: u32,
    /// Answers, in storms that read them.
    answered: u64,
    failed: u64,
}

impl Counts {
    fn faults(self, terms: Terms) -> Vec<String> {
        let mut faults = Vec::new();
        if self.idle > 0 {
            faults.push(format!("{} times nothing was sent, which proves nothing", self.idle));
        }
        if terms.is_beyond && self.answered > 0 {
            faults.push(format!("{} requests beyond the bound were answered", self.answered));
        }
        if !terms.is_beyond && self.answered == 0 && self.failed > 0 {
            faults.push("requests within the bound are not answered".to_owned());
        }
        faults
    }
}

fn try_row(bout: &mut Bout<'_>, case: &Case, terms: Terms, witness: &mut Witness) -> anyhow::Result<Tried> {
    let name = format!("{PREFIX}{case}");
    let (ports, seconds) = (bout.rig.ports(), terms.seconds);
    let order = Order { name: &name, ports, seconds, from: From::Others, steps_back: false };
    let mut armed = Armed::start(order)?;
    let plan = run::Plan { pairs: 1, seconds: terms.seconds, from: From::Others, freeze: false };
    let (mut during, mut after) = (Seen::default(), Seen::default());
    let (mut effort, mut elapsed_s) = (Effort::default(), 0.0);
    let mut tried = Tried::default();
    for reading in READING {
        for connections in CONNECTIONS {
            if elapsed_s > 0.0 {
                armed.ready()?;
            }
            drop(bout.seen()?);
            let fired = bout.fire(&mut armed, plan)?;
            let seen = bout.seen()?;
            tried.note(connections, reading, &fired, &seen);
            during.extend(seen);
            effort.add(fired.effort);
            elapsed_s += fired.elapsed_s;
            thread::sleep(BETWEEN);
            after.extend(bout.seen()?);
            bout.calm(BETWEEN)?;
        }
    }
    drop(armed);
    witness.attack.add(during);
    witness.after.add(after);
    drop(bout.seen()?);
    let cpu_seconds = effort.cpu_seconds * CONTROL_SECONDS / elapsed_s;
    burn::burn(Effort { cpu_seconds, ..effort }, CONTROL_SECONDS, false)?;
    witness.control.add(bout.seen()?);
    Ok(tried)
}

impl Tried {
    /// Adds the outcome of a storm.
    fn note(&mut self, connections: usize, reading: Reading, fired: &Fired, seen: &Seen) {
        let Fired { tally, elapsed_s, grown_bytes, .. } = *fired;
        let Self { figures, counts } = self;
        figures.memory_mib = figures.memory_mib.max(grown_bytes >> 20);
        let slowest = Duration::from_micros(seen.pairs_us.iter().copied().max().unwrap_or_default());
        let slowest_ms = slowest.as_secs_f64() * 1e3;
        match reading {
            Reading::Read => figures.read_ms.push(slowest_ms),
            Reading::Unread => figures.unread_ms.push(slowest_ms),
        }
        counts.idle += u32::from(tally.shots == 0);
        if reading == Reading::Read {
            counts.answered += tally.answered;
            counts.failed += tally.failed;
        }
        if (connections, reading) == (1, Reading::Read) && tally.answered > 0 {
            figures.answer_ms = Some(elapsed_s * 1e3 / tally.answered as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::checkout;

    fn page_of_bounds() -> String {
        fs::read_to_string(checkout().unwrap().join(BOUNDS_PAGE)).unwrap()
    }

    #[test]
    fn table_of_bounds_is_read() {
        let page = page_of_bounds();
        let bounds = bounds(&page).unwrap();
        assert_eq!((bounds["Produce"], bounds["JoinGroup"]), (250_000, 1_000));
        assert!(
            page.contains(&format!("({SMALL} elements and ")),
            "the number of elements worked on at once has changed"
        );
        assert!(super::bounds("| a | b |\n").is_err());
    }

    #[test]
    fn list_is_made_at_its_bound_below_and_beyond() {
        let list = List { api: "JoinGroup".into(), version: 9, path: "protocols".into() };
        let rows = rows(&list, &bounds(&page_of_bounds()).unwrap()).unwrap();
        let counts: Vec<_> = rows.iter().map(Case::counts_name).collect();
        assert_eq!(counts, ["1000", "1000", "1000", "1000", &SMALL.to_string(), "1001+990000"]);
        let fillings: Vec<_> = rows.iter().map(Case::fillings_name).collect();
        assert_eq!(fillings[..4], ["empty", "same", "different", "unknown"]);
        assert_eq!(fillings[5], "empty+same+different+unknown");
        let unknown = List { api: "Nothing".into(), ..list };
        assert!(super::rows(&unknown, &BTreeMap::new()).is_err());
    }

    #[test]
    fn request_beyond_the_bound_must_not_be_answered() {
        let faults = |is_beyond, answered, failed| {
            Counts { idle: 0, answered, failed }.faults(Terms { seconds: 0.4, is_beyond })
        };
        assert_eq!(faults(true, 2, 7), ["2 requests beyond the bound were answered"]);
        assert_eq!(faults(true, 0, 7), [""; 0]);
        assert_eq!(faults(false, 2, 7), [""; 0]);
        assert_eq!(faults(false, 0, 7), ["requests within the bound are not answered"]);
        // No answer came in the time of the attack.
        assert_eq!(faults(false, 0, 0), [""; 0]);
    }

    #[test]
    fn storm_counts_answers_only_if_it_reads() {
        let tally = Tally { shots: 9, answered: 2, failed: 7, ..Tally::default() };
        let fired = Fired { tally, effort: Effort::default(), elapsed_s: 0.4, grown_bytes: 3 << 20 };
        let seen = Seen { pairs_us: vec![1000, 2500], ..Seen::default() };
        let mut tried = Tried::default();
        tried.note(1, Reading::Read, &fired, &seen);
        tried.note(4, Reading::Read, &fired, &seen);
        tried.note(1, Reading::Unread, &Fired { tally: Tally::default(), ..fired }, &seen);
        let Tried { figures, counts } = tried;
        assert_eq!((counts.idle, counts.answered, counts.failed), (1, 4, 14));
        assert_eq!((figures.answer_ms, figures.memory_mib), (Some(200.0), 3));
        assert_eq!((figures.read_ms, figures.unread_ms), (vec![2.5, 2.5], vec![2.5]));
    }
}
