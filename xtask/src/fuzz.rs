//! `cargo xtask fuzz`: every fuzz target for a while.
//!
//! Builds the targets of `fuzz/` with libFuzzer's coverage instrumentation, which the stable compiler has, so that the
//! gate needs neither a nightly toolchain nor another tool. Fails if a target crashes, hangs or exceeds a bound.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::Args;

/// Compiler flags that libFuzzer needs: a counter on each edge, and a table of the edges' places.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing";
/// Most resident memory of a target.
const RSS_LIMIT_MB: u32 = 512;
/// Longest time of one input.
const INPUT_SECONDS_MAX: u32 = 10;

#[derive(Args)]
pub(crate) struct Options {
    /// Seconds for each target
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Only these targets
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let targets = targets(&fuzz, &options.only)?;
    let host = host()?;
    let built = Command::new("cargo")
        .args(["build", "--release", "--bins", "--target", &host])
        .current_dir(&fuzz)
        .env("RUSTFLAGS", FLAGS)
        .status()
        .context("cargo cannot be started")?;
    if !built.success() {
        bail!("the fuzz targets do not build");
    }
    for target in targets {
        fuzz_one(&fuzz, &host, &target, options.seconds)?;
    }
    Ok(())
}

fn targets(fuzz: &Path, only: &[String]) -> Result<Vec<String>> {
    let mut all: Vec<String> = std::fs::read_dir(fuzz.join("fuzz_targets"))
        .context("fuzz/fuzz_targets")?
        .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    all.sort_unstable();
    if let Some(unknown) = only.iter().find(|name| !all.contains(name)) {
        bail!("there is no target {unknown}; there are {}", all.join(", "));
    }
    all.retain(|name| only.is_empty() || only.contains(name));
    Ok(all)
}

/// The target triple of this machine: instrumentation is for the targets, not for build scripts.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("rustc cannot be started")?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not say its host")?.to_owned())
}

fn fuzz_one(fuzz: &Path, host: &str, target: &str, seconds: u32) -> Result<()> {
    let corpus = fuzz.join("corpus").join(target);
    std::fs::create_dir_all(&corpus)?;
    let artifacts = fuzz.join("artifacts").join(target);
    std::fs::create_dir_all(&artifacts)?;
    let mut folders: Vec<PathBuf> = vec![corpus];
    folders.extend(Some(fuzz.join("seeds").join(target)).filter(|seeds| seeds.is_dir()));
    let output = Command::new(fuzz.join("target").join(host).join("release").join(target))
        .args(folders)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-rss_limit_mb={RSS_LIMIT_MB}"))
        .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .output()
        .with_context(|| format!("{target} cannot be started"))?;
    let log = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{target} found something:\n{log}");
    }
    let done = log.lines().rev().find(|line| line.starts_with("Done")).unwrap_or("no summary");
    println!("{target}: {done}");
    Ok(())
}
