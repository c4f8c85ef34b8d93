//! `bench list`: the suites in the binary.

use clap::Args;
use riverrun_bench::suite::{Scenario, embedded, find};
use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::text::output::{OutputArgs, print_text};

#[derive(Args, Debug)]
pub(super) struct ListArgs {
    /// Show the files of this suite or scenario, such as B or A/catch-up
    name: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

/// A scenario as JSON has it.
#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    about: String,
    runs: Vec<String>,
    file: String,
}

impl Listed {
    fn of(scenario: &Scenario) -> Result<Self, Failure> {
        let cases = scenario.cases()?;
        Ok(Self {
            name: scenario.path(),
            about: scenario.about.trim().to_owned(),
            runs: cases.into_iter().map(|case| case.workload.name).collect(),
            file: scenario.text.clone(),
        })
    }
}

pub(super) fn run(args: &ListArgs) -> Result<(), Failure> {
    let scenarios = args.name.as_deref().map_or_else(embedded, find);
    if scenarios.is_empty() {
        let name = args.name.as_deref().unwrap_or_default();
        return Err(Failure::new(Exit::NotFound, format!("there is no suite or scenario {name}")));
    }
    let listed: Vec<_> = scenarios.iter().map(Listed::of).collect::<Result<_, _>>()?;
    args.output.print(&listed, |listed| if args.name.is_some() { files(listed) } else { lines(listed) })?;
    if args.name.is_none() && !args.output.json {
        print_text(
            "\nriverrun bench run A runs a suite, riverrun bench run A/catch-up one scenario of it.\n",
        )?;
    }
    Ok(())
}

fn lines(listed: &[Listed]) -> String {
    let width = listed.iter().map(|one| one.name.len()).max().unwrap_or(0);
    let line = |one: &Listed| format!("{:width$}  {:>3} runs  {}\n", one.name, one.runs.len(), one.about);
    listed.iter().map(line).collect()
}

fn files(listed: &[Listed]) -> String {
    listed.iter().map(|one| one.file.as_str()).collect::<Vec<_>>().join("\n")
}
