//! `cargo xtask report-page`: the page of `riverrun bench report`, in a real browser.
//!
//! Owns the steps that a person would take with the page, made by a program of `xtask/clients/browser`: light and dark,
//! wide and narrow, every control clicked. The page's results are made up (`crates/bench/testdata/report.json`), so
//! that no server is needed and every run sees the same page. Its pictures stay in `target/clients/report-page`. The
//! stored pages of `docs/benchmarks` are opened in the same four ways, and not clicked through.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use riverrun_bench::report::Report;

use crate::clients::exec;
use crate::clients::install::{BROWSER, Kit, Profile, Toolbox};

/// Results of the page.
const RESULTS: &str = "crates/bench/testdata/report.json";
/// Directory of pages with real results.
const PAGES: &str = "docs/benchmarks";
/// Opening all of them takes some thirty seconds of two busy cores.
const LIMIT: Duration = Duration::from_mins(4);

/// Makes the page, checks it, and fails with all faults.
pub(crate) fn run() -> anyhow::Result<()> {
    let checkout = crate::clients::checkout()?;
    let toolbox = Toolbox::new(checkout.clone(), Profile::Release);
    toolbox.install(&BTreeSet::from([Kit::Browser]))?;
    let pictures = checkout.join("target/clients/report-page");
    fs::create_dir_all(&pictures).with_context(|| format!("could not make {}", pictures.display()))?;
    let mut report = Report::new("Riverrun benchmark results");
    let results = fs::read_to_string(checkout.join(RESULTS)).context(RESULTS)?;
    report.add(RESULTS, &results)?;
    let page = pictures.join("page.html");
    fs::write(&page, report.page()?).with_context(|| format!("could not write {}", page.display()))?;
    let mut look = Command::new("node");
    look.arg(toolbox.browser_program()).arg(browser()?).arg(&page).arg(&pictures);
    look.args(stored_pages(&checkout.join(PAGES))?);
    let finished = exec::run(&mut look, b"", LIMIT)?;
    print!("{}", finished.stdout);
    anyhow::ensure!(finished.status.success(), "the page is not as it should be:\n{}", finished.stderr);
    println!("pictures are in {}", pictures.display());
    Ok(())
}

/// The pages in a directory, by name.
fn stored_pages(directory: &Path) -> anyhow::Result<BTreeSet<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    let is_page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "html");
    let pages: BTreeSet<_> = paths.into_iter().filter(is_page).collect();
    anyhow::ensure!(!pages.is_empty(), "{} has no page", directory.display());
    Ok(pages)
}

/// Path of the browser.
fn browser() -> anyhow::Result<String> {
    let found =
        exec::run_ok(Command::new("which").arg(BROWSER), b"", LIMIT).context("no browser on the path")?;
    Ok(found.stdout.trim().to_owned())
}
