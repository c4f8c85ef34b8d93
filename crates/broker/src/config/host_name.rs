//! Names of hosts.

use std::fmt;

use super::definition::FromOption;
use super::listener::parse_host;

/// A host's name or address, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName(String);

impl HostName {
    /// Whether this names the same host, in whatever case.
    pub fn is(&self, host: &str) -> bool {
        self.0.eq_ignore_ascii_case(host)
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromOption for HostName {
    fn from_option(text: Option<&str>) -> Result<Self, String> {
        let host = text.unwrap_or_default().trim();
        match parse_host(host) {
            Ok(name) if !name.is_empty() => Ok(Self(name.to_ascii_lowercase())),
            _ => Err("it must be a host's name or address, without a port".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_without_a_port() {
        for (text, name) in
            [("Metrics.example.org", "metrics.example.org"), ("192.0.2.1", "192.0.2.1"), ("[::1]", "::1")]
        {
            assert_eq!(HostName::from_option(Some(text)).expect("valid").to_string(), name);
        }
        for text in ["", "host:9644", "a/b", "*"] {
            assert!(HostName::from_option(Some(text)).is_err(), "{text:?}");
        }
    }
}
