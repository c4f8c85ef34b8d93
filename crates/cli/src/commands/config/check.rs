//! `riverrun config check`: would a server start with this file?

use std::path::PathBuf;

use clap::Args;
use riverrun_broker::config::load::Sources;
use riverrun_tools::exit::{Exit, Failure};
use riverrun_tools::text::output::OutputArgs;
use serde::Serialize;

use crate::commands::serve::read_config_file;

const EXAMPLES: &str = "\
Examples:
  riverrun config check riverrun.toml

Looks at the file alone; the environment and flags of a later `serve` can still change what holds.
Prints every error, each on a line. Exit code 5 if there is one.";

/// Flags of `config check`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckArgs {
    /// The file
    file: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

/// The answer.
#[derive(Serialize)]
struct Verdict {
    file: String,
    valid: bool,
    errors: Vec<String>,
}

pub(super) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let text = read_config_file(&args.file)?;
    let file = args.file.to_string_lossy().into_owned();
    let errors = Sources { file: Some((&file, &text)), ..Sources::default() }.errors_of_file();
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let verdict = Verdict { file, valid: errors.is_empty(), errors };
    if args.output.json || verdict.valid {
        args.output.print(&verdict, |verdict| format!("{} is valid\n", verdict.file))?;
    }
    if verdict.valid {
        return Ok(());
    }
    Err(Failure::new(Exit::CheckFailed, verdict.errors.join("\n       "))
        .advise("riverrun config docs   (every option with its range)"))
}
