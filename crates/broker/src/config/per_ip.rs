//! Bounds on the connections of single addresses.

use std::fmt;
use std::net::IpAddr;

use super::definition::FromOption;

/// How many connections one address may have.
///
/// Invariants: the address is canonical, so that an IPv4 address is the same however a socket spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionsOfIp {
    /// The address.
    pub ip: IpAddr,
    /// Its connections at most.
    pub connections_max: usize,
}

impl fmt::Display for ConnectionsOfIp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ip {
            IpAddr::V4(ip) => write!(f, "{ip}:{}", self.connections_max),
            IpAddr::V6(ip) => write!(f, "[{ip}]:{}", self.connections_max),
        }
    }
}

/// The error text for a value of another form.
const FORM: &str = "it must be pairs of an IP address and a count, such as 192.0.2.1:100";

impl FromOption for ConnectionsOfIp {
    fn from_option(text: Option<&str>) -> Result<Self, String> {
        let (address, count) = text.and_then(|text| text.rsplit_once(':')).ok_or(FORM)?;
        let bare = address.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let ip: IpAddr = bare.unwrap_or(address.trim()).parse().map_err(|_| FORM)?;
        let connections_max = count.trim().parse().map_err(|_| FORM)?;
        Ok(Self { ip: ip.to_canonical(), connections_max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_prints_what_it_was_parsed_from() {
        for text in ["192.0.2.1:100", "[2001:db8::1]:0"] {
            let bound = ConnectionsOfIp::from_option(Some(text)).expect("valid");
            assert_eq!(bound.to_string(), text);
        }
        for (text, same) in [("::1:5", "[::1]:5"), ("[::ffff:192.0.2.1]: 5", "192.0.2.1:5")] {
            assert_eq!(ConnectionsOfIp::from_option(Some(text)).expect("valid").to_string(), same);
        }
    }

    #[test]
    fn value_without_address_or_count_is_refused() {
        for text in
            ["", "192.0.2.1", "192.0.2.1:", "192.0.2.1:-1", "localhost:5", ":5", "[::1:5", "192.0.2.1:1:2"]
        {
            assert!(ConnectionsOfIp::from_option(Some(text)).is_err(), "{text:?}");
        }
    }
}
