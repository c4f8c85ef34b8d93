//! The sources of configuration: one TOML file, then the environment, then flags; what comes later wins.
//!
//! In the file a dotted name may be written quoted (`"log.retention.ms" = 1`), bare (`log.retention.ms = 1`) or as
//! tables (`[log.retention]`, `ms = 1`). All three mean the same, so one option written twice is an error and not a
//! choice. Where one option's name is the beginning of another's (`max.connections`, `max.connections.per.ip`), TOML
//! itself cannot hold both unquoted; the error says to quote them.

use std::collections::BTreeMap;

use toml::Value;

use super::broker::{BrokerConfig, Settings, definitions};
use super::definition::{FromOption as _, Kind};
use super::error::{ConfigError, Origin, nearest};
use super::kubernetes::is_of_service;
use super::server::LogFormat;

/// The beginning of every environment variable that sets an option.
pub const ENVIRONMENT_PREFIX: &str = "RIVERRUN_";
/// A configuration file in bytes at most.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The name of the environment variable that sets an option: `log.retention.ms` -> `RIVERRUN_LOG_RETENTION_MS`.
pub fn environment_name(option: &str) -> String {
    let upper = option.to_ascii_uppercase();
    format!("{ENVIRONMENT_PREFIX}{}", upper.replace(['.', '-'], "_"))
}

/// The option for the form of log lines and errors, those of the configuration included.
const LOG_FORMAT: &str = "log.format";
/// The option that may be a table in the file, from names of topics to directories.
const MOUNTS: &str = "mounts";
const MOUNT_PREFIX: &str = "mounts.";

/// Everything that can set an option.
#[derive(Clone, Debug, Default)]
pub struct Sources<'a> {
    /// Name and text of the configuration file.
    pub file: Option<(&'a str, &'a str)>,
    /// The environment's variables. Those that do not begin with [`ENVIRONMENT_PREFIX`] are skipped.
    pub environment: Vec<(String, String)>,
    /// Variables with that prefix that set no option and are passed over.
    pub foreign_variables: &'a [&'a str],
    /// Flags, as `key`, `value`; the last one of a key wins.
    pub flags: Vec<(String, String)>,
}

impl Sources<'_> {
    /// Reads all sources into one configuration. A value that cannot be read is an error even if a later source has another:
    /// it would come to light when that source is gone.
    pub fn load(&self) -> Result<BrokerConfig, ConfigError> {
        let mut settings = Settings::default();
        if let Some((name, text)) = self.file {
            read_file(&mut settings, name, text)?;
            BrokerConfig::read(settings.clone())?;
        }
        self.read_environment(&mut settings)?;
        BrokerConfig::read(settings.clone())?;
        for (key, value) in &self.flags {
            settings.set(key, value, Origin::Flag)?;
        }
        BrokerConfig::new(settings)
    }

    /// All errors of the file that would each stop a start with it alone. A file that cannot be read has one error.
    pub fn errors_of_file(&self) -> Vec<ConfigError> {
        let Some((name, text)) = self.file else { return Vec::new() };
        let flat = match read_table(name, text) {
            Ok(flat) => flat,
            Err(error) => return vec![error],
        };
        let mut settings = Settings::default();
        let set =
            |(key, value): (&String, &String)| settings.set(key, value, Origin::File(name.to_owned())).err();
        let mut errors: Vec<_> = flat.iter().filter_map(set).collect();
        errors.extend(BrokerConfig::errors(settings));
        errors
    }

    /// The form of the log that the sources ask for, even if they have errors, which are reported in it.
    pub fn log_format(&self) -> LogFormat {
        let variable = environment_name(LOG_FORMAT);
        let named = |pairs: &[(String, String)], name: &str| {
            pairs.iter().rfind(|(key, _)| key == name).map(|(_, value)| value.clone())
        };
        let table = self.file.and_then(|(name, text)| read_table(name, text).ok());
        let in_file = table.and_then(|mut table| table.remove(LOG_FORMAT));
        let values = [named(&self.flags, LOG_FORMAT), named(&self.environment, &variable), in_file];
        let mut read = values.into_iter().filter_map(|value| LogFormat::from_option(Some(&value?)).ok());
        read.next().unwrap_or(LogFormat::Text)
    }

    fn read_environment(&self, settings: &mut Settings) -> Result<(), ConfigError> {
        let names: BTreeMap<String, &str> =
            definitions().map(|def| (environment_name(def.name), def.name)).collect();
        for (variable, value) in &self.environment {
            let is_ours = variable.starts_with(ENVIRONMENT_PREFIX);
            if !is_ours || self.foreign_variables.contains(&variable.as_str()) {
                continue;
            }
            let origin = Origin::Environment(variable.clone());
            let Some(option) = names.get(variable.as_str()) else {
                if is_of_service(variable, value) {
                    continue;
                }
                let nearest = nearest(variable, names.keys().map(String::as_str));
                return Err(ConfigError::UnknownKey { key: variable.clone(), origin, nearest });
            };
            settings.set(option, value, origin)?;
        }
        Ok(())
    }
}

/// Splits the text of a `--set` flag at its first `=`.
pub fn parse_assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err(format!("{text:?} is not of the form key=value")),
    }
}

fn read_file(settings: &mut Settings, name: &str, text: &str) -> Result<(), ConfigError> {
    for (key, value) in &read_table(name, text)? {
        settings.set(key, value, Origin::File(name.to_owned()))?;
    }
    Ok(())
}

/// The options that a file sets, by their dotted names.
fn read_table(name: &str, text: &str) -> Result<BTreeMap<String, String>, ConfigError> {
    let failed = |reason: String| ConfigError::File { name: name.to_owned(), reason };
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| failed(explain(&error)))?;
    let mut flat = BTreeMap::new();
    flatten(&mut flat, "", table).map_err(failed)?;
    gather_mounts(&mut flat);
    Ok(flat)
}

fn explain(error: &toml::de::Error) -> String {
    let advice = "\nnames with dots may be quoted (\"max.connections\" = 10), and must be where one name begins another";
    let text = error.to_string();
    if text.contains("duplicate key") || text.contains("dotted key") || text.contains("extend") {
        text.trim_end().to_owned() + advice
    } else {
        text.trim_end().to_owned()
    }
}

/// Turns tables into dotted names. The TOML parser bounds the depth of nesting, and so this recursion.
fn flatten(flat: &mut BTreeMap<String, String>, prefix: &str, table: toml::Table) -> Result<(), String> {
    for (key, value) in table {
        let name = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
        let text = match value {
            Value::Table(inner) => {
                flatten(flat, &name, inner)?;
                continue;
            }
            Value::Array(items) => list_text(&name, items)?,
            value => scalar_text(&name, value)?,
        };
        if flat.insert(name.clone(), text).is_some() {
            return Err(format!(
                "option {name} is written twice, once quoted and once in a table; keep one of them"
            ));
        }
    }
    Ok(())
}

/// Turns the entries of a table `mounts` into the items of the list `mounts`.
fn gather_mounts(flat: &mut BTreeMap<String, String>) {
    let in_table = |key: &String, _: &mut String| key.starts_with(MOUNT_PREFIX);
    let items =
        flat.extract_if(.., in_table).map(|(key, dir)| format!("{}={dir}", &key[MOUNT_PREFIX.len()..]));
    let items: Vec<String> = items.collect();
    if !items.is_empty() {
        flat.insert(MOUNTS.to_owned(), items.join(","));
    }
}

fn list_text(name: &str, items: Vec<Value>) -> Result<String, String> {
    let is_list = definitions()
        .find(|def| def.name == name)
        .is_none_or(|def| matches!(def.kind, Kind::List(_) | Kind::Choices(_)));
    if !is_list {
        return Err(format!("option {name} takes one value, not a list"));
    }
    let texts: Result<Vec<_>, _> = items.into_iter().map(|item| scalar_text(name, item)).collect();
    Ok(texts?.join(","))
}

fn scalar_text(name: &str, value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(truth) => Ok(truth.to_string()),
        Value::Datetime(_) | Value::Array(_) | Value::Table(_) => {
            Err(format!("option {name} takes text, a number, true or false, or a list of them"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(file: &str) -> Result<BrokerConfig, ConfigError> {
        Sources { file: Some(("riverrun.toml", file)), ..Sources::default() }.load()
    }

    #[test]
    fn log_format_is_known_despite_other_errors() {
        let sources = |file, variable: &[(&str, &str)], flags: &[(&str, &str)]| Sources {
            file: Some(("riverrun.toml", file)),
            environment: pairs(variable),
            flags: pairs(flags),
            ..Sources::default()
        };
        let (variable, flag) = ("RIVERRUN_LOG_FORMAT", "log.format");
        for (sources, format) in [
            (sources("no.such = 1", &[], &[]), LogFormat::Text),
            (sources("no.such = 1\n[log]\nformat = 'json'", &[], &[]), LogFormat::Json),
            (sources("no toml", &[(variable, "json"), ("RIVERRUN_NO_SUCH", "1")], &[]), LogFormat::Json),
            (sources("log.format = 'text'", &[], &[("no.such", "1"), (flag, "json")]), LogFormat::Json),
            (sources("log.format = 'json'", &[(variable, "json")], &[(flag, "text")]), LogFormat::Text),
            (sources("log.format = 'json'", &[], &[(flag, "yaml")]), LogFormat::Json),
        ] {
            assert_eq!(sources.log_format(), format, "{sources:?}");
        }
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn a_later_source_wins() {
        let file = Some(("f", "num.partitions = 2"));
        let environment = pairs(&[("RIVERRUN_NUM_PARTITIONS", "3"), ("HOME", "/")]);
        let flags = pairs(&[("num.partitions", "4")]);
        let count = |sources: Sources<'_>| sources.load().expect("valid").server.num_partitions;
        assert_eq!(count(Sources::default()), 1);
        assert_eq!(count(Sources { file, ..Sources::default() }), 2);
        assert_eq!(count(Sources { file, environment: environment.clone(), ..Sources::default() }), 3);
        assert_eq!(count(Sources { file, environment, flags, ..Sources::default() }), 4);
    }

    #[test]
    fn bad_value_is_an_error_even_if_a_later_source_replaces_it() {
        let good = || pairs(&[("listeners", "PLAINTEXT://127.0.0.1:0")]);
        let file = Some(("riverrun.toml", "listeners = 'PLAINTEXT//x'"));
        let error = Sources { file, flags: good(), ..Sources::default() }.load().expect_err("bad file");
        assert!(error.to_string().contains("riverrun.toml"), "{error}");
        let environment = pairs(&[("RIVERRUN_LISTENERS", "PLAINTEXT//x")]);
        let error = Sources { environment, flags: good(), ..Sources::default() }.load().expect_err("bad");
        assert!(error.to_string().contains("RIVERRUN_LISTENERS"), "{error}");
        // The cordoned dir is none of the file's log dirs, and one of the flag's.
        let file = Some(("riverrun.toml", "\"cordoned.log.dirs\" = '/b'"));
        let flags = pairs(&[("log.dirs", "/a,/b")]);
        assert!(Sources { file, flags, ..Sources::default() }.load().is_ok());
    }

    #[test]
    fn a_name_may_be_quoted_bare_or_nested() {
        for file in [
            "\"log.retention.ms\" = 7",
            "log.retention.ms = 7",
            "[log.retention]\nms = 7",
            "[log]\n\"retention.ms\" = 7",
        ] {
            assert_eq!(load(file).expect(file).topic_defaults.retention_ms, 7, "{file}");
        }
    }

    #[test]
    fn one_option_written_twice_is_an_error() {
        let error = load("\"log.retention.ms\" = 7\n[log.retention]\nms = 8").expect_err("ambiguous");
        assert!(error.to_string().contains("log.retention.ms is written twice"), "{error}");
    }

    #[test]
    fn names_that_begin_each_other_can_be_quoted() {
        let config = load("\"max.connections\" = 5\n\"max.connections.per.ip\" = 3").expect("valid");
        assert_eq!((config.network.max_connections, config.network.max_connections_per_ip), (5, 3));
        let error = load("max.connections = 5\nmax.connections.per.ip = 3").expect_err("not TOML");
        assert!(error.to_string().contains("may be quoted"), "{error}");
    }

    #[test]
    fn lists_are_arrays_or_comma_separated() {
        for file in ["log.dirs = ['/a', '/b']", "log.dirs = '/a,/b'"] {
            let dirs = load(file).expect(file).log_dirs();
            assert_eq!(dirs, ["/a".into(), "/b".into()] as [std::path::PathBuf; 2]);
        }
        let error = load("num.partitions = [1, 2]").expect_err("one value");
        assert!(error.to_string().contains("num.partitions takes one value"), "{error}");
    }

    #[test]
    fn mounts_are_a_list_or_a_table() {
        for file in [
            "mounts = ['a=/a', 'b.c=/b:rw:synced']",
            "mounts = 'a=/a,b.c=/b:rw:synced'",
            "[mounts]\na = '/a'\n'b.c' = '/b:rw:synced'",
            "mounts.a = '/a'\nmounts.b.c = '/b:rw:synced'",
        ] {
            let mounts = load(file).expect(file).server.mounts;
            let shown: Vec<String> = mounts.iter().map(ToString::to_string).collect();
            assert_eq!(shown, ["a=/a", "b.c=/b:rw:synced"], "{file}");
        }
        let error = load("mounts = ['a=/a', 'a=/b']").expect_err("twice").to_string();
        assert!(error.contains("mounts names the topic a twice"), "{error}");
    }

    #[test]
    fn errors_of_a_file_include_contradictions() {
        let text = "nonsense = 1\nnum.partitions = 0\nlisteners = 'PLAINTEXT//x'\nadmin.listen = 'here'\n\
                    log.retention.ms = 7\ngroup.min.session.timeout.ms = 9\ngroup.max.session.timeout.ms = 8\n\
                    log.dirs = ['/a', '/a']";
        let errors = Sources { file: Some(("f", text)), ..Sources::default() }.errors_of_file();
        let mut told: Vec<String> = errors.iter().map(ToString::to_string).collect();
        for part in [
            "\"nonsense\"",
            "num.partitions",
            "listeners",
            "admin.listen",
            "must be below group.max",
            "log.dirs",
        ] {
            let found = told.iter().position(|error| error.contains(part));
            told.remove(found.unwrap_or_else(|| panic!("{part} in {told:?}")));
        }
        assert_eq!(told, [""; 0]);
        let good = Sources { file: Some(("f", "log.retention.ms = 7")), ..Sources::default() };
        assert_eq!(good.errors_of_file(), []);
        let torn = Sources { file: Some(("f", "log.retention.ms = ")), ..Sources::default() };
        assert_eq!(torn.errors_of_file().len(), 1);
    }

    #[test]
    fn variables_of_a_kubernetes_service_are_passed_over() {
        let environment =
            pairs(&[("RIVERRUN_SERVICE_HOST", "10.0.0.1"), ("RIVERRUN_PORT", "tcp://10.0.0.1:9092")]);
        assert!(Sources { environment, ..Sources::default() }.load().is_ok());
        let environment = pairs(&[("RIVERRUN_PORT", "9092")]);
        assert!(Sources { environment, ..Sources::default() }.load().is_err());
    }

    #[test]
    fn error_for_an_unknown_key_names_its_place_and_a_known_one() {
        let error = load("log.retension.ms = 7").expect_err("unknown").to_string();
        assert!(error.contains("log.retension.ms") && error.contains("riverrun.toml"), "{error}");
        assert!(error.contains("did you mean \"log.retention.ms\"?"), "{error}");
        let environment = pairs(&[("RIVERRUN_NUM_PARTITION", "3")]);
        let error = Sources { environment, ..Sources::default() }.load().expect_err("unknown").to_string();
        assert!(error.contains("RIVERRUN_NUM_PARTITIONS"), "{error}");
    }

    #[test]
    fn foreign_variables_are_passed_over() {
        let environment = pairs(&[("RIVERRUN_COLOUR", "green")]);
        let sources = Sources { environment, foreign_variables: &["RIVERRUN_COLOUR"], ..Sources::default() };
        assert!(sources.load().is_ok());
    }

    #[test]
    fn a_bad_value_names_key_value_and_range() {
        let error = load("num.partitions = 0").expect_err("out of range").to_string();
        for part in ["num.partitions", "\"0\"", "from 1 to 100000", "riverrun.toml"] {
            assert!(error.contains(part), "{part} in {error}");
        }
    }

    #[test]
    fn environment_names_are_distinct() {
        let names: std::collections::BTreeSet<_> =
            definitions().map(|def| environment_name(def.name)).collect();
        assert_eq!(names.len(), definitions().count());
    }

    #[test]
    fn an_assignment_splits_at_its_first_equals_sign() {
        assert_eq!(parse_assignment("a.b = c=d"), Ok(("a.b".into(), "c=d".into())));
        assert!(parse_assignment("a.b").is_err());
        assert!(parse_assignment("=c").is_err());
    }
}
