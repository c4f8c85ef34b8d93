//! Flags and forms of values that several commands share.

use std::time::Duration;

use clap::Args;
use riverrun_client::ClusterOptions;

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
    fn a_partition_has_a_number_from_zero_on() {
        assert_eq!(parse_partition("2147483647"), Ok(i32::MAX));
        for wrong in ["-1", "x", "", "1.5", "2147483648"] {
            assert!(parse_partition(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_pair_splits_at_its_first_equals_sign() {
        assert_eq!(parse_pair("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert_eq!(parse_pair("a="), Ok(("a".into(), String::new())));
        for bad in ["", "a", "=b", " =b"] {
            assert!(parse_pair(bad).is_err(), "{bad:?}");
        }
    }
}
