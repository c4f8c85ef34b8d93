//! `cargo xtask attack`: the real server under attack, beside an honest client that must not notice.
//!
//! Owns the options and the order of a run. Each attack is a process of its own, bounded in time and number; so is the
//! honest client, which produces and fetches a small record every 20 ms. Attacks alternate with control runs, in which
//! as much processor time is burnt. `docs/long-runs.md` says how to run it, and has its results.

mod attacker;
mod burn;
mod disk_probe;
mod generated;
mod honest;
mod judge;
mod random;
mod rig;
mod rows;
mod run;
mod table;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use clap::Args;

pub(crate) use attacker::AttackerOptions;
pub(crate) use burn::BurnOptions;
pub(crate) use honest::HonestOptions;

use crate::clients::checkout;
use crate::clients::install::{Kit, Profile, Toolbox};
use attacker::From;
use rig::Place;
use rows::Attack;
use run::{Field, Outcome, Plan};
use table::Row;

/// Pairs of an attack and a control run in the long form, from other addresses and from the honest client's own.
const PAIRS: u32 = 10;
const PAIRS_OWN: u32 = 2;

/// Seconds of an attack: ten of them have 1,200 honest pairs, and all attacks fit into 40 minutes.
const SECONDS: f64 = 2.5;

/// Additional time of a pair beside the attack and its control run, and of a server: its start, stop and second start,
/// with the preparations of an attack.
const PAIR_OVERHEAD_SECONDS: f64 = 1.8;
const SERVER_SECONDS: f64 = 5.0;

/// The same in the short form, which has two minutes in all.
const SHORT_PAIRS: u32 = 1;
const SHORT_SECONDS: f64 = 2.0;

/// Pairs of the second try in the short form.
const AGAIN_PAIRS: u32 = 3;

/// Seconds of a storm of the generated part, which has thousands: enough for 20 pairs.
const GENERATED_SECONDS: f64 = 0.4;

/// Default file of the figures of the generated part.
const FIGURES: &str = "target/attack-figures.txt";

/// Seconds of the run in which a fault is planted.
const PLANTED_SECONDS: f64 = 1.5;

/// Lines of `/health` that are shown for an attack.
const TOLD_SHOWN: usize = 3;

/// Most repetitions of a run that a busy machine has disturbed.
const DISTURBED_MAX: u32 = 3;

/// Arguments of `cargo xtask attack`.
#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Options {
    /// The attacks of the gate, one pair each; failed ones are tried once more
    #[arg(long)]
    short: bool,
    /// Only these attacks, for example `lists,unread`; all when absent
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Pairs of an attack and a control run
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: Option<u32>,
    /// Seconds that an attack lasts
    #[arg(long)]
    seconds: Option<f64>,
    /// Port of the server, whose admin port is the next one; free ones when absent
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=65_534))]
    port: Option<u16>,
    /// A server to attack instead of the one of this checkout, which is built first
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Directory for the data of the servers; one in the system's directory for temporary files when absent
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// A file with a line for each attack: those that have passed are not made again, and others are added
    #[arg(long, value_name = "FILE")]
    tally: Option<PathBuf>,
    /// Every list of every request that is offered, long, instead of the attacks by hand; writes docs/attacks.md. `--only`
    /// names requests then, and `--tally` the file of the figures
    #[arg(long, conflicts_with_all = ["short", "pairs"])]
    generated: bool,
    /// Attacks, kills, full disks and lost log readers in random order, under the load of `crash`
    #[arg(long, conflicts_with_all = ["short", "pairs", "seconds", "tally", "generated"])]
    random: bool,
    /// Minutes that the random order goes on
    #[arg(long, default_value_t = 60, requires = "random", value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// Seed of the random choices; the time when absent, and printed
    #[arg(long, requires = "random")]
    seed: Option<u64>,
    /// List the attacks, and make none
    #[arg(long)]
    list: bool,
}

/// Entry point of an honest client's process.
pub(crate) fn be_honest(options: &HonestOptions) -> anyhow::Result<()> {
    honest::serve(options)
}

/// Entry point of an attacker's process.
pub(crate) fn be_attacker(options: &AttackerOptions) -> anyhow::Result<()> {
    attacker::serve(options)
}

/// Entry point of a burner's process.
pub(crate) fn be_burner(options: &BurnOptions) -> anyhow::Result<()> {
    burn::serve(options)
}

/// One attack of a run.
#[derive(Clone, Copy)]
struct Turn {
    attack: &'static dyn Attack,
    plan: Plan,
}

impl Turn {
    /// Its name in the tally.
    fn name(&self) -> String {
        format!("{} from {}", self.attack.name(), self.plan.from.name())
    }

    /// About its duration.
    fn seconds(&self) -> f64 {
        f64::from(self.plan.pairs) * (2.0 * self.plan.seconds + PAIR_OVERHEAD_SECONDS) + SERVER_SECONDS
    }
}

/// Attacks the server as the options say; fails if an attack was not borne.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if options.list {
        for attack in rows::ALL {
            println!("{:<22} {}", attack.name(), attack.about());
        }
        return Ok(());
    }
    // The short form has an allowance for slow machines; the others measure.
    let profile = if options.short { Profile::Release } else { Profile::Dist };
    let toolbox = Toolbox::new(checkout()?, profile);
    if options.binary.is_none() {
        toolbox.install(&BTreeSet::from([Kit::Server]))?;
    }
    let place = place(options, &toolbox);
    rig::clear(&place.dir)?;
    fs::create_dir_all(&place.dir)?;
    let above_max = if options.short { judge::ABOVE_MAX_SHORT } else { judge::ABOVE_MAX };
    let field = Field { place: &place, toolbox: &toolbox, above_max };
    find_planted(field)?;
    if options.random {
        run_random(options, field)?;
    } else if options.generated {
        run_generated(options, field)?;
    } else {
        run_by_hand(options, field)?;
    }
    rig::clear(&place.dir)
}

fn run_generated(options: &Options, field: Field<'_>) -> anyhow::Result<()> {
    let checkout = checkout()?;
    let figures = options.tally.clone().unwrap_or_else(|| checkout.join(FIGURES));
    let seconds = options.seconds.unwrap_or(GENERATED_SECONDS);
    generated::run(field, &generated::Plan { only: &options.only, seconds, figures, checkout })
}

fn run_random(options: &Options, field: Field<'_>) -> anyhow::Result<()> {
    let now_us = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros();
    let seed = options.seed.map_or_else(|| u64::try_from(now_us), Ok)?;
    let attacks = chosen(options)?;
    random::run(field, &random::Plan { time: Duration::from_mins(options.minutes), seed, attacks })
}

fn run_by_hand(options: &Options, field: Field<'_>) -> anyhow::Result<()> {
    let mut turns = turns(options)?;
    let mut rows = table::passed(options.tally.as_deref())?;
    let before = rows.len();
    turns.retain(|turn| rows.iter().all(|row| row.name != turn.name()));
    let estimate: f64 = turns.iter().map(Turn::seconds).sum();
    println!(
        "{before} attacks have passed before, {} are to be made: about {:.0} min",
        turns.len(),
        estimate / 60.0
    );
    let begun = Instant::now();
    for turn in turns {
        let turn_begun = Instant::now();
        let outcome = take_turn(field, turn, options.short);
        let row = Row::new(&turn.name(), turn_begun.elapsed(), &outcome);
        if let Err(error) = &outcome {
            println!("{:<10} {:<32} {error:#}", "NOT BORNE", turn.name());
        }
        table::note(options.tally.as_deref(), &row)?;
        rows.push(row);
    }
    println!("\n{}", table::table(&rows));
    let failed: Vec<_> = rows.iter().filter(|row| !row.is_borne()).map(|row| row.name.as_str()).collect();
    let seconds = begun.elapsed().as_secs_f64();
    println!("\n{} attacks, {} not borne, {before} made before; {seconds:.0} s", rows.len(), failed.len());
    ensure!(failed.is_empty(), "{} attacks were not borne: {}", failed.len(), failed.join(", "));
    Ok(())
}

fn place(options: &Options, toolbox: &Toolbox) -> Place {
    let name = format!("riverrun-attack-{}", std::process::id());
    Place {
        dir: options.dir.clone().unwrap_or_else(|| std::env::temp_dir().join(name)),
        binary: options.binary.clone().unwrap_or_else(|| toolbox.server_binary()),
        ports: options.port.map(|port| [port, port + 1]),
    }
}

/// The attacks that the options name.
fn chosen(options: &Options) -> anyhow::Result<Vec<&'static dyn Attack>> {
    for name in &options.only {
        ensure!(rows::named(name).is_some(), "no attack is named {name}");
    }
    let is_meant = |attack: &&'static dyn Attack| {
        options.only.is_empty() || options.only.iter().any(|name| name == attack.name())
    };
    Ok(rows::ALL.iter().copied().filter(is_meant).collect())
}

/// The attacks of a run by hand, each with its plan, in order.
fn turns(options: &Options) -> anyhow::Result<Vec<Turn>> {
    let mut turns = Vec::new();
    for attack in chosen(options)? {
        let turn = |pairs, seconds, from| Turn {
            attack,
            plan: Plan {
                pairs: options.pairs.unwrap_or(pairs),
                seconds: options.seconds.unwrap_or(seconds),
                from,
                freeze: false,
            },
        };
        if options.short {
            turns.extend(attack.short().map(|from| turn(SHORT_PAIRS, SHORT_SECONDS, from)));
        } else {
            turns.push(turn(PAIRS, SECONDS, From::Others));
            turns.push(turn(PAIRS_OWN, SECONDS, From::Own));
        }
    }
    Ok(turns)
}

/// Checks the suite itself: it must find a server that stands still for an instant.
fn find_planted(field: Field<'_>) -> anyhow::Result<()> {
    let plan = Plan { pairs: 1, seconds: PLANTED_SECONDS, from: From::Others, freeze: true };
    let outcome = run::attack(field, &rows::NOTHING, plan)?;
    let found = outcome.faults.iter().find(|fault| fault.contains("slowest"));
    let found = found.context("a server that stood still for 300 ms was not found: the suite is bad")?;
    println!("planted    a server that stands still for 300 ms is found: {found}");
    Ok(())
}

/// Makes an attack, and again if the machine was too busy for a verdict. The short form tries once more if the attack
/// was not borne, since other users of the machine may slow the attacked run alone.
fn take_turn(field: Field<'_>, mut turn: Turn, short: bool) -> anyhow::Result<Outcome> {
    let mut disturbed = 0;
    let mut again = short;
    loop {
        let outcome = run::attack(field, turn.attack, turn.plan).with_context(|| turn.name())?;
        let verdict = if outcome.faults.is_empty() { "borne" } else { "NOT BORNE" };
        println!("{verdict:<10} {:<32} {outcome}", turn.name());
        for fault in &outcome.faults {
            println!("           {fault}");
        }
        for line in outcome.told.iter().take(TOLD_SHOWN) {
            println!("           /health: {line}");
        }
        if outcome.faults.is_empty() {
            return Ok(outcome);
        }
        if outcome.is_disturbed() && disturbed < DISTURBED_MAX {
            disturbed += 1;
            println!(
                "           the control run was held up, too: the machine is busy, and it is made again"
            );
        } else if again {
            again = false;
            turn.plan.pairs = AGAIN_PAIRS;
            println!("           once more, with {AGAIN_PAIRS} pairs");
        } else {
            return Ok(outcome);
        }
    }
}
