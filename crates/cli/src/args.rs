//! The command line as a whole: commands, and the flags that several of them share.

use std::time::Duration;

use clap::{ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use riverrun_client::ClusterOptions;

use crate::commands::{bench, config, consume, demo, group, log, perf, produce, queue, serve, topic};
use crate::exit::{EXIT_CODES, Failure};

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
    /// What to log on stderr: error, warn, info, debug, trace, or by module as `warn,riverrun_broker=debug`
    #[arg(long, global = true, env = "RIVERRUN_LOG", hide_env_values = true, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The command line, and whether failures are told in JSON. A wrong one that asks for JSON comes back as a failure;
/// otherwise it ends the process with a message, as the wish for help does.
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

/// The error in a message of several paragraphs, of which the last ones tell the usage.
fn in_one_line(message: &str) -> String {
    let message = message.split("\n\nUsage:").next().unwrap_or_default();
    let message = message.split("\n\nFor more information").next().unwrap_or_default();
    let words: Vec<_> = message.strip_prefix("error: ").unwrap_or(message).split_whitespace().collect();
    words.join(" ")
}

/// The usage line of an error names the flags that are in use, those of the environment as well: whoever reads it
/// has typed none of them. A hidden one is parsed and not named.
fn blind_to_environment(command: clap::Command) -> clap::Command {
    command
        .mut_args(|arg| if arg.get_env().is_some() { arg.hide(true) } else { arg })
        .mut_subcommands(blind_to_environment)
}

/// What there is to do.
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
    #[command(subcommand)]
    Perf(perf::PerfCommand),
    /// Run workloads and named suites on one or several servers, and make a page of the results
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Start a server, send 60,000 real flights through it, check that all arrived in order, show rates and latencies
    Demo(demo::DemoArgs),
}

impl Command {
    /// What is logged where nobody says: a server tells what it does, a tool only what is wrong.
    pub(crate) fn default_log_level(&self) -> &'static str {
        if matches!(self, Self::Serve(_)) { "info" } else { "warn" }
    }
}

fn after_help() -> String {
    let codes: Vec<_> =
        EXIT_CODES.iter().map(|(exit, text)| format!("  {:<4} {text}", *exit as u8)).collect();
    format!("{EXAMPLES}\n\nExit codes:\n{}", codes.join("\n"))
}

/// How to reach a server.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClientArgs {
    /// One or more servers to begin with, separated by commas
    #[arg(
        long,
        env = "RIVERRUN_BOOTSTRAP",
        hide_env_values = true,
        value_name = "HOST:PORT",
        value_parser = parse_bootstrap,
        default_value = "127.0.0.1:9092"
    )]
    bootstrap: String,
    /// Seconds to wait for an answer
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

impl ClientArgs {
    /// How long to wait for an answer.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// The same as the client library takes it.
    pub(crate) fn cluster(&self) -> ClusterOptions {
        let timeout = self.timeout();
        let defaults = ClusterOptions::new(&self.bootstrap);
        ClusterOptions {
            connect_timeout: defaults.connect_timeout.min(timeout),
            request_timeout: timeout,
            retry_timeout: timeout,
            ..defaults
        }
    }
}

/// Servers that each name a port.
fn parse_bootstrap(text: &str) -> Result<String, String> {
    for server in text.split(',').map(str::trim).filter(|server| !server.is_empty()) {
        let port = server.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
        if !port.is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port > 0)) {
            return Err(format!("{server:?} is not of the form HOST:PORT, such as 127.0.0.1:9092"));
        }
    }
    Ok(text.to_owned())
}

/// The number of a partition.
pub(crate) fn parse_partition(text: &str) -> Result<i32, String> {
    let number = text.parse().ok().filter(|number: &i32| *number >= 0);
    number.ok_or_else(|| format!("it must be a number from 0 to {}", i32::MAX))
}

/// Splits `key=value`, as several flags take it.
pub(crate) fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err("it must be of the form key=value".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_a_port_is_refused_by_name() {
        for good in ["a:1", "127.0.0.1:9092", "[::1]:9092", "a:1, b:2,"] {
            assert_eq!(parse_bootstrap(good).as_deref(), Ok(good));
        }
        for bad in ["127.0.0.1", "a", ":9092", "a:", "a:0", "a:70000", "a:1,b"] {
            assert!(parse_bootstrap(bad).is_err_and(|error| error.contains("HOST:PORT")), "{bad}");
        }
    }

    #[test]
    fn the_definition_of_the_command_line_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn json_is_wanted_by_the_flag_or_the_format_of_the_command_itself() {
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
    fn a_wrong_number_of_a_partition_is_told_what_it_must_be() {
        for command in ["produce", "consume"] {
            for wrong in ["-1", "x", "", "1.5", "2147483648"] {
                let parsed = Cli::try_parse_from(["riverrun", command, "t", "--partition", wrong]);
                let told = parsed.expect_err(wrong).to_string();
                assert!(told.contains("it must be a number from 0 to 2147483647"), "{command}: {told}");
            }
        }
        assert_eq!(parse_partition("2147483647"), Ok(i32::MAX));
    }

    #[test]
    fn a_pair_splits_at_its_first_equals_sign() {
        assert_eq!(parse_pair("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert_eq!(parse_pair("a="), Ok(("a".into(), String::new())));
        for bad in ["", "a", "=b", " =b"] {
            assert!(parse_pair(bad).is_err(), "{bad:?}");
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
