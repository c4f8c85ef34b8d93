//! Listeners: the addresses this server binds, and those it tells clients.

use std::fmt;

use super::definition::FromOption;

/// One listener, `NAME://host:port`. IPv6 addresses stand in brackets.
///
/// Invariants: the name is not empty and has only letters, digits, `_`, `-` and `.`; the host holds no brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its name: it joins `listeners` and `advertised.listeners`.
    pub name: String,
    /// Host name or address. Empty means every interface.
    pub host: String,
    /// Port; 0 asks the system for a free one.
    pub port: u16,
}

impl Listener {
    /// Whether the host stands for every interface, and so cannot be told to a client.
    pub fn is_wildcard(&self) -> bool {
        matches!(self.host.as_str(), "" | "0.0.0.0" | "::")
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "{}://[{}]:{}", self.name, self.host, self.port)
        } else {
            write!(f, "{}://{}:{}", self.name, self.host, self.port)
        }
    }
}

/// The error text for a value of another form.
const FORM: &str = "it must be NAME://host:port, such as PLAINTEXT://127.0.0.1:9092";
/// Protocol names whose listeners would have to encrypt or authenticate.
const SECURE_NAMES: [&str; 3] = ["SSL", "SASL_PLAINTEXT", "SASL_SSL"];

impl FromOption for Listener {
    fn from_option(text: Option<&str>) -> Result<Self, String> {
        let (name, address) = text.and_then(|text| text.trim().split_once("://")).ok_or(FORM)?;
        let name = name.to_ascii_uppercase();
        let is_name_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.is_empty() || !name.chars().all(is_name_char) {
            return Err(FORM.to_owned());
        }
        if SECURE_NAMES.contains(&name.as_str()) {
            return Err(format!("{name} listeners are not supported yet; connections are plain text"));
        }
        let (host, port) = address.rsplit_once(':').ok_or(FORM)?;
        let port = port.parse().map_err(|_| FORM)?;
        Ok(Self { name, host: parse_host(host)?, port })
    }
}

pub(super) fn parse_host(host: &str) -> Result<String, String> {
    if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse::<std::net::Ipv6Addr>().map(|_| inner.to_owned()).map_err(|_| FORM.to_owned());
    }
    let is_host_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if host.chars().all(is_host_char) && host.len() <= 253 {
        Ok(host.to_owned())
    } else {
        Err(FORM.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Listener, String> {
        Listener::from_option(Some(text))
    }

    #[test]
    fn a_listener_prints_what_it_was_parsed_from() {
        for text in [
            "PLAINTEXT://127.0.0.1:9092",
            "INTERNAL://[::1]:0",
            "EXTERNAL://broker-1.example.org:19092",
            "PLAINTEXT://:9092",
        ] {
            assert_eq!(parse(text).map(|listener| listener.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn a_malformed_listener_is_refused() {
        for text in [
            "",
            "9092",
            "127.0.0.1:9092",
            "PLAINTEXT://host",
            "PLAINTEXT://host:99999",
            "://host:1",
            "A B://h:1",
            "P://[::1:9092",
            "P://a/b:1",
            "P://::1:9092",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_listener_that_would_have_to_encrypt_is_refused() {
        let reason = parse("SASL_SSL://127.0.0.1:9093").expect_err("refused");
        assert!(reason.contains("not supported yet"), "{reason}");
    }

    #[test]
    fn a_wildcard_cannot_be_advertised() {
        for (text, wildcard) in
            [("P://:1", true), ("P://0.0.0.0:1", true), ("P://[::]:1", true), ("P://127.0.0.1:1", false)]
        {
            assert_eq!(parse(text).expect("valid").is_wildcard(), wildcard, "{text}");
        }
    }
}
