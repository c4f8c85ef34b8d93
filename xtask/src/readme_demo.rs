//! `cargo xtask readme-demo`: the README's first command, as it stands there, to its last line.
//!
//! Guarantees that the command comes from the README itself, that it ends in time, and that the demo has passed its
//! checks and reached its end. The build is made before by the same line, with `--version` in the demo's place: a
//! build's time depends on the machine, while a demo that hangs has to be found soon.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::clients::{checkout, exec};

/// A build from scratch takes three minutes on two idle cores, and many times that beside other builds.
const BUILD_LIMIT: Duration = Duration::from_mins(30);

/// Longest time of the demo, which takes seconds.
const DEMO_LIMIT: Duration = Duration::from_mins(2);

/// Beginning of the README's line, and its end.
const CARGO: &str = "cargo run ";
const DEMO: &str = " -- demo";
const VERSION: &str = " -- --version";

/// Heading of the checks, and beginning of a passed one.
const CHECKS: &str = "  Checks";
const PASSED: &str = "  ok ";

/// The demo's last line.
const LAST_LINE: &str = "everything else; README.md says what this is";

/// Runs the command; the error names the first deviation.
pub(crate) fn run() -> anyhow::Result<()> {
    let checkout = checkout()?;
    let readme = fs::read_to_string(checkout.join("README.md"))?;
    let line = command_of(&readme).context("README.md has no command that runs the demo")?;
    let begun = Instant::now();
    exec::run_ok(&mut command(&line.replace(DEMO, VERSION), &checkout), b"", BUILD_LIMIT)?;
    println!("built in {:.0} s", begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    let finished = exec::run_ok(&mut command(line, &checkout), b"", DEMO_LIMIT)?;
    let passed = checks_of(&finished.stdout).with_context(|| finished.output())?;
    println!("`{line}`: {passed} checks passed in {:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}

fn command(line: &str, directory: &Path) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).current_dir(directory);
    command
}

/// The line of a code block that runs the demo.
fn command_of(readme: &str) -> Option<&str> {
    readme.lines().map(str::trim).find(|line| line.starts_with(CARGO) && line.ends_with(DEMO))
}

/// Number of passed checks; fails if one has failed or the demo did not reach its end.
fn checks_of(printed: &str) -> anyhow::Result<usize> {
    let checks = printed.lines().skip_while(|line| *line != CHECKS).skip(1);
    let checks: Vec<_> = checks.take_while(|line| !line.is_empty()).collect();
    ensure!(!checks.is_empty(), "the demo has checked nothing");
    let failed: Vec<_> = checks.iter().filter(|line| !line.starts_with(PASSED)).collect();
    ensure!(failed.is_empty(), "the demo has failed: {failed:?}");
    let last = printed.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    ensure!(last == LAST_LINE, "the demo's last line is `{last}`");
    Ok(checks.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_the_readmes_own() {
        let command = command_of(include_str!("../../README.md")).expect("the README begins with it");
        assert!(command.contains("--profile demo"), "{command}");
        assert_eq!(command_of("    cargo run -- serve\n"), None);
    }

    #[test]
    fn demo_without_its_checks_or_its_end_is_refused() {
        let printed = |checks: &str, last: &str| {
            format!("x\n\n{CHECKS}\n{checks}\n  Where to look next\n      {last}\n\n")
        };
        let passed = |checks, last| checks_of(&printed(checks, last)).ok();
        assert_eq!(passed("  ok    one\n  ok    two\n", LAST_LINE), Some(2));
        assert_eq!(passed("  ok    one\n  FAIL  two\n", LAST_LINE), None);
        assert_eq!(passed("  ok    one\n", "something else"), None);
        assert_eq!(passed("", LAST_LINE), None);
        assert!(checks_of(LAST_LINE).is_err());
    }
}
