//! Settings of Kafka's clients that no run is made with.
//!
//! A setting that this client lacks may be left out where the same is measured without it. These are the others: who asks
//! for an encrypted connection, a login or transactions is refused, and gets no plain connection in their place.

use crate::properties::Properties;

/// Why a transactional workload is not run.
pub(crate) const NO_TRANSACTIONS: &str =
    "transactions are not supported by this client, and without them the figures would be of other work";

/// Begins of names, and why settings of such a name are refused.
const REFUSED: [(&str, &str); 4] = [
    ("security.", "this client neither encrypts nor logs in yet"),
    ("ssl.", "this client does not encrypt yet"),
    ("sasl.", "this client does not log in yet"),
    ("transactional.", NO_TRANSACTIONS),
];

/// The first setting that is refused, with the reason. Its value is not told: it may be a password.
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
    fn what_would_be_another_connection_or_other_work_is_refused_by_name() {
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
