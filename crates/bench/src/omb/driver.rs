//! A driver: the settings of a workload's clients and topics.
//!
//! Owns the file's keys. Refuses drivers of other systems, whose settings have no meaning here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::input::{InputError, from_yaml};
use crate::properties::Properties;
use crate::unsupported::{NO_TRANSACTIONS, refusal};

/// The class of every driver for Kafka's protocol; only its last part is compared.
const KAFKA_DRIVER: &str = "KafkaBenchmarkDriver";
/// The key by which some descendants of the original make producers write in transactions.
const TRANSACTIONS: &str = "useTransactions";
/// Placeholder in a `client.id` for the zone of the client.
const ZONE: &str = "{zone.id}";

/// A driver as its file has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Driver {
    /// Its name.
    pub name: String,
    /// The original's class.
    pub driver_class: String,
    /// Replicas of each partition.
    pub replication_factor: i16,
    /// Configs of the topics, as Java properties.
    pub topic_config: String,
    /// Settings of all clients, as Java properties.
    pub common_config: String,
    /// Settings of producers.
    pub producer_config: String,
    /// Settings of consumers.
    pub consumer_config: String,
    /// Whether the original deletes topics of earlier runs; here every run deletes its own.
    pub reset: bool,

    /// Other keys of the file.
    #[serde(flatten, skip_serializing)]
    unknown: BTreeMap<String, Value>,
}

impl Default for Driver {
    /// The driver of a run without a driver file: the client's defaults.
    fn default() -> Self {
        Self {
            name: "Kafka".to_owned(),
            driver_class: KAFKA_DRIVER.to_owned(),
            replication_factor: 1,
            topic_config: String::new(),
            common_config: String::new(),
            producer_config: String::new(),
            consumer_config: String::new(),
            reset: false,
            unknown: BTreeMap::new(),
        }
    }
}

impl Driver {
    /// Reads a driver; `file` is for errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, InputError> {
        let driver: Self = from_yaml(file, text)?;
        driver.checked(file)
    }

    /// The driver, if it is one for Kafka.
    pub fn checked(self, file: &str) -> Result<Self, InputError> {
        if self.driver_class.rsplit('.').next() != Some(KAFKA_DRIVER) {
            let reason = format!("{} is no driver for Kafka's protocol", self.driver_class);
            return Err(InputError::refused(file, reason));
        }
        if self.replication_factor < 1 {
            return Err(InputError::refused(file, "replicationFactor is at least 1"));
        }
        if self.unknown.get(TRANSACTIONS).is_some_and(|value| *value == Value::Bool(true)) {
            return Err(InputError::refused(file, format!("{TRANSACTIONS}: {NO_TRANSACTIONS}")));
        }
        let of_consumer = || refusal(&self.consumer_settings(""));
        match refusal(&self.producer_settings("")).or_else(of_consumer) {
            Some(reason) => Err(InputError::refused(file, reason)),
            None => Ok(self),
        }
    }

    /// Configs of the topics.
    pub fn topic_configs(&self) -> Properties {
        Properties::parse(&self.topic_config)
    }

    /// Settings of producers, those of all clients included.
    pub fn producer_settings(&self, zone: &str) -> Properties {
        self.common(zone).with(&Properties::parse(&self.producer_config))
    }

    /// Settings of consumers, those of all clients included.
    pub fn consumer_settings(&self, zone: &str) -> Properties {
        self.common(zone).with(&Properties::parse(&self.consumer_config))
    }

    /// Settings of all clients.
    pub fn common(&self, zone: &str) -> Properties {
        let mut common = Properties::parse(&self.common_config);
        if let Some(id) = common.get("client.id").map(|id| id.replace(ZONE, zone)) {
            common.set("client.id", id);
        }
        common
    }

    /// Bootstrap addresses, if the file names them.
    pub fn bootstrap(&self) -> Option<String> {
        self.common("").get("bootstrap.servers").map(str::to_owned)
    }

    /// Settings that were read and have no effect, for people.
    pub fn notes(&self) -> Vec<String> {
        self.unknown.keys().map(|key| format!("driver: unknown key {key} is ignored")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "name: Kafka-exactly-once
driverClass: io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver
replicationFactor: 3
topicConfig: |
  min.insync.replicas=2
commonConfig: |
  bootstrap.servers=localhost:9092
  client.id=omb-client_az={zone.id}
producerConfig: |
  acks=all
  linger.ms=1
consumerConfig: |
  auto.offset.reset=earliest
";

    #[test]
    fn file_of_the_original_is_read() {
        let driver = Driver::parse("d.yaml", SAMPLE).expect("the file is right");
        assert_eq!((driver.name.as_str(), driver.replication_factor), ("Kafka-exactly-once", 3));
        assert_eq!(driver.topic_configs().get("min.insync.replicas"), Some("2"));
        let producer = driver.producer_settings("a");
        assert_eq!((producer.get("acks"), producer.get("linger.ms")), (Some("all"), Some("1")));
        assert_eq!(producer.get("client.id"), Some("omb-client_az=a"));
        assert_eq!(driver.consumer_settings("a").get("auto.offset.reset"), Some("earliest"));
        assert_eq!(driver.bootstrap().as_deref(), Some("localhost:9092"));
    }

    #[test]
    fn unknown_keys_are_noted_and_other_systems_refused() {
        let driver = Driver::parse("d.yaml", &format!("{SAMPLE}colour: blue\n")).expect("it is no error");
        assert_eq!(driver.notes(), ["driver: unknown key colour is ignored"]);
        let pulsar = SAMPLE.replace("kafka.KafkaBenchmarkDriver", "pulsar.PulsarBenchmarkDriver");
        let error = Driver::parse("p.yaml", &pulsar).expect_err("another system");
        assert!(error.to_string().contains("PulsarBenchmarkDriver is no driver for Kafka"), "{error}");
    }

    #[test]
    fn transactional_driver_is_refused_with_its_reason() {
        let setting = SAMPLE.replace("  acks=all\n", "  transactional.id=t\n");
        for (text, key) in
            [(setting, "transactional.id"), (format!("{SAMPLE}useTransactions: true\n"), "useTransactions")]
        {
            let error = Driver::parse("t.yaml", &text).expect_err("transactions").to_string();
            assert!(error.contains(&format!("{key}: transactions are not supported")), "{error}");
        }
        assert!(Driver::parse("t.yaml", &format!("{SAMPLE}useTransactions: false\n")).is_ok());
    }

    #[test]
    fn encrypted_driver_gets_no_plain_connection() {
        let text = SAMPLE.replace("  auto.offset", "  security.protocol=SASL_SSL\n  auto.offset");
        let error = Driver::parse("t.yaml", &text).expect_err("encryption").to_string();
        assert!(error.contains("security.protocol: this client neither encrypts"), "{error}");
    }
}
