//! Settings of Kafka's clients that are refused.
//!
//! A setting that this client lacks may be left out if the measurement is the same without it. These are the others: a
//! file that asks for an encrypted connection, a login or transactions is refused, and gets no plain connection in
//! their place.

use crate::properties::Properties;

/// The reason for refusing a transactional workload.
pub(crate) const NO_TRANSACTIONS: &str =
    "transactions are not supported by this client, and without them the figures would be of other work";

/// Prefixes of names, and the reasons for refusing settings of such names.
const REFUSED: [(&str, &str); 4] = [
    ("security.", "this client neither encrypts nor logs in yet"),
    ("ssl.", "this client does not encrypt yet"),
    ("sasl.", "this client does not log in yet"),
    ("transactional.", NO_TRANSACTIONS),
];

/// The first setting that is refused, with the reason. Leaves out its value, which may be a password.
pub fn refusal(settings: &Properties) -> Option<String> {
    settings.iter().find_map(|(name, value)| {
        let harmless = name == "security.protocol" && value.eq_ignore_ascii_case("PLAINTEXT");
        let (_, reason) = REFUSED.iter().find(|(begin, _)| name.starts_with(begin) && !harmless)?;
        Some(format!("{name}: {reason}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encryption_login_and_transactions_are_refused() {
        for line in
            ["security.protocol=SSL", "sasl.mechanism=PLAIN", "ssl.key.password=hush", "transactional.id=t"]
        {
            let told = refusal(&Properties::parse(&format!("acks=1\n{line}"))).expect(line);
            assert!(line.starts_with(told.split(':').next().expect("a name")), "{told}");
            assert!(!told.contains("hush"), "{told}");
        }
        for line in ["security.protocol=PLAINTEXT", "acks=all", "transaction.timeout.ms=1"] {
            assert_eq!(refusal(&Properties::parse(line)), None);
        }
    }
}
