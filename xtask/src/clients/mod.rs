//! `cargo xtask clients`: real Kafka clients against our server, and the same cases against Kafka itself.
//!
//! Owns the list of suites and the order of a run: install, start a server on fresh data, run the suites, stop the
//! server, report failures. `docs/clients.md` lists what is covered, and where Riverrun differs from Kafka.

pub(crate) mod exec;
pub(crate) mod install;
mod kcat;
#[cfg(feature = "bench")]
mod native;
mod program;
mod report;
mod rust_cases;
pub(crate) mod server;
mod tools;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::Args;

use install::{Kit, Profile, Toolbox};
use report::{CaseResult, Report};
use server::{Server, ServerKind};

/// Heap of the Java program: large records times a handful of clients.
const JAVA_HEAP: &str = "512m";

/// Suites that run at the same time.
const LANES: usize = 2;

/// Arguments of `cargo xtask clients`.
#[derive(Args)]
pub(crate) struct Options {
    /// Suites or single cases, for example `java,kcat` or `java/codecs`; all when absent
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// The server that the clients talk to
    #[arg(long, value_enum, default_value_t = ServerKind::Riverrun)]
    against: ServerKind,
    /// Our server's binary, instead of building it
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Keep the server's data and log after the run and say where they are
    #[arg(long)]
    keep: bool,
}

/// The runner of a suite's cases.
#[derive(Clone, Copy)]
enum Runner {
    /// A program that reports its own cases.
    Program(fn(&Toolbox) -> Command),
    /// Cases written here, around a command-line tool.
    Cases(&'static [rust_cases::Case]),
}

struct Suite {
    name: &'static str,
    /// The program that it needs, beside xtask itself.
    kit: Option<Kit>,
    runner: Runner,
}

const SUITES: &[Suite] = &[
    #[cfg(feature = "bench")]
    Suite { name: "native", kit: None, runner: Runner::Cases(native::CASES) },
    Suite { name: "java", kit: Some(Kit::Java), runner: Runner::Program(java_program) },
    Suite { name: "tools", kit: Some(Kit::Java), runner: Runner::Cases(tools::CASES) },
    Suite { name: "kcat", kit: Some(Kit::Kcat), runner: Runner::Cases(kcat::CASES) },
    Suite { name: "python", kit: Some(Kit::Python), runner: Runner::Program(python_program) },
    Suite { name: "go", kit: Some(Kit::Go), runner: Runner::Program(go_program) },
    Suite { name: "node", kit: Some(Kit::Node), runner: Runner::Program(node_program) },
];

/// A suite to run, and its cases; none named means all.
struct Selected {
    suite: &'static Suite,
    cases: Vec<String>,
}

/// Runs the suites; an error if anything failed or could not be installed.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let selected = select(&options.only)?;
    let toolbox = Toolbox::new(checkout()?, Profile::Release);
    let begun = Instant::now();
    toolbox.install(&kits_of(&selected, options))?;
    println!("installed and built {:>36.2} s", begun.elapsed().as_secs_f64());
    let mut server = Server::start(options.against, &toolbox, options.binary.clone())?;
    let report = Report::default();
    run_in_lanes(&selected, &toolbox, &server, &report);
    report.add(stop_case(&mut server));
    finish(options, &server, &report, begun)
}

/// Runs suites side by side: most of their time goes into waiting for groups to become stable and processes to start.
fn run_in_lanes(selected: &[Selected], toolbox: &Toolbox, server: &Server, report: &Report) {
    let next = AtomicUsize::new(0);
    let lane = || {
        while let Some(selected) = selected.get(next.fetch_add(1, Ordering::Relaxed)) {
            run_suite(selected, toolbox, server, report);
        }
    };
    thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(lane);
        }
    });
}

fn run_suite(Selected { suite, cases }: &Selected, toolbox: &Toolbox, server: &Server, report: &Report) {
    match suite.runner {
        Runner::Program(program) => {
            let mut command = program(toolbox);
            command.args([&server.bootstrap(), server.kind().name()]).args(cases);
            program::run(suite.name, &mut command, report);
        }
        Runner::Cases(all) => {
            let bench = rust_cases::Bench::new(toolbox, server);
            rust_cases::run(suite.name, all, cases, &bench, report);
        }
    }
}

/// The last case: the server lived through the others and ends cleanly when asked.
fn stop_case(server: &mut Server) -> CaseResult {
    let begun = Instant::now();
    let failure = server.stop().err().map(|error| format!("{error:#}"));
    CaseResult { name: "server/stops-cleanly".to_owned(), elapsed: begun.elapsed(), failure }
}

fn finish(options: &Options, server: &Server, report: &Report, begun: Instant) -> anyhow::Result<()> {
    let (summary, passed) = report.summary();
    println!(
        "\n{summary}\nagainst {}, {:.0} s in all",
        options.against.name(),
        begun.elapsed().as_secs_f64()
    );
    if options.keep {
        println!("data and log of the server: {}", server.dir().display());
    } else {
        std::fs::remove_dir_all(server.dir()).context("the server's data could not be removed")?;
    }
    if !passed {
        bail!("not every case passed");
    }
    Ok(())
}

/// Suites in the order of [`SUITES`], in whatever order they were named.
fn select(only: &[String]) -> anyhow::Result<Vec<Selected>> {
    only.iter().try_for_each(|name| known(name))?;
    let of_suite = |suite: &'static Suite| {
        let named: Vec<_> = only.iter().filter(|name| name.split('/').next() == Some(suite.name)).collect();
        let whole = only.is_empty() || named.iter().any(|name| !name.contains('/'));
        let cases = named.iter().filter_map(|name| Some(name.split_once('/')?.1.to_owned()));
        let cases: Vec<_> = if whole { Vec::new() } else { cases.collect() };
        (whole || !cases.is_empty()).then_some(Selected { suite, cases })
    };
    Ok(SUITES.iter().filter_map(of_suite).collect())
}

/// Checks that a name is a suite's or `suite/case`. Only a program knows its own cases: it fails unknown ones.
fn known(name: &str) -> anyhow::Result<()> {
    let (suite_name, case) = name.split_once('/').map_or((name, None), |(suite, case)| (suite, Some(case)));
    let Some(suite) = SUITES.iter().find(|suite| suite.name == suite_name) else {
        let names: Vec<_> = SUITES.iter().map(|suite| suite.name).collect();
        bail!("there is no suite `{suite_name}`; there are {}", names.join(", "));
    };
    if let (Runner::Cases(cases), Some(case)) = (suite.runner, case)
        && !cases.iter().any(|known| known.name == case)
    {
        let names: Vec<_> = cases.iter().map(|case| case.name).collect();
        bail!("there is no case `{name}`; {suite_name} has {}", names.join(", "));
    }
    Ok(())
}

fn kits_of(selected: &[Selected], options: &Options) -> BTreeSet<Kit> {
    let mut kits: BTreeSet<_> = selected.iter().filter_map(|selected| selected.suite.kit).collect();
    match options.against {
        ServerKind::Riverrun if options.binary.is_some() => {}
        ServerKind::Riverrun => drop(kits.insert(Kit::Server)),
        ServerKind::Kafka => drop(kits.insert(Kit::Java)),
    }
    kits
}

/// The repository's root: this package lies directly below it.
pub(crate) fn checkout() -> anyhow::Result<PathBuf> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").context("run this through `cargo xtask`")?;
    Ok(PathBuf::from(package).parent().context("the xtask package has no parent directory")?.to_path_buf())
}

fn java_program(toolbox: &Toolbox) -> Command {
    let mut command = toolbox.java(JAVA_HEAP);
    command.arg("riverrun.clients.Main");
    command
}

fn python_program(toolbox: &Toolbox) -> Command {
    let mut command = Command::new(toolbox.python());
    // Unbuffered, so that a case's lines arrive while it runs; no byte code beside the sources.
    command.args(["-u", "-B"]).arg(toolbox.sources("python/main.py"));
    command
}

fn go_program(toolbox: &Toolbox) -> Command {
    Command::new(toolbox.go_program())
}

fn node_program(toolbox: &Toolbox) -> Command {
    let mut command = Command::new("node");
    command.arg(toolbox.node_program()).env("KAFKAJS_NO_PARTITIONER_WARNING", "1");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(only: &[&str]) -> Vec<(&'static str, Vec<String>)> {
        let only: Vec<_> = only.iter().map(|name| (*name).to_owned()).collect();
        select(&only).unwrap().into_iter().map(|selected| (selected.suite.name, selected.cases)).collect()
    }

    #[test]
    fn nothing_named_means_every_suite_whole() {
        assert_eq!(names(&[]).len(), SUITES.len());
    }

    #[test]
    fn a_case_selects_its_suite_and_nothing_else() {
        assert_eq!(names(&["kcat/codecs", "go"]), [("kcat", vec!["codecs".to_owned()]), ("go", vec![])]);
    }

    #[test]
    fn a_suite_named_whole_is_not_narrowed_by_one_of_its_cases() {
        assert_eq!(names(&["go/groups", "go"]), [("go", vec![])]);
    }

    #[test]
    fn an_unknown_case_is_refused_by_name() {
        let error = select(&["kcat/knit".to_owned()]).err().unwrap();
        assert!(error.to_string().contains("no case `kcat/knit`"), "{error}");
    }

    #[test]
    fn an_unknown_suite_is_refused_by_name() {
        let error = select(&["perl".to_owned()]).err().unwrap();
        assert!(error.to_string().contains("no suite `perl`"), "{error}");
    }
}
