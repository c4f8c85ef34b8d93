//! Checks that a request to the admin port names a host that the port knows. A page in a browser can make a name of its own
//! lead here (DNS rebinding) and read the answers, but its requests name that host.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};

use crate::config::HostName;

/// Whether a request that came in at this address names a known host: this machine itself, that address, or one of `names`.
/// A request without a host comes from no browser, and passes.
pub(super) fn is_known(uri: &Uri, headers: &HeaderMap, here: Option<IpAddr>, names: &[HostName]) -> bool {
    let in_headers = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let mut hosts = uri.authority().map(Authority::as_str).into_iter().chain(in_headers);
    hosts.all(|host| is_host_known(without_port(host), here, names))
}

fn without_port(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or_default();
    }
    match host.split_once(':') {
        // More than one colon is an address without its brackets.
        Some((name, port)) if !port.contains(':') => name,
        _ => host,
    }
}

fn is_host_known(host: &str, here: Option<IpAddr>, names: &[HostName]) -> bool {
    if let Ok(ip) = host.parse::<IpAddr>() {
        let ip = ip.to_canonical();
        return ip.is_loopback() || Some(ip) == here || names.iter().any(|name| name.is(host));
    }
    let host = host.strip_suffix('.').unwrap_or(host);
    host.eq_ignore_ascii_case("localhost") || names.iter().any(|name| name.is(host))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;
    use crate::config::BrokerConfig;

    #[test]
    fn only_requests_that_name_a_known_host_pass() {
        let config = BrokerConfig::from_pairs([("admin.hosts", "metrics.example.org, 198.51.100.7")]);
        let names = config.expect("valid").server.admin_hosts;
        let here = Some("192.0.2.1".parse().expect("an address"));
        for (host, known) in [
            ("localhost", true),
            ("LOCALHOST.:9644", true),
            ("127.0.0.1:9644", true),
            ("127.9.9.9", true),
            ("[::1]:9644", true),
            ("[::ffff:127.0.0.1]", true),
            ("192.0.2.1:80", true),
            ("192.0.2.2", false),
            ("Metrics.Example.org:9644", true),
            ("198.51.100.7", true),
            ("example.org", false),
            ("metrics.example.org.evil.example", false),
            ("localhost.evil.example", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static(host));
            assert_eq!(is_known(&Uri::from_static("/health"), &headers, here, &names), known, "{host}");
            headers.append(header::HOST, HeaderValue::from_static("evil.example"));
            assert!(!is_known(&Uri::from_static("/health"), &headers, here, &names), "{host} and another");
        }
        let absolute = Uri::from_static("http://evil.example/health");
        assert!(!is_known(&absolute, &HeaderMap::new(), here, &names));
        assert!(is_known(&Uri::from_static("/health"), &HeaderMap::new(), here, &names), "no browser");
    }
}
