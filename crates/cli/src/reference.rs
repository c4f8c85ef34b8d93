//! Keeps `docs/cli.md` current: it is what `--help` says of every command, one after the other.

use std::path::Path;

use clap::{Command, CommandFactory as _};

use crate::args::Cli;

/// Set to rewrite the page instead of comparing it.
const REWRITE_VARIABLE: &str = "UPDATE_DOCS";
const WIDTH: usize = 100;

const HEAD: &str = "# Command line

This page is what `--help` says of each command; a test keeps it current.

Answers go to stdout, everything else to stderr. With `--json`, commands that answer once print one JSON document;
`consume` and `log dump` print one object on each line. A byte string in JSON is text under its name if it is UTF-8, and
base64 under its name with `_base64` if it is not. A command that fails says why on stderr: in text, or with `--json` as
one JSON object, the last line, with `error`, `advice` (null where there is none) and `exit_code`. Exit codes stand at the
end of the first section.
";

fn page() -> String {
    let mut command = Cli::command().term_width(WIDTH);
    command.build();
    let mut page = HEAD.to_owned();
    push(&mut page, &mut command, 2);
    page
}

fn push(page: &mut String, command: &mut Command, level: usize) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned();
    let help = command.clone().term_width(WIDTH).render_long_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    let heading = "#".repeat(level.min(3));
    let text = lines.join("\n");
    page.push_str(&["\n", &heading, " `", &name, "`\n\n```text\n", text.trim_end(), "\n```\n"].concat());
    for inner in command.get_subcommands_mut().filter(|inner| inner.get_name() != "help") {
        push(page, inner, level + 1);
    }
}

#[test]
fn the_page_in_docs_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let page = page();
    if std::env::var_os(REWRITE_VARIABLE).is_some() {
        std::fs::write(&path, &page).expect("the page is writable");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "docs/cli.md is not current; run the tests with {REWRITE_VARIABLE}=1");
}
