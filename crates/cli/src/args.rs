//! The command line as a whole.

use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use riverrun_tools::commands::demo::DemoArgs;
use riverrun_tools::commands::{bench, consume, group, perf, produce, queue, topic};
use riverrun_tools::exit::{EXIT_CODES, Failure};

use crate::commands::{config, log, serve};

/// Environment variables with our prefix that set flags of this program and not options of the server.
pub(crate) const OWN_VARIABLES: [&str; 2] = ["RIVERRUN_BOOTSTRAP", "RIVERRUN_LOG"];

const EXAMPLES: &str = "\
Examples:
  riverrun demo                               see it work, in a few seconds
  riverrun serve                              a server on 127.0.0.1:9092
  riverrun topic create clicks --partitions 6
  echo 'me:hello' | riverrun produce clicks --key-separator :
  riverrun consume clicks --from beginning --format key-value
  riverrun group describe my-group";

/// An event log that Kafka's clients can use: the server, and tools for it and for any other Kafka server.
#[derive(Parser, Debug)]
#[command(name = "riverrun", version, after_help = after_help(), max_term_width = 100)]
pub(crate) struct Cli {
    /// Level of the log on stderr: error, warn, info, debug, trace, or by module as `warn,riverrun_broker=debug`
    #[arg(long, global = true, env = "RIVERRUN_LOG", hide_env_values = true, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The command line, and whether failures are printed as JSON. A wrong one that asks for JSON comes back as a failure;
/// any other ends the process with a message, as `--help` does.
pub(crate) fn parse() -> Result<(Cli, bool), Failure> {
    let parsed = Cli::command().try_get_matches().and_then(|matches| {
        let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut Cli::command()))?;
        Ok((cli, wants_json(&matches)))
    });
    parsed.or_else(|error| {
        let again = error.use_stderr().then(|| blind_to_environment(Cli::command()).try_get_matches());
        let error = again.and_then(Result::err).unwrap_or(error);
        if error.use_stderr() && std::env::args_os().any(|arg| arg == "--json") {
            return Err(Failure::usage(in_one_line(&error.render().to_string())));
        }
        error.exit()
    })
}

/// Whether the command, or one within it, has `--json` or `--format json`.
fn wants_json(matches: &ArgMatches) -> bool {
    let flag = matches.try_get_one::<bool>("json").ok().flatten().is_some_and(|flag| *flag);
    let format =
        matches.try_get_raw("format").ok().flatten().into_iter().flatten().any(|text| text == "json");
    flag || format || matches.subcommand().is_some_and(|(_, inner)| wants_json(inner))
}

/// The error alone of a message whose last paragraphs show the usage.
fn in_one_line(message: &str) -> String {
    let message = message.split("\n\nUsage:").next().unwrap_or_default();
    let message = message.split("\n\nFor more information").next().unwrap_or_default();
    let words: Vec<_> = message.strip_prefix("error: ").unwrap_or(message).split_whitespace().collect();
    words.join(" ")
}

/// The usage line of an error names the flags in use, those of the environment as well, which nobody has typed. A hidden
/// flag is parsed and not named.
fn blind_to_environment(command: clap::Command) -> clap::Command {
    command
        .mut_args(|arg| if arg.get_env().is_some() { arg.hide(true) } else { arg })
        .mut_subcommands(blind_to_environment)
}

/// The commands of the program.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a server
    Serve(serve::ServeArgs),
    /// Create, list, describe, alter and delete topics
    #[command(subcommand)]
    Topic(topic::TopicCommand),
    /// Send records: lines, key:value lines or CSV, from stdin or a file
    Produce(produce::ProduceArgs),
    /// Read records of topics
    Consume(consume::ConsumeArgs),
    /// List, describe, reset and delete consumer groups
    #[command(subcommand)]
    Group(group::GroupCommand),
    /// Read and change configuration of topics, groups and servers, and check a server's configuration file
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Dump, verify and repair a server's files, without a server
    #[command(subcommand)]
    Log(log::LogCommand),
    /// Make, write, read, check and measure queues in directories, without a server
    #[command(subcommand)]
    Queue(queue::QueueCommand),
    /// Measure sending and reading, with the flags and output lines of Kafka's own performance tools
    Perf(perf::PerfArgs),
    /// Run workloads and named suites on one or several servers, and make a page of the results
    Bench(bench::BenchArgs),
    /// Start a server, send 60,000 real flights through it, check that all arrived in order, show rates and latencies
    Demo(DemoArgs),
}

impl Command {
    /// The default level: a server logs its doings, a tool only troubles.
    pub(crate) fn default_log_level(&self) -> &'static str {
        if matches!(self, Self::Serve(_)) { "info" } else { "warn" }
    }
}

fn after_help() -> String {
    let codes: Vec<_> =
        EXIT_CODES.iter().map(|(exit, text)| format!("  {:<4} {text}", *exit as u8)).collect();
    format!("{EXAMPLES}\n\nExit codes:\n{}", codes.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_passes_claps_own_check() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_variable_of_a_flag_is_known_to_the_server() {
        fn of(command: &clap::Command) -> Vec<String> {
            let own = command.get_arguments().filter_map(|arg| Some(arg.get_env()?.to_str()?.to_owned()));
            own.chain(command.get_subcommands().flat_map(of)).collect()
        }
        for name in of(&Cli::command()) {
            assert!(OWN_VARIABLES.contains(&name.as_str()), "{name}");
        }
    }

    #[test]
    fn json_is_wanted_by_the_flag_or_the_commands_own_format() {
        for (line, wanted) in [
            (&["topic", "list", "--json"][..], true),
            (&["topic", "list"], false),
            (&["consume", "json", "--json"], true),
            (&["consume", "json", "--format", "json"], true),
            (&["consume", "json", "--format", "hex"], false),
            (&["config", "docs"], false),
        ] {
            let matches = Cli::command().try_get_matches_from([&["riverrun"], line].concat());
            assert_eq!(wants_json(&matches.expect("a right line")), wanted, "{line:?}");
        }
    }

    #[test]
    fn a_wrong_partition_number_is_refused_with_its_range() {
        for command in ["produce", "consume"] {
            for wrong in ["-1", "x", "", "1.5", "2147483648"] {
                let parsed = Cli::try_parse_from(["riverrun", command, "t", "--partition", wrong]);
                let told = parsed.expect_err(wrong).to_string();
                assert!(told.contains("it must be a number from 0 to 2147483647"), "{command}: {told}");
            }
        }
    }

    #[test]
    fn every_command_has_help_and_the_exit_codes_are_in_the_first() {
        let help = Cli::command().render_long_help().to_string();
        for text in ["Exit codes:", "  5    a check found", "riverrun demo"] {
            assert!(help.contains(text), "{text} in {help}");
        }
        for command in Cli::command().get_subcommands() {
            assert!(command.get_about().is_some(), "{}", command.get_name());
        }
    }
}
