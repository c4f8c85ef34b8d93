//! The files that define runs: read whole, bounded, and with errors that name the file.
//!
//! Owns reading and the error type for all mistakes in such a file. Refuses files that are longer than any workload is.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use riverrun_types::ErrorKind;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// A workload, driver or suite file is a page of text; payload files have a bound of their own.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// A mistake in a file that defines runs.
#[derive(Debug, Error)]
pub enum InputError {
    /// The file cannot be read.
    #[error("{file}: {source}")]
    Read {
        /// Name of the file.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// The file is longer than any such file is.
    #[error("{file}: longer than {limit_bytes} bytes")]
    TooLong {
        /// Name of the file.
        file: String,
        /// The bound.
        limit_bytes: u64,
    },
    /// The file is no YAML or JSON, or a key has a value of the wrong kind.
    #[error("{file}: {message}")]
    Syntax {
        /// Name of the file.
        file: String,
        /// The parser's message, with line and column.
        message: String,
    },
    /// The file can be read, but its request cannot be carried out.
    #[error("{file}: {reason}")]
    Refused {
        /// Name of the file.
        file: String,
        /// Why.
        reason: String,
    },
}

impl InputError {
    /// All of these are for the person who wrote the file.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::FixRequest
    }

    pub(crate) fn refused(file: &str, reason: impl Into<String>) -> Self {
        Self::Refused { file: file.to_owned(), reason: reason.into() }
    }
}

/// Reads a file of text.
pub fn read_text(path: &Path) -> Result<String, InputError> {
    let bytes = read_bounded(path, FILE_BYTES_MAX)?;
    let file = path.display().to_string();
    String::from_utf8(bytes).map_err(|error| InputError::Syntax { file, message: error.to_string() })
}

/// Reads a file of at most `limit_bytes`.
pub(crate) fn read_bounded(path: &Path, limit_bytes: u64) -> Result<Vec<u8>, InputError> {
    let file = path.display().to_string();
    let mut bytes = Vec::new();
    let opened = File::open(path).and_then(|opened| opened.take(limit_bytes + 1).read_to_end(&mut bytes));
    match opened {
        Err(source) => Err(InputError::Read { file, source }),
        Ok(_) if bytes.len() as u64 > limit_bytes => Err(InputError::TooLong { file, limit_bytes }),
        Ok(_) => Ok(bytes),
    }
}

/// Reads YAML; `file` is for the error only.
pub(crate) fn from_yaml<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, InputError> {
    serde_saphyr::from_str(text).map_err(|error| {
        let message = match variable(text) {
            Some((line, variable)) => format!(
                "line {line} has `{variable}`, a variable of a template: replace it by its value first ({error})"
            ),
            None => error.to_string(),
        };
        InputError::Syntax { file: file.to_owned(), message }
    })
}

/// The first `${...}` outside of comments, and its line: some workloads are templates that a script fills in.
fn variable(text: &str) -> Option<(usize, &str)> {
    (1..).zip(text.lines()).find_map(|(number, line)| {
        let line = if line.trim_start().starts_with('#') { "" } else { line };
        let line = line.split(" #").next()?;
        let from = line.find("${")?;
        let until = from + line[from..].find('}')?;
        Some((number, &line[from..=until]))
    })
}

/// Reads JSON; `file` is for the error only.
pub(crate) fn from_json<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, InputError> {
    serde_json::from_str(text)
        .map_err(|error| InputError::Syntax { file: file.to_owned(), message: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("long.yaml");
        assert!(matches!(read_text(&path), Err(InputError::Read { .. })));
        std::fs::write(&path, vec![b'#'; usize::try_from(FILE_BYTES_MAX).unwrap() + 1]).expect("room");
        let error = read_text(&path).expect_err("too long");
        assert!(error.to_string().contains("long.yaml: longer than"), "{error}");
        let error = from_yaml::<serde_json::Value>("w.yaml", "a: [1").expect_err("not closed");
        assert!(error.to_string().starts_with("w.yaml: "), "{error}");
    }

    #[test]
    fn a_variable_of_a_template_is_named() {
        for text in [
            "# ${not:-this}\nname: a # nor ${this}\ntestDurationMinutes: ${minutes:-15}\n",
            "name: a\n\ntestDurationMinutes: [${minutes:-15}]\n",
        ] {
            let error = crate::omb::Workload::parse("w.yaml", text).expect_err("no number");
            let expected = "w.yaml: line 3 has `${minutes:-15}`, a variable";
            assert!(error.to_string().starts_with(expected), "{error}");
        }
        let error = from_yaml::<u32>("w.yaml", "# ${a}\nb").expect_err("no number");
        assert!(!error.to_string().contains("variable"), "{error}");
    }
}
