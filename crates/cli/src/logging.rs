//! Diagnostics on stderr, by level and module.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::exit::Failure;

/// Starts logging with the filter that was asked for, or with a default.
pub(crate) fn start(filter: Option<&str>, default: &str) -> Result<(), Failure> {
    let text = filter.unwrap_or(default);
    let filter = EnvFilter::builder().parse(text).map_err(|error| {
        Failure::usage(format!("log level {text:?}: {error}"))
            .advise("--log-level debug, or by module: --log-level warn,riverrun_broker=debug")
    })?;
    let is_terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(is_terminal)
        .init();
    Ok(())
}
