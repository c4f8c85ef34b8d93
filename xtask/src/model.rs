//! Owns `cargo xtask model`: searches and random walks of the replication model, with as large a budget as somebody has time for.
//! The gate's budget is a minute; see docs/long-runs.md for larger ones.

use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use riverrun_model::{
    Bounds, Level, Limits, Model, Outcome, Quorum, Rules, Set, Setup, Step, Walked, search, walk,
};

#[derive(Args)]
pub(crate) struct Options {
    /// States that each search visits at most; a state takes about 20 bytes, and 500 while it waits to be visited
    #[arg(long, value_name = "N", default_value_t = 500_000)]
    states: usize,
    /// Random walks through larger bounds
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    walks: u64,
    /// Seed of the first walk; each one after it has the next
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Steps of a walk
    #[arg(long, value_name = "N", default_value_t = 300)]
    steps: usize,
    /// Threads of a search
    #[arg(long, value_name = "N", default_value_t = 2)]
    threads: usize,
    /// Searches and walks only the setups whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

/// The setups that are searched and walked through.
fn setups() -> Vec<(&'static str, Setup)> {
    let base = Setup::default();
    let level = |level| Setup { level, ..base };
    vec![
        ("level 1", base),
        ("level 2", level(Level::SyncAsync)),
        ("level 3", level(Level::AsyncSync)),
        ("level 4", level(Level::AsyncAsync)),
        ("level 1, reassigned", Setup { replicas: Set::of(&[0, 1]), target: Set::of(&[0, 2]), ..base }),
        ("level 3, leader moved", Setup { target: Set::of(&[1, 2]), ..level(Level::AsyncSync) }),
        ("level 4, leader moved", Setup { target: Set::of(&[1, 2]), ..level(Level::AsyncAsync) }),
        ("level 1, two partitions", Setup { partitions: 2, ..base }),
        ("level 1, majority", Setup { quorum: Quorum::Majority, ..base }),
    ]
}

/// Bounds that are searched: one kind of failure each, so that a search can come to its end.
fn slices() -> [(&'static str, Bounds); 4] {
    let bounds = Bounds { values: 1, epochs: 2, messages: 1, changes: 1, ..Bounds::NONE };
    [
        ("fencing", Bounds { fences: 1, ..bounds }),
        ("crash", Bounds { crashes: 1, ..bounds }),
        ("power cut", Bounds { power_cuts: 1, ..bounds }),
        ("copies", Bounds { messages: 2, slots: 2, fences: 1, copies: 1, ..bounds }),
    ]
}

/// The bounds of walks: all kinds of failure, and more of everything than any search gets through.
const WIDE: Bounds = Bounds {
    values: 4,
    epochs: 6,
    messages: 4,
    slots: 2,
    crashes: 3,
    power_cuts: 2,
    fences: 4,
    changes: 6,
    copies: 3,
    unclean: 1,
};

pub(crate) fn run(options: &Options) -> Result<()> {
    println!("{:<24} {:<10} {:>12} {:>6} {:>10} {:>8}", "setup", "", "states", "depth", "", "s");
    let mut searched = 0;
    for (name, setup) in setups().into_iter().filter(|(name, ..)| name.contains(&options.only)) {
        for (slice, bounds) in slices() {
            searched += explore(
                &format!("{name:<24} {slice:<10}"),
                &Model::new(setup, bounds, Rules::default()),
                options,
            )?;
        }
        wander(name, &Model::new(setup, WIDE, Rules::default()), options)?;
    }
    if searched == 0 {
        bail!("no setup's name contains {:?}", options.only);
    }
    println!("{searched} states visited, no promise broken");
    Ok(())
}

/// Searches, and prints a line. The states visited.
fn explore(name: &str, model: &Model, options: &Options) -> Result<usize> {
    let began = Instant::now();
    let limits = Limits { states: options.states, threads: options.threads };
    let (states, depth, end) = match search(model, limits) {
        Outcome::Exhausted { states, depth } => (states, depth, "exhausted"),
        Outcome::Limited { states, depth } => (states, depth, "limit"),
        Outcome::Broken { invariant, trace, .. } => {
            bail!("{name}: {invariant} is broken by\n{}", lines(&trace))
        }
    };
    println!("{name} {states:>12} {depth:>6} {end:>10} {:>8.1}", began.elapsed().as_secs_f64());
    Ok(states)
}

/// Goes random walks, and prints a line.
fn wander(name: &str, model: &Model, options: &Options) -> Result<()> {
    let began = Instant::now();
    let steps = walks(name, model, options)?;
    let seconds = began.elapsed().as_secs_f64();
    println!("{name:<24} {:<10} {:>12} {steps:>17} steps {seconds:>8.1}", "walks", options.walks);
    Ok(())
}

fn walks(name: &str, model: &Model, options: &Options) -> Result<usize> {
    let mut gone = 0;
    for seed in options.seed..options.seed.saturating_add(options.walks) {
        match walk(model, seed, options.steps) {
            Walked::Through { steps } => gone += steps,
            Walked::Broken { invariant, trace } => {
                bail!("{name}: {invariant} is broken by walk {seed}:\n{}", lines(&trace))
            }
        }
    }
    Ok(gone)
}

fn lines(trace: &[Step]) -> String {
    let lines: Vec<String> = trace.iter().map(|step| format!("  {step}")).collect();
    lines.join("\n")
}
