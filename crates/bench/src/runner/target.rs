//! A server to measure, as named on a command line.

use std::str::FromStr;

use crate::environment::is_here;

/// A server to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTarget {
    /// Its name in results.
    pub name: String,
    /// Its address: one or more `host:port`, separated by commas.
    pub bootstrap: String,
    /// Its process on this machine, whose processor time and memory are watched.
    pub pid: Option<u32>,
}

impl ServerTarget {
    /// Whether it is on this machine, as a named process is.
    pub async fn is_here(&self) -> bool {
        self.pid.is_some() || is_here(&self.bootstrap).await
    }
}

/// The mistake in a server's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}: {reason}; it must be of the form NAME=HOST:PORT or NAME=HOST:PORT@PID")]
pub struct ParseTargetError {
    text: String,
    reason: &'static str,
}

impl FromStr for ServerTarget {
    type Err = ParseTargetError;

    /// Reads `name=host:port`, or `name=host:port@pid`. Without a name the address is used as the name.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = |reason| ParseTargetError { text: text.to_owned(), reason };
        let (name, rest) = text.split_once('=').unwrap_or(("", text));
        let (bootstrap, pid) = match rest.split_once('@') {
            Some((bootstrap, pid)) => {
                (bootstrap, Some(pid.parse().map_err(|_| refused("the process id is no number"))?))
            }
            None => (rest, None),
        };
        let is_address = |address: &str| {
            address
                .trim()
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        if !bootstrap.split(',').all(is_address) {
            return Err(refused("there is no address in it"));
        }
        let name = if name.trim().is_empty() { bootstrap } else { name.trim() };
        Ok(Self { name: name.to_owned(), bootstrap: bootstrap.to_owned(), pid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_a_name_an_address_and_perhaps_a_process() {
        let server = |name: &str, bootstrap: &str, pid| ServerTarget {
            name: name.to_owned(),
            bootstrap: bootstrap.to_owned(),
            pid,
        };
        for (text, expected) in [
            ("kafka=localhost:9092@77", server("kafka", "localhost:9092", Some(77))),
            ("ours=a:1,b:2", server("ours", "a:1,b:2", None)),
            ("localhost:9092", server("localhost:9092", "localhost:9092", None)),
        ] {
            assert_eq!(text.parse(), Ok(expected));
        }
        for bad in ["", "a", "x=", "x=host", "x=host:1@me", "x=:9", "x=a:1,b"] {
            assert!(bad.parse::<ServerTarget>().is_err(), "{bad}");
        }
    }
}
