//! Configuration errors. Each names the option, the value, what is allowed, and where the value came from.

use std::fmt;

use riverrun_types::ErrorKind;
use thiserror::Error;

/// The place where a value was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The configuration file of this name.
    File(String),
    /// The environment variable of this name.
    Environment(String),
    /// A flag of the command line, or the program that starts the server in its own process.
    Flag,
    /// The flag of the command line of this name.
    NamedFlag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(name) => write!(f, "the file {name}"),
            Self::Environment(name) => write!(f, "the environment variable {name}"),
            Self::Flag => f.write_str("a flag"),
            Self::NamedFlag(name) => write!(f, "the flag {name}"),
        }
    }
}

/// Why a configuration was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// No option has this name.
    #[error("unknown option {key:?} in {origin}{}", hint(nearest.as_deref()))]
    UnknownKey {
        /// The name as given.
        key: String,
        /// The place where it was set.
        origin: Origin,
        /// The nearest name that exists.
        nearest: Option<String>,
    },
    /// The name is one of Kafka's options that have no meaning here.
    #[error("option {key:?} in {origin} is Kafka's and has no meaning here: {why}")]
    NotHere {
        /// The name as given.
        key: String,
        /// The place where it was set.
        origin: Origin,
        /// The advice.
        why: &'static str,
    },
    /// The value is not one that the option takes.
    #[error("option {key} cannot be {value:?} (set in {origin}): {reason}")]
    BadValue {
        /// The option.
        key: String,
        /// The value as given.
        value: String,
        /// The place where it was set.
        origin: Origin,
        /// The values that are allowed.
        reason: String,
    },
    /// Two values that are right alone contradict each other.
    #[error("{0}")]
    Conflict(String),
    /// The file could not be read or is not TOML.
    #[error("cannot read the configuration from {name}: {reason}")]
    File {
        /// The file.
        name: String,
        /// The reason, with line and column where known.
        reason: String,
    },
}

impl ConfigError {
    /// A configuration error stays until someone changes the configuration.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::FixRequest
    }
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!(" (did you mean {name:?}?)"))
}

/// A mistyped name in bytes at most: a longer one has no nearest name.
const KEY_BYTES_MAX: usize = 100;

/// The name that a mistyped `key` most likely meant: the same name behind or without a prefix (`retention.ms` for
/// `log.retention.ms`), or the one with the fewest edits, at most a quarter of its length.
pub(crate) fn nearest<'n>(key: &str, names: impl Iterator<Item = &'n str> + Clone) -> Option<String> {
    let same_tail = |name: &&str| name.strip_suffix(key).is_some_and(|head| head.ends_with('.'));
    let longer_tail = |name: &&str| key.strip_suffix(*name).is_some_and(|head| head.ends_with('.'));
    // Nothing that long is a typing mistake, and the edits would take long to count.
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return None;
    }
    if let Some(name) = names.clone().find(same_tail).or_else(|| names.clone().find(longer_tail)) {
        return Some(name.to_owned());
    }
    let (edits, name) = names.map(|name| (edit_distance(key, name), name)).min()?;
    (edits <= name.len().div_ceil(4)).then(|| name.to_owned())
}

/// Levenshtein distance in bytes: insertions, deletions and substitutions cost one each.
fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(left != right);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["log.retention.ms", "log.retention.bytes", "num.partitions", "listeners"];

    #[test]
    fn a_near_miss_finds_the_known_name() {
        for (typed, meant) in [
            ("log.retension.ms", Some("log.retention.ms")),
            ("retention.bytes", Some("log.retention.bytes")),
            ("kafka.num.partitions", Some("num.partitions")),
            ("listener", Some("listeners")),
            ("zookeeper.connect", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, NAMES.into_iter()).as_deref(), meant, "{typed:?}");
        }
    }

    #[test]
    fn edits_are_counted() {
        for (a, b, edits) in [("", "abc", 3), ("abc", "abc", 0), ("kitten", "sitting", 3), ("ab", "ba", 2)] {
            assert_eq!(edit_distance(a, b), edits, "{a} {b}");
        }
    }
}
