//! `cargo xtask crash`: the real server, crashed again and again under load, and checked against its acks.
//!
//! Owns the options. The load sends unique records; another process records each ack before the load goes on; after the
//! crashes everything is read back and compared. A run without acks fails, and so does one in which, in most lives of
//! the server, no reader saw a record or no commit was acked: it proves nothing. `docs/long-runs.md` says how to run
//! it, and has its results.

mod binding;
pub(crate) mod disk;
mod disk_full;
mod event;
mod flip;
mod follow;
mod kill;
mod ledger;
mod lives;
pub(crate) mod load;
mod payload;
mod power;
mod queue;
pub(crate) mod random;
mod readback;
mod recorder;
pub(crate) mod run;
mod sync_errors;
mod tail;
mod verify;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use riverrun_client::NewTopic;

use crate::clients::checkout;
use crate::clients::install::{Kit, Profile, Toolbox};
use disk::FileSystem;
pub(crate) use queue::AppenderOptions;

/// Segments of the load's topic: small, so that they roll often.
const SEGMENT_BYTES: &str = "1048576";

/// A journal and a cache so small that the load goes through them many times.
const SMALL_SIZES: &[&str] = &["journal.bytes=16777216", "write.cache.bytes=16777216"];

/// How the server is crashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// The process is killed, at any instant, also while it starts
    Kill,
    /// A file system in an image is shut down, which drops all unsynced data
    Power,
    /// System calls that sync fail, each of the first in turn; needs strace
    SyncErrors,
    /// A small disk is filled until the server refuses, and then relieved
    DiskFull,
}

impl Mode {
    fn needs_image(self) -> bool {
        self != Self::Kill
    }
}

/// Arguments of `cargo xtask crash`.
#[derive(Args)]
pub(crate) struct Options {
    /// How the server is crashed
    #[arg(long, value_enum, default_value_t = Mode::Kill)]
    mode: Mode,
    /// Number of crashes; with failing syncs, of calls that fail; with a full disk, of fillings
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    cycles: u64,
    /// Durability level of the records, 1 to 4
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=4))]
    level: u8,
    /// File system of the image; XFS when absent. `kill` works on the directory as it is
    #[arg(long, value_enum)]
    fs: Option<FileSystem>,
    /// Crash processes that append to an embedded queue, instead of the server; not with failing syncs
    #[arg(long)]
    queue: bool,
    /// Change the topic's level all the time; a kill may lose nothing at any, a loss of power only records that no
    /// level has synced
    #[arg(long)]
    flip: bool,
    /// If this machine allows no loop mounts, or has no strace and a mode needs it, say so and succeed
    #[arg(long)]
    where_allowed: bool,
    /// Seed of the random choices; the time when absent, and printed
    #[arg(long)]
    seed: Option<u64>,
    /// Any other setting of the server, as in `riverrun serve --set`; repeatable. With `--queue` a fault of the appenders,
    /// `sync=never` or `sync=late`
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// A server to crash instead of the one of this checkout, which is built first
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Directory of the run, which must not exist; made in the system's directory for temporary files when absent
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Arguments of the recorder, which the harness starts itself.
#[derive(Args)]
pub(crate) struct RecorderOptions {
    /// The file to write, which must not exist
    file: PathBuf,
}

/// A durability level by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level(u8);

impl Level {
    /// Whether an acked record survives a loss of power.
    fn syncs(self) -> bool {
        matches!(self.0, 1 | 3)
    }

    fn server_settings(self) -> Vec<String> {
        let sizes = SMALL_SIZES.iter().map(|setting| (*setting).to_owned());
        sizes.chain([format!("default.durability={}", self.0)]).collect()
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Parameters of a mode.
pub(crate) struct Settings {
    cycles: u64,
    fs: FileSystem,
    level: Level,
    seed: u64,
    flip: bool,
    dir: PathBuf,
    /// `name=value` for the server.
    set: Vec<String>,
    binary: Option<PathBuf>,
}

impl Settings {
    fn new(options: &Options) -> anyhow::Result<Self> {
        let now_us = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros();
        let name = format!("riverrun-crash-{}", std::process::id());
        Ok(Self {
            cycles: options.cycles,
            fs: options.fs.unwrap_or(FileSystem::Xfs),
            level: Level(options.level),
            seed: options.seed.map_or_else(|| u64::try_from(now_us), Ok)?,
            flip: options.flip,
            dir: options.dir.clone().unwrap_or_else(|| std::env::temp_dir().join(name)),
            set: options.set.clone(),
            binary: options.server.clone(),
        })
    }
}

/// Parameters from another suite that crashes a server among other things.
pub(crate) struct Guest {
    pub(crate) seed: u64,
    pub(crate) dir: PathBuf,
    /// `name=value` for the server.
    pub(crate) set: Vec<String>,
    pub(crate) binary: Option<PathBuf>,
}

impl From<Guest> for Settings {
    fn from(guest: Guest) -> Self {
        let Guest { seed, dir, set, binary } = guest;
        Self { cycles: 0, fs: FileSystem::Xfs, level: Level(1), seed, flip: false, dir, set, binary }
    }
}

/// The load's topic, without its number of partitions.
pub(crate) fn topic_of(name: &str) -> NewTopic {
    let configs = [("segment.bytes", SEGMENT_BYTES)];
    let configs = configs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    NewTopic { configs: configs.into(), ..NewTopic::named(name) }
}

/// Entry point of the recorder's process.
pub(crate) fn record(options: &RecorderOptions) -> anyhow::Result<()> {
    recorder::serve(&options.file)
}

/// Entry point of a process that appends to a queue until it is crashed.
pub(crate) fn append(options: &AppenderOptions) -> anyhow::Result<()> {
    queue::append(options)
}

/// Crashes the server as the options say; fails if the server broke a promise.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let settings = Settings::new(options)?;
    if settings.flip && !matches!(options.mode, Mode::Kill | Mode::Power) {
        bail!("--flip goes with --mode kill or power");
    }
    if options.queue && (options.mode == Mode::SyncErrors || settings.flip || options.level != 1) {
        bail!(
            "--queue goes with --mode kill, power or disk-full, and without --flip and --level: its appenders sync or do not"
        );
    }
    if options.queue && options.server.is_some() {
        bail!("--queue crashes no server: --server goes without it");
    }
    if options.fs.is_some() && !options.mode.needs_image() {
        bail!("--fs goes with a mode that works on an image: a kill needs none");
    }
    if options.fs == Some(FileSystem::Tmpfs) && !(options.queue && options.mode == Mode::DiskFull) {
        bail!("--fs tmpfs goes with --queue --mode disk-full: memory has no power to lose");
    }
    let toolbox = Toolbox::new(checkout()?, Profile::Release);
    if settings.binary.is_none() && !options.queue {
        toolbox.install(&BTreeSet::from([Kit::Server]))?;
    }
    if let Err(error) = allowed(options.mode, &settings, &toolbox) {
        if !options.where_allowed {
            return Err(error);
        }
        println!("NOT RUN: {error:#}");
        return Ok(());
    }
    fs::create_dir(&settings.dir).with_context(|| format!("{} cannot be made", settings.dir.display()))?;
    println!("seed {}", settings.seed);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(interruptible(options, &settings, &toolbox));
    drop(runtime);
    result.with_context(|| kept(&settings.dir))
}

/// Checks that this machine has, or can install, the programs of a mode, and permits the mode.
fn allowed(mode: Mode, settings: &Settings, toolbox: &Toolbox) -> anyhow::Result<()> {
    if mode == Mode::SyncErrors {
        toolbox.install(&BTreeSet::from([Kit::Strace]))?;
        sync_errors::allowed()?;
    }
    if mode.needs_image() {
        toolbox.install(&settings.fs.kit().into_iter().collect())?;
        disk::allowed(settings.fs)?;
    }
    Ok(())
}

fn kept(dir: &Path) -> String {
    format!("what was found is kept in {}", dir.display())
}

/// An interrupted run is dropped, and thereby stops its server and removes its mounts.
async fn interruptible(options: &Options, settings: &Settings, toolbox: &Toolbox) -> anyhow::Result<()> {
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let crash = async {
        match options.mode {
            mode if options.queue => queue::run(mode, settings).await,
            Mode::Kill => kill::run(settings, toolbox).await,
            Mode::Power => power::run(settings, toolbox).await,
            Mode::DiskFull => disk_full::run(settings, toolbox).await,
            Mode::SyncErrors => sync_errors::run(settings, toolbox).await,
        }
    };
    tokio::select! {
        result = crash => result,
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        _ = terminated.recv() => bail!("terminated"),
    }
}
