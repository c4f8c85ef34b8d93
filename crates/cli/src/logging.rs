//! Diagnostics on stderr, by level and module.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::exit::Failure;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Starts logging with the filter that was asked for, or with a default.
pub(crate) fn start(filter: Option<&str>, default: &str) -> Result<(), Failure> {
    let filter = parse(filter.unwrap_or(default))?;
    let is_terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(is_terminal)
        .init();
    Ok(())
}

fn parse(text: &str) -> Result<EnvFilter, Failure> {
    let failed = |reason: &str| {
        Failure::usage(format!("log level {text:?}: {reason}"))
            .advise("--log-level debug, or by module: --log-level warn,riverrun_broker=debug")
    };
    // The filter would take an unknown word for a module and log all of it, and nothing of the others.
    let is_known = |part: &str| part.contains('=') || LEVELS.contains(&part.to_ascii_lowercase().as_str());
    if let Some(part) = text.split(',').find(|part| !is_known(part.trim())) {
        return Err(failed(&format!("{part:?} is none of {}", LEVELS.join(", "))));
    }
    EnvFilter::builder().parse(text).map_err(|error| failed(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_a_known_word_alone_or_for_a_module() {
        for good in ["info", "WARN", "off", "warn,riverrun_broker=debug", "riverrun_log=trace"] {
            assert!(parse(good).is_ok(), "{good:?}");
        }
        for bad in ["", "loud", "riverrun_broker", "warn,", "a=loud", "warn,loud"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
