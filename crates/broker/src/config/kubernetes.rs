//! The environment variables that Kubernetes makes for each Service of a namespace: beside a Service `riverrun`, or
//! `riverrun-admin`, they begin as ours do.
//!
//! A name of a documented form is taken for such a variable whatever its value is; any other name, mistyped or meant as an
//! option, is still refused. The exception is a name that only ends with `_PORT`: somebody may mean an option by it, so its
//! value has to have the documented form as well.
//! <https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables>

use std::net::IpAddr;

/// Each protocol as a variable's name spells it, and as its value does.
const PROTOCOLS: [(&str, &str); 3] = [("TCP", "tcp"), ("UDP", "udp"), ("SCTP", "sctp")];

/// Whether a variable is one that Kubernetes makes for a Service.
pub(super) fn is_of_service(variable: &str, value: &str) -> bool {
    variable.ends_with("_SERVICE_HOST")
        || is_of_service_port(variable)
        || is_of_port(variable)
        || variable.ends_with("_PORT") && is_link(value)
}

/// `_SERVICE_PORT`, or with the name of a port behind it.
fn is_of_service_port(variable: &str) -> bool {
    const WORD: &str = "_SERVICE_PORT";
    variable.split_once(WORD).is_some_and(|(_, named)| {
        named.is_empty() || named.strip_prefix('_').is_some_and(|name| !name.is_empty())
    })
}

/// `_PORT_9092_TCP`, alone or with `_PROTO`, `_PORT` or `_ADDR` behind it.
fn is_of_port(variable: &str) -> bool {
    let Some((_, port_and_more)) = variable.split_once("_PORT_") else { return false };
    let Some((number, protocol_and_more)) = port_and_more.split_once('_') else { return false };
    let of = PROTOCOLS.iter().find_map(|(name, _)| protocol_and_more.strip_prefix(name));
    is_port(number) && of.is_some_and(|of| matches!(of, "" | "_PROTO" | "_PORT" | "_ADDR"))
}

fn is_ip(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

/// `tcp://10.0.0.11:9092`; an IPv6 address stands in brackets, or, as older releases write it, without.
fn is_link(value: &str) -> bool {
    let address = PROTOCOLS.iter().find_map(|(_, scheme)| value.strip_prefix(scheme)?.strip_prefix("://"));
    let parts = address.and_then(|address| address.rsplit_once(':'));
    parts.is_some_and(|(host, port)| is_ip(host.trim_matches(['[', ']'])) && is_port(port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_a_service_are_recognised() {
        for (variable, value) in [
            ("RIVERRUN_SERVICE_HOST", "10.0.0.11"),
            ("RIVERRUN_SERVICE_PORT", "9092"),
            ("RIVERRUN_SERVICE_PORT_KAFKA", "9092"),
            ("RIVERRUN_PORT", "tcp://10.0.0.11:9092"),
            ("RIVERRUN_PORT_9092_TCP", "tcp://10.0.0.11:9092"),
            ("RIVERRUN_PORT_9092_TCP_PROTO", "tcp"),
            ("RIVERRUN_PORT_9092_TCP_PORT", "9092"),
            ("RIVERRUN_PORT_9092_TCP_ADDR", "10.0.0.11"),
            ("RIVERRUN_ADMIN_SERVICE_HOST", "fd00::1"),
            ("RIVERRUN_PORT", "udp://[fd00::1]:9644"),
            ("RIVERRUN_ADMIN_PORT_9644_UDP", "udp://[fd00::1]:9644"),
        ] {
            assert!(is_of_service(variable, value), "{variable}={value}");
        }
    }

    #[test]
    fn name_alone_identifies_a_variable_of_a_service() {
        for variable in [
            "RIVERRUN_SERVICE_HOST",
            "RIVERRUN_SERVICE_PORT",
            "RIVERRUN_SERVICE_PORT_KAFKA",
            "RIVERRUN_PORT_9092_TCP",
            "RIVERRUN_PORT_9092_TCP_PROTO",
            "RIVERRUN_PORT_9092_TCP_PORT",
            "RIVERRUN_PORT_9092_TCP_ADDR",
        ] {
            assert!(is_of_service(variable, "x"), "{variable}");
        }
    }

    #[test]
    fn similar_variables_are_not_taken_for_those_of_a_service() {
        for (variable, value) in [
            ("RIVERRUN_SERVICE_HOSTS", "10.0.0.11"),
            ("RIVERRUN_SERVICE_PORT_", "9092"),
            ("RIVERRUN_PORT", "9092"),
            ("RIVERRUN_PORT", "http://10.0.0.11:9092"),
            ("RIVERRUN_PORT_9092", "9092"),
            ("RIVERRUN_PORT_9092_TCPS", "tcp://10.0.0.11:9092"),
            ("RIVERRUN_PORT_9092_TCP_HOST", "10.0.0.11"),
            ("RIVERRUN_PORT_99999_TCP", "tcp://10.0.0.11:9092"),
            ("RIVERRUN_NUM_PARTITION", "3"),
        ] {
            assert!(!is_of_service(variable, value), "{variable}={value}");
        }
    }
}
