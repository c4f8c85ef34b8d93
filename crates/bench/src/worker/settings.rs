//! From settings by Kafka's names to those of the client.
//!
//! A setting that the client does not have is no error, since files are written for other clients: it is left out and
//! told. A value that it does not take is one.

use riverrun_client::{ClientError, ClusterOptions, ConsumerOptions, OptionDef, ProducerOptions};

use crate::properties::Properties;

/// Settings that name classes of Java, or what they do, and mean nothing to anybody else.
const JAVA_ONLY: [&str; 4] = ["key.serializer", "value.serializer", "key.deserializer", "value.deserializer"];

/// The settings that the client has, with the servers, and the names of the others.
fn known(
    settings: &Properties,
    tables: &[&[OptionDef]],
    bootstrap: &str,
) -> (Vec<(String, String)>, Vec<String>) {
    let is_ours = |name: &str| tables.iter().any(|table| table.iter().any(|one| one.name == name));
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for (name, value) in settings.iter() {
        if name == "bootstrap.servers" || JAVA_ONLY.contains(&name) {
            continue;
        }
        if is_ours(name) {
            known.push((name.to_owned(), value.to_owned()));
        } else {
            unknown.push(name.to_owned());
        }
    }
    known.push(("bootstrap.servers".to_owned(), bootstrap.to_owned()));
    (known, unknown)
}

/// How a producer is set, and which settings it does not have.
pub(crate) fn producer(
    settings: &Properties,
    bootstrap: &str,
) -> Result<(ProducerOptions, Vec<String>), ClientError> {
    let tables = [ProducerOptions::DEFINITIONS, ClusterOptions::DEFINITIONS];
    let (known, unknown) = known(settings, &tables, bootstrap);
    let pairs = known.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    Ok((ProducerOptions::from_properties(pairs)?, unknown))
}

/// How a consumer is set, and which settings it does not have.
pub(crate) fn consumer(
    settings: &Properties,
    bootstrap: &str,
) -> Result<(ConsumerOptions, Vec<String>), ClientError> {
    let tables = [ConsumerOptions::DEFINITIONS, ClusterOptions::DEFINITIONS];
    let (known, unknown) = known(settings, &tables, bootstrap);
    let mut options = ConsumerOptions::new(ClusterOptions::new(bootstrap));
    for (name, value) in &known {
        options.set(name, value)?;
    }
    Ok((options, unknown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_other_clients_are_told_and_wrong_values_refused() {
        let settings = Properties::parse(
            "acks=1\nlinger.ms=7\nsend.buffer.bytes=9\nkey.serializer=x\nbootstrap.servers=y",
        );
        let (options, unknown) = producer(&settings, "a:1").expect("known ones are right");
        assert_eq!(options.get("linger.ms").as_deref(), Some("7"));
        assert_eq!(options.cluster.bootstrap, ["a:1"]);
        assert_eq!(unknown, ["send.buffer.bytes"]);
        assert!(producer(&Properties::parse("linger.ms=soon"), "a:1").is_err());
        let (options, unknown) =
            consumer(&Properties::parse("fetch.min.bytes=5\nacks=1"), "a:1").expect("known ones are right");
        assert_eq!((options.fetch_min_bytes, unknown), (5, vec!["acks".to_owned()]));
    }
}
