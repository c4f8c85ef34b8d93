//! Errors of the input, and their places.

use std::fmt;
use std::io;

use crate::exit::{Exit, Failure};

/// Why the input cannot be read further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InputError {
    line: Option<u64>,
    reason: String,
    exit: Exit,
}

impl InputError {
    pub(crate) fn at(line: u64, reason: impl Into<String>) -> Self {
        Self { line: Some(line), reason: reason.into(), exit: Exit::Usage }
    }

    pub(crate) fn whole(reason: impl Into<String>) -> Self {
        Self { line: None, reason: reason.into(), exit: Exit::Usage }
    }

    pub(crate) fn io(line: u64, error: &io::Error) -> Self {
        Self { line: Some(line), reason: error.to_string(), exit: Exit::Failed }
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "input, line {line}: {}", self.reason),
            None => write!(f, "input: {}", self.reason),
        }
    }
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        Self::new(error.exit, error.to_string())
    }
}
