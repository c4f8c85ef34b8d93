//! A source: whom an address stands for, where connections are to share something fairly.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bits of an IPv6 address that name a network; the owner of a network has all of its addresses.
const NETWORK_BITS: u32 = 64;

/// Bits of the networks that a source of IPv4, or of IPv6, lies in: that of a provider, and that of a customer.
const WIDER_BITS_V4: [u32; 2] = [16, 24];
const WIDER_BITS_V6: [u32; 2] = [32, 48];

/// One machine, as far as addresses tell: an IPv4 address, however a socket spells it, or a /64 of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Source(IpAddr);

impl Source {
    /// Any one.
    #[cfg(test)]
    pub(crate) const SOME: Self = Self(IpAddr::V6(Ipv6Addr::LOCALHOST));

    /// The source that has this address.
    pub(crate) fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(ip) if !ip.is_loopback() => {
                IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << NETWORK_BITS)))
            }
            other => other,
        })
    }

    /// The networks that it lies in, by their first addresses, the wider one first. An owner of many addresses has them in few of
    /// these.
    pub(crate) fn networks(self) -> [IpAddr; 2] {
        match self.0 {
            IpAddr::V4(ip) => WIDER_BITS_V4
                .map(|bits| Ipv4Addr::from_bits(ip.to_bits() & (u32::MAX << (u32::BITS - bits))).into()),
            IpAddr::V6(ip) => WIDER_BITS_V6
                .map(|bits| Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << (u128::BITS - bits))).into()),
        }
    }
}

impl From<Source> for IpAddr {
    /// An address of it, the same one whichever address it was made of.
    fn from(source: Source) -> Self {
        source.0
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V6(ip) if !ip.is_loopback() => write!(f, "{ip}/{NETWORK_BITS}"),
            other => write!(f, "{other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_is_an_ipv4_address_however_spelt_or_an_ipv6_network() {
        for (address, source) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("::1", "::1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ] {
            assert_eq!(Source::of(address.parse().expect("an address")).to_string(), source);
        }
    }

    #[test]
    fn a_source_lies_in_networks() {
        for (address, networks) in
            [("192.0.2.1", ["192.0.0.0", "192.0.2.0"]), ("2001:db8:1:2::9", ["2001:db8::", "2001:db8:1::"])]
        {
            let source = Source::of(address.parse().expect("an address"));
            assert_eq!(source.networks().map(|network| network.to_string()), networks);
        }
    }
}
