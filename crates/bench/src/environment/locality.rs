//! Whether a server, or a worker, runs on this machine: only then do figures of this machine describe it.

use std::net::{IpAddr, UdpSocket};

/// True if each of these `host:port`, separated by commas, is an address of this machine. An address that cannot be
/// resolved is not.
pub async fn is_here(addresses: &str) -> bool {
    for address in addresses.split(',') {
        let found = tokio::net::lookup_host(address.trim()).await;
        if !found.is_ok_and(|mut all| all.any(|one| is_own(one.ip()))) {
            return false;
        }
    }
    true
}

/// A system binds its own addresses, and no others.
fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_addresses_of_this_machine_are_here() {
        assert!(is_here("127.0.0.1:9092").await && is_here("127.0.0.1:1, 127.0.0.2:2").await);
        // Reserved for documentation: no machine has this address.
        assert!(!is_here("192.0.2.1:9092").await);
        assert!(!is_here("127.0.0.1:1,192.0.2.1:9092").await, "one of them is elsewhere");
        assert!(!is_here("no address").await);
    }
}
