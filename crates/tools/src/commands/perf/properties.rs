//! Settings of the client as Kafka's tools take them: a file, pairs on the command line, and flags above both.
//!
//! Guarantees that a setting either takes effect or is named on stderr. Refuses settings that would make the measured
//! thing another one, such as encryption and transactions.

use std::path::{Path, PathBuf};

use clap::Args;
use riverrun_bench::input::read_text;
use riverrun_bench::properties::Properties;
use riverrun_bench::unsupported::refusal;
use riverrun_client::{ClientError, ClusterOptions, ConsumerOptions, OptionDef, ProducerOptions};

use crate::args::parse_pair;
use crate::exit::{Exit, Failure};
use crate::logging;

/// The default address of the servers.
const DEFAULT_BOOTSTRAP: &str = "127.0.0.1:9092";
const BOOTSTRAP_VARIABLE: &str = "RIVERRUN_BOOTSTRAP";
const BOOTSTRAP: &str = "bootstrap.servers";

/// Settings of Java's clients that say how to make bytes of objects: a client of bytes has them all fulfilled.
const FULFILLED: [&str; 4] = ["key.serializer", "value.serializer", "key.deserializer", "value.deserializer"];

/// How the client is set up.
#[derive(Args, Debug, Default)]
pub(super) struct PropertyArgs {
    /// One or more servers to begin with, separated by commas; goes before the properties. Default: that of
    /// the properties, the environment's `RIVERRUN_BOOTSTRAP`, or 127.0.0.1:9092
    #[arg(long, visible_alias = "bootstrap", value_name = "HOST:PORT")]
    pub(super) bootstrap_server: Option<String>,
    /// Settings of the client by Kafka's names, as linger.ms=10; they go before those of --command-config
    #[arg(long, value_name = "NAME=VALUE", num_args = 1.., value_parser = parse_pair)]
    command_property: Vec<(String, String)>,
    /// A properties file with settings of the client
    #[arg(long, value_name = "FILE")]
    command_config: Option<PathBuf>,
}

impl PropertyArgs {
    /// Flags of older tools that mean the same.
    pub(super) fn or_older(mut self, pairs: &[(String, String)], file: Option<&Path>) -> Self {
        let mut all = pairs.to_vec();
        all.append(&mut self.command_property);
        self.command_property = all;
        self.command_config = self.command_config.or_else(|| file.map(Path::to_owned));
        self
    }

    /// All settings, `own` below those that were given, and the servers among them.
    pub(super) fn all(&self, own: &[(&str, &str)]) -> Result<Properties, Failure> {
        let mut all: Properties =
            own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        if let Some(file) = &self.command_config {
            let text = read_text(file).map_err(|error| Failure::new(Exit::NotFound, error.to_string()))?;
            all = all.with(&Properties::parse(&text));
        }
        all = all.with(&self.command_property.iter().cloned().collect());
        if let Some(servers) = &self.bootstrap_server {
            all.set(BOOTSTRAP, servers);
        } else if all.get(BOOTSTRAP).is_none() {
            let variable = std::env::var(BOOTSTRAP_VARIABLE).ok().filter(|text| !text.is_empty());
            all.set(BOOTSTRAP, variable.unwrap_or_else(|| DEFAULT_BOOTSTRAP.to_owned()));
        }
        refusal(&all).map_or(Ok(all), |reason| Err(Failure::usage(reason)))
    }
}

const OF_PRODUCER: &[&[OptionDef]] = &[ClusterOptions::DEFINITIONS, ProducerOptions::DEFINITIONS];
const OF_CONSUMER: &[&[OptionDef]] = &[ClusterOptions::DEFINITIONS, ConsumerOptions::DEFINITIONS];

/// The settings that one of the tables knows, and the names of the others.
fn split<'a>(properties: &'a Properties, tables: &[&[OptionDef]]) -> (Vec<(&'a str, &'a str)>, Vec<&'a str>) {
    let is_known = |name: &str| tables.iter().any(|table| table.iter().any(|one| one.name == name));
    let (known, others): (Vec<_>, Vec<_>) = properties.iter().partition(|(name, _)| is_known(name));
    (known, others.into_iter().map(|(name, _)| name).filter(|name| !FULFILLED.contains(name)).collect())
}

fn name_useless(names: &[&str]) {
    for name in names {
        logging::note(&format!("warning: this client has no setting {name}, so it has no effect"));
    }
}

/// The producer that these settings make.
pub(super) fn producer(properties: &Properties) -> Result<ProducerOptions, ClientError> {
    let (known, useless) = split(properties, OF_PRODUCER);
    name_useless(&useless);
    ProducerOptions::from_properties(known)
}

/// The consumer that these settings make.
pub(super) fn consumer(properties: &Properties) -> Result<ConsumerOptions, ClientError> {
    let (known, useless) = split(properties, OF_CONSUMER);
    name_useless(&useless);
    ConsumerOptions::from_properties(known)
}

/// A producer and a consumer of one list of settings: each takes what it knows.
pub(super) fn both(properties: &Properties) -> Result<(ProducerOptions, ConsumerOptions), ClientError> {
    let (of_producer, mut useless) = split(properties, OF_PRODUCER);
    let (of_consumer, useless_here) = split(properties, OF_CONSUMER);
    useless.retain(|name| useless_here.contains(name));
    name_useless(&useless);
    Ok((ProducerOptions::from_properties(of_producer)?, ConsumerOptions::from_properties(of_consumer)?))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        properties: PropertyArgs,
    }

    fn all(flags: &[&str]) -> Result<Properties, Failure> {
        let line = Line::try_parse_from([&["perf"], flags].concat()).expect("flags");
        line.properties.all(&[("linger.ms", "1"), ("client.id", "perf")])
    }

    #[test]
    fn the_flag_goes_before_pairs_and_pairs_before_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("client.properties");
        std::fs::write(&file, "bootstrap.servers=file:1\nlinger.ms=2\nacks=1\n").unwrap();
        let file = file.to_str().unwrap();
        let pairs = ["--command-config", file, "--command-property", "linger.ms=3", "retries=9"];
        let found = all(&pairs).unwrap();
        let get = |name: &str| found.get(name).unwrap_or("none").to_owned();
        assert_eq!((get("linger.ms"), get("acks"), get("retries")), ("3".into(), "1".into(), "9".into()));
        assert_eq!((get("client.id"), get(BOOTSTRAP)), ("perf".into(), "file:1".into()));
        let found = all(&[&pairs[..], &["--bootstrap-server", "flag:1"]].concat()).unwrap();
        assert_eq!(found.get(BOOTSTRAP), Some("flag:1"));
    }

    #[test]
    fn settings_that_change_what_is_measured_are_refused_by_name() {
        for pair in
            ["security.protocol=SSL", "sasl.mechanism=PLAIN", "ssl.key.password=x", "transactional.id=t"]
        {
            let failure = all(&["--command-property", pair]).expect_err(pair);
            assert_eq!(failure.exit, Exit::Usage);
            assert!(failure.message().starts_with(pair.split('=').next().unwrap()), "{failure}");
        }
        assert!(all(&["--command-property", "security.protocol=PLAINTEXT"]).is_ok());
    }

    #[test]
    fn unknown_properties_stop_no_run_and_known_ones_are_checked() {
        let options = |pair| producer(&all(&["--command-property", pair]).unwrap());
        assert_eq!(options("key.serializer=x").unwrap().linger.as_millis(), 1);
        assert!(options("metrics.num.samples=3").is_ok());
        assert!(options("acks=7").is_err());
        let options = consumer(&all(&["--command-property", "fetch.min.bytes=7"]).unwrap());
        assert_eq!(options.unwrap().fetch_min_bytes, 7);
    }

    #[test]
    fn a_missing_file_is_named() {
        let failure = all(&["--command-config", "no-such-file"]).expect_err("missing");
        assert!(failure.exit == Exit::NotFound && failure.message().contains("no-such-file"), "{failure}");
    }
}
